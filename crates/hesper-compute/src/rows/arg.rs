//! Where the largest or smallest element of an axis is: the first of equals, or the first NaN.
//!
//! A long row is searched in parts of [`PART`] elements, rows side by side in strips of [`STRIP`] columns.

use super::Axis;
use super::extreme::extreme;
use super::whole::extreme_of;
use crate::error::{Mismatch, same};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch};

/// Elements that are compared before one of them is looked for.
const BLOCK: usize = 4096;
/// Rows up to this length are searched element by element.
const SHORT: usize = 32;
/// Elements of a row that one task searches.
const PART: usize = 1 << 16;
/// Columns that one task searches.
const STRIP: usize = 512;

/// A type with an order.
#[allow(private_bounds, reason = "only this crate calls its methods")]
pub trait Ordered: Copy + Send + Sync + PartialOrd + 'static {
    /// Below or equal to every number.
    const LOWEST: Self;
    /// Above or equal to every number.
    const HIGHEST: Self;
    #[doc(hidden)]
    fn run(par: &dyn Par, max: bool, x: &[Self], axis: Axis, out: &mut [u32]);
    /// The best of a block and whether it has a NaN, if the type has vectors for it.
    #[doc(hidden)]
    #[inline(always)]
    fn best<S: Isa, const MAX: bool>(_: S, _: &[Self]) -> Option<(Self, bool)> {
        None
    }
}

macro_rules! ordered {
    ($($t:ty: $low:expr, $high:expr $(, $best:item)?;)*) => {$(
        #[allow(private_bounds, reason = "only this crate calls its methods")]
        impl Ordered for $t {
            const LOWEST: Self = $low;
            const HIGHEST: Self = $high;
            fn run(par: &dyn Par, max: bool, x: &[Self], axis: Axis, out: &mut [u32]) {
                along(par, max, x, axis, out);
            }
            $(#[inline(always)] $best)?
        }
    )*};
}

macro_rules! ordered_floats {
    ($($t:ty)*) => {
        ordered! {$(
            $t: Self::NEG_INFINITY, Self::INFINITY,
            fn best<S: Isa, const MAX: bool>(s: S, x: &[Self]) -> Option<(Self, bool)> {
                let (value, nan) = extreme::<S, $t, MAX>(s, x);
                Some((<$t as Float>::from_f32(value), nan))
            };
        )*}
    };
}

macro_rules! ordered_integers {
    ($($t:ty)*) => {
        ordered! {$(
            $t: Self::MIN, Self::MAX,
            fn best<S: Isa, const MAX: bool>(_: S, x: &[Self]) -> Option<(Self, bool)> {
                Some((extreme_of::<$t, MAX>(x), false))
            };
        )*}
    };
}

ordered! {
    f64: Self::NEG_INFINITY, Self::INFINITY;
}

ordered_integers!(u8 u16 u32 u64 i8 i16 i32 i64);

ordered_floats!(f32 half::bf16 half::f16);

/// The position of the largest (`max`) or smallest element along an axis, or of the first NaN.
pub fn arg_extreme<T: Ordered>(
    par: &dyn Par,
    max: bool,
    x: &[T],
    axis: Axis,
    out: &mut [u32],
) -> Result<(), Mismatch> {
    same("elements of the input", axis.elements()?, x.len())?;
    same("elements of the result", axis.outer * axis.inner, out.len())?;
    if axis.len == 0 && !out.is_empty() {
        return Err(Mismatch { what: "elements of an axis to choose from", expected: 1, given: 0 });
    }
    T::run(par, max, x, axis, out);
    Ok(())
}

fn along<T: Ordered>(par: &dyn Par, max: bool, x: &[T], axis: Axis, out: &mut [u32]) {
    let Axis { outer, len, inner } = axis;
    if out.is_empty() {
        return;
    }
    let to = Shared::new(out.as_mut_ptr());
    let simd = par.simd();
    if inner > 1 {
        let strips = inner.div_ceil(STRIP);
        let group = (16384 / (len * inner.min(STRIP))).max(1);
        chunks(par, outer * strips, group, |a, b| {
            for task in a..b {
                let (o, j0) = (task / strips, task % strips * STRIP);
                // SAFETY: columns are this task's own.
                let out = unsafe { to.slice(o * inner + j0, STRIP.min(inner - j0)) };
                dispatch(simd, Columns { max, x: &x[o * len * inner + j0..], len, inner, out });
            }
        });
        return;
    }
    if len <= PART {
        chunks(par, outer, grain(par, outer, (16384 / len).max(1)), |a, b| {
            // SAFETY: rows are this task's own.
            let out = unsafe { to.slice(a, b - a) };
            dispatch(simd, Rows { max, x: &x[a * len..b * len], len, out });
        });
        return;
    }
    let parts = len.div_ceil(PART);
    let places = Scratch::<u32>::new(outer * parts);
    let found = Shared::new(places.ptr());
    par.run(outer * parts, &|task| {
        let start = task % parts * PART;
        let row = &x[task / parts * len..][start..len.min(start + PART)];
        let place = dispatch(simd, Row { max, x: row }) as usize + start;
        // SAFETY: every task writes its own.
        unsafe { *found.get().add(task) = place as u32 };
    });
    for o in 0..outer {
        let row = &x[o * len..][..len];
        // SAFETY: all places were written.
        let places = unsafe { &*found.slice(o * parts, parts) };
        let better = |a: T, b: T| if max { a > b } else { a < b };
        let mut best = places[0];
        for &place in &places[1..] {
            if beats(row[place as usize], row[best as usize], better) {
                best = place;
            }
        }
        // SAFETY: within the result.
        unsafe { *to.get().add(o) = best };
    }
}

/// Whether a later element is chosen over an earlier one: the first NaN beats everything.
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

/// Rows of `len` elements.
struct Rows<'a, T> {
    max: bool,
    x: &'a [T],
    len: usize,
    out: &'a mut [u32],
}

impl<T: Ordered> Kernel for Rows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let rows = self.x.chunks_exact(self.len).zip(self.out);
        if self.len > SHORT {
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
    let (mut best, mut at, mut found) = (worst, 0, false);
    for (b, block) in x.chunks(BLOCK).enumerate() {
        // First only the best value, in vectors; its place is looked for when it is a new best.
        let (top, nan) = match T::best::<S, MAX>(s, block) {
            Some(found) => found,
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

/// The best of a block and whether it has a NaN, in loops that vectorise.
#[inline(always)]
#[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
fn best_of<T: Ordered>(block: &[T], worst: T, better: &impl Fn(T, T) -> bool) -> (T, bool) {
    // Marks are words, so that they fill vectors as the elements do.
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
    // Folded in halves: one by one, the end of a block would take as long as the block.
    for half in [32, 16, 8, 4, 2, 1] {
        for i in 0..half {
            acc[i] = if better(acc[i + half], acc[i]) { acc[i + half] } else { acc[i] };
            nans[i] |= nans[i + half];
        }
    }
    (acc[0], nans[0] != 0)
}

/// Where the first element equal to `value` is: pieces are looked through as vectors until one has it, then
/// pieces of that.
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

/// Whether an element of a piece is equal to `value`; marks are as wide as the elements, so that they fill vectors
/// as those do.
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

struct Columns<'a, T> {
    max: bool,
    /// From the first column of the strip on.
    x: &'a [T],
    len: usize,
    inner: usize,
    out: &'a mut [u32],
}

impl<T: Ordered> Kernel for Columns<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        if self.max { columns(self, |a, b| a > b) } else { columns(self, |a, b| a < b) }
    }
}

#[inline(always)]
fn columns<T: Ordered>(c: Columns<'_, T>, better: impl Fn(T, T) -> bool) {
    let n = c.out.len();
    let mut best = [T::LOWEST; STRIP];
    let (best, out) = (&mut best[..n], c.out);
    best.copy_from_slice(&c.x[..n]);
    out.fill(0);
    for k in 1..c.len {
        let row = &c.x[k * c.inner..][..n];
        for j in 0..n {
            let take = beats(row[j], best[j], &better);
            best[j] = if take { row[j] } else { best[j] };
            out[j] = if take { k as u32 } else { out[j] };
        }
    }
}
