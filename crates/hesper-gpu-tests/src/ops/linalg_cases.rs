//! Linear algebra. Factors are unique only up to signs, so the cases compare what does not depend on them:
//! products of the factors, orthonormality, eigenvalues and singular values. The host computes these from the
//! factors. For matrices without a result, the error messages are compared word for word.

use hesper::placement::{self, Device};
use hesper::{Array, Dtype, Error, Operand, linalg, random};

use crate::cases::{CaseResult, Cases, data};

/// Adds all cases.
pub fn add(cases: &mut Cases) {
    // One block for each matrix up to 64 rows and columns, cuSOLVER from there on.
    let square: [&[usize]; 8] = [
        &[1, 1],
        &[3, 5, 5],
        &[2, 2, 32, 32],
        &[33, 33],
        &[64, 64],
        &[2, 65, 65],
        &[3, 130, 130],
        &[520, 520],
    ];
    for dtype in [Dtype::Float32, Dtype::Float64, Dtype::Complex64] {
        let tolerance = if dtype == Dtype::Float64 { 1e-9 } else { 2e-3 };
        for shape in square {
            let name = |what: &str| format!("linalg {what} {shape:?} {dtype}");
            cases.add(name("cholesky, inverse, solve"), tolerance, move || positive_definite(shape, dtype));
            cases.add(name("triangular"), tolerance, move || triangular(shape, dtype));
            cases.add(name("eigh"), tolerance, move || eigen(shape, dtype));
        }
        let any: [&[usize]; 7] =
            [&[4, 7, 3], &[2, 3, 7], &[64, 20], &[2, 30, 64], &[2, 100, 40], &[2, 40, 100], &[600, 520]];
        for shape in any.into_iter().chain(square) {
            let name = |what: &str| format!("linalg {what} {shape:?} {dtype}");
            cases.add(name("lu, qr"), tolerance, move || eliminated(shape, dtype));
            cases.add(name("svd"), tolerance, move || singular(shape, dtype));
        }
    }
    cases.add("linalg nothing to compute", 0.0, nothing);
    cases.add("linalg singular within rounding", 1e-3, semidefinite);
    for n in [3, 64, 70] {
        cases.add(format!("linalg failures of {n} x {n}"), 0.0, move || failures(n));
    }
    cases.add("linalg roots of covariances", 2e-3, covariances);
}

/// Computes on the host.
fn host<T>(build: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    placement::with_device(Device::Cpu, build).and_then(|result| result)
}

fn matrices(shape: &[usize], dtype: Dtype, seed: u64) -> Result<Array, Error> {
    let real = data(shape, dtype, seed);
    if dtype != Dtype::Complex64 {
        return Ok(real);
    }
    let other = data(shape, Dtype::Float32, seed + 100);
    host(|| real.add(&other.multiply(Operand::Complex([0.0, 1.0]))?))
}

fn adjoint(x: &Array) -> Result<Array, Error> {
    x.swapaxes(-1, -2)?.conjugate()
}

/// Matrices times their adjoints, plus the unit matrix: eigenvalues are at least one.
fn positive(shape: &[usize], dtype: Dtype, seed: u64) -> Result<Array, Error> {
    let (a, n) = (matrices(shape, dtype, seed)?, shape[shape.len() - 1]);
    a.matmul(&adjoint(&a)?)?.divide(n as f64)?.astype(dtype)?.add(&Array::eye(n, n, 0, dtype)?)
}

fn positive_definite(shape: &[usize], dtype: Dtype) -> CaseResult {
    let a = host(|| positive(shape, dtype, 1))?;
    let mut sides = shape.to_vec();
    let last = sides.len() - 1;
    sides[last] = 3;
    let (b, wide) = (matrices(&sides, dtype, 2)?, matrices(shape, dtype, 3)?);
    // Not symmetric: rows and columns must not be confused.
    let general = host(|| a.add(&wide.triu(1)?.multiply(0.1)?.astype(dtype)?))?;
    Ok(vec![
        linalg::cholesky(&a, false)?,
        linalg::cholesky(&a, true)?,
        linalg::inv(&general)?,
        linalg::inv(&general.swapaxes(-1, -2)?)?,
        linalg::solve(&general, &b)?,
        linalg::solve(&general, &wide)?,
    ])
}

fn triangular(shape: &[usize], dtype: Dtype) -> CaseResult {
    let n = shape[shape.len() - 1];
    let a = matrices(shape, dtype, 4)?.multiply(1.0 / n as f64)?.astype(dtype)?;
    let a = a.add(&Array::eye(n, n, 0, dtype)?.multiply(2.0)?.astype(dtype)?)?;
    let mut sides = shape.to_vec();
    let last = sides.len() - 1;
    sides[last] = 4;
    let b = matrices(&sides, dtype, 5)?;
    let mut results = Vec::new();
    for upper in [false, true] {
        results.push(linalg::tri_inv(&a, upper)?);
        results.push(linalg::solve_triangular(&a, &b, upper)?);
    }
    Ok(results)
}

fn eigen(shape: &[usize], dtype: Dtype) -> CaseResult {
    let a = matrices(shape, dtype, 6)?;
    let a = a.add(&adjoint(&a)?)?;
    let mut results = Vec::new();
    for upper in [false, true] {
        // The other triangle is not read.
        let half = if upper { a.triu(0)? } else { a.tril(0)? };
        let (values, vectors) = linalg::eigh(&half, upper)?;
        results.extend(host(|| {
            let scaled = vectors.multiply(&values.expand_dims(-2)?.astype(dtype)?)?;
            Ok([scaled.matmul(&adjoint(&vectors)?)?, adjoint(&vectors)?.matmul(&vectors)?.add(1)?])
        })?);
        results.push(linalg::eigvalsh(&half, upper)?);
        results.push(values);
    }
    Ok(results)
}

fn eliminated(shape: &[usize], dtype: Dtype) -> CaseResult {
    let a = matrices(shape, dtype, 7)?;
    let (permutation, lower, upper) = linalg::lu(&a)?;
    let (factors, swaps) = linalg::lu_factor(&a)?;
    let (q, r) = linalg::qr(&a)?;
    host(|| {
        Ok(vec![
            permutation,
            lower.matmul(&upper)?,
            factors,
            swaps,
            q.matmul(&r)?,
            adjoint(&q)?.matmul(&q)?,
            r.abs()?,
            r.tril(-1)?,
        ])
    })
}

fn singular(shape: &[usize], dtype: Dtype) -> CaseResult {
    let a = matrices(shape, dtype, 8)?;
    let (u, s, vt) = linalg::svd(&a)?;
    let values = linalg::singular_values(&a)?;
    let (rank, least) = (a.ndim(), s.shape()[s.ndim() - 1] as isize);
    host(|| {
        let left = u.slice_axis(rank - 1, 0, least, 1)?.multiply(&s.expand_dims(-2)?.astype(dtype)?)?;
        let product = left.matmul(&vt.slice_axis(rank - 2, 0, least, 1)?)?;
        // Add one to the unit matrices: errors are relative to the mean magnitude, which is tiny for a large
        // unit matrix.
        let [u, vt] = [adjoint(&u)?.matmul(&u)?, vt.matmul(&adjoint(&vt)?)?];
        Ok(vec![product, u.add(1)?, vt.add(1)?, values, s])
    })
}

/// Empty batches, and matrices without rows or columns.
fn nothing() -> CaseResult {
    let none = Array::zeros(&[0, 70, 70], Dtype::Float32)?;
    let (q, r) = linalg::qr(&none)?;
    let (u, s, vt) = linalg::svd(&Array::zeros(&[2, 0, 3], Dtype::Float32)?)?;
    let flat = Array::zeros(&[3, 0, 0], Dtype::Float32)?;
    Ok(vec![linalg::inv(&none)?, linalg::cholesky(&none, true)?, q, r, u, s, vt, linalg::inv(&flat)?])
}

/// Matrices of rank one and two have a factor with columns of zeros.
fn semidefinite() -> CaseResult {
    let mut results = Vec::new();
    for n in [5usize, 90] {
        let columns = data(&[2, n, 2], Dtype::Float32, 9).rint()?;
        let a = host(|| columns.matmul(&columns.swapaxes(-1, -2)?))?;
        let (lower, upper) = (linalg::cholesky(&a, false)?, linalg::cholesky(&a, true)?);
        results.push(host(|| lower.matmul(&lower.swapaxes(-1, -2)?))?);
        results.push(host(|| upper.swapaxes(-1, -2)?.matmul(&upper))?);
    }
    Ok(results)
}

/// The bytes of an error message, from the name of the op on.
fn error_bytes(op: &str, outcome: Result<Array, Error>) -> CaseResult {
    let text = match outcome.and_then(|array| array.eval()) {
        Ok(()) => "no error".to_string(),
        Err(error) => error.to_string(),
    };
    let from = text.rfind(&format!("{op}:")).unwrap_or(0);
    let bytes = text.as_bytes()[from..].to_vec();
    Ok(vec![Array::try_from_slice(&bytes, &[bytes.len()])?])
}

/// Matrices that are singular, not positive definite, or NaN; then matrices with results.
fn failures(n: usize) -> CaseResult {
    let good = positive(&[3, n, n], Dtype::Float32, 10)?;
    // The second matrix of the batch fails.
    let middle = Array::try_from_slice(&[1.0f32, 0.0, 1.0], &[3, 1, 1])?;
    let zero = good.multiply(&middle)?;
    let negative = good.subtract(
        Array::eye(n, n, 0, Dtype::Float32)?
            .multiply(&Array::try_from_slice(&[0.0f32, 100.0, 0.0], &[3, 1, 1])?)?,
    )?;
    let nan = good.add(&Array::try_from_slice(&[0.0f32, f32::NAN, 0.0], &[3, 1, 1])?)?;
    let mut results = Vec::new();
    let b = data(&[3, n, 2], Dtype::Float32, 11);
    results.extend(error_bytes("inv", linalg::inv(&zero))?);
    results.extend(error_bytes("solve", linalg::solve(&zero, &b))?);
    results.extend(error_bytes("tri_inv", linalg::tri_inv(&zero, false))?);
    results.extend(error_bytes("solve_triangular", linalg::solve_triangular(&zero, &b, true))?);
    results.extend(error_bytes("cholesky", linalg::cholesky(&negative, false))?);
    results.extend(error_bytes("cholesky", linalg::cholesky(&nan, true))?);
    results.extend(error_bytes("eigh", linalg::eigh(&nan, false).map(|found| found.1))?);
    results.extend(error_bytes("svd", linalg::svd(&nan).map(|found| found.0))?);
    let one = Array::zeros(&[n, n], Dtype::Float32)?;
    results.extend(error_bytes("inv", linalg::inv(&one))?);
    results.extend(error_bytes("inv", linalg::inv(&good))?);
    Ok(results)
}

/// A singular covariance, and one of NaN.
fn covariances() -> CaseResult {
    let key = random::key(3)?;
    let a = data(&[2, 40, 3], Dtype::Float32, 12);
    let cov = a.matmul(&a.swapaxes(-1, -2)?)?;
    let mean = Array::zeros(&[2, 40], Dtype::Float32)?;
    let nan = cov.multiply(&Array::try_from_slice(&[1.0f32, f32::NAN], &[2, 1, 1])?)?;
    Ok(vec![
        random::multivariate_normal(&mean, &cov, &[], Dtype::Float32, Some(&key))?,
        random::multivariate_normal(&mean, &nan, &[], Dtype::Float32, Some(&key))?,
    ])
}
