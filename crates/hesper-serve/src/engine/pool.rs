//! Pools the hidden states of a prompt to an embedding.

use crate::protocol::Pooling;

/// The hidden states of a prompt as far as they are computed. Sums are in double precision and in the order
/// of the tokens, so an embedding does not depend on how the prompt was divided.
#[derive(Debug)]
pub(super) struct Pool {
    pooling: Pooling,
    /// Sums of the states up to a position: of the piece that was computed last, which may be computed again.
    sums: Vec<(usize, Vec<f64>)>,
}

impl Pool {
    pub(super) fn new(pooling: Pooling) -> Self {
        Pool { pooling, sums: Vec::new() }
    }

    /// Which of `count` tokens are needed, if they are the last ones of the prompt or not.
    pub(super) fn needed(&self, count: usize, is_end: bool) -> std::ops::Range<usize> {
        match self.pooling {
            Pooling::Mean => 0..count,
            Pooling::Last => count - usize::from(is_end)..count,
        }
    }

    /// Adds the needed states of the tokens `start..end`, as rows of `width` elements. They are of a piece
    /// that begins at `piece`. States after `start` that were added before are discarded: the piece was
    /// computed again.
    pub(super) fn add(&mut self, piece: usize, [start, end]: [usize; 2], rows: &[f32], width: usize) {
        self.sums.retain(|(at, _)| (piece..=start).contains(at));
        let before = self.sums.iter().find(|(at, _)| *at == start).map(|(_, sum)| sum.clone());
        let mut sum = before.unwrap_or_else(|| vec![0.0; width]);
        for row in rows.chunks_exact(width) {
            sum.iter_mut().zip(row).for_each(|(sum, state)| *sum += f64::from(*state));
        }
        self.sums.push((end, sum));
    }

    /// The embedding: the pooled states, scaled to length 1.
    pub(super) fn embedding(&self) -> Result<Vec<f32>, String> {
        let (_, sum) = self.sums.last().ok_or("no hidden state was computed")?;
        let length = sum.iter().map(|one| one * one).sum::<f64>().sqrt();
        if !(length.is_finite() && length > 0.0) {
            return Err("the hidden states are NaN, infinite or all 0".into());
        }
        Ok(sum.iter().map(|one| (one / length) as f32).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_is_computed_again_counts_once() {
        let mut pool = Pool::new(Pooling::Mean);
        pool.add(0, [0, 2], &[1.0, 0.0, 1.0, 0.0], 2);
        pool.add(2, [2, 3], &[0.0, 4.0], 2);
        pool.add(2, [3, 4], &[9.0, 9.0], 2);
        // A later pass failed, so the whole piece comes again, divided otherwise.
        pool.add(2, [2, 4], &[0.0, 1.0, 1.0, 3.0], 2);
        assert_eq!(pool.embedding().unwrap(), [0.6, 0.8]);
        // Preempted: from the beginning.
        pool.add(0, [0, 4], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0], 2);
        assert_eq!(pool.embedding().unwrap(), [0.0, 1.0]);
        pool.add(4, [4, 5], &[f32::NAN, 0.0], 2);
        assert!(pool.embedding().is_err() && Pool::new(Pooling::Last).embedding().is_err());
    }
}
