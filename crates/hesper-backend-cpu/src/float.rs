//! Rows of floats: conversion to the type of computation and back, and functions of whole rows.
//!
//! Half precision is computed in single precision. Loops are written so that the compiler vectorizes them.

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hesper_kernel::ir::UnaryOp;

/// A type that rows are computed in.
pub trait Wide: Pod + Send + Sync + PartialOrd {
    /// From a double.
    fn of(value: f64) -> Self;
    /// Difference.
    fn minus(self, other: Self) -> Self;
    /// Product.
    fn times(self, other: Self) -> Self;
    /// Natural logarithm.
    fn log(self) -> Self;
    /// Replaces `x` by `exp(x - top)`. `top` is the largest element, or NaN.
    fn exponentials(row: &mut [Self], top: Self);
    /// The reciprocal of the square root.
    fn rsqrt(self) -> Self;
    /// As a float32.
    fn single(self) -> f32;
    /// Whether it is neither infinite nor NaN.
    fn finite(self) -> bool;
    /// The sum of a row.
    fn sum(row: &[Self]) -> Self;
    /// The largest of a row, NaN if there is one.
    fn max(row: &[Self]) -> Self;
}

macro_rules! impl_wide {
    ($($t:ident, $exponentials:expr;)*) => { $(
        impl Wide for $t {
            #[inline(always)]
            fn of(value: f64) -> Self { value as $t }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            fn log(self) -> Self { self.ln() }
            fn exponentials(row: &mut [Self], top: Self) {
                let f: fn(&mut [$t], $t) = $exponentials;
                f(row, top);
            }
            fn rsqrt(self) -> Self { 1.0 / self.sqrt() }
            fn single(self) -> f32 { self as f32 }
            fn finite(self) -> bool { self.is_finite() }
            fn sum(row: &[Self]) -> Self { fold(row, 0.0, |a, b| a + b) }
            fn max(row: &[Self]) -> Self {
                fold(row, $t::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b })
            }
        }
    )* };
}

impl_wide! {
    f32, |row, top| row.iter_mut().for_each(|x| *x = exp(*x - top));
    f64, |row, top| {
        row.iter_mut().for_each(|x| *x -= top);
        hesper_kernel::exec::map_doubles(UnaryOp::Exp, row);
    };
}

/// Reduces a row with sixteen lanes in blocks of 64 elements, then the lanes in halves.
#[inline(always)]
fn fold<T: Copy>(row: &[T], start: T, combine: impl Fn(T, T) -> T) -> T {
    const LANES: usize = 16;
    const BLOCK: usize = 64;
    if row.len() < LANES {
        return row.iter().fold(start, |acc, x| combine(acc, *x));
    }
    let mut total = [start; LANES];
    for block in row.chunks(LANES * BLOCK) {
        let mut acc = [start; LANES];
        let (chunks, rest) = block.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                acc[lane] = combine(acc[lane], chunk[lane]);
            }
        }
        acc.iter_mut().zip(rest).for_each(|(acc, x)| *acc = combine(*acc, *x));
        total.iter_mut().zip(acc).for_each(|(total, acc)| *total = combine(*total, acc));
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            total[lane] = combine(total[lane], total[lane + half]);
        }
    }
    total[0]
}

/// `e^x` for `x <= 0`, to about two units in the last place. Below -87, where it is less than 1.7e-38, it is
/// zero. There is no branch, call or conversion that prevents vectorization.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding and subtracting 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Keeps NaN, unlike `f32::max`.
    let clamped = if x < -87.0 { -87.0 } else { x };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts, the first short enough for an exact product.
    let r = (clamped - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let p = 1.987_569_2e-4 * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let value = p * r * r + r + 1.0;
    let scale = f32::from_bits((shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127)) << 23);
    if x < -87.0 { 0.0 } else { value * scale }
}

/// An element of a row.
pub trait Float: hesper_core::Element {
    /// The type of computation.
    type Wide: Wide;
    /// Converts a row.
    fn load(from: &[Self], to: &mut [Self::Wide]);
    /// Converts a row back.
    fn store(from: &[Self::Wide], to: &mut [Self]);
}

macro_rules! same {
    ($($t:ty)*) => { $(
        impl Float for $t {
            type Wide = $t;
            fn load(from: &[Self], to: &mut [Self]) { to.copy_from_slice(from) }
            fn store(from: &[Self], to: &mut [Self]) { to.copy_from_slice(from) }
        }
    )* };
}

macro_rules! halves {
    ($($t:ty)*) => { $(
        impl Float for $t {
            type Wide = f32;
            fn load(from: &[Self], to: &mut [f32]) { from.convert_to_f32_slice(to) }
            fn store(from: &[f32], to: &mut [Self]) { to.convert_from_f32_slice(from) }
        }
    )* };
}

same!(f32 f64);
halves!(f16 bf16);

/// Replaces `x` by `exp(x - top)` in a row. Returns the sum.
pub fn exp_and_sum<W: Wide>(row: &mut [W], top: W) -> W {
    const BLOCK: usize = 512;
    let mut partial = [W::of(0.0); 128];
    let mut sums = Vec::new();
    let mut filled = 0;
    for block in row.chunks_mut(BLOCK) {
        W::exponentials(block, top);
        if filled == partial.len() {
            sums.push(W::sum(&partial));
            filled = 0;
        }
        partial[filled] = W::sum(block);
        filled += 1;
    }
    sums.push(W::sum(&partial[..filled]));
    W::sum(&sums)
}

/// The logarithm of the sum of exponentials of a row. Overwrites the row.
pub fn logsumexp<W: Wide>(row: &mut [W]) -> W {
    let top = W::max(row);
    if !top.finite() {
        return top;
    }
    exp_and_sum(row, top).log().minus(W::of(0.0).minus(top))
}
