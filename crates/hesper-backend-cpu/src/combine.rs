//! The arithmetic of scatters and slice updates.

use crate::copy::Carrier;
use crate::walk::copy_row;
use bytemuck::{cast_slice, cast_slice_mut};
use half::{bf16, f16};
use hesper_core::ops::update_mode::UpdateMode;

/// A type that updates are combined in.
pub(crate) trait Combine: bytemuck::Pod + Send + Sync {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    /// `to[i] += from[i]`.
    fn add_row(to: &mut [Self], from: &[Self]) {
        to.iter_mut().zip(from).for_each(|(old, new)| *old = old.add(*new));
    }
}

macro_rules! integers {
    ($($t:ty),*) => {
        $(impl Combine for $t {
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn multiply(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn max(self, other: Self) -> Self { Ord::max(self, other) }
            fn min(self, other: Self) -> Self { Ord::min(self, other) }
        })*
    };
}

macro_rules! floats {
    ($($t:ty $(, $add_row:path)?;)*) => {
        $(impl Combine for $t {
            fn add(self, other: Self) -> Self { self + other }
            $(fn add_row(to: &mut [Self], from: &[Self]) { $add_row(to, from) })?
            fn multiply(self, other: Self) -> Self { self * other }
            fn max(self, other: Self) -> Self { if self.is_nan() || self > other { self } else { other } }
            fn min(self, other: Self) -> Self { if self.is_nan() || self < other { self } else { other } }
        })*
    };
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);
floats!(f16, add_vectors; bf16, add_vectors; f32, add_vectors; f64;);

/// Adds a row in the widest vectors: one by one, a sum of two halves takes a dozen instructions.
fn add_vectors<T: hesper_compute::Float>(to: &mut [T], from: &[T]) {
    let length = to.len().min(from.len());
    // The lengths are equal, so nothing is refused.
    let _ = hesper_compute::add_to(hesper_compute::Simd::detect(), &mut to[..length], &from[..length]);
}

macro_rules! complex {
    ($($part:ty),*) => {
        $(impl Combine for [$part; 2] {
            fn add(self, other: Self) -> Self { [self[0] + other[0], self[1] + other[1]] }
            fn multiply(self, other: Self) -> Self {
                [self[0] * other[0] - self[1] * other[1], self[0] * other[1] + self[1] * other[0]]
            }
            fn max(self, other: Self) -> Self {
                if self.iter().any(|x| x.is_nan()) || self > other { self } else { other }
            }
            fn min(self, other: Self) -> Self {
                if self.iter().any(|x| x.is_nan()) || self < other { self } else { other }
            }
        })*
    };
}

complex!(f32, f64);

/// [`combine_points`] on carriers.
type CombinePoints<C> = fn(UpdateMode, &mut [C], &[isize], &[C], isize, isize);

/// The arithmetic of an element type on the carriers of its bits, so that whatever walks over memory is
/// compiled for each size of elements and not for each type.
pub(crate) struct Combiner<C> {
    /// [`combine_row`].
    pub row: fn(UpdateMode, &mut [C], usize, &[C], isize, isize),
    /// [`combine_points`].
    pub points: CombinePoints<C>,
}

impl<C> Clone for Combiner<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Combiner<C> {}

impl<C: Carrier> Combiner<C> {
    /// The arithmetic of a type that has the size of the carrier.
    pub(crate) fn of<T: Combine>() -> Self {
        Combiner {
            row: |mode, to, step, from, start, stride| {
                combine_row::<T>(mode, cast_slice_mut(to), step, cast_slice(from), start, stride);
            },
            points: |mode, to, offsets, from, start, stride| {
                combine_points::<T>(mode, cast_slice_mut(to), offsets, cast_slice(from), start, stride);
            },
        }
    }
}

/// Calls a function that is generic over carriers, with the arithmetic of a dtype as its last argument; bools
/// are bytes.
macro_rules! with_combiner {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            hesper_core::Dtype::Bool | hesper_core::Dtype::Uint8 => {
                $function::<u8>($($argument,)* Combiner::of::<u8>())
            }
            hesper_core::Dtype::Int8 => $function::<u8>($($argument,)* Combiner::of::<i8>()),
            hesper_core::Dtype::Uint16 => $function::<u16>($($argument,)* Combiner::of::<u16>()),
            hesper_core::Dtype::Int16 => $function::<u16>($($argument,)* Combiner::of::<i16>()),
            hesper_core::Dtype::Float16 => $function::<u16>($($argument,)* Combiner::of::<half::f16>()),
            hesper_core::Dtype::Bfloat16 => $function::<u16>($($argument,)* Combiner::of::<half::bf16>()),
            hesper_core::Dtype::Uint32 => $function::<u32>($($argument,)* Combiner::of::<u32>()),
            hesper_core::Dtype::Int32 => $function::<u32>($($argument,)* Combiner::of::<i32>()),
            hesper_core::Dtype::Float32 => $function::<u32>($($argument,)* Combiner::of::<f32>()),
            hesper_core::Dtype::Uint64 => $function::<u64>($($argument,)* Combiner::of::<u64>()),
            hesper_core::Dtype::Int64 => $function::<u64>($($argument,)* Combiner::of::<i64>()),
            hesper_core::Dtype::Float64 => $function::<u64>($($argument,)* Combiner::of::<f64>()),
            hesper_core::Dtype::Complex64 => $function::<u64>($($argument,)* Combiner::of::<[f32; 2]>()),
            hesper_core::Dtype::Complex128 => $function::<[u64; 2]>($($argument,)* Combiner::of::<[f64; 2]>()),
        }
    };
}
pub(crate) use with_combiner;

/// Combines a row of `to`, by `step`, with a row of `from` that starts at `start` and goes by `stride`.
#[inline]
fn combine_row<T: Combine>(
    mode: UpdateMode,
    to: &mut [T],
    step: usize,
    from: &[T],
    start: isize,
    stride: isize,
) {
    match mode {
        UpdateMode::Set if step == 1 => copy_row(to, from, start, stride),
        UpdateMode::Set => each(to, step, from, start, stride, |_, new| new),
        UpdateMode::Add if step == 1 && stride == 1 => {
            let from = &from[start as usize..start as usize + to.len()];
            T::add_row(to, from);
        }
        UpdateMode::Add => each(to, step, from, start, stride, T::add),
        UpdateMode::Multiply => each(to, step, from, start, stride, T::multiply),
        UpdateMode::Max => each(to, step, from, start, stride, T::max),
        UpdateMode::Min => each(to, step, from, start, stride, T::min),
    }
}

/// Combines elements of `to`, at offsets from a place, with a row of `from` that starts at `start` and goes
/// by `stride`, one after the other.
#[inline]
fn combine_points<T: Combine>(
    mode: UpdateMode,
    to: &mut [T],
    offsets: &[isize],
    from: &[T],
    start: isize,
    stride: isize,
) {
    match mode {
        UpdateMode::Set => points(to, offsets, from, start, stride, |_, new| new),
        UpdateMode::Add => points(to, offsets, from, start, stride, T::add),
        UpdateMode::Multiply => points(to, offsets, from, start, stride, T::multiply),
        UpdateMode::Max => points(to, offsets, from, start, stride, T::max),
        UpdateMode::Min => points(to, offsets, from, start, stride, T::min),
    }
}

#[inline(always)]
fn points<T: Combine>(
    to: &mut [T],
    offsets: &[isize],
    from: &[T],
    start: isize,
    stride: isize,
    f: impl Fn(T, T) -> T,
) {
    let mut at = start;
    for offset in offsets {
        let old = &mut to[*offset as usize];
        *old = f(*old, from[at as usize]);
        at += stride;
    }
}

#[inline(always)]
fn each<T: Combine>(
    to: &mut [T],
    step: usize,
    from: &[T],
    start: isize,
    stride: isize,
    f: impl Fn(T, T) -> T,
) {
    if step == 1 && stride == 1 {
        let from = &from[start as usize..start as usize + to.len()];
        to.iter_mut().zip(from).for_each(|(old, new)| *old = f(*old, *new));
    } else {
        let mut at = start;
        for old in to.iter_mut().step_by(step) {
            *old = f(*old, from[at as usize]);
            at += stride;
        }
    }
}
