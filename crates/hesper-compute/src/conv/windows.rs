//! im2col while packing for a product: windows of the input with any stride, dilation and padding.

use std::marker::PhantomData;

use super::{ConvShape, Job};
use crate::gemm::columns::{Columns, Panel};
use crate::gemm::pack;
use crate::gemm::precision::{Precision, Single};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Local};

/// The windows of the input as rows of the left operand.
pub(super) struct Windows<'a, 'b, T> {
    job: &'a Job<'b>,
    channel: usize,
    of: PhantomData<T>,
}

// SAFETY: it only reads the input.
unsafe impl<T> Sync for Windows<'_, '_, T> {}

impl<T: Float> Columns<Single<T>> for Windows<'_, '_, T> {
    fn is_contiguous_along_k(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(&self, s: S, panel: Panel<f32>) {
        s.call(PackWindows { windows: self, panel });
    }
}

/// [`Columns::pack`] as a part of a kernel: the blocks of a product share its code.
struct PackWindows<'a, 'b, 'c, T> {
    windows: &'a Windows<'b, 'c, T>,
    panel: Panel<f32>,
}

impl<S: Isa, T: Float> Local<S> for PackWindows<'_, '_, '_, T> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { windows, panel } = self;
        // SAFETY: it is built in `Columns::pack` only, whose caller promised the memory.
        unsafe {
            if windows.job.shape.input_dilation == [1; 3] && panel.width <= S::LANES {
                windows.pack_runs(s, panel);
            } else {
                windows.pack_lines(s, panel);
            }
        }
    }
}

impl<'a, 'b, T: Float> Windows<'a, 'b, T> {
    /// The windows of the group that starts at `channel`.
    pub fn new(job: &'a Job<'b>, channel: usize) -> Self {
        Self { job, channel, of: PhantomData }
    }

    /// Packs run by run: elements of a window that are contiguous in the input are read in place.
    ///
    /// # Safety
    /// As for [`Columns::pack`], with a panel that is at most a vector wide.
    #[inline(always)]
    unsafe fn pack_runs<S: Isa>(&self, s: S, panel: Panel<f32>) {
        let Panel { k0, len, j0, valid, width, dst } = panel;
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
                let inside = (z as usize) < shape.input[0] && (y as usize) < shape.input[1];
                let row = if inside {
                    ((batch * shape.input[0] + z as usize) * shape.input[1] + y as usize) * shape.input[2]
                } else {
                    0
                };
                let wide = if whole { kw as isize } else { 1 };
                lines[i] = if inside && w >= 0 && w + wide <= shape.input[2] as isize {
                    x.wrapping_add((row + w as usize) * shape.channels + c)
                } else {
                    // SAFETY: the buffer holds a run for every line; the copied range lies in the input.
                    unsafe {
                        let own = edge.ptr().add(i * run);
                        std::slice::from_raw_parts_mut(own, n).fill(T::from_f32(0.0));
                        if whole && inside {
                            // The part of the row of taps that lies within the input.
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

    /// Packs from lines that are gathered tap by tap.
    ///
    /// # Safety
    /// As for [`Columns::pack`].
    #[inline(always)]
    unsafe fn pack_lines<S: Isa>(&self, s: S, panel: Panel<f32>) {
        let Panel { k0, len, j0, valid, width, dst } = panel;
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
                    match shape.input_index(&place, tap) {
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
