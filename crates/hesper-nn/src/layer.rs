//! Layers of one input and one output, and lists of them.

use std::fmt;

use hesper_core::Array;

use crate::error::Result;
use crate::module::Module;
use crate::{
    Activation, BatchNorm, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
    Dropout, Embedding, GroupNorm, Identity, InstanceNorm, LayerNorm, Linear, Mlp, Norm, PRelu, Pool,
    RmsNorm, Upsample,
};

/// A module with one input and one output.
///
/// ```
/// use hesper::{Array, array};
/// use hesper_nn::{Layer, Module, Parameter, Sequential};
///
/// /// Multiplies by a trained number.
/// #[derive(Module, Clone)]
/// struct Scale {
///     factor: Parameter,
/// }
///
/// impl Layer for Scale {
///     fn forward(&self, x: &Array) -> hesper_nn::Result<Array> {
///         Ok(x.multiply(&self.factor)?)
///     }
/// }
///
/// let net = Sequential::new().with(Scale { factor: array![3.0].into() });
/// assert_eq!(net.forward(&array![1.0, 2.0])?.to_vec::<f32>()?, [3.0, 6.0]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub trait Layer: Module + CloneLayer + fmt::Debug + Send + Sync {
    /// Applies the layer.
    fn forward(&self, x: &Array) -> Result<Array>;
}

/// Clones boxed layers. Implemented for every layer that is `Clone`.
///
/// ```
/// # use hesper as _;
/// use hesper_nn::{CloneLayer, Layer, Linear, ModuleExt};
/// let layer: Box<dyn Layer> = Box::new(Linear::new(4, 2)?);
/// assert_eq!(layer.clone_layer().count(), 10);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub trait CloneLayer {
    /// The layer in a new box.
    fn clone_layer(&self) -> Box<dyn Layer>;
}

impl<L: Layer + Clone + 'static> CloneLayer for L {
    fn clone_layer(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Layer> {
    fn clone(&self) -> Self {
        (**self).clone_layer()
    }
}

macro_rules! layers {
    ($($type:ty),* $(,)?) => {
        $(impl Layer for $type {
            fn forward(&self, x: &Array) -> Result<Array> {
                <$type>::forward(self, x)
            }
        })*
    };
}

layers!(
    BatchNorm,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Dropout,
    Embedding,
    GroupNorm,
    Identity,
    InstanceNorm,
    LayerNorm,
    Linear,
    Mlp,
    Norm,
    PRelu,
    Pool,
    RmsNorm,
    Sequential,
    Upsample,
);

impl Layer for Activation {
    fn forward(&self, x: &Array) -> Result<Array> {
        Activation::forward(*self, x)
    }
}

/// Layers that are applied one after another. Parameters have paths like `layers.0.weight`.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::{Activation, Linear, Sequential};
/// let net = Sequential::new().with(Linear::new(2, 8)?).with(Activation::Relu).with(Linear::new(8, 1)?);
/// assert_eq!(net.forward(&Array::zeros(&[5, 2], Dtype::Float32)?)?.shape(), [5, 1]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone, Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// An empty list, which returns its input.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a layer.
    pub fn with(mut self, layer: impl Layer + 'static) -> Self {
        self.layers.push(Box::new(layer));
        self
    }

    /// The layers.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{Activation, Linear, Sequential};
    /// let net = Sequential::new().with(Linear::new(2, 8)?).with(Activation::Relu);
    /// assert_eq!(net.layers().len(), 2);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn layers(&self) -> &[Box<dyn Layer>] {
        &self.layers
    }

    /// Applies all layers.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))
    }
}
