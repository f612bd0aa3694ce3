//! Triangular solves by recursion: half of the unknowns, a product, the other half.

use hesper_compute::{Lines, MAX_ELIMINATED, Par, axpy, dot, solve_unit};

use super::Scalar;
use super::block::{Block, rows_mut, subtract};
use crate::Failure;

/// Unknowns solved for without blocking.
const BASE_SIZE: usize = MAX_ELIMINATED;
/// The same for one right-hand side, where matrix products are not faster than vector products.
const BASE_SIZE_ONE_COLUMN: usize = 64;

/// A triangular matrix, and whether its diagonal is an implied one.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a, T> {
    pub(crate) matrix: Block<'a, T>,
    pub(crate) unit: bool,
}

impl<T: Scalar> Factor<'_, T> {
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
pub(crate) fn solve_lower<T: Scalar>(
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
            let x = b[i] - dot(simd, l.row(i, 0, i), &b[..i]);
            b[i] = if l.unit { x } else { x / l.matrix.at(i, i) };
        }
        return Ok(());
    }
    if n <= BASE_SIZE && l.unit && l.matrix.across == 1 {
        let rows = Lines::new(&l.matrix.data[l.matrix.first..], l.matrix.down, n, n);
        solve_unit(simd, rows, b, stride, count);
        return Ok(());
    }
    if n <= BASE_SIZE {
        for i in 0..n {
            let (done, rest) = b.split_at_mut(i * stride);
            let row = &mut rest[..count];
            for j in 0..i {
                axpy(simd, -l.matrix.at(i, j), &done[j * stride..][..count], row);
            }
            if !l.unit {
                let pivot = l.matrix.at(i, i);
                row.iter_mut().for_each(|x| *x = *x / pivot);
            }
        }
        return Ok(());
    }
    let half = half_of(n, if one { BASE_SIZE_ONE_COLUMN } else { BASE_SIZE });
    let (above, below) = b.split_at_mut(half * stride);
    solve_lower(par, half, l, above, count, stride)?;
    let known = Block::rows(above, stride).view(half, count)?;
    let factor = l.matrix.from(half, 0).view(n - half, half)?;
    subtract(par, factor, known, rows_mut(below, n - half, count, stride)?)?;
    solve_lower(par, n - half, l.from(half), below, count, stride)
}

/// [`solve_lower`] for an upper triangular matrix.
pub(crate) fn solve_upper<T: Scalar>(
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
            let x = b[i] - dot(simd, u.row(i, i + 1, n), &b[i + 1..n]);
            b[i] = if u.unit { x } else { x / u.matrix.at(i, i) };
        }
        return Ok(());
    }
    if n <= BASE_SIZE {
        for i in (0..n).rev() {
            let (rest, done) = b.split_at_mut((i * stride + count).min(b.len()));
            let row = &mut rest[i * stride..];
            for j in i + 1..n {
                let known = &done[j * stride - i * stride - count..][..count];
                axpy(simd, -u.matrix.at(i, j), known, row);
            }
            if !u.unit {
                let pivot = u.matrix.at(i, i);
                row.iter_mut().for_each(|x| *x = *x / pivot);
            }
        }
        return Ok(());
    }
    let half = half_of(n, if one { BASE_SIZE_ONE_COLUMN } else { BASE_SIZE });
    let (above, below) = b.split_at_mut(half * stride);
    solve_upper(par, n - half, u.from(half), below, count, stride)?;
    let known = Block::rows(below, stride).view(n - half, count)?;
    let factor = u.matrix.from(0, half).view(half, n - half)?;
    subtract(par, factor, known, rows_mut(above, half, count, stride)?)?;
    solve_upper(par, half, u, above, count, stride)
}

/// About half of `n`, rounded to whole blocks of `few`.
pub(super) fn half_of(n: usize, few: usize) -> usize {
    (n / 2).next_multiple_of(few)
}
