//! A training step of a small network: three layers, cross entropy, SGD or Adam.

use hesper::{Array, Dtype, Result, eval, random, transform};

/// Lengths of the layers.
const SIZES: [usize; 4] = [784, 256, 256, 10];
const BATCH: usize = 32;
/// Weights and biases.
const PARAMETERS: usize = 2 * (SIZES.len() - 1);

/// The update rule of the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Plain gradient descent.
    Sgd,
    /// Adam, with both moments of the gradients.
    Adam,
}

/// A network in training.
#[derive(Debug)]
pub struct Training {
    rule: Rule,
    /// Parameters, and with Adam both moments.
    state: Vec<Array>,
    start: Vec<Array>,
    steps: usize,
    data: [Array; 2],
}

/// Steps after which training restarts: a batch that is fitted exactly has tiny gradients, and arithmetic on
/// subnormal numbers is slow.
const RESTART: usize = 10;

/// A step: takes state and data, returns the loss and the new state.
pub type Step<'a> = &'a dyn Fn(&[Array]) -> Result<Vec<Array>>;

impl Training {
    /// A network of random weights, with a batch of random data.
    pub fn new(rule: Rule) -> Result<Self> {
        let mut state = Vec::new();
        for pair in SIZES.windows(2) {
            let bound = 1.0 / (pair[0] as f64).sqrt();
            state.push(random::normal(&[pair[1], pair[0]], Dtype::Float32, 0.0, bound, None)?);
            state.push(Array::zeros(&[pair[1]], Dtype::Float32)?);
        }
        if rule == Rule::Adam {
            let zeros: Vec<Array> = state.iter().map(Array::zeros_like).collect::<Result<_>>()?;
            state.extend(zeros.iter().chain(&zeros).cloned().collect::<Vec<_>>());
        }
        let labels: Vec<i32> = (0..BATCH as i32).map(|at| at % 10).collect();
        let x = random::normal(&[BATCH, SIZES[0]], Dtype::Float32, 0.0, 1.0, None)?;
        let data = [x, Array::from_slice(&labels)];
        eval(state.iter().chain(&data))?;
        Ok(Training { rule, start: state.clone(), state, steps: 0, data })
    }

    /// The step as a function of arrays, to be compiled or not.
    pub fn step(&self) -> impl Fn(&[Array]) -> Result<Vec<Array>> + use<> {
        let rule = self.rule;
        move |inputs| step(rule, inputs)
    }

    /// Computes one step and returns the loss.
    pub fn advance(&mut self, step: Step<'_>) -> Result<f32> {
        // Pass the state by value, so that it can be donated.
        let mut inputs = std::mem::take(&mut self.state);
        self.steps += 1;
        if self.steps.is_multiple_of(RESTART) {
            inputs = self.start.clone();
        }
        inputs.extend(self.data.iter().cloned());
        let mut outputs = step(&inputs)?;
        drop(inputs);
        eval(&outputs)?;
        let loss = outputs.remove(0);
        self.state = outputs;
        loss.item()
    }
}

/// The mean cross entropy of the network.
fn loss(parameters: &[Array], x: &Array, labels: &Array) -> Result<Array> {
    let mut y = x.clone();
    let layers = parameters.chunks(2);
    let last = layers.len() - 1;
    for (number, layer) in layers.enumerate() {
        y = layer[1].addmm(&y, &layer[0].t()?, 1.0, 1.0)?;
        if number < last {
            y = y.maximum(0.0)?;
        }
    }
    let chosen = y.take_along_axis(&labels.expand_dims(-1)?, Some(-1))?.squeeze(-1)?;
    y.logsumexp(-1)?.subtract(chosen)?.mean(())
}

fn step(rule: Rule, inputs: &[Array]) -> Result<Vec<Array>> {
    let (state, data) = inputs.split_at(inputs.len() - 2);
    let value = |parameters: &[Array]| Ok(vec![loss(parameters, &data[0], &data[1])?]);
    let arguments: Vec<usize> = (0..PARAMETERS).collect();
    let (value, gradients) = transform::value_and_grad(value, &arguments)(&state[..PARAMETERS])?;
    let mut outputs = value;
    if rule == Rule::Sgd {
        for (parameter, gradient) in state.iter().zip(&gradients) {
            outputs.push(parameter.subtract(gradient.multiply(0.01)?)?);
        }
        return Ok(outputs);
    }
    let (mut means, mut squares) = (Vec::new(), Vec::new());
    for at in 0..PARAMETERS {
        let mean = state[PARAMETERS + at].multiply(0.9)?.add(gradients[at].multiply(0.1)?)?;
        let square =
            state[2 * PARAMETERS + at].multiply(0.999)?.add(gradients[at].square()?.multiply(0.001)?)?;
        outputs.push(state[at].subtract(mean.multiply(1e-3)?.divide(square.sqrt()?.add(1e-8)?)?)?);
        means.push(mean);
        squares.push(square);
    }
    outputs.extend(means.into_iter().chain(squares));
    Ok(outputs)
}
