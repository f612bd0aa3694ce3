//! Activations rounded to 8 bits: a scale for every 32 neighbours of a row.

use super::BLOCK;
use crate::mat::MatRef;
use crate::par::{Par, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, dispatch};

/// The order of the elements in words of codes, which rounded activations follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::quant) enum CodeOrder {
    /// In order.
    Natural,
    /// Of eight elements the even ones, then the odd ones: nibbles in order, unpacked as low and high ones.
    EvenOdd,
}

/// What a format of weights requires of the activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::quant) struct Rounding {
    pub order: CodeOrder,
    /// Elements of weights that share a scale: 16 or 32.
    pub unit: usize,
    /// The code of a zero weight, subtracted from every code.
    pub zero: i32,
}

/// Rounded rows. Each unit of a row has a step, the integer that its dot products start from, and its sum.
pub(in crate::quant) struct Rounded {
    pub rows: usize,
    pub cols: usize,
    pub rounding: Rounding,
    bytes: Scratch<i8>,
    steps: Scratch<f32>,
    starts: Scratch<i32>,
    sums: Scratch<f32>,
}

// SAFETY: read-only once prepared.
unsafe impl Sync for Rounded {}

impl Rounded {
    /// Rounds contiguous rows of whole blocks.
    pub(in crate::quant) fn of(par: &dyn Par, x: MatRef<'_, f32>, rounding: Rounding) -> Self {
        let (rows, cols) = (x.rows, x.cols);
        let units = rows * (cols / rounding.unit);
        let to = Self {
            rows,
            cols,
            rounding,
            bytes: Scratch::new(rows * cols),
            steps: Scratch::new(units),
            starts: Scratch::new(units),
            sums: Scratch::new(units),
        };
        let (simd, all) = (par.simd(), &to);
        chunks(par, rows, grain(par, rows, (16384 / cols.max(1)).max(1)), |first, end| {
            dispatch(simd, Round { x, to: all, first, end });
        });
        to
    }

    #[inline(always)]
    pub(super) fn bytes(&self, row: usize) -> *const i8 {
        self.bytes.ptr().wrapping_add(row * self.cols)
    }

    /// The steps of the units of a row.
    #[inline(always)]
    pub(super) fn steps(&self, row: usize) -> *const f32 {
        self.steps.ptr().wrapping_add(row * (self.cols / self.rounding.unit))
    }

    /// Minus the code of zero times the sum of the bytes, for each unit of a row.
    #[inline(always)]
    pub(super) fn starts(&self, row: usize) -> *const i32 {
        self.starts.ptr().wrapping_add(row * (self.cols / self.rounding.unit))
    }

    /// The sums of the rounded activations, for each unit of a row.
    #[inline(always)]
    pub(super) fn sums(&self, row: usize) -> *const f32 {
        self.sums.ptr().wrapping_add(row * (self.cols / self.rounding.unit))
    }
}

struct Round<'a, 'b> {
    x: MatRef<'a, f32>,
    to: &'b Rounded,
    first: usize,
    end: usize,
}

impl Kernel for Round<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { x, to, first, end } = self;
        let Rounding { order, unit, zero } = to.rounding;
        for i in first..end {
            for b in 0..to.cols / BLOCK {
                let mut codes = [0i8; BLOCK];
                // SAFETY: a block of the row, and its range of the buffers, which this task alone writes.
                unsafe {
                    let step = round_block(s, x.at(i, b * BLOCK), &mut codes);
                    for (part, codes) in codes.chunks_exact(unit).enumerate() {
                        let sum: i32 = codes.iter().map(|q| i32::from(*q)).sum();
                        let at = i * (to.cols / unit) + b * (BLOCK / unit) + part;
                        *to.steps.ptr().add(at) = step;
                        *to.starts.ptr().add(at) = -zero * sum;
                        *to.sums.ptr().add(at) = step * sum as f32;
                    }
                    if order == CodeOrder::EvenOdd {
                        let natural = codes;
                        for (e, q) in natural.into_iter().enumerate() {
                            codes[e / 8 * 8 + e % 2 * 4 + e % 8 / 2] = q;
                        }
                    }
                    let bytes = to.bytes.ptr().add(i * to.cols + b * BLOCK);
                    std::ptr::copy_nonoverlapping(codes.as_ptr(), bytes, BLOCK);
                }
            }
        }
    }
}

/// Rounds a block and returns its step: NaN where an element is not finite, so that every result that reads
/// the block is NaN.
///
/// # Safety
/// The block is readable.
#[inline(always)]
unsafe fn round_block<S: Isa>(s: S, x: *const f32, to: &mut [i8; BLOCK]) -> f32 {
    let (mut top, mut probe) = (s.zero(), s.zero());
    let mut e = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while e < BLOCK {
            let v = s.load(x.add(e));
            top = s.max(top, s.max(v, s.sub(s.zero(), v)));
            // Zero for finite elements, otherwise NaN.
            probe = s.fma(v, s.zero(), probe);
            e += S::LANES;
        }
    }
    let (top, probe) = (s.reduce_max(top), s.reduce_add(probe));
    let inverse = 127.0 / top;
    if probe.is_nan() || !inverse.is_finite() {
        // All zeros, or so small that the inverse overflows.
        return probe;
    }
    let factor = s.splat(inverse);
    let mut rounded = [0.0f32; BLOCK];
    let mut e = 0;
    // SAFETY: the caller's promise; the elements are finite and at most 127.
    unsafe {
        while e < BLOCK {
            s.store(rounded.as_mut_ptr().add(e), s.round(s.mul(s.load(x.add(e)), factor)));
            e += S::LANES;
        }
        for (to, q) in to.iter_mut().zip(rounded) {
            *to = q.to_int_unchecked::<i32>() as i8;
        }
    }
    top / 127.0
}
