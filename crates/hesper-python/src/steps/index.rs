//! Arrays as indices beside numbers and slices: MLX gathers numbers and slices up to the last array with it.
//! Slices alone keep their bounds as they are written.

use hesper::shape::broadcast;
use hesper::{Array, Dtype, Index, Shape, Update};

use super::{check_traced, step};
use crate::primitives::{Argument, float, int};

/// An index of one axis.
enum Item {
    /// The first element, the bound as written, the step, and how many there are.
    Slice(isize, isize, isize, usize),
    Int(usize),
    Array(Array),
}

/// Indices with one item for each axis.
struct Layout {
    items: Vec<Item>,
    /// Where the result has new axes.
    new: Vec<isize>,
    /// How many items are gathered: all up to the last array or number.
    gathered: usize,
    /// The axes of the index arrays, how many slices are gathered, and how many of them stand behind the
    /// arrays.
    points: Shape,
    slices: usize,
    behind: usize,
    /// Whether all gathered slices stand before the arrays; else the arrays' axes are first.
    adjacent: bool,
}

fn slice(start: Option<isize>, stop: Option<isize>, step: isize, length: usize) -> Item {
    let length = length as isize;
    // Bounds from the back, before the first element and behind the last one.
    let (least, most) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let place = |bound: isize| (if bound < 0 { bound + length } else { bound }).clamp(least, most);
    let (first, last) = if step > 0 { (0, length) } else { (length - 1, -length - 1) };
    let (start, end) = (start.map_or(first, place), stop.map_or(place(last), place));
    let count = if (end - start).signum() == step.signum() { (end - start).abs() } else { 0 };
    Item::Slice(start, stop.unwrap_or(last), step, (count as usize).div_ceil(step.unsigned_abs()))
}

impl Item {
    /// Where a slice stops.
    fn end(stop: isize, length: usize) -> isize {
        let length = length as isize;
        (if stop < 0 { stop + length } else { stop }).clamp(-1, length)
    }

    fn is_whole(&self, length: usize) -> bool {
        matches!(self, Item::Slice(0, _, 1, count) if *count == length)
    }
}

impl Layout {
    fn of(array: &Array, indices: &[Index]) -> Option<Self> {
        let named = indices.iter().filter(|one| !matches!(one, Index::NewAxis | Index::Ellipsis)).count();
        let (mut items, mut points, mut new) = (Vec::new(), Shape::new(), Vec::new());
        // Axes of the result so far, but for those of the arrays; the last array or number; how many arrays;
        // whether a slice, or a new axis, stands between arrays.
        let (mut place, mut last, mut arrays) = (0, None, 0);
        let (mut parted, mut behind) = (false, false);
        let whole = |at: usize| slice(None, None, 1, array.shape()[at]);
        for index in indices {
            let at = items.len();
            match index {
                Index::NewAxis => {
                    new.push((last.is_some(), place));
                    behind = last.is_some();
                    place += 1;
                }
                Index::Ellipsis => {
                    let count = array.ndim().checked_sub(named)?;
                    items.extend((at..at + count).map(whole));
                    place += count;
                }
                Index::Slice { start, stop, step } => {
                    let item = slice(*start, *stop, *step, *array.shape().get(at)?);
                    if matches!(item, Item::Slice(.., 0)) {
                        return None;
                    }
                    items.push(item);
                    place += 1;
                }
                Index::Int(index) => {
                    let length = *array.shape().get(at)? as isize;
                    items.push(Item::Int(if *index < 0 { index + length } else { *index } as usize));
                }
                Index::Array(list) if list.size() > 0 => {
                    points = broadcast("index", &points, list.shape()).ok()?;
                    arrays += 1;
                    items.push(Item::Array(list.clone()));
                }
                Index::Array(_) | Index::Mask(_) => return None,
            }
            if matches!(index, Index::Int(_) | Index::Array(_)) {
                if behind {
                    return None;
                }
                parted |= last.is_some_and(|last| last + 1 != at);
                last = Some(at);
            }
        }
        items.extend((items.len()..array.ndim()).map(whole));
        let last = last.filter(|_| arrays > 0 && array.size() > 0 && (!parted || new.is_empty()))?;
        let rank = points.len() as isize;
        let new = new.into_iter().map(|(after, at)| at as isize + if after { rank } else { 0 }).collect();
        let slices = items[..=last].iter().filter(|item| matches!(item, Item::Slice(..))).count();
        Some(Layout { items, new, gathered: last + 1, points, slices, behind: 0, adjacent: !parted })
    }

    fn rank(&self) -> usize {
        self.points.len() + self.slices
    }

    /// The indices of the gathered axes. Those of an update have all axes.
    fn lists(&self, array: &Array, updated: bool) -> hesper::Result<Vec<Array>> {
        let mut lists = Vec::new();
        let mut seen = 0;
        for (at, item) in self.items[..self.gathered].iter().enumerate() {
            lists.push(match item {
                Item::Slice(start, stop, by, count) => {
                    let bounds = [*start, Item::end(*stop, array.shape()[at]), *by];
                    let bounds = bounds.map(|bound| float(bound as f64)).to_vec();
                    let range = step("Arange", bounds, &[], &[*count], Dtype::Uint32)?;
                    let mut shape = vec![1; self.rank()];
                    let before = self.adjacent && seen < self.slices - self.behind;
                    shape[if before { seen } else { self.points.len() + seen }] = *count as isize;
                    seen += 1;
                    shaped(&range, shape)?
                }
                Item::Int(at) => {
                    let number = Array::integer(*at as i64, Dtype::Uint32)?;
                    if self.adjacent && !updated { number } else { self.spread(&number)? }
                }
                Item::Array(list) if self.adjacent && !updated => list.clone(),
                Item::Array(list) => self.spread(list)?,
            });
        }
        Ok(lists)
    }

    /// Indices with axes of length one for the slices.
    fn spread(&self, list: &Array) -> hesper::Result<Array> {
        let (own, ones) = (list.shape().iter().map(|length| *length as isize), vec![1; self.slices]);
        let shape = if self.adjacent {
            let missing = if self.slices > 0 { self.points.len() - list.ndim() } else { 0 };
            let (before, behind) = ones.split_at(self.slices - self.behind);
            let before = before.iter().copied().chain(vec![1; missing]);
            before.chain(own).chain(behind.iter().copied()).collect()
        } else {
            own.chain(ones).collect()
        };
        shaped(list, shape)
    }
}

fn shaped(list: &Array, shape: Vec<isize>) -> hesper::Result<Array> {
    if list.ndim() == shape.len() { Ok(list.clone()) } else { list.reshape(&shape) }
}

/// Indices of one shape and type.
fn aligned(lists: &[Array]) -> hesper::Result<Vec<Array>> {
    let shape =
        lists.iter().try_fold(Shape::new(), |shape, list| broadcast("index", &shape, list.shape()))?;
    let dtype = lists.iter().map(Array::dtype).reduce(Dtype::promote).unwrap_or(Dtype::Uint32);
    lists.iter().map(|list| list.broadcast_to(&shape)?.astype(dtype)).collect()
}

/// An array and those that index it.
fn all<'a>(array: &'a Array, indices: &'a [Index]) -> Vec<&'a Array> {
    let lists = indices.iter().filter_map(|index| match index {
        Index::Array(list) | Index::Mask(list) => Some(list),
        _ => None,
    });
    std::iter::once(array).chain(lists).collect()
}

/// The elements that indices name, if arrays are among them.
pub fn get(array: &Array, indices: &[Index]) -> hesper::Result<Option<Array>> {
    check_traced(&all(array, indices))?;
    let Some(layout) = Layout::of(array, indices) else { return part(array, indices) };
    let lists = aligned(&layout.lists(array, false)?)?;
    let axes: Vec<isize> = (0..layout.gathered as isize).collect();
    let mut sizes = array.shape().to_vec();
    sizes[..layout.gathered].fill(1);
    let rank = lists[0].ndim();
    let found = array.gather(&lists, &axes, &sizes)?;
    let found = found.squeeze(axes.iter().map(|axis| axis + rank as isize).collect::<Vec<_>>())?;
    let points = found.shape()[..rank].iter().map(|length| slice(None, None, 1, *length));
    let rest = layout.items.into_iter().skip(layout.gathered);
    let found = sliced(&found, &points.chain(rest).collect::<Vec<_>>())?;
    if layout.new.is_empty() { Ok(found) } else { found.expand_dims(&layout.new[..]) }.map(Some)
}

/// The bounds of slices of all axes. One element is a slice by a step of one.
fn bounds(items: &[Item]) -> [Argument; 3] {
    let bounds = |item: &Item| match *item {
        Item::Slice(start, _, step, 1) if step > 0 || start == 0 => [start, start + 1, 1],
        Item::Slice(start, _, _, 1) => [start, start - 1, -1],
        Item::Slice(start, stop, step, _) => [start, stop, step],
        _ => [0, 0, 1],
    };
    [0, 1, 2].map(|at| Argument::Shape(items.iter().map(|item| bounds(item)[at] as i64).collect()))
}

fn sliced(array: &Array, items: &[Item]) -> hesper::Result<Array> {
    if items.iter().zip(array.shape()).all(|(item, length)| item.is_whole(*length)) {
        return Ok(array.clone());
    }
    let count = |item: &Item| if let Item::Slice(.., count) = item { *count } else { 1 };
    let shape: Vec<usize> = items.iter().map(count).collect();
    step("Slice", bounds(items).to_vec(), &[array], &shape, array.dtype())
}

/// Slices of all axes, and which axes numbers index.
fn slices(array: &Array, indices: &[Index]) -> Option<(Vec<Item>, Vec<usize>)> {
    let named = indices.iter().filter(|one| !matches!(one, Index::Ellipsis)).count();
    let (mut items, mut numbers) = (Vec::new(), Vec::new());
    for index in indices {
        let at = items.len();
        match index {
            Index::Ellipsis => {
                let count = array.ndim().checked_sub(named)?;
                items.extend((at..at + count).map(|at| slice(None, None, 1, array.shape()[at])));
            }
            Index::Slice { start, stop, step } => {
                items.push(slice(*start, *stop, *step, *array.shape().get(at)?));
            }
            Index::Int(index) => {
                let length = *array.shape().get(at)? as isize;
                let index = if *index < 0 { index + length } else { *index };
                items.push(Item::Slice(index, index + 1, 1, 1));
                numbers.push(at);
            }
            Index::NewAxis | Index::Array(_) | Index::Mask(_) => return None,
        }
    }
    items.extend((items.len()..array.ndim()).map(|at| slice(None, None, 1, array.shape()[at])));
    Some((items, numbers))
}

/// Whether a slice names no element, or has a bound that is written from the back or behind the last element.
fn is_written((item, length): (&Item, &usize)) -> bool {
    match item {
        Item::Slice(_, stop, step, count) => {
            *count == 0 || (*step < 0 && *count == 1) || (*step > 0 && !(0..=*length as isize).contains(stop))
        }
        _ => false,
    }
}

/// The elements that slices and numbers name, where a bound is written from the back, or no element is named.
fn part(array: &Array, indices: &[Index]) -> hesper::Result<Option<Array>> {
    let Some((items, numbers)) = slices(array, indices) else { return Ok(None) };
    if !items.iter().zip(array.shape()).any(is_written) {
        return Ok(None);
    }
    let found = sliced(array, &items)?;
    let numbers: Vec<isize> = numbers.iter().map(|axis| *axis as isize).collect();
    if numbers.is_empty() { Ok(found) } else { found.squeeze(numbers) }.map(Some)
}

/// A value without axes of length one in front, but for the last axis.
fn without_ones(value: &Array) -> hesper::Result<Array> {
    let outer = &value.shape()[..value.ndim().saturating_sub(1)];
    let ones = outer.iter().take_while(|length| **length == 1).count();
    value.squeeze((0..ones as isize).collect::<Vec<_>>())
}

/// A value that is subtracted or divided by is added or multiplied.
fn turned(value: &Array, how: Update) -> hesper::Result<Array> {
    match how {
        Update::Subtract => value.negative(),
        Update::Divide => value.reciprocal(),
        _ => Ok(value.clone()),
    }
}

/// An update of a part that slices and numbers name.
fn update_part(
    array: &Array,
    indices: &[Index],
    value: &Array,
    how: Update,
) -> hesper::Result<Option<Array>> {
    let Some((items, numbers)) = slices(array, indices) else { return Ok(None) };
    let whole = items.iter().zip(array.shape()).all(|(item, length)| item.is_whole(*length));
    let written = match how {
        Update::Subtract | Update::Divide => true,
        _ => items.iter().zip(array.shape()).any(is_written),
    };
    if (!whole || !numbers.is_empty()) && !written {
        return Ok(None);
    }
    let mut value = without_ones(value)?;
    // Axes of numbers behind the first axis of the value.
    let axes = (0..array.ndim()).rev().filter(|axis| !numbers.contains(axis)).take(value.ndim()).last();
    let new: Vec<usize> =
        numbers.into_iter().filter(|axis| axes.is_some_and(|first| *axis > first)).collect();
    if !new.is_empty() {
        let first = array.ndim() - value.ndim() - new.len();
        value = value.expand_dims(new.iter().map(|axis| (axis - first) as isize).collect::<Vec<_>>())?;
    }
    let value = turned(&value, how)?.astype(array.dtype())?;
    let count = |item: &Item| if let Item::Slice(.., count) = item { *count } else { 1 };
    let shape: Vec<usize> = items.iter().map(count).collect();
    let Ok(value) = value.broadcast_to(&shape) else { return Ok(None) };
    if whole {
        return match how {
            Update::Set => Ok(value),
            Update::Add | Update::Subtract => array.add(&value),
            Update::Multiply | Update::Divide => array.multiply(&value),
            Update::Max => array.maximum(&value),
            Update::Min => array.minimum(&value),
        }
        .map(Some);
    }
    let mode = match how {
        Update::Max => 0,
        Update::Min => 1,
        Update::Add | Update::Subtract => 2,
        Update::Multiply | Update::Divide => 3,
        Update::Set => 4,
    };
    let arguments = std::iter::once(int(mode)).chain(bounds(&items)).collect();
    step("SliceUpdate", arguments, &[array, &value], array.shape(), array.dtype()).map(Some)
}

/// Values for the elements that a mask names.
fn update_mask(array: &Array, mask: &Array, value: &Array) -> hesper::Result<Option<Array>> {
    let rest = array.ndim() - mask.ndim();
    let mut value = value.astype(array.dtype())?;
    let reshaped = |x: &Array, shape: &[usize]| {
        step("Reshape", vec![crate::primitives::shape(shape)], &[x], shape, x.dtype())
    };
    if value.ndim() <= rest {
        let missing = rest + 1 - value.ndim();
        let shape: Vec<usize> = vec![1; missing].into_iter().chain(value.shape().iter().copied()).collect();
        value = reshaped(&value, &shape)?;
    }
    if value.ndim() != rest + 1 {
        return Ok(None);
    }
    let points = if value.shape()[0] == 1 { mask.size() } else { value.shape()[0] };
    let shape: Vec<usize> =
        std::iter::once(points).chain(array.shape()[mask.ndim()..].iter().copied()).collect();
    if value.shape() != shape {
        let Ok(whole) = value.broadcast_to(&shape) else { return Ok(None) };
        value = whole;
    }
    let mut mask = mask.clone();
    if rest > 0 {
        let shape: Vec<usize> = mask.shape().iter().copied().chain(vec![1; rest]).collect();
        mask = reshaped(&mask, &shape)?;
        mask = mask.broadcast_to(array.shape())?;
    }
    let inputs = [array.expand_dims(0)?, mask.expand_dims(0)?, value.expand_dims(0)?];
    let refs: Vec<&Array> = inputs.iter().collect();
    let found = step("MaskedScatter", Vec::new(), &refs, inputs[0].shape(), array.dtype())?;
    found.squeeze(0).map(Some)
}

/// An update of the elements that indices name.
pub fn update(array: &Array, indices: &[Index], value: &Array, how: Update) -> hesper::Result<Option<Array>> {
    check_traced(&[&all(array, indices)[..], &[value]].concat())?;
    if let ([Index::Mask(mask)], Update::Set) = (indices, how)
        && mask.ndim() > 0
        && array.shape().starts_with(mask.shape())
    {
        return update_mask(array, mask, value);
    }
    let Some(mut layout) = Layout::of(array, indices) else { return update_part(array, indices, value, how) };
    if !layout.new.is_empty() {
        return Ok(None);
    }
    // Slices by steps are gathered too.
    let stepped = |item: &Item| matches!(item, Item::Slice(_, _, step, _) if *step != 1);
    let gathered = layout.items.iter().rposition(stepped).map_or(0, |at| at + 1).max(layout.gathered);
    let later = &layout.items[layout.gathered..gathered];
    layout.behind = later.iter().filter(|item| matches!(item, Item::Slice(..))).count();
    layout.slices += layout.behind;
    layout.gathered = gathered;
    let (mut lists, mut axes) = (layout.lists(array, true)?, Vec::from_iter(0..layout.gathered as isize));
    let (mut lengths, mut sizes) = (Vec::new(), vec![1; layout.gathered]);
    for (at, item) in layout.items.iter().enumerate().skip(layout.gathered) {
        let Item::Slice(start, _, _, count) = item else { continue };
        if *count != array.shape()[at] {
            let number = [u32::try_from(*start).unwrap_or_default()];
            lists.push(Array::try_from_slice(&number, &vec![1; layout.rank()])?);
            axes.push(at as isize);
        }
        lengths.push(*count);
        sizes.push(*count);
    }
    let lists = aligned(&lists)?;
    let points = lists[0].shape().to_vec();
    let target = [&points[..], &lengths].concat();
    let value = without_ones(value)?;
    let Ok(value) = value.broadcast_to(&target) else { return Ok(None) };
    let shape: Vec<isize> = points.iter().chain(&sizes).map(|length| *length as isize).collect();
    let value = turned(&value.reshape(&shape)?, how)?.astype(array.dtype())?;
    match how {
        Update::Set => array.scatter(&lists, &value, &axes),
        Update::Add | Update::Subtract => array.scatter_add(&lists, &value, &axes),
        Update::Multiply | Update::Divide => array.scatter_prod(&lists, &value, &axes),
        Update::Max => array.scatter_max(&lists, &value, &axes),
        Update::Min => array.scatter_min(&lists, &value, &axes),
    }
    .map(Some)
}
