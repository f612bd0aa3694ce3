//! The one error of this crate: operands that do not fit each other.

use std::fmt;

/// Why a kernel refused its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// A size differs from the one that the other operands require.
    Size {
        /// What was counted.
        what: &'static str,
        /// What the other operands require.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// There are too few of something.
    TooFew {
        /// What was counted.
        what: &'static str,
        /// The fewest that suffice.
        needed: usize,
        /// What was given.
        given: usize,
    },
    /// There are too many of something.
    TooMany {
        /// What was counted.
        what: &'static str,
        /// The most that are allowed.
        limit: usize,
        /// What was given.
        given: usize,
    },
    /// A size is no multiple of a group or block.
    Multiple {
        /// What was counted.
        what: &'static str,
        /// The size of a group or block.
        unit: usize,
        /// What was given.
        given: usize,
    },
    /// The shapes of a matrix product do not fit.
    Product {
        /// Rows and columns of the left operand.
        left: [usize; 2],
        /// Rows and columns of the right operand.
        right: [usize; 2],
        /// Rows and columns of the result.
        result: [usize; 2],
    },
    /// A product of sizes exceeds `usize`.
    Overflow {
        /// What was counted.
        what: &'static str,
    },
    /// Strides lead to an element before the first.
    BeforeStart {
        /// What was addressed.
        what: &'static str,
    },
    /// An option or a combination of operands that no kernel has.
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What would work.
        instead: &'static str,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size { what, expected, given } => write!(f, "{what}: expected {expected}, given {given}"),
            Self::TooFew { what, needed, given } => {
                write!(f, "{what}: at least {needed} needed, given {given}")
            }
            Self::TooMany { what, limit, given } => {
                write!(f, "{what}: at most {limit} allowed, given {given}")
            }
            Self::Multiple { what, unit, given } => {
                write!(f, "{what}: expected a multiple of {unit}, given {given}")
            }
            Self::Product { left, right, result } => {
                write!(
                    f,
                    "matrices of shape {left:?} and {right:?} have no product of shape {result:?}: \
                     (m, k), (k, n) and (m, n) expected"
                )
            }
            Self::Overflow { what } => write!(f, "{what}: more than can be addressed"),
            Self::BeforeStart { what } => write!(f, "{what}: strides lead to an element before the first"),
            Self::Unsupported { what, instead } => write!(f, "{what} is not supported: {instead}"),
        }
    }
}

impl std::error::Error for Mismatch {}

/// `Ok` if the two sizes agree.
pub(crate) fn same(what: &'static str, expected: usize, given: usize) -> Result<(), Mismatch> {
    if expected == given { Ok(()) } else { Err(Mismatch::Size { what, expected, given }) }
}

/// `Ok` if there are at least as many as needed.
pub(crate) fn at_least(what: &'static str, needed: usize, given: usize) -> Result<(), Mismatch> {
    if given >= needed { Ok(()) } else { Err(Mismatch::TooFew { what, needed, given }) }
}

/// `Ok` if there are at most as many as allowed.
pub(crate) fn at_most(what: &'static str, limit: usize, given: usize) -> Result<(), Mismatch> {
    if given <= limit { Ok(()) } else { Err(Mismatch::TooMany { what, limit, given }) }
}

/// `Ok` if the size is a multiple of the unit. No size but zero is one of zero.
pub(crate) fn multiple(what: &'static str, unit: usize, given: usize) -> Result<(), Mismatch> {
    if given.is_multiple_of(unit) { Ok(()) } else { Err(Mismatch::Multiple { what, unit, given }) }
}

/// `Ok` if a kernel supports what was asked for.
pub(crate) fn supported(supported: bool, what: &'static str, instead: &'static str) -> Result<(), Mismatch> {
    if supported { Ok(()) } else { Err(Mismatch::Unsupported { what, instead }) }
}

/// `Ok` if a slice has all of the elements from `low` up to `high`.
pub(crate) fn reached(what: &'static str, low: i128, high: i128, len: usize) -> Result<(), Mismatch> {
    if low < 0 {
        return Err(Mismatch::BeforeStart { what });
    }
    at_least(what, usize::try_from(high + 1).unwrap_or(usize::MAX), len)
}

/// The product of sizes, or an error where it overflows.
pub(crate) fn product(what: &'static str, sizes: &[usize]) -> Result<usize, Mismatch> {
    sizes.iter().try_fold(1usize, |n, size| n.checked_mul(*size)).ok_or(Mismatch::Overflow { what })
}
