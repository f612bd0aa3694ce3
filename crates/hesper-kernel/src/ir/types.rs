//! The types of values: scalars, short vectors and opaque pointers.

use std::fmt;

/// A scalar type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Scalar {
    /// `false` or `true`; one byte (0 or 1) in memory.
    Bool,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE half precision. Arithmetic computes in f32 and rounds after each operation.
    F16,
    /// bfloat16. Arithmetic computes in f32 and rounds after each operation.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision; for the planner only, the dialect has no `double`.
    F64,
}

impl Scalar {
    /// Every scalar type.
    pub const ALL: [Scalar; 13] = [
        Scalar::Bool,
        Scalar::I8,
        Scalar::I16,
        Scalar::I32,
        Scalar::I64,
        Scalar::U8,
        Scalar::U16,
        Scalar::U32,
        Scalar::U64,
        Scalar::F16,
        Scalar::BF16,
        Scalar::F32,
        Scalar::F64,
    ];

    /// Size in memory in bytes; also the natural alignment.
    pub const fn size(self) -> u64 {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 | Scalar::F16 | Scalar::BF16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
        }
    }

    /// Width in bits (8 for `Bool`).
    pub const fn bits(self) -> u32 {
        self.size() as u32 * 8
    }

    /// Whether this is one of the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Scalar::F16 | Scalar::BF16 | Scalar::F32 | Scalar::F64)
    }

    /// Whether this is one of the 16-bit floating-point types.
    pub const fn is_half(self) -> bool {
        matches!(self, Scalar::F16 | Scalar::BF16)
    }

    /// Whether this is an integer type (`Bool` is not).
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, Scalar::Bool)
    }

    /// Whether this is a signed integer type.
    pub const fn is_signed_int(self) -> bool {
        matches!(self, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64)
    }

    /// Whether this is an unsigned integer type.
    pub const fn is_unsigned_int(self) -> bool {
        matches!(self, Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64)
    }

    /// The name used by the printer.
    pub const fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::I8 => "i8",
            Scalar::I16 => "i16",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::U8 => "u8",
            Scalar::U16 => "u16",
            Scalar::U32 => "u32",
            Scalar::U64 => "u64",
            Scalar::F16 => "f16",
            Scalar::BF16 => "bf16",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// Buffers that kernels may read and, where the parameter allows it, write.
    Device,
    /// Read-only buffers.
    Constant,
    /// Memory shared by the threads of one threadgroup.
    Threadgroup,
    /// Memory private to one thread.
    Thread,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Device => "device",
            Space::Constant => "constant",
            Space::Threadgroup => "threadgroup",
            Space::Thread => "thread",
        })
    }
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// One scalar.
    Scalar(Scalar),
    /// A vector of 2, 3 or 4 scalars. In memory its components lie packed one after another; a `Vec(F32, 3)`
    /// therefore loads and stores 12 bytes (the front end chooses its *stride*: 16 for `float3`, 12 for
    /// `packed_float3`).
    Vec(Scalar, u8),
    /// An opaque byte pointer into one address space; the instruction that uses it names the element type. A
    /// pointer belongs to one object: it can never reach another buffer, whatever its offset.
    Ptr(Space),
}

impl Type {
    /// `Scalar::Bool`.
    pub const BOOL: Type = Type::Scalar(Scalar::Bool);
    /// `Scalar::I32`.
    pub const I32: Type = Type::Scalar(Scalar::I32);
    /// `Scalar::I64`.
    pub const I64: Type = Type::Scalar(Scalar::I64);
    /// `Scalar::U32`.
    pub const U32: Type = Type::Scalar(Scalar::U32);
    /// `Scalar::U64`.
    pub const U64: Type = Type::Scalar(Scalar::U64);
    /// `Scalar::F16`.
    pub const F16: Type = Type::Scalar(Scalar::F16);
    /// `Scalar::BF16`.
    pub const BF16: Type = Type::Scalar(Scalar::BF16);
    /// `Scalar::F32`.
    pub const F32: Type = Type::Scalar(Scalar::F32);
    /// `Scalar::F64`.
    pub const F64: Type = Type::Scalar(Scalar::F64);

    /// The scalar of a scalar or vector type.
    pub const fn scalar(self) -> Option<Scalar> {
        match self {
            Type::Scalar(s) | Type::Vec(s, _) => Some(s),
            Type::Ptr(_) => None,
        }
    }

    /// Number of components: 1 for scalars and pointers.
    pub const fn lanes(self) -> u8 {
        match self {
            Type::Vec(_, n) => n,
            _ => 1,
        }
    }

    /// Whether this is a vector type.
    pub const fn is_vec(self) -> bool {
        matches!(self, Type::Vec(..))
    }

    /// Whether this is a pointer type.
    pub const fn is_ptr(self) -> bool {
        matches!(self, Type::Ptr(_))
    }

    /// The address space of a pointer type.
    pub const fn space(self) -> Option<Space> {
        match self {
            Type::Ptr(s) => Some(s),
            _ => None,
        }
    }

    /// Bytes a load or store of this type touches; 0 for pointers, which are not storable.
    pub const fn size(self) -> u64 {
        match self {
            Type::Scalar(s) => s.size(),
            Type::Vec(s, n) => s.size() * n as u64,
            Type::Ptr(_) => 0,
        }
    }

    /// Natural alignment of the dialect: of the scalar, times 2 or 4 for vectors of 2 or of
    /// 3 and 4 components.
    pub const fn align(self) -> u64 {
        match self {
            Type::Scalar(s) => s.size(),
            Type::Vec(s, 2) => s.size() * 2,
            Type::Vec(s, _) => s.size() * 4,
            Type::Ptr(_) => 8,
        }
    }

    /// The same shape with another scalar; pointers stay as they are.
    pub const fn with_scalar(self, s: Scalar) -> Type {
        match self {
            Type::Scalar(_) => Type::Scalar(s),
            Type::Vec(_, n) => Type::Vec(s, n),
            Type::Ptr(_) => self,
        }
    }

    /// The type of one component; pointers stay as they are.
    pub const fn component(self) -> Type {
        match self {
            Type::Vec(s, _) => Type::Scalar(s),
            t => t,
        }
    }

    /// The vector (or, for `lanes == 1`, scalar) type of these components.
    pub const fn of(s: Scalar, lanes: u8) -> Type {
        if lanes == 1 { Type::Scalar(s) } else { Type::Vec(s, lanes) }
    }
}

impl From<Scalar> for Type {
    fn from(s: Scalar) -> Type {
        Type::Scalar(s)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Scalar(s) => write!(f, "{s}"),
            Type::Vec(s, n) => write!(f, "{s}x{n}"),
            Type::Ptr(s) => write!(f, "{s}*"),
        }
    }
}
