//! KV caches: growing, rotating over a window, quantized, in pages, and those of a batch.
//!
//! All implement [`KvCache`], for one sequence or a batch of them. Rows are written into memory that the
//! cache alone owns ([`fast::append`](hesper_core::fast::append)), so a step costs what it adds.

mod batch;
mod growing;
mod paged;
mod quantized;
mod rotating;
mod rows;

use hesper_core::placement;
use hesper_nn::{Error, KvCache, Result};

use crate::config::Config;
use batch::BatchCache;
use growing::GrowingCache;
pub use paged::{PageCounts, PageFormat, PagedCache, SCRATCH_PAGE};
use quantized::QuantizedCache;
use rotating::RotatingCache;

/// How a cache stores keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheKind {
    /// All of them, in the dtype of the model.
    #[default]
    Growing,
    /// The first `keep` tokens and the most recent ones, `window` in all.
    Rotating {
        /// Tokens at the start that are never overwritten.
        keep: usize,
        /// The largest number of tokens.
        window: usize,
    },
    /// All of them, quantized in groups.
    Quantized {
        /// Bits per code: 4 or 8.
        bits: usize,
        /// Codes per scale: 32, 64 or 128.
        group: usize,
    },
}

impl CacheKind {
    /// The kind for command-line options: a window, else a number of bits, else growing.
    pub fn of(window: Option<usize>, bits: Option<usize>) -> Self {
        match (window, bits) {
            (Some(window), _) => CacheKind::Rotating { keep: 4, window },
            (None, Some(bits)) => CacheKind::Quantized { bits, group: 32 },
            (None, None) => CacheKind::Growing,
        }
    }

    /// Whether sequences of this kind can be decoded in a batch.
    pub fn is_batchable(self) -> bool {
        !matches!(self, CacheKind::Rotating { .. })
    }

    /// An empty cache for one sequence.
    pub fn create(self, config: &Config) -> crate::Result<Box<dyn KvCache>> {
        Ok(match self {
            CacheKind::Growing => Box::new(GrowingCache::new(config.layers)),
            CacheKind::Rotating { keep, window } => {
                Box::new(RotatingCache::new(config.layers, keep, window)?)
            }
            CacheKind::Quantized { bits, group } => {
                Box::new(QuantizedCache::new(config.layers, bits, group, config.head_dim)?)
            }
        })
    }

    /// A cache for a batch whose first sequence is that of `cache`, which is of this kind. Others of this
    /// kind can join ([`KvCache::join`]). On the CPU the batch has its rows in pages.
    pub fn batched(self, cache: Box<dyn KvCache>, config: &Config) -> crate::Result<Box<dyn KvCache>> {
        let format = match self {
            // Steps on a GPU need no page tables this way.
            _ if placement::current_device() != placement::Device::Cpu => return Ok(cache),
            CacheKind::Rotating { .. } => return Ok(cache),
            CacheKind::Growing => PageFormat::Exact,
            CacheKind::Quantized { bits, group } => PageFormat::Quantized { bits, group },
        };
        let mut batch = BatchCache::new(config, format)?;
        batch.join(cache)?;
        Ok(Box::new(batch))
    }
}

/// A layer of a cache.
fn layer_mut<T>(layers: &mut [T], layer: usize) -> Result<&mut T> {
    let count = layers.len();
    let missing = || Error::InvalidArgument(format!("a cache of {count} layers has no layer {layer}"));
    layers.get_mut(layer).ok_or_else(missing)
}
