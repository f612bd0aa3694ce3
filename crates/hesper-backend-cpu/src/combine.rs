//! The arithmetic of scatters and slice updates.

use crate::walk::copy_row;
use half::{bf16, f16};
use hesper_core::ops::update_mode::UpdateMode;

/// A type that updates are combined in.
pub(crate) trait Combine: bytemuck::Pod + Send + Sync {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
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
    ($($t:ty),*) => {
        $(impl Combine for $t {
            fn add(self, other: Self) -> Self { self + other }
            fn multiply(self, other: Self) -> Self { self * other }
            fn max(self, other: Self) -> Self { if self.is_nan() || self > other { self } else { other } }
            fn min(self, other: Self) -> Self { if self.is_nan() || self < other { self } else { other } }
        })*
    };
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);
floats!(f16, bf16, f32, f64);

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

/// Calls a generic function with the Rust type of a dtype; bools are bytes.
macro_rules! with_combine {
    ($dtype:expr, $function:ident :: <_>($($argument:expr),*)) => {
        match $dtype {
            hesper_core::Dtype::Bool | hesper_core::Dtype::Uint8 => $function::<u8>($($argument),*),
            hesper_core::Dtype::Uint16 => $function::<u16>($($argument),*),
            hesper_core::Dtype::Uint32 => $function::<u32>($($argument),*),
            hesper_core::Dtype::Uint64 => $function::<u64>($($argument),*),
            hesper_core::Dtype::Int8 => $function::<i8>($($argument),*),
            hesper_core::Dtype::Int16 => $function::<i16>($($argument),*),
            hesper_core::Dtype::Int32 => $function::<i32>($($argument),*),
            hesper_core::Dtype::Int64 => $function::<i64>($($argument),*),
            hesper_core::Dtype::Float16 => $function::<half::f16>($($argument),*),
            hesper_core::Dtype::Bfloat16 => $function::<half::bf16>($($argument),*),
            hesper_core::Dtype::Float32 => $function::<f32>($($argument),*),
            hesper_core::Dtype::Float64 => $function::<f64>($($argument),*),
            hesper_core::Dtype::Complex64 => $function::<[f32; 2]>($($argument),*),
            hesper_core::Dtype::Complex128 => $function::<[f64; 2]>($($argument),*),
        }
    };
}
pub(crate) use with_combine;

/// Combines a row of `to`, by `step`, with a row of `from` that starts at `start` and goes by `stride`.
#[inline]
pub(crate) fn combine_row<T: Combine>(
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
        UpdateMode::Add => each(to, step, from, start, stride, T::add),
        UpdateMode::Multiply => each(to, step, from, start, stride, T::multiply),
        UpdateMode::Max => each(to, step, from, start, stride, T::max),
        UpdateMode::Min => each(to, step, from, start, stride, T::min),
    }
}

/// Combines elements of `to`, at offsets from a place, with a row of `from` that starts at `start` and goes
/// by `stride`, one after the other.
#[inline]
pub(crate) fn combine_points<T: Combine>(
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
