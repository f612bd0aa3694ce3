//! Kernels in CUDA C++.
//!
//! A kernel's text is a `.cuh` file beside its launcher, after the prelude; it needs no header of a toolkit.

use hesper_backend_gpu::{KernelText, Slots};
use hesper_core::{Dtype, Result};
use hesper_runtime::PipelineSource;

use crate::{Cuda, early, slot};

pub(crate) type Constants = hesper_backend_gpu::Constants<Cuda>;
pub(crate) type Kernel<'a> = hesper_backend_gpu::Kernel<'a, Cuda>;

/// The beginning of all texts.
const PRELUDE: &str = include_str!("prelude.cuh");

impl KernelText for Cuda {
    const INTEGER_SIZE: usize = 8;
    const MAX_AXES: usize = 6;
    const COUNTED_AXES: bool = false;

    fn type_name(dtype: Dtype) -> &'static str {
        match dtype {
            Dtype::Bool | Dtype::Uint8 => "u8",
            Dtype::Uint16 => "u16",
            Dtype::Uint32 => "u32",
            Dtype::Uint64 => "u64",
            Dtype::Int8 => "i8",
            Dtype::Int16 => "i16",
            Dtype::Int32 => "i32",
            Dtype::Int64 => "i64",
            Dtype::Float16 => "f16",
            Dtype::Bfloat16 => "bf16",
            Dtype::Float32 => "float",
            Dtype::Float64 => "double",
            Dtype::Complex64 => "c64",
            // No text has it: ops of this type run on the host.
            Dtype::Complex128 => "c128",
        }
    }

    fn word_name(size: usize) -> &'static str {
        match size {
            1 => "u8",
            2 => "u16",
            4 => "u32",
            8 => "w8",
            _ => "w16",
        }
    }

    /// Kernels loop over elements with the stride of the grid.
    fn element_grid(n: usize) -> ([usize; 3], [usize; 3]) {
        ([256 * blocks(n), 1, 1], [256, 1, 1])
    }

    /// Declares what the kernel reads before it waits for earlier ones.
    fn source(
        text: &'static str,
        instance: &str,
        options: &str,
        _threads: u64,
        slots: Slots<'_>,
    ) -> Result<PipelineSource> {
        let (before, behind, slot_options) = slot::parts(text, slots);
        let mut specialisation = format!("entry {instance}\nminimal\n{options}{slot_options}");
        if let Some(bindings) = early::bindings(text, instance.split('<').next().unwrap_or(instance)) {
            specialisation.push_str("\nahead");
            bindings.iter().for_each(|binding| specialisation.push_str(&format!(" {binding}")));
        }
        let whole = format!("{before}{PRELUDE}{behind}{text}");
        Ok(PipelineSource::new(instance, "cuda", whole.as_str()).specialised(specialisation.as_str()))
    }
}

/// The option of a kernel with dynamic shared memory.
pub(crate) fn shared(bytes: usize) -> String {
    format!("shared {bytes}")
}

/// The option of a kernel for Hopper.
pub(crate) const SM90: &str = "option --gpu-architecture=sm_90a";

/// The width of indices of kernels over `n` elements.
pub(crate) fn index_option(n: usize) -> &'static str {
    if n < 1 << 31 { "" } else { "define INDEX=u64" }
}

/// Blocks of 256 threads for a grid-stride loop over `n` elements: enough to fill any device.
pub(crate) fn blocks(n: usize) -> usize {
    n.div_ceil(256).clamp(1, 1 << 20)
}

/// The logarithm of the number of threads that share a row of `words`: a thread for each word of a short row;
/// several words for each thread of a long one, so that their loads overlap.
pub(crate) fn lanes_shift(words: usize) -> usize {
    let lanes = if words <= 32 { words } else { words.div_ceil(4).clamp(32, 256) };
    lanes.next_power_of_two().trailing_zeros() as usize
}
