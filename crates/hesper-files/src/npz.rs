//! Reads npz: a zip archive whose members are npy files, stored or deflated.
//!
//! Stored members are used in place. Of a deflated member only the npy header is inflated when the archive is
//! opened. Members that do not end in `.npy` are listed as ignored.

use crate::cursor::Cursor;
use crate::error::{Blame, Result};
use crate::format::Format;
use crate::metadata::Metadata;
use crate::npy::{self, Header, PREAMBLE};
use crate::source::Source;
use crate::tensor::{Limits, Storage, TensorFile, TensorInfo};
use crate::zip::{self, Inflater, Member};

/// Parses an npz source.
pub fn parse(source: Source, limits: &Limits) -> Result<TensorFile> {
    let blame = Blame::file(Format::Npz);
    let mut tensors = Vec::new();
    let mut ignored = Vec::new();
    let mut inflated = 0u64;
    let mut members = zip::members(&source, blame)?;
    members.sort_by_key(|member| member.data.start);
    for mut member in members {
        let Some(stem) = member.name.strip_suffix(".npy").map(str::len) else {
            ignored.push(member.name);
            continue;
        };
        member.name.truncate(stem);
        if member.deflated {
            inflated = inflated.saturating_add(member.size);
            if inflated > limits.inflated_bytes {
                return Err(blame.on(&member.name).limit("inflated size", inflated, limits.inflated_bytes));
            }
        }
        tensors.push(tensor(&source, member, limits)?);
    }
    TensorFile::assemble(Format::Npz, source, tensors, Metadata::default(), ignored)
}

fn tensor(source: &Source, member: Member, limits: &Limits) -> Result<TensorInfo> {
    let Member { name, deflated, crc, data, size } = member;
    let blame = Blame::file(Format::Npz).on(&name);
    let mut preamble = [0; PREAMBLE];
    let preamble = &mut preamble[..size.min(PREAMBLE as u64) as usize];
    let mut inflater = deflated.then(|| Inflater::new(source, data.clone(), blame));
    match &mut inflater {
        Some(inflater) => inflater.read_exact(preamble)?,
        None => source.read_into(data.start, preamble)?,
    }
    let (start, end) = npy::header_range(preamble, limits, blame)?;
    if end > size {
        return Err(
            blame.malformed("header length", format!("the header ends at {end}, the member at {size}"))
        );
    }
    let text = match &mut inflater {
        Some(inflater) => inflate_header(inflater, preamble, start, end)?,
        None => Cursor::new(source, data.start + start).take(end - start, blame, "header")?,
    };
    let header = Header::parse(&text, limits, blame)?;
    let byte_len = header.byte_len(blame)?;
    // Unlike in a bare npy file, what follows in the member would be unaccounted for.
    if byte_len != size - end {
        return Err(blame.malformed("shape", format!("{byte_len} bytes, but the member has {}", size - end)));
    }
    let storage = if deflated {
        Storage::Deflated { compressed: data, header: end, crc }
    } else {
        Storage::Member { data: data.start + end..data.end, member: data, crc }
    };
    Ok(header.tensor(name, byte_len, storage))
}

/// The header's text; grows with what really comes out of the stream, not with what the header claims.
fn inflate_header(inflater: &mut Inflater<'_>, preamble: &[u8], start: u64, end: u64) -> Result<Vec<u8>> {
    const STEP: usize = 4096;
    let mut text = preamble.get(start as usize..).unwrap_or_default().to_vec();
    text.truncate((end - start) as usize);
    while (text.len() as u64) < end - start {
        let have = text.len();
        text.resize(have + ((end - start) as usize - have).min(STEP), 0);
        inflater.read_exact(&mut text[have..])?;
    }
    Ok(text)
}
