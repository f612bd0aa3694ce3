//! Many short rows of one launch: the checks of a row are made once for all of them, and from row to row only
//! the addresses change.
//!
//! Rows are taken in the order of the grid. Their coordinates count up like a number of several digits, so
//! the address of an access changes by one of a few steps, which depend on the coordinate that counts up.

use std::mem::MaybeUninit;

use super::affine::{AffineValue, COORDINATES};
use super::emit::MAX_SLOT_BYTES;
use super::host::Row;
use super::native;
use super::node::Access;
use super::run::{Progress, Session, StackBuffer};
use crate::exec::program::Cancel;

/// The longest row for which this pays.
const MAX_LANES: u64 = 2048;
/// Rows between two checks for cancellation.
const ROWS_PER_CANCEL_CHECK: u64 = 64;

/// Whether the rows of a launch can be run together.
pub(super) enum Batch {
    Unknown,
    No,
    Yes(Box<Plan>),
}

/// What is known of all rows.
pub(super) struct Plan {
    /// How many values each coordinate has.
    lengths: [u64; COORDINATES],
    coordinates: usize,
    /// The first lane of each access in the first row.
    starts: Vec<*mut u8>,
    /// How far each access moves with each coordinate, and when a coordinate counts up and those before it
    /// start again at zero.
    moves: Vec<[isize; COORDINATES]>,
    steps: Vec<[isize; COORDINATES]>,
}

/// An access over all rows: its first offset, and the range of the bytes it touches.
struct Reach {
    value: AffineValue,
    low: i128,
    high: i128,
}

impl Session<'_> {
    /// Runs up to `count` whole rows of `lanes` threads from the row at `y`, `z` on, and returns how many it
    /// ran. The others have to be run one by one, at least the next.
    pub fn rows(&mut self, [y, z]: [u64; 2], lanes: u64, count: u64, cancel: &Cancel<'_>) -> u64 {
        if matches!(self.batch, Batch::Unknown) && self.progress == Progress::Known {
            self.batch = self.plan_rows(lanes).map_or(Batch::No, |plan| Batch::Yes(Box::new(plan)));
        }
        let plan = match std::mem::replace(&mut self.batch, Batch::No) {
            Batch::Yes(plan) => plan,
            other => {
                self.batch = other;
                return 0;
            }
        };
        let mut slots = StackBuffer::<MAX_SLOT_BYTES>(MaybeUninit::uninit());
        let room = if self.jit.slot_bytes == 0 { std::ptr::null_mut() } else { slots.0.as_mut_ptr().cast() };
        // SAFETY: a field of the frame; the buffer lives until the rows are done.
        unsafe { (&raw mut (*self.frame.as_mut_ptr()).slots).write(room) };
        let done = self.run_rows(&plan, [y, z], lanes, count, cancel);
        self.batch = Batch::Yes(plan);
        done
    }

    fn run_rows(
        &mut self,
        plan: &Plan,
        [y, z]: [u64; 2],
        lanes: u64,
        count: u64,
        cancel: &Cancel<'_>,
    ) -> u64 {
        let jit = self.jit;
        let mut at = self.coordinates([0, y, z]);
        let mut to: Vec<*mut u8> = Vec::with_capacity(plan.starts.len());
        for (start, moves) in plan.starts.iter().zip(&plan.moves) {
            let along =
                |to: *mut u8, (by, at): (&isize, u64)| to.wrapping_offset(by.wrapping_mul(at as isize));
            to.push(moves.iter().zip(at).fold(*start, along));
        }
        let step = u64::from(jit.lanes);
        let (whole, tail) = (lanes & !(step - 1), lanes & (step - 1));
        let frame = self.frame.as_mut_ptr();
        // SAFETY: fields of the frame.
        unsafe {
            (&raw mut (*frame).lanes).write(whole);
            (&raw mut (*frame).tail).write((1 << tail) - 1);
        }
        // SAFETY: the code was emitted as a function of this type, for instructions this processor has.
        let run: native::Function = unsafe { std::mem::transmute(jit.code.at(0)) };
        for done in 0..count {
            if done % ROWS_PER_CANCEL_CHECK == 0 && cancel.is_cancelled() {
                return done;
            }
            if !jit.row_ops.others.is_empty() || !jit.varying_entries.is_empty() {
                self.set_affine(at);
                // The ops read the position of a row through affine values alone.
                if !self.perform(&jit.row_ops.others, &Row { first: [0; 3], lanes }) {
                    return done;
                }
                self.set_entries(&jit.varying_entries);
            }
            for (access, to) in to.iter().enumerate() {
                self.set_pointer(access, *to);
            }
            // SAFETY: the frame is set, and the lanes of every access of every row lie in its buffer, side by
            // side.
            unsafe { run(self.frame.as_ptr()) };
            let mut c = 1;
            at[c] += 1;
            while at[c] >= plan.lengths[c] && c + 1 < plan.coordinates {
                at[c] = 0;
                c += 1;
                at[c] += 1;
            }
            for (to, steps) in to.iter_mut().zip(&plan.steps) {
                *to = to.wrapping_offset(steps[c]);
            }
        }
        count
    }

    /// Checks all rows of the launch. `None` if some of them cannot be run together.
    fn plan_rows(&mut self, lanes: u64) -> Option<Plan> {
        let jit = self.jit;
        let fits = lanes.is_multiple_of(u64::from(jit.lanes)) || jit.has_tail;
        // The other ops must not ask for the position themselves.
        let asks = jit.row_ops.others.iter().any(|&slot| jit.ops[slot as usize].asks_for_position());
        if !fits || lanes > MAX_LANES || !jit.guards.is_empty() || !jit.base_entries.is_empty() || asks {
            return None;
        }
        let [_, ny, nz] = self.env.launch.grid;
        let coordinates = 3 + jit.row_ops.divisors.len();
        let (mut lengths, mut rest) = ([1; COORDINATES], nz);
        lengths[1] = ny;
        for (length, divisor) in lengths[2..].iter_mut().zip(&self.divisors).take(coordinates - 3) {
            *length = *divisor;
            rest = rest.div_ceil(*divisor);
        }
        lengths[coordinates - 1] = rest;
        let mut reaches = Vec::with_capacity(jit.accesses.len());
        for access in &jit.accesses {
            reaches.push(self.reach(access, lanes, &lengths)?);
        }
        let apart = |&(a, b): &(u16, u16)| {
            let (x, y) = (&reaches[a as usize], &reaches[b as usize]);
            x.value == y.value || x.high <= y.low || y.high <= x.low
        };
        if !jit.conflicts.iter().all(apart) {
            return None;
        }
        let mut starts = Vec::with_capacity(reaches.len());
        for (access, Reach { value, .. }) in jit.accesses.iter().zip(&reaches) {
            let buffer = self.env.bindings.args().get(access.param as usize)?;
            starts.push(buffer.ptr().wrapping_add(value.start as usize).wrapping_add(access.within as usize));
        }
        let moves: Vec<_> = reaches.iter().map(|reach| reach.value.by.map(|by| by as isize)).collect();
        let steps = moves.iter().map(|moves| steps(moves, &lengths)).collect();
        self.set_entries(&jit.row_entries);
        Some(Plan { lengths, coordinates, starts, moves, steps })
    }

    /// The bytes that an access touches in all rows. `None` unless they are known, contiguous along a row,
    /// and in its buffer.
    fn reach(&self, access: &Access, lanes: u64, lengths: &[u64; COORDINATES]) -> Option<Reach> {
        let jit = self.jit;
        let value = match jit.row_ops.read.iter().position(|&slot| slot == access.offset) {
            Some(at) => self.coefficients[at],
            None => {
                let launch_wide =
                    jit.per_launch.contains(&access.offset).then(|| self.value(access.offset))?;
                AffineValue { start: launch_wide.bits, by: [0; COORDINATES], stride: launch_wide.stride }
            }
        };
        let size = if access.pair.is_some() { access.total } else { u64::from(access.size) };
        if value.stride != size as i64 || access.total != size {
            return None;
        }
        let (mut low, mut high) = (i128::from(value.start as i64), i128::from(value.start as i64));
        for (by, length) in value.by.into_iter().zip(lengths).skip(1) {
            let reach = i128::from(by as i64) * (i128::from(*length) - 1);
            (low, high) = (low + reach.min(0), high + reach.max(0));
        }
        high += i128::from(lanes) * i128::from(size);
        let len = self.env.bindings.args().get(access.param as usize)?.len();
        (low >= 0 && high <= i128::from(len)).then_some(Reach { value, low, high })
    }
}

/// How far an access moves when a coordinate counts up and those before it start again at zero.
fn steps(moves: &[isize; COORDINATES], lengths: &[u64; COORDINATES]) -> [isize; COORDINATES] {
    let (mut steps, mut before) = ([0; COORDINATES], 0isize);
    for c in 1..COORDINATES {
        steps[c] = moves[c].wrapping_sub(before);
        before = before.wrapping_add(moves[c].wrapping_mul(lengths[c].wrapping_sub(1) as isize));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::level::SimdLevel;
    use crate::exec::machine::Dropped;
    use crate::ir::{Access as Mode, BinaryOp, Builder, Builtin, Scalar, Space, Type};
    use crate::launch::{Arg, Bindings, Launch};

    #[test]
    fn rows_after_the_second_run_together_also_in_place_and_with_digits() {
        // x[row, c] += small[z % 3, c]
        let mut b = Builder::new("rows");
        let x = b.buffer("x", Space::Device, Type::F32, Mode::ReadWrite);
        let small = b.buffer("small", Space::Device, Type::F32, Mode::Read);
        let length = b.value_param("length", Type::Scalar(Scalar::I64));
        let [c, y, z] = [0, 1, 2].map(|axis| {
            let at = b.builtin64(Builtin::ThreadPositionInGrid, axis);
            b.convert(at, Scalar::I64)
        });
        let [nx, ny] = [0, 1].map(|axis| {
            let n = b.builtin64(Builtin::ThreadsPerGrid, axis);
            b.convert(n, Scalar::I64)
        });
        let plane = b.mul(z, ny);
        let row = b.add(plane, y);
        let before = b.mul(row, nx);
        let linear = b.add(before, c);
        let digit = b.binary(BinaryOp::Rem, z, length);
        let before = b.mul(digit, nx);
        let index = b.add(before, c);
        let (old, more) = (b.load_index(x, linear, Type::F32), b.load_index(small, index, Type::F32));
        let sum = b.add(old, more);
        b.store_index(x, linear, sum);
        let kernel = b.finish().unwrap();
        let Some(jit) = super::super::compile(&kernel, SimdLevel::detect()) else { return };

        let (lanes, rows) = (16, 2 * 9);
        let mut data: Vec<u8> = (0..lanes * rows).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let more: Vec<u8> = (0..3 * lanes).flat_map(|i| (1000.0 * i as f32).to_le_bytes()).collect();
        let three = 3i64.to_le_bytes();
        let args = vec![Arg::write(&mut data), Arg::read(&more), Arg::read(&three)];
        let (bindings, dropped, cancel) = (Bindings::new(args).unwrap(), Dropped::default(), Cancel::new());
        let launch = Launch::new([lanes, 2, 9], [lanes, 1, 1]).unwrap();
        let mut session = Session::new(&jit, &bindings, &launch, &dropped);
        assert_eq!(session.rows([0, 0], lanes, rows, &cancel), 0);
        session.row(0, 0, 0, lanes, &cancel);
        assert_eq!(session.rows([1, 0], lanes, rows - 1, &cancel), 0);
        session.row(0, 1, 0, lanes, &cancel);
        assert_eq!(session.rows([0, 1], lanes, rows - 2, &cancel), rows - 2);
        drop(session);
        drop(bindings);
        for row in 0..rows {
            for c in 0..lanes {
                let at = (row * lanes + c) as usize;
                let value = f32::from_le_bytes(data[4 * at..][..4].try_into().unwrap());
                let z = row / 2;
                assert_eq!(value, at as f32 + 1000.0 * (z % 3 * lanes + c) as f32, "row {row}, column {c}");
            }
        }
    }
}
