//! Quantizing and dequantizing on GPUs.

use crate::launch::{Constants, blocks, kernel, type_name};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering};
use hesper_core::ops::command::Commands;
use hesper_core::ops::multi::Parts;
use hesper_core::ops::quant::QuantFormat;
use hesper_core::ops::quant::convert::{Dequantize, Quantize};

use super::matmul::Affine;
use crate::Cuda;
use crate::inputs::{is_float, read};

const TEXT: &str = include_str!("convert.cuh");

impl Lower<Quantize> for Cuda {
    fn lower(op: &Quantize, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        quantize(l, op.format, &op.parts)
    }
}

impl Lower<Dequantize> for Cuda {
    fn lower(op: &Dequantize, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match op.0 {
            QuantFormat::Affine { bits, group } => Affine { bits, group }.dequantize(l, 0),
            format => dequantize_fp(l, format),
        }
    }
}

/// The kernels' `KIND` of a floating-point format.
fn kind(format: QuantFormat) -> Option<u32> {
    match format {
        QuantFormat::Affine { .. } => None,
        QuantFormat::Mxfp4 => Some(0),
        QuantFormat::Mxfp8 => Some(1),
        QuantFormat::Nvfp4 => Some(2),
    }
}

/// Codes, scales and biases of the input.
fn quantize(l: &mut Lowering<'_>, format: QuantFormat, parts: &Parts) -> Result<Option<Data>> {
    let dtype = l.input_dtype(0);
    let (bits, group) = (format.bits(), format.group());
    if !is_float(dtype) || !(group * bits).is_multiple_of(32) {
        return Ok(None);
    }
    l.bring()?;
    let x = l.row_major(0)?;
    let output = parts.memory(l)?;
    let n: usize = l.input_shape(0).iter().product();
    let mut command = read(l.stream().command("quantize"), l, 0, &x);
    for number in 0..parts.outputs.len() {
        command = command.write_range(&output, parts.range(number));
    }
    if n == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    let of = type_name(dtype);
    let entry = match kind(format) {
        None => format!("quantize_affine<{of}, {bits}>"),
        Some(kind) => format!("quantize_fp<{of}, {kind}>"),
    };
    let pipeline = kernel(l.stream(), TEXT, &entry, "option --fmad=false")?;
    let groups = n / group;
    let constants = Constants::default().long(groups as i64).int(group as i32);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(groups) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// Dequantizes a floating-point format. Inputs: codes and scales.
fn dequantize_fp(l: &mut Lowering<'_>, format: QuantFormat) -> Result<Option<Data>> {
    let Some(kind) = kind(format).filter(|_| is_float(l.dtype())) else { return Ok(None) };
    l.bring()?;
    let (codes, scales, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
    let n: usize = l.input_shape(0).iter().product();
    let command = read(l.stream().command("dequantize"), l, 0, &codes);
    let command = read(command, l, 1, &scales).write(&output);
    if n == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    let pipeline = kernel(l.stream(), TEXT, &format!("dequantize_fp<{}, {kind}>", type_name(l.dtype())), "")?;
    let constants = Constants::default().long(n as i64).int(format.group() as i32);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}
