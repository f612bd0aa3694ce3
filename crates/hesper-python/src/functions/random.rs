//! The module `random`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hesper::random::{self, Draws};
use hesper::{Array, Dtype};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};

use crate::args::{Count, On, Sizes, Unsigned, Value, array_on, int, real};
use crate::device;
use crate::dtype::PyDtype;
use crate::error::raise;
use crate::handle::PyArray;
use crate::steps;

fn type_of(dtype: Option<PyDtype>, usual: Dtype) -> Dtype {
    dtype.map_or(usual, |dtype| dtype.0)
}

/// The process's key where a program works with it as an array; without one it is the array library's.
static STATE: Mutex<Option<Array>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<Array>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The given key, or the next one of the global state.
fn key_of(key: Option<PyArray>) -> PyResult<Option<Array>> {
    if let Some(key) = key {
        return Ok(Some(key.value()));
    }
    if steps::described() {
        let [next, key] = device::in_scope(|| steps::random::split(&random_state()?)).map_err(raise)?;
        set_state(next);
        return Ok(Some(key));
    }
    let mut state = held();
    let Some(own) = state.as_ref() else { return Ok(None) };
    let halves = device::in_scope(|| random::split(own, 2)?.unstack(0)).map_err(raise)?;
    let [next, key] =
        <[Array; 2]>::try_from(halves).map_err(|_| PyValueError::new_err("[random] cannot split a key"))?;
    *state = Some(next);
    Ok(Some(key))
}

/// The global key.
pub fn state() -> PyResult<Array> {
    random_state().map_err(raise)
}

fn random_state() -> hesper::Result<Array> {
    match &*held() {
        Some(state) => Ok(state.clone()),
        None => random::state(),
    }
}

/// Sets the global key.
pub fn set_state(key: Array) {
    let old = held().replace(key);
    drop(old);
}

/// The global key as a list of one array, ``mx.random.state``. A compiled function that draws random numbers
/// has it among its inputs and outputs.
#[pyclass(module = "hesper.core.random", name = "_RandomState", frozen)]
pub struct RandomState;

#[pymethods]
impl RandomState {
    fn __len__(&self) -> usize {
        1
    }

    fn __getitem__(&self, index: isize) -> PyResult<PyArray> {
        if !(-1..1).contains(&index) {
            return Err(PyIndexError::new_err("cannot index the random state beyond its one array"));
        }
        state().map(PyArray::new)
    }

    fn __setitem__(&self, index: isize, key: PyArray) -> PyResult<()> {
        if !(-1..1).contains(&index) {
            return Err(PyIndexError::new_err("cannot index the random state beyond its one array"));
        }
        set_state(key.value());
        Ok(())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, [state().map(PyArray::new)?])?.try_iter()
    }
}

/// A key: what random numbers are computed from.
///
/// Parameters
/// ----------
/// seed : int
///
/// Examples
/// --------
/// >>> mx.random.key(0)
/// array([0, 0], dtype=uint32)
#[pyfunction]
fn key(seed: Unsigned) -> PyResult<PyArray> {
    array_on(None, || random::key(seed.0))
}

/// Set the global key, which calls without a key split.
///
/// Parameters
/// ----------
/// key : array, optional
/// num : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.seed(0)
#[pyfunction]
fn seed(seed: Unsigned) {
    let old = held().take();
    drop(old);
    random::seed(seed.0);
}

/// New keys from one.
///
/// Parameters
/// ----------
/// key : array, optional
/// num : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.split(mx.random.key(0)).shape
/// (2, 2)
#[pyfunction]
#[pyo3(signature = (key, num = Count(2), stream = None), text_signature = "(key, num=2, stream=None)")]
fn split(key: PyArray, num: Count, stream: Option<On>) -> PyResult<PyArray> {
    let key = key.value();
    array_on(stream, || random::split(&key, num.0))
}

/// Evenly distributed numbers from `low` up to and without `high`.
///
/// Parameters
/// ----------
/// low : number
/// high : number
/// shape : sequence of int
/// dtype : Dtype, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.uniform(shape=(2, 3)).shape
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (low = Value::Int(0), high = Value::Int(1), shape = Sizes::default(), dtype = None, key = None, stream = None),
    text_signature = "(low=0, high=1, shape=[], dtype=None, key=None, stream=None)")]
fn uniform(
    low: Value,
    high: Value,
    shape: Sizes,
    dtype: Option<PyDtype>,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (shape, dtype) = (shape.0, type_of(dtype, Dtype::Float32));
    if steps::described() {
        let (low, high, key) = (low.alone()?, high.alone()?, key_of(key)?);
        return array_on(stream, || steps::random::uniform(&low, &high, &shape, dtype, key.as_ref()));
    }
    let (low, high, key) = (low.operand()?, high.operand()?, key_of(key)?);
    array_on(stream, || random::uniform(low, high, &shape, dtype, key.as_ref()))
}

/// Normally distributed numbers with a mean and a standard deviation.
///
/// Parameters
/// ----------
/// shape : sequence of int
/// dtype : Dtype, optional
/// loc : number, optional
/// scale : float, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.normal((2, 3)).shape
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (shape = Sizes::default(), dtype = None, loc = None, scale = None, key = None, stream = None),
    text_signature = "(shape=[], dtype=None, loc=None, scale=None, key=None, stream=None)")]
fn normal(
    shape: Sizes,
    dtype: Option<PyDtype>,
    loc: Option<Value>,
    scale: Option<Value>,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (shape, dtype, key) = (shape.0, type_of(dtype, Dtype::Float32), key_of(key)?);
    if steps::described() {
        let [loc, scale] = [loc, scale].map(|value| value.map(|value| value.beside(dtype)).transpose());
        let (loc, scale) = (loc?, scale?);
        return array_on(stream, || steps::random::normal(&shape, dtype, loc, scale, key.as_ref()));
    }
    let loc = loc.unwrap_or(Value::Int(0)).operand()?;
    let scale = scale.unwrap_or(Value::Int(1)).operand()?;
    array_on(stream, || random::normal(&shape, dtype, loc, scale, key.as_ref()))
}

/// Integers from `low` up to and without `high`.
///
/// Parameters
/// ----------
/// low : number
/// high : number
/// shape : sequence of int
/// dtype : Dtype, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.randint(0, 10, (2, 3)).shape
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (low, high, shape = Sizes::default(), dtype = None, key = None, stream = None),
    text_signature = "(low, high, shape=[], dtype=None, key=None, stream=None)")]
fn randint(
    low: Value,
    high: Value,
    shape: Sizes,
    dtype: Option<PyDtype>,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (shape, dtype) = (shape.0, type_of(dtype, Dtype::Int32));
    if steps::described() {
        let (low, high, key) = (low.alone()?, high.alone()?, key_of(key)?);
        return array_on(stream, || steps::random::randint(&low, &high, &shape, dtype, key.as_ref()));
    }
    let (low, high, key) = (low.operand()?, high.operand()?, key_of(key)?);
    array_on(stream, || random::randint(low, high, &shape, dtype, key.as_ref()))
}

/// Truth values that hold with probability `p`.
///
/// Parameters
/// ----------
/// p : number
/// shape : sequence of int
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.bernoulli(0.5, (2, 3)).dtype.size
/// 1
#[pyfunction]
#[pyo3(signature = (p = Value::Float(0.5), shape = None, key = None, stream = None),
    text_signature = "(p=0.5, shape=None, key=None, stream=None)")]
fn bernoulli(p: Value, shape: Option<Sizes>, key: Option<PyArray>, stream: Option<On>) -> PyResult<PyArray> {
    let (p, key) = (p.alone()?, key_of(key)?);
    let shape = shape.as_ref().map(|Sizes(shape)| &shape[..]);
    array_on(stream, || {
        steps::or_else(
            || steps::random::bernoulli(&p, shape.unwrap_or(p.shape()), key.as_ref()).map(Some),
            || random::bernoulli(&p, shape, key.as_ref()),
        )
    })
}

/// Normally distributed numbers between bounds.
///
/// Parameters
/// ----------
/// lower : number
/// upper : number
/// shape : sequence of int
/// dtype : Dtype, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.truncated_normal(-1.0, 1.0, (2, 3)).shape
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (lower, upper, shape = None, dtype = None, key = None, stream = None),
    text_signature = "(lower, upper, shape=None, dtype=None, key=None, stream=None)")]
fn truncated_normal(
    lower: Value,
    upper: Value,
    shape: Option<Sizes>,
    dtype: Option<PyDtype>,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (lower, upper, key) = (lower.alone()?, upper.alone()?, key_of(key)?);
    let dtype = type_of(dtype, Dtype::Float32);
    let shape = shape.as_ref().map(|Sizes(shape)| &shape[..]);
    array_on(stream, || {
        steps::or_else(
            || steps::random::truncated_normal(&lower, &upper, shape, dtype, key.as_ref()),
            || random::truncated_normal(&lower, &upper, shape, dtype, key.as_ref()),
        )
    })
}

/// Numbers of the standard Gumbel distribution.
///
/// Parameters
/// ----------
/// shape : sequence of int
/// dtype : Dtype, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.gumbel((2, 3)).shape
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (shape = Sizes::default(), dtype = None, key = None, stream = None),
    text_signature = "(shape=[], dtype=None, key=None, stream=None)")]
fn gumbel(
    shape: Sizes,
    dtype: Option<PyDtype>,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (shape, dtype, key) = (shape.0, type_of(dtype, Dtype::Float32), key_of(key)?);
    array_on(stream, || {
        steps::or_else(
            || steps::random::gumbel(&shape, dtype, key.as_ref()).map(Some),
            || random::gumbel(&shape, dtype, key.as_ref()),
        )
    })
}

/// Numbers of the Laplace distribution.
///
/// Parameters
/// ----------
/// shape : sequence of int
/// dtype : Dtype, optional
/// loc : number, optional
/// scale : float, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.laplace((2, 3)).shape
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (shape = Sizes::default(), dtype = None, loc = 0.0, scale = 1.0, key = None, stream = None),
    text_signature = "(shape=[], dtype=None, loc=0.0, scale=1.0, key=None, stream=None)")]
fn laplace(
    shape: Sizes,
    dtype: Option<PyDtype>,
    #[pyo3(from_py_with = real)] loc: f64,
    #[pyo3(from_py_with = real)] scale: f64,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (shape, dtype, key) = (shape.0, type_of(dtype, Dtype::Float32), key_of(key)?);
    array_on(stream, || {
        steps::or_else(
            || steps::random::laplace(&shape, dtype, loc, scale, key.as_ref()),
            || random::laplace(&shape, dtype, loc, scale, key.as_ref()),
        )
    })
}

/// Indices along an axis of `logits`, each as likely as the exponential of its logit says.
///
/// Parameters
/// ----------
/// logits : array
/// axis : int, optional
/// shape : sequence of int
/// num_samples : int, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.categorical(mx.array([0.0, -mx.inf]))
/// array(0, dtype=uint32)
#[pyfunction]
#[pyo3(signature = (logits, axis = -1, shape = None, num_samples = None, key = None, stream = None),
    text_signature = "(logits, axis=-1, shape=None, num_samples=None, key=None, stream=None)")]
fn categorical(
    logits: PyArray,
    #[pyo3(from_py_with = int)] axis: isize,
    shape: Option<Sizes>,
    num_samples: Option<Count>,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (logits, key) = (logits.value(), key_of(key)?);
    let draws = match (&shape, num_samples) {
        (Some(_), Some(_)) => {
            return Err(PyValueError::new_err(
                "[categorical] cannot use both shape and num_samples; give one",
            ));
        }
        (Some(Sizes(shape)), None) => Draws::Shape(shape),
        (None, Some(count)) => Draws::Many(count.0),
        (None, None) => Draws::One,
    };
    array_on(stream, || {
        steps::or_else(
            || steps::random::categorical(&logits, axis, &draws, key.as_ref()),
            || random::categorical(&logits, axis, draws, key.as_ref()),
        )
    })
}

/// The integers below a number, or the entries of an array along an axis, in random order.
///
/// Parameters
/// ----------
/// x : array
/// axis : int, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.permutation(4).shape
/// (4,)
#[pyfunction]
#[pyo3(signature = (x, axis = 0, key = None, stream = None))]
fn permutation(
    x: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = int)] axis: isize,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let wrong = || PyTypeError::new_err("[permutation] expected an integer or an array");
    let x = x.extract::<Value>().map_err(|_| wrong())?;
    let key = key_of(key)?;
    match x {
        Value::Bool(one) => array_on(stream, || random::permutation(one.into(), key.as_ref())),
        Value::Int(count) => {
            let count = usize::try_from(count).map_err(|_| {
                PyValueError::new_err(format!("[permutation] cannot permute {count} integers"))
            })?;
            array_on(stream, || {
                steps::or_else(
                    || steps::random::order(count, key.as_ref()).map(Some),
                    || random::permutation(count, key.as_ref()),
                )
            })
        }
        Value::Foreign(number) if number.ndim() == 0 => Err(wrong()),
        Value::Float(_) | Value::Complex(_) => Err(wrong()),
        other => {
            let array = other.alone()?;
            array_on(stream, || {
                steps::or_else(
                    || steps::random::permute(&array, axis, key.as_ref()),
                    || random::permute(&array, axis, key.as_ref()),
                )
            })
        }
    }
}

/// Vectors of normally distributed numbers with a mean and a covariance.
///
/// Parameters
/// ----------
/// mean : array
/// cov : array
/// shape : sequence of int
/// dtype : Dtype, optional
/// key : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.random.multivariate_normal(mx.zeros((2,)), mx.eye(2)).shape
/// (2,)
#[pyfunction]
#[pyo3(signature = (mean, cov, shape = Sizes::default(), dtype = None, key = None, stream = None),
    text_signature = "(mean, cov, shape=[], dtype=None, key=None, stream=None)")]
fn multivariate_normal(
    mean: PyArray,
    cov: PyArray,
    shape: Sizes,
    dtype: Option<PyDtype>,
    key: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (mean, cov, key) = (mean.value(), cov.value(), key_of(key)?);
    let (shape, dtype) = (shape.0, type_of(dtype, Dtype::Float32));
    array_on(stream, || random::multivariate_normal(&mean, &cov, &shape, dtype, key.as_ref()))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let random = PyModule::new(m.py(), "random")?;
    random.add_class::<RandomState>()?;
    random.add("state", RandomState)?;
    random.add_function(wrap_pyfunction!(key, &random)?)?;
    random.add_function(wrap_pyfunction!(seed, &random)?)?;
    random.add_function(wrap_pyfunction!(split, &random)?)?;
    random.add_function(wrap_pyfunction!(uniform, &random)?)?;
    random.add_function(wrap_pyfunction!(normal, &random)?)?;
    random.add_function(wrap_pyfunction!(randint, &random)?)?;
    random.add_function(wrap_pyfunction!(bernoulli, &random)?)?;
    random.add_function(wrap_pyfunction!(truncated_normal, &random)?)?;
    random.add_function(wrap_pyfunction!(gumbel, &random)?)?;
    random.add_function(wrap_pyfunction!(laplace, &random)?)?;
    random.add_function(wrap_pyfunction!(categorical, &random)?)?;
    random.add_function(wrap_pyfunction!(permutation, &random)?)?;
    random.add_function(wrap_pyfunction!(multivariate_normal, &random)?)?;
    m.add_submodule(&random)
}
