//! Python's operators: one table.
#![allow(unsafe_op_in_unsafe_fn, reason = "what PyO3 generates for methods that a macro writes")]

use hesper::{Array, Category, Dtype};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, types::PyBool};

use crate::args::{Value, array_on, convert};
use crate::handle::PyArray;

/// The other operand of `own`; `what` names the operation in errors.
fn operand(other: &Bound<'_, PyAny>, own: &Array, what: &str) -> PyResult<Array> {
    if let Ok(array) = other.cast::<PyArray>() {
        return Ok(array.get().value());
    }
    if let Some(number) = Value::number(other)? {
        return number.beside(own.dtype());
    }
    if other.is_none() {
        return Err(PyTypeError::new_err(format!("cannot perform {what} on an array and None")));
    }
    if convert::is_container(other) {
        return Err(mismatch(other, what));
    }
    if let Some(number) = Value::like_number(other)? {
        return number.beside(own.dtype());
    }
    let dtype = if convert::is_own(other)? { None } else { Some(own.dtype()) };
    convert::array(other, dtype).map_err(|_| mismatch(other, what))
}

fn mismatch(other: &Bound<'_, PyAny>, what: &str) -> PyErr {
    match other.get_type().name() {
        Ok(name) => PyValueError::new_err(format!("cannot perform {what} on an array and a {name}")),
        Err(error) => error,
    }
}

type Binary = fn(&Array, &Array) -> hesper::Result<Array>;

fn forward(own: &PyArray, other: &Bound<'_, PyAny>, what: &str, f: Binary) -> PyResult<PyArray> {
    let own = own.value();
    let other = operand(other, &own, what)?;
    array_on(None, || f(&own, &other))
}

/// The array stands first where the order does not matter, as a trace shows.
fn reflected(own: &PyArray, other: &Bound<'_, PyAny>, what: &str, f: Binary) -> PyResult<PyArray> {
    if let "addition" | "multiplication" = what {
        return forward(own, other, what, f);
    }
    let own = own.value();
    let other = operand(other, &own, what)?;
    array_on(None, || f(&other, &own))
}

fn in_place(own: &PyArray, other: &Bound<'_, PyAny>, what: &str, f: Binary) -> PyResult<()> {
    let result = forward(own, other, what, f)?;
    own.replace(result.value());
    Ok(())
}

/// Bitwise operators take no floats.
fn integral(own: &PyArray, other: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    let float = |dtype: Dtype| dtype.is(Category::Inexact);
    let theirs = match other.cast::<PyArray>() {
        Ok(array) => float(array.get().value().dtype()),
        Err(_) => matches!(Value::any_number(other)?, Some(Value::Float(_) | Value::Complex(_))),
    };
    if !other.is_none() && (theirs || float(own.value().dtype())) {
        return Err(PyValueError::new_err(format!(
            "cannot perform {what} on floating point arrays; use integers or booleans"
        )));
    }
    Ok(())
}

/// The left operand of a bitwise operator is a number, or an array of another library.
fn whole(other: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    let elements = other.hasattr("__array__")? || convert::is_own(other)?;
    if elements || Value::number(other)?.is_some() {
        return Ok(());
    }
    let name = other.get_type().name()?;
    Err(PyTypeError::new_err(format!("cannot perform {what} of a {name} and an array")))
}

fn matrix(other: &Bound<'_, PyAny>) -> PyResult<Array> {
    if let Ok(array) = other.cast::<PyArray>() {
        return Ok(array.get().value());
    }
    if convert::is_container(other) || Value::number(other)?.is_some() {
        return Err(not_a_matrix(other));
    }
    let array = convert::array(other, None);
    if array.as_ref().is_ok_and(|array| array.ndim() == 0) {
        return Err(not_a_matrix(other));
    }
    array.map_err(|error| match error.is_instance_of::<PyValueError>(other.py()) {
        true => not_a_matrix(other),
        false => error,
    })
}

fn not_a_matrix(other: &Bound<'_, PyAny>) -> PyErr {
    match other.get_type().name() {
        Ok(name) => PyTypeError::new_err(format!("cannot multiply a matrix by a {name}; expected an array")),
        Err(error) => error,
    }
}

/// The matrix product. Integers, which no matrix kernel multiplies, are multiplied and summed up.
pub fn product(a: &Array, b: &Array) -> hesper::Result<Array> {
    let dtype = a.dtype().promote(b.dtype());
    if !dtype.is(Category::Integer) {
        return a.matmul(b);
    }
    // A product of floats that is not evaluated says which shapes fit, and the shape of the result.
    let like = a.astype(Dtype::Float32)?.matmul(&b.astype(Dtype::Float32)?)?;
    let shape: Vec<isize> = like.shape().iter().map(|length| *length as isize).collect();
    let rows = if a.ndim() == 1 { a.expand_dims(0)? } else { a.clone() };
    let columns = if b.ndim() == 1 { b.expand_dims(-1)? } else { b.clone() };
    let products = rows.astype(dtype)?.expand_dims(-1)?.multiply(columns.expand_dims(-3)?)?;
    products.sum(-2)?.astype(dtype)?.reshape(&shape)
}

/// The methods of the arithmetic operators, of their reflected forms and of their in-place forms.
macro_rules! operators {
    (
        arithmetic { $($what:literal: $name:ident $swapped:ident $placed:ident = $f:expr;)* }
        bitwise { $($bits:literal: $bname:ident $bswapped:ident $bplaced:ident = $bf:expr;)* }
        compare { $($compared:literal: $op:ident = $cf:expr;)* }
    ) => {
        #[pymethods]
        impl PyArray {
            $(
                fn $name(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                    forward(self, other, $what, $f)
                }

                fn $swapped(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                    reflected(self, other, $what, $f)
                }

                fn $placed(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
                    if $what == "division" && !self.value().dtype().is(Category::Inexact) {
                        let what = "cannot divide an integer array in place: its quotient is floating point";
                        return Err(PyValueError::new_err(what));
                    }
                    in_place(self, other, $what, $f)
                }
            )*
            $(
                fn $bname(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                    integral(self, other, $bits)?;
                    forward(self, other, $bits, $bf)
                }

                fn $bswapped(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                    whole(other, $bits)?;
                    integral(self, other, $bits)?;
                    reflected(self, other, $bits, $bf)
                }

                fn $bplaced(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
                    integral(self, other, $bits)?;
                    in_place(self, other, $bits, $bf)
                }
            )*

            fn __pow__(&self, other: &Bound<'_, PyAny>, modulo: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                no_modulo(modulo)?;
                forward(self, other, "power", |a, b| a.power(b))
            }

            fn __rpow__(&self, other: &Bound<'_, PyAny>, modulo: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                no_modulo(modulo)?;
                reflected(self, other, "power", |a, b| a.power(b))
            }

            fn __ipow__(&self, other: &Bound<'_, PyAny>, modulo: &Bound<'_, PyAny>) -> PyResult<()> {
                no_modulo(modulo)?;
                in_place(self, other, "power", |a, b| a.power(b))
            }

            fn __matmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                let (own, other) = (self.value(), matrix(other)?);
                array_on(None, || product(&own, &other))
            }

            fn __rmatmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                let (own, other) = (self.value(), matrix(other)?);
                array_on(None, || product(&other, &own))
            }

            fn __imatmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
                let product = self.__matmul__(other)?;
                self.replace(product.value());
                Ok(())
            }

            fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
                let py = other.py();
                // An object that is not an array equals no array.
                let comparable = is_operand(other)?;
                match op {
                    CompareOp::Eq if !comparable => return PyBool::new(py, false).into_py_any(py),
                    CompareOp::Ne if !comparable => return PyBool::new(py, true).into_py_any(py),
                    $(CompareOp::$op => forward(self, other, $compared, $cf)?.into_py_any(py),)*
                }
            }
        }
    };
}

/// Whether an object can be the other operand. `None` counts, so that comparing with it is an error.
fn is_operand(other: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(other.is_instance_of::<PyArray>()
        || other.is_none()
        || Value::any_number(other)?.is_some()
        || (!convert::is_container(other) && convert::array(other, None).is_ok()))
}

fn no_modulo(modulo: &Bound<'_, PyAny>) -> PyResult<()> {
    if modulo.is_none() {
        Ok(())
    } else {
        Err(PyTypeError::new_err("cannot compute pow() of an array with a modulus"))
    }
}

operators! {
    arithmetic {
        "addition": __add__ __radd__ __iadd__ = |a, b| a.add(b);
        "subtraction": __sub__ __rsub__ __isub__ = |a, b| a.subtract(b);
        "multiplication": __mul__ __rmul__ __imul__ = |a, b| a.multiply(b);
        "division": __truediv__ __rtruediv__ __itruediv__ = |a, b| a.divide(b);
        "floor division": __floordiv__ __rfloordiv__ __ifloordiv__ = |a, b| a.floor_divide(b);
        "modulus": __mod__ __rmod__ __imod__ = |a, b| a.remainder(b);
    }
    bitwise {
        "bitwise and": __and__ __rand__ __iand__ = |a, b| a.bitwise_and(b);
        "bitwise or": __or__ __ror__ __ior__ = |a, b| a.bitwise_or(b);
        "bitwise xor": __xor__ __rxor__ __ixor__ = |a, b| a.bitwise_xor(b);
        "left shift": __lshift__ __rlshift__ __ilshift__ = |a, b| a.left_shift(b);
        "right shift": __rshift__ __rrshift__ __irshift__ = |a, b| a.right_shift(b);
    }
    compare {
        "equal": Eq = |a, b| a.equal(b);
        "not equal": Ne = |a, b| a.not_equal(b);
        "less than": Lt = |a, b| a.less(b);
        "less than or equal": Le = |a, b| a.less_equal(b);
        "greater than": Gt = |a, b| a.greater(b);
        "greater than or equal": Ge = |a, b| a.greater_equal(b);
    }
}

#[pymethods]
impl PyArray {
    /// Division, by its old name.
    fn __div__(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        forward(self, other, "division", |a, b| a.divide(b))
    }

    /// Division of another operand, by its old name.
    fn __rdiv__(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        reflected(self, other, "division", |a, b| a.divide(b))
    }

    fn __neg__(&self) -> PyResult<PyArray> {
        let own = self.value();
        if own.dtype() == Dtype::Bool {
            return Err(PyValueError::new_err("cannot negate a bool array; use logical_not"));
        }
        array_on(None, || own.negative())
    }

    fn __pos__(&self) -> PyArray {
        PyArray::new(self.value())
    }

    fn __abs__(&self) -> PyResult<PyArray> {
        let own = self.value();
        array_on(None, || own.abs())
    }

    fn __invert__(&self) -> PyResult<PyArray> {
        let own = self.value();
        if own.dtype().is(Category::Inexact) {
            return Err(PyValueError::new_err(
                "cannot invert the bits of a floating point array; use integers or booleans",
            ));
        }
        array_on(None, || own.bitwise_invert())
    }
}
