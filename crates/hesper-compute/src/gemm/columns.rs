//! The operands of a packed product: anything whose lines along K can be packed.

use super::precision::Precision;
use crate::mat::MatRef;
use crate::simd::{Isa, Local};

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
    /// Its steps and columns exist, and `dst` has room for it, and for 64 bytes more unless its width is a
    /// multiple of the vector length.
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<P::Acc>);
}

/// [`Precision::pack`] as a part of a kernel: the blocks of both operands share its code.
struct PackDense<P: Precision> {
    src: *const P::In,
    line: isize,
    step: isize,
    valid: usize,
    width: usize,
    len: usize,
    dst: *mut P::Acc,
}

impl<S: Isa, P: Precision> Local<S> for PackDense<P> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { src, line, step, valid, width, len, dst } = self;
        // SAFETY: it is built in `Columns::pack` only, whose caller promised the memory.
        unsafe { P::pack(s, src, line, step, valid, width, len, dst) }
    }
}

impl<P: Precision> Columns<P> for MatRef<'_, P::In> {
    fn is_contiguous_along_k(&self) -> bool {
        self.col_stride != 1
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<P::Acc>) {
        let Panel { k0, len, j0, valid, width, dst } = panel;
        let (src, line, step) = (self.at(k0, j0), self.col_stride, self.row_stride);
        s.call(PackDense::<P> { src, line, step, valid, width, len, dst });
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
        let Panel { k0, len, j0, valid, width, dst } = panel;
        let (src, line, step) = (a.at(j0, k0), a.row_stride, a.col_stride);
        s.call(PackDense::<P> { src, line, step, valid, width, len, dst });
    }
}
