//! As much of zip as npz needs: the central directory, stored and deflated members, zip64.
//!
//! Sizes and places come from the central directory alone, so data descriptors need no care; the local header
//! must agree with it. Members may not overlap each other or the directory (the trick of the densest bombs),
//! and a declared size that DEFLATE cannot reach from the compressed one is refused.

use std::ops::Range;

use miniz_oxide::inflate::stream::{InflateState, inflate as inflate_step};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

use crate::cursor::Cursor;
use crate::error::{Blame, Result, clip};
use crate::source::Source;

pub(crate) const LOCAL: u32 = 0x0403_4b50;
pub(crate) const CENTRAL: u32 = 0x0201_4b50;
pub(crate) const END: u32 = 0x0605_4b50;
pub(crate) const END64: u32 = 0x0606_4b50;
pub(crate) const LOCATOR64: u32 = 0x0706_4b50;

/// DEFLATE's best ratio: two bits for 258 bytes.
const MAX_RATIO: u64 = 1032;

pub(crate) const STORED: u16 = 0;
pub(crate) const DEFLATED: u16 = 8;

/// A member of an archive.
#[derive(Debug)]
pub(crate) struct Member {
    pub name: String,
    pub deflated: bool,
    pub crc: u32,
    /// Its bytes in the source, compressed or not.
    pub data: Range<u64>,
    /// Its size, uncompressed.
    pub size: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Where the central directory lies and how many entries it has.
struct Directory {
    range: Range<u64>,
    entries: u64,
}

fn directory(source: &Source, blame: Blame<'_>) -> Result<Directory> {
    const RECORD: usize = 22;
    let tail_len = source.len().min((RECORD + 0xffff) as u64);
    let tail_start = source.len() - tail_len;
    let tail = Cursor::new(source, tail_start).take(tail_len, blame, "end of central directory")?;
    let at = (0..tail.len().saturating_sub(RECORD - 1)).rev().find(|&at| {
        u32_at(&tail, at) == END && at + RECORD + usize::from(u16_at(&tail, at + 20)) == tail.len()
    });
    let Some(at) = at else {
        return Err(blame.malformed("end of central directory", "not found"));
    };
    let record = &tail[at..];
    let end = tail_start + at as u64;
    let (disk, entries_here) = (u16_at(record, 4), u16_at(record, 8));
    let (entries, size, start) = (u16_at(record, 10), u32_at(record, 12), u32_at(record, 16));
    let mut found = Directory {
        range: u64::from(start)..u64::from(start) + u64::from(size),
        entries: u64::from(entries),
    };
    let mut limit = end;
    if entries == 0xffff || size == u32::MAX || start == u32::MAX {
        if let Some((directory, record_start)) = directory64(source, end, blame)? {
            found = directory;
            limit = record_start;
        }
    } else if disk != 0 || entries_here != entries {
        return Err(blame.unsupported("end of central directory", "an archive in several parts"));
    }
    if found.range.end > limit {
        let detail = format!("{:?} lies outside of the {limit} bytes before its end record", found.range);
        return Err(blame.malformed("central directory", detail));
    }
    Ok(found)
}

/// The zip64 end record, if a locator lies right before `end`; with the place of the record.
fn directory64(source: &Source, end: u64, blame: Blame<'_>) -> Result<Option<(Directory, u64)>> {
    let Some(locator_at) = end.checked_sub(20) else { return Ok(None) };
    let mut locator = [0; 20];
    source.read_into(locator_at, &mut locator)?;
    if u32_at(&locator, 0) != LOCATOR64 {
        return Ok(None);
    }
    let at = u64_at(&locator, 8);
    if at.checked_add(56).is_none_or(|record_end| record_end > locator_at) {
        return Err(blame.malformed("zip64 locator", format!("points to {at}, outside of the file")));
    }
    let mut record = [0; 56];
    source.read_into(at, &mut record)?;
    if u32_at(&record, 0) != END64 {
        return Err(blame.malformed("zip64 locator", "points to something else"));
    }
    if u32_at(&record, 16) != 0 || u64_at(&record, 24) != u64_at(&record, 32) {
        return Err(blame.unsupported("zip64 end of central directory", "an archive in several parts"));
    }
    let (size, start) = (u64_at(&record, 40), u64_at(&record, 48));
    let Some(range_end) = start.checked_add(size) else {
        return Err(blame.malformed("zip64 end of central directory", "offsets that wrap at 2^64"));
    };
    Ok(Some((Directory { range: start..range_end, entries: u64_at(&record, 32) }, at)))
}

/// All members that are files, in the order of the directory.
pub(crate) fn members(source: &Source, blame: Blame<'_>) -> Result<Vec<Member>> {
    const RECORD: u64 = 46;
    let directory = directory(source, blame)?;
    let size = directory.range.end - directory.range.start;
    if directory.entries.checked_mul(RECORD).is_none_or(|least| least > size) {
        let detail = format!("{} entries cannot lie in {size} bytes", directory.entries);
        return Err(blame.malformed("central directory", detail));
    }
    let mut cursor = Cursor::new(source, directory.range.start);
    let mut found = Vec::new();
    // The places of all entries, to find overlaps.
    let mut places = Vec::new();
    for _ in 0..directory.entries {
        let record: [u8; RECORD as usize] = cursor.array(blame, "central directory")?;
        if u32_at(&record, 0) != CENTRAL {
            return Err(
                blame.malformed("central directory", format!("no entry before byte {}", cursor.position()))
            );
        }
        let name = cursor.take(u16_at(&record, 28).into(), blame, "member name")?;
        let extra = cursor.take(u16_at(&record, 30).into(), blame, "extra field")?;
        cursor.take(u16_at(&record, 32).into(), blame, "comment")?;
        if cursor.position() > directory.range.end {
            return Err(blame.malformed("central directory", "its entries are longer than it says"));
        }
        let name = String::from_utf8(name).map_err(|_| blame.malformed("member name", "not UTF-8"))?;
        let (member, place) = self::member(source, name, &record, &extra, directory.range.start, blame)?;
        places.push(place);
        if !member.name.ends_with('/') {
            found.push(member);
        }
    }
    places.sort_unstable_by_key(|place: &Range<u64>| (place.start, place.end));
    if let Some(pair) = places.windows(2).find(|pair| pair[0].end > pair[1].start) {
        return Err(blame.malformed("members", format!("{:?} overlaps {:?}", pair[0], pair[1])));
    }
    Ok(found)
}

/// Checks one entry of the directory against its local header. Also gives the range of both.
fn member(
    source: &Source,
    name: String,
    record: &[u8],
    extra: &[u8],
    data_limit: u64,
    blame: Blame<'_>,
) -> Result<(Member, Range<u64>)> {
    let at = blame.on(&name);
    let (flags, method, crc) = (u16_at(record, 8), u16_at(record, 10), u32_at(record, 16));
    if flags & 0x2041 != 0 {
        return Err(at.unsupported("flags", "encrypted"));
    }
    if method != STORED && method != DEFLATED {
        return Err(at.unsupported("compression method", format!("{method}")));
    }
    let (mut packed, mut size) = (u64::from(u32_at(record, 20)), u64::from(u32_at(record, 24)));
    let mut local = u64::from(u32_at(record, 42));
    let mut wide = zip64_extra(extra);
    for value in [&mut size, &mut packed, &mut local] {
        if *value == u64::from(u32::MAX) {
            let Some((head, rest)) = wide.split_at_checked(8) else { break };
            *value = u64_at(head, 0);
            wide = rest;
        }
    }

    let mut header = [0; 30];
    if local.checked_add(30).is_none_or(|end| end > data_limit) {
        return Err(at.malformed("local header offset", format!("{local}, but data ends at {data_limit}")));
    }
    source.read_into(local, &mut header)?;
    if u32_at(&header, 0) != LOCAL {
        return Err(at.malformed("local header offset", format!("{local} is no local header")));
    }
    if u16_at(&header, 8) != method || u16_at(&header, 26) as usize != name.len() {
        return Err(at.malformed("local header", "disagrees with the central directory"));
    }
    let start = local + 30 + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
    let end = start.checked_add(packed).filter(|&end| end <= data_limit);
    let Some(end) = end else {
        let detail = format!("{packed} bytes at {start}, but data ends at {data_limit}");
        return Err(at.malformed("compressed size", detail));
    };
    let mut local_name = vec![0; name.len()];
    source.read_into(local + 30, &mut local_name)?;
    if local_name != name.as_bytes() {
        return Err(
            at.malformed("local header", format!("names {:?}", clip(&String::from_utf8_lossy(&local_name))))
        );
    }
    if method == STORED && packed != size {
        return Err(at.malformed("size", format!("{size} bytes stored in {packed}")));
    }
    if method == DEFLATED && size / MAX_RATIO > packed {
        return Err(at.malformed("size", format!("{packed} bytes cannot inflate to {size}")));
    }
    let member = Member { deflated: method == DEFLATED, crc, data: start..end, size, name };
    Ok((member, local..end))
}

/// The content of the zip64 extra field, or nothing.
fn zip64_extra(mut extra: &[u8]) -> &[u8] {
    while extra.len() >= 4 {
        let (id, len) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(body) = extra.get(4..4 + len) else { break };
        if id == 1 {
            return body;
        }
        extra = &extra[4 + len..];
    }
    &[]
}

/// Inflates a member bit by bit.
pub(crate) struct Inflater<'a> {
    source: &'a Source,
    left: Range<u64>,
    input: Vec<u8>,
    at: usize,
    state: Box<InflateState>,
    finished: bool,
    blame: Blame<'a>,
}

impl<'a> Inflater<'a> {
    pub fn new(source: &'a Source, compressed: Range<u64>, blame: Blame<'a>) -> Self {
        let state = InflateState::new_boxed(DataFormat::Raw);
        Inflater { source, left: compressed, input: Vec::new(), at: 0, state, finished: false, blame }
    }

    /// Fills as much of `out` as the stream has.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        const CHUNK: u64 = 16 << 10;
        let mut done = 0;
        while done < out.len() && !self.finished {
            if self.at == self.input.len() && !self.left.is_empty() {
                let len = (self.left.end - self.left.start).min(CHUNK) as usize;
                self.input.resize(len, 0);
                self.at = 0;
                self.source.read_into(self.left.start, &mut self.input)?;
                self.left.start += len as u64;
            }
            let step = inflate_step(&mut self.state, &self.input[self.at..], &mut out[done..], MZFlush::None);
            self.at += step.bytes_consumed;
            done += step.bytes_written;
            match step.status {
                Ok(MZStatus::StreamEnd) => self.finished = true,
                Ok(_) | Err(miniz_oxide::MZError::Buf) => {
                    let stuck = step.bytes_consumed == 0 && step.bytes_written == 0;
                    if stuck && self.at == self.input.len() && self.left.is_empty() {
                        return Err(self.blame.malformed("data", "the compressed data ends early"));
                    }
                    if stuck && self.at < self.input.len() {
                        return Err(self.blame.malformed("data", "the compressed data is damaged"));
                    }
                }
                Err(e) => return Err(self.blame.malformed("data", format!("cannot be inflated: {e:?}"))),
            }
        }
        Ok(done)
    }

    /// Fills all of `out`.
    pub fn read_exact(&mut self, out: &mut [u8]) -> Result<()> {
        if self.read(out)? == out.len() {
            return Ok(());
        }
        Err(self.blame.malformed("size", "the data inflates to fewer bytes than declared"))
    }

    /// Fails if there is more.
    pub fn finish(&mut self) -> Result<()> {
        if self.read(&mut [0])? == 0 {
            return Ok(());
        }
        Err(self.blame.malformed("size", "the data inflates to more bytes than declared"))
    }
}

/// Inflates a member whole: `header` bytes are passed over, the rest fills `out`; sizes and CRC must agree.
pub(crate) fn inflate(
    source: &Source,
    compressed: Range<u64>,
    header: u64,
    out: &mut [u8],
    crc: u32,
    blame: Blame<'_>,
) -> Result<()> {
    let mut inflater = Inflater::new(source, compressed, blame);
    let mut seen = Crc32::new();
    pass(&mut inflater, header, &mut seen)?;
    for chunk in out.chunks_mut(256 << 10) {
        inflater.read_exact(chunk)?;
        seen.update(chunk);
    }
    inflater.finish()?;
    require_crc(seen.value(), crc, blame)
}

fn pass(inflater: &mut Inflater<'_>, mut len: u64, seen: &mut Crc32) -> Result<()> {
    let mut scratch = [0; 4096];
    while len > 0 {
        let part = &mut scratch[..len.min(4096) as usize];
        inflater.read_exact(part)?;
        seen.update(part);
        len -= part.len() as u64;
    }
    Ok(())
}

/// Inflates a member of `size` bytes to nowhere and compares its CRC.
pub(crate) fn verify_deflated(
    source: &Source,
    compressed: Range<u64>,
    size: u64,
    crc: u32,
    blame: Blame<'_>,
) -> Result<()> {
    let mut inflater = Inflater::new(source, compressed, blame);
    let mut seen = Crc32::new();
    pass(&mut inflater, size, &mut seen)?;
    inflater.finish()?;
    require_crc(seen.value(), crc, blame)
}

/// Reads a stored member and compares its CRC.
pub(crate) fn verify(source: &Source, member: Range<u64>, crc: u32, blame: Blame<'_>) -> Result<()> {
    let mut seen = Crc32::new();
    let mut buffer = vec![0; (member.end - member.start).min(256 << 10) as usize];
    let mut at = member.start;
    while at < member.end {
        let part = (member.end - at).min(buffer.len() as u64) as usize;
        source.read_into(at, &mut buffer[..part])?;
        seen.update(&buffer[..part]);
        at += part as u64;
    }
    require_crc(seen.value(), crc, blame)
}

fn require_crc(seen: u32, declared: u32, blame: Blame<'_>) -> Result<()> {
    if seen == declared {
        return Ok(());
    }
    Err(blame.malformed("CRC-32", format!("{seen:08x} of the data, {declared:08x} declared")))
}

/// CRC-32 as zip uses it, eight bytes at a step.
#[derive(Clone)]
pub(crate) struct Crc32(u32);

const CRC_TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        tables[0][i] = value;
        i += 1;
    }
    let mut t = 1;
    while t < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[t - 1][i];
            tables[t][i] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            i += 1;
        }
        t += 1;
    }
    tables
};

impl Crc32 {
    pub fn new() -> Self {
        Crc32(!0)
    }

    pub fn update(&mut self, bytes: &[u8]) {
        let t = &CRC_TABLES;
        let mut crc = self.0;
        let (eights, rest) = bytes.as_chunks::<8>();
        for b in eights {
            let low = crc ^ u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            crc = t[7][(low & 0xff) as usize]
                ^ t[6][(low >> 8 & 0xff) as usize]
                ^ t[5][(low >> 16 & 0xff) as usize]
                ^ t[4][(low >> 24) as usize]
                ^ t[3][b[4] as usize]
                ^ t[2][b[5] as usize]
                ^ t[1][b[6] as usize]
                ^ t[0][b[7] as usize];
        }
        for &b in rest {
            crc = crc >> 8 ^ t[0][((crc ^ u32::from(b)) & 0xff) as usize];
        }
        self.0 = crc;
    }

    pub fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_gives_the_standard_check_value_however_it_is_cut() {
        let mut whole = Crc32::new();
        whole.update(b"123456789");
        assert_eq!(whole.value(), 0xcbf4_3926);
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 31 % 256) as u8).collect();
        let mut whole = Crc32::new();
        whole.update(&bytes);
        let mut cut = Crc32::new();
        bytes.chunks(7).for_each(|part| cut.update(part));
        assert_eq!(whole.value(), cut.value());
    }
}
