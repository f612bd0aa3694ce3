//! Extremes of integers, and logical reductions, without widening elements.
//!
//! These do not depend on the order, so long rows are split anywhere, and the last vector of a row overlaps
//! the one before.

use super::input::{ReduceInput, Tile};
use super::source::Plain;
use super::tree::{self, Reducer};
use crate::error::{Mismatch, same};
use crate::par::Par;
use crate::simd::{Isa, Kernel, Simd, dispatch_256};

/// Elements that a lane can count before it must be flushed.
const COUNTED: usize = 255;

/// An unsigned integer, tested for zero.
pub trait Word: Plain {
    #[doc(hidden)]
    const ONES: Self;
    #[doc(hidden)]
    const ZERO: Self;
    #[doc(hidden)]
    fn cut(mask: u64) -> Self;
    #[doc(hidden)]
    fn and(self, other: Self) -> Self;
    #[doc(hidden)]
    fn or(self, other: Self) -> Self;
    #[doc(hidden)]
    fn is_set(self) -> bool;
    #[doc(hidden)]
    fn plus(self, one: bool) -> Self;
    #[doc(hidden)]
    fn count(self) -> i32;
}

macro_rules! words {
    ($($t:ty)*) => {$(
        impl Word for $t {
            const ONES: Self = Self::MAX;
            const ZERO: Self = 0;
            #[inline(always)]
            fn cut(mask: u64) -> Self { mask as Self }
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn is_set(self) -> bool { self != 0 }
            #[inline(always)]
            fn plus(self, one: bool) -> Self { self.wrapping_add(Self::from(one)) }
            #[inline(always)]
            fn count(self) -> i32 { self as i32 }
        }
    )*};
}

words!(u8 u16 u32 u64);

/// An integer.
pub trait Integer: Plain + Ord {
    #[doc(hidden)]
    const LOWEST: Self;
    #[doc(hidden)]
    const HIGHEST: Self;
}

macro_rules! small {
    ($($t:ty)*) => {$(
        impl Integer for $t {
            const LOWEST: Self = Self::MIN;
            const HIGHEST: Self = Self::MAX;
        }
    )*};
}

small!(u8 u16 u32 u64 i8 i16 i32 i64);

/// How elements are combined in the lanes of a vector, and lanes with each other.
trait Fold: Copy + Send + Sync {
    type In: Plain;
    /// A lane, of the size of an element.
    type Lane: Copy;
    type Acc: Copy + Send + Sync;
    /// Whether an element may be counted twice.
    const TWICE: bool;
    /// Whether elements of four bytes take twice the lanes, without which their loop is not vectorized.
    const WIDE: bool = true;
    fn empty(self) -> Self::Lane;
    /// Combines a lane with an element.
    fn take(self, lane: Self::Lane, x: Self::In) -> Self::Lane;
    /// The result of a lane.
    fn finish(self, lane: Self::Lane) -> Self::Acc;
    fn start(self) -> Self::Acc;
    fn join(self, a: Self::Acc, b: Self::Acc) -> Self::Acc;
}

#[derive(Clone, Copy)]
struct Extreme<T, const MAX: bool>(std::marker::PhantomData<T>);

impl<T: Integer, const MAX: bool> Fold for Extreme<T, MAX> {
    type In = T;
    type Lane = T;
    type Acc = T;
    const TWICE: bool = true;
    const WIDE: bool = false;
    #[inline(always)]
    fn empty(self) -> T {
        if MAX { T::LOWEST } else { T::HIGHEST }
    }
    #[inline(always)]
    fn take(self, lane: T, x: T) -> T {
        if MAX { lane.max(x) } else { lane.min(x) }
    }
    #[inline(always)]
    fn finish(self, lane: T) -> T {
        lane
    }
    #[inline(always)]
    fn start(self) -> T {
        self.empty()
    }
    #[inline(always)]
    fn join(self, a: T, b: T) -> T {
        self.take(a, b)
    }
}

#[derive(Clone, Copy)]
struct Truth<T, const ALL: bool>(T);

impl<T: Word, const ALL: bool> Fold for Truth<T, ALL> {
    type In = T;
    type Lane = T;
    type Acc = u8;
    const TWICE: bool = true;
    #[inline(always)]
    fn empty(self) -> T {
        if ALL { T::ONES } else { T::ZERO }
    }
    #[inline(always)]
    fn take(self, lane: T, x: T) -> T {
        let x = x.and(self.0);
        if ALL { lane.and(if x.is_set() { T::ONES } else { T::ZERO }) } else { lane.or(x) }
    }
    #[inline(always)]
    fn finish(self, lane: T) -> u8 {
        u8::from(lane.is_set())
    }
    #[inline(always)]
    fn start(self) -> u8 {
        u8::from(ALL)
    }
    #[inline(always)]
    fn join(self, a: u8, b: u8) -> u8 {
        if ALL { a & b } else { a | b }
    }
}

#[derive(Clone, Copy)]
struct Count<T>(T);

impl<T: Word> Fold for Count<T> {
    type In = T;
    type Lane = T;
    type Acc = i32;
    const TWICE: bool = false;
    #[inline(always)]
    fn empty(self) -> T {
        T::ZERO
    }
    #[inline(always)]
    fn take(self, lane: T, x: T) -> T {
        lane.plus(x.and(self.0).is_set())
    }
    #[inline(always)]
    fn finish(self, lane: T) -> i32 {
        lane.count()
    }
    #[inline(always)]
    fn start(self) -> i32 {
        0
    }
    #[inline(always)]
    fn join(self, a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
}

/// The largest (`max`) or smallest integers. The maximum of no elements is the lowest value of the type, the
/// minimum the highest.
pub fn extreme_integers<T: Integer>(
    par: &dyn Par,
    max: bool,
    x: &ReduceInput<'_, T>,
    out: &mut [T],
) -> Result<(), Mismatch> {
    if max {
        run(par, Extreme::<T, true>(std::marker::PhantomData), x, out)
    } else {
        run(par, Extreme::<T, false>(std::marker::PhantomData), x, out)
    }
}

/// Whether all or any elements of each result are nonzero in the bits of `mask`, as bytes.
pub fn truths<T: Word>(
    par: &dyn Par,
    all: bool,
    mask: u64,
    x: &ReduceInput<'_, T>,
    out: &mut [u8],
) -> Result<(), Mismatch> {
    let mask = T::cut(mask);
    if all { run(par, Truth::<T, true>(mask), x, out) } else { run(par, Truth::<T, false>(mask), x, out) }
}

/// How many elements of each result are nonzero in the bits of `mask`.
pub fn count_set<T: Word>(
    par: &dyn Par,
    mask: u64,
    x: &ReduceInput<'_, T>,
    out: &mut [i32],
) -> Result<(), Mismatch> {
    run(par, Count(T::cut(mask)), x, out)
}

/// The largest or smallest element of a nonempty block.
#[inline(always)]
pub(super) fn extreme_of<T: Integer, const MAX: bool>(x: &[T]) -> T {
    fold(Extreme::<T, MAX>(std::marker::PhantomData), x)
}

fn run<F: Fold>(par: &dyn Par, f: F, x: &ReduceInput<'_, F::In>, out: &mut [F::Acc]) -> Result<(), Mismatch> {
    same("elements of the result", x.results(), out.len())?;
    tree::reduce(par, IntegerReducer(f), x, out);
    Ok(())
}

#[derive(Clone, Copy)]
struct IntegerReducer<F>(F);

impl<F: Fold> Reducer for IntegerReducer<F> {
    type In = F::In;
    type Acc = F::Acc;
    const PART: usize = 1 << 16;
    const RANGE: usize = COUNTED;
    const STRIP: usize = 4096;

    fn empty(self) -> F::Acc {
        self.0.start()
    }

    fn rows(self, simd: Simd, x: &[F::In], len: usize, out: &mut [F::Acc]) {
        dispatch_256(simd, FoldRows { f: self.0, x, len, out });
    }

    fn columns(self, simd: Simd, tile: &Tile<'_, F::In>, out: &mut [F::Acc]) {
        dispatch_256(simd, Columns { f: self.0, tile, out });
    }

    fn join(self, _: usize, _: usize, parts: &mut [F::Acc]) -> F::Acc {
        parts.iter().fold(self.0.start(), |a, b| self.0.join(a, *b))
    }
}

struct FoldRows<'a, F: Fold> {
    f: F,
    x: &'a [F::In],
    len: usize,
    out: &'a mut [F::Acc],
}

impl<F: Fold> Kernel for FoldRows<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for (x, out) in self.x.chunks_exact(self.len).zip(self.out) {
            *out = fold(self.f, x);
        }
    }
}

#[inline(always)]
fn fold<F: Fold>(f: F, x: &[F::In]) -> F::Acc {
    // Accumulators of 128 bytes: more would be unrolled into most of the code.
    match size_of::<F::In>() {
        1 => fold_in::<F, 128>(f, x),
        2 => fold_in::<F, 64>(f, x),
        4 if F::WIDE => fold_in::<F, 64>(f, x),
        4 => fold_in::<F, 32>(f, x),
        _ => fold_in::<F, 16>(f, x),
    }
}

/// Folds a row of any length in `L` lanes, or in eight, or one element after the other.
#[inline(always)]
fn fold_in<F: Fold, const L: usize>(f: F, x: &[F::In]) -> F::Acc {
    if x.len() >= L {
        let mut acc = f.start();
        for block in x.chunks(COUNTED * L) {
            // The last block may have fewer elements than `lanes` needs.
            acc = f.join(acc, if block.len() < L { fold_few(f, block) } else { lanes::<F, L>(f, block) });
        }
        acc
    } else if x.len() >= 8 {
        lanes::<F, 8>(f, x)
    } else {
        fold_few(f, x)
    }
}

#[inline(always)]
fn fold_few<F: Fold>(f: F, x: &[F::In]) -> F::Acc {
    let mut lane = f.empty();
    for v in x {
        lane = f.take(lane, *v);
    }
    f.join(f.start(), f.finish(lane))
}

/// A row of at least `L` elements.
#[inline(always)]
fn lanes<F: Fold, const L: usize>(f: F, x: &[F::In]) -> F::Acc {
    let mut acc = [f.empty(); L];
    let (whole, rest) = x.as_chunks::<L>();
    for c in whole {
        for i in 0..L {
            acc[i] = f.take(acc[i], c[i]);
        }
    }
    if F::TWICE {
        if !rest.is_empty()
            && let Some(c) = x.last_chunk::<L>()
        {
            for i in 0..L {
                acc[i] = f.take(acc[i], c[i]);
            }
        }
    } else {
        for (a, v) in acc.iter_mut().zip(rest) {
            *a = f.take(*a, *v);
        }
    }
    let mut all = [f.start(); L];
    for i in 0..L {
        all[i] = f.finish(acc[i]);
    }
    let mut n = L / 2;
    while n > 0 {
        for i in 0..n {
            all[i] = f.join(all[i], all[i + n]);
        }
        n /= 2;
    }
    all[0]
}

struct Columns<'a, 't, F: Fold> {
    f: F,
    tile: &'a Tile<'t, F::In>,
    out: &'a mut [F::Acc],
}

impl<F: Fold> Kernel for Columns<'_, '_, F> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let Columns { f, tile, out } = self;
        // Fits the L1 cache for every element type.
        let mut lanes = [f.empty(); 512];
        for (strip, out) in out.chunks_mut(512).enumerate() {
            let lanes = &mut lanes[..out.len()];
            lanes.fill(f.empty());
            for k in 0..tile.rows {
                let x = &tile.row(k)[strip * 512..][..lanes.len()];
                for (lane, v) in lanes.iter_mut().zip(x) {
                    *lane = f.take(*lane, *v);
                }
            }
            for (out, lane) in out.iter_mut().zip(&*lanes) {
                *out = f.finish(*lane);
            }
        }
    }
}
