//! The state of a device: options, limits, counters, captures.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use hesper_runtime::cache_folder::CacheFolder;
use hesper_runtime::{DeviceError, DeviceInfo, RawMemory};

#[cfg(feature = "sim")]
use crate::ablation::DeviceAblation;
use crate::compiler::{Compiler, Printer};
use crate::edge::{Metal, Properties};
use crate::error::{MetalError, Result};
use crate::event_pool::EventPool;
use crate::host::{is_validating, lock};
use crate::memory::Memory;
#[cfg(feature = "sim")]
use crate::memory::NO_BUFFER;
use crate::report::ReportPool;
use crate::streams::Streams;

/// Options for opening a device.
#[derive(Clone)]
pub struct MetalOptions {
    /// The number of commands after which an open submission is committed automatically.
    pub batch: usize,
    /// The number of submissions of one stream that may be in flight.
    pub max_in_flight: usize,
    /// The folder of the archives of compiled kernels; `None` for none.
    pub cache: Option<PathBuf>,
    /// Whether each command is named in captures and in Metal's own diagnostics; by default if
    /// `HESPER_VALIDATE` is set and not `0`.
    pub signposts: bool,
    /// Prints kernels of other languages as Metal text.
    pub printer: Option<Printer>,
    /// The mechanism of this crate that is switched off, to show what it prevents.
    #[cfg(feature = "sim")]
    pub ablation: DeviceAblation,
}

impl Default for MetalOptions {
    fn default() -> Self {
        MetalOptions {
            batch: 64,
            max_in_flight: 16,
            cache: CacheFolder::default_folder("metal"),
            signposts: is_validating(),
            printer: None,
            #[cfg(feature = "sim")]
            ablation: DeviceAblation::None,
        }
    }
}

/// Counters of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MetalCounters {
    /// Kernels that Metal compiled.
    pub compiled: u64,
    /// Kernels taken from an archive.
    pub from_archive: u64,
    /// Command buffers committed.
    pub command_buffers: u64,
    /// Dispatches encoded, copies and clears among them.
    pub dispatches: u64,
    /// Barriers encoded.
    pub barriers: u64,
    /// Bytes of all buffers.
    pub buffer_bytes: usize,
    /// Bytes of the resident ones.
    pub resident_bytes: usize,
}

/// The state shared by a device's users and Metal's threads; see
/// [`Runtime::extension`](hesper_runtime::Runtime::extension).
pub struct MetalShared {
    pub(crate) compiler: Compiler,
    pub(crate) events: EventPool,
    pub(crate) memory: Memory,
    pub(crate) reports: Arc<ReportPool>,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) edge: Arc<dyn Metal>,
    pub(crate) options: MetalOptions,
    pub(crate) info: DeviceInfo,
    pub(crate) lost: OnceLock<String>,
    pub(crate) command_buffers: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    pub(crate) barriers: AtomicU64,
    pub(crate) capturing: Mutex<bool>,
}

impl MetalShared {
    /// Identity and limits of the GPU.
    pub fn properties(&self) -> &Properties {
        self.edge.properties()
    }

    /// Counters so far.
    pub fn counters(&self) -> MetalCounters {
        let (buffer_bytes, resident_bytes) = self.memory.bytes();
        MetalCounters {
            compiled: self.compiler.compiled.load(Ordering::Relaxed),
            from_archive: self.compiler.from_archive.load(Ordering::Relaxed),
            command_buffers: self.command_buffers.load(Ordering::Relaxed),
            dispatches: self.dispatches.load(Ordering::Relaxed),
            barriers: self.barriers.load(Ordering::Relaxed),
            buffer_bytes,
            resident_bytes,
        }
    }

    /// The first cause, if the device is lost.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Sets how many bytes of buffers stay resident, and returns the old limit: 0 at first. The system cannot
    /// use resident memory for anything else. `None` if the system is older than residency sets (macOS 15,
    /// iOS 18).
    pub fn set_wired_limit(&self, bytes: usize) -> Option<usize> {
        // Held: a queue that is named here must not be released meanwhile.
        let streams = lock(&self.streams);
        self.memory.set_wired_limit(bytes, || streams.queues())
    }

    /// Captures all GPU work into a `.gputrace` file until the returned value is dropped.
    pub fn capture(self: &Arc<Self>, path: &Path) -> Result<Capture> {
        let mut capturing = lock(&self.capturing);
        let started = match *capturing {
            true => Err("another capture is running".to_string()),
            false => self.edge.start_capture(path),
        };
        started.map_err(|message| MetalError::Capture { path: path.display().to_string(), message })?;
        *capturing = true;
        Ok(Capture(self.clone()))
    }

    pub(crate) fn check_lost(&self) -> Result<(), DeviceError> {
        match self.lost.get() {
            Some(cause) => Err(DeviceError::Lost(cause.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn lose(&self, cause: &str) {
        let _ = self.lost.set(cause.to_string());
    }

    pub(crate) fn count(&self, dispatches: u64, barriers: u64) {
        self.dispatches.fetch_add(dispatches, Ordering::Relaxed);
        self.barriers.fetch_add(barriers, Ordering::Relaxed);
    }

    pub(crate) fn count_command_buffer(&self) {
        self.command_buffers.fetch_add(1, Ordering::Relaxed);
    }
}

/// The mechanisms that an ablation switches off.
#[cfg(feature = "sim")]
impl MetalShared {
    pub(crate) fn orders_dispatches(&self) -> bool {
        self.options.ablation != DeviceAblation::Barriers
    }

    pub(crate) fn orders_encoders(&self) -> bool {
        self.options.ablation != DeviceAblation::Fences
    }

    pub(crate) fn orders_streams(&self) -> bool {
        self.options.ablation != DeviceAblation::Events
    }

    pub(crate) fn is_real(&self, memory: &RawMemory) -> bool {
        memory.id != NO_BUFFER
    }
}

#[cfg(not(feature = "sim"))]
impl MetalShared {
    pub(crate) fn orders_dispatches(&self) -> bool {
        true
    }

    pub(crate) fn orders_encoders(&self) -> bool {
        true
    }

    pub(crate) fn orders_streams(&self) -> bool {
        true
    }

    pub(crate) fn is_real(&self, _: &RawMemory) -> bool {
        true
    }
}

/// A running capture; dropping it ends the capture.
pub struct Capture(Arc<MetalShared>);

impl Drop for Capture {
    fn drop(&mut self) {
        let mut capturing = lock(&self.0.capturing);
        self.0.edge.stop_capture();
        *capturing = false;
    }
}
