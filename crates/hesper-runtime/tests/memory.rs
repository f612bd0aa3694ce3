//! Handles and blocks: retention keeps memory alive and costs none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hesper_runtime::sim::Sim;
use hesper_runtime::{Error, HostMemory, Runtime, Stream};

const SIZE: usize = 4096;

fn touch(stream: &Stream, input: &hesper_runtime::Buffer, output: &hesper_runtime::Buffer) {
    let run = stream.encode("touch").read(input).write(output).run(|native| {
        let [from, to] = native.take()?;
        to.bytes_mut()?.copy_from_slice(from.bytes()?);
        Ok(())
    });
    run.expect("a good command");
}

#[test]
fn a_dropped_temporary_is_reused_by_its_stream_before_anything_has_run() {
    let sim = Sim::new(1);
    let runtime = Runtime::new(sim.clone());
    let stream = runtime.stream().unwrap();
    let mut x = runtime.upload(&[7u8; SIZE]).unwrap();
    for _ in 0..10_000 {
        let next = stream.alloc(SIZE).unwrap();
        touch(&stream, &x, &next);
        x = next;
    }
    // The minimum: the buffer being read and the one being written.
    assert_eq!(sim.peak(), 2 * SIZE);
    assert_eq!(runtime.counters().peak, 2 * SIZE);
    assert_eq!(x.read().unwrap().bytes(), [7u8; SIZE]);
}

#[test]
fn another_stream_and_the_host_get_a_block_only_when_its_uses_are_done() {
    let sim = Sim::new(1);
    let runtime = Runtime::new(sim.clone());
    let (one, two) = (runtime.stream().unwrap(), runtime.stream().unwrap());
    let input = runtime.upload(&[1u8; SIZE]).unwrap();
    let out = one.alloc(SIZE).unwrap();
    touch(&one, &input, &out);
    drop(out);
    let for_two = two.alloc(SIZE).unwrap();
    let for_host = runtime.alloc(SIZE).unwrap();
    assert_eq!(sim.peak(), 4 * SIZE, "neither may take the block that is in use");
    one.synchronize().unwrap();
    drop((for_two, for_host));
    let again: Vec<_> = (0..3).map(|_| two.alloc(SIZE).unwrap()).collect();
    assert_eq!(sim.peak(), 4 * SIZE, "now all three are free");
    drop(again);
}

#[test]
fn clearing_the_cache_under_queued_work_frees_nothing_that_is_in_use() {
    for seed in 0..50 {
        let sim = Sim::new(seed);
        let runtime = Runtime::new(sim.clone());
        let stream = runtime.stream().unwrap();
        let input = runtime.upload(&[3u8; SIZE]).unwrap();
        let middle = stream.alloc(SIZE).unwrap();
        touch(&stream, &input, &middle);
        let out = stream.alloc(SIZE).unwrap();
        touch(&stream, &middle, &out);
        drop(middle);
        drop(input);
        runtime.clear_cache();
        assert_eq!(runtime.counters().cached, 0);
        assert_eq!(out.read().unwrap().bytes(), [3u8; SIZE]);
        assert_eq!(sim.violations(), []);
    }
}

#[test]
fn trimmed_memory_is_freed_when_its_last_use_completes() {
    for seed in 0..50 {
        let runtime = Runtime::new(Sim::new(seed));
        let stream = runtime.stream().unwrap();
        let mut x = runtime.upload(&[3u8; SIZE]).unwrap();
        for round in 0..4 {
            let next = stream.alloc(SIZE).unwrap();
            touch(&stream, &x, &next);
            x = next;
            // While work runs, after it, and in between.
            if round == seed % 4 {
                runtime.clear_cache();
            }
        }
        assert_eq!(x.read().unwrap().bytes(), [3u8; SIZE]);
        stream.synchronize().unwrap();
        runtime.clear_cache();
        assert_eq!(runtime.counters().allocated, SIZE, "only what is held");
        let next = stream.alloc(SIZE).unwrap();
        touch(&stream, &x, &next);
        drop(x);
        runtime.clear_cache();
        stream.synchronize().unwrap();
        assert_eq!(runtime.counters().allocated, SIZE, "given up under work, which is done");
        drop(next);
        runtime.clear_cache();
        assert_eq!(runtime.counters().allocated, 0);
    }
}

#[test]
fn foreign_memory_is_read_in_place_and_kept_until_the_work_is_done() {
    struct Owner(Vec<u8>, Arc<AtomicBool>);
    // SAFETY: the allocation of the vector neither moves nor changes.
    unsafe impl HostMemory for Owner {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let foreign = runtime.adopt(Owner(vec![9; SIZE], dropped.clone()), "a mapped file").unwrap();
    let before = runtime.counters().allocated;
    let out = stream.alloc(SIZE).unwrap();
    touch(&stream, &foreign, &out);
    drop(foreign);
    assert!(!dropped.load(Ordering::SeqCst), "queued work still reads it");
    assert_eq!(out.read().unwrap().bytes(), [9u8; SIZE]);
    assert!(dropped.load(Ordering::SeqCst), "nothing needs it any more, and it is not pooled");
    assert_eq!(runtime.counters().allocated, before + SIZE);
}

#[test]
fn foreign_memory_is_never_written() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let foreign = runtime.adopt(vec![9u8; 64], "a mapped file").unwrap();
    assert!(!foreign.writable() && !foreign.is_unique());
    for access in [hesper_runtime::Access::Write, hesper_runtime::Access::ReadWrite] {
        let error = stream.encode("overwrite").bind(&foreign, .., access).run(|_| Ok(())).unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
        assert!(error.to_string().contains("a mapped file"), "{error}");
    }
    assert!(matches!(foreign.write(), Err(Error::ReadOnly { .. })));
}

#[test]
fn out_of_memory_is_an_error_and_the_stream_works_on() {
    let sim = Sim::builder(3).memory(10 * SIZE).build();
    let runtime = Runtime::new(sim.clone());
    let stream = runtime.stream().unwrap();
    let held: Vec<_> = (0..8).map(|_| runtime.upload(&[5u8; SIZE]).unwrap()).collect();
    let error = stream.alloc(4 * SIZE).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    let out = stream.alloc(SIZE).unwrap();
    touch(&stream, &held[0], &out);
    drop(held);
    // The free block has the wrong size and must be freed first.
    let large = stream.alloc(4 * SIZE).unwrap();
    assert_eq!(out.read().unwrap().bytes(), [5u8; SIZE]);
    drop(large);
}

#[test]
fn out_of_memory_waits_for_work_in_flight_before_it_fails() {
    for seed in 0..20 {
        let sim = Sim::builder(seed).memory(6 * SIZE).build();
        let runtime = Runtime::new(sim.clone());
        let (one, two) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        let input = runtime.upload(&[5u8; SIZE]).unwrap();
        for _ in 0..5 {
            let out = one.alloc(SIZE).unwrap();
            touch(&one, &input, &out);
            std::mem::drop(out);
            // Blocks of the other stream are free for that stream only.
            let other = two.alloc(2 * SIZE).unwrap();
            two.encode("fill").write(&other).run(|_| Ok(())).unwrap();
        }
        let large = two.alloc(4 * SIZE).expect("all of it can be given back");
        drop(large);
    }
}

#[test]
fn limits_are_enforced_and_counted() {
    let runtime = Runtime::builder(Sim::new(1)).memory_limit(8 * SIZE).cache_limit(2 * SIZE).build();
    let held: Vec<_> = (0..8).map(|_| runtime.alloc(SIZE).unwrap()).collect();
    assert!(matches!(runtime.alloc(SIZE), Err(Error::OutOfMemory { .. })));
    assert_eq!(runtime.counters().active, 8 * SIZE);
    drop(held);
    let counters = runtime.counters();
    assert_eq!((counters.active, counters.cached, counters.peak), (0, 2 * SIZE, 8 * SIZE));
    runtime.set_cache_limit(0);
    assert_eq!(runtime.counters().allocated, 0);
    runtime.reset_peak();
    assert_eq!(runtime.counters().peak, 0);
    assert_eq!(runtime.set_memory_limit(usize::MAX), 8 * SIZE);
    runtime.alloc(9 * SIZE).unwrap();
}

#[test]
fn allocations_above_the_soft_limit_free_the_cache_and_wait_and_then_go_on() {
    for seed in 0..20 {
        let runtime = Runtime::new(Sim::builder(seed).memory(16 * SIZE).build());
        assert_eq!(runtime.set_soft_memory_limit(4 * SIZE), 16 * SIZE);
        assert_eq!(runtime.soft_memory_limit(), 4 * SIZE);
        let stream = runtime.stream().unwrap();
        let input = runtime.upload(&[5u8; SIZE]).unwrap();
        let outs: Vec<_> = (0..3).map(|_| stream.alloc(SIZE).unwrap()).collect();
        outs.iter().for_each(|out| touch(&stream, &input, out));
        drop(outs);
        // Four blocks are allocated, three of them free once their commands have completed.
        let large = stream.alloc(2 * SIZE).unwrap();
        assert_eq!(runtime.counters().allocated, 3 * SIZE, "the cache is freed before the limit is exceeded");
        let larger = stream.alloc(8 * SIZE).expect("the soft limit refuses nothing");
        assert_eq!(runtime.counters().allocated, 11 * SIZE);
        assert!(
            matches!(runtime.alloc(8 * SIZE), Err(Error::OutOfMemory { .. })),
            "the memory is still finite"
        );
        drop((large, larger));
    }
}

#[test]
fn the_hard_limit_holds_below_the_soft_one() {
    let runtime = Runtime::builder(Sim::new(1)).memory_limit(4 * SIZE).build();
    runtime.set_soft_memory_limit(usize::MAX);
    let error = runtime.alloc(5 * SIZE).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { limit, .. } if limit == 4 * SIZE), "{error}");
    runtime.set_soft_memory_limit(0);
    let held = runtime.alloc(4 * SIZE).unwrap();
    runtime.reset_peak();
    assert_eq!((runtime.counters().peak, runtime.counters().active), (0, 4 * SIZE));
    assert!(runtime.alloc(SIZE).is_err());
    drop(held);
}

#[test]
fn discrete_memory_stays_pooled_up_to_the_peak() {
    const BLOCK: usize = 8 << 20;
    let sim = Sim::builder(1).unified_memory(false).memory(1 << 30).build();
    let runtime = Runtime::new(sim.clone());
    let kept = runtime.alloc(12 * BLOCK).unwrap();
    let temporaries = || (5..9).map(|times| runtime.alloc(times * BLOCK).unwrap()).collect::<Vec<_>>();
    drop(temporaries());
    let before = sim.calls();
    let another = runtime.alloc(4 * BLOCK).unwrap();
    drop(temporaries());
    assert_eq!(sim.calls() - before, 1, "only what was not there is asked for");
    drop((kept, another));
}

#[test]
fn a_step_reuses_the_memory_of_the_one_before_though_little_is_in_use_between_them() {
    const BLOCK: usize = 2 << 20;
    let sim = Sim::builder(1).memory(1 << 30).build();
    let runtime = Runtime::new(sim.clone());
    let step = || drop((5..13).map(|times| runtime.alloc(times * BLOCK).unwrap()).collect::<Vec<_>>());
    step();
    let before = sim.calls();
    for _ in 0..5 {
        drop(runtime.alloc(2 * BLOCK).unwrap());
        step();
    }
    assert_eq!(sim.calls() - before, 1, "only what was not there is asked for");
}

#[test]
fn a_larger_block_is_taken_before_the_memory_exceeds_the_peak() {
    const BLOCK: usize = 1 << 20;
    let sim = Sim::builder(1).memory(1 << 30).build();
    let runtime = Runtime::new(sim.clone());
    drop([10, 12].map(|times| runtime.alloc(times * BLOCK).unwrap()));
    let before = (sim.calls(), runtime.counters().allocated);
    let two = [7, 6].map(|times| runtime.alloc(times * BLOCK).unwrap());
    assert_eq!((sim.calls(), runtime.counters().allocated), before);
    // Of more than twice the size there is none.
    drop(two);
    let small = runtime.alloc(4 * BLOCK).unwrap();
    assert_eq!(sim.calls() - before.0, 1);
    drop(small);
}

#[test]
fn memory_that_was_in_use_long_ago_is_given_back() {
    const LARGE: usize = 128 << 20;
    let sim = Sim::builder(1).memory(1 << 30).build();
    let runtime = Runtime::new(sim);
    drop(runtime.alloc(LARGE).unwrap());
    assert_eq!(runtime.counters().cached, LARGE);
    let kept: Vec<_> = (0..2000).map(|_| runtime.alloc(SIZE).unwrap()).collect();
    assert_eq!((runtime.counters().cached, runtime.counters().active), (0, kept.len() * SIZE));
}
