//! The state that all handles of a runtime share.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicU64 as IdCounter, Ordering as IdOrdering};
use std::sync::{Arc, OnceLock};

use super::block::{FreeSlots, Sources};
use super::committer::Committer;
use super::device::Device;
use super::ledger::Ledger;
use super::pipeline::PipelineCache;
#[cfg(feature = "sim")]
use crate::ablation::Ablation;
use crate::error::Fault;
use crate::report::Report;
use crate::sync::Lock;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::trace::Trace;

/// The source of process-wide unique ids. A standard atomic, since ids carry no order.
static IDS: IdCounter = IdCounter::new(1);

pub(crate) fn new_id() -> u64 {
    new_ids(1).start
}

/// Reserves `count` ids.
pub(crate) fn new_ids(count: u64) -> Range<u64> {
    let start = IDS.fetch_add(count, IdOrdering::Relaxed);
    start..start + count
}

/// The state shared by all handles of a runtime.
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) ledger: Lock<Ledger>,
    /// Held while closed submissions are submitted, to keep their order.
    pub(crate) commit: Lock<()>,
    pub(crate) committer: Committer,
    pub(crate) cache: PipelineCache,
    pub(crate) batch: usize,
    pub(crate) trace: Trace,
    pub(crate) slots: Arc<FreeSlots>,
    /// Buffers of other runtimes that have a replica here.
    pub(crate) sources: Sources,
    pub(crate) allocated: Arc<AtomicUsize>,
    pub(crate) memory_limit: AtomicUsize,
    pub(crate) soft_limit: AtomicUsize,
    pub(crate) cache_limit: AtomicUsize,
    pub(crate) faults: AtomicU64,
    pub(crate) lost: OnceLock<Fault>,
    pub(crate) report: Option<Arc<Report>>,
    pub(crate) attachment: OnceLock<Box<dyn Any + Send + Sync>>,
    #[cfg(feature = "sim")]
    pub(crate) ablation: Ablation,
}

impl Shared {
    /// See [`Runtime::attached`](crate::Runtime::attached).
    pub(crate) fn attached<T: Any + Send + Sync + Default>(&self) -> Option<&T> {
        self.attachment.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    pub(crate) fn name(&self) -> String {
        self.device.info().name.clone()
    }

    /// Whether the ablation in force leaves the bytes of an earlier lease in fresh memory.
    #[inline(always)]
    pub(crate) fn leaves_fresh_memory(&self) -> bool {
        #[cfg(feature = "sim")]
        {
            self.ablation == Ablation::FreshMemory
        }
        #[cfg(not(feature = "sim"))]
        {
            false
        }
    }

    /// Whether any fault was ever counted. Until then commands skip the fault checks.
    pub(crate) fn any_fault(&self) -> bool {
        self.faults.load(Ordering::Acquire) != 0
    }

    pub(crate) fn count_fault(&self) {
        self.faults.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn lost(&self) -> Option<Fault> {
        if self.any_fault() { self.lost.get().cloned() } else { None }
    }

    /// Records that the device is lost; returns the first cause.
    pub(crate) fn lose(&self, fault: Fault) -> Fault {
        let first = self.lost.get_or_init(|| fault).clone();
        self.count_fault();
        first
    }
}
