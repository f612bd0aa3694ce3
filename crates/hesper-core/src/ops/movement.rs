//! Axes and elements in other places: compositions of views, joins and gathers.

use smallvec::{SmallVec, smallvec};

use super::concat::concatenate;
use super::gather::smallvec_of;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::shape::{axes, axis, broadcast, signed};

type Signed = SmallVec<[isize; 6]>;

/// Where [`Array::split`] cuts.
#[derive(Debug, Clone, Copy)]
pub enum Split<'a> {
    /// Into so many parts of one size.
    Sections(usize),
    /// Before these elements.
    Indices(&'a [isize]),
}

impl Array {
    /// An axis moved to another place; the others keep their order.
    pub fn moveaxis(&self, source: isize, destination: isize) -> Result<Array> {
        let from = axis("moveaxis", source, self.ndim())?;
        let to = axis("moveaxis", destination, self.ndim())?;
        let mut order: Signed = (0..self.ndim() as isize).collect();
        let moved = order.remove(from);
        order.insert(to, moved);
        self.transpose(&order)
    }

    /// Two axes exchanged.
    pub fn swapaxes(&self, a: isize, b: isize) -> Result<Array> {
        let (a, b) = (axis("swapaxes", a, self.ndim())?, axis("swapaxes", b, self.ndim())?);
        let mut order: Signed = (0..self.ndim() as isize).collect();
        order.swap(a, b);
        self.transpose(&order)
    }

    /// Without axes of length one: those named, or all.
    pub fn squeeze(&self, which: Option<&[isize]>) -> Result<Array> {
        let gone = match which {
            Some(which) => axes("squeeze", which, self.ndim())?,
            None => (0..self.ndim()).filter(|at| self.shape()[*at] == 1).collect(),
        };
        if let Some(at) = gone.iter().find(|at| self.shape()[**at] != 1) {
            let what = format!("axis {at} of an array of shape {:?} is not of length one", self.shape());
            return Err(Error::shape("squeeze", what));
        }
        let shape: Signed =
            (0..self.ndim()).filter(|at| !gone.contains(at)).map(|at| self.shape()[at] as isize).collect();
        self.reshape(&shape)
    }

    /// With axes of length one, at these places of the result.
    pub fn expand_dims(&self, places: &[isize]) -> Result<Array> {
        let rank = self.ndim() + places.len();
        let new = axes("expand_dims", places, rank)?;
        let mut old = self.shape().iter();
        let shape: Signed = (0..rank)
            .map(|at| if new.contains(&at) { 1 } else { old.next().map_or(1, |length| *length as isize) })
            .collect();
        self.reshape(&shape)
    }

    /// The axes from `start` to `end`, both included, as one. Axes beyond the ends are moved to them.
    pub fn flatten(&self, start: isize, end: isize) -> Result<Array> {
        if self.ndim() == 0 {
            return self.reshape(&[1]);
        }
        let rank = self.ndim() as isize;
        let wrap = |axis: isize| if axis < 0 { axis.saturating_add(rank) } else { axis };
        let (from, to) = (wrap(start).max(0), wrap(end).min(rank - 1));
        if to < from {
            let what = format!("axes {start} to {end} of an array of shape {:?}", self.shape());
            return Err(Error::shape("flatten", what));
        }
        let (from, to) = (from as usize, to as usize);
        let mut shape = signed(&self.shape()[..from]);
        shape.push(self.shape()[from..=to].iter().product::<usize>() as isize);
        shape.extend(signed(&self.shape()[to + 1..]));
        self.reshape(&shape)
    }

    /// An axis as several; one of their lengths may be -1.
    pub fn unflatten(&self, along: isize, lengths: &[isize]) -> Result<Array> {
        let at = axis("unflatten", along, self.ndim())?;
        let length = self.shape()[at];
        let fail = || {
            let what = format!("axis {along} of length {length} has no shape {lengths:?}");
            Err(Error::shape("unflatten", what))
        };
        let known: usize = lengths.iter().filter(|x| **x >= 0).map(|x| *x as usize).product();
        let open = lengths.iter().filter(|x| **x == -1).count();
        let rest = if open == 1 && known > 0 { length / known } else { 1 };
        if lengths.is_empty() || open > 1 || lengths.iter().any(|x| *x < -1) || known * rest != length {
            return fail();
        }
        let mut shape = signed(&self.shape()[..at]);
        shape.extend(lengths.iter().map(|x| if *x == -1 { rest as isize } else { *x }));
        shape.extend(signed(&self.shape()[at + 1..]));
        self.reshape(&shape)
    }

    /// With at least one axis.
    pub fn atleast_1d(&self) -> Result<Array> {
        if self.ndim() == 0 { self.reshape(&[1]) } else { Ok(self.clone()) }
    }

    /// With at least two axes; a row is one row of a matrix.
    pub fn atleast_2d(&self) -> Result<Array> {
        match self.ndim() {
            0 | 1 => self.reshape(&[1, self.size() as isize]),
            _ => Ok(self.clone()),
        }
    }

    /// With at least three axes; a row is the middle axis, a matrix the first two.
    pub fn atleast_3d(&self) -> Result<Array> {
        match self.ndim() {
            0 | 1 => self.reshape(&[1, self.size() as isize, 1]),
            2 => self.expand_dims(&[2]),
            _ => Ok(self.clone()),
        }
    }

    /// A slice along one axis.
    pub fn slice_axis(&self, along: usize, start: isize, stop: isize, step: isize) -> Result<Array> {
        let mut bounds = [smallvec_of(0, self.ndim()), signed(self.shape()), smallvec_of(1, self.ndim())];
        (bounds[0][along], bounds[1][along], bounds[2][along]) = (start, stop, step);
        self.slice(&bounds[0], &bounds[1], &bounds[2])
    }

    /// The elements in reverse order along axes, or along all. A view.
    pub fn flip(&self, along: Option<&[isize]>) -> Result<Array> {
        let all: Signed = (0..self.ndim() as isize).collect();
        let mut flipped = self.clone();
        let mut done: SmallVec<[usize; 6]> = SmallVec::new();
        for one in along.unwrap_or(&all) {
            let at = axis("flip", *one, self.ndim())?;
            if !done.contains(&at) {
                done.push(at);
                let length = self.shape()[at] as isize;
                flipped = flipped.slice_axis(at, -1, -length - 1, -1)?;
            }
        }
        Ok(flipped)
    }

    /// Parts along an axis. Views.
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
                    let what = format!("{count} equal parts of axis {at} of shape {:?}", self.shape());
                    return Err(Error::shape("split", what));
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

    /// The parts of length one along an axis, without it. Views.
    pub fn unstack(&self, along: isize) -> Result<Vec<Array>> {
        let at = axis("unstack", along, self.ndim())?;
        (0..self.shape()[at] as isize)
            .map(|k| self.slice_axis(at, k, k + 1, 1)?.squeeze(Some(&[at as isize])))
            .collect()
    }

    /// The array so many times along each axis; fewer numbers than axes are for the last ones.
    pub fn tile(&self, reps: &[usize]) -> Result<Array> {
        let rank = self.ndim().max(reps.len());
        let missing = rank - self.ndim();
        // Each axis becomes a new one for the repetitions, and itself.
        let (mut split, mut wide, mut joined) =
            (Signed::new(), SmallVec::<[usize; 12]>::new(), Signed::new());
        for at in 0..rank {
            let length = at.checked_sub(missing).map_or(1, |at| self.shape()[at]);
            let times = (at + reps.len()).checked_sub(rank).map_or(1, |at| reps[at]);
            split.extend([1, length as isize]);
            wide.extend([times, length]);
            let joint = times.checked_mul(length).and_then(|x| isize::try_from(x).ok());
            joined.push(joint.ok_or_else(|| crate::Error::TooLarge { shape: vec![times, length] })?);
        }
        self.reshape(&split)?.broadcast_to(&wide)?.reshape(&joined)
    }

    /// Each element so many times along an axis, or of the array as one row.
    pub fn repeat(&self, times: usize, along: Option<isize>) -> Result<Array> {
        let Some(along) = along else { return self.reshape(&[-1])?.repeat(times, Some(0)) };
        let at = axis("repeat", along, self.ndim())?;
        let mut wide: SmallVec<[usize; 6]> = self.shape().into();
        wide.insert(at + 1, times);
        let mut joined = signed(self.shape());
        joined[at] = self.shape()[at]
            .checked_mul(times)
            .and_then(|x| isize::try_from(x).ok())
            .ok_or_else(|| Error::TooLarge { shape: vec![self.shape()[at], times] })?;
        self.expand_dims(&[at as isize + 1])?.broadcast_to(&wide)?.reshape(&joined)
    }

    /// The elements moved along axes; what leaves at one end enters at the other. Each axis has its
    /// shift, or all have the one given. Without axes, the array is one row for the moment, moved by
    /// the sum of shifts.
    pub fn roll(&self, shifts: &[isize], along: Option<&[isize]>) -> Result<Array> {
        let Some(along) = along else {
            let shift = shifts.iter().copied().fold(0isize, isize::wrapping_add);
            return self.reshape(&[-1])?.roll(&[shift], Some(&[0]))?.reshape(&signed(self.shape()));
        };
        if shifts.len() < along.len() && shifts.len() != 1 {
            let what = format!("{} shifts for {} axes", shifts.len(), along.len());
            return Err(Error::shape("roll", what));
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
            let parts = [rolled.slice_axis(at, cut, length, 1)?, rolled.slice_axis(at, 0, cut, 1)?];
            rolled = concatenate(&parts, at as isize)?;
        }
        Ok(rolled)
    }

    /// All arrays stretched to the shape that they broadcast to.
    pub fn broadcast_arrays(arrays: &[Array]) -> Result<Vec<Array>> {
        let mut shape: crate::Shape = smallvec![];
        for array in arrays {
            shape = broadcast("broadcast_arrays", &shape, array.shape())?;
        }
        arrays.iter().map(|array| array.broadcast_to(&shape)).collect()
    }
}
