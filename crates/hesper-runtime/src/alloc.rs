//! Allocation: the pool first, then the device; on exhaustion everything that can give memory back does.

use std::sync::Arc;

use crate::block::{Block, Buffer, Handle, Kind, Lease};
use crate::device::{DeviceError, RawMemory};
use crate::error::{Error, Result};
use crate::history::Users;
use crate::label::Label;
use crate::ledger::{Garbage, Ledger};
use crate::pool::{Taker, class_of};
use crate::runtime::Shared;
use crate::sync::atomic::Ordering;

impl Shared {
    /// Takes memory from the pool or the device.
    #[track_caller]
    pub(crate) fn alloc(this: &Arc<Shared>, len: usize, taker: Taker, label: Label) -> Result<Buffer> {
        let limit = this.device.info().max_buffer;
        let class = match class_of(len) {
            Some(class) if class <= limit => class,
            _ => return Err(Error::SizeOverflow { requested: len, limit }),
        };
        if let Some(fault) = this.lost() {
            return Err(fault.into());
        }
        let (pooled, id) = {
            let mut ledger = this.ledger.lock();
            let block = this.take_pooled(&mut ledger, class, taker);
            (block.map(|block| (block, ledger.take_ended())), ledger.new_lease())
        };
        let (block, ended) = match pooled {
            Some(pooled) => pooled,
            // An ended lease keeps its block: none is held while memory is looked for.
            None => (this.alloc_block(class, taker)?, this.ledger.lock().take_ended()),
        };
        this.trace.allocated(class);
        Ok(Handle::take(Lease::new(block, id, len, label, false), ended, this.clone()))
    }

    /// A free block.
    fn take_pooled(&self, ledger: &mut Ledger, class: usize, taker: Taker) -> Option<Arc<Block>> {
        let block = ledger.take(class, taker)?;
        self.note_peak(ledger);
        Some(block)
    }

    fn note_peak(&self, ledger: &mut Ledger) {
        let active = self.allocated.load(Ordering::Relaxed).saturating_sub(ledger.pool.cached());
        ledger.peak = ledger.peak.max(active);
    }

    /// New memory from the device; on exhaustion commits, trims, retires and waits before it gives up.
    fn alloc_block(self: &Arc<Shared>, class: usize, taker: Taker) -> Result<Arc<Block>> {
        self.make_room(class);
        let mut waited = false;
        loop {
            let limit = self.memory_limit.load(Ordering::Acquire);
            let allocated = self.allocated.load(Ordering::Relaxed);
            let cause = if allocated.saturating_add(class) > limit {
                "the limit is reached".to_string()
            } else {
                match self.device.allocate(class) {
                    Ok(memory) => return Ok(self.new_block(memory)),
                    Err(DeviceError::OutOfMemory(message)) => message,
                    Err(error) => return Err(self.device_error("allocate memory", error)),
                }
            };
            // Everything that can give memory back does: the pool, then work in flight.
            if !crate::native::inside() {
                self.commit_all();
                self.device.poll();
            }
            let (garbage, pending) = {
                let mut ledger = self.ledger.lock();
                (ledger.trim(0), ledger.oldest_in_flight())
            };
            let freed = !garbage.is_empty();
            drop(garbage);
            match pending {
                Some((stream, index)) if !crate::native::inside() => {
                    self.wait(&stream, index);
                    waited = true;
                }
                _ if freed || std::mem::take(&mut waited) => {}
                _ if self.drop_replicas() => {}
                _ => {
                    let cached = self.ledger.lock().pool.cached();
                    return Err(Error::OutOfMemory {
                        device: self.name(),
                        requested: class,
                        active: self.allocated.load(Ordering::Relaxed).saturating_sub(cached),
                        cached,
                        limit,
                        cause,
                    });
                }
            }
            // What was waited for may have come back to the pool meanwhile.
            let pooled = self.take_pooled(&mut self.ledger.lock(), class, taker);
            if let Some(block) = pooled {
                return Ok(block);
            }
        }
    }

    /// Keeps the pool from hoarding sizes that nobody asks for any more: before new memory is taken, old
    /// free blocks go, if the pool is large beside what is in use, or if the limit is near. Memory that the host does not
    /// see is dear to take and to give back: there it stays as long as all together is about what was in use at once, or
    /// little of what there is.
    fn make_room(&self, class: usize) {
        const ALWAYS: usize = 64 << 20;
        let garbage = {
            let mut ledger = self.ledger.lock();
            let allocated = self.allocated.load(Ordering::Relaxed);
            let active = allocated.saturating_sub(ledger.pool.cached());
            let limit = self.memory_limit.load(Ordering::Acquire);
            let by_limit = limit.saturating_sub(active).saturating_sub(class);
            let mut by_use = (active / 2).max(ALWAYS);
            if !self.device.info().host_visible {
                let peak = ledger.peak.saturating_add(ledger.peak / 4);
                by_use = by_use.max(limit / 16).max(peak.saturating_sub(active).saturating_sub(class));
            }
            ledger.trim(by_limit.min(by_use))
        };
        drop(garbage);
    }

    fn new_block(&self, memory: RawMemory) -> Arc<Block> {
        self.allocated.fetch_add(memory.len, Ordering::Relaxed);
        let mut ledger = self.ledger.lock();
        let slot = ledger.new_slot(&self.slots);
        self.note_peak(&mut ledger);
        Arc::new(Block::new(
            memory,
            Kind::Owned,
            slot,
            self.device.clone(),
            self.slots.clone(),
            Some((memory.len, self.allocated.clone())),
            None,
        ))
    }

    /// A buffer's last handle is gone: its block is free, for whom the history says.
    pub(crate) fn take_back(&self, lease: &Lease) {
        if lease.block.kind != Kind::Owned {
            return;
        }
        let garbage = {
            let mut ledger = self.ledger.lock();
            let users = ledger.users(&lease.block);
            if users == Users::Nobody {
                ledger.forget(&lease.block);
            }
            ledger.pool.put(lease.block.clone(), self.free_for(users));
            let limit = self.cache_limit.load(Ordering::Acquire);
            if ledger.pool.cached() > limit { ledger.trim(limit) } else { Garbage::default() }
        };
        drop(garbage);
    }

    /// Who must be ordered behind the block's pending uses.
    fn free_for(&self, users: Users) -> Users {
        #[cfg(feature = "sim")]
        if self.ablation == crate::sim::Ablation::ReuseOrder {
            // What unsafe pools do: a block that was given back is anybody's. Its history stays.
            return Users::Nobody;
        }
        users
    }
}
