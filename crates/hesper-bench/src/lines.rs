//! Measurements as JSON lines, one for each workload.
//!
//! A line has the workload's name and parameters, the median and the best time in milliseconds, the number of
//! measurements, a rate, the processor time per call, and how many cores other processes used meanwhile. Each
//! measurement is warmed up (three calls, or half a second), then repeated at least seven times and for a
//! second, at most for twelve seconds.

use std::time::{Duration, Instant};

/// What the rate of a line counts, and how much of it one call does.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    /// Billions of floating-point operations.
    Gflops(f64),
    /// Billions of bytes that must be read or written.
    Gbytes(f64),
    /// Millions of ops.
    Mops(f64),
    /// Calls.
    Calls,
}

impl Unit {
    fn name_and_amount(self) -> (&'static str, f64) {
        match self {
            Unit::Gflops(amount) => ("GFLOPs", amount),
            Unit::Gbytes(amount) => ("GBps", amount),
            Unit::Mops(amount) => ("Mops", amount),
            Unit::Calls => ("per_s", 1.0),
        }
    }
}

/// Prints lines under one name.
#[derive(Debug)]
pub struct Lines {
    peer: String,
}

impl Lines {
    /// Lines for the peer named by the environment variable `PEER_LABEL`, or for `peer`.
    pub fn new(peer: &str) -> Self {
        Lines { peer: std::env::var("PEER_LABEL").unwrap_or_else(|_| peer.to_string()) }
    }

    /// Measures `work`, which computes and returns its result, and prints the line. `params` is the inside of
    /// a JSON object.
    pub fn measure<R, E: std::fmt::Display>(
        &self,
        workload: &str,
        params: &str,
        unit: Unit,
        mut work: impl FnMut() -> Result<R, E>,
    ) {
        let warm = Instant::now();
        for _ in 0..3 {
            if let Err(error) = work() {
                return self.skip(workload, params, &error.to_string());
            }
            if warm.elapsed() > Duration::from_millis(500) {
                break;
            }
        }
        let (begun, before) = (Instant::now(), Busy::now());
        let mut times = Vec::new();
        loop {
            let start = Instant::now();
            let result = work();
            times.push(start.elapsed().as_secs_f64());
            drop(result);
            let elapsed = begun.elapsed();
            if times.len() >= 7 && elapsed > Duration::from_secs(1)
                || times.len() >= 300
                || elapsed > Duration::from_secs(12)
            {
                break;
            }
        }
        let elapsed = begun.elapsed().as_secs_f64();
        let calls = times.len() as f64;
        let busy = before.zip(Busy::now()).map(|(before, after)| Busy {
            own: (after.own - before.own) / calls,
            others: (after.others - before.others).max(0.0) / elapsed,
        });
        self.line(workload, params, times, unit, busy);
    }

    /// Prints the line of a single call that was measured by the caller.
    pub fn once(&self, workload: &str, params: &str, seconds: f64) {
        self.line(workload, params, vec![seconds], Unit::Calls, None);
    }

    fn line(&self, workload: &str, params: &str, mut times: Vec<f64>, unit: Unit, busy: Option<Busy>) {
        times.sort_by(f64::total_cmp);
        let (middle, best) = (times[times.len() / 2], times[0]);
        let (name, amount) = unit.name_and_amount();
        let others = busy.map_or(String::new(), |busy| {
            format!(", \"cpu_ms\": {:.4}, \"others_cpu\": {:.2}", busy.own * 1e3, busy.others)
        });
        println!(
            "{{\"peer\": \"{}\", \"workload\": \"{workload}\", \"params\": {{{params}}}, \"median_ms\": {:.5}, \
             \"min_ms\": {:.5}, \"reps\": {}, \"{name}\": {:.4}, \"{name}_best\": {:.4}{others}}}",
            self.peer,
            middle * 1e3,
            best * 1e3,
            times.len(),
            amount / middle,
            amount / best,
        );
    }

    fn skip(&self, workload: &str, params: &str, why: &str) {
        let why: String = why.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\').collect();
        println!(
            "{{\"peer\": \"{}\", \"workload\": \"{workload}\", \"params\": {{{params}}}, \"skipped\": \"{why}\"}}",
            self.peer
        );
    }
}

/// Seconds for which cores were busy, where the system reports them.
#[derive(Debug, Clone, Copy)]
struct Busy {
    /// With this process.
    own: f64,
    /// With anything else.
    others: f64,
}

impl Busy {
    fn now() -> Option<Busy> {
        /// Ticks of the system's counters in a second.
        const TICKS: f64 = 100.0;
        let all = std::fs::read_to_string("/proc/stat").ok()?;
        let fields: Vec<f64> =
            all.lines().next()?.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| fields.get(*at)).sum();
        let own = std::fs::read_to_string("/proc/self/stat").ok()?;
        let (_, own) = own.rsplit_once(')')?;
        let own: f64 =
            own.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Some(Busy { own: own / TICKS, others: (busy - own) / TICKS })
    }
}
