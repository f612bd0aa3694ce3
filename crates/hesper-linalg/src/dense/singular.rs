//! Singular vectors of a bidiagonal matrix by divide and conquer.
//!
//! Without its middle row a bidiagonal matrix is two of half the size, the left one with one more column than
//! rows. Adding the row back gives a diagonal matrix with one full row, whose singular values are the square
//! roots of the roots of a [`Secular`] equation; the new vectors are products with the old ones. Deflation
//! skips vectors that the row does not change, and one of each two with equal singular values.
//!
//! Vectors are rows. Those of a part are nonzero only in the columns of the part. Left and right vectors of a
//! singular value have the same index; a right vector without a singular value is the last.

use hesper_compute::{AtLevel, Par, Serial};

use super::Scalar;
use super::jacobi::orthogonal_rows;
use super::parallel::{each, grain, try_each};
use super::secular::{Root, Secular, length};
use super::vectors::{Support, Vectors, sides};
use crate::Failure;

/// Rows of a part that is solved directly.
const BASE_SIZE: usize = 8;
/// Rows of parts that are solved in parallel, each on one core.
const SERIAL_ROWS: usize = 160;
/// Replaces a zero that must not be zero: too small to change any other value.
const TINY: f64 = 1e-30;

/// Singular values of an upper bidiagonal matrix in descending order, and its vectors as the rows of `left`
/// and `right`, which must be zero before.
pub(super) fn bidiagonal_vectors<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    superdiagonal: &[T],
    left: &mut [T],
    right: &mut [T],
) -> Result<Vec<f64>, Failure> {
    let n = diagonal.len();
    let sides = (Some(Vectors::whole(left, n, n)), Vectors::whole(right, n, n));
    let values = solve(par, diagonal, superdiagonal, sides)?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    arrange(par, &order, left);
    arrange(par, &order, right);
    Ok(order.iter().map(|at| values[*at]).collect())
}

/// Singular values only.
pub(super) fn bidiagonal_values<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    superdiagonal: &[T],
) -> Result<Vec<f64>, Failure> {
    let mut ends = vec![T::ZERO; 2 * diagonal.len()];
    let mut values = solve(par, diagonal, superdiagonal, (None, Vectors::ends(&mut ends, diagonal.len())))?;
    values.sort_by(|a, b| b.total_cmp(a));
    Ok(values)
}

/// Singular values in any order, and vectors in the same order.
fn solve<'a, T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    superdiagonal: &[T],
    (left, right): (Option<Vectors<'a, T>>, Vectors<'a, T>),
) -> Result<Vec<f64>, Failure> {
    let diagonal: Vec<f64> = diagonal.iter().map(|x| x.to_f64()).collect();
    let mut superdiagonal: Vec<f64> = superdiagonal.iter().map(|x| x.to_f64()).collect();
    superdiagonal.resize(diagonal.len(), 0.0);
    let mut values = vec![0.0; diagonal.len()];
    let matrix = Matrix { diagonal: &diagonal, superdiagonal: &superdiagonal };
    let alone = AtLevel(Serial, par.simd());
    let mut whole = Part { first: 0, extra: 0, values: &mut values, left, right };
    let mut parts = Vec::new();
    whole.reborrow().split(SERIAL_ROWS, &mut parts);
    try_each(par, parts.into_iter(), |part| part.solve(&alone, matrix, 0))?;
    whole.solve(par, matrix, SERIAL_ROWS)?;
    Ok(values)
}

/// Permutes rows.
fn arrange<T: Scalar>(par: &dyn Par, order: &[usize], rows: &mut [T]) {
    let n = order.len();
    let old = rows.to_vec();
    each(par, rows.chunks_mut(n).zip(order), |(row, from)| row.copy_from_slice(&old[from * n..][..n]));
}

#[derive(Clone, Copy)]
struct Matrix<'a> {
    diagonal: &'a [f64],
    superdiagonal: &'a [f64],
}

/// A part of the problem: one singular value per row, and `extra` (zero or one) more columns than rows.
struct Part<'a, T> {
    first: usize,
    extra: usize,
    values: &'a mut [f64],
    /// `None` if only singular values are computed.
    left: Option<Vectors<'a, T>>,
    right: Vectors<'a, T>,
}

/// The middle row of `n`.
fn middle(n: usize) -> usize {
    (n - 1) / 2
}

impl<'a, T: Scalar> Part<'a, T> {
    fn reborrow(&mut self) -> Part<'_, T> {
        let (left, right) = (self.left.as_mut().map(Vectors::reborrow), self.right.reborrow());
        Part { first: self.first, extra: self.extra, values: &mut *self.values, left, right }
    }

    /// The parts before and after the middle row.
    fn halves(self) -> [Part<'a, T>; 2] {
        let at = middle(self.values.len());
        let (values, rest) = self.values.split_at_mut(at);
        let (left, left_rest) = self.left.map(|left| left.split(at + 1)).unzip();
        let (right, right_rest) = self.right.split(at + 1);
        [
            Part { first: self.first, extra: 1, values, left, right },
            Part {
                first: self.first + at + 1,
                extra: self.extra,
                values: &mut rest[1..],
                left: left_rest,
                right: right_rest,
            },
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

    /// Computes singular values and vectors; parts of at most `solved` rows are solved already.
    fn solve(mut self, par: &dyn Par, matrix: Matrix<'_>, solved: usize) -> Result<(), Failure> {
        let n = self.values.len();
        if solved == 0 && n <= BASE_SIZE {
            self.solve_few(matrix);
            return Ok(());
        }
        if n <= solved {
            return Ok(());
        }
        for half in self.reborrow().halves() {
            half.solve(par, matrix, solved)?;
        }
        self.merge(par, matrix)
    }

    /// Computes singular values and vectors of a few rows.
    fn solve_few(&mut self, matrix: Matrix<'_>) {
        let n = self.values.len();
        let width = n + self.extra;
        let mut rows = vec![0.0; n * width];
        for (at, row) in rows.chunks_exact_mut(width.max(1)).enumerate() {
            row[at] = matrix.diagonal[self.first + at];
            if at + 1 < width {
                row[at + 1] = matrix.superdiagonal[self.first + at];
            }
        }
        let mut left_vectors = vec![0.0; if self.left.is_some() { n * n } else { 0 }];
        left_vectors.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        self.values.copy_from_slice(&orthogonal_rows(n, width, &mut rows, &mut left_vectors));
        let narrow = |x: &[f64]| x.iter().map(|x| T::of(*x)).collect::<Vec<T>>();
        self.right.write(&narrow(&rows));
        if let Some(left) = &mut self.left {
            for (at, row) in left_vectors.chunks_exact(n.max(1)).enumerate() {
                left.write_row(at, &narrow(row));
            }
        }
    }

    /// Computes singular values and vectors from those of the halves.
    fn merge(&mut self, par: &dyn Par, matrix: Matrix<'_>) -> Result<(), Failure> {
        let n = self.values.len();
        let (half, width) = (middle(n), n + self.extra);
        let (alpha, mut beta) = (matrix.diagonal[self.first + half], matrix.superdiagonal[self.first + half]);
        if half + 1 == width {
            beta = 0.0;
        }
        self.left.iter_mut().for_each(|left| left.set_unit(half, half));
        self.values[half] = 0.0;
        // The row in the basis of the right vectors.
        let mut z = self.right.join(half + 1, width);
        z.iter_mut().enumerate().for_each(|(row, z)| *z *= if row <= half { alpha } else { beta });
        if self.extra == 1 {
            // Rotate the two vectors without a singular value, so that one of them is orthogonal to the row.
            let length = z[half].hypot(z[n]);
            if length > 0.0 {
                self.right.rotate(z[half] / length, -z[n] / length, (half, n));
                z[half] = length;
            }
        }
        let largest = self.values.iter().chain([&alpha, &beta]).fold(0.0, |most: f64, x| most.max(x.abs()));
        if largest == 0.0 {
            return Ok(());
        }
        let (mut kept, left_out, supports) = self.deflate(half, largest, &mut z);
        let k = kept.len();
        let tiny = TINY * largest;
        let mut points: Vec<f64> = kept.iter().map(|at| self.values[*at]).collect();
        if k > 1 {
            points[1] = points[1].max(tiny);
        }
        if z[half].abs() < tiny {
            z[half] = tiny;
        }
        let weights: Vec<f64> = kept.iter().map(|at| z[*at] * z[*at]).collect();
        let equation = Secular::new(points, weights, 1.0, true, (T::SUM_TOLERANCE, par.simd()));
        let roots = equation.roots(par);
        let exact = equation.exact(par, &roots, |at| z[kept[at]]);
        let mut order: Vec<usize> = (0..k).collect();
        order.sort_by_key(|at| supports[kept[*at]]);
        let (left, right) = mix::<T>(par, &equation, &roots[..k], &exact, &order, self.left.is_some());
        let old_values: Vec<f64> = left_out.iter().map(|at| self.values[*at]).collect();
        self.values[k..].copy_from_slice(&old_values);
        for (value, root) in self.values.iter_mut().zip(&roots[..k]) {
            let square = root.near * root.near + root.beyond;
            *value = root.near + root.beyond / (root.near + square.max(0.0).sqrt());
        }
        kept = order.iter().map(|at| kept[*at]).collect();
        let sides = sides(&kept, &supports);
        if let Some(vectors) = &mut self.left {
            vectors.replace(par, &left, &kept, &left_out, sides, half + 1)?;
        }
        self.right.replace(par, &right, &kept, &left_out, sides, half + 1)
    }

    /// Deflation: finds which vectors change, by ascending singular value, that of the row itself (zero)
    /// first, and which do not. Two numerically equal values are rotated so that one vector does not change.
    fn deflate(
        &mut self,
        half: usize,
        largest: f64,
        z: &mut [f64],
    ) -> (Vec<usize>, Vec<usize>, Vec<Support>) {
        let n = self.values.len();
        let nothing = T::EPSILON.to_f64() * largest;
        let mut order: Vec<usize> = (0..n).filter(|at| *at != half).collect();
        order.sort_by(|a, b| self.values[*a].total_cmp(&self.values[*b]));
        let mut supports: Vec<Support> = (0..n)
            .map(|at| match at.cmp(&half) {
                std::cmp::Ordering::Less => Support::Left,
                std::cmp::Ordering::Equal => Support::Both,
                std::cmp::Ordering::Greater => Support::Right,
            })
            .collect();
        let (mut kept, mut left_out, mut before) = (vec![half], Vec::new(), None::<usize>);
        for at in order {
            if z[at].abs() <= nothing {
                left_out.push(at);
                continue;
            }
            let Some(other) = before.replace(at) else { continue };
            let length = z[at].hypot(z[other]);
            let (cosine, sine) = (z[at] / length, z[other] / length);
            let (a, b) = (self.values[other], self.values[at]);
            if ((b - a) * cosine * sine).abs() > nothing {
                kept.push(other);
                continue;
            }
            (z[at], z[other]) = (length, 0.0);
            if supports[at] != supports[other] {
                supports[at] = Support::Both;
            }
            self.left.iter_mut().for_each(|left| left.rotate(cosine, sine, (other, at)));
            self.right.rotate(cosine, sine, (other, at));
            self.values[other] = a * cosine * cosine + b * sine * sine;
            self.values[at] = a * sine * sine + b * cosine * cosine;
            left_out.push(other);
        }
        kept.extend(before);
        (kept, left_out, supports)
    }
}

/// The coefficients of the new left (if they are computed) and right vectors, for the old ones in the given
/// order.
fn mix<T: Scalar>(
    par: &dyn Par,
    equation: &Secular,
    roots: &[Root],
    exact: &[f64],
    order: &[usize],
    both: bool,
) -> (Vec<T>, Vec<T>) {
    let k = roots.len();
    let mut left = vec![T::ZERO; if both { k * k } else { 0 }];
    let mut right = vec![T::ZERO; k * k];
    let chunk = grain(k);
    let lefts = left.chunks_mut(chunk * k).map(Some).chain(std::iter::repeat_with(|| None));
    each(
        par,
        lefts.zip(right.chunks_mut(chunk * k)).zip(roots.chunks(chunk)),
        |((mut left, right), roots)| {
            let mut parts = vec![0.0; exact.len()];
            for (at, (right, root)) in right.chunks_exact_mut(k).zip(roots).enumerate() {
                equation.parts(*root, exact, &mut parts);
                write(&parts, order, right);
                if let Some(left) = &mut left {
                    parts.iter_mut().zip(equation.points()).for_each(|(part, point)| *part *= point);
                    parts[0] = -1.0;
                    write(&parts, order, &mut left[at * k..][..k]);
                }
            }
        },
    );
    (left, right)
}

/// Permuted elements, divided by their length.
fn write<T: Scalar>(elements: &[f64], order: &[usize], to: &mut [T]) {
    let shorter = 1.0 / length(elements);
    to.iter_mut().zip(order).for_each(|(to, from)| *to = T::of(elements[*from] * shorter));
}
