//! Convolutions in one to three dimensions, channels last.
//!
//! A convolution is the product of the windows of the input (one row per output position) and the weights.
//! Most are computed without gathering windows, from a transposed input ([`direct`]). A 1x1 kernel is a plain
//! product. All others gather windows while packing ([`windows`]). Depthwise convolutions are vectorized
//! along the channels ([`depthwise`]).

mod depthwise;
mod direct;
mod windows;

use half::{bf16, f16};

use crate::error::{Mismatch, at_least, multiple, product, same};
use crate::gemm::columns::{Columns, LeftRows};
use crate::gemm::precision::Single;
use crate::gemm::{Epilogue, Problem, driver};
use crate::mat::{MatMut, MatRef};
use crate::par::Par;
use crate::simd::{Float, FloatKind};
use windows::Windows;

/// The sizes of a convolution. Unused dimensions have size, stride and dilation one.
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
    /// Groups of channels that are convolved independently.
    pub groups: usize,
    /// Stride of windows.
    pub stride: [usize; 3],
    /// Zeros before the input; a negative value crops the input.
    pub padding_low: [isize; 3],
    /// Zeros after the input; a negative value crops the input.
    pub padding_high: [isize; 3],
    /// Distance between the taps of a window.
    pub dilation: [usize; 3],
    /// Distance between input elements, with zeros in between.
    pub input_dilation: [usize; 3],
    /// Whether the kernel is flipped.
    pub flip: bool,
}

impl ConvShape {
    /// Extents of the output.
    pub fn output(&self) -> Result<[usize; 3], Mismatch> {
        let mut out = [0; 3];
        for (d, out) in out.iter_mut().enumerate() {
            let positive =
                self.stride[d].min(self.dilation[d]).min(self.input_dilation[d]).min(self.kernel[d]);
            at_least("stride, dilation and extent of a kernel", 1, positive)?;
            let dilated =
                self.input[d].saturating_sub(1) * self.input_dilation[d] + usize::from(self.input[d] > 0);
            let padded = (dilated as isize)
                .saturating_add(self.padding_low[d])
                .saturating_add(self.padding_high[d])
                .max(0) as usize;
            let window = (self.kernel[d] - 1) * self.dilation[d] + 1;
            at_least("extent of the padded input", window, padded)?;
            *out = (padded - window) / self.stride[d] + 1;
        }
        Ok(out)
    }

    /// The same convolution with axes of size one moved to the front, so that the last axis is a long one.
    /// The memory layout does not change.
    fn with_long_rows(&self) -> Self {
        let flat = |d: &usize| {
            let d = *d;
            (self.input[d], self.kernel[d], self.padding_low[d], self.padding_high[d]) == (1, 1, 0, 0)
        };
        let (flats, others): (Vec<_>, Vec<_>) = (0..3).partition(flat);
        let mut shape = *self;
        for (to, from) in flats.into_iter().chain(others).enumerate() {
            shape.input[to] = self.input[from];
            shape.kernel[to] = self.kernel[from];
            shape.padding_low[to] = self.padding_low[from];
            shape.padding_high[to] = self.padding_high[from];
            // Strides and dilations of an axis of size one have no effect.
            let along = |of: &[usize; 3]| if flat(&from) { 1 } else { of[from] };
            shape.stride[to] = along(&self.stride);
            shape.dilation[to] = along(&self.dilation);
            shape.input_dilation[to] = along(&self.input_dilation);
        }
        shape
    }

    fn group_channels(&self) -> usize {
        self.channels / self.groups
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// The input position along an axis that a tap of the window at `place` reads; `None` for padding.
    #[inline(always)]
    fn input_position(&self, axis: usize, place: usize, tap: usize) -> Option<usize> {
        let tap = if self.flip { self.kernel[axis] - 1 - tap } else { tap };
        let at = (place * self.stride[axis] + tap * self.dilation[axis]) as isize - self.padding_low[axis];
        let at = usize::try_from(at).ok()?;
        let (at, between) = (at / self.input_dilation[axis], at % self.input_dilation[axis]);
        (between == 0 && at < self.input[axis]).then_some(at)
    }

    /// The index of the input position, channels not counted, that a tap of the window at `place` reads;
    /// `None` for padding.
    #[inline(always)]
    fn input_index(&self, place: &[usize; 4], tap: usize) -> Option<usize> {
        let [_, kh, kw] = self.kernel;
        let at = [tap / (kh * kw), tap / kw % kh, tap % kw];
        let mut index = place[0];
        for d in 0..3 {
            index = index * self.input[d] + self.input_position(d, place[d + 1], at[d])?;
        }
        Some(index)
    }

    /// Whether the taps of a window along the last axis are contiguous in the input, channels included.
    fn runs_along_rows(&self) -> bool {
        self.dilation[2] == 1 && self.input_dilation[2] == 1 && !self.flip && self.groups == 1
    }

    /// Whether every output reads only the input at its own position.
    fn is_product(&self) -> bool {
        let one = [1; 3];
        self.kernel == one
            && self.stride == one
            && self.input_dilation == one
            && self.padding_low == [0; 3]
            && self.padding_high == [0; 3]
    }

    /// Where the window of output `i` begins: its batch, and the position of its first tap, which may be
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

    /// Batch and position of an output.
    #[inline(always)]
    fn place(out: &[usize; 3], i: usize) -> [usize; 4] {
        let [d, h, w] = *out;
        [i / (d * h * w), i / (h * w) % d, i / w % h, i % w]
    }
}

/// Computes a convolution.
pub fn conv<T: Float>(
    par: &dyn Par,
    shape: &ConvShape,
    x: &[T],
    w: &[T],
    out: &mut [T],
) -> Result<(), Mismatch> {
    at_least("groups", 1, shape.groups)?;
    multiple("channels", shape.groups, shape.channels)?;
    multiple("output channels", shape.groups, shape.out_channels)?;
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
    let shape = &shape.with_long_rows();
    let places = shape.output()?;
    let job = Job { shape, places, x: x.as_ptr().cast(), w: w.as_ptr().cast(), out: out.as_mut_ptr().cast() };
    run_any(T::KIND, par, &job);
    Ok(())
}

/// A convolution with the element type erased.
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
        depthwise::run::<T>(par, job);
        return;
    }
    if s.is_product() {
        let (m, cg) = (s.batch * s.input.iter().product::<usize>(), s.group_channels());
        for g in 0..s.groups {
            // SAFETY: the sizes were checked; group `g` has these channels of every position.
            let a = unsafe { MatRef::from_raw(job.x.cast::<T>().add(g * cg), m, cg, s.channels as isize, 1) };
            group(par, job, g, LeftRows(a));
        }
    } else if direct::fits(job) {
        direct::run::<T>(par, job);
    } else {
        for g in 0..s.groups {
            group(par, job, g, Windows::<T>::new(job, g * s.group_channels()));
        }
    }
}

/// One group of channels, as the product of its windows and its weights.
fn group<T: Float, A: Columns<Single<T>>>(par: &dyn Par, job: &Job<'_>, g: usize, a: A) {
    let s = job.shape;
    let (m, n) = (s.batch * job.places.iter().product::<usize>(), s.out_channels / s.groups);
    let k = s.taps() * s.group_channels();
    // SAFETY: the sizes were checked; group `g` has these weights and these columns of the output.
    let (b, c) = unsafe {
        (
            MatRef::from_raw(job.w.cast::<T>().add(g * n * k), k, n, 1, k as isize),
            MatMut::from_raw(job.out.cast::<T>().add(g * n), m, n, s.out_channels as isize, 1),
        )
    };
    let epilogue = Epilogue { alpha: 1.0, beta: 0.0 };
    let p = Problem::<Single<T>, _, _> { m, n, k, a, b, c, epilogue };
    if k == 0 { driver::empty(par, &p) } else { driver::run(par, &p) }
}
