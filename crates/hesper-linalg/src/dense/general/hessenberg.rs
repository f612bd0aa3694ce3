//! Reduction of a square matrix to Hessenberg form by Householder reflections.

use hesper_compute::{Par, Simd};

use super::super::block::{Block, Rows, multiply, subtract};
use super::super::field::Field;
use super::super::reflect::{apply_all, reflection};
use crate::Failure;

/// Columns whose updates of the trailing matrix are products.
const PANEL: usize = 32;

/// The reflections that reduce a matrix.
pub(super) struct Hessenberg<T> {
    n: usize,
    /// Householder vectors: vector `i` has its leading one at `i + 1`.
    lines: Vec<T>,
    taus: Vec<T>,
}

impl<T: Field> Hessenberg<T> {
    /// Reduces a matrix in place: `q* a q` for the product `q` of the reflections.
    ///
    /// The reflections of a panel are `1 - v t v*`. Its updates are delayed: with `y = a v t`, the matrix
    /// after the panel is `(1 - v t* v*) (a - y v*)`.
    pub(super) fn new(par: &dyn Par, n: usize, a: &mut [T]) -> Result<Self, Failure> {
        let simd = par.simd();
        let count = n.saturating_sub(2);
        let (mut lines, mut taus) = (vec![T::ZERO; count * n], vec![T::ZERO; count]);
        let (mut ys, mut t) = (vec![T::ZERO; PANEL * n], vec![T::ZERO; PANEL * PANEL]);
        let mut column = vec![T::ZERO; n];
        let mut conjugated = vec![T::ZERO; n];
        let (mut along, mut factors) = ([T::ZERO; PANEL], [T::ZERO; PANEL]);
        for first in (0..count).step_by(PANEL) {
            let last = count.min(first + PANEL);
            for at in first..last {
                let done = at - first;
                let (before, rest) = lines.split_at_mut(at * n);
                let vs = Rows::new(&before[first * n..], n, done, n);
                // The column as the delayed updates leave it.
                (0..n).for_each(|row| column[row] = a[row * n + at]);
                (0..done).for_each(|i| factors[i] = -vs.row(i)[at].conj());
                T::add_rows(simd, Rows::new(&ys, n, done, n), &factors[..done], &mut column);
                inner(simd, vs, &column, &mut conjugated, &mut along);
                for i in 0..done {
                    let sum = (0..=i).fold(T::ZERO, |sum, k| sum + t[k * PANEL + i].conj() * along[k]);
                    factors[i] = -sum;
                }
                T::add_rows(simd, vs, &factors[..done], &mut column);
                let tau = reflection(simd, &mut column[at + 1..]);
                for (row, x) in column.iter().enumerate() {
                    a[row * n + at] = if row <= at + 1 { *x } else { T::ZERO };
                }
                taus[at] = tau;
                let v = &mut rest[..n];
                v[at + 1..].copy_from_slice(&column[at + 1..]);
                v[at + 1] = T::ONE;
                let (_, y) = ys.split_at_mut(done * n);
                let y = &mut y[..n];
                if tau == T::ZERO {
                    y.fill(T::ZERO);
                    (0..=done).for_each(|i| t[i * PANEL + done] = T::ZERO);
                    continue;
                }
                T::rows_times(simd, Rows::new(&a[at + 1..], n, n, n - at - 1), &v[at + 1..], y);
                inner(simd, vs, v, &mut conjugated, &mut along);
                (0..done).for_each(|i| factors[i] = -along[i]);
                let (before, y) = ys.split_at_mut(done * n);
                T::add_rows(simd, Rows::new(before, n, done, n), &factors[..done], &mut y[..n]);
                y[..n].iter_mut().for_each(|y| *y = *y * tau);
                for i in 0..done {
                    let sum = (i..done).fold(T::ZERO, |sum, k| sum + t[i * PANEL + k] * along[k]);
                    t[i * PANEL + done] = -tau * sum;
                }
                t[done * PANEL + done] = tau;
            }
            let (size, top, right) = (last - first, first + 1, n - last);
            let vs = Block::rows(&lines, n).from(first, 0);
            let (from_right, ys) = (vs.from(0, last).conjugated(), Block::rows(&ys, n).transposed());
            subtract(par, [n, size, right], ys, from_right, &mut a[last..], n)?;
            let (mut products, mut mixed) = (vec![T::ZERO; size * right], vec![T::ZERO; size * right]);
            let (left, rest) = (vs.from(0, top), Block::rows(a, n).from(top, last));
            multiply(par, [size, n - top, right], left.conjugated(), rest, &mut products, right)?;
            let t = Block::rows(&t, PANEL).transposed().conjugated();
            multiply(par, [size, size, right], t, Block::rows(&products, right), &mut mixed, right)?;
            let (left, mixed) = (left.transposed(), Block::rows(&mixed, right));
            subtract(par, [n - top, size, right], left, mixed, &mut a[top * n + last..], n)?;
        }
        Ok(Self { n, lines, taus })
    }

    /// The columns of `q` as rows.
    pub(super) fn columns(&self, par: &dyn Par) -> Result<Vec<T>, Failure> {
        let mut rows = vec![T::ZERO; self.n * self.n];
        rows.iter_mut().step_by(self.n + 1).for_each(|x| *x = T::ONE);
        apply_all(par, &self.lines, self.n, 1, &self.taus, &mut rows, true)?;
        Ok(rows)
    }
}

/// The inner products of vectors with `x`.
fn inner<T: Field>(simd: Simd, vectors: Rows<'_, T>, x: &[T], conjugated: &mut [T], to: &mut [T]) {
    conjugated.copy_from_slice(x);
    T::conjugate(conjugated);
    let to = &mut to[..vectors.count];
    T::rows_times(simd, vectors, conjugated, to);
    T::conjugate(to);
}
