//! Guesses of the next tokens of a text, by prompt lookup: where the last tokens have come before, what
//! followed them then is likely to follow again. A step computes the guesses beside the next token and keeps
//! those that are chosen, so a text that repeats itself or its prompt takes fewer steps.
//!
//! A guess costs a row of a step whether it is right or not. How many a text gets follows from how many were
//! right before.

/// Tokens that are compared at most, and at least.
const LONGEST_MATCH: usize = 4;
const SHORTEST_MATCH: usize = 2;

/// Tokens that are searched.
const SEARCHED: usize = 4096;

/// The weight of the last guesses in the share of right ones.
const WEIGHT: f32 = 0.3;

/// The share of right guesses below which a text gets none for [`PAUSE`] tokens.
const WORTHWHILE: f32 = 0.3;

/// Tokens without guesses.
const PAUSE: usize = 24;

/// The guesses of one text.
#[derive(Debug)]
pub(super) struct Drafts {
    /// The share of guesses that were right, the last ones first.
    right: f32,
    /// Tokens until the next guess.
    pause: usize,
}

impl Default for Drafts {
    fn default() -> Self {
        Drafts { right: 0.5, pause: 0 }
    }
}

impl Drafts {
    /// At most `most` guesses of what follows `tokens`.
    pub(super) fn guess<'a>(&mut self, tokens: &'a [u32], most: usize) -> &'a [u32] {
        if self.pause > 0 {
            self.pause -= 1;
            return &[];
        }
        let most = if self.right > 0.8 { most } else { most.div_ceil(2) };
        let behind = last_match(tokens).map_or(&[][..], |at| &tokens[at..]);
        &behind[..behind.len().min(most)]
    }

    /// Of `guessed` tokens the first `right` were chosen.
    pub(super) fn judged(&mut self, guessed: usize, right: usize) {
        if guessed == 0 {
            return;
        }
        self.right += WEIGHT * (right as f32 / guessed as f32 - self.right);
        if self.right < WORTHWHILE {
            *self = Drafts { right: 0.5, pause: PAUSE };
        }
    }
}

/// The place behind the latest earlier occurrence of the longest known end of `tokens`.
fn last_match(tokens: &[u32]) -> Option<usize> {
    let end = tokens.len();
    let oldest = end.saturating_sub(SEARCHED);
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
    fn what_followed_the_longest_latest_match_is_guessed() {
        let mut drafts = Drafts { right: 1.0, pause: 0 };
        assert_eq!(drafts.guess(&[1, 2, 3, 9, 1, 2, 4, 8, 1, 2], 2), [4, 8]);
        assert_eq!(
            drafts.guess(&[7, 1, 2, 3, 9, 5, 1, 2, 4, 8, 7, 1, 2], 3),
            [3, 9, 5],
            "three are the same"
        );
        assert_eq!(drafts.guess(&[5, 5, 5, 5], 4), [5], "the match may overlap the end");
        for none in [&[][..], &[1], &[1, 2, 3, 4], &[1, 2, 3, 2]] {
            assert!(drafts.guess(none, 4).is_empty(), "{none:?}");
        }
        let mut far: Vec<u32> = vec![1, 2, 3];
        far.extend(10..10 + SEARCHED as u32);
        far.extend([1, 2]);
        assert!(drafts.guess(&far, 4).is_empty(), "too far away");
    }

    #[test]
    fn a_text_whose_guesses_are_wrong_gets_none_for_a_while() {
        let (mut drafts, tokens) = (Drafts::default(), [1, 2, 3, 4, 1, 2]);
        assert_eq!(drafts.guess(&tokens, 4).len(), 2, "half of them at first");
        (0..2).for_each(|_| drafts.judged(2, 0));
        assert!((0..PAUSE).all(|_| drafts.guess(&tokens, 4).is_empty()));
        assert_eq!(drafts.guess(&tokens, 4).len(), 2);
        (0..6).for_each(|_| drafts.judged(2, 2));
        assert_eq!(drafts.guess(&tokens, 4).len(), 4);
        drafts.judged(0, 0);
        assert_eq!(drafts.guess(&tokens, 4).len(), 4);
    }
}
