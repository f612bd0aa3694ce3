//! Softmax and norms, reductions, scans and sorts: memory-bound kernels.
//!
//! Reductions read strided memory ([`input::ReduceInput`]). The others work along an axis of a contiguous
//! array ([`Axis`]): `outer` blocks of `len` rows of `inner` elements. The last axis has `inner == 1`, the
//! first `outer == 1`, a whole array both. Sums are split at the same positions whatever the number of
//! threads.

pub(crate) mod arg;
mod extreme;
mod fold;
pub(crate) mod input;
pub(crate) mod integers;
pub(crate) mod layout;
pub(crate) mod moments;
pub(crate) mod norm;
pub(crate) mod norm_columns;
pub(crate) mod norm_gradient;
pub(crate) mod reduce;
pub(crate) mod scan;
mod scan_floats;
pub(crate) mod sort;
pub(crate) mod source;
mod transposed;
mod tree;

use crate::error::{Mismatch, product};

/// An axis of a contiguous array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Product of the sizes before the axis.
    pub outer: usize,
    /// Size of the axis.
    pub len: usize,
    /// Product of the sizes after the axis.
    pub inner: usize,
}

impl Axis {
    /// The last axis of `rows` rows.
    pub fn last(rows: usize, len: usize) -> Self {
        Self { outer: rows, len, inner: 1 }
    }

    pub(crate) fn elements(self) -> Result<usize, Mismatch> {
        product("elements of an array", &[self.outer, self.len, self.inner])
    }
}
