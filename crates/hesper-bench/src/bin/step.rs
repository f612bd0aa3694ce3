//! The host's share of a decode step: a Llama of 32 tiny layers in plain ops.
//!
//!     cargo run --release -p hesper-bench --bin step [-- STEPS]
//!
//! Prints the best time of all steps: that of the step which other programs disturbed least.

use std::time::Instant;

use hesper::Result;
use hesper_bench::llama::Llama;

fn main() -> Result<()> {
    let steps = std::env::args().nth(1).and_then(|steps| steps.parse().ok()).unwrap_or(500);
    let mut model = Llama::new(32)?;
    let mut best = [f64::INFINITY; 3];
    for _ in 0..steps {
        let begun = Instant::now();
        model.build()?;
        let built = begun.elapsed();
        model.start()?;
        let encoded = begun.elapsed();
        model.token()?;
        let times = [built, encoded - built, begun.elapsed()];
        best.iter_mut().zip(times).for_each(|(best, time)| *best = best.min(time.as_secs_f64() * 1e3));
    }
    let [build, encode, total] = best;
    println!(
        "decode step of 32 layers: build {build:.3} ms, plan + encode {encode:.3} ms, total {total:.3} ms"
    );
    Ok(())
}
