//! The interface between attention and the keys and values of earlier tokens.
//!
//! A [`KvCache`] holds keys and values of every layer for one sequence or a batch of them. An attention layer
//! appends the keys and values of the new tokens and gets a [`KvView`]: the rows to read, as stored, and the
//! mask. The layer does not depend on how rows are stored, nor the model on the kind of cache.
//!
//! Steps are transactions. [`begin`](KvCache::begin) opens a step. The sequences may have different numbers
//! of new tokens if the cache supports that ([`KvCache::append_segments`]). Every layer appends once, then
//! [`end`](KvCache::end) makes the tokens *pending*. [`commit`](KvCache::commit) makes pending tokens part of
//! the sequences once they were evaluated; [`rollback`](KvCache::rollback) discards all pending tokens.
//! Several steps may be pending: a decoder may begin a step before the token of the previous step was read.
//!
//! [`Positions`] keeps track of lengths, pending tokens and masks for every kind of cache.

use std::any::Any;
use std::fmt;
use std::ops::Range;

use hesper_core::fast::{self, AttentionMask, Offset};
use hesper_core::ops::step::{self, Pages, RotaryFrequencies, StepHeads};
use hesper_core::{Array, Dtype};

use crate::error::{Error, Result};
use crate::heads::Heads;
use crate::module::weight::Quantization;

/// Keys and values of all layers.
///
/// Rows have the shape (sequences, heads, tokens, head dimension). After an error the committed tokens are
/// unchanged, unless it is [`Error::CacheLost`].
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::{KvCache, KvMask, KvRows, KvView, Positions, Result};
///
/// /// A cache of one sequence and one layer, which copies its rows to grow.
/// #[derive(Debug)]
/// struct Growing(Positions, Option<(Array, Array)>);
///
/// impl KvCache for Growing {
///     fn positions(&self) -> &Positions { &self.0 }
///     fn positions_mut(&mut self) -> &mut Positions { &mut self.0 }
///     fn arrays(&self) -> Vec<&Array> { self.1.iter().flat_map(|(k, v)| [k, v]).collect() }
///     fn can_roll_back(&self) -> bool { false }
///     fn append(&mut self, _: usize, keys: &Array, values: &Array, window: Option<usize>) -> Result<KvView> {
///         let (k, v) = match self.1.take() {
///             None => (keys.clone(), values.clone()),
///             Some((k, v)) => (
///                 hesper::concatenate(&[k, keys.clone()], 2)?,
///                 hesper::concatenate(&[v, values.clone()], 2)?,
///             ),
///         };
///         let mask = self.0.step_mut()?.mask(window)?;
///         self.1 = Some((k.clone(), v.clone()));
///         Ok(KvView { keys: KvRows::Dense(k), values: KvRows::Dense(v), mask })
///     }
/// }
///
/// let mut cache = Growing(Positions::new(1), None);
/// for tokens in [3, 1] {
///     let rows = Array::ones(&[1, 2, tokens, 4], Dtype::Float32)?;
///     cache.begin(&[tokens])?;
///     let view = cache.append(0, &rows, &rows, None)?;
///     assert_eq!(view.attend(&rows, 0.5)?.shape(), [1, 2, tokens, 4]);
///     cache.end();
///     cache.commit(tokens); // when the step was evaluated
/// }
/// assert_eq!((cache.lengths(), cache.nbytes()), (&[4][..], 2 * 2 * 4 * 4 * 4));
/// cache.begin(&[1])?;
/// cache.rollback()?; // the step failed
/// assert!(cache.truncate(2).is_err() && cache.remove(0).is_err());
/// assert!(cache.join(Box::new(hesper_nn::NoCache::default())).is_err());
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub trait KvCache: Any + fmt::Debug + Send {
    /// Lengths, pending tokens and the open step.
    fn positions(&self) -> &Positions;

    /// Lengths, pending tokens and the open step.
    fn positions_mut(&mut self) -> &mut Positions;

    /// The arrays that hold the rows. Evaluate them if the output of a step is not needed.
    fn arrays(&self) -> Vec<&Array>;

    /// Whether pending tokens can be discarded: only if they do not overwrite rows of committed tokens.
    fn can_roll_back(&self) -> bool;

    /// Appends rows of the open step to a layer. Returns the rows that the new tokens attend to: with a
    /// `window`, their own and at most `window - 1` earlier ones.
    fn append(&mut self, layer: usize, keys: &Array, values: &Array, window: Option<usize>)
    -> Result<KvView>;

    /// The same for tokens of shape (rows, elements), sequence by sequence: a row has queries, keys and
    /// values before rotation. `None` if the cache has no fused kernel for the open step.
    #[doc(hidden)]
    fn append_rows(
        &mut self,
        layer: usize,
        tokens: &Array,
        heads: Heads,
        rotation: Option<&RotaryFrequencies>,
    ) -> Result<Option<RowView<'_>>> {
        let _ = (layer, tokens, heads, rotation);
        Ok(None)
    }

    /// The same for a step with different numbers of new tokens that [`append_rows`](KvCache::append_rows)
    /// has no kernel for. Keys and values have the shape (rows, heads, 1, head dimension), sequence by
    /// sequence. Returns what each segment of the rows attends to.
    #[doc(hidden)]
    fn append_segments(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<Vec<Segment<'_>>> {
        let _ = (layer, keys, values, window);
        Err(Error::InvalidArgument(
            "this kind of cache needs the same number of new tokens for every sequence".into(),
        ))
    }

    /// Opens a step of `tokens[n]` new tokens for sequence `n`, after the pending ones. A cache without room
    /// for them returns [`Error::CacheFull`]. A step that is still open is discarded.
    fn begin(&mut self, tokens: &[usize]) -> Result<()> {
        self.positions_mut().begin(tokens)
    }

    /// Ends the open step: its tokens are pending.
    fn end(&mut self) {
        self.positions_mut().end();
    }

    /// Commits the first `tokens` pending tokens of every sequence.
    fn commit(&mut self, tokens: usize) {
        self.positions_mut().commit(tokens);
    }

    /// Discards pending tokens and the open step.
    fn rollback(&mut self) -> Result<()> {
        if self.positions().pending() == 0 && self.positions().step.is_none() {
            return Ok(());
        }
        // Evaluate the rows now. Otherwise the next step would evaluate them, and fail if they do.
        hesper_core::async_eval(self.arrays().into_iter().filter(|array| !array.is_evaluated()))
            .map_err(Error::Rollback)?;
        self.positions_mut().discard();
        Ok(())
    }

    /// Discards pending tokens and all but the first `length` tokens of every sequence.
    fn truncate(&mut self, length: usize) -> Result<()> {
        if !self.can_roll_back() {
            return Err(Error::InvalidArgument("this kind of cache cannot be truncated".into()));
        }
        self.rollback()?;
        self.positions_mut().truncate(length);
        Ok(())
    }

    /// Appends the sequences of another cache of the same kind. Neither may have pending tokens.
    fn join(&mut self, other: Box<dyn KvCache>) -> Result<()> {
        let _ = other;
        Err(Error::InvalidArgument("this kind of cache holds a single sequence".into()))
    }

    /// Removes a sequence; the last one takes its index. There must be no pending tokens.
    fn remove(&mut self, sequence: usize) -> Result<()> {
        Err(Error::InvalidArgument(format!(
            "cannot remove sequence {sequence}: this kind of cache holds one"
        )))
    }

    /// Committed tokens of each sequence.
    fn lengths(&self) -> &[usize] {
        &self.positions().lengths
    }

    /// Bytes of all rows.
    fn nbytes(&self) -> usize {
        self.arrays().iter().map(|array| array.nbytes()).sum()
    }
}

/// The rows that the queries of one layer read in one step.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::{KvMask, KvRows, KvView};
/// let rows = KvRows::Dense(Array::ones(&[1, 2, 5, 4], Dtype::Float32)?);
/// let view = KvView { keys: rows.clone(), values: rows, mask: KvMask::None };
/// let y = view.attend(&Array::ones(&[1, 2, 1, 4], Dtype::Float32)?, 0.5)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0; 8]); // a mean of equal values
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct KvView {
    /// The keys.
    pub keys: KvRows,
    /// The values.
    pub values: KvRows,
    /// Which of the rows each new token attends to.
    pub mask: KvMask,
}

impl KvView {
    /// Attention of queries of shape (sequences, heads, tokens, head dimension) to the rows.
    pub fn attend(&self, queries: &Array, scale: f32) -> Result<Array> {
        let mask = match &self.mask {
            KvMask::None => AttentionMask::None,
            KvMask::Causal => AttentionMask::Causal,
            KvMask::Rows(rows) => AttentionMask::Array(rows),
        };
        let (keys, values) = (self.keys.dense()?, self.values.dense()?);
        Ok(fast::scaled_dot_product_attention(queries, &keys, &values, scale, mask, None)?)
    }
}

/// Rows of keys or values as a cache stores them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum KvRows {
    /// Floats.
    Dense(Array),
    /// Codes in groups, with a scale and a bias for each group.
    Quantized {
        /// The codes.
        codes: Array,
        /// The scales.
        scales: Array,
        /// The biases.
        biases: Array,
        /// How they were quantized.
        quantization: Quantization,
    },
}

impl KvRows {
    /// The rows as floats.
    ///
    /// ```
    /// use hesper::{Array, Dtype, QuantMode};
    /// use hesper_nn::{KvRows, Quantization};
    /// let rows = Array::ones(&[1, 1, 2, 64], Dtype::Float32)?;
    /// let (codes, scales, biases) = rows.quantize(None, None, QuantMode::Affine)?;
    /// # let biases = biases.ok_or_else(|| hesper_nn::Error::InvalidArgument("no biases".into()))?;
    /// let rows = KvRows::Quantized { codes, scales, biases, quantization: Quantization::new(64, 4, "affine")? };
    /// assert_eq!(rows.dense()?.shape(), [1, 1, 2, 64]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn dense(&self) -> Result<Array> {
        Ok(match self {
            KvRows::Dense(rows) => rows.clone(),
            KvRows::Quantized { codes, scales, biases, quantization } => {
                let (group, bits) = (Some(quantization.group()), Some(quantization.bits()));
                codes.dequantize(scales, Some(biases), group, bits, quantization.mode(), None)?
            }
        })
    }
}

/// Which rows of a view each new token attends to.
#[derive(Debug, Clone)]
pub enum KvMask {
    /// All of them.
    None,
    /// Those up to its own. The last row is that of the last new token.
    Causal,
    /// Those marked in an array of bools of shape (sequences, 1, tokens, rows).
    Rows(Array),
}

/// What the rows of a fused step read: each reads its sequence up to its own position.
#[doc(hidden)]
#[derive(Debug)]
pub struct RowView<'a> {
    /// Keys and values of shape (sequences, 2 * heads, capacity, head dimension), keys first.
    pub rows: Array,
    /// The position of each row in its sequence.
    pub positions: &'a [usize],
    /// The pages of each row's sequence, if `rows` is a pool of pages: (pages, 2 * heads, rows of a page,
    /// head dimension).
    pub pages: Option<Pages>,
}

/// A range of the rows of a step, and what it reads.
#[doc(hidden)]
#[derive(Debug)]
pub struct Segment<'a> {
    /// The rows.
    pub rows: Range<usize>,
    /// The number of their sequences, which have equally many rows.
    pub sequences: usize,
    /// What they read.
    pub view: SegmentView<'a>,
}

/// How the rows of a segment are computed.
#[doc(hidden)]
#[derive(Debug)]
pub enum SegmentView<'a> {
    /// By the fused kernel, which also rotates the queries.
    Fused(RowView<'a>),
    /// By attention to rows of keys and values.
    Rows(KvView),
}

impl RowView<'_> {
    /// Attention of the queries in `tokens` to the last `window` rows. Returns an array of shape (rows, heads
    /// * head dimension).
    pub fn attend(
        &self,
        tokens: &Array,
        heads: Heads,
        rotation: Option<&RotaryFrequencies>,
        scale: f32,
        window: Option<usize>,
    ) -> Result<Array> {
        let heads = StepHeads::from(heads);
        Ok(step::attend_token(
            tokens,
            &self.rows,
            self.positions,
            self.pages.as_ref(),
            heads,
            rotation,
            scale,
            window,
        )?)
    }
}

/// Lengths of the sequences of a cache, its pending tokens and its open step.
///
/// ```
/// use hesper_nn::Positions;
/// let mut positions = Positions::new(2); // two empty sequences
/// positions.begin(&[3, 3])?;
/// assert_eq!(positions.step()?.starts(), [0, 0]);
/// positions.end();
/// assert_eq!((positions.pending(), positions.lengths()), (3, &[0, 0][..]));
/// positions.commit(2);
/// positions.discard(); // the third token
/// positions.begin(&[1, 2])?;
/// assert_eq!(positions.step_mut()?.positions(), [2, 2, 3]);
/// positions.abort();
/// assert!(positions.step().is_err());
/// positions.join(&Positions::with_lengths(vec![7]));
/// positions.truncate(5);
/// positions.remove(0);
/// assert_eq!(positions.lengths(), [5, 2]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct Positions {
    /// Committed tokens of each sequence.
    lengths: Vec<usize>,
    /// Pending tokens of each sequence.
    pending: Vec<usize>,
    step: Option<Step>,
}

impl Positions {
    /// Positions of empty sequences.
    pub fn new(sequences: usize) -> Self {
        Positions::with_lengths(vec![0; sequences])
    }

    /// Positions of sequences with committed tokens.
    pub fn with_lengths(lengths: Vec<usize>) -> Self {
        Positions { pending: vec![0; lengths.len()], lengths, step: None }
    }

    /// Committed tokens of each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The largest number of pending tokens of a sequence.
    pub fn pending(&self) -> usize {
        self.pending.iter().max().copied().unwrap_or(0)
    }

    /// The open step.
    pub fn step(&self) -> Result<&Step> {
        self.step.as_ref().ok_or_else(no_step)
    }

    /// The open step.
    pub fn step_mut(&mut self) -> Result<&mut Step> {
        self.step.as_mut().ok_or_else(no_step)
    }

    /// Opens a step of `tokens[n]` tokens for sequence `n`.
    pub fn begin(&mut self, tokens: &[usize]) -> Result<()> {
        if tokens.len() != self.lengths.len() {
            let what = format!(
                "cannot begin a step of {} sequences: the cache has {}",
                tokens.len(),
                self.lengths.len()
            );
            return Err(Error::InvalidArgument(what));
        }
        let starts = self.lengths.iter().zip(&self.pending).map(|(length, pending)| length + pending);
        self.step = Some(Step::new(starts.collect(), tokens.to_vec())?);
        Ok(())
    }

    /// Ends the open step: its tokens are pending.
    pub fn end(&mut self) {
        if let Some(step) = self.step.take() {
            self.pending.iter_mut().zip(&step.counts).for_each(|(pending, count)| *pending += count);
        }
    }

    /// Commits the first `tokens` pending tokens of every sequence.
    pub fn commit(&mut self, tokens: usize) {
        for (length, pending) in self.lengths.iter_mut().zip(&mut self.pending) {
            let tokens = tokens.min(*pending);
            (*length, *pending) = (*length + tokens, *pending - tokens);
        }
    }

    /// Drops the open step.
    pub fn abort(&mut self) {
        self.step = None;
    }

    /// Drops pending tokens and the open step.
    pub fn discard(&mut self) {
        self.pending.fill(0);
        self.step = None;
    }

    /// Drops all but the first `length` tokens of every sequence.
    pub fn truncate(&mut self, length: usize) {
        self.lengths.iter_mut().for_each(|own| *own = length.min(*own));
    }

    /// Appends the sequences of `other`.
    pub fn join(&mut self, other: &Positions) {
        self.lengths.extend(&other.lengths);
        self.pending.extend(&other.pending);
    }

    /// Removes a sequence; the last one takes its index.
    pub fn remove(&mut self, sequence: usize) {
        self.lengths.swap_remove(sequence);
        self.pending.swap_remove(sequence);
    }

    /// The position of the first new token of each sequence, or of each new token in a ragged step.
    pub(crate) fn offset(&self) -> Offset {
        self.step.as_ref().map_or(Offset::Number(0), |step| step.offset.clone())
    }
}

fn no_step() -> Error {
    Error::InvalidArgument("the cache has no open step: call begin first".into())
}

/// A step of a model: new tokens of each sequence.
///
/// ```
/// use hesper_nn::{KvMask, Positions};
/// let mut positions = Positions::with_lengths(vec![4]);
/// positions.begin(&[2])?;
/// let step = positions.step_mut()?;
/// assert_eq!((step.starts(), step.counts(), step.rows()), (&[4][..], &[2][..], 6));
/// assert!(matches!(step.mask(None)?, KvMask::Causal));
/// let KvMask::Rows(mask) = step.mask(Some(3))? else { panic!("a window needs a mask of rows") };
/// assert_eq!(mask.to_bools()?[..6], [false, false, true, true, true, false]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct Step {
    /// Tokens of each sequence before the step.
    starts: Vec<usize>,
    /// New tokens of each sequence.
    counts: Vec<usize>,
    /// The position of each new token.
    positions: Vec<usize>,
    offset: Offset,
    /// Masks by window. Layers with the same window share a mask.
    masks: Vec<(Option<usize>, KvMask)>,
}

impl Step {
    fn new(starts: Vec<usize>, counts: Vec<usize>) -> Result<Self> {
        let position = |start: &usize| {
            i32::try_from(*start).map_err(|_| {
                Error::InvalidArgument(format!("position {start} is too large; the limit is {}", i32::MAX))
            })
        };
        let of_sequence = |(start, count): (&usize, &usize)| *start..start + count;
        let positions: Vec<usize> = starts.iter().zip(&counts).flat_map(of_sequence).collect();
        let is_ragged = counts.windows(2).any(|pair| pair[0] != pair[1]);
        let offset = match if is_ragged { &positions[..] } else { &starts[..] } {
            [start] => Offset::Number(position(start)?),
            all => {
                let positions = all.iter().map(position).collect::<Result<Vec<i32>>>()?;
                Offset::Array(Array::try_from_slice(&positions, &[all.len()])?)
            }
        };
        Ok(Step { starts, counts, positions, offset, masks: Vec::new() })
    }

    /// Tokens of each sequence before the step.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// New tokens of each sequence.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The position of each new token, sequence by sequence.
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Whether sequences have different numbers of new tokens.
    pub fn is_ragged(&self) -> bool {
        self.counts.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// Whether every sequence has one new token.
    pub fn is_decode(&self) -> bool {
        self.counts.iter().all(|count| *count == 1)
    }

    /// The length of the longest sequence after the step.
    pub fn rows(&self) -> usize {
        self.starts.iter().zip(&self.counts).map(|(start, count)| start + count).max().unwrap_or(0)
    }

    /// The mask for [`rows`](Step::rows) rows of every sequence, in the order of their positions. Fails if
    /// sequences have different numbers of new tokens.
    pub fn mask(&mut self, window: Option<usize>) -> Result<KvMask> {
        if self.is_ragged() {
            let what = format!("cannot make a mask for different numbers of new tokens: {:?}", self.counts);
            return Err(Error::InvalidArgument(what));
        }
        if let Some((_, mask)) = self.masks.iter().find(|(own, _)| *own == window) {
            return Ok(mask.clone());
        }
        let rows = self.rows();
        let all_seen = window.is_none_or(|window| rows <= window);
        let tokens = self.counts.first().copied().unwrap_or(0);
        let mask = match (&self.starts[..], tokens) {
            ([_], 1) if all_seen => KvMask::None,
            ([first, others @ ..], 2..) if all_seen && others.iter().all(|start| start == first) => {
                KvMask::Causal
            }
            _ => KvMask::Rows(self.row_mask(tokens, rows, window)?),
        };
        self.masks.push((window, mask.clone()));
        Ok(mask)
    }

    fn row_mask(&self, tokens: usize, rows: usize, window: Option<usize>) -> Result<Array> {
        let window = window.unwrap_or(usize::MAX);
        let mut seen = Vec::with_capacity(self.positions.len() * rows);
        for token in &self.positions {
            let oldest = (token + 1).saturating_sub(window);
            seen.extend((0..rows).map(|row| u8::from(row <= *token && row >= oldest)));
        }
        Ok(Array::from_bytes(&seen, Dtype::Bool, &[self.starts.len(), 1, tokens, rows])?)
    }
}

/// No cache: every token sees itself and the tokens before it in the same call.
#[derive(Debug)]
pub struct NoCache(Positions);

impl Default for NoCache {
    fn default() -> Self {
        NoCache(Positions::new(1))
    }
}

impl KvCache for NoCache {
    fn positions(&self) -> &Positions {
        &self.0
    }

    fn positions_mut(&mut self) -> &mut Positions {
        &mut self.0
    }

    fn arrays(&self) -> Vec<&Array> {
        Vec::new()
    }

    fn can_roll_back(&self) -> bool {
        true
    }

    fn append(
        &mut self,
        _layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<KvView> {
        let mask = match window {
            None => KvMask::Causal,
            Some(_) => {
                let sequences = keys.shape()[0];
                Step::new(vec![0; sequences], vec![keys.shape()[2]; sequences])?.mask(window)?
            }
        };
        Ok(KvView { keys: KvRows::Dense(keys.clone()), values: KvRows::Dense(values.clone()), mask })
    }
}
