//! Composite ops: several ops as one command.
//!
//! No function makes them. The planner puts one in the place of the ops that it stands for
//! (`eval/patterns.rs`), on streams whose backend has an implementation, and only where the result has the
//! same bits. So an implementation rounds wherever the ops round. One that declines its inputs is replaced by
//! the graph of these ops, [`Composite::composed`].

pub mod add_norm;
pub mod packed_layer;
pub mod rope_attention;
pub mod rope_update;
pub mod row_products;
pub mod silu_gate;

use super::Op;
use crate::error::Result;
use crate::graph::Array;

/// An op that stands for several.
pub trait Composite: Op {
    /// The results of the ops that it stands for.
    fn composed(&self, inputs: &[Array]) -> Result<Vec<Array>>;
}
