//! `hesper info`: devices, instruction sets and memory.

use clap::Args;
use hesper::placement;
use hesper_kernel::exec::SimdLevel;
use serde_json::{Value, json};

/// Shows devices, instruction sets and memory.
#[derive(Args)]
pub struct Info {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Name and bytes of memory of a GPU, or why it cannot be used.
fn gpu(number: usize) -> Result<(String, usize), String> {
    let runtime = placement::gpu(number).map_err(|error| error.to_string())?;
    Ok((runtime.info().name.clone(), runtime.info().total_memory))
}

pub fn run(args: &Info) {
    let info = placement::cpu().info();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let simd = format!("{:?}", SimdLevel::detect());
    let gpus: Vec<_> = (0..placement::gpu_count()).map(gpu).collect();
    if args.json {
        let gpus: Vec<Value> = (gpus.iter())
            .map(|gpu| match gpu {
                Ok((name, memory)) => json!({ "name": name, "memory_bytes": memory }),
                Err(error) => json!({ "error": error }),
            })
            .collect();
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpu": { "cores": cores, "memory_bytes": info.total_memory, "vectors": simd },
            "gpus": gpus,
        });
        println!("{report}");
        return;
    }
    let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
    println!("hesper {}", env!("CARGO_PKG_VERSION"));
    println!("device {}: {cores} cores, {:.1} GiB, SIMD {simd}", info.name, gib(info.total_memory));
    for (number, gpu) in gpus.iter().enumerate() {
        match gpu {
            Ok((name, memory)) => println!("device gpu {number}: {name}, {:.1} GiB", gib(*memory)),
            Err(error) => println!("device gpu {number}: cannot be used: {error}"),
        }
    }
    if gpus.is_empty() {
        println!("no GPU found");
    }
}
