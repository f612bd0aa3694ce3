//! The cache of a batch: the sequences of several caches in the pages of one pool.
//!
//! A sequence takes whole pages, so a batch has memory for its tokens and for at most one page more of each
//! sequence; the pool grows by an eighth. A sequence that joins is copied to free pages and one that leaves
//! releases its pages: neither moves the rows of the others.

use std::any::Any;

use hesper_core::Array;
use hesper_core::ops::step::RotaryFrequencies;
use hesper_nn::{Error, Heads, KvCache, KvView, Positions, Result, RowView, Segment};

use super::growing::GrowingCache;
use super::paged::{PageCounts, PageFormat, PagedCache};
use super::quantized::QuantizedCache;
use super::rows::check_settled;
use crate::config::Config;

/// Tokens of a page. Half a page of each sequence is unused on average.
const PAGE: usize = 16;

/// Pages that are added to the counts at once. They have memory when a sequence has them.
const MORE_PAGES: usize = 64;

/// The most pages of a pool.
const MAX_PAGES: usize = u32::MAX as usize / 2;

/// Keys and values of the sequences of a batch.
#[derive(Debug)]
pub(super) struct BatchCache {
    format: PageFormat,
    pages: PagedCache,
    counts: PageCounts,
    /// The pages of each sequence, in the order of their tokens.
    tables: Vec<Vec<u32>>,
}

impl BatchCache {
    /// A cache without sequences.
    pub(super) fn new(config: &Config, format: PageFormat) -> crate::Result<Self> {
        let pages = PagedCache::new(config, format, PAGE, MAX_PAGES)?;
        Ok(BatchCache { format, pages, counts: PageCounts::new(0), tables: Vec::new() })
    }

    /// Takes pages until `table` has room for `tokens` tokens.
    fn extend(counts: &mut PageCounts, table: &mut Vec<u32>, tokens: usize) -> Result<()> {
        while table.len() * PAGE < tokens {
            if counts.free() == 0 && counts.capacity() < MAX_PAGES {
                counts.add(MORE_PAGES);
            }
            let needed = tokens - table.len() * PAGE;
            table.push(counts.take().ok_or(Error::CacheFull { needed, free: 0 })?);
        }
        Ok(())
    }

    fn release(&mut self, table: &[u32]) {
        table.iter().for_each(|page| self.counts.release(*page));
    }

    /// The lengths and the rows of each layer of a cache of one kind with this one.
    fn parts_of(&self, other: Box<dyn KvCache>) -> Result<(Positions, Vec<Array>)> {
        let other: Box<dyn Any> = other;
        match self.format {
            PageFormat::Quantized { bits, group } => match other.downcast::<QuantizedCache>() {
                Ok(other) => other.into_pages(bits, group),
                Err(_) => Err(other_kind()),
            },
            PageFormat::Exact | PageFormat::Half => match other.downcast::<GrowingCache>() {
                Ok(other) => Ok(other.into_blocks()),
                Err(_) => Err(other_kind()),
            },
        }
    }
}

fn other_kind() -> Error {
    Error::InvalidArgument("cannot join caches of different kinds".into())
}

impl KvCache for BatchCache {
    fn positions(&self) -> &Positions {
        self.pages.positions()
    }

    fn positions_mut(&mut self) -> &mut Positions {
        self.pages.positions_mut()
    }

    fn arrays(&self) -> Vec<&Array> {
        self.pages.arrays()
    }

    fn can_roll_back(&self) -> bool {
        true
    }

    fn begin(&mut self, tokens: &[usize]) -> Result<()> {
        let positions = self.pages.positions();
        let pending = positions.pending();
        let ends = positions.lengths().iter().zip(tokens).map(|(length, tokens)| length + pending + tokens);
        let mut has_grown = false;
        for (table, end) in self.tables.iter_mut().zip(ends) {
            let before = table.len();
            // Pages of a step that fails stay in their table, for the next one.
            Self::extend(&mut self.counts, table, end)?;
            has_grown |= table.len() > before;
        }
        if has_grown {
            self.pages.set_tables(self.tables.clone());
        }
        self.pages.begin(tokens)
    }

    fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<KvView> {
        self.pages.append(layer, keys, values, window)
    }

    fn append_rows(
        &mut self,
        layer: usize,
        tokens: &Array,
        heads: Heads,
        rotation: Option<&RotaryFrequencies>,
    ) -> Result<Option<RowView<'_>>> {
        self.pages.append_rows(layer, tokens, heads, rotation)
    }

    fn append_segments(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<Vec<Segment<'_>>> {
        self.pages.append_segments(layer, keys, values, window)
    }

    fn join(&mut self, other: Box<dyn KvCache>) -> Result<()> {
        check_settled(self.positions())?;
        check_settled(other.positions())?;
        let (positions, rows) = self.parts_of(other)?;
        let [length] = *positions.lengths() else {
            return Err(Error::InvalidArgument("a batch takes caches of one sequence".into()));
        };
        let mut table = Vec::new();
        let taken = Self::extend(&mut self.counts, &mut table, length);
        let written = taken.and_then(|()| self.pages.write_sequence(&rows, &table));
        let bound = written.and_then(|()| {
            let tables = self.tables.iter().chain([&table]).cloned().collect();
            self.pages.bind(tables, [self.lengths(), &[length]].concat())
        });
        match bound {
            Ok(()) => self.tables.push(table),
            Err(_) => self.release(&table),
        }
        bound
    }

    fn remove(&mut self, sequence: usize) -> Result<()> {
        self.pages.remove(sequence)?;
        let table = self.tables.swap_remove(sequence);
        self.release(&table);
        Ok(())
    }
}
