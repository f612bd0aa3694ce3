//! The operands of a packed product: anything whose lines along K can be packed.

use super::kind::Kind;
use crate::mat::MatRef;
use crate::simd::Isa;

/// What is packed together: steps `k0..k0 + len` of the columns `j0..j0 + valid`, to `width` columns at `dst`.
#[derive(Clone, Copy)]
pub(crate) struct Panel<A> {
    pub k0: usize,
    pub len: usize,
    pub j0: usize,
    pub valid: usize,
    pub width: usize,
    pub dst: *mut A,
}

/// Columns of a right operand, or rows of a left one: dense, or made up while they are packed.
pub(crate) trait Columns<P: Kind>: Sync {
    /// Whether neighbours along K lie together; if not, neighbouring columns do.
    fn lies_along_k(&self) -> bool;

    /// Packs a panel.
    ///
    /// # Safety
    /// Its steps and columns exist, and there is room for it, and for 64 bytes more unless it is a multiple of a
    /// vector wide.
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<P::Acc>);
}

impl<P: Kind> Columns<P> for MatRef<'_, P::In> {
    fn lies_along_k(&self) -> bool {
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
pub(crate) struct Rows<'a, T>(pub MatRef<'a, T>);

impl<P: Kind> Columns<P> for Rows<'_, P::In> {
    fn lies_along_k(&self) -> bool {
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
