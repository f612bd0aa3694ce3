//! Sums, products, minima and maxima, in an order that does not depend on strides.
//!
//! A row is reduced in blocks of [`BLOCK`] by `fold`; blocks are combined pairwise. Columns are reduced four
//! rows at a time in runs of [`RUN`], runs within ranges of [`RANGE`] rows, and ranges pairwise. The input
//! selects the order ([`SumOrder`]); rows that are strided in memory are reduced tile by tile in the order of
//! rows. Minima, maxima and integer reductions are the same in every order. NaN wins every minimum and
//! maximum, and -0 counts as less than +0.

use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};

use super::Axis;
use super::fold;
use super::input::{ReduceInput, SumOrder, Tile};
use super::source::{PIECE, PackedLines, Plain, Source};
use super::transposed;
use super::tree::{self, Reducer, pairwise, pairwise_lines};
use crate::error::{Mismatch, same};
use crate::par::Par;
use crate::scratch::Scratch;
use crate::simd::Simd;

/// Elements of a row summed before partial sums are added.
pub(super) const BLOCK: usize = 4096;
/// Rows of a tile whose columns are reduced.
const RANGE: usize = 512;
/// Rows added to a partial sum before it is added to the total.
pub(super) const RUN: usize = 32;
/// Columns of a tile.
const STRIP: usize = 2048;
/// Bytes of the accumulators of columns that are reduced in the order of rows: they fit the L1 cache.
const LANE_BYTES: usize = 32 << 10;

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The smallest element; NaN if there is one.
    Min,
    /// The largest element; NaN if there is one.
    Max,
}

/// A type that can be reduced.
#[allow(private_interfaces, reason = "only this crate calls its methods")]
pub trait Reduce: Plain {
    /// The type of accumulators and results.
    type Acc: Acc;
    /// Adds four rows, or one, to the accumulators.
    #[doc(hidden)]
    fn add_rows(level: Simd, op: Reduction, rows: &[&[Self]], acc: &mut [Self::Acc]);
    /// Reduces rows of `len` elements, at most a block, to one result each.
    #[doc(hidden)]
    fn fold_rows(level: Simd, op: Reduction, x: &[Self], len: usize, out: &mut [Self::Acc]);
    /// Reduces a block of a row that lies in lines; `None` if the type has no kernel for it.
    #[doc(hidden)]
    fn fold_lines(_level: Simd, _op: Reduction, _x: PackedLines<'_, Self>) -> Option<Self::Acc> {
        None
    }
    /// Reduces contiguous columns in the order of columns; false if the type has no kernel for it.
    #[doc(hidden)]
    fn add_lines(
        _level: Simd,
        _op: Reduction,
        _x: &ReduceInput<'_, Self>,
        _columns: Range<usize>,
        _rows: Range<usize>,
        _out: &mut [Self::Acc],
    ) -> bool {
        false
    }
    /// Reduces rows that lie across to `lanes` accumulators each: those of `acc.len() / lanes` columns of a
    /// tile, from `first` on.
    #[doc(hidden)]
    fn add_across(
        level: Simd,
        op: Reduction,
        tile: &Tile<'_, Self>,
        first: usize,
        lanes: usize,
        acc: &mut [Self::Acc],
    ) {
        add_across(level, op, tile, first, lanes, acc);
    }
    #[doc(hidden)]
    fn run(par: &dyn Par, op: Reduction, x: &ReduceInput<'_, Self>, out: &mut [Self::Acc]);
    #[doc(hidden)]
    fn run_rows(par: &dyn Par, op: Reduction, x: &dyn Source<Self>, len: usize, out: &mut [Self::Acc]);
}

/// An accumulator type.
#[doc(hidden)]
pub trait Acc: Copy + Send + Sync + 'static {
    fn start(op: Reduction) -> Self;
    fn join(op: Reduction, a: Self, b: Self) -> Self;
}

macro_rules! integer_accumulators {
    ($($acc:ty)*) => {$(
        impl Acc for $acc {
            #[inline(always)]
            fn start(op: Reduction) -> $acc {
                match op {
                    Reduction::Sum => 0,
                    Reduction::Prod => 1,
                    Reduction::Min => <$acc>::MAX,
                    Reduction::Max => <$acc>::MIN,
                }
            }
            #[inline(always)]
            fn join(op: Reduction, a: $acc, b: $acc) -> $acc {
                match op {
                    Reduction::Sum => a.wrapping_add(b),
                    Reduction::Prod => a.wrapping_mul(b),
                    Reduction::Min => a.min(b),
                    Reduction::Max => a.max(b),
                }
            }
        }
    )*};
}

integer_accumulators!(u32 u64 i32 i64);

macro_rules! float_accumulators {
    ($($acc:ident)*) => {$(
        impl Acc for $acc {
            #[inline(always)]
            fn start(op: Reduction) -> $acc {
                match op {
                    Reduction::Sum => 0.0,
                    Reduction::Prod => 1.0,
                    Reduction::Min => $acc::INFINITY,
                    Reduction::Max => $acc::NEG_INFINITY,
                }
            }
            #[inline(always)]
            #[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
            fn join(op: Reduction, a: $acc, b: $acc) -> $acc {
                // Equal values differ in the sign of zero at most.
                let equal = |bits| if a == b { $acc::from_bits(bits) } else { b };
                match op {
                    Reduction::Sum => a + b,
                    Reduction::Prod => a * b,
                    Reduction::Min if a != a || a < b => a,
                    Reduction::Min => equal(a.to_bits() | b.to_bits()),
                    Reduction::Max if a != a || a > b => a,
                    Reduction::Max => equal(a.to_bits() & b.to_bits()),
                }
            }
        }
    )*};
}

float_accumulators!(f32 f64);

/// Complex numbers, ordered by real part, then by imaginary part. The extreme of values with a NaN is NaN in
/// both parts.
macro_rules! complex_accumulators {
    ($($part:ident)*) => {$(
        impl Acc for [$part; 2] {
            #[inline(always)]
            fn start(op: Reduction) -> Self {
                match op {
                    Reduction::Sum => [0.0; 2],
                    Reduction::Prod => [1.0, 0.0],
                    Reduction::Min => [$part::INFINITY; 2],
                    Reduction::Max => [$part::NEG_INFINITY; 2],
                }
            }
            #[inline(always)]
            fn join(op: Reduction, a: Self, b: Self) -> Self {
                let nan = |x: Self| x[0].is_nan() | x[1].is_nan();
                match op {
                    Reduction::Sum => [a[0] + b[0], a[1] + b[1]],
                    Reduction::Prod => [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]],
                    _ if nan(a) || nan(b) => [$part::NAN; 2],
                    _ if a == b => [$part::join(op, a[0], b[0]), $part::join(op, a[1], b[1])],
                    _ if (a < b) == (op == Reduction::Min) => a,
                    _ => b,
                }
            }
        }
    )*};
}

complex_accumulators!(f32 f64);

macro_rules! reduce {
    ($($t:ty => $acc:ty, $add:expr, $fold:expr $(, $packed:expr, $lines:expr, $across:expr)?;)*) => {$(
        #[allow(private_interfaces, reason = "only this crate calls its methods")]
        impl Reduce for $t {
            type Acc = $acc;
            fn add_rows(level: Simd, op: Reduction, rows: &[&[$t]], acc: &mut [$acc]) {
                $add(level, op, rows, acc);
            }
            fn fold_rows(level: Simd, op: Reduction, x: &[$t], len: usize, out: &mut [$acc]) {
                $fold(level, op, x, len, out);
            }
            fn run(par: &dyn Par, op: Reduction, x: &ReduceInput<'_, $t>, out: &mut [$acc]) {
                in_order(par, Fold::new(op), x, out);
            }
            fn run_rows(par: &dyn Par, op: Reduction, x: &dyn Source<$t>, len: usize, out: &mut [$acc]) {
                tree::by_rows(par, Fold::new(op), x, len, out);
            }
            $(
                fn fold_lines(level: Simd, op: Reduction, x: PackedLines<'_, $t>) -> Option<$acc> {
                    matches!(op, Reduction::Sum | Reduction::Prod).then(|| $packed(level, op, x))
                }
                fn add_lines(
                    level: Simd,
                    op: Reduction,
                    x: &ReduceInput<'_, $t>,
                    columns: Range<usize>,
                    rows: Range<usize>,
                    out: &mut [$acc],
                ) -> bool {
                    let sums = matches!(op, Reduction::Sum | Reduction::Prod);
                    if sums {
                        $lines(level, op, x, columns, rows, out);
                    }
                    sums
                }
                fn add_across(
                    level: Simd,
                    op: Reduction,
                    tile: &Tile<'_, $t>,
                    first: usize,
                    lanes: usize,
                    acc: &mut [$acc],
                ) {
                    match op {
                        Reduction::Sum | Reduction::Prod => $across(level, op, tile, first, lanes, acc),
                        _ => add_across(level, op, tile, first, lanes, acc),
                    }
                }
            )?
        }
    )*};
}

reduce! {
    u8 => u32, fold::add_each, fold::widened; u16 => u32, fold::add_each, fold::widened;
    u32 => u32, fold::add_each, fold::integers; u64 => u64, fold::add_each, fold::integers;
    i8 => i32, fold::add_each, fold::widened; i16 => i32, fold::add_each, fold::widened;
    i32 => i32, fold::add_each, fold::integers; i64 => i64, fold::add_each, fold::integers;
    f32 => f32, fold::add_each, fold::floats, transposed::block_of_lines,
        transposed::contiguous_columns, transposed::lanes_across;
    f64 => f64, fold::add_each, fold::doubles;
    bf16 => f32, fold::add_floats, fold::floats, transposed::block_of_lines,
        transposed::contiguous_columns, transposed::lanes_across;
    f16 => f32, fold::add_floats, fold::floats, transposed::block_of_lines,
        transposed::contiguous_columns, transposed::lanes_across;
    [f32; 2] => [f32; 2], fold::add_each, fold::pairs; [f64; 2] => [f64; 2], fold::add_each, fold::widened;
}

/// [`Reduce::add_across`], row by row.
fn add_across<T: Reduce>(
    level: Simd,
    op: Reduction,
    tile: &Tile<'_, T>,
    first: usize,
    lanes: usize,
    acc: &mut [T::Acc],
) {
    let n = acc.len() / lanes;
    acc.fill(T::Acc::start(op));
    for k in 0..tile.rows {
        let row = &tile.row(k)[first..first + n];
        T::add_rows(level, op, &[row], &mut acc[k % lanes * n..][..n]);
    }
}

/// Reduces strided memory; `out` holds one element per result. An empty reduction gives 0, 1 or an infinity.
pub fn reduce<T: Reduce>(
    par: &dyn Par,
    op: Reduction,
    x: &ReduceInput<'_, T>,
    out: &mut [T::Acc],
) -> Result<(), Mismatch> {
    same("elements of the result", x.results(), out.len())?;
    T::run(par, op, x, out);
    Ok(())
}

/// Reduces rows of `len` elements from any source, in the order of [`SumOrder::Rows`].
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

/// Reduces in the input's order. Rows that are strided in memory are read tile by tile.
pub(super) fn in_order<R: OrderedReducer>(
    par: &dyn Par,
    r: R,
    x: &ReduceInput<'_, R::In>,
    out: &mut [R::Acc],
) {
    if x.order() == SumOrder::Rows && x.is_strided_across() {
        tree::by_columns(par, r.across(), x, out);
    } else {
        tree::reduce(par, r, x, out);
    }
}

/// A reduction whose result depends on its order.
pub(super) trait OrderedReducer: Reducer {
    type Across: Reducer<In = Self::In, Acc = Self::Acc>;
    /// The reduction of columns in the order of rows.
    fn across(self) -> Self::Across;
}

/// A reduction of elements of one type.
pub(super) struct Fold<T> {
    op: Reduction,
    of: PhantomData<fn(T)>,
}

impl<T> Clone for Fold<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Fold<T> {}

impl<T> Fold<T> {
    pub(super) fn new(op: Reduction) -> Self {
        Self { op, of: PhantomData }
    }
}

impl<T: Reduce> Reducer for Fold<T> {
    type In = T;
    type Acc = T::Acc;
    const RANGE: usize = RANGE;
    const STRIP: usize = STRIP;

    fn empty(self) -> T::Acc {
        T::Acc::start(self.op)
    }

    fn rows(self, simd: Simd, x: &[T], len: usize, out: &mut [T::Acc]) {
        if len <= BLOCK {
            return T::fold_rows(simd, self.op, x, len, out);
        }
        for (x, out) in x.chunks_exact(len).zip(out) {
            let mut parts = [self.empty(); PIECE / BLOCK];
            for (block, part) in x.chunks(BLOCK).zip(&mut parts) {
                T::fold_rows(simd, self.op, block, block.len(), std::slice::from_mut(part));
            }
            *out = self.join(0, BLOCK, &mut parts[..len.div_ceil(BLOCK)]);
        }
    }

    fn packed(self, simd: Simd, x: PackedLines<'_, T>, out: &mut [T::Acc]) -> bool {
        let mut parts = [self.empty(); PIECE / BLOCK];
        for (first, part) in (0..x.count).step_by(BLOCK).zip(&mut parts) {
            let Some(found) = T::fold_lines(simd, self.op, x.range(first..x.count.min(first + BLOCK))) else {
                return false;
            };
            *part = found;
        }
        out[0] = self.join(0, BLOCK, &mut parts[..x.count.div_ceil(BLOCK)]);
        true
    }

    fn lines(
        self,
        simd: Simd,
        x: &ReduceInput<'_, T>,
        columns: Range<usize>,
        rows: Range<usize>,
        out: &mut [T::Acc],
    ) -> bool {
        T::add_lines(simd, self.op, x, columns, rows, out)
    }

    fn columns(self, simd: Simd, tile: &Tile<'_, T>, out: &mut [T::Acc]) {
        out.fill(self.empty());
        let add = |mut k: usize, end: usize, acc: &mut [T::Acc]| {
            while k < end {
                let step = if k + 4 <= end { 4 } else { 1 };
                let mut rows: [&[T]; 4] = [&[]; 4];
                for (i, row) in rows.iter_mut().enumerate().take(step) {
                    *row = tile.row(k + i);
                }
                T::add_rows(simd, self.op, &rows[..step], acc);
                k += step;
            }
        };
        if tile.rows <= RUN {
            return add(0, tile.rows, out);
        }
        let run = Scratch::<T::Acc>::new(out.len());
        // SAFETY: the buffer holds as many elements, and is filled before it is read.
        let run = unsafe { std::slice::from_raw_parts_mut(run.ptr(), out.len()) };
        for k in (0..tile.rows).step_by(RUN) {
            run.fill(self.empty());
            add(k, tile.rows.min(k + RUN), run);
            fold::add_each(simd, self.op, &[&*run], out);
        }
    }

    fn join(self, _: usize, _: usize, parts: &mut [T::Acc]) -> T::Acc {
        pairwise(parts, |a, b| T::Acc::join(self.op, a, b))
    }

    fn join_lines(self, simd: Simd, lines: &mut [&mut [T::Acc]]) -> bool {
        pairwise_lines(lines, |a, b| fold::add_each(simd, self.op, &[b], a));
        true
    }
}

impl<T: Reduce> OrderedReducer for Fold<T> {
    type Across = Across<T>;
    fn across(self) -> Across<T> {
        Across(self)
    }
}

/// A reduction of columns in the order of rows: each block has the accumulators of `fold` for all columns.
pub(super) struct Across<T>(Fold<T>);

impl<T> Clone for Across<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Across<T> {}

impl<T: Reduce> Reducer for Across<T> {
    type In = T;
    type Acc = T::Acc;
    const RANGE: usize = BLOCK;
    const STRIP: usize = STRIP;

    fn empty(self) -> T::Acc {
        self.0.empty()
    }

    fn rows(self, simd: Simd, x: &[T], len: usize, out: &mut [T::Acc]) {
        self.0.rows(simd, x, len, out);
    }

    fn columns(self, simd: Simd, tile: &Tile<'_, T>, out: &mut [T::Acc]) {
        let op = self.0.op;
        let lanes = fold::lanes(tile.rows);
        let width = LANE_BYTES / (lanes * size_of::<T::Acc>());
        let acc = Scratch::<T::Acc>::new(lanes * width);
        for (strip, out) in out.chunks_mut(width).enumerate() {
            let (first, n) = (strip * width, out.len());
            // SAFETY: the buffer holds as many elements, and is filled before it is read.
            let acc = unsafe { std::slice::from_raw_parts_mut(acc.ptr(), lanes * n) };
            T::add_across(simd, op, tile, first, lanes, acc);
            let mut half = lanes / 2;
            while half > 0 {
                let (low, high) = acc.split_at_mut(half * n);
                fold::add_each(simd, op, &[&high[..half * n]], low);
                half /= 2;
            }
            out.copy_from_slice(&acc[..n]);
        }
    }

    fn join(self, result: usize, part: usize, parts: &mut [T::Acc]) -> T::Acc {
        self.0.join(result, part, parts)
    }

    fn join_lines(self, simd: Simd, lines: &mut [&mut [T::Acc]]) -> bool {
        self.0.join_lines(simd, lines)
    }
}
