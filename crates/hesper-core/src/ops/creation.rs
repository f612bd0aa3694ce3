//! Arrays without inputs: constants, ranges, identity and triangular matrices, windows.
//!
//! They are element-wise functions of an element's index, so the kernel of a consumer computes them and
//! nothing is stored.

use std::borrow::Borrow;

use hesper_kernel::ir::{Builder, Scalar, UnaryOp, ValueId};
use smallvec::smallvec;

use super::elementwise::{Elementwise, Factor, Types};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::scope::is_free;
use crate::graph::{Array, Replay};
use crate::ops::logic::select;
use crate::ops::readers::reader;
use crate::scalar::Operand;
use crate::shape::broadcast;

static FULL: Elementwise =
    Elementwise::new("full", Types::Same, |_, inputs| inputs[0]).with_derivative(|_, _, _| Ok(Factor::One));

/// `start + step * place`, in int64.
static COUNT: Elementwise = Elementwise::indexed("count", |b, inputs| {
    let steps = b.mul(inputs[1], inputs[2]);
    b.add(inputs[0], steps)
});

/// The same in float64, rounded once at the end.
static RANGE: Elementwise = Elementwise::indexed("range", |b, inputs| {
    let place = b.convert(inputs[2], Scalar::F64);
    range(b, inputs, place)
});

/// The same for places of 32 bits, which become floats faster.
static SHORT_RANGE: Elementwise = Elementwise::indexed("short range", |b, inputs| {
    let place = b.convert(inputs[2], Scalar::I32);
    let place = b.convert(place, Scalar::F64);
    range(b, inputs, place)
});

fn range(b: &mut Builder, inputs: &[ValueId], place: ValueId) -> ValueId {
    let steps = b.mul(inputs[1], place);
    b.add(inputs[0], steps)
}

/// Between two numbers, in parts of the third.
static LINSPACE: Elementwise = Elementwise::indexed("linspace", |b, inputs| {
    let place = b.convert(inputs[3], Scalar::F64);
    let part = b.div(place, inputs[2]);
    let one = b.f64(1.0);
    let rest = b.sub(one, part);
    let (from, to) = (b.mul(inputs[0], rest), b.mul(inputs[1], part));
    b.add(from, to)
});

/// `cos(factor * pi * place / last)`, in float64.
fn wave(b: &mut Builder, inputs: &[ValueId], factor: f64) -> ValueId {
    let place = b.convert(inputs[1], Scalar::F64);
    let part = b.div(place, inputs[0]);
    let factor = b.f64(factor);
    let angle = b.mul(factor, part);
    b.unary(UnaryOp::CosPi, angle)
}

/// A constant plus multiples of waves.
fn sum_of_waves(b: &mut Builder, inputs: &[ValueId], constant: f64, waves: &[(f64, f64)]) -> ValueId {
    let mut sum = b.f64(constant);
    for (height, factor) in waves {
        let wave = wave(b, inputs, *factor);
        let height = b.f64(*height);
        let term = b.mul(height, wave);
        sum = b.add(sum, term);
    }
    sum
}

static HANNING: Elementwise =
    Elementwise::indexed("hanning", |b, inputs| sum_of_waves(b, inputs, 0.5, &[(-0.5, 2.0)]));
static HAMMING: Elementwise =
    Elementwise::indexed("hamming", |b, inputs| sum_of_waves(b, inputs, 0.54, &[(-0.46, 2.0)]));
static BLACKMAN: Elementwise =
    Elementwise::indexed("blackman", |b, inputs| sum_of_waves(b, inputs, 0.42, &[(-0.5, 2.0), (0.08, 4.0)]));
static BARTLETT: Elementwise = Elementwise::indexed("bartlett", |b, inputs| {
    let place = b.convert(inputs[1], Scalar::F64);
    let two = b.f64(2.0);
    let twice = b.mul(two, place);
    let part = b.div(twice, inputs[0]);
    let one = b.f64(1.0);
    let off = b.sub(part, one);
    let off = b.unary(UnaryOp::Abs, off);
    b.sub(one, off)
});

fn int(value: i64) -> Result<Array> {
    Array::integer(value, Dtype::Int64)
}

fn float(value: f64) -> Result<Array> {
    Array::scalar(value, Dtype::Float64)
}

/// The range of [`Array::arange`]: start, stop and step.
#[derive(Debug, Clone, Copy)]
pub enum Range {
    /// Integers.
    Int(i64, i64, i64),
    /// Floating-point numbers.
    Float(f64, f64, f64),
}

impl From<std::ops::Range<i64>> for Range {
    fn from(range: std::ops::Range<i64>) -> Self {
        Range::Int(range.start, range.end, 1)
    }
}

impl From<i64> for Range {
    fn from(stop: i64) -> Self {
        Range::Int(0, stop, 1)
    }
}

impl From<(i64, i64, i64)> for Range {
    fn from((start, stop, step): (i64, i64, i64)) -> Self {
        Range::Int(start, stop, step)
    }
}

impl From<std::ops::Range<f64>> for Range {
    fn from(range: std::ops::Range<f64>) -> Self {
        Range::Float(range.start, range.end, 1.0)
    }
}

impl From<f64> for Range {
    fn from(stop: f64) -> Self {
        Range::Float(0.0, stop, 1.0)
    }
}

impl From<(f64, f64, f64)> for Range {
    fn from((start, stop, step): (f64, f64, f64)) -> Self {
        Range::Float(start, stop, step)
    }
}

/// The order of the axes of [`meshgrid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Indexing {
    /// The first array runs along the second axis, as coordinates do.
    #[default]
    Xy,
    /// The arrays run along their own axes, as indices do.
    Ij,
}

impl Array {
    /// An array filled with a number, or with an array that broadcasts to the shape. A plain number has the
    /// type int32, float32, bool or complex64 where `dtype` gives none.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// assert_eq!(Array::full(&[2, 2], 7, None)?.to_vec::<i32>()?, [7; 4]);
    /// assert_eq!(Array::full(&[2], 7, Some(Dtype::Float32))?.to_vec::<f32>()?, [7.0; 2]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn full(shape: &[usize], value: impl Into<Operand>, dtype: Option<Dtype>) -> Result<Array> {
        let value = match (value.into(), dtype) {
            (Operand::Int(value), Some(dtype)) => Array::integer(value, dtype)?,
            (Operand::Float(value), Some(dtype)) => Array::scalar(value, dtype)?,
            (Operand::Complex(value), Some(dtype)) => Array::complex(value, dtype)?,
            (value, _) => value.alone()?,
        };
        if broadcast("full", value.shape(), shape)?[..] != *shape {
            let what = format!("an array of shape {:?} does not broadcast to {shape:?}", value.shape());
            return Err(Error::shape("full", what).with_shapes([&value]));
        }
        FULL.generate(shape, dtype.unwrap_or(value.dtype()), smallvec![value])
    }

    /// An array of the same shape, filled, of the same type unless another is given.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1u8, 2];
    /// assert_eq!(x.full_like(7, None)?.to_vec::<u8>()?, [7, 7]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn full_like(&self, value: impl Into<Operand>, dtype: Option<Dtype>) -> Result<Array> {
        let (value, dtype) = (value.into(), dtype.unwrap_or(self.dtype()));
        if !is_free(self) {
            return Array::full(self.shape(), value, Some(dtype));
        }
        let value = match value {
            Operand::Array(value) => value.astype(dtype)?,
            number => Array::full(&[], number, Some(dtype))?,
        };
        value.broadcast_like(self)
    }

    /// An array of zeros.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::zeros(&[2, 3], Dtype::Bfloat16)?;
    /// assert_eq!((x.shape(), x.nbytes()), (&[2, 3][..], 12));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn zeros(shape: &[usize], dtype: Dtype) -> Result<Array> {
        Array::full(shape, 0, Some(dtype))
    }

    /// An array of ones.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// assert_eq!(Array::ones(&[2], Dtype::Int64)?.to_vec::<i64>()?, [1, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn ones(shape: &[usize], dtype: Dtype) -> Result<Array> {
        Array::full(shape, 1, Some(dtype))
    }

    /// An array with unspecified elements, which are zeros.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// assert_eq!(Array::empty(&[0, 3], Dtype::Float32)?.size(), 0);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn empty(shape: &[usize], dtype: Dtype) -> Result<Array> {
        Array::zeros(shape, dtype)
    }

    /// Zeros of the same shape and type.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1.5, 2.5].zeros_like()?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn zeros_like(&self) -> Result<Array> {
        self.full_like(0, None)
    }

    /// Ones of the same shape and type.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![5, 6].ones_like()?.to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn ones_like(&self) -> Result<Array> {
        self.full_like(1, None)
    }

    /// An array of the same shape and type with unspecified elements, which are zeros.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[5, 6]];
    /// assert_eq!(x.empty_like()?.shape(), x.shape());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn empty_like(&self) -> Result<Array> {
        self.zeros_like()
    }

    /// Evenly spaced numbers from a start up to and without a stop. int32 (int64 if one of the three
    /// numbers needs it), or float32 of floating-point numbers, unless a type is given.
    ///
    /// ```
    /// use hesper::Array;
    /// assert_eq!(Array::arange(4, None)?.to_vec::<i32>()?, [0, 1, 2, 3]);
    /// assert_eq!(Array::arange((5, 0, -2), None)?.to_vec::<i32>()?, [5, 3, 1]);
    /// assert_eq!(Array::arange(0.0..1.5, None)?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn arange(range: impl Into<Range>, dtype: Option<Dtype>) -> Result<Array> {
        let range = range.into();
        let (start, stop, step, usual) = match range {
            Range::Int(start, stop, step) => {
                let small = [start, stop, step].iter().all(|number| i32::try_from(*number).is_ok());
                let usual = if small { Dtype::Int32 } else { Dtype::Int64 };
                (start as f64, stop as f64, step as f64, usual)
            }
            Range::Float(start, stop, step) => (start, stop, step, Dtype::Float32),
        };
        let dtype = dtype.unwrap_or(usual);
        let fail = |what: String| Err(Error::value("arange", what));
        if step == 0.0 {
            return fail("a step of zero".into());
        }
        if dtype == Dtype::Bool {
            let what = "cannot make a range in an array".into();
            return Err(Error::Type { op: "arange".into(), what, dtype });
        }
        let length = match range {
            // Exact where f64 is not.
            Range::Int(start, stop, step) => {
                let span = i128::from(stop) - i128::from(start);
                let step = i128::from(step);
                let count = if span.signum() == step.signum() {
                    span.unsigned_abs().div_ceil(step.unsigned_abs())
                } else {
                    0
                };
                usize::try_from(count).unwrap_or(usize::MAX)
            }
            Range::Float(..) => {
                let length = ((stop - start) / step).ceil();
                if !length.is_finite() {
                    return fail(format!("from {start} to {stop} by {step} has no length"));
                }
                if step.is_infinite() && (stop - start) * step > 0.0 {
                    return Array::full(&[1], start, Some(dtype));
                }
                length.max(0.0) as usize
            }
        };
        match (range, dtype.scalar().is_some_and(|scalar| scalar.is_int())) {
            (Range::Int(start, _, step), true) => {
                COUNT.generate(&[length], dtype, smallvec![int(start)?, int(step)?])
            }
            (Range::Float(start, _, step), true) => {
                // Start and next are integers first, as the elements are.
                let next = (start + step) as i64;
                let step = next.wrapping_sub(start as i64);
                COUNT.generate(&[length], dtype, smallvec![int(start as i64)?, int(step)?])
            }
            _ => {
                let op = if length <= i32::MAX as usize { &SHORT_RANGE } else { &RANGE };
                op.generate(&[length], dtype, smallvec![float(start)?, float(step)?])
            }
        }
    }

    /// Evenly spaced numbers from `start` to `stop`, both included.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::linspace(0.0, 1.0, 5, Dtype::Float32)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn linspace(start: f64, stop: f64, count: usize, dtype: Dtype) -> Result<Array> {
        let last = count.saturating_sub(1).max(1) as f64;
        LINSPACE.generate(&[count], dtype, smallvec![float(start)?, float(stop)?, float(last)?])
    }

    /// A matrix with ones on a diagonal: the main one, or `k` columns to its right.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::eye(2, 3, 1, Dtype::Int32)?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 1, 0, 0, 0, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn eye(rows: usize, columns: usize, k: isize, dtype: Dtype) -> Result<Array> {
        let (row, column) = places(rows, columns, k)?;
        column.equal(&row)?.astype(dtype)
    }

    /// The square matrix with ones on its main diagonal.
    ///
    /// ```
    /// use hesper::{Array, Dtype, array};
    /// let x = array![[1.0, 2.0], [3.0, 4.0]];
    /// let same = x.matmul(&Array::identity(2, Dtype::Float32)?)?;
    /// assert_eq!(same.to_vec::<f32>()?, x.to_vec::<f32>()?);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn identity(rows: usize, dtype: Dtype) -> Result<Array> {
        Array::eye(rows, rows, 0, dtype)
    }

    /// A matrix with ones on and below a diagonal: the main one, or `k` columns to its right.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// assert_eq!(Array::tri(2, 3, 0, Dtype::Int32)?.to_vec::<i32>()?, [1, 0, 0, 1, 1, 0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn tri(rows: usize, columns: usize, k: isize, dtype: Dtype) -> Result<Array> {
        let (row, column) = places(rows, columns, k)?;
        row.greater_equal(&column)?.astype(dtype)
    }

    /// The matrices of the last two axes with zeros above a diagonal: the main one, or `k` columns to its
    /// right.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![[1, 2], [3, 4]].tril(-1)?.to_vec::<i32>()?, [0, 0, 3, 0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn tril(&self, k: isize) -> Result<Array> {
        let (row, column) = self.places("tril", k)?;
        select(&row.greater_equal(&column)?, self, &Array::scalar(0.0, self.dtype())?)
    }

    /// The matrices of the last two axes with zeros below a diagonal: the main one, or `k` columns to its
    /// right.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![[1, 2], [3, 4]].triu(0)?.to_vec::<i32>()?, [1, 2, 0, 4]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn triu(&self, k: isize) -> Result<Array> {
        let (row, column) = self.places("triu", k.saturating_sub(1))?;
        select(&row.greater_equal(&column)?, &Array::scalar(0.0, self.dtype())?, self)
    }

    /// The places in the matrices of the last two axes.
    fn places(&self, op: &str, k: isize) -> Result<(Array, Array)> {
        match *self.shape() {
            [.., rows, columns] => places(rows, columns, k),
            _ => Err(Error::shape(op, format!("an array of shape {:?} has no matrices", self.shape()))
                .with_shapes([self])),
        }
    }

    /// The window `0.5 - 0.5 cos(2 pi n / (count - 1))`.
    ///
    /// ```
    /// use hesper::Array;
    /// assert_eq!(Array::hanning(3)?.to_string(), "array([0, 1, 0], dtype=float32)");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn hanning(count: usize) -> Result<Array> {
        window(&HANNING, count)
    }

    /// The window `0.54 - 0.46 cos(2 pi n / (count - 1))`.
    ///
    /// ```
    /// use hesper::Array;
    /// assert_eq!(Array::hamming(3)?.to_string(), "array([0.08, 1, 0.08], dtype=float32)");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn hamming(count: usize) -> Result<Array> {
        window(&HAMMING, count)
    }

    /// The window `0.42 - 0.5 cos(2 pi n / (count - 1)) + 0.08 cos(4 pi n / (count - 1))`.
    ///
    /// ```
    /// use hesper::{Array, array};
    /// let window = Array::blackman(5)?;
    /// assert!(window.round(4)?.array_equal(&array![0.0, 0.34, 1.0, 0.34, 0.0], false)?.to_bools()?[0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn blackman(count: usize) -> Result<Array> {
        window(&BLACKMAN, count)
    }

    /// The window that rises from zero to one and falls to zero, evenly.
    ///
    /// ```
    /// use hesper::Array;
    /// assert_eq!(Array::bartlett(5)?.to_string(), "array([0, 0.5, 1, 0.5, 0], dtype=float32)");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn bartlett(count: usize) -> Result<Array> {
        window(&BARTLETT, count)
    }
}

/// For each row (as a column) the place of a diagonal in it, and the places of the columns (as a row).
fn places(rows: usize, columns: usize, k: isize) -> Result<(Array, Array)> {
    // A diagonal outside of the matrix is outside, however far.
    let k = k.clamp(-(rows.min(1 << 62) as isize), columns.min(1 << 62) as isize) as i64;
    let last = (columns as i64).saturating_sub(k);
    // Narrow numbers are compared faster.
    let narrow = last.max(rows as i64) <= i64::from(i32::MAX) && -k >= i64::from(i32::MIN);
    let dtype = Some(if narrow { Dtype::Int32 } else { Dtype::Int64 });
    let row = Array::arange(Range::Int(0, rows as i64, 1), dtype)?;
    let column = Array::arange(Range::Int(-k, last, 1), dtype)?;
    Ok((row.expand_dims(1)?, column.expand_dims(0)?))
}

fn window(op: &'static Elementwise, count: usize) -> Result<Array> {
    if count == 1 {
        return Array::ones(&[1], Dtype::Float32);
    }
    op.generate(&[count], Dtype::Float32, smallvec![float(count.saturating_sub(1) as f64)?])
}

/// Each array (flattened) along an axis of its own, stretched along all others unless `sparse`.
///
/// ```
/// use hesper::{Indexing, array, meshgrid};
/// let (x, y) = (array![1, 2, 3], array![10, 20]);
/// let grid = meshgrid(&[x, y], false, Indexing::Xy)?;
/// let sums = grid[0].add(&grid[1])?;
/// assert_eq!(sums.shape(), [2, 3]);
/// assert_eq!(sums.to_vec::<i32>()?, [11, 12, 13, 21, 22, 23]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn meshgrid<A: Borrow<Array>>(arrays: &[A], sparse: bool, indexing: Indexing) -> Result<Vec<Array>> {
    let arrays: Vec<&Array> = arrays.iter().map(Borrow::borrow).collect();
    let mut shape: Vec<usize> = arrays.iter().map(|array| array.size()).collect();
    let crossed = indexing == Indexing::Xy && arrays.len() > 1;
    if crossed {
        shape.swap(0, 1);
    }
    arrays
        .iter()
        .enumerate()
        .map(|(at, array)| {
            let axis = if crossed && at < 2 { 1 - at } else { at };
            let mut own = vec![1isize; arrays.len()];
            // A graph of uncrossed grids is for any lengths.
            own[axis] = if crossed || array.size() == 0 { array.size() as isize } else { -1 };
            let array = array.reshape(&own)?;
            if sparse { Ok(array) } else { array.broadcast_to(&shape) }
        })
        .collect()
}

reader!("full", One(read_full));
fn read_full(replay: &Replay<'_>) -> Result<Array> {
    let [value] = replay.inputs()?;
    Array::full(&super::replay_shapes::stretched(replay)?, value, Some(replay.dtype()))
}
