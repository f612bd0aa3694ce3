//! Sequences of calls: random programs over arrays, lazily built, evaluated on several streams and threads, compiled,
//! differentiated, under memory limits that come and go, with caches cleared and streams cancelled.
//!
//! Every array has a twin that is computed at once, op by op and without fusion, on the host. An array has its twin's bits, or
//! is an error where something failed on purpose. On the simulated device the order is adversarial, calls fail on demand, and
//! the validation layer looks on.

use std::sync::Arc;

use hesper::{Array, CustomKernel, Dtype, Result, concatenate, eval, fast, place, select, transform};
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::sim::{Failure, Sim};
use hesper_runtime::{Dispatch, PipelineSource, Runtime, Stream, View};

use crate::engine::{Target, Verdict};
use crate::random::{Choices, Random};

/// Sequences of calls on the host, or on the simulated device.
pub struct Calls {
    /// Whether the device is the simulated one.
    pub simulated: bool,
}

/// One op: of arrays that are there already it makes one more.
#[derive(Debug, Clone)]
enum Op {
    Unary(usize, usize),
    Binary(usize, usize, usize),
    Scaled(usize, f32),
    Choice(usize, usize, usize),
    Cast(usize, Dtype),
    Turned(usize),
    Cut(usize, isize),
    Flat(usize),
    Stretched(usize),
    Reduced(usize, usize, isize),
    Product(usize),
    Joined(usize, usize),
    Updated(usize, usize),
    Sorted(usize),
    Running(usize),
    Taken(usize),
    Norm(usize),
    Kernel(usize, usize),
}

/// One step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    /// Builds an array.
    Build(Op),
    /// Builds an array on the other stream.
    Elsewhere(Op),
    /// Calls a compiled function of two arrays, twice.
    Compiled(usize, usize, Vec<Op>),
    /// Calls a compiled gradient.
    Gradient(usize, usize, Vec<Op>),
    /// Maps a function over the first axis of two arrays.
    Mapped(usize, Vec<Op>),
    Eval(usize),
    AsyncEval(usize, usize),
    Read(usize),
    Drop(usize),
    /// Evaluates two arrays on threads of their own.
    Threads(usize, usize),
    ClearCache,
    ClearPipelines,
    /// Evaluates an array with hardly any memory left, then again with enough.
    Starved(usize, usize),
    /// Cancels what the stream has not begun.
    Cancel,
    Synchronize,
}

const UNARY: [fn(&Array) -> Result<Array>; 12] = [
    |x| x.sin(),
    |x| x.tanh(),
    |x| x.sigmoid(),
    |x| x.square(),
    |x| x.negative(),
    |x| x.abs()?.add(0.5)?.sqrt(),
    |x| x.abs()?.add(1.0)?.log(),
    |x| x.square()?.add(1.0)?.rsqrt(),
    |x| x.erf(),
    |x| x.sign()?.multiply(x),
    |x| x.floor()?.add(x),
    |x| x.add(x)?.add(x),
];

const BINARY: [fn(&Array, &Array) -> Result<Array>; 6] = [
    |x, y| x.add(y),
    |x, y| x.subtract(y),
    |x, y| x.multiply(y),
    |x, y| x.maximum(y),
    |x, y| x.divide(y.square()?.add(1.0)?),
    |x, y| x.logaddexp(y),
];

impl Op {
    fn read(choices: &mut Choices<'_>, count: usize) -> Op {
        let mut one = || count - 1 - choices.below(count.min(6));
        let (a, b, c) = (one(), one(), one());
        match choices.below(20) {
            0 | 1 => Op::Unary(choices.below(UNARY.len()), a),
            2 | 3 => Op::Binary(choices.below(BINARY.len()), a, b),
            4 => Op::Scaled(a, choices.below(9) as f32 / 4.0 - 1.0),
            5 => Op::Choice(a, b, c),
            6 => Op::Cast(a, choices.pick(&[Dtype::Float16, Dtype::Bfloat16, Dtype::Int32])),
            7 => Op::Turned(a),
            8 => Op::Cut(a, choices.pick(&[1, -1, 2])),
            9 => Op::Flat(a),
            10 => Op::Stretched(a),
            11 | 12 => Op::Reduced(a, choices.below(4), -1 - choices.below(2) as isize),
            13 => Op::Product(a),
            14 => Op::Joined(a, b),
            15 | 16 => Op::Updated(a, b),
            17 => [Op::Sorted(a), Op::Taken(a)][choices.below(2)].clone(),
            18 => [Op::Running(a), Op::Norm(a)][choices.below(2)].clone(),
            _ => Op::Kernel(choices.below(3), a),
        }
    }

    /// Applies it, each intermediate value bounded in size and number.
    fn apply(&self, all: &[Array]) -> Result<Array> {
        let made = self.raw(all)?;
        let made = if made.size() > 512 { made.mean(None, true)? } else { made };
        made.clip(Some(-1e3), Some(1e3))
    }

    fn raw(&self, all: &[Array]) -> Result<Array> {
        match self {
            Op::Unary(which, a) => UNARY[*which](&all[*a]),
            Op::Binary(which, a, b) => BINARY[*which](&all[*a], &fitted(&all[*a], &all[*b])?),
            Op::Scaled(a, by) => all[*a].multiply(*by)?.add(0.25),
            Op::Choice(a, b, c) => {
                let (x, y) = (&all[*a], fitted(&all[*a], &all[*b])?);
                select(&fitted(x, &all[*c])?.greater(0.0)?, x, &y)
            }
            Op::Cast(a, dtype) => all[*a].multiply(3.0)?.astype(*dtype)?.astype(Dtype::Float32),
            Op::Turned(a) => matrix(&all[*a])?.swapaxes(-1, -2),
            Op::Cut(a, step) => cut(&matrix(&all[*a])?, *step),
            Op::Flat(a) => all[*a].reshape(&[-1]),
            Op::Stretched(a) => {
                let x = matrix(&all[*a])?.mean(Some(&[-2]), true)?;
                let mut shape = x.shape().to_vec();
                let rows = shape.len() - 2;
                shape[rows] = 2;
                x.broadcast_to(&shape)
            }
            Op::Reduced(a, kind, axis) => {
                let (x, over) = (matrix(&all[*a])?, Some(&[*axis][..]));
                match kind {
                    0 => x.sum(over, true),
                    1 => x.max(over, true),
                    2 => x.mean(over, false),
                    _ => x.softmax(over, false),
                }
            }
            Op::Product(a) => {
                let x = matrix(&all[*a])?;
                x.matmul(&x.swapaxes(-1, -2)?)
            }
            Op::Joined(a, b) => {
                let x = matrix(&all[*a])?;
                let y = fitted(&x, &all[*b])?.broadcast_to(x.shape())?;
                concatenate(&[x, y], -2)
            }
            Op::Updated(a, b) => {
                let x = matrix(&all[*a])?;
                let rank = x.ndim();
                let y = fitted(&x, &all[*b])?.broadcast_to(x.shape())?;
                let mut stop: Vec<isize> = x.shape().iter().map(|n| *n as isize).collect();
                stop[rank - 2] = 1;
                let part = y.slice(&vec![0; rank], &stop, &vec![1; rank])?;
                x.slice_update(&part, &vec![0; rank], &stop, &vec![1; rank])
            }
            Op::Sorted(a) => matrix(&all[*a])?.sort(Some(-1)),
            Op::Running(a) => matrix(&all[*a])?.cumsum(Some(-1), false, true),
            Op::Taken(a) => matrix(&all[*a])?.take(Array::from_slice(&[0, -1, 0]), Some(-1)),
            Op::Norm(a) => fast::rms_norm(&matrix(&all[*a])?, None, 1e-5),
            Op::Kernel(which, a) => kernel(*which, &all[*a]),
        }
    }

    /// Whether it has a derivative and a batch of its own.
    fn is_smooth(&self) -> bool {
        !matches!(self, Op::Kernel(..))
    }
}

/// One name for three kernels.
fn kernel(which: usize, x: &Array) -> Result<Array> {
    let text = [
        "uint i = thread_position_in_grid.x; out[i] = x[i] + 0.5f;",
        "uint i = thread_position_in_grid.x; out[i] = x[i] * x[i];",
        "uint i = thread_position_in_grid.x; out[i] = i % 2 == 0 ? x[i] : -x[i];",
    ][which];
    let kernel = CustomKernel::new("step", &["x"], &["out"], text)?;
    // Enough elements not to be a constant, so that all three have one signature.
    let flat = concatenate(&[x.reshape(&[-1])?, Array::zeros(&[8], Dtype::Float32)?], 0)?;
    let n = flat.size() as u64;
    let call = kernel.call(&[flat]).grid([n, 1, 1]).threadgroup([32, 1, 1]);
    Ok(call.output(&[n as usize], Dtype::Float32).run()?.swap_remove(0))
}

fn matrix(x: &Array) -> Result<Array> {
    match x.ndim() {
        0 => x.reshape(&[1, 1]),
        1 => x.expand_dims(&[0]),
        _ => Ok(x.clone()),
    }
}

/// The second array cut or stretched so that it fits the first.
fn fitted(x: &Array, y: &Array) -> Result<Array> {
    let fits = y.ndim() <= x.ndim()
        && y.shape().iter().rev().zip(x.shape().iter().rev()).all(|(one, other)| one == other || *one == 1);
    if fits { Ok(y.clone()) } else { y.mean(None, false) }
}

fn cut(x: &Array, step: isize) -> Result<Array> {
    let last = x.ndim() - 1;
    let length = x.shape()[last] as isize;
    let (mut start, mut stop) =
        (vec![0; last + 1], x.shape().iter().map(|n| *n as isize).collect::<Vec<_>>());
    if step < 0 {
        (start[last], stop[last]) = (length - 1, -length - 1);
    }
    let mut steps = vec![1; last + 1];
    steps[last] = step;
    x.slice(&start, &stop, &steps)
}

impl Step {
    fn read(choices: &mut Choices<'_>, count: usize) -> Step {
        let function = |choices: &mut Choices<'_>| -> Vec<Op> {
            (0..1 + choices.below(5)).map(|n| Op::read(choices, 2 + n)).collect()
        };
        let kind = choices.below(32);
        let a = count - 1 - choices.below(count.min(6));
        let b = choices.below(count);
        match kind {
            0..=10 => Step::Build(Op::read(choices, count)),
            11..=14 => Step::Elsewhere(Op::read(choices, count)),
            15 | 16 => Step::Compiled(a, b, function(choices)),
            17 => Step::Gradient(a, b, function(choices)),
            18 => Step::Mapped(a, function(choices)),
            19 | 20 => Step::Eval(a),
            21 | 22 => Step::AsyncEval(a, b),
            23 => Step::Read(a),
            24 | 25 => Step::Drop(b),
            26 => Step::Threads(a, b),
            27 => Step::ClearCache,
            28 => Step::ClearPipelines,
            29 => Step::Starved(a, choices.below(6)),
            30 => Step::Cancel,
            _ => Step::Synchronize,
        }
    }
}

/// A sequence, and the device it runs on.
#[derive(Debug)]
struct Sequence {
    seed: u64,
    /// The call of the simulated device that fails.
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
            count += usize::from(step.makes());
            steps.push(step);
        }
        Sequence { seed, failure, steps }
    }
}

impl Step {
    fn makes(&self) -> bool {
        matches!(
            self,
            Step::Build(_) | Step::Elsewhere(_) | Step::Compiled(..) | Step::Gradient(..) | Step::Mapped(..)
        )
    }
}

const INPUTS: usize = 3;

/// An array, and the one that is computed at once.
struct Pair {
    lazy: Option<Array>,
    twin: Array,
}

/// The state of a run.
struct Run {
    runtime: Runtime,
    streams: [Stream; 2],
    pairs: Vec<Pair>,
    /// Whether something failed on purpose, so that errors are right.
    spoilt: bool,
}

/// Applies a function of ops to two arrays.
fn apply_all(ops: &[Op], inputs: &[Array]) -> Result<Array> {
    let mut all = inputs.to_vec();
    for op in ops {
        all.push(op.apply(&all)?);
    }
    Ok(all.swap_remove(all.len() - 1))
}

/// The same, evaluated op by op.
fn apply_eagerly(ops: &[Op], inputs: &[Array]) -> Result<Array> {
    let mut all = inputs.to_vec();
    for op in ops {
        let made = op.apply(&all)?;
        made.eval()?;
        all.push(made);
    }
    Ok(all.swap_remove(all.len() - 1))
}

/// Runs `f` on the host without fusion.
fn on_host<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let stream = place::default_stream(place::Device::Cpu)?;
    eval::set_fusion(false);
    let made = place::with_stream(&stream, f);
    eval::set_fusion(true);
    made
}

fn gradient(ops: &[Op]) -> impl Fn(&[Array]) -> Result<Vec<Array>> + '_ {
    let loss = |x: &[Array]| apply_all(ops, x)?.tanh()?.sum(None, false);
    transform::grad(loss, &[0])
}

/// Bits, all NaNs being one.
fn bits(array: &Array) -> Result<Vec<u32>> {
    let list = array.to_vec::<f32>()?;
    Ok(list.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect())
}

impl Run {
    /// The last array that is still held, at or before a place.
    fn held(&self, at: usize) -> Option<usize> {
        (0..=at).rev().find(|at| self.pairs[*at].lazy.is_some())
    }

    fn lazy(&self, at: usize) -> Option<Array> {
        self.pairs[self.held(at)?].lazy.clone()
    }

    /// The arrays that an op can see: those gone are their twins.
    fn visible(&self) -> Vec<Array> {
        self.pairs.iter().map(|pair| pair.lazy.clone().unwrap_or_else(|| pair.twin.clone())).collect()
    }

    fn twins(&self) -> Vec<Array> {
        self.pairs.iter().map(|pair| pair.twin.clone()).collect()
    }

    /// Takes an outcome: an error is right only if something failed on purpose.
    fn outcome<T>(&self, what: &str, outcome: Result<T>) -> std::result::Result<Option<T>, String> {
        match outcome {
            Ok(made) => Ok(Some(made)),
            Err(error) if error.to_string().contains("panic") => Err(format!("{what}: {error}")),
            Err(_) if self.spoilt => Ok(None),
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    fn check(&self, at: usize) -> std::result::Result<(), String> {
        let pair = &self.pairs[at];
        let Some(lazy) = &pair.lazy else { return Ok(()) };
        let Some(found) = self.outcome(&format!("array {at}"), bits(lazy))? else { return Ok(()) };
        let wanted = bits(&pair.twin).map_err(|error| format!("twin {at}: {error}"))?;
        if (lazy.shape(), &found) != (pair.twin.shape(), &wanted) {
            let numbers = |bits: &[u32]| bits.iter().map(|x| f32::from_bits(*x)).collect::<Vec<_>>();
            return Err(format!("array {at}: {:?} instead of {:?}", numbers(&found), numbers(&wanted)));
        }
        Ok(())
    }

    /// Adds an array and its twin.
    fn push(
        &mut self,
        stream: usize,
        lazy: impl FnOnce(&[Array]) -> Result<Array>,
        twin: impl FnOnce(&[Array]) -> Result<Array>,
    ) -> std::result::Result<(), String> {
        let twin = on_host(|| {
            let twin = twin(&self.twins())?;
            twin.eval()?;
            Ok(twin)
        })
        .map_err(|error| format!("the twin: {error}"))?;
        let visible = self.visible();
        let lazy = place::with_stream(&self.streams[stream], || lazy(&visible));
        let lazy = self.outcome("building", lazy)?;
        self.pairs.push(Pair { lazy, twin });
        Ok(())
    }

    fn step(&mut self, step: &Step) -> std::result::Result<(), String> {
        match step {
            Step::Build(op) => self.push(0, |all| op.apply(all), |all| op.apply(all))?,
            Step::Elsewhere(op) => self.push(1, |all| op.apply(all), |all| op.apply(all))?,
            Step::Compiled(a, b, ops) => {
                let own = ops.clone();
                let compiled = transform::compile(move |x: &[Array]| Ok(vec![apply_all(&own, x)?]));
                self.push(
                    0,
                    |all| {
                        // A temporary may be overwritten; what the program holds may not.
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
                if !ops.iter().all(Op::is_smooth) {
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
            Step::Mapped(a, ops) => {
                let batch = |all: &[Array]| -> Result<Vec<Array>> {
                    let x = all[*a].reshape(&[-1])?;
                    Ok(vec![concatenate(&[x.expand_dims(&[0])?, x.multiply(0.5)?.expand_dims(&[0])?], 0)?])
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
                if let Some(at) = self.held(*a) {
                    self.check(at)?;
                }
            }
            Step::Drop(at) => self.pairs[*at].lazy = None,
            Step::Threads(a, b) => self.threads(&[*a, *b])?,
            Step::ClearCache => self.runtime.clear_cache(),
            Step::ClearPipelines => self.runtime.clear_pipelines(),
            Step::Starved(a, left) => self.starve(*a, *left)?,
            Step::Cancel => {
                self.streams[0].cancel();
                self.spoilt = true;
            }
            Step::Synchronize => {
                let outcome = self.runtime.synchronize().map_err(hesper::Error::from);
                self.outcome("synchronize", outcome)?;
            }
        }
        Ok(())
    }

    /// Evaluates arrays on threads of their own while this one reads another.
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
            let own = self.held(0).map_or(Ok(()), |at| self.check(at));
            let joined: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
            own.map(|()| joined)
        })?;
        for outcome in outcomes {
            let outcome = outcome.map_err(|_| "a thread panicked".to_string())?;
            self.outcome("eval on a thread", outcome)?;
        }
        Ok(())
    }

    /// Evaluates under a limit, then without it: the numbers are right, or it is an error again.
    fn starve(&mut self, a: usize, left: usize) -> std::result::Result<(), String> {
        let Some(at) = self.held(a) else { return Ok(()) };
        let Some(array) = self.pairs[at].lazy.clone() else { return Ok(()) };
        let outcome = self.runtime.synchronize().map_err(hesper::Error::from);
        self.outcome("synchronize", outcome)?;
        // A little more each time, so that it fails at one allocation after the other.
        for more in left..left + 12 {
            self.runtime.clear_cache();
            let old = self.runtime.set_memory_limit(self.runtime.counters().active + more * 64);
            let starved = array.eval();
            self.runtime.set_memory_limit(old);
            let Err(error) = starved else { break };
            if error.to_string().contains("panic") {
                return Err(error.to_string());
            }
            // What overwrote its inputs before it failed stays failed; everything else can be evaluated again.
            self.spoilt = true;
            if more % 4 == 3 {
                self.check(at)?;
            }
        }
        self.check(at)
    }
}

fn numbers(random: &mut Random, shape: &[usize]) -> Result<Array> {
    let list: Vec<f32> =
        (0..shape.iter().product()).map(|_| random.below(4001) as f32 / 1000.0 - 2.0).collect();
    Array::try_from_slice(&list, shape)
}

/// Runs a kernel of the kernel language as its reference interpreter does.
fn interpret(
    source: &PipelineSource,
    dispatch: &Dispatch,
    views: &mut [View<'_>],
) -> std::result::Result<(), String> {
    let kernel = source.payload.as_ref().and_then(|payload| payload.downcast_ref::<Kernel>());
    let kernel = kernel.ok_or_else(|| format!("{} is no kernel of the language", source.language))?;
    let mut views = views.iter_mut();
    let mut constants: &[u8] = &dispatch.constants;
    let mut list = Vec::new();
    for param in &kernel.params {
        list.push(match &param.kind {
            ParamKind::Value(ty) => {
                let size = ty.size() as usize;
                let bytes = constants.get(..size).ok_or("a constant is missing")?;
                constants = constants.get(size.next_multiple_of(8)..).unwrap_or_default();
                Arg::read(bytes)
            }
            ParamKind::Buffer { .. } => {
                let view = views.next().ok_or("a buffer is missing")?;
                if view.access().writes() {
                    Arg::write(view.bytes_mut().map_err(|error| error.message)?)
                } else {
                    Arg::read(view.bytes().map_err(|error| error.message)?)
                }
            }
        });
    }
    let mut bindings = Bindings::new(list).map_err(|error| error.to_string())?;
    let launch = Launch::new(dispatch.grid, dispatch.threadgroup).map_err(|error| error.to_string())?;
    let outcome = interp::run(kernel, &launch, &mut bindings, &interp::Options::default());
    outcome.map(|_| ()).map_err(|error| error.to_string())
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

    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let length = 20 + random.below(400);
        random.bytes(length)
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
            None => place::cpu().clone(),
        };
        let (Ok(one), Ok(other)) = (runtime.stream(), runtime.stream()) else { return Ok(Verdict::Refused) };
        let mut run =
            Run { runtime, streams: [one, other], pairs: Vec::new(), spoilt: sequence.failure.is_some() };
        let mut random = Random::new(sequence.seed);
        for shape in [&[2, 3][..], &[3], &[2, 1]] {
            let made = numbers(&mut random, shape).map_err(|error| error.to_string())?;
            run.pairs.push(Pair { lazy: Some(made.clone()), twin: made });
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
