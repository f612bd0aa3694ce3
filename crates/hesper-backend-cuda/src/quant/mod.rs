//! Quantized matrices on GPUs: conversion, and products that read codes in place.

pub(crate) mod convert;
mod matmul;
mod qmm_tiling;

use hesper_core::backend::OpTableBuilder;
use hesper_core::ops::quant::convert::Dequantize;
use hesper_core::ops::quant::matmul::QuantizedMatmul;

use crate::Cuda;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Dequantize>().with::<QuantizedMatmul>()
}
