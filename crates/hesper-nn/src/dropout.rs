//! Dropout.

use hesper_core::{Array, random};

use crate::error::{Error, Result};
use crate::module::{Buffer, Module, Training};

/// Sets random elements to zero in training mode, and scales the others so that the mean stays the same.
///
/// The random key is a buffer: a compiled training step drops other elements each time, and training that
/// resumes from a checkpoint drops the same ones as without interruption.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::{Dropout, ModuleExt};
/// let mut layer = Dropout::new(0.5)?;
/// let x = Array::ones(&[100], Dtype::Float32)?;
/// assert!(layer.forward(&x)?.to_vec::<f32>()?.iter().all(|one| *one == 0.0 || *one == 2.0));
/// layer.train(false);
/// assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, x.to_vec::<f32>()?);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Dropout {
    p: f32,
    /// The number of spatial axes of a channel that is dropped as a whole; 0 to drop single elements.
    spatial_axes: usize,
    key: Buffer,
    training: Training,
}

impl Dropout {
    /// A layer that drops elements with probability `p`.
    pub fn new(p: f32) -> Result<Self> {
        if !(0.0..1.0).contains(&p) {
            let what = format!("cannot drop elements with probability {p}; it must be in [0, 1)");
            return Err(Error::argument(what));
        }
        let key = Buffer::transient(random::bits(&[2], None)?);
        Ok(Dropout { p, spatial_axes: 0, key, training: Training::default() })
    }

    /// Drops whole channels of images of shape (batch, height, width, channels), or without the batch axis.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper_nn::Dropout;
    /// let y = Dropout::new_2d(0.5)?.forward(&Array::ones(&[1, 4, 4, 8], Dtype::Float32)?)?;
    /// let sums = y.sum([1, 2])?.to_vec::<f32>()?; // a channel is kept or dropped as a whole
    /// assert!(sums.iter().all(|sum| *sum == 0.0 || *sum == 32.0));
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn new_2d(p: f32) -> Result<Self> {
        Ok(Dropout { spatial_axes: 2, ..Dropout::new(p)? })
    }

    /// Drops whole channels of volumes of shape (batch, depth, height, width, channels), or without the batch
    /// axis.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper_nn::Dropout;
    /// let y = Dropout::new_3d(0.5)?.forward(&Array::ones(&[1, 2, 2, 2, 8], Dtype::Float32)?)?;
    /// assert!(y.sum([1, 2, 3])?.to_vec::<f32>()?.iter().all(|sum| *sum == 0.0 || *sum == 16.0));
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn new_3d(p: f32) -> Result<Self> {
        Ok(Dropout { spatial_axes: 3, ..Dropout::new(p)? })
    }

    /// Applies the layer.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let (spatial, rank) = (self.spatial_axes, x.ndim());
        if spatial > 0 && !(spatial + 1..=spatial + 2).contains(&rank) {
            return Err(Error::argument(format!(
                "cannot drop channels of shape {:?}; give {spatial} spatial axes and channels, optionally after a batch \
                 axis",
                x.shape()
            )));
        }
        if self.p == 0.0 || !self.training.is_on() {
            return Ok(x.clone());
        }
        let mut shape = x.shape().to_vec();
        if spatial > 0 {
            shape[rank - 1 - spatial..rank - 1].fill(1);
        }
        let keys = random::split(&self.key.get(), 2)?.unstack(0)?;
        let [next, own] = &keys[..] else { return Err(Error::argument("cannot split the key of a dropout")) };
        self.key.set(next.clone());
        let keep = 1.0 - self.p;
        let kept = random::bernoulli(keep, Some(&shape), Some(own))?;
        Ok(kept.multiply(x)?.multiply(1.0 / keep)?)
    }
}
