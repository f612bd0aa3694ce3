//! Transforms of functions of modules that also update buffers.
//!
//! A module is a [`Tree`], so [`hesper_core::transform::tree`] transforms functions of modules, and of
//! structures that hold modules. A transformed function runs on a copy of the module. The transforms of this
//! file also copy its buffers, such as running statistics, back to the module.

use hesper_core::transform::{self, tree};
use hesper_core::{Array, Dtype};

use crate::error::{Error, Result};
use crate::module::{Module, ModuleExt, Tree};

/// The function that returns the outputs of `f` and the gradient of their first array, a scalar, with respect
/// to the trainable parameters, as a module of the same type. Buffers that `f` replaces are stored in the
/// module. An error, or a panic in `f`, leaves the module unchanged.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::{Linear, ModuleExt, loss, value_and_grad};
/// let layer = Linear::new(2, 1)?;
/// let (x, y) = (Array::ones(&[4, 2], Dtype::Float32)?, Array::zeros(&[4, 1], Dtype::Float32)?);
/// let step = value_and_grad(|layer: &Linear| loss::mse(&layer.forward(&x)?, &y, Default::default()));
/// let (value, gradient) = step(&layer)?;
/// assert_eq!(value.ndim(), 0);
/// assert_eq!(gradient.parameters()["weight"].shape(), [1, 2]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn value_and_grad<M: Module + Tree, U: Tree, F: Fn(&M) -> Result<U>>(
    f: F,
) -> impl Fn(&M) -> Result<(U, M)> {
    move |module| {
        let (arrays, mut returned) = (module.arrays(), None);
        let chosen = tree::chosen(module);
        let run = |arrays: &[Array]| -> Result<Vec<Array>> {
            let copy = module.with_arrays(arrays.to_vec())?;
            let result = f(&copy)?;
            let outputs = result.arrays().into_iter().chain(copy.buffers()).collect();
            returned = Some(result);
            Ok(outputs)
        };
        let (mut outputs, found) = transform::gradient(run, &arrays, &chosen)?;
        let returned =
            returned.ok_or_else(|| Error::argument("the function to differentiate was not called"))?;
        let gradients = tree::gradients(module, &arrays, &chosen, found)?;
        let buffers = outputs.split_off(outputs.len().saturating_sub(module.buffers().len()));
        let returned = returned.with_arrays(outputs)?;
        module.set_buffers(&buffers);
        Ok((returned, gradients))
    }
}

/// Calls a function of a module and arrays. Its intermediate arrays are not kept in memory but recomputed for
/// its derivative.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::{Linear, ModuleExt, checkpoint, value_and_grad};
/// let (layer, x) = (Linear::new(4, 4)?, random::normal(&[2, 4], Dtype::Float32, 0.0, 1.0, None)?);
/// let step = value_and_grad(|layer: &Linear| {
///     let y = checkpoint(layer, &[x.clone()], |layer, x| Ok(layer.forward(&x[0])?.tanh()?))?;
///     Ok(y.sum(())?)
/// });
/// assert_eq!(step(&layer)?.1.parameters()["weight"].shape(), [4, 4]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn checkpoint<M, F>(module: &M, inputs: &[Array], f: F) -> Result<Array>
where
    M: Module + Tree + Send + Sync + 'static,
    F: Fn(&M, &[Array]) -> Result<Array> + Send + Sync + 'static,
{
    let arrays = module.arrays();
    let (count, all) =
        (arrays.len(), arrays.into_iter().chain(inputs.iter().cloned()).collect::<Vec<Array>>());
    let structure = module.with_arrays(module.arrays())?;
    let call = transform::checkpoint(move |all: &[Array]| {
        let copy = structure.with_arrays(all[..count].to_vec())?;
        let output = f(&copy, &all[count..])?;
        Ok(std::iter::once(output).chain(copy.buffers()).collect())
    });
    let outputs = call(&all)?;
    let Some((output, buffers)) = outputs.split_first() else {
        return Err(Error::argument("the checkpointed function returned nothing"));
    };
    module.set_buffers(buffers);
    Ok(output.clone())
}

/// A copy of a module with floating-point parameters in another dtype, for mixed precision: gradients of a
/// function of the copy are gradients of the module's own parameters.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::{Linear, cast};
/// let half = cast(&Linear::new(4, 2)?, Dtype::Bfloat16)?;
/// assert_eq!(half.forward(&Array::ones(&[1, 4], Dtype::Bfloat16)?)?.dtype(), Dtype::Bfloat16);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn cast<M: Module + Tree>(module: &M, dtype: Dtype) -> Result<M> {
    let mut copy = module.with_arrays(module.arrays())?;
    copy.to_dtype(dtype)?;
    Ok(copy)
}
