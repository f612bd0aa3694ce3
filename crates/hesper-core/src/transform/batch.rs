//! `vmap`: adds a batch axis to the graph of a function.

use crate::error::{Error, Result};
use crate::graph::rule::Batch;
use crate::graph::{Array, OpRef};
use crate::tape::Tape;
use smallvec::SmallVec;

/// Replays a tape with batched sources. An array comes with the position of its batch axis, if it has one.
pub(crate) fn batched(
    tape: &Tape,
    outputs: &[Array],
    sources: Vec<(Array, Option<usize>)>,
    size: usize,
) -> Result<Vec<(Array, Option<usize>)>> {
    let mut known: Vec<Option<(Array, Option<usize>)>> = sources.into_iter().map(Some).collect();
    known.resize(tape.len(), None);
    let find = |known: &[Option<(Array, Option<usize>)>], array: &Array| {
        tape.place(array).and_then(|place| known[place].clone()).unwrap_or_else(|| (array.clone(), None))
    };
    for (at, entry) in tape.entries.iter().enumerate() {
        let (inputs, axes): (SmallVec<[Array; 3]>, SmallVec<[Option<usize>; 4]>) =
            entry.call.inputs.iter().map(|input| find(&known, input)).unzip();
        let output = &entry.array;
        let result = if axes.iter().any(Option::is_some) {
            let rule = Batch { op: &entry.call.op, inputs: &inputs, axes: &axes, size, output };
            let (array, axis) = entry.call.op.get().vmap(&rule)?;
            (array, Some(axis))
        } else {
            (again(output, &entry.call.op, inputs)?, None)
        };
        known[tape.place_of(at)] = Some(result);
    }
    Ok(outputs.iter().map(|output| find(&known, output)).collect())
}

/// Applies an op again, to other inputs of the same shapes.
pub(crate) fn again(output: &Array, op: &OpRef, inputs: SmallVec<[Array; 3]>) -> Result<Array> {
    Ok(Array::lazy_on(output.0.stream.clone(), output.0.shape.clone(), output.dtype(), op.clone(), inputs))
}

/// The common length of the batch axes.
pub(crate) fn common_size(arrays: &[Array], axes: &[Option<usize>]) -> Result<usize> {
    let mut found: Option<(usize, usize)> = None;
    for (number, (array, axis)) in arrays.iter().zip(axes).enumerate() {
        let Some(axis) = axis else { continue };
        let length = array.shape()[*axis];
        match found {
            Some((_, size)) if size == length => {}
            None => found = Some((number, length)),
            Some((first, size)) => {
                let what = format!(
                    "arguments must have one length along their axes: argument {first} has {size}, and argument \
                     {number}, of shape {:?}, has {length}",
                    array.shape()
                );
                return Err(Error::shape("vmap", what).with_shapes([array]));
            }
        }
    }
    found
        .map(|(_, size)| size)
        .ok_or_else(|| Error::value("vmap", "cannot vectorize: no argument has an axis; give at least one"))
}
