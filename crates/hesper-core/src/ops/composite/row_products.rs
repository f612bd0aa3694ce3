//! Products of one row with several matrices.

use smallvec::SmallVec;

use super::Composite;
use crate::error::{Error, Result};
use crate::graph::{Array, CompositeSet};
use crate::ops::Op;

/// The products of the first input, which is one row, with each of the others, one after another in one row.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RowProducts {
    /// The columns of each matrix.
    pub columns: SmallVec<[usize; 3]>,
}

impl Op for RowProducts {
    fn name(&self) -> &'static str {
        "row_products"
    }

    fn composite() -> CompositeSet {
        CompositeSet::ROW_PRODUCTS
    }
}

impl Composite for RowProducts {
    fn composed(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let [row, matrices @ ..] = inputs else {
            return Err(Error::value(self.name(), "a row and matrices expected"));
        };
        matrices.iter().map(|matrix| row.matmul(matrix)).collect()
    }
}
