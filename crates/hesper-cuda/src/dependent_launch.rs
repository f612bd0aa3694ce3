//! Programmatic dependent launch: a kernel that starts while earlier ones still run.
//!
//! On devices of capability 9.0 and later a kernel can be launched so that its blocks start when the previous
//! kernel allows it (`griddepcontrol.launch_dependents`) or ends. Such a kernel waits itself
//! (`griddepcontrol.wait`) until everything before it has completed. Correctness rests on four conditions:
//!
//! | condition | guaranteed by | checked by |
//! |---|---|---|
//! | before its wait the kernel writes nothing and reads only the bindings that `ahead` names | the kernel's text. Op kernels declare it in the text, and `ahead` is derived from that (`hesper-backend-cuda/src/early.rs`) | the tests there, from the text; on a GPU chains of such kernels against the host (`hesper-ops-gpu-check failures`) |
//! | every block reaches the wait, so the kernel's end implies the end of everything before it | the kernel's text | the same |
//! | no command of the submission writes what is read early | [`EarlyReads::allows`] | unit tests here; again before each launch under validation |
//! | no earlier submission is still running | the first kernel of a submission, and of each graph, is launched in full order, after the runtime's waits | under validation: [`unordered_writer`] |
//!
//! `hesper-cuda-check failures` runs a kernel that reads early behind one that delays its writes: inputs that
//! the submission, or one before it, writes must never be stale.
//!
//! `HESPER_VALIDATE` enables validation. A launch that violates one of the last two conditions is not made:
//! its command fails, and the fault names the binding and the writer.

use std::cell::OnceCell;

use hesper_runtime::{Binding, Work};

use crate::in_flight::SubmissionId;

/// A range of memory: id, first byte, end.
pub(crate) type MemoryRange = (u64, usize, usize);

fn range(binding: &Binding) -> MemoryRange {
    (binding.memory().id, binding.offset(), binding.offset() + binding.len())
}

fn overlap(one: MemoryRange, other: MemoryRange) -> bool {
    one.0 == other.0 && one.1.max(other.1) < one.2.min(other.2)
}

/// The ranges that a work writes.
pub(crate) fn writes(work: &Work) -> Vec<MemoryRange> {
    let bindings = (0..work.len()).flat_map(|position| work.command(position).bindings);
    bindings.filter(|binding| binding.access().writes()).map(range).collect()
}

/// The memory of a submission that may be read early.
#[derive(Default)]
pub(crate) struct EarlyReads {
    /// The ids of the memory that the submission writes, sorted; computed on first use.
    written: OnceCell<Vec<u64>>,
}

impl EarlyReads {
    /// Whether a command may start before the commands of its submission that it depends on have ended: none
    /// of them writes memory that it reads early. A missing binding is not allowed.
    pub(crate) fn allows(&self, ahead: &[usize], bindings: &[Binding], work: &Work) -> bool {
        let written = self.written.get_or_init(|| memory(&writes(work)));
        ahead.iter().all(|number| {
            let binding = bindings.get(*number);
            binding.is_some_and(|binding| written.binary_search(&binding.memory().id).is_err())
        })
    }
}

fn memory(writes: &[MemoryRange]) -> Vec<u64> {
    let mut memory: Vec<u64> = writes.iter().map(|range| range.0).collect();
    memory.sort_unstable();
    memory.dedup();
    memory
}

/// The violation of a dependent launch, if any: an input that its own submission writes, or one that an
/// unordered submission in flight writes. Compares byte ranges, independently of [`EarlyReads`].
///
/// `in_flight` yields submissions of other streams with their waits and writes.
pub(crate) fn unordered_writer<'a>(
    ahead: &[usize],
    bindings: &[Binding],
    own: &[MemoryRange],
    waits: &[SubmissionId],
    in_flight: impl Iterator<Item = (SubmissionId, &'a [SubmissionId], &'a [MemoryRange])> + Clone,
) -> Option<String> {
    let inputs: Vec<MemoryRange> = bindings.iter().map(range).collect();
    unordered(ahead, &inputs, own, waits, in_flight)
}

fn unordered<'a>(
    ahead: &[usize],
    inputs: &[MemoryRange],
    own: &[MemoryRange],
    waits: &[SubmissionId],
    in_flight: impl Iterator<Item = (SubmissionId, &'a [SubmissionId], &'a [MemoryRange])> + Clone,
) -> Option<String> {
    let ordered = reached(waits, in_flight.clone());
    for number in ahead {
        let Some(input) = inputs.get(*number) else {
            return Some(format!("binding {number}, which it reads before it waits, is not bound"));
        };
        if own.iter().any(|write| overlap(*write, *input)) {
            return Some(format!(
                "binding {number}, which it reads before it waits, is written by its submission"
            ));
        }
        let before =
            |place: SubmissionId| ordered.iter().any(|(stream, last)| *stream == place.0 && place.1 <= *last);
        let writer = in_flight
            .clone()
            .find(|(place, _, writes)| !before(*place) && writes.iter().any(|write| overlap(*write, *input)));
        if let Some(((stream, index), ..)) = writer {
            return Some(format!(
                "binding {number}, which it reads before it waits, is written by submission {index} of stream {stream}, \
                 which nothing orders before it"
            ));
        }
    }
    None
}

/// For each stream, the last submission that has completed when `waits` have.
fn reached<'a>(
    waits: &[SubmissionId],
    in_flight: impl Iterator<Item = (SubmissionId, &'a [SubmissionId], &'a [MemoryRange])> + Clone,
) -> Vec<SubmissionId> {
    let mut reached: Vec<SubmissionId> = Vec::new();
    let mut open: Vec<SubmissionId> = waits.to_vec();
    while let Some((stream, index)) = open.pop() {
        let known = reached.iter().find(|(other, _)| *other == stream).map(|(_, last)| *last);
        if known.is_some_and(|last| last >= index) {
            continue;
        }
        reached.retain(|(other, _)| *other != stream);
        reached.push((stream, index));
        for (place, more, _) in in_flight.clone() {
            if place.0 == stream && place.1 <= index {
                open.extend(more);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entry = (SubmissionId, Vec<SubmissionId>, Vec<MemoryRange>);

    fn check(
        inputs: &[MemoryRange],
        own: &[MemoryRange],
        waits: &[SubmissionId],
        in_flight: &[Entry],
    ) -> Option<String> {
        let in_flight = in_flight.iter().map(|(place, waits, writes)| (*place, &waits[..], &writes[..]));
        unordered(&[1], inputs, own, waits, in_flight)
    }

    const WEIGHTS: MemoryRange = (7, 100, 200);
    const INPUTS: [MemoryRange; 2] = [(5, 0, 10), WEIGHTS];

    #[test]
    fn an_input_that_the_submission_writes_is_not_read_early() {
        assert_eq!(check(&INPUTS, &[(5, 0, 10), (7, 200, 300), (8, 100, 200)], &[], &[]), None);
        let what = check(&INPUTS, &[(7, 199, 300)], &[], &[]).expect("overlaps");
        assert!(what.contains("binding 1") && what.contains("its submission"), "{what}");
    }

    #[test]
    fn a_binding_that_is_not_there_is_told() {
        let what = check(&INPUTS[..1], &[], &[], &[]).expect("is missing");
        assert!(what.contains("binding 1") && what.contains("not bound"), "{what}");
    }

    #[test]
    fn a_writer_in_flight_must_be_ordered_before_directly_or_by_others() {
        let writer = ((3, 8), vec![], vec![WEIGHTS]);
        let what = check(&INPUTS, &[], &[], std::slice::from_ref(&writer)).expect("is not ordered");
        assert!(what.contains("submission 8 of stream 3"), "{what}");
        assert_eq!(check(&INPUTS, &[], &[(3, 8)], std::slice::from_ref(&writer)), None);
        assert_eq!(check(&INPUTS, &[], &[(3, 9)], std::slice::from_ref(&writer)), None);
        assert!(check(&INPUTS, &[], &[(3, 7)], std::slice::from_ref(&writer)).is_some());
        // Through a submission of another stream, and through an earlier one of that stream.
        let between = [writer.clone(), ((4, 1), vec![(3, 8)], vec![]), ((4, 2), vec![], vec![])];
        assert_eq!(check(&INPUTS, &[], &[(4, 2)], &between), None);
        assert!(check(&INPUTS, &[], &[(4, 0)], &between).is_some());
        let elsewhere = ((3, 8), vec![], vec![(7, 0, 100), (6, 100, 200)]);
        assert_eq!(check(&INPUTS, &[], &[], &[elsewhere]), None);
    }

    #[test]
    fn memory_is_listed_once_and_sorted() {
        assert_eq!(memory(&[(9, 0, 1), (2, 0, 1), (9, 5, 6)]), [2, 9]);
    }
}
