//! Ops: what can be computed with arrays.
//!
//! An op is a value that says what it computes; it holds no array. Its inputs are declared in its call, and
//! its lowering sees only those: an input that was not declared cannot be used. Element-wise ops are entries
//! of a table ([`elementwise`]); the planner fuses them. Any other op is a type of its own that implements
//! [`Op`].

pub mod along_axis;
pub mod append;
pub mod arithmetic;
pub mod attention;
pub mod command;
pub mod complex;
pub mod compose;
pub mod composite;
pub mod concat;
pub mod conv;
pub mod creation;
pub mod custom;
pub mod diagonal;
pub mod domain;
pub mod einsum;
pub mod elementwise;
pub mod fft;
pub mod functions;
pub mod gated_delta;
pub mod gather;
pub mod grouped;
pub mod hadamard;
pub mod index;
pub mod index_arrays;
#[cfg(feature = "linalg")]
pub mod linalg;
pub mod logic;
pub mod matmul;
pub mod movement;
pub mod multi;
pub mod norm;
pub mod packed;
pub mod pad;
pub mod product;
pub mod quant;
pub mod random;
pub mod readers;
pub mod reduce;
pub mod reinterpret;
pub mod rope;
pub mod scan;
pub mod scatter;
pub mod slice_syntax;
pub mod slices;
pub mod sort;
pub mod step;
pub mod stft;
pub mod update_mode;
#[cfg(feature = "linalg")]
pub mod vector_norm;
pub mod view;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::Dtype;
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::Export;
use crate::identity::Identity;
use crate::shape::Shape;
use crate::transform::rule::{Backward, Batch, Cotangents, Forward, Tangents};
use elementwise::Elementwise;

/// What the planner does with an op.
pub enum OpKind<'a> {
    /// Element by element: may be fused.
    Elementwise(&'a Elementwise),
    /// The input's memory with another shape, strides or type; a copy of it where strides cannot describe the
    /// result.
    View,
    /// Commands of its own.
    Commands,
}

/// What an op is to the [patterns](crate::eval) of the planner, as far as its parameters decide that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PatternOp {
    /// Part of none.
    #[default]
    None,
    /// A root mean square norm with a weight.
    Norm,
    /// A product without an addend.
    Product,
    /// A product with a packed matrix, and whether its activations may be rounded.
    PackedProduct(quant::Activations),
    /// A concatenation along an axis.
    Concat(usize),
    /// A reshape.
    Reshape,
    /// A slice by steps of one that starts at an index of the last axis, and at zero of all others.
    LastAxis(usize),
    /// A rotation by known positions.
    Rope,
    /// Attention to all keys.
    Attention,
    /// A slice by steps of one, from known indices, replaced.
    Update,
}

/// An op. It holds its parameters and no array. Equal ops on the same inputs give the same array.
pub trait Op: Identity + Send + Sync + fmt::Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// What the planner does with it.
    fn kind(&self) -> OpKind<'_> {
        OpKind::Commands
    }

    /// What it is to patterns. Asked of every node with every evaluation.
    fn pattern(&self) -> PatternOp {
        PatternOp::None
    }

    /// The result of a view: the input's memory with other strides. `None` if no strides describe it. `from`
    /// is the shape of the input, `to` that of the result.
    fn view(&self, data: &Data, from: &[usize], to: &[usize]) -> Option<Data> {
        let _ = (data, from, to);
        None
    }

    /// Makes the output of an op that is the same on every device ([`is_everywhere`](Op::is_everywhere)) from
    /// inputs that are ready, where that is not a [`view`](Op::view). Every other op is lowered by its
    /// device's backend.
    fn lower(&self, lowering: &mut Lowering<'_>) -> Result<Data> {
        let _ = lowering;
        Err(Error::value(self.name(), "only a backend lowers this op"))
    }

    /// Whether [`lower`](Op::lower) lowers it on every device.
    fn is_everywhere(&self) -> bool {
        matches!(self.kind(), OpKind::View)
    }

    /// Whether its cost does not follow from the sizes of its inputs and outputs.
    fn is_opaque(&self) -> bool {
        false
    }

    /// What a file holds of it; its [reader](readers) stands next to it.
    fn export(&self) -> Export {
        Export::Never
    }

    /// If the op takes one of several outputs of its first input: which.
    fn part(&self) -> Option<usize> {
        None
    }

    /// The shapes and types of its outputs, if it has several and its array stands for all of them.
    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        None
    }

    /// Whether it stands for several outputs that are its inputs.
    fn is_together(&self) -> bool {
        false
    }

    /// The inputs that nothing can be differentiated by: indices, and codes of quantized numbers.
    fn indices(&self) -> Range<usize> {
        0..0
    }

    /// Cotangents of the inputs, from those of the output. Where integers come out of an op without a rule,
    /// they do not vary.
    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        if self.outputs().is_none() && !rule.output.dtype().is(Category::Inexact) {
            return rule.each(|_| Ok(None));
        }
        Err(Error::value(self.name(), "has no derivative"))
    }

    /// Whether the op applied to sums is the sum of the op applied to the parts, in all inputs together.
    fn is_linear(&self) -> bool {
        false
    }

    /// Tangents of the outputs, from those of the inputs. Follows from [`vjp`](Op::vjp).
    fn jvp(&self, rule: &Forward<'_>) -> Result<Tangents> {
        rule.transposed_twice()
    }

    /// The op on inputs that have one axis more: the result and where its new axis is. Done one by one where
    /// the op knows no better.
    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.one_by_one()
    }
}

/// A reference to an op: most have no parameters and are statics.
#[derive(Clone)]
pub enum OpRef {
    Static(&'static dyn Op),
    Shared(Arc<dyn Op>),
}

impl PartialEq for OpRef {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for OpRef {}

impl Hash for OpRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.get().hash(state);
    }
}

impl OpRef {
    pub fn new(op: impl Op + 'static) -> Self {
        OpRef::Shared(Arc::new(op))
    }

    pub fn get(&self) -> &dyn Op {
        match self {
            OpRef::Static(op) => *op,
            OpRef::Shared(op) => &**op,
        }
    }

    pub fn name(&self) -> &'static str {
        self.get().name()
    }

    /// Whether it compares elements.
    pub fn is_comparison(&self) -> bool {
        let name = self.get().name();
        matches!(
            name,
            "equal"
                | "not_equal"
                | "less"
                | "less_equal"
                | "greater"
                | "greater_equal"
                | "isnan"
                | "isposinf"
                | "isneginf"
        )
    }

    /// Whether the planner may fuse it.
    pub fn is_elementwise(&self) -> bool {
        matches!(self.get().kind(), OpKind::Elementwise(_))
    }
}
