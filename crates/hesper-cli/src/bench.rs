//! `hesper bench`: measures the speed of a model.

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use hesper::trace;
use hesper_lm::{Batch, CacheKind, GenerateOptions, Generation, KvCache, LanguageModel};
use serde_json::{Value, json};

use crate::Failure;
use crate::bench_serve::{self, BenchServe};
use crate::interrupt;
use crate::model_args::ModelArgs;

/// Measures the speed of a model: prefill, decode, and batched decode.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    subcommand: Option<Command>,
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the prompt
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    prompt: usize,
    /// Tokens decoded after the prompt
    #[arg(long, value_name = "COUNT", default_value_t = 128)]
    tokens: usize,
    /// Sequences decoded in a batch; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    batch: usize,
    /// Tokens of the prompt of each sequence of the batch
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    batch_prompt: usize,
    /// Number of measurements; reports the best and the median
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    runs: usize,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Also record eight decode steps as a trace for Chrome or Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Other benchmarks.
#[derive(Subcommand)]
enum Command {
    /// Measure a server under load
    Serve(BenchServe),
}

pub fn run(args: &Bench) -> Result<(), Failure> {
    if let Some(Command::Serve(args)) = &args.subcommand {
        return bench_serve::run(args);
    }
    if [args.prompt, args.batch_prompt, args.tokens, args.runs].contains(&0) {
        return Err("--prompt, --batch-prompt, --tokens and --runs must be at least 1".to_string().into());
    }
    let (language, load_seconds) = args.model.load(args.json)?;
    let vocabulary = language.model().config().vocab_size as u32;
    // Any tokens will do: the speed does not depend on them.
    let prompt: Vec<u32> = (0..args.prompt as u32).map(|at| (at * 7919 + 13) % vocabulary).collect();
    let (mut prefill, mut decode, mut batched) = (Vec::new(), Vec::new(), Vec::new());
    let mut first_token = None;
    for _ in 0..args.runs {
        let start = Instant::now();
        let mut cache = CacheKind::Growing.create(language.model().config())?;
        let extra = if args.trace.is_some() { 9 } else { 1 };
        let options =
            GenerateOptions { max_tokens: args.tokens + extra, ignore_eos: true, ..Default::default() };
        let mut generation = Generation::new(&language, &prompt, &mut *cache, &options)?;
        step(&mut generation)?;
        first_token.get_or_insert(load_seconds + start.elapsed().as_secs_f64());
        prefill.push(args.prompt as f64 / start.elapsed().as_secs_f64());
        let start = Instant::now();
        for _ in 0..args.tokens {
            step(&mut generation)?;
        }
        decode.push(args.tokens as f64 / start.elapsed().as_secs_f64());
        if let Some(file) = &args.trace {
            trace::start();
            for _ in 0..8 {
                step(&mut generation)?;
            }
            std::fs::write(file, trace::stop()).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        if args.batch > 0 {
            batched.push(batch(&language, args)?);
        }
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
    }
    let memory = resident().map(|bytes| bytes as f64 / 1e6);
    if args.json {
        let object = json!({
            "model": args.model.model,
            "load_seconds": load_seconds,
            "first_token_seconds": first_token,
            "prompt": report(args.prompt, &mut prefill),
            "decode": report(args.tokens, &mut decode),
            "batch": (args.batch > 0).then(|| report(args.batch, &mut batched)),
            "resident_megabytes": memory,
        });
        println!("{object}");
        return Ok(());
    }
    println!("model {} loaded in {load_seconds:.3} s", args.model.model);
    line(&format!("prefill of {}", args.prompt), &mut prefill);
    line(&format!("decode after {}", args.prompt), &mut decode);
    if args.batch > 0 {
        line(&format!("decode batch of {}", args.batch), &mut batched);
    }
    println!("load and prefill: {:.2} s", first_token.unwrap_or_default());
    if let Some(memory) = memory {
        println!("resident memory: {memory:.0} MB");
    }
    Ok(())
}

/// Generates one token.
fn step(generation: &mut Generation<&LanguageModel, &mut dyn KvCache>) -> Result<(), Failure> {
    match generation.next() {
        Some(piece) => Ok(piece.map(|_| ())?),
        None => Err("--prompt and --tokens exceed the context length of the model".to_string().into()),
    }
}

/// Tokens per second of sequences that are decoded in a batch.
fn batch(language: &LanguageModel, args: &Bench) -> Result<f64, Failure> {
    let vocabulary = language.model().config().vocab_size as u32;
    let mut batch = Batch::new(language);
    let count = args.tokens.min(64);
    for sequence in 0..args.batch as u32 {
        let prompt =
            (0..args.batch_prompt as u32).map(|at| at.wrapping_mul(104_729).wrapping_add(sequence * 31 + 5));
        let prompt: Vec<u32> = prompt.map(|id| id % vocabulary).collect();
        batch.add(
            &prompt,
            &GenerateOptions { max_tokens: count + 2, ignore_eos: true, ..Default::default() },
        )?;
    }
    // The first step also returns the tokens of the prefill.
    batch.step()?;
    let start = Instant::now();
    for _ in 0..count {
        batch.step()?;
    }
    Ok((args.batch * count) as f64 / start.elapsed().as_secs_f64())
}

/// The median and the best of several speeds.
fn median_and_best(speeds: &mut [f64]) -> (f64, f64) {
    speeds.sort_unstable_by(f64::total_cmp);
    (speeds[speeds.len() / 2], speeds[speeds.len() - 1])
}

fn report(count: usize, speeds: &mut [f64]) -> Value {
    let (median, best) = median_and_best(speeds);
    json!({ "count": count, "tokens_per_second": median, "best_tokens_per_second": best })
}

fn line(what: &str, speeds: &mut [f64]) {
    let (median, best) = median_and_best(speeds);
    println!("{what:<22} {median:8.1} tokens/s (best {best:.1})");
}

/// The resident bytes of the process, if the operating system reports them.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
