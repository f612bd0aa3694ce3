//! Sinusoidal position encodings and ALiBi.

use std::f64::consts::TAU;

use hesper_core::{Array, Dtype, concatenate};

use crate::error::{Error, Result};
use crate::module::{Buffer, Module};

/// Sines and cosines of the position.
///
/// ```
/// use hesper::Array;
/// use hesper_nn::SinusoidalPositions;
/// let vectors = SinusoidalPositions::new(8)?.forward(&Array::arange(5, None)?)?;
/// assert_eq!(vectors.shape(), [5, 8]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct SinusoidalPositions {
    frequencies: Buffer,
    scale: f32,
    cos_first: bool,
}

impl SinusoidalPositions {
    /// Encodings of `dims` features, half of them sines, half of them cosines, with frequencies from 1 to
    /// 0.0001.
    pub fn new(dims: usize) -> Result<Self> {
        Self::with_frequencies(dims, 0.0001, 1.0, false)
    }

    /// The same with other frequencies, evenly spaced in log space. They are in turns per position if
    /// `full_turns`, else in radians.
    ///
    /// ```
    /// use hesper::array;
    /// use hesper_nn::SinusoidalPositions;
    /// let positions = SinusoidalPositions::with_frequencies(2, 1.0, 1.0, true)?.with_scale(1.0).with_cos_first();
    /// let y = positions.forward(&array![0.0, 0.25])?.round(3)?.to_vec::<f32>()?;
    /// assert_eq!((y[0], y[3]), (1.0, 1.0)); // the cosine of 0, and the sine of a quarter turn
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_frequencies(dims: usize, min: f64, max: f64, full_turns: bool) -> Result<Self> {
        if dims == 0 || !dims.is_multiple_of(2) {
            let what = format!("cannot encode positions in {dims} features; dims must be positive and even");
            return Err(Error::argument(what));
        }
        let count = dims / 2;
        let (low, high) = (min.ln(), max.ln());
        let frequency = |at: usize| {
            let one_to_zero = if count > 1 { 1.0 - at as f64 / (count - 1) as f64 } else { 1.0 };
            let frequency = (one_to_zero * (high - low) + low).exp();
            (if full_turns { frequency * TAU } else { frequency }) as f32
        };
        let frequencies: Vec<f32> = (0..count).map(frequency).collect();
        Ok(SinusoidalPositions {
            frequencies: Buffer::transient(Array::from_slice(&frequencies)),
            scale: (2.0 / dims as f32).sqrt(),
            cos_first: false,
        })
    }

    /// Sets the factor of the features.
    pub fn with_scale(self, scale: f32) -> Self {
        SinusoidalPositions { scale, ..self }
    }

    /// Puts the cosines first.
    pub fn with_cos_first(self) -> Self {
        SinusoidalPositions { cos_first: true, ..self }
    }

    /// The encodings of positions, along a new last axis.
    pub fn forward(&self, positions: &Array) -> Result<Array> {
        let angles = positions.expand_dims(-1)?.multiply(self.frequencies.get())?;
        let (sin, cos) = (angles.sin()?, angles.cos()?);
        let parts = if self.cos_first { [cos, sin] } else { [sin, cos] };
        Ok(concatenate(&parts, -1)?.multiply(self.scale)?)
    }
}

/// Attention with linear biases: a bias proportional to the distance of query and key, with a different slope
/// for each head.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::Alibi;
/// let scores = Array::zeros(&[1, 4, 3, 3], Dtype::Float32)?;
/// assert_eq!(Alibi {}.forward(&scores, 0, None)?.shape(), [1, 4, 3, 3]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone, Default)]
pub struct Alibi {}

impl Alibi {
    /// The slope of each head, of shape (heads, 1, 1). If the number of heads is a power of two, the slopes
    /// are a geometric sequence down to `2^-8`. Otherwise the slopes for the power of two below are followed
    /// by every second slope for the power of two above.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::Alibi;
    /// assert_eq!(Alibi::slopes(8)?.to_vec::<f32>()?[..3], [0.5, 0.25, 0.125]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn slopes(heads: usize) -> Result<Array> {
        let Some(power) = heads.checked_ilog2().map(|log| 1usize << log) else {
            return Err(Error::argument("cannot make slopes for 0 heads; there must be at least 1"));
        };
        let geometric = |count: usize, at: usize| (-8.0 * (at + 1) as f64 / count as f64).exp2() as f32;
        let first = (0..power).map(|at| geometric(power, at));
        let rest = (0..2 * power).step_by(2).map(|at| geometric(2 * power, at));
        let slopes: Vec<f32> = first.chain(rest).take(heads).collect();
        Ok(Array::try_from_slice(&slopes, &[heads, 1, 1])?)
    }

    /// The biases of queries from position `offset` on, of shape (1, heads, queries, keys).
    ///
    /// ```
    /// use hesper::Dtype;
    /// use hesper_nn::Alibi;
    /// let biases = Alibi::biases(1, 3, 1, 2, Dtype::Float32)?; // one query, after two keys
    /// let slope = 2f32.powi(-8);
    /// assert_eq!(biases.to_vec::<f32>()?, [-2.0 * slope, -slope, 0.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn biases(queries: usize, keys: usize, heads: usize, offset: usize, dtype: Dtype) -> Result<Array> {
        let range = |from: usize, count: usize| Array::arange(from as i64..(from + count) as i64, None);
        let rows = range(offset, queries)?.expand_dims(1)?;
        let distances = rows.subtract(range(0, keys)?)?.abs()?.negative()?;
        let distances = distances.astype(dtype)?.expand_dims([0, 1])?;
        Ok(distances.multiply(Self::slopes(heads)?.astype(dtype)?)?)
    }

    /// Scores of shape (batch, heads, queries, keys) with the biases added, and a mask if given.
    pub fn forward(&self, scores: &Array, offset: usize, mask: Option<&Array>) -> Result<Array> {
        let &[_, heads, queries, keys] = scores.shape() else {
            return Err(Error::argument(format!(
                "cannot add biases to scores of shape {:?}; it must be (batch, heads, queries, keys)",
                scores.shape()
            )));
        };
        let biases = Self::biases(queries, keys, heads, offset, scores.dtype())?;
        Ok(match mask {
            Some(mask) => scores.add(biases.add(mask)?)?,
            None => scores.add(&biases)?,
        })
    }
}
