//! Reduction of a Hermitian matrix to real tridiagonal form by Householder reflections.

use hesper_compute::Par;

use super::block::{Block, Rows, subtract};
use super::field::{Field, Scalar};
use super::panel::{Grid, Sweeps};
use super::reflect::{apply_all, reflection};
use super::{balance, transpose};
use crate::Failure;

/// Columns whose updates of the trailing matrix are one product.
const PANEL: usize = 32;
/// Rows of the trailing matrix updated in one product; the part below the diagonal is wasted.
const STRIP: usize = 128;

/// The tridiagonal matrix, and the reflections that produce it.
pub(crate) struct Tridiagonal<T: Field> {
    n: usize,
    /// The diagonal.
    pub(crate) diagonal: Vec<T::Real>,
    /// The off-diagonal.
    pub(crate) off_diagonal: Vec<T::Real>,
    /// The factor by which the matrix was scaled, if it was.
    pub(crate) scale: Option<T::Real>,
    /// Householder vectors: vector `i` has its leading one at `i + 1`.
    lines: Vec<T>,
    taus: Vec<T>,
}

impl<T: Field> Tridiagonal<T> {
    /// Reduces a Hermitian matrix, of which only one triangle is read.
    pub(crate) fn new(par: &dyn Par, n: usize, from: &[T], upper: bool) -> Result<Self, Failure> {
        let simd = par.simd();
        // The upper triangle, conjugated: row `i` is column `i` of the lower one.
        let mut a = Grid::new(n, n);
        let stride = a.stride;
        if upper {
            for row in 0..n {
                let to = &mut a.row_mut(row)[row..n];
                to.copy_from_slice(&from[row * n + row..][..n - row]);
                T::conjugate(to);
            }
        } else {
            transpose(par, (n, n), from, n, a.all_mut(), stride)?;
        }
        let scale = balance(T::parts(from));
        if let Some(scale) = scale {
            a.all_mut().iter_mut().for_each(|x| *x = x.times(scale));
        }
        let count = n.saturating_sub(1);
        let mut lines = vec![T::ZERO; count * n];
        let (mut taus, mut diagonal, mut off_diagonal) =
            (vec![T::ZERO; count], vec![T::Real::ZERO; n], vec![T::Real::ZERO; count]);
        // Pairs of vectors: the trailing matrix changes by `v w* + w v*` for each.
        let most = 2 * PANEL.min(count);
        let mut pairs = Grid::<T>::new(most, n);
        let mut others = Grid::<T>::new(most, n);
        let (mut sweeps, mut w) = (Sweeps::new(n), vec![T::ZERO; n]);
        let mut v = Grid::new(1, n);
        let mut factors = [T::ZERO; 2 * PANEL];
        for first in (0..count).step_by(PANEL) {
            let last = count.min(first + PANEL);
            for at in first..last {
                let done = 2 * (at - first);
                let row = &mut a.row_mut(at)[at..n];
                // The factor of a vector is the conjugated element of the other vector of its pair.
                (0..done).for_each(|i| factors[i ^ 1] = -pairs.row(i)[at].conj());
                let before = |from: usize| Rows::new(&pairs.all()[from..], pairs.stride, done, n - from);
                T::add_rows(simd, before(at), &factors[..done], row);
                diagonal[at] = row[0].re();
                let tau = reflection(simd, &mut row[1..]);
                (off_diagonal[at], taus[at]) = (row[1].re(), tau);
                let line = &mut v.row_mut(0)[at + 1..n];
                line.copy_from_slice(&row[1..]);
                line[0] = T::ONE;
                lines[at * n + at + 1..][..n - at - 1].copy_from_slice(line);
                if tau == T::ZERO {
                    w.fill(T::ZERO);
                } else {
                    sweeps.hermitian(par, &a, at + 1, n, &v.row(0)[..n], &mut w);
                    let (line, w) = (&v.row(0)[at + 1..n], &mut w[at + 1..]);
                    let mut along = [T::ZERO; 2 * PANEL];
                    let mut conjugated = line.to_vec();
                    T::conjugate(&mut conjugated);
                    T::rows_times(simd, before(at + 1), &conjugated, &mut along[..done]);
                    (0..done).for_each(|i| factors[i ^ 1] = -along[i].conj());
                    T::add_rows(simd, before(at + 1), &factors[..done], w);
                    w.iter_mut().for_each(|w| *w = *w * tau);
                    let half = (tau * T::inner(simd, w, line)).over(T::Real::of(2.0));
                    T::axpy(simd, -half, line, w);
                }
                for (i, from) in [v.row(0), &w].into_iter().enumerate() {
                    let to = &mut pairs.row_mut(done + i)[..n];
                    to[..=at].fill(T::ZERO);
                    to[at + 1..].copy_from_slice(&from[at + 1..n]);
                }
            }
            let size = 2 * (last - first);
            (0..size).for_each(|i| others.row_mut(i ^ 1)[last..n].copy_from_slice(&pairs.row(i)[last..n]));
            for top in (last..n).step_by(STRIP) {
                let (height, width) = (STRIP.min(n - top), n - top);
                let left = Block::rows(pairs.all(), pairs.stride).from(0, top).transposed().conjugated();
                let right = Block::rows(others.all(), others.stride).from(0, top);
                let rest = &mut a.all_mut()[top * stride + top..];
                subtract(par, [height, size, width], left, right, rest, stride)?;
            }
        }
        if let Some(last) = diagonal.last_mut() {
            *last = a.row(n - 1)[n - 1].re();
        }
        Ok(Self { n, diagonal, off_diagonal, scale, lines, taus })
    }

    /// Transforms eigenvectors of the tridiagonal matrix, as rows, into those of the matrix.
    pub(crate) fn restore(&self, par: &dyn Par, rows: &mut [T]) -> Result<(), Failure> {
        apply_all(par, &self.lines, self.n, 1, &self.taus, rows, false)
    }
}
