//! SVD: QR if the matrix is tall, reduction to bidiagonal form, divide and conquer, and back-transformation.

use hesper_compute::Par;

use super::balance;
use super::bidiagonal::Bidiagonal;
use super::block::transpose;
use super::field::{Field, Scalar};
use super::qr::Reflected;
use super::singular::{bidiagonal_values, bidiagonal_vectors};
use crate::Failure;

/// Left singular vectors as columns, singular values in descending order, and right singular vectors as rows.
pub(crate) fn svd<T: Field>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    u: &mut [T],
    s: &mut [T::Real],
    vt: &mut [T],
) -> Result<(), Failure> {
    let (long, short) = (rows.max(columns), rows.min(columns));
    if short == 0 {
        u.iter_mut().enumerate().for_each(|(at, x)| *x = unit(at, rows));
        vt.iter_mut().enumerate().for_each(|(at, x)| *x = unit(at, columns));
        return Ok(());
    }
    if rows < columns {
        let mut transposed = vec![T::ZERO; a.len()];
        transpose(par, (rows, columns), a, columns, &mut transposed, rows)?;
        let mut right = vec![T::ZERO; short * short];
        vectors(par, long, short, &transposed, vt, s, &mut right)?;
        transpose(par, (rows, rows), &right, rows, u, rows)
    } else {
        let mut left = vec![T::ZERO; long * long];
        vectors(par, long, short, a, &mut left, s, vt)?;
        transpose(par, (rows, rows), &left, rows, u, rows)
    }
}

/// Element `at` of a unit matrix of `n` rows.
fn unit<T: Field>(at: usize, n: usize) -> T {
    if at / n == at % n { T::ONE } else { T::ZERO }
}

/// The vectors of both sides as rows, those of the right side conjugated, for a matrix with at most as many
/// columns as rows.
fn vectors<T: Field>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    left: &mut [T],
    s: &mut [T::Real],
    right: &mut [T],
) -> Result<(), Failure> {
    let scale = balance(T::parts(a));
    let (first, found) = reduce(par, rows, columns, a, scale)?;
    let (mut inner, mut outer) =
        (vec![T::Real::ZERO; columns * columns], vec![T::Real::ZERO; columns * columns]);
    let values = bidiagonal_vectors(par, &found.diagonal, &found.superdiagonal, &mut inner, &mut outer)?;
    right.copy_from_slice(&T::from_reals(outer));
    found.restore_right(par, right)?;
    T::conjugate(right);
    let mut inner = T::from_reals(inner);
    if first.is_some() {
        found.restore_left(par, &mut inner)?;
    }
    left.fill(T::ZERO);
    for (to, from) in left.chunks_exact_mut(rows).zip(inner.chunks_exact(columns)) {
        to[..columns].copy_from_slice(from);
    }
    (columns..rows).for_each(|at| left[at * rows + at] = T::ONE);
    match first {
        Some(first) => first.restore(par, left, false)?,
        None => found.restore_left(par, left)?,
    }
    write(&values, scale, s);
    Ok(())
}

/// Singular values in descending order.
pub(crate) fn singular_values<T: Field>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    s: &mut [T::Real],
) -> Result<(), Failure> {
    let (long, short) = (rows.max(columns), rows.min(columns));
    let scale = balance(T::parts(a));
    let found = if rows < columns {
        let mut transposed = vec![T::ZERO; a.len()];
        transpose(par, (rows, columns), a, columns, &mut transposed, rows)?;
        reduce(par, long, short, &transposed, scale)?.1
    } else {
        reduce(par, long, short, a, scale)?.1
    };
    write(&bidiagonal_values(par, &found.diagonal, &found.superdiagonal)?, scale, s);
    Ok(())
}

fn write<T: Scalar>(values: &[f64], scale: Option<T>, to: &mut [T]) {
    let scale = scale.map_or(1.0, Scalar::to_f64);
    to.iter_mut().zip(values).for_each(|(to, value)| *to = T::of(value.max(0.0) / scale));
}

/// The bidiagonal form of the matrix or, if it is tall, of its triangular factor.
fn reduce<T: Field>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    scale: Option<T::Real>,
) -> Result<(Option<Reflected<T>>, Bidiagonal<T>), Failure> {
    if rows > columns + columns / 2 {
        let first = Reflected::new(par, rows, columns, a, scale)?;
        let found = Bidiagonal::new(par, columns, columns, |to, stride| {
            transpose(par, (columns, columns), &first.work, rows, to, stride)?;
            (0..columns).for_each(|row| to[row * stride..][..row].fill(T::ZERO));
            Ok(())
        })?;
        return Ok((Some(first), found));
    }
    let found = Bidiagonal::new(par, rows, columns, |to, stride| {
        for (to, from) in to.chunks_mut(stride).zip(a.chunks_exact(columns)) {
            match scale {
                Some(scale) => to.iter_mut().zip(from).for_each(|(to, x)| *to = x.times(scale)),
                None => to[..columns].copy_from_slice(from),
            }
        }
        Ok(())
    })?;
    Ok((None, found))
}
