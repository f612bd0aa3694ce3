//! Fourier transforms of rows whose length is a power of two.
//!
//! [`Fft::new`] returns a plan where this module is fast; other lengths are left to the caller. Rows are
//! transformed several at a time in the lanes of vectors ([`rows`], and [`columns`] for other axes), or one
//! at a time on all threads ([`long`]). All are built from the same passes ([`lines`]). Results do not depend
//! on the number of threads.

mod columns;
mod lines;
mod long;
mod real;
mod rows;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use crate::error::{Mismatch, at_least, multiple, same};
use crate::par::Par;
use crate::rows::Axis;
pub use lines::root;
use lines::{Lines, SHORTEST};
use long::Long;

/// The longest row that is transformed together with others.
const MAX_BATCHED_LENGTH: usize = 1 << 12;
/// The longest row.
const MAX_LENGTH: usize = 1 << 26;
/// Most cached plans.
const MAX_PLANS: usize = 32;

/// The types of input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// Complex to complex.
    Complex,
    /// Real to the non-negative frequencies.
    RealToHalf,
    /// Real to all frequencies.
    RealToFull,
    /// The non-negative frequencies to real.
    HalfToReal,
}

/// A plan for rows of one length.
pub struct Fft {
    length: usize,
    kind: FftKind,
    inverse: bool,
    /// Plan for several rows at a time.
    batched: Option<Lines>,
    /// Plan for one row at a time.
    alone: Option<Long>,
    /// For real transforms: the roots of unity of the first half and one more, as real and imaginary parts.
    roots: Vec<f32>,
}

impl std::fmt::Debug for Fft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fft({:?} {}{})", self.kind, self.length, if self.inverse { ", inverse" } else { "" })
    }
}

impl Fft {
    /// A plan for `rows` rows of `length` elements, from the cache or built now. `None` if the length is not
    /// a power of two within the supported range, or if there are too few rows for their length.
    ///
    /// `inverse` applies to real input too; a transform to real output is always inverse.
    pub fn new(length: usize, rows: usize, kind: FftKind, inverse: bool) -> Option<Arc<Fft>> {
        type Plans = HashMap<(usize, FftKind, bool, bool), Arc<Fft>>;
        static PLANS: OnceLock<Mutex<Plans>> = OnceLock::new();
        let complex = if kind == FftKind::Complex { length } else { length / 2 };
        if !length.is_power_of_two() || !(SHORTEST..=MAX_LENGTH).contains(&complex) {
            return None;
        }
        let batched = complex <= MAX_BATCHED_LENGTH && rows >= 6;
        if !batched && (complex < MAX_BATCHED_LENGTH || complex < SHORTEST * SHORTEST) {
            return None;
        }
        let key = (length, kind, inverse, batched);
        let plans = PLANS.get_or_init(Mutex::default);
        let lock = || plans.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(found) = lock().get(&key) {
            return Some(found.clone());
        }
        let roots = if kind == FftKind::Complex {
            Vec::new()
        } else {
            (0..=complex).map(|k| root(k, length)).flat_map(|(re, im)| [re as f32, im as f32]).collect()
        };
        let plan = Arc::new(Fft {
            length,
            kind,
            inverse,
            batched: batched.then(|| Lines::new(complex)),
            alone: (!batched).then(|| Long::new(complex)),
            roots,
        });
        let mut plans = lock();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(key, plan.clone());
        Some(plan)
    }

    /// Floats per element of the input.
    fn input_floats(&self) -> usize {
        match self.kind {
            FftKind::Complex | FftKind::HalfToReal => 2,
            FftKind::RealToHalf | FftKind::RealToFull => 1,
        }
    }

    /// Floats of a row that are read.
    fn input_row(&self) -> usize {
        match self.kind {
            FftKind::Complex => 2 * self.length,
            FftKind::RealToHalf | FftKind::RealToFull => self.length,
            FftKind::HalfToReal => self.length + 2,
        }
    }

    /// Floats of a row of the result.
    fn output_row(&self) -> usize {
        match self.kind {
            FftKind::Complex | FftKind::RealToFull => 2 * self.length,
            FftKind::RealToHalf => self.length + 2,
            FftKind::HalfToReal => self.length,
        }
    }

    /// Transforms rows of `given` elements, truncated or zero-padded to the length of the plan, times
    /// `scale`. A complex number is two floats, real and imaginary.
    pub fn run(
        &self,
        par: &dyn Par,
        x: &[f32],
        given: usize,
        out: &mut [f32],
        scale: f32,
    ) -> Result<(), Mismatch> {
        let row = given * self.input_floats();
        let rows = out.len() / self.output_row();
        multiple("floats of the result", self.output_row(), out.len())?;
        same("floats of the input", rows * row, x.len())?;
        at_least("elements of a row", 1, given)?;
        if let Some(lines) = &self.batched {
            rows::run(par, self, lines, x, (rows, given), out, scale);
        } else if let Some(long) = &self.alone {
            real::run(par, self, long, x, row, out, scale);
        }
        Ok(())
    }

    /// Transforms complex numbers along an axis of the plan's length, times `scale`. Only for plans where
    /// [`Fft::has_columns`] is true.
    pub fn run_columns(
        &self,
        par: &dyn Par,
        x: &[f32],
        axis: Axis,
        out: &mut [f32],
        scale: f32,
    ) -> Result<(), Mismatch> {
        same("elements of the axis", self.length, axis.len)?;
        same("floats of the input", 2 * axis.elements()?, x.len())?;
        same("floats of the result", x.len(), out.len())?;
        match &self.batched {
            Some(lines) if self.has_columns() => {
                columns::run(par, lines, self.inverse, x, axis, out, scale);
                Ok(())
            }
            _ => Err(Mismatch::TooMany {
                what: "elements of a column",
                limit: MAX_BATCHED_LENGTH,
                given: self.length,
            }),
        }
    }

    /// Whether the plan can transform columns without transposing them.
    pub fn has_columns(&self) -> bool {
        self.kind == FftKind::Complex && self.batched.is_some()
    }
}
