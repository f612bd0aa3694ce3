//! Reading arrays: their elements, computed first.

use super::schedule;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::shape::is_row_major;

impl Array {
    /// Computes the array; returns when it is computed, or has failed.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1.0, 4.0].sqrt()?;
    /// x.eval()?; // later readers find the elements in memory
    /// assert!(x.is_evaluated());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn eval(&self) -> Result<()> {
        schedule(&[self])?;
        Ok(self.data()?.buffer.wait()?)
    }

    /// Calls `f` with the elements, row by row, after computing them.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![3, 1, 2].multiply(10)?;
    /// assert_eq!(x.read(|elements: &[i32]| elements.iter().max().copied())?, Some(30));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn read<T: Element, R>(&self, f: impl FnOnce(&[T]) -> R) -> Result<R> {
        if self.dtype() != T::DTYPE {
            return Err(Error::Type {
                op: "read".into(),
                what: format!("cannot read {} elements without astype from an array", T::DTYPE),
                dtype: self.dtype(),
            });
        }
        self.read_bytes(|bytes| f(bytemuck::cast_slice(bytes)))
    }

    /// Calls `f` with the bytes of the elements, row by row, after computing them.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1u16, 2];
    /// assert_eq!(x.read_bytes(<[u8]>::to_vec)?, [1u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn read_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        schedule(&[self])?;
        let mut data = self.data()?;
        if !is_row_major(self.shape(), &data.strides) {
            let row_by_row = self.contiguous()?;
            schedule(&[&row_by_row])?;
            data = row_by_row.data()?;
        }
        let start = if self.size() == 0 { 0 } else { data.offset as usize * self.dtype().size() };
        let guard = data.buffer.read_range(start..start + self.nbytes())?;
        let result = f(guard.bytes());
        // Those of a mapped file may have gone while they were read.
        guard.check()?;
        Ok(result)
    }

    /// The elements, row by row.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1.0, 2.0], [3.0, 4.0]];
    /// assert_eq!(x.t()?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// assert!(x.to_vec::<f64>().is_err()); // a vector of another type: astype first
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.read(<[T]>::to_vec)
    }

    /// The one element of an array of size one.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1.0, 2.5].sum(())?.item::<f32>()?, 3.5);
    /// assert!(array![1.0, 2.5].item::<f32>().is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.size() != 1 {
            return Err(Error::value(
                "item",
                format!("an array of shape {:?} has no single element", self.shape()),
            ));
        }
        self.read(|elements: &[T]| elements[0])
    }
}
