//! Random bits: Threefry-2x32 with twenty rounds over a counter.
//!
//! Of `n` words, word `i` of the first half and word `i` of the second are the two outputs for the counters `i`
//! and `half + i` (zero for the word past the end of an odd `n`). A word depends only on the key, on `n` and on its
//! index.

use crate::par::{Par, Shared};
use crate::simd::{Isa, Kernel, dispatch};

const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

/// Counters per step of the loop, for the compiler to vectorize.
const LANES: usize = 32;

/// Counters per task.
const GRAIN: usize = 1 << 14;

/// The two outputs for several pairs of counters.
#[inline(always)]
fn rounds<const N: usize>(key: [u32; 2], mut a: [u32; N], mut b: [u32; N]) -> ([u32; N], [u32; N]) {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    for lane in 0..N {
        a[lane] = a[lane].wrapping_add(keys[0]);
        b[lane] = b[lane].wrapping_add(keys[1]);
    }
    for round in 0..5 {
        for rotation in ROTATIONS[round % 2] {
            for lane in 0..N {
                a[lane] = a[lane].wrapping_add(b[lane]);
                b[lane] = b[lane].rotate_left(rotation) ^ a[lane];
            }
        }
        let (first, second) = (keys[(round + 1) % 3], keys[(round + 2) % 3].wrapping_add(round as u32 + 1));
        for lane in 0..N {
            a[lane] = a[lane].wrapping_add(first);
            b[lane] = b[lane].wrapping_add(second);
        }
    }
    (a, b)
}

/// The two words of a key for a pair of counters.
pub fn threefry(key: [u32; 2], counters: [u32; 2]) -> [u32; 2] {
    let ([a], [b]) = rounds(key, [counters[0]], [counters[1]]);
    [a, b]
}

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
            let (a, b) = rounds::<LANES>(key, a, b);
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
        // SAFETY: places within the words, which no other task has.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::par::{AtLevel, Serial, Threads};
    use crate::simd::Simd;

    #[test]
    fn words_are_those_of_their_counters_at_every_level_and_number() {
        let key = [0x1234_5678, 0x9abc_def0];
        for count in [0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 129, 1000, 2 * GRAIN + 1, 4 * GRAIN + 66] {
            let half = count.div_ceil(2);
            let mut want = vec![0; count];
            for i in 0..half {
                let other = if half + i < count { (half + i) as u32 } else { 0 };
                let [a, b] = threefry(key, [i as u32, other]);
                want[i] = a;
                if half + i < count {
                    want[half + i] = b;
                }
            }
            for level in Simd::available() {
                for par in [&AtLevel(Serial, level) as &dyn Par, &AtLevel(Threads(2), level)] {
                    let mut words = vec![0; count];
                    random_words(par, key, &mut words);
                    assert!(words == want, "{count} words at {level:?}");
                }
            }
        }
    }

    #[test]
    fn threefry_gives_the_published_words() {
        // The known answers of the function's authors.
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }
}
