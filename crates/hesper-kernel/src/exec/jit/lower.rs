//! The instructions of each node.
//!
//! Each computes what the executor's lane function for the operation computes, bit for bit (up
//! to the payload of NaN): where the processor's instruction differs (minima, saturating
//! conversions, 16-bit NaNs) the difference is mended lane by lane. Operations that are not
//! worth it are not here; [`is_native`] tells, and the others become calls.
//!
//! A destination is never one of the operands, and operands are never temporaries.

use super::asm::{Mem, Opcode, Vr};
use super::node::{Node, is_long};
use super::vector::*;
use crate::ir::{BinaryOp, CmpOp, Scalar, TernaryOp, TestOp, UnaryOp};

const ONE: u32 = 0x3f80_0000;
const INFINITY: u32 = 0x7f80_0000;

fn is_half(s: Scalar) -> bool {
    matches!(s, Scalar::F16 | Scalar::BF16)
}

/// Whether a node has instructions of its own; `wide` says AVX-512.
pub(super) fn is_native(node: &Node, wide: bool) -> bool {
    match *node {
        Node::Unary(op, s, _) => native_unary(op, s),
        Node::Binary(op, s, ..) => native_binary(op, s),
        Node::Convert(from, to, _) => native_convert(from, to, wide),
        Node::Ternary(_, s, ..) => s != Scalar::Bool,
        _ => true,
    }
}

fn native_unary(op: UnaryOp, s: Scalar) -> bool {
    use UnaryOp as U;
    match s {
        Scalar::Bool => op == U::Not,
        s if s.is_float() => matches!(
            op,
            U::Neg
                | U::Abs
                | U::Sign
                | U::Floor
                | U::Ceil
                | U::Round
                | U::Rint
                | U::Trunc
                | U::Fract
                | U::Sqrt
                | U::Rsqrt
        ),
        _ => matches!(op, U::Neg | U::Not | U::Abs | U::Sign),
    }
}

fn native_binary(op: BinaryOp, s: Scalar) -> bool {
    use BinaryOp as B;
    match s {
        Scalar::Bool => matches!(op, B::And | B::Or | B::Xor),
        s if s.is_float() => matches!(
            op,
            B::Add | B::Sub | B::Mul | B::Div | B::Min | B::Max | B::MinNan | B::MaxNan | B::CopySign
        ),
        _ => matches!(
            op,
            B::Add
                | B::Sub
                | B::Mul
                | B::Min
                | B::Max
                | B::MinNan
                | B::MaxNan
                | B::And
                | B::Or
                | B::Xor
                | B::Shl
                | B::Shr
        ),
    }
}

fn native_convert(from: Scalar, to: Scalar, wide: bool) -> bool {
    match (from, to) {
        (Scalar::U32, Scalar::F32) => wide,
        (Scalar::F16 | Scalar::BF16 | Scalar::F32, Scalar::U32) => wide,
        // These round twice unless through a wider float.
        (Scalar::I32 | Scalar::U32, Scalar::F16 | Scalar::BF16) => false,
        (Scalar::I64 | Scalar::U64 | Scalar::F64, Scalar::F16 | Scalar::BF16) => false,
        (Scalar::I64 | Scalar::U64, to) if to.is_float() => wide,
        (from, Scalar::I64 | Scalar::U64) if from.is_float() => wide,
        _ => true,
    }
}

impl Vector<'_> {
    /// Emits a node: its operands are in `held` where they have lanes, its memory is at `m`.
    pub fn node(&mut self, node: &Node, d: Vr, held: [Vr; 3], m: Mem) {
        let mut r = held;
        for (i, o) in node.operands().enumerate() {
            r[i] = self.operand(i, o, held[i]);
        }
        let [a, b, c] = r;
        self.long = match *node {
            Node::Compare(_, s, ..) | Node::Test(_, s, _) | Node::Store { scalar: s, .. } => is_long(s),
            Node::Convert(from, to, _) => is_long(from) && to == Scalar::Bool,
            _ => node.is_long(),
        };
        match *node {
            Node::Load { pair: Some(which), .. } => self.load_pair(d, m, which),
            Node::StorePair { .. } => self.store_pair(a, b, m),
            Node::Load { scalar, .. } => self.load(scalar, d, m),
            Node::Store { scalar, .. } => self.store_as(scalar, a, m),
            Node::Linear { long, .. } => {
                self.long = false;
                self.numbers(T3);
                if long {
                    self.extend(T3, T3, true);
                }
                self.long = long;
                self.multiply(T0, T3, b);
                self.op3(ADD_D, d, T0, a);
            }
            Node::Unary(op, s, _) if s.is_float() => self.float_unary(op, s, d, a),
            Node::Unary(op, s, _) => self.int_unary(op, s, d, a),
            Node::Binary(op, s, ..) if s.is_float() => self.float_binary(op, s, d, a, b),
            Node::Binary(op, s, ..) => self.int_binary(op, s, d, a, b),
            Node::Ternary(op, s, ..) => self.ternary(op, s, d, a, b, c),
            Node::Compare(op, s, ..) => {
                let cond = if s.is_float() {
                    let how = match op {
                        CmpOp::Eq => EQ,
                        CmpOp::Ne => NE,
                        CmpOp::Lt => LT,
                        CmpOp::Le => LE,
                        CmpOp::Gt => GT,
                        CmpOp::Ge => GE,
                    };
                    self.compare_ps(T2, how, a, b)
                } else {
                    self.compare_d(op, s.is_signed_int(), a, b)
                };
                self.lanes(d, cond);
            }
            Node::Test(op, s, _) => self.test(op, s, d, a),
            Node::Select(..) => {
                let cond = self.condition(a);
                self.blend(d, cond, b, c);
            }
            Node::Convert(from, to, _) if to != Scalar::Bool && (is_long(from) || is_long(to)) => {
                self.convert_long(from, to, d, a);
            }
            Node::Convert(from, to, _) => self.convert(from, to, d, a),
            Node::Call(..) => {}
        }
        self.long = false;
    }

    // ---- Memory ----

    fn load(&mut self, s: Scalar, d: Vr, m: Mem) {
        match s {
            Scalar::F16 => {
                self.fetch(HALF_TO_PS, d, m);
                // The instruction makes NaN quiet; a load keeps its bits.
                self.fetch(SIGN_WORDS, T0, m);
                self.shift(Shift::Left, T0, T0, 13);
                self.with_constant(OR, T0, T0, INFINITY);
                let nan = self.compare_ps(T2, UNORDERED, d, d);
                self.blend(d, nan, T0, d);
            }
            Scalar::BF16 => {
                self.fetch(ZERO_WORDS, d, m);
                self.shift(Shift::Left, d, d, 16);
            }
            Scalar::Bool => {
                self.fetch(ZERO_BYTES, T3, m);
                let zero = self.constant(0);
                let cond = self.compare_d(CmpOp::Ne, true, T3, zero);
                self.lanes(d, cond);
            }
            Scalar::I8 => self.fetch(SIGN_BYTES, d, m),
            Scalar::U8 => self.fetch(ZERO_BYTES, d, m),
            Scalar::I16 => self.fetch(SIGN_WORDS, d, m),
            Scalar::U16 => self.fetch(ZERO_WORDS, d, m),
            _ => self.load_full(d, m),
        }
    }

    fn store_as(&mut self, s: Scalar, a: Vr, m: Mem) {
        match s {
            Scalar::F16 => {
                self.narrow_half(T3, a);
                self.op2(ZERO_WORDS, T3, T3);
                self.shift(Shift::RightSigned, T0, a, 13);
                self.shift(Shift::RightSigned, T1, a, 16);
                self.with_constant(OR, T1, T1, 0x7fff);
                self.op3(AND, T0, T0, T1);
                let nan = self.compare_ps(T2, UNORDERED, a, a);
                self.blend(T0, nan, T0, T3);
                self.narrow(T0, 2);
            }
            Scalar::BF16 => {
                self.shift(Shift::Right, T0, a, 16);
                self.narrow(T0, 2);
            }
            Scalar::Bool => {
                self.with_constant(AND, T0, a, 1);
                self.narrow(T0, 1);
            }
            s if s.size() < 4 => self.narrow(a, s.size() as u8),
            s => return self.store(a, m, s.size() as u8),
        }
        self.store(T3, m, s.size() as u8);
    }

    // ---- Floats ----

    /// Rounds f32 lanes to a 16-bit type. `T0` may be the operand.
    fn round_to(&mut self, s: Scalar, d: Vr, a: Vr) {
        if s == Scalar::F16 {
            self.narrow_half(T3, a);
            self.op2(HALF_TO_PS, d, T3);
            return;
        }
        self.shift(Shift::Right, T3, a, 16);
        self.with_constant(AND, T3, T3, 1);
        self.op3(ADD_D, T3, T3, a);
        self.with_constant(ADD_D, T3, T3, 0x7fff);
        self.with_constant(OR, T1, a, 0x0040_0000);
        let nan = self.compare_ps(T2, UNORDERED, a, a);
        self.blend(T3, nan, T1, T3);
        self.with_constant(AND, d, T3, 0xffff_0000);
    }

    /// Lets `f` compute into the register it is given, and rounds from there where needed.
    fn rounded(&mut self, s: Scalar, d: Vr, f: impl FnOnce(&mut Self, Vr)) {
        if is_half(s) {
            f(self, T0);
            self.round_to(s, d, T0);
        } else {
            f(self, d);
        }
    }

    fn float_unary(&mut self, op: UnaryOp, s: Scalar, d: Vr, a: Vr) {
        match op {
            UnaryOp::Neg => {
                let sign = self.sign();
                self.op3(XOR, d, a, sign);
            }
            UnaryOp::Abs => {
                let magnitude = self.magnitude();
                self.op3(AND, d, a, magnitude);
            }
            UnaryOp::Floor => self.op2_imm(ROUND_PS, d, a, 9),
            UnaryOp::Ceil => self.op2_imm(ROUND_PS, d, a, 10),
            UnaryOp::Trunc => self.op2_imm(ROUND_PS, d, a, 11),
            UnaryOp::Rint => self.op2_imm(ROUND_PS, d, a, 8),
            UnaryOp::Sqrt => self.rounded(s, d, |v, out| v.op2(SQRT_PS, out, a)),
            UnaryOp::Rsqrt => self.rounded(s, d, |v, out| {
                v.op2(SQRT_PS, T1, a);
                let one = v.float(1.0);
                v.op3(DIV_PS, out, one, T1);
            }),
            UnaryOp::Sign => {
                let zero = self.constant(0);
                let above = self.compare_ps(T2, GT, a, zero);
                let one = self.float(1.0);
                self.blend(T0, above, one, a);
                let zero = self.constant(0);
                let below = self.compare_ps(T2, LT, a, zero);
                let minus = self.float(-1.0);
                self.blend(T0, below, minus, T0);
                let nan = self.compare_ps(T2, UNORDERED, a, a);
                let zero = self.constant(0);
                self.blend(d, nan, zero, T0);
            }
            UnaryOp::Round => {
                self.op2_imm(ROUND_PS, T0, a, 11);
                self.op3(SUB_PS, T1, a, T0);
                let magnitude = self.magnitude();
                self.op3(AND, T1, T1, magnitude);
                let half = self.float(0.5);
                let far = self.compare_ps(T2, GE, T1, half);
                let sign = self.sign();
                self.op3(AND, T1, a, sign);
                let one = self.float(1.0);
                self.op3(OR, T3, T1, one);
                self.op3(ADD_PS, T3, T0, T3);
                self.blend(T0, far, T3, T0);
                let magnitude = self.magnitude();
                self.op3(AND, T0, T0, magnitude);
                self.op3(OR, d, T0, T1);
            }
            UnaryOp::Fract => self.rounded(s, d, |v, out| {
                v.op2_imm(ROUND_PS, T1, a, 9);
                v.op3(SUB_PS, T1, a, T1);
                let below = if v.long {
                    v.long_constant(1f64.next_down().to_bits())
                } else {
                    v.constant(1f32.next_down().to_bits())
                };
                let over = v.compare_ps(T2, GT, T1, below);
                v.blend(out, over, below, T1);
            }),
            _ => {}
        }
    }

    fn float_binary(&mut self, op: BinaryOp, s: Scalar, d: Vr, a: Vr, b: Vr) {
        let simple = |o: Opcode| move |v: &mut Self, out: Vr| v.op3(o, out, a, b);
        match op {
            BinaryOp::Add => self.rounded(s, d, simple(ADD_PS)),
            BinaryOp::Sub => self.rounded(s, d, simple(SUB_PS)),
            BinaryOp::Mul => self.rounded(s, d, simple(MUL_PS)),
            BinaryOp::Div => self.rounded(s, d, simple(DIV_PS)),
            BinaryOp::Min => self.least(MIN_PS, OR, d, a, b),
            BinaryOp::Max => self.least(MAX_PS, AND, d, a, b),
            BinaryOp::MinNan => self.least_nan(MIN_PS, OR, d, a, b),
            BinaryOp::MaxNan => self.least_nan(MAX_PS, AND, d, a, b),
            BinaryOp::CopySign => {
                let magnitude = self.magnitude();
                self.op3(AND, T0, a, magnitude);
                let sign = self.sign();
                self.op3(AND, T1, b, sign);
                self.op3(OR, d, T0, T1);
            }
            _ => {}
        }
    }

    /// The instruction's choice in `T0`, with equal operands (zeros of both signs) joined.
    fn joined(&mut self, choose: Opcode, join: Opcode, a: Vr, b: Vr) {
        self.op3(choose, T0, a, b);
        self.op3(join, T1, a, b);
        let equal = self.compare_ps(T2, EQ, a, b);
        self.blend(T0, equal, T1, T0);
    }

    /// Minimum or maximum that prefers numbers to NaN; `T3` may be `a`.
    fn least(&mut self, choose: Opcode, join: Opcode, d: Vr, a: Vr, b: Vr) {
        self.joined(choose, join, a, b);
        // The instruction gives the second operand where one is NaN.
        let nan = self.compare_ps(T2, UNORDERED, b, b);
        self.blend(d, nan, a, T0);
    }

    /// Minimum or maximum that prefers NaN.
    fn least_nan(&mut self, choose: Opcode, join: Opcode, d: Vr, a: Vr, b: Vr) {
        self.joined(choose, join, a, b);
        let nan = self.compare_ps(T2, UNORDERED, a, a);
        self.blend(T0, nan, a, T0);
        let nan = self.compare_ps(T2, UNORDERED, b, b);
        self.blend(d, nan, b, T0);
    }

    fn ternary(&mut self, op: TernaryOp, s: Scalar, d: Vr, a: Vr, b: Vr, c: Vr) {
        match (op, s.is_float()) {
            (TernaryOp::Fma, true) => self.rounded(s, d, |v, out| {
                v.mov(out, c);
                v.op3(FMADD_231_PS, out, a, b);
            }),
            (TernaryOp::Fma, false) => {
                self.multiply(T0, a, b);
                self.op3(ADD_D, d, T0, c);
                self.wrap(s, d, d);
            }
            (TernaryOp::Clamp, true) => {
                self.least(MAX_PS, AND, T3, a, b);
                self.least(MIN_PS, OR, d, T3, c);
            }
            (TernaryOp::Clamp, false) => {
                self.extreme(true, s.is_signed_int(), T3, a, b);
                self.extreme(false, s.is_signed_int(), d, T3, c);
            }
        }
    }

    fn test(&mut self, op: TestOp, s: Scalar, d: Vr, a: Vr) {
        let cond = match op {
            TestOp::SignBit => {
                let mut bits = a;
                if self.long {
                    self.shift(Shift::Right, T0, a, 32);
                    self.long = false;
                    self.low_halves(T1, T0);
                    bits = T1;
                }
                return self.shift(Shift::RightSigned, d, bits, 31);
            }
            TestOp::IsNan => self.compare_ps(T2, UNORDERED, a, a),
            TestOp::IsInf | TestOp::IsFinite => {
                let magnitude = self.magnitude();
                self.op3(AND, T0, a, magnitude);
                let infinity = self.float(f32::INFINITY);
                let how = if op == TestOp::IsInf { EQ } else { LT };
                self.compare_ps(T2, how, T0, infinity)
            }
            TestOp::IsNormal => {
                let magnitude = self.magnitude();
                self.op3(AND, T0, a, magnitude);
                let infinity = self.float(f32::INFINITY);
                let finite = self.compare_ps(T2, LT, T0, infinity);
                self.lanes(T1, finite);
                let least = match s {
                    Scalar::F64 => self.long_constant(f64::MIN_POSITIVE.to_bits()),
                    // Its subnormals are normal in f32.
                    Scalar::F16 => self.constant(0x3880_0000),
                    _ => self.constant(0x0080_0000),
                };
                let normal = self.compare_ps(T2, GE, T0, least);
                self.lanes(T3, normal);
                return self.op3(AND, d, T1, T3);
            }
        };
        self.lanes(d, cond);
    }

    // ---- Integers ----

    /// Extends the low bits of a lane to a narrow type's value.
    pub fn wrap(&mut self, s: Scalar, d: Vr, a: Vr) {
        let spare = 32u32.saturating_sub(s.bits()) as u8;
        match (spare, s.is_signed_int()) {
            (0, _) => self.mov(d, a),
            (_, true) => {
                self.shift(Shift::Left, d, a, spare);
                self.shift(Shift::RightSigned, d, d, spare);
            }
            _ => self.with_constant(AND, d, a, u32::MAX >> spare),
        }
    }

    fn int_unary(&mut self, op: UnaryOp, s: Scalar, d: Vr, a: Vr) {
        match op {
            UnaryOp::Neg => {
                let zero = self.constant(0);
                self.op3(SUB_D, d, zero, a);
            }
            UnaryOp::Not => self.with_constant(XOR, d, a, u32::MAX),
            UnaryOp::Abs if s.is_signed_int() => self.absolute(d, a),
            UnaryOp::Sign if s.is_signed_int() => {
                let minus = self.constant(u32::MAX);
                self.extreme(true, true, T3, a, minus);
                let one = self.constant(1);
                self.extreme(false, true, d, T3, one);
            }
            UnaryOp::Sign => {
                let one = self.constant(1);
                self.extreme(false, false, d, a, one);
            }
            _ => self.mov(d, a),
        }
        if s != Scalar::Bool && s.size() < 4 {
            self.wrap(s, d, d);
        }
    }

    fn int_binary(&mut self, op: BinaryOp, s: Scalar, d: Vr, a: Vr, b: Vr) {
        let signed = s.is_signed_int();
        let count = |v: &mut Self| v.with_constant(AND, T0, b, s.bits() - 1);
        match op {
            BinaryOp::Add => self.op3(ADD_D, d, a, b),
            BinaryOp::Sub => self.op3(SUB_D, d, a, b),
            BinaryOp::Mul => self.multiply(d, a, b),
            BinaryOp::And => return self.op3(AND, d, a, b),
            BinaryOp::Or => return self.op3(OR, d, a, b),
            BinaryOp::Xor => return self.op3(XOR, d, a, b),
            BinaryOp::Min | BinaryOp::MinNan => {
                return self.extreme(false, signed, d, a, b);
            }
            BinaryOp::Max | BinaryOp::MaxNan => {
                return self.extreme(true, signed, d, a, b);
            }
            BinaryOp::Shl => {
                count(self);
                self.op3(SHL_VAR, d, a, T0);
            }
            BinaryOp::Shr => {
                count(self);
                return self.shift_right(signed, d, a);
            }
            _ => {}
        }
        if s.size() < 4 {
            self.wrap(s, d, d);
        }
    }

    // ---- Conversions ----

    fn convert(&mut self, from: Scalar, to: Scalar, d: Vr, a: Vr) {
        match (from, to) {
            (Scalar::Bool, to) if to.is_float() => self.with_constant(AND, d, a, ONE),
            (Scalar::Bool, _) => self.with_constant(AND, d, a, 1),
            (from, Scalar::Bool) => {
                let zero = self.constant(0);
                let cond = if from.is_float() {
                    self.compare_ps(T2, NE, a, zero)
                } else {
                    self.compare_d(CmpOp::Ne, true, a, zero)
                };
                self.lanes(d, cond);
            }
            (from, to) if from.is_float() && to.is_float() => {
                if is_half(to) {
                    self.round_to(to, d, a);
                } else {
                    self.mov(d, a);
                }
            }
            (Scalar::U32, Scalar::F32) => self.op2(UINT_TO_PS, d, a),
            (_, to) if to.is_float() => self.rounded(to, d, |v, out| v.op2(INT_TO_PS, out, a)),
            (from, Scalar::U32) if from.is_float() => {
                self.op2(PS_TO_UINT, T0, a);
                let zero = self.constant(0);
                let positive = self.compare_ps(T2, GE, a, zero);
                self.blend(d, positive, T0, zero);
            }
            (from, to) if from.is_float() => {
                self.op2(PS_TO_INT, T0, a);
                let limit = self.constant(0x4f00_0000);
                let over = self.compare_ps(T2, GE, a, limit);
                let most = self.constant(i32::MAX as u32);
                self.blend(T0, over, most, T0);
                let nan = self.compare_ps(T2, UNORDERED, a, a);
                let zero = self.constant(0);
                if to.size() == 4 {
                    return self.blend(d, nan, zero, T0);
                }
                self.blend(T0, nan, zero, T0);
                let bits = to.bits();
                let (least, most) = if to.is_signed_int() {
                    (u32::MAX << (bits - 1), (1 << (bits - 1)) - 1)
                } else {
                    (0, (1 << bits) - 1)
                };
                self.with_constant(MAX_SD, T0, T0, least);
                self.with_constant(MIN_SD, d, T0, most);
            }
            (_, to) => self.wrap(to, d, a),
        }
    }
}
