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
    /// Submissions that the device refused and that are not complete yet.
    refused: SmallVec<[Refused; 1]>,
    /// What submissions of other streams this one has already been ordered after.
    seen: IdMap<u64>,
    /// The last handle is gone.
    orphaned: bool,
    /// It takes no more commands.
    closed: bool,
    /// Where the first fault of what was encoded since the last explicit commit is put, and whether anything was closed
    /// since.
    cell: FaultCell,
    closed_since: bool,
    /// The cell of the last explicit commit.
    last_cell: FaultCell,
}

/// Where the first fault of a part of a stream is kept for those who wait for it.
pub(crate) type FaultCell = Arc<OnceLock<Fault>>;

/// A submission that the device refused.
///
/// Later work was encoded as if it had run: ordered behind it instead of behind what it waited for, and with histories
/// that its writes cover. So it completes in the ledger only when everything that it waited for has completed, and
/// whoever waits for it on the device waits for that instead.
struct Refused {
    index: u64,
    waits: SmallVec<[Wait; 2]>,
    /// Its work has been reported.
    finished: bool,
    /// Its waits have completed, too.
    complete: bool,
}

/// Who has come further when a submission was finished.
#[derive(Default)]
pub(crate) struct Finished {
    /// How far the submission's own stream has come.
    pub(crate) completed: u64,
    /// Its state, for dropping, if it is over.
    pub(crate) over: Option<StreamState>,
    /// The same of streams whose refused submissions are complete now.
    pub(crate) others: Vec<(Arc<StreamShared>, u64, Option<StreamState>)>,
}

/// Streams, histories, free blocks and closed submissions.
#[derive(Default)]
pub(crate) struct Ledger {
    streams: IdMap<StreamState>,
    histories: Vec<History>,
    /// Submissions that take no more commands, in an order in which each comes after those it waits
    /// for; the device gets them in this order.
    closed: VecDeque<Work>,
    pub(crate) pool: Pool,
    /// Room for submissions, of those that are finished.
    spare: Vec<Batch>,
    /// Leases that finished submissions held, for the leases to come; see [`Ledger::finished`].
    ended: Vec<Arc<Lease>>,
    /// How often the pool has given blocks up.
    trims: u64,
    /// Refused submissions that are not complete, of all streams.
    refusals: usize,
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

/// How many entries for streams that are gone a stream may keep of what it was ordered after.
const MAX_STALE_SEEN: usize = 64;

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
            cell: FaultCell::default(),
            closed_since: false,
            last_cell: FaultCell::default(),
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
        clears: &[Draft<'_>],
    ) -> Result<usize> {
        if self.streams.get(&stream).is_none_or(|state| state.closed) {
            return Err(Error::StreamClosed { stream });
        }
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
        // Nothing can go wrong from here on.
        for clear in clears {
            self.add(shared, stream, &Label::from("clear"), Launch::Clear, std::slice::from_ref(clear))?;
        }
        self.add(shared, stream, label, launch, drafts)
    }

    /// Adds a command that was checked.
    fn add(
        &mut self,
        shared: &Arc<Shared>,
        stream: u64,
        label: &Label,
        launch: Launch<'_>,
        drafts: &[Draft<'_>],
    ) -> Result<usize> {
        let Some(state) = self.streams.get_mut(&stream) else {
            return Err(Error::StreamClosed { stream });
        };
        let submission = state.next;
        let position = state.open.as_ref().map_or(0, |open| open.commands.len()) as u32;

        // Earlier submissions of the stream are ordered before this one anyway.
        let mut after: SmallVec<[u32; 8]> = SmallVec::new();
        let mut everything = false;
        let mut elsewhere: SmallVec<[Use; 2]> = SmallVec::new();
        let mechanisms = Mechanisms::of(shared, drafts);
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
                |stream, submission| done(streams, stream, submission),
                |old| {
                    if !mechanisms.orders() {
                        // An ablation: the pool still knows of the use.
                    } else if old.stream != stream {
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
        for (number, draft) in drafts.iter().enumerate() {
            let binding = draft.bind(batch, mechanisms.retains(number));
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
            self.close(shared, old.stream);
        }
        Some(Wait { stream: old.stream, raw, index: old.submission })
    }

    /// Closes the open submission of a stream, if there is one. Gives the index of the last
    /// submission that is closed.
    pub(crate) fn close(&mut self, shared: &Arc<Shared>, stream: u64) -> u64 {
        let Some(state) = self.streams.get_mut(&stream) else { return 0 };
        if let Some(batch) = state.open.take() {
            let cell = state.cell.clone();
            let work = Work::new(shared.clone(), state.shared.clone(), state.next, batch, cell);
            state.next += 1;
            state.closed_since = true;
            self.closed.push_back(work);
        }
        state.next - 1
    }

    /// Closes the open submission. Gives the index of the last one that is closed, and where the first fault of all
    /// that were closed since the last such call will be, whoever closed them.
    pub(crate) fn close_watched(&mut self, shared: &Arc<Shared>, stream: u64) -> (u64, FaultCell) {
        let index = self.close(shared, stream);
        let Some(state) = self.streams.get_mut(&stream) else { return (index, FaultCell::default()) };
        if std::mem::take(&mut state.closed_since) {
            state.last_cell = std::mem::take(&mut state.cell);
        }
        (index, state.last_cell.clone())
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
        let mut work = self.closed.pop_front()?;
        if self.refusals > 0 {
            self.inherit_waits(&mut work);
        }
        let streams = &self.streams;
        work.waits_mut().retain(|wait| !done(streams, wait.stream, wait.index));
        Some(work)
    }

    /// Gives a submission the waits of the refused ones that it counts on: those before it on its stream, and those that
    /// it waits for. Whoever waits for a refused submission waits for the one before it, too.
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
        // Its own stream is in order anyway.
        waits.retain(|wait| wait.stream != stream);
        *work.waits_mut() = waits;
    }

    /// What the device has to finish so that a submission completes: itself, or what it waited for if it was refused.
    /// `None` if nothing is left to wait for there.
    pub(crate) fn awaited(&self, stream: u64, index: u64) -> Option<(Arc<StreamShared>, u64)> {
        let (mut stream, mut index) = (stream, index);
        loop {
            let state = self.streams.get(&stream)?;
            let is_over = |index: u64| {
                state.early.contains(&index) || state.refused.iter().any(|refused| refused.index == index)
            };
            let mut last = index;
            while last > state.completed && is_over(last) {
                last -= 1;
            }
            if last > state.completed {
                return Some((state.shared.clone(), last));
            }
            let refused = state.refused.iter().filter(|refused| refused.index <= index);
            let mut waits = refused.flat_map(|refused| &refused.waits);
            let wait = waits.find(|wait| !done(&self.streams, wait.stream, wait.index))?;
            // Waits point backwards in the order in which submissions were closed, so this ends.
            (stream, index) = (wait.stream, wait.index);
        }
    }

    /// Notes that a submission is finished. Gives who has come further; or nothing, if the submission's leases have to go
    /// first.
    ///
    /// Leases begin on the threads that encode: there they also end, when the next one begins in their place, so that
    /// those that run work never touch them. What they lie on stays in the pool meanwhile, or with its buffer: after a
    /// trim that may not be so, and they go at once.
    pub(crate) fn finished(&mut self, stream: u64, index: u64, recycled: &mut Batch) -> Option<Finished> {
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
        let streams = &self.streams;
        let Some(state) = streams.get(&stream) else {
            return Some(Finished { completed: index, ..Finished::default() });
        };
        let mut finished = Finished { completed: state.completed, ..Finished::default() };
        let refused = state.refused.iter().position(|refused| refused.index == index);
        match refused.and_then(|at| self.streams.get_mut(&stream)?.refused.get_mut(at)) {
            Some(refused) => refused.finished = true,
            None => (finished.completed, finished.over) = self.complete(stream, index),
        }
        while self.refusals > 0
            && let Some((stream, index)) = self.settled_refusal()
        {
            let shared = self.streams.get(&stream).map(|state| state.shared.clone());
            let (completed, over) = self.complete(stream, index);
            finished.others.extend(shared.map(|shared| (shared, completed, over)));
        }
        Some(finished)
    }

    /// A refused submission that was reported, and whose waits have completed.
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

    /// A submission is complete. Gives how far its stream has come, and the stream's state for dropping if that was the
    /// last of an orphaned stream.
    fn complete(&mut self, stream: u64, index: u64) -> (u64, Option<StreamState>) {
        let Some(state) = self.streams.get_mut(&stream) else { return (index, None) };
        state.early.push(index);
        while let Some(found) = state.early.iter().position(|early| *early == state.completed + 1) {
            state.early.swap_remove(found);
            state.completed += 1;
        }
        let (completed, refused) = (state.completed, state.refused.len());
        state.refused.retain(|refused| refused.index > completed);
        self.refusals -= refused - state.refused.len();
        (completed, self.remove_if_over(stream))
    }

    /// Notes that the device refused a submission: nothing may wait for it there.
    pub(crate) fn refused(&mut self, work: &Work) {
        if let Some(state) = self.streams.get_mut(&work.stream()) {
            state.shared.note_refusal();
            let (index, waits) = (work.index(), work.waits().into());
            #[cfg(feature = "sim")]
            let waits =
                if work.ablation() == crate::sim::Ablation::RefusedWaits { SmallVec::new() } else { waits };
            state.refused.push(Refused { index, waits, finished: false, complete: false });
            self.refusals += 1;
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
    /// The binding that goes into the command: the submission holds the lease.
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

/// What an ablation switches off for one command. Without the feature `sim` nothing can be, and this is nothing.
struct Mechanisms {
    #[cfg(feature = "sim")]
    ablation: crate::sim::Ablation,
    /// The input that the command hides from the runtime, as an op does that keeps an array which it never declared.
    #[cfg(feature = "sim")]
    hidden: Option<usize>,
}

#[cfg(feature = "sim")]
impl Mechanisms {
    fn of(shared: &Shared, drafts: &[Draft<'_>]) -> Self {
        let ablation = shared.ablation;
        let hides = ablation == crate::sim::Ablation::DeclaredInputs;
        let hidden = drafts.iter().position(|draft| hides && !draft.access.writes());
        Mechanisms { ablation, hidden }
    }

    /// Whether the use of memory of a draft is entered in its history.
    fn tracks(&self, draft: usize) -> bool {
        self.hidden != Some(draft)
    }

    /// Whether conflicting commands are ordered.
    fn orders(&self) -> bool {
        self.ablation != crate::sim::Ablation::Hazards
    }

    /// Whether the submission holds the memory of a draft.
    fn retains(&self, draft: usize) -> bool {
        self.ablation != crate::sim::Ablation::Retention && self.hidden != Some(draft)
    }
}

#[cfg(not(feature = "sim"))]
impl Mechanisms {
    #[inline(always)]
    fn of(_: &Shared, _: &[Draft<'_>]) -> Self {
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
