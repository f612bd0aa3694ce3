//! Refused driver calls, clears, dependent launches, forked processes, exit with work in flight. After each
//! failure everything runs again.

use std::time::{Duration, Instant};

use hesper_cuda::inject::{self, Call};
use hesper_cuda::{CudaDevice, CudaOptions};
use hesper_runtime::{Buffer, Error, PipelineSource, Runtime, Stream};

use crate::basics::shared;
use crate::kernels::{self, bump, grind, mix, mix_host, open, pipeline, values};
use crate::report::{Outcome, ensure, to_text};

const WORDS: usize = 1000;

/// Buffers and their expected elements.
type Results = Vec<(Buffer, Vec<u32>)>;

/// Chains on two streams that wait for each other, in-place updates, copies, clears; several times in the
/// same shape.
fn program(runtime: &Runtime, streams: &[Stream; 2], salt: u32, results: &mut Results) -> Result<(), String> {
    let (mixer, bumper) = (pipeline(runtime, "mix")?, pipeline(runtime, "bump")?);
    let [one, two] = streams;
    for round in 0..3 {
        let mut host: Vec<u32> = (0..WORDS as u32).map(|at| at * 3 + round).collect();
        let x = runtime.upload(&host).map_err(to_text)?;
        for step in 0..3 {
            let salt = salt + 10 * round + step;
            let first = one.alloc(4 * WORDS).map_err(to_text)?;
            mix(one, &mixer, &x, &x, &first, salt)?;
            bump(two, &bumper, &first)?;
            let bumped: Vec<u32> =
                host.iter().map(|value| mix_host(*value, *value, salt).wrapping_add(1)).collect();
            let copied = one.alloc(4 * WORDS).map_err(to_text)?;
            one.encode("copy").read(&first).write(&copied).copy().map_err(to_text)?;
            results.push((copied.clone(), bumped.clone()));
            bump(one, &bumper, &x)?;
            host.iter_mut().for_each(|value| *value = value.wrapping_add(1));
            let partly = one.alloc(4 * WORDS).map_err(to_text)?;
            one.encode("clear").write(&partly).clear().map_err(to_text)?;
            one.encode("head")
                .read_range(&copied, ..40)
                .write_range(&partly, ..40)
                .copy()
                .map_err(to_text)?;
            results.push((partly, (0..WORDS).map(|at| if at < 10 { bumped[at] } else { 0 }).collect()));
        }
        one.commit().map_err(to_text)?;
        results.push((x, host));
    }
    Ok(())
}

const ALL: usize = 3 * (3 * 2 + 1);

/// The number of right results; a wrong one is an error.
fn judge(results: &Results, what: &str) -> Result<usize, String> {
    let mut right = 0;
    for (at, (buffer, wanted)) in results.iter().enumerate() {
        match buffer.read() {
            Ok(guard) => {
                let found =
                    guard.bytes().chunks_exact(4).map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
                ensure(found.eq(wanted.iter().copied()), || format!("{what}: result {at} is wrong"))?;
                right += 1;
            }
            Err(error) => ensure(error.to_string().contains("CUDA_ERROR"), || {
                format!("{what}: an error without its cause: {error}")
            })?,
        }
    }
    Ok(right)
}

/// Refuses a call at each position, then runs everything again.
pub fn refused(options: &CudaOptions, limit: Duration) -> Outcome {
    let runtime = open(options.clone())?;
    let streams = [runtime.stream().map_err(to_text)?, runtime.stream().map_err(to_text)?];
    let begun = Instant::now();
    let all = |salt: u32, what: &str| -> Result<(), String> {
        let mut results = Results::new();
        program(&runtime, &streams, salt, &mut results).map_err(|error| format!("{what}: {error}"))?;
        let right = judge(&results, what)?;
        ensure(right == ALL, || format!("{what}: {right} of {ALL} right"))
    };
    // Kernels are loaded once, so the load is refused first.
    inject::fail(Call::Load, 1, 2, true);
    let mut results = Results::new();
    let outcome = program(&runtime, &streams, 1, &mut results);
    inject::stop();
    ensure(outcome.as_ref().is_err_and(|error| error.contains("CUDA_ERROR")), || format!("{outcome:?}"))?;
    all(1, "first")?;
    all(1, "second")?;
    runtime.clear_cache();
    let before = Call::ALL.map(inject::calls);
    all(2, "counted")?;
    let counts = Call::ALL.map(|call| inject::calls(call) - before[call as usize]);
    let (mut positions, mut failed, mut left_out) = (0, 0, 0);
    let refused = inject::refused();
    for call in Call::ALL {
        let count = counts[call as usize];
        for nth in (1..=count).step_by(count.div_ceil(24).max(1) as usize) {
            for (code, persistent) in [(2, false), (1, true)] {
                if begun.elapsed() > limit {
                    left_out += 1;
                    continue;
                }
                let what = format!("{call:?} {nth} of {count}, code {code}, persistent {persistent}");
                runtime.clear_cache();
                inject::fail(call, nth, code, persistent);
                let mut results = Results::new();
                let encoded = program(&runtime, &streams, 3, &mut results);
                let first = judge(&results, &what);
                inject::stop();
                let first = first?;
                failed += usize::from(encoded.is_err() || first < ALL);
                let second = judge(&results, &what)?;
                // Results whose read was refused may be right.
                ensure(first <= second, || format!("{what}: {first} right, then {second}"))?;
                drop(results);
                all(4, &what)?;
                positions += 1;
            }
        }
    }
    ensure(runtime.lost().is_none(), || format!("lost: {:?}", runtime.lost()))?;
    let refused = inject::refused() - refused;
    ensure(refused > 0 && failed > 0, || format!("{refused} refused, {failed} failed"))?;
    drop(streams);
    runtime.clear_cache();
    let active = runtime.counters().active;
    ensure(active == 0, || format!("{active} bytes are still active"))?;
    Ok(format!(
        "{positions} positions, {refused} calls refused, {failed} runs with errors, {left_out} left out for time, {:?}",
        shared(&runtime)?.counters()
    ))
}

/// Clears of odd lengths, of nothing, and of more than 2^32 bytes.
pub fn clears(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(to_text)?;
    for round in 0..3usize {
        let x = runtime.upload(&[7u8; 1000]).map_err(to_text)?;
        let ranges = [0..1, 3..3, 5..12 + round, 500..999];
        for range in ranges.clone() {
            stream.encode("clear").write_range(&x, range).clear().map_err(to_text)?;
        }
        let found = x.read().map_err(to_text)?;
        let right = |at: usize| if ranges.iter().any(|range| range.contains(&at)) { 0 } else { 7 };
        ensure((0..1000).all(|at| found.bytes()[at] == right(at)), || format!("round {round}: wrong bytes"))?;
    }
    let large = (5usize << 30) + 5;
    if runtime.info().total_memory < 2 * large {
        return Ok("odd lengths; too little memory for more than 4 GiB".into());
    }
    let (x, ones) = (stream.alloc(large).map_err(to_text)?, runtime.upload(&[1u8; 64]).map_err(to_text)?);
    stream.encode("clear all").write(&x).clear().map_err(to_text)?;
    let places = [0, (1 << 32) - 32, 1 << 32, large - 64];
    for at in places {
        stream.encode("ones").read(&ones).write_range(&x, at..at + 64).copy().map_err(to_text)?;
    }
    // All but the first and the last byte.
    stream.encode("clear most").write_range(&x, 1..large - 1).clear().map_err(to_text)?;
    for at in places {
        let piece = stream.alloc(64).map_err(to_text)?;
        stream.encode("piece").read_range(&x, at..at + 64).write(&piece).copy().map_err(to_text)?;
        let found = piece.read().map_err(to_text)?;
        let right = |byte: usize| u8::from(byte == 0 || byte == large - 1);
        ensure((0..64).all(|byte| found.bytes()[byte] == right(at + byte)), || format!("wrong at {at}"))?;
    }
    drop((x, ones));
    runtime.clear_cache();
    Ok(format!("odd lengths, and {large} bytes"))
}

/// A kernel that delays its writes, and a dependent kernel that starts before it has ended.
const EARLY: &str = r#"
struct Mix { unsigned salt, n; };
extern "C" __global__ void slow(unsigned* x, unsigned n) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    long long begun = clock64();
    while (clock64() - begun < 400000) {}
    if (i < n) x[i] += 1u;
}
extern "C" __global__ void early(const unsigned* a, const unsigned* b, unsigned* out, Mix m) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned w = i < m.n ? *(const volatile unsigned*)(b + i) : 0u;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (i < m.n) out[i] = *(const volatile unsigned*)(a + i) * 1664525u + (w ^ m.salt);
}
"#;

/// What is read early is never what the submission writes; validation checks that again.
pub fn early_launches(options: &CudaOptions) -> Outcome {
    let mut rounds = 0;
    for (graph_from, validate) in [(2, false), (usize::MAX, false), (2, true), (usize::MAX, true)] {
        let runtime = open(CudaOptions { graph_from, validate, ..options.clone() })?;
        let streams = [runtime.stream().map_err(to_text)?, runtime.stream().map_err(to_text)?];
        let kernel = |entry: &str, more: &str| {
            let source =
                PipelineSource::new(entry, "cuda", EARLY).specialised(&*format!("entry {entry}\n{more}"));
            runtime.pipeline(&source).map_err(to_text)
        };
        let (slow, early) = (kernel("slow", "")?, kernel("early", "ahead 1")?);
        let n = 4096usize;
        let launch_slow = |stream: &Stream, x: &Buffer| {
            let command = stream.encode("slow").read_write(x).constants(&(n as u32).to_ne_bytes());
            command.dispatch(&slow, [n as u64, 1, 1], [128, 1, 1]).map_err(to_text)
        };
        let (x, weights) = (
            runtime.upload(&vec![1u32; n]).map_err(to_text)?,
            runtime.upload(&vec![5u32; n]).map_err(to_text)?,
        );
        let (mut of_x, mut of_weights) = (1u32, 5u32);
        for round in 0..12u32 {
            let stream = &streams[(round % 2) as usize];
            // Activations are written just before; weights by an earlier submission, by this one, or not at
            // all.
            match round % 3 {
                1 => {
                    launch_slow(&streams[(round / 3 % 2) as usize], &weights)?;
                    streams[(round / 3 % 2) as usize].commit().map_err(to_text)?;
                    of_weights += 1;
                }
                2 => {
                    launch_slow(stream, &weights)?;
                    of_weights += 1;
                }
                _ => {}
            }
            launch_slow(stream, &x)?;
            of_x += 1;
            let out = stream.alloc(4 * n).map_err(to_text)?;
            mix(stream, &early, &x, &weights, &out, round)?;
            let wanted = mix_host(of_x, of_weights, round);
            let found = values(&out)?;
            ensure(found.iter().all(|value| *value == wanted), || {
                format!("graphs from {graph_from}, validate {validate}, round {round}: stale values")
            })?;
            rounds += 1;
        }
    }
    Ok(format!("{rounds} rounds, activations and weights written just before"))
}

/// Allocations refused by a limit, which is then raised.
pub fn limits(options: &CudaOptions) -> Outcome {
    let device = CudaDevice::open(options.clone()).map_err(to_text)?;
    let runtime = Runtime::builder(device).memory_limit(64 << 20).build();
    let streams = [runtime.stream().map_err(to_text)?, runtime.stream().map_err(to_text)?];
    let mut refused = 0;
    for room in (0..64).map(|step| step * 2048) {
        runtime.clear_cache();
        runtime.set_memory_limit(room);
        let mut results = Results::new();
        let outcome = program(&runtime, &streams, 3, &mut results);
        runtime.set_memory_limit(64 << 20);
        refused += usize::from(outcome.is_err());
        for (buffer, wanted) in &results {
            ensure(values(buffer)? == *wanted, || format!("{room} bytes: wrong values"))?;
        }
        drop(results);
        let mut results = Results::new();
        program(&runtime, &streams, 5, &mut results)?;
        ensure(judge(&results, "raised")? == ALL, || "not right after the limit was raised".into())?;
    }
    ensure(refused > 10, || format!("only {refused} limits refused anything"))?;
    Ok(format!("64 limits, {refused} refused"))
}

#[cfg(unix)]
mod forks {
    use std::ffi::c_int;

    unsafe extern "C" {
        pub fn fork() -> c_int;
        pub fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
        pub fn kill(process: c_int, signal: c_int) -> c_int;
    }
}

/// A forked process gets errors, exits, and does not affect its parent.
#[cfg(unix)]
pub fn forked(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(to_text)?;
    let (x, long) = (runtime.upload(&[1u32; 64]).map_err(to_text)?, pipeline(&runtime, "grind")?);
    grind(&stream, &long, &x, 2_000_000)?;
    stream.commit().map_err(to_text)?;
    // SAFETY: the child only calls this program's own functions and ends.
    let child = unsafe { forks::fork() };
    if child == 0 {
        let is_refused =
            |error: Option<Error>| error.is_some_and(|error| error.to_string().contains("forked"));
        let mut status = 0;
        status |= i32::from(!is_refused(runtime.alloc(1 << 20).err()));
        status |= 2 * i32::from(!is_refused(runtime.stream().err()));
        drop((x, stream, runtime));
        std::process::exit(status);
    }
    ensure(child > 0, || "no fork".into())?;
    let begun = Instant::now();
    let mut status = 0;
    // SAFETY: the process is this one's child, and the status is stored where there is room.
    while unsafe { forks::waitpid(child, &mut status, 1) } == 0 {
        if begun.elapsed() > Duration::from_secs(10) {
            // SAFETY: as above.
            unsafe { (forks::kill(child, 9), forks::waitpid(child, &mut status, 0)) };
            return Err("the forked process hangs".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    ensure(status == 0, || format!("the forked process exited with {status:#x}"))?;
    let wanted = kernels::grind_host(1, 2_000_000);
    ensure(values(&x)?.iter().all(|value| *value == wanted), || "the parent's values are wrong".into())?;
    Ok(format!("exited after {:.1} ms", begun.elapsed().as_secs_f64() * 1e3))
}

#[cfg(not(unix))]
pub fn forked(_: &CudaOptions) -> Outcome {
    Ok("no fork here".into())
}

/// The environment variable that selects how a child process exits.
const CHILD: &str = "HESPER_CUDA_CHECK_EXIT";

/// Exit with work in flight and in the launch queue.
pub fn exits() -> Outcome {
    let program = std::env::current_exe().map_err(to_text)?;
    let mut timings = Vec::new();
    for (way, wanted) in [("exit", 7), ("return", 0), ("threads", 5)] {
        let begun = Instant::now();
        let mut child = std::process::Command::new(&program).env(CHILD, way).spawn().map_err(to_text)?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(to_text)? {
                break status;
            }
            if begun.elapsed() > Duration::from_secs(20) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{way}: hangs"));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        ensure(status.code() == Some(wanted), || format!("{way}: {status} instead of {wanted}"))?;
        timings.push(format!("{way} {:.0} ms", begun.elapsed().as_secs_f64() * 1e3));
    }
    Ok(timings.join(", "))
}

/// How this child process must exit, if it is one.
pub fn child() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Exits as requested, with work in flight.
pub fn end(way: &str, runtime: Runtime) {
    let busy = |runtime: &Runtime| -> Result<(Stream, Buffer), String> {
        let (stream, long) = (runtime.stream().map_err(to_text)?, pipeline(runtime, "grind")?);
        let x = runtime.upload(&[1u32; 64]).map_err(to_text)?;
        for _ in 0..200 {
            grind(&stream, &long, &x, 300_000)?;
            stream.commit().map_err(to_text)?;
        }
        Ok((stream, x))
    };
    match way {
        "exit" => {
            let _held = busy(&runtime);
            std::process::exit(7);
        }
        "threads" => {
            for _ in 0..8 {
                let runtime = runtime.clone();
                std::thread::spawn(move || {
                    loop {
                        let _ = busy(&runtime).map(|(_, x)| values(&x));
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            std::process::exit(5);
        }
        _ => {
            // What is in flight goes with the thread's own values.
            type Held = Option<(Stream, Buffer, Runtime)>;
            thread_local!(static HELD: std::cell::RefCell<Held> = const { std::cell::RefCell::new(None) });
            if let Ok((stream, x)) = busy(&runtime) {
                HELD.with(|held| *held.borrow_mut() = Some((stream, x, runtime)));
            }
        }
    }
}
