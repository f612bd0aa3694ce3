//! The CPU backend: every op as native commands on all cores.
//!
//! One file per family of ops implements [`Lower`](hesper_core::backend::Lower) for [`Cpu`]; [`ops`] lists
//! them. The numeric kernels are pure functions of `hesper-compute` and `hesper-linalg`; this crate binds
//! memory and splits work.
#![deny(unsafe_code)]

mod along_axis;
mod append;
mod attention;
mod combine;
mod concat;
mod conv;
mod copy;
#[cfg(feature = "kernels")]
mod custom;
mod diagonal;
mod dispatch;
#[cfg(feature = "fft")]
mod fft;
#[cfg(feature = "fft")]
mod fft_long;
mod float;
mod gated_delta;
mod gather;
mod grouped;
mod hadamard;
mod index_arrays;
#[doc(hidden)]
pub mod internals;
#[cfg(feature = "files")]
mod io;
#[cfg(feature = "linalg")]
mod linalg;
mod matmul;
mod norm;
mod norm_gradient;
#[cfg(feature = "quantized")]
mod packed;
#[cfg(feature = "quantized")]
mod packed_layer;
mod parallel;
#[cfg(feature = "quantized")]
mod quant;
mod random;
mod reduce;
mod rope;
mod row_epilogue;
mod row_source;
mod scan;
mod scatter;
mod slices;
mod sort;
#[cfg(feature = "quantized")]
mod step;
mod walk;

use std::ops::Range;
use std::sync::LazyLock;

use hesper_core::backend::{BACKENDS, Backend, BackendKind, Data, Fusion, OpTable};
use hesper_core::{Dtype, Result};
use hesper_cpu::CpuDevice;
use hesper_kernel::bounds::Proof;
use hesper_runtime::{Buffer, DeviceInfo, NativeError, PipelineSource, Runtime, Stream};
use linkme::distributed_slice;

/// The failure of a command whose kernel refused its operands.
fn refused(error: impl std::error::Error + Send + Sync + 'static) -> NativeError {
    NativeError::caused_by(error)
}

/// The host.
#[derive(Debug)]
pub struct Cpu;

#[distributed_slice(BACKENDS)]
static REGISTERED: fn() -> &'static dyn Backend = || &Cpu;

static OPS: LazyLock<OpTable> = LazyLock::new(|| {
    let table = OpTable::of::<Cpu>()
        .extend(attention::register)
        .extend(conv::register)
        .extend(gated_delta::register)
        .extend(grouped::register)
        .extend(hadamard::register)
        .extend(matmul::register)
        .extend(norm::register)
        .extend(norm_gradient::register)
        .extend(sort::register)
        .extend(along_axis::register)
        .extend(append::register)
        .extend(concat::register)
        .extend(diagonal::register)
        .extend(gather::register)
        .extend(random::register)
        .extend(reduce::register)
        .extend(rope::register)
        .extend(scan::register)
        .extend(scatter::register)
        .extend(slices::register);
    #[cfg(feature = "fft")]
    let table = table.extend(fft::register);
    #[cfg(feature = "files")]
    let table = table.extend(io::register);
    #[cfg(feature = "kernels")]
    let table = table.extend(custom::register);
    #[cfg(feature = "linalg")]
    let table = table.extend(linalg::register);
    #[cfg(feature = "quantized")]
    let table = table
        .extend(packed::register)
        .extend(packed_layer::register)
        .extend(quant::register)
        .extend(step::register);
    table.build()
});

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Host
    }

    fn device_count(&self) -> usize {
        1
    }

    fn open(&self, _: usize) -> Result<Runtime> {
        Ok(Runtime::new(CpuDevice::new()))
    }

    /// The host, and the simulated device of tests. Other devices with native commands have a backend of
    /// their own.
    fn drives(&self, info: &DeviceInfo) -> bool {
        matches!(info.kind, "cpu" | "sim")
    }

    fn ops(&self) -> &OpTable {
        &OPS
    }

    fn fusion(&self) -> Fusion {
        Fusion { in_place: true, ..Fusion::default() }
    }

    /// The executor checks bounds in any case; an unchecked kernel only asks it not to report.
    fn custom_source(&self, source: PipelineSource, _: &Proof, unchecked: bool) -> PipelineSource {
        if unchecked { source.specialised("unchecked") } else { source }
    }

    fn copy(&self, stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
        copy::copy(stream, data, shape, dtype)
    }

    fn fill(
        &self,
        stream: &Stream,
        buffer: &Buffer,
        range: Range<usize>,
        element: [u8; 8],
        size: usize,
    ) -> Result<()> {
        Ok(stream.encode("fill").write_range(buffer, range).run(move |native| {
            let [out] = native.take()?;
            out.bytes_mut()?.chunks_exact_mut(size).for_each(|chunk| chunk.copy_from_slice(&element[..size]));
            Ok(())
        })?)
    }
}
