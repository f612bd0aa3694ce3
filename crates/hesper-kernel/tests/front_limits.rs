//! Hostile texts: the compiler always returns a kernel or an error, in bounded time and memory.

use crate::support;
use hesper_corpus::{DType, cases};
use hesper_kernel::custom::CustomKernel;
use hesper_kernel::front::compile_file;
use std::time::{Duration, Instant};

/// Compiles a body with one float output; the error's text, if any.
fn compile(header: &str, body: &str) -> Result<(), String> {
    let started = Instant::now();
    let r = support::compile(&support::program(header, body, DType::F32, 4, 1)).map(|_| ());
    assert!(started.elapsed() < Duration::from_secs(20), "took {:?}", started.elapsed());
    r
}

fn refused(header: &str, body: &str, mention: &str) {
    let error = compile(header, body).expect_err(mention);
    assert!(error.contains(mention), "{mention}: {}", &error[..error.len().min(600)]);
}

#[test]
fn deep_nesting_is_an_error_and_not_a_crash() {
    let deep = |open: &str, middle: &str, close: &str| {
        format!("{}{middle}{}", open.repeat(50_000), close.repeat(50_000))
    };
    refused("", &format!("out[0] = {};", deep("(", "1", ")")), "nests too deeply");
    refused("", &deep("{", "", "}"), "nests too deeply");
    refused("", &deep("if (x[0] > 0) ", ";", ""), "nests too deeply");
    refused("", &format!("out[0] = {}1;", "-".repeat(50_000)), "error");
    refused("", &format!("out[0] = {}1;", "- ".repeat(50_000)), "nests too deeply");
    refused("", &format!("out[0] = 1{};", " + 1".repeat(50_000)), "too long");
    refused("", &format!("out[0] = {}1{};", "f(".repeat(50_000), ")".repeat(50_000)), "nests too deeply");
    refused("", &format!("int a{};", "[2]".repeat(1000)), "dimensions");
    refused("", &format!("{}1{};", "decltype([]{ ".repeat(60), " }) a;".repeat(60)), "error");
    refused("", &format!("vec<{}", "vec<".repeat(50_000)), "error");
    refused(
        &format!("{} int a; {}", "namespace n {".repeat(50_000), "}".repeat(50_000)),
        "",
        "nests too deeply",
    );
    refused(
        &format!("{} int a; {}", "struct s {".repeat(50_000), "};".repeat(50_000)),
        "",
        "nests too deeply",
    );
    refused(&format!("#if 1\n{}", "#if 1\n".repeat(50_000)), "", "nest too deeply");
    refused(&format!("#if {}1\n#endif", "(".repeat(50_000)), "", "nests too deeply");
}

#[test]
fn growth_without_bound_is_refused() {
    refused("template <int N> int f() { return f<N + 1>() + 1; }", "out[0] = f<0>();", "does not end");
    refused(
        "template <int N> int f() { return f<N + 1>() + f<N + 2>(); }",
        "out[0] = f<0>();",
        "does not end",
    );
    refused("template <int N> struct S { S<N + 1> next; };", "S<0> s; out[0] = 1;", "error");
    refused(
        "template <typename T> struct P { T a; T b; }; template <typename T> int f(T v) { P<T> p; return f(p); }",
        "out[0] = f(1);",
        "error",
    );
    let mut header = String::from("float f0(float v) { return sin(v) + cos(v) * v; }\n");
    for i in 1..30 {
        header.push_str(&format!("float f{i}(float v) {{ return f{}(v) + f{}(v + 1); }}\n", i - 1, i - 1));
    }
    refused(&header, "out[0] = f29(x[0]);", "inlines more than");
    refused(
        "constexpr int f(int n) { while (true) { n++; } return n; }",
        "constexpr int v = f(1); out[0] = v;",
        "does not end",
    );
    refused(
        "constexpr int f(int n) { return f(n + 1); }",
        "constexpr int v = f(1); out[0] = v;",
        "does not end",
    );
    let mut macros = String::from("#define m0(v) v v v v v v v v\n");
    for i in 1..20 {
        macros.push_str(&format!("#define m{i}(v) m{}(v) m{}(v) m{}(v)\n", i - 1, i - 1, i - 1));
    }
    refused(&macros, "m19(out[0] = 1;)", "error");
    refused("", "float a[100000000]; out[0] = a[0];", "elements");
    refused("", "float a[1000000]; out[k[0]] = a[k[1]];", "thread memory");
    refused("", "threadgroup float a[10000]; out[0] = a[0];", "32768 are available");
    refused("", &"x".repeat(5 << 20), "bytes long");
}

#[test]
fn loops_that_unroll_to_too_much_are_kept() {
    let mut header = String::from(
        "float f0(float v) { float s = 0; for (int i = 0; i < 8; ++i) { s += v * i; } return s; }\n",
    );
    for i in 1..7 {
        let below = i - 1;
        header.push_str(&format!(
            "float f{i}(float v) {{ float s = 0; for (int i = 0; i < 8; ++i) {{ s += f{below}(v + i); }} return s; }}\n"
        ));
    }
    compile(&header, "out[0] = f6(x[0]);").unwrap();
}

#[test]
fn recursion_names_the_cycle() {
    let header =
        "float b(float v); float a(float v) { return b(v) + 1; } float b(float v) { return a(v) * 2; }";
    refused(header, "out[0] = a(x[0]);", "recursion is not allowed: `a` -> `b` -> `a`");
    refused("int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }", "out[0] = f(k[3]);", "`f` -> `f`");
}

#[test]
fn empty_and_odd_texts_give_a_kernel_or_an_error() {
    for body in [
        "",
        ";",
        "\0",
        "\u{feff}",
        "}",
        "{",
        ")",
        "#",
        "#define",
        "#if",
        "'",
        "\"",
        "/*",
        "//",
        "\\",
        "`",
        "out",
        "out[",
        "::",
        "<<<",
        "operator",
        "template",
        "struct",
        "#define a(",
        "a<b<c<d",
        "for(;;",
        "[&",
        "[[[[",
        "return return;",
        "case 1:",
        "1.e",
        "0x",
        "...",
    ] {
        let _ = compile("", body);
        let _ = compile(body, "");
        let _ = compile_file("odd.metal", body);
    }
    assert!(compile("", "").is_ok());
}

#[test]
fn names_and_counts_are_checked_before_the_text() {
    assert!(CustomKernel::new("k", &["x"], &[], "", "", true, false).is_err());
    for bad in ["", "1a", "a b", "float", "for", "a-b", "\u{e9}"] {
        let error = CustomKernel::new("k", &[bad], &["out"], "", "", true, false).unwrap_err().to_string();
        assert!(error.contains(bad), "{error}");
    }
    assert!(CustomKernel::new("k", &["x"], &["x"], "", "", true, false).is_err());
    let kernel = CustomKernel::new("k", &["x"], &["out"], "out[0] = 1;", "", true, false).unwrap();
    let error = kernel.specialise(&Default::default()).unwrap_err().to_string();
    assert!(error.contains("takes 1 inputs, 0 given"), "{error}");
}

/// A small generator of pseudo-random numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Splits a text into words, blanks and signs.
fn pieces(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    let class = |c: char| {
        if c.is_alphanumeric() || c == '_' {
            0
        } else if c.is_whitespace() {
            1
        } else {
            2
        }
    };
    let mut last = None;
    for (i, c) in text.char_indices() {
        let k = class(c);
        if last.is_some_and(|l| l != k || k == 2) && i > start {
            out.push(&text[start..i]);
            start = i;
        }
        last = Some(k);
    }
    out.push(&text[start..]);
    out
}

fn mutate(text: &str, donor: &str, rng: &mut Rng) -> String {
    const NOISE: [&str; 40] = [
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ";",
        ",",
        "<",
        ">",
        "*",
        "&",
        "=",
        "::",
        "template <typename T>",
        "struct",
        "T",
        "0",
        "-1",
        "1e38f",
        "0xFFFFFFFFFFFFFFFF",
        "float4",
        "threadgroup",
        "device",
        "const",
        "auto",
        "return",
        "switch (k[0]) {",
        "case 0:",
        "for (;;)",
        "while (true)",
        "#define X X X\nX",
        "#if 0\n",
        "\n#endif\n",
        "[&](int a)",
        "sizeof",
        "static_cast<",
        "...",
        "\u{3bb}",
        "9999999999999999999999",
    ];
    let mut parts: Vec<String> = pieces(text).into_iter().map(String::from).collect();
    let donor = pieces(donor);
    for _ in 0..1 + rng.below(6) {
        let i = rng.below(parts.len());
        match rng.below(7) {
            0 => {
                parts.remove(i);
            }
            1 => parts.insert(i, NOISE[rng.below(NOISE.len())].into()),
            2 => parts[i] = NOISE[rng.below(NOISE.len())].into(),
            3 => {
                let j = rng.below(parts.len());
                parts.swap(i, j);
            }
            4 => {
                let at = rng.below(donor.len());
                let n = rng.below(12);
                let cut: String = donor[at..donor.len().min(at + n)].concat();
                parts.insert(i, cut);
            }
            5 => {
                let copy = parts[i].clone();
                parts.insert(i, copy);
            }
            _ => parts.truncate(i.max(1)),
        }
        if parts.is_empty() {
            parts.push(String::new());
        }
    }
    parts.concat()
}

#[test]
fn mutated_kernels_never_crash_or_hang() {
    let corpus = cases();
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
    let started = Instant::now();
    let (mut refused, mut accepted, mut slowest) = (0, 0, Duration::ZERO);
    for round in 0..3000 {
        if started.elapsed() > Duration::from_secs(4) {
            break;
        }
        let mut case = corpus[rng.below(corpus.len())].clone();
        let donor = corpus[rng.below(corpus.len())].source;
        let leak = |s: String| -> &'static str { Box::leak(s.into_boxed_str()) };
        if !case.header.is_empty() && rng.below(2) == 0 {
            case.header = leak(mutate(case.header, donor, &mut rng));
        } else {
            case.source = leak(mutate(case.source, donor, &mut rng));
        }
        let t = Instant::now();
        match support::compile(&case) {
            Ok(_) => accepted += 1,
            Err(e) => {
                refused += 1;
                assert!(
                    !e.contains("the compiler failed"),
                    "round {round}\n{}\n----\n{}\n{e}",
                    case.header,
                    case.source
                );
                assert!(
                    !e.contains("cannot be compiled:") || e.contains("[limit]"),
                    "{}\n----\n{}\n{e}",
                    case.header,
                    case.source
                );
            }
        }
        slowest = slowest.max(t.elapsed());
        assert!(
            t.elapsed() < Duration::from_secs(5),
            "round {round} took {:?}\n{}\n----\n{}",
            t.elapsed(),
            case.header,
            case.source
        );
    }
    println!("{accepted} accepted, {refused} refused, slowest {slowest:?}");
    assert!(refused > 100 && accepted > 10);
}

#[test]
fn thousands_of_distinct_kernels_compile_in_one_process() {
    let started = Instant::now();
    for i in 0..500 {
        let body = format!("uint i = thread_position_in_grid.x; out[i] = x[i] * {i}.5f + k[i];");
        support::compile(&support::program("", &body, DType::F32, 4, 1)).unwrap();
    }
    println!("{:?} per kernel", started.elapsed() / 500);
    assert!(started.elapsed() < Duration::from_secs(30));
}
