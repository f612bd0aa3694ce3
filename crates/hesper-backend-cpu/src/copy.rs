//! Row-major copies of strided memory.

use crate::walk::{ElementLayout, Strided};
use hesper_compute::{StridedView, copy_elements};
use hesper_core::backend::Data;
use hesper_core::ops::command::Commands;
use hesper_core::shape::row_major;
use hesper_core::{Dtype, Result};
use hesper_cpu::Cores;
use hesper_runtime::{Buffer, NativeError, Stream};

/// A type that carries the bits of any element of its size.
pub(crate) trait Carrier: bytemuck::Pod + Send + Sync {}
impl Carrier for u8 {}
impl Carrier for u16 {}
impl Carrier for u32 {}
impl Carrier for u64 {}
impl Carrier for [u64; 2] {}

/// Calls a generic function with the carrier of a type's size.
macro_rules! with_carrier {
    ($dtype:expr, $method:ident :: <_>($($argument:expr),*)) => {
        match $dtype.size() {
            1 => $method::<u8>($($argument),*),
            2 => $method::<u16>($($argument),*),
            4 => $method::<u32>($($argument),*),
            8 => $method::<u64>($($argument),*),
            _ => $method::<[u64; 2]>($($argument),*),
        }
    };
}
pub(crate) use with_carrier;

/// A row-major copy of strided memory.
pub(crate) fn copy(stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
    let output = stream.alloc(shape.iter().product::<usize>() * dtype.size())?;
    let from = Strided::new(data.clone(), shape, dtype);
    with_carrier!(dtype, encode::<_>(stream, from, &output))?;
    Ok(output)
}

fn encode<T: Carrier>(stream: &Stream, from: Strided, output: &Buffer) -> Result<()> {
    let layout = from.layout();
    let command = stream.command("copy").read_range(&from.data.buffer, from.bytes.clone());
    Ok(command.write(output).run(move |native| {
        let [input, output] = native.take()?;
        copy_all(output.as_mut_slice::<T>()?, input.as_slice::<T>()?, &layout)
    })?)
}

/// Copies all elements of `layout`, row-major.
pub(crate) fn copy_all<T: Carrier>(
    to: &mut [T],
    from: &[T],
    layout: &ElementLayout,
) -> std::result::Result<(), NativeError> {
    copy_to(to, 0, &row_major(&layout.shape), from, layout)
}

/// Copies all elements of `layout` to where `strides` place them, the first to `at`.
pub(crate) fn copy_to<T: Carrier>(
    to: &mut [T],
    at: usize,
    strides: &[isize],
    from: &[T],
    layout: &ElementLayout,
) -> std::result::Result<(), NativeError> {
    let source = StridedView { offset: layout.offset, strides: &layout.strides };
    let target = StridedView { offset: at as isize, strides };
    copy_elements(&Cores, &layout.shape, from, source, to, target).map_err(crate::refused)
}
