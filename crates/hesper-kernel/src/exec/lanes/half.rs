//! Rounding of f32 lanes to the 16-bit floats, and their storage forms, free of branches.

use super::{Op1, pick1};
use crate::exec::lanes::Fn1;
use crate::exec::level::SimdLevel;
use crate::ir::Scalar;

/// f16 bits to f32.
#[inline(always)]
pub(in crate::exec) fn f16_to_f32(h: u16) -> f32 {
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
pub(in crate::exec) fn f32_to_f16(x: f32) -> u16 {
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
pub(in crate::exec) fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// f32 to the nearest bf16, halves to even.
#[inline(always)]
pub(in crate::exec) fn f32_to_bf16(x: f32) -> u16 {
    (round_bf16(x).to_bits() >> 16) as u16
}

/// f32 to the nearest value of f16.
#[inline(always)]
pub(in crate::exec) fn round_f16(x: f32) -> f32 {
    f16_to_f32(f32_to_f16(x))
}

/// f32 to the nearest value of bf16.
#[inline(always)]
pub(in crate::exec) fn round_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + even) & 0xffff_0000;
    let nan = bits & 0xffff_0000;
    let nan = if nan & 0x007f_0000 == 0 { nan | 0x0040_0000 } else { nan };
    f32::from_bits(if x.is_nan() { nan } else { rounded })
}

/// f64 to f32 rounded to odd, so that a second rounding to 16 bits is right.
#[inline(always)]
pub(in crate::exec) fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    let bits = near.to_bits();
    let cut = if back.abs() > x.abs() { bits.wrapping_sub(1) } else { bits } | 1;
    let exact = back == x || near.is_nan();
    f32::from_bits(if exact { bits } else { cut })
}

macro_rules! op1 {
    ($($name:ident: $a:ty => $r:ty = $f:expr;)+) => {$(
        struct $name;
        impl Op1 for $name {
            type A = $a;
            type R = $r;
            #[inline(always)]
            fn f(a: $a) -> $r {
                $f(a)
            }
        }
    )+};
}

op1! {
    RoundF16: f32 => f32 = round_f16;
    RoundBf16: f32 => f32 = round_bf16;
    UnpackF16: u16 => f32 = f16_to_f32;
    UnpackBf16: u16 => f32 = bf16_to_f32;
    PackF16: f32 => u16 = f32_to_f16;
    PackBf16: f32 => u16 = f32_to_bf16;
    UnpackBool: u8 => u8 = |b: u8| u8::from(b != 0);
}

/// Rounds f32 lanes to a 16-bit float type; `None` for other types.
pub(in crate::exec) fn round(s: Scalar, level: SimdLevel) -> Option<Fn1> {
    match s {
        Scalar::F16 => Some(pick1::<RoundF16>(level)),
        Scalar::BF16 => Some(pick1::<RoundBf16>(level)),
        _ => None,
    }
}

/// From the form in memory to the form in registers; `None` where they are the same.
pub(in crate::exec) fn unpack(s: Scalar, level: SimdLevel) -> Option<Fn1> {
    match s {
        Scalar::F16 => Some(pick1::<UnpackF16>(level)),
        Scalar::BF16 => Some(pick1::<UnpackBf16>(level)),
        Scalar::Bool => Some(pick1::<UnpackBool>(level)),
        _ => None,
    }
}

/// From the form in registers to the form in memory; `None` where they are the same.
pub(in crate::exec) fn pack(s: Scalar, level: SimdLevel) -> Option<Fn1> {
    match s {
        Scalar::F16 => Some(pick1::<PackF16>(level)),
        Scalar::BF16 => Some(pick1::<PackBf16>(level)),
        _ => None,
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
