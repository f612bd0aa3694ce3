//! Many rows: one per lane, transposed into lines and back.
//!
//! A row of real numbers is transformed as a row of half as many complex numbers `x[2 j] + i x[2 j + 1]`,
//! whose spectrum is then separated into the even and the odd half.

use super::lines::{C, Lines, Parts, transform};
use super::{Fft, FftKind};
use crate::par::{Par, Shared, chunks};
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, dispatch};

/// Transforms `rows` rows with a stride of `given` elements.
pub(super) fn run(
    par: &dyn Par,
    fft: &Fft,
    lines: &Lines,
    x: &[f32],
    (rows, given): (usize, usize),
    out: &mut [f32],
    scale: f32,
) {
    let simd = par.simd();
    let to = Shared::new(out.as_mut_ptr());
    let (from_row, to_row) = (given * fft.input_floats(), fft.output_row());
    // A task is a multiple of sixteen rows, the most lanes of any SIMD level, so it is the same at every
    // level.
    let together = ((1 << 14) / fft.length).next_multiple_of(16);
    chunks(par, rows, together.max(16), |a, b| {
        let x = &x[a * from_row..b * from_row];
        // SAFETY: rows of the result are this task's own.
        let out = unsafe { to.slice(a * to_row, (b - a) * to_row) };
        dispatch(simd, Block { fft, lines, x, given, rows: b - a, out, scale });
    });
}

/// The rows of a task.
struct Block<'a> {
    fft: &'a Fft,
    lines: &'a Lines,
    x: &'a [f32],
    given: usize,
    rows: usize,
    out: &'a mut [f32],
    scale: f32,
}

impl Kernel for Block<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let (fft, lanes) = (self.fft, S::LANES);
        let (wanted, from_row) = (fft.input_row(), self.given * fft.input_floats());
        let to_row = fft.output_row();
        // Rows that are too short are read from a zero-padded copy.
        let short = from_row < wanted;
        let copy = Scratch::<f32>::new(if short { lanes * wanted } else { 0 });
        let half = fft.length / 2;
        let elements = match fft.kind {
            FftKind::Complex => 0,
            FftKind::RealToFull => fft.length,
            FftKind::RealToHalf | FftKind::HalfToReal => half + 1,
        };
        let main = Scratch::<f32>::new(self.lines.length * 2 * lanes);
        let side = Scratch::<f32>::new(elements * 2 * lanes);
        let (main, side) = (main.ptr(), side.ptr());
        let plain = Parts::new::<S>(false);
        let mut first = 0;
        while first < self.rows {
            let count = lanes.min(self.rows - first);
            let mut sources = [self.x.as_ptr(); 16];
            // SAFETY: every source is a row of the input, or of the copy, which has room for one per lane;
            // lanes without a row read the first row of the vector. The buffers hold a vector of real and one
            // of imaginary parts for every element, and each is written before it is read.
            unsafe {
                for i in 0..lanes {
                    let row = first + if i < count { i } else { 0 };
                    sources[i] = self.x.as_ptr().add(row * from_row);
                    if short {
                        let to = copy.ptr().add(i * wanted);
                        std::ptr::copy_nonoverlapping(sources[i], to, from_row);
                        std::ptr::write_bytes(to.add(from_row), 0, wanted - from_row);
                        sources[i] = to;
                    }
                }
                let to = self.out.as_mut_ptr().add(first * to_row);
                match fft.kind {
                    FftKind::Complex => {
                        gather(s, &sources, fft.length, main);
                        transform(s, self.lines, main, Parts::new::<S>(fft.inverse));
                        scatter(s, main, &self.lines.order, fft.length, (to, to_row, count), self.scale);
                    }
                    FftKind::RealToHalf | FftKind::RealToFull => {
                        gather(s, &sources, half, main);
                        transform(s, self.lines, main, plain);
                        let w = fft.roots.as_ptr();
                        split_spectrum(s, main, &self.lines.order, half, w, side);
                        if fft.kind == FftKind::RealToFull {
                            if fft.inverse {
                                conjugate(s, side, half);
                            }
                            mirror(s, side, half);
                        }
                        scatter(s, side, &[], to_row / 2, (to, to_row, count), self.scale);
                    }
                    FftKind::HalfToReal => {
                        gather(s, &sources, half + 1, side);
                        merge_spectrum(s, side, half, fft.roots.as_ptr(), main);
                        transform(s, self.lines, main, Parts::new::<S>(true));
                        scatter(s, main, &self.lines.order, half, (to, to_row, count), self.scale);
                    }
                }
            }
            first += count;
        }
    }
}

/// Transposes the first `n` complex numbers of one row per lane into lines.
#[inline(always)]
unsafe fn gather<S: Isa>(s: S, rows: &[*const f32; 16], n: usize, lines: *mut f32) {
    let lanes = S::LANES;
    let each = lanes / 2;
    // SAFETY: the caller's promise.
    unsafe {
        for e in 0..n / each {
            let mut v = [s.zero(); 16];
            for i in 0..lanes {
                v[i] = s.load(rows[i].add(e * lanes));
            }
            s.transpose(&v, lines.add(e * each * 2 * lanes), lanes);
        }
        for e in n / each * each..n {
            for i in 0..lanes {
                *lines.add(2 * e * lanes + i) = *rows[i].add(2 * e);
                *lines.add((2 * e + 1) * lanes + i) = *rows[i].add(2 * e + 1);
            }
        }
    }
}

/// Transposes lines into rows, of which `count` are stored. Element `k` is read from `order[k]`, or from `k`.
#[inline(always)]
unsafe fn scatter<S: Isa>(
    s: S,
    lines: *const f32,
    order: &[u32],
    n: usize,
    (to, to_row, count): (*mut f32, usize, usize),
    scale: f32,
) {
    let lanes = S::LANES;
    let each = lanes / 2;
    let factor = s.splat(scale);
    let mut tile = [0.0f32; 256];
    // SAFETY: the caller's promise.
    unsafe {
        for e in 0..n / each {
            let mut v = [s.zero(); 16];
            for i in 0..each {
                let k = e * each + i;
                let at = if order.is_empty() { k } else { *order.get_unchecked(k) as usize };
                let from = lines.add(at * 2 * lanes);
                v[2 * i] = s.mul(s.load(from), factor);
                v[2 * i + 1] = s.mul(s.load(from.add(lanes)), factor);
            }
            if count == lanes {
                s.transpose(&v, to.add(e * lanes), to_row);
            } else {
                s.transpose(&v, tile.as_mut_ptr(), lanes);
                for i in 0..count {
                    std::ptr::copy_nonoverlapping(
                        tile.as_ptr().add(i * lanes),
                        to.add(i * to_row + e * lanes),
                        lanes,
                    );
                }
            }
        }
        for k in n / each * each..n {
            let at = if order.is_empty() { k } else { order[k] as usize };
            for i in 0..count {
                *to.add(i * to_row + 2 * k) = *lines.add(2 * at * lanes + i) * scale;
                *to.add(i * to_row + 2 * k + 1) = *lines.add((2 * at + 1) * lanes + i) * scale;
            }
        }
    }
}

/// The spectrum of `2 h` real numbers, `h + 1` frequencies, from that of their packed form of `h` complex
/// numbers.
#[inline(always)]
unsafe fn split_spectrum<S: Isa>(
    s: S,
    lines: *const f32,
    order: &[u32],
    h: usize,
    roots: *const f32,
    to: *mut f32,
) {
    let (p, lanes) = (Parts::new::<S>(false), S::LANES);
    let half = s.splat(0.5);
    // SAFETY: the caller's promise; there is a root for each frequency.
    unsafe {
        for k in 0..=h {
            let z = C::load(s, lines.add(order[k % h] as usize * 2 * lanes), p);
            let m = C::load(s, lines.add(order[(h - k) % h] as usize * 2 * lanes), p);
            let even = C::<S> { re: s.add(z.re, m.re), im: s.sub(z.im, m.im) };
            let odd = C::<S> { re: s.add(z.im, m.im), im: s.sub(m.re, z.re) };
            let w = C::<S> { re: s.splat(*roots.add(2 * k)), im: s.splat(*roots.add(2 * k + 1)) };
            let x = even.add(s, odd.times(s, w));
            C::<S> { re: s.mul(x.re, half), im: s.mul(x.im, half) }.store(s, to.add(k * 2 * lanes), p);
        }
    }
}

/// The inverse of [`split_spectrum`], times two. Imaginary parts of the first and the last frequency are
/// ignored.
#[inline(always)]
unsafe fn merge_spectrum<S: Isa>(s: S, lines: *const f32, h: usize, roots: *const f32, to: *mut f32) {
    let (p, lanes) = (Parts::new::<S>(false), S::LANES);
    // SAFETY: the caller's promise; there is a root for each frequency.
    unsafe {
        for k in 0..h {
            let mut x = C::load(s, lines.add(k * 2 * lanes), p);
            let mut m = C::load(s, lines.add((h - k) * 2 * lanes), p);
            if k == 0 {
                x.im = s.zero();
                m.im = s.zero();
            }
            let even = C::<S> { re: s.add(x.re, m.re), im: s.sub(x.im, m.im) };
            let odd = C::<S> { re: s.sub(x.re, m.re), im: s.add(x.im, m.im) };
            let w = C::<S> { re: s.splat(*roots.add(2 * k)), im: s.splat(-*roots.add(2 * k + 1)) };
            let odd = odd.times(s, w);
            // Plus `i` times the odd half.
            let z = C::<S> { re: s.sub(even.re, odd.im), im: s.add(even.im, odd.re) };
            z.store(s, to.add(k * 2 * lanes), p);
        }
    }
}

/// Conjugates the frequencies `0..=h`.
#[inline(always)]
unsafe fn conjugate<S: Isa>(s: S, lines: *mut f32, h: usize) {
    let (p, lanes) = (Parts::new::<S>(false), S::LANES);
    // SAFETY: the caller's promise.
    unsafe {
        for k in 0..=h {
            let x = C::load(s, lines.add(k * 2 * lanes), p);
            C::<S> { re: x.re, im: s.sub(s.zero(), x.im) }.store(s, lines.add(k * 2 * lanes), p);
        }
    }
}

/// The upper half of the spectrum of real numbers, by symmetry.
#[inline(always)]
unsafe fn mirror<S: Isa>(s: S, lines: *mut f32, h: usize) {
    let (p, lanes) = (Parts::new::<S>(false), S::LANES);
    // SAFETY: the caller's promise.
    unsafe {
        for k in 1..h {
            let x = C::load(s, lines.add(k * 2 * lanes), p);
            C::<S> { re: x.re, im: s.sub(s.zero(), x.im) }.store(s, lines.add((2 * h - k) * 2 * lanes), p);
        }
    }
}
