//! Every op at five sizes, in two types, contiguous and transposed, on the CPU, beside PyTorch and NumPy.
//!
//! `cargo run --release -p hesper-bench --bin sweep` measures for about ten minutes and prints the geometric
//! mean of the ratios for each size and the fifty worst cases that take longer than ten microseconds. A ratio
//! is the time of the best peer over Hesper's: above one Hesper is ahead. `--only sum,sort` selects ops by
//! the start of their names, `--sizes 10,21` sizes by exponents of two, `--seconds` sets the time limit.
//! Cases are written as JSON lines to `--out FILE` and drawn to `--png FILE`.
//!
//! The peers run in `peers/sweep_gpu.py --serve`, a process of the Python that `--python` names. Both sides
//! of a case take turns. Without PyTorch and NumPy only the times of Hesper are written.

mod cases;
mod peers;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

use hesper::{Dtype, Result};

use cases::{Case, Inputs, cases};
use peers::Peers;

const SIZES: &str = "0,10,16,21,27";
const LAYOUTS: [&str; 2] = ["contiguous", "transposed"];
const DTYPES: [(Dtype, &str); 2] = [(Dtype::Float32, "float32"), (Dtype::Bfloat16, "bfloat16")];
/// Seconds per case and side, over all rounds.
const BUDGET: f64 = 0.04;
/// How often the sides of a case take turns.
const ROUNDS: usize = 3;
/// Cases whose round takes longer are measured once: noise of microseconds does not matter there.
const LONG_ROUND: f64 = 0.3;

struct Options {
    only: Option<Vec<String>>,
    sizes: Vec<u32>,
    seconds: f64,
    python: String,
    out: String,
    png: Option<String>,
}

fn options() -> std::result::Result<Options, String> {
    let mut options = Options {
        only: None,
        sizes: Vec::new(),
        seconds: 600.0,
        python: "python3".into(),
        out: "target/sweep.jsonl".into(),
        png: None,
    };
    let mut sizes = SIZES.to_string();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--only" => options.only = Some(value()?.split(',').map(str::to_string).collect()),
            "--sizes" => sizes = value()?,
            "--seconds" => {
                options.seconds = value()?.parse().map_err(|_| "--seconds needs a number".to_string())?;
            }
            "--python" => options.python = value()?,
            "--out" => options.out = value()?,
            "--png" => options.png = Some(value()?),
            _ => return Err(format!("unknown argument {name}")),
        }
    }
    let parsed = sizes.split(',').map(|size| {
        size.parse().map_err(|_| format!("--sizes needs exponents of two, such as 10,21; {size:?} is none"))
    });
    options.sizes = parsed.collect::<std::result::Result<_, _>>()?;
    Ok(options)
}

/// The best time of a call in seconds.
fn measure(case: &Case, inputs: &Inputs, budget: f64) -> Result<f64> {
    let call = || -> Result<f64> {
        let begun = Instant::now();
        (case.work)(inputs)?.eval()?;
        Ok(begun.elapsed().as_secs_f64())
    };
    call()?;
    let first = call()?;
    if first > budget {
        return Ok(first);
    }
    let calls = ((budget / 8.0 / first.max(1e-7)) as usize).clamp(1, 50);
    let (mut best, start) = (first, Instant::now());
    for _ in 0..40 {
        let begun = Instant::now();
        for _ in 0..calls {
            (case.work)(inputs)?.eval()?;
        }
        best = best.min(begun.elapsed().as_secs_f64() / calls as f64);
        if start.elapsed().as_secs_f64() > budget {
            break;
        }
    }
    Ok(best)
}

/// A measured case, as a line of JSON.
fn line(
    case: &Case,
    dtype: &str,
    log2: u32,
    layout: &str,
    ours: Result<f64>,
    peers: BTreeMap<String, f64>,
) -> String {
    let best = peers.values().copied().reduce(f64::min);
    let mut times: Vec<String> = peers.iter().map(|(name, us)| format!("\"{name}\": {us:.3}")).collect();
    let (mut ratio, mut failed) = ("null".to_string(), "null".to_string());
    match ours {
        Ok(seconds) => {
            let us = seconds * 1e6;
            times.insert(0, format!("\"hesper\": {us:.3}"));
            if let Some(best) = best {
                ratio = format!("{:.4}", best / us);
            }
        }
        Err(error) => failed = format!("{:?}", error.to_string()),
    }
    format!(
        "{{\"op\": \"{}\", \"dtype\": \"{dtype}\", \"log2\": {log2}, \"layout\": \"{layout}\", \
         \"us\": {{{}}}, \"ratio\": {ratio}, \"failed\": {failed}}}",
        case.name,
        times.join(", ")
    )
}

fn run(options: &Options) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut peers = Peers::start(&options.python)?;
    let wanted = |case: &Case| {
        options.only.as_ref().is_none_or(|only| only.iter().any(|name| case.name.starts_with(name.as_str())))
    };
    let table: Vec<Case> = cases().into_iter().filter(wanted).collect();
    let mut out = std::fs::File::create(&options.out)?;
    let (begun, mut left_out) = (Instant::now(), 0);
    for &log2 in &options.sizes {
        for (dtype, dtype_name) in DTYPES {
            // A matrix of one element has one layout.
            for layout in if log2 == 0 { &LAYOUTS[..1] } else { &LAYOUTS[..] } {
                let inputs = Inputs::new(log2, dtype, *layout == "transposed")?;
                for case in table.iter().filter(|case| log2 <= case.largest) {
                    if begun.elapsed().as_secs_f64() > options.seconds {
                        left_out += 1;
                        continue;
                    }
                    let (mut ours, budget) = (Ok(f64::INFINITY), BUDGET / ROUNDS as f64);
                    for _ in 0..ROUNDS {
                        let round = Instant::now();
                        ours = ours.and_then(|best| Ok(measure(case, &inputs, budget)?.min(best)));
                        peers.round(&case.name, dtype_name, log2, layout, budget)?;
                        if round.elapsed().as_secs_f64() > LONG_ROUND {
                            break;
                        }
                    }
                    writeln!(out, "{}", line(case, dtype_name, log2, layout, ours, peers.take()))?;
                }
                let left = options.seconds - begun.elapsed().as_secs_f64();
                eprintln!("2^{log2} {dtype_name} {layout}: {left:.0} s left");
            }
        }
    }
    Ok(peers.report(&options.out, left_out, options.png.as_deref())?)
}

fn main() {
    let result = options().map_err(Into::into).and_then(|options| run(&options));
    if let Err(error) = result {
        eprintln!("sweep: {error}");
        std::process::exit(1);
    }
}
