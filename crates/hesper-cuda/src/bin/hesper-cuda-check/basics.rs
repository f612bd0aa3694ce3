//! Memory, kernels, compiler, native commands, caches.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hesper_cuda::{CudaOptions, CudaShared, NativeContext};
use hesper_runtime::{CacheLimits, Error, Runtime, Scope};

use crate::kernels::{self, bump, mix, mix_host, open, pipeline, source, values};
use crate::report::{Outcome, ensure, to_text};

pub fn shared(runtime: &Runtime) -> Result<Arc<CudaShared>, String> {
    let extension = runtime.extension().ok_or("the device has no extension")?;
    extension.downcast::<CudaShared>().map_err(|_| "the extension is of another type".into())
}

pub fn describe(runtime: &Runtime) -> Outcome {
    let shared = shared(runtime)?;
    let (free, total) = shared.memory_info().map_err(to_text)?;
    let compiler = shared.compiler().map_err(to_text)?;
    let headers = hesper_cuda::library::headers();
    Ok(format!("{:?}; {free} of {total} bytes free; {compiler}; headers {headers:?}", shared.properties()))
}

pub fn round_trips(runtime: &Runtime) -> Outcome {
    let sizes = [0, 1, 3, 255, 256, 257, 4097, (4 << 20) - 1, (5 << 20) + 3, (40 << 20) + 17];
    for size in sizes {
        let data: Vec<u8> = (0..size).map(|at| (at * 31 + at / 256) as u8).collect();
        let buffer = runtime.upload(&data).map_err(to_text)?;
        ensure(buffer.len() == size, || format!("{size} bytes became {}", buffer.len()))?;
        ensure(buffer.read().map_err(to_text)?.bytes() == data, || {
            format!("{size} bytes came back changed")
        })?;
    }
    let stream = runtime.stream().map_err(to_text)?;
    let from = runtime.upload(&(0..=255u8).collect::<Vec<_>>()).map_err(to_text)?;
    let to = runtime.upload(&[7u8; 256]).map_err(to_text)?;
    stream.encode("copy").read_range(&from, 3..103).write_range(&to, 151..251).copy().map_err(to_text)?;
    stream.encode("none").read_range(&from, 5..5).write_range(&to, 9..9).copy().map_err(to_text)?;
    let result = to.read().map_err(to_text)?;
    let right = |at: usize| if (151..251).contains(&at) { (at - 148) as u8 } else { 7 };
    ensure((0..256).all(|at| result.bytes()[at] == right(at)), || "a copy of ranges is wrong".into())?;
    Ok(format!("{} sizes and a copy", sizes.len()))
}

pub fn launches(runtime: &Runtime) -> Outcome {
    let stream = runtime.stream().map_err(to_text)?;
    let kernel = pipeline(runtime, "mix")?;
    let n = 100_003usize;
    let a: Vec<u32> = (0..n as u32).collect();
    let x = runtime.upload(&a).map_err(to_text)?;
    let out = stream.alloc(4 * n).map_err(to_text)?;
    mix(&stream, &kernel, &x, &x, &out, 77)?;
    let got = values(&out)?;
    ensure((0..n).all(|i| got[i] == mix_host(a[i], a[i], 77)), || "mix differs from the host".into())?;

    let times = runtime.pipeline(&source("times<unsigned, 3>", "grid")).map_err(to_text)?;
    let tripled = stream.alloc(4 * n).map_err(to_text)?;
    stream
        .encode("times")
        .read(&x)
        .write(&tripled)
        .dispatch(&times, [n as u64, 1, 1], [128, 1, 1])
        .map_err(to_text)?;
    let got = values(&tripled)?;
    ensure((0..n).all(|i| got[i] == a[i] * 3), || {
        "an instance of a template, with the grid, is wrong".into()
    })?;
    Ok("a struct by value, a template's instance and the grid as a parameter".into())
}

/// Invalid commands fail alone; commands that do not depend on them run.
pub fn wrong_commands(runtime: &Runtime) -> Outcome {
    let stream = runtime.stream().map_err(to_text)?;
    let (kernel, good) = (pipeline(runtime, "mix")?, pipeline(runtime, "bump")?);
    let x = runtime.upload(&[1u32; 256]).map_err(to_text)?;
    let (bad, after) = (stream.alloc(1024).map_err(to_text)?, stream.alloc(1024).map_err(to_text)?);
    stream
        .encode("short constants")
        .read(&x)
        .read(&x)
        .write(&bad)
        .constants(&[1, 2, 3])
        .dispatch(&kernel, [256, 1, 1], [256, 1, 1])
        .map_err(to_text)?;
    mix(&stream, &kernel, &bad, &x, &after, 1)?;
    let tall = runtime.upload(&[0u32; 4]).map_err(to_text)?;
    let launch = stream.encode("too many groups").read_write(&tall).constants(&4u32.to_ne_bytes());
    launch.dispatch(&good, [1, 1 << 20, 1], [1, 1, 1]).map_err(to_text)?;
    bump(&stream, &good, &x)?;
    let fault = |buffer: &hesper_runtime::Buffer| match buffer.read() {
        Err(Error::Fault(fault)) => Ok(fault),
        Err(other) => Err(format!("not a fault: {other}")),
        Ok(_) => Err("no fault".to_string()),
    };
    let (first, second, third) = (fault(&bad)?, fault(&after)?, fault(&tall)?);
    ensure(first.same(&second), || format!("another cause: {first} and {second}"))?;
    ensure(first.scope() == Scope::Command && first.message().contains("constants"), || {
        format!("{first:?}")
    })?;
    ensure(third.message().contains("threadgroups"), || format!("{third:?}"))?;
    ensure(values(&x)?.iter().all(|v| *v == 2), || "an independent command did not run".into())?;
    Ok(format!("{first}"))
}

pub fn compile_errors(runtime: &Runtime) -> Outcome {
    let text = "extern \"C\" __global__ void k(float* x) {\n  x[0] = undefined_thing;\n}\n";
    let bad = hesper_runtime::PipelineSource::new("my kernel", "cuda", text).specialised("entry k");
    let error = runtime.pipeline(&bad).err().ok_or("a wrong text compiled")?;
    let message = error.to_string();
    ensure(
        matches!(error, Error::Compile { .. })
            && message.contains("undefined_thing")
            && message.contains("(2)"),
        || format!("the message does not help: {message}"),
    )?;
    let missing = runtime.pipeline(&source("no_such_kernel", "")).err().ok_or("a missing entry was found")?;
    ensure(missing.to_string().contains("no_such_kernel"), || format!("{missing}"))?;
    let language = hesper_runtime::PipelineSource::new("m", "metal", "x").specialised("entry k");
    ensure(runtime.pipeline(&language).is_err(), || "another language compiled".into())?;
    let shared_memory = runtime.pipeline(&source("mix", "shared 99999999")).err();
    ensure(shared_memory.is_some(), || "too much shared memory was accepted".into())?;
    ensure(runtime.pipeline(&source("mix", "shared 100000")).is_ok(), || {
        "100 kB of shared memory refused".into()
    })?;
    pipeline(runtime, "bump")?;
    Ok(message.lines().take(3).collect::<Vec<_>>().join(" | "))
}

/// Reports whether the toolkit's headers are installed.
pub fn half_header(runtime: &Runtime) -> Outcome {
    let text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\nextern \"C\" __global__ void k(__half* x, __nv_bfloat16* y) { x[0] = __float2half(1.0f); y[0] = __float2bfloat16(2.0f); }";
    let kernel = hesper_runtime::PipelineSource::new("half", "cuda", text).specialised("entry k");
    Ok(match runtime.pipeline(&kernel) {
        Ok(_) => "cuda_fp16.h and cuda_bf16.h are there".into(),
        Err(error) => format!("no half headers: {}", error.to_string().lines().next().unwrap_or("")),
    })
}

pub fn natives(runtime: &Runtime) -> Outcome {
    let stream = runtime.stream().map_err(to_text)?;
    let kernel = pipeline(runtime, "bump")?;
    let x = runtime.upload(&[5u32; 1000]).map_err(to_text)?;
    bump(&stream, &kernel, &x)?;
    stream
        .encode("memset")
        .read_write_range(&x, 400..800)
        .run(|native| {
            let context = native
                .context()
                .and_then(|context| context.downcast_ref::<NativeContext>())
                .ok_or("no CUDA context")?;
            let binding = &native.bindings()[0];
            let driver = context.context().driver();
            let to = hesper_cuda::sys::CUstream(context.stream());
            // SAFETY: the range is bound to write, and the call goes to the command's stream.
            let code = unsafe { (driver.memset_d8_async)(context.address(binding), 0, binding.len(), to) };
            if code == 0 { Ok(()) } else { Err(format!("cuMemsetD8Async gave {code}").into()) }
        })
        .map_err(to_text)?;
    bump(&stream, &kernel, &x)?;
    let got = values(&x)?;
    ensure((0..1000).all(|i| got[i] == if (100..200).contains(&i) { 1 } else { 7 }), || {
        "wrong order".into()
    })?;
    let y = runtime.upload(&[1u32; 4]).map_err(to_text)?;
    stream.encode("refuses").read_write(&y).run(|_| Err("on purpose".into())).map_err(to_text)?;
    ensure(y.read().is_err_and(|error| error.to_string().contains("on purpose")), || "no fault".into())?;
    let z = runtime.upload(&[1u32; 4]).map_err(to_text)?;
    stream
        .encode("views")
        .read_write(&z)
        .run(|native| native.take::<1>()?[0].bytes().map(|_| ()))
        .map_err(to_text)?;
    ensure(z.read().is_err(), || "the host saw device memory".into())?;
    Ok("a library call between kernels, an error, no view of device memory".into())
}

/// Kernels that the cache evicts while they are in flight.
pub fn eviction(options: &CudaOptions) -> Outcome {
    let device = hesper_cuda::CudaDevice::open(options.clone()).map_err(to_text)?;
    let runtime = Runtime::builder(device).pipelines(CacheLimits { count: 2, bytes: usize::MAX }).build();
    let stream = runtime.stream().map_err(to_text)?;
    let busy = runtime.upload(&[0u32; 64]).map_err(to_text)?;
    let grind = pipeline(&runtime, "grind")?;
    let mut outputs = Vec::new();
    let ones = runtime.upload(&[1u32; 1024]).map_err(to_text)?;
    for round in 0..3 {
        kernels::grind(&stream, &grind, &busy, 2_000_000)?;
        for factor in 2..18u32 {
            let kernel =
                runtime.pipeline(&source(&format!("times<unsigned, {factor}>"), "grid")).map_err(to_text)?;
            let out = stream.alloc(4096).map_err(to_text)?;
            stream
                .encode("times")
                .read(&ones)
                .write(&out)
                .dispatch(&kernel, [1024, 1, 1], [128, 1, 1])
                .map_err(to_text)?;
            drop(kernel);
            outputs.push((round, factor, out));
        }
    }
    for (round, factor, out) in &outputs {
        let got = values(out)?;
        ensure(got.iter().all(|v| v == factor), || format!("round {round}, factor {factor}: {}", got[0]))?;
    }
    let counters = runtime.counters().pipelines;
    ensure(counters.evicted >= 40 && counters.count <= 2, || format!("{counters:?}"))?;
    Ok(format!("{} kernels evicted while a long one ran", counters.evicted))
}

/// A second start compiles nothing.
pub fn disk_cache(options: &CudaOptions) -> Outcome {
    let folder: PathBuf = std::env::temp_dir().join(format!("hesper-cuda-check-{}", std::process::id()));
    let outcome = disk_cache_in(options, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn disk_cache_in(options: &CudaOptions, folder: &std::path::Path) -> Outcome {
    let mut counts = Vec::new();
    let mut times = Vec::new();
    for start in 0..3 {
        if start == 2 {
            // A damaged file is detected and costs one compilation.
            let first = std::fs::read_dir(folder).map_err(to_text)?.flatten().next().ok_or("no file")?;
            let mut bytes = std::fs::read(first.path()).map_err(to_text)?;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(first.path(), bytes).map_err(to_text)?;
        }
        let runtime = open(CudaOptions { cache: Some(folder.to_path_buf()), ..options.clone() })?;
        let begun = Instant::now();
        for (entry, more) in [("mix", ""), ("bump", ""), ("times<float, 5>", "grid")] {
            runtime.pipeline(&source(entry, more)).map_err(to_text)?;
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        let done = shared(&runtime)?.counters();
        counts.push((done.compiled, done.from_disk));
        let stream = runtime.stream().map_err(to_text)?;
        let x = runtime.upload(&[1u32; 8]).map_err(to_text)?;
        bump(&stream, &pipeline(&runtime, "bump")?, &x)?;
        ensure(values(&x)?.iter().all(|v| *v == 2), || "a kernel from disk is wrong".into())?;
    }
    ensure(counts == [(3, 0), (0, 3), (1, 2)], || format!("compiled, from disk: {counts:?}"))?;
    Ok(format!("3 kernels: compiled in {:.1} ms, loaded in {:.1} ms", times[0], times[1]))
}

/// Every handle is dropped while work is in flight; the device is dropped when the work has finished.
pub fn abandoned(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let weak = Arc::downgrade(&shared(&runtime)?);
    let report = runtime.validation();
    {
        let stream = runtime.stream().map_err(to_text)?;
        let x = runtime.upload(&[3u32; 64]).map_err(to_text)?;
        let grind = pipeline(&runtime, "grind")?;
        for _ in 0..20 {
            kernels::grind(&stream, &grind, &x, 300_000)?;
        }
        stream.commit().map_err(to_text)?;
    }
    drop(runtime);
    let begun = Instant::now();
    while weak.strong_count() > 0 {
        ensure(begun.elapsed() < Duration::from_secs(5), || "the device is still there after 5 s".into())?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let violations = report.map_or(0, |report| report.violations().len());
    ensure(violations == 0, || format!("{violations} violations"))?;
    Ok(format!("gone after {:.1} ms", begun.elapsed().as_secs_f64() * 1e3))
}

/// Idle threads use no processor time.
pub fn idle(runtime: &Runtime) -> Outcome {
    runtime.synchronize().map_err(to_text)?;
    // Ticks of each thread with its name; the driver's threads are not counted.
    let used = || -> Vec<(String, u64)> {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        tasks
            .filter_map(|task| {
                let text = std::fs::read_to_string(task.path().join("stat")).ok()?;
                let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
                let mut fields = rest.split_whitespace().skip(11);
                let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
                Some((format!("{name} {}", task.file_name().to_string_lossy()), ticks))
            })
            .collect()
    };
    let before = used();
    std::thread::sleep(Duration::from_millis(500));
    let burnt: Vec<(String, u64)> = used()
        .into_iter()
        .map(|(name, ticks)| {
            let old = before.iter().find(|(other, _)| *other == name).map_or(0, |(_, ticks)| *ticks);
            (name, ticks.saturating_sub(old))
        })
        .filter(|(_, ticks)| *ticks > 0)
        .collect();
    let ours: u64 = burnt.iter().filter(|(name, _)| name.starts_with("hesper")).map(|(_, ticks)| ticks).sum();
    ensure(ours <= 2, || format!("{ours} ticks of 10 ms in half a second: {burnt:?}"))?;
    Ok(format!("{ours} ticks of ours in half a second; threads that ran: {burnt:?}"))
}
