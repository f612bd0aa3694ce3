//! Kernels that the host can dispatch.

use std::any::Any;
use std::sync::Arc;

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
}

/// A kernel for the host, made by somebody who knows its language.
///
/// It is handed to the device as the payload of a [`PipelineSource`]: an `Arc<dyn HostKernel>` inside of
/// an `Arc<dyn Any>`.
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
    match payload.and_then(|payload| payload.downcast_ref::<Arc<dyn HostKernel>>()) {
        Some(kernel) => Ok(Compiled(kernel.clone())),
        None => Err(DeviceError::Compile(format!("the host has no compiler for {}", source.language))),
    }
}
