//! Work in flight: submitted to the device and not finished.
//!
//! Each stream has a queue of submissions, each with an event. A completed event implies that everything
//! before it on its stream, and everything that it waited for, has completed. So [`InFlight::collect`] moves
//! all of that to one completed list, in dependency order. One thread at a time empties that list.
//!
//! This module is independent of CUDA; events and work are type parameters.

use std::collections::{HashMap, VecDeque};

/// The stream and index of a submission.
pub(crate) type SubmissionId = (u64, u64);

struct Entry<E, W> {
    serial: u64,
    index: u64,
    event: E,
    waits: Vec<SubmissionId>,
    work: W,
}

struct Queue<E, W> {
    in_flight: VecDeque<Entry<E, W>>,
}

/// Completed work.
pub(crate) struct Completed<W> {
    pub(crate) work: W,
    /// Whether the device was lost before the work completed.
    pub(crate) lost: bool,
}

/// All work in flight on a device.
pub(crate) struct InFlight<E, W> {
    streams: HashMap<u64, Queue<E, W>>,
    completed: VecDeque<Completed<W>>,
    /// A thread is emptying the completed list.
    finishing: bool,
    serial: u64,
    in_flight: usize,
}

impl<E: Clone, W> InFlight<E, W> {
    pub(crate) fn new() -> Self {
        InFlight {
            streams: HashMap::new(),
            completed: VecDeque::new(),
            finishing: false,
            serial: 0,
            in_flight: 0,
        }
    }

    /// The number of submissions that are not known to have completed.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn add_stream(&mut self, stream: u64) {
        self.streams.insert(stream, Queue { in_flight: VecDeque::new() });
    }

    pub(crate) fn remove_stream(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    /// Adds a submission behind those of its stream.
    pub(crate) fn push(&mut self, stream: u64, index: u64, event: E, waits: Vec<SubmissionId>, work: W) {
        self.serial += 1;
        let queue = self.streams.entry(stream).or_insert_with(|| Queue { in_flight: VecDeque::new() });
        queue.in_flight.push_back(Entry { serial: self.serial, index, event, waits, work });
        self.in_flight += 1;
    }

    /// All submissions in flight, with their waits.
    pub(crate) fn all(&self) -> impl Iterator<Item = (SubmissionId, &[SubmissionId], &W)> + Clone {
        self.streams.iter().flat_map(|(stream, queue)| {
            queue.in_flight.iter().map(|flight| ((*stream, flight.index), &flight.waits[..], &flight.work))
        })
    }

    /// The event of a submission, or of the last one before it; `None` if those have completed.
    pub(crate) fn event(&self, stream: u64, index: u64) -> Option<E> {
        let queue = self.streams.get(&stream)?;
        let found = queue.in_flight.iter().rev().find(|flight| flight.index <= index)?;
        Some(found.event.clone())
    }

    /// The submissions of each stream to query: the newest, one in the middle and the oldest. A completed one
    /// implies those after it in the list.
    pub(crate) fn probes(&self) -> Vec<Vec<(SubmissionId, E)>> {
        let busy = self.streams.iter().filter(|(_, queue)| !queue.in_flight.is_empty());
        busy.map(|(stream, queue)| {
            let last = queue.in_flight.len() - 1;
            let mut places = vec![last, last / 2, 0];
            places.dedup();
            let in_flight = places.into_iter().map(|at| &queue.in_flight[at]);
            in_flight.map(|flight| ((*stream, flight.index), flight.event.clone())).collect()
        })
        .collect()
    }

    /// Marks a submission as completed, with all before it on its stream and all that those waited for.
    pub(crate) fn collect(&mut self, stream: u64, index: u64) {
        // Waits point backwards in time, so this ends. An explicit stack, since chains of waits may be as
        // long as the queue.
        let mut goals: Vec<SubmissionId> = vec![(stream, index)];
        while let Some((stream, index)) = goals.last().copied() {
            let front = self.streams.get(&stream).and_then(|queue| queue.in_flight.front());
            let Some(front) = front.filter(|flight| flight.index <= index) else {
                goals.pop();
                continue;
            };
            let open = front.waits.iter().copied().find(|(stream, index)| self.is_in_flight(*stream, *index));
            if let Some(open) = open {
                goals.push(open);
                continue;
            }
            if let Some(flight) = self.streams.get_mut(&stream).and_then(|queue| queue.in_flight.pop_front())
            {
                self.in_flight -= 1;
                self.completed.push_back(Completed { work: flight.work, lost: false });
            }
        }
    }

    fn is_in_flight(&self, stream: u64, index: u64) -> bool {
        let front = self.streams.get(&stream).and_then(|queue| queue.in_flight.front());
        front.is_some_and(|flight| flight.index <= index)
    }

    /// Marks everything as lost, in submission order.
    pub(crate) fn lose(&mut self) {
        let mut all: Vec<Entry<E, W>> =
            self.streams.values_mut().flat_map(|queue| queue.in_flight.drain(..)).collect();
        all.sort_by_key(|flight| flight.serial);
        self.in_flight = 0;
        self.completed.extend(all.into_iter().map(|flight| Completed { work: flight.work, lost: true }));
    }

    /// Claims the completed list; false if another thread has claimed it.
    pub(crate) fn begin_finishing(&mut self) -> bool {
        !std::mem::replace(&mut self.finishing, true)
    }

    /// Whether there is completed work that no thread has claimed.
    pub(crate) fn has_unclaimed(&self) -> bool {
        !self.finishing && !self.completed.is_empty()
    }

    /// The next completed work; `None` releases the claim.
    pub(crate) fn next_completed(&mut self) -> Option<Completed<W>> {
        let next = self.completed.pop_front();
        if next.is_none() {
            self.finishing = false;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(in_flight: &mut InFlight<u32, &'static str>) -> Vec<&'static str> {
        assert!(in_flight.begin_finishing());
        std::iter::from_fn(|| in_flight.next_completed().map(|completed| completed.work)).collect()
    }

    #[test]
    fn a_completed_submission_completes_its_predecessors() {
        let mut in_flight = InFlight::new();
        in_flight.add_stream(1);
        for (index, name) in [(1, "a"), (2, "b"), (4, "c")] {
            in_flight.push(1, index, index as u32, vec![], name);
        }
        assert_eq!(in_flight.event(1, 3), Some(2));
        in_flight.collect(1, 3);
        assert_eq!(order(&mut in_flight), ["a", "b"]);
        assert_eq!(in_flight.event(1, 3), None);
        assert_eq!(in_flight.in_flight(), 1);
        in_flight.collect(1, 3);
        assert!(order(&mut in_flight).is_empty());
    }

    #[test]
    fn each_busy_stream_is_queried_from_its_newest_submission_to_its_oldest() {
        let mut in_flight: InFlight<u64, &str> = InFlight::new();
        in_flight.add_stream(1);
        (1..=5).for_each(|index| in_flight.push(2, index, 10 * index, vec![], "x"));
        in_flight.push(3, 7, 70, vec![], "y");
        let mut probes = in_flight.probes();
        probes.sort_by_key(|of_stream| of_stream[0].0);
        assert_eq!(probes, [vec![((2, 5), 50), ((2, 3), 30), ((2, 1), 10)], vec![((3, 7), 70)]]);
    }

    #[test]
    fn waits_are_finished_first_across_streams() {
        let mut in_flight = InFlight::new();
        in_flight.push(1, 1, 0, vec![], "a1");
        in_flight.push(2, 1, 0, vec![(1, 1)], "b1");
        in_flight.push(3, 1, 0, vec![], "c1");
        in_flight.push(1, 2, 0, vec![(2, 1), (3, 1)], "a2");
        in_flight.push(2, 2, 0, vec![(1, 2)], "b2");
        in_flight.collect(2, 2);
        assert_eq!(order(&mut in_flight), ["a1", "b1", "c1", "a2", "b2"]);
        assert_eq!(in_flight.in_flight(), 0);
    }

    #[test]
    fn a_chain_of_waits_as_long_as_the_queue_is_collected() {
        let mut in_flight = InFlight::new();
        for index in 1..=100_000u64 {
            let waits = if index > 1 { vec![(1 - (index - 1) % 2, index - 1)] } else { vec![] };
            in_flight.push(1 - index % 2, index, 0, waits, "x");
        }
        in_flight.collect(1, 100_000);
        assert_eq!(in_flight.in_flight(), 0);
        assert_eq!(order(&mut in_flight).len(), 100_000);
    }

    #[test]
    fn a_lost_device_ends_everything_in_the_order_of_submission() {
        let mut in_flight = InFlight::new();
        in_flight.push(2, 1, 0, vec![], "first");
        in_flight.push(1, 1, 0, vec![], "second");
        in_flight.push(2, 2, 0, vec![(1, 1)], "third");
        in_flight.lose();
        assert!(in_flight.begin_finishing());
        let ended: Vec<_> = std::iter::from_fn(|| in_flight.next_completed()).collect();
        assert!(ended.iter().all(|completed| completed.lost));
        assert_eq!(
            ended.iter().map(|completed| completed.work).collect::<Vec<_>>(),
            ["first", "second", "third"]
        );
        assert!(in_flight.probes().is_empty());
    }

    #[test]
    fn one_thread_at_a_time_claims_the_completed_list() {
        let mut in_flight: InFlight<u32, &str> = InFlight::new();
        in_flight.push(1, 1, 0, vec![], "a");
        in_flight.collect(1, 1);
        assert!(in_flight.has_unclaimed());
        assert!(in_flight.begin_finishing());
        assert!(!in_flight.begin_finishing() && !in_flight.has_unclaimed());
        assert!(in_flight.next_completed().is_some() && in_flight.next_completed().is_none());
        assert!(in_flight.begin_finishing());
    }
}
