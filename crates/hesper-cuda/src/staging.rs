//! Host reads and writes of device memory through page-locked staging buffers.
//!
//! A transfer is split into pieces that alternate between two page-locked halves: while the device copies
//! one, the host copies the other. Large transfers are split across threads, since one thread copies more
//! slowly than the bus. Channels are pooled, and their number is limited.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use hesper_runtime::panics;

use crate::context::{Context, Current};
use crate::error::{CudaError, Result};
use crate::event;
use crate::shutdown;
use crate::sys::{self, CUdeviceptr, CUevent, CUstream};

/// Bytes of one half.
const HALF_BYTES: usize = 4 << 20;
/// The largest number of channels, and so of threads that transfer at once.
const MAX_CHANNELS: usize = 8;
/// Transfers of at least this size use several threads.
const MIN_PARALLEL_BYTES: usize = 32 << 20;
/// The most threads of one transfer.
const MAX_TRANSFER_THREADS: usize = 8;

struct Channel {
    stream: CUstream,
    halves: [*mut c_void; 2],
    events: [CUevent; 2],
}

// SAFETY: one thread at a time uses a channel; its addresses are valid on every thread.
unsafe impl Send for Channel {}

/// The pool of channels of a device.
pub(crate) struct Staging {
    context: Arc<Context>,
    free: Mutex<(Vec<Channel>, usize)>,
    returned: Condvar,
    spin: Duration,
}

/// The direction of a transfer, with its host memory.
#[derive(Clone, Copy)]
enum Direction {
    ToDevice(*const u8),
    ToHost(*mut u8),
}

// SAFETY: the address belongs to a slice that the caller borrows for the duration of the transfer; parts do
// not overlap.
unsafe impl Send for Direction {}

impl Direction {
    fn skip(self, bytes: usize) -> Direction {
        match self {
            Direction::ToDevice(from) => Direction::ToDevice(from.wrapping_add(bytes)),
            Direction::ToHost(to) => Direction::ToHost(to.wrapping_add(bytes)),
        }
    }
}

impl Staging {
    pub(crate) fn new(context: Arc<Context>, spin: Duration) -> Self {
        Staging { context, free: Mutex::new((Vec::new(), 0)), returned: Condvar::new(), spin }
    }

    /// Copies to the device and waits.
    ///
    /// # Safety
    /// The bytes at `to` are device memory that nothing uses.
    pub(crate) unsafe fn write(&self, to: CUdeviceptr, data: &[u8]) -> Result<()> {
        // SAFETY: upheld by the caller; the slice is borrowed for the whole call.
        unsafe { self.transfer(to, Direction::ToDevice(data.as_ptr()), data.len()) }
    }

    /// Copies to the host and waits.
    ///
    /// # Safety
    /// The bytes at `from` are device memory that nothing writes.
    pub(crate) unsafe fn read(&self, from: CUdeviceptr, out: &mut [u8]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.transfer(from, Direction::ToHost(out.as_mut_ptr()), out.len()) }
    }

    /// # Safety
    /// `len` bytes at `device` and on the host are valid and exclusive for the duration of the call.
    unsafe fn transfer(&self, device: CUdeviceptr, direction: Direction, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let threads =
            std::thread::available_parallelism().map_or(1, |count| count.get()).min(MAX_TRANSFER_THREADS);
        if len < MIN_PARALLEL_BYTES || threads == 1 {
            // SAFETY: upheld by the caller.
            return unsafe { self.transfer_part(device, direction, len) };
        }
        let share = len.div_ceil(threads).next_multiple_of(HALF_BYTES);
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            let mut start = share;
            while start < len {
                let size = share.min(len - start);
                let (device, direction) = (device + start as u64, direction.skip(start));
                let run = move || {
                    // The caller waits for this thread, so it must not block at the gate during exit.
                    shutdown::mark_device_thread();
                    // SAFETY: upheld by the caller; parts do not overlap.
                    unsafe { self.transfer_part(device, direction, size) }
                };
                match std::thread::Builder::new().spawn_scoped(scope, run) {
                    Ok(thread) => others.push(thread),
                    // The thread could not be started: copy here.
                    // SAFETY: as above.
                    Err(_) => unsafe { self.transfer_part(device, direction, size) }?,
                }
                start += size;
            }
            // SAFETY: as above.
            let mut outcome = unsafe { self.transfer_part(device, direction, share.min(len)) };
            for thread in others {
                let other = thread.join().unwrap_or_else(|panic| {
                    let message = panics::message(&*panic);
                    Err(CudaError::Panicked { what: "a transfer thread", message })
                });
                outcome = outcome.and(other);
            }
            outcome
        })
    }

    /// # Safety
    /// As for `transfer`.
    unsafe fn transfer_part(&self, device: CUdeviceptr, direction: Direction, len: usize) -> Result<()> {
        let current = self.context.enter()?;
        let channel = self.take(&current)?;
        // SAFETY: upheld by the caller.
        let outcome = unsafe { self.copy_pipelined(&current, &channel, device, direction, len) };
        if outcome.is_err() {
            // Wait until no copy uses the halves before they are reused.
            // SAFETY: the channel owns the stream.
            let _ = unsafe { current.synchronize_stream(channel.stream) };
        }
        self.put(channel);
        outcome
    }

    /// # Safety
    /// As for `transfer`.
    unsafe fn copy_pipelined(
        &self,
        current: &Current<'_>,
        channel: &Channel,
        device: CUdeviceptr,
        direction: Direction,
        len: usize,
    ) -> Result<()> {
        let pieces = len.div_ceil(HALF_BYTES);
        let size = |piece: usize| HALF_BYTES.min(len - piece * HALF_BYTES);
        let at = |piece: usize| device + (piece * HALF_BYTES) as u64;
        // SAFETY: pieces lie inside of the transfer, a half holds one piece, and a half is accessed only
        // after its event has completed.
        unsafe {
            match direction {
                Direction::ToDevice(from) => {
                    for piece in 0..pieces {
                        let (half, event) = (channel.halves[piece % 2], channel.events[piece % 2]);
                        if piece >= 2 {
                            event::wait(current, event, self.spin)?;
                        }
                        from.add(piece * HALF_BYTES).copy_to_nonoverlapping(half.cast(), size(piece));
                        current.copy_in(at(piece), half, size(piece), channel.stream)?;
                        current.record(event, channel.stream)?;
                    }
                    event::wait(current, channel.events[(pieces - 1) % 2], self.spin)
                }
                Direction::ToHost(to) => {
                    let issue = |piece: usize| -> Result<()> {
                        let half = channel.halves[piece % 2];
                        current.copy_out(half, at(piece), size(piece), channel.stream)?;
                        current.record(channel.events[piece % 2], channel.stream)
                    };
                    for piece in 0..pieces.min(2) {
                        issue(piece)?;
                    }
                    for piece in 0..pieces {
                        event::wait(current, channel.events[piece % 2], self.spin)?;
                        let half = channel.halves[piece % 2].cast::<u8>();
                        half.copy_to_nonoverlapping(to.add(piece * HALF_BYTES), size(piece));
                        if piece + 2 < pieces {
                            issue(piece + 2)?;
                        }
                    }
                    Ok(())
                }
            }
        }
    }

    fn take(&self, current: &Current<'_>) -> Result<Channel> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(channel) = free.0.pop() {
                return Ok(channel);
            }
            if free.1 < MAX_CHANNELS {
                free.1 += 1;
                drop(free);
                return Channel::new(current).inspect_err(|_| {
                    self.free.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
                    self.returned.notify_one();
                });
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, channel: Channel) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).0.push(channel);
        self.returned.notify_one();
    }
}

impl Channel {
    fn new(current: &Current<'_>) -> Result<Self> {
        let flags = sys::CU_EVENT_BLOCKING_SYNC | sys::CU_EVENT_DISABLE_TIMING;
        let memory = current.allocate_host(2 * HALF_BYTES)?;
        let mut channel = Channel {
            stream: CUstream::NULL,
            halves: [memory, memory.wrapping_byte_add(HALF_BYTES)],
            events: [CUevent::NULL; 2],
        };
        let filled = (|| {
            channel.stream = current.create_stream()?;
            for event in &mut channel.events {
                *event = current.create_event(flags)?;
            }
            Ok(())
        })();
        match filled {
            Ok(()) => Ok(channel),
            Err(error) => {
                channel.destroy(current);
                Err(error)
            }
        }
    }

    /// Releases the resources. In a lost context the calls have no effect.
    fn destroy(self, current: &Current<'_>) {
        // SAFETY: the channel is idle and owned.
        unsafe {
            if self.stream != CUstream::NULL {
                let _ = current.destroy_stream(self.stream);
            }
            for event in self.events.into_iter().filter(|event| *event != CUevent::NULL) {
                let _ = current.destroy_event(event);
            }
            let _ = current.free_host(self.halves[0]);
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let free = std::mem::take(&mut self.free.get_mut().unwrap_or_else(PoisonError::into_inner).0);
        if let Ok(current) = self.context.enter_to_release() {
            for channel in free {
                channel.destroy(&current);
            }
        }
    }
}
