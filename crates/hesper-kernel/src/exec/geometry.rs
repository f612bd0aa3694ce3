//! How the threads of a launch become blocks of lanes, and the positions each lane sees.
//!
//! A kernel that does not see how threads are grouped runs over long rows of the grid, whatever
//! the threadgroup. Others run group by group: several small groups side by side, or a large one
//! in pieces.

use super::code::BuiltinReg;
use super::machine::Machine;
use crate::ir::Builtin;
use crate::launch::{Launch, SIMD_WIDTH};

/// Lanes `start..start + n` of a box of threads, x fastest; `n` is the machine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// First thread of the box in the grid.
    pub origin: [u64; 3],
    /// Size of the box.
    pub size: [u64; 3],
    pub start: u64,
}

/// What a block of lanes consists of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunk {
    /// A piece of a box of the grid; the kernel does not see groups.
    Flat(Piece),
    /// A piece of one threadgroup.
    Group(Piece),
    /// Whole threadgroups of one size, from this number on.
    Groups { first: u64, size: [u64; 3] },
}

/// A number for each lane.
enum Number {
    /// `base + lane * stride`.
    Linear(u64, u64),
    /// One by one.
    Each(Vec<u64>),
}

impl Piece {
    /// Coordinates of the lanes along an axis, within the box.
    fn local(&self, axis: usize, n: u64) -> Number {
        let [sx, sy, _] = self.size.map(|s| s.max(1));
        let (first, last) = (self.start, self.start + n.max(1) - 1);
        let at = |i: u64| [i % sx, i / sx % sy, i / sx / sy][axis];
        if first / sx == last / sx {
            return Number::Linear(at(first), u64::from(axis == 0));
        }
        if axis == 2 && first / sx / sy == last / sx / sy {
            return Number::Linear(at(first), 0);
        }
        Number::Each((first..=last).map(at).collect())
    }
}

fn plus(n: Number, by: u64) -> Number {
    match n {
        Number::Linear(base, stride) => Number::Linear(base.wrapping_add(by), stride),
        Number::Each(v) => Number::Each(v.into_iter().map(|x| x.wrapping_add(by)).collect()),
    }
}

/// `f` of the consecutive numbers `start..start + n`.
fn index(start: u64, n: u64, f: impl Fn(u64) -> u64) -> Number {
    Number::Each((start..start + n).map(f).collect())
}

impl Machine<'_> {
    /// Fills the registers of the builtins for the lanes of a chunk.
    pub fn place(&mut self, chunk: &Chunk, launch: &Launch) {
        for i in 0..self.code.builtins.len() {
            let b = self.code.builtins[i];
            if super::lower::is_launch_wide(b.what) {
                continue;
            }
            let number = match chunk {
                Chunk::Flat(piece) | Chunk::Group(piece) => position(&b, piece, launch, self.n as u64),
                Chunk::Groups { first, size } => many(&b, *first, *size, launch, self.n as u64),
            };
            self.set_number(&b, number);
        }
    }

    /// Fills the registers of the builtins that are the same for the whole launch.
    pub fn place_launch_wide(&mut self, launch: &Launch) {
        let threads: u64 = launch.threadgroup.iter().product();
        for i in 0..self.code.builtins.len() {
            let b = self.code.builtins[i];
            let axis = b.axis as usize;
            let value = match b.what {
                Builtin::DispatchThreadsPerThreadgroup => launch.threadgroup[axis],
                Builtin::ThreadgroupsPerGrid => launch.groups()[axis],
                Builtin::ThreadsPerGrid => launch.grid[axis],
                Builtin::ThreadsPerSimdgroup => SIMD_WIDTH,
                Builtin::DispatchSimdgroupsPerThreadgroup => threads.div_ceil(SIMD_WIDTH),
                Builtin::DispatchQuadgroupsPerThreadgroup => threads.div_ceil(4),
                _ => continue,
            };
            self.set_uniform(b.reg, value);
        }
    }

    fn set_number(&mut self, b: &BuiltinReg, number: Number) {
        match number {
            Number::Linear(base, stride) => {
                let base = if b.wide { base as i64 } else { i64::from(base as u32) };
                self.set_affine(b.reg, base, if self.n == 1 { 0 } else { stride as i64 });
            }
            Number::Each(values) => {
                let own = self.regs[b.reg as usize].own;
                for (lane, v) in values.into_iter().take(self.n).enumerate() {
                    // SAFETY: a lane of the register, which has room for `width >= n` lanes.
                    unsafe {
                        if b.wide {
                            own.cast::<u64>().add(lane).write_unaligned(v);
                        } else {
                            own.cast::<u32>().add(lane).write_unaligned(v as u32);
                        }
                    }
                }
                self.set_varying(b.reg);
            }
        }
    }
}

/// A builtin for the lanes of a piece of one threadgroup (or of a box of the grid, for those
/// that do not depend on groups).
fn position(b: &BuiltinReg, piece: &Piece, launch: &Launch, n: u64) -> Number {
    let axis = b.axis as usize;
    let threads: u64 = piece.size.iter().product();
    let one = |x: u64| Number::Linear(x, 0);
    let last = piece.start + n.max(1) - 1;
    let split = |by: u64| -> Number {
        if piece.start / by == last / by { one(piece.start / by) } else { index(piece.start, n, |i| i / by) }
    };
    let rest = |by: u64| -> Number {
        if piece.start / by == last / by {
            Number::Linear(piece.start % by, 1)
        } else {
            index(piece.start, n, |i| i % by)
        }
    };
    match b.what {
        Builtin::ThreadPositionInGrid => plus(piece.local(axis, n), piece.origin[axis]),
        Builtin::ThreadPositionInThreadgroup => piece.local(axis, n),
        Builtin::ThreadgroupPositionInGrid => one(piece.origin[axis] / launch.threadgroup[axis].max(1)),
        Builtin::ThreadsPerThreadgroup => one(piece.size[axis]),
        Builtin::ThreadIndexInThreadgroup => Number::Linear(piece.start, 1),
        Builtin::SimdgroupIndexInThreadgroup => split(SIMD_WIDTH),
        Builtin::ThreadIndexInSimdgroup => rest(SIMD_WIDTH),
        Builtin::SimdgroupsPerThreadgroup => one(threads.div_ceil(SIMD_WIDTH)),
        Builtin::QuadgroupIndexInThreadgroup => split(4),
        Builtin::ThreadIndexInQuadgroup => rest(4),
        Builtin::QuadgroupsPerThreadgroup => one(threads.div_ceil(4)),
        // The launch-wide ones are set once.
        _ => one(0),
    }
}

/// A builtin for the lanes of several whole threadgroups.
fn many(b: &BuiltinReg, first: u64, size: [u64; 3], launch: &Launch, n: u64) -> Number {
    let axis = b.axis as usize;
    let threads: u64 = size.iter().product::<u64>().max(1);
    let one = |x: u64| Number::Linear(x, 0);
    let local = |i: u64| {
        let i = i % threads;
        [i % size[0], i / size[0] % size[1], i / size[0] / size[1]][axis]
    };
    let group = |i: u64| launch.group_at(first + i / threads)[axis];
    let each = |f: &dyn Fn(u64) -> u64| index(0, n, f);
    match b.what {
        Builtin::ThreadPositionInGrid => each(&|i| group(i) * launch.threadgroup[axis] + local(i)),
        Builtin::ThreadPositionInThreadgroup => each(&local),
        Builtin::ThreadgroupPositionInGrid => each(&group),
        Builtin::ThreadsPerThreadgroup => one(size[axis]),
        Builtin::ThreadIndexInThreadgroup => each(&|i| i % threads),
        Builtin::SimdgroupIndexInThreadgroup => each(&|i| i % threads / SIMD_WIDTH),
        Builtin::ThreadIndexInSimdgroup => each(&|i| i % threads % SIMD_WIDTH),
        Builtin::SimdgroupsPerThreadgroup => one(threads.div_ceil(SIMD_WIDTH)),
        Builtin::QuadgroupIndexInThreadgroup => each(&|i| i % threads / 4),
        Builtin::ThreadIndexInQuadgroup => each(&|i| i % threads % 4),
        Builtin::QuadgroupsPerThreadgroup => one(threads.div_ceil(4)),
        _ => one(0),
    }
}
