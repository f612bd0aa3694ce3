//! Reads a source front to back through a small buffer, one copy of each byte.
//!
//! Headers are parsed from copies, never from the mapping: a header that another process changes while it is
//! parsed cannot be checked with one value and used with another.

use crate::error::{Blame, Result};
use crate::source::Source;

const BUFFER: usize = 64 << 10;

/// A position in a source.
pub(crate) struct Cursor<'a> {
    source: &'a Source,
    buffer: Vec<u8>,
    /// Position of `buffer[0]` in the source.
    base: u64,
    /// Position in `buffer`.
    at: usize,
    /// Where the caller wants no more.
    limit: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(source: &'a Source, start: u64) -> Self {
        Cursor { source, buffer: Vec::new(), base: start, at: 0, limit: u64::MAX }
    }

    /// Makes positions beyond `limit` an error, so that a file with a huge hole cannot claim huge strings.
    pub fn limited(self, limit: u64) -> Self {
        Cursor { limit, ..self }
    }

    pub fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    pub fn remaining(&self) -> u64 {
        self.source.len().saturating_sub(self.position())
    }

    /// Fails unless `len` more bytes are there.
    pub fn require(&self, len: u64, blame: Blame<'_>, field: &'static str) -> Result<()> {
        if len <= self.remaining() {
            let end = self.position() + len;
            return if end <= self.limit {
                Ok(())
            } else {
                Err(blame.limit("end of header", end, self.limit))
            };
        }
        let detail =
            format!("{len} bytes at offset {}, but the file has only {}", self.position(), self.source.len());
        Err(blame.malformed(field, detail))
    }

    /// Fills `out` with the next bytes.
    pub fn read(&mut self, out: &mut [u8], blame: Blame<'_>, field: &'static str) -> Result<()> {
        self.require(out.len() as u64, blame, field)?;
        let buffered = (self.buffer.len() - self.at).min(out.len());
        out[..buffered].copy_from_slice(&self.buffer[self.at..self.at + buffered]);
        self.at += buffered;
        let rest = &mut out[buffered..];
        if rest.is_empty() {
            return Ok(());
        }
        let position = self.position();
        if rest.len() >= BUFFER {
            self.source.read_into(position, rest)?;
            self.base = position + rest.len() as u64;
            self.buffer.clear();
            self.at = 0;
            return Ok(());
        }
        let len = (self.source.len() - position).min(BUFFER as u64) as usize;
        self.buffer.resize(len, 0);
        self.base = position;
        self.at = 0;
        if let Err(e) = self.source.read_into(position, &mut self.buffer) {
            self.buffer.clear();
            return Err(e);
        }
        rest.copy_from_slice(&self.buffer[..rest.len()]);
        self.at = rest.len();
        Ok(())
    }

    /// The next `len` bytes. What is allocated was checked to be in the file.
    pub fn take(&mut self, len: u64, blame: Blame<'_>, field: &'static str) -> Result<Vec<u8>> {
        self.require(len, blame, field)?;
        let len = usize::try_from(len).map_err(|_| blame.limit(field, len, usize::MAX as u64))?;
        let mut bytes = vec![0; len];
        self.read(&mut bytes, blame, field)?;
        Ok(bytes)
    }

    pub fn array<const N: usize>(&mut self, blame: Blame<'_>, field: &'static str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(&mut bytes, blame, field)?;
        Ok(bytes)
    }

    pub fn u32(&mut self, blame: Blame<'_>, field: &'static str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(blame, field)?))
    }

    pub fn u64(&mut self, blame: Blame<'_>, field: &'static str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(blame, field)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    #[test]
    fn reads_across_buffer_edges_give_every_byte_once() {
        let bytes: Vec<u8> = (0..3 * BUFFER + 17).map(|i| (i * 7 % 251) as u8).collect();
        let source = Source::from_bytes(bytes.clone());
        let blame = Blame::file(Format::Gguf);
        let mut cursor = Cursor::new(&source, 0);
        let mut seen = Vec::new();
        for len in [1, 5, BUFFER - 3, 2, BUFFER + 9, 40].into_iter().cycle() {
            let len = (len as u64).min(cursor.remaining());
            seen.extend(cursor.take(len, blame, "test").unwrap());
            if cursor.remaining() == 0 {
                break;
            }
        }
        assert_eq!(seen, bytes);
        assert!(cursor.take(1, blame, "test").is_err());
    }
}
