//! Factors multiply to their matrices, whatever the shape; what has no answer says so.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use hesper_linalg::{
    Failure, cholesky, eig, eigh, inv, lu, qr, singular_values, solve, solve_triangular, svd, tri_inv,
};

fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

/// The product of an `m x k` and a `k x n` matrix.
fn product(m: usize, k: usize, n: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    let element = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    (0..m * n).map(element).collect()
}

fn turned(m: usize, n: usize, a: &[f64]) -> Vec<f64> {
    (0..m * n).map(|at| a[at % m * n + at / m]).collect()
}

fn eye(n: usize) -> Vec<f64> {
    (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
}

const SHAPES: [(usize, usize); 7] = [(1, 1), (2, 2), (5, 3), (3, 5), (20, 20), (40, 7), (17, 33)];

#[test]
fn triangular_factors_give_the_exchanged_rows() {
    // Matrices of full rank, and with columns that have no pivot.
    for ((m, n), rank) in SHAPES.into_iter().flat_map(|shape| [(shape, 99), (shape, 1), (shape, 0)]) {
        let mut a = numbers(m * n, 1);
        a.iter_mut().enumerate().filter(|(at, _)| at % n >= rank).for_each(|(_, x)| *x = 0.0);
        let k = m.min(n);
        let (mut factors, mut swaps, mut places) = (vec![0.0; m * n], vec![0; k], vec![0; m]);
        lu(m, n, &a, &mut factors, &mut swaps, &mut places).unwrap();
        let part = |row: usize, column: usize, lower: bool| match (lower, row.cmp(&column)) {
            (true, std::cmp::Ordering::Greater) => factors[row * n + column],
            (true, std::cmp::Ordering::Equal) => 1.0,
            (false, std::cmp::Ordering::Less | std::cmp::Ordering::Equal) => factors[row * n + column],
            _ => 0.0,
        };
        let lower: Vec<f64> = (0..m * k).map(|at| part(at / k, at % k, true)).collect();
        let upper: Vec<f64> = (0..k * n).map(|at| part(at / n, at % n, false)).collect();
        let both = product(m, k, n, &lower, &upper);
        let back: Vec<f64> =
            places.iter().flat_map(|place| both[*place as usize * n..][..n].to_vec()).collect();
        assert!(near(&back, &a), "{m} x {n}");
        // The exchanges, one after the other, do the same.
        let mut rows: Vec<usize> = (0..m).collect();
        swaps.iter().enumerate().for_each(|(at, other)| rows.swap(at, *other as usize));
        let exchanged: Vec<f64> = rows.iter().flat_map(|row| a[row * n..][..n].to_vec()).collect();
        assert!(near(&exchanged, &both));
    }
}

#[test]
fn orthonormal_factors_give_the_matrix() {
    for (m, n) in SHAPES {
        let a = numbers(m * n, 2);
        let k = m.min(n);
        let (mut q, mut r) = (vec![0.0; m * k], vec![0.0; k * n]);
        qr(m, n, &a, &mut q, &mut r).unwrap();
        assert!(near(&product(m, k, n, &q, &r), &a));
        assert!(near(&product(k, m, k, &turned(m, k, &q), &q), &eye(k)));
        assert!((0..k * n).all(|at| at / n <= at % n || r[at] == 0.0));
        let (mut u, mut s, mut vt) = (vec![0.0; m * m], vec![0.0; k], vec![0.0; n * n]);
        svd(m, n, &a, &mut u, &mut s, &mut vt).unwrap();
        assert!(near(&product(m, m, m, &turned(m, m, &u), &u), &eye(m)));
        assert!(near(&product(n, n, n, &turned(n, n, &vt), &vt), &eye(n)));
        let stretched: Vec<f64> = (0..m * k).map(|at| u[at / k * m + at % k] * s[at % k]).collect();
        assert!(near(&product(m, k, n, &stretched, &vt[..k * n]), &a));
        let mut alone = vec![0.0; k];
        singular_values(m, n, &a, &mut alone).unwrap();
        assert!(near(&alone, &s) && s.is_sorted_by(|a, b| a >= b));
    }
}

#[test]
fn equations_inverses_and_eigenvalues() {
    for n in [1, 2, 9, 20] {
        let mut a = numbers(n * n, 3);
        (0..n).for_each(|at| a[at * n + at] += 3.0 * n as f64);
        let (mut inverse, b) = (vec![0.0; n * n], numbers(2 * n, 4));
        inv(n, &a, &mut inverse).unwrap();
        assert!(near(&product(n, n, n, &a, &inverse), &eye(n)));
        let mut x = vec![0.0; 2 * n];
        solve(n, 2, &a, &b, &mut x).unwrap();
        assert!(near(&product(n, n, 2, &a, &x), &b));
        for upper in [false, true] {
            let kept = |at: usize| (at / n == at % n) || (at / n < at % n) == upper;
            let part: Vec<f64> = (0..n * n).map(|at| if kept(at) { a[at] } else { 0.0 }).collect();
            solve_triangular(n, 2, &a, &b, upper, &mut x).unwrap();
            assert!(near(&product(n, n, 2, &part, &x), &b));
            tri_inv(n, &a, upper, &mut inverse).unwrap();
            assert!(near(&product(n, n, n, &part, &inverse), &eye(n)));
            let symmetric = product(n, n, n, &part, &turned(n, n, &part));
            let mut factor = vec![0.0; n * n];
            cholesky(n, &symmetric, upper, &mut factor).unwrap();
            assert!((0..n * n).all(|at| kept(at) || factor[at] == 0.0));
            let other = turned(n, n, &factor);
            let again =
                if upper { product(n, n, n, &other, &factor) } else { product(n, n, n, &factor, &other) };
            assert!(again.iter().zip(&symmetric).all(|(a, b)| (a - b).abs() < 1e-9 * b.abs().max(1.0)));
            let (mut values, mut vectors) = (vec![0.0; n], vec![0.0; n * n]);
            eigh(n, &symmetric, upper, &mut values, Some(&mut vectors)).unwrap();
            let moved = product(n, n, n, &symmetric, &vectors);
            assert!((0..n * n).all(|at| (moved[at] - vectors[at] * values[at % n]).abs() < 1e-7));
            assert!(values.is_sorted());
        }
        let (mut values, mut vectors) = (vec![[0.0; 2]; n], vec![[0.0; 2]; n * n]);
        eig(n, &a, &mut values, Some(&mut vectors)).unwrap();
        for at in 0..n * n {
            let (row, column) = (at / n, at % n);
            let moved: [f64; 2] = std::array::from_fn(|part| {
                (0..n).map(|i| a[row * n + i] * f64::from(vectors[i * n + column][part])).sum()
            });
            let ([x, y], [re, im]) = (vectors[at].map(f64::from), values[column].map(f64::from));
            assert!(
                (moved[0] - (x * re - y * im)).abs() < 1e-3 && (moved[1] - (x * im + y * re)).abs() < 1e-3
            );
        }
    }
}

#[test]
fn what_has_no_answer_says_so() {
    let singular = [1.0, 2.0, 2.0, 4.0];
    let mut out = [0.0; 4];
    assert_eq!(inv(2, &singular, &mut out), Err(Failure::Singular));
    assert_eq!(solve(2, 1, &singular, &[1.0, 2.0], &mut [0.0; 2]), Err(Failure::Singular));
    assert_eq!(tri_inv(2, &[0.0; 4], true, &mut out), Err(Failure::Singular));
    assert_eq!(cholesky(2, &[-1.0, 0.0, 0.0, 1.0], false, &mut out), Err(Failure::NotPositive));
    let nan = [f64::NAN; 4];
    assert_eq!(singular_values(2, 2, &nan, &mut [0.0; 2]), Err(Failure::NotFinite));
    assert_eq!(eig(2, &nan, &mut [[0.0; 2]; 2], None), Err(Failure::NotFinite));
    assert!(matches!(inv(3, &singular, &mut out), Err(Failure::Size { .. })));
}

#[test]
fn empty_matrices_have_empty_factors() {
    let none: [f64; 0] = [];
    assert_eq!(inv(0, &none, &mut []), Ok(()));
    assert_eq!(cholesky(0, &none, true, &mut []), Ok(()));
    assert_eq!(lu(0, 0, &none, &mut [], &mut [], &mut []), Ok(()));
    assert_eq!(qr(3, 0, &none, &mut [], &mut []), Ok(()));
    let mut vt = [9.0; 9];
    assert_eq!(svd(0, 3, &none, &mut [], &mut [], &mut vt), Ok(()));
    assert!(near(&product(3, 3, 3, &turned(3, 3, &vt), &vt), &eye(3)));
    assert_eq!(eigh(0, &none, false, &mut [], None), Ok(()));
}
