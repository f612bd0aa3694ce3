//! The CUDA backend: kernels for NVIDIA GPUs, and their launchers.
//!
//! Fused and custom kernels come from the kernel language. Every other op has an implementation of
//! [`Lower`](hesper_core::backend::Lower) for [`Cuda`] in this crate, or runs on the host. A kernel's text is
//! a `.cuh` file beside its launcher.
#![deny(unsafe_code)]

mod add_norm;
mod along_axis;
mod attention;
mod attention_gradient;
mod chip;
mod conv;
mod copy;
mod cross_entropy;
mod cuda_kernel;
mod custom;
mod early;
mod fft;
mod gather;
mod gpu;
mod index_arrays;
mod inputs;
mod launch;
#[cfg(feature = "linalg")]
mod linalg;
mod matmul;
mod norm;
mod norm_gradient;
mod packed;
mod packed_layer;
mod quant;
mod random;
mod reduce;
mod rope;
mod scan;
mod scatter;
mod search;
mod silu_gate;
mod slot;
mod sort;
mod step;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

use hesper_core::backend::{BACKENDS, Backend, BackendKind, Data, Fusion, OpTable};
use hesper_core::{Dtype, Error, Result, placement};
use hesper_cuda::{CudaDevice, CudaOptions, CudaShared};
use hesper_kernel::bounds::Proof;
use hesper_runtime::{Buffer, DeviceInfo, PipelineSource, Runtime, Stream};
use linkme::distributed_slice;

pub use cuda_kernel::{CudaCall, CudaKernel};

/// NVIDIA GPUs.
#[derive(Debug)]
pub struct Cuda;

#[distributed_slice(BACKENDS)]
static REGISTERED: fn() -> &'static dyn Backend = || &Cuda;

static OPS: LazyLock<OpTable> = LazyLock::new(|| {
    let table = OpTable::of::<Cuda>()
        .extend(hesper_backend_gpu::register)
        .extend(add_norm::register)
        .extend(attention::register)
        .extend(attention_gradient::register)
        .extend(conv::register)
        .extend(cross_entropy::register)
        .extend(matmul::register)
        .extend(norm_gradient::register)
        .extend(packed::register)
        .extend(packed_layer::register)
        .extend(quant::register)
        .extend(silu_gate::register)
        .extend(step::register)
        .extend(cuda_kernel::register)
        .extend(custom::register)
        .extend(reduce::register)
        .extend(scan::register);
    #[cfg(feature = "linalg")]
    let table = table.extend(linalg::register);
    table.build()
});

/// Threads of a group of fused kernels.
const FUSED_THREADS: u64 = 256;

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Gpu
    }

    fn device_count(&self) -> usize {
        hesper_cuda::device_count().unwrap_or(0)
    }

    fn open(&self, number: usize) -> Result<Runtime> {
        let options = CudaOptions { ordinal: number, ..CudaOptions::default() };
        let device = CudaDevice::open(options).map_err(|error| Error::value("device", error.to_string()))?;
        Ok(Runtime::new(device))
    }

    fn drives(&self, info: &DeviceInfo) -> bool {
        info.kind == "cuda"
    }

    fn ops(&self) -> &OpTable {
        &OPS
    }

    fn takes(&self, dtype: Dtype) -> bool {
        dtype != Dtype::Complex128
    }

    fn fusion(&self) -> Fusion {
        Fusion { vector_threads: Some(FUSED_THREADS), recompute: true, ..Fusion::default() }
    }

    fn fused_source(&self, source: PipelineSource, flat: bool) -> PipelineSource {
        let upright = if flat { "\nupright" } else { "" };
        source.specialised(format!("threads {FUSED_THREADS}\nfast{upright}").as_str())
    }

    /// Accesses without a proof are checked.
    fn custom_source(&self, source: PipelineSource, proof: &Proof, unchecked: bool) -> PipelineSource {
        if unchecked || proof.in_range {
            return source;
        }
        source.specialised(format!("bounds\nproven {}", proof.mask()).as_str())
    }

    fn copy(&self, stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
        hesper_backend_gpu::copy::<Cuda>(stream, data, shape, dtype.size())
    }

    fn fill(
        &self,
        stream: &Stream,
        buffer: &Buffer,
        range: Range<usize>,
        element: [u8; 8],
        size: usize,
    ) -> Result<()> {
        hesper_backend_gpu::fill::<Cuda>(stream, buffer, range, element, size)
    }
}

/// Properties of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its compute capability.
    pub capability: (u32, u32),
    /// Bytes of its memory.
    pub total_memory: usize,
    /// Bytes of its memory that are free now.
    pub free_memory: usize,
}

/// Properties of a GPU. Opens the device.
pub fn gpu_info(number: usize) -> Result<GpuInfo> {
    let shared = placement::gpu(number)?.extension().and_then(|found| found.downcast::<CudaShared>().ok());
    let shared =
        shared.ok_or_else(|| Error::value("device", format!("GPU {number} is not an NVIDIA GPU")))?;
    let (free_memory, total_memory) =
        shared.memory_info().map_err(|error| Error::value("device", error.to_string()))?;
    Ok(GpuInfo { capability: shared.properties().capability, total_memory, free_memory })
}

/// Adds folders with NVIDIA's packages, such as `nvidia` in Python's `site-packages`, to the search path of
/// CUDA libraries. Takes effect once, before a GPU is first used.
pub fn look_for_libraries_in(folders: &[PathBuf]) {
    hesper_cuda::library::add_search_folders(folders);
}

/// Stops all GPU work before process exit: work that is not launched is dropped. Otherwise threads could run
/// inside of libraries that are being unloaded.
pub fn end_of_process() {
    hesper_cuda::shut_down();
}
