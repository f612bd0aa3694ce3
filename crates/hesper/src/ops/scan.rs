//! Running sums, products, extremes and sums of exponentials along an axis, and differences.
//!
//! Along the last axis several rows are run through at once, since one alone waits for each addition; a
//! long row is cut into chunks of fixed length, whose totals are added in a second pass. Along another
//! axis whole rows are combined.

use std::marker::PhantomData;

use half::{bf16, f16};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::logic::select;
use super::native::{GRAIN, par_chunks_mut, par_pieces, reach};
use super::pad::Pad;
use super::reduce::{Number, Total, Wide};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::axis;
use crate::transform::rule::{Backward, Batch, Cotangents, zeros_like};

/// Elements of a chunk of a long row.
const CHUNK: usize = GRAIN / 4;
/// Columns that one task runs through.
const COLUMNS: usize = 512;

/// How elements are combined.
trait Scanner: Sync + Send + 'static {
    type Element: bytemuck::Pod + Send + Sync;
    type Acc: Copy + Send + Sync;
    fn identity(&self) -> Self::Acc;
    fn load(&self, x: Self::Element) -> Self::Acc;
    fn combine(&self, a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn store(&self, acc: Self::Acc) -> Self::Element;
}

struct Sums<T>(PhantomData<T>);
struct Products<T>(PhantomData<T>);
struct Extremes<T: Number, const LARGEST: bool> {
    identity: T::Wide,
}
struct LogSums<T>(PhantomData<T>);

macro_rules! totals {
    ($name:ident, $identity:ident, $combine:ident) => {
        impl<T: Number> Scanner for $name<T> {
            type Element = T;
            type Acc = T::Total;
            fn identity(&self) -> T::Total {
                T::Total::$identity
            }
            #[inline(always)]
            fn load(&self, x: T) -> T::Total {
                x.total()
            }
            #[inline(always)]
            fn combine(&self, a: T::Total, b: T::Total) -> T::Total {
                a.$combine(b)
            }
            #[inline(always)]
            fn store(&self, acc: T::Total) -> T {
                T::from_total(acc)
            }
        }
    };
}

totals!(Sums, ZERO, plus);
totals!(Products, ONE, times);

impl<T: Number, const LARGEST: bool> Scanner for Extremes<T, LARGEST> {
    type Element = T;
    type Acc = T::Wide;
    fn identity(&self) -> T::Wide {
        self.identity
    }
    #[inline(always)]
    fn load(&self, x: T) -> T::Wide {
        x.widen()
    }
    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        let wins = if LARGEST { a.above(b) } else { b.above(a) };
        if wins | a.is_nan() { a } else { b }
    }
    #[inline(always)]
    fn store(&self, acc: T::Wide) -> T {
        T::narrow(acc)
    }
}

/// A number in double precision, and back: enough for every float.
impl<T: Number> Scanner for LogSums<T> {
    type Element = T;
    type Acc = f64;
    fn identity(&self) -> f64 {
        f64::NEG_INFINITY
    }
    fn load(&self, x: T) -> f64 {
        x.real()
    }
    fn combine(&self, a: f64, b: f64) -> f64 {
        let (low, high) = if a > b { (b, a) } else { (a, b) };
        if a.is_nan() || b.is_nan() {
            return f64::NAN;
        }
        if high.is_infinite() { high } else { high + (low - high).exp().ln_1p() }
    }
    fn store(&self, acc: f64) -> T {
        T::from_real(acc)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Product,
    Max,
    Min,
    LogSum,
}

/// Runs along one axis.
#[derive(Debug, Clone, Copy)]
struct Scan {
    kind: Kind,
    along: usize,
    reverse: bool,
    inclusive: bool,
}

impl Scan {
    /// Runs through `N` rows at once; gives their totals.
    fn rows<S: Scanner, const N: usize>(
        self,
        s: &S,
        x: [&[S::Element]; N],
        out: [&mut [S::Element]; N],
    ) -> [S::Acc; N] {
        let mut acc = [s.identity(); N];
        let length = x[0].len();
        for step in 0..length {
            let at = if self.reverse { length - 1 - step } else { step };
            for row in 0..N {
                let before = acc[row];
                acc[row] = s.combine(before, s.load(x[row][at]));
                out[row][at] = s.store(if self.inclusive { acc[row] } else { before });
            }
        }
        acc
    }

    /// Runs through rows that lie one after the other; gives their totals.
    fn group<S: Scanner>(
        self,
        s: &S,
        length: usize,
        x: &[S::Element],
        out: &mut [S::Element],
    ) -> Vec<S::Acc> {
        let mut totals = Vec::with_capacity(out.len().div_ceil(length));
        for (x, out) in x.chunks(4 * length).zip(out.chunks_mut(4 * length)) {
            if out.len() == 4 * length {
                let (a, b) = out.split_at_mut(2 * length);
                let ((a, b), (c, d)) = (a.split_at_mut(length), b.split_at_mut(length));
                let (l, h) = x.split_at(2 * length);
                let ((k, l), (m, n)) = (l.split_at(length), h.split_at(length));
                totals.extend(self.rows(s, [k, l, m, n], [a, b, c, d]));
            } else {
                for (x, out) in x.chunks(length).zip(out.chunks_mut(length)) {
                    totals.extend(self.rows(s, [x], [out]));
                }
            }
        }
        totals
    }

    /// Rows along the last axis.
    fn along_rows<S: Scanner>(self, s: &S, length: usize, x: &[S::Element], out: &mut [S::Element]) {
        if length <= 4 * CHUNK {
            let grain = (GRAIN / length).max(4) * length;
            return par_chunks_mut(out, grain, |task, out| {
                self.group(s, length, &x[task * grain..][..out.len()], out);
            });
        }
        let totals: Vec<_> =
            (0..out.len().div_ceil(4 * CHUNK)).map(|_| std::sync::Mutex::new(Vec::new())).collect();
        for (x, out) in x.chunks(length).zip(out.chunks_mut(length)) {
            par_chunks_mut(out, 4 * CHUNK, |task, out| {
                let found = self.group(s, CHUNK, &x[task * 4 * CHUNK..][..out.len()], out);
                *totals[task].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = found;
            });
            let tasks = length.div_ceil(4 * CHUNK);
            let mut carries: Vec<S::Acc> = totals[..tasks]
                .iter()
                .flat_map(|found| found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone())
                .collect();
            let mut carry = s.identity();
            let mut add = |slot: &mut S::Acc| {
                let total = *slot;
                *slot = carry;
                carry = s.combine(carry, total);
            };
            if self.reverse {
                carries.iter_mut().rev().for_each(&mut add);
            } else {
                carries.iter_mut().for_each(&mut add);
            }
            par_chunks_mut(out, CHUNK, |chunk, out| {
                let first = if self.reverse { carries.len() - 1 } else { 0 };
                if chunk != first {
                    out.iter_mut().for_each(|x| *x = s.store(s.combine(carries[chunk], s.load(*x))));
                }
            });
        }
    }

    /// Rows of a slab are combined one after the other.
    fn slab<'a, S: Scanner>(
        self,
        s: &S,
        acc: &mut [S::Acc],
        x: impl DoubleEndedIterator<Item = &'a [S::Element]>,
        out: impl DoubleEndedIterator<Item = &'a mut [S::Element]>,
    ) where
        S::Element: 'a,
    {
        acc.fill(s.identity());
        let mut step = |(x, out): (&[S::Element], &mut [S::Element])| {
            for ((acc, x), out) in acc.iter_mut().zip(x).zip(out) {
                let before = *acc;
                *acc = s.combine(before, s.load(*x));
                *out = s.store(if self.inclusive { *acc } else { before });
            }
        };
        if self.reverse { x.rev().zip(out.rev()).for_each(&mut step) } else { x.zip(out).for_each(&mut step) }
    }

    /// Along an axis that others follow.
    fn along_columns<S: Scanner>(
        self,
        s: &S,
        length: usize,
        inner: usize,
        x: &[S::Element],
        out: &mut [S::Element],
    ) {
        let slab = length * inner;
        if inner <= COLUMNS {
            let grain = (GRAIN / slab).max(1) * slab;
            return par_chunks_mut(out, grain, |task, out| {
                let mut acc = vec![s.identity(); inner];
                for (x, out) in x[task * grain..].chunks(slab).zip(out.chunks_mut(slab)) {
                    self.slab(s, &mut acc, x.chunks_exact(inner), out.chunks_exact_mut(inner));
                }
            });
        }
        let mut pieces: Vec<(usize, Vec<&mut [S::Element]>)> = Vec::new();
        for (number, slab_out) in out.chunks_mut(slab).enumerate() {
            let first = pieces.len();
            for row in slab_out.chunks_exact_mut(inner) {
                for (block, part) in row.chunks_mut(COLUMNS).enumerate() {
                    if pieces.len() == first + block {
                        pieces.push((number * slab + block * COLUMNS, Vec::with_capacity(length)));
                    }
                    pieces[first + block].1.push(part);
                }
            }
        }
        par_pieces(pieces, |_, (start, rows)| {
            let width = rows.first().map_or(0, |row| row.len());
            let mut acc = vec![s.identity(); width];
            let from = (0..length).map(|row| &x[start + row * inner..][..width]);
            self.slab(s, &mut acc, from, rows.into_iter());
        });
    }

    fn run<S: Scanner>(self, l: &Lowering<'_>, s: S) -> Result<Data> {
        let (input, output) = (l.row_major(0)?, l.output()?);
        let shape = l.shape();
        let (length, inner) = (shape[self.along], shape[self.along + 1..].iter().product::<usize>());
        let (bytes, _) = reach(&input, shape, size_of::<S::Element>());
        let command = l.stream().command(self.name()).read_range(&input.buffer, bytes);
        command.write(&output).run(move |native| {
            let [x, out] = native.take()?;
            let (x, out) = (x.as_slice::<S::Element>()?, out.as_mut_slice::<S::Element>()?);
            match (out.is_empty(), inner) {
                (true, _) => {}
                (_, 1) => self.along_rows(&s, length, x, out),
                _ => self.along_columns(&s, length, inner, x, out),
            }
            Ok(())
        })?;
        Ok(Data::contiguous(output, shape))
    }

    /// By the kernels of contiguous axes.
    fn dense<T: hesper_compute::Scannable + bytemuck::Pod>(self, l: &Lowering<'_>) -> Result<Data> {
        let (input, output) = (l.row_major(0)?, l.output()?);
        let shape = l.shape();
        let axis = hesper_compute::Axis {
            outer: shape[..self.along].iter().product(),
            len: shape[self.along],
            inner: shape[self.along + 1..].iter().product(),
        };
        let kind = match self.kind {
            Kind::Sum => hesper_compute::Scan::Sum,
            Kind::Product => hesper_compute::Scan::Prod,
            Kind::Max => hesper_compute::Scan::Max,
            Kind::Min => hesper_compute::Scan::Min,
            Kind::LogSum => hesper_compute::Scan::LogSumExp,
        };
        let (bytes, _) = reach(&input, shape, size_of::<T>());
        let command = l.stream().command(self.name()).read_range(&input.buffer, bytes);
        command.write(&output).run(move |native| {
            let [x, out] = native.take()?;
            let (x, out) = (x.as_slice::<T>()?, out.as_mut_slice::<T>()?);
            hesper_compute::scan(&Cores, kind, x, axis, self.reverse, self.inclusive, out)
                .map_err(|error| error.to_string().into())
        })?;
        Ok(Data::contiguous(output, shape))
    }

    fn totals<T: Number>(self, l: &Lowering<'_>) -> Result<Data> {
        match self.kind {
            Kind::Product => self.run(l, Products(PhantomData::<T>)),
            _ => self.run(l, Sums(PhantomData::<T>)),
        }
    }

    fn extremes<T: Number>(self, l: &Lowering<'_>) -> Result<Data> {
        match self.kind {
            Kind::Max => self.run(l, Extremes::<T, true> { identity: T::Wide::LOWEST }),
            _ => self.run(l, Extremes::<T, false> { identity: T::Wide::HIGHEST }),
        }
    }
}

fn no_log(dtype: Dtype) -> Error {
    Error::Type { op: "logcumsumexp".into(), what: "not defined for an array".into(), dtype }
}

impl Op for Scan {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Sum => "cumsum",
            Kind::Product => "cumprod",
            Kind::Max => "cummax",
            Kind::Min => "cummin",
            Kind::LogSum => "logcumsumexp",
        }
    }

    fn export(&self) -> Export {
        let record = Record::new("scan").with("kind", self.name()).with("axis", self.along);
        record.with("reverse", self.reverse).with("inclusive", self.inclusive).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match (self.kind, l.dtype()) {
            (Kind::LogSum, Dtype::Float16) => self.run(l, LogSums(PhantomData::<f16>)),
            (Kind::LogSum, Dtype::Bfloat16) => self.run(l, LogSums(PhantomData::<bf16>)),
            (Kind::LogSum, Dtype::Float32) => self.run(l, LogSums(PhantomData::<f32>)),
            (Kind::LogSum, Dtype::Float64) => self.run(l, LogSums(PhantomData::<f64>)),
            (Kind::LogSum, dtype) => Err(no_log(dtype)),
            // The largest of bools is one, not the largest byte.
            (Kind::Min, Dtype::Bool) => self.run(l, Extremes::<u8, false> { identity: 1 }),
            (_, Dtype::Bool | Dtype::Uint8) => self.dense::<u8>(l),
            (_, Dtype::Uint16) => self.dense::<u16>(l),
            (_, Dtype::Uint32) => self.dense::<u32>(l),
            (_, Dtype::Uint64) => self.dense::<u64>(l),
            (_, Dtype::Int8) => self.dense::<i8>(l),
            (_, Dtype::Int16) => self.dense::<i16>(l),
            (_, Dtype::Int32) => self.dense::<i32>(l),
            (_, Dtype::Int64) => self.dense::<i64>(l),
            (_, Dtype::Float16) => self.dense::<f16>(l),
            (_, Dtype::Bfloat16) => self.dense::<bf16>(l),
            (_, Dtype::Float32) => self.dense::<f32>(l),
            (_, Dtype::Float64) => self.dense::<f64>(l),
            (Kind::Max | Kind::Min, Dtype::Complex64) => self.extremes::<[f32; 2]>(l),
            (_, Dtype::Complex64) => self.totals::<[f32; 2]>(l),
        }
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        use crate::gpu::scan::{Combine, Scan as OnGpu};
        let Scan { along, reverse, inclusive, .. } = *self;
        let combine = match self.kind {
            Kind::Sum => Combine::Sum,
            Kind::Product => Combine::Product,
            Kind::Max => Combine::Max,
            Kind::Min => Combine::Min,
            Kind::LogSum => Combine::LogSum,
        };
        OnGpu { combine, along, reverse, inclusive }.lower(self.name(), l)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (x, cotangent) = (&rule.inputs[0], rule.cotangent()?);
        let along = Some(self.along as isize);
        if self.kind == Kind::Sum {
            return rule.only(cotangent.scan(Kind::Sum, along, !self.reverse, self.inclusive));
        }
        if self.inclusive {
            return rule.only(self.pulled(x, rule.output, &cotangent));
        }
        // Without the element itself a result is that of the element before.
        let with = x.scan(self.kind, along, self.reverse, true)?;
        let moved = self.later(&cotangent, 1, 0.0)?;
        rule.only(Scan { inclusive: true, ..*self }.pulled(x, &with, &moved))
    }

    fn is_linear(&self) -> bool {
        self.kind == Kind::Sum
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let op = Scan { along: self.along + 1, ..*self };
        rule.apply(OpRef::new(op), smallvec![rule.front(0)?])
    }
}

/// Derivatives of what is no sum. Products and weighted sums along the axis are made by doubling: after a step the
/// elements hold what is true of twice as many. No step divides, so zeros are numbers like others, and the
/// derivative can be differentiated again.
impl Scan {
    /// The cotangent of the elements, from that of a result that includes them.
    fn pulled(&self, x: &Array, out: &Array, cotangent: &Array) -> Result<Array> {
        match self.kind {
            Kind::Sum => cotangent.scan(Kind::Sum, Some(self.along as isize), !self.reverse, true),
            Kind::Product => {
                let again = |x: &[Array]| Ok(vec![self.doubled_product(&x[0])?]);
                let found = crate::transform::vjp(again, &[x.clone()], &[cotangent.clone()])?.1;
                found.into_iter().next().ok_or_else(|| Error::value(self.name(), "has no derivative"))
            }
            Kind::LogSum => self.pulled_log_sum(x, out, cotangent),
            Kind::Max | Kind::Min => {
                // Where the extreme was met last.
                let length = x.shape()[self.along];
                let mut shape: SmallVec<[isize; 6]> = smallvec![1; x.ndim()];
                shape[self.along] = length as isize;
                let places: Vec<i64> = (0..length as i64).collect();
                let places = Array::from_slice(&places).reshape(&shape)?;
                let (none, kind) = if self.reverse { (length as i64, Kind::Min) } else { (-1, Kind::Max) };
                let none = Array::integer(none, Dtype::Int64)?;
                let along = Some(self.along as isize);
                let met = select(&x.equal(out)?, &places, &none)?.scan(kind, along, self.reverse, true)?;
                zeros_like(x)?.scatter_add_axis(&met, cotangent, self.along as isize)
            }
        }
    }

    /// For each place what stands `by` places later in the scan's order, and `end` beyond its end; before, if
    /// `by` is negative.
    fn later(&self, y: &Array, by: isize, end: f64) -> Result<Array> {
        let length = y.shape()[self.along] as isize;
        let by = if self.reverse { -by } else { by };
        let kept = y.slice_axis(self.along, by.max(0), (length + by.min(0)).max(0), 1)?;
        let mut widths: SmallVec<[(usize, usize); 6]> = smallvec![(0, 0); y.ndim()];
        let missing = by.abs().min(length) as usize;
        widths[self.along] = if by < 0 { (missing, 0) } else { (0, missing) };
        kept.pad(&widths, &Pad::Constant(end.into()))
    }

    /// The distances of the steps: powers of two below the length.
    fn distances(&self, x: &Array) -> impl Iterator<Item = isize> + use<> {
        let length = x.shape()[self.along] as isize;
        std::iter::successors(Some(1), |step| Some(step * 2)).take_while(move |step| *step < length)
    }

    /// The running product, of products of ever more neighbours.
    fn doubled_product(&self, x: &Array) -> Result<Array> {
        self.distances(x).try_fold(x.clone(), |y, step| y.multiply(self.later(&y, -step, 1.0)?))
    }

    /// Each element has the part `exp(x - out)` of its own result, and of every later result the part that its own
    /// has of that: both are at most one.
    fn pulled_log_sum(&self, x: &Array, out: &Array, cotangent: &Array) -> Result<Array> {
        // A sum of nothing is minus infinity; an element has no part in it.
        let known = |y: &Array| select(&y.equal(f64::NEG_INFINITY)?, &zeros_like(y)?, y);
        let next = self.later(out, 1, f64::INFINITY)?;
        let mut part = out.subtract(known(&next)?)?.exp()?;
        let mut sum = cotangent.clone();
        for step in self.distances(x) {
            sum = sum.add(part.multiply(self.later(&sum, step, 0.0)?)?)?;
            part = part.multiply(self.later(&part, step, 0.0)?)?;
        }
        x.subtract(known(out)?)?.exp()?.multiply(sum)
    }
}

impl Array {
    /// The running sum along an axis, or through the flattened array; from the back if `reverse`; without
    /// the element itself unless `inclusive`. Bools are summed as int32.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::from_slice(&[1, 2, 3]);
    /// assert_eq!(x.cumsum(None, false, true)?.to_vec::<i32>()?, [1, 3, 6]);
    /// assert_eq!(x.cumsum(None, true, false)?.to_vec::<i32>()?, [5, 3, 0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn cumsum(&self, along: Option<isize>, reverse: bool, inclusive: bool) -> Result<Array> {
        let input = if self.dtype() == Dtype::Bool { self.astype(Dtype::Int32)? } else { self.clone() };
        input.scan(Kind::Sum, along, reverse, inclusive)
    }

    /// The running product; see [`cumsum`](Array::cumsum).
    pub fn cumprod(&self, along: Option<isize>, reverse: bool, inclusive: bool) -> Result<Array> {
        self.scan(Kind::Product, along, reverse, inclusive)
    }

    /// The running maximum; see [`cumsum`](Array::cumsum).
    pub fn cummax(&self, along: Option<isize>, reverse: bool, inclusive: bool) -> Result<Array> {
        self.scan(Kind::Max, along, reverse, inclusive)
    }

    /// The running minimum; see [`cumsum`](Array::cumsum).
    pub fn cummin(&self, along: Option<isize>, reverse: bool, inclusive: bool) -> Result<Array> {
        self.scan(Kind::Min, along, reverse, inclusive)
    }

    /// The logarithm of the running sum of exponentials; see [`cumsum`](Array::cumsum).
    pub fn logcumsumexp(&self, along: Option<isize>, reverse: bool, inclusive: bool) -> Result<Array> {
        let input = self.astype(self.dtype().to_inexact())?;
        if input.dtype().is(Category::Complex) {
            return Err(no_log(input.dtype()));
        }
        input.scan(Kind::LogSum, along, reverse, inclusive)
    }

    fn scan(&self, kind: Kind, along: Option<isize>, reverse: bool, inclusive: bool) -> Result<Array> {
        let Some(along) = along else {
            return self.reshape(&[-1])?.scan(kind, Some(0), reverse, inclusive);
        };
        let mut op = Scan { kind, along: 0, reverse, inclusive };
        op.along = axis(op.name(), along, self.ndim())?;
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(op), smallvec![self.clone()])
    }

    /// The differences of neighbours along an axis, `n` times over.
    pub fn diff(&self, n: usize, along: isize) -> Result<Array> {
        let at = axis("diff", along, self.ndim())?;
        let mut result = self.clone();
        // More steps than elements leave nothing.
        for _ in 0..n.min(self.shape()[at]) {
            let stop: SmallVec<[isize; 6]> = result.shape().iter().map(|length| *length as isize).collect();
            let start: SmallVec<[isize; 6]> = smallvec![0; stop.len()];
            let step: SmallVec<[isize; 6]> = smallvec![1; stop.len()];
            let (mut second, mut last) = (start.clone(), stop.clone());
            second[at] = 1;
            last[at] = (stop[at] - 1).max(0);
            let next = result.slice(&second, &stop, &step)?;
            result = next.subtract(result.slice(&start, &last, &step)?)?;
        }
        Ok(result)
    }
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let (axis, reverse) = (Some(replay.axis("axis")?), replay.flag("reverse")?);
    let inclusive = replay.flag("inclusive")?;
    match replay.text("kind")? {
        "cumsum" => x.cumsum(axis, reverse, inclusive),
        "cumprod" => x.cumprod(axis, reverse, inclusive),
        "cummax" => x.cummax(axis, reverse, inclusive),
        "cummin" => x.cummin(axis, reverse, inclusive),
        "logcumsumexp" => x.logcumsumexp(axis, reverse, inclusive),
        other => Err(replay.wrong(format!("an unknown kind {other:?}"))),
    }
}
