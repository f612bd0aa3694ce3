//! Long rows one at a time: complex rows directly, real rows as complex rows of half the length.

use super::lines::C;
use super::long::Long;
use super::{Fft, FftKind};
use crate::par::{Par, Serial, Shared, chunks};
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, dispatch};

/// Elements per task. Vectors and scalar remainders round differently, so task boundaries must not depend on
/// the number of threads.
const STEP: usize = 1 << 13;

/// Transforms rows of `row` floats: in parallel if there are at least as many as threads, else each on all
/// threads.
pub(super) fn run(par: &dyn Par, fft: &Fft, long: &Long, x: &[f32], row: usize, out: &mut [f32], scale: f32) {
    let to_row = fft.output_row();
    let rows = out.len() / to_row;
    if rows >= par.threads() && par.threads() > 1 {
        let to = Shared::new(out.as_mut_ptr());
        let alone = crate::par::AtLevel(Serial, par.simd());
        par.run(rows, &|r| {
            // SAFETY: rows of the result are this task's own.
            let out = unsafe { to.slice(r * to_row, to_row) };
            transform_row(&alone, fft, long, &x[r * row..][..row], out, scale);
        });
        return;
    }
    for (r, out) in out.chunks_exact_mut(to_row).enumerate() {
        transform_row(par, fft, long, &x[r * row..][..row], out, scale);
    }
}

fn transform_row(par: &dyn Par, fft: &Fft, long: &Long, x: &[f32], out: &mut [f32], scale: f32) {
    let wanted = fft.input_row();
    let filled;
    let copy = Scratch::<f32>::new(if x.len() < wanted { wanted } else { 0 });
    let x = if x.len() < wanted {
        // SAFETY: the buffer has room for a row, which is written as a whole.
        filled = unsafe {
            std::ptr::copy_nonoverlapping(x.as_ptr(), copy.ptr(), x.len());
            std::ptr::write_bytes(copy.ptr().add(x.len()), 0, wanted - x.len());
            std::slice::from_raw_parts(copy.ptr(), wanted)
        };
        filled
    } else {
        x
    };
    let half = fft.length / 2;
    if fft.kind == FftKind::Complex {
        return long.run(par, fft.inverse, x, out, scale);
    }
    let side = Scratch::<f32>::new(fft.length);
    // SAFETY: the buffer has room for as many floats, which are written before they are read.
    let side = unsafe { std::slice::from_raw_parts_mut(side.ptr(), fft.length) };
    let simd = par.simd();
    if fft.kind == FftKind::HalfToReal {
        let to = Shared::new(side.as_mut_ptr());
        chunks(par, half, STEP, |a, b| {
            // SAFETY: these elements are this task's own.
            let to = unsafe { to.slice(2 * a, 2 * (b - a)) };
            dispatch(simd, MergeSpectrum { x, roots: &fft.roots, half, first: a, to });
        });
        return long.run(par, true, side, out, scale);
    }
    long.run(par, false, x, side, scale * 0.5);
    let (to, side) = (Shared::new(out.as_mut_ptr()), &*side);
    // Frequencies `k` and `half - k` come from the same two inputs, and so do their mirror images.
    let full = fft.kind == FftKind::RealToFull;
    chunks(par, half + 1, STEP, |a, b| {
        // SAFETY: these elements are this task's own.
        let to = unsafe { to.slice(2 * a, 2 * (b - a)) };
        dispatch(
            simd,
            SplitSpectrum { z: side, roots: &fft.roots, half, first: a, to, conjugate: full && fft.inverse },
        );
    });
    if full {
        let done = to;
        chunks(par, half - 1, STEP, |a, b| {
            for k in a + 1..b + 1 {
                // SAFETY: the first half was written; the mirrored elements are this task's own.
                unsafe {
                    let (from, to) = (done.get().add(2 * k), done.get().add(2 * (fft.length - k)));
                    *to = *from;
                    *to.add(1) = -*from.add(1);
                }
            }
        });
    }
}

/// Loads consecutive complex numbers, one per lane.
#[inline(always)]
unsafe fn load_complex<S: Isa>(s: S, p: *const f32) -> C<S> {
    // SAFETY: the caller's promise.
    let (re, im) = unsafe { s.unzip(s.load(p), s.load(p.add(S::LANES))) };
    C { re, im }
}

/// Loads consecutive complex numbers in reverse, one per lane.
#[inline(always)]
unsafe fn load_complex_reversed<S: Isa>(s: S, p: *const f32) -> C<S> {
    // SAFETY: the caller's promise.
    let c = unsafe { load_complex(s, p.sub(2 * (S::LANES - 1))) };
    C { re: s.reverse(c.re), im: s.reverse(c.im) }
}

/// The spectrum of real input from that of its packed complex form, times two.
struct SplitSpectrum<'a> {
    z: &'a [f32],
    roots: &'a [f32],
    half: usize,
    first: usize,
    to: &'a mut [f32],
    /// Whether imaginary parts are negated.
    conjugate: bool,
}

impl Kernel for SplitSpectrum<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let (half, first) = (self.half, self.first);
        let last = first + self.to.len() / 2;
        let sign = if self.conjugate { -1.0 } else { 1.0 };
        let signs = s.splat(sign);
        let (z, roots, to) = (self.z.as_ptr(), self.roots.as_ptr(), self.to.as_mut_ptr());
        let mut k = first;
        while k < last {
            // SAFETY: there are elements `0..half`, roots `0..=half`, and room for `first..last`. Vectors are
            // used only where all lanes are in range.
            unsafe {
                let to = to.add(2 * (k - first));
                if k > 0 && k + S::LANES <= last.min(half) {
                    let (x, m) =
                        (load_complex(s, z.add(2 * k)), load_complex_reversed(s, z.add(2 * (half - k))));
                    let odd = C::<S> { re: s.add(x.im, m.im), im: s.sub(m.re, x.re) };
                    let odd = odd.times(s, load_complex(s, roots.add(2 * k)));
                    let re = s.add(s.add(x.re, m.re), odd.re);
                    let im = s.mul(s.add(s.sub(x.im, m.im), odd.im), signs);
                    let (a, b) = s.zip(re, im);
                    s.store(to, a);
                    s.store(to.add(S::LANES), b);
                    k += S::LANES;
                    continue;
                }
                // The first and the last frequency depend on element 0 only.
                let (x, m) = (z.add(2 * (k % half)), z.add(2 * ((half - k) % half)));
                let (xr, xi, mr, mi) = (*x, *x.add(1), *m, *m.add(1));
                let (wr, wi) = (*roots.add(2 * k), *roots.add(2 * k + 1));
                let (or, oi) = (xi + mi, mr - xr);
                *to = (xr + mr) + (or * wr - oi * wi);
                *to.add(1) = sign * ((xi - mi) + (or * wi + oi * wr));
            }
            k += 1;
        }
    }
}

/// The packed complex form of real output, from its spectrum, times two.
struct MergeSpectrum<'a> {
    x: &'a [f32],
    roots: &'a [f32],
    half: usize,
    first: usize,
    to: &'a mut [f32],
}

impl Kernel for MergeSpectrum<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let (half, first) = (self.half, self.first);
        let last = first + self.to.len() / 2;
        let (x, roots, to) = (self.x.as_ptr(), self.roots.as_ptr(), self.to.as_mut_ptr());
        let mut k = first;
        while k < last {
            // SAFETY: there are frequencies and roots `0..=half`, and room for `first..last`. Vectors are
            // used only where all lanes are in range.
            unsafe {
                let to = to.add(2 * (k - first));
                if k > 0 && k + S::LANES <= last {
                    let (x, m) =
                        (load_complex(s, x.add(2 * k)), load_complex_reversed(s, x.add(2 * (half - k))));
                    let w = load_complex(s, roots.add(2 * k));
                    let w = C::<S> { re: w.re, im: s.sub(s.zero(), w.im) };
                    let odd = C::<S> { re: s.sub(x.re, m.re), im: s.add(x.im, m.im) }.times(s, w);
                    let re = s.sub(s.add(x.re, m.re), odd.im);
                    let im = s.add(s.sub(x.im, m.im), odd.re);
                    let (a, b) = s.zip(re, im);
                    s.store(to, a);
                    s.store(to.add(S::LANES), b);
                    k += S::LANES;
                    continue;
                }
                let (x, m) = (x.add(2 * k), x.add(2 * (half - k)));
                let (xr, mr) = (*x, *m);
                // Ignore the imaginary parts of the first and the last frequency.
                let (xi, mi) = if k == 0 { (0.0, 0.0) } else { (*x.add(1), *m.add(1)) };
                let (wr, wi) = (*roots.add(2 * k), -*roots.add(2 * k + 1));
                let (or, oi) = (xr - mr, xi + mi);
                *to = (xr + mr) - (or * wi + oi * wr);
                *to.add(1) = (xi - mi) + (or * wr - oi * wi);
            }
            k += 1;
        }
    }
}
