//! The types of the dialect, and the names of the built-in ones.

use crate::ir::{Scalar, Space, Type};
use std::rc::Rc;

/// Index of an instantiated struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StructId(pub u32);

/// A type, fully resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// `void`
    Void,
    /// A scalar.
    Scalar(Scalar),
    /// `float4` and the like.
    Vector(Scalar, u8),
    /// `packed_float4` and the like: a vector in memory without padding.
    Packed(Scalar, u8),
    /// A pointer.
    Pointer(Rc<Pointer>),
    /// An array of known length.
    Array(Rc<Ty>, u64),
    /// A struct.
    Struct(StructId),
    /// An enumeration: its index and underlying type.
    Enum(u32, Scalar),
    /// `atomic<T>`
    Atomic(Scalar),
    /// `simdgroup_matrix<T, 8, 8>`
    Matrix(Scalar),
    /// The type of a lambda.
    Lambda(u32),
    /// The type of `nullptr`.
    Null,
    /// Of an expression whose error was already reported.
    Error,
}

/// What a pointer points at, and where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pointer {
    /// The type pointed at.
    pub pointee: Ty,
    /// The address space; none until it is taken from an initialiser or argument.
    pub space: Option<Space>,
    /// `const` pointee.
    pub is_const: bool,
}

impl Ty {
    /// A pointer type.
    pub fn pointer(pointee: Ty, space: Option<Space>, is_const: bool) -> Ty {
        Ty::Pointer(Rc::new(Pointer { pointee, space, is_const }))
    }

    /// `bool`
    pub const BOOL: Ty = Ty::Scalar(Scalar::Bool);
    /// `int`
    pub const INT: Ty = Ty::Scalar(Scalar::I32);
    /// `uint`
    pub const UINT: Ty = Ty::Scalar(Scalar::U32);
    /// `float`
    pub const FLOAT: Ty = Ty::Scalar(Scalar::F32);

    /// The scalar of a scalar, vector or enumeration.
    pub fn scalar(&self) -> Option<Scalar> {
        match self {
            Ty::Scalar(s) | Ty::Vector(s, _) | Ty::Packed(s, _) | Ty::Enum(_, s) => Some(*s),
            _ => None,
        }
    }

    /// Components of a scalar (1) or vector.
    pub fn lanes(&self) -> u8 {
        match self {
            Ty::Vector(_, n) | Ty::Packed(_, n) => *n,
            _ => 1,
        }
    }

    /// Scalars, vectors, enumerations: what arithmetic works on.
    pub fn is_arithmetic(&self) -> bool {
        self.scalar().is_some()
    }

    /// Vectors, packed or not.
    pub fn is_vector(&self) -> bool {
        matches!(self, Ty::Vector(..) | Ty::Packed(..))
    }

    /// The type of the value when an object of this type is read.
    pub fn decayed(&self) -> Ty {
        match self {
            Ty::Packed(s, n) => Ty::Vector(*s, *n),
            t => t.clone(),
        }
    }

    /// The vector (or scalar) of these components.
    pub fn of(s: Scalar, lanes: u8) -> Ty {
        if lanes == 1 { Ty::Scalar(s) } else { Ty::Vector(s, lanes) }
    }

    /// The same shape with another scalar.
    pub fn with_scalar(&self, s: Scalar) -> Ty {
        Ty::of(s, self.lanes())
    }

    /// The IR type of a value of this type, for those that one IR value can hold.
    pub fn ir(&self) -> Option<Type> {
        match self {
            Ty::Scalar(s) | Ty::Enum(_, s) => Some(Type::Scalar(*s)),
            Ty::Vector(s, n) | Ty::Packed(s, n) => Some(Type::Vec(*s, *n)),
            Ty::Pointer(p) => Some(Type::Ptr(p.space.unwrap_or(Space::Thread))),
            Ty::Matrix(s) => Some(Type::Vec(*s, 2)),
            _ => None,
        }
    }
}

/// The dialect's name of a scalar.
pub fn scalar_name(s: Scalar) -> &'static str {
    match s {
        Scalar::Bool => "bool",
        Scalar::I8 => "char",
        Scalar::I16 => "short",
        Scalar::I32 => "int",
        Scalar::I64 => "long",
        Scalar::U8 => "uchar",
        Scalar::U16 => "ushort",
        Scalar::U32 => "uint",
        Scalar::U64 => "ulong",
        Scalar::F16 => "half",
        Scalar::BF16 => "bfloat",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
    }
}

/// Names of scalar types.
pub const SCALAR_NAMES: [(&str, Scalar); 34] = [
    ("bool", Scalar::Bool),
    ("char", Scalar::I8),
    ("int8_t", Scalar::I8),
    ("schar", Scalar::I8),
    ("uchar", Scalar::U8),
    ("uint8_t", Scalar::U8),
    ("short", Scalar::I16),
    ("int16_t", Scalar::I16),
    ("ushort", Scalar::U16),
    ("uint16_t", Scalar::U16),
    ("int", Scalar::I32),
    ("int32_t", Scalar::I32),
    ("uint", Scalar::U32),
    ("uint32_t", Scalar::U32),
    ("long", Scalar::I64),
    ("int64_t", Scalar::I64),
    ("ulong", Scalar::U64),
    ("uint64_t", Scalar::U64),
    ("size_t", Scalar::U64),
    ("ptrdiff_t", Scalar::I64),
    ("intptr_t", Scalar::I64),
    ("uintptr_t", Scalar::U64),
    ("simd_vote", Scalar::U64),
    ("vote_t", Scalar::U64),
    ("half", Scalar::F16),
    ("float16_t", Scalar::F16),
    ("float16", Scalar::F16),
    ("bfloat", Scalar::BF16),
    ("bfloat16_t", Scalar::BF16),
    ("bfloat16", Scalar::BF16),
    ("float", Scalar::F32),
    ("float32_t", Scalar::F32),
    ("__fp16", Scalar::F16),
    ("_Float16", Scalar::F16),
];

/// The built-in type of this name.
pub fn builtin_type(name: &str) -> Option<Ty> {
    if let Some((_, s)) = SCALAR_NAMES.iter().find(|(n, _)| *n == name) {
        return Some(Ty::Scalar(*s));
    }
    match name {
        "void" => return Some(Ty::Void),
        "atomic_int" => return Some(Ty::Atomic(Scalar::I32)),
        "atomic_uint" => return Some(Ty::Atomic(Scalar::U32)),
        "atomic_bool" => return Some(Ty::Atomic(Scalar::Bool)),
        "atomic_float" => return Some(Ty::Atomic(Scalar::F32)),
        "atomic_ulong" => return Some(Ty::Atomic(Scalar::U64)),
        "atomic_long" => return Some(Ty::Atomic(Scalar::I64)),
        "simdgroup_float8x8" => return Some(Ty::Matrix(Scalar::F32)),
        "simdgroup_half8x8" => return Some(Ty::Matrix(Scalar::F16)),
        "simdgroup_bfloat8x8" => return Some(Ty::Matrix(Scalar::BF16)),
        "memory_order" | "mem_flags" | "thread_scope" => return Some(Ty::UINT),
        _ => {}
    }
    let (base, packed) = match name.strip_prefix("packed_") {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    let n = base.bytes().last().filter(|b| (b'2'..=b'4').contains(b))? - b'0';
    let base = &base[..base.len() - 1];
    let plain = !base.ends_with("_t") && !base.ends_with(|c: char| c.is_ascii_digit());
    let (_, s) = SCALAR_NAMES.iter().find(|(name, _)| *name == base).filter(|_| plain)?;
    Some(if packed { Ty::Packed(*s, n) } else { Ty::Vector(*s, n) })
}

/// Whether this names a built-in type or type template.
pub fn is_builtin_type(name: &str) -> bool {
    name == "double" || builtin_type(name).is_some() || is_builtin_template(name)
}

/// Whether this names a built-in type template.
pub fn is_builtin_template(name: &str) -> bool {
    matches!(
        name,
        "vec" | "packed_vec" | "simdgroup_matrix" | "atomic" | "array" | "_atomic" | "numeric_limits"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_vectors_are_known_and_others_are_not() {
        assert_eq!(builtin_type("float4"), Some(Ty::Vector(Scalar::F32, 4)));
        assert_eq!(builtin_type("packed_uchar3"), Some(Ty::Packed(Scalar::U8, 3)));
        assert_eq!(builtin_type("bfloat2"), Some(Ty::Vector(Scalar::BF16, 2)));
        for name in ["float5", "int8_t2", "float16", "uint32", "floats2", "2"] {
            assert!(!matches!(builtin_type(name), Some(Ty::Vector(..))), "{name}");
        }
    }
}
