//! Shared by the benchmarks: timing that is robust on a noisy machine.

pub mod lines;
pub mod llama;
pub mod mlp;
pub mod table;

use std::time::Instant;

/// The best time of one call of `f` in nanoseconds, over `rounds` rounds of `calls` calls each. On a shared
/// machine the best round is the least disturbed one.
pub fn best_ns(rounds: usize, calls: usize, mut f: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let begun = Instant::now();
        for _ in 0..calls {
            f();
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / calls as f64);
    }
    best
}
