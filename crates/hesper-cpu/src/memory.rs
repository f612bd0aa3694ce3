//! Host memory: aligned for the widest vectors.

use std::ptr::NonNull;

/// The alignment of every allocation: a cache line and the widest vector register.
pub(crate) const ALIGNMENT: usize = 64;

/// Allocates `len` uninitialised bytes, more than zero.
pub(crate) fn allocate(len: usize) -> Option<NonNull<u8>> {
    hesper_compute::memory::allocate(len, ALIGNMENT)
}

/// Frees memory of [`allocate`].
///
/// # Safety
/// `address` and `len` are those of an allocation that is no longer used.
pub(crate) unsafe fn free(address: NonNull<u8>, len: usize) {
    // SAFETY: upheld by the caller.
    unsafe { hesper_compute::memory::free(address, len, ALIGNMENT) };
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
