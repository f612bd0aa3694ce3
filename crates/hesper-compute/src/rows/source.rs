//! Sources of rows: memory, or a producer that computes them piece by piece.
//!
//! A kernel asks for pieces that fit the cache. Rows in memory are used in place. Other rows are computed
//! into the [`RowScratch`] of the kernel, and never written to memory. Results do not depend on the source.

use half::{bf16, f16};

/// Elements of a piece, unless one row has more.
pub(crate) const PIECE: usize = 16384;

/// Rows of elements.
pub trait Source<T>: Sync {
    /// How many elements there are.
    fn count(&self) -> usize;

    /// Elements `at..at + len`: in place, or computed into `room`.
    fn piece<'a>(&'a self, at: usize, len: usize, room: &'a mut RowScratch) -> &'a [T];

    /// The preferred number of elements per piece, for rows of `row` elements.
    fn piece_len(&self, _row: usize) -> usize {
        PIECE
    }
}

macro_rules! in_memory {
    ($([$($generics:tt)*] $t:ty;)*) => {$(
        impl<$($generics)*> Source<T> for $t {
            fn count(&self) -> usize {
                self.len()
            }

            fn piece<'a>(&'a self, at: usize, len: usize, _: &'a mut RowScratch) -> &'a [T] {
                &self[at..][..len]
            }

            fn piece_len(&self, row: usize) -> usize {
                if row > PIECE { 4 * PIECE } else { PIECE }
            }
        }
    )*};
}

in_memory! {
    [T: Sync] &[T];
    [T: Sync] Vec<T>;
    [T: Sync, const N: usize] [T; N];
}

/// A number type for which all bytes, including zeros, are valid.
///
/// # Safety
/// Every pattern of bits is a value; the alignment is at most eight.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty)*) => {$(
        // SAFETY: one or two numbers of at most eight bytes without invalid values.
        unsafe impl Plain for $t {}
    )*};
}

plain!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 f16 bf16 [f32; 2] [f64; 2]);

/// Scratch memory of a task for computed pieces.
#[derive(Debug, Default)]
pub struct RowScratch(Vec<u64>);

impl RowScratch {
    /// Room for `len` elements, with unspecified contents.
    pub fn take<T: Plain>(&mut self, len: usize) -> &mut [T] {
        let words = (len * size_of::<T>()).div_ceil(8);
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
        // SAFETY: the words hold that many bytes, are initialised and borrowed for as long, and are aligned
        // for any plain type, of which every pattern of bits is a value.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

/// Calls `f(first, rows, piece)` for the rows `a..b` of `n` elements, as many at a time as fit a piece.
pub(crate) fn pieces<T>(
    x: &dyn Source<T>,
    n: usize,
    (a, b): (usize, usize),
    room: &mut RowScratch,
    mut f: impl FnMut(usize, usize, &[T]),
) {
    let most = (x.piece_len(n) / n.max(1)).max(1);
    let mut i = a;
    while i < b {
        let rows = most.min(b - i);
        f(i, rows, x.piece(i * n, rows * n, room));
        i += rows;
    }
}
