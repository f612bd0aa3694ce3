//! An allocator that counts: what the process holds, by size, and the most that one thread held meanwhile.
//!
//! The counts tell a leak from fragmentation. Live bytes that grow are a leak; resident memory that grows while live
//! bytes do not belongs to the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// The allocator of the programs of this crate.
pub struct Counting;

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
    // A thread that is ending has no cells any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it came; counting touches atomics and plain
// thread-local cells only, and never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's own promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's own promise.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes that the process holds on the heap.
pub fn live_bytes() -> i64 {
    BYTES.load(Ordering::Relaxed)
}

/// Live allocations by size: entry `n` counts those of `2^(n-1)` to `2^n - 1` bytes.
pub fn live_by_size() -> Vec<i64> {
    LIVE.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

/// The result of `f`, and the most bytes that this thread held meanwhile beyond what it held before.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

/// Resident bytes of the process, where the system tells.
pub fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}
