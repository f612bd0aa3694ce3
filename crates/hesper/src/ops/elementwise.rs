//! Element-wise ops: one table.
//!
//! An entry gives an op's name, its documentation, the rule for its types and its expression in the
//! kernel language. From it follow the Rust method, the code for every device, and the fusion of
//! chains of such ops. Adding an op is adding an entry.

use hesper_kernel::ir::{BinaryOp, Builder, CmpOp, TestOp, UnaryOp, ValueId};
use smallvec::{SmallVec, smallvec};

use super::{Kind, Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::scalar::Operand;
use crate::shape::broadcast;

/// How an op's types follow from its inputs'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Types {
    /// Inputs are promoted to one type, which is the result's.
    Same,
    /// The same, but integers become float32.
    Inexact,
    /// Inputs are promoted to one type; the result is bool.
    Compare,
    /// Inputs become bool, and so does the result.
    Logical,
    /// Inputs are promoted to one type, which must be an integer or bool.
    Integral,
}

/// An element-wise op.
pub struct Elementwise {
    /// Its name.
    pub name: &'static str,
    /// How many inputs it has.
    pub arity: usize,
    /// How its types follow.
    pub types: Types,
    /// Its expression.
    pub(crate) emit: fn(&mut Builder, &[ValueId]) -> ValueId,
}

impl std::fmt::Debug for Elementwise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Op for Elementwise {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Elementwise(self)
    }

    fn lower(&self, _: &mut Lowering<'_>) -> Result<Data> {
        Err(Error::value(self.name, "element-wise ops are lowered by the planner"))
    }
}

impl Elementwise {
    /// The type that inputs are converted to, and the type of the result.
    pub(crate) fn types_for(&self, inputs: &[Dtype]) -> Result<(Dtype, Dtype)> {
        let promoted = inputs.iter().copied().reduce(Dtype::promote).unwrap_or(Dtype::Float32);
        let refuse =
            |what: &str| Err(Error::Type { op: self.name.into(), what: what.into(), dtype: promoted });
        if promoted == Dtype::Complex64 {
            return refuse("not defined yet for an array");
        }
        Ok(match self.types {
            Types::Same => (promoted, promoted),
            Types::Inexact => (promoted.to_inexact(), promoted.to_inexact()),
            Types::Compare => (promoted, Dtype::Bool),
            Types::Logical => (Dtype::Bool, Dtype::Bool),
            Types::Integral if promoted.is(Category::Inexact) => {
                return refuse("takes integers, and was given an array");
            }
            Types::Integral => (promoted, promoted),
        })
    }

    fn apply(&'static self, inputs: SmallVec<[Array; 3]>) -> Result<Array> {
        let types: SmallVec<[Dtype; 3]> = inputs.iter().map(Array::dtype).collect();
        let (compute, result) = self.types_for(&types)?;
        let mut shape = inputs[0].0.shape.clone();
        for other in &inputs[1..] {
            shape = broadcast(self.name, &shape, other.shape())?;
        }
        let inputs = inputs.iter().map(|input| input.astype(compute)).collect::<Result<_>>()?;
        Array::lazy(shape, result, OpRef::Static(self), inputs)
    }
}

static ASTYPE: Elementwise =
    Elementwise { name: "astype", arity: 1, types: Types::Same, emit: |_, inputs| inputs[0] };

impl Array {
    /// The array with its elements converted to another type.
    pub fn astype(&self, dtype: Dtype) -> Result<Array> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        if self.dtype() == Dtype::Complex64 || dtype == Dtype::Complex64 {
            let what = format!("conversion to {dtype} is not defined yet for an array");
            return Err(Error::Type { op: "astype".into(), what, dtype: self.dtype() });
        }
        Array::lazy(self.0.shape.clone(), dtype, OpRef::Static(&ASTYPE), smallvec![self.clone()])
    }
}

/// Defines the table, and a method of [`Array`] for each entry.
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $method:ident($($other:ident),*): $types:ident
        = |$b:ident, $($x:ident),+| $body:expr;)*) => {
        impl Array {
            $($(#[doc = $doc])+
            pub fn $method(&self $(, $other: impl Into<Operand>)*) -> Result<Array> {
                static OP: Elementwise = Elementwise {
                    name: stringify!($method),
                    arity: table!(@count $($x)+),
                    types: Types::$types,
                    emit: |$b, inputs| {
                        let [$($x),+] = *inputs else { return inputs[0] };
                        $body
                    },
                };
                OP.apply(smallvec![self.clone() $(, $other.into().beside(self)?)*])
            })*
        }

        /// The names of all element-wise ops and how many inputs each has.
        pub const NAMES: &[(&str, usize)] = &[$((stringify!($method), table!(@count $($x)+))),*];
    };
    (@count $($x:ident)+) => { [$(stringify!($x)),+].len() };
}

/// Bools add as "or" and multiply as "and"; everything else as numbers.
fn arithmetic(b: &mut Builder, op: BinaryOp, on_bool: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
    let is_bool = b.ty(x).scalar() == Some(hesper_kernel::ir::Scalar::Bool);
    b.binary(if is_bool { on_bool } else { op }, x, y)
}

table! {
    /// The sum, element by element.
    add(other): Same = |b, x, y| arithmetic(b, BinaryOp::Add, BinaryOp::Or, x, y);
    /// The difference, element by element.
    subtract(other): Same = |b, x, y| arithmetic(b, BinaryOp::Sub, BinaryOp::Xor, x, y);
    /// The product, element by element.
    multiply(other): Same = |b, x, y| arithmetic(b, BinaryOp::Mul, BinaryOp::And, x, y);
    /// The quotient, element by element; of integers as float32.
    divide(other): Inexact = |b, x, y| b.div(x, y);
    /// The larger of two, element by element; NaN if either is.
    maximum(other): Same = |b, x, y| arithmetic(b, BinaryOp::MaxNan, BinaryOp::Or, x, y);
    /// The smaller of two, element by element; NaN if either is.
    minimum(other): Same = |b, x, y| arithmetic(b, BinaryOp::MinNan, BinaryOp::And, x, y);
    /// The power, element by element.
    power(other): Same = |b, x, y| b.binary(BinaryOp::Pow, x, y);
    /// Whether elements are equal.
    equal(other): Compare = |b, x, y| b.compare(CmpOp::Eq, x, y);
    /// Whether elements differ.
    not_equal(other): Compare = |b, x, y| b.compare(CmpOp::Ne, x, y);
    /// Whether elements are less.
    less(other): Compare = |b, x, y| b.compare(CmpOp::Lt, x, y);
    /// Whether elements are less or equal.
    less_equal(other): Compare = |b, x, y| b.compare(CmpOp::Le, x, y);
    /// Whether elements are greater.
    greater(other): Compare = |b, x, y| b.compare(CmpOp::Gt, x, y);
    /// Whether elements are greater or equal.
    greater_equal(other): Compare = |b, x, y| b.compare(CmpOp::Ge, x, y);
    /// Logical and.
    logical_and(other): Logical = |b, x, y| b.binary(BinaryOp::And, x, y);
    /// Logical or.
    logical_or(other): Logical = |b, x, y| b.binary(BinaryOp::Or, x, y);
    /// Logical not.
    logical_not(): Logical = |b, x| b.unary(UnaryOp::Not, x);
    /// Bitwise and.
    bitwise_and(other): Integral = |b, x, y| b.binary(BinaryOp::And, x, y);
    /// Bitwise or.
    bitwise_or(other): Integral = |b, x, y| b.binary(BinaryOp::Or, x, y);
    /// Bitwise exclusive or.
    bitwise_xor(other): Integral = |b, x, y| b.binary(BinaryOp::Xor, x, y);
    /// Bits shifted to the left.
    left_shift(other): Integral = |b, x, y| b.binary(BinaryOp::Shl, x, y);
    /// Bits shifted to the right.
    right_shift(other): Integral = |b, x, y| b.binary(BinaryOp::Shr, x, y);
    /// The negative.
    negative(): Same = |b, x| b.unary(UnaryOp::Neg, x);
    /// The absolute value.
    abs(): Same = |b, x| b.unary(UnaryOp::Abs, x);
    /// -1, 0 or 1.
    sign(): Same = |b, x| b.unary(UnaryOp::Sign, x);
    /// The square.
    square(): Same = |b, x| b.mul(x, x);
    /// The exponential.
    exp(): Inexact = |b, x| b.unary(UnaryOp::Exp, x);
    /// The exponential, less one, exact near zero.
    expm1(): Inexact = |b, x| b.unary(UnaryOp::Expm1, x);
    /// The natural logarithm.
    log(): Inexact = |b, x| b.unary(UnaryOp::Log, x);
    /// The logarithm to base 2.
    log2(): Inexact = |b, x| b.unary(UnaryOp::Log2, x);
    /// The logarithm to base 10.
    log10(): Inexact = |b, x| b.unary(UnaryOp::Log10, x);
    /// The natural logarithm of one more, exact near zero.
    log1p(): Inexact = |b, x| b.unary(UnaryOp::Log1p, x);
    /// The sine.
    sin(): Inexact = |b, x| b.unary(UnaryOp::Sin, x);
    /// The cosine.
    cos(): Inexact = |b, x| b.unary(UnaryOp::Cos, x);
    /// The tangent.
    tan(): Inexact = |b, x| b.unary(UnaryOp::Tan, x);
    /// The inverse sine.
    arcsin(): Inexact = |b, x| b.unary(UnaryOp::Asin, x);
    /// The inverse cosine.
    arccos(): Inexact = |b, x| b.unary(UnaryOp::Acos, x);
    /// The inverse tangent.
    arctan(): Inexact = |b, x| b.unary(UnaryOp::Atan, x);
    /// The hyperbolic sine.
    sinh(): Inexact = |b, x| b.unary(UnaryOp::Sinh, x);
    /// The hyperbolic cosine.
    cosh(): Inexact = |b, x| b.unary(UnaryOp::Cosh, x);
    /// The hyperbolic tangent.
    tanh(): Inexact = |b, x| b.unary(UnaryOp::Tanh, x);
    /// The error function.
    erf(): Inexact = |b, x| b.unary(UnaryOp::Erf, x);
    /// The inverse of the error function.
    erfinv(): Inexact = |b, x| b.unary(UnaryOp::ErfInv, x);
    /// The logistic function.
    sigmoid(): Inexact = |b, x| b.unary(UnaryOp::Sigmoid, x);
    /// The square root.
    sqrt(): Inexact = |b, x| b.unary(UnaryOp::Sqrt, x);
    /// One over the square root.
    rsqrt(): Inexact = |b, x| b.unary(UnaryOp::Rsqrt, x);
    /// Rounded down.
    floor(): Same = |b, x| b.unary(UnaryOp::Floor, x);
    /// Rounded up.
    ceil(): Same = |b, x| b.unary(UnaryOp::Ceil, x);
    /// Whether elements are NaN.
    isnan(): Compare = |b, x| b.test(TestOp::IsNan, x);
    /// Whether elements are infinite.
    isinf(): Compare = |b, x| b.test(TestOp::IsInf, x);
    /// Whether elements are finite.
    isfinite(): Compare = |b, x| b.test(TestOp::IsFinite, x);
}

/// `if_true` where `condition` holds, else `if_false`, element by element.
pub fn select(condition: &Array, if_true: &Array, if_false: &Array) -> Result<Array> {
    static OP: Elementwise = Elementwise {
        name: "where",
        arity: 3,
        types: Types::Same,
        emit: |b, inputs| b.select(inputs[0], inputs[1], inputs[2]),
    };
    let condition = condition.astype(Dtype::Bool)?;
    let (_, dtype) = OP.types_for(&[if_true.dtype(), if_false.dtype()])?;
    let shape = broadcast("where", condition.shape(), if_true.shape())?;
    let shape = broadcast("where", &shape, if_false.shape())?;
    let inputs = smallvec![condition, if_true.astype(dtype)?, if_false.astype(dtype)?];
    Array::lazy(shape, dtype, OpRef::Static(&OP), inputs)
}
