//! The epilogue of a kernel that writes rows: a group of element-wise ops is applied to some rows at a time,
//! while they are in the cache.

use std::sync::OnceLock;

use hesper_compute::{Mismatch, Plain, RowScratch, Source};
use hesper_core::Element;
use hesper_core::eval::producer_fusion::RowKernel;
use hesper_runtime::{NativeError, NativeResult, View};
use smallvec::SmallVec;

use crate::parallel::{GRAIN, par_chunks_mut};

/// Elements of a piece, unless one row has more.
const PIECE: usize = 16384;

/// An epilogue inside of a command.
pub(crate) struct EpilogueRows<'a> {
    kernel: &'a RowKernel,
    /// The bytes of its other inputs, in order.
    bytes: SmallVec<[&'a [u8]; 8]>,
    /// Bytes of an element that it gives.
    size: usize,
}

impl<'a> EpilogueRows<'a> {
    pub(crate) fn new(
        kernel: &'a RowKernel,
        views: &'a [View<'_>],
        size: usize,
    ) -> Result<Self, NativeError> {
        let bytes = views.iter().map(|view| view.bytes()).collect::<Result<_, NativeError>>()?;
        Ok(EpilogueRows { kernel, bytes, size })
    }

    /// Fills `out` with what the epilogue makes of rows of `length` elements. `compute` computes rows from a
    /// number on, on the calling thread.
    pub(crate) fn apply<T: Element + Plain>(
        &self,
        length: usize,
        out: &mut [u8],
        compute: impl Fn(usize, &mut [T]) -> Result<(), Mismatch> + Sync,
    ) -> NativeResult {
        let failed: OnceLock<NativeError> = OnceLock::new();
        let rows = (PIECE / length).max(1);
        let pieces = (GRAIN / (rows * length)).max(1);
        let bytes = rows * length * self.size;
        par_chunks_mut(out, pieces * bytes, |task, out| {
            let mut room = RowScratch::default();
            for (number, out) in out.chunks_mut(bytes).enumerate() {
                let first = (task * pieces + number) * rows;
                let piece = room.take::<T>(out.len() / self.size);
                let computed = compute(first, piece).map_err(crate::refused).and_then(|()| {
                    let piece = bytemuck::cast_slice(piece);
                    let applied =
                        self.kernel.compute_from(first * length, piece, &self.bytes, out, self.size);
                    applied.map_err(NativeError::from)
                });
                if let Err(error) = computed {
                    let _ = failed.set(error);
                }
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}

/// Some of the rows of a source.
pub(crate) struct RowRange<'a, T> {
    pub(crate) of: &'a dyn Source<T>,
    /// The number of the first element, and how many there are.
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl<T> Source<T> for RowRange<'_, T> {
    fn count(&self) -> usize {
        self.count
    }

    fn piece<'a>(&'a self, at: usize, len: usize, room: &'a mut RowScratch) -> &'a [T] {
        self.of.piece(self.first + at, len, room)
    }

    fn piece_len(&self, row: usize) -> usize {
        self.of.piece_len(row)
    }
}
