//! Vector operations of NEON.
//!
//! A condition is a vector of all-ones or zero lanes of the operation's width, perhaps inverted: a comparison
//! that NEON lacks is the inverse of one that it has, and a blend takes either for the same price.

use super::asm::*;
use super::frame::{CHUNK_STEP, FRAME, SLOTS, X16, X17, pointer, step};
use crate::exec::jit::node::uniform_offset;
use crate::exec::jit::target::*;
use crate::exec::jit::vector::Vector;
use crate::ir::{CmpOp, Scalar};

pub(super) type Neon<'t> = Vector<'t, Asm>;

/// The address of a step's lanes: a base, and the register of the step.
#[derive(Clone, Copy, Default)]
pub(in crate::exec::jit) struct Mem {
    base: Gr,
    step: Gr,
}

/// A condition.
#[derive(Clone, Copy)]
pub(in crate::exec::jit) struct Mask {
    lanes: Vr,
    inverted: bool,
}

/// The instruction of an operation, and whether it has a long form.
fn opcode(op: VectorOp) -> (u32, bool) {
    match op {
        VectorOp::FAdd => (FADD, true),
        VectorOp::FSub => (FSUB, true),
        VectorOp::FMul => (FMUL, true),
        VectorOp::FDiv => (FDIV, true),
        VectorOp::FMulAdd => (FMLA, true),
        VectorOp::Add => (ADD, true),
        VectorOp::Sub => (SUB, true),
        VectorOp::And => (AND, false),
        VectorOp::Or => (ORR, false),
        VectorOp::Xor => (EOR, false),
        VectorOp::Shl => (USHL, true),
        VectorOp::FSqrt => (FSQRT, true),
        VectorOp::Floor => (FRINTM, true),
        VectorOp::Ceil => (FRINTP, true),
        VectorOp::Trunc => (FRINTZ, true),
        VectorOp::Rint => (FRINTN, true),
        VectorOp::SignedToFloat => (SCVTF, false),
        VectorOp::UnsignedToFloat => (UCVTF, false),
        VectorOp::HalfToFloat => (FCVTL, false),
        // From 8 bits there are two steps, of which this is the last.
        VectorOp::SignExtend8 | VectorOp::SignExtend16 => (SXTL_16, false),
        VectorOp::ZeroExtend8 | VectorOp::ZeroExtend16 => (UXTL_16, false),
    }
}

impl Neon<'_> {
    /// An instruction's form for the lanes of the operation.
    fn form(&self, op: u32) -> u32 {
        if self.long { op | LONG } else { op }
    }

    fn mask(&self, lanes: Vr, inverted: bool) -> Mask {
        Mask { lanes, inverted }
    }

    /// Bytes of a register that a step's lanes of a value fill.
    fn value_bytes(&self, long: bool) -> u32 {
        self.step_bytes(if long { 8 } else { 4 })
    }

    /// A register with `base + offset`, which may be `scratch`.
    fn offset(&mut self, scratch: Gr, base: Gr, offset: u32) -> Gr {
        if offset == 0 {
            return base;
        }
        self.asm.add_imm(scratch, base, offset);
        scratch
    }

    /// The address of a pair of registers, which hold a step's pairs of 32-bit lanes.
    fn pair_address(&mut self, m: Mem) -> Gr {
        self.asm.add(X17, m.base, m.step, 5);
        X17
    }
}

impl VectorOps for Neon<'_> {
    type Mem = Mem;
    type Cond = Mask;

    // ---- Registers ----

    fn op3(&mut self, op: VectorOp, d: Vr, a: Vr, b: Vr) {
        let (o, widens) = opcode(op);
        self.asm.rrr(if widens { self.form(o) } else { o }, d, a, b);
    }

    fn op2(&mut self, op: VectorOp, d: Vr, a: Vr) {
        let first = match op {
            VectorOp::SignExtend8 => Some(SXTL_8),
            VectorOp::ZeroExtend8 => Some(UXTL_8),
            _ => None,
        };
        let mut a = a;
        if let Some(first) = first {
            self.asm.rr(first, d, a);
            a = d;
        }
        let (o, widens) = opcode(op);
        self.asm.rr(if widens { self.form(o) } else { o }, d, a);
    }

    fn mov(&mut self, d: Vr, a: Vr) {
        if d != a {
            self.asm.rrr(ORR, d, a, a);
        }
    }

    fn shift(&mut self, how: Shift, d: Vr, a: Vr, by: u8) {
        let how = match how {
            Shift::Right => ShiftBy::RightUnsigned,
            Shift::RightSigned => ShiftBy::RightSigned,
            Shift::Left => ShiftBy::Left,
        };
        self.asm.shift(how, self.long, d, a, by);
    }

    fn shift_right(&mut self, signed: bool, d: Vr, a: Vr) {
        self.asm.rr(self.form(NEG), T1, T0);
        self.asm.rrr(self.form(if signed { SSHL } else { USHL }), d, a, T1);
    }

    fn multiply(&mut self, d: Vr, a: Vr, b: Vr) {
        if !self.long {
            return self.asm.rrr(MUL, d, a, b);
        }
        // The products of a low and a high half, then that of the low halves.
        self.asm.rr(REV64, T1, b);
        self.asm.rrr(MUL, T1, T1, a);
        self.asm.rr(UADDLP, T1, T1);
        self.shift(Shift::Left, T1, T1, 32);
        self.asm.rr(XTN_32, T2, a);
        self.asm.rr(XTN_32, d, b);
        self.asm.rrr(UMLAL, T1, T2, d);
        self.mov(d, T1);
    }

    fn extreme(&mut self, largest: bool, signed: bool, d: Vr, a: Vr, b: Vr) {
        if self.long {
            let above = self.icmp(CmpOp::Gt, signed, a, b);
            let (yes, no) = if largest { (a, b) } else { (b, a) };
            return self.blend(d, above, yes, no);
        }
        let o = match (largest, signed) {
            (true, true) => SMAX,
            (true, false) => UMAX,
            (false, true) => SMIN,
            (false, false) => UMIN,
        };
        self.asm.rrr(o, d, a, b);
    }

    fn absolute(&mut self, d: Vr, a: Vr) {
        self.asm.rr(self.form(ABS), d, a);
    }

    fn min_max(&mut self, largest: bool, d: Vr, a: Vr, b: Vr) {
        // The instructions that prefer numbers do not prefer them to a signaling NaN.
        self.asm.rrr(self.form(if largest { FMAX } else { FMIN }), T0, a, b);
        let nan = self.fcmp(FloatCmp::Unordered, a, a);
        self.blend(T0, nan, b, T0);
        let nan = self.fcmp(FloatCmp::Unordered, b, b);
        self.blend(d, nan, a, T0);
    }

    fn min_max_nan(&mut self, largest: bool, d: Vr, a: Vr, b: Vr) {
        self.asm.rrr(self.form(if largest { FMAX } else { FMIN }), d, a, b);
    }

    fn broadcast(&mut self, d: Vr, uniform: u16) {
        let at = self.offset(X16, FRAME, uniform_offset(uniform) as u32);
        let o = if self.table.is_long(uniform) { LD1R_D } else { LD1R_S };
        self.asm.rr(o, d, at);
    }

    fn lane_indices(&mut self, d: Vr) {
        let (step, shift) = (step(self), self.lanes_shift());
        self.asm.lsl(X16, step, shift);
        self.asm.rr(DUP_S_W, d, X16);
        let steps = self.table.steps();
        let at = self.offset(X16, FRAME, uniform_offset(steps) as u32);
        self.asm.load_at(self.step_bytes(4), T0, at, 0);
        self.asm.rrr(ADD, d, d, T0);
    }

    // ---- Conditions ----

    /// The answer lies in `T2`.
    fn fcmp(&mut self, how: FloatCmp, a: Vr, b: Vr) -> Mask {
        let (o, a, b, inverted) = match how {
            FloatCmp::Eq => (FCMEQ, a, b, false),
            FloatCmp::Ne | FloatCmp::Unordered => (FCMEQ, a, b, true),
            FloatCmp::Lt => (FCMGT, b, a, false),
            FloatCmp::Le => (FCMGE, b, a, false),
            FloatCmp::Gt => (FCMGT, a, b, false),
            FloatCmp::Ge => (FCMGE, a, b, false),
        };
        self.asm.rrr(self.form(o), T2, a, b);
        self.mask(T2, inverted)
    }

    /// The answer lies in `T2`.
    fn icmp(&mut self, op: CmpOp, signed: bool, a: Vr, b: Vr) -> Mask {
        let (above, from) = if signed { (CMGT, CMGE) } else { (CMHI, CMHS) };
        let (o, a, b, inverted) = match op {
            CmpOp::Eq => (CMEQ, a, b, false),
            CmpOp::Ne => (CMEQ, a, b, true),
            CmpOp::Lt => (above, b, a, false),
            CmpOp::Le => (from, b, a, false),
            CmpOp::Gt => (above, a, b, false),
            CmpOp::Ge => (from, a, b, false),
        };
        self.asm.rrr(self.form(o), T2, a, b);
        self.mask(T2, inverted)
    }

    /// For long lanes it lies in `T2`.
    fn condition(&mut self, lanes: Vr) -> Mask {
        if self.long {
            self.extend(T2, lanes, true);
            return self.mask(T2, false);
        }
        self.mask(lanes, false)
    }

    fn lanes(&mut self, d: Vr, c: Mask) {
        let mut lanes = c.lanes;
        if self.long {
            self.low_halves(d, lanes);
            lanes = d;
        }
        if c.inverted {
            self.asm.rr(NOT, d, lanes);
        } else {
            self.mov(d, lanes);
        }
    }

    fn blend(&mut self, d: Vr, c: Mask, yes: Vr, no: Vr) {
        let (yes, no) = if c.inverted { (no, yes) } else { (yes, no) };
        if d == no {
            self.asm.rrr(BIT, d, yes, c.lanes);
        } else if d == yes {
            self.asm.rrr(BIF, d, no, c.lanes);
        } else {
            self.mov(d, c.lanes);
            self.asm.rrr(BSL, d, yes, no);
        }
    }

    // ---- Conversions ----

    fn extend(&mut self, d: Vr, a: Vr, signed: bool) {
        self.asm.rr(if signed { SXTL_32 } else { UXTL_32 }, d, a);
    }

    fn low_halves(&mut self, d: Vr, a: Vr) {
        self.asm.rr(XTN_32, d, a);
    }

    fn narrow_half(&mut self, d: Vr, a: Vr) {
        self.asm.rr(FCVTN, d, a);
    }

    fn narrow(&mut self, a: Vr, size: u8) {
        self.asm.rr(XTN_16, T3, a);
        if size == 1 {
            self.asm.rr(XTN_8, T3, T3);
        }
    }

    fn float_to_int(&mut self, signed: bool, d: Vr, a: Vr) {
        self.asm.rr(if signed { FCVTZS } else { FCVTZU }, d, a);
    }

    fn float_to_double(&mut self, d: Vr, a: Vr) {
        self.asm.rr(FCVTL | LONG, d, a);
    }

    fn double_to_float(&mut self, d: Vr, a: Vr) {
        self.asm.rr(FCVTN | LONG, d, a);
    }

    fn long_to_float(&mut self, signed: bool, d: Vr, a: Vr) {
        // Through f64 it would be rounded twice; only single lanes are converted directly.
        let o = if signed { SCVTF_S_X } else { UCVTF_S_X };
        self.asm.rr(UMOV_D0, X16, a);
        self.asm.rr(UMOV_D1, X17, a);
        self.asm.rr(o, d, X16);
        self.asm.rr(o, T0, X17);
        self.asm.rr(INS_S1_S0, d, T0);
    }

    fn integer_to_double(&mut self, from: Scalar, d: Vr, a: Vr) {
        let (mut a, signed) = (a, from.is_signed_int());
        if from.size() < 8 {
            self.extend(d, a, signed);
            a = d;
        }
        self.asm.rr(LONG | if signed { SCVTF } else { UCVTF }, d, a);
    }

    fn double_to_integer(&mut self, to: Scalar, d: Vr, a: Vr) {
        let o = LONG | if to.is_signed_int() || to.size() < 4 { FCVTZS } else { FCVTZU };
        match to.size() {
            8 => self.asm.rr(o, d, a),
            4 => {
                self.asm.rr(o, T0, a);
                self.asm.rr(if to == Scalar::I32 { SQXTN_32 } else { UQXTN_32 }, d, T0);
            }
            _ => {
                self.asm.rr(o, T0, a);
                self.asm.rr(SQXTN_32, T0, T0);
                self.clamp_narrow(to, d);
            }
        }
    }

    // ---- Memory ----

    fn address(&mut self, access: u16, _: u64) -> Mem {
        Mem { base: pointer(self, access), step: step(self) }
    }

    fn fetch(&mut self, op: VectorOp, d: Vr, m: Mem) {
        let size = if matches!(op, VectorOp::SignExtend8 | VectorOp::ZeroExtend8) { 1 } else { 2 };
        self.asm.load_indexed(self.step_bytes(size), d, m.base, m.step);
        self.op2(op, d, d);
    }

    fn load_full(&mut self, d: Vr, m: Mem) {
        self.asm.load_indexed(self.value_bytes(self.long), d, m.base, m.step);
    }

    fn store(&mut self, a: Vr, m: Mem, size: u8) {
        self.asm.store_indexed(self.step_bytes(size), a, m.base, m.step);
    }

    fn load_pair(&mut self, d: Vr, m: Mem, which: u8) {
        if self.half_steps {
            self.asm.load_indexed(16, T0, m.base, m.step);
            return self.asm.rr(if which > 0 { SHRN_32 } else { XTN_32 }, d, T0);
        }
        let at = self.pair_address(m);
        self.asm.load_at(16, T0, at, 0);
        self.asm.load_at(16, T1, at, 16);
        self.asm.rrr(if which > 0 { UZP2 } else { UZP1 }, d, T0, T1);
    }

    fn store_pair(&mut self, a: Vr, b: Vr, m: Mem) {
        self.asm.rrr(ZIP1, T0, a, b);
        if self.half_steps {
            return self.asm.store_indexed(16, T0, m.base, m.step);
        }
        self.asm.rrr(ZIP2, T1, a, b);
        let at = self.pair_address(m);
        self.asm.store_at(16, T0, at, 0);
        self.asm.store_at(16, T1, at, 16);
    }

    fn spill(&mut self, a: Vr, offset: i32, long: bool) {
        let (bytes, offset) = (self.value_bytes(long), offset as u32);
        if self.in_chunks {
            let base = self.offset(X16, SLOTS, offset);
            self.asm.store_indexed(bytes, a, base, CHUNK_STEP);
        } else if Asm::reaches(bytes, offset) {
            self.asm.store_at(bytes, a, SLOTS, offset);
        } else {
            let base = self.offset(X16, SLOTS, offset);
            self.asm.store_at(bytes, a, base, 0);
        }
    }

    fn reload(&mut self, d: Vr, offset: i32, long: bool) {
        let (bytes, offset) = (self.value_bytes(long), offset as u32);
        if self.in_chunks {
            let base = self.offset(X16, SLOTS, offset);
            self.asm.load_indexed(bytes, d, base, CHUNK_STEP);
        } else if Asm::reaches(bytes, offset) {
            self.asm.load_at(bytes, d, SLOTS, offset);
        } else {
            let base = self.offset(X16, SLOTS, offset);
            self.asm.load_at(bytes, d, base, 0);
        }
    }
}
