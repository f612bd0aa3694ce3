//! t
use hesper::*;
use std::time::Instant;
fn main() -> Result<()> {
    let fusion = std::env::args().nth(1).as_deref() == Some("on");
    eval::set_fusion(fusion);
    let one = Array::ones(&[1], Dtype::Float32)?;
    one.eval()?;
    let t = Instant::now();
    let (mut build, mut run) = (0.0, 0.0);
    for _ in 0..300 {
        let b = Instant::now();
        let mut y = one.clone();
        for _ in 0..10_000 {
            y = y.add(&one)?;
        }
        build += b.elapsed().as_secs_f64();
        let b = Instant::now();
        y.eval()?;
        run += b.elapsed().as_secs_f64();
    }
    println!(
        "{:.3} us an op; build {:.3} eval {:.3}",
        t.elapsed().as_secs_f64() / 3e6 * 1e6,
        build / 3.0,
        run / 3.0
    );
    Ok(())
}
