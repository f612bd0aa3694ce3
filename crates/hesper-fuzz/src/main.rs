//! `hesper-fuzz [TARGET...] [--seconds N] [--seed S] [--runs N] [--timeout N] [--findings FOLDER]` runs
//! targets, all of them by default. `hesper-fuzz TARGET --replay FILE` runs one input, `hesper-fuzz TARGET
//! --show FILE` describes it, `hesper-fuzz --list` lists the targets.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hesper_fuzz::engine::{self, Options, Target};
use hesper_fuzz::heap::CountingAllocator;
use hesper_fuzz::targets;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct Arguments(Vec<String>);

impl Arguments {
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|arg| arg == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.value(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    /// Arguments before the first option.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str).take_while(|arg| !arg.starts_with("--"))
    }
}

fn main() -> ExitCode {
    let args = Arguments(std::env::args().skip(1).collect());
    let all = targets::all();
    if args.0.iter().any(|arg| arg == "--list") {
        for target in &all {
            println!("{:12} {}", target.name(), target.about());
        }
        return ExitCode::SUCCESS;
    }
    let mut chosen: Vec<&dyn Target> = Vec::new();
    for name in args.names() {
        match all.iter().find(|target| target.name() == name) {
            Some(target) => chosen.push(&**target),
            None => {
                eprintln!("no target is called {name}; `--list` names them");
                return ExitCode::from(2);
            }
        }
    }
    if chosen.is_empty() {
        chosen = all.iter().map(|target| &**target).collect();
    }
    let options = Options {
        duration: Duration::from_secs_f64(args.number("--seconds", 10.0)),
        runs: args.number("--runs", u64::MAX),
        seed: args.number("--seed", 1),
        timeout: Duration::from_secs(args.number("--timeout", 30)),
        findings: args.value("--findings").map_or_else(|| PathBuf::from("target/fuzz"), PathBuf::from),
    };
    match run(&args, &chosen, &options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Arguments, chosen: &[&dyn Target], options: &Options) -> std::io::Result<bool> {
    if let Some(current) = args.value("--worker") {
        return engine::work(chosen[0], options, current.as_ref());
    }
    if let Some(path) = args.value("--show") {
        println!("{}", chosen[0].describe(&std::fs::read(path)?));
        return Ok(true);
    }
    if let Some(path) = args.value("--replay").or_else(|| args.value("--replay-quietly")) {
        let input = std::fs::read(path)?;
        if args.value("--replay").is_some() {
            println!("{}", chosen[0].describe(&input));
        }
        return Ok(engine::replay(chosen[0], &input, options.timeout));
    }
    let mut clean = true;
    for target in chosen {
        let outcome = engine::supervise(*target, options)?;
        if outcome.finding.is_some() {
            clean = false;
        } else {
            let (runs, accepted) = outcome.counts;
            println!("ok   {}: {runs} inputs, {accepted} accepted, seed {}", target.name(), options.seed);
        }
    }
    Ok(clean)
}
