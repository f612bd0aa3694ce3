//! Indexing: `x[...]` and its updates, with NumPy's rules.
//!
//! [`s!`](crate::s) writes a list of [`Index`]es, which is normalized: for each axis of the array a slice or an
//! array of indices, and new axes in between. Slices are views; arrays of indices become one gather, or one
//! scatter. The axes of index arrays stand at the first of them, or in front if anything but an index array
//! or a number separates them.

use smallvec::{SmallVec, smallvec};

use super::gather::{check_indices, smallvec_of};
use super::slices::fit;
use super::update_mode::UpdateMode;
use crate::error::{Error, Result};
use crate::graph::scope::{is_noted, is_varied};
use crate::graph::{Array, State};
use crate::ops::source::stop_gradient;
use crate::shape::{Shape, signed};
use crate::{Category, Dtype, Operand, select};

/// One part of an index.
#[derive(Debug, Clone)]
pub enum Index {
    /// Elements from `start` up to `stop` by `step`; bounds may count from the back or be left out.
    Slice {
        /// The first element.
        start: Option<isize>,
        /// The element behind the last.
        stop: Option<isize>,
        /// The distance of elements; may be negative.
        step: isize,
    },
    /// One element; the axis goes.
    Int(isize),
    /// An axis of length one.
    NewAxis,
    /// As many whole axes as are left over.
    Ellipsis,
    /// Elements at indices.
    Array(Array),
    /// Elements where a mask of bools is true. Its size depends on the data: the mask is evaluated.
    Mask(Array),
}

impl Index {
    /// A whole axis.
    ///
    /// ```
    /// use hesper::{Index, array};
    /// let x = array![[1, 2], [3, 4]];
    /// assert_eq!(x.index(&[Index::all(), Index::Int(1)])?.to_vec::<i32>()?, [2, 4]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn all() -> Self {
        Index::Slice { start: None, stop: None, step: 1 }
    }

    /// Every `step`-th element between bounds.
    ///
    /// ```
    /// use hesper::{Index, array};
    /// let x = array![1, 2, 3, 4, 5];
    /// assert_eq!(x.index(&[Index::slice(None, None, -2)])?.to_vec::<i32>()?, [5, 3, 1]);
    /// assert_eq!(x.index(&[Index::slice(1, -1, 1)])?.to_vec::<i32>()?, [2, 3, 4]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn slice(start: impl Into<Option<isize>>, stop: impl Into<Option<isize>>, step: isize) -> Self {
        Index::Slice { start: start.into(), stop: stop.into(), step }
    }
}

/// What an update does with the elements it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// Replaces them; where updates meet, the last one stays.
    Set,
    /// Adds to them.
    Add,
    /// Subtracts from them.
    Subtract,
    /// Multiplies them.
    Multiply,
    /// Multiplies them by the reciprocal.
    Divide,
    /// Keeps the larger one.
    Max,
    /// Keeps the smaller one.
    Min,
}

/// An index counted from the front, of an axis whose length is known.
pub fn host_index(op: &str, index: isize, length: usize) -> Result<usize> {
    let from_front = if index < 0 { index.saturating_add(length as isize) } else { index };
    if from_front < 0 || from_front as usize >= length {
        let what = format!("index {index} is out of range for an axis of length {length}");
        return Err(Error::value(op, what));
    }
    Ok(from_front as usize)
}

/// One part of the common form.
pub enum Item {
    /// First element, stop, step, and how many there are.
    Slice(isize, isize, isize, usize),
    Int(usize),
    New,
    Array(Array),
}

type Items = SmallVec<[Item; 6]>;

/// An index in its common form.
pub struct Form {
    items: Items,
    /// Whether there are arrays of indices, and numbers count as such.
    gathers: bool,
    /// The common shape of the index arrays.
    points: Shape,
    /// Whether the axes of the index arrays stand in place of the first of them; else first of all.
    in_place: bool,
    /// How many axes of slices stand before those of the index arrays.
    before: usize,
    /// The shape of the indexed array.
    shape: Shape,
}

impl Form {
    fn of(op: &str, array: &Array, indices: &[Index]) -> Result<Self> {
        let mut items = Items::new();
        let used = |index: &Index| match index {
            Index::NewAxis | Index::Ellipsis => 0,
            Index::Mask(mask) => mask.ndim(),
            _ => 1,
        };
        let count: usize = indices.iter().map(used).sum();
        let ellipses = indices.iter().filter(|index| matches!(index, Index::Ellipsis)).count();
        if count > array.ndim() || ellipses > 1 {
            let what = if ellipses > 1 { "more than one ellipsis" } else { "too many indices" };
            return Err(Error::shape(op, format!("{what} for an array of shape {:?}", array.shape()))
                .with_shapes([array]));
        }
        let mut axis = 0;
        let whole = |items: &mut Items, axis: &mut usize, count: usize| {
            for _ in 0..count {
                let length = array.shape()[*axis];
                items.push(Item::Slice(0, length as isize, 1, length));
                *axis += 1;
            }
        };
        for index in indices {
            match index {
                Index::Ellipsis => whole(&mut items, &mut axis, array.ndim() - count),
                Index::NewAxis => items.push(Item::New),
                Index::Int(index) => {
                    items.push(Item::Int(host_index(op, *index, array.shape()[axis])?));
                    axis += 1;
                }
                Index::Slice { start, stop, step } => {
                    items.push(bounds(op, *start, *stop, *step, array.shape()[axis])?);
                    axis += 1;
                }
                Index::Array(list) => {
                    check_indices(op, list)?;
                    items.push(match known(list) {
                        Some(index) => Item::Int(host_index(op, index, array.shape()[axis])?),
                        None => Item::Array(list.clone()),
                    });
                    axis += 1;
                }
                Index::Mask(mask) => {
                    if mask.dtype() != Dtype::Bool || mask.ndim() == 0 {
                        let what = "a mask must have axes and be of bools, and is an array".into();
                        return Err(Error::Type { op: op.into(), what, dtype: mask.dtype() });
                    }
                    if mask.shape() != &array.shape()[axis..axis + mask.ndim()] {
                        let what = format!(
                            "a mask of shape {:?} from axis {axis} of an array of shape {:?}",
                            mask.shape(),
                            array.shape()
                        );
                        return Err(Error::shape(op, what).with_shapes([array, mask]));
                    }
                    items.extend(mask.nonzero()?.into_iter().map(Item::Array));
                    axis += mask.ndim();
                }
            }
        }
        let rest = array.ndim() - axis;
        whole(&mut items, &mut axis, rest);
        Form::place(op, array, items)
    }

    /// Finds the shape of the result, and where the axes of index arrays stand.
    fn place(op: &str, array: &Array, mut items: Items) -> Result<Self> {
        let gathers = items.iter().any(|item| matches!(item, Item::Array(_)));
        if gathers {
            for item in &mut items {
                if let Item::Int(index) = item {
                    *item = Item::Array(Array::integer(*index as i64, Dtype::Int64)?);
                }
            }
        }
        let (mut points, mut empty) = (Shape::new(), None);
        for (axis, item) in items.iter().filter(|item| !matches!(item, Item::New)).enumerate() {
            if let Item::Array(list) = item {
                points = crate::shape::broadcast(op, &points, list.shape())?;
                empty = empty.or((array.shape()[axis] == 0).then_some(axis));
            }
        }
        let arrays: SmallVec<[usize; 6]> =
            (0..items.len()).filter(|at| matches!(items[*at], Item::Array(_))).collect();
        let adjacent = arrays.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let first = arrays.first().copied().filter(|_| adjacent);
        let before = items[..first.unwrap_or(0)].iter().filter(|item| !matches!(item, Item::New)).count();
        let mut shape = Shape::new();
        if gathers && first.is_none() {
            shape.extend_from_slice(&points);
        }
        for (at, item) in items.iter().enumerate() {
            match item {
                Item::Slice(.., length) => shape.push(*length),
                Item::New => shape.push(1),
                Item::Array(_) if first == Some(at) => shape.extend_from_slice(&points),
                Item::Array(_) | Item::Int(_) => {}
            }
        }
        if let Some(axis) = empty
            && !shape.contains(&0)
        {
            let what = format!("axis {axis} of shape {:?} has no elements", array.shape());
            return Err(Error::value(op, what));
        }
        Ok(Form { items, gathers, points, in_place: adjacent, before, shape })
    }

    /// The slice without the axes of numbers and with the new ones, so that a trace notes which these are.
    fn with_axes(&self, slice: &Array) -> Result<Array> {
        let [numbers, new] = self.changed_axes();
        slice.squeeze(&numbers[..])?.expand_dims(&new[..])
    }

    /// The other way round: a value for the result as a value for the slice, whose shape is `target`.
    /// Numbers in front are axes that it is broadcast to.
    fn without_axes(&self, value: &Array, target: &[usize]) -> Result<Array> {
        let [numbers, new] = self.changed_axes();
        let value = value.squeeze(&new[..])?;
        let leading = numbers.iter().zip(0..).take_while(|(axis, at)| **axis == *at).count();
        let rest: SmallVec<[isize; 6]> =
            numbers[leading..].iter().map(|axis| axis - leading as isize).collect();
        value.expand_dims(&rest[..])?.broadcast_to(target)
    }

    /// The axes of the slice that are numbers, and those of the result that are new.
    fn changed_axes(&self) -> [SmallVec<[isize; 6]>; 2] {
        let (mut lists, mut from, mut to): ([SmallVec<[isize; 6]>; 2], isize, isize) = Default::default();
        for item in &self.items {
            match item {
                Item::Int(_) => lists[0].push(from),
                Item::New => lists[1].push(to),
                Item::Slice(..) | Item::Array(_) => {}
            }
            from += isize::from(!matches!(item, Item::New));
            to += isize::from(!matches!(item, Item::Int(_)));
        }
        lists
    }

    /// Start, stop and step along each axis; arrays of indices leave theirs whole.
    fn slices(&self, array: &Array) -> [SmallVec<[isize; 6]>; 3] {
        let mut lists: [SmallVec<[isize; 6]>; 3] = Default::default();
        let mut axis = 0;
        for item in &self.items {
            let [start, stop, step] = match item {
                Item::New => continue,
                Item::Slice(start, stop, step, _) => [*start, *stop, *step],
                Item::Int(index) => [*index as isize, *index as isize + 1, 1],
                Item::Array(_) => [0, array.shape()[axis] as isize, 1],
            };
            axis += 1;
            lists[0].push(start);
            lists[1].push(stop);
            lists[2].push(step);
        }
        lists
    }
}

/// A slice's bounds, so that [`Array::slice`] takes them as they are.
fn bounds(op: &str, start: Option<isize>, stop: Option<isize>, step: isize, length: usize) -> Result<Item> {
    if step == 0 {
        return Err(Error::value(op, "the step of a slice is zero"));
    }
    let length = length as isize;
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let place = |bound: Option<isize>, default: isize| match bound {
        None => default,
        Some(bound) if bound < 0 => bound.saturating_add(length).clamp(low, high),
        Some(bound) => bound.clamp(low, high),
    };
    let (from, to) = if step > 0 { (low, high) } else { (high, low) };
    let (start, stop) = (place(start, from), place(stop, to));
    let span = if step > 0 { stop - start } else { start - stop };
    let count = if span > 0 { (span as usize).div_ceil(step.unsigned_abs()) } else { 0 };
    if count == 0 {
        return Ok(Item::Slice(0, 0, 1, 0));
    }
    // The place before the first element, seen from the back.
    let stop = if stop < 0 { -length - 1 } else { stop };
    Ok(Item::Slice(start, stop, step, count))
}

/// The value of an index that the host knows.
fn known(list: &Array) -> Option<isize> {
    let State::Known(element) = &*list.state() else { return None };
    let wide = i64::from_ne_bytes(element.0);
    Some(match list.dtype() {
        Dtype::Uint8 => wide as u8 as isize,
        Dtype::Uint16 => wide as u16 as isize,
        Dtype::Uint32 => wide as u32 as isize,
        Dtype::Int8 => wide as i8 as isize,
        Dtype::Int16 => wide as i16 as isize,
        Dtype::Int32 => wide as i32 as isize,
        Dtype::Uint64 => isize::try_from(wide as u64).unwrap_or(isize::MAX),
        _ => wide as isize,
    })
}

impl Array {
    /// The elements that a list of indices names, by NumPy's rules.
    ///
    /// ```
    /// use hesper::{Array, array, s};
    /// let x = Array::try_from_slice(&(0..24).collect::<Vec<i32>>(), &[2, 3, 4])?;
    /// let y = x.index(s![.., array![2, 0], ::-2])?;
    /// assert_eq!(y.shape(), [2, 2, 2]);
    /// assert_eq!(y.to_vec::<i32>()?, [11, 9, 3, 1, 23, 21, 15, 13]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    ///
    /// Numbers that are out of range are errors. In arrays, whose values are not known here, they are
    /// moved to the nearest element.
    pub fn index(&self, indices: impl AsRef<[Index]>) -> Result<Array> {
        let form = Form::of("index", self, indices.as_ref())?;
        let [start, stop, step] = form.slices(self);
        let whole = step.iter().all(|step| *step == 1)
            && start.iter().zip(&stop).zip(self.shape()).all(|((a, b), n)| (*a, *b) == (0, *n as isize));
        let slice = if whole { self.clone() } else { self.slice(&start, &stop, &step)? };
        if !form.gathers {
            return if is_noted() { form.with_axes(&slice) } else { slice.reshape(&form.shape) };
        }
        let mut sizes = slice.0.shape.clone();
        let (mut lists, mut axes) = (Vec::new(), SmallVec::new());
        for (axis, item) in form.items.iter().filter(|item| !matches!(item, Item::New)).enumerate() {
            if let Item::Array(list) = item {
                sizes[axis] = 1;
                lists.push(list.clone());
                axes.push(axis);
            }
        }
        if form.shape.contains(&0) {
            return Array::from_bytes(&[], self.dtype(), &form.shape);
        }
        let removed: SmallVec<[isize; 6]> = axes.iter().map(|at| (at + form.points.len()) as isize).collect();
        let gathered = slice.gather_at(&lists, axes, sizes, form.before)?;
        if is_noted() && !form.items.iter().any(|item| matches!(item, Item::New)) {
            return gathered.squeeze(&removed[..]);
        }
        gathered.reshape(&form.shape)
    }

    /// The array with the elements that a list of indices names updated by `value`, which is converted to
    /// the array's type and broadcast to the shape of [`index`](Array::index).
    ///
    /// ```
    /// use hesper::{Update, array, s};
    /// let x = array![0.0, 0.0, 0.0];
    /// let y = x.index_update(s![array![1, 1]], 2.5, Update::Add)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 5.0, 0.0]);
    /// assert_eq!(x.index_update(s![1..], 7, Update::Set)?.to_vec::<f32>()?, [0.0, 7.0, 7.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn index_update(
        &self,
        indices: impl AsRef<[Index]>,
        value: impl Into<Operand>,
        update: Update,
    ) -> Result<Array> {
        let indices = indices.as_ref();
        let value = value.into().beside(self)?.astype(self.dtype())?;
        if let [Index::Mask(mask)] = indices
            && mask.ndim() == 0
        {
            // The mask is for the whole array.
            return select(mask, &self.index_update([Index::Ellipsis], value, update)?, self);
        }
        let (mode, value) = match update {
            Update::Set => (UpdateMode::Set, value),
            Update::Add => (UpdateMode::Add, value),
            Update::Subtract => (UpdateMode::Add, value.negative()?),
            Update::Multiply => (UpdateMode::Multiply, value),
            Update::Divide => {
                let one = Array::scalar(1.0, self.dtype())?;
                (UpdateMode::Multiply, one.divide(&value)?.astype(self.dtype())?)
            }
            Update::Max => (UpdateMode::Max, value),
            Update::Min => (UpdateMode::Min, value),
        };
        if let ([Index::Mask(mask)], UpdateMode::Set, 1) = (indices, mode, value.size())
            && mask.shape() == self.shape().get(..mask.ndim()).unwrap_or_default()
            && !self.dtype().is(Category::Complex)
        {
            // One value for all: the mask need not be evaluated.
            let mut shape = signed(mask.shape());
            shape.extend(smallvec_of(1, self.ndim() - mask.ndim()));
            return select(&mask.reshape(&shape)?, &value.reshape::<isize>(&[])?, self);
        }
        if let ([Index::Mask(mask)], UpdateMode::Set) = (indices, mode)
            && is_varied(std::slice::from_ref(mask))
        {
            return self.masked_update(mask, &value);
        }
        let form = Form::of("index_update", self, indices)?;
        let number = Some(&value).filter(|value| value.ndim() == 0).cloned();
        let value = match (indices, value.shape(), &form.shape[..]) {
            // A mask takes as many rows as it selects.
            ([Index::Mask(_)], [given, rest @ ..], [count, own @ ..]) if given > count && rest == own => {
                let steps: SmallVec<[isize; 6]> = smallvec_of(1, value.ndim());
                let stop = signed(&form.shape);
                value.slice(&steps.iter().map(|_| 0).collect::<Vec<_>>(), &stop, &steps)?
            }
            _ => value,
        };
        let value = fit("index_update", &value, &form.shape)?;
        if value.size() == 0 {
            return Ok(self.clone());
        }
        if form.gathers {
            return self.scatter_form(&form, mode, value);
        }
        let [start, stop, step] = form.slices(self);
        let target: Shape = form
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Slice(.., length) => Some(*length),
                Item::Int(_) => Some(1),
                _ => None,
            })
            .collect();
        let value = match number {
            Some(number) => number.broadcast_to(&target)?,
            None if is_noted() => form.without_axes(&value, &target)?,
            None => value.reshape(&target)?,
        };
        self.slice_update_by(mode, &value, &start, &stop, &step)
    }

    /// The rows that a mask selects, replaced by the rows of `value` in order, or all by one. The mask has no
    /// values yet: each row looks up how many were selected before it.
    fn masked_update(&self, mask: &Array, value: &Array) -> Result<Array> {
        let rest = &self.shape()[mask.ndim()..];
        let mut whole = signed(mask.shape());
        whole.extend(smallvec_of(1, rest.len()));
        let condition = mask.reshape(&whole)?;
        let one_for_all = value.ndim() <= rest.len() || value.shape()[0] == 1;
        if one_for_all {
            return select(&condition, &fit("index_update", value, rest)?, self);
        }
        if value.shape()[1..] != *rest || value.shape()[0] == 0 {
            let what = format!(
                "an update of shape {:?} for rows of shape {rest:?} that a mask of shape {:?} selects",
                value.shape(),
                mask.shape()
            );
            return Err(Error::shape("index_update", what).with_shapes([self, mask, value]));
        }
        let before = mask.reshape(&[-1])?.astype(Dtype::Int32)?.cumsum(0, false, true)?.subtract(1)?;
        let last = value.shape()[0] as i64 - 1;
        let places = stop_gradient(&before.clip(Some(0), Some(last))?)?;
        select(&condition, &value.take(places, 0)?.reshape(self.shape())?, self)
    }

    /// An update through index arrays as one scatter. A slice by steps of one is an offset and a size;
    /// any other is an index array with an axis of its own.
    fn scatter_form(&self, form: &Form, mode: UpdateMode, value: Array) -> Result<Array> {
        let rank = form.points.len();
        let (mut lists, mut axes) = (Vec::new(), SmallVec::<[isize; 6]>::new());
        let mut stepped: Vec<(usize, Vec<i64>)> = Vec::new();
        let mut sizes: SmallVec<[isize; 6]> = SmallVec::new();
        // Where each slice stands in the value.
        let mut place = 0;
        let first = form.items.iter().position(|item| matches!(item, Item::Array(_)));
        let (mut ahead, mut stepped_at, mut whole_at, mut new_at) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        if !form.in_place {
            ahead.extend(0..rank);
            place = rank;
        }
        let mut axis = 0isize;
        for (at, item) in form.items.iter().enumerate() {
            match item {
                Item::New => {
                    new_at.push(place);
                    place += 1;
                    continue;
                }
                Item::Array(list) => {
                    if form.in_place && first == Some(at) {
                        ahead.extend(place..place + rank);
                        place += rank;
                    }
                    lists.push(list.clone());
                    axes.push(axis);
                    sizes.push(1);
                }
                Item::Slice(start, _, 1, length) => {
                    if *length != self.shape()[axis as usize] {
                        lists.push(Array::integer(*start as i64, Dtype::Int64)?);
                        axes.push(axis);
                    }
                    whole_at.push(place);
                    place += 1;
                    sizes.push(*length as isize);
                }
                Item::Slice(start, _, step, length) => {
                    let elements = (0..*length as isize).map(|k| (start + k * step) as i64).collect();
                    stepped.push((lists.len(), elements));
                    // Its place among the lists is filled below, when the number of axes is known.
                    lists.push(Array::integer(0, Dtype::Int64)?);
                    axes.push(axis);
                    stepped_at.push(place);
                    place += 1;
                    sizes.push(1);
                }
                Item::Int(_) => {
                    return Err(Error::value("index_update", "internal error: an integer remains"));
                }
            }
            axis += 1;
        }
        let count = stepped.len();
        for list in &mut lists {
            let mut shape = signed(list.shape());
            if !shape.is_empty() {
                shape.extend(smallvec_of(1, count));
                *list = list.reshape(&shape)?;
            }
        }
        for (number, (at, elements)) in stepped.into_iter().enumerate() {
            let mut shape: SmallVec<[usize; 6]> = smallvec![1; count - number];
            shape[0] = elements.len();
            lists[at] = Array::try_from_slice(&elements, &shape)?;
        }
        let order: SmallVec<[isize; 6]> = ahead
            .iter()
            .chain(&stepped_at)
            .chain(&whole_at)
            .chain(&new_at)
            .map(|place| *place as isize)
            .collect();
        let moved = order.iter().enumerate().any(|(at, place)| at as isize != *place);
        let value = if moved { value.transpose(&order)? } else { value };
        let mut shape = signed(&value.shape()[..rank + count]);
        shape.extend(sizes);
        self.scatter_by(mode, &lists, &value.reshape(&shape)?, &axes)
    }

    /// The elements where `mask` is true, as the first axis. Its length depends on the data: the mask is
    /// evaluated.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[3, -1], [-2, 4]];
    /// assert_eq!(x.masked_select(&x.greater(0)?)?.to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn masked_select(&self, mask: &Array) -> Result<Array> {
        self.index([Index::Mask(mask.clone())])
    }

    /// For each axis, the places of the elements that are not zero, in order. Their number depends on
    /// the data: the array is evaluated.
    ///
    /// ```
    /// use hesper::array;
    /// let places = array![[0, 7], [8, 0]].nonzero()?;
    /// assert_eq!(places[0].to_vec::<i64>()?, [0, 1]); // rows
    /// assert_eq!(places[1].to_vec::<i64>()?, [1, 0]); // columns
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn nonzero(&self) -> Result<Vec<Array>> {
        let shape = self.shape();
        let mut places: Vec<Vec<i64>> = vec![Vec::new(); shape.len()];
        self.astype(Dtype::Bool)?.read_bytes(|bytes| {
            for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
                let mut rest = at;
                for axis in (0..shape.len()).rev() {
                    places[axis].push((rest % shape[axis]) as i64);
                    rest /= shape[axis];
                }
            }
        })?;
        places.iter().map(|list| Array::try_from_slice(list, &[list.len()])).collect()
    }
}
