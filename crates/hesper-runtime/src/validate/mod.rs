//! The validation layer: a device around a device that believes nothing.
//!
//! It keeps its own books of what is alive, who uses what, and what is ordered before what, from the
//! calls it sees and from nothing else: not from the hazard tracker, the pool or the reference
//! counts, which it is there to check. A violation names the rule, the command and the buffer
//! or pipeline, is kept in the [`Report`], and where work is at fault, the work is refused.

mod order;
mod report;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::ptr::NonNull;
use std::sync::Arc;

pub use report::{Report, Rule, Violation};

use crate::device::{
    CompiledPipeline, Device, DeviceError, DeviceInfo, LeaseNote, Progress, RawMemory, RawPipeline, RawStream,
};
use crate::pipeline::PipelineSource;
use crate::ranges::RangeSet;
use crate::sync::{Lock, Rank};
use crate::work::{Access, Binding, OpRef, Work};
use order::{Clock, Order};

/// A buffer's life, as the notes tell it.
struct LeaseBook {
    name: String,
    filled: RangeSet,
}

struct PipelineBook {
    label: String,
    content: u64,
    alive: bool,
}

/// A use of memory by work that is not finished.
struct Pending {
    start: usize,
    end: usize,
    access: Access,
    lease: u64,
    stream: u64,
    index: u64,
    command: usize,
    label: String,
}

/// What is known of one allocation.
struct MemoryBook {
    len: usize,
    uses: Vec<Pending>,
}

#[derive(Default)]
struct Books {
    memory: HashMap<u64, MemoryBook>,
    leases: HashMap<u64, LeaseBook>,
    pipelines: HashMap<u64, PipelineBook>,
    /// Pipelines that unfinished work names: (stream, index, label of the command).
    running: HashMap<u64, Vec<(u64, u64, String)>>,
    streams: HashMap<u64, u64>,
    clocks: HashMap<u64, Vec<(u64, Clock)>>,
    submitted: HashMap<u64, u64>,
    unfinished: HashSet<(u64, u64)>,
}

impl Books {
    fn lease(&self, lease: u64) -> String {
        self.leases.get(&lease).map_or_else(|| format!("#{lease}"), |book| book.name.clone())
    }
}

/// A device that checks every call before it hands it on.
pub struct Validator {
    inner: Arc<dyn Device>,
    books: Arc<Lock<Books>>,
    report: Arc<Report>,
}

impl Validator {
    /// Checks the calls to `inner`.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Validator {
            inner,
            books: Arc::new(Lock::new(Rank::Leaf, Books::default())),
            report: Arc::new(Report::default()),
        }
    }

    /// Where violations are kept; outlives the device.
    pub fn report(&self) -> Arc<Report> {
        self.report.clone()
    }

    /// Checks a submission against the books.
    fn check(&self, books: &Books, work: &Work, clock: &Clock) -> Vec<Violation> {
        let mut found = Vec::new();
        let order = Order::of(work);
        let mut own: HashMap<u64, Vec<Pending>> = HashMap::new();
        let mut filled: HashMap<u64, RangeSet> = HashMap::new();
        for (position, command) in work.commands().enumerate() {
            if let OpRef::Dispatch(dispatch) = command.op {
                match books.pipelines.get(&dispatch.pipeline().0) {
                    Some(book) if book.alive => {}
                    book => {
                        let label = book.map_or("unknown", |book| &book.label);
                        found.push(Violation::new(
                            Rule::Identity,
                            command.label,
                            format!("dispatches pipeline {label}, which has been released"),
                        ));
                    }
                }
            }
            for binding in command.bindings {
                let name = books.lease(binding.lease());
                let Some(memory) = books.memory.get(&binding.memory().id) else {
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
                let known = books.leases.get(&binding.lease());
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
                let new = Pending::new(work, position, command.label, binding);
                for old in memory.uses.iter().filter(|old| old.conflicts(&new)) {
                    if !clock.includes(old.stream, old.index) {
                        found.push(unordered(books, &new, old));
                    }
                }
                let mine = own.entry(binding.memory().id).or_default();
                for old in mine.iter().filter(|old| old.conflicts(&new)) {
                    if old.command != position && !order.ordered(old.command, position) {
                        found.push(unordered(books, &new, old));
                    }
                }
                mine.push(new);
            }
        }
        found
    }

    /// Checks that no unfinished work uses bytes that the host is about to use.
    fn check_host(
        books: &Books,
        memory: &RawMemory,
        lease: u64,
        call: &str,
        (start, end, access): (usize, usize, Access),
    ) -> Vec<Violation> {
        let label = call.to_string();
        let new = Pending { start, end, access, lease, stream: 0, index: 0, command: 0, label };
        let Some(book) = books.memory.get(&memory.id) else {
            let name = books.lease(lease);
            let what = format!("uses buffer {name}, whose memory has been freed");
            return vec![Violation::new(Rule::Retention, call, what)];
        };
        let racing = book.uses.iter().filter(|old| old.conflicts(&new));
        racing.map(|old| unordered(books, &new, old)).collect()
    }

    fn fill(books: &mut Books, work: &Work) {
        for binding in work.commands().flat_map(|command| command.bindings) {
            if let Some(lease) = books.leases.get_mut(&binding.lease()).filter(|_| binding.access().writes())
            {
                lease.filled.add(binding.offset()..binding.offset() + binding.len());
            }
        }
    }

    fn enter(books: &mut Books, work: &Work, clock: Clock) {
        Self::fill(books, work);
        for (position, command) in work.commands().enumerate() {
            if let OpRef::Dispatch(dispatch) = command.op {
                let entry = (work.stream(), work.index(), command.label.to_string());
                books.running.entry(dispatch.pipeline().0).or_default().push(entry);
            }
            for binding in command.bindings {
                if let Some(memory) = books.memory.get_mut(&binding.memory().id) {
                    memory.uses.push(Pending::new(work, position, command.label, binding));
                }
            }
        }
        books.clocks.entry(work.stream()).or_default().push((work.index(), clock));
        books.submitted.insert(work.raw_stream().0, work.index());
        books.unfinished.insert((work.stream(), work.index()));
    }

    /// Forgets a submission that is finished: it uses nothing any more.
    fn leave(books: &mut Books, stream: u64, index: u64) {
        if !Self::forget(books, stream, index) {
            return;
        }
        // The newest clock stays: the stream's next submission starts from it.
        if let Some(clocks) = books.clocks.get_mut(&stream) {
            let newest = clocks.last().map_or(0, |(index, _)| *index);
            clocks.retain(|(at, _)| *at > index || *at == newest);
        }
    }

    /// Forgets what a submission uses, and whether it was known.
    fn forget(books: &mut Books, stream: u64, index: u64) -> bool {
        if !books.unfinished.remove(&(stream, index)) {
            return false;
        }
        for memory in books.memory.values_mut() {
            memory.uses.retain(|old| (old.stream, old.index) != (stream, index));
        }
        books.running.retain(|_, users| {
            users.retain(|(user, at, _)| (*user, *at) != (stream, index));
            !users.is_empty()
        });
        true
    }

    fn clock(books: &Books, work: &Work) -> Clock {
        let mut clock = Clock::default();
        let of = |stream: u64, index: u64| {
            books.clocks.get(&stream).and_then(|list| list.iter().rev().find(|(at, _)| *at <= index))
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

impl Pending {
    fn new(work: &Work, command: usize, label: &str, binding: &Binding) -> Self {
        Pending {
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

    fn conflicts(&self, other: &Pending) -> bool {
        (self.access.writes() || other.access.writes())
            && self.start.max(other.start) < self.end.min(other.end)
    }
}

fn unordered(books: &Books, new: &Pending, old: &Pending) -> Violation {
    let verb = |access: Access| if access.writes() { "writes" } else { "reads" };
    let (mine, theirs) = (verb(new.access), verb(old.access));
    let place = format!("{} (stream {}, submission {})", old.label, old.stream, old.index);
    if new.lease == old.lease {
        let buffer = books.lease(new.lease);
        let what = format!("{mine} buffer {buffer} while {place} {theirs} it, and nothing orders the two");
        Violation::new(Rule::Order, &new.label, what)
    } else {
        let (buffer, before) = (books.lease(new.lease), books.lease(old.lease));
        let what = format!(
            "{mine} buffer {buffer} in memory that {place} still {theirs} as buffer {before}: reused too early"
        );
        Violation::new(Rule::Reuse, &new.label, what)
    }
}

// SAFETY: every call is handed on to a device that keeps the trait's promises.
unsafe impl Device for Validator {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        let memory = self.inner.allocate(len)?;
        let book = MemoryBook { len: memory.len, uses: Vec::new() };
        self.books.lock().memory.insert(memory.id, book);
        Ok(memory)
    }

    unsafe fn free(&self, memory: RawMemory) {
        let book = self.books.lock().memory.remove(&memory.id);
        match book {
            Some(book) => {
                if let Some(old) = book.uses.first() {
                    let name = self.books.lock().lease(old.lease);
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
        // SAFETY: the caller's promise, which was just checked.
        unsafe { self.inner.free(memory) }
    }

    unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        // SAFETY: the caller's promise.
        let memory = unsafe { self.inner.import(host, len) }?;
        self.books.lock().memory.insert(memory.id, MemoryBook { len: memory.len, uses: Vec::new() });
        Ok(memory)
    }

    unsafe fn read(&self, memory: &RawMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.read(memory, offset, out) }
    }

    unsafe fn write(&self, memory: &RawMemory, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.write(memory, offset, data) }
    }

    fn create_stream(&self) -> Result<RawStream, DeviceError> {
        let stream = self.inner.create_stream()?;
        *self.books.lock().streams.entry(stream.0).or_insert(0) += 1;
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        self.books.lock().streams.remove(&stream.0);
        // SAFETY: the caller's promise.
        unsafe { self.inner.destroy_stream(stream) }
    }

    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError> {
        let compiled = self.inner.compile(source)?;
        let book = PipelineBook { label: source.label.to_string(), content: source.content(), alive: true };
        self.books.lock().pipelines.insert(compiled.raw.0, book);
        Ok(compiled)
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        let found = {
            let mut books = self.books.lock();
            let user = books.running.get(&pipeline.0).and_then(|users| users.first()).cloned();
            let label = match books.pipelines.get_mut(&pipeline.0) {
                Some(book) => {
                    book.alive = false;
                    book.label.clone()
                }
                None => "unknown".into(),
            };
            let found = user.map(|(stream, index, command)| {
                let what = format!(
                    "(stream {stream}, submission {index}) still runs pipeline {label}, and it is being released"
                );
                Violation::new(Rule::Identity, &command, what)
            });
            // Books of the dead are kept for messages; a million of them would be a leak.
            if books.pipelines.len() > 4096 {
                books.pipelines.retain(|_, book| book.alive);
            }
            found
        };
        found.into_iter().for_each(|violation| self.report.add(violation));
        // SAFETY: the caller's promise, which was just checked.
        unsafe { self.inner.release(pipeline) }
    }

    fn check_pipeline(&self, pipeline: RawPipeline, source: &PipelineSource) -> Result<(), DeviceError> {
        let found = {
            let books = self.books.lock();
            books.pipelines.get(&pipeline.0).filter(|book| book.content != source.content()).map(|book| {
                let what = format!(
                    "asked for content {:016x} and was given pipeline {} of content {:016x}",
                    source.content(),
                    book.label,
                    book.content
                );
                Violation::new(Rule::Identity, &source.label, what)
            })
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
            let mut books = self.books.lock();
            let clock = Self::clock(&books, &work);
            let found = self.check(&books, &work, &clock);
            if found.is_empty() {
                Self::enter(&mut books, &work, clock);
            } else {
                // What refused work would have filled is spoilt; to read it is no second violation.
                Self::fill(&mut books, &work);
            }
            found
        };
        if let Some(first) = found.first() {
            let error = DeviceError::Failed(first.to_string());
            found.into_iter().for_each(|violation| self.report.add(violation));
            return Err((work, error));
        }
        let (id, index, books) = (work.stream(), work.index(), self.books.clone());
        work.on_finish(move |_| Self::leave(&mut books.lock(), id, index));
        // SAFETY: the caller's promise.
        let submitted = unsafe { self.inner.submit(stream, work) };
        if submitted.is_err() {
            // It never ran: it uses nothing, and orders nothing. Its finish comes later and finds it gone.
            let mut books = self.books.lock();
            Self::forget(&mut books, id, index);
            if let Some(clocks) = books.clocks.get_mut(&id) {
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

    fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.extension()
    }

    fn note_lease(&self, memory: &RawMemory, lease: u64, note: LeaseNote<'_>) {
        let mut books = self.books.lock();
        let mut found = Vec::new();
        match note {
            LeaseNote::Taken { label, place } => {
                let label = if label.is_empty() { "unnamed" } else { label };
                let name = format!("{label} #{lease} (allocated at {place})");
                books.leases.insert(lease, LeaseBook { name, filled: RangeSet::default() });
            }
            LeaseNote::Filled => {
                if let Some(book) = books.leases.get_mut(&lease) {
                    book.filled.add(0..memory.len);
                }
            }
            LeaseNote::HostRead { start, end } => {
                let range = (start, end, Access::Read);
                found = Self::check_host(&books, memory, lease, "Buffer::read", range);
            }
            LeaseNote::HostWrite => {
                let range = (0, memory.len, Access::Write);
                found = Self::check_host(&books, memory, lease, "Buffer::write", range);
            }
            LeaseNote::Returned => {
                // Kept while work names it, for messages.
                if books.leases.len() > 65536 {
                    let used: Vec<u64> =
                        books.memory.values().flat_map(|book| &book.uses).map(|old| old.lease).collect();
                    books.leases.retain(|id, _| used.contains(id) || *id > lease.saturating_sub(32768));
                }
            }
        }
        drop(books);
        found.into_iter().for_each(|violation| self.report.add(violation));
        self.inner.note_lease(memory, lease, note);
    }
}

impl Drop for Validator {
    fn drop(&mut self) {
        let (memory, pipelines, streams, unfinished) = {
            let books = self.books.lock();
            let pipelines = books.pipelines.values().filter(|book| book.alive).count();
            (books.memory.len(), pipelines, books.streams.len(), books.unfinished.len())
        };
        let leak = |count: usize, what: &str| {
            if count > 0 {
                let text = format!("{count} {what} at the device's end");
                self.report.add(Violation::new(Rule::Bounded, "shutdown", text));
            }
        };
        leak(memory, "allocations were never freed");
        leak(pipelines, "pipelines were never released");
        leak(streams, "streams were never closed");
        leak(unfinished, "submissions were never finished");
    }
}
