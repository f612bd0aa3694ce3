//! The state of the fake device and the execution of its operations.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::sys::*;

/// Bytes of device memory.
pub(super) const TOTAL: usize = 64 << 20;
/// Shared memory that each kernel has besides its dynamic one, and what a block has by default.
pub(super) const STATIC_SHARED: usize = 8 << 10;
pub(super) const SHARED_BY_DEFAULT: usize = 48 << 10;
const ILLEGAL_ADDRESS: CUresult = 700;

/// An operation in a stream or a graph.
#[derive(Clone)]
pub(super) enum Op {
    Kernel { entry: usize, parameters: Vec<Vec<u8>> },
    Copy { to: u64, from: u64, len: usize },
    In { to: u64, from: usize, len: usize },
    Out { to: usize, from: u64, len: usize },
    Clear { to: u64, len: usize },
    Store { to: u64, bytes: Vec<u8> },
    Record(usize, u64),
    Wait(usize, u64),
    Graph(Vec<(Op, Vec<usize>)>),
}

/// The objects of the device. Work is queued per stream.
#[derive(Default)]
pub(super) struct State {
    pub(super) memory: BTreeMap<u64, Vec<u8>>,
    pub(super) streams: HashMap<usize, VecDeque<Op>>,
    /// For each event the number of its last record, and of its last completed one.
    pub(super) events: HashMap<usize, (u64, u64)>,
    pub(super) modules: HashMap<usize, String>,
    pub(super) graphs: HashMap<usize, Vec<(Op, Vec<usize>)>>,
    pub(super) host: HashMap<usize, Vec<u64>>,
    pub(super) programs: HashMap<usize, String>,
    /// Kernels by their entry, and the dynamic shared memory that they may use.
    pub(super) shared: HashMap<usize, usize>,
    next: usize,
    /// The sticky error, 0 if there is none.
    pub(super) fault: CUresult,
    random: u64,
}

/// The numbers of live objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Live {
    pub(crate) memory: usize,
    pub(crate) streams: usize,
    pub(crate) events: usize,
    pub(crate) modules: usize,
    pub(crate) graphs: usize,
    pub(crate) host: usize,
}

/// The kernels: name, offset and size of each parameter.
pub(super) const KERNELS: [(&str, &[(usize, usize)]); 4] = [
    ("bump", &[(0, 8), (8, 4)]),
    ("mix", &[(0, 8), (8, 8), (16, 8), (24, 8)]),
    ("early", &[(0, 8), (8, 8), (16, 8), (24, 8)]),
    ("wild", &[(0, 8)]),
];

fn shared() -> &'static Mutex<State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    STATE.get_or_init(Mutex::default)
}

pub(super) fn state() -> MutexGuard<'static, State> {
    shared().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resets the device; `seed` selects the order of unordered operations.
pub(crate) fn reset(seed: u64) {
    *state() = State { random: seed, next: 16, ..State::default() };
}

/// The objects that are alive.
pub(crate) fn live() -> Live {
    let state = state();
    Live {
        memory: state.memory.len(),
        streams: state.streams.len(),
        events: state.events.len(),
        modules: state.modules.len(),
        graphs: state.graphs.len(),
        host: state.host.len(),
    }
}

impl State {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit.max(1)
    }

    pub(super) fn handle(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    pub(super) fn bytes(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let (start, block) = self.memory.range_mut(..=at).next_back()?;
        let offset = (at - start) as usize;
        block.get_mut(offset..offset + len)
    }

    pub(super) fn load_words(&mut self, at: u64, count: usize) -> Option<Vec<u32>> {
        let bytes = self.bytes(at, 4 * count)?;
        Some(
            bytes
                .chunks_exact(4)
                .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
                .collect(),
        )
    }

    pub(super) fn store_words(&mut self, at: u64, values: &[u32]) -> Option<()> {
        let bytes = self.bytes(at, 4 * values.len())?;
        for (word, value) in bytes.chunks_exact_mut(4).zip(values) {
            word.copy_from_slice(&value.to_ne_bytes());
        }
        Some(())
    }

    pub(super) fn run(&mut self, op: Op) -> Option<()> {
        match op {
            Op::Kernel { entry, parameters } => {
                let long = |at: usize| u64::from_ne_bytes(parameters[at][..8].try_into().unwrap());
                let int = |at: usize, from: usize| {
                    u32::from_ne_bytes(parameters[at][from..from + 4].try_into().unwrap())
                };
                match KERNELS[entry].0 {
                    "bump" => {
                        let mut x = self.load_words(long(0), int(1, 0) as usize)?;
                        x.iter_mut().for_each(|value| *value = value.wrapping_add(1));
                        self.store_words(long(0), &x)
                    }
                    "mix" | "early" => {
                        let (salt, n) = (int(3, 0), int(3, 4) as usize);
                        let (a, b) = (self.load_words(long(0), n)?, self.load_words(long(1), n)?);
                        let out: Vec<u32> = a.iter().zip(&b).map(|(a, b)| mix(*a, *b, salt)).collect();
                        self.store_words(long(2), &out)
                    }
                    _ => None,
                }
            }
            Op::Copy { to, from, len } => {
                let data = self.bytes(from, len)?.to_vec();
                self.bytes(to, len)?.copy_from_slice(&data);
                Some(())
            }
            Op::In { to, from, len } => {
                let target = self.bytes(to, len)?.as_mut_ptr();
                // SAFETY: the caller of the copy promised that the host's bytes stay until it is done.
                unsafe { (from as *const u8).copy_to_nonoverlapping(target, len) };
                Some(())
            }
            Op::Out { to, from, len } => {
                let source = self.bytes(from, len)?.as_ptr();
                // SAFETY: as above.
                unsafe { source.copy_to_nonoverlapping(to as *mut u8, len) };
                Some(())
            }
            Op::Clear { to, len } => {
                self.bytes(to, len)?.fill(0);
                Some(())
            }
            Op::Store { to, bytes } => {
                self.bytes(to, bytes.len())?.copy_from_slice(&bytes);
                Some(())
            }
            Op::Record(event, number) => {
                if let Some(state) = self.events.get_mut(&event) {
                    state.1 = state.1.max(number);
                }
                Some(())
            }
            Op::Wait(..) => Some(()),
            Op::Graph(nodes) => {
                let mut left: Vec<usize> = (0..nodes.len()).collect();
                let mut done = vec![false; nodes.len()];
                while !left.is_empty() {
                    let ready: Vec<usize> = (0..left.len())
                        .filter(|at| nodes[left[*at]].1.iter().all(|before| done[*before]))
                        .collect();
                    let at = ready[self.below(ready.len())];
                    let node = left.remove(at);
                    self.run(nodes[node].0.clone())?;
                    done[node] = true;
                }
                Some(())
            }
        }
    }

    /// Runs one operation; false if none can.
    pub(super) fn advance(&mut self) -> bool {
        let ready: Vec<usize> = self
            .streams
            .iter()
            .filter(|(_, queue)| match queue.front() {
                Some(Op::Wait(event, number)) => {
                    self.events.get(event).is_none_or(|state| state.1 >= *number)
                }
                Some(_) => true,
                None => false,
            })
            .map(|(stream, _)| *stream)
            .collect();
        if ready.is_empty() || self.fault != 0 {
            return false;
        }
        let mut ready = ready;
        ready.sort_unstable();
        let stream = ready[self.below(ready.len())];
        if let Some(op) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front)
            && self.run(op).is_none()
        {
            self.fault = ILLEGAL_ADDRESS;
        }
        true
    }

    pub(super) fn push(&mut self, stream: CUstream, op: Op) -> CUresult {
        if self.fault != 0 {
            return self.fault;
        }
        match self.streams.get_mut(&(stream.0 as usize)) {
            Some(queue) => {
                queue.push_back(op);
                0
            }
            None => 400,
        }
    }

    pub(super) fn done(&self, event: usize) -> bool {
        self.events.get(&event).is_none_or(|state| state.1 >= state.0)
    }
}

/// The result of the kernel `mix` for one element.
pub(crate) fn mix(a: u32, b: u32, salt: u32) -> u32 {
    a.wrapping_mul(1_664_525).wrapping_add(b ^ salt)
}
