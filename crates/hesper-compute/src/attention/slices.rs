//! Attention on slices: the same kernels, after a check that every row lies within its slice.

use super::{AttentionShape, Heads, HeadsMut, Mask, attention};
use crate::error::{Mismatch, reached, same};
use crate::par::Par;
use crate::simd::Float;

/// Rows of heads in a slice: row `i` of head `h` of sequence `b` begins at
/// `first + b * strides[0] + h * strides[1] + i * strides[2]` and is contiguous.
#[derive(Clone, Copy, Debug)]
pub struct HeadSlice<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Where the first row begins.
    pub first: usize,
    /// Strides of sequences, heads and rows, in elements.
    pub strides: [isize; 3],
}

/// Which keys a query sees, as slices.
#[derive(Clone, Copy, Debug, Default)]
pub enum MaskSlice<'a, T> {
    /// All keys.
    #[default]
    All,
    /// Keys up to the query's position; the last query is aligned with the last key.
    Causal,
    /// Keys whose mark is not zero. A query without any such key gives all keys the same weight.
    Marked {
        /// The marks.
        data: &'a [u8],
        /// The index of the first mark.
        first: usize,
        /// Strides of sequences, query heads, queries and keys; zero where the mask is broadcast.
        strides: [isize; 4],
    },
    /// All keys, with a bias added to the scores.
    Added {
        /// The biases.
        data: &'a [T],
        /// The index of the first bias.
        first: usize,
        /// Strides of sequences, query heads, queries and keys; zero where the mask is broadcast.
        strides: [isize; 4],
    },
}

/// `Ok` if every row of `row` elements that the strides reach lies in a slice of `len` elements.
pub(super) fn inside(
    what: &'static str,
    len: usize,
    first: usize,
    counts: &[usize],
    strides: &[isize],
    row: usize,
) -> Result<(), Mismatch> {
    if counts.contains(&0) || row == 0 {
        return Ok(());
    }
    let (mut low, mut high) = (first as i128, first as i128 + row as i128);
    for (count, stride) in counts.iter().zip(strides) {
        let far = (*count as i128 - 1) * *stride as i128;
        low += far.min(0);
        high += far.max(0);
    }
    reached(what, low, high - 1, len)
}

/// The rows of a slice as a pointer.
pub(super) fn heads_of<T>(heads: HeadSlice<'_, T>) -> Heads<T> {
    Heads { ptr: heads.data.as_ptr().wrapping_add(heads.first), strides: heads.strides }
}

/// The mask as pointers, if it has an element for every score.
pub(super) fn mask_of<T>(s: &AttentionShape, mask: MaskSlice<'_, T>) -> Result<Mask<T>, Mismatch> {
    let scores = [s.batch, s.q_heads, s.q_len, s.kv_len];
    Ok(match mask {
        MaskSlice::All => Mask::All,
        MaskSlice::Causal => Mask::Causal,
        MaskSlice::Marked { data, first, strides } => {
            inside("marks of the mask", data.len(), first, &scores, &strides, 1)?;
            Mask::Marked { ptr: data.as_ptr().wrapping_add(first), strides }
        }
        MaskSlice::Added { data, first, strides } => {
            inside("elements of the mask", data.len(), first, &scores, &strides, 1)?;
            Mask::Added { ptr: data.as_ptr().wrapping_add(first), strides }
        }
    })
}

/// `softmax(q k^T * scale + mask) v` for every head, written as sequences, queries, query heads, values: the
/// heads of a query are adjacent, as the output projection needs them. `sinks` has one extra score without a
/// value per query head.
pub fn attention_slices<T: Float>(
    par: &dyn Par,
    shape: AttentionShape,
    q: HeadSlice<'_, T>,
    k: HeadSlice<'_, T>,
    v: HeadSlice<'_, T>,
    out: &mut [T],
    scale: f32,
    mask: MaskSlice<'_, T>,
    sinks: Option<&[f32]>,
) -> Result<(), Mismatch> {
    let s = &shape;
    let rows = |heads: HeadSlice<'_, T>, what, heads_count, len, width| {
        let counts = [s.batch, heads_count, len];
        inside(what, heads.data.len(), heads.first, &counts, &heads.strides, width)
    };
    rows(q, "elements of the queries", s.q_heads, s.q_len, s.head_dim)?;
    rows(k, "elements of the keys", s.kv_heads, s.kv_len, s.head_dim)?;
    rows(v, "elements of the values", s.kv_heads, s.kv_len, s.value_dim)?;
    let sizes = [s.batch, s.q_heads, s.q_len, s.value_dim];
    same("elements of the result", crate::error::product("elements of the result", &sizes)?, out.len())?;
    let mask = mask_of(s, mask)?;
    let heads = heads_of::<T>;
    let (row, across) = (s.value_dim as isize, (s.value_dim * s.q_heads) as isize);
    let strides = [across * s.q_len as isize, row, across];
    let to = HeadsMut { ptr: out.as_mut_ptr(), strides };
    // SAFETY: every row, mark and bias that shapes and strides describe lies within its slice, and the rows
    // of the result are distinct parts of a slice that is borrowed mutably.
    unsafe { attention(par, shape, heads(q), heads(k), heads(v), to, scale, mask, sinks) }
}
