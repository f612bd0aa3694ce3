//! The source of a kernel that reads rows: memory, or a fused group that computes pieces of rows in the cache
//! as they are read.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use hesper_compute::{Plain, RowScratch, Source};
use hesper_core::backend::{Data, Lowering, reach};
use hesper_core::eval::producer_fusion::{FusedRows, RowKernel};
use hesper_core::{Element, Result};
use hesper_runtime::{Encoder, Native, NativeError, NativeResult, View};
use smallvec::SmallVec;

/// The source of rows: memory, or a fused group.
pub(crate) enum RowSource {
    /// Row-major memory, and its byte range.
    Memory(Data, std::ops::Range<usize>),
    /// Computed as they are read.
    Fused(FusedRows),
}

impl RowSource {
    /// The first input of an op that reads rows.
    pub(crate) fn of<T: Element>(l: &mut Lowering<'_>) -> Result<RowSource> {
        if let Some(rows) = l.take_fused_rows()? {
            return Ok(RowSource::Fused(rows));
        }
        let data = l.row_major(0)?;
        let (bytes, _) = reach(&data, l.input_shape(0), T::DTYPE.size());
        Ok(RowSource::Memory(data, bytes))
    }

    /// Binds what is read.
    pub(crate) fn bind<'a>(&'a self, mut command: Encoder<'a>) -> Encoder<'a> {
        match self {
            RowSource::Memory(data, bytes) => command.read_range(&data.buffer, bytes.clone()),
            RowSource::Fused(rows) => {
                for data in rows.memory() {
                    command = command.read(&data.buffer);
                }
                command
            }
        }
    }

    /// How the command reads the bound views, which must be its first ones.
    pub(crate) fn reader(&self) -> Reader {
        match self {
            RowSource::Memory(..) => Reader(None),
            RowSource::Fused(rows) => Reader(Some(rows.kernel().clone())),
        }
    }
}

/// Reads rows inside of a command.
pub(crate) struct Reader(Option<Arc<RowKernel>>);

impl Reader {
    /// Calls `f` with the rows and the views that follow.
    pub(crate) fn with<T: Pod + Plain>(
        &self,
        native: &mut Native<'_, '_>,
        f: impl FnOnce(&dyn Source<T>, &mut [View<'_>]) -> NativeResult,
    ) -> NativeResult {
        let own = self.0.as_ref().map_or(1, |kernel| kernel.reads());
        let Some((first, rest)) = native.views().split_at_mut_checked(own) else {
            return Err("a view is missing".into());
        };
        let Some(kernel) = &self.0 else {
            return f(&first[0].as_slice::<T>()?, rest);
        };
        let bytes = first.iter().map(|view| view.bytes()).collect::<std::result::Result<_, NativeError>>()?;
        let pieces = Pieces { kernel, bytes, failed: OnceLock::new(), of: PhantomData::<T> };
        f(&pieces, rest)?;
        pieces.failed.into_inner().map_or(Ok(()), |failed| Err(failed.into()))
    }
}

/// Rows that are computed as they are read.
struct Pieces<'a, T> {
    kernel: &'a RowKernel,
    /// The bytes of the inputs, in order.
    bytes: SmallVec<[&'a [u8]; 8]>,
    /// The error of the first piece that failed.
    failed: OnceLock<String>,
    of: PhantomData<T>,
}

impl<T: Pod + Plain> Source<T> for Pieces<'_, T> {
    fn count(&self) -> usize {
        self.kernel.size()
    }

    fn piece<'a>(&'a self, at: usize, len: usize, room: &'a mut RowScratch) -> &'a [T] {
        let piece = room.take::<T>(len);
        if let Err(failed) = self.kernel.compute(at, &self.bytes, piece) {
            let _ = self.failed.set(failed);
        }
        piece
    }
}
