//! The boundary between the lowering and a processor.
//!
//! The lowering (`lower`, `emit`) is the same for every target. A target is an assembler `A` and
//! implementations of [`VectorOps`] and [`Target`] for [`Vector<A>`](super::vector::Vector): the operations
//! on a step of lanes, each in as many instructions as it takes, and the loops and calls around them. What
//! only some targets can do is a field of [`Capabilities`]; the planner asks before it makes a node.

use super::node::Node;
use crate::ir::{CmpOp, Scalar};

/// A vector register by its number in the encoding.
pub(super) type Vr = u8;

/// Temporaries of one lowering. `T2` holds conditions where they are vectors.
pub(super) const T0: Vr = 0;
pub(super) const T1: Vr = 1;
pub(super) const T2: Vr = 2;
pub(super) const T3: Vr = 3;
/// First register for uniform operands that are not pinned.
pub(super) const OPERANDS: Vr = 4;
/// Registers for constants that are not pinned, used in turn.
pub(super) const CONSTANTS: [Vr; 2] = [7, 8];
/// First register for values.
pub(super) const FIRST: Vr = 9;

/// What the processor can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capabilities {
    /// 32-bit lanes of a register, which are those of a step.
    pub lanes: u32,
    /// Vector registers.
    pub registers: Vr,
    /// The most uniforms that are kept in registers.
    pub max_pins: usize,
    /// Runs a partial step under a mask.
    pub masks: bool,
    /// Loads and stores both 32-bit components of a value together.
    pub pairs: bool,
    /// Has non-temporal stores.
    pub streams: bool,
    /// Converts between floats and unsigned or 64-bit integers.
    pub converts_unsigned_and_long: bool,
}

/// An operation on the lanes of registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VectorOp {
    // Of two operands.
    FAdd,
    FSub,
    FMul,
    FDiv,
    /// `d += a * b`, rounded once.
    FMulAdd,
    Add,
    Sub,
    And,
    Or,
    Xor,
    /// Shifts left by the counts in the second operand.
    Shl,
    // Of one operand.
    FSqrt,
    Floor,
    Ceil,
    Trunc,
    /// To the nearest integer, halves to even.
    Rint,
    /// Between 32-bit lanes.
    SignedToFloat,
    UnsignedToFloat,
    /// From f16, side by side in the low half; NaN becomes quiet.
    HalfToFloat,
    /// From narrow integers, side by side in the low part.
    SignExtend8,
    ZeroExtend8,
    SignExtend16,
    ZeroExtend16,
}

/// A comparison of floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FloatCmp {
    Eq,
    /// Also of NaN.
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// One of the two, which are the same register, is NaN.
    Unordered,
}

impl From<CmpOp> for FloatCmp {
    fn from(op: CmpOp) -> FloatCmp {
        match op {
            CmpOp::Eq => FloatCmp::Eq,
            CmpOp::Ne => FloatCmp::Ne,
            CmpOp::Lt => FloatCmp::Lt,
            CmpOp::Le => FloatCmp::Le,
            CmpOp::Gt => FloatCmp::Gt,
            CmpOp::Ge => FloatCmp::Ge,
        }
    }
}

/// A shift by a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shift {
    Right,
    RightSigned,
    Left,
}

/// The vector operations of a target. Unless said otherwise they are on lanes of 32 bits, or of 64 while
/// `long` is set. A destination may be an operand of [`op3`](Self::op3), [`op2`](Self::op2),
/// [`shift`](Self::shift), [`extreme`](Self::extreme) of 32-bit lanes and [`blend`](Self::blend) only.
pub(super) trait VectorOps: Sized {
    /// The address of a step's lanes.
    type Mem: Copy + Default;
    /// A condition for each lane, valid until the next one is made.
    type Cond: Copy;

    // ---- Registers ----

    fn op3(&mut self, op: VectorOp, d: Vr, a: Vr, b: Vr);
    fn op2(&mut self, op: VectorOp, d: Vr, a: Vr);
    fn mov(&mut self, d: Vr, a: Vr);
    /// There is no signed shift of 64-bit lanes to the right.
    fn shift(&mut self, how: Shift, d: Vr, a: Vr, by: u8);
    /// Shifts right by the counts in `T0`; `T1` and `T2` are lost.
    fn shift_right(&mut self, signed: bool, d: Vr, a: Vr);
    /// The product of integers modulo the range; `T1` and `T2` are lost.
    fn multiply(&mut self, d: Vr, a: Vr, b: Vr);
    /// The larger or smaller integer; `T0` to `T2` are lost if lanes are long.
    fn extreme(&mut self, largest: bool, signed: bool, d: Vr, a: Vr, b: Vr);
    /// The magnitude of integers; `T0` is lost.
    fn absolute(&mut self, d: Vr, a: Vr);
    /// The larger or smaller float; -0 is below +0, and a number is preferred to NaN. `T3` may be `a`; the
    /// other temporaries are lost.
    fn min_max(&mut self, largest: bool, d: Vr, a: Vr, b: Vr);
    /// The same, with NaN preferred to a number.
    fn min_max_nan(&mut self, largest: bool, d: Vr, a: Vr, b: Vr);
    /// All lanes of `d` become a uniform.
    fn broadcast(&mut self, d: Vr, uniform: u16);
    /// The index of each lane, as 32 bits; `T0` is lost.
    fn lane_indices(&mut self, d: Vr);

    // ---- Conditions ----

    fn fcmp(&mut self, how: FloatCmp, a: Vr, b: Vr) -> Self::Cond;
    /// Compares integers; `T0` and `T1` are lost.
    fn icmp(&mut self, op: CmpOp, signed: bool, a: Vr, b: Vr) -> Self::Cond;
    /// A condition from its 32-bit lanes, for lanes of the operation.
    fn condition(&mut self, lanes: Vr) -> Self::Cond;
    /// A condition as 32-bit lanes; `T3` is lost.
    fn lanes(&mut self, d: Vr, c: Self::Cond);
    /// `d = c ? yes : no`.
    fn blend(&mut self, d: Vr, c: Self::Cond, yes: Vr, no: Vr);

    // ---- Conversions ----

    /// 64-bit lanes from 32-bit ones.
    fn extend(&mut self, d: Vr, a: Vr, signed: bool);
    /// The low halves of 64-bit lanes; `T3` is lost.
    fn low_halves(&mut self, d: Vr, a: Vr);
    /// f32 lanes to f16 in the low half of `d`; NaN becomes quiet.
    fn narrow_half(&mut self, d: Vr, a: Vr);
    /// The low bytes of each 32-bit lane side by side in `T3`; `T2` is lost.
    fn narrow(&mut self, a: Vr, size: u8);
    /// f32 lanes to the nearest 32-bit integers towards zero; NaN gives zero. `T0` and `T2` are lost.
    fn float_to_int(&mut self, signed: bool, d: Vr, a: Vr);
    fn float_to_double(&mut self, d: Vr, a: Vr);
    fn double_to_float(&mut self, d: Vr, a: Vr);
    /// 64-bit integers to f32; `T0` is lost.
    fn long_to_float(&mut self, signed: bool, d: Vr, a: Vr);
    /// Integers of any size to f64; `T0` is lost.
    fn integer_to_double(&mut self, from: Scalar, d: Vr, a: Vr);
    /// f64 to integers of any size, towards zero and within the range of the type; NaN gives zero. `T1` may
    /// be the operand; the other temporaries are lost.
    fn double_to_integer(&mut self, to: Scalar, d: Vr, a: Vr);

    // ---- Memory ----

    /// The address of the step's lanes of an access, which are `size` bytes each.
    fn address(&mut self, access: u16, size: u64) -> Self::Mem;
    /// As [`op2`](Self::op2) of the forms that extend, from memory.
    fn fetch(&mut self, op: VectorOp, d: Vr, m: Self::Mem);
    /// Loads whole lanes.
    fn load_full(&mut self, d: Vr, m: Self::Mem);
    /// Stores lanes of so many bytes each, side by side in `a`.
    fn store(&mut self, a: Vr, m: Self::Mem, size: u8);
    /// Loads one of two 32-bit components that lie side by side; `T0` and `T1` are lost.
    fn load_pair(&mut self, d: Vr, m: Self::Mem, which: u8);
    /// Stores 32-bit lanes of two registers in turn; `T0` and `T1` are lost.
    fn store_pair(&mut self, a: Vr, b: Vr, m: Self::Mem);
    /// Stores a value to its slot.
    fn spill(&mut self, a: Vr, offset: i32, long: bool);
    fn reload(&mut self, d: Vr, offset: i32, long: bool);
}

/// The function around the vector operations: `fn(*const Frame)`.
pub(super) trait Target: VectorOps {
    /// Saves the caller's registers and reads the frame. The addresses of so many accesses may be kept in
    /// registers.
    fn enter(&mut self, accesses: usize);
    /// Restores the caller's registers and returns.
    fn leave(&mut self);
    /// Runs `body` for each whole step of the row.
    fn row_loop(&mut self, body: impl FnOnce(&mut Self));
    /// Runs `body` under the mask of a partial last step, if there is one. Only of targets with masks.
    fn tail(&mut self, body: impl FnOnce(&mut Self));
    /// Runs `body` for each chunk of so many lanes of the row.
    fn chunk_loop(&mut self, chunk: u32, body: impl FnOnce(&mut Self));
    /// Runs `body` for each step of the chunk.
    fn segment_loop(&mut self, body: impl FnOnce(&mut Self));
    /// Calls `invoke(call, slots, blocks)` with the blocks of the chunk; all vector registers are lost.
    fn call(&mut self, invoke: u64, call: u64);
    /// Aligns the start of a function; gives its position.
    fn align(&mut self) -> usize;
    /// The machine code.
    fn finish(self) -> Vec<u8>;
}

impl Capabilities {
    /// Whether a function of these nodes without calls ends with a masked step for the remaining lanes.
    pub fn has_tail(&self, nodes: &[Node]) -> bool {
        let is_pair = |n: &Node| matches!(n, Node::Load { pair: Some(_), .. } | Node::StorePair { .. });
        self.masks && !nodes.iter().any(is_pair)
    }
}
