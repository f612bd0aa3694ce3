//! Kernels whose slots are filled with element-wise ops: the same bits as op by op, for every template.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hesper::eval::{self, StepKind};
use hesper::placement::{self, Device};
use hesper::{Array, Dtype, Error, axes, fast, select};

use crate::compare;

type Consumer = fn(&Array) -> Result<Array, Error>;
type Producer = fn(&Array, &Array) -> Result<Array, Error>;

const CONSUMERS: [(&str, Consumer); 20] = [
    ("sum", |x| x.sum(-1)),
    ("mean", |x| x.mean(axes(-1).keepdims())),
    ("sum of columns", |x| x.sum(0)),
    ("sum of all", |x| x.sum(())),
    ("product", |x| x.prod(-1)),
    ("largest", |x| x.max(-1)),
    ("smallest of columns", |x| x.min(0)),
    ("index of the largest", |x| x.argmax(-1)),
    ("index of the smallest of columns", |x| x.argmin(0)),
    ("variance", |x| x.var(-1, 1)),
    ("deviation of columns", |x| x.std(0, 0)),
    ("any", |x| x.any(-1)),
    ("softmax", |x| x.softmax(-1)),
    ("logsumexp", |x| x.logsumexp(-1)),
    ("rms_norm", |x| fast::rms_norm(x, None, 1e-5)),
    ("layer_norm", |x| fast::layer_norm(x, None, None, 1e-5)),
    ("cumsum", |x| x.cumsum(Some(-1), false, true)),
    ("cumprod, reversed", |x| x.cumprod(Some(-1), true, false)),
    ("cummax of columns", |x| x.cummax(Some(0), false, true)),
    ("logcumsumexp", |x| x.logcumsumexp(Some(-1), false, true)),
];

const PRODUCERS: [(&str, Producer); 3] = [
    ("x * y", |x, y| x.multiply(y)),
    ("x * y + x", |x, y| x.multiply(y)?.add(x)),
    ("tanh(x) - exp(y) * 0.5", |x, y| {
        let half = Array::full(&[], 0.5f32, Some(x.dtype()))?;
        x.tanh()?.subtract(y.exp()?.multiply(&half)?)
    }),
];

/// The ops of [`CONSUMERS`] whose result has the shape of its input.
const WITH_EPILOGUE: [&str; 6] =
    ["softmax", "rms_norm", "layer_norm", "cumsum", "cumprod, reversed", "cummax of columns"];

/// Elements of a row or, of the second array, of all.
const LENGTHS: [[usize; 2]; 13] = [
    [3, 1],
    [5, 7],
    [3, 31],
    [64, 64],
    [7, 100],
    [300, 257],
    [33, 1000],
    [130, 1024],
    [9, 4096],
    [20, 5000],
    [3, 20_000],
    [2, 65_536],
    [2, 100_000],
];

/// A program and the bytes of its result with slots, if it has them.
struct SlotCase {
    name: String,
    run: Box<dyn Fn() -> Result<Array, Error> + Send + Sync>,
    fused: Mutex<Result<Vec<u8>, String>>,
}

/// Numbers between -1 and 1, computed on the host.
fn data(shape: &[usize], dtype: Dtype, seed: usize) -> Result<Array, Error> {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> =
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    let made =
        placement::with_device(Device::Cpu, || Array::try_from_slice(&elements, shape)?.astype(dtype))??;
    made.eval()?;
    Ok(made)
}

/// The second array: the layouts that inputs of a slot have.
fn other(layout: &str, shape: [usize; 2], dtype: Dtype) -> Result<Array, Error> {
    let [rows, length] = shape;
    match layout {
        "row" => data(&[length], dtype, 2),
        "column" => data(&[rows, 1], dtype, 3),
        "turned" => data(&[length, rows], dtype, 4)?.transpose(&[1, 0]),
        "every second" => {
            let wide = data(&[rows, 2 * length], dtype, 5)?;
            wide.slice(&[0, 1], &[rows as isize, 2 * length as isize], &[1, 2])
        }
        _ => data(&shape, dtype, 6),
    }
}

fn cases() -> Vec<SlotCase> {
    let mut cases = Vec::new();
    let mut add = |name: String, run: Box<dyn Fn() -> Result<Array, Error> + Send + Sync>| {
        cases.push(SlotCase { name, run, fused: Mutex::new(Err("not computed".into())) });
    };
    let layouts = ["row-major", "row", "column", "turned", "every second"];
    for (number, (consumer, consume)) in CONSUMERS.into_iter().enumerate() {
        for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16] {
            for (at, shape) in LENGTHS.into_iter().enumerate() {
                // Each length with some of the layouts and producers; together all of them.
                for step in 0..2 {
                    let layout = layouts[(at + number + 2 * step) % layouts.len()];
                    let (producer, produce) = PRODUCERS[(at + step) % PRODUCERS.len()];
                    add(
                        format!("{consumer} of {producer}, {shape:?} {dtype}, {layout}"),
                        Box::new(move || {
                            let (x, y) = (data(&shape, dtype, 1)?, other(layout, shape, dtype)?);
                            consume(&produce(&x, &y)?)
                        }),
                    );
                }
            }
        }
        for dtype in [Dtype::Float32, Dtype::Bfloat16] {
            add(
                format!("{consumer} of turned arrays, {dtype}"),
                Box::new(move || {
                    let x = data(&[700, 90], dtype, 1)?.transpose(&[1, 0])?;
                    consume(&x.multiply(&x)?)
                }),
            );
        }
    }
    for (consumer, consume) in CONSUMERS.into_iter().filter(|(name, _)| WITH_EPILOGUE.contains(name)) {
        for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16] {
            for (at, shape) in LENGTHS.into_iter().enumerate() {
                let (layout, to) =
                    (layouts[at % layouts.len()], [dtype, Dtype::Float32, Dtype::Float16][at % 3]);
                for prologue in [false, true] {
                    let before = if prologue { " of a product" } else { "" };
                    add(
                        format!("{consumer}{before} with an epilogue, {shape:?} {dtype} to {to}, {layout}"),
                        Box::new(move || {
                            let (x, y) = (data(&shape, dtype, 1)?, other(layout, shape, dtype)?);
                            let result = consume(&if prologue { x.multiply(&y)? } else { x })?;
                            result.multiply(&y)?.add(&result)?.astype(to)?.tanh()
                        }),
                    );
                }
            }
        }
    }
    for (consumer, consume) in [CONSUMERS[0], CONSUMERS[2], CONSUMERS[5], CONSUMERS[7], CONSUMERS[16]] {
        for dtype in [Dtype::Int8, Dtype::Uint16, Dtype::Int32, Dtype::Int64, Dtype::Float64] {
            add(
                format!("{consumer} of whole numbers, {dtype}"),
                Box::new(move || {
                    let whole =
                        data(&[37, 480], Dtype::Float32, 1)?.multiply(100.0f32)?.astype(Dtype::Int8)?;
                    whole.eval()?;
                    consume(&whole.astype(dtype)?)
                }),
            );
        }
    }
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16] {
        add(
            format!("softmax with a mask, {dtype}"),
            Box::new(move || {
                let (x, mask) = (data(&[4, 8, 40, 64], dtype, 1)?, data(&[40, 64], Dtype::Float32, 2)?);
                let (mask, scale) = (mask.greater(0.0f32)?, Array::full(&[], 0.125f32, Some(dtype))?);
                let low = Array::full(&[], f32::NEG_INFINITY, Some(dtype))?;
                hesper::eval([&mask, &scale, &low])?;
                select(&mask, &x.multiply(&scale)?, &low)?.softmax(-1)
            }),
        );
        add(
            format!("layer_norm with a weight and a bias, {dtype}"),
            Box::new(move || {
                let (x, y) = (data(&[50, 768], dtype, 1)?, data(&[50, 768], dtype, 2)?);
                let (w, b) = (data(&[768], dtype, 3)?, data(&[768], dtype, 4)?);
                fast::layer_norm(&x.add(&y)?, Some(&w), Some(&b), 1e-5)
            }),
        );
    }
    cases
}

/// Compares all cases whose name contains `part`. Returns the number of failures.
pub fn run(part: &str) -> usize {
    let cases: Vec<SlotCase> = cases().into_iter().filter(|case| case.name.contains(part)).collect();
    eval::set_fusion_waits(true);
    let unfilled = AtomicUsize::new(0);
    each(&cases, |case| {
        let computed = on_gpu(|| {
            let array = (case.run)()?;
            let filled = array.explain()?.steps.iter().any(|step| step.kind == StepKind::Rows);
            unfilled.fetch_add(usize::from(!filled), Ordering::Relaxed);
            Ok(array)
        });
        *case.fused.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = computed;
    });
    eval::set_fusion(false);
    let failures = AtomicUsize::new(0);
    each(&cases, |case| {
        let fused = case.fused.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let apart = on_gpu(|| (case.run)());
        let why = match (&*fused, &apart) {
            (Ok(fused), Ok(apart)) if fused == apart => return,
            (Ok(fused), Ok(apart)) => {
                let first = fused.iter().zip(apart).position(|(fused, apart)| fused != apart);
                let count = fused.iter().zip(apart).filter(|(fused, apart)| fused != apart).count();
                format!("{count} of {} bytes differ, the first at {first:?}", apart.len())
            }
            (Err(why), _) | (_, Err(why)) => why.replace('\n', " | ").chars().take(900).collect(),
        };
        failures.fetch_add(1, Ordering::Relaxed);
        println!("FAIL slot: {}: {why}", case.name);
    });
    eval::set_fusion(true);
    let (failures, unfilled) = (failures.into_inner(), unfilled.into_inner());
    println!("{} slots as op by op, {failures} not, {unfilled} not filled", cases.len() - failures);
    println!("computed on the host: {:?}", placement::fallbacks());
    failures
}

fn on_gpu(run: impl FnOnce() -> Result<Array, Error>) -> Result<Vec<u8>, String> {
    let computed = placement::with_device(Device::Gpu(0), || -> Result<Array, Error> {
        let array = run()?;
        array.eval()?;
        Ok(array)
    });
    let array = computed.and_then(|array| array).map_err(|error| error.to_string())?;
    compare::bytes(&array).map_err(|error| error.to_string())
}

/// Calls `f` with each case, several at a time: compilation dominates.
fn each(cases: &[SlotCase], f: impl Fn(&SlotCase) + Sync) {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    f(case);
                }
            });
        }
    });
}
