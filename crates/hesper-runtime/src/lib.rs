//! Memory and time for array devices.
//!
//! This crate knows nothing of arrays or operations. It gives out memory ([`Buffer`]), puts commands
//! in order ([`Stream`], [`Encoder`](encoder::Encoder)), keeps compiled kernels ([`Pipeline`]), and sees
//! to it that work in flight owns what it names, that results are those of sequential execution,
//! and that what fails, fails as a value. Devices implement the thin, unsafe [`Device`] trait;
//! everything above it is safe.
//!
//! The promises and where they are kept:
//!
//! | promise | kept by |
//! |---|---|
//! | work in flight owns what it names | [`Work`] owns its bindings, pipelines and closures; a binding is a reference |
//! | retention costs no memory | a block returns to the [pool](pool) when its last handle goes, free for the streams that are ordered behind its uses |
//! | a kernel is its content | [`PipelineSource`] is compared as a whole; labels are for people |
//! | whatever is bound is real | an encoder binds [`Buffer`]s only, which have memory from birth, and refuses what nothing has filled |
//! | results are those of sequential execution | the [ledger] finds hazards by byte range in encode order |
//! | threads are free | every type here is `Send + Sync`; there is no thread-local state but the mark of a running native command |
//! | errors are values | [`Error`] for a refused call, [`Fault`] for accepted work, attached to what it spoils |
//! | bounded | pool, pipeline cache, work in flight and trace have limits and counters |

mod alloc;
mod block;
mod device;
mod encoder;
mod error;
mod guard;
mod handover;
mod history;
mod label;
mod ledger;
mod native;
mod panics;
mod pipeline;
mod pool;
mod ranges;
mod replica;
mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
mod stream;
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
pub use pipeline::{CacheCounters, CacheLimits, Pipeline, PipelineSource, Text};
pub use runtime::{Counters, HostMemory, Runtime, RuntimeBuilder, Watch};
pub use stream::{Stream, Submission};
#[cfg(feature = "sim")]
pub use sync::coop::{Cooperative, install as install_cooperative};
pub use trace::Trace;
pub use validate::{Report, Rule, Validator, Violation};
pub use work::{Access, Binding, CommandRef, Dispatch, HostDispatch, OpRef, Wait, Work};
