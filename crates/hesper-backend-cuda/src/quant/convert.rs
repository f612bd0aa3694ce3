//! Kernels that quantize and dequantize.

use hesper_backend_gpu::{Launch, dequantize_float, float_format};
use hesper_core::backend::{Data, Lower, Lowering};
use hesper_core::ops::quant::QuantFormat;
use hesper_core::ops::quant::convert::Dequantize;
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use super::matmul::Affine;
use crate::Cuda;
use crate::launch::{Constants, launch, type_name};

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
    let of = type_name(dtype);
    let entry = match float_format(format) {
        None => format!("quantize_affine<{of}, {}>", format.bits()),
        Some(kind) => format!("quantize_fp<{of}, {kind}>"),
    };
    let constants = Constants::default().sizes(&[groups]).int(format.group() as i32);
    launch(stream, TEXT, &entry, "option --fmad=false", constants, groups)
}

pub(crate) fn dequantize(stream: &Stream, format: QuantFormat, dtype: Dtype, words: usize) -> Result<Launch> {
    let kind = float_format(format).unwrap_or(0);
    let entry = format!("dequantize_fp<{}, {kind}>", type_name(dtype));
    let constants = Constants::default().sizes(&[words]).int(format.group() as i32);
    launch(stream, TEXT, &entry, "", constants, words)
}
