//! Writes npy.

use std::io::Write;

use super::{Produce, TensorSpec, produce, put};
use crate::error::{Blame, Result};
use crate::format::Format;
use crate::npy::{MAGIC, descr};
use crate::tensor::Layout;

/// Writes an npy file. The spec's name is not written.
pub fn npy(out: &mut dyn Write, spec: &TensorSpec, data: &mut dyn Produce) -> Result<()> {
    let byte_len = spec.byte_len(Format::Npy)?;
    put(out, &header(spec, Format::Npy)?)?;
    produce(data, 0, spec, byte_len, out)
}

/// All bytes before the data. Its length is a multiple of 64.
pub(super) fn header(spec: &TensorSpec, format: Format) -> Result<Vec<u8>> {
    let blame = Blame::file(format).on(&spec.name);
    let descr = descr(spec.dtype).ok_or_else(|| blame.unwritable(format!("no dtype for {}", spec.dtype)))?;
    let fortran = if spec.layout == Layout::ColumnMajor { "True" } else { "False" };
    let shape = match spec.shape.as_slice() {
        [dim] => format!("({dim},)"),
        dims => format!("({})", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let Ok(len) = u16::try_from(text.len()) else {
        return Err(blame.unwritable("too many dimensions"));
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend(len.to_le_bytes());
    bytes.extend(text.as_bytes());
    Ok(bytes)
}
