//! Early launch: a kernel that begins while those before it still run.
//!
//! On devices of capability 9.0 and later a kernel may be launched so that its blocks begin when the kernel before it lets
//! them (`griddepcontrol.launch_dependents`) or ends, whichever comes first. Such a kernel waits by itself
//! (`griddepcontrol.wait`) until everything before it is over. Four things make that right:
//!
//! | what | promised by | checked by |
//! |---|---|---|
//! | before its wait the kernel writes nothing and reads only the bindings that `ahead` names | the kernel's text. Op kernels declare it in the text, and `ahead` is made from that (`hesper`'s `gpu/early.rs`) | the tests there, by the text; on a GPU chains of such kernels against the host (`hesper-ops-gpu-check failures`) |
//! | every block comes to the wait, so the kernel's end implies the end of all before it | the kernel's text | the same |
//! | nothing of the submission writes what is read early | [`Early::allows`] | unit tests here; again before each launch under validation |
//! | nothing of earlier submissions is still running | the first kernel of a submission, and of each graph, is launched in full order; the runtime's waits precede it | under validation: [`unordered_writer`] |
//!
//! `hesper-cuda-check failures` runs a kernel that reads early behind one that holds back what it writes: inputs that the
//! submission writes, or one before it, must never be stale.
//!
//! Validation is on where `HESPER_VALIDATE` says so. A launch that breaks one of the last two rows is not made: its
//! command fails, and the fault names the binding and the writer.

use std::cell::OnceCell;

use hesper_runtime::{Binding, Work};

use crate::flight::Place;

/// Bytes of a piece of memory: its number, first byte, end.
pub(crate) type Range = (u64, usize, usize);

fn range(binding: &Binding) -> Range {
    (binding.memory().id, binding.offset(), binding.offset() + binding.len())
}

fn overlap(one: Range, other: Range) -> bool {
    one.0 == other.0 && one.1.max(other.1) < one.2.min(other.2)
}

/// What a work writes.
pub(crate) fn writes(work: &Work) -> Vec<Range> {
    let bindings = (0..work.len()).flat_map(|position| work.command(position).bindings);
    bindings.filter(|binding| binding.access().writes()).map(range).collect()
}

/// What of a submission may be read early.
#[derive(Default)]
pub(crate) struct Early {
    /// The memory that the submission writes to, sorted; found when it is first asked for.
    written: OnceCell<Vec<u64>>,
}

impl Early {
    /// Whether a command with these bindings may begin before those of its submission that it depends on have ended:
    /// none of them writes to memory that it reads early. A binding that is not there is nothing to read from.
    pub(crate) fn allows(&self, ahead: &[usize], bindings: &[Binding], work: &Work) -> bool {
        let written = self.written.get_or_init(|| memory(&writes(work)));
        ahead.iter().all(|number| {
            let binding = bindings.get(*number);
            binding.is_some_and(|binding| written.binary_search(&binding.memory().id).is_err())
        })
    }
}

fn memory(writes: &[Range]) -> Vec<u64> {
    let mut memory: Vec<u64> = writes.iter().map(|range| range.0).collect();
    memory.sort_unstable();
    memory.dedup();
    memory
}

/// What is wrong with an early launch, if anything: an input that its own submission writes, or that a submission in
/// flight writes which nothing orders before it. Found by byte range, and without what [`Early`] keeps.
///
/// `flights` gives submissions of other streams with their waits and writes.
pub(crate) fn unordered_writer<'a>(
    ahead: &[usize],
    bindings: &[Binding],
    own: &[Range],
    waits: &[Place],
    flights: impl Iterator<Item = (Place, &'a [Place], &'a [Range])> + Clone,
) -> Option<String> {
    let inputs: Vec<Range> = bindings.iter().map(range).collect();
    unordered(ahead, &inputs, own, waits, flights)
}

fn unordered<'a>(
    ahead: &[usize],
    inputs: &[Range],
    own: &[Range],
    waits: &[Place],
    flights: impl Iterator<Item = (Place, &'a [Place], &'a [Range])> + Clone,
) -> Option<String> {
    let ordered = reached(waits, flights.clone());
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
            |place: Place| ordered.iter().any(|(stream, last)| *stream == place.0 && place.1 <= *last);
        let writer = flights
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

/// The submissions that are over when `waits` are: of each stream the last.
fn reached<'a>(
    waits: &[Place],
    flights: impl Iterator<Item = (Place, &'a [Place], &'a [Range])> + Clone,
) -> Vec<Place> {
    let mut reached: Vec<Place> = Vec::new();
    let mut open: Vec<Place> = waits.to_vec();
    while let Some((stream, index)) = open.pop() {
        let known = reached.iter().find(|(other, _)| *other == stream).map(|(_, last)| *last);
        if known.is_some_and(|last| last >= index) {
            continue;
        }
        reached.retain(|(other, _)| *other != stream);
        reached.push((stream, index));
        for (place, more, _) in flights.clone() {
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

    type Flown = (Place, Vec<Place>, Vec<Range>);

    fn check(inputs: &[Range], own: &[Range], waits: &[Place], flights: &[Flown]) -> Option<String> {
        let flights = flights.iter().map(|(place, waits, writes)| (*place, &waits[..], &writes[..]));
        unordered(&[1], inputs, own, waits, flights)
    }

    const WEIGHTS: Range = (7, 100, 200);
    const INPUTS: [Range; 2] = [(5, 0, 10), WEIGHTS];

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
        // By way of another stream's submission, and of an earlier one of that stream.
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
