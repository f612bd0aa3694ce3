//! The assembler: NEON instructions, and the integer instructions of loops and calls.
//!
//! An instruction is a word; a constant below is the word with all registers 0. Vector instructions are those
//! of four 32-bit lanes, to which [`LONG`] is added for two 64-bit ones.

use crate::exec::jit::target::Vr;

/// A general register by its number in the encoding.
pub(in crate::exec::jit) type Gr = u8;

/// The stack pointer, where an instruction takes it.
pub(super) const SP: Gr = 31;
pub(super) const X29: Gr = 29;
pub(super) const X30: Gr = 30;

/// The forms for doubles and 64-bit integers.
pub(super) const LONG: u32 = 1 << 22;

// Three registers: floats.
pub(super) const FADD: u32 = 0x4e20_d400;
pub(super) const FSUB: u32 = 0x4ea0_d400;
pub(super) const FMUL: u32 = 0x6e20_dc00;
pub(super) const FDIV: u32 = 0x6e20_fc00;
/// `d += a * b`, rounded once.
pub(super) const FMLA: u32 = 0x4e20_cc00;
/// These give NaN if an operand is NaN, and take -0 for less than +0.
pub(super) const FMIN: u32 = 0x4ea0_f400;
pub(super) const FMAX: u32 = 0x4e20_f400;
pub(super) const FCMEQ: u32 = 0x4e20_e400;
pub(super) const FCMGE: u32 = 0x6e20_e400;
pub(super) const FCMGT: u32 = 0x6ea0_e400;

// Three registers: integers.
pub(super) const ADD: u32 = 0x4ea0_8400;
pub(super) const SUB: u32 = 0x6ea0_8400;
/// Of 32-bit lanes only, as are the four after it.
pub(super) const MUL: u32 = 0x4ea0_9c00;
pub(super) const SMAX: u32 = 0x4ea0_6400;
pub(super) const SMIN: u32 = 0x4ea0_6c00;
pub(super) const UMAX: u32 = 0x6ea0_6400;
pub(super) const UMIN: u32 = 0x6ea0_6c00;
/// Shifts by signed counts: to the left by positive ones.
pub(super) const SSHL: u32 = 0x4ea0_4400;
pub(super) const USHL: u32 = 0x6ea0_4400;
pub(super) const CMEQ: u32 = 0x6ea0_8c00;
pub(super) const CMGT: u32 = 0x4ea0_3400;
pub(super) const CMGE: u32 = 0x4ea0_3c00;
pub(super) const CMHI: u32 = 0x6ea0_3400;
pub(super) const CMHS: u32 = 0x6ea0_3c00;
/// Products of the low two 32-bit lanes, added to 64-bit lanes.
pub(super) const UMLAL: u32 = 0x2ea0_8000;

// Three registers: bits, which have no long form.
pub(super) const AND: u32 = 0x4e20_1c00;
pub(super) const ORR: u32 = 0x4ea0_1c00;
pub(super) const EOR: u32 = 0x6e20_1c00;
/// `d = d ? a : b`.
pub(super) const BSL: u32 = 0x6e60_1c00;
/// `d = b ? a : d`.
pub(super) const BIT: u32 = 0x6ea0_1c00;
/// `d = b ? d : a`.
pub(super) const BIF: u32 = 0x6ee0_1c00;

// Three registers: permutations of 32-bit lanes.
pub(super) const UZP1: u32 = 0x4e80_1800;
pub(super) const UZP2: u32 = 0x4e80_5800;
pub(super) const ZIP1: u32 = 0x4e80_3800;
pub(super) const ZIP2: u32 = 0x4e80_7800;

// Two registers.
pub(super) const FSQRT: u32 = 0x6ea1_f800;
pub(super) const FRINTN: u32 = 0x4e21_8800;
pub(super) const FRINTM: u32 = 0x4e21_9800;
pub(super) const FRINTP: u32 = 0x4ea1_8800;
pub(super) const FRINTZ: u32 = 0x4ea1_9800;
pub(super) const SCVTF: u32 = 0x4e21_d800;
pub(super) const UCVTF: u32 = 0x6e21_d800;
/// These saturate, and give zero for NaN.
pub(super) const FCVTZS: u32 = 0x4ea1_b800;
pub(super) const FCVTZU: u32 = 0x6ea1_b800;
pub(super) const ABS: u32 = 0x4ea0_b800;
pub(super) const NEG: u32 = 0x6ea0_b800;
pub(super) const NOT: u32 = 0x6e20_5800;
/// Swaps the 32-bit halves of 64-bit lanes.
pub(super) const REV64: u32 = 0x4ea0_0800;
/// Sums of neighbouring 32-bit lanes as 64 bits.
pub(super) const UADDLP: u32 = 0x6ea0_2800;
/// Narrow to 8, 16 and 32 bits.
pub(super) const XTN_8: u32 = 0x0e21_2800;
pub(super) const XTN_16: u32 = 0x0e61_2800;
pub(super) const XTN_32: u32 = 0x0ea1_2800;
/// The upper halves of 64-bit lanes.
pub(super) const SHRN_32: u32 = 0x0f20_8400;
/// Narrow to 32 bits with saturation.
pub(super) const SQXTN_32: u32 = 0x0ea1_4800;
pub(super) const UQXTN_32: u32 = 0x2ea1_4800;
/// Extend from 8, 16 and 32 bits.
pub(super) const SXTL_8: u32 = 0x0f08_a400;
pub(super) const UXTL_8: u32 = 0x2f08_a400;
pub(super) const SXTL_16: u32 = 0x0f10_a400;
pub(super) const UXTL_16: u32 = 0x2f10_a400;
pub(super) const SXTL_32: u32 = 0x0f20_a400;
pub(super) const UXTL_32: u32 = 0x2f20_a400;
/// Between f16 and f32; with `LONG` between f32 and f64.
pub(super) const FCVTL: u32 = 0x0e21_7800;
pub(super) const FCVTN: u32 = 0x0e21_6800;

// One lane, from and to general registers.
pub(super) const UMOV_D0: u32 = 0x4e08_3c00;
pub(super) const UMOV_D1: u32 = 0x4e18_3c00;
pub(super) const SCVTF_S_X: u32 = 0x9e22_0000;
pub(super) const UCVTF_S_X: u32 = 0x9e23_0000;
/// The first lane of one register to the second of another.
pub(super) const INS_S1_S0: u32 = 0x6e0c_0400;
pub(super) const DUP_S_W: u32 = 0x4e04_0c00;

// One lane of memory to all.
pub(super) const LD1R_S: u32 = 0x4d40_c800;
pub(super) const LD1R_D: u32 = 0x4d40_cc00;

/// Whether a vector shift by a constant goes to the left, and which bits it fills with.
#[derive(Clone, Copy)]
pub(super) enum ShiftBy {
    Left,
    RightUnsigned,
    RightSigned,
}

/// Conditions of jumps.
#[derive(Clone, Copy)]
pub(super) enum Cond {
    Lower = 3,
    LowerOrSame = 9,
}

/// A forward jump: the position of its word.
pub(super) struct Patch(usize);

/// Code under construction.
#[derive(Clone, Default)]
pub(in crate::exec::jit) struct Asm {
    code: Vec<u32>,
}

impl Asm {
    fn put(&mut self, word: u32) {
        self.code.push(word);
    }

    /// The code as bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.code.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> &[u32] {
        &self.code
    }

    // ---- Vectors ----

    /// An instruction of three registers.
    pub(super) fn rrr(&mut self, op: u32, d: Vr, a: Vr, b: Vr) {
        self.put(op | u32::from(b) << 16 | u32::from(a) << 5 | u32::from(d));
    }

    /// An instruction of two registers.
    pub(super) fn rr(&mut self, op: u32, d: u8, a: u8) {
        self.put(op | u32::from(a) << 5 | u32::from(d));
    }

    /// A shift of lanes by a constant: to the left by 0 to `bits - 1`, to the right by 1 to `bits`.
    pub(super) fn shift(&mut self, how: ShiftBy, long: bool, d: Vr, a: Vr, by: u8) {
        let bits = if long { 64 } else { 32 };
        let (op, field) = match how {
            ShiftBy::Left => (0x4f00_5400, bits + u32::from(by)),
            ShiftBy::RightUnsigned => (0x6f00_0400, 2 * bits - u32::from(by)),
            ShiftBy::RightSigned => (0x4f00_0400, 2 * bits - u32::from(by)),
        };
        self.rr(op | field << 16, d, a);
    }

    /// Loads 2, 4, 8 or 16 bytes from `base + index * bytes`.
    pub(super) fn load_indexed(&mut self, bytes: u32, d: Vr, base: Gr, index: Gr) {
        self.rrr(size_bits(bytes) | 0x3c60_7800, d, base, index);
    }

    pub(super) fn store_indexed(&mut self, bytes: u32, a: Vr, base: Gr, index: Gr) {
        self.rrr(size_bits(bytes) | 0x3c20_7800, a, base, index);
    }

    /// Loads 8 or 16 bytes from `base + offset`, a multiple of so many below 4096 times as many.
    pub(super) fn load_at(&mut self, bytes: u32, d: Vr, base: Gr, offset: u32) {
        self.with_offset(size_bits(bytes) | 0x3d40_0000, bytes, d, base, offset);
    }

    pub(super) fn store_at(&mut self, bytes: u32, a: Vr, base: Gr, offset: u32) {
        self.with_offset(size_bits(bytes) | 0x3d00_0000, bytes, a, base, offset);
    }

    fn with_offset(&mut self, op: u32, bytes: u32, r: u8, base: Gr, offset: u32) {
        debug_assert!(Asm::reaches(bytes, offset));
        self.rr(op | (offset / bytes) << 10, r, base);
    }

    /// Whether an access of so many bytes can have an offset.
    pub(super) fn reaches(bytes: u32, offset: u32) -> bool {
        offset.is_multiple_of(bytes) && offset / bytes < 1 << 12
    }

    // ---- General registers ----

    /// `d = [base + offset]`, 64 bits.
    pub(super) fn ldr(&mut self, d: Gr, base: Gr, offset: u32) {
        self.with_offset(0xf940_0000, 8, d, base, offset);
    }

    /// Two general registers to `base + offset`.
    pub(super) fn stp(&mut self, a: Gr, b: Gr, base: Gr, offset: i32) {
        self.pair(0xa900_0000, a, b, base, offset);
    }

    pub(super) fn ldp(&mut self, a: Gr, b: Gr, base: Gr, offset: i32) {
        self.pair(0xa940_0000, a, b, base, offset);
    }

    /// The low halves of two vector registers to `base + offset`.
    pub(super) fn stp_d(&mut self, a: Vr, b: Vr, base: Gr, offset: i32) {
        self.pair(0x6d00_0000, a, b, base, offset);
    }

    pub(super) fn ldp_d(&mut self, a: Vr, b: Vr, base: Gr, offset: i32) {
        self.pair(0x6d40_0000, a, b, base, offset);
    }

    /// As `stp`, after which `base` is the address.
    pub(super) fn stp_before(&mut self, a: Gr, b: Gr, base: Gr, offset: i32) {
        self.pair(0xa980_0000, a, b, base, offset);
    }

    /// As `ldp` from `base`, to which the offset is added afterwards.
    pub(super) fn ldp_after(&mut self, a: Gr, b: Gr, base: Gr, offset: i32) {
        self.pair(0xa8c0_0000, a, b, base, offset);
    }

    fn pair(&mut self, op: u32, a: u8, b: u8, base: Gr, offset: i32) {
        debug_assert!(offset % 8 == 0 && (-512..512).contains(&offset));
        let field = (offset / 8) as u32 & 0x7f;
        self.put(op | field << 15 | u32::from(b) << 10 | u32::from(base) << 5 | u32::from(a));
    }

    /// Of two registers neither of which is the stack pointer.
    pub(super) fn mov(&mut self, d: Gr, a: Gr) {
        self.rrr(0xaa00_03e0, d, 0, a);
    }

    /// `d = a + imm`, below 2^24; either may be the stack pointer.
    pub(super) fn add_imm(&mut self, d: Gr, a: Gr, imm: u32) {
        debug_assert!(imm < 1 << 24);
        let (low, high) = (imm & 0xfff, imm >> 12);
        if high > 0 {
            self.rr(0x9140_0000 | high << 10, d, a);
        }
        if low > 0 || high == 0 {
            self.rr(0x9100_0000 | low << 10, d, if high > 0 { d } else { a });
        }
    }

    /// `d = a + b * 2^by`.
    pub(super) fn add(&mut self, d: Gr, a: Gr, b: Gr, by: u8) {
        self.rrr(0x8b00_0000 | u32::from(by) << 10, d, a, b);
    }

    pub(super) fn sub(&mut self, d: Gr, a: Gr, b: Gr) {
        self.rrr(0xcb00_0000, d, a, b);
    }

    pub(super) fn cmp(&mut self, a: Gr, b: Gr) {
        self.rrr(0xeb00_001f, 0, a, b);
    }

    pub(super) fn cmp_imm(&mut self, a: Gr, imm: u32) {
        debug_assert!(imm < 1 << 12);
        self.rr(0xf100_001f | imm << 10, 0, a);
    }

    pub(super) fn lsl(&mut self, d: Gr, a: Gr, by: u8) {
        let by = u32::from(by);
        self.rr(0xd340_0000 | ((64 - by) % 64) << 16 | (63 - by) << 10, d, a);
    }

    pub(super) fn lsr(&mut self, d: Gr, a: Gr, by: u8) {
        self.rr(0xd340_fc00 | u32::from(by) << 16, d, a);
    }

    /// `d = imm`, any 64 bits.
    pub(super) fn mov_imm(&mut self, d: Gr, imm: u64) {
        let part = |i: u32| (imm >> (16 * i)) as u32 & 0xffff;
        self.rr(0xd280_0000 | part(0) << 5, d, 0);
        for i in (1..4).filter(|&i| part(i) != 0) {
            self.rr(0xf280_0000 | i << 21 | part(i) << 5, d, 0);
        }
    }

    pub(super) fn blr(&mut self, a: Gr) {
        self.rr(0xd63f_0000, 0, a);
    }

    pub(super) fn ret(&mut self) {
        self.put(0xd65f_03c0);
    }

    // ---- Jumps ----

    /// Aligns to 16 bytes.
    pub(super) fn align(&mut self) {
        while !self.code.len().is_multiple_of(4) {
            self.put(0xd503_201f);
        }
    }

    /// The position, in words.
    pub(super) fn here(&self) -> usize {
        self.code.len()
    }

    /// A backward jump.
    pub(super) fn jump_back(&mut self, cond: Cond, to: usize) {
        let distance = to as i64 - self.code.len() as i64;
        self.put(0x5400_0000 | distance_bits(distance) | cond as u32);
    }

    /// A forward jump, to be bound by `land`.
    pub(super) fn jump_ahead(&mut self, cond: Cond) -> Patch {
        self.put(0x5400_0000 | cond as u32);
        Patch(self.code.len() - 1)
    }

    /// A forward jump if a register is zero.
    pub(super) fn jump_if_zero(&mut self, a: Gr) -> Patch {
        self.put(0xb400_0000 | u32::from(a));
        Patch(self.code.len() - 1)
    }

    /// Binds a forward jump to this point.
    pub(super) fn land(&mut self, patch: Patch) {
        self.code[patch.0] |= distance_bits((self.code.len() - patch.0) as i64);
    }
}

/// The field of a jump, in words. A kernel's nodes are few enough for a megabyte either way.
fn distance_bits(words: i64) -> u32 {
    debug_assert!((-(1 << 18)..1 << 18).contains(&words));
    (words as u32 & 0x7_ffff) << 5
}

/// The bits of loads and stores of vector registers for a size in bytes.
fn size_bits(bytes: u32) -> u32 {
    match bytes {
        2 => 0x4000_0000,
        4 => 0x8000_0000,
        8 => 0xc000_0000,
        _ => 0x0080_0000,
    }
}
