//! Vectorized quicksort and quickselect of words, between two buffers of the same length.
//!
//! A pass compares a vector with the pivot, compresses the words below it and writes them to the front of the
//! other buffer, the rest to its back. Rows that fit a sorting network end there. After a bad split, words
//! equal to the pivot are separated, so that rows of few values take few passes. Beyond a recursion limit the
//! standard library sorts the rest. A long row is first split by all threads: they count, then write at the
//! offsets that follow from the counts.

use super::lanes::Lanes;
use super::network;
use super::words::Word;
use crate::par::{Par, Shared};

/// Vectors of sampled words for a pivot, in rows longer than [`LONG_ROW`]; one otherwise.
const SAMPLES: usize = 4;
const LONG_ROW: usize = 1 << 13;
/// Rows are split on all threads while pieces are longer than this.
const PIECE: usize = 1 << 13;

/// The recursion limit.
fn depth(n: usize) -> u32 {
    2 * n.ilog2() + 8
}

/// Sorts `n` words of `row` into `row` if `stay`, else into `scratch`.
///
/// # Safety
/// AVX-512 was detected; both hold `n` words and do not overlap.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn sort<L: Lanes>(row: *mut L::W, scratch: *mut L::W, n: usize, stay: bool) {
    if n > 0 {
        // SAFETY: the caller's promise.
        unsafe { quick::<L>(row, scratch, n, stay, depth(n)) }
    }
}

/// # Safety
/// As for [`sort`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn quick<L: Lanes>(row: *mut L::W, scratch: *mut L::W, n: usize, stay: bool, depth: u32) {
    // SAFETY: the caller's promise; parts lie within the row.
    unsafe {
        if n <= network::most::<L>() {
            return network::sort::<L>(row, if stay { row } else { scratch }, n);
        }
        if depth == 0 {
            std::slice::from_raw_parts_mut(row, n).sort_unstable();
            return settle(row, scratch, n, stay);
        }
        let pivot = pivot::<L>(row, n);
        let below = split::<L, false>(row, n, scratch, pivot);
        if below >= n / 16 {
            quick::<L>(scratch, row, below, !stay, depth - 1);
            return quick::<L>(scratch.add(below), row.add(below), n - below, !stay, depth - 1);
        }
        // Many words may equal the pivot: put them in between, where they are final.
        let (rest, back) = (scratch.add(below), row.add(below));
        let equal = split::<L, true>(rest, n - below, back, pivot);
        settle(back, rest, equal, stay);
        quick::<L>(scratch, row, below, !stay, depth - 1);
        quick::<L>(back.add(equal), rest.add(equal), n - below - equal, stay, depth - 1);
    }
}

/// Moves the `n` words of `row` to their destination.
#[inline(always)]
unsafe fn settle<W: Word>(row: *mut W, scratch: *mut W, n: usize, stay: bool) {
    if !stay {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(row, scratch, n) }
    }
}

/// Puts the word that belongs at `kth` there, smaller ones before and larger ones after it; into `row` if
/// `stay`, else into `scratch`.
///
/// # Safety
/// As for [`sort`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn select<L: Lanes>(
    mut row: *mut L::W,
    mut scratch: *mut L::W,
    mut n: usize,
    mut kth: usize,
    mut stay: bool,
) {
    let mut depth = depth(n.max(1));
    // SAFETY: the caller's promise; parts lie within the row.
    unsafe {
        while n > network::most::<L>() {
            if depth == 0 {
                std::slice::from_raw_parts_mut(row, n).select_nth_unstable(kth);
                return settle(row, scratch, n, stay);
            }
            depth -= 1;
            let pivot = pivot::<L>(row, n);
            let below = split::<L, false>(row, n, scratch, pivot);
            if kth < below {
                settle(scratch.add(below), row.add(below), n - below, !stay);
                (row, scratch, n, stay) = (scratch, row, below, !stay);
                continue;
            }
            settle(scratch, row, below, !stay);
            let (rest, back) = (scratch.add(below), row.add(below));
            kth -= below;
            n -= below;
            if below > 0 {
                (row, scratch, stay) = (rest, back, !stay);
                continue;
            }
            let equal = split::<L, true>(rest, n, back, pivot);
            settle(back, rest, equal, stay);
            if kth < equal {
                return settle(back.add(equal), rest.add(equal), n - equal, stay);
            }
            (row, scratch, n, kth) = (back.add(equal), rest.add(equal), n - equal, kth - equal);
        }
        if n > 0 {
            network::sort::<L>(row, if stay { row } else { scratch }, n);
        }
    }
}

/// The median of a sample of the row, at pseudo-random indices that are always the same.
///
/// # Safety
/// As for [`sort`]; the row has words.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn pivot<L: Lanes>(row: *const L::W, n: usize) -> L::W {
    let mut some = [L::W::MAX; SAMPLES * 16];
    let count = if n > LONG_ROW { SAMPLES * L::N } else { L::N };
    let mut state = n as u64;
    // SAFETY: the indices are below `n`, and `count` is at most the length of `some`.
    unsafe {
        for s in some.iter_mut().take(count) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            *s = *row.add((((state >> 32) * n as u64) >> 32) as usize);
        }
        network::sort::<L>(some.as_ptr(), some.as_mut_ptr(), count);
    }
    some[count / 2]
}

/// A bit mask of the lanes that go to the front: those below the pivot, or up to it.
#[inline(always)]
unsafe fn first<L: Lanes, const EQUAL: bool>(v: L::V, pivot: L::V) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { if EQUAL { L::up_to(v, pivot) } else { L::below(v, pivot) } }
}

/// Copies words, those below the pivot (or up to it) to the front and the others to the back. Returns the
/// number of words at the front.
///
/// # Safety
/// As for [`sort`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn split<L: Lanes, const EQUAL: bool>(
    from: *const L::W,
    n: usize,
    to: *mut L::W,
    pivot: L::W,
) -> usize {
    // SAFETY: the caller's promise. Between `front` and `back` is room for the words that were not written
    // yet, so a whole vector may be stored at the front before the rest of it is at the back.
    unsafe {
        let p = L::splat(pivot);
        let all = (1u32 << L::N) - 1;
        let (mut front, mut back) = (to, to.add(n));
        for i in 0..n / L::N {
            let v = L::load(from.add(i * L::N));
            let low = first::<L, EQUAL>(v, p);
            let count = low.count_ones() as usize;
            L::store(front, L::compress(v, low));
            front = front.add(count);
            back = back.sub(L::N - count);
            L::store_n(back, L::compress(v, !low & all), L::N - count);
        }
        let rest = n % L::N;
        if rest > 0 {
            let v = L::load_n(from.add(n - rest), rest);
            let all = (1u32 << rest) - 1;
            let low = first::<L, EQUAL>(v, p) & all;
            let count = low.count_ones() as usize;
            L::store_n(front, L::compress(v, low), count);
            front = front.add(count);
            L::store_n(front, L::compress(v, !low & all), rest - count);
        }
        front.offset_from(to) as usize
    }
}

/// How many words are below the pivot, and how many are not above it.
///
/// # Safety
/// As for [`sort`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn count<L: Lanes>(from: *const L::W, n: usize, pivot: L::W) -> [usize; 2] {
    let (mut below, mut up_to) = (0, 0);
    // SAFETY: the caller's promise.
    unsafe {
        let p = L::splat(pivot);
        for i in 0..n / L::N {
            let v = L::load(from.add(i * L::N));
            below += L::below(v, p).count_ones() as usize;
            up_to += L::up_to(v, p).count_ones() as usize;
        }
        for i in n / L::N * L::N..n {
            below += usize::from(*from.add(i) < pivot);
            up_to += usize::from(*from.add(i) <= pivot);
        }
    }
    [below, up_to]
}

/// Copies words, those below the pivot (or up to it) to `front` and the others to `back`, `low` and `high` of
/// them, and writes nothing beyond.
///
/// # Safety
/// As for [`sort`]; there are as many words of each kind.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn distribute<L: Lanes, const EQUAL: bool>(
    from: *const L::W,
    pivot: L::W,
    (mut front, low): (*mut L::W, usize),
    (mut back, high): (*mut L::W, usize),
) {
    // SAFETY: the caller's promise. Whole vectors are stored only where they fit.
    unsafe {
        let p = L::splat(pivot);
        let (front_end, back_end) = (front.add(low), back.add(high));
        let n = low + high;
        let mut at = 0;
        while at < n {
            let here = L::N.min(n - at);
            let v = if here == L::N { L::load(from.add(at)) } else { L::load_n(from.add(at), here) };
            at += here;
            let all = (1u32 << here) - 1;
            let bits = first::<L, EQUAL>(v, p) & all;
            let count = bits.count_ones() as usize;
            let (lows, highs) = (L::compress(v, bits), L::compress(v, !bits & all));
            let room = front_end.offset_from(front) as usize;
            if room >= L::N {
                L::store(front, lows)
            } else {
                L::store_n(front, lows, count)
            }
            front = front.add(count);
            let room = back_end.offset_from(back) as usize;
            if room >= L::N {
                L::store(back, highs)
            } else {
                L::store_n(back, highs, here - count)
            }
            back = back.add(here - count);
        }
    }
}

/// A run of words that is split by one task.
struct Run<W> {
    segment: usize,
    start: usize,
    len: usize,
    counts: [usize; 2],
    pivot: W,
}

/// Splits a row on all threads until there are enough pieces. Returns the bounds of the pieces, none of which
/// has a word greater than one of the next, and whether they are in `b`.
///
/// # Safety
/// As for [`sort`].
pub(super) unsafe fn split_up<L: Lanes>(
    par: &dyn Par,
    a: Shared<L::W>,
    b: Shared<L::W>,
    n: usize,
) -> (Vec<usize>, bool) {
    let threads = par.threads();
    let mut bounds = vec![0, n];
    let (mut from, mut to) = (a, b);
    let mut swapped = false;
    let wanted = if threads > 1 { (4 * threads).min(256) } else { 1 };
    let step = n.div_ceil(4 * threads).max(PIECE);
    let mut pieces = 1;
    while pieces < wanted && n / pieces > PIECE {
        let mut runs: Vec<Run<L::W>> = Vec::new();
        for (segment, ends) in bounds.windows(2).enumerate() {
            // SAFETY: the caller's promise; no segment is empty.
            let pivot = unsafe { pivot::<L>(from.get().add(ends[0]), ends[1] - ends[0]) };
            for start in (ends[0]..ends[1]).step_by(step) {
                runs.push(Run { segment, start, len: step.min(ends[1] - start), counts: [0; 2], pivot });
            }
        }
        let shared = Shared::new(runs.as_mut_ptr());
        par.run(runs.len(), &|t| {
            // SAFETY: every task has a run of its own.
            unsafe {
                let run = &mut *shared.get().add(t);
                run.counts = count::<L>(from.get().add(run.start), run.len, run.pivot);
            }
        });
        let mut plans = Vec::with_capacity(runs.len());
        let mut next = vec![0];
        for (segment, ends) in bounds.windows(2).enumerate() {
            let of = || runs.iter().filter(|run| run.segment == segment);
            let total = |kind: usize| of().map(|run| run.counts[kind]).sum::<usize>();
            // The pivot goes to the side that balances the halves.
            let half = (ends[1] - ends[0]) / 2;
            let kind = usize::from(total(1).abs_diff(half) < total(0).abs_diff(half));
            let (mut front, mut back) = (ends[0], ends[0] + total(kind));
            for edge in [back, ends[1]] {
                if next.last() != Some(&edge) {
                    next.push(edge);
                }
            }
            for run in of() {
                let low = run.counts[kind];
                plans.push((kind, front, back));
                front += low;
                back += run.len - low;
            }
        }
        par.run(runs.len(), &|t| {
            let (run, (kind, front, back)) = (&runs[t], plans[t]);
            let low = run.counts[kind];
            // SAFETY: the counts give every run its own range of the output.
            unsafe {
                let (source, ends) = (from.get().add(run.start), (to.get().add(front), to.get().add(back)));
                let (front, back) = ((ends.0, low), (ends.1, run.len - low));
                if kind == 1 {
                    distribute::<L, true>(source, run.pivot, front, back);
                } else {
                    distribute::<L, false>(source, run.pivot, front, back);
                }
            }
        });
        bounds = next;
        std::mem::swap(&mut from, &mut to);
        swapped = !swapped;
        pieces *= 2;
    }
    (bounds, swapped)
}
