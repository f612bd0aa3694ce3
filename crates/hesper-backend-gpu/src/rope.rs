//! Rotary position embedding.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::rope::Rope;
use hesper_core::{Dtype, Result};

use crate::walk::{fits, joined};
use crate::{Gpu, Shared};

/// Parameters of the kernel of rotary position embedding.
#[derive(Debug)]
pub struct Rotation<'a> {
    /// The op.
    pub op: &'a Rope,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The type of the offsets, if they are an array.
    pub offsets: Option<Dtype>,
    /// The stride of the offsets.
    pub offset_stride: isize,
    /// Batch, heads, positions, and features of a position.
    pub lengths: [usize; 4],
    /// Strides of batch, head and position.
    pub strides: [isize; 3],
    /// Pairs and features of a position that are left as they are.
    pub pairs: usize,
    /// The factor of the logarithm of a frequency.
    pub log: f32,
}

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Rope>()
}

impl<G: Gpu> Lower<Rope> for Shared<G> {
    fn lower(op: &Rope, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let mut offset_stride = 0;
        if op.offset.is_none() && l.input_shape(1).iter().product::<usize>() > 1 {
            offset_stride = l.input(1).strides.first().copied().unwrap_or(0);
        }
        let floats = matches!(l.dtype(), Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32);
        if !floats || !fits::<G>(l) || offset_stride < 0 {
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
        // Strides of axes of length one are arbitrary, and multiplied by zero.
        let (x, strides) = match usable {
            true => (given.clone(), [given.strides[0], across[0].1, given.strides[rank - 2]]),
            false => {
                let row = (length * width) as isize;
                (l.row_major(0)?, [heads as isize * row, row, width as isize])
            }
        };
        let output = l.output()?;
        let periods = op.base.is_none().then(|| l.row_major(l.input_count() - 1)).transpose()?;
        let (bytes, _) = reach(&x, shape, size);
        let command = l.stream().command("rope").read_range(&x.buffer, bytes.clone());
        // An input that the kernel does not read is bound to the first.
        let command = if op.offset.is_none() {
            let offsets = l.input(1);
            let (range, _) = reach(offsets, l.input_shape(1), l.input_dtype(1).size());
            command.read_range(&offsets.buffer, range)
        } else {
            command.read_range(&x.buffer, bytes.clone())
        };
        let command = match &periods {
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
        let rotation = Rotation {
            op,
            dtype: l.dtype(),
            offsets: op.offset.is_none().then(|| l.input_dtype(1)),
            offset_stride,
            lengths: [batch, heads, length, width],
            strides,
            pairs,
            log: op.base.map_or(0.0, |base| -base.0.ln() / (op.dims / 2) as f32),
        };
        G::rope(l.stream(), &rotation)?.encode(command)?;
        Ok(Some(Data::contiguous(output, shape)))
    }
}
