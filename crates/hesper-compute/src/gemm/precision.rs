//! The precisions of matrix products: element types, packing and accumulation.

use std::marker::PhantomData;

use half::bf16;

use super::pack;
use crate::simd::{Float, Isa};

/// The types and operations of a product.
///
/// Packed elements have the type of the sums; [`Precision::step`] says how many steps along K one of them
/// holds.
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
    /// The precision of products without packing, where elements are widened.
    type Widened: Precision<In = Self::In, Out = Self::Out, Acc = Self::Acc>;

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

/// The types and operations of sums, by the names that they have in [`Isa`].
macro_rules! sums {
    ($Acc:ty, $V:ident, $per_lane:literal: $splat:ident $load:ident $load_n:ident $store:ident $store_n:ident $fma:ident
     $add:ident $reduce_add:ident) => {
        type Acc = $Acc;
        type V<S: Isa> = S::$V;
        const ZERO: $Acc = 0.0;
        const ONE: $Acc = 1.0;
        const MINUS_ONE: $Acc = -1.0;

        #[inline(always)]
        fn lanes<S: Isa>() -> usize {
            S::LANES / $per_lane
        }
        #[inline(always)]
        fn splat<S: Isa>(s: S, x: $Acc) -> S::$V {
            s.$splat(x)
        }
        #[inline(always)]
        unsafe fn load<S: Isa>(s: S, p: *const $Acc) -> S::$V {
            // SAFETY: the caller's promise.
            unsafe { s.$load(p) }
        }
        #[inline(always)]
        unsafe fn load_n<S: Isa>(s: S, p: *const $Acc, n: usize) -> S::$V {
            // SAFETY: the caller's promise.
            unsafe { s.$load_n(p, n) }
        }
        #[inline(always)]
        unsafe fn store<S: Isa>(s: S, p: *mut $Acc, v: S::$V) {
            // SAFETY: the caller's promise.
            unsafe { s.$store(p, v) }
        }
        #[inline(always)]
        unsafe fn store_n<S: Isa>(s: S, p: *mut $Acc, v: S::$V, n: usize) {
            // SAFETY: the caller's promise.
            unsafe { s.$store_n(p, v, n) }
        }
        #[inline(always)]
        fn axpy<S: Isa>(s: S, a: S::$V, b: S::$V, c: S::$V) -> S::$V {
            s.$fma(a, b, c)
        }
        #[inline(always)]
        fn add<S: Isa>(s: S, a: S::$V, b: S::$V) -> S::$V {
            s.$add(a, b)
        }
        #[inline(always)]
        fn reduce<S: Isa>(s: S, a: S::$V) -> $Acc {
            s.$reduce_add(a)
        }
    };
}

macro_rules! f32_sums {
    () => {
        sums!(f32, F, 1: splat load load_n store store_n fma add reduce_add);

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
    type Widened = Self;
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
    type Widened = Single<bf16>;
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
    type Widened = Self;
    const OUT_IS_ACC: bool = true;
    sums!(f64, D, 2: d_splat d_load d_load_n d_store d_store_n d_fma d_add d_reduce_add);

    #[inline(always)]
    fn mul_add<S: Isa>(s: S, a: S::D, b: S::D, c: S::D) -> S::D {
        s.d_fma(a, b, c)
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
