//! The heads of attention layers.

use hesper_core::ops::step::StepHeads;

/// How many heads there are, and their dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Heads of queries.
    pub queries: usize,
    /// Heads of keys, and as many of values.
    pub kv: usize,
    /// Elements of a head.
    pub dim: usize,
}

impl From<Heads> for StepHeads {
    fn from(heads: Heads) -> Self {
        StepHeads { queries: heads.queries, keys: heads.kv, width: heads.dim }
    }
}

crate::settings!(Heads);
