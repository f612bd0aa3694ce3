//! Sorting networks: up to sixteen vectors of words at once, in registers.
//!
//! The vectors are the rows of a matrix. Its columns are sorted by comparing whole rows. Columns are then
//! merged two by two, by comparing lanes with neighbouring lanes once and rows with rows again. A merged
//! group of columns is sorted down its first column, then down its second. Finally the matrix is transposed,
//! so that columns become contiguous.

use super::lanes::Lanes;
use super::words::Word;

macro_rules! compare {
    ($v:ident, $a:expr, $b:expr) => {
        ($v[$a], $v[$b]) = (L::min($v[$a], $v[$b]), L::max($v[$a], $v[$b]))
    };
}

/// The first step of a merge of columns in groups of `2 * $d`, the second half of each reversed.
macro_rules! cross {
    ($v:ident, $x:literal, $d:literal, [$(($i:literal, $j:literal))*]) => {
        $(
            let (a, b) = ($v[$i], $v[$j]);
            let (turned_a, turned_b) = (L::swap::<$x>(a), L::swap::<$x>(b));
            $v[$i] = L::pick::<$d>(L::min(a, turned_b), L::max(a, turned_b));
            $v[$j] = L::pick::<$d>(L::min(b, turned_a), L::max(b, turned_a));
        )*
    };
}

/// Compares columns at a distance of `$d`.
macro_rules! columns {
    ($v:ident, $d:literal, [$($i:literal)*]) => {
        $(
            let swapped = L::swap::<$d>($v[$i]);
            $v[$i] = L::pick::<$d>(L::min($v[$i], swapped), L::max($v[$i], swapped));
        )*
    };
}

/// Compares rows with rows.
macro_rules! rows {
    ($v:ident, [$(($a:literal, $b:literal))*]) => {
        $(compare!($v, $a, $b);)*
    };
}

/// One step of a transpose: interleaves the words of the halves.
macro_rules! turn {
    ($v:ident, $old:ident, [$(($i:literal, $j:literal))*]) => {
        $(($v[2 * $i], $v[2 * $i + 1]) = L::zip($old[$i], $old[$j]);)*
    };
}

macro_rules! load {
    ($v:ident, $from:ident, $n:ident, [$($i:literal)*]) => {
        $(
            if $n >= ($i + 1) * L::N {
                $v[$i] = L::load($from.add($i * L::N));
            } else if $n > $i * L::N {
                $v[$i] = L::load_n($from.add($i * L::N), $n - $i * L::N);
            }
        )*
    };
}

macro_rules! store {
    ($v:ident, $to:ident, $n:ident, [$($i:literal)*]) => {
        $(
            if $n >= ($i + 1) * L::N {
                L::store($to.add($i * L::N), $v[$i]);
            } else if $n > $i * L::N {
                L::store_n($to.add($i * L::N), $v[$i], $n - $i * L::N);
            }
        )*
    };
}

/// Defines a function that sorts as many words as fit into `$rows` vectors. Arguments: the rows, pairs of
/// rows from both ends, a network for a column, the steps of a merge down a column, and the interleavings of
/// the transpose.
macro_rules! sorter {
    ($name:ident, $rows:literal, $all:tt, $ends:tt, $network:tt, $merge:tt, [$($turn:ident)*], $halves:tt) => {
        // Not inlined: in unoptimized builds every step takes its own stack space, too much for recursive
        // callers.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
        #[inline(never)]
        unsafe fn $name<L: Lanes>(from: *const L::W, to: *mut L::W, n: usize) {
            // SAFETY: the caller's promise.
            unsafe {
                let mut v = [L::splat(L::W::MAX); $rows];
                load!(v, from, n, $all);
                rows!(v, $network);
                cross!(v, 1, 1, $ends);
                rows!(v, $merge);
                cross!(v, 3, 2, $ends);
                columns!(v, 1, $all);
                rows!(v, $merge);
                cross!(v, 7, 4, $ends);
                columns!(v, 2, $all);
                columns!(v, 1, $all);
                rows!(v, $merge);
                if L::N == 16 {
                    cross!(v, 15, 8, $ends);
                    columns!(v, 4, $all);
                    columns!(v, 2, $all);
                    columns!(v, 1, $all);
                    rows!(v, $merge);
                }
                $(
                    let $turn = v;
                    turn!(v, $turn, $halves);
                )*
                store!(v, to, n, $all);
            }
        }
    };
}

sorter!(one, 1, [0], [(0, 0)], [], [], [], []);

sorter!(
    two, 2,
    [0 1],
    [(0, 1)],
    [(0, 1)],
    [(0, 1)],
    [a],
    [(0, 1)]
);

sorter!(
    four, 4,
    [0 1 2 3],
    [(0, 3) (1, 2)],
    [(0, 2) (1, 3) (0, 1) (2, 3) (1, 2)],
    [(0, 2) (1, 3) (0, 1) (2, 3)],
    [a b],
    [(0, 2) (1, 3)]
);

sorter!(
    eight, 8,
    [0 1 2 3 4 5 6 7],
    [(0, 7) (1, 6) (2, 5) (3, 4)],
    [(0, 2) (1, 3) (4, 6) (5, 7) (0, 4) (1, 5) (2, 6) (3, 7) (0, 1) (2, 3) (4, 5) (6, 7) (2, 4) (3, 5) (1, 4) (3, 6)
     (1, 2) (3, 4) (5, 6)],
    [(0, 4) (1, 5) (2, 6) (3, 7) (0, 2) (1, 3) (4, 6) (5, 7) (0, 1) (2, 3) (4, 5) (6, 7)],
    [a b c],
    [(0, 4) (1, 5) (2, 6) (3, 7)]
);

sorter!(
    sixteen, 16,
    [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15],
    [(0, 15) (1, 14) (2, 13) (3, 12) (4, 11) (5, 10) (6, 9) (7, 8)],
    [(0, 13) (1, 12) (2, 15) (3, 14) (4, 8) (5, 6) (7, 11) (9, 10) (0, 5) (1, 7) (2, 9) (3, 4) (6, 13) (8, 14) (10, 15)
     (11, 12) (0, 1) (2, 3) (4, 5) (6, 8) (7, 9) (10, 11) (12, 13) (14, 15) (0, 2) (1, 3) (4, 10) (5, 11) (6, 7) (8, 9)
     (12, 14) (13, 15) (1, 2) (3, 12) (4, 6) (5, 7) (8, 10) (9, 11) (13, 14) (1, 4) (2, 6) (5, 8) (7, 10) (9, 13)
     (11, 14) (2, 4) (3, 6) (9, 12) (11, 13) (3, 5) (6, 8) (7, 9) (10, 12) (3, 4) (5, 6) (7, 8) (9, 10) (11, 12) (6, 7)
     (8, 9)],
    [(0, 8) (1, 9) (2, 10) (3, 11) (4, 12) (5, 13) (6, 14) (7, 15) (0, 4) (1, 5) (2, 6) (3, 7) (8, 12) (9, 13) (10, 14)
     (11, 15) (0, 2) (1, 3) (4, 6) (5, 7) (8, 10) (9, 11) (12, 14) (13, 15) (0, 1) (2, 3) (4, 5) (6, 7) (8, 9) (10, 11)
     (12, 13) (14, 15)],
    [a b c d],
    [(0, 8) (1, 9) (2, 10) (3, 11) (4, 12) (5, 13) (6, 14) (7, 15)]
);

/// Most words that [`sort`] accepts.
pub(super) const fn most<L: Lanes>() -> usize {
    16 * L::N
}

/// Sorts up to [`most`] words, in place or to another address.
///
/// # Safety
/// The level's instructions were detected; source and destination hold `n` words, and are the same or do not
/// overlap.
#[inline(always)]
pub(super) unsafe fn sort<L: Lanes>(from: *const L::W, to: *mut L::W, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if n <= L::N {
            one::<L>(from, to, n);
        } else if n <= 2 * L::N {
            two::<L>(from, to, n);
        } else if n <= 4 * L::N {
            four::<L>(from, to, n);
        } else if n <= 8 * L::N {
            eight::<L>(from, to, n);
        } else {
            sixteen::<L>(from, to, n);
        }
    }
}
