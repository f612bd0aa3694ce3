//! Element-wise kernels over simple layouts.
//!
//! If every input is row-major or a single element, there are no axes to collapse: each layout follows from
//! its input alone, and the inputs are the arguments. Other layouts, and kernels that are not cached, take
//! [the general path](super::fuse).

use std::sync::Arc;

use hesper_runtime::{Access, Buffer, Runtime};
use smallvec::{SmallVec, smallvec};

use super::expression::{Built, Form, Fused, Inner, Layout, Target};
use super::graph::Slot;
use super::plan::MAX_GROUP;
use super::program::{StepView, Store, missing};
use super::{fuse, vectorize};
use crate::error::Result;
use crate::graph::{Data, KnownBytes, Operand, Owned};
use crate::ops::command::Commands;
use crate::registry::{self, Fusion};
use crate::shape::is_row_major;

/// What the last kernel of a run used: the next one often has the same form.
#[derive(Default)]
pub(super) struct Memo {
    runtime: Option<(u64, Runtime, Fusion)>,
    kernel: Option<(Arc<Fused>, Form, Built)>,
}

/// An input of a kernel over simple layouts.
enum FastInput {
    Known(KnownBytes),
    /// Row-major from the first byte on.
    Whole(Buffer),
    /// The same, and overwritten by the output of this index.
    InPlace(Operand, u8),
    /// One element, at an offset, broadcast to all.
    Element(Buffer, isize),
}

/// Whether an array is row-major from the first byte on and has `size` elements, as the output does.
fn is_whole(data: &Data, shape: &[usize], output: &[usize], size: usize) -> bool {
    data.offset == 0 && (size == 1 || shape == output && is_row_major(shape, &data.strides))
}

impl FastInput {
    /// An input that is not overwritten; `None` if its layout is not simple.
    fn of(data: &Data, shape: &[usize], output: &[usize], size: usize) -> Option<FastInput> {
        if size > 1 && is_whole(data, shape, output, size) {
            return Some(FastInput::Whole(data.buffer.clone()));
        }
        let single = shape.iter().product::<usize>() == 1;
        single.then(|| FastInput::Element(data.buffer.clone(), data.offset))
    }

    fn layout(&self) -> Layout {
        match self {
            FastInput::Known(_) => Layout::Known,
            FastInput::Whole(_) => Layout::Plain,
            FastInput::InPlace(_, output) => Layout::InPlace(*output),
            FastInput::Element(..) => Layout::Strided(Inner::Zero),
        }
    }

    fn buffer(&self) -> Option<&Buffer> {
        match self {
            FastInput::Known(_) => None,
            FastInput::Whole(buffer) | FastInput::Element(buffer, _) => Some(buffer),
            FastInput::InPlace(operand, _) => Some(&operand.data().buffer),
        }
    }
}

type FastInputs = SmallVec<[FastInput; 4]>;

/// Lowers the step of a group. Returns the memory of each output, or `None` if the step takes the general
/// path.
pub(super) fn lower(
    store: &mut impl Store,
    fused: &Arc<Fused>,
    step: &StepView<'_>,
    memo: &mut Memo,
) -> Result<Option<SmallVec<[Data; 1]>>> {
    let mut inputs = FastInputs::new();
    let lowered = encode(store, fused, step, memo, &mut inputs);
    let failed = match &lowered {
        Ok(Some(_)) => return lowered,
        Ok(None) => None,
        Err(error) => Some(error),
    };
    // Return the operands that were not overwritten: the general path or a retry needs them.
    let mut spent = false;
    for (input, bound) in step.inputs.iter().zip(inputs) {
        if let FastInput::InPlace(operand, _) = bound {
            spent |= operand.is_spent();
            store.settle(input.slot, &operand, true);
        }
    }
    if let Some(error) = failed.filter(|_| spent) {
        store.fail(step.outputs, error);
    }
    lowered
}

/// Takes the operand of a slot at its last use, if it is owned.
fn own(store: &mut impl Store, slot: Slot) -> Result<Option<Operand>> {
    let operand = store.operand(slot, true)?;
    if operand.is_owned() {
        return Ok(Some(operand));
    }
    store.settle(slot, &operand, true);
    Ok(None)
}

/// Finds the kernel and encodes it. Operands that it did not overwrite are left in `inputs`.
fn encode(
    store: &mut impl Store,
    fused: &Arc<Fused>,
    step: &StepView<'_>,
    memo: &mut Memo,
    inputs: &mut FastInputs,
) -> Result<Option<SmallVec<[Data; 1]>>> {
    let end = *step.outputs.last().ok_or_else(missing)? as usize;
    let node = store.node(end)?;
    let size: usize = node.shape.iter().product();
    let (_, runtime, fusion) = match &mut memo.runtime {
        Some(last) if last.0 == node.stream.id() => last,
        other => {
            let fusion = registry::of_stream(node.stream)?.fusion();
            other.insert((node.stream.id(), node.stream.runtime(), fusion))
        }
    };
    let (runtime, fusion) = (&*runtime, *fusion);
    if size == 0 || fusion.vector_threads.is_some() && size >= vectorize::MIN_ELEMENTS {
        return Ok(None);
    }
    // A bit for each output that overwrites an input. The members of a group bound their number.
    let mut in_place = 0u64;
    const { assert!(MAX_GROUP <= 64) };
    let expression = &fused.expression;
    let mut layouts: SmallVec<[Layout; 8]> = SmallVec::new();
    for (input, given) in step.inputs.iter().zip(&expression.inputs) {
        let bound = if given.known {
            store.known(input.slot).map(FastInput::Known)
        } else {
            // Check ownership only if an output can overwrite the input.
            let fits = fusion.in_place && input.last && {
                let (shape, output) = (store.meta(input.slot)?.0, store.node(end)?.shape);
                let fits = |data: &Data| {
                    is_whole(data, shape, output, size)
                        && data.buffer.len() == size * given.dtype.size()
                        && data.buffer.belongs_to(runtime)
                };
                store.with_data(input.slot, fits) == Some(true)
            };
            let is_taken = |number: usize| in_place >> number & 1 != 0;
            let number =
                if fits { fuse::output_for(expression.output_dtypes(), is_taken, given.dtype) } else { None };
            let owned = match number {
                Some(number) => own(store, input.slot)?.map(|operand| FastInput::InPlace(operand, number)),
                None => None,
            };
            let (shape, output) = (store.meta(input.slot)?.0, store.node(end)?.shape);
            let borrowed = |data: &Data| FastInput::of(data, shape, output, size);
            owned.or_else(|| store.with_data(input.slot, borrowed).flatten())
        };
        let Some(bound) = bound else { return Ok(None) };
        if let FastInput::InPlace(_, number) = bound {
            in_place |= 1 << number;
        }
        layouts.push(bound.layout());
        let here = bound.buffer().is_none_or(|buffer| buffer.belongs_to(runtime));
        inputs.push(bound);
        if !here {
            return Ok(None);
        }
    }
    let form = Form { target: Target::Device(runtime.id()), rank: 1, lanes: 1, tall: false, layouts };
    let (pipeline, label) = match &mut memo.kernel {
        Some((last, of, built)) if Arc::ptr_eq(last, fused) && *of == form => built,
        other => match fused.find(&form) {
            Some(built) => &mut other.insert((fused.clone(), form, built)).2,
            None => return Ok(None),
        },
    };

    let node = store.node(end)?;
    let mut results: SmallVec<[Option<Buffer>; 1]> = smallvec![None; step.outputs.len()];
    let types = expression.output_dtypes().enumerate();
    for (number, dtype) in types.filter(|(number, _)| in_place >> number & 1 == 0) {
        results[number] = Some(node.stream.alloc(size * dtype.size())?);
    }
    let mut command = node.stream.command(label.clone());
    for bound in &*inputs {
        match bound {
            FastInput::Known(number) => command.add_constants(&number.0),
            FastInput::Whole(buffer) => command.add(buffer, .., Access::Read),
            FastInput::InPlace(operand, _) => command.add(&operand.data().buffer, .., Access::ReadWrite),
            FastInput::Element(buffer, offset) => {
                command.add_constants(&(*offset as i64).to_ne_bytes());
                command.add(buffer, .., Access::Read);
            }
        }
    }
    for output in results.iter().flatten() {
        command.add(output, .., Access::Write);
    }
    let threads = size as u64;
    let grid = [threads, 1, 1];
    let threadgroup = vectorize::threadgroup(fusion, grid);
    // The owned operands are spent from here on.
    let owned: SmallVec<[(Owned, u8); 1]> = inputs
        .iter()
        .filter_map(|bound| match bound {
            FastInput::InPlace(operand, number) => Some((operand.take()?, *number)),
            _ => None,
        })
        .collect();
    command.dispatch(pipeline, grid, threadgroup)?;
    for (owned, number) in owned {
        results[usize::from(number)] = Some(owned.into_data().buffer);
    }
    let results = results.into_iter().flatten();
    Ok(Some(results.map(|result| Data::contiguous(result, node.shape)).collect()))
}
