//! Allocation: from the pool, then from the device; on exhaustion after trimming, waiting and dropping
//! replicas.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::hazards::PendingStreams;
use crate::label::Label;
use crate::raw::{DeviceError, RawMemory};
use crate::state::{Block, Buffer, Garbage, Lease, Ledger, Ownership, Requester, Shared, class_of};
use crate::sync::atomic::Ordering;

/// Smaller blocks are not taken for requests of half their size: there are many, and they cost little.
const MIN_SHARED_CLASS: usize = 256 << 10;

impl Shared {
    /// Allocates from the pool or the device.
    #[track_caller]
    pub(crate) fn alloc(
        this: &Arc<Shared>,
        len: usize,
        requester: Requester,
        label: Label,
    ) -> Result<Buffer> {
        crate::fork::check()?;
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
            let block = this.take_pooled(&mut ledger, class, requester);
            (block.map(|block| (block, ledger.take_recycled_lease())), ledger.new_lease())
        };
        let (block, recycled) = match pooled {
            Some(pooled) => pooled,
            // A recycled lease keeps its block alive, so it is taken only after the allocation.
            None => (this.alloc_block(class, requester)?, this.ledger.lock().take_recycled_lease()),
        };
        this.trace.allocated(class);
        Ok(Buffer::new(Lease::new(block, id, len, label, false), recycled, this.clone()))
    }

    /// Takes a free block from the pool: one that is slightly larger at most, unless fresh memory would
    /// exceed what was in use recently. Then one of twice the size is better than none.
    fn take_pooled(&self, ledger: &mut Ledger, class: usize, requester: Requester) -> Option<Arc<Block>> {
        let block = ledger.take(class, class.saturating_add(class / 8), requester).or_else(|| {
            let fresh = self.allocated.load(Ordering::Relaxed).saturating_add(class);
            let grows = class >= MIN_SHARED_CLASS
                && fresh > ledger.recent_peak.saturating_add(ledger.recent_peak / 16);
            grows.then(|| ledger.take(class, class.saturating_mul(2), requester)).flatten()
        })?;
        self.note_peak(ledger);
        Some(block)
    }

    fn note_peak(&self, ledger: &mut Ledger) {
        let active = self.allocated.load(Ordering::Relaxed).saturating_sub(ledger.pool.cached());
        ledger.peak = ledger.peak.max(active);
        ledger.recent_peak = ledger.recent_peak.max(active);
    }

    /// Allocates from the device; on exhaustion commits, trims, waits and drops replicas before it fails.
    /// Above the soft limit it trims and waits until nothing is in flight, and then goes on.
    fn alloc_block(self: &Arc<Shared>, class: usize, requester: Requester) -> Result<Arc<Block>> {
        self.make_room(class);
        let (mut waited, mut obey_soft) = (false, true);
        loop {
            let limit = self.memory_limit.load(Ordering::Acquire);
            let needed = self.allocated.load(Ordering::Relaxed).saturating_add(class);
            let cause = if needed > limit {
                "the memory limit is reached".to_string()
            } else if obey_soft && needed > self.soft_limit.load(Ordering::Acquire) {
                "the soft memory limit is reached".to_string()
            } else {
                match self.device.allocate(class) {
                    Ok(memory) => return Ok(self.new_block(memory)),
                    Err(DeviceError::OutOfMemory(message)) => message,
                    Err(error) => return Err(self.device_error("allocate memory", error)),
                }
            };
            // Work in flight may return memory to the pool, which is trimmed.
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
                _ if needed <= limit && std::mem::take(&mut obey_soft) => {}
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
            // Finished work may have returned blocks to the pool.
            let pooled = self.take_pooled(&mut self.ledger.lock(), class, requester);
            if let Some(block) = pooled {
                return Ok(block);
            }
        }
    }

    /// Trims the pool before an allocation from the device, so that it does not hoard sizes that are no
    /// longer used: active and cached bytes together may be an eighth above what was in use recently, and
    /// less near a memory limit. Discrete memory is expensive to allocate and free, so there they may be a
    /// quarter above the peak, or the pool a sixteenth of the limit.
    fn make_room(&self, class: usize) {
        const MIN_POOL: usize = 64 << 20;
        self.relieve_pressure();
        let garbage = {
            let mut ledger = self.ledger.lock();
            let allocated = self.allocated.load(Ordering::Relaxed);
            let active = allocated.saturating_sub(ledger.pool.cached());
            let hard = self.memory_limit.load(Ordering::Acquire);
            let limit = hard.min(self.soft_limit.load(Ordering::Acquire));
            let within = |bytes: usize| bytes.saturating_sub(active).saturating_sub(class);
            let by_use = if self.device.info().unified_memory {
                let recent = ledger.recent_peak.max(active);
                // What was in use once is forgotten by and by.
                ledger.recent_peak = recent - (recent - active) / 256;
                within(recent.saturating_add(recent / 8)).max(MIN_POOL)
            } else {
                let peak = ledger.peak.saturating_add(ledger.peak / 4);
                (active / 2).max(MIN_POOL).max(limit / 16).max(within(peak))
            };
            ledger.trim(within(limit).min(by_use))
        };
        drop(garbage);
    }

    /// Frees what the pool keeps for reuse if the system ran short of memory.
    pub(crate) fn relieve_pressure(&self) {
        if self.device.take_memory_pressure() {
            let garbage = self.ledger.lock().trim(0);
            drop(garbage);
        }
    }

    fn new_block(&self, memory: RawMemory) -> Arc<Block> {
        self.allocated.fetch_add(memory.len, Ordering::Relaxed);
        let mut ledger = self.ledger.lock();
        let slot = ledger.new_slot(&self.slots);
        self.note_peak(&mut ledger);
        Arc::new(Block::new(
            memory,
            Ownership::Owned,
            slot,
            self.device.clone(),
            self.slots.clone(),
            Some((memory.len, self.allocated.clone())),
            None,
        ))
    }

    /// Returns the block of a buffer whose last handle was dropped to the pool.
    pub(crate) fn return_block(&self, lease: &Lease) {
        if lease.block.ownership != Ownership::Owned {
            return;
        }
        let garbage = {
            let mut ledger = self.ledger.lock();
            let pending = ledger.pending_streams(&lease.block);
            if pending == PendingStreams::None {
                ledger.forget(&lease.block);
            }
            ledger.pool.put(lease.block.clone(), self.free_for(pending));
            let limit = self.cache_limit.load(Ordering::Acquire);
            if ledger.pool.cached() > limit { ledger.trim(limit) } else { Garbage::default() }
        };
        drop(garbage);
    }

    /// The streams that still use the block, as far as the pool knows.
    fn free_for(&self, pending: PendingStreams) -> PendingStreams {
        #[cfg(feature = "sim")]
        if self.ablation == crate::ablation::Ablation::ReuseOrder {
            // As in an unsafe pool, anything may take a returned block. Its history stays.
            return PendingStreams::None;
        }
        pending
    }
}
