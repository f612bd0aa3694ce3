//! Quantized matrices: conversion, and products that read codes in place.

mod convert;
mod fp8;
mod gathered;
mod matmul;
mod weights;

use hesper_core::backend::OpTableBuilder;
use hesper_core::ops::quant::convert::{Dequantize, Quantize};
use hesper_core::ops::quant::fp8::ToFp8;
use hesper_core::ops::quant::gathered::GatherQmm;
use hesper_core::ops::quant::matmul::QuantizedMatmul;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table
        .with::<Dequantize>()
        .with::<GatherQmm>()
        .with::<Quantize>()
        .with::<QuantizedMatmul>()
        .with::<ToFp8>()
}
