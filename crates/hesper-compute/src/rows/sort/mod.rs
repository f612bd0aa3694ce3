//! Sorting rows, as keys whose order as unsigned integers is that of the elements.
//!
//! NaNs come last. [`argsort`] keeps equal elements in order (and takes `-0.0` and `0.0` as equal): each key
//! is sorted together with its place. Bytes, and long rows of 16-bit numbers, are counted; all else is left
//! to [`words`]. A sorted row is the only possible one, whatever the SIMD level and the number of threads; how
//! [`partition`] orders the two sides depends on the level alone.

mod codes;
mod count;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod network;
#[cfg(target_arch = "x86_64")]
mod quick;
mod rows;
mod words;

use half::{bf16, f16};

use crate::error::{Mismatch, same};
use crate::par::Par;
use crate::scratch::Scratch;

/// A type that can be sorted.
pub trait Sortable: Copy + Send + Sync + 'static {
    /// Bytes of the key that matter.
    #[doc(hidden)]
    const BYTES: usize;
    /// The key; the largest for NaN.
    #[doc(hidden)]
    fn key(self) -> u64;
    /// The element of a key.
    #[doc(hidden)]
    fn from_key(k: u64) -> Self;
    /// The key without the difference between zeros.
    #[doc(hidden)]
    fn rank(self) -> u64 {
        self.key()
    }
    #[doc(hidden)]
    fn run(par: &dyn Par, x: &[Self], n: usize, to: To<'_, Self>);
}

/// What is wanted of a row.
#[doc(hidden)]
pub enum To<'a, T> {
    /// The sorted values.
    Values(&'a mut [T]),
    /// Their places.
    Places(&'a mut [u32]),
    /// The values, the one at this place where it would be if sorted, none before it larger.
    Split(&'a mut [T], usize),
    /// Their places, likewise.
    SplitPlaces(&'a mut [u32], usize),
}

macro_rules! sortable {
    ($($t:ty, $u:ty, $word:ty: $key:expr, $from:expr, $rank:expr;)*) => {$(
        impl Sortable for $t {
            const BYTES: usize = size_of::<$t>();
            #[inline(always)]
            fn key(self) -> u64 {
                u64::from($key(self) as $u)
            }
            #[inline(always)]
            fn from_key(k: u64) -> Self {
                $from(k as $u)
            }
            #[inline(always)]
            fn rank(self) -> u64 {
                <Self as Sortable>::key($rank(self))
            }
            fn run(par: &dyn Par, x: &[Self], n: usize, to: To<'_, Self>) {
                rows::run::<Self, $word>(par, x, n, to);
            }
        }
    )*};
}

macro_rules! float_key {
    ($t:ty, $u:ty) => {
        |x: $t| {
            let top = 1 << (<$u>::BITS - 1);
            let b = x.to_bits();
            if x.is_nan() {
                <$u>::MAX
            } else if b & top != 0 {
                !b
            } else {
                b | top
            }
        }
    };
}

macro_rules! float_back {
    ($t:ty, $u:ty) => {
        |k: $u| {
            let top = 1 << (<$u>::BITS - 1);
            if k == <$u>::MAX {
                <$t>::NAN
            } else if k & top != 0 {
                <$t>::from_bits(k & !top)
            } else {
                <$t>::from_bits(!k)
            }
        }
    };
}

sortable! {
    u8, u8, u32: |x| x, |k| k, |x| x;
    u16, u16, u32: |x| x, |k| k, |x| x;
    u32, u32, u32: |x| x, |k| k, |x| x;
    u64, u64, u64: |x| x, |k| k, |x| x;
    i8, u8, u32: |x: i8| x as u8 ^ 0x80, |k: u8| (k ^ 0x80) as i8, |x| x;
    i16, u16, u32: |x: i16| x as u16 ^ 0x8000, |k: u16| (k ^ 0x8000) as i16, |x| x;
    i32, u32, u32: |x: i32| x as u32 ^ (1 << 31), |k: u32| (k ^ (1 << 31)) as i32, |x| x;
    i64, u64, u64: |x: i64| x as u64 ^ (1 << 63), |k: u64| (k ^ (1 << 63)) as i64, |x| x;
    f32, u32, u32: float_key!(f32, u32), float_back!(f32, u32), |x: f32| x + 0.0;
    f64, u64, u64: float_key!(f64, u64), float_back!(f64, u64), |x: f64| x + 0.0;
    f16, u16, u32: float_key!(f16, u16), float_back!(f16, u16), |x: f16| if x == f16::ZERO { f16::ZERO } else { x };
    bf16, u16, u32: float_key!(bf16, u16), float_back!(bf16, u16), |x: bf16| if x == bf16::ZERO { bf16::ZERO } else { x };
}

/// Complex numbers: by their real parts, then by their imaginary ones; any NaN makes one last.
impl Sortable for [f32; 2] {
    const BYTES: usize = 8;
    fn key(self) -> u64 {
        if self[0].is_nan() || self[1].is_nan() {
            return u64::MAX;
        }
        Sortable::key(self[0]) << 32 | Sortable::key(self[1])
    }
    fn from_key(k: u64) -> Self {
        [<f32 as Sortable>::from_key(k >> 32), <f32 as Sortable>::from_key(k & 0xffff_ffff)]
    }
    fn rank(self) -> u64 {
        Sortable::key([self[0] + 0.0, self[1] + 0.0])
    }
    fn run(par: &dyn Par, x: &[Self], n: usize, to: To<'_, Self>) {
        rows::run::<Self, u64>(par, x, n, to);
    }
}

/// Sorts every row of `n` elements, NaN last.
pub fn sort<T: Sortable>(par: &dyn Par, x: &[T], n: usize, out: &mut [T]) -> Result<(), Mismatch> {
    check(x.len(), n, out.len())?;
    T::run(par, x, n, To::Values(out));
    Ok(())
}

/// For every row of `n` elements, the places of its elements in sorted order; equals stay in order.
pub fn argsort<T: Sortable>(par: &dyn Par, x: &[T], n: usize, out: &mut [u32]) -> Result<(), Mismatch> {
    check(x.len(), n, out.len())?;
    T::run(par, x, n, To::Places(out));
    Ok(())
}

/// Moves elements so that the one at `kth` is where it would be in a sorted row, none before it being larger
/// and none after it smaller.
pub fn partition<T: Sortable>(
    par: &dyn Par,
    x: &[T],
    n: usize,
    kth: usize,
    out: &mut [T],
) -> Result<(), Mismatch> {
    check(x.len(), n, out.len())?;
    crate::error::at_least("elements of a row to split", kth + 1, n)?;
    T::run(par, x, n, To::Split(out, kth));
    Ok(())
}

/// The places that [`partition`] would take elements from.
pub fn argpartition<T: Sortable>(
    par: &dyn Par,
    x: &[T],
    n: usize,
    kth: usize,
    out: &mut [u32],
) -> Result<(), Mismatch> {
    check(x.len(), n, out.len())?;
    crate::error::at_least("elements of a row to split", kth + 1, n)?;
    T::run(par, x, n, To::SplitPlaces(out, kth));
    Ok(())
}

/// The `k` largest elements of every row of `n`, smallest first.
pub fn top_k<T: Sortable>(par: &dyn Par, x: &[T], n: usize, k: usize, out: &mut [T]) -> Result<(), Mismatch> {
    let rows = x.len().checked_div(n).unwrap_or(0);
    same("elements in whole rows", rows * n, x.len())?;
    same("elements of the result", rows * k, out.len())?;
    crate::error::at_least("elements of a row to choose from", k, n)?;
    if k == 0 || rows == 0 {
        return Ok(());
    }
    let split = Scratch::<T>::new(x.len());
    // SAFETY: the buffer holds as many elements; `T` is a plain number.
    let split = unsafe {
        std::ptr::copy_nonoverlapping(x.as_ptr(), split.ptr(), x.len());
        std::slice::from_raw_parts_mut(split.ptr(), x.len())
    };
    T::run(par, x, n, To::Split(split, n - k));
    let chosen: Vec<T> = split.chunks_exact(n).flat_map(|r| r[n - k..].iter().copied()).collect();
    T::run(par, &chosen, k, To::Values(out));
    Ok(())
}

fn check(len: usize, n: usize, out: usize) -> Result<(), Mismatch> {
    let rows = len.checked_div(n).unwrap_or(0);
    same("elements in whole rows", rows * n, len)?;
    if n > u32::MAX as usize {
        return Err(Mismatch { what: "elements of a row", expected: u32::MAX as usize, given: n });
    }
    same("elements of the result", len, out)
}
