//! Element-wise ops, as the planner sees them. [`ops::elementwise`](crate::ops::elementwise) explains them.

use hesper_kernel::ir::{Builder, ValueId};

use super::Array;
use crate::dtype::{Category, Dtype};
use crate::error::{Error, Result};

/// How an op's types follow from its inputs'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Types {
    /// Inputs are promoted to one type, which is the result's.
    Same,
    /// The same, but complex numbers are refused.
    Real,
    /// The same, but bools are refused.
    Number,
    /// The same, but complex numbers give the type of their parts.
    Part,
    /// Inputs are promoted to one type, integers to float32; the result has that type.
    Inexact,
    /// The same, but complex numbers are refused.
    RealInexact,
    /// Inputs are promoted to one type; the result is bool.
    Compare,
    /// Inputs become bool, and so does the result.
    Logical,
    /// Inputs are promoted to one type, which must be an integer or bool.
    Integral,
    /// The same, but bools become uint8.
    Shift,
}

/// An element-wise op.
pub struct Elementwise {
    /// Its name.
    pub name: &'static str,
    /// How its types follow.
    pub types: Types,
    /// Whether its expression gets the element's place (int64, row by row) after the inputs.
    pub indexed: bool,
    /// Its expression.
    pub emit: fn(&mut Builder, &[ValueId]) -> ValueId,
    /// How it changes with an input; without one it is flat wherever it is smooth.
    pub derivative: Option<Derivative>,
}

impl std::fmt::Debug for Elementwise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Two entries may have one name, and two names one compiled function.
impl PartialEq for Elementwise {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && std::ptr::fn_addr_eq(self.emit, other.emit)
    }
}

impl Eq for Elementwise {}

impl std::hash::Hash for Elementwise {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_usize(self.emit as usize);
    }
}

/// How an output changes with an input: of the inputs, the output and the input's number.
pub type Derivative = fn(&[Array], &Array, usize) -> Result<Factor>;

/// What a change of an input is multiplied by.
pub enum Factor {
    /// Nothing comes of it.
    Zero,
    /// It is the output's.
    One,
    /// It is the output's, negated.
    MinusOne,
    /// It is multiplied.
    Times(Array),
    /// It counts where these bools are true.
    If(Array),
    /// It counts where these bools are false.
    Unless(Array),
    /// The real part counts of the product with the conjugate of this.
    Part(Array),
    /// Its conjugate is the output's.
    Conjugate,
}

impl Elementwise {
    /// An op of elements.
    pub const fn new(
        name: &'static str,
        types: Types,
        emit: fn(&mut Builder, &[ValueId]) -> ValueId,
    ) -> Self {
        Elementwise { name, types, indexed: false, emit, derivative: None }
    }

    /// The same op, which changes with its inputs.
    pub const fn with_derivative(mut self, derivative: Derivative) -> Self {
        self.derivative = Some(derivative);
        self
    }

    /// An op of elements and of their place.
    pub const fn indexed(name: &'static str, emit: fn(&mut Builder, &[ValueId]) -> ValueId) -> Self {
        Elementwise { name, types: Types::Same, indexed: true, emit, derivative: None }
    }

    /// The type that inputs are converted to, and the type of the result.
    pub fn types_for(&self, inputs: &[Dtype]) -> Result<(Dtype, Dtype)> {
        let promoted = inputs.iter().copied().reduce(Dtype::promote).unwrap_or(Dtype::Float32);
        let refuse =
            |what: &str| Err(Error::Type { op: self.name.into(), what: what.into(), dtype: promoted });
        let complex = promoted.is(Category::Complex);
        Ok(match self.types {
            Types::Real | Types::RealInexact if complex => return refuse("not defined for an array"),
            Types::Same | Types::Real => (promoted, promoted),
            Types::Number if promoted == Dtype::Bool => return refuse("use logical_not for an array"),
            Types::Number => (promoted, promoted),
            Types::Part => (promoted, promoted.real()),
            Types::Inexact | Types::RealInexact => (promoted.to_inexact(), promoted.to_inexact()),
            Types::Compare => (promoted, Dtype::Bool),
            Types::Logical => (Dtype::Bool, Dtype::Bool),
            Types::Integral | Types::Shift if promoted.is(Category::Inexact) => {
                return refuse("takes integers, and was given an array");
            }
            Types::Shift if promoted == Dtype::Bool => (Dtype::Uint8, Dtype::Uint8),
            Types::Integral | Types::Shift => (promoted, promoted),
        })
    }
}
