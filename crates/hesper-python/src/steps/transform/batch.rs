//! `vmap`: a primitive of inputs that have one axis more.

use std::collections::HashMap;
use std::result::Result as StdResult;

use hesper::transform::{self, Slices};
use hesper::{Array, Dtype};

use super::pointwise::ints;
use super::{Node, Program, source, step};
use crate::primitives::{self, Argument, Id, int};

/// An array, with the place of the mapped axis if it has one.
type Mapped = (Array, Option<usize>);
type Found = hesper::Result<Option<Vec<Mapped>>>;

/// [`hesper::transform::vmap_with`], with MLX's steps while a trace is described.
pub fn vmap_with<E: From<hesper::Error>>(
    f: impl FnOnce(&[Array]) -> StdResult<Vec<Array>, E>,
    arrays: &[Array],
    axes: &[Option<isize>],
    places: impl FnOnce(usize) -> hesper::Result<Vec<Option<isize>>>,
) -> StdResult<Vec<Array>, E> {
    if !crate::steps::described() {
        return transform::vmap_with(f, arrays, axes, places);
    }
    let slices = Slices::of(f, arrays, axes)?;
    let traced = slices.traced();
    let places = places(traced.outputs().len())?;
    let mapped: Vec<Array> = slices.mapped().iter().map(|(array, _)| array.clone()).collect();
    let found = match super::traced_graph(traced, &mapped) {
        Some(graph) => {
            // The slices themselves have no values: no step that is used reads them.
            let sources: Vec<Array> = traced.sources().to_vec();
            Program::of(&graph, &sources)?.mapped(slices.mapped(), slices.size()).unwrap_or_default()
        }
        None => None,
    };
    let Some(found) = found else {
        return Ok(slices.placed(slices.batched()?, places.into_iter().collect())?);
    };
    let size = slices.size();
    let placed = found.into_iter().zip(places).map(|((array, at), place)| match (at, place) {
        (Some(at), Some(place)) => {
            let to = if place < 0 { place + array.ndim() as isize } else { place };
            if to == at as isize { Ok(array) } else { array.moveaxis(at as isize, to) }
        }
        (None, Some(place)) => array.expand_dims(place)?.repeat(size, place),
        (None, None) => Ok(array),
        (Some(_), None) => {
            let what = "an output depends on the mapped axis, but its entry of `outputs` is `None`";
            Err(hesper::Error::value("vmap", what))
        }
    });
    Ok(placed.collect::<hesper::Result<Vec<Array>>>()?)
}

impl Program {
    /// The outputs for all slices, if all primitives on the way have rules.
    fn mapped(&self, sources: &[(Array, usize)], size: usize) -> hesper::Result<Option<Vec<Mapped>>> {
        let mut known: HashMap<Id, Mapped> = HashMap::new();
        for (at, (array, axis)) in sources.iter().enumerate() {
            known.insert(source(at), (array.clone(), Some(*axis)));
        }
        for node in &self.nodes {
            let (inputs, outputs) = (&node.primitive.inputs, &node.primitive.outputs);
            if !inputs.iter().any(|input| self.varied.contains(&input.id)) {
                continue;
            }
            let mut given = Vec::new();
            for (input, array) in inputs.iter().zip(&node.inputs) {
                given.push(known.get(&input.id).cloned().unwrap_or_else(|| (array.clone(), None)));
            }
            let Some(found) = (Batch { node, given, size }).rule()? else { return Ok(None) };
            known.extend(outputs.iter().map(|output| output.id).zip(found));
        }
        let found = self.outputs.iter().map(|id| match known.get(id) {
            Some(found) => Ok(found.clone()),
            None => Ok((self.array(*id)?, None)),
        });
        found.collect::<hesper::Result<Vec<Mapped>>>().map(Some)
    }
}

/// A primitive, its inputs, and how many slices there are.
struct Batch<'a> {
    node: &'a Node,
    given: Vec<Mapped>,
    size: usize,
}

/// The axes of a slice in an array with the mapped axis at a place.
fn behind(axes: &[i64], at: usize) -> Vec<i64> {
    axes.iter().map(|axis| if *axis >= at as i64 { axis + 1 } else { *axis }).collect()
}

impl Batch<'_> {
    fn rule(&self) -> Found {
        let (node, arguments) = (self.node, self.node.arguments());
        let (x, Some(at)) = self.given[0].clone() else { return self.unmapped_first() };
        let list = || ints(arguments.first());
        let with = |first: Argument| {
            let mut arguments = arguments.to_vec();
            arguments[0] = first;
            arguments
        };
        // The axis is argument number `place`.
        let along = |place: usize| {
            let mut arguments = arguments.to_vec();
            arguments[place] = int(behind(&[node.primitive.int(place).unwrap_or_default()], at)[0]);
            arguments
        };
        match node.name() {
            "ExpandDims" => {
                let (mut to, mut axes) = (at as i64, Vec::new());
                for axis in list() {
                    to += i64::from(*axis < to);
                    axes.push(if *axis >= to { axis + 1 } else { *axis });
                }
                self.one(x.expand_dims(signed(&axes))?, to as usize)
            }
            "Squeeze" => {
                let axes = behind(list(), at);
                let before = axes.iter().filter(|axis| **axis < at as i64).count();
                self.one(x.squeeze(signed(&axes))?, at - before)
            }
            "Flatten" => {
                let bounds = [0, 1].map(|place| node.primitive.int(place).unwrap_or_default() as usize);
                let [start, end] = bounds.map(|bound| if bound >= at { bound + 1 } else { bound });
                if start < at && end > at {
                    return Ok(None);
                }
                let to = if end < at { at - (end - start) } else { at };
                self.one(x.flatten(start as isize, end as isize)?, to)
            }
            "Unflatten" => {
                let lengths = ints(arguments.get(1));
                let axis = behind(&[node.primitive.int(0).unwrap_or_default()], at)[0];
                let to = if axis < at as i64 { at + lengths.len() - 1 } else { at };
                self.one(x.unflatten(axis as isize, &signed(lengths))?, to)
            }
            "Transpose" => {
                let mut order = behind(list(), at);
                order.insert(at, at as i64);
                self.one(x.transpose(&signed(&order))?, at)
            }
            "Reshape" => {
                let turned = front(&x, at, true)?;
                let lengths: Vec<i64> =
                    std::iter::once(self.size as i64).chain(list().iter().copied()).collect();
                let to: Vec<usize> =
                    std::iter::once(self.size).chain(node.y().shape().iter().copied()).collect();
                let found = step("Reshape", vec![Argument::Shape(lengths)], &[&turned], &to, x.dtype())?;
                self.one(found, 0)
            }
            "Broadcast" => {
                let (to, missing) = (node.y().shape(), node.y().ndim() + 1 - x.ndim());
                let mut shape = to.to_vec();
                shape.insert(at + missing, self.size);
                self.one(x.broadcast_to(&shape)?, at + missing)
            }
            "Slice" => {
                let bounds = [0, x.shape()[at] as i64, 1];
                let arguments = arguments.iter().zip(bounds).map(|(list, own)| inserted(list, at, own));
                self.apply(arguments.collect(), &[x], at)
            }
            "SliceUpdate" => {
                let update = match &self.given[1] {
                    (update, Some(from)) => moved(update, *from, at)?,
                    (update, None) => update.expand_dims(at as isize)?,
                };
                let bounds = [0, x.shape()[at] as i64, 1];
                let lists = arguments[1..].iter().zip(bounds).map(|(list, own)| inserted(list, at, own));
                self.apply(std::iter::once(arguments[0].clone()).chain(lists).collect(), &[x, update], at)
            }
            "Concatenate" => {
                let inputs = self.given.iter().map(|one| self.spread(one, at));
                let inputs = inputs.collect::<hesper::Result<Vec<Array>>>()?;
                self.apply(along(0), &inputs, at)
            }
            "GatherAxis" | "ScatterAxis" => {
                let inputs = self.given.iter().map(|one| self.spread(one, at));
                let inputs = inputs.collect::<hesper::Result<Vec<Array>>>()?;
                self.apply(along(usize::from(node.name() == "ScatterAxis")), &inputs, at)
            }
            "Pad" => {
                self.apply(with(primitives::ints(&behind(list(), at))), &[x, self.given[1].0.clone()], at)
            }
            "FFT" => self.apply(with(primitives::ints(&behind(list(), at))), &[x], at),
            "Reduce" => {
                let axes = behind(ints(arguments.get(1)), at);
                self.apply(vec![arguments[0].clone(), primitives::ints(&axes)], &[x], at)
            }
            "Split" | "ArgReduce" | "Scan" | "Partition" | "ArgPartition" => self.apply(along(1), &[x], at),
            "Sort" | "ArgSort" => self.apply(along(0), &[x], at),
            "Softmax" if at + 1 == x.ndim() => {
                let over = hesper::axes(at as isize - 1);
                let found = crate::steps::reduce::softmax(&x, &over)?.map_or_else(|| x.softmax(&over), Ok)?;
                self.one(found, at)
            }
            "LogSumExp" if at + 1 == x.ndim() => self.apply(Vec::new(), &[front(&x, at, false)?], 0),
            "Softmax" | "LogSumExp" => self.apply(arguments.to_vec(), &[x], at),
            "Matmul" => self.product(),
            "AddMM" => self.added_product(),
            "Gather" => self.gather(),
            "Scatter" => self.scatter(),
            "RandomBits" => {
                // A key for each slice.
                let lengths = [&[self.size as i64], ints(arguments.first())].concat();
                self.apply(vec![Argument::Shape(lengths), arguments[1].clone()], &[front(&x, at, false)?], 0)
            }
            "Full" if node.inputs[0].shape() == node.y().shape() => self.apply(Vec::new(), &[x], at),
            "Convolution" if self.given[1].1.is_none() => {
                let x = front(&x, at, false)?;
                let count = x.shape()[1];
                let inputs = [x.flatten(0, 1)?, self.given[1].0.clone()];
                let mut shape = node.y().shape().to_vec();
                shape[0] = self.size * count;
                let refs: Vec<&Array> = inputs.iter().collect();
                let found = step("Convolution", arguments.to_vec(), &refs, &shape, node.y().dtype())?;
                self.one(found.unflatten(0, &[self.size as isize, count as isize])?, 0)
            }
            _ => self.pointwise(),
        }
    }

    /// Primitives whose first input is the same for all slices.
    fn unmapped_first(&self) -> Found {
        match self.node.name() {
            "Matmul" => self.product(),
            "AddMM" => self.added_product(),
            "Gather" => self.gather(),
            "Scatter" => self.scatter(),
            "Concatenate" | "GatherAxis" | "ScatterAxis" | "SliceUpdate" => {
                let Some(at) = self.given.iter().find_map(|(_, at)| *at) else { return Ok(None) };
                let mut given = self.given.clone();
                given[0] = (self.spread(&given[0], at)?, Some(at));
                Batch { node: self.node, given, size: self.size }.rule()
            }
            _ => self.pointwise(),
        }
    }

    fn one(&self, found: Array, at: usize) -> Found {
        Ok(Some(vec![(found, Some(at))]))
    }

    /// The primitive of arrays with the mapped axis at a place.
    fn apply(&self, arguments: Vec<Argument>, inputs: &[Array], at: usize) -> Found {
        let shapes: Vec<(Vec<usize>, Dtype)> = (self.node.outputs.iter())
            .map(|output| {
                let mut shape = output.shape().to_vec();
                shape.insert(at, self.size);
                (shape, output.dtype())
            })
            .collect();
        let like: Vec<(&[usize], Dtype)> = shapes.iter().map(|(shape, dtype)| (&shape[..], *dtype)).collect();
        let primitive = primitives::Primitive { arguments, ..self.node.primitive.clone() };
        let found = primitive.describe(inputs, &like)?;
        Ok(Some(found.into_iter().map(|one| (one, Some(at))).collect()))
    }

    /// An input with the mapped axis at a place; one that has none is repeated.
    fn spread(&self, (array, from): &Mapped, at: usize) -> hesper::Result<Array> {
        match from {
            Some(from) => moved(array, *from, at),
            None => {
                let mut shape = array.shape().to_vec();
                shape.insert(at, self.size);
                array.expand_dims(at as isize)?.broadcast_to(&shape)
            }
        }
    }

    /// A primitive that takes each element from the elements at the same place.
    fn pointwise(&self) -> Found {
        let node = self.node;
        let same = |array: &Array| array.shape() == node.y().shape();
        let structural =
            ["Hadamard", "QuantizedMatmul", "AsStrided", "View", "RandomBits", "GatherMM", "Inverse"];
        if node.outputs.len() != 1 || !node.inputs.iter().all(same) || structural.contains(&node.name()) {
            return Ok(None);
        }
        let rank = node.y().ndim() + 1;
        // Axes of length one in front; without the mapped axis, the last of them takes its place.
        let place =
            |(array, at): &Mapped| (rank - array.ndim() + at.unwrap_or(0)) - usize::from(at.is_none());
        let to = place(&self.given[0]);
        let mut inputs = Vec::new();
        for one in &self.given {
            let (mut array, from) = (one.0.clone(), place(one));
            if array.ndim() < rank {
                let shape: Vec<usize> =
                    vec![1; rank - array.ndim()].into_iter().chain(array.shape().iter().copied()).collect();
                let arguments = vec![primitives::shape(&shape)];
                array = step("Reshape", arguments, &[&array], &shape, array.dtype())?;
            }
            inputs.push(moved(&array, from, to)?);
        }
        let mut shape = node.y().shape().to_vec();
        shape.insert(to, self.size);
        let inputs = inputs
            .iter()
            .map(|one| if one.shape() == shape { Ok(one.clone()) } else { one.broadcast_to(&shape) });
        self.apply(node.arguments().to_vec(), &inputs.collect::<hesper::Result<Vec<Array>>>()?, to)
    }

    fn product(&self) -> Found {
        let [a, b] = [0, 1].map(|at| match &self.given[at] {
            (array, Some(from)) => front(array, *from, false),
            (array, None) => Ok(array.clone()),
        });
        self.one(a?.matmul(&b?)?, 0)
    }

    fn added_product(&self) -> Found {
        let inputs = self.given.iter().map(|(array, at)| match at {
            Some(from) => front(array, *from, false),
            None => {
                let shape: Vec<usize> =
                    std::iter::once(self.size).chain(array.shape().iter().copied()).collect();
                array.broadcast_to(&shape)
            }
        });
        let inputs = inputs.collect::<hesper::Result<Vec<Array>>>()?;
        self.apply(self.node.arguments().to_vec(), &inputs, 0)
    }

    fn gather(&self) -> Found {
        let (node, arguments) = (self.node, self.node.arguments());
        let (x, from) = &self.given[0];
        let lists = &self.given[1..];
        let points = node.inputs[1].ndim();
        let indexed = lists.iter().find_map(|(_, at)| *at);
        let mut axes = ints(arguments.first()).to_vec();
        let mut sizes = ints(arguments.get(1)).to_vec();
        let mut inputs = vec![x.clone()];
        if let (Some(from), None) = (from, indexed) {
            axes = behind(&axes, *from);
            sizes.insert(*from, x.shape()[*from] as i64);
            inputs.extend(lists.iter().map(|(list, _)| list.clone()));
            return self.apply(vec![primitives::ints(&axes), Argument::Shape(sizes)], &inputs, points + from);
        }
        let Some(at) = indexed else { return Ok(None) };
        if lists.iter().any(|(_, other)| *other != Some(at)) {
            return Ok(None);
        }
        inputs.extend(lists.iter().map(|(list, _)| list.clone()));
        let Some(from) = from else { return self.apply(arguments.to_vec(), &inputs, at) };
        // Each slice has its own source: its number is one more index.
        let mut own = vec![1; points + 1];
        own[at] = self.size as isize;
        let dtype = inputs[1].dtype();
        let places = Array::arange(0..self.size as i64, Some(dtype))?.reshape(&own)?;
        inputs.push(places.broadcast_to(inputs[1].shape())?);
        let axes: Vec<i64> = behind(&axes, *from).into_iter().chain([*from as i64]).collect();
        sizes.insert(*from, 1);
        let mut shape = node.y().shape().to_vec();
        shape.insert(at, self.size);
        shape.insert(points + 1 + from, 1);
        let refs: Vec<&Array> = inputs.iter().collect();
        let arguments = vec![primitives::ints(&axes), Argument::Shape(sizes)];
        let found = step("Gather", arguments, &refs, &shape, x.dtype())?;
        self.one(found.squeeze((points + 1 + from) as isize)?, at)
    }

    fn scatter(&self) -> Found {
        let arguments = self.node.arguments();
        let last = self.given.len() - 1;
        let points = self.node.inputs[1].ndim();
        let repeated = |array: &Array| array.expand_dims(0)?.repeat(self.size, 0);
        let (x, at) = match &self.given[0] {
            (x, Some(at)) => (x.clone(), *at),
            (x, None) => (repeated(x)?, 0),
        };
        let mut inputs = vec![x];
        for (list, from) in &self.given[1..last] {
            inputs.push(match from {
                Some(from) => front(list, *from, false)?,
                None => repeated(list)?,
            });
        }
        let own: Vec<isize> = std::iter::once(self.size as isize).chain(vec![1; points]).collect();
        let dtype = inputs[1].dtype();
        let places = Array::arange(0..self.size as i64, Some(dtype))?.reshape(&own)?;
        inputs.push(places.broadcast_to(inputs[1].shape())?);
        let beside = (1 + points + at) as isize;
        inputs.push(match &self.given[last] {
            (update, Some(from)) => {
                let own = points + at;
                let new = if *from <= own { own + 1 } else { own };
                let from = if new <= *from { from + 1 } else { *from };
                front(&update.expand_dims(new as isize)?, from, false)?
            }
            (update, None) => update.expand_dims([0, beside])?.repeat(self.size, 0)?,
        });
        let axes: Vec<i64> = behind(ints(arguments.get(1)), at).into_iter().chain([at as i64]).collect();
        self.apply(vec![arguments[0].clone(), primitives::ints(&axes)], &inputs, at)
    }
}

fn signed(list: &[i64]) -> Vec<isize> {
    list.iter().map(|one| *one as isize).collect()
}

/// A list argument with one entry more.
fn inserted(list: &Argument, at: usize, own: i64) -> Argument {
    let mut list = ints(Some(list)).to_vec();
    list.insert(at, own);
    Argument::Shape(list)
}

fn moved(array: &Array, from: usize, to: usize) -> hesper::Result<Array> {
    if from == to { Ok(array.clone()) } else { array.moveaxis(from as isize, to as isize) }
}

/// The array with an axis in front; transposed also where it is there already, if `always`.
fn front(array: &Array, from: usize, always: bool) -> hesper::Result<Array> {
    if from == 0 && !always {
        return Ok(array.clone());
    }
    let rest = (0..array.ndim() as isize).filter(|axis| *axis != from as isize);
    let order: Vec<isize> = std::iter::once(from as isize).chain(rest).collect();
    let arguments = vec![primitives::ints(&order.iter().map(|axis| *axis as i64).collect::<Vec<_>>())];
    let shape: Vec<usize> = order.iter().map(|axis| array.shape()[*axis as usize]).collect();
    step("Transpose", arguments, &[array], &shape, array.dtype())
}
