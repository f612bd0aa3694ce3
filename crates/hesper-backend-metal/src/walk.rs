//! Strided axes as constants of a kernel: `Walk` in the prelude.

use crate::launch::Constants;

/// Most axes of a walk.
pub(crate) const MAX_AXES: usize = 8;

/// Appends axes to the constants of a kernel, as a `Walk`.
pub(crate) fn walk(constants: Constants, axes: &[(usize, isize)]) -> Constants {
    let constants = constants.int(axes.len() as isize);
    let constants = constants.ints(axes.iter().map(|axis| axis.0 as isize), MAX_AXES, 1);
    constants.ints(axes.iter().map(|axis| axis.1), MAX_AXES, 0)
}
