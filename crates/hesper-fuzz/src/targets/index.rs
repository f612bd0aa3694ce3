//! Indexing: generated indices of small arrays, read and updated, against NumPy's rules element by element.

use hesper::{Array, Dtype, Index, Update};

use crate::choices::Choices;
use crate::engine::{Target, Verdict};

/// See the [module](self).
pub struct Indexing;

impl Target for Indexing {
    fn name(&self) -> &'static str {
        "index"
    }

    fn about(&self) -> &'static str {
        "indices of any kind, read and updated, against NumPy's rules element by element"
    }

    fn run(&self, input: &[u8]) -> Result<Verdict, String> {
        let case = Case::read(&mut Choices::new(input));
        let error = |error: hesper::Error| error.to_string();
        let array = case.array().map_err(error)?;
        let indices: Vec<Index> =
            case.parts.iter().map(Part::index).collect::<hesper::Result<_>>().map_err(error)?;
        let found = array.index(&indices);
        let Some(expected) = case.reference() else {
            return match found {
                Err(_) => Ok(Verdict::Refused),
                // As in MLX, an array may index an axis without elements where the result has none.
                Ok(array) if array.size() == 0 => Ok(Verdict::Accepted),
                Ok(array) => {
                    Err(format!("an index that NumPy refuses gives an array of shape {:?}", array.shape()))
                }
            };
        };
        let found = found.map_err(|error| format!("refused: {error}"))?;
        compare("index", &found, &expected.shape, expected.sources.iter().map(|at| *at as i32).collect())?;
        case.updates(&array, &indices, &expected)?;
        Ok(Verdict::Accepted)
    }

    fn describe(&self, input: &[u8]) -> String {
        format!("{:#?}", Case::read(&mut Choices::new(input)))
    }
}

fn compare(what: &str, found: &Array, shape: &[usize], expected: Vec<i32>) -> Result<(), String> {
    if found.shape() != shape {
        return Err(format!("{what}: shape {:?} instead of {shape:?}", found.shape()));
    }
    let found = found.to_vec::<i32>().map_err(|error| format!("{what}: {error}"))?;
    if found != expected {
        return Err(format!("{what}: {found:?} instead of {expected:?}"));
    }
    Ok(())
}

/// One part of an index.
#[derive(Debug, Clone)]
enum Part {
    Slice(Option<isize>, Option<isize>, isize),
    Int(isize),
    New,
    Ellipsis,
    List(Vec<usize>, Vec<i32>),
    Mask(Vec<usize>, Vec<bool>),
}

impl Part {
    fn read(choices: &mut Choices<'_>) -> Part {
        let bound = |choices: &mut Choices<'_>| match choices.below(10) {
            0 | 1 => None,
            2 => Some(choices.pick(&[isize::MAX, isize::MIN, isize::MAX - 1, isize::MIN + 1, 1 << 31])),
            _ => Some(choices.below(13) as isize - 6),
        };
        match choices.below(9) {
            0..=2 => {
                let step = match choices.below(12) {
                    0 => isize::MAX,
                    1 => isize::MIN,
                    2 => 0,
                    n => [1, 1, -1, 2, -2, 3, -3, 1, 1][n - 3],
                };
                Part::Slice(bound(choices), bound(choices), step)
            }
            3 | 4 => Part::Int(if choices.one_in(12) {
                choices.pick(&[isize::MAX, isize::MIN])
            } else {
                choices.below(9) as isize - 4
            }),
            5 => Part::New,
            6 => Part::Ellipsis,
            7 => {
                let shape: Vec<usize> = (0..choices.below(3)).map(|_| choices.pick(&[1, 2, 3, 0])).collect();
                let count = shape.iter().product();
                Part::List(shape, (0..count).map(|_| choices.below(11) as i32 - 5).collect())
            }
            _ => {
                let shape: Vec<usize> = (0..1 + choices.below(2)).map(|_| choices.below(5)).collect();
                let count = shape.iter().product();
                Part::Mask(shape, (0..count).map(|_| choices.one_in(2)).collect())
            }
        }
    }

    fn index(&self) -> hesper::Result<Index> {
        Ok(match self {
            Part::Slice(start, stop, step) => Index::slice(*start, *stop, *step),
            Part::Int(at) => Index::Int(*at),
            Part::New => Index::NewAxis,
            Part::Ellipsis => Index::Ellipsis,
            Part::List(shape, list) => Index::Array(Array::try_from_slice(list, shape)?),
            Part::Mask(shape, list) => {
                let bytes: Vec<u8> = list.iter().map(|set| u8::from(*set)).collect();
                Index::Mask(Array::from_bytes(&bytes, Dtype::Bool, shape)?)
            }
        })
    }

    /// The number of axes of the array that it consumes.
    fn axes(&self) -> usize {
        match self {
            Part::New | Part::Ellipsis => 0,
            Part::Mask(shape, _) => shape.len(),
            _ => 1,
        }
    }
}

/// An array and an index of it.
#[derive(Debug)]
struct Case {
    shape: Vec<usize>,
    /// Whether the array is a transposed view.
    transposed: bool,
    parts: Vec<Part>,
    update: Update,
}

/// The expected result of an index: its shape, and the source of each element.
struct Expected {
    shape: Vec<usize>,
    sources: Vec<usize>,
}

/// A part in canonical form: an axis of elements, a new axis, or an index array.
enum CanonicalPart {
    Axis(Vec<usize>),
    New,
    /// The number of the index array.
    List(usize),
}

impl Case {
    fn read(choices: &mut Choices<'_>) -> Case {
        let shape: Vec<usize> = (0..choices.below(5)).map(|_| choices.pick(&[3, 2, 4, 1, 0, 5])).collect();
        let updates =
            [Update::Set, Update::Add, Update::Subtract, Update::Multiply, Update::Max, Update::Min];
        let (transposed, update) = (choices.one_in(3), choices.pick(&updates));
        let mut parts: Vec<Part> = (0..choices.below(6)).map(|_| Part::read(choices)).collect();
        // Make most masks fit the shape.
        let (mut axis, mut open) = (0, true);
        for part in &mut parts {
            open &= !matches!(part, Part::Ellipsis);
            if let (Part::Mask(own, list), true) = (&mut *part, open && choices.below(4) != 3)
                && axis + own.len() <= shape.len()
            {
                *own = shape[axis..axis + own.len()].to_vec();
                list.resize(own.iter().product(), true);
            }
            axis += part.axes();
        }
        Case { shape, transposed, parts, update }
    }

    /// The elements are numbered in row-major order.
    fn array(&self) -> hesper::Result<Array> {
        let size: usize = self.shape.iter().product();
        let list: Vec<i32> = (0..size as i32).collect();
        let plain = Array::try_from_slice(&list, &self.shape)?;
        if !self.transposed {
            return Ok(plain);
        }
        // The same elements, with the memory order reversed.
        plain.t()?.contiguous()?.t()
    }

    /// NumPy's result, except that an out-of-range element of an index array is clamped.
    fn reference(&self) -> Option<Expected> {
        let used: usize = self.parts.iter().map(Part::axes).sum();
        let ellipses = self.parts.iter().filter(|part| matches!(part, Part::Ellipsis)).count();
        let missing = self.shape.len().checked_sub(used)?;
        if ellipses > 1 {
            return None;
        }
        let mut parts: Vec<Part> = Vec::new();
        let whole = || std::iter::repeat_n(Part::Slice(None, None, 1), missing);
        for part in &self.parts {
            match part {
                Part::Ellipsis => parts.extend(whole()),
                other => parts.push(other.clone()),
            }
        }
        if ellipses == 0 {
            parts.extend(whole());
        }
        let gathers = parts.iter().any(|part| matches!(part, Part::List(..) | Part::Mask(..)));
        let (mut items, mut lists, mut axis) = (Vec::new(), Vec::<(Vec<usize>, Vec<usize>)>::new(), 0);
        // Whether only index arrays and integers stand between index arrays. As in MLX, an ellipsis of no
        // axes does not separate them.
        let mut positions = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let is_list = matches!(part, Part::List(..) | Part::Mask(..));
            if is_list || (gathers && matches!(part, Part::Int(_))) {
                positions.push(at);
            }
        }
        let in_place = positions.windows(2).all(|pair| pair[1] == pair[0] + 1);
        for part in &parts {
            match part {
                Part::Slice(start, stop, step) => {
                    items.push(CanonicalPart::Axis(slice(*start, *stop, *step, self.shape[axis])?));
                }
                Part::New => items.push(CanonicalPart::New),
                Part::Int(at) => {
                    let length = self.shape[axis] as i128;
                    let from_front = if *at < 0 { *at as i128 + length } else { *at as i128 };
                    if !(0..length).contains(&from_front) {
                        return None;
                    }
                    items.push(CanonicalPart::List(lists.len()));
                    lists.push((vec![], vec![from_front as usize]));
                }
                Part::List(shape, list) => {
                    let length = self.shape[axis] as i32;
                    if length == 0 && !list.is_empty() {
                        return None;
                    }
                    let nearest =
                        |at: &i32| if *at < 0 { at + length } else { *at }.clamp(0, length - 1) as usize;
                    items.push(CanonicalPart::List(lists.len()));
                    lists.push((shape.clone(), list.iter().map(nearest).collect()));
                }
                Part::Mask(shape, list) => {
                    if *shape != self.shape[axis..axis + shape.len()] {
                        return None;
                    }
                    let set: Vec<usize> = (0..list.len()).filter(|at| list[*at]).collect();
                    for own in 0..shape.len() {
                        let inner: usize = shape[own + 1..].iter().product();
                        items.push(CanonicalPart::List(lists.len()));
                        lists.push((vec![set.len()], set.iter().map(|at| at / inner % shape[own]).collect()));
                    }
                }
                Part::Ellipsis => {}
            }
            axis += part.axes();
        }
        Some(self.gather(&items, &lists, in_place)).flatten()
    }

    fn gather(
        &self,
        items: &[CanonicalPart],
        lists: &[(Vec<usize>, Vec<usize>)],
        in_place: bool,
    ) -> Option<Expected> {
        let points = broadcast(lists.iter().map(|(shape, _)| &shape[..]))?;
        // The axes of the result: of slices, new ones, and those of the index arrays in one place.
        let first = items.iter().position(|item| matches!(item, CanonicalPart::List(_)));
        let (mut shape, mut points_at) = (Vec::new(), 0);
        for (at, item) in items.iter().enumerate() {
            if Some(at) == first && in_place {
                points_at = shape.len();
            }
            match item {
                CanonicalPart::Axis(list) => shape.push(list.len()),
                CanonicalPart::New => shape.push(1),
                CanonicalPart::List(_) => {}
            }
        }
        let outer = shape.clone();
        shape.splice(points_at..points_at, points.iter().copied());
        let mut sources = Vec::new();
        for flat in 0..shape.iter().product() {
            let mut place = unravel(flat, &shape);
            let point: Vec<usize> = place.drain(points_at..points_at + points.len()).collect();
            debug_assert_eq!(place.len(), outer.len());
            let (mut own, mut at) = (place.iter(), Vec::new());
            for item in items {
                match item {
                    CanonicalPart::Axis(list) => at.push(list[*own.next()?]),
                    CanonicalPart::New => {
                        own.next()?;
                    }
                    CanonicalPart::List(number) => {
                        let (shape, list) = &lists[*number];
                        at.push(list[ravel_broadcast(&point, shape)]);
                    }
                }
            }
            sources.push(at.iter().zip(&self.shape).fold(0, |flat, (at, length)| flat * length + at));
        }
        Some(Expected { shape, sources })
    }

    /// Updates with one value per element, and with one value for all.
    fn updates(&self, array: &Array, indices: &[Index], expected: &Expected) -> Result<(), String> {
        let size: usize = self.shape.iter().product();
        let apply = |old: i32, new: i32| match self.update {
            Update::Set => new,
            Update::Add => old.wrapping_add(new),
            Update::Subtract => old.wrapping_sub(new),
            Update::Multiply => old.wrapping_mul(new),
            Update::Max => old.max(new),
            _ => old.min(new),
        };
        let each: Vec<i32> = (0..expected.sources.len()).map(|at| (at * 37 % 101) as i32 - 50).collect();
        let value = Array::try_from_slice(&each, &expected.shape).map_err(|error| error.to_string())?;
        for (what, value, values) in [
            ("update", value, each.clone()),
            (
                "update by a number",
                Array::from_slice(&[7]).reshape::<isize>(&[]).map_err(|e| e.to_string())?,
                vec![7; each.len()],
            ),
        ] {
            let mut list: Vec<i32> = (0..size as i32).collect();
            for (source, new) in expected.sources.iter().zip(&values) {
                list[*source] = apply(list[*source], *new);
            }
            let found = array.index_update(indices, &value, self.update);
            let found = found.map_err(|error| format!("{what} was refused: {error}"))?;
            compare(what, &found, &self.shape, list)?;
        }
        // The array itself must not change.
        compare("the array after updates", array, &self.shape, (0..size as i32).collect())
    }
}

/// The elements of a slice by Python's rules.
fn slice(start: Option<isize>, stop: Option<isize>, step: isize, length: usize) -> Option<Vec<usize>> {
    if step == 0 {
        return None;
    }
    let (length, step) = (length as i128, step as i128);
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |bound: isize| {
        let bound = bound as i128;
        (if bound < 0 { bound + length } else { bound }).clamp(low, high)
    };
    let first = start.map_or(if step > 0 { 0 } else { length - 1 }, clamp);
    let last = stop.map_or(if step > 0 { length } else { -1 }, clamp);
    let mut list = Vec::new();
    let mut at = first;
    while if step > 0 { at < last } else { at > last } {
        list.push(at as usize);
        at += step;
    }
    Some(list)
}

fn broadcast<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> Option<Vec<usize>> {
    let mut all: Vec<usize> = Vec::new();
    for shape in shapes {
        while all.len() < shape.len() {
            all.insert(0, 1);
        }
        let offset = all.len() - shape.len();
        for (at, length) in shape.iter().enumerate() {
            let own = &mut all[offset + at];
            match (*own, *length) {
                (a, b) if a == b => {}
                (1, b) => *own = b,
                (_, 1) => {}
                _ => return None,
            }
        }
    }
    Some(all)
}

fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (at, length) in shape.iter().enumerate().rev() {
        place[at] = flat % length;
        flat /= length;
    }
    place
}

/// The element of an index array at a point of the broadcast shape.
fn ravel_broadcast(point: &[usize], shape: &[usize]) -> usize {
    let skipped = point.len() - shape.len();
    let own = point[skipped..].iter().zip(shape);
    own.fold(0, |flat, (at, length)| flat * length + if *length == 1 { 0 } else { *at })
}
