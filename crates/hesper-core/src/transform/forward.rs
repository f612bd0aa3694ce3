//! Forward mode: from the tangents of the sources to those of the outputs.

use smallvec::SmallVec;

use super::rule::{Forward, Tangents};
use super::tape::Tape;
use crate::Dtype;
use crate::array::Array;
use crate::dtype::Category;
use crate::error::Result;

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
        // Tangents of booleans go through what keeps booleans, as views do. Comparisons end them.
        let kept = op.is_linear() && inputs.iter().all(|input| input.dtype() == Dtype::Bool);
        let real = op.outputs().is_some() || entry.array.dtype().is(Category::Number) || kept;
        if real && tangents.iter().any(Option::is_some) {
            let rule = Forward { call: &entry.call, output: &entry.array, tangents: &tangents };
            known[place] = op.jvp(&rule)?;
        }
    }
    Ok(outputs.iter().map(|output| first(&known, output)).collect())
}
