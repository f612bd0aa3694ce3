//! Where rows come from: memory, or something that makes them piece by piece.
//!
//! A kernel that goes through rows asks for pieces that fit the cache. What lies in memory is given as it is;
//! what is not there yet is made in the [`Room`] that the kernel brings, so that it never goes to memory. The
//! numbers that a kernel gives do not depend on which of the two it was.

use half::{bf16, f16};

/// Elements of a piece, unless one row has more.
pub(crate) const PIECE: usize = 16384;

/// Elements in rows, one row after the other.
pub trait Source<T>: Sync {
    /// How many elements there are.
    fn count(&self) -> usize;

    /// Elements `at..at + len`: where they lie, or made in `room`.
    fn piece<'a>(&'a self, at: usize, len: usize, room: &'a mut Room) -> &'a [T];

    /// How many elements of rows of `row` elements are best asked for at once.
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

            fn piece<'a>(&'a self, at: usize, len: usize, _: &'a mut Room) -> &'a [T] {
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

/// A type of numbers that any bytes are, zeros among them.
///
/// # Safety
/// Every pattern of bits is a value; the alignment is at most eight.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty)*) => {$(
        // SAFETY: a number of at most eight bytes without invalid values.
        unsafe impl Plain for $t {}
    )*};
}

plain!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 f16 bf16 [f32; 2]);

/// Memory of a task for pieces that are made.
#[derive(Debug, Default)]
pub struct Room(Vec<u64>);

impl Room {
    /// Room for some elements, with any contents.
    pub fn take<T: Plain>(&mut self, len: usize) -> &mut [T] {
        let words = (len * size_of::<T>()).div_ceil(8);
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
        // SAFETY: the words hold that many bytes, are initialised and borrowed for as long, and are aligned for
        // any plain type, of which every pattern of bits is a value.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

/// Calls `f(first, rows, piece)` for the rows `a..b` of `n` elements, as many at a time as fit a piece.
pub(crate) fn pieces<T>(
    x: &dyn Source<T>,
    n: usize,
    (a, b): (usize, usize),
    room: &mut Room,
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
