//! `s![.., 1..3, ::2, NEW]`: a list of indices as it is written in NumPy, and what may stand in it.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::index::Index;
use crate::Dtype;
use crate::graph::Array;

/// A list of indices, for [`Array::index`](crate::Array::index) and
/// [`Array::index_update`](crate::Array::index_update).
///
/// | written | meaning | NumPy |
/// |---|---|---|
/// | `2`, `-1` | one element; the axis goes | `2`, `-1` |
/// | `..` | the whole axis | `:` |
/// | `1..3`, `1..`, `..-1`, `1..=3` | a range; negative bounds count from the end | `1:3`, `1:`, `:-1`, `1:4` |
/// | `::2`, `::-1` | every second element; all from the end | `::2`, `::-1` |
/// | `1..7;2` | a range by steps | `1:7:2` |
/// | `...` | as many whole axes as are left over | `...` |
/// | `NEW` | an axis of length one | `None` |
/// | an array of integers | the elements at these indices | the same |
/// | an array of bools | the elements where it is true | the same |
///
/// ```
/// use hesper::{Array, s};
/// let x = Array::try_from_slice(&(0..24).collect::<Vec<i32>>(), &[2, 3, 4])?;
/// assert_eq!(x.index(s![1, .., -1])?.to_vec::<i32>()?, [15, 19, 23]);
/// assert_eq!(x.index(s![..., ::2, NEW])?.shape(), [2, 3, 2, 1]);
/// assert_eq!(x.index(s![0, 0, 3..0;-1])?.to_vec::<i32>()?, [3, 2, 1]);
/// # Ok::<(), hesper::Error>(())
/// ```
#[macro_export]
macro_rules! s {
    (@list [$($done:expr,)*]) => { [$($done),*] };
    (@list [$($done:expr,)*] ... $(, $($rest:tt)*)?) => {
        $crate::s!(@list [$($done,)* $crate::Index::Ellipsis,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] NEW $(, $($rest:tt)*)?) => {
        $crate::s!(@list [$($done,)* $crate::Index::NewAxis,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] :: $step:expr $(, $($rest:tt)*)?) => {
        $crate::s!(@list [$($done,)* $crate::Index::slice(None, None, $step),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] $range:expr ; $step:expr $(, $($rest:tt)*)?) => {
        $crate::s!(@list [$($done,)* $crate::Index::from($range).step_by($step),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] $index:expr $(, $($rest:tt)*)?) => {
        $crate::s!(@list [$($done,)* $crate::Index::from($index),] $($($rest)*)?)
    };
    ($($list:tt)*) => {{
        // A negative bound counts from the end.
        #[allow(clippy::reversed_empty_ranges)]
        let list: [$crate::Index; _] = $crate::s!(@list [] $($list)*);
        list
    }};
}

impl Index {
    /// The same range by steps. The bounds stay; an index that is no range stays as it is.
    ///
    /// ```
    /// use hesper::{Index, array};
    /// let x = array![1, 2, 3, 4, 5];
    /// assert_eq!(x.index(&[Index::from(1..).step_by(2)])?.to_vec::<i32>()?, [2, 4]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn step_by(self, by: isize) -> Self {
        match self {
            Index::Slice { start, stop, .. } => Index::Slice { start, stop, step: by },
            other => other,
        }
    }
}

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Self {
        Index::all()
    }
}

/// A mask if the array is of bools, else indices.
impl From<Array> for Index {
    fn from(array: Array) -> Self {
        if array.dtype() == Dtype::Bool { Index::Mask(array) } else { Index::Array(array) }
    }
}

/// A mask if the array is of bools, else indices.
impl From<&Array> for Index {
    fn from(array: &Array) -> Self {
        array.clone().into()
    }
}

/// The bound behind a last element: behind the last of all there is no bound.
fn behind(last: isize) -> Option<isize> {
    if last == -1 { None } else { Some(last.saturating_add(1)) }
}

/// A number that does not fit is out of range as well after it was clamped.
fn clamped<T: TryInto<isize>>(number: T) -> isize {
    number.try_into().unwrap_or(isize::MAX)
}

macro_rules! from_integers {
    ($($t:ty),*) => {
        $(impl From<$t> for Index {
            fn from(index: $t) -> Self {
                Index::Int(clamped(index))
            }
        }

        impl From<Range<$t>> for Index {
            fn from(range: Range<$t>) -> Self {
                Index::slice(clamped(range.start), clamped(range.end), 1)
            }
        }

        impl From<RangeFrom<$t>> for Index {
            fn from(range: RangeFrom<$t>) -> Self {
                Index::slice(clamped(range.start), None, 1)
            }
        }

        impl From<RangeTo<$t>> for Index {
            fn from(range: RangeTo<$t>) -> Self {
                Index::slice(None, clamped(range.end), 1)
            }
        }

        impl From<RangeInclusive<$t>> for Index {
            fn from(range: RangeInclusive<$t>) -> Self {
                Index::slice(clamped(*range.start()), behind(clamped(*range.end())), 1)
            }
        }

        impl From<RangeToInclusive<$t>> for Index {
            fn from(range: RangeToInclusive<$t>) -> Self {
                Index::slice(None, behind(clamped(range.end)), 1)
            }
        })*
    };
}

from_integers!(i32, isize, usize);
