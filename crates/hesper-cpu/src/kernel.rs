//! Kernels of the kernel language on the host.

use hesper_kernel::exec::{Cancel, Program};
use hesper_kernel::ir::{Kernel, ParamKind};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::{Binding, DeviceError, Dispatch, PipelineSource};

use crate::Compute;

/// A compiled kernel. Buffers are bound in the order of its parameters; by-value parameters lie in the
/// constants in that order, each at a multiple of eight bytes.
pub(crate) struct HostKernel {
    program: Program,
    /// For each parameter its size if it is passed by value; `None` for a buffer.
    params: Vec<Option<usize>>,
}

impl HostKernel {
    /// Compiles the payload of a source, a [`Kernel`]. Out-of-range writes are dropped, and fail the
    /// command unless the specialisation has the line `unchecked`.
    pub(crate) fn compile(source: &PipelineSource) -> Result<Self, DeviceError> {
        let kernel = source.payload.as_deref().and_then(|payload| payload.downcast_ref::<Kernel>());
        let Some(kernel) = kernel else {
            return Err(DeviceError::Compile(format!("the host has no compiler for {}", source.language)));
        };
        let mut program =
            Program::compile(kernel).map_err(|error| DeviceError::Compile(error.to_string()))?;
        if source.specialisation.as_str().lines().any(|line| line == "unchecked") {
            program = program.ignore_dropped_writes();
        }
        let size_by_value = |kind: &ParamKind| match kind {
            ParamKind::Value(ty) => Some(ty.size() as usize),
            ParamKind::Buffer { .. } => None,
        };
        let params = kernel.params.iter().map(|param| size_by_value(&param.kind)).collect();
        Ok(HostKernel { program, params })
    }

    /// Runs all threads of the grid. `cancelled` is polled while the kernel runs.
    pub(crate) fn run(
        &self,
        dispatch: &Dispatch,
        bindings: &[Binding],
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), String> {
        let mut buffers = bindings.iter();
        let mut constants: &[u8] = &dispatch.constants;
        let mut args = Vec::with_capacity(self.params.len());
        for param in &self.params {
            args.push(match param {
                Some(size) => {
                    let bytes = constants.get(..*size).ok_or("a constant is missing")?;
                    constants = constants.get(size.next_multiple_of(8)..).unwrap_or_default();
                    Arg::read(bytes)
                }
                None => {
                    let buffer = buffers.next().ok_or("a buffer is missing")?;
                    let host = buffer.memory().host.ok_or("the memory has no host address")?;
                    let writable = buffer.access().writes();
                    // SAFETY: the binding's range lies inside of live memory, a written range overlaps
                    // no other binding, and the runtime orders this command against all others.
                    unsafe {
                        Arg::from_raw(host.as_ptr().add(buffer.offset()), buffer.len() as u64, writable)
                    }
                }
            });
        }
        let bindings = Bindings::new(args).map_err(|error| error.to_string())?;
        let launch = Launch::new(dispatch.grid, dispatch.threadgroup).map_err(|error| error.to_string())?;
        let cancel = Cancel::watching(cancelled);
        self.program
            .run_parallel(&bindings, &launch, &cancel, &|count, body| Compute::global().run(count, body))
            .map_err(|error| error.to_string())
    }

    /// The approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.program.size_bytes()
    }
}
