//! Linear algebra.

use hesper::{Array, Dtype, linalg};

use super::{Case, case, many, numbers, x};

/// Symmetric matrices with distinct positive eigenvalues.
fn definite(seed: usize, n: usize) -> Array {
    let a = x(seed, &[n, n]);
    let diagonal = Array::from_slice(&(1..=n).map(|at| at as f64).collect::<Vec<f64>>()).diag(0).unwrap();
    (a.matmul(&a.t().unwrap()).unwrap() * 0.2 + diagonal).contiguous().unwrap()
}

/// A square matrix that is far from singular.
fn regular(seed: usize, n: usize) -> Array {
    (x(seed, &[n, n]) * 0.5 + Array::eye(n, n, 0, Dtype::Float64).unwrap() * 2.0).contiguous().unwrap()
}

/// The sum of a matrix and its transpose: eigenvalues and Cholesky factors read only one triangle.
fn symmetric(a: &Array) -> hesper::Result<Array> {
    a.add(a.swapaxes(-1, -2)?)?.multiply(0.5)
}

pub fn cases() -> Vec<Case> {
    let a = regular(1, 3);
    vec![
        case("inv", &[a.clone()], |x| linalg::inv(&x[0])),
        case("tri_inv", &[a.clone()], |x| linalg::tri_inv(&x[0], true)),
        case("pinv", &[x(2, &[4, 3])], |x| linalg::pinv(&x[0])).rough(1e-6, 1e-5),
        case("solve", &[a.clone(), x(3, &[3])], |x| linalg::solve(&x[0], &x[1])),
        case("solve of batches", &[a.clone(), x(4, &[2, 3, 2])], |x| linalg::solve(&x[0], &x[1])),
        case("solve_triangular", &[a.clone(), x(5, &[3, 2])], |x| {
            linalg::solve_triangular(&x[0], &x[1], false)
        }),
        case("cholesky", &[definite(6, 3)], |x| linalg::cholesky(&symmetric(&x[0])?, false)),
        case("cholesky of upper triangles", &[definite(7, 3)], |x| {
            linalg::cholesky(&symmetric(&x[0])?, true)
        }),
        case("cholesky_inv", &[definite(8, 3)], |x| linalg::cholesky_inv(&x[0], false)),
        case("det", &[a.clone()], |x| linalg::det(&x[0])),
        many("slogdet", &[a.clone()], |x| linalg::slogdet(&x[0]).map(|(sign, log)| vec![sign, log])),
        many("lu", &[a.clone()], |x| linalg::lu(&x[0]).map(|(_, l, u)| vec![l, u])),
        many("lu of a tall matrix", &[x(9, &[4, 3])], |x| linalg::lu(&x[0]).map(|(_, l, u)| vec![l, u])),
        many("lu of a wide matrix", &[x(10, &[3, 4])], |x| linalg::lu(&x[0]).map(|(_, l, u)| vec![l, u])),
        case("lu_factor", &[a.clone()], |x| linalg::lu_factor(&x[0]).map(|(factors, _)| factors)),
        many("qr", &[x(11, &[4, 3])], |x| linalg::qr(&x[0]).map(|(q, r)| vec![q, r])),
        many("qr of a wide matrix", &[x(12, &[2, 4])], |x| linalg::qr(&x[0]).map(|(q, r)| vec![q, r])),
        many("svd", &[regular(13, 3)], |x| linalg::svd(&x[0]).map(|(u, s, v)| vec![u, s, v]))
            .rough(1e-6, 1e-5),
        many("svd of a tall matrix", &[x(14, &[3, 2])], |x| {
            // The sign of the vector without a singular value is arbitrary, so it is not compared.
            let (u, s, v) = linalg::svd(&x[0])?;
            Ok(vec![u.slice(&[0, 0], &[3, 2], &[1, 1])?, s, v])
        })
        .rough(1e-6, 1e-5),
        many("svd of a wide matrix", &[x(15, &[2, 3])], |x| {
            let (u, s, v) = linalg::svd(&x[0])?;
            Ok(vec![u, s, v.slice(&[0, 0], &[2, 3], &[1, 1])?])
        })
        .rough(1e-6, 1e-5),
        case("singular_values", &[x(16, &[4, 3])], |x| linalg::singular_values(&x[0])),
        many("eigh", &[definite(17, 3)], |x| {
            linalg::eigh(&symmetric(&x[0])?, false).map(|(values, vectors)| vec![values, vectors])
        })
        .rough(1e-6, 1e-5),
        case("eigvalsh", &[definite(18, 3)], |x| linalg::eigvalsh(&symmetric(&x[0])?, true)),
        many("eig", &[definite(19, 3)], |x| linalg::eig(&x[0]).map(|(v, w)| vec![v, w])).flat(),
        case("eigvals", &[definite(20, 3)], |x| linalg::eigvals(&x[0])).flat(),
        case("cross", &[x(21, &[2, 3]), x(22, &[2, 3])], |x| linalg::cross(&x[0], &x[1], -1)),
        case("svd of single precision", &[numbers(23, &[2, 2], Dtype::Float32)], |x| {
            linalg::singular_values(&x[0])
        })
        .rough(1e-2, 3e-3),
    ]
}
