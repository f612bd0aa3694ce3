//! Accesses out of range: how they are reported, and proofs that they cannot happen.
//!
//! Every executor gives an out-of-range read the value zero and drops an out-of-range write. A dropped write
//! is a [`Violation`]: the launch fails with a message that names the kernel, the line and the memory.
//!
//! [`prove`] decides before a launch whether all its accesses are in range, in which case it needs no checks,
//! and whether its stores cover a buffer, in which case the buffer need not be cleared.

#[cfg(any(feature = "gpu", feature = "text"))]
mod cover;
#[cfg(any(feature = "gpu", feature = "text"))]
mod expr;
mod violation;
#[cfg(any(feature = "gpu", feature = "text"))]
mod walk;

pub use violation::{Target, Violation, WriteSite};

use crate::ir::{BlockId, Kernel, Loc, Op, ParamKind};
use crate::launch::Launch;

/// Numbers the instructions of a kernel, block by block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstNumbers {
    first: Vec<usize>,
}

impl InstNumbers {
    /// The numbers of a kernel's instructions.
    pub fn new(kernel: &Kernel) -> InstNumbers {
        let mut next = 0;
        let mut take = |count: usize| {
            next += count;
            next - count
        };
        InstNumbers { first: kernel.blocks.iter().map(|block| take(block.insts.len())).collect() }
    }

    /// The number of an instruction of a block.
    pub fn of(&self, block: BlockId, index: usize) -> usize {
        self.first.get(block.index()).map_or(usize::MAX, |first| first + index)
    }

    /// The instruction with a number, and its source location.
    pub fn find<'k>(&self, kernel: &'k Kernel, number: usize) -> Option<(&'k Op, Loc)> {
        let block = self.first.partition_point(|first| *first <= number).checked_sub(1)?;
        // An empty block shares its first number with the next one.
        let inst = kernel.blocks.get(block)?.insts.get(number - self.first[block])?;
        Some((&inst.op, inst.loc))
    }
}

/// What is known about an argument before a launch.
#[derive(Clone, Copy, Debug)]
pub struct ArgFacts<'a> {
    /// Its length in bytes.
    pub len: u64,
    /// A power of two that divides its address.
    pub align: u64,
    /// The bytes themselves, where the host has them: those of a by-value parameter, of shapes and strides.
    pub contents: Option<&'a [u8]>,
}

/// What is proven about a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Every access is in range, and aligned as the dialect promises.
    pub in_range: bool,
    /// By parameter, whether every byte of it is written, and none is read.
    pub covered: Vec<bool>,
    /// Which accesses are in range, by [number](InstNumbers) of the instruction.
    pub proven: Vec<bool>,
}

impl Proof {
    /// The proven accesses as a token of a specialisation key: the number of instructions, and a bit for each
    /// as hexadecimal digits.
    pub fn mask(&self) -> String {
        let digits = self.proven.chunks(4).map(|four| {
            let bits = four.iter().enumerate().map(|(at, proven)| u32::from(*proven) << at).sum();
            char::from_digit(bits, 16).unwrap_or('0')
        });
        format!("{}:{}", self.proven.len(), digits.collect::<String>())
    }
}

/// The proven accesses of a [mask](Proof::mask); `None` if the mask does not belong to this kernel.
pub fn from_mask(kernel: &Kernel, mask: &str) -> Option<Vec<bool>> {
    let (count, digits) = mask.split_once(':')?;
    let count: usize = count.parse().ok()?;
    if count != kernel.inst_count() || digits.len() != count.div_ceil(4) {
        return None;
    }
    let digits: Vec<u32> = digits.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    Some((0..count).map(|at| digits[at / 4] >> (at % 4) & 1 == 1).collect())
}

/// Proves what it can about a launch. The proof is sound, not complete.
#[cfg(any(feature = "gpu", feature = "text"))]
pub fn prove(kernel: &Kernel, launch: &Launch, args: &[ArgFacts<'_>]) -> Proof {
    let proven = vec![false; kernel.inst_count()];
    let none = Proof { in_range: false, covered: vec![false; kernel.params.len()], proven };
    if args.len() != kernel.params.len() || launch.grid.contains(&0) {
        return none;
    }
    let Some(mut found) = walk::walk(kernel, Some(*launch), args) else { return none };
    // An access that is never reached needs no check.
    let proven: Vec<bool> = found.proven.iter().map(|proven| proven.unwrap_or(true)).collect();
    let in_range = proven.iter().all(|proven| *proven);
    let covered = kernel.params.iter().enumerate().map(|(at, param)| {
        let writes = matches!(param.kind, ParamKind::Buffer { access, .. } if access.writes());
        writes && cover::is_covered(&mut found, at as u32, args[at].len)
    });
    Proof { in_range, covered: covered.collect(), proven }
}

/// Which accesses are in range in every launch, by [number](InstNumbers) of the instruction.
#[cfg(any(feature = "gpu", feature = "text"))]
pub fn prove_any(kernel: &Kernel) -> Vec<bool> {
    match walk::walk(kernel, None, &[]) {
        Some(found) => found.proven.iter().map(|proven| *proven == Some(true)).collect(),
        None => vec![false; kernel.inst_count()],
    }
}
