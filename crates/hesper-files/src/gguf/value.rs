//! Reads GGUF metadata: strings, numbers, and arrays of them, nested to a limit.
//!
//! A count is believed only after the bytes that it stands for were found to be in the file.

use super::wire;
use crate::cursor::Cursor;
use crate::error::{Blame, Result};
use crate::format::Format;
use crate::metadata::{MetaArray, MetaValue};

/// Bytes of the smallest entry: an empty key, a type, a value of one byte.
pub(super) const MIN_ENTRY: u64 = 8 + 4 + 1;

/// A key and its value.
pub(super) fn entry(cursor: &mut Cursor<'_>) -> Result<(String, MetaValue)> {
    let key = string(cursor, Blame::file(Format::Gguf), "metadata key")?;
    let blame = Blame::file(Format::Gguf).on(&key);
    let kind = cursor.u32(blame, "metadata type")?;
    let value = value(cursor, kind, blame)?;
    Ok((key, value))
}

/// A length and as many bytes of UTF-8.
pub(super) fn string(cursor: &mut Cursor<'_>, blame: Blame<'_>, field: &'static str) -> Result<String> {
    let len = cursor.u64(blame, field)?;
    let bytes = cursor.take(len, blame, field)?;
    String::from_utf8(bytes).map_err(|e| blame.malformed(field, format!("not UTF-8: {}", e.utf8_error())))
}

fn value(cursor: &mut Cursor<'_>, kind: u32, blame: Blame<'_>) -> Result<MetaValue> {
    const FIELD: &str = "metadata value";
    macro_rules! number {
        ($variant:ident, $type:ty) => {
            MetaValue::$variant(<$type>::from_le_bytes(cursor.array(blame, FIELD)?))
        };
    }
    Ok(match kind {
        wire::U8 => number!(U8, u8),
        wire::I8 => number!(I8, i8),
        wire::U16 => number!(U16, u16),
        wire::I16 => number!(I16, i16),
        wire::U32 => number!(U32, u32),
        wire::I32 => number!(I32, i32),
        wire::U64 => number!(U64, u64),
        wire::I64 => number!(I64, i64),
        wire::F32 => number!(F32, f32),
        wire::F64 => number!(F64, f64),
        wire::BOOL => MetaValue::Bool(boolean(cursor.array::<1>(blame, FIELD)?[0], blame)?),
        wire::STRING => MetaValue::String(string(cursor, blame, FIELD)?),
        wire::ARRAY => MetaValue::Array(array(cursor, blame, 1)?),
        other => return Err(blame.unsupported("metadata type", format!("{other}"))),
    })
}

fn boolean(byte: u8, blame: Blame<'_>) -> Result<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(blame.malformed("metadata value", format!("{other} is no boolean"))),
    }
}

fn array(cursor: &mut Cursor<'_>, blame: Blame<'_>, depth: u32) -> Result<MetaArray> {
    const FIELD: &str = "metadata array";
    if depth > wire::MAX_DEPTH {
        return Err(blame.limit("nesting of a metadata array", depth.into(), wire::MAX_DEPTH.into()));
    }
    let kind = cursor.u32(blame, FIELD)?;
    let count = cursor.u64(blame, FIELD)?;
    // The least that each element takes in the file.
    let least = match kind {
        wire::U8 | wire::I8 | wire::BOOL => 1,
        wire::U16 | wire::I16 => 2,
        wire::U32 | wire::I32 | wire::F32 => 4,
        wire::U64 | wire::I64 | wire::F64 | wire::STRING => 8,
        wire::ARRAY => 12,
        other => return Err(blame.unsupported("metadata type", format!("array of {other}"))),
    };
    let total = count.saturating_mul(least);
    cursor.require(total, blame, FIELD)?;
    let count = usize::try_from(count).map_err(|_| blame.limit(FIELD, count, usize::MAX as u64))?;
    macro_rules! numbers {
        ($variant:ident, $type:ty) => {{
            let bytes = cursor.take(total, blame, FIELD)?;
            let (parts, _) = bytes.as_chunks::<{ size_of::<$type>() }>();
            MetaArray::$variant(parts.iter().map(|part| <$type>::from_le_bytes(*part)).collect())
        }};
    }
    Ok(match kind {
        wire::U8 => MetaArray::U8(cursor.take(total, blame, FIELD)?),
        wire::I8 => numbers!(I8, i8),
        wire::U16 => numbers!(U16, u16),
        wire::I16 => numbers!(I16, i16),
        wire::U32 => numbers!(U32, u32),
        wire::I32 => numbers!(I32, i32),
        wire::F32 => numbers!(F32, f32),
        wire::U64 => numbers!(U64, u64),
        wire::I64 => numbers!(I64, i64),
        wire::F64 => numbers!(F64, f64),
        wire::BOOL => {
            let bytes = cursor.take(total, blame, FIELD)?;
            MetaArray::Bool(bytes.into_iter().map(|byte| boolean(byte, blame)).collect::<Result<_>>()?)
        }
        wire::STRING => {
            let mut strings = Vec::with_capacity(count);
            for _ in 0..count {
                strings.push(string(cursor, blame, FIELD)?);
            }
            MetaArray::String(strings)
        }
        _ => {
            let mut arrays = Vec::with_capacity(count);
            for _ in 0..count {
                arrays.push(array(cursor, blame, depth + 1)?);
            }
            MetaArray::Array(arrays)
        }
    })
}
