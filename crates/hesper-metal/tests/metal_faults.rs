//! Failures: the failure of a command buffer reaches what it wrote and what depends on it, and nothing else.
//! Whatever call Metal refuses, results are right or errors, and the program goes on.

use crate::support;
use crate::support::{LEN, MappedFile, World, bytes, elements, mixed, options, read};
use hesper_metal::MetalOptions;
use hesper_metal::edge::ErrorCode;
use hesper_metal::sim::{Call, Failure, SimMetal};
use hesper_runtime::{Error, FaultKind, Scope};

#[test]
fn a_failed_command_buffer_spoils_what_depends_on_it_and_the_queue_goes_on() {
    let codes = [
        (ErrorCode::Timeout, "ran for too long"),
        (ErrorCode::PageFault, "outside of its buffers"),
        (ErrorCode::OutOfMemory, "no memory"),
        (ErrorCode::NotPermitted, "background"),
        (ErrorCode::InvalidResource, "does not exist"),
        (ErrorCode::StackOverflow, "stack"),
        (ErrorCode::Internal, "the GPU failed"),
        (ErrorCode::Other(99), "code 99"),
    ];
    for (code, part) in codes {
        for seed in 0..8 {
            let world = World::new(SimMetal::builder(seed).fault(1, code));
            let (one, two) = (world.runtime.stream().unwrap(), world.runtime.stream().unwrap());
            let x = world.runtime.upload(&elements(1)).unwrap();
            let before = world.mix(&one, "mix 1", &[&x]).unwrap();
            one.commit().unwrap();
            let (bad, sibling) =
                (world.mix(&one, "mix 2", &[&before]).unwrap(), world.mix(&one, "mix 3", &[&x]).unwrap());
            one.commit().unwrap();
            let after = world.mix(&one, "mix 1", &[&bad]).unwrap();
            let elsewhere = world.mix(&two, "mix 1", &[&after]).unwrap();
            let independent = world.mix(&one, "mix 2", &[&x]).unwrap();
            for poisoned in [&bad, &sibling, &after, &elsewhere] {
                let error = read(poisoned).unwrap_err();
                let fault = error.fault().unwrap();
                assert_eq!((fault.kind(), fault.scope()), (FaultKind::Failed, Scope::Submission));
                assert!(fault.message().contains(part), "{fault}");
            }
            assert_eq!(read(&before).unwrap(), mixed(1, &[&elements(1)]), "seed {seed}");
            assert_eq!(read(&independent).unwrap(), mixed(2, &[&elements(1)]), "seed {seed}");
            // The program asks again for what it lost.
            let again = world.mix(&one, "mix 2", &[&before]).unwrap();
            let elsewhere_again = world.mix(&two, "mix 1", &[&again]).unwrap();
            let expected = mixed(1, &[&mixed(2, &[&mixed(1, &[&elements(1)])])]);
            assert_eq!(read(&elsewhere_again).unwrap(), expected, "seed {seed}");
            drop((x, before, bad, sibling, after, elsewhere, independent, again, elsewhere_again, one, two));
            world.end(part);
        }
    }
}

#[test]
fn a_revoked_or_removed_gpu_is_lost_with_its_first_cause_and_nothing_hangs() {
    for (code, part) in [(ErrorCode::AccessRevoked, "revoked"), (ErrorCode::DeviceRemoved, "removed")] {
        for seed in 0..8 {
            let world = World::new(SimMetal::builder(seed).fault(2, code));
            let streams = [world.runtime.stream().unwrap(), world.runtime.stream().unwrap()];
            let mut results = vec![world.runtime.upload(&elements(1)).unwrap()];
            for step in 0..8 {
                let stream = &streams[step % 2];
                match world.mix(stream, "mix 1", &[results.last().unwrap()]) {
                    Ok(result) => results.push(result),
                    Err(error) => assert!(error.to_string().contains(part), "{error}"),
                }
                let _ = stream.commit();
            }
            let error = read(results.last().unwrap()).unwrap_err();
            let fault = error.fault().unwrap();
            assert_eq!((fault.kind(), fault.scope()), (FaultKind::Lost, Scope::Device));
            assert!(fault.message().contains(part), "{fault}");
            assert!(world.runtime.stream().is_err() && world.runtime.alloc(16).is_err());
            assert!(world.device().lost().unwrap().contains(part));
            drop((results, streams));
            world.end(part);
        }
    }
}

#[test]
fn an_application_in_the_background_goes_on_when_it_returns() {
    let world = World::new(SimMetal::builder(1));
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    world.metal.set_outage(Some(ErrorCode::NotPermitted));
    let hidden = world.mix(&stream, "mix 1", &[&x]).unwrap();
    assert!(read(&hidden).unwrap_err().to_string().contains("background"));
    world.metal.set_outage(None);
    let shown = world.mix(&stream, "mix 1", &[&x]).unwrap();
    assert_eq!(read(&shown).unwrap(), mixed(1, &[&elements(1)]));
    drop((x, hidden, shown, stream));
    world.end("background");
}

#[test]
fn a_command_buffer_without_memory_frees_what_the_pool_keeps() {
    let world = World::new(SimMetal::builder(1).fault(0, ErrorCode::OutOfMemory));
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    drop(world.runtime.alloc(1 << 20).unwrap());
    assert!(world.runtime.counters().cached >= 1 << 20);
    let y = world.mix(&stream, "mix 1", &[&x]).unwrap();
    assert!(read(&y).unwrap_err().to_string().contains("no memory"));
    let again = world.mix(&stream, "mix 1", &[&x]).unwrap();
    assert!(world.runtime.counters().cached < 1 << 20);
    assert_eq!(read(&again).unwrap(), mixed(1, &[&elements(1)]));
    drop((x, y, again, stream));
    world.end("out of memory");
}

#[test]
fn a_kernel_that_leaves_its_buffer_is_a_page_fault_of_its_command_buffer() {
    let world = World::new(SimMetal::builder(1).kernel("wild", |launch| launch.store(0, 1 << 40, [1])));
    let stream = world.runtime.stream().unwrap();
    let out = stream.alloc(64).unwrap();
    let pipeline = world.runtime.pipeline(&support::source("wild")).unwrap();
    stream.encode("wild").write(&out).dispatch(&pipeline, [1; 3], [1; 3]).unwrap();
    let error = out.read().err().unwrap().to_string();
    assert!(error.contains("outside of its buffers") && error.contains("layer"), "{error}");
    drop((out, pipeline, stream));
    world.end("wild");
}

#[test]
fn a_failed_part_of_a_submission_spares_its_native_commands() {
    for seed in 0..16 {
        let world = World::new(SimMetal::builder(seed).fault(0, ErrorCode::Timeout));
        let stream = world.runtime.stream().unwrap();
        let x = world.runtime.upload(&elements(1)).unwrap();
        let first = world.mix(&stream, "mix 1", &[&x]).unwrap();
        // Filled, so that no clear of theirs is in the command buffer that fails.
        let filled = || world.runtime.upload(&elements(0)).unwrap();
        let (good, bad) = (filled(), filled());
        let double = |native: &mut hesper_runtime::Native<'_, '_>| {
            let [from, to] = native.take()?;
            for (to, from) in to.as_mut_slice::<u32>()?.iter_mut().zip(from.as_slice::<u32>()?) {
                *to = from.wrapping_mul(2);
            }
            Ok(())
        };
        stream.encode("double").read(&x).write(&good).run(double).unwrap();
        stream.encode("poisoned").read(&first).write(&bad).run(double).unwrap();
        let last = world.mix(&stream, "mix 2", &[&good]).unwrap();
        let doubled: Vec<u32> = elements(1).iter().map(|x| x.wrapping_mul(2)).collect();
        assert_eq!(read(&last).unwrap(), mixed(2, &[&doubled]), "seed {seed}");
        assert_eq!(read(&good).unwrap(), doubled, "seed {seed}");
        for poisoned in [&first, &bad] {
            assert!(read(poisoned).unwrap_err().to_string().contains("ran for too long"), "seed {seed}");
        }
        drop((x, first, good, bad, last, stream));
        world.end("native");
    }
}

#[test]
fn later_commands_rely_on_the_barrier_of_one_that_is_not_dispatched() {
    for seed in 0..200 {
        let world = World::with(SimMetal::builder(seed), MetalOptions { batch: 64, ..options() });
        let stream = world.runtime.stream().unwrap();
        let other = world.runtime.stream().unwrap();
        let x = world.runtime.upload(&elements(1)).unwrap();
        let bad = other.alloc(4 * LEN).unwrap();
        let fail = other.encode("bad").write(&bad).run(|_| Err("on purpose".into()));
        fail.unwrap();
        let first = world.mix(&stream, "mix 1", &[&x]).unwrap();
        // Has the barrier behind `first`, and does not run: an input failed.
        let poisoned = world.mix(&stream, "mix 1", &[&first, &bad]).unwrap();
        let second = world.mix(&stream, "mix 1", &[&first]).unwrap();
        other.synchronize().unwrap();
        assert_eq!(read(&second).unwrap(), mixed(1, &[&mixed(1, &[&elements(1)])]), "seed {seed}");
        assert!(read(&poisoned).is_err());
    }
}

/// A program that uses every refusable call. Returns the number of wrong results and of right ones.
fn program(world: &World) -> (usize, usize) {
    let runtime = &world.runtime;
    let device = world.device();
    let (mut wrong, mut right) = (0, 0);
    let mut attempt = |step: &dyn Fn() -> Result<bool, Error>| match step() {
        Ok(true) => right += 1,
        Ok(false) => wrong += 1,
        Err(_) => {}
    };
    let x = elements(1);
    device.set_wired_limit(1 << 20);
    for k in 0..3 {
        attempt(&|| {
            let (one, two) = (runtime.stream()?, runtime.stream()?);
            let mut file = bytes(&x);
            file.resize(9000, 0);
            let weights = runtime.adopt(MappedFile(file), "a file")?;
            let y = world.mix(&one, &format!("mix {k}"), &[&weights])?;
            one.commit()?;
            let z = world.mix(&two, "mix 1", &[&y, &weights])?;
            let copy = two.alloc(4 * LEN)?;
            two.encode("copy").read(&z).write(&copy).copy()?;
            two.encode("add").read_write(&copy).run(|native| {
                let [x] = native.take()?;
                x.as_mut_slice::<u32>()?.iter_mut().for_each(|x| *x = x.wrapping_add(1));
                Ok(())
            })?;
            let last = world.mix(&one, "half 1", &[&copy])?;
            let mut expected = mixed(1, &[&mixed(k, &[&x]), &x]);
            expected.iter_mut().for_each(|x| *x = x.wrapping_add(1));
            let mut last_expected = mixed(1, &[&expected]);
            last_expected[LEN / 2..].fill(0);
            Ok(read(&last)? == last_expected && read(&copy)? == expected)
        });
        runtime.clear_cache();
    }
    (wrong, right)
}

/// A folder that goes with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Folder(std::env::temp_dir().join(format!("hesper-metal-{name}-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn whatever_call_is_refused_results_are_right_or_errors_and_asking_again_works() {
    let run = |seed: u64, failure: Option<Failure>, folder: Option<&Folder>| {
        let mut builder = SimMetal::builder(seed);
        if let Some(failure) = failure {
            builder = builder.fail(failure);
        }
        let cache = folder.map(|folder| folder.0.clone());
        let world = World::with(builder, MetalOptions { cache, ..options() });
        let first = program(&world);
        let again = program(&world);
        let what = format!("seed {seed}, {failure:?}");
        assert_eq!(first.0, 0, "{what}: wrong results");
        assert_eq!(again.0, 0, "{what}: wrong results when asked again");
        if failure.is_none() {
            assert_eq!((first, again), ((0, 3), (0, 3)), "{what}");
        }
        let metal = world.metal.clone();
        world.end(&what);
        (metal.calls(), first.1, again.1)
    };
    let mut noticed = 0;
    for seed in 0..2 {
        let folder = Folder::new(&format!("sweep-{seed}"));
        let (calls, ..) = run(seed, None, Some(&folder));
        assert!(calls > 60, "the program makes {calls} calls");
        for n in 0..calls / 2 {
            let _ = std::fs::remove_dir_all(&folder.0);
            let (_, first, again) = run(seed, Some(Failure::Any(n)), Some(&folder));
            assert!(first + again >= 5, "seed {seed}, call {n}: {first} and {again} of 3 results");
            noticed += usize::from(first < 3);
        }
    }
    assert!(noticed > 20, "{noticed} refusals were noticed");
    for call in Call::ALL {
        for nth in 0..4 {
            let (_, first, again) = run(5, Some(Failure::Nth(call, nth)), None);
            assert!(first + again >= 5, "{call:?} {nth}: {first} and {again} of 3 results");
        }
    }
}

#[test]
fn whatever_command_buffers_are_refused_or_fail_results_are_right_or_errors() {
    for seed in 0..60 {
        let mut builder = SimMetal::builder(seed).refuse(3);
        for number in (seed % 3..12).step_by(3) {
            builder = builder.fault(number, ErrorCode::PageFault);
        }
        let world = World::new(builder);
        assert_eq!(program(&world).0, 0, "seed {seed}");
        world.end(&format!("seed {seed}"));
    }
}
