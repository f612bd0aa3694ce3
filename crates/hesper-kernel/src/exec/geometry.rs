//! How threads of a launch map to blocks of lanes, and the positions of each lane.
//!
//! A kernel that does not depend on how threads are grouped runs over long rows of the grid. Others run group
//! by group: several small groups side by side, or a large one in parts.

use super::code::BuiltinReg;
use super::machine::Machine;
use crate::ir::Builtin;
use crate::launch::{Launch, SIMD_WIDTH};

/// Lanes `start..start + n` of a box of threads, x fastest; `n` is the machine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneRange {
    /// First thread of the box in the grid.
    pub origin: [u64; 3],
    /// Size of the box.
    pub size: [u64; 3],
    pub start: u64,
}

/// The threads of a block of lanes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunk {
    /// Part of a box of the grid, for kernels that do not depend on groups.
    Flat(LaneRange),
    /// Part of one threadgroup.
    Group(LaneRange),
    /// Whole threadgroups of one size, from this number on.
    Groups { first: u64, size: [u64; 3] },
}

/// A number for each lane.
enum Number {
    /// `base + lane * stride`.
    Linear(u64, u64),
    /// `base` plus the quotient of `start + lane`, or plus its remainder.
    Quotient {
        base: u64,
        start: u64,
        by: u64,
    },
    Remainder {
        base: u64,
        start: u64,
        by: u64,
    },
    /// Computed lane by lane.
    Each(Vec<u64>),
}

impl LaneRange {
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
        if axis == 0 {
            return Number::Remainder { base: 0, start: first, by: sx };
        }
        if axis == 1 && first / sx / sy == last / sx / sy {
            return Number::Quotient { base: 0, start: first % (sx * sy), by: sx };
        }
        Number::Each((first..=last).map(at).collect())
    }
}

fn plus(n: Number, x: u64) -> Number {
    match n {
        Number::Linear(base, stride) => Number::Linear(base.wrapping_add(x), stride),
        Number::Quotient { base, start, by } => Number::Quotient { base: base + x, start, by },
        Number::Remainder { base, start, by } => Number::Remainder { base: base + x, start, by },
        Number::Each(v) => Number::Each(v.into_iter().map(|y| y.wrapping_add(x)).collect()),
    }
}

impl Machine<'_> {
    /// Fills the registers of the builtins for the lanes of a chunk.
    pub fn fill_builtins(&mut self, chunk: &Chunk, launch: &Launch) {
        let shape = match chunk {
            Chunk::Flat(_) => None,
            Chunk::Group(piece) => Some((piece.size, piece.start, self.n)),
            Chunk::Groups { size, .. } => Some((*size, u64::MAX, self.n)),
        };
        let known = shape.is_some() && shape == self.shape;
        self.shape = shape;
        for i in 0..self.code.builtins.len() {
            let b = self.code.builtins[i];
            if super::lower::is_launch_wide(b.what) || known && is_local(b.what) {
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
    pub fn fill_launch_wide_builtins(&mut self, launch: &Launch) {
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
                let base = if b.is_u64 { base as i64 } else { i64::from(base as u32) };
                self.set_affine(b.reg, base, if self.n == 1 { 0 } else { stride as i64 });
            }
            Number::Quotient { base, start, by } => {
                let (mut q, mut r) = (base + start / by, start % by);
                self.fill(b, || {
                    let now = q;
                    r += 1;
                    (q, r) = if r == by { (q + 1, 0) } else { (q, r) };
                    now
                });
            }
            Number::Remainder { base, start, by } => {
                let mut r = start % by;
                self.fill(b, || {
                    let now = base + r;
                    r = if r + 1 == by { 0 } else { r + 1 };
                    now
                });
            }
            Number::Each(values) => {
                let mut values = values.into_iter();
                self.fill(b, || values.next().unwrap_or(0));
            }
        }
    }

    /// Fills the lanes of a builtin one after another.
    fn fill(&mut self, b: &BuiltinReg, mut next: impl FnMut() -> u64) {
        let own = self.regs[b.reg as usize].own;
        for lane in 0..self.n {
            let v = next();
            // SAFETY: a lane of the register, which has room for `width >= n` lanes.
            unsafe {
                if b.is_u64 {
                    own.cast::<u64>().add(lane).write_unaligned(v);
                } else {
                    own.cast::<u32>().add(lane).write_unaligned(v as u32);
                }
            }
        }
        self.set_varying(b.reg);
    }
}

/// Whether a builtin depends on the shape of the threadgroup, but not on its position.
fn is_local(what: Builtin) -> bool {
    !matches!(what, Builtin::ThreadPositionInGrid | Builtin::ThreadgroupPositionInGrid)
}

/// A builtin for the lanes of a piece of one threadgroup (or of a box of the grid, for those
/// that do not depend on groups).
fn position(b: &BuiltinReg, piece: &LaneRange, launch: &Launch, n: u64) -> Number {
    let axis = b.axis as usize;
    let threads: u64 = piece.size.iter().product();
    let one = |x: u64| Number::Linear(x, 0);
    let last = piece.start + n.max(1) - 1;
    let split = |by: u64| -> Number {
        if piece.start / by == last / by {
            one(piece.start / by)
        } else {
            Number::Quotient { base: 0, start: piece.start, by }
        }
    };
    let rest = |by: u64| -> Number {
        if piece.start / by == last / by {
            Number::Linear(piece.start % by, 1)
        } else {
            Number::Remainder { base: 0, start: piece.start, by }
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
        // `fill_launch_wide_builtins` sets the rest.
        _ => one(0),
    }
}

/// A builtin for the lanes of several whole threadgroups.
fn many(b: &BuiltinReg, first: u64, size: [u64; 3], launch: &Launch, n: u64) -> Number {
    let axis = b.axis as usize;
    let threads: u64 = size.iter().product::<u64>().max(1);
    let one = |x: u64| Number::Linear(x, 0);
    // The same numbers in each group.
    let each = |local: &dyn Fn(u64) -> u64| {
        let local: Vec<u64> = (0..threads).map(local).collect();
        Number::Each(local.iter().copied().cycle().take(n as usize).collect())
    };
    let local = |i: u64| [i % size[0], i / size[0] % size[1], i / size[0] / size[1]][axis];
    match b.what {
        Builtin::ThreadPositionInGrid | Builtin::ThreadgroupPositionInGrid => {
            let in_grid = b.what == Builtin::ThreadPositionInGrid;
            let by = if in_grid { launch.threadgroup[axis] } else { 1 };
            let mut values = Vec::with_capacity(n as usize);
            let local: Vec<u64> = (0..threads).map(|i| if in_grid { local(i) } else { 0 }).collect();
            for g in first..first + n / threads {
                let at = launch.group_at(g)[axis] * by;
                values.extend(local.iter().map(|l| at + l));
            }
            Number::Each(values)
        }
        Builtin::ThreadPositionInThreadgroup => each(&local),
        Builtin::ThreadsPerThreadgroup => one(size[axis]),
        Builtin::ThreadIndexInThreadgroup => each(&|i| i),
        Builtin::SimdgroupIndexInThreadgroup => each(&|i| i / SIMD_WIDTH),
        Builtin::ThreadIndexInSimdgroup => each(&|i| i % SIMD_WIDTH),
        Builtin::SimdgroupsPerThreadgroup => one(threads.div_ceil(SIMD_WIDTH)),
        Builtin::QuadgroupIndexInThreadgroup => each(&|i| i / 4),
        Builtin::ThreadIndexInQuadgroup => each(&|i| i % 4),
        Builtin::QuadgroupsPerThreadgroup => one(threads.div_ceil(4)),
        _ => one(0),
    }
}
