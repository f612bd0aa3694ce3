//! Element-wise kernels, the short way.
//!
//! Where all inputs lie as the output will (row by row, or one element for all), nothing has to be worked out: the kernel
//! is found by the ops, the types and which inputs are which, and its arguments are the inputs. Everything else, and a
//! kernel that is met for the first time, goes the long way, by an [`Expression`](super::fuse::Expression).

use hesper_runtime::{Access, Buffer, Runtime};
use smallvec::{SmallVec, smallvec};

use super::claim::{Claim, Read};
use super::fuse::{self, Built, Inner, Layout, Words};
use super::operand::{Operand, Owned};
use super::plan::{MOST_NODES, Plan};
use super::wide;
use crate::array::{Array, Data, KnownBytes};
use crate::error::Result;
use crate::ops::command::Commands;
use crate::shape::is_row_major;

/// What was found for the last kernel: the next one is often of its kind.
#[derive(Default)]
pub(super) struct Memo {
    runtime: Option<(u64, Runtime)>,
    kernel: Option<(Words, Built)>,
    /// Room for the words of a kernel's ops.
    ops: Vec<u64>,
}

/// An input where it lies.
enum Place {
    Known(KnownBytes),
    /// Row by row, from the first byte on.
    Whole(Buffer),
    /// The same, and the output of this number takes its place.
    Taken(Operand, u8),
    /// One element for all, at an offset.
    Element(Buffer, isize),
}

/// How an input lies.
struct Lie {
    /// Row by row, from the first byte on.
    whole: bool,
    /// There is nothing else in its memory.
    exact: bool,
}

impl Lie {
    fn of(data: &Data, input: &Array, output: &Array, size: usize) -> Self {
        let whole = data.offset == 0
            && (size == 1 || input.0.shape == output.0.shape && is_row_major(input.shape(), &data.strides));
        Lie { whole, exact: data.buffer.len() == size * input.dtype().size() }
    }
}

impl Place {
    /// Where an input is that is not to be overwritten.
    fn of(data: &Data, input: &Array, output: &Array, size: usize) -> Option<Place> {
        if size > 1 && Lie::of(data, input, output, size).whole {
            return Some(Place::Whole(data.buffer.clone()));
        }
        (input.size() == 1).then(|| Place::Element(data.buffer.clone(), data.offset))
    }

    fn layout(&self) -> Layout {
        match self {
            Place::Known(_) => Layout::Known,
            Place::Whole(_) => Layout::Plain,
            Place::Taken(_, output) => Layout::Taken(*output),
            Place::Element(..) => Layout::Strided(Inner::Zero),
        }
    }

    fn buffer(&self) -> Option<&Buffer> {
        match self {
            Place::Known(_) => None,
            Place::Whole(buffer) | Place::Element(buffer, _) => Some(buffer),
            Place::Taken(operand, _) => Some(&operand.data().buffer),
        }
    }
}

/// What a group reads: what it is, by how many edges, and where it lies.
#[derive(Default)]
struct Inputs {
    reads: SmallVec<[Read; 4]>,
    counts: SmallVec<[u32; 4]>,
    places: SmallVec<[Place; 4]>,
}

/// Lowers a group; gives the memory of each output, or `None` if that takes the long way.
pub(super) fn lower(
    claim: &mut Claim,
    plan: &Plan,
    members: &[usize],
    outputs: &[usize],
    memo: &mut Memo,
) -> Result<Option<SmallVec<[Data; 1]>>> {
    let mut inputs = Inputs::default();
    let lowered = encode(claim, plan, members, outputs, memo, &mut inputs);
    let error = match &lowered {
        Ok(Some(_)) => return lowered,
        Ok(None) => None,
        Err(error) => Some(error),
    };
    let operands = inputs.reads.into_iter().zip(inputs.places);
    let operands = operands.filter_map(|(read, place)| match place {
        Place::Taken(operand, _) => Some((read, operand)),
        _ => None,
    });
    claim.settle(outputs, operands, error);
    lowered
}

/// Works out the kernel and encodes it. Operands that it did not overwrite are left in `inputs`.
fn encode(
    claim: &mut Claim,
    plan: &Plan,
    members: &[usize],
    outputs: &[usize],
    memo: &mut Memo,
    inputs: &mut Inputs,
) -> Result<Option<SmallVec<[Data; 1]>>> {
    let Some(&end) = members.last() else { return Ok(None) };
    let (size, stream) = {
        let output = claim.node(end)?;
        (output.size(), &output.0.stream)
    };
    let runtime = match &mut memo.runtime {
        Some((id, runtime)) if *id == stream.id() => runtime,
        other => &mut other.insert((stream.id(), stream.runtime())).1,
    };
    let info = runtime.info();
    if size == 0 || !info.host_visible && size >= wide::FEWEST {
        return Ok(None);
    }
    let Inputs { reads, counts, places } = inputs;
    let ops = &mut memo.ops;
    ops.clear();
    for &at in members {
        let (op, dtype) = claim.emit(at)?;
        ops.extend([op.emit as usize as u64, dtype as u64 | u64::from(op.indexed) << 32]);
        for read in claim.reads(at) {
            if let Read::Node(place) = read
                && let Some(member) = plan.member(place, end)
            {
                ops.push(member as u64 | 1 << 32);
                continue;
            }
            let source = reads.iter().position(|met| *met == read).unwrap_or(reads.len());
            ops.push(source as u64);
            if source == reads.len() {
                reads.push(read);
                counts.push(0);
            }
            counts[source] += 1;
        }
    }
    // A bit for each output that takes an input's place: there are at most as many as members of a group.
    let mut taken = 0u64;
    const { assert!(MOST_NODES <= 64) };
    let mut words = Words::new();
    words.extend([runtime.id(), 1 | 1 << 32, reads.len() as u64]);
    for (read, count) in reads.iter().zip(counts) {
        let (input, output) = (claim.array(*read)?, claim.node(end)?);
        let dtype = input.dtype();
        let place = if let Some(known) = claim.known(*read) {
            Some(Place::Known(known))
        } else {
            let taker = || {
                let types = outputs.iter().map_while(|at| Some(claim.emit(*at).ok()?.1));
                fuse::taker(types, |number| taken >> number & 1 != 0, dtype)
            };
            let last = info.host_visible && claim.is_last(*read, *count);
            let fits = |data: &Data| {
                let lie = Lie::of(data, input, output, size);
                lie.whole && lie.exact && data.buffer.belongs_to(runtime)
            };
            let number = if last && input.with_data(fits) == Some(true) { taker() } else { None };
            match number.and_then(|number| Some((claim.own(*read, *count)?, number))) {
                Some((owned, number)) => Some(Place::Taken(Operand::owned(owned), number)),
                None => {
                    let (input, output) = (claim.array(*read)?, claim.node(end)?);
                    input.with_data(|data| Place::of(data, input, output, size)).flatten()
                }
            }
        };
        let Some(place) = place else { return Ok(None) };
        if let Place::Taken(_, number) = place {
            taken |= 1 << number;
        }
        words.push(dtype as u64 | place.layout().code() << 32);
        let here = place.buffer().is_none_or(|buffer| buffer.belongs_to(runtime));
        places.push(place);
        if !here {
            return Ok(None);
        }
    }
    words.extend_from_slice(ops);
    // Outputs are members, in their order.
    let mut rest = members.iter().enumerate();
    for output in outputs {
        words.extend(rest.find(|(_, at)| *at == output).map(|(number, _)| number as u64));
    }
    let (pipeline, label) = match &mut memo.kernel {
        Some((met, built)) if *met == words => built,
        other => match fuse::find(&words) {
            Some(built) => &mut other.insert((words, built)).1,
            None => return Ok(None),
        },
    };

    let output = claim.node(end)?;
    let stream = &output.0.stream;
    let mut results: SmallVec<[Option<Buffer>; 1]> = smallvec![None; outputs.len()];
    for (number, at) in outputs.iter().enumerate().filter(|(number, _)| taken >> number & 1 == 0) {
        results[number] = Some(stream.alloc(size * claim.emit(*at)?.1.size())?);
    }
    let mut command = stream.command(label.clone());
    for place in &*places {
        match place {
            Place::Known(number) => command.add_constants(&number.0),
            Place::Whole(buffer) => command.add(buffer, .., Access::Read),
            Place::Taken(operand, _) => command.add(&operand.data().buffer, .., Access::ReadWrite),
            Place::Element(buffer, offset) => {
                command.add_constants(&(*offset as i64).to_ne_bytes());
                command.add(buffer, .., Access::Read);
            }
        }
    }
    for output in results.iter().flatten() {
        command.add(output, .., Access::Write);
    }
    let threads = size as u64;
    let threadgroup =
        if info.host_visible { [threads.min(1024), 1, 1] } else { wide::threadgroup(threads, 1) };
    // From here on the operands are spent.
    let owned: SmallVec<[(Owned, u8); 1]> = places
        .iter()
        .filter_map(|place| match place {
            Place::Taken(operand, number) => Some((operand.take()?, *number)),
            _ => None,
        })
        .collect();
    command.dispatch(pipeline, [threads, 1, 1], threadgroup)?;
    for (owned, number) in owned {
        results[usize::from(number)] = Some(owned.into_data().buffer);
    }
    Ok(Some(results.into_iter().flatten().map(|result| Data::contiguous(result, output.shape())).collect()))
}
