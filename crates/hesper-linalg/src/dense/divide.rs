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
use super::block::{Block, multiply, rows_mut};
use super::implicit::{eigenvectors, turn_rows};
use super::secular::Secular;
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
    let mut values: Vec<f64> = diagonal.iter().map(|x| x.to_f64()).collect();
    let mut beside: Vec<f64> = beside.iter().map(|x| x.to_f64()).collect();
    beside.resize(n, 0.0);
    cut(&mut values, &beside);
    let mut all = Part { first: 0, stride: n, values: &mut values, beside: &beside, rows: &mut *vectors };
    let alone = AtLevel(Serial, par.simd());
    let mut parts = Vec::new();
    all.again().split(ALONE, &mut parts);
    try_each(par, parts.into_iter(), |part| part.solve(&alone, FEW))?;
    all.solve(par, ALONE)?;
    sort(par, &mut values, vectors, n);
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

/// Which columns a vector has numbers in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Where {
    Left,
    Both,
    Right,
}

/// A part of the problem: its rows of all vectors, and the first column that they have numbers in.
struct Part<'a, T> {
    first: usize,
    stride: usize,
    values: &'a mut [f64],
    beside: &'a [f64],
    rows: &'a mut [T],
}

impl<'a, T: Scalar> Part<'a, T> {
    fn again(&mut self) -> Part<'_, T> {
        Part {
            first: self.first,
            stride: self.stride,
            values: &mut *self.values,
            beside: self.beside,
            rows: &mut *self.rows,
        }
    }

    fn halves(self) -> [Part<'a, T>; 2] {
        let (at, stride) = (middle(self.values.len()), self.stride);
        let (values, behind) = self.values.split_at_mut(at);
        let (beside, beside_behind) = self.beside.split_at(at);
        let (rows, rows_behind) = self.rows.split_at_mut(at * stride);
        let first = self.first + at;
        [
            Part { first: self.first, stride, values, beside, rows },
            Part { first, stride, values: behind, beside: beside_behind, rows: rows_behind },
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
            (0..n).for_each(|at| self.rows[at * self.stride + self.first + at] = T::ONE);
            let last = n.saturating_sub(1);
            let mut beside = self.beside.to_vec();
            beside[last..].fill(0.0);
            let columns = &mut self.rows[self.first..];
            return eigenvectors(self.values, &mut beside, columns, self.stride, n);
        }
        if n <= solved {
            return Ok(());
        }
        for half in self.again().halves() {
            half.solve(par, solved)?;
        }
        self.merge(par)
    }

    fn row(&mut self, row: usize) -> &mut [T] {
        let n = self.values.len();
        &mut self.rows[row * self.stride + self.first..][..n]
    }

    /// Finds values and vectors from those of the halves.
    fn merge(&mut self, par: &dyn Par) -> Result<(), Failure> {
        let n = self.values.len();
        let half = middle(n);
        let beta = self.beside[half - 1];
        // What was cut off is `rho z z'`, `z` of length one.
        let rho = 2.0 * beta.abs();
        let scale = std::f64::consts::FRAC_1_SQRT_2;
        let mut z: Vec<f64> = (0..n)
            .map(|row| {
                let row_numbers = self.row(row);
                if row < half {
                    row_numbers[half - 1].to_f64() * scale
                } else {
                    row_numbers[half].to_f64() * scale.copysign(beta)
                }
            })
            .collect();
        let (kept, left_out, wheres) = self.deflate(rho, &mut z);
        let k = kept.len();
        if k == 0 {
            return Ok(());
        }
        let points: Vec<f64> = kept.iter().map(|at| self.values[*at]).collect();
        let weights: Vec<f64> = kept.iter().map(|at| z[*at] * z[*at]).collect();
        let equation = Secular {
            points: &points,
            weights: &weights,
            constant: 1.0 / rho,
            squared: false,
            tolerance: T::ROUGHLY,
        };
        let roots = equation.roots(par);
        let mut exact = equation.exact(par, &roots);
        exact.iter_mut().zip(&kept).for_each(|(exact, at)| *exact = exact.copysign(z[*at]));
        // Old vectors in the order of the columns that they have numbers in.
        let mut order: Vec<usize> = (0..k).collect();
        order.sort_by_key(|at| wheres[kept[*at]]);
        let count = |what: Where| kept.iter().filter(|at| wheres[**at] == what).count();
        let (left, right) = (k - count(Where::Right), k - count(Where::Left));
        let mut mixed = vec![T::ZERO; k * k];
        let chunk = grain(k);
        each(par, mixed.chunks_mut(chunk * k).zip(roots.chunks(chunk)), |(rows, roots)| {
            let mut parts = vec![0.0; k];
            for (row, root) in rows.chunks_exact_mut(k).zip(roots) {
                equation.parts(*root, &exact, &mut parts);
                let length = parts.iter().map(|x| x * x).sum::<f64>().sqrt();
                row.iter_mut().zip(&order).for_each(|(to, from)| *to = T::of(parts[*from] / length));
            }
        });
        let mut old_left = Vec::with_capacity(left * half);
        let mut old_right = Vec::with_capacity(right * (n - half));
        for (at, from) in order.iter().enumerate() {
            let row = self.row(kept[*from]);
            if at < left {
                old_left.extend_from_slice(&row[..half]);
            }
            if at >= k - right {
                old_right.extend_from_slice(&row[half..]);
            }
        }
        let unchanged: Vec<T> = left_out.iter().flat_map(|at| self.row(*at).to_vec()).collect();
        let old_values: Vec<f64> = left_out.iter().map(|at| self.values[*at]).collect();
        for (at, row) in unchanged.chunks_exact(n).enumerate() {
            self.row(k + at).copy_from_slice(row);
        }
        self.values[k..].copy_from_slice(&old_values);
        for (value, root) in self.values.iter_mut().zip(&roots) {
            *value = root.near + root.beyond;
        }
        let mixed = Block::rows(&mixed, k);
        let (first, stride) = (self.first, self.stride);
        let to = rows_mut(&mut self.rows[first..], k, half, stride)?;
        let old = Block::rows(&old_left, half).view(left, half)?;
        multiply(par, mixed.view(k, left)?, old, to)?;
        let to = rows_mut(&mut self.rows[first + half..], k, n - half, stride)?;
        let old = Block::rows(&old_right, n - half).view(right, n - half)?;
        multiply(par, mixed.from(0, k - right).view(k, right)?, old, to)
    }

    /// Finds which vectors change, by ascending value, and which do not; turns pairs so that one of them does
    /// not, if their values are the same for all we know.
    fn deflate(&mut self, rho: f64, z: &mut [f64]) -> (Vec<usize>, Vec<usize>, Vec<Where>) {
        let n = z.len();
        let half = middle(n);
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| self.values[*a].total_cmp(&self.values[*b]));
        let largest = self.values.iter().fold(rho, |most, x| most.max(x.abs()));
        let nothing = 4.0 * T::EPSILON.to_f64() * largest;
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
            let (low, high) = (at.min(other), at.max(other));
            let (first, stride) = (self.first, self.stride);
            let (above, below) = self.rows.split_at_mut(high * stride);
            let (low_row, high_row) = (&mut above[low * stride + first..][..n], &mut below[first..][..n]);
            let (one, two) = if other == low { (low_row, high_row) } else { (high_row, low_row) };
            turn_rows(cosine, sine, one, two);
            let (a, b) = (self.values[other], self.values[at]);
            self.values[other] = a * cosine * cosine + b * sine * sine;
            self.values[at] = a * sine * sine + b * cosine * cosine;
            left_out.push(other);
        }
        kept.extend(before);
        (kept, left_out, wheres)
    }
}
