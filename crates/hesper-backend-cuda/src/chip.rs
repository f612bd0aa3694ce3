//! Properties of the device that launchers choose kernels and launch sizes by.

use hesper_cuda::CudaShared;
use hesper_runtime::Stream;

/// A device.
#[derive(Clone, Copy)]
pub(crate) struct Chip {
    /// Compute capability.
    pub(crate) capability: (u32, u32),
    /// Number of multiprocessors.
    pub(crate) multiprocessors: usize,
    /// Largest shared memory of a block, in bytes.
    pub(crate) shared: usize,
    /// Size of the L2 cache, in bytes.
    pub(crate) cache: usize,
}

impl Chip {
    /// The device of a stream.
    pub(crate) fn of(stream: &Stream) -> Option<Self> {
        let cuda = stream.runtime().extension()?.downcast::<CudaShared>().ok()?;
        let properties = cuda.properties();
        Some(Chip {
            capability: properties.capability,
            multiprocessors: multiprocessors(stream),
            shared: properties.max_shared as usize,
            cache: properties.l2_bytes as usize,
        })
    }
}

/// The number of multiprocessors of a stream's device.
pub(crate) fn multiprocessors(stream: &Stream) -> usize {
    stream.runtime().info().multiprocessors.max(1) as usize
}

/// Whether the device's tensor cores multiply bfloat16.
pub(crate) fn has_bf16_mma(stream: &Stream) -> bool {
    Chip::of(stream).is_some_and(|chip| chip.capability >= (8, 0))
}
