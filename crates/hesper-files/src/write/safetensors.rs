//! Writes safetensors.

use std::fmt::Write as _;
use std::io::Write;

use super::{Produce, TensorSpec, produce, put, require_row_major, require_unique};
use crate::error::{Blame, Result};
use crate::format::Format;
use crate::json::quote;
use crate::safetensors::{METADATA, dtype_name};
use crate::tensor::Limits;

/// Writes a safetensors file.
///
/// Tensors lie in the file by falling alignment, else in the given order, so that each is aligned.
pub fn safetensors(
    out: &mut dyn Write,
    specs: &[TensorSpec],
    metadata: &[(String, String)],
    data: &mut dyn Produce,
) -> Result<()> {
    let blame = Blame::file(Format::Safetensors);
    require_row_major(specs, Format::Safetensors)?;
    require_unique(specs.iter().map(|spec| spec.name.as_str()), Format::Safetensors)?;
    require_unique(metadata.iter().map(|(key, _)| key.as_str()), Format::Safetensors)?;
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(specs[i].dtype.alignment()));

    let mut header = String::from("{");
    if !metadata.is_empty() {
        quote(&mut header, METADATA);
        header.push_str(":{");
        for (i, (key, value)) in metadata.iter().enumerate() {
            if i > 0 {
                header.push(',');
            }
            quote(&mut header, key);
            header.push(':');
            quote(&mut header, value);
        }
        header.push('}');
    }
    let mut offset = 0u64;
    let mut lens = Vec::with_capacity(specs.len());
    for &i in &order {
        let spec = &specs[i];
        let at = blame.on(&spec.name);
        if spec.name == METADATA {
            return Err(at.unwritable("the name is the format's own"));
        }
        let dtype =
            dtype_name(spec.dtype).ok_or_else(|| at.unwritable(format!("no dtype for {}", spec.dtype)))?;
        let len = spec.byte_len(Format::Safetensors)?;
        let end = offset.checked_add(len).ok_or_else(|| at.unwritable("the file would pass 2^64 bytes"))?;
        if header.len() > 1 {
            header.push(',');
        }
        quote(&mut header, &spec.name);
        let shape = spec.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        // Writing to a string cannot fail.
        let _ = write!(header, r#":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{offset},{end}]}}"#);
        offset = end;
        lens.push(len);
    }
    header.push('}');
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let limit = Limits::default().header_bytes;
    if header.len() as u64 > limit {
        return Err(blame.limit("header length", header.len() as u64, limit));
    }

    put(out, &(header.len() as u64).to_le_bytes())?;
    put(out, header.as_bytes())?;
    for (&i, &len) in order.iter().zip(&lens) {
        produce(data, i, &specs[i], len, out)?;
    }
    Ok(())
}
