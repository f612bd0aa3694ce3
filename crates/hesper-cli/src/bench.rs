//! `hesper bench`: how fast a model runs here.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use hesper::place;
use hesper_lm::{Batch, Cache, CacheKind, GenerateOptions, Generation, LanguageModel};
use serde_json::{Value, json};

use crate::Failure;
use crate::interrupt;
use crate::model::ModelArgs;

/// Measures how fast a model runs: prompt, decoding, and several texts together.
#[derive(Args)]
pub struct Bench {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the prompt
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    prompt: usize,
    /// Tokens decoded behind the prompt
    #[arg(long, value_name = "COUNT", default_value_t = 128)]
    tokens: usize,
    /// Texts decoded together; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    batch: usize,
    /// How many times everything is measured; the best and the median are told
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    runs: usize,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Also record eight decoding steps, as a trace for Chrome or Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

pub fn run(args: &Bench) -> Result<(), Failure> {
    if args.prompt == 0 || args.tokens == 0 || args.runs == 0 {
        return Err("there is nothing to measure".to_string().into());
    }
    let (language, load_seconds) = args.model.load(args.json)?;
    let vocabulary = language.model().config().vocabulary as u32;
    // Tokens that are no text, but as good as one for measuring.
    let prompt: Vec<u32> = (0..args.prompt as u32).map(|at| (at * 7919 + 13) % vocabulary).collect();
    let (mut reading, mut decoding, mut together) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for _ in 0..args.runs {
        let start = Instant::now();
        let mut cache = Cache::new(language.model().config(), CacheKind::Growing)?;
        let more = if args.trace.is_some() { 9 } else { 1 };
        let options =
            GenerateOptions { max_tokens: args.tokens + more, ignore_end: true, ..Default::default() };
        let mut generation = Generation::new(&language, &prompt, &mut cache, &options)?;
        step(&mut generation)?;
        first.get_or_insert(load_seconds + start.elapsed().as_secs_f64());
        reading.push(args.prompt as f64 / start.elapsed().as_secs_f64());
        let start = Instant::now();
        for _ in 0..args.tokens {
            step(&mut generation)?;
        }
        decoding.push(args.tokens as f64 / start.elapsed().as_secs_f64());
        if let Some(file) = &args.trace {
            let runtime = place::default_device().runtime().map_err(|error| error.to_string())?;
            let trace = runtime.trace();
            trace.start();
            for _ in 0..8 {
                step(&mut generation)?;
            }
            std::fs::write(file, trace.stop()).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        if args.batch > 0 {
            together.push(batch(&language, args)?);
        }
        if interrupt::asked() {
            return Err(Failure::Interrupted);
        }
    }
    let memory = resident().map(|bytes| bytes as f64 / 1e6);
    if args.json {
        let report = json!({
            "model": args.model.model,
            "load_seconds": load_seconds,
            "first_token_seconds": first,
            "prompt": told(args.prompt, &mut reading),
            "decode": told(args.tokens, &mut decoding),
            "batch": (args.batch > 0).then(|| told(args.batch, &mut together)),
            "resident_megabytes": memory,
        });
        println!("{report}");
        return Ok(());
    }
    println!("model {} loaded in {load_seconds:.3} s", args.model.model);
    line(&format!("prompt of {}", args.prompt), &mut reading);
    line(&format!("decode behind {}", args.prompt), &mut decoding);
    if args.batch > 0 {
        line(&format!("{} texts together", args.batch), &mut together);
    }
    println!("load and prompt: {:.2} s", first.unwrap_or_default());
    if let Some(memory) = memory {
        println!("resident memory: {memory:.0} MB");
    }
    Ok(())
}

/// One more token.
fn step(generation: &mut Generation<&LanguageModel, &mut Cache>) -> Result<(), Failure> {
    match generation.next() {
        Some(piece) => Ok(piece.map(|_| ())?),
        None => Err("the model's context is too short for so many tokens".to_string().into()),
    }
}

/// Tokens in a second of texts with prompts of 32 tokens that are decoded together.
fn batch(language: &LanguageModel, args: &Bench) -> Result<f64, Failure> {
    let vocabulary = language.model().config().vocabulary as u32;
    let mut batch = Batch::new(language);
    let count = args.tokens.min(64);
    for text in 0..args.batch as u32 {
        let prompt: Vec<u32> = (0..32).map(|at| (at * 104_729 + text * 31 + 5) % vocabulary).collect();
        batch.add(
            &prompt,
            &GenerateOptions { max_tokens: count + 2, ignore_end: true, ..Default::default() },
        )?;
    }
    // The first step also gives what came with the prompts.
    batch.step()?;
    let start = Instant::now();
    for _ in 0..count {
        batch.step()?;
    }
    Ok((args.batch * count) as f64 / start.elapsed().as_secs_f64())
}

fn sorted(speeds: &mut [f64]) -> (f64, f64) {
    speeds.sort_unstable_by(f64::total_cmp);
    (speeds[speeds.len() / 2], speeds[speeds.len() - 1])
}

fn told(count: usize, speeds: &mut [f64]) -> Value {
    let (median, best) = sorted(speeds);
    json!({ "count": count, "tokens_per_second": median, "best_tokens_per_second": best })
}

fn line(what: &str, speeds: &mut [f64]) {
    let (median, best) = sorted(speeds);
    println!("{what:<22} {median:8.1} tokens/s (best {best:.1})");
}

/// Bytes of the process that are in memory, where the system tells.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
