//! NEON: vectors of eight floats in two registers; without and with the dot product instruction for bytes.

use std::arch::aarch64::*;

use half::{bf16, f16};

use super::isa::{Isa, Local};
use super::{Kernel, plain};

/// The token of the NEON levels: every aarch64 processor has NEON, and `DOT` is set only where the dot
/// product instruction was detected.
#[derive(Clone, Copy)]
pub(crate) struct Neon<const DOT: bool>(());

pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Neon::<false>(()))
}

/// # Safety
/// The dot product instruction was detected.
#[target_feature(enable = "dotprod")]
pub(super) unsafe fn run_dot<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Neon::<true>(()))
}

#[inline(never)]
fn local<const DOT: bool, K: Local<Neon<DOT>>>(s: Neon<DOT>, part: K) {
    part.run(s);
}

/// # Safety
/// The dot product instruction was detected.
#[target_feature(enable = "dotprod")]
#[inline(never)]
unsafe fn local_dot<const DOT: bool, K: Local<Neon<DOT>>>(s: Neon<DOT>, part: K) {
    part.run(s);
}

/// [`Isa::dot_bytes`] on four words.
#[inline(always)]
fn dot4<const DOT: bool>(
    sums: float32x4_t,
    unsigned: float32x4_t,
    signed: float32x4_t,
    bits: usize,
) -> float32x4_t {
    // SAFETY: NEON is part of the target, and the token of `DOT` proves the dot product instruction.
    unsafe {
        let (w, x) = (vreinterpretq_u8_f32(unsigned), vreinterpretq_s8_f32(signed));
        let sums = vreinterpretq_s32_f32(sums);
        let dot = |mut sums: int32x4_t, w: int8x16_t| {
            if DOT {
                std::arch::asm!(
                    "sdot {sums:v}.4s, {w:v}.16b, {x:v}.16b",
                    sums = inout(vreg) sums, w = in(vreg) w, x = in(vreg) x,
                    options(pure, nomem, nostack, preserves_flags),
                );
                return sums;
            }
            let (low, high) = (vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x));
            vaddq_s32(sums, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))
        };
        if bits < 8 {
            return vreinterpretq_f32_s32(dot(sums, vreinterpretq_s8_u8(w)));
        }
        // Flipping the top bit makes the bytes signed and 128 less, so add 128 times the other operand.
        let less = dot(sums, vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(0x80))));
        let half = vdupq_n_s8(64);
        vreinterpretq_f32_s32(dot(dot(less, half), half))
    }
}

/// Eight floats.
#[derive(Clone, Copy)]
pub(crate) struct F(float32x4_t, float32x4_t);

/// Four doubles.
#[derive(Clone, Copy)]
pub(crate) struct D(float64x2_t, float64x2_t);

/// Eight comparison results.
#[derive(Clone, Copy)]
struct M(uint32x4_t, uint32x4_t);

/// Applies an operation to both registers.
macro_rules! both {
    ($v:ident, $f:ident($($a:ident),*)) => {
        // SAFETY: NEON is part of the target.
        unsafe { $v($f($($a.0),*), $f($($a.1),*)) }
    };
}

#[inline(always)]
fn from_array(a: [f32; 8]) -> F {
    // SAFETY: NEON is part of the target; the array has eight elements.
    unsafe { F(vld1q_f32(a.as_ptr()), vld1q_f32(a.as_ptr().add(4))) }
}

#[inline(always)]
fn to_array(v: F) -> [f32; 8] {
    let mut a = [0.0; 8];
    // SAFETY: NEON is part of the target; the array has eight elements.
    unsafe {
        vst1q_f32(a.as_mut_ptr(), v.0);
        vst1q_f32(a.as_mut_ptr().add(4), v.1);
    }
    a
}

#[inline(always)]
fn words(v: F) -> [u32; 8] {
    to_array(v).map(f32::to_bits)
}

/// The transpose of four rows of four.
#[inline(always)]
fn transpose4(r: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: NEON is part of the target.
    unsafe {
        let (a, b) = (vtrn1q_f32(r[0], r[1]), vtrn2q_f32(r[0], r[1]));
        let (c, d) = (vtrn1q_f32(r[2], r[3]), vtrn2q_f32(r[2], r[3]));
        let wide = |x| vreinterpretq_f64_f32(x);
        let narrow = |x| vreinterpretq_f32_f64(x);
        [
            narrow(vtrn1q_f64(wide(a), wide(c))),
            narrow(vtrn1q_f64(wide(b), wide(d))),
            narrow(vtrn2q_f64(wide(a), wide(c))),
            narrow(vtrn2q_f64(wide(b), wide(d))),
        ]
    }
}

impl<const DOT: bool> Isa for Neon<DOT> {
    const LANES: usize = 8;
    const MR: usize = 6;
    const NV: usize = 2;
    type F = F;
    type D = D;
    type Table = [f32; 16];

    #[inline(always)]
    fn call<K: Local<Self>>(self, part: K) {
        if DOT {
            // SAFETY: the token proves the instruction.
            unsafe { local_dot(self, part) }
        } else {
            local(self, part);
        }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> F {
        // SAFETY: NEON is part of the target.
        unsafe { F(vdupq_n_f32(x), vdupq_n_f32(x)) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: the caller's promise; loads by bytes need no alignment.
        unsafe {
            F(
                vreinterpretq_f32_u8(vld1q_u8(p.cast())),
                vreinterpretq_f32_u8(vld1q_u8(p.wrapping_add(4).cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_n(self, p: *const f32, n: usize) -> F {
        let mut a = [0.0f32; 8];
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(p.cast::<u8>(), a.as_mut_ptr().cast(), 4 * n) };
        from_array(a)
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: F) {
        // SAFETY: the caller's promise; stores by bytes need no alignment.
        unsafe {
            vst1q_u8(p.cast(), vreinterpretq_u8_f32(v.0));
            vst1q_u8(p.wrapping_add(4).cast(), vreinterpretq_u8_f32(v.1));
        }
    }
    #[inline(always)]
    unsafe fn store_n(self, p: *mut f32, v: F, n: usize) {
        let a = to_array(v);
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(a.as_ptr().cast::<u8>(), p.cast(), 4 * n) };
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        both!(F, vaddq_f32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        both!(F, vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        both!(F, vmulq_f32(a, b))
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        both!(F, vdivq_f32(a, b))
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        both!(F, vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        let m = both!(M, vcltq_f32(a, b));
        both!(F, vbslq_f32(m, a, b))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        let m = both!(M, vcltq_f32(b, a));
        both!(F, vbslq_f32(m, a, b))
    }
    #[inline(always)]
    fn pick_greater(self, a: F, b: F, x: F, y: F) -> F {
        let m = both!(M, vcltq_f32(b, a));
        both!(F, vbslq_f32(m, x, y))
    }
    #[inline(always)]
    fn round(self, a: F) -> F {
        both!(F, vrndnq_f32(a))
    }
    #[inline(always)]
    fn scale2(self, a: F, n: F) -> F {
        // SAFETY: NEON is part of the target.
        unsafe {
            let half = |n: float32x4_t| {
                let n = vcvtq_s32_f32(n);
                let h = vshrq_n_s32::<1>(n);
                (h, vsubq_s32(n, h))
            };
            let power = |e| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(e, vdupq_n_s32(127))));
            let ((h0, l0), (h1, l1)) = (half(n.0), half(n.1));
            F(
                vmulq_f32(vmulq_f32(a.0, power(h0)), power(l0)),
                vmulq_f32(vmulq_f32(a.1, power(h1)), power(l1)),
            )
        }
    }
    #[inline(always)]
    fn reduce_add(self, a: F) -> f32 {
        let v = to_array(a);
        ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
    }
    #[inline(always)]
    fn reduce_max(self, a: F) -> f32 {
        to_array(a).into_iter().fold(f32::NEG_INFINITY, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> F {
        // SAFETY: the caller's promise.
        unsafe {
            let v = vld1q_u16(p);
            F(
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(v))),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_high_u16(v))),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> F {
        // SAFETY: the caller's promise.
        from_array(unsafe { p.cast::<[u16; 8]>().read_unaligned() }.map(|x| f16::from_bits(x).to_f32()))
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; 8]>().write_unaligned(to_array(v).map(|x| bf16::from_f32(x).to_bits())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; 8]>().write_unaligned(to_array(v).map(|x| f16::from_f32(x).to_bits())) }
    }
    #[inline(always)]
    unsafe fn load_bf16_n(self, p: *const u16, n: usize) -> F {
        let mut a = [0u16; 8];
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(p, a.as_mut_ptr(), n);
            self.load_bf16(a.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn load_f16_n(self, p: *const u16, n: usize) -> F {
        let mut a = [0u16; 8];
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(p, a.as_mut_ptr(), n);
            self.load_f16(a.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_n(self, p: *mut u16, v: F, n: usize) {
        let a = to_array(v).map(|x| bf16::from_f32(x).to_bits());
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(a.as_ptr(), p, n) };
    }
    #[inline(always)]
    unsafe fn store_f16_n(self, p: *mut u16, v: F, n: usize) {
        let a = to_array(v).map(|x| f16::from_f32(x).to_bits());
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(a.as_ptr(), p, n) };
    }
    #[inline(always)]
    fn dot_bf16(self, a: F, b: F, c: F) -> F {
        // SAFETY: NEON is part of the target.
        unsafe {
            let top = vdupq_n_u32(0xffff_0000);
            let one = |a: float32x4_t, b: float32x4_t, c: float32x4_t| {
                let (a, b) = (vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b));
                let low = |x| vreinterpretq_f32_u32(vshlq_n_u32::<16>(x));
                let high = |x| vreinterpretq_f32_u32(vandq_u32(x, top));
                vfmaq_f32(vfmaq_f32(c, low(a), low(b)), high(a), high(b))
            };
            F(one(a.0, b.0, c.0), one(a.1, b.1, c.1))
        }
    }
    #[inline(always)]
    unsafe fn join_bf16(self, low: *const u16, high: *const u16) -> F {
        // SAFETY: the caller's promise: eight elements of both.
        unsafe {
            let (l, h) = (vld1q_u16(low), vld1q_u16(high));
            F(vreinterpretq_f32_u16(vzip1q_u16(l, h)), vreinterpretq_f32_u16(vzip2q_u16(l, h)))
        }
    }
    #[inline(always)]
    unsafe fn transpose(self, rows: &[F; 16], dst: *mut f32, stride: usize) {
        let r = rows;
        let blocks = [
            [transpose4([r[0].0, r[1].0, r[2].0, r[3].0]), transpose4([r[4].0, r[5].0, r[6].0, r[7].0])],
            [transpose4([r[0].1, r[1].1, r[2].1, r[3].1]), transpose4([r[4].1, r[5].1, r[6].1, r[7].1])],
        ];
        for (half, [left, right]) in blocks.into_iter().enumerate() {
            for i in 0..4 {
                // SAFETY: the caller's promise.
                unsafe { self.store(dst.add((4 * half + i) * stride), F(left[i], right[i])) };
            }
        }
    }
    #[inline(always)]
    fn unzip(self, a: F, b: F) -> (F, F) {
        // SAFETY: NEON is part of the target.
        unsafe {
            (F(vuzp1q_f32(a.0, a.1), vuzp1q_f32(b.0, b.1)), F(vuzp2q_f32(a.0, a.1), vuzp2q_f32(b.0, b.1)))
        }
    }
    #[inline(always)]
    fn unzip_quarters(self, a: F, b: F) -> (F, F) {
        (both!(F, vuzp1q_f32(a, b)), both!(F, vuzp2q_f32(a, b)))
    }
    #[inline(always)]
    fn split_quarters(self, a: F, b: F) -> (F, F) {
        (F(a.0, b.0), F(a.1, b.1))
    }
    #[inline(always)]
    fn zip(self, e: F, o: F) -> (F, F) {
        // SAFETY: NEON is part of the target.
        unsafe {
            (F(vzip1q_f32(e.0, o.0), vzip2q_f32(e.0, o.0)), F(vzip1q_f32(e.1, o.1), vzip2q_f32(e.1, o.1)))
        }
    }
    #[inline(always)]
    fn reverse(self, a: F) -> F {
        // SAFETY: NEON is part of the target.
        unsafe {
            let (low, high) = (vrev64q_f32(a.0), vrev64q_f32(a.1));
            F(vextq_f32::<2>(high, high), vextq_f32::<2>(low, low))
        }
    }
    #[inline(always)]
    fn move_up<const D: usize>(self, a: F) -> F {
        // SAFETY: NEON is part of the target.
        unsafe {
            let zero = vdupq_n_f32(0.0);
            match D {
                1 => F(vextq_f32::<3>(zero, a.0), vextq_f32::<3>(a.0, a.1)),
                2 => F(vextq_f32::<2>(zero, a.0), vextq_f32::<2>(a.0, a.1)),
                _ => F(zero, a.0),
            }
        }
    }
    #[inline(always)]
    fn last(self, a: F) -> F {
        // SAFETY: NEON is part of the target.
        unsafe { F(vdupq_laneq_f32::<3>(a.1), vdupq_laneq_f32::<3>(a.1)) }
    }
    #[inline(always)]
    unsafe fn codes<const BITS: usize>(self, p: *const u8) -> F {
        // SAFETY: eight codes are `BITS` bytes, which the caller promises.
        from_array(std::array::from_fn(|i| unsafe { plain::code::<BITS>(p, i) } as f32))
    }
    #[inline(always)]
    fn field(self, v: F, mask: u32) -> F {
        // SAFETY: NEON is part of the target.
        unsafe {
            let m = vdupq_n_u32(mask);
            F(
                vcvtq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v.0), m)),
                vcvtq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v.1), m)),
            )
        }
    }
    #[inline(always)]
    fn table(self, t: &[f32; 16]) -> [f32; 16] {
        *t
    }
    #[inline(always)]
    fn lookup(self, t: [f32; 16], v: F, shift: u32) -> F {
        from_array(words(v).map(|w| t[(w >> shift) as usize & 15]))
    }
    #[inline(always)]
    unsafe fn nibbles(self, p: *const u8, scale: F, offset: F) -> (F, F) {
        // SAFETY: the caller's promise.
        let b = unsafe { p.cast::<[u8; 8]>().read_unaligned() };
        let (low, high) = (b.map(|b| f32::from(b & 15)), b.map(|b| f32::from(b >> 4)));
        (self.fma(from_array(low), scale, offset), self.fma(from_array(high), scale, offset))
    }
    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32, v: F) {
        // SAFETY: the caller's promise.
        unsafe { self.store(p, v) }
    }
    #[inline(always)]
    fn fence(self) {}
    #[inline(always)]
    unsafe fn bytes(self, p: *const u8) -> F {
        // SAFETY: the caller's promise; NEON is part of the target.
        unsafe {
            let halves = vmovl_u8(vld1_u8(p));
            let (low, high) = (vmovl_u16(vget_low_u16(halves)), vmovl_high_u16(halves));
            F(vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high))
        }
    }
    #[inline(always)]
    unsafe fn signed(self, p: *const u8) -> F {
        // SAFETY: the caller's promise.
        from_array(unsafe { p.cast::<[i8; 8]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn repeat(self, p: *const f32, n: usize) -> F {
        // SAFETY: the caller's promise.
        from_array(std::array::from_fn(|i| unsafe { *p.add(i / n) }))
    }
    #[inline(always)]
    unsafe fn words(self, rows: &[*const u8; 16], at: usize) -> [F; 4] {
        // SAFETY: the caller's promise.
        let four = |r: usize| unsafe {
            transpose4([0, 1, 2, 3].map(|i| vreinterpretq_f32_u8(vld1q_u8(rows[r + i].add(at)))))
        };
        let (low, high) = (four(0), four(4));
        std::array::from_fn(|q| F(low[q], high[q]))
    }
    #[inline(always)]
    fn bits(self, words: F, shift: i32, mask: u32) -> F {
        // SAFETY: NEON is part of the target.
        let one = |v| unsafe {
            let v = vshlq_u32(vreinterpretq_u32_f32(v), vdupq_n_s32(-shift));
            vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(mask)))
        };
        F(one(words.0), one(words.1))
    }
    #[inline(always)]
    fn or(self, a: F, b: F) -> F {
        // SAFETY: NEON is part of the target.
        let one = |a, b| unsafe {
            vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)))
        };
        F(one(a.0, b.0), one(a.1, b.1))
    }
    #[inline(always)]
    fn flip(self, a: F, mask: u32) -> F {
        // SAFETY: NEON is part of the target.
        let one =
            |a| unsafe { vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(mask))) };
        F(one(a.0), one(a.1))
    }
    #[inline(always)]
    unsafe fn splat_bytes(self, p: *const i8) -> F {
        // SAFETY: the caller's promise.
        self.splat_int(unsafe { p.cast::<i32>().read_unaligned() })
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> F {
        // SAFETY: NEON is part of the target.
        let v = unsafe { vreinterpretq_f32_s32(vdupq_n_s32(x)) };
        F(v, v)
    }
    #[inline(always)]
    fn dot_bytes(self, sums: F, unsigned: F, signed: F, bits: usize) -> F {
        F(dot4::<DOT>(sums.0, unsigned.0, signed.0, bits), dot4::<DOT>(sums.1, unsigned.1, signed.1, bits))
    }
    #[inline(always)]
    fn add_int(self, a: F, b: F) -> F {
        // SAFETY: NEON is part of the target.
        let one = |a, b| unsafe {
            vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b)))
        };
        F(one(a.0, b.0), one(a.1, b.1))
    }
    #[inline(always)]
    fn int_to_float(self, a: F) -> F {
        // SAFETY: NEON is part of the target.
        let one = |a| unsafe { vcvtq_f32_s32(vreinterpretq_s32_f32(a)) };
        F(one(a.0), one(a.1))
    }
    #[inline(always)]
    fn pair_bf16(self, low: F, high: F) -> F {
        let (l, h) = (to_array(low), to_array(high));
        let bits = |x| u32::from(bf16::from_f32(x).to_bits());
        from_array(std::array::from_fn(|i| f32::from_bits(bits(l[i]) | (bits(h[i]) << 16))))
    }
    #[inline(always)]
    fn d_splat(self, x: f64) -> D {
        // SAFETY: NEON is part of the target.
        unsafe { D(vdupq_n_f64(x), vdupq_n_f64(x)) }
    }
    #[inline(always)]
    unsafe fn d_load(self, p: *const f64) -> D {
        // SAFETY: the caller's promise.
        unsafe { D(vld1q_f64(p), vld1q_f64(p.add(2))) }
    }
    #[inline(always)]
    unsafe fn d_load_n(self, p: *const f64, n: usize) -> D {
        let mut a = [0.0f64; 4];
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(p, a.as_mut_ptr(), n);
            self.d_load(a.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn d_store(self, p: *mut f64, v: D) {
        // SAFETY: the caller's promise.
        unsafe {
            vst1q_f64(p, v.0);
            vst1q_f64(p.add(2), v.1);
        }
    }
    #[inline(always)]
    unsafe fn d_store_n(self, p: *mut f64, v: D, n: usize) {
        let mut a = [0.0f64; 4];
        // SAFETY: the caller's promise.
        unsafe {
            self.d_store(a.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(a.as_ptr(), p, n);
        }
    }
    #[inline(always)]
    fn d_add(self, a: D, b: D) -> D {
        both!(D, vaddq_f64(a, b))
    }
    #[inline(always)]
    fn d_fma(self, a: D, b: D, c: D) -> D {
        both!(D, vfmaq_f64(c, a, b))
    }
    #[inline(always)]
    fn d_reduce_add(self, a: D) -> f64 {
        // SAFETY: NEON is part of the target.
        unsafe { vaddvq_f64(vaddq_f64(a.0, a.1)) }
    }
}
