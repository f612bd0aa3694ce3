//! Functions: what one thread of a kernel computes, for the texts of other kernels.
//!
//! A kernel that is a function reads buffers, stores nothing and declares no memory. Its only builtin is the
//! first axis of the thread's position in the grid: the function's index. The printers
//! ([`cuda::emit_functions`](crate::cuda::emit_functions),
//! [`metal::emit_functions`](crate::metal::emit_functions)) write it as
//!
//! ```text
//! void NAME(bytes* out, index, bytes* arguments, bytes* buffer..., bytes* constants)
//! ```
//!
//! with one pointer for each buffer, in order. The first by-value parameters may be arguments: values of one
//! type, which are read at `arguments`, one after the other. A function without arguments does not have that
//! pointer. `constants` are the other by-value parameters, each at a multiple of eight bytes. The results are
//! stored at `out`, one after the other.

use crate::ir::{
    Builtin, IrError, Kernel, Op, Param, ParamKind, Type, ValueId, atomic_op, group_op, sync_op,
};

/// A kernel as a function of the thread's position.
#[derive(Debug)]
pub struct Function {
    kernel: Kernel,
    results: Vec<ValueId>,
    arguments: usize,
}

impl Function {
    /// The function that gives the values `results` of a verified kernel, whose first parameters are
    /// `arguments` values.
    pub fn new(kernel: Kernel, results: Vec<ValueId>, arguments: usize) -> Result<Self, IrError> {
        let memory = kernel.const_vars.len() + kernel.thread_vars.len() + kernel.threadgroup_vars.len();
        let insts = || kernel.blocks.iter().flat_map(|block| &block.insts);
        let foreign = insts().find(|inst| match inst.op {
            Op::Builtin { what, axis } => what != Builtin::ThreadPositionInGrid || axis > 0,
            Op::Store { .. } | Op::Return | atomic_op!() | group_op!() | sync_op!() => true,
            _ => false,
        });
        let is_value = |param: &Param| matches!(param.kind, ParamKind::Value(Type::Scalar(_)));
        let values = kernel.params.iter().take_while(|param| is_value(param)).count();
        let message = match (memory, foreign) {
            (0, None) if values < arguments => format!("{values} of {arguments} arguments are scalars"),
            (0, None) => return Ok(Function { kernel, results, arguments }),
            (0, Some(inst)) => format!("a function cannot have {:?}", inst.op),
            _ => "a function cannot declare memory".into(),
        };
        Err(IrError { kernel: kernel.name, line: 0, column: 0, message })
    }

    /// What it computes.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The values that it gives.
    pub fn results(&self) -> &[ValueId] {
        &self.results
    }

    /// The number of buffers that it reads.
    pub fn buffers(&self) -> usize {
        self.kernel.params.iter().filter(|param| matches!(param.kind, ParamKind::Buffer { .. })).count()
    }

    /// The number of its constants.
    pub fn constants(&self) -> usize {
        self.kernel.params.len() - self.buffers() - self.arguments
    }

    /// The number of its arguments.
    pub fn arguments(&self) -> usize {
        self.arguments
    }
}
