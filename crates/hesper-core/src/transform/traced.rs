//! What a transformation has traced: the arrays that it varies, and what a function made of them.

use smallvec::SmallVec;

use super::{batch, forward, reverse};
use crate::error::{Error, Result};
use crate::export::Graph;
use crate::graph::Array;
use crate::graph::scope::Opened;
use crate::guarded::guarded;
use crate::ops::source;
use crate::shape::{Shape, axis};
use crate::tape::Tape;

/// A function's outputs, and the tape between them and the arrays that a transformation varies.
pub struct Traced {
    sources: Vec<Array>,
    outputs: Vec<Array>,
    tape: Tape,
    opened: Opened,
}

/// The arrays that a function is mapped over, and what it made of one slice of them.
pub struct Slices {
    traced: Traced,
    /// The mapped arrays with the place of the mapped axis.
    mapped: Vec<(Array, usize)>,
    size: usize,
}

impl Traced {
    /// Calls a function with arrays that have the values of `primals`.
    pub fn watch<E: From<Error>>(
        f: impl FnOnce(&[Array]) -> Result<Vec<Array>, E>,
        primals: &[Array],
    ) -> Result<Traced, E> {
        let opened = Opened::new();
        let sources = primals
            .iter()
            .map(|primal| source::watched(opened.scope(), primal))
            .collect::<Result<Vec<Array>>>()?;
        let outputs = guarded("the function to differentiate", || f(&sources))?;
        Ok(Traced::of(opened, sources, outputs))
    }

    fn of(opened: Opened, sources: Vec<Array>, outputs: Vec<Array>) -> Traced {
        let tape = Tape::new(&outputs, &sources);
        Traced { sources, outputs, tape, opened }
    }

    /// The arrays that the transformation varies.
    pub fn sources(&self) -> &[Array] {
        &self.sources
    }

    /// The outputs of the function.
    pub fn outputs(&self) -> &[Array] {
        &self.outputs
    }

    /// The graph from the varied arrays to some of those that depend on them. Arrays of a trace around this
    /// one are constants of it.
    pub fn graph(&self, outputs: &[Array]) -> Result<Graph> {
        Graph::between(&self.sources, outputs)
    }

    /// The cotangents of the varied arrays, from those of the outputs.
    pub fn backward(&self, seeds: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        reverse::backward(&self.tape, &self.outputs, seeds)
    }

    /// The tangents of the outputs, from those of the varied arrays.
    pub fn forward(&self, seeds: &[Array]) -> Result<Vec<Option<Array>>> {
        forward::forward(&self.tape, &self.outputs, seeds)
    }

    /// Whether an array is a varied one, or depends on one.
    pub(super) fn depends(&self, array: &Array) -> bool {
        self.tape.place(array).is_some()
    }

    /// Ends the trace.
    pub fn close(self) -> Vec<Array> {
        drop(self.opened);
        self.tape.entries.iter().for_each(|entry| entry.array.forget());
        self.outputs
    }
}

impl Slices {
    /// Calls a function with slices of arrays along their axes.
    pub fn of<E: From<Error>>(
        f: impl FnOnce(&[Array]) -> Result<Vec<Array>, E>,
        arrays: &[Array],
        axes: &[Option<isize>],
    ) -> Result<Slices, E> {
        if arrays.len() != axes.len() {
            let what = format!("{} input axes for {} arguments", axes.len(), arrays.len());
            return Err(Error::value("vmap", what).into());
        }
        let found = arrays
            .iter()
            .zip(axes)
            .map(|(array, at)| at.map(|at| axis("vmap", at, array.ndim())).transpose())
            .collect::<Result<Vec<Option<usize>>>>()?;
        let size = batch::common_size(arrays, &found)?;
        let opened = Opened::new();
        let (mut slices, mut sources, mut mapped) = (Vec::new(), Vec::new(), Vec::new());
        for (array, at) in arrays.iter().zip(&found) {
            let Some(at) = *at else {
                slices.push(array.clone());
                continue;
            };
            let mut shape: Shape = array.0.shape.clone();
            shape.remove(at);
            let slice = source::placeholder(opened.scope(), "vmap", shape, array.dtype())?;
            mapped.push((array.clone(), at));
            slices.push(slice.clone());
            sources.push(slice);
        }
        let outputs = guarded("the function to vectorize", || f(&slices))?;
        Ok(Slices { traced: Traced::of(opened, sources, outputs), mapped, size })
    }

    /// What the function made of one slice.
    pub fn traced(&self) -> &Traced {
        &self.traced
    }

    /// The mapped arrays with the place of the mapped axis.
    pub fn mapped(&self) -> &[(Array, usize)] {
        &self.mapped
    }

    /// The length of the mapped axes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The outputs for all slices, with the place of the mapped axis if they have one.
    pub fn batched(&self) -> Result<Vec<(Array, Option<usize>)>> {
        let whole = self.mapped.iter().map(|(array, at)| (array.clone(), Some(*at))).collect();
        batch::batched(&self.traced.tape, &self.traced.outputs, whole, self.size)
    }

    /// The same with that axis at `places`; an output without one is repeated.
    pub fn placed(
        &self,
        batched: Vec<(Array, Option<usize>)>,
        places: SmallVec<[Option<isize>; 4]>,
    ) -> Result<Vec<Array>> {
        let mut moved = Vec::new();
        for ((array, at), place) in batched.into_iter().zip(places) {
            moved.push(match (at, place) {
                (Some(at), Some(place)) if place == at as isize => array,
                (Some(at), Some(place)) => array.moveaxis(at as isize, place)?,
                (None, Some(place)) => {
                    let shape: Shape =
                        std::iter::once(self.size).chain(array.shape().iter().copied()).collect();
                    array.broadcast_to(&shape)?.moveaxis(0, place)?
                }
                (None, None) => array,
                (Some(_), None) => {
                    let what = "an output depends on the mapped axis, but its entry of `outputs` is `None`";
                    return Err(Error::value("vmap", what));
                }
            });
        }
        Ok(moved)
    }
}
