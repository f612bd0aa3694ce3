//! Packing: copies lines of a strided matrix so that the elements of one step along K are contiguous.
//!
//! A panel of `width` lines becomes `k` rows of `width` elements; lines beyond `valid` are zero. The fast
//! paths write whole vectors, so up to one vector past the end of a panel may be overwritten: callers pack
//! panels in ascending order and leave room after the last.

use crate::simd::{Float, Isa};

/// Prefetch distance in steps along K, where neighbouring steps are not adjacent.
const PREFETCH_STEPS: isize = 16;

/// Element by element, for any strides.
///
/// # Safety
/// The source elements are readable and `k * width` elements of `dst` writable.
#[inline(always)]
pub(super) unsafe fn scalars<I: Copy, O: Copy + Default>(
    src: *const I,
    ws: isize,
    ks: isize,
    valid: usize,
    width: usize,
    k: usize,
    dst: *mut O,
    convert: impl Fn(I) -> O,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if ws == 1 && valid == width {
            for kk in 0..k {
                let row = src.offset(kk as isize * ks);
                for w in 0..width {
                    *dst.add(kk * width + w) = convert(*row.add(w));
                }
            }
            return;
        }
        for w in 0..width {
            let line = src.wrapping_offset(w as isize * ws);
            for kk in 0..k {
                let x = if w < valid { convert(*line.offset(kk as isize * ks)) } else { O::default() };
                *dst.add(kk * width + w) = x;
            }
        }
    }
}

/// Floats of any width to `f32`.
///
/// # Safety
/// The source elements are readable, and `k * width` floats and 64 bytes more of `dst` writable.
#[inline(always)]
pub(super) unsafe fn floats<S: Isa, T: Float>(
    s: S,
    src: *const T,
    ws: isize,
    ks: isize,
    valid: usize,
    width: usize,
    k: usize,
    dst: *mut f32,
) {
    // SAFETY: the caller's promise; transposed rows are read only where `valid` and `k` allow.
    unsafe {
        if ws == 1 && width == 8 && S::LANES == 16 {
            eight_columns(s, src, ks, valid, k, dst);
        } else if ws == 1 {
            for kk in 0..k {
                let row = src.offset(kk as isize * ks);
                let mut w = 0;
                while w < width {
                    s.prefetch_far(row.wrapping_offset(PREFETCH_STEPS * ks).wrapping_add(w).cast());
                    let n = valid.saturating_sub(w).min(S::LANES);
                    let v = if n == S::LANES { T::load(s, row.add(w)) } else { T::load_n(s, row.add(w), n) };
                    s.store(dst.add(kk * width + w), v);
                    w += S::LANES;
                }
            }
        } else if ks == 1 {
            transposed(s, src, ws, valid, width, k, dst);
        } else {
            scalars(src, ws, ks, valid, width, k, dst, T::to_f32);
        }
    }
}

/// Steps of eight neighbouring lines, half as many as a vector has lanes.
///
/// # Safety
/// As for [`floats`], with a width of eight.
#[inline(always)]
unsafe fn eight_columns<S: Isa, T: Float>(
    s: S,
    src: *const T,
    ks: isize,
    valid: usize,
    k: usize,
    dst: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for kk in 0..k {
            let (row, to) = (src.offset(kk as isize * ks), dst.add(kk * 8));
            s.prefetch_far(row.wrapping_offset(PREFETCH_STEPS * ks).cast());
            if valid == 8 && size_of::<T>() == size_of::<f32>() {
                // Half a vector: a whole one would cross a cache line at every other step.
                std::ptr::copy_nonoverlapping(row.cast::<f32>(), to, 8);
            } else {
                s.store_n(to, T::load_n(s, row, valid), 8);
            }
        }
    }
}

/// Lines that are contiguous along K, transposed in registers.
///
/// # Safety
/// As for [`floats`].
#[inline(always)]
unsafe fn transposed<S: Isa, T: Float>(
    s: S,
    src: *const T,
    ws: isize,
    valid: usize,
    width: usize,
    k: usize,
    dst: *mut f32,
) {
    if width == 8 && S::LANES == 16 {
        let mut lines = [src; 16];
        for i in 0..valid {
            lines[i] = src.wrapping_offset(i as isize * ws);
        }
        // SAFETY: the caller's promise.
        return unsafe { pack_eight_lines(s, &lines, valid, 8 * ws, k, dst) };
    }
    // SAFETY: the caller's promise; partial blocks use loads of only the remaining elements.
    unsafe {
        let mut w = 0;
        while w < width {
            let lines = valid.saturating_sub(w).min(S::LANES);
            let mut kk = 0;
            while kk + S::LANES <= k {
                let mut rows = [s.zero(); 16];
                for (i, row) in rows.iter_mut().enumerate().take(S::LANES) {
                    if i < lines {
                        let from = src.offset((w + i) as isize * ws).add(kk);
                        *row = T::load(s, from);
                        s.prefetch_far(from.wrapping_offset(S::LANES as isize * ws).cast());
                    }
                }
                s.transpose(&rows, dst.add(kk * width + w), width);
                kk += S::LANES;
            }
            if kk < k {
                let mut rows = [s.zero(); 16];
                for (i, row) in rows.iter_mut().enumerate().take(lines) {
                    *row = T::load_n(s, src.offset((w + i) as isize * ws).add(kk), k - kk);
                }
                let mut transposed = [0.0f32; 256];
                s.transpose(&rows, transposed.as_mut_ptr(), S::LANES);
                let n = (width - w).min(S::LANES);
                for i in 0..k - kk {
                    std::ptr::copy_nonoverlapping(
                        transposed.as_ptr().add(i * S::LANES),
                        dst.add((kk + i) * width + w),
                        n,
                    );
                }
            }
            w += S::LANES;
        }
    }
}

/// Lines at arbitrary addresses, each contiguous along K, transposed in registers; a panel is at most one
/// vector wide.
///
/// # Safety
/// `k` elements of each of the first `valid` lines are readable, `width <= S::LANES`, and `k * width` floats
/// and 64 bytes more of `dst` are writable.
#[inline(always)]
pub(crate) unsafe fn scattered<S: Isa, T: Float>(
    s: S,
    lines: &[*const T; 16],
    valid: usize,
    width: usize,
    k: usize,
    dst: *mut f32,
) {
    if width == 8 && S::LANES == 16 {
        // SAFETY: the caller's promise.
        return unsafe { pack_eight_lines(s, lines, valid, 0, k, dst) };
    }
    // SAFETY: the caller's promise; the last block uses loads of only the remaining elements.
    unsafe {
        let mut kk = 0;
        while kk + S::LANES <= k {
            let mut rows = [s.zero(); 16];
            for i in 0..valid {
                rows[i] = T::load(s, lines[i].add(kk));
            }
            s.transpose(&rows, dst.add(kk * width), width);
            kk += S::LANES;
        }
        if kk < k {
            let mut rows = [s.zero(); 16];
            for i in 0..valid {
                rows[i] = T::load_n(s, lines[i].add(kk), k - kk);
            }
            let mut transposed = [0.0f32; 256];
            s.transpose(&rows, transposed.as_mut_ptr(), S::LANES);
            for i in 0..k - kk {
                let to = dst.add((kk + i) * width);
                std::ptr::copy_nonoverlapping(transposed.as_ptr().add(i * S::LANES), to, width);
            }
        }
    }
}

/// A panel of eight lines, half as many as a vector has lanes. The next eight, `ahead` elements further, are
/// prefetched.
///
/// # Safety
/// `k` elements of each of the first `valid` lines are readable, and `8 * k` floats of `dst` writable.
#[inline(always)]
unsafe fn pack_eight_lines<S: Isa, T: Float>(
    s: S,
    lines: &[*const T; 16],
    valid: usize,
    ahead: isize,
    k: usize,
    dst: *mut f32,
) {
    // SAFETY: the caller's promise; the last block uses loads of only the remaining elements.
    unsafe {
        let mut kk = 0;
        while kk + S::LANES <= k {
            let mut rows = [s.zero(); 8];
            for i in 0..8 {
                if i < valid {
                    rows[i] = T::load(s, lines[i].add(kk));
                    s.prefetch_far(lines[i].wrapping_offset(kk as isize + ahead).cast());
                }
            }
            s.transpose8(&rows, dst.add(kk * 8));
            kk += S::LANES;
        }
        if kk < k {
            let mut rows = [s.zero(); 8];
            for i in 0..8 {
                if i < valid {
                    rows[i] = T::load_n(s, lines[i].add(kk), k - kk);
                }
            }
            let mut transposed = [0.0f32; 128];
            s.transpose8(&rows, transposed.as_mut_ptr());
            std::ptr::copy_nonoverlapping(transposed.as_ptr(), dst.add(kk * 8), (k - kk) * 8);
        }
    }
}

/// Bfloat16 to pairs: steps `2 i` and `2 i + 1` share a 32-bit element, the last one padded with zero.
///
/// # Safety
/// The source elements are readable, and `k.div_ceil(2) * width` floats and 64 bytes more of `dst` writable.
#[inline(always)]
pub(super) unsafe fn pairs<S: Isa>(
    s: S,
    src: *const u16,
    ws: isize,
    ks: isize,
    valid: usize,
    width: usize,
    k: usize,
    dst: *mut f32,
) {
    let whole = k / 2;
    // SAFETY: the caller's promise; each path reads only elements below `valid` and `k`.
    unsafe {
        if ks == 1 {
            // A pair is contiguous: transposed like 32-bit floats, with lines half as long.
            pair_lines(s, src, ws, valid, width, whole, dst);
        } else {
            for p in 0..whole {
                let low = src.offset(2 * p as isize * ks);
                let high = low.offset(ks);
                let row = dst.add(p * width);
                let mut w = 0;
                while w < width {
                    let n = valid.saturating_sub(w);
                    if ws == 1 && n >= S::LANES {
                        s.store(row.add(w), s.join_bf16(low.add(w), high.add(w)));
                        w += S::LANES;
                        continue;
                    }
                    for i in w..width.min(w + S::LANES) {
                        let o = i as isize * ws;
                        let pair = if i < valid { join(*low.offset(o), *high.offset(o)) } else { 0 };
                        *row.add(i).cast::<u32>() = pair;
                    }
                    w += S::LANES;
                }
            }
        }
        if k % 2 == 1 {
            for w in 0..width {
                let last = src.wrapping_offset(w as isize * ws + (k as isize - 1) * ks);
                let x = if w < valid { *last } else { 0 };
                *dst.add(whole * width + w).cast::<u32>() = join(x, 0);
            }
        }
    }
}

#[inline(always)]
fn join(low: u16, high: u16) -> u32 {
    u32::from(low) | (u32::from(high) << 16)
}

/// # Safety
/// As for [`pairs`], with contiguous lines of `whole` pairs.
#[inline(always)]
unsafe fn pair_lines<S: Isa>(
    s: S,
    src: *const u16,
    ws: isize,
    valid: usize,
    width: usize,
    whole: usize,
    dst: *mut f32,
) {
    if width == 8 && S::LANES == 16 {
        let mut lines = [src.cast::<f32>(); 16];
        for i in 0..valid {
            lines[i] = src.wrapping_offset(i as isize * ws).cast();
        }
        // SAFETY: the caller's promise.
        return unsafe { pack_eight_lines(s, &lines, valid, 4 * ws, whole, dst) };
    }
    // SAFETY: the caller's promise.
    unsafe {
        let mut w = 0;
        while w < width {
            let lines = valid.saturating_sub(w).min(S::LANES);
            let n = (width - w).min(S::LANES);
            let mut p = 0;
            while p < whole {
                let have = (whole - p).min(S::LANES);
                let mut rows = [s.zero(); 16];
                for (i, row) in rows.iter_mut().enumerate().take(S::LANES) {
                    if i < lines {
                        let from = src.offset((w + i) as isize * ws).add(2 * p).cast::<f32>();
                        *row = if have == S::LANES { s.load(from) } else { s.load_n(from, have) };
                    }
                }
                if have == S::LANES {
                    s.transpose(&rows, dst.add(p * width + w), width);
                } else {
                    let mut transposed = [0.0f32; 256];
                    s.transpose(&rows, transposed.as_mut_ptr(), S::LANES);
                    for i in 0..have {
                        let to = dst.add((p + i) * width + w);
                        std::ptr::copy_nonoverlapping(transposed.as_ptr().add(i * S::LANES), to, n);
                    }
                }
                p += S::LANES;
            }
            w += S::LANES;
        }
    }
}
