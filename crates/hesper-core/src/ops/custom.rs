//! Custom kernels: text in the kernel language, supplied at run time.
//!
//! A [`CustomKernel`] has the meaning of MLX's `fast.metal_kernel`: a body, named inputs and outputs, and at
//! each call a grid, a threadgroup, template arguments and output shapes. The same text runs on every device.
//! A kernel is identified by its content: calls that share a name and differ in text, types or template
//! arguments are different kernels.
//!
//! The text goes through the kernel language, which checks its accesses; [`KernelMode`] can turn that off.
//!
//! This file has the API and the op; [`launch`] binds arguments and dispatches.

mod launch;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};

use hesper_kernel::bounds::Proof;
use hesper_kernel::custom::{
    Binding, CallInfo, ContentKey, CustomKernel as Definition, CustomKernelError, InputInfo, KernelDtype,
    TemplateValue, WrittenKernel,
};
use hesper_kernel::ir::Kernel;
use hesper_kernel::launch::Launch;
use hesper_runtime::PipelineSource;
use smallvec::SmallVec;

use super::multi::Parts;
use super::{Op, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::{Address, BitEq};
use crate::ops::readers::reader;
use crate::registry::Backend;
use crate::shape::Shape;

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
    /// The cache of specialisations.
    known: Arc<Mutex<HashMap<ContentKey, Arc<Compiled>>>>,
    mode: KernelMode,
}

/// How the text of a kernel reaches a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KernelMode {
    /// Through the kernel language, with checks of the accesses.
    #[default]
    Checked,
    /// Through the kernel language, without checks.
    Unchecked,
    /// As it is written, to a device whose own compiler takes it; elsewhere as `Unchecked`.
    AsWritten,
}

/// A kernel for the calls of one signature, and proofs about its launches.
pub struct Compiled {
    definition: Arc<Definition>,
    call: CallInfo,
    bindings: Vec<Binding>,
    /// Compiled when it is first needed: a text as it is written may be one that only a device's compiler
    /// takes.
    lowered: OnceLock<Lowered>,
    written: OnceLock<WrittenKernel>,
    /// The text as it is written, for the backend of this name.
    written_source: OnceLock<(&'static str, PipelineSource)>,
    proofs: Mutex<VecDeque<(Vec<u64>, Arc<Proof>)>>,
}

/// A kernel of the kernel language.
struct Lowered {
    kernel: Arc<Kernel>,
    /// Without specialisation; the kernel is its payload.
    source: PipelineSource,
}

/// The arguments that a kernel was defined with.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Text {
    inputs: Vec<String>,
    outputs: Vec<String>,
    source: String,
    header: String,
    ensure_row_contiguous: bool,
    atomic_outputs: bool,
}

/// Most cached specialisations of a kernel; a full cache is cleared.
const MAX_SPECIALISATIONS: usize = 256;

impl CustomKernel {
    /// A kernel of a name, named inputs and outputs, and a body.
    pub fn new(name: &str, inputs: &[&str], outputs: &[&str], source: &str) -> Result<Self> {
        CustomKernel::with_options(name, inputs, outputs, source, "", true, false)
    }

    /// The same with a header (functions, structs, templates before the body), with strided inputs as
    /// they are unless `ensure_row_contiguous`, and with atomic outputs.
    ///
    /// ```
    /// use hesper::{CustomKernel, Dtype, array};
    /// let header = "inline float twice(float x) { return 2 * x; }";
    /// let body = "uint i = thread_position_in_grid.x; out[i] = twice(x[i]);";
    /// let kernel = CustomKernel::with_options("twice", &["x"], &["out"], body, header, true, false)?;
    /// let call = kernel.call(&[array![1.0, 2.0]]).grid([2, 1, 1]).output(&[2], Dtype::Float32);
    /// assert_eq!(call.run()?[0].to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
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
            mode: KernelMode::Checked,
        })
    }

    /// The same kernel without checks: an access outside of its memory is undefined on a GPU, as in any
    /// kernel written for it, and may corrupt other arrays. On the CPU it still reads zero or writes nothing,
    /// but is not reported.
    ///
    /// By default a write outside of a buffer, threadgroup array or local array is dropped, and the outputs
    /// of the launch fail with an error that names the kernel, the line and the memory.
    ///
    /// ```
    /// use hesper::{CustomKernel, Dtype, placement};
    /// let body = "out[thread_position_in_grid.x + 1] = 7;"; // the last thread writes past the end
    /// let kernel = CustomKernel::new("past", &[], &["out"], body)?;
    /// let call = |kernel: &CustomKernel| kernel.call(&[]).grid([2, 1, 1]).output(&[2], Dtype::Int32).run();
    /// assert!(call(&kernel)?[0].eval().is_err());
    /// # if placement::default_device() == placement::Device::Cpu {
    /// assert!(call(&kernel.unchecked())?[0].eval().is_ok()); // on the CPU; undefined on a GPU
    /// # }
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn unchecked(mut self) -> Self {
        self.mode = KernelMode::Unchecked;
        self
    }

    /// The same kernel, handed to the device's own compiler as it is written, where that compiler takes this
    /// dialect (Metal's): header and body, with a signature around them. The text may then use whatever the
    /// compiler knows, and its numerics are the compiler's. Nothing is checked: an access outside of its
    /// memory is undefined and may corrupt other arrays. Outputs still start as zeros, or as `init_value`.
    ///
    /// An error in the text is reported when an output is evaluated, with the compiler's message and the line
    /// of the text. Other devices, and the sanitizer, run the text as that of an
    /// [`unchecked`](Self::unchecked) kernel.
    ///
    /// ```
    /// use hesper::{Array, CustomKernel, Dtype};
    /// let source = "out[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];";
    /// let kernel = CustomKernel::new("twice", &["x"], &["out"], source)?.as_written();
    /// let x = Array::from_slice(&[1.0f32, 2.0, 3.0]);
    /// let call = kernel.call(&[x]).grid([3, 1, 1]).threadgroup([3, 1, 1]).output(&[3], Dtype::Float32);
    /// assert!(call.text().contains("[[kernel]] void custom_kernel_twice("));
    /// assert_eq!(call.run()?[0].to_vec::<f32>()?, [2.0, 4.0, 6.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn as_written(mut self) -> Self {
        self.mode = KernelMode::AsWritten;
        self
    }

    /// The kernel for a call, which is compiled unless a device's compiler may take it as it is written.
    fn specialise(&self, call: CallInfo) -> Result<Arc<Compiled>> {
        self.definition.check(&call).map_err(failed)?;
        let key = self.definition.key(&call);
        let compiled = {
            let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if known.len() >= MAX_SPECIALISATIONS && !known.contains_key(&key) {
                known.clear();
            }
            let fresh = || Arc::new(Compiled::new(self.definition.clone(), call));
            known.entry(key).or_insert_with(fresh).clone()
        };
        if self.mode != KernelMode::AsWritten {
            compiled.lowered()?;
        }
        Ok(compiled)
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
///
/// ```
/// use hesper::{CustomKernel, Dtype, array};
/// let source = "uint i = thread_position_in_grid.x; if (i % STRIDE == 0 || ALL) out[i] = T(x[i]);";
/// let kernel = CustomKernel::new("pick", &["x"], &["out"], source)?;
/// let call = kernel
///     .call(&[array![1.0, 2.0, 3.0, 4.0]])
///     .template_dtype("T", Dtype::Int32)
///     .template_int("STRIDE", 2)
///     .template_bool("ALL", false)
///     .grid([4, 1, 1])
///     .threadgroup([4, 1, 1])
///     .init_value(-1.0)
///     .output(&[4], Dtype::Int32)
///     .checked(true);
/// assert!(call.text().contains("pick"));
/// assert_eq!(call.run()?[0].to_vec::<i32>()?, [1, -1, 3, -1]);
/// # Ok::<(), hesper::Error>(())
/// ```
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

    /// The text of the kernel that this call asks for: header, signature and body.
    pub fn text(&self) -> String {
        self.kernel.definition.written(&self.info()).text
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

    /// Ends the call and returns the outputs. The text is compiled, and its errors reported, by this call.
    pub fn run(self) -> Result<Vec<Array>> {
        let outputs = self.outputs.iter().map(|(_, dtype)| *dtype);
        if self.inputs.iter().map(Array::dtype).chain(outputs).any(|dtype| dtype == Dtype::Complex128) {
            let what = "has no elements of this type; view them as pairs of float64".into();
            return Err(Error::Type { op: "custom kernel".into(), what, dtype: Dtype::Complex128 });
        }
        let call = self.info();
        let compiled = self.kernel.specialise(call)?;
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
        let op = CustomLaunch {
            compiled: Address(compiled),
            mode: self.kernel.mode,
            text: self.kernel.text.clone(),
            template: self.template,
            name: self.kernel.definition.name().into(),
            launch,
            parts: parts.clone(),
            init_value: self.init_value.map(BitEq),
            checked: self.checked,
        };
        parts.arrays(OpRef::new(op), self.inputs)
    }
}

/// A launch of a specialised kernel.
#[derive(PartialEq, Eq, Hash)]
pub struct CustomLaunch {
    /// The specialised kernel.
    pub compiled: Address<Compiled>,
    /// How the text reaches the device.
    pub mode: KernelMode,
    /// The arguments that the kernel was defined with.
    pub text: Arc<Text>,
    /// The template arguments.
    pub template: Vec<(String, TemplateValue)>,
    /// The name of the kernel.
    pub name: Arc<str>,
    /// The grid and the threadgroup.
    pub launch: Launch,
    /// The outputs.
    pub parts: Parts,
    /// The value of the outputs before the kernel runs.
    pub init_value: Option<BitEq<f64>>,
    /// Whether it runs under the sanitizer.
    pub checked: bool,
}

impl std::fmt::Debug for CustomLaunch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "custom kernel {}", self.name)
    }
}

fn failed(error: CustomKernelError) -> Error {
    Error::Kernel(error.to_string())
}

impl Compiled {
    fn new(definition: Arc<Definition>, call: CallInfo) -> Self {
        Compiled {
            bindings: definition.bindings(&call),
            definition,
            call,
            lowered: OnceLock::new(),
            written: OnceLock::new(),
            written_source: OnceLock::new(),
            proofs: Mutex::default(),
        }
    }

    /// The kernel of the kernel language. A text that it does not take is an error each time.
    pub fn kernel(&self) -> Result<&Arc<Kernel>> {
        Ok(&self.lowered()?.kernel)
    }

    fn lowered(&self) -> Result<&Lowered> {
        if let Some(lowered) = self.lowered.get() {
            return Ok(lowered);
        }
        let specialised = self.definition.specialise(&self.call).map_err(failed)?;
        let text: String = specialised.key.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        let kernel = Arc::new(specialised.kernel);
        let source = PipelineSource::new(self.definition.name(), "hesper-custom", text.as_str())
            .with_payload(kernel.clone());
        Ok(self.lowered.get_or_init(|| Lowered { kernel, source }))
    }

    /// The source of the text as it is written, if the backend's compiler takes it.
    fn written_source(&self, name: &Arc<str>, backend: &dyn Backend) -> Option<PipelineSource> {
        match self.written_source.get() {
            Some((known, source)) if *known == backend.name() => Some(source.clone()),
            known => {
                let source = backend.written_source(name, self.written())?;
                if known.is_none() {
                    let _ = self.written_source.set((backend.name(), source.clone()));
                }
                Some(source)
            }
        }
    }

    /// The kernel as it is written.
    fn written(&self) -> &WrittenKernel {
        self.written.get_or_init(|| self.definition.written(&self.call))
    }
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").field("kernel", &self.definition.name()).finish_non_exhaustive()
    }
}

impl Op for CustomLaunch {
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
            .maybe("init_value", self.init_value.map(|value| value.0))
            .maybe("unchecked", (self.mode == KernelMode::Unchecked).then_some(1.0))
            .maybe("as_written", (self.mode == KernelMode::AsWritten).then_some(1.0))
            .into()
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.parts.outputs.clone())
    }

    fn vjp(&self, _: &Backward<'_>) -> Result<Cotangents> {
        let what = format!(
            "cannot differentiate `{}`: a kernel has no derivative; call it in a custom function that has one",
            self.name
        );
        Err(Error::value("custom kernel", what))
    }
}

fn kernel_dtype(dtype: Dtype) -> KernelDtype {
    dtype.scalar().map_or(KernelDtype::Complex64, KernelDtype::Scalar)
}

reader!("custom_kernel", Several(read));
fn read(replay: &Replay<'_>) -> Result<Vec<Array>> {
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
    let has = |mode: &str| replay.maybe_float(mode).is_some();
    let kernel = match (has("unchecked"), has("as_written")) {
        (_, true) => kernel.as_written(),
        (true, false) => kernel.unchecked(),
        (false, false) => kernel,
    };
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
