//! Element-wise ops: what they are, and what an entry of their tables means.
//!
//! An op is one entry of one table: [`arithmetic`](super::arithmetic), [`functions`](super::functions) or
//! [`logic`](super::logic). From it follow the Rust method, the Python function and method, the code for
//! every device, the fusion of chains of such ops, all transformations, the reader for exported functions,
//! and test cases on every device.
//!
//! ```text
//! /// The complex conjugate; other numbers as they are.       documentation, in Rust and in Python
//! conjugate | conj(): Same = |b, x| match number(b, x) {      names (operands): types = expression in the IR
//!     Number::Complex => complex::conjugate(b, x),
//!     _ => x,
//! }
//!     => |_, _, _| Ok(Conjugate);                             the derivative; none: flat wherever it is smooth
//!     rust "array![1.0].conjugate()" => "array([1], dtype=float32)";
//!     python "mx.array([1 + 2j])" => "array([1-2j], dtype=complex64)", method conj;
//!     cases [Real] [Complex];                                 test cases: the domain of each operand
//! ```
//!
//! * The operands after the first stand in parentheses: `negative()`, `add(other)`.
//! * [`Types`] lists the rules for types. `composed` in its place defines a function of arrays, made of other
//!   ops: `degrees(): composed = |x| x.multiply(57.3)`. It has no kernel and no reader of its own.
//! * [`Derivative`] and [`Factor`] explain the derivative.
//! * `rust` is the example of the method's documentation, and what its result is printed as.
//! * `python` makes it a Python function under all its names, with an example; `method` a method of Python's
//!   array too. An entry without it is for Rust only.
//! * `cases` lists [`Domain`](super::domain::Domain)s. Each list in brackets is a case: its values and
//!   derivatives are checked on every device, under every transformation.
//!
//! In an expression a complex number is a vector of two floats, and its operations are those of
//! [`complex`](super::complex); every other type is a scalar.

use smallvec::{SmallVec, smallvec};

use super::{Op, OpKind, OpRef};
use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, Forward, Tangents, unbroadcast};
use crate::graph::{Array, Data, Export, Lowering, Record, Replay};
use crate::ops::logic::select;
use crate::ops::readers::reader;
use crate::shape::broadcast;

pub use crate::graph::{Derivative, Elementwise, Factor, Types};

impl Op for Elementwise {
    fn name(&self) -> &'static str {
        self.name
    }

    fn export(&self) -> Export {
        Record::new(self.name).into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::Elementwise(self)
    }

    fn lower(&self, _: &mut Lowering<'_>) -> Result<Data> {
        Err(Error::value(self.name, "element-wise ops are lowered by the planner"))
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let Some(derivative) = self.derivative else { return rule.each(|_| Ok(None)) };
        let cotangent = rule.cotangent()?;
        rule.each(|at| {
            let input = &rule.inputs[at];
            let whole = derivative(rule.inputs, rule.output, at)?.pull(&cotangent)?;
            whole.map(|whole| unbroadcast(&whole, input.shape())).transpose()
        })
    }

    fn varies_with_bools(&self) -> bool {
        self.derivative.is_some()
    }

    fn jvp(&self, rule: &Forward<'_>) -> Result<Tangents> {
        let Some(derivative) = self.derivative else { return Ok(smallvec![None]) };
        let mut sum: Option<Array> = None;
        for (at, tangent) in rule.tangents.iter().enumerate() {
            let Some(tangent) = tangent else { continue };
            let Some(part) = derivative(&rule.call.inputs, rule.output, at)?.push(tangent)? else { continue };
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        let output = rule.output;
        let fit = |sum: Array| {
            let sum = sum.broadcast_like(output)?;
            // Tangents of integers may be fractions, and stay fractions unless the function converts them.
            let fraction = sum.dtype().is(Category::Inexact) && !output.dtype().is(Category::Inexact);
            if fraction && self.name != ASTYPE.name { Ok(sum) } else { sum.astype(output.dtype()) }
        };
        Ok(smallvec![sum.map(fit).transpose()?])
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if self.indexed {
            return rule.one_by_one();
        }
        let rank = rule.output.ndim();
        let inputs = (0..rule.inputs.len()).map(|at| rule.aligned(at, rank)).collect::<Result<_>>()?;
        rule.apply(rule.op.clone(), inputs)
    }
}

impl Factor {
    /// The input's cotangent from the output's.
    fn pull(self, cotangent: &Array) -> Result<Option<Array>> {
        Ok(Some(match self {
            Factor::Zero => return Ok(None),
            Factor::One => cotangent.clone(),
            Factor::MinusOne => cotangent.negative()?,
            Factor::Times(by) if by.dtype().is(Category::Complex) => cotangent.multiply(by.conjugate()?)?,
            Factor::Times(by) | Factor::Part(by) => cotangent.multiply(by)?,
            Factor::If(place) => select(&place, cotangent, &Array::scalar(0.0, cotangent.dtype())?)?,
            Factor::Unless(place) => select(&place, &Array::scalar(0.0, cotangent.dtype())?, cotangent)?,
            Factor::Conjugate => cotangent.conjugate()?,
        }))
    }

    /// The output's tangent from the input's.
    fn push(self, tangent: &Array) -> Result<Option<Array>> {
        match self {
            Factor::Times(by) => Ok(Some(tangent.multiply(by)?)),
            Factor::Part(by) => Ok(Some(tangent.multiply(by.conjugate()?)?.real()?)),
            // The others are the same in both directions.
            other => other.pull(tangent),
        }
    }
}

impl Elementwise {
    pub fn apply(&'static self, inputs: SmallVec<[Array; 3]>) -> Result<Array> {
        let types: SmallVec<[Dtype; 3]> = inputs.iter().map(Array::dtype).collect();
        let (compute, result) = self.types_for(&types)?;
        let mut shape = inputs[0].0.shape.clone();
        for other in inputs[1..].iter().filter(|other| other.0.shape != inputs[0].0.shape) {
            shape = broadcast(self.name, &shape, other.shape())?;
        }
        let mut inputs = inputs;
        for input in inputs.iter_mut().filter(|input| input.dtype() != compute) {
            *input = input.astype(compute)?;
        }
        Array::lazy(shape, result, OpRef::Static(self), inputs)
    }

    /// An array of a shape and type that the op makes of inputs as they are.
    pub fn generate(
        &'static self,
        shape: &[usize],
        dtype: Dtype,
        inputs: SmallVec<[Array; 3]>,
    ) -> Result<Array> {
        Array::lazy(shape.into(), dtype, OpRef::Static(self), inputs)
    }
}

static ASTYPE: Elementwise =
    Elementwise::new("astype", Types::Same, |_, inputs| inputs[0]).with_derivative(|_, _, _| Ok(Factor::One));

impl Array {
    /// The array with its elements converted to another type. Complex numbers lose their imaginary part,
    /// except that as bools they are true unless both parts are zero.
    ///
    /// ```
    /// use hesper::{Dtype, array};
    /// let x = array![1.9, -1.9];
    /// assert_eq!(x.astype(Dtype::Int32)?.to_vec::<i32>()?, [1, -1]);
    /// assert_eq!(x.astype(Dtype::Bool)?.to_bools()?, [true, true]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn astype(&self, dtype: Dtype) -> Result<Array> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        Array::lazy(self.0.shape.clone(), dtype, OpRef::Static(&ASTYPE), smallvec![self.clone()])
    }
}

/// The example of a table's entry in the documentation of its method.
macro_rules! example {
    ($example:literal, $shown:literal) => {
        concat!(
            "\n```\n# use hesper::{Array, Dtype};\nuse hesper::array;\nassert_eq!(",
            $example,
            "?.to_string(), ",
            stringify!($shown),
            ");\n# Ok::<(), hesper::Error>(())\n```"
        )
    };
}
pub(crate) use example;

/// Defines what the entries of a table mean: methods of [`Array`](crate::Array), and readers for files.
macro_rules! define_ops {
    ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($($other:ident),*): $types:ident
        = |$($x:ident),+| $body:expr $(=> $derivative:expr)?;
        rust $example:literal => $shown:literal;
        $(python $args:literal => $result:literal $(, method $method:ident)?;)?
        cases $([$($domain:ident),+])+;)*) => {
        impl $crate::Array {
            $(define_ops!(@method [$($doc)+] [$example $shown] $name $types [$($other)*] [$($x)+] $body,
                $($derivative)?);)*
            $(define_ops!(@aliases $name [$($alias)*] [$($other)*]);)*
        }

        $(define_ops!(@reader $name $types $($other)*);)*
    };
    (@method [$($doc:literal)+] [$example:literal $shown:literal] $name:ident composed [$($other:ident)*]
        [$x:ident $($y:ident)*] $body:expr,) => {
        $(#[doc = $doc])+
        #[doc = $crate::ops::elementwise::example!($example, $shown)]
        pub fn $name(&self $(, $other: impl Into<$crate::Operand>)*) -> $crate::Result<$crate::Array> {
            let $x = self;
            $(let $y = $other.into().beside(self)?;)*
            $body
        }
    };
    (@method [$($doc:literal)+] [$example:literal $shown:literal] $name:ident $types:ident [$($other:ident)*]
        [$b:ident $($x:ident)+] $body:expr, $($derivative:expr)?) => {
        $(#[doc = $doc])+
        #[doc = $crate::ops::elementwise::example!($example, $shown)]
        pub fn $name(&self $(, $other: impl Into<$crate::Operand>)*) -> $crate::Result<$crate::Array> {
            use $crate::ops::elementwise::{Elementwise, Types};
            static OP: Elementwise = Elementwise::new(stringify!($name), Types::$types, |$b, inputs| {
                let [$($x),+] = *inputs else { return inputs[0] };
                $body
            })$(.with_derivative($derivative))?;
            OP.apply(smallvec::smallvec![self.clone() $(, $other.into().beside(self)?)*])
        }
    };
    (@aliases $name:ident [$($alias:ident)*] $others:tt) => {
        $(define_ops!(@alias $name $alias $others);)*
    };
    (@alias $name:ident $alias:ident [$($other:ident)*]) => {
        #[doc = concat!("Another name for [`Array::", stringify!($name), "`].")]
        pub fn $alias(&self $(, $other: impl Into<$crate::Operand>)*) -> $crate::Result<$crate::Array> {
            self.$name($($other),*)
        }
    };
    (@reader $name:ident composed $($other:ident)?) => {};
    (@reader $name:ident $types:ident) => {
        $crate::ops::readers::reader!(stringify!($name), One(|replay| {
            let [x] = replay.inputs()?;
            x.$name()
        }));
    };
    (@reader $name:ident $types:ident $other:ident) => {
        $crate::ops::readers::reader!(stringify!($name), One(|replay| {
            let [x, y] = replay.inputs()?;
            x.$name(y)
        }));
    };
}
pub(crate) use define_ops;

reader!("astype", One(read_astype));
fn read_astype(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    x.astype(replay.dtype())
}
