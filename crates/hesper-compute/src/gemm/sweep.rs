//! Single passes over rows of a matrix, on the calling thread: products with a vector from either side, and
//! with a symmetric matrix of which each element is read once. Reductions to tridiagonal and bidiagonal form
//! spend half of their time here.
//!
//! Rows are `stride` apart. The order of a sum depends on the sizes only. A caller with several cores splits
//! the rows and adds the partial results.

use super::precision::{Double, Precision, Single};
use super::{Real, sealed};
use crate::simd::{Isa, Kernel, Simd, dispatch};

macro_rules! sweeps {
    ($($t:ty, $kind:ty;)*) => { $(
        impl sealed::Sweeps for $t {
            fn rows_times(simd: Simd, rows: Lines<'_, Self>, x: &[Self], y: &mut [Self]) {
                dispatch(simd, Times::<$kind> { rows, x, y });
            }

            fn add_rows(simd: Simd, rows: Lines<'_, Self>, factors: &[Self], y: &mut [Self]) {
                dispatch(simd, AddRows::<$kind> { rows, factors, y });
            }

            fn symmetric_rows(simd: Simd, rows: Lines<'_, Self>, first: usize, x: &[Self], y: &mut [Self]) {
                dispatch(simd, Symmetric::<$kind> { rows, first, x, y });
            }
        }
    )* };
}

sweeps! {
    f32, Single<f32>;
    f64, Double;
}

/// Rows of a slice, `stride` apart, with their count and length.
#[derive(Clone, Copy)]
pub struct Lines<'a, T> {
    pub(super) data: &'a [T],
    pub(super) stride: usize,
    pub(super) count: usize,
    pub(super) width: usize,
}

impl<'a, T> Lines<'a, T> {
    /// `count` rows of `width` elements; as many as the slice holds, if it holds fewer.
    ///
    /// ```
    /// use hesper_compute::{Lines, Simd, rows_times};
    /// let a = [1.0f32, 2.0, 3.0, 4.0];
    /// let mut y = [0.0; 2];
    /// rows_times(Simd::detect(), Lines::new(&a, 2, 2, 2), &[1.0, 10.0], &mut y);
    /// assert_eq!(y, [21.0, 43.0]);
    /// ```
    pub fn new(data: &'a [T], stride: usize, count: usize, width: usize) -> Self {
        let stride = stride.max(1);
        let room = if data.len() < width { 0 } else { (data.len() - width) / stride + 1 };
        Self { data, stride, count: count.min(room), width }
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(super) fn row(&self, row: usize) -> *const T {
        self.data.as_ptr().wrapping_add(row * self.stride)
    }
}

/// `y[i] = rows[i] . x`, over the elements that a row and `x` both have.
pub fn rows_times<T: Real>(simd: Simd, rows: Lines<'_, T>, x: &[T], y: &mut [T]) {
    let (count, width) = (rows.count.min(y.len()), rows.width.min(x.len()));
    T::rows_times(simd, Lines { count, width, ..rows }, &x[..width], &mut y[..count]);
}

/// `y += factors[i] * rows[i]` for all rows.
///
/// ```
/// use hesper_compute::{Lines, Simd, add_rows};
/// let a = [1.0f32, 2.0, 3.0, 4.0];
/// let mut y = [100.0, 100.0];
/// add_rows(Simd::detect(), Lines::new(&a, 2, 2, 2), &[1.0, 10.0], &mut y);
/// assert_eq!(y, [131.0, 142.0]);
/// ```
pub fn add_rows<T: Real>(simd: Simd, rows: Lines<'_, T>, factors: &[T], y: &mut [T]) {
    let (count, width) = (rows.count.min(factors.len()), rows.width.min(y.len()));
    T::add_rows(simd, Lines { count, width, ..rows }, &factors[..count], &mut y[..width]);
}

/// Adds to `y` the contribution of rows `first..` of a symmetric matrix, and of their columns, to its product
/// with `x`. Only the upper triangle is read: row `i` from element `i` on.
///
/// ```
/// use hesper_compute::{Lines, Simd, symmetric_rows};
/// let a = [1.0f32, 2.0, -9.0, 4.0];
/// let mut y = [0.0; 2];
/// symmetric_rows(Simd::detect(), Lines::new(&a, 2, 2, 2), 0, &[1.0, 10.0], &mut y);
/// assert_eq!(y, [21.0, 42.0]);
/// ```
pub fn symmetric_rows<T: Real>(simd: Simd, rows: Lines<'_, T>, first: usize, x: &[T], y: &mut [T]) {
    let width = rows.width.min(x.len()).min(y.len());
    let count = rows.count.min(width.saturating_sub(first));
    T::symmetric_rows(simd, Lines { count, width, ..rows }, first, &x[..width], &mut y[..width]);
}

struct Times<'a, P: Precision> {
    rows: Lines<'a, P::Acc>,
    x: &'a [P::Acc],
    y: &'a mut [P::Acc],
}

impl<P: Precision> Kernel for Times<'_, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { rows, x, y } = self;
        let mut row = 0;
        // SAFETY: the rows exist and have the elements of `x`.
        unsafe {
            while row + 8 <= rows.count {
                let sums = dots::<S, P, 8>(s, &rows, row, x);
                y[row..row + 8].copy_from_slice(&sums);
                row += 8;
            }
            while row + 2 <= rows.count {
                let sums = dots::<S, P, 2>(s, &rows, row, x);
                y[row..row + 2].copy_from_slice(&sums);
                row += 2;
            }
            while row < rows.count {
                [y[row]] = dots::<S, P, 1>(s, &rows, row, x);
                row += 1;
            }
        }
    }
}

/// Rows from `row` on times `x`.
///
/// # Safety
/// The rows exist and have as many elements as `x`.
#[inline(always)]
unsafe fn dots<S: Isa, P: Precision, const R: usize>(
    s: S,
    rows: &Lines<'_, P::Acc>,
    row: usize,
    x: &[P::Acc],
) -> [P::Acc; R] {
    let (n, lanes, x) = (x.len(), P::lanes::<S>(), x.as_ptr());
    let mut from = [rows.row(row); R];
    for (r, from) in from.iter_mut().enumerate() {
        *from = rows.row(row + r);
    }
    let mut sums = [P::splat(s, P::ZERO); R];
    let mut at = 0;
    // SAFETY: every load stays below `n`.
    unsafe {
        while at + lanes <= n {
            let x = P::load(s, x.add(at));
            for r in 0..R {
                sums[r] = P::axpy(s, P::load(s, from[r].add(at)), x, sums[r]);
            }
            at += lanes;
        }
        if at < n {
            let x = P::load_n(s, x.add(at), n - at);
            for r in 0..R {
                sums[r] = P::axpy(s, P::load_n(s, from[r].add(at), n - at), x, sums[r]);
            }
        }
    }
    let mut result = [P::ZERO; R];
    for r in 0..R {
        result[r] = P::reduce(s, sums[r]);
    }
    result
}

struct AddRows<'a, P: Precision> {
    rows: Lines<'a, P::Acc>,
    factors: &'a [P::Acc],
    y: &'a mut [P::Acc],
}

impl<P: Precision> Kernel for AddRows<'_, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { rows, factors, y } = self;
        let mut row = 0;
        // SAFETY: the rows exist and have the elements of `y`; there is a factor for each.
        unsafe {
            while row + 8 <= rows.count {
                add::<S, P, 8>(s, &rows, row, factors, y);
                row += 8;
            }
            while row + 2 <= rows.count {
                add::<S, P, 2>(s, &rows, row, factors, y);
                row += 2;
            }
            while row < rows.count {
                add::<S, P, 1>(s, &rows, row, factors, y);
                row += 1;
            }
        }
    }
}

/// Adds `R` rows times their factors.
///
/// # Safety
/// The rows exist and have as many elements as `y`; there is a factor for each.
#[inline(always)]
unsafe fn add<S: Isa, P: Precision, const R: usize>(
    s: S,
    rows: &Lines<'_, P::Acc>,
    row: usize,
    factors: &[P::Acc],
    y: &mut [P::Acc],
) {
    let (n, lanes, y) = (y.len(), P::lanes::<S>(), y.as_mut_ptr());
    let mut from = [rows.row(row); R];
    let mut by = [P::splat(s, P::ZERO); R];
    for r in 0..R {
        from[r] = rows.row(row + r);
        by[r] = P::splat(s, factors[row + r]);
    }
    let mut at = 0;
    // SAFETY: every access stays below `n`.
    unsafe {
        while at + lanes <= n {
            let mut sum = P::load(s, y.add(at));
            for r in 0..R {
                sum = P::axpy(s, by[r], P::load(s, from[r].add(at)), sum);
            }
            P::store(s, y.add(at), sum);
            at += lanes;
        }
        if at < n {
            let mut sum = P::load_n(s, y.add(at), n - at);
            for r in 0..R {
                sum = P::axpy(s, by[r], P::load_n(s, from[r].add(at), n - at), sum);
            }
            P::store_n(s, y.add(at), sum, n - at);
        }
    }
}

struct Symmetric<'a, P: Precision> {
    rows: Lines<'a, P::Acc>,
    first: usize,
    x: &'a [P::Acc],
    y: &'a mut [P::Acc],
}

impl<P: Precision> Kernel for Symmetric<'_, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { rows, first, x, y } = self;
        let mut row = 0;
        // SAFETY: `first + count` is at most the width of the rows, which is that of `x` and `y`.
        unsafe {
            while row + 4 <= rows.count {
                add_symmetric::<S, P, 4>(s, &rows, row, first, x, y);
                row += 4;
            }
            while row < rows.count {
                add_symmetric::<S, P, 1>(s, &rows, row, first, x, y);
                row += 1;
            }
        }
    }
}

/// Adds the contribution of `R` rows and their columns.
///
/// # Safety
/// The rows exist; they, `x` and `y` have the same number of elements, not fewer than `first + row + R`.
#[inline(always)]
unsafe fn add_symmetric<S: Isa, P: Precision, const R: usize>(
    s: S,
    rows: &Lines<'_, P::Acc>,
    row: usize,
    first: usize,
    x: &[P::Acc],
    y: &mut [P::Acc],
) {
    let (n, lanes) = (x.len(), P::lanes::<S>());
    let (x, y) = (x.as_ptr(), y.as_mut_ptr());
    let top = first + row;
    let mut from = [rows.row(row); R];
    let mut by = [P::splat(s, P::ZERO); R];
    let mut sums = [P::splat(s, P::ZERO); R];
    // SAFETY: every access stays below `n`.
    unsafe {
        for r in 0..R {
            from[r] = rows.row(row + r);
            by[r] = P::splat(s, *x.add(top + r));
        }
        // The diagonal block, one lane per column.
        for r in 0..R {
            let count = R - r;
            let own = P::load_n(s, from[r].add(top + r), count);
            sums[r] = P::axpy(s, own, P::load_n(s, x.add(top + r), count), sums[r]);
            if count > 1 {
                let y = y.add(top + r + 1);
                let beside = P::load_n(s, from[r].add(top + r + 1), count - 1);
                P::store_n(s, y, P::axpy(s, by[r], beside, P::load_n(s, y, count - 1)), count - 1);
            }
        }
        // Advance to a multiple of the vector length: further loads are aligned if rows are.
        let mut at = top + R;
        let head = (at.next_multiple_of(lanes) - at).min(n - at);
        let mut count = head;
        while at < n {
            if count > 0 && count < lanes {
                let xs = P::load_n(s, x.add(at), count);
                let mut sum = P::load_n(s, y.add(at), count);
                for r in 0..R {
                    let a = P::load_n(s, from[r].add(at), count);
                    sums[r] = P::axpy(s, a, xs, sums[r]);
                    sum = P::axpy(s, by[r], a, sum);
                }
                P::store_n(s, y.add(at), sum, count);
                at += count;
            }
            while at + lanes <= n {
                let xs = P::load(s, x.add(at));
                let mut sum = P::load(s, y.add(at));
                for r in 0..R {
                    let a = P::load(s, from[r].add(at));
                    sums[r] = P::axpy(s, a, xs, sums[r]);
                    sum = P::axpy(s, by[r], a, sum);
                }
                P::store(s, y.add(at), sum);
                at += lanes;
            }
            count = n - at;
        }
        for r in 0..R {
            let y = y.add(top + r);
            let sum = P::add(s, P::load_n(s, y, 1), P::splat(s, P::reduce(s, sums[r])));
            P::store_n(s, y, sum, 1);
        }
    }
}
