//! Which Python exception an error becomes.

use hesper::{Dtype, Error};
use hesper_files::{Error as FileError, Format};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, PyResult, Python};

/// The exception for an error of the array library.
pub fn raise(error: Error) -> PyErr {
    match &error {
        // An exception on its way through the array library.
        Error::User(user) => match user.downcast_ref::<PyErr>() {
            Some(exception) => Python::attach(|py| exception.clone_ref(py)),
            None => PyRuntimeError::new_err(error.to_string()),
        },
        Error::Axis { .. } => PyIndexError::new_err(error.to_string()),
        Error::Type { op, dtype, .. }
            if (op.starts_with("bitwise") || op.ends_with("shift")) && op != "bitwise_invert"
                || op.ends_with("_along_axis")
                || *dtype == Dtype::Float64 && matches!(&**op, "uniform" | "gumbel" | "truncated_normal") =>
        {
            PyRuntimeError::new_err(error.to_string())
        }
        Error::File(file) if is_value_error(file.root()) => PyValueError::new_err(error.to_string()),
        // As in MLX for the codes of quantized weights.
        Error::Value { op, what } if op == "quantized_matmul" && what.contains("by input 1 ") => {
            PyRuntimeError::new_err(error.to_string())
        }
        // A tensor with elements that arrays do not have.
        Error::Value { op, .. } if op == "load" => PyRuntimeError::new_err(error.to_string()),
        Error::Broadcast { .. }
        | Error::Shape { .. }
        | Error::RepeatedAxis { .. }
        | Error::Type { .. }
        | Error::TooLarge { .. }
        | Error::Value { .. } => PyValueError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// Whether a file error is about what the file holds: an npz that is no zip archive, elements of an unknown
/// type.
fn is_value_error(error: &FileError) -> bool {
    match error {
        FileError::Malformed { format, field, .. } => {
            *format == Format::Npz && *field == "end of central directory"
        }
        FileError::Unsupported { field, .. } => *field == "descr",
        _ => false,
    }
}

/// An error in a process that was forked from one that had used arrays: its compute threads are gone.
pub fn usable() -> PyResult<()> {
    hesper_runtime::fork::check().map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
