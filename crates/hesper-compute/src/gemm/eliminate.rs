//! The steps of a triangular factorization that are not block products, on the calling thread: elimination of
//! a few columns with pivoting, and triangular solves of a few rows.

use std::ops::{Div, Mul, Neg};

use super::precision::{Double, Precision, Single};
use super::sweep::Lines;
use super::{Real, sealed};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Most columns, or rows, per call.
pub const MAX_ELIMINATED: usize = 16;
/// Most vectors that [`MAX_ELIMINATED`] elements fill.
const MAX_VECTORS: usize = 4;

/// Scalar operations.
pub(super) trait Number:
    Copy + PartialOrd + Neg<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// The smallest positive value whose reciprocal is safely finite.
    const SMALLEST: Self;
    fn magnitude(self) -> Self;
}

macro_rules! numbers {
    ($($t:ident, $kind:ty;)*) => { $(
        impl Number for $t {
            const SMALLEST: $t = $t::MIN_POSITIVE * 4.0;
            #[inline(always)]
            fn magnitude(self) -> $t { self.abs() }
        }

        impl sealed::Eliminates for $t {
            fn eliminate(simd: Simd, a: &mut [Self], stride: usize, first: usize, swaps: &mut [u32]) {
                dispatch(simd, Eliminate::<$kind> { a, stride, first, swaps });
            }
            fn solve_unit(simd: Simd, l: Lines<'_, Self>, b: &mut [Self], stride: usize, count: usize) {
                dispatch(simd, Solve::<$kind> { l, b, stride, count });
            }
        }
    )* };
}

numbers! {
    f32, Single<f32>;
    f64, Double;
}

/// Eliminates up to [`MAX_ELIMINATED`] columns of a row-major matrix, from the diagonal element in column
/// `first` on, with partial pivoting. Each pivot row is exchanged as a whole; its index is written to
/// `swaps`, one per column. The factors are left below the diagonal. Other columns change only by the
/// exchanges. A column of zeros is left as it is.
///
/// ```
/// use hesper_compute::{Simd, eliminate};
/// let (mut a, mut swaps) = ([1.0f32, 2.0, 4.0, 4.0], [0; 2]);
/// eliminate(Simd::detect(), &mut a, 2, 0, &mut swaps);
/// assert_eq!((a, swaps), ([4.0, 4.0, 0.25, 1.0], [1, 1]));
/// ```
pub fn eliminate<T: Real>(simd: Simd, a: &mut [T], stride: usize, first: usize, swaps: &mut [u32]) {
    let rows = a.len().checked_div(stride).unwrap_or(0);
    let width =
        swaps.len().min(MAX_ELIMINATED).min(rows.saturating_sub(first)).min(stride.saturating_sub(first));
    if width > 0 {
        T::eliminate(simd, &mut a[..rows * stride], stride, first, &mut swaps[..width]);
    }
}

/// Replaces rows of `b`, `count` elements each and `stride` apart, by the solution of `l x = b` for a unit
/// lower triangular matrix of up to [`MAX_ELIMINATED`] rows.
///
/// ```
/// use hesper_compute::{Lines, Simd, solve_unit};
/// let mut b = [1.0f32, 2.0, 5.0, 5.0];
/// solve_unit(Simd::detect(), Lines::new(&[0.0, 0.0, 3.0, 0.0], 2, 2, 2), &mut b, 2, 2);
/// assert_eq!(b, [1.0, 2.0, 2.0, -1.0]);
/// ```
pub fn solve_unit<T: Real>(simd: Simd, l: Lines<'_, T>, b: &mut [T], stride: usize, count: usize) {
    let n = l.count().min(MAX_ELIMINATED);
    // `b` must hold all rows.
    if n > 0 && count <= stride && (n - 1) * stride + count <= b.len() && n <= l.width {
        T::solve_unit(simd, Lines { count: n, ..l }, b, stride, count);
    }
}

struct Eliminate<'a, P: Precision> {
    a: &'a mut [P::Acc],
    stride: usize,
    first: usize,
    swaps: &'a mut [u32],
}

impl<P: Precision<Acc: Number>> Kernel for Eliminate<'_, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { a, stride, first, swaps } = self;
        let (rows, width, lanes) = (a.len() / stride, swaps.len(), P::lanes::<S>());
        let vectors = width.div_ceil(lanes);
        // The pivot row, with zeros before the pivot and after its end.
        let mut pivots = [P::ZERO; MAX_ELIMINATED];
        let mut pivot = first;
        let mut most = P::ZERO;
        for row in first..rows {
            let size = a[row * stride + first].magnitude();
            if size > most {
                (most, pivot) = (size, row);
            }
        }
        for (column, swap) in swaps.iter_mut().enumerate() {
            let top = first + column;
            *swap = pivot as u32;
            if pivot != top {
                let (above, below) = a.split_at_mut(pivot * stride);
                above[top * stride..][..stride].swap_with_slice(&mut below[..stride]);
            }
            let value = a[top * stride + top];
            for at in 0..MAX_ELIMINATED {
                let right = at > column && at < width;
                pivots[at] = if right { a[top * stride + first + at] } else { P::ZERO };
            }
            let mut u = [P::splat(s, P::ZERO); MAX_VECTORS];
            for v in 0..vectors {
                // SAFETY: the vectors that the columns fill lie in the array.
                u[v] = unsafe { P::load(s, pivots.as_ptr().add(v * lanes)) };
            }
            let by_factor = value.magnitude() >= P::Acc::SMALLEST;
            let factor = if by_factor { P::ONE / value } else { value };
            // Find the next pivot in the same pass.
            let next = (column + 1).min(width - 1);
            (pivot, most) = (top + 1, P::ZERO);
            for row in top + 1..rows {
                let from = a[row * stride + first..][..width].as_mut_ptr();
                // SAFETY: the row has `width` elements from there on.
                unsafe {
                    if value != P::ZERO {
                        let x = *from.add(column);
                        let l = if by_factor { x * factor } else { x / value };
                        let minus = P::splat(s, -l);
                        for v in 0..vectors {
                            let (to, n) = (from.add(v * lanes), (width - v * lanes).min(lanes));
                            P::store_n(s, to, P::axpy(s, minus, u[v], P::load_n(s, to, n)), n);
                        }
                        *from.add(column) = l;
                    }
                    let size = (*from.add(next)).magnitude();
                    if size > most {
                        (most, pivot) = (size, row);
                    }
                }
            }
        }
    }
}

struct Solve<'a, P: Precision> {
    l: Lines<'a, P::Acc>,
    b: &'a mut [P::Acc],
    stride: usize,
    count: usize,
}

impl<P: Precision<Acc: Number>> Kernel for Solve<'_, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { l, b, stride, count } = self;
        let (n, lanes) = (l.count(), P::lanes::<S>());
        // Negated, since products are added.
        let mut minus = [[P::ZERO; MAX_ELIMINATED]; MAX_ELIMINATED];
        for (i, row) in minus.iter_mut().enumerate().take(n) {
            for (j, to) in row.iter_mut().enumerate().take(i) {
                // SAFETY: the row has as many elements as there are rows.
                *to = unsafe { -*l.row(i).add(j) };
            }
        }
        let mut at = 0;
        while at < count {
            let m = (count - at).min(lanes);
            let mut x = [P::splat(s, P::ZERO); MAX_ELIMINATED];
            for i in 0..n {
                // SAFETY: `count` elements of each row, `stride` apart, lie in the slice.
                unsafe {
                    let to = b.as_mut_ptr().add(i * stride + at);
                    let mut sum = P::load_n(s, to, m);
                    for j in 0..i {
                        sum = P::axpy(s, P::splat(s, minus[i][j]), x[j], sum);
                    }
                    x[i] = sum;
                    P::store_n(s, to, sum, m);
                }
            }
            at += m;
        }
    }
}
