//! Elements that other libraries may write, as memory.
//!
//! Memory that nothing else holds is taken out of its array, so arrays and commands in progress never see a
//! write. Other memory is copied; if the copy is equal to the elements in the end, the array stays what it
//! was.

use hesper::shape::is_row_major;
use hesper::transform::{is_varied, stop_gradient};
use hesper::{Array, Category, HostArray, HostArrayMut, select};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use crate::error::raise;

/// The elements of an array object, while buffers show them.
pub struct Lent {
    /// Of the elements that were lent: the array without them, or with them as they were.
    array: Array,
    memory: Memory,
    strides: Vec<isize>,
    /// The first element.
    first: *mut u8,
}

enum Memory {
    InPlace(HostArrayMut),
    Copied { elements: HostArray, _bytes: Vec<u64> },
}

// SAFETY: the pointer is to memory that the value owns. It is only used with the interpreter's lock.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

/// How many elements before the first one and from it on a shape reaches.
fn reach(shape: &[usize], strides: &[isize]) -> (usize, usize) {
    if shape.contains(&0) {
        return (0, 0);
    }
    let spans = || shape.iter().zip(strides).map(|(length, stride)| (*length as isize - 1) * stride);
    let before = spans().filter(|span| *span < 0).sum::<isize>().unsigned_abs();
    let after = spans().filter(|span| *span > 0).sum::<isize>().unsigned_abs();
    (before, after + 1)
}

/// Whether each element has a place of its own.
fn is_disjoint(shape: &[usize], strides: &[isize]) -> bool {
    let mut axes: Vec<_> = shape.iter().zip(strides).filter(|(length, _)| **length > 1).collect();
    axes.sort_by_key(|(_, stride)| stride.unsigned_abs());
    let mut reached = 0;
    shape.contains(&0)
        || axes.into_iter().all(|(length, stride)| {
            let apart = stride.unsigned_abs() > reached;
            reached += (length - 1) * stride.unsigned_abs();
            apart
        })
}

impl Lent {
    /// Whether elements may be written: not those of a file or another library, and not where several share a
    /// place.
    pub fn fits(elements: &HostArray) -> bool {
        !elements.is_foreign() && is_disjoint(elements.shape(), elements.strides())
    }

    /// Lends the elements of an array.
    pub fn new(array: &mut Array) -> PyResult<Lent> {
        array.eval().map_err(raise)?;
        if let Some(mut taken) = array.take_host() {
            let (first, strides) = (taken.as_mut_ptr(), taken.strides().to_vec());
            return Ok(Lent { array: array.clone(), memory: Memory::InPlace(taken), strides, first });
        }
        let elements = array.host_kept().map_err(raise)?;
        let (before, from) = reach(elements.shape(), elements.strides());
        let size = array.dtype().size();
        let (len, mut bytes) = ((before + from) * size, Vec::<u64>::new());
        if bytes.try_reserve_exact(len.div_ceil(8)).is_err() {
            return Err(PyMemoryError::new_err(format!("cannot copy {len} bytes: out of memory")));
        }
        let copy = bytes.as_mut_ptr().cast::<u8>();
        // SAFETY: all elements that the strides reach are in the array's memory, and the copy has room for
        // them.
        let first = unsafe {
            std::ptr::copy_nonoverlapping(elements.as_ptr().sub(before * size), copy, len);
            copy.add(before * size)
        };
        elements.check().map_err(raise)?;
        let strides = elements.strides().to_vec();
        Ok(Lent { array: array.clone(), memory: Memory::Copied { elements, _bytes: bytes }, strides, first })
    }

    pub fn pointer(&self) -> *mut u8 {
        self.first
    }

    pub fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    /// In elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// An array of the shape and type of the elements.
    pub fn described(&self) -> &Array {
        &self.array
    }

    /// The elements as they are now.
    pub fn current(&self) -> Array {
        let (before, from) = reach(self.shape(), &self.strides);
        let size = self.array.dtype().size();
        // SAFETY: the memory reaches as far as the strides do. As with every buffer, the program does not
        // write it in another thread meanwhile.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.first.sub(before * size), (before + from) * size) };
        if let Memory::Copied { elements, .. } = &self.memory {
            // SAFETY: these elements have the same shape and strides.
            let old =
                unsafe { std::slice::from_raw_parts(elements.as_ptr().sub(before * size), bytes.len()) };
            if old == bytes {
                return self.array.clone();
            }
        }
        let made = if is_row_major(self.shape(), &self.strides) {
            Array::from_bytes(bytes, self.array.dtype(), self.shape())
        } else {
            Array::from_bytes(bytes, self.array.dtype(), &[before + from])
                .and_then(|flat| flat.as_strided(self.shape(), &self.strides, before))
        };
        let made = if self.is_traced() { made.and_then(|made| self.traced(&made)) } else { made };
        // Reading the array without elements is an error that says so.
        made.unwrap_or_else(|_| self.array.clone())
    }

    fn is_traced(&self) -> bool {
        is_varied(std::slice::from_ref(&self.array))
    }

    /// Elements that were written while a derivative traces the array: new values, and the derivative of the
    /// old ones.
    fn traced(&self, made: &Array) -> hesper::Result<Array> {
        if !self.array.dtype().is(Category::Inexact) {
            return Ok(made.clone());
        }
        let zero = self.array.subtract(&stop_gradient(&self.array)?)?;
        // Infinity minus infinity is NaN.
        made.add(&select(&zero.equal(&zero)?, &zero, 0)?)
    }

    /// The elements as they are in the end.
    pub fn finish(self) -> Array {
        match self.memory {
            Memory::InPlace(taken) => taken.finish(),
            Memory::Copied { .. } => self.current(),
        }
    }
}
