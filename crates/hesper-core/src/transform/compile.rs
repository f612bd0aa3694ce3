//! Compiled functions: traced once for each signature, then run without calling the function again.
//!
//! A signature is the arguments' shapes and types, the stream, and whatever else the caller declares that the function
//! depends on. The function is called with arguments that have no values; what it gives is made into a
//! [`CompiledFunction`]. Inside of another transformation a compiled function is its graph.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use super::guarded::guarded;
use super::program::{CompiledFunction, call};
use super::scope::{Opened, outermost};
use super::source::placeholder;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::{Dtype, place};

/// Most signatures of one function. With one more, all are traced again when they are needed.
const MAX_SIGNATURES: usize = 256;

static ENABLED: AtomicU8 = AtomicU8::new(2);

/// Whether functions are compiled: yes, unless `HESPER_COMPILE=0` or [`set_compile`] says no.
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

/// The traces of one function. `T` is what else a trace gives: each call returns it.
pub struct Cache<T> {
    traced: Mutex<HashMap<Signature, Traced<T>>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Cache { traced: Mutex::default() }
    }
}

impl<T> Cache<T> {
    /// Calls a function on arrays. It is traced only if it was not traced for the arrays' shapes and types
    /// and for `rest`: everything else that the function depends on.
    pub fn call<E: From<Error>>(
        &self,
        rest: &[u8],
        inputs: &[Array],
        f: impl FnOnce(&[Array]) -> Result<(Vec<Array>, T), E>,
    ) -> Result<(Vec<Array>, Arc<T>), E> {
        let signature = Signature {
            arrays: inputs.iter().map(|input| (input.0.shape.clone(), input.dtype())).collect(),
            stream: place::current_stream()?.id(),
            rest: rest.into(),
        };
        let lock = || self.traced.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let found = lock().get(&signature).cloned();
        let (function, more) = match found {
            Some(found) => found,
            None => {
                let (function, more) = trace(inputs, f)?;
                let traced = (Arc::new(function), Arc::new(more));
                // A trace that captures arrays of an open transformation must not outlive it.
                if outermost(traced.0.constants()).is_some() {
                    return Ok((traced.0.inline(inputs), traced.1));
                }
                let mut all = lock();
                if all.len() >= MAX_SIGNATURES {
                    all.clear();
                }
                all.insert(signature, traced.clone());
                traced
            }
        };
        let outputs =
            if outermost(inputs).is_some() { function.inline(inputs) } else { call(&function, inputs)? };
        Ok((outputs, more))
    }

    /// How many traces there are.
    pub fn len(&self) -> usize {
        self.traced.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Runs a function on arguments without values; gives the program that it is.
fn trace<T, E: From<Error>>(
    inputs: &[Array],
    f: impl FnOnce(&[Array]) -> Result<(Vec<Array>, T), E>,
) -> Result<(CompiledFunction, T), E> {
    let opened = Opened::new();
    let arguments = inputs
        .iter()
        .map(|input| placeholder(opened.scope(), "compile", input.0.shape.clone(), input.dtype()))
        .collect::<Result<Vec<Array>>>()?;
    let (outputs, more) = guarded("the function to compile", || f(&arguments))?;
    Ok((CompiledFunction::new(&outputs, &arguments)?, more))
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
