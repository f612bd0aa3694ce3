//! Aligned scratch memory. Each thread keeps a pool of buffers between calls, so that kernels avoid page
//! faults.
//!
//! A pool holds at most [`MAX_POOLED_BUFFERS`] buffers of at most [`MAX_POOLED_BYTES`] bytes; larger ones are
//! freed at once. Large buffers use huge pages where the system has them.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;

const ALIGN: usize = 4096;
const MAX_POOLED_BUFFERS: usize = 6;
const MAX_POOLED_BYTES: usize = 48 << 20;
/// From this size on a buffer starts on a huge page.
const HUGE_FROM: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Uninitialised, page-aligned bytes.
struct Block {
    ptr: *mut u8,
    len: usize,
}

impl Block {
    fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: `layout` never has size zero.
        let ptr = unsafe { alloc(layout) };
        if ptr.is_null() {
            handle_alloc_error(layout);
        }
        if len >= HUGE_FROM {
            advise_huge(ptr, len);
        }
        Self { ptr, len }
    }

    fn layout(len: usize) -> Layout {
        let align = if len >= HUGE_FROM { HUGE_PAGE } else { ALIGN };
        Layout::from_size_align(len, align).expect("scratch sizes are far below isize::MAX")
    }
}

/// Requests huge pages: page faults and TLB misses become much cheaper.
#[cfg(target_os = "linux")]
fn advise_huge(ptr: *mut u8, len: usize) {
    // SAFETY: the range was just allocated and starts on a page; the call is advice only.
    unsafe { libc::madvise(ptr.cast(), len, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_: *mut u8, _: usize) {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.ptr, Self::layout(self.len)) }
    }
}

thread_local! {
    static POOL: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of `T`s with unspecified contents; it returns to the pool of the thread that drops it.
pub(crate) struct Scratch<T> {
    block: Option<Block>,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Scratch<T> {
    /// Room for `n` elements (and 64 bytes more, so that full-width stores may write past the end).
    pub(crate) fn new(n: usize) -> Self {
        let bytes = (n * size_of::<T>() + 64).next_multiple_of(ALIGN);
        // An exiting thread has no pool any more.
        let found = POOL.try_with(|free| {
            let mut free = free.borrow_mut();
            let best = (0..free.len()).filter(|&i| free[i].len >= bytes).min_by_key(|&i| free[i].len)?;
            Some(free.swap_remove(best))
        });
        let block = found.ok().flatten().unwrap_or_else(|| Block::new(bytes));
        Self { block: Some(block), of: std::marker::PhantomData }
    }

    pub(crate) fn ptr(&self) -> *mut T {
        self.block.as_ref().map_or(std::ptr::null_mut(), |b| b.ptr.cast())
    }
}

impl<T> Drop for Scratch<T> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        if block.len > MAX_POOLED_BYTES {
            return;
        }
        // An exiting thread has no pool any more: the block is freed.
        let _ = POOL.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() >= MAX_POOLED_BUFFERS
                && let Some(least) = (0..free.len()).min_by_key(|&i| free[i].len)
            {
                free.swap_remove(least);
            }
            free.push(block);
        });
    }
}
