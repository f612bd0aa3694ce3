//! Functions over one axis more: every op against a loop over slices, with the axis wherever it can be.

use crate::table;
use crate::table::{Case, like};
use hesper::{Array, Category, Dtype, Result, stack, transform};

/// Slices that an op takes as well as the first: other numbers, or indices and keys in another order.
fn another(input: &Array) -> Array {
    match input.dtype() {
        dtype if dtype.is(Category::Inexact) => input * 0.9 + like(7, input) * 0.05,
        // Bytes have an order that is not to be broken.
        Dtype::Uint8 => input.clone(),
        _ => input.flip(()).unwrap(),
    }
}

/// Where the new axis of each input is: in front, at the end, counted from either side, or nowhere.
fn choices(inputs: &[Array]) -> Vec<Vec<Option<isize>>> {
    let all = |place: &dyn Fn(usize) -> isize| -> Vec<Option<isize>> {
        inputs.iter().map(|input| Some(place(input.ndim()))).collect()
    };
    let mut choices = vec![all(&|_| 0), all(&|rank| rank as isize), all(&|rank| -(rank as isize) - 1)];
    if inputs.len() > 1 {
        for one in 0..inputs.len() {
            choices.push((0..inputs.len()).map(|at| (at == one).then_some(-1)).collect());
            choices.push((0..inputs.len()).map(|at| (at != one).then_some(0)).collect());
        }
    }
    choices
}

fn slice(array: &Array, axis: Option<isize>, number: i64) -> Array {
    match axis {
        Some(axis) => array.take(number, Some(axis)).unwrap(),
        None => array.clone(),
    }
}

/// The largest distance of numbers, relative to the largest of those expected; what is no number must be the
/// same.
fn distance(found: &Array, expected: &Array) -> f64 {
    let wide = |array: &Array| -> Vec<f64> {
        let parts = if array.dtype() == Dtype::Complex64 {
            stack(&[array.real().unwrap(), array.imag().unwrap()], 0).unwrap()
        } else {
            array.clone()
        };
        parts.astype(Dtype::Float64).unwrap().to_vec::<f64>().unwrap()
    };
    let (found, expected) = (wide(found), wide(expected));
    let scale = expected.iter().filter(|x| x.is_finite()).fold(1.0f64, |most, x| most.max(x.abs()));
    let far = |(x, y): (&f64, &f64)| {
        if x == y || (x.is_nan() && y.is_nan()) { 0.0 } else { (x - y).abs() / scale }
    };
    found
        .iter()
        .zip(&expected)
        .map(far)
        .fold(0.0, |most: f64, x| if x.is_nan() { f64::NAN } else { most.max(x) })
}

type Many<'a> = &'a dyn Fn(&[Array]) -> Result<Vec<Array>>;

fn against_a_loop(name: &str, function: Many<'_>, inputs: &[Array], axes: &[Option<isize>], near: f64) {
    const COUNT: i64 = 3;
    let whole: Vec<Array> = inputs
        .iter()
        .zip(axes)
        .map(|(input, axis)| match axis {
            None => input.clone(),
            Some(axis) => {
                let other = another(input);
                stack(&[input.clone(), other.clone(), input.clone()], *axis).unwrap()
            }
        })
        .collect();
    for place in [0, -1] {
        let mapped = transform::vmap(function, axes, &[Some(place)]);
        let found = mapped(&whole).unwrap_or_else(|error| panic!("{name} over {axes:?}: {error}"));
        for number in 0..COUNT {
            let slices: Vec<Array> =
                whole.iter().zip(axes).map(|(array, axis)| slice(array, *axis, number)).collect();
            let expected = function(&slices).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(found.len(), expected.len(), "{name}");
            for (y, expected) in found.iter().zip(&expected) {
                let y = slice(y, Some(place), number);
                assert_eq!((y.shape(), y.dtype()), (expected.shape(), expected.dtype()), "{name} {axes:?}");
                let far = distance(&y, expected);
                assert!(far <= near, "{name} over {axes:?}: slice {number} is off by {far}");
            }
        }
    }
}

fn check(case: &Case) {
    let near = case.tolerance.clamp(1e-9, 1e-4);
    for axes in choices(&case.inputs) {
        against_a_loop(case.name, &case.function, &case.inputs, &axes, near);
    }
    // Nothing to go over gives nothing.
    let none: Vec<Array> =
        case.inputs.iter().map(|input| stack(&[input.clone()], 0).unwrap().slice_front()).collect();
    let axes = vec![Some(0); none.len()];
    let found = transform::vmap(&case.function, &axes, &[Some(0)])(&none);
    let found = found.unwrap_or_else(|error| panic!("{} over nothing: {error}", case.name));
    for (y, one) in found.iter().zip((case.function)(&case.inputs).unwrap()) {
        assert_eq!((y.shape()[0], &y.shape()[1..]), (0, one.shape()), "{} over nothing", case.name);
        y.eval().unwrap_or_else(|error| panic!("{} over nothing: {error}", case.name));
    }
}

/// The derivatives of the mapped function are those of the function, slice by slice; and mapped twice it is
/// the function still.
fn check_derivatives(case: &Case) {
    let (name, function) = (case.name, &case.function);
    let count = case.inputs.len();
    let cotangents: Vec<Array> = function(&case.inputs).unwrap().iter().map(|y| like(80, y)).collect();
    let near = case.tolerance.clamp(1e-8, 1e-2);
    let pulled = |x: &[Array]| Ok(transform::vjp(function, &x[..count], &x[count..])?.1);
    let all: Vec<Array> = case.inputs.iter().chain(&cotangents).cloned().collect();
    against_a_loop(name, &pulled, &all, &vec![Some(0); all.len()], near);

    let whole: Vec<Array> = all.iter().map(|x| stack(&[x.clone(), another(x)], 0).unwrap()).collect();
    let mapped = |x: &[Array]| transform::vmap(function, &vec![Some(0); x.len()], &[Some(0)])(x);
    let (_, found) = transform::vjp(mapped, &whole[..count], &whole[count..])
        .unwrap_or_else(|error| panic!("{name} mapped: {error}"));
    let (_, pushed) = transform::jvp(mapped, &whole[..count], &whole[..count])
        .unwrap_or_else(|error| panic!("{name} mapped: {error}"));
    for number in 0..2 {
        let slices: Vec<Array> = whole.iter().map(|array| slice(array, Some(0), number)).collect();
        let (_, expected) = transform::vjp(function, &slices[..count], &slices[count..]).unwrap();
        for (y, expected) in found.iter().zip(&expected) {
            let far = distance(&slice(y, Some(0), number), expected);
            assert!(far <= near, "{name} mapped: cotangents are off by {far}");
        }
        let (_, expected) = transform::jvp(function, &slices[..count], &slices[..count]).unwrap();
        for (y, expected) in pushed.iter().zip(&expected) {
            let far = distance(&slice(y, Some(0), number), expected);
            assert!(far <= near, "{name} mapped: tangents are off by {far}");
        }
    }
    let twice = |x: &[Array]| transform::vmap(&mapped, &[Some(0)], &[Some(0)])(x);
    if count == 1 {
        let nested = stack(&[whole[0].clone(), whole[0].clone()], 0).unwrap();
        for (y, expected) in twice(&[nested]).unwrap().iter().zip(mapped(&whole[..1]).unwrap()) {
            let far = distance(&slice(y, Some(0), 1), &expected);
            assert!(far <= near, "{name} mapped twice: off by {far}");
        }
    }
}

trait Front {
    fn slice_front(&self) -> Array;
}

impl Front for Array {
    /// None of its rows.
    fn slice_front(&self) -> Array {
        let stop: Vec<isize> =
            self.shape().iter().enumerate().map(|(at, n)| if at == 0 { 0 } else { *n as isize }).collect();
        self.slice(&vec![0; stop.len()], &stop, &vec![1; stop.len()]).unwrap()
    }
}

fn check_group(name: &str) {
    for case in table::group(name) {
        check(&case);
        if case.smooth {
            check_derivatives(&case);
        }
    }
}

#[test]
fn every_op_has_a_case() {
    let cases: Vec<Case> = table::groups().into_iter().flat_map(|(_, cases)| cases).collect();
    // Made where shapes are free alone, only read from files, or made by derivatives of other ops alone.
    let elsewhere = [
        "count_elements",
        "broadcast_like",
        "reshape_like",
        "described",
        "decode_blocks",
        "attention_gradient",
        "norm_gradient",
        "cross_entropy_gradient",
    ];
    let missing: Vec<&str> =
        table::untested(&cases).into_iter().filter(|name| !elsewhere.contains(name)).collect();
    assert!(missing.is_empty(), "ops without a case in tests/table: {missing:?}");
}

#[test]
fn every_type_of_op_can_be_written_to_a_file_or_is_known_not_to() {
    // What has a name in files is in the table of cases; of the others each is part of a case or has its own
    // test.
    let known = [
        "Part",
        "Together",
        "Placeholder",
        "Load",
        "Bundle",
        "Run",
        "Output",
        "CudaLaunch",
        "Keep",
        "Attend",
        "AddNorm",
        "RopeAttention",
        "RopeUpdate",
        "SiluGate",
        "PackedLayer",
        "RowProducts",
        "Pack",
    ];
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open = vec![crates.join("hesper-core/src"), crates.join("hesper-backend-cuda/src")];
    let mut found = 0;
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for part in text.split("\nimpl Op for ").skip(1) {
            let (name, body) = part.split_once(" {").unwrap();
            let body = body.split("\n}\n").next().unwrap();
            found += 1;
            assert!(body.contains("fn export(") || known.contains(&name), "{name} in {}", path.display());
        }
    }
    assert!(found > 50, "{found} ops");
}

#[test]
fn element_wise_ops_over_slices() {
    check_group("element-wise");
}

#[test]
fn movements_over_slices() {
    check_group("movement");
}

#[test]
fn reductions_over_slices() {
    check_group("reductions");
}

#[test]
fn products_over_slices() {
    check_group("products");
}

#[test]
fn matrices_over_slices() {
    check_group("matrices");
}

#[test]
fn attention_quantization_random_numbers_and_kernels_over_slices() {
    check_group("others");
}
