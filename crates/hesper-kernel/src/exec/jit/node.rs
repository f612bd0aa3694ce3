//! What a kernel consists of once it is split: *nodes*, which have a value for each lane and
//! become machine code, and a table of *uniforms*, values that are the same for a row.

use super::host::Slot;
use crate::exec::lanes::{Fn1, Fn2, half};
use crate::ir::{BinaryOp, CmpOp, Loc, Scalar, TernaryOp, TestOp, UnaryOp};

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

/// A function of the executor's for blocks of lanes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    One(Fn1),
    Two(Fn2),
}

/// A computation on lanes, of 32 bits or *long* ones of 64. 16-bit floats are f32 lanes rounded to
/// their type; narrow integers are extended to 32 bits; a `Bool` is 32 bits, all ones or zero.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    /// With the number of the component where two lie side by side in the value.
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
    /// Stores both components of a value side by side; the access is that of the first.
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
    Test(TestOp, Scalar, Operand),
    /// The type is that of the last two.
    Select(Scalar, Operand, Operand, Operand),
    Convert(Scalar, Scalar, Operand),
    /// A function call, with the operands and which of them are long, and whether the result is.
    Call(Function, [(Operand, bool); 2], bool),
}

impl Node {
    /// The operands, in order.
    pub fn operands(&self) -> impl Iterator<Item = Operand> {
        let (list, n) = match *self {
            Node::Load { .. } => ([Operand::Uniform(0); 3], 0),
            Node::Store { value, .. } => ([value; 3], 1),
            Node::StorePair { values: [a, b], .. } => ([a, b, b], 2),
            Node::Linear { base, stride, .. } => ([base, stride, stride], 2),
            Node::Unary(_, _, a) | Node::Test(_, _, a) | Node::Convert(_, _, a) => ([a; 3], 1),
            Node::Binary(_, _, a, b) | Node::Compare(_, _, a, b) => ([a, b, b], 2),
            Node::Ternary(_, _, a, b, c) | Node::Select(_, a, b, c) => ([a, b, c], 3),
            Node::Call(Function::One(_), [(a, _), _], _) => ([a; 3], 1),
            Node::Call(Function::Two(_), [(a, _), (b, _)], _) => ([a, b, b], 2),
        };
        list.into_iter().take(n)
    }

    /// Whether the lanes of its value are long.
    pub fn is_long(&self) -> bool {
        match *self {
            Node::Load { scalar: s, .. }
            | Node::Unary(_, s, _)
            | Node::Binary(_, s, ..)
            | Node::Ternary(_, s, ..)
            | Node::Select(s, ..)
            | Node::Convert(_, s, _) => is_long(s),
            Node::Linear { long, .. } | Node::Call(_, _, long) => long,
            Node::Store { .. } | Node::StorePair { .. } | Node::Compare(..) | Node::Test(..) => false,
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
    /// The number of the component, where machine code takes values of two as they lie.
    pub pair: Option<u8>,
    /// Where it stands in the source.
    pub loc: Loc,
}

/// What an entry of the table holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Entry {
    Constant(u32),
    /// A slot's value, in the form of a lane.
    Value(Slot, Scalar),
    /// A slot's value in the first lane, and its growth from lane to lane.
    Base(Slot),
    Stride(Slot),
    /// The low bits of a long one; the entry behind it has the high ones.
    Low(Long),
    High(Long),
}

/// What two entries hold together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Long {
    Constant(u64),
    Value(Slot),
    Base(Slot),
    Stride(Slot),
}

impl Entry {
    /// The slot it is filled from.
    pub fn slot(&self) -> Option<Slot> {
        match *self {
            Entry::Constant(_) | Entry::Low(Long::Constant(_)) | Entry::High(Long::Constant(_)) => None,
            Entry::Value(slot, _) | Entry::Base(slot) | Entry::Stride(slot) => Some(slot),
            Entry::Low(long) | Entry::High(long) => match long {
                Long::Constant(_) => None,
                Long::Value(slot) | Long::Base(slot) | Long::Stride(slot) => Some(slot),
            },
        }
    }

    /// Whether each call sets it.
    pub fn is_base(&self) -> bool {
        matches!(self, Entry::Base(_) | Entry::Low(Long::Base(_)) | Entry::High(Long::Base(_)))
    }
}

/// The uniforms a kernel's machine code reads.
#[derive(Debug)]
pub(super) struct Table {
    pub entries: Vec<Entry>,
    /// Where the numbers of the lanes of a step stand.
    steps: Option<u16>,
    /// Lanes of a step.
    pub lanes: u32,
}

impl Table {
    pub fn new(lanes: u32) -> Table {
        Table { entries: Vec::new(), steps: None, lanes }
    }

    pub fn intern(&mut self, entry: Entry) -> u16 {
        if let Some(at) = self.entries.iter().position(|e| *e == entry) {
            return at as u16;
        }
        self.entries.push(entry);
        self.entries.len() as u16 - 1
    }

    /// The first of the two entries of a long uniform.
    pub fn intern_long(&mut self, long: Long) -> u16 {
        let at = self.intern(Entry::Low(long));
        // Nothing stands behind low bits but their high ones.
        if at as usize + 1 == self.entries.len() {
            self.entries.push(Entry::High(long));
        }
        at
    }

    pub fn is_long(&self, uniform: u16) -> bool {
        matches!(self.entries.get(uniform as usize), Some(Entry::Low(_)))
    }

    pub fn constant(&mut self, bits: u32) -> u16 {
        self.intern(Entry::Constant(bits))
    }

    /// The first of the entries 0, 1, 2, .. up to the lanes of a step.
    pub fn steps(&mut self) -> u16 {
        *self.steps.get_or_insert_with(|| {
            let at = self.entries.len() as u16;
            self.entries.extend((0..self.lanes).map(Entry::Constant));
            at
        })
    }
}

/// What machine code is given.
#[repr(C)]
pub(super) struct Frame {
    /// Lanes in whole steps.
    pub lanes: u64,
    /// A bit for each lane of a last step that is not whole.
    pub tail: u64,
    /// Memory for the values that registers do not hold.
    pub slots: *mut u8,
    /// Of each access, where its first lane lies.
    pub pointers: [*mut u8; MAX_ACCESSES],
    pub uniforms: [u32; MAX_UNIFORMS],
}

pub(super) const LANES_OFFSET: i32 = std::mem::offset_of!(Frame, lanes) as i32;
pub(super) const TAIL_OFFSET: i32 = std::mem::offset_of!(Frame, tail) as i32;
pub(super) const SLOTS_OFFSET: i32 = std::mem::offset_of!(Frame, slots) as i32;

pub(super) fn pointer_offset(access: u16) -> i32 {
    std::mem::offset_of!(Frame, pointers) as i32 + i32::from(access) * 8
}

pub(super) fn uniform_offset(uniform: u16) -> i32 {
    std::mem::offset_of!(Frame, uniforms) as i32 + i32::from(uniform) * 4
}

/// A value's bits in the form of a lane.
pub(super) fn lane_bits(s: Scalar, bits: u64) -> u32 {
    match s {
        Scalar::F16 => half::f16_to_f32(bits as u16).to_bits(),
        Scalar::BF16 => half::bf16_to_f32(bits as u16).to_bits(),
        Scalar::Bool => 0u32.wrapping_sub(u32::from(bits & 0xff != 0)),
        Scalar::I8 => i32::from(bits as i8) as u32,
        Scalar::I16 => i32::from(bits as i16) as u32,
        Scalar::U8 => u32::from(bits as u8),
        Scalar::U16 => u32::from(bits as u16),
        _ => bits as u32,
    }
}
