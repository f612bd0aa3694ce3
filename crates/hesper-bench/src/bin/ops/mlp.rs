//! The training step of a small network, compiled and not.

use std::time::Instant;

use hesper::{Result, transform};
use hesper_bench::lines::{Lines, Unit};
use hesper_bench::mlp::{Rule, Step, Training};

pub(crate) fn measure(lines: &Lines) -> Result<()> {
    for (rule, suffix) in [(Rule::Sgd, ""), (Rule::Adam, "_adam")] {
        let mut training = Training::new(rule)?;
        let step = training.step();
        let compiled = transform::compile(training.step());
        for (mode, run) in [("eager", &step as Step<'_>), ("compiled", &compiled)] {
            let begun = Instant::now();
            training.advance(run)?;
            if mode == "compiled" {
                let name = format!("W9.mlp{suffix}_compile_first_call");
                lines.once(&name, "", begun.elapsed().as_secs_f64());
            }
            let params = format!("\"mlp\": [784, 256, 256, 10], \"batch\": 32, \"mode\": \"{mode}\"");
            lines.measure(&format!("W9.mlp{suffix}_step"), &params, Unit::Calls, || training.advance(run));
        }
    }
    Ok(())
}
