//! The IR's scalar ops on bits: the definition that every executor must match, and constant folding.
//!
//! A scalar of any type is passed as a `u64`: its bits, zero-extended, `Bool` as 0 or 1. These functions take
//! well-typed operands, which the verifier ensures; for an op that does not take the type they give 0.

use super::convert::{self, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::op::{Fold, Native, Op1, Op2, Op3, Visit1, Visit2, Visit3};
use super::ops;
use crate::ir::{AtomicOp, BinaryOp, Builder, CmpOp, ReduceOp, Scalar, TernaryOp, Type, UnaryOp, ValueId};

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

/// The least and the greatest number of an integer type.
#[inline]
pub fn int_range(s: Scalar) -> (i128, i128) {
    let bits = s.bits();
    if s.is_signed_int() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// The bits of a scalar in a lane: those of an f32 for f16 and bf16.
#[inline]
pub(crate) fn to_lane(s: Scalar, x: u64) -> u64 {
    match s {
        Scalar::F16 => u64::from(f16_to_f32(x as u16).to_bits()),
        Scalar::BF16 => u64::from(bf16_to_f32(x as u16).to_bits()),
        _ => x,
    }
}

/// The bits of a scalar from those of its lane, rounded to f16 and bf16.
#[inline]
pub(crate) fn from_lane(s: Scalar, x: u64) -> u64 {
    match s {
        Scalar::F16 => u64::from(f32_to_f16(f32::from_bits(x as u32))),
        Scalar::BF16 => u64::from(f32_to_bf16(f32::from_bits(x as u32))),
        _ => x,
    }
}

/// Calls a function on lanes.
struct Call<const N: usize>([u64; N]);

impl Visit1 for Call<1> {
    type Out = u64;
    fn visit<O: Op1>(self) -> u64 {
        O::full(O::A::from_bits64(self.0[0])).to_bits64()
    }
}

impl Visit2 for Call<2> {
    type Out = u64;
    fn visit<O: Fold>(self) -> u64 {
        self.mixed::<O>()
    }
    fn mixed<O: Op2>(self) -> u64 {
        O::full(O::A::from_bits64(self.0[0]), O::B::from_bits64(self.0[1])).to_bits64()
    }
}

impl Visit3 for Call<3> {
    type Out = u64;
    fn visit<O: Op3>(self) -> u64 {
        let [a, b, c] = self.0;
        O::full(O::A::from_bits64(a), O::B::from_bits64(b), O::B::from_bits64(c)).to_bits64()
    }
}

/// An op of one operand.
pub fn unary(op: UnaryOp, s: Scalar, x: u64) -> u64 {
    let y = ops::unary::visit(op, s, Call([to_lane(s, x)]));
    y.map_or(0, |y| from_lane(op.result(s), y))
}

/// An op of two operands.
pub fn binary(op: BinaryOp, s: Scalar, a: u64, b: u64) -> u64 {
    let y = ops::binary::visit(op, s, Call([to_lane(s, a), to_lane(op.right(s), b)]));
    y.map_or(0, |y| from_lane(s, y))
}

/// An op of three operands.
pub fn ternary(op: TernaryOp, s: Scalar, a: u64, b: u64, c: u64) -> u64 {
    let y = ops::ternary::visit(op, s, Call([a, b, c].map(|x| to_lane(s, x))));
    y.map_or(0, |y| from_lane(s, y))
}

/// A comparison.
pub fn compare(op: CmpOp, s: Scalar, a: u64, b: u64) -> bool {
    ops::compare::visit(op, s, Call([to_lane(s, a), to_lane(s, b)])) != 0
}

/// Value conversion, see [`crate::ir::Op::Convert`].
pub fn convert(from: Scalar, to: Scalar, x: u64) -> u64 {
    if from == to {
        return x;
    }
    from_lane(to, convert::visit(from, to, Call([to_lane(from, x)])))
}

impl Builder {
    /// A constant of a number type nearest to `x` (integers saturate); a vector type gives all
    /// components that value.
    pub fn number(&mut self, ty: Type, x: f64) -> ValueId {
        let Some(s) = ty.scalar() else {
            self.fail(format!("{ty} is not a type of numbers"));
            return self.f64(x);
        };
        let bits = convert(Scalar::F64, s, x.to_bits());
        let c = self.constant(s, bits);
        if ty.is_vec() { self.splat(c, ty.lanes()) } else { c }
    }
}

/// The value that an inactive lane contributes to a group reduction or scan.
pub fn identity(op: ReduceOp, s: Scalar) -> u64 {
    let (least, greatest) = if s.is_float() || s == Scalar::Bool { (0, 0) } else { int_range(s) };
    match op {
        ReduceOp::Sum | ReduceOp::Or | ReduceOp::Xor => 0,
        ReduceOp::Product => convert(Scalar::U8, s, 1),
        ReduceOp::And if s == Scalar::Bool => 1,
        ReduceOp::And => mask(s),
        ReduceOp::Min | ReduceOp::Max if s.is_float() => {
            convert(Scalar::F32, s, u64::from(f32::NAN.to_bits()))
        }
        ReduceOp::Min => from_int(s, greatest),
        ReduceOp::Max => from_int(s, least),
    }
}

/// One step of a reduction or scan.
pub fn reduce(op: ReduceOp, s: Scalar, a: u64, b: u64) -> u64 {
    binary(op.binary(), s, a, b)
}

/// The new value of an atomic update.
pub fn atomic(op: AtomicOp, s: Scalar, old: u64, operand: u64) -> u64 {
    op.binary().map_or(operand, |op| binary(op, s, old, operand))
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
        assert_eq!(unary(UnaryOp::IsNormal, Scalar::F16, 1), 0);
        assert_eq!(unary(UnaryOp::IsNormal, Scalar::F16, 0x3c00), 1);
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
            for &op in ReduceOp::ALL {
                if !op.binary().operands().accept(s) {
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
