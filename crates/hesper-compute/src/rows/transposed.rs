//! Sums and products of floats whose order of additions is not the order of memory: columns that are
//! contiguous, and rows that lie across or in lines. The bits are those of the order that the input asks for
//! ([`SumOrder`](super::input::SumOrder)).

use std::ops::Range;

use super::fold::{LANES, halves};
use super::input::{ReduceInput, Tile};
use super::reduce::{RUN, Reduction};
use super::source::{PackedLines, Plain};
use crate::simd::{Float, Isa, Kernel, Simd, dispatch};

/// Vectors of accumulators of one lane of rows.
const ABREAST: usize = 8;

/// Reduces columns that are contiguous in memory, each to one result, in the order of columns.
pub(super) fn contiguous_columns<T: Float + Plain>(
    level: Simd,
    op: Reduction,
    x: &ReduceInput<'_, T>,
    columns: Range<usize>,
    rows: Range<usize>,
    out: &mut [f32],
) {
    dispatch(level, Columns { op, x, columns, rows, out });
}

struct Columns<'a, 'x, T> {
    op: Reduction,
    x: &'a ReduceInput<'x, T>,
    columns: Range<usize>,
    rows: Range<usize>,
    out: &'a mut [f32],
}

impl<T: Float + Plain> Kernel for Columns<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Columns { op, x, columns, rows, out } = self;
        for (column, out) in columns.zip(out) {
            let line = x.line(column, rows.clone());
            *out = if op == Reduction::Prod {
                column_of::<S, T, true>(s, line)
            } else {
                column_of::<S, T, false>(s, line)
            };
        }
    }
}

#[inline(always)]
fn join<const PROD: bool>(a: f32, b: f32) -> f32 {
    if PROD { a * b } else { a + b }
}

#[inline(always)]
fn join_vectors<S: Isa, const PROD: bool>(s: S, a: S::F, b: S::F) -> S::F {
    if PROD { s.mul(a, b) } else { s.add(a, b) }
}

#[inline(always)]
fn start<const PROD: bool>() -> f32 {
    if PROD { 1.0 } else { 0.0 }
}

/// Groups of four in runs of [`RUN`], runs one after the other.
#[inline(always)]
fn column_of<S: Isa, T: Float, const PROD: bool>(s: S, x: &[T]) -> f32 {
    if x.len() <= RUN {
        return short_run::<T, PROD>(x);
    }
    let (runs, rest) = x.as_chunks::<RUN>();
    let mut total = start::<PROD>();
    for runs in runs.chunks(S::LANES) {
        let mut totals = [0.0; 16];
        // SAFETY: a vector has at most sixteen lanes.
        unsafe { s.store(totals.as_mut_ptr(), lanes_of_runs::<S, T, PROD>(s, runs)) };
        for one in &totals[..runs.len()] {
            total = join::<PROD>(total, *one);
        }
    }
    if rest.is_empty() { total } else { join::<PROD>(total, short_run::<T, PROD>(rest)) }
}

/// At most a run.
#[inline(always)]
fn short_run<T: Float, const PROD: bool>(x: &[T]) -> f32 {
    let (fours, rest) = x.as_chunks::<4>();
    let mut total = start::<PROD>();
    for [a, b, c, d] in fours {
        let two = join::<PROD>(a.to_f32(), b.to_f32());
        total = join::<PROD>(total, join::<PROD>(two, join::<PROD>(c.to_f32(), d.to_f32())));
    }
    rest.iter().fold(total, |total, x| join::<PROD>(total, x.to_f32()))
}

/// Vector `i` of some elements; zeros beyond them.
#[inline(always)]
fn vector<S: Isa, T: Float>(s: S, x: &[T], i: usize) -> S::F {
    match x.get(i * S::LANES..(i + 1) * S::LANES) {
        // SAFETY: a whole vector.
        Some(x) => unsafe { T::load(s, x.as_ptr()) },
        None => s.zero(),
    }
}

/// Joins neighbours of two vectors, in each quarter.
#[inline(always)]
fn halved<S: Isa, const PROD: bool>(s: S, a: S::F, b: S::F) -> S::F {
    let (even, odd) = s.unzip_quarters(a, b);
    join_vectors::<S, PROD>(s, even, odd)
}

/// At most `LANES` runs, one result in each lane.
#[inline(always)]
fn lanes_of_runs<S: Isa, T: Float, const PROD: bool>(s: S, runs: &[[T; RUN]]) -> S::F {
    let x = runs.as_flattened();
    // Lane `4 * q + v` has the group of four that quarter `q` of vector `v` of four vectors is.
    let mut fours = [s.zero(); RUN / 4];
    for (i, four) in fours.iter_mut().enumerate() {
        let low = halved::<S, PROD>(s, vector(s, x, 4 * i), vector(s, x, 4 * i + 1));
        let high = halved::<S, PROD>(s, vector(s, x, 4 * i + 2), vector(s, x, 4 * i + 3));
        *four = halved::<S, PROD>(s, low, high);
    }
    // A run has eight groups of four: vector `g` gets group `g` of each run. Each step splits by one bit of
    // the group: of the vector, or of the quarter. Four vectors are two runs, or one if half as wide.
    let wide = S::LANES == 16;
    const { assert!(S::LANES == 16 || S::LANES == 8) };
    let split = |from: &[S::F], quarters: bool, zero: &mut [S::F], one: &mut [S::F]| {
        for ((zero, one), pair) in zero.iter_mut().zip(one).zip(from.chunks_exact(2)) {
            let (a, b) = (pair[0], pair[1]);
            (*zero, *one) = if quarters { s.split_quarters(a, b) } else { s.unzip_quarters(a, b) };
        }
    };
    let bits = if wide { [4, 1, 2] } else { [2, 4, 1] };
    let (mut zero, mut one) = ([s.zero(); 4], [s.zero(); 4]);
    split(&fours, false, &mut zero, &mut one);
    let mut groups = [s.zero(); 8];
    for (i, half) in [zero, one].iter().enumerate() {
        let (mut zero, mut one) = ([s.zero(); 2], [s.zero(); 2]);
        split(half, wide, &mut zero, &mut one);
        for (j, [a, b]) in [zero, one].into_iter().enumerate() {
            let at = i * bits[0] + j * bits[1];
            (groups[at], groups[at + bits[2]]) = s.split_quarters(a, b);
        }
    }
    let mut total = s.splat(start::<PROD>());
    for group in groups {
        total = join_vectors::<S, PROD>(s, total, group);
    }
    total
}

/// Reduces a block of a row that lies in lines, with the tree of a contiguous block.
pub(super) fn block_of_lines<T: Float>(level: Simd, op: Reduction, x: PackedLines<'_, T>) -> f32 {
    dispatch(level, Lines { op, x })
}

struct Lines<'a, T> {
    op: Reduction,
    x: PackedLines<'a, T>,
}

impl<T: Float> Kernel for Lines<'_, T> {
    type Out = f32;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> f32 {
        if self.op == Reduction::Prod {
            block::<S, T, true>(s, self.x)
        } else {
            block::<S, T, false>(s, self.x)
        }
    }
}

#[inline(always)]
fn block<S: Isa, T: Float, const PROD: bool>(s: S, x: PackedLines<'_, T>) -> f32 {
    const MAX_VECTORS: usize = 8;
    const { assert!(LANES / S::LANES <= MAX_VECTORS) };
    let vectors = LANES / S::LANES;
    let mut acc = [start::<PROD>(); LANES];
    // The lane of the next element.
    let mut lane = 0;
    for stretch in x.stretches() {
        let (head, rest) = stretch.split_at((LANES - lane).min(stretch.len()) * usize::from(lane > 0));
        join_some::<S, T, PROD>(s, head, &mut acc[lane..]);
        let (chunks, tail) = rest.as_chunks::<LANES>();
        if !chunks.is_empty() {
            let mut totals = [s.zero(); MAX_VECTORS];
            for (v, total) in totals.iter_mut().enumerate().take(vectors) {
                // SAFETY: a whole vector of the accumulators.
                *total = unsafe { s.load(acc.as_ptr().add(v * S::LANES)) };
            }
            for chunk in chunks {
                for (v, total) in totals.iter_mut().enumerate().take(vectors) {
                    // SAFETY: a whole vector of the chunk.
                    let x = unsafe { T::load(s, chunk.as_ptr().add(v * S::LANES)) };
                    *total = join_vectors::<S, PROD>(s, *total, x);
                }
            }
            for (v, total) in totals.iter().enumerate().take(vectors) {
                // SAFETY: as above.
                unsafe { s.store(acc.as_mut_ptr().add(v * S::LANES), *total) };
            }
        }
        join_some::<S, T, PROD>(s, tail, &mut acc);
        lane = (lane + stretch.len()) % LANES;
    }
    halves(if PROD { Reduction::Prod } else { Reduction::Sum }, &mut acc)
}

/// Joins fewer elements than there are lanes to the first accumulators.
#[inline(always)]
fn join_some<S: Isa, T: Float, const PROD: bool>(s: S, x: &[T], acc: &mut [f32]) {
    for (x, acc) in x.chunks(S::LANES).zip(acc.chunks_mut(S::LANES)) {
        let n = x.len();
        // SAFETY: both have `n` elements: only the last chunk of the accumulators may be short.
        unsafe {
            let total = join_vectors::<S, PROD>(s, s.load_n(acc.as_ptr(), n), T::load_n(s, x.as_ptr(), n));
            s.store_n(acc.as_mut_ptr(), total, n);
        }
    }
}

/// Reduces rows that lie across: lane `l` of all results, `acc[l * n..]`, combines the elements `l`,
/// `l + lanes` and so on of the columns `first..first + n` of a tile.
pub(super) fn lanes_across<T: Float>(
    level: Simd,
    op: Reduction,
    tile: &Tile<'_, T>,
    first: usize,
    lanes: usize,
    acc: &mut [f32],
) {
    dispatch(level, Across { op, tile, first, lanes, acc });
}

struct Across<'a, 't, T> {
    op: Reduction,
    tile: &'a Tile<'t, T>,
    first: usize,
    lanes: usize,
    acc: &'a mut [f32],
}

impl<T: Float> Kernel for Across<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        if self.op == Reduction::Prod {
            across::<S, T, true>(s, self)
        } else {
            across::<S, T, false>(s, self)
        }
    }
}

#[inline(always)]
fn across<S: Isa, T: Float, const PROD: bool>(s: S, all: Across<'_, '_, T>) {
    let Across { tile, first, lanes, acc, .. } = all;
    let n = acc.len() / lanes;
    for (lane, acc) in acc.chunks_exact_mut(n).enumerate() {
        let rows = (lane..tile.rows).step_by(lanes);
        for (at, acc) in acc.chunks_mut(ABREAST * S::LANES).enumerate() {
            let (from, n) = (first + at * ABREAST * S::LANES, acc.len());
            let mut totals = [s.splat(start::<PROD>()); ABREAST];
            if n == ABREAST * S::LANES {
                for k in rows.clone() {
                    let row = &tile.row(k)[from..from + n];
                    for (v, total) in totals.iter_mut().enumerate() {
                        // SAFETY: a whole vector of the row.
                        let x = unsafe { T::load(s, row.as_ptr().add(v * S::LANES)) };
                        *total = join_vectors::<S, PROD>(s, *total, x);
                    }
                }
            } else {
                for k in rows.clone() {
                    let row = &tile.row(k)[from..from + n];
                    for (x, total) in row.chunks(S::LANES).zip(&mut totals) {
                        // SAFETY: the chunk has as many elements.
                        let x = unsafe { T::load_n(s, x.as_ptr(), x.len()) };
                        *total = join_vectors::<S, PROD>(s, *total, x);
                    }
                }
            }
            for (acc, total) in acc.chunks_mut(S::LANES).zip(totals) {
                // SAFETY: the chunk has as many elements.
                unsafe { s.store_n(acc.as_mut_ptr(), total, acc.len()) };
            }
        }
    }
}
