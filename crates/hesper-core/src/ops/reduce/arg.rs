//! Indices of the largest and the smallest elements.

use super::ReduceKind;
use crate::Axes;
use crate::error::{Error, Result};
use crate::graph::Array;

/// The place of an extreme along an axis, or in the flattened array.
pub fn place_of(x: &Array, kind: ReduceKind, over: &Axes) -> Result<Array> {
    if x.size() == 0 {
        let what = format!("an array of shape {:?} has no elements", x.shape());
        return Err(Error::value(kind.name(), what));
    }
    let keepdims = over.is_kept();
    let Some(over) = over.at_most_one(kind.name(), x.ndim())? else {
        let flat = if x.ndim() == 1 { x.clone() } else { x.flatten(0, -1)? };
        let keeps = keepdims && x.ndim() > 0;
        let place = flat.reduce_axes(kind, [0].into_iter().collect(), keeps)?;
        let others: Vec<isize> = (0..x.ndim().saturating_sub(1) as isize).collect();
        return if keeps && !others.is_empty() { place.expand_dims(&others[..]) } else { Ok(place) };
    };
    if x.shape()[over] > u32::MAX as usize {
        let what = format!("places along axis {over} of shape {:?} do not fit uint32", x.shape());
        return Err(Error::value(kind.name(), what));
    }
    x.reduce_axes(kind, [over].into_iter().collect(), keepdims)
}
