//! Attention: `softmax(q k^T * scale + mask) v`, without materializing the score matrix.
//!
//! Queries and keys are processed in blocks. Each row keeps its running maximum and sum of exponentials, and
//! rescales its partial result when the maximum grows. Many queries use the packed products of
//! [`crate::gemm`] ([`prefill`]). A few queries are bound by reading keys and values, so query heads that
//! share them read them together ([`decode`]). Keys are always split at the same positions, so results do not
//! depend on the number of threads.

mod decode;
mod delta;
mod gradient;
mod prefill;
mod rows;
mod slices;
mod softmax;
mod step;

pub use delta::{DeltaInputs, DeltaShape, gated_delta};
pub use gradient::{GradientInputs, attention_gradient};
pub use rows::RowFormat;
pub use slices::{HeadSlice, MaskSlice, attention_slices};
pub use step::{PageTables, Rotary, StepShape, append_step, attend_step};

use crate::error::{Mismatch, multiple, same};
use crate::par::Par;
use crate::simd::{Float, FloatKind};

/// The sizes of an attention op.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionShape {
    /// Independent sequences.
    pub batch: usize,
    /// Heads of the queries; a multiple of `kv_heads`.
    pub q_heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Queries of a head.
    pub q_len: usize,
    /// Keys of a head.
    pub kv_len: usize,
    /// Length of queries and keys.
    pub head_dim: usize,
    /// Length of values.
    pub value_dim: usize,
}

/// Rows of heads: row `i` of head `h` of sequence `b` begins at `ptr + b * s[0] + h * s[1] + i * s[2]` and is
/// contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Heads<T> {
    /// The first element.
    pub ptr: *const T,
    /// Strides of sequences, heads and rows, in elements.
    pub strides: [isize; 3],
}

impl<T> Heads<T> {
    fn erased(self) -> Heads<()> {
        Heads { ptr: self.ptr.cast(), strides: self.strides }
    }
}

/// [`Heads`] to write.
#[derive(Clone, Copy, Debug)]
pub struct HeadsMut<T> {
    /// The first element.
    pub ptr: *mut T,
    /// Strides of sequences, heads and rows, in elements.
    pub strides: [isize; 3],
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, Default)]
pub enum Mask<T> {
    /// All keys.
    #[default]
    All,
    /// Keys up to the query's position; the last query is aligned with the last key.
    Causal,
    /// Keys whose mark is not zero. A query without any such key gives all keys the same weight.
    Marked {
        /// The first mark.
        ptr: *const u8,
        /// Strides of sequences, query heads, queries and keys; zero where the mask is broadcast.
        strides: [isize; 4],
    },
    /// All keys, with a bias added to the scores.
    Added {
        /// The first bias.
        ptr: *const T,
        /// Strides of sequences, query heads, queries and keys; zero where the mask is broadcast.
        strides: [isize; 4],
    },
}

impl<T> Mask<T> {
    fn erased(self) -> Mask<()> {
        match self {
            Mask::All => Mask::All,
            Mask::Causal => Mask::Causal,
            Mask::Marked { ptr, strides } => Mask::Marked { ptr, strides },
            Mask::Added { ptr, strides } => Mask::Added { ptr: ptr.cast(), strides },
        }
    }
}

/// All parameters of a kernel, with the element type erased.
#[derive(Clone, Copy)]
struct Job<'a> {
    shape: AttentionShape,
    q: Heads<()>,
    k: Heads<()>,
    v: Heads<()>,
    out: HeadsMut<()>,
    scale: f32,
    mask: Mask<()>,
    sinks: Option<&'a [f32]>,
    /// The range of valid keys of each sequence; all keys if `None`.
    spans: Option<&'a [(usize, usize)]>,
    /// The page tables of a paged KV cache. The first strides of `k` and `v` are then those of pages, not of
    /// sequences.
    pages: Option<PageTables<'a>>,
    /// Codes of a group, if keys and values are quantized.
    group: usize,
}

// SAFETY: tasks read the inputs and write rows of their own.
unsafe impl Sync for Job<'_> {}
// SAFETY: as above.
unsafe impl Send for Job<'_> {}

/// Causal attention by the kernel of long prompts, which packs keys and values of as many heads at once as
/// fit into `max_packed` floats.
///
/// # Safety
/// As that of [`attention`].
pub unsafe fn prefill_within(
    par: &dyn Par,
    shape: AttentionShape,
    [q, k, v]: [Heads<f32>; 3],
    out: HeadsMut<f32>,
    max_packed: usize,
) {
    let job = Job {
        shape,
        q: q.erased(),
        k: k.erased(),
        v: v.erased(),
        out: HeadsMut { ptr: out.ptr.cast(), strides: out.strides },
        scale: 0.3,
        mask: Mask::Causal,
        sinks: None,
        spans: None,
        pages: None,
        group: 0,
    };
    prefill::run_within::<f32>(par, &job, max_packed);
}

/// Most queries per key head for which keys and values are streamed ([`decode`]).
const MAX_STREAMED_QUERIES: usize = 16;

/// `out = softmax(q k^T * scale + mask) v` for every head. `sinks` has one extra score without a value per
/// query head.
///
/// # Safety
/// All elements that shapes and strides describe are valid; outputs are distinct and not accessed by another
/// thread.
pub unsafe fn attention<T: Float>(
    par: &dyn Par,
    shape: AttentionShape,
    q: Heads<T>,
    k: Heads<T>,
    v: Heads<T>,
    out: HeadsMut<T>,
    scale: f32,
    mask: Mask<T>,
    sinks: Option<&[f32]>,
) -> Result<(), Mismatch> {
    multiple("query heads", shape.kv_heads, shape.q_heads)?;
    if let Some(sinks) = sinks {
        same("sinks", shape.q_heads, sinks.len())?;
    }
    if shape.kv_heads == 0 || shape.batch == 0 || shape.q_len == 0 || shape.value_dim == 0 {
        return Ok(());
    }
    let out = HeadsMut { ptr: out.ptr.cast::<()>(), strides: out.strides };
    let job = Job {
        shape,
        q: q.erased(),
        k: k.erased(),
        v: v.erased(),
        out,
        scale,
        mask: mask.erased(),
        sinks,
        spans: None,
        pages: None,
        group: 0,
    };
    run_any(T::KIND, par, &job);
    Ok(())
}

fn run_any(kind: FloatKind, par: &dyn Par, job: &Job<'_>) {
    match kind {
        FloatKind::F32 => run::<f32>(par, job),
        FloatKind::Bf16 => run::<half::bf16>(par, job),
        FloatKind::F16 => run::<half::f16>(par, job),
    }
}

fn run<T: Float>(par: &dyn Par, job: &Job<'_>) {
    let s = &job.shape;
    if s.q_heads / s.kv_heads * s.q_len <= MAX_STREAMED_QUERIES {
        decode::run::<T, rows::Dense<T>>(par, job);
    } else {
        prefill::run::<T>(par, job);
    }
}

impl Job<'_> {
    /// The address of a row.
    #[inline(always)]
    fn row<T>(h: &Heads<()>, b: usize, head: usize, i: usize) -> *const T {
        let s = h.strides;
        h.ptr.cast::<T>().wrapping_offset(b as isize * s[0] + head as isize * s[1] + i as isize * s[2])
    }

    /// The address of row `i` of keys or values, and how many rows from it on are adjacent.
    #[inline(always)]
    fn run_of_rows<T>(&self, h: &Heads<()>, b: usize, head: usize, i: usize) -> (*const T, usize) {
        match &self.pages {
            None => (Self::row(h, b, head, i), usize::MAX),
            Some(pages) => {
                let (page, row) = pages.find(b, i);
                (Self::row(h, page, head, row), pages.rows - row)
            }
        }
    }

    /// The address of a row of the result.
    #[inline(always)]
    fn out_row<T>(&self, b: usize, head: usize, i: usize) -> *mut T {
        let (h, s) = (&self.out, self.out.strides);
        h.ptr.cast::<T>().wrapping_offset(b as isize * s[0] + head as isize * s[1] + i as isize * s[2])
    }

    /// The valid keys of a sequence.
    #[inline(always)]
    fn span(&self, b: usize) -> (usize, usize) {
        self.spans.map_or((0, self.shape.kv_len), |spans| spans[b])
    }

    /// The number of leading keys that query `i` attends to; all keys if it sees none.
    #[inline(always)]
    fn seen(&self, i: usize) -> usize {
        let (q, kv) = (self.shape.q_len, self.shape.kv_len);
        match self.mask {
            Mask::Causal if i + 1 + kv > q => i + 1 + kv - q,
            _ => kv,
        }
    }

    /// The number of leading keys whose scores for query `i` the mask leaves unchanged.
    #[inline(always)]
    fn clear(&self, i: usize) -> usize {
        match self.mask {
            Mask::All => self.shape.kv_len,
            // A query without a visible key gives all keys the same weight.
            Mask::Causal if i + 1 + self.shape.kv_len <= self.shape.q_len => 0,
            Mask::Causal => self.seen(i),
            Mask::Marked { .. } | Mask::Added { .. } => 0,
        }
    }

    /// Applies the mask to the scores of query `i` for the keys from `k0` on; scores have the stride `apart`.
    #[inline(always)]
    fn apply<T: Float>(&self, b: usize, head: usize, i: usize, k0: usize, scores: &mut [f32], apart: usize) {
        let offset = |s: &[isize; 4]| {
            b as isize * s[0] + head as isize * s[1] + i as isize * s[2] + k0 as isize * s[3]
        };
        let count = scores.len().div_ceil(apart);
        match &self.mask {
            Mask::All => {}
            Mask::Causal => {
                for j in self.clear(i).saturating_sub(k0)..count {
                    scores[j * apart] = f32::MIN;
                }
            }
            Mask::Marked { ptr, strides } => {
                let p = ptr.wrapping_offset(offset(strides));
                for j in 0..count {
                    // SAFETY: the caller of `attention` promised a mark for every score.
                    if unsafe { *p.wrapping_offset(j as isize * strides[3]) } == 0 {
                        scores[j * apart] = f32::MIN;
                    }
                }
            }
            Mask::Added { ptr, strides } => {
                let p = ptr.cast::<T>().wrapping_offset(offset(strides));
                for j in 0..count {
                    // SAFETY: the caller of `attention` promised a bias for every score.
                    scores[j * apart] += unsafe { *p.wrapping_offset(j as isize * strides[3]) }.to_f32();
                }
            }
        }
    }
}
