//! Depthwise convolutions: one channel per group, vectorized along the channels.
//!
//! A task computes rows of the output. Where a window lies within the input along the row, neighbouring
//! outputs share loaded weights. A 3x3 kernel computes two rows at once, which also share loaded inputs.

use std::marker::PhantomData;

use super::{ConvShape, Job};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch};

/// Adjacent outputs computed together.
const RUN: usize = 4;

/// Convolves with one channel per group.
pub(super) fn run<T: Float>(par: &dyn Par, job: &Job<'_>) {
    let (s, simd) = (job.shape, par.simd());
    let (taps, c) = (s.taps(), s.channels);
    let weights = Scratch::<f32>::new(taps * c);
    for tap in 0..taps {
        // A kernel flipped along all axes is read from its end.
        let from = if s.flip { taps - 1 - tap } else { tap };
        for i in 0..c {
            // SAFETY: the buffer and the weights have `taps * c` elements.
            unsafe { *weights.ptr().add(tap * c + i) = (*job.w.cast::<T>().add(i * taps + from)).to_f32() };
        }
    }
    let w = Shared::new(weights.ptr());
    let [depth, height, width] = job.places;
    let lines = s.batch * depth * height;
    let least = (16384 / (taps * c * width)).max(1);
    chunks(par, lines, grain(par, lines, least).next_multiple_of(2), |a, b| {
        dispatch(simd, OutputRows::<T> { job, w, a, b, of: PhantomData });
    });
}

struct OutputRows<'a, 'b, T> {
    job: &'a Job<'b>,
    w: Shared<f32>,
    a: usize,
    b: usize,
    of: PhantomData<T>,
}

impl<T: Float> Kernel for OutputRows<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let shape = ConvShape { flip: false, ..*self.job.shape };
        let c = shape.channels;
        let [depth, height, width] = self.job.places;
        let out = self.job.out.cast::<T>();
        let threes = shape.kernel == [1, 3, 3]
            && shape.stride[1..] == [1; 2]
            && shape.dilation[1..] == [1; 2]
            && shape.input_dilation == [1; 3];
        let mut taps = Vec::with_capacity(shape.taps());
        let mut seen = Vec::with_capacity(shape.taps());
        let mut line = self.a;
        while line < self.b {
            let place = [line / (depth * height), line / height % depth, line % height];
            let to = out.wrapping_add(line * width * c);
            let rows = if threes && place[2] + 1 < height && line + 1 < self.b { 2 } else { 1 };
            // Outputs of the row whose windows lie within the input along the last axis.
            let reach = (shape.kernel[2] - 1) * shape.dilation[2];
            let first = (shape.padding_low[2].max(0) as usize).div_ceil(shape.stride[2]).min(width);
            let most = shape.input[2] as isize - 1 - reach as isize + shape.padding_low[2];
            let last = if shape.input_dilation != [1; 3] || most < 0 {
                first
            } else {
                (most as usize / shape.stride[2] + 1).clamp(first, width)
            };
            let at = (first * shape.stride[2]) as isize - shape.padding_low[2];
            if rows == 2 {
                let x = self.rows_of(&shape, place);
                let mut i = first;
                // SAFETY: each row is null or in the input, and so are the windows of these positions; rows
                // of the output are this task's own.
                unsafe {
                    while i < last {
                        let n = if i + RUN <= last { RUN } else { 1 };
                        let mut from = x;
                        for x in &mut from {
                            if !x.is_null() {
                                *x = x.wrapping_offset((at + (i - first) as isize) * c as isize);
                            }
                        }
                        let (w, to) = (self.w.get(), to.add(i * c));
                        if n == RUN {
                            pair::<S, T, RUN>(s, from, w, c, to, width * c);
                        } else {
                            pair::<S, T, 1>(s, from, w, c, to, width * c);
                        }
                        i += n;
                    }
                }
            }
            for row in 0..rows {
                let place = [place[0], place[1], place[2] + row];
                let to = to.wrapping_add(row * width * c);
                self.taps_of(&shape, place, &mut taps);
                let x = self.job.x.cast::<T>();
                if rows == 1 {
                    let (x, apart) = (x.wrapping_offset(at * c as isize), shape.stride[2] * c);
                    let mut i = first;
                    // SAFETY: all taps are within the input, and the outputs are this task's own.
                    unsafe {
                        while i < last {
                            let n = if i + RUN <= last { RUN } else { 1 };
                            let (from, to) = (x.wrapping_add((i - first) * apart), to.add(i * c));
                            if n == RUN {
                                channels::<S, T, RUN>(s, from, apart, &taps, self.w.get(), c, to);
                            } else {
                                channels::<S, T, 1>(s, from, apart, &taps, self.w.get(), c, to);
                            }
                            i += n;
                        }
                    }
                }
                // Windows that cross an end of the row.
                for i in (0..first).chain(last..width) {
                    seen.clear();
                    for &(from, tap) in &taps {
                        let number = tap / c % shape.kernel[2];
                        if let Some(at) = shape.input_position(2, i, number) {
                            // Shift the row back by the tap's offset from the first tap.
                            let along = at as isize - (number * shape.dilation[2]) as isize;
                            seen.push((from + along * c as isize, tap));
                        }
                    }
                    // SAFETY: the taps in `seen` are within the input, and the output is this task's own.
                    unsafe { channels::<S, T, 1>(s, x, 0, &seen, self.w.get(), c, to.add(i * c)) };
                }
            }
            line += rows;
        }
    }
}

impl<T: Float> OutputRows<'_, '_, T> {
    /// For the kernel rows that lie within the input: the offset of their taps for a window at the left end,
    /// from the start of the input, and the offset of their weights.
    fn taps_of(&self, shape: &ConvShape, [batch, z, y]: [usize; 3], taps: &mut Vec<(isize, usize)>) {
        let [kd, kh, kw] = shape.kernel;
        taps.clear();
        for plane in 0..kd {
            let Some(z) = shape.input_position(0, z, plane) else { continue };
            for row in 0..kh {
                let Some(y) = shape.input_position(1, y, row) else { continue };
                let line = ((batch * shape.input[0] + z) * shape.input[1] + y) * shape.input[2];
                for tap in 0..kw {
                    let from = (line + tap * shape.dilation[2]) * shape.channels;
                    taps.push((from as isize, ((plane * kh + row) * kw + tap) * shape.channels));
                }
            }
        }
    }

    /// The starts of the four input rows that two output rows read; null for rows outside of the input.
    fn rows_of(&self, shape: &ConvShape, [batch, z, y]: [usize; 3]) -> [*const T; 4] {
        let mut rows = [std::ptr::null(); 4];
        let Some(z) = shape.input_position(0, z, 0) else { return rows };
        for (row, to) in rows.iter_mut().enumerate() {
            if let Some(y) = shape.input_position(1, y, row) {
                let line = ((batch * shape.input[0] + z) * shape.input[1] + y) * shape.input[2];
                *to = self.job.x.cast::<T>().wrapping_add(line * shape.channels);
            }
        }
        rows
    }
}

/// Computes `P` adjacent outputs, all channels. `taps` has the offset of each tap for the first output and of
/// its weights; `apart` is the distance between windows.
///
/// # Safety
/// Every tap has `c` channels in the input and in the weights, and so has the output.
#[inline(always)]
unsafe fn channels<S: Isa, T: Float, const P: usize>(
    s: S,
    first: *const T,
    apart: usize,
    taps: &[(isize, usize)],
    w: *const f32,
    c: usize,
    out: *mut T,
) {
    let mut j = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while j + 2 * S::LANES <= c {
            let mut acc = [[s.zero(); 2]; P];
            for (from, tap) in taps {
                let (v, w) = (first.wrapping_offset(*from).add(j), w.add(tap + j));
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
            for (from, tap) in taps {
                let v = first.wrapping_offset(*from).add(j);
                let w = s.load_n(w.add(tap + j), n);
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

/// Computes `P` adjacent outputs of two output rows, `below` elements apart, for a 3x3 kernel. `rows` are the
/// starts of the windows in four input rows.
///
/// # Safety
/// The rows that are not null have `P + 2` positions of `c` channels, the weights nine and the output `P` in
/// each row.
#[inline(always)]
unsafe fn pair<S: Isa, T: Float, const P: usize>(
    s: S,
    rows: [*const T; 4],
    w: *const f32,
    c: usize,
    out: *mut T,
    below: usize,
) {
    let mut j = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while j < c {
            let n = (c - j).min(S::LANES);
            let mut acc = [[s.zero(); P]; 2];
            for (r, row) in rows.iter().enumerate() {
                if row.is_null() {
                    continue;
                }
                let mut x = [s.zero(); 6];
                for (i, x) in x.iter_mut().enumerate().take(P + 2) {
                    let from = row.add(i * c + j);
                    *x = if n == S::LANES { T::load(s, from) } else { T::load_n(s, from, n) };
                }
                for (o, sums) in acc.iter_mut().enumerate() {
                    if r < o || r > o + 2 {
                        continue;
                    }
                    for tap in 0..3 {
                        let from = w.add(((r - o) * 3 + tap) * c + j);
                        let w = if n == S::LANES { s.load(from) } else { s.load_n(from, n) };
                        for (p, sum) in sums.iter_mut().enumerate() {
                            *sum = s.fma(x[p + tap], w, *sum);
                        }
                    }
                }
            }
            for (o, sums) in acc.into_iter().enumerate() {
                for (p, sum) in sums.into_iter().enumerate() {
                    let to = out.add(o * below + p * c + j);
                    if n == S::LANES { T::store(s, to, sum) } else { T::store_n(s, to, sum, n) }
                }
            }
            j += n;
        }
    }
}
