//! Pages that are writable first and executable afterwards.

use memmap2::{Mmap, MmapMut};

#[derive(Debug)]
pub(super) struct Pages(Mmap);

impl Pages {
    pub fn new(code: &[u8]) -> Option<Pages> {
        let mut pages = MmapMut::map_anon(code.len()).ok()?;
        pages.copy_from_slice(code);
        let pages = pages.make_exec().ok()?;
        #[cfg(target_arch = "aarch64")]
        synchronize(&pages);
        Some(Pages(pages))
    }

    pub fn start(&self) -> *const u8 {
        self.0.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Makes instruction fetches see what was written: AArch64 keeps its instruction cache apart from the data
/// cache.
#[cfg(target_arch = "aarch64")]
fn synchronize(code: &[u8]) {
    use std::arch::asm;
    let range = code.as_ptr_range();
    let (start, end) = (range.start as usize, range.end as usize);
    let sizes: u64;
    // SAFETY: reads the register that tells the sizes of cache lines, which Linux allows to programs.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack, preserves_flags)) };
    // Words of the shortest line, as logarithms.
    let (instructions, data) = (4usize << (sizes & 15), 4usize << (sizes >> 16 & 15));
    for line in (start & !(data - 1)..end).step_by(data) {
        // SAFETY: writes a line of mapped memory back to where instructions are fetched from.
        unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for line in (start & !(instructions - 1)..end).step_by(instructions) {
        // SAFETY: drops a line of mapped memory from the instruction cache.
        unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}
