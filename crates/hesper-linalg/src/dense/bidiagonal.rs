//! Reduction of a tall matrix to real bidiagonal form by Householder reflections.

use hesper_compute::Par;

use super::block::{Block, Rows, subtract};
use super::field::Field;
use super::panel::{Grid, Sweeps};
use super::reflect::{apply_all, reflection};
use crate::Failure;

/// Columns whose updates of the trailing matrix are one product.
const PANEL: usize = 32;

/// The bidiagonal matrix, and the reflections of columns and rows that produce it.
pub(super) struct Bidiagonal<T: Field> {
    rows: usize,
    columns: usize,
    /// The diagonal.
    pub(super) diagonal: Vec<T::Real>,
    /// The superdiagonal.
    pub(super) superdiagonal: Vec<T::Real>,
    /// Householder vectors of the columns: vector `i` has its leading one at `i`.
    lefts: Vec<T>,
    left_taus: Vec<T>,
    /// Householder vectors of the conjugated rows: vector `i` has its leading one at `i + 1`.
    rights: Vec<T>,
    right_taus: Vec<T>,
}

impl<T: Field> Bidiagonal<T> {
    /// Reduces a matrix with at most as many columns as rows; `fill` writes its rows.
    pub(super) fn new(
        par: &dyn Par,
        rows: usize,
        columns: usize,
        fill: impl FnOnce(&mut [T], usize) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let simd = par.simd();
        let mut a = Grid::new(rows, columns);
        let stride = a.stride;
        fill(a.all_mut(), stride)?;
        let mut found = Self {
            rows,
            columns,
            diagonal: vec![T::Real::ZERO; columns],
            superdiagonal: vec![T::Real::ZERO; columns.saturating_sub(1)],
            lefts: vec![T::ZERO; columns * rows],
            left_taus: vec![T::ZERO; columns],
            rights: vec![T::ZERO; columns * columns],
            right_taus: vec![T::ZERO; columns.saturating_sub(1)],
        };
        // The pending update: the sum of outer products of corresponding lines is subtracted from the
        // trailing matrix.
        let most = 2 * PANEL.min(columns);
        let (mut tall, mut wide) = (Grid::<T>::new(most, rows), Grid::<T>::new(most, columns));
        let mut sweeps = Sweeps::new(rows.max(columns));
        let (mut column, mut factors) = (vec![T::ZERO; rows], [T::ZERO; 2 * PANEL]);
        for first in (0..columns).step_by(PANEL) {
            let last = columns.min(first + PANEL);
            for at in first..last {
                let done = 2 * (at - first);
                // The column, its reflection, and the update.
                let v = &mut column[at..];
                (at..rows).zip(&mut *v).for_each(|(row, v)| *v = a.row(row)[at]);
                (0..done).for_each(|i| factors[i] = -wide.row(i)[at]);
                T::add_rows(simd, lines(&tall, done, at, rows), &factors[..done], v);
                let tau = reflection(simd, v);
                found.diagonal[at] = v[0].re();
                found.left_taus[at] = tau;
                v[0] = T::ONE;
                found.lefts[at * rows + at..][..rows - at].copy_from_slice(v);
                copy_from(tall.row_mut(done), at, v);
                let behind = at + 1;
                let mut y = vec![T::ZERO; columns - behind];
                if tau != T::ZERO {
                    T::conjugate(v);
                    sweeps.transposed_times(par, &a, (at, behind), v, &mut y);
                    T::rows_times(simd, lines(&tall, done, at, rows), v, &mut factors[..done]);
                    factors[..done].iter_mut().for_each(|x| *x = -*x);
                    T::add_rows(simd, lines(&wide, done, behind, columns), &factors[..done], &mut y);
                    y.iter_mut().for_each(|y| *y = *y * tau.conj());
                }
                copy_from(wide.row_mut(done), behind, &y);
                if behind == columns {
                    copy_from(tall.row_mut(done + 1), 0, &[]);
                    copy_from(wide.row_mut(done + 1), 0, &[]);
                    continue;
                }
                // The same for the conjugated row.
                let mut u = a.row(at)[behind..columns].to_vec();
                (0..=done).for_each(|i| factors[i] = -tall.row(i)[at]);
                T::add_rows(simd, lines(&wide, done + 1, behind, columns), &factors[..=done], &mut u);
                T::conjugate(&mut u);
                let tau = reflection(simd, &mut u);
                (found.superdiagonal[at], found.right_taus[at]) = (u[0].re(), tau);
                u[0] = T::ONE;
                found.rights[at * columns + behind..][..columns - behind].copy_from_slice(&u);
                let mut x = vec![T::ZERO; rows - behind];
                if tau != T::ZERO {
                    sweeps.times(par, &a, (behind, behind), &u, &mut x);
                    T::rows_times(simd, lines(&wide, done + 1, behind, columns), &u, &mut factors[..=done]);
                    factors[..=done].iter_mut().for_each(|x| *x = -*x);
                    T::add_rows(simd, lines(&tall, done + 1, behind, rows), &factors[..=done], &mut x);
                    x.iter_mut().for_each(|x| *x = *x * tau);
                }
                copy_from(tall.row_mut(done + 1), behind, &x);
                T::conjugate(&mut u);
                copy_from(wide.row_mut(done + 1), behind, &u);
            }
            if last < columns {
                let size = 2 * (last - first);
                let left = Block::rows(tall.all(), tall.stride).from(0, last).transposed();
                let right = Block::rows(wide.all(), wide.stride).from(0, last);
                let rest = &mut a.all_mut()[last * stride + last..];
                subtract(par, [rows - last, size, columns - last], left, right, rest, stride)?;
            }
        }
        Ok(found)
    }

    /// Transforms left singular vectors of the bidiagonal matrix, as rows of the matrix's row count, into
    /// those of the matrix.
    pub(super) fn restore_left(&self, par: &dyn Par, rows: &mut [T]) -> Result<(), Failure> {
        apply_all(par, &self.lefts, self.rows, 0, &self.left_taus, rows, false)
    }

    /// The same for right singular vectors.
    pub(super) fn restore_right(&self, par: &dyn Par, rows: &mut [T]) -> Result<(), Failure> {
        apply_all(par, &self.rights, self.columns, 1, &self.right_taus, rows, false)
    }
}

/// Lines of a grid from one column to another.
fn lines<T: Field>(grid: &Grid<T>, count: usize, from: usize, to: usize) -> Rows<'_, T> {
    Rows::new(&grid.all()[from..], grid.stride, count, to - from)
}

/// Zeros up to index `at`, then `values`, then zeros.
fn copy_from<T: Field>(line: &mut [T], at: usize, values: &[T]) {
    line[..at].fill(T::ZERO);
    line[at..][..values.len()].copy_from_slice(values);
    line[at + values.len()..].fill(T::ZERO);
}
