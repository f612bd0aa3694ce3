//! Custom kernels: a body of text with named inputs and outputs, specialised at each call.
//!
//! A [`CustomKernel`] has the meaning of `mx.fast.metal_kernel`: the signature is generated from the names
//! and from the arguments of a call (dtypes, scalars, small arrays, template arguments). The signature is
//! built as parameters, not as text, so that every diagnostic points into the user's own body or header.
//!
//! A specialisation is identified by its whole content ([`ContentKey`]), never by its name alone.
//!
//! [`CustomKernel::written`] bypasses this compiler: it gives the whole text of a call for Metal's compiler.

mod written;

use crate::front::attributes::ATTRIBUTES;
use crate::front::lower::{Elem, ParamSpec};
use crate::front::{BodySource, CompileError, compile_body};
use crate::ir::{Kernel, Scalar, Space};
use std::collections::HashSet;
use std::sync::Arc;
pub use written::WrittenKernel;

/// Inputs with fewer elements than this are in the constant address space.
pub const CONSTANT_INPUT_LIMIT: u64 = 8;

/// Element types of arrays that kernels take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelDtype {
    /// A scalar of the language.
    Scalar(Scalar),
    /// `complex64_t`: two floats.
    Complex64,
}

impl KernelDtype {
    /// The name in the language.
    pub fn name(self) -> &'static str {
        match self {
            KernelDtype::Complex64 => "complex64_t",
            KernelDtype::Scalar(s) => match s {
                Scalar::Bool => "bool",
                Scalar::I8 => "int8_t",
                Scalar::I16 => "int16_t",
                Scalar::I32 => "int32_t",
                Scalar::I64 => "int64_t",
                Scalar::U8 => "uint8_t",
                Scalar::U16 => "uint16_t",
                Scalar::U32 => "uint32_t",
                Scalar::U64 => "uint64_t",
                Scalar::F16 => "float16_t",
                Scalar::BF16 => "bfloat16_t",
                Scalar::F32 => "float",
                Scalar::F64 => "double",
            },
        }
    }

    fn elem(self) -> Elem {
        match self {
            KernelDtype::Scalar(s) => Elem::Scalar(s),
            KernelDtype::Complex64 => Elem::Complex,
        }
    }
}

/// A template argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TemplateValue {
    /// `typename`
    Dtype(KernelDtype),
    /// `int`
    Int(i32),
    /// `bool`
    Bool(bool),
}

/// The properties of one input that affect the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputInfo {
    /// Its dtype.
    pub dtype: KernelDtype,
    /// Number of dimensions; 0 is a scalar.
    pub ndim: usize,
    /// Number of elements.
    pub size: u64,
}

impl InputInfo {
    /// Whether the input is in the constant address space.
    pub fn is_constant(&self) -> bool {
        self.size < CONSTANT_INPUT_LIMIT
    }
}

/// The properties of a call that affect the code.
#[derive(Clone, Debug, Default)]
pub struct CallInfo {
    /// One for each input name.
    pub inputs: Vec<InputInfo>,
    /// Template arguments, in order.
    pub template: Vec<(String, TemplateValue)>,
    /// One for each output name.
    pub output_dtypes: Vec<KernelDtype>,
}

/// What is bound to a parameter of the compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The data of input `i`.
    Input(usize),
    /// The shape of input `i`: `int32` per dimension.
    Shape(usize),
    /// The strides of input `i` in elements: `int64` per dimension.
    Strides(usize),
    /// The number of dimensions of input `i`, an `int32` by value.
    Ndim(usize),
    /// The data of output `i`.
    Output(usize),
}

/// Why a custom kernel or a call of it is refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CustomKernelError {
    /// No outputs.
    #[error("custom kernel `{0}` needs at least one output")]
    NoOutputs(String),
    /// A name that cannot be a parameter.
    #[error("custom kernel `{kernel}`: `{name}` cannot name an input, output or template argument: {why}")]
    BadName {
        /// The kernel.
        kernel: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A wrong number of inputs, outputs or dtypes.
    #[error("custom kernel `{kernel}` takes {expected} {what}, {found} given")]
    Count {
        /// The kernel.
        kernel: String,
        /// What was counted.
        what: &'static str,
        /// How many it takes.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A dtype the language does not have.
    #[error("custom kernel `{kernel}`: the kernel language has no `{dtype}` (for `{name}`)")]
    Dtype {
        /// The kernel.
        kernel: String,
        /// The input, output or template argument.
        name: String,
        /// The dtype.
        dtype: &'static str,
    },
    /// The text does not compile.
    #[error("custom kernel `{kernel}` does not compile:\n{error}")]
    Compile {
        /// The kernel.
        kernel: String,
        /// The errors, with their locations in the user's text.
        error: Box<CompileError>,
    },
}

/// The cache key of a specialisation: everything that affects its code, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentKey(Arc<[u8]>);

impl ContentKey {
    /// The canonical bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Default)]
struct KeyWriter(Vec<u8>);

impl KeyWriter {
    fn number(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    /// Length first, so that no two lists of texts give the same bytes.
    fn text(&mut self, s: &str) {
        self.number(s.len() as u64);
        self.0.extend_from_slice(s.as_bytes());
    }

    fn dtype(&mut self, d: KernelDtype) {
        self.text(d.name());
    }
}

/// Which metadata of an input the body names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NamedMetadata {
    shape: bool,
    strides: bool,
    ndim: bool,
}

/// A custom kernel, not yet specialised.
#[derive(Clone, Debug)]
pub struct CustomKernel {
    name: String,
    input_names: Vec<String>,
    output_names: Vec<String>,
    source: String,
    header: String,
    ensure_row_contiguous: bool,
    atomic_outputs: bool,
    named: Vec<NamedMetadata>,
    attributes: Vec<usize>,
    grid_origin: bool,
}

/// A kernel specialised for a call.
#[derive(Clone, Debug)]
pub struct Specialised {
    /// The IR.
    pub kernel: Kernel,
    /// What each parameter of the kernel is bound to, in order.
    pub bindings: Vec<Binding>,
    /// Its cache key.
    pub key: ContentKey,
    /// Warnings of the compiler as text; empty if there are none.
    pub warnings: String,
}

impl CustomKernel {
    /// A kernel from its names and texts.
    ///
    /// ```
    /// use hesper_kernel::custom::*;
    /// use hesper_kernel::ir::Scalar;
    /// let body = "uint i = thread_position_in_grid.x; out[i] = metal::exp(T(inp[i]));";
    /// let kernel = CustomKernel::new("myexp", &["inp"], &["out"], body, "", true, false).unwrap();
    /// let f32 = KernelDtype::Scalar(Scalar::F32);
    /// let call = CallInfo {
    ///     inputs: vec![InputInfo { dtype: f32, ndim: 1, size: 100 }],
    ///     template: vec![("T".into(), TemplateValue::Dtype(f32))],
    ///     output_dtypes: vec![f32],
    /// };
    /// let special = kernel.specialise(&call).unwrap();
    /// assert_eq!(special.bindings, [Binding::Input(0), Binding::Output(0)]);
    /// ```
    pub fn new(
        name: &str,
        input_names: &[&str],
        output_names: &[&str],
        source: &str,
        header: &str,
        ensure_row_contiguous: bool,
        atomic_outputs: bool,
    ) -> Result<Self, CustomKernelError> {
        if output_names.is_empty() {
            return Err(CustomKernelError::NoOutputs(name.into()));
        }
        let mut seen = HashSet::new();
        for n in input_names.iter().chain(output_names) {
            check_name(name, n)?;
            if !seen.insert(*n) {
                let why = "it is used twice";
                return Err(CustomKernelError::BadName { kernel: name.into(), name: (*n).into(), why });
            }
        }
        let words = identifiers(source);
        let named = input_names
            .iter()
            .map(|n| NamedMetadata {
                shape: words.contains(format!("{n}_shape").as_str()),
                strides: words.contains(format!("{n}_strides").as_str()),
                ndim: words.contains(format!("{n}_ndim").as_str()),
            })
            .collect();
        let attributes = ATTRIBUTES
            .iter()
            .enumerate()
            .filter(|(_, (n, _, _))| words.contains(n))
            .map(|(i, _)| i)
            .collect();
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_string()).collect();
        Ok(CustomKernel {
            name: name.into(),
            input_names: owned(input_names),
            output_names: owned(output_names),
            grid_origin: words.contains("grid_origin"),
            source: source.into(),
            header: header.into(),
            ensure_row_contiguous,
            atomic_outputs,
            named,
            attributes,
        })
    }

    /// The kernel's name; a label only.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of the inputs.
    pub fn input_names(&self) -> &[String] {
        &self.input_names
    }

    /// Names of the outputs.
    pub fn output_names(&self) -> &[String] {
        &self.output_names
    }

    /// Checks the inputs, outputs and template arguments of a call against the names.
    pub fn check(&self, call: &CallInfo) -> Result<(), CustomKernelError> {
        let count = |what, expected: usize, found: usize| {
            if expected == found {
                return Ok(());
            }
            Err(CustomKernelError::Count { kernel: self.name.clone(), what, expected, found })
        };
        count("inputs", self.input_names.len(), call.inputs.len())?;
        count("output dtypes", self.output_names.len(), call.output_dtypes.len())?;
        let dtype = |name: &str, d: KernelDtype| match d {
            KernelDtype::Scalar(Scalar::F64) => Err(CustomKernelError::Dtype {
                kernel: self.name.clone(),
                name: name.into(),
                dtype: d.name(),
            }),
            _ => Ok(()),
        };
        for (n, i) in self.input_names.iter().zip(&call.inputs) {
            dtype(n, i.dtype)?;
        }
        for (n, d) in self.output_names.iter().zip(&call.output_dtypes) {
            dtype(n, *d)?;
        }
        let mut seen: HashSet<&str> =
            self.input_names.iter().chain(&self.output_names).map(|s| &**s).collect();
        for (n, v) in &call.template {
            check_name(&self.name, n)?;
            if !seen.insert(n) {
                let why = "it is used twice";
                return Err(CustomKernelError::BadName { kernel: self.name.clone(), name: n.clone(), why });
            }
            if let TemplateValue::Dtype(d) = v {
                dtype(n, *d)?;
            }
        }
        Ok(())
    }

    /// The cache key of the specialisation for a call.
    pub fn key(&self, call: &CallInfo) -> ContentKey {
        let mut k = KeyWriter::default();
        k.text("custom kernel 1");
        k.text(&self.name);
        k.text(&self.source);
        k.text(&self.header);
        k.number(u64::from(self.ensure_row_contiguous) + 2 * u64::from(self.atomic_outputs));
        k.number(self.input_names.len() as u64);
        for (n, i) in self.input_names.iter().zip(&call.inputs) {
            k.text(n);
            k.dtype(i.dtype);
            k.number(u64::from(i.is_constant()) + 2 * u64::from(i.ndim == 0));
        }
        k.number(self.output_names.len() as u64);
        for (n, d) in self.output_names.iter().zip(&call.output_dtypes) {
            k.text(n);
            k.dtype(*d);
        }
        k.number(call.template.len() as u64);
        for (n, v) in &call.template {
            k.text(n);
            match v {
                TemplateValue::Dtype(d) => {
                    k.number(0);
                    k.dtype(*d);
                }
                TemplateValue::Int(i) => {
                    k.number(1);
                    k.number(*i as u32 as u64);
                }
                TemplateValue::Bool(b) => k.number(2 + u64::from(*b)),
            }
        }
        ContentKey(k.0.into())
    }

    /// The generated parameters, with what each is bound to (attributes and template arguments to nothing).
    fn params(&self, call: &CallInfo) -> Vec<(String, ParamSpec, Option<Binding>)> {
        let mut out = Vec::new();
        for (n, v) in &call.template {
            let spec = match v {
                TemplateValue::Dtype(d) => ParamSpec::Type(d.elem()),
                TemplateValue::Int(i) => ParamSpec::Const(i64::from(*i), Scalar::I32),
                TemplateValue::Bool(b) => ParamSpec::Const(i64::from(*b), Scalar::Bool),
            };
            out.push((n.clone(), spec, None));
        }
        let constant = |elem| ParamSpec::Buffer {
            elem: Elem::Scalar(elem),
            space: Space::Constant,
            writable: false,
            atomic: false,
            reference: false,
        };
        for (i, (n, info)) in self.input_names.iter().zip(&call.inputs).enumerate() {
            let spec = ParamSpec::Buffer {
                elem: info.dtype.elem(),
                space: if info.is_constant() { Space::Constant } else { Space::Device },
                writable: false,
                atomic: false,
                reference: info.ndim == 0,
            };
            out.push((n.clone(), spec, Some(Binding::Input(i))));
            if info.ndim == 0 {
                continue;
            }
            if self.named[i].shape {
                out.push((format!("{n}_shape"), constant(Scalar::I32), Some(Binding::Shape(i))));
            }
            if self.named[i].strides {
                out.push((format!("{n}_strides"), constant(Scalar::I64), Some(Binding::Strides(i))));
            }
            if self.named[i].ndim {
                out.push((format!("{n}_ndim"), ParamSpec::Value(Scalar::I32), Some(Binding::Ndim(i))));
            }
        }
        for (i, (n, d)) in self.output_names.iter().zip(&call.output_dtypes).enumerate() {
            let spec = ParamSpec::Buffer {
                elem: d.elem(),
                space: Space::Device,
                writable: true,
                atomic: self.atomic_outputs,
                reference: false,
            };
            out.push((n.clone(), spec, Some(Binding::Output(i))));
        }
        for a in &self.attributes {
            let (n, what, _) = ATTRIBUTES[*a];
            out.push((n.to_string(), ParamSpec::Attribute(what), None));
        }
        if self.grid_origin {
            out.push(("grid_origin".into(), ParamSpec::Origin, None));
        }
        out
    }

    /// What each parameter of the kernel is bound to, in order.
    pub fn bindings(&self, call: &CallInfo) -> Vec<Binding> {
        self.params(call).into_iter().filter_map(|(_, _, binding)| binding).collect()
    }

    /// Compiles the kernel for a call.
    pub fn specialise(&self, call: &CallInfo) -> Result<Specialised, CustomKernelError> {
        self.check(call)?;
        let source = BodySource {
            name: &self.name,
            header: &self.header,
            body: &self.source,
            params: self.params(call).into_iter().map(|(n, s, _)| (n, s)).collect(),
        };
        let (kernel, warnings) = compile_body(source)
            .map_err(|e| CustomKernelError::Compile { kernel: self.name.clone(), error: Box::new(e) })?;
        Ok(Specialised { kernel, bindings: self.bindings(call), key: self.key(call), warnings })
    }
}

fn check_name(kernel: &str, name: &str) -> Result<(), CustomKernelError> {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let why = if !first || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        "it is not an identifier"
    } else if crate::front::parser::is_keyword(name) || crate::front::types::builtin_type(name).is_some() {
        "it is a reserved word of the kernel language"
    } else {
        return Ok(());
    };
    Err(CustomKernelError::BadName { kernel: kernel.into(), name: name.into(), why })
}

/// The identifiers of a text, including those in comments and strings, which do no harm.
fn identifiers(text: &str) -> HashSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).collect()
}
