//! `fast.cuda_kernel`: kernels in CUDA C++, for NVIDIA GPUs.

use hesper::cuda::CudaKernel;
use hesper::placement;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::args::{Lengths, On, Value, on};
use crate::dtype::PyDtype;
use crate::handle::PyArray;
use crate::kernel::{Template, check_lengths, launch_size, print};

/// A kernel in CUDA C++, made by ``fast.cuda_kernel``. Calling it builds lazy arrays.
#[pyclass(module = "hesper.core.fast", frozen, name = "CudaKernel")]
struct PyCudaKernel {
    kernel: CudaKernel,
    name: String,
    inputs: usize,
    outputs: usize,
}

#[pymethods]
impl PyCudaKernel {
    /// Builds the outputs of a launch.
    ///
    /// Parameters
    /// ----------
    /// inputs : list of arrays or numbers
    /// output_shapes : list of shapes
    /// output_dtypes : list of Dtype
    /// grid : (int, int, int)
    ///     The number of threads, rounded up to whole blocks.
    /// threadgroup : (int, int, int)
    ///     The number of threads of a block.
    /// template : list of (name, Dtype | int | bool), optional
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
        check_lengths("cuda_kernel", name, lists)?;
        let size = |what, lengths| launch_size("cuda_kernel", name, what, lengths, 1);
        let inputs = inputs.into_iter().map(Value::alone).collect::<PyResult<Vec<_>>>()?;
        let mut call =
            self.kernel.call(&inputs).grid(size("grid", grid)?).block(size("threadgroup", threadgroup)?);
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
        let outputs = on(stream, || {
            let device = placement::device_of(&placement::current_stream()?);
            Ok(if device == Some(placement::Device::Cpu) { None } else { Some(call.run()?) })
        })?;
        let Some(outputs) = outputs else {
            return Err(PyValueError::new_err(format!(
                "[cuda_kernel] cannot launch `{name}` on the host: it needs an NVIDIA GPU; use stream=mx.gpu"
            )));
        };
        Ok(outputs.into_iter().map(PyArray::new).collect())
    }

    fn __repr__(&self) -> String {
        format!("<cuda_kernel {}>", self.name)
    }
}

/// A kernel from text in CUDA C++, which only an NVIDIA GPU runs. ``metal_kernel`` takes kernels that run on
/// every device.
///
/// Parameters
/// ----------
/// name : str
///     A label; kernels of one name and different text are different.
/// input_names, output_names : sequence of str
///     Names of the parameters in the text. For an input ``x`` the text may also name ``x_shape``,
///     ``x_strides`` and ``x_ndim``.
/// source : str
///     The body of the kernel; its signature is generated.
/// header : str
///     Text before the kernel: functions, includes.
/// ensure_row_contiguous : bool
///     Whether to copy inputs that are not row-contiguous.
/// shared_memory : int
///     Bytes of dynamic shared memory of each block.
///
/// Raises
/// ------
/// RuntimeError
///     Without an NVIDIA GPU.
#[pyfunction]
#[pyo3(signature = (name, input_names, output_names, source, header = "", ensure_row_contiguous = true,
    shared_memory = 0))]
fn cuda_kernel(
    name: String,
    input_names: Vec<String>,
    output_names: Vec<String>,
    source: &str,
    header: &str,
    ensure_row_contiguous: bool,
    shared_memory: i64,
) -> PyResult<PyCudaKernel> {
    let gpu = placement::Device::Gpu(0).runtime();
    if !gpu.is_ok_and(|gpu| gpu.info().kind == "cuda") {
        return Err(PyRuntimeError::new_err(
            "[cuda_kernel] cannot make a kernel: there is no NVIDIA GPU; mx.fast.metal_kernel runs anywhere",
        ));
    }
    if output_names.is_empty() {
        return Err(PyValueError::new_err(
            "[cuda_kernel] cannot make a kernel without outputs; name one in output_names",
        ));
    }
    let shared = u32::try_from(shared_memory).map_err(|_| {
        PyValueError::new_err(format!("[cuda_kernel] cannot use {shared_memory} bytes of shared memory"))
    })?;
    let inputs: Vec<&str> = input_names.iter().map(String::as_str).collect();
    let outputs: Vec<&str> = output_names.iter().map(String::as_str).collect();
    let kernel = CudaKernel::new(&name, &inputs, &outputs, source)
        .header(header)
        .ensure_row_contiguous(ensure_row_contiguous)
        .shared_memory(shared);
    Ok(PyCudaKernel { kernel, name, inputs: inputs.len(), outputs: outputs.len() })
}

pub fn register(fast: &Bound<'_, PyModule>) -> PyResult<()> {
    fast.add_function(wrap_pyfunction!(cuda_kernel, fast)?)
}
