//! The ledger: everything about a device's streams and memory that must change together.
//!
//! One lock guards it. Encode order *is* the order in which commands enter here, so hazards across
//! streams and threads have one answer, and there is no second lock to take in the wrong order. Critical
//! sections are short: no allocation of device memory, no compilation, no device call, no waiting,
//! and no destructor of a user's value runs inside of one.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::block::{Block, Lease, SlotBin, WRITER};
use crate::encoder::Draft;
use crate::error::{Error, Fault, Result};
use crate::history::{History, SOME_COMMAND, Use, Users};
use crate::label::Label;
use crate::native::NativeFn;
use crate::pipeline::Pipeline;
use crate::pool::Pool;
use crate::runtime::{Shared, new_ids};
use crate::stream::StreamShared;
use crate::sync::atomic::Ordering;
use crate::work::{Batch, Binding, Command, Dispatch, Op, UNHELD, Wait, Work};

/// A map from numbers that are given one after the other: those of streams and the like.
pub type IdMap<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by an odd constant; enough for consecutive numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// What a command that is about to enter does.
pub(crate) enum Launch<'a> {
    Dispatch(&'a Arc<Pipeline>, Dispatch),
    Native(NativeFn),
    Copy,
    Clear,
}

/// What the ledger knows of a stream.
pub(crate) struct StreamState {
    pub(crate) shared: Arc<StreamShared>,
    /// The submission that takes commands.
    open: Option<Batch>,
    /// Index of the open submission, or of the next one.
    next: u64,
    /// All submissions up to this one have been finished.
    completed: u64,
    /// Submissions after `completed` that are finished already: refused ones do not wait their turn.
    early: SmallVec<[u64; 2]>,
    /// Submissions that the device never got.
    refused: SmallVec<[u64; 2]>,
    /// What submissions of other streams this one has already been ordered after.
    seen: IdMap<u64>,
    /// The last handle is gone.
    orphaned: bool,
    /// It takes no more commands.
    closed: bool,
    /// Where the fault of the open submission will be put, if somebody asked for it.
    cell: Option<FaultCell>,
    last_cell: Option<FaultCell>,
}

/// Where a submission's fault is kept for those who hold the submission.
pub(crate) type FaultCell = Arc<OnceLock<Fault>>;

/// Streams, histories, free blocks and closed submissions.
#[derive(Default)]
pub(crate) struct Ledger {
    streams: IdMap<StreamState>,
    histories: Vec<History>,
    /// Submissions that take no more commands, in an order in which each comes after those it waits
    /// for; the device gets them in this order.
    closed: VecDeque<(Work, Option<FaultCell>)>,
    pub(crate) pool: Pool,
    /// Room for submissions, of those that are finished.
    spare: Vec<Batch>,
    /// Leases that finished submissions held, for the leases to come; see [`Ledger::finished`].
    ended: Vec<Arc<Lease>>,
    /// How often the pool has given blocks up.
    trims: u64,
    /// Numbers for leases to come.
    ids: Range<u64>,
    /// How many submissions were opened.
    opened: u64,
    pub(crate) peak: usize,
    pub(crate) encoded: u64,
    pub(crate) barriers: u64,
}

/// Rooms for submissions that are kept.
const MOST_SPARE: usize = 16;

/// What a trim has given up, to be dropped when the lock is free.
#[derive(Default)]
pub(crate) struct Garbage {
    blocks: Vec<Arc<Block>>,
    _leases: Vec<Arc<Lease>>,
}

impl Garbage {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

fn done(streams: &IdMap<StreamState>, stream: u64, submission: u64) -> bool {
    streams.get(&stream).is_none_or(|state| submission <= state.completed)
}

impl Ledger {
    pub(crate) fn add_stream(&mut self, shared: Arc<StreamShared>) {
        let state = StreamState {
            open: None,
            next: 1,
            completed: 0,
            early: SmallVec::new(),
            refused: SmallVec::new(),
            seen: IdMap::default(),
            orphaned: false,
            closed: false,
            cell: None,
            last_cell: None,
            shared: shared.clone(),
        };
        self.streams.insert(shared.id(), state);
    }

    /// A slot for a new block's history.
    pub(crate) fn new_slot(&mut self, bin: &SlotBin) -> u32 {
        if let Some(slot) = bin.lock().pop() {
            self.histories[slot as usize].clear();
            return slot;
        }
        self.histories.push(History::default());
        (self.histories.len() - 1) as u32
    }

    /// Enters a command: finds what it must be ordered after, and adds it to its stream's open
    /// submission. Gives the number of commands there.
    pub(crate) fn enter(
        &mut self,
        shared: &Arc<Shared>,
        stream: u64,
        label: &Label,
        launch: Launch<'_>,
        drafts: &[Draft<'_>],
    ) -> Result<usize> {
        let Some(state) = self.streams.get_mut(&stream).filter(|state| !state.closed) else {
            return Err(Error::StreamClosed { stream });
        };
        for draft in drafts {
            let guards = draft.buffer.0.lease.guards.load(Ordering::Acquire);
            if guards == WRITER || (guards != 0 && draft.access.writes()) {
                return Err(Error::HostAccess {
                    buffer: draft.buffer.0.lease.name(),
                    command: label.to_string(),
                    guard: if guards == WRITER { "write" } else { "read" },
                });
            }
        }
        let submission = state.next;
        let position = state.open.as_ref().map_or(0, |open| open.commands.len()) as u32;

        // Earlier submissions of the stream are ordered before this one anyway.
        let mut after: SmallVec<[u32; 8]> = SmallVec::new();
        let mut everything = false;
        let mut elsewhere: SmallVec<[Use; 2]> = SmallVec::new();
        for draft in drafts {
            if draft.untracked(shared) {
                continue;
            }
            let new = Use {
                stream,
                submission,
                command: position,
                start: draft.offset,
                end: draft.offset + draft.len,
            };
            let history = &mut self.histories[draft.buffer.0.lease.block.slot as usize];
            let streams = &self.streams;
            history.record(
                new,
                draft.access.writes(),
                |stream, submission| done(streams, stream, submission),
                |old| {
                    if old.stream != stream {
                        elsewhere.push(*old);
                    } else if old.submission == submission {
                        everything |= old.command == SOME_COMMAND;
                        if old.command < position {
                            after.push(old.command);
                        }
                    }
                },
            );
        }
        let mut waits: SmallVec<[Wait; 2]> = SmallVec::new();
        for old in elsewhere {
            waits.extend(self.order_after(shared, stream, old));
        }
        if everything {
            after.clear();
            after.extend(0..position);
        }
        after.sort_unstable();
        after.dedup();

        let (opened, trims) = (&mut self.opened, self.trims);
        let spare = &mut self.spare;
        let Some(state) = self.streams.get_mut(&stream) else {
            return Err(Error::StreamClosed { stream });
        };
        let batch = state.open.get_or_insert_with(|| {
            *opened += 1;
            Batch { number: *opened, trims, ..spare.pop().unwrap_or_default() }
        });
        batch.waits.extend(waits);
        let barrier = after.last().is_some_and(|last| *last >= batch.last_barrier);
        if barrier {
            batch.last_barrier = position;
            self.barriers += 1;
        }
        let first_binding = batch.bindings.len() as u32;
        let first_edge = batch.after.len() as u32;
        for draft in drafts {
            let binding = draft.bind(shared, batch);
            batch.bindings.push(binding);
        }
        batch.after.extend(after);
        let op = match launch {
            Launch::Dispatch(pipeline, dispatch) => {
                batch.hold_pipeline(pipeline);
                batch.dispatches.push(dispatch);
                Op::Dispatch(batch.dispatches.len() as u32 - 1)
            }
            Launch::Native(closure) => Op::Native(Some(closure)),
            Launch::Copy => Op::Copy,
            Launch::Clear => Op::Clear,
        };
        batch.commands.push(Command {
            label: label.clone(),
            op,
            bindings: (first_binding, batch.bindings.len() as u32),
            after: (first_edge, batch.after.len() as u32),
            barrier,
        });
        batch.expect_more();
        self.encoded += 1;
        Ok(batch.commands.len())
    }

    /// Orders the open submission of `stream` after a use on another stream. The other submission
    /// is closed if it is open, so that waits only ever point at submissions that gain none: the
    /// graph of waits has no cycle.
    fn order_after(&mut self, shared: &Arc<Shared>, stream: u64, old: Use) -> Option<Wait> {
        let raw = self.streams.get(&old.stream)?.shared.raw();
        let state = self.streams.get_mut(&stream)?;
        let seen = state.seen.entry(old.stream).or_insert(0);
        if *seen >= old.submission {
            return None;
        }
        *seen = old.submission;
        if self.streams.get(&old.stream).is_some_and(|other| other.next == old.submission) {
            self.close(shared, old.stream);
        }
        Some(Wait { stream: old.stream, raw, index: old.submission })
    }

    /// Closes the open submission of a stream, if there is one. Gives the index of the last
    /// submission that is closed.
    pub(crate) fn close(&mut self, shared: &Arc<Shared>, stream: u64) -> u64 {
        let Some(state) = self.streams.get_mut(&stream) else { return 0 };
        if let Some(batch) = state.open.take() {
            let work = Work::new(shared.clone(), state.shared.clone(), state.next, batch);
            state.next += 1;
            let cell = state.cell.take();
            state.last_cell.clone_from(&cell);
            self.closed.push_back((work, cell));
        }
        state.next - 1
    }

    /// Closes the open submission and gives its index and the place where its fault will be.
    pub(crate) fn close_watched(&mut self, shared: &Arc<Shared>, stream: u64) -> (u64, FaultCell) {
        let cell = match self.streams.get_mut(&stream) {
            Some(state) if state.open.is_some() => state.cell.get_or_insert_default().clone(),
            Some(state) => state.last_cell.get_or_insert_default().clone(),
            None => FaultCell::default(),
        };
        (self.close(shared, stream), cell)
    }

    /// Closes the open submissions of all streams.
    pub(crate) fn close_all(&mut self, shared: &Arc<Shared>) {
        let mut open: Vec<u64> =
            self.streams.iter().filter(|(_, state)| state.open.is_some()).map(|(id, _)| *id).collect();
        open.sort_unstable();
        for stream in open {
            self.close(shared, stream);
        }
    }

    /// The next closed submission for the device.
    pub(crate) fn next_closed(&mut self) -> Option<Work> {
        let (mut work, cell) = self.closed.pop_front()?;
        // Who waits for a submission that the device never got waits for the one before it.
        work.each_wait(|wait| {
            let Some(state) = self.streams.get(&wait.stream) else { return false };
            while state.refused.contains(&wait.index) {
                wait.index -= 1;
            }
            wait.index > state.completed
        });
        if let Some(cell) = cell {
            work.on_finish(move |fault| {
                if let Some(fault) = fault {
                    let _ = cell.set(fault.clone());
                }
            });
        }
        Some(work)
    }

    /// Notes that a submission is finished. Gives how far the stream has come, and its state for dropping
    /// if that was the last of an orphaned stream; or nothing, if the submission's leases have to go first.
    ///
    /// Leases begin on the threads that encode: there they also end, when the next one begins in their place, so that
    /// those that run work never touch them. What they lie on stays in the pool meanwhile, or with its buffer: after a
    /// trim that may not be so, and they go at once.
    pub(crate) fn finished(
        &mut self,
        stream: u64,
        index: u64,
        recycled: &mut Batch,
    ) -> Option<(u64, Option<StreamState>)> {
        const MOST_ENDED: usize = 1024;
        if !recycled.leases.is_empty() {
            if recycled.trims != self.trims || self.ended.len() + recycled.leases.len() > MOST_ENDED {
                return None;
            }
            self.ended.append(&mut recycled.leases);
        }
        if self.spare.len() < MOST_SPARE && recycled.commands.capacity() <= 4096 {
            self.spare.push(std::mem::take(recycled));
        }
        Some(self.completed(stream, index))
    }

    fn completed(&mut self, stream: u64, index: u64) -> (u64, Option<StreamState>) {
        let Some(state) = self.streams.get_mut(&stream) else { return (index, None) };
        state.early.push(index);
        while let Some(found) = state.early.iter().position(|early| *early == state.completed + 1) {
            state.early.swap_remove(found);
            state.completed += 1;
        }
        let completed = state.completed;
        state.refused.retain(|refused| *refused > completed);
        (completed, self.remove_if_over(stream))
    }

    /// Notes that the device refused a submission: nothing may wait for it there.
    pub(crate) fn refused(&mut self, stream: u64, index: u64) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.refused.push(index);
        }
    }

    /// The last handle on a stream is gone: closes what is open. Gives the state for dropping if
    /// nothing is in flight.
    pub(crate) fn orphan(&mut self, shared: &Arc<Shared>, stream: u64) -> Option<StreamState> {
        self.close(shared, stream);
        if let Some(state) = self.streams.get_mut(&stream) {
            state.orphaned = true;
        }
        self.remove_if_over(stream)
    }

    /// Refuses commands from here on.
    pub(crate) fn shut(&mut self, stream: u64) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.closed = true;
        }
    }

    fn remove_if_over(&mut self, stream: u64) -> Option<StreamState> {
        let state = self.streams.get(&stream)?;
        if state.orphaned && state.open.is_none() && state.completed + 1 == state.next {
            return self.streams.remove(&stream);
        }
        None
    }

    /// Who still uses a block.
    pub(crate) fn users(&mut self, block: &Block) -> Users {
        let streams = &self.streams;
        self.histories[block.slot as usize].users(|stream, index| done(streams, stream, index))
    }

    /// Forgets a block's uses: they have completed.
    pub(crate) fn forget(&mut self, block: &Block) {
        self.histories[block.slot as usize].clear();
    }

    /// A free block for `taker`.
    pub(crate) fn take(&mut self, class: usize, taker: crate::pool::Taker) -> Option<Arc<Block>> {
        let Ledger { pool, histories, streams, .. } = self;
        pool.take(class, taker, |block| {
            histories[block.slot as usize].users(|stream, index| done(streams, stream, index))
        })
    }

    /// The number of a lease to come.
    pub(crate) fn new_lease(&mut self) -> u64 {
        loop {
            match self.ids.next() {
                Some(id) => return id,
                None => self.ids = new_ids(64),
            }
        }
    }

    /// A lease of a finished submission, whose place may serve another.
    pub(crate) fn take_ended(&mut self) -> Option<Arc<Lease>> {
        self.ended.pop()
    }

    /// Gives up free blocks until at most `keep` bytes are cached.
    pub(crate) fn trim(&mut self, keep: usize) -> Garbage {
        let blocks = self.pool.trim(keep);
        if blocks.is_empty() {
            return Garbage::default();
        }
        self.trims += 1;
        Garbage { blocks, _leases: std::mem::take(&mut self.ended) }
    }

    /// A use that a host access has to wait for, as a stream and an index.
    pub(crate) fn pending(
        &mut self,
        lease: &Lease,
        range: Range<usize>,
        writes: bool,
    ) -> Option<(Arc<StreamShared>, u64)> {
        let streams = &self.streams;
        let old = self.histories[lease.block.slot as usize].pending(
            range.start,
            range.end,
            writes,
            |stream, index| done(streams, stream, index),
        )?;
        Some((streams.get(&old.stream)?.shared.clone(), old.submission))
    }

    /// The oldest unfinished submission of the oldest stream that has one.
    pub(crate) fn oldest_in_flight(&self) -> Option<(Arc<StreamShared>, u64)> {
        self.streams
            .values()
            .filter(|state| state.completed + 1 < state.next)
            .min_by_key(|state| state.shared.id())
            .map(|state| (state.shared.clone(), state.completed + 1))
    }

    /// How many submissions of a stream are closed and not finished.
    pub(crate) fn in_flight(&self, stream: u64) -> u64 {
        self.streams.get(&stream).map_or(0, |state| state.next - 1 - state.completed)
    }

    /// The submission to wait for if more than `most` of a stream are in flight.
    pub(crate) fn over_limit(&self, stream: u64, most: u64) -> Option<u64> {
        let state = self.streams.get(&stream)?;
        let index = (state.next - 1).checked_sub(most)?;
        (index > state.completed).then_some(index)
    }

    /// How many streams there are.
    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }
}

impl Draft<'_> {
    /// Whether the ablation in force hides this use from the hazard tracker.
    fn untracked(&self, shared: &Shared) -> bool {
        #[cfg(feature = "sim")]
        {
            use crate::sim::Ablation;
            shared.ablation == Ablation::Hazards
                || (self.undeclared && shared.ablation == Ablation::DeclaredInputs)
        }
        #[cfg(not(feature = "sim"))]
        {
            let _ = shared;
            false
        }
    }

    /// The binding that goes into the command: the submission holds the lease.
    #[inline(always)]
    fn bind(&self, shared: &Shared, batch: &mut Batch) -> Binding {
        let lease = &self.buffer.0.lease;
        #[cfg(feature = "sim")]
        let retain = shared.ablation != crate::sim::Ablation::Retention && !self.untracked(shared)
            || shared.ablation == crate::sim::Ablation::Hazards;
        #[cfg(not(feature = "sim"))]
        let retain = {
            let _ = shared;
            true
        };
        Binding {
            lease: if retain { batch.hold(lease) } else { UNHELD },
            lease_id: lease.id,
            memory: lease.block.memory,
            offset: self.offset,
            len: self.len,
            access: self.access,
        }
    }
}
