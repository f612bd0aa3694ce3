//! The ops that an instruction may name; those on scalars come from the [registry](super::registry).

use super::registry::{atomic_ops, binary_ops, compare_ops, reduce_ops, ternary_ops, unary_ops};
use super::types::Scalar;

/// The group of consecutive lanes that an op works over.
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

/// One to four operands or component selectors, stored inline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineList<T> {
    items: [T; 4],
    len: u8,
}

impl<T: Copy> InlineList<T> {
    /// The list of `items`; `None` if there are none or more than four.
    pub fn new(items: &[T]) -> Option<InlineList<T>> {
        let first = *items.first()?;
        if items.len() > 4 {
            return None;
        }
        let mut all = [first; 4];
        all[..items.len()].copy_from_slice(items);
        Some(InlineList { items: all, len: items.len() as u8 })
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

/// Which scalars an op takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operands {
    /// Integers and floats.
    Number,
    /// Integers and `Bool`.
    Bits,
    /// Integers.
    Int,
    /// Floats.
    Float,
}

impl Operands {
    /// Whether the op takes a scalar type.
    pub const fn accept(self, s: Scalar) -> bool {
        match self {
            Operands::Number => !matches!(s, Scalar::Bool),
            Operands::Bits => !s.is_float(),
            Operands::Int => s.is_int(),
            Operands::Float => s.is_float(),
        }
    }

    /// For messages: "a number".
    pub const fn describe(self) -> &'static str {
        match self {
            Operands::Number => "a number",
            Operands::Bits => "an integer or bool",
            Operands::Int => "an integer",
            Operands::Float => "a float",
        }
    }
}

/// The operand types of a group of the registry.
macro_rules! operands {
    (number) => {
        Operands::Number
    };
    (bits) => {
        Operands::Bits
    };
    (int) => {
        Operands::Int
    };
    ($float:ident) => {
        Operands::Float
    };
}
pub(crate) use operands;

/// The scalar of the result by the group of an op.
macro_rules! result {
    (test $s:ident) => {
        Scalar::Bool
    };
    (exponent $s:ident) => {
        Scalar::I32
    };
    ($group:ident $s:ident) => {
        $s
    };
}

/// The scalar of the right operand by the group of an op.
macro_rules! right {
    (scale $s:ident) => {
        Scalar::I32
    };
    ($group:ident $s:ident) => {
        $s
    };
}

macro_rules! define {
    ($(#[$about:meta])* $Op:ident; $($group:ident { $($(#[$doc:meta])* $Name:ident $fields:tt)* })*) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $Op {
            $($($(#[$doc])* $Name,)*)*
        }

        impl $Op {
            /// Every op.
            pub const ALL: &[$Op] = &[$($($Op::$Name,)*)*];

            /// The scalar types that it takes.
            pub const fn operands(self) -> Operands {
                match self { $($($Op::$Name => operands!($group),)*)* }
            }
        }
    };
}

unary_ops! { define
    /// Ops of one operand. The result has the operand's type, except that tests of floats give a `Bool` and
    /// [`UnaryOp::FrexpExp`] gives an `I32`, both of the operand's shape.
    UnaryOp;
}
binary_ops! { define
    /// Ops of two operands. Operands and result have one type unless said otherwise.
    BinaryOp;
}
ternary_ops! { define
    /// Ops of three operands. Operands and result have one type.
    TernaryOp;
}

macro_rules! define_result {
    ($($group:ident { $($(#[$doc:meta])* $Name:ident $fields:tt)* })*) => {
        impl UnaryOp {
            /// The scalar type of the result where that of the operand is `s`.
            pub const fn result(self, s: Scalar) -> Scalar {
                match self { $($(UnaryOp::$Name => result!($group s),)*)* }
            }
        }
    };
}
unary_ops!(define_result);

macro_rules! define_right {
    ($($group:ident { $($(#[$doc:meta])* $Name:ident $fields:tt)* })*) => {
        impl BinaryOp {
            /// The scalar type of the right operand where that of the left one is `s`.
            pub const fn right(self, s: Scalar) -> Scalar {
                match self { $($(BinaryOp::$Name => right!($group s),)*)* }
            }
        }
    };
}
binary_ops!(define_right);

macro_rules! define_compare {
    ($($(#[$doc:meta])* $Name:ident $operator:tt;)*) => {
        /// Comparisons. Floats compare as IEEE says (NaN is unordered: only `Ne` holds).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum CmpOp {
            $($(#[$doc])* $Name,)*
        }

        impl CmpOp {
            /// Every comparison.
            pub const ALL: &[CmpOp] = &[$(CmpOp::$Name,)*];

            /// The operator of C.
            pub const fn operator(self) -> &'static str {
                match self { $(CmpOp::$Name => stringify!($operator),)* }
            }
        }
    };
}
compare_ops!(define_compare);

impl CmpOp {
    /// The comparison that holds where this one does not; for floats, only if neither operand is NaN.
    pub const fn negated(self) -> CmpOp {
        match self {
            CmpOp::Eq => CmpOp::Ne,
            CmpOp::Ne => CmpOp::Eq,
            CmpOp::Lt => CmpOp::Ge,
            CmpOp::Le => CmpOp::Gt,
            CmpOp::Gt => CmpOp::Le,
            CmpOp::Ge => CmpOp::Lt,
        }
    }

    /// The comparison with its operands exchanged.
    pub const fn swapped(self) -> CmpOp {
        match self {
            CmpOp::Lt => CmpOp::Gt,
            CmpOp::Le => CmpOp::Ge,
            CmpOp::Gt => CmpOp::Lt,
            CmpOp::Ge => CmpOp::Le,
            CmpOp::Eq | CmpOp::Ne => self,
        }
    }
}

macro_rules! define_atomic {
    ($($(#[$doc:meta])* $Name:ident $(= $Binary:ident)?, $cuda:literal $builtins:tt;)*) => {
        /// Atomic updates.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum AtomicOp {
            $($(#[$doc])* $Name,)*
        }

        impl AtomicOp {
            /// The op that computes the new value from the old one and the operand; `None` if the new value
            /// is the operand.
            pub const fn binary(self) -> Option<BinaryOp> {
                match self { $(AtomicOp::$Name => binary_op!($($Binary)?),)* }
            }
        }
    };
}
/// The op of an atomic update; none for an exchange.
macro_rules! binary_op {
    () => {
        None
    };
    ($Binary:ident) => {
        Some(BinaryOp::$Binary)
    };
}
atomic_ops!(define_atomic);

macro_rules! define_reduce {
    ($($(#[$doc:meta])* $Name:ident = $Binary:ident, $cuda:literal;)*) => {
        /// Operations of group reductions and scans.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ReduceOp {
            $($(#[$doc])* $Name,)*
        }

        impl ReduceOp {
            /// Every operation.
            pub const ALL: &[ReduceOp] = &[$(ReduceOp::$Name,)*];

            /// The op that joins two lanes.
            pub const fn binary(self) -> BinaryOp {
                match self { $(ReduceOp::$Name => BinaryOp::$Binary,)* }
            }
        }
    };
}
reduce_ops!(define_reduce);

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

/// The threads that take part in a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// All threads of the threadgroup.
    Threadgroup,
    /// All threads of the SIMD group.
    Simdgroup,
}

/// The memory that a barrier or fence orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MemFlags {
    /// Device memory.
    pub device: bool,
    /// Threadgroup memory.
    pub threadgroup: bool,
}

impl MemFlags {
    /// No memory: a barrier only waits.
    pub const NONE: MemFlags = MemFlags { device: false, threadgroup: false };
    /// Device memory.
    pub const DEVICE: MemFlags = MemFlags { device: true, threadgroup: false };
    /// Threadgroup memory.
    pub const THREADGROUP: MemFlags = MemFlags { device: false, threadgroup: true };
    /// Both.
    pub const ALL: MemFlags = MemFlags { device: true, threadgroup: true };
}
