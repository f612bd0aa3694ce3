//! Optimizers.
//!
//! An [`Optimizer`] holds the state of an [`UpdateRule`] for every trainable parameter, by path. It is a
//! [`Tree`], so a compiled function may take a module and its optimizer and return both.
//!
//! ```
//! use hesper::{Array, Dtype};
//! use hesper_nn::optim::{Adam, Optimizer};
//! use hesper_nn::{Linear, loss, value_and_grad};
//!
//! let mut model = Linear::new(2, 1)?;
//! let mut optimizer = Optimizer::new(Adam::new(0.1))?;
//! let (x, y) = (Array::ones(&[4, 2], Dtype::Float32)?, Array::zeros(&[4, 1], Dtype::Float32)?);
//! let step = value_and_grad(|model: &Linear| loss::mse(&model.forward(&x)?, &y, Default::default()));
//! let first = step(&model)?.0.item::<f32>()?;
//! for _ in 0..20 {
//!     let (_, gradients) = step(&model)?;
//!     optimizer.update(&mut model, &gradients)?;
//! }
//! assert!(step(&model)?.0.item::<f32>()? < first);
//! # Ok::<(), hesper_nn::Error>(())
//! ```

mod loss_scale;
mod rules;
mod schedule;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use hesper_core::{Array, Dtype, select};

use crate::error::{Error, Result};
use crate::module::{ArrayError, Leaf, LeafMut, Module, ModuleExt, Path, Tree};

pub use loss_scale::LossScale;
pub use rules::{AdaDelta, Adafactor, Adagrad, Adam, Adamax, Lion, Muon, RmsProp, Sgd};
pub use schedule::Schedule;

/// The state of an update rule for one parameter, by name.
pub type Slots = BTreeMap<String, Array>;

/// The step of an update: its number and learning rate.
#[derive(Debug)]
pub struct StepInfo {
    /// The number of the step, from 1 on, as float32.
    pub number: Array,
    /// The learning rate, unless the rule has none.
    pub rate: Option<Array>,
}

/// The update of one parameter: the inputs of a rule, and the state that it changes.
///
/// ```
/// use hesper::{Array, array};
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Optimizer, Schedule, Slots, Update, UpdateRule};
///
/// /// Descent along an average of gradients, with weight decay.
/// #[derive(Debug)]
/// struct Averaged(Schedule);
///
/// impl UpdateRule for Averaged {
///     fn learning_rate(&self) -> Option<&Schedule> {
///         Some(&self.0)
///     }
///
///     fn init(&self, parameter: &Array) -> hesper_nn::Result<Slots> {
///         let zeros = parameter.zeros_like()?;
///         Ok(Slots::from([("mean".into(), zeros.clone()), ("last".into(), zeros)]))
///     }
///
///     fn update(&self, mut of: Update<'_>) -> hesper_nn::Result<Array> {
///         let mean = of.average("mean", 0.5, of.gradient)?;
///         of.keep("last", of.slot("mean")?.clone());
///         Ok(of.shrunk(0.01)?.subtract(of.rate()?.multiply(mean)?)?)
///     }
/// }
///
/// let mut w = Parameter::new(array![1.0]);
/// Optimizer::new(Averaged(0.1.into()))?.update(&mut w, &Parameter::new(array![2.0]))?;
/// assert!((w.item::<f32>()? - 0.899).abs() < 1e-6);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct Update<'a> {
    /// The step.
    pub step: &'a StepInfo,
    /// The gradient of the parameter.
    pub gradient: &'a Array,
    /// The parameter before the step.
    pub parameter: &'a Array,
    /// The state of the parameter.
    pub slots: &'a mut Slots,
}

impl Update<'_> {
    /// The learning rate in the dtype of the gradient.
    pub fn rate(&self) -> Result<Array> {
        let rate = self.step.rate.as_ref();
        let rate = rate.ok_or_else(|| Error::argument("the update rule has no learning rate"))?;
        Ok(rate.astype(self.gradient.dtype())?)
    }

    /// The state with a name.
    pub fn slot(&self, name: &str) -> Result<&Array> {
        let found = self.slots.get(name);
        found.ok_or_else(|| Error::argument(format!("the update rule keeps no state {name:?}")))
    }

    /// Sets the state with a name, and returns it.
    pub fn keep(&mut self, name: &str, value: Array) -> Array {
        self.slots.insert(name.into(), value.clone());
        value
    }

    /// Sets the state with a name to `decay * state + (1 - decay) * value`, and returns it.
    pub fn average(&mut self, name: &str, decay: f64, value: &Array) -> Result<Array> {
        let new = self.slot(name)?.multiply(decay)?.add(value.multiply(1.0 - decay)?)?;
        Ok(self.keep(name, new))
    }

    /// The parameter after weight decay: times `1 - decay * learning rate`.
    pub fn shrunk(&self, decay: f64) -> Result<Array> {
        Ok(match decay == 0.0 {
            true => self.parameter.clone(),
            false => self.parameter.multiply(self.rate()?.multiply(-decay)?.add(1.0)?)?,
        })
    }
}

/// How a gradient changes a parameter. Rules with different settings must have different `Debug` texts.
///
/// ```
/// use hesper::{Array, array};
/// use hesper_nn::optim::{Optimizer, Schedule, Slots, Update, UpdateRule};
/// use hesper_nn::{Module, Parameter};
///
/// /// Steps of one length against the sign of the gradient.
/// #[derive(Debug)]
/// struct SignDescent(Schedule);
///
/// impl UpdateRule for SignDescent {
///     fn learning_rate(&self) -> Option<&Schedule> {
///         Some(&self.0)
///     }
///
///     fn init(&self, _: &Array) -> hesper_nn::Result<Slots> {
///         Ok(Slots::new())
///     }
///
///     fn update(&self, of: Update<'_>) -> hesper_nn::Result<Array> {
///         Ok(of.parameter.subtract(of.rate()?.multiply(of.gradient.sign()?)?)?)
///     }
/// }
///
/// #[derive(Module, Clone)]
/// struct Point {
///     at: Parameter,
/// }
///
/// let mut point = Point { at: array![1.0, 2.0].into() };
/// let gradients = Point { at: array![5.0, -0.1].into() };
/// Optimizer::new(SignDescent(0.5.into()))?.update(&mut point, &gradients)?;
/// assert_eq!(point.at.to_vec::<f32>()?, [0.5, 2.5]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub trait UpdateRule: fmt::Debug + Send + Sync {
    /// The learning rate, unless the rule computes its own.
    fn learning_rate(&self) -> Option<&Schedule>;

    /// Fails if a setting is out of its range.
    ///
    /// ```
    /// use hesper_nn::optim::{Adam, Optimizer};
    /// let error = Optimizer::new(Adam { eps: -1.0, ..Adam::new(0.1) }).unwrap_err(); // `new` calls `check`
    /// assert!(error.to_string().contains("eps"));
    /// ```
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The state of a parameter before its first update.
    fn init(&self, parameter: &Array) -> Result<Slots>;

    /// The new parameter.
    fn update(&self, of: Update<'_>) -> Result<Array>;
}

type Filter = dyn Fn(&str, &Array) -> bool + Send + Sync;

/// A rule and the parameters that it applies to.
#[derive(Clone)]
struct Group {
    accepts: Option<Arc<Filter>>,
    rule: Arc<dyn UpdateRule>,
    /// The learning rate, if it is constant. An array, so that changes apply to compiled steps.
    rate: Option<Array>,
}

impl Group {
    fn new(accepts: Option<Arc<Filter>>, rule: Arc<dyn UpdateRule>) -> Result<Self> {
        rule.check()?;
        let constant = rule.learning_rate().and_then(Schedule::constant);
        let rate = constant
            .map(|rate| Ok::<_, Error>(Array::from_slice(&[rate as f32]).reshape::<isize>(&[])?))
            .transpose()?;
        Ok(Group { accepts, rule, rate })
    }

    fn step_info(&self, step: &Array) -> Result<StepInfo> {
        let rate = match (&self.rate, self.rule.learning_rate()) {
            (Some(rate), _) => Some(rate.clone()),
            (None, Some(schedule)) => Some(schedule.at(step)?),
            (None, None) => None,
        };
        Ok(StepInfo { number: step.add(1)?.astype(Dtype::Float32)?, rate })
    }
}

/// Updates the parameters of a module with gradients.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::{Optimizer, Sgd};
/// let (mut w, gradient) = (Parameter::new(array![1.0]), Parameter::new(array![2.0]));
/// let mut optimizer = Optimizer::new(Sgd::new(0.1))?;
/// optimizer.init(&w)?; // optional: `update` calls it
/// optimizer.update(&mut w, &gradient)?;
/// assert_eq!((optimizer.step()?, optimizer.learning_rate()?), (1, Some(f64::from(0.1f32))));
/// optimizer.set_learning_rate(0.0)?;
/// optimizer.update(&mut w, &gradient)?;
/// optimizer.update_if(&mut w, &gradient, &array![false].squeeze(())?)?; // not counted as a step
/// assert_eq!((optimizer.step()?, w.to_vec::<f32>()?), (2, vec![0.8]));
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Clone)]
pub struct Optimizer {
    groups: Vec<Group>,
    step: Array,
    slots: BTreeMap<String, Slots>,
}

impl fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<_> = self.groups.iter().map(|group| &group.rule).collect();
        f.debug_struct("Optimizer").field("rules", &rules).field("parameters", &self.slots.len()).finish()
    }
}

impl Optimizer {
    /// An optimizer with one rule for all parameters.
    pub fn new(rule: impl UpdateRule + 'static) -> Result<Self> {
        Ok(Optimizer {
            groups: vec![Group::new(None, Arc::new(rule))?],
            step: Array::try_from_slice(&[0u64], &[])?,
            slots: BTreeMap::new(),
        })
    }

    /// Adds a rule for the parameters that `accepts` selects by path and value. The first group that accepts
    /// a parameter is used, in the order in which groups were added. The rule of [`Optimizer::new`] is for
    /// the rest.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::optim::{Adam, Optimizer, Sgd};
    /// // No weight decay for vectors: biases and norms.
    /// let optimizer = Optimizer::new(Adam::with_weight_decay(1e-3))?
    ///     .with_group(|_, parameter| parameter.ndim() == 1, Adam::new(1e-3))?
    ///     .with_group(|path, _| path.starts_with("head."), Sgd::new(0.1))?;
    /// # let _ = optimizer;
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_group(
        mut self,
        accepts: impl Fn(&str, &Array) -> bool + Send + Sync + 'static,
        rule: impl UpdateRule + 'static,
    ) -> Result<Self> {
        let last = self.groups.len() - 1;
        self.groups.insert(last, Group::new(Some(Arc::new(accepts)), Arc::new(rule))?);
        Ok(self)
    }

    /// The number of steps that were made.
    pub fn step(&self) -> Result<u64> {
        Ok(self.step.item::<u64>()?)
    }

    /// The learning rate of the next step, of the rule of [`Optimizer::new`]. `None` if the rule computes its
    /// own.
    pub fn learning_rate(&self) -> Result<Option<f64>> {
        let Some(group) = self.groups.last() else { return Ok(None) };
        match group.step_info(&self.step)?.rate {
            Some(rate) => Ok(Some(f64::from(rate.astype(Dtype::Float32)?.item::<f32>()?))),
            None => Ok(None),
        }
    }

    /// Sets the learning rate of all groups whose rate is constant.
    pub fn set_learning_rate(&mut self, rate: f64) -> Result<()> {
        for own in self.groups.iter_mut().filter_map(|group| group.rate.as_mut()) {
            *own = Array::try_from_slice(&[rate as f32], &[])?;
        }
        Ok(())
    }

    fn group(&self, path: &str, parameter: &Array) -> Result<usize> {
        let accepts = |group: &Group| group.accepts.as_ref().is_none_or(|accepts| accepts(path, parameter));
        let found = self.groups.iter().position(accepts);
        found.ok_or_else(|| Error::argument(format!("no group of the optimizer accepts {path:?}")))
    }

    /// Initializes the state of all trainable parameters that have none yet.
    pub fn init(&mut self, module: &dyn Module) -> Result<()> {
        for (path, parameter) in module.trainable_parameters() {
            if !self.slots.contains_key(&path) {
                let group = self.group(&path, &parameter)?;
                let slots = self.groups[group].rule.init(&parameter)?;
                self.slots.insert(path, slots);
            }
        }
        Ok(())
    }

    /// Updates the trainable parameters of a module with a module of gradients. After an error the parameters
    /// and their state are unchanged.
    pub fn update(&mut self, module: &mut dyn Module, gradients: &dyn Module) -> Result<()> {
        self.update_where(module, gradients, None)
    }

    /// The same if `condition`, an array of one bool, is true. Otherwise parameters and state are unchanged.
    pub fn update_if(
        &mut self,
        module: &mut dyn Module,
        gradients: &dyn Module,
        condition: &Array,
    ) -> Result<()> {
        self.update_where(module, gradients, Some(condition))
    }

    fn update_where(
        &mut self,
        module: &mut dyn Module,
        gradients: &dyn Module,
        condition: Option<&Array>,
    ) -> Result<()> {
        self.init(module)?;
        let keep = |new: Array, old: &Array| -> Result<Array> {
            Ok(match condition {
                Some(condition) => select(condition, &new, old)?,
                None => new,
            })
        };
        let gradients = gradients.parameters();
        let infos =
            self.groups.iter().map(|group| group.step_info(&self.step)).collect::<Result<Vec<_>>>()?;
        let mut new_values = BTreeMap::new();
        let mut all_slots = BTreeMap::new();
        for (path, parameter) in module.trainable_parameters() {
            let gradient = gradients.get(&path).ok_or_else(|| Error::Missing { path: path.clone() })?;
            if gradient.shape() != parameter.shape() {
                let (given, expected) = (gradient.shape().to_vec(), parameter.shape().to_vec());
                return Err(Error::Shape { path, given, expected });
            }
            let old = self.slots.get(&path).cloned().unwrap_or_default();
            let (mut slots, group) = (old.clone(), self.group(&path, &parameter)?);
            let (step, parameter) = (&infos[group], &parameter);
            let new =
                self.groups[group].rule.update(Update { step, gradient, parameter, slots: &mut slots })?;
            for (name, value) in &mut slots {
                if let Some(old) = old.get(name) {
                    *value = keep(value.clone(), old)?;
                }
            }
            new_values.insert(path.clone(), keep(new, parameter)?);
            all_slots.insert(path, slots);
        }
        let step = keep(self.step.add(1)?, &self.step)?;
        module.visit_mut(&mut Path::default(), &mut |path, leaf| {
            if let (LeafMut::Parameter(parameter), Some(value)) = (leaf, new_values.remove(path)) {
                parameter.set(value);
            }
            Ok(())
        })?;
        self.slots.extend(all_slots);
        self.step = step;
        Ok(())
    }

    /// The whole state by name: `step`, constant learning rates, and the state of parameters by path.
    ///
    /// ```
    /// use hesper::array;
    /// use hesper_nn::Parameter;
    /// use hesper_nn::optim::{Adam, Optimizer};
    /// let (mut w, gradient) = (Parameter::new(array![1.0]), Parameter::new(array![2.0]));
    /// let mut optimizer = Optimizer::new(Adam::new(0.1))?;
    /// optimizer.update(&mut w, &gradient)?;
    /// let mut other = Optimizer::new(Adam::new(0.1))?;
    /// other.load_state(&w, &optimizer.state())?; // can be saved with `io::save_safetensors`
    /// assert_eq!(other.step()?, 1);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn state(&self) -> BTreeMap<String, Array> {
        let mut all = BTreeMap::from([("step".to_string(), self.step.clone())]);
        for (at, group) in self.groups.iter().enumerate() {
            if let Some(rate) = &group.rate {
                all.insert(format!("learning_rate.{at}"), rate.clone());
            }
        }
        for (path, slots) in &self.slots {
            all.extend(slots.iter().map(|(name, value)| (format!("state.{path}.{name}"), value.clone())));
        }
        all
    }

    /// Loads the state that [`Optimizer::state`] returned, for a module. It must be complete, with equal
    /// shapes. After an error the optimizer is unchanged.
    pub fn load_state(&mut self, module: &dyn Module, given: &BTreeMap<String, Array>) -> Result<()> {
        let mut new = self.clone();
        new.init(module)?;
        let own = new.state();
        if let Some(path) = given.keys().find(|path| !own.contains_key(*path)) {
            return Err(Error::Unknown { path: path.clone() });
        }
        let take = |name: String, old: &mut Array| -> Result<()> {
            let value = given.get(&name).ok_or_else(|| Error::Missing { path: name.clone() })?;
            if value.shape() != old.shape() {
                let (given, expected) = (value.shape().to_vec(), old.shape().to_vec());
                return Err(Error::Shape { path: name, given, expected });
            }
            *old = value.clone();
            Ok(())
        };
        take("step".into(), &mut new.step)?;
        for (at, group) in new.groups.iter_mut().enumerate() {
            if let Some(rate) = &mut group.rate {
                take(format!("learning_rate.{at}"), rate)?;
            }
        }
        for (path, slots) in &mut new.slots {
            for (name, value) in slots {
                take(format!("state.{path}.{name}"), value)?;
            }
        }
        *self = new;
        Ok(())
    }
}

impl Tree for Optimizer {
    fn flatten(&self, into: &mut Vec<Array>) {
        into.push(self.step.clone());
        into.extend(self.groups.iter().filter_map(|group| group.rate.clone()));
        self.slots.flatten(into);
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self, ArrayError> {
        let mut copy = self.clone();
        copy.step = self.step.rebuild(arrays)?;
        for rate in copy.groups.iter_mut().filter_map(|group| group.rate.as_mut()) {
            *rate = rate.rebuild(arrays)?;
        }
        copy.slots = self.slots.rebuild(arrays)?;
        Ok(copy)
    }

    fn structure(&self, into: &mut Vec<u8>) {
        for group in &self.groups {
            into.extend(format!("{:?}\n", group.rule).into_bytes());
        }
        self.slots.structure(into);
    }
}

/// Scales gradients so that their norm, over all trainable parameters, is at most `max_norm`. Returns the
/// norm before scaling.
///
/// ```
/// use hesper::array;
/// use hesper_nn::optim::clip_grad_norm;
/// use hesper_nn::{Module, Parameter};
///
/// #[derive(Module, Clone)]
/// struct Gradients {
///     weight: Parameter,
/// }
///
/// let mut gradients = Gradients { weight: array![3.0, 4.0].into() };
/// assert_eq!(clip_grad_norm(&mut gradients, 1.0)?.item::<f32>()?, 5.0);
/// assert!((gradients.weight.to_vec::<f32>()?[0] - 0.6).abs() < 1e-4);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn clip_grad_norm(gradients: &mut dyn Module, max_norm: f64) -> Result<Array> {
    if max_norm.is_nan() || max_norm < 0.0 {
        let what = format!("cannot clip gradients to a norm of {max_norm}; it must not be negative");
        return Err(Error::argument(what));
    }
    let mut sum = Array::scalar(0.0, Dtype::Float32)?;
    for gradient in gradients.trainable_parameters().values() {
        let wide = match gradient.dtype() {
            Dtype::Float16 => gradient.astype(Dtype::Float32)?,
            _ => gradient.clone(),
        };
        sum = sum.add(wide.square()?.sum(())?)?;
    }
    let norm = sum.sqrt()?;
    let factor = Array::scalar(max_norm, Dtype::Float32)?.divide(norm.add(1e-6)?)?.minimum(1.0)?;
    scale_gradients(gradients, &factor)?;
    Ok(norm)
}

/// Multiplies all gradients of trainable parameters by a factor.
pub(crate) fn scale_gradients(gradients: &mut dyn Module, factor: &Array) -> Result<()> {
    gradients.visit_mut(&mut Path::default(), &mut |_, leaf| {
        if let LeafMut::Parameter(gradient) = leaf
            && gradient.is_trainable()
        {
            let scaled = gradient.multiply(factor)?.astype(gradient.dtype())?;
            gradient.set(scaled);
        }
        Ok(())
    })
}

/// Adds the gradients of one module to those of another.
pub(crate) fn add_gradients(sum: &mut dyn Module, more: &dyn Module) -> Result<()> {
    let more = more.parameters();
    sum.visit_mut(&mut Path::default(), &mut |path, leaf| {
        if let (LeafMut::Parameter(gradient), Some(more)) = (leaf, more.get(path))
            && gradient.is_trainable()
        {
            let new = gradient.add(more)?;
            gradient.set(new);
        }
        Ok(())
    })
}

/// An exponential moving average of the parameters of a module: `decay * average + (1 - decay) * parameter`.
///
/// ```
/// # use hesper as _;
/// use hesper_nn::optim::Ema;
/// use hesper_nn::{Linear, ModuleExt};
/// let (start, trained) = (Linear::new(2, 2)?, Linear::new(2, 2)?);
/// let mut average = Ema::new(&start, 0.75)?;
/// average.update(&trained)?;
/// let bias = |of: &Linear| of.parameters()["bias"].to_vec::<f32>();
/// let expected = 0.75 * bias(&start)?[0] + 0.25 * bias(&trained)?[0];
/// assert!((bias(average.module())?[0] - expected).abs() < 1e-6);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ema<M> {
    module: M,
    decay: f64,
}

impl<M: Module + Clone> Ema<M> {
    /// An average that starts with the parameters of a module.
    pub fn new(module: &M, decay: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&decay) {
            let what = format!("cannot average parameters with decay = {decay}; it must be in [0, 1]");
            return Err(Error::argument(what));
        }
        Ok(Ema { module: module.clone(), decay })
    }

    /// Updates the average with the parameters of a module. Copies its frozen parameters and its buffers.
    pub fn update(&mut self, module: &M) -> Result<()> {
        average(&mut self.module, module, self.decay)
    }

    /// The average as a module.
    pub fn module(&self) -> &M {
        &self.module
    }
}

fn average(own: &mut dyn Module, other: &dyn Module, decay: f64) -> Result<()> {
    let new = other.parameters();
    let mut trained = BTreeMap::new();
    other.visit(&mut Path::default(), &mut |path, leaf| {
        if let Leaf::Parameter(parameter) = leaf {
            trained.insert(path.to_string(), parameter.is_trainable());
        }
    });
    own.visit_mut(&mut Path::default(), &mut |path, leaf| {
        if let LeafMut::Parameter(parameter) = leaf {
            let value = new.get(path).ok_or_else(|| Error::Missing { path: path.to_string() })?;
            let averaged = match trained.get(path) {
                Some(true) => parameter.multiply(decay)?.add(value.multiply(1.0 - decay)?)?,
                _ => value.clone(),
            };
            parameter.set(averaged);
        }
        Ok(())
    })?;
    own.set_buffers(&other.buffers());
    Ok(())
}
