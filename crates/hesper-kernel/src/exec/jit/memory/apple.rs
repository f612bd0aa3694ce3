//! Pages of Apple's processors: mapped for a JIT, and for each thread either writable or executable.

use std::ffi::c_void;

unsafe extern "C" {
    fn sys_icache_invalidate(start: *mut c_void, len: usize);
}

#[derive(Debug)]
pub(super) struct Pages {
    start: *mut u8,
    len: usize,
}

// SAFETY: the pages are only read and executed once they are made.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub fn new(code: &[u8]) -> Option<Pages> {
        let len = code.len();
        let allowed = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_JIT;
        // SAFETY: a new mapping of anonymous memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, allowed, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let pages = Pages { start: start.cast(), len };
        // SAFETY: the mapping is new, has room for the code and is writable for this thread between the two
        // switches; other threads know no address in it yet.
        unsafe {
            libc::pthread_jit_write_protect_np(0);
            std::ptr::copy_nonoverlapping(code.as_ptr(), pages.start, len);
            libc::pthread_jit_write_protect_np(1);
            sys_icache_invalidate(start, len);
        }
        Some(pages)
    }

    pub fn start(&self) -> *const u8 {
        self.start
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and machine code ends before its program.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}
