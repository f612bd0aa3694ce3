//! Reductions over axes: sums, products, extremes, truth, moments.
//!
//! Each is one pass over memory, whatever axes it is over and however its input lies (see [`layout`] and
//! [`kernel`]). Everything else is composed of these.

mod arg;
pub(super) mod count;
mod gpu;
mod kernel;
mod layout;
mod reducers;
mod stats;

use std::any::TypeId;
use std::marker::PhantomData;

use half::{bf16, f16};
use hesper_compute::{Axis, Mismatch, Reduction};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::native::{GRAIN, par_chunks_mut, reach};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::eval::made::Feed;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::{Shape, axes, signed};
use crate::transform::rule::{Backward, Batch, Cotangents};
use count::Count;
use kernel::Reducer;
use layout::Layout;
use reducers::{Bits, CountSet, Extreme, Moments, Place, Product, Sum, Truth};
pub(super) use reducers::{Number, Total, Wide};

/// Rows shorter than this are not made while they are reduced: it would take longer than their numbers.
const MADE_FROM: usize = 16;

/// What elements are combined by.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// The sum, times a number (which is 1 for integers).
    Sum(f64),
    Product,
    Max,
    Min,
    All,
    Any,
    Count,
    Variance {
        count: f64,
        ddof: f64,
        root: bool,
    },
    ArgMax,
    ArgMin,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Sum(_) => "sum",
            Kind::Product => "prod",
            Kind::Max => "max",
            Kind::Min => "min",
            Kind::All => "all",
            Kind::Any => "any",
            Kind::Count => "count_nonzero",
            Kind::Variance { root: false, .. } => "var",
            Kind::Variance { root: true, .. } => "std",
            Kind::ArgMax => "argmax",
            Kind::ArgMin => "argmin",
        }
    }

    /// The type of the result.
    fn result(self, of: Dtype) -> Dtype {
        match self {
            Kind::Sum(_) | Kind::Product => match of {
                Dtype::Bool | Dtype::Int8 | Dtype::Int16 => Dtype::Int32,
                Dtype::Uint8 | Dtype::Uint16 => Dtype::Uint32,
                other => other,
            },
            Kind::Max | Kind::Min | Kind::Variance { .. } => of,
            Kind::All | Kind::Any => Dtype::Bool,
            Kind::Count => Dtype::Int32,
            Kind::ArgMax | Kind::ArgMin => Dtype::Uint32,
        }
    }
}

/// A reduction over some axes, which may have stayed in the result with length one.
/// Results of what `reduce` combines, computed where they belong if they are of the type of sums.
fn finished<R: Reducer<Acc: bytemuck::Pod>, E>(
    reducer: &R,
    out: &mut [R::Out],
    reduce: impl FnOnce(&mut [R::Acc]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    if TypeId::of::<R::Acc>() == TypeId::of::<R::Out>() {
        reduce(bytemuck::cast_slice_mut(out))?;
        par_chunks_mut(out, GRAIN, |_, part| {
            for result in part {
                *result = reducer.finish(bytemuck::cast(*result));
            }
        });
        return Ok(());
    }
    let mut sums = vec![reducer.identity(); out.len()];
    reduce(&mut sums)?;
    par_chunks_mut(out, GRAIN, |task, part| {
        for (result, sum) in part.iter_mut().zip(&sums[task * GRAIN..]) {
            *result = reducer.finish(*sum);
        }
    });
    Ok(())
}

#[derive(Debug)]
struct Reduce {
    kind: Kind,
    over: SmallVec<[usize; 6]>,
}

impl Reduce {
    fn run<R: Reducer + Send + 'static>(
        &self,
        l: &Lowering<'_>,
        reducer: impl FnOnce(&Layout) -> R,
    ) -> Result<Data> {
        self.run_by(l, reducer, kernel::run)
    }

    /// By kernels of contiguous axes where the input lies so.
    fn run_dense<R>(&self, l: &mut Lowering<'_>, reducer: R, reduction: Reduction) -> Result<Data>
    where
        R: Reducer<
                In: hesper_compute::Reduce<Acc = <R as Reducer>::Acc> + crate::Element,
                Acc: bytemuck::Pod,
            > + Send
            + 'static,
    {
        if let Some(made) = l.take_made() {
            return self.run_made(l, Feed::Made(made), reducer, reduction);
        }
        self.run_by(
            l,
            |_| reducer,
            move |reducer, layout, x, out| {
                let dense = layout.axis().is_some_and(|axis| {
                    let sums = |sums: &mut [R::Acc]| hesper_compute::reduce(&Cores, reduction, x, axis, sums);
                    finished(reducer, out, sums).is_ok()
                });
                if !dense {
                    kernel::run(reducer, layout, x, out);
                }
            },
        )
    }

    /// Of rows that are made as they are read, with the numbers of [`run_dense`](Self::run_dense).
    fn run_made<R>(&self, l: &Lowering<'_>, rows: Feed, reducer: R, reduction: Reduction) -> Result<Data>
    where
        R: Reducer<
                In: hesper_compute::Reduce<Acc = <R as Reducer>::Acc> + crate::Element,
                Acc: bytemuck::Pod,
            > + Send
            + 'static,
    {
        let length = self.over.iter().map(|at| l.input_shape(0)[*at]).product();
        let output = l.output()?;
        let command = rows.bind(l.stream().command(self.name())).write(&output);
        let reader = rows.reader();
        command.run(move |native| {
            reader.with::<R::In>(native, |x, rest| {
                let Some(out) = rest.last_mut() else { return Ok(()) };
                let out = out.as_mut_slice::<R::Out>()?;
                let sums =
                    |sums: &mut [R::Acc]| hesper_compute::reduce_rows(&Cores, reduction, x, length, sums);
                finished(&reducer, out, sums).map_err(|error| error.to_string().into())
            })
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn run_by<R: Reducer + Send + 'static>(
        &self,
        l: &Lowering<'_>,
        reducer: impl FnOnce(&Layout) -> R,
        kernel: impl FnOnce(&R, &Layout, &[R::In], &mut [R::Out]) + Send + 'static,
    ) -> Result<Data> {
        let layout = Layout::new(l.input(0), l.input_shape(0), &self.over);
        let reducer = reducer(&layout);
        let data = self.result(l, &layout, size_of::<R::Out>())?;
        let (bytes, _) = reach(l.input(0), l.input_shape(0), size_of::<R::In>());
        let command = l.stream().command(self.name()).read_range(&l.input(0).buffer, bytes);
        command.write(&data.buffer).run(move |native| {
            let [from, to] = native.take()?;
            kernel(&reducer, &layout, from.as_slice::<R::In>()?, to.as_mut_slice::<R::Out>()?);
            Ok(())
        })?;
        Ok(data)
    }

    /// Memory for the results, which are of `size` bytes each and lie as their input does.
    fn result(&self, l: &Lowering<'_>, layout: &Layout, size: usize) -> Result<Data> {
        let buffer = l.stream().alloc(layout.outputs() * size)?;
        // With the reduced axes gone the others are found in the same order; kept ones have length one.
        let strides = if l.shape().len() == l.input_shape(0).len() {
            layout.strides.clone()
        } else {
            (0..layout.strides.len())
                .filter(|at| !self.over.contains(at))
                .map(|at| layout.strides[at])
                .collect()
        };
        Ok(Data { buffer, offset: layout.offset, strides })
    }

    /// Sums and products. Signed integers wrap as unsigned ones do.
    fn arithmetic<T>(&self, l: &mut Lowering<'_>, scale: f64) -> Result<Data>
    where
        T: Number + crate::Element + hesper_compute::Reduce<Acc = <T as Number>::Total>,
    {
        match self.kind {
            Kind::Product => self.run_dense(l, Product(PhantomData::<T>), Reduction::Prod),
            _ => self.run_dense(l, Sum(scale, PhantomData::<T>), Reduction::Sum),
        }
    }

    /// The largest and the smallest of small integers.
    fn small_extremes<T: Number<Wide = T> + hesper_compute::Small>(&self, l: &Lowering<'_>) -> Result<Data> {
        let dense = |max: bool| {
            move |x: &[T], axis, out: &mut [T]| hesper_compute::extreme_integers(&Cores, max, x, axis, out)
        };
        match self.kind {
            Kind::Max => self.run_or(l, Extreme::<T, true>(PhantomData), dense(true)),
            _ => self.run_or(l, Extreme::<T, false>(PhantomData), dense(false)),
        }
    }

    /// By `dense` where the input lies without gaps.
    fn run_or<R: Reducer + Send + 'static>(
        &self,
        l: &Lowering<'_>,
        reducer: R,
        dense: impl FnOnce(&[R::In], Axis, &mut [R::Out]) -> Result<(), Mismatch> + Send + 'static,
    ) -> Result<Data> {
        self.run_by(
            l,
            |_| reducer,
            move |reducer, layout, x, out| {
                if layout.axis().is_none_or(|axis| dense(x, axis, out).is_err()) {
                    kernel::run(reducer, layout, x, out);
                }
            },
        )
    }

    /// The same, of types that are compared as they are, or as float32.
    fn dense_extremes<T>(&self, l: &mut Lowering<'_>) -> Result<Data>
    where
        T: Number + crate::Element + hesper_compute::Reduce<Acc = <T as Number>::Wide>,
    {
        match self.kind {
            Kind::Max => self.run_dense(l, Extreme::<T, true>(PhantomData), Reduction::Max),
            _ => self.run_dense(l, Extreme::<T, false>(PhantomData), Reduction::Min),
        }
    }

    /// Places of the largest and the smallest elements.
    fn places<T: Number + hesper_compute::Ordered>(&self, l: &Lowering<'_>) -> Result<Data> {
        match self.kind {
            Kind::ArgMax => self.run_by(l, Place::<T, true>::new, |place, layout, x, out| {
                let dense = layout.axis().filter(|_| place.turned.is_none());
                let done = |axis| hesper_compute::arg_extreme(&Cores, true, x, axis, out).is_ok();
                if !dense.is_some_and(done) {
                    kernel::run(place, layout, x, out);
                }
            }),
            _ => self.run_by(l, Place::<T, false>::new, |place, layout, x, out| {
                let dense = layout.axis().filter(|_| place.turned.is_none());
                let done = |axis| hesper_compute::arg_extreme(&Cores, false, x, axis, out).is_ok();
                if !dense.is_some_and(done) {
                    kernel::run(place, layout, x, out);
                }
            }),
        }
    }

    /// Which elements are set.
    fn flags<T: Bits + hesper_compute::Word>(&self, l: &Lowering<'_>, mask: u64) -> Result<Data> {
        let of = PhantomData::<T>;
        let truths = |all: bool| {
            move |x: &[T], axis, out: &mut [u8]| hesper_compute::truths(&Cores, all, mask, x, axis, out)
        };
        match self.kind {
            Kind::All => self.run_or(l, Truth::<T, true> { mask, of }, truths(true)),
            Kind::Any => self.run_or(l, Truth::<T, false> { mask, of }, truths(false)),
            _ => self.run_or(l, CountSet { mask, of }, move |x: &[T], axis, out: &mut [i32]| {
                hesper_compute::count_set(&Cores, mask, x, axis, out)
            }),
        }
    }
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn export(&self) -> Export {
        let record = Record::new("reduce").with("kind", self.kind.name()).with("axes", &self.over[..]);
        match self.kind {
            Kind::Sum(scale) => record.with("scale", scale).into(),
            Kind::Variance { count, ddof, .. } => record.with("count", count).with("ddof", ddof).into(),
            _ => record.into(),
        }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let dtype = l.input_dtype(0);
        let all = !dtype.is(Category::Inexact);
        match (self.kind, dtype) {
            (Kind::Max | Kind::Min, _) => match dtype {
                Dtype::Float32 => self.dense_extremes::<f32>(l),
                Dtype::Float64 => self.dense_extremes::<f64>(l),
                Dtype::Float16 => self.dense_extremes::<f16>(l),
                Dtype::Bfloat16 => self.dense_extremes::<bf16>(l),
                Dtype::Int32 => self.dense_extremes::<i32>(l),
                Dtype::Uint32 => self.dense_extremes::<u32>(l),
                Dtype::Int64 => self.dense_extremes::<i64>(l),
                Dtype::Uint64 => self.dense_extremes::<u64>(l),
                Dtype::Bool | Dtype::Uint8 => self.small_extremes::<u8>(l),
                Dtype::Int8 => self.small_extremes::<i8>(l),
                Dtype::Uint16 => self.small_extremes::<u16>(l),
                Dtype::Int16 => self.small_extremes::<i16>(l),
                Dtype::Complex64 => match self.kind {
                    Kind::Max => self.run(l, |_| Extreme::<[f32; 2], true>(PhantomData)),
                    _ => self.run(l, |_| Extreme::<[f32; 2], false>(PhantomData)),
                },
            },
            (Kind::ArgMax | Kind::ArgMin, _) => match dtype {
                Dtype::Float32 => self.places::<f32>(l),
                Dtype::Float64 => self.places::<f64>(l),
                Dtype::Float16 => self.places::<f16>(l),
                Dtype::Bfloat16 => self.places::<bf16>(l),
                Dtype::Int8 => self.places::<i8>(l),
                Dtype::Int16 => self.places::<i16>(l),
                Dtype::Int32 => self.places::<i32>(l),
                Dtype::Int64 => self.places::<i64>(l),
                Dtype::Bool | Dtype::Uint8 => self.places::<u8>(l),
                Dtype::Uint16 => self.places::<u16>(l),
                Dtype::Uint32 => self.places::<u32>(l),
                Dtype::Uint64 => self.places::<u64>(l),
                Dtype::Complex64 => match self.kind {
                    Kind::ArgMax => self.run(l, Place::<[f32; 2], true>::new),
                    _ => self.run(l, Place::<[f32; 2], false>::new),
                },
            },
            (Kind::All | Kind::Any | Kind::Count, _) => match dtype.size() {
                1 => self.flags::<u8>(l, u64::MAX),
                2 => self.flags::<u16>(l, if all { u64::MAX } else { 0x7fff }),
                4 => self.flags::<u32>(l, if all { u64::MAX } else { 0x7fff_ffff }),
                _ if dtype == Dtype::Complex64 => self.flags::<u64>(l, 0x7fff_ffff_7fff_ffff),
                _ => self.flags::<u64>(l, if all { u64::MAX } else { u64::MAX >> 1 }),
            },
            (Kind::Variance { count, ddof, root }, Dtype::Float16) => {
                self.run(l, |_| Moments { count, ddof, root, of: PhantomData::<f16> })
            }
            (Kind::Variance { count, ddof, root }, Dtype::Bfloat16) => {
                self.run(l, |_| Moments { count, ddof, root, of: PhantomData::<bf16> })
            }
            (Kind::Variance { count, ddof, root }, Dtype::Float32) => {
                self.run(l, |_| Moments { count, ddof, root, of: PhantomData::<f32> })
            }
            (Kind::Variance { .. }, _) => {
                let what = "single and half precision only, not an array".into();
                Err(Error::Type { op: self.name().into(), what, dtype })
            }
            (Kind::Sum(_) | Kind::Product, _) => {
                let scale = if let Kind::Sum(scale) = self.kind { scale } else { 1.0 };
                match dtype {
                    Dtype::Bool | Dtype::Uint8 => self.arithmetic::<u8>(l, scale),
                    Dtype::Uint16 => self.arithmetic::<u16>(l, scale),
                    Dtype::Uint32 | Dtype::Int32 => self.arithmetic::<u32>(l, scale),
                    Dtype::Uint64 | Dtype::Int64 => self.arithmetic::<u64>(l, scale),
                    Dtype::Int8 => self.arithmetic::<i8>(l, scale),
                    Dtype::Int16 => self.arithmetic::<i16>(l, scale),
                    Dtype::Float16 => self.arithmetic::<f16>(l, scale),
                    Dtype::Bfloat16 => self.arithmetic::<bf16>(l, scale),
                    Dtype::Float32 => self.arithmetic::<f32>(l, scale),
                    Dtype::Float64 => self.arithmetic::<f64>(l, scale),
                    Dtype::Complex64 => match self.kind {
                        Kind::Product => self.run_or(l, Product(PhantomData::<[f32; 2]>), |x, axis, out| {
                            hesper_compute::reduce(&Cores, Reduction::Prod, x, axis, out)
                        }),
                        _ => self.run_or(l, Sum(scale, PhantomData::<[f32; 2]>), move |x, axis, out| {
                            hesper_compute::reduce(&Cores, Reduction::Sum, x, axis, out)?;
                            if scale != 1.0 {
                                out.iter_mut().for_each(|sum| *sum = sum.map(|part| part * scale as f32));
                            }
                            Ok(())
                        }),
                    },
                }
            }
        }
    }

    /// Where whole rows are combined by the kernels of contiguous axes.
    fn takes_rows(&self, shape: &[usize], dtype: Dtype) -> bool {
        let combined = match self.kind {
            Kind::Sum(_) | Kind::Product => true,
            Kind::Max | Kind::Min => dtype.size() >= 4 || dtype.is(Category::Inexact),
            _ => false,
        };
        let trailing = self.over.iter().rev().zip((0..shape.len()).rev()).all(|(axis, at)| *axis == at);
        let length: usize = self.over.iter().filter_map(|at| shape.get(*at)).product();
        combined && dtype != Dtype::Complex64 && trailing && length >= MADE_FROM
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        gpu::lower(self, l)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let x = &rule.inputs[0];
        let kept = signed(&without(x.shape(), &self.over, true));
        let over: SmallVec<[isize; 6]> = self.over.iter().map(|at| *at as isize).collect();
        let cotangent = rule.cotangent()?.reshape(&kept)?;
        let whole = |y: Array| y.broadcast_to(x.shape());
        let result = match self.kind {
            Kind::Sum(scale) => {
                let part = if scale == 1.0 {
                    cotangent
                } else {
                    let elements: usize = self.over.iter().map(|at| x.shape()[*at]).product();
                    match divisor(scale, elements as f64) {
                        Some(less) => self.count(less, Some(1.0)).scale(&cotangent, x, false)?,
                        None => cotangent.multiply(scale)?,
                    }
                };
                whole(part)?
            }
            Kind::Product => cotangent.multiply(others_product(x, &self.over)?)?,
            Kind::Max | Kind::Min => {
                let mask = x.equal(rule.output.reshape(&kept)?)?.astype(x.dtype())?;
                let shared = cotangent.divide(mask.sum(Some(&over), true)?)?;
                mask.multiply(shared)?
            }
            Kind::Variance { ddof, root, .. } => {
                let distance = x.subtract(x.mean(Some(&over), true)?)?;
                let factor = if root {
                    let part = cotangent.divide(rule.output.reshape(&kept)?)?;
                    self.count(ddof, None).scale(&part, x, true)?
                } else {
                    self.count(ddof, Some(2.0)).scale(&cotangent, x, false)?
                };
                distance.multiply(factor)?
            }
            Kind::All | Kind::Any | Kind::Count | Kind::ArgMax | Kind::ArgMin => {
                return rule.each(|_| Ok(None));
            }
        };
        rule.only(Ok(result))
    }

    fn is_linear(&self) -> bool {
        matches!(self.kind, Kind::Sum(_))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let over = self.over.iter().map(|at| at + 1).collect();
        rule.apply(OpRef::new(Reduce { kind: self.kind, over }), smallvec![rule.front(0)?])
    }
}

impl Reduce {
    /// The number of elements that it is over, less a number, or a number divided by that.
    fn count(&self, less: f64, divided: Option<f64>) -> Count {
        Count { over: self.over.clone(), less, divided }
    }
}

/// How much less than their number the sum of so many elements is divided by, if it is by a whole number.
fn divisor(scale: f64, elements: f64) -> Option<f64> {
    let less = elements - (1.0 / scale).round();
    ((0.0..elements).contains(&less) && 1.0 / (elements - less) == scale).then_some(less)
}

/// For each element the product of all others over axes, zeros among them or not.
fn others_product(x: &Array, over: &[usize]) -> Result<Array> {
    let rows = x.rows_over(over)?;
    let product = rows.cumprod(Some(-1), false, false)?.multiply(rows.cumprod(Some(-1), true, false)?)?;
    let order: SmallVec<[usize; 6]> =
        (0..x.ndim()).filter(|at| !over.contains(at)).chain(over.iter().copied()).collect();
    let shape: SmallVec<[isize; 6]> = order.iter().map(|at| x.shape()[*at] as isize).collect();
    let mut back: SmallVec<[isize; 6]> = smallvec![0; x.ndim()];
    order.iter().enumerate().for_each(|(to, from)| back[*from] = to as isize);
    product.reshape(&shape)?.transpose(&back)
}

/// All axes, if none are named; else those named, in order, each at most once.
pub(super) fn axes_or_all(op: &str, over: Option<&[isize]>, rank: usize) -> Result<SmallVec<[usize; 6]>> {
    match over {
        Some(list) => axes(op, list, rank),
        None => Ok((0..rank).collect()),
    }
}

/// The shape without some axes, or with length one in their places.
pub(super) fn without(shape: &[usize], over: &[usize], keepdims: bool) -> Shape {
    let length = |at: usize| if over.contains(&at) { keepdims.then_some(1) } else { Some(shape[at]) };
    (0..shape.len()).filter_map(length).collect()
}

impl Array {
    fn reduce(&self, kind: Kind, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        let over = axes_or_all(kind.name(), over, self.ndim())?;
        self.reduce_axes(kind, over, keepdims)
    }

    fn reduce_axes(&self, kind: Kind, over: SmallVec<[usize; 6]>, keepdims: bool) -> Result<Array> {
        let shape = without(self.shape(), &over, keepdims);
        let op = Reduce { kind, over };
        Array::lazy(shape, kind.result(self.dtype()), OpRef::new(op), smallvec![self.clone()])
    }

    /// The sum over axes, or over all. Small integers and bools are summed as int32 or uint32.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.sum(Some(&[0]), false)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(x.sum(None, true)?.shape(), [1, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn sum(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        if self.dtype() == Dtype::Bool && over != Some(&[]) && self.ndim() > 0 {
            return self.reduce(Kind::Count, over, keepdims);
        }
        self.reduce_or_same(Kind::Sum(1.0), over, keepdims)
    }

    /// The product over axes, or over all. Small integers and bools are multiplied as int32 or uint32.
    pub fn prod(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        self.reduce_or_same(Kind::Product, over, keepdims)
    }

    /// A reduction over no axes gives the array itself, of its own type.
    fn reduce_or_same(&self, kind: Kind, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        if axes_or_all(kind.name(), over, self.ndim())?.is_empty() {
            return Ok(self.clone());
        }
        self.reduce(kind, over, keepdims)
    }

    /// The largest element over axes, or over all; NaN if there is one.
    pub fn max(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        self.nonempty("max", over)?.reduce_or_same(Kind::Max, over, keepdims)
    }

    /// The smallest element over axes, or over all; NaN if there is one.
    pub fn min(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        self.nonempty("min", over)?.reduce_or_same(Kind::Min, over, keepdims)
    }

    /// The smallest and the largest element over axes, or over all.
    pub fn minmax(&self, over: Option<&[isize]>, keepdims: bool) -> Result<(Array, Array)> {
        Ok((self.min(over, keepdims)?, self.max(over, keepdims)?))
    }

    /// Whether all elements over axes, or all, are true or not zero.
    pub fn all(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        self.reduce(Kind::All, over, keepdims)
    }

    /// Whether any element over axes, or any at all, is true or not zero.
    pub fn any(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        self.reduce(Kind::Any, over, keepdims)
    }

    /// How many elements over axes, or of all, are not zero.
    pub fn count_nonzero(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        self.reduce(Kind::Count, over, keepdims)
    }

    /// An error if there is nothing to choose from.
    fn nonempty(&self, op: &'static str, over: Option<&[isize]>) -> Result<&Array> {
        let over = axes_or_all(op, over, self.ndim())?;
        match over.iter().find(|at| self.shape()[**at] == 0) {
            Some(at) => {
                let what = format!("axis {at} of an array of shape {:?} has no elements", self.shape());
                Err(Error::value(op, what))
            }
            None => Ok(self),
        }
    }
}

/// The sum of a row of numbers of one type, in lanes and blocks.
pub(super) fn sum_of<T: Number<Total = T>>(row: &[T]) -> T {
    Sum(1.0, PhantomData::<T>).fold(row, 0)
}

/// The largest number of a row; NaN if there is one.
pub(super) fn max_of<T: Number<Wide = T>>(row: &[T]) -> T {
    Extreme::<T, true>(PhantomData).fold(row, 0)
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let over = axes(replay.op, &replay.axes("axes")?, x.ndim())?;
    let empty = over.iter().any(|at| x.shape()[*at] == 0);
    let long = over.iter().any(|at| x.shape()[*at] > u32::MAX as usize);
    let floats = matches!(x.dtype(), Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32);
    let count =
        |shape: &[usize]| over.iter().map(|at| shape.get(*at).copied().unwrap_or(1) as f64).product::<f64>();
    let before = replay.traced.first().map_or(1.0, |traced| count(traced));
    let now = count(x.shape());
    let kind = match replay.text("kind")? {
        "sum" => Kind::Sum(scale_of(replay, before, now)?),
        "prod" => Kind::Product,
        "max" if !empty => Kind::Max,
        "min" if !empty => Kind::Min,
        "all" => Kind::All,
        "any" => Kind::Any,
        "count_nonzero" => Kind::Count,
        name @ ("var" | "std") if floats => {
            let count =
                if replay.free && before == replay.float("count")? { now } else { replay.float("count")? };
            Kind::Variance { count, ddof: replay.float("ddof")?, root: name == "std" }
        }
        "argmax" if over.len() == 1 && !long && x.size() > 0 => Kind::ArgMax,
        "argmin" if over.len() == 1 && !long && x.size() > 0 => Kind::ArgMin,
        other => return Err(replay.wrong(format!("a kind {other:?} that its input does not have"))),
    };
    if matches!(kind, Kind::Sum(scale) if scale != 1.0) && !x.dtype().is(Category::Inexact) {
        return Err(replay.wrong("a scaled sum of integers"));
    }
    // Axes of length one in the place of those that are gone.
    let kept = replay.shape().len() == x.ndim();
    x.reduce_axes(kind, over, kept)
}

/// What a sum of `now` elements is multiplied by, if one of `before` elements was multiplied by one over their
/// number, or over a few less.
fn scale_of(replay: &Replay<'_>, before: f64, now: f64) -> Result<f64> {
    let scale = replay.float("scale")?;
    if !replay.free || before == now {
        return Ok(scale);
    }
    let less = before - (1.0 / scale).round();
    match scale == 1.0 {
        // A mean of one element cannot be told from a sum.
        true if before == 1.0 && replay.dtype().is(Category::Inexact) => Err(replay.not_free()),
        true => Ok(1.0),
        false if (0.0..before).contains(&less) && 1.0 / (before - less) == scale => {
            Ok(1.0 / (now - less).max(0.0))
        }
        false => Err(replay.not_free()),
    }
}
