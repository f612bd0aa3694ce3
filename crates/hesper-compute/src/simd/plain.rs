//! The baseline level: arrays that the compiler vectorizes for the target.

use half::{bf16, f16};

use super::isa::{Isa, Local};

/// The token of the plain level.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

#[inline(always)]
fn map2(a: [f32; 8], b: [f32; 8], f: impl Fn(f32, f32) -> f32) -> [f32; 8] {
    let mut r = [0.0; 8];
    for i in 0..8 {
        r[i] = f(a[i], b[i]);
    }
    r
}

#[inline(always)]
fn halves(v: [f32; 8], f: impl Fn(f32, f32) -> f32) -> f32 {
    let a = [f(v[0], v[4]), f(v[1], v[5]), f(v[2], v[6]), f(v[3], v[7])];
    f(f(a[0], a[2]), f(a[1], a[3]))
}

/// Reads one code of `BITS` bits.
///
/// # Safety
/// The bytes holding the code are readable.
#[inline(always)]
pub(super) unsafe fn code<const BITS: usize>(p: *const u8, i: usize) -> u32 {
    let (byte, shift) = (i * BITS / 8, i * BITS % 8);
    // SAFETY: the caller's promise; the second byte is read only where the code reaches into it.
    unsafe {
        let mut w = u32::from(*p.add(byte));
        if shift + BITS > 8 {
            w |= u32::from(*p.add(byte + 1)) << 8;
        }
        (w >> shift) & ((1 << BITS) - 1)
    }
}

#[inline(never)]
fn local<K: Local<Plain>>(s: Plain, part: K) {
    part.run(s);
}

impl Isa for Plain {
    const LANES: usize = 8;
    const MR: usize = 4;
    const NV: usize = 2;
    type F = [f32; 8];
    type D = [f64; 4];

    #[inline(always)]
    fn call<K: Local<Self>>(self, part: K) {
        local(self, part);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_n(self, p: *const f32, n: usize) -> Self::F {
        let mut r = [0.0; 8];
        for (i, x) in r.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = unsafe { p.add(i).read_unaligned() };
        }
        r
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_n(self, p: *mut f32, v: Self::F, n: usize) {
        for (i, x) in v.into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { p.add(i).write_unaligned(x) };
        }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |x, y| x * y)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |x, y| x / y)
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer while |x| < 2^22.
        const BIG: f32 = 12_582_912.0;
        map2(a, a, |x, _| if x.abs() < 4_194_304.0 { (x + BIG) - BIG } else { x })
    }
    #[inline(always)]
    fn scale2(self, a: Self::F, n: Self::F) -> Self::F {
        map2(a, n, |x, n| {
            let n = n as i32;
            let (h, l) = (n >> 1, n - (n >> 1));
            let two = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
            x * two(h) * two(l)
        })
    }
    #[inline(always)]
    fn reduce_add(self, a: Self::F) -> f32 {
        halves(a, |x, y| x + y)
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::F) -> f32 {
        halves(a, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; 8]>().read_unaligned() }.map(|x| f32::from_bits(u32::from(x) << 16))
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; 8]>().read_unaligned() }.map(|x| f16::from_bits(x).to_f32())
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; 8]>().write_unaligned(v.map(|x| bf16::from_f32(x).to_bits())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; 8]>().write_unaligned(v.map(|x| f16::from_f32(x).to_bits())) }
    }
    #[inline(always)]
    unsafe fn load_bf16_n(self, p: *const u16, n: usize) -> Self::F {
        let mut r = [0.0; 8];
        for (i, x) in r.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = f32::from_bits(u32::from(unsafe { *p.add(i) }) << 16);
        }
        r
    }
    #[inline(always)]
    unsafe fn load_f16_n(self, p: *const u16, n: usize) -> Self::F {
        let mut r = [0.0; 8];
        for (i, x) in r.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = f16::from_bits(unsafe { *p.add(i) }).to_f32();
        }
        r
    }
    #[inline(always)]
    unsafe fn store_bf16_n(self, p: *mut u16, v: Self::F, n: usize) {
        for (i, x) in v.into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = bf16::from_f32(x).to_bits() };
        }
    }
    #[inline(always)]
    unsafe fn store_f16_n(self, p: *mut u16, v: Self::F, n: usize) {
        for (i, x) in v.into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = f16::from_f32(x).to_bits() };
        }
    }
    #[inline(always)]
    fn dot_bf16(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        let low = |x: f32| f32::from_bits(x.to_bits() << 16);
        let high = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
        let mut r = c;
        for i in 0..8 {
            r[i] += low(a[i]) * low(b[i]);
            r[i] += high(a[i]) * high(b[i]);
        }
        r
    }
    #[inline(always)]
    unsafe fn join_bf16(self, low: *const u16, high: *const u16) -> Self::F {
        // SAFETY: the caller's promise.
        let at =
            |i: usize| unsafe { f32::from_bits(u32::from(*low.add(i)) | (u32::from(*high.add(i)) << 16)) };
        std::array::from_fn(at)
    }
    #[inline(always)]
    unsafe fn transpose(self, rows: &[Self::F; 16], dst: *mut f32, stride: usize) {
        for j in 0..8 {
            for (i, row) in rows.iter().enumerate().take(8) {
                // SAFETY: the caller's promise.
                unsafe { *dst.add(j * stride + i) = row[j] };
            }
        }
    }
    #[inline(always)]
    fn unzip(self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        ([a[0], a[2], a[4], a[6], b[0], b[2], b[4], b[6]], [a[1], a[3], a[5], a[7], b[1], b[3], b[5], b[7]])
    }
    #[inline(always)]
    fn zip(self, e: Self::F, o: Self::F) -> (Self::F, Self::F) {
        ([e[0], o[0], e[1], o[1], e[2], o[2], e[3], o[3]], [e[4], o[4], e[5], o[5], e[6], o[6], e[7], o[7]])
    }
    #[inline(always)]
    fn reverse(self, a: Self::F) -> Self::F {
        [a[7], a[6], a[5], a[4], a[3], a[2], a[1], a[0]]
    }
    #[inline(always)]
    fn move_up<const D: usize>(self, a: Self::F) -> Self::F {
        let mut r = [0.0; 8];
        r[D..].copy_from_slice(&a[..8 - D]);
        r
    }
    #[inline(always)]
    fn last(self, a: Self::F) -> Self::F {
        [a[7]; 8]
    }
    #[inline(always)]
    unsafe fn codes<const BITS: usize>(self, p: *const u8) -> Self::F {
        let mut r = [0.0; 8];
        for (i, x) in r.iter_mut().enumerate() {
            // SAFETY: eight codes are `BITS` bytes, which the caller promises.
            *x = unsafe { code::<BITS>(p, i) } as f32;
        }
        r
    }
    #[inline(always)]
    fn field(self, words: Self::F, mask: u32) -> Self::F {
        words.map(|w| (w.to_bits() & mask) as f32)
    }
    type Table = [f32; 16];
    #[inline(always)]
    fn table(self, t: &[f32; 16]) -> [f32; 16] {
        *t
    }
    #[inline(always)]
    fn lookup(self, t: [f32; 16], words: Self::F, shift: u32) -> Self::F {
        words.map(|w| t[(w.to_bits() >> shift) as usize & 15])
    }
    #[inline(always)]
    unsafe fn nibbles(self, p: *const u8, scale: Self::F, offset: Self::F) -> (Self::F, Self::F) {
        // SAFETY: the caller's promise.
        let b = unsafe { p.cast::<[u8; 8]>().read_unaligned() };
        let (low, high) = (b.map(|b| f32::from(b & 15)), b.map(|b| f32::from(b >> 4)));
        (self.fma(low, scale, offset), self.fma(high, scale, offset))
    }
    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32, v: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { self.store(p, v) }
    }
    #[inline(always)]
    fn fence(self) {}
    #[inline(always)]
    unsafe fn bytes(self, p: *const u8) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u8; 8]>().read_unaligned() }.map(|byte| f32::from_bits(u32::from(byte)))
    }
    #[inline(always)]
    unsafe fn signed(self, p: *const u8) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[i8; 8]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn repeat(self, p: *const f32, n: usize) -> Self::F {
        // SAFETY: the caller's promise.
        std::array::from_fn(|i| unsafe { *p.add(i / n) })
    }
    #[inline(always)]
    unsafe fn words(self, rows: &[*const u8; 16]) -> [Self::F; 4] {
        std::array::from_fn(|q| {
            // SAFETY: the caller's promise.
            std::array::from_fn(|i| unsafe { rows[i].cast::<f32>().add(q).read_unaligned() })
        })
    }
    #[inline(always)]
    fn bits(self, words: Self::F, shift: i32, mask: u32) -> Self::F {
        words.map(|v| {
            let v = if shift < 0 { v.to_bits() << -shift } else { v.to_bits() >> shift };
            f32::from_bits(v & mask)
        })
    }
    #[inline(always)]
    fn or(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| f32::from_bits(a.to_bits() | b.to_bits()))
    }
    #[inline(always)]
    fn flip(self, a: Self::F, mask: u32) -> Self::F {
        a.map(|v| f32::from_bits(v.to_bits() ^ mask))
    }
    #[inline(always)]
    unsafe fn splat_bytes(self, p: *const i8) -> Self::F {
        // SAFETY: the caller's promise.
        [unsafe { p.cast::<f32>().read_unaligned() }; 8]
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::F {
        [f32::from_bits(x as u32); 8]
    }
    #[inline(always)]
    fn dot_bytes(self, sums: Self::F, unsigned: Self::F, signed: Self::F, _: usize) -> Self::F {
        let mut r = sums;
        for i in 0..8 {
            let (w, x) = (unsigned[i].to_bits().to_le_bytes(), signed[i].to_bits().to_le_bytes());
            let dot: i32 = (0..4).map(|e| i32::from(w[e]) * i32::from(x[e] as i8)).sum();
            r[i] = f32::from_bits((r[i].to_bits() as i32 + dot) as u32);
        }
        r
    }
    #[inline(always)]
    fn add_int(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| f32::from_bits(a.to_bits().wrapping_add(b.to_bits())))
    }
    #[inline(always)]
    fn int_to_float(self, a: Self::F) -> Self::F {
        a.map(|v| v.to_bits() as i32 as f32)
    }
    #[inline(always)]
    fn pair_bf16(self, low: Self::F, high: Self::F) -> Self::F {
        let bits = |x| u32::from(bf16::from_f32(x).to_bits());
        map2(low, high, |l, h| f32::from_bits(bits(l) | (bits(h) << 16)))
    }
    #[inline(always)]
    fn d_splat(self, x: f64) -> Self::D {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn d_load(self, p: *const f64) -> Self::D {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f64; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn d_load_n(self, p: *const f64, n: usize) -> Self::D {
        let mut r = [0.0; 4];
        for (i, x) in r.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = unsafe { p.add(i).read_unaligned() };
        }
        r
    }
    #[inline(always)]
    unsafe fn d_store(self, p: *mut f64, v: Self::D) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f64; 4]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn d_store_n(self, p: *mut f64, v: Self::D, n: usize) {
        for (i, x) in v.into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { p.add(i).write_unaligned(x) };
        }
    }
    #[inline(always)]
    fn d_add(self, a: Self::D, b: Self::D) -> Self::D {
        [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]
    }
    #[inline(always)]
    fn d_fma(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn d_reduce_add(self, a: Self::D) -> f64 {
        (a[0] + a[2]) + (a[1] + a[3])
    }
}
