//! The front end: kernel text to IR.
//!
//! `preprocess` and `parser` turn texts into a syntax tree; `lower` checks and lowers it. The front end runs
//! on a thread of its own with a large stack, so that a deeply nested text reaches the depth limit before the
//! stack overflows. No text makes it panic or hang: depth, size and work are bounded.

pub mod ast;
pub mod attributes;
pub mod diag;
pub mod lexer;
pub(crate) mod lower;
pub mod parser;
pub mod preprocess;
pub mod source;
pub mod types;

use crate::ir::{Kernel, Scalar};
use diag::{Diagnostic, ErrorKind, Severity, Sink, render};
use lower::{Body, EntryParam, Lowered, Unit};
use parser::{Names, Parser};
use preprocess::Preprocessor;
use source::{Sources, Span};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Longest text that is compiled, header and body together.
pub const MAX_TEXT: usize = 4 << 20;
/// The part of the library written in the dialect itself.
const PRELUDE: &str = concat!(include_str!("../custom/names.metal"), include_str!("prelude.metal"));
/// Stack of the compiling thread; untouched pages cost nothing.
const STACK: usize = 256 << 20;

/// Why a text was refused: every error found, as values and as text.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct CompileError {
    /// The errors and warnings, in the order found.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts that the diagnostics point into.
    pub sources: Sources,
    text: String,
}

/// A compiled text.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The kernels that can run, in the order of their declarations and instantiations.
    pub kernels: Vec<Kernel>,
    /// The kernels that need values of function constants.
    pub unspecialised: Vec<Unspecialised>,
    /// Warnings as text; empty if there are none.
    pub warnings: String,
}

/// The value of a function constant: `constant uint width [[function_constant(0)]];`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionConstant {
    /// Its index in the text.
    pub index: u64,
    /// Its type, which must be the one declared in the text.
    pub ty: Scalar,
    /// Its value, in the low bits.
    pub bits: u64,
}

/// A kernel that cannot run before its function constants have values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unspecialised {
    /// The name of the kernel.
    pub name: String,
    /// The constants without a value: index and name.
    pub constants: Vec<(u64, String)>,
}

impl std::fmt::Display for Unspecialised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list: Vec<String> =
            self.constants.iter().map(|(index, name)| format!("`{name}` ({index})")).collect();
        write!(f, "kernel `{}` needs values of the function constants {}", self.name, list.join(", "))
    }
}

/// The prelude, parsed once: its text, its declarations and the names it brings into scope.
struct Library {
    sources: Sources,
    items: Vec<ast::Item>,
    names: Names,
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut sources = Sources::default();
        let mut sink = Sink::default();
        let prelude = sources.add("library", PRELUDE);
        let tokens = Preprocessor::new(&mut sources).run(prelude, &mut sink);
        let (items, names) = Parser::new(tokens, Names::default(), true, &mut sink).parse_items();
        debug_assert!(sink.is_empty(), "the prelude does not parse");
        Library { sources, items, names }
    })
}

fn render_all(sources: &Sources, list: &[Diagnostic], wanted: Severity) -> String {
    let mut out = String::new();
    for d in list.iter().filter(|d| d.severity == wanted) {
        out.push_str(&render(sources, d));
    }
    out
}

fn finish(sources: Sources, sink: Sink, lowered: Vec<Lowered>) -> Result<Compiled, CompileError> {
    let failed = sink.has_errors();
    let diagnostics = sink.into_vec();
    if failed {
        let text = render_all(&sources, &diagnostics, Severity::Error);
        return Err(CompileError { diagnostics, sources, text });
    }
    let warnings = render_all(&sources, &diagnostics, Severity::Warning);
    let (mut kernels, mut unspecialised) = (Vec::new(), Vec::new());
    for (kernel, unset) in lowered {
        if unset.is_empty() {
            kernels.push(kernel);
        } else {
            let constants = unset.into_iter().map(|(index, name)| (index, name.to_string())).collect();
            unspecialised.push(Unspecialised { name: kernel.name, constants });
        }
    }
    Ok(Compiled { kernels, unspecialised, warnings })
}

/// An error without a location in the text.
fn refused(text: &str) -> CompileError {
    let mut sources = Sources::default();
    let file = sources.add("kernel", "");
    let span = Span { file, lo: 0, hi: 0, expansion: 0 };
    let d = Diagnostic::error(ErrorKind::Limit, span, text);
    CompileError { text: format!("error[limit]: {text}\n"), diagnostics: vec![d], sources }
}

/// Runs the compiler on a thread with a large stack.
fn on_large_stack<T: Send>(f: impl FnOnce() -> Result<T, CompileError> + Send) -> Result<T, CompileError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("kernel compiler".into()).stack_size(STACK);
        match thread.spawn_scoped(scope, f) {
            Ok(handle) => match handle.join() {
                Ok(r) => r,
                Err(_) => Err(refused("the compiler failed on this text; please report it")),
            },
            Err(_) => Err(refused("no thread could be started to compile the kernel")),
        }
    })
}

fn too_long(sink: &mut Sink, span: Span, length: usize) -> bool {
    if length > MAX_TEXT {
        let text = format!("the text is {length} bytes long; {MAX_TEXT} are allowed");
        sink.push(Diagnostic::error(ErrorKind::Limit, span, text));
    }
    length > MAX_TEXT
}

/// Compiles a whole file: every `kernel` function and every explicit instantiation in it.
///
/// ```
/// let text = "kernel void twice(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n\
///             \tx[i] *= 2;\n}";
/// let compiled = hesper_kernel::front::compile_file("twice.metal", text).unwrap();
/// assert_eq!(compiled.kernels[0].name, "twice");
/// ```
pub fn compile_file(label: &str, text: &str) -> Result<Compiled, CompileError> {
    compile_specialised(label, text, &[])
}

/// Compiles a whole file, with values of its function constants.
///
/// ```
/// use hesper_kernel::front::{FunctionConstant, compile_specialised};
/// use hesper_kernel::ir::Scalar;
/// let text = "constant uint step [[function_constant(0)]];\n\
///             kernel void scale(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n\
///             \tx[i * step] *= 2;\n}";
/// assert!(compile_specialised("scale.metal", text, &[]).unwrap().kernels.is_empty());
/// let step = FunctionConstant { index: 0, ty: Scalar::U32, bits: 4 };
/// assert_eq!(compile_specialised("scale.metal", text, &[step]).unwrap().kernels.len(), 1);
/// ```
pub fn compile_specialised(
    label: &str,
    text: &str,
    constants: &[FunctionConstant],
) -> Result<Compiled, CompileError> {
    on_large_stack(|| {
        let library = library();
        let mut sources = library.sources.clone();
        let mut sink = Sink::default();
        let file = sources.add(label, text);
        let start = Span { file, lo: 0, hi: 0, expansion: 0 };
        if too_long(&mut sink, start, text.len()) {
            return finish(sources, sink, Vec::new());
        }
        let mut pre = Preprocessor::new(&mut sources);
        let tokens = pre.run(file, &mut sink);
        let (items, names) = Parser::new(tokens, library.names.clone(), false, &mut sink).parse_items();
        let mut kernels = Vec::new();
        if !sink.has_errors() {
            let namespaces = names.namespaces().clone();
            let unit = Unit { library: &library.items, items, namespaces, constants: constants.to_vec() };
            kernels = lower::lower_kernels(&unit, &sources, &mut sink);
        }
        finish(sources, sink, kernels)
    })
}

/// The texts and parameters of one specialisation of a custom kernel.
pub(crate) struct BodySource<'a> {
    pub name: &'a str,
    pub header: &'a str,
    pub body: &'a str,
    pub params: Vec<(String, lower::ParamSpec)>,
}

/// Compiles the body of a custom kernel.
pub(crate) fn compile_body(source: BodySource<'_>) -> Result<(Kernel, String), CompileError> {
    on_large_stack(move || {
        let library = library();
        let mut sources = library.sources.clone();
        let mut sink = Sink::default();
        let header = sources.add("header", source.header);
        let body = sources.add("body", source.body);
        let start = Span { file: body, lo: 0, hi: 0, expansion: 0 };
        let first = |c: Compiled| match c.kernels.into_iter().next() {
            Some(k) => Ok((k, c.warnings)),
            None => Err(refused("the compiler gave no kernel for this text; please report it")),
        };
        if too_long(&mut sink, start, source.header.len().saturating_add(source.body.len())) {
            return finish(sources, sink, Vec::new()).and_then(first);
        }
        let mut pre = Preprocessor::new(&mut sources);
        let header_tokens = pre.run(header, &mut sink);
        let body_tokens = pre.run(body, &mut sink);
        let (items, mut names) =
            Parser::new(header_tokens, library.names.clone(), false, &mut sink).parse_items();
        let mut params = Vec::new();
        for (name, spec) in source.params {
            match spec {
                lower::ParamSpec::Type(_) => names.add_type(&name),
                _ => names.add_value(&name),
            }
            params.push(EntryParam { name: name.as_str().into(), id: names.fresh(), spec });
        }
        let (block, assigned, names) = Parser::new(body_tokens, names, false, &mut sink).parse_body();
        let mut kernels = Vec::new();
        if !sink.has_errors() {
            let namespaces = names.namespaces().clone();
            let unit = Unit { library: &library.items, items, namespaces, constants: Vec::new() };
            let entry =
                Body { name: source.name, block: &block, assigned: &assigned, params: &params, span: start };
            let kernel = lower::lower_body(&unit, &sources, &entry, &mut sink);
            kernels.extend(kernel.map(|kernel| (kernel, BTreeSet::new())));
        }
        finish(sources, sink, kernels).and_then(first)
    })
}
