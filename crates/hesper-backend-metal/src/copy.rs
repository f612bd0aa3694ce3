//! Copies of strided memory, and what is made of them.
//!
//! Axes are joined where both strides allow it, and neighbours are copied in words of up to sixteen bytes. If
//! source and target are contiguous along different axes, tiles go through threadgroup memory.

use std::ops::Range;

use hesper_compute::joined_axes;
use hesper_core::backend::{self, Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::concat::Concatenate;
use hesper_core::shape::row_major;
use hesper_core::{Dtype, Result, placement};
use hesper_runtime::{Buffer, Stream};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, word};
use crate::walk::{MAX_AXES, walk};

const TEXT: &str = include_str!("kernels/copy.metal");
/// Side of a tile of the text.
const TILE: usize = 32;
/// Shortest axes that are worth a tile.
const MIN_TILE: usize = 8;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Concatenate>()
}

/// One axis: its length, and its strides in the source and in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    length: usize,
    from: isize,
    to: isize,
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

/// Where a copy goes.
pub(crate) struct Target<'a> {
    pub(crate) buffer: &'a Buffer,
    /// Of the first element, in elements.
    pub(crate) offset: usize,
    /// Positive strides.
    pub(crate) strides: &'a [isize],
    /// Whether the copy leaves bytes of the target unwritten.
    pub(crate) partial: bool,
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

/// A copy of strided memory, row by row.
pub(crate) fn copy(stream: &Stream, data: &Data, shape: &[usize], size: usize) -> Result<Buffer> {
    let output = stream.alloc(shape.iter().product::<usize>() * size)?;
    let strides = row_major(shape);
    let to = Target { buffer: &output, offset: 0, strides: &strides, partial: false };
    copy_to(stream, data, shape, size, &to)?;
    Ok(output)
}

/// Copies all elements to a strided target.
pub(crate) fn copy_to(
    stream: &Stream,
    data: &Data,
    shape: &[usize],
    size: usize,
    target: &Target<'_>,
) -> Result<()> {
    let n: usize = shape.iter().product();
    let (from, first) = reach(data, shape, size);
    let to = target.range(shape, size);
    let axes = joined_axes(shape, [&data.strides, target.strides]);
    let mut axes: Vec<Axis> = axes.map(|(length, [from, to])| Axis { length, from, to }).collect();
    let is_plain = axes.is_empty() || axes.len() == 1 && axes[0].from == 1 && axes[0].to == 1;
    let indexable = from.len().max(to.len()) / size < 1 << 31 && axes.len() <= MAX_AXES;
    if n > 0 && !is_plain && !indexable {
        return copy_by_host(stream, data, shape, size, target);
    }
    let encoder = stream.command("copy").read_range(&data.buffer, from.clone());
    let encoder = if target.partial {
        encoder.read_write_range(target.buffer, to.clone())
    } else {
        encoder.write_range(target.buffer, to.clone())
    };
    if n == 0 {
        return Ok(encoder.run(|_| Ok(()))?);
    }
    if is_plain && !target.partial {
        return Ok(encoder.copy()?);
    }
    if let Some((tiles, inner, outer)) = transpose(&axes) {
        let constants = dims(&outer).sizes(&[first, tiles.length, inner.length]);
        let constants = constants.int(tiles.from).int(inner.to);
        let entry = format!("transposed<{}>", word(size));
        let outer = outer.iter().map(|axis| axis.length).product();
        let groups = [tiles.length.div_ceil(TILE), inner.length.div_ceil(TILE), outer];
        return Kernel { text: TEXT, entry: &entry }.groups(stream, encoder, &constants, groups, 256);
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
    let entry = format!("strided<{}>", word(size * count));
    let constants = dims(&axes).sizes(&[first / count]);
    Kernel { text: TEXT, entry: &entry }.elements(stream, encoder, &constants, n / count)
}

/// The axis along which the target is contiguous, the one along which the source is, and the others.
fn transpose(axes: &[Axis]) -> Option<(Axis, Axis, Vec<Axis>)> {
    let (last, others) = axes.split_last()?;
    let at = others.iter().position(|axis| axis.from == 1 && axis.length >= MIN_TILE)?;
    if last.to != 1 || last.length < MIN_TILE {
        return None;
    }
    let mut outer = others.to_vec();
    let inner = outer.remove(at);
    Some((*last, inner, outer))
}

fn dims(axes: &[Axis]) -> Constants {
    let one = [Axis { length: 1, from: 0, to: 0 }];
    let axes = if axes.is_empty() { &one[..] } else { axes };
    let side = |of: fn(&Axis) -> isize| axes.iter().map(|axis| (axis.length, of(axis))).collect::<Vec<_>>();
    walk(walk(Constants::default(), &side(|axis| axis.from)), &side(|axis| axis.to))
}

/// A copy that kernels do not index: the host makes it contiguous.
fn copy_by_host(
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
        copy_to(stream, &part, &shape[outer.len()..], size, &to)?;
    }
    Ok(())
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
    let element = u64::from_le_bytes(element);
    let constants = Constants::default().word(element as u32).word((element >> 32) as u32);
    let entry = format!("filled<{}>", word(size));
    Kernel { text: TEXT, entry: &entry }.elements(stream, encoder, &constants, n)
}

impl Lower<Concatenate> for MetalBackend {
    fn lower(op: &Concatenate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let output = l.output()?;
        let strides = row_major(l.shape());
        let size = l.dtype().size();
        let mut first = 0;
        for at in 0..l.input_count() {
            let shape = l.input_shape(at);
            let to = Target { buffer: &output, offset: first, strides: &strides, partial: false };
            copy_to(l.stream(), l.input(at), shape, size, &to)?;
            first += shape[op.0] * strides[op.0] as usize;
        }
        if l.input_count() == 0 || output.is_empty() {
            l.stream().command("concatenate").write(&output).run(|_| Ok(()))?;
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
