//! Many products of one shape, with broadcasting: parallel over the batch, or within each product.

use super::{Element, GemmOptions, check};
use crate::error::Mismatch;
use crate::mat::{MatMut, MatRef};
use crate::par::{AtLevel, Par, Serial};

/// Where one product of a batch lies: offsets in elements from the first of each operand.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchItem {
    /// Of the left operand.
    pub a: isize,
    /// Of the right operand.
    pub b: isize,
    /// Of the result.
    pub c: isize,
}

/// Multiply-adds below which a product stays on one thread.
const SMALL: usize = 1 << 21;

/// The product of [`gemm`](super::gemm) for every item; a broadcast operand repeats its offset.
///
/// Hooks and bias see each product for itself.
///
/// # Safety
/// For every item the operands moved by its offsets are valid views, and no two results overlap.
pub unsafe fn gemm_batched<T: Element>(
    par: &dyn Par,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
    items: &[BatchItem],
    options: &GemmOptions<'_, T>,
) -> Result<(), Mismatch> {
    check(&a, &b, &c, options)?;
    let (a, b, c) = (&a, &b, &c);
    let one = |par: &dyn Par, item: &BatchItem| {
        let a = MatRef { ptr: a.ptr.wrapping_offset(item.a), ..*a };
        let b = MatRef { ptr: b.ptr.wrapping_offset(item.b), ..*b };
        // SAFETY: the caller's promise.
        let c = unsafe {
            let ptr = c.ptr.wrapping_offset(item.c);
            MatMut::from_raw(ptr, c.rows, c.cols, c.row_stride, c.col_stride)
        };
        T::product(par, a, b, c, options);
    };
    let threads = par.threads();
    let work = a.rows.saturating_mul(b.cols).saturating_mul(a.cols);
    if threads == 1 || items.len() >= 4 * threads || (work < SMALL && items.len() > 1) {
        let tasks = items.len().min(threads * 8);
        let alone = AtLevel(Serial, par.simd());
        par.run(tasks, &|t| {
            let range = t * items.len() / tasks..(t + 1) * items.len() / tasks;
            items[range].iter().for_each(|item| one(&alone, item));
        });
    } else {
        items.iter().for_each(|item| one(par, item));
    }
    Ok(())
}
