//! The results of a load, as a line of a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::load::{Arrivals, Load, Outcome};

/// The head of the table.
pub const HEAD: &str = "                                      first token, ms    between tokens, ms       whole answer, s
load         requests  tokens/s     p50    p90    p99     p50    p90    p99     p50    p90    p99   not completed";

/// Percentiles of a measured time, in seconds; `NaN` if nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Percentiles {
    /// The percentiles of values in any order, by the nearest rank.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| {
            let rank = (part * values.len() as f64).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }

    fn json(&self) -> Value {
        // `json!` writes NaN as null.
        json!({ "p50": self.p50, "p90": self.p90, "p99": self.p99 })
    }

    fn scaled(&self, factor: f64) -> [f64; 3] {
        [self.p50 * factor, self.p90 * factor, self.p99 * factor]
    }
}

/// The result of a load.
#[derive(Debug)]
pub struct Row {
    /// How requests arrived.
    pub arrivals: Arrivals,
    /// Requests with a complete answer.
    pub completed: usize,
    /// Clients that disconnected, as planned.
    pub disconnected: usize,
    /// Requests that got 429 or 503.
    pub refused: usize,
    /// Requests that were not sent because too many were running.
    pub unsent: usize,
    /// The number of other failures, by message.
    pub failed: BTreeMap<String, usize>,
    /// Tokens that clients received, per second.
    pub tokens_per_second: f64,
    /// The share of prompt tokens that were found in a cache.
    pub cached_share: f64,
    /// Time to the first token.
    pub first: Percentiles,
    /// Time between tokens.
    pub gap: Percentiles,
    /// Time to the end of completed requests.
    pub total: Percentiles,
}

impl Row {
    /// Summarizes a load.
    pub fn of(load: &Load) -> Self {
        let samples = &load.samples;
        let count = |outcome: Outcome| samples.iter().filter(|sample| sample.outcome == outcome).count();
        let sum = |of: fn(&super::load::Sample) -> usize| samples.iter().map(of).sum::<usize>() as f64;
        let mut failed = BTreeMap::new();
        for sample in samples {
            if let Outcome::Failed(message) = &sample.outcome {
                *failed.entry(message.clone()).or_default() += 1;
            }
        }
        let completed = samples.iter().filter(|sample| sample.outcome == Outcome::Completed);
        Row {
            arrivals: load.arrivals,
            completed: count(Outcome::Completed),
            disconnected: count(Outcome::Disconnected),
            refused: count(Outcome::Refused),
            unsent: load.unsent,
            failed,
            tokens_per_second: sum(|sample| sample.tokens) / load.seconds,
            cached_share: sum(|sample| sample.cached_tokens) / sum(|sample| sample.prompt_tokens).max(1.0),
            first: Percentiles::of(samples.iter().filter_map(|sample| sample.first).collect()),
            gap: Percentiles::of(samples.iter().flat_map(|sample| sample.gaps.iter().copied()).collect()),
            total: Percentiles::of(completed.map(|sample| sample.total).collect()),
        }
    }

    /// The result as JSON, with times in seconds.
    pub fn json(&self) -> Value {
        let (clients, rate) = match self.arrivals {
            Arrivals::Clients(clients) => (Some(clients), None),
            Arrivals::Rate(rate) => (None, Some(rate)),
        };
        json!({
            "clients": clients,
            "rate": rate,
            "completed": self.completed,
            "disconnected": self.disconnected,
            "refused": self.refused,
            "unsent": self.unsent,
            "failed": self.failed.values().sum::<usize>(),
            "tokens_per_second": self.tokens_per_second,
            "cached_share": self.cached_share,
            "first_token_seconds": self.first.json(),
            "inter_token_seconds": self.gap.json(),
            "request_seconds": self.total.json(),
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<12} {:>8} {:>9.1}", name(self.arrivals), self.completed, self.tokens_per_second)?;
        let times = [self.first.scaled(1e3), self.gap.scaled(1e3), self.total.scaled(1.0)];
        for (group, unit) in times.iter().zip([0, 1, 2]) {
            f.write_str(" ")?;
            for time in group {
                match time.is_nan() {
                    true => write!(f, "      -")?,
                    false => write!(f, " {time:6.unit$}")?,
                }
            }
        }
        let failed = self.failed.values().sum::<usize>();
        let mut rest = Vec::new();
        for (count, what) in [
            (self.disconnected, "disconnected"),
            (self.refused, "refused"),
            (failed, "failed"),
            (self.unsent, "not sent"),
        ] {
            if count > 0 {
                rest.push(format!("{count} {what}"));
            }
        }
        write!(f, "   {}", rest.join(", "))
    }
}

/// The label of a load.
pub fn name(arrivals: Arrivals) -> String {
    match arrivals {
        Arrivals::Clients(1) => "1 client".into(),
        Arrivals::Clients(clients) => format!("{clients} clients"),
        Arrivals::Rate(rate) => format!("{rate}/s"),
    }
}

/// The five most frequent failures of all loads, with their counts.
pub fn failures(rows: &[Row]) -> Vec<(String, usize)> {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for (message, count) in rows.iter().flat_map(|row| &row.failed) {
        *all.entry(message).or_default() += count;
    }
    let mut list: Vec<(String, usize)> =
        all.into_iter().map(|(text, count)| (text.to_string(), count)).collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list.truncate(5);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let hundred = Percentiles::of((1..=100).rev().map(f64::from).collect());
        assert_eq!(hundred, Percentiles { p50: 50.0, p90: 90.0, p99: 99.0 });
        assert_eq!(Percentiles::of(vec![7.0]), Percentiles { p50: 7.0, p90: 7.0, p99: 7.0 });
        assert!(Percentiles::of(Vec::new()).p50.is_nan());
    }
}
