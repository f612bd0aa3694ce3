//! Ops: what can be computed with arrays, and how the planner and the transformations see it.

use std::any::{Any, TypeId};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use hesper_types::Activations;

use super::elementwise::Elementwise;
use super::lowering::Lowering;
use super::record::Export;
use super::rule::{Backward, Batch, Cotangents, Forward, Tangents};
use super::{Array, Data};
use crate::dtype::{Category, Dtype};
use crate::error::{Error, Result};
use crate::shape::Shape;

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

/// What an op is to the [patterns](mod@crate::eval) of the planner, as far as its parameters decide that.
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
    PackedProduct(Activations),
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

    /// Its bit among composite ops, if it is one.
    fn composite() -> CompositeSet
    where
        Self: Sized,
    {
        CompositeSet::default()
    }

    /// Whether its cost does not follow from the sizes of its inputs and outputs.
    fn is_opaque(&self) -> bool {
        false
    }

    /// What a file holds of it; its [reader](crate::ops::readers) stands next to it.
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

    /// Whether bools have derivatives here as numbers do. They have none as conditions and masks.
    fn varies_with_bools(&self) -> bool {
        self.is_linear()
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
    /// An op without parameters.
    Static(&'static dyn Op),
    /// One with parameters.
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
    /// A reference to an op with parameters.
    pub fn new(op: impl Op + 'static) -> Self {
        OpRef::Shared(Arc::new(op))
    }

    /// The op.
    pub fn get(&self) -> &dyn Op {
        match self {
            OpRef::Static(op) => *op,
            OpRef::Shared(op) => &**op,
        }
    }

    /// Its name.
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

/// Equality and hashing of an op through `dyn Op`. Every type that can be compared and hashed has it.
pub trait Identity: Any {
    /// Whether the other is of the same type and has equal parameters.
    fn same(&self, other: &dyn Op) -> bool;

    /// Hashes the type and the parameters.
    fn hash_into(&self, hasher: &mut dyn Hasher);
}

impl<T: Any + Eq + Hash> Identity for T {
    fn same(&self, other: &dyn Op) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn hash_into(&self, mut hasher: &mut dyn Hasher) {
        TypeId::of::<T>().hash(&mut hasher);
        self.hash(&mut hasher);
    }
}

impl PartialEq for dyn Op {
    fn eq(&self, other: &dyn Op) -> bool {
        self.same(other)
    }
}

impl Eq for dyn Op {}

impl Hash for dyn Op {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_into(state);
    }
}

/// Composite ops, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompositeSet(u8);

impl CompositeSet {
    /// [`AddNorm`](crate::ops::composite::add_norm::AddNorm).
    pub const ADD_NORM: Self = CompositeSet(1);
    /// [`SiluGate`](crate::ops::composite::silu_gate::SiluGate).
    pub const SILU_GATE: Self = CompositeSet(2);
    /// [`PackedLayer`](crate::ops::composite::packed_layer::PackedLayer).
    pub const PACKED_LAYER: Self = CompositeSet(4);
    /// [`RowProducts`](crate::ops::composite::row_products::RowProducts).
    pub const ROW_PRODUCTS: Self = CompositeSet(8);
    /// [`RopeAttention`](crate::ops::composite::rope_attention::RopeAttention).
    pub const ROPE_ATTENTION: Self = CompositeSet(16);
    /// [`RopeUpdate`](crate::ops::composite::rope_update::RopeUpdate).
    pub const ROPE_UPDATE: Self = CompositeSet(32);

    /// Those of both.
    pub(crate) const fn with(self, other: Self) -> Self {
        CompositeSet(self.0 | other.0)
    }

    /// Whether all of `other` are in it.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }
}
