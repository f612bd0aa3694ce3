//! The device on the [fake driver](crate::fake): a mixed program with a failure at every call that it makes,
//! then the whole program again. Each result is right or an error with its cause; nothing hangs or leaks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hesper_runtime::{Access, Buffer, Error, Pipeline, PipelineSource, Runtime, Stream};

use crate::CudaShared;
use crate::device::solver::{Dense, DenseCall, SolverType, failed_matrix};
use crate::fake::{self, Live, SolverPlan, mix};
use crate::inject::{self, Call};
use crate::{CudaDevice, CudaOptions};

/// Serialises tests: the fake driver and the injected failures are process-wide.
fn serialise() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    let guard = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    inject::install();
    inject::stop();
    guard
}

fn options() -> CudaOptions {
    CudaOptions {
        cache: None,
        graph_from: 3,
        spin: Duration::from_micros(20),
        launch_thread: false,
        validate: false,
        ..CudaOptions::default()
    }
}

fn open(options: CudaOptions) -> Runtime {
    Runtime::new(CudaDevice::open(options).expect("the fake device opens"))
}

fn shared(runtime: &Runtime) -> Arc<CudaShared> {
    runtime.extension().unwrap().downcast::<CudaShared>().unwrap()
}

fn kernel(runtime: &Runtime, entry: &str, more: &str) -> Result<Arc<Pipeline>, Error> {
    let source = PipelineSource::new(entry, "cuda", "text").specialised(&*format!("entry {entry}\n{more}"));
    runtime.pipeline(&source)
}

fn encode_mix(
    stream: &Stream,
    kernel: &Arc<Pipeline>,
    (a, b, out): (&Buffer, &Buffer, &Buffer),
    salt: u32,
) -> Result<(), Error> {
    let n = (out.len() / 4) as u32;
    let command = stream.encode("mix").read(a).read(b).write(out);
    let command = command.constants(&salt.to_ne_bytes()).constants(&n.to_ne_bytes());
    command.dispatch(kernel, [u64::from(n), 1, 1], [64, 1, 1])
}

fn encode_bump(stream: &Stream, kernel: &Arc<Pipeline>, x: &Buffer) -> Result<(), Error> {
    let n = (x.len() / 4) as u32;
    let command = stream.encode("bump").read_write(x).constants(&n.to_ne_bytes());
    command.dispatch(kernel, [u64::from(n), 1, 1], [64, 1, 1])
}

fn words(buffer: &Buffer) -> Result<Vec<u32>, Error> {
    let guard = buffer.read()?;
    let word = |word: &[u8]| u32::from_ne_bytes(word.try_into().unwrap());
    Ok(guard.bytes().chunks_exact(4).map(word).collect())
}

const WORDS: usize = 33;

/// A buffer and its expected elements.
type Expected = (Buffer, Vec<u32>);

/// Chains on two streams that wait for each other, in-place updates, copies, clears; the same shape several
/// times, so that graphs are built, updated and launched. Returns the encoded results; parts that could not
/// be encoded are skipped.
fn program(runtime: &Runtime, streams: &[Stream; 2], salt: u32) -> Vec<Expected> {
    let mut results: Vec<Expected> = Vec::new();
    let mut part = |round: u32| -> Result<(), Error> {
        let (mixer, bumper) = (kernel(runtime, "mix", "")?, kernel(runtime, "bump", "")?);
        let start: Vec<u32> = (0..WORDS as u32).map(|at| at * 3 + round).collect();
        let x = runtime.upload(&start)?;
        let mut host = start.clone();
        let [one, two] = streams;
        for step in 0..3 {
            let salt = salt + 10 * round + step;
            // One stream computes, the other updates in place, the first reads again.
            let first = one.alloc(4 * WORDS)?;
            encode_mix(one, &mixer, (&x, &x, &first), salt)?;
            let expected: Vec<u32> = host.iter().map(|value| mix(*value, *value, salt)).collect();
            encode_bump(two, &bumper, &first)?;
            let bumped: Vec<u32> = expected.iter().map(|value| value.wrapping_add(1)).collect();
            let copied = one.alloc(4 * WORDS)?;
            one.encode("copy").read(&first).write(&copied).copy()?;
            results.push((copied.clone(), bumped.clone()));
            encode_bump(one, &bumper, &x)?;
            host.iter_mut().for_each(|value| *value = value.wrapping_add(1));
            // Writes a part of fresh memory and clears the rest, including three bytes at its end.
            let partly = one.alloc(4 * WORDS)?;
            one.encode("clear").write_range(&partly, ..4 * WORDS - 3).clear()?;
            one.encode("clear the rest").write_range(&partly, 4 * WORDS - 3..).clear()?;
            one.encode("head").read_range(&copied, ..40).write_range(&partly, ..40).copy()?;
            let head: Vec<u32> = (0..WORDS).map(|at| if at < 10 { bumped[at] } else { 0 }).collect();
            results.push((partly, head));
        }
        one.commit()?;
        results.push((x, host));
        Ok(())
    };
    for round in 0..4 {
        let _ = part(round);
    }
    results
}

/// The number of right results. An error must state its cause; a wrong result fails the test.
fn judge(results: &[Expected], what: &str) -> usize {
    let mut right = 0;
    for (at, (buffer, expected)) in results.iter().enumerate() {
        match words(buffer) {
            Ok(found) => {
                assert_eq!(&found, expected, "{what}: result {at} is wrong");
                right += 1;
            }
            Err(error) => assert!(error.to_string().contains("CUDA_ERROR"), "{what}: no cause in: {error}"),
        }
    }
    right
}

const ALL: usize = 4 * (3 * 2 + 1);

/// Waits until the last handle of the device is dropped.
fn assert_dropped(shared: Arc<CudaShared>, what: &str) {
    let weak = Arc::downgrade(&shared);
    drop(shared);
    let begun = Instant::now();
    while weak.strong_count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: the device is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs the program with a failure, then without. Returns the number of right results of the first run and
/// its number of calls of each kind.
fn run(options: &CudaOptions, seed: u64, failure: Option<(Call, u64, u32, bool)>) -> (usize, Vec<u64>) {
    let what = format!("seed {seed}, launch thread {}, {failure:?}", options.launch_thread);
    fake::reset(seed);
    let runtime = open(options.clone());
    let streams = [runtime.stream().unwrap(), runtime.stream().unwrap()];
    // With odd seeds kernels, graphs and channels exist before, so that failures also hit later calls.
    if seed % 2 == 1 {
        assert_eq!(judge(&program(&runtime, &streams, 0), &what), ALL, "{what}: before");
    }
    let before = Call::ALL.map(inject::calls);
    if let Some((call, nth, code, persistent)) = failure {
        inject::fail(call, nth, code, persistent);
    }
    let results = program(&runtime, &streams, 100);
    let right = judge(&results, &what);
    inject::stop();
    let calls = Call::ALL.map(|call| inject::calls(call) - before[call as usize]).to_vec();
    // Right results stay right; a refused read now succeeds.
    assert!(judge(&results, &what) >= right, "{what}: read again");
    drop(results);
    let again = program(&runtime, &streams, 200);
    assert_eq!(judge(&again, &what), ALL, "{what}: everything again; lost: {:?}", runtime.lost());
    drop(again);
    let device = shared(&runtime);
    drop(streams);
    drop(runtime);
    assert_dropped(device, &what);
    assert_eq!(fake::live(), Live::default(), "{what}: something was not given back");
    (right, calls)
}

fn sweep(options: &CudaOptions, seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut runs, mut hit) = (0, 0);
    for seed in seeds {
        let (right, counts) = run(options, seed, None);
        assert_eq!(right, ALL);
        for call in Call::ALL {
            let count = counts[call as usize];
            let step = count.div_ceil(16).max(1);
            for nth in (1..=count).step_by(step as usize) {
                for (code, persistent) in [(2, false), (1, true)] {
                    let refused = inject::refused();
                    run(options, seed, Some((call, nth, code, persistent)));
                    runs += 1;
                    hit += u64::from(inject::refused() > refused);
                }
            }
        }
    }
    (runs, hit)
}

#[test]
fn a_refused_call_fails_its_dependents_and_nothing_else() {
    let _serial = serialise();
    let (runs, hit) = sweep(&options(), 0..4);
    assert!(runs > 200 && hit * 10 > runs * 7, "{hit} of {runs} failures were made");
}

#[test]
fn the_same_with_a_launch_thread() {
    let _serial = serialise();
    let (runs, hit) = sweep(&CudaOptions { launch_thread: true, ..options() }, 0..4);
    assert!(runs > 200 && hit * 10 > runs * 7, "{hit} of {runs} failures were made");
}

/// Chains of submissions of one or two commands that queue up while nothing is launched, three times. The
/// second half of the results is read back in the reverse order.
fn small_submissions(runtime: &Runtime, stream: &Stream, salt: u32) -> Vec<Expected> {
    let mut results: Vec<Expected> = Vec::new();
    let mut part = |round: u32| -> Result<(), Error> {
        let (mixer, bumper) = (kernel(runtime, "mix", "")?, kernel(runtime, "bump", "")?);
        let x = runtime.upload(&[salt + round; WORDS])?;
        let mut host = vec![salt + round; WORDS];
        let device = shared(runtime);
        let _held = device.queue.hold();
        for step in 0..20 {
            let out = stream.alloc(4 * WORDS)?;
            encode_mix(stream, &mixer, (&x, &x, &out), step)?;
            results.push((out, host.iter().map(|value| mix(*value, *value, step)).collect()));
            if step % 3 == 0 {
                encode_bump(stream, &bumper, &x)?;
                host.iter_mut().for_each(|value| *value = value.wrapping_add(1));
            }
            stream.commit()?;
        }
        results.push((x, host));
        Ok(())
    };
    for round in 0..3 {
        let _ = part(round);
        let _ = stream.synchronize();
    }
    let half = results.len() / 2;
    results[half..].reverse();
    results
}

#[test]
fn small_submissions_that_queue_up_are_launched_together() {
    let _serial = serialise();
    fake::reset(1);
    let runtime = open(CudaOptions { launch_thread: true, ..options() });
    let stream = runtime.stream().unwrap();
    let records = inject::calls(Call::Record);
    let results = small_submissions(&runtime, &stream, 5);
    let records = inject::calls(Call::Record) - records;
    assert_eq!(judge(&results, "together"), 63);
    let counters = shared(&runtime).counters();
    assert_eq!(counters.submitted, 60);
    assert!(counters.graphs.launched >= 2 && counters.graphs.launched < 20, "{counters:?}");
    assert!(records < 20, "{records} events were recorded");
}

#[test]
fn a_refused_call_among_small_submissions_fails_its_dependents_and_nothing_else() {
    let _serial = serialise();
    let options = CudaOptions { launch_thread: true, ..options() };
    let (mut made, mut whole) = (0, 0);
    let calls = [
        Call::Launch,
        Call::LaunchGraph,
        Call::Record,
        Call::CreateEvent,
        Call::MakeGraph,
        Call::UpdateGraph,
    ];
    for call in calls {
        for nth in 1..=6 {
            for (code, persistent) in [(2, false), (1, true)] {
                let what = format!("{call:?} {nth} {code} {persistent}");
                fake::reset(nth);
                let runtime = open(options.clone());
                let stream = runtime.stream().unwrap();
                let refused = inject::refused();
                inject::fail(call, nth, code, persistent);
                let results = small_submissions(&runtime, &stream, 100);
                let right = judge(&results, &what);
                inject::stop();
                made += u64::from(inject::refused() > refused);
                whole += u64::from(right == results.len());
                assert!(judge(&results, &what) >= right, "{what}: read again");
                assert_eq!(judge(&small_submissions(&runtime, &stream, 9), &what), 63, "{what}: again");
                let device = shared(&runtime);
                drop((results, stream, runtime));
                assert_dropped(device, &what);
                assert_eq!(fake::live(), Live::default(), "{what}: something was not given back");
            }
        }
    }
    assert!(made >= 20 && whole < 72, "{made} failures were made, {whole} runs had all results");
}

#[test]
fn the_info_states_capabilities_and_the_attributes_of_the_driver() {
    let _serial = serialise();
    fake::reset(1);
    let runtime = open(options());
    let info = runtime.info();
    assert_eq!((info.kind, info.unified_memory, info.native_commands), ("cuda", false, false));
    assert_eq!((info.multiprocessors, info.max_threads_per_group), (4, 1024));
    assert_eq!((info.simd_width, info.shared_memory), (32, 64 << 10));
}

#[test]
fn shared_memory_is_allowed_beyond_the_default_when_static_and_dynamic_together_need_it() {
    let _serial = serialise();
    fake::reset(1);
    let runtime = open(options());
    let stream = runtime.stream().unwrap();
    // The kernels have 8 KiB of static shared memory, the device allows 64 KiB, by default 48 KiB.
    for (dynamic, fits) in
        [(0, true), (40 << 10, true), (48 << 10, true), (56 << 10, true), (57 << 10, false)]
    {
        let x = runtime.upload(&[5u32; 8]).unwrap();
        match kernel(&runtime, "bump", &format!("shared {dynamic}")) {
            Ok(bumper) => {
                encode_bump(&stream, &bumper, &x).unwrap();
                assert!(fits, "{dynamic} bytes");
                assert_eq!(words(&x).unwrap(), [6; 8], "{dynamic} bytes");
            }
            Err(error) => assert!(!fits && error.to_string().contains("shared memory"), "{dynamic}: {error}"),
        }
    }
}

#[test]
fn a_submission_whose_event_cannot_be_recorded_is_waited_for() {
    let _serial = serialise();
    fake::reset(3);
    let runtime = open(options());
    let (stream, bumper) = (runtime.stream().unwrap(), kernel(&runtime, "bump", "").unwrap());
    let x = runtime.upload(&[5u32; 8]).unwrap();
    inject::fail(Call::Record, 1, 2, false);
    encode_bump(&stream, &bumper, &x).unwrap();
    stream.commit().unwrap();
    inject::stop();
    assert_eq!(words(&x).unwrap(), [6; 8]);
    assert_eq!((shared(&runtime).counters().unmarked, runtime.lost().is_some()), (1, false));
}

#[test]
fn readers_of_a_refused_launch_do_not_run() {
    let _serial = serialise();
    for graph_from in [2, usize::MAX] {
        fake::reset(1);
        let runtime = open(CudaOptions { graph_from, ..options() });
        let (stream, mixer) = (runtime.stream().unwrap(), kernel(&runtime, "mix", "").unwrap());
        let x = runtime.upload(&[1u32; 8]).unwrap();
        let (a, b, c) = (stream.alloc(32).unwrap(), stream.alloc(32).unwrap(), stream.alloc(32).unwrap());
        let launches = inject::calls(Call::Launch);
        inject::fail(Call::LaunchGraph, 1, 2, false);
        inject::fail(Call::Launch, 1, 2, false);
        encode_mix(&stream, &mixer, (&x, &x, &a), 1).unwrap();
        encode_mix(&stream, &mixer, (&a, &x, &b), 2).unwrap();
        encode_mix(&stream, &mixer, (&x, &x, &c), 3).unwrap();
        stream.synchronize().ok();
        inject::stop();
        let (first, second) = (a.read().err().unwrap(), b.read().err().unwrap());
        assert!(first.fault().unwrap().same(second.fault().unwrap()), "{first} and {second}");
        assert_eq!(words(&c).unwrap(), [mix(1, 1, 3); 8]);
        // The first launch was refused, the third was made.
        assert_eq!(inject::calls(Call::Launch) - launches, 2, "the reader was launched");
    }
}

#[test]
fn a_panic_while_launching_fails_one_submission_and_not_the_device() {
    let _serial = serialise();
    for launch_thread in [false, true] {
        for nth in 1..=6 {
            fake::reset(nth as u64);
            let runtime = open(CudaOptions { launch_thread, ..options() });
            let streams = [runtime.stream().unwrap(), runtime.stream().unwrap()];
            fake::panic_at("enqueue", nth);
            let results = program(&runtime, &streams, 7);
            let mut failed = 0;
            for (buffer, expected) in &results {
                match words(buffer) {
                    Ok(found) => assert_eq!(&found, expected),
                    Err(error) => {
                        assert!(error.to_string().contains("on purpose"), "{error}");
                        failed += 1;
                    }
                }
            }
            assert!(failed > 0, "nothing failed");
            assert!(runtime.lost().is_none());
            drop(results);
            let again = program(&runtime, &streams, 9);
            assert_eq!(judge(&again, "after a panic"), ALL);
        }
    }
}

#[test]
fn a_panic_of_a_device_thread_loses_the_device_with_that_cause() {
    let _serial = serialise();
    for name in ["completion", "launcher"] {
        fake::reset(5);
        let runtime = open(CudaOptions { launch_thread: true, ..options() });
        let streams = [runtime.stream().unwrap(), runtime.stream().unwrap()];
        fake::panic_at(name, 1);
        let results = program(&runtime, &streams, 1);
        for (buffer, expected) in &results {
            match words(buffer) {
                Ok(found) => assert_eq!(&found, expected),
                Err(error) => assert!(error.to_string().contains("on purpose"), "{error}"),
            }
        }
        let begun = Instant::now();
        while shared(&runtime).lost().is_none() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let cause = shared(&runtime).lost().map(str::to_string);
        assert!(cause.as_deref().is_some_and(|cause| cause.contains(name)), "{name}: {cause:?}");
        drop((results, streams));
        let device = shared(&runtime);
        drop(runtime);
        assert_dropped(device, name);
    }
}

#[test]
fn a_kernel_fault_loses_the_device_and_every_result_has_the_cause() {
    let _serial = serialise();
    for launch_thread in [false, true] {
        fake::reset(9);
        let runtime = open(CudaOptions { launch_thread, ..options() });
        let streams = [runtime.stream().unwrap(), runtime.stream().unwrap()];
        let wild = kernel(&runtime, "wild", "").unwrap();
        let x = runtime.upload(&[1u32; 8]).unwrap();
        streams[0].encode("wild").read_write(&x).dispatch(&wild, [1, 1, 1], [1, 1, 1]).unwrap();
        let results = program(&runtime, &streams, 1);
        assert!(x.read().is_err_and(|error| error.to_string().contains("ILLEGAL_ADDRESS")));
        judge(&results, "lost");
        assert!(runtime.lost().is_some());
        drop((results, streams, x, wild));
        let device = shared(&runtime);
        drop(runtime);
        assert_dropped(device, "lost");
    }
}

#[test]
fn results_of_many_threads_are_right_or_errors_and_right_again_after_failures() {
    let _serial = serialise();
    fake::reset(11);
    let runtime = open(CudaOptions { launch_thread: true, ..options() });
    let rounds = |faulty: bool| {
        std::thread::scope(|scope| {
            for thread in 0..8u32 {
                let runtime = &runtime;
                scope.spawn(move || {
                    let streams = [runtime.stream().unwrap(), runtime.stream().unwrap()];
                    for round in 0..6 {
                        if faulty && thread == 0 {
                            let call = Call::ALL[round as usize * 5 % Call::ALL.len()];
                            inject::fail(call, u64::from(3 * round + 1), 2, false);
                        }
                        let right = judge(&program(runtime, &streams, 1000 * thread + round), "threads");
                        assert!(faulty || right == ALL);
                    }
                });
            }
        });
        inject::stop();
    };
    rounds(true);
    rounds(false);
    assert!(runtime.lost().is_none());
}

#[test]
fn validation_checks_a_dependent_launch_against_work_in_flight() {
    let _serial = serialise();
    fake::reset(2);
    let runtime = open(CudaOptions { validate: true, ..options() });
    let stream = runtime.stream().unwrap();
    let (mixer, early) =
        (kernel(&runtime, "mix", "").unwrap(), kernel(&runtime, "early", "ahead 1").unwrap());
    let (x, weights) = (runtime.upload(&[1u32; 8]).unwrap(), runtime.upload(&[2u32; 8]).unwrap());
    for _ in 0..3 {
        let (a, b) = (stream.alloc(32).unwrap(), stream.alloc(32).unwrap());
        encode_mix(&stream, &mixer, (&x, &x, &a), 1).unwrap();
        encode_mix(&stream, &early, (&a, &weights, &b), 2).unwrap();
        // It reads `a`, which the submission writes, as a weight, so it is launched in full order.
        let c = stream.alloc(32).unwrap();
        encode_mix(&stream, &early, (&weights, &a, &c), 3).unwrap();
        let first = mix(1, 1, 1);
        assert_eq!(words(&b).unwrap(), [mix(first, 2, 2); 8]);
        assert_eq!(words(&c).unwrap(), [mix(2, first, 3); 8]);
    }
    assert!(runtime.lost().is_none());
}

#[test]
fn clears_of_odd_lengths_and_offsets_set_only_their_bytes() {
    let _serial = serialise();
    for graph_from in [2, usize::MAX] {
        fake::reset(4);
        let runtime = open(CudaOptions { graph_from, ..options() });
        let stream = runtime.stream().unwrap();
        for round in 0..4usize {
            let x = runtime.upload(&[7u8; 100]).unwrap();
            let ranges = [0..1, 3..3, 5..12 + round, 50..99];
            for range in ranges.clone() {
                stream.encode("clear").write_range(&x, range).clear().unwrap();
            }
            let found = x.read().unwrap().bytes().to_vec();
            let expected: Vec<u8> = (0..100)
                .map(|at| if ranges.iter().any(|range| range.contains(&at)) { 0 } else { 7 })
                .collect();
            assert_eq!(found, expected, "round {round}");
        }
        assert_eq!(shared(&runtime).counters().graph_failures, 0);
    }
}

/// Matrices of 4 x 4 for the fake solver.
fn potrf(call: DenseCall, batch: usize) -> Dense {
    Dense { call, dtype: SolverType::F32, rows: 4, columns: 4, batch }
}

/// Factors the words of `x` with this much scratch and this access to the matrices.
fn factor(
    stream: &Stream,
    what: Dense,
    x: &Buffer,
    scratch: usize,
    access: Access,
) -> Result<Vec<u32>, Error> {
    let (scratch, codes) = (stream.alloc(scratch)?, stream.alloc(4 * what.batch.max(1))?);
    stream.encode("factor").bind(x, .., access).write(&scratch).write(&codes).run(
        move |native| match what.run(native)? {
            None => Ok(()),
            Some((at, code)) => Err(format!("matrix {at} failed with {code}").into()),
        },
    )?;
    words(&codes)?;
    words(x)
}

#[test]
fn a_factorization_checks_its_bindings_and_reports_codes_and_the_program_continues() {
    let _serial = serialise();
    fake::reset(6);
    fake::plan_solver(|plan| *plan = SolverPlan { scratch: 1000, ..SolverPlan::default() });
    let runtime = open(options());
    let stream = runtime.stream().unwrap();
    let (one, all) =
        (potrf(DenseCall::Potrf { upper: true }, 3), potrf(DenseCall::PotrfBatched { upper: true }, 3));
    assert_eq!(shared(&runtime).solver_scratch(&one).unwrap(), 1000);
    assert_eq!(shared(&runtime).solver_scratch(&all).unwrap(), 24);
    let matrices = || runtime.upload(&[5u32; 3 * 16]).unwrap();
    let run =
        |what: Dense, x: &Buffer, scratch: usize, access: Access| factor(&stream, what, x, scratch, access);
    let right = |when: &str| {
        for (what, scratch) in [(one, 1000), (all, 24)] {
            let found = run(what, &matrices(), scratch, Access::ReadWrite);
            assert_eq!(found.unwrap(), [0u32; 3 * 16], "{when}");
        }
    };
    right("first");
    let short = runtime.upload(&[5u32; 3 * 16 - 1]).unwrap();
    let refused: [(Dense, Buffer, usize, Access, &str); 5] = [
        (one, short, 1000, Access::ReadWrite, "exceeds its binding 0"),
        (one, matrices(), 999, Access::ReadWrite, "cuSOLVER: scratch"),
        (one, matrices(), 1000, Access::Read, "must bind range 0 to write"),
        (
            Dense { columns: 3, ..one },
            matrices(),
            1000,
            Access::ReadWrite,
            "does not take 3 matrices of 4 x 3",
        ),
        (
            Dense { call: DenseCall::Getrf, ..one },
            matrices(),
            1000,
            Access::ReadWrite,
            "binds 4 ranges, got 3",
        ),
    ];
    for (what, x, scratch, access, expected) in refused {
        let error = run(what, &x, scratch, access).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
        right(expected);
    }
    // The library refuses a call, then reports matrices that have no factor, then a bad parameter.
    for (status, codes, expected) in [
        (7, vec![], "cuSOLVER: potrf"),
        (0, vec![0, 2, 1], "matrix 1 failed with 2"),
        (0, vec![0, 0, -4], "refused parameter 4 of matrix 2"),
    ] {
        fake::plan_solver(|plan| (plan.status, plan.codes) = (status, codes.clone()));
        for (what, scratch) in [(one, 1000), (all, 24)] {
            fake::plan_solver(|plan| plan.codes.clone_from(&codes));
            let error = run(what, &matrices(), scratch, Access::ReadWrite).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
        fake::plan_solver(|plan| (plan.status, plan.codes) = (0, Vec::new()));
        right(expected);
    }
    // The copies to and from the device fail.
    for nth in 1..3 {
        let x = matrices();
        stream.synchronize().unwrap();
        inject::fail(Call::Copy, nth, 1, false);
        let outcome = run(all, &x, 24, Access::ReadWrite);
        inject::stop();
        assert!(outcome.is_err_and(|error| error.to_string().contains("CUDA_ERROR")));
        right("after a refused copy");
    }
    assert!(runtime.lost().is_none());
    let device = shared(&runtime);
    drop((stream, runtime));
    assert_dropped(device, "solver");
    assert_eq!(fake::plan_solver(|_| ()).handles, 0, "handles were not given back");
    assert_eq!(fake::live(), Live::default());
}

#[test]
fn codes_of_kernels_are_read_back_and_a_missing_solver_is_an_error() {
    let _serial = serialise();
    fake::reset(7);
    fake::plan_solver(|plan| *plan = SolverPlan { missing: true, ..SolverPlan::default() });
    let runtime = open(options());
    let stream = runtime.stream().unwrap();
    for _ in 0..2 {
        let error = shared(&runtime)
            .solver_scratch(&potrf(DenseCall::Potrf { upper: true }, 1))
            .expect_err("it is missing");
        assert!(error.to_string().contains("cuSOLVER"), "{error}");
    }
    let x = runtime.upload(&[5u32; 16]).unwrap();
    let missing = factor(&stream, potrf(DenseCall::Potrf { upper: true }, 1), &x, 8, Access::ReadWrite);
    assert!(missing.is_err_and(|error| error.to_string().contains("cuSOLVER")));
    for (codes, count, expected) in [
        ([0u32, 0, 0], 3, "none"),
        ([0, 9, 4], 3, "1 has 9"),
        ([0, 9, 4], 1, "none"),
        ([0, 0, 0], 4, "the codes exceed their binding"),
    ] {
        let (codes, out) = (runtime.upload(&codes).unwrap(), stream.alloc(4).unwrap());
        let command = stream.encode("codes").read(&codes).write(&out);
        let checked = command.run(move |native| match failed_matrix(native, 0, count)? {
            None => Err("none".into()),
            Some((at, code)) => Err(format!("{at} has {code}").into()),
        });
        let error = checked.and_then(|()| words(&out)).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(runtime.lost().is_none());
    fake::plan_solver(|plan| plan.missing = false);
}
