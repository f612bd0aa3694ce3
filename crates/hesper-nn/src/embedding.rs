//! Embeddings.

use hesper_core::{Array, Dtype, random};

use crate::error::Result;
use crate::init;
use crate::module::Module;
use crate::module::weight::Weight;

/// A vector for every id.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Embedding;
/// let layer = Embedding::new(10, 4)?;
/// let vectors = layer.forward(&array![[3, 1, 3]])?;
/// assert_eq!(vectors.shape(), [1, 3, 4]);
/// assert_eq!(layer.as_linear(&vectors)?.shape(), [1, 3, 10]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Embedding {
    #[module(flatten)]
    weight: Weight,
}

impl Embedding {
    /// An embedding whose table starts normally distributed with variance `1 / dims`.
    pub fn new(count: usize, dims: usize) -> Result<Self> {
        let deviation = init::inverse_root("Embedding", "dims", dims)?;
        let table = random::normal(&[count, dims], Dtype::Float32, 0.0, deviation, None)?;
        Ok(Embedding::from_weight(table.into()))
    }

    /// An embedding with a table of shape (ids, elements).
    ///
    /// ```
    /// use hesper::array;
    /// use hesper_nn::Embedding;
    /// let layer = Embedding::from_weight(array![[1.0, 2.0], [3.0, 4.0]].into());
    /// assert_eq!(layer.forward(&array![1])?.to_vec::<f32>()?, [3.0, 4.0]);
    /// assert_eq!(layer.weight().shape(), [2, 2]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn from_weight(weight: Weight) -> Self {
        Embedding { weight }
    }

    /// The table.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// The vectors of `ids`, along a new last axis.
    pub fn forward(&self, ids: &Array) -> Result<Array> {
        self.weight.rows(ids)
    }

    /// The dot products of `x` with every vector of the table: an output projection with tied weights.
    pub fn as_linear(&self, x: &Array) -> Result<Array> {
        self.weight.apply(x)
    }
}
