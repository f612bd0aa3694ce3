//! Matrices as GGUF files hold them: blocks of 32 or 256 numbers with their scales, multiplied where they lie.

use half::{bf16, f16};
use hesper_compute::{Activations, GgufMat, MatMut, MatRef, gguf_dequantize, gguf_matmul, gguf_quantize};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::gather::check_indices;
use super::lists::Indices;
use super::native::{GRAIN, par_chunks_mut};
use super::walk::Strided;
use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::{Shape, size_of};
use crate::transform::rule::{Backward, Batch, Cotangents};
use crate::{Dtype, Element};

pub use hesper_compute::GgufFormat as PackedFormat;

/// A matrix in blocks: bytes, and what they mean. The bytes may be those of a mapped file.
///
/// ```
/// use hesper::{Array, Dtype, PackedArray, PackedFormat};
/// let w = Array::arange(0.0..64.0, None)?.reshape(&[2, 32])?;
/// let packed = PackedArray::quantize(&w, PackedFormat::Q8_0)?;
/// let x = Array::ones(&[1, 32], Dtype::Float32)?;
/// let y = packed.matmul(&x)?.to_vec::<f32>()?;
/// assert!((y[0] - 496.0).abs() < 4.0 && (y[1] - 1520.0).abs() < 8.0);
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PackedArray {
    bytes: Array,
    format: PackedFormat,
    shape: Shape,
}

impl PackedArray {
    /// A matrix of `shape` (rows along its last axis, in whole blocks) over the bytes of its
    /// blocks, row by row.
    pub fn new(bytes: &Array, format: PackedFormat, shape: &[usize]) -> Result<Self> {
        if bytes.dtype() != Dtype::Uint8 {
            let what = "blocks are bytes, not an array".into();
            return Err(Error::Type { op: "packed array".into(), what, dtype: bytes.dtype() });
        }
        let cols = shape.last().copied().unwrap_or(0);
        let unit = format.block_len();
        let needed = size_of(shape)? / unit * format.block_bytes();
        if shape.len() < 2 || !cols.is_multiple_of(unit) || bytes.size() != needed {
            let what = format!(
                "{} bytes for blocks of {format:?} and shape {shape:?} ({needed} expected)",
                bytes.size()
            );
            return Err(Error::shape("packed array", what));
        }
        Ok(PackedArray { bytes: bytes.reshape(&[needed as isize])?, format, shape: shape.into() })
    }

    /// Rounds a matrix to blocks of Q4_0, Q4_1 or Q8_0, as GGUF writers do.
    pub fn quantize(array: &Array, format: PackedFormat) -> Result<Self> {
        let bytes = array.astype(Dtype::Float32)?.read(|numbers: &[f32]| {
            let mut bytes = vec![0; numbers.len() / format.block_len() * format.block_bytes()];
            gguf_quantize(format, numbers, &mut bytes).map(|()| bytes)
        })?;
        let bytes = bytes.map_err(|error| Error::shape("packed array", error.to_string()))?;
        PackedArray::new(&Array::from_slice(&bytes), format, array.shape())
    }

    /// The lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// What its blocks hold.
    pub fn format(&self) -> PackedFormat {
        self.format
    }

    /// The bytes of its blocks.
    pub fn bytes(&self) -> &Array {
        &self.bytes
    }

    /// All of its numbers.
    pub fn dequantize(&self, dtype: Dtype) -> Result<Array> {
        let rows: usize = self.shape[..self.shape.len() - 1].iter().product();
        let cols = self.shape[self.shape.len() - 1];
        let op = Unpack { format: self.format, cols };
        let made = narrow("dequantize", dtype)?;
        let flat = Array::lazy(smallvec![rows, cols], made, OpRef::new(op), smallvec![self.bytes.clone()])?;
        flat.reshape(&signed(&self.shape))?.astype(dtype)
    }

    /// The rows that indices name, dequantized: what an embedding looks up. Negative indices count from
    /// the back; those out of range are moved to the nearest row.
    pub fn rows(&self, indices: &Array, dtype: Dtype) -> Result<Array> {
        check_indices("rows", indices)?;
        let made = narrow("rows", dtype)?;
        let [rows, cols] = self.matrix("rows")?;
        let shape: Shape = indices.shape().iter().copied().chain([cols]).collect();
        if rows == 0 && !shape.contains(&0) {
            return Err(Error::value("rows", "a matrix without rows has none to take"));
        }
        let op = OpRef::new(UnpackRows { format: self.format, rows, cols });
        Array::lazy(shape, made, op, smallvec![self.bytes.clone(), indices.contiguous()?])?.astype(dtype)
    }

    /// The product of rows with the transpose of this matrix: `x w^T`.
    pub fn matmul(&self, x: &Array) -> Result<Array> {
        self.matmul_with(x, Activations::Exact)
    }

    /// [`PackedArray::matmul`] with a choice of what may happen to the activations before they are
    /// multiplied.
    pub fn matmul_with(&self, x: &Array, activations: Activations) -> Result<Array> {
        const OP: &str = "packed_matmul";
        let [n, k] = self.matrix(OP)?;
        if x.shape().last() != Some(&k) {
            let what = format!(
                "an array of shape {:?} times the transpose of one of shape {:?}",
                x.shape(),
                self.shape
            );
            return Err(Error::shape(OP, what));
        }
        let dtype = narrow(OP, x.dtype())?;
        let lead = &x.shape()[..x.ndim() - 1];
        let shape: Shape = lead.iter().copied().chain([n]).collect();
        if shape.contains(&0) || k == 0 {
            return Array::zeros(&shape, x.dtype());
        }
        let rows: usize = lead.iter().product();
        let x_rows = x.astype(dtype)?.reshape(&[rows as isize, k as isize])?;
        let op = OpRef::new(PackedMatmul { format: self.format, activations });
        let flat = Array::lazy(smallvec![rows, n], dtype, op, smallvec![x_rows, self.bytes.clone()])?;
        flat.reshape(&signed(&shape))?.astype(x.dtype())
    }

    /// Rows and columns, if it is one matrix.
    fn matrix(&self, op: &str) -> Result<[usize; 2]> {
        match self.shape[..] {
            [rows, cols] => Ok([rows, cols]),
            _ => Err(Error::shape(op, format!("blocks of shape {:?} are no matrix", self.shape))),
        }
    }
}

/// The product of rows with the transpose of a packed matrix.
pub fn packed_matmul(x: &Array, w: &PackedArray) -> Result<Array> {
    w.matmul(x)
}

fn signed(shape: &[usize]) -> SmallVec<[isize; 6]> {
    shape.iter().map(|length| *length as isize).collect()
}

/// The type that kernels compute in for one that is asked for.
fn narrow(op: &str, dtype: Dtype) -> Result<Dtype> {
    if !dtype.is(Category::Floating) {
        let what = "is for floating-point numbers, not for an array".into();
        return Err(Error::Type { op: op.into(), what, dtype });
    }
    Ok(if dtype == Dtype::Float64 { Dtype::Float32 } else { dtype })
}

/// Runs a generic lowering for a type of floats.
macro_rules! with_narrow {
    ($op:expr, $l:expr) => {
        match $l.dtype() {
            Dtype::Float16 => $op.run::<f16>($l),
            Dtype::Bfloat16 => $op.run::<bf16>($l),
            _ => $op.run::<f32>($l),
        }
    };
}

#[derive(Debug)]
struct Unpack {
    format: PackedFormat,
    cols: usize,
}

impl Unpack {
    fn run<T: Element + hesper_compute::Float>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (bytes, output) = (Strided::row_major(l, 0)?, l.output()?);
        let (format, rows, cols) = (self.format, l.shape()[0], self.cols);
        let buffer = bytes.data.buffer.clone();
        let command = l.stream().command(self.name()).read_range(&buffer, bytes.bytes);
        command.write(&output).run(move |native| {
            let [bytes, out] = native.take()?;
            let (bytes, out) = (bytes.as_slice()?, out.as_mut_slice::<T>()?);
            GgufMat::new(format, rows, cols, bytes)
                .and_then(|w| gguf_dequantize(&Cores, &w, out))
                .map_err(|error| error.to_string().into())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

impl Op for Unpack {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn export(&self) -> Export {
        Record::new("unpack").with("format", name_of(self.format)).with("cols", self.cols).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_narrow!(self, l)
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::blocks::numbers(l, self.format, None)
    }
}

#[derive(Debug)]
struct UnpackRows {
    format: PackedFormat,
    rows: usize,
    cols: usize,
}

impl UnpackRows {
    fn run<T: Element + hesper_compute::Float>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (bytes, list, output) = (Strided::row_major(l, 0)?, Strided::row_major(l, 1)?, l.output()?);
        let (format, rows, cols, dtype) = (self.format, self.rows, self.cols, l.input_dtype(1));
        let buffers = [bytes.data.buffer.clone(), list.data.buffer.clone()];
        let command = l.stream().command(self.name()).read_range(&buffers[0], bytes.bytes);
        command.read_range(&buffers[1], list.bytes).write(&output).run(move |native| {
            let [bytes, list, out] = native.take()?;
            let (bytes, out) = (bytes.as_slice::<u8>()?, out.as_mut_slice::<T>()?);
            let indices = Indices::of(list, dtype)?;
            let row = cols / format.block_len() * format.block_bytes();
            let many = (GRAIN / cols.max(1)).max(1);
            let failed = std::sync::Mutex::new(None);
            par_chunks_mut(out, many * cols, |task, piece| {
                for (at, out) in piece.chunks_mut(cols).enumerate() {
                    let from = indices.get((task * many + at) as isize, rows, 1) as usize * row;
                    let done = GgufMat::new(format, 1, cols, &bytes[from..from + row])
                        .and_then(|w| gguf_dequantize(&hesper_compute::Serial, &w, out));
                    if let Err(error) = done {
                        *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
                    }
                }
            });
            let failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            failed.map_or(Ok(()), |error| Err(error.to_string().into()))
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

impl Op for UnpackRows {
    fn name(&self) -> &'static str {
        "packed_rows"
    }

    fn export(&self) -> Export {
        let record = Record::new("unpack_rows").with("format", name_of(self.format));
        record.with("rows", self.rows).with("cols", self.cols).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_narrow!(self, l)
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::blocks::numbers(l, self.format, Some(self.rows))
    }
}

/// Inputs: rows of activations, and blocks.
#[derive(Debug)]
struct PackedMatmul {
    format: PackedFormat,
    activations: Activations,
}

impl PackedMatmul {
    fn run<T: Element + hesper_compute::Float>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (x, bytes, output) = (Strided::input(l, 0), Strided::row_major(l, 1)?, l.output()?);
        let (format, activations) = (self.format, self.activations);
        let [m, n] = [l.shape()[0], l.shape()[1]];
        let buffers = [x.data.buffer.clone(), bytes.data.buffer.clone()];
        let command = l.stream().command(self.name()).read_range(&buffers[0], x.bytes.clone());
        command.read_range(&buffers[1], bytes.bytes).write(&output).run(move |native| {
            let [all, bytes, out] = native.take()?;
            let (all, bytes, out) = (all.as_slice::<T>()?, bytes.as_slice()?, out.as_mut_slice::<T>()?);
            let (k, strides) = (x.shape[1], x.strides());
            MatRef::strided(all, x.offset as usize, m, k, strides[0], strides[1])
                .and_then(|x| {
                    let w = GgufMat::new(format, n, k, bytes)?;
                    gguf_matmul(&Cores, x, &w, MatMut::row_major(out, m, n)?, activations)
                })
                .map_err(|error| error.to_string().into())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

impl Op for PackedMatmul {
    fn name(&self) -> &'static str {
        "packed_matmul"
    }

    fn export(&self) -> Export {
        let record = Record::new("packed_matmul").with("format", name_of(self.format));
        record.with("rounded", self.activations == Activations::Int8).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_narrow!(self, l)
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::blocks::multiply(l, self.format)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (x, cotangent) = (&rule.inputs[0], rule.cotangent()?);
        let shape = [cotangent.shape()[1], x.shape()[1]];
        let whole = PackedArray::new(&rule.inputs[1], self.format, &shape)?.dequantize(x.dtype())?;
        rule.only(cotangent.matmul(&whole))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.is_batched(1) || rule.size == 0 {
            return rule.one_by_one();
        }
        // One matrix for all: more rows.
        let x = rule.front(0)?;
        let [rows, columns] = [rule.size * x.shape()[1], rule.output.shape()[1]];
        let inputs = smallvec![x.reshape(&[rows as isize, x.shape()[2] as isize])?, rule.inputs[1].clone()];
        let all = Array::lazy(smallvec![rows, columns], rule.output.dtype(), rule.op.clone(), inputs)?;
        Ok((all.reshape(&signed(&rule.shape()))?, 0))
    }
}

const FORMATS: [(&str, PackedFormat); 10] = [
    ("q4_0", PackedFormat::Q4_0),
    ("q4_1", PackedFormat::Q4_1),
    ("q8_0", PackedFormat::Q8_0),
    ("q5_0", PackedFormat::Q5_0),
    ("q5_1", PackedFormat::Q5_1),
    ("q2_k", PackedFormat::Q2_K),
    ("q3_k", PackedFormat::Q3_K),
    ("q4_k", PackedFormat::Q4_K),
    ("q5_k", PackedFormat::Q5_K),
    ("q6_k", PackedFormat::Q6_K),
];

fn name_of(format: PackedFormat) -> &'static str {
    FORMATS.iter().find(|(_, other)| *other == format).map_or("q8_0", |(name, _)| name)
}

/// The blocks of a step's input as a matrix of so many columns.
fn matrix_of(replay: &Replay<'_>, bytes: &Array, cols: usize) -> Result<PackedArray> {
    let format = replay.choice("format", &FORMATS)?;
    let row = cols / format.block_len() * format.block_bytes();
    if row == 0 || bytes.ndim() != 1 {
        return Err(replay.wrong("no rows of blocks"));
    }
    PackedArray::new(bytes, format, &[bytes.size() / row, cols])
}

pub(super) fn read_unpack(replay: &Replay<'_>) -> Result<Array> {
    let [bytes] = replay.inputs()?;
    matrix_of(replay, bytes, replay.length("cols")?)?.dequantize(replay.dtype())
}

pub(super) fn read_rows(replay: &Replay<'_>) -> Result<Array> {
    let [bytes, indices] = replay.inputs()?;
    let format = replay.choice("format", &FORMATS)?;
    let shape = [replay.length("rows")?, replay.length("cols")?];
    PackedArray::new(bytes, format, &shape)?.rows(indices, replay.dtype())
}

pub(super) fn read_matmul(replay: &Replay<'_>) -> Result<Array> {
    let [x, bytes] = replay.inputs()?;
    let activations = if replay.flag("rounded")? { Activations::Int8 } else { Activations::Exact };
    let cols = x.shape().last().copied().unwrap_or(0);
    matrix_of(replay, bytes, cols)?.matmul_with(x, activations)
}
