//! Sources of rows: memory, or a producer that computes them piece by piece.
//!
//! A kernel asks for pieces that fit the cache. Rows in memory are used in place. Other rows are computed
//! into the [`RowScratch`] of the kernel, and never written to memory. Results do not depend on the source.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

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

    /// Calls `f` with every `part` of the elements `at..at + len` and its number; the last may be shorter.
    #[doc(hidden)]
    fn parts(
        &self,
        at: usize,
        len: usize,
        part: usize,
        room: &mut RowScratch,
        f: &mut dyn FnMut(usize, PackedLines<'_, T>),
    ) {
        for (i, part) in self.piece(at, len, room).chunks(part).enumerate() {
            f(i, PackedLines { x: part, len: part.len(), step: part.len(), first: 0, count: part.len() });
        }
    }
}

/// Elements that lie in lines of equal length, which may have gaps between them.
#[derive(Clone, Copy, Debug)]
pub struct PackedLines<'a, T> {
    /// The lines.
    pub(super) x: &'a [T],
    /// Elements of a line, and the distance of lines.
    pub(super) len: usize,
    pub(super) step: usize,
    /// The first element that counts, and how many there are.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<'a, T: Copy> PackedLines<'a, T> {
    /// Some of the elements.
    pub(super) fn range(self, range: Range<usize>) -> Self {
        Self { first: self.first + range.start, count: range.len(), ..self }
    }

    /// The contiguous stretches of the elements, in order.
    pub(super) fn stretches(self) -> impl Iterator<Item = &'a [T]> {
        let (mut at, end) = (self.first, self.first + self.count);
        std::iter::from_fn(move || {
            let (line, skipped) = (at / self.len.max(1), at % self.len.max(1));
            let n = (self.len - skipped).min(end - at);
            at += n;
            (n > 0).then(|| &self.x[line * self.step + skipped..][..n])
        })
    }

    /// The elements, if they are contiguous.
    pub(super) fn as_slice(self) -> Option<&'a [T]> {
        let mut stretches = self.stretches();
        stretches.next().filter(|stretch| stretch.len() == self.count)
    }

    /// Copies the elements to contiguous memory.
    pub(super) fn join(self, to: &mut [T]) {
        let mut to = to;
        for stretch in self.stretches() {
            let (head, rest) = to.split_at_mut(stretch.len());
            head.copy_from_slice(stretch);
            to = rest;
        }
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

/// Scratch memory of a task for computed pieces. What a task leaves serves the next one: fresh memory costs a
/// fault for each of its pages.
#[derive(Debug, Default)]
pub struct RowScratch(Vec<CacheLine>);

/// Vectors that are stored to aligned memory do not cross cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct CacheLine(#[allow(dead_code, reason = "read as elements")] [u64; 8]);

/// Scratch memory that tasks have left, and its lines.
struct Left {
    memory: Vec<Vec<CacheLine>>,
    lines: usize,
}

/// The most lines that are kept: 16 MiB.
const MAX_LEFT_LINES: usize = (16 << 20) / size_of::<CacheLine>();

static LEFT: Mutex<Left> = Mutex::new(Left { memory: Vec::new(), lines: 0 });

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl RowScratch {
    /// Room for `len` elements, with unspecified contents.
    pub fn take<T: Plain>(&mut self, len: usize) -> &mut [T] {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<CacheLine>());
        if self.0.is_empty() {
            let mut left = left();
            self.0 = left.memory.pop().unwrap_or_default();
            left.lines -= self.0.len();
        }
        if self.0.len() < lines {
            self.0.clear();
            self.0.resize(lines, CacheLine([0; 8]));
        }
        // SAFETY: the lines hold that many bytes, are initialised and borrowed for as long, and are aligned
        // for any plain type, of which every pattern of bits is a value.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

impl Drop for RowScratch {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let mut left = left();
        if left.lines + self.0.len() <= MAX_LEFT_LINES {
            left.lines += self.0.len();
            left.memory.push(std::mem::take(&mut self.0));
        }
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
