//! Singular vectors of a bidiagonal matrix, by halves.
//!
//! Without its middle row a bidiagonal matrix is two of half the size, the left one with a column more than
//! rows. Putting the row back makes a matrix of a diagonal and one full row, whose singular values are the
//! square roots of the roots of a [`Secular`] equation; the new vectors are products with the old ones. Vectors
//! that the row does not change, and one of each two whose values coincide, are left out of all this.
//!
//! Vectors are rows. Those of a part have their numbers in the columns of the part; left and right vectors of
//! the same value have the same number, and a right vector that belongs to no value is the last.

use hesper_compute::{AtLevel, Par, Serial};

use super::Scalar;
use super::few::orthogonal_rows;
use super::lines::{Vectors, Where, sides};
use super::secular::{Root, Secular, length};
use super::share::{each, grain, try_each};
use crate::Failure;

/// Rows of a problem that is solved as a whole.
const FEW: usize = 8;
/// Rows of problems that are solved side by side, each on one core.
const ALONE: usize = 160;
/// What stands for zero where a number must not be: too small to change any other.
const NEXT_TO_NOTHING: f64 = 1e-30;

/// Singular values of an upper bidiagonal matrix, the largest first, and its vectors as the rows of `left` and
/// `right`, which are zeros before. Those of `left` lie `stride` apart.
pub(super) fn bidiagonal_vectors<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    above: &[T],
    (left, stride): (&mut [T], usize),
    right: &mut [T],
) -> Result<Vec<f64>, Failure> {
    let n = diagonal.len();
    let sides = (Some(Vectors::whole(left, stride, n)), Vectors::whole(right, n, n));
    let values = solve(par, diagonal, above, sides)?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    arrange(par, &order, left, stride);
    arrange(par, &order, right, n);
    Ok(order.iter().map(|at| values[*at]).collect())
}

/// The values alone.
pub(super) fn bidiagonal_values<T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    above: &[T],
) -> Result<Vec<f64>, Failure> {
    let mut ends = vec![T::ZERO; 2 * diagonal.len()];
    let mut values = solve(par, diagonal, above, (None, Vectors::ends(&mut ends, diagonal.len())))?;
    values.sort_by(|a, b| b.total_cmp(a));
    Ok(values)
}

/// Values in any order, and vectors in the same.
fn solve<'a, T: Scalar>(
    par: &dyn Par,
    diagonal: &[T],
    above: &[T],
    (left, right): (Option<Vectors<'a, T>>, Vectors<'a, T>),
) -> Result<Vec<f64>, Failure> {
    let diagonal: Vec<f64> = diagonal.iter().map(|x| x.to_f64()).collect();
    let mut above: Vec<f64> = above.iter().map(|x| x.to_f64()).collect();
    above.resize(diagonal.len(), 0.0);
    let mut values = vec![0.0; diagonal.len()];
    let matrix = Matrix { diagonal: &diagonal, above: &above };
    let alone = AtLevel(Serial, par.simd());
    let mut whole = Part { first: 0, extra: 0, values: &mut values, left, right };
    let mut parts = Vec::new();
    whole.again().split(ALONE, &mut parts);
    try_each(par, parts.into_iter(), |part| part.solve(&alone, matrix, 0))?;
    whole.solve(par, matrix, ALONE)?;
    Ok(values)
}

/// Puts rows in another order.
fn arrange<T: Scalar>(par: &dyn Par, order: &[usize], rows: &mut [T], stride: usize) {
    let n = order.len();
    let old: Vec<T> = rows.chunks(stride).take(n).flat_map(|row| row[..n].to_vec()).collect();
    each(par, rows.chunks_mut(stride).zip(order), |(row, from)| {
        row[..n].copy_from_slice(&old[from * n..][..n]);
    });
}

#[derive(Clone, Copy)]
struct Matrix<'a> {
    diagonal: &'a [f64],
    above: &'a [f64],
}

/// A part of the problem: a value for each of its rows; it has `extra` (none or one) columns more.
struct Part<'a, T> {
    first: usize,
    extra: usize,
    values: &'a mut [f64],
    /// None if only values are wanted.
    left: Option<Vectors<'a, T>>,
    right: Vectors<'a, T>,
}

/// The row in the middle of so many.
fn middle(n: usize) -> usize {
    (n - 1) / 2
}

impl<'a, T: Scalar> Part<'a, T> {
    fn again(&mut self) -> Part<'_, T> {
        let (left, right) = (self.left.as_mut().map(Vectors::again), self.right.again());
        Part { first: self.first, extra: self.extra, values: &mut *self.values, left, right }
    }

    /// What is before and behind the row in the middle.
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

    /// The parts of at most so many rows.
    fn split(self, most: usize, to: &mut Vec<Part<'a, T>>) {
        if self.values.len() <= most {
            return to.push(self);
        }
        for half in self.halves() {
            half.split(most, to);
        }
    }

    /// Finds values and vectors, those of parts of at most `solved` rows being there.
    fn solve(mut self, par: &dyn Par, matrix: Matrix<'_>, solved: usize) -> Result<(), Failure> {
        let n = self.values.len();
        if solved == 0 && n <= FEW {
            self.solve_few(matrix);
            return Ok(());
        }
        if n <= solved {
            return Ok(());
        }
        for half in self.again().halves() {
            half.solve(par, matrix, solved)?;
        }
        self.merge(par, matrix)
    }

    /// Finds values and vectors of a few rows.
    fn solve_few(&mut self, matrix: Matrix<'_>) {
        let n = self.values.len();
        let width = n + self.extra;
        let mut rows = vec![0.0; n * width];
        for (at, row) in rows.chunks_exact_mut(width.max(1)).enumerate() {
            row[at] = matrix.diagonal[self.first + at];
            if at + 1 < width {
                row[at + 1] = matrix.above[self.first + at];
            }
        }
        let mut turned = vec![0.0; if self.left.is_some() { n * n } else { 0 }];
        turned.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        self.values.copy_from_slice(&orthogonal_rows(n, width, &mut rows, &mut turned));
        let narrow = |x: &[f64]| x.iter().map(|x| T::of(*x)).collect::<Vec<T>>();
        self.right.write(&narrow(&rows));
        if let Some(left) = &mut self.left {
            for (at, row) in turned.chunks_exact(n.max(1)).enumerate() {
                left.write_row(at, &narrow(row));
            }
        }
    }

    /// Finds values and vectors from those of the halves.
    fn merge(&mut self, par: &dyn Par, matrix: Matrix<'_>) -> Result<(), Failure> {
        let n = self.values.len();
        let (half, width) = (middle(n), n + self.extra);
        let (alpha, mut beta) = (matrix.diagonal[self.first + half], matrix.above[self.first + half]);
        if half + 1 == width {
            beta = 0.0;
        }
        self.left.iter_mut().for_each(|left| left.set_unit(half, half));
        self.values[half] = 0.0;
        // The row in terms of the right vectors.
        let mut z = self.right.join(half + 1, width);
        z.iter_mut().enumerate().for_each(|(row, z)| *z *= if row <= half { alpha } else { beta });
        if self.extra == 1 {
            // Of the two vectors without a value one is turned out of the row.
            let length = z[half].hypot(z[n]);
            if length > 0.0 {
                self.right.turn(z[half] / length, -z[n] / length, (half, n));
                z[half] = length;
            }
        }
        let largest = self.values.iter().chain([&alpha, &beta]).fold(0.0, |most: f64, x| most.max(x.abs()));
        if largest == 0.0 {
            return Ok(());
        }
        let (mut kept, left_out, wheres) = self.deflate(half, largest, &mut z);
        let k = kept.len();
        let tiny = NEXT_TO_NOTHING * largest;
        let mut points: Vec<f64> = kept.iter().map(|at| self.values[*at]).collect();
        if k > 1 {
            points[1] = points[1].max(tiny);
        }
        if z[half].abs() < tiny {
            z[half] = tiny;
        }
        let weights: Vec<f64> = kept.iter().map(|at| z[*at] * z[*at]).collect();
        let equation = Secular::new(points, weights, 1.0, true, (T::ROUGHLY, par.simd()));
        let roots = equation.roots(par);
        let exact = equation.exact(par, &roots, |at| z[kept[at]]);
        let mut order: Vec<usize> = (0..k).collect();
        order.sort_by_key(|at| wheres[kept[*at]]);
        let (left, right) = mix::<T>(par, &equation, &roots[..k], &exact, &order, self.left.is_some());
        let old_values: Vec<f64> = left_out.iter().map(|at| self.values[*at]).collect();
        self.values[k..].copy_from_slice(&old_values);
        for (value, root) in self.values.iter_mut().zip(&roots[..k]) {
            let square = root.near * root.near + root.beyond;
            *value = root.near + root.beyond / (root.near + square.max(0.0).sqrt());
        }
        kept = order.iter().map(|at| kept[*at]).collect();
        let sides = sides(&kept, &wheres);
        if let Some(vectors) = &mut self.left {
            vectors.replace(par, &left, &kept, &left_out, sides, half + 1)?;
        }
        self.right.replace(par, &right, &kept, &left_out, sides, half + 1)
    }

    /// Finds which vectors change, by ascending value, that of the row itself (zero) first, and which do not;
    /// turns pairs so that one of them does not, if their values are the same for all we know.
    fn deflate(&mut self, half: usize, largest: f64, z: &mut [f64]) -> (Vec<usize>, Vec<usize>, Vec<Where>) {
        let n = self.values.len();
        let nothing = T::EPSILON.to_f64() * largest;
        let mut order: Vec<usize> = (0..n).filter(|at| *at != half).collect();
        order.sort_by(|a, b| self.values[*a].total_cmp(&self.values[*b]));
        let mut wheres: Vec<Where> = (0..n)
            .map(|at| match at.cmp(&half) {
                std::cmp::Ordering::Less => Where::Left,
                std::cmp::Ordering::Equal => Where::Both,
                std::cmp::Ordering::Greater => Where::Right,
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
            if wheres[at] != wheres[other] {
                wheres[at] = Where::Both;
            }
            self.left.iter_mut().for_each(|left| left.turn(cosine, sine, (other, at)));
            self.right.turn(cosine, sine, (other, at));
            self.values[other] = a * cosine * cosine + b * sine * sine;
            self.values[at] = a * sine * sine + b * cosine * cosine;
            left_out.push(other);
        }
        kept.extend(before);
        (kept, left_out, wheres)
    }
}

/// What the new left (if they are wanted) and right vectors are made of: numbers for the old ones in the given
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

/// Numbers in another order, divided by their length.
fn write<T: Scalar>(numbers: &[f64], order: &[usize], to: &mut [T]) {
    let shorter = 1.0 / length(numbers);
    to.iter_mut().zip(order).for_each(|(to, from)| *to = T::of(numbers[*from] * shorter));
}
