//! Atomic operations of all active lanes, in the order of the lanes.
//!
//! Threadgroups run on several cores, so these are hardware atomics, relaxed. A misaligned address counts as
//! out of bounds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::code::{Atomic, AtomicKind, Root};
use super::machine::{Machine, Object, RegisterForm};
use super::memory::inside;
use crate::bounds::WriteSite;
use crate::interp::AccessKind;
use crate::ir::AtomicOp;
use crate::math::scalar;

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
                            let new = scalar::atomic(op, at.scalar, u64::from(old), x) as $t;
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
        let plan = self.lane_offsets(at.offset, at.imm);
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
                    let (loc, space) = (at.loc, at.space);
                    let site = WriteSite { loc, access: AccessKind::AtomicWrite, space, size };
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
            debug_assert_eq!(self.regs[d as usize].form, RegisterForm::Varying);
        }
    }
}
