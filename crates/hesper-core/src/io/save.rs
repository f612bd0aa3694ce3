//! Saving: arrays are evaluated and written one after the other.

use std::io::{Seek, Write};
use std::path::Path;

use hesper_files::write::{self, Compression, ProducerError};
use hesper_files::{FileDtype, GgmlType, MetaValue, TensorSpec};

use super::blocks::Blocks;
use crate::error::Result;
use crate::graph::Array;
use crate::{Dtype, PackedArray};

/// Saves a safetensors file: writes a temporary file, then renames it over the old one.
///
/// ```
/// use hesper::{array, io};
/// # let path = std::env::temp_dir().join(format!("hesper-save-{}.safetensors", std::process::id()));
/// let (w, b) = (array![[1.0, 2.0]], array![0.5]);
/// io::save_safetensors(&path, [("w", &w), ("b", &b)], &[("step".into(), "7".into())])?;
/// assert_eq!(io::load(&path)?.require("b")?.item::<f32>()?, 0.5);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn save_safetensors<'a, N: Into<String>>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
    metadata: &[(String, String)],
) -> Result<()> {
    let (specs, arrays) = specs(arrays);
    Ok(write::save_safetensors(path, &specs, metadata, &mut producer(&arrays))?)
}

/// Saves one array as npy, as [`save_safetensors`] saves many.
///
/// ```
/// use hesper::{array, io};
/// # let path = std::env::temp_dir().join(format!("hesper-save-{}.npy", std::process::id()));
/// io::save_npy(&path, &array![[1, 2], [3, 4]])?; // for numpy.load
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn save_npy(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    let (specs, arrays) = specs([("array", array)]);
    Ok(write::save_npy(path, &specs[0], &mut producer(&arrays))?)
}

/// Saves an npz file, whose arrays can be used in place.
///
/// ```
/// use hesper::{array, io};
/// # let path = std::env::temp_dir().join(format!("hesper-save-{}.npz", std::process::id()));
/// io::save_npz(&path, [("x", &array![1, 2]), ("y", &array![0.5])])?;
/// assert_eq!(io::load(&path)?.arrays().len(), 2);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn save_npz<'a, N: Into<String>>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
) -> Result<()> {
    let (specs, arrays) = specs(arrays);
    Ok(write::save_npz(path, &specs, Compression::Stored, &mut producer(&arrays))?)
}

/// Saves a compressed npz file.
///
/// ```
/// use hesper::{Array, Dtype, io};
/// # let path = std::env::temp_dir().join(format!("hesper-small-{}.npz", std::process::id()));
/// let zeros = Array::zeros(&[1000], Dtype::Float32)?;
/// io::save_npz_compressed(&path, [("zeros", &zeros)])?;
/// assert!(std::fs::metadata(&path).unwrap().len() < 1000);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn save_npz_compressed<'a, N: Into<String>>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
) -> Result<()> {
    let (specs, arrays) = specs(arrays);
    Ok(write::save_npz(path, &specs, Compression::Deflated, &mut producer(&arrays))?)
}

/// What a GGUF file holds under a name.
#[derive(Debug, Clone, Copy)]
pub enum GgufTensor<'a> {
    /// Elements.
    Array(&'a Array),
    /// A packed matrix, written as its blocks are.
    Packed(&'a PackedArray),
    /// Blocks of any type.
    Blocks(&'a Blocks),
}

impl<'a> From<&'a Array> for GgufTensor<'a> {
    fn from(array: &'a Array) -> Self {
        GgufTensor::Array(array)
    }
}

impl<'a> From<&'a PackedArray> for GgufTensor<'a> {
    fn from(packed: &'a PackedArray) -> Self {
        GgufTensor::Packed(packed)
    }
}

impl<'a> From<&'a Blocks> for GgufTensor<'a> {
    fn from(blocks: &'a Blocks) -> Self {
        GgufTensor::Blocks(blocks)
    }
}

/// Saves a GGUF file of arrays, packed matrices and blocks.
///
/// ```
/// use hesper::{Array, Dtype, PackedArray, PackedFormat, io};
/// # let path = std::env::temp_dir().join(format!("hesper-save-{}.gguf", std::process::id()));
/// let w = Array::linspace(-1.0, 1.0, 64, Dtype::Float32)?.reshape(&[2, 32])?;
/// let packed = PackedArray::quantize(&w, PackedFormat::Q8_0)?;
/// let name = ("general.name".to_string(), io::MetaValue::String("tiny".into()));
/// io::save_gguf(&path, [("w", &packed)], &[name])?;
/// assert!(io::load(&path)?.packed("w")?.is_some());
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn save_gguf<'a, N: Into<String>, T: Into<GgufTensor<'a>>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, T)>,
    metadata: &[(String, MetaValue)],
) -> Result<()> {
    let (specs, arrays) = gguf_specs(tensors);
    Ok(write::save_gguf(path, &specs, metadata, &mut producer(&arrays))?)
}

/// Writes a GGUF file to a writer.
///
/// ```
/// use hesper::{array, io};
/// let mut bytes = Vec::new();
/// io::write_gguf(&mut bytes, [("x", &array![1.0, 2.0])], &[])?;
/// assert!(bytes.starts_with(b"GGUF"));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn write_gguf<'a, N: Into<String>, T: Into<GgufTensor<'a>>>(
    out: &mut dyn Write,
    tensors: impl IntoIterator<Item = (N, T)>,
    metadata: &[(String, MetaValue)],
) -> Result<()> {
    let (specs, arrays) = gguf_specs(tensors);
    Ok(write::gguf(out, &specs, metadata, &mut producer(&arrays))?)
}

fn gguf_specs<'a, N: Into<String>, T: Into<GgufTensor<'a>>>(
    tensors: impl IntoIterator<Item = (N, T)>,
) -> (Vec<TensorSpec>, Vec<&'a Array>) {
    let blocks = |name: N, kind: GgmlType, shape: &[usize]| spec(name, FileDtype::Block(kind), shape);
    tensors
        .into_iter()
        .map(|(name, tensor)| match tensor.into() {
            GgufTensor::Array(array) => (spec(name, file_dtype(array.dtype()), array.shape()), array),
            GgufTensor::Blocks(tensor) => (blocks(name, tensor.kind(), tensor.shape()), tensor.bytes()),
            GgufTensor::Packed(tensor) => (blocks(name, tensor.format(), tensor.shape()), tensor.bytes()),
        })
        .unzip()
}

/// Writes a safetensors file to a writer.
///
/// ```
/// use hesper::{Dtype, array, io};
/// let mut bytes = Vec::new();
/// io::write_safetensors(&mut bytes, [("x", &array![1.0, 2.0])], &[])?;
/// assert_eq!(io::load_bytes(bytes)?.require("x")?.dtype(), Dtype::Float32);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn write_safetensors<'a, N: Into<String>>(
    out: &mut dyn Write,
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
    metadata: &[(String, String)],
) -> Result<()> {
    let (specs, arrays) = specs(arrays);
    Ok(write::safetensors(out, &specs, metadata, &mut producer(&arrays))?)
}

/// Writes one array as npy to a writer.
///
/// ```
/// use hesper::{array, io};
/// let mut bytes = Vec::new();
/// io::write_npy(&mut bytes, &array![1, 2])?;
/// assert!(bytes.starts_with(b"\x93NUMPY"));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn write_npy(out: &mut dyn Write, array: &Array) -> Result<()> {
    let (specs, arrays) = specs([("array", array)]);
    Ok(write::npy(out, &specs[0], &mut producer(&arrays))?)
}

/// Writes an npz file to a writer that can go back.
///
/// ```
/// use hesper::{array, io};
/// let mut bytes = std::io::Cursor::new(Vec::new());
/// io::write_npz(&mut bytes, [("x", &array![1, 2])])?;
/// assert!(bytes.into_inner().starts_with(b"PK"));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn write_npz<'a, N: Into<String>>(
    out: &mut (impl Write + Seek),
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
) -> Result<()> {
    let (specs, arrays) = specs(arrays);
    Ok(write::npz(out, &specs, Compression::Stored, &mut producer(&arrays))?)
}

/// Writes a compressed npz file to a writer that can go back.
///
/// ```
/// use hesper::{Array, Dtype, io};
/// let mut bytes = std::io::Cursor::new(Vec::new());
/// io::write_npz_compressed(&mut bytes, [("x", &Array::zeros(&[1000], Dtype::Int32)?)])?;
/// assert!(bytes.into_inner().len() < 1000);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn write_npz_compressed<'a, N: Into<String>>(
    out: &mut (impl Write + Seek),
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
) -> Result<()> {
    let (specs, arrays) = specs(arrays);
    Ok(write::npz(out, &specs, Compression::Deflated, &mut producer(&arrays))?)
}

fn specs<'a, N: Into<String>>(
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
) -> (Vec<TensorSpec>, Vec<&'a Array>) {
    arrays
        .into_iter()
        .map(|(name, array)| (spec(name, file_dtype(array.dtype()), array.shape()), array))
        .unzip()
}

fn spec(name: impl Into<String>, dtype: FileDtype, shape: &[usize]) -> TensorSpec {
    TensorSpec::new(name, dtype, shape.iter().map(|&dim| dim as u64).collect::<Vec<_>>())
}

fn file_dtype(dtype: Dtype) -> FileDtype {
    match dtype {
        Dtype::Bool => FileDtype::Bool,
        Dtype::Uint8 => FileDtype::U8,
        Dtype::Uint16 => FileDtype::U16,
        Dtype::Uint32 => FileDtype::U32,
        Dtype::Uint64 => FileDtype::U64,
        Dtype::Int8 => FileDtype::I8,
        Dtype::Int16 => FileDtype::I16,
        Dtype::Int32 => FileDtype::I32,
        Dtype::Int64 => FileDtype::I64,
        Dtype::Float16 => FileDtype::F16,
        Dtype::Bfloat16 => FileDtype::BF16,
        Dtype::Float32 => FileDtype::F32,
        Dtype::Float64 => FileDtype::F64,
        Dtype::Complex64 => FileDtype::C64,
        Dtype::Complex128 => FileDtype::C128,
    }
}

/// Evaluates an array when its bytes are wanted. Bytes of a mapped file are checked after they were written.
fn producer(arrays: &[&Array]) -> impl FnMut(usize, &mut dyn Write) -> Result<(), ProducerError> {
    move |at, out| {
        let array = arrays.get(at).ok_or("there are fewer arrays than tensors")?;
        Ok(array.read_bytes(|bytes| out.write_all(bytes))??)
    }
}
