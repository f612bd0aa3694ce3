//! Element-wise ops and arrays that are made: against golden numbers, and where those say nothing.

// A case that cannot be read fails its test.

use crate::golden::{Case, check, difference, dtype, rounding};
use hesper::{Array, Dtype, Error, Indexing, Range, Tolerance, meshgrid, select};

/// Dispatches on names of methods with no other argument than inputs.
macro_rules! methods {
    ($case:ident; $($unary:ident)*; $($binary:ident)*) => {
        match ($case.op.as_str(), &$case.inputs[..]) {
            $((stringify!($unary), [x]) => vec![x.$unary()?],)*
            $((stringify!($binary), [x, y]) => vec![x.$binary(y)?],)*
            _ => return others($case),
        }
    };
}

fn run(case: &Case) -> Result<Vec<Array>, Error> {
    Ok(methods! {
        case;
        abs arccos arccosh arcsin arcsinh arctan arctanh bitwise_invert ceil cos cosh degrees erf erfinv exp expm1 floor isfinite isinf isnan isneginf isposinf log log10 log1p log2 logical_not negative radians reciprocal rsqrt sigmoid sign sin sinh square sqrt tan tanh trunc conjugate real imag;
        add subtract multiply divide floor_divide remainder power maximum minimum arctan2 logaddexp bitwise_and bitwise_or bitwise_xor left_shift right_shift equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor
    })
}

fn others(case: &Case) -> Result<Vec<Array>, Error> {
    let params: Vec<&str> = case.params.iter().map(String::as_str).collect();
    let int = |at: usize| params[at].parse::<isize>().unwrap();
    let count = |at: usize| params[at].parse::<usize>().unwrap();
    let float = |at: usize| params[at].parse::<f64>().unwrap();
    Ok(vec![match (case.op.as_str(), &case.inputs[..]) {
        ("divmod", [x, y]) => {
            let (quotient, rest) = x.divmod(y)?;
            return Ok(vec![quotient, rest]);
        }
        ("round", [x]) => x.round(params[0].parse().unwrap())?,
        ("where", [condition, x, y]) => select(condition, x, y)?,
        ("astype", [x]) => x.astype(dtype(params[0]))?,
        ("nan_to_num", [x]) => x.nan_to_num(0.0, None, None)?,
        ("isclose", [x, y]) => x.isclose(y, Tolerance::default())?,
        ("allclose", [x, y]) => x.allclose(y, Tolerance::default())?,
        ("array_equal", [x, y]) => x.array_equal(y, false)?,
        ("arange", []) => {
            let whole = params[..3].iter().all(|text| text.parse::<i64>().is_ok());
            let range = if whole {
                Range::Int(int(0) as i64, int(1) as i64, int(2) as i64)
            } else {
                Range::Float(float(0), float(1), float(2))
            };
            Array::arange(range, Some(dtype(params[3])))?
        }
        ("linspace", []) => Array::linspace(float(0), float(1), count(2), dtype(params[3]))?,
        ("eye", []) => Array::eye(count(0), count(1), int(2), dtype(params[3]))?,
        ("tri", []) => Array::tri(count(0), count(1), int(2), dtype(params[3]))?,
        ("tril", [x]) => x.tril(int(0))?,
        ("triu", [x]) => x.triu(int(0))?,
        ("diag", [x]) => x.diag(int(0))?,
        ("diagonal", [x]) => x.diagonal(int(0), int(1), int(2))?,
        ("trace", [x]) => x.trace(int(0), int(1), int(2), None)?,
        ("hanning", []) => Array::hanning(count(0))?,
        ("hamming", []) => Array::hamming(count(0))?,
        ("blackman", []) => Array::blackman(count(0))?,
        ("bartlett", []) => Array::bartlett(count(0))?,
        ("meshgrid", arrays) => {
            let indexing = if params[1] == "ij" { Indexing::Ij } else { Indexing::Xy };
            return meshgrid(arrays, params[0] == "1", indexing);
        }
        (other, _) => panic!("{other}"),
    }])
}

#[test]
fn element_wise_ops_and_made_arrays_agree_with_the_golden_numbers() {
    check(include_str!("golden/elementwise.txt"), run, |case, dtype| {
        let exact = ["add", "subtract", "multiply", "divide", "where", "reciprocal", "square", "sqrt", "abs"];
        let exact = exact.contains(&case.op.as_str()) && dtype != Dtype::Complex64;
        if exact { 0.0 } else { rounding(dtype) }
    });
}

#[test]
fn integers_divided_by_zero_give_zero_and_leave_the_dividend() {
    for dtype in [Dtype::Uint8, Dtype::Int8, Dtype::Int16, Dtype::Int32, Dtype::Int64, Dtype::Uint64] {
        let x = Array::from_slice(&[5i32, 0, 7]).astype(dtype).unwrap();
        let zero = x.zeros_like().unwrap();
        let (quotient, rest) = x.divmod(&zero).unwrap();
        assert_eq!(difference(&quotient, &zero, 0.0), None);
        assert_eq!(difference(&rest, &x, 0.0), None);
    }
    let least = Array::from_slice(&[i32::MIN]);
    assert_eq!(least.floor_divide(-1).unwrap().item::<i32>().unwrap(), i32::MIN);
    assert_eq!(least.remainder(-1).unwrap().item::<i32>().unwrap(), 0);
}

#[test]
fn integer_powers_wrap_and_negative_exponents_give_zero() {
    let base = Array::from_slice(&[2i32, 3, -2, 1, 0, 7]);
    let exponent = Array::from_slice(&[10i32, 40, 3, -1, 0, -5]);
    assert_eq!(base.power(&exponent).unwrap().to_vec::<i32>().unwrap(), [1024, 689956897, -8, 0, 1, 0]);
}

#[test]
fn clip_takes_either_bound_and_the_upper_one_wins() {
    let x = Array::from_slice(&[-2i32, 1, 9]);
    assert_eq!(x.clip(Some(0), Some(5)).unwrap().to_vec::<i32>().unwrap(), [0, 1, 5]);
    assert_eq!(x.clip(None::<i32>, Some(5)).unwrap().to_vec::<i32>().unwrap(), [-2, 1, 5]);
    assert_eq!(x.clip(Some(7), Some(5)).unwrap().to_vec::<i32>().unwrap(), [5, 5, 5]);
    assert_eq!(x.clip(Some(0.5), None::<i32>).unwrap().dtype(), Dtype::Float32);
}

#[test]
fn complex_numbers_are_fused_with_real_ones() {
    let re = Array::from_slice(&[1.0f32, -2.0, 0.5]);
    let z = re.astype(Dtype::Complex64).unwrap() + re.multiply([0.0f32, 1.0]).unwrap();
    assert_eq!(z.to_vec::<[f32; 2]>().unwrap(), [[1.0, 1.0], [-2.0, -2.0], [0.5, 0.5]]);
    let size = (&z * z.conj().unwrap()).real().unwrap();
    assert_eq!(size.to_vec::<f32>().unwrap(), [2.0, 8.0, 0.5]);
    let t = Array::try_from_slice(&[[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], &[2, 2]).unwrap();
    let turned = t.t().unwrap().conj().unwrap();
    assert_eq!(turned.to_vec::<[f32; 2]>().unwrap(), [[1.0, -2.0], [5.0, -6.0], [3.0, -4.0], [7.0, -8.0]]);
}

#[test]
fn complex128_has_double_precision_in_every_step() {
    let x =
        Array::try_from_slice(&[[0.3f64, -1.25], [2.0, 0.5], [-0.7, 3.0], [1e200, 1e200]], &[2, 2]).unwrap();
    let again = x.exp().unwrap().log().unwrap().t().unwrap().to_vec::<[f64; 2]>().unwrap();
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-14 * b.abs();
    assert!(near(again[0][0], 0.3) && near(again[0][1], -1.25) && near(again[2][0], 2.0));
    // Squares of the parts would be out of range.
    assert!(near(x.abs().unwrap().to_vec::<f64>().unwrap()[3], 2f64.sqrt() * 1e200));
    let quotient = x.divide(&x).unwrap().to_vec::<[f64; 2]>().unwrap();
    assert!(quotient.iter().all(|[re, im]| near(*re, 1.0) && im.abs() < 1e-15));
    let product = x.multiply([0.0f64, 1.0]).unwrap();
    assert_eq!((product.dtype(), product.to_vec::<[f64; 2]>().unwrap()[0]), (Dtype::Complex128, [1.25, 0.3]));
    let mixed = Array::from_slice(&[1.0f64, 2.0]).add(Array::from_slice(&[[0.5f32, 1.0]])).unwrap();
    assert_eq!(mixed.to_vec::<[f64; 2]>().unwrap(), [[1.5, 1.0], [2.5, 1.0]]);
    let sum = x.slice(&[0, 0], &[2, 1], &[1, 1]).unwrap().sum(()).unwrap();
    assert_eq!(sum.item::<[f64; 2]>().unwrap(), [0.3 - 0.7, -1.25 + 3.0]);
    assert_eq!(x.sort(Some(-1)).unwrap().to_vec::<[f64; 2]>().unwrap()[2], [-0.7, 3.0]);
    assert_eq!(x.count_nonzero(()).unwrap().item::<i32>().unwrap(), 4);
    let narrow = x.astype(Dtype::Complex64).unwrap().to_vec::<[f32; 2]>().unwrap();
    assert_eq!((narrow[1], narrow[3]), ([2.0, 0.5], [f32::INFINITY; 2]));
}

#[test]
fn functions_of_float64_are_computed_in_float64() {
    let x = [0.3f64, 0.7, 0.123456789];
    let a = Array::from_slice(&x);
    let close = |found: Array, wanted: fn(f64) -> f64| {
        for (found, x) in found.to_vec::<f64>().unwrap().iter().zip(x) {
            assert!((found - wanted(x)).abs() <= 4e-16 * wanted(x).abs(), "{found} {}", wanted(x));
        }
    };
    close(a.exp().unwrap(), f64::exp);
    close(a.sin().unwrap(), f64::sin);
    close(a.log1p().unwrap(), f64::ln_1p);
    close(a.arctanh().unwrap(), f64::atanh);
    close(a.tanh().unwrap(), f64::tanh);
}

/// A chain through complex numbers and made arrays gives the same bits fused and op by op.
#[test]
fn fusion_of_complex_and_indexed_ops_changes_no_bit() {
    let chain = || {
        let x = Array::arange((0.0, 3.0, 0.125), None).unwrap().reshape(&[4, 6]).unwrap();
        let z = x.astype(Dtype::Complex64).unwrap().exp().unwrap() * [0.5f32, -1.5];
        let w = (z.sqrt().unwrap() / (&z + 1.0)).tril(1).unwrap();
        (w.abs().unwrap() + Array::eye(4, 6, 1, Dtype::Float32).unwrap()).to_vec::<f32>().unwrap()
    };
    let fused = chain();
    hesper::eval::set_fusion(false);
    let single = chain();
    hesper::eval::set_fusion(true);
    assert_eq!(fused, single);
}

#[test]
fn filled_arrays_take_numbers_and_arrays_that_broadcast() {
    assert_eq!(Array::full(&[2], true, None).unwrap().to_bools().unwrap(), [true, true]);
    assert_eq!(Array::full(&[2], 1.5, None).unwrap().dtype(), Dtype::Float32);
    let row = Array::from_slice(&[1i32, 2]);
    assert_eq!(Array::full(&[2, 2], &row, None).unwrap().to_vec::<i32>().unwrap(), [1, 2, 1, 2]);
    assert!(Array::full(&[3], &row, None).is_err());
    assert_eq!(row.ones_like().unwrap().to_vec::<i32>().unwrap(), [1, 1]);
    assert!(Array::zeros(&[usize::MAX, 2], Dtype::Float32).is_err());
    assert!(Array::arange((0, i64::MAX, 1), None).is_err());
    assert!(Array::arange(f64::INFINITY, None).is_err());
    let large = Array::arange((1i64 << 40)..(1 << 40) + 2, Some(Dtype::Int64)).unwrap();
    assert_eq!(large.to_vec::<i64>().unwrap(), [1 << 40, (1 << 40) + 1]);
}

#[test]
fn nested_lists_make_arrays_and_ragged_ones_are_refused() {
    let x = Array::from_nested(&vec![vec![1i32, 2], vec![3, 4]]).unwrap();
    assert_eq!((x.shape(), x.to_vec::<i32>().unwrap()), (&[2usize, 2][..], vec![1, 2, 3, 4]));
    assert_eq!(Array::from_nested(&[[true], [false]]).unwrap().to_bools().unwrap(), [true, false]);
    assert_eq!(Array::from_nested(&2.5f32).unwrap().item::<f32>().unwrap(), 2.5);
    assert_eq!(Array::from_nested::<[Vec<f32>]>(&[]).unwrap().shape(), [0]);
    assert!(Array::from_nested(&vec![vec![1i32, 2], vec![3]]).is_err());
    assert_eq!((0..3).map(|at| at as f32).collect::<Array>().to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0]);
}

#[test]
fn results_are_stored_in_the_order_of_their_inputs() {
    let numbers: Vec<f32> = (0..24).map(|i| i as f32 - 7.0).collect();
    let x = Array::try_from_slice(&numbers, &[2, 3, 4]).unwrap();
    let strides = |y: &Array| y.host().unwrap().strides().to_vec();
    let turned = x.transpose(&[2, 0, 1]).unwrap();
    let dense = Array::try_from_slice(&turned.to_vec::<f32>().unwrap(), &[4, 2, 3]).unwrap();
    let row = Array::from_slice(&[1.0f32, 2.0, 3.0]);

    // One input, two of one order, one with gaps, one beside a row that is broadcast.
    let part = x.slice(&[0, 0, 1], &[2, 3, 3], &[1, 1, 1]).unwrap().transpose(&[2, 0, 1]).unwrap();
    let dense_part = dense.slice(&[1, 0, 0], &[3, 2, 3], &[1, 1, 1]).unwrap();
    let cases = [
        (turned.exp().unwrap(), dense.exp().unwrap(), vec![1, 12, 4]),
        (
            turned.multiply(&turned).unwrap().subtract(1.5).unwrap(),
            dense.multiply(&dense).unwrap().subtract(1.5).unwrap(),
            vec![1, 12, 4],
        ),
        (part.negative().unwrap(), dense_part.negative().unwrap(), vec![1, 6, 2]),
        (turned.add(&row).unwrap(), dense.add(&row).unwrap(), vec![1, 12, 4]),
        // Orders that differ.
        (turned.add(&dense).unwrap(), dense.add(&dense).unwrap(), vec![6, 3, 1]),
    ];
    for (at, (got, want, stored)) in cases.into_iter().enumerate() {
        assert_eq!(got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap(), "case {at}");
        assert_eq!(strides(&got), stored, "case {at}");
        // Whatever reads the result sees its elements in their places.
        let flat = got.reshape(&[-1]).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(flat, want.to_vec::<f32>().unwrap(), "case {at}, flat");
        let sums = |x: &Array| x.sum(1).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(sums(&got), sums(&want), "case {at}, sums");
    }
    // An op that uses the index of its elements counts them by rows.
    let key = hesper::random::key(3).unwrap();
    let noise = hesper::random::uniform(0.0, 1.0, &[4, 2, 3], Dtype::Float32, Some(&key)).unwrap();
    let sum = turned.add(&noise).unwrap();
    assert_eq!(sum.to_vec::<f32>().unwrap(), dense.add(&noise).unwrap().to_vec::<f32>().unwrap());
}

#[test]
fn a_result_takes_the_place_of_a_transposed_input() {
    let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let turned = x.exp().unwrap().transpose(&[1, 0]).unwrap();
    turned.eval().unwrap();
    let place = turned.host().unwrap().as_ptr() as usize;
    let y = turned.negative().unwrap();
    drop(turned);
    assert_eq!(y.host().unwrap().as_ptr() as usize, place);
    let want: Vec<f32> = [1.0f32, 4.0, 2.0, 5.0, 3.0, 6.0].into_iter().map(|x| -x.exp()).collect();
    for (got, want) in y.to_vec::<f32>().unwrap().into_iter().zip(want) {
        assert!((got - want).abs() <= want.abs() * 1e-6, "{got} {want}");
    }
}
