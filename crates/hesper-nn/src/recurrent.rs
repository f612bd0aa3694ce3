//! Recurrent layers over arrays of shape (batch, steps, features), or without the batch axis.

use hesper_core::{Array, Split, stack};

use crate::activation::Activation;
use crate::error::{Error, Result};
use crate::init;
use crate::module::{Module, Parameter};

fn project(x: &Array, weight: &Parameter, bias: Option<&Parameter>) -> Result<Array> {
    let y = x.matmul(&weight.t()?)?;
    Ok(match bias {
        Some(bias) => y.add(bias)?,
        None => y,
    })
}

/// The inputs of the steps.
fn steps(x: &Array) -> Result<Vec<Array>> {
    if x.ndim() < 2 || x.shape()[x.ndim() - 2] == 0 {
        return Err(Error::argument(format!(
            "cannot run over an input of shape {:?}; it needs at least one step and features",
            x.shape()
        )));
    }
    Ok(x.unstack(-2)?)
}

fn split<const N: usize>(x: &Array) -> Result<[Array; N]> {
    let parts = x.split(Split::Sections(N), -1)?;
    parts.try_into().map_err(|_| Error::argument(format!("cannot split gates into {N} parts")))
}

/// `h = activation(x Wxh^T + h Whh^T + bias)`.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::Rnn;
/// let x = random::normal(&[2, 5, 3], Dtype::Float32, 0.0, 1.0, None)?;
/// assert_eq!(Rnn::new(3, 8)?.forward(&x, None)?.shape(), [2, 5, 8]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Rnn {
    #[module(name = "Wxh")]
    input: Parameter,
    #[module(name = "Whh")]
    hidden: Parameter,
    bias: Option<Parameter>,
    activation: Activation,
}

impl Rnn {
    /// A layer with tanh. Parameters start uniformly distributed within `1 / sqrt(hidden)`.
    pub fn new(inputs: usize, hidden: usize) -> Result<Self> {
        let bound = init::inverse_root("Rnn", "hidden", hidden)?;
        Ok(Rnn {
            input: init::uniform_within(bound, &[hidden, inputs])?.into(),
            hidden: init::uniform_within(bound, &[hidden, hidden])?.into(),
            bias: Some(init::uniform_within(bound, &[hidden])?.into()),
            activation: Activation::Tanh,
        })
    }

    /// The same layer without its bias.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{Activation, ModuleExt, Rnn};
    /// let layer = Rnn::new(3, 8)?.without_bias().with_activation(Activation::Relu);
    /// assert_eq!(layer.count(), 8 * 3 + 8 * 8);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_bias(self) -> Self {
        Rnn { bias: None, ..self }
    }

    /// Sets the activation.
    pub fn with_activation(self, activation: Activation) -> Self {
        Rnn { activation, ..self }
    }

    /// The hidden states of all steps, from an initial one if given.
    pub fn forward(&self, x: &Array, hidden: Option<&Array>) -> Result<Array> {
        let (mut hidden, mut all) = (hidden.cloned(), Vec::new());
        for step in steps(&project(x, &self.input, self.bias.as_ref())?)? {
            let sum = match &hidden {
                Some(hidden) => step.add(hidden.matmul(&self.hidden.t()?)?)?,
                None => step,
            };
            all.push(self.activation.forward(&sum)?);
            hidden = all.last().cloned();
        }
        Ok(stack(&all, -2)?)
    }
}

/// A gated recurrent unit.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::Gru;
/// let x = random::normal(&[2, 5, 3], Dtype::Float32, 0.0, 1.0, None)?;
/// assert_eq!(Gru::new(3, 8)?.forward(&x, None)?.shape(), [2, 5, 8]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Gru {
    #[module(name = "Wx")]
    input: Parameter,
    #[module(name = "Wh")]
    hidden: Parameter,
    b: Option<Parameter>,
    bhn: Option<Parameter>,
}

impl Gru {
    /// A layer whose parameters start uniformly distributed within `1 / sqrt(hidden)`.
    pub fn new(inputs: usize, hidden: usize) -> Result<Self> {
        let bound = init::inverse_root("Gru", "hidden", hidden)?;
        Ok(Gru {
            input: init::uniform_within(bound, &[3 * hidden, inputs])?.into(),
            hidden: init::uniform_within(bound, &[3 * hidden, hidden])?.into(),
            b: Some(init::uniform_within(bound, &[3 * hidden])?.into()),
            bhn: Some(init::uniform_within(bound, &[hidden])?.into()),
        })
    }

    /// The same layer without its biases.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{Gru, ModuleExt};
    /// assert_eq!(Gru::new(3, 8)?.without_bias().count(), 3 * (8 * 3 + 8 * 8));
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_bias(self) -> Self {
        Gru { b: None, bhn: None, ..self }
    }

    /// The hidden states of all steps, from an initial one if given.
    pub fn forward(&self, x: &Array, hidden: Option<&Array>) -> Result<Array> {
        let (mut hidden, mut all) = (hidden.cloned(), Vec::new());
        for step in steps(&project(x, &self.input, self.b.as_ref())?)? {
            let [mut r, mut z, n] = split(&step)?;
            let mut candidate = self.bhn.as_deref().cloned();
            if let Some(hidden) = &hidden {
                let [own_r, own_z, own_n] = split(&hidden.matmul(&self.hidden.t()?)?)?;
                (r, z) = (r.add(&own_r)?, z.add(&own_z)?);
                candidate = Some(match &candidate {
                    Some(bias) => own_n.add(bias)?,
                    None => own_n,
                });
            }
            let (r, z) = (r.sigmoid()?, z.sigmoid()?);
            let n = match &candidate {
                Some(candidate) => n.add(r.multiply(candidate)?)?,
                None => n,
            };
            let fresh = z.negative()?.add(1.0)?.multiply(n.tanh()?)?;
            all.push(match &hidden {
                Some(hidden) => fresh.add(z.multiply(hidden)?)?,
                None => fresh,
            });
            hidden = all.last().cloned();
        }
        Ok(stack(&all, -2)?)
    }
}

/// A long short-term memory.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::Lstm;
/// let x = random::normal(&[2, 5, 3], Dtype::Float32, 0.0, 1.0, None)?;
/// let (hidden, cell) = Lstm::new(3, 8)?.forward(&x, None, None)?;
/// assert_eq!((hidden.shape(), cell.shape()), (&[2, 5, 8][..], &[2, 5, 8][..]));
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Lstm {
    #[module(name = "Wx")]
    input: Parameter,
    #[module(name = "Wh")]
    hidden: Parameter,
    bias: Option<Parameter>,
}

impl Lstm {
    /// A layer whose parameters start uniformly distributed within `1 / sqrt(hidden)`.
    pub fn new(inputs: usize, hidden: usize) -> Result<Self> {
        let bound = init::inverse_root("Lstm", "hidden", hidden)?;
        Ok(Lstm {
            input: init::uniform_within(bound, &[4 * hidden, inputs])?.into(),
            hidden: init::uniform_within(bound, &[4 * hidden, hidden])?.into(),
            bias: Some(init::uniform_within(bound, &[4 * hidden])?.into()),
        })
    }

    /// The same layer without its bias.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{Lstm, ModuleExt};
    /// assert_eq!(Lstm::new(3, 8)?.without_bias().count(), 4 * (8 * 3 + 8 * 8));
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn without_bias(self) -> Self {
        Lstm { bias: None, ..self }
    }

    /// The hidden states and the cells of all steps, from initial ones if given.
    pub fn forward(&self, x: &Array, hidden: Option<&Array>, cell: Option<&Array>) -> Result<(Array, Array)> {
        let (mut hidden, mut cell) = (hidden.cloned(), cell.cloned());
        let (mut states, mut cells) = (Vec::new(), Vec::new());
        for step in steps(&project(x, &self.input, self.bias.as_ref())?)? {
            let gates = match &hidden {
                Some(hidden) => step.add(hidden.matmul(&self.hidden.t()?)?)?,
                None => step,
            };
            let [input, forget, candidate, output] = split(&gates)?;
            let added = input.sigmoid()?.multiply(candidate.tanh()?)?;
            let next = match &cell {
                Some(cell) => forget.sigmoid()?.multiply(cell)?.add(&added)?,
                None => added,
            };
            let state = output.sigmoid()?.multiply(next.tanh()?)?;
            (hidden, cell) = (Some(state.clone()), Some(next.clone()));
            states.push(state);
            cells.push(next);
        }
        Ok((stack(&states, -2)?, stack(&cells, -2)?))
    }
}
