//! How many tokens of prompts a step computes beside the rows that decode.
//!
//! Prompts delay those that decode: a step may take [`MAX_DELAY`] times as long as without prompts. If
//! prompts for more than [`PATIENCE`] wait, they get more in proportion. What rows and tokens of prompts cost
//! is learned from the steps, so the number follows the model, the device and the number of rows. Both go
//! through the model together, so tokens of prompts cost what a step takes longer than its rows alone.

use std::time::Duration;

/// How much longer a step with prompts may take than one without.
const MAX_DELAY: f64 = 2.2;

/// Seconds of prompts that may wait before they get a larger part of the steps.
const PATIENCE: f64 = 1.0;

/// The most seconds of a step that are for prompts: requests that arrive wait for it.
const LONGEST_PREFILL: f64 = 0.25;

/// The least part of a step that is counted for its rows or its prompts: the time of the others is an
/// estimate.
const MIN_SHARE: f64 = 0.25;

/// The weight of a new measurement.
const WEIGHT: f64 = 0.2;

/// Classes of steps by the logarithm of their rows.
const CLASSES: usize = 16;

/// How long a part of a step took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Time {
    /// Its begin or its end was not seen.
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
            // A part whose end was not seen says nothing about the begin of the next.
            _ => Time::Unknown,
        }
    }
}

impl Time {
    /// The time without a part of it that took so many seconds, and not less than [`MIN_SHARE`].
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

/// What steps cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    /// Seconds of a step without prompts, by class.
    decode: [Option<f64>; CLASSES],
    /// Seconds of a token of a prompt.
    token: Option<f64>,
}

/// Moves an estimate of one of `count` towards a measurement of all. One that is far off, as the first step
/// that compiles its kernels, counts less.
fn average(estimate: &mut Option<f64>, count: usize, time: Time) {
    let (seconds, is_exact) = match time {
        Time::Unknown => return,
        Time::AtMost(time) => (time.as_secs_f64() / count as f64, false),
        Time::Exact(time) => (time.as_secs_f64() / count as f64, true),
    };
    let is_news = is_exact || estimate.is_some_and(|old| seconds < old);
    if count > 0 && seconds > 0.0 && is_news {
        *estimate = Some(estimate.map_or(seconds, |old| old + WEIGHT * (seconds.min(4.0 * old) - old)));
    }
}

fn class(rows: usize) -> usize {
    (rows.max(1).ilog2() as usize).min(CLASSES - 1)
}

impl Pace {
    /// Seconds of a step of `rows` rows without prompts. If there was none, that of a step of fewer rows,
    /// else of more.
    fn decode(&self, rows: usize) -> Option<f64> {
        let (lower, upper) = self.decode.split_at(class(rows) + 1);
        lower.iter().rev().chain(upper).find_map(|seconds| *seconds)
    }

    /// The time of a step of `rows` rows and `tokens` tokens of prompts.
    pub(crate) fn measured(&mut self, rows: usize, tokens: usize, time: Time) {
        match (rows, tokens) {
            (0, 0) => {}
            (_, 0) => average(&mut self.decode[class(rows)], 1, time),
            (0, _) => {
                // A pass has a part that does not depend on the number of tokens: about that of one row.
                let pass = self.decode[class(1)].unwrap_or(0.0);
                average(&mut self.token, tokens, time.less(pass));
            }
            _ => self.measured_together(rows, tokens, time),
        }
    }

    /// The time of rows and tokens of prompts in one step. What is not known of one of them follows from the
    /// other; if both are, both have their part in the difference.
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

    /// Tokens of prompts for a step of `rows` rows while `waiting` tokens of prompts are not computed, if
    /// enough was measured.
    pub(crate) fn prompt_tokens(&self, rows: usize, waiting: usize) -> Option<usize> {
        let token = self.token?;
        if rows == 0 {
            return Some((LONGEST_PREFILL / token) as usize);
        }
        let (decode, waiting) = (self.decode(rows)?, waiting as f64 * token);
        let seconds = (MAX_DELAY - 1.0) * decode * (waiting / PATIENCE).max(1.0);
        Some((seconds.min(LONGEST_PREFILL.max(decode)) / token) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(seconds: f64) -> Time {
        Time::Exact(Duration::from_secs_f64(seconds))
    }

    /// Steps of a device whose rows and tokens cost so many seconds.
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
        // 100,000 tokens take 3 s: they get three times as much.
        let many = pace.prompt_tokens(64, 100_000).unwrap_or(0);
        assert!((810..1020).contains(&many), "{many}");
        assert_eq!(pace.prompt_tokens(64, 1_000_000), Some(alone), "no more than without rows");
    }

    #[test]
    fn what_rows_cost_is_learned_where_no_step_is_without_prompts() {
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
    fn one_step_that_takes_too_long_and_times_that_are_none_change_little() {
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
        // The loop was busy with encoding prompts, which would allow more of them the next time.
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
    fn parts_of_which_one_was_not_seen_have_no_known_time() {
        let (one, bound) = (exact(1.0), Time::AtMost(Duration::from_secs(1)));
        assert_eq!(one.plus(one), exact(2.0));
        assert_eq!(Time::Unknown.plus(one), Time::Unknown);
        assert_eq!(one.plus(bound), Time::Unknown);
        assert_eq!(bound.plus(one), Time::Unknown);
    }
}
