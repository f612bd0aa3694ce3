//! Balancing of a square matrix: rows and columns are permuted so that eigenvalues that stand alone come
//! first and last, and scaled by powers of two so that each row is about as large as its column.

use super::super::field::Field;
use super::super::largest;

/// A row is scaled if that shrinks it and its column together at least to this fraction.
const GAIN: f64 = 0.95;
/// Most passes over all rows; three are typical.
const MAX_ROUNDS: usize = 100;
/// Scales stay between the reciprocal of this number and it.
const MAX_SCALE: f64 = 1e280;

/// The permutation and the scales.
pub(super) struct Balanced {
    /// Rows and columns that were exchanged, in order.
    swaps: Vec<(usize, usize)>,
    scales: Vec<f64>,
}

impl Balanced {
    /// Balances a matrix in place.
    pub(super) fn new<T: Field<Real = f64>>(n: usize, a: &mut [T]) -> Self {
        let mut found = Self { swaps: Vec::new(), scales: vec![1.0; n] };
        let (mut low, mut high) = (0, n);
        let zero_beside = |a: &[T], at: usize, from: usize, to: usize, down: usize, across: usize| {
            (from..to).all(|other| other == at || a[at * down + other * across] == T::ZERO)
        };
        while let Some(row) = (low..high).rev().find(|row| zero_beside(a, *row, low, high, n, 1)) {
            high -= 1;
            found.exchange(n, a, row, high);
        }
        while let Some(column) = (low..high).find(|column| zero_beside(a, *column, low, high, 1, n)) {
            found.exchange(n, a, column, low);
            low += 1;
        }
        for _ in 0..MAX_ROUNDS {
            if !found.scale(n, a, low, high) {
                break;
            }
        }
        found
    }

    fn exchange<T: Field>(&mut self, n: usize, a: &mut [T], one: usize, other: usize) {
        if one == other {
            return;
        }
        self.swaps.push((one, other));
        (0..n).for_each(|at| a.swap(one * n + at, other * n + at));
        (0..n).for_each(|at| a.swap(at * n + one, at * n + other));
    }

    /// Scales rows and columns once; returns whether any changed.
    fn scale<T: Field<Real = f64>>(&mut self, n: usize, a: &mut [T], low: usize, high: usize) -> bool {
        // A sum of the largest numbers stays finite.
        let size = |x: &T| T::parts(std::slice::from_ref(x)).iter().map(|x| x.abs() * 1e-10).sum::<f64>();
        let most = |most: f64, x: &T| most.max(size(x));
        let mut changed = false;
        for at in low..high {
            let row: f64 = a[at * n..][low..high].iter().map(size).sum();
            let column: f64 = a[low * n + at..].iter().step_by(n).take(high - low).map(size).sum();
            if row == 0.0 || column == 0.0 {
                continue;
            }
            // The power of two that makes them about equal.
            let factor = 2f64.powi(((row.log2() - column.log2()) / 2.0).round() as i32);
            let scale = self.scales[at] * factor;
            let gains = column * factor + row / factor < GAIN * (column + row);
            if !gains || !(1.0 / MAX_SCALE..MAX_SCALE).contains(&scale) {
                continue;
            }
            // Elements beside the permuted eigenvalues must stay finite, too.
            let largest_of_row = a[at * n..][..n].iter().fold(0.0, most) / factor;
            let largest_of_column = a[at..].iter().step_by(n).fold(0.0, most) * factor;
            if largest_of_row.max(largest_of_column) > MAX_SCALE {
                continue;
            }
            changed = true;
            self.scales[at] = scale;
            a[at * n..][..n].iter_mut().for_each(|x| *x = x.over(factor));
            a[at..].iter_mut().step_by(n).for_each(|x| *x = x.times(factor));
        }
        changed
    }

    /// Transforms an eigenvector of the balanced matrix into one of the matrix.
    pub(super) fn restore(&self, re: &mut [f64], im: &mut [f64]) {
        // Scales are up to the largest numbers: start from elements of about one.
        let most = largest(re).max(largest(im));
        for part in [re, im] {
            part.iter_mut().zip(&self.scales).for_each(|(x, scale)| *x = *x / most * scale);
            self.swaps.iter().rev().for_each(|(one, other)| part.swap(*one, *other));
        }
    }
}
