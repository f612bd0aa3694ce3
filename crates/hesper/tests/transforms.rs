//! Every op's rules: tangents against differences, cotangents against tangents, slices against a loop.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use hesper::transform::{self, CustomFunction};
use hesper::{Array, Conv, Dtype, Pad, Result, concatenate, einsum, fast, fft, select, stack};

type Function = Box<dyn Fn(&[Array]) -> Result<Vec<Array>>>;

/// A function at a point, and how exact its numbers are.
struct Case {
    name: &'static str,
    function: Function,
    inputs: Vec<Array>,
    step: f64,
    tolerance: f64,
}

/// Numbers between -1 and 1 that look random and are always the same.
fn numbers(seed: usize, shape: &[usize], dtype: Dtype) -> Array {
    let count: usize = shape.iter().product();
    let list: Vec<f64> = (0..count)
        .map(|at| (((at + 1) as f64) * 12.9898 + seed as f64 * 78.233).sin() * 43758.5453)
        .collect();
    let list: Vec<f64> = list.iter().map(|x| 2.0 * (x - x.floor()) - 1.0).collect();
    Array::try_from_slice(&list, shape).unwrap().astype(dtype).unwrap()
}

fn x(seed: usize, shape: &[usize]) -> Array {
    numbers(seed, shape, Dtype::Float64)
}

/// The same between 0.2 and 1.8.
fn positive(seed: usize, shape: &[usize]) -> Array {
    (x(seed, shape) * 0.8 + 1.0).contiguous().unwrap()
}

fn complex(seed: usize, shape: &[usize]) -> Array {
    let (re, im) = (numbers(seed, shape, Dtype::Float32), numbers(seed + 50, shape, Dtype::Float32));
    (re.astype(Dtype::Complex64).unwrap() + im * [0.0f32, 1.0]).contiguous().unwrap()
}

fn ints(list: &[i32]) -> Array {
    Array::from_slice(list)
}

fn case(name: &'static str, inputs: &[Array], f: impl Fn(&[Array]) -> Result<Array> + 'static) -> Case {
    let function = Box::new(move |x: &[Array]| Ok(vec![f(x)?]));
    Case { name, function, inputs: inputs.to_vec(), step: 1e-6, tolerance: 1e-6 }
}

/// A function of float32.
fn single(name: &'static str, inputs: &[Array], f: impl Fn(&[Array]) -> Result<Array> + 'static) -> Case {
    let inputs: Vec<Array> = inputs
        .iter()
        .map(|x| if x.dtype() == Dtype::Float64 { x.astype(Dtype::Float32).unwrap() } else { x.clone() })
        .collect();
    Case { step: 1e-2, tolerance: 3e-3, ..case(name, &inputs, f) }
}

fn elementwise() -> Vec<Case> {
    macro_rules! unary {
        ($($name:ident of $input:expr),* $(,)?) => {
            vec![$(case(stringify!($name), &[$input], |x| x[0].$name())),*]
        };
    }
    let s = &[2, 3][..];
    let mut cases = unary!(
        negative of x(1, s), abs of x(2, s), square of x(3, s), reciprocal of positive(4, s),
        sqrt of positive(5, s), rsqrt of positive(6, s), exp of x(7, s), expm1 of x(8, s),
        log of positive(9, s), log2 of positive(10, s), log10 of positive(11, s), log1p of positive(12, s),
        sin of x(13, s), cos of x(14, s), tan of x(15, s), arcsin of (x(16, s) * 0.9), arccos of (x(17, s) * 0.9),
        arctan of x(18, s), sinh of x(19, s), cosh of x(20, s), tanh of x(21, s), arcsinh of x(22, s),
        arccosh of (positive(23, s) + 1.0), arctanh of (x(24, s) * 0.9), erf of x(25, s),
        erfinv of (x(26, s) * 0.9), sigmoid of x(27, s), floor of x(28, s), ceil of x(29, s), sign of x(30, s),
        conjugate of x(31, s), real of x(32, s), degrees of x(33, s),
    );
    macro_rules! binary {
        ($($name:ident of $a:expr, $b:expr);* $(;)?) => {
            $(cases.push(case(stringify!($name), &[$a, $b], |x| x[0].$name(&x[1])));)*
        };
    }
    binary!(
        add of x(1, s), x(2, &[3]);
        subtract of x(3, &[2, 1]), x(4, s);
        multiply of x(5, &[1, 3]), x(6, &[2, 1]);
        divide of x(7, s), positive(8, &[]);
        remainder of x(9, s), positive(10, s);
        maximum of x(11, s), x(12, s);
        minimum of x(13, s), x(14, &[3]);
        power of positive(15, s), x(16, s);
        arctan2 of x(17, s), positive(18, s);
        logaddexp of x(19, s), x(20, s);
    );
    cases.push(case("where", &[x(1, s), x(2, s), x(3, &[3])], |x| select(&x[0].greater(0)?, &x[1], &x[2])));
    cases.push(case("astype", &[x(1, s)], |x| x[0].astype(Dtype::Float64)));
    cases.push(case("clip", &[x(1, s)], |x| x[0].clip(Some(-0.5), Some(0.5))));
    for name in
        ["multiply", "divide", "exp", "log", "sqrt", "tanh", "power", "abs", "real", "imag", "conjugate"]
    {
        let inputs = [complex(1, s), (complex(2, s) + 1.5).contiguous().unwrap()];
        let function = move |x: &[Array]| match name {
            "multiply" => x[0].multiply(&x[1]),
            "divide" => x[0].divide(&x[1]),
            "exp" => x[0].exp()?.add(&x[1]),
            "log" => x[1].log()?.add(&x[0]),
            "sqrt" => x[1].sqrt()?.add(&x[0]),
            "tanh" => x[0].tanh()?.add(&x[1]),
            "power" => x[1].power(&x[0]),
            "abs" => x[0].abs()?.add(x[1].abs()?),
            "real" => x[0].real()?.add(x[1].real()?),
            "imag" => x[0].imag()?.add(x[1].imag()?),
            _ => x[0].conjugate()?.add(&x[1]),
        };
        cases.push(single(Box::leak(format!("complex {name}").into_boxed_str()), &inputs, function));
    }
    cases
}

fn movement() -> Vec<Case> {
    let t = x(1, &[2, 3, 4]);
    vec![
        case("reshape", &[t.clone()], |x| x[0].reshape(&[4, -1])),
        case("transpose", &[t.clone()], |x| x[0].transpose(&[2, 0, 1])),
        case("broadcast_to", &[x(2, &[3, 1])], |x| x[0].broadcast_to(&[2, 3, 4])),
        case("slice", &[t.clone()], |x| x[0].slice(&[0, 1, 1], &[2, 3, 4], &[1, 1, 2])),
        case("slice backwards", &[t.clone()], |x| x[0].slice(&[1, 2, 3], &[-9, 0, -9], &[-1, -1, -2])),
        case("contiguous", &[t.clone()], |x| x[0].t()?.contiguous()),
        case("concatenate", &[t.clone(), x(3, &[2, 1, 4])], |x| concatenate(x, 1)),
        case("stack", &[t.clone(), x(4, &[2, 3, 4])], |x| stack(x, 2)),
        case("pad", &[t.clone()], |x| x[0].pad(&[(1, 0), (0, 2), (1, 1)], &Pad::Constant(0.into()))),
        case("pad edge", &[t.clone()], |x| x[0].pad(&[(1, 0), (0, 2), (1, 1)], &Pad::Edge)),
        case("flip", &[t.clone()], |x| x[0].flip(Some(&[0, 2]))),
        case("roll", &[t.clone()], |x| x[0].roll(&[2], Some(&[1]))),
        case("tile", &[t.clone()], |x| x[0].tile(&[2, 1, 2])),
        case("repeat", &[t.clone()], |x| x[0].repeat(2, Some(1))),
        case("diagonal", &[x(5, &[3, 2, 4])], |x| x[0].diagonal(1, 0, 2)),
        case("diag", &[x(6, &[3])], |x| x[0].diag(-1)),
        case("trace", &[x(7, &[3, 3])], |x| x[0].trace(0, 0, 1, None)),
        case("tril", &[x(8, &[3, 4])], |x| x[0].tril(0)),
        case("as_strided", &[x(9, &[12])], |x| x[0].as_strided(&[3, 4], &[2, 2], 1)),
        case("take", &[t.clone()], |x| x[0].take(ints(&[2, 0, 2, -1]), Some(1))),
        case("take flat", &[t.clone()], |x| x[0].take(ints(&[5, 5, 1]), None)),
        case("gather", &[t.clone()], |x| x[0].gather(&[ints(&[1, 0]), ints(&[2, 3])], &[0, 2], &[1, 2, 1])),
        case("take_along_axis", &[x(10, &[2, 3])], |x| {
            x[0].take_along_axis(&ints(&[0, 2, 2, 1, 1, 0]).reshape(&[2, 3])?, Some(1))
        }),
        case("put_along_axis", &[x(11, &[2, 3]), x(12, &[2, 2])], |x| {
            x[0].put_along_axis(&ints(&[0, 2, 1, 0]).reshape(&[2, 2])?, &x[1], Some(1))
        }),
        case("scatter_add_axis", &[x(13, &[2, 3]), x(14, &[2, 2])], |x| {
            x[0].scatter_add_axis(&ints(&[0, 0, 1, 2]).reshape(&[2, 2])?, &x[1], 1)
        }),
        case("scatter", &[x(15, &[4, 2]), x(16, &[2, 1, 2])], |x| {
            x[0].scatter(&[ints(&[3, 1])], &x[1], &[0])
        }),
        case("scatter_add", &[x(17, &[4, 2]), x(18, &[3, 1, 2])], |x| {
            x[0].scatter_add(&[ints(&[3, 1, 3])], &x[1], &[0])
        }),
        case("scatter_prod", &[x(19, &[4, 2]), x(20, &[2, 1, 2])], |x| {
            x[0].scatter_prod(&[ints(&[3, 1])], &x[1], &[0])
        }),
        case("scatter_max", &[x(21, &[4, 2]), x(22, &[2, 1, 2])], |x| {
            x[0].scatter_max(&[ints(&[3, 1])], &x[1], &[0])
        }),
        case("slice_update", &[x(23, &[4, 3]), x(24, &[2, 3])], |x| {
            x[0].slice_update(&x[1], &[3, 0], &[0, 3], &[-2, 1])
        }),
        case("dynamic_slice", &[x(25, &[4, 3])], |x| x[0].dynamic_slice(&ints(&[1]), &[0], &[2, 3])),
        case("dynamic_slice_update", &[x(26, &[4, 3]), x(27, &[2, 3])], |x| {
            x[0].dynamic_slice_update(&x[1], &ints(&[1]), &[0])
        }),
        case("sort", &[x(28, &[3, 5])], |x| x[0].sort(Some(1))),
        case("partition", &[x(29, &[3, 5])], |x| x[0].partition(2, Some(0))),
        case("topk", &[x(30, &[3, 5])], |x| x[0].topk(2, Some(1))),
    ]
}

fn reductions() -> Vec<Case> {
    let t = x(1, &[2, 3, 4]);
    vec![
        case("sum", &[t.clone()], |x| x[0].sum(Some(&[0, 2]), false)),
        case("sum kept", &[t.clone()], |x| x[0].sum(None, true)),
        case("mean", &[t.clone()], |x| x[0].mean(Some(&[1]), true)),
        case("prod", &[t.clone()], |x| x[0].prod(Some(&[0, 2]), false)),
        // Its second derivative divides by the elements.
        Case {
            step: 1e-3,
            tolerance: 1e-4,
            ..case("prod with a zero", &[Array::from_slice(&[2.0f64, 0.0, 3.0])], |x| x[0].prod(None, false))
        },
        case("max", &[t.clone()], |x| x[0].max(Some(&[2]), false)),
        case("min", &[t.clone()], |x| x[0].min(None, false)),
        case("var", &[t.clone()], |x| x[0].var(Some(&[2]), false, 1)),
        single("var single", &[t.clone()], |x| x[0].var(Some(&[2]), false, 1)),
        single("std single", &[t.clone()], |x| x[0].std(Some(&[0]), true, 0)),
        case("median of three", &[t.clone()], |x| x[0].median(Some(&[1]), false)),
        case("median of four", &[t.clone()], |x| x[0].median(Some(&[2]), true)),
        case("logsumexp", &[t.clone()], |x| x[0].logsumexp(Some(&[1]), false)),
        case("logsumexp of rows", &[t.clone()], |x| x[0].logsumexp(Some(&[2]), false)),
        case("softmax", &[t.clone()], |x| x[0].softmax(Some(&[-1]), false)),
        case("softmax inside", &[t.clone()], |x| x[0].softmax(Some(&[1]), false)),
        case("log_softmax", &[t.clone()], |x| x[0].log_softmax(Some(&[-1]))),
        case("cumsum", &[t.clone()], |x| x[0].cumsum(Some(1), false, true)),
        case("cumsum back", &[t.clone()], |x| x[0].cumsum(Some(2), true, false)),
        case("cumprod", &[t.clone()], |x| x[0].cumprod(Some(2), false, true)),
        case("cumprod without itself", &[t.clone()], |x| x[0].cumprod(Some(2), false, false)),
        case("cummax", &[t.clone()], |x| x[0].cummax(Some(2), false, true)),
        case("cummin back", &[t.clone()], |x| x[0].cummin(Some(1), true, true)),
        // Its derivative is not smooth in the cotangents' signs.
        Case {
            step: 1e-3,
            tolerance: 1e-4,
            ..case("logcumsumexp", &[t.clone()], |x| x[0].logcumsumexp(Some(2), false, true))
        },
        case("diff", &[t.clone()], |x| x[0].diff(1, 2)),
        case("rms_norm", &[t.clone(), x(2, &[4])], |x| fast::rms_norm(&x[0], Some(&x[1]), 1e-5)),
        case("layer_norm", &[t.clone(), x(3, &[4]), x(4, &[4])], |x| {
            fast::layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)
        }),
        case("layer_norm with a bias alone", &[t.clone(), x(4, &[4])], |x| {
            fast::layer_norm(&x[0], None, Some(&x[1]), 1e-5)
        }),
        single("cross_entropy", &[x(5, &[3, 4])], |x| fast::cross_entropy(&x[0], &ints(&[1, 3, 0]))),
    ]
}

fn products() -> Vec<Case> {
    vec![
        case("matmul", &[x(1, &[2, 3, 4]), x(2, &[4, 2])], |x| x[0].matmul(&x[1])),
        case("matmul of batches", &[x(3, &[3, 4]), x(4, &[2, 4, 2])], |x| x[0].matmul(&x[1])),
        case("matmul of vectors", &[x(5, &[4]), x(6, &[4])], |x| x[0].matmul(&x[1])),
        case("addmm", &[x(7, &[2]), x(8, &[3, 4]), x(9, &[4, 2])], |x| x[0].addmm(&x[1], &x[2], 0.5, 2.0)),
        single("complex matmul", &[complex(10, &[2, 3]), complex(11, &[3, 2])], |x| x[0].matmul(&x[1])),
        case("einsum", &[x(12, &[2, 3]), x(13, &[3, 4])], |x| einsum("ij,jk->ki", &[&x[0], &x[1]])),
        case("einsum of a diagonal", &[x(14, &[3, 3, 2])], |x| einsum("iij->ij", &[&x[0]])),
        case("gather_mm", &[x(15, &[3, 2, 4]), x(16, &[2, 4, 3])], |x| {
            x[0].gather_mm(&x[1], Some(&ints(&[2, 0, 2])), Some(&ints(&[1, 1, 0])))
        }),
        case("segmented_mm", &[x(17, &[2, 5]), x(18, &[5, 3])], |x| {
            x[0].segmented_mm(&x[1], &ints(&[0, 2, 1, 5]).reshape(&[2, 2])?)
        }),
        case("outer", &[x(19, &[2]), x(20, &[3])], |x| x[0].outer(&x[1])),
        single("hadamard", &[x(21, &[2, 8])], |x| x[0].hadamard_transform(None)),
        single("hadamard of 12", &[x(22, &[12])], |x| x[0].hadamard_transform(Some(0.5))),
        single("hadamard of 20", &[x(23, &[20])], |x| x[0].hadamard_transform(Some(0.5))),
        single("conv1d", &[x(24, &[2, 7, 4]), x(25, &[6, 3, 2])], |x| x[0].conv1d(&x[1], 2, 1, 1, 2)),
        single("conv2d", &[x(26, &[1, 5, 6, 2]), x(27, &[3, 2, 3, 2])], |x| {
            x[0].conv2d(&x[1], [1, 2], [1, 0], [2, 1], 1)
        }),
        single("conv_transpose1d", &[x(28, &[1, 4, 2]), x(29, &[3, 3, 2])], |x| {
            x[0].conv_transpose1d(&x[1], 2, 1, 1, 1, 1)
        }),
        single("conv_general", &[x(30, &[1, 6, 2]), x(31, &[2, 3, 2])], |x| {
            let conv = Conv {
                stride: vec![2],
                padding: vec![(2, 1)],
                kernel_dilation: vec![2],
                input_dilation: vec![3],
                groups: 1,
                flip: true,
            };
            x[0].conv_general(&x[1], &conv)
        }),
        single("fft", &[complex(32, &[2, 5])], |x| fft::fft(&x[0], None, -1, fft::Norm::Backward)),
        single("fft of more", &[complex(33, &[2, 5])], |x| fft::fft(&x[0], Some(7), 0, fft::Norm::Ortho)),
        single("ifft of less", &[complex(34, &[2, 5])], |x| {
            fft::ifft(&x[0], Some(3), 1, fft::Norm::Backward)
        }),
        single("rfft", &[x(35, &[2, 6])], |x| fft::rfft(&x[0], None, -1, fft::Norm::Backward)),
        single("irfft", &[complex(36, &[2, 4])], |x| fft::irfft(&x[0], Some(6), -1, fft::Norm::Backward)),
        single("irfft of an odd length", &[complex(37, &[2, 4])], |x| {
            fft::irfft(&x[0], Some(7), -1, fft::Norm::Backward)
        }),
    ]
}

/// The sum of products with fixed numbers: of real and imaginary parts alike.
fn weigh(y: &Array, by: &Array) -> f64 {
    let product =
        if y.dtype() == Dtype::Complex64 { y.multiply(by.conjugate().unwrap()) } else { y.multiply(by) };
    product.unwrap().real().unwrap().astype(Dtype::Float64).unwrap().sum(None, false).unwrap().item().unwrap()
}

fn like(seed: usize, y: &Array) -> Array {
    match y.dtype() {
        Dtype::Complex64 => complex(seed, y.shape()),
        dtype => numbers(seed, y.shape(), dtype),
    }
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

    check_slices(case, tolerance.max(1e-9));
    // A second derivative is the derivative of the first.
    let second = |x: &[Array]| Ok(transform::vjp(function, x, &cotangents)?.1);
    let (_, curved) =
        transform::jvp(second, inputs, &tangents).unwrap_or_else(|e| panic!("{name} twice: {e}"));
    let bend: f64 = curved.iter().zip(&tangents).map(|(one, tangent)| weigh(one, tangent)).sum();
    let (plus, minus) = (at(100.0 * step), at(-100.0 * step));
    let difference = (plus - 2.0 * at(0.0) + minus) / (1e4 * step * step);
    if *step < 1e-4 && difference.abs() < 1e3 {
        let scale = 1.0 + difference.abs();
        assert!((bend - difference).abs() < 1e-2 * scale, "{name}: second {bend}, difference {difference}");
    }
}

/// The function over one axis more against the function of each slice, with the axis in several places.
fn check_slices(case: &Case, tolerance: f64) {
    let (name, function) = (case.name, &case.function);
    for choice in 0..3 {
        let mut axes = Vec::new();
        let mut whole = Vec::new();
        for (at, input) in case.inputs.iter().enumerate() {
            let batched = choice == 0 || at % 2 == choice - 1;
            let place = if at % 2 == 0 { 0 } else { input.ndim() as isize };
            let others: Vec<Array> = (0..2)
                .map(|number| if number == 0 { input.clone() } else { input * 0.9 + like(7, input) * 0.05 })
                .collect();
            whole.push(if batched { stack(&others, place).unwrap() } else { input.clone() });
            axes.push(batched.then_some(place));
        }
        if axes.iter().all(Option::is_none) {
            continue;
        }
        let found = transform::vmap(|x: &[Array]| function(x), &axes, &[Some(0)])(&whole)
            .unwrap_or_else(|e| panic!("{name} over slices: {e}"));
        for number in 0..2 {
            let slices: Vec<Array> = whole
                .iter()
                .zip(&axes)
                .map(|(array, axis)| match axis {
                    Some(axis) => array.take(number, Some(*axis)).unwrap(),
                    None => array.clone(),
                })
                .collect();
            for (y, expected) in found.iter().zip(function(&slices).unwrap()) {
                let slice = y.take(number, Some(0)).unwrap();
                assert_eq!(slice.shape(), expected.shape(), "{name} over slices {axes:?}");
                let far = (&slice - &expected).abs().unwrap().astype(Dtype::Float64).unwrap();
                let far: f64 =
                    if far.size() == 0 { 0.0 } else { far.max(None, false).unwrap().item().unwrap() };
                assert!(far < tolerance, "{name} over slices {axes:?}: off by {far}");
            }
        }
    }
}

#[test]
fn element_wise_ops_follow_their_differences() {
    elementwise().iter().for_each(check);
}

#[test]
fn movements_and_updates_follow_their_differences() {
    movement().iter().for_each(check);
}

#[test]
fn reductions_and_norms_follow_their_differences() {
    reductions().iter().for_each(check);
}

#[test]
fn products_and_transforms_follow_their_differences() {
    products().iter().for_each(check);
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
fn an_inner_derivative_does_not_see_what_the_outer_one_varies() {
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
fn a_function_may_look_at_values_while_it_is_differentiated_and_nothing_stays_behind() {
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
fn mistakes_are_told() {
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let text = |error: hesper::Error| error.to_string();
    let not_a_number = transform::grad(|x| Ok(x[0].clone()), &[0])(&[x.clone()]).unwrap_err();
    assert!(text(not_a_number).contains("[2]"));
    let integer = transform::grad(|x| x[0].sum(None, false), &[0])(&[ints(&[1])]).unwrap_err();
    assert!(text(integer).contains("int32"));
    let missing = transform::grad(|x| x[0].sum(None, false), &[3])(&[x.clone()]).unwrap_err();
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
fn rules_of_a_custom_function_are_used_and_go_over_slices() {
    let make = || {
        CustomFunction::new(|x| Ok(vec![x[0].multiply(&x[1])?, x[0].sin()?]))
            .with_vjp(|x, c, _| Ok(vec![c[0].multiply(&x[1])?.multiply(10)?, c[0].add(&c[1])?]))
    };
    let (a, b) = (Array::from_slice(&[1.0f64, 2.0]), Array::from_slice(&[3.0f64, 4.0]));
    let f = make();
    let slope = transform::grad(move |x| f.call(x)?[0].sum(None, false), &[0, 1]);
    let found = slope(&[a.clone(), b.clone()]).unwrap();
    assert_eq!(found[0].to_vec::<f64>().unwrap(), [30.0, 40.0]);
    assert_eq!(found[1].to_vec::<f64>().unwrap(), [1.0, 1.0]);
    let f = make();
    let over = move |x: &[Array]| {
        let mapped = transform::vmap(|x| f.call(x), &[Some(0), None], &[Some(0)]);
        mapped(x)?[0].sum(None, false)
    };
    let found = transform::grad(over, &[0, 1])(&[a, Array::scalar(2.0, Dtype::Float64).unwrap()]).unwrap();
    assert_eq!(found[0].to_vec::<f64>().unwrap(), [20.0, 20.0]);
    assert_eq!(found[1].item::<f64>().unwrap(), 2.0);
}

#[test]
fn a_checkpoint_changes_no_number() {
    let f = |x: &[Array]| Ok(vec![x[0].sin()?.multiply(&x[1])?.exp()?]);
    let inputs = [x(1, &[4]), x(2, &[4])];
    let plain = transform::grad(move |x| f(x)?[0].sum(None, false), &[0, 1])(&inputs).unwrap();
    let kept = transform::checkpoint(f);
    let again = transform::grad(move |x| kept(x)?[0].sum(None, false), &[0, 1])(&inputs).unwrap();
    for (one, other) in plain.iter().zip(&again) {
        assert_eq!(one.to_vec::<f64>().unwrap(), other.to_vec::<f64>().unwrap());
    }
}

#[test]
fn a_graph_is_drawn_as_the_documentation_shows_it() {
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let sum = x.exp().unwrap().add(1.0).unwrap().sum(None, false).unwrap();
    let shown = include_str!("../../../docs/transforms.md");
    assert!(shown.contains(&transform::to_dot(&[sum])));
}
