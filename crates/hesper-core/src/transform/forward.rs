//! Forward mode: from the tangents of the sources to those of the outputs.

use smallvec::SmallVec;

use super::reverse::backward;
use crate::dtype::Category;
use crate::error::Result;
use crate::graph::Array;
use crate::graph::rule::{Backward, Forward, Tangents};
use crate::graph::scope::{Opened, is_free};
use crate::ops::source::{placeholder, watched};
use crate::tape::Tape;

/// Goes along a tape from the tangents of its sources; gives those of its outputs, where there are any.
pub(crate) fn forward(tape: &Tape, outputs: &[Array], seeds: &[Array]) -> Result<Vec<Option<Array>>> {
    let mut known: Vec<Tangents> =
        seeds.iter().map(|seed| Tangents::from_iter([Some(seed.clone())])).collect();
    known.resize(tape.len(), Tangents::new());
    let first = |known: &[Tangents], array: &Array| -> Option<Array> {
        tape.place(array).and_then(|place| known[place].first().cloned().flatten())
    };
    for (at, entry) in tape.entries.iter().enumerate() {
        let (op, inputs) = (entry.call.op.get(), &entry.call.inputs);
        let place = tape.place_of(at);
        if let Some(part) = op.part() {
            let tangent = tape.place(&inputs[0]).and_then(|from| known[from].get(part).cloned().flatten());
            known[place] = Tangents::from_iter([tangent]);
            continue;
        }
        tape.check(entry)?;
        let tangents: SmallVec<[Option<Array>; 4]> =
            inputs.iter().map(|input| first(&known, input)).collect();
        // Tangents of booleans go through arithmetic and views. Comparisons end them.
        let kept = op.varies_with_bools();
        let real = op.outputs().is_some() || entry.array.dtype().is(Category::Number) || kept;
        if real && tangents.iter().any(Option::is_some) {
            let rule = Forward { call: &entry.call, output: &entry.array, tangents: &tangents };
            known[place] = op.jvp(&rule)?;
        }
    }
    Ok(outputs.iter().map(|output| first(&known, output)).collect())
}

impl Forward<'_> {
    /// The tangents by double transposition: the reverse-mode rule is linear in its cotangents, so its own
    /// reverse mode maps tangents forward.
    pub fn transposed_twice(&self) -> Result<Tangents> {
        let op = self.call.op.get();
        if op.is_linear() {
            return self.linear();
        }
        let opened = Opened::new();
        let outputs =
            op.outputs().unwrap_or_else(|| vec![(self.output.0.shape.clone(), self.output.dtype())]);
        let sources = outputs
            .into_iter()
            .map(|(shape, dtype)| {
                // Steps of a trace for any shape may read the shape of a source, which needs a value then.
                if is_free(self.output) && shape == self.output.0.shape {
                    return watched(opened.scope(), &self.output.full_like(0, Some(dtype))?);
                }
                placeholder(opened.scope(), "a derivative", shape, dtype)
            })
            .collect::<Result<Vec<Array>>>()?;
        let cotangents: Vec<Option<Array>> = sources
            .iter()
            .map(|source| source.dtype().is(Category::Number).then(|| source.clone()))
            .collect();
        let wanted: SmallVec<[bool; 4]> = self.tangents.iter().map(Option::is_some).collect();
        let rule = Backward {
            inputs: &self.call.inputs,
            output: self.output,
            cotangents: &cotangents,
            wanted: &wanted,
        };
        let (mut given, mut seeds) = (Vec::new(), Vec::new());
        for (cotangent, tangent) in op.vjp(&rule)?.into_iter().zip(self.tangents) {
            if let (Some(cotangent), Some(tangent)) = (cotangent, tangent) {
                seeds.push(Some(tangent.astype(cotangent.dtype())?));
                given.push(cotangent);
            }
        }
        let tape = Tape::new(&given, &sources);
        Ok(backward(&tape, &given, &seeds)?.into_iter().take(sources.len()).collect())
    }
}
