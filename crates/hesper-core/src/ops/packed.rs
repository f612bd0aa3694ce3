//! Matrices in the block layouts of GGUF files: 32 or 256 elements with their scales, multiplied in place.

use smallvec::smallvec;

use super::gather::check_indices;
use super::quant::Activations;
use super::{Op, OpRef, PatternOp};
use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::placement::{self, Device};
use crate::shape::{Shape, size_of};

/// The layout of a [`PackedArray`].
///
/// ```
/// use hesper::PackedFormat;
/// let format = PackedFormat::Q4_1;
/// assert_eq!((format.name(), format.code()), ("Q4_1", 3));
/// assert_eq!(PackedFormat::from_code(3), Some(format));
/// assert_eq!((format.block_len(), format.block_bytes()), (32, 20));
/// assert_eq!((format.head(), format.affine_bits()), (4, Some(4))); // a scale and a minimum, then codes
/// assert!(format.is_plain() && format.is_multiplied() && format.is_decoded());
/// ```
pub use hesper_types::GgmlType as PackedFormat;

/// A matrix in blocks: bytes and their layout. The bytes may be those of a mapped file.
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
    ///
    /// ```
    /// use hesper::{Array, Dtype, PackedArray, PackedFormat};
    /// let half = [0, 0x3c]; // a scale of 1 as float16, then 32 codes of 8 bits
    /// let block: Vec<u8> = half.into_iter().chain(0..32).collect();
    /// let w = PackedArray::new(&Array::from_slice(&block), PackedFormat::Q8_0, &[1, 32])?;
    /// assert_eq!(w.dequantize(Dtype::Float32)?.to_vec::<f32>()?[5], 5.0);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn new(bytes: &Array, format: PackedFormat, shape: &[usize]) -> Result<Self> {
        if bytes.dtype() != Dtype::Uint8 {
            let what = "blocks are bytes, not an array".into();
            return Err(Error::Type { op: "packed array".into(), what, dtype: bytes.dtype() });
        }
        if !format.is_multiplied() {
            return Err(Error::value(
                "packed array",
                format!("no product takes blocks of {}", format.name()),
            ));
        }
        let cols = shape.last().copied().unwrap_or(0);
        let unit = format.block_len();
        let needed = size_of(shape)? / unit * format.block_bytes();
        if shape.len() < 2 || !cols.is_multiple_of(unit) || bytes.size() != needed {
            let what = format!(
                "{} bytes for blocks of {format:?} and shape {shape:?} ({needed} expected)",
                bytes.size()
            );
            return Err(Error::shape("packed array", what).with_shapes([bytes]));
        }
        Ok(PackedArray { bytes: bytes.reshape(&[needed as isize])?, format, shape: shape.into() })
    }

    /// Rounds a matrix to blocks of Q4_0, Q4_1 or Q8_0, as GGUF writers do.
    pub fn quantize(array: &Array, format: PackedFormat) -> Result<Self> {
        const OP: &str = "packed array";
        if !matches!(format, PackedFormat::Q4_0 | PackedFormat::Q4_1 | PackedFormat::Q8_0) {
            let what = format!("cannot round to {format:?}: Q4_0, Q4_1 and Q8_0 can be written");
            return Err(Error::value(OP, what));
        }
        if !array.size().is_multiple_of(format.block_len()) {
            let (shape, unit) = (array.shape(), format.block_len());
            let what = format!("an array of shape {shape:?} is not whole blocks of {unit}");
            return Err(Error::shape(OP, what).with_shapes([array]));
        }
        let x = array.astype(Dtype::Float32)?;
        // Rounded once, on the host; then copied to the current device, where products read the blocks.
        let host = placement::default_stream(Device::Cpu)?;
        let bytes = placement::with_stream(&host, || {
            let count = x.size() / format.block_len() * format.block_bytes();
            Array::lazy(smallvec![count], Dtype::Uint8, OpRef::new(Pack { format }), smallvec![x])?
                .to_vec::<u8>()
        })?;
        PackedArray::new(&Array::from_slice(&bytes), format, array.shape())
    }

    /// The lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The layout of its blocks.
    pub fn format(&self) -> PackedFormat {
        self.format
    }

    /// The bytes of its blocks.
    pub fn bytes(&self) -> &Array {
        &self.bytes
    }

    /// The matrix, dequantized.
    ///
    /// ```
    /// use hesper::{Array, Dtype, PackedArray, PackedFormat};
    /// let w = Array::linspace(-1.0, 1.0, 32, Dtype::Float32)?.reshape(&[1, 32])?;
    /// let packed = PackedArray::quantize(&w, PackedFormat::Q8_0)?;
    /// assert_eq!((packed.shape(), packed.format()), (&[1, 32][..], PackedFormat::Q8_0));
    /// assert_eq!(packed.bytes().size(), 34); // a scale of two bytes, and a byte for each number
    /// let error = packed.dequantize(Dtype::Float32)?.subtract(&w)?.abs()?.max(())?;
    /// assert!(error.item::<f32>()? < 0.01);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn dequantize(&self, dtype: Dtype) -> Result<Array> {
        let rows: usize = self.shape[..self.shape.len() - 1].iter().product();
        let cols = self.shape[self.shape.len() - 1];
        let op = Unpack { format: self.format, cols };
        let made = narrow("dequantize", dtype)?;
        let flat = Array::lazy(smallvec![rows, cols], made, OpRef::new(op), smallvec![self.bytes.clone()])?;
        flat.reshape(&self.shape)?.astype(dtype)
    }

    /// The rows that indices name, dequantized: what an embedding looks up. Negative indices count from
    /// the back; those out of range are moved to the nearest row.
    ///
    /// ```
    /// use hesper::{Array, Dtype, PackedArray, PackedFormat, array};
    /// let table = Array::arange(0.0..96.0, None)?.reshape(&[3, 32])?;
    /// let packed = PackedArray::quantize(&table, PackedFormat::Q8_0)?;
    /// assert_eq!(packed.rows(&array![2, 0], Dtype::Float32)?.shape(), [2, 32]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
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
    ///
    /// ```
    /// use hesper::{Activations, Array, Dtype, PackedArray, PackedFormat};
    /// let w = PackedArray::quantize(&Array::ones(&[3, 32], Dtype::Float32)?, PackedFormat::Q8_0)?;
    /// let x = Array::linspace(0.0, 1.0, 32, Dtype::Float32)?;
    /// let (exact, fast) = (w.matmul(&x)?, w.matmul_with(&x, Activations::Int8)?);
    /// assert!(fast.subtract(&exact)?.abs()?.max(())?.item::<f32>()? < 0.1);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn matmul_with(&self, x: &Array, activations: Activations) -> Result<Array> {
        const OP: &str = "packed_matmul";
        let [n, k] = self.matrix(OP)?;
        if x.shape().last() != Some(&k) {
            let what = format!(
                "an array of shape {:?} times the transpose of one of shape {:?}",
                x.shape(),
                self.shape
            );
            return Err(Error::shape(OP, what).with_shapes([x]));
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
        flat.reshape(&shape)?.astype(x.dtype())
    }

    /// Rows and columns, if it is one matrix.
    fn matrix(&self, op: &str) -> Result<[usize; 2]> {
        match self.shape[..] {
            [rows, cols] => Ok([rows, cols]),
            _ => Err(Error::shape(op, format!("blocks of shape {:?} are not a matrix", self.shape))),
        }
    }
}

/// The product of rows with the transpose of a packed matrix.
///
/// ```
/// use hesper::{Array, Dtype, PackedArray, PackedFormat, packed_matmul};
/// let w = PackedArray::quantize(&Array::ones(&[3, 32], Dtype::Float32)?, PackedFormat::Q4_0)?;
/// let y = packed_matmul(&Array::ones(&[2, 32], Dtype::Float32)?, &w)?;
/// assert_eq!((y.shape(), y.to_vec::<f32>()?[0].round()), (&[2, 3][..], 32.0));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn packed_matmul(x: &Array, w: &PackedArray) -> Result<Array> {
    w.matmul(x)
}

/// The type that kernels give for a requested one.
fn narrow(op: &str, dtype: Dtype) -> Result<Dtype> {
    if !dtype.is(Category::Floating) {
        let what = "is for floating-point numbers, not for an array".into();
        return Err(Error::Type { op: op.into(), what, dtype });
    }
    Ok(if dtype == Dtype::Float64 { Dtype::Float32 } else { dtype })
}

/// Rounds elements to blocks. Input: float32. Gives the bytes of the blocks.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Pack {
    /// Q4_0, Q4_1 or Q8_0.
    pub format: PackedFormat,
}

impl Op for Pack {
    fn name(&self) -> &'static str {
        "pack"
    }
}

/// Dequantizes a matrix. Input: the bytes of its blocks.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Unpack {
    /// The layout of the blocks.
    pub format: PackedFormat,
    /// Elements of a row.
    pub cols: usize,
}

impl Op for Unpack {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn export(&self) -> Export {
        Record::new("unpack").with("format", name_of(self.format)).with("cols", self.cols).into()
    }
}

/// Dequantizes rows of a matrix. Inputs: the bytes of its blocks, and row indices.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct UnpackRows {
    /// The layout of the blocks.
    pub format: PackedFormat,
    /// Rows of the matrix.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
}

impl Op for UnpackRows {
    fn name(&self) -> &'static str {
        "packed_rows"
    }

    fn export(&self) -> Export {
        let record = Record::new("unpack_rows").with("format", name_of(self.format));
        record.with("rows", self.rows).with("cols", self.cols).into()
    }
}

/// Inputs: rows of activations, and blocks.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PackedMatmul {
    /// The layout of the blocks.
    pub format: PackedFormat,
    /// Whether activations may be rounded.
    pub activations: Activations,
}

impl Op for PackedMatmul {
    fn name(&self) -> &'static str {
        "packed_matmul"
    }

    fn pattern(&self) -> PatternOp {
        PatternOp::PackedProduct(self.activations)
    }

    fn export(&self) -> Export {
        let record = Record::new("packed_matmul").with("format", name_of(self.format));
        record.with("rounded", self.activations == Activations::Int8).into()
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
        // A shared matrix: the new axis adds rows.
        let x = rule.front(0)?;
        let [rows, columns] = [rule.size * x.shape()[1], rule.output.shape()[1]];
        let inputs = smallvec![x.reshape(&[rows as isize, x.shape()[2] as isize])?, rule.inputs[1].clone()];
        let all = Array::lazy(smallvec![rows, columns], rule.output.dtype(), rule.op.clone(), inputs)?;
        Ok((all.reshape(&rule.shape())?, 0))
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

/// The blocks of a replayed op's input as a matrix of `cols` columns.
fn matrix_of(replay: &Replay<'_>, bytes: &Array, cols: usize) -> Result<PackedArray> {
    let format = replay.choice("format", &FORMATS)?;
    let row = cols / format.block_len() * format.block_bytes();
    if row == 0 || bytes.ndim() != 1 {
        return Err(replay.wrong("no rows of blocks"));
    }
    PackedArray::new(bytes, format, &[bytes.size() / row, cols])
}

reader!("unpack", One(read_unpack));
fn read_unpack(replay: &Replay<'_>) -> Result<Array> {
    let [bytes] = replay.inputs()?;
    matrix_of(replay, bytes, replay.length("cols")?)?.dequantize(replay.dtype())
}

reader!("unpack_rows", One(read_rows));
fn read_rows(replay: &Replay<'_>) -> Result<Array> {
    let [bytes, indices] = replay.inputs()?;
    let format = replay.choice("format", &FORMATS)?;
    let shape = [replay.length("rows")?, replay.length("cols")?];
    PackedArray::new(bytes, format, &shape)?.rows(indices, replay.dtype())
}

reader!("packed_matmul", One(read_matmul));
fn read_matmul(replay: &Replay<'_>) -> Result<Array> {
    let [x, bytes] = replay.inputs()?;
    let activations = if replay.flag("rounded")? { Activations::Int8 } else { Activations::Exact };
    let cols = x.shape().last().copied().unwrap_or(0);
    matrix_of(replay, bytes, cols)?.matmul_with(x, activations)
}
