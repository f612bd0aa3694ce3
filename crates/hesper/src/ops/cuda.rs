//! Kernels in CUDA C++, brought at run time: for NVIDIA GPUs alone.
//!
//! A [`CudaKernel`] has the meaning of MLX's `fast.cuda_kernel`: the body of a `__global__` function, named
//! inputs and outputs, and at each call a grid, a block, template arguments and output shapes. Its
//! signature is written for it. Where an array `x` is read by strides the text may name `x_shape`,
//! `x_strides` and `x_ndim`.

use std::fmt::Write as _;
use std::sync::Arc;

use hesper_runtime::{Buffer, PipelineSource};
use smallvec::SmallVec;

use super::multi::Parts;
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::ops::native::reach;
use crate::shape::{Shape, is_row_major};

/// A kernel of CUDA C++.
///
/// ```
/// use hesper::{Array, CudaKernel, Dtype, place};
/// let body = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < N) out[i] = 2 * x[i];";
/// let kernel = CudaKernel::new("twice", &["x"], &["out"], body);
/// if let Ok(out) = place::with_device(place::Device::Gpu(0), || -> hesper::Result<_> {
///     let call = kernel.call(&[Array::from_slice(&[1.0f32, 2.0])]).template_int("N", 2);
///     call.grid([2, 1, 1]).block([32, 1, 1]).output(&[2], Dtype::Float32).run()
/// }) {
///     assert_eq!(out?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// }
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CudaKernel {
    name: Arc<str>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    body: String,
    header: String,
    ensure_row_contiguous: bool,
    shared_memory: u32,
}

impl CudaKernel {
    /// A kernel of a name, named inputs and outputs, and a body.
    pub fn new(name: &str, inputs: &[&str], outputs: &[&str], body: &str) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        CudaKernel {
            name: name.into(),
            inputs: owned(inputs),
            outputs: owned(outputs),
            body: body.into(),
            header: String::new(),
            ensure_row_contiguous: true,
            shared_memory: 0,
        }
    }

    /// Text before the kernel: functions, includes.
    pub fn header(mut self, header: &str) -> Self {
        self.header = header.into();
        self
    }

    /// Whether inputs are copied where they do not lie row by row. Default: yes.
    pub fn ensure_row_contiguous(mut self, ensure: bool) -> Self {
        self.ensure_row_contiguous = ensure;
        self
    }

    /// Bytes of dynamic shared memory of each block.
    pub fn shared_memory(mut self, bytes: u32) -> Self {
        self.shared_memory = bytes;
        self
    }

    /// Begins a call.
    pub fn call(&self, inputs: &[Array]) -> CudaCall<'_> {
        CudaCall {
            kernel: self,
            inputs: inputs.into(),
            template: String::new(),
            grid: [1; 3],
            block: [1; 3],
            outputs: Vec::new(),
            init_value: None,
        }
    }
}

/// A call of a [`CudaKernel`] under construction.
#[must_use = "a call takes effect with `run`"]
pub struct CudaCall<'a> {
    kernel: &'a CudaKernel,
    inputs: SmallVec<[Array; 3]>,
    template: String,
    grid: [u64; 3],
    block: [u64; 3],
    outputs: Vec<(Shape, Dtype)>,
    init_value: Option<f64>,
}

impl CudaCall<'_> {
    /// How many threads run, in each dimension; blocks are whole.
    pub fn grid(mut self, grid: [u64; 3]) -> Self {
        self.grid = grid;
        self
    }

    /// How many threads make a block, in each dimension.
    pub fn block(mut self, block: [u64; 3]) -> Self {
        self.block = block;
        self
    }

    /// A template argument that is a type.
    pub fn template_dtype(mut self, name: &str, dtype: Dtype) -> Self {
        let _ = writeln!(self.template, "typedef {} {name};", type_name(dtype));
        self
    }

    /// A template argument that is an integer.
    pub fn template_int(mut self, name: &str, value: i32) -> Self {
        let _ = writeln!(self.template, "constexpr int {name} = {value};");
        self
    }

    /// A template argument that is a truth value.
    pub fn template_bool(mut self, name: &str, value: bool) -> Self {
        let _ = writeln!(self.template, "constexpr bool {name} = {value};");
        self
    }

    /// The shape and type of the next output.
    pub fn output(mut self, shape: &[usize], dtype: Dtype) -> Self {
        self.outputs.push((shape.into(), dtype));
        self
    }

    /// Fills the outputs before the kernel runs.
    pub fn init_value(mut self, value: f64) -> Self {
        self.init_value = Some(value);
        self
    }

    /// Ends the call; gives the outputs. What is wrong with the text is told when they are evaluated.
    pub fn run(self) -> Result<Vec<Array>> {
        let kernel = self.kernel;
        let fail = |what: String| Err(Error::Kernel(format!("CUDA kernel `{}`: {what}", kernel.name)));
        if self.inputs.len() != kernel.inputs.len() || self.outputs.len() != kernel.outputs.len() {
            return fail(format!(
                "{} inputs and {} outputs given for {} and {}",
                self.inputs.len(),
                self.outputs.len(),
                kernel.inputs.len(),
                kernel.outputs.len()
            ));
        }
        if self.grid.contains(&0) || self.block.contains(&0) {
            return fail(format!("grid {:?} and block {:?} must be positive", self.grid, self.block));
        }
        let parts = Parts::new(self.outputs)?;
        let op = Call {
            kernel: kernel.clone(),
            template: self.template,
            grid: self.grid,
            block: self.block,
            parts: parts.clone(),
            init_value: self.init_value,
        };
        parts.arrays(OpRef::new(op), self.inputs)
    }
}

struct Call {
    kernel: CudaKernel,
    template: String,
    grid: [u64; 3],
    block: [u64; 3],
    parts: Parts,
    init_value: Option<f64>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CUDA kernel {}", self.kernel.name)
    }
}

fn type_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "bool",
        Dtype::Uint8 => "unsigned char",
        Dtype::Uint16 => "unsigned short",
        Dtype::Uint32 => "unsigned int",
        Dtype::Uint64 => "unsigned long long",
        Dtype::Int8 => "signed char",
        Dtype::Int16 => "short",
        Dtype::Int32 => "int",
        Dtype::Int64 => "long long",
        Dtype::Float16 => "__half",
        Dtype::Bfloat16 => "__nv_bfloat16",
        Dtype::Float32 => "float",
        Dtype::Float64 => "double",
        Dtype::Complex64 => "float2",
    }
}

/// What the text asks to know of an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fact {
    Shape,
    Strides,
    Ndim,
}

impl Call {
    /// Which facts of which inputs the body names, in the order of the parameters.
    fn facts(&self) -> Vec<(usize, Fact)> {
        let mut facts = Vec::new();
        for (at, name) in self.kernel.inputs.iter().enumerate() {
            for (fact, suffix) in
                [(Fact::Shape, "_shape"), (Fact::Strides, "_strides"), (Fact::Ndim, "_ndim")]
            {
                if self.kernel.body.contains(&format!("{name}{suffix}")) {
                    facts.push((at, fact));
                }
            }
        }
        facts
    }

    fn text(&self, l: &Lowering<'_>) -> String {
        let kernel = &self.kernel;
        let types = (0..l.input_count()).map(|at| l.input_dtype(at));
        let mut all = types.chain(self.parts.outputs.iter().map(|(_, dtype)| *dtype));
        let uses = |name: &str| {
            [&kernel.body, &kernel.header, &self.template].iter().any(|text| text.contains(name))
        };
        let mut text = String::new();
        if all.any(|dtype| matches!(dtype, Dtype::Float16 | Dtype::Bfloat16))
            || uses("__half")
            || uses("__nv_bfloat16")
        {
            text.push_str("#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n");
        }
        if uses("cooperative_groups") || uses("cg::") {
            text.push_str("#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n");
        }
        let _ = writeln!(text, "{}\n{}", self.template, kernel.header);
        let mut parameters: Vec<String> = Vec::new();
        for (at, name) in kernel.inputs.iter().enumerate() {
            parameters.push(format!("const {}* {name}", type_name(l.input_dtype(at))));
        }
        for (at, fact) in self.facts() {
            let name = &kernel.inputs[at];
            match fact {
                Fact::Shape => parameters.push(format!("const int* {name}_shape")),
                Fact::Strides => parameters.push(format!("const long long* {name}_strides")),
                Fact::Ndim => {}
            }
        }
        for (name, (_, dtype)) in kernel.outputs.iter().zip(&self.parts.outputs) {
            parameters.push(format!("{}* {name}", type_name(*dtype)));
        }
        for (at, fact) in self.facts() {
            if fact == Fact::Ndim {
                let _ = writeln!(text, "#define {}_ndim {}", kernel.inputs[at], l.input_shape(at).len());
            }
        }
        let list = parameters.join(", ");
        let _ = writeln!(text, "extern \"C\" __global__ void hesper_kernel({list}) {{\n{}\n}}", kernel.body);
        text
    }
}

impl Op for Call {
    fn name(&self) -> &'static str {
        "CUDA kernel"
    }

    fn identity(&self) -> Option<String> {
        None
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.parts.outputs.clone())
    }

    fn lower(&self, _: &mut Lowering<'_>) -> Result<Data> {
        let name = &self.kernel.name;
        Err(Error::Kernel(format!("CUDA kernel `{name}` was called on a stream of no NVIDIA GPU")))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let runtime = l.stream().runtime();
        let options = format!("entry hesper_kernel\nshared {}", self.kernel.shared_memory);
        let source = PipelineSource::new(self.kernel.name.clone(), "cuda", self.text(l).as_str())
            .specialised(options.as_str());
        let pipeline = runtime.pipeline(&source)?;
        let inputs = (0..l.input_count())
            .map(|at| {
                let (data, shape) = (l.input(at), l.input_shape(at));
                let backwards = data.strides.iter().any(|stride| *stride < 0);
                let copy =
                    (self.kernel.ensure_row_contiguous || backwards) && !is_row_major(shape, &data.strides);
                if copy { l.row_major(at) } else { Ok(data.clone()) }
            })
            .collect::<Result<Vec<Data>>>()?;
        let mut facts: Vec<Buffer> = Vec::new();
        for (at, fact) in self.facts() {
            match fact {
                Fact::Shape => {
                    let shape: Vec<i32> = l.input_shape(at).iter().map(|axis| *axis as i32).collect();
                    facts.push(runtime.upload(&shape)?);
                }
                Fact::Strides => {
                    let strides: Vec<i64> = inputs[at].strides.iter().map(|step| *step as i64).collect();
                    facts.push(runtime.upload(&strides)?);
                }
                Fact::Ndim => {}
            }
        }
        let output = l.output()?;
        for (at, (_, dtype)) in self.parts.outputs.iter().enumerate() {
            if let Some(value) = self.init_value {
                let element = match &*Array::scalar(value, *dtype)?.state() {
                    crate::array::State::Known(element) => *element,
                    _ => [0; 8],
                };
                let range = self.parts.range(at);
                crate::gpu::copy::fill(l.stream(), &output, range, element, dtype.size())?;
            }
        }
        let mut command = l.stream().encode(self.kernel.name.clone());
        for (at, data) in inputs.iter().enumerate() {
            let (bytes, _) = reach(data, l.input_shape(at), l.input_dtype(at).size());
            command = command.read_range(&data.buffer, bytes);
        }
        for fact in &facts {
            command = command.read(fact);
        }
        for at in 0..self.parts.outputs.len() {
            command = match self.init_value {
                Some(_) => command.read_write_range(&output, self.parts.range(at)),
                None => command.write_range(&output, self.parts.range(at)),
            };
        }
        command.dispatch(&pipeline, self.grid, self.block)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
