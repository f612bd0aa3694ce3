//! The host's convolutions: tiles of patches times the weights, and channel by channel.
//!
//! Outputs are computed in tiles of positions. The patches that a tile's positions see are laid out as
//! the rows of a small matrix, which is multiplied with the weights while it is in the cache: the matrix of
//! all patches never exists. Where every channel has its own filter, there is nothing to multiply
//! matrices for, and channels are summed side by side.

use hesper_compute::{GemmOptions, MatMut, MatRef, Mismatch, Serial, gemm};
use hesper_cpu::Cores;
use smallvec::SmallVec;

use super::walk::{Cursor, GRAIN, par_chunks};
use crate::Element;
use crate::shape::Shape;

/// What a convolution is, beyond its operands.
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    /// Batch, positions and channels of the input.
    pub(super) input: Shape,
    /// Output channels, taps, and input channels of one group.
    pub(super) weight: Shape,
    /// Batch, positions and channels of the output.
    pub(super) output: Shape,
    /// For each spatial axis.
    pub(super) axes: SmallVec<[Axis; 3]>,
    pub(super) groups: usize,
}

/// A spatial axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub(super) stride: usize,
    /// Padding before the first element; after the last it follows from the output.
    pub(super) low: isize,
    pub(super) kernel_dilation: usize,
    pub(super) input_dilation: usize,
}

impl Axis {
    /// Which element of the input a tap sees, if any.
    #[inline]
    fn element(&self, position: usize, tap: usize, length: usize) -> Option<usize> {
        let place = (position * self.stride + tap * self.kernel_dilation) as isize - self.low;
        let at = usize::try_from(place).ok()?;
        (at.is_multiple_of(self.input_dilation) && at / self.input_dilation < length)
            .then_some(at / self.input_dilation)
    }
}

/// A type that convolutions are computed in.
pub(super) trait Number: Element + hesper_compute::Element {
    fn widen(self) -> f32;
    fn narrow(sum: f32) -> Self;
}

impl Number for f32 {
    fn widen(self) -> f32 {
        self
    }
    fn narrow(sum: f32) -> Self {
        sum
    }
}

impl Number for half::f16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn narrow(sum: f32) -> Self {
        half::f16::from_f32(sum)
    }
}

impl Number for half::bf16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn narrow(sum: f32) -> Self {
        half::bf16::from_f32(sum)
    }
}

/// Bytes of a tile of patches.
const TILE: usize = 1 << 19;

/// Computes all outputs. Operands lie row by row.
pub(super) fn convolve<T: Number>(
    g: &Geometry,
    input: &[T],
    weight: &[T],
    output: &mut [T],
) -> Result<(), Mismatch> {
    if output.is_empty() {
        return Ok(());
    }
    let (outs, channels) = (g.weight[0], g.weight[g.weight.len() - 1]);
    let taps: usize = g.weight[1..g.weight.len() - 1].iter().product();
    if taps * channels == 0 || input.is_empty() {
        output.fill(T::narrow(0.0));
        return Ok(());
    }
    if channels == 1 && g.groups == outs && outs > 1 {
        by_channel(g, input, weight, output);
        return Ok(());
    }
    let rows = output.len() / outs;
    let plain = |axis: &Axis| axis.stride == 1 && axis.low == 0 && axis.input_dilation == 1;
    let last = g.input.len() - 1;
    if taps == 1 && g.groups == 1 && g.axes.iter().all(plain) && g.input[..last] == g.output[..last] {
        let a = MatRef::row_major(input, rows, channels)?;
        let b = MatRef::row_major(weight, outs, channels)?.transposed();
        return gemm(&Cores, a, b, MatMut::row_major(output, rows, outs)?, &GemmOptions::default());
    }
    let width = taps * channels;
    let tile = (TILE / (width * T::DTYPE.size())).clamp(16, 1024).min(rows.div_ceil(8).max(16));
    let failed = std::sync::Mutex::new(Ok(()));
    par_chunks(output, tile * outs, |first, part| {
        let result = tile_of(g, input, weight, first / outs, part);
        if let (Err(error), Ok(mut slot)) = (result, failed.lock()) {
            *slot = Err(error);
        }
    });
    failed.into_inner().unwrap_or(Ok(()))
}

/// Computes the outputs of some positions.
fn tile_of<T: Number>(
    g: &Geometry,
    input: &[T],
    weight: &[T],
    first: usize,
    output: &mut [T],
) -> Result<(), Mismatch> {
    let (outs, channels) = (g.weight[0], g.weight[g.weight.len() - 1]);
    let width: usize = g.weight[1..].iter().product();
    let rows = output.len() / outs;
    let mut patches = vec![T::narrow(0.0); rows * width];
    let options = GemmOptions::default();
    if g.groups == 1 {
        lay_out(g, input, first, 0, &mut patches);
        let a = MatRef::row_major(&patches, rows, width)?;
        let b = MatRef::row_major(weight, outs, width)?.transposed();
        return gemm(&Serial, a, b, MatMut::row_major(output, rows, outs)?, &options);
    }
    let part = outs / g.groups;
    let mut columns = vec![T::narrow(0.0); rows * part];
    for group in 0..g.groups {
        lay_out(g, input, first, group * channels, &mut patches);
        let a = MatRef::row_major(&patches, rows, width)?;
        let own = &weight[group * part * width..(group + 1) * part * width];
        let b = MatRef::row_major(own, part, width)?.transposed();
        gemm(&Serial, a, b, MatMut::row_major(&mut columns, rows, part)?, &options)?;
        for (to, from) in output.chunks_mut(outs).zip(columns.chunks(part)) {
            to[group * part..(group + 1) * part].copy_from_slice(from);
        }
    }
    Ok(())
}

/// Lays out the patches of positions from `first` on, with the channels from `channel` on.
fn lay_out<T: Number>(g: &Geometry, input: &[T], first: usize, channel: usize, patches: &mut [T]) {
    let rank = g.axes.len();
    let (all, some) = (g.input[rank + 1], g.weight[rank + 1]);
    let zero = T::narrow(0.0);
    let kernel = &g.weight[1..=rank];
    let line = kernel[rank - 1] * some;
    let lines: usize = kernel[..rank - 1].iter().product();
    let near = g.axes[rank - 1];
    let row_of_input = g.input[rank];
    // Taps along the last axis are neighbours in memory.
    let dense = near.kernel_dilation == 1 && near.input_dilation == 1 && all == some;
    let mut position = Cursor::<0>::new(&g.output[..=rank], [], first);
    for patch in patches.chunks_mut(lines * line) {
        let place = position.place();
        let mut tap = Cursor::<0>::new(&kernel[..rank - 1], [], 0);
        for target in patch.chunks_mut(line) {
            // The row of the input that this line of taps sees.
            let row = tap.place().iter().enumerate().try_fold(place[0], |row, (axis, tap)| {
                let length = g.input[axis + 1];
                Some(row * length + g.axes[axis].element(place[axis + 1], *tap, length)?)
            });
            tap.advance();
            let Some(row) = row else {
                target.fill(zero);
                continue;
            };
            let from = &input[row * row_of_input * all..(row + 1) * row_of_input * all];
            let start = (place[rank] * near.stride) as isize - near.low;
            if dense && start >= 0 && start as usize + kernel[rank - 1] <= row_of_input {
                target.copy_from_slice(&from[start as usize * all..][..line]);
                continue;
            }
            for (at, to) in target.chunks_mut(some).enumerate() {
                match near.element(place[rank], at, row_of_input) {
                    Some(element) => to.copy_from_slice(&from[element * all + channel..][..some]),
                    None => to.fill(zero),
                }
            }
        }
        position.advance();
    }
}

/// Every channel with a filter of its own: sums for all channels side by side.
fn by_channel<T: Number>(g: &Geometry, input: &[T], weight: &[T], output: &mut [T]) {
    let (rank, channels) = (g.axes.len(), g.weight[0]);
    let kernel = &g.weight[1..=rank];
    let taps: usize = kernel.iter().product();
    // Filters by tap, then channel.
    let filters: Vec<f32> =
        (0..taps * channels).map(|at| weight[at % channels * taps + at / channels].widen()).collect();
    par_chunks(output, (GRAIN / (taps * channels)).max(1) * channels, |first, part| {
        let mut position = Cursor::<0>::new(&g.output[..=rank], [], first / channels);
        let mut sums = vec![0.0f32; channels];
        for target in part.chunks_mut(channels) {
            sums.fill(0.0);
            let place = position.place();
            let mut tap = Cursor::<0>::new(kernel, [], 0);
            for filter in filters.chunks(channels) {
                let at = tap.place().iter().enumerate().try_fold(place[0], |at, (axis, tap)| {
                    let length = g.input[axis + 1];
                    Some(at * length + g.axes[axis].element(place[axis + 1], *tap, length)?)
                });
                tap.advance();
                let Some(at) = at else { continue };
                let from = &input[at * channels..(at + 1) * channels];
                for ((sum, x), w) in sums.iter_mut().zip(from).zip(filter) {
                    *sum += x.widen() * w;
                }
            }
            target.iter_mut().zip(&sums).for_each(|(to, sum)| *to = T::narrow(*sum));
            position.advance();
        }
    });
}
