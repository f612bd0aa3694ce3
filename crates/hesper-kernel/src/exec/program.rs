//! Compiled kernels and their execution over ranges of threadgroups.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::code::Code;
use super::compile::{CompileError, compile};
use super::geometry::{Chunk, LaneRange};
use super::jit::{self, Jit};
use super::lanes::BLOCK;
use super::level::SimdLevel;
use super::machine::{Dropped, Machine, Object, Storage};
use super::run::Stop;
use crate::bounds::Violation;
use crate::ir::{Kernel, Op, ParamKind, Scalar, Space};
use crate::launch::{Bindings, Launch, LaunchError};
use crate::math::scalar::to_lane;

/// Bytes of registers that should stay in the L1 cache.
const REGISTER_BUDGET: usize = 24 << 10;
/// Bytes of registers and thread memory that a block of lanes may take at most, where that still
/// leaves one SIMD group.
const MEMORY_BUDGET: usize = 1 << 20;
/// The most lanes of a block.
const MAX_WIDTH: usize = 2048;
/// The fewest threads that are worth a task.
pub(super) const THREADS_PER_TASK: u64 = 1 << 15;
/// The most tasks of a launch.
pub(super) const MAX_TASKS: u64 = 256;

/// A request to stop, shared with a running launch. It is checked at every loop iteration and between blocks
/// of lanes.
#[derive(Default)]
pub struct Cancel<'a> {
    requested: AtomicBool,
    elsewhere: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> Cancel<'a> {
    /// Nothing requested yet.
    pub const fn new() -> Cancel<'a> {
        Cancel { requested: AtomicBool::new(false), elsewhere: None }
    }

    /// As [`Cancel::new`], but also cancelled as soon as `requested` returns true.
    pub fn watching(requested: &'a (dyn Fn() -> bool + Sync)) -> Cancel<'a> {
        Cancel { elsewhere: Some(requested), ..Cancel::new() }
    }

    /// Requests the stop.
    pub fn cancel(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Whether the stop was requested.
    pub fn is_cancelled(&self) -> bool {
        self.requested.load(Ordering::Relaxed) || self.elsewhere.is_some_and(|requested| requested())
    }
}

/// Why a launch did not complete.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The launch or its bindings do not fit.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// It was cancelled; the outputs are partly written.
    #[error("kernel {0} was cancelled")]
    Cancelled(String),
    /// It ran to its end, but dropped writes; this is the first that was seen.
    #[error("{0}")]
    Dropped(Box<Violation>),
}

/// Runs a function for each number below a count, on any threads, and returns when all calls are done.
pub type Parallel<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// A kernel compiled for the CPU: immutable, shared between threads.
#[derive(Debug)]
pub struct Program {
    pub(super) code: Code,
    /// Machine code, if the kernel has it; the bytecode runs what it refuses.
    pub(super) jit: Option<Jit>,
    /// The kernel without its instructions.
    signature: Kernel,
    /// Thread variables: size and cell of the lane-interleaved layout.
    thread_vars: Vec<(u64, u8)>,
    thread_bytes: u64,
    /// Total size of threadgroup memory, and the offset of each variable.
    group_memory: (u64, Vec<u64>),
    level: SimdLevel,
    /// Dropped writes are no error.
    lenient: bool,
}

impl Program {
    /// Compiles a verified kernel for this processor.
    pub fn compile(kernel: &Kernel) -> Result<Program, CompileError> {
        Program::compile_for(kernel, SimdLevel::detect())
    }

    /// Compiles for a SIMD level (or the best available one below it); results do not depend on
    /// it.
    pub fn compile_for(kernel: &Kernel, level: SimdLevel) -> Result<Program, CompileError> {
        let mut program = Program::compile_bytecode(kernel, level)?;
        if !program.code.grouped {
            program.jit = jit::compile(kernel, program.level);
        }
        Ok(program)
    }

    /// As [`Program::compile_for`], without machine code; results do not depend on it.
    pub fn compile_bytecode(kernel: &Kernel, level: SimdLevel) -> Result<Program, CompileError> {
        let level = level.or_available();
        let code = compile(kernel, level)?;
        let cell = cell_size(kernel);
        let thread_vars: Vec<(u64, u8)> = kernel.thread_vars.iter().map(|v| (v.size, cell)).collect();
        let signature = Kernel {
            name: kernel.name.clone(),
            params: kernel.params.clone(),
            threadgroup_vars: kernel.threadgroup_vars.clone(),
            thread_vars: kernel.thread_vars.clone(),
            const_vars: kernel.const_vars.clone(),
            vars: Vec::new(),
            values: Vec::new(),
            blocks: Vec::new(),
            body: kernel.body,
            locs: kernel.locs.clone(),
            source_name: kernel.source_name.clone(),
        };
        let thread_bytes =
            thread_vars.iter().map(|&(size, cell)| size.next_multiple_of(u64::from(cell))).sum();
        let mut group_memory = kernel.threadgroup_layout();
        group_memory.0 = group_memory.0.next_multiple_of(64);
        Ok(Program {
            code,
            jit: None,
            signature,
            thread_vars,
            thread_bytes,
            group_memory,
            level,
            lenient: false,
        })
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.signature.name
    }

    /// The SIMD level it was compiled for.
    pub fn level(&self) -> SimdLevel {
        self.level
    }

    /// Whether it is machine code, not bytecode.
    pub fn is_machine_code(&self) -> bool {
        self.jit.is_some()
    }

    /// Bytes the program takes.
    pub fn size_bytes(&self) -> usize {
        let machine_code = self.jit.as_ref().map_or(0, Jit::size);
        let tables: usize = self.signature.const_vars.iter().map(|t| t.data.len()).sum();
        size_of::<Program>() + self.code.size() - size_of::<Code>() + tables + machine_code
    }

    /// The same program, for which dropped writes are no error.
    pub fn ignore_dropped_writes(mut self) -> Program {
        self.lenient = true;
        self
    }

    /// Runs all threadgroups on the calling thread.
    pub fn run(
        &self,
        bindings: &Bindings<'_>,
        launch: &Launch,
        cancel: &Cancel<'_>,
    ) -> Result<(), ExecError> {
        self.run_groups(0..launch.group_count(), bindings, launch, cancel)
    }

    /// Runs all threadgroups as tasks of `parallel`.
    pub fn run_parallel(
        &self,
        bindings: &Bindings<'_>,
        launch: &Launch,
        cancel: &Cancel<'_>,
        parallel: Parallel<'_>,
    ) -> Result<(), ExecError> {
        self.check(bindings, launch)?;
        if let Some(jit) = self.native(launch) {
            return self.run_native_parallel(jit, bindings, launch, cancel, parallel);
        }
        let groups = launch.group_count();
        let tasks = self.task_count(launch);
        if tasks <= 1 {
            return self.run_checked(0..groups, bindings, launch, cancel);
        }
        let failures = Failures::default();
        parallel(tasks as usize, &|task| {
            let task = task as u64;
            // Split without overflow: the first `groups % tasks` tasks take one group more.
            let at = |t: u64| t * (groups / tasks) + t.min(groups % tasks);
            failures.note(task, self.run_checked(at(task)..at(task + 1), bindings, launch, cancel));
        });
        failures.outcome()
    }

    /// The number of tasks that a launch is split into.
    pub fn task_count(&self, launch: &Launch) -> u64 {
        let groups = launch.group_count();
        let worth = if self.code.grouped || !self.is_straight() { 64 } else { 1 };
        (launch.threads() * worth / THREADS_PER_TASK).clamp(1, MAX_TASKS).min(groups.max(1))
    }

    /// Whether there are no loops: every thread costs the same few instructions.
    fn is_straight(&self) -> bool {
        !self.code.body.iter().any(|i| matches!(i, super::code::Ins::LoopBegin))
    }

    /// Runs a range of threadgroups (linear numbers, x fastest) on the calling thread.
    ///
    /// Different ranges of one launch may run on different threads at the same time.
    pub fn run_groups(
        &self,
        groups: Range<u64>,
        bindings: &Bindings<'_>,
        launch: &Launch,
        cancel: &Cancel<'_>,
    ) -> Result<(), ExecError> {
        self.check(bindings, launch)?;
        let all = launch.group_count();
        self.run_checked(groups.start.min(all)..groups.end.min(all), bindings, launch, cancel)
    }

    fn check(&self, bindings: &Bindings<'_>, launch: &Launch) -> Result<(), LaunchError> {
        launch.check()?;
        bindings.check(&self.signature)
    }

    fn run_checked(
        &self,
        groups: Range<u64>,
        bindings: &Bindings<'_>,
        launch: &Launch,
        cancel: &Cancel<'_>,
    ) -> Result<(), ExecError> {
        if groups.is_empty() {
            return Ok(());
        }
        let dropped = Dropped::default();
        let worker = Worker { program: self, bindings, launch, cancel, dropped: &dropped };
        let done = match self.native(launch) {
            Some(jit) => return self.run_native_groups(jit, groups, bindings, launch, cancel),
            None if self.code.grouped => worker.grouped(groups),
            None => worker.flat(groups),
        };
        super::stream::finish();
        self.outcome(done, &dropped)
    }

    /// The result of a task: cancelled unless `done`, else the first dropped write, if any.
    pub(super) fn outcome(&self, done: bool, dropped: &Dropped) -> Result<(), ExecError> {
        match dropped.get() {
            _ if !done => Err(ExecError::Cancelled(self.signature.name.clone())),
            Some((site, target)) if !self.lenient => {
                Err(ExecError::Dropped(Box::new(Violation::new(&self.signature, &site, &target))))
            }
            _ => Ok(()),
        }
    }

    /// Lanes of a block for at most `threads` threads.
    pub(super) fn width(&self, threads: u64) -> usize {
        let lane = self.code.lane_bytes() + 1;
        let fit = REGISTER_BUDGET / self.code.hot_bytes().max(1);
        let most = MEMORY_BUDGET / (lane + self.thread_bytes as usize);
        let width = fit.clamp(128, MAX_WIDTH).min(most).min(threads.min(MAX_WIDTH as u64) as usize);
        width.next_multiple_of(BLOCK).clamp(BLOCK, MAX_WIDTH)
    }
}

/// The cell of thread memory: the size all scalar accesses to it have, or 4.
fn cell_size(kernel: &Kernel) -> u8 {
    let mut sizes = kernel.blocks.iter().flat_map(|b| &b.insts).filter_map(|i| {
        let (ptr, ty) = match i.op {
            Op::Load { ptr, .. } => (ptr, kernel.ty(i.result?)),
            Op::Store { ptr, value, .. } => (ptr, kernel.ty(value)),
            _ => return None,
        };
        (kernel.ty(ptr).space() == Some(Space::Thread)).then(|| ty.scalar().map_or(4, Scalar::size))
    });
    let first = sizes.next().unwrap_or(4);
    if sizes.all(|s| s == first) { first as u8 } else { 4 }
}

/// One range of threadgroups under execution.
#[derive(Clone, Copy)]
pub(super) struct Worker<'a> {
    pub program: &'a Program,
    pub bindings: &'a Bindings<'a>,
    pub launch: &'a Launch,
    pub cancel: &'a Cancel<'a>,
    /// The first dropped write.
    pub dropped: &'a Dropped,
}

/// The failure of the first task, in the order of tasks.
#[derive(Default)]
pub(super) struct Failures(Mutex<Option<(u64, ExecError)>>);

impl Failures {
    pub fn note(&self, task: u64, outcome: Result<(), ExecError>) {
        let Err(error) = outcome else { return };
        let mut first = self.0.lock().unwrap_or_else(|p| p.into_inner());
        if first.as_ref().is_none_or(|(earlier, _)| task < *earlier) {
            *first = Some((task, error));
        }
    }

    pub fn outcome(self) -> Result<(), ExecError> {
        let first = self.0.into_inner().unwrap_or_else(|p| p.into_inner());
        first.map_or(Ok(()), |(_, error)| Err(error))
    }
}

impl<'w> Worker<'w> {
    /// Objects of the launch, the threadgroup variables at `group_memory`.
    fn objects(&self, group_memory: *mut u8) -> Vec<Object> {
        let p = self.program;
        let mut objects = vec![Object::NULL];
        for (arg, param) in self.bindings.args().iter().zip(&p.signature.params) {
            objects.push(match param.kind {
                ParamKind::Value(_) => Object::NULL,
                ParamKind::Buffer { access, .. } => Object {
                    ptr: arg.ptr(),
                    len: arg.len(),
                    writable: access.writes() && arg.is_writable(),
                    frozen: !access.writes(),
                    cell: 0,
                },
            });
        }
        for table in &p.signature.const_vars {
            objects.push(Object {
                ptr: table.data.as_ptr().cast_mut(),
                len: table.data.len() as u64,
                writable: false,
                frozen: true,
                cell: 0,
            });
        }
        for (var, &at) in p.signature.threadgroup_vars.iter().zip(&p.group_memory.1) {
            objects.push(Object {
                ptr: group_memory.wrapping_add(at as usize),
                len: var.size,
                writable: true,
                frozen: false,
                cell: 0,
            });
        }
        objects
    }

    pub(super) fn machine(&self, width: usize, group_memory: *mut u8) -> Machine<'w> {
        let code = &self.program.code;
        let objects = self.objects(group_memory);
        let mut m = Machine::new(code, self.dropped, width, objects, &self.program.thread_vars);
        for &(r, bits) in &code.consts {
            m.set_uniform(r, bits);
        }
        for &(r, param, offset, scalar) in &code.values {
            let bits = self.value(param as usize, offset as usize, scalar);
            m.set_uniform(r, bits);
        }
        m.fill_launch_wide_builtins(self.launch);
        m.run_prologue();
        m
    }

    /// A component of a by-value parameter in the form of a register.
    fn value(&self, param: usize, offset: usize, s: Scalar) -> u64 {
        let Some(arg) = self.bindings.args().get(param) else {
            return 0;
        };
        let mut bytes = [0u8; 8];
        let size = s.size() as usize;
        if offset + size <= arg.len() as usize {
            // SAFETY: the argument's bytes are readable for the launch.
            unsafe { std::ptr::copy_nonoverlapping(arg.ptr().add(offset), bytes.as_mut_ptr(), size) };
        }
        let bits = u64::from_le_bytes(bytes);
        if s == Scalar::Bool { u64::from(bits != 0) } else { to_lane(s, bits) }
    }

    /// Runs one block of lanes to its end. False if it was cancelled.
    fn chunk(&self, m: &mut Machine<'_>, chunk: &Chunk, n: usize) -> bool {
        if self.cancel.is_cancelled() {
            return false;
        }
        m.reset(n);
        m.fill_builtins(chunk, self.launch);
        loop {
            match m.run(self.cancel) {
                Stop::Done => return true,
                Stop::Cancelled => return false,
                // All threads of the group are in this block.
                Stop::Barrier => {}
            }
        }
    }

    /// Runs rows of the grid, for a kernel that does not depend on groups.
    fn flat(&self, groups: Range<u64>) -> bool {
        let l = self.launch;
        let per_group: u64 = l.threadgroup.iter().product();
        let threads = (groups.end - groups.start).saturating_mul(per_group).min(l.threads());
        let width = self.program.width(threads);
        let mut m = self.machine(width, std::ptr::null_mut());
        self.boxes(groups, |origin, size| self.flat_box(&mut m, origin, size))
    }

    /// Calls `f` with the origin and size of each box of threads that a range of threadgroups
    /// consists of. Stops and returns false as soon as `f` does.
    pub(super) fn boxes(&self, groups: Range<u64>, mut f: impl FnMut([u64; 3], [u64; 3]) -> bool) -> bool {
        let l = self.launch;
        let across = l.groups();
        let mut g = groups.start;
        while g < groups.end {
            let [gx, gy, gz] = l.group_at(g);
            let left = groups.end - g;
            // Whole rows of groups form one box; the rest of a row another.
            let (wide, high) = if gx == 0 && left >= across[0] {
                (across[0], (left / across[0]).min(across[1] - gy))
            } else {
                (left.min(across[0] - gx), 1)
            };
            g += wide * high;
            let origin = [gx * l.threadgroup[0], gy * l.threadgroup[1], gz * l.threadgroup[2]];
            let end = [gx + wide, gy + high, gz + 1];
            let size = [0, 1, 2].map(|a| (end[a] * l.threadgroup[a]).min(l.grid[a]) - origin[a]);
            if !f(origin, size) {
                return false;
            }
        }
        true
    }

    pub(super) fn flat_box(&self, m: &mut Machine<'_>, origin: [u64; 3], size: [u64; 3]) -> bool {
        let width = m.width as u64;
        if size[0] >= width / 2 || size[1] * size[2] == 1 {
            // Long rows: positions are linear along each.
            for z in 0..size[2] {
                for y in 0..size[1] {
                    let mut x = 0;
                    while x < size[0] {
                        let n = width.min(size[0] - x);
                        let at = [origin[0] + x, origin[1] + y, origin[2] + z];
                        let piece = LaneRange { origin: at, size: [n, 1, 1], start: 0 };
                        if !self.chunk(m, &Chunk::Flat(piece), n as usize) {
                            return false;
                        }
                        x += n;
                    }
                }
            }
            return true;
        }
        let threads: u64 = size.iter().product();
        let mut start = 0;
        while start < threads {
            let n = width.min(threads - start);
            let piece = LaneRange { origin, size, start };
            if !self.chunk(m, &Chunk::Flat(piece), n as usize) {
                return false;
            }
            start += n;
        }
        true
    }

    /// Runs one threadgroup at a time, or several small ones side by side.
    fn grouped(&self, groups: Range<u64>) -> bool {
        let l = self.launch;
        let code = &self.program.code;
        let per_group: u64 = l.threadgroup.iter().product();
        let mut memory = Storage::zeroed(self.program.group_memory.0 as usize);
        let base = memory.ptr();
        let alone = code.barriers || !self.program.signature.threadgroup_vars.is_empty();
        let aligned = !code.lanewise || per_group.is_multiple_of(BLOCK as u64);
        let reach =
            if alone || !aligned { per_group } else { (groups.end - groups.start).saturating_mul(per_group) };
        let width = self.program.width(reach);
        let pieces = if code.barriers { per_group.div_ceil(width as u64) } else { 1 };
        let mut machines: Vec<Machine<'_>> = (0..pieces).map(|_| self.machine(width, base)).collect();
        let batch = if alone || !aligned { 1 } else { (width as u64 / per_group).max(1) };
        let mut g = groups.start;
        while g < groups.end {
            let at = l.group_at(g);
            let size = l.group_size(at);
            let mut count = 1;
            while count < batch && g + count < groups.end && l.group_size(l.group_at(g + count)) == size {
                count += 1;
            }
            if count > 1 && (!code.lanewise || size.iter().product::<u64>().is_multiple_of(BLOCK as u64)) {
                let n = size.iter().product::<u64>() * count;
                if !self.chunk(&mut machines[0], &Chunk::Groups { first: g, size }, n as usize) {
                    return false;
                }
                g += count;
                continue;
            }
            g += 1;
            if self.program.group_memory.0 > 0 {
                // SAFETY: the threadgroup memory of this worker; no machine runs now.
                unsafe { std::ptr::write_bytes(base, 0, self.program.group_memory.0 as usize) };
            }
            let origin = [0, 1, 2].map(|a| at[a] * l.threadgroup[a]);
            if !self.group(&mut machines, origin, size) {
                return false;
            }
        }
        true
    }

    fn group(&self, machines: &mut [Machine<'_>], origin: [u64; 3], size: [u64; 3]) -> bool {
        let threads: u64 = size.iter().product();
        let width = machines[0].width as u64;
        let piece = |start: u64| Chunk::Group(LaneRange { origin, size, start });
        let lanes = |start: u64| width.min(threads - start) as usize;
        if !self.program.code.barriers {
            let starts = (0..threads).step_by(width as usize);
            return starts.into_iter().all(|s| self.chunk(&mut machines[0], &piece(s), lanes(s)));
        }
        if self.cancel.is_cancelled() {
            return false;
        }
        let used = threads.div_ceil(width) as usize;
        let machines = &mut machines[..used];
        for (i, m) in machines.iter_mut().enumerate() {
            let start = i as u64 * width;
            m.reset(lanes(start));
            m.fill_builtins(&piece(start), self.launch);
        }
        // Each part runs to its next barrier; finished parts are skipped.
        let mut running = vec![true; used];
        while running.iter().any(|&r| r) {
            for (m, running) in machines.iter_mut().zip(&mut running).filter(|(_, r)| **r) {
                match m.run(self.cancel) {
                    Stop::Barrier => {}
                    Stop::Done => *running = false,
                    Stop::Cancelled => return false,
                }
            }
        }
        true
    }
}
