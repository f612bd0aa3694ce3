//! Triangular solves by recursion: half of the unknowns, a product, the other half.

use hesper_compute::{MAX_ELIMINATED, Par};

use super::block::{Block, Rows, subtract};
use super::field::Field;
use crate::Failure;

/// Unknowns solved for without blocking.
const BASE_SIZE: usize = MAX_ELIMINATED;
/// The same for one right-hand side, where matrix products are not faster than vector products.
const BASE_SIZE_ONE_COLUMN: usize = 64;

/// A triangular matrix, and whether its diagonal is an implied one.
#[derive(Clone, Copy)]
pub struct Factor<'a, T> {
    pub(crate) matrix: Block<'a, T>,
    pub(crate) unit: bool,
}

impl<T: Field> Factor<'_, T> {
    fn from(self, at: usize) -> Self {
        Self { matrix: self.matrix.from(at, at), ..self }
    }

    /// A part of a row, if it is contiguous.
    fn row(&self, row: usize, from: usize, to: usize) -> &[T] {
        let start = self.matrix.first + row * self.matrix.down + from;
        &self.matrix.data[start..start + to - from]
    }
}

/// Replaces the `n` rows of `b`, `count` elements each and `stride` apart, by the solution of `l x = b` for a
/// lower triangular `l`.
pub(crate) fn solve_lower<T: Field>(
    par: &dyn Par,
    n: usize,
    l: Factor<'_, T>,
    b: &mut [T],
    count: usize,
    stride: usize,
) -> Result<(), Failure> {
    let simd = par.simd();
    let one = count == 1 && stride == 1 && l.matrix.across == 1;
    if one && n <= BASE_SIZE_ONE_COLUMN {
        for i in 0..n {
            let x = b[i] - T::dot(simd, l.row(i, 0, i), &b[..i]);
            b[i] = if l.unit { x } else { x / l.matrix.element(i, i) };
        }
        return Ok(());
    }
    if n <= BASE_SIZE && l.unit && l.matrix.across == 1 {
        let rows = Rows::new(&l.matrix.data[l.matrix.first..], l.matrix.down, n, n);
        T::solve_unit(simd, rows, b, stride, count);
        return Ok(());
    }
    if n <= BASE_SIZE {
        for i in 0..n {
            let (done, rest) = b.split_at_mut(i * stride);
            let row = &mut rest[..count];
            for j in 0..i {
                T::axpy(simd, -l.matrix.element(i, j), &done[j * stride..][..count], row);
            }
            if !l.unit {
                let pivot = l.matrix.element(i, i);
                row.iter_mut().for_each(|x| *x = *x / pivot);
            }
        }
        return Ok(());
    }
    let half = half_of(n, if one { BASE_SIZE_ONE_COLUMN } else { BASE_SIZE });
    let (above, below) = b.split_at_mut(half * stride);
    solve_lower(par, half, l, above, count, stride)?;
    let (known, factor) = (Block::rows(above, stride), l.matrix.from(half, 0));
    subtract(par, [n - half, half, count], factor, known, below, stride)?;
    solve_lower(par, n - half, l.from(half), below, count, stride)
}

/// [`solve_lower`] for an upper triangular matrix.
pub(crate) fn solve_upper<T: Field>(
    par: &dyn Par,
    n: usize,
    u: Factor<'_, T>,
    b: &mut [T],
    count: usize,
    stride: usize,
) -> Result<(), Failure> {
    let simd = par.simd();
    let one = count == 1 && stride == 1 && u.matrix.across == 1;
    if one && n <= BASE_SIZE_ONE_COLUMN {
        for i in (0..n).rev() {
            let x = b[i] - T::dot(simd, u.row(i, i + 1, n), &b[i + 1..n]);
            b[i] = if u.unit { x } else { x / u.matrix.element(i, i) };
        }
        return Ok(());
    }
    if n <= BASE_SIZE {
        for i in (0..n).rev() {
            let (rest, done) = b.split_at_mut((i * stride + count).min(b.len()));
            let row = &mut rest[i * stride..];
            for j in i + 1..n {
                let known = &done[j * stride - i * stride - count..][..count];
                T::axpy(simd, -u.matrix.element(i, j), known, row);
            }
            if !u.unit {
                let pivot = u.matrix.element(i, i);
                row.iter_mut().for_each(|x| *x = *x / pivot);
            }
        }
        return Ok(());
    }
    let half = half_of(n, if one { BASE_SIZE_ONE_COLUMN } else { BASE_SIZE });
    let (above, below) = b.split_at_mut(half * stride);
    solve_upper(par, n - half, u.from(half), below, count, stride)?;
    let (known, factor) = (Block::rows(below, stride), u.matrix.from(0, half));
    subtract(par, [half, n - half, count], factor, known, above, stride)?;
    solve_upper(par, half, u, above, count, stride)
}

/// About half of `n`, rounded to whole blocks of `few`.
pub(super) fn half_of(n: usize, few: usize) -> usize {
    (n / 2).next_multiple_of(few)
}
