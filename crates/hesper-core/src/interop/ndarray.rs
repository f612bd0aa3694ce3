//! Arrays of the crate `ndarray`. Elements are copied, in row-major order.

use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn, ShapeError};

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

/// A copy with the same shape, as of a borrowed one.
impl<S, D> TryFrom<ArrayBase<S, D>> for Array
where
    S: Data,
    S::Elem: Element,
    D: Dimension,
{
    type Error = Error;

    fn try_from(array: ArrayBase<S, D>) -> Result<Self> {
        Array::try_from(&array)
    }
}

/// Computes the array and copies its elements. Fails if they have another type, or if the array does not have
/// the axes of `D`.
impl<T: Element, D: Dimension> TryFrom<&Array> for ndarray::Array<T, D> {
    type Error = Error;

    fn try_from(array: &Array) -> Result<Self> {
        let refused = |error: ShapeError| {
            let axes = D::NDIM.map_or_else(String::new, |axes| format!(" of {axes} axes"));
            let what = format!("cannot make an array{axes} of shape {:?}: {error}", array.shape());
            Error::shape("ndarray", what).with_shapes([array])
        };
        let elements = ArrayD::from_shape_vec(IxDyn(array.shape()), array.to_vec()?).map_err(refused)?;
        elements.into_dimensionality().map_err(refused)
    }
}

/// As of a borrowed array.
impl<T: Element, D: Dimension> TryFrom<Array> for ndarray::Array<T, D> {
    type Error = Error;

    fn try_from(array: Array) -> Result<Self> {
        (&array).try_into()
    }
}
