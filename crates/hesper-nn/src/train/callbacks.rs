//! Callbacks of the training loop.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write, stderr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::{CONTINUE, Trainer};
use crate::error::{Error, Result};
use crate::module::{Module, Tree};

/// The result of a step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The number of the step, from 1 on.
    pub step: u64,
    /// The number of steps of the training.
    pub steps: u64,
    /// The loss of the batch.
    pub loss: f64,
    /// Whether the parameters were updated: with a loss scale, only if all gradients are finite.
    pub updated: bool,
    /// The duration of the step.
    pub seconds: f64,
    /// Other metrics by name. Callbacks may add metrics, which later callbacks see.
    pub metrics: BTreeMap<String, f64>,
}

impl Report {
    pub(super) fn new(step: u64, loss: f64) -> Self {
        Report { step, steps: step, loss, updated: true, seconds: 0.0, metrics: BTreeMap::new() }
    }

    /// All metrics by name, including the loss and the duration.
    fn all_metrics(&self) -> Vec<(&str, f64)> {
        let own = [("loss", self.loss), ("seconds", self.seconds)];
        own.into_iter().chain(self.metrics.iter().map(|(name, value)| (name.as_str(), *value))).collect()
    }
}

/// A callback that [`Trainer::fit`] calls after each step.
///
/// ```
/// use std::ops::ControlFlow;
/// use hesper::{Array, Dtype};
/// use hesper_nn::optim::{Optimizer, Sgd};
/// use hesper_nn::train::{Report, Trainer};
/// use hesper_nn::{Linear, loss};
///
/// let (model, optimizer) = (Linear::new(1, 1)?, Optimizer::new(Sgd::new(0.1))?);
/// let mut trainer = Trainer::new(model, optimizer, |model: &Linear, batch| {
///     loss::mse(&model.forward(&batch[0])?, &batch[0], Default::default())
/// })?;
/// let x = Array::ones(&[4, 1], Dtype::Float32)?;
/// // A closure is a callback.
/// let mut stop_early = |_: &Trainer<Linear>, report: &mut Report| {
///     Ok(if report.loss < 1e-3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
/// };
/// trainer.fit(1000, |_| Ok(vec![x.clone()]), &mut [&mut stop_early])?;
/// assert!(trainer.steps() < 1000);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub trait Callback<M> {
    /// Called after a step. Returns `ControlFlow::Break` to end the training.
    ///
    /// ```
    /// # use hesper::Array;
    /// # use hesper_nn::optim::{Optimizer, Sgd};
    /// # use hesper_nn::train::Trainer;
    /// # use hesper_nn::Linear;
    /// use std::ops::ControlFlow;
    /// use hesper_nn::train::{Callback, Progress};
    /// # let loss = |model: &Linear, batch: &[Array]| Ok(model.forward(&batch[0])?.sum(())?);
    /// # let mut trainer = Trainer::new(Linear::new(2, 2)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
    /// # let batch = [Array::ones(&[4, 2], hesper::Dtype::Float32)?];
    /// let mut report = trainer.step(&batch)?; // without `fit`, call callbacks directly
    /// assert_eq!(Progress::new().after_step(&trainer, &mut report)?, ControlFlow::Continue(()));
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    fn after_step(&mut self, trainer: &Trainer<M>, report: &mut Report) -> Result<ControlFlow<()>>;
}

impl<M, F: FnMut(&Trainer<M>, &mut Report) -> Result<ControlFlow<()>>> Callback<M> for F {
    fn after_step(&mut self, trainer: &Trainer<M>, report: &mut Report) -> Result<ControlFlow<()>> {
        self(trainer, report)
    }
}

/// A progress bar on standard error. Shows nothing if that is not a terminal.
///
/// ```
/// # use hesper::{Array, Dtype};
/// # use hesper_nn::optim::{Optimizer, Sgd};
/// # use hesper_nn::train::Trainer;
/// # use hesper_nn::{Linear, loss};
/// use hesper_nn::train::Progress;
/// # let loss = |model: &Linear, batch: &[Array]| {
/// #     loss::mse(&model.forward(&batch[0])?, &batch[0], Default::default())
/// # };
/// # let mut trainer = Trainer::new(Linear::new(2, 2)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
/// # let batch = [Array::ones(&[4, 2], Dtype::Float32)?];
/// trainer.fit(3, |_| Ok(batch.to_vec()), &mut [&mut Progress::new()])?;
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    drawn: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// A progress bar.
    #[allow(clippy::new_without_default, reason = "it starts a clock")]
    pub fn new() -> Self {
        Progress { started: Instant::now(), drawn: None, shown: stderr().is_terminal() }
    }
}

/// The text of a progress bar.
fn bar(report: &Report, seconds: f64) -> String {
    const WIDTH: u64 = 30;
    let full = report.step * WIDTH / report.steps.max(1);
    let bar: String = (0..WIDTH).map(|at| if at < full { '=' } else { ' ' }).collect();
    let left = seconds / report.step.max(1) as f64 * report.steps.saturating_sub(report.step) as f64;
    format!("[{bar}] {}/{} loss {:.4} {left:.0} s left", report.step, report.steps, report.loss)
}

impl<M> Callback<M> for Progress {
    fn after_step(&mut self, _: &Trainer<M>, report: &mut Report) -> Result<ControlFlow<()>> {
        let last = report.step == report.steps;
        let due = self.drawn.is_none_or(|drawn| drawn.elapsed().as_millis() >= 100);
        if self.shown && (due || last) {
            // Ignore an error: training continues even if the terminal is closed.
            let end = if last { "\n" } else { "" };
            let _ = write!(stderr(), "\r{}\x1b[K{end}", bar(report, self.started.elapsed().as_secs_f64()));
            self.drawn = Some(Instant::now());
        }
        Ok(CONTINUE)
    }
}

fn file_error(path: &Path, error: std::io::Error) -> Error {
    Error::Io { path: path.display().to_string(), cause: Arc::new(error) }
}

/// A file that lines are appended to.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Output {
    /// Opens a file for appending. Creates it if it does not exist.
    fn open(path: &Path) -> Result<Self> {
        let file =
            File::options().create(true).append(true).open(path).map_err(|error| file_error(path, error))?;
        Ok(Output { path: path.to_path_buf(), file: BufWriter::new(file) })
    }

    fn line(&mut self, text: &str) -> Result<()> {
        let written = writeln!(self.file, "{text}").and_then(|()| self.file.flush());
        written.map_err(|error| file_error(&self.path, error))
    }
}

/// Appends the metrics of each step to a CSV file. The columns are those of the header if the file exists,
/// else the metrics of the first step.
///
/// ```
/// # use hesper::{Array, Dtype};
/// # use hesper_nn::optim::{Optimizer, Sgd};
/// # use hesper_nn::train::Trainer;
/// # use hesper_nn::{Linear, loss};
/// use hesper_nn::train::CsvMetrics;
/// # let path = std::env::temp_dir().join(format!("hesper-metrics-{}.csv", std::process::id()));
/// # let loss = |model: &Linear, batch: &[Array]| {
/// #     loss::mse(&model.forward(&batch[0])?, &batch[0], Default::default())
/// # };
/// # let mut trainer = Trainer::new(Linear::new(2, 2)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
/// # let batch = [Array::ones(&[4, 2], Dtype::Float32)?];
/// trainer.fit(2, |_| Ok(batch.to_vec()), &mut [&mut CsvMetrics::new(&path)?])?;
/// assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3); // a header and two steps
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct CsvMetrics {
    output: Output,
    columns: Option<Vec<String>>,
}

impl CsvMetrics {
    /// Writes metrics to a file.
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = match path.exists() {
            true => std::fs::read_to_string(path).map_err(|error| file_error(path, error))?,
            false => String::new(),
        };
        let header = text.lines().next().map(|line| line.split(',').skip(1).map(str::to_string).collect());
        Ok(CsvMetrics { output: Output::open(path)?, columns: header })
    }
}

impl<M> Callback<M> for CsvMetrics {
    fn after_step(&mut self, _: &Trainer<M>, report: &mut Report) -> Result<ControlFlow<()>> {
        let metrics = report.all_metrics();
        if self.columns.is_none() {
            let columns: Vec<String> = metrics.iter().map(|(name, _)| name.to_string()).collect();
            self.output.line(&format!("step,{}", columns.join(",")))?;
            self.columns = Some(columns);
        }
        let value = |column: &String| {
            let found = metrics.iter().find(|(name, _)| name == column);
            found.map_or_else(String::new, |(_, value)| value.to_string())
        };
        let values: Vec<String> = self.columns.iter().flatten().map(value).collect();
        self.output.line(&format!("{},{}", report.step, values.join(",")))?;
        Ok(CONTINUE)
    }
}

/// Appends the metrics of each step to a file with one JSON object per line. Numbers that are not finite are
/// null.
///
/// ```
/// # use hesper::{Array, Dtype};
/// # use hesper_nn::optim::{Optimizer, Sgd};
/// # use hesper_nn::train::Trainer;
/// # use hesper_nn::{Linear, loss};
/// use hesper_nn::train::JsonMetrics;
/// # let path = std::env::temp_dir().join(format!("hesper-metrics-{}.jsonl", std::process::id()));
/// # let loss = |model: &Linear, batch: &[Array]| {
/// #     loss::mse(&model.forward(&batch[0])?, &batch[0], Default::default())
/// # };
/// # let mut trainer = Trainer::new(Linear::new(2, 2)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
/// # let batch = [Array::ones(&[4, 2], Dtype::Float32)?];
/// trainer.fit(2, |_| Ok(batch.to_vec()), &mut [&mut JsonMetrics::new(&path)?])?;
/// assert!(std::fs::read_to_string(&path).unwrap().contains("\"loss\":"));
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct JsonMetrics(Output);

impl JsonMetrics {
    /// Writes metrics to a file.
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        Ok(JsonMetrics(Output::open(path.as_ref())?))
    }
}

impl<M> Callback<M> for JsonMetrics {
    fn after_step(&mut self, _: &Trainer<M>, report: &mut Report) -> Result<ControlFlow<()>> {
        let entry = |(name, value): (&str, f64)| {
            let name: String = name.chars().flat_map(char::escape_default).collect();
            if value.is_finite() { format!("\"{name}\": {value}") } else { format!("\"{name}\": null") }
        };
        let entries: Vec<String> = report.all_metrics().into_iter().map(entry).collect();
        self.0.line(&format!("{{\"step\": {}, {}}}", report.step, entries.join(", ")))?;
        Ok(CONTINUE)
    }
}

/// Evaluates the model in evaluation mode, every `every` steps and after the last one. Adds the returned
/// numbers to the metrics of the step.
///
/// ```
/// # use hesper::{Array, Dtype};
/// # use hesper_nn::optim::{Optimizer, Sgd};
/// # use hesper_nn::train::Trainer;
/// # use hesper_nn::{Linear, loss};
/// use hesper_nn::train::Evaluate;
/// # let loss = |model: &Linear, batch: &[Array]| {
/// #     loss::mse(&model.forward(&batch[0])?, &batch[0], Default::default())
/// # };
/// # let mut trainer = Trainer::new(Linear::new(2, 2)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
/// # let batch = [Array::ones(&[4, 2], Dtype::Float32)?];
/// let held_out = batch[0].clone();
/// let mut evaluate = Evaluate::every(2, |model: &Linear| {
///     Ok(vec![("output", f64::from(model.forward(&held_out)?.mean(())?.item::<f32>()?))])
/// });
/// trainer.fit(4, |_| Ok(batch.to_vec()), &mut [&mut evaluate])?; // callbacks after it see the metric
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub struct Evaluate<F> {
    every: u64,
    f: F,
}

impl<F> Evaluate<F> {
    /// Evaluates with a function that returns metrics.
    pub fn every<M>(every: u64, f: F) -> Self
    where
        F: FnMut(&M) -> Result<Vec<(&'static str, f64)>>,
    {
        Evaluate { every: every.max(1), f }
    }
}

impl<F> std::fmt::Debug for Evaluate<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evaluate(every {} steps)", self.every)
    }
}

impl<M, F> Callback<M> for Evaluate<F>
where
    M: Module + Tree + Clone + Send + Sync + 'static,
    F: FnMut(&M) -> Result<Vec<(&'static str, f64)>>,
{
    fn after_step(&mut self, trainer: &Trainer<M>, report: &mut Report) -> Result<ControlFlow<()>> {
        if report.step.is_multiple_of(self.every) || report.step == report.steps {
            let found = trainer.evaluate(&mut self.f)?;
            report.metrics.extend(found.into_iter().map(|(name, value)| (name.to_string(), value)));
        }
        Ok(CONTINUE)
    }
}

/// Saves a checkpoint every `every` steps and after the last one. Overwrites the previous checkpoint.
///
/// ```
/// # use hesper::{Array, Dtype};
/// # use hesper_nn::optim::{Optimizer, Sgd};
/// # use hesper_nn::train::Trainer;
/// # use hesper_nn::{Linear, loss};
/// use hesper_nn::train::Checkpoints;
/// # let path = std::env::temp_dir().join(format!("hesper-every-{}.safetensors", std::process::id()));
/// # let loss = |model: &Linear, batch: &[Array]| {
/// #     loss::mse(&model.forward(&batch[0])?, &batch[0], Default::default())
/// # };
/// # let mut trainer = Trainer::new(Linear::new(2, 2)?, Optimizer::new(Sgd::new(0.1))?, loss)?;
/// # let batch = [Array::ones(&[4, 2], Dtype::Float32)?];
/// trainer.fit(3, |_| Ok(batch.to_vec()), &mut [&mut Checkpoints::every(2, &path)])?;
/// assert!(path.exists());
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct Checkpoints {
    every: u64,
    path: PathBuf,
}

impl Checkpoints {
    /// Saves checkpoints to a file.
    pub fn every(every: u64, path: impl AsRef<Path>) -> Self {
        Checkpoints { every: every.max(1), path: path.as_ref().to_path_buf() }
    }
}

impl<M: Module + Tree + Clone + Send + Sync + 'static> Callback<M> for Checkpoints {
    fn after_step(&mut self, trainer: &Trainer<M>, report: &mut Report) -> Result<ControlFlow<()>> {
        if report.step.is_multiple_of(self.every) || report.step == report.steps {
            trainer.save(&self.path)?;
        }
        Ok(CONTINUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_share_of_completed_steps() {
        let report = Report { steps: 10, ..Report::new(5, 0.25) };
        assert_eq!(bar(&report, 2.0), "[===============               ] 5/10 loss 0.2500 2 s left");
    }
}
