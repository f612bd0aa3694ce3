//! Ops: what can be done with arrays.
//!
//! An op is a value that says what it computes; it holds no array. What it is applied to is declared
//! in its call, and its lowering sees only that: an input that was not declared cannot be used.
//! Element-wise ops are entries of a table ([`elementwise`]); the planner fuses them. Any other op is
//! a type of its own that implements [`Op`].

mod along;
pub mod append;
pub mod arithmetic;
pub mod attention;
mod combine;
pub mod complex;
pub mod concat;
pub mod conv;
mod conv_kernel;
pub(crate) mod copy;
pub mod creation;
pub mod custom;
pub mod diagonal;
pub mod einsum;
pub mod elementwise;
pub mod fft;
pub(crate) mod float;
pub mod functions;
mod gather;
pub mod grouped;
pub mod hadamard;
pub mod index;
pub mod logic;
pub mod matmul;
pub mod movement;
pub(crate) mod native;
pub mod norm;
pub mod packed;
pub mod pad;
pub mod product;
pub mod quant;
pub mod random;
pub mod reduce;
mod reinterpret;
pub mod rope;
pub mod scan;
mod scatter;
mod slices;
pub mod sort;
mod stft;
pub mod vector_norm;
pub mod view;
pub(crate) mod walk;

use std::fmt;
use std::sync::Arc;

use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
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
}
