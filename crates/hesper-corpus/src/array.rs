//! Arrays of test data: a dtype, a shape, strides and the bytes behind them.
//!
//! An [`Array`] is a view into its own storage, so it can be strided, transposed, broadcast or reversed.
//! Values are rounded to the dtype on construction: a reference that reads them back sees exactly what a
//! kernel sees.

use half::{bf16, f16};

/// An element type of a kernel's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// `uint8_t`.
    U8,
    /// `uint16_t`.
    U16,
    /// `uint32_t`.
    U32,
    /// `uint64_t`.
    U64,
    /// `int8_t`.
    I8,
    /// `int16_t`.
    I16,
    /// `int32_t`.
    I32,
    /// `int64_t`.
    I64,
    /// `half`.
    F16,
    /// `bfloat`.
    BF16,
    /// `float`.
    F32,
    /// Two floats, real part first.
    Complex64,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::Complex64 => 8,
        }
    }

    /// True for the types whose values are compared as floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::Complex64)
    }

    /// Rounds a number to this type and back (floating-point types only; others are returned as they are).
    pub fn round(self, value: f64) -> f64 {
        match self {
            DType::F16 => f16::from_f32(value as f32).to_f64(),
            DType::BF16 => bf16::from_f32(value as f32).to_f64(),
            DType::F32 | DType::Complex64 => f64::from(value as f32),
            _ => value,
        }
    }
}

/// Reads the element that starts at `at` as a float; complex elements are read as their real part.
fn float_at(dtype: DType, bytes: &[u8], at: usize) -> f64 {
    match dtype {
        DType::F16 => f16::from_le_bytes(word(bytes, at)).to_f64(),
        DType::BF16 => bf16::from_le_bytes(word(bytes, at)).to_f64(),
        DType::F32 | DType::Complex64 => f64::from(f32::from_le_bytes(word(bytes, at))),
        _ => int_at(dtype, bytes, at) as f64,
    }
}

/// Reads the element that starts at `at` as an integer (`u64` keeps its bits).
fn int_at(dtype: DType, bytes: &[u8], at: usize) -> i64 {
    match dtype {
        DType::Bool | DType::U8 => i64::from(bytes[at]),
        DType::I8 => i64::from(bytes[at] as i8),
        DType::U16 => i64::from(u16::from_le_bytes(word(bytes, at))),
        DType::I16 => i64::from(i16::from_le_bytes(word(bytes, at))),
        DType::U32 => i64::from(u32::from_le_bytes(word(bytes, at))),
        DType::I32 => i64::from(i32::from_le_bytes(word(bytes, at))),
        DType::U64 | DType::I64 => i64::from_le_bytes(word(bytes, at)),
        _ => float_at(dtype, bytes, at) as i64,
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The values of a contiguous buffer as floats; a complex element gives two numbers.
pub fn decode_floats(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    if dtype == DType::Complex64 {
        return decode_floats(DType::F32, bytes);
    }
    (0..bytes.len() / dtype.size()).map(|i| float_at(dtype, bytes, i * dtype.size())).collect()
}

/// The values of a contiguous buffer as integers (`u64` keeps its bits).
pub fn decode_ints(dtype: DType, bytes: &[u8]) -> Vec<i64> {
    (0..bytes.len() / dtype.size()).map(|i| int_at(dtype, bytes, i * dtype.size())).collect()
}

fn encode_floats(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len() * dtype.size());
    for &v in values {
        match dtype {
            DType::F16 => out.extend(f16::from_f32(v as f32).to_le_bytes()),
            DType::BF16 => out.extend(bf16::from_f32(v as f32).to_le_bytes()),
            DType::F32 | DType::Complex64 => out.extend((v as f32).to_le_bytes()),
            _ => out.extend(&(v as i64).to_le_bytes()[..dtype.size()]),
        }
    }
    out
}

/// Test data: a strided view into bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Size of every axis; empty for a scalar.
    pub shape: Vec<usize>,
    /// Step of every axis, in elements.
    pub strides: Vec<i64>,
    /// Element of `storage` that the first element of the view lies at.
    pub offset: usize,
    /// All bytes of the underlying buffer, little endian.
    pub storage: Vec<u8>,
}

/// The strides of a row-major array of this shape.
pub fn row_major(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as i64;
    }
    strides
}

impl Array {
    /// A row-major array of numbers, each rounded to `dtype`; complex arrays take two numbers an element.
    pub fn floats(dtype: DType, shape: &[usize], values: &[f64]) -> Self {
        let per = if dtype == DType::Complex64 { 2 } else { 1 };
        assert_eq!(values.len(), per * shape.iter().product::<usize>(), "as many values as elements");
        Self::from_bytes(dtype, shape, encode_floats(dtype, values))
    }

    /// A row-major array of integers, each cut to the width of `dtype`.
    pub fn ints(dtype: DType, shape: &[usize], values: &[i64]) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "as many values as elements");
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()[..dtype.size()].to_vec()).collect();
        Self::from_bytes(dtype, shape, bytes)
    }

    /// An array of no dimensions: the kernel sees a reference, not a pointer.
    pub fn scalar(dtype: DType, value: f64) -> Self {
        Self::from_bytes(dtype, &[], encode_floats(dtype, &[value]))
    }

    /// A row-major array over raw little-endian bytes.
    pub fn from_bytes(dtype: DType, shape: &[usize], storage: Vec<u8>) -> Self {
        assert_eq!(storage.len(), dtype.size() * shape.iter().product::<usize>(), "bytes match the shape");
        Array { dtype, shape: shape.to_vec(), strides: row_major(shape), offset: 0, storage }
    }

    /// Another view of the same storage.
    pub fn view(mut self, shape: &[usize], strides: &[i64], offset: usize) -> Self {
        assert_eq!(shape.len(), strides.len(), "one stride an axis");
        self.shape = shape.to_vec();
        self.strides = strides.to_vec();
        self.offset = offset;
        assert!(
            self.positions().all(|p| p < self.storage.len() / self.dtype.size()),
            "the view stays inside"
        );
        self
    }

    /// Number of elements of the view.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when the view has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when the view is dense and row-major, so that a kernel may index it flat.
    pub fn is_row_contiguous(&self) -> bool {
        let dense = row_major(&self.shape);
        (0..self.shape.len()).all(|axis| self.shape[axis] == 1 || self.strides[axis] == dense[axis])
    }

    /// The storage position of every element, in row-major order of the view.
    fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).map(|flat| {
            let (mut rest, mut at) = (flat, self.offset as i64);
            for axis in (0..self.shape.len()).rev() {
                at += (rest % self.shape[axis]) as i64 * self.strides[axis];
                rest /= self.shape[axis];
            }
            usize::try_from(at).expect("the view stays inside its storage")
        })
    }

    /// A dense row-major copy of the view.
    pub fn contiguous(&self) -> Self {
        let size = self.dtype.size();
        let bytes = self.positions().flat_map(|p| self.storage[p * size..][..size].to_vec()).collect();
        Self::from_bytes(self.dtype, &self.shape, bytes)
    }

    /// The elements as floats in row-major order; two numbers for a complex element.
    pub fn to_floats(&self) -> Vec<f64> {
        decode_floats(self.dtype, &self.contiguous().storage)
    }

    /// The elements as integers in row-major order.
    pub fn to_ints(&self) -> Vec<i64> {
        decode_ints(self.dtype, &self.contiguous().storage)
    }
}
