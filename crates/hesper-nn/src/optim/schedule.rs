//! Learning rates as functions of the step.

use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

use hesper_core::{Array, Dtype, select};

use crate::error::{Error, Result};

type Function = dyn Fn(&Array) -> Result<Array> + Send + Sync;

/// A number that may change with the step of training. Schedules are computed from an array that holds the
/// step, so a compiled training step follows them.
///
/// ```
/// use hesper_nn::optim::Schedule;
/// # use hesper as _;
/// let warmup = Schedule::linear(0.0, 0.1, 10)?;
/// let schedule = Schedule::join(vec![warmup, Schedule::cosine(0.1, 100, 0.0)?], &[10])?;
/// assert!((schedule.value(5)? - 0.05).abs() < 1e-6);
/// assert!((schedule.value(60)? - 0.05).abs() < 1e-6);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Clone)]
pub struct Schedule {
    name: String,
    constant: Option<f64>,
    function: Arc<Function>,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the value: it is part of the optimizer's state.
        f.write_str(if self.constant.is_some() { "constant" } else { &self.name })
    }
}

impl From<f64> for Schedule {
    fn from(value: f64) -> Self {
        let function = move |_: &Array| Ok(Array::scalar(value, Dtype::Float32)?);
        Schedule { name: value.to_string(), constant: Some(value), function: Arc::new(function) }
    }
}

fn at_least_one(schedule: &str, what: &str, steps: u64) -> Result<()> {
    if steps > 0 {
        return Ok(());
    }
    Err(Error::argument(format!("cannot make a {schedule} schedule with {what} = 0; it must be at least 1")))
}

impl Schedule {
    /// A function of the step, which is a float32 array. Schedules are compared by name, so two with the same
    /// name must be the same function.
    ///
    /// ```
    /// use hesper_nn::optim::Schedule;
    /// let inverse_root = Schedule::new("inverse root", |step| Ok(step.add(1.0)?.rsqrt()?));
    /// assert_eq!(inverse_root.value(3)?, 0.5);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn new(
        name: impl Into<String>,
        function: impl Fn(&Array) -> Result<Array> + Send + Sync + 'static,
    ) -> Self {
        Schedule { name: name.into(), constant: None, function: Arc::new(function) }
    }

    /// `init * rate^step`.
    ///
    /// ```
    /// use hesper_nn::optim::Schedule;
    /// assert_eq!(Schedule::exponential(1.0, 0.5).value(3)?, 0.125);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn exponential(init: f64, rate: f64) -> Self {
        Schedule::new(format!("exponential({init}, {rate})"), move |step| {
            Ok(Array::scalar(rate, Dtype::Float32)?.power(step)?.multiply(init)?)
        })
    }

    /// `init * rate^(step / every)`, rounded down.
    ///
    /// ```
    /// use hesper_nn::optim::Schedule;
    /// let schedule = Schedule::step(1.0, 0.5, 10)?;
    /// assert_eq!((schedule.value(9)?, schedule.value(10)?), (1.0, 0.5));
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn step(init: f64, rate: f64, every: u64) -> Result<Self> {
        at_least_one("step", "every", every)?;
        Ok(Schedule::new(format!("step({init}, {rate}, {every})"), move |step| {
            let times = step.divide(every as f64)?.floor()?;
            Ok(Array::scalar(rate, Dtype::Float32)?.power(times)?.multiply(init)?)
        }))
    }

    /// Half a cosine from `init` to `end` in a number of steps.
    pub fn cosine(init: f64, steps: u64, end: f64) -> Result<Self> {
        at_least_one("cosine", "steps", steps)?;
        Ok(Schedule::new(format!("cosine({init}, {steps}, {end})"), move |step| {
            let angle = step.minimum(steps as f64)?.multiply(PI / steps as f64)?;
            Ok(angle.cos()?.add(1.0)?.multiply(0.5)?.multiply(init - end)?.add(end)?)
        }))
    }

    /// A line from `init` to `end` in a number of steps.
    pub fn linear(init: f64, end: f64, steps: u64) -> Result<Self> {
        at_least_one("linear", "steps", steps)?;
        Ok(Schedule::new(format!("linear({init}, {end}, {steps})"), move |step| {
            Ok(step.minimum(steps as f64)?.multiply((end - init) / steps as f64)?.add(init)?)
        }))
    }

    /// Schedules one after another: each starts at its boundary, the first at step 0.
    pub fn join(schedules: Vec<Schedule>, boundaries: &[u64]) -> Result<Self> {
        if schedules.is_empty() || boundaries.len() + 1 != schedules.len() {
            return Err(Error::argument(format!(
                "cannot join {} schedules at {} boundaries; {} needed",
                schedules.len(),
                boundaries.len(),
                schedules.len().saturating_sub(1)
            )));
        }
        let boundaries = boundaries.to_vec();
        let names: Vec<&str> = schedules.iter().map(|one| one.name.as_str()).collect();
        Ok(Schedule::new(format!("join({names:?}, {boundaries:?})"), move |step| {
            let mut value = schedules[0].at(step)?;
            for (boundary, following) in boundaries.iter().zip(&schedules[1..]) {
                let next = following.at(&step.subtract(*boundary as f64)?)?;
                value = select(&step.less(*boundary as f64)?, &value, &next)?;
            }
            Ok(value)
        }))
    }

    /// Its value at a step, given as an array.
    ///
    /// ```
    /// use hesper::array;
    /// use hesper_nn::optim::Schedule;
    /// let rates = Schedule::linear(0.0, 1.0, 4)?.at(&array![0, 2, 9])?;
    /// assert_eq!(rates.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn at(&self, step: &Array) -> Result<Array> {
        (self.function)(&step.astype(Dtype::Float32)?)
    }

    /// Its value at a step.
    pub fn value(&self, step: u64) -> Result<f64> {
        Ok(f64::from(self.at(&Array::scalar(step as f64, Dtype::Float32)?)?.item::<f32>()?))
    }

    /// Its value, if it does not change.
    ///
    /// ```
    /// use hesper_nn::optim::Schedule;
    /// assert_eq!(Schedule::from(0.1).constant(), Some(0.1));
    /// assert_eq!(Schedule::exponential(0.1, 0.9).constant(), None);
    /// ```
    pub fn constant(&self) -> Option<f64> {
        self.constant
    }
}
