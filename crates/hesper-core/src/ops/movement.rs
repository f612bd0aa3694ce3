//! Rearranging axes and elements: compositions of views and concatenations.

use smallvec::{SmallVec, smallvec};

use super::concat::concatenate;
use super::gather::smallvec_of;
use super::view::ReshapeForm;
use crate::Axes;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::shape::{axes, axis, broadcast, signed};

type Signed = SmallVec<[isize; 6]>;

/// How [`Array::split`] divides an axis.
#[derive(Debug, Clone, Copy)]
pub enum Split<'a> {
    /// Into this many equal parts.
    Sections(usize),
    /// Before the elements at these indices.
    Indices(&'a [isize]),
}

impl Array {
    /// Moves an axis; the others keep their order.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let images = Array::zeros(&[8, 3, 32, 24], Dtype::Uint8)?; // channels first
    /// assert_eq!(images.moveaxis(1, -1)?.shape(), [8, 32, 24, 3]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn moveaxis(&self, source: isize, destination: isize) -> Result<Array> {
        let from = axis("moveaxis", source, self.ndim())?;
        let to = axis("moveaxis", destination, self.ndim())?;
        let mut order: Signed = (0..self.ndim() as isize).collect();
        let moved = order.remove(from);
        order.insert(to, moved);
        self.transpose(&order)
    }

    /// Swaps two axes.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![[1, 2, 3], [4, 5, 6]].swapaxes(0, 1)?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn swapaxes(&self, a: isize, b: isize) -> Result<Array> {
        let (a, b) = (axis("swapaxes", a, self.ndim())?, axis("swapaxes", b, self.ndim())?);
        let mut order: Signed = (0..self.ndim() as isize).collect();
        order.swap(a, b);
        self.transpose(&order)
    }

    /// Removes axes of length one: the given [axes](Axes), or with `()` all.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::zeros(&[1, 3, 1], Dtype::Float32)?;
    /// assert_eq!((x.squeeze(())?.shape(), x.squeeze(0)?.shape()), (&[3][..], &[3, 1][..]));
    /// assert!(x.squeeze(1).is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn squeeze(&self, which: impl Into<Axes>) -> Result<Array> {
        let removed = match which.into().without_keepdims("squeeze")? {
            Some(which) => axes("squeeze", &which, self.ndim())?,
            None => (0..self.ndim()).filter(|at| self.shape()[*at] == 1).collect(),
        };
        if let Some(at) = removed.iter().find(|at| self.shape()[**at] != 1) {
            let what = format!("cannot remove axis {at} of shape {:?}: its length is not one", self.shape());
            return Err(Error::shape("squeeze", what).with_shapes([self]));
        }
        let shape: Signed =
            (0..self.ndim()).filter(|at| !removed.contains(at)).map(|at| self.shape()[at] as isize).collect();
        self.reshape_axes(&shape, || ReshapeForm::Squeeze(removed))
    }

    /// Inserts axes of length one at these [axes](Axes) of the result.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1, 2, 3];
    /// assert_eq!((x.expand_dims(0)?.shape(), x.expand_dims([0, -1])?.shape()), (&[1, 3][..], &[1, 3, 1][..]));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn expand_dims(&self, new_axes: impl Into<Axes>) -> Result<Array> {
        let Some(new_axes) = new_axes.into().without_keepdims("expand_dims")? else {
            return Err(Error::value("expand_dims", "cannot insert all axes; name those of the result"));
        };
        let rank = self.ndim() + new_axes.len();
        let new = axes("expand_dims", &new_axes, rank)?;
        let mut old = self.shape().iter();
        let shape: Signed = (0..rank)
            .map(|at| if new.contains(&at) { 1 } else { old.next().map_or(1, |length| *length as isize) })
            .collect();
        self.reshape_axes(&shape, || ReshapeForm::ExpandDims(new))
    }

    /// Joins the axes from `start` to `end` inclusive. Both are clamped to the axes of the array.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::zeros(&[8, 4, 4, 16], Dtype::Float32)?;
    /// assert_eq!(x.flatten(1, -1)?.shape(), [8, 256]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn flatten(&self, start: isize, end: isize) -> Result<Array> {
        if self.ndim() == 0 {
            return self.reshape_axes(&[1], || ReshapeForm::Flatten(0, 0));
        }
        let rank = self.ndim() as isize;
        let wrap = |axis: isize| if axis < 0 { axis.saturating_add(rank) } else { axis };
        let (from, to) = (wrap(start).max(0), wrap(end).min(rank - 1));
        if to < from {
            let what =
                format!("cannot join axes {start} to {end} of shape {:?}: start is after end", self.shape());
            return Err(Error::shape("flatten", what).with_shapes([self]));
        }
        let (from, to) = (from as usize, to as usize);
        let mut shape = signed(&self.shape()[..from]);
        shape.push(self.shape()[from..=to].iter().product::<usize>() as isize);
        shape.extend(signed(&self.shape()[to + 1..]));
        self.reshape_axes(&shape, || ReshapeForm::Flatten(from, to))
    }

    /// Splits an axis into several; one of their lengths may be -1.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::zeros(&[10, 64], Dtype::Float32)?;
    /// assert_eq!(x.unflatten(1, &[8, -1])?.shape(), [10, 8, 8]); // heads
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn unflatten(&self, along: isize, lengths: &[isize]) -> Result<Array> {
        if lengths.is_empty() {
            return Err(Error::shape("unflatten", "an axis cannot be split into no axes"));
        }
        let at = axis("unflatten", along, self.ndim())?;
        let length = self.shape()[at];
        let fail = || {
            let what = format!("cannot split axis {along} of length {length} into {lengths:?}");
            Err(Error::shape("unflatten", what).with_shapes([self]))
        };
        let known: usize = lengths.iter().filter(|x| **x >= 0).map(|x| *x as usize).product();
        let open = lengths.iter().filter(|x| **x == -1).count();
        let rest = if open == 1 && known > 0 { length / known } else { 1 };
        if open > 1 || lengths.iter().any(|x| *x < -1) || known * rest != length {
            return fail();
        }
        let mut shape = signed(&self.shape()[..at]);
        shape.extend(lengths.iter().map(|x| if *x == -1 { rest as isize } else { *x }));
        shape.extend(signed(&self.shape()[at + 1..]));
        self.reshape_axes(&shape, || ReshapeForm::Unflatten(at, lengths.into()))
    }

    /// An array of at least one axis.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// assert_eq!(Array::scalar(3.0, Dtype::Float32)?.atleast_1d()?.shape(), [1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn atleast_1d(&self) -> Result<Array> {
        if self.ndim() == 0 { self.reshape(&[1]) } else { Ok(self.clone()) }
    }

    /// An array of at least two axes; a vector becomes a matrix of one row.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 2, 3].atleast_2d()?.shape(), [1, 3]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn atleast_2d(&self) -> Result<Array> {
        match self.ndim() {
            0 | 1 => self.reshape(&[1, self.size() as isize]),
            _ => Ok(self.clone()),
        }
    }

    /// An array of at least three axes; a vector becomes the middle axis, a matrix the first two.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 2, 3].atleast_3d()?.shape(), [1, 3, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn atleast_3d(&self) -> Result<Array> {
        match self.ndim() {
            0 | 1 => self.reshape(&[1, self.size() as isize, 1]),
            2 => self.reshape(&[self.shape()[0] as isize, self.shape()[1] as isize, 1]),
            _ => Ok(self.clone()),
        }
    }

    /// A slice along one axis.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1, 2, 3, 4], [5, 6, 7, 8]];
    /// assert_eq!(x.slice_axis(1, 1, -1, 1)?.to_vec::<i32>()?, [2, 3, 6, 7]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn slice_axis(&self, along: usize, start: isize, stop: isize, step: isize) -> Result<Array> {
        let mut bounds = [smallvec_of(0, self.ndim()), signed(self.shape()), smallvec_of(1, self.ndim())];
        (bounds[0][along], bounds[1][along], bounds[2][along]) = (start, stop, step);
        self.slice(&bounds[0], &bounds[1], &bounds[2])
    }

    /// Reverses the elements along [axes](Axes), `()` for all. A view.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1, 2], [3, 4]];
    /// assert_eq!(x.flip(1)?.to_vec::<i32>()?, [2, 1, 4, 3]);
    /// assert_eq!(x.flip(())?.to_vec::<i32>()?, [4, 3, 2, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn flip(&self, along: impl Into<Axes>) -> Result<Array> {
        let along = along.into().without_keepdims("flip")?;
        let along = along.unwrap_or_else(|| (0..self.ndim() as isize).collect());
        let mut bounds = [smallvec_of(0, self.ndim()), signed(self.shape()), smallvec_of(1, self.ndim())];
        for one in along {
            let at = axis("flip", one, self.ndim())?;
            (bounds[0][at], bounds[1][at], bounds[2][at]) = (-1, -(self.shape()[at] as isize) - 1, -1);
        }
        self.slice(&bounds[0], &bounds[1], &bounds[2])
    }

    /// Splits an array along an axis. The parts are views.
    ///
    /// ```
    /// use hesper::{Array, Split};
    /// let x = Array::from_slice(&[1, 2, 3, 4, 5]);
    /// let parts = x.split(Split::Indices(&[1, 3]), 0)?;
    /// assert_eq!(parts[1].to_vec::<i32>()?, [2, 3]);
    /// assert!(x.split(Split::Sections(2), 0).is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn split(&self, cuts: Split<'_>, along: isize) -> Result<Vec<Array>> {
        let at = axis("split", along, self.ndim())?;
        let length = self.shape()[at];
        match cuts {
            Split::Sections(count) => {
                if count == 0 || !length.is_multiple_of(count) {
                    let what = format!(
                        "cannot split axis {at} of shape {:?} into {count} equal parts",
                        self.shape()
                    );
                    return Err(Error::shape("split", what).with_shapes([self]));
                }
                let part = (length / count) as isize;
                (0..count as isize).map(|k| self.slice_axis(at, k * part, (k + 1) * part, 1)).collect()
            }
            Split::Indices(cuts) => {
                let end = std::iter::once(length as isize);
                let stops = cuts.iter().copied().chain(end);
                let starts = std::iter::once(0).chain(cuts.iter().copied());
                starts.zip(stops).map(|(start, stop)| self.slice_axis(at, start, stop, 1)).collect()
            }
        }
    }

    /// The slices along an axis, without it. Views.
    ///
    /// ```
    /// use hesper::array;
    /// let columns = array![[1, 2], [3, 4]].unstack(1)?;
    /// assert_eq!((columns.len(), columns[1].to_vec::<i32>()?), (2, vec![2, 4]));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn unstack(&self, along: isize) -> Result<Vec<Array>> {
        let at = axis("unstack", along, self.ndim())?;
        (0..self.shape()[at] as isize).map(|k| self.slice_axis(at, k, k + 1, 1)?.squeeze(at)).collect()
    }

    /// Repeats the array along each axis. If `reps` has fewer elements than there are axes, they are for the
    /// last axes.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 2].tile(&[2, 2])?.shape(), [2, 4]);
    /// assert_eq!(array![1, 2].tile(&[2])?.to_vec::<i32>()?, [1, 2, 1, 2]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn tile(&self, reps: &[usize]) -> Result<Array> {
        let rank = self.ndim().max(reps.len());
        let missing = rank - self.ndim();
        // Each axis that is repeated becomes an axis of repetitions and the axis itself.
        let (mut split, mut repeated, mut joined) =
            (Signed::new(), SmallVec::<[usize; 12]>::new(), Signed::new());
        for at in 0..rank {
            let length = at.checked_sub(missing).map_or(1, |at| self.shape()[at]);
            let times = (at + reps.len()).checked_sub(rank).map_or(1, |at| reps[at]);
            if times != 1 {
                split.push(1);
                repeated.push(times);
            }
            split.push(length as isize);
            repeated.push(length);
            let joint = times.checked_mul(length).and_then(|x| isize::try_from(x).ok());
            joined.push(joint.ok_or_else(|| crate::Error::TooLarge { shape: vec![times, length] })?);
        }
        self.reshape(&split)?.broadcast_to(&repeated)?.reshape(&joined)
    }

    /// Repeats each element along an axis, or of the flattened array.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 2].repeat(2, None)?.to_vec::<i32>()?, [1, 1, 2, 2]);
    /// assert_eq!(array![[1, 2]].repeat(3, 0)?.shape(), [3, 2]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn repeat(&self, times: usize, along: impl Into<Option<isize>>) -> Result<Array> {
        let Some(along) = along.into() else { return self.flatten(0, -1)?.repeat(times, Some(0)) };
        let at = axis("repeat", along, self.ndim())?;
        let mut repeated: SmallVec<[usize; 6]> = self.shape().into();
        repeated.insert(at + 1, times);
        let mut joined = signed(self.shape());
        joined[at] = self.shape()[at]
            .checked_mul(times)
            .and_then(|x| isize::try_from(x).ok())
            .ok_or_else(|| Error::TooLarge { shape: vec![self.shape()[at], times] })?;
        self.expand_dims(at as isize + 1)?.broadcast_to(&repeated)?.reshape(&joined)
    }

    /// Shifts the elements along axes; those that leave at one end enter at the other. There is a shift for
    /// each axis, or one for all. With `()` for axes, the flattened array is shifted by the sum of the
    /// shifts.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 2, 3, 4].roll(&[1], 0)?.to_vec::<i32>()?, [4, 1, 2, 3]);
    /// assert_eq!(array![[1, 2], [3, 4]].roll(&[-1], 1)?.to_vec::<i32>()?, [2, 1, 4, 3]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn roll(&self, shifts: &[isize], along: impl Into<Axes>) -> Result<Array> {
        let Some(along) = along.into().without_keepdims("roll")? else {
            let shift = shifts.iter().copied().fold(0isize, isize::wrapping_add);
            return self.flatten(0, -1)?.roll(&[shift], 0)?.reshape(self.shape());
        };
        if shifts.len() < along.len() && shifts.len() != 1 {
            let what = format!(
                "{} shifts do not fit {} axes; give one, or one for each axis",
                shifts.len(),
                along.len()
            );
            return Err(Error::shape("roll", what).with_shapes([self]));
        }
        let mut rolled = self.clone();
        for (number, one) in along.iter().enumerate() {
            let at = axis("roll", *one, self.ndim())?;
            let length = self.shape()[at] as isize;
            let shift = if shifts.len() == 1 { shifts[0] } else { shifts[number] };
            if length == 0 || shift.rem_euclid(length) == 0 {
                continue;
            }
            let cut = length - shift.rem_euclid(length);
            let (first, last) = (rolled.slice_axis(at, 0, cut, 1)?, rolled.slice_axis(at, cut, length, 1)?);
            rolled = concatenate(&[last, first], at as isize)?;
        }
        Ok(rolled)
    }

    /// Broadcasts all arrays to their common shape.
    ///
    /// ```
    /// use hesper::{Array, array};
    /// let arrays = Array::broadcast_arrays(&[array![1, 2, 3], array![[10], [20]]])?;
    /// assert_eq!(arrays[0].shape(), [2, 3]);
    /// assert_eq!(arrays[1].to_vec::<i32>()?, [10, 10, 10, 20, 20, 20]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn broadcast_arrays(arrays: &[Array]) -> Result<Vec<Array>> {
        let mut shape: crate::Shape = smallvec![];
        for array in arrays {
            shape = broadcast("broadcast_arrays", &shape, array.shape())?;
        }
        arrays.iter().map(|array| array.broadcast_to(&shape)).collect()
    }
}
