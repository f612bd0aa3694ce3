//! Copies of strided memory.
//!
//! Axes are joined where both strides allow it, and neighbours are copied in words of up to sixteen bytes. If
//! source and target are contiguous along different axes, tiles go through shared memory.

use std::ops::Range;

use hesper_compute::joined_axes;
use hesper_runtime::{Buffer, Stream};

use hesper_core::backend::reach;
use hesper_core::backend::{self, Data};
use hesper_core::ops::command::Commands;
use hesper_core::shape::row_major;
use hesper_core::{Dtype, Result, placement};

use crate::launch::{Constants, blocks, kernel};

const TEXT: &str = include_str!("copy.cuh");
/// Most axes that are left after joining.
const MAX_AXES: usize = 10;

/// One axis: its length, and its strides in the source and in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    length: usize,
    from: isize,
    to: isize,
}

/// The axes of a copy, outermost first, joined where both sides allow it.
fn joined(shape: &[usize], from: &[isize], to: &[isize]) -> Vec<Axis> {
    let axes = joined_axes(shape, [from, to]).map(|(length, [from, to])| Axis { length, from, to });
    let axes: Vec<Axis> = axes.collect();
    if axes.is_empty() { vec![Axis { length: 1, from: 1, to: 1 }] } else { axes }
}

/// How many neighbours are copied as one word of at most sixteen bytes.
fn together(axes: &[Axis], size: usize, starts: [usize; 2]) -> usize {
    let Some((inner, outer)) = axes.split_last() else { return 1 };
    if inner.from != 1 || inner.to != 1 {
        return 1;
    }
    let fits = |count: &usize| {
        let whole = |steps: isize| steps.unsigned_abs().is_multiple_of(*count);
        inner.length.is_multiple_of(*count)
            && outer.iter().all(|axis| whole(axis.from) && whole(axis.to))
            && starts.iter().all(|start| start.is_multiple_of(count * size))
    };
    [16, 8, 4, 2].into_iter().filter(|count| count * size <= 16).find(fits).unwrap_or(1)
}

/// The kernels' type of a word of `size` bytes.
pub(crate) fn word(size: usize) -> &'static str {
    match size {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "w8",
        _ => "w16",
    }
}

/// Where a copy goes.
pub(crate) struct Target<'a> {
    pub(crate) buffer: &'a Buffer,
    /// Of the first element, in elements.
    pub(crate) offset: usize,
    pub(crate) strides: &'a [isize],
    /// Whether the copy leaves bytes of the target unwritten.
    pub(crate) partial: bool,
}

/// A copy of strided memory, row by row.
pub(crate) fn copy(stream: &Stream, data: &Data, shape: &[usize], size: usize) -> Result<Buffer> {
    let output = stream.alloc(shape.iter().product::<usize>() * size)?;
    let strides = row_major(shape);
    let to = Target { buffer: &output, offset: 0, strides: &strides, partial: false };
    copy_to(stream, data, shape, size, &to)?;
    Ok(output)
}

/// Copies all elements to a strided target. Target strides are positive.
pub(crate) fn copy_to(
    stream: &Stream,
    data: &Data,
    shape: &[usize],
    size: usize,
    target: &Target<'_>,
) -> Result<()> {
    let n: usize = shape.iter().product();
    let (from, first) = reach(data, shape, size);
    let to = target_range(target, shape, size);
    let encoder = stream.command("copy").read_range(&data.buffer, from.clone());
    let encoder = if target.partial {
        encoder.read_write_range(target.buffer, to.clone())
    } else {
        encoder.write_range(target.buffer, to.clone())
    };
    if n == 0 {
        return Ok(encoder.run(|_| Ok(()))?);
    }
    let mut axes = joined(shape, &data.strides, target.strides);
    if axes.len() > MAX_AXES {
        drop(encoder);
        let host = placement::default_stream(placement::Device::Cpu)?;
        let carrier = match size {
            1 => Dtype::Uint8,
            2 => Dtype::Uint16,
            4 => Dtype::Uint32,
            _ => Dtype::Uint64,
        };
        let flat = backend::copy(&host, data, shape, carrier)?;
        let back = Data::contiguous(flat.on(&stream.runtime())?, shape);
        return copy_to(stream, &back, shape, size, target);
    }
    if axes.len() == 1 && axes[0].from == 1 && axes[0].to == 1 && !target.partial {
        return Ok(encoder.copy()?);
    }
    let transposed = axes.len() > 1
        && axes[axes.len() - 1].to == 1
        && axes[axes.len() - 1].from != 1
        && axes[axes.len() - 1].length >= 8;
    let across = axes.iter().position(|axis| axis.from == 1 && axis.length >= 8).filter(|_| transposed);
    if let Some(across) = across {
        let source = axes.remove(across);
        let inner = axes.remove(axes.len() - 1);
        let outer: usize = axes.iter().map(|axis| axis.length).product();
        let tile = if size <= 2 { 64 } else { 32 };
        let tiles = source.length.div_ceil(tile) * inner.length.div_ceil(tile) * outer;
        let all: Vec<Axis> = [source, inner].into_iter().chain(axes).collect();
        let even = |number: isize| number % 2 == 0;
        let pairs = size == 2
            && [from.start, to.start].iter().all(|start| start.is_multiple_of(4))
            && even(first as isize)
            && even(source.length as isize)
            && even(inner.length as isize)
            && even(source.to)
            && even(inner.from)
            && all[2..].iter().all(|axis| even(axis.from) && even(axis.to))
            && tiles < 1 << 31;
        let entry = match pairs {
            true => "transposed_pairs<u16>".to_string(),
            false => format!("transposed<{}, {tile}>", word(size)),
        };
        let constants = dims(&all).long(outer as i64).long(first as i64);
        let pipeline = kernel(stream, TEXT, &entry, "")?;
        return Ok(encoder.constants(constants.bytes()).dispatch(
            &pipeline,
            [tiles as u64 * 256, 1, 1],
            [256, 1, 1],
        )?);
    }
    let count = together(&axes, size, [from.start + first * size, to.start]);
    if count > 1 {
        let last = axes.len() - 1;
        for axis in &mut axes[..last] {
            axis.from /= count as isize;
            axis.to /= count as isize;
        }
        axes[last].length /= count;
    }
    let n = n / count;
    let index = if n < 1 << 31 { "" } else { "define INDEX=u64" };
    let entry = format!("strided<{}, {}>", word(size * count), axes.len());
    let constants = dims(&axes).long(n as i64).long((first / count) as i64);
    let pipeline = kernel(stream, TEXT, &entry, index)?;
    Ok(encoder.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?)
}

fn dims(axes: &[Axis]) -> Constants {
    Constants::default()
        .longs(axes.iter().map(|axis| axis.length as isize), MAX_AXES, 1)
        .longs(axes.iter().map(|axis| axis.from), MAX_AXES, 0)
        .longs(axes.iter().map(|axis| axis.to), MAX_AXES, 0)
}

/// The bytes from the first to the last that are written.
fn target_range(target: &Target<'_>, shape: &[usize], size: usize) -> Range<usize> {
    let start = target.offset * size;
    if shape.contains(&0) {
        return start..start;
    }
    let far: usize =
        shape.iter().zip(target.strides).map(|(length, stride)| (length - 1) * stride.unsigned_abs()).sum();
    start..start + (far + 1) * size
}

/// Fills a range of a buffer with an element of `size` bytes.
pub(crate) fn fill(
    stream: &Stream,
    buffer: &Buffer,
    range: Range<usize>,
    element: [u8; 8],
    size: usize,
) -> Result<()> {
    let n = range.len() / size;
    let encoder = stream.command("fill").write_range(buffer, range);
    if n == 0 {
        return Ok(encoder.run(|_| Ok(()))?);
    }
    let pipeline = kernel(stream, TEXT, &format!("filled<{}>", word(size)), "")?;
    let constants = Constants::default().long(i64::from_ne_bytes(element)).long(n as i64);
    Ok(encoder.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_joined_where_both_sides_walk_through_them_as_one() {
        let axes = joined(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1]);
        assert_eq!(axes, [Axis { length: 24, from: 1, to: 1 }]);
        let axes = joined(&[2, 3, 4], &[12, 1, 3], &[12, 4, 1]);
        assert_eq!(axes.len(), 3);
        assert_eq!(joined(&[1, 1], &[5, 7], &[1, 1]), [Axis { length: 1, from: 1, to: 1 }]);
        // Gaps between the rows of a target prevent joining.
        assert_eq!(joined(&[2, 8], &[8, 1], &[16, 1]).len(), 2);
    }

    #[test]
    fn neighbours_move_together_only_where_everything_is_a_multiple() {
        let axes =
            |length, outer| vec![Axis { length: 3, from: outer, to: 64 }, Axis { length, from: 1, to: 1 }];
        assert_eq!(together(&axes(32, 96), 2, [0, 0]), 8);
        assert_eq!(together(&axes(32, 100), 2, [0, 0]), 4);
        assert_eq!(together(&axes(32, 96), 2, [4, 0]), 2);
        assert_eq!(together(&axes(33, 96), 2, [0, 0]), 1);
        assert_eq!(together(&axes(32, 96), 8, [0, 0]), 2);
    }
}
