//! Streams and threads: arrays are `Send + Sync`, each thread may compute on a stream of its own, and a
//! stream that reads what another computes waits for it without being told.
//!
//! `cargo run --release -p hesper --example streams`

use std::error::Error;
use std::thread;

use hesper::{Array, Dtype, async_eval, placement, random, stack};

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let weights = random::normal(&[256, 256], Dtype::Float32, 0.0, 1.0 / 16.0, None)?;
    weights.eval()?;
    // Four threads, a stream for each, one shared array.
    let results = thread::scope(|scope| -> hesper::Result<Vec<Array>> {
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                let weights = &weights;
                scope.spawn(move || -> hesper::Result<Array> {
                    let stream = placement::cpu().stream()?;
                    placement::with_stream(&stream, || {
                        let mut x =
                            Array::full(&[256, 256], 0.1 * f64::from(seed + 1), Some(Dtype::Float32))?;
                        for _ in 0..8 {
                            x = x.matmul(weights)?.tanh()?;
                        }
                        // Starts the work and returns: the thread may build the next graph meanwhile.
                        async_eval([&x])?;
                        Ok(x)
                    })
                })
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join().map_err(|_| "a worker panicked"));
        joined
            .map(|result| result.unwrap_or_else(|what| Err(hesper::Error::value("streams", what))))
            .collect()
    })?;
    // The main thread's stream reads the results of all others.
    let sizes = stack(&results, 0)?.square()?.mean([1, 2])?.sqrt()?;
    println!("root mean square of each thread's result: {sizes}");
    // A failure is a value: it stays with the arrays that depend on it.
    let refused = results[0].matmul(&Array::ones(&[3, 3], Dtype::Float32)?);
    println!(
        "a wrong product is an error: {}",
        refused.map_or_else(|error| error.to_string(), |_| "?".into())
    );
    Ok(())
}
