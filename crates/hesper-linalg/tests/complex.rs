//! Factors of complex matrices multiply to their matrices, whatever the shape, scale and precision.

use crate::matrices::{Complex, adjoint, complex_numbers, near, product};
use hesper_compute::{Par, Serial, Threads};
use hesper_linalg::{
    Failure, cholesky, eig, eigh, inv, lu, qr, singular_values, solve, solve_triangular, svd, tri_inv,
};

/// Sizes around the edges of blocks and panels.
const SHAPES: [(usize, usize); 13] = [
    (1, 1),
    (2, 2),
    (5, 3),
    (3, 5),
    (20, 20),
    (40, 7),
    (17, 33),
    (65, 65),
    (100, 130),
    (140, 140),
    (200, 30),
    (30, 200),
    (90, 70),
];

fn eye(n: usize) -> Vec<Complex> {
    (0..n * n).map(|at| [f64::from(u8::from(at / n == at % n)), 0.0]).collect()
}

/// The columns of a matrix times real numbers; as many columns as there are numbers.
fn stretched(rows: usize, columns: usize, a: &[Complex], by: &[f64]) -> Vec<Complex> {
    let k = by.len();
    (0..rows * k).map(|at| a[at / k * columns + at % k].map(|x| x * by[at % k])).collect()
}

fn is_unitary(rows: usize, columns: usize, q: &[Complex], bound: f64) -> bool {
    near(&product(columns, rows, columns, &adjoint(rows, columns, q), q), &eye(columns), bound)
}

macro_rules! precisions {
    ($($module:ident: $t:ty, $eps:expr;)*) => { $(
        mod $module {
            use super::*;

            type Entry = [$t; 2];

            fn narrow(a: &[Complex]) -> Vec<Entry> {
                a.iter().map(|x| x.map(|x| x as $t)).collect()
            }

            fn wide(a: &[Entry]) -> Vec<Complex> {
                a.iter().map(|x| x.map(f64::from)).collect()
            }

            fn wide_reals(a: &[$t]) -> Vec<f64> {
                a.iter().map(|x| f64::from(*x)).collect()
            }

            #[test]
            fn factors_multiply_to_the_matrix() {
                for (m, n) in SHAPES {
                    let (a, k) = (narrow(&complex_numbers(m * n, 1)), m.min(n));
                    let (exact, bound) = (wide(&a), 40.0 * $eps * (m.max(n) as f64));
                    let (mut q, mut r) = (vec![[0.0; 2]; m * k], vec![[0.0; 2]; k * n]);
                    qr(&Serial, m, n, &a, &mut q, &mut r).unwrap();
                    let (q, r) = (wide(&q), wide(&r));
                    assert!(near(&product(m, k, n, &q, &r), &exact, bound), "{m} x {n}");
                    assert!(is_unitary(m, k, &q, bound), "{m} x {n}");
                    assert!((0..k * n).all(|at| at / n <= at % n || r[at] == [0.0; 2]));
                    assert!((0..k).all(|at| r[at * n + at][1] == 0.0));

                    let (mut u, mut s, mut vt) = (vec![[0.0; 2]; m * m], vec![0.0; k], vec![[0.0; 2]; n * n]);
                    svd(&Serial, m, n, &a, &mut u, &mut s, &mut vt).unwrap();
                    let (u, s, vt) = (wide(&u), wide_reals(&s), wide(&vt));
                    assert!(is_unitary(m, m, &u, bound) && is_unitary(n, n, &vt, bound), "{m} x {n}");
                    assert!(s.is_sorted_by(|a, b| a >= b) && s.iter().all(|x| *x >= 0.0));
                    let again = product(m, k, n, &stretched(m, m, &u, &s), &vt[..k * n]);
                    assert!(near(&again, &exact, bound), "{m} x {n}");
                    let mut only = vec![0.0; k];
                    singular_values(&Serial, m, n, &a, &mut only).unwrap();
                    assert!(wide_reals(&only).iter().zip(&s).all(|(a, b)| (a - b).abs() < bound));

                    let mut factors = vec![[0.0; 2]; m * n];
                    let (mut swaps, mut places) = (vec![0; k], vec![0; m]);
                    lu(&Serial, m, n, &a, &mut factors, &mut swaps, &mut places).unwrap();
                    let factors = wide(&factors);
                    let lower: Vec<Complex> = (0..m * k)
                        .map(|at| match (at / k).cmp(&(at % k)) {
                            std::cmp::Ordering::Greater => factors[at / k * n + at % k],
                            std::cmp::Ordering::Equal => [1.0, 0.0],
                            std::cmp::Ordering::Less => [0.0; 2],
                        })
                        .collect();
                    // A pivot has the largest sum of the sizes of its parts.
                    assert!(lower.iter().all(|x| x[0].hypot(x[1]) <= 1.5));
                    let upper: Vec<Complex> =
                        (0..k * n).map(|at| if at / n <= at % n { factors[at] } else { [0.0; 2] }).collect();
                    let both = product(m, k, n, &lower, &upper);
                    let back: Vec<Complex> =
                        places.iter().flat_map(|place| both[*place as usize * n..][..n].to_vec()).collect();
                    assert!(near(&back, &exact, bound), "{m} x {n}");
                }
            }

            #[test]
            fn equations_inverses_and_hermitian_eigenvalues() {
                for n in [1, 2, 9, 33, 70, 150] {
                    let mut a = complex_numbers(n * n, 2);
                    (0..n).for_each(|at| a[at * n + at][0] += 2.0 * n as f64);
                    let (a, b) = (narrow(&a), narrow(&complex_numbers(3 * n, 3)));
                    let bound = 100.0 * $eps * n as f64;
                    let mut inverse = vec![[0.0; 2]; n * n];
                    inv(&Serial, n, &a, &mut inverse).unwrap();
                    assert!(near(&product(n, n, n, &wide(&a), &wide(&inverse)), &eye(n), bound));
                    for count in [1, 3] {
                        let b = &b[..n * count];
                        let mut x = vec![[0.0; 2]; n * count];
                        solve(&Serial, n, count, &a, b, &mut x).unwrap();
                        assert!(near(&product(n, n, count, &wide(&a), &wide(&x)), &wide(b), bound));
                        for upper in [false, true] {
                            let kept = |at: usize| (at / n == at % n) || (at / n < at % n) == upper;
                            let part: Vec<Entry> =
                                (0..n * n).map(|at| if kept(at) { a[at] } else { [0.0; 2] }).collect();
                            solve_triangular(&Serial, n, count, &a, b, upper, &mut x).unwrap();
                            assert!(near(&product(n, n, count, &wide(&part), &wide(&x)), &wide(b), bound));
                            tri_inv(&Serial, n, &a, upper, &mut inverse).unwrap();
                            assert!(near(&product(n, n, n, &wide(&part), &wide(&inverse)), &eye(n), bound));
                        }
                    }
                    let a = complex_numbers(n * n, 4);
                    let mut hermitian: Vec<Complex> = a.iter().zip(adjoint(n, n, &a))
                        .map(|(a, b)| [a[0] + b[0], a[1] + b[1]]).collect();
                    let check = |matrix: &[Complex], upper: bool| {
                        // The other triangle, and imaginary parts on the diagonal, are not read.
                        let half: Vec<Entry> = narrow(&(0..n * n).map(|at| match (at / n).cmp(&(at % n)) {
                            std::cmp::Ordering::Equal => [matrix[at][0], 7.0],
                            order if (order == std::cmp::Ordering::Less) == upper => matrix[at],
                            _ => [1e9, 1e9],
                        }).collect::<Vec<_>>());
                        let bound = 40.0 * $eps * (n as f64) * matrix[0][0].abs().max(4.0);
                        let (mut values, mut alone, mut vectors) =
                            (vec![0.0; n], vec![0.0; n], vec![[0.0; 2]; n * n]);
                        eigh(&Serial, n, &half, upper, &mut values, Some(&mut vectors)).unwrap();
                        eigh(&Serial, n, &half, upper, &mut alone, None).unwrap();
                        let (values, vectors) = (wide_reals(&values), wide(&vectors));
                        assert!(values.is_sorted() && is_unitary(n, n, &vectors, 40.0 * $eps * n as f64));
                        let alone = wide_reals(&alone);
                        assert!(alone.iter().zip(&values).all(|(a, b)| (a - b).abs() < bound));
                        let moved = product(n, n, n, matrix, &vectors);
                        assert!(near(&moved, &stretched(n, n, &vectors, &values), bound), "{n}");
                        half
                    };
                    let exact = wide(&narrow(&hermitian));
                    check(&exact, false);
                    check(&exact, true);
                    (0..n).for_each(|at| hermitian[at * n + at][0] += 4.0 * n as f64);
                    let exact = wide(&narrow(&hermitian));
                    for upper in [false, true] {
                        let half = check(&exact, upper);
                        let mut factor = vec![[0.0; 2]; n * n];
                        cholesky(&Serial, n, &half, upper, &mut factor).unwrap();
                        let factor = wide(&factor);
                        let other = adjoint(n, n, &factor);
                        let (left, right) = if upper { (&other, &factor) } else { (&factor, &other) };
                        let again = product(n, n, n, left, right);
                        assert!(near(&again, &exact, bound * n as f64), "{n} {upper}");
                        assert!((0..n).all(|at| factor[at * n + at][1] == 0.0));
                    }
                }
            }
        }
    )* };
}

precisions! {
    single: f32, f64::from(f32::EPSILON);
    double: f64, f64::EPSILON;
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let all = |par: &dyn Par| {
        let n = 100;
        let a = complex_numbers(n * n, 8);
        let (mut q, mut r, mut inverse) =
            (vec![[0.0; 2]; n * n], vec![[0.0; 2]; n * n], vec![[0.0; 2]; n * n]);
        qr(par, n, n, &a, &mut q, &mut r).unwrap();
        inv(par, n, &a, &mut inverse).unwrap();
        let (mut values, mut vectors) = (vec![0.0; n], vec![[0.0; 2]; n * n]);
        eigh(par, n, &a, false, &mut values, Some(&mut vectors)).unwrap();
        let (mut u, mut s, mut vt) = (vec![[0.0; 2]; n * n], vec![0.0; n], vec![[0.0; 2]; n * n]);
        svd(par, n, n, &a, &mut u, &mut s, &mut vt).unwrap();
        let (mut any, mut of_any) = (vec![[0.0; 2]; n], vec![[0.0; 2]; n * n]);
        eig(par, n, &a, &mut any, Some(&mut of_any)).unwrap();
        let pairs = [q, r, inverse, vectors, u, vt, any, of_any].concat().into_flattened();
        pairs.into_iter().chain(values).chain(s).map(f64::to_bits).collect::<Vec<_>>()
    };
    let alone = all(&Serial);
    assert!(alone == all(&Threads(2)) && alone == all(&Threads(5)));
}

#[test]
fn large_and_small_numbers_neither_overflow_nor_vanish() {
    let n = 20;
    for scale in [1e300, 1e150, 1e-150, 1e-300] {
        let times = |a: &[Complex], by: f64| a.iter().map(|x| x.map(|x| x * by)).collect::<Vec<_>>();
        let one = complex_numbers(n * n, 9);
        let a = times(&one, scale);
        let (mut q, mut r) = (vec![[0.0; 2]; n * n], vec![[0.0; 2]; n * n]);
        qr(&Serial, n, n, &a, &mut q, &mut r).unwrap();
        assert!(near(&product(n, n, n, &q, &times(&r, 1.0 / scale)), &one, 1e-12), "{scale}");
        let (mut u, mut s, mut vt) = (vec![[0.0; 2]; n * n], vec![0.0; n], vec![[0.0; 2]; n * n]);
        svd(&Serial, n, n, &a, &mut u, &mut s, &mut vt).unwrap();
        let s: Vec<f64> = s.iter().map(|x| x / scale).collect();
        assert!(near(&product(n, n, n, &stretched(n, n, &u, &s), &vt), &one, 1e-12), "{scale}");
        inv(&Serial, n, &a, &mut u).unwrap();
        // Products of elements near the largest number and its reciprocal.
        let inverse: Vec<Complex> = u.iter().map(|x| x.map(|x| x * scale)).collect();
        assert!(near(&product(n, n, n, &inverse, &one), &eye(n), 1e-10), "{scale}");
        let sum: Vec<Complex> =
            one.iter().zip(adjoint(n, n, &one)).map(|(a, b)| [a[0] + b[0], a[1] + b[1]]).collect();
        let mut values = vec![0.0; n];
        eigh(&Serial, n, &times(&sum, scale), false, &mut values, Some(&mut u)).unwrap();
        let values: Vec<f64> = values.iter().map(|x| x / scale).collect();
        assert!(near(&product(n, n, n, &sum, &u), &stretched(n, n, &u, &values), 1e-11), "{scale}");
    }
}

#[test]
fn matrices_of_low_rank_have_unitary_factors() {
    let n = 40;
    let (x, y) = (complex_numbers(n, 5), complex_numbers(n, 6));
    let zeros = vec![[0.0; 2]; n * n];
    let rank_one = product(n, 1, n, &x, &y);
    let mut column = zeros.clone();
    (0..n).for_each(|row| column[row * n + 3] = x[row]);
    for a in [zeros, rank_one, column.clone(), eye(n)] {
        let (mut q, mut r) = (vec![[0.0; 2]; n * n], vec![[0.0; 2]; n * n]);
        qr(&Serial, n, n, &a, &mut q, &mut r).unwrap();
        assert!(is_unitary(n, n, &q, 1e-12) && near(&product(n, n, n, &q, &r), &a, 1e-12));
        let (mut u, mut s, mut vt) = (vec![[0.0; 2]; n * n], vec![0.0; n], vec![[0.0; 2]; n * n]);
        svd(&Serial, n, n, &a, &mut u, &mut s, &mut vt).unwrap();
        assert!(is_unitary(n, n, &u, 1e-12) && is_unitary(n, n, &vt, 1e-12));
        assert!(near(&product(n, n, n, &stretched(n, n, &u, &s), &vt), &a, 1e-12));
        let (mut factors, mut swaps, mut places) = (vec![[0.0; 2]; n * n], vec![0; n], vec![0; n]);
        lu(&Serial, n, n, &a, &mut factors, &mut swaps, &mut places).unwrap();
        assert!(factors.iter().flatten().all(|x| x.is_finite()));
    }
    assert_eq!(inv(&Serial, n, &column, &mut vec![[0.0; 2]; n * n]), Err(Failure::Singular));
}

#[test]
fn what_has_no_answer_says_so() {
    let singular = [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [4.0, 4.0]];
    let mut out = [[0.0; 2]; 4];
    assert_eq!(inv(&Serial, 2, &singular, &mut out), Err(Failure::Singular));
    assert_eq!(solve(&Serial, 2, 1, &singular, &[[1.0, 0.0]; 2], &mut out[..2]), Err(Failure::Singular));
    assert_eq!(tri_inv(&Serial, 2, &[[0.0; 2]; 4], true, &mut out), Err(Failure::Singular));
    for bad in [
        [[-1.0, 0.0], [0.0; 2], [0.0; 2], [1.0, 0.0]],
        [[1.0, 0.0], [0.0; 2], [0.0, 2.0], [1.0, 0.0]],
        [[0.0; 2]; 4],
        [[f64::NAN; 2]; 4],
        [[f64::INFINITY; 2]; 4],
    ] {
        assert_eq!(cholesky(&Serial, 2, &bad, false, &mut out), Err(Failure::NotPositive), "{bad:?}");
    }
    for at in 0..8 {
        for x in [f64::NAN, f64::INFINITY] {
            let mut a = [1.0; 8];
            a[at] = x;
            let a = a.as_chunks::<2>().0;
            let (mut s, mut u) = ([0.0; 2], [[0.0; 2]; 4]);
            assert_eq!(svd(&Serial, 2, 2, a, &mut u, &mut s, &mut out), Err(Failure::NotFinite));
            assert_eq!(singular_values(&Serial, 2, 2, a, &mut s), Err(Failure::NotFinite));
            assert_eq!(eigh(&Serial, 2, a, false, &mut s, None), Err(Failure::NotFinite));
            assert_eq!(eig(&Serial, 2, a, &mut out[..2], None), Err(Failure::NotFinite));
            // These compute with what they are given.
            inv(&Serial, 2, a, &mut out).unwrap_or_default();
            qr(&Serial, 2, 2, a, &mut u, &mut out).unwrap();
            assert!(out.iter().flatten().any(|x| !x.is_finite()));
        }
    }
    let none: [[f64; 2]; 0] = [];
    assert_eq!(inv(&Serial, 0, &none, &mut []), Ok(()));
    assert_eq!(cholesky(&Serial, 0, &none, true, &mut []), Ok(()));
    assert_eq!(qr(&Serial, 3, 0, &none, &mut [], &mut []), Ok(()));
    assert_eq!(eigh(&Serial, 0, &none, false, &mut [], None), Ok(()));
    assert_eq!(eig(&Serial, 0, &none, &mut [], Some(&mut [])), Ok(()));
    let mut vt = [[9.0; 2]; 9];
    assert_eq!(svd(&Serial, 0, 3, &none, &mut [], &mut [], &mut vt), Ok(()));
    assert!(near(&vt, &eye(3), 1e-15));
}
