//! Quantizing on GPUs, and the numbers of the floating-point formats.

use hesper_compute::QuantFormat;

use super::{Constants, blocks, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;
use crate::ops::multi::Parts;
use crate::ops::native::reach;

const TEXT: &str = include_str!("encode.cuh");

/// The text's number of a floating-point format.
fn kind(format: QuantFormat) -> Option<u32> {
    match format {
        QuantFormat::Affine { .. } => None,
        QuantFormat::Mxfp4 => Some(0),
        QuantFormat::Mxfp8 => Some(1),
        QuantFormat::Nvfp4 => Some(2),
    }
}

fn floats(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
}

/// Codes, scales and biases of the input, one after the other in one memory.
pub(crate) fn encode(l: &mut Lowering<'_>, format: QuantFormat, parts: &Parts) -> Result<Option<Data>> {
    let dtype = l.input_dtype(0);
    let (bits, group) = (format.bits(), format.group());
    if !floats(dtype) || !(group * bits).is_multiple_of(32) {
        return Ok(None);
    }
    l.bring()?;
    let x = l.row_major(0)?;
    let output = parts.memory(l)?;
    let n: usize = l.input_shape(0).iter().product();
    let (bytes, _) = reach(&x, l.input_shape(0), dtype.size());
    let mut command = l.stream().command("quantize").read_range(&x.buffer, bytes);
    for number in 0..parts.outputs.len() {
        command = command.write_range(&output, parts.range(number));
    }
    if n == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    let of = type_name(dtype);
    let entry = match kind(format) {
        None => format!("encoded_affine<{of}, {bits}>"),
        Some(kind) => format!("encoded_float<{of}, {kind}>"),
    };
    let pipeline = kernel(l.stream(), TEXT, &entry, "option --fmad=false")?;
    let groups = n / group;
    let constants = Constants::default().long(groups as i64).int(group as i32);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(groups) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// The numbers of codes of a floating-point format; codes and scales are inputs from `at` on.
pub(crate) fn decode(l: &mut Lowering<'_>, format: QuantFormat, at: usize) -> Result<Option<Data>> {
    let Some(kind) = kind(format).filter(|_| floats(l.dtype())) else { return Ok(None) };
    l.bring()?;
    let (codes, scales, output) = (l.row_major(at)?, l.row_major(at + 1)?, l.output()?);
    let (code_bytes, _) = reach(&codes, l.input_shape(at), 4);
    let (scale_bytes, _) = reach(&scales, l.input_shape(at + 1), 1);
    let n: usize = l.input_shape(at).iter().product();
    let command = l.stream().command("dequantize").read_range(&codes.buffer, code_bytes);
    let command = command.read_range(&scales.buffer, scale_bytes).write(&output);
    if n == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    let pipeline = kernel(l.stream(), TEXT, &format!("decoded_float<{}, {kind}>", type_name(l.dtype())), "")?;
    let constants = Constants::default().long(n as i64).int(format.group() as i32);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}
