//! Fits a line to noisy points by gradient descent, with nothing but arrays and a transform.
//!
//! `cargo run --release -p hesper --example linear_regression`

use hesper::transform::tree;
use hesper::{Array, Dtype, Result, random};

/// Runs the example.
pub fn main() -> Result<()> {
    random::seed(1);
    let (slope, offset) = (2.5, -1.0);
    let x = random::uniform(-1.0, 1.0, &[200], Dtype::Float32, None)?;
    let noise = random::normal(&[200], Dtype::Float32, 0.0, 0.1, None)?;
    let y = x.multiply(slope)?.add(offset)?.add(&noise)?;

    let loss = |(a, b): &(Array, Array)| x.multiply(a)?.add(b)?.subtract(&y)?.square()?.mean(());
    let step = tree::value_and_grad(loss);
    let mut line = (Array::scalar(0.0, Dtype::Float32)?, Array::scalar(0.0, Dtype::Float32)?);

    println!("{:>5} {:>10} {:>10} {:>10}", "step", "slope", "offset", "loss");
    for at in 0..=100 {
        let (value, (da, db)) = step(&line)?;
        if at % 20 == 0 {
            let (a, b) = (line.0.item::<f32>()?, line.1.item::<f32>()?);
            println!("{at:>5} {a:>10.4} {b:>10.4} {:>10.5}", value.item::<f32>()?);
        }
        line = (line.0.subtract(da.multiply(0.3)?)?, line.1.subtract(db.multiply(0.3)?)?);
    }
    let (a, b) = (f64::from(line.0.item::<f32>()?), f64::from(line.1.item::<f32>()?));
    println!("fitted {a:.3} x {b:+.3}, the points are about {slope} x {offset:+}");
    assert!((a - slope).abs() < 0.05 && (b - offset).abs() < 0.05);
    Ok(())
}
