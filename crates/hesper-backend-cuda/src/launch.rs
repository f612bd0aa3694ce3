//! Kernels in CUDA C++ and their parameters.
//!
//! A kernel's text is a `.cuh` file beside its launcher, after [`PRELUDE`]; it needs no header of a toolkit.
//! Pipelines are cached by text, instance and device.

use std::sync::{Arc, LazyLock};

use hesper_backend_gpu::{KnownPipelines, Launch};
use hesper_runtime::{Pipeline, PipelineSource, Stream};

use hesper_core::{Dtype, Result};

use crate::early;

/// What all texts begin with.
pub(crate) const PRELUDE: &str = include_str!("prelude.cuh");

/// The parameters of a kernel after its pointers.
#[derive(Default)]
pub(crate) struct Constants(Vec<u8>);

impl Constants {
    fn align(mut self, to: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }

    /// A number of 64 bits.
    pub(crate) fn long(self, value: i64) -> Self {
        let mut this = self.align(8);
        this.0.extend_from_slice(&value.to_ne_bytes());
        this
    }

    /// Sizes, in 64 bits each.
    pub(crate) fn sizes(self, values: &[usize]) -> Self {
        values.iter().fold(self, |constants, value| constants.long(*value as i64))
    }

    /// A number of 32 bits.
    pub(crate) fn int(self, value: i32) -> Self {
        let mut this = self.align(4);
        this.0.extend_from_slice(&value.to_ne_bytes());
        this
    }

    /// A float.
    pub(crate) fn float(self, value: f32) -> Self {
        let mut this = self.align(4);
        this.0.extend_from_slice(&value.to_ne_bytes());
        this
    }

    /// 64-bit integers, padded to the capacity of the kernel's array.
    pub(crate) fn longs(self, values: impl Iterator<Item = isize>, room: usize, fill: i64) -> Self {
        let mut this = self.align(8);
        let start = this.0.len();
        values.for_each(|value| this.0.extend_from_slice(&(value as i64).to_ne_bytes()));
        while this.0.len() < start + 8 * room {
            this.0.extend_from_slice(&fill.to_ne_bytes());
        }
        this
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A kernel: an instance of a text. `options` are further lines of the specialisation.
pub(crate) fn kernel(
    stream: &Stream,
    text: &'static str,
    entry: &str,
    options: &str,
) -> Result<Arc<Pipeline>> {
    /// A device, a text (its address and length) and its instance.
    type Key = (u64, usize, usize, String);
    static KNOWN: LazyLock<KnownPipelines<Key>> = LazyLock::new(KnownPipelines::default);
    let runtime = stream.runtime();
    let specialisation = format!("entry {entry}\nminimal\n{options}");
    let key = (runtime.id(), text.as_ptr().addr(), text.len(), specialisation);
    KNOWN.get(key, |(.., specialisation)| {
        let mut specialisation = specialisation.clone();
        if let Some(bindings) = early::bindings(text, entry.split('<').next().unwrap_or(entry)) {
            specialisation.push_str("\nahead");
            bindings.iter().for_each(|binding| specialisation.push_str(&format!(" {binding}")));
        }
        let source = PipelineSource::new(entry, "cuda", format!("{PRELUDE}{text}").as_str())
            .specialised(specialisation.as_str());
        Ok(runtime.pipeline(&source)?)
    })
}

/// A kernel with its constants, on blocks of 256 threads for a grid-stride loop over `n` elements.
pub(crate) fn launch(
    stream: &Stream,
    text: &'static str,
    entry: &str,
    options: &str,
    constants: Constants,
    n: usize,
) -> Result<Launch> {
    launch_blocks(stream, text, entry, options, constants, blocks(n))
}

/// A kernel with its constants, on `blocks` blocks of 256 threads.
pub(crate) fn launch_blocks(
    stream: &Stream,
    text: &'static str,
    entry: &str,
    options: &str,
    constants: Constants,
    blocks: u64,
) -> Result<Launch> {
    let pipeline = kernel(stream, text, entry, options)?;
    Ok(Launch { pipeline, constants: constants.0, grid: [blocks * 256, 1, 1], threadgroup: [256, 1, 1] })
}

/// The name of an element type in the texts.
pub(crate) fn type_name(dtype: Dtype) -> &'static str {
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

/// Blocks of 256 threads for a grid-stride loop over `n` elements: enough to fill any device.
pub(crate) fn blocks(n: usize) -> u64 {
    (n as u64).div_ceil(256).clamp(1, 1 << 20)
}

/// The logarithm of the number of threads that share a row of `words`: a thread for each word of a short row;
/// several words for each thread of a long one, so that their loads overlap.
pub(crate) fn lanes_shift(words: usize) -> u32 {
    let lanes = if words <= 32 { words } else { words.div_ceil(4).clamp(32, 256) };
    lanes.next_power_of_two().trailing_zeros()
}
