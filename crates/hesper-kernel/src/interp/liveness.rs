//! Liveness: a value dies after its last use in the block that defines it.
//!
//! The interpreter keeps a value for every thread; freeing values early bounds the memory that
//! long straight-line code needs.

use crate::ir::{BlockId, Kernel, Op, ValueId};

/// The values to free after each instruction.
pub(super) struct Liveness {
    /// Per block: (instruction, value) pairs in the order of instructions.
    dying: Vec<Vec<(u32, ValueId)>>,
}

impl Liveness {
    pub fn new(kernel: &Kernel) -> Liveness {
        let mut builder =
            LivenessBuilder { kernel, home: vec![(BlockId(0), 0); kernel.values.len()], path: Vec::new() };
        builder.walk(kernel.body);
        let mut dying = vec![Vec::new(); kernel.blocks.len()];
        for block in &kernel.blocks {
            for inst in &block.insts {
                if let Some(v) = inst.result {
                    let (home, last) = builder.home[v.index()];
                    dying[home.index()].push((last, v));
                }
            }
        }
        for d in &mut dying {
            d.sort_unstable();
        }
        Liveness { dying }
    }

    /// The values that die in `block`, with the instruction after which each does.
    pub fn dying(&self, block: BlockId) -> &[(u32, ValueId)] {
        &self.dying[block.index()]
    }
}

struct LivenessBuilder<'a> {
    kernel: &'a Kernel,
    /// Defining block and last use there, per value.
    home: Vec<(BlockId, u32)>,
    /// The instructions being walked, outermost first.
    path: Vec<(BlockId, u32)>,
}

impl LivenessBuilder<'_> {
    fn walk(&mut self, id: BlockId) {
        let kernel = self.kernel;
        for (n, inst) in kernel.block(id).insts.iter().enumerate() {
            self.path.push((id, n as u32));
            inst.op.for_each_operand(|v| {
                let (home, last) = &mut self.home[v.index()];
                if let Some(at) = self.path.iter().rev().find(|at| at.0 == *home) {
                    *last = at.1;
                }
            });
            match inst.op {
                Op::If { then, els, .. } => {
                    self.walk(then);
                    self.walk(els);
                }
                Op::Loop { body, continuing } => {
                    self.walk(body);
                    self.walk(continuing);
                }
                _ => {}
            }
            self.path.pop();
            if let Some(v) = inst.result {
                self.home[v.index()] = (id, n as u32);
            }
        }
    }
}
