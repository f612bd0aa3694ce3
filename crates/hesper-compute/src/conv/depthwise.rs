//! One channel per group, with vectors along the channels.

use std::marker::PhantomData;

use super::{ConvShape, Job};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch};

/// Places of the output that are computed together.
const RUN: usize = 4;

/// One channel per group: every channel has its own small kernel.
pub(super) fn run<T: Float>(par: &dyn Par, job: &Job<'_>) {
    let (s, simd) = (job.shape, par.simd());
    let (taps, c) = (s.taps(), s.channels);
    let turned = Scratch::<f32>::new(taps * c);
    for tap in 0..taps {
        for i in 0..c {
            // SAFETY: the buffer and the weights have `taps * c` elements.
            unsafe { *turned.ptr().add(tap * c + i) = (*job.w.cast::<T>().add(i * taps + tap)).to_f32() };
        }
    }
    let w = Shared::new(turned.ptr());
    let m = s.batch * job.places.iter().product::<usize>();
    chunks(par, m, grain(par, m, (16384 / (taps * c)).max(1)), |a, b| {
        dispatch(simd, Direct::<T> { job, w, a, b, of: PhantomData });
    });
}

struct Direct<'a, 'b, T> {
    job: &'a Job<'b>,
    w: Shared<f32>,
    a: usize,
    b: usize,
    of: PhantomData<T>,
}

impl<T: Float> Kernel for Direct<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let shape = self.job.shape;
        let (taps, c) = (shape.taps(), shape.channels);
        let (x, out) = (self.job.x.cast::<T>(), self.job.out.cast::<T>());
        // Where the taps of a window that is all inside lie, from its first one.
        let mut steps = Vec::with_capacity(taps);
        let plain = shape.input_dilation == [1; 3] && !shape.flip;
        for tap in 0..taps {
            let [_, kh, kw] = shape.kernel;
            let at = [tap / (kh * kw), tap / kw % kh, tap % kw];
            let row = at[0] * shape.dilation[0] * shape.input[1] + at[1] * shape.dilation[1];
            steps.push((row * shape.input[2] + at[2] * shape.dilation[2]) * c);
        }
        let reach = |d: usize| ((shape.kernel[d] - 1) * shape.dilation[d]) as isize;
        let (reach, apart) = ([reach(0), reach(1), reach(2)], shape.stride[2] * c);
        // What a window at the edge sees: places in the input, and in the weights.
        let mut seen = Vec::with_capacity(taps);
        let mut i = self.a;
        while i < self.b {
            let (batch, at) = shape.origin(&self.job.places, i);
            let mut inside = plain;
            for d in 0..3 {
                inside &= at[d] >= 0 && at[d] + reach[d] < shape.input[d] as isize;
            }
            if inside {
                let [z, y, w] = [at[0] as usize, at[1] as usize, at[2] as usize];
                let row = (batch * shape.input[0] + z) * shape.input[1] + y;
                let first = x.wrapping_add((row * shape.input[2] + w) * c);
                // Neighbours along the row whose windows are inside as well share the weights.
                let width = self.job.places[2];
                let more = (shape.input[2] - 1 - w - reach[2] as usize) / shape.stride[2];
                let run = (self.b - i).min(width - i % width).min(more + 1);
                let mut done = 0;
                // SAFETY: all taps are within the input, and the places are this task's own.
                unsafe {
                    while done + RUN <= run {
                        let (from, to) = (first.add(done * apart), out.add((i + done) * c));
                        channels::<S, T, RUN>(s, from, apart, &steps, self.w.get(), c, to);
                        done += RUN;
                    }
                    while done < run {
                        let (from, to) = (first.add(done * apart), out.add((i + done) * c));
                        channels::<S, T, 1>(s, from, apart, &steps, self.w.get(), c, to);
                        done += 1;
                    }
                }
                i += run;
                continue;
            }
            let place = ConvShape::place(&self.job.places, i);
            seen.clear();
            for tap in 0..taps {
                if let Some(at) = shape.look(&place, tap) {
                    seen.push((at * c, tap * c));
                }
            }
            let mut j = 0;
            while j < c {
                let n = (c - j).min(S::LANES);
                let mut acc = s.zero();
                for &(from, tap) in &seen {
                    // SAFETY: the tap is within the input, the channels within the pixel.
                    unsafe {
                        let v = T::load_n(s, x.add(from + j), n);
                        acc = s.fma(v, s.load_n(self.w.get().add(tap + j), n), acc);
                    }
                }
                // SAFETY: within the output, and this task's own.
                unsafe { T::store_n(s, out.add(i * c + j), acc, n) };
                j += n;
            }
            i += 1;
        }
    }
}

/// `P` neighbouring places of the output, all channels: `steps` are where the taps lie from the first, `apart` how far
/// the windows lie from each other.
///
/// # Safety
/// Every tap has `c` channels in the input and in the weights, and so has the output.
#[inline(always)]
unsafe fn channels<S: Isa, T: Float, const P: usize>(
    s: S,
    first: *const T,
    apart: usize,
    steps: &[usize],
    w: *const f32,
    c: usize,
    out: *mut T,
) {
    let mut j = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while j + 2 * S::LANES <= c {
            let mut acc = [[s.zero(); 2]; P];
            for tap in 0..steps.len() {
                let (v, w) = (first.add(*steps.get_unchecked(tap) + j), w.add(tap * c + j));
                let (even, odd) = (s.load(w), s.load(w.add(S::LANES)));
                for (p, sums) in acc.iter_mut().enumerate() {
                    let v = v.add(p * apart);
                    sums[0] = s.fma(T::load(s, v), even, sums[0]);
                    sums[1] = s.fma(T::load(s, v.add(S::LANES)), odd, sums[1]);
                }
            }
            for (p, sums) in acc.into_iter().enumerate() {
                T::store(s, out.add(p * c + j), sums[0]);
                T::store(s, out.add(p * c + j + S::LANES), sums[1]);
            }
            j += 2 * S::LANES;
        }
        while j < c {
            let n = (c - j).min(S::LANES);
            let mut acc = [s.zero(); P];
            for tap in 0..steps.len() {
                let v = first.add(*steps.get_unchecked(tap) + j);
                let w = s.load_n(w.add(tap * c + j), n);
                for (p, sum) in acc.iter_mut().enumerate() {
                    *sum = s.fma(T::load_n(s, v.add(p * apart), n), w, *sum);
                }
            }
            for (p, sum) in acc.into_iter().enumerate() {
                T::store_n(s, out.add(p * c + j), sum, n);
            }
            j += n;
        }
    }
}
