//! Eigenvectors of triangular and quasi-triangular matrices by back substitution.

use hesper_compute::{Simd, dot};

use super::super::complex::Complex;
use super::super::field::Field;
use super::schur::TINY;

type Number = Complex<f64>;

/// Elements of a vector are kept below this number; larger ones scale the vector.
const LARGEST: f64 = 1e100;

/// A vector that is solved for from its last element to its first.
struct Solution<'a> {
    simd: Simd,
    re: &'a mut [f64],
    im: &'a mut [f64],
    /// The last element that is not zero.
    last: usize,
    /// The smallest divisor: a smaller one is a rounding error of an eigenvalue that is repeated.
    least: f64,
}

impl<'a> Solution<'a> {
    fn new(simd: Simd, re: &'a mut [f64], im: &'a mut [f64], last: usize, value: Number) -> Self {
        Self { simd, re, im, last, least: TINY.max(f64::EPSILON * value.size()) }
    }

    /// The sum of products of real elements of a row after `at` with those of the vector.
    fn sum(&self, row: &[f64], at: usize) -> Number {
        let range = at + 1..self.last + 1;
        let with = |part: &[f64]| dot(self.simd, &row[range.clone()], &part[range.clone()]);
        // The imaginary part of a real vector is empty.
        Complex([with(self.re), if self.im.is_empty() { 0.0 } else { with(self.im) }])
    }

    fn set(&mut self, at: usize, x: Number) {
        self.re[at] = x.0[0];
        if let Some(im) = self.im.get_mut(at) {
            *im = x.0[1];
        }
    }

    /// `x / divisor`, or less of it if the vector must be scaled; returns the scale too.
    fn quotient(&mut self, x: Number, divisor: Number) -> (Number, f64) {
        let divisor = if divisor.size() < self.least { Complex([self.least, 0.0]) } else { divisor };
        if x.size() <= LARGEST * divisor.size() {
            return (x / divisor, 1.0);
        }
        let scale = LARGEST * (divisor.size() / x.size());
        self.re[..=self.last].iter_mut().for_each(|x| *x *= scale);
        if let Some(im) = self.im.get_mut(..=self.last) {
            im.iter_mut().for_each(|x| *x *= scale);
        }
        // Not `x * scale`, which may be subnormal.
        ((x.over(x.size()) / divisor.over(divisor.size())).times(LARGEST), scale)
    }

    /// Sets two elements to the solution of a system of two equations.
    fn solve_two(&mut self, at: usize, [mut top, mut bottom]: [[Number; 2]; 2], [mut x, mut y]: [Number; 2]) {
        if bottom[0].size() > top[0].size() {
            (top, bottom, x, y) = (bottom, top, y, x);
        }
        if top[0].size() < self.least {
            top[0] = Complex([self.least, 0.0]);
        }
        let factor = bottom[0] / top[0];
        let (second, scale) = self.quotient(y - factor * x, bottom[1] - factor * top[1]);
        let (first, scale) = self.quotient(x.times(scale) - top[1] * second, top[0]);
        self.set(at, first);
        self.set(at + 1, second.times(scale));
    }
}

/// Eigenvectors of a real quasi-triangular matrix as rows: one for a real eigenvalue, and the real and the
/// imaginary part of the first one for a pair of conjugated ones.
pub(super) fn real_vectors(simd: Simd, n: usize, t: &[f64], values: &[[f64; 2]], rows: &mut [f64]) {
    let mut at = 0;
    while at < n {
        let value = Complex(values[at]);
        if value.is_real() {
            let re = &mut rows[at * n..][..n];
            re[at] = 1.0;
            solve_above(n, t, at, value, &mut Solution::new(simd, re, &mut [], at, value));
            at += 1;
            continue;
        }
        let (re, rest) = rows[at * n..].split_at_mut(n);
        let im = &mut rest[..n];
        let (above, below) = (t[at * n + at + 1], t[(at + 1) * n + at]);
        if above.abs() >= below.abs() {
            (re[at], im[at + 1]) = (1.0, value.0[1] / above);
        } else {
            (re[at], im[at + 1]) = (-value.0[1] / below, 1.0);
        }
        solve_above(n, t, at, value, &mut Solution::new(simd, re, im, at + 1, value));
        at += 2;
    }
}

/// Solves for the elements before `first`.
fn solve_above(n: usize, t: &[f64], first: usize, value: Number, x: &mut Solution<'_>) {
    let real = |row: usize, column: usize| Complex([t[row * n + column], 0.0]);
    let mut at = first;
    while at > 0 {
        at -= 1;
        let right = -x.sum(&t[at * n..][..n], at);
        if at == 0 || t[at * n + at - 1] == 0.0 {
            let (element, _) = x.quotient(right, real(at, at) - value);
            x.set(at, element);
            continue;
        }
        // A block of two.
        at -= 1;
        let above = -x.sum(&t[at * n..][..n], at + 1);
        let system =
            [[real(at, at) - value, real(at, at + 1)], [real(at + 1, at), real(at + 1, at + 1) - value]];
        x.solve_two(at, system, [above, right]);
    }
}

/// Eigenvectors of a complex triangular matrix, given as its parts, as rows of real and imaginary parts.
pub(super) fn complex_vectors(simd: Simd, n: usize, [re, im]: [&[f64]; 2], [rows, rows_im]: [&mut [f64]; 2]) {
    let element = |at: usize| Complex([re[at], im[at]]);
    for (last, (x, x_im)) in rows.chunks_exact_mut(n).zip(rows_im.chunks_exact_mut(n)).enumerate() {
        let value = element(last * n + last);
        x[last] = 1.0;
        let mut x = Solution::new(simd, x, x_im, last, value);
        for at in (0..last).rev() {
            let (straight, crossed) = (x.sum(&re[at * n..][..n], at), x.sum(&im[at * n..][..n], at));
            let sum = straight + crossed * Complex([0.0, 1.0]);
            let (element, _) = x.quotient(-sum, element(at * n + at) - value);
            x.set(at, element);
        }
    }
}
