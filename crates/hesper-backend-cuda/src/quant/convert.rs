//! Kernels that quantize and dequantize.

use hesper_backend_gpu::{Launch, dequantize_float, float_format};
use hesper_core::backend::{Data, Lower, Lowering};
use hesper_core::ops::quant::QuantFormat;
use hesper_core::ops::quant::convert::Dequantize;
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use super::matmul::Affine;
use crate::Cuda;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("convert.cuh");

impl Lower<Dequantize> for Cuda {
    fn lower(op: &Dequantize, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match op.0 {
            QuantFormat::Affine { bits, group } => Affine { bits, group }.dequantize(l, 0),
            format => dequantize_float::<Cuda>(l, format),
        }
    }
}

pub(crate) fn quantize(stream: &Stream, format: QuantFormat, dtype: Dtype, groups: usize) -> Result<Launch> {
    let kernel = match float_format(format) {
        None => Kernel::new(stream, TEXT, "quantize_affine").of(dtype).of(format.bits()),
        Some(kind) => Kernel::new(stream, TEXT, "quantize_fp").of(dtype).of(kind),
    };
    let constants = Constants::default().sizes(&[groups]).int(format.group() as i32);
    kernel.option("option --fmad=false").elements(constants, groups)
}

pub(crate) fn dequantize(stream: &Stream, format: QuantFormat, dtype: Dtype, words: usize) -> Result<Launch> {
    let constants = Constants::default().sizes(&[words]).int(format.group() as i32);
    let kernel = Kernel::new(stream, TEXT, "dequantize_fp").of(dtype);
    kernel.of(float_format(format).unwrap_or(0)).elements(constants, words)
}
