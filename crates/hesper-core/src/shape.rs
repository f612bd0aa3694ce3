//! Shapes, strides and broadcasting.

use smallvec::SmallVec;

use crate::error::{Error, Result};

/// The lengths of an array's axes.
pub type Shape = SmallVec<[usize; 6]>;

/// The stride of each axis in elements; it may be zero or negative.
pub type Strides = SmallVec<[isize; 6]>;

/// The number of elements of a shape. Fails if it does not fit.
pub fn size_of(shape: &[usize]) -> Result<usize> {
    // The product without empty axes has to fit as well: it bounds strides and numbers of rows.
    let filled = shape.iter().try_fold(1usize, |product, axis| product.checked_mul((*axis).max(1)));
    match filled.filter(|size| *size <= isize::MAX as usize / 16) {
        Some(size) => Ok(if shape.contains(&0) { 0 } else { size }),
        None => Err(Error::TooLarge { shape: shape.to_vec() }),
    }
}

/// Lengths as signed integers, for reshapes and slices.
pub fn signed(shape: &[usize]) -> SmallVec<[isize; 6]> {
    shape.iter().map(|length| *length as isize).collect()
}

/// The strides of a row-major array.
pub fn row_major(shape: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(0, shape.len());
    let mut step = 1isize;
    for (stride, axis) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul(*axis as isize);
    }
    strides
}

/// Whether an array is row-major without gaps. Axes of length one may have any stride.
pub fn is_row_major(shape: &[usize], strides: &[isize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut step = 1isize;
    for (axis, stride) in shape.iter().zip(strides).rev() {
        if *axis != 1 && *stride != step {
            return false;
        }
        step *= *axis as isize;
    }
    true
}

/// The common shape of two shapes under broadcasting.
pub fn broadcast(op: &str, a: &[usize], b: &[usize]) -> Result<Shape> {
    let rank = a.len().max(b.len());
    let at =
        |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::Broadcast { op: op.to_string(), left: a.to_vec(), right: b.to_vec() }),
        })
        .collect()
}

/// Normalizes an axis: a negative one counts from the end.
pub fn axis(op: &str, axis: isize, rank: usize) -> Result<usize> {
    let from_front = if axis < 0 { axis.checked_add(rank as isize) } else { Some(axis) };
    match from_front {
        Some(found) if found >= 0 && (found as usize) < rank => Ok(found as usize),
        _ => Err(Error::Axis { op: op.to_string(), axis, rank }),
    }
}

/// Normalizes axes, in the given order. Fails if one is repeated.
pub fn axes(op: &str, list: &[isize], rank: usize) -> Result<SmallVec<[usize; 6]>> {
    let mut found: SmallVec<[usize; 6]> =
        list.iter().map(|one| axis(op, *one, rank)).collect::<Result<_>>()?;
    found.sort_unstable();
    if found.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::RepeatedAxis { op: op.to_string(), axes: list.to_vec() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_aligns_at_the_last_axis() {
        assert_eq!(broadcast("add", &[3, 1], &[4]).unwrap()[..], [3, 4]);
        assert_eq!(broadcast("add", &[], &[2, 0]).unwrap()[..], [2, 0]);
        let error = broadcast("add", &[3], &[4]).unwrap_err().to_string();
        assert!(error.contains("add") && error.contains("[3]") && error.contains("[4]"), "{error}");
    }

    #[test]
    fn sizes_that_do_not_fit_are_errors_and_empty_axes_are_not() {
        assert!(size_of(&[1 << 40, 1 << 40]).is_err());
        assert!(size_of(&[1 << 40, 1 << 40, 0]).is_err());
        assert_eq!(size_of(&[1 << 40, 0, 3]).unwrap(), 0);
        assert_eq!(size_of(&[]).unwrap(), 1);
    }

    #[test]
    fn axes_count_from_either_end() {
        assert_eq!(axis("sum", -1, 3).unwrap(), 2);
        assert!(axis("sum", 3, 3).is_err() && axis("sum", -4, 3).is_err() && axis("sum", 0, 0).is_err());
        assert!(axis("sum", isize::MIN, 3).is_err());
        assert!(axes("sum", &[0, -3], 3).is_err());
    }
}
