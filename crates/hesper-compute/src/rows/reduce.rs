//! Sums, products, minima and maxima along an axis, with fixed trees.
//!
//! A row is summed in blocks of [`BLOCK`], each as `fold` does it; blocks are added pairwise. Along other axes, rows are added four at a time in runs of [`RUN`], runs within ranges of
//! [`RANGE`] rows, and ranges pairwise. NaN wins every minimum and maximum.

use half::{bf16, f16};

use super::Axis;
use super::fold;
use super::source::{PIECE, Plain, Room, Source, pieces};
use crate::error::{Mismatch, same};
use crate::par::{Par, Shared, chunks};
use crate::scratch::Scratch;
use crate::simd::Simd;

/// Elements of a row summed before partial sums are added.
const BLOCK: usize = 4096;
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
    /// Adds four rows, or one, to results.
    #[doc(hidden)]
    fn add_rows(level: Simd, op: Reduction, rows: &[&[Self]], acc: &mut [Self::Acc]);
    /// Reduces rows of `len` elements, at most a block, to a result each.
    #[doc(hidden)]
    fn fold_rows(level: Simd, op: Reduction, x: &[Self], len: usize, out: &mut [Self::Acc]);
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
}

macro_rules! accumulator {
    ($acc:ty, $zero:expr, $one:expr, $low:expr, $high:expr, $add:expr, $mul:expr, $div:expr) => {
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
    ($($acc:ident)*) => {$(
        accumulator!($acc, 0.0, 1.0, $acc::NEG_INFINITY, $acc::INFINITY, |a: $acc, b: $acc| a + b,
            |a: $acc, b: $acc| a * b, |a: $acc, n: usize| a / n as $acc);
    )*};
}

float_accumulators!(f32 f64);

/// Complex numbers; they are ordered by their real parts, then by their imaginary ones.
impl Acc for [f32; 2] {
    #[inline(always)]
    fn start(op: Reduction) -> [f32; 2] {
        match op {
            Reduction::Sum | Reduction::Mean => [0.0; 2],
            Reduction::Prod => [1.0, 0.0],
            Reduction::Min => [f32::INFINITY; 2],
            Reduction::Max => [f32::NEG_INFINITY; 2],
        }
    }
    #[inline(always)]
    fn join(op: Reduction, a: [f32; 2], b: [f32; 2]) -> [f32; 2] {
        let nan = a[0].is_nan() | a[1].is_nan();
        match op {
            Reduction::Sum | Reduction::Mean => [a[0] + b[0], a[1] + b[1]],
            Reduction::Prod => [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]],
            Reduction::Min if nan || a <= b => a,
            Reduction::Max if nan || a >= b => a,
            Reduction::Min | Reduction::Max => b,
        }
    }
    fn divide(a: [f32; 2], n: usize) -> [f32; 2] {
        a.map(|part| part / n as f32)
    }
}

macro_rules! reduce {
    ($($t:ty => $acc:ty, $add:expr, $fold:expr;)*) => {$(
        impl Reduce for $t {
            type Acc = $acc;
            fn add_rows(level: Simd, op: Reduction, rows: &[&[$t]], acc: &mut [$acc]) {
                $add(level, op, rows, acc);
            }
            fn fold_rows(level: Simd, op: Reduction, x: &[$t], len: usize, out: &mut [$acc]) {
                $fold(level, op, x, len, out);
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
    u8 => u32, fold::add_each, fold::each; u16 => u32, fold::add_each, fold::each;
    u32 => u32, fold::add_each, fold::whole; u64 => u64, fold::add_each, fold::whole;
    i8 => i32, fold::add_each, fold::each; i16 => i32, fold::add_each, fold::each;
    i32 => i32, fold::add_each, fold::whole; i64 => i64, fold::add_each, fold::whole;
    f32 => f32, fold::add_each, fold::floats; f64 => f64, fold::add_each, fold::doubles;
    bf16 => f32, fold::add_floats, fold::floats; f16 => f32, fold::add_floats, fold::floats;
    [f32; 2] => [f32; 2], fold::add_each, fold::pairs;
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
            if len <= BLOCK {
                return pieces(x, len, (a, b), &mut room, |first, rows, piece| {
                    // SAFETY: rows are this task's own.
                    let out = unsafe { to.slice(first, rows) };
                    T::fold_rows(simd, op, piece, len, out);
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
    let mut done = 0;
    while done < len {
        let piece = x.piece(at + done, PIECE.min(len - done), room);
        for (block, part) in piece.chunks(BLOCK).zip(&mut parts[done / BLOCK..]) {
            T::fold_rows(simd, op, block, block.len(), std::slice::from_mut(part));
        }
        done += piece.len();
    }
    pairwise::<T>(op, &mut parts[..len.div_ceil(BLOCK).max(1)])
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
    let add = |mut k: usize, end: usize, acc: &mut [T::Acc]| {
        while k < end {
            let step = if k + 4 <= end { 4 } else { 1 };
            let mut lines: [&[T]; 4] = [&[]; 4];
            for (i, line) in lines.iter_mut().enumerate().take(step) {
                *line = &x[(k + i) * stride..][..n];
            }
            T::add_rows(simd, op, &lines[..step], acc);
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
        fold::add_each(simd, op, &[&*run], acc);
    }
}
