//! Arrays of the crate `ndarray`. Elements are copied, in row-major order.

use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

use crate::Element;
use crate::error::{Error, Result};
use crate::graph::Array;

/// A copy with the same shape, whatever the strides are.
impl<S, D> TryFrom<&ArrayBase<S, D>> for Array
where
    S: Data,
    S::Elem: Element,
    D: Dimension,
{
    type Error = Error;

    fn try_from(array: &ArrayBase<S, D>) -> Result<Self> {
        match array.as_slice() {
            Some(elements) => Array::try_from_slice(elements, array.shape()),
            None => {
                let elements: Vec<S::Elem> = array.iter().copied().collect();
                Array::try_from_slice(&elements, array.shape())
            }
        }
    }
}

/// Computes the array and copies its elements. Fails if they have another type.
impl<T: Element> TryFrom<&Array> for ArrayD<T> {
    type Error = Error;

    fn try_from(array: &Array) -> Result<Self> {
        ArrayD::from_shape_vec(IxDyn(array.shape()), array.to_vec()?).map_err(|error| {
            Error::shape("ndarray", format!("cannot make shape {:?}: {error}", array.shape()))
        })
    }
}
