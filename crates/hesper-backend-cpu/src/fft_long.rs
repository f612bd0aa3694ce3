//! One long transform on all cores.
//!
//! A row of `n1 * n2` elements is looked at as a matrix: its columns are transformed, turned by fixed
//! angles, then its rows are transformed. Columns and rows are taken sixteen at a time, so that whole cache
//! lines are read and written, and lie in between in blocks of sixteen. What is computed does not depend on
//! the number of threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};

use crate::walk::par_chunks;

/// Columns or rows of a block.
const BLOCK: usize = 16;
/// The shortest row that is worth it.
const LONG: usize = 1 << 15;
/// Most plans that are kept.
const MAX_PLANS: usize = 4;

/// Gives elements of the row from a place on.
pub type Fill<'a> = dyn Fn(usize, &mut [Complex<f32>]) + Sync + 'a;

/// How a long row is transformed.
pub struct Long {
    columns: usize,
    rows: usize,
    down: Arc<dyn Fft<f32>>,
    along: Arc<dyn Fft<f32>>,
    /// For each column, then each row, a number of absolute value one.
    turns: Vec<Complex<f32>>,
}

impl std::fmt::Debug for Long {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Long({} x {})", self.rows, self.columns)
    }
}

impl Long {
    /// The plan for a length, from the cache or made now; none if the length is short, or has no two factors
    /// of which both are multiples of a block.
    pub fn plan(length: usize, inverse: bool) -> Option<Arc<Long>> {
        type Plans = HashMap<(usize, bool), Arc<Long>>;
        static PLANS: OnceLock<Mutex<Plans>> = OnceLock::new();
        let rows = factor(length)?;
        let plans = PLANS.get_or_init(Mutex::default);
        let lock = || plans.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(found) = lock().get(&(length, inverse)) {
            return Some(found.clone());
        }
        let made = Arc::new(Long::new(rows, length / rows, inverse));
        let mut plans = lock();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert((length, inverse), made.clone());
        Some(made)
    }

    fn new(rows: usize, columns: usize, inverse: bool) -> Self {
        let direction = if inverse { FftDirection::Inverse } else { FftDirection::Forward };
        let mut planner = FftPlanner::new();
        let length = rows * columns;
        let sign = if inverse { 1.0 } else { -1.0 };
        let unit = |k: usize| {
            let angle = sign * std::f64::consts::TAU * k as f64 / length as f64;
            Complex::new(angle.cos(), angle.sin())
        };
        // Every power is a product of a coarse and a fine one.
        let fine: Vec<Complex<f64>> = (0..columns).map(unit).collect();
        let coarse: Vec<Complex<f64>> = (0..rows).map(|k| unit(k * columns)).collect();
        let mut turns = vec![Complex::new(0.0f32, 0.0); length];
        par_chunks(&mut turns, rows * BLOCK, |first, part| {
            for (at, turn) in part.iter_mut().enumerate() {
                let (column, row) = ((first + at) / rows, (first + at) % rows);
                let power = column * row;
                let exact = coarse[power / columns] * fine[power % columns];
                *turn = Complex::new(exact.re as f32, exact.im as f32);
            }
        });
        Long {
            columns,
            rows,
            down: planner.plan_fft(rows, direction),
            along: planner.plan_fft(columns, direction),
            turns,
        }
    }

    /// Transforms the row that `fill` gives. `first` and `second` are memory of its length; the result is in
    /// `second`, where [`Long::place`] says.
    pub fn run(&self, fill: &Fill<'_>, first: &mut [[f32; 2]], second: &mut [[f32; 2]]) {
        let (rows, columns) = (self.rows, self.columns);
        // Blocks of columns, each turned into rows.
        par_chunks(first, rows * BLOCK, |start, part| {
            let column = start / rows;
            let mut lines = vec![Complex::new(0.0f32, 0.0); rows * BLOCK];
            let mut piece = [Complex::new(0.0f32, 0.0); BLOCK];
            for row in 0..rows {
                fill(row * columns + column, &mut piece);
                for (at, x) in piece.iter().enumerate() {
                    lines[at * rows + row] = *x;
                }
            }
            let mut scratch = vec![Complex::new(0.0f32, 0.0); self.down.get_inplace_scratch_len()];
            self.down.process_with_scratch(&mut lines, &mut scratch);
            let turns = &self.turns[start..start + part.len()];
            for ((to, x), turn) in part.iter_mut().zip(&lines).zip(turns) {
                let x = x * turn;
                *to = [x.re, x.im];
            }
        });
        let first = &*first;
        // Blocks of rows, of which each keeps its sixteen numbers of a column together.
        par_chunks(second, columns * BLOCK, |start, part| {
            let row = start / columns;
            let mut lines = vec![Complex::new(0.0f32, 0.0); columns * BLOCK];
            for (column, from) in first.chunks_exact(rows).enumerate() {
                for (at, [re, im]) in from[row..row + BLOCK].iter().enumerate() {
                    lines[at * columns + column] = Complex::new(*re, *im);
                }
            }
            let mut scratch = vec![Complex::new(0.0f32, 0.0); self.along.get_inplace_scratch_len()];
            self.along.process_with_scratch(&mut lines, &mut scratch);
            for (column, to) in part.chunks_exact_mut(BLOCK).enumerate() {
                for (at, to) in to.iter_mut().enumerate() {
                    let x = lines[at * columns + column];
                    *to = [x.re, x.im];
                }
            }
        });
    }

    /// Where the number of a frequency is; those that follow it up to a multiple of sixteen are behind it.
    pub fn place(&self, frequency: usize) -> usize {
        let (along, row) = (frequency / self.rows, frequency % self.rows);
        (row / BLOCK * self.columns + along) * BLOCK + row % BLOCK
    }

    /// Frequencies that lie together: from one up to the next multiple of this.
    pub const TOGETHER: usize = BLOCK;
}

/// The largest factor up to the root that is a multiple of a block, as is its other.
fn factor(length: usize) -> Option<usize> {
    if length < LONG {
        return None;
    }
    let root = (length as f64).sqrt() as usize / BLOCK * BLOCK;
    (4 * BLOCK..=root).rev().step_by(BLOCK).find(|rows| {
        length.is_multiple_of(*rows) && (length / rows).is_multiple_of(BLOCK) && length / rows <= 64 * rows
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_cut_into_two_factors_of_whole_blocks() {
        assert_eq!(factor(1 << 20), Some(1024));
        assert_eq!(factor(1 << 15), Some(128));
        assert_eq!(factor(1 << 10), None);
        assert_eq!(factor((1 << 20) + 1), None);
    }
}
