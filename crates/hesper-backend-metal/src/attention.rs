//! Attention: a threadgroup for each row of a few queries, tiles of `simdgroup_matrix` for many.
//!
//! The keys of a decode step are split over threadgroups if there are many, and a second kernel combines the
//! parts.

use hesper_backend_gpu::{copy, is_float};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::attention::Attention;
use hesper_core::ops::command::Commands;
use hesper_core::shape::Strides;
use hesper_core::{Dtype, Result};
use hesper_runtime::Encoder;

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("attention.metal");
/// Widest features of a row.
const MAX_WIDTH: usize = 512;
/// Widest features of a tile, by threadgroup memory.
const MAX_TILE_WIDTH: usize = 128;
/// Queries from which on tiles are used.
const MIN_TILE_QUERIES: usize = 9;
/// Queries of a tile, and its threads.
const QUERY_TILE: usize = 32;
const TILE_THREADS: usize = 128;
/// Keys of a part, and rows from which on keys are not split.
const SPLIT_KEYS: usize = 1024;
const MANY_ROWS: usize = 256;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Attention>()
}

/// An operand whose features are contiguous.
fn rows(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let (data, shape) = (l.input(at), l.input_shape(at));
    if (data.strides[3] == 1 || shape[3] == 1) && data.strides[..3].iter().all(|stride| *stride >= 0) {
        return Ok(data.clone());
    }
    Ok(Data::contiguous(copy::<MetalBackend>(l.stream(), data, shape, l.input_dtype(at).size())?, shape))
}

impl Lower<Attention> for MetalBackend {
    fn lower(op: &Attention, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let (q, k) = (l.input_shape(0), l.input_shape(1));
        let (&[batch, heads, queries, width], &[_, kv_heads, keys, _]) = (q, k) else { return Ok(None) };
        let values = l.input_shape(2)[3];
        let empty = l.shape().contains(&0) || keys == 0;
        if !is_float(dtype) || width.max(values) > MAX_WIDTH || empty || !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        let l = &*l;
        let (stream, size) = (l.stream(), dtype.size());
        let inputs = [rows(l, 0)?, rows(l, 1)?, rows(l, 2)?];
        let mask = op.mask.then(|| (l.input(3), l.input_shape(3), l.input_dtype(3)));
        let sinks = op.sinks.then(|| l.row_major(3 + usize::from(op.mask))).transpose()?;
        let output = l.output()?;
        let all_rows = batch * heads * queries;
        let (splits, per) = match all_rows < MANY_ROWS && keys >= 2 * SPLIT_KEYS {
            true => (keys.div_ceil(SPLIT_KEYS), SPLIT_KEYS),
            false => (1, keys),
        };
        let mut constants = Constants::default().sizes(&[kv_heads, heads / kv_heads, queries, keys]);
        for data in &inputs {
            constants = constants.offsets(data.strides.iter().copied(), 3, 0);
        }
        let place = mask.iter().flat_map(|(mask, shape, dtype)| {
            let first = reach(mask, shape, dtype.size()).1 as isize;
            mask.strides.iter().copied().chain([first])
        });
        let constants = constants
            .offsets(place, 5, 0)
            .sizes(&[width, values, splits, per])
            .float(op.scale.0)
            .flag(op.causal)
            .flag(op.mask)
            .flag(mask.is_some_and(|(_, _, dtype)| dtype == Dtype::Bool))
            .flag(op.sinks);
        // An input that a kernel does not read is bound to the queries.
        let queried = reach(&inputs[0], l.input_shape(0), size).0;
        let sink_range = sinks.as_ref().map(|sinks| {
            let start = sinks.offset as usize * size;
            (&sinks.buffer, start..start + heads * size)
        });
        let (sink_buffer, sink_range) = sink_range.unwrap_or((&inputs[0].buffer, queried.clone()));
        let parts = stream.alloc(if splits > 1 { all_rows * splits * (values + 2) * 4 } else { 0 })?;
        let encode = |label| -> Encoder<'_> {
            let mut command = stream.command(label);
            for (at, data) in inputs.iter().enumerate() {
                command = command.read_range(&data.buffer, reach(data, l.input_shape(at), size).0);
            }
            let command = match mask {
                Some((mask, shape, dtype)) => {
                    command.read_range(&mask.buffer, reach(mask, shape, dtype.size()).0)
                }
                None => command.read_range(&inputs[0].buffer, queried.clone()),
            };
            command.read_range(sink_buffer, sink_range.clone())
        };
        let kernel = |name: &str| Kernel::new(stream, TEXT, name).of(dtype);
        if queries >= MIN_TILE_QUERIES
            && width == values
            && width.is_multiple_of(8)
            && width <= MAX_TILE_WIDTH
        {
            let groups = [queries.div_ceil(QUERY_TILE), heads, batch];
            let launch = kernel("attention_tiles").of(width).groups(constants, groups, TILE_THREADS)?;
            launch.encode(encode("attention").write(&output))?;
        } else if splits > 1 {
            let rows = kernel("attention_rows").of(Dtype::Float32).of(true);
            let launch = rows.groups(constants.clone(), [all_rows, splits, 1], 256)?;
            launch.encode(encode("attention").write(&parts))?;
            let command = stream.command("attention parts").read(&parts);
            let command = command.read_range(sink_buffer, sink_range.clone()).write(&output);
            let threads = [values.min(256), 1, 1];
            kernel("attention_join").threads(constants, [values, all_rows, 1], threads)?.encode(command)?;
        } else {
            let launch =
                kernel("attention_rows").of(dtype).of(false).groups(constants, [all_rows, 1, 1], 256)?;
            launch.encode(encode("attention").write(&output))?;
        }
        // The output is laid out by batch, query, head.
        let (row, across) = (values as isize, (values * heads) as isize);
        let strides = Strides::from_slice(&[across * queries as isize, row, across, 1]);
        Ok(Some(Data { buffer: output, offset: 0, strides }))
    }
}
