//! Quantizing, and dequantizing the floating-point formats.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::quant::QuantFormat;
use hesper_core::ops::quant::convert::Quantize;
use hesper_core::{PackedFormat, Result};

use crate::inputs::{is_float, read, read_all};
use crate::walk::fits;
use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Quantize>()
}

impl<G: Gpu> Lower<Quantize> for Shared<G> {
    /// Codes, scales and biases of the input.
    fn lower(op: &Quantize, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        let (format, group) = (op.format, op.format.group());
        if !is_float(dtype) || !(group * format.bits()).is_multiple_of(32) || !fits::<G>(l) {
            return Ok(None);
        }
        l.bring()?;
        let x = l.row_major(0)?;
        let output = op.parts.memory(l)?;
        let n: usize = l.input_shape(0).iter().product();
        let mut command = read(l.stream().command("quantize"), l, 0, &x);
        for number in 0..op.parts.outputs.len() {
            command = command.write_range(&output, op.parts.range(number));
        }
        if n == 0 {
            command.run(|_| Ok(()))?;
        } else {
            G::quantize(l.stream(), format, dtype, n / group)?.encode(command)?;
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// Lowers dequantizing a floating-point format. Inputs: codes and scales.
pub fn dequantize_float<G: Gpu>(l: &mut Lowering<'_>, format: QuantFormat) -> Result<Option<Data>> {
    if !is_float(l.dtype()) || !fits::<G>(l) {
        return Ok(None);
    }
    l.bring()?;
    let (parts, output) = ([l.row_major(0)?, l.row_major(1)?], l.output()?);
    let words: usize = l.input_shape(0).iter().product();
    let command = read_all(l.stream().command("dequantize"), l, 0, &parts).write(&output);
    if words == 0 {
        command.run(|_| Ok(()))?;
    } else {
        G::dequantize(l.stream(), format, l.dtype(), words)?.encode(command)?;
    }
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// The number of a floating-point format in the texts.
pub fn float_format(format: QuantFormat) -> Option<u32> {
    match format {
        QuantFormat::Affine { .. } => None,
        QuantFormat::Mxfp4 => Some(0),
        QuantFormat::Mxfp8 => Some(1),
        QuantFormat::Nvfp4 => Some(2),
    }
}

/// The number of a layout of GGUF blocks in the texts; `None` if no kernel reads it.
pub fn block_format(format: PackedFormat) -> Option<u32> {
    Some(match format {
        PackedFormat::Q4_0 => 0,
        PackedFormat::Q4_1 => 1,
        PackedFormat::Q5_0 => 2,
        PackedFormat::Q5_1 => 3,
        PackedFormat::Q8_0 => 4,
        PackedFormat::Q2_K => 5,
        PackedFormat::Q3_K => 6,
        PackedFormat::Q4_K => 7,
        PackedFormat::Q5_K => 8,
        PackedFormat::Q6_K => 9,
        _ => return None,
    })
}
