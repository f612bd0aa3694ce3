//! Kernels in CUDA C++ that a program supplies at run time.
//!
//! A [`CudaKernel`] has the meaning of MLX's `fast.cuda_kernel`: the body of a `__global__` function, named
//! inputs and outputs, and at each call a grid, a block, template arguments and output shapes. Its signature
//! is generated. For an input `x` the body may name `x_shape`, `x_strides` and `x_ndim`. The prelude defines
//! what MLX's kernels rely on: integers by their sizes (`int64_t`), `inf`, `elem_to_loc`, and cooperative
//! groups where the toolkit's headers are installed. Line numbers in the compiler's messages are those of the
//! caller's text.

use std::fmt::Write as _;
use std::sync::Arc;

use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpRef, OpTableBuilder, Parts};
use hesper_core::identity::BitEq;
use hesper_core::shape::is_row_major;
use hesper_core::{Array, Dtype, Error, Result, Shape};
use hesper_runtime::{Buffer, PipelineSource};
use smallvec::SmallVec;

use crate::Cuda;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<CudaLaunch>()
}

/// A kernel of CUDA C++.
///
/// ```
/// use hesper::cuda::CudaKernel;
/// use hesper::{Array, Dtype, placement};
/// let body = "unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < N) out[i] = 2 * x[i];";
/// let kernel = CudaKernel::new("twice", &["x"], &["out"], body);
/// if let Ok(out) = placement::with_device(placement::Device::Gpu(0), || -> hesper::Result<_> {
///     let call = kernel.call(&[Array::from_slice(&[1.0f32, 2.0])]).template_int("N", 2);
///     call.grid([2, 1, 1]).block([32, 1, 1]).output(&[2], Dtype::Float32).run()
/// }) {
///     assert_eq!(out?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// }
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// A kernel with a name, named inputs and outputs, and a body.
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

    /// Whether inputs that are not row-major are copied. Default: yes.
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
    /// Threads in each dimension; blocks are whole.
    pub fn grid(mut self, grid: [u64; 3]) -> Self {
        self.grid = grid;
        self
    }

    /// Threads of a block in each dimension.
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

    /// The whole text that is compiled.
    pub fn text(&self) -> String {
        let inputs: Vec<_> = self.inputs.iter().map(|array| (array.dtype(), array.ndim())).collect();
        let outputs: Vec<_> = self.outputs.iter().map(|(_, dtype)| *dtype).collect();
        self.kernel.text(&inputs, &outputs, &self.template)
    }

    /// Ends the call and returns the outputs. Errors in the text are reported when they are evaluated.
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
        let text = self.text();
        let parts = Parts::new(self.outputs)?;
        let op = CudaLaunch {
            kernel: kernel.clone(),
            text,
            grid: self.grid,
            block: self.block,
            parts: parts.clone(),
            init_value: self.init_value.map(BitEq),
        };
        parts.arrays(OpRef::new(op), self.inputs)
    }
}

/// A launch of a kernel with its whole text.
#[derive(PartialEq, Eq, Hash)]
struct CudaLaunch {
    kernel: CudaKernel,
    text: String,
    grid: [u64; 3],
    block: [u64; 3],
    parts: Parts,
    init_value: Option<BitEq<f64>>,
}

impl std::fmt::Debug for CudaLaunch {
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
        Dtype::Complex128 => "double2",
    }
}

/// A property of an input that the text may name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fact {
    Shape,
    Strides,
    Ndim,
}

/// Fixed-width integers, as the toolkit's headers define them for this compiler.
const INTEGERS: &str = "typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
";

/// A shape or strides: an array that converts to a pointer.
const LIST: &str = "template <typename E> struct HesperList {
  const E* first;
  template <typename I> __device__ const E& operator[](I at) const { return first[at]; }
  __device__ const E* data() const { return first; }
  __device__ operator const E*() const { return first; }
};
";

/// The offset of an element by its row-major index.
const ELEM_TO_LOC: &str = "template <typename I>
__device__ long long elem_to_loc(I element, const int* shape, const long long* strides, int ndim) {
  long long place = 0;
  for (int axis = ndim - 1; axis >= 0; --axis) {
    place += (long long)(element % shape[axis]) * strides[axis];
    element /= shape[axis];
  }
  return place;
}
";

impl CudaKernel {
    /// The properties of inputs that the body names, in the order of the parameters.
    fn facts(&self) -> Vec<(usize, Fact)> {
        let mut facts = Vec::new();
        for (at, name) in self.inputs.iter().enumerate() {
            for (fact, suffix) in
                [(Fact::Shape, "_shape"), (Fact::Strides, "_strides"), (Fact::Ndim, "_ndim")]
            {
                if self.body.contains(&format!("{name}{suffix}")) {
                    facts.push((at, fact));
                }
            }
        }
        facts
    }

    /// The text before the caller's.
    fn prelude(&self, dtypes: impl Iterator<Item = Dtype>, template: &str) -> String {
        let uses = |name: &str| [&*self.body, &*self.header, template].iter().any(|text| text.contains(name));
        let halves = dtypes.into_iter().any(|dtype| matches!(dtype, Dtype::Float16 | Dtype::Bfloat16));
        let mut text = String::new();
        if halves || uses("__half") || uses("__nv_bfloat16") {
            text.push_str("#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n");
        }
        if uses("cooperative_groups") || uses("cg::") {
            text.push_str("#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n");
        }
        if uses("_t") {
            text.push_str(INTEGERS);
        }
        if uses("inf") {
            text.push_str("#define inf __int_as_float(0x7f800000)\n");
        }
        if uses("elem_to_loc") {
            text.push_str(ELEM_TO_LOC);
        }
        if self.facts().iter().any(|(_, fact)| *fact != Fact::Ndim) {
            text.push_str(LIST);
        }
        text
    }

    /// The whole text for inputs of these dtypes and ranks.
    fn text(&self, inputs: &[(Dtype, usize)], outputs: &[Dtype], template: &str) -> String {
        let all = inputs.iter().map(|(dtype, _)| *dtype).chain(outputs.iter().copied());
        let mut text = self.prelude(all, template);
        let file: String = self.name.chars().filter(|c| !c.is_control() && !"\"\\".contains(*c)).collect();
        if !self.header.is_empty() {
            let _ = writeln!(text, "#line 1 \"{file}, header\"\n{}", self.header);
        }
        let mut parameters: Vec<String> = Vec::new();
        for (name, (dtype, _)) in self.inputs.iter().zip(inputs) {
            parameters.push(format!("const {}* {name}", type_name(*dtype)));
        }
        let mut facts = String::new();
        for (at, fact) in self.facts() {
            let name = &self.inputs[at];
            let (what, of) = match fact {
                Fact::Shape => ("shape", "int"),
                Fact::Strides => ("strides", "long long"),
                Fact::Ndim => {
                    let ndim = inputs.get(at).map_or(0, |(_, ndim)| *ndim);
                    let _ = writeln!(facts, "constexpr int {name}_ndim = {ndim};");
                    continue;
                }
            };
            parameters.push(format!("const {of}* {name}_{what}_"));
            let _ = writeln!(facts, "const HesperList<{of}> {name}_{what}{{{name}_{what}_}};");
        }
        for (name, dtype) in self.outputs.iter().zip(outputs) {
            parameters.push(format!("{}* {name}", type_name(*dtype)));
        }
        let list = parameters.join(", ");
        let _ = writeln!(text, "extern \"C\" __global__ void hesper_kernel({list}) {{\n{facts}{template}");
        let _ = writeln!(text, "#line 1 \"{file}\"\n{}\n}}", self.body);
        text
    }
}

impl Op for CudaLaunch {
    fn name(&self) -> &'static str {
        "CUDA kernel"
    }

    fn is_opaque(&self) -> bool {
        true
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.parts.outputs.clone())
    }
}

impl Lower<CudaLaunch> for Cuda {
    fn lower(op: &CudaLaunch, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let runtime = l.stream().runtime();
        let options = format!("entry hesper_kernel\nshared {}", op.kernel.shared_memory);
        let source = PipelineSource::new(op.kernel.name.clone(), "cuda", op.text.as_str())
            .specialised(options.as_str());
        let pipeline = runtime.pipeline(&source)?;
        let inputs = (0..l.input_count())
            .map(|at| {
                let (data, shape) = (l.input(at), l.input_shape(at));
                let backwards = data.strides.iter().any(|stride| *stride < 0);
                let copy =
                    (op.kernel.ensure_row_contiguous || backwards) && !is_row_major(shape, &data.strides);
                if copy { l.row_major(at) } else { Ok(data.clone()) }
            })
            .collect::<Result<Vec<Data>>>()?;
        let mut facts: Vec<Buffer> = Vec::new();
        for (at, fact) in op.kernel.facts() {
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
        let output = op.parts.memory(l)?;
        if let Some(BitEq(value)) = op.init_value {
            op.parts.fill(l, &output, value)?;
        }
        let mut command = l.stream().encode(op.kernel.name.clone());
        for (at, data) in inputs.iter().enumerate() {
            let (bytes, _) = reach(data, l.input_shape(at), l.input_dtype(at).size());
            command = command.read_range(&data.buffer, bytes);
        }
        for fact in &facts {
            command = command.read(fact);
        }
        for at in 0..op.parts.outputs.len() {
            command = match op.init_value {
                Some(_) => command.read_write_range(&output, op.parts.range(at)),
                None => command.write_range(&output, op.parts.range(at)),
            };
        }
        command.dispatch(&pipeline, op.grid, op.block)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
