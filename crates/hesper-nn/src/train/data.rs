//! Batches of examples in memory, and accuracy.

use std::sync::{Mutex, PoisonError};

use hesper_core::{Array, random};

use crate::error::{Error, Result};

/// Batches of arrays that have an example at each index of their first axis.
///
/// A batch depends only on the number of its step, so training that resumes from a checkpoint gets the same
/// batches as without interruption. All batches have the same size: examples that do not fill a batch at the
/// end of an epoch are skipped. If shuffled, each epoch skips different ones.
///
/// ```
/// use hesper::Array;
/// use hesper_nn::optim::{Optimizer, Sgd};
/// use hesper_nn::train::{Batches, Trainer};
/// use hesper_nn::{Linear, loss};
/// let x = Array::arange(10, None)?.divide(10.0)?.reshape(&[10, 1])?;
/// let y = x.multiply(2.0)?;
/// let data = Batches::new(vec![x, y], 4)?.shuffled(0);
/// assert_eq!((data.len(), data.get(7)?[0].shape()), (2, &[4, 1][..]));
/// let mut trainer = Trainer::new(Linear::new(1, 1)?, Optimizer::new(Sgd::new(0.1))?, |model: &Linear, batch| {
///     loss::mse(&model.forward(&batch[0])?, &batch[1], Default::default())
/// })?;
/// trainer.fit(3 * data.len(), |step| data.get(step), &mut [])?; // three epochs
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct Batches {
    arrays: Vec<Array>,
    examples: usize,
    size: usize,
    seed: Option<u64>,
    /// The order of the examples in the epoch of the last call.
    order: Mutex<Option<(u64, Array)>>,
}

impl Batches {
    /// Batches of `size` examples, in the order of the arrays.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper_nn::train::Batches;
    /// let (x, y) = (Array::zeros(&[5, 2], Dtype::Float32)?, Array::zeros(&[4], Dtype::Int32)?);
    /// let error = Batches::new(vec![x, y], 2).unwrap_err();
    /// assert!(error.to_string().contains("[5, 2] and [4]"), "{error}");
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn new(arrays: Vec<Array>, size: usize) -> Result<Self> {
        let count = |array: &Array| array.shape().first().copied();
        let Some(examples) = arrays.first().and_then(count) else {
            return Err(Error::argument("cannot make batches without an array that has an axis of examples"));
        };
        if let Some(other) = arrays.iter().find(|array| count(array) != Some(examples)) {
            let what = format!(
                "cannot make batches of arrays of shapes {:?} and {:?}: the first axes differ in length",
                arrays[0].shape(),
                other.shape()
            );
            return Err(Error::argument(what));
        }
        if size == 0 || size > examples {
            let what =
                format!("cannot make batches of {size} out of {examples} examples; use 1 to {examples}");
            return Err(Error::argument(what));
        }
        Ok(Batches { arrays, examples, size, seed: None, order: Mutex::new(None) })
    }

    /// The same in an order that differs from epoch to epoch and is determined by `seed`.
    ///
    /// ```
    /// use hesper::Array;
    /// use hesper_nn::train::Batches;
    /// let data = || Batches::new(vec![Array::arange(6, None)?], 6).map(|data| data.shuffled(1));
    /// let mut first = data()?.get(0)?[0].to_vec::<i32>()?;
    /// assert_eq!(first, data()?.get(0)?[0].to_vec::<i32>()?);
    /// assert_ne!(first, data()?.get(1)?[0].to_vec::<i32>()?);
    /// first.sort();
    /// assert_eq!(first, [0, 1, 2, 3, 4, 5]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn shuffled(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The number of batches of an epoch; at least one.
    #[allow(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> u64 {
        (self.examples / self.size) as u64
    }

    /// The batch of a step, counted over all epochs: a part of each array.
    pub fn get(&self, step: u64) -> Result<Vec<Array>> {
        let (epoch, at) = (step / self.len(), (step % self.len()) as usize * self.size);
        let part = |array: &Array| array.slice_axis(0, at as isize, (at + self.size) as isize, 1);
        let Some(seed) = self.seed else {
            return Ok(self.arrays.iter().map(part).collect::<Result<_, _>>()?);
        };
        let examples = part(&self.order(seed, epoch)?)?;
        Ok(self.arrays.iter().map(|array| array.take(&examples, 0)).collect::<Result<_, _>>()?)
    }

    fn order(&self, seed: u64, epoch: u64) -> Result<Array> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, order)) = &*order
            && *known == epoch
        {
            return Ok(order.clone());
        }
        let keys = random::split(&random::key(seed)?, 2)?.unstack(0)?;
        let of_epoch = random::bits(&[2], Some(&keys[0].add(&random::key(epoch)?)?))?;
        let new = random::permutation(self.examples, Some(&of_epoch))?;
        new.eval()?;
        *order = Some((epoch, new.clone()));
        Ok(new)
    }
}

/// The share of rows whose largest logit is that of the target class: a scalar.
///
/// ```
/// use hesper::array;
/// use hesper_nn::train::accuracy;
/// let logits = array![[0.1, 0.9], [2.0, 1.0], [0.3, 0.4], [0.0, -1.0]];
/// assert_eq!(accuracy(&logits, &array![1, 0, 0, 0])?.item::<f32>()?, 0.75);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn accuracy(logits: &Array, targets: &Array) -> Result<Array> {
    top_k_accuracy(logits, targets, 1)
}

/// The share of rows in which fewer than `k` classes have a larger logit than the target class: a scalar.
///
/// ```
/// use hesper::array;
/// use hesper_nn::train::top_k_accuracy;
/// let logits = array![[0.1, 0.9, 0.5], [2.0, 1.0, 1.5]];
/// assert_eq!(top_k_accuracy(&logits, &array![2, 1], 2)?.item::<f32>()?, 0.5);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn top_k_accuracy(logits: &Array, targets: &Array, k: usize) -> Result<Array> {
    if logits.ndim() != targets.ndim() + 1 || logits.shape()[..targets.ndim()] != *targets.shape() {
        let what = format!(
            "cannot compare logits of shape {:?} with target classes of shape {:?}: the targets have an index \
             for each row of logits",
            logits.shape(),
            targets.shape()
        );
        return Err(Error::argument(what));
    }
    let own = logits.take_along_axis(&targets.expand_dims(-1)?, -1)?;
    let better = logits.greater(&own)?.astype(hesper_core::Dtype::Int32)?.sum(-1)?;
    // A row whose target has a NaN logit does not count as a hit.
    let hit = better.less(k as i64)?.logical_and(own.equal(&own)?.squeeze(-1)?)?;
    Ok(hit.astype(hesper_core::Dtype::Float32)?.mean(())?)
}
