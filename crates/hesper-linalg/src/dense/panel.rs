//! Memory for reductions to tridiagonal and bidiagonal form, and their matrix-vector products.
//!
//! Rows start on cache lines. Splits of a product depend on the sizes of the matrix only; tasks group them by
//! the number of threads.

use hesper_compute::Par;

use super::block::Rows;
use super::field::Field;
use super::parallel::each;

/// Elements per part of a product; smaller parts do not pay for a second core.
const PART: usize = 1 << 15;
/// Most parts of a product.
const PARTS: usize = 16;

/// A matrix whose rows start on cache lines.
pub(super) struct Grid<T> {
    data: Vec<T>,
    start: usize,
    pub(super) stride: usize,
}

impl<T: Field> Grid<T> {
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        // Not a multiple of a page, so that rows do not compete for the same cache sets.
        let stride = columns.next_multiple_of(16);
        let stride = if stride.is_multiple_of(1024) { stride + 16 } else { stride };
        let data = vec![T::ZERO; rows * stride + 16];
        let start = data.as_ptr().align_offset(64).min(16);
        Self { data, start, stride }
    }

    pub(super) fn all(&self) -> &[T] {
        &self.data[self.start..]
    }

    pub(super) fn all_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..]
    }

    pub(super) fn row(&self, row: usize) -> &[T] {
        &self.all()[row * self.stride..][..self.stride]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [T] {
        let stride = self.stride;
        &mut self.all_mut()[row * stride..][..stride]
    }
}

/// Calls `f` with each range and its row of `sums`; ranges are grouped by the number of threads.
fn parted<T: Field>(
    par: &dyn Par,
    ranges: &[(usize, usize)],
    sums: &mut Grid<T>,
    f: impl Fn(usize, usize, &mut [T]) + Sync,
) {
    let stride = sums.stride;
    let rows = &mut sums.all_mut()[..ranges.len() * stride];
    if ranges.len() == 1 {
        return f(ranges[0].0, ranges[0].1, rows);
    }
    let group = ranges.len().div_ceil(par.threads().max(1));
    each(par, ranges.chunks(group).zip(rows.chunks_mut(group * stride)), |(ranges, rows)| {
        for ((from, to), row) in ranges.iter().zip(rows.chunks_mut(stride)) {
            f(*from, *to, row);
        }
    });
}

/// Matrix-vector products of a panel.
pub(super) struct Sweeps<T> {
    sums: Grid<T>,
}

impl<T: Field> Sweeps<T> {
    /// Room for vectors of `length` elements.
    pub(super) fn new(length: usize) -> Self {
        Self { sums: Grid::new(PARTS, length) }
    }

    /// `y = a x` from element `first` on, for the Hermitian matrix of rows and columns from there to `n`, of
    /// which the upper triangle, conjugated, is read.
    pub(super) fn hermitian(
        &mut self,
        par: &dyn Par,
        a: &Grid<T>,
        first: usize,
        n: usize,
        x: &[T],
        y: &mut [T],
    ) {
        let (simd, size) = (par.simd(), n - first);
        let parts = (size * size / 2 / PART).clamp(1, PARTS);
        // Parts with about the same number of elements, in whole groups of four rows.
        let cut = |part: usize| {
            let left = 1.0 - (1.0 - part as f64 / parts as f64).sqrt();
            first + ((left * size as f64) as usize).next_multiple_of(4).min(size)
        };
        let ranges: Vec<(usize, usize)> =
            (0..parts).map(|part| (cut(part), if part + 1 == parts { n } else { cut(part + 1) })).collect();
        parted(par, &ranges, &mut self.sums, |from, to, sums| {
            sums[from..n].fill(T::ZERO);
            let rows = Rows::new(&a.all()[from * a.stride..], a.stride, to - from, n);
            T::hermitian_rows(simd, rows, from, x, &mut sums[..n]);
        });
        y[first..n].copy_from_slice(&self.sums.row(0)[first..n]);
        for (part, (from, _)) in ranges.iter().enumerate().skip(1) {
            let sums = &self.sums.row(part)[*from..n];
            y[*from..n].iter_mut().zip(sums).for_each(|(y, sum)| *y = *y + *sum);
        }
    }

    /// `y = a x` for rows and columns from `top` and `left` on; `x` and `y` count from there.
    pub(super) fn times(
        &mut self,
        par: &dyn Par,
        a: &Grid<T>,
        (top, left): (usize, usize),
        x: &[T],
        y: &mut [T],
    ) {
        let (simd, height, width) = (par.simd(), y.len(), x.len());
        let rows = |from: usize, count: usize| {
            let start = (from * a.stride + left).min(a.all().len());
            Rows::new(&a.all()[start..], a.stride, count, width)
        };
        let parts = (height * width / PART).clamp(1, par.threads());
        if parts == 1 {
            return T::rows_times(simd, rows(top, height), x, y);
        }
        let chunk = height.div_ceil(parts).next_multiple_of(8);
        each(par, y.chunks_mut(chunk).enumerate(), |(at, y)| {
            T::rows_times(simd, rows(top + at * chunk, y.len()), x, y);
        });
    }

    /// `y = a' x` for rows and columns from `top` and `left` on; `x` and `y` count from there.
    pub(super) fn transposed_times(
        &mut self,
        par: &dyn Par,
        a: &Grid<T>,
        (top, left): (usize, usize),
        x: &[T],
        y: &mut [T],
    ) {
        let (simd, height, width) = (par.simd(), x.len(), y.len());
        let parts = (height * width / PART).clamp(1, PARTS);
        let chunk = height.div_ceil(parts).next_multiple_of(8);
        let ranges: Vec<(usize, usize)> =
            (0..height).step_by(chunk).map(|from| (from, height.min(from + chunk))).collect();
        if ranges.is_empty() {
            return y.fill(T::ZERO);
        }
        parted(par, &ranges, &mut self.sums, |from, to, sums| {
            sums[..width].fill(T::ZERO);
            let rows = Rows::new(&a.all()[(top + from) * a.stride + left..], a.stride, to - from, width);
            T::add_rows(simd, rows, &x[from..to], &mut sums[..width]);
        });
        y.copy_from_slice(&self.sums.row(0)[..width]);
        for part in 1..ranges.len() {
            y.iter_mut().zip(self.sums.row(part)).for_each(|(y, sum)| *y = *y + *sum);
        }
    }
}
