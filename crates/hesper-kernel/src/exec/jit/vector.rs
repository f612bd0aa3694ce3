//! The state of one variant of a kernel while its code is emitted, and its uniform operands and constants.
//!
//! A lane is 32 bits, or 64 while [`Vector::long`] is set: then operations are those of doubles and 64-bit
//! integers. If a kernel has 64-bit lanes, steps have half as many lanes, so that 32-bit ones fill half a
//! register. A condition as a value always is a vector of 32-bit lanes, all ones or zero.

use super::node::{LongUniform, Operand, UniformTable};
use super::target::{CONSTANTS, OPERANDS, VectorOp, VectorOps, Vr};

/// Emits the vector code of one variant of a kernel with an assembler.
pub(super) struct Vector<'t, A> {
    pub asm: A,
    pub table: &'t mut UniformTable,
    /// Registers of pinned uniforms, by number.
    pub pins: Vec<Option<Vr>>,
    /// Uses of each uniform.
    pub wanted: Vec<u32>,
    /// The row is processed in chunks: slots hold the lanes of a chunk, and no register holds an address.
    pub in_chunks: bool,
    /// Stores are non-temporal.
    pub streaming: bool,
    /// Accesses are masked.
    pub masked: bool,
    /// Operations are on 64-bit lanes.
    pub long: bool,
    /// Steps have half as many lanes, since some are 64-bit.
    pub half_steps: bool,
    turn: usize,
}

impl<'t, A> Vector<'t, A> {
    pub fn new(
        asm: A,
        half_steps: bool,
        table: &'t mut UniformTable,
        pins: Vec<Option<Vr>>,
    ) -> Vector<'t, A> {
        Vector {
            asm,
            table,
            pins,
            wanted: Vec::new(),
            in_chunks: false,
            streaming: false,
            masked: false,
            long: false,
            half_steps,
            turn: 0,
        }
    }

    /// Bytes of a step's lanes in memory.
    pub fn step_bytes(&self, size: u8) -> u32 {
        self.table.lanes * u32::from(size)
    }

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
}

impl<A> Vector<'_, A>
where
    Self: VectorOps,
{
    /// The register of operand number `i`, whose value is in `held` if it has lanes.
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

    /// A float in all lanes, as the operation's lanes are.
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

    pub fn with_constant(&mut self, op: VectorOp, d: Vr, a: Vr, bits: u32) {
        let c = self.constant(bits);
        self.op3(op, d, a, c);
    }

    /// The registers of the pinned uniforms get their values.
    pub fn load_pins(&mut self) {
        for u in 0..self.pins.len() {
            if let Some(r) = self.pins[u] {
                self.broadcast(r, u as u16);
            }
        }
    }
}
