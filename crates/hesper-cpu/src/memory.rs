//! Host memory for the device: aligned for the widest vectors, on huge pages where that pays.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// Alignment of every allocation: a cache line, and the widest vector register.
pub(crate) const ALIGNMENT: usize = 64;

/// From this size on an allocation starts on a huge page.
const HUGE_FROM: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;

fn layout(len: usize) -> Option<Layout> {
    let align = if len >= HUGE_FROM { HUGE_PAGE } else { ALIGNMENT };
    Layout::from_size_align(len, align).ok()
}

/// Allocates `len` bytes, more than zero; what is in them is unspecified.
pub(crate) fn allocate(len: usize) -> Option<NonNull<u8>> {
    // SAFETY: the runtime asks for more than zero bytes.
    let address = NonNull::new(unsafe { alloc(layout(len)?) })?;
    if len >= HUGE_FROM {
        advise_huge(address, len);
    }
    Some(address)
}

/// Asks for huge pages: the first touch of fresh memory is then hundreds of times cheaper.
#[cfg(target_os = "linux")]
fn advise_huge(address: NonNull<u8>, len: usize) {
    // SAFETY: the range was just allocated and starts on a page; the call is advice only.
    unsafe { libc::madvise(address.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_: NonNull<u8>, _: usize) {}

/// Frees what [`allocate`] gave.
///
/// # Safety
/// `address` and `len` are those of an allocation that nobody uses any more.
pub(crate) unsafe fn free(address: NonNull<u8>, len: usize) {
    if let Some(layout) = layout(len) {
        // SAFETY: the caller's promise, and the layout is a function of the length.
        unsafe { dealloc(address.as_ptr(), layout) };
    }
}

/// Bytes of memory that the machine has.
#[cfg(unix)]
pub(crate) fn total() -> usize {
    // SAFETY: plain queries.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    if pages > 0 && size > 0 { (pages as usize).saturating_mul(size as usize) } else { 8 << 30 }
}

/// Bytes of memory that the machine has: a guess where it cannot be asked.
#[cfg(not(unix))]
pub(crate) fn total() -> usize {
    8 << 30
}
