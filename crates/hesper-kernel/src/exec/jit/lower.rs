//! The instructions of each node.
//!
//! Each computes what the executor's lane function for the op computes, bit for bit (up to the
//! payload of NaN): where the processor's instruction differs (minima, saturating conversions,
//! 16-bit NaNs) the difference is mended lane by lane. Instructions are optional: a node that is
//! not [`is_native`] becomes a call of the lane function.
//!
//! A destination is never one of the operands, and operands are never temporaries.

use super::native;
use super::node::{Node, is_long};
use super::target::*;
use super::vector::Vector;
use crate::ir::{BinaryOp, CmpOp, Scalar, TernaryOp, UnaryOp};
use crate::math::F16_MIN_POSITIVE;

const ONE: u32 = 0x3f80_0000;
const INFINITY: u32 = 0x7f80_0000;

type Emit1<'t, A> = fn(&mut Vector<'t, A>, Scalar, Vr, Vr);
type Emit2<'t, A> = fn(&mut Vector<'t, A>, Scalar, Vr, Vr, Vr);
type Emit3<'t, A> = fn(&mut Vector<'t, A>, Scalar, Vr, Vr, Vr, Vr);

/// Whether a node has instructions of its own on a target that can do this.
pub(super) fn is_native(node: &Node, can: &Capabilities) -> bool {
    match *node {
        Node::Unary(op, s, _) => unary::<native::Asm>(op, s).is_some(),
        Node::Binary(op, s, ..) => binary::<native::Asm>(op, s).is_some(),
        Node::Ternary(op, s, ..) => ternary::<native::Asm>(op, s).is_some(),
        Node::Convert(from, to, _) => native_convert(from, to, can.converts_unsigned_and_long),
        _ => true,
    }
}

/// The instructions of an op of one operand. Narrow integers are wrapped to their type afterwards.
fn unary<'t, A>(op: UnaryOp, s: Scalar) -> Option<Emit1<'t, A>>
where
    Vector<'t, A>: VectorOps,
{
    use UnaryOp as U;
    let emit: Emit1<'t, A> = match (op, s.is_float()) {
        (U::Neg, true) => |v, _, d, a| {
            let sign = v.sign();
            v.op3(VectorOp::Xor, d, a, sign);
        },
        (U::Neg, false) => |v, _, d, a| {
            let zero = v.constant(0);
            v.op3(VectorOp::Sub, d, zero, a);
        },
        (U::Not, _) => |v, _, d, a| v.with_constant(VectorOp::Xor, d, a, u32::MAX),
        (U::Abs, true) => |v, _, d, a| {
            let magnitude = v.magnitude();
            v.op3(VectorOp::And, d, a, magnitude);
        },
        (U::Abs, false) if s.is_signed_int() => |v, _, d, a| v.absolute(d, a),
        (U::Abs, false) => |v, _, d, a| v.mov(d, a),
        (U::Sign, true) => |v, _, d, a| {
            let zero = v.constant(0);
            let above = v.fcmp(FloatCmp::Gt, a, zero);
            let one = v.float(1.0);
            v.blend(T0, above, one, a);
            let zero = v.constant(0);
            let below = v.fcmp(FloatCmp::Lt, a, zero);
            let minus = v.float(-1.0);
            v.blend(T0, below, minus, T0);
            let nan = v.fcmp(FloatCmp::Unordered, a, a);
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
        (U::Floor, _) => |v, _, d, a| v.op2(VectorOp::Floor, d, a),
        (U::Ceil, _) => |v, _, d, a| v.op2(VectorOp::Ceil, d, a),
        (U::Trunc, _) => |v, _, d, a| v.op2(VectorOp::Trunc, d, a),
        (U::Rint, _) => |v, _, d, a| v.op2(VectorOp::Rint, d, a),
        (U::Round, _) => |v, _, d, a| {
            v.op2(VectorOp::Trunc, T0, a);
            v.op3(VectorOp::FSub, T1, a, T0);
            let magnitude = v.magnitude();
            v.op3(VectorOp::And, T1, T1, magnitude);
            let half = v.float(0.5);
            let far = v.fcmp(FloatCmp::Ge, T1, half);
            let sign = v.sign();
            v.op3(VectorOp::And, T1, a, sign);
            let one = v.float(1.0);
            v.op3(VectorOp::Or, T3, T1, one);
            v.op3(VectorOp::FAdd, T3, T0, T3);
            v.blend(T0, far, T3, T0);
            let magnitude = v.magnitude();
            v.op3(VectorOp::And, T0, T0, magnitude);
            v.op3(VectorOp::Or, d, T0, T1);
        },
        (U::Fract, _) => |v, s, d, a| {
            v.rounded(s, d, |v, out| {
                v.op2(VectorOp::Floor, T1, a);
                v.op3(VectorOp::FSub, T1, a, T1);
                let below = if v.long {
                    v.long_constant(1f64.next_down().to_bits())
                } else {
                    v.constant(1f32.next_down().to_bits())
                };
                let over = v.fcmp(FloatCmp::Gt, T1, below);
                v.blend(out, over, below, T1);
            });
        },
        (U::Sqrt, _) => |v, s, d, a| v.rounded(s, d, |v, out| v.op2(VectorOp::FSqrt, out, a)),
        (U::Rsqrt, _) => |v, s, d, a| {
            v.rounded(s, d, |v, out| {
                v.op2(VectorOp::FSqrt, T1, a);
                let one = v.float(1.0);
                v.op3(VectorOp::FDiv, out, one, T1);
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
            let nan = v.fcmp(FloatCmp::Unordered, a, a);
            v.lanes(d, nan);
        },
        (U::IsInf, _) => |v, _, d, a| v.compare_to_infinity(FloatCmp::Eq, d, a),
        (U::IsFinite, _) => |v, _, d, a| v.compare_to_infinity(FloatCmp::Lt, d, a),
        (U::IsNormal, _) => |v, s, d, a| {
            v.compare_to_infinity(FloatCmp::Lt, T1, a);
            let least = match s {
                Scalar::F64 => v.long_constant(f64::MIN_POSITIVE.to_bits()),
                // Its subnormals are normal in f32.
                Scalar::F16 => v.constant(F16_MIN_POSITIVE.to_bits()),
                _ => v.constant(f32::MIN_POSITIVE.to_bits()),
            };
            let normal = v.fcmp(FloatCmp::Ge, T0, least);
            v.lanes(T3, normal);
            v.op3(VectorOp::And, d, T1, T3);
        },
        _ => return None,
    };
    Some(emit)
}

/// The instructions of an op of two operands.
fn binary<'t, A>(op: BinaryOp, s: Scalar) -> Option<Emit2<'t, A>>
where
    Vector<'t, A>: VectorOps,
{
    use BinaryOp as B;
    let emit: Emit2<'t, A> = match (op, s.is_float()) {
        (B::Add, true) => |v, s, d, a, b| v.rounded(s, d, |v, out| v.op3(VectorOp::FAdd, out, a, b)),
        (B::Sub, true) => |v, s, d, a, b| v.rounded(s, d, |v, out| v.op3(VectorOp::FSub, out, a, b)),
        (B::Mul, true) => |v, s, d, a, b| v.rounded(s, d, |v, out| v.op3(VectorOp::FMul, out, a, b)),
        (B::Div, true) => |v, s, d, a, b| v.rounded(s, d, |v, out| v.op3(VectorOp::FDiv, out, a, b)),
        (B::Min, true) => |v, _, d, a, b| v.min_max(false, d, a, b),
        (B::Max, true) => |v, _, d, a, b| v.min_max(true, d, a, b),
        (B::MinNan, true) => |v, _, d, a, b| v.min_max_nan(false, d, a, b),
        (B::MaxNan, true) => |v, _, d, a, b| v.min_max_nan(true, d, a, b),
        (B::CopySign, _) => |v, _, d, a, b| {
            let magnitude = v.magnitude();
            v.op3(VectorOp::And, T0, a, magnitude);
            let sign = v.sign();
            v.op3(VectorOp::And, T1, b, sign);
            v.op3(VectorOp::Or, d, T0, T1);
        },
        (B::Add, false) => |v, s, d, a, b| {
            v.op3(VectorOp::Add, d, a, b);
            v.wrap_narrow(s, d);
        },
        (B::Sub, false) => |v, s, d, a, b| {
            v.op3(VectorOp::Sub, d, a, b);
            v.wrap_narrow(s, d);
        },
        (B::Mul, false) => |v, s, d, a, b| {
            v.multiply(d, a, b);
            v.wrap_narrow(s, d);
        },
        (B::And, _) => |v, _, d, a, b| v.op3(VectorOp::And, d, a, b),
        (B::Or, _) => |v, _, d, a, b| v.op3(VectorOp::Or, d, a, b),
        (B::Xor, _) => |v, _, d, a, b| v.op3(VectorOp::Xor, d, a, b),
        (B::Min | B::MinNan, false) => |v, s, d, a, b| v.extreme(false, s.is_signed_int(), d, a, b),
        (B::Max | B::MaxNan, false) => |v, s, d, a, b| v.extreme(true, s.is_signed_int(), d, a, b),
        (B::Shl, _) => |v, s, d, a, b| {
            v.with_constant(VectorOp::And, T0, b, s.bits() - 1);
            v.op3(VectorOp::Shl, d, a, T0);
            v.wrap_narrow(s, d);
        },
        (B::Shr, _) => |v, s, d, a, b| {
            v.with_constant(VectorOp::And, T0, b, s.bits() - 1);
            v.shift_right(s.is_signed_int(), d, a);
        },
        _ => return None,
    };
    Some(emit)
}

/// The instructions of an op of three operands.
fn ternary<'t, A>(op: TernaryOp, s: Scalar) -> Option<Emit3<'t, A>>
where
    Vector<'t, A>: VectorOps,
{
    let emit: Emit3<'t, A> = match (op, s.is_float()) {
        (TernaryOp::Fma, true) => |v, s, d, a, b, c| {
            v.rounded(s, d, |v, out| {
                v.mov(out, c);
                v.op3(VectorOp::FMulAdd, out, a, b);
            });
        },
        (TernaryOp::Fma, false) => |v, s, d, a, b, c| {
            v.multiply(T0, a, b);
            v.op3(VectorOp::Add, d, T0, c);
            v.wrap(s, d, d);
        },
        (TernaryOp::Clamp, true) => |v, _, d, a, b, c| {
            v.min_max(true, T3, a, b);
            v.min_max(false, d, T3, c);
        },
        (TernaryOp::Clamp, false) => |v, s, d, a, b, c| {
            v.extreme(true, s.is_signed_int(), T3, a, b);
            v.extreme(false, s.is_signed_int(), d, T3, c);
        },
        #[allow(unreachable_patterns, reason = "instructions are optional")]
        _ => return None,
    };
    Some(emit)
}

fn native_convert(from: Scalar, to: Scalar, all: bool) -> bool {
    match (from, to) {
        (Scalar::U32, Scalar::F32) => all,
        (Scalar::F16 | Scalar::BF16 | Scalar::F32, Scalar::U32) => all,
        // These round twice unless through a wider float.
        (Scalar::I32 | Scalar::U32, Scalar::F16 | Scalar::BF16) => false,
        (Scalar::I64 | Scalar::U64 | Scalar::F64, Scalar::F16 | Scalar::BF16) => false,
        (Scalar::I64 | Scalar::U64, to) if to.is_float() => all,
        (from, Scalar::I64 | Scalar::U64) if from.is_float() => all,
        _ => true,
    }
}

impl<A> Vector<'_, A>
where
    Self: VectorOps,
{
    /// Emits a node: its operands are in `held` where they have lanes, its memory is at `m`.
    /// `quiet` says that a stored f16 is no NaN but a quiet one.
    pub fn node(&mut self, node: &Node, d: Vr, held: [Vr; 3], m: <Self as VectorOps>::Mem, quiet: bool) {
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
            Node::Store { scalar: Scalar::F16, .. } if quiet => {
                self.narrow_half(T3, a);
                self.store(T3, m, 2);
            }
            Node::Store { scalar, .. } => self.store_as(scalar, a, m),
            Node::Linear { long, .. } => {
                self.long = false;
                self.lane_indices(T3);
                if long {
                    self.extend(T3, T3, true);
                }
                self.long = long;
                self.multiply(T0, T3, b);
                self.op3(VectorOp::Add, d, T0, a);
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
                    self.fcmp(op.into(), a, b)
                } else {
                    self.icmp(op, s.is_signed_int(), a, b)
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

    fn load(&mut self, s: Scalar, d: Vr, m: <Self as VectorOps>::Mem) {
        match s {
            Scalar::F16 => {
                self.fetch(VectorOp::HalfToFloat, d, m);
                // The instruction makes NaN quiet; a load keeps its bits.
                self.fetch(VectorOp::SignExtend16, T0, m);
                self.shift(Shift::Left, T0, T0, 13);
                self.with_constant(VectorOp::Or, T0, T0, INFINITY);
                let nan = self.fcmp(FloatCmp::Unordered, d, d);
                self.blend(d, nan, T0, d);
            }
            Scalar::BF16 => {
                self.fetch(VectorOp::ZeroExtend16, d, m);
                self.shift(Shift::Left, d, d, 16);
            }
            Scalar::Bool => {
                self.fetch(VectorOp::ZeroExtend8, T3, m);
                let zero = self.constant(0);
                let cond = self.icmp(CmpOp::Ne, true, T3, zero);
                self.lanes(d, cond);
            }
            Scalar::I8 => self.fetch(VectorOp::SignExtend8, d, m),
            Scalar::U8 => self.fetch(VectorOp::ZeroExtend8, d, m),
            Scalar::I16 => self.fetch(VectorOp::SignExtend16, d, m),
            Scalar::U16 => self.fetch(VectorOp::ZeroExtend16, d, m),
            _ => self.load_full(d, m),
        }
    }

    fn store_as(&mut self, s: Scalar, a: Vr, m: <Self as VectorOps>::Mem) {
        match s {
            Scalar::F16 => {
                self.narrow_half(T3, a);
                self.op2(VectorOp::ZeroExtend16, T3, T3);
                self.shift(Shift::RightSigned, T0, a, 13);
                self.shift(Shift::RightSigned, T1, a, 16);
                self.with_constant(VectorOp::Or, T1, T1, 0x7fff);
                self.op3(VectorOp::And, T0, T0, T1);
                let nan = self.fcmp(FloatCmp::Unordered, a, a);
                self.blend(T0, nan, T0, T3);
                self.narrow(T0, 2);
            }
            Scalar::BF16 => {
                self.shift(Shift::Right, T0, a, 16);
                self.narrow(T0, 2);
            }
            Scalar::Bool => {
                self.with_constant(VectorOp::And, T0, a, 1);
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
            self.op2(VectorOp::HalfToFloat, d, T3);
            return;
        }
        self.shift(Shift::Right, T3, a, 16);
        self.with_constant(VectorOp::And, T3, T3, 1);
        self.op3(VectorOp::Add, T3, T3, a);
        self.with_constant(VectorOp::Add, T3, T3, 0x7fff);
        self.with_constant(VectorOp::Or, T1, a, 0x0040_0000);
        let nan = self.fcmp(FloatCmp::Unordered, a, a);
        self.blend(T3, nan, T1, T3);
        self.with_constant(VectorOp::And, d, T3, 0xffff_0000);
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

    /// The magnitude compared to infinity, as lanes; `T0` keeps the magnitude.
    fn compare_to_infinity(&mut self, how: FloatCmp, d: Vr, a: Vr) {
        let magnitude = self.magnitude();
        self.op3(VectorOp::And, T0, a, magnitude);
        let infinity = self.float(f32::INFINITY);
        let cond = self.fcmp(how, T0, infinity);
        self.lanes(d, cond);
    }

    // ---- Integers ----

    /// Extends the low bits of a lane to a narrow type's value.
    fn wrap(&mut self, s: Scalar, d: Vr, a: Vr) {
        let spare = 32u32.saturating_sub(s.bits()) as u8;
        match (spare, s.is_signed_int()) {
            (0, _) => self.mov(d, a),
            (_, true) => {
                self.shift(Shift::Left, d, a, spare);
                self.shift(Shift::RightSigned, d, d, spare);
            }
            _ => self.with_constant(VectorOp::And, d, a, u32::MAX >> spare),
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
            (Scalar::Bool, to) if to.is_float() => self.with_constant(VectorOp::And, d, a, ONE),
            (Scalar::Bool, _) => self.with_constant(VectorOp::And, d, a, 1),
            (from, Scalar::Bool) => {
                let zero = self.constant(0);
                let cond = if from.is_float() {
                    self.fcmp(FloatCmp::Ne, a, zero)
                } else {
                    self.icmp(CmpOp::Ne, true, a, zero)
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
            (Scalar::U32, Scalar::F32) => self.op2(VectorOp::UnsignedToFloat, d, a),
            (_, to) if to.is_float() => self.rounded(to, d, |v, out| v.op2(VectorOp::SignedToFloat, out, a)),
            (from, to) if from.is_float() && to.size() == 4 => self.float_to_int(to == Scalar::I32, d, a),
            (from, to) if from.is_float() => {
                self.float_to_int(true, T0, a);
                self.clamp_narrow(to, d);
            }
            (_, to) => self.wrap(to, d, a),
        }
    }

    /// 32-bit integers in `T0` to the nearest ones of a narrow type.
    pub fn clamp_narrow(&mut self, to: Scalar, d: Vr) {
        let bits = to.bits();
        let (least, most) = if to.is_signed_int() {
            (u32::MAX << (bits - 1), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        };
        let least = self.constant(least);
        self.extreme(true, true, T0, T0, least);
        let most = self.constant(most);
        self.extreme(false, true, d, T0, most);
    }

    /// Conversions from or to long lanes; those to flags are as of short ones.
    fn convert_long(&mut self, from: Scalar, to: Scalar, d: Vr, a: Vr) {
        match (from, to) {
            (Scalar::Bool, to) => {
                self.extend(T0, a, true);
                self.long = true;
                let one = if to.is_float() { self.float(1.0) } else { self.constant(1) };
                self.op3(VectorOp::And, d, T0, one);
            }
            (Scalar::F64, to) if to.is_float() => self.double_to_float(d, a),
            (from, Scalar::F64) if from.is_float() => self.float_to_double(d, a),
            (from, Scalar::F64) => self.integer_to_double(from, d, a),
            (Scalar::I64 | Scalar::U64, to) if to.is_float() => {
                self.long_to_float(from == Scalar::I64, d, a);
            }
            (Scalar::F64, to) => self.double_to_integer(to, d, a),
            (from, to) if from.is_float() => {
                self.float_to_double(T1, a);
                self.double_to_integer(to, d, T1);
            }
            (Scalar::I64 | Scalar::U64, to) => {
                self.low_halves(T0, a);
                self.wrap(to, d, T0);
            }
            (from, _) => self.extend(d, a, from.is_signed_int()),
        }
    }
}
