//! The builder's control flow: `if`, loops and jumps, as begin/end calls and as closures.

use super::builder::Builder;
use super::inst::*;
use super::kernel::{Block, MAX_NESTING};
use super::ops::CmpOp;

/// An `if` or loop begun but not ended.
#[derive(Debug)]
pub(super) enum Region {
    Then { cond: ValueId, then: BlockId, loc: Loc },
    Else { cond: ValueId, then: BlockId, els: BlockId, loc: Loc },
    Body { body: BlockId, loc: Loc },
    Continuing { body: BlockId, continuing: BlockId, loc: Loc },
}

impl Builder {
    fn open_block(&mut self) -> BlockId {
        if self.open.len() >= MAX_NESTING as usize {
            self.fail(format!("blocks nest deeper than {MAX_NESTING}"));
        }
        let b = BlockId(self.kernel.blocks.len() as u32);
        self.kernel.blocks.push(Block::default());
        self.open.push(b);
        b
    }

    /// Begins `if (cond) {`. What follows goes into the `then` block.
    pub fn begin_if(&mut self, cond: ValueId) {
        let loc = self.loc;
        let then = self.open_block();
        self.regions.push(Region::Then { cond, then, loc });
    }

    /// `} else {` of the innermost open `if`.
    pub fn begin_else(&mut self) {
        match self.regions.pop() {
            Some(Region::Then { cond, then, loc }) => {
                self.open.pop();
                let els = self.open_block();
                self.regions.push(Region::Else { cond, then, els, loc });
            }
            other => {
                self.regions.extend(other);
                self.fail("else without if".into());
            }
        }
    }

    /// Ends the innermost open `if`.
    pub fn end_if(&mut self) {
        if matches!(self.regions.last(), Some(Region::Then { .. })) {
            self.begin_else();
        }
        match self.regions.pop() {
            Some(Region::Else { cond, then, els, loc }) => {
                self.open.pop();
                self.emit(None, Op::If { cond, then, els }, loc);
            }
            other => {
                self.regions.extend(other);
                self.fail("end of an if that is not open".into());
            }
        }
    }

    /// Begins a loop. What follows goes into its body.
    pub fn begin_loop(&mut self) {
        let loc = self.loc;
        let body = self.open_block();
        self.regions.push(Region::Body { body, loc });
    }

    /// Begins the `continuing` block of the innermost open loop.
    pub fn begin_continuing(&mut self) {
        match self.regions.pop() {
            Some(Region::Body { body, loc }) => {
                self.open.pop();
                let continuing = self.open_block();
                self.regions.push(Region::Continuing { body, continuing, loc });
            }
            other => {
                self.regions.extend(other);
                self.fail("continuing block without loop".into());
            }
        }
    }

    /// Ends the innermost open loop.
    pub fn end_loop(&mut self) {
        if matches!(self.regions.last(), Some(Region::Body { .. })) {
            self.begin_continuing();
        }
        match self.regions.pop() {
            Some(Region::Continuing { body, continuing, loc }) => {
                self.open.pop();
                self.emit(None, Op::Loop { body, continuing }, loc);
            }
            other => {
                self.regions.extend(other);
                self.fail("end of a loop that is not open".into());
            }
        }
    }

    /// `if (cond) { then }`.
    pub fn if_(&mut self, cond: ValueId, then: impl FnOnce(&mut Builder)) {
        self.begin_if(cond);
        then(self);
        self.end_if();
    }

    /// `if (cond) { then } else { els }`.
    pub fn if_else(
        &mut self,
        cond: ValueId,
        then: impl FnOnce(&mut Builder),
        els: impl FnOnce(&mut Builder),
    ) {
        self.begin_if(cond);
        then(self);
        self.begin_else();
        els(self);
        self.end_if();
    }

    /// A loop that ends only by `Break` or `Return`.
    pub fn loop_(&mut self, body: impl FnOnce(&mut Builder), continuing: impl FnOnce(&mut Builder)) {
        self.begin_loop();
        body(self);
        self.begin_continuing();
        continuing(self);
        self.end_loop();
    }

    /// `for (i = start; i < end; i += step) body(i)`, the type being that of `start`.
    pub fn for_range(
        &mut self,
        start: ValueId,
        end: ValueId,
        step: ValueId,
        body: impl FnOnce(&mut Builder, ValueId),
    ) {
        let i = self.var_init("i", start);
        self.begin_loop();
        let at = self.get(i);
        let done = self.compare(CmpOp::Ge, at, end);
        self.if_(done, |b| b.break_());
        body(self, at);
        self.begin_continuing();
        let at = self.get(i);
        let next = self.add(at, step);
        self.set(i, next);
        self.end_loop();
    }

    /// Leaves the innermost loop.
    pub fn break_(&mut self) {
        self.push_void(Op::Break);
    }

    /// Goes to the innermost loop's `continuing`.
    pub fn continue_(&mut self) {
        self.push_void(Op::Continue);
    }

    /// Ends the thread.
    pub fn return_(&mut self) {
        self.push_void(Op::Return);
    }
}
