//! Memory of the CPU device and of kernels.
//!
//! Large blocks are mapped, so that freed ones go back to the system: an allocator keeps memory that lies
//! below a block in use. Larger ones use huge pages, which make the first touch of fresh memory hundreds of
//! times cheaper.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// Blocks of at least this size are mapped.
const MIN_MAPPED_BYTES: usize = if cfg!(unix) { 1 << 20 } else { usize::MAX };
/// Blocks of at least this size start on a huge page.
const MIN_HUGE_BYTES: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;
/// Mappings are multiples of this, which is a multiple of the pages of all systems. They begin at a page.
const PAGE: usize = 64 << 10;

/// Allocates `len` uninitialised bytes, more than zero, at a multiple of `align`, at most 4096.
pub fn allocate(len: usize, align: usize) -> Option<NonNull<u8>> {
    if len >= MIN_MAPPED_BYTES {
        return map(len);
    }
    let layout = Layout::from_size_align(len, align).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc(layout) })
}

/// Frees memory of [`allocate`].
///
/// # Safety
/// `address`, `len` and `align` are those of an allocation that is no longer used.
pub unsafe fn free(address: NonNull<u8>, len: usize, align: usize) {
    // SAFETY: upheld by the caller.
    unsafe {
        if len >= MIN_MAPPED_BYTES {
            unmap(address.as_ptr(), len.next_multiple_of(PAGE));
        } else if let Ok(layout) = Layout::from_size_align(len, align) {
            dealloc(address.as_ptr(), layout);
        }
    }
}

#[cfg(unix)]
fn map(len: usize) -> Option<NonNull<u8>> {
    let len = len.checked_next_multiple_of(PAGE)?;
    let align = if len >= MIN_HUGE_BYTES { HUGE_PAGE } else { 1 };
    let room = len.checked_add(align - 1)?.checked_next_multiple_of(PAGE)?;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
    // SAFETY: new memory at an address of the system's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), room, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(align);
    let (address, after) = (start.wrapping_add(before), room - before - len);
    // SAFETY: both ends are whole pages of the new memory and not used.
    unsafe {
        unmap(start, before);
        unmap(address.wrapping_add(len), after);
    }
    if len >= MIN_HUGE_BYTES {
        advise_huge(address, len);
    }
    NonNull::new(address)
}

/// # Safety
/// The pages are mapped and no longer used; both ends are at pages.
#[cfg(unix)]
unsafe fn unmap(address: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: upheld by the caller.
        unsafe { libc::munmap(address.cast(), len) };
    }
}

#[cfg(not(unix))]
fn map(_: usize) -> Option<NonNull<u8>> {
    None
}

#[cfg(not(unix))]
unsafe fn unmap(_: *mut u8, _: usize) {}

/// Requests huge pages.
#[cfg(target_os = "linux")]
fn advise_huge(address: *mut u8, len: usize) {
    // SAFETY: the range was just mapped and starts on a page; the call is a hint.
    unsafe { libc::madvise(address.cast(), len, libc::MADV_HUGEPAGE) };
}

#[cfg(all(unix, not(target_os = "linux")))]
fn advise_huge(_: *mut u8, _: usize) {}
