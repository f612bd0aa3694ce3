//! The parts of a split kernel: *nodes*, which have a value per lane and become machine code, and a table of
//! *uniforms*, which have one value per row.

use super::host::Slot;
use crate::exec::lanes::{Fn1, Fn2};
use crate::ir::{BinaryOp, CmpOp, Loc, Scalar, TernaryOp, UnaryOp};
use crate::math::scalar::to_lane;

/// The most accesses to memory.
pub(super) const MAX_ACCESSES: usize = 24;
/// The most entries of the table of uniforms.
pub(super) const MAX_UNIFORMS: usize = 128;

/// The number of a node, which is that of its value.
pub(super) type Value = u32;

/// An operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Operand {
    /// Lanes.
    Lanes(Value),
    /// An entry of the table.
    Uniform(u16),
}

/// A lane function of the executor.
#[derive(Clone, Copy, Debug)]
pub(super) enum LaneFunction {
    One(Fn1),
    Two(Fn2),
}

/// A computation on lanes, of 32 bits or *long* ones of 64. 16-bit floats are f32 lanes rounded to
/// their type; narrow integers are extended to 32 bits; a `Bool` is 32 bits, all ones or zero.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    /// `pair` is the component, if the value has two that are loaded together.
    Load {
        access: u16,
        scalar: Scalar,
        pair: Option<u8>,
    },
    Store {
        access: u16,
        scalar: Scalar,
        value: Operand,
    },
    /// Stores both components of a value together; the access is that of the first.
    StorePair {
        access: u16,
        values: [Operand; 2],
    },
    /// `base + lane * stride`, integers of 32 bits or long ones.
    Linear {
        base: Operand,
        stride: Operand,
        long: bool,
    },
    Unary(UnaryOp, Scalar, Operand),
    Binary(BinaryOp, Scalar, Operand, Operand),
    Ternary(TernaryOp, Scalar, Operand, Operand, Operand),
    Compare(CmpOp, Scalar, Operand, Operand),
    /// The type is that of the last two.
    Select(Scalar, Operand, Operand, Operand),
    Convert(Scalar, Scalar, Operand),
    /// A call of a lane function: the operands, which of them are long, and whether the result is.
    Call(LaneFunction, [(Operand, bool); 2], bool),
}

impl Node {
    /// The operands, in order.
    pub fn operands(&self) -> impl Iterator<Item = Operand> {
        let (list, n) = match *self {
            Node::Load { .. } => ([Operand::Uniform(0); 3], 0),
            Node::Store { value, .. } => ([value; 3], 1),
            Node::StorePair { values: [a, b], .. } => ([a, b, b], 2),
            Node::Linear { base, stride, .. } => ([base, stride, stride], 2),
            Node::Unary(_, _, a) | Node::Convert(_, _, a) => ([a; 3], 1),
            Node::Binary(_, _, a, b) | Node::Compare(_, _, a, b) => ([a, b, b], 2),
            Node::Ternary(_, _, a, b, c) | Node::Select(_, a, b, c) => ([a, b, c], 3),
            Node::Call(LaneFunction::One(_), [(a, _), _], _) => ([a; 3], 1),
            Node::Call(LaneFunction::Two(_), [(a, _), (b, _)], _) => ([a, b, b], 2),
        };
        list.into_iter().take(n)
    }

    /// Whether the lanes of its value are long.
    pub fn is_long(&self) -> bool {
        match *self {
            Node::Load { scalar: s, .. }
            | Node::Binary(_, s, ..)
            | Node::Ternary(_, s, ..)
            | Node::Select(s, ..)
            | Node::Convert(_, s, _) => is_long(s),
            Node::Unary(op, s, _) => is_long(op.result(s)),
            Node::Linear { long, .. } | Node::Call(_, _, long) => long,
            Node::Store { .. } | Node::StorePair { .. } | Node::Compare(..) => false,
        }
    }

    /// Whether its value is rounded from f32, which makes NaN quiet.
    pub fn quiets_nan(&self) -> bool {
        use {BinaryOp as B, UnaryOp as U};
        match *self {
            Node::Convert(from, ..) => matches!(from, Scalar::F32 | Scalar::BF16),
            Node::Unary(op, ..) => matches!(op, U::Sqrt | U::Rsqrt),
            Node::Binary(op, ..) => matches!(op, B::Add | B::Sub | B::Mul | B::Div),
            Node::Ternary(op, ..) => op == TernaryOp::Fma,
            _ => false,
        }
    }

    /// The operands that have lanes.
    pub fn values(&self) -> impl Iterator<Item = Value> {
        self.operands().filter_map(|o| match o {
            Operand::Lanes(v) => Some(v),
            Operand::Uniform(_) => None,
        })
    }
}

/// Whether lanes of a type are 64 bits wide.
pub(super) fn is_long(s: Scalar) -> bool {
    s.size() == 8
}

/// One component of a load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub param: u32,
    /// Slot of the byte offset of the whole value.
    pub offset: Slot,
    /// Of the component within the value.
    pub within: u64,
    /// Bytes of the component and of the whole value.
    pub size: u8,
    pub total: u64,
    pub store: bool,
    /// Components of one value have the same number.
    pub group: u32,
    /// The component, if machine code accesses both components of the value together.
    pub pair: Option<u8>,
    /// Its source location.
    pub loc: Loc,
}

/// The content of an entry of the table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum UniformEntry {
    Constant(u32),
    /// A slot's value, in the form of a lane.
    Value(Slot, Scalar),
    /// A slot's value in the first lane, and its stride.
    Base(Slot),
    Stride(Slot),
    /// The low bits of a long uniform; the next entry has the high ones.
    Low(LongUniform),
    High(LongUniform),
}

/// A uniform of 64 bits, which takes two entries.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum LongUniform {
    Constant(u64),
    Value(Slot),
    Base(Slot),
    Stride(Slot),
}

impl UniformEntry {
    /// The slot that fills it.
    pub fn slot(&self) -> Option<Slot> {
        match *self {
            UniformEntry::Constant(_)
            | UniformEntry::Low(LongUniform::Constant(_))
            | UniformEntry::High(LongUniform::Constant(_)) => None,
            UniformEntry::Value(slot, _) | UniformEntry::Base(slot) | UniformEntry::Stride(slot) => {
                Some(slot)
            }
            UniformEntry::Low(long) | UniformEntry::High(long) => match long {
                LongUniform::Constant(_) => None,
                LongUniform::Value(slot) | LongUniform::Base(slot) | LongUniform::Stride(slot) => Some(slot),
            },
        }
    }

    /// Whether it is set for each call of machine code.
    pub fn is_base(&self) -> bool {
        matches!(
            self,
            UniformEntry::Base(_)
                | UniformEntry::Low(LongUniform::Base(_))
                | UniformEntry::High(LongUniform::Base(_))
        )
    }
}

/// The uniforms a kernel's machine code reads.
#[derive(Debug)]
pub(super) struct UniformTable {
    pub entries: Vec<UniformEntry>,
    /// The first of the entries 0, 1, 2, .. of the lanes of a step.
    steps: Option<u16>,
    /// Lanes of a step.
    pub lanes: u32,
}

impl UniformTable {
    pub fn new(lanes: u32) -> UniformTable {
        UniformTable { entries: Vec::new(), steps: None, lanes }
    }

    pub fn intern(&mut self, entry: UniformEntry) -> u16 {
        if let Some(at) = self.entries.iter().position(|e| *e == entry) {
            return at as u16;
        }
        self.entries.push(entry);
        self.entries.len() as u16 - 1
    }

    /// The first of the two entries of a long uniform.
    pub fn intern_long(&mut self, long: LongUniform) -> u16 {
        let at = self.intern(UniformEntry::Low(long));
        // If the low bits are the last entry they are new, and the high bits follow.
        if at as usize + 1 == self.entries.len() {
            self.entries.push(UniformEntry::High(long));
        }
        at
    }

    pub fn is_long(&self, uniform: u16) -> bool {
        matches!(self.entries.get(uniform as usize), Some(UniformEntry::Low(_)))
    }

    pub fn constant(&mut self, bits: u32) -> u16 {
        self.intern(UniformEntry::Constant(bits))
    }

    /// The entries 0, 1, 2, .. of the lanes of a step; gives the first.
    pub fn steps(&mut self) -> u16 {
        *self.steps.get_or_insert_with(|| {
            let at = self.entries.len() as u16;
            self.entries.extend((0..self.lanes).map(UniformEntry::Constant));
            at
        })
    }
}

/// The argument of machine code.
#[repr(C)]
pub(super) struct Frame {
    /// Lanes in whole steps.
    pub lanes: u64,
    /// A bit for each lane of a partial last step.
    pub tail: u64,
    /// Memory for spilled values.
    pub slots: *mut u8,
    /// The address of the first lane of each access.
    pub pointers: [*mut u8; MAX_ACCESSES],
    pub uniforms: [u32; MAX_UNIFORMS],
}

pub(super) const LANES_OFFSET: i32 = std::mem::offset_of!(Frame, lanes) as i32;
pub(super) const SLOTS_OFFSET: i32 = std::mem::offset_of!(Frame, slots) as i32;

pub(super) fn pointer_offset(access: u16) -> i32 {
    std::mem::offset_of!(Frame, pointers) as i32 + i32::from(access) * 8
}

pub(super) fn uniform_offset(uniform: u16) -> i32 {
    std::mem::offset_of!(Frame, uniforms) as i32 + i32::from(uniform) * 4
}

/// The bits of a value in a lane of machine code.
pub(super) fn lane_bits(s: Scalar, bits: u64) -> u32 {
    match s {
        Scalar::Bool => 0u32.wrapping_sub(u32::from(bits & 0xff != 0)),
        Scalar::I8 => i32::from(bits as i8) as u32,
        Scalar::I16 => i32::from(bits as i16) as u32,
        Scalar::U8 => u32::from(bits as u8),
        Scalar::U16 => u32::from(bits as u16),
        _ => to_lane(s, bits) as u32,
    }
}
