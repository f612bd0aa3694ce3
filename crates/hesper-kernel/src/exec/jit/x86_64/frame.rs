//! The function around the vector code: registers of the frame, loops, calls.

use super::asm::*;
use super::vector::{TAIL, X86};
use crate::exec::jit::node::{Frame, LANES_OFFSET, SLOTS_OFFSET, pointer_offset};
use crate::exec::jit::target::Target;
use crate::exec::lanes::BLOCK;

/// Registers for the addresses of accesses, in kernels without calls.
const POINTERS: [Gr; 10] = [RCX, RDX, RSI, RDI, R8, R9, R10, R11, R13, RBP];
const TAIL_OFFSET: i32 = std::mem::offset_of!(Frame, tail) as i32;
const SAVED: [Gr; 6] = [RBX, RBP, R12, R13, R14, R15];

/// The register of the lane number.
pub(super) fn lane(v: &X86<'_>) -> Gr {
    if v.in_chunks { R11 } else { R12 }
}

/// The register of the lane number within the slots, if slots have more than one step.
pub(super) fn slot_lane(v: &X86<'_>) -> Option<Gr> {
    v.in_chunks.then_some(R13)
}

/// The register with the address of an access.
pub(super) fn pointer(v: &mut X86<'_>, access: u16) -> Gr {
    if !v.in_chunks
        && let Some(r) = POINTERS.get(access as usize)
    {
        return *r;
    }
    v.asm.load(RAX, Mem::at(RBX, pointer_offset(access)));
    RAX
}

impl Target for X86<'_> {
    fn enter(&mut self, accesses: usize) {
        for r in SAVED {
            self.asm.push(r);
        }
        self.asm.sub_imm(RSP, 8);
        self.asm.mov(RBX, RDI);
        self.asm.load(R15, Mem::at(RBX, LANES_OFFSET));
        self.asm.load(R14, Mem::at(RBX, SLOTS_OFFSET));
        self.asm.zero(R12);
        for (i, r) in POINTERS.into_iter().enumerate().take(accesses) {
            self.asm.load(r, Mem::at(RBX, pointer_offset(i as u16)));
        }
    }

    fn leave(&mut self) {
        self.asm.vzeroupper();
        self.asm.add_imm(RSP, 8);
        for r in SAVED.into_iter().rev() {
            self.asm.pop(r);
        }
        self.asm.ret();
    }

    fn row_loop(&mut self, body: impl FnOnce(&mut Self)) {
        self.asm.compare_imm(R15, 0);
        let none = self.asm.jump_ahead(Cond::BelowEqual);
        self.asm.align();
        let top = self.asm.here();
        body(self);
        self.asm.add_imm(R12, self.table.lanes as i32);
        self.asm.compare(R12, R15);
        self.asm.jump_back(Cond::Below, top);
        self.asm.land(none);
    }

    fn tail(&mut self, body: impl FnOnce(&mut Self)) {
        self.asm.load(RAX, Mem::at(RBX, TAIL_OFFSET));
        self.asm.compare_imm(RAX, 0);
        let whole = self.asm.jump_ahead(Cond::BelowEqual);
        self.asm.load_mask(TAIL, RBX, TAIL_OFFSET);
        body(self);
        self.asm.land(whole);
    }

    fn chunk_loop(&mut self, chunk: u32, body: impl FnOnce(&mut Self)) {
        let top = self.asm.here();
        self.asm.mov(RBP, R15);
        self.asm.sub(RBP, R12);
        self.asm.compare_imm(RBP, chunk as i32);
        let short = self.asm.jump_ahead(Cond::BelowEqual);
        self.asm.mov_imm(RBP, u64::from(chunk));
        self.asm.land(short);
        body(self);
        self.asm.add_imm(R12, chunk as i32);
        self.asm.compare(R12, R15);
        self.asm.jump_back(Cond::Below, top);
    }

    fn segment_loop(&mut self, body: impl FnOnce(&mut Self)) {
        self.asm.zero(R13);
        let top = self.asm.here();
        self.asm.lea(R11, Mem { base: R12, index: Some((R13, 0)), disp: 0 });
        body(self);
        self.asm.add_imm(R13, self.table.lanes as i32);
        self.asm.compare(R13, RBP);
        self.asm.jump_back(Cond::Below, top);
    }

    fn call(&mut self, invoke: u64, call: u64) {
        self.asm.vzeroupper();
        self.asm.mov_imm(RDI, call);
        self.asm.mov(RSI, R14);
        self.asm.lea(RDX, Mem::at(RBP, BLOCK as i32 - 1));
        self.asm.shift_right(RDX, BLOCK.trailing_zeros() as u8);
        self.asm.mov_imm(RAX, invoke);
        self.asm.call(RAX);
    }

    fn align(&mut self) -> usize {
        self.asm.align();
        self.asm.here()
    }

    fn finish(self) -> Vec<u8> {
        self.asm.code
    }
}
