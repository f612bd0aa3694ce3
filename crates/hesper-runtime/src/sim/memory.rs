//! The simulator's memory: filled with a pattern when fresh and when freed, unmapped only with the simulator.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;

use crate::raw::{DeviceError, RawMemory};

const FRESH_PATTERN: u8 = 0xdb;
const FREED_PATTERN: u8 = 0xdf;
const ALIGN: usize = 64;

struct Piece {
    address: NonNull<u8>,
    len: usize,
    owned: bool,
    alive: bool,
}

/// All allocations so far.
pub(super) struct Memory {
    pieces: HashMap<u64, Piece>,
    next: u64,
    live: usize,
    pub(super) peak: usize,
    limit: usize,
    unified: bool,
}

// SAFETY: the addresses are plain memory, accessed under the engine's lock or by commands that the engine
// orders.
unsafe impl Send for Memory {}

impl Memory {
    pub(super) fn new(limit: usize, unified: bool) -> Self {
        Memory { pieces: HashMap::new(), next: 1, live: 0, peak: 0, limit, unified }
    }

    pub(super) fn allocate(&mut self, len: usize) -> Result<RawMemory, DeviceError> {
        if self.live.saturating_add(len) > self.limit {
            return Err(DeviceError::OutOfMemory(format!("{} of {} bytes in use", self.live, self.limit)));
        }
        let layout = Layout::from_size_align(len, ALIGN)
            .map_err(|_| DeviceError::OutOfMemory("size overflow".into()))?;
        // SAFETY: the layout is not empty (the runtime asks for more than zero bytes).
        let Some(address) = NonNull::new(unsafe { alloc(layout) }) else {
            return Err(DeviceError::OutOfMemory("the host is out of memory".into()));
        };
        // SAFETY: freshly allocated, `len` bytes.
        unsafe { address.as_ptr().write_bytes(FRESH_PATTERN, len) };
        self.live += len;
        self.peak = self.peak.max(self.live);
        Ok(self.add(address, len, true))
    }

    pub(super) fn import(&mut self, address: NonNull<u8>, len: usize) -> RawMemory {
        self.add(address, len, false)
    }

    fn add(&mut self, address: NonNull<u8>, len: usize, owned: bool) -> RawMemory {
        let id = self.next;
        self.next += 1;
        self.pieces.insert(id, Piece { address, len, owned, alive: true });
        RawMemory { id, host: (self.unified || !owned).then_some(address), len }
    }

    pub(super) fn free(&mut self, memory: RawMemory) {
        let Some(piece) = self.pieces.get_mut(&memory.id) else { return };
        if !std::mem::replace(&mut piece.alive, false) {
            return;
        }
        if piece.owned {
            self.live -= piece.len;
            // SAFETY: the piece stays mapped until the sim ends.
            unsafe { piece.address.as_ptr().write_bytes(FREED_PATTERN, piece.len) };
        } else {
            self.pieces.remove(&memory.id);
        }
    }

    pub(super) fn is_alive(&self, id: u64) -> bool {
        self.pieces.get(&id).is_some_and(|piece| piece.alive)
    }

    /// The address of a piece, also without unified memory.
    pub(super) fn address(&self, id: u64) -> Option<NonNull<u8>> {
        self.pieces.get(&id).map(|piece| piece.address)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.values().all(|piece| !piece.alive)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for piece in self.pieces.values().filter(|piece| piece.owned) {
            if let Ok(layout) = Layout::from_size_align(piece.len, ALIGN) {
                // SAFETY: allocated with this layout, and the sim is gone.
                unsafe { dealloc(piece.address.as_ptr(), layout) };
            }
        }
    }
}
