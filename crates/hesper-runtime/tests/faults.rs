//! Faults: every read of a dependent result returns the first cause; other results are not affected.

use std::error::Error as _;

use hesper_runtime::sim::{Call, Failure, Sim};
use hesper_runtime::{Buffer, Error, FaultKind, NativeError, Runtime, Scope, Stream};

fn copy(stream: &Stream, from: &Buffer) -> Buffer {
    let out = stream.alloc(from.len()).unwrap();
    stream.encode("copy").read(from).write(&out).copy().unwrap();
    out
}

fn fail(stream: &Stream, from: &Buffer) -> Buffer {
    let out = stream.alloc(from.len()).unwrap();
    stream.encode("divide").read(from).write(&out).run(|_| Err("division by zero".into())).unwrap();
    out
}

#[test]
fn a_buffer_on_the_block_of_a_poisoned_one_is_not_poisoned() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let good = runtime.upload(&[1u8; 8]).unwrap();
    for round in 0..20 {
        let bad = fail(&stream, &good);
        // Several commands of one submission bind the buffer; nothing holds it when the submission ends.
        drop((copy(&stream, &good), bad));
        stream.synchronize().unwrap();
        let (fresh, unfilled) = (copy(&stream, &good), stream.alloc(8).unwrap());
        assert_eq!(copy(&stream, &fresh).read().unwrap().bytes(), [1u8; 8], "round {round}");
        assert!(unfilled.fault().is_none());
        assert!(matches!(unfilled.read(), Err(Error::Unfilled { .. })), "round {round}");
    }
}

#[test]
fn the_error_of_a_command_is_the_source_of_its_fault() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let out = stream.alloc(8).unwrap();
    let cause = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the file ends early");
    stream.encode("load").write(&out).run(move |_| Err(NativeError::caused_by(cause()))).unwrap();
    for reader in [&out, &copy(&stream, &out)] {
        let error = reader.read().err().expect("it must be poisoned");
        assert!(error.to_string().ends_with("the file ends early"), "{error}");
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.expect("the cause").kind(), std::io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_failed_command_poisons_what_depends_on_it_and_nothing_else() {
    for seed in 0..100 {
        let runtime = Runtime::new(Sim::new(seed));
        let (one, two) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        let good = runtime.upload(&[1u8; 8]).unwrap();
        let before = copy(&one, &good);
        let bad = fail(&one, &before);
        let after = copy(&one, &bad);
        let elsewhere = copy(&two, &after);
        let independent = copy(&one, &good);
        for _ in 0..3 {
            for poisoned in [&bad, &after, &elsewhere] {
                let error = poisoned.read().err().expect("it must be poisoned");
                let fault = error.fault().expect("a fault").clone();
                assert_eq!(fault.command(), "divide");
                assert_eq!(fault.message(), "division by zero");
                assert_eq!(fault.scope(), Scope::Command);
                assert_eq!(fault.kind(), FaultKind::Failed);
            }
        }
        assert_eq!(independent.read().unwrap().bytes(), [1u8; 8], "seed {seed}");
        assert_eq!(before.read().unwrap().bytes(), [1u8; 8]);
        let again = copy(&one, &good);
        assert_eq!(again.read().unwrap().bytes(), [1u8; 8], "the stream works on");
    }
}

#[test]
fn a_command_on_a_poisoned_buffer_is_refused_with_the_first_cause() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let bad = fail(&stream, &runtime.upload(&[1u8; 8]).unwrap());
    stream.synchronize().unwrap();
    let out = stream.alloc(8).unwrap();
    let error = stream.encode("next").read(&bad).write(&out).copy().unwrap_err();
    assert_eq!(error.fault().expect("a fault").command(), "divide");
    assert!(out.read().is_err(), "what it would have filled is poisoned too");
}

#[test]
fn a_panic_in_a_native_command_is_a_fault_of_that_command() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let out = stream.alloc(8).unwrap();
    stream.encode("panics").write(&out).run(|_| panic!("index out of bounds")).unwrap();
    let error = out.read().err().expect("it must be poisoned");
    let fault = error.fault().unwrap();
    assert_eq!((fault.kind(), fault.message()), (FaultKind::Panicked, "index out of bounds"));
    let good = copy(&stream, &runtime.upload(&[2u8; 8]).unwrap());
    assert_eq!(good.read().unwrap().bytes(), [2u8; 8]);
}

#[test]
fn every_wait_for_a_submission_returns_its_first_fault() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let input = runtime.upload(&[1u8; 8]).unwrap();
    let _bad = fail(&stream, &input);
    let failed = stream.commit().unwrap();
    let _good = copy(&stream, &input);
    let fine = stream.commit().unwrap();
    for _ in 0..3 {
        assert!(matches!(failed.wait(), Err(Error::Fault(_))));
        fine.wait().unwrap();
    }
    assert!(failed.is_done() && failed.fault().is_some() && fine.fault().is_none());
}

#[test]
fn a_failed_submission_poisons_all_it_writes() {
    let sim = Sim::builder(1).fail(Failure::Nth(Call::Complete, 0)).build();
    let runtime = Runtime::new(sim);
    let stream = runtime.stream().unwrap();
    let input = runtime.upload(&[1u8; 8]).unwrap();
    let (one, two) = (copy(&stream, &input), copy(&stream, &input));
    let error = one.read().err().expect("poisoned");
    assert_eq!(error.fault().unwrap().scope(), Scope::Submission);
    assert!(two.read().is_err());
    assert_eq!(copy(&stream, &input).read().unwrap().bytes(), [1u8; 8]);
}

#[test]
fn a_refused_submission_poisons_what_it_writes_and_keeps_later_work_in_order() {
    for seed in 0..50 {
        let sim = Sim::builder(seed).fail(Failure::Nth(Call::Submit, 1)).build();
        let runtime = Runtime::new(sim.clone());
        let (one, two) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        let input = runtime.upload(&[1u8; 8]).unwrap();
        let first = copy(&one, &input);
        one.commit().unwrap();
        let refused = copy(&one, &first);
        let dependent = copy(&two, &refused);
        let last = copy(&two, &first);
        assert!(matches!(dependent.read(), Err(Error::Fault(_))));
        assert_eq!(last.read().unwrap().bytes(), [1u8; 8], "seed {seed}");
        assert!(refused.read().is_err());
        one.synchronize().unwrap();
        two.synchronize().unwrap();
        assert_eq!(sim.violations(), []);
    }
}

#[test]
fn a_lost_device_fails_everything_with_the_first_cause_and_nothing_hangs() {
    for at in 0..40 {
        let sim = Sim::builder(7).fail(Failure::Lose(at)).build();
        let runtime = Runtime::new(sim.clone());
        let program = || -> Result<Buffer, Error> {
            let stream = runtime.stream()?;
            let mut x = runtime.upload(&[1u8; 8])?;
            for _ in 0..6 {
                let out = stream.alloc(8)?;
                stream.encode("copy").read(&x).write(&out).copy()?;
                stream.commit()?;
                x = out;
            }
            x.read()?;
            Ok(x)
        };
        match program() {
            Ok(_) => assert!(runtime.lost().is_none()),
            Err(error) => {
                let fault = error.fault().unwrap_or_else(|| panic!("{error}"));
                assert_eq!((fault.kind(), fault.scope()), (FaultKind::Lost, Scope::Device));
                assert!(runtime.lost().expect("lost").same(fault));
                assert!(runtime.stream().is_err() && runtime.alloc(8).is_err());
            }
        }
        drop(runtime);
        while sim.step() {}
        assert!(sim.is_empty(), "at {at}");
    }
}

#[test]
fn cancelled_work_does_not_run_and_reports_it() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let input = runtime.upload(&[1u8; 8]).unwrap();
    let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let out = stream.alloc(8).unwrap();
    let mark = ran.clone();
    stream
        .encode("slow")
        .read(&input)
        .write(&out)
        .run(move |_| {
            mark.store(true, std::sync::atomic::Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
    stream.cancel();
    let error = out.read().err().expect("cancelled");
    assert_eq!(error.fault().unwrap().kind(), FaultKind::Cancelled);
    assert!(!ran.load(std::sync::atomic::Ordering::SeqCst));
    assert_eq!(copy(&stream, &input).read().unwrap().bytes(), [1u8; 8], "later work runs");
}

/// Fails the n-th device call, for every n. Each result is right or an error; nothing hangs, leaks or
/// panics.
#[test]
fn whichever_device_call_fails_the_program_gets_an_error_or_a_right_result() {
    let total = sweep(None);
    assert!(total > 40, "the program makes {total} device calls");
    for n in 0..total {
        sweep(Some(Failure::Any(n)));
        sweep(Some(Failure::Lose(n)));
    }
}

/// A program of allocations, compilations, dispatches, cross-stream waits and host reads. Returns the
/// number of device calls.
fn sweep(failure: Option<Failure>) -> u64 {
    use hesper_runtime::PipelineSource;
    use hesper_runtime::sim::workload::mix;
    let mut calls = 0;
    for (seed, unified) in [(1, true), (2, true), (3, false), (4, true)] {
        let mut builder = Sim::builder(seed).unified_memory(unified).batch(3);
        if let Some(failure) = failure {
            builder = builder.fail(failure);
        }
        let sim = builder.build();
        let runtime = Runtime::builder(sim.clone()).validate(seed == 4).build();
        let report = runtime.validation();
        let program = || -> Result<usize, Error> {
            let streams = [runtime.stream()?, runtime.stream()?];
            let numbers: Vec<u32> = (0..16).collect();
            let mut held = vec![(runtime.upload(&numbers)?, numbers)];
            for at in 0..12u32 {
                let stream = &streams[at as usize % 2];
                let source = PipelineSource::new("mix", "mix", format!("mix {}", at % 3).as_str());
                // Skip a failed step.
                let attempt = || -> Result<(Buffer, Vec<u32>), Error> {
                    let pipeline = runtime.pipeline(&source)?;
                    let (left, right) = (&held[held.len() / 2], &held[held.len() - 1]);
                    let temporary = stream.alloc(64)?;
                    let out = stream.alloc(64)?;
                    stream.encode("first").read(&left.0).write(&temporary).dispatch(
                        &pipeline,
                        [16, 1, 1],
                        [16, 1, 1],
                    )?;
                    stream.encode("second").read(&temporary).write(&out).dispatch(
                        &pipeline,
                        [16, 1, 1],
                        [16, 1, 1],
                    )?;
                    let other = stream.alloc(64)?;
                    stream.encode("copy").read(&right.0).write(&other).copy()?;
                    let numbers = left.1.iter().map(|x| mix(at % 3, [mix(at % 3, [*x])])).collect();
                    Ok((out, numbers))
                };
                if let Ok(result) = attempt() {
                    held.push(result);
                }
                if at % 5 == 4 {
                    runtime.clear_cache();
                }
            }
            let wrong = held.iter().filter(|(buffer, numbers)| {
                buffer.read().is_ok_and(|guard| guard.as_slice::<u32>() != Some(numbers))
            });
            Ok(wrong.count())
        };
        let wrong = program().unwrap_or(0);
        let lost = runtime.lost().is_some();
        assert_eq!(wrong, 0, "{failure:?}, seed {seed}");
        assert_eq!(runtime.synchronize().is_err(), lost, "{failure:?}, seed {seed}");
        calls = calls.max(sim.calls());
        drop(runtime);
        assert!(sim.is_empty(), "something is left behind: {failure:?}, seed {seed}");
        assert_eq!(sim.violations(), [], "{failure:?}, seed {seed}");
        assert_eq!(report.map_or(0, |report| report.count()), 0, "{failure:?}, seed {seed}");
    }
    calls
}
