//! Axes as one argument: none named, one, or several, and whether a reduction keeps them.

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::shape;

/// The axes of an op. A negative axis counts from the last.
///
/// An op takes `impl Into<Axes>`: `()` or `..` for all axes, a number for one, an array or a slice of numbers
/// for several. [`axes`] adds that a reduction keeps them with length one.
///
/// ```
/// use hesper::{array, axes};
/// let x = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
/// assert_eq!(x.sum(())?.item::<f32>()?, 21.0);
/// assert_eq!(x.sum(0)?.to_vec::<f32>()?, [5.0, 7.0, 9.0]);
/// assert_eq!(x.sum([0, -1])?.ndim(), 0);
/// assert_eq!(x.sum(axes(1).keepdims())?.shape(), [2, 1]);
/// assert_eq!(x.sum(axes(..).keepdims())?.shape(), [1, 1]);
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axes {
    /// Without a list, all axes.
    list: Option<SmallVec<[isize; 6]>>,
    keepdims: bool,
}

/// Axes with options: see [`Axes::keepdims`].
///
/// ```
/// use hesper::{array, axes};
/// let x = array![[1.0, 3.0]];
/// let centred = x.subtract(x.mean(axes(-1).keepdims())?)?;
/// assert_eq!(centred.to_vec::<f32>()?, [-1.0, 1.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn axes(axes: impl Into<Axes>) -> Axes {
    axes.into()
}

impl Axes {
    /// Makes a reduction keep these axes with length one.
    pub fn keepdims(self) -> Self {
        self.keepdims_if(true)
    }

    /// Makes a reduction keep these axes with length one, or not.
    ///
    /// ```
    /// use hesper::{array, axes};
    /// let x = array![[1, 2], [3, 4]];
    /// for kept in [false, true] {
    ///     assert_eq!(x.sum(axes(0).keepdims_if(kept))?.ndim(), if kept { 2 } else { 1 });
    /// }
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn keepdims_if(self, keepdims: bool) -> Self {
        Axes { keepdims, ..self }
    }

    /// Whether a reduction keeps the axes.
    ///
    /// ```
    /// use hesper::axes;
    /// assert!(axes(0).keepdims().is_kept() && !axes(0).is_kept());
    /// ```
    pub fn is_kept(&self) -> bool {
        self.keepdims
    }

    /// The axes as they were named; `None` stands for all.
    ///
    /// ```
    /// use hesper::axes;
    /// assert_eq!(axes([0, -1]).named(), Some(&[0, -1][..]));
    /// assert_eq!(axes(()).named(), None); // all of them
    /// ```
    pub fn named(&self) -> Option<&[isize]> {
        self.list.as_deref()
    }

    /// The axes of an array of `rank` axes, in order. Fails for one that does not exist or is named twice.
    ///
    /// ```
    /// use hesper::axes;
    /// assert_eq!(axes([-1, 0]).resolve("my op", 3)?[..], [0, 2]);
    /// assert!(axes(3).resolve("my op", 3).is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn resolve(&self, op: &str, rank: usize) -> Result<SmallVec<[usize; 6]>> {
        match &self.list {
            Some(list) => shape::axes(op, list, rank),
            None => Ok((0..rank).collect()),
        }
    }

    /// The axes as they were named, for an op that does not reduce. Fails if they are to be kept.
    pub(crate) fn without_keepdims(self, op: &str) -> Result<Option<SmallVec<[isize; 6]>>> {
        match self.keepdims {
            false => Ok(self.list),
            true => {
                Err(Error::value(op, "cannot take axes with keepdims, which is for reductions; leave it out"))
            }
        }
    }

    /// One axis of an array of `rank` axes, or `None` for the flattened array. Fails for several.
    pub(crate) fn at_most_one(&self, op: &str, rank: usize) -> Result<Option<usize>> {
        match self.named() {
            None => Ok(None),
            Some([one]) => shape::axis(op, *one, rank).map(Some),
            Some(several) => {
                let what =
                    format!("cannot go over axes {several:?}; name one, or none for the flattened array");
                Err(Error::value(op, what))
            }
        }
    }
}

/// All axes.
impl From<()> for Axes {
    fn from((): ()) -> Self {
        Axes { list: None, keepdims: false }
    }
}

/// All axes.
impl From<std::ops::RangeFull> for Axes {
    fn from(_: std::ops::RangeFull) -> Self {
        ().into()
    }
}

impl From<SmallVec<[isize; 6]>> for Axes {
    fn from(list: SmallVec<[isize; 6]>) -> Self {
        Axes { list: Some(list), keepdims: false }
    }
}

impl From<&SmallVec<[isize; 6]>> for Axes {
    fn from(list: &SmallVec<[isize; 6]>) -> Self {
        list.clone().into()
    }
}

impl From<&Axes> for Axes {
    fn from(axes: &Axes) -> Self {
        axes.clone()
    }
}

/// Those named, or all.
impl<T: Into<Axes>> From<Option<T>> for Axes {
    fn from(axes: Option<T>) -> Self {
        axes.map_or_else(|| ().into(), Into::into)
    }
}

macro_rules! from_integers {
    ($($t:ty),*) => {
        $(impl From<$t> for Axes {
            fn from(axis: $t) -> Self {
                [axis].into()
            }
        }

        impl From<&[$t]> for Axes {
            fn from(list: &[$t]) -> Self {
                // An axis that does not fit is out of range as well after it was clamped.
                let list: SmallVec<[isize; 6]> =
                    list.iter().map(|axis| isize::try_from(*axis).unwrap_or(isize::MAX)).collect();
                list.into()
            }
        }

        impl<const N: usize> From<[$t; N]> for Axes {
            fn from(list: [$t; N]) -> Self {
                list[..].into()
            }
        }

        impl<const N: usize> From<&[$t; N]> for Axes {
            fn from(list: &[$t; N]) -> Self {
                list[..].into()
            }
        }

        impl From<Vec<$t>> for Axes {
            fn from(list: Vec<$t>) -> Self {
                list[..].into()
            }
        }

        impl From<&Vec<$t>> for Axes {
            fn from(list: &Vec<$t>) -> Self {
                list[..].into()
            }
        })*
    };
}

from_integers!(i32, isize, usize);
