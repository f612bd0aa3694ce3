//! Writes GGUF, version 3, little-endian.

use std::io::Write;

use super::{Produce, TensorSpec, pad, produce, put, require_row_major, require_unique};
use crate::error::{Blame, Result};
use crate::format::Format;
use crate::gguf::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_RANK, wire};
use crate::metadata::{MetaArray, MetaValue};

/// Writes a GGUF file. `general.alignment` in the metadata is honoured.
pub fn gguf(
    out: &mut dyn Write,
    specs: &[TensorSpec],
    metadata: &[(String, MetaValue)],
    data: &mut dyn Produce,
) -> Result<()> {
    require_row_major(specs, Format::Gguf)?;
    require_unique(specs.iter().map(|spec| spec.name.as_str()), Format::Gguf)?;
    require_unique(metadata.iter().map(|(key, _)| key.as_str()), Format::Gguf)?;
    let blame = Blame::file(Format::Gguf);
    let alignment = match metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) {
        None => DEFAULT_ALIGNMENT,
        Some((_, MetaValue::U32(v))) if v.is_power_of_two() => u64::from(*v),
        Some(_) => return Err(blame.on(ALIGNMENT_KEY).unwritable("not a 32-bit power of two")),
    };

    let mut head = Vec::new();
    head.extend(MAGIC.to_le_bytes());
    head.extend(3u32.to_le_bytes());
    head.extend((specs.len() as u64).to_le_bytes());
    head.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        string(&mut head, key);
        entry_value(&mut head, value, blame.on(key))?;
    }
    let mut offset = 0u64;
    let mut lens = Vec::with_capacity(specs.len());
    for spec in specs {
        let at = blame.on(&spec.name);
        let code =
            wire::code_of(spec.dtype).ok_or_else(|| at.unwritable(format!("no type for {}", spec.dtype)))?;
        let len = spec.byte_len(Format::Gguf)?;
        if spec.shape.len() > MAX_RANK as usize {
            return Err(at.unwritable(format!("shape {:?} has more than {MAX_RANK} dimensions", spec.shape)));
        }
        string(&mut head, &spec.name);
        head.extend((spec.shape.len() as u32).to_le_bytes());
        for dim in spec.shape.iter().rev() {
            head.extend(dim.to_le_bytes());
        }
        head.extend(code.to_le_bytes());
        head.extend(offset.to_le_bytes());
        let next = offset.checked_add(len).and_then(|end| end.checked_next_multiple_of(alignment));
        offset = next.ok_or_else(|| at.unwritable("the file would pass 2^64 bytes"))?;
        lens.push(len);
    }
    let head_len = head.len() as u64;
    put(out, &head)?;
    pad(out, head_len.next_multiple_of(alignment) - head_len)?;
    for (index, (spec, &len)) in specs.iter().zip(&lens).enumerate() {
        produce(data, index, spec, len, out)?;
        pad(out, len.next_multiple_of(alignment) - len)?;
    }
    Ok(())
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn entry_value(out: &mut Vec<u8>, value: &MetaValue, blame: Blame<'_>) -> Result<()> {
    macro_rules! number {
        ($kind:ident, $value:expr) => {{
            out.extend(wire::$kind.to_le_bytes());
            out.extend($value.to_le_bytes());
        }};
    }
    match value {
        MetaValue::U8(v) => number!(U8, v),
        MetaValue::I8(v) => number!(I8, v),
        MetaValue::U16(v) => number!(U16, v),
        MetaValue::I16(v) => number!(I16, v),
        MetaValue::U32(v) => number!(U32, v),
        MetaValue::I32(v) => number!(I32, v),
        MetaValue::U64(v) => number!(U64, v),
        MetaValue::I64(v) => number!(I64, v),
        MetaValue::F32(v) => number!(F32, v),
        MetaValue::F64(v) => number!(F64, v),
        MetaValue::Bool(v) => number!(BOOL, u8::from(*v)),
        MetaValue::String(v) => {
            out.extend(wire::STRING.to_le_bytes());
            string(out, v);
        }
        MetaValue::Array(v) => {
            out.extend(wire::ARRAY.to_le_bytes());
            array(out, v, blame, 1)?;
        }
    }
    Ok(())
}

fn array(out: &mut Vec<u8>, values: &MetaArray, blame: Blame<'_>, depth: u32) -> Result<()> {
    if depth > wire::MAX_DEPTH {
        return Err(blame.unwritable(format!("arrays are nested more than {} deep", wire::MAX_DEPTH)));
    }
    let mut head = |kind: u32| {
        out.extend(kind.to_le_bytes());
        out.extend((values.len() as u64).to_le_bytes());
    };
    macro_rules! numbers {
        ($kind:ident, $values:expr) => {{
            head(wire::$kind);
            $values.iter().for_each(|v| out.extend(v.to_le_bytes()));
        }};
    }
    match values {
        MetaArray::U8(v) => numbers!(U8, v),
        MetaArray::I8(v) => numbers!(I8, v),
        MetaArray::U16(v) => numbers!(U16, v),
        MetaArray::I16(v) => numbers!(I16, v),
        MetaArray::U32(v) => numbers!(U32, v),
        MetaArray::I32(v) => numbers!(I32, v),
        MetaArray::U64(v) => numbers!(U64, v),
        MetaArray::I64(v) => numbers!(I64, v),
        MetaArray::F32(v) => numbers!(F32, v),
        MetaArray::F64(v) => numbers!(F64, v),
        MetaArray::Bool(v) => {
            head(wire::BOOL);
            out.extend(v.iter().map(|&v| u8::from(v)));
        }
        MetaArray::String(v) => {
            head(wire::STRING);
            v.iter().for_each(|v| string(out, v));
        }
        MetaArray::Array(v) => {
            head(wire::ARRAY);
            for inner in v {
                array(out, inner, blame, depth + 1)?;
            }
        }
    }
    Ok(())
}
