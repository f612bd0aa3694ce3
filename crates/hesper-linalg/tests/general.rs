//! Eigenvalues and eigenvectors of matrices without symmetry.

use crate::common::numbers;
use crate::matrices::{Complex, complex_numbers, near, product};
use hesper_compute::{Serial, Threads};
use hesper_linalg::{Failure, General, eig};

/// Eigenvalues and vectors, checked against the definition: `a v = v diag(w)` within roundings of the size of
/// the matrix, vectors of length one with a real largest element.
fn checked<T: General<Eigen = Complex>>(
    what: &str,
    n: usize,
    a: &[T],
    parts: impl Fn(&T) -> Complex,
) -> Vec<Complex> {
    let (mut values, mut vectors) = (vec![[0.0; 2]; n], vec![[0.0; 2]; n * n]);
    eig(&Serial, n, a, &mut values, Some(&mut vectors)).unwrap();
    let a_parts: Vec<Complex> = a.iter().map(parts).collect();
    let norm = a_parts.chunks(n).map(|row| row.iter().map(|x| x[0].hypot(x[1])).sum()).fold(1e-305, f64::max);
    let small: Vec<Complex> = a_parts.iter().map(|x| x.map(|x| x / norm)).collect();
    let moved = product(n, n, n, &small, &vectors);
    let bound = 20.0 * f64::EPSILON * (n as f64).max(10.0);
    for at in 0..n * n {
        let (x, w) = (vectors[at], values[at % n].map(|x| x / norm));
        let wrong = [moved[at][0] - (x[0] * w[0] - x[1] * w[1]), moved[at][1] - (x[0] * w[1] + x[1] * w[0])];
        assert!(wrong.iter().all(|x| x.abs() < bound), "{what}: {wrong:?} at {at} of {n}");
    }
    for column in 0..n {
        let vector: Vec<Complex> = vectors.iter().skip(column).step_by(n).copied().collect();
        let square = |x: &Complex| x[0] * x[0] + x[1] * x[1];
        assert!((vector.iter().map(square).sum::<f64>() - 1.0).abs() < 1e-13, "{what}");
        let most = vector.iter().map(square).fold(0.0, f64::max);
        assert!(vector.iter().any(|x| square(x) > most * (1.0 - 1e-12) && x[1] == 0.0), "{what}");
    }
    let mut alone = vec![[0.0; 2]; n];
    eig(&Serial, n, a, &mut alone, None).unwrap();
    let sum = |values: &[Complex]| {
        values.iter().fold([0.0; 2], |sum, x| [sum[0] + x[0] / norm, sum[1] + x[1] / norm])
    };
    let trace = sum(&(0..n).map(|at| a_parts[at * n + at]).collect::<Vec<_>>());
    for found in [sum(&values), sum(&alone)] {
        assert!(
            (0..2).all(|part| (found[part] - trace[part]).abs() < bound * n as f64),
            "{what}: {found:?} {trace:?}"
        );
    }
    values
}

fn real(what: &str, n: usize, a: &[f64]) -> Vec<Complex> {
    let values = checked(what, n, a, |x| [*x, 0.0]);
    // Eigenvalues that are not real are neighbours of their conjugates, the one above the real axis first.
    let mut rest = &values[..];
    while let [[re, im], others @ ..] = rest {
        rest = others;
        if *im != 0.0 {
            assert!(*im > 0.0 && rest[0] == [*re, -*im], "{what}");
            rest = &rest[1..];
        }
    }
    values
}

fn complex(what: &str, n: usize, a: &[Complex]) -> Vec<Complex> {
    checked(what, n, a, |x| *x)
}

/// The distance of each wanted value to the next found one, at most.
fn distance(found: &[Complex], wanted: &[Complex]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let mut left = found.to_vec();
    wanted.iter().fold(0.0, |most: f64, x| {
        let apart = |y: &Complex| (x[0] - y[0]).hypot(x[1] - y[1]);
        let next = (0..left.len()).min_by(|a, b| apart(&left[*a]).total_cmp(&apart(&left[*b]))).unwrap();
        most.max(apart(&left.swap_remove(next)))
    })
}

fn with_zeros(a: &[f64]) -> Vec<Complex> {
    a.iter().map(|x| [*x, 0.0]).collect()
}

#[test]
fn random_matrices_of_all_sizes() {
    for n in (1..=12).chain([31, 33, 64, 65, 100, 200]) {
        let values = real("real", n, &numbers(n * n, n as u64));
        if n < 100 {
            let also = complex("real as complex", n, &with_zeros(&numbers(n * n, n as u64)));
            assert!(distance(&values, &also) < 1e-8, "{n}");
        }
        complex("complex", n, &complex_numbers(n * n, n as u64));
    }
}

#[test]
fn special_matrices() {
    for n in [1, 2, 3, 4, 7, 40] {
        let by = |f: &dyn Fn(usize, usize) -> f64| (0..n * n).map(|at| f(at / n, at % n)).collect::<Vec<_>>();
        let x = numbers(n * n, 3);
        let unit = |i: usize, j: usize| f64::from(u8::from(i == j));
        let cases: [(&str, Vec<f64>); 12] = [
            ("zeros", vec![0.0; n * n]),
            ("ones", vec![1.0; n * n]),
            ("a unit matrix", by(&unit)),
            ("a Jordan block", by(&|i, j| 2.0 * unit(i, j) + unit(i + 1, j))),
            ("a nilpotent matrix", by(&|i, j| unit(i, j + 1))),
            ("a cyclic permutation", by(&|i, j| unit((i + 1) % n, j))),
            ("upper triangular", by(&|i, j| if i <= j { x[i * n + j] } else { 0.0 })),
            ("lower triangular", by(&|i, j| if i >= j { x[i * n + j] } else { 0.0 })),
            ("skew-symmetric", by(&|i, j| x[i * n + j] - x[j * n + i])),
            (
                "blocks of equal pairs",
                by(&|i, j| if i / 2 == j / 2 { [1.0, 2.0, -2.0, 1.0][i % 2 * 2 + j % 2] } else { 0.0 }),
            ),
            ("graded", by(&|i, j| x[i * n + j] * 10f64.powi(-((i + j) as i32)))),
            ("rank one", by(&|i, j| x[i] * x[j + n * (n - 1)])),
        ];
        for (what, a) in cases {
            real(what, n, &a);
            complex(what, n, &with_zeros(&a));
            let turned: Vec<Complex> = a.iter().map(|x| [0.0, *x]).collect();
            complex(what, n, &turned);
        }
    }
}

#[test]
fn eigenvalues_that_are_known() {
    let n = 30;
    let x = numbers(n * n, 4);
    // Triangular: the diagonal, to the last bit, in its order.
    for lower in [false, true] {
        let a: Vec<f64> = (0..n * n)
            .map(|at| if (at / n > at % n) == lower || at / n == at % n { x[at] } else { 0.0 })
            .collect();
        let mut found: Vec<f64> = real("triangular", n, &a).into_iter().map(|x| x[0]).collect();
        let mut wanted: Vec<f64> = (0..n).map(|at| a[at * n + at]).collect();
        found.sort_by(f64::total_cmp);
        wanted.sort_by(f64::total_cmp);
        assert_eq!(found, wanted);
    }
    // A cyclic permutation: roots of one.
    let cycle: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from((at / n + 1) % n == at % n))).collect();
    let roots: Vec<Complex> = (0..n)
        .map(|at| std::f64::consts::TAU * at as f64 / n as f64)
        .map(|angle| [angle.cos(), angle.sin()])
        .collect();
    assert!(distance(&real("roots of one", n, &cycle), &roots) < 1e-13);
    assert!(distance(&complex("roots of one", n, &with_zeros(&cycle)), &roots) < 1e-13);
    // A companion matrix: the roots 1, ..., 8 of its polynomial.
    let k = 8;
    let mut polynomial = vec![1.0];
    for root in 1..=k {
        let times_x = polynomial.iter().copied().chain([0.0]);
        let times_root = std::iter::once(0.0).chain(polynomial.iter().copied());
        polynomial = times_x.zip(times_root).map(|(a, b)| a - root as f64 * b).collect();
    }
    let companion: Vec<f64> =
        (0..k * k)
            .map(|at| {
                if at / k == 0 { -polynomial[at % k + 1] } else { f64::from(u8::from(at / k == at % k + 1)) }
            })
            .collect();
    let wanted: Vec<Complex> = (1..=k).map(|root| [root as f64, 0.0]).collect();
    assert!(distance(&real("companion", k, &companion), &wanted) < 1e-7);
    // A rotation.
    assert_eq!(real("rotation", 2, &[0.0, -1.0, 1.0, 0.0]), [[0.0, 1.0], [0.0, -1.0]]);
    // A defective matrix: both eigenvalues within the root of the epsilon.
    assert!(distance(&real("defective", 2, &[3.0, 1.0, -1.0, 1.0]), &[[2.0, 0.0], [2.0, 0.0]]) < 1e-7);
}

#[test]
fn badly_scaled_matrices_are_balanced() {
    let n = 12;
    let x = numbers(n * n, 6);
    let wanted = real("one", n, &x);
    // A similar matrix with elements from 1e-300 to 1e300.
    let scale = |at: usize| 2f64.powi(90 * at as i32 - 500);
    let a: Vec<f64> = (0..n * n).map(|at| x[at] * scale(at / n) / scale(at % n)).collect();
    let mut values = vec![[0.0; 2]; n];
    eig(&Serial, n, &a, &mut values, None).unwrap();
    assert!(distance(&values, &wanted) < 1e-12, "{values:?} {wanted:?}");
    let mut values = vec![[0.0; 2]; n];
    eig(&Serial, n, &with_zeros(&a), &mut values, None).unwrap();
    assert!(distance(&values, &wanted) < 1e-12);
    for by in [1e300, 1e-300, 1e160, 1e-160] {
        let a: Vec<f64> = x.iter().map(|x| x * by).collect();
        let values: Vec<Complex> = real("scaled", n, &a).into_iter().map(|x| x.map(|x| x / by)).collect();
        assert!(distance(&values, &wanted) < 1e-12, "{by}");
        let values: Vec<Complex> =
            complex("scaled", n, &with_zeros(&a)).into_iter().map(|x| x.map(|x| x / by)).collect();
        assert!(distance(&values, &wanted) < 1e-12, "{by}");
    }
}

#[test]
fn single_precision_is_computed_in_double() {
    let n = 40;
    let wide: Vec<Complex> =
        complex_numbers(n * n, 7).iter().map(|x| x.map(|x| f64::from(x as f32))).collect();
    let narrow: Vec<[f32; 2]> = wide.iter().map(|x| x.map(|x| x as f32)).collect();
    let (mut values, mut vectors) = (vec![[0.0f32; 2]; n], vec![[0.0f32; 2]; n * n]);
    eig(&Serial, n, &narrow, &mut values, Some(&mut vectors)).unwrap();
    let (mut exact, mut exact_vectors) = (vec![[0.0; 2]; n], vec![[0.0; 2]; n * n]);
    eig(&Serial, n, &wide, &mut exact, Some(&mut exact_vectors)).unwrap();
    let widened = |x: &[[f32; 2]]| x.iter().map(|x| x.map(f64::from)).collect::<Vec<_>>();
    assert!(near(&widened(&values), &exact, 1e-6) && near(&widened(&vectors), &exact_vectors, 1e-6));
    let reals: Vec<f32> = narrow.iter().map(|x| x[0]).collect();
    eig(&Threads(2), n, &reals, &mut values, Some(&mut vectors)).unwrap();
    real("reals of single precision", n, &reals.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
}

#[test]
fn matrices_that_are_not_finite_or_of_another_size_are_refused() {
    let mut values = [[0.0; 2]; 2];
    for x in [f64::NAN, f64::INFINITY] {
        assert_eq!(eig(&Serial, 2, &[1.0, 2.0, x, 3.0], &mut values, None), Err(Failure::NotFinite));
    }
    let a = [1.0, 2.0, 3.0, 4.0];
    assert!(matches!(eig(&Serial, 2, &a[..3], &mut values, None), Err(Failure::Size { .. })));
    assert!(matches!(eig(&Serial, 2, &a, &mut values, Some(&mut [[0.0; 2]; 3])), Err(Failure::Size { .. })));
    assert_eq!(eig(&Serial, 0, &[0.0; 0], &mut [], Some(&mut [])), Ok(()));
}
