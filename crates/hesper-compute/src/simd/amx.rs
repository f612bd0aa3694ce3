//! Intel's tile registers (AMX) for products of bytes: sixteen rows of activations with a panel of sixteen
//! rows of weights in one instruction.
//!
//! Linux saves these registers only for processes that have requested permission: the first use requests it.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Rows of activations of a tile, and lanes of a panel.
pub(crate) const TILE_ROWS: usize = 16;

/// Tiles that are configured on this thread, until dropped. Not `Send`: the configuration is per thread.
pub(crate) struct Tiles(PhantomData<*const ()>);

#[repr(C, align(64))]
struct Config {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

impl Tiles {
    /// Configures tiles for products over `unit` bytes, which is 16 or 32. `None` where the processor or the
    /// system has none.
    pub(crate) fn new(unit: usize) -> Option<Self> {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        if !*AVAILABLE.get_or_init(|| has_byte_tiles() && is_permitted()) {
            return None;
        }
        let mut config = Config { palette: 1, start: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
        (config.bytes[0], config.rows[0]) = (64, TILE_ROWS as u8);
        (config.bytes[1], config.rows[1]) = (unit as u16, TILE_ROWS as u8);
        (config.bytes[2], config.rows[2]) = (64, unit as u8 / 4);
        // SAFETY: the processor has tiles and the system saves them; the configuration is valid.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, preserves_flags)) };
        Some(Self(PhantomData))
    }

    /// The dot products of sixteen rows of signed bytes, `stride` bytes apart, with sixteen lanes of unsigned
    /// ones: `to[16 i + j]` is that of row `i` with lane `j`.
    ///
    /// # Safety
    /// The rows have a unit of bytes each, the panel sixteen times as many, and `to` has room for 256
    /// integers.
    #[inline(always)]
    pub(crate) unsafe fn dot(&self, rows: *const i8, stride: usize, panel: *const u8, to: *mut i32) {
        // SAFETY: tiles are configured on this thread; the caller promises the memory.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tileloadd tmm1, [{rows} + {stride} * 1]",
                "tileloadd tmm2, [{panel} + {row} * 1]",
                "tdpbsud tmm0, tmm1, tmm2",
                "tilestored [{to} + {row} * 1], tmm0",
                rows = in(reg) rows,
                stride = in(reg) stride,
                panel = in(reg) panel,
                row = in(reg) 64usize,
                to = in(reg) to,
                out("tmm0") _, out("tmm1") _, out("tmm2") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: tiles were configured on this thread; the token cannot leave it.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// Whether the processor multiplies tiles of bytes, and the system has enabled their state.
fn has_byte_tiles() -> bool {
    let (enabled, tiles) = (1 << 27, 1 << 24 | 1 << 25);
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & enabled == 0 || __cpuid_count(7, 0).edx & tiles != tiles {
        return false;
    }
    let low: u32;
    // SAFETY: the system has enabled `xgetbv`.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags))
    };
    low >> 17 & 3 == 3
}

/// Requests permission to use tiles from the system.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const REQUEST_PERMISSION: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call takes two integers and touches no memory.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}
