//! Strided axes as kernel parameters: `walk` in the kernels' prelude.

use crate::launch::Constants;
use hesper_compute::joined_axes;

/// Most axes of a walk.
pub(crate) const MAX_AXES: usize = 6;

/// Lengths and strides of axes, joined where their elements are evenly spaced; at least one axis.
pub(crate) fn joined(shape: &[usize], strides: &[isize]) -> Vec<(usize, isize)> {
    let axes: Vec<_> = joined_axes(shape, [strides]).map(|(length, [stride])| (length, stride)).collect();
    if axes.is_empty() { vec![(1, 0)] } else { axes }
}

/// Appends axes to the constants of a kernel, as a `walk`.
pub(crate) fn walk(constants: Constants, axes: &[(usize, isize)]) -> Constants {
    constants.longs(axes.iter().map(|axis| axis.0 as isize), MAX_AXES, 1).longs(
        axes.iter().map(|axis| axis.1),
        MAX_AXES,
        0,
    )
}

/// Axes and their strides, joined; `None` if there are too many.
pub(crate) fn axes_of(shape: &[usize], strides: &[isize]) -> Option<Vec<(usize, isize)>> {
    Some(joined(shape, strides)).filter(|axes| axes.len() <= MAX_AXES)
}

/// Axes with two sets of strides, joined where both allow it; `None` if there are too many.
pub(crate) fn pairs(shape: &[usize], one: &[isize], other: &[isize]) -> Option<Vec<(usize, isize, isize)>> {
    let mut axes: Vec<_> = joined_axes(shape, [one, other]).map(|(length, [a, b])| (length, a, b)).collect();
    if axes.is_empty() {
        axes.push((1, 0, 0));
    }
    Some(axes).filter(|axes| axes.len() <= MAX_AXES)
}
