//! Stress scenarios of 64 concurrent tasks, each on its own thread, modelled on failures that users of
//! similar systems reported.
//!
//! The same code runs on a GPU (`hesper-ops-gpu-check stress`) and on the host (`tests/stress.rs`). Every
//! result is known in advance.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hesper::io::{self, Loaded};
use hesper::placement::{self, Device};
use hesper::{Array, CustomKernel, Dtype, Error, Result, axes, fast, transform};

/// The number of concurrent tasks.
pub const TASKS: usize = 64;

/// The weights shared by the tasks: a file, and arrays that are loaded from it lazily.
pub struct Weights {
    path: PathBuf,
    loaded: Loaded,
}

static FILES: AtomicUsize = AtomicUsize::new(0);

impl Weights {
    /// Writes the file and loads it.
    pub fn new() -> Result<Self> {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("hesper-scenarios-{}-{number}.safetensors", std::process::id());
        let path = std::env::temp_dir().join(name);
        let list: Vec<f32> = (0..256).map(|i| (i % 7) as f32).collect();
        let layers: Vec<f32> = (0..12 * 64).map(|i| (i / 64 + 1) as f32).collect();
        let arrays = [
            ("weight", Array::try_from_slice(&list, &[256])?),
            ("empty", Array::zeros(&[0, 4], Dtype::Float32)?),
            ("layers", Array::try_from_slice(&layers, &[12, 64])?),
        ];
        io::save_safetensors(&path, arrays.iter().map(|(name, array)| (*name, array)), &[])?;
        let loaded = io::load(&path)?;
        Ok(Weights { path, loaded })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// One round of a task.
pub type Task = fn(&Weights, usize, usize) -> Result<()>;

/// The scenarios by name.
pub const SCENARIOS: [(&str, Task); 5] = [
    ("S1 weights that are loaded lazily", lazy_weights),
    ("S2 decoding with custom kernels", decode),
    ("S3 one kernel with the weights of twelve layers", layers),
    ("S4 one kernel name with other texts and types", renamed),
    ("S5 chains whose handles are dropped at once", dropped),
];

/// The outcome of a scenario.
pub struct Outcome {
    /// The name.
    pub name: &'static str,
    /// The duration.
    pub time: Duration,
    /// The failed tasks and their errors.
    pub failures: Vec<String>,
}

/// Runs every scenario with 64 tasks of `rounds` rounds on a device.
pub fn run(device: Device, rounds: usize, mut report: impl FnMut(&Outcome)) -> Result<Vec<Outcome>> {
    let weights = Weights::new()?;
    let mut outcomes = Vec::new();
    for (name, task) in SCENARIOS {
        let start = Instant::now();
        let failures = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..TASKS {
                let (weights, failures) = (&weights, &failures);
                scope.spawn(move || {
                    let run = || (0..rounds).try_for_each(|round| task(weights, number, round));
                    if let Err(error) = placement::with_device(device, run).and_then(|done| done) {
                        let mut failures = failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                        failures.push(format!("task {number}: {error}"));
                    }
                });
            }
        });
        let failures = failures.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let outcome = Outcome { name, time: start.elapsed(), failures };
        report(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn expect(what: &str, found: f32, wanted: f32) -> Result<()> {
    if (found - wanted).abs() <= 1e-3 * wanted.abs().max(1.0) {
        return Ok(());
    }
    Err(Error::Kernel(format!("{what}: {found} instead of {wanted}")))
}

fn sum(x: &Array) -> Result<f32> {
    x.astype(Dtype::Float32)?.sum(())?.item::<f32>()
}

/// `2 x + y` by a custom kernel.
fn axpy(x: &Array, y: &Array) -> Result<Array> {
    let text = "uint i = thread_position_in_grid.x; out[i] = 2.0f * x[i] + y[i];";
    let kernel = CustomKernel::new("axpy", &["x", "y"], &["out"], text)?;
    let n = x.size();
    let call = kernel.call(&[x.clone(), y.clone()]).grid([n as u64, 1, 1]).threadgroup([64, 1, 1]);
    Ok(call.output(&[n], Dtype::Float32).run()?.swap_remove(0))
}

/// File-backed arrays in fused and custom kernels: shared or loaded again, evaluated beforehand or not, of
/// size zero, and loads that fail.
fn lazy_weights(shared: &Weights, task: usize, round: usize) -> Result<()> {
    let own;
    let loaded = if (task + round).is_multiple_of(3) {
        own = io::load(shared.path())?;
        &own
    } else {
        &shared.loaded
    };
    let weight = loaded.require("weight")?;
    if round % 2 == 1 {
        weight.eval()?;
    }
    let plus = (task % 5) as f32;
    let fused = weight.add(plus)?.multiply(2.0)?;
    let out = axpy(weight, &fused)?;
    drop(fused);
    let empty = loaded.require("empty")?.add(1.0)?;
    expect("the sum of an empty array", sum(&empty)?, 0.0)?;
    if io::load(shared.path().with_extension("missing")).is_ok() {
        return Err(Error::Kernel("loading a missing file succeeded".into()));
    }
    let weights: f32 = (0..256).map(|i| (i % 7) as f32).sum();
    expect("lazily loaded weights", sum(&out)?, 4.0 * weights + 512.0 * plus)
}

/// A decode step: products, a custom kernel, and a growing cache.
fn decode(_: &Weights, task: usize, round: usize) -> Result<()> {
    let weight = Array::full(&[16, 16], 0.0625, Some(Dtype::Float32))?;
    let mut cache = Array::zeros(&[1, 1, 0, 16], Dtype::Float32)?;
    for step in 0..8 {
        let number = (step + task % 5 + round % 3) as f32;
        let row = Array::full(&[1, 16], number, Some(Dtype::Float32))?.matmul(&weight)?;
        let row = axpy(&row.reshape(&[16])?, &row.reshape(&[16])?)?;
        cache = fast::append(&cache, &row.reshape(&[1, 1, 1, 16])?, &[step], 8)?;
        hesper::async_eval([&cache])?;
    }
    if cache.shape() != [1, 1, 8, 16] {
        return Err(Error::Kernel(format!("the cache has shape {:?}", cache.shape())));
    }
    let wanted: usize = (0..8).map(|step| step + task % 5 + round % 3).sum();
    expect("the cache's sum", sum(&cache)?, 3.0 * 16.0 * wanted as f32)
}

/// Twelve calls of one kernel in one graph, with separate weights or slices of one buffer; eager and
/// compiled.
fn layers(shared: &Weights, task: usize, round: usize) -> Result<()> {
    let text = "uint i = thread_position_in_grid.x; out[i] = x[i] + w[i] * float(i % 2 + 1);";
    let kernel = CustomKernel::new("layer", &["x", "w"], &["out"], text)?;
    let stacked = shared.loaded.require("layers")?.clone();
    let slices = (task + round).is_multiple_of(2);
    let forward = move |x: &[Array]| -> Result<Vec<Array>> {
        let mut x = x[0].clone();
        for layer in 0..12isize {
            let weight = if slices {
                stacked.slice(&[layer, 0], &[layer + 1, 64], &[1, 1])?.reshape(&[64])?
            } else {
                Array::full(&[64], (layer + 1) as f32, Some(Dtype::Float32))?
            };
            let call = kernel.call(&[x, weight]).grid([64, 1, 1]).threadgroup([32, 1, 1]);
            x = call.output(&[64], Dtype::Float32).run()?.swap_remove(0);
        }
        Ok(vec![x])
    };
    let input = [Array::full(&[64], task as f32, Some(Dtype::Float32))?];
    let out = if round.is_multiple_of(3) { transform::compile(forward)(&input)? } else { forward(&input)? };
    expect("twelve layers", sum(&out[0])?, 64.0 * task as f32 + 78.0 * 96.0)
}

/// One kernel name with several texts and types.
fn renamed(_: &Weights, task: usize, round: usize) -> Result<()> {
    let factor = 1 + (task + round) % 4;
    let dtype = if (task / 4 + round).is_multiple_of(2) { Dtype::Float16 } else { Dtype::Float32 };
    let text = format!("uint i = thread_position_in_grid.x; out[i] = T(x[i]) * T({factor});");
    let kernel = CustomKernel::new("scale", &["x"], &["out"], &text)?;
    let x = Array::full(&[128], 3.0, Some(dtype))?;
    let call = kernel.call(&[x]).template_dtype("T", dtype).grid([128, 1, 1]).threadgroup([128, 1, 1]);
    let out = call.output(&[128], dtype).run()?.swap_remove(0);
    hesper::async_eval([&out])?;
    if out.dtype() != dtype {
        return Err(Error::Kernel(format!("the output is {} instead of {dtype}", out.dtype())));
    }
    expect("scale", sum(&out)?, 128.0 * 3.0 * factor as f32)
}

/// Chains whose intermediate handles are dropped while they are computed.
fn dropped(_: &Weights, task: usize, round: usize) -> Result<()> {
    let mut x = Array::full(&[64, 64], 1.0, Some(Dtype::Float32))?;
    for _ in 0..4 {
        let y = x.add(1.0)?.t()?.multiply(0.5)?;
        hesper::async_eval([&y])?;
        x = y.sum(axes(0).keepdims())?.multiply(1.0 / 64.0)?.broadcast_to(&[64, 64])?;
    }
    if !(task + round).is_multiple_of(5) {
        return hesper::async_eval([&x]).map(drop);
    }
    // The fixed point of (x + 1) / 2 is 1.
    expect("mean of means", x.mean(())?.item::<f32>()?, 1.0)
}
