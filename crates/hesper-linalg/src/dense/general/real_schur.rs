//! The real Schur form of a Hessenberg matrix by the implicit double-shift QR algorithm.
//!
//! A sweep chases a bulge of two shifts along the diagonal by reflections of three neighbours. Only a window
//! of the matrix changes step by step; the rest is updated for many steps at once: columns to the right of a
//! window, rows above the diagonal, and the Schur vectors.

use hesper_compute::Simd;

use super::super::multiversion::{Multiversioned, run_multiversioned};
use super::schur::{MAX_ITERATIONS, is_negligible};
use crate::Failure;

/// Steps of a sweep in one window.
const WINDOW: usize = 32;
/// Columns updated for many steps at once: the rows of a few steps stay in the first-level cache.
const STRIP: usize = 512;
/// Rows updated at once.
const LANES: usize = 8;

/// A reflection `1 - tau x x'` of three neighbours, with `x = (1, v, w)`.
#[derive(Clone, Copy)]
struct Reflection {
    tau: f64,
    v: f64,
    w: f64,
}

impl Reflection {
    /// The reflection of a vector to a multiple of the first unit vector, and the multiple.
    fn new([a, b, c]: [f64; 3]) -> (Self, f64) {
        let scale = a.abs().max(b.abs()).max(c.abs());
        if b == 0.0 && c == 0.0 {
            return (Self { tau: 0.0, v: 0.0, w: 0.0 }, a);
        }
        let (a, b, c) = (a / scale, b / scale, c / scale);
        let length = (a * a + b * b + c * c).sqrt();
        let to = if a > 0.0 { -length } else { length };
        (Self { tau: (to - a) / to, v: b / (a - to), w: c / (a - to) }, to * scale)
    }

    /// Reflects three numbers.
    fn apply(self, [a, b, c]: [f64; 3]) -> [f64; 3] {
        let by = self.tau * (a + self.v * b + self.w * c);
        [a - by, b - by * self.v, c - by * self.w]
    }
}

/// The matrix, and the Schur vectors as rows if they are computed.
pub(super) struct RealSchur<'a> {
    pub(super) simd: Simd,
    pub(super) n: usize,
    pub(super) h: &'a mut [f64],
    pub(super) vectors: Option<&'a mut [f64]>,
}

impl RealSchur<'_> {
    /// Reduces the matrix to quasi-triangular form: blocks of two on the diagonal have equal diagonal
    /// elements and off-diagonal ones of opposite signs. Returns the eigenvalues. Without vectors, elements
    /// above the diagonal are unspecified.
    pub(super) fn reduce(&mut self) -> Result<Vec<[f64; 2]>, Failure> {
        let mut values = vec![[0.0; 2]; self.n];
        let mut end = self.n;
        let mut iterations = 0;
        while end > 0 {
            let first = self.split(end);
            if first + 2 < end {
                if iterations == MAX_ITERATIONS {
                    return Err(Failure::NoConvergence);
                }
                iterations += 1;
                self.sweep(first, end, iterations);
                continue;
            }
            if first + 1 == end {
                values[first] = [self.at(first, first), 0.0];
            } else {
                let pair = self.standardize(first);
                values[first..end].copy_from_slice(&pair);
            }
            (end, iterations) = (first, 0);
        }
        Ok(values)
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.h[row * self.n + column]
    }

    fn set(&mut self, row: usize, column: usize, x: f64) {
        self.h[row * self.n + column] = x;
    }

    /// The first row of the last block before `end` that does not decouple.
    fn split(&mut self, end: usize) -> usize {
        for at in (1..end).rev() {
            let below = self.at(at, at - 1).abs();
            let [before, after] = [self.at(at - 1, at - 1), self.at(at, at)];
            let mut near = before.abs() + after.abs();
            if near == 0.0 {
                if at >= 2 {
                    near += self.at(at - 1, at - 2).abs();
                }
                if at + 1 < end {
                    near += self.at(at + 1, at).abs();
                }
            }
            let above = self.at(at - 1, at).abs();
            if is_negligible(below, above, near, after.abs(), (before - after).abs()) {
                self.set(at, at - 1, 0.0);
                return at;
            }
        }
        0
    }

    /// Two shifts: the eigenvalues of the last block of two or, now and then, others to leave a cycle. Real
    /// ones are both the one next to the last element.
    fn shifts(&self, first: usize, end: usize, iteration: usize) -> [[f64; 2]; 2] {
        let last = end - 1;
        let [a, b, c, d] = if iteration.is_multiple_of(20) {
            let size = self.at(last, last - 1).abs() + self.at(last - 1, last - 2).abs();
            let x = 0.75 * size + self.at(last, last);
            [x, -0.4375 * size, size, x]
        } else if iteration % 20 == 10 {
            let size = self.at(first + 1, first).abs() + self.at(first + 2, first + 1).abs();
            let x = 0.75 * size + self.at(first, first);
            [x, -0.4375 * size, size, x]
        } else {
            [
                self.at(last - 1, last - 1),
                self.at(last - 1, last),
                self.at(last, last - 1),
                self.at(last, last),
            ]
        };
        let scale = a.abs() + b.abs() + c.abs() + d.abs();
        if scale == 0.0 {
            return [[0.0; 2]; 2];
        }
        let [a, b, c, d] = [a / scale, b / scale, c / scale, d / scale];
        let middle = (a + d) / 2.0;
        let product = (a - middle) * (d - middle) - b * c;
        let root = product.abs().sqrt();
        if product >= 0.0 {
            return [[middle * scale, root * scale], [middle * scale, -root * scale]];
        }
        let near = if (middle + root - d).abs() <= (middle - root - d).abs() {
            middle + root
        } else {
            middle - root
        };
        [[near * scale, 0.0]; 2]
    }

    /// Where a sweep starts, between two consecutive small subdiagonal elements if there are such, and the
    /// first column of the shifted product there.
    fn start(&self, first: usize, end: usize, [one, other]: [[f64; 2]; 2]) -> (usize, [f64; 3]) {
        for at in (first..end - 2).rev() {
            let (own, next, below) = (self.at(at, at), self.at(at + 1, at + 1), self.at(at + 1, at));
            let size = (own - other[0]).abs() + other[1].abs() + below.abs();
            let ratio = below / size;
            let mut x = [
                ratio * self.at(at, at + 1) + (own - one[0]) * ((own - other[0]) / size)
                    - one[1] * (other[1] / size),
                ratio * (own + next - one[0] - other[0]),
                ratio * self.at(at + 2, at + 1),
            ];
            let sum = x[0].abs() + x[1].abs() + x[2].abs();
            if sum > 0.0 {
                x = x.map(|x| x / sum);
            }
            if at == first {
                return (at, x);
            }
            let before = self.at(at, at - 1).abs() * (x[1].abs() + x[2].abs());
            let beside = self.at(at - 1, at - 1).abs() + own.abs() + next.abs();
            if before <= f64::EPSILON * x[0].abs() * beside {
                return (at, x);
            }
        }
        (first, [0.0; 3])
    }

    /// One double-shift sweep over the block from `first` to `end`.
    fn sweep(&mut self, first: usize, end: usize, iteration: usize) {
        let n = self.n;
        let shifts = self.shifts(first, end, iteration);
        let (start, mut x) = self.start(first, end, shifts);
        let right = if self.vectors.is_some() { n } else { end };
        let mut steps = Vec::with_capacity(end - start - 1);
        for from in (start..end - 1).step_by(WINDOW) {
            let to = (from + WINDOW).min(end - 1);
            // Steps read and write columns up to here.
            let edge = right.min(to + 3);
            for at in from..to {
                let has_third = at + 2 < end;
                if at > start {
                    x = [self.at(at, at - 1), self.at(at + 1, at - 1), 0.0];
                    if has_third {
                        x[2] = self.at(at + 2, at - 1);
                    }
                }
                let (step, length) = Reflection::new(x);
                if at > start {
                    self.set(at, at - 1, length);
                    self.set(at + 1, at - 1, 0.0);
                    if has_third {
                        self.set(at + 2, at - 1, 0.0);
                    }
                } else if start > first {
                    // The element before is small, but not zero.
                    let before = self.at(at, at - 1);
                    self.set(at, at - 1, before * (1.0 - step.tau));
                }
                self.reflect_rows(at, step, at, edge, has_third);
                for row in at + 1..end.min(at + 4) {
                    let place = row * n + at;
                    let third = if has_third { self.h[place + 2] } else { 0.0 };
                    let new = step.apply([self.h[place], self.h[place + 1], third]);
                    self.h[place..place + 2].copy_from_slice(&new[..2]);
                    if has_third {
                        self.h[place + 2] = new[2];
                    }
                }
                steps.push(step);
            }
            let block = ReflectLines {
                a: self.h,
                n,
                first: from,
                steps: &steps[from - start..],
                columns: (edge, right),
            };
            run_multiversioned(self.simd, block);
        }
        let top = if self.vectors.is_some() { 0 } else { first };
        run_multiversioned(
            self.simd,
            ReflectColumns { a: self.h, n, first: start, steps: &steps, rows: (top, end) },
        );
        if let Some(vectors) = &mut self.vectors {
            run_multiversioned(
                self.simd,
                ReflectLines { a: vectors, n, first: start, steps: &steps, columns: (0, n) },
            );
        }
    }

    /// Reflects rows from `at` on, between two columns.
    fn reflect_rows(&mut self, at: usize, step: Reflection, from: usize, to: usize, has_third: bool) {
        let n = self.n;
        let (top, rest) = self.h[at * n..].split_at_mut(n);
        if !has_third {
            for (a, b) in top[from..to].iter_mut().zip(&mut rest[from..to]) {
                [*a, *b, _] = step.apply([*a, *b, 0.0]);
            }
            return;
        }
        let (middle, bottom) = rest.split_at_mut(n);
        for ((a, b), c) in top[from..to].iter_mut().zip(&mut middle[from..to]).zip(&mut bottom[from..to]) {
            [*a, *b, *c] = step.apply([*a, *b, *c]);
        }
    }

    /// Rotates rows and columns of a block of two, so that it is triangular or has equal diagonal elements.
    /// Returns its eigenvalues.
    fn standardize(&mut self, at: usize) -> [[f64; 2]; 2] {
        let n = self.n;
        let block = [self.at(at, at), self.at(at, at + 1), self.at(at + 1, at), self.at(at + 1, at + 1)];
        let ([a, b, c, d], [cosine, sine]) = standard_form(block);
        if let Some(vectors) = &mut self.vectors {
            let (top, bottom) = self.h[at * n..].split_at_mut(n);
            rotate(cosine, sine, &mut top[at + 2..], &mut bottom[at + 2..n]);
            for row in self.h.chunks_exact_mut(n).take(at) {
                let (x, y) = (row[at], row[at + 1]);
                (row[at], row[at + 1]) = (cosine * x + sine * y, cosine * y - sine * x);
            }
            let (top, bottom) = vectors[at * n..].split_at_mut(n);
            rotate(cosine, sine, top, &mut bottom[..n]);
        }
        self.set(at, at, a);
        self.set(at, at + 1, b);
        self.set(at + 1, at, c);
        self.set(at + 1, at + 1, d);
        let imaginary = b.abs().sqrt() * c.abs().sqrt();
        [[a, imaginary], [d, if imaginary == 0.0 { 0.0 } else { -imaginary }]]
    }
}

fn rotate(cosine: f64, sine: f64, one: &mut [f64], other: &mut [f64]) {
    for (x, y) in one.iter_mut().zip(other) {
        (*x, *y) = (cosine * *x + sine * *y, cosine * *y - sine * *x);
    }
}

/// The block of two `(a, b, c, d)` after a rotation, and its cosine and sine: upper triangular if the
/// eigenvalues are real, else with equal diagonal elements.
fn standard_form([a, b, c, d]: [f64; 4]) -> ([f64; 4], [f64; 2]) {
    if c == 0.0 {
        return ([a, b, c, d], [1.0, 0.0]);
    }
    if b == 0.0 {
        return ([d, -c, 0.0, a], [0.0, 1.0]);
    }
    if a == d && (b > 0.0) != (c > 0.0) {
        return ([a, b, c, d], [1.0, 0.0]);
    }
    let half = (a - d) / 2.0;
    let (more, less) = (b.abs().max(c.abs()), b.abs().min(c.abs()) * b.signum() * c.signum());
    let scale = half.abs().max(more);
    let square = half / scale * half + more / scale * less;
    if square >= 4.0 * f64::EPSILON {
        // Two real eigenvalues.
        let root = half + (scale.sqrt() * square.sqrt()).copysign(half);
        let length = c.hypot(root);
        return ([d + root, b - c, 0.0, d - more / root * less], [root / length, c / length]);
    }
    // Complex or nearly equal eigenvalues: make the diagonal elements equal.
    let sum = b + c;
    let length = sum.hypot(2.0 * half);
    let cosine = (0.5 * (1.0 + sum.abs() / length)).sqrt();
    let sine = -(half / (length * cosine)) * 1f64.copysign(sum);
    let [a, b, c, d] =
        [a * cosine + b * sine, b * cosine - a * sine, c * cosine + d * sine, d * cosine - c * sine];
    let [a, b, c, d] =
        [a * cosine + c * sine, b * cosine + d * sine, c * cosine - a * sine, d * cosine - b * sine];
    let middle = (a + d) / 2.0;
    if c == 0.0 || b == 0.0 {
        let ends = [[middle, b, 0.0, middle], [middle, -c, 0.0, middle]];
        return if c == 0.0 { (ends[0], [cosine, sine]) } else { (ends[1], [-sine, cosine]) };
    }
    if (b > 0.0) != (c > 0.0) {
        return ([middle, b, c, middle], [cosine, sine]);
    }
    // Real after all.
    let (root_b, root_c) = (b.abs().sqrt(), c.abs().sqrt());
    let shorter = 1.0 / (b + c).abs().sqrt();
    let (more_cosine, more_sine) = (root_b * shorter, root_c * shorter);
    let apart = (root_b * root_c).copysign(c);
    let rotation = [cosine * more_cosine - sine * more_sine, cosine * more_sine + sine * more_cosine];
    ([middle + apart, b - c, 0.0, middle - apart], rotation)
}

/// Reflects rows of `a` between two columns: step `i` those from `first + i` on. The third row of the last
/// step may not exist.
struct ReflectLines<'a> {
    a: &'a mut [f64],
    n: usize,
    first: usize,
    steps: &'a [Reflection],
    columns: (usize, usize),
}

impl Multiversioned for ReflectLines<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { a, n, first, steps, columns } = self;
        let mut from = columns.0;
        while from < columns.1 {
            let to = (from + STRIP).min(columns.1);
            let mut at = 0;
            while at < steps.len() {
                let rest = &mut a[(first + at) * n..];
                let (one, rest) = rest.split_at_mut(n);
                let (two, rest) = rest.split_at_mut(n);
                let (one, two) = (&mut one[from..to], &mut two[from..to]);
                let step = steps[at];
                // The last step may have two rows, and `w` is zero then.
                if at + 1 == steps.len() && step.w == 0.0 {
                    for i in 0..one.len().min(two.len()) {
                        let by = step.tau * (one[i] + step.v * two[i]);
                        one[i] -= by;
                        two[i] -= by * step.v;
                    }
                    at += 1;
                    continue;
                }
                let (three, rest) = rest.split_at_mut(n);
                let three = &mut three[from..to];
                let width = one.len().min(two.len()).min(three.len());
                let (one, two, three) = (&mut one[..width], &mut two[..width], &mut three[..width]);
                let pair = at + 1 < steps.len() && (at + 2 < steps.len() || steps[at + 1].w != 0.0);
                if !pair {
                    for i in 0..width {
                        let by = step.tau * (one[i] + step.v * two[i] + step.w * three[i]);
                        one[i] -= by;
                        two[i] -= by * step.v;
                        three[i] -= by * step.w;
                    }
                    at += 1;
                    continue;
                }
                let next = steps[at + 1];
                let four = &mut rest[from..to][..width];
                for i in 0..width {
                    let by = step.tau * (one[i] + step.v * two[i] + step.w * three[i]);
                    one[i] -= by;
                    let (y, z) = (two[i] - by * step.v, three[i] - by * step.w);
                    let by = next.tau * (y + next.v * z + next.w * four[i]);
                    two[i] = y - by;
                    three[i] = z - by * next.v;
                    four[i] -= by * next.w;
                }
                at += 2;
            }
            from = to;
        }
    }
}

/// Reflects columns of the rows between two: step `i` those from `first + i` on, of rows above the diagonal.
struct ReflectColumns<'a> {
    a: &'a mut [f64],
    n: usize,
    first: usize,
    steps: &'a [Reflection],
    rows: (usize, usize),
}

impl Multiversioned for ReflectColumns<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { a, n, first, steps, rows } = self;
        let mut row = rows.0;
        while row + LANES <= rows.1 {
            reflect_columns::<LANES>(a, n, first, steps, row);
            row += LANES;
        }
        while row < rows.1 {
            reflect_columns::<1>(a, n, first, steps, row);
            row += 1;
        }
    }
}

#[inline(always)]
fn reflect_columns<const L: usize>(a: &mut [f64], n: usize, first: usize, steps: &[Reflection], row: usize) {
    let (start, end) = (first.max(row), first + steps.len());
    if start >= end {
        return;
    }
    let a = &mut a[row * n..(row + L) * n];
    let (mut x, mut y, mut z) = ([0.0; L], [0.0; L], [0.0; L]);
    for lane in 0..L {
        x[lane] = a[lane * n + start];
        y[lane] = a[lane * n + start + 1];
    }
    for at in start..end {
        let step = steps[at - first];
        // The last step may have two columns.
        let has_third = at + 1 < end || step.w != 0.0;
        if has_third {
            for lane in 0..L {
                z[lane] = a[lane * n + at + 2];
            }
        }
        for lane in 0..L {
            // Rows of the window below the diagonal are up to date.
            let tau = if row + lane <= at { step.tau } else { 0.0 };
            let by = tau * (x[lane] + step.v * y[lane] + step.w * z[lane]);
            x[lane] -= by;
            y[lane] -= by * step.v;
            z[lane] -= by * step.w;
        }
        for lane in 0..L {
            a[lane * n + at] = x[lane];
        }
        if at + 1 == end {
            for lane in 0..L {
                a[lane * n + at + 1] = y[lane];
                if has_third {
                    a[lane * n + at + 2] = z[lane];
                }
            }
        }
        (x, y) = (y, z);
    }
}
