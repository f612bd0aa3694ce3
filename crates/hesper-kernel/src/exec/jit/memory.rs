//! Memory that holds machine code: written first, then made executable and never written again.

#[cfg(all(target_arch = "aarch64", target_os = "macos"))]
#[path = "memory/apple.rs"]
mod pages;
#[cfg(not(all(target_arch = "aarch64", target_os = "macos")))]
#[path = "memory/mapped.rs"]
mod pages;

use self::pages::Pages;

/// Executable code; dropping it frees its pages.
#[derive(Debug)]
pub(super) struct Executable(Pages);

impl Executable {
    /// An executable copy of `code`; `None` if the system does not allow it.
    pub fn new(code: &[u8]) -> Option<Executable> {
        Pages::new(code).map(Executable)
    }

    /// Makes this thread fetch instructions anew. A thread does so before it runs code, which another thread
    /// may have made.
    pub fn synchronize(&self) {
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a barrier.
        unsafe {
            std::arch::asm!("isb", options(nostack, preserves_flags))
        };
    }

    /// The address of a byte of the code.
    pub fn at(&self, offset: usize) -> *const u8 {
        self.0.start().wrapping_add(offset)
    }

    /// Bytes of memory, in whole pages.
    pub fn bytes(&self) -> usize {
        self.0.len().next_multiple_of(4096)
    }
}
