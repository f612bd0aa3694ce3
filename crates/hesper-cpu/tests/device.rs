//! The host as an asynchronous device.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hesper_cpu::{Compute, CpuDevice};
use hesper_kernel::ir::{self, Builder, Builtin, Scalar, Space, Type};
use hesper_runtime::{Buffer, Error, FaultKind, PipelineSource, Runtime, Stream};

fn cpu() -> Runtime {
    Runtime::new(CpuDevice::new())
}

fn add_one(stream: &Stream, from: &Buffer) -> Buffer {
    let out = stream.alloc(from.len()).unwrap();
    stream
        .encode("add one")
        .read(from)
        .write(&out)
        .run(|native| {
            let [from, to] = native.take()?;
            for (to, from) in to.as_mut_slice::<u64>()?.iter_mut().zip(from.as_slice::<u64>()?) {
                *to = from.wrapping_add(1);
            }
            Ok(())
        })
        .unwrap();
    out
}

#[test]
fn the_host_runs_native_commands_in_unified_memory() {
    let runtime = cpu();
    let info = runtime.info();
    assert_eq!((info.kind, info.unified_memory, info.native_commands), ("cpu", true, true));
    assert_eq!((info.multiprocessors, info.max_threads_per_group, info.simd_width), (1, 1024, 32));
}

#[test]
fn host_code_runs_while_a_command_is_blocked() {
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    let (release, blocked) = mpsc::channel::<()>();
    let out = stream.alloc(8).unwrap();
    stream
        .encode("blocked")
        .write(&out)
        .run(move |native| {
            blocked.recv_timeout(Duration::from_secs(20)).map_err(|error| error.to_string())?;
            let [out] = native.take()?;
            out.bytes_mut()?.fill(1);
            Ok(())
        })
        .unwrap();
    let submission = stream.commit().unwrap();
    // The command runs on another thread while this one continues.
    std::thread::sleep(Duration::from_millis(20));
    assert!(!submission.is_done());
    release.send(()).unwrap();
    assert_eq!(out.read().unwrap().bytes(), [1u8; 8]);
    assert!(submission.is_done());
}

#[test]
fn committed_work_finishes_without_a_waiter() {
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mark = done.clone();
    stream
        .encode("mark")
        .run(move |_| {
            mark.store(true, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
    stream.commit().unwrap();
    let begun = Instant::now();
    while !done.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody ran it");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn ten_thousand_streams_start_no_threads() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count());
    let runtime = cpu();
    let input = runtime.upload(&[1u64; 4]).unwrap();
    let warm = runtime.stream().unwrap();
    drop(add_one(&warm, &input).read().unwrap());
    let before = threads();
    let streams: Vec<Stream> = (0..10_000).map(|_| runtime.stream().unwrap()).collect();
    let outs: Vec<Buffer> = streams.iter().map(|stream| add_one(stream, &input)).collect();
    for stream in &streams {
        stream.commit().unwrap();
    }
    for out in &outs {
        assert_eq!(out.read().unwrap().as_slice::<u64>(), Some(&[2u64; 4][..]));
    }
    assert!(threads() <= before + Compute::global().threads());
    drop((streams, outs));
    runtime.synchronize().unwrap();
    assert_eq!(runtime.counters().streams, 1);
}

#[test]
fn streams_feed_each_other_across_threads() {
    let runtime = cpu();
    let begin = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (runtime, begin) = (runtime.clone(), begin.clone());
            std::thread::spawn(move || {
                begin.wait();
                let streams: Vec<Stream> = (0..3).map(|_| runtime.stream().unwrap()).collect();
                let mut x = runtime.upload(&[0u64; 64]).unwrap();
                for step in 0..300 {
                    x = add_one(&streams[step % 3], &x);
                    if step % 7 == 0 {
                        streams[step % 3].commit().unwrap();
                    }
                    if step % 50 == 0 {
                        runtime.clear_cache();
                    }
                }
                assert_eq!(x.read().unwrap().as_slice::<u64>(), Some(&[300u64; 64][..]));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    runtime.synchronize().unwrap();
    assert_eq!(runtime.counters().streams, 0);
    assert_eq!(runtime.counters().active, 0);
}

#[test]
fn many_threads_share_one_stream() {
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let (runtime, stream) = (&runtime, &stream);
            scope.spawn(move || {
                let mut x = runtime.upload(&[thread; 16]).unwrap();
                for _ in 0..200 {
                    x = add_one(stream, &x);
                }
                assert_eq!(x.read().unwrap().as_slice::<u64>(), Some(&[thread + 200; 16][..]));
            });
        }
    });
}

#[test]
fn a_panicking_command_poisons_its_output_and_the_pool_survives() {
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    let out = stream.alloc(8).unwrap();
    stream.encode("boom").write(&out).run(|_| panic!("boom")).unwrap();
    stream.commit().unwrap();
    let error = out.read().err().expect("poisoned");
    assert_eq!(error.fault().unwrap().kind(), FaultKind::Panicked);
    let x = runtime.upload(&[1u64; 4]).unwrap();
    assert_eq!(add_one(&stream, &x).read().unwrap().as_slice::<u64>(), Some(&[2u64; 4][..]));
}

#[test]
fn work_in_flight_survives_the_drop_of_every_handle() {
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let runtime = cpu();
        let stream = runtime.stream().unwrap();
        let x = runtime.upload(&[1u64; 256]).unwrap();
        let out = stream.alloc(2048).unwrap();
        let seen = count.clone();
        stream
            .encode("late")
            .read(&x)
            .write(&out)
            .run(move |native| {
                let [from, _] = native.take()?;
                assert_eq!(from.as_slice::<u64>()?, [1u64; 256]);
                seen.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
        std::thread::spawn(move || drop((runtime, stream, x, out))).join().unwrap();
    }
    let begun = Instant::now();
    while count.load(Ordering::SeqCst) < 100 {
        assert!(begun.elapsed() < Duration::from_secs(10), "some work was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn too_much_in_flight_makes_the_encoder_wait() {
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    let most = Arc::new(AtomicUsize::new(0));
    for _ in 0..500 {
        stream
            .encode("slow")
            .run(|_| {
                std::thread::sleep(Duration::from_micros(50));
                Ok(())
            })
            .unwrap();
        stream.commit().unwrap();
        most.fetch_max(stream.in_flight() as usize, Ordering::SeqCst);
    }
    assert!(most.load(Ordering::SeqCst) <= runtime.info().max_in_flight);
    stream.synchronize().unwrap();
}

#[test]
fn queued_work_can_be_cancelled_while_some_of_it_runs() {
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    let (release, blocked) = mpsc::channel::<()>();
    let first = stream.alloc(8).unwrap();
    stream
        .encode("running")
        .write(&first)
        .run(move |_| blocked.recv_timeout(Duration::from_secs(20)).map_err(|error| error.to_string().into()))
        .unwrap();
    stream.commit().unwrap();
    let queued: Vec<Buffer> = (0..10)
        .map(|_| {
            let out = add_one(&stream, &runtime.upload(&[1u64]).unwrap());
            stream.commit().unwrap();
            out
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20));
    stream.cancel();
    release.send(()).unwrap();
    for out in &queued {
        let error = out.read().err().expect("cancelled");
        assert_eq!(error.fault().unwrap().kind(), FaultKind::Cancelled);
    }
    first.read().expect("what runs already runs to its end");
}

#[test]
fn a_pool_under_growing_sizes_does_not_hoard() {
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    let (mut largest, mut most) = (0, 0);
    for step in 1..400 {
        largest = step << 20;
        let buffer = stream.alloc(largest).unwrap();
        stream.encode("fill").write(&buffer).run(|_| Ok(())).unwrap();
        drop(buffer);
        stream.synchronize().unwrap();
        most = most.max(runtime.counters().allocated);
    }
    assert!(most < 3 * largest, "{most} bytes at once for a program that needs {largest}");
}

#[test]
fn kernels_are_dispatched_with_their_grid_and_constants() {
    let mut b = Builder::new("fill");
    let out = b.buffer("out", Space::Device, Type::Scalar(Scalar::U8), ir::Access::ReadWrite);
    let value = b.value_param("value", Type::Scalar(Scalar::U8));
    let index = b.builtin(Builtin::ThreadPositionInGrid, 0);
    b.store_index(out, index, value);
    let kernel = b.finish().unwrap();
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    let source = PipelineSource::new("fill", "hesper-ir", "fill").with_payload(Arc::new(kernel));
    let pipeline = runtime.pipeline(&source).unwrap();
    let out = stream.alloc(1000).unwrap();
    stream.encode("fill").write(&out).constants(&[7]).dispatch(&pipeline, [1000, 1, 1], [32, 1, 1]).unwrap();
    assert_eq!(out.read().unwrap().bytes(), [7u8; 1000]);
    let unknown = runtime.pipeline(&PipelineSource::new("k", "klingon", "nuqneH"));
    assert!(matches!(unknown, Err(Error::Compile { .. })));
}

#[test]
fn a_runaway_kernel_can_be_cancelled() {
    let text = "kernel void spin(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
        uint n = 0;
        while (out[0] != 7u) { n += 1; if (n == 0xffffffffu) { n = 0; } }
        out[i] = n;
    }";
    let kernel = hesper_kernel::front::compile_file("spin.metal", text).unwrap().kernels.remove(0);
    let runtime = cpu();
    let stream = runtime.stream().unwrap();
    let source = PipelineSource::new("spin", "metal", text).with_payload(Arc::new(kernel));
    let pipeline = runtime.pipeline(&source).unwrap();
    let out = runtime.upload(&[0u32; 64]).unwrap();
    stream.encode("spin").read_write(&out).dispatch(&pipeline, [64, 1, 1], [32, 1, 1]).unwrap();
    let submission = stream.commit().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!submission.is_done(), "it runs for ever");
    stream.cancel();
    assert!(submission.wait().is_err());
    assert!(out.read().is_err(), "what it would have written is poisoned");
    let x = runtime.upload(&[1u64]).unwrap();
    assert_eq!(
        add_one(&stream, &x).read().unwrap().as_slice::<u64>(),
        Some(&[2u64][..]),
        "the stream works on"
    );
}

#[test]
fn a_sleeping_waiter_wakes_when_its_work_becomes_ready() {
    let runtime = cpu();
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let [first, second, third] = [0, 1, 2].map(|_| runtime.stream().unwrap());
        let slow = second.alloc(512).unwrap();
        let (begin, begun) = std::sync::mpsc::channel();
        second
            .encode("slow")
            .write(&slow)
            .run(move |native| {
                let [out] = native.take()?;
                begin.send(()).map_err(|_| "nobody waits")?;
                std::thread::sleep(std::time::Duration::from_millis(200));
                out.bytes_mut()?.fill(0);
                Ok(())
            })
            .unwrap();
        second.commit().unwrap();
        // On a worker, so that the wait below finds it running.
        begun.recv().unwrap();
        let x = runtime.upload(&[0u64; 64]).unwrap();
        // The use on the third stream closes it; the wait below submits it.
        let one = add_one(&first, &x);
        let _other = add_one(&third, &one);
        // A separate submission that waits for the second stream.
        let two = add_one(&first, &slow);
        assert_eq!(two.read().unwrap().as_slice::<u64>(), Some(&[1u64; 64][..]));
        done.send(()).unwrap();
    });
    finished.recv_timeout(std::time::Duration::from_secs(20)).expect("the wait ends");
}
