//! Eigenvectors of a tridiagonal matrix, by halves.
//!
//! Without the number beside the diagonal in the middle there are two problems of half the size. Putting it
//! back adds a matrix of rank one to the diagonal one of all their eigenvalues, whose eigenvalues are the roots
//! of a [`Secular`] equation; the new vectors are a product with the old ones. Vectors that the addition does
//! not change, and one of each two whose values coincide, are left out of all this.
//!
//! Vectors are rows. Those of a part have their numbers in the columns of the part.

use hesper_compute::{AtLevel, Par, Serial};

use super::Scalar;
use super::implicit::eigenvectors;
use super::lines::{Vectors, Where, sides};
use super::secular::{Secular, length};
use super::share::{each, grain, try_each};
use crate::Failure;

/// Rows of a problem that is solved as a whole.
const FEW: usize = 32;
/// Rows of problems that are solved side by side, each on one core.
const ALONE: usize = 160;

/// Eigenvalues of a tridiagonal matrix, the smallest first, and its eigenvectors as the rows of `vectors`,
/// which are zeros before.
pub(crate) fn tridiagonal_vectors<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    beside: &[T],
    vectors: &mut [T],
) -> Result<Vec<f64>, Failure> {
    let n = diagonal.len();
    let mut values = solve(par, diagonal, beside, Vectors::whole(vectors, n, n))?;
    sort(par, &mut values, vectors, n);
    Ok(values)
}

/// The values alone.
pub(crate) fn tridiagonal_values<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    beside: &[T],
) -> Result<Vec<f64>, Failure> {
    let mut ends = vec![T::ZERO; 2 * diagonal.len()];
    let mut values = solve(par, diagonal, beside, Vectors::ends(&mut ends, diagonal.len()))?;
    values.sort_by(f64::total_cmp);
    Ok(values)
}

/// Values in any order, and vectors in the same.
fn solve<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    beside: &[T],
    vectors: Vectors<'_, T>,
) -> Result<Vec<f64>, Failure> {
    let mut values: Vec<f64> = diagonal.iter().map(|x| x.to_f64()).collect();
    let mut beside: Vec<f64> = beside.iter().map(|x| x.to_f64()).collect();
    beside.resize(values.len(), 0.0);
    cut(&mut values, &beside);
    let mut all = Part { values: &mut values, beside: &beside, vectors };
    let alone = AtLevel(Serial, par.simd());
    let mut parts = Vec::new();
    all.again().split(ALONE, &mut parts);
    try_each(par, parts.into_iter(), |part| part.solve(&alone, FEW))?;
    all.solve(par, ALONE)?;
    Ok(values)
}

/// Where a part of so many rows is cut.
fn middle(n: usize) -> usize {
    n / 2
}

/// Takes what the numbers at cuts add from the diagonal.
fn cut(values: &mut [f64], beside: &[f64]) {
    let n = values.len();
    if n <= FEW {
        return;
    }
    let at = middle(n);
    let size = beside[at - 1].abs();
    values[at - 1] -= size;
    values[at] -= size;
    let (left, right) = values.split_at_mut(at);
    cut(left, &beside[..at]);
    cut(right, &beside[at..]);
}

/// Puts values in order, and the rows with them.
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
    beside: &'a [f64],
    vectors: Vectors<'a, T>,
}

impl<'a, T: Scalar> Part<'a, T> {
    fn again(&mut self) -> Part<'_, T> {
        Part { values: &mut *self.values, beside: self.beside, vectors: self.vectors.again() }
    }

    fn halves(self) -> [Part<'a, T>; 2] {
        let at = middle(self.values.len());
        let (values, right_values) = self.values.split_at_mut(at);
        let (beside, right_beside) = self.beside.split_at(at);
        let (vectors, right_vectors) = self.vectors.split(at);
        [
            Part { values, beside, vectors },
            Part { values: right_values, beside: right_beside, vectors: right_vectors },
        ]
    }

    /// The parts of at most so many rows.
    fn split(self, most: usize, to: &mut Vec<Part<'a, T>>) {
        if self.values.len() <= most {
            return to.push(self);
        }
        for half in self.halves() {
            half.split(most, to);
        }
    }

    /// Finds values and vectors, those of parts of at most `solved` rows being there (or few enough).
    fn solve(mut self, par: &dyn Par, solved: usize) -> Result<(), Failure> {
        let n = self.values.len();
        if n <= FEW && solved == FEW {
            let mut vectors = vec![T::ZERO; n * n];
            vectors.iter_mut().step_by(n + 1).for_each(|x| *x = T::ONE);
            let mut beside = self.beside.to_vec();
            eigenvectors(self.values, &mut beside, &mut vectors, n)?;
            self.vectors.write(&vectors);
            return Ok(());
        }
        if n <= solved {
            return Ok(());
        }
        for half in self.again().halves() {
            half.solve(par, solved)?;
        }
        self.merge(par)
    }

    /// Finds values and vectors from those of the halves.
    fn merge(&mut self, par: &dyn Par) -> Result<(), Failure> {
        let n = self.values.len();
        let half = middle(n);
        let beta = self.beside[half - 1];
        // What was cut off is `rho z z'`, `z` of length one.
        let rho = 2.0 * beta.abs();
        let scale = std::f64::consts::FRAC_1_SQRT_2;
        let mut z = self.vectors.join(half, n);
        let factor = |row: usize| if row < half { scale } else { scale.copysign(beta) };
        z.iter_mut().enumerate().for_each(|(row, z)| *z *= factor(row));
        let (mut kept, left_out, wheres) = self.deflate(rho, &mut z);
        let k = kept.len();
        if k == 0 {
            return Ok(());
        }
        let points: Vec<f64> = kept.iter().map(|at| self.values[*at]).collect();
        let weights: Vec<f64> = kept.iter().map(|at| z[*at] * z[*at]).collect();
        let how = (T::ROUGHLY, par.simd());
        let equation = Secular::new(points, weights, 1.0 / rho, false, how);
        let roots = equation.roots(par);
        let exact = equation.exact(par, &roots, |at| z[kept[at]]);
        // Old vectors in the order of the columns that they have numbers in.
        let mut order: Vec<usize> = (0..k).collect();
        order.sort_by_key(|at| wheres[kept[*at]]);
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
        self.vectors.replace(par, &mixed, &kept, &left_out, sides(&kept, &wheres), half)
    }

    /// Finds which vectors change, by ascending value, and which do not; turns pairs so that one of them does
    /// not, if their values are the same for all we know.
    fn deflate(&mut self, rho: f64, z: &mut [f64]) -> (Vec<usize>, Vec<usize>, Vec<Where>) {
        let n = z.len();
        let half = middle(n);
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| self.values[*a].total_cmp(&self.values[*b]));
        let largest = self.values.iter().fold(rho, |most, x| most.max(x.abs()));
        let nothing = T::EPSILON.to_f64() * largest;
        let mut wheres: Vec<Where> =
            (0..n).map(|at| if at < half { Where::Left } else { Where::Right }).collect();
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
            if wheres[at] != wheres[other] {
                wheres[at] = Where::Both;
            }
            self.vectors.turn(cosine, sine, (other, at));
            let (a, b) = (self.values[other], self.values[at]);
            self.values[other] = a * cosine * cosine + b * sine * sine;
            self.values[at] = a * sine * sine + b * cosine * cosine;
            left_out.push(other);
        }
        kept.extend(before);
        (kept, left_out, wheres)
    }
}
