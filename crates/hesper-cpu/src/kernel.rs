//! Kernels that the host can dispatch: those of the kernel language, and native ones.

use std::any::Any;
use std::sync::Arc;

use hesper_kernel::exec::{Cancel, Program};
use hesper_kernel::ir::{Kernel, ParamKind};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::{Binding, DeviceError, Dispatch, PipelineSource};

use crate::Compute;

/// What a kernel is run with.
pub struct KernelArgs<'a> {
    /// Grid, threadgroup and constants.
    pub dispatch: &'a Dispatch,
    /// What is bound, in the kernel's order; every memory has a host address.
    pub bindings: &'a [Binding],
    /// Where parallel loops run.
    pub compute: &'static Compute,
    /// Whether the work has been cancelled; a kernel that loops looks now and then.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// A kernel for the host, made by somebody who knows its language.
///
/// It is handed to the device as the payload of a [`PipelineSource`]: an `Arc<dyn HostKernel>` inside of
/// an `Arc<dyn Any>`. The payload may also be a [`Kernel`] of the kernel language: out-of-range writes of such a
/// kernel are dropped, and fail the command unless the specialisation has the line `unchecked`.
pub trait HostKernel: Send + Sync {
    /// Runs all threads of the grid.
    fn run(&self, args: &KernelArgs<'_>) -> Result<(), String>;

    /// Roughly how many bytes it holds.
    fn bytes(&self) -> usize;
}

/// A compiled kernel, as the device keeps it.
pub(crate) struct Compiled(pub(crate) Arc<dyn HostKernel>);

pub(crate) fn compile(source: &PipelineSource) -> Result<Compiled, DeviceError> {
    let payload: Option<&(dyn Any + Send + Sync)> = source.payload.as_deref();
    if let Some(kernel) = payload.and_then(|payload| payload.downcast_ref::<Arc<dyn HostKernel>>()) {
        return Ok(Compiled(kernel.clone()));
    }
    match payload.and_then(|payload| payload.downcast_ref::<Kernel>()) {
        Some(kernel) => {
            let mut program =
                Program::compile(kernel).map_err(|error| DeviceError::Compile(error.to_string()))?;
            if source.specialisation.as_str().lines().any(|line| line == "unchecked") {
                program = program.ignore_dropped_writes();
            }
            let params = kernel.params.iter().map(|param| size_by_value(&param.kind)).collect();
            Ok(Compiled(Arc::new(IrKernel { program, params })))
        }
        None => Err(DeviceError::Compile(format!("the host has no compiler for {}", source.language))),
    }
}

/// Bytes of a by-value parameter; `None` for a buffer.
fn size_by_value(kind: &ParamKind) -> Option<usize> {
    match kind {
        ParamKind::Value(ty) => Some(ty.size() as usize),
        ParamKind::Buffer { .. } => None,
    }
}

/// A kernel of the kernel language. Buffers are bound in the order of its parameters; by-value parameters
/// lie in the constants in that order, each at a multiple of eight bytes.
struct IrKernel {
    program: Program,
    params: Vec<Option<usize>>,
}

impl HostKernel for IrKernel {
    fn run(&self, args: &KernelArgs<'_>) -> Result<(), String> {
        let mut buffers = args.bindings.iter();
        let mut constants: &[u8] = &args.dispatch.constants;
        let mut list = Vec::with_capacity(self.params.len());
        for param in &self.params {
            list.push(match param {
                Some(size) => {
                    let bytes = constants.get(..*size).ok_or("a constant is missing")?;
                    constants = constants.get(size.next_multiple_of(8)..).unwrap_or_default();
                    Arg::read(bytes)
                }
                None => {
                    let buffer = buffers.next().ok_or("a buffer is missing")?;
                    let host = buffer.memory().host.ok_or("memory that the host cannot see")?;
                    let writable = buffer.access().writes();
                    // SAFETY: the binding's range lies inside of live memory, what is written overlaps
                    // no other binding, and the runtime orders this command against all others.
                    unsafe {
                        Arg::from_raw(host.as_ptr().add(buffer.offset()), buffer.len() as u64, writable)
                    }
                }
            });
        }
        let bindings = Bindings::new(list).map_err(|error| error.to_string())?;
        let launch =
            Launch::new(args.dispatch.grid, args.dispatch.threadgroup).map_err(|error| error.to_string())?;
        let compute = args.compute;
        self.program
            .run_parallel(&bindings, &launch, &Cancel::watching(args.cancelled), &|count, body| {
                compute.run(count, body)
            })
            .map_err(|error| error.to_string())
    }

    fn bytes(&self) -> usize {
        self.program.size_bytes()
    }
}
