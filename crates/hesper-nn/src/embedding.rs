//! Tables of vectors.

use hesper::Array;

use crate::error::Result;
use crate::module::Module;
use crate::weight::Weight;
use crate::{Leaf, LeafMut};

/// A vector for every number.
#[derive(Debug, Clone)]
pub struct Embedding {
    weight: Weight,
}

impl Embedding {
    /// From a table of shape (count, width).
    pub fn new(weight: Weight) -> Self {
        Embedding { weight }
    }

    /// The table.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// The vectors of numbers, as one more axis.
    pub fn forward(&self, numbers: &Array) -> Result<Array> {
        self.weight.rows(numbers)
    }

    /// Products with every vector of the table: the table as the last layer.
    pub fn as_linear(&self, x: &Array) -> Result<Array> {
        self.weight.apply(x)
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
