//! The baseline level: vectors of two registers of the target ([`quad`]).
//!
//! Ops without an instruction of the baseline go through arrays, out of line: inlined, they would dominate
//! the code.

use half::{bf16, f16};

use super::Kernel;
use super::isa::{Isa, Local};
use super::quad;

/// The token of the plain level.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

/// Eight floats.
type F = [quad::F; 2];
/// Four doubles.
type D = [quad::D; 2];

#[inline(always)]
fn array(v: F) -> [f32; 8] {
    // SAFETY: both are eight floats, in order.
    unsafe { std::mem::transmute(v) }
}

#[inline(always)]
fn vector(a: [f32; 8]) -> F {
    // SAFETY: both are eight floats, in order.
    unsafe { std::mem::transmute(a) }
}

#[inline(always)]
fn doubles(v: D) -> [f64; 4] {
    // SAFETY: both are four doubles, in order.
    unsafe { std::mem::transmute(v) }
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

/// Out of line: callers with several kernels would inline all of them.
#[inline(never)]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Plain)
}

#[inline(never)]
fn local<K: Local<Plain>>(s: Plain, part: K) {
    part.run(s);
}

/// Defines ops that apply a function of [`quad`] to both registers.
macro_rules! by_register {
    ($($name:ident($($a:ident: $t:ty),*) -> $f:ident($($x:ident),*) $(, $setting:ident: $s:ty)*;)*) => {$(
        #[inline(always)]
        fn $name(self, $($a: $t,)* $($setting: $s),*) -> F {
            [quad::$f($($x[0],)* $($setting),*), quad::$f($($x[1],)* $($setting),*)]
        }
    )*};
}

impl Isa for Plain {
    const LANES: usize = 8;
    const MR: usize = 4;
    const NV: usize = 2;
    type F = F;
    type D = D;

    #[inline(always)]
    fn call<K: Local<Self>>(self, part: K) {
        local(self, part);
    }

    by_register! {
        add(a: F, b: F) -> add(a, b);
        sub(a: F, b: F) -> sub(a, b);
        mul(a: F, b: F) -> mul(a, b);
        div(a: F, b: F) -> div(a, b);
        min(a: F, b: F) -> min(a, b);
        max(a: F, b: F) -> max(a, b);
        pick_greater(a: F, b: F, x: F, y: F) -> pick_greater(a, b, x, y);
        round(a: F) -> round(a);
        scale2(a: F, n: F) -> scale2(a, n);
        or(a: F, b: F) -> or(a, b);
        flip(a: F) -> flip(a), mask: u32;
        bits(words: F) -> bits(words), shift: i32, mask: u32;
        add_int(a: F, b: F) -> add_int(a, b);
        int_to_float(a: F) -> int_to_float(a);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [quad::splat(x); 2]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<F>().read_unaligned() }
    }
    #[inline(never)]
    unsafe fn load_n(self, p: *const f32, n: usize) -> F {
        let mut r = [0.0; 8];
        for (i, x) in r.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = unsafe { p.add(i).read_unaligned() };
        }
        vector(r)
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<F>().write_unaligned(v) }
    }
    #[inline(never)]
    unsafe fn store_n(self, p: *mut f32, v: F, n: usize) {
        for (i, x) in array(v).into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { p.add(i).write_unaligned(x) };
        }
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn reduce_add(self, a: F) -> f32 {
        let q = array([quad::add(a[0], a[1]); 2]);
        (q[0] + q[2]) + (q[1] + q[3])
    }
    #[inline(always)]
    fn reduce_max(self, a: F) -> f32 {
        let q = array([quad::max(a[0], a[1]); 2]);
        let max = |x: f32, y: f32| if x > y { x } else { y };
        max(max(q[0], q[2]), max(q[1], q[3]))
    }
    #[inline(never)]
    unsafe fn load_bf16(self, p: *const u16) -> F {
        // SAFETY: the caller's promise.
        vector(unsafe { p.cast::<[u16; 8]>().read_unaligned() }.map(|x| f32::from_bits(u32::from(x) << 16)))
    }
    #[inline(never)]
    unsafe fn load_f16(self, p: *const u16) -> F {
        // SAFETY: the caller's promise.
        vector(unsafe { p.cast::<[u16; 8]>().read_unaligned() }.map(|x| f16::from_bits(x).to_f32()))
    }
    #[inline(never)]
    unsafe fn store_bf16(self, p: *mut u16, v: F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; 8]>().write_unaligned(array(v).map(|x| bf16::from_f32(x).to_bits())) }
    }
    #[inline(never)]
    unsafe fn store_f16(self, p: *mut u16, v: F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; 8]>().write_unaligned(array(v).map(|x| f16::from_f32(x).to_bits())) }
    }
    #[inline(never)]
    unsafe fn load_bf16_n(self, p: *const u16, n: usize) -> F {
        let mut r = [0.0; 8];
        for (i, x) in r.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = f32::from_bits(u32::from(unsafe { *p.add(i) }) << 16);
        }
        vector(r)
    }
    #[inline(never)]
    unsafe fn load_f16_n(self, p: *const u16, n: usize) -> F {
        let mut r = [0.0; 8];
        for (i, x) in r.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = f16::from_bits(unsafe { *p.add(i) }).to_f32();
        }
        vector(r)
    }
    #[inline(never)]
    unsafe fn store_bf16_n(self, p: *mut u16, v: F, n: usize) {
        for (i, x) in array(v).into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = bf16::from_f32(x).to_bits() };
        }
    }
    #[inline(never)]
    unsafe fn store_f16_n(self, p: *mut u16, v: F, n: usize) {
        for (i, x) in array(v).into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = f16::from_f32(x).to_bits() };
        }
    }
    #[inline(never)]
    fn dot_bf16(self, a: F, b: F, c: F) -> F {
        let low = |x: f32| f32::from_bits(x.to_bits() << 16);
        let high = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
        let (a, b, mut r) = (array(a), array(b), array(c));
        for i in 0..8 {
            r[i] += low(a[i]) * low(b[i]);
            r[i] += high(a[i]) * high(b[i]);
        }
        vector(r)
    }
    #[inline(never)]
    unsafe fn join_bf16(self, low: *const u16, high: *const u16) -> F {
        // SAFETY: the caller's promise.
        let at =
            |i: usize| unsafe { f32::from_bits(u32::from(*low.add(i)) | (u32::from(*high.add(i)) << 16)) };
        vector(std::array::from_fn(at))
    }
    #[inline(never)]
    unsafe fn transpose(self, rows: &[F; 16], dst: *mut f32, stride: usize) {
        for j in 0..8 {
            for (i, row) in rows.iter().enumerate().take(8) {
                // SAFETY: the caller's promise.
                unsafe { dst.add(j * stride + i).write_unaligned(array(*row)[j]) };
            }
        }
    }
    #[inline(never)]
    fn unzip(self, a: F, b: F) -> (F, F) {
        let (a, b) = (array(a), array(b));
        let of = |i: usize| vector([a[i], a[i + 2], a[i + 4], a[i + 6], b[i], b[i + 2], b[i + 4], b[i + 6]]);
        (of(0), of(1))
    }
    #[inline(never)]
    fn unzip_quarters(self, a: F, b: F) -> (F, F) {
        let (a, b) = (array(a), array(b));
        let of = |i: usize| vector([a[i], a[i + 2], b[i], b[i + 2], a[i + 4], a[i + 6], b[i + 4], b[i + 6]]);
        (of(0), of(1))
    }
    #[inline(always)]
    fn split_quarters(self, a: F, b: F) -> (F, F) {
        ([a[0], b[0]], [a[1], b[1]])
    }
    #[inline(never)]
    fn zip(self, e: F, o: F) -> (F, F) {
        let (e, o) = (array(e), array(o));
        let from = |i: usize| {
            vector(std::array::from_fn(|at| if at % 2 == 0 { e[i + at / 2] } else { o[i + at / 2] }))
        };
        (from(0), from(4))
    }
    #[inline(never)]
    fn reverse(self, a: F) -> F {
        let mut r = array(a);
        r.reverse();
        vector(r)
    }
    #[inline(never)]
    fn move_up<const D: usize>(self, a: F) -> F {
        let mut r = [0.0; 8];
        r[D..].copy_from_slice(&array(a)[..8 - D]);
        vector(r)
    }
    #[inline(always)]
    fn last(self, a: F) -> F {
        self.splat(array(a)[7])
    }
    #[inline(never)]
    unsafe fn codes<const BITS: usize>(self, p: *const u8) -> F {
        let mut r = [0.0; 8];
        for (i, x) in r.iter_mut().enumerate() {
            // SAFETY: eight codes are `BITS` bytes, which the caller promises.
            *x = unsafe { code::<BITS>(p, i) } as f32;
        }
        vector(r)
    }
    #[inline(never)]
    fn field(self, words: F, mask: u32) -> F {
        vector(array(words).map(|w| (w.to_bits() & mask) as f32))
    }
    type Table = [f32; 16];
    #[inline(always)]
    fn table(self, t: &[f32; 16]) -> [f32; 16] {
        *t
    }
    #[inline(never)]
    fn lookup(self, t: [f32; 16], words: F, shift: u32) -> F {
        vector(array(words).map(|w| t[(w.to_bits() >> shift) as usize & 15]))
    }
    #[inline(never)]
    unsafe fn nibbles(self, p: *const u8, scale: F, offset: F) -> (F, F) {
        // SAFETY: the caller's promise.
        let b = unsafe { p.cast::<[u8; 8]>().read_unaligned() };
        let (low, high) = (vector(b.map(|b| f32::from(b & 15))), vector(b.map(|b| f32::from(b >> 4))));
        (self.fma(low, scale, offset), self.fma(high, scale, offset))
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
    #[inline(never)]
    unsafe fn bytes(self, p: *const u8) -> F {
        // SAFETY: the caller's promise.
        let bytes = unsafe { p.cast::<[u8; 8]>().read_unaligned() };
        vector(bytes.map(|byte| f32::from_bits(u32::from(byte))))
    }
    #[inline(never)]
    unsafe fn signed(self, p: *const u8) -> F {
        // SAFETY: the caller's promise.
        vector(unsafe { p.cast::<[i8; 8]>().read_unaligned() }.map(f32::from))
    }
    #[inline(never)]
    unsafe fn repeat(self, p: *const f32, n: usize) -> F {
        // SAFETY: the caller's promise.
        vector(std::array::from_fn(|i| unsafe { *p.add(i / n) }))
    }
    #[inline(never)]
    unsafe fn words(self, rows: &[*const u8; 16], at: usize) -> [F; 4] {
        std::array::from_fn(|q| {
            // SAFETY: the caller's promise.
            vector(std::array::from_fn(|i| unsafe { rows[i].add(at).cast::<f32>().add(q).read_unaligned() }))
        })
    }
    #[inline(always)]
    unsafe fn splat_bytes(self, p: *const i8) -> F {
        // SAFETY: the caller's promise.
        self.splat(unsafe { p.cast::<f32>().read_unaligned() })
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> F {
        self.splat(f32::from_bits(x as u32))
    }
    #[inline(never)]
    fn dot_bytes(self, sums: F, unsigned: F, signed: F, _: usize) -> F {
        let (unsigned, signed, mut r) = (array(unsigned), array(signed), array(sums));
        for i in 0..8 {
            let (w, x) = (unsigned[i].to_bits().to_le_bytes(), signed[i].to_bits().to_le_bytes());
            let dot: i32 = (0..4).map(|e| i32::from(w[e]) * i32::from(x[e] as i8)).sum();
            r[i] = f32::from_bits((r[i].to_bits() as i32 + dot) as u32);
        }
        vector(r)
    }
    #[inline(never)]
    fn pair_bf16(self, low: F, high: F) -> F {
        let bits = |x| u32::from(bf16::from_f32(x).to_bits());
        let (low, high) = (array(low), array(high));
        vector(std::array::from_fn(|i| f32::from_bits(bits(low[i]) | (bits(high[i]) << 16))))
    }
    #[inline(always)]
    fn d_splat(self, x: f64) -> D {
        [quad::d_splat(x); 2]
    }
    #[inline(always)]
    unsafe fn d_load(self, p: *const f64) -> D {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<D>().read_unaligned() }
    }
    #[inline(never)]
    unsafe fn d_load_n(self, p: *const f64, n: usize) -> D {
        let mut r = [0.0; 4];
        for (i, x) in r.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = unsafe { p.add(i).read_unaligned() };
        }
        // SAFETY: four doubles.
        unsafe { self.d_load(r.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn d_store(self, p: *mut f64, v: D) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<D>().write_unaligned(v) }
    }
    #[inline(never)]
    unsafe fn d_store_n(self, p: *mut f64, v: D, n: usize) {
        for (i, x) in doubles(v).into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { p.add(i).write_unaligned(x) };
        }
    }
    #[inline(always)]
    fn d_add(self, a: D, b: D) -> D {
        [quad::d_add(a[0], b[0]), quad::d_add(a[1], b[1])]
    }
    #[inline(always)]
    fn d_fma(self, a: D, b: D, c: D) -> D {
        self.d_add([quad::d_mul(a[0], b[0]), quad::d_mul(a[1], b[1])], c)
    }
    #[inline(always)]
    fn d_reduce_add(self, a: D) -> f64 {
        let q = doubles([quad::d_add(a[0], a[1]); 2]);
        q[0] + q[1]
    }
}
