//! Control flow and the active lanes.
//!
//! A *mask* is a variable of the text that holds the set of active lanes of the thread's SIMD group, the same
//! value in each of them. It starts as the lanes that exist. A fork that needs it votes among the lanes of
//! its mask (`__ballot_sync` waits for exactly these), so each side knows its lanes. Two rules keep every
//! vote complete:
//!
//! * If some lanes may leave an `if` by a jump and others may reach its end, the jumping lanes first go to
//!   the join after it, with their destination in a variable. There all lanes vote on which of them continue,
//!   and then the others jump. A side that never reaches its end needs no join: the vote at the fork
//!   determines the lanes of the other side.
//! * A loop with a `continue` collects its lanes before the `continuing` part in the same way; a loop with a
//!   `return` collects them after the loop.
//!
//! Code without SIMD-group ops is printed as plain C++; only jumps out of it are collected.

use super::analysis::{Flow, loop_flow};
use super::kernel::Emitter;
use crate::ir::{BlockId, Op, ValueId};

/// The mask variable, if one is needed.
pub(super) type Mask = Option<u32>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Jump {
    Break = 1,
    Continue = 2,
    Return = 3,
}

/// A scope that jumps leave.
#[derive(Debug)]
pub(super) enum JumpScope {
    /// A loop whose jumps are C++ jumps.
    Plain { id: u32, continued: bool },
    /// A loop with masks.
    Masked { id: u32, collects: bool, in_body: bool, collected: bool, left: bool },
    /// A join that collects every jump.
    Join { id: u32, used: bool },
}

impl Emitter<'_> {
    /// Writes the instructions of a block; gives the mask at its end.
    pub(super) fn block(&mut self, id: BlockId, mut mask: Mask) -> Mask {
        let kernel = self.kernel;
        for (index, inst) in kernel.block(id).insts.iter().enumerate() {
            self.number = self.numbers.of(id, index);
            match inst.op {
                Op::If { cond, then, els } => mask = self.branch(cond, then, els, mask),
                Op::Loop { body, continuing } => mask = self.looping(body, continuing, mask),
                Op::Break => self.jump(Jump::Break),
                Op::Continue => self.jump(Jump::Continue),
                Op::Return => self.jump(Jump::Return),
                _ => self.instruction(inst, mask),
            }
        }
        mask
    }

    fn flow(&self, id: BlockId) -> Flow {
        self.flows[id.index()]
    }

    /// The mask for a block, if it needs one.
    fn mask_for(&self, id: BlockId, mask: Mask) -> Mask {
        mask.filter(|_| self.flow(id).lanes)
    }

    fn branch(&mut self, cond: ValueId, then: BlockId, els: BlockId, mask: Mask) -> Mask {
        let (t, e) = (self.flow(then), self.flow(els));
        let both = t.or(e);
        let Some(m) = mask.filter(|_| both.lanes || both.jumps()) else {
            self.sides(cond, then, els, None, None);
            return mask;
        };
        let settled = !both.jumps() || (!t.falls && !e.jumps()) || (!e.falls && !t.jumps());
        let joins = !settled && both.falls;
        let yes = self.fresh();
        let no = self.fresh();
        if both.lanes || !joins {
            self.line(&format!("const u32 m{yes} = __ballot_sync(m{m}, v{});", cond.0));
        }
        if e.lanes || (!joins && !t.falls) {
            self.line(&format!("const u32 m{no} = m{m} & ~m{yes};"));
        }
        if !joins {
            self.sides(cond, then, els, Some(yes), Some(no));
            return Some(match (t.falls, e.falls) {
                (false, true) => no,
                (true, false) => yes,
                _ => m,
            });
        }
        let id = self.open_join();
        self.sides(cond, then, els, Some(yes), Some(no));
        self.close_join(id, m, both)
    }

    fn sides(&mut self, cond: ValueId, then: BlockId, els: BlockId, yes: Mask, no: Mask) {
        let (yes, no) = (self.mask_for(then, yes), self.mask_for(els, no));
        let kernel = self.kernel;
        let (then_empty, els_empty) =
            (kernel.block(then).insts.is_empty(), kernel.block(els).insts.is_empty());
        match (then_empty, els_empty) {
            (true, true) => {}
            (true, false) => {
                self.line(&format!("if (!v{}) {{", cond.0));
                self.nested(els, no);
            }
            (false, _) => {
                self.line(&format!("if (v{}) {{", cond.0));
                self.nested(then, yes);
                if !els_empty {
                    self.line("} else {");
                    self.nested(els, no);
                }
            }
        }
        if !(then_empty && els_empty) {
            self.line("}");
        }
    }

    fn nested(&mut self, id: BlockId, mask: Mask) -> Mask {
        self.indent += 1;
        let end = self.block(id, mask);
        self.indent -= 1;
        end
    }

    fn open_join(&mut self) -> u32 {
        let id = self.fresh();
        self.line(&format!("u32 j{id} = 0u;"));
        self.scopes.push(JumpScope::Join { id, used: false });
        id
    }

    /// Joins the lanes of `m`: lanes that jumped continue their jump. Gives the mask of the others.
    fn close_join(&mut self, id: u32, m: u32, flow: Flow) -> Mask {
        if let Some(JumpScope::Join { used: true, .. }) = self.scopes.pop() {
            self.line(&format!("J{id}:;"));
        }
        let rest = self.fresh();
        self.line(&format!("const u32 m{rest} = __ballot_sync(m{m}, j{id} == 0u);"));
        let kinds =
            [(flow.breaks, Jump::Break), (flow.continues, Jump::Continue), (flow.returns, Jump::Return)];
        for (_, kind) in kinds.into_iter().filter(|k| k.0) {
            self.line(&format!("if (j{id} == {}u) {{", kind as u32));
            self.indent += 1;
            self.jump(kind);
            self.indent -= 1;
            self.line("}");
        }
        Some(rest)
    }

    fn looping(&mut self, body: BlockId, continuing: BlockId, mask: Mask) -> Mask {
        let flow = loop_flow(self.flow(body), self.flow(continuing));
        match mask {
            Some(m) if flow.lanes => self.masked_loop(body, continuing, flow, m),
            Some(m) if flow.returns => {
                let id = self.open_join();
                self.plain_loop(body, continuing);
                self.close_join(id, m, Flow { returns: true, ..Flow::default() })
            }
            _ => {
                self.plain_loop(body, continuing);
                mask
            }
        }
    }

    fn plain_loop(&mut self, body: BlockId, continuing: BlockId) {
        let id = self.fresh();
        self.scopes.push(JumpScope::Plain { id, continued: false });
        self.line("for (;;) {");
        self.indent += 1;
        self.line("{");
        self.nested(body, None);
        self.line("}");
        if let Some(JumpScope::Plain { continued: true, .. }) = self.scopes.last() {
            self.line(&format!("C{id}:;"));
        }
        self.block(continuing, None);
        self.indent -= 1;
        self.line("}");
        self.scopes.pop();
    }

    fn masked_loop(&mut self, body: BlockId, continuing: BlockId, flow: Flow, m: u32) -> Mask {
        let id = self.fresh();
        let collects = self.flow(body).continues;
        let own = self.fresh();
        self.line(&format!("u32 m{own} = m{m};"));
        if collects || flow.returns {
            self.line(&format!("u32 j{id} = 0u;"));
        }
        self.scopes.push(JumpScope::Masked { id, collects, in_body: true, collected: false, left: false });
        self.line("for (;;) {");
        self.indent += 1;
        self.line("{");
        // Masked even if the body needs no mask: the continuing part may.
        let end = self.nested(body, Some(own));
        if !collects && self.flow(body).falls {
            self.set_mask(own, end, 1);
        }
        self.line("}");
        if collects {
            if let Some(JumpScope::Masked { collected: true, .. }) = self.scopes.last() {
                self.line(&format!("B{id}:;"));
            }
            let stay = self.fresh();
            self.line(&format!("const u32 m{stay} = __ballot_sync(m{own}, j{id} == 0u);"));
            self.line(&format!("if (j{id} != 0u) break;"));
            self.line(&format!("m{own} = m{stay};"));
        }
        if let Some(JumpScope::Masked { in_body, .. }) = self.scopes.last_mut() {
            *in_body = false;
        }
        let end = self.block(continuing, Some(own));
        self.set_mask(own, end, 0);
        self.indent -= 1;
        self.line("}");
        if let Some(JumpScope::Masked { left: true, .. }) = self.scopes.pop() {
            self.line(&format!("E{id}:;"));
        }
        if !flow.returns {
            return Some(m);
        }
        let rest = self.fresh();
        self.line(&format!("const u32 m{rest} = __ballot_sync(m{m}, j{id} != 3u);"));
        self.line(&format!("if (j{id} == 3u) {{"));
        self.indent += 1;
        self.jump(Jump::Return);
        self.indent -= 1;
        self.line("}");
        Some(rest)
    }

    fn set_mask(&mut self, own: u32, end: Mask, deeper: usize) {
        if let Some(end) = end.filter(|&end| end != own) {
            self.indent += deeper;
            self.line(&format!("m{own} = m{end};"));
            self.indent -= deeper;
        }
    }

    /// Jumps to the innermost scope that collects jumps, or directly to the destination.
    fn jump(&mut self, kind: Jump) {
        for scope in self.scopes.iter_mut().rev() {
            match scope {
                JumpScope::Join { id, used } => {
                    *used = true;
                    let text = format!("j{id} = {}u; goto J{id};", kind as u32);
                    return self.line(&text);
                }
                JumpScope::Plain { id, continued } => match kind {
                    Jump::Break => return self.line("break;"),
                    Jump::Continue => {
                        *continued = true;
                        let text = format!("goto C{id};");
                        return self.line(&text);
                    }
                    Jump::Return => {}
                },
                JumpScope::Masked { id, collects, in_body, collected, left } => {
                    let set = match kind {
                        Jump::Continue => String::new(),
                        // Without collecting, only a return is distinguished from falling out.
                        Jump::Break if !(*collects && *in_body) => String::new(),
                        _ => format!("j{id} = {}u; ", kind as u32),
                    };
                    let to = if *collects && *in_body {
                        *collected = true;
                        format!("B{id}")
                    } else {
                        *left = true;
                        format!("E{id}")
                    };
                    let text = format!("{set}goto {to};");
                    return self.line(&text);
                }
            }
        }
        // Outside every loop only a return is left.
        self.line("return;");
    }
}
