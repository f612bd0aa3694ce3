//! Tensor files: safetensors, npy, npz and GGUF, read lazily and written atomically.
//!
//! This crate knows bytes, names, dtypes and shapes; it knows nothing of arrays or devices, and of the
//! runtime only what memory has to promise that a buffer is made of. It promises:
//!
//! - **Lazy.** Opening a file reads its header and nothing else: time and memory follow the header, not the
//!   file. Tensor bytes are reached by range, in place in a mapping where layout and alignment allow it.
//! - **Hostile-proof.** Every length, offset, count, shape product, string and nesting depth is checked
//!   before it is used. No allocation is larger than what the file's own size justifies. Whatever the bytes,
//!   the answer is a [`TensorFile`] or an [`Error`] that names the tensor and the field.
//! - **Files may change underfoot.** Replacing or deleting a mapped file leaves the data right; truncating it
//!   gives a typed error and does not kill the process (see [`Source`]).
//! - **Saving is atomic.** A save either replaces the destination by a complete file or leaves it as it was,
//!   even when the destination is the file that a live [`Source`] reads.
//!
//! ```
//! use hesper_files::{FileDtype, Source, TensorFile, TensorSpec, write};
//!
//! # fn main() -> Result<(), hesper_files::Error> {
//! let specs = [TensorSpec::new("w", FileDtype::F32, [2])];
//! let data: [&[u8]; 1] = [&[0, 0, 128, 63, 0, 0, 0, 64]];
//! let mut bytes = Vec::new();
//! write::safetensors(&mut bytes, &specs, &[], &mut data.as_slice())?;
//!
//! let file = TensorFile::parse(Source::from_bytes(bytes))?;
//! let w = file.get("w").expect("it was just written");
//! assert_eq!(w.shape, [2]);
//! assert_eq!(file.read(w)?.as_ref(), data[0]);
//! # Ok(())
//! # }
//! ```
//!
//! Unsafe code lives in [`source`] alone: the mapping, its fault handler, and the promise that mapped bytes
//! stay where they are.

#![deny(unsafe_code)]

mod cursor;
mod dtype;
mod error;
mod format;
pub mod gguf;
mod json;
pub mod load;
mod metadata;
pub mod npy;
pub mod npz;
mod parse;
pub mod safetensors;
pub mod shards;
pub mod source;
mod tensor;
pub mod write;
mod zip;

pub use dtype::{FileDtype, ShapeError};
pub use error::{Error, Result};
pub use format::Format;
pub use hesper_types::GgmlType;
pub use load::{Cancel, LoadOptions, Progress, Request, load_into};
pub use metadata::{MetaArray, MetaValue, Metadata};
pub use shards::{ShardIndex, ShardedFile};
pub use source::{FileState, Identity, SharedBytes, SharedSource, Source};
pub use tensor::{Layout, Limits, Storage, TensorFile, TensorInfo};
pub use write::TensorSpec;
