//! Vector operations of AVX2 and AVX-512, in as many instructions as each takes.
//!
//! A condition is a mask register under AVX-512 and a vector of all-ones or zero lanes under AVX2.

use super::asm::{Asm, Len, Mem, Opcode, R14, RBX, Rm};
use super::frame::{lane, pointer, slot_lane};
use super::long::{LONG_TO_PS, PD_TO_PS, PS_TO_PD, ULONG_TO_PS};
use crate::exec::jit::node::uniform_offset;
use crate::exec::jit::target::*;
use crate::exec::jit::vector::Vector;
use crate::ir::{CmpOp, Scalar};

pub(super) type X86<'t> = Vector<'t, Asm>;

pub(super) const ADD_PS: Opcode = Opcode(0, 1, 0x58);
const MUL_PS: Opcode = Opcode(0, 1, 0x59);
pub(super) const SUB_PS: Opcode = Opcode(0, 1, 0x5c);
pub(super) const MIN_PS: Opcode = Opcode(0, 1, 0x5d);
const DIV_PS: Opcode = Opcode(0, 1, 0x5e);
pub(super) const MAX_PS: Opcode = Opcode(0, 1, 0x5f);
const SQRT_PS: Opcode = Opcode(0, 1, 0x51);
pub(super) const ROUND_PS: Opcode = Opcode(1, 3, 0x08);
const FMADD_231_PS: Opcode = Opcode(1, 2, 0xb8);
const INT_TO_PS: Opcode = Opcode(0, 1, 0x5b);
const PS_TO_INT: Opcode = Opcode(2, 1, 0x5b);
const UINT_TO_PS: Opcode = Opcode(3, 1, 0x7a);
const PS_TO_UINT: Opcode = Opcode(0, 1, 0x78);
const HALF_TO_PS: Opcode = Opcode(1, 2, 0x13);
const PS_TO_HALF: Opcode = Opcode(1, 3, 0x1d);
pub(super) const ADD_D: Opcode = Opcode(1, 1, 0xfe);
pub(super) const SUB_D: Opcode = Opcode(1, 1, 0xfa);
const MUL_D: Opcode = Opcode(1, 2, 0x40);
const MIN_SD: Opcode = Opcode(1, 2, 0x39);
const MIN_UD: Opcode = Opcode(1, 2, 0x3b);
const MAX_SD: Opcode = Opcode(1, 2, 0x3d);
const MAX_UD: Opcode = Opcode(1, 2, 0x3f);
const ABS_D: Opcode = Opcode(1, 2, 0x1e);
pub(super) const AND: Opcode = Opcode(1, 1, 0xdb);
pub(super) const OR: Opcode = Opcode(1, 1, 0xeb);
pub(super) const XOR: Opcode = Opcode(1, 1, 0xef);
const SHL_VAR: Opcode = Opcode(1, 2, 0x47);
pub(super) const SHR_VAR: Opcode = Opcode(1, 2, 0x45);
const SAR_VAR: Opcode = Opcode(1, 2, 0x46);
const SIGN_BYTES: Opcode = Opcode(1, 2, 0x21);
const SIGN_WORDS: Opcode = Opcode(1, 2, 0x23);
const ZERO_BYTES: Opcode = Opcode(1, 2, 0x31);
const ZERO_WORDS: Opcode = Opcode(1, 2, 0x33);
const BROADCAST: Opcode = Opcode(1, 2, 0x18);
const LOAD: Opcode = Opcode(0, 1, 0x10);
const STORE: Opcode = Opcode(0, 1, 0x11);
const STREAM: Opcode = Opcode(0, 1, 0x2b);
const SHIFT: Opcode = Opcode(1, 1, 0x72);
const EQUAL: Opcode = Opcode(1, 1, 0x76);
pub(super) const GREATER: Opcode = Opcode(1, 1, 0x66);

impl Opcode {
    /// The form for doubles and 64-bit integers.
    fn long(self) -> Opcode {
        match self {
            ADD_D => Opcode(5, 1, 0xd4),
            SUB_D => Opcode(5, 1, 0xfb),
            EQUAL => Opcode(5, 2, 0x29),
            GREATER => Opcode(5, 2, 0x37),
            ABS_D => Opcode(5, 2, 0x1f),
            ROUND_PS => Opcode(5, 3, 0x09),
            AND | OR | XOR => self,
            Opcode(_, map, op) => Opcode(5, map, op),
        }
    }
}

/// The mask register of a partial step; conditions use the first.
pub(super) const TAIL: u8 = 2;

/// A condition, valid until the next one is made.
#[derive(Clone, Copy)]
pub(in crate::exec::jit) struct Cond(pub Vr);

/// The instruction of an operation, and its immediate operand.
fn opcode(op: VectorOp) -> (Opcode, Option<u8>) {
    let o = match op {
        VectorOp::FAdd => ADD_PS,
        VectorOp::FSub => SUB_PS,
        VectorOp::FMul => MUL_PS,
        VectorOp::FDiv => DIV_PS,
        VectorOp::FMulAdd => FMADD_231_PS,
        VectorOp::Add => ADD_D,
        VectorOp::Sub => SUB_D,
        VectorOp::And => AND,
        VectorOp::Or => OR,
        VectorOp::Xor => XOR,
        VectorOp::Shl => SHL_VAR,
        VectorOp::FSqrt => SQRT_PS,
        VectorOp::Rint => return (ROUND_PS, Some(8)),
        VectorOp::Floor => return (ROUND_PS, Some(9)),
        VectorOp::Ceil => return (ROUND_PS, Some(10)),
        VectorOp::Trunc => return (ROUND_PS, Some(11)),
        VectorOp::SignedToFloat => INT_TO_PS,
        VectorOp::UnsignedToFloat => UINT_TO_PS,
        VectorOp::HalfToFloat => HALF_TO_PS,
        VectorOp::SignExtend8 => SIGN_BYTES,
        VectorOp::ZeroExtend8 => ZERO_BYTES,
        VectorOp::SignExtend16 => SIGN_WORDS,
        VectorOp::ZeroExtend16 => ZERO_WORDS,
    };
    (o, None)
}

impl X86<'_> {
    pub(super) fn is_avx512(&self) -> bool {
        self.asm.evex
    }

    /// Bytes of a register that lanes of 32 bits fill.
    fn full(&self) -> Len {
        match (self.is_avx512(), self.half_steps) {
            (true, false) => Len::B512,
            (true, true) | (false, false) => Len::B256,
            (false, true) => Len::B128,
        }
    }

    /// Bytes of a register that lanes of 64 bits fill.
    fn most(&self) -> Len {
        if self.is_avx512() { Len::B512 } else { Len::B256 }
    }

    /// Bytes of a register that the lanes of the operation fill.
    fn len(&self) -> Len {
        if self.long { self.most() } else { self.full() }
    }

    /// An opcode's form for the lanes of the operation.
    fn form(&self, o: Opcode) -> Opcode {
        if self.long { o.long() } else { o }
    }

    pub(super) fn inst3(&mut self, o: Opcode, d: Vr, a: Vr, b: impl Into<Rm>) {
        self.asm.vector(self.form(o), self.len(), d, a, b.into(), 0, None);
    }

    pub(super) fn inst2(&mut self, o: Opcode, d: Vr, a: impl Into<Rm>) {
        self.asm.vector(self.form(o), self.len(), d, 0, a.into(), 0, None);
    }

    /// A conversion between 32-bit and 64-bit lanes.
    pub(super) fn across(&mut self, o: Opcode, d: Vr, a: Vr) {
        self.asm.vector(o, self.most(), d, 0, a.into(), 0, None);
    }

    /// As `inst2`, from memory of an access.
    fn load_with(&mut self, o: Opcode, d: Vr, m: Mem) {
        let mask = if self.masked { TAIL } else { 0 };
        self.asm.vector(self.form(o), self.len(), d, 0, m.into(), mask, None);
    }

    /// The instruction's choice in `T0`, with equal operands (zeros of both signs) joined.
    fn joined(&mut self, largest: bool, a: Vr, b: Vr) {
        let (choose, join) = if largest { (MAX_PS, AND) } else { (MIN_PS, OR) };
        self.inst3(choose, T0, a, b);
        self.inst3(join, T1, a, b);
        let equal = self.fcmp(FloatCmp::Eq, a, b);
        self.blend(T0, equal, T1, T0);
    }

    /// The shortest register that holds a step's lanes of so many bytes.
    fn part(&self, size: u8) -> Len {
        match self.step_bytes(size) {
            64 => Len::B512,
            32 => Len::B256,
            _ => Len::B128,
        }
    }

    fn slot(&self, offset: i32, long: bool) -> (Mem, Len) {
        let index = slot_lane(self).map(|r| (r, if long { 3 } else { 2 }));
        (Mem { base: R14, index, disp: offset }, if long { self.most() } else { self.full() })
    }

    /// 0, 1, 2, .. in the lanes.
    fn count(&mut self, d: Vr) {
        let steps = self.table.steps();
        self.inst2(LOAD, d, Mem::at(RBX, uniform_offset(steps)));
    }
}

impl VectorOps for X86<'_> {
    type Mem = Mem;
    type Cond = Cond;

    // ---- Registers ----

    fn op3(&mut self, op: VectorOp, d: Vr, a: Vr, b: Vr) {
        self.inst3(opcode(op).0, d, a, b);
    }

    fn op2(&mut self, op: VectorOp, d: Vr, a: Vr) {
        let (o, imm) = opcode(op);
        self.asm.vector(self.form(o), self.len(), d, 0, a.into(), 0, imm);
    }

    fn mov(&mut self, d: Vr, a: Vr) {
        if d != a {
            self.inst2(LOAD, d, a);
        }
    }

    fn shift(&mut self, how: Shift, d: Vr, a: Vr, by: u8) {
        let digit = match how {
            Shift::Right => 2,
            Shift::RightSigned => 4,
            Shift::Left => 6,
        };
        let o = if self.long { Opcode(5, 1, 0x73) } else { SHIFT };
        self.asm.vector(o, self.len(), digit, d, a.into(), 0, Some(by));
    }

    fn shift_right(&mut self, signed: bool, d: Vr, a: Vr) {
        if self.is_avx512() || !self.long || !signed {
            return self.inst3(if signed { SAR_VAR } else { SHR_VAR }, d, a, T0);
        }
        self.shift_right_long(d, a);
    }

    fn multiply(&mut self, d: Vr, a: Vr, b: Vr) {
        if self.is_avx512() || !self.long {
            return self.inst3(MUL_D, d, a, b);
        }
        self.multiply_long(d, a, b);
    }

    fn extreme(&mut self, largest: bool, signed: bool, d: Vr, a: Vr, b: Vr) {
        if self.is_avx512() || !self.long {
            let o = match (largest, signed) {
                (true, true) => MAX_SD,
                (true, false) => MAX_UD,
                (false, true) => MIN_SD,
                (false, false) => MIN_UD,
            };
            return self.inst3(o, d, a, b);
        }
        let above = self.icmp(CmpOp::Gt, signed, a, b);
        let (yes, no) = if largest { (a, b) } else { (b, a) };
        self.blend(d, above, yes, no);
    }

    fn absolute(&mut self, d: Vr, a: Vr) {
        if self.is_avx512() || !self.long {
            return self.inst2(ABS_D, d, a);
        }
        let zero = self.constant(0);
        self.inst3(SUB_D, T0, zero, a);
        // The sign bit selects.
        self.blend(d, Cond(a), T0, a);
    }

    fn min_max(&mut self, largest: bool, d: Vr, a: Vr, b: Vr) {
        self.joined(largest, a, b);
        // The instruction gives the second operand where one is NaN.
        let nan = self.fcmp(FloatCmp::Unordered, b, b);
        self.blend(d, nan, a, T0);
    }

    fn min_max_nan(&mut self, largest: bool, d: Vr, a: Vr, b: Vr) {
        self.joined(largest, a, b);
        let nan = self.fcmp(FloatCmp::Unordered, a, a);
        self.blend(T0, nan, a, T0);
        let nan = self.fcmp(FloatCmp::Unordered, b, b);
        self.blend(d, nan, b, T0);
    }

    fn broadcast(&mut self, d: Vr, uniform: u16) {
        let m = Mem::at(RBX, uniform_offset(uniform));
        let (o, len) = match (self.table.is_long(uniform), self.is_avx512()) {
            (true, true) => (Opcode(5, 2, 0x19), Len::B512),
            (true, false) => (Opcode(1, 2, 0x19), Len::B256),
            (false, _) => (BROADCAST, self.full()),
        };
        self.asm.vector(o, len, d, 0, m.into(), 0, None);
    }

    fn lane_indices(&mut self, d: Vr) {
        let lane = lane(self);
        if self.is_avx512() {
            self.asm.vector(Opcode(1, 2, 0x7c), self.full(), d, 0, lane.into(), 0, None);
        } else {
            self.asm.vector(Opcode(1, 1, 0x6e), Len::B128, d, 0, lane.into(), 0, None);
            self.inst2(Opcode(1, 2, 0x58), d, d);
        }
        let steps = self.table.steps();
        self.inst3(ADD_D, d, d, Mem::at(RBX, uniform_offset(steps)));
    }

    // ---- Conditions ----

    /// Under AVX2 the answer lies in `T2`.
    fn fcmp(&mut self, how: FloatCmp, a: Vr, b: Vr) -> Cond {
        const COMPARE: Opcode = Opcode(0, 1, 0xc2);
        // The predicates that signal no exception.
        let how = match how {
            FloatCmp::Eq => 0x00,
            FloatCmp::Ne => 0x04,
            FloatCmp::Lt => 0x11,
            FloatCmp::Le => 0x12,
            FloatCmp::Gt => 0x1e,
            FloatCmp::Ge => 0x1d,
            FloatCmp::Unordered => 0x03,
        };
        let d = if self.is_avx512() { 1 } else { T2 };
        self.asm.vector(self.form(COMPARE), self.len(), d, a, b.into(), 0, Some(how));
        Cond(d)
    }

    /// Under AVX2 the answer lies in `T2`.
    fn icmp(&mut self, op: CmpOp, signed: bool, a: Vr, b: Vr) -> Cond {
        if self.is_avx512() {
            let how = match op {
                CmpOp::Eq => 0,
                CmpOp::Lt => 1,
                CmpOp::Le => 2,
                CmpOp::Ne => 4,
                CmpOp::Ge => 5,
                CmpOp::Gt => 6,
            };
            let prefix = if self.long { 5 } else { 1 };
            let o = Opcode(prefix, 3, if signed { 0x1f } else { 0x1e });
            self.asm.vector(o, self.len(), 1, a, b.into(), 0, Some(how));
            return Cond(1);
        }
        let (mut a, mut b) = (a, b);
        if !signed && !matches!(op, CmpOp::Eq | CmpOp::Ne) {
            let sign = self.sign();
            self.inst3(XOR, T0, a, sign);
            self.inst3(XOR, T1, b, sign);
            (a, b) = (T0, T1);
        }
        match op {
            CmpOp::Eq | CmpOp::Ne => self.inst3(EQUAL, T2, a, b),
            CmpOp::Gt | CmpOp::Le => self.inst3(GREATER, T2, a, b),
            CmpOp::Lt | CmpOp::Ge => self.inst3(GREATER, T2, b, a),
        }
        if matches!(op, CmpOp::Ne | CmpOp::Le | CmpOp::Ge) {
            self.with_constant(VectorOp::Xor, T2, T2, u32::MAX);
        }
        Cond(T2)
    }

    /// For long lanes under AVX2 it lies in `T2`.
    fn condition(&mut self, lanes: Vr) -> Cond {
        if self.is_avx512() {
            self.asm.vector(Opcode(2, 2, 0x39), self.full(), 1, 0, lanes.into(), 0, None);
            return Cond(1);
        }
        if self.long {
            self.extend(T2, lanes, true);
            return Cond(T2);
        }
        Cond(lanes)
    }

    fn lanes(&mut self, d: Vr, c: Cond) {
        if self.is_avx512() {
            self.asm.vector(Opcode(2, 2, 0x38), self.full(), d, 0, c.0.into(), 0, None);
        } else if self.long {
            self.low_halves(d, c.0);
        } else {
            self.mov(d, c.0);
        }
    }

    fn blend(&mut self, d: Vr, c: Cond, yes: Vr, no: Vr) {
        if self.is_avx512() {
            let o = Opcode(if self.long { 5 } else { 1 }, 2, 0x65);
            self.asm.vector(o, self.len(), d, no, yes.into(), c.0, None);
        } else {
            let o = Opcode(1, 3, if self.long { 0x4b } else { 0x4a });
            self.asm.vector(o, self.len(), d, no, yes.into(), 0, Some(c.0 << 4));
        }
    }

    // ---- Conversions ----

    fn extend(&mut self, d: Vr, a: Vr, signed: bool) {
        let o = Opcode(1, 2, if signed { 0x25 } else { 0x35 });
        self.asm.vector(o, self.most(), d, 0, a.into(), 0, None);
    }

    fn low_halves(&mut self, d: Vr, a: Vr) {
        if self.is_avx512() {
            self.asm.vector(Opcode(2, 2, 0x35), Len::B512, a, 0, d.into(), 0, None);
            return;
        }
        self.asm.vector(Opcode(1, 3, 0x39), Len::B256, a, 0, T3.into(), 0, Some(1));
        self.asm.vector(Opcode(0, 1, 0xc6), Len::B128, d, a, T3.into(), 0, Some(0x88));
    }

    fn narrow_half(&mut self, d: Vr, a: Vr) {
        self.asm.vector(PS_TO_HALF, self.full(), a, 0, d.into(), 0, Some(0));
    }

    fn narrow(&mut self, a: Vr, size: u8) {
        if self.is_avx512() {
            let o = Opcode(2, 2, if size == 2 { 0x33 } else { 0x31 });
            self.asm.vector(o, self.full(), a, 0, T3.into(), 0, None);
            return;
        }
        self.with_constant(VectorOp::And, T3, a, if size == 2 { 0xffff } else { 0xff });
        let upper = if self.half_steps { T3 } else { T2 };
        if !self.half_steps {
            self.asm.vector(Opcode(1, 3, 0x39), Len::B256, T3, 0, T2.into(), 0, Some(1));
        }
        self.asm.vector(Opcode(1, 2, 0x2b), Len::B128, T3, T3, upper.into(), 0, None);
        if size == 1 {
            self.asm.vector(Opcode(1, 1, 0x67), Len::B128, T3, T3, T3.into(), 0, None);
        }
    }

    fn float_to_int(&mut self, signed: bool, d: Vr, a: Vr) {
        if !signed {
            self.inst2(PS_TO_UINT, T0, a);
            let zero = self.constant(0);
            let positive = self.fcmp(FloatCmp::Ge, a, zero);
            return self.blend(d, positive, T0, zero);
        }
        self.inst2(PS_TO_INT, T0, a);
        let limit = self.constant(0x4f00_0000);
        let over = self.fcmp(FloatCmp::Ge, a, limit);
        let most = self.constant(i32::MAX as u32);
        self.blend(T0, over, most, T0);
        let nan = self.fcmp(FloatCmp::Unordered, a, a);
        let zero = self.constant(0);
        self.blend(d, nan, zero, T0);
    }

    fn float_to_double(&mut self, d: Vr, a: Vr) {
        self.across(PS_TO_PD, d, a);
    }

    fn double_to_float(&mut self, d: Vr, a: Vr) {
        self.across(PD_TO_PS, d, a);
    }

    fn long_to_float(&mut self, signed: bool, d: Vr, a: Vr) {
        self.across(if signed { LONG_TO_PS } else { ULONG_TO_PS }, d, a);
    }

    fn integer_to_double(&mut self, from: Scalar, d: Vr, a: Vr) {
        self.doubles_from(from, d, a);
    }

    fn double_to_integer(&mut self, to: Scalar, d: Vr, a: Vr) {
        self.integers_from(to, d, a);
    }

    // ---- Memory ----

    fn address(&mut self, access: u16, size: u64) -> Mem {
        let base = pointer(self, access);
        Mem { base, index: Some((lane(self), size.trailing_zeros() as u8)), disp: 0 }
    }

    fn fetch(&mut self, op: VectorOp, d: Vr, m: Mem) {
        self.load_with(opcode(op).0, d, m);
    }

    fn load_full(&mut self, d: Vr, m: Mem) {
        self.load_with(LOAD, d, m);
    }

    fn store(&mut self, a: Vr, m: Mem, size: u8) {
        if self.masked {
            // Stores of long ones, double words, words and bytes.
            let o = match size {
                8 => STORE.long(),
                4 => STORE,
                2 => Opcode(4 | 3, 1, 0x7f),
                _ => Opcode(3, 1, 0x7f),
            };
            return self.asm.vector(o, self.part(size), a, 0, m.into(), TAIL, None);
        }
        let o = match self.step_bytes(size) {
            4 => Opcode(1, 1, 0x7e),
            8 => Opcode(5, 1, 0xd6),
            _ if self.streaming => STREAM,
            _ => STORE,
        };
        self.asm.vector(o, self.part(size), a, 0, m.into(), 0, None);
    }

    fn load_pair(&mut self, d: Vr, m: Mem, which: u8) {
        const CHOOSE: Opcode = Opcode(1, 2, 0x77);
        if self.half_steps {
            self.long = true;
            self.inst2(LOAD, T0, m);
            if which > 0 {
                self.shift(Shift::Right, T0, T0, 32);
            }
            self.long = false;
            return self.low_halves(d, T0);
        }
        self.count(d);
        self.shift(Shift::Left, d, d, 1);
        if which > 0 {
            self.with_constant(VectorOp::Or, d, d, 1);
        }
        self.inst2(LOAD, T0, m);
        self.inst3(CHOOSE, d, T0, Mem { disp: m.disp + 64, ..m });
    }

    fn store_pair(&mut self, a: Vr, b: Vr, m: Mem) {
        const CHOOSE: Opcode = Opcode(1, 2, 0x77);
        if self.half_steps {
            self.extend(T0, a, false);
            self.extend(T1, b, false);
            self.long = true;
            self.shift(Shift::Left, T1, T1, 32);
            self.inst3(OR, T0, T0, T1);
            self.long = false;
            return self.asm.vector(STORE, self.most(), T0, 0, m.into(), 0, None);
        }
        // The number of the lane, and 16 more for those of the second: 0, 16, 1, 17, ..
        self.count(T0);
        self.shift(Shift::Left, T1, T0, 4);
        self.with_constant(VectorOp::And, T1, T1, 16);
        self.shift(Shift::Right, T0, T0, 1);
        self.inst3(OR, T0, T0, T1);
        self.with_constant(VectorOp::Or, T1, T0, 8);
        for (index, disp) in [(T0, 0), (T1, 64)] {
            self.inst3(CHOOSE, index, a, b);
            let m = Mem { disp: m.disp + disp, ..m };
            self.asm.vector(STORE, self.full(), index, 0, m.into(), 0, None);
        }
    }

    fn spill(&mut self, a: Vr, offset: i32, long: bool) {
        let (m, len) = self.slot(offset, long);
        self.asm.vector(STORE, len, a, 0, m.into(), 0, None);
    }

    fn reload(&mut self, d: Vr, offset: i32, long: bool) {
        let (m, len) = self.slot(offset, long);
        self.asm.vector(LOAD, len, d, 0, m.into(), 0, None);
    }
}
