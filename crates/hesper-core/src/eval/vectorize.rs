//! Vectorized memory access of fused kernels on GPUs.
//!
//! A thread handles `lanes` neighbours and moves them in words of up to sixteen bytes. That needs inputs
//! whose neighbours are contiguous, or broadcast; other layouts take one element to a thread.
//! Where a single row is no multiple of the lanes, the last thread accesses memory past it: device
//! allocations are padded for that.

use crate::registry::Fusion;
use hesper_kernel::ir::{Builder, Scalar, Type, ValueId};

/// Fewer elements are not vectorized.
pub(super) const MIN_ELEMENTS: usize = 64;

/// How many elements a thread handles, from the widest element's size and the number of ops.
pub(super) fn lanes(widest: usize, ops: usize) -> usize {
    match (widest, ops) {
        (_, 33..) | (16.., _) => 1,
        (0..=2, 0..=16) => 8,
        _ => 4,
    }
}

/// The threadgroup of a fused kernel for a grid. Without vectorization a group is a piece of a row.
pub(super) fn threadgroup(fusion: Fusion, grid: [u64; 3]) -> [u64; 3] {
    const ROW_THREADS: u64 = 1024;
    let Some(threads) = fusion.vector_threads else { return [grid[0].min(ROW_THREADS), 1, 1] };
    let along = grid[0].next_power_of_two().min(threads);
    let across = (threads / along).min(grid[1].next_power_of_two());
    [along, across, 1]
}

/// Loads neighbours that lie side by side from element `index` on, which is a multiple of `lanes`.
pub(super) fn load(
    b: &mut Builder,
    pointer: ValueId,
    index: ValueId,
    scalar: Scalar,
    lanes: usize,
) -> Vec<ValueId> {
    let size = scalar.size() as usize;
    let start = b.ptr_offset(pointer, index, size as i64);
    let mut elements = Vec::with_capacity(lanes);
    if size == 8 {
        for pair in 0..lanes / 2 {
            let at = b.ptr_add(start, 16 * pair as i64);
            let both = b.load_aligned(at, Type::Vec(scalar, 2), 16);
            elements.extend([b.extract(both, 0), b.extract(both, 1)]);
        }
        return elements;
    }
    let words = lanes * size / 4;
    for first in (0..words).step_by(4) {
        let count = (words - first).min(4);
        let at = b.ptr_add(start, 4 * first as i64);
        let loaded = b.load_aligned(at, words_of(count), 4 * count as u32);
        for word in 0..count {
            let word = if count == 1 { loaded } else { b.extract(loaded, word as u8) };
            split(b, word, scalar, &mut elements);
        }
    }
    elements
}

/// Stores neighbours side by side, the first at element `index`.
pub(super) fn store(b: &mut Builder, pointer: ValueId, index: ValueId, elements: &[ValueId]) {
    let Some(scalar) = elements.first().and_then(|first| b.ty(*first).scalar()) else { return };
    let size = scalar.size() as usize;
    let start = b.ptr_offset(pointer, index, size as i64);
    if size == 8 {
        for (pair, both) in elements.chunks_exact(2).enumerate() {
            let at = b.ptr_add(start, 16 * pair as i64);
            let both = b.compose(both);
            b.store_aligned(at, both, 16);
        }
        return;
    }
    let words: Vec<ValueId> = elements.chunks_exact(4 / size).map(|parts| join(b, parts, scalar)).collect();
    for (piece, words) in words.chunks(4).enumerate() {
        let at = b.ptr_add(start, 16 * piece as i64);
        let value = if words.len() == 1 { words[0] } else { b.compose(words) };
        b.store_aligned(at, value, 4 * words.len() as u32);
    }
}

fn words_of(count: usize) -> Type {
    if count == 1 { Type::Scalar(Scalar::U32) } else { Type::Vec(Scalar::U32, count as u8) }
}

/// The elements of a word.
fn split(b: &mut Builder, word: ValueId, scalar: Scalar, elements: &mut Vec<ValueId>) {
    match scalar.size() {
        1 => {
            let byte = if scalar == Scalar::Bool { Scalar::U8 } else { scalar };
            let all = b.bitcast(word, Type::Vec(byte, 4));
            for lane in 0..4 {
                let one = b.extract(all, lane);
                elements.push(b.convert(one, scalar));
            }
        }
        2 => {
            let both = b.bitcast(word, Type::Vec(scalar, 2));
            elements.extend([b.extract(both, 0), b.extract(both, 1)]);
        }
        _ => elements.push(b.bitcast(word, Type::Scalar(scalar))),
    }
}

/// A word of elements.
fn join(b: &mut Builder, parts: &[ValueId], scalar: Scalar) -> ValueId {
    let word = Type::Scalar(Scalar::U32);
    match scalar.size() {
        1 => {
            let byte = if scalar == Scalar::Bool { Scalar::U8 } else { scalar };
            let bytes: Vec<ValueId> = parts.iter().map(|part| b.convert(*part, byte)).collect();
            let all = b.compose(&bytes);
            b.bitcast(all, word)
        }
        2 => {
            let both = b.compose(parts);
            b.bitcast(both, word)
        }
        _ => b.bitcast(parts[0], word),
    }
}
