//! Vector operations for AVX2 and AVX-512, each as one or more instructions.
//!
//! A lane is 32 bits, or 64 while [`Vector::long`] is set: then operations are those of doubles and 64-bit
//! integers. If a kernel has 64-bit lanes, steps have half as many lanes, so that 32-bit ones fill half a
//! register. A condition is a mask register under AVX-512 and a vector of all-ones or zero lanes under AVX2.
//! As the value of a node it is always such a vector, of 32-bit lanes.

use super::asm::{Asm, Gr, Len, Mem, Opcode, R14, RBX, Rm, Vr};
use super::node::{LongUniform, Operand, UniformTable, uniform_offset};
use crate::ir::CmpOp;

pub(super) const ADD_PS: Opcode = Opcode(0, 1, 0x58);
pub(super) const MUL_PS: Opcode = Opcode(0, 1, 0x59);
pub(super) const SUB_PS: Opcode = Opcode(0, 1, 0x5c);
pub(super) const MIN_PS: Opcode = Opcode(0, 1, 0x5d);
pub(super) const DIV_PS: Opcode = Opcode(0, 1, 0x5e);
pub(super) const MAX_PS: Opcode = Opcode(0, 1, 0x5f);
pub(super) const SQRT_PS: Opcode = Opcode(0, 1, 0x51);
pub(super) const ROUND_PS: Opcode = Opcode(1, 3, 0x08);
pub(super) const FMADD_231_PS: Opcode = Opcode(1, 2, 0xb8);
pub(super) const INT_TO_PS: Opcode = Opcode(0, 1, 0x5b);
pub(super) const PS_TO_INT: Opcode = Opcode(2, 1, 0x5b);
pub(super) const UINT_TO_PS: Opcode = Opcode(3, 1, 0x7a);
pub(super) const PS_TO_UINT: Opcode = Opcode(0, 1, 0x78);
pub(super) const HALF_TO_PS: Opcode = Opcode(1, 2, 0x13);
const PS_TO_HALF: Opcode = Opcode(1, 3, 0x1d);
pub(super) const ADD_D: Opcode = Opcode(1, 1, 0xfe);
pub(super) const SUB_D: Opcode = Opcode(1, 1, 0xfa);
pub(super) const MUL_D: Opcode = Opcode(1, 2, 0x40);
pub(super) const MIN_SD: Opcode = Opcode(1, 2, 0x39);
pub(super) const MIN_UD: Opcode = Opcode(1, 2, 0x3b);
pub(super) const MAX_SD: Opcode = Opcode(1, 2, 0x3d);
pub(super) const MAX_UD: Opcode = Opcode(1, 2, 0x3f);
pub(super) const ABS_D: Opcode = Opcode(1, 2, 0x1e);
pub(super) const AND: Opcode = Opcode(1, 1, 0xdb);
pub(super) const OR: Opcode = Opcode(1, 1, 0xeb);
pub(super) const XOR: Opcode = Opcode(1, 1, 0xef);
pub(super) const SHL_VAR: Opcode = Opcode(1, 2, 0x47);
pub(super) const SHR_VAR: Opcode = Opcode(1, 2, 0x45);
pub(super) const SAR_VAR: Opcode = Opcode(1, 2, 0x46);
pub(super) const SIGN_BYTES: Opcode = Opcode(1, 2, 0x21);
pub(super) const SIGN_WORDS: Opcode = Opcode(1, 2, 0x23);
pub(super) const ZERO_BYTES: Opcode = Opcode(1, 2, 0x31);
pub(super) const ZERO_WORDS: Opcode = Opcode(1, 2, 0x33);
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

/// Comparison predicates of floats that signal no exception.
pub(super) const EQ: u8 = 0x00;
pub(super) const LT: u8 = 0x11;
pub(super) const LE: u8 = 0x12;
pub(super) const UNORDERED: u8 = 0x03;
pub(super) const NE: u8 = 0x04;
pub(super) const GE: u8 = 0x1d;
pub(super) const GT: u8 = 0x1e;

/// Temporaries of one lowering; `T2` holds conditions under AVX2.
pub(super) const T0: Vr = 0;
pub(super) const T1: Vr = 1;
pub(super) const T2: Vr = 2;
pub(super) const T3: Vr = 3;
/// First register for uniform operands that are not pinned.
const OPERANDS: Vr = 4;
/// Registers for constants that are not pinned, used in turn.
const CONSTANTS: [Vr; 2] = [7, 8];
/// First register for values.
pub(super) const FIRST: Vr = 9;

/// The mask register of a partial step; conditions use mask register 1.
pub(super) const TAIL: u8 = 2;

/// A shift by a constant.
#[derive(Clone, Copy)]
pub(super) enum Shift {
    Right = 2,
    RightSigned = 4,
    Left = 6,
}

/// A condition, valid until the next one is made.
#[derive(Clone, Copy)]
pub(super) struct Cond(pub Vr);

/// Emits the vector code of one variant of a kernel.
pub(super) struct Vector<'t> {
    pub asm: Asm,
    pub table: &'t mut UniformTable,
    /// Registers of pinned uniforms, by number.
    pub pins: Vec<Option<Vr>>,
    /// Uses of each uniform.
    pub wanted: Vec<u32>,
    /// The register of the lane number.
    pub lane: Gr,
    /// The register of the lane number within the slots, if slots have more than one step.
    pub slot_lane: Option<Gr>,
    /// Stores are non-temporal.
    pub streaming: bool,
    /// Accesses are masked by [`TAIL`].
    pub masked: bool,
    /// Operations are on 64-bit lanes.
    pub long: bool,
    /// Steps have half as many lanes, since some are 64-bit.
    half_steps: bool,
    turn: usize,
}

impl<'t> Vector<'t> {
    pub fn new(
        evex: bool,
        half_steps: bool,
        table: &'t mut UniformTable,
        pins: Vec<Option<Vr>>,
    ) -> Vector<'t> {
        Vector {
            asm: Asm::new(evex),
            table,
            pins,
            wanted: Vec::new(),
            lane: 0,
            slot_lane: None,
            streaming: false,
            masked: false,
            long: false,
            half_steps,
            turn: 0,
        }
    }

    pub fn is_avx512(&self) -> bool {
        self.asm.evex
    }

    /// The vector length that lanes of 32 bits fill.
    pub fn full(&self) -> Len {
        match (self.is_avx512(), self.half_steps) {
            (true, false) => Len::B512,
            (true, true) | (false, false) => Len::B256,
            (false, true) => Len::B128,
        }
    }

    /// The vector length that lanes of 64 bits fill.
    pub fn most(&self) -> Len {
        if self.is_avx512() { Len::B512 } else { Len::B256 }
    }

    /// The vector length that the lanes of the operation fill.
    fn len(&self) -> Len {
        if self.long { self.most() } else { self.full() }
    }

    /// An opcode's form for the lanes of the operation.
    fn form(&self, o: Opcode) -> Opcode {
        if self.long { o.long() } else { o }
    }

    // ---- Instructions of three and two operands ----

    pub fn op3(&mut self, o: Opcode, d: Vr, a: Vr, b: impl Into<Rm>) {
        self.asm.vector(self.form(o), self.len(), d, a, b.into(), 0, None);
    }

    pub fn op2(&mut self, o: Opcode, d: Vr, a: impl Into<Rm>) {
        self.asm.vector(self.form(o), self.len(), d, 0, a.into(), 0, None);
    }

    pub fn op2_imm(&mut self, o: Opcode, d: Vr, a: Vr, imm: u8) {
        self.asm.vector(self.form(o), self.len(), d, 0, a.into(), 0, Some(imm));
    }

    pub fn mov(&mut self, d: Vr, a: Vr) {
        if d != a {
            self.op2(LOAD, d, a);
        }
    }

    pub fn shift(&mut self, how: Shift, d: Vr, a: Vr, by: u8) {
        // AVX2 has no arithmetic shift of 64-bit lanes; nothing uses one.
        let o = if self.long { Opcode(5, 1, 0x73) } else { SHIFT };
        self.asm.vector(o, self.len(), how as u8, d, a.into(), 0, Some(by));
    }

    // ---- Uniform operands ----

    fn note(&mut self, uniform: u16) {
        let at = uniform as usize;
        if self.wanted.len() <= at {
            self.wanted.resize(at + 1, 0);
        }
        self.wanted[at] += 1;
    }

    fn pin(&self, uniform: u16) -> Option<Vr> {
        self.pins.get(uniform as usize).copied().flatten()
    }

    /// All lanes of `d` become a uniform.
    pub fn broadcast(&mut self, d: Vr, uniform: u16) {
        let m = Mem::at(RBX, uniform_offset(uniform));
        let (o, len) = match (self.table.is_long(uniform), self.is_avx512()) {
            (true, true) => (Opcode(5, 2, 0x19), Len::B512),
            (true, false) => (Opcode(1, 2, 0x19), Len::B256),
            (false, _) => (BROADCAST, self.full()),
        };
        self.asm.vector(o, len, d, 0, m.into(), 0, None);
    }

    /// The register of operand number `i`: `held` if the operand has lanes.
    pub fn operand(&mut self, i: usize, operand: Operand, held: Vr) -> Vr {
        let Operand::Uniform(u) = operand else {
            return held;
        };
        self.note(u);
        self.pin(u).unwrap_or_else(|| {
            let d = OPERANDS + i as Vr;
            self.broadcast(d, u);
            d
        })
    }

    /// A register with a constant in all lanes, valid until the second next call. 64-bit lanes sign-extend
    /// it.
    pub fn constant(&mut self, bits: u32) -> Vr {
        if self.long {
            return self.long_constant(i64::from(bits as i32) as u64);
        }
        let u = self.table.constant(bits);
        self.shared(u)
    }

    /// The same with 64 bits in all lanes.
    pub fn long_constant(&mut self, bits: u64) -> Vr {
        let u = self.table.intern_long(LongUniform::Constant(bits));
        self.shared(u)
    }

    /// A float in all lanes, as f64 if the operation is on 64-bit lanes.
    pub fn float(&mut self, x: f32) -> Vr {
        if self.long { self.long_constant(f64::from(x).to_bits()) } else { self.constant(x.to_bits()) }
    }

    /// The sign bit in all lanes.
    pub fn sign(&mut self) -> Vr {
        if self.long { self.long_constant(1 << 63) } else { self.constant(1 << 31) }
    }

    /// All bits but the sign bit in all lanes.
    pub fn magnitude(&mut self) -> Vr {
        if self.long { self.long_constant(u64::MAX >> 1) } else { self.constant(u32::MAX >> 1) }
    }

    fn shared(&mut self, u: u16) -> Vr {
        self.note(u);
        self.pin(u).unwrap_or_else(|| {
            self.turn ^= 1;
            let d = CONSTANTS[self.turn];
            self.broadcast(d, u);
            d
        })
    }

    pub fn with_constant(&mut self, o: Opcode, d: Vr, a: Vr, bits: u32) {
        let c = self.constant(bits);
        self.op3(o, d, a, c);
    }

    // ---- Conditions ----

    /// Compares floats; under AVX2 the answer lies in `t`.
    pub fn compare_ps(&mut self, t: Vr, how: u8, a: Vr, b: Vr) -> Cond {
        const COMPARE: Opcode = Opcode(0, 1, 0xc2);
        let d = if self.is_avx512() { 1 } else { t };
        self.asm.vector(self.form(COMPARE), self.len(), d, a, b.into(), 0, Some(how));
        Cond(d)
    }

    /// Compares integers; under AVX2 the answer lies in `T2`, and `T0` and `T1` are lost.
    pub fn compare_d(&mut self, op: CmpOp, signed: bool, a: Vr, b: Vr) -> Cond {
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
            self.op3(XOR, T0, a, sign);
            self.op3(XOR, T1, b, sign);
            (a, b) = (T0, T1);
        }
        match op {
            CmpOp::Eq | CmpOp::Ne => self.op3(EQUAL, T2, a, b),
            CmpOp::Gt | CmpOp::Le => self.op3(GREATER, T2, a, b),
            CmpOp::Lt | CmpOp::Ge => self.op3(GREATER, T2, b, a),
        }
        if matches!(op, CmpOp::Ne | CmpOp::Le | CmpOp::Ge) {
            self.with_constant(XOR, T2, T2, u32::MAX);
        }
        Cond(T2)
    }

    /// A condition from its lanes; for long ones under AVX2 it lies in `T2`.
    pub fn condition(&mut self, lanes: Vr) -> Cond {
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

    /// A condition as lanes; for long ones under AVX2 `T3` is lost.
    pub fn lanes(&mut self, d: Vr, c: Cond) {
        if self.is_avx512() {
            self.asm.vector(Opcode(2, 2, 0x38), self.full(), d, 0, c.0.into(), 0, None);
        } else if self.long {
            self.low_halves(d, c.0);
        } else {
            self.mov(d, c.0);
        }
    }

    // ---- Between 32 and 64 bits ----

    /// 64-bit lanes from 32-bit ones.
    pub fn extend(&mut self, d: Vr, a: Vr, signed: bool) {
        let o = Opcode(1, 2, if signed { 0x25 } else { 0x35 });
        self.asm.vector(o, self.most(), d, 0, a.into(), 0, None);
    }

    /// The low halves of 64-bit lanes; under AVX2 `T3` is lost.
    pub fn low_halves(&mut self, d: Vr, a: Vr) {
        if self.is_avx512() {
            self.asm.vector(Opcode(2, 2, 0x35), Len::B512, a, 0, d.into(), 0, None);
            return;
        }
        self.asm.vector(Opcode(1, 3, 0x39), Len::B256, a, 0, T3.into(), 0, Some(1));
        self.asm.vector(Opcode(0, 1, 0xc6), Len::B128, d, a, T3.into(), 0, Some(0x88));
    }

    /// A conversion between 32-bit and 64-bit lanes.
    pub fn across(&mut self, o: Opcode, d: Vr, a: Vr) {
        self.asm.vector(o, self.most(), d, 0, a.into(), 0, None);
    }

    /// `d = c ? yes : no`.
    pub fn blend(&mut self, d: Vr, c: Cond, yes: Vr, no: Vr) {
        if self.is_avx512() {
            let o = Opcode(if self.long { 5 } else { 1 }, 2, 0x65);
            self.asm.vector(o, self.len(), d, no, yes.into(), c.0, None);
        } else {
            let o = Opcode(1, 3, if self.long { 0x4b } else { 0x4a });
            self.asm.vector(o, self.len(), d, no, yes.into(), 0, Some(c.0 << 4));
        }
    }

    // ---- Narrow forms ----

    /// Bytes of a step's lanes in memory.
    fn bytes(&self, size: u8) -> u32 {
        self.table.lanes * u32::from(size)
    }

    /// The shortest register that holds a step's lanes of so many bytes.
    fn part(&self, size: u8) -> Len {
        match self.bytes(size) {
            64 => Len::B512,
            32 => Len::B256,
            _ => Len::B128,
        }
    }

    /// f32 lanes to f16 in the low half of `d`; NaN becomes quiet.
    pub fn narrow_half(&mut self, d: Vr, a: Vr) {
        self.asm.vector(PS_TO_HALF, self.full(), a, 0, d.into(), 0, Some(0));
    }

    /// The low `size` bytes (1 or 2) of each lane, packed into `T3`; `T2` is lost.
    pub fn narrow(&mut self, a: Vr, size: u8) {
        if self.is_avx512() {
            let o = Opcode(2, 2, if size == 2 { 0x33 } else { 0x31 });
            self.asm.vector(o, self.full(), a, 0, T3.into(), 0, None);
            return;
        }
        self.with_constant(AND, T3, a, if size == 2 { 0xffff } else { 0xff });
        let upper = if self.half_steps { T3 } else { T2 };
        if !self.half_steps {
            self.asm.vector(Opcode(1, 3, 0x39), Len::B256, T3, 0, T2.into(), 0, Some(1));
        }
        self.asm.vector(Opcode(1, 2, 0x2b), Len::B128, T3, T3, upper.into(), 0, None);
        if size == 1 {
            self.asm.vector(Opcode(1, 1, 0x67), Len::B128, T3, T3, T3.into(), 0, None);
        }
    }

    // ---- Memory ----

    /// As `op2`, from memory of an access.
    pub fn fetch(&mut self, o: Opcode, d: Vr, m: Mem) {
        let mask = if self.masked { TAIL } else { 0 };
        self.asm.vector(self.form(o), self.len(), d, 0, m.into(), mask, None);
    }

    pub fn load_full(&mut self, d: Vr, m: Mem) {
        self.fetch(LOAD, d, m);
    }

    /// Stores lanes of so many bytes each.
    pub fn store(&mut self, a: Vr, m: Mem, size: u8) {
        if self.masked {
            // Masked stores of 64, 32, 16 and 8-bit lanes.
            let o = match size {
                8 => STORE.long(),
                4 => STORE,
                2 => Opcode(4 | 3, 1, 0x7f),
                _ => Opcode(3, 1, 0x7f),
            };
            return self.asm.vector(o, self.part(size), a, 0, m.into(), TAIL, None);
        }
        let o = match self.bytes(size) {
            4 => Opcode(1, 1, 0x7e),
            8 => Opcode(5, 1, 0xd6),
            _ if self.streaming => STREAM,
            _ => STORE,
        };
        self.asm.vector(o, self.part(size), a, 0, m.into(), 0, None);
    }

    /// Loads one of two 32-bit components that lie side by side.
    pub fn load_pair(&mut self, d: Vr, m: Mem, which: u8) {
        const CHOOSE: Opcode = Opcode(1, 2, 0x77);
        if self.half_steps {
            self.long = true;
            self.op2(LOAD, T0, m);
            if which > 0 {
                self.shift(Shift::Right, T0, T0, 32);
            }
            self.long = false;
            return self.low_halves(d, T0);
        }
        self.count(d);
        self.shift(Shift::Left, d, d, 1);
        if which > 0 {
            self.with_constant(OR, d, d, 1);
        }
        self.op2(LOAD, T0, m);
        self.op3(CHOOSE, d, T0, Mem { disp: m.disp + 64, ..m });
    }

    /// Stores 32-bit lanes of two registers in turn.
    pub fn store_pair(&mut self, a: Vr, b: Vr, m: Mem) {
        const CHOOSE: Opcode = Opcode(1, 2, 0x77);
        if self.half_steps {
            self.extend(T0, a, false);
            self.extend(T1, b, false);
            self.long = true;
            self.shift(Shift::Left, T1, T1, 32);
            self.op3(OR, T0, T0, T1);
            self.long = false;
            return self.asm.vector(STORE, self.most(), T0, 0, m.into(), 0, None);
        }
        // Indices into both registers, 16 and up for the second: 0, 16, 1, 17, ..
        self.count(T0);
        self.shift(Shift::Left, T1, T0, 4);
        self.with_constant(AND, T1, T1, 16);
        self.shift(Shift::Right, T0, T0, 1);
        self.op3(OR, T0, T0, T1);
        self.with_constant(OR, T1, T0, 8);
        for (index, disp) in [(T0, 0), (T1, 64)] {
            self.op3(CHOOSE, index, a, b);
            let m = Mem { disp: m.disp + disp, ..m };
            self.asm.vector(STORE, self.full(), index, 0, m.into(), 0, None);
        }
    }

    fn slot(&self, offset: i32, long: bool) -> (Mem, Len) {
        let index = self.slot_lane.map(|r| (r, if long { 3 } else { 2 }));
        (Mem { base: R14, index, disp: offset }, if long { self.most() } else { self.full() })
    }

    pub fn spill(&mut self, a: Vr, offset: i32, long: bool) {
        let (m, len) = self.slot(offset, long);
        self.asm.vector(STORE, len, a, 0, m.into(), 0, None);
    }

    pub fn reload(&mut self, d: Vr, offset: i32, long: bool) {
        let (m, len) = self.slot(offset, long);
        self.asm.vector(LOAD, len, d, 0, m.into(), 0, None);
    }

    /// 0, 1, 2, .. in the lanes.
    fn count(&mut self, d: Vr) {
        let steps = self.table.steps();
        self.op2(LOAD, d, Mem::at(RBX, uniform_offset(steps)));
    }

    /// The index of each lane, as 32 bits.
    pub fn lane_indices(&mut self, d: Vr) {
        let lane = self.lane;
        if self.is_avx512() {
            self.asm.vector(Opcode(1, 2, 0x7c), self.full(), d, 0, lane.into(), 0, None);
        } else {
            self.asm.vector(Opcode(1, 1, 0x6e), Len::B128, d, 0, lane.into(), 0, None);
            self.op2(Opcode(1, 2, 0x58), d, d);
        }
        let steps = self.table.steps();
        self.op3(ADD_D, d, d, Mem::at(RBX, uniform_offset(steps)));
    }
}
