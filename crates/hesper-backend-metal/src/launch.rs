//! Kernels in Metal text.
//!
//! A kernel's text is a `.metal` file behind the prelude. A template is instantiated by the last line of the
//! text. Kernels index with 32 bits: larger arrays are left to the host ([`fits`]).

use hesper_backend_gpu::{KernelText, Slots};
use hesper_core::backend::Lowering;
use hesper_core::{Dtype, Result};
use hesper_metal::LANGUAGE;
use hesper_runtime::PipelineSource;

use crate::{MetalBackend, slot};

pub(crate) type Constants = hesper_backend_gpu::Constants<MetalBackend>;
pub(crate) type Kernel<'a> = hesper_backend_gpu::Kernel<'a, MetalBackend>;

/// The beginning of all texts.
const PRELUDE: &str = text!("prelude.metal");
/// Threads of a threadgroup, unless a kernel needs another number.
const THREADS: usize = 256;
/// More elements than an array that kernels index can have.
pub(crate) const MAX_ELEMENTS: usize = 1 << 31;

impl KernelText for MetalBackend {
    const INTEGER_SIZE: usize = 4;
    const MAX_AXES: usize = 8;
    const COUNTED_AXES: bool = true;

    fn type_name(dtype: Dtype) -> &'static str {
        match dtype {
            Dtype::Bool | Dtype::Uint8 => "uchar",
            Dtype::Uint16 => "ushort",
            Dtype::Uint32 => "uint",
            Dtype::Uint64 => "ulong",
            Dtype::Int8 => "char",
            Dtype::Int16 => "short",
            Dtype::Int32 => "int",
            Dtype::Int64 => "long",
            Dtype::Float16 => "half",
            Dtype::Bfloat16 => "bf16",
            Dtype::Float32 => "float",
            Dtype::Complex64 => "c64",
            // No text has them: ops of these types run on the host.
            Dtype::Float64 | Dtype::Complex128 => "double",
        }
    }

    fn word_name(size: usize) -> &'static str {
        match size {
            1 => "uchar",
            2 => "ushort",
            4 => "uint",
            8 => "uint2",
            _ => "uint4",
        }
    }

    /// A thread for each element.
    fn element_grid(n: usize) -> ([usize; 3], [usize; 3]) {
        ([n, 1, 1], [THREADS.min(n).max(1), 1, 1])
    }

    fn source(
        text: &'static str,
        instance: &str,
        _options: &str,
        threads: u64,
        slots: Slots<'_>,
    ) -> Result<PipelineSource> {
        let behind = slot::parts(text, slots)?;
        let (mut whole, mut name) = (format!("{PRELUDE}{behind}{text}"), instance.to_string());
        if let Some((function, _)) = instance.split_once('<') {
            name = instance.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            whole += &format!(
                "\n#line 1 \"the instance\"\ntemplate [[host_name(\"{name}\")]] [[kernel]] decltype({instance}) {instance};\n"
            );
            debug_assert!(text.contains(function), "{function}");
        }
        let source = PipelineSource::new(instance, LANGUAGE, whole.as_str());
        Ok(source.specialised(format!("entry {name}\nmax_threads {threads}").as_str()))
    }
}

/// Whether kernels index all elements of the inputs and of the output.
pub(crate) fn fits(l: &Lowering<'_>) -> bool {
    hesper_backend_gpu::fits::<MetalBackend>(l)
}
