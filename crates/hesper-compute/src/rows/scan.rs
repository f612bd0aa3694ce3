//! Cumulative sums, products, minima, maxima and log-sum-exps along an axis of a contiguous array.
//!
//! A long row is split into parts of [`PART`] elements, whatever the number of threads: first the total of
//! each part is computed, then each part is scanned from the total of those before it. Shorter rows are
//! scanned several at a time; rows that accumulate in `f32` one at a time, in vectors ([`scan_floats`]).

use half::{bf16, f16};

use super::{Axis, scan_floats};
use crate::error::{Mismatch, same};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, Simd, dispatch_256};

/// Elements per part of a long row.
const PART: usize = 32768;
/// Rows scanned together.
const INTERLEAVED: usize = 4;
/// The shortest row that is scanned in vectors.
const MIN_VECTOR_ROW: usize = 32;
/// Most columns per task along other axes.
const STRIP: usize = 4096;

/// The operation of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The smallest element; NaN after the first NaN.
    Min,
    /// The largest element; NaN after the first NaN.
    Max,
}

/// A type that can be scanned.
#[allow(private_bounds, reason = "only this crate calls its methods")]
pub trait Scannable: Copy + Send + Sync + 'static {
    /// The accumulator type.
    #[doc(hidden)]
    type Acc: Copy + Send + Sync;
    #[doc(hidden)]
    fn widen(self) -> Self::Acc;
    #[doc(hidden)]
    fn narrow(acc: Self::Acc) -> Self;
    #[doc(hidden)]
    fn start(op: Scan) -> Self::Acc;
    #[doc(hidden)]
    fn join(op: Scan, a: Self::Acc, b: Self::Acc) -> Self::Acc;
    #[doc(hidden)]
    fn run(par: &dyn Par, op: Scan, x: &[Self], axis: Axis, reverse: bool, inclusive: bool, out: &mut [Self]);
    /// Whether the operation of a scan is always [`Scan::Sum`]: the others are not compiled then.
    #[doc(hidden)]
    const ONLY_SUM: bool = false;
    /// Whether rows are scanned in vectors.
    #[doc(hidden)]
    fn has_vectors() -> bool {
        false
    }
    /// Scans one row, continuing from the accumulator `start`. Returns the last value, and stores all values
    /// if an output is given. `None` if the row cannot be scanned in vectors.
    #[doc(hidden)]
    fn row(_: Simd, _: ScanOptions, _: &[Self], _: Option<&mut [Self]>, _: Self::Acc) -> Option<Self::Acc> {
        None
    }
    /// Combines a row with the accumulator of each column.
    #[doc(hidden)]
    #[inline(always)]
    fn step<S: Isa>(_: S, op: Scan, inclusive: bool, x: &[Self], acc: &mut [Self::Acc], out: &mut [Self]) {
        let n = acc.len();
        let (x, out) = (&x[..n], &mut out[..n]);
        for j in 0..n {
            let next = Self::join(op, acc[j], x[j].widen());
            out[j] = Self::narrow(if inclusive { next } else { acc[j] });
            acc[j] = next;
        }
    }
}

macro_rules! scannable {
    ($($t:ty: $acc:ty, $widen:expr, $narrow:expr, $start:expr, $join:expr, [$($more:item)*];)*) => {$(
        #[allow(private_bounds, reason = "only this crate calls its methods")]
        impl Scannable for $t {
            type Acc = $acc;
            #[inline(always)]
            fn widen(self) -> $acc {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(acc: $acc) -> $t {
                $narrow(acc)
            }
            #[inline(always)]
            fn start(op: Scan) -> $acc {
                $start(op)
            }
            #[inline(always)]
            fn join(op: Scan, a: $acc, b: $acc) -> $acc {
                $join(op, a, b)
            }
            fn run(par: &dyn Par, op: Scan, x: &[$t], axis: Axis, reverse: bool, inclusive: bool, out: &mut [$t]) {
                along(par, op, x, axis, reverse, inclusive, out);
            }
            $($more)*
        }
    )*};
}

macro_rules! integers {
    ($($t:ty)*) => {
        scannable! {$(
            $t: $t, |x| x, |x| x,
            |op| match op {
                Scan::Sum => 0,
                Scan::Prod => 1,
                Scan::Min => <$t>::MAX,
                Scan::Max => <$t>::MIN,
            },
            |op, a: $t, b: $t| match op {
                Scan::Sum => a.wrapping_add(b),
                Scan::Prod => a.wrapping_mul(b),
                Scan::Min => a.min(b),
                Scan::Max => a.max(b),
            }, [];
        )*}
    };
}

integers!(u8 u16 u32 u64 i8 i16 i32 i64);

macro_rules! floats {
    ($start:ident, $join:ident, $t:ty) => {
        #[inline(always)]
        fn $start(op: Scan) -> $t {
            match op {
                Scan::Sum => 0.0,
                Scan::Prod => 1.0,
                Scan::Min => <$t>::INFINITY,
                Scan::Max => <$t>::NEG_INFINITY,
            }
        }

        #[inline(always)]
        #[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
        fn $join(op: Scan, a: $t, b: $t) -> $t {
            match op {
                Scan::Sum => a + b,
                Scan::Prod => a * b,
                Scan::Min => {
                    if a != a || a < b {
                        a
                    } else {
                        b
                    }
                }
                Scan::Max => {
                    if a != a || a > b {
                        a
                    } else {
                        b
                    }
                }
            }
        }
    };
}

floats!(start_f32, join_f32, f32);
floats!(start_f64, join_f64, f64);

macro_rules! singles {
    ($($t:ty: [$($more:item)*];)*) => {
        scannable! {$(
            $t: f32, <$t as Float>::to_f32, <$t as Float>::from_f32, start_f32, join_f32, [
                fn has_vectors() -> bool {
                    true
                }
                fn row(
                    simd: Simd,
                    options: ScanOptions,
                    x: &[$t],
                    out: Option<&mut [$t]>,
                    start: f32,
                ) -> Option<f32> {
                    scan_floats::row(simd, options, x, out, start)
                }
                $($more)*
            ];
        )*}
    };
}

macro_rules! halves {
    ($($t:ty)*) => {
        singles! {$(
            $t: [
                #[inline(always)]
                fn step<S: Isa>(s: S, op: Scan, inclusive: bool, x: &[$t], acc: &mut [f32], out: &mut [$t]) {
                    scan_floats::step(s, op, inclusive, x, acc, out);
                }
            ];
        )*}
    };
}

singles! { f32: []; }
halves!(bf16 f16);
scannable! {
    f64: f64, |x| x, |x| x, start_f64, join_f64, [];
    [f32; 2]: [f32; 2], |x| x, |x| x, start_complex_f32, join_complex_f32, [];
    [f64; 2]: [f64; 2], |x| x, |x| x, start_complex_f64, join_complex_f64, [];
    LogSum<f16>: f64, |x: Self| x.0.to_f64(), |x| LogSum(f16::from_f64(x)), |_| f64::NEG_INFINITY, join_logs, [const ONLY_SUM: bool = true;];
    LogSum<bf16>: f64, |x: Self| x.0.to_f64(), |x| LogSum(bf16::from_f64(x)), |_| f64::NEG_INFINITY, join_logs, [const ONLY_SUM: bool = true;];
    LogSum<f32>: f64, |x: Self| f64::from(x.0), |x| LogSum(x as f32), |_| f64::NEG_INFINITY, join_logs, [const ONLY_SUM: bool = true;];
    LogSum<f64>: f64, |x: Self| x.0, LogSum, |_| f64::NEG_INFINITY, join_logs, [const ONLY_SUM: bool = true;];
}

/// Complex numbers, ordered by real part, then by imaginary part.
macro_rules! complex {
    ($start:ident, $join:ident, $part:ident) => {
        #[inline(always)]
        fn $start(op: Scan) -> [$part; 2] {
            match op {
                Scan::Sum => [0.0; 2],
                Scan::Prod => [1.0, 0.0],
                Scan::Min => [$part::INFINITY; 2],
                Scan::Max => [$part::NEG_INFINITY; 2],
            }
        }

        #[inline(always)]
        #[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
        fn $join(op: Scan, a: [$part; 2], b: [$part; 2]) -> [$part; 2] {
            match op {
                Scan::Sum => [a[0] + b[0], a[1] + b[1]],
                Scan::Prod => [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]],
                Scan::Min if a != a || a < b => a,
                Scan::Max if a != a || a > b => a,
                Scan::Min | Scan::Max => b,
            }
        }
    };
}

complex!(start_complex_f32, join_complex_f32, f32);
complex!(start_complex_f64, join_complex_f64, f64);

/// A logarithm of a sum, accumulated in double precision.
#[doc(hidden)]
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct LogSum<T>(T);

fn join_logs(_: Scan, a: f64, b: f64) -> f64 {
    let (low, high) = if a > b { (b, a) } else { (a, b) };
    match high.is_infinite() {
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        true => high,
        false => high + (low - high).exp().ln_1p(),
    }
}

/// The logarithm of the cumulative sum of exponentials; see [`scan`].
pub fn scan_logsumexp<T: Copy>(
    par: &dyn Par,
    x: &[T],
    axis: Axis,
    reverse: bool,
    inclusive: bool,
    out: &mut [T],
) -> Result<(), Mismatch>
where
    LogSum<T>: Scannable,
{
    // SAFETY: `LogSum` is transparent.
    let (x, out) = unsafe {
        let (from, to) = (x.as_ptr().cast::<LogSum<T>>(), out.as_mut_ptr().cast::<LogSum<T>>());
        (std::slice::from_raw_parts(from, x.len()), std::slice::from_raw_parts_mut(to, out.len()))
    };
    scan(par, Scan::Sum, x, axis, reverse, inclusive, out)
}

/// Accumulates along an axis, from its end if `reverse`. Unless `inclusive`, an element counts only for later
/// ones.
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

/// The operation and direction of a scan.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    pub(super) op: Scan,
    pub(super) reverse: bool,
    pub(super) inclusive: bool,
    /// Whether results use non-temporal stores, where possible.
    pub(super) streaming: bool,
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
    let (options, simd) = (
        ScanOptions { op, reverse, inclusive, streaming: size_of_val(x) >= par.caches().non_temporal() },
        par.simd(),
    );
    if inner > 1 {
        // Wide strips are read faster; narrow ones give work to all threads.
        let strip_width = inner.div_ceil(par.threads().max(1)).next_multiple_of(64).clamp(256, STRIP);
        let strips = inner.div_ceil(strip_width);
        par.run(outer * strips, &|t| {
            let (o, j0) = (t / strips, t % strips * strip_width);
            let n = strip_width.min(inner - j0);
            let strip =
                Strip { options, x: &x[o * len * inner..], to, base: o * len * inner, j0, n, len, inner };
            dispatch_256(simd, strip);
        });
        return;
    }
    if len <= PART {
        let chunk = grain(par, outer, (16384 / len).max(1)).next_multiple_of(INTERLEAVED);
        chunks(par, outer, chunk, |a, b| {
            // SAFETY: rows are this task's own.
            let out = unsafe { to.slice(a * len, (b - a) * len) };
            rows(ScanRows { options, simd, x: &x[a * len..b * len], out, len, start: T::start(op) });
        });
        return;
    }
    // Long rows: totals of the parts, the prefix of each, then the scan of each from there.
    let parts = len.div_ceil(PART);
    let range = move |p: usize| {
        let p = if reverse { parts - 1 - p } else { p };
        p * PART..len.min((p + 1) * PART)
    };
    let totals = Scratch::<T::Acc>::new(outer * parts);
    let sums = Shared::new(totals.ptr());
    par.run(outer * parts, &|t| {
        let row = &x[t / parts * len..][range(t % parts)];
        let join = |a, b: &T| T::join(op, a, b.widen());
        let start = T::start(op);
        let total = match T::row(simd, options, row, None, start) {
            Some(total) => total,
            None if reverse => row.iter().rev().fold(start, join),
            None => row.iter().fold(start, join),
        };
        // SAFETY: every task writes its own total.
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
        // SAFETY: parts are this task's own, and their prefixes were written.
        let (out, start) = unsafe { (to.slice(o * len + r.start, r.len()), *sums.get().add(t)) };
        let n = r.len();
        rows(ScanRows { options, simd, x: &x[o * len..][r], out, len: n, start });
    });
}

struct ScanRows<'a, T: Scannable> {
    options: ScanOptions,
    simd: Simd,
    x: &'a [T],
    out: &'a mut [T],
    len: usize,
    start: T::Acc,
}

fn rows<T: Scannable>(rows: ScanRows<'_, T>) {
    let ScanRows { options, simd, x, out, len, start } = rows;
    // Converting 16-bit floats one by one is slow.
    let least = if size_of::<T>() < size_of::<T::Acc>() { 2 } else { MIN_VECTOR_ROW };
    if len >= least && T::has_vectors() {
        for (x, out) in x.chunks_exact(len).zip(out.chunks_exact_mut(len)) {
            if T::row(simd, options, x, Some(&mut *out), start).is_none() {
                each_op(options, x, out, len, start);
            }
        }
        return;
    }
    each_op(options, x, out, len, start);
}

fn each_op<T: Scannable>(options: ScanOptions, x: &[T], out: &mut [T], len: usize, start: T::Acc) {
    // Match on the operation outside of the loops, so that each loop is specialized.
    match options.op {
        _ if T::ONLY_SUM => side_by_side(Scan::Sum, options, x, out, len, start),
        Scan::Sum => side_by_side(Scan::Sum, options, x, out, len, start),
        Scan::Prod => side_by_side(Scan::Prod, options, x, out, len, start),
        Scan::Min => side_by_side(Scan::Min, options, x, out, len, start),
        Scan::Max => side_by_side(Scan::Max, options, x, out, len, start),
    }
}

/// Rows are independent, so several dependency chains run at once.
#[inline(always)]
fn side_by_side<T: Scannable>(
    op: Scan,
    options: ScanOptions,
    x: &[T],
    out: &mut [T],
    len: usize,
    start: T::Acc,
) {
    let mut rows = x.chunks_exact(len * INTERLEAVED);
    let mut outs = out.chunks_exact_mut(len * INTERLEAVED);
    for (x, out) in (&mut rows).zip(&mut outs) {
        let mut acc = [start; INTERLEAVED];
        for k in 0..len {
            let k = if options.reverse { len - 1 - k } else { k };
            for (r, a) in acc.iter_mut().enumerate() {
                let next = T::join(op, *a, x[r * len + k].widen());
                out[r * len + k] = T::narrow(if options.inclusive { next } else { *a });
                *a = next;
            }
        }
    }
    for (x, out) in rows.remainder().chunks_exact(len).zip(outs.into_remainder().chunks_exact_mut(len)) {
        let mut acc = start;
        for k in 0..len {
            let k = if options.reverse { len - 1 - k } else { k };
            let next = T::join(op, acc, x[k].widen());
            out[k] = T::narrow(if options.inclusive { next } else { acc });
            acc = next;
        }
    }
}

struct Strip<'a, T> {
    options: ScanOptions,
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
    fn run<S: Isa>(self, s: S) {
        match self.options.op {
            _ if T::ONLY_SUM => strip(s, Scan::Sum, &self),
            Scan::Sum => strip(s, Scan::Sum, &self),
            Scan::Prod => strip(s, Scan::Prod, &self),
            Scan::Min => strip(s, Scan::Min, &self),
            Scan::Max => strip(s, Scan::Max, &self),
        }
    }
}

#[inline(always)]
fn strip<S: Isa, T: Scannable>(s: S, op: Scan, t: &Strip<'_, T>) {
    let acc = Scratch::<T::Acc>::new(t.n);
    // SAFETY: the buffer has room for as many elements, all of which are written here.
    let acc = unsafe {
        for j in 0..t.n {
            *acc.ptr().add(j) = T::start(op);
        }
        std::slice::from_raw_parts_mut(acc.ptr(), t.n)
    };
    for k in 0..t.len {
        let k = if t.options.reverse { t.len - 1 - k } else { k };
        let x = &t.x[k * t.inner + t.j0..][..t.n];
        // SAFETY: columns are this task's own.
        let out = unsafe { t.to.slice(t.base + k * t.inner + t.j0, t.n) };
        T::step(s, op, t.options.inclusive, x, acc, out);
    }
}
