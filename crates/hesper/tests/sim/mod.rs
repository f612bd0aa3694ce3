//! The simulated device with kernels of the kernel language.

use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::{Dispatch, PipelineSource, View};

/// Runs a kernel of the kernel language as its reference interpreter does.
pub fn interpret(source: &PipelineSource, dispatch: &Dispatch, views: &mut [View<'_>]) -> Result<(), String> {
    let kernel = source.payload.as_ref().and_then(|payload| payload.downcast_ref::<Kernel>());
    let kernel = kernel.ok_or_else(|| format!("{} is no kernel of the language", source.language))?;
    let mut views = views.iter_mut();
    let mut constants: &[u8] = &dispatch.constants;
    let mut list = Vec::new();
    for param in &kernel.params {
        list.push(match &param.kind {
            ParamKind::Value(ty) => {
                let size = ty.size() as usize;
                let bytes = constants.get(..size).ok_or("a constant is missing")?;
                constants = constants.get(size.next_multiple_of(8)..).unwrap_or_default();
                Arg::read(bytes)
            }
            ParamKind::Buffer { .. } => {
                let view = views.next().ok_or("a buffer is missing")?;
                if view.access().writes() {
                    Arg::write(view.bytes_mut().map_err(|error| error.message)?)
                } else {
                    Arg::read(view.bytes().map_err(|error| error.message)?)
                }
            }
        });
    }
    let mut bindings = Bindings::new(list).map_err(|error| error.to_string())?;
    let launch = Launch::new(dispatch.grid, dispatch.threadgroup).map_err(|error| error.to_string())?;
    interp::run(kernel, &launch, &mut bindings, &interp::Options::default())
        .map(|_| ())
        .map_err(|error| error.to_string())
}
