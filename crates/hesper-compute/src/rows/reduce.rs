//! Sums, products, minima and maxima along an axis, with fixed trees.
//!
//! A row is summed in blocks of [`BLOCK`], each in 64 separate sums that are then folded in halves; blocks
//! are added pairwise. Along other axes, rows are added four at a time in runs of [`RUN`], runs within ranges of
//! [`RANGE`] rows, and ranges pairwise. NaN wins every minimum and maximum.

use half::{bf16, f16};

use super::Axis;
use super::extreme::extreme;
use super::source::{PIECE, Plain, Room, Source, pieces};
use crate::error::{Mismatch, same};
use crate::par::{Par, Shared, chunks};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, Simd, dispatch};

/// Elements of a row summed before partial sums are added.
const BLOCK: usize = 4096;
/// Rows up to this length are reduced many at a time.
const SHORT: usize = 512;
/// Blocks of a task.
const BLOCKS: usize = 16;
/// Rows of a task along other axes.
const RANGE: usize = 512;
/// Rows added to one sum before it is added to the others.
const RUN: usize = 32;
/// Columns of a task along other axes.
const STRIP: usize = 2048;
/// Results whose ranges one task adds.
const GATHER: usize = 1024;

/// How elements are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// The smallest; NaN if there is one.
    Min,
    /// The largest; NaN if there is one.
    Max,
    /// Their sum divided by their number; of integers, rounded towards zero.
    Mean,
}

/// A type that can be reduced. `Acc` is what it is reduced in.
pub trait Reduce: Plain {
    /// The type of sums, minima and of the result.
    type Acc: Acc;
    #[doc(hidden)]
    fn widen_block(level: Simd, x: &[Self], out: &mut [Self::Acc]);
    #[doc(hidden)]
    fn run(par: &dyn Par, op: Reduction, x: &[Self], axis: Axis, out: &mut [Self::Acc]);
    #[doc(hidden)]
    fn run_rows(par: &dyn Par, op: Reduction, x: &dyn Source<Self>, len: usize, out: &mut [Self::Acc]);
}

/// A type to reduce in.
#[doc(hidden)]
pub trait Acc: Copy + Send + Sync + 'static {
    fn start(op: Reduction) -> Self;
    fn join(op: Reduction, a: Self, b: Self) -> Self;
    fn divide(a: Self, n: usize) -> Self;
    /// Reduces a block in 64 lanes.
    fn fold(level: Simd, op: Reduction, x: &[Self]) -> Self;
    /// The smallest or largest of a block, if the type has vectors for it.
    fn extreme(_: Simd, _: Reduction, _: &[Self]) -> Option<Self> {
        None
    }
    /// Reduces rows of `len` elements, each in at most one block, to a result each.
    fn fold_rows(level: Simd, op: Reduction, x: &[Self], len: usize, out: &mut [Self]);
    /// Adds four rows, or one, to sums.
    fn add_rows(level: Simd, op: Reduction, rows: &[&[Self]], acc: &mut [Self]);
}

macro_rules! accumulator {
    ($acc:ty, $zero:expr, $one:expr, $low:expr, $high:expr, $add:expr, $mul:expr, $div:expr $(, $extreme:item)?) => {
        impl Acc for $acc {
            #[inline(always)]
            fn start(op: Reduction) -> $acc {
                match op {
                    Reduction::Sum | Reduction::Mean => $zero,
                    Reduction::Prod => $one,
                    Reduction::Min => $high,
                    Reduction::Max => $low,
                }
            }
            #[inline(always)]
            #[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
            fn join(op: Reduction, a: $acc, b: $acc) -> $acc {
                match op {
                    Reduction::Sum | Reduction::Mean => $add(a, b),
                    Reduction::Prod => $mul(a, b),
                    Reduction::Min => {
                        if a != a || a <= b {
                            a
                        } else {
                            b
                        }
                    }
                    Reduction::Max => {
                        if a != a || a >= b {
                            a
                        } else {
                            b
                        }
                    }
                }
            }
            fn divide(a: $acc, n: usize) -> $acc {
                $div(a, n)
            }
            fn fold(level: Simd, op: Reduction, x: &[$acc]) -> $acc {
                <$acc as Acc>::extreme(level, op, x).unwrap_or_else(|| dispatch(level, Fold { op, x }))
            }
            $($extreme)?
            fn fold_rows(level: Simd, op: Reduction, x: &[$acc], len: usize, out: &mut [$acc]) {
                dispatch(level, FoldRows { op, x, len, out });
            }
            fn add_rows(level: Simd, op: Reduction, rows: &[&[$acc]], acc: &mut [$acc]) {
                dispatch(level, AddRows { op, rows, acc });
            }
        }
    };
}

macro_rules! integer_accumulators {
    ($($acc:ty)*) => {$(
        accumulator!($acc, 0, 1, <$acc>::MIN, <$acc>::MAX, <$acc>::wrapping_add, <$acc>::wrapping_mul,
            |a: $acc, n: usize| a / (n.max(1) as $acc));
    )*};
}

integer_accumulators!(u32 u64 i32 i64);

macro_rules! float_accumulators {
    ($($acc:ident $(: $extreme:item)?;)*) => {$(
        accumulator!($acc, 0.0, 1.0, $acc::NEG_INFINITY, $acc::INFINITY, |a: $acc, b: $acc| a + b,
            |a: $acc, b: $acc| a * b, |a: $acc, n: usize| a / n as $acc $(, $extreme)?);
    )*};
}

float_accumulators! {
    f32: fn extreme(level: Simd, op: Reduction, x: &[f32]) -> Option<f32> {
        let max = op == Reduction::Max;
        (max || op == Reduction::Min).then(|| dispatch(level, Extreme { max, x }))
    };
    f64;
}

/// The smallest or largest number, NaN if there is one.
struct Extreme<'a> {
    max: bool,
    x: &'a [f32],
}

impl Kernel for Extreme<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> f32 {
        let (value, nan) =
            if self.max { extreme::<S, f32, true>(s, self.x) } else { extreme::<S, f32, false>(s, self.x) };
        if nan { f32::NAN } else { value }
    }
}

macro_rules! reduce {
    ($($t:ty => $acc:ty, $block:expr;)*) => {$(
        impl Reduce for $t {
            type Acc = $acc;
            fn widen_block(level: Simd, x: &[$t], out: &mut [$acc]) {
                $block(level, x, out);
            }
            fn run(par: &dyn Par, op: Reduction, x: &[$t], axis: Axis, out: &mut [$acc]) {
                along(par, op, x, axis, out);
            }
            fn run_rows(par: &dyn Par, op: Reduction, x: &dyn Source<$t>, len: usize, out: &mut [$acc]) {
                along_rows(par, op, x, len, out);
            }
        }
    )*};
}

reduce! {
    u8 => u32, plainly; u16 => u32, plainly; u32 => u32, plainly; u64 => u64, plainly;
    i8 => i32, plainly; i16 => i32, plainly; i32 => i32, plainly; i64 => i64, plainly;
    f32 => f32, plainly; f64 => f64, plainly; bf16 => f32, widened; f16 => f32, widened;
}

fn plainly<T: Copy + Into<A>, A>(_: Simd, x: &[T], out: &mut [A]) {
    for (o, x) in out.iter_mut().zip(x) {
        *o = (*x).into();
    }
}

fn widened<T: Float>(level: Simd, x: &[T], out: &mut [f32]) {
    crate::copy::cast_run(level, x, out);
}

/// Reduces an axis; `out` holds `outer * inner` elements. Of an axis without elements: 0, 1, infinities.
pub fn reduce<T: Reduce>(
    par: &dyn Par,
    op: Reduction,
    x: &[T],
    axis: Axis,
    out: &mut [T::Acc],
) -> Result<(), Mismatch> {
    same("elements of the input", axis.elements()?, x.len())?;
    same("elements of the result", axis.outer * axis.inner, out.len())?;
    T::run(par, op, x, axis, out);
    Ok(())
}

/// The same of rows of `len` elements, wherever they come from; `out` holds one element for each row.
pub fn reduce_rows<T: Reduce>(
    par: &dyn Par,
    op: Reduction,
    x: &dyn Source<T>,
    len: usize,
    out: &mut [T::Acc],
) -> Result<(), Mismatch> {
    same("elements of the input", Axis::last(out.len(), len).elements()?, x.count())?;
    T::run_rows(par, op, x, len, out);
    Ok(())
}

fn along<T: Reduce>(par: &dyn Par, op: Reduction, x: &[T], axis: Axis, out: &mut [T::Acc]) {
    let Axis { outer, len, inner } = axis;
    if inner == 1 {
        along_rows(par, op, &x, len, out);
    } else if len == 0 || outer == 0 || inner == 0 {
        out.fill(T::Acc::start(op));
    } else {
        columns(par, par.simd(), op, x, axis, Shared::new(out.as_mut_ptr()));
        mean(op, len, out);
    }
}

fn along_rows<T: Reduce>(par: &dyn Par, op: Reduction, x: &dyn Source<T>, len: usize, out: &mut [T::Acc]) {
    if len == 0 || out.is_empty() {
        out.fill(T::Acc::start(op));
    } else {
        rows(par, par.simd(), op, x, len, out);
        mean(op, len, out);
    }
}

/// Sums divided by what they are sums of, if means are asked for.
fn mean<A: Acc>(op: Reduction, len: usize, sums: &mut [A]) {
    if op == Reduction::Mean {
        sums.iter_mut().for_each(|sum| *sum = A::divide(*sum, len));
    }
}

fn rows<T: Reduce>(
    par: &dyn Par,
    simd: Simd,
    op: Reduction,
    x: &dyn Source<T>,
    len: usize,
    out: &mut [T::Acc],
) {
    let (part, outer) = (BLOCK * BLOCKS, out.len());
    let to = Shared::new(out.as_mut_ptr());
    if len <= part {
        let chunk = crate::par::grain(par, outer, (16384 / len).max(1));
        chunks(par, outer, chunk, |a, b| {
            let mut room = Room::default();
            if len <= SHORT {
                let buf = Scratch::<T::Acc>::new(widened_len::<T>(PIECE));
                return pieces(x, len, (a, b), &mut room, |first, rows, piece| {
                    // SAFETY: rows are this task's own.
                    let out = unsafe { to.slice(first, rows) };
                    T::Acc::fold_rows(simd, op, wide(simd, piece, &buf), len, out);
                });
            }
            pieces(x, len, (a, b), &mut room, |first, _, piece| {
                for (i, x) in piece.chunks_exact(len).enumerate() {
                    let r = row(simd, op, &x, 0, len, &mut Room::default());
                    // SAFETY: rows are this task's own.
                    unsafe { *to.get().add(first + i) = r };
                }
            });
        });
        return;
    }
    let parts = len.div_ceil(part);
    let partial = Scratch::<T::Acc>::new(outer * parts);
    let sums = Shared::new(partial.ptr());
    par.run(outer * parts, &|t| {
        let (i, p) = (t / parts, t % parts);
        let (first, end) = (i * len + p * part, (i * len + (p + 1) * part).min((i + 1) * len));
        let r = row(simd, op, x, first, end - first, &mut Room::default());
        // SAFETY: parts are this task's own.
        unsafe { *sums.get().add(t) = r };
    });
    for i in 0..outer {
        // SAFETY: all parts were written.
        unsafe { *to.get().add(i) = pairwise::<T>(op, sums.slice(i * parts, parts)) };
    }
}

/// Adds neighbours until one is left.
fn pairwise<T: Reduce>(op: Reduction, parts: &mut [T::Acc]) -> T::Acc {
    let mut n = parts.len();
    while n > 1 {
        for i in 0..n / 2 {
            parts[i] = T::Acc::join(op, parts[2 * i], parts[2 * i + 1]);
        }
        if n % 2 == 1 {
            parts[n / 2] = parts[n - 1];
        }
        n = n.div_ceil(2);
    }
    parts[0]
}

/// How many elements a buffer for the wide copy of `n` elements has.
fn widened_len<T: Reduce>(n: usize) -> usize {
    if size_of::<T>() == size_of::<T::Acc>() { 0 } else { n }
}

/// The block itself where it needs no widening, or a wide copy of it.
fn wide<'a, T: Reduce>(simd: Simd, x: &'a [T], buf: &'a Scratch<T::Acc>) -> &'a [T::Acc] {
    if size_of::<T>() == size_of::<T::Acc>() {
        // SAFETY: `Acc` has the size of `T` only where it is `T`.
        return unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len()) };
    }
    // SAFETY: the caller's buffer holds as many elements.
    let out = unsafe { std::slice::from_raw_parts_mut(buf.ptr(), x.len()) };
    T::widen_block(simd, x, out);
    out
}

/// Reduces at most [`BLOCKS`] blocks of elements from `at`.
fn row<T: Reduce>(
    simd: Simd,
    op: Reduction,
    x: &dyn Source<T>,
    at: usize,
    len: usize,
    room: &mut Room,
) -> T::Acc {
    const { assert!(PIECE.is_multiple_of(BLOCK)) };
    let mut parts = [T::Acc::start(op); BLOCKS];
    let buf = Scratch::<T::Acc>::new(widened_len::<T>(BLOCK));
    let mut done = 0;
    while done < len {
        let piece = x.piece(at + done, PIECE.min(len - done), room);
        for (block, part) in piece.chunks(BLOCK).zip(&mut parts[done / BLOCK..]) {
            *part = T::Acc::fold(simd, op, wide(simd, block, &buf));
        }
        done += piece.len();
    }
    pairwise::<T>(op, &mut parts[..len.div_ceil(BLOCK).max(1)])
}

struct FoldRows<'a, A> {
    op: Reduction,
    x: &'a [A],
    len: usize,
    out: &'a mut [A],
}

impl<A: Acc> Kernel for FoldRows<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let FoldRows { op, x, len, out } = self;
        match op {
            Reduction::Sum | Reduction::Mean => fold_rows(Reduction::Sum, x, len, out),
            Reduction::Prod => fold_rows(Reduction::Prod, x, len, out),
            Reduction::Min => fold_rows(Reduction::Min, x, len, out),
            Reduction::Max => fold_rows(Reduction::Max, x, len, out),
        }
    }
}

#[inline(always)]
fn fold_rows<A: Acc>(op: Reduction, x: &[A], len: usize, out: &mut [A]) {
    match len {
        0..=8 => fold_short::<A, 8>(op, x, len, out),
        9..=16 => fold_short::<A, 16>(op, x, len, out),
        17..=32 => fold_short::<A, 32>(op, x, len, out),
        33..=64 => fold_short::<A, 64>(op, x, len, out),
        _ => {
            for (row, out) in x.chunks_exact(len).zip(out) {
                *out = fold(op, row);
            }
        }
    }
}

/// Rows of at most `LANES` elements.
#[inline(always)]
fn fold_short<A: Acc, const LANES: usize>(op: Reduction, x: &[A], len: usize, out: &mut [A]) {
    for (row, out) in x.chunks_exact(len).zip(out) {
        let mut acc = [A::start(op); LANES];
        for (a, x) in acc.iter_mut().zip(row) {
            *a = A::join(op, *a, *x);
        }
        let mut n = LANES / 2;
        while n > 0 {
            for i in 0..n {
                acc[i] = A::join(op, acc[i], acc[i + n]);
            }
            n /= 2;
        }
        *out = acc[0];
    }
}

struct Fold<'a, A> {
    op: Reduction,
    x: &'a [A],
}

impl<A: Acc> Kernel for Fold<'_, A> {
    type Out = A;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> A {
        // The operation is decided outside the loops, so that each is compiled for itself.
        match self.op {
            Reduction::Sum | Reduction::Mean => fold(Reduction::Sum, self.x),
            Reduction::Prod => fold(Reduction::Prod, self.x),
            Reduction::Min => fold(Reduction::Min, self.x),
            Reduction::Max => fold(Reduction::Max, self.x),
        }
    }
}

#[inline(always)]
fn fold<A: Acc>(op: Reduction, x: &[A]) -> A {
    let mut acc = [A::start(op); 64];
    let chunks = x.chunks_exact(64);
    let tail = chunks.remainder();
    for c in chunks {
        for i in 0..64 {
            acc[i] = A::join(op, acc[i], c[i]);
        }
    }
    for (a, x) in acc.iter_mut().zip(tail) {
        *a = A::join(op, *a, *x);
    }
    let mut n = 32;
    while n > 0 {
        for i in 0..n {
            acc[i] = A::join(op, acc[i], acc[i + n]);
        }
        n /= 2;
    }
    acc[0]
}

fn columns<T: Reduce>(par: &dyn Par, simd: Simd, op: Reduction, x: &[T], axis: Axis, to: Shared<T::Acc>) {
    let Axis { outer, len, inner } = axis;
    let (ranges, strips) = (len.div_ceil(RANGE), inner.div_ceil(STRIP));
    let partial = Scratch::<T::Acc>::new(if ranges > 1 { outer * ranges * inner } else { 0 });
    let sums = if ranges > 1 { Shared::new(partial.ptr()) } else { to };
    let tasks = outer * ranges * strips;
    let group = (16384 / (len.min(RANGE) * inner.min(STRIP))).max(1);
    chunks(par, tasks, group, |a, b| {
        for t in a..b {
            let (o, r, s) = (t / (ranges * strips), t / strips % ranges, t % strips);
            let (j0, j1) = (s * STRIP, inner.min((s + 1) * STRIP));
            let (k0, k1) = (r * RANGE, len.min((r + 1) * RANGE));
            let first = (o * len + k0) * inner + j0;
            // SAFETY: this part of the sums is the task's own.
            let acc = unsafe { sums.slice((o * ranges + r) * inner + j0, j1 - j0) };
            strip(simd, op, &x[first..], k1 - k0, inner, acc);
        }
    });
    if ranges > 1 {
        chunks(par, outer * inner, GATHER, |a, b| {
            let mut parts = vec![T::Acc::start(op); ranges];
            for at in a..b {
                let (o, j) = (at / inner, at % inner);
                // SAFETY: all parts were written; every task writes its own results.
                unsafe {
                    for (r, part) in parts.iter_mut().enumerate() {
                        *part = *sums.get().add((o * ranges + r) * inner + j);
                    }
                    *to.get().add(at) = pairwise::<T>(op, &mut parts);
                }
            }
        });
    }
}

/// Reduces `rows` rows, `stride` apart, into `acc`.
fn strip<T: Reduce>(simd: Simd, op: Reduction, x: &[T], rows: usize, stride: usize, acc: &mut [T::Acc]) {
    let n = acc.len();
    acc.fill(T::Acc::start(op));
    let bufs: [Scratch<T::Acc>; 4] = std::array::from_fn(|_| Scratch::new(widened_len::<T>(n)));
    let add = |mut k: usize, end: usize, acc: &mut [T::Acc]| {
        while k < end {
            let step = if k + 4 <= end { 4 } else { 1 };
            let mut lines: [&[T::Acc]; 4] = [&[]; 4];
            for (i, (line, buf)) in lines.iter_mut().zip(&bufs).enumerate().take(step) {
                *line = wide(simd, &x[(k + i) * stride..][..n], buf);
            }
            T::Acc::add_rows(simd, op, &lines[..step], acc);
            k += step;
        }
    };
    if rows <= RUN {
        return add(0, rows, acc);
    }
    let run = Scratch::<T::Acc>::new(n);
    // SAFETY: the buffer holds as many elements, and is filled before it is read.
    let run = unsafe { std::slice::from_raw_parts_mut(run.ptr(), n) };
    for k in (0..rows).step_by(RUN) {
        run.fill(T::Acc::start(op));
        add(k, rows.min(k + RUN), run);
        T::Acc::add_rows(simd, op, &[&*run], acc);
    }
}

struct AddRows<'a, 'b, A> {
    op: Reduction,
    rows: &'a [&'b [A]],
    acc: &'a mut [A],
}

impl<A: Acc> Kernel for AddRows<'_, '_, A> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        match self.op {
            Reduction::Sum | Reduction::Mean => add_rows(Reduction::Sum, self.rows, self.acc),
            Reduction::Prod => add_rows(Reduction::Prod, self.rows, self.acc),
            Reduction::Min => add_rows(Reduction::Min, self.rows, self.acc),
            Reduction::Max => add_rows(Reduction::Max, self.rows, self.acc),
        }
    }
}

#[inline(always)]
fn add_rows<A: Acc>(op: Reduction, rows: &[&[A]], acc: &mut [A]) {
    let n = acc.len();
    if let [a, b, c, d] = rows {
        let (a, b, c, d) = (&a[..n], &b[..n], &c[..n], &d[..n]);
        for j in 0..n {
            let four = A::join(op, A::join(op, a[j], b[j]), A::join(op, c[j], d[j]));
            acc[j] = A::join(op, acc[j], four);
        }
        return;
    }
    for row in rows {
        for (a, x) in acc.iter_mut().zip(*row) {
            *a = A::join(op, *a, *x);
        }
    }
}
