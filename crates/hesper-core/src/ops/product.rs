//! Products of vectors and tensors, composed of matrix products and element-wise ops.

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::graph::Array;
use crate::shape::axis;

type Axes = SmallVec<[isize; 6]>;

fn lengths(shape: &[usize]) -> Axes {
    shape.iter().map(|length| *length as isize).collect()
}

impl Array {
    /// The sums of products over the last axes of both; with a number, the product.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1.0, 2.0, 3.0].inner(&array![4.0, 5.0, 6.0])?.item::<f32>()?, 32.0);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn inner(&self, other: &Array) -> Result<Array> {
        if self.ndim() == 0 || other.ndim() == 0 {
            return self.multiply(other);
        }
        let (last, others_last) = (self.ndim() - 1, other.ndim() - 1);
        if self.shape()[last] != other.shape()[others_last] {
            let what = format!("last axes differ: shapes {:?} and {:?}", self.shape(), other.shape());
            return Err(Error::shape("inner", what).with_shapes([self, other]));
        }
        self.tensordot(other, &[last as isize], &[others_last as isize])
    }

    /// The product of every element with every element of another array, both flattened.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 2].outer(&array![3, 4])?.to_vec::<i32>()?, [3, 4, 6, 8]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn outer(&self, other: &Array) -> Result<Array> {
        let column = self.reshape(&[self.size() as isize, 1])?;
        column.multiply(other.flatten(0, -1)?)
    }

    /// The sums of products over axes of this array paired with axes of another.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let (a, b) = (Array::ones(&[2, 3, 4], Dtype::Float32)?, Array::ones(&[4, 3, 5], Dtype::Float32)?);
    /// let y = a.tensordot(&b, &[1, 2], &[1, 0])?;
    /// assert_eq!((y.shape(), y.max(())?.item::<f32>()?), (&[2, 5][..], 12.0));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn tensordot(&self, other: &Array, axes: &[isize], others: &[isize]) -> Result<Array> {
        let fail = |what: &str| {
            let (a, b) = (self.shape(), other.shape());
            Err(Error::shape("tensordot", format!("{what}: axes {axes:?} of {a:?} and {others:?} of {b:?}"))
                .with_shapes([self, other]))
        };
        if axes.len() != others.len() {
            return fail("different numbers of axes");
        }
        crate::shape::axes("tensordot", axes, self.ndim())?;
        crate::shape::axes("tensordot", others, other.ndim())?;
        let resolve = |list: &[isize], rank: usize| -> Result<SmallVec<[usize; 6]>> {
            list.iter().map(|one| axis("tensordot", *one, rank)).collect()
        };
        let (axes, others) = (resolve(axes, self.ndim())?, resolve(others, other.ndim())?);
        if axes.iter().zip(&others).any(|(a, b)| self.shape()[*a] != other.shape()[*b]) {
            return fail("lengths differ");
        }
        let kept = |rank: usize, used: &[usize]| -> SmallVec<[usize; 6]> {
            (0..rank).filter(|at| !used.contains(at)).collect()
        };
        let (mine, theirs) = (kept(self.ndim(), &axes), kept(other.ndim(), &others));
        let to_axes =
            |list: &mut dyn Iterator<Item = &usize>| -> Axes { list.map(|at| *at as isize).collect() };
        let k: usize = axes.iter().map(|at| self.shape()[*at]).product();
        let m: usize = mine.iter().map(|at| self.shape()[*at]).product();
        let n: usize = theirs.iter().map(|at| other.shape()[*at]).product();
        let left = self.transpose(&to_axes(&mut mine.iter().chain(&axes)))?;
        let right = other.transpose(&to_axes(&mut others.iter().chain(&theirs)))?;
        let shape: Axes = mine
            .iter()
            .map(|at| self.shape()[*at] as isize)
            .chain(theirs.iter().map(|at| other.shape()[*at] as isize))
            .collect();
        let product =
            left.reshape(&[m as isize, k as isize])?.matmul(&right.reshape(&[k as isize, n as isize])?)?;
        product.reshape(&shape)
    }

    /// The sum of products along an axis of both arrays, whose other axes broadcast. Of complex numbers the
    /// left ones are conjugated.
    ///
    /// ```
    /// use hesper::array;
    /// let (a, b) = (array![[1, 2], [3, 4]], array![10, 1]);
    /// assert_eq!(a.vecdot(&b, -1)?.to_vec::<i32>()?, [12, 34]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn vecdot(&self, other: &Array, along: isize) -> Result<Array> {
        if self.ndim() == 0 || other.ndim() == 0 {
            return Err(Error::value("vecdot", "takes arrays of at least one axis"));
        }
        let (a, b) = (self.shape(), other.shape());
        let length = a[axis("vecdot", along, self.ndim())?];
        if !axis("vecdot", along, other.ndim()).is_ok_and(|theirs| b[theirs] == length) {
            let what = format!("axis {along} is not of one length in both: shapes {a:?} and {b:?}");
            return Err(Error::shape("vecdot", what).with_shapes([self, other]));
        }
        self.conjugate()?.multiply(other)?.sum(along)
    }

    /// The Kronecker product: every element times the whole other array, laid out in blocks.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 10].kron(&array![1, 2])?.to_vec::<i32>()?, [1, 2, 10, 20]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn kron(&self, other: &Array) -> Result<Array> {
        if self.size() == 0 || other.size() == 0 {
            let what = format!("shapes {:?} and {:?} have no elements", self.shape(), other.shape());
            return Err(Error::shape("kron", what).with_shapes([self, other]));
        }
        let rank = self.ndim().max(other.ndim());
        let padded = |array: &Array| -> Axes {
            let missing = rank - array.ndim();
            std::iter::repeat_n(1, missing).chain(lengths(array.shape())).collect()
        };
        let (mine, theirs) = (padded(self), padded(other));
        let left: Axes = mine.iter().flat_map(|length| [*length, 1]).collect();
        let right: Axes = theirs.iter().flat_map(|length| [1, *length]).collect();
        let shape: Axes = mine.iter().zip(&theirs).map(|(a, b)| a * b).collect();
        self.reshape(&left)?.multiply(other.reshape(&right)?)?.reshape(&shape)
    }
}
