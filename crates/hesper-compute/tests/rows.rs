//! Operations along an axis, and copies, against plain loops.

use crate::common::{Rng, close, levels};
use half::{bf16, f16};
use hesper_compute::{
    Axis, Dim, Float, Integer, NormGradientInputs, Par, Plain, Reduce, ReduceInput, Reduction, Sample, Scan,
    Scannable, Serial, SumOrder, Threads, Word, arg_extreme, copy_strided, count_set, extreme_integers,
    layer_norm, logsumexp, logsumexp_along, moments, norm_gradient, reduce, rms_norm, scan, scan_logsumexp,
    softmax, softmax_along, truths,
};

fn bits<T: Float>(v: &[T]) -> Vec<u32> {
    v.iter().map(|x| x.to_f32().to_bits()).collect()
}

/// Runs at every SIMD level with one and three threads, which must agree bit for bit.
fn everywhere<T: Float>(out: usize, f: impl Fn(&dyn Par, &mut [T])) -> Vec<Vec<T>> {
    let mut all = vec![];
    for (one, three) in levels() {
        let (mut a, mut b) = (vec![T::from_f32(f32::NAN); out], vec![T::from_f32(f32::NAN); out]);
        f(&one, &mut a);
        f(&three, &mut b);
        assert_eq!(bits(&a), bits(&b), "threads differ at {:?}", one.1);
        all.push(a);
    }
    all
}

fn check_norms<T: Float>(tol: f32) {
    let mut rng = Rng::new(1);
    for (rows, n) in [(1, 1), (3, 7), (2, 16), (5, 100), (70, 33), (2, 5000)] {
        let x: Vec<T> = (0..rows * n).map(|_| T::from_f32(rng.float() * 8.0)).collect();
        let (w, b): (Vec<T>, Vec<T>) = (rng.floats(n), rng.floats(n));
        let wide: Vec<f64> = x.iter().map(|v| f64::from(v.to_f32())).collect();
        for got in everywhere::<T>(rows * n, |p, o| softmax(p, &x, n, o).unwrap()) {
            for r in 0..rows {
                let row = &wide[r * n..][..n];
                let top = row.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
                for j in 0..n {
                    let want = ((row[j] - top).exp() / sum) as f32;
                    close(got[r * n + j].to_f32(), want, tol, ("softmax", rows, n));
                }
            }
        }
        for got in everywhere::<T>(rows, |p, o| logsumexp(p, &x, n, o).unwrap()) {
            for r in 0..rows {
                let want = wide[r * n..][..n].iter().map(|v| v.exp()).sum::<f64>().ln();
                close(got[r].to_f32(), want as f32, tol, ("logsumexp", rows, n));
            }
        }
        for got in
            everywhere::<T>(rows * n, |p, o| layer_norm(p, &x, n, Some(&w), Some(&b), 1e-5, o).unwrap())
        {
            for r in 0..rows {
                let row = &wide[r * n..][..n];
                let mean = row.iter().sum::<f64>() / n as f64;
                let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
                for j in 0..n {
                    let v = (row[j] - mean) / (var + 1e-5).sqrt();
                    let want = v * f64::from(w[j].to_f32()) + f64::from(b[j].to_f32());
                    close(got[r * n + j].to_f32(), want as f32, tol, ("layer_norm", rows, n));
                }
            }
        }
        for got in everywhere::<T>(rows * n, |p, o| rms_norm(p, &x, n, Some(&w), 1e-5, o).unwrap()) {
            for r in 0..rows {
                let row = &wide[r * n..][..n];
                let mean = row.iter().map(|v| v * v).sum::<f64>() / n as f64;
                for j in 0..n {
                    let want = row[j] / (mean + 1e-5).sqrt() * f64::from(w[j].to_f32());
                    close(got[r * n + j].to_f32(), want as f32, tol, ("rms_norm", rows, n));
                }
            }
        }
    }
}

#[test]
fn norms_of_f32_match_the_definition() {
    check_norms::<f32>(4e-6);
}

/// Compares the derivative of norms with one in double precision, at every level and number of threads.
fn check_norm_gradients<T: Float>(tol: f32) {
    let mut rng = Rng::new(7);
    for (rows, n, centred, weighted) in [
        (1, 1, true, true),
        (3, 7, false, true),
        (5, 100, true, false),
        (70, 33, true, true),
        (1100, 16, false, true),
    ] {
        let (x, g): (Vec<T>, Vec<T>) = (rng.floats(rows * n), rng.floats(rows * n));
        let w: Vec<T> = rng.floats(n);
        let weight = weighted.then_some(&w[..]);
        let got = everywhere::<T>((rows + 2) * n, |p, o| {
            let (dx, vectors) = o.split_at_mut(rows * n);
            let (dw, db) = vectors.split_at_mut(n);
            let inputs = NormGradientInputs { x: &x, weight, cotangent: &g, n, eps: 1e-3, centred };
            norm_gradient(p, inputs, dx, [Some(dw), Some(db)]).unwrap();
        });
        let wide = |v: &[T]| v.iter().map(|v| f64::from(v.to_f32())).collect::<Vec<f64>>();
        let (x, g, w) = (wide(&x), wide(&g), wide(&w));
        let mean = |v: &mut dyn Iterator<Item = f64>| v.sum::<f64>() / n as f64;
        let mut want = vec![0.0; (rows + 2) * n];
        for r in 0..rows {
            let (x, g) = (&x[r * n..][..n], &g[r * n..][..n]);
            let shift = if centred { mean(&mut x.iter().copied()) } else { 0.0 };
            let scale = 1.0 / (mean(&mut x.iter().map(|x| (x - shift).powi(2))) + 1e-3).sqrt();
            let normal: Vec<f64> = x.iter().map(|x| (x - shift) * scale).collect();
            let by: Vec<f64> = g.iter().zip(&w).map(|(g, w)| if weighted { g * w } else { *g }).collect();
            let along = mean(&mut by.iter().zip(&normal).map(|(g, x)| g * x));
            let level = if centred { mean(&mut by.iter().copied()) } else { 0.0 };
            for j in 0..n {
                want[r * n + j] = (by[j] - level - normal[j] * along) * scale;
                want[rows * n + j] += g[j] * normal[j];
                want[(rows + 1) * n + j] += g[j];
            }
        }
        let largest = want.iter().fold(1.0, |top: f64, v| top.max(v.abs())) as f32;
        for (at, got) in got.iter().flat_map(|got| got.iter().enumerate()) {
            let error = (got.to_f32() - want[at] as f32).abs() / largest;
            assert!(error <= tol, "{rows} x {n} at {at}: {got:?} for {}", want[at]);
        }
    }
}

#[test]
fn derivatives_of_norms_match_the_definition_and_do_not_depend_on_threads() {
    check_norm_gradients::<f32>(2e-5);
    check_norm_gradients::<bf16>(6e-3);
    check_norm_gradients::<f16>(1e-3);
}

#[test]
fn derivatives_of_norms_refuse_operands_that_do_not_fit() {
    let (x, mut dx) = ([0.0f32; 6], [0.0f32; 6]);
    let inputs =
        NormGradientInputs { x: &x, weight: None, cotangent: &x[..3], n: 3, eps: 0.0, centred: true };
    assert!(norm_gradient(&Threads(2), inputs, &mut dx, [None, None]).is_err());
    let inputs = NormGradientInputs { cotangent: &x, ..inputs };
    assert!(norm_gradient(&Threads(2), inputs, &mut dx, [Some(&mut [0.0; 2]), None]).is_err());
    assert!(
        norm_gradient(&Threads(2), NormGradientInputs { n: 4, ..inputs }, &mut dx, [None, None]).is_err()
    );
}

#[test]
fn norms_of_bf16_are_rounded_once() {
    check_norms::<bf16>(4e-3);
}

#[test]
fn norms_of_f16_are_rounded_once() {
    check_norms::<f16>(6e-4);
}

fn check_softmax_along<T: Float>(tol: f32) {
    let mut rng = Rng::new(41);
    for (outer, len, inner) in
        [(1, 1, 1), (2, 3, 5), (1, 130, 40), (3, 70, 129), (1, 9, 2500), (2, 3000, 17), (0, 2, 3)]
    {
        let axis = Axis { outer, len, inner };
        let mut x: Vec<T> = (0..outer * len * inner).map(|_| T::from_f32(rng.float() * 8.0)).collect();
        if len == 70 {
            // A column of minus infinity, one with infinity, one with NaN.
            for k in 0..len {
                x[k * inner] = T::from_f32(f32::NEG_INFINITY);
            }
            x[5 * inner + 1] = T::from_f32(f32::INFINITY);
            x[5 * inner + 2] = T::from_f32(f32::NAN);
        }
        // The same by rows, after copying columns to rows.
        let row = |i: usize| column(axis, i).map(|k| x[k]).collect::<Vec<T>>();
        let rows: Vec<T> = (0..outer * inner).flat_map(row).collect();
        let want = everywhere::<T>(rows.len(), |p, o| softmax(p, &rows, len, o).unwrap());
        let got = everywhere::<T>(x.len(), |p, o| softmax_along(p, &x, axis, o).unwrap());
        for (got, want) in got.iter().zip(&want) {
            for i in 0..outer * inner {
                for (k, at) in column(axis, i).enumerate() {
                    close(got[at].to_f32(), want[i * len + k].to_f32(), tol, ("softmax", axis, i, k));
                }
            }
        }
        let want = everywhere::<T>(outer * inner, |p, o| logsumexp(p, &rows, len, o).unwrap());
        let got = everywhere::<T>(outer * inner, |p, o| logsumexp_along(p, &x, axis, o).unwrap());
        for (got, want) in got.iter().zip(&want) {
            for (g, w) in got.iter().zip(want) {
                close(g.to_f32(), w.to_f32(), tol, ("logsumexp", axis));
            }
        }
    }
}

#[test]
fn softmax_along_other_axes_matches_softmax_of_rows() {
    check_softmax_along::<f32>(2e-6);
    check_softmax_along::<bf16>(8e-3);
    check_softmax_along::<f16>(1e-3);
}

#[test]
fn softmax_survives_infinities() {
    let x = [f32::NEG_INFINITY, 0.0, 0.0, f32::NEG_INFINITY, 1000.0, -1000.0];
    for got in everywhere::<f32>(6, |p, o| softmax(p, &x, 3, o).unwrap()) {
        assert_eq!(got, [0.0, 0.5, 0.5, 0.0, 1.0, 0.0]);
    }
    let all = [f32::NEG_INFINITY; 2];
    for got in everywhere::<f32>(1, |p, o| logsumexp(p, &all, 2, o).unwrap()) {
        assert_eq!(got[0], f32::NEG_INFINITY);
    }
    // Each column: an infinity, an infinity beside a NaN, a NaN.
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let columns = [inf, inf, 1.0, 2.0, nan, nan];
    let rows = [inf, 2.0, inf, nan, 1.0, nan];
    let want = [inf.to_bits(), nan.to_bits(), nan.to_bits()];
    let bits = |got: Vec<f32>| {
        got.iter().map(|x| if x.is_nan() { nan.to_bits() } else { x.to_bits() }).collect::<Vec<_>>()
    };
    for got in everywhere::<f32>(3, |p, o| logsumexp(p, &rows, 2, o).unwrap()) {
        assert_eq!(bits(got), want);
    }
    let axis = Axis { outer: 1, len: 2, inner: 3 };
    for got in everywhere::<f32>(3, |p, o| logsumexp_along(p, &columns, axis, o).unwrap()) {
        assert_eq!(bits(got), want);
    }
}

const AXES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (3, 5, 1),
    (2, 64, 1),
    (4, 1000, 1),
    (1, 70_001, 1),
    (3, 66_000, 1),
    (1, 9, 7),
    (2, 600, 33),
    (1, 1300, 70),
    (5, 3, 2100),
    (2, 0, 3),
    (0, 4, 1),
];

#[test]
fn reductions_match_plain_loops_on_every_axis() {
    let mut rng = Rng::new(2);
    for (outer, len, inner) in AXES {
        let axis = Axis { outer, len, inner };
        let x: Vec<f32> = rng.floats(outer * len * inner);
        let ints: Vec<i16> = x.iter().map(|v| (v * 30000.0) as i16).collect();
        let column = |o: usize, j: usize| (0..len).map(move |k| (o * len + k) * inner + j);
        for got in everywhere::<f32>(outer * inner, |p, out| {
            along(&x, axis, |x| reduce(p, Reduction::Sum, x, out)).unwrap()
        }) {
            for (i, g) in got.iter().enumerate() {
                let want: f64 = column(i / inner, i % inner).map(|k| f64::from(x[k])).sum();
                close(*g, want as f32, 1e-6 * (len as f32).sqrt().max(1.0), ("sum", axis));
            }
        }
        for (op, max) in [(Reduction::Min, false), (Reduction::Max, true)] {
            for (one, three) in levels() {
                for par in [&one as &dyn Par, &three] {
                    let mut out = vec![0i32; outer * inner];
                    along(&ints, axis, |x| reduce(par, op, x, &mut out)).unwrap();
                    let mut at = vec![0u32; outer * inner];
                    let args = along(&ints, axis, |x| arg_extreme(par, max, x, &mut at));
                    assert_eq!(args.is_err(), len == 0 && outer * inner > 0);
                    for (i, g) in out.iter().enumerate().filter(|_| len > 0) {
                        let all = column(i / inner, i % inner).map(|k| i32::from(ints[k]));
                        let want = if max { all.clone().max() } else { all.clone().min() };
                        assert_eq!(Some(*g), want, "{op:?} {axis:?}");
                        assert_eq!(at[i] as usize, all.clone().position(|v| Some(v) == want).unwrap());
                    }
                }
            }
        }
        let small: Vec<u8> = x.iter().map(|v| (v * 3.0).abs() as u8).collect();
        let mut out = vec![0u32; outer * inner];
        along(&small, axis, |x| reduce(&Serial, Reduction::Prod, x, &mut out)).unwrap();
        for (i, g) in out.iter().enumerate() {
            let want = column(i / inner, i % inner).fold(1u32, |a, k| a.wrapping_mul(u32::from(small[k])));
            assert_eq!(*g, want, "prod {axis:?}");
        }
    }
}

#[test]
fn ranges_of_rows_are_joined_pairwise() {
    // The reduction's own: rows of a range, whose sums are joined afterwards.
    const RANGE: usize = 512;
    let mut rng = Rng::new(12);
    for (outer, ranges, inner) in [(1, 2, 1100), (2, 3, 40), (1, 5, 9), (1, 6, 33), (3, 7, 2)] {
        let len = ranges * RANGE - 100;
        let x: Vec<f32> = rng.floats(outer * len * inner);
        for op in [Reduction::Sum, Reduction::Prod] {
            let reduced = |x: &[f32], outer, len| {
                let axis = Axis { outer, len, inner };
                everywhere::<f32>(outer * inner, |p, out| along(x, axis, |x| reduce(p, op, x, out)).unwrap())
            };
            let mut parts: Vec<Vec<Vec<f32>>> = Vec::new();
            for range in 0..ranges {
                let rows =
                    |o| (o * len + range * RANGE) * inner..(o * len + len.min((range + 1) * RANGE)) * inner;
                let part: Vec<f32> = (0..outer).flat_map(|o| x[rows(o)].to_vec()).collect();
                parts.push(reduced(&part, outer, part.len() / outer / inner));
            }
            for (level, got) in reduced(&x, outer, len).iter().enumerate() {
                for (at, got) in got.iter().enumerate() {
                    let mut sums: Vec<f32> = parts.iter().map(|part| part[level][at]).collect();
                    while sums.len() > 1 {
                        let join = |pair: &[f32]| match (op, pair) {
                            (Reduction::Sum, [a, b]) => a + b,
                            (_, [a, b]) => a * b,
                            _ => pair[0],
                        };
                        sums = sums.chunks(2).map(join).collect();
                    }
                    assert_eq!(got.to_bits(), sums[0].to_bits(), "{op:?} of {ranges} ranges, result {at}");
                }
            }
        }
    }
}

#[test]
fn nan_wins_minima_and_maxima_and_their_indices() {
    let mut x = vec![1.0f32; 5000];
    x[17] = f32::NAN;
    x[18] = 3.0;
    for op in [Reduction::Min, Reduction::Max] {
        for got in
            everywhere::<f32>(1, |p, out| along(&x, Axis::last(1, 5000), |x| reduce(p, op, x, out)).unwrap())
        {
            assert!(got[0].is_nan());
        }
    }
    let mut at = [0];
    for max in [true, false] {
        along(&x, Axis::last(1, 5000), |x| arg_extreme(&Serial, max, x, &mut at)).unwrap();
        assert_eq!(at, [17]);
    }
    // In a row that is searched in parts, and down columns.
    let mut long = vec![2.0f32; 200_000];
    (long[150_000], long[70_000]) = (5.0, 5.0);
    along(&long, Axis::last(1, 200_000), |x| arg_extreme(&Threads(2), true, x, &mut at)).unwrap();
    assert_eq!(at, [70_000]);
    (long[199_999], long[190_000]) = (f32::NAN, f32::NAN);
    along(&long, Axis::last(1, 200_000), |x| arg_extreme(&Threads(2), true, x, &mut at)).unwrap();
    assert_eq!(at, [190_000]);
    let mut columns = vec![0; 1000];
    along(&long, Axis { outer: 1, len: 200, inner: 1000 }, |x| {
        arg_extreme(&Threads(2), true, x, &mut columns)
    })
    .unwrap();
    assert!(columns[0] == 190 && columns[999] == 199 && columns[1] == 0);
}

/// Reduces an axis of contiguous elements.
pub fn along<T: Plain, R>(x: &[T], axis: Axis, reduce: impl FnOnce(&ReduceInput<'_, T>) -> R) -> R {
    let Axis { outer, len, inner } = axis;
    let kept = [(outer, len * inner), (inner, 1)].map(dim);
    let (kept, order) =
        if inner == 1 { (&kept[..1], SumOrder::Rows) } else { (&kept[..], SumOrder::Columns) };
    reduce(&ReduceInput::new(x, 0, kept, &[dim((len, inner))], Some(order)).unwrap())
}

pub fn dim((len, stride): (usize, usize)) -> Dim {
    Dim { len, stride: stride as isize }
}

/// The elements of result `i` of an axis.
fn column(axis: Axis, i: usize) -> impl Iterator<Item = usize> + Clone {
    let Axis { len, inner, .. } = axis;
    (0..len).map(move |k| (i / inner * len + k) * inner + i % inner)
}

/// Runs at every SIMD level with one and three threads and compares each result.
fn all_equal<O: Copy + PartialEq + std::fmt::Debug>(
    axis: Axis,
    fill: O,
    run: impl Fn(&dyn Par, &mut [O]),
    want: impl Fn(usize) -> O,
) {
    let want: Vec<O> = (0..axis.outer * axis.inner).map(want).collect();
    for (one, three) in levels() {
        for par in [&one as &dyn Par, &three] {
            let mut out = vec![fill; want.len()];
            run(par, &mut out);
            assert_eq!(out, want, "{axis:?} {:?}", one.1);
        }
    }
}

fn check_integers<T: Integer + std::fmt::Debug>(axis: Axis, x: &[T], lowest: T, highest: T) {
    let of = |max: bool, i: usize| {
        let all = column(axis, i).map(|k| x[k]);
        if max { all.max().unwrap_or(lowest) } else { all.min().unwrap_or(highest) }
    };
    for max in [true, false] {
        let run = |p: &dyn Par, out: &mut [T]| along(x, axis, |x| extreme_integers(p, max, x, out)).unwrap();
        all_equal(axis, x.first().copied().unwrap_or(lowest), run, |i| of(max, i));
    }
}

fn check_flags<T: Word + PartialEq + std::fmt::Debug>(
    axis: Axis,
    mask: u64,
    x: &[T],
    set: impl Fn(T) -> bool,
) {
    for all in [true, false] {
        let run = |p: &dyn Par, out: &mut [u8]| along(x, axis, |x| truths(p, all, mask, x, out)).unwrap();
        let want = |i: usize| {
            let mut flags = column(axis, i).map(|k| set(x[k]));
            u8::from(if all { flags.all(|f| f) } else { flags.any(|f| f) })
        };
        all_equal(axis, 7, run, want);
    }
    let run = |p: &dyn Par, out: &mut [i32]| along(x, axis, |x| count_set(p, mask, x, out)).unwrap();
    all_equal(axis, -1, run, |i| column(axis, i).filter(|&k| set(x[k])).count() as i32);
}

#[test]
fn small_integers_and_flags_match_plain_loops_on_every_axis() {
    let mut rng = Rng::new(31);
    let more = [(9, 29, 1), (3, 31, 1), (2, 127, 1), (3, 300, 1), (1, 40_000, 1), (1, 700, 3), (2, 3, 5000)];
    for (outer, len, inner) in AXES.into_iter().filter(|axis| *axis != (3, 66_000, 1)).chain(more) {
        let axis = Axis { outer, len, inner };
        let n = outer * len * inner;
        let words: Vec<u64> = (0..n).map(|_| rng.bits()).collect();
        check_integers(axis, &words.iter().map(|w| *w as u8).collect::<Vec<_>>(), 0, 255);
        check_integers(axis, &words.iter().map(|w| *w as i8).collect::<Vec<_>>(), i8::MIN, i8::MAX);
        check_integers(axis, &words.iter().map(|w| *w as u16).collect::<Vec<_>>(), 0, u16::MAX);
        check_integers(axis, &words.iter().map(|w| *w as i16).collect::<Vec<_>>(), i16::MIN, i16::MAX);
        // Rarely zero, mostly zero, and nonzero only outside of the mask.
        let seldom = |w: u64| if w.is_multiple_of(1000) { 0 } else { w | 1 };
        let mostly = |w: u64| if w.is_multiple_of(1000) { w | 1 } else { 0 };
        check_flags::<u8>(axis, u64::MAX, &vec![1; n], |w| w != 0);
        check_flags::<u8>(axis, u64::MAX, &words.iter().map(|w| seldom(*w) as u8).collect::<Vec<_>>(), |w| {
            w != 0
        });
        check_flags::<u16>(
            axis,
            0x7fff,
            &words.iter().map(|w| mostly(*w) as u16 | 0x8000).collect::<Vec<_>>(),
            |w| w & 0x7fff != 0,
        );
        check_flags::<u32>(
            axis,
            u64::MAX,
            &words.iter().map(|w| mostly(*w) as u32).collect::<Vec<_>>(),
            |w| w != 0,
        );
        check_flags::<u64>(
            axis,
            u64::MAX >> 1,
            &words.iter().map(|w| w & 1 << 63).collect::<Vec<_>>(),
            |_| false,
        );
        let bytes: Vec<u8> = words.iter().map(|w| *w as u8).collect();
        let sum = |i: usize| column(axis, i).map(|k| u32::from(bytes[k])).fold(0, u32::wrapping_add);
        all_equal(axis, 1, |p, out| along(&bytes, axis, |x| reduce(p, Reduction::Sum, x, out)).unwrap(), sum);
        let longs: Vec<i64> = words.iter().map(|w| *w as i64).collect();
        let sum = |i: usize| column(axis, i).map(|k| longs[k]).fold(0, i64::wrapping_add);
        all_equal(axis, 1, |p, out| along(&longs, axis, |x| reduce(p, Reduction::Sum, x, out)).unwrap(), sum);
        let pairs: Vec<[f32; 2]> =
            words.iter().map(|w| [(w % 8) as f32 - 4.0, (w >> 8 & 7) as f32]).collect();
        let sum = |i: usize| {
            column(axis, i).map(|k| pairs[k]).fold([0.0; 2], |a: [f32; 2], b| [a[0] + b[0], a[1] + b[1]])
        };
        all_equal(
            axis,
            [1.0; 2],
            |p, out| along(&pairs, axis, |x| reduce(p, Reduction::Sum, x, out)).unwrap(),
            sum,
        );
        let doubles: Vec<f64> = words.iter().map(|w| (w % 1024) as f64 - 500.0).collect();
        let sum = |i: usize| column(axis, i).map(|k| doubles[k]).sum::<f64>() + 0.0;
        all_equal(
            axis,
            1.0,
            |p, out| along(&doubles, axis, |x| reduce(p, Reduction::Sum, x, out)).unwrap(),
            sum,
        );
    }
}

#[test]
fn reductions_of_16_bit_floats_match_those_of_f32() {
    let mut rng = Rng::new(32);
    for (outer, len, inner) in AXES.into_iter().filter(|axis| *axis != (3, 66_000, 1)) {
        let axis = Axis { outer, len, inner };
        let half: Vec<f16> = rng.floats(outer * len * inner);
        let brain: Vec<bf16> = half.iter().map(|v| bf16::from_f32(v.to_f32())).collect();
        let ops = [Reduction::Sum, Reduction::Prod, Reduction::Min, Reduction::Max];
        for op in ops {
            let wide: Vec<f32> = half.iter().map(|v| v.to_f32()).collect();
            let want = everywhere::<f32>(outer * inner, |p, out| {
                along(&wide, axis, |x| reduce(p, op, x, out)).unwrap()
            });
            let got = everywhere::<f32>(outer * inner, |p, out| {
                along(&half, axis, |x| reduce(p, op, x, out)).unwrap()
            });
            assert!(got.iter().zip(&want).all(|(a, b)| bits(a) == bits(b)), "{op:?} {axis:?}");
            assert!(want.iter().all(|w| bits(w) == bits(&want[0])), "levels differ: {op:?} {axis:?}");
            let wide: Vec<f32> = brain.iter().map(|v| v.to_f32()).collect();
            let want = everywhere::<f32>(outer * inner, |p, out| {
                along(&wide, axis, |x| reduce(p, op, x, out)).unwrap()
            });
            let got = everywhere::<f32>(outer * inner, |p, out| {
                along(&brain, axis, |x| reduce(p, op, x, out)).unwrap()
            });
            assert!(got.iter().zip(&want).all(|(a, b)| bits(a) == bits(b)), "{op:?} {axis:?}");
        }
    }
}

fn check_half_scans<T: Float + Scannable>() {
    let mut rng = Rng::new(33);
    for (outer, len, inner) in [(1, 1, 1), (3, 7, 1), (19, 40, 1), (1, 33_000, 1), (2, 9, 5), (1, 20, 600)] {
        let axis = Axis { outer, len, inner };
        let mut x: Vec<T> = rng.floats(outer * len * inner);
        for op in [Scan::Sum, Scan::Prod, Scan::Min, Scan::Max] {
            if op == Scan::Max {
                let at = x.len() / 2;
                x[at] = T::from_f32(f32::NAN);
            }
            let wide: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
            for (reverse, inclusive) in [(false, true), (true, true), (false, false), (true, false)] {
                let want = everywhere::<f32>(x.len(), |p, out| {
                    scan(p, op, &wide, axis, reverse, inclusive, out).unwrap();
                });
                let got = everywhere::<T>(x.len(), |p, out| {
                    scan(p, op, &x, axis, reverse, inclusive, out).unwrap();
                });
                for (got, want) in got.iter().zip(&want) {
                    let want: Vec<T> = want.iter().map(|v| T::from_f32(*v)).collect();
                    assert_eq!(bits(got), bits(&want), "{op:?} {axis:?} {reverse} {inclusive}");
                }
            }
        }
    }
}

#[test]
fn scans_of_16_bit_floats_accumulate_in_f32_and_round_once() {
    check_half_scans::<f16>();
    check_half_scans::<bf16>();
}

#[test]
fn scans_are_nan_from_the_first_nan_on() {
    for n in [5, 40, 70_000] {
        let mut x: Vec<f32> = (0..n).map(|i| ((i * 7) % 11) as f32).collect();
        x[n / 2] = f32::NAN;
        for op in [Scan::Max, Scan::Min, Scan::Sum, Scan::Prod] {
            for got in everywhere::<f32>(n, |p, o| scan(p, op, &x, Axis::last(1, n), false, true, o).unwrap())
            {
                assert!(
                    got[..n / 2].iter().all(|v| !v.is_nan()) && got[n / 2..].iter().all(|v| v.is_nan()),
                    "{op:?} {n}"
                );
            }
        }
    }
}

#[test]
fn a_long_sum_of_f32_keeps_its_precision() {
    let x = vec![0.1f32; 10_000_000];
    let mut out = [0.0];
    along(&x, Axis::last(1, x.len()), |x| reduce(&Threads(2), Reduction::Sum, x, &mut out)).unwrap();
    assert!((out[0] - 1_000_000.0).abs() < 1.0, "{}", out[0]);
}

#[test]
fn scans_match_plain_loops_in_both_directions() {
    let mut rng = Rng::new(3);
    for (outer, len, inner) in [(1, 1, 1), (3, 7, 1), (19, 40, 1), (1, 70_000, 1), (2, 9, 5), (1, 20, 600)] {
        let axis = Axis { outer, len, inner };
        let x: Vec<f32> = rng.floats(outer * len * inner);
        for op in [Some(Scan::Sum), Some(Scan::Prod), Some(Scan::Min), Some(Scan::Max), None] {
            for (reverse, inclusive) in [(false, true), (true, true), (false, false), (true, false)] {
                let runs = everywhere::<f32>(x.len(), |p, out| {
                    match op {
                        Some(op) => scan(p, op, &x, axis, reverse, inclusive, out),
                        None => scan_logsumexp(p, &x, axis, reverse, inclusive, out),
                    }
                    .unwrap();
                });
                for o in 0..outer {
                    for j in 0..inner {
                        let mut acc = match op {
                            Some(Scan::Sum) => 0.0,
                            Some(Scan::Prod) => 1.0,
                            Some(Scan::Min) => f64::INFINITY,
                            Some(Scan::Max) | None => f64::NEG_INFINITY,
                        };
                        for k in 0..len {
                            let k = if reverse { len - 1 - k } else { k };
                            let at = (o * len + k) * inner + j;
                            let v = f64::from(x[at]);
                            let next = match op {
                                Some(Scan::Sum) => acc + v,
                                Some(Scan::Prod) => acc * v,
                                Some(Scan::Min) => acc.min(v),
                                Some(Scan::Max) => acc.max(v),
                                None => (acc.exp() + v.exp()).ln(),
                            };
                            for got in &runs {
                                let want = if inclusive { next } else { acc };
                                close(got[at], want as f32, 2e-4, (op, axis, reverse, inclusive, k));
                            }
                            acc = next;
                        }
                    }
                }
            }
        }
    }
    let mut out = [0i8; 3];
    scan(&Serial, Scan::Sum, &[100i8, 100, 1], Axis::last(1, 3), false, true, &mut out).unwrap();
    assert_eq!(out, [100, -56, -55]);
}

fn check_copies<T: Copy + Send + Sync + PartialEq + std::fmt::Debug + 'static>(make: impl Fn(usize) -> T) {
    // Shape, source strides, source offset.
    let cases: [(&[usize], &[isize], usize); 15] = [
        (&[], &[], 3),
        (&[5], &[-2], 20),
        (&[70, 90], &[1, 70], 0),
        (&[130, 129], &[1, 140], 2),
        (&[3, 40, 50], &[2000, 1, 40], 0),
        (&[9, 10, 11], &[1, 9, 90], 0),
        (&[4, 6, 5], &[0, 5, 1], 0),
        (&[4, 100], &[1, 0], 0),
        (&[2, 0, 3], &[3, 3, 1], 0),
        (&[7, 900, 2], &[900, 1, 0], 0),
        (&[5, 300, 3], &[1, 5, 0], 0),
        (&[40, 33, 4], &[66, -2, 0], 66),
        (&[6, 50, 5], &[50, 1, 0], 1),
        (&[130], &[-1], 130),
        (&[7, 45], &[45, -1], 44),
    ];
    for (shape, strides, offset) in cases {
        let span: usize =
            shape.iter().zip(strides).map(|(n, s)| n.saturating_sub(1) * s.unsigned_abs()).sum();
        let src: Vec<T> = (0..span + offset + 1).map(&make).collect();
        let n: usize = shape.iter().product();
        let mut dst_strides = vec![1isize; shape.len()];
        for i in (1..shape.len()).rev() {
            dst_strides[i - 1] = dst_strides[i] * shape[i] as isize;
        }
        let index = |mut i: usize| {
            let mut at = offset as isize;
            for (n, s) in shape.iter().zip(strides).rev() {
                at += (i % n) as isize * s;
                i /= n;
            }
            src[at as usize]
        };
        let want: Vec<T> = (0..n).map(index).collect();
        for (one, three) in levels() {
            for par in [&one as &dyn Par, &three] {
                let mut out = vec![make(0); n];
                // SAFETY: the strides stay within the vectors.
                unsafe {
                    copy_strided(
                        par,
                        shape,
                        src.as_ptr().add(offset),
                        strides,
                        out.as_mut_ptr(),
                        &dst_strides,
                    )
                    .unwrap();
                }
                assert_eq!(out, want, "{shape:?} {strides:?}");
            }
        }
    }
}

#[test]
fn strided_copies_move_every_element_size() {
    check_copies::<u8>(|i| i as u8);
    check_copies::<u16>(|i| i as u16);
    check_copies::<f32>(|i| i as f32);
    check_copies::<f64>(|i| i as f64);
    check_copies::<[f32; 2]>(|i| [i as f32, -(i as f32)]);
}

#[test]
fn extremes_of_long_rows_are_found_at_every_level() {
    let mut rng = Rng::new(21);
    for n in [1, 15, 16, 64, 100, 511, 4096, 5000] {
        for round in 0..4 {
            let mut x: Vec<f32> = (0..n).map(|_| (rng.float() * 50.0).round()).collect();
            match round {
                1 => x[n / 2] = f32::NAN,
                2 => x.fill(f32::NEG_INFINITY),
                3 => x[n - 1] = f32::INFINITY,
                _ => {}
            }
            for max in [true, false] {
                let better = |a: f32, b: f32| if max { a > b } else { a < b };
                let mut want = 0;
                for i in 1..n {
                    if !x[want].is_nan() && (x[i].is_nan() || better(x[i], x[want])) {
                        want = i;
                    }
                }
                let op = if max { Reduction::Max } else { Reduction::Min };
                for (one, _) in levels() {
                    let mut at = [u32::MAX];
                    along(&x, Axis::last(1, n), |x| arg_extreme(&one, max, x, &mut at)).unwrap();
                    assert_eq!(at[0] as usize, want, "{n} {round} {max} {:?}", one.1);
                    let mut value = [0.0];
                    along(&x, Axis::last(1, n), |x| reduce(&one, op, x, &mut value)).unwrap();
                    assert_eq!(value[0].is_nan(), x[want].is_nan());
                    assert!(value[0] == x[want] || value[0].is_nan());
                }
            }
        }
    }
    for (one, _) in levels() {
        let mut value = [1.0];
        along(&[0.0f32; 100], Axis::last(1, 100), |x| reduce(&one, Reduction::Min, x, &mut value)).unwrap();
        assert!(value[0] == 0.0 && value[0].is_sign_positive());
    }
}

#[test]
fn scans_continue_across_vectors_and_parts() {
    for n in [31, 32, 33, 47, 1000, 70_001] {
        let x: Vec<f32> = (0..n).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
        for (reverse, inclusive) in [(false, true), (true, true), (false, false), (true, false)] {
            let mut want = vec![0.0; n];
            let mut acc = 0.0;
            for i in 0..n {
                let at = if reverse { n - 1 - i } else { i };
                want[at] = if inclusive { acc + x[at] } else { acc };
                acc += x[at];
            }
            // Integers: every order of a sum gives the same result.
            for got in everywhere::<f32>(n, |p, o| {
                scan(p, Scan::Sum, &x, Axis::last(1, n), reverse, inclusive, o).unwrap();
            }) {
                assert_eq!(got, want, "{n} {reverse} {inclusive}");
            }
        }
    }
}

/// Strided axes over memory: lengths, strides, the first element, and the number of elements.
pub type Strided = (Vec<usize>, Vec<isize>, usize, usize);

/// A view with permuted, sliced, reversed and broadcast axes, and at most `most` elements.
fn view(rng: &mut Rng, most: usize) -> Strided {
    let rank = 1 + rng.below(4);
    let mut shape: Vec<usize> = (0..rank).map(|_| [1, 2, 3, 7, 20, 70][rng.below(6)]).collect();
    if rng.below(3) == 0 {
        let at = rng.below(rank);
        shape[at] = [130, 700, 5000, 20_000][rng.below(4)];
    }
    while shape.iter().product::<usize>() > most {
        let largest = (0..rank).max_by_key(|at| shape[*at]).unwrap();
        shape[largest] = (shape[largest] / 3).max(1);
    }
    let mut order: Vec<usize> = (0..rank).collect();
    (1..rank).for_each(|at| order.swap(at, rng.below(at + 1)));
    let (mut strides, mut step, mut offset) = (vec![0; rank], 1, 0);
    for at in order {
        match rng.below(8) {
            0 => continue,
            1 => step *= 2,
            2 => step += 3,
            _ => {}
        }
        let reversed = rng.below(4) == 0;
        strides[at] = if reversed { -(step as isize) } else { step as isize };
        offset += if reversed { (shape[at] - 1) * step } else { 0 };
        step *= shape[at];
    }
    (shape, strides, offset, step.max(offset + 1))
}

/// Calls `reduce` with a view and with its contiguous copy, each over the same axes in the same order.
fn with_copy<T: Plain, R>(
    x: &[T],
    view: &Strided,
    over: &[bool],
    mut reduce: impl FnMut(&ReduceInput<'_, T>) -> R,
) -> [R; 2] {
    let (shape, strides, offset, _) = view;
    let mut dense = vec![1isize; shape.len()];
    for at in (1..shape.len()).rev() {
        dense[at - 1] = dense[at] * shape[at] as isize;
    }
    let elements = (0..shape.iter().product()).map(|element: usize| {
        let at = |axis: usize| (element / dense[axis] as usize % shape[axis]) as isize * strides[axis];
        x[(*offset as isize + (0..shape.len()).map(at).sum::<isize>()) as usize]
    });
    let copy: Vec<T> = elements.collect();
    let last = (0..shape.len()).rev().find(|at| shape[*at] > 1);
    let order = if last.is_some_and(|at| !over[at]) { SumOrder::Columns } else { SumOrder::Rows };
    [(x, strides, *offset), (&copy, &dense, 0)].map(|(x, strides, offset)| {
        let dims = |reduced: bool| -> Vec<Dim> {
            let axes = (0..shape.len()).filter(|at| over[*at] == reduced);
            axes.map(|at| Dim { len: shape[at], stride: strides[at] }).collect()
        };
        reduce(&ReduceInput::new(x, offset, &dims(false), &dims(true), Some(order)).unwrap())
    })
}

/// Sums, products and extremes of a view, with one thread and with three.
pub fn check_view<T: Reduce<Acc: Default + PartialEq + std::fmt::Debug>>(
    x: &[T],
    view: &Strided,
    over: &[bool],
) {
    for (one, three) in levels() {
        for op in [Reduction::Sum, Reduction::Prod, Reduction::Max, Reduction::Min] {
            for par in [&one as &dyn Par, &three] {
                let [got, want] = with_copy(x, view, over, |x| {
                    let mut out = vec![T::Acc::default(); x.results()];
                    reduce(par, op, x, &mut out).unwrap();
                    out
                });
                assert!(got == want, "{op:?} of {view:?} over {over:?} at {:?}", one.1);
            }
        }
    }
}

pub fn check_moments<T: Sample>(x: &[T], view: &Strided, over: &[bool]) {
    for (one, three) in levels() {
        for par in [&one as &dyn Par, &three] {
            let [got, want] = with_copy(x, view, over, |x| {
                let mut out = vec![[0.0; 2]; x.results()];
                moments(par, x, &mut out).unwrap();
                out
            });
            assert!(got == want, "moments of {view:?} over {over:?} at {:?}", one.1);
        }
    }
}

#[test]
fn a_view_and_its_contiguous_copy_are_reduced_to_the_same_bits() {
    let mut rng = Rng::new(51);
    for round in 0..300 {
        let view = view(&mut rng, if round % 10 == 0 { 200_000 } else { 20_000 });
        let over: Vec<bool> = view.0.iter().map(|_| rng.below(2) == 0).collect();
        let x: Vec<f32> = (0..view.3).map(|_| rng.float() * 1.5).collect();
        match round % 4 {
            0 => check_view(&x, &view, &over),
            1 => check_view(&x.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), &view, &over),
            2 => check_view(&x.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>(), &view, &over),
            _ => check_view(&x.iter().map(|v| [*v, v * 3.0 % 1.0]).collect::<Vec<_>>(), &view, &over),
        }
        match round % 3 {
            0 => check_moments(&x, &view, &over),
            1 => check_moments(&x.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>(), &view, &over),
            _ => check_view(&x.iter().map(|v| (v * 100.0) as i16).collect::<Vec<_>>(), &view, &over),
        }
    }
}

#[test]
fn transposed_matrices_are_reduced_to_the_bits_of_their_copies() {
    let mut rng = Rng::new(52);
    // Around runs of 32, vectors of runs, ranges of 512 and blocks of 4096 elements.
    for rows in [4, 31, 32, 33, 64, 100, 255, 511, 512, 513, 544, 700, 1055, 4200] {
        for columns in [1, 5, 40] {
            let x: Vec<f32> = (0..rows * columns).map(|_| rng.float() * 1.5).collect();
            let half: Vec<bf16> = x.iter().map(|v| bf16::from_f32(*v)).collect();
            for over in [[true, false], [false, true]] {
                let shape = if over[0] { vec![rows, columns] } else { vec![columns, rows] };
                let view = (shape.clone(), vec![1, shape[0] as isize], 0, x.len());
                check_view(&x, &view, &over);
                check_view(&half, &view, &over);
                check_moments(&x, &view, &over);
            }
        }
    }
}

#[test]
fn extremes_choose_zeros_by_sign_at_any_position() {
    for n in [2, 7, 40, 700, 9000] {
        for at in [0, n / 2, n - 1] {
            for (op, zero, among) in [(Reduction::Max, 0.0, -0.0), (Reduction::Min, -0.0f32, 0.0)] {
                let mut x = vec![among; n];
                x[at] = zero;
                let wide: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
                for axis in [Axis::last(1, n), Axis { outer: 1, len: n, inner: 2 }] {
                    let x: Vec<f32> = x.iter().flat_map(|v| vec![*v; axis.inner]).collect();
                    for got in everywhere::<f32>(axis.inner, |p, out| {
                        along(&x, axis, |x| reduce(p, op, x, out).unwrap())
                    }) {
                        assert!(got.iter().all(|v| v.to_bits() == zero.to_bits()), "{op:?} of {n}, {at}");
                    }
                }
                let mut out = [1.0];
                along(&wide, Axis::last(1, n), |x| reduce(&Serial, op, x, &mut out).unwrap());
                assert_eq!(out[0].to_bits(), f64::from(zero).to_bits(), "{op:?} of {n}, {at}");
            }
        }
    }
}
