//! The operations an instruction may name, and what each computes.

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
    /// `a * b + c`: floats rounded once (f16 and bf16: fused in f32, then rounded to the type);
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
