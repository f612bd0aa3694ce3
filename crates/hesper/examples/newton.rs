//! Minimizes Rosenbrock's function by Newton's method without ever building the Hessian: the product of the
//! Hessian and a vector is the `jvp` of the `grad`, and conjugate gradients need nothing else.
//!
//! `cargo run --release -p hesper --example newton`

use std::error::Error;

use hesper::{Array, Dtype, s, transform};

fn rosenbrock(x: &Array) -> hesper::Result<Array> {
    let (head, tail) = (x.index(s![..-1])?, x.index(s![1..])?);
    let (valley, slope) = ((tail - head.square()?).square()?, (1.0 - head).square()?);
    (valley * 100.0 + slope).sum(())
}

fn gradient(x: &[Array]) -> hesper::Result<Vec<Array>> {
    transform::grad(|x| rosenbrock(&x[0]), &[0])(x)
}

fn dot(a: &Array, b: &Array) -> hesper::Result<f64> {
    (a * b).sum(())?.item()
}

/// Solves `hessian * direction = -gradient` by conjugate gradients.
fn newton_direction(x: &Array, slope: &Array) -> hesper::Result<Array> {
    let mut direction = x.zeros_like()?;
    let mut rest = -slope;
    let mut search = rest.clone();
    let mut size = dot(&rest, &rest)?;
    for _ in 0..2 * x.size() {
        let (_, products) = transform::jvp(gradient, &[x.clone()], &[search.clone()])?;
        let curvature = dot(&search, &products[0])?;
        if curvature <= 0.0 || size < 1e-20 {
            break;
        }
        direction += &search * (size / curvature);
        rest -= &products[0] * (size / curvature);
        let next = dot(&rest, &rest)?;
        search = &rest + search * (next / size);
        size = next;
    }
    if dot(&direction, &direction)? == 0.0 { Ok(-slope) } else { Ok(direction) }
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let mut x = Array::full(&[8], -0.5, Some(Dtype::Float64))?;
    println!("step  value          size of the gradient");
    for step in 0..60 {
        let value = rosenbrock(&x)?.item::<f64>()?;
        let slope = gradient(&[x.clone()])?.remove(0);
        let size = dot(&slope, &slope)?.sqrt();
        println!("{step:>4}  {value:<13.6e}  {size:.3e}");
        if size < 1e-9 {
            let off = (&x - 1.0).abs()?.max(())?.item::<f64>()?;
            println!("minimum at ones, off by {off:.1e}");
            return Ok(());
        }
        let direction = newton_direction(&x, &slope)?;
        // Half the step until the value falls.
        let mut length = 1.0;
        while rosenbrock(&(&x + &direction * length))?.item::<f64>()? > value && length > 1e-10 {
            length /= 2.0;
        }
        x += direction * length;
        x.eval()?;
    }
    Err("Newton's method did not converge in 60 steps".into())
}
