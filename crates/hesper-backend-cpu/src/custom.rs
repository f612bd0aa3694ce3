//! Custom kernels: launched like fused ones, or interpreted under the sanitizer.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::custom::CustomLaunch;
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::{Native, NativeResult};

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<CustomLaunch>()
}

impl Lower<CustomLaunch> for Cpu {
    fn lower(op: &CustomLaunch, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !op.checked {
            return op.dispatch(l).map(Some);
        }
        let (kernel, launch) = (op.compiled.0.kernel()?.clone(), op.launch);
        let initialised = op.init_value.is_some();
        let data = op.encode(l, |encoder, constants, _| {
            Ok(encoder.run(move |native| run_checked(native, &kernel, &launch, &constants, initialised))?)
        });
        data.map(Some)
    }
}

/// Runs a kernel on the reference interpreter, which checks every access.
fn run_checked(
    native: &mut Native<'_, '_>,
    kernel: &Kernel,
    launch: &Launch,
    constants: &[u8],
    initialised: bool,
) -> NativeResult {
    let mut views = native.views().iter_mut();
    let mut values = constants.chunks_exact(8);
    let mut arguments = Vec::new();
    for param in &kernel.params {
        arguments.push(match &param.kind {
            ParamKind::Value(ty) => {
                let value = values.next().ok_or("a constant is missing")?;
                Arg::read(&value[..(ty.size() as usize).min(8)])
            }
            ParamKind::Buffer { .. } => {
                let view = views.next().ok_or("a buffer is missing")?;
                if view.access().writes() {
                    let argument = Arg::write(view.bytes_mut()?);
                    if initialised { argument } else { argument.uninitialised() }
                } else {
                    Arg::read(view.bytes()?)
                }
            }
        });
    }
    let mut bindings = Bindings::new(arguments).map_err(crate::refused)?;
    let options = interp::Options { checked: true, ..Default::default() };
    let report = interp::run(kernel, launch, &mut bindings, &options).map_err(crate::refused)?;
    match report.findings.first() {
        None => Ok(()),
        Some(first) => {
            let others = report.findings.len() as u64 - 1 + report.suppressed;
            let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
            Err(format!("{first}{more}").into())
        }
    }
}
