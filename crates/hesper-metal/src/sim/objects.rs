//! The objects of the simulated Metal. A released object is destroyed: its memory is returned, its code and
//! its commands are dropped. Its name stays known, so that its use is noticed.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;

use super::kernel::{Argument, SimFunction, SimFunctions};
use crate::edge::{CompletedHandler, ErrorCode};

const FRESH_PATTERN: u8 = 0xdb;

/// Memory of a buffer.
pub(super) struct SimBuffer {
    pub(super) address: NonNull<u8>,
    pub(super) len: usize,
    /// Of memory that the buffer owns, until it is released.
    layout: Option<Layout>,
}

// SAFETY: plain memory, accessed by commands that the engine orders.
unsafe impl Send for SimBuffer {}

impl SimBuffer {
    pub(super) fn new(len: usize, align: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len, align).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        let address = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: freshly allocated, `len` bytes.
        unsafe { address.as_ptr().write_bytes(FRESH_PATTERN, len) };
        Some(SimBuffer { address, len, layout: Some(layout) })
    }

    pub(super) fn foreign(address: NonNull<u8>, len: usize) -> Self {
        SimBuffer { address, len, layout: None }
    }

    /// The bytes that it owns.
    fn held_bytes(&self) -> usize {
        self.layout.map_or(0, |layout| layout.size())
    }

    /// Returns the memory that it owns.
    fn release(&mut self) {
        if let Some(layout) = self.layout.take() {
            // SAFETY: allocated with this layout, and returned once. Objects give out the address of a live
            // buffer alone.
            unsafe { dealloc(self.address.as_ptr(), layout) };
        }
    }
}

impl Drop for SimBuffer {
    fn drop(&mut self) {
        self.release();
    }
}

/// One index of an encoder.
#[derive(Debug, Clone)]
pub(super) enum Slot {
    Unset,
    Nil,
    Bytes(Vec<u8>),
    Buffer(u64, usize),
}

/// An encoded dispatch.
#[derive(Clone)]
pub(super) struct SimDispatch {
    pub(super) pipeline: u64,
    pub(super) slots: Vec<Slot>,
    pub(super) grid: [u64; 3],
    pub(super) threadgroup: [u64; 3],
    /// Lengths of threadgroup arguments, by index.
    pub(super) threadgroup_memory: BTreeMap<usize, usize>,
    /// Barriers before it.
    pub(super) epoch: usize,
    pub(super) label: String,
    /// The threads that ran.
    pub(super) ran: u64,
}

impl SimDispatch {
    pub(super) fn threads(&self) -> u64 {
        self.grid.iter().product()
    }

    pub(super) fn is_done(&self) -> bool {
        self.ran == self.threads()
    }
}

/// An encoder, open or ended.
#[derive(Default, Clone)]
pub(super) struct SimEncoder {
    pub(super) commands: u64,
    pub(super) open: bool,
    pub(super) pipeline: Option<u64>,
    pub(super) slots: Vec<Slot>,
    /// Lengths of threadgroup arguments, by index.
    pub(super) threadgroup_memory: BTreeMap<usize, usize>,
    pub(super) label: String,
    pub(super) epoch: usize,
    pub(super) dispatches: Vec<SimDispatch>,
    pub(super) waits: Vec<u64>,
    pub(super) updates: Vec<u64>,
    /// The encoders that the waits mean, as command buffer and operation; set by the commit.
    pub(super) after: Vec<(u64, usize)>,
}

/// An operation of a command buffer.
pub(super) enum CommandOp {
    Wait(u64, u64),
    Signal(u64, u64, bool),
    Encode(SimEncoder),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Encoding,
    Committed,
    Completed,
}

/// A command buffer.
pub(super) struct SimCommands {
    pub(super) queue: u64,
    /// Its number in the order of commits.
    pub(super) number: u64,
    pub(super) ops: Vec<CommandOp>,
    pub(super) open_encoder: Option<u64>,
    pub(super) status: Status,
    pub(super) handler: Option<CompletedHandler>,
    /// The objects it needs.
    pub(super) uses: Vec<u64>,
    /// A failure to come, and the parts of dispatches to run before it.
    pub(super) fault: Option<(ErrorCode, String, usize)>,
    pub(super) failed: bool,
    /// Whether it signals although it failed.
    pub(super) signals: bool,
}

#[derive(Default)]
pub(super) struct SimLibrary {
    pub(super) text: String,
    pub(super) functions: SimFunctions,
}

pub(super) struct SimPipeline {
    pub(super) text: String,
    /// `None` after the release.
    pub(super) function: Option<SimFunction>,
    pub(super) label: String,
    pub(super) max_threads: usize,
}

pub(super) enum SimObject {
    Buffer(SimBuffer),
    /// With the most command buffers that have not completed.
    Queue {
        last_update: HashMap<u64, (u64, usize)>,
        max: usize,
    },
    Fence,
    Event(u64),
    Commands(Box<SimCommands>),
    Encoder(Box<SimEncoder>),
    Library(SimLibrary),
    Pipeline(SimPipeline),
    Archive(Vec<String>),
    ResidencySet(Vec<u64>),
}

impl SimObject {
    fn name(&self) -> &'static str {
        match self {
            SimObject::Buffer(_) => "buffer",
            SimObject::Queue { .. } => "command queue",
            SimObject::Fence => "fence",
            SimObject::Event(_) => "event",
            SimObject::Commands(_) => "command buffer",
            SimObject::Encoder(_) => "encoder",
            SimObject::Library(_) => "library",
            SimObject::Pipeline(_) => "pipeline",
            SimObject::Archive(_) => "archive",
            SimObject::ResidencySet(_) => "residency set",
        }
    }
}

pub(super) struct Entry {
    pub(super) kind: SimObject,
    pub(super) alive: bool,
    /// Command buffers that need it and have not completed.
    pub(super) used: usize,
}

/// All objects so far.
#[derive(Default)]
pub(super) struct Objects {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    residency_sets: Vec<u64>,
    pub(super) live_bytes: usize,
    pub(super) live_buffers: usize,
}

impl Objects {
    pub(super) fn add(&mut self, kind: SimObject) -> u64 {
        self.next += 1;
        if let SimObject::Buffer(buffer) = &kind {
            self.live_buffers += 1;
            self.live_bytes += buffer.held_bytes();
        }
        if let SimObject::ResidencySet(_) = &kind {
            self.residency_sets.push(self.next);
        }
        self.entries.insert(self.next, Entry { kind, alive: true, used: 0 });
        self.next
    }

    pub(super) fn get(&self, id: u64) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub(super) fn name(&self, id: u64) -> String {
        match self.entries.get(&id).map(|entry| &entry.kind) {
            Some(SimObject::Pipeline(pipeline)) => format!("pipeline {} ({id})", pipeline.label),
            Some(kind) => format!("{} {id}", kind.name()),
            None => format!("object {id}, which never existed"),
        }
    }

    pub(super) fn is_alive(&self, id: u64) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.alive)
    }

    /// Whether an object existed and was destroyed.
    pub(super) fn is_released(&self, id: u64) -> bool {
        self.entries.get(&id).is_some_and(|entry| !entry.alive)
    }

    /// Destroys an object. False if it was destroyed before.
    pub(super) fn release(&mut self, id: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        if !std::mem::replace(&mut entry.alive, false) {
            return false;
        }
        match &mut entry.kind {
            SimObject::Buffer(buffer) => {
                self.live_buffers -= 1;
                self.live_bytes -= buffer.held_bytes();
                buffer.release();
            }
            SimObject::Pipeline(pipeline) => pipeline.function = None,
            SimObject::Library(library) => *library = SimLibrary::default(),
            SimObject::Encoder(encoder) => **encoder = SimEncoder::default(),
            SimObject::Archive(keys) => *keys = Vec::new(),
            // The GPU holds a committed command buffer until it has completed.
            _ => {}
        }
        true
    }

    /// Bytes of memory that buffers hold.
    pub(super) fn held_bytes(&self) -> usize {
        let held = |entry: &Entry| match &entry.kind {
            SimObject::Buffer(buffer) => buffer.held_bytes(),
            _ => 0,
        };
        self.entries.values().map(held).sum()
    }

    pub(super) fn commands(&mut self, id: u64) -> Option<&mut SimCommands> {
        match &mut self.entries.get_mut(&id)?.kind {
            SimObject::Commands(commands) => Some(commands),
            _ => None,
        }
    }

    pub(super) fn encoder(&mut self, id: u64) -> Option<&mut SimEncoder> {
        match &mut self.entries.get_mut(&id)?.kind {
            SimObject::Encoder(encoder) => Some(encoder),
            _ => None,
        }
    }

    pub(super) fn pipeline(&self, id: u64) -> Option<&SimPipeline> {
        match &self.entries.get(&id)?.kind {
            SimObject::Pipeline(pipeline) => Some(pipeline),
            _ => None,
        }
    }

    pub(super) fn event(&self, id: u64) -> u64 {
        match self.entries.get(&id).map(|entry| &entry.kind) {
            Some(SimObject::Event(value)) => *value,
            _ => 0,
        }
    }

    /// What a kernel sees of a slot; the error names a released buffer.
    pub(super) fn argument(&self, slot: &Slot) -> Result<Argument, u64> {
        match slot {
            Slot::Unset | Slot::Nil => Ok(Argument::Nothing),
            Slot::Bytes(bytes) => Ok(Argument::Bytes(bytes.clone())),
            Slot::Buffer(id, offset) => match self.entries.get(id) {
                Some(Entry { kind: SimObject::Buffer(buffer), alive: true, .. }) if *offset <= buffer.len => {
                    // SAFETY: the offset lies inside of the buffer.
                    let address = unsafe { buffer.address.as_ptr().add(*offset) };
                    Ok(Argument::Buffer(address, buffer.len - offset, *offset))
                }
                _ => Err(*id),
            },
        }
    }

    /// The buffers of residency sets.
    pub(super) fn residents(&self) -> usize {
        let members = |entry: &Entry| match &entry.kind {
            SimObject::ResidencySet(members) if entry.alive => members.len(),
            _ => 0,
        };
        self.entries.values().map(members).sum()
    }

    /// Whether a live residency set has a buffer.
    pub(super) fn is_resident(&self, id: u64) -> bool {
        let sets = self.residency_sets.iter().filter_map(|set| self.entries.get(set));
        sets.filter(|entry| entry.alive).any(|entry| match &entry.kind {
            SimObject::ResidencySet(members) => members.contains(&id),
            _ => false,
        })
    }

    /// The names of the live objects.
    pub(super) fn alive(&self) -> Vec<String> {
        let alive = self.entries.iter().filter(|(_, entry)| entry.alive);
        alive.map(|(id, _)| self.name(*id)).collect()
    }
}
