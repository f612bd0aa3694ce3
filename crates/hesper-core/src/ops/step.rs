//! A decode step: one new token of each sequence is appended to the KV cache and attends to it.
//!
//! The rows of a sequence are one block, or pages of a pool that a page table lists ([`Pages`]): pages need
//! not be adjacent, and sequences can share them.
//!
//! One product computes queries, keys and values of a token side by side. The same commands rotate them by
//! their position, so a layer takes two commands instead of five.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use smallvec::smallvec;

use super::append::append;
use super::attention::{AttentionMask, scaled_dot_product_attention};
use super::concat::concatenate;
use super::quant::QuantMode;
use super::{Op, OpRef, rope};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::identity::BitEq;

/// How the heads of a token are rotated by its position, as in [`rope`](crate::fast::rope).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RotaryFrequencies {
    /// The angle of each pair, in radians per position.
    pub steps: BitEq<Arc<[f32]>>,
    /// Whether the elements of a pair are neighbours. If not, they are half of the rotated elements apart.
    pub traditional: bool,
    /// The factor of positions.
    pub scale: BitEq<f32>,
}

impl RotaryFrequencies {
    /// The first `dims` elements of a head, by powers of a base. Positions are multiplied by `scale`.
    pub fn new(dims: usize, traditional: bool, base: f32, scale: f32) -> Self {
        RotaryFrequencies {
            steps: BitEq(rope::steps(dims / 2, Some(base), &[]).into()),
            traditional,
            scale: BitEq(scale),
        }
    }

    /// By periods: the positions for one radian of each pair.
    pub fn with_periods(periods: &[f32], traditional: bool, scale: f32) -> Self {
        RotaryFrequencies {
            steps: BitEq(rope::steps(periods.len(), None, periods).into()),
            traditional,
            scale: BitEq(scale),
        }
    }
}

/// How a pool of pages stores the rows of heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PageRows {
    /// In the dtype of the tokens.
    #[default]
    Exact,
    /// As float16.
    Half,
    /// Quantized as by [`Array::quantize`] with mode `affine`, in one array of uint32: a row has the words of
    /// its codes, then the scales of its groups as float32, then their biases.
    Affine {
        /// Bits of a code: 4 or 8.
        bits: usize,
        /// Codes of a group: a multiple of 32.
        group: usize,
    },
}

impl PageRows {
    /// The dtype of a pool for tokens of a dtype.
    pub fn dtype(self, tokens: Dtype) -> Dtype {
        match self {
            PageRows::Exact => tokens,
            PageRows::Half => Dtype::Float16,
            PageRows::Affine { .. } => Dtype::Uint32,
        }
    }

    /// The elements of a row in a pool for heads of `width` elements.
    pub fn width(self, width: usize) -> usize {
        match self {
            PageRows::Exact | PageRows::Half => width,
            PageRows::Affine { bits, group } => width * bits / 32 + 2 * (width / group.max(1)),
        }
    }

    /// Rows of floats as a pool stores them.
    pub fn encode(self, rows: &Array) -> Result<Array> {
        match self {
            PageRows::Exact => Ok(rows.clone()),
            PageRows::Half => rows.astype(Dtype::Float16),
            PageRows::Affine { bits, group } => {
                let (codes, scales, biases) = rows.quantize(Some(group), Some(bits), QuantMode::Affine)?;
                let word = |x: &Array| x.astype(Dtype::Float32)?.view(Dtype::Uint32);
                let biases = biases.map_or_else(|| scales.zeros_like(), Ok)?;
                concatenate(&[codes, word(&scales)?, word(&biases)?], -1)
            }
        }
    }

    /// The parts of quantized rows of heads of `width` elements: codes, scales and biases.
    pub fn parts(self, rows: &Array, width: usize, dtype: Dtype) -> Result<Option<[Array; 3]>> {
        let PageRows::Affine { bits, group } = self else { return Ok(None) };
        let last = rows.ndim().saturating_sub(1);
        let (words, groups) = ((width * bits / 32) as isize, (width / group.max(1)) as isize);
        let float = |from: isize| -> Result<Array> {
            rows.slice_axis(last, from, from + groups, 1)?.view(Dtype::Float32)?.astype(dtype)
        };
        Ok(Some([rows.slice_axis(last, 0, words, 1)?, float(words)?, float(words + groups)?]))
    }

    /// The floats of rows of heads of `width` elements.
    pub fn decode(self, rows: &Array, width: usize, dtype: Dtype) -> Result<Array> {
        match (self, self.parts(rows, width, dtype)?) {
            (PageRows::Affine { bits, group }, Some([codes, scales, biases])) => {
                codes.dequantize(&scales, Some(&biases), Some(group), Some(bits), QuantMode::Affine, None)
            }
            _ => rows.astype(dtype),
        }
    }
}

/// The pages of each sequence, in the order of their rows.
#[derive(Debug, Clone)]
pub struct PageTables(Arc<Tables>);

#[derive(Debug)]
struct Tables {
    pages: Vec<Vec<u32>>,
    /// The tables as an array, made when the first op needs it, for all layers of a step.
    array: OnceLock<Array>,
}

impl PageTables {
    /// The tables of shape (sequences, longest table), padded with zeros.
    fn array(&self) -> Result<Array> {
        if let Some(array) = self.0.array.get() {
            return Ok(array.clone());
        }
        let longest = self.iter().map(Vec::len).max().unwrap_or(0);
        let mut all = Vec::with_capacity(self.len() * longest);
        for table in self.iter() {
            all.extend_from_slice(table);
            all.resize(all.len() + longest - table.len(), 0);
        }
        let array = Array::try_from_slice(&all, &[self.len(), longest])?;
        Ok(self.0.array.get_or_init(|| array).clone())
    }
}

impl From<Vec<Vec<u32>>> for PageTables {
    fn from(pages: Vec<Vec<u32>>) -> Self {
        PageTables(Arc::new(Tables { pages, array: OnceLock::new() }))
    }
}

impl std::ops::Deref for PageTables {
    type Target = [Vec<u32>];

    fn deref(&self) -> &Self::Target {
        &self.0.pages
    }
}

impl PartialEq for PageTables {
    fn eq(&self, other: &Self) -> bool {
        self.0.pages == other.0.pages
    }
}

impl Eq for PageTables {}

impl Hash for PageTables {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.pages.hash(state);
    }
}

/// The pages of each sequence in a pool of pages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pages {
    /// Pages in the order of their rows: page `tables[n][i / rows]` of a pool of pages of `rows` rows holds
    /// row `i` of sequence `n`. Entries of pages that are not read may be any number.
    pub tables: PageTables,
    /// How rows are stored.
    pub rows: PageRows,
}

/// The heads of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StepHeads {
    /// The number of query heads.
    pub queries: usize,
    /// The number of key heads, and of value heads.
    pub keys: usize,
    /// Elements of a head.
    pub width: usize,
}

impl StepHeads {
    /// Fails if tokens or block have other shapes or types than the heads need, or if a sequence has no page
    /// for one of its last `window` rows.
    fn check(
        self,
        op: &str,
        tokens: &Array,
        block: &Array,
        starts: &[usize],
        pages: Option<&Pages>,
        window: usize,
    ) -> Result<()> {
        let StepHeads { queries, keys, width } = self;
        let rows = pages.map_or(PageRows::Exact, |pages| pages.rows);
        let known = match rows {
            PageRows::Exact | PageRows::Half => true,
            PageRows::Affine { bits, group } => {
                matches!(bits, 4 | 8) && group > 0 && group.is_multiple_of(32) && width.is_multiple_of(group)
            }
        };
        let fits = known
            && keys > 0
            && width > 0
            && queries.is_multiple_of(keys)
            && tokens.shape() == [starts.len(), (queries + 2 * keys) * width]
            && matches!(*block.shape(), [n, heads, room, own]
            if heads == 2 * keys && own == rows.width(width) && match pages {
                None => n == starts.len() && starts.iter().all(|start| *start < room),
                Some(pages) => room > 0 && pages.tables.len() == starts.len()
                    && starts.iter().zip(pages.tables.iter()).all(|(start, pages)| {
                        let first = (start + 1).saturating_sub(window) / room;
                        let read = pages.get(first..=start / room);
                        read.is_some_and(|read| read.iter().all(|page| (*page as usize) < n))
                    }),
            });
        if !fits {
            let what = format!(
                "tokens of shape {:?} at {starts:?} do not fit {self:?} and a block of shape {:?}",
                tokens.shape(),
                block.shape()
            );
            return Err(Error::shape(op, what).with_shapes([tokens, block]));
        }
        let dtype = tokens.dtype();
        let expected = rows.dtype(dtype);
        if !matches!(dtype, Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16) || block.dtype() != expected {
            let what = format!(
                "tokens must be floats and the block {expected}, not a block of {} and tokens",
                block.dtype()
            );
            return Err(Error::Type { op: op.into(), what, dtype });
        }
        Ok(())
    }

    /// `count` heads of tokens from head `before` on, as sequences of one row.
    fn part(self, tokens: &Array, before: usize, count: usize) -> Result<Array> {
        let (from, to) = ((before * self.width) as isize, ((before + count) * self.width) as isize);
        let heads = tokens.slice_axis(1, from, to, 1)?;
        heads.reshape(&[tokens.shape()[0] as isize, count as isize, 1, self.width as isize])
    }
}

/// Heads of one row, rotated by the positions of their sequences.
fn rotated(heads: &Array, starts: &[usize], turns: Option<&RotaryFrequencies>) -> Result<Array> {
    let Some(turns) = turns else { return Ok(heads.clone()) };
    let positions: Vec<i32> = starts.iter().map(|start| *start as i32).collect();
    let periods: Vec<f32> = turns.steps.0.iter().map(|step| 1.0 / step).collect();
    let (offset, periods) = (Array::from_slice(&positions), Array::from_slice(&periods));
    let dims = 2 * turns.steps.0.len();
    rope::rope(heads, dims, turns.traditional, None, turns.scale.0, offset, Some(&periods))
}

/// The first `rows` rows of every sequence, as a block.
fn gathered(pool: &Array, pages: &Pages, rows: usize) -> Result<Array> {
    let (held, room) = (pool.shape()[0] as u32, pool.shape()[2]);
    let count = rows.div_ceil(room.max(1));
    // Rows that are not read come from the first page of the pool.
    let page = |pages: &Vec<u32>, at: usize| pages.get(at).copied().filter(|page| *page < held).unwrap_or(0);
    let tables = &pages.tables;
    let all: Vec<u32> = tables.iter().flat_map(|pages| (0..count).map(|at| page(pages, at))).collect();
    let all = pool.take(&Array::try_from_slice(&all, &[tables.len(), count])?, Some(0))?;
    let (n, heads, width) = (tables.len() as isize, pool.shape()[1] as isize, pool.shape()[3] as isize);
    all.transpose(&[0, 2, 1, 3, 4])?.reshape(&[n, heads, (count * room) as isize, width])
}

impl Keep {
    /// The same as a graph of other ops.
    pub fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let (block, tokens) = (&inputs[0], &inputs[1]);
        let StepHeads { queries, keys, .. } = self.heads;
        let new = self.heads.part(tokens, queries, keys)?;
        let new = rotated(&new, &self.starts, self.turns.as_ref())?;
        let new = concatenate(&[new, self.heads.part(tokens, queries + keys, keys)?], 1)?;
        let Some(pages) = &self.pages else { return append(block, &new, &self.starts, block.shape()[2]) };
        let (heads, room, width) = (block.shape()[1] as isize, block.shape()[2], block.shape()[3] as isize);
        let (mut pool, new) = (block.clone(), pages.rows.encode(&new)?);
        for (at, (start, pages)) in self.starts.iter().zip(pages.tables.iter()).enumerate() {
            let (page, row) = (pages[start / room] as isize, (start % room) as isize);
            let new = new.slice_axis(0, at as isize, at as isize + 1, 1)?;
            pool =
                pool.slice_update(&new, &[page, 0, row, 0], &[page + 1, heads, row + 1, width], &[1; 4])?;
        }
        Ok(pool)
    }
}

impl Attend {
    /// The same as a graph of other ops.
    pub fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let (tokens, block) = (&inputs[0], &inputs[1]);
        let StepHeads { queries, keys, width } = self.heads;
        let q = rotated(&self.heads.part(tokens, 0, queries)?, &self.starts, self.turns.as_ref())?;
        let rows = self.starts.iter().max().map_or(0, |start| start + 1);
        let known = match &self.pages {
            None => block.clone(),
            Some(pages) => pages.rows.decode(&gathered(block, pages, rows)?, width, tokens.dtype())?,
        };
        let known = known.slice_axis(2, 0, rows as isize, 1)?;
        let (k, v) = (
            known.slice_axis(1, 0, keys as isize, 1)?,
            known.slice_axis(1, keys as isize, 2 * keys as isize, 1)?,
        );
        let seen = self.starts.iter().flat_map(|start| {
            let oldest = (start + 1).saturating_sub(self.window);
            (0..rows).map(move |row| u8::from(row <= *start && row >= oldest))
        });
        let seen: Vec<u8> = seen.collect();
        let marks = Array::from_bytes(&seen, Dtype::Bool, &[self.starts.len(), 1, 1, rows])?;
        let mask = match seen.contains(&0) {
            true => AttentionMask::Array(&marks),
            false => AttentionMask::None,
        };
        let y = scaled_dot_product_attention(&q, &k, &v, self.scale.0, mask, None)?;
        y.reshape(&[self.starts.len() as isize, (queries * width) as isize])
    }
}

const KEEP: &str = "keep_token";
const ATTEND: &str = "attend_token";

/// Inputs: the block or the pool of pages, the tokens; with pages, their tables of shape (sequences, pages).
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Keep {
    /// The heads of a token.
    pub heads: StepHeads,
    /// Rows before the token of each sequence.
    pub starts: Vec<usize>,
    /// The pages of each sequence, if they are in a pool.
    pub pages: Option<Pages>,
    /// The rotation of keys, if they are rotated.
    pub turns: Option<RotaryFrequencies>,
}

impl Op for Keep {
    fn name(&self) -> &'static str {
        KEEP
    }
}

/// Inputs: the tokens, the block or the pool of pages; with pages, their tables of shape (sequences, pages).
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Attend {
    /// The heads of a token.
    pub heads: StepHeads,
    /// Rows before the token of each sequence.
    pub starts: Vec<usize>,
    /// The pages of each sequence, if they are in a pool.
    pub pages: Option<Pages>,
    /// The rotation of queries, if they are rotated.
    pub turns: Option<RotaryFrequencies>,
    /// The factor of the scores.
    pub scale: BitEq<f32>,
    /// The number of rows that a token sees, from its own backwards.
    pub window: usize,
}

impl Op for Attend {
    fn name(&self) -> &'static str {
        ATTEND
    }
}

/// Appends the keys and values of one more token of each sequence to a block of the KV cache: the token of
/// sequence `n` after its first `starts[n]` rows.
///
/// Tokens have the shape (sequences, elements) and hold queries, keys and values side by side; blocks have
/// the shape (sequences, heads, room, width), first the heads of keys, then those of values. As with
/// [`append`](crate::fast::append), a block with no other user is written in place. With `pages` the block is
/// a pool of shape (pages, heads, rows of a page, width of stored rows).
pub fn keep_token(
    block: &Array,
    tokens: &Array,
    starts: &[usize],
    pages: Option<&Pages>,
    heads: StepHeads,
    turns: Option<&RotaryFrequencies>,
) -> Result<Array> {
    heads.check(KEEP, tokens, block, starts, pages, 1)?;
    let op = Keep { heads, starts: starts.to_vec(), pages: pages.cloned(), turns: turns.cloned() };
    let mut inputs = smallvec![block.clone(), tokens.clone()];
    if let Some(pages) = pages {
        inputs.push(pages.tables.array()?);
    }
    Array::lazy(block.shape().into(), block.dtype(), OpRef::new(op), inputs)
}

/// The attention of one token of each sequence to the last `window` rows of its block, its own included.
/// Gives the heads of queries side by side, in the shape (sequences, elements). A sequence gives the same
/// result alone and in a batch.
pub fn attend_token(
    tokens: &Array,
    block: &Array,
    starts: &[usize],
    pages: Option<&Pages>,
    heads: StepHeads,
    turns: Option<&RotaryFrequencies>,
    scale: f32,
    window: Option<usize>,
) -> Result<Array> {
    let window = window.unwrap_or(usize::MAX);
    heads.check(ATTEND, tokens, block, starts, pages, window)?;
    let mut inputs = smallvec![tokens.clone(), block.clone()];
    if let Some(pages) = pages {
        inputs.push(pages.tables.array()?);
    }
    let shape = smallvec![starts.len(), heads.queries * heads.width];
    let (starts, pages, turns) = (starts.to_vec(), pages.cloned(), turns.cloned());
    let op = Attend { heads, starts, pages, turns, scale: BitEq(scale), window };
    Array::lazy(shape, tokens.dtype(), OpRef::new(op), inputs)
}
