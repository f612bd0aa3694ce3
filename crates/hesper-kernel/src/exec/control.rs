//! Structured control flow over lanes by masks of active lanes.
//!
//! A mask is a byte per lane. A uniform condition leaves the masks as they are.

use super::code::{Leave, Reg};
use super::lanes::BLOCK;
use super::machine::{Frame, Lanes, Machine};

impl Machine<'_> {
    /// Mask number of the frame at `depth`: lanes before it, or lanes that entered the loop.
    fn saved(&self, depth: usize) -> *mut u8 {
        self.mask(1 + 2 * depth)
    }

    /// Mask number of the frame at `depth`: lanes of the second block, or waiting lanes.
    fn other(&self, depth: usize) -> *mut u8 {
        self.mask(2 + 2 * depth)
    }

    fn bytes(&self) -> usize {
        self.blocks() * BLOCK
    }

    fn copy_mask(&self, to: *mut u8, from: *const u8) {
        // SAFETY: masks have room for every lane and are different ones.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.bytes()) };
    }

    /// Counts a mask.
    fn count(&self, mask: *const u8) -> Lanes {
        let (mut count, mut first, mut last) = (0usize, usize::MAX, 0usize);
        for k in 0..self.blocks() {
            // SAFETY: a block of a mask.
            let block = unsafe { mask.add(k * BLOCK).cast::<[u8; BLOCK]>().read_unaligned() };
            let sum: u8 = block.iter().sum();
            if sum > 0 {
                count += sum as usize;
                first = first.min(k);
                last = k;
            }
        }
        if count == 0 {
            return Lanes::NONE;
        }
        // SAFETY: `first` and `last` are blocks of the mask with a lane each.
        unsafe {
            let (mut lo, mut hi) = (first * BLOCK, (last + 1) * BLOCK);
            while *mask.add(lo) == 0 {
                lo += 1;
            }
            while *mask.add(hi - 1) == 0 {
                hi -= 1;
            }
            Lanes { lo, hi, count }
        }
    }

    /// Splits the active lanes by a varying condition: into mask `then` those where it holds.
    fn split(&self, cond: Reg, then: *mut u8) -> Lanes {
        let state = self.regs[cond as usize];
        let (first, span) = self.span();
        let at = first * BLOCK;
        // SAFETY: masks and the condition hold every block; outside the span no lane is active.
        unsafe {
            std::ptr::write_bytes(then, 0, self.bytes());
            (self.code.and)(then.add(at), self.mask(0).add(at), BLOCK, state.ptr.add(at), BLOCK, span);
        }
        self.count(then)
    }

    /// Begins an `if`. Whether the first block runs.
    pub fn begin_if(&mut self, cond: Reg) -> bool {
        if let Some(c) = self.uniform(cond) {
            self.frames.push(Frame::Uniform);
            return c != 0;
        }
        let depth = self.frames.len();
        let (then, els, cur) = (self.saved(depth), self.other(depth), self.mask(0));
        let taken = self.split(cond, then);
        if taken.count == self.active.count || taken.count == 0 {
            self.frames.push(Frame::Uniform);
            return taken.count != 0;
        }
        let blocks = self.blocks();
        // SAFETY: masks hold every block. `then` moves into the current mask, the current one
        // into its place.
        unsafe { (self.code.and_not)(els, cur, BLOCK, then, BLOCK, blocks) };
        let not_taken = self.count(els);
        self.full_mask = 0;
        for k in (0..blocks * BLOCK).step_by(BLOCK) {
            // SAFETY: block k of both masks.
            unsafe { std::ptr::swap_nonoverlapping(cur.add(k), then.add(k), BLOCK) };
        }
        self.frames.push(Frame::Divergent { before: self.active, els: not_taken });
        self.active = taken;
        true
    }

    /// Lets the lanes leave where a condition holds. Whether there are lanes left.
    pub fn leave_if(&mut self, cond: Reg, how: Leave) -> bool {
        if let Some(c) = self.uniform(cond) {
            if c != 0 {
                self.leave(how);
            }
            return c == 0;
        }
        let depth = self.frames.len();
        let (then, rest, cur) = (self.saved(depth), self.other(depth), self.mask(0));
        let taken = self.split(cond, then);
        if taken.count == 0 {
            return true;
        }
        // SAFETY: masks hold every block.
        unsafe { (self.code.and_not)(rest, cur, BLOCK, then, BLOCK, self.blocks()) };
        let left = self.count(rest);
        self.copy_mask(cur, then);
        self.active = taken;
        self.leave(how);
        self.copy_mask(cur, rest);
        self.active = left;
        left.count > 0
    }

    /// Begins the second block of an `if`. Whether there are lanes for it.
    pub fn begin_else(&mut self) -> bool {
        let depth = self.frames.len() - 1;
        match self.frames[depth] {
            Frame::Divergent { els, .. } => {
                self.copy_mask(self.mask(0), self.other(depth));
                self.active = els;
                true
            }
            _ => false,
        }
    }

    /// Ends an `if`. Whether there are lanes left.
    pub fn end_if(&mut self) -> bool {
        if let Some(Frame::Divergent { before, .. }) = self.frames.pop() {
            self.copy_mask(self.mask(0), self.saved(self.frames.len()));
            self.active = before;
        }
        self.active.count > 0
    }

    pub fn begin_loop(&mut self) {
        let depth = self.frames.len();
        self.copy_mask(self.saved(depth), self.mask(0));
        self.frames.push(Frame::Loop { entered: self.active, waiting: Lanes::NONE });
    }

    /// Begins the `continuing` block. Whether there are lanes for it.
    pub fn begin_continuing(&mut self) -> bool {
        let depth = self.frames.len() - 1;
        if let Frame::Loop { waiting, entered } = self.frames[depth]
            && waiting.count > 0
        {
            let cur = self.mask(0);
            // SAFETY: masks hold every block.
            unsafe { (self.code.or)(cur, cur, BLOCK, self.other(depth), BLOCK, self.blocks()) };
            self.active = self.count(cur);
            self.frames[depth] = Frame::Loop { entered, waiting: Lanes::NONE };
        }
        self.active.count > 0
    }

    /// Ends a loop that no lane continues. Whether there are lanes left after it.
    pub fn end_loop(&mut self) -> bool {
        if let Some(Frame::Loop { entered, .. }) = self.frames.pop() {
            self.copy_mask(self.mask(0), self.saved(self.frames.len()));
            self.active = entered;
        }
        self.active.count > 0
    }

    /// Removes the active lanes from the regions inside the innermost loop (or from all), so that they stay
    /// inactive when those end.
    pub fn leave(&mut self, how: Leave) {
        self.full_mask = 0;
        let cur = self.mask(0);
        let everything = how == Leave::Return;
        for depth in (0..self.frames.len()).rev() {
            match self.frames[depth] {
                Frame::Uniform => {}
                Frame::Divergent { els, .. } => {
                    self.remove(depth, cur);
                    let before = self.count(self.saved(depth));
                    self.frames[depth] = Frame::Divergent { before, els };
                }
                Frame::Loop { waiting, entered } if !everything => {
                    if how == Leave::Continue {
                        let other = self.other(depth);
                        if waiting.count == 0 {
                            self.copy_mask(other, cur);
                        } else {
                            // SAFETY: masks hold every block.
                            unsafe { (self.code.or)(other, other, BLOCK, cur, BLOCK, self.blocks()) };
                        }
                        let waiting = self.count(other);
                        self.frames[depth] = Frame::Loop { entered, waiting };
                    }
                    break;
                }
                Frame::Loop { waiting, .. } => {
                    self.remove(depth, cur);
                    let entered = self.count(self.saved(depth));
                    self.frames[depth] = Frame::Loop { entered, waiting };
                }
            }
        }
        if everything {
            self.alive -= self.active.count;
        }
        self.active = Lanes::NONE;
        // SAFETY: a mask.
        unsafe { std::ptr::write_bytes(cur, 0, self.bytes()) };
    }

    fn remove(&self, depth: usize, lanes: *const u8) {
        let saved = self.saved(depth);
        // SAFETY: masks hold every block; the destination is its own first operand.
        unsafe { (self.code.and_not)(saved, saved, BLOCK, lanes, BLOCK, self.blocks()) };
    }
}
