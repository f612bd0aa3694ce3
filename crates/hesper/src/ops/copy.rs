//! Copies of strided memory, row by row.

use hesper_compute::{Place, copy_elements};
use hesper_cpu::Cores;
use hesper_runtime::{Buffer, NativeError, Stream};

use super::walk::{Carrier, Spread, Strided, with_carrier};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::ops::command::Commands;
use crate::shape::row_major;

/// A copy of strided memory, row by row.
pub(crate) fn copy(stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
    let runtime = stream.runtime();
    let data = &data.on(&runtime)?;
    if !runtime.info().host_visible {
        return crate::gpu::copy::copy(stream, data, shape, dtype.size());
    }
    let output = stream.alloc(shape.iter().product::<usize>() * dtype.size())?;
    let from = Strided::new(data.clone(), shape, dtype);
    with_carrier!(dtype, encode::<_>(stream, from, &output))?;
    Ok(output)
}

fn encode<T: Carrier>(stream: &Stream, from: Strided, output: &Buffer) -> Result<()> {
    let spread = from.spread();
    let command = stream.command("copy").read_range(&from.data.buffer, from.bytes.clone());
    Ok(command.write(output).run(move |native| {
        let [input, output] = native.take()?;
        copy_all(output.as_mut_slice::<T>()?, input.as_slice::<T>()?, &spread)
    })?)
}

/// Copies all elements of `layout`.
pub(crate) fn copy_all<T: Carrier>(
    to: &mut [T],
    from: &[T],
    layout: &Spread,
) -> std::result::Result<(), NativeError> {
    copy_to(to, 0, &row_major(&layout.shape), from, layout)
}

/// Copies all elements of `layout` to where strides say, the first to `at`.
pub(crate) fn copy_to<T: Carrier>(
    to: &mut [T],
    at: usize,
    strides: &[isize],
    from: &[T],
    layout: &Spread,
) -> std::result::Result<(), NativeError> {
    let source = Place { offset: layout.offset, strides: &layout.strides };
    let target = Place { offset: at as isize, strides };
    copy_elements(&Cores, &layout.shape, from, source, to, target).map_err(|error| error.to_string().into())
}
