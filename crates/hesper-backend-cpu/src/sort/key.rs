//! Elements as unsigned integers of the same order.
//!
//! Equal numbers have equal keys (zeros of both signs too), and NaN has the largest: sorting keys sorts
//! elements with NaN last.

use bytemuck::Pod;
use half::{bf16, f16};

/// An element that can be sorted.
pub trait Key: hesper_compute::Sortable + Pod {
    /// Its key's type.
    type Bits: Copy + Ord + Send + Sync;
    /// Whether different elements share a key: zeros, and NaN.
    const SHARED: bool;
    /// Whether elements must be fetched from their places: a key does not say enough.
    const BY_PLACE: bool = false;

    /// The key.
    fn bits(self) -> Self::Bits;
    /// The element of a key that no two elements share.
    fn of(key: Self::Bits) -> Self;
    /// Whether it is a zero or NaN, whose keys may be shared.
    fn shares(self) -> bool;
    /// Whether it is NaN.
    fn nan(self) -> bool;
    /// The number in the middle of two.
    fn halfway(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty, $bits:ty, $flip:expr;)*) => { $(
        impl Key for $t {
            type Bits = $bits;
            const SHARED: bool = false;
            #[inline(always)]
            fn bits(self) -> $bits { self as $bits ^ $flip }
            #[inline(always)]
            fn of(key: $bits) -> Self { (key ^ $flip) as $t }
            fn shares(self) -> bool { false }
            fn nan(self) -> bool { false }
            fn halfway(self, other: Self) -> Self { self / 2 + other / 2 }
        }
    )* };
}

integers! {
    u8, u8, 0;
    u16, u16, 0;
    u32, u32, 0;
    u64, u64, 0;
    i8, u8, 1 << 7;
    i16, u16, 1 << 15;
    i32, u32, 1 << 31;
    i64, u64, 1 << 63;
}

macro_rules! floats {
    ($($t:ty, $bits:ty, $half:expr;)*) => { $(
        impl Key for $t {
            type Bits = $bits;
            const SHARED: bool = true;
            #[inline(always)]
            fn bits(self) -> $bits {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                // A zero of either sign; then all ones for NaN.
                let bits = if bits == SIGN { 0 } else { bits };
                let key = if bits & SIGN != 0 { !bits } else { bits | SIGN };
                if self.nan() { <$bits>::MAX } else { key }
            }
            #[inline(always)]
            fn of(key: $bits) -> Self {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                <$t>::from_bits(if key & SIGN != 0 { key ^ SIGN } else { !key })
            }
            #[inline(always)]
            fn shares(self) -> bool { self.nan() || self.to_bits() << 1 == 0 }
            #[inline(always)]
            fn nan(self) -> bool { self.is_nan() }
            fn halfway(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $half; f(self, other) }
        }
    )* };
}

floats! {
    f16, u16, |a, b| f16::from_f32((a.to_f32() + b.to_f32()) * 0.5);
    bf16, u16, |a, b| bf16::from_f32((a.to_f32() + b.to_f32()) * 0.5);
    f32, u32, |a, b| (a + b) * 0.5;
    f64, u64, |a, b| (a + b) * 0.5;
}

/// By the real part, then by the imaginary one.
macro_rules! complex {
    ($($part:ty, $half:ty, $bits:ty;)*) => { $(
        impl Key for [$part; 2] {
            type Bits = $bits;
            const SHARED: bool = true;
            const BY_PLACE: bool = true;
            fn bits(self) -> $bits {
                let upper = <$bits>::from(self[0].bits()) << <$half>::BITS;
                if self.nan() { <$bits>::MAX } else { upper | <$bits>::from(self[1].bits()) }
            }
            fn of(key: $bits) -> Self {
                [<$part>::of((key >> <$half>::BITS) as $half), <$part>::of(key as $half)]
            }
            fn shares(self) -> bool { true }
            fn nan(self) -> bool { self[0].is_nan() || self[1].is_nan() }
            fn halfway(self, other: Self) -> Self { [self[0].halfway(other[0]), self[1].halfway(other[1])] }
        }
    )* };
}

complex! {
    f32, u32, u64;
    f64, u64, u128;
}
