//! Memory and time for array devices.
//!
//! This crate knows nothing of arrays or operations. It allocates memory ([`Buffer`]), orders commands
//! ([`Stream`], [`Encoder`](encoder::Encoder)) and caches compiled kernels ([`Pipeline`]). Devices
//! implement the thin, unsafe [`Device`] trait; everything above it is safe.
//!
//! The guarantees and where they are kept:
//!
//! | guarantee | kept by |
//! |---|---|
//! | work in flight owns what it names | [`Work`] owns leases, pipelines and closures; a binding is an index into its leases |
//! | retention costs no memory | a block returns to the [pool](pool) when its last handle is dropped; streams ordered behind its uses may take it at once |
//! | a kernel is its content | [`PipelineSource`] is compared as a whole; the label is no part of the key |
//! | whatever is bound is real | an encoder binds [`Buffer`]s only, which always have memory, and refuses to read unfilled bytes |
//! | results are those of sequential execution | the [ledger] finds hazards by byte range in encode order |
//! | threads are free | every type is `Send + Sync`; thread-local marks (inside a native command, submitting, lock ranks held) have no destructor, so threads may end in any order |
//! | errors are values | [`Error`] for a refused call, [`Fault`] for accepted work, attached to the leases it poisons |
//! | bounded | pool, pipeline cache, work in flight and trace have limits and counters |

mod alloc;
mod block;
pub mod cache_folder;
mod device;
mod encoder;
mod error;
pub mod fork;
mod guard;
mod hazards;
mod label;
mod ledger;
mod native;
pub mod panics;
mod pipeline;
mod pool;
mod ranges;
mod replica;
mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
pub mod specialisation;
mod stream;
mod submit;
mod sync;
mod trace;
mod validate;
mod work;

pub use block::{Buffer, UniqueBuffer};
pub use device::{
    CompiledPipeline, Device, DeviceError, DeviceInfo, LeaseNote, Progress, RawMemory, RawPipeline, RawStream,
};
pub use encoder::Encoder;
pub use error::{Error, Fault, FaultKind, Result, Scope};
pub use guard::{HostRead, HostWrite};
pub use label::Label;
pub use ledger::{IdHasher, IdMap};
pub use native::{Native, NativeError, NativeFn, NativeResult, View};
pub use pipeline::{CacheCounters, CacheLimits, InternedText, Pipeline, PipelineSource};
pub use runtime::{Counters, HostMemory, Runtime, RuntimeBuilder, Watch};
pub use stream::{Stream, Submission};
#[cfg(feature = "sim")]
pub use sync::coop::{Cooperative, install as install_cooperative};
pub use trace::Trace;
pub use validate::{Report, Rule, Validator, Violation};
pub use work::{Access, Binding, CommandRef, Dispatch, HostDispatch, OpRef, Wait, Work};
