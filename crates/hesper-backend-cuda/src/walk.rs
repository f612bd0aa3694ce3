//! Strided axes as kernel parameters: `walk` in the kernels' prelude.

use crate::launch::Constants;

/// Most axes of a walk.
pub(crate) const MAX_AXES: usize = 6;

/// Appends axes to the constants of a kernel, as a `walk`.
pub(crate) fn walk(constants: Constants, axes: &[(usize, isize)]) -> Constants {
    constants.longs(axes.iter().map(|axis| axis.0 as isize), MAX_AXES, 1).longs(
        axes.iter().map(|axis| axis.1),
        MAX_AXES,
        0,
    )
}
