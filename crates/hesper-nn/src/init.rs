//! Initial values of parameters.
//!
//! An [`Init`] makes an array of a shape. Random ones draw from the key of the process, which
//! [`random::seed`](hesper_core::random::seed) sets.

use hesper_core::{Array, Dtype, random};

use crate::error::{Error, Result};

/// Which size of a weight scales its initial values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fan {
    /// The number of inputs of each output.
    In,
    /// The number of outputs of each input.
    Out,
}

/// The initial values of a parameter.
///
/// ```
/// # use hesper as _;
/// use hesper_nn::init::Init;
/// let w = Init::GlorotUniform { gain: 1.0 }.make(&[4, 2])?;
/// assert!(w.to_vec::<f32>()?.iter().all(|one| one.abs() <= 1.0));
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// The same value everywhere.
    Constant(f64),
    /// Normally distributed.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Uniformly distributed.
    Uniform {
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// The identity matrix.
    Identity,
    /// Normally distributed with variance `2 gain^2 / (fan_in + fan_out)`.
    GlorotNormal {
        /// A factor.
        gain: f64,
    },
    /// Uniformly distributed within `gain * sqrt(6 / (fan_in + fan_out))`.
    GlorotUniform {
        /// A factor.
        gain: f64,
    },
    /// Normally distributed with standard deviation `gain / sqrt(fan)`.
    HeNormal {
        /// The dimension.
        fan: Fan,
        /// A factor.
        gain: f64,
    },
    /// Uniformly distributed within `gain * sqrt(3 / fan)`.
    HeUniform {
        /// The dimension.
        fan: Fan,
        /// A factor.
        gain: f64,
    },
    /// A matrix with orthogonal rows or columns.
    Orthogonal {
        /// A factor.
        gain: f64,
    },
    /// Normally distributed, with a fraction of zeros in each row.
    Sparse {
        /// The fraction of zeros.
        sparsity: f64,
        /// The mean of the others.
        mean: f64,
        /// The standard deviation of the others.
        std: f64,
    },
}

impl Init {
    /// A float32 array of a shape.
    pub fn make(self, shape: &[usize]) -> Result<Array> {
        let normal = |mean: f64, std: f64| Ok(random::normal(shape, Dtype::Float32, mean, std, None)?);
        let uniform = |low: f64, high: f64| Ok(random::uniform(low, high, shape, Dtype::Float32, None)?);
        match self {
            Init::Constant(value) => Ok(Array::full(shape, value, Some(Dtype::Float32))?),
            Init::Normal { mean, std } => normal(mean, std),
            Init::Uniform { low, high } => uniform(low, high),
            Init::Identity => match *shape {
                [rows, columns] if rows == columns => Ok(Array::eye(rows, rows, 0, Dtype::Float32)?),
                _ => Err(Error::argument(format!(
                    "cannot make an identity matrix of shape {shape:?}; it must be square"
                ))),
            },
            Init::GlorotNormal { gain } => {
                let (inputs, outputs) = fans(shape)?;
                normal(0.0, gain * (2.0 / (inputs + outputs)).sqrt())
            }
            Init::GlorotUniform { gain } => {
                let (inputs, outputs) = fans(shape)?;
                let bound = gain * (6.0 / (inputs + outputs)).sqrt();
                uniform(-bound, bound)
            }
            Init::HeNormal { fan, gain } => normal(0.0, gain / fan.of(shape)?.sqrt()),
            Init::HeUniform { fan, gain } => {
                let bound = gain * (3.0 / fan.of(shape)?).sqrt();
                uniform(-bound, bound)
            }
            Init::Orthogonal { gain } => {
                let [rows, columns] = matrix(shape, "an orthogonal")?;
                let drawn = random::normal(shape, Dtype::Float32, 0.0, 1.0, None)?;
                // The vectors along the shorter side are orthogonal.
                let wide = if rows <= columns { drawn } else { drawn.t()? };
                let (count, length) = (rows.min(columns), rows.max(columns));
                let vectors = orthonormal(&wide.to_vec::<f32>()?, count, length, gain);
                let wide = Array::try_from_slice(&vectors, &[count, length])?;
                Ok(if rows <= columns { wide } else { wide.t()?.contiguous()? })
            }
            Init::Sparse { sparsity, mean, std } => {
                let [_, columns] = matrix(shape, "a sparse")?;
                if !(0.0..=1.0).contains(&sparsity) {
                    return Err(Error::argument(format!(
                        "cannot make a matrix with a fraction of {sparsity} zeros; it must be in [0, 1]"
                    )));
                }
                let zeros = (sparsity * columns as f64).ceil() as isize;
                let order = random::uniform(0.0, 1.0, shape, Dtype::Float32, None)?.argsort(Some(-1))?;
                let chosen = order.slice(&[0, 0], &[shape[0] as isize, zeros], &[1, 1])?;
                let zero = Array::zeros(chosen.shape(), Dtype::Float32)?;
                Ok(normal(mean, std)?.put_along_axis(&chosen, &zero, Some(1))?)
            }
        }
    }
}

impl Fan {
    fn of(self, shape: &[usize]) -> Result<f64> {
        let (inputs, outputs) = fans(shape)?;
        Ok(match self {
            Fan::In => inputs,
            Fan::Out => outputs,
        })
    }
}

/// Inputs and outputs of a weight of shape (outputs, taps ..., inputs).
fn fans(shape: &[usize]) -> Result<(f64, f64)> {
    let [outputs, taps @ .., inputs] = shape else {
        return Err(Error::argument(format!(
            "cannot scale by the fans of shape {shape:?}; Glorot and He initializers need 2 axes or more"
        )));
    };
    let taps: usize = taps.iter().product();
    Ok(((inputs * taps) as f64, (outputs * taps) as f64))
}

/// Orthogonal vectors of length `gain` with the same span as the given ones (Gram-Schmidt). Each is projected
/// twice to limit rounding errors.
fn orthonormal(given: &[f32], count: usize, length: usize, gain: f64) -> Vec<f32> {
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(count);
    for row in given.chunks(length.max(1)) {
        let mut vector: Vec<f64> = row.iter().map(|one| f64::from(*one)).collect();
        for other in basis.iter().chain(&basis) {
            let share: f64 = vector.iter().zip(other).map(|(a, b)| a * b).sum();
            vector.iter_mut().zip(other).for_each(|(a, b)| *a -= share * b);
        }
        let norm = vector.iter().map(|one| one * one).sum::<f64>().sqrt();
        vector.iter_mut().for_each(|one| *one /= norm);
        basis.push(vector);
    }
    basis.iter().flatten().map(|one| (one * gain) as f32).collect()
}

fn matrix(shape: &[usize], what: &str) -> Result<[usize; 2]> {
    shape.try_into().map_err(|_| {
        Error::argument(format!("cannot make {what} matrix of shape {shape:?}; it must have 2 axes"))
    })
}

/// Uniformly distributed from `-bound` to `bound`.
pub(crate) fn uniform_within(bound: f64, shape: &[usize]) -> Result<Array> {
    Ok(random::uniform(-bound, bound, shape, Dtype::Float32, None)?)
}

/// `1 / sqrt(size)` of a layer's size, which must be positive.
pub(crate) fn inverse_root(layer: &str, what: &str, size: usize) -> Result<f64> {
    match size {
        0 => Err(Error::argument(format!("cannot make a {layer} with {what} = 0; it must be at least 1"))),
        _ => Ok((1.0 / size as f64).sqrt()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn orthogonal_matrices_have_orthogonal_vectors() {
        for shape in [[3, 5], [5, 3], [4, 4]] {
            let matrix = Init::Orthogonal { gain: 2.0 }.make(&shape).unwrap();
            assert_eq!(matrix.shape(), shape);
            let wide = if shape[0] <= shape[1] { matrix } else { matrix.t().unwrap() };
            let products = wide.matmul(&wide.t().unwrap()).unwrap().to_vec::<f32>().unwrap();
            let count = wide.shape()[0];
            for (at, product) in products.iter().enumerate() {
                let expected = if at % count == at / count { 4.0 } else { 0.0 };
                assert!((product - expected).abs() < 1e-5, "{shape:?}: {products:?}");
            }
        }
    }

    #[test]
    fn sparse_matrices_have_zeros_in_every_row() {
        let rows = Init::Sparse { sparsity: 0.5, mean: 0.0, std: 1.0 }.make(&[4, 6]).unwrap();
        for row in rows.to_vec::<f32>().unwrap().chunks(6) {
            assert_eq!(row.iter().filter(|one| **one == 0.0).count(), 3);
        }
        assert!(Init::Sparse { sparsity: 2.0, mean: 0.0, std: 1.0 }.make(&[4, 6]).is_err());
        assert!(Init::Identity.make(&[2, 3]).unwrap_err().to_string().contains("[2, 3]"));
        assert!(Init::GlorotNormal { gain: 1.0 }.make(&[3]).is_err());
    }
}
