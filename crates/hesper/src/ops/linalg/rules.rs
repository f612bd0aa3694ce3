//! Derivatives of linear algebra.
//!
//! Cotangents of factors are those of a small change of the matrix that keeps the factors' structure:
//! triangles stay triangles, orthonormal columns orthonormal.

use super::factor::Work;
use super::{eigh, solve, solve_triangular, svd};
use crate::array::Array;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::ops::logic::select;
use crate::transform::rule::{Backward, Cotangents, zeros_like};

fn turned(x: &Array) -> Result<Array> {
    x.swapaxes(-1, -2)
}

/// `a^T b c^T`.
fn between(a: &Array, b: &Array, c: &Array) -> Result<Array> {
    turned(a)?.matmul(b)?.matmul(&turned(c)?)
}

/// The triangle alone.
fn triangle(x: &Array, upper: bool) -> Result<Array> {
    if upper { x.triu(0) } else { x.tril(0) }
}

/// The mean of a matrix and its transpose.
fn symmetric(x: &Array) -> Result<Array> {
    x.add(&turned(x)?)?.multiply(0.5)
}

/// Cotangents of what a factorisation was applied to, from those of its results.
pub(super) fn cotangents(work: Work, rule: &Backward<'_>, results: &[Array]) -> Result<Cotangents> {
    let a = &rule.inputs[0];
    if a.dtype().is(Category::Complex) {
        return Err(Error::value("linalg", "derivatives are those of real matrices"));
    }
    // The cotangent of a result, zeros if it has none.
    let cotangent = |at: usize| match &rule.cotangents[at] {
        Some(cotangent) => Ok(cotangent.clone()),
        None => zeros_like(&results[at]),
    };
    let none = |what: &str| Err(Error::value(what, "has no derivative"));
    match work {
        Work::Inverse => rule.only(between(&results[0], &cotangent(0)?, &results[0])?.negative()),
        Work::TriangularInverse { upper } => {
            let whole = between(&results[0], &cotangent(0)?, &results[0])?.negative()?;
            rule.only(triangle(&whole, upper))
        }
        Work::Solve | Work::SolveTriangular { .. } => {
            let at = turned(a)?;
            let side = match work {
                Work::SolveTriangular { upper } => solve_triangular(&at, &cotangent(0)?, !upper)?,
                _ => solve(&at, &cotangent(0)?)?,
            };
            rule.each(|which| {
                if which == 1 {
                    return Ok(Some(side.clone()));
                }
                let whole = side.matmul(&turned(&results[0])?)?.negative()?;
                Ok(Some(match work {
                    Work::SolveTriangular { upper } => triangle(&whole, upper)?,
                    _ => whole,
                }))
            })
        }
        Work::Cholesky { upper } => {
            let (factor, change) = (results[0].clone(), cotangent(0)?);
            let (lower, change) = if upper { (turned(&factor)?, turned(&change)?) } else { (factor, change) };
            let inner = turned(&lower)?.matmul(&change)?;
            // The lower triangle with half of its diagonal.
            let half = inner.tril(0)?.add(&inner.tril(-1)?)?.multiply(0.5)?;
            let left = solve_triangular(&turned(&lower)?, &half, true)?;
            let whole = turned(&solve_triangular(&turned(&lower)?, &turned(&left)?, true)?)?;
            rule.only(symmetric(&whole))
        }
        Work::Lu => {
            let (factors, places) = (&results[0], &results[2]);
            let [.., m, n] = *a.shape() else { return none("lu") };
            if m != n {
                return none("lu of matrices that are not square");
            }
            let change = cotangent(0)?;
            let lower = factors.tril(-1)?.add(&Array::eye(n, n, 0, a.dtype())?)?;
            let upper = factors.triu(0)?;
            let below = turned(&lower)?.matmul(&change.tril(-1)?)?.tril(-1)?;
            let above = change.triu(0)?.matmul(&turned(&upper)?)?.triu(0)?;
            let left = solve_triangular(&turned(&lower)?, &below.add(&above)?, true)?;
            let rows = turned(&solve_triangular(&upper, &turned(&left)?, true)?)?;
            let which = places.expand_dims(&[-1])?.broadcast_to(a.shape())?;
            rule.only(rows.take_along_axis(&which, Some(-2)))
        }
        Work::Qr => {
            let (q, r) = (&results[0], &results[1]);
            let [.., m, n] = *a.shape() else { return none("qr") };
            if m < n {
                return none("qr of matrices with more columns than rows");
            }
            let (change_q, change_r) = (cotangent(0)?, cotangent(1)?);
            let inner = r.matmul(&turned(&change_r)?)?.subtract(turned(&change_q)?.matmul(q)?)?;
            let mirrored = inner.tril(0)?.add(&turned(&inner.tril(-1)?)?)?;
            let whole = change_q.add(&q.matmul(&mirrored)?)?;
            rule.only(turned(&solve_triangular(r, &turned(&whole)?, true)?))
        }
        Work::Eigh { upper, vectors } => {
            let (values, basis) =
                if vectors { (results[0].clone(), results[1].clone()) } else { eigh(a, upper)? };
            let change = cotangent(0)?.expand_dims(&[-2])?;
            let mut inner =
                Array::identity(values.shape()[values.ndim() - 1], a.dtype())?.multiply(&change)?;
            if vectors && rule.cotangents[1].is_some() {
                let gaps = values.expand_dims(&[-2])?.subtract(values.expand_dims(&[-1])?)?;
                let zero = zeros_like(&gaps)?;
                let factors = select(&gaps.equal(&zero)?, &zero, &gaps.reciprocal()?)?;
                inner = inner.add(turned(&basis)?.matmul(&cotangent(1)?)?.multiply(&factors)?)?;
            }
            rule.only(symmetric(&basis.matmul(&inner)?.matmul(&turned(&basis)?)?))
        }
        Work::SingularValues => {
            let (u, s, vt) = svd(a)?;
            let (k, rank) = (s.shape()[s.ndim() - 1] as isize, a.ndim());
            let u = u.slice_axis(rank - 1, 0, k, 1)?.multiply(&cotangent(0)?.expand_dims(&[-2])?)?;
            rule.only(u.matmul(&vt.slice_axis(rank - 2, 0, k, 1)?))
        }
        Work::Svd if rule.cotangents[0].is_none() && rule.cotangents[2].is_none() => {
            let (k, rank) = (results[1].shape()[results[1].ndim() - 1] as isize, a.ndim());
            let u = results[0].slice_axis(rank - 1, 0, k, 1)?;
            let u = u.multiply(&cotangent(1)?.expand_dims(&[-2])?)?;
            rule.only(u.matmul(&results[2].slice_axis(rank - 2, 0, k, 1)?))
        }
        Work::Svd => none("svd, of its vectors,"),
        Work::Eig { .. } => none("eig"),
    }
}
