//! The element types of floating point kernels: stored in 16 or 32 bits, computed in 32.

use half::{bf16, f16};

use super::isa::Isa;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
}

/// A float that kernels read and write as vectors of `f32`: `f32`, `bf16` or `f16`.
pub trait Float:
    sealed::Sealed + FloatLanes + Copy + Send + Sync + PartialOrd + std::fmt::Debug + 'static
{
    /// Which of the three types it is.
    const KIND: FloatKind;
    /// The exact value as `f32`.
    fn to_f32(self) -> f32;
    /// The nearest value of this type.
    fn from_f32(x: f32) -> Self;
}

/// The float types by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatKind {
    /// IEEE single precision.
    F32,
    /// The upper half of a single.
    Bf16,
    /// IEEE half precision.
    F16,
}

/// Vector loads and stores of a [`Float`], internal to this crate.
#[allow(private_interfaces, private_bounds, reason = "only this crate calls or implements it")]
pub trait FloatLanes: Sized {
    #[doc(hidden)]
    #[allow(clippy::missing_safety_doc, reason = "see Isa")]
    unsafe fn load<S: Isa>(s: S, p: *const Self) -> S::F;
    #[doc(hidden)]
    #[allow(clippy::missing_safety_doc, reason = "see Isa")]
    unsafe fn load_n<S: Isa>(s: S, p: *const Self, n: usize) -> S::F;
    #[doc(hidden)]
    #[allow(clippy::missing_safety_doc, reason = "see Isa")]
    unsafe fn store<S: Isa>(s: S, p: *mut Self, v: S::F);
    #[doc(hidden)]
    #[allow(clippy::missing_safety_doc, reason = "see Isa")]
    unsafe fn store_n<S: Isa>(s: S, p: *mut Self, v: S::F, n: usize);
}

/// The first `n` lanes of a vector, the others zero. A mask costs more than a whole load.
///
/// # Safety
/// `n` elements are readable, and `n` is at most the number of lanes.
#[inline(always)]
pub(crate) unsafe fn load_lanes<S: Isa, T: Float>(s: S, p: *const T, n: usize) -> S::F {
    // SAFETY: the caller's promise.
    unsafe { if n == S::LANES { T::load(s, p) } else { T::load_n(s, p, n) } }
}

/// Stores the first `n` lanes of a vector. Loads cannot be forwarded from a store with a mask.
///
/// # Safety
/// `n` elements are writable, and `n` is at most the number of lanes.
#[inline(always)]
pub(crate) unsafe fn store_lanes<S: Isa, T: Float>(s: S, p: *mut T, v: S::F, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { if n == S::LANES { T::store(s, p, v) } else { T::store_n(s, p, v, n) } }
}

macro_rules! lanes {
    ($t:ty, $kind:ident, $to:expr, $from:expr, $as:ty, $load:ident, $load_n:ident, $store:ident, $store_n:ident) => {
        impl Float for $t {
            const KIND: FloatKind = FloatKind::$kind;
            #[inline(always)]
            fn to_f32(self) -> f32 {
                $to(self)
            }
            #[inline(always)]
            fn from_f32(x: f32) -> Self {
                $from(x)
            }
        }

        #[allow(private_interfaces, private_bounds, reason = "only this crate calls it")]
        impl FloatLanes for $t {
            #[inline(always)]
            unsafe fn load<S: Isa>(s: S, p: *const Self) -> S::F {
                // SAFETY: the caller's promise.
                unsafe { s.$load(p.cast::<$as>()) }
            }
            #[inline(always)]
            unsafe fn load_n<S: Isa>(s: S, p: *const Self, n: usize) -> S::F {
                // SAFETY: the caller's promise.
                unsafe { s.$load_n(p.cast::<$as>(), n) }
            }
            #[inline(always)]
            unsafe fn store<S: Isa>(s: S, p: *mut Self, v: S::F) {
                // SAFETY: the caller's promise.
                unsafe { s.$store(p.cast::<$as>(), v) }
            }
            #[inline(always)]
            unsafe fn store_n<S: Isa>(s: S, p: *mut Self, v: S::F, n: usize) {
                // SAFETY: the caller's promise.
                unsafe { s.$store_n(p.cast::<$as>(), v, n) }
            }
        }
    };
}

lanes!(f32, F32, |x| x, |x| x, f32, load, load_n, store, store_n);
lanes!(bf16, Bf16, bf16::to_f32, bf16::from_f32, u16, load_bf16, load_bf16_n, store_bf16, store_bf16_n);
lanes!(f16, F16, f16::to_f32, f16::from_f32, u16, load_f16, load_f16_n, store_f16, store_f16_n);
