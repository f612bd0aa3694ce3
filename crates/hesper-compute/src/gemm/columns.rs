//! The operands of a packed product: anything whose lines along K can be packed.

use super::precision::Precision;
use crate::mat::MatRef;
use crate::simd::Isa;

/// A panel to pack: steps `k0..k0 + len` of the columns `j0..j0 + valid`, padded to `width` columns at `dst`.
#[derive(Clone, Copy)]
pub(crate) struct Panel<A> {
    pub k0: usize,
    pub len: usize,
    pub j0: usize,
    pub valid: usize,
    pub width: usize,
    pub dst: *mut A,
}

/// Columns of a right operand, or rows of a left one: dense, or computed while packing.
pub(crate) trait Columns<P: Precision>: Sync {
    /// Whether lines are contiguous along K; if not, neighbouring columns are adjacent.
    fn is_contiguous_along_k(&self) -> bool;

    /// Packs a panel.
    ///
    /// # Safety
    /// Its steps and columns exist, and `dst` has room for it, and for 64 bytes more unless its width is a multiple
    /// of the vector length.
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<P::Acc>);
}

impl<P: Precision> Columns<P> for MatRef<'_, P::In> {
    fn is_contiguous_along_k(&self) -> bool {
        self.col_stride != 1
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<P::Acc>) {
        // SAFETY: the caller's promise.
        unsafe {
            let Panel { k0, len, j0, valid, width, dst } = panel;
            P::pack(s, self.at(k0, j0), self.col_stride, self.row_stride, valid, width, len, dst);
        }
    }
}

/// The rows of a matrix, as the lines of a left operand.
pub(crate) struct LeftRows<'a, T>(pub MatRef<'a, T>);

impl<P: Precision> Columns<P> for LeftRows<'_, P::In> {
    fn is_contiguous_along_k(&self) -> bool {
        self.0.row_stride != 1
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<P::Acc>) {
        let a = &self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let Panel { k0, len, j0, valid, width, dst } = panel;
            P::pack(s, a.at(j0, k0), a.row_stride, a.col_stride, valid, width, len, dst);
        }
    }
}
