//! The machine: state of the running threadgroup, control flow and findings.

use std::collections::HashSet;
use std::mem::Discriminant;
use std::sync::atomic::Ordering;

use super::access::Checks;
use super::finding::{Finding, FindingKind, ThreadPosition};
use super::liveness::Liveness;
use super::mask::Mask;
use super::memory::Memory;
use super::{Options, Report, RunError};
use crate::ir::{BlockId, Kernel, Loc, Op, Type, ValueId};
use crate::launch::{Bindings, Launch, SIMD_WIDTH};

/// Words a value takes per thread: a pointer two, others one per component.
pub(super) fn width(ty: Type) -> usize {
    match ty {
        Type::Ptr(_) => 2,
        _ => usize::from(ty.lanes()),
    }
}

/// A running loop: the threads that have left it, and those that wait for its `continuing` block.
struct Frame {
    broke: Mask,
    continued: Mask,
}

pub(super) struct Machine<'a> {
    pub kernel: &'a Kernel,
    pub launch: Launch,
    pub options: Options<'a>,
    pub memory: Memory<'a>,
    /// Present in checked mode.
    pub checks: Option<Checks>,
    liveness: Liveness,
    /// Words of each live value, thread by thread.
    values: Vec<Vec<u64>>,
    /// Words of each variable, thread by thread.
    pub vars: Vec<Vec<u64>>,
    /// The threads that have set each variable.
    pub var_set: Vec<Mask>,
    /// Buffers of dead values, for reuse.
    pool: Vec<Vec<u64>>,
    frames: Vec<Frame>,
    iterations: Vec<u64>,
    /// Number of the running group, its position and size.
    pub group: u64,
    pub group_position: [u64; 3],
    pub group_size: [u64; 3],
    /// Threads of the group, and those that have returned.
    pub threads: usize,
    pub returned: Mask,
    report: Report,
    reported: HashSet<(Discriminant<FindingKind>, Loc)>,
}

impl<'a> Machine<'a> {
    pub fn new(
        kernel: &'a Kernel,
        launch: Launch,
        bindings: &'a mut Bindings<'_>,
        options: Options<'a>,
    ) -> Machine<'a> {
        let max_threads = launch.threadgroup.iter().product::<u64>() as usize;
        let checks = options.checked.then(|| Checks::new(kernel, bindings, max_threads));
        Machine {
            kernel,
            launch,
            options,
            memory: Memory::new(kernel, bindings, max_threads),
            checks,
            liveness: Liveness::new(kernel),
            values: vec![Vec::new(); kernel.values.len()],
            vars: vec![Vec::new(); kernel.vars.len()],
            var_set: vec![Mask::EMPTY; kernel.vars.len()],
            pool: Vec::new(),
            frames: Vec::new(),
            iterations: Vec::new(),
            group: 0,
            group_position: [0; 3],
            group_size: [0; 3],
            threads: 0,
            returned: Mask::EMPTY,
            report: Report::default(),
            reported: HashSet::new(),
        }
    }

    pub fn into_report(self) -> Report {
        self.report
    }

    /// Runs threadgroup number `group`.
    pub fn run_group(&mut self, group: u64) -> Result<(), RunError> {
        self.check_cancel()?;
        self.group = group;
        self.group_position = self.launch.group_at(group);
        self.group_size = self.launch.group_size(self.group_position);
        self.threads = self.group_size.iter().product::<u64>() as usize;
        self.returned = Mask::EMPTY;
        self.memory.start_group();
        if let Some(checks) = &mut self.checks {
            checks.start_group(self.threads.div_ceil(SIMD_WIDTH as usize));
        }
        for (i, var) in self.vars.iter_mut().enumerate() {
            let words = width(self.kernel.vars[i].ty) * self.threads;
            var.clear();
            var.resize(words, 0);
        }
        self.var_set.fill(Mask::EMPTY);
        self.iterations.clear();
        self.iterations.resize(self.threads, 0);
        self.block(self.kernel.body, Mask::first(self.threads))?;
        self.check_copies();
        Ok(())
    }

    /// Runs a block for the threads of `mask` and returns the threads that reach its end. Recursion
    /// is bounded by the verifier's limit on nesting.
    fn block(&mut self, id: BlockId, mut mask: Mask) -> Result<Mask, RunError> {
        let kernel = self.kernel;
        let mut dead = 0;
        for (n, inst) in kernel.block(id).insts.iter().enumerate() {
            if mask.is_empty() {
                break;
            }
            match inst.op {
                Op::If { cond, then, els } => {
                    let mut holds = Mask::EMPTY;
                    mask.iter().filter(|&t| self.at(cond, t)[0] != 0).for_each(|t| holds.insert(t));
                    let fails = mask.minus(&holds);
                    let a = self.block(then, holds)?;
                    let b = self.block(els, fails)?;
                    mask = a.or(&b);
                }
                Op::Loop { body, continuing } => {
                    mask = self.run_loop(body, continuing, mask, inst.loc)?;
                }
                Op::Break => {
                    if let Some(frame) = self.frames.last_mut() {
                        frame.broke = frame.broke.or(&mask);
                    }
                    mask = Mask::EMPTY;
                }
                Op::Continue => {
                    if let Some(frame) = self.frames.last_mut() {
                        frame.continued = frame.continued.or(&mask);
                    }
                    mask = Mask::EMPTY;
                }
                Op::Return => {
                    self.returned = self.returned.or(&mask);
                    mask = Mask::EMPTY;
                }
                _ => self.instruction(inst, &mask),
            }
            while let Some(&(last, v)) = self.liveness.dying(id).get(dead) {
                if last as usize > n {
                    break;
                }
                dead += 1;
                self.free(v);
            }
        }
        for i in dead..self.liveness.dying(id).len() {
            let v = self.liveness.dying(id)[i].1;
            self.free(v);
        }
        Ok(mask)
    }

    fn run_loop(
        &mut self,
        body: BlockId,
        continuing: BlockId,
        mut live: Mask,
        loc: Loc,
    ) -> Result<Mask, RunError> {
        self.frames.push(Frame { broke: Mask::EMPTY, continued: Mask::EMPTY });
        while !live.is_empty() {
            self.check_cancel()?;
            let limit = self.options.max_iterations;
            for t in live.iter() {
                self.iterations[t] += 1;
                if self.iterations[t] > limit {
                    let kind = FindingKind::Runaway { iterations: limit };
                    return Err(RunError::Runaway(Box::new(self.finding(kind, loc, t))));
                }
            }
            let through = self.block(body, live)?;
            let continued = self
                .frames
                .last_mut()
                .map_or(Mask::EMPTY, |f| std::mem::replace(&mut f.continued, Mask::EMPTY));
            live = self.block(continuing, through.or(&continued))?;
        }
        Ok(self.frames.pop().map_or(Mask::EMPTY, |f| f.broke))
    }

    fn check_cancel(&self) -> Result<(), RunError> {
        match self.options.cancel {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(RunError::Cancelled(self.kernel.name.clone())),
            _ => Ok(()),
        }
    }

    // ---- Values ----

    /// The words of a value for a thread.
    #[inline(always)]
    pub fn at(&self, v: ValueId, thread: usize) -> &[u64] {
        let w = width(self.kernel.ty(v));
        &self.values[v.index()][thread * w..][..w]
    }

    /// Words for a new value of this type, zero.
    pub fn fresh(&mut self, ty: Type) -> Vec<u64> {
        let mut words = self.pool.pop().unwrap_or_default();
        words.clear();
        words.resize(width(ty) * self.threads, 0);
        words
    }

    /// Gives a value its words.
    pub fn define(&mut self, v: ValueId, words: Vec<u64>) {
        self.values[v.index()] = words;
    }

    fn free(&mut self, v: ValueId) {
        let words = std::mem::take(&mut self.values[v.index()]);
        if words.capacity() > 0 {
            self.pool.push(words);
        }
    }

    // ---- Positions and findings ----

    /// Position of a thread of the running group in its group.
    pub fn local_position(&self, thread: usize) -> [u64; 3] {
        local(self.group_size, thread)
    }

    /// The position of thread `thread` of threadgroup number `group`.
    pub fn position(&self, group: u64, thread: usize) -> ThreadPosition {
        let threadgroup = self.launch.group_at(group);
        let size = self.launch.group_size(threadgroup);
        let in_threadgroup = local(size, thread);
        ThreadPosition {
            in_grid: [0, 1, 2].map(|a| threadgroup[a] * self.launch.threadgroup[a] + in_threadgroup[a]),
            threadgroup,
            in_threadgroup,
        }
    }

    fn finding(&self, kind: FindingKind, loc: Loc, thread: usize) -> Finding {
        Finding {
            kind,
            kernel: self.kernel.name.clone(),
            source_name: self.kernel.source_name.clone(),
            trace: self.kernel.loc_chain(loc),
            thread: self.position(self.group, thread),
        }
    }

    /// Reports a finding; one per kind and location is kept.
    pub fn report(&mut self, kind: FindingKind, loc: Loc, thread: usize) {
        let key = (std::mem::discriminant(&kind), loc);
        let known = loc != Loc::UNKNOWN && self.reported.contains(&key);
        if known || self.report.findings.len() >= self.options.max_findings {
            self.report.suppressed += 1;
            return;
        }
        self.reported.insert(key);
        let finding = self.finding(kind, loc, thread);
        self.report.findings.push(finding);
    }
}

fn local(size: [u64; 3], thread: usize) -> [u64; 3] {
    let t = thread as u64;
    let (x, y) = (size[0].max(1), size[1].max(1));
    [t % x, t / x % y, t / x / y]
}
