//! Axes of strided memory: merging, bounds checks, offsets.

use crate::error::{Mismatch, reached};

/// The length of an axis and its stride, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Elements along the axis.
    pub len: usize,
    /// Distance between neighbours; negative for a reversed axis, zero for a broadcast one.
    pub stride: isize,
}

/// Axes, outermost first, without those of length one, and with neighbours merged where every set of strides
/// allows it.
///
/// ```
/// let strides = [&[12, 4, 9, 1][..], &[0, 4, 9, 1]];
/// let axes: Vec<_> = hesper_compute::joined_axes(&[2, 3, 1, 4], strides).collect();
/// assert_eq!(axes, [(2, [12, 0]), (12, [1, 1])]);
/// ```
pub fn joined_axes<'a, const N: usize>(
    shape: &'a [usize],
    strides: [&'a [isize]; N],
) -> impl Iterator<Item = (usize, [isize; N])> + 'a {
    join((0..shape.len()).map(move |axis| (shape[axis], strides.map(|strides| strides[axis]))))
}

/// [`joined_axes`] for axes with one stride each.
pub(crate) fn joined_dims(dims: impl Iterator<Item = Dim>) -> impl Iterator<Item = Dim> {
    join(dims.map(|dim| (dim.len, [dim.stride]))).map(|(len, [stride])| Dim { len, stride })
}

fn join<const N: usize>(
    axes: impl Iterator<Item = (usize, [isize; N])>,
) -> impl Iterator<Item = (usize, [isize; N])> {
    let mut axes = axes.filter(|(len, _)| *len != 1).peekable();
    std::iter::from_fn(move || {
        let (mut len, mut steps) = axes.next()?;
        let one = |outer: [isize; N], (len, inner): &(usize, [isize; N])| {
            outer.iter().zip(inner).all(|(outer, inner)| *outer == inner.saturating_mul(*len as isize))
        };
        while let Some(inner) = axes.next_if(|inner| one(steps, inner)) {
            (len, steps) = (len * inner.0, inner.1);
        }
        Some((len, steps))
    })
}

/// The offset of an element, given its index in row-major order.
#[inline]
pub fn locate(dims: &[Dim], mut element: usize) -> isize {
    let mut offset = 0;
    for (axis, dim) in dims.iter().enumerate().rev() {
        if axis == 0 {
            return offset + element as isize * dim.stride;
        }
        offset += (element % dim.len) as isize * dim.stride;
        element /= dim.len;
    }
    offset
}

/// `Ok` if every element that the axes reach from `offset` on lies within `len` elements.
pub(crate) fn within(offset: isize, dims: impl IntoIterator<Item = Dim>, len: usize) -> Result<(), Mismatch> {
    let (mut low, mut high) = (offset as i128, offset as i128);
    for Dim { len, stride } in dims {
        if len == 0 {
            return Ok(());
        }
        let far = (len as i128 - 1) * stride as i128;
        low += far.min(0);
        high += far.max(0);
    }
    reached("elements that strides reach", low, high, len)
}
