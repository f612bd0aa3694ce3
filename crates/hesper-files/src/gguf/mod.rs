//! Reads GGUF, versions 2 and 3: metadata of all value types and tensors of all ggml types.
//!
//! Shapes are given outermost dimension first, as everywhere in this crate (the file has them innermost
//! first). Big-endian files are refused. Tensors must lie on the file's alignment and may not overlap.

mod value;
pub(crate) mod wire;

use std::ops::Range;

use crate::cursor::Cursor;
use crate::error::{Blame, Result};
use crate::format::Format;
use crate::metadata::{MetaValue, Metadata};
use crate::source::Source;
use crate::tensor::{Layout, Limits, Storage, TensorFile, TensorInfo};

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"GGUF");
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
/// ggml reads four dimensions; other programs write and read up to eight.
pub(crate) const MAX_RANK: u32 = 8;

/// Parses a GGUF source.
pub fn parse(source: Source, limits: &Limits) -> Result<TensorFile> {
    let blame = Blame::file(Format::Gguf);
    let mut cursor = Cursor::new(&source, 0).limited(limits.header_bytes);
    let magic = cursor.u32(blame, "magic")?;
    if magic == MAGIC.swap_bytes() {
        return Err(blame.unsupported("magic", "a big-endian file"));
    }
    if magic != MAGIC {
        return Err(blame.malformed("magic", "not that of a GGUF file"));
    }
    match cursor.u32(blame, "version")? {
        2 | 3 => {}
        version if (1..=0xffff).contains(&version.swap_bytes()) => {
            return Err(blame.unsupported("version", "a big-endian file"));
        }
        version => return Err(blame.unsupported("version", format!("{version}, not 2 or 3"))),
    }
    let tensor_count = cursor.u64(blame, "tensor count")?;
    let entry_count = cursor.u64(blame, "metadata count")?;
    // No list is allocated for more entries than the rest of the file, or of a header, could hold.
    require_room(&cursor, entry_count, value::MIN_ENTRY, "metadata count")?;
    require_room(&cursor, tensor_count, MIN_TENSOR, "tensor count")?;

    let mut entries = Vec::with_capacity(entry_count as usize);
    for _ in 0..entry_count {
        entries.push(value::entry(&mut cursor)?);
    }
    let metadata = Metadata::unique(entries)
        .map_err(|key| blame.on(&key).malformed("metadata key", "is there twice"))?;
    let alignment = alignment(&metadata)?;

    require_room(&cursor, tensor_count, MIN_TENSOR, "tensor count")?;
    let mut tensors = Vec::with_capacity(tensor_count as usize);
    for _ in 0..tensor_count {
        tensors.push(tensor(&mut cursor, limits)?);
    }
    let Some(data) = cursor.position().checked_next_multiple_of(alignment) else {
        return Err(blame.malformed(ALIGNMENT_KEY, format!("{alignment} is too large")));
    };
    place(&mut tensors, data, alignment, source.len())?;
    TensorFile::assemble(Format::Gguf, source, tensors, metadata, Vec::new())
}

/// Name length, rank, type and offset of a tensor of rank 0 without a name.
const MIN_TENSOR: u64 = 8 + 4 + 4 + 8;

fn require_room(cursor: &Cursor<'_>, count: u64, least: u64, field: &'static str) -> Result<()> {
    cursor.require(count.saturating_mul(least), Blame::file(Format::Gguf), field)
}

fn alignment(metadata: &Metadata) -> Result<u64> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(MetaValue::U32(v)) if v.is_power_of_two() => Ok(u64::from(*v)),
        Some(other) => {
            let blame = Blame::file(Format::Gguf).on(ALIGNMENT_KEY);
            let detail = match other {
                MetaValue::U32(v) => format!("{v} is no power of two"),
                _ => "not a 32-bit unsigned integer".to_owned(),
            };
            Err(blame.malformed("metadata value", detail))
        }
    }
}

/// One tensor's description. Its storage holds the offset as the file gives it, until it is placed.
fn tensor(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<TensorInfo> {
    let name = value::string(cursor, Blame::file(Format::Gguf), "tensor name")?;
    let blame = Blame::file(Format::Gguf).on(&name);
    let rank = cursor.u32(blame, "rank")?;
    let max_rank = MAX_RANK.min(u32::try_from(limits.rank).unwrap_or(MAX_RANK));
    if rank > max_rank {
        return Err(blame.limit("rank", rank.into(), max_rank.into()));
    }
    let mut shape = Vec::with_capacity(rank as usize);
    for _ in 0..rank {
        shape.push(cursor.u64(blame, "dimension")?);
    }
    shape.reverse();
    let code = cursor.u32(blame, "type")?;
    let dtype = wire::dtype_of(code).ok_or_else(|| blame.unsupported("type", format!("ggml type {code}")))?;
    let byte_len = dtype.byte_len(&shape).map_err(|e| blame.malformed("shape", format!("{shape:?}: {e}")))?;
    let offset = cursor.u64(blame, "offset")?;
    Ok(TensorInfo {
        name,
        dtype,
        shape,
        layout: Layout::RowMajor,
        big_endian: false,
        storage: Storage::Plain(offset..offset),
        byte_len,
    })
}

/// Turns offsets into ranges of the source, sorted, within the file, aligned and without overlap.
fn place(tensors: &mut [TensorInfo], data: u64, alignment: u64, file_len: u64) -> Result<()> {
    let format = Blame::file(Format::Gguf);
    for tensor in tensors.iter_mut() {
        let Storage::Plain(Range { start: offset, .. }) = tensor.storage else { continue };
        let blame = format.on(&tensor.name);
        if offset % alignment != 0 {
            return Err(blame.malformed("offset", format!("{offset} is no multiple of {alignment}")));
        }
        let start = data.checked_add(offset);
        let range = start.and_then(|start| Some(start..start.checked_add(tensor.byte_len)?));
        // An empty tensor may stand at the end of a file that was not padded.
        let fits = |range: &Range<u64>| range.end <= file_len || (tensor.byte_len == 0 && offset == 0);
        let Some(range) = range.filter(fits) else {
            let detail = format!(
                "{} bytes at {offset} of data that starts at {data}, but the file has {file_len}",
                tensor.byte_len
            );
            return Err(blame.malformed("offset", detail));
        };
        tensor.storage = Storage::Plain(range.start.min(file_len)..range.end.min(file_len));
    }
    let start_of = |tensor: &TensorInfo| match &tensor.storage {
        Storage::Plain(range) => range.clone(),
        _ => 0..0,
    };
    tensors.sort_by_key(|tensor| (start_of(tensor).start, start_of(tensor).end));
    for pair in tensors.windows(2) {
        if start_of(&pair[0]).end > start_of(&pair[1]).start {
            let detail =
                format!("{:?} overlaps {:?} of {:?}", start_of(&pair[1]), start_of(&pair[0]), pair[0].name);
            return Err(format.on(&pair[1].name).malformed("offset", detail));
        }
    }
    Ok(())
}
