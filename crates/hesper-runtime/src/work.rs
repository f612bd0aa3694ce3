//! Work: a submission as the device sees it.
//!
//! A [`Work`] is moved to the device and back. While the device has it, it owns everything that its
//! commands name: blocks of memory, pipelines, closures. Retention is therefore ownership: there is
//! no list that somebody could forget to fill, because a binding is made from the place at which the
//! submission holds the lease (`Batch::hold`).

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::block::{Kind, Lease};
use crate::device::{DeviceError, RawMemory, RawPipeline, RawStream};
use crate::error::{Fault, FaultKind, Scope};
use crate::label::Label;
use crate::ledger::FaultCell;
use crate::native::{Native, NativeError, NativeFn, NativeResult, View};
use crate::panics;
use crate::pipeline::Pipeline;
use crate::runtime::{Shared, Watch};
use crate::stream::StreamShared;

/// How a command uses a range of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It reads.
    Read,
    /// It overwrites.
    Write,
    /// It reads and writes (in-place updates, atomics).
    ReadWrite,
}

impl Access {
    /// Whether the bytes may change.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    /// Whether the bytes' old value matters.
    pub fn reads(self) -> bool {
        self != Access::Write
    }
}

/// The place of a lease that a submission does not hold.
pub(crate) const UNHELD: u32 = u32::MAX;

/// One range of memory that a command uses. The submission that it is part of keeps the memory alive.
#[derive(Debug)]
pub struct Binding {
    /// Where the submission holds the lease; [`UNHELD`] if an ablation has it not do so.
    pub(crate) lease: u32,
    pub(crate) lease_id: u64,
    pub(crate) memory: RawMemory,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) access: Access,
    /// Writes of the lease that were encoded before this command.
    pub(crate) writes: u64,
}

impl Binding {
    /// The memory.
    pub fn memory(&self) -> &RawMemory {
        &self.memory
    }

    /// First byte of the range.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length of the range; may be zero.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it is used.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Which life of the memory this is: each buffer that takes a block gets a number of its own.
    pub fn lease(&self) -> u64 {
        self.lease_id
    }
}

/// The dispatch of a compiled kernel.
#[derive(Debug)]
pub struct Dispatch {
    pub(crate) pipeline: RawPipeline,
    /// Threads in each dimension; the last threadgroups may be partial.
    pub grid: [u64; 3],
    /// Threads of a threadgroup in each dimension.
    pub threadgroup: [u64; 3],
    /// Bytes of constants, in the layout that the kernel's compiler gave.
    pub constants: SmallVec<[u8; 32]>,
}

impl Dispatch {
    /// The compiled kernel. The submission that the dispatch is part of keeps it.
    pub fn pipeline(&self) -> RawPipeline {
        self.pipeline
    }
}

/// What a command does.
pub(crate) enum Op {
    /// Runs a compiled kernel: which of the submission's dispatches.
    Dispatch(u32),
    /// Runs a native closure: on the host's device when its turn comes, on another device when the
    /// submission is recorded (there the closure launches library calls).
    Native(Option<NativeFn>),
    /// Copies the bytes of binding 0 to binding 1, of the same length.
    Copy,
    /// Sets the bytes of binding 0 to zero.
    Clear,
}

/// What a command does, as a device sees it.
#[derive(Debug, Clone, Copy)]
pub enum OpRef<'a> {
    /// Runs a compiled kernel.
    Dispatch(&'a Dispatch),
    /// Runs a native closure; see [`Work::run_native`].
    Native,
    /// Copies the bytes of binding 0 to binding 1, of the same length.
    Copy,
    /// Sets the bytes of binding 0 to zero.
    Clear,
}

pub(crate) struct Command {
    pub(crate) label: Label,
    pub(crate) op: Op,
    pub(crate) bindings: (u32, u32),
    pub(crate) after: (u32, u32),
    pub(crate) barrier: bool,
}

/// A command, as a device sees it.
#[derive(Debug, Clone, Copy)]
pub struct CommandRef<'a> {
    /// Its label.
    pub label: &'a str,
    /// What it does.
    pub op: OpRef<'a>,
    /// What it binds, in the order of the kernel's parameters.
    pub bindings: &'a [Binding],
    /// Whether it must start after all earlier commands of the submission.
    pub barrier: bool,
    /// The earlier commands of the submission that it must start after.
    pub after: &'a [u32],
}

/// A submission to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The stream of the runtime.
    pub stream: u64,
    /// The stream of the device.
    pub raw: RawStream,
    /// The submission's index.
    pub index: u64,
}

/// The commands of a submission and all that they name.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) commands: Vec<Command>,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) dispatches: Vec<Dispatch>,
    /// What the commands name, once for each time that it had not just been named: a lease that many commands bind and a
    /// kernel that many run are held once.
    pub(crate) leases: Vec<Arc<Lease>>,
    pub(crate) pipelines: Vec<Arc<Pipeline>>,
    /// Whether some of the leases are on foreign memory.
    pub(crate) foreign: bool,
    /// How often the pool had given blocks up when the submission was opened.
    pub(crate) trims: u64,
    /// No other open submission of the runtime, earlier or later, has it.
    pub(crate) number: u64,
    pub(crate) after: Vec<u32>,
    pub(crate) waits: SmallVec<[Wait; 2]>,
    /// Commands before this one are ordered before everything that follows.
    pub(crate) last_barrier: u32,
}

impl Batch {
    fn bindings_of(&self, index: usize) -> &[Binding] {
        let (start, end) = self.commands[index].bindings;
        &self.bindings[start as usize..end as usize]
    }

    /// The lease that a binding is on, unless it is not held.
    fn lease(&self, binding: &Binding) -> Option<&Arc<Lease>> {
        self.leases.get(binding.lease as usize)
    }

    /// Has this core fetch the memory of the next command, which the core that ran the last one there still has.
    #[inline(always)]
    pub(crate) fn expect_more(&self) {
        fetch_ahead(&self.commands, 1);
        fetch_ahead(&self.dispatches, 1);
        fetch_ahead(&self.bindings, 2);
    }

    /// Holds a lease; gives its place.
    pub(crate) fn hold(&mut self, lease: &Arc<Lease>) -> u32 {
        if let Some(place) = lease.mark.place(self.number) {
            return place;
        }
        let place = self.leases.len() as u32;
        self.foreign |= lease.block.kind != Kind::Owned;
        self.leases.push(lease.clone());
        lease.mark.set(self.number, place);
        place
    }

    /// Holds a kernel.
    pub(crate) fn hold_pipeline(&mut self, pipeline: &Arc<Pipeline>) {
        /// How far back it looks: a few kernels taking turns are held once each.
        const LAST: usize = 4;
        if !self.pipelines.iter().rev().take(LAST).any(|held| Arc::ptr_eq(held, pipeline)) {
            self.pipelines.push(pipeline.clone());
        }
    }
}

/// Asks for the memory behind the elements of a list, to be written.
#[inline(always)]
fn fetch_ahead<T>(list: &[T], count: usize) {
    let end = list.as_ptr().wrapping_add(list.len()).cast::<u8>();
    for line in 0..=count * size_of::<T>() / 64 {
        let at = end.wrapping_add(64 * line);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, whatever the address.
        unsafe {
            std::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly))
        };
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// How a device on the host runs a dispatched kernel.
pub type HostDispatch<'a> = &'a dyn Fn(&Dispatch, &[Binding]) -> Result<(), String>;

/// A watch and what it said.
type Asked<'a> = (&'a Arc<dyn Watch>, Option<Fault>);

type FinishHook = Box<dyn FnOnce(Option<&Fault>) + Send>;

/// A submission on its way through a device. It owns what its commands name.
pub struct Work(Box<WorkInner>);

struct WorkInner {
    shared: Arc<Shared>,
    stream: Arc<StreamShared>,
    index: u64,
    batch: Batch,
    fault: Option<Fault>,
    /// Where the fault is kept for those who wait for this part of the stream.
    cell: FaultCell,
    hooks: Vec<FinishHook>,
    awaited: bool,
    finished: bool,
}

impl Work {
    pub(crate) fn new(
        shared: Arc<Shared>,
        stream: Arc<StreamShared>,
        index: u64,
        batch: Batch,
        cell: FaultCell,
    ) -> Self {
        Work(Box::new(WorkInner {
            shared,
            stream,
            index,
            batch,
            fault: None,
            cell,
            hooks: Vec::new(),
            awaited: false,
            finished: false,
        }))
    }

    /// The stream, by the runtime's number.
    pub fn stream(&self) -> u64 {
        self.0.stream.id()
    }

    /// The stream, by the device's number.
    pub fn raw_stream(&self) -> RawStream {
        self.0.stream.raw()
    }

    /// The submission's index on its stream; indices only grow.
    pub fn index(&self) -> u64 {
        self.0.index
    }

    /// Submissions of other streams that must be finished before any command starts.
    pub fn waits(&self) -> &[Wait] {
        &self.0.batch.waits
    }

    /// Whether the submitting thread is about to wait for this work, and may run it itself.
    pub fn is_awaited(&self) -> bool {
        self.0.awaited
    }

    pub(crate) fn set_awaited(&mut self) {
        self.0.awaited = true;
    }

    /// The mechanism that is switched off.
    #[cfg(feature = "sim")]
    pub(crate) fn ablation(&self) -> crate::sim::Ablation {
        self.0.shared.ablation
    }

    /// The waits, to change.
    pub(crate) fn waits_mut(&mut self) -> &mut SmallVec<[Wait; 2]> {
        &mut self.0.batch.waits
    }

    /// How many commands there are.
    pub fn len(&self) -> usize {
        self.0.batch.commands.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A command, by its position.
    pub fn command(&self, index: usize) -> CommandRef<'_> {
        let batch = &self.0.batch;
        let command = &batch.commands[index];
        CommandRef {
            label: &command.label,
            op: match &command.op {
                Op::Dispatch(at) => OpRef::Dispatch(&batch.dispatches[*at as usize]),
                Op::Native(_) => OpRef::Native,
                Op::Copy => OpRef::Copy,
                Op::Clear => OpRef::Clear,
            },
            bindings: batch.bindings_of(index),
            barrier: command.barrier,
            after: &batch.after[command.after.0 as usize..command.after.1 as usize],
        }
    }

    /// All commands in order.
    pub fn commands(&self) -> impl Iterator<Item = CommandRef<'_>> {
        (0..self.len()).map(|index| self.command(index))
    }

    /// Has `hook` called when the work is finished, with its fault if there is one.
    pub fn on_finish(&mut self, hook: impl FnOnce(Option<&Fault>) + Send + 'static) {
        self.0.hooks.push(Box::new(hook));
    }

    /// Tells, for as long as it lives, whether the work has been cancelled.
    pub fn cancellation(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (stream, index) = (self.0.stream.clone(), self.0.index);
        move || stream.cancelled(index)
    }

    /// The fault that keeps a command from running: of something it reads, or a cancellation.
    pub fn blocked_by(&self, index: usize) -> Option<Fault> {
        if self.0.stream.cancelled(self.0.index) {
            let label = &*self.0.batch.commands[index].label;
            return Some(self.fault_at(label, FaultKind::Cancelled, Scope::Command, String::new()));
        }
        if self.0.shared.any_fault() { self.input_fault(index) } else { None }
    }

    /// The fault of something that a command reads: of a write that was encoded before it.
    fn input_fault(&self, index: usize) -> Option<Fault> {
        let batch = &self.0.batch;
        let mut read = batch.bindings_of(index).iter().filter(|binding| binding.access.reads());
        read.find_map(|binding| {
            let lease = batch.lease(binding)?;
            #[cfg(feature = "sim")]
            if self.ablation() == crate::sim::Ablation::FaultOrder {
                return lease.fault();
            }
            lease.fault_after(binding.writes)
        })
    }

    /// Records that a command failed: what it writes is spoilt, and so is what is computed from it.
    pub fn fail_command(&mut self, index: usize, fault: Fault) {
        self.0.shared.count_fault();
        let batch = &self.0.batch;
        let written = batch.bindings_of(index).iter().filter(|binding| binding.access.writes());
        for binding in written {
            if let Some(lease) = batch.lease(binding) {
                lease.set_fault(&fault, binding.writes + 1);
            }
        }
        self.0.fault.get_or_insert(fault);
    }

    /// Runs a command whose memory the host can see; what the host cannot do itself, `dispatch` does.
    /// Panics and errors become the command's fault; a command whose inputs failed does not run.
    ///
    /// # Safety
    /// The caller is the device that has this work, every command that this one is ordered after
    /// has run, none that is ordered after it has begun, and all its memory has a host address.
    pub unsafe fn run_on_host(&mut self, index: usize, dispatch: HostDispatch<'_>) {
        if let Some(fault) = self.blocked_by(index) {
            return self.fail_command(index, fault);
        }
        let begun = self.0.shared.trace.begin();
        let outcome = match &mut self.0.batch.commands[index].op {
            // SAFETY: the caller's promise.
            Op::Native(_) => unsafe { self.run_native(index, None) },
            Op::Dispatch(at) => {
                let at = *at as usize;
                let batch = &self.0.batch;
                let launch = &batch.dispatches[at];
                panics::catch(|| dispatch(launch, batch.bindings_of(index)))
                    .unwrap_or_else(Err)
                    .map_err(Into::into)
            }
            Op::Copy => {
                let [from, to] = self.0.batch.bindings_of(index) else { return };
                if let (Some(source), Some(target)) = (from.memory.host, to.memory.host) {
                    // SAFETY: both ranges lie inside of live memory (checked at encode time), do not
                    // overlap (checked too), and the caller orders this command.
                    unsafe {
                        let source = source.as_ptr().add(from.offset);
                        source.copy_to_nonoverlapping(target.as_ptr().add(to.offset), from.len);
                    }
                }
                Ok(())
            }
            Op::Clear => {
                if let [range] = self.0.batch.bindings_of(index)
                    && let Some(target) = range.memory.host
                {
                    // SAFETY: the range lies inside of live memory (checked at encode time), and the caller orders
                    // this command.
                    unsafe { target.as_ptr().add(range.offset).write_bytes(0, range.len) };
                }
                Ok(())
            }
        };
        self.0.shared.trace.ran(&self.0.batch.commands[index].label, self.0.stream.id(), begun);
        if let Err(error) = outcome {
            let cancelled = self.0.stream.cancelled(self.0.index);
            let kind = if cancelled { FaultKind::Cancelled } else { error.kind };
            let label = &self.0.batch.commands[index].label;
            let fault = self.fault_at(label, kind, Scope::Command, error.message);
            self.fail_command(index, fault);
        }
    }

    /// Runs the closure of a native command, once. `context` is handed to it: a device that is not
    /// the host's passes what its library calls need.
    ///
    /// # Safety
    /// As for [`run_on_host`](Work::run_on_host), except that memory without a host address is
    /// allowed: the closure then gets no views of it.
    pub unsafe fn run_native(&mut self, index: usize, context: Option<&dyn Any>) -> NativeResult {
        let batch = &mut self.0.batch;
        let Op::Native(closure) = &mut batch.commands[index].op else { return Ok(()) };
        let Some(closure) = closure.take() else { return Ok(()) };
        let bindings = batch.bindings_of(index);
        let mut views: SmallVec<[View<'_>; 8]> = bindings
            .iter()
            .map(|binding| {
                // SAFETY: the range lies inside of live memory, ranges that are written overlap no
                // other (both checked at encode time), and the caller orders this command, so for
                // as long as it runs nobody else has these bytes.
                unsafe { View::of(binding) }
            })
            .collect();
        let mut native = Native::new(&mut views, bindings, context);
        panics::catch(|| crate::native::enter(|| closure(&mut native)))
            .unwrap_or_else(|message| Err(NativeError { kind: FaultKind::Panicked, message }))
    }

    /// Makes a fault of this submission.
    pub fn fault_at(&self, command: &str, kind: FaultKind, scope: Scope, message: String) -> Fault {
        Fault::new(kind, scope, command, self.stream(), self.index(), message)
    }

    /// Reports the work as done: its references go, waiters wake.
    pub fn finish(mut self) {
        self.conclude();
    }

    /// Reports that the whole submission failed: everything it writes is spoilt.
    pub fn fail(mut self, error: &DeviceError) {
        self.spoil(error);
        self.conclude();
    }

    pub(crate) fn spoil(&mut self, error: &DeviceError) {
        let (kind, scope) = match error {
            DeviceError::Lost(_) => (FaultKind::Lost, Scope::Device),
            _ => (FaultKind::Failed, Scope::Submission),
        };
        let label = match self.0.batch.commands.first() {
            Some(command) if self.len() == 1 => command.label.to_string(),
            _ => format!("a submission of {} commands", self.len()),
        };
        let mut fault = self.fault_at(&label, kind, scope, error.to_string());
        if scope == Scope::Device {
            fault = self.0.shared.lose(fault);
        }
        for index in 0..self.len() {
            self.fail_command(index, fault.clone());
        }
    }

    /// Foreign memory may have gone while commands read it: asks each watch once, and spoils what it watches.
    fn ask_watches(&mut self) {
        if !self.0.batch.foreign {
            return;
        }
        let mut asked: SmallVec<[Asked<'_>; 2]> = SmallVec::new();
        let batch = &self.0.batch;
        for (place, lease) in batch.leases.iter().enumerate() {
            let Some(watch) = lease.block.watch() else { continue };
            let known = asked.iter().position(|(other, _)| Arc::ptr_eq(watch, other));
            let at = known.unwrap_or_else(|| {
                let fault = crate::block::ask(&**watch).err().map(|message| {
                    self.0.shared.count_fault();
                    let names = |at: &usize| batch.bindings_of(*at).iter().any(|b| b.lease as usize == place);
                    let command = (0..batch.commands.len()).find(names).unwrap_or(0);
                    self.fault_at(&batch.commands[command].label, FaultKind::Source, Scope::Command, message)
                });
                asked.push((watch, fault));
                asked.len() - 1
            });
            if let Some(fault) = &asked[at].1 {
                lease.set_fault(fault, 0);
            }
        }
    }

    fn conclude(&mut self) {
        if std::mem::replace(&mut self.0.finished, true) {
            return;
        }
        self.ask_watches();
        // Devices that cannot skip a command have run it on spoilt inputs: mark what it wrote. In encode order, so that
        // the mark reaches what depends on it.
        if self.0.shared.any_fault() {
            for index in 0..self.len() {
                if let Some(fault) = self.input_fault(index) {
                    self.fail_command(index, fault);
                }
            }
        }
        for hook in std::mem::take(&mut self.0.hooks) {
            let fault = self.0.fault.as_ref();
            // A hook that panics is no reason to lose a completion.
            let _ = panics::catch(|| hook(fault));
        }
        let batch = std::mem::take(&mut self.0.batch);
        let fault = self.0.fault.take();
        if let Some(fault) = &fault {
            let _ = self.0.cell.set(fault.clone());
        }
        // The references go before anybody is told: who has waited finds the memory returned.
        let recycled = batch.emptied();
        self.0.shared.retire(&self.0.stream, self.0.index, fault, recycled);
    }
}

impl Batch {
    /// Drops all contents and keeps the room. Leases stay, but for those of a submission that holds foreign memory: its
    /// owner is let go at once.
    fn emptied(mut self) -> Batch {
        for command in &mut self.commands {
            // A closure that did not run: what it captured may panic when it is dropped.
            if let Op::Native(closure @ Some(_)) = &mut command.op {
                panics::discard(closure.take());
            }
        }
        self.commands.clear();
        self.bindings.clear();
        self.dispatches.clear();
        if std::mem::take(&mut self.foreign) {
            self.leases.clear();
        }
        self.pipelines.clear();
        self.after.clear();
        self.waits.clear();
        self.last_barrier = 0;
        self
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.0.finished {
            self.spoil(&DeviceError::Failed("the device gave the work up".into()));
            self.conclude();
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Work(stream {}, index {}, {} commands)", self.stream(), self.index(), self.len())
    }
}
