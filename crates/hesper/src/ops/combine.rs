//! How updates are combined with what is there: the arithmetic of scatters.

use half::{bf16, f16};

use crate::Dtype;

/// What becomes of an element that an update meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The update takes its place; of several the last one.
    Set,
    /// The sum.
    Add,
    /// The product.
    Multiply,
    /// The larger one; NaN if either is.
    Max,
    /// The smaller one; NaN if either is.
    Min,
}

impl Mode {
    /// All modes by name.
    pub(crate) const NAMES: [(&'static str, Mode); 5] = [
        ("set", Mode::Set),
        ("add", Mode::Add),
        ("multiply", Mode::Multiply),
        ("max", Mode::Max),
        ("min", Mode::Min),
    ];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        Mode::NAMES.iter().find(|(_, mode)| *mode == self).map_or("set", |(name, _)| name)
    }

    /// The mode for the bytes of a type: bools add as "or" and multiply as "and".
    pub(crate) fn on(self, dtype: Dtype) -> Self {
        match self {
            Mode::Add if dtype == Dtype::Bool => Mode::Max,
            Mode::Multiply if dtype == Dtype::Bool => Mode::Min,
            mode => mode,
        }
    }
}

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

impl Combine for [f32; 2] {
    fn add(self, other: Self) -> Self {
        [self[0] + other[0], self[1] + other[1]]
    }

    fn multiply(self, other: Self) -> Self {
        [self[0] * other[0] - self[1] * other[1], self[0] * other[1] + self[1] * other[0]]
    }

    fn max(self, other: Self) -> Self {
        if self.iter().any(|x| x.is_nan()) || self > other { self } else { other }
    }

    fn min(self, other: Self) -> Self {
        if self.iter().any(|x| x.is_nan()) || self < other { self } else { other }
    }
}

/// Calls a generic function for a type, with the type's mode.
macro_rules! with_combine {
    ($dtype:expr, $function:ident :: <_>($($argument:expr),*)) => {
        match $dtype {
            $crate::Dtype::Bool | $crate::Dtype::Uint8 => $function::<u8>($($argument),*),
            $crate::Dtype::Uint16 => $function::<u16>($($argument),*),
            $crate::Dtype::Uint32 => $function::<u32>($($argument),*),
            $crate::Dtype::Uint64 => $function::<u64>($($argument),*),
            $crate::Dtype::Int8 => $function::<i8>($($argument),*),
            $crate::Dtype::Int16 => $function::<i16>($($argument),*),
            $crate::Dtype::Int32 => $function::<i32>($($argument),*),
            $crate::Dtype::Int64 => $function::<i64>($($argument),*),
            $crate::Dtype::Float16 => $function::<half::f16>($($argument),*),
            $crate::Dtype::Bfloat16 => $function::<half::bf16>($($argument),*),
            $crate::Dtype::Float32 => $function::<f32>($($argument),*),
            $crate::Dtype::Float64 => $function::<f64>($($argument),*),
            $crate::Dtype::Complex64 => $function::<[f32; 2]>($($argument),*),
        }
    };
}
pub(crate) use with_combine;

/// Combines a row of `to`, by `step`, with a row of `from` that starts at `start` and goes by `stride`.
#[inline]
pub(crate) fn combine_row<T: Combine>(
    mode: Mode,
    to: &mut [T],
    step: usize,
    from: &[T],
    start: isize,
    stride: isize,
) {
    match mode {
        Mode::Set if step == 1 => super::walk::copy_row(to, from, start, stride),
        Mode::Set => each(to, step, from, start, stride, |_, new| new),
        Mode::Add => each(to, step, from, start, stride, T::add),
        Mode::Multiply => each(to, step, from, start, stride, T::multiply),
        Mode::Max => each(to, step, from, start, stride, T::max),
        Mode::Min => each(to, step, from, start, stride, T::min),
    }
}

/// Combines elements of `to`, at offsets from a place, with a row of `from` that starts at `start` and goes
/// by `stride`, one after the other.
#[inline]
pub(crate) fn combine_points<T: Combine>(
    mode: Mode,
    to: &mut [T],
    offsets: &[isize],
    from: &[T],
    start: isize,
    stride: isize,
) {
    match mode {
        Mode::Set => points(to, offsets, from, start, stride, |_, new| new),
        Mode::Add => points(to, offsets, from, start, stride, T::add),
        Mode::Multiply => points(to, offsets, from, start, stride, T::multiply),
        Mode::Max => points(to, offsets, from, start, stride, T::max),
        Mode::Min => points(to, offsets, from, start, stride, T::min),
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
