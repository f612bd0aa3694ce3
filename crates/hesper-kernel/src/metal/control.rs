//! Control flow, structured as it is in the IR: Metal has no `goto`.

use super::kernel::Emitter;
use crate::ir::{BlockId, Kernel, Op, ValueId};

impl Emitter<'_> {
    /// Writes the instructions of a block.
    pub(super) fn block(&mut self, id: BlockId) {
        let kernel = self.kernel;
        for (index, inst) in kernel.block(id).insts.iter().enumerate() {
            self.number = self.numbers.of(id, index);
            match inst.op {
                Op::If { cond, then, els } => self.branch(cond, then, els),
                Op::Loop { body, continuing } => self.looping(body, continuing),
                Op::Break => self.line("break;"),
                Op::Continue => self.line("continue;"),
                Op::Return => self.line("return;"),
                _ => self.instruction(inst),
            }
        }
    }

    fn branch(&mut self, cond: ValueId, then: BlockId, els: BlockId) {
        let empty = |id: BlockId| self.kernel.block(id).insts.is_empty();
        match (empty(then), empty(els)) {
            (true, true) => return,
            (true, false) => {
                self.line(&format!("if (!v{}) {{", cond.0));
                self.nested(els);
            }
            (false, els_empty) => {
                self.line(&format!("if (v{}) {{", cond.0));
                self.nested(then);
                if !els_empty {
                    self.line("} else {");
                    self.nested(els);
                }
            }
        }
        self.line("}");
    }

    fn nested(&mut self, id: BlockId) {
        self.indent += 1;
        self.block(id);
        self.indent -= 1;
    }

    /// A loop. If the body has a `continue`, the continuing part is written at the head of the loop and
    /// skipped in the first iteration.
    fn looping(&mut self, body: BlockId, continuing: BlockId) {
        let at_head = continues(self.kernel, body) && !self.kernel.block(continuing).insts.is_empty();
        let id = self.fresh();
        if at_head {
            self.line(&format!("for (bool again{id} = false;; again{id} = true) {{"));
            self.indent += 1;
            self.line(&format!("if (again{id}) {{"));
            self.nested(continuing);
            self.line("}");
            self.block(body);
        } else {
            self.line("for (;;) {");
            self.indent += 1;
            self.line("{");
            self.nested(body);
            self.line("}");
            self.block(continuing);
        }
        self.indent -= 1;
        self.line("}");
    }
}

/// Whether a block holds a `continue` of the loop around it. Recursion is bounded by the verifier's limit on
/// nesting.
fn continues(kernel: &Kernel, id: BlockId) -> bool {
    kernel.block(id).insts.iter().any(|inst| match inst.op {
        Op::Continue => true,
        Op::If { then, els, .. } => continues(kernel, then) || continues(kernel, els),
        _ => false,
    })
}
