//! Which blocks of a kernel need the set of active lanes or jump out, and which kernels do not depend on
//! threadgroups.

use crate::ir::{Access, BlockId, Builtin, Kernel, Op, ParamKind, Scope, ValueId, atomic_op, group_op};

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

/// Whether threads depend on their position in the grid, but not on their threadgroup.
pub(super) fn ignores_threadgroups(kernel: &Kernel) -> bool {
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

/// How many grid threads one CUDA thread may handle. A thread that loads a few bytes keeps too few of them in
/// flight to saturate memory. So a CUDA thread handles several grid threads of a short kernel that has no
/// loops, returns or atomics and [`ignores_threadgroups`].
pub(super) fn turns(kernel: &Kernel) -> u32 {
    let insts = || kernel.blocks.iter().flat_map(|block| &block.insts);
    let plain = insts().all(|inst| match inst.op {
        Op::Loop { .. } | Op::Return | atomic_op!() => false,
        Op::Load { .. } => inst.result.is_none_or(|value| kernel.ty(value).size() <= 4),
        _ => true,
    });
    let memory = kernel.thread_vars.is_empty() && kernel.threadgroup_vars.is_empty();
    let loads = insts().any(|inst| matches!(inst.op, Op::Load { .. }));
    // A unary op is mostly a function of several instructions.
    let size: usize = insts().map(|inst| if matches!(inst.op, Op::Unary(..)) { 6 } else { 1 }).sum();
    match size {
        ..=24 if plain && memory && loads && ignores_threadgroups(kernel) => 8,
        ..=64 if plain && memory && loads && ignores_threadgroups(kernel) => 4,
        _ => 1,
    }
}

/// Whether a pointer is an offset into a buffer that the kernel only reads.
pub(super) fn only_read(kernel: &Kernel, mut pointer: ValueId) -> bool {
    let definition = |of: ValueId| {
        kernel
            .blocks
            .iter()
            .flat_map(|block| &block.insts)
            .find(|inst| inst.result == Some(of))
            .map(|inst| inst.op)
    };
    loop {
        match definition(pointer) {
            Some(Op::PtrOffset { ptr, .. }) => pointer = ptr,
            Some(Op::ParamPtr(at)) => {
                let kind = kernel.params.get(at as usize).map(|param| &param.kind);
                return matches!(kind, Some(ParamKind::Buffer { access: Access::Read, .. }));
            }
            _ => return false,
        }
    }
}

/// Whether an instruction needs the set of active lanes.
pub(super) fn needs_lanes(op: &Op) -> bool {
    matches!(op, group_op!() | Op::Barrier { scope: Scope::Simdgroup, .. })
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
