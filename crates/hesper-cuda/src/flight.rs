//! Work in flight: what the device has been given and has not finished.
//!
//! Each stream has a queue of submissions, each with an event that marks its completion. An event that
//! has completed says that everything before it on its stream, and everything it waited for, has
//! completed too; so [`Flights::collect`] moves all of that to one list of finished work, in an order
//! in which nothing comes before what it depends on. One thread at a time empties the list.
//!
//! This module knows nothing of CUDA; events and work are types of its user.

use std::collections::{HashMap, VecDeque};

/// A submission by stream and index.
pub(crate) type Place = (u64, u64);

struct Flight<E, W> {
    serial: u64,
    index: u64,
    event: E,
    waits: Vec<Place>,
    work: W,
}

struct Queue<E, W> {
    flights: VecDeque<Flight<E, W>>,
}

/// Work that is over.
pub(crate) struct Landed<W> {
    pub(crate) work: W,
    /// Whether the device was lost under it.
    pub(crate) lost: bool,
}

/// All work in flight on a device.
pub(crate) struct Flights<E, W> {
    streams: HashMap<u64, Queue<E, W>>,
    landed: VecDeque<Landed<W>>,
    /// A thread is emptying the list.
    finishing: bool,
    serial: u64,
    in_flight: usize,
}

impl<E: Clone, W> Flights<E, W> {
    pub(crate) fn new() -> Self {
        Flights {
            streams: HashMap::new(),
            landed: VecDeque::new(),
            finishing: false,
            serial: 0,
            in_flight: 0,
        }
    }

    /// Submissions whose completion has not been seen.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn add_stream(&mut self, stream: u64) {
        self.streams.insert(stream, Queue { flights: VecDeque::new() });
    }

    pub(crate) fn remove_stream(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    /// Adds a submission behind those of its stream.
    pub(crate) fn push(&mut self, stream: u64, index: u64, event: E, waits: Vec<Place>, work: W) {
        self.serial += 1;
        let queue = self.streams.entry(stream).or_insert_with(|| Queue { flights: VecDeque::new() });
        queue.flights.push_back(Flight { serial: self.serial, index, event, waits, work });
        self.in_flight += 1;
    }

    /// All submissions in flight, with what they wait for.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Place, &[Place], &W)> + Clone {
        self.streams.iter().flat_map(|(stream, queue)| {
            queue.flights.iter().map(|flight| ((*stream, flight.index), &flight.waits[..], &flight.work))
        })
    }

    /// The event of a submission, or of the last one before it; `None` if all that is over.
    pub(crate) fn event(&self, stream: u64, index: u64) -> Option<E> {
        let queue = self.streams.get(&stream)?;
        let found = queue.flights.iter().rev().find(|flight| flight.index <= index)?;
        Some(found.event.clone())
    }

    /// Submissions to look at, of each stream some: the newest, one in the middle, the oldest. One that has completed
    /// says so of those after it in this list.
    pub(crate) fn probes(&self) -> Vec<Vec<(Place, E)>> {
        let busy = self.streams.iter().filter(|(_, queue)| !queue.flights.is_empty());
        busy.map(|(stream, queue)| {
            let last = queue.flights.len() - 1;
            let mut places = vec![last, last / 2, 0];
            places.dedup();
            let flights = places.into_iter().map(|at| &queue.flights[at]);
            flights.map(|flight| ((*stream, flight.index), flight.event.clone())).collect()
        })
        .collect()
    }

    /// A submission has completed: it, all before it on its stream and all that these waited for are
    /// over.
    pub(crate) fn collect(&mut self, stream: u64, index: u64) {
        // Waits point backwards in time, so this ends; a list instead of recursion, since chains of
        // waits may be as long as there are submissions.
        let mut goals: Vec<Place> = vec![(stream, index)];
        while let Some((stream, index)) = goals.last().copied() {
            let front = self.streams.get(&stream).and_then(|queue| queue.flights.front());
            let Some(front) = front.filter(|flight| flight.index <= index) else {
                goals.pop();
                continue;
            };
            let open = front.waits.iter().copied().find(|(stream, index)| self.is_in_flight(*stream, *index));
            if let Some(open) = open {
                goals.push(open);
                continue;
            }
            if let Some(flight) = self.streams.get_mut(&stream).and_then(|queue| queue.flights.pop_front()) {
                self.in_flight -= 1;
                self.landed.push_back(Landed { work: flight.work, lost: false });
            }
        }
    }

    fn is_in_flight(&self, stream: u64, index: u64) -> bool {
        let front = self.streams.get(&stream).and_then(|queue| queue.flights.front());
        front.is_some_and(|flight| flight.index <= index)
    }

    /// The device is lost: everything is over, in the order in which it was submitted.
    pub(crate) fn lose(&mut self) {
        let mut all: Vec<Flight<E, W>> =
            self.streams.values_mut().flat_map(|queue| queue.flights.drain(..)).collect();
        all.sort_by_key(|flight| flight.serial);
        self.in_flight = 0;
        self.landed.extend(all.into_iter().map(|flight| Landed { work: flight.work, lost: true }));
    }

    /// Begins to empty the list; false if another thread is at it.
    pub(crate) fn begin_finishing(&mut self) -> bool {
        !std::mem::replace(&mut self.finishing, true)
    }

    /// Whether there is finished work that no thread is at.
    pub(crate) fn has_unattended(&self) -> bool {
        !self.finishing && !self.landed.is_empty()
    }

    /// The next finished work; `None` ends the emptying.
    pub(crate) fn next_landed(&mut self) -> Option<Landed<W>> {
        let next = self.landed.pop_front();
        if next.is_none() {
            self.finishing = false;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(flights: &mut Flights<u32, &'static str>) -> Vec<&'static str> {
        assert!(flights.begin_finishing());
        std::iter::from_fn(|| flights.next_landed().map(|landed| landed.work)).collect()
    }

    #[test]
    fn a_completed_submission_takes_its_predecessors_along() {
        let mut flights = Flights::new();
        flights.add_stream(1);
        for (index, name) in [(1, "a"), (2, "b"), (4, "c")] {
            flights.push(1, index, index as u32, vec![], name);
        }
        assert_eq!(flights.event(1, 3), Some(2));
        flights.collect(1, 3);
        assert_eq!(order(&mut flights), ["a", "b"]);
        assert_eq!(flights.event(1, 3), None);
        assert_eq!(flights.in_flight(), 1);
        flights.collect(1, 3);
        assert!(order(&mut flights).is_empty());
    }

    #[test]
    fn each_busy_stream_is_probed_from_its_newest_submission_to_its_oldest() {
        let mut flights: Flights<u64, &str> = Flights::new();
        flights.add_stream(1);
        (1..=5).for_each(|index| flights.push(2, index, 10 * index, vec![], "x"));
        flights.push(3, 7, 70, vec![], "y");
        let mut probes = flights.probes();
        probes.sort_by_key(|of_stream| of_stream[0].0);
        assert_eq!(probes, [vec![((2, 5), 50), ((2, 3), 30), ((2, 1), 10)], vec![((3, 7), 70)]]);
    }

    #[test]
    fn what_was_waited_for_is_finished_first_across_streams() {
        let mut flights = Flights::new();
        flights.push(1, 1, 0, vec![], "a1");
        flights.push(2, 1, 0, vec![(1, 1)], "b1");
        flights.push(3, 1, 0, vec![], "c1");
        flights.push(1, 2, 0, vec![(2, 1), (3, 1)], "a2");
        flights.push(2, 2, 0, vec![(1, 2)], "b2");
        flights.collect(2, 2);
        assert_eq!(order(&mut flights), ["a1", "b1", "c1", "a2", "b2"]);
        assert_eq!(flights.in_flight(), 0);
    }

    #[test]
    fn a_chain_of_waits_as_long_as_the_queue_is_collected() {
        let mut flights = Flights::new();
        for index in 1..=100_000u64 {
            let waits = if index > 1 { vec![(1 - (index - 1) % 2, index - 1)] } else { vec![] };
            flights.push(1 - index % 2, index, 0, waits, "x");
        }
        flights.collect(1, 100_000);
        assert_eq!(flights.in_flight(), 0);
        assert_eq!(order(&mut flights).len(), 100_000);
    }

    #[test]
    fn a_lost_device_ends_everything_in_the_order_of_submission() {
        let mut flights = Flights::new();
        flights.push(2, 1, 0, vec![], "first");
        flights.push(1, 1, 0, vec![], "second");
        flights.push(2, 2, 0, vec![(1, 1)], "third");
        flights.lose();
        assert!(flights.begin_finishing());
        let ended: Vec<_> = std::iter::from_fn(|| flights.next_landed()).collect();
        assert!(ended.iter().all(|landed| landed.lost));
        assert_eq!(ended.iter().map(|landed| landed.work).collect::<Vec<_>>(), ["first", "second", "third"]);
        assert!(flights.probes().is_empty());
    }

    #[test]
    fn only_one_thread_at_a_time_empties_the_list() {
        let mut flights: Flights<u32, &str> = Flights::new();
        flights.push(1, 1, 0, vec![], "a");
        flights.collect(1, 1);
        assert!(flights.has_unattended());
        assert!(flights.begin_finishing());
        assert!(!flights.begin_finishing() && !flights.has_unattended());
        assert!(flights.next_landed().is_some() && flights.next_landed().is_none());
        assert!(flights.begin_finishing());
    }
}
