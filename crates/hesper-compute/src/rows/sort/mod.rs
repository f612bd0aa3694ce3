//! Sorting rows, by keys whose order as unsigned integers is that of the elements.
//!
//! NaNs come last. [`argsort`] is stable (`-0.0` and `0.0` are equal): each key is sorted together with its
//! index. Bytes, and long rows of 16-bit elements, use a counting sort; everything else uses [`words`].
//! Sorted results do not depend on the SIMD level or the number of threads. The order of the two sides of
//! [`partition`] depends on the SIMD level only.

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

use crate::error::{Mismatch, at_least, at_most, multiple, same};
use crate::par::Par;

/// A type that can be sorted.
pub trait Sortable: Copy + Send + Sync + 'static {
    /// Significant bytes of the key.
    #[doc(hidden)]
    const BYTES: usize;
    /// The key; the largest for NaN.
    #[doc(hidden)]
    fn key(self) -> u64;
    /// The element with this key.
    #[doc(hidden)]
    fn from_key(k: u64) -> Self;
    /// The key, with `-0.0` and `0.0` made equal.
    #[doc(hidden)]
    fn rank(self) -> u64 {
        self.key()
    }
    #[doc(hidden)]
    fn run(par: &dyn Par, x: &[Self], n: usize, to: SortOutput<'_, Self>);
}

/// The requested result, and where it is written.
#[doc(hidden)]
pub enum SortOutput<'a, T> {
    /// The sorted values.
    Values(&'a mut [T]),
    /// Their indices.
    Indices(&'a mut [u32]),
    /// Partitioned values: the one at this index is in sorted position, none before it is larger.
    Partition(&'a mut [T], usize),
    /// Their indices.
    PartitionIndices(&'a mut [u32], usize),
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
            fn run(par: &dyn Par, x: &[Self], n: usize, to: SortOutput<'_, Self>) {
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

/// Complex numbers, ordered by real part, then by imaginary part; one with a NaN comes last.
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
    fn run(par: &dyn Par, x: &[Self], n: usize, to: SortOutput<'_, Self>) {
        rows::run::<Self, u64>(par, x, n, to);
    }
}

/// Complex numbers of double precision, whose keys are wider than a word: rows are sorted by comparing both
/// parts.
impl Sortable for [f64; 2] {
    const BYTES: usize = 8;
    fn key(self) -> u64 {
        if self[1].is_nan() { u64::MAX } else { Sortable::key(self[0]) }
    }
    fn from_key(k: u64) -> Self {
        [Sortable::from_key(k), 0.0]
    }
    fn run(_: &dyn Par, x: &[Self], n: usize, mut to: SortOutput<'_, Self>) {
        let key = |x: &Self| {
            let [re, im] = [x[0] + 0.0, x[1] + 0.0];
            let first = [re, im].key();
            // All NaNs are equal.
            (first, if first == u64::MAX { 0 } else { Sortable::key(im) })
        };
        for (row, x) in x.chunks_exact(n.max(1)).enumerate() {
            let mut indices: Vec<u32> = (0..n as u32).collect();
            indices.sort_by_key(|index| key(&x[*index as usize]));
            let at = row * n;
            match &mut to {
                SortOutput::Values(out) | SortOutput::Partition(out, _) => {
                    out[at..at + n].iter_mut().zip(&indices).for_each(|(to, index)| *to = x[*index as usize]);
                }
                SortOutput::Indices(out) | SortOutput::PartitionIndices(out, _) => {
                    out[at..at + n].copy_from_slice(&indices)
                }
            }
        }
    }
}

/// Sorts every row of `n` elements, NaN last.
pub fn sort<T: Sortable>(par: &dyn Par, x: &[T], n: usize, out: &mut [T]) -> Result<(), Mismatch> {
    check(x.len(), n, out.len())?;
    T::run(par, x, n, SortOutput::Values(out));
    Ok(())
}

/// The stable sorting permutation of every row of `n` elements.
pub fn argsort<T: Sortable>(par: &dyn Par, x: &[T], n: usize, out: &mut [u32]) -> Result<(), Mismatch> {
    check(x.len(), n, out.len())?;
    T::run(par, x, n, SortOutput::Indices(out));
    Ok(())
}

/// Partitions every row: the element at `kth` is in sorted position, none before it is larger and none after
/// it smaller.
pub fn partition<T: Sortable>(
    par: &dyn Par,
    x: &[T],
    n: usize,
    kth: usize,
    out: &mut [T],
) -> Result<(), Mismatch> {
    check(x.len(), n, out.len())?;
    at_least("elements of a row to partition", kth + 1, n)?;
    T::run(par, x, n, SortOutput::Partition(out, kth));
    Ok(())
}

/// The indices that [`partition`] would take elements from.
pub fn argpartition<T: Sortable>(
    par: &dyn Par,
    x: &[T],
    n: usize,
    kth: usize,
    out: &mut [u32],
) -> Result<(), Mismatch> {
    check(x.len(), n, out.len())?;
    at_least("elements of a row to partition", kth + 1, n)?;
    T::run(par, x, n, SortOutput::PartitionIndices(out, kth));
    Ok(())
}

fn check(len: usize, n: usize, out: usize) -> Result<(), Mismatch> {
    multiple("elements of the input", n, len)?;
    at_most("elements of a row", u32::MAX as usize, n)?;
    same("elements of the result", len, out)
}
