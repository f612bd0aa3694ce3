//! Matrices in GGUF blocks: conversion, and products that read blocks in place.

use crate::parallel::{GRAIN, par_chunks_mut};
use crate::walk::Strided;
use hesper_compute::{GgufMat, MatMut, MatRef, gguf_dequantize, gguf_matmul, gguf_quantize};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::index_arrays::Indices;
use hesper_core::ops::packed::{Pack, PackedMatmul, Unpack, UnpackRows};
use hesper_core::{Element, Result};
use hesper_cpu::Cores;

use crate::Cpu;
use crate::dispatch::with_float;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Pack>().with::<PackedMatmul>().with::<Unpack>().with::<UnpackRows>()
}

impl Lower<Pack> for Cpu {
    fn lower(op: &Pack, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (x, output) = (Strided::row_major(l, 0)?, l.output()?);
        let format = op.format;
        let command = l.stream().command(op.name()).read_range(&x.data.buffer, x.bytes).write(&output);
        command.run(move |native| {
            let [x, out] = native.take()?;
            gguf_quantize(format, x.as_slice()?, out.as_mut_slice()?).map_err(crate::refused)
        })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<Unpack> for Cpu {
    fn lower(op: &Unpack, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), unpack::<_>(op, l))
    }
}

impl Lower<UnpackRows> for Cpu {
    fn lower(op: &UnpackRows, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), unpack_rows::<_>(op, l))
    }
}

impl Lower<PackedMatmul> for Cpu {
    fn lower(op: &PackedMatmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), multiply::<_>(op, l))
    }
}

fn unpack<T: Element + hesper_compute::Float>(op: &Unpack, l: &Lowering<'_>) -> Result<Data> {
    let (bytes, output) = (Strided::row_major(l, 0)?, l.output()?);
    let (format, rows, cols) = (op.format, l.shape()[0], op.cols);
    let command = l.stream().command(op.name()).read_range(&bytes.data.buffer, bytes.bytes);
    command.write(&output).run(move |native| {
        let [bytes, out] = native.take()?;
        let (bytes, out) = (bytes.as_slice()?, out.as_mut_slice::<T>()?);
        GgufMat::new(format, rows, cols, bytes)
            .and_then(|w| gguf_dequantize(&Cores, &w, out))
            .map_err(crate::refused)
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

fn unpack_rows<T: Element + hesper_compute::Float>(op: &UnpackRows, l: &Lowering<'_>) -> Result<Data> {
    let (bytes, list, output) = (Strided::row_major(l, 0)?, Strided::row_major(l, 1)?, l.output()?);
    let (format, rows, cols, dtype) = (op.format, op.rows, op.cols, l.input_dtype(1));
    let command = l.stream().command(op.name()).read_range(&bytes.data.buffer, bytes.bytes);
    command.read_range(&list.data.buffer, list.bytes).write(&output).run(move |native| {
        let [bytes, list, out] = native.take()?;
        let (bytes, out) = (bytes.as_slice::<u8>()?, out.as_mut_slice::<T>()?);
        let indices = Indices::of(list, dtype)?;
        let row = cols / format.block_len() * format.block_bytes();
        let many = (GRAIN / cols.max(1)).max(1);
        let failed = std::sync::Mutex::new(None);
        par_chunks_mut(out, many * cols, |task, piece| {
            for (at, out) in piece.chunks_mut(cols).enumerate() {
                let from = indices.get((task * many + at) as isize, rows, 1) as usize * row;
                let done = GgufMat::new(format, 1, cols, &bytes[from..from + row])
                    .and_then(|w| gguf_dequantize(&hesper_compute::Serial, &w, out));
                if let Err(error) = done {
                    *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
                }
            }
        });
        let failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        failed.map_or(Ok(()), |error| Err(crate::refused(error)))
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

fn multiply<T: Element + hesper_compute::Float>(op: &PackedMatmul, l: &Lowering<'_>) -> Result<Data> {
    let (x, bytes, output) = (Strided::input(l, 0), Strided::row_major(l, 1)?, l.output()?);
    let (format, activations) = (op.format, op.activations);
    let [m, n] = [l.shape()[0], l.shape()[1]];
    let (k, offset, [row, column]) = (x.shape[1], x.offset as usize, [x.strides()[0], x.strides()[1]]);
    let command = l.stream().command(op.name()).read_range(&x.data.buffer, x.bytes.clone());
    command.read_range(&bytes.data.buffer, bytes.bytes).write(&output).run(move |native| {
        let [all, bytes, out] = native.take()?;
        let (all, bytes, out) = (all.as_slice::<T>()?, bytes.as_slice()?, out.as_mut_slice::<T>()?);
        MatRef::strided(all, offset, m, k, row, column)
            .and_then(|x| {
                let w = GgufMat::new(format, n, k, bytes)?;
                gguf_matmul(&Cores, x, &w, MatMut::row_major(out, m, n)?, activations)
            })
            .map_err(crate::refused)
    })?;
    Ok(Data::contiguous(output, l.shape()))
}
