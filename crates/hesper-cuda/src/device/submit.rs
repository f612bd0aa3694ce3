//! Launching submissions: command by command, or as a graph.
//!
//! Commands are checked and prepared first; an invalid command fails alone. Native commands run in order and
//! split a submission into runs; a long run becomes a [graph](crate::graph). Small submissions of one stream
//! that wait for their launch are launched together and share a completion event: a launch and an event cost
//! several times what a node of a graph costs.
//!
//! How a submission fails depends on its progress:
//!
//! | event | outcome |
//! |---|---|
//! | nothing was enqueued (no event, no wait) | the submissions are returned as refused |
//! | the driver refuses a command | that command fails, and commands that read its results do not run |
//! | the driver refuses a graph | its commands are launched one by one |
//! | its completion event cannot be recorded | this thread waits for it, and it is finished as usual |
//! | a panic | this thread drains the stream, and the submission fails as a whole |
//! | the context is lost | the device is lost, and everything in flight fails with the first cause |

use std::ffi::c_void;
use std::sync::{Arc, Mutex, TryLockError};

use hesper_runtime::{Binding, DeviceError, FaultKind, OpRef, RawStream, Scope, Work, panics};

use super::completion::SubmittedWork;
use super::{CudaCounters, CudaShared};
use crate::bounds_report::Reports;
use crate::context::{Context, Current};
use crate::dependent_launch::{self, EarlyReads};
use crate::error::{CudaError, Result};
use crate::event::Event;
use crate::graph::{Graph, Graphs, Node};
use crate::host::lock;
use crate::in_flight::SubmissionId;
use crate::kernel::{Kernel, Launch, addresses};
use crate::sys::{CUdeviceptr, CUstream};
use crate::topology::{NodeKind, Topology};

/// The most commands of one graph; longer runs become several graphs.
const MAX_GRAPH_COMMANDS: usize = 512;
/// The largest copy or clear in a graph; larger copies exceed the driver's limit of a pitch.
const MAX_GRAPH_COPY: usize = 1 << 30;

/// A CUDA stream with its graphs and launch scratch.
pub(crate) struct CudaStream {
    raw: CUstream,
    scratch: Mutex<LaunchScratch>,
}

/// The graphs and the parameter bytes of a stream.
#[derive(Default)]
struct LaunchScratch {
    graphs: Graphs,
    bytes: Vec<u8>,
}

impl CudaStream {
    pub(crate) fn new(raw: CUstream) -> Self {
        CudaStream { raw, scratch: Mutex::default() }
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Removes the graphs that use one of `kernels`; `None` if a submission is being launched.
    pub(crate) fn try_forget(&self, kernels: &[Kernel]) -> Option<Vec<Arc<Graph>>> {
        let mut scratch = match self.scratch.try_lock() {
            Ok(scratch) => scratch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(kernels.iter().flat_map(|kernel| scratch.graphs.forget(kernel.id)).collect())
    }
}

/// The context of native commands on this device; see [`Native::context`](hesper_runtime::Native::context).
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

/// A command of a run: the number of its submission in the group, and its position there.
struct RunCommand<'a> {
    work: usize,
    position: usize,
    prepared: PreparedCommand<'a>,
}

/// A command that is ready to launch.
enum PreparedCommand<'a> {
    Node(Node<'a>),
    /// It does not run: an input is poisoned, it is invalid, or it is empty.
    Nothing,
}

/// Enqueued submissions.
struct Enqueued {
    /// The completion event of all of them.
    event: Arc<Event>,
    graphs: Vec<Arc<Graph>>,
    /// Those of each submission.
    reports: Vec<Reports>,
}

/// Waits until a stream is idle. Only then is the memory of its work free, so a refusal that is not sticky
/// is retried.
///
/// # Safety
/// The stream belongs to this context and is alive.
pub(crate) unsafe fn drain(current: &Current<'_>, stream: CUstream) -> Result<()> {
    /// The number of attempts.
    const TRIES: usize = 4;
    // SAFETY: upheld by the caller.
    let mut outcome = unsafe { current.synchronize_stream(stream) };
    for _ in 1..TRIES {
        match &outcome {
            Err(error) if !error.is_sticky() => {
                std::thread::yield_now();
                // SAFETY: upheld by the caller.
                outcome = unsafe { current.synchronize_stream(stream) };
            }
            _ => break,
        }
    }
    outcome
}

fn waits_of(work: &Work) -> Vec<SubmissionId> {
    work.waits().iter().map(|wait| (wait.raw.0, wait.index)).collect()
}

impl CudaShared {
    /// Launches a submission.
    ///
    /// # Safety
    /// As for [`Device::submit`](hesper_runtime::Device::submit).
    pub(crate) unsafe fn submit_one(
        self: &Arc<Self>,
        stream: RawStream,
        work: Work,
    ) -> Result<(), (Work, DeviceError)> {
        // SAFETY: upheld by the caller.
        let outcome = unsafe { self.submit(stream, vec![work]) };
        match outcome.map_err(|(mut works, error)| (works.pop(), error)) {
            Err((Some(work), error)) => Err((work, error)),
            Ok(()) | Err((None, _)) => Ok(()),
        }
    }

    /// Launches submissions of one stream, in order. All but the first have no waits, and several have no
    /// native commands.
    ///
    /// # Safety
    /// As for [`Device::submit`](hesper_runtime::Device::submit).
    pub(crate) unsafe fn submit(
        self: &Arc<Self>,
        stream: RawStream,
        mut works: Vec<Work>,
    ) -> Result<(), (Vec<Work>, DeviceError)> {
        // SAFETY: upheld by the caller.
        let outcome = panics::catch(|| unsafe { self.enqueue(stream, &mut works) });
        let Enqueued { event, mut graphs, reports } = match outcome {
            Ok(Ok(enqueued)) => enqueued,
            Ok(Err(error)) => return Err((works, error)),
            Err(message) => {
                let what = CudaError::Panicked { what: "launching", message };
                let error = self.drain_stream(stream).map_or_else(|lost| lost, |()| what.into());
                if matches!(error, DeviceError::Lost(_)) {
                    return Err((works, error));
                }
                let event = self.events.completed();
                let mut state = lock(&self.state);
                for work in works {
                    let (index, waits) = (work.index(), waits_of(&work));
                    let failed = SubmittedWork::failed(work, error.clone());
                    state.in_flight.push(stream.0, index, event.clone(), waits, failed);
                }
                self.wake.notify_one();
                return Ok(());
            }
        };
        let mut state = lock(&self.state);
        if let Err(error) = self.check_lost() {
            return Err((works, error));
        }
        let awaited = works.iter().all(Work::is_awaited);
        let last = works.len() - 1;
        for (number, (work, reports)) in works.into_iter().zip(reports).enumerate() {
            let writes = if self.options.validate { dependent_launch::writes(&work) } else { Vec::new() };
            // The last submission completes after all others: it holds the graphs.
            let graphs = if number == last { std::mem::take(&mut graphs) } else { Vec::new() };
            let (index, waits) = (work.index(), waits_of(&work));
            let submitted = SubmittedWork::new(work, graphs, reports, writes);
            state.in_flight.push(stream.0, index, event.clone(), waits, submitted);
        }
        // A waiting thread finishes the work itself.
        if state.parked && !awaited {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Waits until a stream is idle; an error means that the device is lost.
    fn drain_stream(&self, stream: RawStream) -> Result<(), DeviceError> {
        let cuda_stream = lock(&self.streams).get(&stream.0).cloned();
        let Some(cuda_stream) = cuda_stream else { return Ok(()) };
        // SAFETY: the stream belongs to this context and is alive: it is in the map of the device.
        let idle =
            self.context.enter_to_release().and_then(|current| unsafe { drain(&current, cuda_stream.raw) });
        idle.map_err(|error| self.lose(&error))
    }

    /// Fails accepted work that could not be launched, in its position in the stream. Later work relies on
    /// its waits, so they are waited for here; [`finish_failed`](CudaShared::finish_failed) does the rest.
    /// Called under `launch_order`.
    pub(crate) fn fail_accepted(&self, stream: RawStream, work: Work, error: DeviceError) {
        let (index, waits) = (work.index(), waits_of(&work));
        if self.check_lost().is_ok() {
            let events: Vec<Arc<Event>> = {
                let state = lock(&self.state);
                waits.iter().filter_map(|(stream, index)| state.in_flight.event(*stream, *index)).collect()
            };
            let outcome = self.context.enter_to_release().and_then(|current| {
                events.iter().try_for_each(|event| event.wait(&current, self.options.spin))
            });
            if let Err(error) = outcome {
                self.lose(&error);
            }
            let _ = self.drain_stream(stream);
        }
        let (event, failed) = (self.events.completed(), SubmittedWork::failed(work, error));
        lock(&self.state).in_flight.push(stream.0, index, event, waits, failed);
    }

    /// Finishes failed work and everything before it.
    pub(crate) fn finish_failed(&self, stream: RawStream, index: u64) {
        lock(&self.state).in_flight.collect(stream.0, index);
        let _ = self.poll();
    }

    /// # Safety
    /// As for `submit`. An error means that nothing is enqueued, or that the device is lost.
    unsafe fn enqueue(
        self: &Arc<Self>,
        stream: RawStream,
        works: &mut [Work],
    ) -> Result<Enqueued, DeviceError> {
        self.check_lost()?;
        let cuda_stream = lock(&self.streams).get(&stream.0).cloned();
        let cuda_stream =
            cuda_stream.ok_or_else(|| DeviceError::Failed(format!("stream {} does not exist", stream.0)))?;
        let mut scratch = lock(&cuda_stream.scratch);
        let scratch = &mut *scratch;
        // Locks are held, so this thread must not block at the gate during exit.
        let current = self.context.enter_to_release().map_err(|error| self.device_error(error))?;
        let mut event = self.events.take(&current).map_err(|error| self.device_error(error))?;
        for wait in works.iter().flat_map(|work| work.waits()) {
            let other = lock(&self.state).in_flight.event(wait.raw.0, wait.index);
            if let Some(raw) = other.and_then(|other| other.raw()) {
                // SAFETY: event and stream belong to this context and are alive.
                let waited = unsafe { current.stream_wait(cuda_stream.raw, raw) };
                waited.map_err(|error| self.device_error(error))?;
            }
        }

        let mut counters = CudaCounters { submitted: works.len() as u64, ..CudaCounters::default() };
        let mut graphs = Vec::new();
        let mut reports: Vec<Reports> = works.iter().map(|_| Reports::new(&self.reports)).collect();
        let run = Run {
            shared: self,
            current: &current,
            cuda_stream: cuda_stream.raw,
            early: (works.len() == 1).then(EarlyReads::default),
        };
        let mut commands = Vec::new();
        let mut outcome = Ok(());
        for number in 0..works.len() {
            let mut position = 0;
            while position < works[number].len() && outcome.is_ok() {
                let native = matches!(works[number].command(position).op, OpRef::Native);
                if native || commands.len() == MAX_GRAPH_COMMANDS {
                    // SAFETY: upheld by the caller.
                    outcome =
                        unsafe { run.launch(works, &mut commands, scratch, &mut graphs, &mut counters) };
                    if outcome.is_err() {
                        break;
                    }
                }
                if native {
                    // SAFETY: upheld by the caller; the stream orders what the closure enqueues.
                    unsafe { self.run_native(&mut works[number], position, cuda_stream.raw) };
                } else {
                    let (work, reports) = (&mut works[number], &mut reports[number]);
                    // SAFETY: upheld by the caller: the pipelines of the work are alive.
                    let prepared =
                        unsafe { prepare_command(work, position, &mut scratch.bytes, &current, reports) };
                    commands.push(RunCommand { work: number, position, prepared });
                }
                position += 1;
            }
        }
        if outcome.is_ok() {
            // SAFETY: upheld by the caller.
            outcome = unsafe { run.launch(works, &mut commands, scratch, &mut graphs, &mut counters) };
        }
        let recorded = match (&outcome, event.raw()) {
            // SAFETY: event and stream belong to this context and are alive.
            (Ok(()), Some(raw)) => unsafe { current.record(raw, cuda_stream.raw) },
            _ => Ok(()),
        };
        if let Err(error) = recorded {
            // Without an event nothing signals completion: wait here.
            // SAFETY: the stream belongs to this context and is alive.
            outcome = unsafe { drain(&current, cuda_stream.raw) }.map_err(|_| error);
            event = self.events.completed();
            counters.unmarked += 1;
        }
        lock(&self.counters).add(&counters);
        // Something may be enqueued whose completion cannot be detected, so the context is unusable.
        outcome.map_err(|error| self.lose(&error))?;
        Ok(Enqueued { event, graphs, reports })
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
        self.graphs.created += other.graphs.created;
        self.graphs.launched += other.graphs.launched;
        self.graphs.changed += other.graphs.changed;
        self.graphs.unchanged += other.graphs.unchanged;
        self.graphs.evicted += other.graphs.evicted;
    }
}

/// Checks and prepares a command; an invalid one fails.
///
/// # Safety
/// The command's pipeline belongs to this device and lives for as long as the result is used.
unsafe fn prepare_command<'a>(
    work: &mut Work,
    position: usize,
    bytes: &mut Vec<u8>,
    current: &Current<'_>,
    reports: &mut Reports,
) -> PreparedCommand<'a> {
    if let Some(fault) = work.blocked_by(position) {
        work.fail_command(position, fault);
        return PreparedCommand::Nothing;
    }
    let command = work.command(position);
    let address = |binding: &Binding| binding.memory().id + binding.offset() as u64;
    match (command.op, command.bindings) {
        (OpRef::Dispatch(dispatch), bindings) => {
            // SAFETY: `compile` made the address from a box, and by the contract of this function it is
            // alive.
            let kernel: &'a Kernel = unsafe { &*(dispatch.pipeline().0 as *const Kernel) };
            let report = reports.address(current, position, kernel).map_err(|error| error.to_string());
            match report.and_then(|report| kernel.prepare(dispatch, bindings, report, bytes)) {
                Ok(launch) => PreparedCommand::Node(Node::Kernel(kernel, launch)),
                Err(message) => {
                    fail(work, position, message);
                    PreparedCommand::Nothing
                }
            }
        }
        (OpRef::Copy, [from, to]) if !from.is_empty() => {
            PreparedCommand::Node(Node::Copy(address(to), address(from), from.len()))
        }
        (OpRef::Clear, [to]) if !to.is_empty() => PreparedCommand::Node(Node::Clear(address(to), to.len())),
        _ => PreparedCommand::Nothing,
    }
}

fn fail(work: &mut Work, position: usize, message: String) {
    let fault = work.fault_at(work.command(position).label, FaultKind::Failed, Scope::Command, message);
    work.fail_command(position, fault);
}

/// Launches runs: consecutive commands without native ones.
struct Run<'a> {
    shared: &'a Arc<CudaShared>,
    current: &'a Current<'a>,
    cuda_stream: CUstream,
    /// The memory that may be read before a dependent kernel waits. `None` for several submissions: each
    /// starts when the one before it has ended.
    early: Option<EarlyReads>,
}

impl Run<'_> {
    /// Launches the commands and leaves an empty list. An error means that the context is lost.
    ///
    /// # Safety
    /// All memory and kernels that the commands name are alive until the work is finished.
    unsafe fn launch(
        &self,
        works: &mut [Work],
        commands: &mut Vec<RunCommand<'_>>,
        scratch: &mut LaunchScratch,
        graphs: &mut Vec<Arc<Graph>>,
        counters: &mut CudaCounters,
    ) -> Result<()> {
        if self.shared.options.validate {
            self.check_early(works, commands);
        }
        let is_node = |command: &&RunCommand<'_>| matches!(command.prepared, PreparedCommand::Node(_));
        let nodes = commands.iter().filter(is_node).count();
        let fits = commands.iter().all(|command| match command.prepared {
            PreparedCommand::Node(Node::Copy(_, _, len) | Node::Clear(_, len)) => len <= MAX_GRAPH_COPY,
            _ => true,
        });
        let mut launched = false;
        if nodes >= self.shared.options.graph_from.max(2) && fits {
            match self.launch_graph(works, commands, scratch, counters) {
                Ok(graph) => {
                    launched = graph.is_some();
                    graphs.extend(graph);
                }
                Err(error) if error.is_sticky() => return Err(error),
                Err(_) => counters.graph_failures += 1,
            }
        }
        if !launched {
            // SAFETY: upheld by the caller.
            unsafe { self.launch_each(works, commands, &mut scratch.bytes, counters) }?;
        }
        commands.clear();
        scratch.bytes.clear();
        #[cfg(test)]
        crate::fake::panic_point("enqueue");
        Ok(())
    }

    fn launch_graph(
        &self,
        works: &[Work],
        commands: &[RunCommand<'_>],
        scratch: &mut LaunchScratch,
        counters: &mut CudaCounters,
    ) -> Result<Option<Arc<Graph>>> {
        let kinds: Vec<NodeKind> = commands
            .iter()
            .map(|command| match &command.prepared {
                PreparedCommand::Node(Node::Kernel(kernel, _))
                    if self.begins_early(works, command, kernel) =>
                {
                    NodeKind::DependentKernel
                }
                PreparedCommand::Node(Node::Kernel(..)) => NodeKind::Kernel,
                PreparedCommand::Node(Node::Copy(..)) => NodeKind::Copy,
                PreparedCommand::Node(Node::Clear(..)) => NodeKind::Clear,
                PreparedCommand::Nothing => NodeKind::Nothing,
            })
            .collect();
        let mut topology = Topology::new(&kinds, |at| {
            let RunCommand { work, position, .. } = commands[at];
            let own = works[work].command(position).after.iter();
            // The stream orders everything before the run.
            let own = own.filter_map(move |earlier| at.checked_sub(position - *earlier as usize));
            // A submission starts when the one before it has ended.
            let begin = at.saturating_sub(position);
            let before = commands[..begin].iter().rev();
            let count = before.take_while(|command| command.work + 1 == work).count();
            own.chain(begin - count..begin)
        });
        let nodes: Vec<Node<'_>> = commands
            .iter()
            .filter_map(|command| match &command.prepared {
                PreparedCommand::Node(node) => Some(node.clone()),
                PreparedCommand::Nothing => None,
            })
            .collect();
        topology.add_cluster_sizes(nodes.iter().map(|node| match node {
            Node::Kernel(kernel, _) => kernel.cluster,
            Node::Copy(..) | Node::Clear(..) => 0,
        }));
        topology.add_clear_lengths(nodes.iter().map(|node| match node {
            Node::Clear(_, len) => Some(*len),
            Node::Kernel(..) | Node::Copy(..) => None,
        }));
        let LaunchScratch { graphs, bytes } = scratch;
        let context = &self.shared.context;
        graphs.launch(context, self.current, self.cuda_stream, &topology, &nodes, bytes, &mut counters.graphs)
    }

    /// Whether a command may start while earlier ones of the submission still run: its kernel waits for them
    /// itself, and none of them writes what it reads before that wait.
    fn begins_early(&self, works: &[Work], command: &RunCommand<'_>, kernel: &Kernel) -> bool {
        let work = &works[command.work];
        let bindings = work.command(command.position).bindings;
        let (Some(ahead), Some(early)) = (&kernel.ahead, &self.early) else { return false };
        early.allows(ahead, bindings, work)
    }

    /// Under validation: fails the commands that would start early and must not; see
    /// [`crate::dependent_launch`].
    fn check_early(&self, works: &mut [Work], commands: &mut [RunCommand<'_>]) {
        for command in commands {
            let PreparedCommand::Node(Node::Kernel(kernel, _)) = &command.prepared else { continue };
            let Some(ahead) = &kernel.ahead else { continue };
            if !self.begins_early(works, command, kernel) {
                continue;
            }
            let work = &mut works[command.work];
            let (own, waits) = (dependent_launch::writes(work), waits_of(work));
            let wrong = {
                let state = lock(&self.shared.state);
                let others = state.in_flight.all().filter(|((stream, _), ..)| *stream != work.raw_stream().0);
                let others = others.map(|(place, waits, flight)| (place, waits, &flight.writes[..]));
                let bindings = work.command(command.position).bindings;
                dependent_launch::unordered_writer(ahead, bindings, &own, &waits, others)
            };
            if let Some(what) = wrong {
                fail(work, command.position, format!("dependent launch: {what}"));
                command.prepared = PreparedCommand::Nothing;
            }
        }
    }

    /// # Safety
    /// As for `launch`.
    unsafe fn launch_each(
        &self,
        works: &mut [Work],
        commands: &[RunCommand<'_>],
        bytes: &mut [u8],
        counters: &mut CudaCounters,
    ) -> Result<()> {
        let mut pointers = Vec::new();
        // Only a kernel allows the next one to start before it ends.
        let mut behind_kernel = true;
        let mut failed = false;
        for command in commands {
            let PreparedCommand::Node(node) = &command.prepared else { continue };
            let (number, position) = (command.work, command.position);
            // After the driver refused a command of this run, commands that read its results do not run.
            if let Some(fault) = failed.then(|| works[number].blocked_by(position)).flatten() {
                works[number].fail_command(position, fault);
                continue;
            }
            let outcome: Result<(), CudaError> = match node {
                Node::Kernel(kernel, launch) => {
                    addresses(kernel, &mut bytes[launch.bytes.clone()], &mut pointers);
                    let Launch { function, extent, .. } = *launch;
                    let parameters = pointers.as_mut_ptr();
                    // The first kernel of a submission starts after everything submitted before it.
                    let first = counters.launched + counters.graphs.launched == 0;
                    let early = !first && behind_kernel && self.begins_early(works, command, kernel);
                    // SAFETY: the parameters are in the layout of the kernel.
                    unsafe {
                        match early {
                            true => {
                                self.current.launch_dependent(function, extent, self.cuda_stream, parameters)
                            }
                            false => self.current.launch(function, extent, self.cuda_stream, parameters),
                        }
                    }
                }
                // SAFETY: the ranges lie inside of live memory and do not overlap.
                Node::Copy(to, from, len) => unsafe { self.current.copy(*to, *from, *len, self.cuda_stream) },
                // SAFETY: the range lies inside of live memory.
                Node::Clear(to, len) => unsafe { self.current.clear(*to, *len, self.cuda_stream) },
            };
            match outcome {
                Ok(()) => {
                    counters.launched += 1;
                    behind_kernel = matches!(node, Node::Kernel(..));
                }
                Err(error) if error.is_sticky() => return Err(error),
                Err(error) => {
                    failed = true;
                    fail(&mut works[number], position, error.to_string());
                }
            }
        }
        Ok(())
    }
}
