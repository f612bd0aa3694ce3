//! Copies of strided memory.
//!
//! Axes are joined where both strides allow it, and neighbours are copied in words of up to sixteen bytes. If
//! source and target are contiguous along different axes, tiles go through threadgroup memory.

use std::ops::Range;

use hesper_compute::joined_axes;
use hesper_core::backend::{self, Data, reach};
use hesper_core::ops::command::Commands;
use hesper_core::shape::row_major;
use hesper_core::{Dtype, Result, placement};
use hesper_runtime::{Buffer, Stream};

use crate::Gpu;
use crate::walk::elements_of_word;

/// Shortest axes that are worth a tile.
const MIN_TILE: usize = 8;

/// One axis: its length, and its strides in the source and in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyAxis {
    /// Elements along the axis.
    pub length: usize,
    /// The stride in the source.
    pub from: isize,
    /// The stride in the target.
    pub to: isize,
}

/// Parameters of a copy between strided layouts. Lengths, strides and offsets count words.
#[derive(Debug)]
pub struct StridedCopy<'a> {
    /// Bytes of a word.
    pub word: usize,
    /// The axes, outermost first; at least one.
    pub axes: &'a [CopyAxis],
    /// The first word, from the beginning of the range that is bound.
    pub first: usize,
    /// How many words are copied.
    pub count: usize,
}

/// Parameters of a copy whose source and target are contiguous along different axes.
#[derive(Debug)]
pub struct TransposedCopy<'a> {
    /// Bytes of an element.
    pub size: usize,
    /// The axis along which the source is contiguous.
    pub source: CopyAxis,
    /// The axis along which the target is contiguous.
    pub target: CopyAxis,
    /// The other axes.
    pub outer: &'a [CopyAxis],
    /// The first element, from the beginning of the range that is bound.
    pub first: usize,
    /// Offsets in bytes of the ranges that are bound, in the source's and in the target's buffer.
    pub starts: [usize; 2],
}

/// Where a copy goes.
pub struct Target<'a> {
    /// The memory.
    pub buffer: &'a Buffer,
    /// Of the first element, in elements.
    pub offset: usize,
    /// Positive strides.
    pub strides: &'a [isize],
    /// Whether the copy leaves bytes of the target unwritten.
    pub partial: bool,
}

impl Target<'_> {
    /// The bytes from the first to the last that are written.
    fn range(&self, shape: &[usize], size: usize) -> Range<usize> {
        let start = self.offset * size;
        if shape.contains(&0) {
            return start..start;
        }
        let steps = shape.iter().zip(self.strides);
        let far: usize = steps.map(|(length, stride)| (length - 1) * stride.unsigned_abs()).sum();
        start..start + (far + 1) * size
    }
}

/// The axes of a copy, outermost first, joined where both sides allow it; at least one.
fn joined(shape: &[usize], from: &[isize], to: &[isize]) -> Vec<CopyAxis> {
    let axes = joined_axes(shape, [from, to]).map(|(length, [from, to])| CopyAxis { length, from, to });
    let axes: Vec<CopyAxis> = axes.collect();
    if axes.is_empty() { vec![CopyAxis { length: 1, from: 1, to: 1 }] } else { axes }
}

/// How many neighbours are copied as one word.
fn together(axes: &[CopyAxis], size: usize, starts: [usize; 2]) -> usize {
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
    elements_of_word(size, fits)
}

/// The axes along which the source and the target are contiguous, and the others; `None` if tiles are not
/// worth it.
fn transpose(axes: &[CopyAxis]) -> Option<(CopyAxis, CopyAxis, Vec<CopyAxis>)> {
    let (target, others) = axes.split_last()?;
    if target.to != 1 || target.from == 1 || target.length < MIN_TILE {
        return None;
    }
    let at = others.iter().position(|axis| axis.from == 1 && axis.length >= MIN_TILE)?;
    let mut outer = others.to_vec();
    let source = outer.remove(at);
    Some((source, *target, outer))
}

/// A row-major copy of strided memory.
pub fn copy<G: Gpu>(stream: &Stream, data: &Data, shape: &[usize], size: usize) -> Result<Buffer> {
    let output = stream.alloc(shape.iter().product::<usize>() * size)?;
    let strides = row_major(shape);
    let to = Target { buffer: &output, offset: 0, strides: &strides, partial: false };
    copy_to::<G>(stream, data, shape, size, &to)?;
    Ok(output)
}

/// Copies all elements to a strided target.
pub fn copy_to<G: Gpu>(
    stream: &Stream,
    data: &Data,
    shape: &[usize],
    size: usize,
    target: &Target<'_>,
) -> Result<()> {
    let n: usize = shape.iter().product();
    let (from, first) = reach(data, shape, size);
    let to = target.range(shape, size);
    let mut axes = joined(shape, &data.strides, target.strides);
    let is_plain = axes.len() == 1 && axes[0].from == 1 && axes[0].to == 1;
    let indexable = axes.len() <= G::MAX_COPY_AXES && from.len().max(to.len()) / size < G::MAX_ELEMENTS;
    if n > 0 && !is_plain && !indexable {
        return copy_by_host::<G>(stream, data, shape, size, target);
    }
    let encoder = stream.command("copy").read_range(&data.buffer, from.clone());
    // A large plain copy fills its range: it leaves no byte unwritten.
    let partial = target.partial && (n == 0 || indexable);
    let encoder = if partial {
        encoder.read_write_range(target.buffer, to.clone())
    } else {
        encoder.write_range(target.buffer, to.clone())
    };
    if n == 0 {
        return Ok(encoder.run(|_| Ok(()))?);
    }
    if is_plain && !partial {
        return Ok(encoder.copy()?);
    }
    if let Some((source, inner, outer)) = transpose(&axes) {
        let starts = [from.start, to.start];
        let copy = TransposedCopy { size, source, target: inner, outer: &outer, first, starts };
        return G::transposed_copy(stream, &copy)?.encode(encoder);
    }
    let count = together(&axes, size, [from.start + first * size, to.start]);
    if let Some((inner, outer)) = axes.split_last_mut()
        && count > 1
    {
        for axis in outer {
            axis.from /= count as isize;
            axis.to /= count as isize;
        }
        inner.length /= count;
    }
    let copy = StridedCopy { word: size * count, axes: &axes, first: first / count, count: n / count };
    G::strided_copy(stream, &copy)?.encode(encoder)
}

/// A copy that kernels do not index: the host makes it contiguous.
fn copy_by_host<G: Gpu>(
    stream: &Stream,
    data: &Data,
    shape: &[usize],
    size: usize,
    target: &Target<'_>,
) -> Result<()> {
    let host = placement::default_stream(placement::Device::Cpu)?;
    let carrier = match size {
        1 => Dtype::Uint8,
        2 => Dtype::Uint16,
        4 => Dtype::Uint32,
        8 => Dtype::Uint64,
        _ => Dtype::Complex128,
    };
    let flat = backend::copy(&host, data, shape, carrier)?.on(&stream.runtime())?;
    let length: usize = shape.iter().product();
    let range = target.range(shape, size);
    if range.len() == length * size {
        return Ok(stream.command("copy").read(&flat).write_range(target.buffer, range).copy()?);
    }
    // Row by row: the target has gaps.
    let (inner, outer) = shape.split_last().map_or((1, shape), |(inner, outer)| (*inner, outer));
    let strides = row_major(shape);
    for row in 0..outer.iter().product::<usize>() {
        let (mut rest, mut at) = (row, target.offset as isize);
        for (axis, length) in outer.iter().enumerate().rev() {
            at += (rest % length) as isize * target.strides[axis];
            rest /= length;
        }
        let part = Data {
            buffer: flat.clone(),
            offset: (row * inner) as isize,
            strides: strides[outer.len()..].into(),
        };
        let to = Target { offset: at as usize, strides: &target.strides[outer.len()..], ..*target };
        copy_to::<G>(stream, &part, &shape[outer.len()..], size, &to)?;
    }
    Ok(())
}

/// Fills a range of a buffer with an element of `size` bytes.
pub fn fill<G: Gpu>(
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
    G::filled(stream, element, size, n)?.encode(encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_joined_where_both_sides_walk_through_them_as_one() {
        let axes = joined(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1]);
        assert_eq!(axes, [CopyAxis { length: 24, from: 1, to: 1 }]);
        let axes = joined(&[2, 3, 4], &[12, 1, 3], &[12, 4, 1]);
        assert_eq!(axes.len(), 3);
        assert_eq!(joined(&[1, 1], &[5, 7], &[1, 1]), [CopyAxis { length: 1, from: 1, to: 1 }]);
        // Gaps between the rows of a target prevent joining.
        assert_eq!(joined(&[2, 8], &[8, 1], &[16, 1]).len(), 2);
    }

    #[test]
    fn neighbours_move_together_only_where_everything_is_a_multiple() {
        let axes = |length, outer| {
            vec![CopyAxis { length: 3, from: outer, to: 64 }, CopyAxis { length, from: 1, to: 1 }]
        };
        assert_eq!(together(&axes(32, 96), 2, [0, 0]), 8);
        assert_eq!(together(&axes(32, 100), 2, [0, 0]), 4);
        assert_eq!(together(&axes(32, 96), 2, [4, 0]), 2);
        assert_eq!(together(&axes(33, 96), 2, [0, 0]), 1);
        assert_eq!(together(&axes(32, 96), 8, [0, 0]), 2);
    }
}
