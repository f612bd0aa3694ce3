//! One new token for each of some sequences: its keys and values are kept, and its queries attend to what is kept.
//!
//! Queries, keys and values of a token come side by side, as one product gives them, and are turned by their
//! position on the way. Kept keys and values of a sequence lie in one block: rows of all key heads, then of all value
//! heads. Each sequence sees its own rows, so its result does not depend on the others.

use super::{AttentionShape, Heads, HeadsMut, Job, Mask, decode};
use crate::error::{Mismatch, at_least, product, same};
use crate::par::Par;
use crate::scratch::Scratch;

/// The sizes of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepShape {
    /// Heads of queries; a multiple of `kv_heads`.
    pub q_heads: usize,
    /// Heads of keys, and of values.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub width: usize,
    /// Rows that a block has room for.
    pub room: usize,
}

/// How pairs of numbers are turned.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// By how much the angle of each pair grows from one position to the next.
    pub steps: &'a [f32],
    /// Whether pairs are neighbours; otherwise they are as far apart as there are pairs.
    pub traditional: bool,
    /// What positions are multiplied by.
    pub scale: f32,
}

impl Turn<'_> {
    /// Cosines and sines of a position.
    fn angles(&self, position: usize, to: &mut [f32]) {
        let position = position as f32 * self.scale;
        let (cos, sin) = to.split_at_mut(self.steps.len());
        for ((step, cos), sin) in self.steps.iter().zip(cos).zip(sin) {
            (*sin, *cos) = (position * step).sin_cos();
        }
    }

    /// Writes a head, turned.
    fn apply(&self, angles: &[f32], from: &[f32], to: &mut [f32]) {
        let pairs = self.steps.len();
        let (cos, sin) = angles.split_at(pairs);
        to[2 * pairs..].copy_from_slice(&from[2 * pairs..]);
        for pair in 0..pairs {
            let (i, j) = if self.traditional { (2 * pair, 2 * pair + 1) } else { (pair, pairs + pair) };
            let (x, y) = (from[i], from[j]);
            to[i] = x * cos[pair] - y * sin[pair];
            to[j] = x * sin[pair] + y * cos[pair];
        }
    }
}

impl StepShape {
    /// Numbers of a token: queries, keys and values.
    fn token(&self) -> usize {
        (self.q_heads + 2 * self.kv_heads) * self.width
    }

    /// Where a row of the block of a sequence begins; value heads follow those of keys.
    fn row(&self, sequence: usize, head: usize, row: usize) -> usize {
        ((sequence * 2 * self.kv_heads + head) * self.room + row) * self.width
    }

    fn check(&self, tokens: &[f32], starts: &[usize], turn: Option<&Turn<'_>>) -> Result<(), Mismatch> {
        same("elements of the tokens", product("tokens", &[starts.len(), self.token()])?, tokens.len())?;
        at_least("room for the rows", starts.iter().max().map_or(0, |start| start + 1), self.room)?;
        at_least("numbers of a head", turn.map_or(0, |turn| 2 * turn.steps.len()), self.width)
    }
}

/// Writes the keys and values of one token of each sequence behind the `starts` rows that it has. `block` begins
/// at element `first` of the block, and reaches at least to the last row that is written.
pub fn keep_step(
    shape: StepShape,
    tokens: &[f32],
    starts: &[usize],
    turn: Option<Turn<'_>>,
    block: &mut [f32],
    first: usize,
) -> Result<(), Mismatch> {
    shape.check(tokens, starts, turn.as_ref())?;
    let StepShape { q_heads, kv_heads, width, .. } = shape;
    let pairs = turn.map_or(0, |turn| turn.steps.len());
    let angles = Scratch::<f32>::new(2 * pairs);
    // SAFETY: the buffer has that many elements, and they are written before they are read.
    let angles = unsafe { std::slice::from_raw_parts_mut(angles.ptr(), 2 * pairs) };
    for (sequence, (token, &start)) in tokens.chunks_exact(shape.token()).zip(starts).enumerate() {
        if let Some(turn) = &turn {
            turn.angles(start, angles);
        }
        for head in 0..2 * kv_heads {
            let from = &token[(q_heads + head) * width..][..width];
            let begin = shape.row(sequence, head, start).checked_sub(first);
            let Some(to) = begin.and_then(|begin| block.get_mut(begin..begin + width)) else {
                return same("rows of the block that are there", 1, 0);
            };
            match &turn {
                Some(turn) if head < kv_heads => turn.apply(angles, from, to),
                _ => to.copy_from_slice(from),
            }
        }
    }
    Ok(())
}

/// The queries of one token of each sequence attend to its rows, that of the token included: the last `window` of
/// them. `block` is the whole block.
pub fn attend_step(
    par: &dyn Par,
    shape: StepShape,
    tokens: &[f32],
    starts: &[usize],
    turn: Option<Turn<'_>>,
    block: &[f32],
    scale: f32,
    window: usize,
    out: &mut [f32],
) -> Result<(), Mismatch> {
    shape.check(tokens, starts, turn.as_ref())?;
    let StepShape { q_heads, kv_heads, width, room } = shape;
    let heads = kv_heads.max(1);
    same("query heads in whole groups", q_heads / heads * heads, q_heads)?;
    same("elements of the result", starts.len() * q_heads * width, out.len())?;
    at_least(
        "elements of the block",
        product("rows", &[starts.len(), 2 * kv_heads, room, width])?,
        block.len(),
    )?;
    if out.is_empty() || kv_heads == 0 {
        return Ok(());
    }
    let pairs = turn.map_or(0, |turn| turn.steps.len());
    let queries = Scratch::<f32>::new(out.len() + 2 * pairs);
    // SAFETY: the buffer has that many elements, and they are written before they are read.
    let all = unsafe { std::slice::from_raw_parts_mut(queries.ptr(), out.len() + 2 * pairs) };
    let (turned, angles) = all.split_at_mut(out.len());
    let each = tokens.chunks_exact(shape.token()).zip(turned.chunks_exact_mut(q_heads * width)).zip(starts);
    for ((token, to), &start) in each {
        match &turn {
            None => to.copy_from_slice(&token[..q_heads * width]),
            Some(turn) => {
                turn.angles(start, angles);
                for (from, to) in token.chunks_exact(width).zip(to.chunks_exact_mut(width)) {
                    turn.apply(angles, from, to);
                }
            }
        }
    }
    let spans: Vec<(usize, usize)> =
        starts.iter().map(|start| ((start + 1).saturating_sub(window.max(1)), start + 1)).collect();
    let kv_len = spans.iter().map(|span| span.1).max().unwrap_or(0);
    let strides = [2 * kv_heads * room * width, room * width, width].map(|stride| stride as isize);
    let own = [q_heads * width, width, q_heads * width].map(|stride| stride as isize);
    let job = Job {
        shape: AttentionShape {
            batch: starts.len(),
            q_heads,
            kv_heads,
            q_len: 1,
            kv_len,
            head_dim: width,
            value_dim: width,
        },
        q: Heads { ptr: turned.as_ptr().cast(), strides: own },
        k: Heads { ptr: block.as_ptr().cast(), strides },
        v: Heads { ptr: block.as_ptr().wrapping_add(kv_heads * room * width).cast(), strides },
        out: HeadsMut { ptr: out.as_mut_ptr().cast(), strides: own },
        scale,
        mask: Mask::All,
        sinks: None,
        spans: Some(&spans),
    };
    decode::run::<f32>(par, &job);
    Ok(())
}
