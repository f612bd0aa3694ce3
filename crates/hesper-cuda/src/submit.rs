//! From a submission to launches: one by one, or as a graph.
//!
//! Commands are checked and made ready first; what is wrong with one fails that one. Native commands
//! run as they come and cut the submission into runs; a long run becomes a [graph](crate::graph).

use std::cell::OnceCell;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, TryLockError};

use hesper_runtime::{Binding, DeviceError, FaultKind, OpRef, RawStream, Scope, Work};

use crate::context::{Context, Current};
use crate::device::{CudaCounters, CudaShared, lock};
use crate::error::{CudaError, Result};
use crate::graph::{Graph, Graphs, Node};
use crate::kernel::{Kernel, Launch, addresses};
use crate::reap::InFlight;
use crate::report::Reports;
use crate::sys::{CUdeviceptr, CUstream};
use crate::topology::{NodeKind, Topology};

/// Longer runs become several graphs.
const LONGEST_RUN: usize = 512;
/// Copies up to this size may be nodes of a graph; larger ones pass the driver's limit of a pitch.
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

impl CudaShared {
    /// # Safety
    /// As for [`Device::submit`](hesper_runtime::Device::submit).
    pub(crate) unsafe fn submit(
        self: &Arc<Self>,
        stream: RawStream,
        mut work: Work,
    ) -> Result<(), (Work, DeviceError)> {
        // SAFETY: the caller's promise.
        match unsafe { self.enqueue(stream, &mut work) } {
            Ok((event, waits, graphs, reports)) => {
                let mut state = lock(&self.state);
                if let Err(error) = self.check_lost() {
                    return Err((work, error));
                }
                let (index, awaited) = (work.index(), work.is_awaited());
                state.flights.push(stream.0, index, event, waits, InFlight::new(work, graphs, reports));
                // Who waits finishes it himself.
                if state.parked && !awaited {
                    self.wake.notify_one();
                }
                Ok(())
            }
            Err(error) => Err((work, error)),
        }
    }

    /// # Safety
    /// As for `submit`. An error says that nothing is enqueued, or that the device is lost.
    #[allow(clippy::type_complexity, reason = "the parts of a flight, used once")]
    unsafe fn enqueue(
        self: &Arc<Self>,
        stream: RawStream,
        work: &mut Work,
    ) -> Result<(Arc<crate::event::Event>, Vec<(u64, u64)>, Vec<Arc<Graph>>, Reports), DeviceError> {
        self.check_lost()?;
        let lane = lock(&self.lanes).get(&stream.0).cloned();
        let lane = lane.ok_or_else(|| DeviceError::Failed(format!("there is no stream {}", stream.0)))?;
        let mut bench = lock(&lane.bench);
        let bench = &mut *bench;
        let current = self.context.enter().map_err(|error| self.refuse(error))?;
        let event = self.events.take(&current).map_err(|error| self.refuse(error))?;
        let waits: Vec<(u64, u64)> = work.waits().iter().map(|wait| (wait.raw.0, wait.index)).collect();
        for (stream, index) in &waits {
            let other = lock(&self.state).flights.event(*stream, *index);
            if let Some(other) = other {
                // SAFETY: event and stream are this context's and alive.
                let waited = unsafe { current.stream_wait(lane.raw, other.raw()) };
                waited.map_err(|error| self.refuse(error))?;
            }
        }

        let mut counters = CudaCounters { submitted: 1, ..CudaCounters::default() };
        let mut graphs = Vec::new();
        let mut reports = Reports::new(&self.reports);
        let written = OnceCell::new();
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
            let run = Run { shared: self, current: &current, lane: lane.raw, at, written: &written };
            // SAFETY: the caller's promise.
            outcome = unsafe { run.launch(work, &steps, bench, &mut graphs, &mut counters) };
        }
        // SAFETY: event and stream are this context's and alive.
        let outcome = outcome.and_then(|()| unsafe { current.record(event.raw(), lane.raw) });
        lock(&self.counters).add(&counters);
        // From here on something may be enqueued that nothing marks: then the context cannot be trusted.
        outcome.map_err(|error| self.lose(&error))?;
        Ok((event, waits, graphs, reports))
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
    /// The memory that the submission writes to, sorted; found when it is first asked for.
    written: &'a OnceCell<Vec<u64>>,
}

/// The memory that a submission writes to, sorted.
fn written(work: &Work) -> Vec<u64> {
    let bindings = (0..work.len()).flat_map(|position| work.command(position).bindings);
    let mut written: Vec<u64> =
        bindings.filter(|binding| binding.access().writes()).map(|binding| binding.memory().id).collect();
    written.sort_unstable();
    written.dedup();
    written
}

impl Run<'_> {
    /// Launches the run. An error means that the context is lost.
    ///
    /// # Safety
    /// All memory and kernels that the steps name are alive until the work is finished.
    unsafe fn launch(
        &self,
        work: &mut Work,
        steps: &[Step<'_>],
        bench: &mut Bench,
        graphs: &mut Vec<Arc<Graph>>,
        counters: &mut CudaCounters,
    ) -> Result<()> {
        let nodes = steps.iter().filter(|step| matches!(step, Step::Node(_))).count();
        let fits = !steps
            .iter()
            .any(|step| matches!(step, Step::Node(Node::Copy(_, _, len)) if *len > LARGEST_COPY));
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
            Node::Copy(..) => 0,
        }));
        let Bench { graphs, bytes } = bench;
        let context = &self.shared.context;
        graphs.launch(context, self.current, self.lane, &topology, &nodes, bytes, &mut counters.graphs)
    }

    /// Whether a command may begin while those before it in the submission still run: its kernel waits by itself, and none
    /// of them writes what it reads before it waits.
    fn begins_early(&self, work: &Work, offset: usize, kernel: &Kernel) -> bool {
        let bindings = work.command(self.at.start + offset).bindings;
        let unwritten = |number: &usize| {
            let written = self.written.get_or_init(|| written(work));
            let memory = bindings.get(*number).map(|binding| binding.memory().id);
            memory.is_some_and(|memory| written.binary_search(&memory).is_err())
        };
        kernel.ahead.as_ref().is_some_and(|ahead| ahead.iter().all(unwritten))
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
        for (offset, step) in steps.iter().enumerate() {
            let outcome: Result<(), CudaError> = match step {
                Step::Nothing => continue,
                Step::Node(Node::Kernel(kernel, launch)) => {
                    addresses(kernel, &mut bytes[launch.bytes.clone()], &mut pointers);
                    let Launch { function, extent, .. } = *launch;
                    let parameters = pointers.as_mut_ptr();
                    // The first kernel of a submission begins when all that was submitted before it is over.
                    let first = counters.launched + counters.graphs.launched == 0;
                    let early = !first && self.begins_early(work, offset, kernel);
                    // SAFETY: the parameters are laid out as the kernel wants them.
                    unsafe {
                        match early {
                            true => self.current.launch_early(function, extent, self.lane, parameters),
                            false => self.current.launch(function, extent, self.lane, parameters),
                        }
                    }
                }
                // SAFETY: the ranges lie inside of live memory and do not overlap.
                Step::Node(Node::Copy(to, from, len)) => unsafe {
                    self.current.copy(*to, *from, *len, self.lane)
                },
            };
            match outcome {
                Ok(()) => counters.launched += 1,
                Err(error) if error.is_sticky() => return Err(error),
                Err(error) => fail(work, self.at.start + offset, error.to_string()),
            }
        }
        Ok(())
    }
}
