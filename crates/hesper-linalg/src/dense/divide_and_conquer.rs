//! Eigenvectors of a tridiagonal matrix by divide and conquer.
//!
//! Removing one off-diagonal element splits the matrix into two of half the size. Adding it back is a
//! rank-one update of the diagonal matrix of their eigenvalues, whose eigenvalues are the roots of a
//! [`Secular`] equation; the new vectors are a product with the old ones. Deflation skips vectors that the
//! update does not change, and one of each two with equal eigenvalues.
//!
//! Vectors are rows. Those of a part are nonzero only in the columns of the part.

use hesper_compute::{AtLevel, Par, Serial};

use super::Scalar;
use super::implicit_qr::eigenvectors;
use super::parallel::{each, grain, try_each};
use super::secular::{Secular, length};
use super::vectors::{Support, Vectors, sides};
use crate::Failure;

/// Rows of a part that is solved directly.
const BASE_SIZE: usize = 32;
/// Rows of parts that are solved in parallel, each on one core.
const SERIAL_ROWS: usize = 160;

/// Eigenvalues of a tridiagonal matrix in ascending order, and its eigenvectors as the rows of `vectors`,
/// which must be zero before.
pub(crate) fn tridiagonal_vectors<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    off_diagonal: &[T],
    vectors: &mut [T],
) -> Result<Vec<f64>, Failure> {
    let n = diagonal.len();
    let mut values = solve(par, diagonal, off_diagonal, Vectors::whole(vectors, n, n))?;
    sort(par, &mut values, vectors, n);
    Ok(values)
}

/// Eigenvalues only.
pub(crate) fn tridiagonal_values<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    off_diagonal: &[T],
) -> Result<Vec<f64>, Failure> {
    let mut ends = vec![T::ZERO; 2 * diagonal.len()];
    let mut values = solve(par, diagonal, off_diagonal, Vectors::ends(&mut ends, diagonal.len()))?;
    values.sort_by(f64::total_cmp);
    Ok(values)
}

/// Eigenvalues in any order, and vectors in the same order.
fn solve<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    off_diagonal: &[T],
    vectors: Vectors<'_, T>,
) -> Result<Vec<f64>, Failure> {
    let mut values: Vec<f64> = diagonal.iter().map(|x| x.to_f64()).collect();
    let mut off_diagonal: Vec<f64> = off_diagonal.iter().map(|x| x.to_f64()).collect();
    off_diagonal.resize(values.len(), 0.0);
    cut(&mut values, &off_diagonal);
    let mut all = Part { values: &mut values, off_diagonal: &off_diagonal, vectors };
    let alone = AtLevel(Serial, par.simd());
    let mut parts = Vec::new();
    all.reborrow().split(SERIAL_ROWS, &mut parts);
    try_each(par, parts.into_iter(), |part| part.solve(&alone, BASE_SIZE))?;
    all.solve(par, SERIAL_ROWS)?;
    Ok(values)
}

/// Where a part of `n` rows is split.
fn middle(n: usize) -> usize {
    n / 2
}

/// Subtracts the rank-one terms of the split from the diagonal.
fn cut(values: &mut [f64], off_diagonal: &[f64]) {
    let n = values.len();
    if n <= BASE_SIZE {
        return;
    }
    let at = middle(n);
    let size = off_diagonal[at - 1].abs();
    values[at - 1] -= size;
    values[at] -= size;
    let (left, right) = values.split_at_mut(at);
    cut(left, &off_diagonal[..at]);
    cut(right, &off_diagonal[at..]);
}

/// Sorts eigenvalues, and the rows with them.
fn sort<T: Scalar>(par: &dyn Par, values: &mut Vec<f64>, rows: &mut [T], n: usize) {
    if values.is_sorted() {
        return;
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let old = rows.to_vec();
    each(par, rows.chunks_mut(n).zip(&order), |(row, from)| row.copy_from_slice(&old[from * n..][..n]));
    *values = order.iter().map(|from| values[*from]).collect();
}

/// A part of the problem, and its vectors.
struct Part<'a, T> {
    values: &'a mut [f64],
    off_diagonal: &'a [f64],
    vectors: Vectors<'a, T>,
}

impl<'a, T: Scalar> Part<'a, T> {
    fn reborrow(&mut self) -> Part<'_, T> {
        Part { values: &mut *self.values, off_diagonal: self.off_diagonal, vectors: self.vectors.reborrow() }
    }

    fn halves(self) -> [Part<'a, T>; 2] {
        let at = middle(self.values.len());
        let (values, right_values) = self.values.split_at_mut(at);
        let (off_diagonal, right_off_diagonal) = self.off_diagonal.split_at(at);
        let (vectors, right_vectors) = self.vectors.split(at);
        [
            Part { values, off_diagonal, vectors },
            Part { values: right_values, off_diagonal: right_off_diagonal, vectors: right_vectors },
        ]
    }

    /// Splits into parts of at most `most` rows.
    fn split(self, most: usize, to: &mut Vec<Part<'a, T>>) {
        if self.values.len() <= most {
            return to.push(self);
        }
        for half in self.halves() {
            half.split(most, to);
        }
    }

    /// Computes eigenvalues and vectors; parts of at most `solved` rows are solved already, unless they are
    /// small.
    fn solve(mut self, par: &dyn Par, solved: usize) -> Result<(), Failure> {
        let n = self.values.len();
        if n <= BASE_SIZE && solved == BASE_SIZE {
            let mut vectors = vec![T::ZERO; n * n];
            vectors.iter_mut().step_by(n + 1).for_each(|x| *x = T::ONE);
            let mut off_diagonal = self.off_diagonal.to_vec();
            eigenvectors(self.values, &mut off_diagonal, &mut vectors, n)?;
            self.vectors.write(&vectors);
            return Ok(());
        }
        if n <= solved {
            return Ok(());
        }
        for half in self.reborrow().halves() {
            half.solve(par, solved)?;
        }
        self.merge(par)
    }

    /// Computes eigenvalues and vectors from those of the halves.
    fn merge(&mut self, par: &dyn Par) -> Result<(), Failure> {
        let n = self.values.len();
        let half = middle(n);
        let beta = self.off_diagonal[half - 1];
        // The removed term is `rho z z'`, with `z` of length one.
        let rho = 2.0 * beta.abs();
        let scale = std::f64::consts::FRAC_1_SQRT_2;
        let mut z = self.vectors.join(half, n);
        let factor = |row: usize| if row < half { scale } else { scale.copysign(beta) };
        z.iter_mut().enumerate().for_each(|(row, z)| *z *= factor(row));
        let (mut kept, left_out, supports) = self.deflate(rho, &mut z);
        let k = kept.len();
        if k == 0 {
            return Ok(());
        }
        let points: Vec<f64> = kept.iter().map(|at| self.values[*at]).collect();
        let weights: Vec<f64> = kept.iter().map(|at| z[*at] * z[*at]).collect();
        let how = (T::SUM_TOLERANCE, par.simd());
        let equation = Secular::new(points, weights, 1.0 / rho, false, how);
        let roots = equation.roots(par);
        let exact = equation.exact(par, &roots, |at| z[kept[at]]);
        // The old vectors, sorted by the columns in which they are nonzero.
        let mut order: Vec<usize> = (0..k).collect();
        order.sort_by_key(|at| supports[kept[*at]]);
        let mut mixed = vec![T::ZERO; k * k];
        let chunk = grain(k);
        each(par, mixed.chunks_mut(chunk * k).zip(roots[..k].chunks(chunk)), |(rows, roots)| {
            let mut parts = vec![0.0; exact.len()];
            for (row, root) in rows.chunks_exact_mut(k).zip(roots) {
                equation.parts(*root, &exact, &mut parts);
                let shorter = 1.0 / length(&parts);
                row.iter_mut().zip(&order).for_each(|(to, from)| *to = T::of(parts[*from] * shorter));
            }
        });
        let old_values: Vec<f64> = left_out.iter().map(|at| self.values[*at]).collect();
        self.values[k..].copy_from_slice(&old_values);
        for (value, root) in self.values.iter_mut().zip(&roots[..k]) {
            *value = root.near + root.beyond;
        }
        kept = order.iter().map(|at| kept[*at]).collect();
        self.vectors.replace(par, &mixed, &kept, &left_out, sides(&kept, &supports), half)
    }

    /// Deflation: finds which vectors change, by ascending eigenvalue, and which do not. Two numerically
    /// equal eigenvalues are rotated so that one vector does not change.
    fn deflate(&mut self, rho: f64, z: &mut [f64]) -> (Vec<usize>, Vec<usize>, Vec<Support>) {
        let n = z.len();
        let half = middle(n);
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| self.values[*a].total_cmp(&self.values[*b]));
        let largest = self.values.iter().fold(rho, |most, x| most.max(x.abs()));
        let nothing = T::EPSILON.to_f64() * largest;
        let mut supports: Vec<Support> =
            (0..n).map(|at| if at < half { Support::Left } else { Support::Right }).collect();
        let (mut kept, mut left_out, mut before) = (Vec::with_capacity(n), Vec::new(), None::<usize>);
        for at in order {
            if rho * z[at].abs() <= nothing {
                left_out.push(at);
                continue;
            }
            let Some(other) = before.replace(at) else { continue };
            let length = z[at].hypot(z[other]);
            let (cosine, sine) = (z[at] / length, z[other] / length);
            let apart = self.values[at] - self.values[other];
            if (apart * cosine * sine).abs() > nothing {
                kept.push(other);
                continue;
            }
            (z[at], z[other]) = (length, 0.0);
            if supports[at] != supports[other] {
                supports[at] = Support::Both;
            }
            self.vectors.rotate(cosine, sine, (other, at));
            let (a, b) = (self.values[other], self.values[at]);
            self.values[other] = a * cosine * cosine + b * sine * sine;
            self.values[at] = a * sine * sine + b * cosine * cosine;
            left_out.push(other);
        }
        kept.extend(before);
        (kept, left_out, supports)
    }
}
