//! `hesper bench serve`: puts a load on a server with OpenAI's API and measures throughput and latencies.

mod client;
mod load;
mod plot;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::Failure;
use crate::interrupt;
use crate::progress::Progress;
use client::{Target, shorten};
use load::{Arrivals, Lengths, Workload};
use report::Row;

/// Measures a server under load: throughput, time to first token, time between tokens.
///
/// Each value of --clients is a closed loop: that many clients, each of which sends its next request when the
/// previous one is answered. Each value of --rate is an open loop: requests arrive at random times (a Poisson
/// process), however long the answers take, and times count from the planned arrival. Requests are streamed
/// from /v1/completions.
#[derive(Args)]
pub struct BenchServe {
    /// The server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The name of the model [default: the first of /v1/models]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// A file whose first line is the API key
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Numbers of clients in a closed loop, one load each
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: Vec<u16>,
    /// Requests per second in an open loop, one load each [default without either: --clients 1,8,32]
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',')]
    rate: Vec<f64>,
    /// Seconds in which each load sends requests
    #[arg(long, value_name = "NUMBER", default_value_t = 15.0)]
    seconds: f64,
    /// Words of each prompt, about a token each; drawn from a range
    #[arg(long, value_name = "COUNT|FROM:TO", default_value = "32:256")]
    prompt: Lengths,
    /// Tokens to generate; drawn from a range
    #[arg(long, value_name = "COUNT|FROM:TO", default_value = "16:128")]
    tokens: Lengths,
    /// Words that all prompts begin with
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    shared_prefix: usize,
    /// Share of requests whose client disconnects before the end, from 0 to 1
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0)]
    disconnects: f64,
    /// Temperature of the requests; 0 takes the most likely token
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0)]
    temperature: f32,
    /// Timeout of each wait for the server, in seconds
    #[arg(long, value_name = "NUMBER", default_value_t = 120.0)]
    timeout: f64,
    /// Seed of lengths, words, arrivals and disconnects
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Also write a plot of the results
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &BenchServe) -> Result<(), Failure> {
    let arrivals = args.arrivals()?;
    let workload = args.workload()?;
    interrupt::set_graceful(true);
    let mut progress = Progress::new(args.json);
    let mut rows = Vec::new();
    if !args.json {
        println!("{}", args.title(&workload.model));
    }
    for each in arrivals {
        progress.set(&format!("{} for {} s", report::name(each), args.seconds));
        let load = workload.run(each, Duration::from_secs_f64(args.seconds));
        progress.clear();
        let row = Row::of(&load);
        if !args.json {
            if rows.is_empty() {
                println!("\n{}", report::HEAD);
            }
            println!("{row}");
        }
        rows.push(row);
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
    }
    if args.json {
        let loads: Vec<Value> = rows.iter().map(Row::json).collect();
        println!("{}", json!({ "url": args.url, "model": workload.model, "loads": loads }));
    }
    for (message, count) in report::failures(&rows) {
        eprintln!("hesper: {count} requests failed: {message}");
    }
    if let Some(file) = &args.plot {
        let picture = plot::svg(&args.title(&workload.model), &rows);
        std::fs::write(file, picture).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    match rows.iter().any(|row| row.completed > 0) {
        true => Ok(()),
        false => Err("no request was answered".to_string().into()),
    }
}

impl BenchServe {
    fn arrivals(&self) -> Result<Vec<Arrivals>, String> {
        if let Some(rate) = self.rate.iter().find(|rate| !(**rate > 0.0 && **rate <= 10_000.0)) {
            return Err(format!("--rate {rate}: must be above 0 and at most 10000"));
        }
        for (name, value, most) in [("seconds", self.seconds, 86_400.0), ("timeout", self.timeout, 86_400.0)]
        {
            if !(value >= 0.01 && value <= most) {
                return Err(format!("--{name} {value}: must be from 0.01 to {most}"));
            }
        }
        if !(0.0..=1.0).contains(&self.disconnects) {
            return Err(format!("--disconnects {}: must be from 0 to 1", self.disconnects));
        }
        if !(0.0..=100.0).contains(&self.temperature) {
            return Err(format!("--temperature {}: must be from 0 to 100", self.temperature));
        }
        let clients = match (self.clients.is_empty(), self.rate.is_empty()) {
            (true, true) => &[1, 8, 32][..],
            _ => &self.clients,
        };
        let closed = clients.iter().map(|count| Arrivals::Clients(usize::from(*count)));
        Ok(closed.chain(self.rate.iter().copied().map(Arrivals::Rate)).collect())
    }

    fn workload(&self) -> Result<Workload, String> {
        let mut target = Target::parse(&self.url, Duration::from_secs_f64(self.timeout))?;
        if let Some(file) = &self.api_key_file {
            let text =
                std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            let key = text.lines().next().unwrap_or_default().trim();
            if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("{}: the first line is not an API key", file.display()));
            }
            target.api_key = Some(key.to_string());
        }
        let model = match &self.model {
            Some(model) => model.clone(),
            None => first_model(&target)?,
        };
        Ok(Workload {
            target,
            model,
            prompt: self.prompt,
            tokens: self.tokens,
            shared_prefix: self.shared_prefix,
            disconnects: self.disconnects,
            temperature: self.temperature,
            seed: self.seed,
        })
    }

    fn title(&self, model: &str) -> String {
        let mut title = format!(
            "{model} at {}: prompts of {} words, {} tokens, {} s each",
            self.url, self.prompt, self.tokens, self.seconds
        );
        if self.shared_prefix > 0 {
            title += &format!(", after {} shared words", self.shared_prefix);
        }
        if self.disconnects > 0.0 {
            title += &format!(", {} % disconnect", self.disconnects * 100.0);
        }
        title
    }
}

/// The name of the first model of a server.
fn first_model(target: &Target) -> Result<String, String> {
    let response = target.send("/v1/models", None)?;
    let status = response.status;
    let text = response.text()?;
    if status != 200 {
        return Err(format!("/v1/models: status {status}: {}", shorten(text.trim())));
    }
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    let name = list["data"][0]["id"].as_str();
    name.map(str::to_string).ok_or_else(|| "/v1/models lists no model; pass --model".to_string())
}
