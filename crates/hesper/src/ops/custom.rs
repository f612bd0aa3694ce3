//! Custom kernels: text in the kernel language, brought at run time.
//!
//! A [`CustomKernel`] has the meaning of MLX's `fast.metal_kernel`: a body, named inputs and outputs, and
//! at each call a grid, a threadgroup, template arguments and output shapes. The same text runs on every
//! device. A kernel is its content: calls that share a name and differ in text, types or template
//! arguments are different kernels.
//!
//! Before a launch its accesses are analysed ([`hesper_kernel::bounds`]). Outputs that the stores provably cover are not
//! cleared first; on a GPU a launch whose accesses all provably lie inside of their buffers runs without checks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use hesper_kernel::bounds::{ArgFacts, Proof, prove};
use hesper_kernel::custom::{
    Binding, CallInfo, ContentKey, CustomKernel as Definition, CustomKernelError, InputInfo, KernelDtype,
    Specialised, TemplateValue,
};
use hesper_kernel::interp;
use hesper_kernel::ir::ParamKind;
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::{Buffer, Native, NativeResult, PipelineSource};
use smallvec::SmallVec;

use super::command::Commands;
use super::multi::Parts;
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::shape::{Shape, is_row_major};
use crate::transform::rule::{Backward, Cotangents};

/// A kernel from text.
///
/// ```
/// use hesper::{Array, CustomKernel, Dtype};
/// let source = "uint i = thread_position_in_grid.x; out[i] = a * x[i] + y[i];";
/// let kernel = CustomKernel::new("axpy", &["a", "x", "y"], &["out"], source)?;
/// let x = Array::from_slice(&[1.0f32, 2.0, 3.0]);
/// let out = kernel
///     .call(&[Array::scalar(2.0, Dtype::Float32)?, x.clone(), x])
///     .grid([3, 1, 1])
///     .threadgroup([32, 1, 1])
///     .output(&[3], Dtype::Float32)
///     .run()?;
/// assert_eq!(out[0].to_vec::<f32>()?, [3.0, 6.0, 9.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CustomKernel {
    definition: Arc<Definition>,
    text: Arc<Text>,
    /// Specialisations that calls have asked for.
    known: Arc<Mutex<HashMap<ContentKey, Arc<Compiled>>>>,
    unchecked: bool,
}

/// A specialised kernel, and what was proven of its launches.
struct Compiled {
    specialised: Specialised,
    /// Without specialisation; the IR is its payload.
    source: PipelineSource,
    proofs: Mutex<VecDeque<(Vec<u64>, Arc<Proof>)>>,
}

/// How many proofs of one kernel are kept: launches of a few shapes take turns.
const PROOFS: usize = 8;

/// What a kernel was made of.
#[derive(Debug)]
struct Text {
    inputs: Vec<String>,
    outputs: Vec<String>,
    source: String,
    header: String,
    ensure_row_contiguous: bool,
    atomic_outputs: bool,
}

/// Most specialisations of one kernel that are kept; a full list starts anew.
const MOST_KNOWN: usize = 256;

impl CustomKernel {
    /// A kernel of a name, named inputs and outputs, and a body.
    pub fn new(name: &str, inputs: &[&str], outputs: &[&str], source: &str) -> Result<Self> {
        CustomKernel::with_options(name, inputs, outputs, source, "", true, false)
    }

    /// The same with a header (functions, structs, templates before the body), with strided inputs as
    /// they are unless `ensure_row_contiguous`, and with atomic outputs.
    pub fn with_options(
        name: &str,
        inputs: &[&str],
        outputs: &[&str],
        source: &str,
        header: &str,
        ensure_row_contiguous: bool,
        atomic_outputs: bool,
    ) -> Result<Self> {
        let definition =
            Definition::new(name, inputs, outputs, source, header, ensure_row_contiguous, atomic_outputs)
                .map_err(|error| Error::Kernel(error.to_string()))?;
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_string()).collect();
        let text = Text {
            inputs: owned(inputs),
            outputs: owned(outputs),
            source: source.into(),
            header: header.into(),
            ensure_row_contiguous,
            atomic_outputs,
        };
        Ok(CustomKernel {
            definition: Arc::new(definition),
            text: Arc::new(text),
            known: Arc::default(),
            unchecked: false,
        })
    }

    /// The same kernel without checks: an access outside of its memory is undefined on a GPU, as in any kernel written
    /// for it, and may corrupt other arrays. On the CPU it still reads zero or writes nothing, but is not reported.
    ///
    /// By default a write outside of a buffer, threadgroup array or local array is dropped, and the outputs of the launch
    /// fail with an error that names the kernel, the line and the memory.
    pub fn unchecked(mut self) -> Self {
        self.unchecked = true;
        self
    }

    /// The kernel for a call: compiled now, or before.
    fn specialise(&self, call: &CallInfo) -> Result<Arc<Compiled>> {
        let lock = || self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let failed = |error: CustomKernelError| Error::Kernel(error.to_string());
        self.definition.check(call).map_err(failed)?;
        let key = self.definition.key(call);
        let known = lock().get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let fresh = self.definition.specialise(call).map_err(failed)?;
        let text: String = key.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        let source = PipelineSource::new(self.definition.name(), "hesper-custom", text.as_str())
            .with_payload(Arc::new(fresh.kernel.clone()));
        let fresh = Compiled { specialised: fresh, source, proofs: Mutex::default() };
        let (fresh, mut known) = (Arc::new(fresh), lock());
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, fresh.clone());
        Ok(fresh)
    }

    /// Begins a call.
    pub fn call(&self, inputs: &[Array]) -> KernelCall<'_> {
        let checked = std::env::var_os("HESPER_KERNEL_CHECK").is_some_and(|value| value != "0");
        KernelCall {
            kernel: self,
            inputs: inputs.into(),
            template: Vec::new(),
            grid: [1; 3],
            threadgroup: [1; 3],
            outputs: Vec::new(),
            init_value: None,
            checked,
        }
    }
}

/// A call of a [`CustomKernel`] under construction.
#[must_use = "a call takes effect with `run`"]
pub struct KernelCall<'a> {
    kernel: &'a CustomKernel,
    inputs: SmallVec<[Array; 3]>,
    template: Vec<(String, TemplateValue)>,
    grid: [u64; 3],
    threadgroup: [u64; 3],
    outputs: Vec<(Shape, Dtype)>,
    init_value: Option<f64>,
    checked: bool,
}

impl KernelCall<'_> {
    /// How many threads run, in each dimension. The last threadgroups may be partial.
    pub fn grid(mut self, grid: [u64; 3]) -> Self {
        self.grid = grid;
        self
    }

    /// How many threads make a threadgroup, in each dimension.
    pub fn threadgroup(mut self, threadgroup: [u64; 3]) -> Self {
        self.threadgroup = threadgroup;
        self
    }

    /// A template argument that is a type.
    pub fn template_dtype(mut self, name: &str, dtype: Dtype) -> Self {
        self.template.push((name.into(), TemplateValue::Dtype(kernel_dtype(dtype))));
        self
    }

    /// A template argument that is an integer.
    pub fn template_int(mut self, name: &str, value: i32) -> Self {
        self.template.push((name.into(), TemplateValue::Int(value)));
        self
    }

    /// A template argument that is a truth value.
    pub fn template_bool(mut self, name: &str, value: bool) -> Self {
        self.template.push((name.into(), TemplateValue::Bool(value)));
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

    /// Whether the call runs under the sanitizer: accesses outside of a buffer, races, reads of
    /// uninitialised memory, divergent barriers and more are errors that name the line. Default: as
    /// `HESPER_KERNEL_CHECK` says.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// The whole text of the kernel that this call asks for, its signature included.
    pub fn text(&self) -> String {
        self.kernel.definition.generated_text(&self.info())
    }

    fn info(&self) -> CallInfo {
        CallInfo {
            inputs: self
                .inputs
                .iter()
                .map(|input| InputInfo {
                    dtype: kernel_dtype(input.dtype()),
                    ndim: input.ndim(),
                    size: input.size() as u64,
                })
                .collect(),
            template: self.template.clone(),
            output_dtypes: self.outputs.iter().map(|(_, dtype)| kernel_dtype(*dtype)).collect(),
        }
    }

    /// Ends the call; gives the outputs. The text is compiled now, and its errors are told now.
    pub fn run(self) -> Result<Vec<Array>> {
        let call = self.info();
        let compiled = self.kernel.specialise(&call)?;
        let launch = Launch::new(self.grid, self.threadgroup).map_err(|error| {
            Error::Kernel(format!("custom kernel `{}`: {error}", self.kernel.definition.name()))
        })?;
        if self.grid.contains(&0) {
            let name = self.kernel.definition.name();
            return Err(Error::Kernel(format!(
                "custom kernel `{name}`: a grid of {:?} has no threads",
                self.grid
            )));
        }
        let parts = Parts::new(self.outputs)?;
        let op = Call {
            compiled,
            unchecked: self.kernel.unchecked,
            text: self.kernel.text.clone(),
            template: self.template,
            name: self.kernel.definition.name().into(),
            launch,
            parts: parts.clone(),
            init_value: self.init_value,
            checked: self.checked,
        };
        parts.arrays(OpRef::new(op), self.inputs)
    }
}

/// A specialised kernel and its launch.
struct Call {
    compiled: Arc<Compiled>,
    unchecked: bool,
    text: Arc<Text>,
    template: Vec<(String, TemplateValue)>,
    name: Arc<str>,
    launch: Launch,
    parts: Parts,
    init_value: Option<f64>,
    checked: bool,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "custom kernel {}", self.name)
    }
}

/// What is bound to one parameter.
enum Bound {
    Read(Buffer, std::ops::Range<usize>),
    /// The same, with its contents.
    Known(Buffer, Vec<u8>),
    Output(std::ops::Range<usize>),
    Value([u8; 8], usize),
}

impl Bound {
    /// What the analysis may rely on. Memory of a device begins at multiples of 256 bytes.
    fn facts(&self) -> ArgFacts<'_> {
        let range = match self {
            Bound::Read(_, range) | Bound::Output(range) => range.clone(),
            Bound::Known(_, bytes) => {
                return ArgFacts { len: bytes.len() as u64, align: 256, contents: Some(bytes) };
            }
            Bound::Value(bytes, len) => {
                return ArgFacts { len: *len as u64, align: 8, contents: bytes.get(..*len) };
            }
        };
        let align = 1 << range.start.trailing_zeros().min(8);
        ArgFacts { len: range.len() as u64, align, contents: None }
    }
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").field("kernel", &self.specialised.kernel.name).finish_non_exhaustive()
    }
}

impl Compiled {
    /// What holds in a launch.
    fn prove(&self, launch: &Launch, bound: &[Bound]) -> Arc<Proof> {
        let facts: Vec<ArgFacts<'_>> = bound.iter().map(Bound::facts).collect();
        let mut key: Vec<u64> = launch.grid.iter().chain(&launch.threadgroup).copied().collect();
        for fact in &facts {
            key.extend([fact.len, fact.align]);
            for bytes in fact.contents.unwrap_or_default().chunks(8) {
                key.push(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
            }
        }
        let lock = || self.proofs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, proof)) = lock().iter().find(|(known, _)| *known == key) {
            return proof.clone();
        }
        let proof = Arc::new(prove(&self.specialised.kernel, launch, &facts));
        let mut proofs = lock();
        if proofs.len() >= PROOFS {
            proofs.pop_front();
        }
        proofs.push_back((key, proof.clone()));
        proof
    }
}

impl Call {
    fn bound(&self, l: &Lowering<'_>) -> Result<Vec<Bound>> {
        let specialised = &self.compiled.specialised;
        let inputs = (0..specialised.contiguous.len())
            .map(|at| {
                let (data, shape) = (l.input(at), l.input_shape(at));
                // A kernel's pointer is at the first element and reaches forwards only.
                let backwards = data.strides.iter().any(|stride| *stride < 0);
                let copy = (specialised.contiguous[at] || backwards) && !is_row_major(shape, &data.strides);
                if copy { l.row_major(at) } else { Ok(data.clone()) }
            })
            .collect::<Result<Vec<Data>>>()?;
        let runtime = l.stream().runtime();
        let small =
            |bytes: &[u8]| -> Result<Bound> { Ok(Bound::Known(runtime.upload(bytes)?, bytes.to_vec())) };
        specialised
            .bindings
            .iter()
            .zip(&specialised.kernel.params)
            .map(|(binding, param)| match *binding {
                Binding::Input(at) => {
                    let (data, size) = (&inputs[at], l.input_dtype(at).size());
                    let start = data.offset as usize * size;
                    let reach: usize = l
                        .input_shape(at)
                        .iter()
                        .zip(&data.strides)
                        .map(|(length, stride)| length.saturating_sub(1) * stride.unsigned_abs())
                        .sum();
                    let end = if l.input_shape(at).contains(&0) { start } else { start + (reach + 1) * size };
                    Ok(Bound::Read(data.buffer.clone(), start..end))
                }
                Binding::Output(at) => Ok(Bound::Output(self.parts.range(at))),
                Binding::Ndim(at) if matches!(param.kind, ParamKind::Value(_)) => {
                    let mut bytes = [0; 8];
                    bytes[..4].copy_from_slice(&(l.input_shape(at).len() as i32).to_ne_bytes());
                    Ok(Bound::Value(bytes, 4))
                }
                Binding::Ndim(at) => small(&(l.input_shape(at).len() as i32).to_ne_bytes()),
                Binding::Shape(at) => {
                    let shape: Vec<i32> = l.input_shape(at).iter().map(|axis| *axis as i32).collect();
                    small(bytemuck::cast_slice(&shape))
                }
                Binding::Strides(at) => {
                    let strides: Vec<i64> = inputs[at].strides.iter().map(|stride| *stride as i64).collect();
                    small(bytemuck::cast_slice(&strides))
                }
            })
            .collect()
    }

    /// Fills the outputs with a number, converted to each one's type.
    fn fill(&self, l: &Lowering<'_>, output: &Buffer, value: f64) -> Result<()> {
        for (at, (_, dtype)) in self.parts.outputs.iter().enumerate() {
            let element = match &*Array::scalar(value, *dtype)?.state() {
                crate::array::State::Known(element) => element.0,
                _ => [0; 8],
            };
            let size = dtype.size();
            if !l.on_host() {
                crate::gpu::copy::fill(l.stream(), output, self.parts.range(at), element, size)?;
                continue;
            }
            l.stream().encode("init_value").write_range(output, self.parts.range(at)).run(move |native| {
                let [out] = native.take()?;
                out.bytes_mut()?
                    .chunks_exact_mut(size)
                    .for_each(|chunk| chunk.copy_from_slice(&element[..size]));
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Op for Call {
    fn name(&self) -> &'static str {
        "custom kernel"
    }

    fn is_opaque(&self) -> bool {
        true
    }

    fn export(&self) -> Export {
        let text = &self.text;
        let template = self.template.iter().map(|(name, value)| match value {
            TemplateValue::Dtype(own) => {
                let dtype = Dtype::ALL.into_iter().find(|dtype| kernel_dtype(*dtype) == *own);
                format!("{name}=dtype:{}", dtype.unwrap_or(Dtype::Float32))
            }
            TemplateValue::Int(value) => format!("{name}=int:{value}"),
            TemplateValue::Bool(value) => format!("{name}=bool:{value}"),
        });
        Record::new("custom_kernel")
            .with("name", &*self.name)
            .with("inputs", text.inputs.clone())
            .with("outputs", text.outputs.clone())
            .with("source", text.source.as_str())
            .with("header", text.header.as_str())
            .with("ensure_row_contiguous", text.ensure_row_contiguous)
            .with("atomic_outputs", text.atomic_outputs)
            .with("template", template.collect::<Vec<String>>())
            .with("grid", &self.launch.grid[..])
            .with("threadgroup", &self.launch.threadgroup[..])
            .maybe("init_value", self.init_value)
            .maybe("unchecked", self.unchecked.then_some(1.0))
            .into()
    }

    fn identity(&self) -> Option<String> {
        None
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.parts.outputs.clone())
    }

    fn vjp(&self, _: &Backward<'_>) -> Result<Cotangents> {
        let what = format!("`{}` has no derivative: give it one with transform::CustomFunction", self.name);
        Err(Error::value("custom kernel", what))
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let bound = self.bound(l)?;
        let output = self.parts.memory(l)?;
        let initialised = self.init_value.is_some();
        if let Some(value) = self.init_value {
            self.fill(l, &output, value)?;
        }
        let proof = self.compiled.prove(&self.launch, &bound);
        let outputs = bound.iter().zip(&proof.covered).filter(|(one, _)| matches!(one, Bound::Output(_)));
        let covers = !self.checked && outputs.into_iter().all(|(_, covered)| *covered);
        let stream = l.stream();
        let mut encoder =
            if covers { stream.command(self.name.clone()) } else { stream.encode(self.name.clone()) };
        let mut constants: SmallVec<[u8; 64]> = SmallVec::new();
        for one in &bound {
            encoder = match one {
                Bound::Read(buffer, range) => encoder.read_range(buffer, range.clone()),
                Bound::Known(buffer, bytes) => encoder.read_range(buffer, 0..bytes.len()),
                Bound::Output(range) if initialised => encoder.read_write_range(&output, range.clone()),
                Bound::Output(range) => encoder.write_range(&output, range.clone()),
                Bound::Value(bytes, _) => {
                    constants.extend_from_slice(bytes);
                    encoder
                }
            };
        }
        if self.checked {
            let (compiled, launch) = (self.compiled.clone(), self.launch);
            encoder.run(move |native| {
                run_checked(native, &compiled.specialised, &launch, &constants, initialised)
            })?;
        } else {
            let source = self.compiled.source.clone();
            let source = match l.on_host() {
                // The host checks in any case; here it is asked not to report.
                true if self.unchecked => source.specialised("unchecked"),
                false if !self.unchecked && !proof.in_range => {
                    source.specialised(format!("bounds\nproven {}", proof.mask()).as_str())
                }
                _ => source,
            };
            let pipeline = l.stream().runtime().pipeline(&source)?;
            encoder.constants(&constants).dispatch(&pipeline, self.launch.grid, self.launch.threadgroup)?;
        }
        Ok(Data::contiguous(output, l.shape()))
    }

    /// The same text on a GPU; the sanitizer is the host's.
    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if self.checked {
            return Ok(None);
        }
        l.bring()?;
        self.lower(l).map(Some)
    }
}

/// Runs a kernel on the reference interpreter, which checks every access.
fn run_checked(
    native: &mut Native<'_, '_>,
    specialised: &Specialised,
    launch: &Launch,
    constants: &[u8],
    initialised: bool,
) -> NativeResult {
    let mut views = native.views().iter_mut();
    let mut values = constants.chunks_exact(8);
    let mut arguments = Vec::new();
    for param in &specialised.kernel.params {
        arguments.push(match &param.kind {
            ParamKind::Value(ty) => {
                let value = values.next().ok_or("a constant is missing")?;
                Arg::read(&value[..(ty.size() as usize).min(8)])
            }
            ParamKind::Buffer { .. } => {
                let view = views.next().ok_or("a buffer is missing")?;
                if view.access().writes() {
                    let argument = Arg::write(view.bytes_mut()?);
                    if initialised { argument } else { argument.uninitialised() }
                } else {
                    Arg::read(view.bytes()?)
                }
            }
        });
    }
    let mut bindings = Bindings::new(arguments).map_err(|error| error.to_string())?;
    let options = interp::Options { checked: true, ..Default::default() };
    let report = interp::run(&specialised.kernel, launch, &mut bindings, &options)
        .map_err(|error| error.to_string())?;
    match report.findings.first() {
        None => Ok(()),
        Some(first) => {
            let others = report.findings.len() as u64 - 1 + report.suppressed;
            let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
            Err(format!("{first}{more}").into())
        }
    }
}

fn kernel_dtype(dtype: Dtype) -> KernelDtype {
    dtype.scalar().map_or(KernelDtype::Complex64, KernelDtype::Scalar)
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Vec<Array>> {
    // What a grid and outputs mean to a kernel only its author knows.
    replay.unmoved()?;
    let kernel = CustomKernel::with_options(
        replay.text("name")?,
        &replay.texts("inputs")?,
        &replay.texts("outputs")?,
        replay.text("source")?,
        replay.text("header")?,
        replay.flag("ensure_row_contiguous")?,
        replay.flag("atomic_outputs")?,
    )?;
    let kernel = if replay.maybe_float("unchecked").is_some() { kernel.unchecked() } else { kernel };
    let mut call = kernel.call(replay.inputs).grid(replay.words("grid")?);
    call = call.threadgroup(replay.words("threadgroup")?);
    for argument in replay.texts("template")? {
        let parts = argument.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
        let dtype = |text: &str| Dtype::ALL.into_iter().find(|dtype| dtype.name() == text);
        call = match parts {
            Some((name, ("int", value))) if value.parse::<i32>().is_ok() => {
                call.template_int(name, value.parse().unwrap_or(0))
            }
            Some((name, ("bool", value @ ("true" | "false")))) => call.template_bool(name, value == "true"),
            Some((name, ("dtype", value))) if dtype(value).is_some() => {
                call.template_dtype(name, dtype(value).unwrap_or(Dtype::Float32))
            }
            _ => return Err(replay.wrong(format!("no valid template argument {argument:?}"))),
        };
    }
    for (shape, dtype) in replay.outputs {
        call = call.output(shape, *dtype);
    }
    match replay.maybe_float("init_value") {
        Some(value) => call.init_value(value).run(),
        None => call.run(),
    }
}
