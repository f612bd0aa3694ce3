//! Sorting unsigned words: in vectors where the machine has AVX-512, else by radix.
//!
//! A word is a key, or a key with the index it came from in the low bits. Words are compared by all of their
//! bits, so the sorted row is unique: neither the SIMD level nor the number of threads can change it.

#[cfg(target_arch = "x86_64")]
use super::lanes::{Lanes, avx512};
#[cfg(target_arch = "x86_64")]
use super::quick;
use crate::par::{Par, Shared};
use crate::simd::Simd;

/// Rows shorter than this use a comparison sort where there are no vectors.
const COMPARISON_SORT_BELOW: usize = 128;

/// An unsigned integer to sort by.
pub(super) trait Word: Copy + Ord + Send + Sync + 'static {
    /// The largest.
    #[cfg(target_arch = "x86_64")]
    const MAX: Self;
    #[cfg(target_arch = "x86_64")]
    type Lanes: Lanes<W = Self>;
    /// A key above `shift` bits that hold an index.
    fn new(key: u64, shift: u32, index: u32) -> Self;
    fn bits(self) -> u64;
    fn byte(self, i: usize) -> usize;
}

macro_rules! word {
    ($t:ty, $lanes:ident) => {
        impl Word for $t {
            #[cfg(target_arch = "x86_64")]
            const MAX: Self = <$t>::MAX;
            #[cfg(target_arch = "x86_64")]
            type Lanes = avx512::$lanes;
            #[inline(always)]
            fn new(key: u64, shift: u32, index: u32) -> Self {
                ((key as $t) << shift) | <$t>::from(index)
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

/// The bytes in which words differ, and the SIMD level.
#[derive(Clone, Copy)]
pub(super) struct SortOptions {
    pub(super) simd: Simd,
    /// Words differ in these bytes only, or are already sorted by those below.
    pub(super) low: usize,
    pub(super) high: usize,
}

impl SortOptions {
    #[cfg(target_arch = "x86_64")]
    fn in_vectors(self) -> bool {
        self.simd.min(Simd::detect()) >= Simd::Avx512
    }
}

/// Sorts the words of `row` into `row`, or into `scratch` if `to_scratch`. The contents of the other are
/// unspecified.
pub(super) fn sort<W: Word>(options: SortOptions, row: &mut [W], scratch: &mut [W], to_scratch: bool) {
    debug_assert_eq!(row.len(), scratch.len());
    #[cfg(target_arch = "x86_64")]
    if options.in_vectors() {
        // SAFETY: the level was detected; the slices are equally long.
        return unsafe {
            quick::sort::<W::Lanes>(row.as_mut_ptr(), scratch.as_mut_ptr(), row.len(), !to_scratch)
        };
    }
    if row.len() < COMPARISON_SORT_BELOW {
        row.sort_unstable();
    } else {
        radix(row, scratch, options.low, options.high);
    }
    if to_scratch {
        scratch.copy_from_slice(row);
    }
}

/// Puts the word that belongs at `kth` there, none before it larger and none after it smaller; into `row`, or
/// into `scratch` if `to_scratch`.
pub(super) fn select<W: Word>(
    options: SortOptions,
    row: &mut [W],
    scratch: &mut [W],
    kth: usize,
    to_scratch: bool,
) {
    debug_assert_eq!(row.len(), scratch.len());
    #[cfg(target_arch = "x86_64")]
    if options.in_vectors() {
        // SAFETY: the level was detected; the slices are equally long.
        return unsafe {
            quick::select::<W::Lanes>(row.as_mut_ptr(), scratch.as_mut_ptr(), row.len(), kth, !to_scratch);
        };
    }
    let _ = options;
    row.select_nth_unstable(kth);
    if to_scratch {
        scratch.copy_from_slice(row);
    }
}

/// Sorts a long row of `n` words of `a` into `b` on all threads. `done(start, len)` is called for each part
/// of the sorted row, on any thread, when it is final.
///
/// # Safety
/// Both hold `n` words, and are not accessed otherwise meanwhile.
pub(super) unsafe fn sort_long<W: Word>(
    par: &dyn Par,
    options: SortOptions,
    a: Shared<W>,
    b: Shared<W>,
    n: usize,
    done: &(dyn Fn(usize, usize) + Sync),
) {
    #[cfg(target_arch = "x86_64")]
    if options.in_vectors() {
        // SAFETY: the level was detected; else the caller's promise. Parts do not overlap.
        unsafe {
            let (bounds, swapped) = quick::split_up::<W::Lanes>(par, a, b, n);
            let (from, scratch) = if swapped { (b, a) } else { (a, b) };
            par.run(bounds.len() - 1, &|t| {
                let (start, len) = (bounds[t], bounds[t + 1] - bounds[t]);
                sort(options, from.slice(start, len), scratch.slice(start, len), !swapped);
                done(start, len);
            });
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { by_merging(par, options, a, b, n, done) }
}

/// Sorts pieces on all threads, then merges them two by two.
///
/// # Safety
/// As for [`sort_long`].
unsafe fn by_merging<W: Word>(
    par: &dyn Par,
    options: SortOptions,
    a: Shared<W>,
    b: Shared<W>,
    n: usize,
    done: &(dyn Fn(usize, usize) + Sync),
) {
    let pieces = par.threads().next_power_of_two().min(64);
    let (mut from, mut to) = (a, b);
    let mut swapped = false;
    let cut = |p: usize, of: usize| p * n / of;
    par.run(pieces, &|p| {
        let (i, j) = (cut(p, pieces), cut(p + 1, pieces));
        // SAFETY: pieces are this task's own.
        let (row, scratch) = unsafe { (from.slice(i, j - i), to.slice(i, j - i)) };
        sort(options, row, scratch, false);
    });
    let mut runs = pieces;
    while runs > 1 {
        // Each pair of runs is merged in enough parts for all threads.
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
        swapped = !swapped;
        runs /= 2;
    }
    par.run(pieces, &|p| {
        let (i, j) = (cut(p, pieces), cut(p + 1, pieces));
        if !swapped {
            // SAFETY: all words were written; pieces are this task's own.
            unsafe { b.slice(i, j - i).copy_from_slice(a.slice(i, j - i)) };
        }
        done(i, j - i);
    });
}

/// Sorts by bytes `low..high`, lowest first; a byte with one value in all words is skipped.
fn radix<W: Word>(row: &mut [W], scratch: &mut [W], low: usize, high: usize) {
    let mut counts = [[0u32; 256]; 8];
    for w in row.iter() {
        for (b, count) in counts.iter_mut().enumerate().take(high - low) {
            count[w.byte(low + b)] += 1;
        }
    }
    let n = row.len() as u32;
    let (mut from, mut to) = (row, scratch);
    let mut swapped = false;
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
        swapped = !swapped;
    }
    if swapped {
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
