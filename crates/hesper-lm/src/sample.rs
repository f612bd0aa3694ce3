//! Sampling: from logits to a token.
//!
//! Each sequence has its own [`Sampler`], which draws the same tokens for the same seed. It reads logits on
//! the host. Sampling that does not depend on earlier tokens can run on the device
//! ([`choose_tokens`](crate::choose_tokens)), with the random numbers of the sampler.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::device_sampling::DeviceChoice;
use crate::error::{Error, Result};

/// How tokens are chosen. In this order: bias, penalties, temperature, top-k, top-p, min-p.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
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
    /// Subtracted from the logit of a generated token for each time it was generated.
    pub frequency_penalty: f32,
    /// Subtracted from the logit of every generated token.
    pub presence_penalty: f32,
    /// Added to the logits of tokens.
    pub logit_bias: BTreeMap<u32, f32>,
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
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Whether it changes logits before they are compared.
    fn changes_logits(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
            || !self.logit_bias.is_empty()
    }

    /// Checks that all values are in their ranges.
    pub fn check(&self) -> Result<()> {
        let ranges = [
            ("temperature", self.temperature, 0.0, f32::MAX),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("repetition_penalty", self.repetition_penalty, f32::MIN_POSITIVE, f32::MAX),
            ("frequency_penalty", self.frequency_penalty, f32::MIN, f32::MAX),
            ("presence_penalty", self.presence_penalty, f32::MIN, f32::MAX),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                let range = match (low, high) {
                    (f32::MIN, _) => "a finite number".to_string(),
                    (f32::MIN_POSITIVE, _) => "a finite number above 0".to_string(),
                    (_, f32::MAX) => format!("a finite number from {low} on"),
                    _ => format!("from {low} to {high}"),
                };
                let what = format!("{name} must be {range}, not {value}");
                return Err(Error::InvalidArgument(what));
            }
        }
        if let Some((token, bias)) = self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            let what = format!("the bias of token {token} must be a number, not {bias}");
            return Err(Error::InvalidArgument(what));
        }
        Ok(())
    }
}

/// A number in `0.0..1.0` by seed and position: the SplitMix64 generator. Its 24 bits fit into float32.
fn uniform(seed: u64, position: u64) -> f32 {
    let mut x = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 40) as f32 / (1u64 << 24) as f32
}

/// Chooses the tokens of one sequence.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    /// The number of tokens chosen: the position of the next random number.
    chosen: u64,
    /// How often each token was chosen.
    counts: HashMap<u32, u32>,
    /// Reused from token to token.
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler at the start of its seed.
    pub fn new(sampling: &Sampling) -> Result<Self> {
        sampling.check()?;
        Ok(Sampler { sampling: sampling.clone(), chosen: 0, counts: HashMap::new(), candidates: Vec::new() })
    }

    /// Chooses a token by its logits. `before` are the tokens so far. `None` if all logits are NaN.
    pub fn choose(&mut self, logits: &[f32], before: &[u32]) -> Option<u32> {
        self.choose_among(logits, before, None)
    }

    /// The same among the tokens whose bit is set in `allowed`, if that is given: bit `t % 32` of word `t /
    /// 32`. `None` if there is none whose logit is a number.
    pub fn choose_among(&mut self, logits: &[f32], before: &[u32], allowed: Option<&[u32]>) -> Option<u32> {
        let token = match allowed {
            None => self.pick(logits, before)?,
            Some(allowed) => {
                let is_allowed =
                    |id: usize| allowed.get(id / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
                let mask = |(id, logit): (usize, &f32)| if is_allowed(id) { *logit } else { f32::NAN };
                let masked: Vec<f32> = logits.iter().enumerate().map(mask).collect();
                self.pick(&masked, before)?
            }
        };
        self.accept(token);
        Some(token)
    }

    /// Takes a token that was chosen elsewhere, by the choice of [`device_choice`](Sampler::device_choice).
    pub fn accept(&mut self, token: u32) {
        self.chosen += 1;
        if self.sampling.frequency_penalty != 0.0 || self.sampling.presence_penalty != 0.0 {
            *self.counts.entry(token).or_default() += 1;
        }
    }

    /// How the device chooses the token behind the next `ahead` ones. `None` if the choice depends on earlier
    /// tokens or on a bias: then the host chooses.
    pub fn device_choice(&self, ahead: u64) -> Option<DeviceChoice> {
        let &Sampling { temperature, top_k, top_p, min_p, seed, .. } = &self.sampling;
        let uniform = uniform(seed, self.chosen + ahead);
        (!self.sampling.changes_logits()).then_some(DeviceChoice {
            temperature,
            top_k,
            top_p,
            min_p,
            uniform,
        })
    }

    fn pick(&mut self, logits: &[f32], before: &[u32]) -> Option<u32> {
        let sampling = &self.sampling;
        let penalized = penalized(logits, before, &self.counts, sampling);
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
        // Tokens this far below the maximum have no weight in a sum of probabilities.
        let floor = max - 30.0 * sampling.temperature;
        all.retain(|entry| entry.0 >= floor);
        if all.is_empty() {
            return None;
        }
        let descending = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if sampling.top_k > 0 && sampling.top_k < all.len() {
            all.select_nth_unstable_by(sampling.top_k - 1, descending);
            all.truncate(sampling.top_k);
        }
        if sampling.top_p < 1.0 {
            // By logits: different ones may have the same weight.
            all.sort_unstable_by(descending);
        }
        for entry in all.iter_mut() {
            entry.0 = ((entry.0 - max) / sampling.temperature).exp();
        }
        if sampling.top_p < 1.0 {
            let total: f64 = all.iter().map(|entry| f64::from(entry.0)).sum();
            let mut sum = 0.0;
            let kept = all.iter().take_while(|entry| {
                let before = sum;
                sum += f64::from(entry.0);
                before < f64::from(sampling.top_p) * total
            });
            let kept = kept.count().max(1);
            all.truncate(kept);
        }
        // The order of candidates must not depend on how the selection left them.
        all.sort_unstable_by_key(|entry| entry.1);
        // The most likely token has the weight 1.
        all.retain(|entry| entry.0 >= sampling.min_p);
        let total: f64 = all.iter().map(|entry| f64::from(entry.0)).sum();
        let mut left = f64::from(uniform(sampling.seed, self.chosen)) * total;
        for (weight, id) in all.iter() {
            left -= f64::from(*weight);
            if left < 0.0 {
                return Some(*id);
            }
        }
        all.last().map(|entry| entry.1)
    }
}

/// The logits that bias and penalties change, sorted by token. `counts` says how often tokens were generated.
fn penalized(
    logits: &[f32],
    before: &[u32],
    counts: &HashMap<u32, u32>,
    sampling: &Sampling,
) -> Vec<(u32, f32)> {
    if !sampling.changes_logits() {
        return Vec::new();
    }
    let repeated: HashSet<u32> = match sampling.repetition_penalty {
        1.0 => HashSet::new(),
        _ => before[before.len().saturating_sub(sampling.repetition_context)..].iter().copied().collect(),
    };
    let mut changed: Vec<u32> =
        repeated.iter().chain(counts.keys()).chain(sampling.logit_bias.keys()).copied().collect();
    changed.sort_unstable();
    changed.dedup();
    changed.retain(|id| (*id as usize) < logits.len());
    let change = |id: u32| {
        let mut logit = logits[id as usize] + sampling.logit_bias.get(&id).copied().unwrap_or(0.0);
        if repeated.contains(&id) {
            logit = match logit > 0.0 {
                true => logit / sampling.repetition_penalty,
                false => logit * sampling.repetition_penalty,
            };
        }
        match counts.get(&id) {
            Some(count) => logit - sampling.presence_penalty - *count as f32 * sampling.frequency_penalty,
            None => logit,
        }
    };
    changed.into_iter().map(|id| (id, change(id))).collect()
}

/// The log probability of a token by its logits, and those of the `top` most likely tokens, most likely
/// first.
pub fn log_probabilities(logits: &[f32], token: u32, top: usize) -> (f32, Vec<(u32, f32)>) {
    let max = logits.iter().copied().filter(|logit| !logit.is_nan()).fold(f32::MIN, f32::max);
    let sum: f64 =
        logits.iter().filter(|logit| !logit.is_nan()).map(|logit| f64::from(logit - max).exp()).sum();
    let total = max + sum.ln() as f32;
    let mut all: Vec<(u32, f32)> = match top {
        0 => Vec::new(),
        _ => (0..).zip(logits.iter().copied()).filter(|(_, logit)| !logit.is_nan()).collect(),
    };
    let descending = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if top > 0 && top < all.len() {
        all.select_nth_unstable_by(top - 1, descending);
        all.truncate(top);
    }
    all.sort_unstable_by(descending);
    all.iter_mut().for_each(|entry| entry.1 -= total);
    (logits.get(token as usize).map_or(f32::NEG_INFINITY, |logit| logit - total), all)
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
    fn a_setting_out_of_its_range_is_refused_with_the_range() {
        let refused = |sampling: Sampling| sampling.check().unwrap_err().to_string();
        let negative = refused(Sampling { temperature: -1.0, ..Sampling::default() });
        assert_eq!(negative, "temperature must be a finite number from 0 on, not -1");
        let nan = refused(Sampling { presence_penalty: f32::NAN, ..Sampling::default() });
        assert_eq!(nan, "presence_penalty must be a finite number, not NaN");
        let zero = refused(Sampling { repetition_penalty: 0.0, ..Sampling::default() });
        assert_eq!(zero, "repetition_penalty must be a finite number above 0, not 0");
        let large = refused(Sampling { top_p: 1.5, ..Sampling::default() });
        assert_eq!(large, "top_p must be from 0 to 1, not 1.5");
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
    fn tokens_that_were_generated_are_penalized_by_presence_and_by_count() {
        let sampling = Sampling { frequency_penalty: 1.0, presence_penalty: 0.25, ..Sampling::default() };
        // 2, 0.75 and 1.5 are compared with 1 and 0.9: a prompt does not count.
        assert_eq!(draws(sampling, &[2.0, 1.0, 0.9], 4), [0, 1, 2, 0]);
    }

    #[test]
    fn a_bias_is_added_before_tokens_are_compared() {
        let bias = |list: &[(u32, f32)]| Sampling {
            logit_bias: list.iter().copied().collect(),
            ..Sampling::default()
        };
        assert_eq!(draws(bias(&[(2, 1.5), (9, 100.0)]), &[2.0, 1.0, 0.9], 1), [2]);
        assert_eq!(draws(bias(&[(0, f32::NEG_INFINITY)]), &[2.0, 1.0, 0.9], 1), [1]);
        assert!(Sampler::new(&bias(&[(1, f32::NAN)])).is_err());
    }

    #[test]
    fn only_allowed_tokens_are_chosen() {
        for temperature in [0.0, 1.0] {
            let mut sampler = Sampler::new(&Sampling { temperature, ..Sampling::default() }).unwrap();
            assert_eq!(sampler.choose_among(&[5.0, 1.0, 9.0], &[], Some(&[0b010])), Some(1));
            assert_eq!(sampler.choose_among(&[5.0, 1.0, 9.0], &[], Some(&[])), None);
        }
    }

    #[test]
    fn log_probabilities_are_those_of_the_softmax() {
        let logits = [1.0f32.ln(), 2.0f32.ln(), 5.0f32.ln(), f32::NAN];
        let (own, top) = log_probabilities(&logits, 1, 2);
        assert!((own - 0.25f32.ln()).abs() < 1e-6, "{own}");
        assert_eq!(top.iter().map(|entry| entry.0).collect::<Vec<_>>(), [2, 1]);
        assert!((top[0].1 - 0.625f32.ln()).abs() < 1e-6, "{top:?}");
        assert_eq!(log_probabilities(&logits, 7, 0), (f32::NEG_INFINITY, Vec::new()));
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let error = Sampler::new(&Sampling { top_p: 1.5, ..Sampling::default() }).unwrap_err();
        assert!(error.to_string().contains("top_p"), "{error}");
        assert!(Sampler::new(&Sampling { temperature: f32::NAN, ..Sampling::default() }).is_err());
    }
}
