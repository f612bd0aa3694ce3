//! The operands of a packed product: anything whose lines along K can be packed.

use super::kind::Kind;
use crate::mat::MatRef;
use crate::simd::Isa;

/// Columns of a right operand, or rows of a left one: dense, or made up while they are packed.
pub(crate) trait Columns<P: Kind>: Sync {
    /// Whether neighbours along K lie together; if not, neighbouring columns do.
    fn lies_along_k(&self) -> bool;

    /// Packs steps `k0..k0 + len` of the columns `j0..j0 + valid` into a panel of `width` columns.
    ///
    /// # Safety
    /// The steps and columns exist, and `dst` has room for the panel, and for 64 bytes more unless `width` is a
    /// multiple of a vector.
    unsafe fn pack<S: Isa>(
        &self,
        s: S,
        k0: usize,
        len: usize,
        j0: usize,
        valid: usize,
        width: usize,
        dst: *mut P::Acc,
    );
}

impl<P: Kind> Columns<P> for MatRef<'_, P::In> {
    fn lies_along_k(&self) -> bool {
        self.col_stride != 1
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(
        &self,
        s: S,
        k0: usize,
        len: usize,
        j0: usize,
        valid: usize,
        width: usize,
        dst: *mut P::Acc,
    ) {
        // SAFETY: the caller's promise.
        unsafe { P::pack(s, self.at(k0, j0), self.col_stride, self.row_stride, valid, width, len, dst) }
    }
}

/// The rows of a matrix, as the lines of a left operand.
pub(crate) struct Rows<'a, T>(pub MatRef<'a, T>);

impl<P: Kind> Columns<P> for Rows<'_, P::In> {
    fn lies_along_k(&self) -> bool {
        self.0.row_stride != 1
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(
        &self,
        s: S,
        k0: usize,
        len: usize,
        j0: usize,
        valid: usize,
        width: usize,
        dst: *mut P::Acc,
    ) {
        let a = &self.0;
        // SAFETY: the caller's promise.
        unsafe { P::pack(s, a.at(j0, k0), a.row_stride, a.col_stride, valid, width, len, dst) }
    }
}
