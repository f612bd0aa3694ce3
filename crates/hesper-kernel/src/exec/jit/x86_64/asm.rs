//! The assembler: vector instructions in VEX (AVX2, 256 bits) or EVEX (AVX-512) form, and the integer
//! instructions of loops and calls.
//!
//! Most instructions have one opcode in both forms, so one table of opcodes serves both; `vector` has the
//! differences (masks, narrowing).

use crate::exec::jit::target::Vr;

/// A general register by its number in the encoding.
pub(in crate::exec::jit) type Gr = u8;

pub(super) const RAX: Gr = 0;
pub(super) const RCX: Gr = 1;
pub(super) const RDX: Gr = 2;
pub(super) const RBX: Gr = 3;
pub(super) const RSP: Gr = 4;
pub(super) const RBP: Gr = 5;
pub(super) const RSI: Gr = 6;
pub(super) const RDI: Gr = 7;
pub(super) const R8: Gr = 8;
pub(super) const R9: Gr = 9;
pub(super) const R10: Gr = 10;
pub(super) const R11: Gr = 11;
pub(super) const R12: Gr = 12;
pub(super) const R13: Gr = 13;
pub(super) const R14: Gr = 14;
pub(super) const R15: Gr = 15;

/// An opcode: its mandatory prefix (0, 1 = 66, 2 = F3, 3 = F2; plus 4 to set the W bit, for wide
/// elements), its map (1 = 0F, 2 = 0F38, 3 = 0F3A), and its byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Opcode(pub u8, pub u8, pub u8);

/// An address: `base + index * 2^scale + disp`.
#[derive(Clone, Copy, Default)]
pub(in crate::exec::jit) struct Mem {
    pub base: Gr,
    pub index: Option<(Gr, u8)>,
    pub disp: i32,
}

impl Mem {
    pub(super) fn at(base: Gr, disp: i32) -> Mem {
        Mem { base, index: None, disp }
    }
}

/// The operand that may be memory.
#[derive(Clone, Copy)]
pub(super) enum Rm {
    Reg(Vr),
    Mem(Mem),
}

impl From<Vr> for Rm {
    fn from(r: Vr) -> Rm {
        Rm::Reg(r)
    }
}

impl From<Mem> for Rm {
    fn from(m: Mem) -> Rm {
        Rm::Mem(m)
    }
}

/// Bits of a vector operand: the encoding's length field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Len {
    B128 = 0,
    B256 = 1,
    B512 = 2,
}

/// Conditions of jumps.
#[derive(Clone, Copy)]
pub(super) enum Cond {
    Below = 2,
    BelowEqual = 6,
}

/// A forward jump: the position of its displacement.
pub(super) struct Patch(usize);

/// Code under construction.
#[derive(Clone)]
pub(in crate::exec::jit) struct Asm {
    pub code: Vec<u8>,
    /// EVEX forms and 32 registers.
    pub evex: bool,
}

impl Asm {
    pub(super) fn new(evex: bool) -> Asm {
        Asm { code: Vec::new(), evex }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// The ModRM byte and what follows it.
    fn modrm(&mut self, reg: u8, rm: Rm) {
        let reg = (reg & 7) << 3;
        match rm {
            Rm::Reg(r) => self.put(&[0xc0 | reg | (r & 7)]),
            Rm::Mem(m) => {
                let no_disp = m.disp == 0 && m.base & 7 != RBP;
                let mode = if no_disp { 0 } else { 0x80 };
                match m.index {
                    Some((index, scale)) => {
                        self.put(&[mode | reg | 4, scale << 6 | (index & 7) << 3 | (m.base & 7)]);
                    }
                    None if m.base & 7 == RSP => self.put(&[mode | reg | 4, 0x24]),
                    None => self.put(&[mode | reg | (m.base & 7)]),
                }
                if !no_disp {
                    self.put(&m.disp.to_le_bytes());
                }
            }
        }
    }

    /// A vector instruction: `reg` and `rm` are the ModRM operands, `vvvv` the third register
    /// (0 where there is none), `mask` the mask register (0 for none).
    pub(super) fn vector(
        &mut self,
        o: Opcode,
        len: Len,
        reg: u8,
        vvvv: u8,
        rm: Rm,
        mask: u8,
        imm: Option<u8>,
    ) {
        let Opcode(pp, map, op) = o;
        let (x, b) = match rm {
            Rm::Reg(r) => (r >> 4 & 1, r >> 3 & 1),
            Rm::Mem(m) => (m.index.map_or(0, |(i, _)| i >> 3 & 1), m.base >> 3 & 1),
        };
        let inverted = |bit: u8, at: u8| (bit & 1 ^ 1) << at;
        if self.evex {
            self.put(&[
                0x62,
                inverted(reg >> 3, 7) | inverted(x, 6) | inverted(b, 5) | inverted(reg >> 4, 4) | map,
                (pp & 4) << 5 | (!vvvv & 15) << 3 | 4 | (pp & 3),
                (len as u8) << 5 | inverted(vvvv >> 4, 3) | mask,
                op,
            ]);
        } else {
            debug_assert!(mask == 0 && len != Len::B512);
            self.put(&[
                0xc4,
                inverted(reg >> 3, 7) | inverted(x, 6) | inverted(b, 5) | map,
                (pp & 4) << 5 | (!vvvv & 15) << 3 | (len as u8) << 2 | (pp & 3),
                op,
            ]);
        }
        self.modrm(reg, rm);
        if let Some(imm) = imm {
            self.put(&[imm]);
        }
    }

    fn rex(&mut self, reg: u8, index: u8, base: u8) {
        self.put(&[0x48 | (reg >> 3 & 1) << 2 | (index >> 3 & 1) << 1 | (base >> 3 & 1)]);
    }

    fn with_mem(&mut self, op: u8, reg: Gr, m: Mem) {
        self.rex(reg, m.index.map_or(0, |i| i.0), m.base);
        self.put(&[op]);
        self.modrm(reg, Rm::Mem(m));
    }

    /// `reg = [m]`, 64 bits.
    pub(super) fn load(&mut self, reg: Gr, m: Mem) {
        self.with_mem(0x8b, reg, m);
    }

    /// `reg = address of m`.
    pub(super) fn lea(&mut self, reg: Gr, m: Mem) {
        self.with_mem(0x8d, reg, m);
    }

    fn pair(&mut self, op: u8, to: Gr, from: Gr) {
        self.rex(from, 0, to);
        self.put(&[op]);
        self.modrm(from, Rm::Reg(to));
    }

    pub(super) fn mov(&mut self, to: Gr, from: Gr) {
        self.pair(0x89, to, from);
    }

    pub(super) fn sub(&mut self, to: Gr, from: Gr) {
        self.pair(0x29, to, from);
    }

    pub(super) fn compare(&mut self, a: Gr, b: Gr) {
        self.pair(0x39, a, b);
    }

    pub(super) fn zero(&mut self, to: Gr) {
        self.pair(0x31, to, to);
    }

    fn with_imm(&mut self, digit: u8, to: Gr, imm: i32) {
        self.rex(0, 0, to);
        self.put(&[0x81]);
        self.modrm(digit, Rm::Reg(to));
        self.put(&imm.to_le_bytes());
    }

    pub(super) fn add_imm(&mut self, to: Gr, imm: i32) {
        self.with_imm(0, to, imm);
    }

    pub(super) fn sub_imm(&mut self, to: Gr, imm: i32) {
        self.with_imm(5, to, imm);
    }

    pub(super) fn compare_imm(&mut self, a: Gr, imm: i32) {
        self.with_imm(7, a, imm);
    }

    pub(super) fn shift_right(&mut self, to: Gr, by: u8) {
        self.rex(0, 0, to);
        self.put(&[0xc1]);
        self.modrm(5, Rm::Reg(to));
        self.put(&[by]);
    }

    /// `to = imm`, any 64 bits.
    pub(super) fn mov_imm(&mut self, to: Gr, imm: u64) {
        self.rex(0, 0, to);
        self.put(&[0xb8 | (to & 7)]);
        self.put(&imm.to_le_bytes());
    }

    pub(super) fn push(&mut self, r: Gr) {
        self.put(&[0x40 | r >> 3, 0x50 | (r & 7)]);
    }

    pub(super) fn pop(&mut self, r: Gr) {
        self.put(&[0x40 | r >> 3, 0x58 | (r & 7)]);
    }

    pub(super) fn call(&mut self, r: Gr) {
        self.put(&[0x40 | r >> 3, 0xff, 0xd0 | (r & 7)]);
    }

    pub(super) fn ret(&mut self) {
        self.put(&[0xc3]);
    }

    /// Sixteen bits at `disp` behind `base`, one of the first eight registers, to a mask register.
    pub(super) fn load_mask(&mut self, mask: u8, base: Gr, disp: i32) {
        debug_assert!(base < 8 && base != RSP);
        self.put(&[0xc5, 0xf8, 0x90, 0x80 | mask << 3 | base]);
        self.put(&disp.to_le_bytes());
    }

    /// Zeroes the upper halves of the vector registers, so that SSE code runs without transition penalty.
    pub(super) fn vzeroupper(&mut self) {
        self.put(&[0xc5, 0xf8, 0x77]);
    }

    /// Aligns the start of a loop to half a cache line.
    pub(super) fn align(&mut self) {
        while !self.code.len().is_multiple_of(32) {
            // One-byte no-ops decode slowly, but run once per launch.
            self.put(&[0x90]);
        }
    }

    pub(super) fn here(&self) -> usize {
        self.code.len()
    }

    /// A backward jump.
    pub(super) fn jump_back(&mut self, cond: Cond, to: usize) {
        self.put(&[0x0f, 0x80 | cond as u8]);
        let next = self.code.len() + 4;
        self.put(&((to as i64 - next as i64) as i32).to_le_bytes());
    }

    /// A forward jump, to be bound by `land`.
    pub(super) fn jump_ahead(&mut self, cond: Cond) -> Patch {
        self.put(&[0x0f, 0x80 | cond as u8, 0, 0, 0, 0]);
        Patch(self.code.len())
    }

    /// Binds a forward jump to this point.
    pub(super) fn land(&mut self, patch: Patch) {
        let distance = (self.code.len() - patch.0) as i32;
        self.code[patch.0 - 4..patch.0].copy_from_slice(&distance.to_le_bytes());
    }
}
