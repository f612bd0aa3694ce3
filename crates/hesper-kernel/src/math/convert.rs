//! Value conversions: to and from the 16-bit floats, and between all scalar types, each rounded once.
//!
//! All choose by selects, so that loops over them vectorise.

use std::marker::PhantomData;

use super::op::{Bf16, F16, Op1, Visit1};
use crate::ir::Scalar;

/// The least normal number of f16.
pub(crate) const F16_MIN_POSITIVE: f32 = 6.103_515_6e-5;

/// f16 bits to f32.
#[inline(always)]
pub(crate) fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let em = u32::from(h & 0x7fff);
    let normal = (em << 13) + (112 << 23);
    let special = normal + (112 << 23);
    // Subnormals are multiples of 2^-24.
    let small = (em as f32 * f32::from_bits(0x3380_0000)).to_bits();
    let bits = if em >= 0x7c00 { special } else { normal };
    let bits = if em < 0x400 { small } else { bits };
    f32::from_bits(bits | sign)
}

/// f32 to the nearest f16, halves to even.
#[inline(always)]
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let abs = bits & 0x7fff_ffff;
    let odd = (abs >> 13) & 1;
    let normal = abs.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    // Adding one half leaves the subnormal's bits, rounded, in the mantissa.
    let small = (f32::from_bits(abs) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let r = if abs < 0x3880_0000 { small } else { normal };
    let r = if abs >= 0x4780_0000 { 0x7c00 } else { r };
    // A NaN keeps what it can of its payload, so that loads and stores keep their bits.
    let payload = (abs >> 13) & 0x3ff;
    let nan = 0x7c00 | if payload == 0 { 0x200 } else { payload };
    let r = if abs > 0x7f80_0000 { nan } else { r };
    (r | sign) as u16
}

/// bf16 bits to f32.
#[inline(always)]
pub(crate) fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// f32 to the nearest bf16, halves to even.
#[inline(always)]
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    (round_bf16(x).to_bits() >> 16) as u16
}

/// f32 to the nearest value of f16.
#[inline(always)]
pub(crate) fn round_f16(x: f32) -> f32 {
    f16_to_f32(f32_to_f16(x))
}

/// f32 to the nearest value of bf16.
#[inline(always)]
pub(crate) fn round_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + even) & 0xffff_0000;
    let nan = bits & 0xffff_0000;
    let nan = if nan & 0x007f_0000 == 0 { nan | 0x0040_0000 } else { nan };
    f32::from_bits(if x.is_nan() { nan } else { rounded })
}

/// f64 to f32, rounded to odd, so that a second rounding to 16 bits is correct.
#[inline(always)]
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    let bits = near.to_bits();
    let cut = if back.abs() > x.abs() { bits.wrapping_sub(1) } else { bits } | 1;
    let exact = back == x || near.is_nan();
    f32::from_bits(if exact { bits } else { cut })
}

/// A magnitude as f64 with at most 48 significant bits, the dropped ones joined into the last, so that
/// [`to_odd`] sees that it is inexact.
#[inline(always)]
fn sticky(m: u64) -> f64 {
    let wide = (((m >> 16) | u64::from(m & 0xffff != 0)) as f64) * 65536.0;
    if m < 1 << 48 { m as f64 } else { wide }
}

/// The conversion of a native type to another one, to [`F16`] or [`Bf16`] (in f32), or to `bool`.
pub(crate) struct Convert<From, To>(PhantomData<(From, To)>);

macro_rules! conversion {
    ($from:ty => $to:ty, $r:ty, |$x:ident| $e:expr) => {
        impl Op1 for Convert<$from, $to> {
            type A = $from;
            type R = $r;
            #[inline(always)]
            fn core($x: $from) -> $r {
                $e
            }
        }
    };
}

macro_rules! conversions {
    ($($from:ident |$x:ident| $to_f32:expr;)+) => {$(
        conversions!(@ $from u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);
        conversion!($from => F16, f32, |$x| round_f16($to_f32));
        conversion!($from => Bf16, f32, |$x| round_bf16($to_f32));
        conversion!($from => bool, u8, |x| u8::from(x != 0 as $from));
    )+};
    (@ $from:ident $($to:ident)+) => { $(conversion!($from => $to, $to, |x| x as $to);)+ };
}

// As f32, from which a rounding to 16 bits is correct.
conversions! {
    u8 |x| f32::from(x);
    i8 |x| f32::from(x);
    u16 |x| f32::from(x);
    i16 |x| f32::from(x);
    u32 |x| to_odd(f64::from(x));
    i32 |x| to_odd(f64::from(x));
    u64 |x| to_odd(sticky(x));
    i64 |x| to_odd(if x < 0 { -sticky(x.unsigned_abs()) } else { sticky(x.unsigned_abs()) });
    f32 |x| x;
    f64 |x| to_odd(x);
}

/// The function of a conversion.
pub(crate) fn visit<V: Visit1>(from: Scalar, to: Scalar, v: V) -> V::Out {
    macro_rules! to {
        ($to:ty, $visit:ident) => {
            match from {
                Scalar::Bool | Scalar::U8 => v.$visit::<Convert<u8, $to>>(),
                Scalar::I8 => v.$visit::<Convert<i8, $to>>(),
                Scalar::I16 => v.$visit::<Convert<i16, $to>>(),
                Scalar::I32 => v.$visit::<Convert<i32, $to>>(),
                Scalar::I64 => v.$visit::<Convert<i64, $to>>(),
                Scalar::U16 => v.$visit::<Convert<u16, $to>>(),
                Scalar::U32 => v.$visit::<Convert<u32, $to>>(),
                Scalar::U64 => v.$visit::<Convert<u64, $to>>(),
                Scalar::F16 | Scalar::BF16 | Scalar::F32 => v.$visit::<Convert<f32, $to>>(),
                Scalar::F64 => v.$visit::<Convert<f64, $to>>(),
            }
        };
    }
    match to {
        Scalar::Bool => to!(bool, visit),
        Scalar::I8 => to!(i8, narrow),
        Scalar::I16 => to!(i16, narrow),
        Scalar::I32 => to!(i32, visit),
        Scalar::I64 => to!(i64, visit),
        Scalar::U8 => to!(u8, narrow),
        Scalar::U16 => to!(u16, narrow),
        Scalar::U32 => to!(u32, visit),
        Scalar::U64 => to!(u64, visit),
        Scalar::F16 => to!(F16, visit),
        Scalar::BF16 => to!(Bf16, visit),
        Scalar::F32 => to!(f32, visit),
        Scalar::F64 => to!(f64, visit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::half::{bf16, f16};

    #[test]
    fn every_f16_survives_and_every_f32_neighbourhood_rounds_as_the_half_crate_does() {
        for h in 0..=u16::MAX {
            let x = f16_to_f32(h);
            let want = f16::from_bits(h).to_f32();
            assert!(x.to_bits() == want.to_bits() || (x.is_nan() && want.is_nan()), "{h:#x}");
            for d in -3i32..=3 {
                for shift in [0, 12] {
                    let y = f32::from_bits(x.to_bits().wrapping_add((d << shift) as u32));
                    let got = f16::from_bits(f32_to_f16(y));
                    let want = f16::from_f32(y);
                    assert!(
                        got == want && got.is_sign_negative() == want.is_sign_negative()
                            || got.is_nan() && want.is_nan(),
                        "{y:e}"
                    );
                    let got = bf16::from_bits(f32_to_bf16(y));
                    let want = bf16::from_f32(y);
                    assert!(
                        got == want && got.is_sign_negative() == want.is_sign_negative()
                            || got.is_nan() && want.is_nan(),
                        "{y:e}"
                    );
                }
            }
        }
    }
}
