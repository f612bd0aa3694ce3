//! Places of the largest and the smallest elements.

use super::{ReduceKind, without};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::shape::axis;

impl Array {
    /// The place of the largest element along an axis, or in the flattened array: the first of equals, or
    /// the first NaN.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::try_from_slice(&[1.0f32, 5.0, 7.0, 2.0], &[2, 2])?;
    /// assert_eq!(x.argmax(Some(1), false)?.to_vec::<u32>()?, [1, 0]);
    /// assert_eq!(x.argmax(None, false)?.item::<u32>()?, 2);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn argmax(&self, over: Option<isize>, keepdims: bool) -> Result<Array> {
        self.place_of(ReduceKind::ArgMax, over, keepdims)
    }

    /// The place of the smallest element along an axis, or in the flattened array: the first of equals, or
    /// the first NaN.
    pub fn argmin(&self, over: Option<isize>, keepdims: bool) -> Result<Array> {
        self.place_of(ReduceKind::ArgMin, over, keepdims)
    }

    fn place_of(&self, kind: ReduceKind, over: Option<isize>, keepdims: bool) -> Result<Array> {
        if self.size() == 0 {
            let what = format!("an array of shape {:?} has no elements", self.shape());
            return Err(Error::value(kind.name(), what));
        }
        let Some(over) = over else {
            let flat = self.reshape(&[-1])?.reduce_axes(kind, [0].into_iter().collect(), false)?;
            let all: Vec<usize> = (0..self.ndim()).collect();
            let shape: Vec<isize> =
                without(self.shape(), &all, keepdims).iter().map(|one| *one as isize).collect();
            return flat.reshape(&shape);
        };
        let over = axis(kind.name(), over, self.ndim())?;
        if self.shape()[over] > u32::MAX as usize {
            let what = format!("places along axis {over} of shape {:?} do not fit uint32", self.shape());
            return Err(Error::value(kind.name(), what));
        }
        self.reduce_axes(kind, [over].into_iter().collect(), keepdims)
    }
}
