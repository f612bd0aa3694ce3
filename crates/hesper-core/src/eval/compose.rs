//! Ops that a backend computes as a graph of others.
//!
//! Their inputs become arrays of the op's stream, a function builds the graph, and its commands are encoded
//! in the op's place. Element-wise parts of it fuse as everywhere.

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::graph::{Array, Data, Lowering};
use crate::placement;
use crate::shape::Shape;

/// Lowers an op as the graph that `build` makes of its inputs; the result has the op's shape and type.
pub fn compose(l: &mut Lowering<'_>, build: impl FnOnce(&[Array]) -> Result<Array>) -> Result<Option<Data>> {
    let (shape, dtype) = (Shape::from(l.shape()), l.dtype());
    let results = compose_all(l, |inputs| {
        let output = build(inputs)?;
        if output.shape() != &shape[..] || output.dtype() != dtype {
            let (given, expected) = ((output.shape(), output.dtype()), (&shape[..], dtype));
            return Err(Error::value("compose", format!("a graph gave {given:?} for {expected:?}")));
        }
        Ok(vec![output])
    })?;
    Ok(results.into_iter().next())
}

/// Encodes a graph of an op's inputs with several results. The planner puts no composite op into it: the op
/// may be one.
pub(crate) fn compose_all(
    l: &mut Lowering<'_>,
    build: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
) -> Result<Vec<Data>> {
    l.bring()?;
    let stream = l.stream().clone();
    placement::with_stream(&stream, || {
        let inputs = (0..l.input_count())
            .map(|at| Array::ready(l.input_shape(at).into(), l.input_dtype(at), l.input(at).clone()))
            .collect::<Result<SmallVec<[Array; 4]>>>()?;
        let outputs = build(&inputs)?;
        drop(inputs);
        super::schedule_plain(&outputs.iter().collect::<Vec<_>>())?;
        outputs.iter().map(Array::data).collect()
    })
}
