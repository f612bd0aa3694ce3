//! Copies of strided memory, row by row: parallel, and in blocks where rows of the output are columns
//! of the input, so that both sides use whole cache lines.

use std::sync::Mutex;

use hesper_cpu::Compute;
use hesper_runtime::{Buffer, Stream};

use super::walk::{Carrier, Cursor, GRAIN, Strided, collapse, copy_range, par_chunks, with_carrier};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;

/// Rows and columns of a block.
const BLOCK: usize = 32;

/// A copy of strided memory, row by row.
pub(crate) fn copy(stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
    let output = stream.alloc(shape.iter().product::<usize>() * dtype.size())?;
    let from = Strided::new(data.clone(), shape, dtype);
    with_carrier!(dtype, encode::<_>(stream, from, &output))?;
    Ok(output)
}

fn encode<T: Carrier>(stream: &Stream, from: Strided, output: &Buffer) -> Result<()> {
    let buffer = from.data.buffer.clone();
    Ok(stream.encode("copy").read_range(&buffer, from.bytes.clone()).write(output).run(move |native| {
        let [input, output] = native.take()?;
        copy_all(output.as_mut_slice::<T>()?, input.as_slice::<T>()?, &from);
        Ok(())
    })?)
}

/// Copies all elements of `layout`.
pub(crate) fn copy_all<T: Carrier>(to: &mut [T], from: &[T], layout: &Strided) {
    if to.is_empty() {
        return;
    }
    let (shape, [strides]) = collapse(&layout.shape, [layout.strides()]);
    let last = shape.len() - 1;
    // The axis along which the input's elements are closest.
    let near = (0..last).filter(|axis| strides[*axis] != 0).min_by_key(|axis| strides[*axis].unsigned_abs());
    match near {
        Some(near)
            if strides[last].unsigned_abs() > 1
                && strides[near].unsigned_abs() < strides[last].unsigned_abs()
                && shape[near] >= 4
                && shape[last] >= 4 =>
        {
            blocks(to, from, layout.offset, &shape, &strides, near);
        }
        _ => par_chunks(to, GRAIN, |first, part| {
            copy_range(part, from, layout.offset, &shape, &strides, first);
        }),
    }
}

/// Copies in blocks of `near`'s axis and the last one.
fn blocks<T: Carrier>(
    to: &mut [T],
    from: &[T],
    offset: isize,
    shape: &[usize],
    strides: &[isize],
    near: usize,
) {
    let last = shape.len() - 1;
    let columns = shape[last];
    let (middle, middle_strides) = (&shape[near + 1..last], &strides[near + 1..last]);
    let steps: usize = middle.iter().product();
    // Elements of the output from one row of a block to the next.
    let row = steps * columns;
    let mut parts = Vec::new();
    for (outer, block) in to.chunks_mut(shape[near] * row).enumerate() {
        for (rows, part) in block.chunks_mut(BLOCK * row).enumerate() {
            parts.push((outer, rows * BLOCK, Mutex::new(part)));
        }
    }
    Compute::global().run(parts.len(), &|task| {
        let (outer, first, part) = &parts[task];
        let mut part = part.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let start = offset
            + Cursor::new(&shape[..near], [&strides[..near]], *outer).at[0]
            + *first as isize * strides[near];
        let mut walk = Cursor::new(middle, [middle_strides], 0);
        for step in 0..steps {
            let start = start + walk.at[0];
            for column in (0..columns).step_by(BLOCK) {
                let width = BLOCK.min(columns - column);
                let start = start + column as isize * strides[last];
                for (at, line) in part.chunks_mut(row).enumerate() {
                    let line = &mut line[step * columns + column..][..width];
                    let mut source = start + at as isize * strides[near];
                    for element in line {
                        *element = from[source as usize];
                        source += strides[last];
                    }
                }
            }
            walk.advance();
        }
    });
}
