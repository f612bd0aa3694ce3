//! Concurrent decode tasks on the simulated device, with one mechanism after another switched off.
//!
//! `cargo run --release --example ablation [-- --runs N] [--seed S] [--replay MECHANISM B SEED]`
//!
//! prints, for each number of tasks and each mechanism, how many of N seeded runs survived: right results,
//! no violation, no hang, no leak. A run is a function of its seed, so every failure can be replayed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use hesper_runtime::sim::Ablation;
use hesper_runtime::sim::workload::{Decode, Verdict};

const TASKS: [usize; 4] = [16, 17, 32, 64];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        Some(arguments[at + 1..].to_vec())
    };
    if let Some(values) = option("--replay") {
        return replay(&values);
    }
    let number = |name: &str, default: u64| {
        option(name).and_then(|values| values.first()?.parse().ok()).unwrap_or(default)
    };
    table(number("--runs", 10), number("--seed", 1))
}

fn decode(ablation: Ablation, tasks: usize, seed: u64) -> Verdict {
    // Tasks may panic; the verdict reports that.
    std::panic::set_hook(Box::new(|_| {}));
    let verdict = Decode { tasks, steps: 24, ablation, validate: true, seed }.run();
    let _ = std::panic::take_hook();
    verdict
}

fn table(runs: u64, first: u64) -> ExitCode {
    println!("Concurrent decode tasks on the simulated device: runs that survived, of {runs} each.\n");
    print!("{:<18}", "switched off");
    TASKS.iter().for_each(|tasks| print!("{:>9}", format!("B = {tasks}")));
    println!("   what was found");
    let mut bad = false;
    let mut replays = Vec::new();
    for ablation in Ablation::ALL {
        print!("{ablation:<18}");
        let mut rules: BTreeMap<String, usize> = BTreeMap::new();
        let mut example = None;
        for tasks in TASKS {
            let mut survived = 0;
            for seed in first..first + runs {
                let verdict = decode(ablation, tasks, seed);
                survived += u64::from(verdict.survived());
                for violation in &verdict.violations {
                    *rules.entry(violation.rule.to_string()).or_default() += 1;
                }
                if verdict.violations.is_empty() && !verdict.wrong.is_empty() {
                    *rules.entry("wrong values".into()).or_default() += 1;
                }
                if verdict.violations.is_empty() && !verdict.errors.is_empty() {
                    *rules.entry("R7 faults out of scope".into()).or_default() += 1;
                }
                if !verdict.survived() {
                    example.get_or_insert((tasks, seed));
                }
            }
            print!("{:>9}", format!("{survived}/{runs}"));
            // All runs must survive with every mechanism on; some must fail with one off.
            bad |= if ablation == Ablation::None { survived != runs } else { survived == runs };
        }
        let names: Vec<&str> = rules.keys().map(String::as_str).collect();
        println!("   {}", if names.is_empty() { "none".to_string() } else { names.join(", ") });
        if let Some((tasks, seed)) = example {
            replays.push(format!("  --replay '{ablation}' {tasks} {seed}"));
        }
    }
    if !replays.is_empty() {
        println!("\nTo replay a failure, add after `--`:\n{}", replays.join("\n"));
    }
    if bad {
        println!("\nUnexpected: all runs must survive with nothing switched off, and only then.");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn replay(values: &[String]) -> ExitCode {
    let parsed = || {
        let ablation = Ablation::ALL.into_iter().find(|one| values.first() == Some(&one.to_string()))?;
        Some((ablation, values.get(1)?.parse().ok()?, values.get(2)?.parse().ok()?))
    };
    let Some((ablation, tasks, seed)) = parsed() else {
        let names: Vec<String> = Ablation::ALL.iter().map(|one| format!("'{one}'")).collect();
        eprintln!("--replay takes a mechanism ({}), a number of tasks and a seed", names.join(", "));
        return ExitCode::from(2);
    };
    let verdict = decode(ablation, tasks, seed);
    println!("switched off: {ablation}; {tasks} tasks; seed {seed}; run {:016x}", verdict.fingerprint);
    let show = |what: &str, lines: Vec<String>| {
        println!("{what}: {}", lines.len());
        lines.iter().take(5).for_each(|line| println!("  {line}"));
    };
    show("wrong values", verdict.wrong.clone());
    show("errors", verdict.errors.clone());
    show("violations", verdict.violations.iter().map(ToString::to_string).collect());
    show("panics", verdict.outcome.panics.clone());
    println!("hung: {}; nothing leaked: {}", verdict.outcome.hung, verdict.clean);
    if verdict.survived() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
