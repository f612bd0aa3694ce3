//! Random bits: Threefry-2x32 with twenty rounds over a counter.
//!
//! The `n` words form two halves, the first one longer if `n` is odd. Word `i` of each half is an output of
//! Threefry for the counters `i` and `half + i`; the second counter is zero where the second half has no word
//! `i`. A word depends only on the key, on `n` and on its index.

use hesper_types::threefry_lanes;

use crate::par::{Par, Shared};
use crate::simd::{Isa, Kernel, dispatch};

/// Counters per step of the loop, for the compiler to vectorize.
const LANES: usize = 32;

/// Counters per task.
const GRAIN: usize = 1 << 14;

/// The same range of both halves of the words, from `start` on; the second may be one shorter.
struct Fill<'a> {
    key: [u32; 2],
    start: usize,
    half: usize,
    first: &'a mut [u32],
    second: &'a mut [u32],
}

impl Kernel for Fill<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let Fill { key, start, half, first, second } = self;
        let mut at = 0;
        while at < first.len() {
            let (mut a, mut b) = ([0; LANES], [0; LANES]);
            for lane in 0..LANES {
                a[lane] = (start + at + lane) as u32;
                b[lane] = (half + start + at + lane) as u32;
            }
            let most = second.len() - at.min(second.len());
            if most < LANES && most < first.len() - at {
                // The last word of an odd count has no partner.
                b[most] = 0;
            }
            let (a, b) = threefry_lanes::<LANES>(key, a, b);
            if most >= LANES {
                first[at..at + LANES].copy_from_slice(&a);
                second[at..at + LANES].copy_from_slice(&b);
            } else {
                let n = LANES.min(first.len() - at);
                first[at..at + n].copy_from_slice(&a[..n]);
                second[at..at + most].copy_from_slice(&b[..most]);
            }
            at += LANES;
        }
    }
}

/// Fills `words` with the random bits of a key.
pub fn random_words(par: &dyn Par, key: [u32; 2], words: &mut [u32]) {
    let (count, half) = (words.len(), words.len().div_ceil(2));
    let level = par.simd();
    let all = Shared::new(words.as_mut_ptr());
    par.run(half.div_ceil(GRAIN), &|task| {
        let (start, end) = (task * GRAIN, ((task + 1) * GRAIN).min(half));
        let (from, to) = (start.min(count - half), end.min(count - half));
        // SAFETY: both ranges lie within the words, and no other task touches them.
        let (first, second) = unsafe {
            use std::slice::from_raw_parts_mut as part;
            (
                part(all.get().wrapping_add(start), end - start),
                part(all.get().wrapping_add(half + from), to - from),
            )
        };
        dispatch(level, Fill { key, start, half, first, second });
    });
}
