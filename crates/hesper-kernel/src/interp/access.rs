//! Loads, stores and atomics, and their checks.

use super::copies::Copies;
use super::finding::{AccessKind, FindingKind, RacePartner};
use super::machine::Machine;
use super::mask::Mask;
use super::memory::{ByteRange, Pointer};
use super::shadow::{Access, Clock, History, Written};
use crate::ir::*;
use crate::launch::Bindings;
use crate::math::scalar;

/// The state of checked mode.
pub(super) struct Checks {
    pub clock: Clock,
    /// Asynchronous copies in flight.
    pub copies: Copies,
    /// When each threadgroup started.
    group_starts: Vec<u64>,
    /// Per object: which threads accessed it. Absent for memory that cannot race.
    history: Vec<Option<History>>,
    /// Per object: written bytes, for each thread where memory is private. Absent for
    /// initialised arguments.
    written: Vec<Vec<Written>>,
    /// The first object whose shadow state is cleared for each threadgroup.
    first_private: usize,
}

impl Checks {
    pub fn new(kernel: &Kernel, bindings: &Bindings<'_>, max_threads: usize) -> Checks {
        let mut history = vec![None];
        let mut written = vec![Vec::new()];
        for (param, arg) in kernel.params.iter().zip(bindings.args()) {
            let writes = matches!(param.kind,
                ParamKind::Buffer { access, .. } if access.writes());
            history.push(writes.then(History::default));
            let fresh = (!arg.is_initialised()).then(|| Written::none(arg.len()));
            written.push(fresh.into_iter().collect());
        }
        let first_private = history.len();
        for v in &kernel.threadgroup_vars {
            history.push(Some(History::default()));
            written.push(vec![Written::none(v.size)]);
        }
        for v in &kernel.thread_vars {
            history.push(None);
            written.push(vec![Written::none(v.size); max_threads]);
        }
        for _ in &kernel.const_vars {
            history.push(None);
            written.push(Vec::new());
        }
        let copies = Copies::default();
        Checks { clock: Clock::default(), copies, group_starts: Vec::new(), history, written, first_private }
    }

    pub fn start_group(&mut self, simdgroups: usize) {
        self.clock.start_group(simdgroups);
        self.copies.start_group(simdgroups);
        self.group_starts.push(self.clock.group_start);
        for h in self.history[self.first_private..].iter_mut().flatten() {
            h.clear();
        }
        for w in self.written[self.first_private..].iter_mut().flatten() {
            w.clear();
        }
    }

    /// The number of the threadgroup running at a time.
    fn group_at(&self, time: u64) -> u64 {
        (self.group_starts.partition_point(|&s| s <= time) as u64).saturating_sub(1)
    }

    /// The bytes of an object as written by `thread`, if they are tracked.
    fn written(&mut self, object: usize, thread: usize) -> Option<&mut Written> {
        let all = &mut self.written[object];
        let i = if all.len() > 1 { thread } else { 0 };
        all.get_mut(i)
    }
}

/// The access that a memory instruction requests.
#[derive(Clone, Copy)]
struct Request {
    kind: AccessKind,
    size: u64,
    align: u32,
    loc: Loc,
}

impl Machine<'_> {
    /// Checks one access and gives its range, or `None` if it is out of bounds.
    fn access(&mut self, ask: Request, ptr: ValueId, thread: usize) -> Option<ByteRange> {
        let p = Pointer::from_words(self.at(ptr, thread));
        let range = self.memory.range(p, ask.size);
        if self.checks.is_some() {
            self.check_access(ask, p, range, self.kernel.ty(ptr), thread);
        }
        range
    }

    fn check_access(&mut self, ask: Request, p: Pointer, range: Option<ByteRange>, ty: Type, thread: usize) {
        let access = ask.kind;
        let object = self.memory.object(p);
        let space = object.space;
        let Some(range) = range else {
            let kind = if p.object == 0 {
                let space = ty.space().unwrap_or(space);
                FindingKind::NullPointer { access, space }
            } else {
                FindingKind::OutOfBounds {
                    access,
                    memory: object.description.clone(),
                    offset: p.offset,
                    size: ask.size,
                }
            };
            return self.report(kind, ask.loc, thread);
        };
        if p.offset % i64::from(ask.align) != 0 {
            let memory = object.description.clone();
            let kind = FindingKind::Misaligned { access, memory, offset: p.offset, align: ask.align };
            self.report(kind, ask.loc, thread);
        }
        let object = self.memory.object(p);
        if access.writes() && !object.writable {
            let memory = object.description.clone();
            let offset = p.offset;
            let kind = FindingKind::ReadOnly { memory, offset };
            return self.report(kind, ask.loc, thread);
        }
        let Some(checks) = &mut self.checks else {
            return;
        };
        let mut missing = None;
        if let Some(written) = checks.written(range.object, thread) {
            if access != AccessKind::Write {
                missing = written.first_missing(range.offset, ask.size);
            }
            // An atomic update reads; an atomic store does not, so `mark_stored` has marked its bytes
            // already.
            if access.writes() {
                written.mark(range.offset, ask.size);
            }
        }
        let now = Access { time: checks.clock.now, thread: thread as u32, loc: ask.loc.0 };
        let race = checks.history[range.object]
            .as_mut()
            .and_then(|h| h.touch(access, range.offset, ask.size, now, &checks.clock, space));
        let race = race.map(|(byte, kind, a)| (byte, kind, a, checks.group_at(a.time)));
        let in_flight = match space {
            Space::Thread => None,
            _ => checks.copies.touch(access, range.object, range.offset, ask.size, now),
        };
        if let Some(byte) = missing {
            let kind = FindingKind::Uninitialised {
                memory: self.memory.object(p).description.clone(),
                offset: p.offset,
                size: ask.size,
                byte,
            };
            self.report(kind, ask.loc, thread);
        }
        if let Some((byte, copy)) = in_flight {
            let partner = RacePartner {
                access: copy.kind,
                thread: self.position(self.group, copy.access.thread as usize),
                trace: self.kernel.loc_chain(copy.access.source()),
            };
            let memory = self.memory.object(p).description.clone();
            let kind = FindingKind::CopyInFlight { access, memory, byte, copy: Box::new(partner) };
            return self.report(kind, ask.loc, thread);
        }
        if let Some((byte, other, a, group)) = race {
            let partner = RacePartner {
                access: other,
                thread: self.position(group, a.thread as usize),
                trace: self.kernel.loc_chain(a.source()),
            };
            let kind = FindingKind::Race {
                access,
                memory: self.memory.object(p).description.clone(),
                byte,
                other: Box::new(partner),
            };
            self.report(kind, ask.loc, thread);
        }
    }

    /// Begins the copies of the SIMD groups of `mask`.
    pub fn async_begin(&mut self, inst: &Inst, mask: &Mask) {
        let mut out = self.fresh(Type::U32);
        mask.iter().for_each(|t| out[t] = 1);
        self.barrier(Scope::Simdgroup, MemFlags { device: false, threadgroup: false }, inst.loc, mask);
        if let Some(checks) = &mut self.checks {
            for group in simd_groups(mask, self.threads) {
                let event = checks.copies.begin(group);
                mask.iter().filter(|t| t / 32 == group).for_each(|t| out[t] = u64::from(event));
            }
        }
        if let Some(result) = inst.result {
            self.define(result, out);
        }
    }

    pub fn async_end(&mut self, mask: &Mask) {
        if let Some(checks) = &mut self.checks {
            simd_groups(mask, self.threads).for_each(|group| checks.copies.end(group));
        }
    }

    /// Waits for the copies of an event: their accesses count as taking place now.
    pub fn async_wait(&mut self, event: ValueId, loc: Loc, mask: &Mask) {
        for group in simd_groups(mask, self.threads) {
            let Some(first) = mask.iter().find(|t| t / 32 == group) else { continue };
            let event = self.at(event, first)[0] as u32;
            let Some(checks) = &mut self.checks else { return };
            checks.clock.tick();
            for done in checks.copies.finish(group, event) {
                let now = Access { time: checks.clock.now, ..done.access };
                let Some(history) = &mut checks.history[done.object] else { continue };
                let space = self.memory.object(Pointer { object: done.object as u64, offset: 0 }).space;
                // Conflicts were reported at the conflicting access.
                history.touch(done.kind, done.offset, done.size, now, &checks.clock, space);
            }
        }
        self.barrier(Scope::Simdgroup, MemFlags { device: true, threadgroup: true }, loc, mask);
    }

    /// Reports the copies that nothing waited for when the threadgroup ended.
    pub fn check_copies(&mut self) {
        let Some(checks) = &mut self.checks else { return };
        for left in checks.copies.unfinished() {
            let object = self.memory.object(Pointer { object: left.object as u64, offset: 0 });
            let memory = object.description.clone();
            self.report(
                FindingKind::CopyNotAwaited { memory },
                left.access.source(),
                left.access.thread as usize,
            );
        }
    }

    fn tick(&mut self) {
        if let Some(checks) = &mut self.checks {
            checks.clock.tick();
        }
    }

    pub fn load(&mut self, inst: &Inst, result: ValueId, ptr: ValueId, align: u32, mask: &Mask) {
        self.tick();
        let ty = self.kernel.ty(result);
        let ask = Request { kind: AccessKind::Read, size: ty.size(), align, loc: inst.loc };
        let mut out = self.fresh(ty);
        let lanes = usize::from(ty.lanes());
        for t in mask.iter() {
            if let Some(range) = self.access(ask, ptr, t) {
                let bytes = self.memory.read(range, t);
                decode(ty, &bytes, &mut out[t * lanes..][..lanes]);
            }
        }
        self.define(result, out);
    }

    pub fn store(&mut self, inst: &Inst, ptr: ValueId, value: ValueId, align: u32, mask: &Mask) {
        self.tick();
        let ty = self.kernel.ty(value);
        let ask = Request { kind: AccessKind::Write, size: ty.size(), align, loc: inst.loc };
        for t in mask.iter() {
            if let Some(range) = self.access(ask, ptr, t) {
                let bytes = encode(ty, self.at(value, t));
                self.memory.write(range, t, &bytes);
            }
        }
    }

    /// An atomic instruction: `update` gives the new word (if any) from thread and old word.
    fn atomic(
        &mut self,
        inst: &Inst,
        ptr: ValueId,
        ty: Type,
        kind: AccessKind,
        mask: &Mask,
        update: impl Fn(&Self, usize, u64) -> Option<u64>,
    ) {
        self.tick();
        let ask = Request { kind, size: ty.size(), align: ty.align() as u32, loc: inst.loc };
        let mut out = self.fresh(ty);
        for t in mask.iter() {
            let Some(range) = self.access(ask, ptr, t) else {
                continue;
            };
            let bytes = self.memory.read(range, t);
            decode(ty, &bytes, &mut out[t..=t]);
            if let Some(new) = update(self, t, out[t]) {
                self.memory.write(range, t, &encode(ty, &[new]));
            }
        }
        if let Some(v) = inst.result {
            self.define(v, out);
        }
    }

    pub fn atomic_instruction(&mut self, inst: &Inst, mask: &Mask) {
        match inst.op {
            Op::AtomicRmw { op, ptr, value } => {
                let ty = self.kernel.ty(value);
                let s = ty.scalar().unwrap_or(Scalar::U32);
                let update = |m: &Self, t, old| Some(scalar::atomic(op, s, old, m.at(value, t)[0]));
                self.atomic(inst, ptr, ty, AccessKind::AtomicWrite, mask, update);
            }
            Op::AtomicLoad { ptr } => {
                let ty = inst.result.map_or(Type::U32, |v| self.kernel.ty(v));
                self.atomic(inst, ptr, ty, AccessKind::AtomicRead, mask, |_, _, _| None);
            }
            Op::AtomicStore { ptr, value } => {
                let ty = self.kernel.ty(value);
                self.mark_stored(ptr, ty, mask);
                let update = |m: &Self, t, _| Some(m.at(value, t)[0]);
                self.atomic(inst, ptr, ty, AccessKind::AtomicWrite, mask, update);
            }
            Op::AtomicCompareExchange { ptr, expected, desired } => {
                let ty = self.kernel.ty(desired);
                let update =
                    |m: &Self, t: usize, old| (m.at(expected, t)[0] == old).then(|| m.at(desired, t)[0]);
                self.atomic(inst, ptr, ty, AccessKind::AtomicWrite, mask, update);
            }
            _ => {}
        }
    }

    /// Marks the bytes of an atomic store as written before it is checked, since it reads nothing.
    fn mark_stored(&mut self, ptr: ValueId, ty: Type, mask: &Mask) {
        for t in mask.iter() {
            let p = Pointer::from_words(self.at(ptr, t));
            let range = self.memory.range(p, ty.size());
            if let (Some(range), Some(checks)) = (range, &mut self.checks)
                && let Some(written) = checks.written(range.object, t)
            {
                written.mark(range.offset, ty.size());
            }
        }
    }

    pub fn barrier(&mut self, scope: Scope, mem: MemFlags, loc: Loc, mask: &Mask) {
        if self.checks.is_none() {
            return;
        }
        let groups = self.threads.div_ceil(32);
        let live = Mask::first(self.threads).minus(&self.returned);
        match scope {
            Scope::Threadgroup => {
                self.check_reached(scope, loc, *mask, live);
            }
            Scope::Simdgroup => {
                for g in (0..groups).filter(|&g| mask.lanes(g) != 0) {
                    let lanes = |m: &Mask| {
                        let mut of_group = Mask::EMPTY;
                        m.iter().filter(|t| t / 32 == g).for_each(|t| of_group.insert(t));
                        of_group
                    };
                    self.check_reached(scope, loc, lanes(mask), lanes(&live));
                }
            }
        }
        let Some(checks) = &mut self.checks else {
            return;
        };
        checks.clock.tick();
        let spaces = [(mem.device, Space::Device), (mem.threadgroup, Space::Threadgroup)];
        for (_, space) in spaces.into_iter().filter(|s| s.0) {
            match scope {
                Scope::Threadgroup => checks.clock.threadgroup_barrier(space),
                Scope::Simdgroup => (0..groups)
                    .filter(|&g| mask.lanes(g) != 0)
                    .for_each(|g| checks.clock.simdgroup_barrier(g, space)),
            }
        }
    }

    fn check_reached(&mut self, scope: Scope, loc: Loc, reached: Mask, live: Mask) {
        let missing = live.minus(&reached);
        let (Some(first), Some(by)) = (missing.iter().next(), reached.iter().next()) else {
            return;
        };
        let kind = FindingKind::DivergentBarrier {
            scope,
            reached: reached.len(),
            missing: missing.len(),
            first_missing: self.position(self.group, first),
        };
        self.report(kind, loc, by);
    }
}

/// The SIMD groups of the threads of a mask.
fn simd_groups(mask: &Mask, threads: usize) -> impl Iterator<Item = usize> + use<> {
    let mask = *mask;
    (0..threads.div_ceil(32)).filter(move |&group| mask.lanes(group) != 0)
}

/// Words from the bytes of memory.
pub(super) fn decode(ty: Type, bytes: &[u8], words: &mut [u64]) {
    let Some(s) = ty.scalar() else {
        return;
    };
    let size = s.size() as usize;
    for (i, w) in words.iter_mut().enumerate() {
        let b = &bytes[i * size..][..size];
        *w = match *b {
            [x] => u64::from(x),
            [x, y] => u64::from(u16::from_ne_bytes([x, y])),
            [x, y, z, w] => u64::from(u32::from_ne_bytes([x, y, z, w])),
            _ => b.try_into().map_or(0, |b: [u8; 8]| u64::from_ne_bytes(b)),
        };
        if s == Scalar::Bool {
            *w = u64::from(*w != 0);
        }
    }
}

/// Bytes of memory from words.
pub(super) fn encode(ty: Type, words: &[u64]) -> [u8; 32] {
    let mut bytes = [0; 32];
    let size = ty.scalar().map_or(0, Scalar::size) as usize;
    for (i, &w) in words.iter().enumerate() {
        let to = &mut bytes[i * size..][..size];
        match size {
            1 => to.copy_from_slice(&(w as u8).to_ne_bytes()),
            2 => to.copy_from_slice(&(w as u16).to_ne_bytes()),
            4 => to.copy_from_slice(&(w as u32).to_ne_bytes()),
            8 => to.copy_from_slice(&w.to_ne_bytes()),
            _ => {}
        }
    }
    bytes
}
