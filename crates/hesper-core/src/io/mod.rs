//! Files: arrays from safetensors, npy, npz and GGUF, and back.
//!
//! [`load`] reads a file's header and returns lazy arrays. An array's bytes are read when it is evaluated: in
//! place in the mapped file if layout and alignment allow it, else into memory of their own. A load that
//! fails leaves its array lazy, so it can be retried. [`hesper_files::source`] says which changes of a file
//! are detected meanwhile: an array gives the right data, or an error for which
//! [`Error::is_damage`](crate::Error::is_damage) is true.
//!
//! Saving ([`save_safetensors`], [`save_npy`], [`save_npz`], [`save_gguf`]) writes the arrays to a temporary
//! file and then renames it over the old one, which may be the file that the arrays come from.
//!
//! ```
//! use hesper::{Array, io};
//! # let folder = std::env::temp_dir().join(format!("hesper-io-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! # let path = folder.join("weights.safetensors");
//! let w = Array::from_slice(&[1.0f32, 2.0, 3.0]);
//! io::save_safetensors(&path, [("w", &w)], &[])?;
//!
//! let file = io::load(&path)?;
//! let twice = (file.require("w")? * 2.0).to_vec::<f32>()?;
//! assert_eq!(twice, [2.0, 4.0, 6.0]);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), hesper::Error>(())
//! ```

mod blocks;
mod loaded;
mod open;
mod save;
mod tensor;

/// The ops of this module, for backends.
pub mod ops {
    pub use super::blocks::{Decode, Decoded};
    pub use super::tensor::Load;
}

pub use blocks::{Affine, Blocks};
pub use hesper_files::{
    Cancel, Error as FileError, Format, GgmlType, Limits, LoadOptions as Reading, MetaArray, MetaValue,
    Metadata, Progress, Source,
};
pub use loaded::Loaded;
pub use open::{Input, Options, Quantized, load, load_bytes, load_reader, load_with};
pub use save::{
    GgufTensor, save_gguf, save_npy, save_npz, save_npz_compressed, save_safetensors, write_gguf, write_npy,
    write_npz, write_npz_compressed, write_safetensors,
};

/// The examples of the document for users.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/files.md")]
struct Document;
