//! Generated kernels: well-typed programs of the dialect must give the same bits on the interpreter, as
//! bytecode and as machine code.

use std::fmt::Write as _;

use hesper_gpu_tests::job::Job;
use hesper_kernel::custom::{Binding, CallInfo, CustomKernel, InputInfo, KernelDtype};
use hesper_kernel::ir::Scalar;
use hesper_kernel::launch::Launch;

use crate::choices::Choices;
use crate::engine::{Target, Verdict};
use crate::executors;

/// See the [module](self).
pub struct Kernels;

/// Threads of a launch and elements of each buffer.
const GRID_THREADS: u64 = 70;
const GROUP_THREADS: u64 = 48;

impl Target for Kernels {
    fn name(&self) -> &'static str {
        "kernels"
    }

    fn about(&self) -> &'static str {
        "generated kernels: the interpreter, bytecode and machine code give the same bits"
    }

    fn fresh(&self) -> usize {
        5
    }

    fn run(&self, input: &[u8]) -> Result<Verdict, String> {
        let (header, body) = Writer::new(input).program();
        let job = job(&header, &body)
            .map_err(|why| format!("a generated kernel is refused: {why}\n{header}\n{body}"))?;
        executors::compare(&job, true).map_err(|why| format!("{why}\n{header}\n{body}"))?;
        Ok(Verdict::Accepted)
    }

    fn describe(&self, input: &[u8]) -> String {
        let (header, body) = Writer::new(input).program();
        format!("{header}\n{body}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KernelType {
    Int,
    Uint,
    Float,
    Half,
    Bool,
    Long,
    Short,
    Byte,
    Float4,
    Int2,
}

use KernelType::*;

const TYPES: [KernelType; 12] = [Int, Float, Uint, Float, Half, Bool, Long, Short, Byte, Float4, Int2, Int];

impl KernelType {
    fn name(self) -> &'static str {
        match self {
            Int => "int",
            Uint => "uint",
            Float => "float",
            Half => "half",
            Bool => "bool",
            Long => "long",
            Short => "short",
            Byte => "uchar",
            Float4 => "float4",
            Int2 => "int2",
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Float | Half | Float4)
    }

    fn is_integer(self) -> bool {
        matches!(self, Int | Uint | Long | Short | Byte | Int2)
    }
}

/// Generates a program from choices.
struct Writer<'a> {
    choices: Choices<'a>,
    body: String,
    indent: usize,
    /// Variables in scope, by type.
    scope: Vec<(String, KernelType)>,
    names: usize,
    budget: usize,
    in_loop: bool,
}

impl<'a> Writer<'a> {
    fn new(input: &'a [u8]) -> Self {
        let choices = Choices::new(input);
        Writer {
            choices,
            body: String::new(),
            indent: 0,
            scope: Vec::new(),
            names: 0,
            budget: 60,
            in_loop: false,
        }
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.body, "{:indent$}{text}", "", indent = self.indent * 2);
    }

    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn program(mut self) -> (String, String) {
        let header = "template <typename T> T twice(T x) { return x + x; }\n\
                      struct Pair { int a; float b; };\n\
                      Pair swap_parts(Pair p) { Pair q; q.a = int(p.b); q.b = float(p.a); return q; }\n\
                      inline float mix3(float a, float b, thread float& c) { c = c + a; return a * 0.5f + b; }\n"
            .to_string();
        self.line("uint i = thread_position_in_grid.x;");
        self.line("uint lane = thread_index_in_threadgroup;");
        for (name, ty) in [("i", Uint), ("lane", Uint)] {
            self.scope.push((name.into(), ty));
        }
        self.line("float fx = x[i]; int kx = k[i]; half hx = h[i];");
        for (name, ty) in [("fx", Float), ("kx", Int), ("hx", Half)] {
            self.scope.push((name.into(), ty));
        }
        self.line(&format!("threadgroup int tile[{GROUP_THREADS}];"));
        let mut parts = 0;
        while !self.choices.is_empty() && parts < 12 && self.budget > 0 {
            parts += 1;
            self.top();
        }
        let (f, n) = (self.expr(Float, 2), self.expr(Int, 2));
        self.line(&format!("out[i] = {f};"));
        self.line(&format!("outi[i] = {n};"));
        (header, self.body)
    }

    /// A statement that all threads reach.
    fn top(&mut self) {
        match self.choices.below(8) {
            0 => {
                let value = self.expr(Int, 2);
                self.line(&format!("tile[lane] = {value};"));
                self.line("threadgroup_barrier(mem_flags::mem_threadgroup);");
                let (name, shift) = (self.fresh(), self.choices.below(48));
                // The last group is smaller: read only elements that were written.
                self.line(&format!("int {name} = tile[(lane + {shift}u) % threads_per_threadgroup.x];"));
                self.line("threadgroup_barrier(mem_flags::mem_threadgroup);");
                self.scope.push((name, Int));
            }
            1 => {
                let (name, value) = (self.fresh(), self.expr(Int, 2));
                let call =
                    self.choices.pick(&["simd_sum", "simd_max", "simd_min", "simd_prefix_inclusive_sum"]);
                self.line(&format!("int {name} = {call}({value});"));
                self.scope.push((name, Int));
            }
            2 => {
                let (name, value) = (self.fresh(), self.expr(Float, 2));
                let by = self.choices.below(32);
                let call = self.choices.pick(&["simd_shuffle_xor", "simd_broadcast"]);
                let by = if call == "simd_broadcast" { by % 6 } else { by };
                // A missing lane has no value.
                self.line(&format!("float {name} = simd_max({value});"));
                if call == "simd_broadcast" {
                    self.line(&format!("{name} = {call}({name}, ushort({by}));"));
                }
                self.scope.push((name, Float));
            }
            _ => self.statement(0),
        }
    }

    fn block(&mut self, depth: usize) {
        let outer = self.scope.len();
        self.indent += 1;
        for _ in 0..1 + self.choices.below(3) {
            self.statement(depth + 1);
        }
        self.indent -= 1;
        self.scope.truncate(outer);
    }

    fn statement(&mut self, depth: usize) {
        if self.budget == 0 {
            return;
        }
        self.budget -= 1;
        match if depth > 3 { self.choices.below(5) } else { self.choices.below(12) } {
            0..=2 => {
                let ty = self.choices.pick(&TYPES);
                let (name, value) = (self.fresh(), self.expr(ty, 3));
                let auto = self.choices.one_in(6);
                let value = if auto { format!("{}({value})", ty.name()) } else { value };
                self.line(&format!("{} {name} = {value};", if auto { "auto" } else { ty.name() }));
                self.scope.push((name, ty));
            }
            3 | 4 => self.assign(),
            5 | 6 => {
                let condition = self.expr(Bool, 2);
                self.line(&format!("if ({condition}) {{"));
                self.block(depth);
                if self.choices.one_in(2) {
                    self.line("} else {");
                    self.block(depth);
                }
                self.line("}");
            }
            7 => {
                let (name, count) = (self.fresh(), 1 + self.choices.below(5));
                self.line(&format!("for (int {name} = 0; {name} < {count}; ++{name}) {{"));
                self.scope.push((name, Int));
                let outer = std::mem::replace(&mut self.in_loop, true);
                self.block(depth);
                self.in_loop = outer;
                self.scope.pop();
                self.line("}");
            }
            8 => {
                let (name, condition) = (self.fresh(), self.expr(Bool, 1));
                self.line(&format!("int {name} = 0;"));
                self.line(&format!("while ({name}++ < 4 && {condition}) {{"));
                let outer = std::mem::replace(&mut self.in_loop, true);
                self.block(depth);
                self.in_loop = outer;
                self.line("}");
            }
            9 if self.in_loop => {
                let condition = self.expr(Bool, 1);
                let leave = self.choices.pick(&["break", "continue"]);
                self.line(&format!("if ({condition}) {leave};"));
            }
            10 => {
                let (name, value) = (self.fresh(), self.expr(Int, 1));
                self.line(&format!("float {name}[4] = {{1.0f, 2.0f, 3.0f, 4.0f}};"));
                let new = self.expr(Float, 1);
                self.line(&format!("{name}[({value}) & 3] = {new};"));
                let read = self.fresh();
                let at = self.expr(Int, 1);
                self.line(&format!("float {read} = {name}[({at}) & 3];"));
                self.scope.push((read, Float));
            }
            11 => {
                let name = self.fresh();
                let (a, b) = (self.expr(Int, 1), self.expr(Float, 1));
                self.line(&format!(
                    "Pair {name}; {name}.a = {a}; {name}.b = {b}; {name} = swap_parts({name});"
                ));
                self.scope.push((format!("{name}.a"), Int));
                self.scope.push((format!("{name}.b"), Float));
            }
            _ => {
                let on = self.expr(Int, 1);
                let floats: Vec<String> = self.assignable(Float);
                let Some(to) = floats.last().cloned() else { return };
                let (one, other) = (self.expr(Float, 1), self.expr(Float, 1));
                self.line(&format!("switch (({on}) & 3) {{ case 0: {to} = {one}; break; case 1: {to} = {other}; default: {to} += 1.0f; }}"));
            }
        }
    }

    fn assignable(&self, ty: KernelType) -> Vec<String> {
        let own = |name: &String| name.starts_with('v') && !name.contains('.');
        // Loop counters are not assigned.
        let loops = |name: &String| {
            self.body.contains(&format!("++{name})")) || self.body.contains(&format!("{name}++"))
        };
        self.scope
            .iter()
            .filter(|(name, of)| *of == ty && own(name) && !loops(name))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn assign(&mut self) {
        let ty = self.choices.pick(&TYPES);
        let names = self.assignable(ty);
        if names.is_empty() {
            return;
        }
        let (name, value) = (self.choices.pick(&names), self.expr(ty, 3));
        if ty == Float4 && self.choices.one_in(3) {
            let part = self.choices.pick(&["x", "y", "w"]);
            let value = self.expr(Float, 2);
            return self.line(&format!("{name}.{part} = {value};"));
        }
        let op = if ty == Bool { "=" } else { self.choices.pick(&["=", "+=", "-=", "*="]) };
        self.line(&format!("{name} {op} {value};"));
    }

    fn literal(&mut self, ty: KernelType) -> String {
        let n = self.choices.below(20) as i32 - 6;
        match ty {
            Int => self.choices.pick(&[
                n.to_string(),
                "2147483647".into(),
                "(-2147483647 - 1)".into(),
                n.to_string(),
            ]),
            Uint => {
                self.choices.pick(&[format!("{}u", n.abs()), "4294967295u".into(), format!("{}u", n.abs())])
            }
            Long => self.choices.pick(&[format!("long({n})"), "9223372036854775807l".into()]),
            Float => self.choices.pick(&[
                format!("{n}.5f"),
                "0.0f".into(),
                "1e30f".into(),
                format!("{n}.0f"),
                "1e-40f".into(),
            ]),
            Half => format!("half({n}.25f)"),
            Bool => self.choices.pick(&["true".into(), "false".into()]),
            Short => format!("short({})", n * 1000),
            Byte => format!("uchar({})", n.abs() * 15),
            Float4 => format!("float4({n}.0f, 1.0f, -2.0f, 0.5f)"),
            Int2 => format!("int2({n}, 7)"),
        }
    }

    fn expr(&mut self, ty: KernelType, depth: usize) -> String {
        let known: Vec<String> =
            self.scope.iter().filter(|(_, of)| *of == ty).map(|(name, _)| name.clone()).collect();
        if depth == 0 || self.choices.is_empty() {
            return match known.is_empty() || self.choices.one_in(3) {
                true => self.literal(ty),
                false => self.choices.pick(&known),
            };
        }
        let d = depth - 1;
        match self.choices.below(9) {
            0 => self.literal(ty),
            1 | 2 if !known.is_empty() => self.choices.pick(&known),
            3 => {
                let (c, a, b) = (self.expr(Bool, d), self.expr(ty, d), self.expr(ty, d));
                // Convert both sides to the type: small integers would be promoted to int.
                format!("({c} ? {name}({a}) : {name}({b}))", name = ty.name())
            }
            4 if ty != Bool && ty != Float4 && ty != Int2 => {
                let from = self.choices.pick(&[Int, Uint, Float, Half, Bool, Long, Short, Byte]);
                format!("{}({})", ty.name(), self.expr(from, d))
            }
            _ => match ty {
                Bool => {
                    let of = self.choices.pick(&[Int, Float, Uint, Long, Half, Byte]);
                    match self.choices.below(4) {
                        0 => format!("(!{})", self.expr(Bool, d)),
                        1 => {
                            let op = self.choices.pick(&["&&", "||", "==", "!="]);
                            format!("({} {op} {})", self.expr(Bool, d), self.expr(Bool, d))
                        }
                        _ => {
                            let op = self.choices.pick(&["<", "<=", ">", ">=", "==", "!="]);
                            format!("({} {op} {})", self.expr(of, d), self.expr(of, d))
                        }
                    }
                }
                Float4 => match self.choices.below(4) {
                    0 => format!("float4({})", self.expr(Float, d)),
                    1 => format!("({}).wzyx", self.expr(Float4, d)),
                    _ => self.arithmetic(ty, d),
                },
                Float if self.choices.one_in(5) => {
                    format!("dot({}, {})", self.expr(Float4, d), self.expr(Float4, d))
                }
                Int if self.choices.one_in(8) => format!("({}).y", self.expr(Int2, d)),
                Int if self.choices.one_in(8) => format!("k[uint({}) % {GRID_THREADS}u]", self.expr(Int, d)),
                Float if self.choices.one_in(8) => {
                    format!("x[uint({}) % {GRID_THREADS}u]", self.expr(Uint, d))
                }
                _ => self.arithmetic(ty, d),
            },
        }
    }

    fn arithmetic(&mut self, ty: KernelType, d: usize) -> String {
        let (a, b) = (self.expr(ty, d), self.expr(ty, d));
        let name = ty.name();
        if ty.is_float() {
            return match self.choices.below(9) {
                0 => {
                    let f = self
                        .choices
                        .pick(&["abs", "exp", "sin", "floor", "sqrt", "tanh", "log", "rint", "sign"]);
                    format!("{f}({a})")
                }
                1 => {
                    let f = self.choices.pick(&["min", "max", "fmod", "pow", "fmin"]);
                    format!("{f}({a}, {b})")
                }
                2 => format!("({a} / {b})"),
                3 => format!("fma({a}, {b}, {a})"),
                4 if ty != Float4 => format!("twice<{name}>({a})"),
                5 => format!("clamp({a}, {name}(-3.0f), {name}(5.0f))"),
                6 => format!("(- {a})"),
                _ => {
                    let op = self.choices.pick(&["+", "-", "*"]);
                    format!("({a} {op} {b})")
                }
            };
        }
        debug_assert!(ty.is_integer());
        match self.choices.below(9) {
            // Avoid division by zero and overflow.
            0 if !matches!(ty, Int2) => {
                let op = self.choices.pick(&["/", "%"]);
                format!("{name}({a} {op} {name}(({b} & 7) + 1))")
            }
            1 => {
                let by = self.choices.below(if matches!(ty, Short | Byte) { 7 } else { 31 });
                let op = self.choices.pick(&["<<", ">>"]);
                format!("{name}({a} {op} {by})")
            }
            2 => {
                let f = self.choices.pick(&["min", "max", "absdiff"]);
                let f = if ty == Int2 && f == "absdiff" { "min" } else { f };
                format!("{name}({f}({name}({a}), {name}({b})))")
            }
            3 if matches!(ty, Int | Uint) => {
                let f = self.choices.pick(&["popcount", "clz", "ctz", "reverse_bits"]);
                format!("{f}({a})")
            }
            4 => format!("{name}(~{a})"),
            5 => {
                let op = self.choices.pick(&["&", "|", "^"]);
                format!("{name}({a} {op} {b})")
            }
            _ => {
                let op = self.choices.pick(&["+", "-", "*"]);
                format!("{name}({a} {op} {b})")
            }
        }
    }
}

fn job(header: &str, body: &str) -> Result<Job, String> {
    let error = |error: hesper_kernel::custom::CustomKernelError| error.to_string();
    let kernel =
        CustomKernel::new("generated", &["x", "k", "h"], &["out", "outi"], body, header, true, false)
            .map_err(error)?;
    let (float, int) = (KernelDtype::Scalar(Scalar::F32), KernelDtype::Scalar(Scalar::I32));
    let input = |dtype| InputInfo { dtype, ndim: 1, size: GRID_THREADS };
    let call = CallInfo {
        inputs: vec![input(float), input(int), input(KernelDtype::Scalar(Scalar::F16))],
        template: Vec::new(),
        output_dtypes: vec![float, int],
    };
    let special = kernel.specialise(&call).map_err(error)?;
    let special_values = [0.0f32, -0.0, 1.5, -2.25, 1e30, -1e-30, f32::INFINITY, 3.0, f32::NAN, 1e-42];
    let count = GRID_THREADS as usize;
    let (mut args, mut elements) = (Vec::new(), Vec::new());
    for binding in &special.bindings {
        let (bytes, element): (Vec<u8>, _) = match binding {
            Binding::Input(0) => {
                ((0..count).flat_map(|i| special_values[i % 10].to_le_bytes()).collect(), None)
            }
            Binding::Input(1) => {
                let ints = [0, 1, -1, i32::MAX, i32::MIN, 7, 31, -32, 1000, -65536];
                (
                    (0..count)
                        .flat_map(|i| i32::wrapping_add(ints[i % 10], i as i32 / 10).to_le_bytes())
                        .collect(),
                    None,
                )
            }
            Binding::Input(_) => {
                let halves = [0u16, 0x8000, 0x3c00, 0xbe00, 0x7bff, 0x0001, 0x7c00, 0x4500, 0x7e00, 0x3555];
                ((0..count).flat_map(|i| halves[i % 10].to_le_bytes()).collect(), None)
            }
            Binding::Output(0) => (vec![0; count * 4], Some(Scalar::F32)),
            _ => (vec![0; count * 4], Some(Scalar::I32)),
        };
        args.push(bytes);
        elements.push(element);
    }
    let launch = Launch::linear(GRID_THREADS, GROUP_THREADS).map_err(|error| error.to_string())?;
    Ok(Job { kernel: special.kernel, launch, args, elements })
}
