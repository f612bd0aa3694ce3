//! Reductions. The axes that are reduced become the last ones; each result is summed in blocks of fixed
//! size, so that it depends neither on the number of threads nor on what else is computed.

use half::{bf16, f16};
use hesper_cpu::Compute;
use smallvec::{SmallVec, smallvec};

use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::shape::{Shape, axes};
use crate::{Dtype, Element};

/// What the elements are combined by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reducer {
    Sum,
    Max,
    Min,
}

#[derive(Debug)]
struct ReduceLast(Reducer);

/// Elements that are combined one after the other; blocks are then combined pairwise.
const BLOCK: usize = 256;

/// A type that can be reduced, in a type wide enough for the sum.
trait Reducible: Element {
    type Wide: Copy + Send + Sync;
    const ZERO: Self::Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn max(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn min(a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

macro_rules! reducible {
    ($($t:ty as $wide:ty, $zero:expr, $widen:expr, $narrow:expr, $add:expr, $nan:expr;)*) => {
        $(impl Reducible for $t {
            type Wide = $wide;
            const ZERO: $wide = $zero;
            fn widen(self) -> $wide { let f: fn($t) -> $wide = $widen; f(self) }
            fn narrow(wide: $wide) -> $t { let f: fn($wide) -> $t = $narrow; f(wide) }
            fn add(a: $wide, b: $wide) -> $wide { let f: fn($wide, $wide) -> $wide = $add; f(a, b) }
            fn max(a: $wide, b: $wide) -> $wide {
                let nan: fn($wide) -> bool = $nan;
                if nan(a) || a > b { a } else { b }
            }
            fn min(a: $wide, b: $wide) -> $wide {
                let nan: fn($wide) -> bool = $nan;
                if nan(a) || a < b { a } else { b }
            }
        })*
    };
}

reducible! {
    f32 as f32, 0.0, |x| x, |x| x, |a, b| a + b, |x| x.is_nan();
    f64 as f64, 0.0, |x| x, |x| x, |a, b| a + b, |x| x.is_nan();
    f16 as f32, 0.0, |x| x.to_f32(), f16::from_f32, |a, b| a + b, |x| x.is_nan();
    bf16 as f32, 0.0, |x| x.to_f32(), bf16::from_f32, |a, b| a + b, |x| x.is_nan();
    i8 as i8, 0, |x| x, |x| x, i8::wrapping_add, |_| false;
    i16 as i16, 0, |x| x, |x| x, i16::wrapping_add, |_| false;
    i32 as i32, 0, |x| x, |x| x, i32::wrapping_add, |_| false;
    i64 as i64, 0, |x| x, |x| x, i64::wrapping_add, |_| false;
    u8 as u8, 0, |x| x, |x| x, u8::wrapping_add, |_| false;
    u16 as u16, 0, |x| x, |x| x, u16::wrapping_add, |_| false;
    u32 as u32, 0, |x| x, |x| x, u32::wrapping_add, |_| false;
    u64 as u64, 0, |x| x, |x| x, u64::wrapping_add, |_| false;
}

/// Reduces one row: blocks of fixed size, then pairs of blocks.
fn reduce_row<T: Reducible>(row: &[T], reducer: Reducer) -> T {
    let combine = match reducer {
        Reducer::Sum => T::add,
        Reducer::Max => T::max,
        Reducer::Min => T::min,
    };
    let block = |block: &[T]| block.iter().map(|x| x.widen()).reduce(combine).unwrap_or(T::ZERO);
    let mut partial: SmallVec<[T::Wide; 32]> = row.chunks(BLOCK).map(block).collect();
    while partial.len() > 1 {
        partial =
            partial.chunks(2).map(|pair| pair.iter().copied().reduce(combine).unwrap_or(T::ZERO)).collect();
    }
    T::narrow(partial.first().copied().unwrap_or(T::ZERO))
}

impl ReduceLast {
    fn run<T: Reducible>(&self, l: &Lowering<'_>) -> Result<Data> {
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let input = l.row_major(0)?;
        let rows = shape[..shape.len() - 1].iter().product::<usize>();
        let output = l.output()?;
        let reducer = self.0;
        let start = input.offset as usize * T::DTYPE.size();
        let bytes = start..start + rows * length * T::DTYPE.size();
        l.stream().encode(self.name()).read_range(&input.buffer, bytes).write(&output).run(
            move |native| {
                let [from, to] = native.take()?;
                let from = from.as_slice::<T>()?;
                let to = to.as_mut_slice::<T>()?;
                let row = |at: usize| reduce_row(&from[at * length..(at + 1) * length], reducer);
                // A task has some tens of thousands of elements; rows go to their places.
                let grain = (65536 / length.max(1)).max(1);
                let slots: Vec<std::sync::Mutex<&mut [T]>> =
                    to.chunks_mut(grain).map(std::sync::Mutex::new).collect();
                Compute::global().run(slots.len(), &|task| {
                    let mut slot = slots[task].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    for (at, out) in slot.iter_mut().enumerate() {
                        *out = row(task * grain + at);
                    }
                });
                Ok(())
            },
        )?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

impl Op for ReduceLast {
    fn name(&self) -> &'static str {
        match self.0 {
            Reducer::Sum => "sum",
            Reducer::Max => "max",
            Reducer::Min => "min",
        }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.dtype() {
            Dtype::Float32 => self.run::<f32>(l),
            Dtype::Float64 => self.run::<f64>(l),
            Dtype::Float16 => self.run::<f16>(l),
            Dtype::Bfloat16 => self.run::<bf16>(l),
            Dtype::Int8 => self.run::<i8>(l),
            Dtype::Int16 => self.run::<i16>(l),
            Dtype::Int32 => self.run::<i32>(l),
            Dtype::Int64 => self.run::<i64>(l),
            Dtype::Uint8 => self.run::<u8>(l),
            Dtype::Uint16 => self.run::<u16>(l),
            Dtype::Uint32 => self.run::<u32>(l),
            Dtype::Uint64 => self.run::<u64>(l),
            dtype => Err(Error::Type {
                op: self.name().into(),
                what: "not defined yet for an array".into(),
                dtype,
            }),
        }
    }
}

impl Array {
    /// The sum over axes, or over all. Small integers and bools are summed as int32 or uint32.
    pub fn sum(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        let input = match self.dtype() {
            Dtype::Bool | Dtype::Int8 | Dtype::Int16 => self.astype(Dtype::Int32)?,
            Dtype::Uint8 | Dtype::Uint16 => self.astype(Dtype::Uint32)?,
            _ => self.clone(),
        };
        input.reduce(Reducer::Sum, over, keepdims)
    }

    /// The mean over axes, or over all.
    pub fn mean(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        let sum = self.astype(self.dtype().to_inexact())?.reduce(Reducer::Sum, over, keepdims)?;
        let count = self.size() as f64 / sum.size().max(1) as f64;
        sum.divide(count)
    }

    /// The largest element over axes, or over all.
    pub fn max(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        self.nonempty("max")?.reduce(Reducer::Max, over, keepdims)
    }

    /// The smallest element over axes, or over all.
    pub fn min(&self, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        self.nonempty("min")?.reduce(Reducer::Min, over, keepdims)
    }

    fn nonempty(&self, op: &'static str) -> Result<&Array> {
        if self.size() == 0 {
            return Err(Error::value(op, format!("an array of shape {:?} has no elements", self.shape())));
        }
        Ok(self)
    }

    fn reduce(&self, reducer: Reducer, over: Option<&[isize]>, keepdims: bool) -> Result<Array> {
        let op = ReduceLast(reducer);
        let all: SmallVec<[isize; 6]> = (0..self.ndim() as isize).collect();
        let over = axes(op.name(), over.unwrap_or(&all), self.ndim())?;
        if self.dtype() == Dtype::Bool || self.dtype().is(Category::Complex) {
            let what = "not defined yet for an array".into();
            return Err(Error::Type { op: op.name().into(), what, dtype: self.dtype() });
        }
        let kept: SmallVec<[usize; 6]> = (0..self.ndim()).filter(|axis| !over.contains(axis)).collect();
        let order: SmallVec<[isize; 6]> = kept.iter().chain(&over).map(|axis| *axis as isize).collect();
        let mut rows: SmallVec<[isize; 6]> = kept.iter().map(|axis| self.shape()[*axis] as isize).collect();
        let result: Shape = kept.iter().map(|axis| self.shape()[*axis]).collect();
        rows.push(over.iter().map(|axis| self.shape()[*axis]).product::<usize>() as isize);
        let last = self.transpose(&order)?.reshape(&rows)?;
        let reduced = Array::lazy(result, self.dtype(), OpRef::new(op), smallvec![last])?;
        if !keepdims {
            return Ok(reduced);
        }
        let shape: SmallVec<[isize; 6]> = (0..self.ndim())
            .map(|axis| if over.contains(&axis) { 1 } else { self.shape()[axis] as isize })
            .collect();
        reduced.reshape(&shape)
    }
}
