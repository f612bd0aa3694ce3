//! Loss functions.

use std::f64::consts::{LN_2, PI};

use hesper_core::{Array, Category, Dtype, fast, placement, select};

use crate::activation::below_maximum;
use crate::error::{Error, Result};

/// How the losses of single elements are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reduction {
    /// Not at all: they are returned.
    None,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    fn of(self, loss: Array) -> Result<Array> {
        match self {
            Reduction::None => Ok(loss),
            Reduction::Mean => Ok(loss.mean(())?),
            Reduction::Sum => Ok(loss.sum(())?),
        }
    }
}

fn same_shape(what: &str, a: &Array, b: &Array) -> Result<()> {
    if a.shape() == b.shape() {
        return Ok(());
    }
    Err(Error::argument(format!(
        "cannot compute {what} of different shapes: {:?} and {:?}; they must be equal",
        a.shape(),
        b.shape()
    )))
}

/// Options of [`cross_entropy_with`].
#[derive(Debug, Clone, Copy)]
pub struct CrossEntropy<'a> {
    /// A factor for the loss of each sample.
    pub weights: Option<&'a Array>,
    /// The axis of the classes.
    pub axis: isize,
    /// The probability that is spread over all classes.
    pub label_smoothing: f32,
    /// How the losses are reduced.
    pub reduction: Reduction,
}

impl Default for CrossEntropy<'_> {
    fn default() -> Self {
        CrossEntropy { weights: None, axis: -1, label_smoothing: 0.0, reduction: Reduction::Mean }
    }
}

/// The mean cross entropy of logits along the last axis. Targets are class indices, or probabilities of the
/// shape of the logits.
///
/// ```
/// use hesper::Array;
/// use hesper_nn::loss;
/// let logits = Array::try_from_slice(&[0.0f32, 0.0, 9.0, 0.0], &[2, 2])?;
/// let value = loss::cross_entropy(&logits, &Array::from_slice(&[0, 0]))?;
/// assert!((value.item::<f32>()? - 0.34663).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn cross_entropy(logits: &Array, targets: &Array) -> Result<Array> {
    cross_entropy_with(logits, targets, CrossEntropy::default())
}

/// The cross entropy of logits with options.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss::{self, CrossEntropy, Reduction};
/// let options = CrossEntropy { label_smoothing: 0.1, reduction: Reduction::None, ..Default::default() };
/// let each = loss::cross_entropy_with(&array![[0.0, 0.0], [9.0, 0.0]], &array![0, 0], options)?;
/// assert_eq!(each.shape(), [2]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn cross_entropy_with(logits: &Array, targets: &Array, options: CrossEntropy<'_>) -> Result<Array> {
    let CrossEntropy { weights, axis, label_smoothing: smoothing, reduction } = options;
    if !(0.0..1.0).contains(&smoothing) {
        let what = format!("cannot smooth labels by {smoothing}; label_smoothing must be in [0, 1)");
        return Err(Error::argument(what));
    }
    let rank = logits.ndim() as isize;
    let along = if axis < 0 { axis + rank } else { axis };
    if !(0..rank).contains(&along) {
        let what = format!("cannot take classes along axis {axis} of logits of shape {:?}", logits.shape());
        return Err(Error::argument(what));
    }
    let dense = targets.ndim() == logits.ndim();
    let mut expected = logits.shape().to_vec();
    if !dense {
        expected.remove(along as usize);
    }
    if targets.shape() != expected {
        return Err(Error::argument(format!(
            "cannot compare targets of shape {:?} with logits of shape {:?} along axis {axis}; targets must have shape \
             {expected:?}",
            targets.shape(),
            logits.shape()
        )));
    }
    let fused = along == rank - 1 && !dense && smoothing == 0.0 && logits.dtype().is(Category::Floating);
    let loss = if fused && placement::current_device() != placement::Device::Cpu {
        fast::cross_entropy(logits, &indices(targets)?)?.astype(logits.dtype())?
    } else {
        let logits = below_maximum(logits, along)?;
        let score = match dense {
            true => logits.multiply(targets)?.sum(along)?,
            false => at_classes(&logits, targets, along)?,
        };
        let loss = logits.logsumexp(along)?;
        match smoothing == 0.0 {
            true => loss.subtract(&score)?,
            false => {
                let spread = logits.mean(along)?.multiply(smoothing)?;
                loss.subtract(score.multiply(1.0 - smoothing)?)?.subtract(&spread)?
            }
        }
    };
    let loss = match weights {
        Some(weights) => {
            same_shape("a weighted loss", weights, &loss)?;
            loss.multiply(weights)?
        }
        None => loss,
    };
    reduction.of(loss)
}

/// Class indices as integers.
fn indices(targets: &Array) -> Result<Array> {
    Ok(match targets.dtype().is(Category::Integer) {
        true => targets.clone(),
        false => targets.astype(Dtype::Int32)?,
    })
}

/// The elements of `x` at the index of their class along an axis.
fn at_classes(x: &Array, classes: &Array, axis: isize) -> Result<Array> {
    let chosen = x.take_along_axis(&indices(classes)?.expand_dims(axis)?, Some(axis))?;
    Ok(chosen.squeeze(axis)?)
}

/// The binary cross entropy of logits with targets between zero and one.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::binary_cross_entropy(&array![0.0, 0.0], &array![1.0, 0.0], Default::default())?;
/// assert!((value.item::<f32>()? - 0.69315).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn binary_cross_entropy(logits: &Array, targets: &Array, reduction: Reduction) -> Result<Array> {
    same_shape("a binary cross entropy", logits, targets)?;
    reduction.of(logits.logaddexp(0.0)?.subtract(logits.multiply(targets)?)?)
}

/// The binary cross entropy of probabilities. Logarithms are at least -100.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let (half, bits) = (array![0.5, 0.5], array![1.0, 0.0]);
/// let value = loss::binary_cross_entropy_of_probabilities(&half, &bits, Default::default())?;
/// assert!((value.item::<f32>()? - 0.69315).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn binary_cross_entropy_of_probabilities(
    probabilities: &Array,
    targets: &Array,
    reduction: Reduction,
) -> Result<Array> {
    same_shape("a binary cross entropy", probabilities, targets)?;
    let complement = |x: &Array| x.negative()?.add(1.0);
    let log = |x: &Array| x.log()?.maximum(-100.0);
    let positive = targets.multiply(log(probabilities)?)?;
    let negative = complement(targets)?.multiply(log(&complement(probabilities)?)?)?;
    reduction.of(positive.add(&negative)?.negative()?)
}

/// The absolute difference of predictions and targets.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::l1(&array![1.0, 5.0], &array![2.0, 2.0], Default::default())?;
/// assert!((value.item::<f32>()? - 2.0).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn l1(predictions: &Array, targets: &Array, reduction: Reduction) -> Result<Array> {
    same_shape("an L1 loss", predictions, targets)?;
    reduction.of(predictions.subtract(targets)?.abs()?)
}

/// The squared difference of predictions and targets.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::mse(&array![1.0, 5.0], &array![2.0, 2.0], Default::default())?;
/// assert!((value.item::<f32>()? - 5.0).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn mse(predictions: &Array, targets: &Array, reduction: Reduction) -> Result<Array> {
    same_shape("a squared error", predictions, targets)?;
    reduction.of(predictions.subtract(targets)?.square()?)
}

/// The negative log likelihood of classes, from log probabilities along an axis.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::nll(&array![[-0.5, -1.0], [-2.0, -0.1]], &array![0, 0], -1, Default::default())?;
/// assert!((value.item::<f32>()? - 1.25).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn nll(log_probabilities: &Array, classes: &Array, axis: isize, reduction: Reduction) -> Result<Array> {
    reduction.of(at_classes(log_probabilities, classes, axis)?.negative()?)
}

/// The negative log likelihood of targets under normal distributions with means `inputs` and variances; with
/// the constant term if `full`. Variances are at least 1e-6.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::gaussian_nll(&array![1.0], &array![2.0], &array![1.0], false, Default::default())?;
/// assert!((value.item::<f32>()? - 0.5).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn gaussian_nll(
    inputs: &Array,
    targets: &Array,
    variances: &Array,
    full: bool,
    reduction: Reduction,
) -> Result<Array> {
    same_shape("a Gaussian likelihood", inputs, targets)?;
    same_shape("a Gaussian likelihood", inputs, variances)?;
    let variance = variances.maximum(1e-6)?;
    let square = targets.subtract(inputs)?.square()?;
    let loss = variance.log()?.add(square.divide(&variance)?)?.multiply(0.5)?;
    reduction.of(if full { loss.add(0.5 * (2.0 * PI).ln())? } else { loss })
}

/// The Kullback-Leibler divergence of log probabilities along an axis: that of `targets` from `inputs`.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::kl_div(&array![[-1.0, -2.0]], &array![[-1.0, -2.0]], -1, Default::default())?;
/// assert!((value.item::<f32>()? - 0.0).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn kl_div(inputs: &Array, targets: &Array, axis: isize, reduction: Reduction) -> Result<Array> {
    same_shape("a divergence", inputs, targets)?;
    reduction.of(targets.exp()?.multiply(targets.subtract(inputs)?)?.sum(axis)?)
}

/// `0.5 d^2 / beta` if the absolute difference `d` is below `beta`, else `d - 0.5 beta`.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::smooth_l1(&array![1.0, 5.0], &array![2.0, 2.0], 1.0, Default::default())?;
/// assert!((value.item::<f32>()? - 1.5).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn smooth_l1(predictions: &Array, targets: &Array, beta: f32, reduction: Reduction) -> Result<Array> {
    same_shape("a smooth L1 loss", predictions, targets)?;
    let distance = predictions.subtract(targets)?.abs()?;
    let near = distance.square()?.multiply(0.5)?.divide(beta)?;
    reduction.of(select(&distance.less(beta)?, &near, &distance.subtract(0.5 * beta)?)?)
}

/// `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`. Distances are `p`-norms.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss::{self, Reduction};
/// let (anchor, near, far) = (array![[0.0, 0.0]], array![[0.0, 1.0]], array![[3.0, 0.0]]);
/// let good = loss::triplet(&anchor, &near, &far, -1, 2.0, 1.0, Reduction::Mean)?;
/// let bad = loss::triplet(&anchor, &far, &near, -1, 2.0, 1.0, Reduction::Mean)?;
/// assert!(good.item::<f32>()? == 0.0 && (bad.item::<f32>()? - 3.0).abs() < 1e-3);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn triplet(
    anchors: &Array,
    positives: &Array,
    negatives: &Array,
    axis: isize,
    p: f32,
    margin: f32,
    reduction: Reduction,
) -> Result<Array> {
    let distance = |samples: &Array| -> Result<Array> {
        let powers = anchors.subtract(samples)?.abs()?.power(p)?;
        Ok(powers.sum(axis)?.add(1e-6)?.power(1.0 / p)?)
    };
    reduction.of(distance(positives)?.subtract(distance(negatives)?)?.add(margin)?.maximum(0.0)?)
}

/// `max(1 - inputs * targets, 0)` with targets of -1 and 1.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::hinge(&array![0.5, 2.0], &array![1.0, 1.0], Default::default())?;
/// assert!((value.item::<f32>()? - 0.25).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn hinge(inputs: &Array, targets: &Array, reduction: Reduction) -> Result<Array> {
    reduction.of(inputs.multiply(targets)?.negative()?.add(1.0)?.maximum(0.0)?)
}

/// `0.5 d^2` if the absolute difference `d` is below `delta`, else `delta (d - 0.5 delta)`.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::huber(&array![1.0, 5.0], &array![2.0, 2.0], 1.0, Default::default())?;
/// assert!((value.item::<f32>()? - 1.5).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn huber(inputs: &Array, targets: &Array, delta: f32, reduction: Reduction) -> Result<Array> {
    let distance = inputs.subtract(targets)?.abs()?;
    let near = distance.minimum(delta)?;
    reduction.of(near.square()?.multiply(0.5)?.add(distance.subtract(&near)?.multiply(delta)?)?)
}

/// The logarithm of the hyperbolic cosine of the error.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::log_cosh(&array![1.0], &array![2.0], Default::default())?;
/// assert!((value.item::<f32>()? - 0.43378).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn log_cosh(inputs: &Array, targets: &Array, reduction: Reduction) -> Result<Array> {
    let error = inputs.subtract(targets)?;
    reduction.of(error.logaddexp(error.negative()?)?.subtract(LN_2)?)
}

/// The cosine of the angle between vectors along an axis. Products of norms are at least 1e-8.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss;
/// let value = loss::cosine_similarity(&array![[1.0, 0.0]], &array![[3.0, 4.0]], -1, Default::default())?;
/// assert!((value.item::<f32>()? - 0.6).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn cosine_similarity(x1: &Array, x2: &Array, axis: isize, reduction: Reduction) -> Result<Array> {
    let norm = |x: &Array| -> Result<Array> { Ok(x.square()?.sum(axis)?.sqrt()?) };
    let norms = norm(x1)?.multiply(norm(x2)?)?.maximum(1e-8)?;
    reduction.of(x1.multiply(x2)?.sum(axis)?.divide(&norms)?)
}

/// `max(-targets * (inputs1 - inputs2) + margin, 0)` with targets of -1 and 1.
///
/// ```
/// use hesper::array;
/// use hesper_nn::loss::{self, Reduction};
/// let (first, second) = (array![2.0, 1.0], array![1.0, 2.0]);
/// let wanted = array![1.0, 1.0]; // the first should rank higher
/// let loss = loss::margin_ranking(&first, &second, &wanted, 0.5, Reduction::None)?;
/// assert_eq!(loss.to_vec::<f32>()?, [0.0, 1.5]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn margin_ranking(
    inputs1: &Array,
    inputs2: &Array,
    targets: &Array,
    margin: f32,
    reduction: Reduction,
) -> Result<Array> {
    same_shape("a ranking loss", inputs1, inputs2)?;
    same_shape("a ranking loss", inputs1, targets)?;
    let difference = inputs1.subtract(inputs2)?;
    reduction.of(targets.multiply(&difference)?.negative()?.add(margin)?.maximum(0.0)?)
}
