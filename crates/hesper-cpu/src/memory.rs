//! Host memory: aligned for the widest vectors; large allocations use huge pages.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// The alignment of every allocation: a cache line and the widest vector register.
pub(crate) const ALIGNMENT: usize = 64;

/// Allocations of at least this size start on a huge page.
const MIN_HUGE_BYTES: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;

fn layout(len: usize) -> Option<Layout> {
    let align = if len >= MIN_HUGE_BYTES { HUGE_PAGE } else { ALIGNMENT };
    Layout::from_size_align(len, align).ok()
}

/// Allocates `len` uninitialised bytes, more than zero.
pub(crate) fn allocate(len: usize) -> Option<NonNull<u8>> {
    // SAFETY: the runtime asks for more than zero bytes.
    let address = NonNull::new(unsafe { alloc(layout(len)?) })?;
    if len >= MIN_HUGE_BYTES {
        advise_huge(address, len);
    }
    Some(address)
}

/// Requests huge pages: they make the first touch of fresh memory hundreds of times cheaper.
#[cfg(target_os = "linux")]
fn advise_huge(address: NonNull<u8>, len: usize) {
    // SAFETY: the range was just allocated and starts on a page; the call is a hint.
    unsafe { libc::madvise(address.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_: NonNull<u8>, _: usize) {}

/// Frees memory of [`allocate`].
///
/// # Safety
/// `address` and `len` are those of an allocation that is no longer used.
pub(crate) unsafe fn free(address: NonNull<u8>, len: usize) {
    if let Some(layout) = layout(len) {
        // SAFETY: upheld by the caller; the layout is a function of the length.
        unsafe { dealloc(address.as_ptr(), layout) };
    }
}

/// The memory of the machine in bytes.
#[cfg(unix)]
pub(crate) fn total() -> usize {
    // SAFETY: the calls only read system parameters.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    if pages > 0 && size > 0 { (pages as usize).saturating_mul(size as usize) } else { 8 << 30 }
}

/// The memory of the machine in bytes: an assumption, since it cannot be queried.
#[cfg(not(unix))]
pub(crate) fn total() -> usize {
    8 << 30
}
