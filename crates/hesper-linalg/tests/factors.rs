//! Factors multiply to their matrices, whatever the shape; a matrix without a factorization gives an error.

use crate::common::numbers;
use hesper_compute::{Par, Serial, Threads};
use hesper_linalg::{
    Failure, cholesky, eig, eigh, inv, lu, qr, singular_values, solve, solve_triangular, svd, tri_inv,
};

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
        lu(&Serial, m, n, &a, &mut factors, &mut swaps, &mut places).unwrap();
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
        // The exchanges in order give the same permutation.
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
        qr(&Serial, m, n, &a, &mut q, &mut r).unwrap();
        assert!(near(&product(m, k, n, &q, &r), &a));
        assert!(near(&product(k, m, k, &turned(m, k, &q), &q), &eye(k)));
        assert!((0..k * n).all(|at| at / n <= at % n || r[at] == 0.0));
        let (mut u, mut s, mut vt) = (vec![0.0; m * m], vec![0.0; k], vec![0.0; n * n]);
        svd(&Serial, m, n, &a, &mut u, &mut s, &mut vt).unwrap();
        assert!(near(&product(m, m, m, &turned(m, m, &u), &u), &eye(m)));
        assert!(near(&product(n, n, n, &turned(n, n, &vt), &vt), &eye(n)));
        let stretched: Vec<f64> = (0..m * k).map(|at| u[at / k * m + at % k] * s[at % k]).collect();
        assert!(near(&product(m, k, n, &stretched, &vt[..k * n]), &a));
        let mut alone = vec![0.0; k];
        singular_values(&Serial, m, n, &a, &mut alone).unwrap();
        assert!(near(&alone, &s) && s.is_sorted_by(|a, b| a >= b));
    }
}

#[test]
fn equations_inverses_and_eigenvalues() {
    for n in [1, 2, 9, 20] {
        let mut a = numbers(n * n, 3);
        (0..n).for_each(|at| a[at * n + at] += 3.0 * n as f64);
        let (mut inverse, b) = (vec![0.0; n * n], numbers(2 * n, 4));
        inv(&Serial, n, &a, &mut inverse).unwrap();
        assert!(near(&product(n, n, n, &a, &inverse), &eye(n)));
        let mut x = vec![0.0; 2 * n];
        solve(&Serial, n, 2, &a, &b, &mut x).unwrap();
        assert!(near(&product(n, n, 2, &a, &x), &b));
        for upper in [false, true] {
            let kept = |at: usize| (at / n == at % n) || (at / n < at % n) == upper;
            let part: Vec<f64> = (0..n * n).map(|at| if kept(at) { a[at] } else { 0.0 }).collect();
            solve_triangular(&Serial, n, 2, &a, &b, upper, &mut x).unwrap();
            assert!(near(&product(n, n, 2, &part, &x), &b));
            tri_inv(&Serial, n, &a, upper, &mut inverse).unwrap();
            assert!(near(&product(n, n, n, &part, &inverse), &eye(n)));
            let symmetric = product(n, n, n, &part, &turned(n, n, &part));
            let mut factor = vec![0.0; n * n];
            cholesky(&Serial, n, &symmetric, upper, &mut factor).unwrap();
            assert!((0..n * n).all(|at| kept(at) || factor[at] == 0.0));
            let other = turned(n, n, &factor);
            let again =
                if upper { product(n, n, n, &other, &factor) } else { product(n, n, n, &factor, &other) };
            assert!(again.iter().zip(&symmetric).all(|(a, b)| (a - b).abs() < 1e-9 * b.abs().max(1.0)));
            let (mut values, mut vectors) = (vec![0.0; n], vec![0.0; n * n]);
            eigh(&Serial, n, &symmetric, upper, &mut values, Some(&mut vectors)).unwrap();
            let moved = product(n, n, n, &symmetric, &vectors);
            assert!((0..n * n).all(|at| (moved[at] - vectors[at] * values[at % n]).abs() < 1e-7));
            assert!(values.is_sorted());
        }
        let (mut values, mut vectors) = (vec![[0.0; 2]; n], vec![[0.0; 2]; n * n]);
        eig(&Serial, n, &a, &mut values, Some(&mut vectors)).unwrap();
        for at in 0..n * n {
            let (row, column) = (at / n, at % n);
            let moved: [f64; 2] = std::array::from_fn(|part| {
                (0..n).map(|i| a[row * n + i] * vectors[i * n + column][part]).sum()
            });
            let ([x, y], [re, im]) = (vectors[at], values[column]);
            assert!(
                (moved[0] - (x * re - y * im)).abs() < 1e-9 && (moved[1] - (x * im + y * re)).abs() < 1e-9
            );
        }
    }
}

#[test]
fn what_has_no_answer_says_so() {
    let singular = [1.0, 2.0, 2.0, 4.0];
    let mut out = [0.0; 4];
    assert_eq!(inv(&Serial, 2, &singular, &mut out), Err(Failure::Singular));
    assert_eq!(solve(&Serial, 2, 1, &singular, &[1.0, 2.0], &mut [0.0; 2]), Err(Failure::Singular));
    assert_eq!(tri_inv(&Serial, 2, &[0.0; 4], true, &mut out), Err(Failure::Singular));
    assert_eq!(cholesky(&Serial, 2, &[-1.0, 0.0, 0.0, 1.0], false, &mut out), Err(Failure::NotPositive));
    let nan = [f64::NAN; 4];
    assert_eq!(singular_values(&Serial, 2, 2, &nan, &mut [0.0; 2]), Err(Failure::NotFinite));
    assert_eq!(eig(&Serial, 2, &nan, &mut [[0.0; 2]; 2], None), Err(Failure::NotFinite));
    assert!(matches!(inv(&Serial, 3, &singular, &mut out), Err(Failure::Size { .. })));
}

#[test]
fn matrices_that_are_singular_within_rounding_have_a_cholesky_factor() {
    let (rank, mut seed) = (3, 1u32);
    for n in [2, 5, 40, 200] {
        let thin: Vec<f32> = (0..n * rank)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
            })
            .collect();
        let dot =
            |i: usize, j: usize| (0..rank).map(|k| thin[i * rank + k] * thin[j * rank + k]).sum::<f32>();
        let matrix: Vec<f32> = (0..n * n).map(|at| dot(at / n, at % n)).collect();
        let mut factor = vec![0.0; n * n];
        cholesky(&Serial, n, &matrix, false, &mut factor).unwrap();
        for (at, wanted) in matrix.iter().enumerate() {
            let found: f32 = (0..n).map(|k| factor[at / n * n + k] * factor[at % n * n + k]).sum();
            assert!((found - wanted).abs() < 1e-5 * n as f32, "{n}: {found} instead of {wanted}");
        }
    }
    let mut out = [0.0; 4];
    for indefinite in [[0.0, 1.0, 1.0, 0.0], [1.0, 2.0, 2.0, 1.0], [f64::INFINITY; 4], [f64::NAN; 4]] {
        assert_eq!(cholesky(&Serial, 2, &indefinite, false, &mut out), Err(Failure::NotPositive));
    }
}

#[test]
fn empty_matrices_have_empty_factors() {
    let none: [f64; 0] = [];
    assert_eq!(inv(&Serial, 0, &none, &mut []), Ok(()));
    assert_eq!(cholesky(&Serial, 0, &none, true, &mut []), Ok(()));
    assert_eq!(lu(&Serial, 0, 0, &none, &mut [], &mut [], &mut []), Ok(()));
    assert_eq!(qr(&Serial, 3, 0, &none, &mut [], &mut []), Ok(()));
    let mut vt = [9.0; 9];
    assert_eq!(svd(&Serial, 0, 3, &none, &mut [], &mut [], &mut vt), Ok(()));
    assert!(near(&product(3, 3, 3, &turned(3, 3, &vt), &vt), &eye(3)));
    assert_eq!(eigh(&Serial, 0, &none, false, &mut [], None), Ok(()));
}

/// A matrix of `m` x `n` times a vector.
fn times(m: usize, n: usize, a: &[f64], x: &[f64]) -> Vec<f64> {
    (0..m).map(|row| a[row * n..][..n].iter().zip(x).map(|(a, x)| a * x).sum()).collect()
}

/// The transpose of a matrix of `m` x `n` times a vector.
fn turned_times(m: usize, n: usize, a: &[f64], x: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; n];
    for row in 0..m {
        a[row * n..][..n].iter().zip(&mut sums).for_each(|(a, sum)| *sum += a * x[row]);
    }
    sums
}

/// Sizes around the edges of blocks and panels: 8, 16, 32, 64, 128.
const LARGE: [(usize, usize); 6] = [(65, 65), (130, 130), (129, 300), (300, 64), (33, 200), (193, 129)];

#[test]
fn factors_of_many_blocks_multiply_a_vector_as_their_matrix_does() {
    for (m, n) in LARGE {
        let (a, k, x) = (numbers(m * n, 5), m.min(n), numbers(n, 11));
        let want = times(m, n, &a, &x);
        let (mut factors, mut swaps, mut places) = (vec![0.0; m * n], vec![0; k], vec![0; m]);
        lu(&Serial, m, n, &a, &mut factors, &mut swaps, &mut places).unwrap();
        let upper: Vec<f64> = (0..k * n).map(|at| if at / n <= at % n { factors[at] } else { 0.0 }).collect();
        let lower: Vec<f64> = (0..m * k)
            .map(|at| match (at / k).cmp(&(at % k)) {
                std::cmp::Ordering::Greater => factors[at / k * n + at % k],
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Less => 0.0,
            })
            .collect();
        // A pivot is the largest of its column.
        assert!(lower.iter().all(|x| x.abs() <= 1.0));
        let both = times(m, k, &lower, &times(k, n, &upper, &x));
        let back: Vec<f64> = places.iter().map(|place| both[*place as usize]).collect();
        assert!(near(&back, &want), "{m} x {n}");
        let (mut q, mut r) = (vec![0.0; m * k], vec![0.0; k * n]);
        qr(&Serial, m, n, &a, &mut q, &mut r).unwrap();
        assert!(near(&times(m, k, &q, &times(k, n, &r, &x)), &want), "{m} x {n}");
        assert!(near(&turned_times(m, k, &q, &times(m, k, &q, &x[..k])), &x[..k]));
        assert!((0..k * n).all(|at| at / n <= at % n || r[at] == 0.0));
    }
    for n in [65, 150, 400] {
        let (a, x) = (numbers(n * n, 6), numbers(n, 12));
        let symmetric: Vec<f64> = (0..n * n)
            .map(|at| if at / n == at % n { n as f64 } else { a[at.min(at % n * n + at / n)] })
            .collect();
        let want = times(n, n, &symmetric, &x);
        for upper in [false, true] {
            // Elements of the other triangle must not be read.
            let half: Vec<f64> = (0..n * n)
                .map(|at| if (at / n < at % n) == upper || at / n == at % n { symmetric[at] } else { 1e9 })
                .collect();
            let mut factor = vec![0.0; n * n];
            cholesky(&Serial, n, &half, upper, &mut factor).unwrap();
            let again = if upper {
                turned_times(n, n, &factor, &times(n, n, &factor, &x))
            } else {
                times(n, n, &factor, &turned_times(n, n, &factor, &x))
            };
            assert!(near(&again, &want), "{n}");
            if n == 400 {
                continue;
            }
            let (mut values, mut vectors, mut alone) = (vec![0.0; n], vec![0.0; n * n], vec![0.0; n]);
            eigh(&Serial, n, &half, upper, &mut values, Some(&mut vectors)).unwrap();
            let mut parts = turned_times(n, n, &vectors, &x);
            assert!(near(&times(n, n, &vectors, &parts), &x));
            parts.iter_mut().zip(&values).for_each(|(part, value)| *part *= value);
            assert!(near(&times(n, n, &vectors, &parts), &want));
            eigh(&Serial, n, &half, upper, &mut alone, None).unwrap();
            assert!(values.is_sorted() && near(&alone, &values));
        }
        for count in [1, 3, 40] {
            let (b, mut solution) = (numbers(n * count, 7), vec![0.0; n * count]);
            let column =
                |from: &[f64], at: usize| from.iter().skip(at).step_by(count).copied().collect::<Vec<_>>();
            solve(&Serial, n, count, &symmetric, &b, &mut solution).unwrap();
            for at in 0..count {
                assert!(near(&times(n, n, &symmetric, &column(&solution, at)), &column(&b, at)));
            }
            for upper in [false, true] {
                let part: Vec<f64> = (0..n * n)
                    .map(
                        |at| if at / n == at % n || (at / n < at % n) == upper { symmetric[at] } else { 0.0 },
                    )
                    .collect();
                solve_triangular(&Serial, n, count, &symmetric, &b, upper, &mut solution).unwrap();
                for at in 0..count {
                    assert!(near(&times(n, n, &part, &column(&solution, at)), &column(&b, at)));
                }
            }
        }
        let mut inverse = vec![0.0; n * n];
        inv(&Serial, n, &symmetric, &mut inverse).unwrap();
        assert!(near(&times(n, n, &inverse, &want), &x));
        tri_inv(&Serial, n, &symmetric, true, &mut inverse).unwrap();
        let upper: Vec<f64> =
            (0..n * n).map(|at| if at / n <= at % n { symmetric[at] } else { 0.0 }).collect();
        assert!(near(&times(n, n, &inverse, &times(n, n, &upper, &x)), &x));
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let all = |par: &dyn Par| {
        let n = 170;
        let mut a: Vec<f32> = numbers(n * n, 8).into_iter().map(|x| x as f32).collect();
        let (mut q, mut r, mut inverse) = (vec![0.0; n * n], vec![0.0; n * n], vec![0.0; n * n]);
        let (mut values, mut vectors, mut x) = (vec![0.0; n], vec![0.0; n * n], vec![0.0; 2 * n]);
        qr(par, n, n, &a, &mut q, &mut r).unwrap();
        inv(par, n, &a, &mut inverse).unwrap();
        solve(par, n, 2, &a, &q[..2 * n], &mut x).unwrap();
        eigh(par, n, &a, false, &mut values, Some(&mut vectors)).unwrap();
        let (mut u, mut s, mut vt) = (vec![0.0; n * n], vec![0.0; n], vec![0.0; n * n]);
        svd(par, n, n, &a, &mut u, &mut s, &mut vt).unwrap();
        (0..n).for_each(|at| a[at * n + at] += n as f32);
        let mut factor = vec![0.0; n * n];
        cholesky(par, n, &a, true, &mut factor).unwrap();
        [q, r, inverse, values, vectors, x, u, s, vt, factor].concat()
    };
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let alone = bits(all(&Serial));
    assert_eq!(alone, bits(all(&Threads(2))));
    assert_eq!(alone, bits(all(&Threads(5))));
}

#[test]
fn squares_of_large_and_small_numbers_neither_overflow_nor_vanish() {
    let n = 20;
    for scale in [1e30, 1e-30] {
        let a: Vec<f32> = numbers(n * n, 9).into_iter().map(|x| (x * scale) as f32).collect();
        let (mut q, mut r) = (vec![0.0f32; n * n], vec![0.0f32; n * n]);
        qr(&Serial, n, n, &a, &mut q, &mut r).unwrap();
        let wide = |x: &[f32], by: f64| x.iter().map(|x| f64::from(*x) / by).collect::<Vec<_>>();
        let again = product(n, n, n, &wide(&q, 1.0), &wide(&r, scale));
        assert!(again.iter().zip(wide(&a, scale)).all(|(a, b)| (a - b).abs() < 1e-5));
        let symmetric: Vec<f32> = (0..n * n).map(|at| a[at] + a[at % n * n + at / n]).collect();
        let (mut values, mut vectors) = (vec![0.0f32; n], vec![0.0f32; n * n]);
        eigh(&Serial, n, &symmetric, false, &mut values, Some(&mut vectors)).unwrap();
        let (values, vectors) = (wide(&values, scale), wide(&vectors, 1.0));
        let moved = product(n, n, n, &wide(&symmetric, scale), &vectors);
        assert!((0..n * n).all(|at| (moved[at] - vectors[at] * values[at % n]).abs() < 1e-5));
    }
}
