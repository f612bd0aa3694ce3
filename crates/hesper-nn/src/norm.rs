//! Normalization, channels last.

use hesper_core::{Array, Dtype, axes, fast};

use crate::error::{Error, Result};
use crate::module::{Buffer, Module, Parameter, Training};

const EPS: f32 = 1e-5;

fn ones(dims: usize) -> Result<Parameter> {
    Ok(Array::ones(&[dims], Dtype::Float32)?.into())
}

fn zeros(dims: usize) -> Result<Parameter> {
    Ok(Array::zeros(&[dims], Dtype::Float32)?.into())
}

/// A weight and a bias for each channel.
#[derive(Module, Clone)]
struct Affine {
    weight: Parameter,
    bias: Parameter,
}

impl Affine {
    fn new(dims: usize) -> Result<Self> {
        Ok(Affine { weight: ones(dims)?, bias: zeros(dims)? })
    }
}

/// `x` times the weight plus the bias, if there are any.
fn scaled(affine: Option<&Affine>, x: Array) -> Result<Array> {
    match affine {
        Some(Affine { weight, bias }) => Ok(weight.multiply(&x)?.add(bias.get())?),
        None => Ok(x),
    }
}

/// Divides by the root mean square over the last axis and multiplies by a weight.
///
/// ```
/// use hesper::array;
/// use hesper_nn::RmsNorm;
/// let y = RmsNorm::new(2)?.with_eps(0.0).forward(&array![[3.0, 3.0]])?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct RmsNorm {
    weight: Parameter,
    eps: f32,
}

impl RmsNorm {
    /// A norm whose weight starts with ones; 1e-5 is added to the mean square.
    pub fn new(dims: usize) -> Result<Self> {
        Ok(RmsNorm { weight: ones(dims)?, eps: EPS })
    }

    /// A norm with a weight; `eps` is added to the mean square.
    ///
    /// ```
    /// use hesper::array;
    /// use hesper_nn::RmsNorm;
    /// let y = RmsNorm::from_weight(array![1.0, 10.0], 0.0).forward(&array![[3.0, 3.0]])?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 10.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn from_weight(weight: Array, eps: f32) -> Self {
        RmsNorm { weight: weight.into(), eps }
    }

    /// Sets `eps`, which is added to the mean square.
    pub fn with_eps(self, eps: f32) -> Self {
        RmsNorm { eps, ..self }
    }

    /// Applies the norm.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        Ok(fast::rms_norm(x, Some(self.weight.get()), self.eps)?)
    }
}

/// Subtracts the mean over the last axis, divides by the standard deviation, multiplies by a weight and adds
/// a bias.
///
/// ```
/// use hesper::array;
/// use hesper_nn::LayerNorm;
/// let y = LayerNorm::new(2)?.with_eps(0.0).forward(&array![[1.0, 3.0]])?;
/// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct LayerNorm {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    eps: f32,
}

impl LayerNorm {
    /// A norm whose weight starts with ones and whose bias starts with zeros; 1e-5 is added to the variance.
    pub fn new(dims: usize) -> Result<Self> {
        Ok(LayerNorm { weight: Some(ones(dims)?), bias: Some(zeros(dims)?), eps: EPS })
    }

    /// A norm with weight and bias; `eps` is added to the variance.
    ///
    /// ```
    /// use hesper::array;
    /// use hesper_nn::LayerNorm;
    /// let norm = LayerNorm::from_weight(array![1.0, 1.0], Some(array![5.0, 5.0]), 0.0);
    /// assert_eq!(norm.forward(&array![[1.0, 3.0]])?.to_vec::<f32>()?, [4.0, 6.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn from_weight(weight: Array, bias: Option<Array>, eps: f32) -> Self {
        LayerNorm { weight: Some(weight.into()), bias: bias.map(Parameter::new), eps }
    }

    /// The same norm without its bias.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{LayerNorm, ModuleExt};
    /// assert_eq!(LayerNorm::new(8)?.without_bias().count(), 8);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_bias(self) -> Self {
        LayerNorm { bias: None, ..self }
    }

    /// The same norm without weight and bias.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{LayerNorm, ModuleExt};
    /// assert_eq!(LayerNorm::new(8)?.without_affine().count(), 0);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_affine(self) -> Self {
        LayerNorm { weight: None, bias: None, ..self }
    }

    /// Sets `eps`, which is added to the variance.
    pub fn with_eps(self, eps: f32) -> Self {
        LayerNorm { eps, ..self }
    }

    /// Applies the norm.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        Ok(fast::layer_norm(x, weight, bias, self.eps)?)
    }
}

/// A root mean square norm or a layer norm.
///
/// ```
/// use hesper::array;
/// use hesper_nn::{LayerNorm, Norm, RmsNorm};
/// let norms: [Norm; 2] = [RmsNorm::new(2)?.into(), LayerNorm::new(2)?.into()];
/// for norm in norms {
///     assert_eq!(norm.forward(&array![[1.0, 3.0]])?.shape(), [1, 2]);
/// }
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub enum Norm {
    /// Root mean square.
    Rms(RmsNorm),
    /// Mean and variance.
    Layer(LayerNorm),
}

impl From<RmsNorm> for Norm {
    fn from(norm: RmsNorm) -> Self {
        Norm::Rms(norm)
    }
}

impl From<LayerNorm> for Norm {
    fn from(norm: LayerNorm) -> Self {
        Norm::Layer(norm)
    }
}

impl Norm {
    /// Applies the norm.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        match self {
            Norm::Rms(norm) => norm.forward(x),
            Norm::Layer(norm) => norm.forward(x),
        }
    }
}

/// Normalizes every channel of every sample over its spatial axes.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::InstanceNorm;
/// let x = random::normal(&[2, 8, 8, 3], Dtype::Float32, 5.0, 2.0, None)?;
/// assert!(InstanceNorm::new().forward(&x)?.mean(())?.item::<f32>()?.abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct InstanceNorm {
    #[module(flatten)]
    affine: Option<Affine>,
    eps: f32,
}

impl InstanceNorm {
    /// A norm without weight and bias; 1e-5 is added to the variance.
    pub fn new() -> Self {
        InstanceNorm { affine: None, eps: EPS }
    }

    /// A norm of `dims` channels with a weight and a bias.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{InstanceNorm, ModuleExt};
    /// let norm = InstanceNorm::with_affine(3)?.with_eps(1e-6);
    /// assert_eq!(norm.count(), 6);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_affine(dims: usize) -> Result<Self> {
        Ok(InstanceNorm { affine: Some(Affine::new(dims)?), eps: EPS })
    }

    /// Sets `eps`, which is added to the variance.
    pub fn with_eps(self, eps: f32) -> Self {
        InstanceNorm { eps, ..self }
    }

    /// Applies the norm to an array of shape (batch, spatial axes ..., channels).
    pub fn forward(&self, x: &Array) -> Result<Array> {
        if x.ndim() < 3 {
            return Err(Error::argument(format!(
                "cannot normalize an input of shape {:?} over its spatial axes; it needs a batch axis, at least one \
                 spatial axis and channels",
                x.shape()
            )));
        }
        let second = x.moveaxis(-1, 1)?;
        let rows = fast::layer_norm(&second.flatten(2, -1)?, None, None, self.eps)?;
        scaled(self.affine.as_ref(), rows.reshape(second.shape())?.moveaxis(1, -1)?)
    }
}

impl Default for InstanceNorm {
    fn default() -> Self {
        Self::new()
    }
}

/// Normalizes groups of channels over the spatial axes and the group.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::GroupNorm;
/// let x = random::normal(&[2, 8, 8, 6], Dtype::Float32, 5.0, 2.0, None)?;
/// assert!(GroupNorm::new(3, 6)?.forward(&x)?.mean(())?.item::<f32>()?.abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct GroupNorm {
    #[module(flatten)]
    affine: Option<Affine>,
    groups: usize,
    eps: f32,
    adjacent: bool,
}

impl GroupNorm {
    /// A norm of `groups` groups of `dims` channels, the channels of a group `groups` apart.
    pub fn new(groups: usize, dims: usize) -> Result<Self> {
        if groups == 0 || !dims.is_multiple_of(groups) {
            return Err(Error::argument(format!(
                "cannot divide {dims} channels into {groups} groups; use a divisor of {dims}"
            )));
        }
        Ok(GroupNorm { affine: Some(Affine::new(dims)?), groups, eps: EPS, adjacent: false })
    }

    /// The same norm without weight and bias.
    pub fn without_affine(self) -> Self {
        GroupNorm { affine: None, ..self }
    }

    /// Makes groups of adjacent channels, as PyTorch does.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper_nn::GroupNorm;
    /// let norm = GroupNorm::new(2, 4)?.with_adjacent_channels().without_affine().with_eps(1e-6);
    /// let x = Array::try_from_slice(&[1f32, 3.0, 10.0, 30.0], &[1, 1, 4])?; // groups: the first two, the last two
    /// let y = norm.forward(&x)?.round(2)?;
    /// assert_eq!((y.dtype(), y.to_vec::<f32>()?), (Dtype::Float32, vec![-1.0, 1.0, -1.0, 1.0]));
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_adjacent_channels(self) -> Self {
        GroupNorm { adjacent: true, ..self }
    }

    /// Sets `eps`, which is added to the variance.
    pub fn with_eps(self, eps: f32) -> Self {
        GroupNorm { eps, ..self }
    }

    /// Applies the norm to an array of shape (batch, spatial axes ..., channels).
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let (&[batch, ..], Some(&channels)) = (x.shape(), x.shape().last()) else {
            let what = format!("cannot normalize an input of shape {:?}; it needs a batch axis", x.shape());
            return Err(Error::argument(what));
        };
        let (batch, groups) = (batch as isize, self.groups as isize);
        let y = if self.adjacent {
            let pixels = x.reshape(&[batch, -1, groups, (channels / self.groups) as isize])?;
            let by_group = pixels.swapaxes(1, 2)?;
            let rows = fast::layer_norm(&by_group.flatten(2, -1)?, None, None, self.eps)?;
            rows.reshape(by_group.shape())?.swapaxes(1, 2)?
        } else {
            let columns = x.reshape(&[batch, -1, groups])?;
            let (mean, variance) = (columns.mean(axes(1).keepdims())?, columns.var(axes(1).keepdims(), 0)?);
            columns.subtract(&mean)?.multiply(variance.add(self.eps)?.rsqrt()?)?
        };
        scaled(self.affine.as_ref(), y.reshape(x.shape())?)
    }
}

/// Normalizes every channel over the batch and the spatial axes.
///
/// In training mode it uses the statistics of the batch and updates the running statistics, which are
/// buffers. Otherwise it uses the running statistics if it has them, else those of the batch.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::{BatchNorm, ModuleExt};
/// let mut layer = BatchNorm::new(3)?;
/// let x = random::normal(&[64, 3], Dtype::Float32, 5.0, 2.0, None)?;
/// assert!(layer.forward(&x)?.mean(())?.item::<f32>()?.abs() < 1e-4);
/// // In evaluation mode it uses the running statistics of training.
/// layer.train(false);
/// assert!(layer.forward(&x)?.mean(())?.item::<f32>()? > 1.0);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct BatchNorm {
    #[module(flatten)]
    affine: Option<Affine>,
    #[module(flatten)]
    running: Option<RunningStatistics>,
    momentum: f32,
    eps: f32,
    training: Training,
}

#[derive(Module, Clone)]
struct RunningStatistics {
    running_mean: Buffer,
    running_var: Buffer,
}

impl BatchNorm {
    /// A norm of `channels` channels with weight, bias and running statistics. 1e-5 is added to the variance;
    /// a batch has a weight of 0.1 in the running statistics.
    pub fn new(channels: usize) -> Result<Self> {
        let running = RunningStatistics {
            running_mean: Buffer::new(Array::zeros(&[channels], Dtype::Float32)?),
            running_var: Buffer::new(Array::ones(&[channels], Dtype::Float32)?),
        };
        Ok(BatchNorm {
            affine: Some(Affine::new(channels)?),
            running: Some(running),
            momentum: 0.1,
            eps: EPS,
            training: Training::default(),
        })
    }

    /// The same norm without weight and bias.
    pub fn without_affine(self) -> Self {
        BatchNorm { affine: None, ..self }
    }

    /// The same norm without running statistics: it always uses those of the batch.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{BatchNorm, ModuleExt};
    /// let norm = BatchNorm::new(3)?.with_momentum(0.01).with_eps(1e-3);
    /// assert_eq!(norm.count(), 12); // weight, bias, mean and variance
    /// assert_eq!(norm.without_running_statistics().without_affine().count(), 0);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_running_statistics(self) -> Self {
        BatchNorm { running: None, ..self }
    }

    /// Sets the weight of a batch in the running statistics.
    pub fn with_momentum(self, momentum: f32) -> Self {
        BatchNorm { momentum, ..self }
    }

    /// Sets `eps`, which is added to the variance.
    pub fn with_eps(self, eps: f32) -> Self {
        BatchNorm { eps, ..self }
    }

    /// Applies the norm to an array of shape (batch, spatial axes ..., channels).
    pub fn forward(&self, x: &Array) -> Result<Array> {
        if !(2..=4).contains(&x.ndim()) {
            let what =
                format!("cannot normalize a batch of shape {:?}; it must have 2, 3 or 4 axes", x.shape());
            return Err(Error::argument(what));
        }
        let (mean, variance) = self.statistics(x)?;
        let y = x.subtract(&mean)?.multiply(variance.add(self.eps)?.rsqrt()?)?;
        scaled(self.affine.as_ref(), y)
    }

    fn statistics(&self, x: &Array) -> Result<(Array, Array)> {
        if let (Some(running), false) = (&self.running, self.training.is_on()) {
            return Ok((running.running_mean.get(), running.running_var.get()));
        }
        if self.training.is_on() && x.shape().last().is_some_and(|channels| x.size() <= *channels) {
            return Err(Error::argument(format!(
                "cannot train on a batch of shape {:?}: it has one value per channel, which has no variance; use a \
                 larger batch, or train(false)",
                x.shape()
            )));
        }
        let axes: Vec<isize> = (0..x.ndim() as isize - 1).collect();
        let (mean, variance) = (x.mean(&axes)?, x.var(&axes, 0)?);
        if let Some(running) = &self.running {
            let add = |buffer: &Buffer, batch: &Array| -> Result<()> {
                let kept = buffer.get().multiply(1.0 - self.momentum)?;
                buffer.set(kept.add(batch.multiply(self.momentum)?)?);
                Ok(())
            };
            add(&running.running_mean, &mean)?;
            add(&running.running_var, &x.var(&axes, 1)?)?;
        }
        Ok((mean, variance))
    }
}
