//! Strided axes as constants of a kernel: `Walk` in the prelude.

use hesper_compute::joined_axes;

use crate::launch::Constants;

/// Most axes of a walk.
pub(crate) const MAX_AXES: usize = 8;

/// Lengths and strides of axes, joined where their elements are evenly spaced; at least one axis.
pub(crate) fn joined(shape: &[usize], strides: &[isize]) -> Vec<(usize, isize)> {
    let axes: Vec<_> = joined_axes(shape, [strides]).map(|(length, [stride])| (length, stride)).collect();
    if axes.is_empty() { vec![(1, 0)] } else { axes }
}

/// Appends axes to the constants of a kernel, as a `Walk`.
pub(crate) fn walk(constants: Constants, axes: &[(usize, isize)]) -> Constants {
    let constants = constants.int(axes.len() as isize);
    let constants = constants.ints(axes.iter().map(|axis| axis.0 as isize), MAX_AXES, 1);
    constants.ints(axes.iter().map(|axis| axis.1), MAX_AXES, 0)
}
