//! Memory that holds machine code: written first, then made executable and never written again.

use memmap2::{Mmap, MmapMut};

/// Executable code; dropping it frees its pages.
#[derive(Debug)]
pub(super) struct Executable(Mmap);

impl Executable {
    /// An executable copy of `code`; `None` if the system does not allow it.
    pub fn new(code: &[u8]) -> Option<Executable> {
        let mut pages = MmapMut::map_anon(code.len()).ok()?;
        pages.copy_from_slice(code);
        pages.make_exec().ok().map(Executable)
    }

    /// The address of a byte of the code.
    pub fn at(&self, offset: usize) -> *const u8 {
        self.0.as_ptr().wrapping_add(offset)
    }

    /// Bytes of memory, in whole pages.
    pub fn bytes(&self) -> usize {
        self.0.len().next_multiple_of(4096)
    }
}
