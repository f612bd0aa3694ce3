//! Reductions over axes: sums, products, extremes, truth, moments.
//!
//! Each is one pass over memory, whatever axes it is over and however its input lies (see [`layout`] and
//! [`kernel`]). Everything else is composed of these.

mod arg;
mod kernel;
mod layout;
mod reducers;
mod stats;

use std::marker::PhantomData;

use smallvec::{SmallVec, smallvec};

use super::native::{reach, with_element};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::shape::{Shape, axes};
use kernel::Reducer;
use layout::Layout;
use reducers::{CountSet, Extreme, Moments, Place, Product, Sum, Truth};
pub(super) use reducers::{Number, Total, Wide};

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
        let layout = Layout::new(l.input(0), l.input_shape(0), &self.over);
        let reducer = reducer(&layout);
        let buffer = l.stream().alloc(layout.outputs() * size_of::<R::Out>())?;
        // With the reduced axes gone the others are found in the same order; kept ones have length one.
        let strides = if l.shape().len() == l.input_shape(0).len() {
            layout.strides.clone()
        } else {
            (0..layout.strides.len())
                .filter(|at| !self.over.contains(at))
                .map(|at| layout.strides[at])
                .collect()
        };
        let data = Data { buffer, offset: layout.offset, strides };
        let (bytes, _) = reach(l.input(0), l.input_shape(0), size_of::<R::In>());
        let command = l.stream().encode(self.name()).read_range(&l.input(0).buffer, bytes);
        command.write(&data.buffer).run(move |native| {
            let [from, to] = native.take()?;
            kernel::run(&reducer, &layout, from.as_slice::<R::In>()?, to.as_mut_slice::<R::Out>()?);
            Ok(())
        })?;
        Ok(data)
    }

    fn typed<T: Number>(&self, l: &Lowering<'_>) -> Result<Data> {
        let of = PhantomData::<T>;
        let turned = |layout: &Layout| layout.turned.then(|| layout.length());
        match self.kind {
            Kind::Sum(scale) => self.run(l, |_| Sum(scale, of)),
            Kind::Product => self.run(l, |_| Product(of)),
            Kind::Max => self.run(l, |_| Extreme::<T, true>(of)),
            Kind::Min => self.run(l, |_| Extreme::<T, false>(of)),
            Kind::All => self.run(l, |_| Truth::<T, true>(of)),
            Kind::Any => self.run(l, |_| Truth::<T, false>(of)),
            Kind::Count => self.run(l, |_| CountSet(of)),
            Kind::Variance { count, ddof, root } => self.run(l, |_| Moments { count, ddof, root, of }),
            Kind::ArgMax => self.run(l, |layout| Place::<T, true> { turned: turned(layout), of }),
            Kind::ArgMin => self.run(l, |layout| Place::<T, false> { turned: turned(layout), of }),
        }
    }
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_element!(l.input_dtype(0), T => self.typed::<T>(l))
    }
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
        if self.dtype() == Dtype::Bool && over != Some(&[]) {
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
        if over == Some(&[]) {
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
