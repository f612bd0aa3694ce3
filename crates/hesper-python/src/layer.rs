//! The base class of `hesper.nn.Module`: a dict whose items are attributes, too.
//!
//! A model looks up its layers at every call, and a `__getattr__` in Python is called only after the
//! interpreter has made an exception of the failed lookup, which takes ten times as long as the lookup. So
//! the lookup of attributes is native, and so are the calls of the layers of which a decoder has hundreds.
//! PyO3 has no subclasses of `dict` in the stable ABI, so the class is made by the interpreter's own calls.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use hesper::{Array, fast};
use hesper_runtime::panics;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError};
use pyo3::ffi::{self, Py_ssize_t, PyObject, PyTypeObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::args::array_on;
use crate::array::product;
use crate::functions::quant::mode_of;
use crate::handle::PyArray;

/// What the interpreter finds in a class and its bases: a borrowed object, or null without an exception.
type LookUp = unsafe extern "C" fn(*mut PyTypeObject, *mut PyObject) -> *mut PyObject;

/// The interpreter's own cached look-up. It is not in the stable ABI: without it a look-up takes longer.
fn look_up() -> Option<LookUp> {
    static FOUND: OnceLock<Option<LookUp>> = OnceLock::new();
    #[cfg(unix)]
    let program = libloading::os::unix::Library::this;
    #[cfg(windows)]
    let program = || libloading::os::windows::Library::this().unwrap_or_else(|_| unreachable!());
    *FOUND.get_or_init(|| {
        let program = program();
        // SAFETY: every CPython that exports this name gives it this signature.
        let found = unsafe { program.get::<LookUp>(b"_PyType_Lookup\0") };
        found.ok().map(|symbol| *symbol)
    })
}

/// An item of a dict that is not `None`: borrowed, or null without an exception of its own.
///
/// # Safety
///
/// `dict` is a dict, `name` is an object, and the thread is attached to the interpreter.
unsafe fn item(dict: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    // SAFETY: as this function.
    unsafe {
        let found = ffi::PyDict_GetItemWithError(dict, name);
        if found.is_null() {
            // A name that cannot be hashed: the general look-up reports it.
            ffi::PyErr_Clear();
        }
        if found == ffi::Py_None() { null_mut() } else { found }
    }
}

/// The attribute of a module: what its class has, its ordinary attributes, its items.
unsafe extern "C" fn get_attribute(this: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter calls this with an instance of the class and a name, attached. Borrowed objects
    // are kept by the dicts that they are in, which nothing changes before their count is raised.
    unsafe {
        if let Some(look_up) = look_up()
            && ffi::PyUnicode_CheckExact(name) != 0
            && look_up(ffi::Py_TYPE(this), name).is_null()
        {
            let ordinary = ffi::PyObject_GenericGetDict(this, null_mut::<c_void>());
            if ordinary.is_null() {
                ffi::PyErr_Clear();
            } else {
                let found = ffi::PyDict_GetItemWithError(ordinary, name);
                if found.is_null() {
                    ffi::PyErr_Clear();
                } else {
                    ffi::Py_INCREF(found);
                }
                ffi::Py_DECREF(ordinary);
                if !found.is_null() {
                    return found;
                }
            }
            let found = item(this, name);
            if !found.is_null() {
                ffi::Py_INCREF(found);
                return found;
            }
        }
        let found = ffi::PyObject_GenericGetAttr(this, name);
        if !found.is_null() || ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) == 0 {
            return found;
        }
        // A property may have raised it.
        let (mut kind, mut value, mut trace) = (null_mut(), null_mut(), null_mut());
        ffi::PyErr_Fetch(&mut kind, &mut value, &mut trace);
        let found = item(this, name);
        if found.is_null() {
            ffi::PyErr_Restore(kind, value, trace);
        } else {
            ffi::Py_INCREF(found);
            for object in [kind, value, trace] {
                ffi::Py_XDECREF(object);
            }
        }
        found
    }
}

/// A layer and its input, while the layer is called.
struct Call<'py> {
    layer: Bound<'py, PyDict>,
    x: Array,
}

impl<'py> Call<'py> {
    /// A parameter that the layer may have.
    fn optional(&self, name: &Bound<'py, PyString>) -> PyResult<Option<Array>> {
        match self.layer.get_item(name)? {
            Some(array) if !array.is_none() => Ok(Some(array.extract::<PyArray>()?.value())),
            _ => Ok(None),
        }
    }

    fn parameter(&self, name: &Bound<'py, PyString>) -> PyResult<Array> {
        self.optional(name)?.ok_or_else(|| PyKeyError::new_err(name.to_string()))
    }

    fn setting(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.layer.getattr(name)
    }

    /// `x` times the transposed weight, plus the bias.
    fn linear(self) -> PyResult<PyArray> {
        let py = self.layer.py();
        let weight = self.parameter(intern!(py, "weight"))?;
        let bias = self.optional(intern!(py, "bias"))?;
        array_on(None, || {
            let weight = weight.t()?;
            match &bias {
                Some(bias) => bias.addmm(&self.x, &weight, 1.0, 1.0),
                None => product(&self.x, &weight),
            }
        })
    }

    /// `x` times the transposed weight of codes, plus the bias.
    fn quantized_linear(self) -> PyResult<PyArray> {
        let py = self.layer.py();
        let (weight, scales) =
            (self.parameter(intern!(py, "weight"))?, self.parameter(intern!(py, "scales"))?);
        let (biases, bias) = (self.optional(intern!(py, "biases"))?, self.optional(intern!(py, "bias"))?);
        let size = self.setting(intern!(py, "group_size"))?.extract::<Option<usize>>()?;
        let bits = self.setting(intern!(py, "bits"))?.extract::<Option<usize>>()?;
        let mode = self.setting(intern!(py, "mode"))?;
        let mode = mode_of("quantized_matmul", mode.cast::<PyString>()?.to_str()?)?;
        array_on(None, || {
            let y = self.x.quantized_matmul(&weight, &scales, biases.as_ref(), true, size, bits, mode)?;
            bias.map_or(Ok(y.clone()), |bias| y.add(bias))
        })
    }

    /// `x` divided by the root of its mean square, times the weight.
    fn rms_norm(self) -> PyResult<PyArray> {
        let py = self.layer.py();
        let weight = self.parameter(intern!(py, "weight"))?;
        let eps = self.setting(intern!(py, "eps"))?.extract::<f32>()?;
        array_on(None, || fast::rms_norm(&self.x, Some(&weight), eps))
    }
}

type Layer = fn(Call<'_>) -> PyResult<PyArray>;

/// Calls a layer with the arguments that the interpreter gives a method: one, by its place or as `x`.
///
/// # Safety
///
/// The arguments are those of a method with `METH_FASTCALL | METH_KEYWORDS` of the class or a subclass.
unsafe fn call(
    layer: Layer,
    this: *mut PyObject,
    arguments: *const *mut PyObject,
    places: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    Python::attach(|py| {
        let called = panics::catch(|| {
            // SAFETY: by the contract above: a borrowed object, a borrowed tuple of strings or null, and as
            // many borrowed objects as there are places and names.
            let (this, names, arguments) = unsafe {
                let names = Bound::from_borrowed_ptr_or_opt(py, names);
                let count = places as usize + names.as_ref().map_or(Ok(0), |names| names.len())?;
                (Bound::from_borrowed_ptr(py, this), names, std::slice::from_raw_parts(arguments, count))
            };
            let named = match &names {
                Some(names) if places == 0 => names.cast::<PyTuple>()?.get_item(0)?.eq(intern!(py, "x"))?,
                _ => places == 1,
            };
            let [x] = arguments else {
                let what =
                    format!("a layer takes one array, and was called with {} arguments", arguments.len());
                return Err(PyTypeError::new_err(what));
            };
            if !named {
                return Err(PyTypeError::new_err("the argument of a layer is named x"));
            }
            // SAFETY: as above.
            let x = unsafe { Bound::from_borrowed_ptr(py, *x) }.extract::<PyArray>()?.value();
            let y = layer(Call { layer: this.cast_into::<PyDict>()?, x })?;
            Ok(Bound::new(py, y)?.into_any())
        });
        let called = called
            .unwrap_or_else(|message| Err(PyRuntimeError::new_err(format!("a layer panicked: {message}"))));
        match called {
            Ok(object) => object.into_ptr(),
            Err(error) => {
                error.restore(py);
                null_mut()
            }
        }
    })
}

/// Methods of the class that are the `__call__` of layers.
macro_rules! layers {
    ($($name:ident, $python:literal, $doc:literal;)*) => {
        $(
            unsafe extern "C" fn $name(
                this: *mut PyObject,
                arguments: *const *mut PyObject,
                places: Py_ssize_t,
                names: *mut PyObject,
            ) -> *mut PyObject {
                // SAFETY: the interpreter calls it as a method of the flags below.
                unsafe { call(|called| called.$name(), this, arguments, places, names) }
            }
        )*

        /// The methods, and an entry that ends them. The first line of a text is the signature, for
        /// `inspect`.
        fn methods() -> Vec<ffi::PyMethodDef> {
            let flags = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
            vec![
                $(ffi::PyMethodDef {
                    ml_name: $python.as_ptr(),
                    ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: $name },
                    ml_flags: flags,
                    ml_doc: $doc.as_ptr(),
                },)*
                ffi::PyMethodDef::zeroed(),
            ]
        }
    };
}

layers! {
    linear, c"_linear", c"_linear($self, /, x)\n--\n\n`x` times the transposed weight, plus the bias.";
    quantized_linear, c"_quantized_linear",
        c"_quantized_linear($self, /, x)\n--\n\n`x` times the transposed weight of codes, plus the bias.";
    rms_norm, c"_rms_norm",
        c"_rms_norm($self, /, x)\n--\n\n`x` divided by the root of its mean square, times the weight.";
}

const NAME: &CStr = c"hesper._core._LayerBase";

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    // The class refers to its methods for as long as the process lasts.
    let methods: &'static mut [ffi::PyMethodDef] = methods().leak();
    let get: ffi::getattrofunc = get_attribute;
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_getattro, pfunc: get as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_methods, pfunc: methods.as_mut_ptr().cast() },
        ffi::PyType_Slot { slot: 0, pfunc: null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name: NAME.as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as u32,
        slots: slots.as_mut_ptr(),
    };
    let bases = PyTuple::new(py, [py.get_type::<PyDict>()])?;
    // SAFETY: the description is complete, its slots end with an empty one, and what the class keeps of it,
    // its name and its methods, is never freed. The call gives an owned class, or null with an exception.
    let class = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpecWithBases(&mut spec, bases.as_ptr()))?
    };
    m.add("_LayerBase", class.cast::<PyType>()?)
}
