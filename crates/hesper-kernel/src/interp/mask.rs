//! Sets of threads of one threadgroup.

use crate::launch::MAX_THREADS_PER_THREADGROUP;

const WORDS: usize = MAX_THREADS_PER_THREADGROUP as usize / 64;

/// A set of threads, by index in the threadgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mask([u64; WORDS]);

impl Mask {
    pub const EMPTY: Mask = Mask([0; WORDS]);

    /// The first `n` threads.
    pub fn first(n: usize) -> Mask {
        let mut m = Mask::EMPTY;
        for t in 0..n {
            m.insert(t);
        }
        m
    }

    pub fn insert(&mut self, t: usize) {
        self.0[t / 64] |= 1 << (t % 64);
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    pub fn or(&self, other: &Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub fn minus(&self, other: &Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let words = self.0;
        words.into_iter().enumerate().flat_map(|(i, mut w)| {
            std::iter::from_fn(move || {
                let bit = (w != 0).then(|| w.trailing_zeros() as usize)?;
                w &= w - 1;
                Some(i * 64 + bit)
            })
        })
    }

    /// The 32 lanes of SIMD group `g`.
    pub fn lanes(&self, g: usize) -> u32 {
        (self.0[g / 2] >> (32 * (g % 2))) as u32
    }
}
