//! The text of kernels: those of the corpus, changed by bytes and by tokens.
//!
//! A text is refused with an error, or it compiles and runs on every executor; whatever it does, it ends. An input is the
//! name of a corpus kernel, whose signature is used, a line with `//@`, the header, another such line, and the body.

use std::sync::OnceLock;

use hesper_corpus::{Array, Case, DType, TemplateArg};
use hesper_kernel::custom::{Binding, CallInfo, CustomKernel, InputInfo, KernelDtype, TemplateValue};
use hesper_kernel::ir::Scalar;
use hesper_kernel::launch::Launch;

use crate::engine::{Target, Verdict};
use crate::launch::Job;
use crate::mutate;
use crate::random::Random;

/// See the [module](self).
pub struct KernelText;

const SEPARATOR: &str = "\n//@\n";

const WORDS: [&str; 64] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    "<",
    ">",
    "::",
    "*",
    "&",
    "&&",
    "||",
    "!",
    "~",
    "+",
    "-",
    "/",
    "%",
    "<<",
    ">>",
    "==",
    "?",
    ":",
    "=",
    "+=",
    "++",
    "--",
    ".x",
    ".xyzw",
    "->",
    "#define M(x) x x\n",
    "#define A A A\n",
    "#define B(x) B(x)\n",
    "#if 1\n",
    "#endif\n",
    "#include \"x\"\n",
    "template <typename T>",
    "struct S { int a[4]; S* s; };",
    "int",
    "uint",
    "float4",
    "half",
    "bool",
    "long",
    "threadgroup float",
    "device",
    "constant",
    "for (;;)",
    "while (true)",
    "if (",
    "else",
    "return",
    "break;",
    "continue;",
    "constexpr",
    "auto",
    "simd_sum(",
    "threadgroup_barrier(mem_flags::mem_threadgroup);",
    "9223372036854775808",
    "1e999",
    "0x",
];

fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let invalid = hesper_corpus::invalid_cases().into_iter().map(|invalid| invalid.case);
        hesper_corpus::cases().into_iter().chain(invalid).collect()
    })
}

impl Target for KernelText {
    fn name(&self) -> &'static str {
        "kernel-text"
    }

    fn about(&self) -> &'static str {
        "changed kernels of the corpus: refused, or run on every executor to the same bits"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        cases()
            .iter()
            .map(|case| [case.name, case.header, case.source].join(SEPARATOR).into_bytes())
            .collect()
    }

    fn fresh(&self) -> usize {
        1
    }

    fn generate(&self, random: &mut Random) -> Vec<u8> {
        bomb(random).into_bytes()
    }

    fn mutate(&self, input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
        if random.one_in(4) {
            mutate::bytes(input, others, random)
        } else {
            mutate::text(input, &WORDS, random)
        }
    }

    fn memory(&self, input: &[u8]) -> usize {
        (512 << 20) + 64 * input.len()
    }

    fn run(&self, input: &[u8]) -> Result<Verdict, String> {
        let text = String::from_utf8_lossy(input);
        let mut parts = text.splitn(3, SEPARATOR);
        let (name, header) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let body = parts.next().unwrap_or_default();
        let case = cases().iter().find(|case| case.name == name).unwrap_or(&cases()[0]);
        let Some(job) = job(case, header, body) else { return Ok(Verdict::Refused) };
        // Float atomics have no order, and NaNs differ inside.
        let ordered = !["atomic", "as_type"].iter().any(|word| text.contains(word));
        job.compare(ordered && !case.atomic_outputs)?;
        Ok(Verdict::Accepted)
    }
}

/// Texts that grow: nesting, macros, recursion, sizes.
fn bomb(random: &mut Random) -> String {
    let many = random.pick(&[10, 100, 1000, 20_000]);
    let (header, body) = match random.below(14) {
        0 => (String::new(), format!("out[0] = {}1{};", "(".repeat(many), ")".repeat(many))),
        1 => (String::new(), format!("out[0] = {}1;", "-".repeat(many))),
        2 => (String::new(), format!("{}{}", "{".repeat(many), "}".repeat(many))),
        3 => (String::new(), format!("out[0] = 1{};", "+1".repeat(many))),
        4 => (String::new(), "if (true) ".repeat(many) + ";"),
        5 => {
            let lines = (1..many.min(64)).map(|n| format!("#define M{n} M{0} M{0}\n", n - 1));
            (
                format!("#define M0 +1\n{}", lines.collect::<String>()),
                format!("out[0] = 1 M{};", many.min(64) - 1),
            )
        }
        6 => (format!("int f(int x) {{ return f(x - {many}); }}"), "out[0] = f(3);".into()),
        7 => {
            let text = "template <int N> int f() { return f<N - 1>() + f<N - 2>(); }";
            (text.into(), format!("out[0] = f<{many}>();"))
        }
        8 => (String::new(), format!("float a[{many}000000]; a[0] = 1; out[0] = a[0];")),
        9 => (String::new(), format!("threadgroup float a[{many}][{many}]; out[0] = a[0][0];")),
        10 => (String::new(), "for (int i = 0; i >= 0; i += 0) { out[0] = i; }".into()),
        11 => {
            let fields = (1..many.min(60)).map(|n| format!("struct S{n} {{ S{0} a[9]; }};\n", n - 1));
            (
                format!("struct S0 {{ int a; }};\n{}", fields.collect::<String>()),
                format!("S{} s; out[0] = 1;", many.min(60) - 1),
            )
        }
        12 => (String::new(), format!("out[0] = {};", "1?".repeat(many) + "1" + &":0".repeat(many))),
        _ => {
            let functions = (1..many.min(40))
                .map(|n| format!("int f{n}(int x) {{ return f{0}(x) + f{0}(x); }}\n", n - 1));
            (
                format!("int f0(int x) {{ return x; }}\n{}", functions.collect::<String>()),
                format!("out[0] = f{}(1);", many.min(40) - 1),
            )
        }
    };
    [cases()[random.below(cases().len())].name, &header, &body].join(SEPARATOR)
}

fn scalar(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool,
        DType::U8 => Scalar::U8,
        DType::U16 => Scalar::U16,
        DType::U32 => Scalar::U32,
        DType::U64 => Scalar::U64,
        DType::I8 => Scalar::I8,
        DType::I16 => Scalar::I16,
        DType::I32 => Scalar::I32,
        DType::I64 => Scalar::I64,
        DType::F16 => Scalar::F16,
        DType::BF16 => Scalar::BF16,
        DType::F32 | DType::Complex64 => Scalar::F32,
    }
}

fn kernel_dtype(dtype: DType) -> KernelDtype {
    if dtype == DType::Complex64 { KernelDtype::Complex64 } else { KernelDtype::Scalar(scalar(dtype)) }
}

/// A text with the signature of a case, compiled and bound. None if it is refused.
fn job(case: &Case, header: &str, body: &str) -> Option<Job> {
    let mut case = case.clone();
    for input in &mut case.inputs {
        // A binding starts at its first byte: what lies before the first element is put in order.
        if input.array.strides.iter().any(|stride| *stride < 0) {
            input.array = input.array.contiguous();
        }
    }
    let names: Vec<&str> = case.inputs.iter().map(|input| input.name).collect();
    let outputs: Vec<&str> = case.outputs.iter().map(|output| output.name).collect();
    let (contiguous, atomic) = (case.ensure_row_contiguous, case.atomic_outputs);
    let kernel = CustomKernel::new(case.name, &names, &outputs, body, header, contiguous, atomic).ok()?;
    let inputs = case.bound_inputs();
    let info =
        |a: &Array| InputInfo { dtype: kernel_dtype(a.dtype), ndim: a.shape.len(), size: a.len() as u64 };
    let template = case.template.iter().map(|(name, value)| {
        let value = match value {
            TemplateArg::Type(dtype) => TemplateValue::Dtype(kernel_dtype(*dtype)),
            TemplateArg::Int(value) => TemplateValue::Int(*value as i32),
            TemplateArg::Bool(value) => TemplateValue::Bool(*value),
        };
        ((*name).to_string(), value)
    });
    let call = CallInfo {
        inputs: inputs.iter().map(info).collect(),
        template: template.collect(),
        output_dtypes: case.outputs.iter().map(|output| kernel_dtype(output.dtype)).collect(),
    };
    let special = kernel.specialise(&call).ok()?;
    let (mut args, mut elements) = (Vec::new(), Vec::new());
    for binding in &special.bindings {
        let mut element = None;
        args.push(match *binding {
            Binding::Input(i) => inputs[i].storage[inputs[i].offset * inputs[i].dtype.size()..].to_vec(),
            Binding::Shape(i) => inputs[i].shape.iter().flat_map(|n| (*n as i32).to_le_bytes()).collect(),
            Binding::Strides(i) => inputs[i].strides.iter().flat_map(|n| n.to_le_bytes()).collect(),
            Binding::Ndim(i) => (inputs[i].shape.len() as i32).to_le_bytes().to_vec(),
            Binding::Output(i) => {
                element = Some(scalar(case.outputs[i].dtype));
                case.initial_output(i, 0)
            }
        });
        elements.push(element);
    }
    // A small part of the grid is enough.
    let threadgroup = case.threadgroup.map(|n| n.clamp(1, 64) as u64);
    let grid = case.grid.map(|n| n.min(96) as u64);
    let grid = [grid[0], grid[1].min(2), grid[2].min(2)];
    let launch = Launch::new(grid, [threadgroup[0], 1, 1]).ok()?;
    Some(Job { kernel: special.kernel, launch, args, elements })
}
