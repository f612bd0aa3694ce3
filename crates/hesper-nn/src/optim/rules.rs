//! Update rules, which compute a new parameter from a parameter and its gradient.

use hesper_core::{Array, Dtype, axes};

use super::{Schedule, Slots, Update, UpdateRule};
use crate::error::{Error, Result};

fn non_negative(rule: &str, what: &str, value: f64) -> Result<()> {
    if value >= 0.0 {
        return Ok(());
    }
    Err(Error::argument(format!("cannot use {rule} with {what} = {value}; it must not be negative")))
}

fn fractions(rule: &str, betas: [f64; 2]) -> Result<()> {
    if betas.iter().all(|beta| (0.0..1.0).contains(beta)) {
        return Ok(());
    }
    Err(Error::argument(format!("cannot use {rule} with betas = {betas:?}; each must be in [0, 1)")))
}

/// State with an array of zeros of the parameter's shape for each name.
fn zeros(parameter: &Array, names: &[&str]) -> Result<Slots> {
    names.iter().map(|name| Ok((name.to_string(), parameter.zeros_like()?))).collect()
}

/// The gradient plus the parameter times a decay.
fn with_decay(of: &Update<'_>, decay: f64) -> Result<Array> {
    Ok(if decay == 0.0 { of.gradient.clone() } else { of.gradient.add(of.parameter.multiply(decay)?)? })
}

/// Stochastic gradient descent, with momentum if `momentum` is positive.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Optimizer, Sgd};
/// let mut w = Parameter::new(array![1.0]);
/// Optimizer::new(Sgd::new(0.1))?.update(&mut w, &Parameter::new(array![2.0]))?;
/// assert_eq!(w.to_vec::<f32>()?, [0.8]);
/// let with_momentum = Sgd { momentum: 0.9, nesterov: true, ..Sgd::new(0.1) };
/// assert!(Optimizer::new(with_momentum).is_ok());
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sgd {
    /// The learning rate.
    pub learning_rate: Schedule,
    /// The decay of the momentum.
    pub momentum: f64,
    /// The factor of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// The momentum adds `1 - dampening` times the gradient.
    pub dampening: f64,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
}

impl Sgd {
    /// Descent without momentum.
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        let learning_rate = learning_rate.into();
        Sgd { learning_rate, momentum: 0.0, weight_decay: 0.0, dampening: 0.0, nesterov: false }
    }
}

impl UpdateRule for Sgd {
    fn learning_rate(&self) -> Option<&Schedule> {
        Some(&self.learning_rate)
    }

    fn check(&self) -> Result<()> {
        if self.nesterov && !(self.momentum > 0.0 && self.dampening == 0.0) {
            return Err(Error::argument(format!(
                "cannot use Nesterov momentum with momentum = {} and dampening = {}; it needs a positive momentum and no \
                 dampening",
                self.momentum, self.dampening
            )));
        }
        non_negative("SGD", "momentum", self.momentum)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        zeros(parameter, if self.momentum > 0.0 { &["v"] } else { &[] })
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let gradient = with_decay(&of, self.weight_decay)?;
        let mut direction = gradient.clone();
        if self.momentum > 0.0 {
            let added = match self.dampening > 0.0 {
                true => gradient.multiply(1.0 - self.dampening)?,
                false => gradient.clone(),
            };
            let v = of.keep("v", of.slot("v")?.multiply(self.momentum)?.add(&added)?);
            direction = if self.nesterov { gradient.add(v.multiply(self.momentum)?)? } else { v };
        }
        Ok(of.parameter.subtract(of.rate()?.multiply(&direction)?)?)
    }
}

/// Adam; AdamW with a weight decay.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Adam, Optimizer};
/// let mut w = Parameter::new(array![1.0]);
/// let adam = Adam { bias_correction: true, ..Adam::new(0.1) };
/// Optimizer::new(adam)?.update(&mut w, &Parameter::new(array![2.0]))?;
/// assert!((w.item::<f32>()? - 0.9).abs() < 1e-5); // the length of the first step is the learning rate
/// assert_eq!(Adam::with_weight_decay(0.1).weight_decay, 0.01);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Adam {
    /// The learning rate.
    pub learning_rate: Schedule,
    /// The decays of the means of gradients and of their squares.
    pub betas: [f64; 2],
    /// Added to the root of the mean square.
    pub eps: f64,
    /// A step multiplies parameters by `1 - weight_decay * learning rate`.
    pub weight_decay: f64,
    /// Whether to correct the means for their start at zero.
    pub bias_correction: bool,
}

impl Adam {
    /// Adam with betas 0.9 and 0.999, without bias correction.
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        let learning_rate = learning_rate.into();
        Adam { learning_rate, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, bias_correction: false }
    }

    /// AdamW: the same with a weight decay of 0.01.
    pub fn with_weight_decay(learning_rate: impl Into<Schedule>) -> Self {
        Adam { weight_decay: 0.01, ..Adam::new(learning_rate) }
    }
}

impl UpdateRule for Adam {
    fn learning_rate(&self) -> Option<&Schedule> {
        Some(&self.learning_rate)
    }

    fn check(&self) -> Result<()> {
        non_negative("Adam", "eps", self.eps)?;
        fractions("Adam", self.betas)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        zeros(parameter, &["m", "v"])
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let (mut rate, [b1, b2]) = (of.rate()?, self.betas);
        let parameter = of.shrunk(self.weight_decay)?;
        let m = of.average("m", b1, of.gradient)?;
        let mut root = of.average("v", b2, &of.gradient.square()?)?.sqrt()?;
        if self.bias_correction {
            let correction = |beta: f64| -> Result<Array> {
                Ok(Array::scalar(beta, Dtype::Float32)?.power(&of.step.number)?.negative()?.add(1.0)?)
            };
            rate = rate.divide(correction(b1)?)?.astype(of.gradient.dtype())?;
            root = root.multiply(correction(b2)?.rsqrt()?.astype(of.gradient.dtype())?)?;
        }
        Ok(parameter.subtract(rate.multiply(&m)?.divide(root.add(self.eps)?)?)?)
    }
}

/// Adam with a decaying maximum of magnitudes instead of the mean square.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Adamax, Optimizer};
/// let mut w = Parameter::new(array![1.0]);
/// Optimizer::new(Adamax::new(0.1))?.update(&mut w, &Parameter::new(array![2.0]))?;
/// assert!((w.item::<f32>()? - 0.99).abs() < 1e-5);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Adamax {
    /// The learning rate.
    pub learning_rate: Schedule,
    /// The decays of the mean of gradients and of the maximum.
    pub betas: [f64; 2],
    /// Added to the maximum.
    pub eps: f64,
}

impl Adamax {
    /// Adamax with betas 0.9 and 0.999.
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Adamax { learning_rate: learning_rate.into(), betas: [0.9, 0.999], eps: 1e-8 }
    }
}

impl UpdateRule for Adamax {
    fn learning_rate(&self) -> Option<&Schedule> {
        Some(&self.learning_rate)
    }

    fn check(&self) -> Result<()> {
        non_negative("Adamax", "eps", self.eps)?;
        fractions("Adamax", self.betas)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        zeros(parameter, &["m", "v"])
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let m = of.average("m", self.betas[0], of.gradient)?;
        let v = of.keep("v", of.slot("v")?.multiply(self.betas[1])?.maximum(of.gradient.abs()?)?);
        Ok(of.parameter.subtract(of.rate()?.multiply(&m)?.divide(v.add(self.eps)?)?)?)
    }
}

/// RMSprop: divides gradients by their root mean square.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Optimizer, RmsProp};
/// let mut w = Parameter::new(array![1.0]);
/// Optimizer::new(RmsProp::new(0.01))?.update(&mut w, &Parameter::new(array![2.0]))?;
/// assert!((w.item::<f32>()? - 0.9).abs() < 1e-5);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RmsProp {
    /// The learning rate.
    pub learning_rate: Schedule,
    /// The decay of the mean square.
    pub alpha: f64,
    /// Added to the root of the mean square.
    pub eps: f64,
}

impl RmsProp {
    /// RMSprop with a decay of 0.99.
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        RmsProp { learning_rate: learning_rate.into(), alpha: 0.99, eps: 1e-8 }
    }
}

impl UpdateRule for RmsProp {
    fn learning_rate(&self) -> Option<&Schedule> {
        Some(&self.learning_rate)
    }

    fn check(&self) -> Result<()> {
        non_negative("RMSprop", "alpha", self.alpha)?;
        non_negative("RMSprop", "eps", self.eps)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        zeros(parameter, &["v"])
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let root = of.average("v", self.alpha, &of.gradient.square()?)?.sqrt()?;
        Ok(of.parameter.subtract(of.rate()?.multiply(of.gradient)?.divide(root.add(self.eps)?)?)?)
    }
}

/// Adagrad: divides gradients by the root of the sum of their squares.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Adagrad, Optimizer};
/// let mut w = Parameter::new(array![1.0]);
/// Optimizer::new(Adagrad::new(0.1))?.update(&mut w, &Parameter::new(array![2.0]))?;
/// assert!((w.item::<f32>()? - 0.9).abs() < 1e-5);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Adagrad {
    /// The learning rate.
    pub learning_rate: Schedule,
    /// Added to the root.
    pub eps: f64,
}

impl Adagrad {
    /// Adagrad.
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Adagrad { learning_rate: learning_rate.into(), eps: 1e-8 }
    }
}

impl UpdateRule for Adagrad {
    fn learning_rate(&self) -> Option<&Schedule> {
        Some(&self.learning_rate)
    }

    fn check(&self) -> Result<()> {
        non_negative("Adagrad", "eps", self.eps)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        zeros(parameter, &["v"])
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let root = of.keep("v", of.slot("v")?.add(of.gradient.square()?)?).sqrt()?;
        Ok(of.parameter.subtract(of.rate()?.multiply(of.gradient)?.divide(root.add(self.eps)?)?)?)
    }
}

/// AdaDelta: scales gradients by the ratio of the root mean squares of steps and gradients.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{AdaDelta, Optimizer};
/// let mut w = Parameter::new(array![1.0]);
/// Optimizer::new(AdaDelta::new(1.0))?.update(&mut w, &Parameter::new(array![2.0]))?;
/// assert!(w.item::<f32>()? < 1.0);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct AdaDelta {
    /// The learning rate.
    pub learning_rate: Schedule,
    /// The decay of the mean squares.
    pub rho: f64,
    /// Added to the mean squares.
    pub eps: f64,
}

impl AdaDelta {
    /// AdaDelta with a decay of 0.9.
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        AdaDelta { learning_rate: learning_rate.into(), rho: 0.9, eps: 1e-6 }
    }
}

impl UpdateRule for AdaDelta {
    fn learning_rate(&self) -> Option<&Schedule> {
        Some(&self.learning_rate)
    }

    fn check(&self) -> Result<()> {
        non_negative("AdaDelta", "rho", self.rho)?;
        non_negative("AdaDelta", "eps", self.eps)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        zeros(parameter, &["u", "v"])
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let v = of.average("v", self.rho, &of.gradient.square()?)?;
        let ratio = of.slot("u")?.add(self.eps)?.sqrt()?.divide(v.add(self.eps)?.sqrt()?)?;
        let change = ratio.multiply(of.gradient)?;
        of.average("u", self.rho, &change.square()?)?;
        Ok(of.parameter.subtract(of.rate()?.multiply(&change)?)?)
    }
}

/// Lion: steps along the sign of the momentum.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Lion, Optimizer};
/// let mut w = Parameter::new(array![1.0, 1.0]);
/// Optimizer::new(Lion::new(0.1))?.update(&mut w, &Parameter::new(array![2.0, -0.001]))?;
/// assert_eq!(w.to_vec::<f32>()?, [0.9, 1.1]); // steps of one length
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Lion {
    /// The learning rate.
    pub learning_rate: Schedule,
    /// The decays of the momentum in the step and in the state.
    pub betas: [f64; 2],
    /// A step multiplies parameters by `1 - weight_decay * learning rate`.
    pub weight_decay: f64,
}

impl Lion {
    /// Lion with betas 0.9 and 0.99.
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        Lion { learning_rate: learning_rate.into(), betas: [0.9, 0.99], weight_decay: 0.0 }
    }
}

impl UpdateRule for Lion {
    fn learning_rate(&self) -> Option<&Schedule> {
        Some(&self.learning_rate)
    }

    fn check(&self) -> Result<()> {
        fractions("Lion", self.betas)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        zeros(parameter, &["m"])
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let [b1, b2] = self.betas;
        let direction = of.slot("m")?.multiply(b1)?.add(of.gradient.multiply(1.0 - b1)?)?.sign()?;
        of.average("m", b2, of.gradient)?;
        Ok(of.shrunk(self.weight_decay)?.subtract(of.rate()?.multiply(&direction)?)?)
    }
}

/// Adafactor: keeps the mean squares of the rows and columns of a matrix, not of every element.
#[derive(Debug, Clone)]
pub struct Adafactor {
    /// The learning rate. `None` to compute it from the step.
    pub learning_rate: Option<Schedule>,
    /// Added to squares of gradients, and the least scale of parameters.
    pub eps: [f64; 2],
    /// The largest root mean square of an update.
    pub clip_threshold: f64,
    /// The exponent of the step in the decay of the means.
    pub decay_rate: f64,
    /// The decay of the mean of updates, if there is one.
    pub beta_1: Option<f64>,
    /// A step multiplies parameters by `1 - weight_decay * learning rate`.
    pub weight_decay: f64,
    /// Whether the learning rate is relative to the root mean square of the parameter.
    pub scale_parameter: bool,
    /// Whether a learning rate that is computed from the step has a warmup.
    pub warmup_init: bool,
}

impl Default for Adafactor {
    fn default() -> Self {
        Adafactor {
            learning_rate: None,
            eps: [1e-30, 1e-3],
            clip_threshold: 1.0,
            decay_rate: -0.8,
            beta_1: None,
            weight_decay: 0.0,
            scale_parameter: true,
            warmup_init: false,
        }
    }
}

/// The root mean square.
fn rms(x: &Array) -> Result<Array> {
    Ok(x.square()?.mean(())?.sqrt()?)
}

impl Adafactor {
    /// The inverse root of the mean squares.
    fn inverse_root(&self, of: &mut Update<'_>, decay: &Array) -> Result<Array> {
        let square = of.gradient.square()?.add(self.eps[0])?;
        let two_axes = of.gradient.ndim() >= 2;
        let mut averaged = |name: &str, value: &Array| -> Result<Array> {
            let rest = decay.negative()?.add(1.0)?;
            Ok(of.keep(name, decay.multiply(of.slot(name)?)?.add(rest.multiply(value)?)?))
        };
        if !two_axes {
            return Ok(averaged("exp_avg_sq", &square)?.rsqrt()?);
        }
        let rows = averaged("exp_avg_sq_row", &square.mean(-1)?)?;
        let columns = averaged("exp_avg_sq_col", &square.mean(-2)?)?;
        let rows = rows.divide(rows.mean(axes(-1).keepdims())?)?;
        Ok(rows.rsqrt()?.expand_dims(-1)?.multiply(columns.rsqrt()?.expand_dims(-2)?)?)
    }
}

impl UpdateRule for Adafactor {
    fn learning_rate(&self) -> Option<&Schedule> {
        self.learning_rate.as_ref()
    }

    fn check(&self) -> Result<()> {
        non_negative("Adafactor", "clip_threshold", self.clip_threshold)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        let shape = parameter.shape();
        let mut shapes = match shape {
            [outer @ .., rows, columns] => {
                let with = |last: &usize| outer.iter().chain([last]).copied().collect::<Vec<usize>>();
                vec![("exp_avg_sq_row", with(rows)), ("exp_avg_sq_col", with(columns))]
            }
            _ => vec![("exp_avg_sq", shape.to_vec())],
        };
        if self.beta_1.is_some() {
            shapes.push(("exp_avg", shape.to_vec()));
        }
        let zeros = |(name, shape): (&str, Vec<usize>)| -> Result<(String, Array)> {
            Ok((name.to_string(), Array::zeros(&shape, parameter.dtype())?))
        };
        shapes.into_iter().map(zeros).collect()
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let (step, size) = (of.step, rms(of.parameter)?);
        let rate = match &step.rate {
            Some(rate) => rate.clone(),
            None => {
                let limit = step.number.rsqrt()?;
                match self.warmup_init {
                    true => limit.minimum(step.number.multiply(1e-6)?)?,
                    false => limit.minimum(0.01)?,
                }
            }
        };
        let mut rate = rate.astype(size.dtype())?;
        if self.scale_parameter {
            rate = size.maximum(self.eps[1])?.multiply(&rate)?;
        }
        let decay = step.number.power(self.decay_rate)?.negative()?.add(1.0)?.astype(size.dtype())?;
        let update = self.inverse_root(&mut of, &decay)?.multiply(of.gradient)?;
        let excess = rms(&update)?.divide(self.clip_threshold)?.maximum(1.0)?;
        let mut update = rate.multiply(update.divide(&excess)?)?;
        if let Some(beta) = self.beta_1 {
            update = of.average("exp_avg", beta, &update)?;
        }
        let parameter = match self.weight_decay == 0.0 {
            true => of.parameter.clone(),
            false => of.parameter.add(of.parameter.multiply(rate.multiply(-self.weight_decay)?)?)?,
        };
        Ok(parameter.subtract(&update)?)
    }
}

/// Muon: orthogonalizes the momentum of matrices.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Adam, Muon, Optimizer};
/// let mut w = Parameter::new(Array::zeros(&[4, 4], Dtype::Float32)?);
/// let gradient = Parameter::new(Array::eye(4, 4, 0, Dtype::Float32)?.multiply(3.0)?);
/// // Matrices by Muon, the rest by Adam.
/// let optimizer = Optimizer::new(Adam::new(1e-3))?;
/// optimizer.with_group(|_, w| w.ndim() == 2, Muon::new(0.1))?.update(&mut w, &gradient)?;
/// assert!(w.diagonal(0, 0, 1)?.max(())?.item::<f32>()? < 0.0);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Muon {
    /// The learning rate.
    pub learning_rate: Schedule,
    /// The decay of the momentum.
    pub momentum: f64,
    /// The factor of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
    /// Newton-Schulz iterations.
    pub iterations: usize,
}

impl Muon {
    /// Muon with a momentum of 0.95 and 5 iterations.
    pub fn new(learning_rate: impl Into<Schedule>) -> Self {
        let learning_rate = learning_rate.into();
        Muon { learning_rate, momentum: 0.95, weight_decay: 0.01, nesterov: true, iterations: 5 }
    }

    fn orthogonalize(&self, matrix: &Array) -> Result<Array> {
        let tall = matrix.shape()[0] > matrix.shape()[1];
        let mut x = if tall { matrix.t()? } else { matrix.clone() };
        x = x.divide(x.square()?.sum(())?.sqrt()?.add(1e-7)?)?;
        for _ in 0..self.iterations {
            let gram = x.matmul(&x.t()?)?;
            let polynomial = gram.multiply(-4.775)?.addmm(&gram, &gram, 2.0315, 1.0)?;
            x = x.multiply(3.4445)?.addmm(&polynomial, &x, 1.0, 1.0)?;
        }
        Ok(if tall { x.t()? } else { x })
    }
}

impl UpdateRule for Muon {
    fn learning_rate(&self) -> Option<&Schedule> {
        Some(&self.learning_rate)
    }

    fn check(&self) -> Result<()> {
        non_negative("Muon", "momentum", self.momentum)
    }

    fn init(&self, parameter: &Array) -> Result<Slots> {
        zeros(parameter, &["v"])
    }

    fn update(&self, mut of: Update<'_>) -> Result<Array> {
        let gradient = with_decay(&of, self.weight_decay)?;
        let mut update = of.average("v", self.momentum, &gradient)?;
        if self.nesterov {
            update = gradient.multiply(1.0 - self.momentum)?.add(update.multiply(self.momentum)?)?;
        }
        let mut rate = of.rate()?;
        if let &[first, .., before, last] | &[first @ before, last] = update.shape() {
            let matrix = update.reshape(&[first as isize, -1])?;
            update = self.orthogonalize(&matrix)?.reshape(update.shape())?;
            rate = rate.multiply((before as f64 / last as f64).max(1.0).sqrt())?;
        }
        Ok(of.parameter.subtract(rate.multiply(&update)?)?)
    }
}
