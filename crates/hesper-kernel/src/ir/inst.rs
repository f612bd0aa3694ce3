//! The instructions and the exact meaning of each; the ops that they name are in [`super::ops`].
//!
//! Unless said otherwise an operation works component-wise on vectors, both operands having the
//! same type, and rounds its result to its type (nearest even). f16 and bf16 compute in f32 and
//! round after each operation. Integer arithmetic wraps.

use super::ops::*;
use super::types::Type;

macro_rules! id {
    ($(#[$m:meta])* $name:ident) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into its arena.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// An SSA value of one kernel.
    ValueId
);
id!(
    /// A mutable variable of one kernel; see [`Op::Get`].
    VarId
);
id!(
    /// A block of one kernel.
    BlockId
);
id!(
    /// A source location: an index into [`super::Kernel::locs`]. Location 0 is "unknown".
    Loc
);

impl Loc {
    /// No known location.
    pub const UNKNOWN: Loc = Loc(0);
}

/// One instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inst {
    /// The value it produces; its type is in [`super::Kernel::values`].
    pub result: Option<ValueId>,
    /// What it does.
    pub op: Op,
    /// Where it came from.
    pub loc: Loc,
}

/// What an instruction does. "Result type" is that of [`Inst::result`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    /// A scalar constant: the bits of the result type in the low bits (zero-extended), floats
    /// as their IEEE bits, `Bool` as 0 or 1.
    Const(u64),
    /// A null pointer of the result type. Null equals only null; any access through it is out
    /// of bounds.
    NullPtr,
    /// The value of by-value parameter `i`.
    Param(u32),
    /// A pointer to the first byte of buffer parameter `i`.
    ParamPtr(u32),
    /// A pointer to threadgroup variable `i`.
    ThreadgroupPtr(u32),
    /// A pointer to thread variable `i`.
    ThreadPtr(u32),
    /// A pointer to constant table `i`; reads only.
    ConstPtr(u32),
    /// A position or size of the launch along one axis (0..3). Result `U32` (low 32 bits) or
    /// `U64`. Builtins without axes take axis 0.
    Builtin {
        /// Which one.
        what: Builtin,
        /// 0 = x, 1 = y, 2 = z.
        axis: u8,
    },

    /// Arithmetic and functions of one operand; see [`UnaryOp`] for the type of the result.
    Unary(UnaryOp, ValueId),
    /// Two-operand arithmetic and functions; see [`BinaryOp`] for the types.
    Binary(BinaryOp, ValueId, ValueId),
    /// Comparison; `Bool` of the operands' shape. Pointers of one space compare by address
    /// (`Lt`.. between different objects is by an unspecified but fixed order).
    Compare(CmpOp, ValueId, ValueId),
    /// Three-operand functions; all operands and the result have one type.
    Ternary(TernaryOp, ValueId, ValueId, ValueId),
    /// `cond ? if_true : if_false`; both operands are already evaluated. `cond` is a `Bool`, or
    /// a `Bool` vector of the operands' shape for a component-wise choice. Works on pointers.
    Select {
        /// The condition.
        cond: ValueId,
        /// Result where the condition holds.
        if_true: ValueId,
        /// Result elsewhere.
        if_false: ValueId,
    },
    /// Value conversion to the result type (same number of components). Integer to narrower
    /// integer wraps; float to integer truncates towards zero, saturates, NaN gives 0; anything
    /// to `Bool` is `!= 0`; `Bool` to number is 0 or 1; to float rounds to nearest even
    /// (directly from the source value, once).
    Convert(ValueId),
    /// Reinterpretation of the bits as the result type of the same total size.
    Bitcast(ValueId),

    /// A vector of equal components from a scalar.
    Splat(ValueId),
    /// A vector from 2, 3 or 4 scalars.
    Compose(InlineList<ValueId>),
    /// Component `lane` of a vector.
    Extract {
        /// The vector.
        vec: ValueId,
        /// Component number, in range.
        lane: u8,
    },
    /// The vector with one component replaced.
    Insert {
        /// The vector.
        vec: ValueId,
        /// Component number, in range.
        lane: u8,
        /// The new component.
        value: ValueId,
    },
    /// Component `index` (any 32- or 64-bit integer) of a vector; out of range gives 0
    /// unchecked and an error in checked mode.
    ExtractDyn {
        /// The vector.
        vec: ValueId,
        /// Component number.
        index: ValueId,
    },
    /// The vector with component `index` replaced; out of range changes nothing unchecked and
    /// is an error in checked mode.
    InsertDyn {
        /// The vector.
        vec: ValueId,
        /// Component number.
        index: ValueId,
        /// The new component.
        value: ValueId,
    },
    /// A swizzle: component `i` of the result is component `lanes[i]` of `vec`. One selector
    /// gives a scalar, more give a vector.
    Shuffle {
        /// The source vector.
        vec: ValueId,
        /// Selected components.
        lanes: InlineList<u8>,
    },
    /// Whether all components of a `Bool` vector hold.
    AllOf(ValueId),
    /// Whether any component of a `Bool` vector holds.
    AnyOf(ValueId),

    /// The current value of a variable. A variable never set reads as zero (null); checked mode
    /// reports it.
    Get(VarId),
    /// Sets a variable.
    Set(VarId, ValueId),

    /// `ptr + index * stride` bytes; `index` is `I32`, `U32`, `I64` or `U64`. Wraps at 64 bits;
    /// may leave the object, only the access is checked. Null stays null.
    PtrOffset {
        /// The pointer.
        ptr: ValueId,
        /// Number of elements.
        index: ValueId,
        /// Bytes per element.
        stride: i64,
    },
    /// `(a - b) / stride` as `I64`, rounded towards zero; pointers into one object (0 for
    /// pointers into different objects).
    PtrDiff {
        /// Minuend.
        a: ValueId,
        /// Subtrahend.
        b: ValueId,
        /// Bytes per element, positive.
        stride: i64,
    },
    /// Loads the result type (scalar or vector) from memory. Out of bounds gives zero for the
    /// whole value unchecked. A `Bool` byte other than 0 reads as true.
    Load {
        /// Where from.
        ptr: ValueId,
        /// Alignment in bytes the dialect promises, a power of two.
        align: u32,
    },
    /// Stores a scalar or vector. Out of bounds, or through a parameter that is not written,
    /// stores nothing of the value unchecked.
    Store {
        /// Where to.
        ptr: ValueId,
        /// What.
        value: ValueId,
        /// Alignment in bytes the dialect promises, a power of two.
        align: u32,
    },
    /// Atomic read-modify-write (relaxed) of an `I32`, `U32`, `I64`, `U64` or `F32` in device or
    /// threadgroup memory; the result is the old value (0 out of bounds unchecked, nothing
    /// stored). `F32` supports `Exchange`, `Add`, `Sub`, `Min`, `Max`.
    AtomicRmw {
        /// Which update.
        op: AtomicOp,
        /// Where.
        ptr: ValueId,
        /// The operand.
        value: ValueId,
    },
    /// Atomic load of the result type.
    AtomicLoad {
        /// Where.
        ptr: ValueId,
    },
    /// Atomic store.
    AtomicStore {
        /// Where.
        ptr: ValueId,
        /// What.
        value: ValueId,
    },
    /// Atomic compare-exchange; compares bits, stores `desired` where they agree, and gives the
    /// old value. Never fails spuriously.
    AtomicCompareExchange {
        /// Where.
        ptr: ValueId,
        /// The value that memory must hold.
        expected: ValueId,
        /// The value stored if it does.
        desired: ValueId,
    },

    /// Reduction over the active lanes of the group, the same value in each active lane.
    /// Order: inactive lanes hold the identity; then for `s` = width/2, width/4, .., 1 each lane
    /// `i` becomes `v[i] op v[i ^ s]`. Identities: 0, 1, NaN for float min and max, the extreme
    /// value for integer min and max, all ones for and, 0 for or and xor. And, or, xor take
    /// integers and `Bool`.
    GroupReduce {
        /// Over which lanes.
        group: Group,
        /// With which operation.
        op: ReduceOp,
        /// What.
        value: ValueId,
    },
    /// Prefix sum or product over the active lanes. Order: inactive lanes hold the identity;
    /// for `s` = 1, 2, 4, .. each lane `i >= s` becomes `v[i - s] op v[i]`. Exclusive takes the
    /// inclusive result of the lane before (identity in lane 0).
    GroupScan {
        /// Over which lanes.
        group: Group,
        /// `Sum` or `Product`.
        op: ReduceOp,
        /// Whether the lane's own value counts.
        inclusive: bool,
        /// What.
        value: ValueId,
    },
    /// The value of another lane. `arg` (any 32-bit or 16-bit integer) is a lane number or a distance,
    /// see [`ShuffleKind`]. A lane that is inactive gives the reader's own value unchecked and
    /// an error in checked mode.
    GroupShuffle {
        /// Over which lanes.
        group: Group,
        /// How `arg` selects the lane.
        kind: ShuffleKind,
        /// What.
        value: ValueId,
        /// Lane number or distance.
        arg: ValueId,
    },
    /// The value of the first active lane.
    GroupBroadcastFirst {
        /// Over which lanes.
        group: Group,
        /// What.
        value: ValueId,
    },
    /// Bit `i` says whether lane `i` is active and its `Bool` holds. Result `U32`.
    GroupBallot {
        /// Over which lanes.
        group: Group,
        /// The predicate.
        value: ValueId,
    },
    /// Whether the `Bool` holds in all active lanes.
    GroupAll {
        /// Over which lanes.
        group: Group,
        /// The predicate.
        value: ValueId,
    },
    /// Whether the `Bool` holds in any active lane.
    GroupAny {
        /// Over which lanes.
        group: Group,
        /// The predicate.
        value: ValueId,
    },
    /// Whether this is the first active lane.
    GroupIsFirst {
        /// Over which lanes.
        group: Group,
    },
    /// Mask of active lanes as `U32`.
    GroupActiveMask {
        /// Over which lanes.
        group: Group,
    },
    /// `a * b + c` on 8x8 matrices spread over the SIMD group, two elements per lane (`Vec2` of
    /// F16, BF16 or F32; see [`matrix_position`]). Result type is that of `c`. Each element is
    /// accumulated in f32 from `c` over k = 0..8 (product rounded, then added), rounded to the
    /// result type at the end. Inactive lanes contribute zeros.
    SimdMatMulAcc {
        /// Left factor.
        a: ValueId,
        /// Right factor.
        b: ValueId,
        /// Summand.
        c: ValueId,
    },
    /// Waits for all threads of the scope and orders their memory accesses. Every thread of the
    /// scope that has not returned must reach it.
    Barrier {
        /// The threads that wait.
        scope: Scope,
        /// Which memory is ordered.
        mem: MemFlags,
    },
    /// Orders this thread's own atomics and accesses as seen by others, without waiting.
    Fence {
        /// Which memory is ordered.
        mem: MemFlags,
    },

    /// Begins an asynchronous copy by the SIMD group; all of its lanes must reach it. The result is the event
    /// of the copy, a `U32` above 0. The copy consists of the loads and stores of the lanes up to
    /// [`AsyncEnd`](Op::AsyncEnd). They may take place at any time until [`AsyncWait`](Op::AsyncWait), and
    /// checked mode reports every access in between that conflicts with them. All other executors copy at
    /// once and ignore the event.
    AsyncBegin,
    /// Ends the description of the copy that began last.
    AsyncEnd,
    /// Waits for the copy of an event; event 0 stands for no copy.
    AsyncWait(ValueId),

    /// Runs one of two blocks.
    If {
        /// A `Bool`.
        cond: ValueId,
        /// Where it holds.
        then: BlockId,
        /// Elsewhere.
        els: BlockId,
    },
    /// Runs `body`, then `continuing`, again and again until a `Break` or `Return`. `Continue`
    /// in `body` jumps to `continuing`; `Break` is allowed in both, `Continue` only in `body`.
    /// Values of `body` are not visible in `continuing`.
    Loop {
        /// The loop body.
        body: BlockId,
        /// Runs after the body and after each `Continue`.
        continuing: BlockId,
    },
    /// Leaves the innermost loop. Last in its block.
    Break,
    /// Goes to the innermost loop's `continuing`. Last in its block.
    Continue,
    /// Ends the thread. Last in its block.
    Return,
}

/// The element positions of a lane in an 8x8 SIMD-group matrix: row, and the first of the two
/// neighbouring columns.
pub const fn matrix_position(lane: u32) -> (u32, u32) {
    let quad = lane / 4;
    let row = (quad & 4) + (lane / 2) % 4;
    let column = (quad & 2) * 2 + (lane % 2) * 2;
    (row, column)
}

/// Instructions whose result depends on nothing but the operands, the thread and the launch.
///
/// This pattern and the four below cover [`Op`] together with `Get`, `Set`, `Load` and `Store`. A match over
/// them has no wildcard, so a new instruction is a compile error until it is added to one of them.
macro_rules! value_op {
    () => {
        Op::Const(_)
            | Op::NullPtr
            | Op::Param(_)
            | Op::ParamPtr(_)
            | Op::ThreadgroupPtr(_)
            | Op::ThreadPtr(_)
            | Op::ConstPtr(_)
            | Op::Builtin { .. }
            | Op::AsyncBegin
            | Op::Unary(..)
            | Op::Binary(..)
            | Op::Compare(..)
            | Op::Ternary(..)
            | Op::Select { .. }
            | Op::Convert(_)
            | Op::Bitcast(_)
            | Op::Splat(_)
            | Op::Compose(_)
            | Op::Extract { .. }
            | Op::Insert { .. }
            | Op::ExtractDyn { .. }
            | Op::InsertDyn { .. }
            | Op::Shuffle { .. }
            | Op::AllOf(_)
            | Op::AnyOf(_)
            | Op::PtrOffset { .. }
            | Op::PtrDiff { .. }
    };
}

/// Instructions whose result depends on other lanes.
macro_rules! group_op {
    () => {
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
    };
}

/// Atomic accesses.
macro_rules! atomic_op {
    () => {
        Op::AtomicRmw { .. }
            | Op::AtomicLoad { .. }
            | Op::AtomicStore { .. }
            | Op::AtomicCompareExchange { .. }
    };
}

/// Instructions that order memory accesses.
macro_rules! sync_op {
    () => {
        Op::Barrier { .. } | Op::Fence { .. } | Op::AsyncEnd | Op::AsyncWait(_)
    };
}

/// Control flow.
macro_rules! control_op {
    () => {
        Op::If { .. } | Op::Loop { .. } | Op::Break | Op::Continue | Op::Return
    };
}
pub(crate) use {atomic_op, control_op, group_op, sync_op, value_op};

impl Op {
    /// Calls `f` with each operand value, in order.
    pub fn for_each_operand(&self, mut f: impl FnMut(ValueId)) {
        match *self {
            Op::Const(_)
            | Op::NullPtr
            | Op::Param(_)
            | Op::ParamPtr(_)
            | Op::ThreadgroupPtr(_)
            | Op::ThreadPtr(_)
            | Op::ConstPtr(_)
            | Op::Builtin { .. }
            | Op::Get(_)
            | Op::GroupIsFirst { .. }
            | Op::GroupActiveMask { .. }
            | Op::Barrier { .. }
            | Op::Fence { .. }
            | Op::AsyncBegin
            | Op::AsyncEnd
            | Op::Loop { .. }
            | Op::Break
            | Op::Continue
            | Op::Return => {}
            Op::Unary(_, a)
            | Op::Convert(a)
            | Op::Bitcast(a)
            | Op::Splat(a)
            | Op::AllOf(a)
            | Op::AnyOf(a)
            | Op::Set(_, a)
            | Op::Extract { vec: a, .. }
            | Op::Shuffle { vec: a, .. }
            | Op::Load { ptr: a, .. }
            | Op::AtomicLoad { ptr: a }
            | Op::AsyncWait(a)
            | Op::GroupReduce { value: a, .. }
            | Op::GroupScan { value: a, .. }
            | Op::GroupBroadcastFirst { value: a, .. }
            | Op::GroupBallot { value: a, .. }
            | Op::GroupAll { value: a, .. }
            | Op::GroupAny { value: a, .. }
            | Op::If { cond: a, .. } => f(a),
            Op::Binary(_, a, b)
            | Op::Compare(_, a, b)
            | Op::Insert { vec: a, value: b, .. }
            | Op::ExtractDyn { vec: a, index: b }
            | Op::PtrOffset { ptr: a, index: b, .. }
            | Op::PtrDiff { a, b, .. }
            | Op::Store { ptr: a, value: b, .. }
            | Op::AtomicRmw { ptr: a, value: b, .. }
            | Op::AtomicStore { ptr: a, value: b }
            | Op::GroupShuffle { value: a, arg: b, .. } => {
                f(a);
                f(b);
            }
            Op::Ternary(_, a, b, c)
            | Op::Select { cond: a, if_true: b, if_false: c }
            | Op::InsertDyn { vec: a, index: b, value: c }
            | Op::AtomicCompareExchange { ptr: a, expected: b, desired: c }
            | Op::SimdMatMulAcc { a, b, c } => {
                f(a);
                f(b);
                f(c);
            }
            Op::Compose(parts) => parts.as_slice().iter().for_each(|&p| f(p)),
        }
    }

    /// Whether the instruction ends its block.
    pub const fn is_terminator(&self) -> bool {
        matches!(self, Op::Break | Op::Continue | Op::Return)
    }
}

/// What is known about a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueInfo {
    /// Its type.
    pub ty: Type,
}
