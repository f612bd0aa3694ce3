//! Rotary position embedding.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::rope::Rope;

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits, is_float, type_name};
use crate::walk::joined;

const TEXT: &str = include_str!("kernels/rope.metal");

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Rope>()
}

impl Lower<Rope> for MetalBackend {
    fn lower(op: &Rope, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let offsets_backwards = op.offset.is_none() && l.input(1).strides.iter().any(|stride| *stride < 0);
        if !is_float(l.dtype()) || !fits(l) || offsets_backwards {
            return Ok(None);
        }
        l.bring()?;
        let (shape, rank, size) = (l.shape(), l.shape().len(), l.dtype().size());
        let (batch, length, width) = (shape[0], shape[rank - 2], shape[rank - 1]);
        let heads: usize = shape[1..rank - 2].iter().product();
        let given = l.input(0);
        let across = joined(&shape[1..rank - 2], &given.strides[1..rank - 2]);
        let forwards = given.strides.iter().all(|stride| *stride >= 0);
        let usable = (given.strides[rank - 1] == 1 || width == 1) && across.len() == 1 && forwards;
        let (x, head_stride) = match usable {
            true => (given.clone(), across[0].1),
            false => (l.row_major(0)?, (length * width) as isize),
        };
        let output = l.output()?;
        let periods = op.base.is_none().then(|| l.row_major(l.input_count() - 1)).transpose()?;
        let (bytes, _) = reach(&x, shape, size);
        let mut command = l.stream().command("rope").read_range(&x.buffer, bytes.clone());
        // An input that the kernel does not read is bound to the first.
        let mut offset_stride = 0;
        command = if op.offset.is_none() {
            let offsets = l.input(1);
            let count: usize = l.input_shape(1).iter().product();
            if count > 1 {
                offset_stride = offsets.strides.first().copied().unwrap_or(0);
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
        let command = command.write(&output);
        let pairs = op.dims / 2 + width - op.dims;
        if batch * heads * length * pairs == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, shape)));
        }
        let log = op.base.map_or(0.0, |base| -base.0.ln() / (op.dims / 2) as f32);
        let constants = Constants::default()
            .sizes(&[heads, length, width])
            .int(x.strides[0])
            .int(head_stride)
            .int(x.strides[rank - 2])
            .sizes(&[op.dims])
            .int(op.offset.unwrap_or(0) as isize)
            .int(offset_stride)
            .float(log)
            .float(op.scale.0)
            .flag(op.traditional)
            .flag(op.back);
        let listed = op.offset.is_none();
        let index = if listed { type_name(l.input_dtype(1)) } else { "int" };
        let entry = format!("rope<{}, {index}, {listed}, {}>", type_name(l.dtype()), periods.is_some());
        let across = pairs.min(32) as u64;
        let threadgroup = [across, (length as u64).min(256 / across), 1];
        let kernel = Kernel { text: TEXT, entry: &entry };
        kernel.dispatch(l.stream(), command, &constants, [pairs, length, batch * heads], threadgroup)?;
        Ok(Some(Data::contiguous(output, shape)))
    }
}
