//! A read-only, private mapping of a whole file, registered with the fault handler.
//!
//! Relies on `sigbus` for accesses to pages that the file has lost. Promises that the slice it gives stays
//! readable until the mapping is dropped, whatever happens to the file.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use super::sigbus::{self, Registration};

/// The mapped bytes of a file.
pub struct Mapping {
    start: NonNull<libc::c_void>,
    len: usize,
    registration: Option<Registration>,
}

// SAFETY: the mapping is read-only memory without thread affinity, unmapped once, by drop.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file of `len` bytes; `None` where the system or the table of mappings cannot take it.
    pub fn new(file: &File, len: u64) -> Option<Self> {
        let len = usize::try_from(len).ok().filter(|&len| len > 0 && isize::try_from(len).is_ok())?;
        if !sigbus::install() {
            return None;
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours; the
        // descriptor is open for the duration of the call.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let mut mapping = Mapping { start: NonNull::new(start)?, len, registration: None };
        // Without a slot the mapping would not survive truncation: drop it and let the caller read instead.
        mapping.registration = Some(sigbus::register(start as usize, len)?);
        Some(mapping)
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start..start + len` is mapped readable until drop, page-aligned, no longer than
        // `isize::MAX`, and never written through this process. The file behind it may be changed by others;
        // the module documentation of `source` says what readers then see.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<u8>(), self.len) }
    }

    /// Whether an access touched a page of `range` that could not be read.
    pub fn damaged(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.registration.as_ref().is_some_and(|r| r.damaged(range))
    }

    /// Passes advice for the pages of a range.
    pub fn advise(&self, range: &Range<u64>, advice: libc::c_int) {
        let page = sigbus::page_size();
        let start = range.start as usize / page * page;
        let end = (range.end as usize).min(self.len);
        if start < end {
            // SAFETY: the range lies within this live mapping. WILLNEED has no effect on content; DONTNEED
            // drops private pages of a mapping that is never written, so they come back from the file (or,
            // where the handler put a zero page, as zeros).
            unsafe { libc::madvise(self.start.as_ptr().cast::<u8>().add(start).cast(), end - start, advice) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Out of the table first: the addresses may belong to someone else right after `munmap`.
        self.registration = None;
        // SAFETY: the mapping was made by `new` with this length and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr(), self.len) };
    }
}
