//! Out-of-memory errors, and kernels that lose the device.

use std::time::Instant;

use hesper_cuda::{CudaDevice, CudaOptions};
use hesper_runtime::{Error, FaultKind, Runtime, Scope};

use crate::basics::shared;
use crate::kernels::{bump, grind, open, pipeline, values};
use crate::report::{Outcome, ensure, to_text};

/// Out of memory is an error and changes nothing else.
pub fn out_of_memory(options: &CudaOptions) -> Outcome {
    let device = CudaDevice::open(options.clone()).map_err(to_text)?;
    // The device must refuse, not the runtime's limit.
    let runtime = Runtime::builder(device).memory_limit(usize::MAX).build();
    let stream = runtime.stream().map_err(to_text)?;
    let kernel = pipeline(&runtime, "bump")?;
    let total = runtime.info().total_memory;
    let piece = total / 7;
    let twice = runtime.alloc(total * 2);
    ensure(matches!(twice, Err(Error::SizeOverflow { .. })), || "twice the memory was given".into())?;
    let mut held = Vec::new();
    let error = loop {
        match stream.alloc(piece) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
        ensure(held.len() < 64, || "memory without end".into())?;
    };
    ensure(matches!(error, Error::OutOfMemory { .. }), || format!("{error}"))?;
    let x = runtime.upload(&[1u32; 256]).map_err(to_text)?;
    bump(&stream, &kernel, &x)?;
    ensure(values(&x)?[0] == 2, || "work after it is wrong".into())?;
    let count = held.len();
    held.clear();
    // The driver refuses what the runtime's limit allows: the pool must be trimmed.
    let large = stream.alloc(3 * piece).map_err(to_text)?;
    drop(large);
    runtime.clear_cache();
    Ok(format!("after {count} times {piece} bytes: {error}"))
}

fn works(runtime: &Runtime) -> Result<(), String> {
    let stream = runtime.stream().map_err(to_text)?;
    let kernel = pipeline(runtime, "bump")?;
    let x = runtime.upload(&[41u32; 1000]).map_err(to_text)?;
    for _ in 0..20 {
        bump(&stream, &kernel, &x)?;
    }
    ensure(values(&x)?.iter().all(|v| *v == 61), || "wrong values".into())
}

/// A kernel fault loses its device; every result on it fails with the first cause, and the process continues.
/// `bystander` is another runtime.
pub fn lost(options: &CudaOptions, entry: &str, bystander: &Runtime) -> Outcome {
    let runtime = open(options.clone())?;
    let (one, two) = (runtime.stream().map_err(to_text)?, runtime.stream().map_err(to_text)?);
    let (bad, good, long) =
        (pipeline(&runtime, entry)?, pipeline(&runtime, "bump")?, pipeline(&runtime, "grind")?);
    let (x, y, z) = (
        runtime.upload(&[1u32; 256]).map_err(to_text)?,
        runtime.upload(&[1u32; 64]).map_err(to_text)?,
        runtime.upload(&[1u32; 256]).map_err(to_text)?,
    );
    let free = || {
        shared(bystander)
            .and_then(|device| device.memory_info().map_err(to_text))
            .map_or(0, |info| info.0 >> 20)
    };
    let before = free();
    let ballast = runtime.alloc(runtime.info().total_memory / 64).map_err(to_text)?;
    // The shape of the faulting submission, twice, so that it is launched as a graph where graphs are
    // enabled.
    for _ in 0..2 {
        bump(&one, &good, &x)?;
        bump(&one, &good, &x)?;
        one.synchronize().map_err(to_text)?;
    }
    // In flight at the fault: a long kernel of another stream, and commands that depend on the faulting one.
    grind(&two, &long, &y, 3_000_000)?;
    let elsewhere = two.commit().map_err(to_text)?;
    one.encode(entry.to_string()).read_write(&x).dispatch(&bad, [32, 1, 1], [32, 1, 1]).map_err(to_text)?;
    bump(&one, &good, &x)?;
    let first = one.commit().map_err(to_text)?;
    let begun = Instant::now();
    let Err(Error::Fault(fault)) = first.wait() else { return Err("the submission did not fail".into()) };
    let noticed = begun.elapsed().as_secs_f64() * 1e3;
    ensure(fault.scope() == Scope::Device && fault.kind() == FaultKind::Lost, || format!("{fault:?}"))?;
    ensure(fault.message().contains("CUDA_ERROR"), || format!("no cause: {fault}"))?;
    let other = match elsewhere.wait() {
        Ok(()) => "another stream's work had completed",
        Err(_) => "another stream's work was lost with it",
    };
    for (what, error) in [
        ("read", x.read().err()),
        ("read of an untouched buffer", z.read().err()),
        ("alloc", runtime.alloc(1024).err()),
        ("stream", runtime.stream().err()),
        ("encode", one.encode("after").read_write(&z).dispatch(&good, [1, 1, 1], [1, 1, 1]).err()),
        ("synchronize", runtime.synchronize().err()),
    ] {
        let answered =
            error.as_ref().and_then(Error::fault).is_some_and(|again| again.scope() == Scope::Device);
        ensure(answered, || format!("{what} did not answer that the device is lost: {error:?}"))?;
    }
    ensure(runtime.lost().is_some(), || "the runtime does not know".into())?;
    // On current drivers a sticky error affects every context of the process, and no other can be created.
    // All of it must be reported as errors.
    let beside = match works(bystander) {
        Ok(()) => "another context goes on",
        Err(_) => "another context of the process is lost with it",
    };
    let weak = std::sync::Arc::downgrade(&shared(&runtime)?);
    drop((ballast, bad, good, long, x, y, z, one, two, first, elsewhere, runtime));
    ensure(weak.strong_count() == 0, || format!("{} hold the lost device", weak.strong_count()))?;
    let again = match open(options.clone()).and_then(|runtime| works(&runtime)) {
        Ok(()) => "a new device opens in this process",
        Err(_) => "no new device opens in this process",
    };
    Ok(format!("{fault}; {before} MiB were free; noticed after {noticed:.1} ms; {other}; {beside}; {again}"))
}

/// The environment variable that selects the fault of a child process.
const CHILD: &str = "HESPER_CUDA_CHECK_FAULT";

/// Causes a fault in a child process, which must exit normally.
pub fn in_child(entry: &str, graphs: bool) -> Outcome {
    let program = std::env::current_exe().map_err(to_text)?;
    let what = format!("{entry} {}", if graphs { "graphs" } else { "plain" });
    let child = std::process::Command::new(program).env(CHILD, what).output().map_err(to_text)?;
    let text = String::from_utf8_lossy(&child.stdout).trim().to_string();
    if child.status.success() { Ok(text) } else { Err(format!("{}: {text}", child.status)) }
}

/// The fault that this child process must cause, if it is one.
pub fn child() -> Option<(String, bool)> {
    let what = std::env::var(CHILD).ok()?;
    let (entry, form) = what.split_once(' ')?;
    Some((entry.to_string(), form == "graphs"))
}
