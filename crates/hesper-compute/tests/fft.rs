//! Fourier transforms on every SIMD level against a plain one in double precision.

use crate::common::{Rng, levels};
use hesper_compute::{Axis, Fft, FftKind, Par};

type Complex = (f64, f64);

/// Recursive radix 2, in double precision.
fn reference(x: &[Complex], inverse: bool) -> Vec<Complex> {
    let n = x.len();
    if n == 1 {
        return x.to_vec();
    }
    let part = |from: usize| {
        let half: Vec<Complex> = x.iter().skip(from).step_by(2).copied().collect();
        reference(&half, inverse)
    };
    let (even, odd) = (part(0), part(1));
    let sign = if inverse { 1.0 } else { -1.0 };
    (0..n)
        .map(|k| {
            let (e, o) = (even[k % (n / 2)], odd[k % (n / 2)]);
            let (sin, cos) = (sign * std::f64::consts::TAU * k as f64 / n as f64).sin_cos();
            (e.0 + o.0 * cos - o.1 * sin, e.1 + o.0 * sin + o.1 * cos)
        })
        .collect()
}

/// Floats of an input row and of an output row.
fn floats(kind: FftKind, n: usize) -> (usize, usize) {
    match kind {
        FftKind::Complex => (2 * n, 2 * n),
        FftKind::RealToHalf => (n, n + 2),
        FftKind::RealToFull => (n, 2 * n),
        FftKind::HalfToReal => (n + 2, n),
    }
}

/// The expected transform of a padded row.
fn expected(kind: FftKind, n: usize, inverse: bool, row: &[f32]) -> Vec<f64> {
    let number = |k: usize| (f64::from(row[2 * k]), f64::from(row[2 * k + 1]));
    let x: Vec<Complex> = match kind {
        FftKind::Complex => (0..n).map(number).collect(),
        FftKind::RealToHalf | FftKind::RealToFull => row[..n].iter().map(|x| (f64::from(*x), 0.0)).collect(),
        FftKind::HalfToReal => (0..n)
            .map(|k| {
                let (re, im) = number(k.min(n - k));
                let sign = if k == 0 || 2 * k == n { 0.0 } else { 1.0 };
                (re, if 2 * k > n { -im } else { sign * im })
            })
            .collect(),
    };
    let y = reference(&x, inverse);
    match kind {
        FftKind::HalfToReal => y.iter().map(|x| x.0).collect(),
        _ => y.iter().take(floats(kind, n).1 / 2).flat_map(|x| [x.0, x.1]).collect(),
    }
}

/// Fails if the error of rows, relative to their norm, is too large.
#[track_caller]
fn near(got: &[f32], want: &[f64], what: impl std::fmt::Debug) {
    let sum = |f: &dyn Fn(usize) -> f64| (0..want.len()).map(f).sum::<f64>();
    let error = sum(&|i| (f64::from(got[i]) - want[i]).powi(2));
    let size = sum(&|i| want[i].powi(2));
    assert!((error / size).sqrt() < 2e-7, "{what:?}: an error of {:e}", (error / size).sqrt());
}

#[test]
fn transforms_of_every_kind_match_the_definition() {
    let mut rng = Rng::new(11);
    let kinds = [
        (FftKind::Complex, false),
        (FftKind::Complex, true),
        (FftKind::RealToHalf, false),
        (FftKind::RealToFull, false),
        (FftKind::RealToFull, true),
        (FftKind::HalfToReal, true),
    ];
    for (n, rows) in
        [(32, 7), (64, 16), (128, 35), (512, 9), (2048, 6), (8192, 1), (1 << 14, 3), (1 << 15, 1)]
    {
        for (kind, inverse) in kinds {
            let Some(fft) = Fft::new(n, rows, kind, inverse) else {
                assert!(rows == 1 && kind != FftKind::Complex, "no plan for {rows} x {n}, {kind:?}");
                continue;
            };
            let (from, to) = floats(kind, n);
            let numbers =
                if matches!(kind, FftKind::Complex | FftKind::HalfToReal) { from / 2 } else { from };
            let x: Vec<f32> = (0..rows * from).map(|_| rng.float()).collect();
            for (one, three) in levels() {
                let (mut a, mut b) = (vec![f32::NAN; rows * to], vec![f32::NAN; rows * to]);
                fft.run(&one, &x, numbers, &mut a, 0.5).unwrap();
                fft.run(&three, &x, numbers, &mut b, 0.5).unwrap();
                assert_eq!(a, b, "threads differ at {:?}", one.1);
                for r in (0..rows).step_by(5) {
                    let want = expected(kind, n, inverse, &x[r * from..][..from]);
                    let want: Vec<f64> = want.iter().map(|x| 0.5 * x).collect();
                    near(&a[r * to..][..to], &want, (n, rows, kind, inverse, one.1));
                }
            }
        }
    }
}

#[test]
fn rows_are_truncated_or_zero_padded() {
    let mut rng = Rng::new(12);
    for (n, rows) in [(64, 17), (8192, 2)] {
        for kind in [FftKind::Complex, FftKind::RealToHalf, FftKind::HalfToReal] {
            let inverse = kind == FftKind::HalfToReal;
            let fft = Fft::new(n, rows, kind, inverse);
            let Some(fft) = fft else { continue };
            let (from, to) = floats(kind, n);
            let width = if kind == FftKind::RealToHalf { 1 } else { 2 };
            for given in [1, n / 2 - 3, n + 5] {
                let x: Vec<f32> = (0..rows * given * width).map(|_| rng.float()).collect();
                let mut out = vec![f32::NAN; rows * to];
                fft.run(&levels()[0].0, &x, given, &mut out, 1.0).unwrap();
                for r in 0..rows {
                    let mut row = x[r * given * width..][..given * width].to_vec();
                    row.resize(from.max(row.len()), 0.0);
                    near(&out[r * to..][..to], &expected(kind, n, inverse, &row), (n, kind, given, r));
                }
            }
        }
    }
}

#[test]
fn columns_match_the_definition() {
    let mut rng = Rng::new(13);
    for (outer, len, inner) in [(1, 16, 6), (2, 64, 16), (3, 128, 21), (1, 1024, 40)] {
        for inverse in [false, true] {
            let fft = Fft::new(len, outer * inner, FftKind::Complex, inverse).unwrap();
            let axis = Axis { outer, len, inner };
            let x: Vec<f32> = (0..2 * outer * len * inner).map(|_| rng.float()).collect();
            for par in levels().iter().flat_map(|(one, three)| [one as &dyn Par, three]) {
                let mut out = vec![f32::NAN; x.len()];
                fft.run_columns(par, &x, axis, &mut out, 1.0).unwrap();
                for (o, c) in [(0, 0), (outer - 1, inner - 1), (outer / 2, inner / 2)] {
                    let column = |x: &[f32]| -> Vec<f32> {
                        (0..len)
                            .flat_map(|j| [0, 1].map(|part| x[2 * ((o * len + j) * inner + c) + part]))
                            .collect()
                    };
                    let want = expected(FftKind::Complex, len, inverse, &column(&x));
                    near(&column(&out), &want, (outer, len, inner, inverse, par.simd()));
                }
            }
        }
    }
}

#[test]
fn a_nan_row_does_not_affect_others() {
    let (n, rows) = (64, 20);
    for kind in [FftKind::Complex, FftKind::RealToHalf] {
        let fft = Fft::new(n, rows, kind, false).unwrap();
        let (from, to) = floats(kind, n);
        let mut x = vec![1.0f32; rows * from];
        x[3 * from + 5] = f32::NAN;
        let given = if kind == FftKind::Complex { n } else { from };
        for (one, _) in levels() {
            let mut out = vec![0.0; rows * to];
            fft.run(&one, &x, given, &mut out, 1.0).unwrap();
            let has_nan = |r: usize| out[r * to..][..to].iter().any(|x| x.is_nan());
            assert!((0..rows).all(|r| has_nan(r) == (r == 3)));
        }
    }
}

#[test]
fn only_powers_of_two_have_plans_and_sizes_are_checked() {
    assert!(Fft::new(96, 100, FftKind::Complex, false).is_none());
    assert!(Fft::new(0, 100, FftKind::Complex, false).is_none());
    assert!(Fft::new(8, 100, FftKind::Complex, false).is_none());
    let fft = Fft::new(64, 10, FftKind::Complex, false).unwrap();
    let mut out = vec![0.0; 128];
    assert!(fft.run(&hesper_compute::Serial, &[0.0; 100], 64, &mut out, 1.0).is_err());
    assert!(fft.run(&hesper_compute::Serial, &[0.0; 128], 64, &mut out[..100], 1.0).is_err());
    let wrong = Axis { outer: 1, len: 32, inner: 2 };
    assert!(fft.run_columns(&hesper_compute::Serial, &[0.0; 128], wrong, &mut out, 1.0).is_err());
}
