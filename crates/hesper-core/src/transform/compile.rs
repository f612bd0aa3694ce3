//! Compiled functions: traced once for each signature, then run without calling the function again.
//!
//! A signature is the arguments' shapes and types, the stream, and whatever else the caller declares that the
//! function depends on. The function is traced with arguments that have no values, and its outputs become a
//! [`CompiledFunction`]. Inside of another transformation a compiled function is its graph.
//!
//! A shapeless function is traced once for all shapes with the same numbers of axes. Its trace is recorded,
//! as that of an exported function is, and replayed for other shapes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use smallvec::SmallVec;

use super::program::{CompiledFunction, call};
use crate::error::{Error, Result};
use crate::export::Graph;
use crate::graph::Array;
use crate::graph::scope::{Opened, outermost};
use crate::guarded::guarded;
use crate::ops::source::placeholder;
use crate::shape::Shape;
use crate::{Dtype, placement};

/// Most signatures of one function. With one more, all are traced again when they are needed.
const MAX_SIGNATURES: usize = 256;

static ENABLED: AtomicU8 = AtomicU8::new(2);

/// Whether functions are compiled: yes, unless `HESPER_COMPILE=0` or [`set_compile`] says no.
///
/// ```
/// use hesper::transform;
/// assert!(transform::compile_enabled() || std::env::var_os("HESPER_COMPILE").is_some());
/// ```
pub fn compile_enabled() -> bool {
    match ENABLED.load(Ordering::Relaxed) {
        0 => false,
        1 => true,
        _ => {
            let on = std::env::var_os("HESPER_COMPILE").is_none_or(|value| value != "0");
            ENABLED.store(u8::from(on), Ordering::Relaxed);
            on
        }
    }
}

/// Switches compilation on or off for the process. Compiled functions are then called as they are.
///
/// ```
/// use hesper::transform;
/// transform::set_compile(true); // with false, to look for an error in the function itself
/// assert!(transform::compile_enabled());
/// ```
pub fn set_compile(on: bool) {
    ENABLED.store(u8::from(on), Ordering::Relaxed);
}

#[derive(PartialEq, Eq, Hash)]
struct Signature {
    arrays: SmallVec<[(Shape, Dtype); 4]>,
    stream: u64,
    rest: Vec<u8>,
}

/// A compiled function, and what else its trace gave.
type Traced<T> = (Arc<CompiledFunction>, Arc<T>);

/// A trace for all shapes: its graph, or the reason why it has none.
type Recorded<T> = (Result<Graph>, Arc<T>);

/// The traces of one function. `T` is what else a trace gives: each call returns it.
///
/// ```
/// use hesper::{Array, Dtype, Error, transform};
/// let cache = transform::Cache::<usize>::shapeless();
/// let mut traced = 0;
/// for length in [2, 3] {
///     let x = Array::ones(&[length], Dtype::Float32)?;
///     let (y, more) = cache.call(&[], &[x], |x| {
///         traced += 1;
///         Ok::<_, Error>((vec![x[0].multiply(2.0)?], 7))
///     })?;
///     assert_eq!((y[0].shape(), *more), (&[length][..], 7));
/// }
/// assert_eq!((traced, cache.len(), cache.is_empty()), (1, 2, false)); // called once, planned for two shapes
/// # Ok::<(), hesper::Error>(())
/// ```
pub struct Cache<T> {
    traced: Mutex<HashMap<Signature, Traced<T>>>,
    /// For a function without shapes, its traces by signatures with numbers of axes in the place of shapes.
    recorded: Option<Mutex<HashMap<Signature, Arc<Recorded<T>>>>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Cache { traced: Mutex::default(), recorded: None }
    }
}

impl<T> Cache<T> {
    /// The traces of a function that is traced once for all shapes with the same numbers of axes.
    pub fn shapeless() -> Self {
        Cache { traced: Mutex::default(), recorded: Some(Mutex::default()) }
    }

    /// Calls a function on arrays. It is traced only if it was not traced for the arrays' shapes and types
    /// and for `rest`: everything else that the function depends on.
    pub fn call<E: From<Error>>(
        &self,
        rest: &[u8],
        inputs: &[Array],
        f: impl FnOnce(&[Array]) -> Result<(Vec<Array>, T), E>,
    ) -> Result<(Vec<Array>, Arc<T>), E> {
        let stream = placement::current_stream()?.id();
        let signature = |shape: fn(&Shape) -> Shape| Signature {
            arrays: inputs.iter().map(|input| (shape(&input.0.shape), input.dtype())).collect(),
            stream,
            rest: rest.into(),
        };
        let whole = signature(Shape::clone);
        let found = locked(&self.traced).get(&whole).cloned();
        let (function, more) = match found {
            Some(found) => found,
            None => {
                let (function, more) = match &self.recorded {
                    None => {
                        let (function, more, _) = trace(inputs, false, f)?;
                        (function, Arc::new(more))
                    }
                    Some(recorded) => {
                        let ranks = signature(|shape| Shape::from_slice(&[shape.len()]));
                        let found = locked(recorded).get(&ranks).cloned();
                        match found {
                            Some(found) => {
                                (replayed(found.0.as_ref().map_err(Error::clone)?, inputs)?, found.1.clone())
                            }
                            None => {
                                let (function, more, graph) = trace(inputs, true, f)?;
                                let more = Arc::new(more);
                                if let Some(graph) = graph
                                    && outermost(function.constants()).is_none()
                                {
                                    insert(recorded, ranks, Arc::new((graph, more.clone())));
                                }
                                (function, more)
                            }
                        }
                    }
                };
                let traced = (Arc::new(function), more);
                // A trace that captures arrays of an open transformation must not outlive it.
                if outermost(traced.0.constants()).is_some() {
                    return Ok((traced.0.inline(inputs), traced.1));
                }
                insert(&self.traced, whole, traced.clone());
                traced
            }
        };
        let inlined = outermost(inputs).is_some() || function.is_small();
        let outputs = if inlined { function.inline(inputs) } else { call(&function, inputs)? };
        Ok((outputs, more))
    }

    /// How many traces there are.
    pub fn len(&self) -> usize {
        locked(&self.traced).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn insert<T>(into: &Mutex<HashMap<Signature, T>>, signature: Signature, one: T) {
    let mut all = locked(into);
    if all.len() >= MAX_SIGNATURES {
        all.clear();
    }
    all.insert(signature, one);
}

/// Arguments without values.
fn placeholders(opened: &Opened, inputs: &[Array]) -> Result<Vec<Array>> {
    let one = |input: &Array| placeholder(opened.scope(), "compile", input.0.shape.clone(), input.dtype());
    inputs.iter().map(one).collect()
}

/// Runs a function on arguments without values; gives the program that it is, and the graph of one without
/// shapes.
fn trace<T, E: From<Error>>(
    inputs: &[Array],
    shapeless: bool,
    f: impl FnOnce(&[Array]) -> Result<(Vec<Array>, T), E>,
) -> Result<(CompiledFunction, T, Option<Result<Graph>>), E> {
    let opened = Opened::with(shapeless);
    let arguments = placeholders(&opened, inputs)?;
    let (outputs, more) = guarded("the function to compile", || f(&arguments))?;
    let graph = shapeless.then(|| Graph::recorded(&arguments, &outputs));
    // Steps that take a shape from another array are plain ones in a replay, and can be fused.
    let program = match &graph {
        Some(Ok(recorded)) if recorded.takes_shapes() => replayed(recorded, inputs)?,
        _ => CompiledFunction::new(&outputs, &arguments)?,
    };
    Ok((program, more, graph))
}

/// The program of a recorded trace for other shapes.
fn replayed(graph: &Graph, inputs: &[Array]) -> Result<CompiledFunction> {
    let opened = Opened::new();
    let arguments = placeholders(&opened, inputs)?;
    let outputs = graph.replay(&arguments)?;
    CompiledFunction::new(&outputs, &arguments)
}

/// The function, compiled: called once for each set of shapes and types, run as a whole after that.
///
/// ```
/// use hesper::{Array, transform};
/// let f = transform::compile(|x| Ok(vec![x[0].multiply(&x[1])?.add(1.0)?.exp()?]));
/// let x = Array::from_slice(&[0.0f32, 1.0]);
/// let y = &f(&[x.clone(), x])?[0];
/// assert!((y.to_vec::<f32>()?[1] - 2f32.exp()).abs() < 1e-4);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn compile<F>(f: F) -> impl Fn(&[Array]) -> Result<Vec<Array>> + use<F>
where
    F: Fn(&[Array]) -> Result<Vec<Array>>,
{
    let cache = Cache::<()>::default();
    move |inputs| {
        if !compile_enabled() {
            return f(inputs);
        }
        Ok(cache.call(&[], inputs, |arguments| Ok::<_, Error>((f(arguments)?, ())))?.0)
    }
}
