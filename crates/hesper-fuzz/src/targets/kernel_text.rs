//! Kernel texts: those of the corpus, mutated by bytes and by tokens.
//!
//! A text is refused with an error, or compiles and runs on every executor; every run ends. An input is the
//! name of a corpus kernel, whose signature is used, a line with `//@`, the header, another such line, and
//! the body.

use std::sync::OnceLock;

use hesper_corpus::Case;
use hesper_gpu_tests::corpus;
use hesper_gpu_tests::job::Job;
use hesper_kernel::launch::Launch;
use hesper_runtime::sim::Rng;

use crate::engine::{Target, Verdict};
use crate::{executors, mutate};

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

    fn generate(&self, rng: &mut Rng) -> Vec<u8> {
        explosive_text(rng).into_bytes()
    }

    fn mutate(&self, input: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
        if rng.one_in(4) { mutate::bytes(input, others, rng) } else { mutate::text(input, &WORDS, rng) }
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
        // Float atomics have no order, and payloads of NaNs differ.
        let ordered = !["atomic", "as_type"].iter().any(|word| text.contains(word));
        executors::compare(&job, ordered && !case.atomic_outputs)?;
        Ok(Verdict::Accepted)
    }
}

/// Texts that explode: nesting, macros, recursion, sizes.
fn explosive_text(rng: &mut Rng) -> String {
    let many = rng.pick(&[10, 100, 1000, 20_000]);
    let (header, body) = match rng.below(14) {
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
    [cases()[rng.below(cases().len())].name, &header, &body].join(SEPARATOR)
}

/// A text with the signature of a case, compiled and bound for a small part of its grid; `None` if it is
/// refused.
fn job(case: &Case, header: &str, body: &str) -> Option<Job> {
    let [x, y, z] = case.grid.map(|n| n as u64);
    let threads = case.threadgroup[0].clamp(1, 64) as u64;
    let launch = Launch::new([x.min(96), y.min(2), z.min(2)], [threads, 1, 1]).ok()?;
    Some(corpus::job_of_text(case, header, body, launch).ok()?.0)
}
