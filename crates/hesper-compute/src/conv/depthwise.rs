//! One channel per group, with vectors along the channels.

use std::marker::PhantomData;

use super::{ConvShape, Job};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch};

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
        for i in self.a..self.b {
            let (batch, at) = shape.origin(&self.job.places, i);
            let mut inside = plain;
            for d in 0..3 {
                let reach = ((shape.kernel[d] - 1) * shape.dilation[d]) as isize;
                inside &= at[d] >= 0 && at[d] + reach < shape.input[d] as isize;
            }
            if inside {
                let [z, y, w] = [at[0] as usize, at[1] as usize, at[2] as usize];
                let row = (batch * shape.input[0] + z) * shape.input[1] + y;
                let first = x.wrapping_add((row * shape.input[2] + w) * c);
                // SAFETY: all taps are within the input, and the place is this task's own.
                unsafe { channels(s, first, &steps, self.w.get(), c, out.add(i * c)) };
                continue;
            }
            let place = ConvShape::place(&self.job.places, i);
            let mut j = 0;
            while j < c {
                let n = (c - j).min(S::LANES);
                let mut acc = s.zero();
                for tap in 0..taps {
                    if let Some(at) = shape.look(&place, tap) {
                        // SAFETY: the tap is within the input, the channels within the pixel.
                        unsafe {
                            let v = T::load_n(s, x.add(at * c + j), n);
                            acc = s.fma(v, s.load_n(self.w.get().add(tap * c + j), n), acc);
                        }
                    }
                }
                // SAFETY: within the output, and this task's own.
                unsafe { T::store_n(s, out.add(i * c + j), acc, n) };
                j += n;
            }
        }
    }
}

/// One place of the output, all channels: `steps` are where its taps lie from the first.
///
/// # Safety
/// Every tap has `c` channels in the input and in the weights, and so has the output.
#[inline(always)]
unsafe fn channels<S: Isa, T: Float>(
    s: S,
    first: *const T,
    steps: &[usize],
    w: *const f32,
    c: usize,
    out: *mut T,
) {
    let mut j = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while j + 2 * S::LANES <= c {
            let (mut even, mut odd) = (s.zero(), s.zero());
            for tap in 0..steps.len() {
                let (v, w) = (first.add(steps[tap] + j), w.add(tap * c + j));
                even = s.fma(T::load(s, v), s.load(w), even);
                odd = s.fma(T::load(s, v.add(S::LANES)), s.load(w.add(S::LANES)), odd);
            }
            T::store(s, out.add(j), even);
            T::store(s, out.add(j + S::LANES), odd);
            j += 2 * S::LANES;
        }
        while j < c {
            let n = (c - j).min(S::LANES);
            let mut sum = s.zero();
            for tap in 0..steps.len() {
                let v = T::load_n(s, first.add(steps[tap] + j), n);
                sum = s.fma(v, s.load_n(w.add(tap * c + j), n), sum);
            }
            T::store_n(s, out.add(j), sum, n);
            j += n;
        }
    }
}
