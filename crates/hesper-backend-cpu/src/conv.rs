//! Convolutions.

use crate::walk::Strided;
use hesper_compute::{ConvShape, Float, GemmOptions, MatMut, MatRef, Mismatch, conv, gemm};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::conv::{Convolution, Geometry};
use hesper_core::{Element, Result};
use hesper_cpu::Cores;

use crate::Cpu;
use crate::dispatch::with_float;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Convolution>()
}

impl Lower<Convolution> for Cpu {
    fn lower(op: &Convolution, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), run::<_>(&op.0, l))
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

fn run<T: Float + Element + hesper_compute::Element>(geometry: &Geometry, l: &Lowering<'_>) -> Result<Data> {
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
            compute(&shape, input, weight, output).map_err(|error| error.to_string().into())
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
