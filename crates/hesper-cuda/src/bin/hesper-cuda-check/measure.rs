//! Measurements: launches, waits, transfers, allocation.

use std::time::{Duration, Instant};

use hesper_cuda::context::Context;
use hesper_cuda::{CudaOptions, sys};
use hesper_runtime::{Buffer, Runtime};

use crate::basics::shared;
use crate::kernels::{bump, grind, mix, open, pipeline};
use crate::report::{Outcome, ensure, to_text};

fn micros(begun: Instant, count: usize) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / count as f64
}

/// Microseconds per command of a chain of tiny kernels: in total, and for encoding alone.
fn chain(
    runtime: &Runtime,
    commands: usize,
    step: &mut dyn FnMut() -> Result<(), String>,
) -> Result<(f64, f64), String> {
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..4 {
        runtime.synchronize().map_err(to_text)?;
        let begun = Instant::now();
        for _ in 0..commands {
            step()?;
        }
        let encoded = micros(begun, commands);
        runtime.synchronize().map_err(to_text)?;
        best = (best.0.min(micros(begun, commands)), best.1.min(encoded));
    }
    Ok(best)
}

/// Chains of tiny kernels, launched one by one or as graphs.
pub fn chains(options: &CudaOptions, what: &str) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(to_text)?;
    let (add, mixer) = (pipeline(&runtime, "bump")?, pipeline(&runtime, "mix")?);
    let x = runtime.upload(&[0u32; 1024]).map_err(to_text)?;
    let commands = 8192;
    let same = chain(&runtime, commands, &mut || bump(&stream, &add, &x))?;
    // Temporaries from the pool; then changing constants, so that every node changes.
    let mut moving = [(0.0, 0.0); 2];
    let mut changed = [0; 2];
    let mut salt = 0;
    for (variant, figure) in moving.iter_mut().enumerate() {
        let mut state: Buffer = runtime.upload(&[1u32; 1024]).map_err(to_text)?;
        let before = shared(&runtime)?.counters().graphs.changed;
        *figure = chain(&runtime, commands, &mut || {
            let next = stream.alloc(4096).map_err(to_text)?;
            salt += variant as u32;
            mix(&stream, &mixer, &state, &x, &next, salt)?;
            state = next;
            Ok(())
        })?;
        changed[variant] = shared(&runtime)?.counters().graphs.changed - before;
    }
    let wide: Vec<Buffer> =
        (0..16).map(|_| runtime.upload(&[0u32; 1024]).map_err(to_text)).collect::<Result<_, _>>()?;
    let mut turn = 0;
    let independent = chain(&runtime, commands, &mut || {
        turn += 1;
        bump(&stream, &add, &wide[turn % 16])
    })?;
    let made = shared(&runtime)?.counters().graphs.created;
    let pair = |(all, host): (f64, f64)| format!("{all:.2} ({host:.2})");
    Ok(format!(
        "{what}, batch {}: us per command (of which encoding): in place {}, temporaries {}, changing constants {}, 16 independent {}; graphs made {made}, nodes changed {changed:?}",
        options.batch,
        pair(same),
        pair(moving[0]),
        pair(moving[1]),
        pair(independent)
    ))
}

/// The cost of the driver calls around a submission.
pub fn driver_calls() -> Outcome {
    let context = Context::create(0).map_err(to_text)?;
    let current = context.enter().map_err(to_text)?;
    let stream = current.create_stream().map_err(to_text)?;
    let event =
        current.create_event(sys::CU_EVENT_BLOCKING_SYNC | sys::CU_EVENT_DISABLE_TIMING).map_err(to_text)?;
    let count = 2000;
    let mut record = f64::MAX;
    let mut query = f64::MAX;
    let mut enter = f64::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        for _ in 0..count {
            // SAFETY: handles are alive.
            unsafe { current.record(event, stream) }.map_err(to_text)?;
        }
        record = record.min(micros(begun, count));
        let begun = Instant::now();
        for _ in 0..count {
            // SAFETY: handles are alive.
            unsafe { current.query(event) }.map_err(to_text)?;
        }
        query = query.min(micros(begun, count));
        let begun = Instant::now();
        for _ in 0..count {
            drop(context.enter().map_err(to_text)?);
        }
        enter = enter.min(micros(begun, count));
    }
    // SAFETY: nothing is in flight.
    unsafe {
        current.destroy_event(event).map_err(to_text)?;
        current.destroy_stream(stream).map_err(to_text)?;
    }
    Ok(format!("us each: event record {record:.2}, event query {query:.2}, context push and pop {enter:.2}"))
}

/// The latency of one command that is committed and waited for.
pub fn latency(options: &CudaOptions) -> Outcome {
    let mut text = String::new();
    for spin in [0, 50, 1000] {
        let runtime = open(CudaOptions { spin: Duration::from_micros(spin), ..options.clone() })?;
        let stream = runtime.stream().map_err(to_text)?;
        let add = pipeline(&runtime, "bump")?;
        let x = runtime.upload(&[0u32; 256]).map_err(to_text)?;
        let mut times: Vec<f64> = Vec::new();
        let mut submits: Vec<f64> = Vec::new();
        let mut reads: Vec<f64> = Vec::new();
        for _ in 0..300 {
            let begun = Instant::now();
            bump(&stream, &add, &x)?;
            let submission = stream.commit().map_err(to_text)?;
            submits.push(micros(begun, 1));
            submission.wait().map_err(to_text)?;
            times.push(micros(begun, 1));
            let begun = Instant::now();
            drop(x.read().map_err(to_text)?);
            reads.push(micros(begun, 1));
        }
        let median = |list: &mut Vec<f64>| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        text += &format!(
            "spin {spin} us: submit {:.1}, submit and wait {:.1}, read of 1 KiB {:.1} us; ",
            median(&mut submits),
            median(&mut times),
            median(&mut reads)
        );
    }
    Ok(text)
}

/// The cost of a submission of one command, without waiting.
pub fn submissions(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(to_text)?;
    let add = pipeline(&runtime, "bump")?;
    let x = runtime.upload(&[0u32; 256]).map_err(to_text)?;
    let each = chain(&runtime, 2000, &mut || {
        bump(&stream, &add, &x)?;
        stream.commit().map(|_| ()).map_err(to_text)
    })?;
    Ok(format!("{:.2} us per submission of one command", each.0))
}

/// The bandwidth of transfers.
pub fn bandwidth(runtime: &Runtime) -> Outcome {
    let gigabytes = |bytes: usize, seconds: f64| bytes as f64 / seconds / 1e9;
    let mut text = String::new();
    {
        let shared = shared(runtime)?;
        let current = shared.context().enter().map_err(to_text)?;
        let size = 256 << 20;
        let stream = current.create_stream().map_err(to_text)?;
        let (host, device) =
            (current.allocate_host(size).map_err(to_text)?, current.allocate(size).map_err(to_text)?);
        let mut best = (f64::MAX, f64::MAX);
        for _ in 0..4 {
            // SAFETY: both sides have `size` bytes, and the stream is waited for.
            unsafe {
                let begun = Instant::now();
                current.copy_in(device, host, size, stream).map_err(to_text)?;
                current.synchronize_stream(stream).map_err(to_text)?;
                best.0 = best.0.min(begun.elapsed().as_secs_f64());
                let begun = Instant::now();
                current.copy_out(host, device, size, stream).map_err(to_text)?;
                current.synchronize_stream(stream).map_err(to_text)?;
                best.1 = best.1.min(begun.elapsed().as_secs_f64());
            }
        }
        // SAFETY: nothing uses them any more.
        unsafe {
            current.free(device).map_err(to_text)?;
            current.free_host(host).map_err(to_text)?;
            current.destroy_stream(stream).map_err(to_text)?;
        }
        text +=
            &format!("GB/s: pinned in {:.1}, out {:.1}; ", gigabytes(size, best.0), gigabytes(size, best.1));
    }
    let size = 512usize << 20;
    let data = vec![1u8; size];
    let buffer = runtime.alloc(size).map_err(to_text)?;
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        let mut guard = buffer.write().map_err(to_text)?;
        guard.bytes_mut().copy_from_slice(&data);
        let begun = Instant::now();
        guard.finish().map_err(to_text)?;
        best.0 = best.0.min(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let guard = buffer.read().map_err(to_text)?;
        best.1 = best.1.min(begun.elapsed().as_secs_f64());
        ensure(guard.bytes()[size - 1] == 1 && guard.bytes()[size / 2] == 1, || "wrong bytes".into())?;
    }
    text += &format!(
        "staged in {:.1}, out with allocation {:.1}; ",
        gigabytes(size, best.0),
        gigabytes(size, best.1)
    );
    Ok(text)
}

/// The bandwidth of copies inside of the device, counting reads and writes.
pub fn device_copies(runtime: &Runtime) -> Outcome {
    let size = (4usize << 30).min(runtime.info().total_memory / 8);
    let stream = runtime.stream().map_err(to_text)?;
    let (from, to) = (stream.alloc(size).map_err(to_text)?, stream.alloc(size).map_err(to_text)?);
    let kernel = pipeline(runtime, "stream_copy")?;
    let fill = |buffer: &Buffer| {
        let fill = stream.encode("fill").write(buffer);
        fill.run(|native| {
            let context = native
                .context()
                .and_then(|context| context.downcast_ref::<hesper_cuda::NativeContext>())
                .ok_or("no CUDA context")?;
            let (binding, on) = (&native.bindings()[0], sys::CUstream(context.stream()));
            // SAFETY: the range is bound to write, and the call goes to the command's stream.
            let code = unsafe {
                (context.context().driver().memset_d8_async)(context.address(binding), 9, binding.len(), on)
            };
            if code == 0 { Ok(()) } else { Err("cuMemsetD8Async failed".into()) }
        })
    };
    fill(&from).map_err(to_text)?;
    fill(&to).map_err(to_text)?;
    let mut rates = Vec::new();
    for by_kernel in [false, true] {
        let mut best = f64::MAX;
        for _ in 0..4 {
            stream.synchronize().map_err(to_text)?;
            let begun = Instant::now();
            for _ in 0..5 {
                let command = stream.encode("copy").read(&from).write(&to);
                if by_kernel {
                    let n = (size / 16) as u64;
                    let command = command.constants(&n.to_ne_bytes());
                    command.dispatch(&kernel, [n, 1, 1], [512, 1, 1]).map_err(to_text)?;
                } else {
                    command.copy().map_err(to_text)?;
                }
            }
            stream.synchronize().map_err(to_text)?;
            best = best.min(begun.elapsed().as_secs_f64() / 5.0);
        }
        rates.push(2.0 * size as f64 / best / 1e12);
    }
    Ok(format!("TB/s: driver's copy {:.2}, kernel {:.2} (ceiling 4.19)", rates[0], rates[1]))
}

/// The cost of the driver's allocations, idle and busy.
pub fn allocation(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(to_text)?;
    let grinder = pipeline(&runtime, "grind")?;
    let x = runtime.upload(&[0u32; 64]).map_err(to_text)?;
    let shared = shared(&runtime)?;
    let current = shared.context().enter().map_err(to_text)?;
    let mut text = String::from("us for alloc, free: ");
    for busy in [false, true] {
        for size in [4096usize, 1 << 20, 256 << 20] {
            if busy {
                grind(&stream, &grinder, &x, 1_000_000)?;
                stream.commit().map_err(to_text)?;
            }
            let begun = Instant::now();
            let address = current.allocate(size).map_err(to_text)?;
            let alloc = micros(begun, 1);
            let begun = Instant::now();
            // SAFETY: the memory was never used.
            unsafe { current.free(address) }.map_err(to_text)?;
            let free = micros(begun, 1);
            text += &format!("{}{size}: {alloc:.0}, {free:.0}; ", if busy { "busy " } else { "" });
            stream.synchronize().map_err(to_text)?;
        }
    }
    let begun = Instant::now();
    for _ in 0..1000 {
        drop(stream.alloc(1 << 20).map_err(to_text)?);
    }
    text += &format!("pool {:.2}", micros(begun, 1000));
    Ok(text)
}

/// Long independent kernels of one submission, concurrent or not.
pub fn overlap(options: &CudaOptions) -> Outcome {
    let mut times = Vec::new();
    for graph_from in [usize::MAX, 2] {
        let runtime = open(CudaOptions { graph_from, ..options.clone() })?;
        let stream = runtime.stream().map_err(to_text)?;
        let grinder = pipeline(&runtime, "grind")?;
        let all: Vec<Buffer> =
            (0..8).map(|_| runtime.upload(&[0u32; 64]).map_err(to_text)).collect::<Result<_, _>>()?;
        let mut best = f64::MAX;
        for _ in 0..4 {
            let begun = Instant::now();
            for x in &all {
                grind(&stream, &grinder, x, 200_000)?;
            }
            stream.synchronize().map_err(to_text)?;
            best = best.min(micros(begun, 1));
        }
        times.push(best);
    }
    Ok(format!("8 independent kernels: one by one {:.0} us, as a graph {:.0} us", times[0], times[1]))
}
