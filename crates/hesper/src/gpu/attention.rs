//! Attention on GPUs: tiles on tensor cores for half precision, a plain kernel for everything else.
//!
//! Few rows (a step of generation) are spread over many blocks that each take a part of the keys; a second
//! kernel joins the parts.

use hesper_runtime::Stream;
use smallvec::smallvec;

use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::native::reach;
use crate::shape::Strides;

const TEXT: &str = include_str!("attention.cuh");
/// Blocks that keep a large device busy.
const BUSY: usize = 396;

/// What the op says beside its inputs: queries, keys, values, the mask and the sinks, if there are any.
pub(crate) struct Attention {
    pub(crate) scale: f32,
    pub(crate) causal: bool,
    pub(crate) mask: bool,
    pub(crate) sinks: bool,
}

/// An operand whose features lie side by side.
fn rows(l: &Lowering<'_>, stream: &Stream, at: usize) -> Result<Data> {
    let (data, shape) = (l.input(at), l.input_shape(at));
    let v = 16 / l.input_dtype(at).size() as isize;
    let whole = |number: isize| number % v == 0;
    let side_by_side = (data.strides[3] == 1 || shape[3] == 1)
        && data.strides[..3].iter().all(|stride| *stride >= 0 && whole(*stride))
        && whole(data.offset);
    if side_by_side {
        return Ok(data.clone());
    }
    let copied = super::copy::copy(stream, data, shape, l.input_dtype(at).size())?;
    Ok(Data::contiguous(copied, shape))
}

impl Attention {
    pub(crate) fn lower(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let (width, values) = (l.input_shape(0)[3], l.input_shape(2)[3]);
        if !matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32) || width.max(values) > 512 {
            return Ok(None);
        }
        l.bring()?;
        let stream = l.stream();
        let (q, k) = (l.input_shape(0), l.input_shape(1));
        let (batch, heads, queries) = (q[0], q[1], q[2]);
        let (kv_heads, keys) = (k[1], k[2]);
        let share = heads / kv_heads;
        let inputs = [rows(l, stream, 0)?, rows(l, stream, 1)?, rows(l, stream, 2)?];
        let output = l.output()?;
        let total = share * queries;
        let tiled =
            dtype.size() == 2 && width == values && width.is_multiple_of(16) && (32..=256).contains(&width);
        let spread = total <= 16;
        let (mut splits, mut per) = (1, keys);
        if tiled && spread {
            let blocks = batch * kv_heads;
            splits = BUSY.div_ceil(blocks).min(keys.div_ceil(128)).max(1);
            per = keys.div_ceil(splits).next_multiple_of(64);
            splits = keys.div_ceil(per);
        }
        let parts = match splits {
            1 => None,
            _ => Some(stream.alloc(batch * heads * queries * splits * (width + 2) * 4)?),
        };
        let masked = self.mask.then(|| l.input(3).clone());
        let sinks = self.sinks.then(|| l.row_major(3 + usize::from(self.mask))).transpose()?;
        let constants = self.constants(
            l,
            &[batch, kv_heads, share, queries, keys],
            &inputs,
            masked.as_ref(),
            [splits, per],
        );
        let mut command = stream.encode("attention");
        for (at, data) in inputs.iter().enumerate() {
            command = command.read_range(&data.buffer, reach(data, l.input_shape(at), dtype.size()).0);
        }
        // What is not there is bound as the queries, and not read.
        let queries_range = reach(&inputs[0], l.input_shape(0), dtype.size()).0;
        command = match &masked {
            Some(mask) => {
                command.read_range(&mask.buffer, reach(mask, l.input_shape(3), l.input_dtype(3).size()).0)
            }
            None => command.read_range(&inputs[0].buffer, queries_range.clone()),
        };
        let sunk = |sinks: &Data| {
            let start = sinks.offset as usize * dtype.size();
            start..start + heads * dtype.size()
        };
        command = match &sinks {
            Some(sinks) => command.read_range(&sinks.buffer, sunk(sinks)),
            None => command.read_range(&inputs[0].buffer, queries_range.clone()),
        };
        command = command.write(parts.as_ref().unwrap_or(&output));
        let of = type_name(dtype);
        if tiled {
            let tile = if spread || width <= 128 { 64 } else { 32 };
            let shared = 4 * tile * (width + 8) * 2;
            let entry = format!("tiles<{of}, {width}, {tile}, {spread}>");
            let pipeline = kernel(stream, TEXT, &entry, &format!("shared {shared}"))?;
            let row_tiles = if spread { total.div_ceil(16) } else { total.div_ceil(64) };
            let blocks = (batch * kv_heads * row_tiles * splits) as u64;
            command.constants(constants.bytes()).dispatch(&pipeline, [blocks * 128, 1, 1], [128, 1, 1])?;
        } else {
            let constants = constants.long(width as i64).long(values as i64);
            let pipeline = kernel(stream, TEXT, &format!("plain<{of}>"), "")?;
            let blocks = (batch * heads * queries).div_ceil(8) as u64;
            command.constants(constants.bytes()).dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?;
        }
        if let Some(parts) = &parts {
            let pipeline = kernel(stream, TEXT, &format!("joined<{of}, {width}>"), "")?;
            let constants =
                Constants::default().long(splits as i64).long(heads as i64).int(i32::from(self.sinks));
            let command = stream.encode("attention parts").read(parts);
            let command = match &sinks {
                Some(sinks) => command.read_range(&sinks.buffer, sunk(sinks)),
                None => command.read(parts),
            };
            let rows = (batch * heads * queries) as u64;
            command.write(&output).constants(constants.bytes()).dispatch(
                &pipeline,
                [rows * width as u64, 1, 1],
                [width as u64, 1, 1],
            )?;
        }
        // The heads of a query lie together.
        let (row, across) = (values as isize, (values * heads) as isize);
        let strides: Strides = smallvec![across * queries as isize, row, across, 1];
        Ok(Some(Data { buffer: output, offset: 0, strides }))
    }

    fn constants(
        &self,
        l: &Lowering<'_>,
        lengths: &[usize],
        inputs: &[Data],
        mask: Option<&Data>,
        [splits, per]: [usize; 2],
    ) -> Constants {
        let mut constants = Constants::default();
        for length in lengths {
            constants = constants.long(*length as i64);
        }
        for data in inputs {
            constants = constants.longs(data.strides[..3].iter().copied(), 3, 0);
        }
        constants = constants.longs(mask.iter().flat_map(|mask| mask.strides.iter().copied()), 4, 0);
        let marked = mask.is_some() && l.input_dtype(3) == Dtype::Bool;
        constants
            .long(splits as i64)
            .long(per as i64)
            .float(self.scale)
            .int(i32::from(self.causal))
            .int(i32::from(mask.is_some()))
            .int(i32::from(marked))
            .int(i32::from(self.sinks))
            .int(0)
    }
}
