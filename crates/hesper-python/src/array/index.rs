//! `a[...]`, `a[...] = ...` and `a.at[...]`: integers, slices, `None`, `...`, arrays and masks.
#![allow(unsafe_op_in_unsafe_fn, reason = "what PyO3 generates for methods that a macro writes")]

use hesper::{Array, Dtype, Index, Update, transform};
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple};
use smallvec::SmallVec;

use crate::args::{Value, convert, on};
use crate::error::raise;
use crate::handle::PyArray;
use crate::steps;
use crate::waiting;

type Parts = SmallVec<[Index; 4]>;

fn index_of(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    if let Ok(at) = object.cast_exact::<PyInt>() {
        return integer(at);
    }
    integer(&object.call_method0(intern!(object.py(), "__index__"))?)
}

/// An integer; one of more than 64 bits is out of bounds of every axis.
fn integer(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    object
        .extract()
        .map_err(|_| PyIndexError::new_err(format!("index {object} is out of bounds for every axis")))
}

fn part(object: &Bound<'_, PyAny>) -> PyResult<Index> {
    if let Ok(at) = object.cast_exact::<PyInt>() {
        return integer(at).map(Index::Int);
    }
    if object.is_none() {
        return Ok(Index::NewAxis);
    }
    if object.is(PyEllipsis::get(object.py())) {
        return Ok(Index::Ellipsis);
    }
    // Slices cannot be subclassed.
    if let Ok(slice) = object.cast_exact::<PySlice>() {
        let py = object.py();
        let bound = |name: &Bound<'_, PyString>| -> PyResult<Option<isize>> {
            let bound = slice.getattr(name)?;
            if bound.is_none() {
                return Ok(None);
            }
            index_of(&bound).map(Some).map_err(|_| {
                PyValueError::new_err(format!("cannot slice an array at {bound}; use integers or None"))
            })
        };
        let step = bound(intern!(py, "step"))?.unwrap_or(1);
        if step == 0 {
            return Err(PyValueError::new_err("cannot slice an array with step 0"));
        }
        let (start, stop) = (bound(intern!(py, "start"))?, bound(intern!(py, "stop"))?);
        return Ok(Index::Slice { start, stop, step });
    }
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(list(&array.get().value()));
    }
    let refused = object.is_instance_of::<PyBool>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyString>();
    if !refused {
        if let Ok(at) = index_of(object) {
            return Ok(Index::Int(at));
        }
        if object.is_instance_of::<PyList>() || object.hasattr("__array__")? {
            return convert::array(object, None).map(|array| list(&array));
        }
    }
    let name = object.get_type().name()?;
    Err(PyValueError::new_err(format!(
        "cannot index an array with a {name}; use integers, slices, None, ... or arrays"
    )))
}

fn list(array: &Array) -> Index {
    if array.dtype() == Dtype::Bool { Index::Mask(array.clone()) } else { Index::Array(array.clone()) }
}

/// The parts of an index. `refused` makes the exception for a mask that does not fit.
fn parts(array: &Array, index: &Bound<'_, PyAny>, refused: fn(String) -> PyErr) -> PyResult<Parts> {
    let mut parts: Parts = match index.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|item| part(&item)).collect::<PyResult<_>>()?,
        Err(_) => std::iter::once(part(index)?).collect(),
    };
    if parts.iter().filter(|part| matches!(part, Index::Ellipsis)).count() > 1 {
        return Err(PyValueError::new_err("cannot index an array with more than one ellipsis (...)"));
    }
    let rank = array.ndim();
    let named: usize = parts
        .iter()
        .map(|part| match part {
            Index::NewAxis | Index::Ellipsis => 0,
            Index::Mask(mask) => mask.ndim(),
            _ => 1,
        })
        .sum();
    if named > rank {
        let what = format!("cannot index an array of {rank} axes with {named} indices");
        let masked = parts.iter().any(|part| matches!(part, Index::Mask(_)));
        return Err(if masked { refused(what) } else { PyValueError::new_err(what) });
    }
    // An integer that is out of range ends a loop over the array, as Python expects.
    let mut axis = 0;
    for part in &mut parts {
        match part {
            Index::NewAxis => {}
            Index::Ellipsis => axis += rank - named,
            Index::Mask(mask) => {
                let covered = &array.shape()[axis..axis + mask.ndim()];
                // A mask without elements selects none.
                let fits = |(own, length): (&usize, &usize)| own == length || *own == 0;
                if !mask.shape().iter().zip(covered).all(fits) {
                    return Err(refused(format!(
                        "cannot index axes of shape {covered:?} with a mask of shape {:?}; the shapes must be the same",
                        mask.shape()
                    )));
                }
                axis += mask.ndim();
                if mask.shape() != covered {
                    *mask = Array::zeros(covered, Dtype::Bool).map_err(raise)?;
                }
            }
            Index::Int(at) => {
                let length = array.shape()[axis] as isize;
                if i32::try_from(*at).is_err() {
                    let what = format!("cannot use the index {at}; it must be an integer of 32 bits");
                    return Err(PyValueError::new_err(what));
                }
                if *at >= length || *at < -length {
                    let what = format!("index {at} is out of bounds for axis {axis} of length {length}");
                    return Err(PyIndexError::new_err(what));
                }
                axis += 1;
            }
            _ => axis += 1,
        }
    }
    Ok(parts)
}

/// Whether building the result has to wait for numbers, which is done without the interpreter's lock.
fn waits(parts: &Parts) -> bool {
    parts.iter().any(|part| matches!(part, Index::Mask(_)))
}

/// An array with a new first axis and that axis's mask, for a mask without axes as the only index.
fn scalar_mask(array: &Array, parts: &Parts) -> PyResult<Option<(Array, Parts)>> {
    let [Index::Mask(mask)] = parts.as_slice() else { return Ok(None) };
    if mask.ndim() > 0 {
        return Ok(None);
    }
    let (array, mask) = (array.expand_dims(0).map_err(raise)?, mask.reshape(&[1]).map_err(raise)?);
    Ok(Some((array, std::iter::once(Index::Mask(mask)).collect())))
}

/// The part of an array that an index names.
pub fn get(array: &Array, index: &Bound<'_, PyAny>) -> PyResult<Array> {
    let parts = parts(array, index, PyIndexError::new_err)?;
    // One number is a gather in MLX's graphs.
    if let [Index::Int(at)] = parts.as_slice()
        && (transform::is_exported(array) || steps::described())
        && !index.is_instance_of::<PyTuple>()
    {
        let at = if *at < 0 { *at + array.shape()[0] as isize } else { *at };
        return on(None, || array.take(Array::integer(at as i64, Dtype::Uint32)?, 0));
    }
    let (array, parts) = scalar_mask(array, &parts)?.unwrap_or((array.clone(), parts));
    let build = || on(None, || steps::or_else(|| steps::index::get(&array, &parts), || array.index(&parts)));
    if waits(&parts) { waiting::detached(index.py(), build) } else { build() }
}

/// Whether an update takes the type of both operands: the index is `...` or `None` alone, or the array has no
/// axes.
fn is_whole(array: &Array, index: &Bound<'_, PyAny>) -> bool {
    let plain = |item: &Bound<'_, PyAny>| item.is_none() || item.is_instance_of::<PyEllipsis>();
    plain(index)
        || array.ndim() == 0
            && index.cast::<PyTuple>().is_ok_and(|tuple| tuple.iter().all(|item| plain(&item)))
}

/// The update of all elements.
fn update_whole(array: &Array, value: &Array, how: Update) -> hesper::Result<Array> {
    // Axes of length one in front of the array's are dropped.
    let extra = value.ndim().saturating_sub(array.ndim());
    let ones = value.shape()[..extra].iter().take_while(|length| **length == 1).count();
    let value = value.squeeze((0..ones as isize).collect::<Vec<_>>())?;
    let value = value.broadcast_to(array.shape())?;
    match how {
        Update::Set => Ok(value),
        Update::Add => array.add(&value),
        Update::Subtract => array.subtract(&value),
        Update::Multiply => array.multiply(&value),
        Update::Divide => array.divide(&value),
        Update::Max => array.maximum(&value),
        Update::Min => array.minimum(&value),
    }
}

fn update(array: &Array, index: &Bound<'_, PyAny>, value: Array, how: Update) -> PyResult<Array> {
    if is_whole(array, index) {
        return on(None, || update_whole(array, &value, how));
    }
    let parts = match index.cast::<PyBool>() {
        // A truth value is a mask for the whole array.
        Ok(all) => {
            let mask = Array::scalar(f64::from(u8::from(all.is_true())), Dtype::Bool).map_err(raise)?;
            std::iter::once(Index::Mask(mask)).collect()
        }
        Err(_) => parts(array, index, PyValueError::new_err)?,
    };
    let (widened, parts) = scalar_mask(array, &parts)?.unwrap_or((array.clone(), parts));
    let build = || {
        on(None, || {
            let updated = steps::or_else(
                || steps::index::update(&widened, &parts, &value, how),
                || widened.index_update(&parts, &value, how),
            )?;
            if updated.ndim() > array.ndim() { updated.squeeze(0) } else { Ok(updated) }
        })
    };
    if waits(&parts) { waiting::detached(index.py(), build) } else { build() }
}

#[pymethods]
impl PyArray {
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        get(&self.value(), index).map(PyArray::new)
    }

    fn __delitem__(&self, _index: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyAttributeError::new_err("cannot delete elements of an array; take a slice of it instead"))
    }

    fn __setitem__(&self, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let own = self.value();
        let value = match value.cast::<PyArray>() {
            Ok(array) => array.get().value(),
            Err(_) => match Value::any_number(value)? {
                Some(number) => number.beside(own.dtype())?,
                None => match convert::array(value, None)? {
                    array if convert::is_own(value)? => array,
                    foreign => foreign.astype(own.dtype()).map_err(raise)?,
                },
            },
        };
        self.replace(update(&own, index, value, Update::Set)?);
        Ok(())
    }

    /// Updates at indices that also count indices that occur more than once.
    ///
    /// Examples
    /// --------
    /// >>> a = mx.array([0, 0])
    /// >>> a.at[mx.array([0, 1, 0, 1])].add(1)
    /// array([2, 2], dtype=int32)
    #[getter]
    fn at(&self) -> ArrayAt {
        ArrayAt { array: self.value(), index: None }
    }
}

/// Updates of an array at indices; see ``array.at``.
#[pyclass(module = "hesper.core", frozen)]
pub struct ArrayAt {
    array: Array,
    index: Option<Py<PyAny>>,
}

impl ArrayAt {
    fn apply(&self, value: &Bound<'_, PyAny>, how: Update) -> PyResult<PyArray> {
        let Some(index) = &self.index else {
            return Err(PyValueError::new_err(
                "cannot update array.at without indices; use for instance a.at[0].add(1)",
            ));
        };
        let py = value.py();
        let value = value.extract::<Value>()?.beside_array(&self.array)?;
        update(&self.array, index.bind(py), value, how).map(PyArray::new)
    }
}

/// The ways to update.
macro_rules! updates {
    ($($(#[doc = $doc:literal])+ $name:ident = $how:ident;)*) => {
        #[pymethods]
        impl ArrayAt {
            fn __getitem__(&self, index: Py<PyAny>) -> ArrayAt {
                ArrayAt { array: self.array.clone(), index: Some(index) }
            }

            $(
                $(#[doc = $doc])+
                fn $name(&self, value: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                    self.apply(value, Update::$how)
                }
            )*
        }
    };
}

updates! {
    /// Adds to the elements.
    add = Add;
    /// Subtracts from the elements.
    subtract = Subtract;
    /// Multiplies the elements.
    multiply = Multiply;
    /// Divides the elements.
    divide = Divide;
    /// Keeps the larger of both.
    maximum = Max;
    /// Keeps the smaller of both.
    minimum = Min;
}
