//! The elements of a matrix, real or complex, and the kernels that factorizations are made of.

use std::ops::{Add, Div, Mul, Neg, Sub};

use hesper_compute::{GemmOptions, Lines, MatRef, Par, Simd};

use super::block::{Block, Rows, rows_mut};
use crate::Failure;

/// A real or complex number.
pub trait Field:
    Copy
    + Send
    + Sync
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// The type of its real part.
    type Real: Scalar;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    fn from_real(x: Self::Real) -> Self;
    fn re(self) -> Self::Real;
    fn is_real(self) -> bool;
    fn conj(self) -> Self;
    /// The product with a real number.
    fn times(self, x: Self::Real) -> Self;
    /// The quotient by a real number.
    fn over(self, x: Self::Real) -> Self;
    /// The square of the absolute value.
    fn square(self) -> Self::Real;
    /// Real and imaginary parts, interleaved.
    fn parts(a: &[Self]) -> &[Self::Real];
    /// Numbers of which only the real parts are not zero.
    fn from_reals(a: Vec<Self::Real>) -> Vec<Self>;
    /// Conjugates all elements.
    fn conjugate(a: &mut [Self]);

    /// The sum of `x[i] y[i]`.
    fn dot(simd: Simd, x: &[Self], y: &[Self]) -> Self;
    /// The sum of `conj(x[i]) y[i]`.
    fn inner(simd: Simd, x: &[Self], y: &[Self]) -> Self;
    /// `y += factor x`.
    fn axpy(simd: Simd, factor: Self, x: &[Self], y: &mut [Self]);
    /// `y[i] = rows[i] . x`.
    fn rows_times(simd: Simd, rows: Rows<'_, Self>, x: &[Self], y: &mut [Self]);
    /// `y += factors[i] rows[i]` for all rows.
    fn add_rows(simd: Simd, rows: Rows<'_, Self>, factors: &[Self], y: &mut [Self]);
    /// Adds to `y` the contribution of rows `first..` of a Hermitian matrix, and of their columns, to its
    /// product with `x`. Only the upper triangle, conjugated, is read.
    fn hermitian_rows(simd: Simd, rows: Rows<'_, Self>, first: usize, x: &[Self], y: &mut [Self]);
    /// Eliminates up to `MAX_ELIMINATED` columns from the diagonal element in column `first` on.
    fn eliminate(simd: Simd, a: &mut [Self], stride: usize, first: usize, swaps: &mut [u32]);
    /// Replaces rows of `b` by the solution of `l x = b` for a unit lower triangular matrix of up to
    /// `MAX_ELIMINATED` rows.
    fn solve_unit(simd: Simd, l: Rows<'_, Self>, b: &mut [Self], stride: usize, count: usize);
    /// `c = alpha a b + beta c` for `a` of `m` x `k` and `b` of `k` x `n`; rows of `c` are `stride` apart.
    fn gemm(
        par: &dyn Par,
        sizes: [usize; 3],
        a: Block<'_, Self>,
        b: Block<'_, Self>,
        c: (&mut [Self], usize),
        alpha_beta: [Self::Real; 2],
    ) -> Result<(), Failure>;
}

/// A real number: `f32` or `f64`.
pub trait Scalar: Field<Real = Self> + PartialOrd {
    /// The smallest positive value whose reciprocal is safely finite.
    const SMALLEST: Self;
    /// The machine epsilon.
    const EPSILON: Self;
    /// The relative accuracy of a double sum that vectors of this type need.
    const SUM_TOLERANCE: f64;
    /// The largest exponent of a power of two by which matrices are scaled.
    const MAX_EXPONENT: i32;
    fn is_finite(self) -> bool;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn of(x: f64) -> Self;
    fn to_f64(self) -> f64;
}

fn lines<'a, T>(rows: Rows<'a, T>) -> Lines<'a, T> {
    Lines::new(rows.data, rows.stride, rows.count, rows.width)
}

macro_rules! scalars {
    ($($t:ident, $sum_tolerance:expr, $max_exponent:expr;)*) => { $(
        impl Scalar for $t {
            const SMALLEST: $t = $t::MIN_POSITIVE * 4.0;
            const EPSILON: $t = $t::EPSILON;
            const SUM_TOLERANCE: f64 = $sum_tolerance;
            const MAX_EXPONENT: i32 = $max_exponent;
            fn is_finite(self) -> bool { $t::is_finite(self) }
            #[inline(always)]
            fn abs(self) -> $t { $t::abs(self) }
            fn sqrt(self) -> $t { $t::sqrt(self) }
            fn of(x: f64) -> $t { x as $t }
            fn to_f64(self) -> f64 { f64::from(self) }
        }

        impl Field for $t {
            type Real = $t;
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            fn from_real(x: $t) -> $t { x }
            fn re(self) -> $t { self }
            fn is_real(self) -> bool { true }
            fn conj(self) -> $t { self }
            fn times(self, x: $t) -> $t { self * x }
            fn over(self, x: $t) -> $t { self / x }
            fn square(self) -> $t { self * self }
            fn parts(a: &[$t]) -> &[$t] { a }
            fn from_reals(a: Vec<$t>) -> Vec<$t> { a }
            fn conjugate(_: &mut [$t]) {}
            fn dot(simd: Simd, x: &[$t], y: &[$t]) -> $t { hesper_compute::dot(simd, x, y) }
            fn inner(simd: Simd, x: &[$t], y: &[$t]) -> $t { hesper_compute::dot(simd, x, y) }
            fn axpy(simd: Simd, factor: $t, x: &[$t], y: &mut [$t]) {
                hesper_compute::axpy(simd, factor, x, y);
            }
            fn rows_times(simd: Simd, rows: Rows<'_, $t>, x: &[$t], y: &mut [$t]) {
                hesper_compute::rows_times(simd, lines(rows), x, y);
            }
            fn add_rows(simd: Simd, rows: Rows<'_, $t>, factors: &[$t], y: &mut [$t]) {
                hesper_compute::add_rows(simd, lines(rows), factors, y);
            }
            fn hermitian_rows(simd: Simd, rows: Rows<'_, $t>, first: usize, x: &[$t], y: &mut [$t]) {
                hesper_compute::symmetric_rows(simd, lines(rows), first, x, y);
            }
            fn eliminate(simd: Simd, a: &mut [$t], stride: usize, first: usize, swaps: &mut [u32]) {
                hesper_compute::eliminate(simd, a, stride, first, swaps);
            }
            fn solve_unit(simd: Simd, l: Rows<'_, $t>, b: &mut [$t], stride: usize, count: usize) {
                hesper_compute::solve_unit(simd, lines(l), b, stride, count);
            }
            fn gemm(
                par: &dyn Par,
                [m, k, n]: [usize; 3],
                a: Block<'_, $t>,
                b: Block<'_, $t>,
                (c, stride): (&mut [$t], usize),
                [alpha, beta]: [$t; 2],
            ) -> Result<(), Failure> {
                let (a, b) = (view(a, m, k)?, view(b, k, n)?);
                let options = GemmOptions { alpha, beta };
                Ok(hesper_compute::gemm(par, a, b, rows_mut(c, m, n, stride)?, &options)?)
            }
        }
    )* };
}

scalars! {
    f32, 1e-11, 120;
    f64, 32.0 * f64::EPSILON, 1000;
}

fn view<'a, T>(block: Block<'a, T>, rows: usize, columns: usize) -> Result<MatRef<'a, T>, Failure> {
    let (down, across) = (block.down as isize, block.across as isize);
    Ok(MatRef::strided(block.data, block.first, rows, columns, down, across)?)
}
