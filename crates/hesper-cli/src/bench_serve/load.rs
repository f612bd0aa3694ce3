//! Generates a load: a closed loop of clients, or an open loop of requests at random times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Target, shorten};
use crate::interrupt;

/// The most requests of an open loop that run at once. Further requests are not sent.
const MAX_IN_FLIGHT: usize = 2048;
/// The stack of a thread, which only sends requests and reads lines.
const STACK_BYTES: usize = 256 << 10;
/// The longest pause of a client after it was refused.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// A range of lengths, both ends included.
#[derive(Debug, Clone, Copy)]
pub struct Lengths {
    /// The shortest.
    pub from: usize,
    /// The longest.
    pub to: usize,
}

impl std::str::FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once(':').unwrap_or((text, text));
        let parse = |part: &str| part.trim().parse::<usize>().ok().filter(|count| *count <= 1_000_000);
        match (parse(from), parse(to)) {
            (Some(from), Some(to)) if from <= to => Ok(Lengths { from, to }),
            _ => Err("expected COUNT or FROM:TO with FROM not above TO, at most 1000000".into()),
        }
    }
}

impl std::fmt::Display for Lengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.from == self.to {
            true => write!(f, "{}", self.from),
            false => write!(f, "{} to {}", self.from, self.to),
        }
    }
}

/// The requests of a benchmark.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The server.
    pub target: Target,
    /// The model's name.
    pub model: String,
    /// Words of the prompt after the shared prefix.
    pub prompt: Lengths,
    /// Tokens to generate.
    pub tokens: Lengths,
    /// Words that all prompts begin with.
    pub shared_prefix: usize,
    /// The share of requests whose client disconnects before the end.
    pub disconnects: f64,
    /// The temperature of the requests.
    pub temperature: f32,
    /// The seed of lengths, words, arrivals and disconnects.
    pub seed: u64,
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// This many clients, each of which sends its next request when the previous one is answered.
    Clients(usize),
    /// This many requests per second on average, at random times that do not depend on the answers.
    Rate(f64),
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// With a complete answer.
    Completed,
    /// The client disconnected, as planned.
    Disconnected,
    /// With 429 or 503.
    Refused,
    /// With an error.
    Failed(String),
}

/// A request as its client saw it. Times in seconds.
#[derive(Debug, Clone)]
pub struct Sample {
    /// From its arrival to the first text.
    pub first: Option<f64>,
    /// Between two events with text.
    pub gaps: Vec<f64>,
    /// From its arrival to the end.
    pub total: f64,
    /// Generated tokens, as the server reports them, else the number of events with text.
    pub tokens: usize,
    /// Tokens of the prompt, as the server reports them.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were found in a cache, as the server reports them.
    pub cached_tokens: usize,
    /// How it ended.
    pub outcome: Outcome,
}

/// The requests of one load.
#[derive(Debug)]
pub struct Load {
    /// How requests arrived.
    pub arrivals: Arrivals,
    /// Seconds from the start of the load to the last answer.
    pub seconds: f64,
    /// All requests.
    pub samples: Vec<Sample>,
    /// Requests or clients that could not be started: too many requests were running, or no thread was left.
    pub unsent: usize,
}

/// Random numbers by SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// An independent sequence for each pair of seed and stream.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number in `0..1`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn length(&mut self, lengths: Lengths) -> usize {
        lengths.from + (self.unit() * (lengths.to - lengths.from + 1) as f64) as usize
    }

    /// The time to the next arrival at a rate, exponentially distributed.
    pub fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }
}

/// Words that are about one token each in the vocabularies of common models.
const WORDS: [&str; 40] = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
];

fn words(random: &mut Random, count: usize, text: &mut String) {
    for _ in 0..count {
        text.push_str(WORDS[(random.next() % WORDS.len() as u64) as usize]);
        text.push(' ');
    }
}

impl Workload {
    /// Runs a load: sends requests for `time`, then waits for the running ones.
    pub fn run(&self, arrivals: Arrivals, time: Duration) -> Load {
        let start = Instant::now();
        let end = start + time;
        let (sender, receiver) = mpsc::channel();
        let counter = AtomicUsize::new(0);
        let unsent = std::thread::scope(|scope| match arrivals {
            Arrivals::Clients(clients) => (0..clients)
                .filter(|_| {
                    let (sender, numbers) = (sender.clone(), &counter);
                    thread().spawn_scoped(scope, move || self.client(numbers, end, &sender)).is_err()
                })
                .count(),
            Arrivals::Rate(rate) => {
                let mut random = Random::new(self.seed, u64::MAX);
                let in_flight = &counter;
                let (mut unsent, mut at) = (0, start);
                for number in 0.. {
                    at += Duration::from_secs_f64(random.exponential(rate).min(time.as_secs_f64()));
                    if at >= end || interrupt::requested() {
                        break;
                    }
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    let sender = sender.clone();
                    let request = move || {
                        // Times count from the planned arrival, so that they include a late start.
                        let sample = self.request(number, at).0;
                        in_flight.fetch_sub(1, Ordering::Relaxed);
                        // The receiver lives as long as the threads.
                        let _ = sender.send(sample);
                    };
                    let room = in_flight.fetch_add(1, Ordering::Relaxed) < MAX_IN_FLIGHT;
                    if !room || thread().spawn_scoped(scope, request).is_err() {
                        in_flight.fetch_sub(1, Ordering::Relaxed);
                        unsent += 1;
                    }
                }
                unsent
            }
        });
        drop(sender);
        Load {
            arrivals,
            seconds: start.elapsed().as_secs_f64(),
            samples: receiver.into_iter().collect(),
            unsent,
        }
    }

    /// A client of a closed loop.
    fn client(&self, numbers: &AtomicUsize, end: Instant, samples: &mpsc::Sender<Sample>) {
        while Instant::now() < end && !interrupt::requested() {
            let number = numbers.fetch_add(1, Ordering::Relaxed) as u64;
            let (sample, retry_after) = self.request(number, Instant::now());
            let refused = !matches!(sample.outcome, Outcome::Completed | Outcome::Disconnected);
            // The receiver lives as long as the threads.
            let _ = samples.send(sample);
            if refused {
                let pause = retry_after.unwrap_or(Duration::from_millis(100)).min(MAX_BACKOFF);
                std::thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
            }
        }
    }

    /// Sends a request and reads its answer. Also returns the time after which a server that refused it
    /// allows a retry.
    fn request(&self, number: u64, arrival: Instant) -> (Sample, Option<Duration>) {
        let mut sample = Sample {
            first: None,
            gaps: Vec::new(),
            total: 0.0,
            tokens: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            outcome: Outcome::Completed,
        };
        let mut random = Random::new(self.seed, number + 1);
        let mut retry_after = None;
        match self.answer(&mut random, arrival, &mut sample, &mut retry_after) {
            Ok(outcome) => sample.outcome = outcome,
            Err(message) => sample.outcome = Outcome::Failed(message),
        }
        sample.total = arrival.elapsed().as_secs_f64();
        (sample, retry_after)
    }

    fn answer(
        &self,
        random: &mut Random,
        arrival: Instant,
        sample: &mut Sample,
        retry_after: &mut Option<Duration>,
    ) -> Result<Outcome, String> {
        let mut prompt = String::new();
        words(&mut Random::new(self.seed, 0), self.shared_prefix, &mut prompt);
        let count = random.length(self.prompt);
        words(random, count, &mut prompt);
        let tokens = random.length(self.tokens).max(1);
        let disconnect_after =
            (random.unit() < self.disconnects).then(|| (random.unit() * tokens as f64) as usize);
        let body = json!({
            "model": self.model,
            "prompt": prompt.trim_end(),
            "max_tokens": tokens,
            "temperature": self.temperature,
            // The length is part of the load: an answer that ends early would make the server look faster.
            "ignore_eos": true,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        let mut response = self.target.send("/v1/completions", Some(&body.to_string()))?;
        if response.status != 200 {
            *retry_after = response.retry_after.map(Duration::from_secs);
            let status = response.status;
            return match status {
                429 | 503 => Ok(Outcome::Refused),
                _ => Err(format!("status {status}: {}", shorten(response.text()?.trim()))),
            };
        }
        if disconnect_after == Some(0) {
            return Ok(Outcome::Disconnected);
        }
        let (mut last, mut finished, mut usage) = (None, false, None);
        while let Some(data) = response.next_event()? {
            if data == "[DONE]" {
                break;
            }
            let event: Value =
                serde_json::from_str(&data).map_err(|_| format!("not JSON: {}", shorten(&data)))?;
            if let Some(error) = event.get("error") {
                let message = error["message"].as_str().map_or_else(|| error.to_string(), str::to_string);
                return Err(shorten(&message));
            }
            let choice = &event["choices"][0];
            if choice["text"].as_str().is_some_and(|text| !text.is_empty()) {
                let now = Instant::now();
                match last.replace(now) {
                    None => sample.first = Some((now - arrival).as_secs_f64()),
                    Some(before) => sample.gaps.push((now - before).as_secs_f64()),
                }
                sample.tokens += 1;
                if disconnect_after.is_some_and(|count| sample.tokens >= count) {
                    return Ok(Outcome::Disconnected);
                }
            }
            finished |= choice["finish_reason"].is_string();
            if event["usage"].is_object() {
                usage = Some(event["usage"].clone());
            }
        }
        if !finished {
            return Err("the stream ended before the answer did".into());
        }
        if let Some(usage) = usage {
            let count = |value: &Value| value.as_u64().map(|count| count as usize);
            sample.tokens = count(&usage["completion_tokens"]).unwrap_or(sample.tokens);
            sample.prompt_tokens = count(&usage["prompt_tokens"]).unwrap_or(0);
            sample.cached_tokens = count(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(0);
        }
        Ok(Outcome::Completed)
    }
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().stack_size(STACK_BYTES)
}
