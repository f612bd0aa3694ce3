//! The precisions of matrix products: element types, packing and accumulation.

use std::marker::PhantomData;

use half::bf16;

use super::pack;
use crate::simd::{Float, Isa};

/// The types and operations of a product.
///
/// Packed elements have the type of the sums; [`Precision::step`] says how many steps along K one of them holds.
///
/// # Safety
/// The unsafe functions ask for valid memory of the sizes they name.
pub(crate) trait Precision: Sized + Send + Sync + 'static {
    type In: Copy + Send + Sync + 'static;
    type Out: Copy + Send + Sync + 'static;
    type Acc: Copy + Send + Sync + PartialEq + 'static;
    type V<S: Isa>: Copy;
    /// The precision whose inner loop this one shares.
    type Core: Precision<Acc = Self::Acc>;

    const ZERO: Self::Acc;
    const ONE: Self::Acc;
    const MINUS_ONE: Self::Acc;
    /// Whether a sum can be stored in the output unchanged.
    const OUT_IS_ACC: bool;

    fn lanes<S: Isa>() -> usize;
    /// Whether one packed element holds two steps, for the bfloat16 dot product.
    const PAIRED: bool = false;
    #[inline(always)]
    fn step() -> usize {
        if Self::PAIRED { 2 } else { 1 }
    }
    fn splat<S: Isa>(s: S, x: Self::Acc) -> Self::V<S>;
    unsafe fn load<S: Isa>(s: S, p: *const Self::Acc) -> Self::V<S>;
    unsafe fn load_n<S: Isa>(s: S, p: *const Self::Acc, n: usize) -> Self::V<S>;
    unsafe fn store<S: Isa>(s: S, p: *mut Self::Acc, v: Self::V<S>);
    unsafe fn store_n<S: Isa>(s: S, p: *mut Self::Acc, v: Self::V<S>, n: usize);
    /// One multiply-add step on packed elements.
    fn mul_add<S: Isa>(s: S, a: Self::V<S>, b: Self::V<S>, c: Self::V<S>) -> Self::V<S>;
    /// `a * b + c` on sums.
    fn axpy<S: Isa>(s: S, a: Self::V<S>, b: Self::V<S>, c: Self::V<S>) -> Self::V<S>;
    fn add<S: Isa>(s: S, a: Self::V<S>, b: Self::V<S>) -> Self::V<S>;
    fn reduce<S: Isa>(s: S, a: Self::V<S>) -> Self::Acc;

    /// Inputs as vectors of sums, for products without packing.
    unsafe fn load_in<S: Isa>(s: S, p: *const Self::In) -> Self::V<S>;
    unsafe fn load_in_n<S: Isa>(s: S, p: *const Self::In, n: usize) -> Self::V<S>;
    unsafe fn load_out<S: Isa>(s: S, p: *const Self::Out, n: usize) -> Self::V<S>;
    unsafe fn store_out<S: Isa>(s: S, p: *mut Self::Out, v: Self::V<S>, n: usize);
    fn from_in(x: Self::In) -> Self::Acc;

    /// Packs `valid` of `width` lines of `k` elements so that the elements of one step are contiguous.
    ///
    /// Element `(w, k)` is read from `src + w * ws + k * ks`. May write up to 64 bytes past its panel.
    unsafe fn pack<S: Isa>(
        s: S,
        src: *const Self::In,
        ws: isize,
        ks: isize,
        valid: usize,
        width: usize,
        k: usize,
        dst: *mut Self::Acc,
    );
}

/// Stored as `T`, packed and summed in `f32`.
pub(crate) struct Single<T>(PhantomData<T>);

/// Stored as bfloat16, packed in pairs for the bfloat16 dot product, summed in `f32`.
pub(crate) struct Pairs;

/// Double precision throughout.
pub(crate) struct Double;

macro_rules! f32_sums {
    () => {
        type Acc = f32;
        type V<S: Isa> = S::F;
        const ZERO: f32 = 0.0;
        const ONE: f32 = 1.0;
        const MINUS_ONE: f32 = -1.0;

        #[inline(always)]
        fn lanes<S: Isa>() -> usize {
            S::LANES
        }
        #[inline(always)]
        fn splat<S: Isa>(s: S, x: f32) -> S::F {
            s.splat(x)
        }
        #[inline(always)]
        unsafe fn load<S: Isa>(s: S, p: *const f32) -> S::F {
            // SAFETY: the caller's promise.
            unsafe { s.load(p) }
        }
        #[inline(always)]
        unsafe fn load_n<S: Isa>(s: S, p: *const f32, n: usize) -> S::F {
            // SAFETY: the caller's promise.
            unsafe { s.load_n(p, n) }
        }
        #[inline(always)]
        unsafe fn store<S: Isa>(s: S, p: *mut f32, v: S::F) {
            // SAFETY: the caller's promise.
            unsafe { s.store(p, v) }
        }
        #[inline(always)]
        unsafe fn store_n<S: Isa>(s: S, p: *mut f32, v: S::F, n: usize) {
            // SAFETY: the caller's promise.
            unsafe { s.store_n(p, v, n) }
        }
        #[inline(always)]
        fn axpy<S: Isa>(s: S, a: S::F, b: S::F, c: S::F) -> S::F {
            s.fma(a, b, c)
        }
        #[inline(always)]
        fn add<S: Isa>(s: S, a: S::F, b: S::F) -> S::F {
            s.add(a, b)
        }
        #[inline(always)]
        fn reduce<S: Isa>(s: S, a: S::F) -> f32 {
            s.reduce_add(a)
        }
        #[inline(always)]
        unsafe fn load_in<S: Isa>(s: S, p: *const Self::In) -> S::F {
            // SAFETY: the caller's promise.
            unsafe { <Self::In as crate::simd::FloatLanes>::load(s, p) }
        }
        #[inline(always)]
        unsafe fn load_in_n<S: Isa>(s: S, p: *const Self::In, n: usize) -> S::F {
            // SAFETY: the caller's promise.
            unsafe { <Self::In as crate::simd::FloatLanes>::load_n(s, p, n) }
        }
        #[inline(always)]
        unsafe fn load_out<S: Isa>(s: S, p: *const Self::Out, n: usize) -> S::F {
            // SAFETY: the caller's promise.
            unsafe { <Self::Out as crate::simd::FloatLanes>::load_n(s, p, n) }
        }
        #[inline(always)]
        unsafe fn store_out<S: Isa>(s: S, p: *mut Self::Out, v: S::F, n: usize) {
            // SAFETY: the caller's promise.
            unsafe {
                if n == S::LANES {
                    <Self::Out as crate::simd::FloatLanes>::store(s, p, v);
                } else {
                    <Self::Out as crate::simd::FloatLanes>::store_n(s, p, v, n);
                }
            }
        }
        #[inline(always)]
        fn from_in(x: Self::In) -> f32 {
            x.to_f32()
        }
    };
}

impl<T: Float> Precision for Single<T> {
    type In = T;
    type Out = T;
    type Core = Single<f32>;
    const OUT_IS_ACC: bool = matches!(T::KIND, crate::simd::FloatKind::F32);
    f32_sums!();

    #[inline(always)]
    fn mul_add<S: Isa>(s: S, a: S::F, b: S::F, c: S::F) -> S::F {
        s.fma(a, b, c)
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(
        s: S,
        src: *const T,
        ws: isize,
        ks: isize,
        valid: usize,
        width: usize,
        k: usize,
        dst: *mut f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { pack::floats(s, src, ws, ks, valid, width, k, dst) }
    }
}

impl Precision for Pairs {
    type In = bf16;
    type Out = bf16;
    type Core = Self;
    const OUT_IS_ACC: bool = false;
    const PAIRED: bool = true;
    f32_sums!();

    #[inline(always)]
    fn mul_add<S: Isa>(s: S, a: S::F, b: S::F, c: S::F) -> S::F {
        s.dot_bf16(a, b, c)
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(
        s: S,
        src: *const bf16,
        ws: isize,
        ks: isize,
        valid: usize,
        width: usize,
        k: usize,
        dst: *mut f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { pack::pairs(s, src.cast(), ws, ks, valid, width, k, dst) }
    }
}

impl Precision for Double {
    type In = f64;
    type Out = f64;
    type Core = Self;
    type Acc = f64;
    type V<S: Isa> = S::D;
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const MINUS_ONE: f64 = -1.0;
    const OUT_IS_ACC: bool = true;

    #[inline(always)]
    fn lanes<S: Isa>() -> usize {
        S::LANES / 2
    }
    #[inline(always)]
    fn splat<S: Isa>(s: S, x: f64) -> S::D {
        s.d_splat(x)
    }
    #[inline(always)]
    unsafe fn load<S: Isa>(s: S, p: *const f64) -> S::D {
        // SAFETY: the caller's promise.
        unsafe { s.d_load(p) }
    }
    #[inline(always)]
    unsafe fn load_n<S: Isa>(s: S, p: *const f64, n: usize) -> S::D {
        // SAFETY: the caller's promise.
        unsafe { s.d_load_n(p, n) }
    }
    #[inline(always)]
    unsafe fn store<S: Isa>(s: S, p: *mut f64, v: S::D) {
        // SAFETY: the caller's promise.
        unsafe { s.d_store(p, v) }
    }
    #[inline(always)]
    unsafe fn store_n<S: Isa>(s: S, p: *mut f64, v: S::D, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { s.d_store_n(p, v, n) }
    }
    #[inline(always)]
    fn mul_add<S: Isa>(s: S, a: S::D, b: S::D, c: S::D) -> S::D {
        s.d_fma(a, b, c)
    }
    #[inline(always)]
    fn axpy<S: Isa>(s: S, a: S::D, b: S::D, c: S::D) -> S::D {
        s.d_fma(a, b, c)
    }
    #[inline(always)]
    fn add<S: Isa>(s: S, a: S::D, b: S::D) -> S::D {
        s.d_add(a, b)
    }
    #[inline(always)]
    fn reduce<S: Isa>(s: S, a: S::D) -> f64 {
        s.d_reduce_add(a)
    }
    #[inline(always)]
    unsafe fn load_in<S: Isa>(s: S, p: *const f64) -> S::D {
        // SAFETY: the caller's promise.
        unsafe { s.d_load(p) }
    }
    #[inline(always)]
    unsafe fn load_in_n<S: Isa>(s: S, p: *const f64, n: usize) -> S::D {
        // SAFETY: the caller's promise.
        unsafe { s.d_load_n(p, n) }
    }
    #[inline(always)]
    unsafe fn load_out<S: Isa>(s: S, p: *const f64, n: usize) -> S::D {
        // SAFETY: the caller's promise.
        unsafe { s.d_load_n(p, n) }
    }
    #[inline(always)]
    unsafe fn store_out<S: Isa>(s: S, p: *mut f64, v: S::D, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { s.d_store_n(p, v, n) }
    }
    #[inline(always)]
    fn from_in(x: f64) -> f64 {
        x
    }

    #[inline(always)]
    unsafe fn pack<S: Isa>(
        _: S,
        src: *const f64,
        ws: isize,
        ks: isize,
        valid: usize,
        width: usize,
        k: usize,
        dst: *mut f64,
    ) {
        // SAFETY: the caller's promise.
        unsafe { pack::scalars(src, ws, ks, valid, width, k, dst, |x| x) }
    }
}
