//! Arrays from Rust collections and back: literals, nested vectors, slices, iterators, bools.

use crate::error::{Error, Result};
use crate::graph::Array;
use crate::shape::Shape;
use crate::{Dtype, Element};

/// A number or a bool, or nested lists of them. All elements have one type.
///
/// ```
/// use hesper::{Array, Nested, Shape};
/// let rows = vec![vec![1.5f64, 2.5], vec![3.5, 4.5]];
/// assert_eq!(Array::from_nested(&rows)?.shape(), [2, 2]);
///
/// let (mut shape, mut bytes) = (Shape::new(), Vec::new());
/// rows.lengths(&mut shape);
/// rows.write(&shape, &mut bytes)?;
/// assert_eq!((&shape[..], bytes.len()), (&[2, 2][..], 32));
/// assert!(Array::from_nested(&vec![vec![1, 2], vec![3]]).is_err());
/// # Ok::<(), hesper::Error>(())
/// ```
pub trait Nested {
    /// The type of the elements.
    const DTYPE: Dtype;

    /// Appends the lengths of its lists to `shape`, outermost first. Only the first element of each list is
    /// considered.
    fn lengths(&self, shape: &mut Shape);

    /// Appends the bytes of its elements. Fails if a list does not have the length that `shape` says.
    fn write(&self, shape: &[usize], bytes: &mut Vec<u8>) -> Result<()>;
}

macro_rules! nested_numbers {
    ($($t:ty),*) => {
        $(impl Nested for $t {
            const DTYPE: Dtype = <$t as Element>::DTYPE;

            fn lengths(&self, _: &mut Shape) {}

            fn write(&self, _: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
                bytes.extend_from_slice(bytemuck::bytes_of(self));
                Ok(())
            }
        })*
    };
}

nested_numbers!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, half::f16, half::bf16);

impl Nested for bool {
    const DTYPE: Dtype = Dtype::Bool;

    fn lengths(&self, _: &mut Shape) {}

    fn write(&self, _: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        bytes.push(u8::from(*self));
        Ok(())
    }
}

impl<T: Nested> Nested for [T] {
    const DTYPE: Dtype = T::DTYPE;

    fn lengths(&self, shape: &mut Shape) {
        shape.push(self.len());
        if let Some(first) = self.first() {
            first.lengths(shape);
        }
    }

    fn write(&self, shape: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        let Some((_, rest)) = shape.split_first().filter(|(length, _)| **length == self.len()) else {
            let first = shape.first().unwrap_or(&0);
            let what = format!("lists of one level must have one length, not {first} and {}", self.len());
            return Err(Error::shape("array", what));
        };
        self.iter().try_for_each(|element| element.write(rest, bytes))
    }
}

impl<T: Nested> Nested for Vec<T> {
    const DTYPE: Dtype = T::DTYPE;

    fn lengths(&self, shape: &mut Shape) {
        self.as_slice().lengths(shape);
    }

    fn write(&self, shape: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        self.as_slice().write(shape, bytes)
    }
}

impl<T: Nested, const N: usize> Nested for [T; N] {
    const DTYPE: Dtype = T::DTYPE;

    fn lengths(&self, shape: &mut Shape) {
        self.as_slice().lengths(shape);
    }

    fn write(&self, shape: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        self.as_slice().write(shape, bytes)
    }
}

impl<T: Nested + ?Sized> Nested for &T {
    const DTYPE: Dtype = T::DTYPE;

    fn lengths(&self, shape: &mut Shape) {
        (**self).lengths(shape);
    }

    fn write(&self, shape: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        (**self).write(shape, bytes)
    }
}

impl Array {
    /// An array from a number or from nested lists of numbers. All lists of one level must have one length.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::from_nested(&[[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]])?;
    /// assert_eq!(x.shape(), [3, 2]);
    /// assert!(Array::from_nested(&vec![vec![1, 2], vec![3]]).is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn from_nested<T: Nested + ?Sized>(lists: &T) -> Result<Array> {
        let mut shape = Shape::new();
        lists.lengths(&mut shape);
        let mut bytes = Vec::new();
        lists.write(&shape, &mut bytes)?;
        Array::from_bytes(&bytes, T::DTYPE, &shape)
    }

    /// The elements of an array of bools in row-major order.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 5].greater(3)?.to_bools()?, [false, true]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn to_bools(&self) -> Result<Vec<bool>> {
        if self.dtype() != Dtype::Bool {
            let what = "cannot read bools from an array".into();
            return Err(Error::Type { op: "read".into(), what, dtype: self.dtype() });
        }
        self.read_bytes(|bytes| bytes.iter().map(|byte| *byte != 0).collect())
    }

    /// The one element of an array of bools of size one: what [`Array::item`] is for numbers.
    ///
    /// ```
    /// use hesper::array;
    /// let (x, y) = (array![1.0, 2.0], array![1.0, 2.5]);
    /// assert!(!x.array_equal(&y, false)?.to_bool()?);
    /// assert!(array![true, false].to_bool().is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn to_bool(&self) -> Result<bool> {
        match self.to_bools()?[..] {
            [one] => Ok(one),
            _ => Err(Error::value(
                "to_bool",
                format!("an array of shape {:?} has no single element", self.shape()),
            )),
        }
    }
}

/// An array of literals: float literals are float32, integers int32.
///
/// ```
/// use hesper::{Dtype, array};
/// let x = array![[1., 2.], [3., 4.], [5., 6.]];
/// assert_eq!((x.shape(), x.dtype()), (&[3, 2][..], Dtype::Float32));
/// assert_eq!(array![1, 2u8].dtype(), Dtype::Uint8);
/// assert_eq!(array![].shape(), [0]);
/// ```
///
/// Panics if the host is out of memory, as a vector does. Lists of different lengths do not compile;
/// [`Array::from_nested`](crate::Array::from_nested) takes vectors of vectors, and float64.
#[macro_export]
macro_rules! array {
    () => { $crate::Array::from_slice::<f32>(&[]) };
    ($($element:expr),+ $(,)?) => { $crate::Array::from([$($element),+]) };
}

/// An element of [`array!`]: a number or an array of them. Not float64, so that a float literal is float32.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in `array!`",
    note = "`array!` takes float32, half precision, integers, bools and arrays of them",
    note = "use `Array::from_nested` for float64 and for vectors of vectors"
)]
pub trait Literal: Nested {}

macro_rules! literals {
    ($($t:ty),*) => {$(
        impl Literal for $t {}

        /// A number as an array without axes. Panics if the host is out of memory, as a vector does.
        impl From<$t> for Array {
            fn from(value: $t) -> Self {
                literal(&value)
            }
        }
    )*};
}

literals!(bool, u8, u16, u32, u64, i8, i16, i32, i64, f32, half::f16, half::bf16);
impl<T: Literal, const N: usize> Literal for [T; N] {}

/// The array of a literal, whose lists have one length by their type.
fn literal(elements: &impl Nested) -> Array {
    match Array::from_nested(elements) {
        Ok(array) => array,
        Err(error) => panic!("{error}"),
    }
}

/// The array of literals. Panics if the host is out of memory, as a vector does.
impl<T: Literal, const N: usize> From<[T; N]> for Array {
    fn from(elements: [T; N]) -> Self {
        literal(&elements)
    }
}

/// A one-dimensional array. Panics if the host is out of memory, as a vector does.
impl<T: Element> From<Vec<T>> for Array {
    fn from(elements: Vec<T>) -> Self {
        Array::from_slice(&elements)
    }
}

/// A one-dimensional array. Panics if the host is out of memory, as a vector does.
impl<T: Element> From<&[T]> for Array {
    fn from(elements: &[T]) -> Self {
        Array::from_slice(elements)
    }
}

/// Fails if the rows have different lengths.
impl<T: Element + Nested> TryFrom<Vec<Vec<T>>> for Array {
    type Error = Error;

    fn try_from(rows: Vec<Vec<T>>) -> Result<Self> {
        Array::from_nested(&rows)
    }
}

/// The elements in row-major order, as [`Array::to_vec`].
impl<T: Element> TryFrom<&Array> for Vec<T> {
    type Error = Error;

    fn try_from(array: &Array) -> Result<Self> {
        array.to_vec()
    }
}

/// The elements in row-major order, as [`Array::to_vec`].
impl<T: Element> TryFrom<Array> for Vec<T> {
    type Error = Error;

    fn try_from(array: Array) -> Result<Self> {
        array.to_vec()
    }
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        /// The one element of an array of size one, as [`Array::item`].
        impl TryFrom<&Array> for $t {
            type Error = Error;

            fn try_from(array: &Array) -> Result<Self> {
                array.item()
            }
        }

        /// The one element of an array of size one, as [`Array::item`].
        impl TryFrom<Array> for $t {
            type Error = Error;

            fn try_from(array: Array) -> Result<Self> {
                array.item()
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, half::f16, half::bf16);

/// The one element of an array of bools of size one, as [`Array::to_bool`].
impl TryFrom<&Array> for bool {
    type Error = Error;

    fn try_from(array: &Array) -> Result<Self> {
        array.to_bool()
    }
}

/// The one element of an array of bools of size one, as [`Array::to_bool`].
impl TryFrom<Array> for bool {
    type Error = Error;

    fn try_from(array: Array) -> Result<Self> {
        array.to_bool()
    }
}

/// A one-dimensional array. Panics if the host is out of memory, as a vector does.
impl<T: Element> FromIterator<T> for Array {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let elements: Vec<T> = elements.into_iter().collect();
        Array::from_slice(&elements)
    }
}
