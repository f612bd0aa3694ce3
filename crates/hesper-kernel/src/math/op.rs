//! Scalar functions as types.
//!
//! A type names one function of one native type. The interpreter calls it, and the executor compiles a
//! loop over it for each SIMD level, so both give the same bits. [`super::ops`] has the types of the
//! registry; a visitor goes from an op and a scalar type, known at run time, to the type.

use super::convert::{round_bf16, round_f16};

/// A value as it lies in a lane: integers, f32 (also for f16 and bf16) and f64; `Bool` is a byte, 0 or 1.
pub(crate) trait Native: Copy {
    /// The value with these bits, which are the low ones.
    fn from_bits64(bits: u64) -> Self;
    /// The bits, zero-extended.
    fn to_bits64(self) -> u64;
}

macro_rules! native_ints {
    ($($t:ident $unsigned:ident),+) => {$(
        impl Native for $t {
            #[inline(always)]
            fn from_bits64(bits: u64) -> $t {
                bits as $t
            }
            #[inline(always)]
            fn to_bits64(self) -> u64 {
                self as $unsigned as u64
            }
        }
    )+};
}
native_ints!(i8 u8, i16 u16, i32 u32, i64 u64, u8 u8, u16 u16, u32 u32, u64 u64);

impl Native for f32 {
    #[inline(always)]
    fn from_bits64(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }
    #[inline(always)]
    fn to_bits64(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Native for f64 {
    #[inline(always)]
    fn from_bits64(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
    #[inline(always)]
    fn to_bits64(self) -> u64 {
        self.to_bits()
    }
}

/// A function of one operand.
pub(crate) trait Op1 {
    /// Operand.
    type A: Native;
    /// Result.
    type R: Native;
    /// Whether there is a first pass that is quicker than the core.
    const QUICK: bool = false;
    /// The first pass: a result, and whether that is unsure.
    #[inline(always)]
    fn quick(a: Self::A) -> (Self::R, bool) {
        (Self::core(a), false)
    }
    /// Whether the first pass is wrong for this operand.
    #[inline(always)]
    fn is_left_out(_: Self::A) -> bool {
        false
    }
    /// The function, unless [`Op1::is_rare`].
    fn core(a: Self::A) -> Self::R;
    /// Whether there are rare operands.
    const RARE: bool = false;
    /// Whether the core is wrong or too inaccurate for this operand.
    #[inline(always)]
    fn is_rare(_: Self::A) -> bool {
        false
    }
    /// The function of every operand.
    #[inline(always)]
    fn full(a: Self::A) -> Self::R {
        Self::core(a)
    }
}

/// A function of two operands.
pub(crate) trait Op2 {
    /// Left operand.
    type A: Native;
    /// Right operand.
    type B: Native;
    /// Result.
    type R: Native;
    /// Whether there is a first pass that is quicker than the core.
    const QUICK: bool = false;
    /// The first pass: a result, and whether that is unsure.
    #[inline(always)]
    fn quick(a: Self::A, b: Self::B) -> (Self::R, bool) {
        (Self::core(a, b), false)
    }
    /// Whether the first pass is wrong for these operands.
    #[inline(always)]
    fn is_left_out(_: Self::A, _: Self::B) -> bool {
        false
    }
    /// The function, unless [`Op2::is_rare`].
    fn core(a: Self::A, b: Self::B) -> Self::R;
    /// Whether there are rare operands.
    const RARE: bool = false;
    /// Whether the core is wrong or too inaccurate for these operands.
    #[inline(always)]
    fn is_rare(_: Self::A, _: Self::B) -> bool {
        false
    }
    /// The function of all operands.
    #[inline(always)]
    fn full(a: Self::A, b: Self::B) -> Self::R {
        Self::core(a, b)
    }
}

/// A function of two operands whose operands and result have one type.
pub(crate) trait Fold: Op2<B = <Self as Op2>::A, R = <Self as Op2>::A> {}
impl<O: Op2<B = <O as Op2>::A, R = <O as Op2>::A>> Fold for O {}

/// A function of three operands.
pub(crate) trait Op3 {
    /// First operand.
    type A: Native;
    /// Second and third operand.
    type B: Native;
    /// Result.
    type R: Native;
    /// The function.
    fn full(a: Self::A, b: Self::B, c: Self::B) -> Self::R;
}

/// A visitor of functions of one operand. Functions of 8 and 16-bit integers are `narrow`.
pub(crate) trait Visit1: Sized {
    /// The result of the visit.
    type Out;
    /// Visits a function.
    fn visit<O: Op1>(self) -> Self::Out;
    /// Visits a function of narrow integers.
    fn narrow<O: Op1>(self) -> Self::Out {
        self.visit::<O>()
    }
}

/// A visitor of functions of two operands.
pub(crate) trait Visit2: Sized {
    /// The result of the visit.
    type Out;
    /// Visits a function.
    fn visit<O: Fold>(self) -> Self::Out;
    /// Visits a function of narrow integers.
    fn narrow<O: Fold>(self) -> Self::Out {
        self.visit::<O>()
    }
    /// Visits a function whose operands or result differ in type.
    fn mixed<O: Op2>(self) -> Self::Out;
}

/// A visitor of functions of three operands.
pub(crate) trait Visit3: Sized {
    /// The result of the visit.
    type Out;
    /// Visits a function.
    fn visit<O: Op3>(self) -> Self::Out;
    /// Visits a function of narrow integers.
    fn narrow<O: Op3>(self) -> Self::Out {
        self.visit::<O>()
    }
}

/// f16 as the type of a function, whose operands lie in f32 lanes.
pub(crate) struct F16;
/// bf16 as the type of a function, whose operands lie in f32 lanes.
pub(crate) struct Bf16;

/// Rounds f32 to a type that lies in f32 lanes.
pub(crate) trait RoundTo {
    fn round(x: f32) -> f32;
}
impl RoundTo for f32 {
    #[inline(always)]
    fn round(x: f32) -> f32 {
        x
    }
}
impl RoundTo for F16 {
    #[inline(always)]
    fn round(x: f32) -> f32 {
        round_f16(x)
    }
}
impl RoundTo for Bf16 {
    #[inline(always)]
    fn round(x: f32) -> f32 {
        round_bf16(x)
    }
}

/// A function in f32 with its result rounded to a 16-bit type.
pub(crate) struct Rounded<O, H>(O, H);

impl<O: Op2<A = f32, B = f32, R = f32>, H: RoundTo> Op2 for Rounded<O, H> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn core(a: f32, b: f32) -> f32 {
        H::round(O::full(a, b))
    }
}

impl<O: Op3<A = f32, B = f32, R = f32>, H: RoundTo> Op3 for Rounded<O, H> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn full(a: f32, b: f32, c: f32) -> f32 {
        H::round(O::full(a, b, c))
    }
}
