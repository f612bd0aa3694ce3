//! Accesses out of range: how they are reported, and which cannot happen.
//!
//! Every executor gives an out-of-range read the value zero and drops an out-of-range write. A dropped write is a
//! [`Violation`]: the launch fails with a message that names the kernel, the line and the memory.

mod violation;

pub use violation::{Target, Violation, WriteSite};

use crate::ir::{BlockId, Kernel, Loc, Op};

/// The instructions of a kernel by number, block by block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    first: Vec<usize>,
}

impl Numbers {
    /// The numbers of a kernel's instructions.
    pub fn new(kernel: &Kernel) -> Numbers {
        let mut next = 0;
        let mut take = |count: usize| {
            next += count;
            next - count
        };
        Numbers { first: kernel.blocks.iter().map(|block| take(block.insts.len())).collect() }
    }

    /// The number of an instruction of a block.
    pub fn of(&self, block: BlockId, index: usize) -> usize {
        self.first.get(block.index()).map_or(usize::MAX, |first| first + index)
    }

    /// The instruction of a number, and where it stands in the source.
    pub fn find<'k>(&self, kernel: &'k Kernel, number: usize) -> Option<(&'k Op, Loc)> {
        let block = self.first.partition_point(|first| *first <= number).checked_sub(1)?;
        // Empty blocks have the same first number as the next one; the last of them is it.
        let inst = kernel.blocks.get(block)?.insts.get(number - self.first[block])?;
        Some((&inst.op, inst.loc))
    }
}

/// Which accesses lie inside of their memory in every launch, by number of the instruction.
pub fn prove_any(kernel: &Kernel) -> Vec<bool> {
    vec![false; kernel.inst_count()]
}
