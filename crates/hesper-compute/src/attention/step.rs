//! A decode step: one new token per sequence is appended to the KV cache and attends to it.
//!
//! Queries, keys and values of a token are adjacent, as the fused projection writes them, and get their
//! rotary position embedding here. The cache of a sequence is one block: the rows of all key heads, then of
//! all value heads. Or it is a table of pages, which are such blocks in a pool, and may store rows with fewer
//! bits ([`RowFormat`]). A sequence reads only its own rows, so its result does not depend on the batch.

use super::rows::{Affine, Dense};
use super::{AttentionShape, Heads, HeadsMut, Job, Mask, RowFormat, decode};
use crate::error::{Mismatch, at_least, multiple, product, same, supported};
use crate::par::Par;
use crate::scratch::Scratch;
use crate::simd::Float;

/// The sizes of a decode step.
#[derive(Clone, Copy, Debug)]
pub struct StepShape {
    /// Heads of queries; a multiple of `kv_heads`.
    pub q_heads: usize,
    /// Heads of keys, and of values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub width: usize,
    /// Rows that a cache block has room for.
    pub room: usize,
    /// How rows are stored.
    pub rows: RowFormat,
}

/// Parameters of the rotary position embedding.
#[derive(Clone, Copy, Debug)]
pub struct Rotary<'a> {
    /// Angle increment per position, for each pair.
    pub steps: &'a [f32],
    /// Whether pairs are adjacent elements; otherwise the second half of a head holds the partners of the
    /// first.
    pub traditional: bool,
    /// Factor of positions.
    pub scale: f32,
}

impl Rotary<'_> {
    /// Cosines and sines of a position.
    fn angles(&self, position: usize, to: &mut [f32]) {
        let position = position as f32 * self.scale;
        let (cos, sin) = to.split_at_mut(self.steps.len());
        for ((step, cos), sin) in self.steps.iter().zip(cos).zip(sin) {
            (*sin, *cos) = (position * step).sin_cos();
        }
    }

    /// Writes a head, rotated.
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

/// The pages of each sequence: page `tables[n][i / rows]` of a pool holds row `i` of sequence `n`.
#[derive(Clone, Copy, Debug)]
pub struct PageTables<'a> {
    /// The pages of each sequence, in the order of their rows.
    pub tables: &'a [Vec<u32>],
    /// Rows of a page.
    pub rows: usize,
}

impl PageTables<'_> {
    /// The page of a row, and the index of the row in it.
    #[inline(always)]
    pub fn find(&self, sequence: usize, row: usize) -> (usize, usize) {
        (self.tables[sequence][row / self.rows] as usize, row % self.rows)
    }

    /// [`PageTables::find`], if the sequence and the pool have the page.
    fn checked(&self, sequence: usize, row: usize, pages: usize) -> Result<(usize, usize), Mismatch> {
        at_least("pages of a sequence", row / self.rows + 1, self.tables[sequence].len())?;
        let (page, row) = self.find(sequence, row);
        at_least("pages of the pool", page + 1, pages)?;
        Ok((page, row))
    }
}

impl StepShape {
    /// Elements of a token: queries, keys and values.
    fn token(&self) -> usize {
        (self.q_heads + 2 * self.kv_heads) * self.width
    }

    /// The bytes of a stored row.
    pub fn row_bytes(&self) -> usize {
        self.rows.unit() * self.rows.units(self.width)
    }

    /// The offset in bytes of a row in the cache block of a sequence; value heads follow key heads.
    pub fn row(&self, sequence: usize, head: usize, row: usize) -> usize {
        ((sequence * 2 * self.kv_heads + head) * self.room + row) * self.row_bytes()
    }

    fn check<T>(
        &self,
        tokens: &[T],
        starts: &[usize],
        pages: Option<PageTables<'_>>,
        rotary: Option<&Rotary<'_>>,
    ) -> Result<(), Mismatch> {
        same("elements of the tokens", product("tokens", &[starts.len(), self.token()])?, tokens.len())?;
        if let RowFormat::Affine { bits, group } = self.rows {
            supported(matches!(bits, 4 | 8), "this number of bits of a code", "give 4 or 8")?;
            at_least("codes of a group", 32, group)?;
            multiple("codes of a group", 32, group)?;
            multiple("elements of a head", group, self.width)?;
        }
        match pages {
            None => {
                at_least("room for the rows", starts.iter().max().map_or(0, |start| start + 1), self.room)?
            }
            Some(pages) => {
                same("page tables", starts.len(), pages.tables.len())?;
                same("rows of a page", self.room, pages.rows.max(1))?;
            }
        }
        at_least("elements of a head", rotary.map_or(0, |rotary| 2 * rotary.steps.len()), self.width)
    }
}

/// Appends the keys and values of one token to each sequence: sequence `n` has `starts[n]` rows already.
/// `block` begins at byte `first` of the cache block, or of the pool of pages, and reaches at least to the
/// last row that is written.
pub fn append_step<T: Float>(
    shape: StepShape,
    tokens: &[T],
    starts: &[usize],
    pages: Option<PageTables<'_>>,
    rotary: Option<Rotary<'_>>,
    block: &mut [u8],
    first: usize,
) -> Result<(), Mismatch> {
    shape.check(tokens, starts, pages, rotary.as_ref())?;
    let StepShape { q_heads, kv_heads, width, .. } = shape;
    let length = block.len();
    let mut angles = vec![0.0f32; 2 * rotary.map_or(0, |rotary| rotary.steps.len())];
    let (mut plain, mut rotated) = (vec![0.0f32; width], vec![0.0f32; width]);
    for (sequence, (token, &start)) in tokens.chunks_exact(shape.token()).zip(starts).enumerate() {
        if let Some(rotary) = &rotary {
            rotary.angles(start, &mut angles);
        }
        let (at, row) = match pages {
            None => (sequence, start),
            Some(pages) => pages.checked(sequence, start, 1 + u32::MAX as usize)?,
        };
        for head in 0..2 * kv_heads {
            let from = &token[(q_heads + head) * width..][..width];
            plain.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
            let begin = shape.row(at, head, row).checked_sub(first);
            let Some(to) = begin.and_then(|begin| block.get_mut(begin..begin + shape.row_bytes())) else {
                let (what, needed) = ("bytes of the block", shape.row(at, head, row) + shape.row_bytes());
                return Err(Mismatch::TooFew { what, needed, given: first + length });
            };
            match &rotary {
                Some(rotary) if head < kv_heads => {
                    rotary.apply(&angles, &plain, &mut rotated);
                    rotated.iter_mut().for_each(|x| *x = T::from_f32(*x).to_f32());
                    shape.rows.write(&rotated, to);
                }
                _ => shape.rows.write(&plain, to),
            }
        }
    }
    Ok(())
}

/// Attention of the queries of one token per sequence over the last `window` rows of the sequence, including
/// that of the token. `block` is the whole cache block, or the pool of pages, aligned for its elements.
pub fn attend_step<T: Float>(
    par: &dyn Par,
    shape: StepShape,
    tokens: &[T],
    starts: &[usize],
    pages: Option<PageTables<'_>>,
    rotary: Option<Rotary<'_>>,
    block: &[u8],
    scale: f32,
    window: usize,
    out: &mut [T],
) -> Result<(), Mismatch> {
    shape.check(tokens, starts, pages, rotary.as_ref())?;
    let StepShape { q_heads, kv_heads, width, room, rows } = shape;
    multiple("query heads", kv_heads, q_heads)?;
    same("elements of the result", starts.len() * q_heads * width, out.len())?;
    if out.is_empty() || kv_heads == 0 {
        return Ok(());
    }
    multiple("address of the block", rows.unit(), block.as_ptr().addr())?;
    let spans: Vec<(usize, usize)> =
        starts.iter().map(|start| ((start + 1).saturating_sub(window.max(1)), start + 1)).collect();
    match pages {
        None => at_least(
            "bytes of the block",
            product("rows", &[starts.len(), 2 * kv_heads, room, shape.row_bytes()])?,
            block.len(),
        )?,
        Some(pages) => {
            let held = block.len() / (2 * kv_heads * room * shape.row_bytes()).max(1);
            for (sequence, (from, to)) in spans.iter().enumerate() {
                for page in from / room..to.div_ceil(room) {
                    pages.checked(sequence, page * room, held)?;
                }
            }
        }
    }
    let rotated = Scratch::<T>::new(out.len());
    // SAFETY: the buffer has that many elements, and they are written before they are read.
    let rotated = unsafe { std::slice::from_raw_parts_mut(rotated.ptr(), out.len()) };
    let mut angles = vec![0.0f32; 2 * rotary.map_or(0, |rotary| rotary.steps.len())];
    let (mut plain, mut turned) = (vec![0.0f32; width], vec![0.0f32; width]);
    let each = tokens.chunks_exact(shape.token()).zip(rotated.chunks_exact_mut(q_heads * width)).zip(starts);
    for ((token, to), &start) in each {
        match &rotary {
            None => to.copy_from_slice(&token[..q_heads * width]),
            Some(rotary) => {
                rotary.angles(start, &mut angles);
                for (from, to) in token.chunks_exact(width).zip(to.chunks_exact_mut(width)) {
                    plain.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
                    rotary.apply(&angles, &plain, &mut turned);
                    to.iter_mut().zip(&turned).for_each(|(to, from)| *to = T::from_f32(*from));
                }
            }
        }
    }
    let kv_len = spans.iter().map(|span| span.1).max().unwrap_or(0);
    let row = rows.units(width);
    let strides = [2 * kv_heads * room * row, room * row, row].map(|stride| stride as isize);
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
        q: Heads { ptr: rotated.as_ptr().cast(), strides: own },
        k: Heads { ptr: block.as_ptr().cast(), strides },
        v: Heads { ptr: block.as_ptr().wrapping_add(kv_heads * room * shape.row_bytes()).cast(), strides },
        out: HeadsMut { ptr: out.as_mut_ptr().cast(), strides: own },
        scale,
        mask: Mask::All,
        sinks: None,
        spans: Some(&spans),
        pages,
        group: if let RowFormat::Affine { group, .. } = rows { group } else { 0 },
    };
    match rows {
        RowFormat::F32 => decode::run::<T, Dense<f32>>(par, &job),
        RowFormat::F16 => decode::run::<T, Dense<half::f16>>(par, &job),
        RowFormat::Bf16 => decode::run::<T, Dense<half::bf16>>(par, &job),
        RowFormat::Affine { bits: 4, .. } => decode::run::<T, Affine<4>>(par, &job),
        RowFormat::Affine { .. } => decode::run::<T, Affine<8>>(par, &job),
    }
    Ok(())
}
