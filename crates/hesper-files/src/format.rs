//! The file formats.

use std::fmt;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Hugging Face's safetensors.
    Safetensors,
    /// One NumPy array.
    Npy,
    /// A zip archive of NumPy arrays.
    Npz,
    /// ggml's container.
    Gguf,
    /// The index of a sharded checkpoint.
    ShardIndex,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Safetensors => "safetensors",
            Format::Npy => "npy",
            Format::Npz => "npz",
            Format::Gguf => "GGUF",
            Format::ShardIndex => "shard index",
        })
    }
}
