//! Element types and how they combine.

use std::fmt;

use hesper_kernel::ir::Scalar as IrScalar;

/// The type of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// True or false, one byte.
    Bool,
    /// Unsigned 8-bit integer.
    Uint8,
    /// Unsigned 16-bit integer.
    Uint16,
    /// Unsigned 32-bit integer.
    Uint32,
    /// Unsigned 64-bit integer.
    Uint64,
    /// Signed 8-bit integer.
    Int8,
    /// Signed 16-bit integer.
    Int16,
    /// Signed 32-bit integer.
    Int32,
    /// Signed 64-bit integer.
    Int64,
    /// IEEE half precision.
    Float16,
    /// The upper half of a single-precision number.
    Bfloat16,
    /// IEEE single precision.
    Float32,
    /// IEEE double precision.
    Float64,
    /// Two single-precision numbers.
    Complex64,
    /// Two double-precision numbers.
    Complex128,
}

/// Kinds of types, from general to special; see [`Dtype::is`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Category {
    /// Every type.
    Generic,
    /// All but bool.
    Number,
    /// Integers.
    Integer,
    /// Unsigned integers.
    Unsigned,
    /// Signed integers.
    Signed,
    /// Floating-point and complex numbers.
    Inexact,
    /// Floating-point numbers.
    Floating,
    /// Complex numbers.
    Complex,
}

impl Dtype {
    /// All types.
    pub const ALL: [Dtype; 15] = [
        Dtype::Bool,
        Dtype::Uint8,
        Dtype::Uint16,
        Dtype::Uint32,
        Dtype::Uint64,
        Dtype::Int8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::Float16,
        Dtype::Bfloat16,
        Dtype::Float32,
        Dtype::Float64,
        Dtype::Complex64,
        Dtype::Complex128,
    ];

    /// Bytes of one element.
    ///
    /// ```
    /// use hesper::Dtype;
    /// assert_eq!((Dtype::Bfloat16.size(), Dtype::Complex64.size()), (2, 8));
    /// ```
    pub fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::Uint8 | Dtype::Int8 => 1,
            Dtype::Uint16 | Dtype::Int16 | Dtype::Float16 | Dtype::Bfloat16 => 2,
            Dtype::Uint32 | Dtype::Int32 | Dtype::Float32 => 4,
            Dtype::Uint64 | Dtype::Int64 | Dtype::Float64 | Dtype::Complex64 => 8,
            Dtype::Complex128 => 16,
        }
    }

    /// The name, as in `float32`.
    ///
    /// ```
    /// use hesper::Dtype;
    /// assert_eq!(Dtype::Bfloat16.name(), "bfloat16");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::Uint8 => "uint8",
            Dtype::Uint16 => "uint16",
            Dtype::Uint32 => "uint32",
            Dtype::Uint64 => "uint64",
            Dtype::Int8 => "int8",
            Dtype::Int16 => "int16",
            Dtype::Int32 => "int32",
            Dtype::Int64 => "int64",
            Dtype::Float16 => "float16",
            Dtype::Bfloat16 => "bfloat16",
            Dtype::Float32 => "float32",
            Dtype::Float64 => "float64",
            Dtype::Complex64 => "complex64",
            Dtype::Complex128 => "complex128",
        }
    }

    /// Whether the type is of a kind.
    ///
    /// ```
    /// use hesper::{Category, Dtype};
    /// assert!(Dtype::Uint8.is(Category::Integer) && !Dtype::Uint8.is(Category::Inexact));
    /// ```
    pub fn is(self, category: Category) -> bool {
        let unsigned = matches!(self, Dtype::Uint8 | Dtype::Uint16 | Dtype::Uint32 | Dtype::Uint64);
        let signed = matches!(self, Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Int64);
        let floating = matches!(self, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 | Dtype::Float64);
        let complex = matches!(self, Dtype::Complex64 | Dtype::Complex128);
        match category {
            Category::Generic => true,
            Category::Number => self != Dtype::Bool,
            Category::Integer => unsigned || signed,
            Category::Unsigned => unsigned,
            Category::Signed => signed,
            Category::Inexact => floating || complex,
            Category::Floating => floating,
            Category::Complex => complex,
        }
    }

    /// The type that holds values of both: what an op of two arrays computes in.
    ///
    /// ```
    /// use hesper::Dtype;
    /// assert_eq!(Dtype::Int8.promote(Dtype::Uint8), Dtype::Int16);
    /// assert_eq!(Dtype::Float16.promote(Dtype::Bfloat16), Dtype::Float32);
    /// assert_eq!(Dtype::Int64.promote(Dtype::Float16), Dtype::Float16);
    /// ```
    pub fn promote(self, other: Dtype) -> Dtype {
        use Dtype::*;
        let (low, high) = if self <= other { (self, other) } else { (other, self) };
        match (low, high) {
            (low, high) if low == high => low,
            (Bool, other) => other,
            (Float16, Bfloat16) => Float32,
            (Float64, Complex64) => Complex128,
            (_, high) if high.is(Category::Inexact) => high,
            (Uint64, signed) if signed.is(Category::Signed) => Float32,
            (low, high) if low.is(Category::Unsigned) && high.is(Category::Signed) => {
                // The signed type must be wider than the unsigned one.
                match low.size().max(high.size() / 2) {
                    1 => {
                        if high == Int8 {
                            Int16
                        } else {
                            high
                        }
                    }
                    2 => {
                        if high.size() > 2 {
                            high
                        } else {
                            Int32
                        }
                    }
                    _ => Int64,
                }
            }
            (_, high) => high,
        }
    }

    /// The floating-point type that functions such as `exp` compute in.
    ///
    /// ```
    /// use hesper::Dtype;
    /// assert_eq!(Dtype::Int32.to_inexact(), Dtype::Float32);
    /// assert_eq!(Dtype::Float16.to_inexact(), Dtype::Float16);
    /// ```
    pub fn to_inexact(self) -> Dtype {
        if self.is(Category::Inexact) { self } else { Dtype::Float32 }
    }

    /// The type of the parts of a complex number; any other type is its own.
    ///
    /// ```
    /// use hesper::Dtype;
    /// assert_eq!((Dtype::Complex64.real(), Dtype::Int8.real()), (Dtype::Float32, Dtype::Int8));
    /// ```
    pub fn real(self) -> Dtype {
        match self {
            Dtype::Complex64 => Dtype::Float32,
            Dtype::Complex128 => Dtype::Float64,
            other => other,
        }
    }

    /// The complex type for numbers of a type: of double precision for those that have it.
    ///
    /// ```
    /// use hesper::Dtype;
    /// assert_eq!(Dtype::Float64.complex(), Dtype::Complex128);
    /// ```
    pub fn complex(self) -> Dtype {
        if self.real() == Dtype::Float64 { Dtype::Complex128 } else { Dtype::Complex64 }
    }

    /// The type in the kernel language; complex numbers have none.
    pub(crate) fn scalar(self) -> Option<IrScalar> {
        Some(match self {
            Dtype::Bool => IrScalar::Bool,
            Dtype::Uint8 => IrScalar::U8,
            Dtype::Uint16 => IrScalar::U16,
            Dtype::Uint32 => IrScalar::U32,
            Dtype::Uint64 => IrScalar::U64,
            Dtype::Int8 => IrScalar::I8,
            Dtype::Int16 => IrScalar::I16,
            Dtype::Int32 => IrScalar::I32,
            Dtype::Int64 => IrScalar::I64,
            Dtype::Float16 => IrScalar::F16,
            Dtype::Bfloat16 => IrScalar::BF16,
            Dtype::Float32 => IrScalar::F32,
            Dtype::Float64 => IrScalar::F64,
            Dtype::Complex64 | Dtype::Complex128 => return None,
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is an array's element type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of arrays",
    note = "arrays of bools are read by `to_bool` and `to_bools`; other types need `astype` first"
)]
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed + fmt::Debug {
    /// The element type.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}

elements! {
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    half::f16 => Float16, half::bf16 => Bfloat16, f32 => Float32, f64 => Float64,
    [f32; 2] => Complex64, [f64; 2] => Complex128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_symmetric_idempotent_and_never_loses_a_kind() {
        for a in Dtype::ALL {
            assert_eq!(a.promote(a), a);
            for b in Dtype::ALL {
                let both = a.promote(b);
                assert_eq!(both, b.promote(a), "{a} and {b}");
                assert!(!a.is(Category::Inexact) || both.is(Category::Inexact), "{a} and {b}: {both}");
            }
        }
    }

    #[test]
    fn integers_of_mixed_sign_widen() {
        use Dtype::*;
        for (a, b, both) in [
            (Uint8, Int8, Int16),
            (Uint8, Int16, Int16),
            (Uint16, Int8, Int32),
            (Uint16, Int16, Int32),
            (Uint16, Int64, Int64),
            (Uint32, Int8, Int64),
            (Uint32, Int32, Int64),
            (Uint64, Int8, Float32),
            (Uint64, Int64, Float32),
        ] {
            assert_eq!(a.promote(b), both, "{a} and {b}");
        }
    }
}
