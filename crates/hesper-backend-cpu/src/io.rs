//! Tensors of files: loading them, and decoding quantized blocks.

use half::{bf16, f16};
use hesper_compute::{
    GgmlType, GgufMat, Mismatch, affine_biases, affine_scales, affine_words, gguf_dequantize,
};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::io::ops::{Decode, Decoded, Load};
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Element, Result};
use hesper_cpu::Cores;
use hesper_runtime::{Native, NativeResult};

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Decode>().with::<Load>()
}

impl Lower<Load> for Cpu {
    fn lower(op: &Load, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let buffer = op.load(&l.stream().runtime(), l.dtype())?;
        Ok(Some(Data::contiguous(buffer, l.shape())))
    }
}

impl Lower<Decode> for Cpu {
    fn lower(op: &Decode, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let input = l.row_major(0)?;
        let start = input.offset as usize;
        let range = start..start + l.input_shape(0).iter().product::<usize>();
        let output = l.output()?;
        let (kind, to, dtype) = (op.kind, op.to, l.dtype());
        l.stream().command(op.name()).read_range(&input.buffer, range).write(&output).run(move |native| {
            match (to, dtype) {
                (Decoded::Words, _) => run(native, |blocks, out| affine_words(&Cores, kind, blocks, out)),
                (Decoded::Scales, _) => run(native, |blocks, out| affine_scales(&Cores, kind, blocks, out)),
                (Decoded::Biases, _) => run(native, |blocks, out| affine_biases(&Cores, kind, blocks, out)),
                (Decoded::Floats, Dtype::Float16) => floats::<f16>(native, kind),
                (Decoded::Floats, Dtype::Bfloat16) => floats::<bf16>(native, kind),
                (Decoded::Floats, _) => floats::<f32>(native, kind),
            }
        })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// Decodes blocks to floats.
fn floats<T: Element + hesper_compute::Float>(native: &mut Native<'_, '_>, kind: GgmlType) -> NativeResult {
    run(native, |blocks, out: &mut [T]| {
        let columns = kind.block_len();
        let blocks = GgufMat::new(kind, out.len() / columns, columns, blocks)?;
        gguf_dequantize(&Cores, &blocks, out)
    })
}

/// Calls `decode` with the bytes of the blocks and the output.
fn run<T: Element>(
    native: &mut Native<'_, '_>,
    decode: impl FnOnce(&[u8], &mut [T]) -> std::result::Result<(), Mismatch>,
) -> NativeResult {
    let [input, output] = native.take()?;
    decode(input.bytes()?, output.as_mut_slice::<T>()?).map_err(crate::refused)
}
