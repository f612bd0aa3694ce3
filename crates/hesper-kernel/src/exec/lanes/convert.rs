//! Value conversions and address arithmetic.

use std::marker::PhantomData;

use super::half::{round_bf16, round_f16, to_odd};
use super::{Fn1, Fn3, Op1, Op3, by_scalar};
use crate::exec::level::SimdLevel;
use crate::ir::Scalar;

/// Conversions from one type.
trait From1: Copy {
    fn to_u8(self) -> u8;
    fn to_u16(self) -> u16;
    fn to_u32(self) -> u32;
    fn to_u64(self) -> u64;
    fn to_i8(self) -> i8;
    fn to_i16(self) -> i16;
    fn to_i32(self) -> i32;
    fn to_i64(self) -> i64;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    fn to_f16(self) -> f32;
    fn to_bf16(self) -> f32;
    fn to_bool(self) -> u8;
}

macro_rules! from {
    ($($t:ident, $zero:expr, |$x:ident| $narrow:expr;)+) => {$(
        impl From1 for $t {
            #[inline(always)]
            fn to_u8(self) -> u8 { self as u8 }
            #[inline(always)]
            fn to_u16(self) -> u16 { self as u16 }
            #[inline(always)]
            fn to_u32(self) -> u32 { self as u32 }
            #[inline(always)]
            fn to_u64(self) -> u64 { self as u64 }
            #[inline(always)]
            fn to_i8(self) -> i8 { self as i8 }
            #[inline(always)]
            fn to_i16(self) -> i16 { self as i16 }
            #[inline(always)]
            fn to_i32(self) -> i32 { self as i32 }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn to_f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn to_f16(self) -> f32 { let $x = self; round_f16($narrow) }
            #[inline(always)]
            fn to_bf16(self) -> f32 { let $x = self; round_bf16($narrow) }
            #[inline(always)]
            fn to_bool(self) -> u8 { u8::from(self != $zero) }
        }
    )+};
}

/// A magnitude as f64 with the bits that do not fit sticking to the last.
#[inline(always)]
fn sticky(m: u64) -> f64 {
    let wide = (((m >> 16) | u64::from(m & 0xffff != 0)) as f64) * 65536.0;
    if m < 1 << 48 { m as f64 } else { wide }
}

from! {
    u8, 0, |x| f32::from(x);
    i8, 0, |x| f32::from(x);
    u16, 0, |x| f32::from(x);
    i16, 0, |x| f32::from(x);
    u32, 0, |x| to_odd(f64::from(x));
    i32, 0, |x| to_odd(f64::from(x));
    u64, 0, |x| to_odd(sticky(x));
    i64, 0, |x| to_odd(if x < 0 { -sticky(x.unsigned_abs()) } else { sticky(x.unsigned_abs()) });
    f32, 0.0, |x| x;
    f64, 0.0, |x| to_odd(x);
}

macro_rules! conversions {
    ($($name:ident $f:ident $r:ty),+) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: From1> Op1 for $name<T> {
            type A = T;
            type R = $r;
            #[inline(always)]
            fn f(a: T) -> $r {
                a.$f()
            }
        }
    )+};
}
conversions!(
    ToU8 to_u8 u8, ToU16 to_u16 u16, ToU32 to_u32 u32, ToU64 to_u64 u64, ToI8 to_i8 i8, ToI16 to_i16 i16,
    ToI32 to_i32 i32, ToI64 to_i64 i64, ToF32 to_f32 f32, ToF64 to_f64 f64, ToF16 to_f16 f32,
    ToBf16 to_bf16 f32, ToBool to_bool u8
);

/// The kernel of a conversion between different types.
pub(in crate::exec) fn convert(from: Scalar, to: Scalar, level: SimdLevel) -> Option<Fn1> {
    macro_rules! to {
        ($op:ident) => {
            by_scalar!(from, level, $op:
                pick1 { Bool => u8, I8 => i8, U8 => u8, I16 => i16, U16 => u16, I32 => i32, U32 => u32,
                    I64 => i64, U64 => u64, F16 => f32, BF16 => f32, F32 => f32, F64 => f64 })
        };
    }
    macro_rules! rarely {
        ($op:ident) => {
            by_scalar!(from, level, $op:
                only1 { Bool => u8, I8 => i8, U8 => u8, I16 => i16, U16 => u16, I32 => i32, U32 => u32,
                    I64 => i64, U64 => u64, F16 => f32, BF16 => f32, F32 => f32, F64 => f64 })
        };
    }
    match to {
        Scalar::Bool => to!(ToBool),
        Scalar::I8 => rarely!(ToI8),
        Scalar::I16 => rarely!(ToI16),
        Scalar::I32 => to!(ToI32),
        Scalar::I64 => to!(ToI64),
        Scalar::U8 => rarely!(ToU8),
        Scalar::U16 => rarely!(ToU16),
        Scalar::U32 => to!(ToU32),
        Scalar::U64 => rarely!(ToU64),
        Scalar::F16 => to!(ToF16),
        Scalar::BF16 => to!(ToBf16),
        Scalar::F32 => to!(ToF32),
        Scalar::F64 => to!(ToF64),
    }
}

/// Whether a conversion leaves the register's bits as they are.
pub(in crate::exec) fn is_free(from: Scalar, to: Scalar) -> bool {
    let same_width = from.size() == to.size();
    let int = |s: Scalar| s.is_int() || s == Scalar::Bool;
    (int(from) && to.is_int() && same_width)
        || (matches!(from, Scalar::F16 | Scalar::BF16) && to == Scalar::F32)
}

/// `offset + index * stride`, the index widened to 64 bits.
struct Address<T>(PhantomData<T>);
impl<T: From1> Op3 for Address<T> {
    type A = T;
    type B = i64;
    type R = i64;
    #[inline(always)]
    fn f(index: T, offset: i64, stride: i64) -> i64 {
        offset.wrapping_add(index.to_i64().wrapping_mul(stride))
    }
}

/// `offset + index * stride` as i64 (operands: index, offset, stride) for an index of 32 or 64
/// bits.
pub(in crate::exec) fn address(s: Scalar, level: SimdLevel) -> Option<Fn3> {
    by_scalar!(s, level, Address: pick3 { I32 => i32, U32 => u32, I64 => i64, U64 => i64 })
}
