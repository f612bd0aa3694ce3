//! `hesper trace`: summarizes a recorded trace by op.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::Failure;

/// Summarizes a trace by op.
#[derive(Args)]
pub struct Trace {
    /// A trace of `hesper::trace::record` or of `hesper bench --trace`
    file: PathBuf,
    /// Number of ops to show, the longest first
    #[arg(long, default_value_t = 20)]
    top: usize,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The totals of all commands with the same name.
#[derive(Default)]
struct Total {
    calls: usize,
    micros: f64,
    bytes: f64,
}

pub fn run(args: &Trace) -> Result<(), Failure> {
    let name = args.file.display();
    let text = std::fs::read_to_string(&args.file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let trace: Value = serde_json::from_str(&text)
        .map_err(|error| format!("cannot read {name}: it is not a trace in JSON ({error})"))?;
    let Some(events) = trace["traceEvents"].as_array() else {
        return Err(
            format!("cannot read {name}: it has no traceEvents; record with hesper::trace::record").into()
        );
    };
    let mut totals: HashMap<&str, Total> = HashMap::new();
    let (mut first, mut last) = (f64::MAX, 0.0f64);
    for event in events.iter().filter(|event| event["cat"] == "run") {
        let (Some(name), Some(start), Some(micros)) =
            (event["name"].as_str(), event["ts"].as_f64(), event["dur"].as_f64())
        else {
            continue;
        };
        let total = totals.entry(name).or_default();
        total.calls += 1;
        total.micros += micros;
        total.bytes += event["args"]["bytes"].as_f64().unwrap_or(0.0);
        (first, last) = (first.min(start), last.max(start + micros));
    }
    if totals.is_empty() {
        return Err(format!("{name} has no commands of the host; evaluate arrays while recording").into());
    }
    let limit = trace["otherData"]["host_bytes_per_second"].as_f64().filter(|limit| *limit > 0.0);
    let busy: f64 = totals.values().map(|total| total.micros).sum();
    let mut rows: Vec<(&str, Total)> = totals.into_iter().collect();
    rows.sort_by(|one, other| other.1.micros.total_cmp(&one.1.micros).then(one.0.cmp(other.0)));
    let rate = |total: &Total| total.bytes / total.micros * 1e6;
    if args.json {
        let ops: Vec<Value> = (rows.iter())
            .map(|(name, total)| {
                json!({
                    "op": name, "calls": total.calls, "microseconds": total.micros, "bytes": total.bytes,
                    "share_of_limit": limit.map(|limit| rate(total) / limit),
                })
            })
            .collect();
        let span = last - first;
        println!("{}", json!({ "busy_microseconds": busy, "span_microseconds": span, "ops": ops }));
        return Ok(());
    }
    println!("{:<44} {:>7} {:>10} {:>6} {:>8} {:>9}", "op", "calls", "ms", "time", "GB/s", "of limit");
    for (name, total) in rows.iter().take(args.top) {
        let share = limit.map_or("-".into(), |limit| format!("{:.0} %", 100.0 * rate(total) / limit));
        println!(
            "{:<44} {:>7} {:>10.3} {:>4.0} % {:>8.1} {share:>9}",
            shortened(name, 44),
            total.calls,
            total.micros / 1e3,
            100.0 * total.micros / busy,
            rate(total) / 1e9
        );
    }
    if rows.len() > args.top {
        println!("... and {} more; --top {} shows all", rows.len() - args.top, rows.len());
    }
    println!("busy {:.3} ms of {:.3} ms", busy / 1e3, (last - first) / 1e3);
    match limit {
        Some(limit) => println!("limit: {:.1} GB/s, measured by copying with all cores", limit / 1e9),
        None => println!("limit: unknown; hesper::trace::record measures it"),
    }
    Ok(())
}

/// A name, truncated to at most `most` characters.
fn shortened(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most - 3).chain("...".chars()).collect(),
        false => name.to_string(),
    }
}
