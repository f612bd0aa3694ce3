//! What the blocks of a kernel hold: operations that need to know the active lanes, and jumps
//! that leave them.

use crate::ir::{BlockId, Builtin, Kernel, Op, Scope};

/// What a block, with all that is nested in it, does to control flow.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Flow {
    /// Uses the set of active lanes.
    pub lanes: bool,
    /// Holds a `Break` of a loop around it.
    pub breaks: bool,
    /// Holds a `Continue` of a loop around it.
    pub continues: bool,
    /// Holds a `Return`.
    pub returns: bool,
    /// Its end can be reached.
    pub falls: bool,
}

impl Flow {
    pub fn jumps(&self) -> bool {
        self.breaks || self.continues || self.returns
    }

    pub fn or(self, other: Flow) -> Flow {
        Flow {
            lanes: self.lanes || other.lanes,
            breaks: self.breaks || other.breaks,
            continues: self.continues || other.continues,
            returns: self.returns || other.returns,
            falls: self.falls || other.falls,
        }
    }
}

/// The flow of every block, by block.
pub(super) fn flows(kernel: &Kernel) -> Vec<Flow> {
    let mut all = vec![Flow::default(); kernel.blocks.len()];
    walk(kernel, kernel.body, &mut all);
    all
}

/// Whether threads know nothing of their groups: only where they are in the grid.
pub(super) fn alone(kernel: &Kernel) -> bool {
    kernel.blocks.iter().flat_map(|block| &block.insts).all(|inst| match inst.op {
        Op::Builtin { what, .. } => matches!(
            what,
            Builtin::ThreadPositionInGrid
                | Builtin::ThreadsPerGrid
                | Builtin::ThreadgroupsPerGrid
                | Builtin::DispatchThreadsPerThreadgroup
                | Builtin::ThreadsPerSimdgroup
        ),
        Op::Barrier { .. } => false,
        ref op => !needs_lanes(op),
    })
}

/// Whether an instruction needs the set of active lanes.
pub(super) fn needs_lanes(op: &Op) -> bool {
    matches!(
        op,
        Op::GroupReduce { .. }
            | Op::GroupScan { .. }
            | Op::GroupShuffle { .. }
            | Op::GroupBroadcastFirst { .. }
            | Op::GroupBallot { .. }
            | Op::GroupAll { .. }
            | Op::GroupAny { .. }
            | Op::GroupIsFirst { .. }
            | Op::GroupActiveMask { .. }
            | Op::SimdMatMulAcc { .. }
            | Op::Barrier { scope: Scope::Simdgroup, .. }
    )
}

/// The flow of a loop as an instruction: its own jumps do not leave it.
pub(super) fn loop_flow(body: Flow, continuing: Flow) -> Flow {
    Flow {
        lanes: body.lanes || continuing.lanes,
        breaks: false,
        continues: false,
        returns: body.returns || continuing.returns,
        falls: body.breaks || continuing.breaks,
    }
}

// Recursion is bounded by the verifier's limit on nesting.
fn walk(kernel: &Kernel, id: BlockId, all: &mut [Flow]) -> Flow {
    let mut flow = Flow { falls: true, ..Flow::default() };
    for inst in &kernel.block(id).insts {
        let falls = flow.falls;
        let inner = match inst.op {
            Op::If { then, els, .. } => walk(kernel, then, all).or(walk(kernel, els, all)),
            Op::Loop { body, continuing } => {
                let body = walk(kernel, body, all);
                loop_flow(body, walk(kernel, continuing, all))
            }
            Op::Break => Flow { breaks: true, ..Flow::default() },
            Op::Continue => Flow { continues: true, ..Flow::default() },
            Op::Return => Flow { returns: true, ..Flow::default() },
            ref op => Flow { lanes: needs_lanes(op), falls: true, ..Flow::default() },
        };
        flow = flow.or(inner);
        flow.falls = falls && inner.falls;
    }
    all[id.index()] = flow;
    flow
}
