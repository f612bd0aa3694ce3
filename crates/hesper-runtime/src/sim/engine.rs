//! The simulator's scheduler: the possible next steps, and the choice among them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ptr::NonNull;

use super::memory::Memory;
use super::{Call, Executor, Failure, Rng, violation};
use crate::command::OpRef;
use crate::native::View;
use crate::raw::{CompiledPipeline, DeviceError, DeviceInfo, RawMemory, RawPipeline, RawStream};
use crate::report::{Rule, Violation};
use crate::source::PipelineSource;
use crate::state::Work;

/// The message of a submission that is refused at random.
pub(super) const REFUSAL: &str = "refused by the simulator";

/// The form of order within a submission that the simulator honours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OrderForm {
    Barriers,
    Edges,
}

struct Queued {
    /// `None` while one of its commands runs, and while it is finished.
    work: Option<Work>,
    /// For each command, the commands before it.
    after: Vec<Vec<usize>>,
    ran: Vec<bool>,
}

impl Queued {
    fn new(work: Work, form: OrderForm) -> Self {
        let mut after = Vec::with_capacity(work.len());
        let mut barrier = 0;
        for (position, command) in work.commands().enumerate() {
            after.push(match form {
                OrderForm::Edges => command.after.iter().map(|edge| *edge as usize).collect(),
                OrderForm::Barriers => {
                    if command.barrier {
                        barrier = position;
                    }
                    (0..barrier).collect()
                }
            });
        }
        Queued { ran: vec![false; after.len()], after, work: Some(work) }
    }

    fn runnable(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ran.len())
            .filter(|&at| !self.ran[at] && self.after[at].iter().all(|before| self.ran[*before]))
    }
}

struct SimStream {
    queue: VecDeque<Queued>,
    finished: u64,
}

struct SimPipeline {
    source: PipelineSource,
    alive: bool,
}

/// The next step of the device. It owns the work until the step is done.
pub(super) enum Step {
    Run { work: Work, position: usize, stream: u64 },
    Finish { work: Work, error: Option<DeviceError>, stream: u64 },
}

pub(super) enum Transfer<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
}

/// A command that is ready to run.
pub(super) struct PreparedCommand {
    source: Option<PipelineSource>,
    executor: Executor,
    addresses: Vec<Option<NonNull<u8>>>,
    failure: Option<DeviceError>,
}

/// The state of the simulated device.
pub(super) struct Engine {
    rng: Rng,
    form: OrderForm,
    pub(super) memory: Memory,
    streams: BTreeMap<u64, SimStream>,
    pipelines: HashMap<u64, SimPipeline>,
    next: u64,
    executor: Executor,
    failure: Option<Failure>,
    /// Refuses one submission in this many.
    refuse: Option<usize>,
    counts: HashMap<Call, u64>,
    pub(super) violations: Vec<Violation>,
    /// A hash of every choice.
    pub(super) fingerprint: u64,
}

impl Engine {
    pub(super) fn new(
        seed: u64,
        info: DeviceInfo,
        executor: Executor,
        failure: Option<Failure>,
        refuse: Option<usize>,
    ) -> Self {
        let mut rng = Rng::new(seed);
        Engine {
            form: if rng.one_in(2) { OrderForm::Barriers } else { OrderForm::Edges },
            rng,
            memory: Memory::new(info.total_memory, info.unified_memory),
            streams: BTreeMap::new(),
            pipelines: HashMap::new(),
            next: 1,
            executor,
            failure,
            refuse,
            counts: HashMap::new(),
            violations: Vec::new(),
            fingerprint: seed,
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.counts.values().sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty()
            && self.streams.is_empty()
            && self.pipelines.values().all(|pipeline| !pipeline.alive)
    }

    /// Counts a call, and fails it if it is the one to fail.
    fn call(&mut self, call: Call) -> Result<(), DeviceError> {
        let total = self.calls();
        let count = self.counts.entry(call).or_insert(0);
        let nth = std::mem::replace(count, *count + 1);
        match self.failure {
            Some(Failure::Nth(kind, n)) if kind == call && n == nth => {
                Err(DeviceError::Failed(format!("injected failure of {call:?} {n}")))
            }
            Some(Failure::Any(n)) if n == total => match call {
                Call::Allocate => Err(DeviceError::OutOfMemory(format!("injected at call {n}"))),
                _ => Err(DeviceError::Failed(format!("injected failure of {call:?} at call {n}"))),
            },
            Some(Failure::Lose(n)) if n <= total => {
                Err(DeviceError::Lost(format!("injected loss at call {n}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn allocate(&mut self, len: usize) -> Result<RawMemory, DeviceError> {
        self.call(Call::Allocate)?;
        self.memory.allocate(len)
    }

    pub(super) fn free(&mut self, memory: RawMemory) {
        self.memory.free(memory);
    }

    pub(super) fn transfer(
        &mut self,
        memory: &RawMemory,
        offset: usize,
        transfer: Transfer<'_>,
    ) -> Result<(), DeviceError> {
        self.call(Call::Transfer)?;
        let Some(address) = self.memory.address(memory.id) else {
            return Err(DeviceError::Failed("unknown memory".into()));
        };
        // SAFETY: by the caller's contract the range lies inside of the memory, which stays mapped.
        unsafe {
            let place = address.as_ptr().add(offset);
            match transfer {
                Transfer::Read(out) => place.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()),
                Transfer::Write(data) => place.copy_from_nonoverlapping(data.as_ptr(), data.len()),
            }
        }
        Ok(())
    }

    pub(super) fn create_stream(&mut self) -> Result<RawStream, DeviceError> {
        self.call(Call::CreateStream)?;
        let id = self.new_id();
        self.streams.insert(id, SimStream { queue: VecDeque::new(), finished: 0 });
        Ok(RawStream(id))
    }

    pub(super) fn destroy_stream(&mut self, stream: RawStream) {
        self.streams.remove(&stream.0);
    }

    pub(super) fn compile(&mut self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError> {
        self.call(Call::Compile)?;
        let id = self.new_id();
        self.pipelines.insert(id, SimPipeline { source: source.clone(), alive: true });
        Ok(CompiledPipeline { raw: RawPipeline(id), bytes: source.text.as_str().len() })
    }

    pub(super) fn release(&mut self, pipeline: RawPipeline) {
        if let Some(pipeline) = self.pipelines.get_mut(&pipeline.0) {
            pipeline.alive = false;
        }
    }

    pub(super) fn submit(&mut self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)> {
        if let Err(error) = self.call(Call::Submit) {
            return Err((work, error));
        }
        if self.refuse.is_some_and(|refuse| self.rng.one_in(refuse)) {
            return Err((work, DeviceError::Failed(REFUSAL.into())));
        }
        let form = self.form;
        match self.streams.get_mut(&stream.0) {
            Some(stream) => {
                stream.queue.push_back(Queued::new(work, form));
                Ok(())
            }
            None => Err((work, DeviceError::Failed("no such stream".into()))),
        }
    }

    pub(super) fn is_done(&self, stream: RawStream, index: u64) -> bool {
        self.streams.get(&stream.0).is_none_or(|stream| stream.finished >= index)
    }

    /// Chooses a possible step.
    pub(super) fn choose(&mut self) -> Option<Step> {
        let mut options: Vec<(u64, Option<usize>)> = Vec::new();
        for (&id, stream) in &self.streams {
            let Some(Queued { work: Some(work), ran, .. }) = stream.queue.front() else { continue };
            let released = work.waits().iter().all(|wait| self.is_done(wait.raw, wait.index));
            if !released {
                continue;
            }
            if ran.iter().all(|ran| *ran) {
                options.push((id, None));
            } else {
                options.extend(stream.queue.front()?.runnable().map(|at| (id, Some(at))));
            }
        }
        if options.is_empty() {
            return None;
        }
        let (id, position) = options[self.rng.below(options.len())];
        let choice = id << 16 ^ position.map_or(0xffff, |at| at as u64) ^ (options.len() as u64) << 48;
        self.fingerprint = (self.fingerprint.rotate_left(7) ^ choice).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let completion = match position {
            None => Some(self.call(Call::Complete)),
            Some(_) => None,
        };
        let stream = self.streams.get_mut(&id)?;
        match (position, completion) {
            (Some(position), _) => {
                let work = stream.queue.front_mut()?.work.take()?;
                Some(Step::Run { work, position, stream: id })
            }
            (None, completion) => {
                // The head stays in the queue, without its work, until it is finished.
                let work = stream.queue.front_mut()?.work.take()?;
                Some(Step::Finish { work, error: completion.and_then(Result::err), stream: id })
            }
        }
    }

    /// Removes the finished head of a stream.
    pub(super) fn finished(&mut self, stream: u64, index: u64) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.pop_front();
            stream.finished = index;
        }
    }

    /// Whether a thread performs a step.
    pub(super) fn is_busy(&self) -> bool {
        self.streams.values().any(|stream| stream.queue.front().is_some_and(|head| head.work.is_none()))
    }

    /// Prepares a command to run, and checks that what it names is alive.
    pub(super) fn prepare(&mut self, work: &Work, position: usize) -> PreparedCommand {
        let command = work.command(position);
        let failure = self.call(Call::Run).err();
        for binding in command.bindings {
            if !self.memory.is_alive(binding.memory().id) {
                let what = format!("uses memory {} after it was freed", binding.memory().id);
                self.violations.push(violation(Rule::Retention, command.label, what));
            }
        }
        let mut source = None;
        if let OpRef::Dispatch(dispatch) = command.op
            && let Some(pipeline) = self.pipelines.get(&dispatch.pipeline().0)
        {
            if !pipeline.alive {
                let what = format!("runs pipeline {} after it was released", pipeline.source.label);
                self.violations.push(violation(Rule::Identity, command.label, what));
            }
            source = Some(pipeline.source.clone());
        }
        let addresses =
            command.bindings.iter().map(|binding| self.memory.address(binding.memory().id)).collect();
        PreparedCommand { source, executor: self.executor.clone(), addresses, failure }
    }

    pub(super) fn put_back(&mut self, stream: u64, work: Work, position: usize) {
        if let Some(queued) = self.streams.get_mut(&stream).and_then(|stream| stream.queue.front_mut()) {
            queued.ran[position] = true;
            queued.work = Some(work);
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Runs one command, outside of the engine's lock.
pub(super) fn run(work: &mut Work, position: usize, kernel: PreparedCommand) {
    if let Some(error) = kernel.failure {
        if matches!(error, DeviceError::Lost(_)) {
            return work.poison(&error);
        }
        let label = work.command(position).label.to_string();
        let fault = work.fault_at(&label, crate::FaultKind::Failed, crate::Scope::Command, error.to_string());
        return work.fail_command(position, fault);
    }
    let hidden = work.command(position).bindings.iter().any(|binding| binding.memory().host.is_none());
    if hidden && matches!(work.command(position).op, OpRef::Copy) {
        if let [Some(from), Some(to)] = kernel.addresses[..] {
            let [source, target] = work.command(position).bindings else { return };
            // SAFETY: both ranges lie inside of mapped memory and do not overlap (checked when the
            // command was encoded).
            unsafe {
                let source = from.as_ptr().add(source.offset());
                let target_at = to.as_ptr().add(target.offset());
                source.copy_to_nonoverlapping(target_at, target.len());
            }
        }
        return;
    }
    if hidden && matches!(work.command(position).op, OpRef::Clear) {
        if let ([Some(at)], [range]) = (&kernel.addresses[..], work.command(position).bindings) {
            // SAFETY: the range lies inside of mapped memory (checked when the command was encoded).
            unsafe { at.as_ptr().add(range.offset()).write_bytes(0, range.len()) };
        }
        return;
    }
    // SAFETY: the engine chose a command whose order allows it, owns the work, and runs one command
    // at a time; freed memory stays mapped.
    unsafe {
        work.run_on_host(position, &|dispatch, bindings| {
            let Some(source) = &kernel.source else { return Err("no such pipeline".into()) };
            let mut views: Vec<View<'_>> = bindings
                .iter()
                .zip(&kernel.addresses)
                // SAFETY: as above; a piece is as long as what was bound.
                .map(|(binding, address)| View::at(binding, *address))
                .collect();
            (kernel.executor)(source, dispatch, &mut views)
        });
    }
}
