//! Sorting unsigned words: in vectors where the machine has AVX-512, else by radix.
//!
//! A word is a key, or a key with the place it came from in the bits below. Words are told apart by all of
//! their bits, so a sorted row of them is the only possible one: neither the level nor the number of threads
//! can change it.

#[cfg(target_arch = "x86_64")]
use super::lanes::{Lanes, avx512};
#[cfg(target_arch = "x86_64")]
use super::quick;
use crate::par::{Par, Shared};
use crate::simd::Simd;

/// Rows shorter than this are sorted by comparisons where there are no vectors.
const SHORT: usize = 128;

/// An unsigned number that is sorted by.
pub(super) trait Word: Copy + Ord + Send + Sync + 'static {
    /// The largest.
    #[cfg(target_arch = "x86_64")]
    const MOST: Self;
    #[cfg(target_arch = "x86_64")]
    type Lanes: Lanes<W = Self>;
    /// A key above `shift` bits, which hold a place.
    fn new(key: u64, shift: u32, place: u32) -> Self;
    fn bits(self) -> u64;
    fn byte(self, i: usize) -> usize;
}

macro_rules! word {
    ($t:ty, $lanes:ident) => {
        impl Word for $t {
            #[cfg(target_arch = "x86_64")]
            const MOST: Self = <$t>::MAX;
            #[cfg(target_arch = "x86_64")]
            type Lanes = avx512::$lanes;
            #[inline(always)]
            fn new(key: u64, shift: u32, place: u32) -> Self {
                ((key as $t) << shift) | <$t>::from(place)
            }
            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self)
            }
            #[inline(always)]
            fn byte(self, i: usize) -> usize {
                (self >> (8 * i)) as usize & 255
            }
        }
    };
}

word!(u32, Narrow);
word!(u64, Wide);

/// Which bytes of words differ at all, and how they are sorted.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) simd: Simd,
    /// Words differ in these bytes alone, or are in order by those below.
    pub(super) low: usize,
    pub(super) high: usize,
}

impl Way {
    #[cfg(target_arch = "x86_64")]
    fn in_vectors(self) -> bool {
        self.simd.min(Simd::detect()) >= Simd::Avx512
    }
}

/// Sorts the words of `row` into `row`, or into `spare` if `over`. The other is left in disorder.
pub(super) fn sort<W: Word>(way: Way, row: &mut [W], spare: &mut [W], over: bool) {
    debug_assert_eq!(row.len(), spare.len());
    #[cfg(target_arch = "x86_64")]
    if way.in_vectors() {
        // SAFETY: the level was detected; the slices are equally long.
        return unsafe { quick::sort::<W::Lanes>(row.as_mut_ptr(), spare.as_mut_ptr(), row.len(), !over) };
    }
    if row.len() < SHORT {
        row.sort_unstable();
    } else {
        radix(row, spare, way.low, way.high);
    }
    if over {
        spare.copy_from_slice(row);
    }
}

/// Puts the word that belongs at `kth` there, none before it being larger and none behind it smaller; into
/// `row`, or into `spare` if `over`.
pub(super) fn select<W: Word>(way: Way, row: &mut [W], spare: &mut [W], kth: usize, over: bool) {
    debug_assert_eq!(row.len(), spare.len());
    #[cfg(target_arch = "x86_64")]
    if way.in_vectors() {
        // SAFETY: the level was detected; the slices are equally long.
        return unsafe {
            quick::select::<W::Lanes>(row.as_mut_ptr(), spare.as_mut_ptr(), row.len(), kth, !over);
        };
    }
    let _ = way;
    row.select_nth_unstable(kth);
    if over {
        spare.copy_from_slice(row);
    }
}

/// Sorts a long row of `n` words of `a` into `b` on all threads. `done(start, len)` is called for each part of
/// the sorted row, on any thread, when it is final.
///
/// # Safety
/// Both hold `n` words, and nobody else touches them meanwhile.
pub(super) unsafe fn sort_long<W: Word>(
    par: &dyn Par,
    way: Way,
    a: Shared<W>,
    b: Shared<W>,
    n: usize,
    done: &(dyn Fn(usize, usize) + Sync),
) {
    #[cfg(target_arch = "x86_64")]
    if way.in_vectors() {
        // SAFETY: the level was detected; else the caller's promise. Parts do not overlap.
        unsafe {
            let (bounds, turned) = quick::split_up::<W::Lanes>(par, a, b, n);
            let (from, spare) = if turned { (b, a) } else { (a, b) };
            par.run(bounds.len() - 1, &|t| {
                let (start, len) = (bounds[t], bounds[t + 1] - bounds[t]);
                sort(way, from.slice(start, len), spare.slice(start, len), !turned);
                done(start, len);
            });
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { by_merging(par, way, a, b, n, done) }
}

/// Pieces are sorted on all threads, then merged two by two.
///
/// # Safety
/// As for [`sort_long`].
unsafe fn by_merging<W: Word>(
    par: &dyn Par,
    way: Way,
    a: Shared<W>,
    b: Shared<W>,
    n: usize,
    done: &(dyn Fn(usize, usize) + Sync),
) {
    let pieces = par.threads().next_power_of_two().min(64);
    let (mut from, mut to) = (a, b);
    let mut turned = false;
    let cut = |p: usize, of: usize| p * n / of;
    par.run(pieces, &|p| {
        let (i, j) = (cut(p, pieces), cut(p + 1, pieces));
        // SAFETY: pieces are this task's own.
        let (row, spare) = unsafe { (from.slice(i, j - i), to.slice(i, j - i)) };
        sort(way, row, spare, false);
    });
    let mut runs = pieces;
    while runs > 1 {
        // Each pair of runs is merged in as many parts as keep all threads busy.
        let parts = pieces / (runs / 2);
        par.run(runs / 2 * parts, &|t| {
            let (pair, part) = (t / parts, t % parts);
            let (i, m, j) = (cut(2 * pair, runs), cut(2 * pair + 1, runs), cut(2 * pair + 2, runs));
            // SAFETY: the runs were written; parts of the output do not overlap.
            unsafe {
                let (l, r) = (&*from.slice(i, m - i), &*from.slice(m, j - m));
                let (d0, d1) = (part * (j - i) / parts, (part + 1) * (j - i) / parts);
                let (l0, l1) = (crossing(l, r, d0), crossing(l, r, d1));
                merge(&l[l0..l1], &r[d0 - l0..d1 - l1], to.slice(i + d0, d1 - d0));
            }
        });
        std::mem::swap(&mut from, &mut to);
        turned = !turned;
        runs /= 2;
    }
    par.run(pieces, &|p| {
        let (i, j) = (cut(p, pieces), cut(p + 1, pieces));
        if !turned {
            // SAFETY: all words were written; pieces are this task's own.
            unsafe { b.slice(i, j - i).copy_from_slice(a.slice(i, j - i)) };
        }
        done(i, j - i);
    });
}

/// Sorts by bytes `low..high`, lowest first; bytes that are all the same cost nothing but a look.
fn radix<W: Word>(row: &mut [W], spare: &mut [W], low: usize, high: usize) {
    let mut counts = [[0u32; 256]; 8];
    for w in row.iter() {
        for (b, count) in counts.iter_mut().enumerate().take(high - low) {
            count[w.byte(low + b)] += 1;
        }
    }
    let n = row.len() as u32;
    let (mut from, mut to) = (row, spare);
    let mut turned = false;
    for b in 0..high - low {
        let count = &mut counts[b];
        if count.contains(&n) {
            continue;
        }
        let mut at = 0;
        for c in count.iter_mut() {
            (*c, at) = (at, at + *c);
        }
        for w in from.iter() {
            let slot = &mut count[w.byte(low + b)];
            // SAFETY: the counts of all bytes add up to the length of the row.
            unsafe { *to.get_unchecked_mut(*slot as usize) = *w };
            *slot += 1;
        }
        std::mem::swap(&mut from, &mut to);
        turned = !turned;
    }
    if turned {
        to.copy_from_slice(from);
    }
}

/// How many of the first `d` merged elements come from the left.
fn crossing<W: Word>(l: &[W], r: &[W], d: usize) -> usize {
    let (mut low, mut high) = (d.saturating_sub(r.len()), d.min(l.len()));
    while low < high {
        let mid = (low + high) / 2;
        if l[mid] <= r[d - mid - 1] { low = mid + 1 } else { high = mid }
    }
    low
}

fn merge<W: Word>(l: &[W], r: &[W], out: &mut [W]) {
    let (mut i, mut j) = (0, 0);
    for o in out.iter_mut() {
        let left = j >= r.len() || (i < l.len() && l[i] <= r[j]);
        *o = if left { l[i] } else { r[j] };
        i += usize::from(left);
        j += usize::from(!left);
    }
}
