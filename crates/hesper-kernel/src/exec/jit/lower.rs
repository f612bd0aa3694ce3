//! The instructions of each node.
//!
//! Each computes what the executor's lane function for the op computes, bit for bit (up to the
//! payload of NaN): where the processor's instruction differs (minima, saturating conversions,
//! 16-bit NaNs), extra instructions correct the result. A node that is not [`is_native`] becomes a
//! call of the lane function.
//!
//! A destination is never one of the operands, and operands are never temporaries.

use super::asm::{Mem, Opcode, Vr};
use super::node::{Node, is_long};
use super::vector::*;
use crate::ir::{BinaryOp, CmpOp, Scalar, TernaryOp, UnaryOp};
use crate::math::F16_MIN_POSITIVE;

const ONE: u32 = 0x3f80_0000;
const INFINITY: u32 = 0x7f80_0000;

type Emit1 = fn(&mut Vector<'_>, Scalar, Vr, Vr);
type Emit2 = fn(&mut Vector<'_>, Scalar, Vr, Vr, Vr);
type Emit3 = fn(&mut Vector<'_>, Scalar, Vr, Vr, Vr, Vr);

/// Whether a node has instructions of its own; with AVX-512 if `avx512`.
pub(super) fn is_native(node: &Node, avx512: bool) -> bool {
    match *node {
        Node::Unary(op, s, _) => unary(op, s).is_some(),
        Node::Binary(op, s, ..) => binary(op, s).is_some(),
        Node::Ternary(op, s, ..) => ternary(op, s).is_some(),
        Node::Convert(from, to, _) => native_convert(from, to, avx512),
        _ => true,
    }
}

/// The instructions of an op of one operand. Narrow integers are wrapped to their type afterwards.
fn unary(op: UnaryOp, s: Scalar) -> Option<Emit1> {
    use UnaryOp as U;
    let emit: Emit1 = match (op, s.is_float()) {
        (U::Neg, true) => |v, _, d, a| {
            let sign = v.sign();
            v.op3(XOR, d, a, sign);
        },
        (U::Neg, false) => |v, _, d, a| {
            let zero = v.constant(0);
            v.op3(SUB_D, d, zero, a);
        },
        (U::Not, _) => |v, _, d, a| v.with_constant(XOR, d, a, u32::MAX),
        (U::Abs, true) => |v, _, d, a| {
            let magnitude = v.magnitude();
            v.op3(AND, d, a, magnitude);
        },
        (U::Abs, false) if s.is_signed_int() => |v, _, d, a| v.absolute(d, a),
        (U::Abs, false) => |v, _, d, a| v.mov(d, a),
        (U::Sign, true) => |v, _, d, a| {
            let zero = v.constant(0);
            let above = v.compare_ps(T2, GT, a, zero);
            let one = v.float(1.0);
            v.blend(T0, above, one, a);
            let zero = v.constant(0);
            let below = v.compare_ps(T2, LT, a, zero);
            let minus = v.float(-1.0);
            v.blend(T0, below, minus, T0);
            let nan = v.compare_ps(T2, UNORDERED, a, a);
            let zero = v.constant(0);
            v.blend(d, nan, zero, T0);
        },
        (U::Sign, false) if s.is_signed_int() => |v, _, d, a| {
            let minus = v.constant(u32::MAX);
            v.extreme(true, true, T3, a, minus);
            let one = v.constant(1);
            v.extreme(false, true, d, T3, one);
        },
        (U::Sign, false) => |v, _, d, a| {
            let one = v.constant(1);
            v.extreme(false, false, d, a, one);
        },
        (U::Floor, _) => |v, _, d, a| v.op2_imm(ROUND_PS, d, a, 9),
        (U::Ceil, _) => |v, _, d, a| v.op2_imm(ROUND_PS, d, a, 10),
        (U::Trunc, _) => |v, _, d, a| v.op2_imm(ROUND_PS, d, a, 11),
        (U::Rint, _) => |v, _, d, a| v.op2_imm(ROUND_PS, d, a, 8),
        (U::Round, _) => |v, _, d, a| {
            v.op2_imm(ROUND_PS, T0, a, 11);
            v.op3(SUB_PS, T1, a, T0);
            let magnitude = v.magnitude();
            v.op3(AND, T1, T1, magnitude);
            let half = v.float(0.5);
            let far = v.compare_ps(T2, GE, T1, half);
            let sign = v.sign();
            v.op3(AND, T1, a, sign);
            let one = v.float(1.0);
            v.op3(OR, T3, T1, one);
            v.op3(ADD_PS, T3, T0, T3);
            v.blend(T0, far, T3, T0);
            let magnitude = v.magnitude();
            v.op3(AND, T0, T0, magnitude);
            v.op3(OR, d, T0, T1);
        },
        (U::Fract, _) => |v, s, d, a| {
            v.rounded(s, d, |v, out| {
                v.op2_imm(ROUND_PS, T1, a, 9);
                v.op3(SUB_PS, T1, a, T1);
                let below = if v.long {
                    v.long_constant(1f64.next_down().to_bits())
                } else {
                    v.constant(1f32.next_down().to_bits())
                };
                let over = v.compare_ps(T2, GT, T1, below);
                v.blend(out, over, below, T1);
            });
        },
        (U::Sqrt, _) => |v, s, d, a| v.rounded(s, d, |v, out| v.op2(SQRT_PS, out, a)),
        (U::Rsqrt, _) => |v, s, d, a| {
            v.rounded(s, d, |v, out| {
                v.op2(SQRT_PS, T1, a);
                let one = v.float(1.0);
                v.op3(DIV_PS, out, one, T1);
            });
        },
        (U::SignBit, _) => |v, _, d, a| {
            let mut bits = a;
            if v.long {
                v.shift(Shift::Right, T0, a, 32);
                v.long = false;
                v.low_halves(T1, T0);
                bits = T1;
            }
            v.shift(Shift::RightSigned, d, bits, 31);
        },
        (U::IsNan, _) => |v, _, d, a| {
            let nan = v.compare_ps(T2, UNORDERED, a, a);
            v.lanes(d, nan);
        },
        (U::IsInf, _) => |v, _, d, a| v.compare_to_infinity(EQ, d, a),
        (U::IsFinite, _) => |v, _, d, a| v.compare_to_infinity(LT, d, a),
        (U::IsNormal, _) => |v, s, d, a| {
            v.compare_to_infinity(LT, T1, a);
            let least = match s {
                Scalar::F64 => v.long_constant(f64::MIN_POSITIVE.to_bits()),
                // Its subnormals are normal in f32.
                Scalar::F16 => v.constant(F16_MIN_POSITIVE.to_bits()),
                _ => v.constant(f32::MIN_POSITIVE.to_bits()),
            };
            let normal = v.compare_ps(T2, GE, T0, least);
            v.lanes(T3, normal);
            v.op3(AND, d, T1, T3);
        },
        _ => return None,
    };
    Some(emit)
}

/// The instructions of an op of two operands.
fn binary(op: BinaryOp, s: Scalar) -> Option<Emit2> {
    use BinaryOp as B;
    let emit: Emit2 = match (op, s.is_float()) {
        (B::Add, true) => |v, s, d, a, b| v.rounded(s, d, |v, out| v.op3(ADD_PS, out, a, b)),
        (B::Sub, true) => |v, s, d, a, b| v.rounded(s, d, |v, out| v.op3(SUB_PS, out, a, b)),
        (B::Mul, true) => |v, s, d, a, b| v.rounded(s, d, |v, out| v.op3(MUL_PS, out, a, b)),
        (B::Div, true) => |v, s, d, a, b| v.rounded(s, d, |v, out| v.op3(DIV_PS, out, a, b)),
        (B::Min, true) => |v, _, d, a, b| v.min_max(MIN_PS, OR, d, a, b),
        (B::Max, true) => |v, _, d, a, b| v.min_max(MAX_PS, AND, d, a, b),
        (B::MinNan, true) => |v, _, d, a, b| v.min_max_nan(MIN_PS, OR, d, a, b),
        (B::MaxNan, true) => |v, _, d, a, b| v.min_max_nan(MAX_PS, AND, d, a, b),
        (B::CopySign, _) => |v, _, d, a, b| {
            let magnitude = v.magnitude();
            v.op3(AND, T0, a, magnitude);
            let sign = v.sign();
            v.op3(AND, T1, b, sign);
            v.op3(OR, d, T0, T1);
        },
        (B::Add, false) => |v, s, d, a, b| {
            v.op3(ADD_D, d, a, b);
            v.wrap_narrow(s, d);
        },
        (B::Sub, false) => |v, s, d, a, b| {
            v.op3(SUB_D, d, a, b);
            v.wrap_narrow(s, d);
        },
        (B::Mul, false) => |v, s, d, a, b| {
            v.multiply(d, a, b);
            v.wrap_narrow(s, d);
        },
        (B::And, _) => |v, _, d, a, b| v.op3(AND, d, a, b),
        (B::Or, _) => |v, _, d, a, b| v.op3(OR, d, a, b),
        (B::Xor, _) => |v, _, d, a, b| v.op3(XOR, d, a, b),
        (B::Min | B::MinNan, false) => |v, s, d, a, b| v.extreme(false, s.is_signed_int(), d, a, b),
        (B::Max | B::MaxNan, false) => |v, s, d, a, b| v.extreme(true, s.is_signed_int(), d, a, b),
        (B::Shl, _) => |v, s, d, a, b| {
            v.with_constant(AND, T0, b, s.bits() - 1);
            v.op3(SHL_VAR, d, a, T0);
            v.wrap_narrow(s, d);
        },
        (B::Shr, _) => |v, s, d, a, b| {
            v.with_constant(AND, T0, b, s.bits() - 1);
            v.shift_right(s.is_signed_int(), d, a);
        },
        _ => return None,
    };
    Some(emit)
}

/// The instructions of an op of three operands.
fn ternary(op: TernaryOp, s: Scalar) -> Option<Emit3> {
    let emit: Emit3 = match (op, s.is_float()) {
        (TernaryOp::Fma, true) => |v, s, d, a, b, c| {
            v.rounded(s, d, |v, out| {
                v.mov(out, c);
                v.op3(FMADD_231_PS, out, a, b);
            });
        },
        (TernaryOp::Fma, false) => |v, s, d, a, b, c| {
            v.multiply(T0, a, b);
            v.op3(ADD_D, d, T0, c);
            v.wrap(s, d, d);
        },
        (TernaryOp::Clamp, true) => |v, _, d, a, b, c| {
            v.min_max(MAX_PS, AND, T3, a, b);
            v.min_max(MIN_PS, OR, d, T3, c);
        },
        (TernaryOp::Clamp, false) => |v, s, d, a, b, c| {
            v.extreme(true, s.is_signed_int(), T3, a, b);
            v.extreme(false, s.is_signed_int(), d, T3, c);
        },
        #[allow(unreachable_patterns, reason = "an op need not have instructions")]
        _ => return None,
    };
    Some(emit)
}

fn native_convert(from: Scalar, to: Scalar, avx512: bool) -> bool {
    match (from, to) {
        (Scalar::U32, Scalar::F32) => avx512,
        (Scalar::F16 | Scalar::BF16 | Scalar::F32, Scalar::U32) => avx512,
        // A conversion through f32 would round twice.
        (Scalar::I32 | Scalar::U32, Scalar::F16 | Scalar::BF16) => false,
        (Scalar::I64 | Scalar::U64 | Scalar::F64, Scalar::F16 | Scalar::BF16) => false,
        (Scalar::I64 | Scalar::U64, to) if to.is_float() => avx512,
        (from, Scalar::I64 | Scalar::U64) if from.is_float() => avx512,
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
            Node::Compare(_, s, ..) | Node::Unary(_, s, _) | Node::Store { scalar: s, .. } => is_long(s),
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
                self.lane_indices(T3);
                if long {
                    self.extend(T3, T3, true);
                }
                self.long = long;
                self.multiply(T0, T3, b);
                self.op3(ADD_D, d, T0, a);
            }
            Node::Unary(op, s, _) => {
                if let Some(emit) = unary(op, s) {
                    emit(self, s, d, a);
                }
                if s.is_int() {
                    self.wrap_narrow(s, d);
                }
            }
            Node::Binary(op, s, ..) => {
                if let Some(emit) = binary(op, s) {
                    emit(self, s, d, a, b);
                }
            }
            Node::Ternary(op, s, ..) => {
                if let Some(emit) = ternary(op, s) {
                    emit(self, s, d, a, b, c);
                }
            }
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

    /// `f` computes into the register it is given; 16-bit floats are rounded from there.
    fn rounded(&mut self, s: Scalar, d: Vr, f: impl FnOnce(&mut Self, Vr)) {
        if s.is_half() {
            f(self, T0);
            self.round_to(s, d, T0);
        } else {
            f(self, d);
        }
    }

    /// The instruction's minimum or maximum in `T0`; equal operands (zeros of both signs) are combined by
    /// `join`.
    fn min_max_ordered(&mut self, choose: Opcode, join: Opcode, a: Vr, b: Vr) {
        self.op3(choose, T0, a, b);
        self.op3(join, T1, a, b);
        let equal = self.compare_ps(T2, EQ, a, b);
        self.blend(T0, equal, T1, T0);
    }

    /// Minimum or maximum that prefers numbers to NaN; `T3` may be `a`.
    fn min_max(&mut self, choose: Opcode, join: Opcode, d: Vr, a: Vr, b: Vr) {
        self.min_max_ordered(choose, join, a, b);
        // The instruction gives the second operand where one is NaN.
        let nan = self.compare_ps(T2, UNORDERED, b, b);
        self.blend(d, nan, a, T0);
    }

    /// Minimum or maximum that prefers NaN.
    fn min_max_nan(&mut self, choose: Opcode, join: Opcode, d: Vr, a: Vr, b: Vr) {
        self.min_max_ordered(choose, join, a, b);
        let nan = self.compare_ps(T2, UNORDERED, a, a);
        self.blend(T0, nan, a, T0);
        let nan = self.compare_ps(T2, UNORDERED, b, b);
        self.blend(d, nan, b, T0);
    }

    /// The magnitude compared to infinity, as lanes; `T0` keeps the magnitude.
    fn compare_to_infinity(&mut self, how: u8, d: Vr, a: Vr) {
        let magnitude = self.magnitude();
        self.op3(AND, T0, a, magnitude);
        let infinity = self.float(f32::INFINITY);
        let cond = self.compare_ps(T2, how, T0, infinity);
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

    /// The same in place, where a lane is wider than the type.
    fn wrap_narrow(&mut self, s: Scalar, d: Vr) {
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
                if to.is_half() {
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
