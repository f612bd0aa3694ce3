//! A cache in pages: blocks of a fixed number of tokens in a pool, for sequences that come, go and share
//! prefixes.
//!
//! [`PageCounts`] hands out pages and counts their users; it has no memory of its own, so a scheduler can be
//! tested without a model. [`PagedCache`] holds the rows. Before a step the caller binds the page tables of
//! the sequences that take part ([`PagedCache::bind`]); any subset of the sequences may take the next step. A
//! page with several users is read by all of them, and copied before one of them writes to it
//! ([`PageCounts::writable`], [`PagedCache::copy_page`]).
//!
//! A step may have another number of new tokens for each sequence. On the CPU the attention of every new
//! token reads rows where they are, in every format, so its result does not depend on the other tokens of the
//! step. On a GPU tokens that come alone in their sequence do so, if rows are in the dtype of the model;
//! others gather the rows first, sequence by sequence.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use hesper_core::ops::step::{PageRows, Pages, RotaryFrequencies, StepHeads, keep_token};
use hesper_core::{Array, axes, concatenate, placement, select};
use hesper_nn::{
    Error, Heads, KvCache, KvMask, KvRows, KvView, Positions, Quantization, Result, RowView, Segment,
    SegmentView,
};

use super::layer_mut;
use super::quantized::check_bits;
use super::rows::{heads_of, rows_of, with_room};
use crate::config::Config;

/// The page that stands for no page: padding is written to it, and no sequence uses it.
pub const SCRATCH_PAGE: u32 = 0;

/// The users of each page of a pool.
#[derive(Debug, Clone)]
pub struct PageCounts {
    users: Vec<u32>,
    /// Lowest first, so that a pool stays as small as it can.
    free: BinaryHeap<Reverse<u32>>,
}

impl PageCounts {
    /// Room for `pages` pages beside [`SCRATCH_PAGE`], all of them free.
    pub fn new(pages: usize) -> Self {
        let mut users = vec![0; pages + 1];
        users[SCRATCH_PAGE as usize] = 1;
        PageCounts { users, free: (1..=pages as u32).map(Reverse).collect() }
    }

    /// Pages there are room for.
    pub fn capacity(&self) -> usize {
        self.users.len() - 1
    }

    /// Adds room for `pages` pages, all of them free.
    pub fn add(&mut self, pages: usize) {
        let first = self.users.len();
        self.users.resize(first + pages, 0);
        self.free.extend((first..first + pages).map(|page| Reverse(page as u32)));
    }

    /// Pages without users.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Users of a page.
    pub fn users(&self, page: u32) -> u32 {
        self.users.get(page as usize).copied().unwrap_or(0)
    }

    /// A free page, with one user.
    pub fn take(&mut self) -> Option<u32> {
        let Reverse(page) = self.free.pop()?;
        self.users[page as usize] = 1;
        Some(page)
    }

    /// Adds a user to a page that has users.
    pub fn share(&mut self, page: u32) {
        debug_assert!(self.users(page) > 0 && page != SCRATCH_PAGE, "page {page} has no users");
        self.users[page as usize] += 1;
    }

    /// Removes a user of a page; without users it is free. [`SCRATCH_PAGE`] stays as it is.
    pub fn release(&mut self, page: u32) {
        if page == SCRATCH_PAGE {
            return;
        }
        debug_assert!(self.users(page) > 0, "page {page} has no users");
        self.users[page as usize] -= 1;
        if self.users[page as usize] == 0 {
            self.free.push(Reverse(page));
        }
    }

    /// The page to write to instead of `page`: itself if it has one user, else a free one, to which its rows
    /// must be copied ([`PagedCache::copy_page`]). `None` if there is no free page.
    pub fn writable(&mut self, page: u32) -> Option<u32> {
        if self.users(page) <= 1 {
            return Some(page);
        }
        let copy = self.take()?;
        self.release(page);
        Some(copy)
    }
}

/// How pages store rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageFormat {
    /// In the dtype of the model.
    #[default]
    Exact,
    /// As float16.
    Half,
    /// Quantized in groups.
    Quantized {
        /// Bits per code: 4 or 8.
        bits: usize,
        /// Codes per scale: 32, 64 or 128.
        group: usize,
    },
}

impl PageFormat {
    fn rows(self) -> PageRows {
        match self {
            PageFormat::Exact => PageRows::Exact,
            PageFormat::Half => PageRows::Half,
            PageFormat::Quantized { bits, group } => PageRows::Affine { bits, group },
        }
    }
}

/// Keys and values in pages. See the [module](self).
#[derive(Debug)]
pub struct PagedCache {
    positions: Positions,
    pages: Pages,
    quantization: Option<Quantization>,
    /// Tokens of a page.
    page: usize,
    /// The most pages of the pool.
    capacity: usize,
    /// Pages that the pools of all layers need.
    room: usize,
    /// For each layer a pool of shape (pages, heads of keys and values, tokens of a page, elements of a row
    /// as stored). None before the first token.
    layers: Vec<Option<Array>>,
    /// Page and row of each new token of the open step, for all layers.
    places: Option<[Array; 2]>,
    /// The pages of the sequence of each new token of the open step.
    row_pages: Option<Pages>,
    /// The parts of the open step that attend together.
    parts: Vec<StepPart>,
}

impl PagedCache {
    /// A cache without sequences, with room for `pages` pages of `page` tokens beside [`SCRATCH_PAGE`].
    pub fn new(config: &Config, format: PageFormat, page: usize, pages: usize) -> crate::Result<Self> {
        if page == 0 || pages >= u32::MAX as usize {
            let what = format!(
                "cannot make a cache of {pages} pages of {page} tokens: pages hold at least one token"
            );
            return Err(crate::Error::InvalidArgument(what));
        }
        let quantization = match format {
            PageFormat::Quantized { bits, group } => Some(check_bits(bits, group, config.head_dim)?),
            PageFormat::Exact | PageFormat::Half => None,
        };
        Ok(PagedCache {
            positions: Positions::new(0),
            pages: Pages { tables: Vec::new().into(), rows: format.rows() },
            quantization,
            page,
            capacity: pages + 1,
            room: 0,
            layers: vec![None; config.layers],
            places: None,
            row_pages: None,
            parts: Vec::new(),
        })
    }

    /// Tokens of a page.
    pub fn page_tokens(&self) -> usize {
        self.page
    }

    /// Pages that have memory. It grows with the pages that are bound, and each time the pools are copied
    /// once.
    pub fn allocated(&self) -> usize {
        self.room
    }

    /// Gives all pages memory at once, now or with the first step: then later steps neither copy the pools
    /// nor meet pools of another shape.
    pub fn reserve(&mut self) -> Result<()> {
        self.grow(self.capacity)
    }

    /// Bytes of a page over all layers; 0 before the first step.
    pub fn page_bytes(&self) -> usize {
        let bytes = |pool: &Array| pool.nbytes() / pool.shape()[0].max(1);
        self.layers.iter().flatten().map(bytes).sum()
    }

    /// Chooses the sequences of the next steps: the pages of each, in the order of their tokens, and its
    /// committed tokens. A page of tokens that no layer sees any more may be [`SCRATCH_PAGE`]. Discards
    /// pending tokens.
    pub fn bind(&mut self, tables: Vec<Vec<u32>>, lengths: Vec<usize>) -> Result<()> {
        self.rollback()?;
        if tables.len() != lengths.len() {
            let what = format!("{} page tables for {} sequences", tables.len(), lengths.len());
            return Err(Error::InvalidArgument(what));
        }
        if let Some(page) = tables.iter().flatten().find(|page| **page as usize >= self.capacity) {
            let what = format!("a pool of {} pages has no page {page}", self.capacity);
            return Err(Error::InvalidArgument(what));
        }
        (self.pages.tables, self.positions) = (tables.into(), Positions::with_lengths(lengths));
        Ok(())
    }

    /// Replaces the page tables; the sequences and their tokens stay.
    pub(super) fn set_tables(&mut self, tables: Vec<Vec<u32>>) {
        self.pages.tables = tables.into();
    }

    /// Writes the first rows of `blocks` to `pages` until these are full, layer by layer. A block has the
    /// shape (1, heads of keys and values, rows, elements of a row as stored). After an error the rows of
    /// other pages are as they were.
    pub(super) fn write_sequence(&mut self, blocks: &[Array], pages: &[u32]) -> Result<()> {
        if blocks.len() != self.layers.len() {
            let what = format!("{} blocks of rows for {} layers", blocks.len(), self.layers.len());
            return Err(Error::InvalidArgument(what));
        }
        // What can fail for lack of memory comes first: the writes below are in place.
        let rows = pages.len() * self.page;
        let blocks: Vec<Array> = blocks
            .iter()
            .map(|block| rows_of(&with_room(block, rows)?, 0, rows))
            .collect::<Result<_, _>>()?;
        hesper_core::async_eval(&blocks)?;
        self.make_room(pages.iter().max().map_or(0, |page| *page as usize))?;
        for (slot, block) in self.layers.iter_mut().zip(&blocks) {
            let pool = match slot {
                Some(pool) => pool,
                None => {
                    let [_, heads, _, width] = [0, 1, 2, 3].map(|axis| block.shape()[axis]);
                    let pool = Array::zeros(&[self.room, heads, self.page, width], block.dtype())?;
                    pool.eval()?;
                    slot.insert(pool)
                }
            };
            let [_, heads, page, width] = [0, 1, 2, 3].map(|axis| pool.shape()[axis] as isize);
            let block = block.astype(pool.dtype())?.reshape(&[heads, -1, page, width])?;
            let block = block.transpose(&[1, 0, 2, 3])?;
            let mut first = 0;
            while first < pages.len() {
                let mut count = 1;
                while pages.get(first + count).is_some_and(|page| *page == pages[first] + count as u32) {
                    count += 1;
                }
                let (at, to) = (pages[first] as isize, (pages[first] as usize + count) as isize);
                let part = block.slice_axis(0, first as isize, (first + count) as isize, 1)?;
                *pool = pool.slice_update(&part, &[at, 0, 0, 0], &[to, heads, page, width], &[1; 4])?;
                first += count;
            }
        }
        hesper_core::async_eval(self.arrays())?;
        Ok(())
    }

    /// Gives page `highest`, and an eighth of pages more, memory: growing copies the pools.
    fn make_room(&mut self, highest: usize) -> Result<()> {
        match highest < self.room {
            true => Ok(()),
            false => self.grow((highest + highest / 8 + 8).min(self.capacity)),
        }
    }

    /// Copies the rows of a page to another one, whose rows are overwritten.
    pub fn copy_page(&mut self, from: u32, to: u32) -> Result<()> {
        self.grow(self.room.max(from.max(to) as usize + 1))?;
        for pool in self.layers.iter_mut().flatten() {
            let rows = pool.take(Array::from_slice(&[from]), Some(0))?;
            // A page that is being read is a second user of the pool, which would be copied as a whole.
            rows.eval()?;
            *pool = pool.scatter(&[Array::from_slice(&[to])], &rows.expand_dims(0)?, &[0])?;
        }
        Ok(())
    }

    /// Drops all rows and frees their memory. Sequences have to be computed again.
    pub fn reset(&mut self) {
        self.layers.fill(None);
        (self.room, self.pages.tables, self.positions) = (0, Vec::new().into(), Positions::new(0));
    }

    /// Gives the pools memory for `room` pages, one after the other: then the old and the new pool of only
    /// one layer need memory at a time.
    fn grow(&mut self, room: usize) -> Result<()> {
        let runtime = placement::current_device().runtime()?;
        for slot in &mut self.layers {
            let Some(pool) = slot.as_ref().filter(|pool| pool.shape()[0] < room) else { continue };
            let grown = with_pages(pool, room)?;
            grown.eval()?;
            *slot = Some(grown);
            // Nothing else needs memory of the old size.
            runtime.clear_cache();
        }
        self.room = room;
        Ok(())
    }

    /// Where the new tokens of the open step are written, sequence by sequence.
    fn runs(&self) -> Result<Vec<PageRun>> {
        let (step, size) = (self.positions.step()?, self.page);
        let mut runs = Vec::new();
        let (mut token, counts) = (0, step.counts());
        for ((start, tokens), table) in step.starts().iter().zip(counts).zip(self.pages.tables.iter()) {
            let (mut at, end) = (*start, start + tokens);
            while at < end {
                let row = at % size;
                let count = (size - row).min(end - at);
                runs.push(PageRun { page: table[at / size], row, token, count });
                (at, token) = (at + count, token + count);
            }
        }
        Ok(runs)
    }

    /// Page and row of each new token of the open step, sequence by sequence.
    fn places(&mut self) -> Result<[Array; 2]> {
        if let Some(places) = &self.places {
            return Ok(places.clone());
        }
        let (mut pages, mut rows) = (Vec::new(), Vec::new());
        for run in self.runs()? {
            pages.extend(std::iter::repeat_n(run.page, run.count));
            rows.extend((run.row..run.row + run.count).map(|row| row as u32));
        }
        let array = |all: Vec<u32>| Array::try_from_slice(&all, &[all.len()]);
        Ok(self.places.insert([array(pages)?, array(rows)?]).clone())
    }

    /// Writes the new keys and values of a layer. Returns its pool.
    fn write(&mut self, layer: usize, keys: &Array, values: &Array) -> Result<Array> {
        let heads = keys.shape()[1];
        let by_token = |x: &Array| x.transpose(&[0, 2, 1, 3]);
        let new = self.pages.rows.encode(&concatenate(&[by_token(keys)?, by_token(values)?], 2)?)?;
        let width = new.shape()[3];
        let mut pool = match layer_mut(&mut self.layers, layer)? {
            Some(pool) => pool.clone(),
            None => Array::zeros(&[self.room, 2 * heads, self.page, width], new.dtype())?,
        };
        let new = new.astype(pool.dtype())?;
        let runs = self.runs()?;
        if runs.len() <= MAX_SLICE_UPDATES {
            let new = new.reshape(&[1, -1, 2 * heads as isize, width as isize])?;
            for run in runs {
                pool = run.write(&pool, &new)?;
            }
        } else {
            let new = new.reshape(&[-1, 1, 2 * heads as isize, 1, width as isize])?;
            pool = pool.scatter(&self.places()?, &new, &[0, 2])?;
        }
        *layer_mut(&mut self.layers, layer)? = Some(pool.clone());
        Ok(pool)
    }

    /// What the tokens of a part of the step read, for heads like those of `keys`.
    fn view(&mut self, pool: &Array, part: usize, keys: &Array, window: Option<usize>) -> Result<KvView> {
        let (heads, width, dtype) = (keys.shape()[1], keys.shape()[3], keys.dtype());
        let (format, quantization) = (self.pages.rows, self.quantization);
        let part = &mut self.parts[part];
        let several = part.sequences.len() > 1;
        let seen = part.seen(window, self.page)?;
        let (rows, mask) = (seen.gather(pool)?, seen.mask.clone());
        let part = |first: usize| -> Result<KvRows> {
            let part = heads_of(&rows, first, first + heads, rows.shape()[2])?;
            Ok(match (format.parts(&part, width, dtype)?, quantization) {
                (Some([codes, scales, biases]), Some(quantization)) => {
                    KvRows::Quantized { codes, scales, biases, quantization }
                }
                _ => KvRows::Dense(part.astype(dtype)?),
            })
        };
        let (keys, mut values) = (part(0)?, part(heads)?);
        if let KvMask::Rows(seen) = &mask
            && several
        {
            // Rows that were written by another sequence may be NaN, and 0 * NaN is NaN.
            let dense = values.dense()?;
            let seen = seen.any(axes(2).keepdims())?.transpose(&[0, 1, 3, 2])?;
            values = KvRows::Dense(select(&seen, &dense, &dense.zeros_like()?)?);
        }
        Ok(KvView { keys, values, mask })
    }

    /// Divides the open step into parts whose sequences have the same number of new tokens: all of it if they
    /// all have, else neighbours that come alone, and neighbours at the same positions.
    fn divide(&mut self) -> Result<()> {
        let step = self.positions.step()?;
        let (starts, counts) = (step.starts(), step.counts());
        let belongs = |first: usize, next: usize| {
            let few = next - first < MAX_FUSED_ROWS;
            let same_place = starts[first] == starts[next];
            !step.is_ragged()
                || (counts[first] == counts[next] && (same_place || (counts[first] == 1 && few)))
        };
        let (mut parts, mut first, mut row) = (Vec::new(), 0, 0);
        while first < starts.len() {
            let mut next = first + 1;
            while next < starts.len() && belongs(first, next) {
                next += 1;
            }
            let (sequences, rows) = (first..next, row..row + (next - first) * counts[first]);
            (first, row) = (next, rows.end);
            let (starts, tokens) = (starts[sequences.clone()].to_vec(), counts[sequences.start]);
            let tables = match sequences.len() == self.pages.tables.len() {
                true => self.pages.tables.clone(),
                false => self.pages.tables[sequences.clone()].to_vec().into(),
            };
            let pages = Pages { tables, rows: self.pages.rows };
            parts.push(StepPart { sequences, rows, starts, tokens, pages, seen: Vec::new() });
        }
        self.parts = parts;
        Ok(())
    }
}

/// The most tokens that come alone in their sequences and attend together: those of one launch on a GPU.
const MAX_FUSED_ROWS: usize = 256;

/// Sequences of a step with the same number of new tokens, which attend together.
#[derive(Debug)]
struct StepPart {
    sequences: Range<usize>,
    /// Their new tokens among those of the step.
    rows: Range<usize>,
    /// Tokens of each sequence before the step.
    starts: Vec<usize>,
    /// New tokens of each sequence.
    tokens: usize,
    /// The pages of the sequences.
    pages: Pages,
    /// What is read, by window: layers with the same window share it.
    seen: Vec<(Option<usize>, SeenRows)>,
}

/// Rows of sequences that new tokens read.
#[derive(Debug)]
struct SeenRows {
    /// The pages that hold them, of shape (sequences, pages).
    pages: Array,
    /// The rows of these pages, one after the other, that are read.
    rows: Range<usize>,
    /// Which of them each token sees.
    mask: KvMask,
}

impl SeenRows {
    /// The rows as stored, with zeros or rows of other sequences where a sequence has none.
    fn gather(&self, pool: &Array) -> Result<Array> {
        let [sequences, pages] = [self.pages.shape()[0], self.pages.shape()[1]];
        let shape = [sequences, pool.shape()[1], pages * pool.shape()[2], pool.shape()[3]];
        let shape = shape.map(|length| length as isize);
        let all = pool.take(&self.pages, Some(0))?.transpose(&[0, 2, 1, 3, 4])?.reshape(&shape)?;
        Ok(rows_of(&all, self.rows.start, self.rows.end)?)
    }
}

impl StepPart {
    /// What the tokens read with a window, in pages of `page` tokens.
    fn seen(&mut self, window: Option<usize>, page: usize) -> Result<&SeenRows> {
        if let Some(known) = self.seen.iter().position(|(own, _)| *own == window) {
            return Ok(&self.seen[known].1);
        }
        // Of one sequence only the rows that a token sees are gathered.
        let from = match (&self.starts[..], window) {
            ([start], Some(window)) => (start + 1).saturating_sub(window),
            _ => 0,
        };
        let mut relative = Positions::with_lengths(self.starts.iter().map(|start| start - from).collect());
        relative.begin(&vec![self.tokens; self.starts.len()])?;
        let step = relative.step_mut()?;
        let (to, mask) = (from + step.rows(), step.mask(window)?);
        let (first, last, tables) = (from / page, to.div_ceil(page), &self.pages.tables);
        let entry = |table: &Vec<u32>, at: usize| table.get(at).copied().unwrap_or(SCRATCH_PAGE);
        let pages: Vec<u32> =
            tables.iter().flat_map(|table| (first..last).map(|at| entry(table, at))).collect();
        let pages = Array::try_from_slice(&pages, &[tables.len(), last - first])?;
        self.seen.push((window, SeenRows { pages, rows: from - first * page..to - first * page, mask }));
        Ok(&self.seen[self.seen.len() - 1].1)
    }
}

/// The most pages that a step writes one after the other; more are written by one scatter.
const MAX_SLICE_UPDATES: usize = 2;

/// New tokens of a sequence that are neighbours in a page.
struct PageRun {
    page: u32,
    row: usize,
    /// The first of them among the new tokens of the step.
    token: usize,
    count: usize,
}

impl PageRun {
    /// The pool with its rows of `new`, of shape (1, tokens, heads, elements).
    fn write(&self, pool: &Array, new: &Array) -> hesper_core::Result<Array> {
        let (heads, width) = (new.shape()[2], new.shape()[3]);
        let (from, to) = ([0, self.token, 0, 0], [1, self.token + self.count, heads, width]);
        let (from, to) = (from.map(|at| at as isize), to.map(|at| at as isize));
        let rows = new.slice(&from, &to, &[1; 4])?.transpose(&[0, 2, 1, 3])?;
        let (from, to) = (
            [self.page as usize, 0, self.row, 0],
            [self.page as usize + 1, heads, self.row + self.count, width],
        );
        let (from, to) = (from.map(|at| at as isize), to.map(|at| at as isize));
        pool.slice_update(&rows, &from, &to, &[1; 4])
    }
}

/// The pool with at least `pages` pages.
fn with_pages(pool: &Array, pages: usize) -> hesper_core::Result<Array> {
    let shape = pool.shape();
    if shape[0] >= pages {
        return Ok(pool.clone());
    }
    let more = Array::zeros(&[pages - shape[0], shape[1], shape[2], shape[3]], pool.dtype())?;
    concatenate(&[pool.clone(), more], 0)
}

impl KvCache for PagedCache {
    fn positions(&self) -> &Positions {
        &self.positions
    }

    fn positions_mut(&mut self) -> &mut Positions {
        &mut self.positions
    }

    fn arrays(&self) -> Vec<&Array> {
        self.layers.iter().flatten().collect()
    }

    fn can_roll_back(&self) -> bool {
        true
    }

    fn begin(&mut self, tokens: &[usize]) -> Result<()> {
        self.positions.begin(tokens)?;
        let step = self.positions.step()?;
        let missing =
            self.pages.tables.iter().zip(step.starts().iter().zip(tokens)).map(|(table, (start, tokens))| {
                (start + tokens).div_ceil(self.page).saturating_sub(table.len())
            });
        let missing: usize = missing.sum();
        if missing > 0 {
            self.positions.abort();
            return Err(Error::CacheFull { needed: missing * self.page, free: 0 });
        }
        let highest = self.pages.tables.iter().flatten().max().map_or(0, |page| *page as usize);
        self.make_room(highest)?;
        (self.places, self.row_pages) = (None, None);
        self.divide()
    }

    fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<KvView> {
        let pool = self.write(layer, keys, values)?;
        self.view(&pool, 0, keys, window)
    }

    fn append_rows(
        &mut self,
        layer: usize,
        tokens: &Array,
        heads: Heads,
        rotation: Option<&RotaryFrequencies>,
    ) -> Result<Option<RowView<'_>>> {
        let step = self.positions.step()?;
        let host = placement::current_device() == placement::Device::Cpu;
        if !host && (self.pages.rows != PageRows::Exact || !step.is_decode()) {
            return Ok(None);
        }
        let pages = self.row_pages.get_or_insert_with(|| match step.is_decode() {
            true => self.pages.clone(),
            false => {
                let each = self.pages.tables.iter().zip(step.counts());
                let tables = each.flat_map(|(table, count)| std::iter::repeat_n(table.clone(), *count));
                Pages { tables: tables.collect::<Vec<_>>().into(), rows: self.pages.rows }
            }
        });
        let slot = layer_mut(&mut self.layers, layer)?;
        let (rows, dtype) = (self.pages.rows, tokens.dtype());
        if slot.as_ref().is_some_and(|pool| pool.dtype() != rows.dtype(dtype)) {
            return Ok(None);
        }
        let pool = match &*slot {
            Some(pool) => pool.clone(),
            None => {
                Array::zeros(&[self.room, 2 * heads.kv, self.page, rows.width(heads.dim)], rows.dtype(dtype))?
            }
        };
        let kept =
            keep_token(&pool, tokens, step.positions(), Some(pages), StepHeads::from(heads), rotation)?;
        *slot = Some(kept.clone());
        Ok(Some(RowView { rows: kept, positions: step.positions(), pages: Some(pages.clone()) }))
    }

    fn append_segments(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<Vec<Segment<'_>>> {
        let pool = self.write(layer, keys, values)?;
        let fused = self.pages.rows == PageRows::Exact;
        let views = (0..self.parts.len()).map(|part| match fused && self.parts[part].tokens == 1 {
            true => Ok(None),
            false => self.view(&pool, part, keys, window).map(Some),
        });
        let views = views.collect::<Result<Vec<_>>>()?;
        let mut segments = Vec::with_capacity(views.len());
        for (part, view) in self.parts.iter().zip(views) {
            let fused = || {
                let pages = Some(part.pages.clone());
                SegmentView::Fused(RowView { rows: pool.clone(), positions: &part.starts, pages })
            };
            let view = view.map_or_else(fused, SegmentView::Rows);
            segments.push(Segment { rows: part.rows.clone(), sequences: part.sequences.len(), view });
        }
        Ok(segments)
    }

    fn remove(&mut self, sequence: usize) -> Result<()> {
        super::rows::check_settled(&self.positions)?;
        let (mut tables, mut lengths) = (self.pages.tables.to_vec(), self.lengths().to_vec());
        if sequence >= tables.len() {
            let what = format!("a cache of {} sequences has no sequence {sequence}", tables.len());
            return Err(Error::InvalidArgument(what));
        }
        tables.swap_remove(sequence);
        lengths.swap_remove(sequence);
        self.bind(tables, lengths)
    }
}
