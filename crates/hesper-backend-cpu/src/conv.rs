//! Convolutions.

use crate::walk::Strided;
use hesper_compute::{ConvShape, Float, GemmOptions, MatMut, MatRef, Mismatch, conv, gemm};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::conv::{Convolution, Geometry};
use hesper_core::{Dtype, Element, Result};
use hesper_cpu::Cores;

use crate::Cpu;
use crate::dispatch::with_float;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Convolution>()
}

impl Lower<Convolution> for Cpu {
    fn lower(op: &Convolution, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if l.dtype() == Dtype::Float64 {
            return run::<f64>(&op.0, l, direct).map(Some);
        }
        with_float!(l.dtype(), run::<_>(&op.0, l, compute))
    }
}

/// The geometry in the kernels' type.
fn shape(geometry: &Geometry) -> ConvShape {
    let rank = geometry.axes.len();
    let mut shape = ConvShape {
        batch: geometry.input[0],
        input: [1; 3],
        channels: geometry.input[rank + 1],
        kernel: [1; 3],
        out_channels: geometry.weight[0],
        groups: geometry.groups,
        stride: [1; 3],
        padding_low: [0; 3],
        padding_high: [0; 3],
        dilation: [1; 3],
        input_dilation: [1; 3],
        flip: false,
    };
    for (at, axis) in geometry.axes.iter().enumerate() {
        (shape.input[at], shape.kernel[at]) = (geometry.input[at + 1], geometry.weight[at + 1]);
        (shape.stride[at], shape.dilation[at]) = (axis.stride, axis.kernel_dilation);
        shape.input_dilation[at] = axis.input_dilation;
        // The padded input ends with the last window.
        let spread = (geometry.input[at + 1] as isize - 1) * axis.input_dilation as isize + 1;
        let window = (geometry.weight[at + 1] as isize - 1) * axis.kernel_dilation as isize + 1;
        let seen = (geometry.output[at + 1] as isize - 1) * axis.stride as isize + window;
        (shape.padding_low[at], shape.padding_high[at]) = (axis.low, seen - spread - axis.low);
    }
    shape
}

type Compute<T> = fn(&ConvShape, &[T], &[T], &mut [T]) -> std::result::Result<(), Mismatch>;

fn run<T: Element>(geometry: &Geometry, l: &Lowering<'_>, compute: Compute<T>) -> Result<Data> {
    let (input, weight) = (Strided::row_major(l, 0)?, Strided::row_major(l, 1)?);
    let output = l.output()?;
    let shape = shape(geometry);
    l.stream()
        .command("conv")
        .read_range(&input.data.buffer, input.bytes.clone())
        .read_range(&weight.data.buffer, weight.bytes.clone())
        .write(&output)
        .run(move |native| {
            let [input, weight, output] = native.take()?;
            let output = output.as_mut_slice::<T>()?;
            let (input, weight) = (input.as_slice::<T>()?, weight.as_slice::<T>()?);
            compute(&shape, input, weight, output).map_err(crate::refused)
        })?;
    Ok(Data::contiguous(output, l.shape()))
}

fn compute<T: Float + hesper_compute::Element>(
    shape: &ConvShape,
    input: &[T],
    weight: &[T],
    output: &mut [T],
) -> std::result::Result<(), Mismatch> {
    let (channels, outs) = (shape.channels, shape.out_channels);
    let one_tap = shape.kernel == [1; 3] && shape.groups == 1;
    let plain = shape.stride == [1; 3] && shape.input_dilation == [1; 3] && shape.padding_low == [0; 3];
    // A pointwise convolution is a product of two matrices in place.
    if one_tap && plain && shape.padding_high == [0; 3] && channels > 0 && !output.is_empty() {
        let rows = output.len() / outs;
        let a = MatRef::row_major(input, rows, channels)?;
        let b = MatRef::row_major(weight, outs, channels)?.transposed();
        return gemm(&Cores, a, b, MatMut::row_major(output, rows, outs)?, &GemmOptions::default());
    }
    conv(&Cores, shape, input, weight, output)
}

/// The convolution in double precision, by its definition: no matrix product of the kernels has that type.
fn direct(
    shape: &ConvShape,
    input: &[f64],
    weight: &[f64],
    output: &mut [f64],
) -> std::result::Result<(), Mismatch> {
    let (outs, channels) = (shape.out_channels / shape.groups, shape.channels / shape.groups);
    let mut at = [0; 3];
    let lengths: [usize; 3] = std::array::from_fn(|axis| {
        let spread = (shape.input[axis] as isize - 1) * shape.input_dilation[axis] as isize + 1;
        let window = (shape.kernel[axis] as isize - 1) * shape.dilation[axis] as isize + 1;
        let seen = spread + shape.padding_low[axis] + shape.padding_high[axis] - window;
        seen as usize / shape.stride[axis] + 1
    });
    let taps: usize = shape.kernel.iter().product();
    for (place, out) in output.iter_mut().enumerate() {
        let (mut rest, channel) = (place / shape.out_channels, place % shape.out_channels);
        for axis in (0..3).rev() {
            (rest, at[axis]) = (rest / lengths[axis], rest % lengths[axis]);
        }
        let (batch, group) = (rest, channel / outs);
        let mut sum = 0.0;
        'taps: for tap in 0..taps {
            let (mut left, mut position, mut step) = (tap, 0, 1);
            for axis in (0..3).rev() {
                let offset = left % shape.kernel[axis];
                left /= shape.kernel[axis];
                let moved = (at[axis] * shape.stride[axis] + offset * shape.dilation[axis]) as isize;
                let padded = moved - shape.padding_low[axis];
                let dilation = shape.input_dilation[axis] as isize;
                if padded < 0 || padded % dilation != 0 || padded / dilation >= shape.input[axis] as isize {
                    continue 'taps;
                }
                position += (padded / dilation) as usize * step;
                step *= shape.input[axis];
            }
            let pixel = &input[(batch * step + position) * shape.channels + group * channels..][..channels];
            let weights = &weight[(channel * taps + tap) * channels..][..channels];
            sum += pixel.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>();
        }
        *out = sum;
    }
    Ok(())
}
