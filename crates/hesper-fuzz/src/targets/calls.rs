//! Sequences of calls: random programs over arrays, built lazily, evaluated on several streams and threads,
//! compiled, differentiated, under changing memory limits, with caches cleared and streams cancelled.
//!
//! Every array has an eager copy that is computed at once, op by op and without fusion, on the host. The
//! array must have the same bits, or be an error after an injected failure. On the simulated device the order
//! is adversarial, calls fail on demand, and the validation layer is on.

use std::sync::Arc;

use hesper::{Array, Dtype, Result, concatenate, eval, placement, transform};
use hesper_runtime::sim::{Failure, Rng, Sim};
use hesper_runtime::{Runtime, Stream};

use crate::choices::Choices;
use crate::engine::{Target, Verdict};

/// The ops of generated programs.
#[path = "../../../hesper/tests/generated/mod.rs"]
mod generated;
/// The executor of the simulated device.
#[path = "../../../hesper/tests/sim/mod.rs"]
mod interpreter;

use generated::Op;
use interpreter::interpret;

/// The numbers of unary and binary functions that the corpus encodes; the tables may have more.
const UNARY_OPS: usize = 12;
const BINARY_OPS: usize = 6;
/// The most elements of an array.
const MAX_SIZE: usize = 512;

/// Sequences of calls on the host, or on the simulated device.
pub struct Calls {
    /// Whether the device is the simulated one.
    pub simulated: bool,
}

/// One step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    /// Builds an array.
    Build(Op),
    /// Builds an array on the other stream.
    BuildOnOther(Op),
    /// Calls a compiled function of two arrays, twice.
    Compiled(usize, usize, Vec<Op>),
    /// Calls a compiled gradient.
    Gradient(usize, usize, Vec<Op>),
    /// Calls a vectorised function.
    Vmapped(usize, Vec<Op>),
    Eval(usize),
    AsyncEval(usize, usize),
    Read(usize),
    Drop(usize),
    /// Evaluates two arrays on two threads.
    Threads(usize, usize),
    ClearCache,
    /// Evaluates an array under a low memory limit, then without it.
    LowMemory(usize, usize),
    /// Cancels commands that have not started.
    Cancel,
    Synchronize,
}

/// Reads an op on the last of `count` arrays.
fn read_op(choices: &mut Choices<'_>, count: usize) -> Op {
    let mut one = || count - 1 - choices.below(count.min(6));
    let (a, b, c) = (one(), one(), one());
    match choices.below(20) {
        0 | 1 => Op::Unary(choices.below(UNARY_OPS), a),
        2 | 3 => Op::Binary(choices.below(BINARY_OPS), a, b),
        4 => Op::Scale(a, choices.below(9) as f32 / 4.0 - 1.0),
        5 => Op::Select(a, b, c),
        6 => Op::Cast(a, choices.pick(&[Dtype::Float16, Dtype::Bfloat16, Dtype::Int32])),
        7 => Op::Transpose(a),
        8 => Op::Slice(a, choices.pick(&[1, -1, 2])),
        9 => Op::Flatten(a),
        10 => Op::Broadcast(a),
        11 | 12 => Op::Reduce(a, choices.below(4), -1 - choices.below(2) as isize),
        13 => Op::Matmul(a),
        14 => Op::Concatenate(a, b),
        15 | 16 => Op::Update(a, b),
        17 => [Op::Sort(a), Op::Take(a)][choices.below(2)].clone(),
        18 => [Op::Cumsum(a), Op::Norm(a)][choices.below(2)].clone(),
        _ => Op::Kernel(choices.below(3), a),
    }
}

impl Step {
    fn read(choices: &mut Choices<'_>, count: usize) -> Step {
        let function = |choices: &mut Choices<'_>| -> Vec<Op> {
            (0..1 + choices.below(5)).map(|n| read_op(choices, 2 + n)).collect()
        };
        let kind = choices.below(32);
        let a = count - 1 - choices.below(count.min(6));
        let b = choices.below(count);
        match kind {
            0..=10 => Step::Build(read_op(choices, count)),
            11..=14 => Step::BuildOnOther(read_op(choices, count)),
            15 | 16 => Step::Compiled(a, b, function(choices)),
            17 => Step::Gradient(a, b, function(choices)),
            18 => Step::Vmapped(a, function(choices)),
            19 | 20 => Step::Eval(a),
            21 | 22 => Step::AsyncEval(a, b),
            23 => Step::Read(a),
            24 | 25 => Step::Drop(b),
            26 => Step::Threads(a, b),
            27 | 28 => Step::ClearCache,
            29 => Step::LowMemory(a, choices.below(6)),
            30 => Step::Cancel,
            _ => Step::Synchronize,
        }
    }
}

/// A sequence and the configuration of its device.
#[derive(Debug)]
struct Sequence {
    seed: u64,
    /// The number of the device call that fails.
    failure: Option<u64>,
    steps: Vec<Step>,
}

impl Sequence {
    fn read(input: &[u8], simulated: bool) -> Sequence {
        let mut choices = Choices::new(input);
        let seed = choices.below(1 << 16) as u64;
        let failure = (simulated && choices.one_in(3)).then(|| choices.below(300) as u64);
        let mut steps = Vec::new();
        let mut count = INPUTS;
        while !choices.is_empty() && steps.len() < 60 {
            let step = Step::read(&mut choices, count);
            count += usize::from(step.builds_array());
            steps.push(step);
        }
        Sequence { seed, failure, steps }
    }
}

impl Step {
    fn builds_array(&self) -> bool {
        matches!(
            self,
            Step::Build(_)
                | Step::BuildOnOther(_)
                | Step::Compiled(..)
                | Step::Gradient(..)
                | Step::Vmapped(..)
        )
    }
}

const INPUTS: usize = 3;

/// An array and its eager copy.
struct Pair {
    lazy: Option<Array>,
    eager: Array,
}

/// The state of a run.
struct Run {
    runtime: Runtime,
    streams: [Stream; 2],
    pairs: Vec<Pair>,
    /// Whether a failure was injected, so that errors are valid.
    may_fail: bool,
}

/// Applies a list of ops.
fn apply_all(ops: &[Op], inputs: &[Array]) -> Result<Array> {
    let mut all = inputs.to_vec();
    for op in ops {
        all.push(op.apply(&all, MAX_SIZE)?);
    }
    Ok(all.swap_remove(all.len() - 1))
}

/// Applies a list of ops and evaluates each.
fn apply_eagerly(ops: &[Op], inputs: &[Array]) -> Result<Array> {
    let mut all = inputs.to_vec();
    for op in ops {
        let array = op.apply(&all, MAX_SIZE)?;
        array.eval()?;
        all.push(array);
    }
    Ok(all.swap_remove(all.len() - 1))
}

/// Runs `f` on the host without fusion.
fn on_host<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let stream = placement::default_stream(placement::Device::Cpu)?;
    eval::set_fusion(false);
    let result = placement::with_stream(&stream, f);
    eval::set_fusion(true);
    result
}

fn gradient(ops: &[Op]) -> impl Fn(&[Array]) -> Result<Vec<Array>> + '_ {
    let loss = |x: &[Array]| apply_all(ops, x)?.tanh()?.sum(());
    transform::grad(loss, &[0])
}

/// The bits of an array, with one value for all NaNs.
fn bits(array: &Array) -> Result<Vec<u32>> {
    let list = array.to_vec::<f32>()?;
    Ok(list.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect())
}

impl Run {
    /// The last array at or before an index that is not dropped.
    fn live_before(&self, at: usize) -> Option<usize> {
        (0..=at).rev().find(|at| self.pairs[*at].lazy.is_some())
    }

    fn lazy(&self, at: usize) -> Option<Array> {
        self.pairs[self.live_before(at)?].lazy.clone()
    }

    /// The inputs of an op: eager copies replace dropped arrays.
    fn visible(&self) -> Vec<Array> {
        self.pairs.iter().map(|pair| pair.lazy.clone().unwrap_or_else(|| pair.eager.clone())).collect()
    }

    fn eager_arrays(&self) -> Vec<Array> {
        self.pairs.iter().map(|pair| pair.eager.clone()).collect()
    }

    /// Checks an outcome: an error is valid only after an injected failure.
    fn outcome<T>(&self, what: &str, outcome: Result<T>) -> std::result::Result<Option<T>, String> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.to_string().contains("panic") => Err(format!("{what}: {error}")),
            Err(_) if self.may_fail => Ok(None),
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    fn check(&self, at: usize) -> std::result::Result<(), String> {
        let pair = &self.pairs[at];
        let Some(lazy) = &pair.lazy else { return Ok(()) };
        let Some(found) = self.outcome(&format!("array {at}"), bits(lazy))? else { return Ok(()) };
        let wanted = bits(&pair.eager).map_err(|error| format!("the eager copy of array {at}: {error}"))?;
        if (lazy.shape(), &found) != (pair.eager.shape(), &wanted) {
            let floats = |bits: &[u32]| bits.iter().map(|x| f32::from_bits(*x)).collect::<Vec<_>>();
            return Err(format!("array {at}: {:?} instead of {:?}", floats(&found), floats(&wanted)));
        }
        Ok(())
    }

    /// Adds an array and its eager copy.
    fn push(
        &mut self,
        stream: usize,
        lazy: impl FnOnce(&[Array]) -> Result<Array>,
        eager: impl FnOnce(&[Array]) -> Result<Array>,
    ) -> std::result::Result<(), String> {
        let eager = on_host(|| {
            let eager = eager(&self.eager_arrays())?;
            eager.eval()?;
            Ok(eager)
        })
        .map_err(|error| format!("the eager copy: {error}"))?;
        let visible = self.visible();
        let lazy = placement::with_stream(&self.streams[stream], || lazy(&visible));
        let lazy = self.outcome("building", lazy)?;
        self.pairs.push(Pair { lazy, eager });
        Ok(())
    }

    fn step(&mut self, step: &Step) -> std::result::Result<(), String> {
        match step {
            Step::Build(op) => self.push(0, |all| op.apply(all, MAX_SIZE), |all| op.apply(all, MAX_SIZE))?,
            Step::BuildOnOther(op) => {
                self.push(1, |all| op.apply(all, MAX_SIZE), |all| op.apply(all, MAX_SIZE))?
            }
            Step::Compiled(a, b, ops) => {
                let own = ops.clone();
                let compiled = transform::compile(move |x: &[Array]| Ok(vec![apply_all(&own, x)?]));
                self.push(
                    0,
                    |all| {
                        // A temporary may be donated; an array that the program holds may not.
                        let first = compiled(&[all[*a].clone(), all[*b].clone()])?.swap_remove(0);
                        hesper::async_eval([&first])?;
                        let temporary = all[*a].add(0.0)?;
                        let again = compiled(&[temporary, all[*b].clone()])?.swap_remove(0);
                        drop(first);
                        Ok(again)
                    },
                    |all| apply_eagerly(ops, &[all[*a].add(0.0)?, all[*b].clone()]),
                )?;
            }
            Step::Gradient(a, b, ops) => {
                if !ops.iter().all(Op::is_transformable) {
                    return self.step(&Step::Compiled(*a, *b, ops.clone()));
                }
                let own = ops.clone();
                let compiled = transform::compile(move |x: &[Array]| gradient(&own)(x));
                self.push(
                    0,
                    |all| Ok(compiled(&[all[*a].clone(), all[*b].clone()])?.swap_remove(0)),
                    |all| Ok(gradient(ops)(&[all[*a].clone(), all[*b].clone()])?.swap_remove(0)),
                )?;
            }
            Step::Vmapped(a, ops) => {
                let batch = |all: &[Array]| -> Result<Vec<Array>> {
                    let x = all[*a].reshape(&[-1])?;
                    Ok(vec![concatenate(&[x.expand_dims(0)?, x.multiply(0.5)?.expand_dims(0)?], 0)?])
                };
                let batched = |op: &Op| match op {
                    Op::Kernel(which, a) => Op::Unary(*which, *a),
                    other => other.clone(),
                };
                let ops: Vec<Op> = ops.iter().map(batched).collect();
                let own = &ops;
                let row = |x: &[Array]| Ok(vec![apply_all(own, &[x[0].clone(), x[0].clone()])?]);
                let compiled = |all: &[Array]| {
                    Ok(transform::compile(transform::vmap(row, &[Some(0)], &[Some(0)]))(&batch(all)?)?
                        .swap_remove(0))
                };
                let plain = |all: &[Array]| {
                    Ok(transform::vmap(row, &[Some(0)], &[Some(0)])(&batch(all)?)?.swap_remove(0))
                };
                self.push(1, compiled, plain)?;
            }
            Step::Eval(a) => {
                let Some(array) = self.lazy(*a) else { return Ok(()) };
                self.outcome("eval", array.eval())?;
            }
            Step::AsyncEval(a, b) => {
                let arrays: Vec<Array> = [a, b].into_iter().filter_map(|at| self.lazy(*at)).collect();
                self.outcome("async_eval", hesper::async_eval(&arrays))?;
            }
            Step::Read(a) => {
                if let Some(at) = self.live_before(*a) {
                    self.check(at)?;
                }
            }
            Step::Drop(at) => self.pairs[*at].lazy = None,
            Step::Threads(a, b) => self.threads(&[*a, *b])?,
            Step::ClearCache => self.runtime.clear_cache(),
            Step::LowMemory(a, left) => self.evaluate_with_low_memory(*a, *left)?,
            Step::Cancel => {
                self.streams[0].cancel();
                self.may_fail = true;
            }
            Step::Synchronize => {
                let outcome = self.runtime.synchronize().map_err(hesper::Error::from);
                self.outcome("synchronize", outcome)?;
            }
        }
        Ok(())
    }

    /// Evaluates arrays on other threads while this one reads another.
    fn threads(&mut self, which: &[usize]) -> std::result::Result<(), String> {
        let arrays: Vec<Array> = which.iter().filter_map(|at| self.lazy(*at)).collect();
        let outcomes = std::thread::scope(|scope| {
            let started: Vec<_> = arrays
                .iter()
                .map(|array| {
                    let array = array.clone();
                    scope.spawn(move || array.eval())
                })
                .collect();
            let own = self.live_before(0).map_or(Ok(()), |at| self.check(at));
            let joined: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
            own.map(|()| joined)
        })?;
        for outcome in outcomes {
            let outcome = outcome.map_err(|_| "a thread panicked".to_string())?;
            self.outcome("eval on a thread", outcome)?;
        }
        Ok(())
    }

    /// Evaluates under a memory limit, then without it: the result is right, or an error again.
    fn evaluate_with_low_memory(&mut self, a: usize, left: usize) -> std::result::Result<(), String> {
        let Some(at) = self.live_before(a) else { return Ok(()) };
        let Some(array) = self.pairs[at].lazy.clone() else { return Ok(()) };
        let outcome = self.runtime.synchronize().map_err(hesper::Error::from);
        self.outcome("synchronize", outcome)?;
        // Raise the limit step by step, so that each allocation fails once.
        for more in left..left + 12 {
            self.runtime.clear_cache();
            let old = self.runtime.set_memory_limit(self.runtime.counters().active + more * 64);
            let outcome = array.eval();
            self.runtime.set_memory_limit(old);
            let Err(error) = outcome else { break };
            if error.to_string().contains("panic") {
                return Err(error.to_string());
            }
            // An op that overwrote an input before it failed stays failed; everything else can be evaluated
            // again.
            self.may_fail = true;
            if more % 4 == 3 {
                self.check(at)?;
            }
        }
        self.check(at)
    }
}

fn random_array(rng: &mut Rng, shape: &[usize]) -> Result<Array> {
    let list: Vec<f32> = (0..shape.iter().product()).map(|_| rng.below(4001) as f32 / 1000.0 - 2.0).collect();
    Array::try_from_slice(&list, shape)
}

impl Target for Calls {
    fn name(&self) -> &'static str {
        if self.simulated { "simulated" } else { "calls" }
    }

    fn about(&self) -> &'static str {
        if self.simulated {
            "sequences of calls on the simulated device, with failures, against eager evaluation"
        } else {
            "sequences of calls on the host, with limits, threads and cancellation, against eager evaluation"
        }
    }

    fn generate(&self, rng: &mut Rng) -> Vec<u8> {
        let length = 20 + rng.below(400);
        rng.bytes(length)
    }

    fn run(&self, input: &[u8]) -> std::result::Result<Verdict, String> {
        let sequence = Sequence::read(input, self.simulated);
        let sim = self.simulated.then(|| {
            let builder = Sim::builder(sequence.seed).executor(Arc::new(interpret));
            let builder = builder.batch(1 + sequence.seed as usize % 7);
            match sequence.failure {
                Some(number) => builder.fail(Failure::Any(number)).build(),
                None => builder.build(),
            }
        });
        let runtime = match &sim {
            Some(sim) => Runtime::builder(sim.clone()).validate(true).build(),
            None => placement::cpu().clone(),
        };
        let (Ok(one), Ok(other)) = (runtime.stream(), runtime.stream()) else { return Ok(Verdict::Refused) };
        let mut run =
            Run { runtime, streams: [one, other], pairs: Vec::new(), may_fail: sequence.failure.is_some() };
        let mut rng = Rng::new(sequence.seed);
        for shape in [&[2, 3][..], &[3], &[2, 1]] {
            let array = random_array(&mut rng, shape).map_err(|error| error.to_string())?;
            run.pairs.push(Pair { lazy: Some(array.clone()), eager: array });
        }
        for step in &sequence.steps {
            run.step(step).map_err(|why| format!("{why}\nin {step:?}"))?;
        }
        for at in 0..run.pairs.len() {
            run.check(at).map_err(|why| format!("{why}\nat the end"))?;
        }
        if let Some(sim) = &sim {
            let _ = run.runtime.synchronize();
            if let Some(violation) = sim.violations().first() {
                return Err(format!("the simulator: {violation:?}"));
            }
            if let Some(violation) =
                run.runtime.validation().and_then(|report| report.violations().first().cloned())
            {
                return Err(format!("the validation layer: {violation:?}"));
            }
        }
        Ok(Verdict::Accepted)
    }

    fn describe(&self, input: &[u8]) -> String {
        let sequence = Sequence::read(input, self.simulated);
        let steps: String =
            sequence.steps.iter().enumerate().map(|(at, step)| format!("{at}: {step:?}\n")).collect();
        format!("seed {}, failure {:?}\n{steps}", sequence.seed, sequence.failure)
    }
}
