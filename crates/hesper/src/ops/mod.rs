//! Ops: what can be done with arrays.
//!
//! An op is a value that says what it computes; it holds no array. What it is applied to is declared
//! in its call, and its lowering sees only that: an input that was not declared cannot be used.
//! Element-wise ops are entries of a table ([`elementwise`]); the planner fuses them. Any other op is
//! a type of its own that implements [`Op`].

pub mod add_norm;
mod along;
pub mod append;
pub mod arithmetic;
pub mod attention;
pub(crate) mod combine;
pub(crate) mod command;
pub mod complex;
pub mod concat;
pub mod conv;
pub(crate) mod copy;
pub mod creation;
pub mod cuda;
pub mod custom;
pub mod diagonal;
pub mod einsum;
pub mod elementwise;
pub mod fft;
mod fft_long;
pub(crate) mod float;
pub mod functions;
pub mod gated_delta;
mod gather;
pub mod grouped;
pub mod hadamard;
pub mod index;
pub mod linalg;
mod lists;
pub mod logic;
pub mod matmul;
pub mod movement;
pub(crate) mod multi;
pub(crate) mod native;
pub mod norm;
pub mod packed;
pub mod packed_layer;
pub mod pad;
pub mod product;
pub mod quant;
pub mod random;
pub(crate) mod readers;
pub mod reduce;
mod reinterpret;
pub mod rope;
pub mod scan;
mod scatter;
pub mod silu_gate;
mod slices;
pub mod sort;
pub mod step;
mod stft;
pub mod vector_norm;
pub mod view;
pub(crate) mod walk;

use std::fmt;
use std::sync::Arc;

use crate::Dtype;
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::Export;
use crate::shape::Shape;
use crate::transform::rule::{Backward, Batch, Cotangents, Forward, Tangents};
use elementwise::Elementwise;

/// What the planner does with an op.
pub(crate) enum Kind<'a> {
    /// Element by element: may be fused.
    Elementwise(&'a Elementwise),
    /// Another way to look at the input's memory: needs no command.
    View,
    /// Commands of its own.
    Commands,
}

/// An op. It holds its parameters and no array.
pub(crate) trait Op: Send + Sync + fmt::Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// What the planner does with it.
    fn kind(&self) -> Kind<'_> {
        Kind::Commands
    }

    /// Makes the output from inputs that are ready. A view gives the input's memory with other strides;
    /// an op with commands encodes them and gives the memory that they fill.
    fn lower(&self, lowering: &mut Lowering<'_>) -> Result<Data>;

    /// Whether it goes through its first input, of such a shape and type, row by row, so that rows may be made as
    /// they are read. Its lowering for the host then reads that input by a [`Feed`](crate::eval::made::Feed).
    fn takes_rows(&self, shape: &[usize], dtype: Dtype) -> bool {
        let _ = (shape, dtype);
        false
    }

    /// [`lower`](Op::lower) with kernels for a GPU; `None` if there are none for this op, or for these inputs. Then the op is
    /// lowered for the host. Inputs may lie on another device until [`Lowering::bring`] moves them.
    fn lower_gpu(&self, lowering: &mut Lowering<'_>) -> Result<Option<Data>> {
        let _ = lowering;
        Ok(None)
    }

    /// What else tells it from other ops of its type: ops of one name and identity that are applied to the
    /// same inputs give the same array. `None` if that cannot be said.
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    /// Whether its cost does not follow from the sizes of what it reads and gives.
    fn is_opaque(&self) -> bool {
        false
    }

    /// What a file holds of it; its reader stands next to it, and in the table of [`readers`].
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

    /// Cotangents of the inputs, from those of the output. Where integers come out of an op without a rule, they do
    /// not vary.
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
pub(crate) enum OpRef {
    Static(&'static dyn Op),
    Shared(Arc<dyn Op>),
}

impl OpRef {
    pub(crate) fn new(op: impl Op + 'static) -> Self {
        OpRef::Shared(Arc::new(op))
    }

    pub(crate) fn get(&self) -> &dyn Op {
        match self {
            OpRef::Static(op) => *op,
            OpRef::Shared(op) => &**op,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.get().name()
    }

    /// Whether the planner may fuse it.
    pub(crate) fn is_elementwise(&self) -> bool {
        matches!(self.get().kind(), Kind::Elementwise(_))
    }
}
