//! Host access to the elements of an evaluated array, in place.

use hesper_runtime::{HostRead, HostWrite};

use crate::error::Result;
use crate::graph::{Array, Data};
use crate::shape::{Shape, Strides};
use crate::{Dtype, eval};

/// Read access to the elements of an array in place. They are not overwritten while it lives.
///
/// ```
/// use hesper::{Dtype, array};
/// let host = array![[1u8, 2], [3, 4]].t()?.host()?;
/// assert_eq!((host.shape(), host.strides(), host.dtype()), (&[2, 2][..], &[1, 2][..], Dtype::Uint8));
/// assert_eq!((host.element(1), host.element(9)), (&[2u8][..], &[][..]));
/// assert!(!host.as_ptr().is_null());
/// host.check()?; // after the elements were used: were they all there?
/// # Ok::<(), hesper::Error>(())
/// ```
pub struct HostArray {
    guard: HostRead,
    /// The offset of the first element in bytes.
    start: usize,
    shape: Shape,
    strides: Strides,
    dtype: Dtype,
    foreign: bool,
}

/// The elements of an array, taken out of it for a caller that writes them in place.
///
/// ```
/// use hesper::array;
/// let mut x = array![1u8, 2] + array![3u8, 4];
/// x.eval()?;
/// let mut taken = x.take_host().ok_or_else(|| std::io::Error::other("something else holds them"))?;
/// assert_eq!((taken.shape(), taken.strides()), (&[2][..], &[1][..]));
/// // SAFETY: the array has two elements of one byte.
/// unsafe { taken.as_mut_ptr().write(9) };
/// assert_eq!(taken.finish().to_vec::<u8>()?, [9, 6]);
/// assert!(x.to_vec::<u8>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostArrayMut {
    guard: HostWrite,
    data: Data,
    array: Array,
}

impl Array {
    /// Takes the elements of an evaluated array, if this is the only handle on it and on its memory, and if
    /// the memory is the host's own. Reading the array is an error from then on; the elements come back as
    /// [another array](HostArrayMut::finish), because an array never changes.
    pub fn take_host(&mut self) -> Option<HostArrayMut> {
        let data = self.take_owned()?.into_data();
        let guard = if data.buffer.in_host_memory() { data.buffer.write().ok() } else { None };
        match guard {
            Some(guard) => Some(HostArrayMut { guard, data, array: self.clone() }),
            None => {
                self.give_back(data);
                None
            }
        }
    }

    /// Evaluates the array and gives access to its elements without a copy.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).reshape(&[2, 2])?.t()?;
    /// let host = x.host()?;
    /// assert_eq!((host.shape(), host.strides()), (&[2, 2][..], &[1, 2][..]));
    /// assert_eq!(host.element(1), 2.0f32.to_ne_bytes());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn host(&self) -> Result<HostArray> {
        eval::schedule(&[self])?;
        let data = self.data()?;
        let guard = data.buffer.read()?;
        Ok(HostArray {
            guard,
            start: data.offset as usize * self.dtype().size(),
            shape: self.shape().into(),
            foreign: !data.buffer.writable(),
            strides: data.strides,
            dtype: self.dtype(),
        })
    }

    /// As [`host`](Array::host), but elements of a mapped file are copied and checked: a change of the file
    /// cannot affect them any more.
    ///
    /// ```
    /// use hesper::{Dtype, array};
    /// let host = array![1u8, 2, 3].host_kept()?;
    /// assert_eq!((host.element(2), host.dtype()), (&[3u8][..], Dtype::Uint8));
    /// host.check()?;
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn host_kept(&self) -> Result<HostArray> {
        let host = self.host()?;
        if !host.guard.is_watched() {
            return Ok(host);
        }
        let copy = self.read_bytes(|bytes| Array::from_bytes(bytes, self.dtype(), self.shape()))??.host()?;
        Ok(HostArray { foreign: host.foreign, ..copy })
    }
}

impl HostArrayMut {
    /// The lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    /// The strides in elements; they may be zero or negative.
    pub fn strides(&self) -> &[isize] {
        &self.data.strides
    }

    /// A pointer to the first element. Valid for as long as this value lives, never null.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        let start = self.data.offset as usize * self.array.dtype().size();
        let bytes = self.guard.bytes_mut();
        let start = start.min(bytes.len());
        bytes[start..].as_mut_ptr()
    }

    /// Ends the access: an array of the elements as they are now.
    pub fn finish(self) -> Array {
        let HostArrayMut { guard, data, array } = self;
        drop(guard);
        Array::ready_on(&array, data)
    }
}

impl HostArray {
    /// The lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Whether the memory belongs to a file or to another library.
    ///
    /// ```
    /// assert!(!hesper::array![1, 2].host()?.is_foreign());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// The strides in elements; they may be zero or negative.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// A pointer to the first element. Valid for as long as this value lives, never null.
    pub fn as_ptr(&self) -> *const u8 {
        match self.guard.bytes().get(self.start..) {
            Some(bytes) => bytes.as_ptr(),
            None => self.guard.bytes().as_ptr(),
        }
    }

    /// Fails if the elements come from a mapped file that was truncated meanwhile. Call it after the elements
    /// were used.
    pub fn check(&self) -> Result<()> {
        Ok(self.guard.check()?)
    }

    /// The bytes of the element at `offset` elements from the first. Empty if there is none.
    pub fn element(&self, offset: isize) -> &[u8] {
        let size = self.dtype.size();
        let Some(start) = self.start.checked_add_signed(offset.saturating_mul(size as isize)) else {
            return &[];
        };
        self.guard.bytes().get(start..start.saturating_add(size)).unwrap_or_default()
    }
}
