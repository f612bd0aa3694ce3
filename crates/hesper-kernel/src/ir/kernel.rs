//! The kernel: parameters, memory, arenas of values, variables and blocks, source locations.

use std::sync::Arc;

use super::inst::{BlockId, Inst, Loc, ValueId, ValueInfo, VarId};
use super::types::{Space, Type};

/// The most instructions a kernel may have.
pub const MAX_INSTS: usize = 1 << 20;
/// The deepest nesting of blocks. Walks over blocks may recurse.
pub const MAX_NESTING: u32 = 256;
/// The most bytes of threadgroup memory.
pub const MAX_THREADGROUP_BYTES: u64 = 64 << 10;
/// The most bytes of constant tables.
pub const MAX_CONST_BYTES: u64 = 64 << 10;
/// The most bytes of thread memory.
pub const MAX_THREAD_BYTES: u64 = 64 << 10;

/// A verified kernel, or one under construction.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel's name, for messages and as the entry point of device code.
    pub name: String,
    /// Parameters, in the order of the bindings of a launch.
    pub params: Vec<Param>,
    /// Threadgroup memory.
    pub threadgroup_vars: Vec<MemVar>,
    /// Thread memory: arrays, and locals whose address is taken.
    pub thread_vars: Vec<MemVar>,
    /// Read-only tables, in constant memory.
    pub const_vars: Vec<ConstVar>,
    /// Mutable variables.
    pub vars: Vec<VarInfo>,
    /// Types of the values.
    pub values: Vec<ValueInfo>,
    /// Blocks; each is the body of the kernel or a child of exactly one instruction.
    pub blocks: Vec<Block>,
    /// The body.
    pub body: BlockId,
    /// Source locations; entry 0 is [`Loc::UNKNOWN`].
    pub locs: Vec<SourceLoc>,
    /// The name of the source text, for messages.
    pub source_name: String,
}

/// A sequence of instructions.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// The instructions, in order.
    pub insts: Vec<Inst>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ParamKind,
    /// The index that a Metal text gives it (`[[buffer(n)]]`), else its position.
    pub index: u32,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// A scalar or vector passed by value; the binding holds its packed bytes.
    Value(Type),
    /// Memory of the launch.
    Buffer {
        /// `Device` or `Constant`.
        space: Space,
        /// Element type as declared; structs give `U8`. Accesses say their own type.
        elem: Type,
        /// Whether and how the kernel writes.
        access: Access,
    },
}

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only reads.
    Read,
    /// It reads and writes.
    ReadWrite,
    /// It reads and writes, also atomically.
    Atomic,
}

impl Access {
    /// Whether stores are allowed.
    pub const fn writes(self) -> bool {
        matches!(self, Access::ReadWrite | Access::Atomic)
    }
}

/// A piece of threadgroup or thread memory. Uninitialised at the start: unchecked executors
/// give zeros, checked mode reports reads before a write.
#[derive(Clone, Debug, PartialEq)]
pub struct MemVar {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// The index of a threadgroup argument. The host sets its length; `size` is the one that is assumed.
    pub argument: Option<u32>,
}

/// A read-only table that travels with the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstVar {
    /// Its name.
    pub name: String,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// Its bytes, little-endian.
    pub data: Arc<[u8]>,
}

/// A mutable variable.
#[derive(Clone, Debug, PartialEq)]
pub struct VarInfo {
    /// Its name.
    pub name: String,
    /// Scalar, vector or pointer.
    pub ty: Type,
}

/// Where an instruction comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceLoc {
    /// Line, from 1; 0 is unknown.
    pub line: u32,
    /// Column, from 1; 0 is unknown.
    pub column: u32,
    /// The text the line is counted in (body, header, a file), if there are several.
    pub file: Option<Arc<str>>,
    /// The function the code stands in, if it was inlined from one.
    pub function: Option<Arc<str>>,
    /// The call or instantiation site, if inlined. Always an earlier entry of the table.
    pub inlined_at: Option<Loc>,
}

impl Kernel {
    /// The type of a value.
    pub fn ty(&self, v: ValueId) -> Type {
        self.values[v.index()].ty
    }

    /// The type of a variable.
    pub fn var_ty(&self, v: VarId) -> Type {
        self.vars[v.index()].ty
    }

    /// A block.
    pub fn block(&self, b: BlockId) -> &Block {
        &self.blocks[b.index()]
    }

    /// Number of instructions.
    pub fn inst_count(&self) -> usize {
        self.blocks.iter().map(|b| b.insts.len()).sum()
    }

    /// A location and the chain of sites it was inlined at, innermost first. Empty if unknown.
    pub fn loc_chain(&self, loc: Loc) -> Vec<SourceLoc> {
        let mut chain = Vec::new();
        let mut next = Some(loc);
        while let Some(at) = next {
            let Some(entry) = self.locs.get(at.index()) else {
                break;
            };
            if at == Loc::UNKNOWN {
                break;
            }
            chain.push(entry.clone());
            next = entry.inlined_at.filter(|up| up.0 < at.0);
        }
        chain
    }

    /// Total bytes of threadgroup memory with each variable at its alignment, and the offset of
    /// each variable.
    pub fn threadgroup_layout(&self) -> (u64, Vec<u64>) {
        layout(&self.threadgroup_vars)
    }

    /// The bytes of threadgroup memory that the kernel declares, without those of its arguments.
    pub fn declared_threadgroup_memory(&self) -> u64 {
        let declared = |var: &&MemVar| var.argument.is_none();
        layout(&self.threadgroup_vars.iter().filter(declared).cloned().collect::<Vec<_>>()).0
    }

    /// Total bytes of thread memory with each variable at its alignment, and the offset of each
    /// variable.
    pub fn thread_layout(&self) -> (u64, Vec<u64>) {
        layout(&self.thread_vars)
    }
}

fn layout(vars: &[MemVar]) -> (u64, Vec<u64>) {
    let mut at = 0u64;
    let mut offsets = Vec::with_capacity(vars.len());
    for v in vars {
        at = at.next_multiple_of(u64::from(v.align).max(1));
        offsets.push(at);
        at = at.saturating_add(v.size);
    }
    (at, offsets)
}

/// Why a kernel is not well formed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("kernel {kernel}, line {line}:{column}: {message}")]
pub struct IrError {
    /// The kernel's name.
    pub kernel: String,
    /// Source line, 0 if unknown.
    pub line: u32,
    /// Source column, 0 if unknown.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl IrError {
    pub(super) fn at(kernel: &Kernel, loc: Loc, message: String) -> IrError {
        let entry = kernel.locs.get(loc.index());
        IrError {
            kernel: kernel.name.clone(),
            line: entry.map_or(0, |l| l.line),
            column: entry.map_or(0, |l| l.column),
            message,
        }
    }
}
