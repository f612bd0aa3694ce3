//! What all formats parse into: tensors by name, each with its dtype, shape and place in the source.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;

use crate::dtype::{FileDtype, elements};
use crate::error::{Blame, Error, Result};
use crate::format::Format;
use crate::metadata::Metadata;
use crate::source::Source;
use crate::zip;

/// Bounds on what a file may ask for, beyond what its size already bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a safetensors, npy or GGUF header, or of a shard index.
    pub header_bytes: u64,
    /// Dimensions of a tensor.
    pub rank: usize,
    /// Bytes that all compressed members of an npz may inflate to.
    pub inflated_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { header_bytes: 100_000_000, rank: 64, inflated_bytes: 64 << 30 }
    }
}

/// The order of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The last dimension varies fastest.
    RowMajor,
    /// The first dimension varies fastest (npy's Fortran order).
    ColumnMajor,
}

/// Where and how a tensor's bytes lie in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// As they are.
    Plain(Range<u64>),
    /// In a member of an archive that is stored as it is; `crc` is of the whole member.
    Member {
        /// The tensor's bytes.
        data: Range<u64>,
        /// The member: npy header and data.
        member: Range<u64>,
        /// CRC-32 of the member.
        crc: u32,
    },
    /// In a DEFLATE stream.
    Deflated {
        /// The compressed member.
        compressed: Range<u64>,
        /// Inflated bytes before the data (the npy header).
        header: u64,
        /// CRC-32 of the inflated member.
        crc: u32,
    },
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, unique in the file.
    pub name: String,
    /// Its element type.
    pub dtype: FileDtype,
    /// Its shape, outermost dimension first, whatever the layout.
    pub shape: Vec<u64>,
    /// Its element order.
    pub layout: Layout,
    /// Whether elements lie in the file most significant byte first. Reading converts.
    pub big_endian: bool,
    /// Its place in the source.
    pub storage: Storage,
    /// Its size in bytes, uncompressed. Checked against dtype and shape.
    pub byte_len: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        elements(&self.shape).unwrap_or(u64::MAX)
    }

    /// The bytes in the source that can be used as they are: not compressed, little-endian.
    pub fn in_place(&self) -> Option<Range<u64>> {
        match &self.storage {
            Storage::Plain(data) | Storage::Member { data, .. } if !self.big_endian => Some(data.clone()),
            _ => None,
        }
    }

    /// Whether the tensor starts at a multiple of its dtype's alignment (mappings start at a page).
    pub fn is_aligned(&self) -> bool {
        self.in_place().is_some_and(|range| range.start % self.dtype.alignment() == 0)
    }
}

/// A parsed file: its tensors in the order of their data, its metadata, and the source of its bytes.
#[derive(Clone, Debug)]
pub struct TensorFile {
    format: Format,
    source: Source,
    tensors: Vec<TensorInfo>,
    /// Indices of `tensors`, sorted by name.
    by_name: Vec<usize>,
    metadata: Metadata,
    ignored: Vec<String>,
}

impl TensorFile {
    /// Puts a file together; names must be unique.
    pub(crate) fn assemble(
        format: Format,
        source: Source,
        tensors: Vec<TensorInfo>,
        metadata: Metadata,
        ignored: Vec<String>,
    ) -> Result<Self> {
        let mut by_name: Vec<usize> = (0..tensors.len()).collect();
        by_name.sort_unstable_by(|&a, &b| tensors[a].name.cmp(&tensors[b].name));
        if let Some(pair) = by_name.windows(2).find(|pair| tensors[pair[0]].name == tensors[pair[1]].name) {
            let blame = Blame::file(format).on(&tensors[pair[0]].name);
            return Err(blame.malformed("name", "two tensors have this name"));
        }
        Ok(TensorFile { format, source, tensors, by_name, metadata, ignored })
    }

    /// The format it was read as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Where the bytes come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// All tensors in the order of their data.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Members of an npz that are no arrays.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The position of a tensor in [`tensors`](Self::tensors).
    pub fn index_of(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|&i| self.tensors[i].name.as_str().cmp(name));
        found.ok().map(|at| self.by_name[at])
    }

    /// A tensor by name.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.index_of(name).map(|i| &self.tensors[i])
    }

    /// A tensor by name, or an error if there is none.
    pub fn require(&self, name: &str) -> Result<&TensorInfo> {
        self.get(name).ok_or_else(|| Error::NoTensor(name.to_owned()))
    }

    /// The tensor's bytes in place, or `None` if they must be copied or converted.
    ///
    /// The source must be [checked](Source::check) after the bytes were used.
    pub fn in_place(&self, tensor: &TensorInfo) -> Result<Option<&[u8]>> {
        match tensor.in_place() {
            Some(range) => self.source.in_place(range),
            None => Ok(None),
        }
    }

    /// The tensor's bytes, little-endian and inflated: in place where possible.
    ///
    /// Bytes in place must be [checked](Source::check) after they were used; copies are checked already.
    pub fn read(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>> {
        self.check_range(tensor)?;
        if let Some(bytes) = self.in_place(tensor)? {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = Vec::new();
        let fits = usize::try_from(tensor.byte_len).ok().filter(|&len| bytes.try_reserve_exact(len).is_ok());
        let Some(len) = fits else {
            let cause = std::io::ErrorKind::OutOfMemory.into();
            return Err(Error::io("cannot hold a tensor of", self.source.path(), cause));
        };
        bytes.resize(len, 0);
        self.read_into(tensor, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Fails if the source is too short for a tensor, before memory is allocated for it.
    pub fn check_range(&self, tensor: &TensorInfo) -> Result<()> {
        let len = self.source.len();
        match tensor.storage {
            Storage::Plain(Range { start, end }) if end > len => Err(Error::OutOfRange { start, end, len }),
            _ => Ok(()),
        }
    }

    /// Copies the tensor's bytes, little-endian and inflated, and checks them.
    pub fn read_into(&self, tensor: &TensorInfo, out: &mut [u8]) -> Result<()> {
        if out.len() as u64 != tensor.byte_len {
            let name = tensor.name.clone();
            return Err(Error::BufferSize { name, expected: tensor.byte_len, given: out.len() as u64 });
        }
        match &tensor.storage {
            Storage::Plain(data) | Storage::Member { data, .. } => self.source.read_into(data.start, out)?,
            Storage::Deflated { compressed, header, crc } => {
                let blame = Blame::file(self.format).on(&tensor.name);
                zip::inflate(&self.source, compressed.clone(), *header, out, *crc, blame)?;
            }
        }
        if tensor.big_endian {
            swap_bytes(out, tensor.dtype.swap_unit());
        }
        Ok(())
    }

    /// Writes the tensor's bytes, little-endian and inflated, to `out`, piece by piece, each of them checked.
    ///
    /// Use it to copy a tensor from one file to another. Bytes in place are checked only after use; here
    /// nothing of a file that was truncated meanwhile gets into the copy unnoticed.
    pub fn copy_to(&self, tensor: &TensorInfo, out: &mut dyn Write) -> Result<()> {
        const PIECE: u64 = 1 << 20;
        let failed = |e| Error::io("cannot write", None, e);
        let Some(range) = tensor.in_place() else {
            return out.write_all(&self.read(tensor)?).map_err(failed);
        };
        let mut piece = vec![0; (range.end - range.start).min(PIECE) as usize];
        let mut at = range.start;
        while at < range.end {
            let piece = &mut piece[..(range.end - at).min(PIECE) as usize];
            self.source.read_into(at, piece)?;
            out.write_all(piece).map_err(failed)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Reads all of a tensor of an archive and compares its checksum. The other formats have none.
    ///
    /// Compressed members are verified by every read; stored ones, which are used in place, only by this.
    pub fn verify(&self, tensor: &TensorInfo) -> Result<()> {
        match &tensor.storage {
            Storage::Plain(data) => self.source.check(data.clone()),
            Storage::Member { member, crc, .. } => {
                let blame = Blame::file(self.format).on(&tensor.name);
                zip::verify(&self.source, member.clone(), *crc, blame)
            }
            Storage::Deflated { compressed, header, crc } => {
                let blame = Blame::file(self.format).on(&tensor.name);
                zip::verify_deflated(&self.source, compressed.clone(), header + tensor.byte_len, *crc, blame)
            }
        }
    }
}

/// Reverses the bytes of every element of `unit` bytes.
pub(crate) fn swap_bytes(bytes: &mut [u8], unit: usize) {
    if unit > 1 {
        bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    }
}
