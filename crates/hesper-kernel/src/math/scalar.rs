//! The IR's scalar operations on bits: the definition every executor is held to.
//!
//! A scalar of any type travels as a `u64`: its bits, zero-extended, `Bool` as 0 or 1. These
//! functions take well-typed operands (the verifier's business); for an operation that does not
//! exist for a type they give 0. Useful to fold constants, too.

use super::convert::*;
use super::*;
use crate::ir::{AtomicOp, BinaryOp, CmpOp, ReduceOp, Scalar, TernaryOp, TestOp, UnaryOp};

/// The bits that belong to the type.
#[inline]
fn mask(s: Scalar) -> u64 {
    u64::MAX >> (64 - s.bits())
}

/// An integer (or bool) as a number.
#[inline]
pub fn to_int(s: Scalar, x: u64) -> i128 {
    match s {
        Scalar::I8 => i128::from(x as i8),
        Scalar::I16 => i128::from(x as i16),
        Scalar::I32 => i128::from(x as i32),
        Scalar::I64 => i128::from(x as i64),
        _ => i128::from(x & mask(s)),
    }
}

/// A number wrapped into an integer type.
#[inline]
pub fn from_int(s: Scalar, x: i128) -> u64 {
    x as u64 & mask(s)
}

/// A float of at most 32 bits as f32.
#[inline]
pub(crate) fn to_f32(s: Scalar, x: u64) -> f32 {
    match s {
        Scalar::F16 => f16_to_f32(x as u16),
        Scalar::BF16 => bf16_to_f32(x as u16),
        _ => f32::from_bits(x as u32),
    }
}

/// An f32 rounded to a float type of at most 32 bits.
#[inline]
pub(crate) fn from_f32(s: Scalar, x: f32) -> u64 {
    match s {
        Scalar::F16 => u64::from(f32_to_f16(x)),
        Scalar::BF16 => u64::from(f32_to_bf16(x)),
        _ => u64::from(x.to_bits()),
    }
}

/// The least and the greatest number of an integer type.
#[inline]
pub fn int_range(s: Scalar) -> (i128, i128) {
    let bits = s.bits();
    if s.is_signed_int() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// A one-operand operation.
pub fn unary(op: UnaryOp, s: Scalar, x: u64) -> u64 {
    match s {
        Scalar::Bool => match op {
            UnaryOp::Not => x ^ 1,
            _ => 0,
        },
        Scalar::F64 => unary_f64(op, f64::from_bits(x)).map_or(0, f64::to_bits),
        Scalar::F16 | Scalar::BF16 | Scalar::F32 => match op {
            // Bit operations, so that NaNs keep their payload.
            UnaryOp::Neg => x ^ (1 << (s.bits() - 1)),
            UnaryOp::Abs => x & (mask(s) >> 1),
            _ => unary_f32(op, to_f32(s, x)).map_or(0, |y| from_f32(s, y)),
        },
        _ => {
            let i = to_int(s, x);
            let bits = s.bits();
            match op {
                UnaryOp::Neg => from_int(s, -i),
                UnaryOp::Not => !x & mask(s),
                UnaryOp::Abs => from_int(s, i.abs()),
                UnaryOp::Sign => from_int(s, i.signum()),
                UnaryOp::PopCount => u64::from(x.count_ones()),
                UnaryOp::Clz => u64::from(x.leading_zeros() - (64 - bits)),
                UnaryOp::Ctz => u64::from(x.trailing_zeros().min(bits)),
                UnaryOp::ReverseBits => x.reverse_bits() >> (64 - bits),
                _ => 0,
            }
        }
    }
}

/// A two-operand operation. Integer division by zero gives 0. For `Ldexp`, `b` is an `I32`.
pub fn binary(op: BinaryOp, s: Scalar, a: u64, b: u64) -> u64 {
    match s {
        Scalar::Bool => match op {
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            _ => 0,
        },
        Scalar::F64 => match op {
            BinaryOp::Ldexp => double::ldexp(f64::from_bits(a), b as i32).to_bits(),
            _ => {
                let r = binary_f64(op, f64::from_bits(a), f64::from_bits(b));
                r.map_or(0, f64::to_bits)
            }
        },
        Scalar::F16 | Scalar::BF16 => match op {
            BinaryOp::NextAfter => next_after_narrow(s, a, b),
            BinaryOp::Ldexp => from_f32(s, ldexp(to_f32(s, a), b as i32)),
            _ => {
                let r = binary_f32(op, to_f32(s, a), to_f32(s, b));
                r.map_or(0, |y| from_f32(s, y))
            }
        },
        Scalar::F32 => match op {
            BinaryOp::Ldexp => from_f32(s, ldexp(to_f32(s, a), b as i32)),
            _ => {
                let r = binary_f32(op, to_f32(s, a), to_f32(s, b));
                r.map_or(0, |y| from_f32(s, y))
            }
        },
        _ => binary_int(op, s, a, b),
    }
}

fn binary_int(op: BinaryOp, s: Scalar, a: u64, b: u64) -> u64 {
    use BinaryOp as B;
    let (x, y) = (to_int(s, a), to_int(s, b));
    let bits = s.bits();
    let count = (b as u32) & (bits - 1);
    let (least, greatest) = int_range(s);
    let r = match op {
        B::Add => x + y,
        B::Sub => x - y,
        B::Mul => x.wrapping_mul(y),
        B::Div => x.checked_div(y).unwrap_or(0),
        B::Rem => x.checked_rem(y).unwrap_or(0),
        B::Min | B::MinNan => x.min(y),
        B::Max | B::MaxNan => x.max(y),
        B::And => x & y,
        B::Or => x | y,
        B::Xor => x ^ y,
        B::Shl => x << count,
        B::Shr => x >> count,
        B::Rotate => {
            let left = a << count;
            // A count of 0 would shift by the whole width.
            let right = (a & mask(s)).checked_shr(bits - count).unwrap_or(0);
            return (left | right) & mask(s);
        }
        B::MulHi => {
            return if s.is_signed_int() {
                from_int(s, (x * y) >> bits)
            } else {
                (((x as u128) * (y as u128)) >> bits) as u64 & mask(s)
            };
        }
        B::AddSat => (x + y).clamp(least, greatest),
        B::SubSat => (x - y).clamp(least, greatest),
        B::AbsDiff => (x - y).abs(),
        B::Hadd => (x + y) >> 1,
        B::Rhadd => (x + y + 1) >> 1,
        _ => 0,
    };
    from_int(s, r)
}

/// `nextafter` in the steps of a 16-bit float.
fn next_after_narrow(s: Scalar, a: u64, b: u64) -> u64 {
    let (x, y) = (to_f32(s, a), to_f32(s, b));
    if x.is_nan() || y.is_nan() {
        return from_f32(s, f32::NAN);
    }
    if x == y {
        return b;
    }
    if x == 0.0 {
        return 1 | (u64::from(y < 0.0) << 15);
    }
    if (y > x) == (x > 0.0) { a + 1 } else { a - 1 }
}

/// A three-operand operation.
pub fn ternary(op: TernaryOp, s: Scalar, a: u64, b: u64, c: u64) -> u64 {
    match op {
        TernaryOp::Clamp => binary(BinaryOp::Min, s, binary(BinaryOp::Max, s, a, b), c),
        TernaryOp::Fma => match s {
            Scalar::F64 => f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits(),
            _ if s.is_float() => from_f32(s, fma(to_f32(s, a), to_f32(s, b), to_f32(s, c))),
            _ => binary(BinaryOp::Add, s, binary(BinaryOp::Mul, s, a, b), c),
        },
    }
}

/// A comparison.
pub fn compare(op: CmpOp, s: Scalar, a: u64, b: u64) -> bool {
    let order = if s == Scalar::F64 {
        f64::from_bits(a).partial_cmp(&f64::from_bits(b))
    } else if s.is_float() {
        to_f32(s, a).partial_cmp(&to_f32(s, b))
    } else {
        Some(to_int(s, a).cmp(&to_int(s, b)))
    };
    match op {
        CmpOp::Eq => order.is_some_and(|o| o.is_eq()),
        CmpOp::Ne => !order.is_some_and(|o| o.is_eq()),
        CmpOp::Lt => order.is_some_and(|o| o.is_lt()),
        CmpOp::Le => order.is_some_and(|o| o.is_le()),
        CmpOp::Gt => order.is_some_and(|o| o.is_gt()),
        CmpOp::Ge => order.is_some_and(|o| o.is_ge()),
    }
}

/// A classification.
pub fn test(op: TestOp, s: Scalar, x: u64) -> bool {
    match (s, op) {
        (Scalar::F64, _) => test_f64(op, f64::from_bits(x)),
        // Normal: an exponent neither all zeros nor all ones.
        (Scalar::F16, TestOp::IsNormal) => !matches!(x & 0x7c00, 0 | 0x7c00),
        _ => test_f32(op, to_f32(s, x)),
    }
}

/// The exponent of `frexp`, as the bits of an `I32`.
pub fn frexp_exp(s: Scalar, x: u64) -> u64 {
    let e = match s {
        Scalar::F64 => frexp_f64(f64::from_bits(x)).1,
        _ => frexp_f32(to_f32(s, x)).1,
    };
    u64::from(e as u32)
}

/// Value conversion, see [`crate::ir::Op::Convert`].
pub fn convert(from: Scalar, to: Scalar, x: u64) -> u64 {
    if from == to {
        return x;
    }
    if to == Scalar::Bool {
        let zero = match from {
            Scalar::F64 => f64::from_bits(x) == 0.0,
            _ if from.is_float() => to_f32(from, x) == 0.0,
            _ => x & mask(from) == 0,
        };
        return u64::from(!zero);
    }
    if from == Scalar::F64 {
        let d = f64::from_bits(x);
        return match to {
            Scalar::F16 => u64::from(f64_to_f16(d)),
            Scalar::BF16 => u64::from(f64_to_bf16(d)),
            Scalar::F32 => u64::from((d as f32).to_bits()),
            _ => float_to_int(to, d),
        };
    }
    if from.is_float() {
        let f = to_f32(from, x);
        return match to {
            Scalar::F64 => f64::from(f).to_bits(),
            _ if to.is_float() => from_f32(to, f),
            _ => float_to_int(to, f64::from(f)),
        };
    }
    if to.is_int() {
        return from_int(to, to_int(from, x));
    }
    if from == Scalar::U64 {
        return match to {
            Scalar::F16 => u64::from(u64_to_f16(x)),
            Scalar::BF16 => u64::from(u64_to_bf16(x)),
            Scalar::F32 => u64::from((x as f32).to_bits()),
            _ => (x as f64).to_bits(),
        };
    }
    let i = to_int(from, x) as i64;
    match to {
        Scalar::F16 => u64::from(i64_to_f16(i)),
        Scalar::BF16 => u64::from(i64_to_bf16(i)),
        Scalar::F32 => u64::from((i as f32).to_bits()),
        _ => (i as f64).to_bits(),
    }
}

/// Truncates, saturates, NaN to 0.
fn float_to_int(to: Scalar, x: f64) -> u64 {
    let (least, greatest) = int_range(to);
    from_int(to, (x as i128).clamp(least, greatest))
}

/// The value a lane outside a group reduction or scan stands for.
pub fn identity(op: ReduceOp, s: Scalar) -> u64 {
    let (least, greatest) = if s.is_float() || s == Scalar::Bool { (0, 0) } else { int_range(s) };
    match op {
        ReduceOp::Sum | ReduceOp::Or | ReduceOp::Xor => 0,
        ReduceOp::Product => convert(Scalar::U8, s, 1),
        ReduceOp::And => {
            if s == Scalar::Bool {
                1
            } else {
                mask(s)
            }
        }
        ReduceOp::Min | ReduceOp::Max if s.is_float() => {
            convert(Scalar::F32, s, u64::from(f32::NAN.to_bits()))
        }
        ReduceOp::Min => from_int(s, greatest),
        ReduceOp::Max => from_int(s, least),
    }
}

/// One step of a reduction or scan.
pub fn reduce(op: ReduceOp, s: Scalar, a: u64, b: u64) -> u64 {
    let op = match op {
        ReduceOp::Sum => BinaryOp::Add,
        ReduceOp::Product => BinaryOp::Mul,
        ReduceOp::Min => BinaryOp::Min,
        ReduceOp::Max => BinaryOp::Max,
        ReduceOp::And => BinaryOp::And,
        ReduceOp::Or => BinaryOp::Or,
        ReduceOp::Xor => BinaryOp::Xor,
    };
    binary(op, s, a, b)
}

/// The new value of an atomic update.
pub fn atomic(op: AtomicOp, s: Scalar, old: u64, operand: u64) -> u64 {
    let op = match op {
        AtomicOp::Exchange => return operand,
        AtomicOp::Add => BinaryOp::Add,
        AtomicOp::Sub => BinaryOp::Sub,
        AtomicOp::Min => BinaryOp::Min,
        AtomicOp::Max => BinaryOp::Max,
        AtomicOp::And => BinaryOp::And,
        AtomicOp::Or => BinaryOp::Or,
        AtomicOp::Xor => BinaryOp::Xor,
    };
    binary(op, s, old, operand)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f(x: f32) -> u64 {
        u64::from(x.to_bits())
    }

    #[test]
    fn integers_wrap_saturate_and_shift_by_the_count_modulo_the_width() {
        let i8s = |x: i8| u64::from(x as u8);
        use BinaryOp as B;
        use Scalar::*;
        assert_eq!(binary(B::Add, I8, i8s(127), 1), i8s(-128));
        assert_eq!(binary(B::AddSat, I8, i8s(127), 1), i8s(127));
        assert_eq!(binary(B::SubSat, U8, 3, 5), 0);
        assert_eq!(binary(B::Div, I8, i8s(-128), i8s(-1)), i8s(-128));
        assert_eq!(binary(B::Div, I32, 5, 0), 0);
        assert_eq!(binary(B::Rem, I8, i8s(-7), 3), i8s(-1));
        assert_eq!(binary(B::Shl, U8, 1, 9), 2);
        assert_eq!(binary(B::Shr, I8, i8s(-128), 7), i8s(-1));
        assert_eq!(binary(B::Shr, U8, 0x80, 7), 1);
        assert_eq!(binary(B::Rotate, U8, 0x81, 1), 0x03);
        assert_eq!(binary(B::Rotate, U64, 5, 0), 5);
        assert_eq!(binary(B::MulHi, U64, u64::MAX, u64::MAX), u64::MAX - 1);
        assert_eq!(binary(B::MulHi, I64, u64::MAX, 1), u64::MAX);
        assert_eq!(binary(B::MulHi, I64, 1 << 63, 1 << 63), 1 << 62);
        assert_eq!(binary(B::Mul, U64, u64::MAX, u64::MAX), 1);
        assert_eq!(binary(B::Rhadd, U8, 255, 254), 255);
        assert_eq!(binary(B::Hadd, I8, i8s(-1), i8s(-2)), i8s(-2));
        assert_eq!(binary(B::AbsDiff, U8, 3, 5), 2);
        assert_eq!(unary(UnaryOp::Clz, U16, 1), 15);
        assert_eq!(unary(UnaryOp::Ctz, U16, 0), 16);
        assert_eq!(unary(UnaryOp::ReverseBits, U8, 0b0000_0110), 0b0110_0000);
        assert_eq!(unary(UnaryOp::Neg, U32, 1), 0xffff_ffff);
        assert_eq!(unary(UnaryOp::Abs, I8, i8s(-128)), i8s(-128));
    }

    #[test]
    fn conversions_saturate_and_round_once() {
        use Scalar::*;
        assert_eq!(convert(F32, I8, f(-300.7)), 0x80);
        assert_eq!(convert(F32, U8, f(-3.0)), 0);
        assert_eq!(convert(F32, U64, f(f32::INFINITY)), u64::MAX);
        assert_eq!(convert(F32, I64, f(f32::INFINITY)), i64::MAX as u64);
        assert_eq!(convert(F32, I32, f(f32::NAN)), 0);
        assert_eq!(convert(F32, I32, f(-1.9)), 0xffff_ffff);
        assert_eq!(convert(I32, U8, 0x1_02), 2);
        assert_eq!(convert(I8, U64, 0xff), u64::MAX);
        assert_eq!(convert(F32, Bool, f(f32::NAN)), 1);
        assert_eq!(convert(F32, Bool, f(-0.0)), 0);
        assert_eq!(convert(Bool, F16, 1), 0x3c00);
        assert_eq!(convert(I64, F32, (1 << 24) + 1), f(16_777_216.0));
        assert_eq!(convert(U64, BF16, u64::MAX), 0x5f80);
    }

    #[test]
    fn half_arithmetic_rounds_after_each_operation() {
        // 2048 + 1 is a tie in f16 and rounds to even.
        assert_eq!(binary(BinaryOp::Add, Scalar::F16, 0x6800, 0x3c00), 0x6800);
        assert_eq!(binary(BinaryOp::Add, Scalar::BF16, 0x4380, 0x3f80), 0x4380);
        let next = binary(BinaryOp::NextAfter, Scalar::F16, 0x3c00, 0x4000);
        assert_eq!(next, 0x3c01);
        let down = binary(BinaryOp::NextAfter, Scalar::BF16, 0, 0xbf80);
        assert_eq!(down, 0x8001);
        assert!(!test(TestOp::IsNormal, Scalar::F16, 1));
        assert!(test(TestOp::IsNormal, Scalar::F16, 0x3c00));
    }

    #[test]
    fn comparisons_with_nan_hold_only_for_not_equal() {
        let nan = f(f32::NAN);
        for op in [CmpOp::Eq, CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge] {
            assert!(!compare(op, Scalar::F32, nan, f(1.0)));
        }
        assert!(compare(CmpOp::Ne, Scalar::F32, nan, nan));
        assert!(compare(CmpOp::Eq, Scalar::F32, f(0.0), f(-0.0)));
        assert!(compare(CmpOp::Lt, Scalar::I8, 0xff, 0));
        assert!(compare(CmpOp::Gt, Scalar::U8, 0xff, 0));
    }

    #[test]
    fn identities_change_nothing() {
        for s in Scalar::ALL {
            let values = [0, 1, convert(Scalar::U8, s, 1)];
            for op in [
                ReduceOp::Sum,
                ReduceOp::Product,
                ReduceOp::Min,
                ReduceOp::Max,
                ReduceOp::And,
                ReduceOp::Or,
                ReduceOp::Xor,
            ] {
                let bitwise = matches!(op, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor);
                if (bitwise && s.is_float()) || (!bitwise && s == Scalar::Bool) {
                    continue;
                }
                for v in values {
                    assert_eq!(reduce(op, s, v, identity(op, s)), v, "{op:?} of {s}");
                    assert_eq!(reduce(op, s, identity(op, s), v), v, "{op:?} of {s}");
                }
            }
        }
    }
}
