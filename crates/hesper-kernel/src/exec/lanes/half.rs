//! Rounding of f32 lanes to the 16-bit floats, and the forms of scalars in memory.

use super::{Fn1, pick1};
use crate::exec::level::SimdLevel;
use crate::ir::Scalar;
use crate::math::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, round_bf16, round_f16};
use crate::math::op::Op1;

macro_rules! op1 {
    ($($name:ident: $a:ty => $r:ty = $f:expr;)+) => {$(
        struct $name;
        impl Op1 for $name {
            type A = $a;
            type R = $r;
            #[inline(always)]
            fn core(a: $a) -> $r {
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
