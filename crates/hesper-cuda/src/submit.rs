//! From a submission to launches: one by one, or as a graph.
//!
//! Commands are checked and made ready first; what is wrong with one fails that one. Native commands
//! run as they come and cut the submission into runs; a long run becomes a [graph](crate::graph).
//!
//! How a submission fails depends on how far it came:
//!
//! | what happened | what becomes of it |
//! |---|---|
//! | nothing was enqueued (no event, no wait) | it is handed back whole |
//! | the driver refused one command | that command fails, and those that read what it writes do not run |
//! | the driver refused a graph | its commands are launched one by one |
//! | its end could not be marked | this thread waits for it, and it is finished as usual |
//! | a panic half-way | this thread waits for what was enqueued, and the submission fails as a whole |
//! | the context is lost | so is the device, and everything in flight fails with the first cause |

use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, TryLockError};

use hesper_runtime::{Binding, DeviceError, FaultKind, OpRef, RawStream, Scope, Work};

use crate::context::{Context, Current};
use crate::device::{CudaCounters, CudaShared, lock};
use crate::early::{self, Early};
use crate::error::{CudaError, Result, panic_words};
use crate::event::Event;
use crate::flight::Place;
use crate::graph::{Graph, Graphs, Node};
use crate::kernel::{Kernel, Launch, addresses};
use crate::reap::InFlight;
use crate::report::Reports;
use crate::sys::{CUdeviceptr, CUstream};
use crate::topology::{NodeKind, Topology};

/// Longer runs become several graphs.
const LONGEST_RUN: usize = 512;
/// Copies and clears up to this size may be nodes of a graph; larger copies pass the driver's limit of a pitch.
const LARGEST_COPY: usize = 1 << 30;

/// A CUDA stream and what launching on it needs.
pub(crate) struct Lane {
    raw: CUstream,
    bench: Mutex<Bench>,
}

/// Graphs and scratch of a lane.
#[derive(Default)]
struct Bench {
    graphs: Graphs,
    bytes: Vec<u8>,
}

impl Lane {
    pub(crate) fn new(raw: CUstream) -> Self {
        Lane { raw, bench: Mutex::default() }
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Gives up the graphs that name one of `kernels`; `None` if a submission is under way.
    pub(crate) fn try_forget(&self, kernels: &[Kernel]) -> Option<Vec<Arc<Graph>>> {
        let mut bench = match self.bench.try_lock() {
            Ok(bench) => bench,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(kernels.iter().flat_map(|kernel| bench.graphs.forget(kernel.id)).collect())
    }
}

/// What a native command gets from this device; see [`Native::context`](hesper_runtime::Native::context).
/// Library calls go to its stream.
pub struct NativeContext {
    shared: Arc<CudaShared>,
    stream: CUstream,
}

impl NativeContext {
    /// The CUDA stream (`CUstream`, the same as `cudaStream_t`).
    pub fn stream(&self) -> *mut c_void {
        self.stream.0
    }

    /// The CUDA context, which is current while the command runs.
    pub fn context(&self) -> &Context {
        &self.shared.context
    }

    /// The device.
    pub fn shared(&self) -> &Arc<CudaShared> {
        &self.shared
    }

    /// The device address of a bound range.
    pub fn address(&self, binding: &Binding) -> CUdeviceptr {
        binding.memory().id + binding.offset() as u64
    }
}

/// A command, made ready.
enum Step<'a> {
    Node(Node<'a>),
    /// It does not run: an input is spoilt, it is at fault itself, or there is nothing to do.
    Nothing,
}

/// A submission that was enqueued.
struct Enqueued {
    /// Marks its end.
    event: Arc<Event>,
    waits: Vec<Place>,
    graphs: Vec<Arc<Graph>>,
    reports: Reports,
}

/// Waits until nothing runs on a stream. Its end is all that tells when the memory of its work is free, so a driver that
/// refuses for want of something is asked again.
///
/// # Safety
/// The stream is this context's and alive.
unsafe fn drain(current: &Current<'_>, stream: CUstream) -> Result<()> {
    /// How often the driver is asked.
    const TRIES: usize = 4;
    // SAFETY: the caller's promise.
    let mut outcome = unsafe { current.synchronize_stream(stream) };
    for _ in 1..TRIES {
        match &outcome {
            Err(error) if !error.is_sticky() => {
                std::thread::yield_now();
                // SAFETY: the caller's promise.
                outcome = unsafe { current.synchronize_stream(stream) };
            }
            _ => break,
        }
    }
    outcome
}

fn waits_of(work: &Work) -> Vec<Place> {
    work.waits().iter().map(|wait| (wait.raw.0, wait.index)).collect()
}

impl CudaShared {
    /// # Safety
    /// As for [`Device::submit`](hesper_runtime::Device::submit).
    pub(crate) unsafe fn submit(
        self: &Arc<Self>,
        stream: RawStream,
        mut work: Work,
    ) -> Result<(), (Work, DeviceError)> {
        // SAFETY: the caller's promise.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { self.enqueue(stream, &mut work) }));
        let Enqueued { event, waits, graphs, reports } = match outcome {
            Ok(Ok(enqueued)) => enqueued,
            Ok(Err(error)) => return Err((work, error)),
            Err(panic) => {
                let what = CudaError::Panicked { what: "launching", message: panic_words(&*panic) };
                let error = self.settle(stream).map_or_else(|lost| lost, |()| what.into());
                if matches!(error, DeviceError::Lost(_)) {
                    return Err((work, error));
                }
                let (index, waits) = (work.index(), waits_of(&work));
                let (over, failed) = (self.events.over(), InFlight::failed(work, error));
                lock(&self.state).flights.push(stream.0, index, over, waits, failed);
                self.wake.notify_one();
                return Ok(());
            }
        };
        let mut state = lock(&self.state);
        if let Err(error) = self.check_lost() {
            return Err((work, error));
        }
        let (index, awaited) = (work.index(), work.is_awaited());
        let writes = if self.options.validate { early::writes(&work) } else { Vec::new() };
        state.flights.push(stream.0, index, event, waits, InFlight::new(work, graphs, reports, writes));
        // Who waits finishes it himself.
        if state.parked && !awaited {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Waits until nothing runs on a stream; an error says that the device is lost.
    fn settle(&self, stream: RawStream) -> Result<(), DeviceError> {
        let lane = lock(&self.lanes).get(&stream.0).cloned();
        let Some(lane) = lane else { return Ok(()) };
        // SAFETY: the stream is this context's and alive: the lane is one of the device's.
        let idle = self.context.enter_to_release().and_then(|current| unsafe { drain(&current, lane.raw) });
        idle.map_err(|error| self.lose(&error))
    }

    /// Fails a work that was accepted and could not be launched, in its place in the stream. The runtime counts on its
    /// waits for what comes later, so they are waited for here; [`finish_failed`](CudaShared::finish_failed) does the
    /// rest. Called under the gate.
    pub(crate) fn fail_accepted(&self, stream: RawStream, work: Work, error: DeviceError) {
        let (index, waits) = (work.index(), waits_of(&work));
        if self.check_lost().is_ok() {
            let events: Vec<Arc<Event>> = {
                let state = lock(&self.state);
                waits.iter().filter_map(|(stream, index)| state.flights.event(*stream, *index)).collect()
            };
            let outcome = self.context.enter_to_release().and_then(|current| {
                events.iter().try_for_each(|event| event.wait(&current, self.options.look))
            });
            if let Err(error) = outcome {
                self.lose(&error);
            }
            let _ = self.settle(stream);
        }
        let (over, failed) = (self.events.over(), InFlight::failed(work, error));
        lock(&self.state).flights.push(stream.0, index, over, waits, failed);
    }

    /// Finishes a work that failed, and all before it.
    pub(crate) fn finish_failed(&self, stream: RawStream, index: u64) {
        lock(&self.state).flights.collect(stream.0, index);
        let _ = self.poll();
    }

    /// # Safety
    /// As for `submit`. An error says that nothing is enqueued, or that the device is lost.
    unsafe fn enqueue(self: &Arc<Self>, stream: RawStream, work: &mut Work) -> Result<Enqueued, DeviceError> {
        self.check_lost()?;
        let lane = lock(&self.lanes).get(&stream.0).cloned();
        let lane = lane.ok_or_else(|| DeviceError::Failed(format!("there is no stream {}", stream.0)))?;
        let mut bench = lock(&lane.bench);
        let bench = &mut *bench;
        // Locks are held: a thread that comes when the process ends must not stay at the gate.
        let current = self.context.enter_to_release().map_err(|error| self.refuse(error))?;
        let mut event = self.events.take(&current).map_err(|error| self.refuse(error))?;
        let waits = waits_of(work);
        for (stream, index) in &waits {
            let other = lock(&self.state).flights.event(*stream, *index);
            if let Some(raw) = other.and_then(|other| other.raw()) {
                // SAFETY: event and stream are this context's and alive.
                let waited = unsafe { current.stream_wait(lane.raw, raw) };
                waited.map_err(|error| self.refuse(error))?;
            }
        }

        let mut counters = CudaCounters { submitted: 1, ..CudaCounters::default() };
        let mut graphs = Vec::new();
        let mut reports = Reports::new(&self.reports);
        let early = Early::default();
        let mut position = 0;
        let mut outcome = Ok(());
        while position < work.len() && outcome.is_ok() {
            if let OpRef::Native = work.command(position).op {
                // SAFETY: the caller's promise; the stream orders what the closure enqueues.
                unsafe { self.run_native(work, position, lane.raw) };
                position += 1;
                continue;
            }
            let start = position;
            bench.bytes.clear();
            let mut steps = Vec::new();
            while position < work.len()
                && position - start < LONGEST_RUN
                && !matches!(work.command(position).op, OpRef::Native)
            {
                // SAFETY: the pipelines of the work are alive, by the caller's promise.
                steps.push(unsafe { make_ready(work, position, &mut bench.bytes, &current, &mut reports) });
                position += 1;
            }
            let at = start..position;
            let run = Run { shared: self, current: &current, lane: lane.raw, at, early: &early };
            // SAFETY: the caller's promise.
            outcome = unsafe { run.launch(work, &mut steps, bench, &mut graphs, &mut counters) };
            #[cfg(test)]
            crate::fake::panic_point("enqueue");
        }
        let recorded = match (&outcome, event.raw()) {
            // SAFETY: event and stream are this context's and alive.
            (Ok(()), Some(raw)) => unsafe { current.record(raw, lane.raw) },
            _ => Ok(()),
        };
        if let Err(error) = recorded {
            // Nothing would tell when it is over: wait for it here.
            // SAFETY: the stream is this context's and alive.
            outcome = unsafe { drain(&current, lane.raw) }.map_err(|_| error);
            event = self.events.over();
            counters.unmarked += 1;
        }
        lock(&self.counters).add(&counters);
        // Something may be enqueued whose end nobody knows: then the context cannot be trusted.
        outcome.map_err(|error| self.lose(&error))?;
        Ok(Enqueued { event, waits, graphs, reports })
    }

    /// # Safety
    /// As for `submit`.
    unsafe fn run_native(self: &Arc<Self>, work: &mut Work, position: usize, stream: CUstream) {
        if let Some(fault) = work.blocked_by(position) {
            return work.fail_command(position, fault);
        }
        let context = NativeContext { shared: self.clone(), stream };
        // SAFETY: the stream orders what the closure enqueues behind everything before it.
        let outcome = unsafe { work.run_native(position, Some(&context)) };
        if let Err(error) = outcome {
            let fault =
                work.fault_at(work.command(position).label, error.kind, Scope::Command, error.message);
            work.fail_command(position, fault);
        }
    }
}

impl CudaCounters {
    fn add(&mut self, other: &CudaCounters) {
        self.submitted += other.submitted;
        self.launched += other.launched;
        self.graph_failures += other.graph_failures;
        self.unmarked += other.unmarked;
        self.graphs.made += other.graphs.made;
        self.graphs.launched += other.graphs.launched;
        self.graphs.changed += other.graphs.changed;
        self.graphs.unchanged += other.graphs.unchanged;
        self.graphs.evicted += other.graphs.evicted;
    }
}

/// Checks a command; what is wrong with it fails it.
///
/// # Safety
/// The command's pipeline is one of this device's, and alive for as long as the step is used.
unsafe fn make_ready<'a>(
    work: &mut Work,
    position: usize,
    bytes: &mut Vec<u8>,
    current: &Current<'_>,
    reports: &mut Reports,
) -> Step<'a> {
    if let Some(fault) = work.blocked_by(position) {
        work.fail_command(position, fault);
        return Step::Nothing;
    }
    let command = work.command(position);
    let address = |binding: &Binding| binding.memory().id + binding.offset() as u64;
    match (command.op, command.bindings) {
        (OpRef::Dispatch(dispatch), bindings) => {
            // SAFETY: `compile` made the address from a box, and the caller promises that it is alive.
            let kernel: &'a Kernel = unsafe { &*(dispatch.pipeline().0 as *const Kernel) };
            let report = reports.address(current, position, kernel).map_err(|error| error.to_string());
            match report.and_then(|report| kernel.prepare(dispatch, bindings, report, bytes)) {
                Ok(launch) => Step::Node(Node::Kernel(kernel, launch)),
                Err(message) => {
                    fail(work, position, message);
                    Step::Nothing
                }
            }
        }
        (OpRef::Copy, [from, to]) if !from.is_empty() => {
            Step::Node(Node::Copy(address(to), address(from), from.len()))
        }
        (OpRef::Clear, [to]) if !to.is_empty() => Step::Node(Node::Clear(address(to), to.len())),
        _ => Step::Nothing,
    }
}

fn fail(work: &mut Work, position: usize, message: String) {
    let fault = work.fault_at(work.command(position).label, FaultKind::Failed, Scope::Command, message);
    work.fail_command(position, fault);
}

/// A run of commands of a submission, without native ones.
struct Run<'a> {
    shared: &'a Arc<CudaShared>,
    current: &'a Current<'a>,
    lane: CUstream,
    /// Their positions in the submission.
    at: Range<usize>,
    /// What may be read early.
    early: &'a Early,
}

impl Run<'_> {
    /// Launches the run. An error means that the context is lost.
    ///
    /// # Safety
    /// All memory and kernels that the steps name are alive until the work is finished.
    unsafe fn launch(
        &self,
        work: &mut Work,
        steps: &mut [Step<'_>],
        bench: &mut Bench,
        graphs: &mut Vec<Arc<Graph>>,
        counters: &mut CudaCounters,
    ) -> Result<()> {
        if self.shared.options.validate {
            self.check_early(work, steps);
        }
        let nodes = steps.iter().filter(|step| matches!(step, Step::Node(_))).count();
        let fits = !steps
            .iter()
            .any(|step| matches!(step, Step::Node(Node::Copy(_, _, len) | Node::Clear(_, len)) if *len > LARGEST_COPY));
        if nodes >= self.shared.options.graph_from.max(2) && fits {
            let outcome = self.launch_graph(work, steps, bench, counters);
            match outcome {
                Ok(Some(graph)) => {
                    graphs.push(graph);
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) if error.is_sticky() => return Err(error),
                Err(_) => counters.graph_failures += 1,
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.launch_each(work, steps, &mut bench.bytes, counters) }
    }

    fn launch_graph(
        &self,
        work: &Work,
        steps: &[Step<'_>],
        bench: &mut Bench,
        counters: &mut CudaCounters,
    ) -> Result<Option<Arc<Graph>>> {
        let kinds: Vec<NodeKind> = steps
            .iter()
            .enumerate()
            .map(|(offset, step)| match step {
                Step::Node(Node::Kernel(kernel, _)) if self.begins_early(work, offset, kernel) => {
                    NodeKind::Early
                }
                Step::Node(Node::Kernel(..)) => NodeKind::Kernel,
                Step::Node(Node::Copy(..)) => NodeKind::Copy,
                Step::Node(Node::Clear(..)) => NodeKind::Clear,
                Step::Nothing => NodeKind::Nothing,
            })
            .collect();
        let start = self.at.start;
        let mut topology = Topology::new(&kinds, |position| {
            let after = work.command(start + position).after;
            // What comes before the run is ordered by the stream.
            after.iter().filter_map(move |earlier| (*earlier as usize).checked_sub(start))
        });
        let nodes: Vec<Node<'_>> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Node(node) => Some(node.clone()),
                Step::Nothing => None,
            })
            .collect();
        topology.tell_apart(nodes.iter().map(|node| match node {
            Node::Kernel(kernel, _) => kernel.cluster,
            Node::Copy(..) | Node::Clear(..) => 0,
        }));
        topology.tell_clears_apart(nodes.iter().map(|node| match node {
            Node::Clear(_, len) => Some(*len),
            Node::Kernel(..) | Node::Copy(..) => None,
        }));
        let Bench { graphs, bytes } = bench;
        let context = &self.shared.context;
        graphs.launch(context, self.current, self.lane, &topology, &nodes, bytes, &mut counters.graphs)
    }

    /// Whether a command may begin while those before it in the submission still run: its kernel waits by itself, and none
    /// of them writes what it reads before it waits.
    fn begins_early(&self, work: &Work, offset: usize, kernel: &Kernel) -> bool {
        let bindings = work.command(self.at.start + offset).bindings;
        kernel.ahead.as_ref().is_some_and(|ahead| self.early.allows(ahead, bindings, work))
    }

    /// Under validation: fails the commands that would begin early and must not; see [`crate::early`].
    fn check_early(&self, work: &mut Work, steps: &mut [Step<'_>]) {
        let (own, waits) = (early::writes(work), waits_of(work));
        for (offset, step) in steps.iter_mut().enumerate() {
            let Step::Node(Node::Kernel(kernel, _)) = step else { continue };
            let Some(ahead) = &kernel.ahead else { continue };
            if !self.begins_early(work, offset, kernel) {
                continue;
            }
            let position = self.at.start + offset;
            let wrong = {
                let state = lock(&self.shared.state);
                let others = state.flights.all().filter(|((stream, _), ..)| *stream != work.raw_stream().0);
                let others = others.map(|(place, waits, flight)| (place, waits, &flight.writes[..]));
                early::unordered_writer(ahead, work.command(position).bindings, &own, &waits, others)
            };
            if let Some(what) = wrong {
                fail(work, position, format!("early launch: {what}"));
                *step = Step::Nothing;
            }
        }
    }

    /// # Safety
    /// As for `launch`.
    unsafe fn launch_each(
        &self,
        work: &mut Work,
        steps: &[Step<'_>],
        bytes: &mut [u8],
        counters: &mut CudaCounters,
    ) -> Result<()> {
        let mut pointers = Vec::new();
        // Only a kernel lets the next one begin before its end.
        let mut behind_kernel = true;
        let mut failed = false;
        for (offset, step) in steps.iter().enumerate() {
            let position = self.at.start + offset;
            let Step::Node(node) = step else { continue };
            // A command of this run that the driver refused: what reads its results does not run.
            if let Some(fault) = failed.then(|| work.blocked_by(position)).flatten() {
                work.fail_command(position, fault);
                continue;
            }
            let outcome: Result<(), CudaError> = match node {
                Node::Kernel(kernel, launch) => {
                    addresses(kernel, &mut bytes[launch.bytes.clone()], &mut pointers);
                    let Launch { function, extent, .. } = *launch;
                    let parameters = pointers.as_mut_ptr();
                    // The first kernel of a submission begins when all that was submitted before it is over.
                    let first = counters.launched + counters.graphs.launched == 0;
                    let early = !first && behind_kernel && self.begins_early(work, offset, kernel);
                    // SAFETY: the parameters are laid out as the kernel wants them.
                    unsafe {
                        match early {
                            true => self.current.launch_early(function, extent, self.lane, parameters),
                            false => self.current.launch(function, extent, self.lane, parameters),
                        }
                    }
                }
                // SAFETY: the ranges lie inside of live memory and do not overlap.
                Node::Copy(to, from, len) => unsafe { self.current.copy(*to, *from, *len, self.lane) },
                // SAFETY: the range lies inside of live memory.
                Node::Clear(to, len) => unsafe { self.current.clear(*to, *len, self.lane) },
            };
            match outcome {
                Ok(()) => {
                    counters.launched += 1;
                    behind_kernel = matches!(node, Node::Kernel(..));
                }
                Err(error) if error.is_sticky() => return Err(error),
                Err(error) => {
                    failed = true;
                    fail(work, position, error.to_string());
                }
            }
        }
        Ok(())
    }
}
