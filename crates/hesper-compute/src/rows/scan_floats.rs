//! Cumulative sums, products and extremes of a row of floats, in vectors: each vector is scanned in steps of
//! 1, 2, 4 and 8 lanes, then combined with the last value of the vector before it.

use super::extreme::extreme;
use super::scan::{Scan, ScanOptions, Scannable};
use crate::simd::{Float, Isa, Kernel, Simd, dispatch};

const SUM: u8 = 0;
const PROD: u8 = 1;
const MAX: u8 = 2;
const MIN: u8 = 3;

/// Scans one row, continuing from the accumulator `start`. Returns the last value, and stores all values if
/// `out` is given. `None` for extremes of rows with NaN.
pub(super) fn row<T: Float>(
    simd: Simd,
    options: ScanOptions,
    x: &[T],
    out: Option<&mut [T]>,
    start: f32,
) -> Option<f32> {
    if start.is_nan() {
        return None;
    }
    dispatch(simd, Row { options, x, out, start })
}

struct Row<'a, T> {
    options: ScanOptions,
    x: &'a [T],
    out: Option<&'a mut [T]>,
    start: f32,
}

impl<T: Float> Kernel for Row<'_, T> {
    type Out = Option<f32>;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> Option<f32> {
        match self.options.op {
            Scan::Sum => Some(accumulate::<S, T, SUM>(s, self)),
            Scan::Prod => Some(accumulate::<S, T, PROD>(s, self)),
            Scan::Max if !extreme::<S, T, true>(s, self.x).1 => Some(accumulate::<S, T, MAX>(s, self)),
            Scan::Min if !extreme::<S, T, true>(s, self.x).1 => Some(accumulate::<S, T, MIN>(s, self)),
            _ => None,
        }
    }
}

#[inline(always)]
fn join<S: Isa, const OP: u8>(s: S, a: S::F, b: S::F) -> S::F {
    match OP {
        SUM => s.add(a, b),
        PROD => s.mul(a, b),
        MAX => s.max(a, b),
        _ => s.min(a, b),
    }
}

/// Shifts lanes up by `D` and fills with identities: `fill` holds 16 of them, then 16 negative zeros.
#[inline(always)]
fn move_up<S: Isa, const OP: u8, const D: usize>(s: S, fill: &[f32; 32], v: S::F) -> S::F {
    let moved = s.move_up::<D>(v);
    if OP == SUM {
        return moved;
    }
    // SAFETY: `fill` has 32 elements, so at least sixteen from here on.
    s.add(moved, unsafe { s.load(fill.as_ptr().add(16 - D)) })
}

#[inline(always)]
fn accumulate<S: Isa, T: Float, const OP: u8>(s: S, row: Row<'_, T>) -> f32 {
    let ScanOptions { reverse, inclusive, streaming, .. } = row.options;
    let n = row.x.len();
    let (from, to) = (row.x.as_ptr(), row.out.map_or(std::ptr::null_mut(), |out| out.as_mut_ptr()));
    let mut fill = [-0.0; 32];
    fill[..16].fill(match OP {
        SUM => 0.0,
        PROD => 1.0,
        MAX => f32::NEG_INFINITY,
        _ => f32::INFINITY,
    });
    let mut before = s.splat(row.start);
    // All vectors of a row have the alignment of its first one.
    let lead = if reverse { n % S::LANES } else { 0 };
    let streaming =
        streaming && size_of::<T>() == 4 && to.wrapping_add(lead).addr().is_multiple_of(4 * S::LANES);
    for i in 0..n / S::LANES {
        let at = if reverse { n - (i + 1) * S::LANES } else { i * S::LANES };
        // SAFETY: whole vectors of the row, and of the output if given, which is as long.
        unsafe {
            let mut v = T::load(s, from.add(at));
            if reverse {
                v = s.reverse(v);
            }
            let mut own = join::<S, OP>(s, v, move_up::<S, OP, 1>(s, &fill, v));
            own = join::<S, OP>(s, own, move_up::<S, OP, 2>(s, &fill, own));
            own = join::<S, OP>(s, own, move_up::<S, OP, 4>(s, &fill, own));
            if S::LANES == 16 {
                own = join::<S, OP>(s, own, move_up::<S, OP, 8>(s, &fill, own));
            }
            if !to.is_null() {
                let mut all = join::<S, OP>(
                    s,
                    before,
                    if inclusive { own } else { move_up::<S, OP, 1>(s, &fill, own) },
                );
                if reverse {
                    all = s.reverse(all);
                }
                if streaming {
                    s.stream(to.add(at).cast(), all);
                } else {
                    T::store(s, to.add(at), all);
                }
            }
            before = join::<S, OP>(s, before, s.last(own));
        }
    }
    if streaming {
        s.fence();
    }
    let mut lanes = [0.0; 16];
    let m = n % S::LANES;
    if m == 0 {
        // SAFETY: a vector has at most sixteen lanes.
        unsafe { s.store(lanes.as_mut_ptr(), before) };
        return lanes[0];
    }
    // The rest of the row; lanes past its end do not affect those before.
    let at = if reverse { 0 } else { n - m };
    // SAFETY: the row has `m` elements from `at` on, and so has the output if given; a vector has at most
    // sixteen lanes.
    unsafe {
        let mut v = T::load_n(s, from.add(at), m);
        if reverse {
            v = reversed(s, v, m);
        }
        let mut own = join::<S, OP>(s, v, move_up::<S, OP, 1>(s, &fill, v));
        own = join::<S, OP>(s, own, move_up::<S, OP, 2>(s, &fill, own));
        own = join::<S, OP>(s, own, move_up::<S, OP, 4>(s, &fill, own));
        if S::LANES == 16 {
            own = join::<S, OP>(s, own, move_up::<S, OP, 8>(s, &fill, own));
        }
        if !to.is_null() {
            let mut all =
                join::<S, OP>(s, before, if inclusive { own } else { move_up::<S, OP, 1>(s, &fill, own) });
            if reverse {
                all = reversed(s, all, m);
            }
            T::store_n(s, to.add(at), all, m);
        }
        s.store(lanes.as_mut_ptr(), join::<S, OP>(s, before, own));
    }
    lanes[m - 1]
}

/// Reverses the first `m` lanes.
#[inline(always)]
fn reversed<S: Isa>(s: S, v: S::F, m: usize) -> S::F {
    let mut lanes = [0.0; 16];
    // SAFETY: a vector has at most sixteen lanes.
    unsafe {
        s.store(lanes.as_mut_ptr(), v);
        lanes[..m].reverse();
        s.load(lanes.as_ptr())
    }
}

/// Combines a row of 16-bit floats with the accumulator of each column.
#[inline(always)]
pub(super) fn step<S: Isa, T: Float>(
    s: S,
    op: Scan,
    inclusive: bool,
    x: &[T],
    acc: &mut [f32],
    out: &mut [T],
) {
    /// Columns converted to `f32` at a time.
    const WIDENED_COLUMNS: usize = 256;
    let (mut widened, mut results) = ([0.0f32; WIDENED_COLUMNS], [0.0f32; WIDENED_COLUMNS]);
    for j0 in (0..acc.len()).step_by(WIDENED_COLUMNS) {
        let n = WIDENED_COLUMNS.min(acc.len() - j0);
        for at in (0..n).step_by(S::LANES) {
            let m = S::LANES.min(n - at);
            // SAFETY: the row has `m` elements from `at` on; the length of the buffer is a multiple of a
            // vector's.
            unsafe {
                let from = x[j0..j0 + n].as_ptr().add(at);
                let v = if m == S::LANES { T::load(s, from) } else { T::load_n(s, from, m) };
                s.store(widened.as_mut_ptr().add(at), v);
            }
        }
        let acc = &mut acc[j0..j0 + n];
        f32::step(s, op, inclusive, &widened, acc, &mut results);
        for at in (0..n).step_by(S::LANES) {
            let m = S::LANES.min(n - at);
            // SAFETY: as above.
            unsafe {
                let v = s.load(results.as_ptr().add(at));
                let to = out[j0..j0 + n].as_mut_ptr().add(at);
                if m == S::LANES { T::store(s, to, v) } else { T::store_n(s, to, v, m) }
            }
        }
    }
}
