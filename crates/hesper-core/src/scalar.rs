//! Operands: arrays, and plain numbers that take the type of the array beside them.

use half::{bf16, f16};

use crate::Dtype;
use crate::dtype::Category;
use crate::error::Result;
use crate::graph::Array;

/// The second operand of an op: an array, or a number whose type gives way to the array's.
#[derive(Debug, Clone)]
pub enum Operand {
    /// An array.
    Array(Array),
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A complex number: real and imaginary part.
    Complex([f64; 2]),
}

impl Operand {
    /// The operand as an array for an op with `other`.
    pub(crate) fn beside(self, other: &Array) -> Result<Array> {
        let theirs = other.dtype();
        match self {
            Operand::Array(array) => Ok(array),
            Operand::Bool(value) => Array::scalar(f64::from(u8::from(value)), theirs),
            Operand::Int(value) if theirs == Dtype::Bool => Array::integer(value, Dtype::Int32),
            Operand::Int(value) => Array::integer(value, theirs),
            Operand::Float(value) => {
                let dtype = if theirs.is(Category::Inexact) { theirs } else { Dtype::Float32 };
                Array::scalar(value, dtype)
            }
            Operand::Complex(value) => Array::complex(value, theirs.complex()),
        }
    }

    /// The operand as an array where no other is beside it. An integer that int32 cannot hold is an int64.
    pub(crate) fn alone(self) -> Result<Array> {
        match self {
            Operand::Array(array) => Ok(array),
            Operand::Bool(value) => Array::scalar(f64::from(u8::from(value)), Dtype::Bool),
            Operand::Int(value) if i32::try_from(value).is_err() => Array::integer(value, Dtype::Int64),
            Operand::Int(value) => Array::integer(value, Dtype::Int32),
            Operand::Float(value) => Array::scalar(value, Dtype::Float32),
            Operand::Complex(value) => Array::complex(value, Dtype::Complex64),
        }
    }

    /// Two operands as arrays: a number takes the type of an array on the other side, and its own type beside
    /// another number.
    pub(crate) fn pair(left: Operand, right: Operand) -> Result<(Array, Array)> {
        match (left, right) {
            (Operand::Array(left), right) => right.beside(&left).map(|right| (left, right)),
            (left, Operand::Array(right)) => left.beside(&right).map(|left| (left, right)),
            (left, right) => Ok((left.alone()?, right.alone()?)),
        }
    }
}

impl From<[f32; 2]> for Operand {
    fn from(value: [f32; 2]) -> Self {
        Operand::Complex(value.map(f64::from))
    }
}

impl From<[f64; 2]> for Operand {
    fn from(value: [f64; 2]) -> Self {
        Operand::Complex(value)
    }
}

impl From<&Array> for Operand {
    fn from(array: &Array) -> Self {
        Operand::Array(array.clone())
    }
}

impl From<Array> for Operand {
    fn from(array: Array) -> Self {
        Operand::Array(array)
    }
}

impl From<bool> for Operand {
    fn from(value: bool) -> Self {
        Operand::Bool(value)
    }
}

macro_rules! numbers {
    ($variant:ident($wide:ty): $($narrow:ty),*) => {
        $(impl From<$narrow> for Operand {
            fn from(value: $narrow) -> Self {
                Operand::$variant(value as $wide)
            }
        })*
    };
}

numbers!(Int(i64): i8, i16, i32, i64, isize, u8, u16, u32, usize);
numbers!(Float(f64): f32, f64);

impl Array {
    /// An array of no axes that holds a number, converted to a type.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// assert_eq!(Array::scalar(2.5, Dtype::Float16)?.to_string(), "array(2.5, dtype=float16)");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn scalar(value: f64, dtype: Dtype) -> Result<Array> {
        match dtype {
            Dtype::Bool => Array::known(&[u8::from(value != 0.0)], dtype),
            Dtype::Float16 => Array::known(&f16::from_f64(value).to_ne_bytes(), dtype),
            Dtype::Bfloat16 => Array::known(&bf16::from_f64(value).to_ne_bytes(), dtype),
            Dtype::Float32 => Array::known(&(value as f32).to_ne_bytes(), dtype),
            Dtype::Float64 => Array::known(&value.to_ne_bytes(), dtype),
            Dtype::Complex64 | Dtype::Complex128 => Array::complex([value, 0.0], dtype),
            _ => Array::integer(value as i64, dtype),
        }
    }

    /// An array of no axes that holds a complex number; other types than complex ones keep the real part.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let i = Array::complex([0.0, 1.0], Dtype::Complex64)?;
    /// assert_eq!(i.square()?.to_string(), "array(-1+0j, dtype=complex64)");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn complex(value: [f64; 2], dtype: Dtype) -> Result<Array> {
        match dtype {
            Dtype::Complex64 => Array::known(bytemuck::bytes_of(&value.map(|part| part as f32)), dtype),
            Dtype::Complex128 => Array::try_from_slice(&[value], &[]),
            _ => Array::scalar(value[0], dtype),
        }
    }

    /// An array of no axes that holds an integer, converted to a type.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let large = Array::integer(i64::MAX, Dtype::Int64)?; // a float would round it
    /// assert_eq!(large.item::<i64>()?, i64::MAX);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn integer(value: i64, dtype: Dtype) -> Result<Array> {
        match dtype {
            Dtype::Uint8 | Dtype::Int8 => Array::known(&[value as u8], dtype),
            Dtype::Uint16 | Dtype::Int16 => Array::known(&(value as u16).to_ne_bytes(), dtype),
            Dtype::Uint32 | Dtype::Int32 => Array::known(&(value as u32).to_ne_bytes(), dtype),
            Dtype::Uint64 | Dtype::Int64 => Array::known(&value.to_ne_bytes(), dtype),
            _ => Array::scalar(value as f64, dtype),
        }
    }
}
