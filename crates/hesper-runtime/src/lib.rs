//! Memory and time for array devices.
//!
//! This crate knows nothing of arrays or operations. It allocates memory ([`Buffer`]), orders commands
//! ([`Stream`], [`Encoder`]) and caches compiled kernels ([`Pipeline`]). Devices
//! implement the thin, unsafe [`Device`] trait; everything above it is safe.
//!
//! The guarantees and where they are kept:
//!
//! | guarantee | kept by |
//! |---|---|
//! | work in flight owns what it names | [`Work`] owns leases, pipelines and closures; a binding is an index into its leases |
//! | retention costs no memory | a block returns to the pool when its last handle is dropped; streams ordered behind its uses may take it at once |
//! | a kernel is its content | [`PipelineSource`] is compared as a whole; the label is no part of the key |
//! | whatever is bound is real | an encoder binds [`Buffer`]s only, which always have memory, and refuses to read unfilled bytes |
//! | results are those of sequential execution | the ledger finds hazards by byte range in encode order |
//! | threads are free | every type is `Send + Sync`; thread-local marks (inside a native command, submitting, lock ranks held) have no destructor, so threads may end in any order |
//! | errors are values | [`Error`] for a refused call, [`Fault`] for accepted work, attached to the leases it poisons |
//! | bounded | pool, pipeline cache, work in flight and trace have limits and counters |

#[cfg(feature = "sim")]
mod ablation;
mod alloc;
pub mod cache_folder;
mod command;
mod encoder;
mod error;
pub mod fork;
mod guard;
mod hazards;
mod label;
mod native;
pub mod panics;
mod ranges;
mod raw;
mod replica;
mod report;
mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
mod source;
pub mod specialisation;
mod state;
mod stream;
mod submit;
mod sync;
mod throttle;
mod trace;
mod validate;

pub use command::{Access, Binding, CommandRef, Dispatch, OpRef, Wait};
pub use encoder::Encoder;
pub use error::{Error, Fault, FaultKind, Result, Scope};
pub use guard::{HostRead, HostWrite};
pub use label::Label;
pub use native::{Native, NativeError, NativeFn, NativeResult, View};
pub use raw::{
    CompiledPipeline, DeviceError, DeviceInfo, LeaseNote, Progress, RawMemory, RawPipeline, RawStream,
};
pub use report::{Report, Rule, Violation};
pub use runtime::{Counters, HostMemory, Runtime, RuntimeBuilder};
pub use source::{InternedText, PipelineSource};
pub use state::{
    Buffer, CacheCounters, CacheLimits, Device, HostDispatch, IdHasher, IdMap, Pipeline, UniqueBuffer, Watch,
    Work,
};
pub use stream::{Stream, Submission};
#[cfg(feature = "sim")]
pub use sync::coop::{Cooperative, install as install_cooperative};
pub use throttle::interruptible;
pub use trace::Trace;
pub use validate::Validator;
