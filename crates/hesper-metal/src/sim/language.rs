//! Metal texts on the simulated GPU: the kernel language's front end parses them, and its reference
//! interpreter runs them with the sanitizer. A finding is an error of the dispatch.

use std::collections::HashMap;
use std::sync::Arc;

use hesper_kernel::front::diag::Severity;
use hesper_kernel::front::{CompileError, compile_file};
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind, Space};
use hesper_kernel::launch::{Arg, Bindings, Launch as KernelLaunch};

use super::{Launch, SimCompiler, SimFunction, SimText};

/// Offsets of buffers in constant memory are multiples of it.
const CONSTANT_ALIGNMENT: usize = 4;

/// A compiler for any text that the front end takes. Texts have no function constants.
pub fn compiler() -> SimCompiler {
    Arc::new(compile)
}

fn compile(text: &SimText<'_>) -> Result<HashMap<String, SimFunction>, String> {
    let compiled = compile_file("program_source", text.text).map_err(|error| message(&error))?;
    let function = |kernel: Kernel| {
        let name = kernel.name.clone();
        let threadgroup_memory = kernel.threadgroup_layout().0 as usize;
        let run = move |launch: &Launch<'_>| interpret(&kernel, launch);
        (name, SimFunction { run: Arc::new(run), divisible: false, threadgroup_memory })
    };
    Ok(compiled.kernels.into_iter().map(function).collect())
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

fn interpret(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), String> {
    for (index, param) in kernel.params.iter().enumerate() {
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
        .enumerate()
        .map(|(index, param)| match &param.kind {
            ParamKind::Buffer { access, .. } => (launch.raw(index).ok(), access.writes()),
            ParamKind::Value(_) => (None, false),
        })
        .collect();
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
        None => launch.bytes(index).map(Arg::read).ok_or_else(|| format!("buffer {index} is null")),
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
