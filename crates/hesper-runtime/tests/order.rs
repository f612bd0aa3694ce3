//! Order: conflicting uses are ordered, independent ones are not.

use std::sync::atomic::{AtomicUsize, Ordering};

use hesper_runtime::sim::Sim;
use hesper_runtime::{Buffer, Runtime, Stream};

fn add(stream: &Stream, from: &Buffer, to: &Buffer, range: std::ops::Range<usize>) {
    let run =
        stream.encode("add").read_range(from, range.clone()).read_write_range(to, range).run(|native| {
            let [from, to] = native.take()?;
            for (to, from) in to.bytes_mut()?.iter_mut().zip(from.bytes()?) {
                *to = to.wrapping_mul(3).wrapping_add(*from);
            }
            Ok(())
        });
    run.expect("a good command");
}

#[test]
fn commands_on_disjoint_ranges_get_no_barrier() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let (from, to) = (runtime.upload(&[1u8; 64]).unwrap(), runtime.upload(&[2u8; 64]).unwrap());
    for at in 0..8 {
        add(&stream, &from, &to, 8 * at..8 * at + 8);
    }
    assert_eq!(runtime.counters().barriers, 0);
    add(&stream, &from, &to, 4..12);
    assert_eq!(runtime.counters().barriers, 1);
    assert_eq!(to.read().unwrap().bytes()[3..13], [7, 22, 22, 22, 22, 22, 22, 22, 22, 7]);
}

#[test]
fn one_barrier_serves_all_later_commands_that_need_it() {
    let runtime = Runtime::new(Sim::builder(1).batch(100).build());
    let stream = runtime.stream().unwrap();
    let one = runtime.upload(&[1u8; 8]).unwrap();
    let outs: Vec<Buffer> = (0..6).map(|_| runtime.upload(&[0u8; 8]).unwrap()).collect();
    for out in &outs {
        add(&stream, &one, out, 0..8);
    }
    for out in &outs {
        add(&stream, &one, out, 0..8);
    }
    assert_eq!(runtime.counters().barriers, 1, "the first of the second round separates the rounds");
    for out in &outs {
        assert_eq!(out.read().unwrap().bytes(), [4u8; 8]);
    }
}

#[test]
fn a_writer_waits_for_readers_on_all_streams() {
    for seed in 0..200 {
        let sim = Sim::new(seed);
        let runtime = Runtime::new(sim.clone());
        let streams: Vec<Stream> = (0..4).map(|_| runtime.stream().unwrap()).collect();
        let shared = runtime.upload(&[5u8; 16]).unwrap();
        let outs: Vec<Buffer> = streams
            .iter()
            .map(|stream| {
                let out = stream.alloc(16).unwrap();
                stream.encode("read").read(&shared).write(&out).copy().unwrap();
                out
            })
            .collect();
        streams[0]
            .encode("overwrite")
            .write(&shared)
            .run(|native| {
                let [out] = native.take()?;
                out.bytes_mut()?.fill(9);
                Ok(())
            })
            .unwrap();
        for out in &outs {
            assert_eq!(out.read().unwrap().bytes(), [5u8; 16], "seed {seed}");
        }
        assert_eq!(shared.read().unwrap().bytes(), [9u8; 16]);
    }
}

#[test]
fn random_programs_over_ranges_and_streams_equal_sequential_execution() {
    for seed in 0..400 {
        let sim = Sim::new(seed);
        let runtime = Runtime::builder(sim.clone()).validate(seed % 2 == 0).build();
        let mut rng = hesper_runtime::sim::Rng::new(seed);
        let streams: Vec<Stream> = (0..3).map(|_| runtime.stream().unwrap()).collect();
        let mut model: Vec<Vec<u8>> = (0..4).map(|at| vec![at as u8 + 1; 32]).collect();
        let buffers: Vec<Buffer> = model.iter().map(|data| runtime.upload(data).unwrap()).collect();
        for _ in 0..60 {
            let stream = &streams[rng.below(3)];
            let (from, to) = (rng.below(4), rng.below(4));
            let start = rng.below(32);
            let range = start..start + rng.below(33 - start);
            if from == to {
                continue;
            }
            add(stream, &buffers[from], &buffers[to], range.clone());
            let source = model[from].clone();
            for at in range {
                model[to][at] = model[to][at].wrapping_mul(3).wrapping_add(source[at]);
            }
            if rng.one_in(10) {
                let which = rng.below(4);
                assert_eq!(buffers[which].read().unwrap().bytes(), model[which], "seed {seed}");
            }
        }
        for (buffer, numbers) in buffers.iter().zip(&model) {
            assert_eq!(buffer.read().unwrap().bytes(), numbers, "seed {seed}");
        }
        assert_eq!(sim.violations(), []);
        assert_eq!(runtime.validation().map_or(0, |report| report.count()), 0);
    }
}

#[test]
fn a_thousand_slices_of_one_buffer_are_ordered_right_and_stay_cheap() {
    let runtime = Runtime::new(Sim::new(5));
    let stream = runtime.stream().unwrap();
    let (from, to) = (runtime.upload(&[1u8; 1000]).unwrap(), runtime.upload(&[0u8; 1000]).unwrap());
    for round in 0..3 {
        for at in 0..1000 {
            add(&stream, &from, &to, at..at + 1);
        }
        let _ = round;
    }
    assert_eq!(to.read().unwrap().bytes(), [13u8; 1000]);
}

#[test]
fn a_host_that_is_ahead_of_its_device_waits_for_half_of_the_limit_at_once() {
    let runtime = Runtime::new(Sim::new(3));
    let stream = runtime.stream().unwrap();
    let (from, to) = (runtime.upload(&[1u8; 8]).unwrap(), runtime.upload(&[0u8; 8]).unwrap());
    let limit = runtime.info().max_in_flight as u64;
    let mut waits = 0;
    for _ in 0..10 * limit {
        let before = stream.in_flight();
        add(&stream, &from, &to, 0..8);
        let submission = stream.commit().unwrap();
        let after = stream.in_flight();
        assert!(after <= limit && (after > 0 || submission.is_retired()));
        waits += u64::from(after <= before);
    }
    assert!(waits <= 20, "{waits} waits for {} submissions", 10 * limit);
}

#[test]
fn an_interrupted_host_does_not_wait_for_a_device_that_is_behind() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let runtime = Runtime::new(Sim::new(3));
    let stream = runtime.stream().unwrap();
    let (from, to) = (runtime.upload(&[1u8; 8]).unwrap(), runtime.upload(&[0u8; 8]).unwrap());
    let limit = runtime.info().max_in_flight as u64;
    let fill = || {
        for _ in 0..3 * limit {
            add(&stream, &from, &to, 0..8);
            stream.commit().unwrap();
        }
        stream.in_flight()
    };
    let interrupted = || CALLS.fetch_add(1, Ordering::Relaxed) > 0;
    assert!(hesper_runtime::interruptible(interrupted, fill) > limit);
    assert!(CALLS.load(Ordering::Relaxed) > 1);
    // What was submitted is computed, and the limit holds again.
    assert!(fill() <= limit);
    stream.synchronize().unwrap();
    let expected = (0..6 * limit).fold(0u8, |sum, _| sum.wrapping_mul(3).wrapping_add(1));
    assert_eq!(to.read().unwrap().bytes(), [expected; 8]);
}
