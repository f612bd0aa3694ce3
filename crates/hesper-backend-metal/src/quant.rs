//! Quantized matrices: affine codes are read in place; of floating-point formats the whole matrix is
//! dequantized.

use hesper_backend_gpu::{
    Launch, dequantize_float, fill, float_format, is_float, quantized_matmul, read_all,
};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::quant::QuantFormat;
use hesper_core::ops::quant::convert::Dequantize;
use hesper_core::ops::quant::matmul::QuantizedMatmul;
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};
use crate::matmul::{MAX_VECTOR_ROWS, TILE, TILE_THREADS};

const TEXT: &str = text!("gemm.metal", "quant.metal");

const CONVERT: &str = text!("convert.metal");

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Dequantize>().with::<QuantizedMatmul>()
}

/// Bits and group of an affine format whose codes, scales and biases are the inputs from `at` on, if kernels
/// take them.
fn affine(l: &Lowering<'_>, format: QuantFormat, at: usize) -> Option<(usize, usize)> {
    let QuantFormat::Affine { bits, group } = format else { return None };
    let scales = l.input_dtype(at + 1);
    let codes: usize = l.input_shape(at).iter().product();
    let known = is_float(l.dtype()) && is_float(scales) && l.input_dtype(at + 2) == scales;
    // The index of a bit has 32 bits.
    (known && fits(l) && codes * 32 < 1 << 31).then_some((bits, group))
}

impl Lower<Dequantize> for MetalBackend {
    fn lower(op: &Dequantize, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if float_format(op.0).is_some() {
            return dequantize_float::<MetalBackend>(l, op.0);
        }
        let Some((bits, group)) = affine(l, op.0, 0) else { return Ok(None) };
        l.bring()?;
        let parts = [l.row_major(0)?, l.row_major(1)?, l.row_major(2)?];
        let output = l.output()?;
        let command = read_all(l.stream().command("dequantize"), l, 0, &parts).write(&output);
        let n: usize = l.shape().iter().product();
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let kernel = Kernel::new(l.stream(), TEXT, "dequantize").of(l.dtype()).of(l.input_dtype(1));
        kernel.elements(Constants::default().sizes(&[group, bits]), n)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<QuantizedMatmul> for MetalBackend {
    fn lower(op: &QuantizedMatmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if float_format(op.format).is_some() {
            return quantized_matmul(op, l);
        }
        let Some((bits, group)) = affine(l, op.format, 1) else { return Ok(None) };
        l.bring()?;
        let rank = l.shape().len();
        let (mut m, n, k) = (l.shape()[rank - 2], l.shape()[rank - 1], l.input_shape(0)[rank - 1]);
        let mut batch: usize = l.shape()[..rank - 2].iter().product();
        let rows = &l.input_shape(1)[..l.input_shape(1).len() - 2];
        if rows.iter().product::<usize>() == 1 {
            (m, batch) = (m * batch, 1);
        } else if *rows != l.shape()[..rank - 2] {
            return Ok(None);
        }
        let parts = [l.row_major(0)?, l.row_major(1)?, l.row_major(2)?, l.row_major(3)?];
        let output = l.output()?;
        let result = Data::contiguous(output.clone(), l.shape());
        if m * n * batch * k == 0 {
            fill::<MetalBackend>(l.stream(), &output, 0..output.len(), [0; 8], l.dtype().size())?;
            return Ok(Some(result));
        }
        let command = read_all(l.stream().command("quantized_matmul"), l, 0, &parts).write(&output);
        let none = [(1, 0)];
        let constants = Constants::default().axes(&none).axes(&none).axes(&none);
        // Rows of the left operand are contiguous; the strides of the others are not read.
        let constants = constants.sizes(&[m, n, k, k, 1, 0, 0, 0, 0, 0, 0, 0, n]).float(1.0).float(0.0);
        let constants = constants.sizes(&[group, bits, n * k * bits / 8, n * k / group]);
        let kernel = |name| Kernel::new(l.stream(), TEXT, name).of(l.dtype()).of(l.input_dtype(2));
        let launch = match op.transpose && m <= MAX_VECTOR_ROWS && k.is_multiple_of(8) {
            true => kernel("qmv").of(bits).groups(constants, [n.div_ceil(32), m, batch], 256)?,
            false => {
                let groups = [n.div_ceil(TILE), m.div_ceil(TILE), batch];
                kernel("qmm").of(op.transpose).groups(constants, groups, TILE_THREADS)?
            }
        };
        launch.encode(command)?;
        Ok(Some(result))
    }
}

pub(crate) fn quantize(stream: &Stream, format: QuantFormat, dtype: Dtype, groups: usize) -> Result<Launch> {
    let kernel = match float_format(format) {
        None => Kernel::new(stream, CONVERT, "quantize_affine").of(dtype).of(format.bits()),
        Some(kind) => Kernel::new(stream, CONVERT, "quantize_float").of(dtype).of(kind),
    };
    kernel.elements(Constants::default().sizes(&[format.group()]), groups)
}

pub(crate) fn dequantize(stream: &Stream, format: QuantFormat, dtype: Dtype, words: usize) -> Result<Launch> {
    let kernel = Kernel::new(stream, CONVERT, "dequantize_float").of(dtype);
    let kernel = kernel.of(float_format(format).unwrap_or(0));
    kernel.elements(Constants::default().sizes(&[format.group()]), words)
}
