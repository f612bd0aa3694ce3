//! Model checking of the small state machines: the same code on the locks and atomics of a model checker,
//! under thousands of schedules.
//!
//! `RUSTFLAGS="--cfg hesper_model" cargo test -p hesper-runtime --test model --target-dir target/model`
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(hesper_model)]

use std::sync::Arc;

use hesper_runtime::sim::{Call, Failure, Sim};
use hesper_runtime::{Buffer, Error, PipelineSource, Runtime, Stream};
use shuttle::thread;

const SCHEDULES: usize = 1500;

/// Checks `body` under random schedules and under schedules with few preemptions.
fn check(body: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(body.clone(), SCHEDULES);
    shuttle::check_pct(body, SCHEDULES, 3);
}

fn copy(stream: &Stream, from: &Buffer) -> Buffer {
    let out = stream.alloc(from.len()).unwrap();
    stream.encode("copy").read(from).write(&out).copy().unwrap();
    out
}

/// Asserts that nothing leaked and no rule was violated once the device is idle.
fn assert_clean(sim: &Sim) {
    while sim.step() {}
    assert!(sim.is_empty(), "something is left behind");
    assert_eq!(sim.violations(), []);
}

#[test]
fn retiring_and_dropping_race() {
    check(|| {
        let sim = Sim::new(1);
        let runtime = Runtime::new(sim.clone());
        let stream = runtime.stream().unwrap();
        let input = runtime.upload(&[7u8; 8]).unwrap();
        let out = copy(&stream, &input);
        let submission = stream.commit().unwrap();
        let device = sim.clone();
        let completer = thread::spawn(move || while device.step() {});
        let dropper = thread::spawn(move || drop((input, stream)));
        assert_eq!(out.read().unwrap().bytes(), [7u8; 8]);
        submission.wait().unwrap();
        completer.join().unwrap();
        dropper.join().unwrap();
        drop((submission, out, runtime));
        assert_clean(&sim);
    });
}

#[test]
fn blocks_are_reused_across_streams() {
    check(|| {
        let sim = Sim::new(2);
        let runtime = Runtime::new(sim.clone());
        let threads: Vec<_> = (0..2u8)
            .map(|me| {
                let runtime = runtime.clone();
                thread::spawn(move || {
                    let stream = runtime.stream().unwrap();
                    let mut x = runtime.upload(&[me; 8]).unwrap();
                    for _ in 0..2 {
                        x = copy(&stream, &x);
                    }
                    runtime.clear_cache();
                    assert_eq!(x.read().unwrap().bytes(), [me; 8]);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(runtime);
        assert_clean(&sim);
    });
}

#[test]
fn a_kernel_is_compiled_once_for_all_threads() {
    check(|| {
        let sim = Sim::new(3);
        let runtime = Runtime::new(sim.clone());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let runtime = runtime.clone();
                thread::spawn(move || runtime.pipeline(&PipelineSource::new("k", "mix", "mix 1")).unwrap())
            })
            .collect();
        let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(found.iter().all(|pipeline| Arc::ptr_eq(pipeline, &found[0])));
        assert_eq!(runtime.counters().pipelines.compiled, 1);
        drop((found, runtime));
        assert_clean(&sim);
    });
}

#[test]
fn a_failed_compilation_wakes_all_waiters() {
    check(|| {
        let sim = Sim::builder(4).fail(Failure::Nth(Call::Compile, 0)).build();
        let runtime = Runtime::new(sim.clone());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let runtime = runtime.clone();
                thread::spawn(move || runtime.pipeline(&PipelineSource::new("k", "mix", "mix 1")).is_ok())
            })
            .collect();
        let found = threads.into_iter().filter(|_| true).map(|thread| thread.join().unwrap());
        assert!(found.filter(|ok| !ok).count() >= 1, "the first to compile fails");
        drop(runtime);
        assert_clean(&sim);
    });
}

#[test]
fn a_fault_reaches_every_reader() {
    check(|| {
        let sim = Sim::new(5);
        let runtime = Runtime::new(sim.clone());
        let stream = runtime.stream().unwrap();
        let bad = stream.alloc(8).unwrap();
        stream.encode("bad").write(&bad).run(|_| Err("no".into())).unwrap();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (bad, runtime) = (bad.clone(), runtime.clone());
                thread::spawn(move || {
                    let own = runtime.stream().unwrap();
                    let out = own.alloc(8).unwrap();
                    // Refused now or failed later, with the same first cause.
                    let _ = own.encode("next").read(&bad).write(&out).copy();
                    for buffer in [&bad, &out] {
                        match buffer.read() {
                            Err(Error::Fault(fault)) => assert_eq!(fault.command(), "bad"),
                            other => panic!("no fault: {:?}", other.map(|_| ())),
                        }
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        drop((bad, stream, runtime));
        assert_clean(&sim);
    });
}

#[test]
fn two_streams_that_feed_each_other_never_wait_for_each_other() {
    check(|| {
        let sim = Sim::new(6);
        let runtime = Runtime::new(sim.clone());
        let (one, two) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        let start = runtime.upload(&[1u8; 8]).unwrap();
        let (a, b) = (copy(&one, &start), copy(&two, &start));
        let threads: Vec<_> = [(one, b), (two, a)]
            .into_iter()
            .map(|(stream, other)| {
                thread::spawn(move || {
                    let out = copy(&stream, &other);
                    assert_eq!(out.read().unwrap().bytes(), [1u8; 8]);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop((start, runtime));
        assert_clean(&sim);
    });
}

#[test]
fn a_guard_and_a_writer_do_not_race() {
    check(|| {
        let sim = Sim::new(7);
        let runtime = Runtime::new(sim.clone());
        let stream = runtime.stream().unwrap();
        let buffer = runtime.upload(&[1u8; 8]).unwrap();
        let (shared, writer) = (buffer.clone(), stream.clone());
        let thread = thread::spawn(move || {
            let fill = writer.encode("fill").write(&shared).run(|native| {
                let [out] = native.take()?;
                out.bytes_mut()?.fill(2);
                Ok(())
            });
            assert!(matches!(fill, Ok(()) | Err(Error::HostAccess { .. })));
        });
        {
            let guard = buffer.read().unwrap();
            let first = guard.bytes()[0];
            thread::yield_now();
            assert!(guard.bytes().iter().all(|byte| *byte == first), "the bytes changed under a guard");
        }
        thread.join().unwrap();
        drop((buffer, stream, runtime));
        assert_clean(&sim);
    });
}
