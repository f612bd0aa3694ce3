//! Counters and histograms: [`RequestStats`] of the requests, which a supervisor counts too, and [`Stats`] of
//! an engine.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::protocol::{Event, Finish, Histogram, Snapshot};

/// How many recent failures a snapshot lists.
const MAX_FAILURES: usize = 32;

/// Upper bounds of the histogram buckets, in seconds.
const BOUNDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    counts: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Durations {
    pub(crate) fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += seconds;
    }

    fn histogram(&self) -> Histogram {
        Histogram { bounds: BOUNDS.to_vec(), counts: self.counts.to_vec(), sum: self.sum }
    }

    fn mean(&self) -> f64 {
        match self.counts.iter().sum::<u64>() {
            0 => 0.0,
            count => self.sum / count as f64,
        }
    }
}

/// The seconds over which the throughput is taken.
const THROUGHPUT_SECONDS: u64 = 10;

/// Counts of tokens in the last seconds.
#[derive(Debug, Default)]
struct Throughput {
    /// When the first token came.
    start: Option<Instant>,
    /// Seconds since `start` and the tokens in them, at the index of the second modulo the length.
    counts: [(u64, u64); THROUGHPUT_SECONDS as usize],
}

impl Throughput {
    fn add(&mut self, now: Instant) {
        let second = now.duration_since(*self.start.get_or_insert(now)).as_secs();
        let count = &mut self.counts[(second % THROUGHPUT_SECONDS) as usize];
        if count.0 != second {
            *count = (second, 0);
        }
        count.1 += 1;
    }

    /// Tokens per second in the last [`THROUGHPUT_SECONDS`], of which the current one has only begun.
    fn per_second(&self, now: Instant) -> f64 {
        let Some(start) = self.start else { return 0.0 };
        let since = now.duration_since(start);
        let first = (since.as_secs() + 1).saturating_sub(THROUGHPUT_SECONDS);
        let recent = self.counts.iter().filter(|(second, _)| *second >= first);
        let tokens: u64 = recent.map(|(_, tokens)| tokens).sum();
        tokens as f64 / (since.as_secs_f64() - first as f64).max(1.0)
    }
}

/// The counters of requests. [`Snapshot`] documents them.
#[derive(Debug, Default)]
pub(crate) struct RequestStats {
    throughput: Throughput,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) failures: VecDeque<(f64, String, String)>,
    pub(crate) time_to_first_token: Durations,
    pub(crate) inter_token: Durations,
    pub(crate) request_time: Durations,
    pub(crate) queue_time: Durations,
}

impl RequestStats {
    /// Counts a request that ends with `event` at `now`, after `time`.
    pub(crate) fn add_end(&mut self, id: &str, event: &Event, now: Duration, time: Duration) {
        match event {
            Event::Started { .. } | Event::Token(_) | Event::Embedding(_) => return,
            Event::Done { finish: Finish::Cancelled, .. } => self.cancelled += 1,
            Event::Done { finish: Finish::Stop | Finish::Length, .. } => self.completed += 1,
            Event::Failed(failure) => {
                self.failed += 1;
                if self.failures.len() == MAX_FAILURES {
                    self.failures.pop_front();
                }
                self.failures.push_back((now.as_secs_f64(), id.into(), failure.message.clone()));
            }
        }
        self.request_time.add(time);
    }

    /// Counts a token that comes `since_last` after the last one, or `since_submission` if it is the first.
    pub(crate) fn add_token(&mut self, since_submission: Duration, since_last: Option<Duration>) {
        self.generated_tokens += 1;
        self.throughput.add(Instant::now());
        match since_last {
            None => self.time_to_first_token.add(since_submission),
            Some(time) => self.inter_token.add(time),
        }
    }

    /// How long a refused client should wait: the mean time of a request, within 1 to 60 s.
    pub(crate) fn retry_after(&self) -> Duration {
        Duration::from_secs_f64(self.request_time.mean().clamp(1.0, 60.0))
    }

    /// A snapshot with these counters and the others of `rest`.
    pub(crate) fn snapshot(&self, rest: Snapshot) -> Snapshot {
        Snapshot {
            accepted: self.accepted,
            refused: self.refused,
            completed: self.completed,
            failed: self.failed,
            cancelled: self.cancelled,
            generated_tokens: self.generated_tokens,
            tokens_per_second: self.throughput.per_second(Instant::now()),
            recent_failures: self.failures.iter().cloned().collect(),
            time_to_first_token: self.time_to_first_token.histogram(),
            inter_token: self.inter_token.histogram(),
            request_seconds: self.request_time.histogram(),
            queue_seconds: self.queue_time.histogram(),
            ..rest
        }
    }
}

/// The counters of an engine. [`Snapshot`] documents them.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) requests: RequestStats,
    pub(crate) preemptions: u64,
    pub(crate) steps: u64,
    pub(crate) steps_ahead: u64,
    pub(crate) step_time: Duration,
    pub(crate) scheduler_time: Duration,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) draft_tokens: u64,
    pub(crate) accepted_drafts: u64,
}

impl Stats {
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.requests.snapshot(Snapshot {
            preemptions: self.preemptions,
            steps: self.steps,
            steps_ahead: self.steps_ahead,
            step_seconds: self.step_time.as_secs_f64(),
            scheduler_seconds: self.scheduler_time.as_secs_f64(),
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            draft_tokens: self.draft_tokens,
            accepted_drafts: self.accepted_drafts,
            ..Snapshot::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throughput_is_that_of_the_last_ten_seconds() {
        let (start, mut throughput) = (Instant::now(), Throughput::default());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert_eq!(throughput.per_second(start), 0.0);
        for tenth in 0..300 {
            throughput.add(at(f64::from(tenth) / 10.0));
        }
        let rate = throughput.per_second(at(29.95));
        assert!((9.9..=10.1).contains(&rate), "{rate}");
        let half = throughput.per_second(at(34.5));
        assert!((5.0..6.0).contains(&half), "{half}");
        assert_eq!(throughput.per_second(at(45.0)), 0.0);
        throughput.add(at(100.0));
        assert!((0.1..0.2).contains(&throughput.per_second(at(100.5))));
    }
}
