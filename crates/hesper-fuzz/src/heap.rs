//! A counting allocator: live bytes of the process, live allocations by size, and the peak of a thread.
//!
//! The counts distinguish a leak from fragmentation: growing live bytes are a leak; growing resident memory
//! with constant live bytes is fragmentation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// The allocator of the programs of this crate.
pub struct CountingAllocator;

const CLASSES: usize = 48;

static BYTES: AtomicI64 = AtomicI64::new(0);
static LIVE: [AtomicI64; CLASSES] = [const { AtomicI64::new(0) }; CLASSES];

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(size: usize, sign: i64) {
    let class = (usize::BITS - size.leading_zeros()) as usize;
    LIVE[class.min(CLASSES - 1)].fetch_add(sign, Ordering::Relaxed);
    let change = sign.saturating_mul(i64::try_from(size).unwrap_or(i64::MAX));
    BYTES.fetch_add(change, Ordering::Relaxed);
    // A thread that is ending has destroyed its cells.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is forwarded to the system's allocator; counting uses atomics and plain thread-local
// cells and never allocates.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: upheld by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: upheld by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Live heap bytes of the process.
pub fn live_bytes() -> i64 {
    BYTES.load(Ordering::Relaxed)
}

/// Live allocations by size: entry `n` counts those of `2^(n-1)` to `2^n - 1` bytes.
pub fn live_by_size() -> Vec<i64> {
    LIVE.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

/// The result of `f`, and the peak of heap bytes of this thread above its level before.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

/// Resident bytes of the process, where the system reports them.
pub fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}
