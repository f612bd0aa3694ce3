//! Atomic operations of all active lanes, in the order of the lanes.
//!
//! Threadgroups run on several cores at once, so these are the machine's atomics, relaxed. An
//! address that is not aligned to the type is treated as out of bounds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::code::{Atomic, AtomicKind, Root};
use super::machine::{Form, Machine, Object};
use super::memory::inside;
use crate::bounds::WriteSite;
use crate::interp::AccessKind;
use crate::ir::{AtomicOp, Scalar};
use crate::math;

/// The new value of a read-modify-write.
fn update(op: AtomicOp, s: Scalar, old: u64, x: u64) -> u64 {
    macro_rules! int {
        ($t:ident, $u:ident) => {{
            let (a, b) = (old as $t, x as $t);
            let r = match op {
                AtomicOp::Exchange => b,
                AtomicOp::Add => a.wrapping_add(b),
                AtomicOp::Sub => a.wrapping_sub(b),
                AtomicOp::Min => a.min(b),
                AtomicOp::Max => a.max(b),
                AtomicOp::And => a & b,
                AtomicOp::Or => a | b,
                AtomicOp::Xor => a ^ b,
            };
            u64::from(r as $u)
        }};
    }
    match s {
        Scalar::I32 => int!(i32, u32),
        Scalar::I64 => int!(i64, u64),
        Scalar::U64 => int!(u64, u64),
        Scalar::F32 => {
            let (a, b) = (f32::from_bits(old as u32), f32::from_bits(x as u32));
            let r = match op {
                AtomicOp::Add => a + b,
                AtomicOp::Sub => a - b,
                AtomicOp::Min => math::min_f32(a, b),
                AtomicOp::Max => math::max_f32(a, b),
                _ => b,
            };
            u64::from(r.to_bits())
        }
        _ => int!(u32, u32),
    }
}

macro_rules! atomic_word {
    ($name:ident, $atomic:ident, $t:ident) => {
        /// One operation; gives the old value.
        ///
        /// # Safety
        ///
        /// `p` must be aligned, and valid for reads, and for writes unless the kind is `Load`.
        unsafe fn $name(p: *mut u8, at: &Atomic, x: u64, expected: u64) -> u64 {
            // SAFETY: the caller's promise; kernels reach the word through plain accesses too,
            // which is a race of the kernel's own making.
            let word = unsafe { $atomic::from_ptr(p.cast()) };
            u64::from(match at.kind {
                AtomicKind::Load => word.load(Relaxed),
                AtomicKind::Store => {
                    word.store(x as $t, Relaxed);
                    0
                }
                AtomicKind::CompareExchange => {
                    match word.compare_exchange(expected as $t, x as $t, Relaxed, Relaxed) {
                        Ok(old) | Err(old) => old,
                    }
                }
                AtomicKind::Rmw(op) => match (op, at.scalar.is_float()) {
                    (AtomicOp::Add, false) => word.fetch_add(x as $t, Relaxed),
                    (AtomicOp::Sub, false) => word.fetch_sub(x as $t, Relaxed),
                    (AtomicOp::And, _) => word.fetch_and(x as $t, Relaxed),
                    (AtomicOp::Or, _) => word.fetch_or(x as $t, Relaxed),
                    (AtomicOp::Xor, _) => word.fetch_xor(x as $t, Relaxed),
                    (AtomicOp::Exchange, _) => word.swap(x as $t, Relaxed),
                    _ => {
                        let mut old = word.load(Relaxed);
                        loop {
                            let new = update(op, at.scalar, u64::from(old), x) as $t;
                            match word.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                                Ok(old) => break old,
                                Err(now) => old = now,
                            }
                        }
                    }
                },
            })
        }
    };
}
atomic_word!(word32, AtomicU32, u32);
atomic_word!(word64, AtomicU64, u64);

impl Machine<'_> {
    pub fn atomic(&mut self, at: &Atomic) {
        let size = at.scalar.size();
        let plan = self.plan_at(at.offset, at.imm);
        let object = self.object(at.root);
        for lane in self.active.lo..self.active.hi {
            if !self.is_active(lane) {
                continue;
            }
            let o = match (object, at.root) {
                (Some(o), _) => o,
                (None, Root::Dynamic(r)) => self.object_at(self.lane(r, lane) as u32),
                (None, Root::Object(_)) => Object::NULL,
            };
            let offset = plan.at(lane);
            let p = o.ptr.wrapping_offset(offset as isize);
            let reads = at.kind == AtomicKind::Load;
            let ok = inside(offset, size, o.len)
                && o.cell == 0
                && (o.writable || reads)
                && (p as usize).is_multiple_of(size as usize);
            let value = |r: Option<u32>| r.map_or(0, |r| self.lane(r, lane));
            let old = if ok {
                let (x, expected) = (value(at.value), value(at.expected));
                // SAFETY: in bounds, aligned, writable unless it is a load.
                unsafe { if size == 4 { word32(p, at, x, expected) } else { word64(p, at, x, expected) } }
            } else {
                if !reads {
                    let site = WriteSite { loc: at.loc, access: AccessKind::AtomicWrite, size };
                    self.drop_write(site, at.root, lane, offset);
                }
                0
            };
            if let Some(d) = at.result {
                let own = self.regs[d as usize].own;
                // SAFETY: a lane of the register.
                unsafe {
                    if size == 4 {
                        own.cast::<u32>().add(lane).write_unaligned(old as u32);
                    } else {
                        own.cast::<u64>().add(lane).write_unaligned(old);
                    }
                }
            }
        }
        if let Some(d) = at.result {
            self.set_varying(d);
            debug_assert_eq!(self.regs[d as usize].form, Form::Varying);
        }
    }
}
