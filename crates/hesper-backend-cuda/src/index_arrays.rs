//! Index arrays: the offsets of the slices that they point at.

use crate::launch::{Constants, blocks, kernel, type_name};
use hesper_core::backend::Data;
use hesper_core::backend::reach;
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::walk::{axes_of, walk};

const TEXT: &str = include_str!("index_arrays.cuh");

/// An index array and the axis that it indexes.
pub(crate) struct IndexArray<'a> {
    pub(crate) data: &'a Data,
    pub(crate) shape: &'a [usize],
    pub(crate) dtype: Dtype,
    /// Elements along the indexed axis.
    pub(crate) length: usize,
    /// Elements of a slice along the indexed axis.
    pub(crate) size: usize,
    /// The stride of the indexed axis.
    pub(crate) stride: isize,
}

/// The offset of the slice of each point, as `u32` or `i64`; `None` if an index array has too many axes.
pub(crate) fn slice_starts(
    stream: &Stream,
    arrays: &[IndexArray<'_>],
    points: usize,
    of: &str,
) -> Result<Option<Buffer>> {
    let output = stream.alloc(points * if of == "u32" { 4 } else { 8 })?;
    for (at, array) in arrays.iter().enumerate() {
        let Some(axes) = axes_of(array.shape, &array.data.strides) else { return Ok(None) };
        let (bytes, first) = reach(array.data, array.shape, array.dtype.size());
        let command = stream.command("slice_starts").read_range(&array.data.buffer, bytes);
        let command = if at == 0 { command.write(&output) } else { command.read_write(&output) };
        let constants = walk(Constants::default(), &axes).long(axes.len() as i64).long(points as i64);
        let constants = constants.long(first as i64).long(array.length as i64).long(array.size as i64);
        let constants = constants.long(array.stride as i64);
        let entry = format!("slice_starts<{}, {of}, {}>", type_name(array.dtype), at > 0);
        let pipeline = kernel(stream, TEXT, &entry, "")?;
        command.constants(constants.bytes()).dispatch(
            &pipeline,
            [blocks(points) * 256, 1, 1],
            [256, 1, 1],
        )?;
    }
    Ok(Some(output))
}
