//! Lane kernels outside the op registry: copies, selects, masks, and a product and a sum in one pass.

use std::marker::PhantomData;

use super::{Fn1, Fn2, Fn3, pick1, pick2, pick3};
use crate::exec::level::SimdLevel;
use crate::math::op::{Native, Op1, Op2, Op3};
use crate::math::ops::binary;

/// A copy of the lanes.
struct Same<T>(PhantomData<T>);
impl<T: Native> Op1 for Same<T> {
    type A = T;
    type R = T;
    #[inline(always)]
    fn core(a: T) -> T {
        a
    }
}

/// A copy of lanes of `size` bytes; with a step of 0, a broadcast.
pub(in crate::exec) fn copy(size: u8, level: SimdLevel) -> Fn1 {
    match size {
        1 => pick1::<Same<u8>>(level),
        2 => pick1::<Same<u16>>(level),
        4 => pick1::<Same<u32>>(level),
        _ => pick1::<Same<u64>>(level),
    }
}

/// `if cond { b } else { c }` with a byte as condition.
struct Select<T>(PhantomData<T>);
impl<T: Native> Op3 for Select<T> {
    type A = u8;
    type B = T;
    type R = T;
    #[inline(always)]
    fn full(cond: u8, b: T, c: T) -> T {
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
    fn core(a: u8, b: u8) -> u8 {
        a & (b ^ 1)
    }
}

/// `a & b` on masks.
pub(in crate::exec) fn and(level: SimdLevel) -> Fn2 {
    pick2::<binary::And<bool>>(level)
}

/// `a | b` on masks.
pub(in crate::exec) fn or(level: SimdLevel) -> Fn2 {
    pick2::<binary::Or<bool>>(level)
}

/// `a & !b` on masks.
pub(in crate::exec) fn and_not(level: SimdLevel) -> Fn2 {
    pick2::<AndNot>(level)
}

/// The product of f32 lanes.
pub(in crate::exec) fn mul_f32(level: SimdLevel) -> Fn2 {
    pick2::<binary::Mul<f32>>(level)
}

macro_rules! products {
    ($($(#[$doc:meta])* $Name:ident |$a:ident, $b:ident, $c:ident| $e:expr;)+) => {
        /// How the rounded product of f32 lanes is combined with a third operand in the same pass.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(in crate::exec) enum Product {
            $($(#[$doc])* $Name,)+
        }

        /// The kernel of a product and a sum in one pass, each rounded.
        pub(in crate::exec) fn product(how: Product, level: SimdLevel) -> Fn3 {
            $(
                struct $Name;
                impl Op3 for $Name {
                    type A = f32;
                    type B = f32;
                    type R = f32;
                    #[inline(always)]
                    fn full($a: f32, $b: f32, $c: f32) -> f32 {
                        $e
                    }
                }
            )+
            match how {
                $(Product::$Name => pick3::<$Name>(level),)+
            }
        }
    };
}
products! {
    /// `a * b + c`.
    Plus |a, b, c| a * b + c;
    /// `a * b - c`.
    Minus |a, b, c| a * b - c;
    /// `c - a * b`.
    From |a, b, c| c - a * b;
}
