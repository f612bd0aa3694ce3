//! Householder reflections, single and blocked.
//!
//! A reflection is `1 - tau v v*`, with the conjugate transpose `v*`; that of a complex vector is unitary,
//! not Hermitian. Those of a block form one transformation `1 - v t v*` with `v` as columns and a small upper
//! triangular `t` (the compact WY form). Vectors are stored as rows ("lines"), each with its leading zeros
//! and one.

use hesper_compute::{Par, Simd};

use super::block::{Block, multiply, subtract};
use super::field::{Field, Scalar};
use super::largest;
use crate::Failure;

/// Reflections of a block.
pub(super) const BLOCK: usize = 64;

/// Replaces `x` by the Householder vector whose reflection, conjugated and transposed, maps it to a real
/// multiple of the first unit vector. Its leading one is implied; the multiple is stored there. Returns tau,
/// zero if nothing is to be reflected.
pub(super) fn reflection<T: Field>(simd: Simd, x: &mut [T]) -> T {
    let Some((head, tail)) = x.split_first_mut() else { return T::ZERO };
    let square = T::Real::dot(simd, T::parts(tail), T::parts(tail));
    if head.square() + square < T::Real::SMALLEST / (T::Real::EPSILON * T::Real::EPSILON) {
        return small_reflection(simd, x);
    }
    if square == T::Real::ZERO && head.is_real() {
        return T::ZERO;
    }
    let length = (head.square() + square).sqrt();
    let to = if head.re() > T::Real::ZERO { -length } else { length };
    let tau = (T::from_real(to) - *head).over(to);
    let factor = T::ONE / (*head - T::from_real(to));
    tail.iter_mut().for_each(|x| *x = *x * factor);
    *head = T::from_real(to);
    tau
}

/// [`reflection`] for elements whose squares underflow.
fn small_reflection<T: Field>(simd: Simd, x: &mut [T]) -> T {
    let most = largest(T::parts(x));
    if most < T::Real::SMALLEST {
        x[0] = T::from_real(x[0].re());
        x[1..].fill(T::ZERO);
        return T::ZERO;
    }
    x.iter_mut().for_each(|x| *x = x.over(most));
    let tau = reflection(simd, x);
    x[0] = x[0].times(most);
    // Without a reflection there is no vector: restore the rest.
    if tau == T::ZERO {
        x[1..].fill(T::ZERO);
    }
    tau
}

/// `x - tau v (v* x)` for a vector `v` whose first element is an implied one.
pub(super) fn reflect<T: Field>(simd: Simd, tau: T, v: &[T], x: &mut [T]) {
    let by = tau * (x[0] + T::inner(simd, &v[1..], &x[1..]));
    x[0] = x[0] - by;
    T::axpy(simd, -by, &v[1..], &mut x[1..]);
}

/// A block of reflections: lines of vectors `stride` apart, and the row-major matrix `t`.
pub(super) struct BlockReflector<'a, T> {
    lines: Block<'a, T>,
    length: usize,
    t: Vec<T>,
    size: usize,
}

impl<'a, T: Field> BlockReflector<'a, T> {
    /// Lines of `length` elements from `lines` on, one per element of `taus`.
    pub(super) fn new(
        par: &dyn Par,
        lines: Block<'a, T>,
        length: usize,
        taus: &[T],
    ) -> Result<Self, Failure> {
        let size = taus.len();
        let mut products = vec![T::ZERO; size * size];
        let (left, right) = (lines.conjugated(), lines.transposed());
        multiply(par, [size, length, size], left, right, &mut products, size)?;
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

    /// Multiplies each of `count` rows from the right by the conjugated transformation, or by its transpose:
    /// applies the conjugate transpose, or the transformation itself, to columns that are stored as rows.
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
        let (from, columns) = (Block::rows(rows, stride), self.lines.transposed().conjugated());
        multiply(par, [count, length, size], from, columns, &mut along, size)?;
        let t = Block::rows(&self.t, size);
        let t = if transposed { t.transposed() } else { t.conjugated() };
        multiply(par, [count, size, size], Block::rows(&along, size), t, &mut mixed, size)?;
        subtract(par, [count, size, length], Block::rows(&mixed, size), self.lines, rows, stride)
    }
}

/// Multiplies rows from the right by the transposes of many reflections, the last one first: turns rows of
/// the unit matrix into those of the transposed unitary factor.
///
/// Reflection `i` has its leading one at `i + shift` of a line of `length` elements. With `skip`, rows before
/// the first reflection of a block are known not to change.
pub(super) fn apply_all<T: Field>(
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
        let together = BlockReflector::new(par, block, length - from, &taus[first..first + size])?;
        let begin = if skip { from } else { 0 };
        let count = rows.len() / length - begin;
        together.apply(par, &mut rows[begin * length + from..], count, length, true)?;
    }
    Ok(())
}
