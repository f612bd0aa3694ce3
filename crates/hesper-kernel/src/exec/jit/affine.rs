//! Which of the host's values are affine in the position of the row: 64-bit positions, indices and addresses,
//! their sums and products with launch-wide values. Modulo 2^64 such a value is exactly
//! `start + x dx + y dy + z dz`, so it need not be computed op by op for every row.

use super::host::{HostOp, LinearValue, Slot};
use super::node::{Access, UniformEntry};
use crate::ir::{BinaryOp, Builtin, Scalar};

/// The host ops of a row.
#[derive(Debug, Default)]
pub(super) struct RowOps {
    /// All affine values, in order.
    pub all: Vec<Slot>,
    /// The affine values that other ops, accesses or table entries read.
    pub read: Vec<Slot>,
    /// The ops that must be performed for each row.
    pub others: Vec<Slot>,
}

/// An affine function of the position of a row's first thread.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct AffineValue {
    pub start: u64,
    pub by: [u64; 3],
    /// Per lane of the row.
    pub stride: i64,
}

impl AffineValue {
    pub fn at(&self, first: [u64; 3]) -> LinearValue {
        let add = |sum: u64, (by, at): (u64, u64)| sum.wrapping_add(by.wrapping_mul(at));
        let bits = self.by.into_iter().zip(first).fold(self.start, add);
        LinearValue { bits, stride: self.stride }
    }
}

fn is_long(s: Scalar) -> bool {
    s.is_int() && s.size() == 8
}

/// Splits the ops into affine values and others; `row` says which ops depend on the row at all.
pub(super) fn split(ops: &[HostOp], row: &[bool], accesses: &[Access], entries: &[UniformEntry]) -> RowOps {
    let mut is_affine = vec![false; ops.len()];
    for (i, op) in ops.iter().enumerate() {
        let affine = |s: Slot| !row[s as usize] || is_affine[s as usize];
        let fixed = |s: Slot| !row[s as usize];
        is_affine[i] = row[i]
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
    }
}
