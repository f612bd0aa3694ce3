//! Matrices in GGUF blocks. Few rows of activations are multiplied with the blocks in place; for more rows
//! the matrix is dequantized once.

use hesper_backend_gpu::{block_format, read};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::command::Commands;
use hesper_core::ops::packed::{PackedMatmul, Unpack, UnpackRows};
use hesper_core::{Dtype, PackedArray, PackedFormat, Result};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("packed.metal");
/// Rows of activations up to which blocks are read once for each.
const MAX_ROWS: usize = 8;
/// Columns that a threadgroup computes.
const COLUMNS: usize = 16;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<PackedMatmul>().with::<Unpack>().with::<UnpackRows>()
}

impl Lower<Unpack> for MetalBackend {
    fn lower(op: &Unpack, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        dequantize(l, op.format, None)
    }
}

impl Lower<UnpackRows> for MetalBackend {
    fn lower(op: &UnpackRows, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        dequantize(l, op.format, Some(op.rows))
    }
}

/// Dequantizes a matrix whose blocks are the first input; only the rows that the second input names, if
/// `listed` gives the number of rows of the matrix.
fn dequantize(l: &mut Lowering<'_>, format: PackedFormat, listed: Option<usize>) -> Result<Option<Data>> {
    let Some(number) = block_format(format).filter(|_| fits(l)) else { return Ok(None) };
    l.bring()?;
    let blocks = l.row_major(0)?;
    let list = listed.map(|_| l.row_major(1)).transpose()?;
    let output = l.output()?;
    let (count, cols) = (l.shape().iter().product::<usize>(), l.shape()[l.shape().len() - 1]);
    let command = read(l.stream().command("dequantize"), l, 0, &blocks);
    // A missing list is bound as the blocks, and not read.
    let command = match &list {
        Some(list) => read(command, l, 1, list),
        None => read(command, l, 0, &blocks),
    };
    let command = command.write(&output);
    if count == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    let index = if list.is_some() { l.input_dtype(1) } else { Dtype::Int32 };
    let kernel = Kernel::new(l.stream(), TEXT, "unpack_rows").of(number).of(l.dtype()).of(index);
    let constants = Constants::default().sizes(&[cols, listed.unwrap_or(count / cols)]);
    kernel.of(list.is_some()).elements(constants, count / 16)?.encode(command)?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

impl Lower<PackedMatmul> for MetalBackend {
    fn lower(op: &PackedMatmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let Some(number) = block_format(op.format).filter(|_| fits(l)) else { return Ok(None) };
        let (m, n, k) = (l.shape()[0], l.shape()[1], l.input_shape(0)[1]);
        if m > MAX_ROWS {
            return compose(l, |inputs| {
                let dtype = inputs[0].dtype();
                // Tiles of bfloat16 are of float32: rounding the matrix would save nothing but memory.
                let of = if dtype == Dtype::Bfloat16 { Dtype::Float32 } else { dtype };
                let w = PackedArray::new(&inputs[1], op.format, &[n, k])?.dequantize(of)?;
                inputs[0].astype(of)?.matmul(&w.swapaxes(0, 1)?)?.astype(dtype)
            });
        }
        l.bring()?;
        let (x, blocks, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
        let command = read(read(l.stream().command("packed_qmv"), l, 0, &x), l, 1, &blocks).write(&output);
        let kernel = Kernel::new(l.stream(), TEXT, "packed_qmv").of(number).of(l.dtype());
        let groups = [n.div_ceil(COLUMNS), m, 1];
        kernel.groups(Constants::default().sizes(&[m, n, k]), groups, 256)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
