//! Comparisons, selects and mixes under a mask.

use std::marker::PhantomData;

use super::{Fn2, Fn3, Op2, Op3, by_scalar, pick2, pick3};
use crate::exec::level::SimdLevel;
use crate::ir::{CmpOp, Scalar};

macro_rules! comparisons {
    ($($name:ident $op:tt),+) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: Copy + PartialOrd> Op2 for $name<T> {
            type A = T;
            type B = T;
            type R = u8;
            #[inline(always)]
            fn f(a: T, b: T) -> u8 {
                u8::from(a $op b)
            }
        }
    )+};
}
comparisons!(Eq ==, Ne !=, Lt <, Le <=, Gt >, Ge >=);

/// The kernel of a comparison; `Bool` lanes are 0 or 1.
pub(in crate::exec) fn compare(op: CmpOp, s: Scalar, level: SimdLevel) -> Option<Fn2> {
    macro_rules! equality {
        ($op:ident) => {
            by_scalar!(s, level, $op:
                pick2 { I32 => u32, U32 => u32, I64 => u64, U64 => u64, F16 => f32, BF16 => f32,
                    F32 => f32, F64 => f64 }
                only2 { Bool => u8, I8 => u8, U8 => u8, I16 => u16, U16 => u16 })
        };
    }
    macro_rules! order {
        ($op:ident) => {
            by_scalar!(s, level, $op:
                pick2 { I32 => i32, U32 => u32, I64 => i64, U64 => u64, F16 => f32, BF16 => f32,
                    F32 => f32, F64 => f64 }
                only2 { Bool => u8, I8 => i8, U8 => u8, I16 => i16, U16 => u16 })
        };
    }
    match op {
        CmpOp::Eq => equality!(Eq),
        CmpOp::Ne => equality!(Ne),
        CmpOp::Lt => order!(Lt),
        CmpOp::Le => order!(Le),
        CmpOp::Gt => order!(Gt),
        CmpOp::Ge => order!(Ge),
    }
}

/// `if cond { b } else { c }` with a byte as condition.
struct Select<T>(PhantomData<T>);
impl<T: Copy> Op3 for Select<T> {
    type A = u8;
    type B = T;
    type R = T;
    #[inline(always)]
    fn f(cond: u8, b: T, c: T) -> T {
        if cond != 0 { b } else { c }
    }
}

/// The choice between lanes of `size` bytes: condition, if true, if false.
pub(in crate::exec) fn select(size: u8, level: SimdLevel) -> Fn3 {
    match size {
        1 => pick3::<Select<u8>>(level),
        2 => pick3::<Select<u16>>(level),
        4 => pick3::<Select<u32>>(level),
        _ => pick3::<Select<u64>>(level),
    }
}

/// `a & !b` of bytes that are 0 or 1.
struct AndNot;
impl Op2 for AndNot {
    type A = u8;
    type B = u8;
    type R = u8;
    #[inline(always)]
    fn f(a: u8, b: u8) -> u8 {
        a & (b ^ 1)
    }
}

/// `a & !b` on masks.
pub(in crate::exec) fn and_not(level: SimdLevel) -> Fn2 {
    pick2::<AndNot>(level)
}
