//! Transformations of functions of arrays: derivatives, `vmap` and compilation.
//!
//! A transformation calls the function once, with arrays that it tracks, and gets a graph. It walks the graph
//! and applies the rule of each op. The result is a graph again, so transformations compose in any order.
//!
//! Derivatives call the function with arrays that have values, so the function may read them. `vmap` and
//! `compile` call it with arrays that have none: reading one there is an error.
//!
//! Functions take slices of arrays; [`tree`] has the same transformations for functions of structures.

mod batch;
mod compile;
mod custom;
mod depends;
mod forward;
mod program;
mod reverse;
mod traced;
pub mod tree;

use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::graph::rule::zeros_like;
use crate::guarded::guarded;

pub use crate::eval::dot::{named_dot, to_dot};
#[doc(hidden)]
pub use crate::graph::rule;
pub use crate::graph::scope::{is_exported, is_varied};
pub use crate::ops::source::{is_stopped, stop_gradient};
pub use compile::{Cache, compile, compile_enabled, set_compile};
pub use custom::{CustomFunction, checkpoint};
pub use depends::depends;
#[doc(hidden)]
pub use traced::{Slices, Traced};
pub use tree::Tree;

fn mismatch(op: &str, number: usize, what: &str, given: &Array, wanted: &Array) -> Error {
    let text = format!(
        "{what} {number} has shape {:?} and type {}, where {:?} and {} are wanted",
        given.shape(),
        given.dtype(),
        wanted.shape(),
        wanted.dtype()
    );
    Error::shape(op, text).with_shapes([given, wanted])
}

fn check(op: &str, what: &str, given: &[Array], wanted: &[Array]) -> Result<()> {
    if given.len() != wanted.len() {
        let text = format!("{} {what}s for {} arrays", given.len(), wanted.len());
        return Err(Error::value(op, text));
    }
    for (number, (given, wanted)) in given.iter().zip(wanted).enumerate() {
        if given.shape() != wanted.shape() {
            return Err(mismatch(op, number, what, given, wanted));
        }
    }
    Ok(())
}

/// The outputs of a function, and the product of cotangents with its Jacobian.
///
/// ```
/// use hesper::{Array, transform};
/// let x = Array::from_slice(&[1.0f32, 2.0]);
/// let ones = Array::from_slice(&[1.0f32, 1.0]);
/// let (y, g) = transform::vjp(|x| Ok(vec![x[0].square()?]), &[x], &[ones])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(g[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn vjp(
    f: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
    primals: &[Array],
    cotangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>)> {
    vjp_with(f, primals, |outputs| {
        check("vjp", "cotangent", cotangents, outputs)?;
        Ok(cotangents.iter().cloned().map(Some).collect())
    })
}

/// The same with errors of any type, and with cotangents (if any) that are computed from the outputs.
///
/// ```
/// use hesper::{Error, array, transform};
/// // The cotangents are the outputs: the gradient of half their squares.
/// let (_, g) = transform::vjp_with(
///     |x| Ok::<_, Error>(vec![x[0].multiply(2.0)?]),
///     &[array![1.0, 3.0]],
///     |outputs| Ok(vec![Some(outputs[0].clone())]),
/// )?;
/// assert_eq!(g[0].to_vec::<f32>()?, [4.0, 12.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn vjp_with<E: From<Error>>(
    f: impl FnOnce(&[Array]) -> Result<Vec<Array>, E>,
    primals: &[Array],
    cotangents: impl FnOnce(&[Array]) -> Result<Vec<Option<Array>>, E>,
) -> Result<(Vec<Array>, Vec<Array>), E> {
    let traced = Traced::watch(f, primals)?;
    let seeds = cast_seeds(traced.outputs(), cotangents)?;
    let found = traced.backward(&seeds)?.into_iter().zip(primals);
    let found = found
        .map(|(cotangent, primal)| cotangent.map_or_else(|| zeros_like(primal), Ok))
        .collect::<Result<Vec<Array>>>()?;
    Ok((traced.close(), found))
}

/// Cotangents that are computed from outputs, in the outputs' types.
fn cast_seeds<E: From<Error>>(
    outputs: &[Array],
    cotangents: impl FnOnce(&[Array]) -> Result<Vec<Option<Array>>, E>,
) -> Result<Vec<Option<Array>>, E> {
    let seeds = guarded("the function that gives cotangents", || cotangents(outputs))?;
    let seeds = seeds.iter().zip(outputs);
    let seeds = seeds.map(|(seed, output)| seed.as_ref().map(|seed| seed.astype(output.dtype())).transpose());
    Ok(seeds.collect::<Result<Vec<Option<Array>>>>()?)
}

/// The outputs of a function, and the product of its Jacobian with tangents.
///
/// ```
/// use hesper::{Array, transform};
/// let x = Array::from_slice(&[0.0f32, 1.0]);
/// let (_, t) = transform::jvp(|x| Ok(vec![x[0].exp()?]), &[x.clone()], &[Array::from_slice(&[1.0f32, 0.0])])?;
/// assert_eq!(t[0].to_vec::<f32>()?, [1.0, 0.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn jvp(
    f: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
    primals: &[Array],
    tangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>)> {
    jvp_with(f, primals, tangents)
}

/// The same with errors of any type.
///
/// ```
/// use hesper::{Error, array, transform};
/// let (y, t) = transform::jvp_with(|x| Ok::<_, Error>(vec![x[0].square()?]), &[array![3.0]], &[array![1.0]])?;
/// assert_eq!((y[0].item::<f32>()?, t[0].item::<f32>()?), (9.0, 6.0));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn jvp_with<E: From<Error>>(
    f: impl FnOnce(&[Array]) -> Result<Vec<Array>, E>,
    primals: &[Array],
    tangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>), E> {
    check("jvp", "tangent", tangents, primals)?;
    let traced = Traced::watch(f, primals)?;
    let seeds = tangents
        .iter()
        .zip(primals)
        .map(|(tangent, primal)| {
            // Integers may vary by fractions.
            let fraction = tangent.dtype().is(Category::Inexact) && !primal.dtype().is(Category::Inexact);
            if fraction { Ok(tangent.clone()) } else { tangent.astype(primal.dtype()) }
        })
        .collect::<Result<Vec<Array>>>()?;
    let found = traced.forward(&seeds)?.into_iter().zip(traced.outputs());
    // The tangents of a comparison have the type of its inputs'.
    let zeros = |output: &Array| match (output.call(), tangents.first()) {
        (Some(call), Some(tangent)) if call.op.is_comparison() && traced.depends(output) => {
            output.full_like(0, Some(tangent.dtype()))
        }
        _ => zeros_like(output),
    };
    let found = found
        .map(|(tangent, output)| tangent.map_or_else(|| zeros(output), Ok))
        .collect::<Result<Vec<Array>>>()?;
    Ok((traced.close(), found))
}

/// The function that gives a function's outputs and the gradient of the first of them, which must be a
/// single number, with respect to the arguments of these numbers.
///
/// ```
/// use hesper::{Array, transform};
/// let f = transform::value_and_grad(|x| Ok(vec![x[0].square()?.sum(())?]), &[0]);
/// let (value, slope) = f(&[Array::from_slice(&[1.0f32, 2.0])])?;
/// assert_eq!(value[0].item::<f32>()?, 5.0);
/// assert_eq!(slope[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn value_and_grad<F: Fn(&[Array]) -> Result<Vec<Array>>>(
    f: F,
    arguments: &[usize],
) -> impl Fn(&[Array]) -> Result<(Vec<Array>, Vec<Array>)> + use<F> {
    let arguments = arguments.to_vec();
    move |inputs| gradient(&f, inputs, &arguments)
}

/// A function's outputs and the gradient of the first of them, at `inputs`; with errors of any type.
///
/// ```
/// use hesper::{Array, array, transform};
/// let loss = |x: &[Array]| -> Result<Vec<Array>, Box<dyn std::error::Error>> {
///     let scale: f64 = "2.5".parse()?; // an error of another type
///     Ok(vec![x[0].multiply(scale)?.sum(())?])
/// };
/// let (value, slope) = transform::gradient(loss, &[array![1.0, 2.0]], &[0])?;
/// assert_eq!((value[0].item::<f32>()?, slope[0].to_vec::<f32>()?), (7.5, vec![2.5, 2.5]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gradient<E: From<Error>>(
    f: impl FnOnce(&[Array]) -> Result<Vec<Array>, E>,
    inputs: &[Array],
    arguments: &[usize],
) -> Result<(Vec<Array>, Vec<Array>), E> {
    let mut chosen = Vec::new();
    for at in arguments {
        let Some(input) = inputs.get(*at) else {
            let what = format!("there is no argument {at}: the function has {}", inputs.len());
            return Err(Error::value("grad", what).into());
        };
        if !input.dtype().is(Category::Inexact) {
            let what = format!("argument {at} is no floating-point array, and has no gradient: an array");
            return Err(Error::Type { op: "grad".into(), what, dtype: input.dtype() }.into());
        }
        chosen.push(input.clone());
    }
    let whole = |varied: &[Array]| {
        let mut all = inputs.to_vec();
        for (at, array) in arguments.iter().zip(varied) {
            all[*at] = array.clone();
        }
        f(&all)
    };
    vjp_with(whole, &chosen, |outputs| {
        let Some((value, others)) = outputs.split_first() else {
            return Err(Error::value("grad", "the function returned no array").into());
        };
        if value.size() != 1 || value.ndim() != 0 {
            let what =
                format!("the function's value must be a single number; its shape is {:?}", value.shape());
            return Err(Error::shape("grad", what).with_shapes([value]).into());
        }
        let one = Array::scalar(1.0, value.dtype())?;
        Ok(std::iter::once(Some(one)).chain(others.iter().map(|_| None)).collect())
    })
}

/// The function that gives the gradient of a function's value, a single number, with respect to the
/// arguments of these numbers.
///
/// ```
/// use hesper::{Array, Dtype, array, transform};
/// let slope = transform::grad(|x| x[0].multiply(&x[1])?.sum(()), &[1]);
/// assert_eq!(slope(&[array![2.0, 3.0], array![5.0, 7.0]])?[0].to_vec::<f32>()?, [2.0, 3.0]);
/// let second = transform::grad(|x| transform::grad(|x| x[0].power(3.0), &[0])(x).map(|mut g| g.remove(0)), &[0]);
/// assert_eq!(second(&[Array::scalar(2.0, Dtype::Float32)?])?[0].item::<f32>()?, 12.0);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn grad<F: Fn(&[Array]) -> Result<Array>>(
    f: F,
    arguments: &[usize],
) -> impl Fn(&[Array]) -> Result<Vec<Array>> + use<F> {
    let arguments = arguments.to_vec();
    let outputs = move |inputs: &[Array]| -> Result<Vec<Array>> { Ok(vec![f(inputs)?]) };
    move |inputs| Ok(gradient(&outputs, inputs, &arguments)?.1)
}

/// Maps a function over an axis: it is applied to every slice of its arguments, and the results are stacked.
/// `inputs` has the mapped axis of each argument, or `None`; `outputs` the new axis of each result.
///
/// ```
/// use hesper::{Array, transform};
/// let rows = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let sums = transform::vmap(|x| Ok(vec![x[0].sum(())?]), &[Some(0)], &[Some(0)]);
/// assert_eq!(sums(&[rows])?[0].to_vec::<f32>()?, [3.0, 7.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn vmap<F: Fn(&[Array]) -> Result<Vec<Array>>>(
    f: F,
    inputs: &[Option<isize>],
    outputs: &[Option<isize>],
) -> impl Fn(&[Array]) -> Result<Vec<Array>> + use<F> {
    let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
    move |arrays| vmap_with(&f, arrays, &inputs, |given| spread(&outputs, given))
}

/// One place for each output: as given, or the one that is given for all.
fn spread(axes: &[Option<isize>], count: usize) -> Result<Vec<Option<isize>>> {
    match axes {
        [one] => Ok(vec![*one; count]),
        all if all.len() == count => Ok(all.to_vec()),
        all => Err(Error::value("vmap", format!("{} output axes for {count} outputs", all.len()))),
    }
}

/// Runs a function over one axis more; with errors of any type. `places` says, given their number, where
/// the outputs' new axes go.
///
/// ```
/// use hesper::{Array, Error, array, transform};
/// let dot = |x: &[Array]| Ok::<_, Error>(vec![x[0].inner(&x[1])?]);
/// let inputs = [array![[1.0, 2.0], [3.0, 4.0]], array![10.0, 1.0]]; // each row with the same vector
/// let y = transform::vmap_with(dot, &inputs, &[Some(0), None], |count| Ok(vec![Some(0); count]))?;
/// assert_eq!(y[0].to_vec::<f32>()?, [12.0, 34.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn vmap_with<E: From<Error>>(
    f: impl FnOnce(&[Array]) -> Result<Vec<Array>, E>,
    arrays: &[Array],
    axes: &[Option<isize>],
    places: impl FnOnce(usize) -> Result<Vec<Option<isize>>>,
) -> Result<Vec<Array>, E> {
    let slices = Slices::of(f, arrays, axes)?;
    let places = places(slices.traced().outputs().len())?.into_iter().collect();
    Ok(slices.placed(slices.batched()?, places)?)
}
