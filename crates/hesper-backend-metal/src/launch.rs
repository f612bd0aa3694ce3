//! Kernels in Metal text, their constants and their dispatch.
//!
//! A kernel's text is a `.metal` file behind [`PRELUDE`]. A template is instantiated by the last line of the
//! text. Kernels index with 32 bits: larger arrays are left to the host ([`fits`]).

use std::sync::{Arc, LazyLock};

use hesper_backend_gpu::{KnownPipelines, Launch};
use hesper_core::backend::{Data, Lowering, reach};
use hesper_core::{Dtype, Result};
use hesper_metal::LANGUAGE;
use hesper_runtime::{Encoder, Pipeline, PipelineSource, Stream};

use crate::MetalBackend;

/// The beginning of all texts.
const PRELUDE: &str = text!("prelude.metal");
/// Threads of a threadgroup, unless a kernel needs another number.
pub(crate) const THREADS: u64 = 256;
/// More elements than an array that kernels index can have.
pub(crate) const MAX_ELEMENTS: usize = 1 << 31;

/// The constants of a kernel: the fields of a structure, of 32 bits each.
#[derive(Default, Clone)]
pub(crate) struct Constants(Vec<u8>);

impl Constants {
    /// An integer.
    pub(crate) fn int(mut self, value: isize) -> Self {
        self.0.extend_from_slice(&(value as i32).to_le_bytes());
        self
    }

    /// Sizes.
    pub(crate) fn sizes(self, values: &[usize]) -> Self {
        values.iter().fold(self, |constants, value| constants.int(*value as isize))
    }

    /// Integers, padded to the length of the kernel's array.
    pub(crate) fn ints(self, values: impl Iterator<Item = isize>, room: usize, fill: isize) -> Self {
        values.chain(std::iter::repeat(fill)).take(room).fold(self, Constants::int)
    }

    /// A truth value, as an integer.
    pub(crate) fn flag(self, value: bool) -> Self {
        self.int(isize::from(value))
    }

    /// A float.
    pub(crate) fn float(mut self, value: f32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// 32 bits.
    pub(crate) fn word(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
}

/// A kernel: a text and its function, with template arguments as in `rope<float, int>`.
pub(crate) struct Kernel<'a> {
    pub(crate) text: &'static str,
    pub(crate) entry: &'a str,
}

impl Kernel<'_> {
    /// A launch of `grid` threads in groups of `threadgroup`.
    pub(crate) fn launch(
        &self,
        stream: &Stream,
        constants: Constants,
        grid: [usize; 3],
        threadgroup: [u64; 3],
    ) -> Result<Launch> {
        let pipeline = self.pipeline(stream, threadgroup.iter().product())?;
        Ok(Launch { pipeline, constants: constants.0, grid: grid.map(|size| size as u64), threadgroup })
    }

    /// A launch of one thread for each of `n` elements.
    pub(crate) fn for_elements(&self, stream: &Stream, constants: Constants, n: usize) -> Result<Launch> {
        self.launch(stream, constants, [n, 1, 1], [THREADS.min(n as u64).max(1), 1, 1])
    }

    /// A launch of `groups` threadgroups of `threads`.
    pub(crate) fn for_groups(
        &self,
        stream: &Stream,
        constants: Constants,
        [x, y, z]: [usize; 3],
        threads: usize,
    ) -> Result<Launch> {
        self.launch(stream, constants, [x * threads, y, z], [threads as u64, 1, 1])
    }

    /// Encodes a dispatch of `grid` threads in groups of `threadgroup`.
    pub(crate) fn dispatch(
        &self,
        stream: &Stream,
        command: Encoder<'_>,
        constants: &Constants,
        grid: [usize; 3],
        threadgroup: [u64; 3],
    ) -> Result<()> {
        self.launch(stream, constants.clone(), grid, threadgroup)?.encode(command)
    }

    /// Encodes a dispatch of one thread for each of `n` elements.
    pub(crate) fn elements(
        &self,
        stream: &Stream,
        command: Encoder<'_>,
        constants: &Constants,
        n: usize,
    ) -> Result<()> {
        self.for_elements(stream, constants.clone(), n)?.encode(command)
    }

    /// Encodes a dispatch of `groups` threadgroups of `threads`.
    pub(crate) fn groups(
        &self,
        stream: &Stream,
        command: Encoder<'_>,
        constants: &Constants,
        groups: [usize; 3],
        threads: usize,
    ) -> Result<()> {
        self.for_groups(stream, constants.clone(), groups, threads)?.encode(command)
    }

    fn pipeline(&self, stream: &Stream, threads: u64) -> Result<Arc<Pipeline>> {
        /// A device, the address of a text, an instance, and the largest threadgroup.
        type Key = (u64, usize, String, u64);
        static KNOWN: LazyLock<KnownPipelines<Key>> = LazyLock::new(KnownPipelines::default);
        // A small last group must not compile a second pipeline.
        let threads = threads.max(THREADS);
        let runtime = stream.runtime();
        let key = (runtime.id(), self.text.as_ptr().addr(), self.entry.to_string(), threads);
        KNOWN.get(key, |_| {
            let mut text = format!("{PRELUDE}{}", self.text);
            let mut name = self.entry.to_string();
            if let Some((function, _)) = self.entry.split_once('<') {
                name = self.entry.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
                let instance = self.entry;
                text += &format!(
                    "\n#line 1 \"the instance\"\ntemplate [[host_name(\"{name}\")]] [[kernel]] decltype({instance}) {instance};\n"
                );
                debug_assert!(self.text.contains(function), "{function}");
            }
            let source = PipelineSource::new(self.entry, LANGUAGE, text.as_str())
                .specialised(format!("entry {name}\nmax_threads {threads}").as_str());
            Ok(runtime.pipeline(&source)?)
        })
    }
}

/// The name of an element type in the texts.
pub(crate) fn type_name(dtype: Dtype) -> &'static str {
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

/// The texts' type of a word of `size` bytes.
pub(crate) fn word(size: usize) -> &'static str {
    match size {
        1 => "uchar",
        2 => "ushort",
        4 => "uint",
        8 => "uint2",
        _ => "uint4",
    }
}

/// Whether kernels that compute in single precision load the type.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
}

/// Whether kernels index all elements of the inputs and of the output.
pub(crate) fn fits(l: &Lowering<'_>) -> bool {
    hesper_backend_gpu::fits::<MetalBackend>(l)
}

/// Binds the elements of an input at `data`.
pub(crate) fn read<'a>(command: Encoder<'a>, l: &Lowering<'_>, at: usize, data: &'a Data) -> Encoder<'a> {
    let (bytes, _) = reach(data, l.input_shape(at), l.input_dtype(at).size());
    command.read_range(&data.buffer, bytes)
}
