//! Reads safetensors: eight bytes of header length, a JSON header, then the data.
//!
//! The format allows neither gaps nor overlaps nor bytes after the last tensor; all of that is checked here.
//! It does not align data: a tensor may start at any byte
//! ([`TensorInfo::is_aligned`](crate::TensorInfo::is_aligned)).

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::dtype::FileDtype;
use crate::error::{Blame, Error, Result, clip};
use crate::format::Format;
use crate::json::{Json, JsonError};
use crate::metadata::{MetaValue, Metadata};
use crate::source::Source;
use crate::tensor::{Layout, Limits, Storage, TensorFile, TensorInfo};

/// The header's key for metadata; no tensor can have this name.
pub(crate) const METADATA: &str = "__metadata__";

const DTYPES: [(&str, FileDtype); 22] = [
    ("BOOL", FileDtype::Bool),
    ("F4", FileDtype::F4),
    ("F6_E2M3", FileDtype::F6E2M3),
    ("F6_E3M2", FileDtype::F6E3M2),
    ("U8", FileDtype::U8),
    ("I8", FileDtype::I8),
    ("F8_E5M2", FileDtype::F8E5M2),
    ("F8_E4M3", FileDtype::F8E4M3),
    ("F8_E8M0", FileDtype::F8E8M0),
    ("F8_E4M3FNUZ", FileDtype::F8E4M3Fnuz),
    ("F8_E5M2FNUZ", FileDtype::F8E5M2Fnuz),
    ("I16", FileDtype::I16),
    ("U16", FileDtype::U16),
    ("F16", FileDtype::F16),
    ("BF16", FileDtype::BF16),
    ("I32", FileDtype::I32),
    ("U32", FileDtype::U32),
    ("F32", FileDtype::F32),
    ("C64", FileDtype::C64),
    ("F64", FileDtype::F64),
    ("I64", FileDtype::I64),
    ("U64", FileDtype::U64),
];

/// The name that the format gives a dtype; `None` if it has none.
pub(crate) fn dtype_name(dtype: FileDtype) -> Option<&'static str> {
    DTYPES.iter().find(|(_, d)| *d == dtype).map(|(name, _)| *name)
}

/// Parses a safetensors source.
pub fn parse(source: Source, limits: &Limits) -> Result<TensorFile> {
    let blame = Blame::file(Format::Safetensors);
    let mut cursor = Cursor::new(&source, 0);
    let header_len = cursor.u64(blame, "header length")?;
    cursor.require(header_len, blame, "header length")?;
    if header_len > limits.header_bytes {
        return Err(blame.limit("header length", header_len, limits.header_bytes));
    }
    let header = cursor.take(header_len, blame, "header")?;
    let header = String::from_utf8(header)
        .map_err(|e| blame.malformed("header", format!("not UTF-8: {}", e.utf8_error())))?;
    let data = cursor.position();

    let mut parser =
        Parser { limits, data, data_len: source.len() - data, tensors: Vec::new(), metadata: None };
    parser.header(&header).map_err(|stop| match stop {
        Stop::Json(e) => blame.malformed("header", e.to_string()),
        Stop::Error(e) => e,
    })?;
    let Parser { mut tensors, metadata, .. } = parser;
    require_full_cover(&mut tensors, data, source.len())?;
    let metadata = Metadata::unique(metadata.unwrap_or_default())
        .map_err(|key| blame.on(&key).malformed(METADATA, "the key is there twice"))?;
    TensorFile::assemble(Format::Safetensors, source, tensors, metadata, Vec::new())
}

/// Why parsing ends: the text is no JSON of the expected shape, or it says something wrong.
enum Stop {
    Json(JsonError),
    Error(Error),
}

impl From<JsonError> for Stop {
    fn from(e: JsonError) -> Self {
        Stop::Json(e)
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Error(e)
    }
}

struct Parser<'l> {
    limits: &'l Limits,
    data: u64,
    data_len: u64,
    tensors: Vec<TensorInfo>,
    metadata: Option<Vec<(String, MetaValue)>>,
}

impl Parser<'_> {
    fn header(&mut self, text: &str) -> Result<(), Stop> {
        if !text.starts_with('{') {
            return Err(JsonError { at: 0, expected: "'{'" }.into());
        }
        let mut json = Json::new(text);
        json.object(|json, key| {
            if key == METADATA {
                self.metadata(json)
            } else {
                let tensor = self.tensor(json, key)?;
                self.tensors.push(tensor);
                Ok(())
            }
        })?;
        Ok(json.end()?)
    }

    fn metadata(&mut self, json: &mut Json<'_>) -> Result<(), Stop> {
        if self.metadata.is_some() {
            let blame = Blame::file(Format::Safetensors);
            return Err(blame.malformed(METADATA, "the key is there twice").into());
        }
        let entries = self.metadata.insert(Vec::new());
        if json.null() {
            return Ok(());
        }
        json.object(|json, key| {
            let value = json.string()?;
            entries.push((key.into_owned(), MetaValue::String(value.into_owned())));
            Ok(())
        })
    }

    fn tensor(&self, json: &mut Json<'_>, name: Cow<'_, str>) -> Result<TensorInfo, Stop> {
        let blame = Blame::file(Format::Safetensors).on(&name);
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        json.object(|json, key| -> Result<(), Stop> {
            let twice = match key.as_ref() {
                "dtype" => {
                    let text = json.string()?;
                    let known = DTYPES.iter().find(|(name, _)| *name == text);
                    let known = known.ok_or_else(|| blame.unsupported("dtype", clip(&text)))?;
                    dtype.replace(known.1).is_some()
                }
                "shape" => shape.replace(self.shape(json, blame)?).is_some(),
                "data_offsets" => {
                    let mut pair = [0u64; 2];
                    let mut count = 0;
                    json.array(|json| -> Result<(), Stop> {
                        let value = json.u64()?;
                        if count < 2 {
                            pair[count] = value;
                        }
                        count += 1;
                        Ok(())
                    })?;
                    if count != 2 {
                        return Err(blame
                            .malformed("data_offsets", format!("{count} numbers instead of 2"))
                            .into());
                    }
                    offsets.replace(pair).is_some()
                }
                _ => {
                    json.skip()?;
                    false
                }
            };
            if twice { Err(blame.malformed("entry", format!("{key} is there twice")).into()) } else { Ok(()) }
        })?;
        let missing = |field| blame.malformed(field, "missing");
        let dtype = dtype.ok_or_else(|| missing("dtype"))?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        let [start, end] = offsets.ok_or_else(|| missing("data_offsets"))?;

        let byte_len =
            dtype.byte_len(&shape).map_err(|e| blame.malformed("shape", format!("{shape:?}: {e}")))?;
        if start > end || end > self.data_len {
            let detail = format!("{start}..{end} in {} bytes of data", self.data_len);
            return Err(blame.malformed("data_offsets", detail).into());
        }
        if end - start != byte_len {
            let detail = format!("{} bytes, but {dtype} of shape {shape:?} has {byte_len}", end - start);
            return Err(blame.malformed("data_offsets", detail).into());
        }
        Ok(TensorInfo {
            name: name.into_owned(),
            dtype,
            shape,
            layout: Layout::RowMajor,
            big_endian: false,
            storage: Storage::Plain(self.data + start..self.data + end),
            byte_len,
        })
    }

    fn shape(&self, json: &mut Json<'_>, blame: Blame<'_>) -> Result<Vec<u64>, Stop> {
        let mut shape = Vec::new();
        json.array(|json| -> Result<(), Stop> {
            if shape.len() == self.limits.rank {
                let rank = self.limits.rank as u64;
                return Err(blame.limit("rank", rank + 1, rank).into());
            }
            shape.push(json.u64()?);
            Ok(())
        })?;
        Ok(shape)
    }
}

/// Sorts tensors by their place and checks that they fill the data exactly.
fn require_full_cover(tensors: &mut [TensorInfo], data: u64, file_len: u64) -> Result<()> {
    let place = |tensor: &TensorInfo| match &tensor.storage {
        Storage::Plain(range) => (range.start, range.end),
        _ => (0, 0),
    };
    tensors.sort_by_key(place);
    let blame = Blame::file(Format::Safetensors);
    let mut covered = data;
    for tensor in tensors.iter() {
        let (start, end) = place(tensor);
        if start != covered {
            let what = if start > covered { "leaves a hole after" } else { "overlaps the tensor before" };
            let detail = format!("starts at {} and {what} byte {}", start - data, covered - data);
            return Err(blame.on(&tensor.name).malformed("data_offsets", detail));
        }
        covered = end;
    }
    if covered != file_len {
        return Err(blame.malformed("data", format!("{} bytes after the last tensor", file_len - covered)));
    }
    Ok(())
}
