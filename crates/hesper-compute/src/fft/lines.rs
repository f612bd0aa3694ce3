//! Transforms of several lines at once: each lane of a vector is a line of its own.
//!
//! Element `i` of all lines is a vector of real parts followed by one of imaginary parts. Lanes are
//! independent, and every twiddle factor is the same for all lanes. A transform is a few passes of radix 8
//! and 4 in place; afterwards frequency `k` is at index `order[k]`. The forward transform is computed;
//! exchanging real and imaginary parts before and after gives the inverse.

use crate::simd::{Isa, Local};

/// The shortest line.
pub(super) const SHORTEST: usize = 16;

/// One pass over a line.
pub(super) struct Pass {
    radix: usize,
    /// Elements of each part after the pass.
    part: usize,
    /// For each element of a part, the factors of all parts but the first: real, imaginary.
    factors: Vec<f32>,
}

/// A plan for lines of one length.
pub(super) struct Lines {
    pub(super) length: usize,
    passes: Vec<Pass>,
    pub(super) order: Vec<u32>,
}

/// `e^(-2 pi i k / n)`.
pub fn root(k: usize, n: usize) -> (f64, f64) {
    // Reduce the angle to the nearest quarter turn, where it is small and exact.
    let k = k % n;
    let quarter = (4 * k + n / 2) / n;
    let angle = std::f64::consts::TAU * (k as f64 - (quarter * n) as f64 / 4.0) / n as f64;
    let (sin, cos) = angle.sin_cos();
    match quarter % 4 {
        0 => (cos, -sin),
        1 => (-sin, -cos),
        2 => (-cos, sin),
        _ => (sin, cos),
    }
}

impl Lines {
    /// A plan for a power of two that is not below [`SHORTEST`].
    pub(super) fn new(length: usize) -> Self {
        debug_assert!(length.is_power_of_two() && length >= SHORTEST);
        let bits = length.ilog2() as usize;
        let fours = [0, 2, 1][bits % 3];
        let eights = (bits - 2 * fours) / 3;
        let radices = std::iter::repeat_n(8, eights).chain(std::iter::repeat_n(4, fours));
        let mut passes = Vec::new();
        let mut block = length;
        for radix in radices {
            let part = block / radix;
            let mut factors = Vec::with_capacity(2 * part * (radix - 1));
            for j in 0..part {
                for k in 1..radix {
                    let (re, im) = root(j * k, block);
                    factors.extend([re as f32, im as f32]);
                }
            }
            passes.push(Pass { radix, part, factors });
            block = part;
        }
        let mut order = vec![0u32];
        // From the last pass to the first: frequency `k + radix * q` is in part `k`, at the index of `q`.
        for pass in passes.iter().rev() {
            let (radix, part) = (pass.radix, pass.part);
            order = (0..radix * part).map(|f| (f % radix * part) as u32 + order[f / radix]).collect();
        }
        Self { length, passes, order }
    }
}

/// Offsets of the real and imaginary vectors in an element.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    pub(super) re: usize,
    pub(super) im: usize,
}

impl Parts {
    pub(super) fn new<S: Isa>(inverse: bool) -> Self {
        if inverse { Self { re: S::LANES, im: 0 } } else { Self { re: 0, im: S::LANES } }
    }
}

/// Transforms lines in place.
///
/// # Safety
/// `lines` holds `2 * S::LANES` floats for each element.
#[inline(always)]
pub(super) unsafe fn transform<S: Isa>(s: S, plan: &Lines, lines: *mut f32, parts: Parts) {
    let Some((first, others)) = plan.passes.split_first() else { return };
    // The first pass covers the whole line; the rest runs part by part, in the L1 cache.
    s.call(Apply { pass: first, lines, blocks: 1, parts });
    for part in 0..first.radix {
        // SAFETY: parts lie within the line.
        let lines = unsafe { lines.add(part * first.part * 2 * S::LANES) };
        for pass in others {
            s.call(Apply { pass, lines, blocks: first.part / (pass.radix * pass.part), parts });
        }
    }
}

/// A pass over consecutive blocks.
struct Apply<'a> {
    pass: &'a Pass,
    lines: *mut f32,
    blocks: usize,
    parts: Parts,
}

impl<S: Isa> Local<S> for Apply<'_> {
    #[inline(always)]
    fn run(self, s: S) {
        let Pass { radix, part, ref factors } = *self.pass;
        let step = part * 2 * S::LANES;
        for block in 0..self.blocks {
            for j in 0..part {
                // SAFETY: the caller of `transform` promised the elements of the block; the list has the
                // factors of all parts of an element.
                unsafe {
                    let at = self.lines.add((block * radix * part + j) * 2 * S::LANES);
                    let factors = factors.as_ptr().add(2 * j * (radix - 1));
                    if radix == 8 {
                        eight(s, at, step, self.parts, factors, part > 1);
                    } else {
                        four(s, at, step, self.parts, factors, part > 1);
                    }
                }
            }
        }
    }
}

/// A complex number in each lane.
#[derive(Clone, Copy)]
pub(super) struct C<S: Isa> {
    pub(super) re: S::F,
    pub(super) im: S::F,
}

impl<S: Isa> C<S> {
    #[inline(always)]
    pub(super) unsafe fn load(s: S, p: *const f32, parts: Parts) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self { re: s.load(p.add(parts.re)), im: s.load(p.add(parts.im)) } }
    }

    #[inline(always)]
    pub(super) unsafe fn store(self, s: S, p: *mut f32, parts: Parts) {
        // SAFETY: the caller's promise.
        unsafe {
            s.store(p.add(parts.re), self.re);
            s.store(p.add(parts.im), self.im);
        }
    }

    #[inline(always)]
    pub(super) fn add(self, s: S, b: Self) -> Self {
        Self { re: s.add(self.re, b.re), im: s.add(self.im, b.im) }
    }

    #[inline(always)]
    pub(super) fn sub(self, s: S, b: Self) -> Self {
        Self { re: s.sub(self.re, b.re), im: s.sub(self.im, b.im) }
    }

    #[inline(always)]
    pub(super) fn times(self, s: S, w: Self) -> Self {
        let minus = s.sub(s.zero(), w.im);
        Self {
            re: s.fma(self.im, minus, s.mul(self.re, w.re)),
            im: s.fma(self.im, w.re, s.mul(self.re, w.im)),
        }
    }

    /// `a - i b` and `a + i b`.
    #[inline(always)]
    fn quarter(self, s: S, b: Self) -> (Self, Self) {
        (
            Self { re: s.add(self.re, b.im), im: s.sub(self.im, b.re) },
            Self { re: s.sub(self.re, b.im), im: s.add(self.im, b.re) },
        )
    }
}

/// Stores a number times a factor that is the same for all lanes.
#[inline(always)]
unsafe fn put<S: Isa>(s: S, x: C<S>, at: *mut f32, parts: Parts, factor: *const f32, scaled: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if scaled {
            let (re, im) = (s.splat(*factor), s.splat(*factor.add(1)));
            let minus = s.splat(-*factor.add(1));
            let y = C::<S> { re: s.fma(x.im, minus, s.mul(x.re, re)), im: s.fma(x.im, re, s.mul(x.re, im)) };
            y.store(s, at, parts);
        } else {
            x.store(s, at, parts);
        }
    }
}

/// A radix-4 butterfly.
#[inline(always)]
unsafe fn four<S: Isa>(s: S, at: *mut f32, step: usize, p: Parts, factors: *const f32, scaled: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        let (a0, a1) = (C::load(s, at, p), C::load(s, at.add(step), p));
        let (a2, a3) = (C::load(s, at.add(2 * step), p), C::load(s, at.add(3 * step), p));
        let (b0, b2) = (a0.add(s, a2), a0.sub(s, a2));
        let (b1, b3) = (a1.add(s, a3), a1.sub(s, a3));
        let (x1, x3) = b2.quarter(s, b3);
        b0.add(s, b1).store(s, at, p);
        put(s, x1, at.add(step), p, factors, scaled);
        put(s, b0.sub(s, b1), at.add(2 * step), p, factors.add(2), scaled);
        put(s, x3, at.add(3 * step), p, factors.add(4), scaled);
    }
}

/// A radix-8 butterfly.
#[inline(always)]
unsafe fn eight<S: Isa>(s: S, at: *mut f32, step: usize, p: Parts, factors: *const f32, scaled: bool) {
    let half = s.splat(std::f32::consts::FRAC_1_SQRT_2);
    // SAFETY: the caller's promise.
    unsafe {
        let (a0, a4) = (C::load(s, at, p), C::load(s, at.add(4 * step), p));
        let (a2, a6) = (C::load(s, at.add(2 * step), p), C::load(s, at.add(6 * step), p));
        let (b0, b4) = (a0.add(s, a4), a0.sub(s, a4));
        let (b2, b6) = (a2.add(s, a6), a2.sub(s, a6));
        let (c0, c2) = (b0.add(s, b2), b0.sub(s, b2));
        let (d0, d2) = b4.quarter(s, b6);
        let (a1, a5) = (C::load(s, at.add(step), p), C::load(s, at.add(5 * step), p));
        let (a3, a7) = (C::load(s, at.add(3 * step), p), C::load(s, at.add(7 * step), p));
        let (b1, b5) = (a1.add(s, a5), a1.sub(s, a5));
        let (b3, b7) = (a3.add(s, a7), a3.sub(s, a7));
        let (c1, c3) = (b1.add(s, b3), b1.sub(s, b3));
        c0.add(s, c1).store(s, at, p);
        put(s, c0.sub(s, c1), at.add(4 * step), p, factors.add(6), scaled);
        let (x2, x6) = c2.quarter(s, c3);
        put(s, x2, at.add(2 * step), p, factors.add(2), scaled);
        put(s, x6, at.add(6 * step), p, factors.add(10), scaled);
        // Multiply the odd ones by the first and third eighth root of unity.
        let e5 = C::<S> { re: s.mul(s.add(b5.re, b5.im), half), im: s.mul(s.sub(b5.im, b5.re), half) };
        let e7 = C::<S> {
            re: s.mul(s.sub(b7.im, b7.re), half),
            im: s.mul(s.add(b7.re, b7.im), s.sub(s.zero(), half)),
        };
        let (d1, d3) = (e5.add(s, e7), e5.sub(s, e7));
        put(s, d0.add(s, d1), at.add(step), p, factors, scaled);
        put(s, d0.sub(s, d1), at.add(5 * step), p, factors.add(8), scaled);
        let (x3, x7) = d2.quarter(s, d3);
        put(s, x3, at.add(3 * step), p, factors.add(4), scaled);
        put(s, x7, at.add(7 * step), p, factors.add(12), scaled);
    }
}
