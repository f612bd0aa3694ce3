//! Writes safetensors, npy, npz and GGUF.
//!
//! Each writer asks for one tensor's bytes at a time, in the order in which it needs them, and hands them to
//! its output: nothing is held twice. The `save_` functions write atomically through [`replace`].

mod atomic;
mod gguf;
mod npy;
mod npz;
mod safetensors;

use std::io::{self, Write};
use std::path::Path;

use crate::dtype::FileDtype;
use crate::error::{Blame, Error, Result};
use crate::format::Format;
use crate::metadata::MetaValue;
use crate::tensor::Layout;

pub use atomic::replace;
pub use gguf::gguf;
pub use npy::npy;
pub use npz::{Compression, npz};
pub use safetensors::safetensors;

/// What is to be written, before its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name, unique in the file.
    pub name: String,
    /// Its element type.
    pub dtype: FileDtype,
    /// Its shape, outermost dimension first.
    pub shape: Vec<u64>,
    /// Its element order; only npy and npz can hold column-major tensors.
    pub layout: Layout,
}

impl TensorSpec {
    /// A row-major tensor.
    pub fn new(name: impl Into<String>, dtype: FileDtype, shape: impl Into<Vec<u64>>) -> Self {
        TensorSpec { name: name.into(), dtype, shape: shape.into(), layout: Layout::RowMajor }
    }

    /// Its size in bytes.
    pub fn byte_len(&self, format: Format) -> Result<u64> {
        let blame = Blame::file(format).on(&self.name);
        self.dtype.byte_len(&self.shape).map_err(|e| blame.unwritable(format!("shape {:?}: {e}", self.shape)))
    }
}

/// The error of a producer.
pub type ProducerError = Box<dyn std::error::Error + Send + Sync>;

/// Produces the bytes of tensors, one tensor at a time.
///
/// Closures of this form are producers, and slices of byte slices are.
pub trait Produce {
    /// Writes all bytes of the tensor at `index` of the specs, little-endian.
    fn produce(&mut self, index: usize, out: &mut dyn Write) -> Result<(), ProducerError>;
}

impl<F: FnMut(usize, &mut dyn Write) -> Result<(), ProducerError>> Produce for F {
    fn produce(&mut self, index: usize, out: &mut dyn Write) -> Result<(), ProducerError> {
        self(index, out)
    }
}

impl Produce for &[&[u8]] {
    fn produce(&mut self, index: usize, out: &mut dyn Write) -> Result<(), ProducerError> {
        let bytes = self.get(index).ok_or("there are fewer byte slices than tensors")?;
        Ok(out.write_all(bytes)?)
    }
}

/// Saves a safetensors file atomically.
pub fn save_safetensors(
    path: impl AsRef<Path>,
    specs: &[TensorSpec],
    metadata: &[(String, String)],
    data: &mut dyn Produce,
) -> Result<()> {
    replace(path, |out| safetensors(out, specs, metadata, data))
}

/// Saves an npy file atomically. The spec's name is not written.
pub fn save_npy(path: impl AsRef<Path>, spec: &TensorSpec, data: &mut dyn Produce) -> Result<()> {
    replace(path, |out| npy(out, spec, data))
}

/// Saves an npz file atomically.
pub fn save_npz(
    path: impl AsRef<Path>,
    specs: &[TensorSpec],
    compression: Compression,
    data: &mut dyn Produce,
) -> Result<()> {
    replace(path, |out| npz(out, specs, compression, data))
}

/// Saves a GGUF file atomically.
pub fn save_gguf(
    path: impl AsRef<Path>,
    specs: &[TensorSpec],
    metadata: &[(String, MetaValue)],
    data: &mut dyn Produce,
) -> Result<()> {
    replace(path, |out| gguf(out, specs, metadata, data))
}

/// Fails if two names are equal.
fn require_unique<'a>(names: impl Iterator<Item = &'a str>, format: Format) -> Result<()> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Blame::file(format).on(pair[0]).unwritable("the name is given twice")),
        None => Ok(()),
    }
}

fn require_row_major(specs: &[TensorSpec], format: Format) -> Result<()> {
    match specs.iter().find(|spec| spec.layout != Layout::RowMajor) {
        Some(spec) => Err(Blame::file(format).on(&spec.name).unwritable("the format is row-major only")),
        None => Ok(()),
    }
}

fn put(out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes).map_err(|e| Error::io("cannot write", None, e))
}

fn pad(out: &mut dyn Write, mut len: u64) -> Result<()> {
    const ZEROS: [u8; 256] = [0; 256];
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        put(out, &ZEROS[..part as usize])?;
        len -= part;
    }
    Ok(())
}

/// Has one tensor produced and requires exactly its bytes.
fn produce(
    data: &mut dyn Produce,
    index: usize,
    spec: &TensorSpec,
    byte_len: u64,
    out: &mut dyn Write,
) -> Result<()> {
    if byte_len == 0 {
        return Ok(());
    }
    let mut exact = Exact { out, left: byte_len, failure: None };
    let produced = data.produce(index, &mut exact);
    let Exact { left, failure, .. } = exact;
    match (failure, produced) {
        // The output's own failure is the first cause, whatever the producer makes of it.
        (Some(e), _) => Err(Error::io("cannot write", None, e)),
        (None, Err(cause)) => Err(Error::Producer { name: spec.name.clone(), cause }),
        (None, Ok(())) if left > 0 => {
            let cause = format!("{left} of {byte_len} bytes are missing").into();
            Err(Error::Producer { name: spec.name.clone(), cause })
        }
        (None, Ok(())) => Ok(()),
    }
}

/// Passes on so many bytes and no more.
struct Exact<'a> {
    out: &'a mut dyn Write,
    left: u64,
    failure: Option<io::Error>,
}

impl Write for Exact<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more bytes than dtype and shape say"));
        }
        match self.out.write(bytes) {
            Ok(written) => {
                self.left -= written as u64;
                Ok(written)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Err(e),
            Err(e) => {
                let again = e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error);
                self.failure = Some(e);
                Err(again)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
