//! The order of steps: what a training step keeps in memory, and what a compiled function does.

use crate::alone;
use hesper::{Array, Dtype, Result, eval, placement, transform};

const LAYERS: usize = 8;
const WIDTH: usize = 256;
/// Bytes of an activation, and of a weight.
const ACTIVATION: usize = ROWS * WIDTH * 4;
const WEIGHT: usize = WIDTH * WIDTH * 4;
const ROWS: usize = 4 * WIDTH;

fn loss(x: &[Array]) -> Result<Array> {
    let mut hidden = x[0].clone();
    for weight in &x[1..] {
        hidden = hidden.matmul(weight)?.maximum(0.0)?;
    }
    hidden.square()?.mean(())
}

/// The weights after a step of gradient descent.
fn step(given: &[Array]) -> Result<Vec<Array>> {
    let weights: Vec<usize> = (1..given.len()).collect();
    let gradients = transform::grad(loss, &weights)(given)?;
    given[1..]
        .iter()
        .zip(gradients)
        .map(|(weight, gradient)| weight.subtract(gradient.multiply(0.1)?))
        .collect()
}

/// A batch and the weights.
fn inputs() -> Vec<Array> {
    let batch = Array::ones(&[ROWS, WIDTH], Dtype::Float32).unwrap() * 0.5;
    let weight = |at: usize| Array::eye(WIDTH, WIDTH, at as isize, Dtype::Float32).unwrap() * 1.25;
    let given: Vec<Array> = std::iter::once(batch).chain((0..LAYERS).map(weight)).collect();
    eval(&given).unwrap();
    given
}

/// The most bytes that a call holds at once beside those that were there.
fn peak(call: impl FnOnce()) -> usize {
    let cpu = placement::cpu();
    cpu.synchronize().unwrap();
    cpu.clear_cache();
    let before = cpu.counters().active;
    cpu.reset_peak();
    call();
    cpu.synchronize().unwrap();
    cpu.counters().peak - before
}

/// The activations have to be kept, the cotangents of all layers need not.
#[test]
fn a_training_step_keeps_the_activations_and_few_cotangents() {
    let _alone = alone();
    let given = inputs();
    let most = (LAYERS + 3) * ACTIVATION + (LAYERS + 2) * WEIGHT;
    let eager = peak(|| eval(&step(&given).unwrap()).unwrap());
    assert!(
        eager <= most,
        "{eager} bytes for activations of {} and weights of {}",
        LAYERS * ACTIVATION,
        LAYERS * WEIGHT
    );
    let compiled = transform::compile(step);
    let run = || eval(&compiled(&given).unwrap()).unwrap();
    run();
    let compiled = peak(run);
    assert!(compiled <= most, "{compiled} bytes when compiled, {eager} when not");
}

/// Arrays that follow from a number are computed by each run instead of kept.
#[test]
fn a_compiled_function_keeps_no_large_array_that_follows_from_a_number() {
    let _alone = alone();
    let given = inputs();
    let scaled = |x: &[Array]| {
        let start = Array::zeros(x[0].shape(), Dtype::Float32)?;
        Ok(vec![start.multiply(0.9)?.add(0.25)?.add(&x[0])?])
    };
    let expected = scaled(&given).unwrap()[0].to_vec::<f32>().unwrap();
    let compiled = transform::compile(scaled);
    let cpu = placement::cpu();
    cpu.synchronize().unwrap();
    let before = cpu.counters().active;
    let result = compiled(&given).unwrap();
    assert_eq!(result[0].to_vec::<f32>().unwrap(), expected);
    drop(result);
    cpu.synchronize().unwrap();
    let kept = cpu.counters().active - before;
    assert!(kept < ACTIVATION / 2, "{kept} bytes are kept by a function that captures nothing");
}
