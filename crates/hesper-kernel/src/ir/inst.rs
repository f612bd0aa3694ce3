//! The instructions and the exact meaning of each.
//!
//! Unless said otherwise an operation works component-wise on vectors, both operands having the
//! same type, and rounds its result to its type (nearest even). f16 and bf16 compute in f32 and
//! round after each operation. Integer arithmetic wraps.

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

/// Which hardware-like group of consecutive lanes an operation works over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Group {
    /// The SIMD group: 32 lanes with consecutive `thread_index_in_threadgroup`.
    Simd,
    /// The quad: 4 consecutive lanes of a SIMD group.
    Quad,
}

impl Group {
    /// Number of lanes.
    pub const fn width(self) -> u32 {
        match self {
            Group::Simd => 32,
            Group::Quad => 4,
        }
    }
}

/// Up to four operands or component selectors, kept inline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Few<T> {
    items: [T; 4],
    len: u8,
}

impl<T: Copy> Few<T> {
    /// The first four of `items` at most; `None` for an empty slice or more than four.
    pub fn new(items: &[T]) -> Option<Few<T>> {
        let first = *items.first()?;
        if items.len() > 4 {
            return None;
        }
        let mut all = [first; 4];
        all[..items.len()].copy_from_slice(items);
        Some(Few { items: all, len: items.len() as u8 })
    }

    /// The items.
    pub fn as_slice(&self) -> &[T] {
        &self.items[..self.len as usize]
    }
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
    /// A position or size of the launch along one axis (0..3). Result `U32` (low 32 bits) or
    /// `U64`. Builtins without axes take axis 0.
    Builtin {
        /// Which one.
        what: Builtin,
        /// 0 = x, 1 = y, 2 = z.
        axis: u8,
    },

    /// One-operand arithmetic and functions; result has the operand's type.
    Unary(UnaryOp, ValueId),
    /// Two-operand arithmetic and functions; see [`BinaryOp`] for the types.
    Binary(BinaryOp, ValueId, ValueId),
    /// Comparison; `Bool` of the operands' shape. Pointers of one space compare by address
    /// (`Lt`.. between different objects is by an unspecified but fixed order).
    Compare(CmpOp, ValueId, ValueId),
    /// Three-operand functions; all operands and the result have one type.
    Ternary(TernaryOp, ValueId, ValueId, ValueId),
    /// Classification of floats; `Bool` of the operand's shape.
    Test(TestOp, ValueId),
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
    /// The exponent `e` (result `I32` of the operand's shape) with `x = m * 2^e`,
    /// `0.5 <= |m| < 1` as in C's `frexp`; 0 for zero, infinities and NaN.
    FrexpExp(ValueId),

    /// A vector of equal components from a scalar.
    Splat(ValueId),
    /// A vector from 2, 3 or 4 scalars.
    Compose(Few<ValueId>),
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
        lanes: Few<u8>,
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
    /// Stores a scalar or vector. Out of bounds stores nothing of the value unchecked.
    Store {
        /// Where to.
        ptr: ValueId,
        /// What.
        value: ValueId,
        /// Alignment in bytes the dialect promises, a power of two.
        align: u32,
    },
    /// Atomic read-modify-write (relaxed) of an `I32`, `U32`, `I64`, `U64` or `F32` in device or
    /// threadgroup memory; the result is the old value. `F32` supports `Exchange`, `Add`,
    /// `Sub`, `Min`, `Max`.
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
        /// Value that must be there.
        expected: ValueId,
        /// Value stored if it is.
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
        /// Who waits.
        scope: Scope,
        /// Which memory is ordered.
        mem: MemFlags,
    },
    /// Orders this thread's own atomics and accesses as seen by others; no one waits.
    Fence {
        /// Which memory is ordered.
        mem: MemFlags,
    },

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

/// Positions and sizes of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Builtin {
    /// Position of the thread in the grid.
    ThreadPositionInGrid,
    /// Position of the threadgroup in the grid of groups.
    ThreadgroupPositionInGrid,
    /// Position of the thread in its threadgroup.
    ThreadPositionInThreadgroup,
    /// Actual size of this threadgroup (smaller for the last groups of a partial grid).
    ThreadsPerThreadgroup,
    /// Size of a full threadgroup as launched.
    DispatchThreadsPerThreadgroup,
    /// Number of threadgroups.
    ThreadgroupsPerGrid,
    /// Number of threads in the grid.
    ThreadsPerGrid,
    /// Row-major index (x fastest) of the thread in its threadgroup. No axes.
    ThreadIndexInThreadgroup,
    /// Index of the SIMD group in the threadgroup. No axes.
    SimdgroupIndexInThreadgroup,
    /// Lane: index of the thread in its SIMD group. No axes.
    ThreadIndexInSimdgroup,
    /// 32. No axes.
    ThreadsPerSimdgroup,
    /// Number of SIMD groups in this threadgroup, the last maybe partial. No axes.
    SimdgroupsPerThreadgroup,
    /// Number of SIMD groups of a full threadgroup. No axes.
    DispatchSimdgroupsPerThreadgroup,
    /// Index of the quad in the threadgroup. No axes.
    QuadgroupIndexInThreadgroup,
    /// Index of the thread in its quad. No axes.
    ThreadIndexInQuadgroup,
    /// Number of quads in this threadgroup. No axes.
    QuadgroupsPerThreadgroup,
    /// Number of quads of a full threadgroup. No axes.
    DispatchQuadgroupsPerThreadgroup,
}

impl Builtin {
    /// Whether the builtin has three axes.
    pub const fn has_axes(self) -> bool {
        matches!(
            self,
            Builtin::ThreadPositionInGrid
                | Builtin::ThreadgroupPositionInGrid
                | Builtin::ThreadPositionInThreadgroup
                | Builtin::ThreadsPerThreadgroup
                | Builtin::DispatchThreadsPerThreadgroup
                | Builtin::ThreadgroupsPerGrid
                | Builtin::ThreadsPerGrid
        )
    }
}

/// One-operand operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnaryOp {
    /// Negation: wraps for integers (also unsigned), flips the sign bit of floats.
    Neg,
    /// Bitwise complement of integers, logical not of `Bool`.
    Not,
    /// Absolute value; wraps for the least integer; clears the sign bit of floats.
    Abs,
    /// -1, 0 or 1 of the operand's type; floats keep a zero as it is and give 0 for NaN.
    Sign,

    /// Number of one bits. Integers.
    PopCount,
    /// Leading zero bits; the width for 0. Integers.
    Clz,
    /// Trailing zero bits; the width for 0. Integers.
    Ctz,
    /// The bits in reverse order. Integers.
    ReverseBits,

    // Floats only, from here on.
    /// Square root, correctly rounded.
    Sqrt,
    /// `1 / sqrt(x)`: the division and the root each rounded.
    Rsqrt,
    /// Cube root.
    Cbrt,
    /// `e^x`.
    Exp,
    /// `2^x`.
    Exp2,
    /// `10^x`.
    Exp10,
    /// `e^x - 1`.
    Expm1,
    /// Natural logarithm.
    Log,
    /// Base-2 logarithm.
    Log2,
    /// Base-10 logarithm.
    Log10,
    /// `log(1 + x)`.
    Log1p,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Tangent.
    Tan,
    /// `sin(pi x)`.
    SinPi,
    /// `cos(pi x)`.
    CosPi,
    /// `tan(pi x)`.
    TanPi,
    /// Arc sine.
    Asin,
    /// Arc cosine.
    Acos,
    /// Arc tangent.
    Atan,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Hyperbolic tangent.
    Tanh,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// The error function.
    Erf,
    /// `1 - erf(x)`.
    Erfc,
    /// Inverse of the error function.
    ErfInv,
    /// Natural logarithm of the absolute value of the gamma function.
    Lgamma,
    /// Largest integer not above.
    Floor,
    /// Smallest integer not below.
    Ceil,
    /// Nearest integer, halves away from zero.
    Round,
    /// Nearest integer, halves to even.
    Rint,
    /// Towards zero.
    Trunc,
    /// `x - floor(x)`, below 1.
    Fract,
    /// The mantissa of C's `frexp`: in `[0.5, 1)`, or `x` itself for zero, infinity and NaN.
    FrexpMant,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
}

/// Two-operand operations. Operands and result have one type unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinaryOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient; integers truncate towards zero; by zero gives 0 (error in checked mode), and
    /// `MIN / -1` wraps.
    Div,
    /// Remainder with the sign of the dividend (C's `%` and `fmod`); integers by zero give 0
    /// (error in checked mode).
    Rem,
    /// Smaller; for floats the operand that is a number if the other is NaN, and -0 < +0.
    Min,
    /// Larger; for floats the operand that is a number if the other is NaN, and -0 < +0.
    Max,
    /// Smaller; NaN if either float is NaN.
    MinNan,
    /// Larger; NaN if either float is NaN.
    MaxNan,
    /// Bitwise and; logical on `Bool`.
    And,
    /// Bitwise or; logical on `Bool`.
    Or,
    /// Bitwise exclusive or; logical on `Bool`.
    Xor,
    /// Left shift of integers by a count of the same type, taken modulo the width.
    Shl,
    /// Right shift of integers, arithmetic for signed ones; count as for `Shl`.
    Shr,
    /// Left rotation of integers; count as for `Shl`.
    Rotate,
    /// The upper half of the full product of integers.
    MulHi,
    /// Saturating integer sum.
    AddSat,
    /// Saturating integer difference.
    SubSat,
    /// `|a - b|` of integers without overflow; of signed integers wrapped into the type.
    AbsDiff,
    /// `(a + b) >> 1` of integers without overflow.
    Hadd,
    /// `(a + b + 1) >> 1` of integers without overflow.
    Rhadd,

    // Floats only, from here on.
    /// `a^b`.
    Pow,
    /// The angle of the point `(x = b, y = a)`.
    Atan2,
    /// IEEE remainder: `a - n b` with `n` the nearest integer to `a / b`, halves to even.
    IeeeRem,
    /// `a` with the sign of `b`.
    CopySign,
    /// The next float from `a` towards `b`.
    NextAfter,
    /// `a - b` if positive, else 0; NaN if either is NaN.
    Fdim,
    /// `sqrt(a^2 + b^2)` without undue overflow.
    Hypot,
    /// `a * 2^b`, correctly rounded; `b` is `I32` of `a`'s shape.
    Ldexp,
}

/// Three-operand operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TernaryOp {
    /// `a * b + c`: floats rounded once (f16 and bf16: exactly in f32/f64, then rounded once);
    /// integers wrap.
    Fma,
    /// `min(max(a, b), c)` with [`BinaryOp::Min`] and [`BinaryOp::Max`].
    Clamp,
}

/// Comparisons. Floats compare as IEEE says (NaN is unordered: only `Ne` holds).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CmpOp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// Classification of floats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TestOp {
    /// Not a number.
    IsNan,
    /// Plus or minus infinity.
    IsInf,
    /// Neither infinite nor NaN.
    IsFinite,
    /// Neither zero, subnormal, infinite nor NaN.
    IsNormal,
    /// The sign bit is set.
    SignBit,
}

/// Atomic updates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOp {
    /// Replace.
    Exchange,
    /// Add, wrapping.
    Add,
    /// Subtract, wrapping.
    Sub,
    /// [`BinaryOp::Min`].
    Min,
    /// [`BinaryOp::Max`].
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

/// Operations of group reductions and scans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// [`BinaryOp::Min`].
    Min,
    /// [`BinaryOp::Max`].
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

/// Which lane a shuffle reads. `w` is the group's width, lanes counted within the group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ShuffleKind {
    /// Lane `arg mod w`. Also serves broadcast.
    Lane,
    /// Lane `lane - arg`; lanes below `arg` keep their own value.
    Up,
    /// Lane `lane + arg`; lanes that would read past the end keep their own value.
    Down,
    /// Lane `(lane xor arg) mod w`.
    Xor,
    /// Lane `(lane - arg) mod w`.
    RotateUp,
    /// Lane `(lane + arg) mod w`.
    RotateDown,
}

/// Who takes part in a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// All threads of the threadgroup.
    Threadgroup,
    /// All threads of the SIMD group.
    Simdgroup,
}

/// Which memory a barrier orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MemFlags {
    /// Device memory.
    pub device: bool,
    /// Threadgroup memory.
    pub threadgroup: bool,
}

impl MemFlags {
    /// Nothing but the waiting itself.
    pub const NONE: MemFlags = MemFlags { device: false, threadgroup: false };
    /// Device memory.
    pub const DEVICE: MemFlags = MemFlags { device: true, threadgroup: false };
    /// Threadgroup memory.
    pub const THREADGROUP: MemFlags = MemFlags { device: false, threadgroup: true };
    /// Both.
    pub const ALL: MemFlags = MemFlags { device: true, threadgroup: true };
}

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
            | Op::Builtin { .. }
            | Op::Get(_)
            | Op::GroupIsFirst { .. }
            | Op::GroupActiveMask { .. }
            | Op::Barrier { .. }
            | Op::Fence { .. }
            | Op::Loop { .. }
            | Op::Break
            | Op::Continue
            | Op::Return => {}
            Op::Unary(_, a)
            | Op::Test(_, a)
            | Op::Convert(a)
            | Op::Bitcast(a)
            | Op::FrexpExp(a)
            | Op::Splat(a)
            | Op::AllOf(a)
            | Op::AnyOf(a)
            | Op::Set(_, a)
            | Op::Extract { vec: a, .. }
            | Op::Shuffle { vec: a, .. }
            | Op::Load { ptr: a, .. }
            | Op::AtomicLoad { ptr: a }
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
