//! Runs rows of threads: the host's ops and the checks, then machine code. Lanes that pass the checks are
//! accessed directly, the others through the staging area.

use std::mem::MaybeUninit;

use super::Jit;
use super::affine::{AffineValue, COORDINATES, MAX_DIGITS};
use super::emit::MAX_SLOT_BYTES;
use super::host::{LaunchEnv, LinearValue, Row};
use super::native;
use super::node::{Access, Frame, LongUniform, MAX_ACCESSES, UniformEntry, lane_bits};
use super::rows::Batch;
use super::stage::RowAccess;
use crate::bounds::{Target, WriteSite};
use crate::exec::machine::Dropped;
use crate::exec::program::Cancel;
use crate::exec::stream;
use crate::interp::AccessKind;
use crate::ir::Space;
use crate::launch::{Bindings, Launch};

/// Lanes of the staging area; half as many if some are 64-bit.
const STAGING_LANES: u64 = 256;
/// Bytes of the staging area for each access.
const STAGING_BYTES: usize = STAGING_LANES as usize * 4;
/// Lanes between two checks for cancellation.
const LANES_PER_CANCEL_CHECK: u64 = 1 << 16;
/// The shortest row that is written with non-temporal stores.
const MIN_STREAMED_ROW: u64 = 4096;
/// Slots kept inline in a [`Session`].
const INLINE_SLOTS: usize = 48;

/// The outcome of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::exec) enum RowOutcome {
    Done,
    /// Nothing was touched; the bytecode must run the row.
    Refused,
    Cancelled,
}

/// Which host values of a launch are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// None.
    New,
    /// The launch-wide values; values of a row are computed op by op.
    Begun,
    /// Also the coefficients of the affine values, which follow from the position of a row.
    Known,
}

/// A launch on one thread.
pub(in crate::exec) struct Session<'a> {
    pub(super) jit: &'a Jit,
    pub(super) env: LaunchEnv<'a>,
    inline: [LinearValue; INLINE_SLOTS],
    spilled: Vec<LinearValue>,
    pub(super) frame: MaybeUninit<Frame>,
    pub(super) progress: Progress,
    /// The affine values that are read, as functions of the position of the row.
    pub(super) coefficients: Vec<AffineValue>,
    /// The divisors of z.
    pub(super) divisors: [u64; MAX_DIGITS],
    pub(super) batch: Batch,
    /// Non-temporal stores were issued and are not fenced yet.
    pub streamed: bool,
    /// The first dropped write.
    dropped: &'a Dropped,
}

/// Uninitialised memory on the stack.
#[repr(align(64))]
pub(super) struct StackBuffer<const N: usize>(pub(super) MaybeUninit<[u8; N]>);

impl<'a> Session<'a> {
    pub fn new(
        jit: &'a Jit,
        bindings: &'a Bindings<'a>,
        launch: &'a Launch,
        dropped: &'a Dropped,
    ) -> Session<'a> {
        jit.code.synchronize();
        let spilled = if jit.ops.len() > INLINE_SLOTS {
            vec![LinearValue::default(); jit.ops.len()]
        } else {
            Vec::new()
        };
        Session {
            jit,
            env: LaunchEnv { bindings, launch },
            inline: [LinearValue::default(); INLINE_SLOTS],
            spilled,
            frame: MaybeUninit::uninit(),
            progress: Progress::New,
            coefficients: Vec::new(),
            divisors: [1; MAX_DIGITS],
            batch: Batch::Unknown,
            streamed: false,
            dropped,
        }
    }

    pub(super) fn values(&mut self) -> &mut [LinearValue] {
        if self.spilled.is_empty() { &mut self.inline } else { &mut self.spilled }
    }

    pub(super) fn value(&self, slot: u16) -> LinearValue {
        if self.spilled.is_empty() { self.inline[slot as usize] } else { self.spilled[slot as usize] }
    }

    /// Performs host ops. False if machine code cannot run the row.
    pub(super) fn perform(&mut self, which: &[u16], row: &Row) -> bool {
        let (env, jit) = (self.env, self.jit);
        let values = self.values();
        which.iter().all(|&slot| env.perform(&jit.ops[slot as usize], values, slot, row))
    }

    /// The coordinates of a row.
    pub(super) fn coordinates(&self, [x, y, z]: [u64; 3]) -> [u64; COORDINATES] {
        let mut at = [0; COORDINATES];
        (at[0], at[1]) = (x, y);
        let (mut rest, digits) = (z, self.jit.row_ops.divisors.len());
        for (digit, divisor) in self.divisors[..digits].iter().enumerate() {
            at[2 + digit] = rest % divisor;
            rest /= divisor;
        }
        at[2 + digits] = rest;
        at
    }

    /// Finds the coefficients of the affine values from the first row and its neighbours along each
    /// coordinate. False if they cannot be computed.
    fn find_coefficients(&mut self) -> bool {
        let jit = self.jit;
        for (i, &slot) in jit.row_ops.divisors.iter().enumerate() {
            self.divisors[i] = self.value(slot).bits;
        }
        self.coefficients = vec![AffineValue::default(); jit.row_ops.read.len()];
        if !self.perform(&jit.row_ops.all, &Row { first: [0; 3], lanes: 1 }) {
            return false;
        }
        for (i, &slot) in jit.row_ops.read.iter().enumerate() {
            let LinearValue { bits, stride } = self.value(slot);
            self.coefficients[i] = AffineValue { start: bits, by: [0; COORDINATES], stride };
        }
        let digits = jit.row_ops.divisors.len();
        let mut unit = 1u64;
        for coordinate in 0..3 + digits {
            let mut first = [0; 3];
            if let Some(digit) = coordinate.checked_sub(2) {
                first[2] = unit;
                if digit < digits {
                    let divisor = self.divisors[digit];
                    let Some(next) = unit.checked_mul(divisor).filter(|&next| next > 0) else { return false };
                    unit = next;
                    if divisor == 1 {
                        // The digit is always zero.
                        continue;
                    }
                }
            } else {
                first[coordinate] = 1;
            }
            if !self.perform(&jit.row_ops.all, &Row { first, lanes: 1 }) {
                return false;
            }
            for (i, &slot) in jit.row_ops.read.iter().enumerate() {
                let bits = self.value(slot).bits;
                let coefficients = &mut self.coefficients[i];
                coefficients.by[coordinate] = bits.wrapping_sub(coefficients.start);
            }
        }
        true
    }

    /// Computes the host's values for a row. False if machine code cannot run the row.
    fn prepare(&mut self, row: &Row) -> bool {
        let jit = self.jit;
        match self.progress {
            Progress::New => {
                if !self.perform(&jit.per_launch, row) {
                    return false;
                }
                for (i, entry) in jit.entries.iter().enumerate() {
                    match *entry {
                        UniformEntry::Constant(bits) => self.set_uniform(i, bits),
                        UniformEntry::Low(LongUniform::Constant(bits)) => self.set_uniform(i, bits as u32),
                        UniformEntry::High(LongUniform::Constant(bits)) => {
                            self.set_uniform(i, (bits >> 32) as u32)
                        }
                        _ => {}
                    }
                }
                self.progress = Progress::Begun;
                return self.perform(&jit.per_row, row);
            }
            Progress::Begun => {
                if !self.find_coefficients() {
                    return self.perform(&jit.per_row, row);
                }
                self.progress = Progress::Known;
            }
            Progress::Known => {}
        }
        let coordinates = self.coordinates(row.first);
        self.set_affine(coordinates);
        self.perform(&jit.row_ops.others, row)
    }

    /// Sets the affine values that are read.
    pub(super) fn set_affine(&mut self, coordinates: [u64; COORDINATES]) {
        let jit = self.jit;
        for (i, &slot) in jit.row_ops.read.iter().enumerate() {
            let number = self.coefficients[i].at(coordinates);
            self.values()[slot as usize] = number;
        }
    }

    /// Sets the entries of the table of uniforms that are values of the row.
    pub(super) fn set_entries(&mut self, which: &[u16]) {
        for &i in which {
            let entry = self.jit.entries[i as usize];
            let Some(number) = entry.slot().map(|slot| self.value(slot)) else { continue };
            let bits = match entry {
                UniformEntry::Value(_, s) => lane_bits(s, number.bits),
                UniformEntry::Low(LongUniform::Value(_)) => number.bits as u32,
                UniformEntry::High(LongUniform::Value(_)) => (number.bits >> 32) as u32,
                UniformEntry::High(_) => (number.stride >> 32) as u32,
                _ => number.stride as u32,
            };
            self.set_uniform(i as usize, bits);
        }
    }

    /// Writes an entry of the frame's table of uniforms.
    fn set_uniform(&mut self, at: usize, bits: u32) {
        // SAFETY: there are at most as many entries as the frame has room for.
        unsafe { (&raw mut (*self.frame.as_mut_ptr()).uniforms).cast::<u32>().add(at).write(bits) };
    }

    /// Runs threads `x..x + lanes` of a row. The position is passed in registers: loading it as a whole would
    /// stall on the stores of its parts.
    pub fn row(&mut self, x: u64, y: u64, z: u64, lanes: u64, cancel: &Cancel<'_>) -> RowOutcome {
        let row = Row { first: [x, y, z], lanes };
        let jit = self.jit;
        if !self.prepare(&row) {
            return RowOutcome::Refused;
        }
        let (mut from, mut to) = (0, lanes);
        for &slot in &jit.guards {
            let range = self.value(slot);
            (from, to) = (from.max(range.bits), to.min(range.stride as u64));
        }
        if from >= to {
            return RowOutcome::Done;
        }
        if to - from < lanes {
            return self.row(x + from, y, z, to - from, cancel);
        }
        let mut places = [MaybeUninit::<RowAccess>::uninit(); MAX_ACCESSES];
        let mut direct = true;
        for (access, place) in jit.accesses.iter().zip(&mut places) {
            let Some(arg) = self.env.bindings.args().get(access.param as usize) else {
                return RowOutcome::Refused;
            };
            let at = self.value(access.offset);
            let p = place.write(RowAccess {
                ptr: arg.ptr(),
                len: arg.len(),
                offset: at.bits as i64,
                stride: at.stride,
                total: access.total,
                within: access.within,
                size: access.size,
                paired: access.pair.is_some(),
            });
            // Stores of different lanes that overlap need the lane order of the bytecode.
            if access.store && lanes > 1 && p.stride.unsigned_abs() < p.total {
                return RowOutcome::Refused;
            }
            direct &= p.is_direct(lanes);
        }
        // SAFETY: the first so many were just written.
        let places =
            unsafe { std::slice::from_raw_parts(places.as_ptr().cast::<RowAccess>(), jit.accesses.len()) };
        let apart = |&(a, b): &(u16, u16)| places[a as usize].cannot_conflict(&places[b as usize], lanes);
        if !jit.conflicts.iter().all(apart) {
            return RowOutcome::Refused;
        }
        self.set_entries(&jit.row_entries);
        if jit.slot_bytes == 0 {
            // SAFETY: nothing uses slots.
            unsafe { (&raw mut (*self.frame.as_mut_ptr()).slots).write(std::ptr::null_mut()) };
            self.lanes(places, lanes, direct, cancel)
        } else {
            self.with_slots(places, lanes, direct, cancel)
        }
    }

    #[inline(never)]
    fn with_slots(
        &mut self,
        places: &[RowAccess],
        lanes: u64,
        direct: bool,
        cancel: &Cancel<'_>,
    ) -> RowOutcome {
        let mut slots = StackBuffer::<MAX_SLOT_BYTES>(MaybeUninit::uninit());
        // SAFETY: a field of the frame; the buffer lives until the lanes are done.
        unsafe { (&raw mut (*self.frame.as_mut_ptr()).slots).write(slots.0.as_mut_ptr().cast()) };
        self.lanes(places, lanes, direct, cancel)
    }

    /// Runs the lanes of a checked row; `direct` if machine code can access all of them in place.
    fn lanes(&mut self, places: &[RowAccess], lanes: u64, direct: bool, cancel: &Cancel<'_>) -> RowOutcome {
        let step = u64::from(self.jit.lanes);
        if !direct {
            let mut at = 0;
            while at < lanes {
                if cancel.is_cancelled() {
                    return RowOutcome::Cancelled;
                }
                let n = if self.jit.long { STAGING_LANES / 2 } else { STAGING_LANES }.min(lanes - at);
                self.staged(places, at, n);
                at += n;
            }
            return RowOutcome::Done;
        }
        let mut at = 0;
        let head = self.streaming_head(places, lanes);
        if let Some(head) = head.filter(|&h| h > 0) {
            self.staged(places, 0, head);
            at = head;
        }
        while at < lanes {
            if cancel.is_cancelled() {
                return RowOutcome::Cancelled;
            }
            let left = lanes - at;
            // Steps are powers of two.
            let n = LANES_PER_CANCEL_CHECK.min(left) & !(step - 1);
            let has_tail = self.jit.has_tail && head.is_none() && left - n < step;
            let tail = if has_tail { left - n } else { 0 };
            if n + tail == 0 {
                break;
            }
            for (i, place) in places.iter().enumerate() {
                self.set_pointer(i, place.address(at));
            }
            // SAFETY: the lanes of every access lie in its buffer, side by side.
            unsafe { self.call(at, n, tail, head.is_some()) };
            at += n + tail;
        }
        if at < lanes {
            self.staged(places, at, lanes - at);
        }
        RowOutcome::Done
    }

    /// The number of lanes to stage so that the stores after them are aligned; `None` if the row does not use
    /// non-temporal stores.
    fn streaming_head(&mut self, places: &[RowAccess], lanes: u64) -> Option<u64> {
        if lanes < MIN_STREAMED_ROW || self.jit.streaming.is_none() {
            return None;
        }
        let step = u64::from(self.jit.lanes);
        let mut head = None;
        for (place, access) in places.iter().zip(&self.jit.accesses).filter(|(_, a)| a.store) {
            let read = self.jit.accesses.iter().any(|a| !a.store && a.param == access.param);
            if read || place.paired || place.len < stream::min_bytes() {
                return None;
            }
            let (size, address) = (u64::from(place.size), place.address(0) as u64);
            let line = step * size;
            let short = (line - address % line) % line;
            if !short.is_multiple_of(size) || head.is_some_and(|h| h != short / size) {
                return None;
            }
            head = Some(short / size);
        }
        self.streamed |= head.is_some();
        head
    }

    pub(super) fn set_pointer(&mut self, access: usize, to: *mut u8) {
        // SAFETY: there are at most as many accesses as the frame has room for.
        unsafe { (&raw mut (*self.frame.as_mut_ptr()).pointers).cast::<*mut u8>().add(access).write(to) };
    }

    /// Runs lanes through the staging area, at most as many as it holds.
    #[inline(never)]
    fn staged(&mut self, places: &[RowAccess], first: u64, n: u64) {
        let mut room = StackBuffer::<{ MAX_ACCESSES * STAGING_BYTES }>(MaybeUninit::uninit());
        let room: *mut u8 = room.0.as_mut_ptr().cast();
        let step = u64::from(self.jit.lanes);
        let whole = n.next_multiple_of(step);
        let is_direct = |p: &RowAccess| whole == n && p.is_contiguous() && p.holds(first, n);
        // The first component of a pair stages both.
        let is_second = |access: &Access| access.pair.is_some_and(|which| which > 0);
        let jit = self.jit;
        for (i, (place, access)) in places.iter().zip(&jit.accesses).enumerate() {
            if is_direct(place) {
                self.set_pointer(i, place.address(first));
                continue;
            }
            let at = room.wrapping_add(i * STAGING_BYTES);
            self.set_pointer(i, at);
            if !access.store && !is_second(access) {
                let size = place.staged_size();
                // SAFETY: each access has room for whole steps up to so many lanes, both components
                // of a pair together as much as for two; the buffer is bound, so readable.
                unsafe {
                    place.gather(first, n, at);
                    std::ptr::write_bytes(at.add(n as usize * size), 0, (whole - n) as usize * size);
                }
            }
        }
        // SAFETY: pointers lead to checked lanes or to room for whole steps.
        unsafe { self.call(first, whole, 0, false) };
        for (i, (place, access)) in places.iter().zip(&jit.accesses).enumerate() {
            if access.store && !is_second(access) && !is_direct(place) {
                let at = room.wrapping_add(i * STAGING_BYTES);
                // SAFETY: machine code wrote the lanes; stored parameters are bound writable.
                let dropped = unsafe { place.scatter(first, n, at) };
                if let Some(offset) = dropped.filter(|_| self.dropped.get().is_none()) {
                    let (loc, size) = (access.loc, place.total);
                    let site = WriteSite { loc, access: AccessKind::Write, space: Space::Device, size };
                    let target = Target { object: u64::from(access.param) + 1, len: place.len, offset };
                    self.dropped.set(Some((site, target)));
                }
            }
        }
    }

    /// Runs machine code on lanes from `first` on.
    ///
    /// # Safety
    ///
    /// The frame's pointers lead to `n + tail` lanes of their accesses, `n` a multiple of a step's
    /// and `tail` less than a step's (and 0 unless the code has one), not both 0, and to memory that
    /// may be read or written.
    unsafe fn call(&mut self, first: u64, n: u64, tail: u64, streaming: bool) {
        let jit = self.jit;
        for &i in &jit.base_entries {
            let entry = jit.entries[i as usize];
            if let Some(slot) = entry.slot() {
                let x = self.value(slot);
                let bits = x.bits.wrapping_add((x.stride as u64).wrapping_mul(first));
                let high = matches!(entry, UniformEntry::High(_));
                self.set_uniform(i as usize, if high { (bits >> 32) as u32 } else { bits as u32 });
            }
        }
        let frame = self.frame.as_mut_ptr();
        let entry = jit.code.at(jit.streaming.filter(|_| streaming).unwrap_or(0));
        // SAFETY: the code was emitted as a function of this type, for instructions this
        // processor has; all that it reads of the frame is set.
        unsafe {
            (&raw mut (*frame).lanes).write(n);
            (&raw mut (*frame).tail).write((1 << tail) - 1);
            let run: native::Function = std::mem::transmute(entry);
            run(frame);
        }
    }
}
