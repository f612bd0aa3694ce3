//! Fourier transforms of rows whose length is a power of two.
//!
//! [`Fft::new`] gives a plan where this module has one that is worth it; other lengths are for others. Rows are
//! transformed side by side in the lanes of vectors ([`rows`], and [`columns`] of other axes), or one after
//! the other on all threads ([`long`]); all are made of the same passes ([`lines`]). What is computed does not
//! depend on the number of threads.

mod columns;
mod lines;
mod long;
mod real;
mod rows;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use crate::error::{Mismatch, at_least, same};
use crate::par::Par;
use crate::rows::Axis;
use lines::{Lines, SHORTEST, root};
use long::Long;

/// The longest row that is transformed beside others.
const BESIDE: usize = 1 << 12;
/// The longest row at all.
const LONGEST: usize = 1 << 26;
/// Most plans that are kept.
const MOST: usize = 32;

/// What a row becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Complex numbers from as many.
    Complex,
    /// The frequencies of real numbers that are not negative.
    RealToHalf,
    /// All frequencies of real numbers.
    RealToFull,
    /// Real numbers from the frequencies that are not negative.
    HalfToReal,
}

/// A plan for rows of one length.
pub struct Fft {
    length: usize,
    kind: Kind,
    inverse: bool,
    /// Rows side by side.
    beside: Option<Lines>,
    /// Rows one by one.
    alone: Option<Long>,
    /// Of transforms of real numbers, the roots of the first half and one more: real, imaginary.
    roots: Vec<f32>,
}

impl std::fmt::Debug for Fft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fft({:?} {}{})", self.kind, self.length, if self.inverse { ", inverse" } else { "" })
    }
}

impl Fft {
    /// A plan for `rows` rows of `length` numbers, from the cache or made now; none if the length is no power of
    /// two, or if rows are too few for their length.
    ///
    /// The frequencies of real numbers may be those of the inverse transform; back to real numbers there is
    /// nothing else.
    pub fn new(length: usize, rows: usize, kind: Kind, inverse: bool) -> Option<Arc<Fft>> {
        type Plans = HashMap<(usize, Kind, bool, bool), Arc<Fft>>;
        static PLANS: OnceLock<Mutex<Plans>> = OnceLock::new();
        let complex = if kind == Kind::Complex { length } else { length / 2 };
        if !length.is_power_of_two() || !(SHORTEST..=LONGEST).contains(&complex) {
            return None;
        }
        let beside = complex <= BESIDE && rows >= 6;
        if !beside && (complex < BESIDE || complex < SHORTEST * SHORTEST) {
            return None;
        }
        let key = (length, kind, inverse, beside);
        let plans = PLANS.get_or_init(Mutex::default);
        let lock = || plans.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(found) = lock().get(&key) {
            return Some(found.clone());
        }
        let roots = if kind == Kind::Complex {
            Vec::new()
        } else {
            (0..=complex).map(|k| root(k, length)).flat_map(|(re, im)| [re as f32, im as f32]).collect()
        };
        let made = Arc::new(Fft {
            length,
            kind,
            inverse,
            beside: beside.then(|| Lines::new(complex)),
            alone: (!beside).then(|| Long::new(complex)),
            roots,
        });
        let mut plans = lock();
        if plans.len() >= MOST {
            plans.clear();
        }
        plans.insert(key, made.clone());
        Some(made)
    }

    /// Floats of a number that is given.
    fn input_floats(&self) -> usize {
        match self.kind {
            Kind::Complex | Kind::HalfToReal => 2,
            Kind::RealToHalf | Kind::RealToFull => 1,
        }
    }

    /// Floats of a row that are read.
    fn input_row(&self) -> usize {
        match self.kind {
            Kind::Complex => 2 * self.length,
            Kind::RealToHalf | Kind::RealToFull => self.length,
            Kind::HalfToReal => self.length + 2,
        }
    }

    /// Floats of a row of the result.
    fn output_row(&self) -> usize {
        match self.kind {
            Kind::Complex | Kind::RealToFull => 2 * self.length,
            Kind::RealToHalf => self.length + 2,
            Kind::HalfToReal => self.length,
        }
    }

    /// Transforms rows of `given` numbers, cut or filled with zeros to what the plan asks for, times `scale`.
    /// Complex numbers are two floats, real and imaginary.
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
        same("floats in whole rows", rows * self.output_row(), out.len())?;
        same("floats of the input", rows * row, x.len())?;
        at_least("numbers of a row", 1, given)?;
        if let Some(lines) = &self.beside {
            rows::run(par, self, lines, x, (rows, given), out, scale);
        } else if let Some(long) = &self.alone {
            real::run(par, self, long, x, row, out, scale);
        }
        Ok(())
    }

    /// Transforms complex numbers along an axis of the plan's length, times `scale`; only of plans for rows
    /// side by side ([`Fft::has_columns`]).
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
        match &self.beside {
            Some(lines) if self.has_columns() => {
                columns::run(par, lines, self.inverse, x, axis, out, scale);
                Ok(())
            }
            _ => Err(Mismatch { what: "numbers of a column", expected: BESIDE, given: self.length }),
        }
    }

    /// Whether columns can be transformed where they lie.
    pub fn has_columns(&self) -> bool {
        self.kind == Kind::Complex && self.beside.is_some()
    }
}
