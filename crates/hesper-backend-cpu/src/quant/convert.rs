//! Quantizing and dequantizing.

use crate::walk::Strided;
use hesper_compute::{QuantFormat, dequantize, quantize_affine, quantize_fp};
use hesper_core::backend::{Data, Lower, Lowering};
use hesper_core::ops::command::Commands;
use hesper_core::ops::quant::convert::{Dequantize, Quantize};
use hesper_core::{Element, Result};
use hesper_cpu::Cores;

use super::weights::Weights;
use crate::Cpu;
use crate::dispatch::with_float;

impl Lower<Quantize> for Cpu {
    fn lower(op: &Quantize, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.input_dtype(0), quantized::<_>(op, l))
    }
}

impl Lower<Dequantize> for Cpu {
    fn lower(op: &Dequantize, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), dequantized::<_>(op, l))
    }
}

fn quantized<T: Element + hesper_compute::Float>(op: &Quantize, l: &Lowering<'_>) -> Result<Data> {
    let x = Strided::row_major(l, 0)?;
    let cols = x.shape[x.shape.len() - 1];
    let format = op.format;
    let output = op.parts.memory(l)?;
    let mut command = l.stream().command("quantize").read_range(&x.data.buffer, x.bytes.clone());
    for number in 0..op.parts.outputs.len() {
        command = command.write_range(&output, op.parts.range(number));
    }
    if !matches!(format, QuantFormat::Affine { .. }) {
        command.run(move |native| {
            let [x, words, scales] = native.take()?;
            let (words, scales) = (words.as_mut_slice()?, scales.as_mut_slice()?);
            quantize_fp::<T>(&Cores, format, x.as_slice()?, cols, words, scales).map_err(crate::refused)
        })?;
        return Ok(Data::contiguous(output, l.shape()));
    }
    command.run(move |native| {
        let [x, words, scales, biases] = native.take()?;
        let (words, scales) = (words.as_mut_slice()?, scales.as_mut_slice()?);
        quantize_affine::<T>(&Cores, format, x.as_slice()?, cols, words, scales, biases.as_mut_slice()?)
            .map_err(crate::refused)
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

fn dequantized<T: Element + hesper_compute::Float>(op: &Dequantize, l: &Lowering<'_>) -> Result<Data> {
    let (bound, weights) = Weights::of(l, 0, op.0)?;
    let output = l.output()?;
    let mut command = l.stream().command("dequantize");
    bound.bind(&mut command);
    command.write(&output).run(move |native| {
        let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
        let out = out.as_mut_slice::<T>()?;
        let count = weights.batch().iter().product::<usize>().max(1);
        let each = (out.len() / count).max(1);
        for (number, out) in out.chunks_mut(each).enumerate() {
            dequantize::<T>(&Cores, &weights.matrix(inputs, number)?, out).map_err(crate::refused)?;
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}
