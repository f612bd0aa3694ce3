//! The tape: the nodes between the sources of a transformation and the outputs of a function, inputs first.

use std::cell::OnceCell;

use crate::error::{Error, Result};
use crate::graph::{Array, Call};
use crate::ids::{IdMap, IdSet};
use crate::ops::source::is_stopped;

/// A node and the call that makes it.
pub(crate) struct Entry {
    pub(crate) array: Array,
    pub(crate) call: Call,
}

/// The nodes between sources and outputs. Places number the sources first, then the entries.
pub(crate) struct Tape {
    sources: usize,
    pub(crate) entries: Vec<Entry>,
    places: IdMap<usize>,
    /// Whether an entry is a `stop_gradient`.
    stops: bool,
    /// For each place whether derivatives reach it: they end at `stop_gradient`.
    varied: OnceCell<Vec<bool>>,
}

impl Tape {
    /// The nodes that depend on `sources` and that `outputs` depend on. Goes through the graph without
    /// recursion.
    pub(crate) fn new(outputs: &[Array], sources: &[Array]) -> Tape {
        enum Visit {
            Enter(Array),
            Leave(Array, Call),
        }
        let mut places: IdMap<usize> =
            sources.iter().enumerate().map(|(place, source)| (source.0.id, place)).collect();
        let (mut entries, mut stops) = (Vec::new(), false);
        let mut seen = IdSet::default();
        let mut stack: Vec<Visit> = outputs.iter().rev().map(|output| Visit::Enter(output.clone())).collect();
        while let Some(visit) = stack.pop() {
            match visit {
                Visit::Leave(array, call) => {
                    if call.inputs.iter().any(|input| places.contains_key(&input.0.id)) {
                        places.insert(array.0.id, sources.len() + entries.len());
                        stops = stops || is_stopped(&array);
                        entries.push(Entry { array, call });
                    }
                }
                Visit::Enter(array) => {
                    // What no transformation varies depends on no source.
                    let varied = array.0.scope.is_some() && !places.contains_key(&array.0.id);
                    if !varied || !seen.insert(array.0.id) {
                        continue;
                    }
                    if let Some(call) = array.call() {
                        let inputs = call.inputs.clone();
                        stack.push(Visit::Leave(array, call));
                        stack.extend(inputs.into_iter().rev().map(Visit::Enter));
                    }
                }
            }
        }
        Tape { sources: sources.len(), entries, places, stops, varied: OnceCell::new() }
    }

    /// The place of an array, if it is a source or depends on one.
    pub(crate) fn place(&self, array: &Array) -> Option<usize> {
        self.places.get(&array.0.id).copied()
    }

    /// Whether derivatives reach an array.
    pub(crate) fn is_varied(&self, array: &Array) -> bool {
        let Some(place) = self.place(array) else { return false };
        if !self.stops {
            return true;
        }
        self.varied.get_or_init(|| {
            let mut varied = vec![true; self.sources];
            for entry in &self.entries {
                let mut inputs = entry.call.inputs.iter().filter_map(|input| self.place(input));
                let stopped = is_stopped(&entry.array);
                varied.push(!stopped && inputs.any(|place| varied[place]));
            }
            varied
        })[place]
    }

    /// An error if an input that cannot be differentiated by depends on a source.
    pub(crate) fn check(&self, entry: &Entry) -> Result<()> {
        let op = entry.call.op.get();
        let indices = op.indices();
        let inputs = entry.call.inputs.iter().enumerate().filter(|(at, _)| indices.contains(at));
        match inputs.into_iter().find(|(_, input)| self.is_varied(input)) {
            None => Ok(()),
            Some((at, input)) => {
                let what = format!(
                    "cannot differentiate by input {at} of type {}: it holds indices or codes; use stop_gradient on it",
                    input.dtype()
                );
                Err(Error::value(op.name(), what))
            }
        }
    }

    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        self.sources + self.entries.len()
    }

    /// The place of an entry.
    pub(crate) fn place_of(&self, entry: usize) -> usize {
        self.sources + entry
    }
}
