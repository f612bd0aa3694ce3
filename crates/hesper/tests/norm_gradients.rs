//! Derivatives of norms: one op in single and half precision, compared with the graph of other ops, which
//! double precision takes.

use hesper::{Array, Dtype, Error, Result, fast, random, transform};

fn draw(shape: &[usize], seed: u64, dtype: Dtype) -> Array {
    let key = random::key(seed).unwrap();
    random::normal(shape, Dtype::Float32, 0.3, 1.0, Some(&key)).unwrap().astype(dtype).unwrap()
}

type Norm = fn(&[Array]) -> Result<Vec<Array>>;

/// Norms with the number of their inputs.
const NORMS: [(&str, usize, Norm); 5] = [
    ("layer norm", 3, |x| Ok(vec![fast::layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-3)?])),
    ("layer norm with a weight", 2, |x| Ok(vec![fast::layer_norm(&x[0], Some(&x[1]), None, 1e-3)?])),
    ("layer norm alone", 1, |x| Ok(vec![fast::layer_norm(&x[0], None, None, 1e-3)?])),
    ("RMS norm", 2, |x| Ok(vec![fast::rms_norm(&x[0], Some(&x[1]), 1e-3)?])),
    ("RMS norm alone", 1, |x| Ok(vec![fast::rms_norm(&x[0], None, 1e-3)?])),
];

fn inputs(shape: &[usize], count: usize, dtype: Dtype) -> Vec<Array> {
    let length = &shape[shape.len() - 1..];
    let vectors = (1..count).map(|at| draw(length, at as u64, dtype));
    std::iter::once(draw(shape, 9, dtype)).chain(vectors).collect()
}

fn wide(arrays: &[Array]) -> Vec<Array> {
    arrays.iter().map(|array| array.astype(Dtype::Float64).unwrap()).collect()
}

fn close(what: &str, found: &[Array], expected: &[Array], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.shape(), expected.shape(), "{what}: cotangent {at}");
        let (found, expected) = (wide(&[found.clone()])[0].to_vec::<f64>(), expected.to_vec::<f64>());
        let (found, expected) = (found.unwrap(), expected.unwrap());
        let largest = expected.iter().fold(1e-2f64, |top, x| top.max(x.abs()));
        for (one, other) in found.iter().zip(&expected) {
            let error = (one - other).abs() / largest;
            assert!(error <= tolerance, "{what}: cotangent {at}: {one}, expected {other}");
        }
    }
}

#[test]
fn derivatives_of_norms_are_those_of_double_precision() {
    for (dtype, tolerance) in [(Dtype::Float32, 1e-5), (Dtype::Bfloat16, 1e-2), (Dtype::Float16, 2e-3)] {
        for shape in [&[5][..], &[2, 1], &[70, 33], &[2, 3, 64], &[1000, 8]] {
            for (name, count, norm) in NORMS {
                let inputs = inputs(shape, count, dtype);
                let cotangent = [draw(shape, 17, dtype)];
                let found = transform::vjp(norm, &inputs, &cotangent).unwrap().1;
                assert!(found.iter().all(|one| one.dtype() == dtype));
                let expected = transform::vjp(norm, &wide(&inputs), &wide(&cotangent)).unwrap().1;
                close(&format!("{name}, {dtype}, {shape:?}"), &found, &expected, tolerance);
            }
        }
    }
}

#[test]
fn a_weight_that_does_not_vary_has_no_cotangent_to_compute() {
    let (x, w) = (draw(&[4, 16], 1, Dtype::Float32), draw(&[16], 2, Dtype::Float32));
    let norm = |x: &[Array]| Ok(vec![fast::rms_norm(&x[0], Some(&w), 1e-3)?]);
    let found = transform::vjp(norm, &[x.clone()], &[x.clone()]).unwrap().1;
    let expected = transform::vjp(NORMS[3].2, &[x.clone(), w.clone()], &[x]).unwrap().1;
    assert_eq!(found[0].to_vec::<f32>().unwrap(), expected[0].to_vec::<f32>().unwrap());
}

#[test]
fn derivatives_of_norms_are_differentiated_again() {
    for (name, count, norm) in NORMS {
        let inputs = inputs(&[6, 10], count, Dtype::Float32);
        let slope = |x: &[Array]| {
            let cotangent = x[0].multiply(0.5f32)?.sin()?;
            let found = transform::vjp(norm, x, &[cotangent])?.1;
            found
                .iter()
                .try_fold(Array::scalar(0.0, found[0].dtype())?, |sum, one| sum.add(one.square()?.sum(())?))
        };
        let function = |x: &[Array]| slope(x).map(|one| vec![one]);
        let one = |dtype| [Array::scalar(1.0, dtype).unwrap()];
        let found = transform::vjp(function, &inputs, &one(Dtype::Float32)).unwrap().1;
        let expected = transform::vjp(function, &wide(&inputs), &one(Dtype::Float64)).unwrap().1;
        close(name, &found, &expected, 1e-4);
        let tangents: Vec<Array> = inputs.iter().map(|x| x.cos().unwrap()).collect();
        let found = transform::jvp(norm, &inputs, &tangents).unwrap().1;
        let expected = transform::jvp(norm, &wide(&inputs), &wide(&tangents)).unwrap().1;
        close(name, &found, &expected, 1e-5);
    }
}

#[test]
fn each_element_of_a_batch_has_its_own_cotangents_of_weight_and_bias() {
    for (name, count, norm) in NORMS {
        let examples = inputs(&[3, 4, 12], count, Dtype::Float32);
        let cotangent = draw(&[3, 4, 12], 20, Dtype::Float32);
        let gradient = |x: &[Array]| {
            let (given, cotangent) = x.split_at(x.len() - 1);
            Ok(transform::vjp(norm, given, cotangent)?.1)
        };
        let mut arguments = examples.clone();
        arguments.push(cotangent.clone());
        // Weights for all examples, then a weight for each.
        for own in [false, true] {
            let mut axes = vec![own.then_some(0); count + 1];
            (axes[0], axes[count]) = (Some(0), Some(0));
            let mut arguments = arguments.clone();
            if own {
                for (at, argument) in arguments.iter_mut().enumerate().take(count).skip(1) {
                    *argument = draw(&[3, 12], 30 + at as u64, Dtype::Float32);
                }
            }
            let found = transform::vmap(gradient, &axes, &vec![Some(0); count])(&arguments).unwrap();
            for number in 0..3 {
                let slice = |at: usize| match axes[at] {
                    Some(_) => arguments[at].take(number, Some(0)).unwrap(),
                    None => arguments[at].clone(),
                };
                let one: Vec<Array> = (0..=count).map(slice).collect();
                let found: Vec<Array> = found.iter().map(|x| x.take(number, Some(0)).unwrap()).collect();
                let expected = gradient(&wide(&one)).unwrap();
                close(&format!("{name}, weights of their own: {own}"), &found, &expected, 1e-5);
            }
        }
    }
}

#[test]
fn rows_without_elements_have_empty_cotangents() -> std::result::Result<(), Error> {
    for shape in [[0, 4], [3, 0]] {
        let inputs = inputs(&shape, 3, Dtype::Float32);
        let found = transform::vjp(NORMS[0].2, &inputs, &inputs[..1])?.1;
        assert_eq!(found[0].shape(), shape);
        assert_eq!(found[1].to_vec::<f32>()?, vec![0.0; shape[1]]);
    }
    Ok(())
}
