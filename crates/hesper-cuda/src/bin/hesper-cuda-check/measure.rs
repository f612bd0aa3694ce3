//! Measurements: launches, waits, transfers, allocation.

use std::time::{Duration, Instant};

use hesper_cuda::context::Context;
use hesper_cuda::{CudaOptions, sys};
use hesper_runtime::{Buffer, Runtime};

use crate::basics::shared;
use crate::kernels::{bump, grind, mix, open, pipeline};
use crate::report::{Outcome, ensure, words};

fn micros(begun: Instant, count: usize) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / count as f64
}

/// Microseconds per command of a chain of tiny kernels: with the host, and the host's part alone.
fn chain(
    runtime: &Runtime,
    commands: usize,
    step: &mut dyn FnMut() -> Result<(), String>,
) -> Result<(f64, f64), String> {
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..4 {
        runtime.synchronize().map_err(words)?;
        let begun = Instant::now();
        for _ in 0..commands {
            step()?;
        }
        let encoded = micros(begun, commands);
        runtime.synchronize().map_err(words)?;
        best = (best.0.min(micros(begun, commands)), best.1.min(encoded));
    }
    Ok(best)
}

/// Chains of tiny kernels, launched in one form.
pub fn chains(options: &CudaOptions, what: &str) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(words)?;
    let (add, mixer) = (pipeline(&runtime, "bump")?, pipeline(&runtime, "mix")?);
    let x = runtime.upload(&[0u32; 1024]).map_err(words)?;
    let commands = 8192;
    let same = chain(&runtime, commands, &mut || bump(&stream, &add, &x))?;
    // Temporaries from the pool; then with constants that change, so that every node does.
    let mut moving = [(0.0, 0.0); 2];
    let mut changed = [0; 2];
    let mut salt = 0;
    for (variant, figure) in moving.iter_mut().enumerate() {
        let mut state: Buffer = runtime.upload(&[1u32; 1024]).map_err(words)?;
        let before = shared(&runtime)?.counters().graphs.changed;
        *figure = chain(&runtime, commands, &mut || {
            let next = stream.alloc(4096).map_err(words)?;
            salt += variant as u32;
            mix(&stream, &mixer, &state, &x, &next, salt)?;
            state = next;
            Ok(())
        })?;
        changed[variant] = shared(&runtime)?.counters().graphs.changed - before;
    }
    let wide: Vec<Buffer> =
        (0..16).map(|_| runtime.upload(&[0u32; 1024]).map_err(words)).collect::<Result<_, _>>()?;
    let mut turn = 0;
    let independent = chain(&runtime, commands, &mut || {
        turn += 1;
        bump(&stream, &add, &wide[turn % 16])
    })?;
    let made = shared(&runtime)?.counters().graphs.made;
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

/// What the calls around a submission take.
pub fn driver_calls() -> Outcome {
    let context = Context::create(0).map_err(words)?;
    let current = context.enter().map_err(words)?;
    let stream = current.create_stream().map_err(words)?;
    let event =
        current.create_event(sys::CU_EVENT_BLOCKING_SYNC | sys::CU_EVENT_DISABLE_TIMING).map_err(words)?;
    let count = 2000;
    let mut record = f64::MAX;
    let mut query = f64::MAX;
    let mut enter = f64::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        for _ in 0..count {
            // SAFETY: handles are alive.
            unsafe { current.record(event, stream) }.map_err(words)?;
        }
        record = record.min(micros(begun, count));
        let begun = Instant::now();
        for _ in 0..count {
            // SAFETY: handles are alive.
            unsafe { current.query(event) }.map_err(words)?;
        }
        query = query.min(micros(begun, count));
        let begun = Instant::now();
        for _ in 0..count {
            drop(context.enter().map_err(words)?);
        }
        enter = enter.min(micros(begun, count));
    }
    // SAFETY: nothing is in flight.
    unsafe {
        current.destroy_event(event).map_err(words)?;
        current.destroy_stream(stream).map_err(words)?;
    }
    Ok(format!("us each: event record {record:.2}, event query {query:.2}, context push and pop {enter:.2}"))
}

/// One command, committed and waited for.
pub fn latency(options: &CudaOptions) -> Outcome {
    let mut text = String::new();
    for look in [0, 50, 1000] {
        let runtime = open(CudaOptions { look: Duration::from_micros(look), ..options.clone() })?;
        let stream = runtime.stream().map_err(words)?;
        let add = pipeline(&runtime, "bump")?;
        let x = runtime.upload(&[0u32; 256]).map_err(words)?;
        let mut times: Vec<f64> = Vec::new();
        let mut submits: Vec<f64> = Vec::new();
        let mut reads: Vec<f64> = Vec::new();
        for _ in 0..300 {
            let begun = Instant::now();
            bump(&stream, &add, &x)?;
            let submission = stream.commit().map_err(words)?;
            submits.push(micros(begun, 1));
            submission.wait().map_err(words)?;
            times.push(micros(begun, 1));
            let begun = Instant::now();
            drop(x.read().map_err(words)?);
            reads.push(micros(begun, 1));
        }
        let median = |list: &mut Vec<f64>| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        text += &format!(
            "look {look} us: submit {:.1}, submit and wait {:.1}, read of 1 KiB {:.1} us; ",
            median(&mut submits),
            median(&mut times),
            median(&mut reads)
        );
    }
    Ok(text)
}

/// Submissions of one command each, not waited for.
pub fn submissions(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(words)?;
    let add = pipeline(&runtime, "bump")?;
    let x = runtime.upload(&[0u32; 256]).map_err(words)?;
    let each = chain(&runtime, 2000, &mut || {
        bump(&stream, &add, &x)?;
        stream.commit().map(|_| ()).map_err(words)
    })?;
    Ok(format!("{:.2} us per submission of one command", each.0))
}

/// Bandwidth of transfers and of copies in the device.
pub fn bandwidth(runtime: &Runtime) -> Outcome {
    let gigabytes = |bytes: usize, seconds: f64| bytes as f64 / seconds / 1e9;
    let mut text = String::new();
    {
        let shared = shared(runtime)?;
        let current = shared.context().enter().map_err(words)?;
        let size = 256 << 20;
        let stream = current.create_stream().map_err(words)?;
        let (host, device) =
            (current.allocate_host(size).map_err(words)?, current.allocate(size).map_err(words)?);
        let mut best = (f64::MAX, f64::MAX);
        for _ in 0..4 {
            // SAFETY: both sides have `size` bytes, and the stream is waited for.
            unsafe {
                let begun = Instant::now();
                current.copy_in(device, host, size, stream).map_err(words)?;
                current.synchronize_stream(stream).map_err(words)?;
                best.0 = best.0.min(begun.elapsed().as_secs_f64());
                let begun = Instant::now();
                current.copy_out(host, device, size, stream).map_err(words)?;
                current.synchronize_stream(stream).map_err(words)?;
                best.1 = best.1.min(begun.elapsed().as_secs_f64());
            }
        }
        // SAFETY: nothing uses them any more.
        unsafe {
            current.free(device).map_err(words)?;
            current.free_host(host).map_err(words)?;
            current.destroy_stream(stream).map_err(words)?;
        }
        text +=
            &format!("GB/s: pinned in {:.1}, out {:.1}; ", gigabytes(size, best.0), gigabytes(size, best.1));
    }
    let size = 512usize << 20;
    let data = vec![1u8; size];
    let buffer = runtime.alloc(size).map_err(words)?;
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        let mut guard = buffer.write().map_err(words)?;
        guard.bytes_mut().copy_from_slice(&data);
        let begun = Instant::now();
        guard.finish().map_err(words)?;
        best.0 = best.0.min(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let guard = buffer.read().map_err(words)?;
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

/// Copies inside of the device, read and write counted.
pub fn device_copies(runtime: &Runtime) -> Outcome {
    let size = (4usize << 30).min(runtime.info().total_memory / 8);
    let stream = runtime.stream().map_err(words)?;
    let (from, to) = (stream.alloc(size).map_err(words)?, stream.alloc(size).map_err(words)?);
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
    fill(&from).map_err(words)?;
    fill(&to).map_err(words)?;
    let mut rates = Vec::new();
    for by_kernel in [false, true] {
        let mut best = f64::MAX;
        for _ in 0..4 {
            stream.synchronize().map_err(words)?;
            let begun = Instant::now();
            for _ in 0..5 {
                let command = stream.encode("copy").read(&from).write(&to);
                if by_kernel {
                    let n = (size / 16) as u64;
                    let command = command.constants(&n.to_ne_bytes());
                    command.dispatch(&kernel, [n, 1, 1], [512, 1, 1]).map_err(words)?;
                } else {
                    command.copy().map_err(words)?;
                }
            }
            stream.synchronize().map_err(words)?;
            best = best.min(begun.elapsed().as_secs_f64() / 5.0);
        }
        rates.push(2.0 * size as f64 / best / 1e12);
    }
    Ok(format!("TB/s: driver's copy {:.2}, kernel {:.2} (ceiling 4.19)", rates[0], rates[1]))
}

/// What the driver takes for memory, idle and busy.
pub fn allocation(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(words)?;
    let grinder = pipeline(&runtime, "grind")?;
    let x = runtime.upload(&[0u32; 64]).map_err(words)?;
    let shared = shared(&runtime)?;
    let current = shared.context().enter().map_err(words)?;
    let mut text = String::from("us for alloc, free: ");
    for busy in [false, true] {
        for size in [4096usize, 1 << 20, 256 << 20] {
            if busy {
                grind(&stream, &grinder, &x, 1_000_000)?;
                stream.commit().map_err(words)?;
            }
            let begun = Instant::now();
            let address = current.allocate(size).map_err(words)?;
            let alloc = micros(begun, 1);
            let begun = Instant::now();
            // SAFETY: the memory was never used.
            unsafe { current.free(address) }.map_err(words)?;
            let free = micros(begun, 1);
            text += &format!("{}{size}: {alloc:.0}, {free:.0}; ", if busy { "busy " } else { "" });
            stream.synchronize().map_err(words)?;
        }
    }
    let begun = Instant::now();
    for _ in 0..1000 {
        drop(stream.alloc(1 << 20).map_err(words)?);
    }
    text += &format!("pool {:.2}", micros(begun, 1000));
    Ok(text)
}

/// Long independent kernels of one submission, side by side or not.
pub fn overlap(options: &CudaOptions) -> Outcome {
    let mut times = Vec::new();
    for graph_from in [usize::MAX, 2] {
        let runtime = open(CudaOptions { graph_from, ..options.clone() })?;
        let stream = runtime.stream().map_err(words)?;
        let grinder = pipeline(&runtime, "grind")?;
        let all: Vec<Buffer> =
            (0..8).map(|_| runtime.upload(&[0u32; 64]).map_err(words)).collect::<Result<_, _>>()?;
        let mut best = f64::MAX;
        for _ in 0..4 {
            let begun = Instant::now();
            for x in &all {
                grind(&stream, &grinder, x, 200_000)?;
            }
            stream.synchronize().map_err(words)?;
            best = best.min(micros(begun, 1));
        }
        times.push(best);
    }
    Ok(format!("8 independent kernels: one by one {:.0} us, as a graph {:.0} us", times[0], times[1]))
}
