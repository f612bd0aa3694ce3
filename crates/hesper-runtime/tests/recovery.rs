//! After a failure the program continues as if the failed call had never been made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hesper_runtime::sim::{Call, Failure, Sim};
use hesper_runtime::{Buffer, Error, FaultKind, HostMemory, Runtime, Stream, Watch};

fn copy(stream: &Stream, from: &Buffer) -> Buffer {
    let out = stream.alloc(from.len()).unwrap();
    stream.encode("copy").read(from).write(&out).copy().unwrap();
    out
}

fn fill(stream: &Stream, buffer: &Buffer, value: u8) -> Result<(), Error> {
    stream.encode("fill").write(buffer).run(move |native| {
        let [out] = native.take()?;
        out.bytes_mut()?.fill(value);
        Ok(())
    })
}

/// A runtime whose submission `refused` is refused, without and with validation, for many seeds.
fn each_refusal(refused: u64, mut body: impl FnMut(u64, &Runtime)) {
    for seed in 0..200 {
        let sim = Sim::builder(seed).fail(Failure::Nth(Call::Submit, refused)).build();
        let runtime = Runtime::builder(sim.clone()).validate(seed % 2 == 1).build();
        body(seed, &runtime);
        runtime.synchronize().unwrap();
        assert_eq!(sim.violations(), [], "seed {seed}");
        if let Some(report) = runtime.validation() {
            assert_eq!(report.violations(), [], "seed {seed}");
        }
    }
}

#[test]
fn a_read_after_a_refused_read_waits_for_the_writer() {
    each_refusal(1, |seed, runtime| {
        let (a, b) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        let x = b.alloc(8).unwrap();
        fill(&b, &x, 7).unwrap();
        b.commit().unwrap();
        let refused = copy(&a, &x);
        a.commit().unwrap();
        let second = copy(&a, &x);
        assert_eq!(second.read().unwrap().bytes(), [7; 8], "seed {seed}");
        assert!(refused.read().is_err());
    });
}

#[test]
fn memory_of_a_refused_write_is_not_reused_while_an_older_write_runs() {
    each_refusal(1, |seed, runtime| {
        let (a, b) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        let x = b.alloc(8).unwrap();
        fill(&b, &x, 7).unwrap();
        b.commit().unwrap();
        fill(&a, &x, 9).unwrap();
        a.commit().unwrap();
        drop(x);
        let fresh = runtime.upload(&[1u8; 8]).unwrap();
        b.synchronize().unwrap();
        assert_eq!(fresh.read().unwrap().bytes(), [1; 8], "seed {seed}");
    });
}

#[test]
fn a_third_stream_that_depends_on_a_refused_write_waits_for_what_that_waited_for() {
    each_refusal(1, |seed, runtime| {
        let (a, b, c) = (runtime.stream().unwrap(), runtime.stream().unwrap(), runtime.stream().unwrap());
        let x = b.alloc(8).unwrap();
        fill(&b, &x, 7).unwrap();
        b.commit().unwrap();
        fill(&a, &x, 9).unwrap();
        a.commit().unwrap();
        // The write of `c` covers the refused one; it must still be ordered after the write of `b`.
        let y = c.alloc(8).unwrap();
        fill(&c, &y, 3).unwrap();
        let _ = fill(&c, &x, 5);
        assert_eq!(y.read().unwrap().bytes(), [3; 8], "seed {seed}");
        c.synchronize().unwrap();
    });
}

#[test]
fn a_result_that_was_computed_before_a_failing_update_stays_good() {
    for seed in 0..100 {
        let runtime = Runtime::new(Sim::new(seed));
        let stream = runtime.stream().unwrap();
        let x = runtime.upload(&[4u8; 8]).unwrap();
        let before = copy(&stream, &x);
        stream.encode("update").read_write(&x).run(|_| Err("no".into())).unwrap();
        let after = copy(&stream, &x);
        assert_eq!(before.read().unwrap().bytes(), [4; 8], "seed {seed}");
        assert_eq!(after.read().err().unwrap().fault().unwrap().command(), "update");
        assert!(x.read().is_err());
    }
}

#[test]
fn a_result_in_flight_is_not_poisoned_by_the_refusal_of_a_later_update() {
    each_refusal(1, |seed, runtime| {
        let (a, b) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        let x = runtime.upload(&[4u8; 8]).unwrap();
        let before = copy(&b, &x);
        b.commit().unwrap();
        let update = a.encode("update").read_write(&x).run(|_| Ok(()));
        update.unwrap();
        a.commit().unwrap();
        assert_eq!(before.read().unwrap().bytes(), [4; 8], "seed {seed}");
        assert!(x.read().is_err());
    });
}

#[test]
fn a_command_that_ran_to_its_end_is_not_cancelled_afterwards() {
    for faulty in [false, true] {
        let runtime = Runtime::new(Sim::new(1));
        let (stream, other) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        if faulty {
            let bad = other.alloc(8).unwrap();
            other.encode("bad").write(&bad).run(|_| Err("no".into())).unwrap();
            other.synchronize().unwrap();
        }
        let (out, canceller) = (stream.alloc(8).unwrap(), stream.clone());
        stream
            .encode("long")
            .write(&out)
            .run(move |native| {
                let [out] = native.take()?;
                canceller.cancel();
                out.bytes_mut()?.fill(6);
                Ok(())
            })
            .unwrap();
        assert_eq!(out.read().unwrap().bytes(), [6; 8], "an earlier fault: {faulty}");
    }
}

#[test]
fn free_memory_is_found_whatever_held_it_before() {
    const S: usize = 1 << 20;
    let runtime = Runtime::builder(Sim::new(1)).memory_limit(10 * S).cache_limit(10 * S).build();
    let stream = runtime.stream().unwrap();
    let held = stream.alloc(5 * S).unwrap();
    fill(&stream, &held, 1).unwrap();
    let temporary = stream.alloc(3 * S).unwrap();
    fill(&stream, &temporary, 2).unwrap();
    drop(temporary);
    stream.synchronize().unwrap();
    let next = stream.alloc(4 * S).expect("five parts of ten are free");
    assert_eq!(next.len(), 4 * S);
}

#[test]
fn a_fault_of_an_automatically_committed_submission_is_reported() {
    let runtime = Runtime::new(Sim::builder(1).batch(2).build());
    let (stream, other) = (runtime.stream().unwrap(), runtime.stream().unwrap());
    let input = runtime.upload(&[1u8; 8]).unwrap();
    let bad = || {
        let out = stream.alloc(8).unwrap();
        stream.encode("bad").read(&input).write(&out).run(|_| Err("no".into())).unwrap();
        out
    };
    let _outputs = [bad(), bad()];
    let full = stream.commit().unwrap();
    assert!(matches!(full.wait(), Err(Error::Fault(_))), "committed because it was full");
    stream.commit().unwrap().wait().expect_err("nothing was encoded since: the same point in the stream");

    let x = bad();
    let y = other.alloc(8).unwrap();
    other.encode("reads").read(&x).write(&y).copy().unwrap();
    let closed = stream.commit().unwrap();
    assert!(matches!(closed.wait(), Err(Error::Fault(_))), "closed by another stream's read");
    let _good = copy(&stream, &input);
    stream.commit().unwrap().wait().expect("this part of the stream is good");
}

#[derive(Default)]
struct Panics(AtomicBool);

impl Watch for Panics {
    fn check(&self) -> Result<(), String> {
        assert!(!self.0.load(Ordering::Relaxed), "the watch panics");
        Ok(())
    }
}

struct Mapped(Vec<u8>, Arc<Panics>);

// SAFETY: the heap memory of the vector neither moves nor changes.
unsafe impl HostMemory for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(self.1.clone())
    }
}

#[test]
fn a_watch_that_panics_is_a_fault_of_what_it_watches() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let watch = Arc::new(Panics::default());
    let mapped = runtime.adopt(Mapped(vec![7; 64], watch.clone()), "a file").unwrap();
    let out = copy(&stream, &mapped);
    watch.0.store(true, Ordering::Relaxed);
    let error = out.read().err().expect("its source cannot be relied on");
    let fault = error.fault().unwrap();
    assert_eq!(fault.kind(), FaultKind::Source);
    assert!(fault.message().contains("the watch panics"), "{fault}");
    assert!(mapped.read().is_err());
    let good = copy(&stream, &runtime.upload(&[1u8; 8]).unwrap());
    assert_eq!(good.read().unwrap().bytes(), [1; 8]);
}

/// A panic payload whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the payload panics when it is dropped");
    }
}

#[test]
fn a_panic_whose_payload_panics_is_a_fault_like_any_other() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let out = stream.alloc(8).unwrap();
    stream.encode("bomb").write(&out).run(|_| std::panic::panic_any(Bomb)).unwrap();
    assert_eq!(out.read().err().unwrap().fault().unwrap().kind(), FaultKind::Panicked);
}

#[test]
fn a_capture_whose_destructor_panics_fails_nothing_else() {
    struct Captured;
    impl Drop for Captured {
        fn drop(&mut self) {
            panic!("a destructor panics");
        }
    }
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let out = stream.alloc(8).unwrap();
    let captured = Captured;
    let encoded = stream.encode("holds").write(&out).run(move |native| {
        let _captured = &captured;
        let [out] = native.take()?;
        out.bytes_mut()?.fill(1);
        Ok(())
    });
    encoded.unwrap();
    assert!(out.read().is_err(), "the command panicked");
    let good = copy(&stream, &runtime.upload(&[1u8; 8]).unwrap());
    assert_eq!(good.read().unwrap().bytes(), [1; 8]);
}

/// Writes a block and returns it to the pool, so that the next buffer of its size takes it.
fn dirty(runtime: &Runtime, stream: &Stream) {
    let old = runtime.upload(&[0xaau8; 4096]).unwrap();
    drop(old);
    let old = stream.alloc(4096).unwrap();
    fill(stream, &old, 0xbb).unwrap();
    drop(old);
    stream.synchronize().unwrap();
}

#[test]
fn no_safe_call_exposes_the_bytes_of_an_earlier_lease() {
    for unified in [true, false] {
        let runtime = Runtime::new(Sim::builder(3).unified_memory(unified).build());
        let stream = runtime.stream().unwrap();

        dirty(&runtime, &stream);
        let fresh = stream.alloc(4096).unwrap();
        let update = stream.encode("update").read_write(&fresh).run(|_| Ok(()));
        assert!(matches!(update, Err(Error::Unfilled { .. })), "read_write reads");

        dirty(&runtime, &stream);
        let silent = stream.alloc(4096).unwrap();
        stream.encode("writes nothing").write(&silent).run(|_| Ok(())).unwrap();
        assert_eq!(silent.read().unwrap().bytes(), [0; 4096]);

        dirty(&runtime, &stream);
        let partial = stream.alloc(4096).unwrap();
        let half = stream.encode("half").write_range(&partial, 0..2048);
        half.run(|_| Ok(())).unwrap();
        assert!(matches!(partial.read(), Err(Error::Unfilled { .. })), "only half is filled");
        assert_eq!(partial.read_range(0..2048).unwrap().bytes(), [0; 2048]);
        let whole = stream.encode("reads").read(&partial).run(|_| Ok(()));
        assert!(matches!(whole, Err(Error::Unfilled { .. })));
        stream.encode("reads").read_range(&partial, 100..2048).run(|_| Ok(())).unwrap();
        stream.encode("rest").write_range(&partial, 2048..).run(|_| Ok(())).unwrap();
        assert_eq!(partial.read().unwrap().bytes(), [0; 4096]);

        dirty(&runtime, &stream);
        let by_host = runtime.alloc(4096).unwrap();
        assert_eq!(by_host.write().unwrap().bytes(), [0; 4096]);
    }
    let runtime = Runtime::new(Sim::new(3));
    let stream = runtime.stream().unwrap();
    dirty(&runtime, &stream);
    let fresh = stream.alloc(4096).unwrap();
    let looks = stream.encode("looks").write(&fresh).run(|native| {
        let [out] = native.take()?;
        assert!(out.bytes().is_err(), "bound to write only");
        assert!(out.bytes_mut()?.iter().all(|byte| *byte == 0));
        Ok(())
    });
    looks.unwrap();
    fresh.read().unwrap();
}

#[test]
fn ranges_written_one_by_one_fill_the_buffer() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let buffer = stream.alloc(1000).unwrap();
    // Every other range, then the gaps, in an order that merges in the middle.
    for start in (0..1000).step_by(20).chain((10..1000).step_by(20).rev()) {
        assert!(matches!(buffer.read(), Err(Error::Unfilled { .. })));
        stream.encode("part").write_range(&buffer, start..start + 10).run(|_| Ok(())).unwrap();
    }
    assert_eq!(buffer.read().unwrap().bytes(), [0; 1000]);
}

/// A buffer and its expected elements.
struct Checked {
    buffer: Buffer,
    bytes: Vec<u8>,
}

/// A program over three streams that continues after failures. Returns the numbers of results read and of
/// right ones. A result is right or an error.
fn survive(seed: u64, runtime: &Runtime) -> (usize, usize) {
    const LEN: usize = 16;
    let mut rng = hesper_runtime::sim::Rng::new(seed);
    let streams: Vec<Stream> = (0..3).filter_map(|_| runtime.stream().ok()).collect();
    let (mut known, mut read, mut good): (Vec<Checked>, usize, usize) = (Vec::new(), 0, 0);
    let mut check = |known: &Checked| {
        read += 1;
        if let Ok(guard) = known.buffer.read() {
            good += 1;
            assert_eq!(guard.bytes(), known.bytes, "seed {seed}");
        }
    };
    for _ in 0..40 {
        if streams.is_empty() {
            break;
        }
        let stream = &streams[rng.below(streams.len())];
        let at = if known.is_empty() { None } else { Some(rng.below(known.len())) };
        match (rng.below(10), at) {
            (0..=1, _) | (_, None) => {
                let bytes = vec![rng.bits() as u8; LEN];
                known.extend(runtime.upload(&bytes).map(|buffer| Checked { buffer, bytes }).ok());
            }
            (2..=4, Some(at)) => {
                let Ok(buffer) = stream.alloc(LEN) else { continue };
                if stream.encode("copy").read(&known[at].buffer).write(&buffer).copy().is_ok() {
                    let bytes = known[at].bytes.clone();
                    known.push(Checked { buffer, bytes });
                }
            }
            (5..=6, Some(at)) => {
                let add = stream.encode("add").read_write(&known[at].buffer).run(|native| {
                    let [x] = native.take()?;
                    x.bytes_mut()?.iter_mut().for_each(|x| *x = x.wrapping_add(1));
                    Ok(())
                });
                if add.is_ok() {
                    known[at].bytes.iter_mut().for_each(|x| *x = x.wrapping_add(1));
                }
            }
            (7, Some(at)) => drop(known.swap_remove(at)),
            (8, Some(at)) => check(&known[at]),
            _ => drop(stream.commit()),
        }
    }
    known.iter().for_each(&mut check);
    (read, good)
}

#[test]
fn whatever_call_fails_results_are_right_or_errors_and_the_program_continues() {
    let (mut injected, mut poisoned) = (0, 0);
    for seed in 0..40 {
        let clean = Sim::new(seed);
        let (read, good) = survive(seed, &Runtime::new(clean.clone()));
        assert_eq!(read, good, "seed {seed}: nothing fails");
        for n in 0..clean.calls() {
            let sim = Sim::builder(seed).fail(Failure::Any(n)).build();
            let runtime = Runtime::builder(sim.clone()).validate(n % 3 == 0).build();
            let report = runtime.validation();
            let (read, good) = survive(seed, &runtime);
            let x = copy(&runtime.stream().unwrap(), &runtime.upload(&[5u8; 8]).unwrap());
            assert_eq!(x.read().unwrap().bytes(), [5; 8], "seed {seed}, call {n}: a new program works");
            drop(x);
            injected += 1;
            poisoned += usize::from(good < read);
            runtime.synchronize().unwrap();
            drop(runtime);
            while sim.step() {}
            assert!(sim.is_empty(), "seed {seed}, call {n}: something is left behind");
            assert_eq!(sim.violations(), [], "seed {seed}, call {n}");
            let found = report.map(|report| report.violations()).unwrap_or_default();
            assert_eq!(found, [], "seed {seed}, call {n}");
        }
    }
    assert!(
        injected > 1000 && poisoned > injected / 10,
        "{injected} failures, {poisoned} of which were noticed"
    );
}

#[test]
fn whatever_submissions_are_refused_results_are_right_or_errors() {
    for seed in 0..400 {
        let sim = Sim::builder(seed).refuse(4).build();
        let runtime = Runtime::builder(sim.clone()).validate(seed % 2 == 0).build();
        let report = runtime.validation();
        survive(seed, &runtime);
        runtime.synchronize().unwrap();
        assert_eq!(sim.violations(), [], "seed {seed}");
        let found = report.map(|report| report.violations()).unwrap_or_default();
        assert_eq!(found, [], "seed {seed}");
    }
}
