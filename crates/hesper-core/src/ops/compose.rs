//! Ops that a backend computes as a graph of others.
//!
//! Their inputs become arrays of the op's stream, a function builds the graph, and its commands are encoded in the op's
//! place. Element-wise parts of it fuse as everywhere.

use smallvec::SmallVec;

use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::place;

/// Lowers an op as the graph that `build` makes of its inputs; the result has the op's shape and type.
pub fn compose(l: &mut Lowering<'_>, build: impl FnOnce(&[Array]) -> Result<Array>) -> Result<Option<Data>> {
    l.bring()?;
    let stream = l.stream().clone();
    place::with_stream(&stream, || {
        let inputs = (0..l.input_count())
            .map(|at| Array::ready(l.input_shape(at).into(), l.input_dtype(at), l.input(at).clone()))
            .collect::<Result<SmallVec<[Array; 4]>>>()?;
        let output = build(&inputs)?;
        if output.shape() != l.shape() || output.dtype() != l.dtype() {
            let (given, expected) = ((output.shape(), output.dtype()), (l.shape(), l.dtype()));
            return Err(Error::value("compose", format!("a graph gave {given:?} for {expected:?}")));
        }
        drop(inputs);
        crate::eval::schedule(&[&output])?;
        output.data().map(Some)
    })
}
