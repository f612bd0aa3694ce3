//! The index of the largest or smallest element: the first of equals, or the first NaN.

use super::input::{ReduceInput, Tile};
use super::integers::extreme_of;
use super::source::Plain;
use super::tree::{self, Reducer};
use crate::error::{Mismatch, at_least, at_most, same};
use crate::par::Par;
use crate::simd::{Float, Isa, Kernel, Simd, dispatch, dispatch_256};

/// Elements compared before the position of the best is searched.
const BLOCK: usize = 4096;
/// Rows up to this length are searched element by element.
const SHORT_ROW: usize = 32;
/// Columns searched together.
const STRIP: usize = 512;

/// A type whose extremes have indices.
#[allow(private_bounds, reason = "only this crate calls its methods")]
pub trait Ordered: Plain + PartialOrd {
    /// Less than or equal to every value.
    const LOWEST: Self;
    /// Greater than or equal to every value.
    const HIGHEST: Self;
    /// Whether [`position`](Self::position) has vector instructions.
    #[doc(hidden)]
    const WIDE: bool = false;
    #[doc(hidden)]
    fn run(par: &dyn Par, max: bool, x: &ReduceInput<'_, Self>, out: &mut [u32]);
    /// The best value of a block, if the type has vector instructions for it.
    #[doc(hidden)]
    #[inline(always)]
    fn best<S: Isa, const MAX: bool>(_: S, _: &[Self]) -> Option<Self> {
        None
    }
    /// The position in a row, if the type has vector instructions for it and the row is long enough.
    #[doc(hidden)]
    #[inline(always)]
    fn position<S: Isa, const MAX: bool>(_: S, _: &[Self]) -> Option<u32> {
        None
    }
}

macro_rules! ordered {
    ($($t:ty: $low:expr, $high:expr $(, $more:item)*;)*) => {$(
        #[allow(private_bounds, reason = "only this crate calls its methods")]
        impl Ordered for $t {
            const LOWEST: Self = $low;
            const HIGHEST: Self = $high;
            fn run(par: &dyn Par, max: bool, x: &ReduceInput<'_, Self>, out: &mut [u32]) {
                tree::reduce(par, Arg { max, x }, x, out);
            }
            $($more)*
        }
    )*};
}

macro_rules! ordered_floats {
    ($($t:ty)*) => {
        ordered! {$(
            $t: Self::NEG_INFINITY, Self::INFINITY, const WIDE: bool = true;,
            #[inline(always)]
            fn position<S: Isa, const MAX: bool>(s: S, x: &[Self]) -> Option<u32> {
                float_position::<S, $t, MAX>(s, x)
            };
        )*}
    };
}

macro_rules! ordered_integers {
    ($($t:ty)*) => {
        ordered! {$(
            $t: Self::MIN, Self::MAX,
            #[inline(always)]
            fn best<S: Isa, const MAX: bool>(_: S, x: &[Self]) -> Option<Self> {
                Some(extreme_of::<$t, MAX>(x))
            };
        )*}
    };
}

ordered! {
    f64: Self::NEG_INFINITY, Self::INFINITY;
    // Complex numbers, ordered by real part, then by imaginary part.
    [f32; 2]: [f32::NEG_INFINITY; 2], [f32::INFINITY; 2];
    [f64; 2]: [f64::NEG_INFINITY; 2], [f64::INFINITY; 2];
}

ordered_integers!(u8 u16 u32 u64 i8 i16 i32 i64);

ordered_floats!(f32 half::bf16 half::f16);

/// The index of the largest (`max`) or smallest element of each result, or of the first NaN.
pub fn arg_extreme<T: Ordered>(
    par: &dyn Par,
    max: bool,
    x: &ReduceInput<'_, T>,
    out: &mut [u32],
) -> Result<(), Mismatch> {
    same("elements of the result", x.results(), out.len())?;
    if !out.is_empty() {
        at_least("elements to choose from", 1, x.row_len())?;
        at_most("elements to choose from", 1 << 32, x.row_len())?;
    }
    T::run(par, max, x, out);
    Ok(())
}

struct Arg<'a, T> {
    max: bool,
    x: &'a ReduceInput<'a, T>,
}

impl<T> Clone for Arg<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Arg<'_, T> {}

impl<T: Ordered> Reducer for Arg<'_, T> {
    type In = T;
    type Acc = u32;
    const PART: usize = 1 << 16;
    const RANGE: usize = 1024;
    const STRIP: usize = STRIP;

    fn empty(self) -> u32 {
        0
    }

    fn rows(self, simd: Simd, x: &[T], len: usize, out: &mut [u32]) {
        let rows = ArgRows { max: self.max, x, len, out };
        // For floats, and for elements of eight bytes or more, AVX-512 is faster than AVX2.
        if const { T::WIDE || size_of::<T>() >= 8 } { dispatch(simd, rows) } else { dispatch_256(simd, rows) }
    }

    fn columns(self, simd: Simd, tile: &Tile<'_, T>, out: &mut [u32]) {
        dispatch_256(simd, Columns { max: self.max, tile, out });
    }

    fn join(self, result: usize, part: usize, parts: &mut [u32]) -> u32 {
        let better = |a: T, b: T| if self.max { a > b } else { a < b };
        let place = |at: usize| at * part + parts[at] as usize;
        let mut best = place(0);
        for at in 1..parts.len() {
            if beats(self.x.value(result, place(at)), self.x.value(result, best), better) {
                best = place(at);
            }
        }
        best as u32
    }
}

/// Whether a later element wins over an earlier one: the first NaN wins over everything.
#[inline(always)]
#[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
fn beats<T: Ordered>(later: T, earlier: T, better: impl Fn(T, T) -> bool) -> bool {
    (better(later, earlier) | (later != later)) & (earlier == earlier)
}

struct Row<'a, T> {
    max: bool,
    x: &'a [T],
}

impl<T: Ordered> Kernel for Row<'_, T> {
    type Out = u32;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> u32 {
        if self.max {
            row::<S, T, true>(s, self.x, T::LOWEST, |a, b| a > b)
        } else {
            row::<S, T, false>(s, self.x, T::HIGHEST, |a, b| a < b)
        }
    }
}

/// Vectors that [`float_position`] searches side by side.
const SIDE_BY_SIDE: usize = 4;

/// The position in a row of floats, in one pass over vectors, each lane of which keeps its best value and
/// where that was. `None` for rows that are shorter than the vectors, or too long for exact positions.
#[inline(always)]
fn float_position<S: Isa, T: Float, const MAX: bool>(s: S, x: &[T]) -> Option<u32> {
    let width = SIDE_BY_SIDE * S::LANES;
    if x.len() < width || x.len() > 1 << f32::MANTISSA_DIGITS {
        return None;
    }
    let (lowest, highest) = (s.splat(f32::MIN), s.splat(f32::MAX));
    let mut best = [s.splat(if MAX { f32::NEG_INFINITY } else { f32::INFINITY }); SIDE_BY_SIDE];
    // Where the vectors of the best values began, and sums that are NaN if an element is.
    let mut at = [s.zero(); SIDE_BY_SIDE];
    let mut marks = [s.zero(); SIDE_BY_SIDE];
    for from in (0..x.len()).step_by(width) {
        // The last vectors overlap those before them: a value that is met again is no better.
        let from = from.min(x.len() - width);
        let begin = s.splat(from as f32);
        for i in 0..SIDE_BY_SIDE {
            // SAFETY: a whole vector of the row.
            let v = unsafe { T::load(s, x.as_ptr().add(from + i * S::LANES)) };
            (at[i], best[i]) = if MAX {
                (s.pick_greater(v, best[i], begin, at[i]), s.max(v, best[i]))
            } else {
                (s.pick_greater(best[i], v, begin, at[i]), s.min(v, best[i]))
            };
            marks[i] = s.fma(s.max(lowest, s.min(highest, v)), s.zero(), marks[i]);
        }
    }
    let (mut top, mut mark) = (best[0], marks[0]);
    for i in 1..SIDE_BY_SIDE {
        top = if MAX { s.max(top, best[i]) } else { s.min(top, best[i]) };
        mark = s.add(mark, marks[i]);
    }
    if s.reduce_add(mark).is_nan() {
        return x.iter().position(|v| v.to_f32().is_nan()).map(|at| at as u32);
    }
    let minus = s.splat(-1.0);
    let top = s.splat(if MAX { s.reduce_max(top) } else { -s.reduce_max(s.mul(top, minus)) });
    // The least position of a lane that has the best value.
    let mut least = s.splat(f32::INFINITY);
    for (i, (best, at)) in best.iter().zip(at).enumerate() {
        let mut lanes = [0.0; 16];
        for (lane, position) in lanes.iter_mut().enumerate() {
            *position = (i * S::LANES + lane) as f32;
        }
        // SAFETY: a vector has at most sixteen lanes.
        let position = s.add(at, unsafe { s.load(lanes.as_ptr()) });
        let worse = if MAX { (top, *best) } else { (*best, top) };
        least = s.min(least, s.pick_greater(worse.0, worse.1, least, position));
    }
    Some(-s.reduce_max(s.mul(least, minus)) as u32)
}

/// Rows of `len` elements.
struct ArgRows<'a, T> {
    max: bool,
    x: &'a [T],
    len: usize,
    out: &'a mut [u32],
}

impl<T: Ordered> Kernel for ArgRows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let rows = self.x.chunks_exact(self.len).zip(self.out);
        if self.len > SHORT_ROW {
            for (x, out) in rows {
                *out = Row { max: self.max, x }.run(s);
            }
        } else if self.max {
            for (x, out) in rows {
                *out = short_row(x, |a, b| a > b);
            }
        } else {
            for (x, out) in rows {
                *out = short_row(x, |a, b| a < b);
            }
        }
    }
}

/// A row that is too short for vectors.
#[inline(always)]
fn short_row<T: Ordered>(x: &[T], better: impl Fn(T, T) -> bool) -> u32 {
    let (mut best, mut at) = (x[0], 0);
    for (i, v) in x.iter().enumerate().skip(1) {
        let take = beats(*v, best, &better);
        best = if take { *v } else { best };
        at = if take { i as u32 } else { at };
    }
    at
}

#[inline(always)]
#[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
fn row<S: Isa, T: Ordered, const MAX: bool>(s: S, x: &[T], worst: T, better: impl Fn(T, T) -> bool) -> u32 {
    if let Some(at) = T::position::<S, MAX>(s, x) {
        return at;
    }
    let (mut best, mut at, mut found) = (worst, 0, false);
    for (b, block) in x.chunks(BLOCK).enumerate() {
        // Find the best value in vectors first, and its position only if it is a new best.
        let (top, nan) = match T::best::<S, MAX>(s, block) {
            Some(top) => (top, false),
            None => best_of(block, worst, &better),
        };
        if nan && let Some(i) = block.iter().position(|v| *v != *v) {
            return (b * BLOCK + i) as u32;
        }
        if (!found || better(top, best))
            && let Some(i) = first(block, top)
        {
            (best, at, found) = (top, b * BLOCK + i, true);
        }
    }
    at as u32
}

/// The best value of a block and whether it has a NaN, in loops that the compiler vectorizes.
#[inline(always)]
#[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
fn best_of<T: Ordered>(block: &[T], worst: T, better: &impl Fn(T, T) -> bool) -> (T, bool) {
    let (mut acc, mut nans) = ([worst; 64], [0u32; 64]);
    let chunks = block.chunks_exact(64);
    let tail = chunks.remainder();
    for c in chunks {
        for i in 0..64 {
            acc[i] = if better(c[i], acc[i]) { c[i] } else { acc[i] };
            nans[i] |= u32::from(c[i] != c[i]);
        }
    }
    for (i, v) in tail.iter().enumerate() {
        acc[i] = if better(*v, acc[i]) { *v } else { acc[i] };
        nans[i] |= u32::from(*v != *v);
    }
    // Fold in halves: a serial fold would take as long as the block.
    for half in [32, 16, 8, 4, 2, 1] {
        for i in 0..half {
            acc[i] = if better(acc[i + half], acc[i]) { acc[i + half] } else { acc[i] };
            nans[i] |= nans[i + half];
        }
    }
    (acc[0], nans[0] != 0)
}

/// The position of the first element equal to `value`: blocks are scanned as vectors until one contains it,
/// then smaller blocks within.
#[inline(always)]
fn first<T: Ordered>(block: &[T], value: T) -> Option<usize> {
    let (mut from, mut len) = (0, block.len());
    for piece in [512, 64] {
        let end = from + len;
        loop {
            if from >= end {
                return None;
            }
            len = piece.min(end - from);
            if has(&block[from..from + len], value) {
                break;
            }
            from += len;
        }
    }
    block[from..from + len].iter().position(|v| *v == value).map(|at| from + at)
}

/// Whether an element equals `value`. Flags have the width of elements, up to four bytes, so that both fill
/// vectors alike.
#[inline(always)]
fn has<T: Ordered>(piece: &[T], value: T) -> bool {
    match size_of::<T>() {
        1 => {
            let mut met = 0u8;
            for v in piece {
                met |= u8::from(*v == value);
            }
            met != 0
        }
        2 => {
            let mut met = 0u16;
            for v in piece {
                met |= u16::from(*v == value);
            }
            met != 0
        }
        _ => {
            let mut met = 0u32;
            for v in piece {
                met |= u32::from(*v == value);
            }
            met != 0
        }
    }
}

struct Columns<'a, 't, T> {
    max: bool,
    tile: &'a Tile<'t, T>,
    out: &'a mut [u32],
}

impl<T: Ordered> Kernel for Columns<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        if self.max { columns(self, |a, b| a > b) } else { columns(self, |a, b| a < b) }
    }
}

#[inline(always)]
fn columns<T: Ordered>(c: Columns<'_, '_, T>, better: impl Fn(T, T) -> bool) {
    let mut best = [T::LOWEST; STRIP];
    for (strip, out) in c.out.chunks_mut(STRIP).enumerate() {
        let (first, n) = (strip * STRIP, out.len());
        let best = &mut best[..n];
        best.copy_from_slice(&c.tile.row(0)[first..first + n]);
        out.fill(0);
        for k in 1..c.tile.rows {
            let row = &c.tile.row(k)[first..first + n];
            for j in 0..n {
                let take = beats(row[j], best[j], &better);
                best[j] = if take { row[j] } else { best[j] };
                out[j] = if take { k as u32 } else { out[j] };
            }
        }
    }
}
