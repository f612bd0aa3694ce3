//! Operations along an axis, and copies, against plain loops.

#![allow(clippy::unwrap_used, reason = "a failure here should stop the run")]

mod common;

use common::{Rng, close, levels};
use half::{bf16, f16};
use hesper_compute::{
    Axis, Float, Par, Reduction, Scan, Scannable, Serial, Small, Threads, Word, arg_extreme, cast, copy_rows,
    copy_strided, count_set, extreme_integers, gather_rows, layer_norm, logsumexp, logsumexp_along, reduce,
    rms_norm, scan, softmax, softmax_along, truths,
};

fn bits<T: Float>(v: &[T]) -> Vec<u32> {
    v.iter().map(|x| x.to_f32().to_bits()).collect()
}

/// Runs on every level with one and three threads, which must agree to the bit.
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
        // The same by rows, of columns that were copied to them.
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
fn softmax_along_other_axes_is_that_of_rows() {
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
        let half: Vec<f16> = x.iter().map(|v| f16::from_f32(*v)).collect();
        let ints: Vec<i16> = x.iter().map(|v| (v * 30000.0) as i16).collect();
        let column = |o: usize, j: usize| (0..len).map(move |k| (o * len + k) * inner + j);
        for got in
            everywhere::<f32>(outer * inner, |p, out| reduce(p, Reduction::Sum, &x, axis, out).unwrap())
        {
            for (i, g) in got.iter().enumerate() {
                let want: f64 = column(i / inner, i % inner).map(|k| f64::from(x[k])).sum();
                close(*g, want as f32, 1e-6 * (len as f32).sqrt().max(1.0), ("sum", axis));
            }
        }
        for got in
            everywhere::<f32>(outer * inner, |p, out| reduce(p, Reduction::Mean, &half, axis, out).unwrap())
        {
            for (i, g) in got.iter().enumerate().filter(|_| len > 0) {
                let sum: f64 = column(i / inner, i % inner).map(|k| f64::from(half[k].to_f32())).sum();
                close(*g, (sum / len as f64) as f32, 1e-5, ("mean", axis));
            }
        }
        for (op, max) in [(Reduction::Min, false), (Reduction::Max, true)] {
            for (one, three) in levels() {
                for par in [&one as &dyn Par, &three] {
                    let mut out = vec![0i32; outer * inner];
                    reduce(par, op, &ints, axis, &mut out).unwrap();
                    let mut at = vec![0u32; outer * inner];
                    let args = arg_extreme(par, max, &ints, axis, &mut at);
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
        reduce(&Serial, Reduction::Prod, &small, axis, &mut out).unwrap();
        for (i, g) in out.iter().enumerate() {
            let want = column(i / inner, i % inner).fold(1u32, |a, k| a.wrapping_mul(u32::from(small[k])));
            assert_eq!(*g, want, "prod {axis:?}");
        }
    }
}

#[test]
fn nan_wins_minima_and_maxima_and_is_their_place() {
    let mut x = vec![1.0f32; 5000];
    x[17] = f32::NAN;
    x[18] = 3.0;
    for op in [Reduction::Min, Reduction::Max] {
        for got in everywhere::<f32>(1, |p, out| reduce(p, op, &x, Axis::last(1, 5000), out).unwrap()) {
            assert!(got[0].is_nan());
        }
    }
    let mut at = [0];
    for max in [true, false] {
        arg_extreme(&Serial, max, &x, Axis::last(1, 5000), &mut at).unwrap();
        assert_eq!(at, [17]);
    }
    // In a row that is searched in parts, and down columns.
    let mut long = vec![2.0f32; 200_000];
    (long[150_000], long[70_000]) = (5.0, 5.0);
    arg_extreme(&Threads(2), true, &long, Axis::last(1, 200_000), &mut at).unwrap();
    assert_eq!(at, [70_000]);
    (long[199_999], long[190_000]) = (f32::NAN, f32::NAN);
    arg_extreme(&Threads(2), true, &long, Axis::last(1, 200_000), &mut at).unwrap();
    assert_eq!(at, [190_000]);
    let mut columns = vec![0; 1000];
    arg_extreme(&Threads(2), true, &long, Axis { outer: 1, len: 200, inner: 1000 }, &mut columns).unwrap();
    assert!(columns[0] == 190 && columns[999] == 199 && columns[1] == 0);
}

/// The elements of result `i` of an axis.
fn column(axis: Axis, i: usize) -> impl Iterator<Item = usize> + Clone {
    let Axis { len, inner, .. } = axis;
    (0..len).map(move |k| (i / inner * len + k) * inner + i % inner)
}

/// Runs on every level with one and three threads and compares with what is wanted of each result.
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

fn check_integers<T: Small + std::fmt::Debug>(axis: Axis, x: &[T], lowest: T, highest: T) {
    let of = |max: bool, i: usize| {
        let all = column(axis, i).map(|k| x[k]);
        if max { all.max().unwrap_or(lowest) } else { all.min().unwrap_or(highest) }
    };
    for max in [true, false] {
        let run = |p: &dyn Par, out: &mut [T]| extreme_integers(p, max, x, axis, out).unwrap();
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
        let run = |p: &dyn Par, out: &mut [u8]| truths(p, all, mask, x, axis, out).unwrap();
        let want = |i: usize| {
            let mut flags = column(axis, i).map(|k| set(x[k]));
            u8::from(if all { flags.all(|f| f) } else { flags.any(|f| f) })
        };
        all_equal(axis, 7, run, want);
    }
    let run = |p: &dyn Par, out: &mut [i32]| count_set(p, mask, x, axis, out).unwrap();
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
        // Seldom zero, mostly zero, and always set but for bits outside of the mask.
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
        all_equal(axis, 1, |p, out| reduce(p, Reduction::Sum, &bytes, axis, out).unwrap(), sum);
        let longs: Vec<i64> = words.iter().map(|w| *w as i64).collect();
        let sum = |i: usize| column(axis, i).map(|k| longs[k]).fold(0, i64::wrapping_add);
        all_equal(axis, 1, |p, out| reduce(p, Reduction::Sum, &longs, axis, out).unwrap(), sum);
        let pairs: Vec<[f32; 2]> =
            words.iter().map(|w| [(w % 8) as f32 - 4.0, (w >> 8 & 7) as f32]).collect();
        let sum = |i: usize| {
            column(axis, i).map(|k| pairs[k]).fold([0.0; 2], |a: [f32; 2], b| [a[0] + b[0], a[1] + b[1]])
        };
        all_equal(axis, [1.0; 2], |p, out| reduce(p, Reduction::Sum, &pairs, axis, out).unwrap(), sum);
        let doubles: Vec<f64> = words.iter().map(|w| (w % 1024) as f64 - 500.0).collect();
        let sum = |i: usize| column(axis, i).map(|k| doubles[k]).sum::<f64>() + 0.0;
        all_equal(axis, 1.0, |p, out| reduce(p, Reduction::Sum, &doubles, axis, out).unwrap(), sum);
    }
}

#[test]
fn a_half_is_reduced_as_the_single_that_it_is() {
    let mut rng = Rng::new(32);
    for (outer, len, inner) in AXES.into_iter().filter(|axis| *axis != (3, 66_000, 1)) {
        let axis = Axis { outer, len, inner };
        let half: Vec<f16> = rng.floats(outer * len * inner);
        let brief: Vec<bf16> = half.iter().map(|v| bf16::from_f32(v.to_f32())).collect();
        let ops = [Reduction::Sum, Reduction::Prod, Reduction::Min, Reduction::Max, Reduction::Mean];
        for op in ops {
            let wide: Vec<f32> = half.iter().map(|v| v.to_f32()).collect();
            let want = everywhere::<f32>(outer * inner, |p, out| reduce(p, op, &wide, axis, out).unwrap());
            let got = everywhere::<f32>(outer * inner, |p, out| reduce(p, op, &half, axis, out).unwrap());
            assert!(got.iter().zip(&want).all(|(a, b)| bits(a) == bits(b)), "{op:?} {axis:?}");
            assert!(want.iter().all(|w| bits(w) == bits(&want[0])), "levels differ: {op:?} {axis:?}");
            let wide: Vec<f32> = brief.iter().map(|v| v.to_f32()).collect();
            let want = everywhere::<f32>(outer * inner, |p, out| reduce(p, op, &wide, axis, out).unwrap());
            let got = everywhere::<f32>(outer * inner, |p, out| reduce(p, op, &brief, axis, out).unwrap());
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
fn running_halves_are_accumulated_in_single_precision_and_rounded_once() {
    check_half_scans::<f16>();
    check_half_scans::<bf16>();
}

#[test]
fn a_running_extreme_stays_nan_once_it_was() {
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
fn a_long_sum_loses_no_more_than_its_tree_allows() {
    let x = vec![0.1f32; 10_000_000];
    let mut out = [0.0];
    reduce(&Threads(2), Reduction::Sum, &x, Axis::last(1, x.len()), &mut out).unwrap();
    assert!((out[0] - 1_000_000.0).abs() < 1.0, "{}", out[0]);
}

#[test]
fn scans_match_plain_loops_in_both_directions() {
    let mut rng = Rng::new(3);
    for (outer, len, inner) in [(1, 1, 1), (3, 7, 1), (19, 40, 1), (1, 70_000, 1), (2, 9, 5), (1, 20, 600)] {
        let axis = Axis { outer, len, inner };
        let x: Vec<f32> = rng.floats(outer * len * inner);
        for op in [Scan::Sum, Scan::Prod, Scan::Min, Scan::Max, Scan::LogSumExp] {
            for (reverse, inclusive) in [(false, true), (true, true), (false, false), (true, false)] {
                let runs = everywhere::<f32>(x.len(), |p, out| {
                    scan(p, op, &x, axis, reverse, inclusive, out).unwrap();
                });
                for o in 0..outer {
                    for j in 0..inner {
                        let mut acc = match op {
                            Scan::Sum => 0.0,
                            Scan::Prod => 1.0,
                            Scan::Min => f64::INFINITY,
                            Scan::Max | Scan::LogSumExp => f64::NEG_INFINITY,
                        };
                        for k in 0..len {
                            let k = if reverse { len - 1 - k } else { k };
                            let at = (o * len + k) * inner + j;
                            let v = f64::from(x[at]);
                            let next = match op {
                                Scan::Sum => acc + v,
                                Scan::Prod => acc * v,
                                Scan::Min => acc.min(v),
                                Scan::Max => acc.max(v),
                                Scan::LogSumExp => (acc.exp() + v.exp()).ln(),
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

#[test]
fn casts_round_to_nearest_on_every_level() {
    let mut x: Vec<f32> = (0..70_003u32).map(|i| f32::from_bits(i.wrapping_mul(61_417))).collect();
    x.extend([f32::NAN, f32::INFINITY, -0.0, 1e-40, 65_520.0, 3.39e38]);
    for got in everywhere::<bf16>(x.len(), |p, o| cast(p, &x, o).unwrap()) {
        assert!(got.iter().zip(&x).all(|(g, x)| g.to_bits() == bf16::from_f32(*x).to_bits()));
        for back in everywhere::<f32>(x.len(), |p, o| cast(p, &got, o).unwrap()) {
            assert_eq!(bits(&back), bits(&got));
        }
    }
    for got in everywhere::<f16>(x.len(), |p, o| cast(p, &x, o).unwrap()) {
        for (g, x) in got.iter().zip(&x) {
            let want = f16::from_f32(*x);
            assert!(g.to_bits() == want.to_bits() || (g.is_nan() && want.is_nan()), "{x}: {g} {want}");
        }
    }
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
fn rows_are_picked_by_index_and_bad_indices_named() {
    let src: Vec<u8> = (0..60).collect();
    let mut out = [0; 15];
    gather_rows(&Threads(2), &src, 5, &[11, 0, 3], &mut out).unwrap();
    assert_eq!(out, [55, 56, 57, 58, 59, 0, 1, 2, 3, 4, 15, 16, 17, 18, 19]);
    let e = gather_rows(&Serial, &src, 5, &[12, 0, 3], &mut out).unwrap_err();
    assert_eq!(e.to_string(), "rows to pick from: expected 13, given 12");
}

#[test]
fn rows_are_joined_side_by_side() {
    let (a, b) = ([1u8, 2, 3, 4], [5u8, 6]);
    let mut out = [0u8; 6];
    // SAFETY: two rows of two and of one byte, into rows of three.
    unsafe {
        copy_rows(&Serial, a.as_ptr(), 2, out.as_mut_ptr(), 3, 2, 2);
        copy_rows(&Threads(2), b.as_ptr(), 1, out.as_mut_ptr().add(2), 3, 1, 2);
    }
    assert_eq!(out, [1, 2, 5, 3, 4, 6]);
}

#[test]
fn long_rows_have_their_extremes_found_on_every_level() {
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
                    arg_extreme(&one, max, &x, Axis::last(1, n), &mut at).unwrap();
                    assert_eq!(at[0] as usize, want, "{n} {round} {max} {:?}", one.1);
                    let mut value = [0.0];
                    reduce(&one, op, &x, Axis::last(1, n), &mut value).unwrap();
                    assert_eq!(value[0].is_nan(), x[want].is_nan());
                    assert!(value[0] == x[want] || value[0].is_nan());
                }
            }
        }
    }
    for (one, _) in levels() {
        let mut value = [1.0];
        reduce(&one, Reduction::Min, &[0.0f32; 100], Axis::last(1, 100), &mut value).unwrap();
        assert!(value[0] == 0.0 && value[0].is_sign_positive());
    }
}

#[test]
fn sums_of_a_row_go_on_where_vectors_end() {
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
            // Whole numbers: every order of adding gives the same.
            for got in everywhere::<f32>(n, |p, o| {
                scan(p, Scan::Sum, &x, Axis::last(1, n), reverse, inclusive, o).unwrap();
            }) {
                assert_eq!(got, want, "{n} {reverse} {inclusive}");
            }
        }
    }
}
