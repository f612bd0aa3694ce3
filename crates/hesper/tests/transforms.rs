//! Derivatives of every op of the table: tangents compared with finite differences, cotangents with tangents,
//! and the same for second and third derivatives.

use crate::table;
use crate::table::{Case, ints, like, x};
use hesper::transform::{self, CustomFunction};
use hesper::{Array, Dtype, Result, select};

/// The dot product with fixed elements, of real and imaginary parts.
fn weigh(y: &Array, by: &Array) -> f64 {
    let product =
        if y.dtype() == Dtype::Complex64 { y.multiply(by.conjugate().unwrap()) } else { y.multiply(by) };
    product.unwrap().real().unwrap().astype(Dtype::Float64).unwrap().sum(()).unwrap().item().unwrap()
}

fn check(case: &Case) {
    let name = case.name;
    let Case { function, inputs, step, tolerance, .. } = case;
    let tangents: Vec<Array> = inputs.iter().enumerate().map(|(at, input)| like(60 + at, input)).collect();
    let (outputs, pushed) =
        transform::jvp(function, inputs, &tangents).unwrap_or_else(|e| panic!("{name}: {e}"));
    let cotangents: Vec<Array> = outputs.iter().enumerate().map(|(at, y)| like(80 + at, y)).collect();
    let weigh_all = |ys: &[Array]| -> f64 { ys.iter().zip(&cotangents).map(|(y, by)| weigh(y, by)).sum() };

    let at = |by: f64| -> f64 {
        let moved: Vec<Array> =
            inputs.iter().zip(&tangents).map(|(input, tangent)| input + tangent * by).collect();
        weigh_all(&function(&moved).unwrap())
    };
    let (slope, expected) = (weigh_all(&pushed), (at(*step) - at(-step)) / (2.0 * step));
    let scale = 1.0 + expected.abs();
    assert!((slope - expected).abs() < tolerance * scale, "{name}: tangent {slope}, difference {expected}");

    let (_, pulled) = transform::vjp(function, inputs, &cotangents).unwrap_or_else(|e| panic!("{name}: {e}"));
    let back: f64 = pulled.iter().zip(&tangents).map(|(one, tangent)| weigh(one, tangent)).sum();
    assert!((back - slope).abs() < tolerance * scale, "{name}: cotangent {back}, tangent {slope}");
    for (one, input) in pulled.iter().zip(inputs) {
        assert_eq!((one.shape(), one.dtype()), (input.shape(), input.dtype()), "{name}");
    }

    // A second derivative is the derivative of the first, and a third that of the second.
    let first = |x: &[Array]| Ok(transform::vjp(function, x, &cotangents)?.1);
    let second = |x: &[Array]| Ok(transform::jvp(first, x, &tangents)?.1);
    let sum = |list: &[Array]| -> f64 { list.iter().zip(&tangents).map(|(one, by)| weigh(one, by)).sum() };
    let (curved, third) =
        transform::jvp(second, inputs, &tangents).unwrap_or_else(|e| panic!("{name}, thrice: {e}"));
    let (bend, third) = (sum(&curved), sum(&third));
    assert!(bend.is_finite() && third.is_finite(), "{name}: second {bend}, third {third}");
    let (plus, minus) = (at(100.0 * step), at(-100.0 * step));
    let difference = (plus - 2.0 * at(0.0) + minus) / (1e4 * step * step);
    if *step < 1e-4 && difference.abs() < 1e3 {
        let scale = 1.0 + difference.abs();
        assert!((bend - difference).abs() < 1e-2 * scale, "{name}: second {bend}, difference {difference}");
        let moved = |by: f64| -> f64 {
            let moved: Vec<Array> =
                inputs.iter().zip(&tangents).map(|(x, tangent)| x + tangent * by).collect();
            sum(&second(&moved).unwrap())
        };
        let difference = (moved(10.0 * step) - moved(-10.0 * step)) / (20.0 * step);
        let scale = 1.0 + difference.abs();
        assert!((third - difference).abs() < 1e-3 * scale, "{name}: third {third}, difference {difference}");
    }
}

fn check_group(name: &str) {
    table::group(name).iter().filter(|case| case.smooth).for_each(check);
}

#[test]
fn element_wise_ops_agree_with_finite_differences() {
    check_group("element-wise");
}

#[test]
fn movements_and_updates_agree_with_finite_differences() {
    check_group("movement");
}

#[test]
fn reductions_and_norms_agree_with_finite_differences() {
    check_group("reductions");
}

#[test]
fn products_and_transforms_agree_with_finite_differences() {
    check_group("products");
}

#[test]
fn factors_of_matrices_agree_with_finite_differences() {
    check_group("matrices");
}

#[test]
fn attention_and_quantized_products_agree_with_finite_differences() {
    check_group("others");
}

/// The first and the second derivative of the sum of a function, along ones.
fn derivatives(f: impl Fn(&Array) -> Result<Array> + Copy, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let first = move |x: &[Array]| -> Result<Array> {
        Ok(transform::grad(move |x| f(&x[0])?.sum(()), &[0])(x)?.remove(0))
    };
    let x = [Array::from_slice(x)];
    let second = transform::grad(move |x| first(x)?.sum(()), &[0]);
    let first = first(&x).unwrap().to_vec::<f64>().unwrap();
    (first, second(&x).unwrap()[0].to_vec::<f64>().unwrap())
}

#[test]
fn cotangents_of_a_partition_reach_the_elements_in_their_places() {
    let elements: Vec<f64> = (0..500).map(|at| f64::from(at * 7919 % 500)).collect();
    for dtype in [Dtype::Float32, Dtype::Float64] {
        let x = [Array::from_slice(&elements).astype(dtype).unwrap()];
        let partition = |x: &[Array]| x[0].partition(250, 0);
        let y = partition(&x).unwrap();
        // Each place's cotangent is the element there, so that each element gets itself.
        let (_, pulled) = transform::vjp(|x: &[Array]| Ok(vec![partition(x)?]), &x, &[y]).unwrap();
        assert_eq!(pulled[0].astype(Dtype::Float64).unwrap().to_vec::<f64>().unwrap(), elements, "{dtype}");
    }
}

#[test]
fn derivatives_at_zeros_and_infinities() {
    let zeros = [2.0, 0.0, 3.0];
    assert_eq!(derivatives(|x| x.prod(()), &zeros), (vec![0.0, 6.0, 0.0], vec![3.0, 5.0, 2.0]));
    assert_eq!(derivatives(|x| x.prod(()), &[0.0; 3]), (vec![0.0; 3], vec![0.0; 3]));
    // 2 + 2 x + 6 x for a change x of the zero.
    assert_eq!(
        derivatives(|x| x.cumprod(Some(0), false, true), &zeros),
        (vec![1.0, 8.0, 0.0], vec![4.0, 6.0, 2.0])
    );
    assert_eq!(derivatives(|x| x.cumprod(Some(0), false, true), &[0.0; 3]).0, [1.0, 0.0, 0.0]);
    let none = f64::NEG_INFINITY;
    let (first, second) = derivatives(|x| x.logcumsumexp(Some(0), false, true), &[none, 0.0, none, 0.0]);
    assert_eq!(first, [0.0, 2.5, 0.0, 0.5]);
    assert!(second.iter().all(|x| *x == 0.0), "{second:?}");
    // The branch that is not taken must be finite.
    let masked = |x: &Array| {
        let taken = x.greater(0)?;
        select(&taken, &select(&taken, x, &x.ones_like()?)?.sqrt()?, &x.square()?)
    };
    assert_eq!(derivatives(masked, &[4.0, -3.0]), (vec![0.25, -6.0], vec![-1.0 / 32.0, 2.0]));
    assert_eq!(derivatives(|x| x.sqrt(), &[0.0]).0, [f64::INFINITY]);
    assert_eq!(derivatives(|x| x.power(2.0), &[0.0]), (vec![0.0], vec![2.0]));
    assert_eq!(derivatives(|x| x.power(3.0), &[0.0]), (vec![0.0], vec![0.0]));
    assert_eq!(derivatives(|x| x.abs(), &[0.0]), (vec![0.0], vec![0.0]));
    assert_eq!(derivatives(|x| x.var((), 0), &[1.0, 1.0]).0, [0.0, 0.0]);
    assert_eq!(derivatives(|x| x.max(()), &[1.0, 1.0]).0, [0.5, 0.5]);
    assert_eq!(derivatives(|x| x.sort(None), &[1.0, 0.0, 1.0]).0, [1.0; 3]);
    assert_eq!(derivatives(|x| x.logaddexp(x), &[1.5]), (vec![1.0], vec![0.0]));
}

#[test]
fn derivatives_nest() {
    let cube = |x: &[Array]| x[0].power(3);
    let third = transform::grad(
        move |x| {
            let second = transform::grad(move |x| Ok(transform::grad(cube, &[0])(x)?.remove(0)), &[0]);
            Ok(second(x)?.remove(0))
        },
        &[0],
    );
    assert_eq!(third(&[Array::scalar(2.0, Dtype::Float64).unwrap()]).unwrap()[0].item::<f64>().unwrap(), 6.0);
}

#[test]
fn nested_derivatives_do_not_mix_their_perturbations() {
    // d/dx (x * d/dy (x + y)) = 1, not 2.
    let outer = transform::grad(
        |x| {
            let captured = x[0].clone();
            let inner =
                transform::grad(move |y| captured.add(&y[0]), &[0])(&[Array::scalar(1.0, Dtype::Float64)?])?;
            x[0].multiply(&inner[0])
        },
        &[0],
    );
    assert_eq!(outer(&[Array::scalar(5.0, Dtype::Float64).unwrap()]).unwrap()[0].item::<f64>().unwrap(), 1.0);
}

#[test]
fn a_function_may_read_values_while_it_is_differentiated_and_no_memory_leaks() {
    let f = |x: &[Array]| {
        let square = x[0].square()?;
        let sign = if square.item::<f64>()? > 1.0 { 1.0 } else { -1.0 };
        square.multiply(sign)
    };
    let slope = transform::grad(f, &[0]);
    assert_eq!(slope(&[Array::scalar(2.0, Dtype::Float64).unwrap()]).unwrap()[0].item::<f64>().unwrap(), 4.0);
    assert_eq!(
        slope(&[Array::scalar(0.5, Dtype::Float64).unwrap()]).unwrap()[0].item::<f64>().unwrap(),
        -1.0
    );
}

#[test]
fn a_condition_does_not_vary() {
    let bools = |values: [i32; 2]| ints(&values).astype(Dtype::Bool).unwrap();
    let (x, y) = (Array::from_slice(&[1f32, 2.0]), Array::from_slice(&[3f32, 4.0]));
    let chosen = |x: &[Array]| Ok(vec![select(&x[0], &x[1], &x[2])?]);
    let primals = [bools([1, 0]), x.clone(), y.clone()];
    let (_, along) = transform::jvp(chosen, &primals, &[bools([1, 1]), x, y.clone()]).unwrap();
    assert_eq!(along[0].to_vec::<f32>().unwrap(), [1.0, 4.0]);
    let (_, back) = transform::vjp(chosen, &primals, &[y]).unwrap();
    assert_eq!(back[0].to_bools().unwrap(), [false, false]);
    assert_eq!(back[1].to_vec::<f32>().unwrap(), [3.0, 0.0]);
}

#[test]
fn integers_are_differentiated_as_floats() {
    let x = ints(&[1, 2]);
    let square = |x: &[Array]| Ok(vec![x[0].multiply(&x[0])?]);
    let (_, back) = transform::vjp(square, &[x.clone()], &[ints(&[3, 4])]).unwrap();
    assert_eq!(back[0].to_vec::<i32>().unwrap(), [6, 16]);
    let (_, along) = transform::jvp(square, &[x], &[ints(&[3, 4])]).unwrap();
    assert_eq!(along[0].to_vec::<i32>().unwrap(), [6, 16]);
    // Rounding is passed by; places in an array do not vary.
    let rounded = |x: &[Array]| x[0].astype(Dtype::Int32)?.multiply(3)?.astype(Dtype::Float32)?.sum(());
    let y = Array::from_slice(&[1.5f32, -0.25]);
    assert_eq!(transform::grad(rounded, &[0])(&[y.clone()]).unwrap()[0].to_vec::<f32>().unwrap(), [3.0, 3.0]);
    let place = |x: &[Array]| x[0].argmax(())?.astype(Dtype::Float32);
    assert_eq!(transform::grad(place, &[0])(&[y.clone()]).unwrap()[0].to_vec::<f32>().unwrap(), [0.0, 0.0]);
    let bits = |x: &[Array]| x[0].view(Dtype::Int32)?.astype(Dtype::Float32)?.sum(());
    assert_eq!(transform::grad(bits, &[0])(&[y]).unwrap()[0].to_vec::<f32>().unwrap(), [0.0, 0.0]);
}

#[test]
fn mistakes_are_errors() {
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let text = |error: hesper::Error| error.to_string();
    let not_a_number = transform::grad(|x| Ok(x[0].clone()), &[0])(&[x.clone()]).unwrap_err();
    assert!(text(not_a_number).contains("[2]"));
    let integer = transform::grad(|x| x[0].sum(()), &[0])(&[ints(&[1])]).unwrap_err();
    assert!(text(integer).contains("int32"));
    let missing = transform::grad(|x| x[0].sum(()), &[3])(&[x.clone()]).unwrap_err();
    assert!(text(missing).contains("argument 3"));
    let shape = transform::vjp(|x| Ok(vec![x[0].square()?]), &[x.clone()], &[ints(&[1])]).unwrap_err();
    assert!(text(shape).contains("cotangent 0"));
    let tangents = transform::jvp(|x| Ok(vec![x[0].square()?]), &[x.clone()], &[]).unwrap_err();
    assert!(text(tangents).contains("0 tangents"));
    let evaluated = transform::vmap(
        |x| {
            x[0].eval()?;
            Ok(x.to_vec())
        },
        &[Some(0)],
        &[Some(0)],
    )(&[x.clone()])
    .unwrap_err();
    assert!(text(evaluated).contains("vmap"));
    let lengths = transform::vmap(|x| Ok(vec![x[0].add(&x[1])?]), &[Some(0), Some(0)], &[Some(0)]);
    assert!(text(lengths(&[x.clone(), ints(&[1, 2, 3])]).unwrap_err()).contains("argument 1"));
}

#[test]
fn rules_of_a_custom_function_are_used_and_vectorized() {
    let make = || {
        CustomFunction::new(|x| Ok(vec![x[0].multiply(&x[1])?, x[0].sin()?]))
            .with_vjp(|x, c, _| Ok(vec![c[0].multiply(&x[1])?.multiply(10)?, c[0].add(&c[1])?]))
    };
    let (a, b) = (Array::from_slice(&[1.0f64, 2.0]), Array::from_slice(&[3.0f64, 4.0]));
    let f = make();
    let slope = transform::grad(move |x| f.call(x)?[0].sum(()), &[0, 1]);
    let found = slope(&[a.clone(), b.clone()]).unwrap();
    assert_eq!(found[0].to_vec::<f64>().unwrap(), [30.0, 40.0]);
    assert_eq!(found[1].to_vec::<f64>().unwrap(), [1.0, 1.0]);
    let f = make();
    let over = move |x: &[Array]| {
        let mapped = transform::vmap(|x| f.call(x), &[Some(0), None], &[Some(0)]);
        mapped(x)?[0].sum(())
    };
    let found = transform::grad(over, &[0, 1])(&[a, Array::scalar(2.0, Dtype::Float64).unwrap()]).unwrap();
    assert_eq!(found[0].to_vec::<f64>().unwrap(), [20.0, 20.0]);
    assert_eq!(found[1].item::<f64>().unwrap(), 2.0);
}

#[test]
fn a_checkpoint_changes_no_result() {
    let f = |x: &[Array]| Ok(vec![x[0].sin()?.multiply(&x[1])?.exp()?]);
    let inputs = [x(1, &[4]), x(2, &[4])];
    let plain = transform::grad(move |x| f(x)?[0].sum(()), &[0, 1])(&inputs).unwrap();
    let kept = transform::checkpoint(f);
    let again = transform::grad(move |x| kept(x)?[0].sum(()), &[0, 1])(&inputs).unwrap();
    for (one, other) in plain.iter().zip(&again) {
        assert_eq!(one.to_vec::<f64>().unwrap(), other.to_vec::<f64>().unwrap());
    }
}

#[test]
fn a_graph_is_drawn_as_the_documentation_shows_it() {
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let sum = x.exp().unwrap().add(1.0).unwrap().sum(()).unwrap();
    let shown = include_str!("../../../docs/transforms.md");
    assert!(shown.contains(&transform::to_dot(&[sum])));
}
