//! The frame of a kernel's text (prelude, tables, entry, memory, variables), and the kernels that Metal
//! cannot express.

use super::prelude;
use super::{EmitError, MAX_BUFFERS, MetalSource, Options, Slot, THREADGROUP_LIMIT};
use crate::cpp::scalar;
use crate::cpp::writer::{Writer, parameters, writes_by};
use crate::function::Function;
use crate::ir::*;
use std::collections::BTreeMap;

/// Writes the text of one kernel.
pub(super) struct Emitter<'a> {
    writer: Writer<'a>,
    pub options: Options,
    /// Attributes of the entry that the text uses, and whether they have axes.
    pub attributes: BTreeMap<&'static str, bool>,
    /// How many of the first parameters are arguments of a function.
    pub arguments: usize,
}

writes_by!(Emitter);

impl<'a> Emitter<'a> {
    /// `proven` are accesses known to be in range.
    pub fn new(kernel: &'a Kernel, options: Options, proven: &[bool]) -> Self {
        let mut writer = Writer::new(kernel, options.bounds, proven);
        // The entry is written around its body.
        writer.indent = 1;
        Emitter { writer, options, attributes: BTreeMap::new(), arguments: 0 }
    }

    pub fn run(mut self) -> Result<MetalSource, EmitError> {
        let (slots, shared) = frame(self.kernel, self.options)?;
        let entry = self.entry_name();
        self.constants();
        if shared > 0 {
            self.line(&format!("threadgroup uint4 shared[{}];", shared / 16));
        }
        if shared > 0 && self.options.zero_memory {
            self.attribute("thread_index_in_threadgroup", false);
            self.attribute("threads_per_threadgroup", true);
            self.line("const uint3 size = threads_per_threadgroup;");
            self.line("const uint step = size.x * size.y * size.z;");
            self.line(&format!(
                "for (uint i = thread_index_in_threadgroup; i < {}u; i += step) shared[i] = uint4(0u);",
                shared / 16
            ));
            self.line("threadgroup_barrier(mem_flags::mem_threadgroup);");
        }
        self.locals();
        let body = self.kernel.body;
        self.block(body);
        let mut parameters: Vec<String> =
            slots.iter().enumerate().map(|(at, slot)| self.parameter(*slot, at)).collect();
        parameters.extend(self.attributes.iter().map(|(name, axes)| {
            let ty = if *axes { "uint3" } else { "uint" };
            format!("{ty} {name} [[{name}]]")
        }));
        let body =
            format!("{}kernel void {entry}({}) {{\n{}}}\n", self.tables(), parameters.join(", "), self.text);
        let text = prelude::complete(&body, self.options.bounds);
        Ok(MetalSource { text, entry, slots, threadgroup_bytes: shared })
    }

    /// The text of a function; its index has the name of the attribute.
    fn function(function: &'a Function, name: &str) -> Result<String, EmitError> {
        let (kernel, arguments) = (function.kernel(), function.arguments());
        refuse(kernel)?;
        let mut emitter = Emitter { arguments, ..Emitter::new(kernel, Options::default(), &[]) };
        emitter.constants();
        emitter.locals();
        emitter.block(kernel.body);
        for (at, value) in function.results().iter().enumerate() {
            emitter.store_result(*value, at);
        }
        let given = if arguments > 0 { "const thread u8* arguments, " } else { "" };
        let buffers =
            parameters(kernel, true).map(|i| format!("const device u8* p{i}, ")).collect::<String>();
        Ok(format!(
            "HESPER_FN void {name}(thread u8* out, const uint3 thread_position_in_grid, {given}{buffers}const constant \
             u8* constants) {{\n{}}}\n",
            emitter.text
        ))
    }

    /// Constant tables, as words.
    fn tables(&self) -> String {
        let mut text = String::new();
        for (i, table) in self.kernel.const_vars.iter().enumerate() {
            let rows: Vec<String> = (0..table.data.len().max(1))
                .step_by(16)
                .map(|at| {
                    let byte = |k: usize| u32::from(table.data.get(at + k).copied().unwrap_or(0));
                    let word = |w: usize| (0..4).fold(0, |word, k| word | byte(4 * w + k) << (8 * k));
                    format!("uint4({:#x}u, {:#x}u, {:#x}u, {:#x}u)", word(0), word(1), word(2), word(3))
                })
                .collect();
            text += &format!("constant uint4 c{i}[{}] = {{{}}};\n", rows.len(), rows.join(", "));
        }
        text
    }

    fn parameter(&self, slot: Slot, at: usize) -> String {
        let declared = match slot {
            Slot::Buffer(i) => match self.kernel.params[i as usize].kind {
                ParamKind::Buffer { space: Space::Constant, .. } => format!("const constant u8* p{i}"),
                ParamKind::Buffer { access: Access::Read, .. } => format!("const device u8* p{i}"),
                _ => format!("device u8* p{i}"),
            },
            Slot::Constants => "const constant u8* constants".to_string(),
            Slot::Report => "device u64* report".to_string(),
        };
        format!("{declared} [[buffer({at})]]")
    }

    /// The addresses of by-value parameters and of the lengths of buffers.
    fn constants(&mut self) {
        let kernel = self.kernel;
        let mut at = 0;
        for (i, param) in kernel.params.iter().enumerate() {
            let ParamKind::Value(ty) = param.kind else { continue };
            if i < self.arguments {
                let place = ty.size() * i as u64;
                self.line(&format!("const thread u8* const p{i} = arguments + {place};"));
            } else {
                self.line(&format!("const constant u8* const p{i} = constants + {at};"));
                at += ty.size().next_multiple_of(8);
            }
        }
        if self.options.bounds && parameters(kernel, true).next().is_some() {
            self.line(&format!(
                "const constant u64* const lengths = (const constant u64*)(constants + {at});"
            ));
        }
    }

    fn locals(&mut self) {
        let kernel = self.kernel;
        let init = if self.options.zero_memory { " = {}" } else { "" };
        for (i, v) in kernel.thread_vars.iter().enumerate() {
            self.line(&format!("uint4 t{i}[{}]{init};", v.size.max(1).div_ceil(16)));
        }
        for (i, v) in kernel.vars.iter().enumerate() {
            let text = format!("{} x{i} = {};", self.type_of(v.ty), self.zero(v.ty));
            self.line(&text);
        }
    }

    /// The zero of a type.
    pub(super) fn zero(&self, ty: Type) -> String {
        match ty {
            Type::Ptr(space) => self.null(space),
            Type::Scalar(s) => scalar::constant(s, 0),
            Type::Vec(s, n) => {
                let zeros = vec![scalar::constant(s, 0); usize::from(n)];
                format!("{}{{{}}}", scalar::type_name(ty), zeros.join(", "))
            }
        }
    }
}

/// The text of functions behind the prelude that they need.
pub(super) fn functions(functions: &[(&str, &Function)]) -> Result<String, EmitError> {
    let texts = functions.iter().map(|(name, function)| Emitter::function(function, name));
    let text = texts.collect::<Result<String, EmitError>>()?;
    Ok(format!("{}{}", prelude::FUNCTION, prelude::behind_head(&text, false)))
}

/// The parameters of the entry and the bytes of threadgroup memory, or why the kernel cannot be written.
pub(super) fn frame(kernel: &Kernel, options: Options) -> Result<(Vec<Slot>, u64), EmitError> {
    refuse(kernel)?;
    let slots = slots(kernel, options)?;
    let shared = kernel.threadgroup_layout().0.next_multiple_of(16);
    if shared > THREADGROUP_LIMIT {
        return Err(EmitError::ThreadgroupMemory { kernel: kernel.name.clone(), bytes: shared });
    }
    Ok((slots, shared))
}

/// Refuses kernels with values of f64 or 64-bit atomics, which Metal does not have.
fn refuse(kernel: &Kernel) -> Result<(), EmitError> {
    let double = |value: String| Err(EmitError::Double { kernel: kernel.name.clone(), value });
    for param in &kernel.params {
        if matches!(param.kind, ParamKind::Value(ty) if ty.scalar() == Some(Scalar::F64)) {
            return double(format!("parameter {}", param.name));
        }
    }
    if let Some(var) = kernel.vars.iter().find(|v| v.ty.scalar() == Some(Scalar::F64)) {
        return double(format!("variable {}", var.name));
    }
    for inst in kernel.blocks.iter().flat_map(|b| &b.insts) {
        let place = || match kernel.loc_chain(inst.loc).first() {
            Some(at) => format!("line {}:{}", at.line, at.column),
            None => format!("instruction {:?}", inst.op),
        };
        if inst.result.is_some_and(|v| kernel.ty(v).scalar() == Some(Scalar::F64)) {
            return double(format!("the value of {}", place()));
        }
        let atomic = match inst.op {
            Op::AtomicRmw { value, .. } | Op::AtomicStore { value, .. } => Some(value),
            Op::AtomicCompareExchange { desired, .. } => Some(desired),
            Op::AtomicLoad { .. } => inst.result,
            _ => None,
        };
        if atomic.is_some_and(|v| kernel.ty(v).size() > 4) {
            return Err(EmitError::WideAtomic { kernel: kernel.name.clone(), value: place() });
        }
    }
    Ok(())
}

fn slots(kernel: &Kernel, options: Options) -> Result<Vec<Slot>, EmitError> {
    let mut slots: Vec<Slot> = parameters(kernel, true).map(Slot::Buffer).collect();
    let has_lengths = options.bounds && !slots.is_empty();
    if has_lengths || parameters(kernel, false).next().is_some() {
        slots.push(Slot::Constants);
    }
    if options.bounds {
        slots.push(Slot::Report);
    }
    match slots.len() {
        ..=MAX_BUFFERS => Ok(slots),
        count => Err(EmitError::TooManyBuffers { kernel: kernel.name.clone(), count }),
    }
}
