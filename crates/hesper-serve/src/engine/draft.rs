//! Draft tokens for speculative decoding, by prompt lookup: if the last tokens occur earlier in the sequence,
//! the tokens that followed them there are the draft. A step computes the draft together with the next token
//! and keeps the draft tokens that the sampler also chooses. A sequence that repeats itself or its prompt
//! takes fewer steps.
//!
//! A draft token costs a row of a step whether it is accepted or not, so the length of a draft depends on how
//! many tokens of earlier drafts were accepted.

/// The longest and the shortest match, in tokens.
const LONGEST_MATCH: usize = 4;
const SHORTEST_MATCH: usize = 2;

/// How many of the last tokens are searched for a match.
const SEARCH_WINDOW: usize = 4096;

/// The weight of the latest draft in the moving average of the acceptance rate.
const RATE_WEIGHT: f32 = 0.3;

/// Below this acceptance rate a sequence gets no drafts for [`PAUSE_STEPS`] steps.
const MIN_ACCEPTANCE: f32 = 0.3;

/// Steps without a draft after too many were rejected.
const PAUSE_STEPS: usize = 24;

/// Proposes draft tokens for one sequence.
#[derive(Debug)]
pub(super) struct Drafts {
    /// A moving average of the share of draft tokens that were accepted.
    acceptance: f32,
    /// Steps until the next draft.
    pause: usize,
}

impl Default for Drafts {
    fn default() -> Self {
        Drafts { acceptance: 0.5, pause: 0 }
    }
}

impl Drafts {
    /// At most `most` draft tokens to follow `tokens`.
    pub(super) fn propose<'a>(&mut self, tokens: &'a [u32], most: usize) -> &'a [u32] {
        if self.pause > 0 {
            self.pause -= 1;
            return &[];
        }
        let most = if self.acceptance > 0.8 { most } else { most.div_ceil(2) };
        let following = last_match(tokens).map_or(&[][..], |at| &tokens[at..]);
        &following[..following.len().min(most)]
    }

    /// Records that the first `accepted` of `proposed` draft tokens were accepted.
    pub(super) fn record(&mut self, proposed: usize, accepted: usize) {
        if proposed == 0 {
            return;
        }
        self.acceptance += RATE_WEIGHT * (accepted as f32 / proposed as f32 - self.acceptance);
        if self.acceptance < MIN_ACCEPTANCE {
            *self = Drafts { acceptance: 0.5, pause: PAUSE_STEPS };
        }
    }
}

/// The index after the latest earlier occurrence of the longest suffix of `tokens` that occurs earlier.
fn last_match(tokens: &[u32]) -> Option<usize> {
    let end = tokens.len();
    let oldest = end.saturating_sub(SEARCH_WINDOW);
    let common = |at: usize| {
        let before = tokens[oldest..at].iter().rev().zip(tokens.iter().rev());
        before.take(LONGEST_MATCH).take_while(|(one, other)| one == other).count()
    };
    let mut best = (SHORTEST_MATCH - 1, None);
    for at in (oldest + 1..end).rev() {
        let length = common(at);
        if length > best.0 {
            best = (length, Some(at));
        }
        if length == LONGEST_MATCH {
            break;
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_continues_the_longest_and_latest_match() {
        let mut drafts = Drafts { acceptance: 1.0, pause: 0 };
        assert_eq!(drafts.propose(&[1, 2, 3, 9, 1, 2, 4, 8, 1, 2], 2), [4, 8]);
        assert_eq!(
            drafts.propose(&[7, 1, 2, 3, 9, 5, 1, 2, 4, 8, 7, 1, 2], 3),
            [3, 9, 5],
            "three are the same"
        );
        assert_eq!(drafts.propose(&[5, 5, 5, 5], 4), [5], "the match may overlap the end");
        for none in [&[][..], &[1], &[1, 2, 3, 4], &[1, 2, 3, 2]] {
            assert!(drafts.propose(none, 4).is_empty(), "{none:?}");
        }
        let mut far: Vec<u32> = vec![1, 2, 3];
        far.extend(10..10 + SEARCH_WINDOW as u32);
        far.extend([1, 2]);
        assert!(drafts.propose(&far, 4).is_empty(), "too far away");
    }

    #[test]
    fn a_sequence_whose_drafts_are_rejected_gets_none_for_a_while() {
        let (mut drafts, tokens) = (Drafts::default(), [1, 2, 3, 4, 1, 2]);
        assert_eq!(drafts.propose(&tokens, 4).len(), 2, "half of the limit at first");
        (0..2).for_each(|_| drafts.record(2, 0));
        assert!((0..PAUSE_STEPS).all(|_| drafts.propose(&tokens, 4).is_empty()));
        assert_eq!(drafts.propose(&tokens, 4).len(), 2);
        (0..6).for_each(|_| drafts.record(2, 2));
        assert_eq!(drafts.propose(&tokens, 4).len(), 4);
        drafts.record(0, 0);
        assert_eq!(drafts.propose(&tokens, 4).len(), 4);
    }
}
