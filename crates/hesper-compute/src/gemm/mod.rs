//! Dense matrix products: `c = alpha * a b + beta * c`, for `f32`, `f64`, `bf16` and `f16`.
//!
//! 16-bit floats are multiplied exactly and summed in `f32`; the result is rounded once. Operands may have
//! any strides. Products with a few rows or columns take the memory-bound path of [`gemv`], small ones that
//! of [`unpacked`], all others the packed one of [`driver`].
//!
//! ```
//! use hesper_compute::{GemmOptions, MatMut, MatRef, Serial, gemm};
//! let (a, b) = ([1.0f32, 2.0, 3.0, 4.0], [1.0, 0.0, 1.0, 1.0]);
//! let mut c = [0.0; 4];
//! gemm(
//!     &Serial,
//!     MatRef::row_major(&a, 2, 2)?,
//!     MatRef::row_major(&b, 2, 2)?,
//!     MatMut::row_major(&mut c, 2, 2)?,
//!     &GemmOptions::default(),
//! )?;
//! assert_eq!(c, [3.0, 2.0, 7.0, 4.0]);
//! # Ok::<(), hesper_compute::Mismatch>(())
//! ```

mod batch;
pub(crate) mod columns;
pub(crate) mod driver;
mod eliminate;
mod gemv;
pub(crate) mod micro;
pub(crate) mod pack;
pub(crate) mod precision;
mod sweep;
mod unpacked;
mod vectors;

use half::{bf16, f16};

pub use batch::{Stack, gemm_stacked};
use columns::{Columns, LeftRows};
pub use eliminate::{MAX_ELIMINATED, eliminate, solve_unit};
use precision::{Double, Pairs, Precision, Single};
pub use sweep::{Lines, add_rows, rows_times, symmetric_rows};
pub use vectors::{Real, axpy, dot};

use crate::error::Mismatch;
use crate::mat::{MatMut, MatRef};
use crate::par::Par;

/// Factors of the product and of the old result.
#[derive(Clone, Copy)]
pub struct GemmOptions<T: Element> {
    /// Factor of the product.
    pub alpha: T::Sum,
    /// Factor of the old contents of the result; they are not read if it is zero.
    pub beta: T::Sum,
}

impl<T: Element> Default for GemmOptions<T> {
    fn default() -> Self {
        Self { alpha: T::ONE, beta: T::ZERO }
    }
}

/// A type that matrices are made of: `f32`, `f64`, `bf16` or `f16`.
pub trait Element: Copy + Send + Sync + sealed::Run + 'static {
    /// The type that products are summed in.
    type Sum: Copy + Send + Sync + PartialEq;
    /// Zero.
    const ZERO: Self::Sum;
    /// One.
    const ONE: Self::Sum;
}

mod sealed {
    use super::{GemmOptions, MatMut, MatRef, Par};
    use crate::simd::Simd;

    pub trait Run: Sized {
        fn product(
            par: &dyn Par,
            a: MatRef<'_, Self>,
            b: MatRef<'_, Self>,
            c: MatMut<'_, Self>,
            options: &GemmOptions<Self>,
        ) where
            Self: super::Element;
    }

    pub trait Vectors: Sized {
        fn dot(simd: Simd, x: &[Self], y: &[Self]) -> Self;
        fn axpy(simd: Simd, factor: Self, x: &[Self], y: &mut [Self]);
    }

    pub trait Eliminates: Sized {
        fn eliminate(simd: Simd, a: &mut [Self], stride: usize, first: usize, swaps: &mut [u32]);
        fn solve_unit(simd: Simd, l: super::Lines<'_, Self>, b: &mut [Self], stride: usize, count: usize);
    }

    pub trait Sweeps: Sized {
        fn rows_times(simd: Simd, rows: super::Lines<'_, Self>, x: &[Self], y: &mut [Self]);
        fn add_rows(simd: Simd, rows: super::Lines<'_, Self>, factors: &[Self], y: &mut [Self]);
        fn symmetric_rows(simd: Simd, rows: super::Lines<'_, Self>, first: usize, x: &[Self], y: &mut [Self]);
    }
}

macro_rules! element {
    ($t:ty, $sum:ty, |$simd:ident| $run:expr) => {
        impl Element for $t {
            type Sum = $sum;
            const ZERO: $sum = 0.0;
            const ONE: $sum = 1.0;
        }

        impl sealed::Run for $t {
            fn product(
                par: &dyn Par,
                a: MatRef<'_, Self>,
                b: MatRef<'_, Self>,
                c: MatMut<'_, Self>,
                options: &GemmOptions<Self>,
            ) {
                let $simd = par.simd();
                let run = $run;
                run(par, a, b, c, options);
            }
        }
    };
}

/// A product of bfloat16 matrices, in pairs of elements as processors with such instructions compute it, or
/// of widened elements.
pub fn bf16_product(
    par: &dyn Par,
    a: MatRef<'_, bf16>,
    b: MatRef<'_, bf16>,
    c: MatMut<'_, bf16>,
    in_pairs: bool,
) {
    let run = if in_pairs { product::<Pairs> } else { product::<Single<bf16>> };
    run(par, a, b, c, &GemmOptions::default());
}

element!(f32, f32, |_simd| product::<Single<f32>>);
element!(f64, f64, |_simd| product::<Double>);
element!(f16, f32, |_simd| product::<Single<f16>>);
element!(bf16, f32, |simd| { if simd.has_fast_bf16() { product::<Pairs> } else { product::<Single<bf16>> } });

/// `c = alpha * a b + beta * c`.
pub fn gemm<T: Element>(
    par: &dyn Par,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
    options: &GemmOptions<T>,
) -> Result<(), Mismatch> {
    check(&a, &b, &c)?;
    T::product(par, a, b, c, options);
    Ok(())
}

fn check<T>(a: &MatRef<'_, T>, b: &MatRef<'_, T>, c: &MatMut<'_, T>) -> Result<(), Mismatch> {
    let [left, right, result] = [[a.rows, a.cols], [b.rows, b.cols], [c.rows, c.cols]];
    if left[1] == right[0] && result == [left[0], right[1]] {
        return Ok(());
    }
    Err(Mismatch::Product { left, right, result })
}

/// Factors of the product and of the old result.
pub(crate) struct Epilogue<P: Precision> {
    pub alpha: P::Acc,
    pub beta: P::Acc,
}

/// One product, with its operands and factors.
pub(crate) struct Problem<
    'a,
    P: Precision,
    B: Columns<P> = MatRef<'a, <P as Precision>::In>,
    A: Columns<P> = LeftRows<'a, <P as Precision>::In>,
> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: A,
    pub b: B,
    pub c: MatMut<'a, P::Out>,
    pub epilogue: Epilogue<P>,
}

impl<'a, P: Precision> Problem<'a, P> {
    /// The same product of widened elements.
    fn widened(self) -> Problem<'a, P::Widened> {
        let Self { m, n, k, a, b, c, epilogue: Epilogue { alpha, beta } } = self;
        Problem { m, n, k, a, b, c, epilogue: Epilogue { alpha, beta } }
    }
}

fn product<P>(
    par: &dyn Par,
    a: MatRef<'_, P::Out>,
    b: MatRef<'_, P::Out>,
    c: MatMut<'_, P::Out>,
    options: &GemmOptions<P::Out>,
) where
    P: Precision<In = <P as Precision>::Out>,
    P::Out: Element<Sum = P::Acc>,
{
    let (m, n, k) = (a.rows, b.cols, a.cols);
    if m == 0 || n == 0 {
        return;
    }
    let epilogue = Epilogue { alpha: options.alpha, beta: options.beta };
    // Compute the transposed product if the result is column-major, or if columns are fewer than rows on the
    // gemv path.
    let by_columns = c.row_stride == 1 && c.col_stride != 1;
    let transpose = if m <= gemv::MAX_ROWS || n <= gemv::MAX_ROWS { n < m } else { by_columns };
    let p = if transpose {
        Problem::<P> {
            m: n,
            n: m,
            k,
            a: LeftRows(b.transposed()),
            b: a.transposed(),
            c: c.transposed(),
            epilogue,
        }
    } else {
        Problem::<P> { m, n, k, a: LeftRows(a), b, c, epilogue }
    };
    if k == 0 {
        driver::empty(par, &p);
    } else if !unpacked::run(par, &p) {
        if gemv::fits(&p) {
            gemv::run(par, &p.widened());
        } else {
            driver::run(par, &p);
        }
    }
}
