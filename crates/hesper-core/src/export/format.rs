//! The file format of an exported function, as `docs/exported-functions.md` specifies it.
//!
//! The reader trusts nothing: it checks every count, length and reference before use, and allocates no more
//! than the bytes of the file justify.

use std::borrow::Cow;

use super::graph::{Signature, Step, ValueRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::{Attributes, Value};
use crate::shape::{Shape, size_of};

/// The first bytes of a file.
pub(super) const MAGIC: [u8; 8] = *b"HESPERFN";
/// The version that is written, and the only one that is read.
pub(super) const VERSION: u32 = 1;
/// Bytes of the header.
pub(super) const HEADER: usize = 64;
/// Constants begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 64;
/// The largest rank of an array in a file.
const MAX_AXES: usize = 64;

/// A constant: its shape and type, and where its bytes are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constant {
    pub(super) shape: Shape,
    pub(super) dtype: Dtype,
    /// In bytes from the end of the body, rounded up to a multiple of [`ALIGNMENT`].
    pub(super) offset: u64,
    pub(super) checksum: u64,
}

/// A traced function. Its constants are those of the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trace {
    pub(super) signature: Signature,
    pub(super) steps: Vec<Step>,
    pub(super) outputs: Vec<ValueRef>,
}

/// The content of a file without the bytes of its constants.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Body {
    pub(super) metadata: String,
    pub(super) constants: Vec<Constant>,
    pub(super) traces: Vec<Trace>,
}

/// The checksum of bytes. It starts as the number of bytes. Each little-endian word of eight bytes is xored
/// into it, then it is multiplied and rotated. The last word is padded with zeros.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step =
        |sum: u64, word: [u8; 8]| (sum ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR).rotate_left(29);
    let mut words = bytes.chunks_exact(8);
    let mut sum = bytes.len() as u64;
    for word in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        sum = step(sum, eight);
    }
    let mut rest = [0; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    step(sum, rest)
}

/// An error of a file that cannot be imported.
pub(super) fn invalid(what: impl std::fmt::Display) -> Error {
    Error::Export(format!("cannot import the function: {what}"))
}

/// The header for a body in a file of `file` bytes.
pub fn header(body: &[u8], file: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
    header[24..32].copy_from_slice(&checksum(body).to_le_bytes());
    header[32..40].copy_from_slice(&file.to_le_bytes());
    let sum = checksum(&header[..40]);
    header[40..48].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Reads the length and the checksum of the body from the header of a file of `len` bytes.
pub(super) fn read_header(header: &[u8], len: u64) -> Result<(u64, u64)> {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&header[at..at + 8]);
        u64::from_le_bytes(word)
    };
    if header.len() < HEADER || header[..8] != MAGIC {
        return Err(invalid("the file does not begin with HESPERFN"));
    }
    let version = word(8) as u32;
    if version != VERSION {
        return Err(invalid(format!("the file has version {version}: this build reads version {VERSION}")));
    }
    if checksum(&header[..40]) != word(40) {
        return Err(invalid("its header is damaged"));
    }
    if word(32) != len {
        return Err(invalid(format!("{} bytes were written, and are in a file of {len}", word(32))));
    }
    if word(16) > len - HEADER as u64 {
        return Err(invalid(format!("its body has {} bytes, in a file of {len}", word(16))));
    }
    Ok((word(16), word(24)))
}

/// Writes values as bytes.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    fn count(&mut self, value: usize) -> Result<()> {
        let value = u32::try_from(value).map_err(|_| {
            Error::value("export_function", format!("a count of {value} does not fit the file format"))
        })?;
        self.0.extend(value.to_le_bytes());
        Ok(())
    }

    fn word(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.count(text.len())?;
        self.0.extend(text.as_bytes());
        Ok(())
    }

    fn meta(&mut self, shape: &[usize], dtype: Dtype) -> Result<()> {
        let code = Dtype::ALL.iter().position(|other| *other == dtype).unwrap_or(0);
        self.byte(code as u8);
        self.count(shape.len())?;
        shape.iter().for_each(|length| self.word(*length as u64));
        Ok(())
    }

    fn place(&mut self, place: ValueRef) -> Result<()> {
        let (kind, at) = match place {
            ValueRef::Argument(at) => (0, at),
            ValueRef::Constant(at) => (1, at),
            ValueRef::Value(at) => (2, at),
        };
        self.byte(kind);
        self.count(at)
    }

    fn value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Bool(value) => {
                self.byte(0);
                self.byte(u8::from(*value));
            }
            Value::Int(value) => {
                self.byte(1);
                self.word(*value as u64);
            }
            Value::Float(value) => {
                self.byte(2);
                self.word(value.to_bits());
            }
            Value::Text(value) => {
                self.byte(3);
                self.text(value)?;
            }
            Value::Ints(list) => {
                self.byte(4);
                self.count(list.len())?;
                list.iter().for_each(|value| self.word(*value as u64));
            }
            Value::Texts(list) => {
                self.byte(5);
                self.count(list.len())?;
                list.iter().try_for_each(|value| self.text(value))?;
            }
        }
        Ok(())
    }
}

impl Body {
    /// The bytes of a body.
    pub(super) fn write(&self) -> Result<Vec<u8>> {
        let mut out = Writer::default();
        out.text(&self.metadata)?;
        out.count(self.constants.len())?;
        for constant in &self.constants {
            out.meta(&constant.shape, constant.dtype)?;
            out.word(constant.offset);
            out.word(constant.checksum);
        }
        out.count(self.traces.len())?;
        for trace in &self.traces {
            let signature = &trace.signature;
            out.byte(u8::from(signature.shapeless));
            out.count(signature.positional)?;
            out.count(signature.keywords.len())?;
            signature.keywords.iter().try_for_each(|name| out.text(name))?;
            signature.arguments.iter().try_for_each(|(shape, dtype)| out.meta(shape, *dtype))?;
            out.count(trace.steps.len())?;
            for step in &trace.steps {
                out.text(&step.op)?;
                out.count(step.attributes.len())?;
                for (name, value) in &step.attributes {
                    out.text(name)?;
                    out.value(value)?;
                }
                out.count(step.inputs.len())?;
                step.inputs.iter().try_for_each(|place| out.place(*place))?;
                out.count(step.outputs.len())?;
                step.outputs.iter().try_for_each(|(shape, dtype)| out.meta(shape, *dtype))?;
            }
            out.count(trace.outputs.len())?;
            trace.outputs.iter().try_for_each(|place| out.place(*place))?;
        }
        Ok(out.0)
    }

    /// A body from its bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Body> {
        let mut from = Cursor { bytes, at: 0 };
        let metadata = from.text()?.to_string();
        let mut constants = Vec::new();
        for _ in 0..from.count("constants", 21)? {
            let (shape, dtype) = from.meta()?;
            constants.push(Constant { shape, dtype, offset: from.word()?, checksum: from.word()? });
        }
        let mut traces = Vec::new();
        for _ in 0..from.count("traces", 17)? {
            traces.push(from.trace(constants.len())?);
        }
        if from.at != bytes.len() {
            return Err(from.wrong("bytes after the last trace"));
        }
        Ok(Body { metadata, constants, traces })
    }
}

/// Reads values from bytes.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        invalid(format!("{what} at byte {}", HEADER + self.at))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let found = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or_else(|| self.wrong(format!("{count} bytes missing")))?;
        self.at += count;
        Ok(found)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.wrong(format!("{other} instead of 0 or 1"))),
        }
    }

    fn number(&mut self) -> Result<usize> {
        let mut four = [0; 4];
        four.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(four) as usize)
    }

    /// Reads a count of values of at least `each` bytes. Fails if the remaining bytes cannot hold them.
    fn count(&mut self, what: &str, each: usize) -> Result<usize> {
        let count = self.number()?;
        if count > (self.bytes.len() - self.at) / each {
            return Err(self.wrong(format!("{count} {what} for which there are not enough bytes")));
        }
        Ok(count)
    }

    fn word(&mut self) -> Result<u64> {
        let mut eight = [0; 8];
        eight.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(eight))
    }

    fn text(&mut self) -> Result<&'a str> {
        let length = self.number()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| self.wrong("a string that is not UTF-8"))
    }

    fn meta(&mut self) -> Result<(Shape, Dtype)> {
        let code = self.byte()?;
        let dtype = Dtype::ALL.get(usize::from(code)).copied();
        let dtype = dtype.ok_or_else(|| self.wrong(format!("an unknown type {code}")))?;
        let rank = self.count("axes", 8)?;
        if rank > MAX_AXES {
            return Err(self.wrong(format!("an array of {rank} axes, more than {MAX_AXES},")));
        }
        let mut shape = Shape::new();
        for _ in 0..rank {
            let length = self.word()?;
            shape.push(
                usize::try_from(length).map_err(|_| self.wrong(format!("an axis of length {length}")))?,
            );
        }
        size_of(&shape)?;
        Ok((shape, dtype))
    }

    /// Reads a reference to an argument, a constant or a value that exists.
    fn place(&mut self, arguments: usize, constants: usize, values: usize) -> Result<ValueRef> {
        let (kind, at) = (self.byte()?, self.number()?);
        match kind {
            0 if at < arguments => Ok(ValueRef::Argument(at)),
            1 if at < constants => Ok(ValueRef::Constant(at)),
            2 if at < values => Ok(ValueRef::Value(at)),
            _ => Err(self.wrong(format!("a reference to a value that does not exist ({kind}, {at})"))),
        }
    }

    fn value(&mut self) -> Result<Value> {
        Ok(match self.byte()? {
            0 => Value::Bool(self.flag()?),
            1 => Value::Int(self.word()? as i64),
            2 => Value::Float(f64::from_bits(self.word()?)),
            3 => Value::Text(self.text()?.to_string()),
            4 => {
                let count = self.count("integers", 8)?;
                Value::Ints((0..count).map(|_| Ok(self.word()? as i64)).collect::<Result<_>>()?)
            }
            5 => {
                let count = self.count("strings", 4)?;
                Value::Texts((0..count).map(|_| Ok(self.text()?.to_string())).collect::<Result<_>>()?)
            }
            other => return Err(self.wrong(format!("an attribute of unknown kind {other}"))),
        })
    }

    fn trace(&mut self, constants: usize) -> Result<Trace> {
        let shapeless = self.flag()?;
        let positional = self.count("arguments", 5)?;
        let named = self.count("arguments", 9)?;
        let mut keywords: Vec<String> = Vec::new();
        for _ in 0..named {
            let name = self.text()?.to_string();
            if keywords.last().is_some_and(|last| *last >= name) {
                return Err(self.wrong(format!("argument {name:?} out of order")));
            }
            keywords.push(name);
        }
        let arguments = (0..positional + named).map(|_| self.meta()).collect::<Result<Vec<_>>>()?;
        let mut values = 0;
        let mut steps = Vec::new();
        for _ in 0..self.count("steps", 16)? {
            let op = Cow::Owned(self.text()?.to_string());
            let mut attributes = Attributes::new();
            for _ in 0..self.count("attributes", 6)? {
                attributes.push((Cow::Owned(self.text()?.to_string()), self.value()?));
            }
            let count = self.count("inputs", 5)?;
            let inputs =
                (0..count).map(|_| self.place(arguments.len(), constants, values)).collect::<Result<_>>()?;
            let count = self.count("outputs", 5)?;
            if count == 0 {
                return Err(self.wrong("a step without outputs"));
            }
            let outputs = (0..count).map(|_| self.meta()).collect::<Result<Vec<_>>>()?;
            values += outputs.len();
            steps.push(Step { op, attributes, inputs, outputs });
        }
        let count = self.count("outputs", 5)?;
        let outputs =
            (0..count).map(|_| self.place(arguments.len(), constants, values)).collect::<Result<_>>()?;
        let signature = Signature { positional, keywords, arguments, shapeless };
        Ok(Trace { signature, steps, outputs })
    }
}
