//! Affine layers.

use hesper_core::{Array, Split, concatenate};

use crate::error::{Error, Result};
use crate::init;
use crate::module::weight::Weight;
use crate::module::{Module, Parameter};

/// `x w^T + b`.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::Linear;
/// let layer = Linear::new(4, 2)?;
/// assert_eq!(layer.forward(&Array::zeros(&[3, 4], Dtype::Float32)?)?.shape(), [3, 2]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Linear {
    #[module(flatten)]
    weight: Weight,
    bias: Option<Parameter>,
}

impl Linear {
    /// A layer whose weight and bias start uniformly distributed within `1 / sqrt(inputs)`.
    pub fn new(inputs: usize, outputs: usize) -> Result<Self> {
        let bound = init::inverse_root("Linear", "inputs", inputs)?;
        let weight = init::uniform_within(bound, &[outputs, inputs])?;
        Linear::from_weight(weight.into(), Some(init::uniform_within(bound, &[outputs])?))
    }

    /// The same layer without its bias.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{Linear, ModuleExt};
    /// assert_eq!(Linear::new(4, 2)?.without_bias().count(), 8);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_bias(self) -> Self {
        Linear { bias: None, ..self }
    }

    /// A layer with a weight of shape (outputs, inputs) and a bias of shape (outputs).
    ///
    /// ```
    /// use hesper::array;
    /// use hesper_nn::Linear;
    /// let layer = Linear::from_weight(array![[1.0, 2.0]].into(), Some(array![10.0]))?;
    /// assert_eq!(layer.forward(&array![3.0, 4.0])?.to_vec::<f32>()?, [21.0]);
    /// assert_eq!(layer.weight().shape(), [1, 2]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn from_weight(weight: Weight, bias: Option<Array>) -> Result<Self> {
        let [outputs, _] = weight.shape();
        if let Some(bias) = &bias
            && bias.shape() != [outputs]
        {
            return Err(Error::Shape {
                path: "bias".into(),
                given: bias.shape().to_vec(),
                expected: vec![outputs],
            });
        }
        Ok(Linear { weight, bias: bias.map(Parameter::new) })
    }

    /// The weight.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// One layer whose outputs are those of `layers`, concatenated. `None` if their weights are not stored in
    /// the same format. The weights of `layers` become views of the fused weight.
    pub(crate) fn fuse(layers: &mut [&mut Linear]) -> Result<Option<Linear>> {
        let Some(first) = layers.first().map(|layer| (**layer).clone()) else { return Ok(None) };
        let same_storage = |layer: &Linear| {
            layer.weight.has_storage_of(&first.weight) && layer.bias.is_some() == first.bias.is_some()
        };
        let mut fused = first.clone();
        let count = fused.parameters_mut().len();
        if count == 0 || !layers.iter().all(|layer| same_storage(layer)) {
            return Ok(None);
        }
        for part in 0..count {
            let own = |layer: &mut Linear| layer.parameters_mut()[part].get().clone();
            let all: Vec<Array> = layers.iter_mut().map(|layer| own(layer)).collect();
            let whole = concatenate(&all, 0)?;
            let ends = all.iter().scan(0, |end, array| {
                *end += array.shape()[0] as isize;
                Some(*end)
            });
            let cuts: Vec<isize> = ends.take(all.len() - 1).collect();
            for (layer, rows) in layers.iter_mut().zip(whole.split(Split::Indices(&cuts), 0)?) {
                layer.parameters_mut()[part].set(rows);
            }
            fused.parameters_mut()[part].set(whole);
        }
        Ok(Some(fused))
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter> {
        self.weight.parameters_mut().into_iter().chain(&mut self.bias).collect()
    }

    /// Applies the layer to the last axis.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.weight.apply(x)?;
        Ok(match &self.bias {
            Some(bias) => y.add(bias.get())?,
            None => y,
        })
    }
}

/// `x2 w[i] x1^T + b[i]` for every output `i`.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::Bilinear;
/// let x = |inputs| Array::ones(&[5, inputs], Dtype::Float32);
/// assert_eq!(Bilinear::new(2, 3, 4)?.forward(&x(2)?, &x(3)?)?.shape(), [5, 4]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Bilinear {
    weight: Parameter,
    bias: Option<Parameter>,
}

impl Bilinear {
    /// A layer whose weight and bias start uniformly distributed within `1 / sqrt(inputs1)`.
    pub fn new(inputs1: usize, inputs2: usize, outputs: usize) -> Result<Self> {
        let bound = init::inverse_root("Bilinear", "inputs1", inputs1)?;
        let weight = init::uniform_within(bound, &[outputs, inputs2, inputs1])?;
        Ok(Bilinear { weight: weight.into(), bias: Some(init::uniform_within(bound, &[outputs])?.into()) })
    }

    /// The same layer without its bias.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{Bilinear, ModuleExt};
    /// assert_eq!(Bilinear::new(2, 3, 4)?.without_bias().count(), 24);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_bias(self) -> Self {
        Bilinear { bias: None, ..self }
    }

    /// Applies the layer to the last axes of both inputs.
    pub fn forward(&self, x1: &Array, x2: &Array) -> Result<Array> {
        let [outputs, second, first] = [0, 1, 2].map(|axis| self.weight.shape()[axis] as isize);
        // One product with all the matrices, then one small product per row.
        let y = x1.reshape(&[-1, first])?.matmul(&self.weight.reshape(&[-1, first])?.t()?)?;
        let y = y.reshape(&[-1, outputs, second])?.swapaxes(-2, -1)?;
        let y = x2.reshape(&[-1, 1, second])?.matmul(&y)?;
        let mut shape = x1.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = self.weight.shape()[0];
        }
        let y = y.reshape(&shape)?;
        Ok(match &self.bias {
            Some(bias) => y.add(bias.get())?,
            None => y,
        })
    }
}

/// Returns its input.
///
/// ```
/// use hesper::array;
/// use hesper_nn::{Identity, Sequential};
/// let net = Sequential::new().with(Identity {}); // in place of a layer
/// assert_eq!(Identity {}.forward(&array![1.0])?.shape(), net.forward(&array![1.0])?.shape());
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone, Default)]
pub struct Identity {}

impl Identity {
    /// Returns `x`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        Ok(x.clone())
    }
}
