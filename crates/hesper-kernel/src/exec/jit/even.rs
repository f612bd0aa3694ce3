//! Which of the host's numbers grow evenly from row to row as well: 64-bit positions, indices and
//! addresses, sums of them and products with what is the same for a launch. Modulo 2^64 such a
//! number is exactly `start + x dx + y dy + z dz`, so that a row need not be computed again.

use super::host::{HostOp, Number, Slot};
use super::node::{Access, Entry};
use crate::ir::{BinaryOp, Builtin, Scalar};

/// The host's work for a row, once a launch has begun.
#[derive(Debug, Default)]
pub(super) struct Even {
    /// All numbers that grow evenly, in order.
    pub all: Vec<Slot>,
    /// Those of them that something else reads.
    pub read: Vec<Slot>,
    /// The operations of a row that are left.
    pub others: Vec<Slot>,
}

/// A number that grows evenly with the position of a row's first thread.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Growth {
    pub start: u64,
    pub by: [u64; 3],
    /// Along a row.
    pub stride: i64,
}

impl Growth {
    pub fn at(&self, first: [u64; 3]) -> Number {
        let add = |sum: u64, (by, at): (u64, u64)| sum.wrapping_add(by.wrapping_mul(at));
        let bits = self.by.into_iter().zip(first).fold(self.start, add);
        Number { bits, stride: self.stride }
    }
}

fn is_long(s: Scalar) -> bool {
    s.is_int() && s.size() == 8
}

/// Sorts the operations of a row (`row` says which depend on it).
pub(super) fn even(ops: &[HostOp], row: &[bool], accesses: &[Access], entries: &[Entry]) -> Even {
    let mut is_even = vec![false; ops.len()];
    for (i, op) in ops.iter().enumerate() {
        let one = |s: Slot| !row[s as usize] || is_even[s as usize];
        let same = |s: Slot| !row[s as usize];
        is_even[i] = row[i]
            && match *op {
                HostOp::Builtin { what, wide, .. } => what == Builtin::ThreadPositionInGrid && wide,
                HostOp::Convert(from, to, a) | HostOp::LinearConvert(from, to, a) => {
                    is_long(from) && is_long(to) && one(a)
                }
                HostOp::Binary(how, s, a, b) | HostOp::LinearBinary(how, s, a, b) if is_long(s) => {
                    one(a)
                        && one(b)
                        && match how {
                            BinaryOp::Add | BinaryOp::Sub => true,
                            BinaryOp::Mul => same(a) || same(b),
                            BinaryOp::Shl => same(b),
                            _ => false,
                        }
                }
                HostOp::Address { index, scalar, offset, .. } => is_long(scalar) && one(index) && one(offset),
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
        if row[i] && !is_even[i] {
            op.for_each_operand(|s| is_read[s as usize] = true);
        }
    }
    let which = |f: &dyn Fn(usize) -> bool| (0..ops.len()).filter(|&i| f(i)).map(|i| i as Slot).collect();
    Even {
        all: which(&|i| is_even[i]),
        read: which(&|i| is_even[i] && is_read[i]),
        others: which(&|i| row[i] && !is_even[i]),
    }
}
