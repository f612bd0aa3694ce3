//! Keys of one token, rotated by its position and written into a KV cache.

use smallvec::SmallVec;

use super::Composite;
use crate::error::{Error, Result};
use crate::graph::{Array, CompositeSet};
use crate::ops::Op;
use crate::ops::rope::Rope;

/// Inputs: an array of four axes, rows for a slice of it, the periods of the rotation if it has no base.
/// Gives the array with the rotated rows in the slice.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RopeUpdate {
    /// The rotation of the rows.
    pub rope: Rope,
    /// Where the slice starts.
    pub starts: SmallVec<[isize; 6]>,
}

impl Op for RopeUpdate {
    fn name(&self) -> &'static str {
        "rope_update"
    }

    fn composite() -> CompositeSet {
        CompositeSet::ROPE_UPDATE
    }
}

impl Composite for RopeUpdate {
    fn composed(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let [cache, rows, periods @ ..] = inputs else {
            return Err(Error::value(self.name(), "two inputs expected"));
        };
        let ends: SmallVec<[isize; 6]> =
            self.starts.iter().zip(rows.shape()).map(|(start, length)| start + *length as isize).collect();
        let rows = self.rope.apply(rows, periods.first())?;
        Ok(vec![cache.slice_update(&rows, &self.starts, &ends, &[1; 4])?])
    }
}
