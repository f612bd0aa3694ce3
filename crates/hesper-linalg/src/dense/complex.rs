//! Complex numbers, and their kernels in terms of real ones.
//!
//! A row of complex numbers is read as a row of twice as many real ones, so that a product of complex
//! matrices is one real product: only the right operand is expanded, each element to its real 2 x 2 matrix.

use std::ops::{Add, Div, Mul, Neg, Sub};

use hesper_compute::{MAX_ELIMINATED, Par, Simd};

use super::block::{Block, Rows};
use super::field::{Field, Scalar};
use super::multiversion::{Multiversioned, run_multiversioned};
use crate::Failure;

/// A complex number: its real and its imaginary part.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(transparent)]
pub struct Complex<R>(pub(crate) [R; 2]);

impl<R: Scalar> Add for Complex<R> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self([self.0[0] + other.0[0], self.0[1] + other.0[1]])
    }
}

impl<R: Scalar> Sub for Complex<R> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self([self.0[0] - other.0[0], self.0[1] - other.0[1]])
    }
}

impl<R: Scalar> Mul for Complex<R> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        Self([a * c - b * d, a * d + b * c])
    }
}

impl<R: Scalar> Div for Complex<R> {
    type Output = Self;
    /// Divides by the larger part first, so that no square overflows or underflows.
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        if c.abs() >= d.abs() {
            // Not by a ratio of zeros: a quotient by zero is infinite or NaN like that of real numbers.
            let ratio = if d == R::ZERO { R::ZERO } else { d / c };
            let size = c + d * ratio;
            Self([(a + b * ratio) / size, (b - a * ratio) / size])
        } else {
            let ratio = c / d;
            let size = c * ratio + d;
            Self([(a * ratio + b) / size, (b * ratio - a) / size])
        }
    }
}

impl<R: Scalar> Neg for Complex<R> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.map(|x| -x))
    }
}

impl<R: Scalar> Complex<R> {
    /// The sum of the absolute values of its parts.
    #[inline(always)]
    pub(crate) fn size(self) -> R {
        self.0[0].abs() + self.0[1].abs()
    }

    /// A slice of pairs.
    pub(crate) fn of_pairs(pairs: &[[R; 2]]) -> &[Self] {
        // SAFETY: a complex number is a pair in memory.
        unsafe { std::slice::from_raw_parts(pairs.as_ptr().cast(), pairs.len()) }
    }

    /// A slice of pairs, to write.
    pub(crate) fn of_pairs_mut(pairs: &mut [[R; 2]]) -> &mut [Self] {
        // SAFETY: a complex number is a pair in memory; the slice is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(pairs.as_mut_ptr().cast(), pairs.len()) }
    }

    fn pairs(a: &[Self]) -> &[[R; 2]] {
        // SAFETY: a complex number is a pair in memory.
        unsafe { std::slice::from_raw_parts(a.as_ptr().cast(), a.len()) }
    }

    fn parts_mut(a: &mut [Self]) -> &mut [R] {
        // SAFETY: a complex number is a pair in memory; the slice is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(a.as_mut_ptr().cast(), 2 * a.len()) }
    }

    /// The rows as rows of real numbers.
    fn real_rows(rows: Rows<'_, Self>) -> Rows<'_, R> {
        Rows::new(Self::parts(rows.data), 2 * rows.stride, rows.count, 2 * rows.width)
    }
}

/// The product of a sum with the imaginary unit is added to another sum: `y += p + i q`.
fn add_turned<R: Scalar>(p: &[R], q: &[R], y: &mut [R]) {
    for ((y, p), q) in y.as_chunks_mut::<2>().0.iter_mut().zip(p.as_chunks::<2>().0).zip(q.as_chunks::<2>().0)
    {
        *y = [y[0] + p[0] - q[1], y[1] + p[1] + q[0]];
    }
}

impl<R: Scalar> Field for Complex<R> {
    type Real = R;
    const ZERO: Self = Self([R::ZERO, R::ZERO]);
    const ONE: Self = Self([R::ONE, R::ZERO]);
    #[inline(always)]
    fn from_real(x: R) -> Self {
        Self([x, R::ZERO])
    }
    #[inline(always)]
    fn re(self) -> R {
        self.0[0]
    }
    fn is_real(self) -> bool {
        self.0[1] == R::ZERO
    }
    #[inline(always)]
    fn conj(self) -> Self {
        Self([self.0[0], -self.0[1]])
    }
    #[inline(always)]
    fn times(self, x: R) -> Self {
        Self(self.0.map(|part| part * x))
    }
    #[inline(always)]
    fn over(self, x: R) -> Self {
        Self(self.0.map(|part| part / x))
    }
    fn square(self) -> R {
        self.0[0] * self.0[0] + self.0[1] * self.0[1]
    }
    fn parts(a: &[Self]) -> &[R] {
        Self::pairs(a).as_flattened()
    }
    fn from_reals(a: Vec<R>) -> Vec<Self> {
        a.into_iter().map(Self::from_real).collect()
    }
    fn conjugate(a: &mut [Self]) {
        a.iter_mut().for_each(|x| *x = x.conj());
    }

    fn dot(simd: Simd, x: &[Self], y: &[Self]) -> Self {
        let [[a, b], [c, d]] = run_multiversioned(simd, Dot { x: Self::parts(x), y: Self::parts(y) });
        Self([a - b, c + d])
    }

    fn inner(simd: Simd, x: &[Self], y: &[Self]) -> Self {
        let [[a, b], [c, d]] = run_multiversioned(simd, Dot { x: Self::parts(x), y: Self::parts(y) });
        Self([a + b, c - d])
    }

    fn axpy(simd: Simd, factor: Self, x: &[Self], y: &mut [Self]) {
        run_multiversioned(simd, Axpy { factor: factor.0, x: Self::parts(x), y: Self::parts_mut(y) });
    }

    fn rows_times(simd: Simd, rows: Rows<'_, Self>, x: &[Self], y: &mut [Self]) {
        let real = Self::real_rows(rows);
        let x = &x[..x.len().min(rows.width)];
        let straight: Vec<R> = x.iter().flat_map(|x| x.conj().0).collect();
        let turned: Vec<R> = x.iter().flat_map(|x| [x.0[1], x.0[0]]).collect();
        let mut sums = [vec![R::ZERO; y.len()], vec![R::ZERO; y.len()]];
        R::rows_times(simd, real, &straight, &mut sums[0]);
        R::rows_times(simd, real, &turned, &mut sums[1]);
        for (at, y) in y.iter_mut().enumerate().take(rows.count) {
            *y = Self([sums[0][at], sums[1][at]]);
        }
    }

    fn add_rows(simd: Simd, rows: Rows<'_, Self>, factors: &[Self], y: &mut [Self]) {
        let real = Self::real_rows(rows);
        let mut sums = [vec![R::ZERO; 2 * y.len()], vec![R::ZERO; 2 * y.len()]];
        for (part, sum) in sums.iter_mut().enumerate() {
            let factors: Vec<R> = factors.iter().map(|x| x.0[part]).collect();
            R::add_rows(simd, real, &factors, sum);
        }
        add_turned(&sums[0], &sums[1], Self::parts_mut(y));
    }

    fn hermitian_rows(simd: Simd, rows: Rows<'_, Self>, first: usize, x: &[Self], y: &mut [Self]) {
        let width = rows.width.min(x.len()).min(y.len());
        let count = rows.count.min(width.saturating_sub(first));
        let rows = Self::real_rows(Rows { count, width, ..rows });
        let x = &x[..width];
        // The dot product of a conjugated row: with these, its real and its imaginary part.
        let turned: Vec<R> = x.iter().flat_map(|x| [x.0[1], -x.0[0]]).collect();
        let mut sums = [vec![R::ZERO; 2 * width], vec![R::ZERO; 2 * width]];
        let [p, q] = &mut sums;
        let y = &mut y[..width];
        let kernel = HermitianRows { rows, first, x: Self::parts(x), turned: &turned, p, q };
        run_multiversioned(simd, kernel);
        add_turned(&sums[0], &sums[1], Self::parts_mut(y));
    }

    fn eliminate(simd: Simd, a: &mut [Self], stride: usize, first: usize, swaps: &mut [u32]) {
        run_multiversioned(simd, Eliminate { a, stride, first, swaps });
    }

    fn solve_unit(simd: Simd, l: Rows<'_, Self>, b: &mut [Self], stride: usize, count: usize) {
        for i in 0..l.count {
            let (done, rest) = b.split_at_mut(i * stride);
            for j in 0..i {
                Self::axpy(simd, -l.row(i)[j], &done[j * stride..][..count], &mut rest[..count]);
            }
        }
    }

    fn gemm(
        par: &dyn Par,
        [m, k, n]: [usize; 3],
        a: Block<'_, Self>,
        b: Block<'_, Self>,
        (c, stride): (&mut [Self], usize),
        alpha_beta: [R; 2],
    ) -> Result<(), Failure> {
        if m == 0 || n == 0 {
            return Ok(());
        }
        // The left operand as it is, or a row-major copy.
        let copy: Vec<Self>;
        let left = if a.across == 1 && k > 0 {
            Block { data: Self::parts(a.data), first: 2 * a.first, down: 2 * a.down, across: 1, conj: false }
        } else {
            copy = (0..m * k).map(|at| a.element(at / k, at % k)).collect();
            Block::rows(Self::parts(&copy), 2 * k)
        };
        let mut right = vec![R::ZERO; 4 * k * n];
        for (row, to) in right.chunks_exact_mut(4 * n).enumerate() {
            let (re, im) = to.split_at_mut(2 * n);
            let columns = re.as_chunks_mut::<2>().0.iter_mut().zip(im.as_chunks_mut::<2>().0);
            for (column, (re, im)) in columns.enumerate() {
                let [x, y] = b.element(row, column).0;
                let y = if b.conj { -y } else { y };
                *re = [x, y];
                *im = if a.conj { [y, -x] } else { [-y, x] };
            }
        }
        let sizes = [m, 2 * k, 2 * n];
        R::gemm(par, sizes, left, Block::rows(&right, 2 * n), (Self::parts_mut(c), 2 * stride), alpha_beta)
    }
}

/// Real numbers that loops handle at once.
const LANES: usize = 8;

/// Sums of products of equal and of different parts: `re re`, `im im`, `re im` and `im re`.
struct Dot<'a, R> {
    x: &'a [R],
    y: &'a [R],
}

impl<R: Scalar> Multiversioned for Dot<'_, R> {
    type Out = [[R; 2]; 2];
    #[inline(always)]
    fn run(self) -> [[R; 2]; 2] {
        let ((x, x_rest), (y, y_rest)) = (self.x.as_chunks::<LANES>(), self.y.as_chunks::<LANES>());
        let (mut equal, mut crossed) = ([R::ZERO; LANES], [R::ZERO; LANES]);
        for (x, y) in x.iter().zip(y) {
            for lane in 0..LANES {
                equal[lane] = equal[lane] + x[lane] * y[lane];
                crossed[lane] = crossed[lane] + x[lane] * y[lane ^ 1];
            }
        }
        for (lane, (x, _)) in x_rest.iter().zip(y_rest).enumerate() {
            equal[lane] = equal[lane] + *x * y_rest[lane];
            crossed[lane] = crossed[lane] + *x * y_rest[lane ^ 1];
        }
        let mut sums = [[R::ZERO; 2]; 2];
        for lane in 0..LANES {
            sums[0][lane % 2] = sums[0][lane % 2] + equal[lane];
            sums[1][lane % 2] = sums[1][lane % 2] + crossed[lane];
        }
        sums
    }
}

struct Axpy<'a, R> {
    factor: [R; 2],
    x: &'a [R],
    y: &'a mut [R],
}

impl<R: Scalar> Multiversioned for Axpy<'_, R> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let [re, im] = self.factor;
        let turned = [-im, im];
        let ((x, x_rest), (y, y_rest)) = (self.x.as_chunks::<LANES>(), self.y.as_chunks_mut::<LANES>());
        for (x, y) in x.iter().zip(y) {
            for lane in 0..LANES {
                y[lane] = y[lane] + re * x[lane] + turned[lane % 2] * x[lane ^ 1];
            }
        }
        for (lane, y) in y_rest.iter_mut().enumerate().take(x_rest.len()) {
            *y = *y + re * x_rest[lane] + turned[lane % 2] * x_rest[lane ^ 1];
        }
    }
}

/// Rows of a Hermitian matrix and their columns times a vector: `p + i q`, where the rows' dot products are
/// in `p`.
struct HermitianRows<'a, R> {
    rows: Rows<'a, R>,
    first: usize,
    x: &'a [R],
    turned: &'a [R],
    p: &'a mut [R],
    q: &'a mut [R],
}

impl<R: Scalar> Multiversioned for HermitianRows<'_, R> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { rows, first, x, turned, p, q } = self;
        for row in 0..rows.count {
            let own = 2 * (first + row);
            let (re, im) = (x[own], x[own + 1]);
            let a = &rows.row(row)[own..];
            // The diagonal element is real.
            let mut sums = [a[0] * re, a[0] * im];
            let n = a.len();
            let (a, a_rest) = a[2..].as_chunks::<LANES>();
            let ((x, x_rest), (turned, turned_rest)) =
                (x[own + 2..own + n].as_chunks::<LANES>(), turned[own + 2..own + n].as_chunks::<LANES>());
            let ((ps, p_rest), (qs, q_rest)) =
                (p[own + 2..own + n].as_chunks_mut::<LANES>(), q[own + 2..own + n].as_chunks_mut::<LANES>());
            let (mut first_sum, mut second_sum) = ([R::ZERO; LANES], [R::ZERO; LANES]);
            for at in 0..a.len() {
                let (a, x, turned, p, q) = (&a[at], &x[at], &turned[at], &mut ps[at], &mut qs[at]);
                for lane in 0..LANES {
                    first_sum[lane] = first_sum[lane] + a[lane] * x[lane];
                    second_sum[lane] = second_sum[lane] + a[lane] * turned[lane];
                    p[lane] = p[lane] + re * a[lane];
                    q[lane] = q[lane] + im * a[lane];
                }
            }
            for lane in 0..a_rest.len() {
                let a = a_rest[lane];
                first_sum[lane] = first_sum[lane] + a * x_rest[lane];
                second_sum[lane] = second_sum[lane] + a * turned_rest[lane];
                p_rest[lane] = p_rest[lane] + re * a;
                q_rest[lane] = q_rest[lane] + im * a;
            }
            for lane in 0..LANES {
                sums = [sums[0] + first_sum[lane], sums[1] + second_sum[lane]];
            }
            p[own] = p[own] + sums[0];
            p[own + 1] = p[own + 1] + sums[1];
        }
    }
}

/// Elimination of a few columns with partial pivoting by the sums of the absolute values of the parts.
struct Eliminate<'a, R> {
    a: &'a mut [Complex<R>],
    stride: usize,
    first: usize,
    swaps: &'a mut [u32],
}

impl<R: Scalar> Multiversioned for Eliminate<'_, R> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { a, stride, first, swaps } = self;
        let (rows, width) = (a.len() / stride, swaps.len().min(MAX_ELIMINATED));
        let mut pivots = [R::ZERO; 2 * MAX_ELIMINATED];
        for column in 0..width {
            let top = first + column;
            let (mut pivot, mut most) = (top, R::ZERO);
            for row in top..rows {
                let size = a[row * stride + top].size();
                if size > most {
                    (most, pivot) = (size, row);
                }
            }
            swaps[column] = pivot as u32;
            if pivot != top {
                let (above, below) = a.split_at_mut(pivot * stride);
                above[top * stride..][..stride].swap_with_slice(&mut below[..stride]);
            }
            let value = a[top * stride + top];
            if value == Complex::ZERO {
                continue;
            }
            let by_factor = value.size() >= R::SMALLEST && value.size() * R::SMALLEST < R::ONE;
            let factor = if by_factor { Complex::ONE / value } else { value };
            let right = 2 * (width - column - 1);
            let from = Complex::parts(&a[top * stride + top + 1..][..width - column - 1]);
            pivots[..right].copy_from_slice(from);
            for row in top + 1..rows {
                let row = &mut a[row * stride + top..][..width - column];
                let l = if by_factor { row[0] * factor } else { row[0] / value };
                row[0] = l;
                let (re, im) = (l.0[0], l.0[1]);
                let pairs = Complex::parts_mut(&mut row[1..]).as_chunks_mut::<2>().0;
                for (to, u) in pairs.iter_mut().zip(pivots.as_chunks::<2>().0) {
                    *to = [to[0] - (re * u[0] - im * u[1]), to[1] - (re * u[1] + im * u[0])];
                }
            }
        }
    }
}
