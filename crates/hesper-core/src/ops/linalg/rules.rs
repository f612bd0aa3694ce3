//! Derivatives of linear algebra.
//!
//! Cotangents of factors are those of a small change of the matrix that keeps the factors' structure:
//! triangles stay triangles, orthonormal columns orthonormal.

use super::factor::Work;
use super::{eigh, solve, solve_triangular, svd};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::graph::rule::{Backward, Cotangents, zeros_like};
use crate::ops::concat::concatenate;
use crate::ops::logic::select;
use crate::ops::source::stop_gradient;

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

/// `1 / x`, and zero where `x` is: there, also for derivatives.
fn reciprocal_or_zero(x: &Array) -> Result<Array> {
    let (flat, zero) = (x.equal(0)?, zeros_like(x)?);
    select(&flat, &zero, &select(&flat, &x.ones_like()?, x)?.reciprocal()?)
}

/// The cotangent of a matrix from those of its singular vectors and values: `u (inner) vt`, where `inner` is
/// that of `u^T a vt^T`. Vectors of no singular value turn with the others and not among themselves.
fn of_singular(results: &[Array], changes: [Array; 3]) -> Result<Array> {
    let [u, s, vt] = results else { return Err(Error::value("svd", "has three results")) };
    let [change_u, change_s, change_vt] = changes;
    let last = |x: &Array| x.shape()[x.ndim() - 1] as isize;
    let (m, k, n) = (last(u), last(s), last(vt));
    // What turns each pair of vectors: antisymmetric.
    let turning = |inner: Array| inner.subtract(&turned(&inner)?);
    let left = turning(turned(u)?.matmul(&change_u)?)?;
    let right = turning(vt.matmul(&turned(&change_vt)?)?)?;
    let block = |x: &Array, rows: (isize, isize), columns: (isize, isize)| {
        let rank = x.ndim();
        x.slice_axis(rank - 2, rows.0, rows.1, 1)?.slice_axis(rank - 1, columns.0, columns.1, 1)
    };
    let (of_row, of_column) = (s.expand_dims(-1)?, s.expand_dims(-2)?);
    let gaps = of_column.square()?.subtract(of_row.square()?)?;
    let among = block(&left, (0, k), (0, k))?.multiply(&of_column)?;
    let among = among.add(block(&right, (0, k), (0, k))?.multiply(&of_row)?)?;
    let values = Array::identity(k as usize, s.dtype())?.multiply(&change_s.expand_dims(-2)?)?;
    let mut inner = among.multiply(reciprocal_or_zero(&gaps)?)?.add(values)?;
    if m > k {
        let below = block(&left, (k, m), (0, k))?.multiply(reciprocal_or_zero(&of_column)?)?;
        inner = concatenate(&[inner, below], -2)?;
    }
    if n > k {
        let beside = turned(&block(&right, (k, n), (0, k))?)?.multiply(reciprocal_or_zero(&of_row)?)?;
        inner = concatenate(&[inner, beside], -1)?;
    }
    u.matmul(&inner)?.matmul(vt)
}

/// The cotangent of a matrix with at least as many rows as columns from those of `q` and `r`.
fn of_orthonormal(q: &Array, r: &Array, change_q: &Array, change_r: &Array) -> Result<Array> {
    let inner = r.matmul(&turned(change_r)?)?.subtract(turned(change_q)?.matmul(q)?)?;
    let mirrored = inner.tril(0)?.add(&turned(&inner.tril(-1)?)?)?;
    let whole = change_q.add(&q.matmul(&mirrored)?)?;
    turned(&solve_triangular(r, &turned(&whole)?, true)?)
}

/// Cotangents of what a factorisation was applied to, from those of its results.
pub fn cotangents(work: Work, rule: &Backward<'_>, results: &[Array]) -> Result<Cotangents> {
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
            let (k, rank) = (m.min(n), a.ndim());
            let block = |x: &Array, rows: (usize, usize), columns: (usize, usize)| {
                let rows = x.slice_axis(rank - 2, rows.0 as isize, rows.1 as isize, 1)?;
                rows.slice_axis(rank - 1, columns.0 as isize, columns.1 as isize, 1)
            };
            let (change, head) = (cotangent(0)?, block(factors, (0, k), (0, k))?);
            let (lower, upper) = (head.tril(-1)?.add(&Array::eye(k, k, 0, a.dtype())?)?, head.triu(0)?);
            let mut below = turned(&lower)?.matmul(&block(&change, (0, k), (0, k))?.tril(-1)?)?;
            let mut above = block(&change, (0, k), (0, k))?.triu(0)?.matmul(&turned(&upper)?)?;
            // Rows below the square, or columns beside it, are solved for with the factors of the square:
            // their cotangents go through these.
            let mut outer = None;
            if m > n {
                let (rest, change) = (block(factors, (k, m), (0, k))?, block(&change, (k, m), (0, k))?);
                above = above.subtract(&turned(&rest)?.matmul(&change)?)?;
                outer = Some((-2, turned(&solve_triangular(&upper, &turned(&change)?, true)?)?));
            }
            if n > m {
                let (rest, change) = (block(factors, (0, k), (k, n))?, block(&change, (0, k), (k, n))?);
                below = below.subtract(&change.matmul(&turned(&rest)?)?)?;
                outer = Some((-1, solve_triangular(&turned(&lower)?, &change, true)?));
            }
            let inner = below.tril(-1)?.add(&above.triu(0)?)?;
            let left = solve_triangular(&turned(&lower)?, &inner, true)?;
            let mut rows = turned(&solve_triangular(&upper, &turned(&left)?, true)?)?;
            if let Some((axis, outer)) = outer {
                rows = concatenate(&[rows, outer], axis)?;
            }
            let which = places.expand_dims(-1)?.broadcast_to(a.shape())?;
            rule.only(rows.take_along_axis(&stop_gradient(&which)?, Some(-2)))
        }
        Work::Qr => {
            let (q, r) = (&results[0], &results[1]);
            let [.., m, n] = *a.shape() else { return none("qr") };
            let (change_q, change_r) = (cotangent(0)?, cotangent(1)?);
            if m >= n {
                return rule.only(of_orthonormal(q, r, &change_q, &change_r));
            }
            // The first columns make `q`; the others are `q` times what stands in `r`.
            let (rank, m, n) = (a.ndim(), m as isize, n as isize);
            let part = |x: &Array, from: isize, to: isize| x.slice_axis(rank - 1, from, to, 1);
            let beside = part(&change_r, m, n)?;
            let change_q = change_q.add(part(a, m, n)?.matmul(&turned(&beside)?)?)?;
            let first = of_orthonormal(q, &part(r, 0, m)?, &change_q, &part(&change_r, 0, m)?)?;
            rule.only(concatenate(&[first, q.matmul(&beside)?], -1))
        }
        Work::Eigh { upper, vectors } => {
            let (values, basis) =
                if vectors { (results[0].clone(), results[1].clone()) } else { eigh(a, upper)? };
            let change = cotangent(0)?.expand_dims(-2)?;
            let mut inner =
                Array::identity(values.shape()[values.ndim() - 1], a.dtype())?.multiply(&change)?;
            if vectors && rule.cotangents[1].is_some() {
                let gaps = values.expand_dims(-2)?.subtract(values.expand_dims(-1)?)?;
                let factors = reciprocal_or_zero(&gaps)?;
                inner = inner.add(turned(&basis)?.matmul(&cotangent(1)?)?.multiply(&factors)?)?;
            }
            rule.only(symmetric(&basis.matmul(&inner)?.matmul(&turned(&basis)?)?))
        }
        Work::SingularValues => {
            let (u, s, vt) = svd(a)?;
            let (k, rank) = (s.shape()[s.ndim() - 1] as isize, a.ndim());
            let u = u.slice_axis(rank - 1, 0, k, 1)?.multiply(&cotangent(0)?.expand_dims(-2)?)?;
            rule.only(u.matmul(&vt.slice_axis(rank - 2, 0, k, 1)?))
        }
        Work::Svd if rule.cotangents[0].is_none() && rule.cotangents[2].is_none() => {
            let (k, rank) = (results[1].shape()[results[1].ndim() - 1] as isize, a.ndim());
            let u = results[0].slice_axis(rank - 1, 0, k, 1)?;
            let u = u.multiply(&cotangent(1)?.expand_dims(-2)?)?;
            rule.only(u.matmul(&results[2].slice_axis(rank - 2, 0, k, 1)?))
        }
        Work::Svd => rule.only(of_singular(results, [cotangent(0)?, cotangent(1)?, cotangent(2)?])),
        Work::Eig { .. } => none("eig"),
    }
}
