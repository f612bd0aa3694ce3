//! A corpus case: all arguments of a custom kernel call, and the expected result.

use crate::array::{Array, DType, decode_floats, decode_ints};

/// A named input.
#[derive(Clone, Debug)]
pub struct Input {
    /// Name of the parameter in the kernel text.
    pub name: &'static str,
    /// The data.
    pub array: Array,
}

/// How an output is compared with its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Equal values, element by element.
    Exact,
    /// `|got - expected| <= abs + rel * |expected|`; infinities and NaNs must match exactly.
    Close {
        /// Absolute part.
        abs: f64,
        /// Part in proportion to the expected value.
        rel: f64,
    },
    /// The same values in any order.
    Unordered,
}

/// A named output.
#[derive(Clone, Debug)]
pub struct OutputSpec {
    /// Name of the parameter in the kernel text.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Shape; outputs are always row-major.
    pub shape: Vec<usize>,
    /// How it is compared.
    pub tolerance: Tolerance,
}

impl OutputSpec {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when the output has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }
}

/// A template argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateArg {
    /// A type.
    Type(DType),
    /// An `int`.
    Int(i64),
    /// A `bool`.
    Bool(bool),
}

/// What a reference computes for one output.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// For floating-point outputs; two numbers for a complex element.
    Floats(Vec<f64>),
    /// For integers and booleans (`u64` as its bits).
    Ints(Vec<i64>),
}

/// One call of a custom kernel with its reference.
#[derive(Clone)]
pub struct Case {
    /// Unique name: the kernel and its variant.
    pub name: &'static str,
    /// Name of the kernel file, without its ending.
    pub file: &'static str,
    /// Body of the kernel function.
    pub source: &'static str,
    /// Text before the kernel function.
    pub header: &'static str,
    /// Inputs in order.
    pub inputs: Vec<Input>,
    /// Outputs in order.
    pub outputs: Vec<OutputSpec>,
    /// Template arguments in order.
    pub template: Vec<(&'static str, TemplateArg)>,
    /// Threads along every axis.
    pub grid: [usize; 3],
    /// Threads of a full threadgroup along every axis.
    pub threadgroup: [usize; 3],
    /// Strided inputs are made row-major before the call.
    pub ensure_row_contiguous: bool,
    /// Outputs are declared `device atomic<T>*`.
    pub atomic_outputs: bool,
    /// What outputs are filled with before the call.
    pub init_value: Option<f64>,
    /// SIMD-group operations run under divergent control on purpose; checked mode must not call that a fault.
    pub divergent_simd: bool,
    /// Computes the expected outputs from the inputs.
    pub reference: fn(&Case) -> Vec<Expected>,
}

impl Case {
    /// A case without inputs and outputs; the builder methods add them.
    pub fn new(
        name: &'static str,
        kernel: (&'static str, &'static str),
        reference: fn(&Case) -> Vec<Expected>,
    ) -> Self {
        Case {
            name,
            file: kernel.0,
            source: kernel.1,
            header: "",
            inputs: Vec::new(),
            outputs: Vec::new(),
            template: Vec::new(),
            grid: [1, 1, 1],
            threadgroup: [1, 1, 1],
            ensure_row_contiguous: true,
            atomic_outputs: false,
            init_value: None,
            divergent_simd: false,
            reference,
        }
    }

    /// Adds an input.
    pub fn with(mut self, name: &'static str, array: Array) -> Self {
        self.inputs.push(Input { name, array });
        self
    }

    /// Adds an output that must match exactly.
    pub fn exact(mut self, name: &'static str, dtype: DType, shape: &[usize]) -> Self {
        self.outputs.push(OutputSpec { name, dtype, shape: shape.to_vec(), tolerance: Tolerance::Exact });
        self
    }

    /// Adds an output compared within an absolute and a relative error.
    pub fn close(mut self, name: &'static str, dtype: DType, shape: &[usize], abs: f64, rel: f64) -> Self {
        let tolerance = Tolerance::Close { abs, rel };
        self.outputs.push(OutputSpec { name, dtype, shape: shape.to_vec(), tolerance });
        self
    }

    /// Adds an output whose elements may come in any order.
    pub fn unordered(mut self, name: &'static str, dtype: DType, shape: &[usize]) -> Self {
        self.outputs.push(OutputSpec { name, dtype, shape: shape.to_vec(), tolerance: Tolerance::Unordered });
        self
    }

    /// Adds a type template argument.
    pub fn ty(mut self, name: &'static str, dtype: DType) -> Self {
        self.template.push((name, TemplateArg::Type(dtype)));
        self
    }

    /// Adds an integer template argument.
    pub fn int(mut self, name: &'static str, value: i64) -> Self {
        self.template.push((name, TemplateArg::Int(value)));
        self
    }

    /// Adds a boolean template argument.
    pub fn flag(mut self, name: &'static str, value: bool) -> Self {
        self.template.push((name, TemplateArg::Bool(value)));
        self
    }

    /// Sets the grid and the threadgroup, in threads.
    pub fn launch(mut self, grid: [usize; 3], threadgroup: [usize; 3]) -> Self {
        self.grid = grid;
        self.threadgroup = threadgroup;
        self
    }

    /// Sets the header.
    pub fn header(mut self, header: &'static str) -> Self {
        self.header = header;
        self
    }

    /// Inputs keep their strides.
    pub fn strided(mut self) -> Self {
        self.ensure_row_contiguous = false;
        self
    }

    /// Outputs are atomic.
    pub fn atomic(mut self) -> Self {
        self.atomic_outputs = true;
        self
    }

    /// SIMD-group operations diverge on purpose.
    pub fn divergent(mut self) -> Self {
        self.divergent_simd = true;
        self
    }

    /// Outputs are filled before the call.
    pub fn init(mut self, value: f64) -> Self {
        self.init_value = Some(value);
        self
    }

    /// The input of this name.
    ///
    /// # Panics
    /// When the case has no such input: the corpus itself is wrong.
    pub fn input(&self, name: &str) -> &Array {
        &self.inputs.iter().find(|i| i.name == name).expect("the case has this input").array
    }

    /// The floats of an input, row-major.
    pub fn f(&self, name: &str) -> Vec<f64> {
        self.input(name).to_floats()
    }

    /// The integers of an input, row-major.
    pub fn i(&self, name: &str) -> Vec<i64> {
        self.input(name).to_ints()
    }

    /// The value of an integer or boolean template argument.
    ///
    /// # Panics
    /// When the case has no such argument: the corpus itself is wrong.
    pub fn arg(&self, name: &str) -> usize {
        match self.template.iter().find(|(n, _)| *n == name) {
            Some((_, TemplateArg::Int(v))) => usize::try_from(*v).expect("a size"),
            Some((_, TemplateArg::Bool(b))) => usize::from(*b),
            _ => panic!("case {} has no value argument {name}", self.name),
        }
    }

    /// Inputs as a call binds them: made row-major where the kernel asks for it.
    pub fn bound_inputs(&self) -> Vec<Array> {
        let bind = |i: &Input| {
            if self.ensure_row_contiguous && !i.array.is_row_contiguous() {
                i.array.contiguous()
            } else {
                i.array.clone()
            }
        };
        self.inputs.iter().map(bind).collect()
    }

    /// The bytes that an output starts with: the init value, or `fill` where there is none.
    pub fn initial_output(&self, index: usize, fill: u8) -> Vec<u8> {
        let spec = &self.outputs[index];
        match self.init_value {
            None => vec![fill; spec.bytes()],
            Some(v) => {
                let one = Array::scalar(spec.dtype, v).storage;
                let mut one = one;
                one.resize(spec.dtype.size(), 0);
                one.repeat(spec.len())
            }
        }
    }

    /// The reference outputs.
    pub fn expected(&self) -> Vec<Expected> {
        (self.reference)(self)
    }

    /// Compares the bytes of every output with the reference; the error names the first element that differs.
    pub fn check(&self, outputs: &[Vec<u8>]) -> Result<(), String> {
        if outputs.len() != self.outputs.len() {
            return Err(format!(
                "{}: {} outputs instead of {}",
                self.name,
                outputs.len(),
                self.outputs.len()
            ));
        }
        for ((spec, expected), got) in self.outputs.iter().zip(self.expected()).zip(outputs) {
            if got.len() != spec.bytes() {
                return Err(format!(
                    "{}.{}: {} bytes instead of {}",
                    self.name,
                    spec.name,
                    got.len(),
                    spec.bytes()
                ));
            }
            let checked = match expected {
                Expected::Floats(e) => compare_floats(spec, &decode_floats(spec.dtype, got), &e),
                Expected::Ints(e) => compare_ints(spec, &decode_ints(spec.dtype, got), &e),
            };
            checked.map_err(|e| format!("{}.{}: {e}", self.name, spec.name))?;
        }
        Ok(())
    }
}

fn compare_ints(spec: &OutputSpec, got: &[i64], expected: &[i64]) -> Result<(), String> {
    let (mut got, mut expected) = (got.to_vec(), expected.to_vec());
    if spec.tolerance == Tolerance::Unordered {
        got.sort_unstable();
        expected.sort_unstable();
    }
    let slack = match spec.tolerance {
        Tolerance::Close { abs, .. } => abs as u64,
        _ => 0,
    };
    match got.iter().zip(&expected).position(|(g, e)| g.abs_diff(*e) > slack) {
        Some(i) => Err(format!("element {i} is {} but {} was expected", got[i], expected[i])),
        None => Ok(()),
    }
}

fn compare_floats(spec: &OutputSpec, got: &[f64], expected: &[f64]) -> Result<(), String> {
    let (mut got, mut expected) = (got.to_vec(), expected.to_vec());
    let (abs, rel) = match spec.tolerance {
        Tolerance::Close { abs, rel } => (abs, rel),
        Tolerance::Exact => (0.0, 0.0),
        Tolerance::Unordered => {
            got.sort_unstable_by(f64::total_cmp);
            expected.sort_unstable_by(f64::total_cmp);
            (0.0, 0.0)
        }
    };
    let matches = |g: f64, e: f64| {
        g == e || (g.is_nan() && e.is_nan()) || (e.is_finite() && (g - e).abs() <= abs + rel * e.abs())
    };
    match got.iter().zip(&expected).position(|(g, e)| !matches(*g, *e)) {
        Some(i) => {
            let distance = (got[i] - expected[i]).abs();
            Err(format!("element {i} is {} but {} was expected (off by {distance:.3e})", got[i], expected[i]))
        }
        None => Ok(()),
    }
}
