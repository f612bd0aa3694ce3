//! The interpreter loop over the bytecode.

use std::sync::atomic::{Ordering, fence};

use super::code::{Affine, Ins, Reg, Vote, size_index};
use super::lanes::BLOCK;
use super::machine::{Machine, RegisterForm};
use super::program::Cancel;
use crate::ir::{Group, ShuffleKind};

/// Why a block of lanes stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// At a barrier: the other blocks of the threadgroup run first.
    Barrier,
    Done,
    Cancelled,
}

impl Machine<'_> {
    /// Runs until the next barrier or the end.
    pub fn run(&mut self, cancel: &Cancel<'_>) -> Stop {
        let code = self.code;
        self.execute(&code.body, cancel)
    }

    /// Computes the launch-wide values of this machine.
    pub fn run_prologue(&mut self) {
        let code = self.code;
        self.reset(1);
        let never = Cancel::new();
        self.execute(&code.prologue, &never);
    }

    fn execute(&mut self, body: &[Ins], cancel: &Cancel<'_>) -> Stop {
        loop {
            let ins = &body[self.pc];
            self.pc += 1;
            match *ins {
                Ins::Un { f, d, a, affine } => self.un(f, d, a, affine),
                Ins::Bin { f, d, a, b, affine } => self.bin(f, d, a, b, affine),
                Ins::Cmp { f, d, a, b, op, scalar } => {
                    let both = self.is_uniform(a) && self.is_uniform(b);
                    if both || !self.affine_compare(op, scalar, d, a, b) {
                        self.bin(f, d, a, b, Affine::No);
                    }
                }
                Ins::Tern { f, d, a, b, c } => self.tern(f, d, a, b, c),
                Ins::Address { f, d, index, offset, stride, scalar } => {
                    let by = self.lane(stride, 0) as i64;
                    if !self.affine_address(d, index, scalar, offset, by) {
                        self.tern(f, d, index, offset, stride);
                    }
                }
                Ins::Copy { d, a } => self.copy(d, a),
                Ins::Move { d, a } => self.swap(d, a),
                Ins::Blend { d, a } => {
                    if self.active.count == self.alive {
                        self.copy(d, a);
                    } else {
                        self.blend(d, a);
                    }
                }
                Ins::BlendMove { d, a } => {
                    if self.active.count == self.alive {
                        self.swap(d, a);
                    } else {
                        self.blend(d, a);
                    }
                }
                Ins::Load(i) => self.load(&self.code.accesses[i as usize]),
                Ins::Store(i) => self.store(&self.code.accesses[i as usize]),
                Ins::Redirect(i) => self.redirect(&self.code.accesses[i as usize]),
                Ins::Atomic(i) => self.atomic(&self.code.atomics[i as usize]),
                Ins::Fence => {
                    self.fence_stores();
                    fence(Ordering::SeqCst);
                }

                Ins::Reduce { f, d, a, identity, group } => {
                    self.group_op(f, d, a, identity, group);
                    self.note_group_result(d, group);
                }
                Ins::Scan { f, d, a, identity, group } => {
                    self.group_op(f, d, a, identity, group);
                    self.set_varying(d);
                }
                Ins::Shuffle { f, d, a, arg, kind, group } => self.shuffle(f, d, a, arg, kind, group),
                Ins::First { f, d, a, group } => {
                    self.shuffle(f, d, a, a, ShuffleKind::Lane, group);
                    self.note_group_result(d, group);
                }
                Ins::Vote { d, a, what, group } => self.vote(d, a, what, group),
                Ins::Matrix { f, a, b, c, d } => {
                    for r in a.into_iter().chain(b).chain(c) {
                        self.spread(r);
                    }
                    let of = |m: &Self, r: [Reg; 2]| r.map(|r| m.regs[r as usize].ptr);
                    let (a, b, c) = (of(self, a), of(self, b), of(self, c));
                    let to = d.map(|r| self.regs[r as usize].own);
                    // SAFETY: all registers hold every block in their own storage.
                    unsafe { f(to, a, b, c, self.mask(0), self.blocks()) };
                    d.into_iter().for_each(|r| self.set_varying(r));
                }
                Ins::Barrier => {
                    self.fence_stores();
                    return Stop::Barrier;
                }

                Ins::If { cond, els } => {
                    if !self.begin_if(cond) {
                        self.pc = els as usize + 1;
                    }
                }
                Ins::Else { end } => {
                    if !self.begin_else() {
                        self.pc = end as usize;
                    }
                }
                Ins::EndIf { dead } => {
                    if !self.end_if() {
                        self.pc = dead as usize;
                    }
                }
                Ins::LoopBegin => self.begin_loop(),
                Ins::Continuing { end } => {
                    if !self.begin_continuing() {
                        self.pc = end as usize;
                    }
                }
                Ins::LoopEnd { body, dead } => {
                    if self.active.count > 0 {
                        if cancel.is_cancelled() {
                            return Stop::Cancelled;
                        }
                        self.pc = body as usize;
                    } else if !self.end_loop() {
                        self.pc = dead as usize;
                    }
                }
                Ins::Leave { how, next } => {
                    self.leave(how);
                    self.pc = next as usize;
                }
                Ins::LeaveIf { cond, how, next } => {
                    if !self.leave_if(cond, how) {
                        self.pc = next as usize;
                    }
                }
                Ins::End => return Stop::Done,
            }
        }
    }

    #[inline(always)]
    fn is_uniform(&self, r: Reg) -> bool {
        self.regs[r as usize].form == RegisterForm::Uniform
    }

    #[inline(always)]
    fn un(&mut self, f: super::lanes::Fn1, d: Reg, a: Reg, affine: Affine) {
        if self.is_uniform(a) {
            // SAFETY: one block of each register; kernels keep to their registers' lane sizes.
            unsafe { f(self.regs[d as usize].own, self.regs[a as usize].ptr, 0, 1) };
            return self.note_uniform(d);
        }
        if let Affine::Convert(from, to) = affine
            && self.affine_convert(from, to, d, a)
        {
            return;
        }
        let (pa, sa) = self.operand(a);
        let (_, blocks) = self.span();
        // SAFETY: the registers hold every block of the span.
        unsafe { f(self.destination(d), pa, sa, blocks) };
        self.set_varying(d);
    }

    #[inline(always)]
    fn bin(&mut self, f: super::lanes::Fn2, d: Reg, a: Reg, b: Reg, affine: Affine) {
        if self.is_uniform(a) && self.is_uniform(b) {
            let (pa, pb) = (self.regs[a as usize].ptr, self.regs[b as usize].ptr);
            // SAFETY: one block of each register.
            unsafe { f(self.regs[d as usize].own, pa, 0, pb, 0, 1) };
            return self.note_uniform(d);
        }
        if let Affine::Op(op, s) = affine
            && self.affine_binary(op, s, d, a, b)
        {
            return;
        }
        let (pa, sa) = self.operand(a);
        let (pb, sb) = self.operand(b);
        let (_, blocks) = self.span();
        // SAFETY: the registers hold every block of the span.
        unsafe { f(self.destination(d), pa, sa, pb, sb, blocks) };
        self.set_varying(d);
    }

    #[inline(always)]
    fn tern(&mut self, f: super::lanes::Fn3, d: Reg, a: Reg, b: Reg, c: Reg) {
        if self.is_uniform(a) && self.is_uniform(b) && self.is_uniform(c) {
            let [pa, pb, pc] = [a, b, c].map(|r| self.regs[r as usize].ptr);
            // SAFETY: one block of each register.
            unsafe { f(self.regs[d as usize].own, pa, 0, pb, 0, pc, 0, 1) };
            return self.note_uniform(d);
        }
        let (pa, sa) = self.operand(a);
        let (pb, sb) = self.operand(b);
        let (pc, sc) = self.operand(c);
        let (_, blocks) = self.span();
        // SAFETY: the registers hold every block of the span.
        unsafe { f(self.destination(d), pa, sa, pb, sb, pc, sc, blocks) };
        self.set_varying(d);
    }

    fn copy(&mut self, d: Reg, a: Reg) {
        let s = self.regs[a as usize];
        let f = self.code.copy[size_index(s.size)];
        match s.form {
            // SAFETY: one block of each register.
            RegisterForm::Uniform => unsafe { f(self.regs[d as usize].own, s.ptr, 0, 1) },
            RegisterForm::Affine => return self.set_affine(d, s.base, s.stride),
            RegisterForm::Varying => {
                let (pa, sa) = self.operand(a);
                let (_, blocks) = self.span();
                // SAFETY: the registers hold every block of the span.
                unsafe { f(self.destination(d), pa, sa, blocks) };
                return self.set_varying(d);
            }
        }
        self.note_uniform(d);
    }

    /// Exchanges two registers of one lane size.
    fn swap(&mut self, d: Reg, a: Reg) {
        self.regs.swap(d as usize, a as usize);
    }

    /// `d = a` in the active lanes.
    fn blend(&mut self, d: Reg, a: Reg) {
        self.spread(d);
        let (pa, sa) = self.operand(a);
        let to = self.destination(d);
        let size = self.regs[d as usize].size;
        let (first, blocks) = self.span();
        let mask = self.mask(0).wrapping_add(first * BLOCK);
        let f = self.code.select[size_index(size)];
        // SAFETY: the registers hold every block of the span; `d` is its own third operand.
        unsafe { f(to, mask, BLOCK, pa, sa, to, size as usize * BLOCK, blocks) };
    }

    fn group_op(&mut self, f: super::groups::FnGroup, d: Reg, a: Reg, identity: u64, group: Group) {
        let (pa, sa) = self.operand(a);
        let (first, blocks) = self.span();
        let mask = self.mask(0).wrapping_add(first * BLOCK);
        // SAFETY: the registers and the mask hold every block of the span.
        unsafe { f(self.destination(d), pa, sa, mask, identity, group, blocks) };
    }

    /// A group-wide result is uniform if there is only one group.
    fn note_group_result(&mut self, d: Reg, group: Group) {
        if group == Group::Simd && self.blocks() == 1 {
            self.note_uniform(d);
        } else {
            self.set_varying(d);
        }
    }

    fn shuffle(
        &mut self,
        f: super::groups::FnShuffle,
        d: Reg,
        a: Reg,
        arg: Reg,
        kind: ShuffleKind,
        group: Group,
    ) {
        let (pa, sa) = self.operand(a);
        let (pb, sb) = self.operand(arg);
        let (first, blocks) = self.span();
        let mask = self.mask(0).wrapping_add(first * BLOCK);
        // SAFETY: the registers and the mask hold every block of the span; the argument of a
        // broadcast is not read.
        unsafe { f(self.destination(d), pa, sa, pb, sb, mask, kind, group, blocks) };
        self.set_varying(d);
    }

    fn vote(&mut self, d: Reg, a: Option<Reg>, what: Vote, group: Group) {
        let operand = a.map(|a| self.operand(a));
        let (first, blocks) = self.span();
        let width = group.width() as usize;
        for k in 0..blocks {
            // SAFETY: block k of the span of the mask and the operand.
            let (mask, held) = unsafe {
                let mask = self.mask(0).add((first + k) * BLOCK).cast::<[u8; BLOCK]>().read_unaligned();
                let held = match operand {
                    Some((p, s)) => p.add(k * s).cast::<[u8; BLOCK]>().read_unaligned(),
                    None => [1; BLOCK],
                };
                (mask, held)
            };
            let mut result = [0u32; BLOCK];
            for base in (0..BLOCK).step_by(width) {
                let bits = |f: &dyn Fn(usize) -> bool| {
                    (0..width).fold(0u32, |bits, i| bits | u32::from(f(base + i)) << i)
                };
                let active = bits(&|i| mask[i] != 0);
                let yes = bits(&|i| mask[i] != 0 && held[i] != 0);
                for (i, r) in result[base..base + width].iter_mut().enumerate() {
                    *r = match what {
                        Vote::Ballot => yes,
                        Vote::All => u32::from(yes == active),
                        Vote::Any => u32::from(yes != 0),
                        Vote::IsFirst => u32::from(active.trailing_zeros() as usize == i),
                    };
                }
            }
            let to = self.destination(d);
            // SAFETY: block k of the span of the destination.
            unsafe {
                if what == Vote::Ballot {
                    to.cast::<[u32; BLOCK]>().add(k).write_unaligned(result);
                } else {
                    to.cast::<[u8; BLOCK]>().add(k).write_unaligned(result.map(|r| r as u8));
                }
            }
        }
        if what == Vote::IsFirst {
            self.set_varying(d);
        } else {
            self.note_group_result(d, group);
        }
    }
}
