//! The frame of a kernel's text: prelude, tables, entry, memory, variables.

use super::analysis::{Flow, flows, ignores_threadgroups, turns};
use super::control::JumpScope;
use super::memory::{memory_type, to_memory};
use super::prelude::{is_plain, needed, sections};
use super::{CudaSource, Options, STATIC_SHARED_LIMIT, Slot};
use crate::cpp::scalar::type_name;
use crate::cpp::writer::{Writer, parameters, writes_by};
use crate::function::Function;
use crate::ir::*;

/// Writes the text of one kernel.
pub(super) struct Emitter<'a> {
    writer: Writer<'a>,
    pub options: Options,
    pub flows: Vec<Flow>,
    pub scopes: Vec<JumpScope>,
    /// The most grid threads that one CUDA thread handles.
    pub turns: u32,
    /// Whether the text is a function of the thread's position.
    pub is_function: bool,
}

writes_by!(Emitter);

impl<'a> Emitter<'a> {
    /// `proven` are accesses known to be in range.
    pub fn new(kernel: &'a Kernel, options: Options, proven: &[bool]) -> Self {
        Emitter {
            writer: Writer::new(kernel, options.bounds, proven),
            options,
            flows: flows(kernel),
            scopes: Vec::new(),
            turns: turns(kernel),
            is_function: false,
        }
    }

    /// The text of a function.
    fn function(function: &'a Function, name: &str, options: Options) -> String {
        let (kernel, arguments) = (function.kernel(), function.arguments());
        let mut emitter = Emitter { turns: 1, is_function: true, ..Emitter::new(kernel, options, &[]) };
        let buffers = parameters(kernel, true).map(|i| format!("const u8* p{i}, ")).collect::<String>();
        let given = if arguments > 0 { "const u8* arguments, " } else { "" };
        emitter.line(&format!(
            "HESPER_FN void {name}(u8* out, const u64 index, {given}{buffers}const u8* constants) {{"
        ));
        emitter.indent = 1;
        for (at, i) in parameters(kernel, false).enumerate() {
            if let ParamKind::Value(ty) = kernel.params[i as usize].kind {
                let (size, ty) = (ty.size() as usize, type_name(memory_type(ty)));
                let (align, from, offset) = match at.checked_sub(arguments) {
                    None => (size, "arguments", size * at),
                    Some(at) => (8, "constants", 8 * at),
                };
                emitter.line(&format!("const {ty} p{i} = load<{align}, {ty}>({from} + {offset});"));
            }
        }
        emitter.locals();
        emitter.block(kernel.body, None);
        for (at, value) in function.results().iter().enumerate() {
            let ty = kernel.ty(*value);
            let (size, value) = (ty.size(), to_memory(ty, &format!("v{}", value.0)));
            emitter.line(&format!("store<{size}>(out + {}, {value});", size as usize * at));
        }
        emitter.indent = 0;
        emitter.line("}");
        emitter.writer.text
    }

    pub fn run(mut self) -> CudaSource {
        let entry = self.entry_name();
        self.tables();
        let slots = self.slots();
        let shared = self.kernel.threadgroup_layout().0.next_multiple_of(16);
        let dynamic = shared > STATIC_SHARED_LIMIT;
        let align = alignment(&self.kernel.threadgroup_vars);
        if dynamic {
            self.line(&format!("extern __shared__ __align__({align}) u8 shared[];"));
        }
        let parameters: Vec<String> = slots.iter().map(|s| self.parameter(*s)).collect();
        self.line(&format!(
            "extern \"C\" __global__ void __launch_bounds__({}) {entry}({}) {{",
            self.options.max_threads,
            parameters.join(", ")
        ));
        self.indent = 1;
        let (turns, flat) = (self.turns, self.options.flat);
        if turns > 1 {
            self.line(&format!("in_turns<{turns}u, {flat}>(grid, [&](const thread_place& at) {{"));
            self.indent = 2;
        } else if ignores_threadgroups(self.kernel) && shared == 0 {
            self.line("thread_place at;");
            self.line(&format!("if (!alone_at<{flat}>(grid, at)) return;"));
        } else {
            self.line("const thread_place at = place_of(grid);");
            self.line("if (at.index >= at.threads) return;");
        }
        if shared > 0 && !dynamic {
            self.line(&format!("__shared__ __align__({align}) u8 shared[{shared}];"));
        }
        if shared > 0 && self.options.zero_memory {
            self.line(&format!("zero(shared, {shared}u, at.index, at.threads);"));
            self.line("threadgroup_barrier();");
        }
        self.locals();
        let body = self.kernel.body;
        let mask = self.flows[body.index()].lanes.then(|| self.fresh());
        if let Some(m) = mask {
            self.line(&format!("const u32 m{m} = lanes_of(at);"));
        }
        self.block(body, mask);
        if turns > 1 {
            self.indent = 1;
            self.line("});");
        }
        self.indent = 0;
        self.line("}");
        let sections = sections(self.kernel, self.options.bounds, self.options.fast_half);
        let mut text = needed(&sections, &self.text);
        let plain = turns == 1 && is_plain(self.kernel, &sections);
        text.push_str(&self.text);
        CudaSource {
            text,
            entry,
            slots,
            static_shared: if dynamic { 0 } else { shared },
            dynamic_shared: if dynamic { shared } else { 0 },
            turns,
            plain,
        }
    }

    /// Constant tables, as words.
    fn tables(&mut self) {
        for (i, table) in self.kernel.const_vars.iter().enumerate() {
            let words: Vec<String> = table
                .data
                .chunks(8)
                .map(|c| {
                    let mut word = [0; 8];
                    word[..c.len()].copy_from_slice(c);
                    format!("{:#x}ull", u64::from_le_bytes(word))
                })
                .collect();
            let align = table.align.max(16);
            let words = if words.is_empty() { "0ull".to_string() } else { words.join(", ") };
            self.line(&format!("static __device__ const __align__({align}) u64 c{i}[] = {{{words}}};"));
        }
    }

    fn slots(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = parameters(self.kernel, true).map(Slot::Buffer).collect();
        slots.extend(parameters(self.kernel, false).map(Slot::Value));
        if self.options.bounds {
            slots.extend(parameters(self.kernel, true).map(Slot::Length));
            slots.push(Slot::Report);
        }
        slots.push(Slot::Grid);
        slots
    }

    fn parameter(&self, slot: Slot) -> String {
        match slot {
            Slot::Buffer(i) => match self.kernel.params[i as usize].kind {
                // Memory that no thread writes may be read early; memory that is written must respect
                // barriers.
                ParamKind::Buffer { access: Access::Read, .. } => format!("const u8* __restrict__ p{i}"),
                _ => format!("u8* p{i}"),
            },
            Slot::Value(i) => match self.kernel.params[i as usize].kind {
                ParamKind::Value(ty) => format!("const {} p{i}", type_name(memory_type(ty))),
                ParamKind::Buffer { .. } => String::new(),
            },
            Slot::Length(i) => format!("const u64 n{i}"),
            Slot::Report => "u64* report".to_string(),
            Slot::Grid => "const launch_grid grid".to_string(),
        }
    }

    fn locals(&mut self) {
        let kernel = self.kernel;
        for (i, v) in kernel.thread_vars.iter().enumerate() {
            let size = v.size.max(1).next_multiple_of(16);
            let align = alignment(std::slice::from_ref(v));
            let init = if self.options.zero_memory { " = {}" } else { "" };
            self.line(&format!("__align__({align}) u8 t{i}[{size}]{init};"));
        }
        for (i, v) in kernel.vars.iter().enumerate() {
            let ty = self.type_of(v.ty);
            self.line(&format!("{ty} x{i} = {};", zero_value(v.ty, self.options.bounds)));
        }
    }
}

/// The text of functions behind the prelude that they need.
pub(super) fn functions(functions: &[(&str, &Function)], options: Options) -> String {
    let (mut text, mut wanted) = (String::new(), Vec::new());
    for (name, function) in functions {
        text += &Emitter::function(function, name, options);
        wanted.extend(sections(function.kernel(), options.bounds, options.fast_half));
    }
    wanted.sort_unstable();
    wanted.dedup();
    needed(&wanted, &text) + &text
}

fn zero_value(ty: Type, bounds: bool) -> String {
    match ty {
        Type::Ptr(_) if bounds => "{}".to_string(),
        Type::Ptr(_) => "(u8*)0".to_string(),
        _ => "{}".to_string(),
    }
}

fn alignment(vars: &[MemVar]) -> u32 {
    vars.iter().map(|v| v.align).max().unwrap_or(1).max(16)
}
