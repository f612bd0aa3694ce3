//! Metal texts on the simulated GPU: the kernel language's front end parses them, and its reference
//! interpreter runs them with the sanitizer. A finding is an error of the dispatch.

use std::borrow::Cow;
use std::sync::Arc;

use hesper_kernel::front::diag::Severity;
use hesper_kernel::front::{CompileError, FunctionConstant, compile_specialised};
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, Op, ParamKind, Scalar, Space};
use hesper_kernel::launch::{Arg, Bindings, Launch as KernelLaunch};

use super::{Launch, SimCompiler, SimFunction, SimFunctions, SimText};
use crate::edge::{self, ConstantType};

/// Offsets of buffers in constant memory are multiples of it.
const CONSTANT_ALIGNMENT: usize = 4;

/// A compiler for any text that the front end takes.
pub fn compiler() -> SimCompiler {
    Arc::new(compile)
}

fn compile(text: &SimText<'_>) -> Result<SimFunctions, String> {
    let constants: Vec<FunctionConstant> = text.constants.iter().map(constant).collect();
    let compiled = compile_specialised("program_source", text.text, &constants);
    let compiled = compiled.map_err(|error| message(&error))?;
    let function = |kernel: Kernel| {
        let name = kernel.name.clone();
        let threadgroup_memory = kernel.declared_threadgroup_memory() as usize;
        let run = move |launch: &Launch<'_>| interpret(&kernel, launch);
        (name, SimFunction { run: Arc::new(run), divisible: false, threadgroup_memory })
    };
    let unspecialised = compiled.unspecialised.into_iter();
    Ok(SimFunctions {
        functions: compiled.kernels.into_iter().map(function).collect(),
        unspecialised: unspecialised.map(|kernel| (kernel.name.clone(), kernel.to_string())).collect(),
    })
}

fn constant(constant: &edge::FunctionConstant) -> FunctionConstant {
    let ty = match constant.ty {
        ConstantType::Bool => Scalar::Bool,
        ConstantType::Char => Scalar::I8,
        ConstantType::UChar => Scalar::U8,
        ConstantType::Short => Scalar::I16,
        ConstantType::UShort => Scalar::U16,
        ConstantType::Int => Scalar::I32,
        ConstantType::UInt => Scalar::U32,
        ConstantType::Long => Scalar::I64,
        ConstantType::ULong => Scalar::U64,
        ConstantType::Float => Scalar::F32,
    };
    let mut bytes = [0; 8];
    bytes[..constant.bytes.len()].copy_from_slice(&constant.bytes);
    FunctionConstant { index: constant.index as u64, ty, bits: u64::from_le_bytes(bytes) }
}

/// Errors in the form of Metal's compiler, a line for each.
fn message(error: &CompileError) -> String {
    let mut lines = Vec::new();
    for found in error.diagnostics.iter().filter(|found| found.severity == Severity::Error) {
        let (file, line, column) = error.sources.place(error.sources.user_span(found.span));
        lines.push(format!("{file}:{line}:{column}: error: {}", found.message));
    }
    lines.join("\n")
}

/// The kernel with the lengths that the host has set for its threadgroup arguments.
fn with_lengths<'a>(kernel: &'a Kernel, launch: &Launch<'_>) -> Result<Cow<'a, Kernel>, String> {
    let mut sized = Cow::Borrowed(kernel);
    for (at, var) in kernel.threadgroup_vars.iter().enumerate() {
        let Some(index) = var.argument else { continue };
        let Some(length) = launch.threadgroup_length(index) else {
            return Err(format!("kernel {}: threadgroup argument {index} has no length", kernel.name));
        };
        sized.to_mut().threadgroup_vars[at].size = length as u64;
    }
    Ok(sized)
}

fn interpret(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), String> {
    for param in &kernel.params {
        let index = param.index as usize;
        let offset = launch.offset(index);
        if matches!(param.kind, ParamKind::Buffer { space: Space::Constant, .. })
            && !offset.is_multiple_of(CONSTANT_ALIGNMENT)
        {
            return Err(format!(
                "kernel {}: buffer {index} in constant memory is bound at the offset {offset}, no multiple of \
                 {CONSTANT_ALIGNMENT}",
                kernel.name
            ));
        }
    }
    let bound: Vec<(Option<(*mut u8, usize)>, bool)> = kernel
        .params
        .iter()
        .map(|param| match &param.kind {
            ParamKind::Buffer { access, .. } => (launch.raw(param.index as usize).ok(), access.writes()),
            ParamKind::Value(_) => (None, false),
        })
        .collect();
    let kernel = &*with_lengths(kernel, launch)?;
    let mut used = vec![false; kernel.params.len()];
    for inst in kernel.blocks.iter().flat_map(|block| &block.insts) {
        if let Op::ParamPtr(at) | Op::Param(at) = inst.op {
            used[at as usize] = true;
        }
    }
    // Metal binds an address, and no length. What a kernel writes ends where the next argument begins.
    let end_of = |index: usize, address: *mut u8, len: usize| {
        let later = bound.iter().enumerate().filter_map(|(other, (place, writes))| {
            let (place, _) = (*place)?;
            (other != index && (*writes || bound[index].1) && place > address).then_some(place.addr())
        });
        later.min().map_or(len, |end| len.min(end - address.addr()))
    };
    let arguments = bound.iter().enumerate().map(|(index, (place, writes))| match place {
        // SAFETY: the range is inside of a live buffer, and one dispatch runs at a time.
        Some((address, len)) => unsafe {
            Ok(Arg::from_raw(*address, end_of(index, *address, *len) as u64, *writes))
        },
        None => match launch.bytes(kernel.params[index].index as usize) {
            Some(bytes) => Ok(Arg::read(bytes)),
            // An argument that depends on a function constant may be missing.
            None if !used[index] => Ok(Arg::read(&[])),
            None => Err(format!("buffer {} is null", kernel.params[index].index)),
        },
    });
    let arguments = arguments.collect::<Result<_, String>>()?;
    let mut bindings = Bindings::new(arguments).map_err(|error| error.to_string())?;
    let size = KernelLaunch::new(launch.grid, launch.threadgroup).map_err(|error| error.to_string())?;
    let report = interp::run(kernel, &size, &mut bindings, &interp::Options::checked())
        .map_err(|error| error.to_string())?;
    match report.findings.first() {
        Some(finding) => Err(finding.to_string()),
        None => Ok(()),
    }
}
