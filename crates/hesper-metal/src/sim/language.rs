//! Metal texts on the simulated GPU: the kernel language's front end parses them, and its reference
//! interpreter runs them with the sanitizer. A finding is an error of the dispatch.

use std::sync::Arc;

use hesper_kernel::front::compile_file;
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

fn compile(text: &SimText<'_>) -> Option<Result<SimFunction, String>> {
    let kernels = match compile_file("program_source", text.text) {
        Ok(compiled) => compiled.kernels,
        Err(error) => return Some(Err(error.to_string())),
    };
    let kernel = Arc::new(kernels.into_iter().find(|kernel| kernel.name == text.entry)?);
    let run = move |launch: &Launch<'_>| interpret(&kernel, launch);
    Some(Ok(SimFunction { run: Arc::new(run), divisible: false }))
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
        Some((address, len)) => {
            // SAFETY: the range is inside of a live buffer, and one dispatch runs at a time.
            unsafe { Arg::from_raw(*address, end_of(index, *address, *len) as u64, *writes) }
        }
        None => Arg::read(launch.constants()),
    });
    let mut bindings = Bindings::new(arguments.collect()).map_err(|error| error.to_string())?;
    let size = KernelLaunch::new(launch.grid, launch.threadgroup).map_err(|error| error.to_string())?;
    let report = interp::run(kernel, &size, &mut bindings, &interp::Options::checked())
        .map_err(|error| error.to_string())?;
    match report.findings.first() {
        Some(finding) => Err(finding.to_string()),
        None => Ok(()),
    }
}
