//! Training: a loop around a compiled step.
//!
//! A [`Trainer`] owns a model, its optimizer and a loss. A step computes the loss and the gradients of a
//! batch and updates parameters, buffers and the optimizer's state, compiled as one function. The trainer
//! drops the old arrays before the step runs, so that the step can donate them: training needs the memory of
//! one model, not of two.
//!
//! ```
//! use hesper::{Array, random};
//! use hesper_nn::optim::{Optimizer, Sgd};
//! use hesper_nn::train::Trainer;
//! use hesper_nn::{Linear, loss};
//!
//! random::seed(0);
//! let mut trainer = Trainer::new(Linear::new(1, 1)?, Optimizer::new(Sgd::new(0.1))?, |model: &Linear, batch| {
//!     loss::mse(&model.forward(&batch[0])?, &batch[1], Default::default())
//! })?;
//! let x = Array::try_from_slice(&[0.0f32, 1.0, 2.0, 3.0], &[4, 1])?;
//! let y = x.multiply(2.0)?.add(1.0)?;
//! trainer.fit(200, |_| Ok(vec![x.clone(), y.clone()]), &mut [])?;
//! let four = trainer.model().forward(&Array::try_from_slice(&[4.0f32], &[1, 1])?)?;
//! assert!((four.item::<f32>()? - 9.0).abs() < 0.1);
//! # Ok::<(), hesper_nn::Error>(())
//! ```

mod callbacks;
mod checkpoint;
mod data;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use hesper_core::transform::tree;
use hesper_core::{Array, Dtype, Split, eval};

use crate::error::{Error, Result};
use crate::module::{ArrayError, Module, ModuleExt, Tree};
use crate::optim::{LossScale, Optimizer, add_gradients, clip_grad_norm, scale_gradients};
use crate::transforms::{cast, value_and_grad};

pub use callbacks::{Callback, Checkpoints, CsvMetrics, Evaluate, JsonMetrics, Progress, Report};
pub use data::{Batches, accuracy, top_k_accuracy};

/// The state that a step updates.
#[derive(Debug, Clone)]
struct State<M> {
    model: M,
    optimizer: Optimizer,
    loss_scale: Option<LossScale>,
}

impl<M: Tree + Clone> Tree for State<M> {
    fn flatten(&self, into: &mut Vec<Array>) {
        self.model.flatten(into);
        self.optimizer.flatten(into);
        self.loss_scale.flatten(into);
    }

    fn rebuild(&self, arrays: &mut dyn Iterator<Item = Array>) -> Result<Self, ArrayError> {
        Ok(State {
            model: self.model.rebuild(arrays)?,
            optimizer: self.optimizer.rebuild(arrays)?,
            loss_scale: self.loss_scale.rebuild(arrays)?,
        })
    }

    fn structure(&self, into: &mut Vec<u8>) {
        self.model.structure(into);
        self.optimizer.structure(into);
        self.loss_scale.structure(into);
    }
}

/// The outputs of a step in addition to the state.
struct Outcome {
    loss: Array,
    /// The norm of the gradients before they were clipped.
    norm: Option<Array>,
    /// Whether the parameters were updated.
    updated: Option<Array>,
}

hesper_core::tree_struct!(Outcome { loss, norm, updated });

type Loss<M> = dyn Fn(&M, &[Array]) -> Result<Array> + Send + Sync;
type Step<M> = dyn Fn(&(State<M>, Vec<Array>)) -> Result<(State<M>, Outcome), ArrayError> + Send + Sync;

/// Options of a step.
#[derive(Debug, Clone, Copy)]
struct Options {
    clip: Option<f64>,
    accumulation: usize,
    precision: Option<Dtype>,
    compile: bool,
}

/// A model with its optimizer and loss.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::optim::{Optimizer, Sgd};
/// use hesper_nn::train::Trainer;
/// use hesper_nn::{Linear, ModuleExt, loss};
/// let loss = |model: &Linear, batch: &[Array]| {
///     loss::mse(&model.forward(&batch[0])?, &batch[1], Default::default())
/// };
/// let trainer = Trainer::new(Linear::new(2, 1)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
/// let mut trainer = trainer.with_clip(1.0).with_accumulation(2)?;
/// let batch = [Array::ones(&[4, 2], Dtype::Float32)?, Array::ones(&[4, 1], Dtype::Float32)?];
/// let report = trainer.step(&batch)?;
/// assert!(report.updated && report.metrics.contains_key("grad_norm"));
/// assert_eq!((trainer.steps(), trainer.optimizer().step()?), (1, 1));
/// trainer.optimizer_mut().set_learning_rate(0.01)?;
/// trainer.model_mut().freeze(|path| path == "bias");
/// trainer.fit(10, |_| Ok(batch.to_vec()), &mut [])?; // nine more steps
/// assert_eq!(trainer.evaluate(|model| model.forward(&batch[0]))?.shape(), [4, 1]);
/// assert_eq!(trainer.model().count(), trainer.into_model().count());
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub struct Trainer<M> {
    state: State<M>,
    options: Options,
    loss: Arc<Loss<M>>,
    step: Option<Box<Step<M>>>,
    /// The number of steps so far, including those without an update.
    steps: u64,
}

impl<M: Module> fmt::Debug for Trainer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Trainer");
        out.field("parameters", &self.state.model.count()).field("optimizer", &self.state.optimizer);
        out.field("options", &self.options).finish()
    }
}

impl<M: Module + Tree + Clone + Send + Sync + 'static> Trainer<M> {
    /// A trainer. `loss` computes the loss of a batch, a scalar. It must depend only on the model and the
    /// batch, since it is traced once for each set of shapes.
    pub fn new(
        model: M,
        mut optimizer: Optimizer,
        loss: impl Fn(&M, &[Array]) -> Result<Array> + Send + Sync + 'static,
    ) -> Result<Self> {
        optimizer.init(&model)?;
        let options = Options { clip: None, accumulation: 1, precision: None, compile: true };
        let state = State { model, optimizer, loss_scale: None };
        Ok(Trainer { state, options, loss: Arc::new(loss), step: None, steps: 0 })
    }

    /// Clips gradients to a norm.
    pub fn with_clip(mut self, max_norm: f64) -> Self {
        self.options.clip = Some(max_norm);
        self.step = None;
        self
    }

    /// Splits batches into parts along the first axis and accumulates their gradients. A step then needs the
    /// memory of one part.
    pub fn with_accumulation(mut self, parts: usize) -> Result<Self> {
        if parts == 0 {
            return Err(Error::argument("cannot accumulate gradients of 0 parts; use at least 1"));
        }
        self.options.accumulation = parts;
        self.step = None;
        Ok(self)
    }

    /// Computes the loss with parameters of a half-precision dtype. Parameters, optimizer state and buffers
    /// keep theirs. float16 needs a loss scale.
    ///
    /// ```
    /// # use hesper::{Array, Dtype};
    /// # use hesper_nn::optim::{Optimizer, Sgd};
    /// # use hesper_nn::train::Trainer;
    /// # use hesper_nn::{Linear, loss};
    /// use hesper_nn::optim::LossScale;
    /// # let loss = |model: &Linear, batch: &[Array]| {
    /// #     loss::mse(&model.forward(&batch[0])?, &batch[1], Default::default())
    /// # };
    /// # let trainer = Trainer::new(Linear::new(2, 1)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
    /// let mut trainer = trainer.with_precision(Dtype::Float16, Some(LossScale::new(1024.0, 2000)?));
    /// # let batch = [Array::ones(&[4, 2], Dtype::Float16)?, Array::ones(&[4, 1], Dtype::Float16)?];
    /// trainer.step(&batch)?;
    /// assert_eq!(trainer.loss_scale().map(|scale| scale.scale().shape().len()), Some(0));
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_precision(mut self, dtype: Dtype, loss_scale: Option<LossScale>) -> Self {
        self.options.precision = Some(dtype);
        self.state.loss_scale = loss_scale;
        self.step = None;
        self
    }

    /// Runs steps without compiling them, for losses that read values.
    ///
    /// ```
    /// # use hesper::{Array, Dtype};
    /// # use hesper_nn::optim::{Optimizer, Sgd};
    /// # use hesper_nn::train::Trainer;
    /// # use hesper_nn::{Linear, loss};
    /// # let (model, optimizer) = (Linear::new(2, 1)?, Optimizer::new(Sgd::new(0.1))?);
    /// let loss = |model: &Linear, batch: &[Array]| {
    ///     let y = model.forward(&batch[0])?;
    ///     println!("predicted {y}"); // a compiled step cannot read values
    ///     loss::mse(&y, &batch[1], Default::default())
    /// };
    /// let mut trainer = Trainer::new(model, optimizer, loss)?.without_compile();
    /// # let batch = [Array::ones(&[4, 2], Dtype::Float32)?, Array::ones(&[4, 1], Dtype::Float32)?];
    /// trainer.step(&batch)?;
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_compile(mut self) -> Self {
        self.options.compile = false;
        self.step = None;
        self
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.state.model
    }

    /// The model, to change it.
    pub fn model_mut(&mut self) -> &mut M {
        &mut self.state.model
    }

    /// The model without the trainer.
    pub fn into_model(self) -> M {
        self.state.model
    }

    /// The number of steps so far, including those without an update.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &Optimizer {
        &self.state.optimizer
    }

    /// The optimizer, to change it.
    pub fn optimizer_mut(&mut self) -> &mut Optimizer {
        &mut self.state.optimizer
    }

    /// The loss scale, if there is one.
    pub fn loss_scale(&self) -> Option<&LossScale> {
        self.state.loss_scale.as_ref()
    }

    /// Calls a function with a copy of the model in evaluation mode.
    pub fn evaluate<R>(&self, f: impl FnOnce(&M) -> Result<R>) -> Result<R> {
        let mut copy = self.state.model.clone();
        copy.train(false);
        f(&copy)
    }

    /// Trains one step on a batch.
    ///
    /// After an error or a panic of the loss the trainer is unchanged. If the evaluation of the step fails,
    /// for example because memory is exhausted, the next step or the next evaluation of the parameters
    /// retries it.
    pub fn step(&mut self, batch: &[Array]) -> Result<Report> {
        let step = self.step.get_or_insert_with(|| compiled(self.loss.clone(), self.options));
        let started = Instant::now();
        let (state, outcome) = step(&(self.state.clone(), batch.to_vec()))?;
        // Drop the old arrays before the evaluation, so that the step can overwrite them.
        self.state = state;
        self.steps += 1;
        let mut all = self.state.arrays();
        all.extend(outcome.arrays());
        let evaluated = eval(&all);
        drop(all);
        evaluated?;
        let number = |array: &Array| Ok::<_, Error>(f64::from(array.astype(Dtype::Float32)?.item::<f32>()?));
        let mut report = Report::new(self.steps, number(&outcome.loss)?);
        report.seconds = started.elapsed().as_secs_f64();
        report.updated =
            outcome.updated.as_ref().map(number).transpose()?.is_none_or(|updated| updated != 0.0);
        if let Some(norm) = &outcome.norm {
            report.metrics.insert("grad_norm".into(), number(norm)?);
        }
        if let Some(scale) = &self.state.loss_scale {
            report.metrics.insert("loss_scale".into(), number(scale.scale())?);
        }
        Ok(report)
    }

    /// Trains until the trainer has made `steps` steps or a callback stops it. `batches` returns the batch of
    /// a step by its number, from 0 on. Training that resumes from a checkpoint continues with the next
    /// number.
    pub fn fit(
        &mut self,
        steps: u64,
        mut batches: impl FnMut(u64) -> Result<Vec<Array>>,
        callbacks: &mut [&mut dyn Callback<M>],
    ) -> Result<()> {
        while self.steps < steps {
            let mut report = self.step(&batches(self.steps)?)?;
            report.steps = steps;
            for callback in callbacks.iter_mut() {
                if callback.after_step(self, &mut report)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The step as a function, compiled unless the options forbid it.
fn compiled<M: Module + Tree + Clone + Send + Sync + 'static>(
    loss: Arc<Loss<M>>,
    options: Options,
) -> Box<Step<M>> {
    let step = move |(state, batch): &(State<M>, Vec<Array>)| Ok(run(&*loss, &options, state, batch)?);
    match options.compile {
        true => Box::new(tree::compile(step)),
        false => Box::new(step),
    }
}

/// Computes the state after a step.
fn run<M: Module + Tree + Clone>(
    loss: &Loss<M>,
    options: &Options,
    state: &State<M>,
    batch: &[Array],
) -> Result<(State<M>, Outcome)> {
    let mut state = state.clone();
    let mut sum: Option<(Array, M)> = None;
    for part in parts(batch, options.accumulation)? {
        let scale = state.loss_scale.as_ref().map(|scale| scale.scale().clone());
        let gradients = value_and_grad(|model: &M| -> Result<(Array, Array)> {
            let value = match options.precision {
                Some(dtype) => {
                    let half = cast(model, dtype)?;
                    let value = loss(&half, &part)?;
                    model.set_buffers(&half.buffers());
                    value.astype(Dtype::Float32)?
                }
                None => loss(model, &part)?,
            };
            let scaled = match &scale {
                Some(scale) => value.multiply(scale)?,
                None => value.clone(),
            };
            Ok((scaled, value))
        });
        let ((_, value), gradients) = gradients(&state.model)?;
        sum = Some(match sum {
            None => (value, gradients),
            Some((total, mut all)) => {
                add_gradients(&mut all, &gradients)?;
                (total.add(&value)?, all)
            }
        });
    }
    let Some((mut value, mut gradients)) = sum else { return Err(Error::argument("the batch has no parts")) };
    if options.accumulation > 1 {
        let share = Array::scalar(1.0 / options.accumulation as f64, Dtype::Float32)?;
        value = value.multiply(&share)?;
        scale_gradients(&mut gradients, &share)?;
    }
    let updated = state.loss_scale.as_ref().map(|scale| scale.unscale(&mut gradients)).transpose()?;
    let norm = options.clip.map(|norm| clip_grad_norm(&mut gradients, norm)).transpose()?;
    match &updated {
        None => state.optimizer.update(&mut state.model, &gradients)?,
        Some(finite) => {
            state.optimizer.update_if(&mut state.model, &gradients, finite)?;
            state.loss_scale = state.loss_scale.map(|scale| scale.next(finite)).transpose()?;
        }
    }
    Ok((state, Outcome { loss: value, norm, updated }))
}

/// A batch in equal parts along the first axis.
fn parts(batch: &[Array], count: usize) -> Result<Vec<Vec<Array>>> {
    if count == 1 {
        return Ok(vec![batch.to_vec()]);
    }
    let mut parts = vec![Vec::new(); count];
    for array in batch {
        if array.ndim() == 0 || !array.shape()[0].is_multiple_of(count) {
            return Err(Error::argument(format!(
                "cannot split a batch of shape {:?} into {count} parts; its first axis must be a multiple of {count}",
                array.shape()
            )));
        }
        for (part, piece) in parts.iter_mut().zip(array.split(Split::Sections(count), 0)?) {
            part.push(piece);
        }
    }
    Ok(parts)
}

/// What a callback returns to continue training.
pub const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());
