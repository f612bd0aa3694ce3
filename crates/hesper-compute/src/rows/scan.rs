//! Cumulative sums, products, minima, maxima and log-sum-exps along an axis.
//!
//! A long row is cut into parts of [`PART`] elements, whatever the number of threads: parts are scanned on
//! their own, then joined with the total of those before. Shorter rows are scanned several at a time; those
//! whose sums are taken in `f32` one at a time, in vectors.

use super::Axis;
use crate::error::{Mismatch, same};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{FAR, Isa, Kernel, Simd, dispatch};

/// Elements of a part of a long row.
const PART: usize = 32768;
/// Rows scanned side by side.
const SIDE: usize = 8;
/// The shortest row that is summed in vectors.
const VECTORS: usize = 32;
/// Most columns of a task along other axes.
const STRIP: usize = 4096;

/// What is accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The sum so far.
    Sum,
    /// The product so far.
    Prod,
    /// The smallest so far; NaN once there was one.
    Min,
    /// The largest so far; NaN once there was one.
    Max,
    /// The logarithm of the sum of exponentials so far; of integers the sum.
    LogSumExp,
}

/// A type that can be accumulated.
pub trait Scannable: Copy + Send + Sync + 'static {
    #[doc(hidden)]
    fn start(op: Scan) -> Self;
    #[doc(hidden)]
    fn join(op: Scan, a: Self, b: Self) -> Self;
    #[doc(hidden)]
    fn run(par: &dyn Par, op: Scan, x: &[Self], axis: Axis, reverse: bool, inclusive: bool, out: &mut [Self]);
    /// Sums of one row from `start` on, the last of which is returned, and all are stored if there is room for
    /// them; none if the type has no vectors.
    #[doc(hidden)]
    fn sums(_: Simd, _: Way, _: &[Self], _: Option<&mut [Self]>, _: Self) -> Option<Self> {
        None
    }
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Scannable for $t {
            #[inline(always)]
            fn start(op: Scan) -> Self {
                match op {
                    Scan::Sum | Scan::LogSumExp => 0,
                    Scan::Prod => 1,
                    Scan::Min => Self::MAX,
                    Scan::Max => Self::MIN,
                }
            }
            #[inline(always)]
            fn join(op: Scan, a: Self, b: Self) -> Self {
                match op {
                    Scan::Sum | Scan::LogSumExp => a.wrapping_add(b),
                    Scan::Prod => a.wrapping_mul(b),
                    Scan::Min => a.min(b),
                    Scan::Max => a.max(b),
                }
            }
            fn run(par: &dyn Par, op: Scan, x: &[Self], axis: Axis, reverse: bool, inclusive: bool, out: &mut [Self]) {
                along(par, op, x, axis, reverse, inclusive, out);
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 i8 i16 i32 i64);

macro_rules! floats {
    ($($t:ty: [$($sums:item)*])*) => {$(
        impl Scannable for $t {
            #[inline(always)]
            fn start(op: Scan) -> Self {
                match op {
                    Scan::Sum => 0.0,
                    Scan::Prod => 1.0,
                    Scan::Min => Self::INFINITY,
                    Scan::Max | Scan::LogSumExp => Self::NEG_INFINITY,
                }
            }
            #[inline(always)]
            #[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
            fn join(op: Scan, a: Self, b: Self) -> Self {
                match op {
                    Scan::Sum => a + b,
                    Scan::Prod => a * b,
                    Scan::Min => if a != a || a < b { a } else { b },
                    Scan::Max => if a != a || a > b { a } else { b },
                    Scan::LogSumExp => {
                        let (low, high) = if a < b { (a, b) } else { (b, a) };
                        if low == Self::NEG_INFINITY || high == Self::INFINITY {
                            if low != low { low } else { high }
                        } else {
                            high + (low - high).exp().ln_1p()
                        }
                    }
                }
            }
            fn run(par: &dyn Par, op: Scan, x: &[Self], axis: Axis, reverse: bool, inclusive: bool, out: &mut [Self]) {
                along(par, op, x, axis, reverse, inclusive, out);
            }
            $($sums)*
        }
    )*};
}

floats! {
    f32: [
        fn sums(simd: Simd, way: Way, x: &[f32], out: Option<&mut [f32]>, start: f32) -> Option<f32> {
            Some(dispatch(simd, Sums { way, x, out, start }))
        }
    ]
    f64: []
}

/// Accumulates along an axis, from its end if `reverse`. Unless `inclusive`, an element counts only for those
/// after it.
pub fn scan<T: Scannable>(
    par: &dyn Par,
    op: Scan,
    x: &[T],
    axis: Axis,
    reverse: bool,
    inclusive: bool,
    out: &mut [T],
) -> Result<(), Mismatch> {
    same("elements of the input", axis.elements()?, x.len())?;
    same("elements of the result", x.len(), out.len())?;
    if !x.is_empty() {
        T::run(par, op, x, axis, reverse, inclusive, out);
    }
    Ok(())
}

/// One direction and kind of scan over a range of rows.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Way {
    op: Scan,
    reverse: bool,
    inclusive: bool,
    /// Whether results are stored past the caches, where that can be.
    far: bool,
}

fn along<T: Scannable>(
    par: &dyn Par,
    op: Scan,
    x: &[T],
    axis: Axis,
    reverse: bool,
    inclusive: bool,
    out: &mut [T],
) {
    let Axis { outer, len, inner } = axis;
    let to = Shared::new(out.as_mut_ptr());
    let (way, simd) = (Way { op, reverse, inclusive, far: size_of_val(x) >= FAR }, par.simd());
    if inner > 1 {
        // Wide strips are read faster; narrow ones keep all threads busy.
        let wide = inner.div_ceil(par.threads().max(1)).next_multiple_of(64).clamp(256, STRIP);
        let strips = inner.div_ceil(wide);
        par.run(outer * strips, &|t| {
            let (o, j0) = (t / strips, t % strips * wide);
            let n = wide.min(inner - j0);
            let strip = Strip { way, x: &x[o * len * inner..], to, base: o * len * inner, j0, n, len, inner };
            if op == Scan::Sum { dispatch(simd, strip) } else { each_op(&strip) }
        });
        return;
    }
    if len <= PART {
        let chunk = grain(par, outer, (16384 / len).max(1)).next_multiple_of(SIDE);
        chunks(par, outer, chunk, |a, b| {
            // SAFETY: rows are this task's own.
            let out = unsafe { to.slice(a * len, (b - a) * len) };
            rows(Rows { way, simd, x: &x[a * len..b * len], out, len, start: T::start(op) });
        });
        return;
    }
    // Long rows: totals of the parts, what comes before each, then the scan of each from there.
    let parts = len.div_ceil(PART);
    let range = move |p: usize| {
        let p = if reverse { parts - 1 - p } else { p };
        p * PART..len.min((p + 1) * PART)
    };
    let totals = Scratch::<T>::new(outer * parts);
    let sums = Shared::new(totals.ptr());
    par.run(outer * parts, &|t| {
        let row = &x[t / parts * len..][range(t % parts)];
        let join = |a, b: &T| T::join(op, a, *b);
        let start = T::start(op);
        let sum = if op == Scan::Sum { T::sums(simd, way, row, None, start) } else { None };
        let total = match sum {
            Some(sum) => sum,
            None if reverse => row.iter().rev().fold(start, join),
            None => row.iter().fold(start, join),
        };
        // SAFETY: every task writes its own.
        unsafe { *sums.get().add(t) = total };
    });
    for o in 0..outer {
        let mut before = T::start(op);
        for p in 0..parts {
            // SAFETY: all totals were written.
            unsafe {
                let t = sums.get().add(o * parts + p);
                let next = T::join(op, before, *t);
                *t = before;
                before = next;
            }
        }
    }
    par.run(outer * parts, &|t| {
        let (o, r) = (t / parts, range(t % parts));
        // SAFETY: parts are this task's own, and what comes before was written.
        let (out, start) = unsafe { (to.slice(o * len + r.start, r.len()), *sums.get().add(t)) };
        let n = r.len();
        rows(Rows { way, simd, x: &x[o * len..][r], out, len: n, start });
    });
}

struct Rows<'a, T> {
    way: Way,
    simd: Simd,
    x: &'a [T],
    out: &'a mut [T],
    len: usize,
    start: T,
}

fn rows<T: Scannable>(rows: Rows<'_, T>) {
    let Rows { way, simd, x, out, len, start } = rows;
    if way.op == Scan::Sum && len >= VECTORS {
        let mut lines = x.chunks_exact(len).zip(out.chunks_exact_mut(len));
        if lines.all(|(x, out)| T::sums(simd, way, x, Some(out), start).is_some()) {
            return;
        }
    }
    // The operation is decided outside the loops, so that each is compiled for itself.
    match way.op {
        Scan::Sum => side_by_side(Scan::Sum, way, x, out, len, start),
        Scan::Prod => side_by_side(Scan::Prod, way, x, out, len, start),
        Scan::Min => side_by_side(Scan::Min, way, x, out, len, start),
        Scan::Max => side_by_side(Scan::Max, way, x, out, len, start),
        Scan::LogSumExp => side_by_side(Scan::LogSumExp, way, x, out, len, start),
    }
}

/// Rows depend on nothing but themselves, so several chains run at once.
#[inline(always)]
fn side_by_side<T: Scannable>(op: Scan, way: Way, x: &[T], out: &mut [T], len: usize, start: T) {
    let mut rows = x.chunks_exact(len * SIDE);
    let mut outs = out.chunks_exact_mut(len * SIDE);
    for (x, out) in (&mut rows).zip(&mut outs) {
        let mut acc = [start; SIDE];
        for k in 0..len {
            let k = if way.reverse { len - 1 - k } else { k };
            for (r, a) in acc.iter_mut().enumerate() {
                let next = T::join(op, *a, x[r * len + k]);
                out[r * len + k] = if way.inclusive { next } else { *a };
                *a = next;
            }
        }
    }
    for (x, out) in rows.remainder().chunks_exact(len).zip(outs.into_remainder().chunks_exact_mut(len)) {
        let mut acc = start;
        for k in 0..len {
            let k = if way.reverse { len - 1 - k } else { k };
            let next = T::join(op, acc, x[k]);
            out[k] = if way.inclusive { next } else { acc };
            acc = next;
        }
    }
}

/// The sums of a row. Each vector is summed up for itself, by steps of 1, 2, 4 and 8 lanes, then what was
/// before it is added.
struct Sums<'a> {
    way: Way,
    x: &'a [f32],
    out: Option<&'a mut [f32]>,
    start: f32,
}

impl Kernel for Sums<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> f32 {
        let Way { reverse, inclusive, .. } = self.way;
        let n = self.x.len();
        let (from, to) = (self.x.as_ptr(), self.out.map_or(std::ptr::null_mut(), |out| out.as_mut_ptr()));
        let mut before = s.splat(self.start);
        // All vectors of a row lie like its first one.
        let lead = if reverse { n % S::LANES } else { 0 };
        let far = self.way.far && to.wrapping_add(lead).addr().is_multiple_of(4 * S::LANES);
        for i in 0..n / S::LANES {
            let at = if reverse { n - (i + 1) * S::LANES } else { i * S::LANES };
            // SAFETY: whole vectors of the row, and of the result if it is there, which is as long.
            unsafe {
                let mut v = s.load(from.add(at));
                if reverse {
                    v = s.reverse(v);
                }
                let mut own = s.add(v, s.move_up::<1>(v));
                own = s.add(own, s.move_up::<2>(own));
                own = s.add(own, s.move_up::<4>(own));
                if S::LANES == 16 {
                    own = s.add(own, s.move_up::<8>(own));
                }
                if !to.is_null() {
                    let mut sums = s.add(before, if inclusive { own } else { s.move_up::<1>(own) });
                    if reverse {
                        sums = s.reverse(sums);
                    }
                    if far {
                        s.stream(to.add(at), sums);
                    } else {
                        s.store(to.add(at), sums);
                    }
                }
                before = s.add(before, s.last(own));
            }
        }
        if far {
            s.fence();
        }
        let mut acc = s.reduce_max(before);
        for i in n / S::LANES * S::LANES..n {
            let at = if reverse { n - 1 - i } else { i };
            // SAFETY: within the row, and the result if it is there.
            unsafe {
                let next = acc + *from.add(at);
                if !to.is_null() {
                    *to.add(at) = if inclusive { next } else { acc };
                }
                acc = next;
            }
        }
        acc
    }
}

struct Strip<'a, T> {
    way: Way,
    x: &'a [T],
    to: Shared<T>,
    base: usize,
    j0: usize,
    n: usize,
    len: usize,
    inner: usize,
}

impl<T: Scannable> Kernel for Strip<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        strip(Scan::Sum, &self);
    }
}

fn each_op<T: Scannable>(t: &Strip<'_, T>) {
    match t.way.op {
        Scan::Sum => strip(Scan::Sum, t),
        Scan::Prod => strip(Scan::Prod, t),
        Scan::Min => strip(Scan::Min, t),
        Scan::Max => strip(Scan::Max, t),
        Scan::LogSumExp => strip(Scan::LogSumExp, t),
    }
}

#[inline(always)]
fn strip<T: Scannable>(op: Scan, t: &Strip<'_, T>) {
    let acc = Scratch::<T>::new(t.n);
    // SAFETY: the buffer has room for as many elements, all of which are written here.
    let acc = unsafe {
        for j in 0..t.n {
            *acc.ptr().add(j) = T::start(op);
        }
        std::slice::from_raw_parts_mut(acc.ptr(), t.n)
    };
    for k in 0..t.len {
        let k = if t.way.reverse { t.len - 1 - k } else { k };
        let x = &t.x[k * t.inner + t.j0..][..t.n];
        // SAFETY: columns are this task's own.
        let out = unsafe { t.to.slice(t.base + k * t.inner + t.j0, t.n) };
        for j in 0..t.n {
            let next = T::join(op, acc[j], x[j]);
            out[j] = if t.way.inclusive { next } else { acc[j] };
            acc[j] = next;
        }
    }
}
