//! Memory: buffers in shared memory, imported host memory, residency, limits.
//!
//! The recommended working set is the device's total memory. Under memory pressure the runtime frees what it
//! keeps for reuse; see [`Device::take_memory_pressure`](hesper_runtime::Device::take_memory_pressure).

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hesper_runtime::{DeviceError, RawMemory};

use crate::edge::{Buffer, Metal, Queue, ResidencySet};
use crate::host::lock;

struct Live {
    len: usize,
    resident: bool,
}

#[derive(Default)]
struct Residency {
    /// Made with the first limit above zero.
    set: Option<ResidencySet>,
    limit: usize,
    bytes: usize,
}

#[derive(Default)]
struct Buffers {
    live: HashMap<u64, Live>,
    bytes: usize,
    residency: Residency,
}

/// The buffers of a device.
pub(crate) struct Memory {
    edge: Arc<dyn Metal>,
    buffers: Mutex<Buffers>,
    /// Imported memory that starts inside of its first page: the buffer and the offset.
    offsets: Mutex<HashMap<u64, usize>>,
    has_offsets: AtomicBool,
    pressure: AtomicBool,
    /// The ablation of real memory: imports make no buffer.
    #[cfg(feature = "sim")]
    lazy_imports: bool,
}

/// The identifier of memory without a buffer, under the ablation of real memory.
#[cfg(feature = "sim")]
pub(crate) const NO_BUFFER: u64 = u64::MAX;

impl Memory {
    pub(crate) fn new(edge: Arc<dyn Metal>, #[cfg(feature = "sim")] lazy_imports: bool) -> Self {
        Memory {
            edge,
            buffers: Mutex::default(),
            offsets: Mutex::default(),
            has_offsets: AtomicBool::new(false),
            pressure: AtomicBool::new(false),
            #[cfg(feature = "sim")]
            lazy_imports,
        }
    }

    pub(crate) fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        let properties = self.edge.properties();
        if len > properties.max_buffer {
            return Err(DeviceError::OutOfMemory(format!(
                "{len} bytes are more than a buffer of {} can have: {}",
                properties.name, properties.max_buffer
            )));
        }
        let mut buffers = lock(&self.buffers);
        if buffers.live.len() >= properties.max_buffers {
            let most = properties.max_buffers;
            return Err(DeviceError::OutOfMemory(format!(
                "the process has {most} buffers, the most there can be"
            )));
        }
        let Some((buffer, host)) = self.edge.new_buffer(len) else {
            return Err(DeviceError::OutOfMemory(format!(
                "Metal refused a buffer of {len} bytes; {} of {} bytes are allocated",
                buffers.bytes, properties.recommended_working_set
            )));
        };
        self.add(&mut buffers, buffer, len);
        Ok(RawMemory { id: buffer.0, host: Some(host), len })
    }

    /// Imports host memory in place: the buffer spans the pages that contain it. Memory of less than a page
    /// is copied, which costs less than mapping it.
    ///
    /// # Safety
    /// As for [`Device::import`](hesper_runtime::Device::import).
    pub(crate) unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        #[cfg(feature = "sim")]
        if self.lazy_imports {
            return Ok(RawMemory { id: NO_BUFFER, host: Some(host), len });
        }
        let properties = self.edge.properties();
        let page = properties.page_size;
        let unsupported = DeviceError::Unsupported("an import of this host memory");
        if len < page {
            return Err(unsupported);
        }
        let offset = host.as_ptr().addr() % page;
        let span = offset.checked_add(len).and_then(|len| len.checked_next_multiple_of(page));
        let Some(span) = span.filter(|span| *span <= properties.max_buffer) else { return Err(unsupported) };
        if lock(&self.buffers).live.len() >= properties.max_buffers {
            return Err(unsupported);
        }
        // SAFETY: memory is mapped in pages, so the first and the last page of the range are mapped as long
        // as it is. No command writes imported memory, and none reads outside of the range.
        let buffer = unsafe { self.edge.new_buffer_no_copy(host.sub(offset), span) };
        // Memory that Metal cannot map is copied.
        let Some(buffer) = buffer else { return Err(unsupported) };
        if offset != 0 {
            lock(&self.offsets).insert(buffer.0, offset);
            self.has_offsets.store(true, Ordering::Release);
        }
        self.add(&mut lock(&self.buffers), buffer, span);
        Ok(RawMemory { id: buffer.0, host: Some(host), len })
    }

    /// The offset of a buffer's memory from the start of the buffer.
    pub(crate) fn offset(&self, memory: &RawMemory) -> usize {
        if !self.has_offsets.load(Ordering::Acquire) {
            return 0;
        }
        lock(&self.offsets).get(&memory.id).copied().unwrap_or(0)
    }

    /// # Safety
    /// As for [`Device::free`](hesper_runtime::Device::free).
    pub(crate) unsafe fn free(&self, memory: RawMemory) {
        let mut buffers = lock(&self.buffers);
        let Some(live) = buffers.live.remove(&memory.id) else { return };
        buffers.bytes -= live.len;
        let buffer = Buffer(memory.id);
        // SAFETY: the buffer is alive until here, and no work names it.
        unsafe {
            if let Some(set) = buffers.residency.set.filter(|_| live.resident) {
                buffers.residency.bytes -= live.len;
                self.edge.set_resident(set, &[buffer], false);
            }
            if self.has_offsets.load(Ordering::Acquire) {
                lock(&self.offsets).remove(&memory.id);
            }
            self.edge.release(buffer.into());
        }
    }

    fn add(&self, buffers: &mut Buffers, buffer: Buffer, len: usize) {
        let Residency { set, limit, bytes } = &mut buffers.residency;
        let resident = set.is_some_and(|set| {
            let fits = bytes.saturating_add(len) <= *limit;
            if fits {
                *bytes += len;
                // SAFETY: both are alive.
                unsafe { self.edge.set_resident(set, &[buffer], true) };
            }
            fits
        });
        buffers.bytes += len;
        buffers.live.insert(buffer.0, Live { len, resident });
    }

    /// Sets the bytes of buffers that stay resident and returns the old limit; `None` if the system has no
    /// residency sets. The caller keeps the `queues` alive.
    pub(crate) fn set_wired_limit(&self, limit: usize, queues: impl Fn() -> Vec<Queue>) -> Option<usize> {
        let mut buffers = lock(&self.buffers);
        let set = match buffers.residency.set {
            Some(set) => set,
            None if limit == 0 => return Some(0),
            None => {
                let set = self.edge.new_residency_set()?;
                for queue in queues() {
                    // SAFETY: both are alive: the caller keeps the queues.
                    unsafe { self.edge.use_residency_set(queue, set) };
                }
                buffers.residency.set = Some(set);
                set
            }
        };
        let old = std::mem::replace(&mut buffers.residency.limit, limit);
        let Buffers { live, residency, .. } = &mut *buffers;
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for (id, buffer) in live {
            let fits = residency.bytes.saturating_add(buffer.len) <= limit;
            let stays = buffer.resident && residency.bytes <= limit;
            let resident = stays || (!buffer.resident && fits);
            if resident != buffer.resident {
                let change = if resident { &mut added } else { &mut removed };
                change.push(Buffer(*id));
                residency.bytes =
                    if resident { residency.bytes + buffer.len } else { residency.bytes - buffer.len };
                buffer.resident = resident;
            }
        }
        for (list, resident) in [(removed, false), (added, true)] {
            if !list.is_empty() {
                // SAFETY: the set and the buffers are alive.
                unsafe { self.edge.set_resident(set, &list, resident) };
            }
        }
        Some(old)
    }

    /// Lets a new queue rely on the residency set.
    pub(crate) fn add_queue(&self, queue: Queue) {
        if let Some(set) = lock(&self.buffers).residency.set {
            // SAFETY: both are alive.
            unsafe { self.edge.use_residency_set(queue, set) };
        }
    }

    /// Notes memory pressure.
    pub(crate) fn press(&self) {
        self.pressure.store(true, Ordering::Release);
    }

    /// Whether there was memory pressure since the last call.
    pub(crate) fn take_pressure(&self) -> bool {
        self.pressure.load(Ordering::Acquire) && self.pressure.swap(false, Ordering::AcqRel)
    }

    /// Bytes of all buffers, and of the resident ones among them.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let buffers = lock(&self.buffers);
        (buffers.bytes, buffers.residency.bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(set) = lock(&self.buffers).residency.set {
            // SAFETY: the device is dropped, so no queue uses the set.
            unsafe { self.edge.release(set.into()) };
        }
    }
}
