//! QR factorization by blocked Householder reflections.

use hesper_compute::Par;

use super::balance;
use super::block::{Block, transpose};
use super::field::Field;
use super::reflect::{BLOCK, BlockReflector, apply_all, reflect, reflection};
use super::triangular::half_of;
use crate::Failure;

/// Columns reflected without blocking.
const BASE_SIZE: usize = 16;

/// A matrix reduced to upper triangular form by reflections of its columns.
pub(super) struct Reflected<T> {
    rows: usize,
    /// The triangular matrix, column by column; unspecified values below it.
    pub(super) work: Vec<T>,
    lines: Vec<T>,
    taus: Vec<T>,
}

impl<T: Field> Reflected<T> {
    /// Reduces a matrix times `scale`.
    pub(super) fn new(
        par: &dyn Par,
        rows: usize,
        columns: usize,
        a: &[T],
        scale: Option<T::Real>,
    ) -> Result<Self, Failure> {
        let size = rows.min(columns);
        // Column-major.
        let mut work = vec![T::ZERO; rows * columns];
        transpose(par, (rows, columns), a, columns, &mut work, rows)?;
        if let Some(scale) = scale {
            work.iter_mut().for_each(|x| *x = x.times(scale));
        }
        let (mut taus, mut lines) = (vec![T::ZERO; size], vec![T::ZERO; size * rows]);
        for first in (0..size).step_by(BLOCK) {
            let last = size.min(first + BLOCK);
            let (done, rest) = work.split_at_mut(last * rows);
            factor(par, rows, first, &mut done[first * rows..], &mut taus[first..last])?;
            write_lines(rows, first, &done[first * rows..], &mut lines[first * rows..last * rows]);
            if last < columns {
                let block = Block::rows(&lines, rows).from(first, first);
                let together = BlockReflector::new(par, block, rows - first, &taus[first..last])?;
                together.apply(par, &mut rest[first..], columns - last, rows, false)?;
            }
        }
        Ok(Self { rows, work, lines, taus })
    }

    /// Multiplies rows from the right by the transposed unitary factor. With `skip`, row `i` is known to
    /// be zero before element `i`.
    pub(super) fn restore(&self, par: &dyn Par, rows: &mut [T], skip: bool) -> Result<(), Failure> {
        apply_all(par, &self.lines, self.rows, 0, &self.taus, rows, skip)
    }
}

/// The factors of `a`: `q` of `rows` x `min(rows, columns)`, and `r`.
pub(crate) fn qr<T: Field>(
    par: &dyn Par,
    rows: usize,
    columns: usize,
    a: &[T],
    q: &mut [T],
    r: &mut [T],
) -> Result<(), Failure> {
    let size = rows.min(columns);
    if size == 0 {
        return Ok(());
    }
    let scale = balance(T::parts(a));
    let mut found = Reflected::new(par, rows, columns, a, scale)?;
    for (column, values) in found.work.chunks_exact_mut(rows).enumerate() {
        values[(column + 1).min(rows)..].fill(T::ZERO);
        if let Some(scale) = scale {
            values.iter_mut().for_each(|x| *x = x.over(scale));
        }
    }
    transpose(par, (columns, size), &found.work, rows, r, columns)?;
    let mut transposed = vec![T::ZERO; size * rows];
    (0..size).for_each(|at| transposed[at * rows + at] = T::ONE);
    found.restore(par, &mut transposed, true)?;
    transpose(par, (size, rows), &transposed, rows, q, size)
}

/// Reduces columns of `rows` elements, the first from row `first` on, recursively.
fn factor<T: Field>(
    par: &dyn Par,
    rows: usize,
    first: usize,
    columns: &mut [T],
    taus: &mut [T],
) -> Result<(), Failure> {
    let width = taus.len();
    if width <= BASE_SIZE {
        for (at, tau) in taus.iter_mut().enumerate() {
            let (done, rest) = columns.split_at_mut((at + 1) * rows);
            let column = &mut done[at * rows..][first + at..];
            *tau = reflection(par.simd(), column);
            for other in rest.chunks_exact_mut(rows) {
                reflect(par.simd(), tau.conj(), column, &mut other[first + at..]);
            }
        }
        return Ok(());
    }
    let half = half_of(width, BASE_SIZE);
    let (left, right) = columns.split_at_mut(half * rows);
    let (before, after) = taus.split_at_mut(half);
    factor(par, rows, first, left, before)?;
    let mut lines = vec![T::ZERO; half * rows];
    write_lines(rows, first, left, &mut lines);
    let block = Block::rows(&lines, rows).from(0, first);
    let together = BlockReflector::new(par, block, rows - first, before)?;
    together.apply(par, &mut right[first..], width - half, rows, false)?;
    factor(par, rows, first + half, right, after)
}

/// The Householder vectors with their leading ones, zeros before.
fn write_lines<T: Field>(rows: usize, first: usize, columns: &[T], lines: &mut [T]) {
    let pairs = columns.chunks_exact(rows).zip(lines.chunks_exact_mut(rows));
    for (at, (column, line)) in pairs.enumerate() {
        let one = first + at;
        line[..one].fill(T::ZERO);
        line[one] = T::ONE;
        line[one + 1..].copy_from_slice(&column[one + 1..]);
    }
}
