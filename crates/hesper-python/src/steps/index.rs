//! Arrays as indices beside numbers and slices: MLX gathers numbers and slices up to the last array with it.

use hesper::shape::broadcast;
use hesper::{Array, Dtype, Index, Range, Shape, Update};

/// An index of one axis.
enum Item {
    /// The first element, the bound, the step, and how many there are.
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
    /// The axes of the index arrays, and how many slices are gathered.
    points: Shape,
    slices: usize,
    /// Whether all gathered slices stand before the arrays; else the arrays' axes are first.
    adjacent: bool,
}

fn slice(start: Option<isize>, stop: Option<isize>, step: isize, length: usize) -> Option<Item> {
    let length = length as isize;
    let place = |bound: isize| if bound < 0 { (bound + length).max(0) } else { bound.min(length) };
    let (start, stop) = (start.map_or(0, place), stop.map_or(length, place));
    let count = if step > 0 && stop > start { ((stop - start) as usize).div_ceil(step as usize) } else { 0 };
    (count > 0).then_some(Item::Slice(start, stop, step, count))
}

impl Layout {
    fn of(array: &Array, indices: &[Index]) -> Option<Self> {
        let named = indices.iter().filter(|one| !matches!(one, Index::NewAxis | Index::Ellipsis)).count();
        let (mut items, mut points, mut new) = (Vec::new(), Shape::new(), Vec::new());
        // Axes of the result so far, but for those of the arrays; the last array or number; how many arrays;
        // whether a slice, or a new axis, stands between arrays.
        let (mut place, mut last, mut arrays) = (0, None, 0);
        let (mut parted, mut behind) = (false, false);
        let whole = |at: usize| Item::Slice(0, array.shape()[at] as isize, 1, array.shape()[at]);
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
                    items.push(slice(*start, *stop, *step, *array.shape().get(at)?)?);
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
        Some(Layout { items, new, gathered: last + 1, points, slices, adjacent: !parted })
    }

    fn rank(&self) -> usize {
        self.points.len() + self.slices
    }

    /// The indices of the gathered axes. Those of an update have all axes.
    fn lists(&self, updated: bool) -> hesper::Result<Vec<Array>> {
        let mut lists = Vec::new();
        let mut seen = 0;
        for item in &self.items[..self.gathered] {
            lists.push(match item {
                Item::Slice(start, stop, step, count) => {
                    let range = Range::Int(*start as i64, *stop as i64, *step as i64);
                    let mut shape = vec![1; self.rank()];
                    shape[if self.adjacent { seen } else { self.points.len() + seen }] = *count as isize;
                    seen += 1;
                    shaped(&Array::arange(range, Some(Dtype::Uint32))?, shape)?
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
            ones.into_iter().chain(vec![1; missing]).chain(own).collect()
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

/// The elements that indices name, if arrays are among them.
pub fn get(array: &Array, indices: &[Index]) -> hesper::Result<Option<Array>> {
    let Some(layout) = Layout::of(array, indices) else { return Ok(None) };
    let lists = aligned(&layout.lists(false)?)?;
    let axes: Vec<isize> = (0..layout.gathered as isize).collect();
    let mut sizes = array.shape().to_vec();
    sizes[..layout.gathered].fill(1);
    let rank = lists[0].ndim();
    let mut found = array.gather(&lists, &axes, &sizes)?;
    found = found.squeeze(axes.iter().map(|axis| axis + rank as isize).collect::<Vec<_>>())?;
    let (mut start, mut stop, mut step) = (vec![0; rank], Vec::new(), vec![1; rank]);
    stop.extend(found.shape()[..rank].iter().map(|length| *length as isize));
    let mut cut = false;
    for (at, item) in layout.items.iter().enumerate().skip(layout.gathered) {
        if let Item::Slice(first, end, by, count) = item {
            cut |= *count != array.shape()[at];
            start.push(*first);
            stop.push(*end);
            step.push(*by);
        }
    }
    if cut {
        found = found.slice(&start, &stop, &step)?;
    }
    if layout.new.is_empty() { Ok(found) } else { found.expand_dims(&layout.new[..]) }.map(Some)
}

/// An update of the elements that indices name, if arrays are among them.
pub fn update(array: &Array, indices: &[Index], value: &Array, how: Update) -> hesper::Result<Option<Array>> {
    let Some(layout) = Layout::of(array, indices) else { return Ok(None) };
    let stepped = |item: &Item| matches!(item, Item::Slice(_, _, step, _) if *step != 1);
    if !layout.new.is_empty() || layout.items[layout.gathered..].iter().any(stepped) {
        return Ok(None);
    }
    let (mut lists, mut axes) = (layout.lists(true)?, Vec::from_iter(0..layout.gathered as isize));
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
    let ones = value.shape().iter().take_while(|length| **length == 1).count();
    let value = value.squeeze((0..ones as isize).collect::<Vec<_>>())?.astype(array.dtype())?;
    let Ok(value) = value.broadcast_to(&target) else { return Ok(None) };
    let shape: Vec<isize> = points.iter().chain(&sizes).map(|length| *length as isize).collect();
    let mut value = value.reshape(&shape)?;
    match how {
        Update::Subtract => value = value.negative()?,
        Update::Divide => value = value.reciprocal()?.astype(array.dtype())?,
        _ => {}
    }
    match how {
        Update::Set => array.scatter(&lists, &value, &axes),
        Update::Add | Update::Subtract => array.scatter_add(&lists, &value, &axes),
        Update::Multiply | Update::Divide => array.scatter_prod(&lists, &value, &axes),
        Update::Max => array.scatter_max(&lists, &value, &axes),
        Update::Min => array.scatter_min(&lists, &value, &axes),
    }
    .map(Some)
}
