//! One-operand arithmetic and functions, classifications, copies.

use std::marker::PhantomData;

use super::{Fn1, Op1, by_scalar, only1, pick1};
use crate::exec::level::SimdLevel;
use crate::ir::{Scalar, TestOp, UnaryOp};
use crate::math;

/// One-operand integer arithmetic.
trait Int1: Copy {
    fn neg(self) -> Self;
    fn not(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    fn pop_count(self) -> Self;
    fn clz(self) -> Self;
    fn ctz(self) -> Self;
    fn reverse_bits(self) -> Self;
}

macro_rules! int1 {
    ($($t:ident: |$x:ident| $abs:expr, $sign:expr;)+) => {$(
        impl Int1 for $t {
            #[inline(always)]
            fn neg(self) -> $t { self.wrapping_neg() }
            #[inline(always)]
            fn not(self) -> $t { !self }
            #[inline(always)]
            fn abs(self) -> $t { let $x = self; $abs }
            #[inline(always)]
            fn sign(self) -> $t { let $x = self; $sign }
            #[inline(always)]
            fn pop_count(self) -> $t { self.count_ones() as $t }
            #[inline(always)]
            fn clz(self) -> $t { self.leading_zeros() as $t }
            #[inline(always)]
            fn ctz(self) -> $t { self.trailing_zeros() as $t }
            #[inline(always)]
            fn reverse_bits(self) -> $t { $t::reverse_bits(self) }
        }
    )+};
}

int1! {
    i8: |x| x.wrapping_abs(), x.signum();
    i16: |x| x.wrapping_abs(), x.signum();
    i32: |x| x.wrapping_abs(), x.signum();
    i64: |x| x.wrapping_abs(), x.signum();
    u8: |x| x, u8::from(x != 0);
    u16: |x| x, u16::from(x != 0);
    u32: |x| x, u32::from(x != 0);
    u64: |x| x, u64::from(x != 0);
}

macro_rules! int_ops {
    ($($name:ident $f:ident),+) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: Int1> Op1 for $name<T> {
            type A = T;
            type R = T;
            #[inline(always)]
            fn f(a: T) -> T {
                a.$f()
            }
        }
    )+};
}
int_ops!(Neg neg, Not not, Abs abs, Sign sign, PopCount pop_count, Clz clz, Ctz ctz, ReverseBits reverse_bits);

struct NotBool;
impl Op1 for NotBool {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn f(a: u8) -> u8 {
        a ^ 1
    }
}

/// A copy of the lanes.
struct Same<T>(PhantomData<T>);
impl<T: Copy> Op1 for Same<T> {
    type A = T;
    type R = T;
    #[inline(always)]
    fn f(a: T) -> T {
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

/// The float operations by number, for use as a constant parameter. The first [`EXACT`] give a
/// value of a 16-bit operand's type without rounding.
const FLOAT: [UnaryOp; 38] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sign,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::Round,
    UnaryOp::Rint,
    UnaryOp::Trunc,
    UnaryOp::FrexpMant,
    UnaryOp::Fract,
    UnaryOp::Sqrt,
    UnaryOp::Rsqrt,
    UnaryOp::Cbrt,
    UnaryOp::Exp,
    UnaryOp::Exp2,
    UnaryOp::Exp10,
    UnaryOp::Expm1,
    UnaryOp::Log,
    UnaryOp::Log2,
    UnaryOp::Log10,
    UnaryOp::Log1p,
    UnaryOp::SinPi,
    UnaryOp::CosPi,
    UnaryOp::TanPi,
    UnaryOp::Asin,
    UnaryOp::Acos,
    UnaryOp::Atan,
    UnaryOp::Sinh,
    UnaryOp::Cosh,
    UnaryOp::Tanh,
    UnaryOp::Asinh,
    UnaryOp::Acosh,
    UnaryOp::Atanh,
    UnaryOp::Erf,
    UnaryOp::Erfc,
    UnaryOp::ErfInv,
    UnaryOp::Lgamma,
    UnaryOp::Sigmoid,
];
const EXACT: usize = 9;

struct F32<const OP: usize>;
impl<const OP: usize> Op1 for F32<OP> {
    type A = f32;
    type R = f32;
    #[inline(always)]
    fn f(a: f32) -> f32 {
        math::unary_f32(const { FLOAT[OP] }, a).unwrap_or(f32::NAN)
    }
}

macro_rules! trigonometric {
    ($t:ty, $limit:path; $($name:ident $core:path, $full:path;)+) => {$(
        struct $name;
        impl Op1 for $name {
            type A = $t;
            type R = $t;
            #[inline(always)]
            fn f(a: $t) -> $t {
                $core(a)
            }
            const RARE: bool = true;
            #[inline(always)]
            fn is_rare(a: $t) -> bool {
                a.abs() > $limit
            }
            #[inline(always)]
            fn redo(a: $t) -> $t {
                $full(a)
            }
        }
    )+};
}
trigonometric! { f32, math::TRIG_LIMIT;
    Sin math::sin_core, math::sin;
    Cos math::cos_core, math::cos;
    Tan math::tan_core, math::tan;
}
trigonometric! { f64, math::double::TRIG_LIMIT64;
    Sin64 math::double::sin_core64, math::double::sin64;
    Cos64 math::double::cos_core64, math::double::cos64;
    Tan64 math::double::tan_core64, math::double::tan64;
}

struct F64<const OP: usize>;
impl<const OP: usize> Op1 for F64<OP> {
    type A = f64;
    type R = f64;
    #[inline(always)]
    fn f(a: f64) -> f64 {
        math::unary_f64(const { FLOAT[OP] }, a).unwrap_or(f64::NAN)
    }
}

/// The kernel of a one-operand operation, and whether its result still has to be rounded to a
/// 16-bit float type. `None` where the verifier allows no such operation.
pub(in crate::exec) fn unary(op: UnaryOp, s: Scalar, level: SimdLevel) -> Option<(Fn1, bool)> {
    use UnaryOp as U;
    if s.is_float() {
        return float(op, s, level);
    }
    macro_rules! any_sign {
        ($op:ident) => {
            by_scalar!(s, level, $op:
                pick1 { I32 => u32, U32 => u32, I64 => u64, U64 => u64 }
                only1 { I8 => u8, U8 => u8, I16 => u16, U16 => u16 })
        };
    }
    macro_rules! signed {
        ($op:ident) => {
            by_scalar!(s, level, $op:
                pick1 { I32 => i32, U32 => u32, I64 => i64, U64 => u64 }
                only1 { I8 => i8, U8 => u8, I16 => i16, U16 => u16 })
        };
    }
    let f = match op {
        U::Not if s == Scalar::Bool => Some(pick1::<NotBool>(level)),
        U::Neg => any_sign!(Neg),
        U::Not => any_sign!(Not),
        U::Abs => signed!(Abs),
        U::Sign => signed!(Sign),
        U::PopCount => any_sign!(PopCount),
        U::Clz => any_sign!(Clz),
        U::Ctz => any_sign!(Ctz),
        U::ReverseBits => any_sign!(ReverseBits),
        _ => None,
    };
    f.map(|f| (f, false))
}

fn float(op: UnaryOp, s: Scalar, level: SimdLevel) -> Option<(Fn1, bool)> {
    macro_rules! pick {
        ($($n:literal)+; $($scalar:literal)+) => {
            match (s, FLOAT.iter().position(|&f| f == op)?) {
                $((Scalar::F64, $n) => pick1::<F64<$n>>(level),)+
                $((Scalar::F64, $scalar) => only1::<F64<$scalar>>(level),)+
                $((_, $n) => pick1::<F32<$n>>(level),)+
                $((_, $scalar) => pick1::<F32<$scalar>>(level),)+
                _ => return None,
            }
        };
    }
    let f = match (op, s) {
        (UnaryOp::Sin, Scalar::F64) => pick1::<Sin64>(level),
        (UnaryOp::Cos, Scalar::F64) => pick1::<Cos64>(level),
        (UnaryOp::Tan, Scalar::F64) => pick1::<Tan64>(level),
        (UnaryOp::Sin, _) => pick1::<Sin>(level),
        (UnaryOp::Cos, _) => pick1::<Cos>(level),
        (UnaryOp::Tan, _) => pick1::<Tan>(level),
        // Behind the semicolon those that are scalar in f64.
        _ => pick!(0 1 2 3 4 5 6 7 9 10 11 13 14 16 17 18 20 24 25 26 27 28 29 30 31 32 33 34 37;
            8 12 15 19 21 22 23 35 36),
    };
    let exact = FLOAT[..EXACT].contains(&op);
    Some((f, !exact))
}

macro_rules! frexp_exp {
    ($name:ident, $t:ty, $f:path) => {
        struct $name;
        impl Op1 for $name {
            type A = $t;
            type R = i32;
            #[inline(always)]
            fn f(a: $t) -> i32 {
                $f(a).1
            }
        }
    };
}
frexp_exp!(FrexpExp32, f32, math::frexp_f32);
frexp_exp!(FrexpExp64, f64, math::frexp_f64);

/// The exponent of `frexp`.
pub(in crate::exec) fn frexp_exp(s: Scalar, level: SimdLevel) -> Fn1 {
    if s == Scalar::F64 { only1::<FrexpExp64>(level) } else { only1::<FrexpExp32>(level) }
}

const TESTS: [TestOp; 5] =
    [TestOp::IsNan, TestOp::IsInf, TestOp::IsFinite, TestOp::IsNormal, TestOp::SignBit];

struct Test32<const OP: usize>;
impl<const OP: usize> Op1 for Test32<OP> {
    type A = f32;
    type R = u8;
    #[inline(always)]
    fn f(a: f32) -> u8 {
        u8::from(math::test_f32(const { TESTS[OP] }, a))
    }
}

struct Test64<const OP: usize>;
impl<const OP: usize> Op1 for Test64<OP> {
    type A = f64;
    type R = u8;
    #[inline(always)]
    fn f(a: f64) -> u8 {
        u8::from(math::test_f64(const { TESTS[OP] }, a))
    }
}

/// f16 subnormals are normal in f32.
struct NormalF16;
impl Op1 for NormalF16 {
    type A = f32;
    type R = u8;
    #[inline(always)]
    fn f(a: f32) -> u8 {
        u8::from(a.abs() >= 6.103_515_6e-5 && a.abs() < f32::INFINITY)
    }
}

/// The kernel of a classification.
pub(in crate::exec) fn test(op: TestOp, s: Scalar, level: SimdLevel) -> Option<Fn1> {
    if (op, s) == (TestOp::IsNormal, Scalar::F16) {
        return Some(only1::<NormalF16>(level));
    }
    macro_rules! pick {
        ($($n:literal)+) => {
            match (s == Scalar::F64, TESTS.iter().position(|&t| t == op)?) {
                $((true, $n) => Some(only1::<Test64<$n>>(level)),)+
                $((false, $n) => Some(pick1::<Test32<$n>>(level)),)+
                _ => None,
            }
        };
    }
    pick!(0 1 2 3 4)
}
