//! Eigenvalues, singular values and their vectors are accurate to the last bits, also for equal, zero or
//! widely spaced values.

use crate::common::numbers;
use hesper_compute::Serial;
use hesper_linalg::{Failure, eigh, singular_values, svd};

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The distance of rows from orthonormality.
fn skew(n: usize, rows: &[f64]) -> f64 {
    let row = |at: usize| &rows[at * n..][..n];
    let wrong = |at: usize, other: usize| dot(row(at), row(other)) - f64::from(u8::from(at == other));
    (0..n)
        .flat_map(|at| (0..=at).map(move |other| (at, other)))
        .fold(0.0, |most: f64, (at, other)| most.max(wrong(at, other).abs()))
}

fn turned(m: usize, n: usize, a: &[f64]) -> Vec<f64> {
    (0..m * n).map(|at| a[at % m * n + at / m]).collect()
}

/// Symmetric matrices of special structure.
fn peculiar(n: usize) -> Vec<(&'static str, Vec<f64>)> {
    let by = |f: &dyn Fn(usize, usize) -> f64| (0..n * n).map(|at| f(at / n, at % n)).collect::<Vec<_>>();
    let (x, y) = (numbers(n, 8), numbers(2 * n, 5));
    let length = dot(&x, &x);
    let unit = |i: usize, j: usize| f64::from(u8::from(i == j));
    let beside = |i: usize, j: usize, d: f64, e: f64| match i.abs_diff(j) {
        0 => d,
        1 => e,
        _ => 0.0,
    };
    vec![
        ("zeros", vec![0.0; n * n]),
        ("ones", vec![1.0; n * n]),
        ("a unit matrix", by(&unit)),
        ("a reflection: -1 once, 1 else", by(&|i, j| unit(i, j) - 2.0 * x[i] * x[j] / length)),
        ("rank two", by(&|i, j| y[i] * y[j] - y[n + i] * y[n + j])),
        ("graded", by(&|i, j| (1.0 + x[i] * x[j]) * 10f64.powf(-((i + j) as f64) / 4.0))),
        ("clusters", by(&|i, j| unit(i, j) * (1 + i / 20) as f64 + 1e-9 * ((i * j) % 13) as f64)),
        ("pairs", by(&|i, j| beside(i, j, i.abs_diff(n / 2) as f64, 1.0))),
        (
            "blocks barely coupled",
            by(&|i, j| beside(i, j, (i % 11) as f64, if i.max(j).is_multiple_of(11) { 1e-9 } else { 1.0 })),
        ),
        ("differences", by(&|i, j| beside(i, j, 2.0, -1.0))),
        (
            "tiny and zero elements",
            by(&|i, j| match (i + j) % 7 {
                0 => 1e-40,
                1 => 0.0,
                _ => x[i] + x[j],
            }),
        ),
    ]
}

macro_rules! precise {
    ($name:ident, $t:ident) => {
        #[test]
        fn $name() {
            let eps = f64::from($t::EPSILON);
            let wide = |x: &[$t]| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let mut cases = peculiar(75);
            cases.extend([1, 2, 3, 33].map(|n| {
                let a = numbers(n * n, 3);
                ("numbers", (0..n * n).map(|at| a[at] + a[at % n * n + at / n]).collect())
            }));
            for (what, a) in cases {
                let n = a.len().isqrt();
                let a: Vec<$t> = a.into_iter().map(|x| x as $t).collect();
                let (mut values, mut alone) = (vec![0.0; n], vec![0.0; n]);
                let mut vectors = vec![0.0; n * n];
                eigh(&Serial, n, &a, false, &mut values, Some(&mut vectors)).unwrap();
                eigh(&Serial, n, &a, true, &mut alone, None).unwrap();
                assert!(values.is_sorted() && alone.is_sorted(), "{what}");
                let (exact, values, alone) = (wide(&a), wide(&values), wide(&alone));
                let vectors = turned(n, n, &wide(&vectors));
                let norm = exact.chunks(n).map(|row| row.iter().map(|x| x.abs()).sum()).fold(0.0, f64::max);
                let bound = 200.0 * eps * norm;
                assert!(skew(n, &vectors) < 100.0 * eps, "{what}: {}", skew(n, &vectors) / eps);
                for (vector, value) in vectors.chunks(n).zip(&values) {
                    let wrong = |row: &[f64], x: f64| (dot(row, vector) - x * value).abs();
                    assert!(exact.chunks(n).zip(vector).all(|(row, x)| wrong(row, *x) <= bound), "{what}");
                }
                assert!(values.iter().zip(&alone).all(|(a, b)| (a - b).abs() <= bound), "{what}");
                // Singular values of a symmetric matrix are absolute eigenvalues.
                let (mut u, mut s, mut vt) = (vec![0.0; n * n], vec![0.0; n], vec![0.0; n * n]);
                svd(&Serial, n, n, &a, &mut u, &mut s, &mut vt).unwrap();
                let mut only = vec![0.0; n];
                singular_values(&Serial, n, n, &a, &mut only).unwrap();
                assert!(s.is_sorted_by(|a, b| a >= b) && only.is_sorted_by(|a, b| a >= b), "{what}");
                let mut sizes: Vec<f64> = values.iter().map(|x| x.abs()).collect();
                sizes.sort_by(|a, b| b.total_cmp(a));
                let (s, only, u, vt) = (wide(&s), wide(&only), turned(n, n, &wide(&u)), wide(&vt));
                assert!(skew(n, &u) < 200.0 * eps && skew(n, &vt) < 200.0 * eps, "{what}");
                for list in [&s, &only] {
                    assert!(list.iter().zip(&sizes).all(|(a, b)| (a - b).abs() <= bound), "{what}");
                }
                for ((left, right), value) in u.chunks(n).zip(vt.chunks(n)).zip(&s) {
                    let wrong = |row: &[f64], x: f64| (dot(row, right) - x * value).abs();
                    assert!(exact.chunks(n).zip(left).all(|(row, x)| wrong(row, *x) <= bound), "{what}");
                }
            }
        }
    };
}

precise!(single_precision_loses_no_more_than_it_must, f32);
precise!(double_precision_loses_no_more_than_it_must, f64);

#[test]
fn vectors_of_tall_and_wide_matrices_are_whole_bases() {
    for (m, n) in [(5, 1), (1, 5), (90, 40), (40, 90), (50, 45), (45, 50), (200, 170)] {
        let (a, k) = (numbers(m * n, 4), m.min(n));
        let (mut u, mut s, mut vt) = (vec![0.0; m * m], vec![0.0; k], vec![0.0; n * n]);
        svd(&Serial, m, n, &a, &mut u, &mut s, &mut vt).unwrap();
        assert!(skew(m, &u) < 1e-13 && skew(n, &vt) < 1e-13, "{m} x {n}");
        for (row, left) in a.chunks(n).zip(u.chunks(m)) {
            let stretched: Vec<f64> = (0..k).map(|at| left[at] * s[at]).collect();
            for (column, x) in row.iter().enumerate() {
                let again: f64 = (0..k).map(|at| stretched[at] * vt[at * n + column]).sum();
                assert!((again - x).abs() < 1e-12, "{m} x {n}");
            }
        }
        let mut only = vec![0.0; k];
        singular_values(&Serial, m, n, &a, &mut only).unwrap();
        assert!(s.iter().zip(&only).all(|(a, b)| (a - b).abs() < 1e-12), "{m} x {n}");
    }
}

#[test]
fn any_scale_will_do() {
    let (n, a) = (40, numbers(1600, 9));
    let values = |scale: f64| {
        let a: Vec<f32> = a.iter().map(|x| (x * scale) as f32).collect();
        let (mut s, mut values) = (vec![0.0; n], vec![0.0; n]);
        singular_values(&Serial, n, n, &a, &mut s).unwrap();
        eigh(&Serial, n, &a, false, &mut values, None).unwrap();
        s.into_iter().chain(values).map(|x| f64::from(x) / scale).collect::<Vec<_>>()
    };
    let (large, one, small) = (values(1e30), values(1.0), values(1e-30));
    for ((large, one), small) in large.iter().zip(&one).zip(&small) {
        assert!((large - one).abs() < 1e-4 && (small - one).abs() < 1e-4, "{large} {one} {small}");
    }
}

#[test]
fn numbers_that_are_none_are_refused_wherever_they_are() {
    let n = 40;
    for (at, x) in [(0, f64::NAN), (n * n - 1, f64::INFINITY), (n * 7 + 3, f64::NEG_INFINITY)] {
        let mut a = numbers(n * n, 2);
        a[at] = x;
        let (mut u, mut s, mut vt) = (vec![0.0; n * n], vec![0.0; n], vec![0.0; n * n]);
        assert_eq!(svd(&Serial, n, n, &a, &mut u, &mut s, &mut vt), Err(Failure::NotFinite));
        assert_eq!(singular_values(&Serial, n, n, &a, &mut s), Err(Failure::NotFinite));
        assert_eq!(eigh(&Serial, n, &a, false, &mut s, Some(&mut u)), Err(Failure::NotFinite));
    }
}
