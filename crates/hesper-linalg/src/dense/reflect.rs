//! Householder's reflections, alone and in blocks.
//!
//! A reflection is `1 - tau v v'`. Those of a block are one transformation `1 - v t v'` with `v` as columns and
//! a small upper triangular `t`; here vectors are kept as rows ("lines"), each with its zeros before and its
//! one.

use hesper_compute::{Par, Simd, axpy, dot};

use super::block::{Block, multiply, rows_mut, subtract};
use super::{Scalar, largest};
use crate::Failure;

/// Reflections of a block.
pub(super) const BLOCK: usize = 64;

/// Makes `x` the vector of a reflection that takes it to a multiple of the first unit vector: the one is left
/// out and the multiple in its place. Gives tau, zero if nothing is to be done.
pub(super) fn reflection<T: Scalar>(simd: Simd, x: &mut [T]) -> T {
    let Some((head, tail)) = x.split_first_mut() else { return T::ZERO };
    let square = dot(simd, tail, tail);
    if *head * *head + square < T::SMALLEST / (T::EPSILON * T::EPSILON) {
        return small_reflection(simd, x);
    }
    if square == T::ZERO {
        return T::ZERO;
    }
    let length = (*head * *head + square).sqrt();
    let to = if *head > T::ZERO { -length } else { length };
    let tau = (to - *head) / to;
    let factor = T::ONE / (*head - to);
    tail.iter_mut().for_each(|x| *x = *x * factor);
    *head = to;
    tau
}

/// The same for numbers whose squares vanish.
fn small_reflection<T: Scalar>(simd: Simd, x: &mut [T]) -> T {
    let most = largest(x);
    if most < T::SMALLEST {
        x[1..].fill(T::ZERO);
        return T::ZERO;
    }
    x.iter_mut().for_each(|x| *x = *x / most);
    let tau = reflection(simd, x);
    x[0] = x[0] * most;
    // Without a reflection there is no vector: the rest is what it was.
    if tau == T::ZERO {
        x[1..].fill(T::ZERO);
    }
    tau
}

/// `x - tau (x . v) v` for a vector `v` whose first element counts as one.
pub(super) fn reflect<T: Scalar>(simd: Simd, tau: T, v: &[T], x: &mut [T]) {
    let by = tau * (x[0] + dot(simd, &v[1..], &x[1..]));
    x[0] = x[0] - by;
    axpy(simd, -by, &v[1..], &mut x[1..]);
}

/// Reflections as one transformation: lines of vectors `stride` apart, and the matrix `t` row by row.
pub(super) struct Together<'a, T> {
    lines: Block<'a, T>,
    length: usize,
    t: Vec<T>,
    size: usize,
}

impl<'a, T: Scalar> Together<'a, T> {
    /// Lines of `length` numbers from `lines` on, one for each of `taus`.
    pub(super) fn new(
        par: &dyn Par,
        lines: Block<'a, T>,
        length: usize,
        taus: &[T],
    ) -> Result<Self, Failure> {
        let size = taus.len();
        let mut products = vec![T::ZERO; size * size];
        let (left, right) = (lines.view(size, length)?, lines.turned().view(length, size)?);
        multiply(par, left, right, rows_mut(&mut products, size, size, size)?)?;
        let mut t = vec![T::ZERO; size * size];
        for (column, tau) in taus.iter().enumerate() {
            for row in 0..column {
                let mut sum = T::ZERO;
                for k in row..column {
                    sum = sum + t[row * size + k] * products[k * size + column];
                }
                t[row * size + column] = -*tau * sum;
            }
            t[column * size + column] = *tau;
        }
        Ok(Self { lines, length, t, size })
    }

    /// Multiplies each of `count` rows from the right by the transformation, or by its transpose.
    pub(super) fn apply(
        &self,
        par: &dyn Par,
        rows: &mut [T],
        count: usize,
        stride: usize,
        transposed: bool,
    ) -> Result<(), Failure> {
        let (size, length) = (self.size, self.length);
        let (mut along, mut mixed) = (vec![T::ZERO; count * size], vec![T::ZERO; count * size]);
        let from = Block::rows(rows, stride).view(count, length)?;
        let columns = self.lines.turned().view(length, size)?;
        multiply(par, from, columns, rows_mut(&mut along, count, size, size)?)?;
        let t = Block::rows(&self.t, size);
        let t = if transposed { t.turned() } else { t };
        let along = Block::rows(&along, size).view(count, size)?;
        multiply(par, along, t.view(size, size)?, rows_mut(&mut mixed, count, size, size)?)?;
        let mixed = Block::rows(&mixed, size).view(count, size)?;
        subtract(par, mixed, self.lines.view(size, length)?, rows_mut(rows, count, length, stride)?)
    }
}

/// Multiplies rows from the right by the transposes of many reflections, the last one first: what makes rows of
/// the unit matrix those of the transposed orthogonal factor.
///
/// Reflection `i` has its one at `i + shift` of a line of `length` numbers. If `skip`, rows before the first
/// reflection of a block are known not to change.
pub(super) fn apply_all<T: Scalar>(
    par: &dyn Par,
    lines: &[T],
    length: usize,
    shift: usize,
    taus: &[T],
    rows: &mut [T],
    skip: bool,
) -> Result<(), Failure> {
    for first in (0..taus.len()).step_by(BLOCK).rev() {
        let size = BLOCK.min(taus.len() - first);
        let from = first + shift;
        let block = Block::rows(lines, length).from(first, from);
        let together = Together::new(par, block, length - from, &taus[first..first + size])?;
        let begin = if skip { from } else { 0 };
        let count = rows.len() / length - begin;
        together.apply(par, &mut rows[begin * length + from..], count, length, true)?;
    }
    Ok(())
}
