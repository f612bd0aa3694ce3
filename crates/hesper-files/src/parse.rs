//! Parses a source of any format.

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::Format;
use crate::source::Source;
use crate::tensor::{Limits, TensorFile};
use crate::{gguf, npy, npz, safetensors};

impl TensorFile {
    /// Opens and parses a file; reads its header only.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(Source::open(path)?).map_err(|e| e.in_file(path))
    }

    /// Parses a source of whatever format its first bytes say.
    pub fn parse(source: Source) -> Result<Self> {
        Self::parse_with(source, &Limits::default())
    }

    /// Parses a source within limits.
    pub fn parse_with(source: Source, limits: &Limits) -> Result<Self> {
        let format = detect(&source)?;
        Self::parse_as(source, format, limits)
    }

    /// Parses a source as a format, whatever its first bytes say.
    pub fn parse_as(source: Source, format: Format, limits: &Limits) -> Result<Self> {
        match format {
            Format::Npy => npy::parse(source, limits),
            Format::Npz => npz::parse(source, limits),
            Format::Gguf => gguf::parse(source, limits),
            Format::Safetensors | Format::ShardIndex => safetensors::parse(source, limits),
        }
    }
}

/// The format that the first bytes announce.
pub(crate) fn detect(source: &Source) -> Result<Format> {
    let mut head = [0u8; 9];
    let len = source.len().min(head.len() as u64) as usize;
    source.read_into(0, &mut head[..len])?;
    let head = &head[..len];
    if head.starts_with(b"GGUF") || head.starts_with(b"FUGG") {
        Ok(Format::Gguf)
    } else if head.starts_with(npy::MAGIC) {
        Ok(Format::Npy)
    } else if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        Ok(Format::Npz)
    } else if head.get(8) == Some(&b'{') {
        Ok(Format::Safetensors)
    } else if head.is_empty() {
        Err(Error::UnknownFormat("the file is empty".into()))
    } else {
        Err(Error::UnknownFormat(format!("it begins with {:02x?}", head)))
    }
}
