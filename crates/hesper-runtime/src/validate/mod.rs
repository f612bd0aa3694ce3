//! The validation layer: a device that wraps a device and checks every call.
//!
//! It derives what is alive, what is in use and what is ordered from the calls alone, independently of
//! the hazard tracker, the pool and the reference counts that it checks. A violation names the rule, the
//! command and the buffer or pipeline, and is kept in the [`Report`]. Work that violates a rule is refused.

mod order;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::report::{Report, Rule, Violation};

use crate::command::{Access, Binding, OpRef};
use crate::ranges::RangeSet;
use crate::raw::{
    CompiledPipeline, DeviceError, DeviceInfo, LeaseNote, Progress, RawMemory, RawPipeline, RawStream,
};
use crate::source::PipelineSource;
use crate::state::{Device, Work};
use crate::sync::{Lock, Rank};
use order::{Clock, Order};

/// A lease, as reported by [`LeaseNote`]s.
struct LeaseRecord {
    name: String,
    filled: RangeSet,
}

struct PipelineRecord {
    label: String,
    content: u64,
    alive: bool,
}

/// A use of memory by unfinished work.
struct PendingUse {
    start: usize,
    end: usize,
    access: Access,
    lease: u64,
    stream: u64,
    index: u64,
    command: usize,
    label: String,
}

/// An allocation and its unfinished uses.
struct MemoryRecord {
    len: usize,
    uses: Vec<PendingUse>,
}

#[derive(Default)]
struct Records {
    memory: HashMap<u64, MemoryRecord>,
    leases: HashMap<u64, LeaseRecord>,
    pipelines: HashMap<u64, PipelineRecord>,
    /// For each pipeline, its unfinished commands: (stream, index, label).
    running: HashMap<u64, Vec<(u64, u64, String)>>,
    streams: HashMap<u64, u64>,
    clocks: HashMap<u64, Vec<(u64, Clock)>>,
    submitted: HashMap<u64, u64>,
    unfinished: HashSet<(u64, u64)>,
}

impl Records {
    fn lease(&self, lease: u64) -> String {
        self.leases.get(&lease).map_or_else(|| format!("#{lease}"), |record| record.name.clone())
    }
}

/// A device that checks every call before it forwards it.
pub struct Validator {
    inner: Arc<dyn Device>,
    records: Arc<Lock<Records>>,
    report: Arc<Report>,
}

impl Validator {
    /// Checks the calls to `inner`.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Validator {
            inner,
            records: Arc::new(Lock::new(Rank::Leaf, Records::default())),
            report: Arc::new(Report::default()),
        }
    }

    /// The report, which outlives the device.
    pub fn report(&self) -> Arc<Report> {
        self.report.clone()
    }

    /// Checks a submission.
    fn check(&self, records: &Records, work: &Work, clock: &Clock) -> Vec<Violation> {
        let mut found = Vec::new();
        let order = Order::of(work);
        let mut own: HashMap<u64, Vec<PendingUse>> = HashMap::new();
        let mut filled: HashMap<u64, RangeSet> = HashMap::new();
        for (position, command) in work.commands().enumerate() {
            if let OpRef::Dispatch(dispatch) = command.op {
                match records.pipelines.get(&dispatch.pipeline().0) {
                    Some(record) if record.alive => {}
                    record => {
                        let label = record.map_or("unknown", |record| &record.label);
                        found.push(Violation::new(
                            Rule::Identity,
                            command.label,
                            format!("dispatches pipeline {label}, which has been released"),
                        ));
                    }
                }
            }
            for binding in command.bindings {
                let name = records.lease(binding.lease());
                let Some(memory) = records.memory.get(&binding.memory().id) else {
                    found.push(Violation::new(
                        Rule::Retention,
                        command.label,
                        format!("binds buffer {name}, whose memory has been freed"),
                    ));
                    continue;
                };
                let end = binding.offset().saturating_add(binding.len());
                if end > memory.len {
                    found.push(Violation::new(
                        Rule::Materialised,
                        command.label,
                        format!("binds bytes up to {end} of buffer {name}, which has {}", memory.len),
                    ));
                }
                let known = records.leases.get(&binding.lease());
                let written = filled
                    .entry(binding.lease())
                    .or_insert_with(|| known.map(|lease| lease.filled.clone()).unwrap_or_default());
                if binding.access().reads() && known.is_some() && !written.covers(binding.offset()..end) {
                    found.push(Violation::new(
                        Rule::Materialised,
                        command.label,
                        format!("reads bytes of buffer {name} that nothing has filled"),
                    ));
                }
                if binding.access().writes() {
                    written.add(binding.offset()..end);
                }
                let new = PendingUse::new(work, position, command.label, binding);
                for old in memory.uses.iter().filter(|old| old.conflicts(&new)) {
                    if !clock.includes(old.stream, old.index) {
                        found.push(unordered(records, &new, old));
                    }
                }
                let mine = own.entry(binding.memory().id).or_default();
                for old in mine.iter().filter(|old| old.conflicts(&new)) {
                    if old.command != position && !order.ordered(old.command, position) {
                        found.push(unordered(records, &new, old));
                    }
                }
                mine.push(new);
            }
        }
        found
    }

    /// Checks that no unfinished work uses bytes that the host is about to use.
    fn check_host(
        records: &Records,
        memory: &RawMemory,
        lease: u64,
        call: &str,
        (start, end, access): (usize, usize, Access),
    ) -> Vec<Violation> {
        let label = call.to_string();
        let new = PendingUse { start, end, access, lease, stream: 0, index: 0, command: 0, label };
        let Some(record) = records.memory.get(&memory.id) else {
            let name = records.lease(lease);
            let what = format!("uses buffer {name}, whose memory has been freed");
            return vec![Violation::new(Rule::Retention, call, what)];
        };
        let racing = record.uses.iter().filter(|old| old.conflicts(&new));
        racing.map(|old| unordered(records, &new, old)).collect()
    }

    fn fill(records: &mut Records, work: &Work) {
        for binding in work.commands().flat_map(|command| command.bindings) {
            if let Some(lease) =
                records.leases.get_mut(&binding.lease()).filter(|_| binding.access().writes())
            {
                lease.filled.add(binding.offset()..binding.offset() + binding.len());
            }
        }
    }

    fn begin(records: &mut Records, work: &Work, clock: Clock) {
        Self::fill(records, work);
        for (position, command) in work.commands().enumerate() {
            if let OpRef::Dispatch(dispatch) = command.op {
                let entry = (work.stream(), work.index(), command.label.to_string());
                records.running.entry(dispatch.pipeline().0).or_default().push(entry);
            }
            for binding in command.bindings {
                if let Some(memory) = records.memory.get_mut(&binding.memory().id) {
                    memory.uses.push(PendingUse::new(work, position, command.label, binding));
                }
            }
        }
        records.clocks.entry(work.stream()).or_default().push((work.index(), clock));
        records.submitted.insert(work.raw_stream().0, work.index());
        records.unfinished.insert((work.stream(), work.index()));
    }

    /// Removes the uses of a finished submission.
    fn finish(records: &mut Records, stream: u64, index: u64) {
        if !Self::forget(records, stream, index) {
            return;
        }
        // The newest clock stays: the next submission of the stream starts from it.
        if let Some(clocks) = records.clocks.get_mut(&stream) {
            let newest = clocks.last().map_or(0, |(index, _)| *index);
            clocks.retain(|(at, _)| *at > index || *at == newest);
        }
    }

    /// Removes the uses of a submission. False if it is unknown.
    fn forget(records: &mut Records, stream: u64, index: u64) -> bool {
        if !records.unfinished.remove(&(stream, index)) {
            return false;
        }
        for memory in records.memory.values_mut() {
            memory.uses.retain(|old| (old.stream, old.index) != (stream, index));
        }
        records.running.retain(|_, users| {
            users.retain(|(user, at, _)| (*user, *at) != (stream, index));
            !users.is_empty()
        });
        true
    }

    fn clock(records: &Records, work: &Work) -> Clock {
        let mut clock = Clock::default();
        let of = |stream: u64, index: u64| {
            records.clocks.get(&stream).and_then(|list| list.iter().rev().find(|(at, _)| *at <= index))
        };
        if let Some((index, before)) = of(work.stream(), work.index()) {
            clock.merge(before);
            clock.advance(work.stream(), *index);
        }
        for wait in work.waits() {
            if let Some((_, before)) = of(wait.stream, wait.index) {
                clock.merge(before);
            }
            clock.advance(wait.stream, wait.index);
        }
        clock
    }
}

impl PendingUse {
    fn new(work: &Work, command: usize, label: &str, binding: &Binding) -> Self {
        PendingUse {
            start: binding.offset(),
            end: binding.offset() + binding.len(),
            access: binding.access(),
            lease: binding.lease(),
            stream: work.stream(),
            index: work.index(),
            command,
            label: label.to_string(),
        }
    }

    fn conflicts(&self, other: &PendingUse) -> bool {
        (self.access.writes() || other.access.writes())
            && self.start.max(other.start) < self.end.min(other.end)
    }
}

fn unordered(records: &Records, new: &PendingUse, old: &PendingUse) -> Violation {
    let verb = |access: Access| if access.writes() { "writes" } else { "reads" };
    let (mine, theirs) = (verb(new.access), verb(old.access));
    let place = format!("{} (stream {}, submission {})", old.label, old.stream, old.index);
    if new.lease == old.lease {
        let buffer = records.lease(new.lease);
        let what = format!("{mine} buffer {buffer} while {place} {theirs} it, and nothing orders the two");
        Violation::new(Rule::Order, &new.label, what)
    } else {
        let (buffer, before) = (records.lease(new.lease), records.lease(old.lease));
        let what = format!(
            "{mine} buffer {buffer} in memory that {place} still {theirs} as buffer {before}: reused too early"
        );
        Violation::new(Rule::Reuse, &new.label, what)
    }
}

// SAFETY: every call is forwarded to a device that keeps the guarantees of the trait.
unsafe impl Device for Validator {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        let memory = self.inner.allocate(len)?;
        let record = MemoryRecord { len: memory.len, uses: Vec::new() };
        self.records.lock().memory.insert(memory.id, record);
        Ok(memory)
    }

    unsafe fn free(&self, memory: RawMemory) {
        let record = self.records.lock().memory.remove(&memory.id);
        match record {
            Some(record) => {
                if let Some(old) = record.uses.first() {
                    let name = self.records.lock().lease(old.lease);
                    let what = format!("still uses buffer {name}, and its memory is being freed");
                    self.report.add(Violation::new(Rule::Retention, &old.label, what));
                }
            }
            None => self.report.add(Violation::new(
                Rule::Retention,
                "free",
                format!("memory {:#x} is not alive", memory.id),
            )),
        }
        // SAFETY: upheld by the caller, and checked above.
        unsafe { self.inner.free(memory) }
    }

    unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        // SAFETY: upheld by the caller.
        let memory = unsafe { self.inner.import(host, len) }?;
        self.records.lock().memory.insert(memory.id, MemoryRecord { len: memory.len, uses: Vec::new() });
        Ok(memory)
    }

    fn imports_mappings_only(&self) -> bool {
        self.inner.imports_mappings_only()
    }

    unsafe fn read(&self, memory: &RawMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: upheld by the caller.
        unsafe { self.inner.read(memory, offset, out) }
    }

    unsafe fn write(&self, memory: &RawMemory, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: upheld by the caller.
        unsafe { self.inner.write(memory, offset, data) }
    }

    fn create_stream(&self) -> Result<RawStream, DeviceError> {
        let stream = self.inner.create_stream()?;
        *self.records.lock().streams.entry(stream.0).or_insert(0) += 1;
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        self.records.lock().streams.remove(&stream.0);
        // SAFETY: upheld by the caller.
        unsafe { self.inner.destroy_stream(stream) }
    }

    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError> {
        let compiled = self.inner.compile(source)?;
        let record =
            PipelineRecord { label: source.label.to_string(), content: source.content(), alive: true };
        self.records.lock().pipelines.insert(compiled.raw.0, record);
        Ok(compiled)
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        let found = {
            let mut records = self.records.lock();
            let user = records.running.get(&pipeline.0).and_then(|users| users.first()).cloned();
            let label = match records.pipelines.get_mut(&pipeline.0) {
                Some(record) => {
                    record.alive = false;
                    record.label.clone()
                }
                None => "unknown".into(),
            };
            let found = user.map(|(stream, index, command)| {
                let what = format!(
                    "(stream {stream}, submission {index}) still runs pipeline {label}, and it is being released"
                );
                Violation::new(Rule::Identity, &command, what)
            });
            // Records of released pipelines serve messages; their number is bounded.
            if records.pipelines.len() > 4096 {
                records.pipelines.retain(|_, record| record.alive);
            }
            found
        };
        found.into_iter().for_each(|violation| self.report.add(violation));
        // SAFETY: upheld by the caller, and checked above.
        unsafe { self.inner.release(pipeline) }
    }

    fn check_pipeline(&self, pipeline: RawPipeline, source: &PipelineSource) -> Result<(), DeviceError> {
        let found = {
            let records = self.records.lock();
            records.pipelines.get(&pipeline.0).filter(|record| record.content != source.content()).map(
                |record| {
                    let what = format!(
                        "requested content {:016x} and got pipeline {} of content {:016x}",
                        source.content(),
                        record.label,
                        record.content
                    );
                    Violation::new(Rule::Identity, &source.label, what)
                },
            )
        };
        match found {
            Some(violation) => {
                let error = DeviceError::Failed(violation.to_string());
                self.report.add(violation);
                Err(error)
            }
            None => self.inner.check_pipeline(pipeline, source),
        }
    }

    unsafe fn submit(&self, stream: RawStream, mut work: Work) -> Result<(), (Work, DeviceError)> {
        let found = {
            let mut records = self.records.lock();
            let clock = Self::clock(&records, &work);
            let found = self.check(&records, &work, &clock);
            if found.is_empty() {
                Self::begin(&mut records, &work, clock);
            } else {
                // Refused work poisons what it would have filled; reading that is no second violation.
                Self::fill(&mut records, &work);
            }
            found
        };
        if let Some(first) = found.first() {
            let error = DeviceError::Failed(first.to_string());
            found.into_iter().for_each(|violation| self.report.add(violation));
            return Err((work, error));
        }
        let (id, index, records) = (work.stream(), work.index(), self.records.clone());
        work.on_finish(move |_| Self::finish(&mut records.lock(), id, index));
        // SAFETY: upheld by the caller.
        let submitted = unsafe { self.inner.submit(stream, work) };
        if submitted.is_err() {
            // The work never ran: it uses and orders nothing. Its finish hook will find no record.
            let mut records = self.records.lock();
            Self::forget(&mut records, id, index);
            if let Some(clocks) = records.clocks.get_mut(&id) {
                clocks.retain(|(at, _)| *at != index);
            }
        }
        submitted
    }

    fn wait(&self, stream: RawStream, index: u64) -> Progress {
        self.inner.wait(stream, index)
    }

    fn poll(&self) {
        self.inner.poll();
    }

    fn take_memory_pressure(&self) -> bool {
        self.inner.take_memory_pressure()
    }

    fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.extension()
    }

    fn note_lease(&self, memory: &RawMemory, lease: u64, note: LeaseNote<'_>) {
        let mut records = self.records.lock();
        let mut found = Vec::new();
        match note {
            LeaseNote::Acquired { label, location } => {
                let label = if label.is_empty() { "unnamed" } else { label };
                let name = format!("{label} #{lease} (allocated at {location})");
                records.leases.insert(lease, LeaseRecord { name, filled: RangeSet::default() });
            }
            LeaseNote::Filled => {
                if let Some(record) = records.leases.get_mut(&lease) {
                    record.filled.add(0..memory.len);
                }
            }
            LeaseNote::HostRead { start, end } => {
                let range = (start, end, Access::Read);
                found = Self::check_host(&records, memory, lease, "Buffer::read", range);
            }
            LeaseNote::HostWrite => {
                let range = (0, memory.len, Access::Write);
                found = Self::check_host(&records, memory, lease, "Buffer::write", range);
            }
            LeaseNote::Released => {
                // Records of released leases serve messages; their number is bounded.
                if records.leases.len() > 65536 {
                    let used: Vec<u64> = records
                        .memory
                        .values()
                        .flat_map(|record| &record.uses)
                        .map(|old| old.lease)
                        .collect();
                    records.leases.retain(|id, _| used.contains(id) || *id > lease.saturating_sub(32768));
                }
            }
        }
        drop(records);
        found.into_iter().for_each(|violation| self.report.add(violation));
        self.inner.note_lease(memory, lease, note);
    }
}

impl Drop for Validator {
    fn drop(&mut self) {
        let (memory, pipelines, streams, unfinished) = {
            let records = self.records.lock();
            let pipelines = records.pipelines.values().filter(|record| record.alive).count();
            (records.memory.len(), pipelines, records.streams.len(), records.unfinished.len())
        };
        let leak = |count: usize, what: &str| {
            if count > 0 {
                let text = format!("{count} {what} when the device was dropped");
                self.report.add(Violation::new(Rule::Bounded, "shutdown", text));
            }
        };
        leak(memory, "allocations were never freed");
        leak(pipelines, "pipelines were never released");
        leak(streams, "streams were never closed");
        leak(unfinished, "submissions were never finished");
    }
}
