//! Reverse mode: from the cotangents of the outputs to those of the sources.

use smallvec::SmallVec;

use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::graph::rule::{Backward, Cotangents};
use crate::shape::Shape;
use crate::tape::Tape;

/// Cotangents of a node's outputs: one, or one for each part.
type Slots = SmallVec<[Option<Array>; 1]>;

fn accumulate(slots: &mut Slots, at: usize, cotangent: Array) -> Result<()> {
    if slots.len() <= at {
        slots.resize(at + 1, None);
    }
    slots[at] = Some(match slots[at].take() {
        Some(sum) => sum.add(&cotangent)?,
        None => cotangent,
    });
    Ok(())
}

/// Goes back over a tape from the cotangents of its outputs; gives those of its sources.
pub(crate) fn backward(
    tape: &Tape,
    outputs: &[Array],
    seeds: &[Option<Array>],
) -> Result<Vec<Option<Array>>> {
    let mut slots: Vec<Slots> = vec![Slots::new(); tape.len()];
    for (output, seed) in outputs.iter().zip(seeds) {
        if let (Some(place), Some(seed)) = (tape.place(output), seed) {
            accumulate(&mut slots[place], 0, seed.clone())?;
        }
    }
    for (at, entry) in tape.entries.iter().enumerate().rev() {
        let mut own = std::mem::take(&mut slots[tape.place_of(at)]);
        // Behind a `stop_gradient` nothing is differentiated, whether or not it has a derivative.
        if own.iter().all(Option::is_none) || !tape.is_varied(&entry.array) {
            continue;
        }
        let (op, inputs) = (entry.call.op.get(), &entry.call.inputs);
        if let Some(part) = op.part() {
            if let (Some(place), Some(Some(cotangent))) = (tape.place(&inputs[0]), own.pop()) {
                accumulate(&mut slots[place], part, cotangent)?;
            }
            continue;
        }
        tape.check(entry)?;
        if let Some(outputs) = op.outputs() {
            own.resize(outputs.len(), None);
        }
        // Booleans have cotangents as numbers and in views of each other, not as conditions and masks.
        let kept = op.varies_with_bools();
        if entry.array.dtype() == Dtype::Bool && op.outputs().is_none() && !kept {
            continue;
        }
        let carries = |input: &Array| input.dtype().is(Category::Number) || has_parts(input) || kept;
        let wanted: SmallVec<[bool; 4]> =
            inputs.iter().map(|input| tape.is_varied(input) && carries(input)).collect();
        let rule = Backward { inputs, output: &entry.array, cotangents: &own, wanted: &wanted };
        for (input, cotangent) in inputs.iter().zip(op.vjp(&rule)?) {
            let (Some(place), Some(cotangent)) = (tape.place(input), cotangent) else { continue };
            if cotangent.shape() != input.shape() {
                let what = format!(
                    "a cotangent of shape {:?} for an input of shape {:?}",
                    cotangent.shape(),
                    input.shape()
                );
                return Err(Error::shape(op.name(), what).with_shapes([&cotangent, input]));
            }
            accumulate(&mut slots[place], 0, cotangent.astype(input.dtype())?)?;
        }
    }
    Ok(slots.into_iter().map(|mut own| own.pop().flatten()).collect())
}

fn has_parts(array: &Array) -> bool {
    array.call().is_some_and(|call| call.op.get().outputs().is_some())
}

impl Backward<'_> {
    /// The cotangents of `primals`, from those of the outputs of a function.
    pub fn pullback(
        f: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
        primals: &[Array],
        cotangents: &[Array],
    ) -> Result<Vec<Array>> {
        Ok(super::vjp(f, primals, cotangents)?.1)
    }

    /// The needed cotangents, derived from the same function composed of other ops.
    pub fn through(&self, composed: impl Fn(&[Array]) -> Result<Array>) -> Result<Cotangents> {
        self.through_several(|inputs| Ok(vec![composed(inputs)?]), &[self.cotangent()?])
    }

    /// The same for an op with several outputs, of such shapes and types.
    pub fn through_parts(
        &self,
        composed: impl Fn(&[Array]) -> Result<Vec<Array>>,
        outputs: &[(Shape, Dtype)],
    ) -> Result<Cotangents> {
        let given = self.cotangents.iter().zip(outputs);
        let given = given
            .map(|(given, (shape, dtype))| given.clone().map_or_else(|| Array::zeros(shape, *dtype), Ok))
            .collect::<Result<Vec<Array>>>()?;
        self.through_several(composed, &given)
    }

    fn through_several(
        &self,
        composed: impl Fn(&[Array]) -> Result<Vec<Array>>,
        cotangents: &[Array],
    ) -> Result<Cotangents> {
        let varied: SmallVec<[usize; 5]> = (0..self.inputs.len()).filter(|at| self.wanted[*at]).collect();
        let primals: Vec<Array> = varied.iter().map(|at| self.inputs[*at].clone()).collect();
        let again = |arrays: &[Array]| {
            let mut inputs = self.inputs.to_vec();
            for (at, array) in varied.iter().zip(arrays) {
                inputs[*at] = array.clone();
            }
            composed(&inputs)
        };
        let mut found = Backward::pullback(again, &primals, cotangents)?.into_iter();
        self.each(|_| Ok(found.next()))
    }
}
