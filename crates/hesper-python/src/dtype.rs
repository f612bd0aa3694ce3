//! Element types and their kinds as Python objects.

use std::sync::atomic::{AtomicBool, Ordering};

use hesper::{Category, Dtype};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::enumeration::Enumeration;

/// Whether names are shown as `mlx.core.float32`, for programs written for MLX.
pub static AS_MLX: AtomicBool = AtomicBool::new(false);

/// The type of an array's elements, such as ``float32``.
#[pyclass(name = "Dtype", module = "hesper.core", frozen, skip_from_py_object)]
#[derive(Clone, Copy)]
pub struct PyDtype(pub Dtype);

impl<'a, 'py> FromPyObject<'a, 'py> for PyDtype {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyDtype>() {
            Ok(dtype) => Ok(*dtype.get()),
            Err(_) => {
                let name = object.get_type().name()?;
                Err(PyTypeError::new_err(format!("expected a Dtype, not {name}")))
            }
        }
    }
}

/// The one object for a type: `is` may compare them.
pub fn object(py: Python<'_>, dtype: Dtype) -> PyResult<Py<PyDtype>> {
    use pyo3::sync::PyOnceLock;
    static OBJECTS: PyOnceLock<Vec<Py<PyDtype>>> = PyOnceLock::new();
    let objects = OBJECTS.get_or_try_init(py, || {
        Dtype::ALL.iter().map(|dtype| Py::new(py, PyDtype(*dtype))).collect::<PyResult<Vec<_>>>()
    })?;
    Ok(objects[dtype as usize].clone_ref(py))
}

#[pymethods]
impl PyDtype {
    /// Bytes of one element.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    fn __repr__(&self) -> String {
        let module = if AS_MLX.load(Ordering::Relaxed) { "mlx.core" } else { "hesper.core" };
        format!("{module}.{}", self.0)
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<bool> {
        let same = other.cast::<PyDtype>().is_ok_and(|other| other.get().0 == self.0);
        match op {
            CompareOp::Eq => Ok(same),
            CompareOp::Ne => Ok(!same),
            _ => Err(PyTypeError::new_err("cannot order types; compare them with == or !=")),
        }
    }

    fn __hash__(&self) -> isize {
        self.0 as isize
    }

    /// A type is pickled by its name.
    fn __reduce__(&self) -> String {
        constant_name(self.0).to_string()
    }
}

/// The name of a type's constant in the module.
fn constant_name(dtype: Dtype) -> &'static str {
    if dtype == Dtype::Bool { "bool_" } else { dtype.name() }
}

const CATEGORIES: [(&str, Category); 8] = [
    ("complexfloating", Category::Complex),
    ("floating", Category::Floating),
    ("inexact", Category::Inexact),
    ("signedinteger", Category::Signed),
    ("unsignedinteger", Category::Unsigned),
    ("integer", Category::Integer),
    ("number", Category::Number),
    ("generic", Category::Generic),
];

const CATEGORY_NAMES: [&str; 8] = {
    let (mut names, mut at) = ([""; 8], 0);
    while at < names.len() {
        names[at] = CATEGORIES[at].0;
        at += 1;
    }
    names
};

static DTYPE_CATEGORY: Enumeration = Enumeration::new(
    "DtypeCategory",
    "A kind of element types: ``floating`` has ``float16``, ``float32`` and so on.",
    &CATEGORY_NAMES,
);

/// A type or a kind of types.
enum DtypeOrCategory {
    Type(Dtype),
    Category(Category),
}

impl<'a, 'py> FromPyObject<'a, 'py> for DtypeOrCategory {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(dtype) = object.cast::<PyDtype>() {
            return Ok(DtypeOrCategory::Type(dtype.get().0));
        }
        if let Some(number) = DTYPE_CATEGORY.number(object) {
            return Ok(DtypeOrCategory::Category(CATEGORIES[number].1));
        }
        let name = object.get_type().name()?;
        Err(PyValueError::new_err(format!("[issubdtype] expected a Dtype or a DtypeCategory, not {name}")))
    }
}

/// Whether a type or kind of types belongs to another.
///
/// Examples
/// --------
/// >>> mx.issubdtype(mx.float32, mx.floating)
/// True
#[pyfunction]
#[pyo3(signature = (arg1, arg2))]
fn issubdtype(arg1: DtypeOrCategory, arg2: DtypeOrCategory) -> bool {
    match (arg1, arg2) {
        (DtypeOrCategory::Type(one), DtypeOrCategory::Type(other)) => one == other,
        (DtypeOrCategory::Type(one), DtypeOrCategory::Category(kind)) => one.is(kind),
        (DtypeOrCategory::Category(_), DtypeOrCategory::Type(_)) => false,
        (DtypeOrCategory::Category(one), DtypeOrCategory::Category(other)) => {
            Dtype::ALL.iter().all(|dtype| !dtype.is(one) || dtype.is(other))
        }
    }
}

/// Limits of a floating-point type.
///
/// Examples
/// --------
/// >>> mx.finfo(mx.float16).max
/// 65504.0
#[pyclass(name = "finfo", module = "hesper.core", frozen)]
struct FloatInfo {
    dtype: Dtype,
}

impl FloatInfo {
    /// Largest value, distance of 1 to the next number, smallest normal value.
    fn limits(&self) -> (f64, f64, f64) {
        match self.dtype {
            Dtype::Float16 => (65504.0, 2f64.powi(-10), 2f64.powi(-14)),
            Dtype::Bfloat16 => (f64::from(half::bf16::MAX), 2f64.powi(-7), 2f64.powi(-126)),
            Dtype::Float64 => (f64::MAX, f64::EPSILON, f64::MIN_POSITIVE),
            _ => (f64::from(f32::MAX), f64::from(f32::EPSILON), f64::from(f32::MIN_POSITIVE)),
        }
    }
}

#[pymethods]
impl FloatInfo {
    #[new]
    #[pyo3(signature = (arg, /))]
    fn new(arg: PyDtype) -> PyResult<Self> {
        match arg.0 {
            dtype if dtype.is(Category::Inexact) => Ok(FloatInfo { dtype: dtype.real() }),
            dtype => Err(PyValueError::new_err(format!(
                "[finfo] cannot describe {dtype}: it is not a floating point type"
            ))),
        }
    }

    /// The smallest value.
    #[getter]
    fn min(&self) -> f64 {
        -self.limits().0
    }

    /// The largest value.
    #[getter]
    fn max(&self) -> f64 {
        self.limits().0
    }

    /// The distance from one to the next number.
    #[getter]
    fn eps(&self) -> f64 {
        self.limits().1
    }

    /// The smallest positive number of full precision.
    #[getter]
    fn smallest_normal(&self) -> f64 {
        self.limits().2
    }

    /// Bits of a number.
    #[getter]
    fn bits(&self) -> usize {
        self.dtype.size() * 8
    }

    /// The type.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDtype>> {
        object(py, self.dtype)
    }

    fn __repr__(&self) -> String {
        let show = crate::format::general;
        format!("finfo(min={}, max={}, dtype={})", show(self.min(), 6), show(self.max(), 6), self.dtype)
    }
}

/// Limits of an integer type.
///
/// Examples
/// --------
/// >>> mx.iinfo(mx.int8)
/// iinfo(min=-128, max=127, dtype=int8)
#[pyclass(name = "iinfo", module = "hesper.core", frozen)]
struct IntInfo {
    dtype: Dtype,
}

#[pymethods]
impl IntInfo {
    #[new]
    #[pyo3(signature = (arg, /))]
    fn new(arg: PyDtype) -> PyResult<Self> {
        if !arg.0.is(Category::Integer) {
            let what = format!("[iinfo] cannot describe {}: it is not an integer type", arg.0);
            return Err(PyValueError::new_err(what));
        }
        Ok(IntInfo { dtype: arg.0 })
    }

    /// The smallest value.
    #[getter]
    fn min(&self) -> i64 {
        if self.dtype.is(Category::Unsigned) { 0 } else { i64::MIN >> (64 - 8 * self.dtype.size()) }
    }

    /// The largest value.
    #[getter]
    fn max(&self) -> u64 {
        let bits = 8 * self.dtype.size();
        u64::MAX >> (64 - bits + usize::from(self.dtype.is(Category::Signed)))
    }

    /// Bits of a number.
    #[getter]
    fn bits(&self) -> usize {
        self.dtype.size() * 8
    }

    /// The type.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDtype>> {
        object(py, self.dtype)
    }

    fn __repr__(&self) -> String {
        format!("iinfo(min={}, max={}, dtype={})", self.min(), self.max(), self.dtype)
    }
}

/// The type that arrays and types combine to.
///
/// Examples
/// --------
/// >>> mx.result_type(mx.int8, mx.uint8)
/// hesper.core.int16
#[pyfunction]
#[pyo3(signature = (*arrays_and_dtypes))]
fn result_type(arrays_and_dtypes: &Bound<'_, PyTuple>) -> PyResult<Py<PyDtype>> {
    let mut result = None;
    for item in arrays_and_dtypes {
        let dtype = type_of(&item)?;
        result = Some(result.map_or(dtype, |other: Dtype| other.promote(dtype)));
    }
    let none =
        || PyValueError::new_err("[result_type] cannot promote nothing; give at least one array or Dtype");
    object(arrays_and_dtypes.py(), result.ok_or_else(none)?)
}

fn type_of(object: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    match object.cast::<crate::handle::PyArray>() {
        Ok(array) => Ok(array.get().value().dtype()),
        Err(_) => match object.cast::<PyDtype>() {
            Ok(dtype) => Ok(dtype.get().0),
            Err(_) => Err(PyValueError::new_err("[result_type] expected arrays and Dtypes")),
        },
    }
}

/// Whether values of one type, or of an array's type, become another without a change of kind.
///
/// Parameters
/// ----------
/// from_ : array or Dtype
/// to : Dtype
///
/// Examples
/// --------
/// >>> mx.can_cast(mx.int32, mx.float32)
/// True
#[pyfunction]
#[pyo3(signature = (from_, to))]
fn can_cast(from_: &Bound<'_, PyAny>, to: PyDtype) -> PyResult<bool> {
    if from_.is_none() {
        return Err(PyTypeError::new_err("[can_cast] expected an array or a Dtype, not None"));
    }
    Ok(type_of(from_)?.promote(to.0) == to.0)
}

/// Whether a type is of a kind.
///
/// Parameters
/// ----------
/// dtype : Dtype
/// kind : Dtype, str or tuple of these
///     A type, or one of ``"bool"``, ``"signed integer"``, ``"unsigned integer"``,
///     ``"integral"``, ``"real floating"``, ``"complex floating"``, ``"numeric"``.
///
/// Examples
/// --------
/// >>> mx.isdtype(mx.float32, "real floating")
/// True
#[pyfunction]
fn isdtype(dtype: PyDtype, kind: &Bound<'_, PyAny>) -> PyResult<bool> {
    let dtype = dtype.0;
    if let Ok(kinds) = kind.cast::<PyTuple>() {
        let mut found = false;
        for kind in kinds {
            found |= isdtype(PyDtype(dtype), &kind)?;
        }
        return Ok(found);
    }
    if let Ok(other) = kind.cast::<PyDtype>() {
        return Ok(other.get().0 == dtype);
    }
    let name: String = kind.extract().map_err(|_| {
        PyValueError::new_err(format!("[isdtype] expected a Dtype or the name of a kind, not {kind}"))
    })?;
    Ok(match name.as_str() {
        "bool" => dtype == Dtype::Bool,
        "signed integer" => dtype.is(Category::Signed),
        "unsigned integer" => dtype.is(Category::Unsigned),
        "integral" => dtype.is(Category::Integer),
        "real floating" => dtype.is(Category::Floating),
        "complex floating" => dtype.is(Category::Complex),
        "numeric" => dtype.is(Category::Number),
        _ => return Err(PyValueError::new_err(format!("[isdtype] unknown kind '{name}'"))),
    })
}

/// Shows types as ``mlx.core.float32``, for programs that compare the text.
#[pyfunction]
fn _present_as_mlx(on: bool) {
    AS_MLX.store(on, Ordering::Relaxed);
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<PyDtype>()?;
    m.add_class::<FloatInfo>()?;
    m.add_class::<IntInfo>()?;
    for dtype in Dtype::ALL {
        m.add(constant_name(dtype), object(py, dtype)?)?;
    }
    DTYPE_CATEGORY.register(m)?;
    for (number, name) in CATEGORY_NAMES.into_iter().enumerate() {
        m.add(name, DTYPE_CATEGORY.member(py, number)?)?;
    }
    m.add_function(wrap_pyfunction!(issubdtype, m)?)?;
    m.add_function(wrap_pyfunction!(result_type, m)?)?;
    m.add_function(wrap_pyfunction!(isdtype, m)?)?;
    m.add_function(wrap_pyfunction!(can_cast, m)?)?;
    m.add_function(wrap_pyfunction!(_present_as_mlx, m)?)
}
