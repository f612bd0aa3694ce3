//! Reads npy: a magic, a version, a Python dictionary literal that describes the array, then the data.
//!
//! Versions 1 to 3; both element orders; big-endian elements (converted on reading). Two-byte void elements
//! (`V2`) are read as bfloat16, which is how NumPy extensions and MLX write that type. Structured, object,
//! string and time dtypes are refused.

use crate::cursor::Cursor;
use crate::dtype::FileDtype;
use crate::error::{Blame, Error, Result, clip};
use crate::format::Format;
use crate::metadata::Metadata;
use crate::source::Source;
use crate::tensor::{Layout, Limits, Storage, TensorFile, TensorInfo};

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes that are enough to learn where the header ends, whatever the version.
pub(crate) const PREAMBLE: usize = 12;
/// A header of plain dtypes is below 2 KiB. A compressed one must not inflate to what the file cannot
/// justify.
const MAX_HEADER: u64 = 1 << 20;
/// The name of the one tensor of an npy file.
pub const NAME: &str = "array";

/// Parses an npy source. Bytes after the array are ignored, as NumPy does. A file that is too short for its
/// array is an error when the array is read.
pub fn parse(source: Source, limits: &Limits) -> Result<TensorFile> {
    let blame = Blame::file(Format::Npy);
    let mut preamble = [0; PREAMBLE];
    let len = source.len().min(PREAMBLE as u64) as usize;
    source.read_into(0, &mut preamble[..len])?;
    let text = header_range(&preamble[..len], limits, blame)?;
    let header = Cursor::new(&source, text.0).take(text.1 - text.0, blame, "header")?;
    let header = Header::parse(&header, limits, blame)?;
    let byte_len = header.byte_len(blame)?;
    let end = text.1.checked_add(byte_len).ok_or_else(|| blame.malformed("shape", "too many bytes"))?;
    let tensor = header.tensor(NAME.to_owned(), byte_len, Storage::Plain(text.1..end));
    TensorFile::assemble(Format::Npy, source, vec![tensor], Metadata::default(), Vec::new())
}

/// Where the header's text starts and ends, from the first (at most 12) bytes.
pub(crate) fn header_range(preamble: &[u8], limits: &Limits, blame: Blame<'_>) -> Result<(u64, u64)> {
    let short = || blame.malformed("header length", "the file ends within it");
    if !preamble.starts_with(MAGIC) {
        return Err(blame.malformed("magic", "not that of an npy file"));
    }
    let (start, len) = match preamble.get(6).ok_or_else(short)? {
        1 => match preamble.get(8..10) {
            Some(&[a, b]) => (10, u64::from(u16::from_le_bytes([a, b]))),
            _ => return Err(short()),
        },
        2 | 3 => match preamble.get(8..12) {
            Some(&[a, b, c, d]) => (12, u64::from(u32::from_le_bytes([a, b, c, d]))),
            _ => return Err(short()),
        },
        version => return Err(blame.unsupported("version", format!("{version}"))),
    };
    let limit = limits.header_bytes.min(MAX_HEADER);
    if len > limit {
        return Err(blame.limit("header length", len, limit));
    }
    Ok((start, start + len))
}

/// What an npy header says.
pub(crate) struct Header {
    dtype: FileDtype,
    big_endian: bool,
    layout: Layout,
    shape: Vec<u64>,
}

impl Header {
    pub fn parse(text: &[u8], limits: &Limits, blame: Blame<'_>) -> Result<Self> {
        let text =
            std::str::from_utf8(text).map_err(|e| blame.malformed("header", format!("not UTF-8: {e}")))?;
        let mut literal = Literal { text, at: 0, blame };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        literal.expect('{')?;
        while !literal.eat('}') {
            let key = literal.string()?;
            literal.expect(':')?;
            let twice = match key {
                "descr" => descr.replace(literal.descr()?).is_some(),
                "fortran_order" => fortran.replace(literal.boolean()?).is_some(),
                "shape" => shape.replace(literal.shape(limits.rank)?).is_some(),
                other => return Err(blame.malformed("header", format!("unknown key {:?}", clip(other)))),
            };
            if twice {
                return Err(blame.malformed("header", format!("{key} is there twice")));
            }
            if !literal.eat(',') {
                literal.expect('}')?;
                break;
            }
        }
        literal.end()?;
        let missing = |field| blame.malformed(field, "missing");
        let (dtype, big_endian) = parse_descr(descr.ok_or_else(|| missing("descr"))?, blame)?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        let fortran = fortran.ok_or_else(|| missing("fortran_order"))?;
        // With at most one dimension that counts, the two orders are the same.
        let ordered = shape.iter().filter(|&&dim| dim != 1).count() > 1;
        let layout = if fortran && ordered { Layout::ColumnMajor } else { Layout::RowMajor };
        Ok(Header { dtype, big_endian, layout, shape })
    }

    pub fn byte_len(&self, blame: Blame<'_>) -> Result<u64> {
        self.dtype
            .byte_len(&self.shape)
            .map_err(|e| blame.malformed("shape", format!("{:?}: {e}", self.shape)))
    }

    pub fn tensor(self, name: String, byte_len: u64, storage: Storage) -> TensorInfo {
        let Header { dtype, big_endian, layout, shape } = self;
        TensorInfo { name, dtype, shape, layout, big_endian, storage, byte_len }
    }
}

/// The dtype and whether it is big-endian.
fn parse_descr(descr: &str, blame: Blame<'_>) -> Result<(FileDtype, bool)> {
    let unknown = || blame.unsupported("descr", format!("{:?}", clip(descr)));
    let mut characters = descr.chars();
    let order = characters.next().ok_or_else(unknown)?;
    let dtype = match characters.as_str() {
        "b1" | "?" => FileDtype::Bool,
        "u1" => FileDtype::U8,
        "i1" => FileDtype::I8,
        "u2" => FileDtype::U16,
        "i2" => FileDtype::I16,
        "u4" => FileDtype::U32,
        "i4" => FileDtype::I32,
        "u8" => FileDtype::U64,
        "i8" => FileDtype::I64,
        "f2" => FileDtype::F16,
        "f4" => FileDtype::F32,
        "f8" => FileDtype::F64,
        "c8" => FileDtype::C64,
        "c16" => FileDtype::C128,
        "V2" => FileDtype::BF16,
        _ => return Err(unknown()),
    };
    let unordered = dtype.swap_unit() == 1 || dtype == FileDtype::BF16;
    match order {
        '<' => Ok((dtype, false)),
        '>' => Ok((dtype, dtype.swap_unit() > 1)),
        '|' if unordered => Ok((dtype, false)),
        _ => Err(unknown()),
    }
}

/// The `descr` of a dtype; `None` if npy has none for it.
pub(crate) fn descr(dtype: FileDtype) -> Option<&'static str> {
    Some(match dtype {
        FileDtype::Bool => "|b1",
        FileDtype::U8 => "|u1",
        FileDtype::I8 => "|i1",
        FileDtype::U16 => "<u2",
        FileDtype::I16 => "<i2",
        FileDtype::U32 => "<u4",
        FileDtype::I32 => "<i4",
        FileDtype::U64 => "<u8",
        FileDtype::I64 => "<i8",
        FileDtype::F16 => "<f2",
        FileDtype::BF16 => "<V2",
        FileDtype::F32 => "<f4",
        FileDtype::F64 => "<f8",
        FileDtype::C64 => "<c8",
        FileDtype::C128 => "<c16",
        _ => return None,
    })
}

/// The part of Python's literals that npy headers use.
struct Literal<'a> {
    text: &'a str,
    at: usize,
    blame: Blame<'a>,
}

impl<'a> Literal<'a> {
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn wrong(&self, expected: &str) -> Error {
        self.blame.malformed("header", format!("at byte {}: expected {expected}", self.at))
    }

    fn eat(&mut self, character: char) -> bool {
        let found = self.rest().starts_with(character);
        self.at += if found { character.len_utf8() } else { 0 };
        found
    }

    fn expect(&mut self, character: char) -> Result<()> {
        if self.eat(character) { Ok(()) } else { Err(self.wrong(&format!("{character:?}"))) }
    }

    fn string(&mut self) -> Result<&'a str> {
        let rest = self.rest();
        let quote =
            rest.chars().next().filter(|c| matches!(c, '\'' | '"')).ok_or_else(|| self.wrong("a string"))?;
        let body = &rest[1..];
        let end = body.find(quote).ok_or_else(|| self.wrong("the end of a string"))?;
        if body[..end].contains(['\\', '\n']) {
            return Err(self.wrong("a string without escapes"));
        }
        self.at += end + 2;
        Ok(&body[..end])
    }

    fn descr(&mut self) -> Result<&'a str> {
        if self.rest().starts_with(['[', '(']) {
            return Err(self.blame.unsupported("descr", "a structured dtype"));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool> {
        for (word, value) in [("True", true), ("False", false)] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong("True or False"))
    }

    fn shape(&mut self, rank: usize) -> Result<Vec<u64>> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.eat(')') {
            if shape.len() == rank {
                return Err(self.blame.limit("rank", rank as u64 + 1, rank as u64));
            }
            let rest = self.rest();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let dim = rest[..digits].parse().map_err(|_| {
                let given: String = rest.chars().take(24).collect();
                self.blame.malformed("shape", format!("{given:?} is no dimension"))
            })?;
            self.at += digits;
            // Python 2 wrote long integers with a suffix.
            self.eat('L');
            shape.push(dim);
            if !self.eat(',') {
                self.expect(')')?;
                if shape.len() == 1 {
                    // Parentheses around one number make no tuple.
                    return Err(self.blame.malformed("shape", "a number instead of a tuple"));
                }
                break;
            }
        }
        Ok(shape)
    }

    fn end(&mut self) -> Result<()> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.wrong("the end")) }
    }
}
