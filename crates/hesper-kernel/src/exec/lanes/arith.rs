//! Two- and three-operand arithmetic.

use std::marker::PhantomData;

use super::half::{round_bf16, round_f16};
use super::{Fn2, Fn3, Op2, Op3, by_scalar, only2, pick2, pick3};
use crate::exec::groups::{FnGroup, Over, only_fold, pick_inclusive, pick_reduce};
use crate::exec::level::SimdLevel;
use crate::ir::{BinaryOp, ReduceOp, Scalar, TernaryOp};
use crate::math;

/// Integer arithmetic with the IR's meaning.
pub(in crate::exec) trait Int: Copy {
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    fn rem(self, b: Self) -> Self;
    fn min(self, b: Self) -> Self;
    fn max(self, b: Self) -> Self;
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
    fn shl(self, b: Self) -> Self;
    fn shr(self, b: Self) -> Self;
    fn rotate(self, b: Self) -> Self;
    fn mul_hi(self, b: Self) -> Self;
    fn add_sat(self, b: Self) -> Self;
    fn sub_sat(self, b: Self) -> Self;
    fn abs_diff(self, b: Self) -> Self;
    fn hadd(self, b: Self) -> Self;
    fn rhadd(self, b: Self) -> Self;
}

macro_rules! int {
    ($($t:ident, $wide:ident, |$a:ident, $b:ident| $div:expr, $rem:expr;)+) => {$(
        impl Int for $t {
            #[inline(always)]
            fn add(self, b: $t) -> $t { self.wrapping_add(b) }
            #[inline(always)]
            fn sub(self, b: $t) -> $t { self.wrapping_sub(b) }
            #[inline(always)]
            fn mul(self, b: $t) -> $t { self.wrapping_mul(b) }
            #[inline(always)]
            fn div(self, $b: $t) -> $t { let $a = self; $div }
            #[inline(always)]
            fn rem(self, $b: $t) -> $t { let $a = self; $rem }
            #[inline(always)]
            fn min(self, b: $t) -> $t { if self < b { self } else { b } }
            #[inline(always)]
            fn max(self, b: $t) -> $t { if self > b { self } else { b } }
            #[inline(always)]
            fn and(self, b: $t) -> $t { self & b }
            #[inline(always)]
            fn or(self, b: $t) -> $t { self | b }
            #[inline(always)]
            fn xor(self, b: $t) -> $t { self ^ b }
            #[inline(always)]
            fn shl(self, b: $t) -> $t { self.wrapping_shl(b as u32) }
            #[inline(always)]
            fn shr(self, b: $t) -> $t { self.wrapping_shr(b as u32) }
            #[inline(always)]
            fn rotate(self, b: $t) -> $t { self.rotate_left(b as u32 & ($t::BITS - 1)) }
            #[inline(always)]
            fn mul_hi(self, b: $t) -> $t { ((self as $wide * b as $wide) >> $t::BITS) as $t }
            #[inline(always)]
            fn add_sat(self, b: $t) -> $t { self.saturating_add(b) }
            #[inline(always)]
            fn sub_sat(self, b: $t) -> $t { self.saturating_sub(b) }
            #[inline(always)]
            fn abs_diff(self, b: $t) -> $t { $t::abs_diff(self, b) as $t }
            #[inline(always)]
            fn hadd(self, b: $t) -> $t { (self & b).wrapping_add((self ^ b) >> 1) }
            #[inline(always)]
            fn rhadd(self, b: $t) -> $t { (self | b).wrapping_sub((self ^ b) >> 1) }
        }
    )+};
}

/// Adding it to an integer leaves that in the low bits of the sum, and the other way round.
const MAGIC: f64 = 6_755_399_441_055_744.0;

// Quotients of at most 32 bits are exact in f64 arithmetic, which vectorises.
macro_rules! quotient {
    ($a:ident, $b:ident, $t:ident) => {{
        let q = f64::from($a) / f64::from(if $b == 0 { 1 } else { $b });
        let q = (q.trunc() + MAGIC).to_bits() as u32;
        if $b == 0 { 0 } else { q as $t }
    }};
}
macro_rules! remainder {
    ($a:ident, $b:ident, $t:ident) => {{
        let q: $t = quotient!($a, $b, $t);
        if $b == 0 { 0 } else { $a.wrapping_sub(q.wrapping_mul($b)) }
    }};
}

int! {
    i8, i32, |a, b| quotient!(a, b, i8), remainder!(a, b, i8);
    u8, u32, |a, b| quotient!(a, b, u8), remainder!(a, b, u8);
    i16, i32, |a, b| quotient!(a, b, i16), remainder!(a, b, i16);
    u16, u32, |a, b| quotient!(a, b, u16), remainder!(a, b, u16);
    i32, i64, |a, b| quotient!(a, b, i32), remainder!(a, b, i32);
    u32, u64, |a, b| quotient!(a, b, u32), remainder!(a, b, u32);
    i64, i128, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }, if b == 0 { 0 } else { a.wrapping_rem(b) };
    u64, u128, |a, b| a.checked_div(b).unwrap_or(0), a.checked_rem(b).unwrap_or(0);
}

macro_rules! int_ops {
    ($($name:ident $f:ident),+) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: Int> Op2 for $name<T> {
            type A = T;
            type B = T;
            type R = T;
            #[inline(always)]
            fn f(a: T, b: T) -> T {
                a.$f(b)
            }
        }
    )+};
}

int_ops!(
    Add add, Sub sub, Mul mul, Div div, Rem rem, Min min, Max max, And and, Or or, Xor xor, Shl shl,
    Shr shr, Rotate rotate, MulHi mul_hi, AddSat add_sat, SubSat sub_sat, AbsDiff abs_diff, Hadd hadd,
    Rhadd rhadd
);

/// Operations that do not care about the sign.
macro_rules! any_sign {
    ($op:ident, $s:expr, $level:expr) => {
        by_scalar!($s, $level, $op:
            pick2 { Bool => u8, I32 => u32, U32 => u32, I64 => u64, U64 => u64 }
            only2 { I8 => u8, U8 => u8, I16 => u16, U16 => u16 })
    };
}

macro_rules! signed {
    ($op:ident, $s:expr, $level:expr) => {
        by_scalar!($s, $level, $op:
            pick2 { I32 => i32, U32 => u32, I64 => i64, U64 => u64 }
            only2 { I8 => i8, U8 => u8, I16 => i16, U16 => u16 })
    };
}

macro_rules! rare {
    ($op:ident, $s:expr, $level:expr) => {
        by_scalar!($s, $level, $op:
            only2 { I8 => i8, U8 => u8, I16 => i16, U16 => u16, I32 => i32, U32 => u32, I64 => i64, U64 => u64 })
    };
}

/// The float operations by number, for use as a constant parameter.
const FLOAT: [BinaryOp; 16] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::MinNan,
    BinaryOp::MaxNan,
    BinaryOp::Pow,
    BinaryOp::Atan2,
    BinaryOp::IeeeRem,
    BinaryOp::CopySign,
    BinaryOp::NextAfter,
    BinaryOp::Fdim,
    BinaryOp::Hypot,
];

struct F32<const OP: usize>;
impl<const OP: usize> Op2 for F32<OP> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn f(a: f32, b: f32) -> f32 {
        math::binary_f32(const { FLOAT[OP] }, a, b).unwrap_or(f32::NAN)
    }
}

macro_rules! mostly {
    ($($(#[$m:meta])* $name:ident $t:ty: $core:path, $rare:path, $full:path;)+) => {$(
        $(#[$m])*
        struct $name;
        impl Op2 for $name {
            type A = $t;
            type B = $t;
            type R = $t;
            #[inline(always)]
            fn f(a: $t, b: $t) -> $t {
                $core(a, b)
            }
            const RARE: bool = true;
            #[inline(always)]
            fn is_rare(a: $t, b: $t) -> bool {
                $rare(a, b)
            }
            #[inline(always)]
            fn redo(a: $t, b: $t) -> $t {
                $full(a, b)
            }
        }
    )+};
}
mostly! {
    RemF32 f32: math::fmod_core, math::fmod_is_rare, math::fmod;
    PowF64 f64: math::double::pow_core, math::double::pow_is_rare, math::double::pow;
    /// Quotients of integers that floats hold exactly, as vectors.
    DivI64 i64: quotient_of_floats, is_beyond_floats, Int::div;
    RemI64 i64: remainder_of_floats, is_beyond_floats, Int::rem;
}

/// Whether a float does not hold both integers exactly, or the second is zero.
#[inline(always)]
fn is_beyond_floats(a: i64, b: i64) -> bool {
    const END: u64 = 1 << 51;
    let beyond = |x: i64| (x as u64).wrapping_add(END) >= 2 * END;
    beyond(a) | beyond(b) | (b == 0)
}

/// The quotient of two integers below 2^51. Next to an integer `n` it is further from it than the
/// rounding of `n`, so that nothing is rounded up to it.
#[inline(always)]
fn quotient_of_floats(a: i64, b: i64) -> i64 {
    let float = |x: i64| f64::from_bits(MAGIC.to_bits().wrapping_add(x as u64)) - MAGIC;
    let q = (float(a) / float(b)).trunc();
    ((q + MAGIC).to_bits()).wrapping_sub(MAGIC.to_bits()) as i64
}

#[inline(always)]
fn remainder_of_floats(a: i64, b: i64) -> i64 {
    a.wrapping_sub(quotient_of_floats(a, b).wrapping_mul(b))
}

struct F64<const OP: usize>;
impl<const OP: usize> Op2 for F64<OP> {
    type A = f64;
    type B = f64;
    type R = f64;
    #[inline(always)]
    fn f(a: f64, b: f64) -> f64 {
        math::binary_f64(const { FLOAT[OP] }, a, b).unwrap_or(f64::NAN)
    }
}

/// The hot operations on 16-bit floats, rounding included.
struct F16<const OP: usize>;
impl<const OP: usize> Op2 for F16<OP> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn f(a: f32, b: f32) -> f32 {
        round_f16(F32::<OP>::f(a, b))
    }
}

struct Bf16<const OP: usize>;
impl<const OP: usize> Op2 for Bf16<OP> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn f(a: f32, b: f32) -> f32 {
        round_bf16(F32::<OP>::f(a, b))
    }
}

macro_rules! one_half {
    ($name:ident, $pack:path, $unpack:path) => {
        /// `NextAfter` steps in the type's own grid.
        struct $name;
        impl Op2 for $name {
            type A = f32;
            type B = f32;
            type R = f32;
            #[inline(always)]
            fn f(a: f32, b: f32) -> f32 {
                let bits = $pack(a);
                let up = bits.wrapping_add(1);
                let down = bits.wrapping_sub(1);
                let away = (b > a) == (a > 0.0);
                let next = if a == 0.0 {
                    if b > a { 1 } else { 0x8001 }
                } else if away {
                    up
                } else {
                    down
                };
                let r = $unpack(next);
                let r = if a == b { b } else { r };
                if a.is_nan() || b.is_nan() { f32::NAN } else { r }
            }
        }
    };
}
one_half!(NextF16, super::half::f32_to_f16, super::half::f16_to_f32);
one_half!(NextBf16, super::half::f32_to_bf16, super::half::bf16_to_f32);

struct LdexpF32;
impl Op2 for LdexpF32 {
    type A = f32;
    type B = i32;
    type R = f32;
    #[inline(always)]
    fn f(a: f32, n: i32) -> f32 {
        math::ldexp(a, n)
    }
}

struct LdexpF64;
impl Op2 for LdexpF64 {
    type A = f64;
    type B = i32;
    type R = f64;
    #[inline(always)]
    fn f(a: f64, n: i32) -> f64 {
        math::double::ldexp(a, n)
    }
}

/// The kernel of a two-operand operation, and whether its result still has to be rounded to a
/// 16-bit float type. `None` where the verifier allows no such operation.
pub(in crate::exec) fn binary(op: BinaryOp, s: Scalar, level: SimdLevel) -> Option<(Fn2, bool)> {
    use BinaryOp as B;
    if s.is_float() {
        return float(op, s, level);
    }
    let f = match op {
        B::Add => any_sign!(Add, s, level),
        B::Sub => any_sign!(Sub, s, level),
        B::Mul => any_sign!(Mul, s, level),
        B::And => any_sign!(And, s, level),
        B::Or => any_sign!(Or, s, level),
        B::Xor => any_sign!(Xor, s, level),
        B::Shl => any_sign!(Shl, s, level),
        B::Rotate => rare!(Rotate, s, level),
        B::Div if s == Scalar::I64 => Some(pick2::<DivI64>(level)),
        B::Rem if s == Scalar::I64 => Some(pick2::<RemI64>(level)),
        B::Div => signed!(Div, s, level),
        B::Rem => signed!(Rem, s, level),
        B::Min | B::MinNan => signed!(Min, s, level),
        B::Max | B::MaxNan => signed!(Max, s, level),
        B::Shr => signed!(Shr, s, level),
        B::MulHi => rare!(MulHi, s, level),
        B::AddSat => rare!(AddSat, s, level),
        B::SubSat => rare!(SubSat, s, level),
        B::AbsDiff => rare!(AbsDiff, s, level),
        B::Hadd => rare!(Hadd, s, level),
        B::Rhadd => rare!(Rhadd, s, level),
        _ => None,
    };
    f.map(|f| (f, false))
}

fn float(op: BinaryOp, s: Scalar, level: SimdLevel) -> Option<(Fn2, bool)> {
    macro_rules! pick {
        ($($hot:literal)+; $($n:literal)+) => {
            match (s, FLOAT.iter().position(|&f| f == op)?) {
                $((Scalar::F64, $hot) => pick2::<F64<$hot>>(level),)+
                $((Scalar::F64, $n) => only2::<F64<$n>>(level),)+
                $((_, $hot) => pick2::<F32<$hot>>(level),)+
                $((_, $n) => pick2::<F32<$n>>(level),)+
                _ => return None,
            }
        };
    }
    Some(match (op, s) {
        (BinaryOp::Pow, Scalar::F64) => (pick2::<PowF64>(level), false),
        (BinaryOp::Rem, Scalar::F16 | Scalar::BF16 | Scalar::F32) => (pick2::<RemF32>(level), true),
        (BinaryOp::Ldexp, Scalar::F64) => (only2::<LdexpF64>(level), false),
        (BinaryOp::Ldexp, _) => (pick2::<LdexpF32>(level), true),
        (BinaryOp::NextAfter, Scalar::F16) => (only2::<NextF16>(level), false),
        (BinaryOp::NextAfter, Scalar::BF16) => (only2::<NextBf16>(level), false),
        (BinaryOp::Add, Scalar::F16) => (pick2::<F16<0>>(level), false),
        (BinaryOp::Sub, Scalar::F16) => (pick2::<F16<1>>(level), false),
        (BinaryOp::Mul, Scalar::F16) => (pick2::<F16<2>>(level), false),
        (BinaryOp::Div, Scalar::F16) => (pick2::<F16<3>>(level), false),
        (BinaryOp::Add, Scalar::BF16) => (pick2::<Bf16<0>>(level), false),
        (BinaryOp::Sub, Scalar::BF16) => (pick2::<Bf16<1>>(level), false),
        (BinaryOp::Mul, Scalar::BF16) => (pick2::<Bf16<2>>(level), false),
        (BinaryOp::Div, Scalar::BF16) => (pick2::<Bf16<3>>(level), false),
        _ => {
            let exact = matches!(
                op,
                BinaryOp::Min | BinaryOp::Max | BinaryOp::MinNan | BinaryOp::MaxNan | BinaryOp::CopySign
            );
            (pick!(0 1 2 3 5 6 7 8 12; 4 9 10 11 13 14 15), !exact)
        }
    })
}

struct FmaInt<T>(PhantomData<T>);
impl<T: Int> Op3 for FmaInt<T> {
    type A = T;
    type B = T;
    type R = T;
    #[inline(always)]
    fn f(a: T, b: T, c: T) -> T {
        a.mul(b).add(c)
    }
}

struct ClampInt<T>(PhantomData<T>);
impl<T: Int> Op3 for ClampInt<T> {
    type A = T;
    type B = T;
    type R = T;
    #[inline(always)]
    fn f(a: T, b: T, c: T) -> T {
        a.max(b).min(c)
    }
}

macro_rules! op3 {
    ($($name:ident, $t:ty, |$a:ident, $b:ident, $c:ident| $e:expr;)+) => {$(
        struct $name;
        impl Op3 for $name {
            type A = $t;
            type B = $t;
            type R = $t;
            #[inline(always)]
            fn f($a: $t, $b: $t, $c: $t) -> $t {
                $e
            }
        }
    )+};
}

op3! {
    MulAdd, f32, |a, b, c| a * b + c;
    MulSub, f32, |a, b, c| a * b - c;
    SubMul, f32, |a, b, c| c - a * b;
    FmaF32, f32, |a, b, c| a.mul_add(b, c);
    FmaF64, f64, |a, b, c| a.mul_add(b, c);
    FmaF16, f32, |a, b, c| round_f16(a.mul_add(b, c));
    FmaBf16, f32, |a, b, c| round_bf16(a.mul_add(b, c));
    ClampF32, f32, |a, b, c| math::min_f32(math::max_f32(a, b), c);
    ClampF64, f64, |a, b, c| math::min_f64(math::max_f64(a, b), c);
}

/// What a product of f32 lanes, rounded, is combined with in the same pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::exec) enum Product {
    /// `a * b + c`.
    Plus,
    /// `a * b - c`.
    Minus,
    /// `c - a * b`.
    From,
}

/// The kernel of a product and a sum in one pass, each rounded.
pub(in crate::exec) fn product(how: Product, level: SimdLevel) -> Fn3 {
    match how {
        Product::Plus => pick3::<MulAdd>(level),
        Product::Minus => pick3::<MulSub>(level),
        Product::From => pick3::<SubMul>(level),
    }
}

/// The kernel of a three-operand operation; it rounds to the type.
pub(in crate::exec) fn ternary(op: TernaryOp, s: Scalar, level: SimdLevel) -> Option<Fn3> {
    match (op, s) {
        (TernaryOp::Fma, Scalar::F16) => Some(pick3::<FmaF16>(level)),
        (TernaryOp::Fma, Scalar::BF16) => Some(pick3::<FmaBf16>(level)),
        (TernaryOp::Fma, Scalar::F32) => Some(pick3::<FmaF32>(level)),
        (TernaryOp::Fma, Scalar::F64) => Some(pick3::<FmaF64>(level)),
        (TernaryOp::Fma, _) => by_scalar!(s, level, FmaInt:
            pick3 { I32 => u32, U32 => u32 }
            only3 { I8 => u8, U8 => u8, I16 => u16, U16 => u16, I64 => u64, U64 => u64 }),
        (TernaryOp::Clamp, Scalar::F64) => Some(pick3::<ClampF64>(level)),
        (TernaryOp::Clamp, Scalar::F16 | Scalar::BF16 | Scalar::F32) => Some(pick3::<ClampF32>(level)),
        (TernaryOp::Clamp, _) => by_scalar!(s, level, ClampInt:
            pick3 { I32 => i32, U32 => u32 }
            only3 { I8 => i8, U8 => u8, I16 => i16, U16 => u16, I64 => i64, U64 => u64 }),
    }
}

/// The kernel of a reduction or scan over lanes of a type.
pub(in crate::exec) fn fold(over: Over, op: ReduceOp, s: Scalar, level: SimdLevel) -> Option<FnGroup> {
    macro_rules! pick {
        ($o:ty) => {
            match over {
                Over::All => pick_reduce::<$o>(level),
                Over::Inclusive => pick_inclusive::<$o>(level),
                Over::Exclusive => only_fold::<$o>(over),
            }
        };
    }
    macro_rules! only {
        ($o:ty) => {
            only_fold::<$o>(over)
        };
    }
    macro_rules! ints {
        ($op:ident, $i8:ty, $i16:ty, $i32:ty, $i64:ty) => {
            match s {
                Scalar::I8 => only!($op<$i8>),
                Scalar::U8 | Scalar::Bool => only!($op<u8>),
                Scalar::I16 => only!($op<$i16>),
                Scalar::U16 => only!($op<u16>),
                Scalar::I32 => pick!($op<$i32>),
                Scalar::U32 => pick!($op<u32>),
                Scalar::I64 => only!($op<$i64>),
                Scalar::U64 => only!($op<u64>),
                _ => return None,
            }
        };
    }
    Some(match (op, s) {
        (ReduceOp::Sum, Scalar::F16) => pick!(F16<0>),
        (ReduceOp::Sum, Scalar::BF16) => pick!(Bf16<0>),
        (ReduceOp::Sum, Scalar::F32) => pick!(F32<0>),
        (ReduceOp::Sum, Scalar::F64) => only!(F64<0>),
        (ReduceOp::Product, Scalar::F16) => only!(F16<2>),
        (ReduceOp::Product, Scalar::BF16) => only!(Bf16<2>),
        (ReduceOp::Product, Scalar::F32) => pick!(F32<2>),
        (ReduceOp::Product, Scalar::F64) => only!(F64<2>),
        (ReduceOp::Min, Scalar::F64) => only!(F64<5>),
        (ReduceOp::Max, Scalar::F64) => only!(F64<6>),
        (ReduceOp::Min, Scalar::F16 | Scalar::BF16 | Scalar::F32) => pick!(F32<5>),
        (ReduceOp::Max, Scalar::F16 | Scalar::BF16 | Scalar::F32) => pick!(F32<6>),
        (ReduceOp::Sum, _) => ints!(Add, u8, u16, u32, u64),
        (ReduceOp::Product, _) => ints!(Mul, u8, u16, u32, u64),
        (ReduceOp::Min, _) => ints!(Min, i8, i16, i32, i64),
        (ReduceOp::Max, _) => ints!(Max, i8, i16, i32, i64),
        (ReduceOp::And, _) => ints!(And, u8, u16, u32, u64),
        (ReduceOp::Or, _) => ints!(Or, u8, u16, u32, u64),
        (ReduceOp::Xor, _) => ints!(Xor, u8, u16, u32, u64),
    })
}
