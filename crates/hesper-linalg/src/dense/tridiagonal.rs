//! A symmetric matrix as a tridiagonal one between orthogonal ones.

use hesper_compute::{Par, axpy, dot};

use super::block::{Block, multiply, rows_mut, subtract};
use super::reflect::{apply_all, reflection};
use super::{Scalar, balance};
use crate::Failure;

/// Columns whose changes to the rest of the matrix are made in one product.
const PANEL: usize = 32;

/// The tridiagonal matrix, and the reflections that lead to it.
pub(crate) struct Tridiagonal<T> {
    n: usize,
    /// Numbers on the diagonal.
    pub(crate) diagonal: Vec<T>,
    /// Numbers beside it.
    pub(crate) beside: Vec<T>,
    /// What all numbers were multiplied with, if they were.
    pub(crate) scale: Option<T>,
    /// The vectors of the reflections: vector `i` has its one at `i + 1`.
    lines: Vec<T>,
    taus: Vec<T>,
}

impl<T: Scalar> Tridiagonal<T> {
    /// Reduces a whole symmetric matrix, which is overwritten.
    pub(crate) fn new(par: &dyn Par, n: usize, a: &mut [T]) -> Result<Self, Failure> {
        let simd = par.simd();
        let scale = balance(a);
        if let Some(scale) = scale {
            a.iter_mut().for_each(|x| *x = *x * scale);
        }
        let count = n.saturating_sub(1);
        let mut lines = vec![T::ZERO; count * n];
        let (mut taus, mut diagonal, mut beside) =
            (vec![T::ZERO; count], vec![T::ZERO; n], vec![T::ZERO; count]);
        // The other vectors of a panel: the rest of the matrix changes by `v w' + w v'`.
        let mut others = vec![T::ZERO; PANEL * n];
        for first in (0..count).step_by(PANEL) {
            let last = count.min(first + PANEL);
            for at in first..last {
                let (done, now) = lines.split_at_mut(at * n);
                let (done, row) = (&done[first * n..], &mut a[at * n + at..][..n - at]);
                let pairs = || done.chunks_exact(n).zip(others.chunks_exact(n));
                for (v, w) in pairs() {
                    axpy(simd, -v[at], &w[at..], row);
                    axpy(simd, -w[at], &v[at..], row);
                }
                diagonal[at] = row[0];
                let tau = reflection(simd, &mut row[1..]);
                (beside[at], taus[at]) = (row[1], tau);
                let line = &mut now[at + 1..n];
                line.copy_from_slice(&row[1..]);
                line[0] = T::ONE;
                let mut w = vec![T::ZERO; n - at - 1];
                if tau != T::ZERO {
                    let rest = Block::rows(a, n).from(at + 1, at + 1).view(n - at - 1, n - at - 1)?;
                    let column = Block { data: &*line, first: 0, down: 1, across: 1 };
                    multiply(par, rest, column.view(n - at - 1, 1)?, rows_mut(&mut w, n - at - 1, 1, 1)?)?;
                    for (v, other) in pairs() {
                        let (v, other) = (&v[at + 1..], &other[at + 1..]);
                        let (along, across) = (dot(simd, v, line), dot(simd, other, line));
                        axpy(simd, -across, v, &mut w);
                        axpy(simd, -along, other, &mut w);
                    }
                    w.iter_mut().for_each(|w| *w = *w * tau);
                    let half = tau * dot(simd, &w, line) / T::of(2.0);
                    axpy(simd, -half, line, &mut w);
                }
                let other = &mut others[(at - first) * n..][..n];
                other[..=at].fill(T::ZERO);
                other[at + 1..].copy_from_slice(&w);
            }
            // Both halves of the change in one product.
            let (size, rest) = (last - first, n - last);
            let vectors = &lines[first * n..last * n];
            let mut both = Vec::with_capacity(4 * size * n);
            both.extend_from_slice(vectors);
            both.extend_from_slice(&others[..size * n]);
            both.extend_from_slice(vectors);
            let left = Block::rows(&both, n).from(0, last).turned().view(rest, 2 * size)?;
            let right = Block::rows(&both, n).from(size, last).view(2 * size, rest)?;
            subtract(par, left, right, rows_mut(&mut a[last * n + last..], rest, rest, n)?)?;
        }
        if let Some(last) = diagonal.last_mut() {
            *last = a[n * n - 1];
        }
        Ok(Self { n, diagonal, beside, scale, lines, taus })
    }

    /// Turns eigenvectors of the tridiagonal matrix, as rows, into those of the matrix.
    pub(crate) fn restore(&self, par: &dyn Par, rows: &mut [T]) -> Result<(), Failure> {
        apply_all(par, &self.lines, self.n, 1, &self.taus, rows, false)
    }
}
