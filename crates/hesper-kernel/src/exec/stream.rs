//! Non-temporal copies, for outputs larger than the caches: a plain store reads the line it overwrites, which
//! costs a third of the bandwidth.

use hesper_types::Caches;

/// Objects of at least this many bytes are written with non-temporal stores. A kernel reads about as many
/// bytes as it writes.
pub(super) fn min_bytes() -> u64 {
    Caches::detect().non_temporal() as u64 / 2
}

/// Copies `n` bytes, and prefetches as many from each address of `ahead` (any addresses). Only [`finish`]
/// orders the copy before later stores of this thread.
///
/// # Safety
///
/// As for `std::ptr::copy_nonoverlapping`.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, n: usize, ahead: &[*const u8]) {
    use std::arch::x86_64::{__m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_stream_si128};
    let head = to.align_offset(64).min(n);
    let lines = (n - head) / 64;
    // SAFETY: head, whole lines and tail together are the `n` bytes; streamed addresses are
    // aligned to 16 bytes, which SSE2, part of the architecture, asks for.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        let (mut f, mut t) = (from.add(head), to.add(head));
        for k in 0..lines {
            for a in ahead {
                _mm_prefetch::<_MM_HINT_T0>(a.wrapping_add(k * 64).cast());
            }
            let line: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(f.cast::<__m128i>().add(i)));
            for (i, part) in line.into_iter().enumerate() {
                _mm_stream_si128(t.cast::<__m128i>().add(i), part);
            }
            f = f.add(64);
            t = t.add(64);
        }
        std::ptr::copy_nonoverlapping(f, t, n - head - lines * 64);
    }
}

/// Copies `n` bytes.
///
/// # Safety
///
/// As for `std::ptr::copy_nonoverlapping`.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, n: usize, _ahead: &[*const u8]) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, n) }
}

/// Orders all copies before later stores.
pub(super) fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the architecture.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}
