//! The cost of the runtime: a command with four bindings from encode to retirement, the retention of a
//! binding, and the memory and time of a decode-like loop against the ideal.
//!
//! `cargo run --release -p hesper-bench --bin runtime [--features ablation]`

use hesper_bench::best_ns;
use hesper_cpu::CpuDevice;
use hesper_runtime::{Buffer, Result, Runtime, RuntimeBuilder, Stream};

/// Commands between two waits.
const COMMANDS: usize = 1024;

fn builder() -> RuntimeBuilder {
    Runtime::builder(CpuDevice::new())
}

fn buffers(runtime: &Runtime, count: usize) -> Result<Vec<Buffer>> {
    (0..count).map(|_| runtime.upload(&[0u8; 64])).collect()
}

/// Nanoseconds per command with `bindings` bindings: encoded, submitted, run (a no-op) and retired.
fn command_ns(runtime: &Runtime, bindings: usize) -> Result<f64> {
    let stream = runtime.stream()?;
    let all = buffers(runtime, bindings.max(1))?;
    let label: std::sync::Arc<str> = "bench".into();
    let encode = |stream: &Stream| -> Result<()> {
        for _ in 0..COMMANDS {
            let mut command = stream.encode(label.clone());
            for (at, buffer) in all.iter().take(bindings).enumerate() {
                command = if at + 1 == bindings { command.write(buffer) } else { command.read(buffer) };
            }
            command.run(|_| Ok(()))?;
        }
        stream.synchronize()
    };
    encode(&stream)?;
    Ok(best_ns(40, 1, || encode(&stream).unwrap_or_default()) / COMMANDS as f64)
}

/// One token of a decode-like loop: ten kernels through temporaries of `size` bytes that are dropped at once.
/// Returns nanoseconds per step and the peak in bytes.
fn decode_ns(runtime: &Runtime, size: usize, steps: usize) -> Result<(f64, usize)> {
    let stream = runtime.stream()?;
    let mut x = runtime.upload(&vec![1u8; size])?;
    runtime.synchronize()?;
    runtime.reset_peak();
    let before = runtime.counters().active;
    let step = |x: &mut Buffer| -> Result<()> {
        for _ in 0..10 {
            let next = stream.alloc(size)?;
            stream.encode("layer").read(x).write(&next).run(|native| {
                let [from, to] = native.take()?;
                for (to, from) in to.bytes_mut()?.iter_mut().zip(from.bytes()?) {
                    *to = from.wrapping_mul(3);
                }
                Ok(())
            })?;
            *x = next;
        }
        Ok(())
    };
    let ns = best_ns(10, steps / 10, || step(&mut x).unwrap_or_default());
    stream.synchronize()?;
    Ok((ns, runtime.counters().peak - before + size))
}

fn main() -> Result<()> {
    let runtime = builder().build();
    let (none, four, eight) = (command_ns(&runtime, 0)?, command_ns(&runtime, 4)?, command_ns(&runtime, 8)?);
    println!("one command, encode + submit + run + retire, CPU device:");
    println!("  without bindings      {none:7.1} ns");
    println!("  with four bindings    {four:7.1} ns   (aim: under 500)");
    println!("  with eight bindings   {eight:7.1} ns");
    println!("  a binding, all of it  {:7.1} ns   (check, hazard, reference, release)", (eight - four) / 4.0);
    let size = 1 << 14;
    let (ns, peak) = decode_ns(&runtime, size, 10_000)?;
    println!("decode-like loop, 10,000 steps of ten kernels through dropped temporaries of {size} bytes:");
    println!("  {:.2} us a step; peak {peak} bytes, ideal {} bytes", ns / 1e3, 2 * size);
    #[cfg(feature = "ablation")]
    ablated(size)?;
    Ok(())
}

/// With and without retention, alternating, in this process.
#[cfg(feature = "ablation")]
fn ablated(size: usize) -> Result<()> {
    use hesper_runtime::sim::Ablation;
    let (on, off) = (builder().build(), builder().ablate(Ablation::Retention).build());
    let mut best = [[f64::INFINITY; 2]; 2];
    for _ in 0..5 {
        for (which, runtime) in [&on, &off].into_iter().enumerate() {
            let binding = (command_ns(runtime, 8)? - command_ns(runtime, 0)?) / 8.0;
            best[which][0] = best[which][0].min(binding);
            best[which][1] = best[which][1].min(decode_ns(runtime, size, 5_000)?.0);
        }
    }
    let [[with, with_loop], [without, without_loop]] = best;
    println!("with and without retention (this build has the simulator's hooks):");
    println!("  retention of a binding {:5.1} ns   (aim: under 10)", with - without);
    println!("  decode-like loop       {:5.3} of the time without retention", with_loop / without_loop);
    Ok(())
}
