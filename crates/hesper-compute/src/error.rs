//! The one error of this crate: an operand whose size does not fit the others.

use std::fmt;

/// An operand does not have the size that the other operands require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Which size is wrong.
    pub what: &'static str,
    /// What the other operands require.
    pub expected: usize,
    /// What was given.
    pub given: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, given {}", self.what, self.expected, self.given)
    }
}

impl std::error::Error for Mismatch {}

/// `Ok` if the two sizes agree.
pub(crate) fn same(what: &'static str, expected: usize, given: usize) -> Result<(), Mismatch> {
    if expected == given { Ok(()) } else { Err(Mismatch { what, expected, given }) }
}

/// `Ok` if there are at least as many as needed.
pub(crate) fn at_least(what: &'static str, expected: usize, given: usize) -> Result<(), Mismatch> {
    if given >= expected { Ok(()) } else { Err(Mismatch { what, expected, given }) }
}

/// The product of sizes, or an error where it overflows.
pub(crate) fn product(what: &'static str, sizes: &[usize]) -> Result<usize, Mismatch> {
    let mut n = 1usize;
    for &s in sizes {
        n = n.checked_mul(s).ok_or(Mismatch { what, expected: usize::MAX, given: s })?;
    }
    Ok(n)
}
