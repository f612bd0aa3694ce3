//! Rotary position embedding.

use crate::copy::copy;
use crate::launch::{Constants, blocks, kernel, type_name};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::rope::Rope;
use hesper_core::{Dtype, Result};
use hesper_runtime::Buffer;

use crate::Cuda;
use crate::walk::joined;

const TEXT: &str = include_str!("rope.cuh");

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Rope>()
}

impl Lower<Rope> for Cuda {
    fn lower(op: &Rope, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        if !matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32) {
            return Ok(None);
        }
        l.bring()?;
        let shape = l.shape();
        let rank = shape.len();
        let (batch, length, width) = (shape[0], shape[rank - 2], shape[rank - 1]);
        let heads: usize = shape[1..rank - 2].iter().product();
        let given = l.input(0);
        let across = joined(&shape[1..rank - 2], &given.strides[1..rank - 2]);
        let forwards = given.strides.iter().all(|stride| *stride >= 0);
        let usable = (given.strides[rank - 1] == 1 || width == 1) && across.len() == 1 && forwards;
        let output = l.output()?;
        let n = batch * heads * length * (op.dims / 2 + width - op.dims);
        if usable {
            // Strides of axes of length one are arbitrary, and multiplied by zero.
            let strides = [given.strides[0], across[0].1, given.strides[rank - 2]];
            return rotate(op, l, given, &output, n, strides);
        }
        let copied = copy(l.stream(), given, shape, dtype.size())?;
        let x = Data::contiguous(copied, shape);
        let strides = [x.strides[0], (length * width) as isize, width as isize];
        rotate(op, l, &x, &output, n, strides)
    }
}

/// Launches the kernel on `n` pairs and features, of an input with strides of batch, head and position.
fn rotate(
    op: &Rope,
    l: &Lowering<'_>,
    x: &Data,
    output: &Buffer,
    n: usize,
    [s0, s1, s2]: [isize; 3],
) -> Result<Option<Data>> {
    let shape = l.shape();
    let rank = shape.len();
    let size = l.dtype().size();
    let heads: usize = shape[1..rank - 2].iter().product();
    let (bytes, _) = reach(x, shape, size);
    let periods = op.base.is_none().then(|| l.row_major(l.input_count() - 1)).transpose()?;
    let listed = op.offset.is_none();
    let mut command = l.stream().command("rope").read_range(&x.buffer, bytes.clone());
    // An input that the kernel does not read is bound to the first.
    let mut offset_stride = 0;
    command = if listed {
        let offsets = l.input(1);
        let count: usize = l.input_shape(1).iter().product();
        if count > 1 {
            offset_stride = offsets.strides.first().copied().unwrap_or(0);
        }
        if offset_stride < 0 {
            return Ok(None);
        }
        let (range, _) = reach(offsets, l.input_shape(1), l.input_dtype(1).size());
        command.read_range(&offsets.buffer, range)
    } else {
        command.read_range(&x.buffer, bytes.clone())
    };
    command = match &periods {
        Some(periods) => {
            let start = periods.offset as usize * 4;
            command.read_range(&periods.buffer, start..start + op.dims / 2 * 4)
        }
        None => command.read_range(&x.buffer, bytes),
    };
    let command = command.write(output);
    if n == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output.clone(), shape)));
    }
    let log = op.base.map_or(0.0, |base| -base.0.ln() / (op.dims / 2) as f32);
    let mut constants = Constants::default();
    for length in [shape[0], heads, shape[rank - 2], shape[rank - 1]] {
        constants = constants.long(length as i64);
    }
    for stride in [s0, s1, s2] {
        constants = constants.long(stride as i64);
    }
    let constants = constants
        .long(op.dims as i64)
        .long(i64::from(op.offset.unwrap_or(0)))
        .long(offset_stride as i64)
        .float(log)
        .float(op.scale.0)
        .int(i32::from(op.traditional))
        .int(i32::from(op.back));
    let index = if listed { type_name(l.input_dtype(1)) } else { "i32" };
    let entry = format!("rope<{}, {index}, {listed}, {}>", type_name(l.dtype()), periods.is_some());
    let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(Data::contiguous(output.clone(), shape)))
}
