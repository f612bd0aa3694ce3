//! Many products of one shape, with broadcasting: parallel over the batch, or within each product.

use super::{Element, GemmOptions, check};
use crate::error::{Mismatch, product, reached, same};
use crate::mat::{MatMut, MatRef};
use crate::par::{AtLevel, Par, Serial, Shared};

/// Multiply-adds below which one product runs on one thread.
const SERIAL_WORK: usize = 1 << 21;
/// Fewest multiply-adds per task: smaller tasks take less time than starting a thread.
const MIN_TASK_WORK: usize = 1 << 17;
/// Overhead of one product, in multiply-adds.
const CALL_WORK: usize = 1 << 11;

/// A batch of matrices of one shape in a slice, with strides for rows, columns and each batch axis. Strides
/// may be negative, or zero where an operand is broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// The first element of the first matrix.
    pub first: usize,
    /// Row stride.
    pub rows: isize,
    /// Column stride.
    pub cols: isize,
    /// Stride of each batch axis.
    pub batch: &'a [isize],
}

impl<'a, T> Stack<'a, T> {
    /// The first matrix, if all of them lie within the slice.
    fn matrix(&self, lengths: &[usize], rows: usize, cols: usize) -> Result<MatRef<'a, T>, Mismatch> {
        let (mut low, mut high) = (self.first as i128, self.first as i128);
        let strides = self.batch.iter().chain([&self.rows, &self.cols]);
        for (length, stride) in lengths.iter().chain([&rows, &cols]).zip(strides) {
            let reach = (*length as i128 - 1) * *stride as i128;
            (low, high) = (low + reach.min(0), high + reach.max(0));
        }
        reached("elements that strided matrices reach", low, high, self.data.len())?;
        MatRef::strided(self.data, self.first, rows, cols, self.rows, self.cols)
    }

    /// The offset of matrix `number` from the first.
    fn offset(&self, lengths: &[usize], mut number: usize) -> isize {
        let mut offset = 0;
        for (length, stride) in lengths.iter().zip(self.batch).rev() {
            offset += (number % length) as isize * stride;
            number /= length;
        }
        offset
    }
}

/// [`gemm`](super::gemm) for every matrix of a batch of shape `lengths`: `m x k` times `k x n`. The results
/// are contiguous in `out`.
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
    options: &GemmOptions<T>,
) -> Result<(), Mismatch> {
    same("axes of a batch", lengths.len(), a.batch.len())?;
    same("axes of a batch", lengths.len(), b.batch.len())?;
    let size = product("elements of a product", &[m, n])?;
    let count = product("products of a batch", lengths)?;
    same("elements of the products", product("elements of the products", &[count, size])?, out.len())?;
    if out.is_empty() {
        return Ok(());
    }
    // With `k == 0` nothing is read.
    let (left, right) = if k == 0 {
        (MatRef::row_major(&[], m, 0)?, MatRef::row_major(&[], 0, n)?)
    } else {
        (a.matrix(lengths, m, k)?, b.matrix(lengths, k, n)?)
    };
    check(&left, &right, &MatMut::row_major(&mut out[..size], m, n)?)?;
    let (left, right, to) = (&left, &right, Shared::new(out.as_mut_ptr()));
    let one = |par: &dyn Par, number: usize, at: [isize; 2]| {
        let a = MatRef { ptr: left.ptr.wrapping_offset(at[0]), ..*left };
        let b = MatRef { ptr: right.ptr.wrapping_offset(at[1]), ..*right };
        // SAFETY: results are contiguous in `out`, and each number has its own.
        let c = unsafe { MatMut::from_raw(to.get().add(number * size), m, n, n as isize, 1) };
        T::product(par, a, b, c, options);
    };
    let (threads, work) = (par.threads(), size.saturating_mul(k).max(1));
    if threads > 1 && work >= SERIAL_WORK && count < 4 * threads {
        for number in 0..count {
            one(par, number, [a.offset(lengths, number), b.offset(lengths, number)]);
        }
        return Ok(());
    }
    // No more tasks than have enough work to be worth a thread.
    let tasks = count
        .min(threads * 8)
        .min(work.saturating_add(CALL_WORK).saturating_mul(count).div_ceil(MIN_TASK_WORK));
    let alone = AtLevel(Serial, par.simd());
    let last = lengths.len().wrapping_sub(1);
    par.run(tasks, &|t| {
        let range = t * count / tasks..(t + 1) * count / tasks;
        let mut at = [0; 2];
        for number in range.clone() {
            // Along the last axis the stride is constant.
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
