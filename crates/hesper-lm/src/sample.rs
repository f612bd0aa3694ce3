//! Sampling: from logits to a token.
//!
//! Logits are sampled on the host: a token needs one pass over them, and random draws must not depend on the device.
//! Each sequence has its own [`Sampler`], which draws the same tokens for the same seed. Greedy sampling can run on the
//! device ([`greedy_tokens`]).

use std::collections::HashSet;

use hesper_core::{Array, Dtype, axes, select};

use crate::error::{Error, Result};

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always chooses the most likely token.
    pub temperature: f32,
    /// Choose among this many of the most likely tokens; 0 for all.
    pub top_k: usize,
    /// Choose among the most likely tokens that together have this probability; 1 for all.
    pub top_p: f32,
    /// Choose among tokens of at least this probability relative to the most likely one; 0 for all.
    pub min_p: f32,
    /// The factor by which logits of repeated tokens are reduced; 1 for no penalty.
    pub repetition_penalty: f32,
    /// The number of recent tokens that count as repeated.
    pub repetition_context: usize,
    /// The seed of the random draws.
    pub seed: u64,
}

impl Default for Sampling {
    /// Greedy sampling.
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_context: 64,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Whether the most likely token is always chosen, whatever came before.
    pub(crate) fn is_greedy(&self) -> bool {
        self.temperature == 0.0 && self.repetition_penalty == 1.0
    }

    /// Checks that all values are in their ranges.
    pub fn check(&self) -> Result<()> {
        let ranges = [
            ("temperature", self.temperature, 0.0, f32::MAX),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("repetition_penalty", self.repetition_penalty, f32::MIN_POSITIVE, f32::MAX),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                let what = format!("{name} must be from {low} to {high}, not {value}");
                return Err(Error::InvalidArgument(what));
            }
        }
        Ok(())
    }
}

/// The token of a row of logits with NaN in [`greedy_tokens`].
pub(crate) const NAN_LOGITS: u32 = u32::MAX;

/// The first of the most likely tokens of each row of logits, chosen on the device: uint32 of shape (rows). A row with a
/// NaN has [`NAN_LOGITS`].
pub(crate) fn greedy_tokens(logits: &Array) -> hesper_core::Result<Array> {
    let best = logits.argmax(axes(-1).keepdims())?.astype(Dtype::Uint32)?;
    let is_nan = logits.take_along_axis(&best, Some(-1))?.isnan()?;
    let nan = Array::full(best.shape(), i64::from(NAN_LOGITS), Some(Dtype::Uint32))?;
    select(&is_nan, &nan, &best)?.reshape(&[-1])
}

/// The SplitMix64 generator.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    /// A number in `0.0..1.0`.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Chooses the tokens of one sequence.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    random: SplitMix64,
    /// Reused from token to token.
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler at the start of its seed.
    pub fn new(sampling: &Sampling) -> Result<Self> {
        sampling.check()?;
        Ok(Sampler { sampling: sampling.clone(), random: SplitMix64(sampling.seed), candidates: Vec::new() })
    }

    /// Chooses a token by its logits. `before` are the tokens so far. `None` if all logits are NaN.
    pub fn choose(&mut self, logits: &[f32], before: &[u32]) -> Option<u32> {
        let sampling = &self.sampling;
        let penalized = penalized(logits, before, sampling);
        let logit = |id: usize| match penalized.binary_search_by_key(&(id as u32), |entry| entry.0) {
            Ok(at) => penalized[at].1,
            Err(_) => logits[id],
        };
        if sampling.temperature == 0.0 {
            return match penalized.is_empty() {
                true => argmax(logits),
                false => (0..logits.len())
                    .filter(|id| !logit(*id).is_nan())
                    .max_by(|a, b| logit(*a).total_cmp(&logit(*b)).then(b.cmp(a)))
                    .map(|id| id as u32),
            };
        }
        let all = &mut self.candidates;
        all.clear();
        all.extend(logits.iter().zip(0..).map(|(logit, id)| (*logit, id)));
        for (id, logit) in &penalized {
            all[*id as usize].0 = *logit;
        }
        let max = all.iter().map(|entry| entry.0).filter(|logit| !logit.is_nan()).fold(f32::MIN, f32::max);
        if max == f32::MIN {
            return None;
        }
        // Tokens this far below the maximum have no weight in a sum of probabilities.
        let floor = max - 30.0 * sampling.temperature;
        let floor = match sampling.min_p {
            0.0 => floor,
            min_p => floor.max(max + min_p.ln() * sampling.temperature),
        };
        all.retain(|entry| entry.0 >= floor);
        let descending = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if sampling.top_k > 0 && sampling.top_k < all.len() {
            all.select_nth_unstable_by(sampling.top_k - 1, descending);
            all.truncate(sampling.top_k);
        }
        for entry in all.iter_mut() {
            entry.0 = ((entry.0 - max) / sampling.temperature).exp();
        }
        if sampling.top_p < 1.0 {
            all.sort_unstable_by(descending);
            let total: f64 = all.iter().map(|entry| f64::from(entry.0)).sum();
            let mut sum = 0.0;
            let kept = all.iter().take_while(|entry| {
                let before = sum;
                sum += f64::from(entry.0);
                before < f64::from(sampling.top_p) * total
            });
            let kept = kept.count().max(1);
            all.truncate(kept);
        } else {
            // The order of candidates must not depend on how the selection left them.
            all.sort_unstable_by_key(|entry| entry.1);
        }
        let total: f64 = all.iter().map(|entry| f64::from(entry.0)).sum();
        let mut left = self.random.next() * total;
        for (weight, id) in all.iter() {
            left -= f64::from(*weight);
            if left < 0.0 {
                return Some(*id);
            }
        }
        all.last().map(|entry| entry.1)
    }
}

/// The logits that the repetition penalty changes, sorted by token.
fn penalized(logits: &[f32], before: &[u32], sampling: &Sampling) -> Vec<(u32, f32)> {
    if sampling.repetition_penalty == 1.0 {
        return Vec::new();
    }
    let recent = &before[before.len().saturating_sub(sampling.repetition_context)..];
    let seen: HashSet<u32> = recent.iter().copied().filter(|id| (*id as usize) < logits.len()).collect();
    let reduced = |logit: f32| match logit > 0.0 {
        true => logit / sampling.repetition_penalty,
        false => logit * sampling.repetition_penalty,
    };
    let mut list: Vec<(u32, f32)> = seen.into_iter().map(|id| (id, reduced(logits[id as usize]))).collect();
    list.sort_unstable_by_key(|entry| entry.0);
    list
}

/// The index of the first maximum that is not NaN. Finding the block with the maximum first vectorizes.
fn argmax(logits: &[f32]) -> Option<u32> {
    const BLOCK: usize = 64;
    let (mut top, mut at) = (f32::NEG_INFINITY, None);
    for (index, block) in logits.chunks(BLOCK).enumerate() {
        let high = block.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
        if high > top || (at.is_none() && block.contains(&high)) {
            (top, at) = (high, Some(index));
        }
    }
    let start = at? * BLOCK;
    let inside = logits[start..].iter().take(BLOCK).position(|logit| *logit == top)?;
    Some((start + inside) as u32)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn draws(sampling: Sampling, logits: &[f32], count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(&sampling).unwrap();
        (0..count).map(|_| sampler.choose(logits, &[]).unwrap()).collect()
    }

    #[test]
    fn without_temperature_the_first_of_the_most_likely_tokens_is_chosen() {
        let mut logits = vec![-1.0; 300];
        (logits[130], logits[257]) = (2.5, 2.5);
        assert_eq!(draws(Sampling::default(), &logits, 1), [130]);
        assert_eq!(draws(Sampling::default(), &[f32::NEG_INFINITY, f32::NAN], 1), [0]);
        let mut sampler = Sampler::new(&Sampling::default()).unwrap();
        assert_eq!(sampler.choose(&[f32::NAN; 3], &[]), None);
    }

    #[test]
    fn tokens_are_drawn_with_their_probability() {
        let logits = [0.0f32, 2.0f32.ln(), 5.0f32.ln()];
        let all = draws(Sampling { temperature: 1.0, seed: 7, ..Sampling::default() }, &logits, 8000);
        for (id, part) in [(0, 1.0 / 8.0), (1, 2.0 / 8.0), (2, 5.0 / 8.0)] {
            let seen = all.iter().filter(|drawn| **drawn == id).count() as f64 / 8000.0;
            assert!((seen - part).abs() < 0.02, "token {id}: {seen}");
        }
    }

    #[test]
    fn filters_restrict_the_choice() {
        let logits = [1.0, 4.0, 3.0, 2.0, 0.0];
        let hot = Sampling { temperature: 5.0, ..Sampling::default() };
        let ids = |sampling: Sampling| {
            let mut ids = draws(sampling, &logits, 500);
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        assert_eq!(ids(Sampling { top_k: 2, ..hot.clone() }), [1, 2]);
        assert_eq!(ids(Sampling { top_p: 0.3, ..hot.clone() }), [1, 2]);
        assert_eq!(ids(Sampling { min_p: 0.99, ..hot.clone() }), [1]);
        assert_eq!(ids(Sampling { top_p: 0.0, ..hot.clone() }), [1]);
        assert_eq!(ids(hot), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_seed_determines_all_draws() {
        let logits: Vec<f32> = (0..100).map(|x| (x % 7) as f32).collect();
        let with = |seed| draws(Sampling { temperature: 1.0, seed, ..Sampling::default() }, &logits, 50);
        assert_eq!(with(3), with(3));
        assert_ne!(with(3), with(4));
    }

    #[test]
    fn a_penalty_makes_repeated_tokens_less_likely() {
        let sampling = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        let mut sampler = Sampler::new(&sampling).unwrap();
        assert_eq!(sampler.choose(&[1.0, 1.5, -1.0], &[1]), Some(0));
        assert_eq!(sampler.choose(&[-1.0, -1.5, -3.0], &[0, 7]), Some(1));
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let error = Sampler::new(&Sampling { top_p: 1.5, ..Sampling::default() }).unwrap_err();
        assert!(error.to_string().contains("top_p"), "{error}");
        assert!(Sampler::new(&Sampling { temperature: f32::NAN, ..Sampling::default() }).is_err());
    }
}
