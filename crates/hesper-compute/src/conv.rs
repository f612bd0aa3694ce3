//! Convolutions in one to three dimensions, channels last.
//!
//! A convolution is the product of the windows of the input (a row for every output place) and the weights.
//! The windows are never written out: they are gathered while they are packed. One channel per group
//! ("depthwise") is computed directly, with vectors along the channels.

use std::marker::PhantomData;

use half::{bf16, f16};

use crate::error::{Mismatch, product, same};
use crate::gemm::columns::Columns;
use crate::gemm::kind::{Kind, Single};
use crate::gemm::pack;
use crate::gemm::{Epilogue, Problem, driver};
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, FloatKind, Isa, Kernel, dispatch};

/// The sizes of a convolution. Dimensions that are not there have size, stride and dilation one.
///
/// The input is `[batch, input.., channels]`, the weights `[out_channels, kernel.., channels / groups]`, the
/// output `[batch, output.., out_channels]`.
#[derive(Clone, Copy, Debug)]
pub struct ConvShape {
    /// Independent inputs.
    pub batch: usize,
    /// Extents of the input.
    pub input: [usize; 3],
    /// Channels of the input.
    pub channels: usize,
    /// Extents of the kernel.
    pub kernel: [usize; 3],
    /// Channels of the output.
    pub out_channels: usize,
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Distance of windows.
    pub stride: [usize; 3],
    /// Zeros before the input; a negative number cuts places of it off.
    pub padding_low: [isize; 3],
    /// Zeros after the input; a negative number cuts places of it off.
    pub padding_high: [isize; 3],
    /// Distance of the places of a window.
    pub dilation: [usize; 3],
    /// Distance of the elements of the input, zeros between.
    pub input_dilation: [usize; 3],
    /// Whether the kernel is turned around.
    pub flip: bool,
}

impl ConvShape {
    /// Extents of the output.
    pub fn output(&self) -> Result<[usize; 3], Mismatch> {
        let mut out = [0; 3];
        for (d, out) in out.iter_mut().enumerate() {
            let positive =
                self.stride[d].min(self.dilation[d]).min(self.input_dilation[d]).min(self.kernel[d]);
            crate::error::at_least("stride, dilation and extent of a kernel", 1, positive)?;
            let dilated =
                self.input[d].saturating_sub(1) * self.input_dilation[d] + usize::from(self.input[d] > 0);
            let padded = (dilated as isize)
                .saturating_add(self.padding_low[d])
                .saturating_add(self.padding_high[d])
                .max(0) as usize;
            let window = (self.kernel[d] - 1) * self.dilation[d] + 1;
            crate::error::at_least("extent of the padded input", window, padded)?;
            *out = (padded - window) / self.stride[d] + 1;
        }
        Ok(out)
    }

    fn group_channels(&self) -> usize {
        self.channels / self.groups
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// The element of the input, channels apart, that a tap of the window at `place` looks at.
    #[inline(always)]
    fn look(&self, place: &[usize; 4], tap: usize) -> Option<usize> {
        let [_, kh, kw] = self.kernel;
        let at = [tap / (kh * kw), tap / kw % kh, tap % kw];
        let mut index = place[0];
        for d in 0..3 {
            let k = if self.flip { self.kernel[d] - 1 - at[d] } else { at[d] };
            let i = (place[d + 1] * self.stride[d] + k * self.dilation[d]) as isize - self.padding_low[d];
            let i = usize::try_from(i).ok()?;
            let (i, between) = (i / self.input_dilation[d], i % self.input_dilation[d]);
            if between != 0 || i >= self.input[d] {
                return None;
            }
            index = index * self.input[d] + i;
        }
        Some(index)
    }

    /// Whether the places of a window along the last axis lie side by side in the input, channels and all.
    fn runs_along_rows(&self) -> bool {
        self.dilation[2] == 1 && self.input_dilation[2] == 1 && !self.flip && self.groups == 1
    }

    /// Where the window of each output begins: its batch, and the place of its first tap, which may be
    /// outside of the input.
    #[inline(always)]
    fn origin(&self, out: &[usize; 3], i: usize) -> (usize, [isize; 3]) {
        let [n, place @ ..] = Self::place(out, i);
        let mut at = [0; 3];
        for d in 0..3 {
            at[d] = (place[d] * self.stride[d]) as isize - self.padding_low[d];
        }
        (n, at)
    }

    /// Batch and place of an output.
    #[inline(always)]
    fn place(out: &[usize; 3], i: usize) -> [usize; 4] {
        let [d, h, w] = *out;
        [i / (d * h * w), i / (h * w) % d, i / w % h, i % w]
    }
}

/// Convolves.
pub fn conv<T: Float>(
    par: &dyn Par,
    shape: &ConvShape,
    x: &[T],
    w: &[T],
    out: &mut [T],
) -> Result<(), Mismatch> {
    let groups = shape.groups.max(1);
    same("groups", groups, shape.groups)?;
    same("channels in whole groups", shape.channels / groups * groups, shape.channels)?;
    same("output channels in whole groups", shape.out_channels / groups * groups, shape.out_channels)?;
    let places = shape.output()?;
    let count =
        |n: usize, e: &[usize; 3], c: usize| product("elements of an array", &[n, e[0], e[1], e[2], c]);
    same("elements of the input", count(shape.batch, &shape.input, shape.channels)?, x.len())?;
    same(
        "elements of the weights",
        count(shape.out_channels, &shape.kernel, shape.group_channels())?,
        w.len(),
    )?;
    same("elements of the output", count(shape.batch, &places, shape.out_channels)?, out.len())?;
    if out.is_empty() {
        return Ok(());
    }
    let job = Job { shape, places, x: x.as_ptr().cast(), w: w.as_ptr().cast(), out: out.as_mut_ptr().cast() };
    run_any(T::KIND, par, &job);
    Ok(())
}

/// A convolution with the element type left out.
struct Job<'a> {
    shape: &'a ConvShape,
    places: [usize; 3],
    x: *const (),
    w: *const (),
    out: *mut (),
}

// SAFETY: tasks read the inputs and write outputs of their own.
unsafe impl Sync for Job<'_> {}

fn run_any(kind: FloatKind, par: &dyn Par, job: &Job<'_>) {
    match kind {
        FloatKind::F32 => run::<f32>(par, job),
        FloatKind::Bf16 => run::<bf16>(par, job),
        FloatKind::F16 => run::<f16>(par, job),
    }
}

fn run<T: Float>(par: &dyn Par, job: &Job<'_>) {
    let s = job.shape;
    if s.groups == s.channels && s.groups == s.out_channels && s.groups > 1 {
        depthwise::<T>(par, job);
        return;
    }
    let (cg, ng) = (s.group_channels(), s.out_channels / s.groups);
    let m = s.batch * job.places.iter().product::<usize>();
    let k = s.taps() * cg;
    for g in 0..s.groups {
        let a = Windows::<T> { job, channel: g * cg, of: PhantomData };
        // SAFETY: the sizes were checked; group `g` has these weights and these columns of the output.
        let (b, c) = unsafe {
            (
                MatRef::from_raw(job.w.cast::<T>().add(g * ng * k), k, ng, 1, k as isize),
                MatMut::from_raw(job.out.cast::<T>().add(g * ng), m, ng, s.out_channels as isize, 1),
            )
        };
        let epilogue = Epilogue { alpha: 1.0, beta: 0.0, bias: None, hook: None };
        let p = Problem::<Single<T>, _, _> { m, n: ng, k, a, b, c, epilogue };
        if k == 0 { driver::empty(par, &p) } else { driver::run(par, &p) }
    }
}

/// The windows of the input as lines of a product.
struct Windows<'a, 'b, T> {
    job: &'a Job<'b>,
    channel: usize,
    of: PhantomData<T>,
}

// SAFETY: it only reads the input.
unsafe impl<T> Sync for Windows<'_, '_, T> {}

impl<T: Float> Columns<Single<T>> for Windows<'_, '_, T> {
    fn lies_along_k(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(
        &self,
        s: S,
        k0: usize,
        len: usize,
        j0: usize,
        valid: usize,
        width: usize,
        dst: *mut f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.job.shape.input_dilation == [1; 3] && width <= S::LANES {
                self.pack_runs(s, k0, len, j0, valid, width, dst);
            } else {
                self.pack_lines(s, k0, len, j0, valid, width, dst);
            }
        }
    }
}

impl<T: Float> Windows<'_, '_, T> {
    /// Packs run by run: elements of a window that lie side by side in the input are read where they are.
    ///
    /// # Safety
    /// As for [`Columns::pack`], with a panel that is at most a vector wide.
    #[inline(always)]
    unsafe fn pack_runs<S: Isa>(
        &self,
        s: S,
        k0: usize,
        len: usize,
        j0: usize,
        valid: usize,
        width: usize,
        dst: *mut f32,
    ) {
        let shape = self.job.shape;
        let cg = shape.group_channels();
        let [_, kh, kw] = shape.kernel;
        let x = self.job.x.cast::<T>().wrapping_add(self.channel);
        let mut origins = [(0, [0isize; 3]); 16];
        for i in 0..valid {
            origins[i] = shape.origin(&self.job.places, j0 + i);
        }
        // A run is a row of the kernel, or a tap of it.
        let whole = shape.runs_along_rows();
        let run = if whole { kw * cg } else { cg };
        let edge = Scratch::<T>::new(valid * run);
        let mut done = 0;
        while done < len {
            let (number, c) = ((k0 + done) / run, (k0 + done) % run);
            let n = (run - c).min(len - done);
            let tap = if whole { number * kw } else { number };
            let mut at = [tap / (kh * kw), tap / kw % kh, tap % kw];
            if shape.flip {
                for d in 0..3 {
                    at[d] = shape.kernel[d] - 1 - at[d];
                }
            }
            let mut lines = [x; 16];
            for i in 0..valid {
                let (batch, [z, y, w]) = origins[i];
                let z = z + (at[0] * shape.dilation[0]) as isize;
                let y = y + (at[1] * shape.dilation[1]) as isize;
                let w = w + (at[2] * shape.dilation[2]) as isize;
                let there = (z as usize) < shape.input[0] && (y as usize) < shape.input[1];
                let row = if there {
                    ((batch * shape.input[0] + z as usize) * shape.input[1] + y as usize) * shape.input[2]
                } else {
                    0
                };
                let wide = if whole { kw as isize } else { 1 };
                lines[i] = if there && w >= 0 && w + wide <= shape.input[2] as isize {
                    x.wrapping_add((row + w as usize) * shape.channels + c)
                } else {
                    // SAFETY: the buffer holds a run for every line; what is copied lies in the input.
                    unsafe {
                        let own = edge.ptr().add(i * run);
                        std::slice::from_raw_parts_mut(own, n).fill(T::from_f32(0.0));
                        if whole && there {
                            // The part of the row of taps that is inside.
                            let first = (-w).clamp(0, wide) as usize * cg;
                            let last = (shape.input[2] as isize - w).clamp(0, wide) as usize * cg;
                            let (from, to) = (first.max(c), last.min(c + n));
                            if from < to {
                                let start = (row as isize + w) * shape.channels as isize + from as isize;
                                let source = x.wrapping_offset(start);
                                std::ptr::copy_nonoverlapping(source, own.add(from - c), to - from);
                            }
                        }
                        own.cast_const()
                    }
                };
            }
            // SAFETY: every line has `n` elements, and the panel room for them.
            unsafe { pack::scattered(s, &lines, valid, width, n, dst.add(done * width)) };
            done += n;
        }
    }

    /// Packs through lines that are gathered tap by tap.
    ///
    /// # Safety
    /// As for [`Columns::pack`].
    #[inline(always)]
    unsafe fn pack_lines<S: Isa>(
        &self,
        s: S,
        k0: usize,
        len: usize,
        j0: usize,
        valid: usize,
        width: usize,
        dst: *mut f32,
    ) {
        let shape = self.job.shape;
        let cg = shape.group_channels();
        let lines = Scratch::<T>::new(valid * len);
        let x = self.job.x.cast::<T>().wrapping_add(self.channel);
        for i in 0..valid {
            let place = ConvShape::place(&self.job.places, j0 + i);
            let mut done = 0;
            while done < len {
                let (tap, c) = ((k0 + done) / cg, (k0 + done) % cg);
                let n = (cg - c).min(len - done);
                // SAFETY: the buffer holds the lines; a tap within the input has its channels.
                unsafe {
                    let to = lines.ptr().add(i * len + done);
                    match shape.look(&place, tap) {
                        Some(at) => std::ptr::copy_nonoverlapping(x.add(at * shape.channels + c), to, n),
                        None => std::slice::from_raw_parts_mut(to, n).fill(T::from_f32(0.0)),
                    }
                }
                done += n;
            }
        }
        // SAFETY: the caller's promise, and lines of `len` elements.
        unsafe { Single::<T>::pack(s, lines.ptr(), len as isize, 1, valid, width, len, dst) };
    }
}

/// One channel per group: every channel has its own small kernel.
fn depthwise<T: Float>(par: &dyn Par, job: &Job<'_>) {
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
