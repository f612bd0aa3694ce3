//! One long transform on all cores, by the four-step algorithm.
//!
//! A row of `n1 * n2` elements is treated as a matrix: its columns are transformed and multiplied by twiddle
//! factors, then its rows are transformed. Columns and rows are processed in blocks of sixteen, so that whole
//! cache lines are read and written. The result does not depend on the number of threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};

use crate::walk::par_chunks;

/// The number of columns or rows of a block.
const BLOCK: usize = 16;
/// Shorter rows are faster on one core.
const MIN_LENGTH: usize = 1 << 15;
/// The largest number of cached plans.
const MAX_PLANS: usize = 4;

/// Writes the elements of the row from an index on.
pub type Fill<'a> = dyn Fn(usize, &mut [Complex<f32>]) + Sync + 'a;

/// The plan of a long transform.
pub struct LongFft {
    columns: usize,
    rows: usize,
    column_fft: Arc<dyn Fft<f32>>,
    row_fft: Arc<dyn Fft<f32>>,
    /// The twiddle factors, column by column.
    twiddles: Vec<Complex<f32>>,
}

impl std::fmt::Debug for LongFft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LongFft({} x {})", self.rows, self.columns)
    }
}

impl LongFft {
    /// The plan for a length, from the cache or new. `None` if the length is short, or is not a product of
    /// two multiples of the block.
    pub fn plan(length: usize, inverse: bool) -> Option<Arc<LongFft>> {
        type Plans = HashMap<(usize, bool), Arc<LongFft>>;
        static PLANS: OnceLock<Mutex<Plans>> = OnceLock::new();
        let rows = factor(length)?;
        let plans = PLANS.get_or_init(Mutex::default);
        let lock = || plans.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(found) = lock().get(&(length, inverse)) {
            return Some(found.clone());
        }
        let plan = Arc::new(LongFft::new(rows, length / rows, inverse));
        let mut plans = lock();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert((length, inverse), plan.clone());
        Some(plan)
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
        // Each twiddle factor is the product of a coarse and a fine power of the root of unity.
        let fine: Vec<Complex<f64>> = (0..columns).map(unit).collect();
        let coarse: Vec<Complex<f64>> = (0..rows).map(|k| unit(k * columns)).collect();
        let mut twiddles = vec![Complex::new(0.0f32, 0.0); length];
        par_chunks(&mut twiddles, rows * BLOCK, |first, part| {
            for (at, twiddle) in part.iter_mut().enumerate() {
                let (column, row) = ((first + at) / rows, (first + at) % rows);
                let power = column * row;
                let exact = coarse[power / columns] * fine[power % columns];
                *twiddle = Complex::new(exact.re as f32, exact.im as f32);
            }
        });
        LongFft {
            columns,
            rows,
            column_fft: planner.plan_fft(rows, direction),
            row_fft: planner.plan_fft(columns, direction),
            twiddles,
        }
    }

    /// Transforms the row that `fill` writes. `first` and `second` have its length. The result is in
    /// `second`, in the order of [`LongFft::place`].
    pub fn run(&self, fill: &Fill<'_>, first: &mut [[f32; 2]], second: &mut [[f32; 2]]) {
        let (rows, columns) = (self.rows, self.columns);
        // Transform blocks of columns; the result is stored column by column.
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
            let mut scratch = vec![Complex::new(0.0f32, 0.0); self.column_fft.get_inplace_scratch_len()];
            self.column_fft.process_with_scratch(&mut lines, &mut scratch);
            let twiddles = &self.twiddles[start..start + part.len()];
            for ((to, x), twiddle) in part.iter_mut().zip(&lines).zip(twiddles) {
                let x = x * twiddle;
                *to = [x.re, x.im];
            }
        });
        let first = &*first;
        // Transform blocks of rows; a block stores its sixteen elements of a column together.
        par_chunks(second, columns * BLOCK, |start, part| {
            let row = start / columns;
            let mut lines = vec![Complex::new(0.0f32, 0.0); columns * BLOCK];
            for (column, from) in first.chunks_exact(rows).enumerate() {
                for (at, [re, im]) in from[row..row + BLOCK].iter().enumerate() {
                    lines[at * columns + column] = Complex::new(*re, *im);
                }
            }
            let mut scratch = vec![Complex::new(0.0f32, 0.0); self.row_fft.get_inplace_scratch_len()];
            self.row_fft.process_with_scratch(&mut lines, &mut scratch);
            for (column, to) in part.chunks_exact_mut(BLOCK).enumerate() {
                for (at, to) in to.iter_mut().enumerate() {
                    let x = lines[at * columns + column];
                    *to = [x.re, x.im];
                }
            }
        });
    }

    /// The index of a frequency in the result. The frequencies up to the next multiple of sixteen follow it.
    pub fn place(&self, frequency: usize) -> usize {
        let (along, row) = (frequency / self.rows, frequency % self.rows);
        (row / BLOCK * self.columns + along) * BLOCK + row % BLOCK
    }

    /// Frequencies are consecutive up to the next multiple of this.
    pub const TOGETHER: usize = BLOCK;
}

/// The largest factor up to the square root such that both factors are multiples of the block.
pub fn factor(length: usize) -> Option<usize> {
    if length < MIN_LENGTH {
        return None;
    }
    let root = (length as f64).sqrt() as usize / BLOCK * BLOCK;
    (4 * BLOCK..=root).rev().step_by(BLOCK).find(|rows| {
        length.is_multiple_of(*rows) && (length / rows).is_multiple_of(BLOCK) && length / rows <= 64 * rows
    })
}
