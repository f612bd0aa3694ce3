//! Writes npz: a zip archive of npy files, stored or deflated.
//!
//! Data of stored members is aligned to 64 bytes, by a padding field in the local header that other readers
//! skip, so that it can be used in place. Dates are constant: equal content gives equal files.

use std::io::{self, Seek, SeekFrom, Write};

use miniz_oxide::deflate::core::{CompressorOxide, create_comp_flags_from_zip_params};
use miniz_oxide::deflate::stream::deflate;
use miniz_oxide::{MZFlush, MZStatus};

use super::{Produce, TensorSpec, npy, produce, put, require_unique};
use crate::error::{Blame, Error, Result};
use crate::format::Format;
use crate::zip::{CENTRAL, Crc32, DEFLATED, END, END64, LOCAL, LOCATOR64, STORED};

/// How members are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are; can be used in place.
    Stored,
    /// Deflated.
    Deflated,
}

/// Data of stored members starts at a multiple of this.
const ALIGNMENT: u64 = 64;
/// The id of the padding field, as used by other tools for the same purpose.
const PADDING_ID: u16 = 0xd935;
const ZIP64_ID: u16 = 1;
/// Midnight of 1 January 1980, the first that zip knows.
const DATE: u32 = 0x0021_0000;

struct Entry {
    name: String,
    method: u16,
    flags: u16,
    crc: u32,
    packed: u64,
    size: u64,
    local: u64,
}

/// Writes an npz file from the current position of `out`, which must be its start.
pub fn npz<W: Write + Seek>(
    out: &mut W,
    specs: &[TensorSpec],
    compression: Compression,
    data: &mut dyn Produce,
) -> Result<()> {
    require_unique(specs.iter().map(|spec| spec.name.as_str()), Format::Npz)?;
    // All of them first: a name that cannot be written should not cost the writing of the others.
    specs.iter().try_for_each(|spec| prepare(spec).map(|_| ()))?;
    let mut entries = Vec::with_capacity(specs.len());
    let mut at = 0;
    for (index, spec) in specs.iter().enumerate() {
        let entry = member(out, at, index, spec, compression, data)?;
        at = out.stream_position().map_err(write_error)?;
        entries.push(entry);
    }
    directory(out, at, &entries)
}

fn write_error(e: io::Error) -> Error {
    Error::io("cannot write", None, e)
}

/// What is known of a member before its data.
struct Prepared {
    name: String,
    header: Vec<u8>,
    byte_len: u64,
    size: u64,
}

fn prepare(spec: &TensorSpec) -> Result<Prepared> {
    let blame = Blame::file(Format::Npz).on(&spec.name);
    let header = npy::header(spec, Format::Npz)?;
    let byte_len = spec.byte_len(Format::Npz)?;
    let size = byte_len.checked_add(header.len() as u64).filter(|&size| size < 1 << 62);
    let size = size.ok_or_else(|| blame.unwritable("the member would pass 2^62 bytes"))?;
    let name = format!("{}.npy", spec.name);
    if name.len() > 0xffff || name.contains('\0') {
        return Err(blame.unwritable("zip cannot hold the name"));
    }
    Ok(Prepared { name, header, byte_len, size })
}

/// Writes one member and goes back to complete its header.
fn member<W: Write + Seek>(
    out: &mut W,
    local: u64,
    index: usize,
    spec: &TensorSpec,
    compression: Compression,
    data: &mut dyn Produce,
) -> Result<Entry> {
    let Prepared { name, header, byte_len, size } = prepare(spec)?;
    let deflated = compression == Compression::Deflated;
    let mut entry = Entry {
        method: if deflated { DEFLATED } else { STORED },
        flags: if name.is_ascii() { 0 } else { 1 << 11 },
        crc: 0,
        packed: 0,
        size,
        local,
        name,
    };
    // Deflated data can be a little longer than the data itself.
    let zip64 = size > 0xf000_0000;
    put(out, &entry.local_header(zip64))?;

    let mut packer = Packer {
        out,
        crc: Crc32::new(),
        packed: 0,
        // Level 6, no zlib frame.
        deflate: deflated
            .then(|| Box::new(CompressorOxide::new(create_comp_flags_from_zip_params(6, -15, 0)))),
        buffer: vec![0; if deflated { 64 << 10 } else { 0 }],
    };
    packer.write_all(&header).map_err(write_error)?;
    produce(data, index, spec, byte_len, &mut packer)?;
    packer.finish().map_err(write_error)?;
    entry.crc = packer.crc.value();
    entry.packed = packer.packed;

    let end = out.stream_position().map_err(write_error)?;
    out.seek(SeekFrom::Start(local)).map_err(write_error)?;
    put(out, &entry.local_header(zip64))?;
    out.seek(SeekFrom::Start(end)).map_err(write_error)?;
    Ok(entry)
}

impl Entry {
    /// The header before the data. Its length does not depend on `crc` and `packed`.
    fn local_header(&self, zip64: bool) -> Vec<u8> {
        let mut extra = Vec::new();
        if zip64 {
            field(&mut extra, ZIP64_ID, &[self.size.to_le_bytes(), self.packed.to_le_bytes()].concat());
        }
        if self.method == STORED {
            let fixed = self.local + 30 + self.name.len() as u64 + extra.len() as u64 + 6;
            let gap = fixed.next_multiple_of(ALIGNMENT) - fixed;
            let mut body = (ALIGNMENT as u16).to_le_bytes().to_vec();
            body.resize(2 + gap as usize, 0);
            field(&mut extra, PADDING_ID, &body);
        }
        let mut bytes = LOCAL.to_le_bytes().to_vec();
        self.common(&mut bytes, if zip64 { 45 } else { 20 });
        for value in [self.packed, self.size] {
            let value = if zip64 { u32::MAX } else { value as u32 };
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend((self.name.len() as u16).to_le_bytes());
        bytes.extend((extra.len() as u16).to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes.extend(extra);
        bytes
    }

    /// What local and central headers share, up to the CRC.
    fn common(&self, bytes: &mut Vec<u8>, version: u16) {
        bytes.extend(version.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.method.to_le_bytes());
        bytes.extend(DATE.to_le_bytes());
        bytes.extend(self.crc.to_le_bytes());
    }

    fn central_header(&self) -> Vec<u8> {
        let mut zip64 = Vec::new();
        let mut narrow = |value: u64| match u32::try_from(value) {
            Ok(value) if value != u32::MAX => value,
            _ => {
                zip64.extend(value.to_le_bytes());
                u32::MAX
            }
        };
        // The order in which the zip64 field holds them.
        let (size, packed, local) = (narrow(self.size), narrow(self.packed), narrow(self.local));
        let mut extra = Vec::new();
        if !zip64.is_empty() {
            field(&mut extra, ZIP64_ID, &zip64);
        }
        let version = if zip64.is_empty() { 20 } else { 45u16 };
        let mut bytes = CENTRAL.to_le_bytes().to_vec();
        bytes.extend((3 << 8 | version).to_le_bytes());
        self.common(&mut bytes, version);
        bytes.extend(packed.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((self.name.len() as u16).to_le_bytes());
        bytes.extend((extra.len() as u16).to_le_bytes());
        // No comment, first disk, no internal attributes; a plain file that its owner may write.
        bytes.extend([0; 6]);
        bytes.extend((0o100_644u32 << 16).to_le_bytes());
        bytes.extend(local.to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes.extend(extra);
        bytes
    }
}

fn field(extra: &mut Vec<u8>, id: u16, body: &[u8]) {
    extra.extend(id.to_le_bytes());
    extra.extend((body.len() as u16).to_le_bytes());
    extra.extend(body);
}

/// Writes the central directory and its end records.
fn directory(out: &mut dyn Write, start: u64, entries: &[Entry]) -> Result<()> {
    let mut end = start;
    for entry in entries {
        let header = entry.central_header();
        put(out, &header)?;
        end += header.len() as u64;
    }
    let (count, size) = (entries.len() as u64, end - start);
    let mut bytes = Vec::new();
    if count >= 0xffff || size >= u64::from(u32::MAX) || start >= u64::from(u32::MAX) {
        bytes.extend(END64.to_le_bytes());
        bytes.extend(44u64.to_le_bytes());
        bytes.extend((3u16 << 8 | 45).to_le_bytes());
        bytes.extend(45u16.to_le_bytes());
        bytes.extend([0; 8]);
        for value in [count, count, size, start] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(LOCATOR64.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(end.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
    }
    bytes.extend(END.to_le_bytes());
    bytes.extend([0; 4]);
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    bytes.extend(count.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(u32::try_from(start).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend([0; 2]);
    put(out, &bytes)
}

/// Counts, sums and, if asked, deflates what is written to a member.
struct Packer<'a> {
    out: &'a mut dyn Write,
    crc: Crc32,
    packed: u64,
    deflate: Option<Box<CompressorOxide>>,
    buffer: Vec<u8>,
}

impl Packer<'_> {
    fn step(&mut self, bytes: &[u8], flush: MZFlush) -> io::Result<(usize, bool)> {
        let Some(state) = &mut self.deflate else { return Ok((0, true)) };
        let result = deflate(state, bytes, &mut self.buffer, flush);
        self.out.write_all(&self.buffer[..result.bytes_written])?;
        self.packed += result.bytes_written as u64;
        match result.status {
            Ok(status) => Ok((result.bytes_consumed, status == MZStatus::StreamEnd)),
            // No room and no input is no failure of the data.
            Err(miniz_oxide::MZError::Buf) => Ok((result.bytes_consumed, false)),
            Err(e) => Err(io::Error::other(format!("cannot deflate: {e:?}"))),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        while !self.step(&[], MZFlush::Finish)?.1 {}
        Ok(())
    }
}

impl Write for Packer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let used = if self.deflate.is_some() {
            let mut used = 0;
            while used < bytes.len() {
                used += self.step(&bytes[used..], MZFlush::None)?.0;
            }
            used
        } else {
            let used = self.out.write(bytes)?;
            self.packed += used as u64;
            used
        };
        self.crc.update(&bytes[..used]);
        Ok(used)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
