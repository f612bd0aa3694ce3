//! Many products of one shape, with broadcasting: parallel over the batch, or within each product.

use super::{Element, GemmOptions, check};
use crate::error::{Mismatch, product, same};
use crate::mat::{MatMut, MatRef};
use crate::par::{AtLevel, Par, Serial, Shared};

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
/// Multiply-adds of a task of small products; fewer take less time than to call another thread.
const LEAST: usize = 1 << 17;
/// Multiply-adds in the time that it takes to begin a product.
const CALL: usize = 1 << 11;

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

/// Matrices of one shape in a slice: where the first begins, and how far apart their rows, columns and the matrices
/// along each axis of the batch lie. Strides may be negative, or zero where an operand is broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a, T> {
    /// Where they lie.
    pub data: &'a [T],
    /// The first element of the first matrix.
    pub first: usize,
    /// Elements from a row to the next.
    pub rows: isize,
    /// Elements from a column to the next.
    pub cols: isize,
    /// Elements from a matrix to the next, for each axis of the batch.
    pub batch: &'a [isize],
}

impl<'a, T> Stack<'a, T> {
    /// The first matrix, if all of them lie in the slice.
    fn matrix(&self, lengths: &[usize], rows: usize, cols: usize) -> Result<MatRef<'a, T>, Mismatch> {
        let (mut low, mut high) = (self.first as i128, self.first as i128);
        let strides = self.batch.iter().chain([&self.rows, &self.cols]);
        for (length, stride) in lengths.iter().chain([&rows, &cols]).zip(strides) {
            let reach = (*length as i128 - 1) * *stride as i128;
            (low, high) = (low + reach.min(0), high + reach.max(0));
        }
        if low < 0 || high >= self.data.len() as i128 {
            let expected = usize::try_from(high + 1).unwrap_or(usize::MAX);
            let what = "elements that strided matrices reach";
            return Err(Mismatch { what, expected, given: self.data.len() });
        }
        MatRef::strided(self.data, self.first, rows, cols, self.rows, self.cols)
    }

    /// Where the matrix of this number begins, from the first on.
    fn offset(&self, lengths: &[usize], mut number: usize) -> isize {
        let mut offset = 0;
        for (length, stride) in lengths.iter().zip(self.batch).rev() {
            offset += (number % length) as isize * stride;
            number /= length;
        }
        offset
    }
}

/// The product of [`gemm`](super::gemm) for every matrix of a batch of `lengths`: `m x k` ones times `k x n` ones, the
/// results one after the other in `out`.
///
/// ```
/// use hesper_compute::{GemmOptions, Serial, Stack, gemm_stacked};
/// // Two rows, each times the same matrix.
/// let (x, w) = ([1.0f32, 2.0, 3.0, 4.0], [1.0, 0.0, 1.0, 1.0]);
/// let a = Stack { data: &x, first: 0, rows: 2, cols: 1, batch: &[2] };
/// let b = Stack { data: &w, first: 0, rows: 2, cols: 1, batch: &[0] };
/// let mut out = [0.0; 4];
/// gemm_stacked(&Serial, &[2], (1, 2, 2), a, b, &mut out, &GemmOptions::default())?;
/// assert_eq!(out, [3.0, 2.0, 7.0, 4.0]);
/// # Ok::<(), hesper_compute::Mismatch>(())
/// ```
pub fn gemm_stacked<T: Element>(
    par: &dyn Par,
    lengths: &[usize],
    (m, n, k): (usize, usize, usize),
    a: Stack<'_, T>,
    b: Stack<'_, T>,
    out: &mut [T],
    options: &GemmOptions<'_, T>,
) -> Result<(), Mismatch> {
    same("axes of a batch", lengths.len(), a.batch.len())?;
    same("axes of a batch", lengths.len(), b.batch.len())?;
    let size = product("elements of a product", &[m, n])?;
    let count = product("products of a batch", lengths)?;
    same("elements of the products", product("elements of the products", &[count, size])?, out.len())?;
    if out.is_empty() {
        return Ok(());
    }
    // A sum over nothing reads nothing.
    let (left, right) = if k == 0 {
        (MatRef::row_major(&[], m, 0)?, MatRef::row_major(&[], 0, n)?)
    } else {
        (a.matrix(lengths, m, k)?, b.matrix(lengths, k, n)?)
    };
    check(&left, &right, &MatMut::row_major(&mut out[..size], m, n)?, options)?;
    let (left, right, to) = (&left, &right, Shared::new(out.as_mut_ptr()));
    let one = |par: &dyn Par, number: usize, at: [isize; 2]| {
        let a = MatRef { ptr: left.ptr.wrapping_offset(at[0]), ..*left };
        let b = MatRef { ptr: right.ptr.wrapping_offset(at[1]), ..*right };
        // SAFETY: results follow one another in `out`, and there is one for each number.
        let c = unsafe { MatMut::from_raw(to.get().add(number * size), m, n, n as isize, 1) };
        T::product(par, a, b, c, options);
    };
    let (threads, work) = (par.threads(), size.saturating_mul(k).max(1));
    if threads > 1 && work >= SMALL && count < 4 * threads {
        for number in 0..count {
            one(par, number, [a.offset(lengths, number), b.offset(lengths, number)]);
        }
        return Ok(());
    }
    // Tasks that are worth calling a thread for.
    let tasks = count.min(threads * 8).min(work.saturating_add(CALL).saturating_mul(count).div_ceil(LEAST));
    let alone = AtLevel(Serial, par.simd());
    let last = lengths.len().wrapping_sub(1);
    par.run(tasks, &|t| {
        let range = t * count / tasks..(t + 1) * count / tasks;
        let mut at = [0; 2];
        for number in range.clone() {
            // Along the last axis matrices are evenly spaced.
            if number == range.start || number % lengths[last] == 0 {
                at = [a.offset(lengths, number), b.offset(lengths, number)];
            } else {
                at = [at[0] + a.batch[last], at[1] + b.batch[last]];
            }
            one(&alone, number, at);
        }
    });
    Ok(())
}
