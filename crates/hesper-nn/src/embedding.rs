//! Tables of vectors.

use hesper_core::Array;

use crate::error::Result;
use crate::module::Module;
use crate::weight::Weight;
use crate::{Leaf, LeafMut};

/// A vector for every id.
#[derive(Debug, Clone)]
pub struct Embedding {
    weight: Weight,
}

impl Embedding {
    /// An embedding with a table of shape (ids, elements).
    pub fn new(weight: Weight) -> Self {
        Embedding { weight }
    }

    /// The table.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// The vectors of `ids`, along one more axis.
    pub fn forward(&self, ids: &Array) -> Result<Array> {
        self.weight.rows(ids)
    }
}

impl Module for Embedding {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        self.weight.visit(prefix, f);
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.weight.visit_mut(prefix, f)
    }
}
