//! Sorting rows: by radix, on keys whose order as unsigned integers is that of the elements.
//!
//! NaNs come last. [`argsort`] keeps equal elements in order (and takes `-0.0` and `0.0` as equal). A long
//! row is sorted in pieces on all threads, which are then merged; the outcome is the only possible one.

use half::{bf16, f16};

use crate::error::{Mismatch, same};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;

/// Rows shorter than this are sorted by comparisons.
const SHORT: usize = 128;
/// Rows from this length on are sorted in pieces.
const LONG: usize = 1 << 16;

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
    ($($t:ty, $u:ty: $key:expr, $from:expr, $rank:expr;)*) => {$(
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
                if size_of::<$t>() <= 4 { rows::<Self, u32, u64>(par, x, n, to) } else { rows::<Self, u64, u128>(par, x, n, to) }
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
    u8, u8: |x| x, |k| k, |x| x;
    u16, u16: |x| x, |k| k, |x| x;
    u32, u32: |x| x, |k| k, |x| x;
    u64, u64: |x| x, |k| k, |x| x;
    i8, u8: |x: i8| x as u8 ^ 0x80, |k: u8| (k ^ 0x80) as i8, |x| x;
    i16, u16: |x: i16| x as u16 ^ 0x8000, |k: u16| (k ^ 0x8000) as i16, |x| x;
    i32, u32: |x: i32| x as u32 ^ (1 << 31), |k: u32| (k ^ (1 << 31)) as i32, |x| x;
    i64, u64: |x: i64| x as u64 ^ (1 << 63), |k: u64| (k ^ (1 << 63)) as i64, |x| x;
    f32, u32: float_key!(f32, u32), float_back!(f32, u32), |x: f32| x + 0.0;
    f64, u64: float_key!(f64, u64), float_back!(f64, u64), |x: f64| x + 0.0;
    f16, u16: float_key!(f16, u16), float_back!(f16, u16), |x: f16| if x == f16::ZERO { f16::ZERO } else { x };
    bf16, u16: float_key!(bf16, u16), float_back!(bf16, u16), |x: bf16| if x == bf16::ZERO { bf16::ZERO } else { x };
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
        rows::<Self, u64, u128>(par, x, n, to);
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

/// A key, or a key with the place it came from.
trait Word: Copy + Ord + Send + Sync + 'static {
    fn from_key(k: u64) -> Self;
    fn with_place(k: u64, place: u32) -> Self;
    fn key(self) -> u64;
    fn place(self) -> u32;
    /// Byte `i` of the key within a word with a place, or without.
    fn byte(self, i: usize) -> usize;
}

macro_rules! word {
    ($t:ty, $shift:expr) => {
        impl Word for $t {
            #[inline(always)]
            fn from_key(k: u64) -> Self {
                k as $t
            }
            #[inline(always)]
            fn with_place(k: u64, place: u32) -> Self {
                ((k as $t) << $shift) | place as $t
            }
            #[inline(always)]
            fn key(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn place(self) -> u32 {
                self as u32
            }
            #[inline(always)]
            fn byte(self, i: usize) -> usize {
                (self >> (8 * i)) as usize & 255
            }
        }
    };
}

word!(u32, 0);
word!(u64, 32);
word!(u128, 64);

fn rows<T: Sortable, K: Word, P: Word>(par: &dyn Par, x: &[T], n: usize, to: To<'_, T>) {
    if n == 0 || x.is_empty() {
        return;
    }
    let shift = size_of::<P>() / 2;
    let make_key = |_: usize, v: T| K::from_key(v.key());
    let make_pair = |i: usize, v: T| P::with_place(v.rank(), i as u32);
    match to {
        To::Values(out) => {
            each::<T, K, T>(par, x, n, out, &make_key, &|w| T::from_key(w.key()), 0, T::BYTES, None);
        }
        To::Places(out) => {
            each::<T, P, u32>(par, x, n, out, &make_pair, &P::place, shift, shift + T::BYTES, None);
        }
        To::Split(out, kth) => {
            each::<T, K, T>(par, x, n, out, &make_key, &|w| T::from_key(w.key()), 0, T::BYTES, Some(kth));
        }
        To::SplitPlaces(out, kth) => {
            each::<T, P, u32>(par, x, n, out, &make_pair, &P::place, shift, shift + T::BYTES, Some(kth));
        }
    }
}

/// Sorts or splits every row as words, by their bytes `low..high`.
fn each<T: Sortable, W: Word, O: Copy + Send>(
    par: &dyn Par,
    x: &[T],
    n: usize,
    out: &mut [O],
    make: &(dyn Fn(usize, T) -> W + Sync),
    take: &(dyn Fn(W) -> O + Sync),
    low: usize,
    high: usize,
    kth: Option<usize>,
) {
    let to = Shared::new(out.as_mut_ptr());
    let rows = x.len() / n;
    if n >= LONG && kth.is_none() {
        for r in 0..rows {
            long(par, &x[r * n..][..n], make, take, low, high, &mut out[r * n..][..n]);
        }
        return;
    }
    chunks(par, rows, grain(par, rows, (4096 / n).max(1)), |a, b| {
        let words = Scratch::<W>::new(2 * n);
        for r in a..b {
            // SAFETY: the buffer holds two rows, the first of which is written before it is read; the row of
            // the output is this task's own.
            unsafe {
                for (i, v) in x[r * n..][..n].iter().enumerate() {
                    *words.ptr().add(i) = make(i, *v);
                }
                let (row, spare) = (
                    std::slice::from_raw_parts_mut(words.ptr(), n),
                    std::slice::from_raw_parts_mut(words.ptr().add(n), n),
                );
                if let Some(kth) = kth {
                    row.select_nth_unstable(kth);
                } else if n < SHORT {
                    row.sort_unstable();
                } else {
                    radix(row, spare, low, high);
                }
                for (i, w) in row.iter().enumerate() {
                    *to.get().add(r * n + i) = take(*w);
                }
            }
        }
    });
}

/// Sorts by bytes `low..high`, lowest first; bytes that are all the same cost nothing but a look.
fn radix<W: Word>(row: &mut [W], spare: &mut [W], low: usize, high: usize) {
    let mut counts = [[0u32; 256]; 8];
    for w in row.iter() {
        for (b, count) in counts.iter_mut().enumerate().take(high - low) {
            count[w.byte(low + b)] += 1;
        }
    }
    let n = row.len() as u32;
    let (mut from, mut to) = (row, spare);
    let mut turned = false;
    for b in 0..high - low {
        let count = &mut counts[b];
        if count.contains(&n) {
            continue;
        }
        let mut at = 0;
        for c in count.iter_mut() {
            (*c, at) = (at, at + *c);
        }
        for w in from.iter() {
            let slot = &mut count[w.byte(low + b)];
            // SAFETY: the counts of all bytes add up to the length of the row.
            unsafe { *to.get_unchecked_mut(*slot as usize) = *w };
            *slot += 1;
        }
        std::mem::swap(&mut from, &mut to);
        turned = !turned;
    }
    if turned {
        to.copy_from_slice(from);
    }
}

/// A long row: pieces sorted on all threads, then merged two by two.
fn long<T: Sortable, W: Word, O: Copy + Send>(
    par: &dyn Par,
    x: &[T],
    make: &(dyn Fn(usize, T) -> W + Sync),
    take: &(dyn Fn(W) -> O + Sync),
    low: usize,
    high: usize,
    out: &mut [O],
) {
    let n = x.len();
    let pieces = par.threads().next_power_of_two().min(64);
    let (a, b) = (Scratch::<W>::new(n), Scratch::<W>::new(n));
    let (mut from, mut to) = (Shared::new(a.ptr()), Shared::new(b.ptr()));
    let cut = |p: usize, of: usize| p * n / of;
    par.run(pieces, &|p| {
        let (i, j) = (cut(p, pieces), cut(p + 1, pieces));
        // SAFETY: pieces are this task's own, and written before they are read.
        let (row, spare) = unsafe {
            for (k, v) in x[i..j].iter().enumerate() {
                *from.get().add(i + k) = make(i + k, *v);
            }
            (from.slice(i, j - i), to.slice(i, j - i))
        };
        radix(row, spare, low, high);
    });
    let mut runs = pieces;
    while runs > 1 {
        // Each pair of runs is merged in as many parts as keep all threads busy.
        let parts = pieces / (runs / 2);
        par.run(runs / 2 * parts, &|t| {
            let (pair, part) = (t / parts, t % parts);
            let (i, m, j) = (cut(2 * pair, runs), cut(2 * pair + 1, runs), cut(2 * pair + 2, runs));
            // SAFETY: the runs were written; parts of the output do not overlap.
            unsafe {
                let (l, r) = (&*from.slice(i, m - i), &*from.slice(m, j - m));
                let (d0, d1) = (part * (j - i) / parts, (part + 1) * (j - i) / parts);
                let (l0, l1) = (crossing(l, r, d0), crossing(l, r, d1));
                merge(&l[l0..l1], &r[d0 - l0..d1 - l1], to.slice(i + d0, d1 - d0));
            }
        });
        std::mem::swap(&mut from, &mut to);
        runs /= 2;
    }
    let out = Shared::new(out.as_mut_ptr());
    chunks(par, n, grain(par, n, 1 << 14), |a, b| {
        for i in a..b {
            // SAFETY: all words were written; elements are this task's own.
            unsafe { *out.get().add(i) = take(*from.get().add(i)) };
        }
    });
}

/// How many of the first `d` merged elements come from the left.
fn crossing<W: Word>(l: &[W], r: &[W], d: usize) -> usize {
    let (mut low, mut high) = (d.saturating_sub(r.len()), d.min(l.len()));
    while low < high {
        let mid = (low + high) / 2;
        if l[mid] <= r[d - mid - 1] { low = mid + 1 } else { high = mid }
    }
    low
}

fn merge<W: Word>(l: &[W], r: &[W], out: &mut [W]) {
    let (mut i, mut j) = (0, 0);
    for o in out.iter_mut() {
        let left = j >= r.len() || (i < l.len() && l[i] <= r[j]);
        *o = if left { l[i] } else { r[j] };
        i += usize::from(left);
        j += usize::from(!left);
    }
}
