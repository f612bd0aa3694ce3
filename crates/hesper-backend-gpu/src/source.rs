//! Where a kernel with a slot reads its elements.

use std::ops::Range;

use hesper_core::Result;
use hesper_core::backend::{Data, Lowering, Slot, reach};
use hesper_runtime::Encoder;

/// Bytes of a word that kernels load at once.
pub(crate) const WORD: usize = 16;
/// Most arrays and ops of a group that a kernel computes again each time it reads its elements. Loading more
/// takes longer than storing the value and loading it again.
const MAX_READ_AGAIN: (usize, usize) = (2, 8);

/// The elements of an op's first input: a byte range of memory, or what fills the slot.
pub enum Source {
    /// Memory.
    Memory(Data, Range<usize>),
    /// Computed as they are read.
    Slot(Slot),
}

impl Source {
    /// The first input with its strides. Words are of sixteen bytes.
    pub fn strided(l: &mut Lowering<'_>) -> Result<Source> {
        let lanes = WORD / l.input_dtype(0).size();
        if let Some(slot) = l.slot(lanes, false)? {
            return Ok(Source::Slot(slot));
        }
        Ok(Source::memory(l, l.input(0).clone()))
    }

    /// The first input in row-major order.
    pub fn row_major(l: &mut Lowering<'_>) -> Result<Source> {
        let lanes = WORD / l.input_dtype(0).size();
        if let Some(slot) = l.slot(lanes, true)? {
            return Ok(Source::Slot(slot));
        }
        let data = l.row_major(0)?;
        Ok(Source::memory(l, data))
    }

    fn memory(l: &Lowering<'_>, data: Data) -> Source {
        let (bytes, _) = reach(&data, l.input_shape(0), l.input_dtype(0).size());
        Source::Memory(data, bytes)
    }

    /// What fills the slot of the kernel.
    pub fn slot(&self) -> Option<&Slot> {
        match self {
            Source::Memory(..) => None,
            Source::Slot(slot) => Some(slot),
        }
    }

    /// The number of arrays that are read.
    pub fn reads(&self) -> usize {
        self.slot().map_or(1, |slot| slot.memory.len())
    }

    /// Whether a kernel may read the elements more than once.
    pub fn is_cheap(&self) -> bool {
        let (reads, ops) = MAX_READ_AGAIN;
        self.slot().is_none_or(|slot| slot.memory.len() <= reads && slot.functions.ops <= ops)
    }

    /// Whether the first element is at a multiple of sixteen bytes. What fills a slot counts from there.
    pub fn is_aligned(&self) -> bool {
        match self {
            Source::Memory(_, bytes) => bytes.start.is_multiple_of(WORD),
            Source::Slot(_) => true,
        }
    }

    /// Binds what is read.
    pub fn bind<'a>(&'a self, command: Encoder<'a>) -> Encoder<'a> {
        match self {
            Source::Memory(data, bytes) => command.read_range(&data.buffer, bytes.clone()),
            Source::Slot(slot) => slot.bind(command),
        }
    }

    /// Binds memory in the place of a buffer that the kernel does not read.
    pub fn bind_unused<'a>(&'a self, command: Encoder<'a>) -> Encoder<'a> {
        match self {
            Source::Memory(data, bytes) => command.read_range(&data.buffer, bytes.clone()),
            Source::Slot(slot) => command.read(&slot.memory[0].buffer),
        }
    }
}
