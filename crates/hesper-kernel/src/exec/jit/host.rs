//! The part of a kernel that the host computes: values that are uniform over a row of threads, and linear
//! integers (positions, indices, addresses).
//!
//! Each has a slot: its bits in the row's first thread, and its stride per thread. A row whose integers wrap
//! is refused and left to the bytecode.

use crate::exec::lower::is_launch_wide;
use crate::exec::memory::inside;
use crate::ir::{BinaryOp, Builtin, CmpOp, Scalar, TernaryOp, UnaryOp};
use crate::launch::{Bindings, Launch, SIMD_WIDTH};
use crate::math::scalar;

/// The index of a slot, which is that of the op that fills it.
pub(super) type Slot = u16;

/// The most host ops of a kernel.
pub(super) const MAX_OPS: usize = 512;

/// An op of the host. `LinearBinary`, `LinearConvert`, `Address`, `Within` and `Fits` take slots with a
/// stride; `Both` takes ranges; the others take uniform slots.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum HostOp {
    Const(u64),
    Param {
        param: u32,
        offset: u32,
        scalar: Scalar,
    },
    Builtin {
        what: Builtin,
        axis: u8,
        is_u64: bool,
    },
    Unary(UnaryOp, Scalar, Slot),
    Binary(BinaryOp, Scalar, Slot, Slot),
    Ternary(TernaryOp, Scalar, Slot, Slot, Slot),
    Compare(CmpOp, Scalar, Slot, Slot),
    Select(Slot, Slot, Slot),
    Convert(Scalar, Scalar, Slot),
    /// A component of a value in read-only memory.
    Load {
        param: u32,
        offset: Slot,
        within: u64,
        total: u64,
        scalar: Scalar,
    },
    LinearBinary(BinaryOp, Scalar, Slot, Slot),
    LinearConvert(Scalar, Scalar, Slot),
    /// `offset + index * stride` in bytes.
    Address {
        index: Slot,
        scalar: Scalar,
        offset: Slot,
        stride: i64,
    },
    /// The range of lanes in which `a < b` (or `a <= b`, if not strict): its first lane in the bits, its end
    /// in the stride.
    Within {
        strict: bool,
        scalar: Scalar,
        a: Slot,
        b: Slot,
    },
    /// The intersection of two such ranges.
    Both(Slot, Slot),
    /// All lanes if a `Bool` has this value, else none.
    When(Slot, bool),
    /// Refuses the row unless all lanes of an integer fit an `I32`.
    Fits(Scalar, Slot),
}

impl HostOp {
    /// Calls `f` with each slot that it reads.
    pub fn for_each_operand(&self, mut f: impl FnMut(Slot)) {
        match *self {
            HostOp::Const(_) | HostOp::Param { .. } | HostOp::Builtin { .. } => {}
            HostOp::Unary(_, _, a)
            | HostOp::Convert(_, _, a)
            | HostOp::Load { offset: a, .. }
            | HostOp::LinearConvert(_, _, a)
            | HostOp::When(a, _)
            | HostOp::Fits(_, a) => f(a),
            HostOp::Binary(_, _, a, b)
            | HostOp::Compare(_, _, a, b)
            | HostOp::LinearBinary(_, _, a, b)
            | HostOp::Within { a, b, .. }
            | HostOp::Both(a, b)
            | HostOp::Address { index: a, offset: b, .. } => {
                f(a);
                f(b);
            }
            HostOp::Ternary(_, _, a, b, c) | HostOp::Select(a, b, c) => {
                f(a);
                f(b);
                f(c);
            }
        }
    }

    /// Whether it reads the position of the row, or how long the row is.
    pub fn asks_for_position(&self) -> bool {
        match *self {
            HostOp::Within { .. } | HostOp::Both(..) | HostOp::When(..) | HostOp::Fits(..) => true,
            HostOp::LinearConvert(..) | HostOp::Address { .. } => true,
            HostOp::Builtin { what, .. } => !is_launch_wide(what),
            _ => false,
        }
    }

    /// Whether the result may differ between rows, given which slots do.
    pub fn depends_on_row(&self, row: &[bool]) -> bool {
        match *self {
            // Ranges depend on the length of the row.
            HostOp::Within { .. } | HostOp::Both(..) | HostOp::When(..) => true,
            HostOp::Builtin { what, .. } => !is_launch_wide(what),
            _ => {
                let mut depends = false;
                self.for_each_operand(|s| depends |= row[s as usize]);
                depends
            }
        }
    }
}

/// The value of a slot: its bits (as in the IR) in the row's first thread, and its stride.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LinearValue {
    pub bits: u64,
    pub stride: i64,
}

/// A piece of a row of threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub first: [u64; 3],
    pub lanes: u64,
}

/// What host ops read of a launch.
#[derive(Clone, Copy)]
pub(super) struct LaunchEnv<'a> {
    pub bindings: &'a Bindings<'a>,
    pub launch: &'a Launch,
}

/// The stride of least magnitude that is equal modulo the type's range.
fn shortest(stride: i64, s: Scalar) -> i64 {
    if s.size() == 4 { i64::from(stride as i32) } else { stride }
}

/// Whether no lane wraps around the range of the type.
fn never_wraps(n: LinearValue, s: Scalar, lanes: u64) -> bool {
    let last = scalar::to_int(s, n.bits) + i128::from(n.stride) * i128::from(lanes.max(1) - 1);
    let (least, most) = scalar::int_range(s);
    (least..=most).contains(&last)
}

/// The lanes in which `d + lane * step` is negative, or not positive if not `strict`.
fn range(d: i128, step: i128, strict: bool, lanes: u64) -> LinearValue {
    // In integers `d <= 0` is `d - 1 < 0`.
    let d = if strict { d } else { d - 1 };
    let n = i128::from(lanes);
    let (first, end) = match step {
        0 => (0, if d < 0 { n } else { 0 }),
        1.. => (0, if d < 0 { (-d + step - 1) / step } else { 0 }),
        _ => (if d < 0 { 0 } else { d / -step + 1 }, n),
    };
    LinearValue { bits: first.min(n) as u64, stride: end.min(n) as i64 }
}

/// Reads up to 8 bytes if they lie in the argument, else zero.
fn read(env: &LaunchEnv<'_>, param: u32, at: u64, scalar: Scalar) -> u64 {
    let size = scalar.size();
    let Some(arg) = env.bindings.args().get(param as usize).filter(|arg| inside(at as i64, size, arg.len()))
    else {
        return 0;
    };
    let from = arg.ptr().wrapping_add(at as usize);
    // SAFETY: the bytes lie in the argument, which is readable for the launch.
    let bits = unsafe {
        match size {
            1 => u64::from(from.read()),
            2 => u64::from(from.cast::<u16>().read_unaligned().to_le()),
            4 => u64::from(from.cast::<u32>().read_unaligned().to_le()),
            _ => from.cast::<u64>().read_unaligned().to_le(),
        }
    };
    if scalar == Scalar::Bool { u64::from(bits != 0) } else { bits }
}

impl LaunchEnv<'_> {
    /// Performs an op for a row and stores its value. False if machine code cannot run the row.
    pub fn perform(&self, op: &HostOp, values: &mut [LinearValue], slot: Slot, row: &Row) -> bool {
        match self.value(op, values, row) {
            Some(LinearValue { bits, stride }) => {
                let to = &mut values[slot as usize];
                (to.bits, to.stride) = (bits, stride);
                true
            }
            None => false,
        }
    }

    #[inline(always)]
    fn value(&self, op: &HostOp, values: &[LinearValue], row: &Row) -> Option<LinearValue> {
        let of = |s: Slot| values[s as usize];
        let bits = |s: Slot| of(s).bits;
        let uniform = match *op {
            HostOp::Const(x) => x,
            HostOp::Param { param, offset, scalar } => read(self, param, u64::from(offset), scalar),
            HostOp::Builtin { what, axis, is_u64 } => {
                let value = self.builtin(what, axis as usize, row);
                let stride = i64::from(what == Builtin::ThreadPositionInGrid && axis == 0);
                let bits = if is_u64 { value } else { u64::from(value as u32) };
                return Some(LinearValue { bits, stride });
            }
            HostOp::Unary(op, s, a) => scalar::unary(op, s, bits(a)),
            HostOp::Binary(op, s, a, b) => scalar::binary(op, s, bits(a), bits(b)),
            HostOp::Ternary(op, s, a, b, c) => scalar::ternary(op, s, bits(a), bits(b), bits(c)),
            HostOp::Compare(op, s, a, b) => u64::from(scalar::compare(op, s, bits(a), bits(b))),
            HostOp::Select(c, a, b) => bits(if bits(c) != 0 { a } else { b }),
            HostOp::Convert(from, to, a) => scalar::convert(from, to, bits(a)),
            HostOp::Load { param, offset, within, total, scalar } => {
                let at = bits(offset);
                let len = self.bindings.args().get(param as usize).map_or(0, |a| a.len());
                if inside(at as i64, total, len) { read(self, param, at + within, scalar) } else { 0 }
            }
            HostOp::LinearBinary(op, s, a, b) => {
                let (x, y) = (of(a), of(b));
                let stride = match op {
                    BinaryOp::Add => x.stride.wrapping_add(y.stride),
                    BinaryOp::Sub => x.stride.wrapping_sub(y.stride),
                    // One of the two has no stride.
                    BinaryOp::Mul => {
                        let factor = |n: LinearValue| scalar::to_int(s, n.bits) as i64;
                        x.stride.wrapping_mul(factor(y)).wrapping_add(y.stride.wrapping_mul(factor(x)))
                    }
                    _ => x.stride.wrapping_shl(y.bits as u32 & (s.bits() - 1)),
                };
                let bits = scalar::binary(op, s, x.bits, y.bits);
                return Some(LinearValue { bits, stride: shortest(stride, s) });
            }
            HostOp::LinearConvert(from, to, a) => {
                let x = of(a);
                if to.size() > from.size() && !never_wraps(x, from, row.lanes) {
                    return None;
                }
                let bits = scalar::convert(from, to, x.bits);
                return Some(LinearValue { bits, stride: shortest(x.stride, to) });
            }
            HostOp::Address { index, scalar, offset, stride } => {
                let (x, o) = (of(index), of(offset));
                if scalar.size() < 8 && !never_wraps(x, scalar, row.lanes) {
                    return None;
                }
                let by = (scalar::to_int(scalar, x.bits) as i64).wrapping_mul(stride);
                let total = o.stride.wrapping_add(x.stride.wrapping_mul(stride));
                return Some(LinearValue { bits: o.bits.wrapping_add(by as u64), stride: total });
            }
            HostOp::Within { strict, scalar, a, b } => {
                let (x, y) = (of(a), of(b));
                if !never_wraps(x, scalar, row.lanes) || !never_wraps(y, scalar, row.lanes) {
                    return None;
                }
                let d = scalar::to_int(scalar, x.bits) - scalar::to_int(scalar, y.bits);
                return Some(range(d, i128::from(x.stride) - i128::from(y.stride), strict, row.lanes));
            }
            HostOp::Both(a, b) => {
                let (x, y) = (of(a), of(b));
                return Some(LinearValue { bits: x.bits.max(y.bits), stride: x.stride.min(y.stride) });
            }
            HostOp::When(c, wanted) => {
                let all = (bits(c) != 0) == wanted;
                return Some(LinearValue { bits: 0, stride: if all { row.lanes as i64 } else { 0 } });
            }
            HostOp::Fits(s, a) => {
                let x = of(a);
                let first = scalar::to_int(s, x.bits);
                let last = first + i128::from(x.stride) * i128::from(row.lanes.max(1) - 1);
                let fits = |v: i128| i32::try_from(v).is_ok();
                return (fits(first) && fits(last)).then_some(x);
            }
        };
        Some(LinearValue { bits: uniform, stride: 0 })
    }

    fn builtin(&self, what: Builtin, axis: usize, row: &Row) -> u64 {
        let l = self.launch;
        match what {
            Builtin::ThreadPositionInGrid => row.first[axis],
            Builtin::DispatchThreadsPerThreadgroup => l.threadgroup[axis],
            Builtin::ThreadgroupsPerGrid => l.groups()[axis],
            Builtin::ThreadsPerGrid => l.grid[axis],
            Builtin::ThreadsPerSimdgroup => SIMD_WIDTH,
            Builtin::DispatchSimdgroupsPerThreadgroup => {
                l.threadgroup.iter().product::<u64>().div_ceil(SIMD_WIDTH)
            }
            Builtin::DispatchQuadgroupsPerThreadgroup => l.threadgroup.iter().product::<u64>().div_ceil(4),
            _ => 0,
        }
    }
}
