//! Aligned scratch memory. Each thread keeps a pool of buffers between calls, so that kernels avoid page
//! faults: at most [`MAX_POOLED_BUFFERS`], the last used ones, of at most [`MAX_POOLED_BYTES`] together.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;

use crate::memory;

const ALIGN: usize = 4096;
const MAX_POOLED_BUFFERS: usize = 6;
const MAX_POOLED_BYTES: usize = 48 << 20;

/// Uninitialised, page-aligned bytes.
struct Block {
    ptr: NonNull<u8>,
    len: usize,
}

impl Block {
    fn new(len: usize) -> Self {
        let Some(ptr) = memory::allocate(len, ALIGN) else {
            handle_alloc_error(Layout::from_size_align(len, ALIGN).unwrap_or(Layout::new::<u8>()))
        };
        Self { ptr, len }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this length.
        unsafe { memory::free(self.ptr, self.len, ALIGN) }
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
            Some(free.remove(best))
        });
        let block = found.ok().flatten().unwrap_or_else(|| Block::new(bytes));
        Self { block: Some(block), of: std::marker::PhantomData }
    }

    pub(crate) fn ptr(&self) -> *mut T {
        self.block.as_ref().map_or(std::ptr::null_mut(), |b| b.ptr.as_ptr().cast())
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
            let mut bytes = block.len + free.iter().map(|block| block.len).sum::<usize>();
            while bytes > MAX_POOLED_BYTES || free.len() >= MAX_POOLED_BUFFERS {
                bytes -= free.remove(0).len;
            }
            free.push(block);
        });
    }
}
