//! Dot products and axpy of two vectors, on the calling thread, for the unblocked steps of factorizations.
//!
//! The order of a sum depends on the length and the SIMD level only.

use super::precision::{Double, Precision, Single};
use super::{Element, sealed};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// An element that is summed in its own type: `f32` or `f64`.
pub trait Real: Element<Sum = Self> + sealed::Vectors + sealed::Sweeps + sealed::Eliminates {}

macro_rules! real {
    ($($t:ty, $kind:ty;)*) => { $(
        impl Real for $t {}

        impl sealed::Vectors for $t {
            fn dot(simd: Simd, x: &[Self], y: &[Self]) -> Self {
                dispatch(simd, Dot::<$kind> { x, y })
            }

            fn axpy(simd: Simd, factor: Self, x: &[Self], y: &mut [Self]) {
                dispatch(simd, Axpy::<$kind> { factor, x, y });
            }
        }
    )* };
}

real! {
    f32, Single<f32>;
    f64, Double;
}

/// The sum of `x[i] * y[i]` over the elements that both have.
///
/// ```
/// use hesper_compute::{Simd, dot};
/// assert_eq!(dot(Simd::detect(), &[1.0f32, 2.0, 3.0], &[4.0, 5.0, 6.0]), 32.0);
/// ```
pub fn dot<T: Real>(simd: Simd, x: &[T], y: &[T]) -> T {
    let n = x.len().min(y.len());
    T::dot(simd, &x[..n], &y[..n])
}

/// `y[i] += factor * x[i]` over the elements that both have.
///
/// ```
/// use hesper_compute::{Simd, axpy};
/// let mut y = [1.0f64, 1.0];
/// axpy(Simd::detect(), 2.0, &[3.0, 4.0], &mut y);
/// assert_eq!(y, [7.0, 9.0]);
/// ```
pub fn axpy<T: Real>(simd: Simd, factor: T, x: &[T], y: &mut [T]) {
    let n = x.len().min(y.len());
    T::axpy(simd, factor, &x[..n], &mut y[..n]);
}

struct Dot<'a, P: Precision> {
    x: &'a [P::Acc],
    y: &'a [P::Acc],
}

impl<P: Precision> Kernel for Dot<'_, P> {
    type Out = P::Acc;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> P::Acc {
        let (n, lanes) = (self.x.len(), P::lanes::<S>());
        let (x, y) = (self.x.as_ptr(), self.y.as_ptr());
        let mut sums = [P::splat(s, P::ZERO); 4];
        let mut at = 0;
        // SAFETY: both slices have `n` elements, and every load stays below.
        unsafe {
            while at + 4 * lanes <= n {
                for (part, sum) in sums.iter_mut().enumerate() {
                    let i = at + part * lanes;
                    *sum = P::axpy(s, P::load(s, x.add(i)), P::load(s, y.add(i)), *sum);
                }
                at += 4 * lanes;
            }
            while at < n {
                let count = (n - at).min(lanes);
                let (a, b) = (P::load_n(s, x.add(at), count), P::load_n(s, y.add(at), count));
                sums[0] = P::axpy(s, a, b, sums[0]);
                at += count;
            }
        }
        P::reduce(s, P::add(s, P::add(s, sums[0], sums[1]), P::add(s, sums[2], sums[3])))
    }
}

struct Axpy<'a, P: Precision> {
    factor: P::Acc,
    x: &'a [P::Acc],
    y: &'a mut [P::Acc],
}

impl<P: Precision> Kernel for Axpy<'_, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let (n, lanes) = (self.y.len(), P::lanes::<S>());
        let (x, y) = (self.x.as_ptr(), self.y.as_mut_ptr());
        let factor = P::splat(s, self.factor);
        let mut at = 0;
        // SAFETY: both slices have `n` elements, and every access stays below.
        unsafe {
            while at + 2 * lanes <= n {
                for i in [at, at + lanes] {
                    P::store(s, y.add(i), P::axpy(s, factor, P::load(s, x.add(i)), P::load(s, y.add(i))));
                }
                at += 2 * lanes;
            }
            while at < n {
                let count = (n - at).min(lanes);
                let (a, b) = (P::load_n(s, x.add(at), count), P::load_n(s, y.add(at), count));
                P::store_n(s, y.add(at), P::axpy(s, factor, a, b), count);
                at += count;
            }
        }
    }
}
