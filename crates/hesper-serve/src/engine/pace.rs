//! The prefill budget: how many prompt tokens a step computes in addition to the decoding rows.
//!
//! Prompt tokens delay the decoding requests: a step may take [`MAX_SLOWDOWN`] times as long as without
//! prompts. If the waiting prompts need more than [`MAX_BACKLOG_SECONDS`], the budget grows with the square
//! of the backlog: the last first token of a burst then comes about as early as if prompts went first. The
//! costs of a row and of a prompt token are measured, so the budget adapts to the model, the device and the
//! number of rows. Both go through the model together: the cost of the prompt tokens is the time that a step
//! takes longer than its rows alone.

use std::time::Duration;

/// The most time of a step with prompts, relative to one without.
const MAX_SLOWDOWN: f64 = 2.2;

/// Seconds of waiting prefill work above which prompts get a larger share of a step.
const MAX_BACKLOG_SECONDS: f64 = 1.0;

/// The most seconds of a step for prompts, unless decoding takes longer: arriving requests wait for the step.
const MAX_PREFILL_SECONDS: f64 = 0.25;

/// The least share of a step's time that is attributed to its rows or to its prompts. The time of the other
/// part is an estimate and may be too long.
const MIN_SHARE: f64 = 0.25;

/// The weight of a new measurement in a moving average.
const WEIGHT: f64 = 0.2;

/// Steps are classified by the binary logarithm of their number of rows.
const CLASSES: usize = 16;

/// How long a part of a step took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Time {
    /// Its beginning or its end was not observed.
    #[default]
    Unknown,
    /// Not longer than this: the device had finished before the loop asked.
    AtMost(Duration),
    /// This long.
    Exact(Duration),
}

impl Time {
    /// The time of two parts, one after the other.
    pub(crate) fn plus(self, other: Time) -> Time {
        match (self, other) {
            (Time::Exact(one), Time::Exact(other)) => Time::Exact(one + other),
            // If the end of a part was not observed, neither was the beginning of the next one.
            _ => Time::Unknown,
        }
    }

    /// The time minus `part` seconds, but at least the share [`MIN_SHARE`] of it.
    fn less(self, part: f64) -> Time {
        let rest = |time: Duration| {
            let seconds = time.as_secs_f64();
            Duration::from_secs_f64((seconds - part).max(MIN_SHARE * seconds))
        };
        match self {
            Time::Unknown => Time::Unknown,
            Time::AtMost(time) => Time::AtMost(rest(time)),
            Time::Exact(time) => Time::Exact(rest(time)),
        }
    }
}

/// Measured costs of steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    /// Seconds of a step without prompts, by class.
    decode: [Option<f64>; CLASSES],
    /// Seconds per prompt token.
    token: Option<f64>,
}

/// Updates the estimated time of one item with the measured time of `count` items. A measurement counts as at
/// most four times the estimate: a step that compiles its kernels takes much longer. A time that is only an
/// upper bound can lower the estimate, not raise it.
fn average(estimate: &mut Option<f64>, count: usize, time: Time) {
    let (seconds, is_exact) = match time {
        Time::Unknown => return,
        Time::AtMost(time) => (time.as_secs_f64() / count as f64, false),
        Time::Exact(time) => (time.as_secs_f64() / count as f64, true),
    };
    let is_informative = is_exact || estimate.is_some_and(|old| seconds < old);
    if count > 0 && seconds > 0.0 && is_informative {
        *estimate = Some(estimate.map_or(seconds, |old| old + WEIGHT * (seconds.min(4.0 * old) - old)));
    }
}

fn class(rows: usize) -> usize {
    (rows.max(1).ilog2() as usize).min(CLASSES - 1)
}

impl Pace {
    /// Seconds of a step of `rows` rows without prompts. If its class was not measured, those of the nearest
    /// class with fewer rows, else with more.
    fn decode(&self, rows: usize) -> Option<f64> {
        let (lower, upper) = self.decode.split_at(class(rows) + 1);
        lower.iter().rev().chain(upper).find_map(|seconds| *seconds)
    }

    /// Records the time of a step of `rows` decoding rows and `tokens` prompt tokens.
    pub(crate) fn measured(&mut self, rows: usize, tokens: usize, time: Time) {
        match (rows, tokens) {
            (0, 0) => {}
            (_, 0) => average(&mut self.decode[class(rows)], 1, time),
            (0, _) => {
                // Subtract the fixed cost of a pass: about the time of a step of one row.
                let pass = self.decode[class(1)].unwrap_or(0.0);
                average(&mut self.token, tokens, time.less(pass));
            }
            _ => self.measured_together(rows, tokens, time),
        }
    }

    /// Records the time of a step with both decoding rows and prompt tokens. If one estimate is missing, it
    /// is the time that the other leaves. If both exist, both are scaled by the same factor.
    fn measured_together(&mut self, rows: usize, tokens: usize, time: Time) {
        let (seconds, is_exact) = match time {
            Time::Unknown => return,
            Time::AtMost(time) => (time.as_secs_f64(), false),
            Time::Exact(time) => (time.as_secs_f64(), true),
        };
        let (of_rows, count) = (&mut self.decode[class(rows)], tokens as f64);
        match (*of_rows, self.token) {
            (Some(decode), Some(token)) => {
                let ratio = seconds / (decode + token * count);
                if ratio > 0.0 && (is_exact || ratio < 1.0) {
                    let factor = 1.0 + WEIGHT * (ratio.min(4.0) - 1.0);
                    (*of_rows, self.token) = (Some(decode * factor), Some(token * factor));
                }
            }
            (None, Some(token)) if is_exact => {
                *of_rows = Some((seconds - token * count).max(MIN_SHARE * seconds));
            }
            (Some(decode), None) if is_exact => {
                self.token = Some((seconds - decode).max(MIN_SHARE * seconds) / count);
            }
            (None, None) if is_exact => {
                let token = seconds / (rows + tokens) as f64;
                (*of_rows, self.token) = (Some(token * rows as f64), Some(token));
            }
            _ => {}
        }
    }

    /// The prompt tokens for a step of `rows` decoding rows while `waiting` prompt tokens are not computed.
    /// `None` until enough steps were measured.
    pub(crate) fn prompt_tokens(&self, rows: usize, waiting: usize) -> Option<usize> {
        let token = self.token?;
        if rows == 0 {
            return Some((MAX_PREFILL_SECONDS / token) as usize);
        }
        let (decode, waiting) = (self.decode(rows)?, waiting as f64 * token);
        let urgency = (waiting / MAX_BACKLOG_SECONDS).max(1.0);
        let seconds = (MAX_SLOWDOWN - 1.0) * decode * urgency * urgency;
        Some((seconds.min(MAX_PREFILL_SECONDS.max(decode)) / token) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(seconds: f64) -> Time {
        Time::Exact(Duration::from_secs_f64(seconds))
    }

    /// Costs measured from steps that take `base` seconds, `row` for each row and `token` for each token.
    fn learned(base: f64, row: f64, token: f64, steps: &[(usize, usize)]) -> Pace {
        let mut pace = Pace::default();
        for (rows, tokens) in steps.iter().cycle().take(200) {
            pace.measured(*rows, *tokens, exact(base + row * *rows as f64 + token * *tokens as f64));
        }
        pace
    }

    #[test]
    fn prompts_take_as_long_as_the_delay_allows() {
        let steps = [(64, 0), (64, 256), (1, 0), (0, 512), (1, 320), (64, 256)];
        let pace = learned(6e-3, 25e-6, 30e-6, &steps);
        // 1.2 times 7.6 ms at 30 us a token.
        let tokens = pace.prompt_tokens(64, 256).unwrap_or(0);
        assert!((270..340).contains(&tokens), "{tokens}");
        let alone = pace.prompt_tokens(0, 256).unwrap_or(0);
        assert!((7_500..9_200).contains(&alone), "{alone}");
        // 100,000 tokens take 3 s: they get nine times as much.
        let many = pace.prompt_tokens(64, 100_000).unwrap_or(0);
        assert!((2430..3060).contains(&many), "{many}");
        assert_eq!(pace.prompt_tokens(64, 1_000_000), Some(alone), "no more than without rows");
    }

    #[test]
    fn the_cost_of_rows_is_learned_even_if_every_step_has_prompts() {
        let pace = learned(12e-3, 1.8e-3, 1.8e-3, &[(0, 32), (64, 32), (64, 64), (0, 512)]);
        // 1.2 times 127 ms at 1.8 ms a token.
        let tokens = pace.prompt_tokens(64, 64).unwrap_or(0);
        assert!((60..110).contains(&tokens), "{tokens}");
        let mut pace = Pace::default();
        pace.measured(8, 8, exact(0.016));
        assert!(pace.prompt_tokens(8, 8).is_some_and(|tokens| (7..12).contains(&tokens)));
        pace.measured(8, 8, Time::AtMost(Duration::from_secs(1)));
        assert!(pace.prompt_tokens(8, 8).is_some_and(|tokens| (7..12).contains(&tokens)));
    }

    #[test]
    fn an_outlier_or_an_unknown_time_changes_little() {
        let mut pace = learned(10e-3, 0.0, 1e-3, &[(8, 0), (0, 64)]);
        let before = pace.prompt_tokens(8, 0);
        pace.measured(8, 0, exact(100.0));
        pace.measured(8, 64, Time::Unknown);
        pace.measured(0, 64, exact(0.0));
        let (before, after) = (before.unwrap_or(0), pace.prompt_tokens(8, 0).unwrap_or(0));
        assert!(before > 0 && after <= 2 * before, "{before} {after}");
        assert_eq!(Pace::default().prompt_tokens(8, 0), None);
    }

    #[test]
    fn a_time_that_is_only_bounded_lowers_an_estimate_and_never_raises_it() {
        let mut pace = learned(10e-3, 0.0, 1e-3, &[(8, 0), (0, 64)]);
        let before = pace.prompt_tokens(8, 0);
        // The loop was busy encoding prompts. A higher estimate would allow even more of them next time.
        for _ in 0..100 {
            pace.measured(8, 0, Time::AtMost(Duration::from_millis(90)));
        }
        assert_eq!(pace.prompt_tokens(8, 0), before);
        for _ in 0..100 {
            pace.measured(8, 0, Time::AtMost(Duration::from_millis(5)));
        }
        assert!(pace.prompt_tokens(8, 0) < before);
    }

    #[test]
    fn a_sum_with_a_part_that_was_not_observed_is_unknown() {
        let (one, bound) = (exact(1.0), Time::AtMost(Duration::from_secs(1)));
        assert_eq!(one.plus(one), exact(2.0));
        assert_eq!(Time::Unknown.plus(one), Time::Unknown);
        assert_eq!(one.plus(bound), Time::Unknown);
        assert_eq!(bound.plus(one), Time::Unknown);
    }
}
