//! Work: a submission as the device sees it.
//!
//! A [`Work`] is moved to the device and owns everything that its commands name: leases, pipelines,
//! closures. Retention is ownership: a binding is made from the index at which the submission holds the
//! lease (`Batch::hold`), so no binding exists without it.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use super::block::{Lease, Ownership, Watch, check_watch};
use super::ledger::FaultCell;
use super::pipeline::Pipeline;
use super::shared::Shared;
use super::stream::StreamShared;
use crate::command::{Binding, CommandRef, Dispatch, OpRef, Wait};
use crate::error::{Fault, FaultKind, Scope};
use crate::label::Label;
use crate::native::{Native, NativeError, NativeFn, NativeResult, View};
use crate::panics;
use crate::raw::{DeviceError, RawStream};

/// The operation of a command.
pub(crate) enum Op {
    /// Runs a compiled kernel: the index of the dispatch in the submission.
    Dispatch(u32),
    /// Runs a native closure; see [`DeviceInfo::native_commands`](crate::DeviceInfo::native_commands).
    Native(Option<NativeFn>),
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

/// The commands of a submission and everything that they name.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) commands: Vec<Command>,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) dispatches: Vec<Dispatch>,
    /// The leases that the commands bind, each once. Contended reference counts dominate the cost of a small
    /// command.
    pub(crate) leases: Vec<Arc<Lease>>,
    /// The kernels that the commands run, without recent repetitions.
    pub(crate) pipelines: Vec<Arc<Pipeline>>,
    /// Whether any lease is on foreign memory.
    pub(crate) foreign: bool,
    /// The value of `Ledger::trims` when the submission was opened.
    pub(crate) trims: u64,
    /// Unique among the submissions of the runtime.
    pub(crate) id: u64,
    pub(crate) after: Vec<u32>,
    pub(crate) waits: SmallVec<[Wait; 2]>,
    /// The last command with a barrier: all earlier ones are ordered before every later command.
    pub(crate) last_barrier: u32,
}

impl Batch {
    fn bindings_of(&self, index: usize) -> &[Binding] {
        let (start, end) = self.commands[index].bindings;
        &self.bindings[start as usize..end as usize]
    }

    /// The lease of a binding, if the submission holds it.
    fn lease(&self, binding: &Binding) -> Option<&Arc<Lease>> {
        self.leases.get(binding.lease as usize)
    }

    /// Prefetches the memory of the next command: another core wrote it last.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self) {
        prefetch_for_write(&self.commands, 1);
        prefetch_for_write(&self.dispatches, 1);
        prefetch_for_write(&self.bindings, 2);
    }

    /// Holds a lease once; returns its index.
    pub(crate) fn hold(&mut self, lease: &Arc<Lease>) -> u32 {
        if let Some(index) = lease.held_index.get(self.id) {
            return index;
        }
        let index = self.leases.len() as u32;
        self.foreign |= lease.block.ownership != Ownership::Owned;
        self.leases.push(lease.clone());
        lease.held_index.set(self.id, index);
        index
    }

    /// Holds a kernel, unless one of the last few entries does.
    pub(crate) fn hold_pipeline(&mut self, pipeline: &Arc<Pipeline>) {
        /// The number of entries to compare, so that a few alternating kernels are held once each.
        const RECENT_PIPELINES: usize = 4;
        if !self.pipelines.iter().rev().take(RECENT_PIPELINES).any(|held| Arc::ptr_eq(held, pipeline)) {
            self.pipelines.push(pipeline.clone());
        }
    }
}

/// Prefetches, for writing, the memory of the next `count` elements of a list.
#[inline(always)]
fn prefetch_for_write<T>(list: &[T], count: usize) {
    let end = list.as_ptr().wrapping_add(list.len()).cast::<u8>();
    for line in 0..=count * size_of::<T>() / 64 {
        let at = end.wrapping_add(64 * line);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint and accepts any address.
        unsafe {
            std::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly))
        };
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// A function of a host device that runs a dispatched kernel.
pub type HostDispatch<'a> = &'a dyn Fn(&Dispatch, &[Binding]) -> Result<(), String>;

/// A watch and its fault.
type WatchOutcome<'a> = (&'a Arc<dyn Watch>, Option<Fault>);

type FinishHook = Box<dyn FnOnce(Option<&Fault>) + Send>;

/// A submission on its way through a device. It owns everything that its commands name.
pub struct Work(Box<WorkInner>);

struct WorkInner {
    shared: Arc<Shared>,
    stream: Arc<StreamShared>,
    index: u64,
    batch: Batch,
    fault: Option<Fault>,
    /// Receives the first fault of this part of the stream.
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

    /// The submission's index on its stream; indices increase.
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

    /// The mechanism that is ablated.
    #[cfg(feature = "sim")]
    pub(crate) fn ablation(&self) -> crate::ablation::Ablation {
        self.0.shared.ablation
    }

    /// The waits, mutable.
    pub(crate) fn waits_mut(&mut self) -> &mut SmallVec<[Wait; 2]> {
        &mut self.0.batch.waits
    }

    /// The number of commands.
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

    /// Registers a hook that is called with the fault, if any, when the work is finished.
    pub fn on_finish(&mut self, hook: impl FnOnce(Option<&Fault>) + Send + 'static) {
        self.0.hooks.push(Box::new(hook));
    }

    /// A function that returns whether the work has been cancelled.
    pub fn cancellation(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (stream, index) = (self.0.stream.clone(), self.0.index);
        move || stream.cancelled(index)
    }

    /// The fault that keeps a command from running: of an input, or a cancellation.
    pub fn blocked_by(&self, index: usize) -> Option<Fault> {
        if self.0.stream.cancelled(self.0.index) {
            let label = &*self.0.batch.commands[index].label;
            return Some(self.fault_at(label, FaultKind::Cancelled, Scope::Command, String::new()));
        }
        if self.0.shared.any_fault() { self.input_fault(index) } else { None }
    }

    /// The fault of an input of a command: of a write that was encoded before it.
    fn input_fault(&self, index: usize) -> Option<Fault> {
        let batch = &self.0.batch;
        let mut read = batch.bindings_of(index).iter().filter(|binding| binding.access.reads());
        read.find_map(|binding| {
            let lease = batch.lease(binding)?;
            #[cfg(feature = "sim")]
            if self.ablation() == crate::ablation::Ablation::FaultOrder {
                return lease.fault();
            }
            lease.fault_after(binding.writes)
        })
    }

    /// Records that a command failed: poisons what it writes, and so what is computed from it.
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

    /// Runs a command on host memory; `dispatch` runs compiled kernels. Panics and errors become the
    /// command's fault. A command with a poisoned input does not run.
    ///
    /// # Safety
    /// The caller is the device that has this work, every command that this one is ordered after
    /// has run, none that is ordered after it has started, and all its memory has a host address.
    pub unsafe fn run_on_host(&mut self, index: usize, dispatch: HostDispatch<'_>) {
        if let Some(fault) = self.blocked_by(index) {
            return self.fail_command(index, fault);
        }
        let begun = self.0.shared.trace.begin();
        let outcome = match &mut self.0.batch.commands[index].op {
            // SAFETY: upheld by the caller.
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
                    // SAFETY: encoding checked that both ranges lie inside of live memory and do not
                    // overlap, and the caller orders this command.
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
                    // SAFETY: encoding checked that the range lies inside of live memory, and the caller
                    // orders this command.
                    unsafe { target.as_ptr().add(range.offset).write_bytes(0, range.len) };
                }
                Ok(())
            }
        };
        if begun.is_some() {
            let batch = &self.0.batch;
            let bytes = batch.bindings_of(index).iter().map(|binding| binding.len).sum();
            self.0.shared.trace.ran(&batch.commands[index].label, self.0.stream.id(), begun, bytes);
        }
        if let Err(error) = outcome {
            let cancelled = self.0.stream.cancelled(self.0.index);
            let kind = if cancelled { FaultKind::Cancelled } else { error.kind };
            let label = &self.0.batch.commands[index].label;
            let fault = self.fault_at(label, kind, Scope::Command, error.message).with_source(error.source);
            self.fail_command(index, fault);
        }
    }

    /// Runs the closure of a native command, once. `context` is passed to it: a device without native
    /// commands on the host passes what its library calls need.
    ///
    /// # Safety
    /// As for [`run_on_host`](Work::run_on_host), except that memory need not have a host address: its
    /// views then return errors.
    pub unsafe fn run_native(&mut self, index: usize, context: Option<&dyn Any>) -> NativeResult {
        let batch = &mut self.0.batch;
        let Op::Native(closure) = &mut batch.commands[index].op else { return Ok(()) };
        let Some(closure) = closure.take() else { return Ok(()) };
        let bindings = batch.bindings_of(index);
        let mut views: SmallVec<[View<'_>; 8]> = bindings
            .iter()
            .map(|binding| {
                // SAFETY: encoding checked that the range lies inside of live memory and that written
                // ranges overlap no other. The caller orders this command, so nothing else accesses these
                // bytes while it runs.
                unsafe { View::of(binding) }
            })
            .collect();
        let mut native = Native::new(&mut views, bindings, context);
        panics::catch(|| crate::native::enter(|| closure(&mut native)))
            .unwrap_or_else(|message| Err(NativeError { kind: FaultKind::Panicked, message, source: None }))
    }

    /// A fault of this submission.
    pub fn fault_at(&self, command: &str, kind: FaultKind, scope: Scope, message: String) -> Fault {
        Fault::new(kind, scope, command, self.stream(), self.index(), message)
    }

    /// Finishes the work: drops its references and wakes waiters.
    pub fn finish(mut self) {
        self.complete();
    }

    /// Fails the whole submission: poisons everything it writes.
    pub fn fail(mut self, error: &DeviceError) {
        self.poison(error);
        self.complete();
    }

    pub(crate) fn poison(&mut self, error: &DeviceError) {
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

    /// Checks each watch on foreign memory once, after the commands have read it, and poisons the leases of
    /// one that fails.
    fn check_watches(&mut self) {
        if !self.0.batch.foreign {
            return;
        }
        let mut asked: SmallVec<[WatchOutcome<'_>; 2]> = SmallVec::new();
        let batch = &self.0.batch;
        for (index, lease) in batch.leases.iter().enumerate() {
            let Some(watch) = lease.block.watch() else { continue };
            let known = asked.iter().position(|(other, _)| Arc::ptr_eq(watch, other));
            let at = known.unwrap_or_else(|| {
                let fault = check_watch(&**watch).err().map(|message| {
                    self.0.shared.count_fault();
                    let names = |at: &usize| batch.bindings_of(*at).iter().any(|b| b.lease as usize == index);
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

    fn complete(&mut self) {
        if std::mem::replace(&mut self.0.finished, true) {
            return;
        }
        self.check_watches();
        // A device that cannot skip commands ran them on poisoned inputs: poison their outputs, in encode
        // order, so that the fault reaches every dependent.
        if self.0.shared.any_fault() {
            for index in 0..self.len() {
                if let Some(fault) = self.input_fault(index) {
                    self.fail_command(index, fault);
                }
            }
        }
        for hook in std::mem::take(&mut self.0.hooks) {
            let fault = self.0.fault.as_ref();
            // A panic of a hook must not prevent the completion.
            let _ = panics::catch(|| hook(fault));
        }
        let batch = std::mem::take(&mut self.0.batch);
        let fault = self.0.fault.take();
        if let Some(fault) = &fault {
            let _ = self.0.cell.set(fault.clone());
        }
        // Drop the references before waking waiters: they find the memory returned.
        let recycled = batch.recycle();
        self.0.shared.retire(&self.0.stream, self.0.index, fault, recycled);
    }
}

impl Batch {
    /// Clears the batch and keeps its allocations and leases. Leases on foreign memory are dropped, so that
    /// its owner is released at once.
    fn recycle(mut self) -> Batch {
        for command in &mut self.commands {
            // The closure did not run; dropping its captures may panic.
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
            self.poison(&DeviceError::Failed("the device dropped the work unfinished".into()));
            self.complete();
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Work(stream {}, index {}, {} commands)", self.stream(), self.index(), self.len())
    }
}
