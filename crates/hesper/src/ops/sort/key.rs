//! Elements as unsigned integers of the same order.
//!
//! Equal numbers have equal keys (zeros of both signs too), and NaN has the largest: sorting keys sorts
//! elements with NaN last.

use bytemuck::Pod;
use half::{bf16, f16};

use super::radix::Item;

/// An element that can be sorted.
pub(crate) trait Key: Pod + Send + Sync {
    /// Its key's type.
    type Bits: Item;
    /// A key and the place of its element in a row, in one integer.
    type Placed: Item;
    /// Bytes of the key.
    const BYTES: u32;
    /// Whether different elements share a key: such are put back from where they came.
    const SHARED: bool;

    /// The key.
    fn key(self) -> Self::Bits;
    /// The element of a key that no two elements share.
    fn of(key: Self::Bits) -> Self;
    /// The key with a place.
    fn placed(self, at: u32) -> Self::Placed;
    /// The place.
    fn place(placed: Self::Placed) -> u32;
    /// Whether it is a zero or NaN, whose keys may be shared.
    fn shares(self) -> bool;
    /// Whether it is NaN.
    fn nan(self) -> bool;
    /// The number in the middle of two.
    fn halfway(self, other: Self) -> Self;
}

macro_rules! packed {
    ($bits:ty, $placed:ty) => {
        type Bits = $bits;
        type Placed = $placed;
        const BYTES: u32 = <$bits>::BITS / 8;
        #[inline(always)]
        fn placed(self, at: u32) -> $placed {
            <$placed>::from(self.key()) << 32 | <$placed>::from(at)
        }
        #[inline(always)]
        fn place(placed: $placed) -> u32 {
            placed as u32
        }
    };
}

macro_rules! integers {
    ($($t:ty, $bits:ty, $placed:ty, $flip:expr;)*) => { $(
        impl Key for $t {
            packed!($bits, $placed);
            const SHARED: bool = false;
            #[inline(always)]
            fn key(self) -> $bits { self as $bits ^ $flip }
            #[inline(always)]
            fn of(key: $bits) -> Self { (key ^ $flip) as $t }
            fn shares(self) -> bool { false }
            fn nan(self) -> bool { false }
            fn halfway(self, other: Self) -> Self { self / 2 + other / 2 }
        }
    )* };
}

integers! {
    u8, u8, u64, 0;
    u16, u16, u64, 0;
    u32, u32, u64, 0;
    u64, u64, u128, 0;
    i8, u8, u64, 1 << 7;
    i16, u16, u64, 1 << 15;
    i32, u32, u64, 1 << 31;
    i64, u64, u128, 1 << 63;
}

macro_rules! floats {
    ($($t:ty, $bits:ty, $placed:ty, $half:expr;)*) => { $(
        impl Key for $t {
            packed!($bits, $placed);
            const SHARED: bool = true;
            #[inline(always)]
            fn key(self) -> $bits {
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
    f16, u16, u64, |a, b| f16::from_f32((a.to_f32() + b.to_f32()) * 0.5);
    bf16, u16, u64, |a, b| bf16::from_f32((a.to_f32() + b.to_f32()) * 0.5);
    f32, u32, u64, |a, b| (a + b) * 0.5;
    f64, u64, u128, |a, b| (a + b) * 0.5;
}

/// By the real part, then by the imaginary one.
impl Key for [f32; 2] {
    packed!(u64, u128);
    const SHARED: bool = true;
    fn key(self) -> u64 {
        if self.nan() { u64::MAX } else { u64::from(self[0].key()) << 32 | u64::from(self[1].key()) }
    }
    fn of(key: u64) -> Self {
        [f32::of((key >> 32) as u32), f32::of(key as u32)]
    }
    fn shares(self) -> bool {
        true
    }
    fn nan(self) -> bool {
        self[0].is_nan() || self[1].is_nan()
    }
    fn halfway(self, other: Self) -> Self {
        [self[0].halfway(other[0]), self[1].halfway(other[1])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_their_numbers() {
        let ordered = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 0.5, 7.0, f32::INFINITY, f32::NAN];
        assert!(ordered.windows(2).all(|pair| pair[0].key() < pair[1].key()));
        assert_eq!((-0.0f32).key(), 0.0f32.key());
        assert_eq!((-f32::NAN).key(), f32::NAN.key());
        assert!(ordered[..8].iter().all(|x| f32::of(x.key()) == *x));
        assert!((-5i8).key() < 3i8.key() && i8::of((-5i8).key()) == -5);
        assert!([1.0f32, 2.0].key() < [1.0f32, 3.0].key());
    }
}
