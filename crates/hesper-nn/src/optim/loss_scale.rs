//! Loss scaling, which prevents small half-precision gradients from underflowing to zero.

use std::collections::BTreeMap;

use hesper_core::{Array, Dtype, select, tree_struct};

use super::scale_gradients;
use crate::error::{Error, Result};
use crate::module::{Module, ModuleExt};

/// A factor of the loss that is halved when a gradient is not finite, and doubled after a number of steps
/// with finite gradients.
///
/// A step multiplies the loss by [`LossScale::scale`], divides the gradients by it ([`LossScale::unscale`]),
/// and updates parameters only if all gradients are finite. All of this is computed by ops, so it can be part
/// of a compiled step.
///
/// ```
/// use hesper::array;
/// use hesper_nn::Parameter;
/// use hesper_nn::optim::LossScale;
/// let scale = LossScale::new(1024.0, 1)?;
/// let mut gradients = Parameter::new(array![2048.0, f32::INFINITY]);
/// let finite = scale.unscale(&mut gradients)?;
/// assert_eq!(gradients.to_vec::<f32>()?[0], 2.0);
/// assert_eq!(scale.next(&finite)?.scale().item::<f32>()?, 512.0);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LossScale {
    scale: Array,
    good_steps: Array,
    growth_interval: u32,
}

tree_struct!(LossScale { scale, good_steps } keeps { growth_interval });

impl LossScale {
    /// A scale that starts with `init` and is doubled after `growth_interval` good steps.
    pub fn new(init: f64, growth_interval: u32) -> Result<Self> {
        if !(init.is_finite() && init > 0.0) || growth_interval == 0 {
            return Err(Error::argument(format!(
                "cannot scale losses by {init}, growing after {growth_interval} steps; both must be positive"
            )));
        }
        Ok(LossScale {
            scale: Array::try_from_slice(&[init as f32], &[])?,
            good_steps: Array::try_from_slice(&[0u32], &[])?,
            growth_interval,
        })
    }

    /// The factor.
    pub fn scale(&self) -> &Array {
        &self.scale
    }

    /// Divides gradients by the factor. Returns whether all of them are finite, as an array of one bool.
    pub fn unscale(&self, gradients: &mut dyn Module) -> Result<Array> {
        scale_gradients(gradients, &self.scale.reciprocal()?)?;
        let mut finite = Array::scalar(1.0, Dtype::Bool)?;
        for gradient in gradients.trainable_parameters().values() {
            finite = finite.logical_and(gradient.isfinite()?.all(())?)?;
        }
        Ok(finite)
    }

    /// The scale of the next step.
    pub fn next(&self, finite: &Array) -> Result<Self> {
        let count = self.good_steps.add(1)?;
        let grown = count.greater_equal(self.growth_interval)?;
        let zero = self.good_steps.zeros_like()?;
        let good = select(&grown, &self.scale.multiply(2.0)?, &self.scale)?;
        Ok(LossScale {
            // The scale stays finite, and at least one.
            scale: select(finite, &good.minimum(2f64.powi(30))?, &self.scale.multiply(0.5)?.maximum(1.0)?)?,
            good_steps: select(finite, &select(&grown, &zero, &count)?, &zero)?,
            growth_interval: self.growth_interval,
        })
    }

    /// Its arrays by name.
    pub(crate) fn state(&self) -> BTreeMap<String, Array> {
        [("scale", &self.scale), ("good_steps", &self.good_steps)]
            .map(|(name, array)| (name.to_string(), array.clone()))
            .into()
    }

    /// Restores the arrays that [`LossScale::state`] returned.
    pub(crate) fn load_state(&mut self, given: &BTreeMap<String, Array>) -> Result<()> {
        let take = |name: &str| given.get(name).cloned().ok_or_else(|| Error::Missing { path: name.into() });
        (self.scale, self.good_steps) = (take("scale")?, take("good_steps")?);
        Ok(())
    }
}
