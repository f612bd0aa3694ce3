//! The list of checks, and their preparation on all cores: compilation and the results of the host.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

use hesper_corpus::Case;
use hesper_cuda::compiler::Compiler;
use hesper_cuda::disk_cache::Compiled;
use hesper_gpu_tests::corpus;
use hesper_gpu_tests::job::{DeviceResult, Job, Outputs};
use hesper_kernel::bounds::{ArgFacts, Violation, prove};
use hesper_kernel::cuda::{CudaSource, Options, emit_proven};
use hesper_kernel::custom::Binding;
use hesper_kernel::ir::ParamKind;

use crate::sweep::JobBuilder;
use crate::{fuzz, gpu, sweep};

/// A case of the corpus and the role of each parameter.
type CorpusCase = Option<(Box<Case>, Vec<Binding>)>;

enum CheckSource {
    /// A case of the corpus, also compared with its reference.
    Corpus(Box<Case>),
    /// A generated job, compared with the host's executors only.
    Generated(JobBuilder),
}

/// One check.
pub struct Check {
    pub name: String,
    origin: CheckSource,
    options: Options,
    /// Whether accesses that are proven in range for the launch are unchecked, as in custom kernels.
    proven: bool,
}

/// A check that is ready to launch.
pub struct Prepared {
    pub job: Job,
    pub source: CudaSource,
    pub interpreted: Outputs,
    /// The result of the fast executor, or why it has none.
    pub executed: Result<(Outputs, Option<Box<Violation>>), String>,
    judge: CorpusCase,
    bounds: bool,
}

/// All checks, in order.
pub fn checks(seeds: u64) -> Vec<Check> {
    let plain = Options::default();
    let bounds = Options { bounds: true, ..plain };
    // Sweeps use one axis only, and compile faster without flat numbering of blocks.
    let one_axis = Options { flat: false, ..plain };
    let own = |name: String, options, make: JobBuilder| Check {
        name,
        origin: CheckSource::Generated(make),
        options,
        proven: false,
    };
    let mut all: Vec<Check> = sweep::sweeps()
        .into_iter()
        .map(|(name, make)| own(format!("sweep {name}"), one_axis, make))
        .collect();
    for (i, case) in hesper_corpus::cases().into_iter().enumerate() {
        let case = Box::new(case);
        if i % 4 == 0 {
            let (name, origin) = (format!("bounds {}", case.name), CheckSource::Corpus(case.clone()));
            all.push(Check { name, origin, options: bounds, proven: i % 8 == 0 });
        }
        let (name, origin) = (format!("corpus {}", case.name), CheckSource::Corpus(case));
        all.push(Check { name, origin, options: plain, proven: false });
    }
    for outside in hesper_corpus::outside::outside_cases() {
        for proven in [false, true] {
            let name = format!("outside {}, proven: {proven}", outside.name);
            let make: JobBuilder = Box::new(move || corpus::outside(&outside));
            all.push(Check { proven, ..own(name, bounds, make) });
        }
    }
    for seed in 0..seeds {
        let make: JobBuilder = Box::new(move || fuzz::job(seed));
        all.push(Check { proven: seed % 2 == 1, ..own(format!("fuzz {seed}"), bounds, make) });
    }
    all
}

/// The accesses of a job that are proven in range from the lengths of its buffers and its by-value
/// parameters.
fn proven(job: &Job) -> Vec<bool> {
    let facts: Vec<ArgFacts<'_>> = job
        .args
        .iter()
        .zip(&job.kernel.params)
        .map(|(bytes, param)| {
            let value = matches!(param.kind, ParamKind::Value(_));
            ArgFacts { len: bytes.len() as u64, align: 256, contents: value.then_some(&bytes[..]) }
        })
        .collect();
    prove(&job.kernel, &job.launch, &facts).proven
}

impl Check {
    /// Builds the job and its CUDA text.
    pub fn text(&self) -> Result<(Job, CudaSource, CorpusCase), String> {
        let (job, judge) = match &self.origin {
            CheckSource::Corpus(case) => {
                let (job, bindings) = corpus::job(case)?;
                (job, Some((case.clone(), bindings)))
            }
            CheckSource::Generated(make) => (make()?, None),
        };
        let source =
            emit_proven(&job.kernel, &self.options, &if self.proven { proven(&job) } else { Vec::new() });
        Ok((job, source, judge))
    }

    /// The CUDA text and the host's results.
    pub fn on_host(&self) -> Result<Prepared, String> {
        let (job, source, judge) = self.text()?;
        let interpreted = job.interpreted().map_err(|e| format!("interpreter: {e}"))?;
        let executed = job.executed();
        Ok(Prepared { job, source, interpreted, executed, judge, bounds: self.options.bounds })
    }

    fn prepare(&self, compiler: &Compiler) -> Result<(Prepared, Compiled), String> {
        let prepared = self.on_host()?;
        let code = gpu::compile(compiler, &prepared.source)?;
        Ok((prepared, code))
    }
}

impl Prepared {
    /// Compares the device's result; an error is a failure.
    pub fn judge(&self, answer: &DeviceResult) -> Result<String, String> {
        let device = &answer.outputs;
        if self.bounds
            && let Ok((_, dropped)) = &self.executed
        {
            let reported = Violation::reported(&self.job.kernel, &answer.report);
            match (dropped, reported) {
                (None, None) => {}
                // Threads run in any order, so another write may be reported.
                (Some(host), Some(device)) if host.kernel == device.kernel && host.trace == device.trace => {}
                (host, device) => return Err(format!("the host reports {host:?}, the device {device:?}")),
            }
        }
        if let Some((case, bindings)) = &self.judge {
            case.check(&corpus::outputs_of(case, bindings, device))?;
        }
        let ordered = !self.judge.as_ref().is_some_and(|(case, _)| depends_on_order(case));
        let host = self.job.difference(&self.interpreted, device);
        match (host, ordered) {
            (Some(found), true) => return Err(format!("differs from the interpreter: {found}")),
            (Some(found), false) => return Ok(format!("matches its reference; order matters: {found}")),
            (None, _) => {}
        }
        match &self.executed {
            Err(e) => Ok(format!("interpreter's bits; the executor refuses it: {e}")),
            Ok((executed, _)) => match self.job.difference(executed, device) {
                Some(found) => Err(format!("interpreter's bits, but differs from the executor: {found}")),
                None => Ok("same bits".to_string()),
            },
        }
    }
}

/// Whether the result depends on the order of threads: float atomics, and unordered outputs.
fn depends_on_order(case: &Case) -> bool {
    let float_atomics = case.atomic_outputs && case.outputs.iter().any(|o| o.dtype.is_float());
    float_atomics || case.outputs.iter().any(|o| o.tolerance == hesper_corpus::Tolerance::Unordered)
}

/// Prepares checks on several threads, and returns them in order.
pub struct PreparationQueue<'a> {
    checks: &'a [Check],
    compiler: &'a Compiler,
    state: Mutex<State>,
    ready: Condvar,
}

struct State {
    next: usize,
    done: Vec<Option<Result<(Prepared, Compiled), String>>>,
}

impl<'a> PreparationQueue<'a> {
    pub fn new(checks: &'a [Check], compiler: &'a Compiler, first: usize) -> Self {
        let done = checks.iter().map(|_| None).collect();
        PreparationQueue {
            checks,
            compiler,
            state: Mutex::new(State { next: first, done }),
            ready: Condvar::new(),
        }
    }

    /// Prepares checks until none is left.
    pub fn work(&self) {
        loop {
            let i = {
                let mut state = self.lock();
                let i = state.next;
                state.next += 1;
                i
            };
            let Some(check) = self.checks.get(i) else { return };
            let prepared = check.prepare(self.compiler);
            self.lock().done[i] = Some(prepared);
            self.ready.notify_all();
        }
    }

    /// Waits until a check is prepared.
    pub fn take(&self, i: usize) -> Result<(Prepared, Compiled), String> {
        let mut state = self.lock();
        loop {
            if let Some(prepared) = state.done[i].take() {
                return prepared;
            }
            state = self.ready.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The first lines of a compiler's log, on one line.
pub fn brief(text: &str) -> String {
    let mut lines: VecDeque<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines.truncate(6);
    lines.make_contiguous().join(" | ").chars().take(600).collect()
}
