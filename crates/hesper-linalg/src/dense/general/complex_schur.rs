//! The Schur form of a complex Hessenberg matrix by the implicit single-shift QR algorithm.
//!
//! Real and imaginary parts are matrices of their own, so that loops vectorize. As for real matrices, only a
//! window changes step by step, and the rest is updated for many rotations at once.

use hesper_compute::Simd;

use super::super::complex::Complex;
use super::super::field::Field;
use super::super::multiversion::{Multiversioned, run_multiversioned};
use super::schur::{MAX_ITERATIONS, is_negligible};
use crate::Failure;

type Number = Complex<f64>;

/// Rotations of a sweep in one window.
const WINDOW: usize = 32;
/// Columns updated for many rotations at once.
const STRIP: usize = 256;
/// Elements of a row updated at once.
const CHUNK: usize = 8;
/// Rows updated at once.
const LANES: usize = 4;

/// A matrix as its real and its imaginary part.
pub(super) struct Planes {
    pub(super) re: Vec<f64>,
    pub(super) im: Vec<f64>,
}

impl Planes {
    pub(super) fn new(a: &[Number]) -> Self {
        Self { re: a.iter().map(|x| x.0[0]).collect(), im: a.iter().map(|x| x.0[1]).collect() }
    }

    pub(super) fn get(&self, at: usize) -> Number {
        Complex([self.re[at], self.im[at]])
    }

    fn set(&mut self, at: usize, x: Number) {
        [self.re[at], self.im[at]] = x.0;
    }
}

/// A rotation: `(c x + s y, c y - conj(s) x)` for a real `c`.
#[derive(Clone, Copy)]
struct Rotation {
    c: f64,
    s: [f64; 2],
}

impl Rotation {
    /// The rotation that maps `(x, y)` to `(r, 0)`, and `r`.
    fn new(x: Number, y: Number) -> (Self, Number) {
        let scale = x.size().max(y.size());
        if y == Number::ZERO || scale == 0.0 {
            return (Self { c: 1.0, s: [0.0; 2] }, x);
        }
        let (x, y) = (x.over(scale), y.over(scale));
        let (x_length, y_length) = (x.square().sqrt(), y.square().sqrt());
        if x_length == 0.0 {
            return (Self { c: 0.0, s: y.conj().over(y_length).0 }, Complex([y_length * scale, 0.0]));
        }
        let length = x_length.hypot(y_length);
        let phase = x.over(x_length);
        let s = (phase * y.conj()).over(length).0;
        (Self { c: x_length / length, s }, phase.times(length * scale))
    }

    fn apply(self, x: Number, y: Number) -> (Number, Number) {
        let s = Complex(self.s);
        (x.times(self.c) + s * y, y.times(self.c) - s.conj() * x)
    }

    /// The rotation of columns that belongs to this one of rows.
    fn adjoint(self) -> Self {
        Self { c: self.c, s: [self.s[0], -self.s[1]] }
    }
}

/// The matrix, and the Schur vectors as rows if they are computed.
pub(super) struct ComplexSchur<'a> {
    pub(super) simd: Simd,
    pub(super) n: usize,
    pub(super) h: &'a mut Planes,
    pub(super) vectors: Option<&'a mut Planes>,
}

impl ComplexSchur<'_> {
    /// Reduces the matrix to triangular form. Without vectors, elements above the diagonal are unspecified.
    pub(super) fn reduce(&mut self) -> Result<(), Failure> {
        let (mut end, mut iterations) = (self.n, 0);
        while end > 0 {
            let first = self.split(end);
            if first + 1 == end {
                (end, iterations) = (first, 0);
                continue;
            }
            if iterations == MAX_ITERATIONS {
                return Err(Failure::NoConvergence);
            }
            iterations += 1;
            self.sweep(first, end, iterations);
        }
        Ok(())
    }

    fn at(&self, row: usize, column: usize) -> Number {
        self.h.get(row * self.n + column)
    }

    fn set(&mut self, row: usize, column: usize, x: Number) {
        self.h.set(row * self.n + column, x);
    }

    /// The first row of the last block before `end` that does not decouple.
    fn split(&mut self, end: usize) -> usize {
        for at in (1..end).rev() {
            let below = self.at(at, at - 1).size();
            let [before, after] = [self.at(at - 1, at - 1), self.at(at, at)];
            let mut near = before.size() + after.size();
            if near == 0.0 {
                if at >= 2 {
                    near += self.at(at - 1, at - 2).size();
                }
                if at + 1 < end {
                    near += self.at(at + 1, at).size();
                }
            }
            let above = self.at(at - 1, at).size();
            if is_negligible(below, above, near, after.size(), (before - after).size()) {
                self.set(at, at - 1, Number::ZERO);
                return at;
            }
        }
        0
    }

    /// The eigenvalue of the last block of two next to its last element or, now and then, another number to
    /// leave a cycle.
    fn shift(&self, first: usize, end: usize, iteration: usize) -> Number {
        let last = end - 1;
        if iteration.is_multiple_of(20) {
            return self.at(last, last) + Complex([0.75 * self.at(last, last - 1).size(), 0.0]);
        }
        if iteration % 20 == 10 {
            return self.at(first, first) + Complex([0.75 * self.at(first + 1, first).size(), 0.0]);
        }
        let (a, d) = (self.at(last - 1, last - 1), self.at(last, last));
        // The root of the product of the off-diagonal elements, without overflow.
        let product = root(self.at(last - 1, last)) * root(self.at(last, last - 1));
        let size = product.size();
        if size == 0.0 {
            return d;
        }
        let half = (a - d).times(0.5);
        let scale = size.max(half.size());
        let (x, y) = (half.over(scale), product.over(scale));
        let mut apart = root(x * x + y * y).times(scale);
        if (half.0[0] * apart.0[0] + half.0[1] * apart.0[1]) < 0.0 {
            apart = -apart;
        }
        d - product * (product / (half + apart))
    }

    /// One sweep over the block from `first` to `end`.
    fn sweep(&mut self, first: usize, end: usize, iteration: usize) {
        let n = self.n;
        let shift = self.shift(first, end, iteration);
        let right = if self.vectors.is_some() { n } else { end };
        let mut steps = Vec::with_capacity(end - first - 1);
        let (mut x, mut y) = (self.at(first, first) - shift, self.at(first + 1, first));
        for from in (first..end - 1).step_by(WINDOW) {
            let to = (from + WINDOW).min(end - 1);
            // Rotations read and write columns up to here.
            let edge = right.min(to + 2);
            for at in from..to {
                if at > first {
                    (x, y) = (self.at(at, at - 1), self.at(at + 1, at - 1));
                }
                let (step, length) = Rotation::new(x, y);
                if at > first {
                    self.set(at, at - 1, length);
                    self.set(at + 1, at - 1, Number::ZERO);
                }
                for column in at..edge {
                    let (x, y) = step.apply(self.at(at, column), self.at(at + 1, column));
                    self.set(at, column, x);
                    self.set(at + 1, column, y);
                }
                let step = step.adjoint();
                for row in at + 1..end.min(at + 3) {
                    let (x, y) = step.apply(self.at(row, at), self.at(row, at + 1));
                    self.set(row, at, x);
                    self.set(row, at + 1, y);
                }
                steps.push(step);
            }
            // The rotations of rows are the adjoints of those of columns.
            let rows: Vec<Rotation> = steps[from - first..].iter().map(|step| step.adjoint()).collect();
            let block = RotateLines { a: self.h, n, first: from, steps: &rows, columns: (edge, right) };
            run_multiversioned(self.simd, block);
        }
        let top = if self.vectors.is_some() { 0 } else { first };
        run_multiversioned(self.simd, RotateColumns { a: self.h, n, first, steps: &steps, rows: (top, end) });
        if let Some(vectors) = &mut self.vectors {
            run_multiversioned(
                self.simd,
                RotateLines { a: vectors, n, first, steps: &steps, columns: (0, n) },
            );
        }
    }
}

/// The square root whose real part is not negative.
fn root(x: Number) -> Number {
    let [re, im] = x.0;
    let length = re.hypot(im);
    if length == 0.0 {
        return x;
    }
    let large = ((length + re.abs()) / 2.0).sqrt();
    let small = im.abs() / (2.0 * large);
    if re >= 0.0 { Complex([large, small.copysign(im)]) } else { Complex([small, large.copysign(im)]) }
}

/// Rotates rows of `a` between two columns: step `i` those from `first + i` on.
struct RotateLines<'a> {
    a: &'a mut Planes,
    n: usize,
    first: usize,
    steps: &'a [Rotation],
    columns: (usize, usize),
}

impl Multiversioned for RotateLines<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { a, n, first, steps, columns } = self;
        let mut from = columns.0;
        while from < columns.1 {
            let to = (from + STRIP).min(columns.1);
            let mut at = 0;
            while at < steps.len() {
                let (re, rest_re) = a.re[(first + at) * n..].split_at_mut(n);
                let (im, rest_im) = a.im[(first + at) * n..].split_at_mut(n);
                let (next_re, last_re) = rest_re.split_at_mut(n);
                let (next_im, last_im) = rest_im.split_at_mut(n);
                let (x, y) = (
                    [&mut re[from..to], &mut im[from..to]],
                    [&mut next_re[from..to], &mut next_im[from..to]],
                );
                if at + 1 == steps.len() {
                    rotate_rows(steps[at], x, y);
                    at += 1;
                } else {
                    let z = [&mut last_re[from..to], &mut last_im[from..to]];
                    rotate_three_rows(steps[at], steps[at + 1], x, y, z);
                    at += 2;
                }
            }
            from = to;
        }
    }
}

/// One element of two rows after a rotation.
#[inline(always)]
fn rotated(
    Rotation { c, s: [p, q] }: Rotation,
    [x, xi]: [f64; 2],
    [y, yi]: [f64; 2],
) -> ([f64; 2], [f64; 2]) {
    ([c * x + p * y - q * yi, c * xi + p * yi + q * y], [c * y - p * x - q * xi, c * yi - p * xi + q * x])
}

#[inline(always)]
fn rotate_rows(step: Rotation, [x, xi]: [&mut [f64]; 2], [y, yi]: [&mut [f64]; 2]) {
    for (((x, xi), y), yi) in x.iter_mut().zip(xi).zip(y).zip(yi) {
        ([*x, *xi], [*y, *yi]) = rotated(step, [*x, *xi], [*y, *yi]);
    }
}

/// Two rotations at once load and store the row between them once. Chunks are copied, since a loop over six
/// slices that may overlap is not vectorized.
#[inline(always)]
fn rotate_three_rows(
    one: Rotation,
    other: Rotation,
    [x, xi]: [&mut [f64]; 2],
    [y, yi]: [&mut [f64]; 2],
    [z, zi]: [&mut [f64]; 2],
) {
    let ((x, x_rest), (xi, xi_rest)) = (x.as_chunks_mut::<CHUNK>(), xi.as_chunks_mut::<CHUNK>());
    let ((y, y_rest), (yi, yi_rest)) = (y.as_chunks_mut::<CHUNK>(), yi.as_chunks_mut::<CHUNK>());
    let ((z, z_rest), (zi, zi_rest)) = (z.as_chunks_mut::<CHUNK>(), zi.as_chunks_mut::<CHUNK>());
    for (((((x, xi), y), yi), z), zi) in x.iter_mut().zip(xi).zip(y).zip(yi).zip(z).zip(zi) {
        let (mut a, mut ai, mut b, mut bi, mut c, mut ci) = (*x, *xi, *y, *yi, *z, *zi);
        for lane in 0..CHUNK {
            let (first, middle) = rotated(one, [a[lane], ai[lane]], [b[lane], bi[lane]]);
            let (middle, last) = rotated(other, middle, [c[lane], ci[lane]]);
            [a[lane], ai[lane]] = first;
            [b[lane], bi[lane]] = middle;
            [c[lane], ci[lane]] = last;
        }
        (*x, *xi, *y, *yi, *z, *zi) = (a, ai, b, bi, c, ci);
    }
    rotate_rows(one, [x_rest, xi_rest], [y_rest, yi_rest]);
    rotate_rows(other, [y_rest, yi_rest], [z_rest, zi_rest]);
}

/// Rotates columns of the rows between two: step `i` those from `first + i` on, of rows above the diagonal.
struct RotateColumns<'a> {
    a: &'a mut Planes,
    n: usize,
    first: usize,
    steps: &'a [Rotation],
    rows: (usize, usize),
}

impl Multiversioned for RotateColumns<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { a, n, first, steps, rows } = self;
        let mut row = rows.0;
        while row + LANES <= rows.1 {
            rotate_columns::<LANES>(a, n, first, steps, row);
            row += LANES;
        }
        while row < rows.1 {
            rotate_columns::<1>(a, n, first, steps, row);
            row += 1;
        }
    }
}

#[inline(always)]
fn rotate_columns<const L: usize>(a: &mut Planes, n: usize, first: usize, steps: &[Rotation], row: usize) {
    let (start, end) = (first.max(row), first + steps.len());
    if start >= end {
        return;
    }
    let (re, im) = (&mut a.re[row * n..(row + L) * n], &mut a.im[row * n..(row + L) * n]);
    let ([mut x, mut xi], [mut y, mut yi]) = ([[0.0; L]; 2], [[0.0; L]; 2]);
    for lane in 0..L {
        x[lane] = re[lane * n + start];
        xi[lane] = im[lane * n + start];
    }
    for at in start..end {
        let Rotation { c, s: [p, q] } = steps[at - first];
        for lane in 0..L {
            y[lane] = re[lane * n + at + 1];
            yi[lane] = im[lane * n + at + 1];
        }
        let (mut to, mut to_im) = ([0.0; L], [0.0; L]);
        for lane in 0..L {
            // Rows of the window below the diagonal are up to date.
            let kept = row + lane > at;
            let (c, p, q) = if kept { (1.0, 0.0, 0.0) } else { (c, p, q) };
            to[lane] = c * x[lane] + p * y[lane] - q * yi[lane];
            to_im[lane] = c * xi[lane] + p * yi[lane] + q * y[lane];
            let new = c * y[lane] - p * x[lane] - q * xi[lane];
            yi[lane] = c * yi[lane] - p * xi[lane] + q * x[lane];
            y[lane] = new;
        }
        for lane in 0..L {
            re[lane * n + at] = to[lane];
            im[lane * n + at] = to_im[lane];
        }
        (x, xi) = (y, yi);
    }
    for lane in 0..L {
        re[lane * n + end] = x[lane];
        im[lane * n + end] = xi[lane];
    }
}
