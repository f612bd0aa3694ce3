//! Padding.

use smallvec::SmallVec;

use super::gather::smallvec_of;
use crate::Operand;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::shape::Shape;

/// What padding is filled with.
#[derive(Debug, Clone)]
pub enum Pad {
    /// A number, converted to the array's type.
    Constant(Operand),
    /// The element at the edge.
    Edge,
    /// The elements mirrored at the edge, without the edge itself.
    Reflect,
    /// The elements mirrored at the edge, the edge included.
    Symmetric,
}

impl Pad {
    /// Which element of an axis of `length` stands at `place`, which may be outside.
    fn source(&self, place: isize, length: isize) -> isize {
        match self {
            Pad::Edge | Pad::Constant(_) => place.clamp(0, length - 1),
            Pad::Reflect if length == 1 => 0,
            Pad::Reflect => {
                let turn = 2 * (length - 1);
                let at = place.rem_euclid(turn);
                if at < length { at } else { turn - at }
            }
            Pad::Symmetric => {
                let at = place.rem_euclid(2 * length);
                if at < length { at } else { 2 * length - 1 - at }
            }
        }
    }
}

impl Array {
    /// The array with more elements before and after, along each axis. One pair of widths is for all axes.
    ///
    /// ```
    /// use hesper::{Array, Pad};
    /// let x = Array::from_slice(&[1, 2, 3]);
    /// assert_eq!(x.pad(&[(1, 2)], &Pad::Constant(0.into()))?.to_vec::<i32>()?, [0, 1, 2, 3, 0, 0]);
    /// assert_eq!(x.pad(&[(2, 0)], &Pad::Reflect)?.to_vec::<i32>()?, [3, 2, 1, 2, 3]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn pad(&self, widths: &[(usize, usize)], mode: &Pad) -> Result<Array> {
        let widths: SmallVec<[(usize, usize); 6]> = match widths {
            [all] => SmallVec::from_elem(*all, self.ndim()),
            each => each.into(),
        };
        if widths.len() != self.ndim() {
            let what =
                format!("{} pairs of widths do not fit an array of shape {:?}", widths.len(), self.shape());
            return Err(Error::shape("pad", what).with_shapes([self]));
        }
        let too_large = || Error::TooLarge { shape: self.shape().to_vec() };
        let shape: Shape = widths
            .iter()
            .zip(self.shape())
            .map(|((low, high), length)| length.checked_add(*low)?.checked_add(*high))
            .collect::<Option<_>>()
            .ok_or_else(too_large)?;
        crate::shape::size_of(&shape)?;
        if shape[..] == *self.shape() {
            return Ok(self.clone());
        }
        let mirrors = matches!(mode, Pad::Reflect | Pad::Symmetric);
        let empty = |(at, width): (usize, &(usize, usize))| self.shape()[at] == 0 && *width != (0, 0);
        if mirrors && widths.iter().enumerate().any(empty) {
            let what = format!("an axis without elements has nothing to mirror: shape {:?}", self.shape());
            return Err(Error::shape("pad", what).with_shapes([self]));
        }
        if let (Pad::Constant(_), _) | (_, 0) = (mode, self.size()) {
            let value = match mode {
                Pad::Constant(value) => value.clone(),
                _ => Operand::Int(0),
            };
            return self.pad_constant(&widths, &shape, value);
        }
        let mut padded = self.clone();
        for (at, (low, high)) in widths.iter().enumerate().filter(|(_, width)| **width != (0, 0)) {
            let length = self.shape()[at] as isize;
            let places: Vec<i64> = (-(*low as isize)..length + *high as isize)
                .map(|place| mode.source(place, length) as i64)
                .collect();
            padded = padded.take(Array::from_slice(&places), Some(at as isize))?;
        }
        Ok(padded)
    }

    fn pad_constant(&self, widths: &[(usize, usize)], shape: &[usize], value: Operand) -> Result<Array> {
        let mut value = value.beside(self)?;
        if value.size() == 0 {
            return Err(Error::value("pad", "the constant is an array without elements"));
        }
        if value.ndim() > 0 {
            value = value.reshape(&[-1])?.slice(&[0], &[1], &[1])?.reshape::<isize>(&[])?;
        }
        let base = value.astype(self.dtype())?.broadcast_to(shape)?;
        let start: SmallVec<[isize; 6]> = widths.iter().map(|(low, _)| *low as isize).collect();
        let stop: SmallVec<[isize; 6]> =
            start.iter().zip(self.shape()).map(|(start, length)| start + *length as isize).collect();
        base.slice_update(self, &start, &stop, &smallvec_of(1, self.ndim()))
    }
}
