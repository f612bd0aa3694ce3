//! The state of an opened device: blocks of memory, streams, pipelines, the ledger that orders what uses
//! them, and the work that a device gets. These refer to each other; what is done with them is in the
//! modules above.

mod block;
mod committer;
mod device;
mod ledger;
mod pipeline;
mod pool;
mod shared;
mod stream;
mod work;

pub(crate) use block::{
    Block, Handle, Lease, Owner, Ownership, Replica, Replicas, WRITE_GUARDED, check_watch,
};
pub use block::{Buffer, UniqueBuffer, Watch};
pub(crate) use committer::Committer;
pub use device::Device;
pub(crate) use ledger::{BindingDraft, FaultCell, Garbage, Ledger, OpDraft};
pub use ledger::{IdHasher, IdMap};
pub(crate) use pipeline::PipelineCache;
pub use pipeline::{CacheCounters, CacheLimits, Pipeline};
pub(crate) use pool::{Requester, class_of};
pub(crate) use shared::{Shared, new_id};
pub(crate) use stream::StreamShared;
pub(crate) use work::Batch;
pub use work::{HostDispatch, Work};
