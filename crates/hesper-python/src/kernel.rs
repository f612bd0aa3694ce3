//! `fast.metal_kernel`: kernels from text.

use std::io::Write;

use hesper::CustomKernel;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt};

use crate::args::{Lengths, On, Value, on};
use crate::dtype::PyDtype;
use crate::error::raise;
use crate::handle::PyArray;

/// A kernel from text, made by ``fast.metal_kernel``. Calling it builds lazy arrays.
#[pyclass(module = "hesper.core.fast", frozen)]
struct MetalKernel {
    kernel: CustomKernel,
    name: String,
    inputs: usize,
    outputs: usize,
}

/// A template argument of a kernel.
pub enum Template {
    Dtype(PyDtype),
    Int(i32),
    Bool(bool),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Template {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyBool>() {
            Ok(Template::Bool(object.extract()?))
        } else if object.is_instance_of::<PyInt>() {
            Ok(Template::Int(object.extract()?))
        } else if let Ok(dtype) = object.cast::<PyDtype>() {
            Ok(Template::Dtype(*dtype.get()))
        } else {
            let name = object.get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "cannot use a {name} as template argument of a kernel; expected a Dtype, an int or a bool"
            )))
        }
    }
}

/// Checks that each list of a launch has the expected number of entries. `function` is the one that made the
/// kernel.
pub fn check_lengths(function: &str, name: &str, lists: [(&str, usize, usize); 3]) -> PyResult<()> {
    for (list, given, expected) in lists {
        if given != expected {
            let what = format!(
                "[{function}] cannot launch `{name}`: `{list}` has {given} entries, the kernel has {expected}"
            );
            return Err(PyValueError::new_err(what));
        }
    }
    Ok(())
}

/// The size of a grid or a threadgroup. All lengths must be at least `least`.
pub fn launch_size(
    function: &str,
    name: &str,
    what: &str,
    (x, y, z): (i64, i64, i64),
    least: u64,
) -> PyResult<[u64; 3]> {
    let length = |value: i64| u64::try_from(value).ok().filter(|value| *value >= least);
    match (length(x), length(y), length(z)) {
        (Some(x), Some(y), Some(z)) => Ok([x, y, z]),
        _ => Err(PyValueError::new_err(format!(
            "[{function}] cannot launch `{name}` with {what} ({x}, {y}, {z}); all must be at least {least}"
        ))),
    }
}

#[pymethods]
impl MetalKernel {
    /// Builds the outputs of a launch.
    ///
    /// Parameters
    /// ----------
    /// inputs : list of arrays or numbers
    /// template : list of (name, Dtype | int | bool), optional
    /// grid : (int, int, int)
    ///     The number of threads.
    /// threadgroup : (int, int, int)
    ///     The number of threads of a threadgroup.
    /// output_shapes : list of shapes
    /// output_dtypes : list of Dtype
    /// init_value : float, optional
    ///     The value that the outputs are filled with before the launch.
    /// verbose : bool
    ///     Whether to print the source of the kernel.
    /// stream : Stream or Device, optional
    ///
    /// Returns
    /// -------
    /// list of arrays
    #[pyo3(signature = (*, inputs, output_shapes, output_dtypes, grid, threadgroup, template = None,
        init_value = None, verbose = false, stream = None))]
    fn __call__(
        &self,
        py: Python<'_>,
        inputs: Vec<Value>,
        output_shapes: Vec<Lengths>,
        output_dtypes: Vec<PyDtype>,
        grid: (i64, i64, i64),
        threadgroup: (i64, i64, i64),
        template: Option<Vec<(String, Template)>>,
        init_value: Option<f64>,
        verbose: bool,
        stream: Option<On>,
    ) -> PyResult<Vec<PyArray>> {
        let name = &self.name;
        let lists = [
            ("inputs", inputs.len(), self.inputs),
            ("output_shapes", output_shapes.len(), self.outputs),
            ("output_dtypes", output_dtypes.len(), self.outputs),
        ];
        check_lengths("metal_kernel", name, lists)?;
        let size = |what, lengths| launch_size("metal_kernel", name, what, lengths, 0);
        let inputs = inputs.into_iter().map(Value::alone).collect::<PyResult<Vec<_>>>()?;
        let mut call = self
            .kernel
            .call(&inputs)
            .grid(size("grid", grid)?)
            .threadgroup(size("threadgroup", threadgroup)?);
        for (name, value) in template.iter().flatten() {
            call = match value {
                Template::Dtype(dtype) => call.template_dtype(name, dtype.0),
                Template::Int(value) => call.template_int(name, *value),
                Template::Bool(value) => call.template_bool(name, *value),
            };
        }
        for (shape, dtype) in output_shapes.iter().zip(&output_dtypes) {
            call = call.output(&shape.0, dtype.0);
        }
        if let Some(value) = init_value {
            call = call.init_value(value);
        }
        if verbose {
            print(py, &format!("// kernel `{name}`\n{}\n", call.text()))?;
        }
        let outputs = on(stream, || call.run())?;
        Ok(outputs.into_iter().map(PyArray::new).collect())
    }

    fn __repr__(&self) -> String {
        format!("<metal_kernel {}>", self.name)
    }
}

/// Prints through Python, so that redirected output sees it.
pub fn print(py: Python<'_>, text: &str) -> PyResult<()> {
    let out = py.import("sys")?.getattr("stdout")?;
    if out.is_none() {
        // A process without standard output has nowhere to print to.
        let _ = std::io::stdout().write_all(text.as_bytes());
        return Ok(());
    }
    out.call_method1("write", (text,)).map(|_| ())
}

/// A kernel from text in Metal's dialect of C++. It runs on every device, the CPU included.
///
/// Parameters
/// ----------
/// name : str
///     A label; kernels of one name and different text are different.
/// input_names, output_names : sequence of str
///     Names of the parameters in the text.
/// source : str
///     The body of the kernel; its signature is generated.
/// header : str
///     Text before the kernel: functions, structs, templates.
/// ensure_row_contiguous : bool
///     Whether to copy inputs that are not row-contiguous.
/// atomic_outputs : bool
///     Whether outputs are ``device atomic<T>*``.
/// compile_options : dict, optional
///     ``{"math_mode": "safe" | "relaxed" | "fast"}``; all are computed as ``"safe"``.
/// unchecked : bool
///     By default an out-of-bounds read returns zero, and an out-of-bounds write is dropped and fails the
///     launch with an error that names the line. With ``True`` nothing is checked: on a GPU such an access is
///     undefined and may corrupt other arrays.
/// as_written : bool
///     With ``True`` a GPU whose own compiler takes Metal's C++ gets the text as it is written, with a signature
///     around it. Nothing is checked, and an error in the text is raised when an output is evaluated, with the
///     compiler's message and the line. Other devices run the text as with ``unchecked=True``.
///
/// Examples
/// --------
/// >>> kernel = mx.fast.metal_kernel(
/// ...     name="double",
/// ...     input_names=["inp"],
/// ...     output_names=["out"],
/// ...     source="uint i = thread_position_in_grid.x; out[i] = 2 * inp[i];",
/// ... )
/// >>> a = mx.array([1.0, 2.0])
/// >>> kernel(inputs=[a], grid=(2, 1, 1), threadgroup=(2, 1, 1),
/// ...        output_shapes=[a.shape], output_dtypes=[a.dtype])[0]
/// array([2, 4], dtype=float32)
#[pyfunction]
#[pyo3(signature = (name, input_names, output_names, source, header = "", ensure_row_contiguous = true,
    atomic_outputs = false, compile_options = None, *, unchecked = false, as_written = false))]
fn metal_kernel(
    name: String,
    input_names: Vec<String>,
    output_names: Vec<String>,
    source: &str,
    header: &str,
    ensure_row_contiguous: bool,
    atomic_outputs: bool,
    compile_options: Option<&Bound<'_, PyDict>>,
    unchecked: bool,
    as_written: bool,
) -> PyResult<MetalKernel> {
    if let Some(mode) = compile_options.map(|options| options.get_item("math_mode")).transpose()?.flatten() {
        let mode: String = mode.extract()?;
        if !["safe", "relaxed", "fast"].contains(&mode.as_str()) {
            return Err(PyValueError::new_err(format!("[metal_kernel] unknown math_mode {mode:?}")));
        }
    }
    let inputs: Vec<&str> = input_names.iter().map(String::as_str).collect();
    let outputs: Vec<&str> = output_names.iter().map(String::as_str).collect();
    if outputs.is_empty() {
        return Err(PyValueError::new_err(
            "[metal_kernel] cannot make a kernel without outputs; name one in output_names",
        ));
    }
    let kernel = CustomKernel::with_options(
        &name,
        &inputs,
        &outputs,
        source,
        header,
        ensure_row_contiguous,
        atomic_outputs,
    )
    .map_err(raise)?;
    let kernel = match (unchecked, as_written) {
        (_, true) => kernel.as_written(),
        (true, false) => kernel.unchecked(),
        (false, false) => kernel,
    };
    Ok(MetalKernel { kernel, name, inputs: inputs.len(), outputs: outputs.len() })
}

pub fn register(fast: &Bound<'_, PyModule>) -> PyResult<()> {
    fast.add_function(wrap_pyfunction!(metal_kernel, fast)?)
}
