//! From scores to a token.
//!
//! Scores are read back and sampled on the host: a token needs one pass over them, and what is random must
//! not depend on a device. One [`Sampler`] belongs to one text; with the same seed it draws the same tokens. Where the best
//! token is always taken, a GPU finds it by itself ([`best_tokens`]).

use std::collections::HashSet;

use hesper::{Array, Dtype, select};

use crate::error::{Error, Result};

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Scores are divided by it; 0 always takes the best token.
    pub temperature: f32,
    /// Only so many of the best tokens; 0 for all.
    pub top_k: usize,
    /// Only the best tokens that together have this probability; 1 for all.
    pub top_p: f32,
    /// Only tokens at least this likely compared to the best; 0 for all.
    pub min_p: f32,
    /// Scores of tokens that have been there are made worse by this factor; 1 for none.
    pub repetition_penalty: f32,
    /// How many of the last tokens count as having been there.
    pub repetition_context: usize,
    /// Where chance begins.
    pub seed: u64,
}

impl Default for Sampling {
    /// Always the best token.
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
    /// Whether the best token is always taken, whatever came before.
    pub(crate) fn is_best(&self) -> bool {
        self.temperature == 0.0 && self.repetition_penalty == 1.0
    }

    /// Whether the numbers make sense.
    pub fn check(&self) -> Result<()> {
        let ranges = [
            ("temperature", self.temperature, 0.0, f32::MAX),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("repetition_penalty", self.repetition_penalty, f32::MIN_POSITIVE, f32::MAX),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(Error::Setting(format!("{name} is {value}, not between {low} and {high}")));
            }
        }
        Ok(())
    }
}

/// What [`best_tokens`] gives where scores have to be looked at one by one.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// The first of the best tokens for each row of scores, as numbers of the shape (rows), found where the scores are; or
/// [`UNKNOWN`] if there may be scores that are no numbers.
pub(crate) fn best_tokens(scores: &Array) -> hesper::Result<Array> {
    let best = scores.argmax(Some(-1), true)?.astype(Dtype::Uint32)?;
    let odd = scores.take_along_axis(&best, Some(-1))?.isnan()?;
    let unknown = Array::full(best.shape(), i64::from(UNKNOWN), Some(Dtype::Uint32))?;
    select(&odd, &unknown, &best)?.reshape(&[-1])
}

/// SplitMix64: small, and good enough to draw words with.
#[derive(Debug, Clone)]
struct Chance(u64);

impl Chance {
    /// A number in `0.0..1.0`.
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Chooses the tokens of one text.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    chance: Chance,
    /// Candidates, kept to reuse their memory.
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler at its seed.
    pub fn new(sampling: &Sampling) -> Result<Self> {
        sampling.check()?;
        Ok(Sampler { sampling: sampling.clone(), chance: Chance(sampling.seed), candidates: Vec::new() })
    }

    /// Chooses a token by its scores. `before` are the tokens so far. `None` if no score is a number.
    pub fn choose(&mut self, scores: &[f32], before: &[u32]) -> Option<u32> {
        let sampling = &self.sampling;
        let penalised = penalised(scores, before, sampling);
        let score = |id: usize| match penalised.binary_search_by_key(&(id as u32), |entry| entry.0) {
            Ok(at) => penalised[at].1,
            Err(_) => scores[id],
        };
        if sampling.temperature == 0.0 {
            return match penalised.is_empty() {
                true => best(scores),
                false => (0..scores.len())
                    .filter(|id| !score(*id).is_nan())
                    .max_by(|a, b| score(*a).total_cmp(&score(*b)).then(b.cmp(a)))
                    .map(|id| id as u32),
            };
        }
        let all = &mut self.candidates;
        all.clear();
        all.extend(scores.iter().zip(0..).map(|(score, id)| (*score, id)));
        for (id, score) in &penalised {
            all[*id as usize].0 = *score;
        }
        let most = all.iter().map(|entry| entry.0).filter(|score| !score.is_nan()).fold(f32::MIN, f32::max);
        if most == f32::MIN {
            return None;
        }
        // What is this far below the best cannot change a sum of probabilities.
        let floor = most - 30.0 * sampling.temperature;
        let floor = match sampling.min_p {
            0.0 => floor,
            least => floor.max(most + least.ln() * sampling.temperature),
        };
        all.retain(|entry| entry.0 >= floor);
        let descending = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if sampling.top_k > 0 && sampling.top_k < all.len() {
            all.select_nth_unstable_by(sampling.top_k - 1, descending);
            all.truncate(sampling.top_k);
        }
        for entry in all.iter_mut() {
            entry.0 = ((entry.0 - most) / sampling.temperature).exp();
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
            // The order of candidates must not depend on how the others were cut off.
            all.sort_unstable_by_key(|entry| entry.1);
        }
        let total: f64 = all.iter().map(|entry| f64::from(entry.0)).sum();
        let mut left = self.chance.draw() * total;
        for (weight, id) in all.iter() {
            left -= f64::from(*weight);
            if left < 0.0 {
                return Some(*id);
            }
        }
        all.last().map(|entry| entry.1)
    }
}

/// The scores that a penalty changes, by token, rising.
fn penalised(scores: &[f32], before: &[u32], sampling: &Sampling) -> Vec<(u32, f32)> {
    if sampling.repetition_penalty == 1.0 {
        return Vec::new();
    }
    let recent = &before[before.len().saturating_sub(sampling.repetition_context)..];
    let seen: HashSet<u32> = recent.iter().copied().filter(|id| (*id as usize) < scores.len()).collect();
    let worse = |score: f32| match score > 0.0 {
        true => score / sampling.repetition_penalty,
        false => score * sampling.repetition_penalty,
    };
    let mut list: Vec<(u32, f32)> = seen.into_iter().map(|id| (id, worse(scores[id as usize]))).collect();
    list.sort_unstable_by_key(|entry| entry.0);
    list
}

/// The first of the best scores. Blocks are looked through by their maximum, which is fast.
fn best(scores: &[f32]) -> Option<u32> {
    const BLOCK: usize = 64;
    let (mut top, mut at) = (f32::NEG_INFINITY, None);
    for (number, block) in scores.chunks(BLOCK).enumerate() {
        let high = block.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
        if high > top || (at.is_none() && block.contains(&high)) {
            (top, at) = (high, Some(number));
        }
    }
    let start = at? * BLOCK;
    let inside = scores[start..].iter().take(BLOCK).position(|score| *score == top)?;
    Some((start + inside) as u32)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn draws(sampling: Sampling, scores: &[f32], count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(&sampling).unwrap();
        (0..count).map(|_| sampler.choose(scores, &[]).unwrap()).collect()
    }

    #[test]
    fn without_temperature_the_first_of_the_best_is_taken() {
        let mut scores = vec![-1.0; 300];
        (scores[130], scores[257]) = (2.5, 2.5);
        assert_eq!(draws(Sampling::default(), &scores, 1), [130]);
        assert_eq!(draws(Sampling::default(), &[f32::NEG_INFINITY, f32::NAN], 1), [0]);
        let mut sampler = Sampler::new(&Sampling::default()).unwrap();
        assert_eq!(sampler.choose(&[f32::NAN; 3], &[]), None);
    }

    #[test]
    fn tokens_come_as_often_as_their_probability_says() {
        let scores = [0.0f32, 2.0f32.ln(), 5.0f32.ln()];
        let all = draws(Sampling { temperature: 1.0, seed: 7, ..Sampling::default() }, &scores, 8000);
        for (id, part) in [(0, 1.0 / 8.0), (1, 2.0 / 8.0), (2, 5.0 / 8.0)] {
            let seen = all.iter().filter(|drawn| **drawn == id).count() as f64 / 8000.0;
            assert!((seen - part).abs() < 0.02, "token {id}: {seen}");
        }
    }

    #[test]
    fn filters_leave_only_what_they_say() {
        let scores = [1.0, 4.0, 3.0, 2.0, 0.0];
        let hot = Sampling { temperature: 5.0, ..Sampling::default() };
        let ids = |sampling: Sampling| {
            let mut ids = draws(sampling, &scores, 500);
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
    fn a_seed_fixes_all_draws_and_another_gives_others() {
        let scores: Vec<f32> = (0..100).map(|x| (x % 7) as f32).collect();
        let with = |seed| draws(Sampling { temperature: 1.0, seed, ..Sampling::default() }, &scores, 50);
        assert_eq!(with(3), with(3));
        assert_ne!(with(3), with(4));
    }

    #[test]
    fn a_penalty_moves_repeated_tokens_back() {
        let sampling = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        let mut sampler = Sampler::new(&sampling).unwrap();
        assert_eq!(sampler.choose(&[1.0, 1.5, -1.0], &[1]), Some(0));
        assert_eq!(sampler.choose(&[-1.0, -1.5, -3.0], &[0, 7]), Some(1));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let error = Sampler::new(&Sampling { top_p: 1.5, ..Sampling::default() }).unwrap_err();
        assert!(error.to_string().contains("top_p"), "{error}");
        assert!(Sampler::new(&Sampling { temperature: f32::NAN, ..Sampling::default() }).is_err());
    }
}
