//! Which of the host's values are affine in the position of the row: 64-bit positions, indices and addresses,
//! their sums and products with launch-wide values. Modulo 2^64 such a value is exactly
//! `start + x dx + y dy + z dz`, so it need not be computed op by op for every row.
//!
//! The third axis of a grid often counts through several axes of an array: a kernel divides it by their
//! lengths, one after the other. The remainders and the last quotient are its *digits*; an affine value may
//! depend on each of them.

use super::host::{HostOp, LinearValue, Slot};
use super::node::{Access, UniformEntry};
use crate::ir::{BinaryOp, Builtin, Scalar};

/// The most digits of the third axis.
pub(super) const MAX_DIGITS: usize = 6;
/// The coordinates of a row: x, y, and the digits of z.
pub(super) const COORDINATES: usize = 2 + MAX_DIGITS;

/// The host ops of a row.
#[derive(Debug, Default)]
pub(super) struct RowOps {
    /// All affine values, in order.
    pub all: Vec<Slot>,
    /// The affine values that other ops, accesses or table entries read.
    pub read: Vec<Slot>,
    /// The ops that must be performed for each row.
    pub others: Vec<Slot>,
    /// Launch-wide values by which z is divided into digits.
    pub divisors: Vec<Slot>,
}

/// An affine function of the position of a row's first thread.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct AffineValue {
    pub start: u64,
    pub by: [u64; COORDINATES],
    /// Per lane of the row.
    pub stride: i64,
}

impl AffineValue {
    pub fn at(&self, coordinates: [u64; COORDINATES]) -> LinearValue {
        let add = |sum: u64, (by, at): (u64, u64)| sum.wrapping_add(by.wrapping_mul(at));
        let bits = self.by.into_iter().zip(coordinates).fold(self.start, add);
        LinearValue { bits, stride: self.stride }
    }
}

fn is_long(s: Scalar) -> bool {
    s.is_int() && s.size() == 8
}

/// Splits the ops into affine values and others; `row` says which ops depend on the row at all.
pub(super) fn split(ops: &[HostOp], row: &[bool], accesses: &[Access], entries: &[UniformEntry]) -> RowOps {
    let mut is_affine = vec![false; ops.len()];
    // How often a value is z divided, by the divisors in order.
    let mut divided: Vec<Option<usize>> = vec![None; ops.len()];
    let mut divisors: Vec<Slot> = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        let affine = |s: Slot| !row[s as usize] || is_affine[s as usize];
        let fixed = |s: Slot| !row[s as usize];
        let mut is_digit = false;
        match *op {
            HostOp::Builtin { what: Builtin::ThreadPositionInGrid, axis: 2, is_u64: true } => {
                divided[i] = Some(0);
            }
            HostOp::Convert(from, to, a) | HostOp::LinearConvert(from, to, a)
                if is_long(from) && is_long(to) =>
            {
                divided[i] = divided[a as usize];
            }
            HostOp::Binary(how @ (BinaryOp::Div | BinaryOp::Rem), s, a, b) if is_long(s) && fixed(b) => {
                if let Some(times) = divided[a as usize] {
                    if times == divisors.len() && times + 1 < MAX_DIGITS {
                        divisors.push(b);
                    }
                    is_digit = divisors.get(times) == Some(&b);
                    divided[i] = (is_digit && how == BinaryOp::Div).then_some(times + 1);
                }
            }
            _ => {}
        }
        let is_sum = row[i]
            && match *op {
                HostOp::Builtin { what, is_u64, .. } => what == Builtin::ThreadPositionInGrid && is_u64,
                HostOp::Convert(from, to, a) | HostOp::LinearConvert(from, to, a) => {
                    is_long(from) && is_long(to) && affine(a)
                }
                HostOp::Binary(how, s, a, b) | HostOp::LinearBinary(how, s, a, b) if is_long(s) => {
                    affine(a)
                        && affine(b)
                        && match how {
                            BinaryOp::Add | BinaryOp::Sub => true,
                            BinaryOp::Mul => fixed(a) || fixed(b),
                            BinaryOp::Shl => fixed(b),
                            _ => false,
                        }
                }
                HostOp::Address { index, scalar, offset, .. } => {
                    is_long(scalar) && affine(index) && affine(offset)
                }
                _ => false,
            };
        is_affine[i] = is_digit || is_sum;
    }
    let mut is_read = vec![false; ops.len()];
    for access in accesses {
        is_read[access.offset as usize] = true;
    }
    for entry in entries {
        if let Some(slot) = entry.slot() {
            is_read[slot as usize] = true;
        }
    }
    for (i, op) in ops.iter().enumerate() {
        if row[i] && !is_affine[i] {
            op.for_each_operand(|s| is_read[s as usize] = true);
        }
    }
    let which = |f: &dyn Fn(usize) -> bool| (0..ops.len()).filter(|&i| f(i)).map(|i| i as Slot).collect();
    RowOps {
        all: which(&|i| is_affine[i]),
        read: which(&|i| is_affine[i] && is_read[i]),
        others: which(&|i| row[i] && !is_affine[i]),
        divisors,
    }
}
