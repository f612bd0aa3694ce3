//! The ledger: everything about a device's streams and memory that must change together.
//!
//! One lock guards it. Encode order is the order in which commands enter the ledger, so hazards across
//! streams and threads have one answer, and there is no second lock to take in the wrong order. Critical
//! sections are short: no allocation of device memory, no compilation, no device call, no wait and no
//! destructor of a user's value runs inside of one.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::block::{Block, Buffer, FreeSlots, Lease, WRITE_GUARDED};
use super::pipeline::Pipeline;
use super::pool::{Pool, Requester};
use super::shared::{Shared, new_ids};
use super::stream::StreamShared;
use super::work::{Batch, Command, Op, Work};
use crate::command::{Access, Binding, Dispatch, UNHELD, Wait};
use crate::error::{Error, Fault, Result};
use crate::hazards::{ANY_COMMAND, History, PendingStreams, Use};
use crate::label::Label;
use crate::native::NativeFn;
use crate::sync::atomic::Ordering;

/// A map from consecutive numbers, such as stream ids.
pub type IdMap<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

/// A multiplicative hash, sufficient for consecutive numbers.
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

/// A use of memory by a command that is being encoded.
#[derive(Clone, Copy)]
pub(crate) struct BindingDraft<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) access: Access,
}

impl BindingDraft<'_> {
    /// The bytes.
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// The operation of a command that is being encoded.
pub(crate) enum OpDraft<'a> {
    Dispatch(&'a Arc<Pipeline>, Dispatch),
    Native(NativeFn),
    Copy,
    Clear,
}

/// Where a command enters: its stream, submission and position there.
#[derive(Clone, Copy)]
struct CommandPosition {
    stream: u64,
    submission: u64,
    command: u32,
}

/// The ledger's state of a stream.
pub(crate) struct StreamState {
    pub(crate) shared: Arc<StreamShared>,
    /// The open submission.
    open: Option<Batch>,
    /// Index of the open submission, or of the next one.
    next: u64,
    /// All submissions up to this one have completed.
    completed: u64,
    /// Submissions after `completed` that have completed: refused ones complete out of order.
    out_of_order: SmallVec<[u64; 2]>,
    /// Submissions that the device refused and that have not completed.
    refused: SmallVec<[Refused; 1]>,
    /// For each other stream, the last submission that this stream is already ordered after.
    seen: IdMap<u64>,
    /// The last handle was dropped.
    orphaned: bool,
    /// The stream takes no more commands.
    closed: bool,
    /// Receives the first fault of the commands encoded since the last explicit commit.
    fault_cell: FaultCell,
    /// Whether a submission was closed since then.
    closed_since_commit: bool,
    /// The cell of the last explicit commit.
    committed_cell: FaultCell,
}

/// The first fault of a part of a stream, shared with the submissions that report it.
pub(crate) type FaultCell = Arc<OnceLock<Fault>>;

/// A submission that the device refused.
///
/// Later work was encoded as if it had run: ordered behind it instead of behind what it waited for, and with
/// histories that its writes cover. So it completes in the ledger only after everything that it waited for,
/// and a device-side wait for it becomes a wait for those.
struct Refused {
    index: u64,
    waits: SmallVec<[Wait; 2]>,
    /// Its fault has been reported.
    finished: bool,
    /// Its waits have completed.
    complete: bool,
}

/// The streams that advanced because a submission finished.
#[derive(Default)]
pub(crate) struct Finished {
    /// The last completed submission of the submission's own stream.
    pub(crate) completed: u64,
    /// The state of that stream if it was removed, to be dropped outside of the lock.
    pub(crate) removed: Option<StreamState>,
    /// The same for streams whose refused submissions have now completed.
    pub(crate) others: Vec<(Arc<StreamShared>, u64, Option<StreamState>)>,
}

/// Streams, histories, free blocks and closed submissions.
#[derive(Default)]
pub(crate) struct Ledger {
    streams: IdMap<StreamState>,
    histories: Vec<History>,
    /// Closed submissions in the order in which the device gets them: each after those it waits for.
    closed_submissions: VecDeque<Work>,
    pub(crate) pool: Pool,
    /// Empty batches of finished submissions, so that a new submission does not allocate.
    recycled_batches: Vec<Batch>,
    /// Leases of finished submissions, whose allocations new leases reuse; see [`Ledger::finished`].
    recycled_leases: Vec<Arc<Lease>>,
    /// The number of times the pool gave up blocks.
    trims: u64,
    /// Refused submissions of all streams that have not completed.
    refusals: usize,
    /// Reserved ids for new leases.
    ids: Range<u64>,
    /// The number of submissions opened.
    opened: u64,
    pub(crate) peak: usize,
    /// The peak of the active bytes, which falls slowly when less is in use.
    pub(crate) recent_peak: usize,
    pub(crate) encoded: u64,
    pub(crate) barriers: u64,
}

/// The most empty batches that are kept.
const MAX_RECYCLED_BATCHES: usize = 16;

/// The most entries for removed streams that [`StreamState::seen`] keeps.
const MAX_STALE_SEEN: usize = 64;

/// What a trim removed, to be dropped outside of the lock.
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
            out_of_order: SmallVec::new(),
            refused: SmallVec::new(),
            seen: IdMap::default(),
            orphaned: false,
            closed: false,
            fault_cell: FaultCell::default(),
            closed_since_commit: false,
            committed_cell: FaultCell::default(),
            shared: shared.clone(),
        };
        self.streams.insert(shared.id(), state);
    }

    /// A slot for a new block's history.
    pub(crate) fn new_slot(&mut self, bin: &FreeSlots) -> u32 {
        if let Some(slot) = bin.lock().pop() {
            self.histories[slot as usize].clear();
            return slot;
        }
        self.histories.push(History::default());
        (self.histories.len() - 1) as u32
    }

    /// Encodes a command: finds what it must be ordered after, and adds it to the open submission of its
    /// stream. Returns the number of commands in that submission.
    pub(crate) fn encode(
        &mut self,
        shared: &Arc<Shared>,
        stream: u64,
        label: &Label,
        op: OpDraft<'_>,
        drafts: &[BindingDraft<'_>],
        clears: &[BindingDraft<'_>],
    ) -> Result<usize> {
        let mut at = match self.streams.get(&stream) {
            Some(state) if !state.closed => CommandPosition {
                stream,
                submission: state.next,
                command: state.open.as_ref().map_or(0, |open| open.commands.len()) as u32,
            },
            _ => return Err(Error::StreamClosed { stream }),
        };
        for draft in drafts {
            let guards = draft.buffer.0.lease.guards.load(Ordering::Acquire);
            if guards == WRITE_GUARDED || (guards != 0 && draft.access.writes()) {
                return Err(Error::HostAccess {
                    buffer: draft.buffer.0.lease.name(),
                    command: label.to_string(),
                    guard: if guards == WRITE_GUARDED { "write" } else { "read" },
                });
            }
        }
        // The command is valid: nothing below fails.
        for clear in clears {
            let label = Label::from("clear");
            self.push_command(shared, at, &label, OpDraft::Clear, std::slice::from_ref(clear))?;
            at.command += 1;
        }
        self.push_command(shared, at, label, op, drafts)
    }

    /// Adds a valid command.
    fn push_command(
        &mut self,
        shared: &Arc<Shared>,
        at: CommandPosition,
        label: &Label,
        op: OpDraft<'_>,
        drafts: &[BindingDraft<'_>],
    ) -> Result<usize> {
        let CommandPosition { stream, submission, command: position } = at;
        // The stream orders its earlier submissions before this one.
        let mut after: SmallVec<[u32; 8]> = SmallVec::new();
        let mut everything = false;
        let mut elsewhere: SmallVec<[Use; 2]> = SmallVec::new();
        let mechanisms = Mechanisms::of(shared, drafts);
        let completed = self.streams.get(&stream).map_or(0, |state| state.completed);
        for (number, draft) in drafts.iter().enumerate() {
            if !mechanisms.tracks(number) {
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
                mechanisms.orders(),
                |of, submission| {
                    if of == stream { submission <= completed } else { done(streams, of, submission) }
                },
                |old| {
                    if !mechanisms.orders() {
                        // The ablation of hazards: the pool still needs the use.
                    } else if old.stream != stream {
                        elsewhere.push(*old);
                    } else if old.submission == submission {
                        everything |= old.command == ANY_COMMAND;
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
        let recycled_batches = &mut self.recycled_batches;
        let Some(state) = self.streams.get_mut(&stream) else {
            return Err(Error::StreamClosed { stream });
        };
        let batch = state.open.get_or_insert_with(|| {
            *opened += 1;
            Batch { id: *opened, trims, ..recycled_batches.pop().unwrap_or_default() }
        });
        batch.waits.extend(waits);
        let barrier = after.last().is_some_and(|last| *last >= batch.last_barrier);
        if barrier {
            batch.last_barrier = position;
            self.barriers += 1;
        }
        let first_binding = batch.bindings.len() as u32;
        let first_edge = batch.after.len() as u32;
        for (number, draft) in drafts.iter().enumerate() {
            let binding = draft.bind(batch, mechanisms.retains(number));
            batch.bindings.push(binding);
        }
        batch.after.extend_from_slice(&after);
        let op = match op {
            OpDraft::Dispatch(pipeline, dispatch) => {
                batch.hold_pipeline(pipeline);
                batch.dispatches.push(dispatch);
                Op::Dispatch(batch.dispatches.len() as u32 - 1)
            }
            OpDraft::Native(closure) => Op::Native(Some(closure)),
            OpDraft::Copy => Op::Copy,
            OpDraft::Clear => Op::Clear,
        };
        batch.commands.push(Command {
            label: label.clone(),
            op,
            bindings: (first_binding, batch.bindings.len() as u32),
            after: (first_edge, batch.after.len() as u32),
            barrier,
        });
        batch.prefetch_next();
        self.encoded += 1;
        Ok(batch.commands.len())
    }

    /// Orders the open submission of `stream` after a use on another stream. Closes the other submission
    /// if it is open: waits then point only at submissions that gain no more waits, so the graph of waits
    /// has no cycle.
    fn order_after(&mut self, shared: &Arc<Shared>, stream: u64, old: Use) -> Option<Wait> {
        let raw = self.streams.get(&old.stream)?.shared.raw();
        let live = self.streams.len();
        let state = self.streams.get_mut(&stream)?;
        let seen = state.seen.entry(old.stream).or_insert(0);
        if *seen >= old.submission {
            return None;
        }
        *seen = old.submission;
        if state.seen.len() > 2 * live + MAX_STALE_SEEN {
            let mut seen = std::mem::take(&mut state.seen);
            seen.retain(|other, _| self.streams.contains_key(other));
            if let Some(state) = self.streams.get_mut(&stream) {
                state.seen = seen;
            }
        }
        if self.streams.get(&old.stream).is_some_and(|other| other.next == old.submission) {
            self.close_submission(shared, old.stream);
        }
        Some(Wait { stream: old.stream, raw, index: old.submission })
    }

    /// Closes the open submission of a stream, if there is one. Returns the index of the last closed
    /// submission.
    pub(crate) fn close_submission(&mut self, shared: &Arc<Shared>, stream: u64) -> u64 {
        let Some(state) = self.streams.get_mut(&stream) else { return 0 };
        if let Some(batch) = state.open.take() {
            let cell = state.fault_cell.clone();
            let work = Work::new(shared.clone(), state.shared.clone(), state.next, batch, cell);
            state.next += 1;
            state.closed_since_commit = true;
            self.closed_submissions.push_back(work);
        }
        state.next - 1
    }

    /// Closes the open submission. Returns the index of the last closed submission, and the cell for the
    /// first fault of all submissions closed since the previous such call.
    pub(crate) fn close_for_commit(&mut self, shared: &Arc<Shared>, stream: u64) -> (u64, FaultCell) {
        let index = self.close_submission(shared, stream);
        let Some(state) = self.streams.get_mut(&stream) else { return (index, FaultCell::default()) };
        if std::mem::take(&mut state.closed_since_commit) {
            state.committed_cell = std::mem::take(&mut state.fault_cell);
        }
        (index, state.committed_cell.clone())
    }

    /// Whether anything was encoded since [`close_for_commit`](Ledger::close_for_commit).
    pub(crate) fn has_uncommitted(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.open.is_some() || state.closed_since_commit)
    }

    /// Closes the open submissions of all streams.
    pub(crate) fn close_all_submissions(&mut self, shared: &Arc<Shared>) {
        let mut open: Vec<u64> =
            self.streams.iter().filter(|(_, state)| state.open.is_some()).map(|(id, _)| *id).collect();
        open.sort_unstable();
        for stream in open {
            self.close_submission(shared, stream);
        }
    }

    /// The next closed submission for the device.
    pub(crate) fn next_closed(&mut self) -> Option<Work> {
        let mut work = self.closed_submissions.pop_front()?;
        if self.refusals > 0 {
            self.inherit_waits(&mut work);
        }
        let streams = &self.streams;
        work.waits_mut().retain(|wait| !done(streams, wait.stream, wait.index));
        Some(work)
    }

    /// Adds to a submission the waits of the refused ones that it depends on: those before it on its stream,
    /// and those that it waits for. A wait for a refused submission includes a wait for the one before it.
    fn inherit_waits(&self, work: &mut Work) {
        let (stream, index) = (work.stream(), work.index());
        let mut waits = std::mem::take(work.waits_mut());
        if let Some(state) = self.streams.get(&stream) {
            let before = state.refused.iter().filter(|refused| refused.index < index);
            waits.extend(before.flat_map(|refused| refused.waits.iter().copied()));
        }
        let mut at = 0;
        while at < waits.len() {
            let mut wait = waits[at];
            if let Some(state) = self.streams.get(&wait.stream) {
                while let Some(refused) = state.refused.iter().find(|refused| refused.index == wait.index) {
                    let known = |wait: &&Wait| !waits.contains(wait);
                    let new: SmallVec<[Wait; 2]> = refused.waits.iter().filter(known).copied().collect();
                    waits.extend(new);
                    wait.index -= 1;
                }
            }
            waits[at] = wait;
            at += 1;
        }
        // The stream orders its own submissions.
        waits.retain(|wait| wait.stream != stream);
        *work.waits_mut() = waits;
    }

    /// The submission that the device must finish before a submission can complete: itself, or one that it
    /// waited for if it was refused. `None` if the device has nothing left to finish.
    pub(crate) fn blocking_submission(&self, stream: u64, index: u64) -> Option<(Arc<StreamShared>, u64)> {
        let (mut stream, mut index) = (stream, index);
        loop {
            let state = self.streams.get(&stream)?;
            let is_finished = |index: u64| {
                state.out_of_order.contains(&index)
                    || state.refused.iter().any(|refused| refused.index == index)
            };
            let mut last = index;
            while last > state.completed && is_finished(last) {
                last -= 1;
            }
            if last > state.completed {
                return Some((state.shared.clone(), last));
            }
            let refused = state.refused.iter().filter(|refused| refused.index <= index);
            let mut waits = refused.flat_map(|refused| &refused.waits);
            let wait = waits.find(|wait| !done(&self.streams, wait.stream, wait.index))?;
            // Waits point backwards in closing order, so this ends.
            (stream, index) = (wait.stream, wait.index);
        }
    }

    /// Records that a submission is finished and returns the streams that advanced; `None` if the caller must
    /// first drop the leases of the submission.
    ///
    /// Encoding threads create leases and also recycle them, so that threads that run work never touch their
    /// reference counts. A recycled lease keeps its block alive. That costs no memory while the pool or a
    /// buffer holds the block anyway; after a trim it might, so the leases are dropped.
    pub(crate) fn finished(&mut self, stream: u64, index: u64, recycled: &mut Batch) -> Option<Finished> {
        const MAX_RECYCLED_LEASES: usize = 1024;
        if !recycled.leases.is_empty() {
            if recycled.trims != self.trims
                || self.recycled_leases.len() + recycled.leases.len() > MAX_RECYCLED_LEASES
            {
                return None;
            }
            self.recycled_leases.append(&mut recycled.leases);
        }
        if self.recycled_batches.len() < MAX_RECYCLED_BATCHES && recycled.commands.capacity() <= 4096 {
            self.recycled_batches.push(std::mem::take(recycled));
        }
        let streams = &self.streams;
        let Some(state) = streams.get(&stream) else {
            return Some(Finished { completed: index, ..Finished::default() });
        };
        let mut finished = Finished { completed: state.completed, ..Finished::default() };
        let refused = state.refused.iter().position(|refused| refused.index == index);
        match refused.and_then(|at| self.streams.get_mut(&stream)?.refused.get_mut(at)) {
            Some(refused) => refused.finished = true,
            None => (finished.completed, finished.removed) = self.complete(stream, index),
        }
        while self.refusals > 0
            && let Some((stream, index)) = self.settled_refusal()
        {
            let shared = self.streams.get(&stream).map(|state| state.shared.clone());
            let (completed, removed) = self.complete(stream, index);
            finished.others.extend(shared.map(|shared| (shared, completed, removed)));
        }
        Some(finished)
    }

    /// A refused submission that was reported and whose waits have completed.
    fn settled_refusal(&mut self) -> Option<(u64, u64)> {
        let streams = &self.streams;
        let settled = |refused: &Refused| {
            refused.finished
                && !refused.complete
                && refused.waits.iter().all(|wait| done(streams, wait.stream, wait.index))
        };
        let mut found = streams
            .iter()
            .filter_map(|(stream, state)| state.refused.iter().position(settled).map(|at| (*stream, at)));
        let (stream, at) = found.next()?;
        let refused = &mut self.streams.get_mut(&stream)?.refused[at];
        refused.complete = true;
        Some((stream, refused.index))
    }

    /// Completes a submission. Returns the last completed submission of its stream, and the stream's state if
    /// that was the last one of an orphaned stream.
    fn complete(&mut self, stream: u64, index: u64) -> (u64, Option<StreamState>) {
        let Some(state) = self.streams.get_mut(&stream) else { return (index, None) };
        state.out_of_order.push(index);
        while let Some(found) =
            state.out_of_order.iter().position(|out_of_order| *out_of_order == state.completed + 1)
        {
            state.out_of_order.swap_remove(found);
            state.completed += 1;
        }
        let (completed, refused) = (state.completed, state.refused.len());
        state.refused.retain(|refused| refused.index > completed);
        self.refusals -= refused - state.refused.len();
        (completed, self.remove_if_done(stream))
    }

    /// Records that the device refused a submission, so that nothing waits for it on the device.
    pub(crate) fn refused(&mut self, work: &Work) {
        if let Some(state) = self.streams.get_mut(&work.stream()) {
            state.shared.note_refusal();
            let (index, waits) = (work.index(), work.waits().into());
            #[cfg(feature = "sim")]
            let waits = if work.ablation() == crate::ablation::Ablation::RefusedWaits {
                SmallVec::new()
            } else {
                waits
            };
            state.refused.push(Refused { index, waits, finished: false, complete: false });
            self.refusals += 1;
        }
    }

    /// Closes the open submission of a stream whose last handle was dropped. Returns its state if nothing
    /// is in flight.
    pub(crate) fn orphan(&mut self, shared: &Arc<Shared>, stream: u64) -> Option<StreamState> {
        self.close_submission(shared, stream);
        if let Some(state) = self.streams.get_mut(&stream) {
            state.orphaned = true;
        }
        self.remove_if_done(stream)
    }

    /// Makes a stream refuse further commands.
    pub(crate) fn close_stream(&mut self, stream: u64) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.closed = true;
        }
    }

    fn remove_if_done(&mut self, stream: u64) -> Option<StreamState> {
        let state = self.streams.get(&stream)?;
        if state.orphaned && state.open.is_none() && state.completed + 1 == state.next {
            return self.streams.remove(&stream);
        }
        None
    }

    /// The streams with unfinished uses of a block.
    pub(crate) fn pending_streams(&mut self, block: &Block) -> PendingStreams {
        let streams = &self.streams;
        self.histories[block.slot as usize].pending_streams(|stream, index| done(streams, stream, index))
    }

    /// Clears the history of a block whose uses have completed.
    pub(crate) fn forget(&mut self, block: &Block) {
        self.histories[block.slot as usize].clear();
    }

    /// Takes a free block of `class` to `largest` bytes for `requester`.
    pub(crate) fn take(&mut self, class: usize, largest: usize, requester: Requester) -> Option<Arc<Block>> {
        let Ledger { pool, histories, streams, .. } = self;
        pool.take(class, largest, requester, |block| {
            histories[block.slot as usize].pending_streams(|stream, index| done(streams, stream, index))
        })
    }

    /// An id for a new lease.
    pub(crate) fn new_lease(&mut self) -> u64 {
        loop {
            match self.ids.next() {
                Some(id) => return id,
                None => self.ids = new_ids(64),
            }
        }
    }

    /// A lease of a finished submission whose allocation can be reused.
    pub(crate) fn take_recycled_lease(&mut self) -> Option<Arc<Lease>> {
        self.recycled_leases.pop()
    }

    /// Removes free blocks until at most `keep` bytes are cached.
    pub(crate) fn trim(&mut self, keep: usize) -> Garbage {
        let blocks = self.pool.trim(keep);
        if blocks.is_empty() {
            return Garbage::default();
        }
        self.trims += 1;
        Garbage { blocks, _leases: std::mem::take(&mut self.recycled_leases) }
    }

    /// The stream and submission of a use that a host access must wait for.
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

    /// The number of closed submissions of a stream that have not completed.
    pub(crate) fn in_flight(&self, stream: u64) -> u64 {
        self.streams.get(&stream).map_or(0, |state| state.next - 1 - state.completed)
    }

    /// The submission to wait for if more than `limit` of a stream are in flight: afterwards at most half of
    /// the limit are. A wait for one place alone would come with every submission of a host that is ahead of
    /// its device.
    pub(crate) fn over_limit(&self, stream: u64, limit: u64) -> Option<u64> {
        let state = self.streams.get(&stream)?;
        let last = state.next - 1;
        (last - state.completed > limit).then(|| last - limit.div_ceil(2))
    }

    /// The number of streams.
    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }
}

impl BindingDraft<'_> {
    /// The binding of the command. The submission holds the lease if `retain`.
    #[inline(always)]
    fn bind(&self, batch: &mut Batch, retain: bool) -> Binding {
        let lease = &self.buffer.0.lease;
        Binding {
            lease: if retain { batch.hold(lease) } else { UNHELD },
            lease_id: lease.id,
            memory: lease.block.memory,
            offset: self.offset,
            len: self.len,
            access: self.access,
            writes: lease.count_write(self.access.writes()),
        }
    }
}

/// The mechanisms that are on for one command. An ablation switches one off; without the feature `sim` all
/// are on and this type is empty.
struct Mechanisms {
    #[cfg(feature = "sim")]
    ablation: crate::ablation::Ablation,
    /// The input that the command hides from the runtime, like an op that holds an array which it never
    /// declared.
    #[cfg(feature = "sim")]
    hidden: Option<usize>,
}

#[cfg(feature = "sim")]
impl Mechanisms {
    fn of(shared: &Shared, drafts: &[BindingDraft<'_>]) -> Self {
        let ablation = shared.ablation;
        let hides = ablation == crate::ablation::Ablation::DeclaredInputs;
        let hidden = drafts.iter().position(|draft| hides && !draft.access.writes());
        Mechanisms { ablation, hidden }
    }

    /// Whether the use is recorded in the block's history.
    fn tracks(&self, draft: usize) -> bool {
        self.hidden != Some(draft)
    }

    /// Whether conflicting commands are ordered.
    fn orders(&self) -> bool {
        self.ablation != crate::ablation::Ablation::Hazards
    }

    /// Whether the submission holds the memory.
    fn retains(&self, draft: usize) -> bool {
        self.ablation != crate::ablation::Ablation::Retention && self.hidden != Some(draft)
    }
}

#[cfg(not(feature = "sim"))]
impl Mechanisms {
    #[inline(always)]
    fn of(_: &Shared, _: &[BindingDraft<'_>]) -> Self {
        Mechanisms {}
    }
    #[inline(always)]
    fn tracks(&self, _: usize) -> bool {
        true
    }
    #[inline(always)]
    fn orders(&self) -> bool {
        true
    }
    #[inline(always)]
    fn retains(&self, _: usize) -> bool {
        true
    }
}
