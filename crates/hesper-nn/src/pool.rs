//! Pooling over windows, channels last.

use hesper_core::{Array, Pad};

use crate::conv::Sizes;
use crate::error::{Error, Result};
use crate::module::Module;

/// How the elements of a window are reduced.
#[derive(Debug, Clone, Copy)]
enum PoolKind {
    Max,
    Mean,
}

crate::settings!(PoolKind);

/// The largest or the mean element of each window of an array of shape (batch, spatial axes ..., channels).
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::Pool;
/// let x = Array::arange(0.0..16.0, Some(Dtype::Float32))?.reshape(&[1, 4, 4, 1])?;
/// assert_eq!(Pool::max_2d(2)?.forward(&x)?.to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
/// assert_eq!(Pool::mean_2d(2)?.forward(&x)?.to_vec::<f32>()?, [2.5, 4.5, 10.5, 12.5]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Pool {
    kind: PoolKind,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<usize>,
}

macro_rules! pools {
    ($($max:ident $mean:ident $rank:literal $axes:literal;)*) => {
        impl Pool {$(
            #[doc = concat!("Largest elements over ", $axes, ". The windows do not overlap.")]
            pub fn $max(kernel: impl Into<Sizes<$rank>>) -> Result<Self> {
                Pool::new(PoolKind::Max, &kernel.into().get())
            }

            #[doc = concat!("Means over ", $axes, ". The windows do not overlap.")]
            pub fn $mean(kernel: impl Into<Sizes<$rank>>) -> Result<Self> {
                Pool::new(PoolKind::Mean, &kernel.into().get())
            }
        )*}
    };
}

pools! {
    max_1d mean_1d 1 "one axis";
    max_2d mean_2d 2 "two axes";
    max_3d mean_3d 3 "three axes";
}

impl Pool {
    fn new(kind: PoolKind, kernel: &[usize]) -> Result<Self> {
        if kernel.contains(&0) {
            let what = format!("cannot pool over windows of {kernel:?}; each size must be at least 1");
            return Err(Error::argument(what));
        }
        Ok(Pool { kind, kernel: kernel.to_vec(), stride: kernel.to_vec(), padding: vec![0; kernel.len()] })
    }

    /// Sets the steps between windows, one for each axis.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper_nn::Pool;
    /// let x = Array::arange(0.0..4.0, Some(Dtype::Float32))?.reshape(&[1, 4, 1])?;
    /// let y = Pool::max_1d(2)?.with_stride(&[1])?.forward(&x)?; // windows that overlap
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert!(Pool::mean_1d(2)?.with_stride(&[1, 1]).is_err());
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_stride(self, stride: &[usize]) -> Result<Self> {
        if stride.len() != self.kernel.len() || stride.contains(&0) {
            let what = format!(
                "cannot step windows of {:?} by {stride:?}; give a positive step for each axis",
                self.kernel
            );
            return Err(Error::argument(what));
        }
        Ok(Pool { stride: stride.to_vec(), ..self })
    }

    /// Sets the padding on each side, one for each axis. The padding is zero for means and -inf for largest
    /// elements.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper_nn::Pool;
    /// let x = Array::ones(&[1, 2, 2, 2, 1], Dtype::Float32)?;
    /// let y = Pool::mean_3d(2)?.with_padding(&[1, 0, 0])?.forward(&x)?;
    /// assert_eq!((y.shape(), y.to_vec::<f32>()?), (&[1, 2, 1, 1, 1][..], vec![0.5, 0.5]));
    /// assert_eq!(Pool::max_3d(2)?.forward(&x)?.shape(), [1, 1, 1, 1, 1]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_padding(self, padding: &[usize]) -> Result<Self> {
        if padding.len() != self.kernel.len() {
            let what =
                format!("cannot pad windows of {:?} by {padding:?}; give a size for each axis", self.kernel);
            return Err(Error::argument(what));
        }
        Ok(Pool { padding: padding.to_vec(), ..self })
    }

    /// Applies the layer.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let rank = self.kernel.len();
        if x.ndim() != rank + 2 {
            return Err(Error::argument(format!(
                "cannot pool an input of shape {:?} over {rank} axes; it needs a batch axis, {rank} spatial axes and \
                 channels",
                x.shape()
            )));
        }
        let mut x = x.clone();
        if self.padding.iter().any(|size| *size > 0) {
            let own = self.padding.iter().map(|size| (*size, *size));
            let widths: Vec<(usize, usize)> = std::iter::once((0, 0)).chain(own).chain([(0, 0)]).collect();
            let value = match self.kind {
                PoolKind::Max => f64::NEG_INFINITY,
                PoolKind::Mean => 0.0,
            };
            x = x.pad(&widths, &Pad::Constant(value.into()))?;
        }
        let windows = self.windows(&x)?;
        let axes: Vec<isize> = (-(rank as isize) - 1..-1).collect();
        Ok(match self.kind {
            PoolKind::Max => windows.max(&axes)?,
            PoolKind::Mean => windows.mean(&axes)?,
        })
    }

    /// Windows of shape (batch, windows along each axis, elements along each axis, channels).
    fn windows(&self, x: &Array) -> Result<Array> {
        let rank = self.kernel.len();
        let (shape, spatial) = (x.shape(), &x.shape()[1..=rank]);
        let channels = shape[rank + 1];
        let fits =
            |at: usize| self.kernel[at] == self.stride[at] && spatial[at].is_multiple_of(self.kernel[at]);
        if (0..rank).all(fits) {
            let tiles = spatial.iter().zip(&self.kernel).flat_map(|(size, window)| [size / window, *window]);
            let tiles = std::iter::once(shape[0]).chain(tiles).chain([channels]);
            let tiles: Vec<isize> = tiles.map(|length| length as isize).collect();
            let axes = 1..=2 * rank as isize;
            let order = std::iter::once(0).chain(axes.clone().step_by(2)).chain(axes.skip(1).step_by(2));
            let order: Vec<isize> = order.chain([2 * rank as isize + 1]).collect();
            return Ok(x.reshape(&tiles)?.transpose(&order)?);
        }
        let mut steps = vec![1isize; rank + 2];
        for at in (0..=rank).rev() {
            steps[at] = steps[at + 1] * shape[at + 1] as isize;
        }
        let count = |at: usize| match spatial[at].checked_sub(self.kernel[at]) {
            Some(rest) => rest / self.stride[at] + 1,
            None => 0,
        };
        let counts = (0..rank).map(count);
        let lengths = std::iter::once(shape[0]).chain(counts).chain(self.kernel.iter().copied());
        let lengths: Vec<usize> = lengths.chain([channels]).collect();
        let between = (0..rank).map(|at| steps[at + 1] * self.stride[at] as isize);
        let strides: Vec<isize> =
            std::iter::once(steps[0]).chain(between).chain(steps[1..].iter().copied()).collect();
        Ok(x.as_strided(&lengths, &strides, 0)?)
    }
}
