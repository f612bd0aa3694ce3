//! The Metal backend: kernels for Apple GPUs, and their launchers.
//!
//! Fused and custom kernels come from the kernel language, printed as Metal text. Every other op has an
//! implementation of [`Lower`](hesper_core::backend::Lower) for [`MetalBackend`] in this crate, or runs on
//! the host. Kernel texts are in `src/kernels`. They are also in the dialect of the kernel language: with the
//! feature `sim` and `HESPER_METAL=sim` the reference interpreter runs them on a simulated Metal, on any
//! machine.
#![deny(unsafe_code)]

/// The text of kernel files. The compiler names a file and a line of it, whatever stands in front.
macro_rules! text {
    ($($file:literal),*) => {
        concat!($("#line 1 \"", $file, "\"\n", include_str!(concat!("kernels/", $file))),*)
    };
}

mod attention;
mod conv;
mod copy;
mod custom;
mod fft;
mod gpu;
mod index;
mod launch;
mod matmul;
mod norm;
mod packed;
mod printer;
mod quant;
mod random;
mod reduce;
mod rope;
mod scan;
mod slot;
mod sort;
mod step;

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use hesper_core::backend::{BACKENDS, Backend, BackendKind, Data, Fusion, OpTable};
use hesper_core::{Dtype, Error, Result};
use hesper_kernel::bounds::Proof;
use hesper_kernel::custom::WrittenKernel;
use hesper_metal::{LANGUAGE, MetalDevice, MetalOptions};
use hesper_runtime::{Buffer, DeviceInfo, PipelineSource, Runtime, Stream};
use linkme::distributed_slice;

#[cfg(feature = "sim")]
pub use hesper_metal::sim;
pub use hesper_metal::{Capture, MetalShared};

/// Apple GPUs.
#[derive(Debug)]
pub struct MetalBackend;

#[distributed_slice(BACKENDS)]
static REGISTERED: fn() -> &'static dyn Backend = || &MetalBackend;

static OPS: LazyLock<OpTable> = LazyLock::new(|| {
    OpTable::of::<MetalBackend>()
        .extend(hesper_backend_gpu::register)
        .extend(attention::register)
        .extend(conv::register)
        .extend(custom::register)
        .extend(matmul::register)
        .extend(packed::register)
        .extend(quant::register)
        .extend(reduce::register)
        .extend(scan::register)
        .extend(step::register)
        .build()
});

/// How many buffers a kernel can bind besides its constants and its report.
const MAX_BUFFERS: usize = 29;

/// Options of a device, with a printer for the kernel language.
pub fn options() -> MetalOptions {
    MetalOptions { printer: Some(printer::printer()), ..MetalOptions::default() }
}

/// The Metal device of a runtime: limits, counters, captures. `None` if the runtime has another device.
pub fn device_of(runtime: &Runtime) -> Option<Arc<MetalShared>> {
    runtime.extension()?.downcast().ok()
}

/// Whether `HESPER_METAL=sim` asks for the simulated Metal.
#[cfg(feature = "sim")]
fn is_simulated() -> bool {
    std::env::var_os("HESPER_METAL").is_some_and(|value| value == "sim")
}

/// A device on a simulated Metal; see [`simulation`].
#[cfg(feature = "sim")]
pub fn simulated(metal: &sim::SimMetal) -> Result<Runtime> {
    // The schedule is a function of the seed: no kernel becomes ready at some other time.
    hesper_core::eval::set_fusion_waits(true);
    let device = MetalDevice::on(metal.edge(), MetalOptions { cache: None, ..options() });
    Ok(Runtime::new(device.map_err(|error| Error::value("device", error.to_string()))?))
}

/// A simulated Metal that runs kernels by the reference interpreter with its sanitizer. Its schedule is a
/// function of the seed.
#[cfg(feature = "sim")]
pub fn simulation(seed: u64) -> sim::SimMetal {
    sim::SimMetal::builder(seed).compiler(sim::language::compiler()).build()
}

impl Backend for MetalBackend {
    fn name(&self) -> &'static str {
        "metal"
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Gpu
    }

    fn device_count(&self) -> usize {
        #[cfg(feature = "sim")]
        if is_simulated() {
            return 1;
        }
        usize::from(hesper_metal::is_available())
    }

    fn open(&self, _: usize) -> Result<Runtime> {
        #[cfg(feature = "sim")]
        if is_simulated() {
            return simulated(&simulation(0));
        }
        let device =
            MetalDevice::open(options()).map_err(|error| Error::value("device", error.to_string()))?;
        Ok(Runtime::new(device))
    }

    fn drives(&self, info: &DeviceInfo) -> bool {
        info.kind == "metal"
    }

    fn ops(&self) -> &OpTable {
        &OPS
    }

    /// Metal has no double.
    fn takes(&self, dtype: Dtype) -> bool {
        !matches!(dtype, Dtype::Float64 | Dtype::Complex128)
    }

    fn fusion(&self) -> Fusion {
        Fusion { double: false, max_buffers: MAX_BUFFERS, recompute: true, ..Fusion::default() }
    }

    /// Accesses without a proof are checked.
    fn custom_source(&self, source: PipelineSource, proof: &Proof, unchecked: bool) -> PipelineSource {
        if unchecked || proof.in_range {
            return source;
        }
        source.specialised(format!("bounds\nproven {}", proof.mask()).as_str())
    }

    fn written_source(&self, name: &Arc<str>, written: &WrittenKernel) -> Option<PipelineSource> {
        let source = PipelineSource::new(name.clone(), LANGUAGE, written.whole().as_str());
        Some(source.specialised(format!("entry {}", written.entry).as_str()))
    }

    /// As Metal's validation layer demands.
    fn constant_alignment(&self) -> usize {
        4
    }

    fn copy(&self, stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
        hesper_backend_gpu::copy::<MetalBackend>(stream, data, shape, dtype.size())
    }

    fn fill(
        &self,
        stream: &Stream,
        buffer: &Buffer,
        range: Range<usize>,
        element: [u8; 8],
        size: usize,
    ) -> Result<()> {
        hesper_backend_gpu::fill::<MetalBackend>(stream, buffer, range, element, size)
    }
}
