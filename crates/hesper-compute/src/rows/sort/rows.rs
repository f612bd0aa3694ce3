//! Sorting rows of elements: short rows in parallel, each on one thread; long rows one by one on all threads.

use std::marker::PhantomData;

use super::codes::{Code, Indices, Keys, decode, decode_in_place, encode, in_place};
use super::words::{self, SortOptions, Word};
use super::{SortOutput, Sortable, count};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;

/// Shortest row that is sorted by all threads.
const PARALLEL_FROM: usize = 1 << 15;

/// Computes the requested result of rows of `n` elements, whose keys fit into words `K`.
pub(super) fn run<T: Sortable, K: Word>(par: &dyn Par, x: &[T], n: usize, to: SortOutput<'_, T>) {
    if n == 0 || x.is_empty() {
        return;
    }
    let keys = Keys::<T, K>(PhantomData);
    match to {
        SortOutput::Values(out) if count::pays::<T>(n) => counted(par, x, n, out),
        SortOutput::Values(out) => each(par, keys, x, n, out, (0, T::BYTES), None),
        SortOutput::Partition(out, kth) => each(par, keys, x, n, out, (0, T::BYTES), Some(kth)),
        SortOutput::Indices(out) => indices(par, x, n, out, None),
        SortOutput::PartitionIndices(out, kth) => indices(par, x, n, out, Some(kth)),
    }
}

fn counted<T: Sortable>(par: &dyn Par, x: &[T], n: usize, out: &mut [T]) {
    if n >= PARALLEL_FROM {
        x.chunks_exact(n).zip(out.chunks_exact_mut(n)).for_each(|(x, out)| count::row(par, x, out));
        return;
    }
    let to = Shared::new(out.as_mut_ptr());
    let rows = x.len() / n;
    chunks(par, rows, grain(par, rows, (4096 / n).max(1)), |a, b| {
        for r in a..b {
            // SAFETY: rows are this task's own.
            count::row(&crate::par::Serial, &x[r * n..][..n], unsafe { to.slice(r * n, n) });
        }
    });
}

/// Sorts keys and indices together, in the narrowest words that hold both. Equal keys are ordered by index.
fn indices<T: Sortable>(par: &dyn Par, x: &[T], n: usize, out: &mut [u32], kth: Option<usize>) {
    match T::BYTES {
        1 if n <= 1 << 24 => {
            let code = Indices::<T, u32> { shift: 24, skip: 0, of: PhantomData };
            each(par, code, x, n, out, (3, 4), kth);
        }
        2 if n <= 1 << 16 => {
            let code = Indices::<T, u32> { shift: 16, skip: 0, of: PhantomData };
            each(par, code, x, n, out, (2, 4), kth);
        }
        8 => wide_indices(par, x, n, out),
        bytes => {
            let code = Indices::<T, u64> { shift: 32, skip: 0, of: PhantomData };
            each(par, code, x, n, out, (4, 4 + bytes), kth);
        }
    }
}

/// Sorts or partitions every row as words, which differ in bytes `low..high` only.
fn each<C: Code>(
    par: &dyn Par,
    code: C,
    x: &[C::T],
    n: usize,
    out: &mut [C::O],
    (low, high): (usize, usize),
    kth: Option<usize>,
) {
    let options = SortOptions { simd: par.simd(), low, high };
    let rows = x.len() / n;
    if n >= PARALLEL_FROM && kth.is_none() {
        for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            long(par, options, code, x, out);
        }
        return;
    }
    let to = Shared::new(out.as_mut_ptr());
    chunks(par, rows, grain(par, rows, (4096 / n).max(1)), |a, b| {
        let in_place = in_place::<C>();
        let words = Scratch::<C::W>::new(if in_place { n } else { 2 * n });
        for r in a..b {
            // SAFETY: the buffer holds two rows, or one if the row of the output serves as the second;
            // nothing is read before it was written, and the row of the output is this task's own.
            unsafe {
                let end = if in_place { to.get().add(r * n).cast() } else { words.ptr().add(n) };
                let row = std::slice::from_raw_parts_mut(words.ptr(), n);
                let sorted = std::slice::from_raw_parts_mut(end, n);
                encode(options.simd, code, &x[r * n..][..n], 0, row);
                match kth {
                    Some(kth) => words::select(options, row, sorted, kth, true),
                    None => words::sort(options, row, sorted, true),
                }
                if in_place {
                    decode_in_place(options.simd, code, sorted);
                } else {
                    decode(options.simd, code, sorted, to.slice(r * n, n));
                }
            }
        }
    });
}

/// One long row, on all threads.
fn long<C: Code>(par: &dyn Par, options: SortOptions, code: C, x: &[C::T], out: &mut [C::O]) {
    let n = x.len();
    // If words are as large as results, they are sorted in the memory of the results.
    let in_place = in_place::<C>();
    let (a, b) = (Scratch::<C::W>::new(n), Scratch::<C::W>::new(if in_place { 0 } else { n }));
    let to = Shared::new(out.as_mut_ptr());
    let (a, b) = (Shared::new(a.ptr()), Shared::new(if in_place { to.get().cast() } else { b.ptr() }));
    encode_all(par, options, code, x, a);
    // SAFETY: both hold `n` words, and the first was written; parts of the result do not overlap.
    unsafe {
        words::sort_long(par, options, a, b, n, &|start, len| {
            if in_place {
                decode_in_place(options.simd, code, b.slice(start, len));
            } else {
                decode(options.simd, code, b.slice(start, len), to.slice(start, len));
            }
        });
    }
}

fn encode_all<C: Code>(par: &dyn Par, options: SortOptions, code: C, x: &[C::T], to: Shared<C::W>) {
    chunks(par, x.len(), grain(par, x.len(), 1 << 14), |i, j| {
        // SAFETY: words are this task's own.
        encode(options.simd, code, &x[i..j], i, unsafe { to.slice(i, j - i) });
    });
}

/// The sorting permutation of 64-bit elements: by the upper halves of their keys, then equal ones by the
/// lower halves. A sorted row is also partitioned.
fn wide_indices<T: Sortable>(par: &dyn Par, x: &[T], n: usize, out: &mut [u32]) {
    let options = SortOptions { simd: par.simd(), low: 4, high: 8 };
    let upper = Indices::<T, u64> { shift: 32, skip: 32, of: PhantomData };
    let lower = Indices::<T, u64> { shift: 32, skip: 0, of: PhantomData };
    if n >= PARALLEL_FROM {
        for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            let top = x[0].rank() >> 32;
            if x.iter().all(|v| v.rank() >> 32 == top) {
                long(par, options, lower, x, out);
            } else {
                long(par, options, upper, x, out);
                settle_all(par, options, x, out);
            }
        }
        return;
    }
    let to = Shared::new(out.as_mut_ptr());
    let rows = x.len() / n;
    chunks(par, rows, grain(par, rows, (4096 / n).max(1)), |a, b| {
        let words = Scratch::<u64>::new(2 * n);
        for r in a..b {
            let row = &x[r * n..][..n];
            // SAFETY: the buffer holds two rows, of which nothing is read before it was written; the row of
            // the output is this task's own.
            unsafe {
                let keys = std::slice::from_raw_parts_mut(words.ptr(), n);
                let scratch = std::slice::from_raw_parts_mut(words.ptr().add(n), n);
                encode(options.simd, upper, row, 0, keys);
                words::sort(options, keys, scratch, false);
                let out = to.slice(r * n, n);
                decode(options.simd, upper, keys, out);
                settle(options, row, out, 0, n);
            }
        }
    });
}

/// Sorts runs of indices whose elements have equal upper halves, on all threads.
fn settle_all<T: Sortable>(par: &dyn Par, options: SortOptions, x: &[T], out: &mut [u32]) {
    let n = out.len();
    // Find where runs begin first, since the ranges that tasks write depend on it.
    let step = grain(par, n, 1 << 13);
    let upper = |at: usize| x[out[at] as usize].rank() >> 32;
    let cuts: Vec<usize> = (0..n.div_ceil(step))
        .map(|t| (t * step..n).find(|at| *at == 0 || upper(at - 1) != upper(*at)).unwrap_or(n))
        .chain([n])
        .collect();
    let to = Shared::new(out.as_mut_ptr());
    par.run(cuts.len() - 1, &|t| {
        let (a, b) = (cuts[t], cuts[t + 1]);
        // SAFETY: the parts between cuts do not overlap.
        settle(options, x, unsafe { to.slice(a, b - a) }, 0, b - a);
    });
}

/// Sorts runs of indices whose elements have equal upper halves by the lower halves.
fn settle<T: Sortable>(options: SortOptions, x: &[T], indices: &mut [u32], mut start: usize, n: usize) {
    while start < n {
        let top = x[indices[start] as usize].rank() >> 32;
        let mut end = start + 1;
        while end < n && x[indices[end] as usize].rank() >> 32 == top {
            end += 1;
        }
        if end - start > 1 {
            let len = end - start;
            let words = Scratch::<u64>::new(2 * len);
            // SAFETY: the buffer holds `2 * len` words, and each is written before it is read.
            let (row, scratch) = unsafe {
                for (i, index) in indices[start..end].iter().enumerate() {
                    *words.ptr().add(i) = u64::new(x[*index as usize].rank(), 32, *index);
                }
                (
                    std::slice::from_raw_parts_mut(words.ptr(), len),
                    std::slice::from_raw_parts_mut(words.ptr().add(len), len),
                )
            };
            words::sort(options, row, scratch, false);
            for (index, w) in indices[start..end].iter_mut().zip(row.iter()) {
                *index = *w as u32;
            }
        }
        start = end;
    }
}
