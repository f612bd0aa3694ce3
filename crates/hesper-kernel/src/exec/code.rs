//! The bytecode: instructions over vector registers, and the parts of a compiled kernel.

use super::groups::{FnGroup, FnMatrix, FnShuffle};
use super::lanes::{Fn1, Fn2, Fn3};
use crate::ir::{AtomicOp, BinaryOp, Builtin, CmpOp, Group, Loc, Scalar, ShuffleKind, Space};

/// Number of a register.
pub(super) type Reg = u32;
/// Index of an instruction.
pub(super) type Pc = u32;

/// A register: one array of lanes of one scalar component.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegInfo {
    /// Bytes per lane.
    pub size: u8,
    /// Only ever uniform: needs storage for one block.
    pub small: bool,
}

/// What an op does to *affine* integers (`base + lane * stride`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Affine {
    /// It makes them varying.
    No,
    /// An op of two operands, which may keep them affine.
    Op(BinaryOp, Scalar),
    /// A conversion between integers.
    Convert(Scalar, Scalar),
}

/// The object that a pointer points into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Root {
    /// Always this object.
    Object(u32),
    /// The object numbered by a `U32` register.
    Dynamic(Reg),
}

/// A load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemAccess {
    pub root: Root,
    /// Register of the byte offset.
    pub offset: Reg,
    /// Added to the offset.
    pub imm: i64,
    /// Type in memory.
    pub scalar: Scalar,
    /// Number of components.
    pub n: u8,
    /// Registers of the components.
    pub regs: [Reg; 4],
    /// Converts between the forms in memory and in registers, if they differ.
    pub pack: Option<Fn1>,
    /// The address space of its pointer.
    pub space: Space,
    /// Its source location.
    pub loc: Loc,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atomic {
    pub kind: AtomicKind,
    pub root: Root,
    pub offset: Reg,
    pub imm: i64,
    pub scalar: Scalar,
    /// Operand (the desired value of an exchange), if any.
    pub value: Option<Reg>,
    /// Expected value of a compare-exchange.
    pub expected: Option<Reg>,
    /// Register of the old value.
    pub result: Option<Reg>,
    /// The address space of its pointer.
    pub space: Space,
    /// Its source location.
    pub loc: Loc,
}

/// What an atomic operation does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AtomicKind {
    Rmw(AtomicOp),
    Load,
    Store,
    CompareExchange,
}

/// One instruction. `d` is the destination.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ins {
    Un {
        f: Fn1,
        d: Reg,
        a: Reg,
        affine: Affine,
    },
    Bin {
        f: Fn2,
        d: Reg,
        a: Reg,
        b: Reg,
        affine: Affine,
    },
    Cmp {
        f: Fn2,
        d: Reg,
        a: Reg,
        b: Reg,
        op: CmpOp,
        scalar: Scalar,
    },
    Tern {
        f: Fn3,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// `d = offset + index * stride`.
    Address {
        f: Fn3,
        d: Reg,
        index: Reg,
        offset: Reg,
        stride: Reg,
        scalar: Scalar,
    },
    /// `d = a`.
    Copy {
        d: Reg,
        a: Reg,
    },
    /// `d = a` in the active lanes.
    Blend {
        d: Reg,
        a: Reg,
    },
    /// `d = a`, which is dead afterwards.
    Move {
        d: Reg,
        a: Reg,
    },
    /// As `Move`, in the active lanes.
    BlendMove {
        d: Reg,
        a: Reg,
    },
    Load(u32),
    Store(u32),
    /// Redirects the result of the next instruction to the memory of this store, if possible.
    Redirect(u32),
    Atomic(u32),
    Fence,

    Reduce {
        f: FnGroup,
        d: Reg,
        a: Reg,
        identity: u64,
        group: Group,
    },
    Scan {
        f: FnGroup,
        d: Reg,
        a: Reg,
        identity: u64,
        group: Group,
    },
    Shuffle {
        f: FnShuffle,
        d: Reg,
        a: Reg,
        arg: Reg,
        kind: ShuffleKind,
        group: Group,
    },
    First {
        f: FnShuffle,
        d: Reg,
        a: Reg,
        group: Group,
    },
    Vote {
        d: Reg,
        a: Option<Reg>,
        what: Vote,
        group: Group,
    },
    Matrix {
        f: FnMatrix,
        a: [Reg; 2],
        b: [Reg; 2],
        c: [Reg; 2],
        d: [Reg; 2],
    },
    Barrier,

    /// Begins an `if`; `els` is the `Else`.
    If {
        cond: Reg,
        els: Pc,
    },
    /// Ends the first block of an `if` and begins the second; `end` is the `EndIf`.
    Else {
        end: Pc,
    },
    /// Ends an `if`; jumps to `dead` if no lane is left.
    EndIf {
        dead: Pc,
    },
    LoopBegin,
    /// Begins the `continuing` block; `end` is the `LoopEnd`.
    Continuing {
        end: Pc,
    },
    /// Jumps back to `body`, or ends the loop if no lane continues; jumps to `dead` if no lane is left.
    LoopEnd {
        body: Pc,
        dead: Pc,
    },
    /// The active lanes leave; `next` is where the enclosing region ends.
    Leave {
        how: Leave,
        next: Pc,
    },
    /// The active lanes where the condition holds leave.
    LeaveIf {
        cond: Reg,
        how: Leave,
        next: Pc,
    },
    End,
}

/// Where lanes leave to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Leave {
    /// Out of the loop.
    Break,
    /// To the loop's `continuing`.
    Continue,
    /// To the end of the kernel.
    Return,
}

/// Votes among the lanes of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Vote {
    Ballot,
    All,
    Any,
    IsFirst,
}

/// A builtin the kernel reads, and the register that holds it (`U64` if `is_u64`, else `U32`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BuiltinReg {
    pub what: Builtin,
    pub axis: u8,
    pub is_u64: bool,
    pub reg: Reg,
}

/// A compiled kernel.
#[derive(Debug)]
pub(super) struct Code {
    /// Computes launch-wide values; runs once per machine.
    pub prologue: Vec<Ins>,
    /// Runs for every block of lanes.
    pub body: Vec<Ins>,
    pub regs: Vec<RegInfo>,
    pub accesses: Vec<MemAccess>,
    pub atomics: Vec<Atomic>,
    /// Constants: register and bits of a lane.
    pub consts: Vec<(Reg, u64)>,
    /// By-value parameters: register, parameter, byte offset, type.
    pub values: Vec<(Reg, u32, u32, Scalar)>,
    pub builtins: Vec<BuiltinReg>,
    /// Variables that may be read before they are set.
    pub zeroed: Vec<Reg>,
    /// Deepest nesting of regions.
    pub depth: usize,
    /// Whether the kernel depends on how threads are grouped.
    pub grouped: bool,
    /// Whether it has SIMD-group ops.
    pub lanewise: bool,
    /// Whether it has threadgroup barriers.
    pub barriers: bool,
    /// Copies of blocks by lane size 1, 2, 4, 8.
    pub copy: [Fn1; 4],
    /// Choices between blocks by lane size.
    pub select: [Fn3; 4],
    pub and_not: Fn2,
    pub and: Fn2,
    pub or: Fn2,
}

impl Code {
    /// Bytes per lane of all full registers.
    pub fn lane_bytes(&self) -> usize {
        self.regs.iter().filter(|r| !r.small).map(|r| r.size as usize).sum()
    }

    /// Bytes per lane that are likely in use: 64-bit registers mostly hold addresses, which are
    /// mostly affine and never laid out.
    pub fn hot_bytes(&self) -> usize {
        let weight = |r: &RegInfo| if r.size == 8 { 2 } else { r.size as usize };
        self.regs.iter().filter(|r| !r.small).map(weight).sum()
    }

    /// Bytes the code takes.
    pub fn size(&self) -> usize {
        use std::mem::size_of_val as size;
        size_of::<Code>()
            + size(&self.prologue[..])
            + size(&self.body[..])
            + size(&self.regs[..])
            + size(&self.accesses[..])
            + size(&self.atomics[..])
            + size(&self.consts[..])
            + size(&self.values[..])
            + size(&self.builtins[..])
            + size(&self.zeroed[..])
    }
}

/// Index of a lane size in the tables of [`Code`].
pub(super) const fn size_index(size: u8) -> usize {
    size.trailing_zeros() as usize
}

/// Bytes a lane of this type takes in a register: 16-bit floats live as f32.
pub(super) const fn lane_size(s: Scalar) -> u8 {
    match s {
        Scalar::F16 | Scalar::BF16 => 4,
        s => s.size() as u8,
    }
}
