//! Quantized matrices: conversion, and products that read codes in place.

mod convert;
mod fp8;
mod gathered;
mod matmul;
mod weights;

use hesper_compute as compute;
use hesper_core::backend::OpTableBuilder;
use hesper_core::ops::quant::convert::{Dequantize, Quantize};
use hesper_core::ops::quant::fp8::ToFp8;
use hesper_core::ops::quant::gathered::GatherQmm;
use hesper_core::ops::quant::matmul::QuantizedMatmul;
use hesper_core::ops::quant::{Activations, QuantFormat};

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table
        .with::<Dequantize>()
        .with::<GatherQmm>()
        .with::<Quantize>()
        .with::<QuantizedMatmul>()
        .with::<ToFp8>()
}

/// A format as the kernels take it.
fn compute_format(format: QuantFormat) -> compute::QuantFormat {
    match format {
        QuantFormat::Affine { bits, group } => compute::QuantFormat::Affine { bits, group },
        QuantFormat::Mxfp4 => compute::QuantFormat::Mxfp4,
        QuantFormat::Mxfp8 => compute::QuantFormat::Mxfp8,
        QuantFormat::Nvfp4 => compute::QuantFormat::Nvfp4,
    }
}

/// The rounding of activations as the kernels take it.
pub(crate) fn compute_activations(activations: Activations) -> compute::Activations {
    match activations {
        Activations::Exact => compute::Activations::Exact,
        Activations::Int8 => compute::Activations::Int8,
    }
}
