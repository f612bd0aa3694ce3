//! Host reads and writes of device memory, by way of page-locked memory.
//!
//! A transfer is cut into pieces that go through two page-locked halves in turn: while the device copies
//! one, the host copies the other. Large transfers are shared out to a few threads, since one thread
//! copies more slowly than the bus. Channels are kept for reuse and bounded in number.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::context::{Context, Current};
use crate::ending;
use crate::error::{CudaError, Result, panic_words};
use crate::event;
use crate::sys::{self, CUdeviceptr, CUevent, CUstream};

/// Bytes of one half.
const HALF: usize = 4 << 20;
/// Most channels, and so most threads that transfer at once.
const CHANNELS: usize = 8;
/// Transfers of this size and more are shared out.
const LARGE: usize = 32 << 20;
/// To how many threads.
const SHARES: usize = 8;

struct Channel {
    stream: CUstream,
    halves: [*mut c_void; 2],
    events: [CUevent; 2],
}

// SAFETY: a channel is used by one thread at a time; its addresses are valid on every thread.
unsafe impl Send for Channel {}

/// The channels of a device.
pub(crate) struct Staging {
    context: Arc<Context>,
    free: Mutex<(Vec<Channel>, usize)>,
    returned: Condvar,
    look: Duration,
}

/// Which way a transfer goes, with its host memory.
#[derive(Clone, Copy)]
enum Way {
    In(*const u8),
    Out(*mut u8),
}

// SAFETY: the address of a slice that the transfer's caller borrows for as long as the transfer takes;
// shares of it do not overlap.
unsafe impl Send for Way {}

impl Way {
    fn skip(self, bytes: usize) -> Way {
        match self {
            Way::In(from) => Way::In(from.wrapping_add(bytes)),
            Way::Out(to) => Way::Out(to.wrapping_add(bytes)),
        }
    }
}

impl Staging {
    pub(crate) fn new(context: Arc<Context>, look: Duration) -> Self {
        Staging { context, free: Mutex::new((Vec::new(), 0)), returned: Condvar::new(), look }
    }

    /// Copies to the device and waits.
    ///
    /// # Safety
    /// The bytes at `to` are device memory that nothing uses.
    pub(crate) unsafe fn write(&self, to: CUdeviceptr, data: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise, and the slice is borrowed for the whole call.
        unsafe { self.transfer(to, Way::In(data.as_ptr()), data.len()) }
    }

    /// Copies to the host and waits.
    ///
    /// # Safety
    /// The bytes at `from` are device memory that nothing writes.
    pub(crate) unsafe fn read(&self, from: CUdeviceptr, out: &mut [u8]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.transfer(from, Way::Out(out.as_mut_ptr()), out.len()) }
    }

    /// # Safety
    /// `len` bytes at `device` and on the host are valid, and nobody else's for the time of the call.
    unsafe fn transfer(&self, device: CUdeviceptr, way: Way, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get()).min(SHARES);
        if len < LARGE || threads == 1 {
            // SAFETY: the caller's promise.
            return unsafe { self.share(device, way, len) };
        }
        let share = len.div_ceil(threads).next_multiple_of(HALF);
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            let mut start = share;
            while start < len {
                let size = share.min(len - start);
                let (device, way) = (device + start as u64, way.skip(start));
                let run = move || {
                    // Its caller waits for it: at the end of the process it must not stay at the gate.
                    ending::own_thread();
                    // SAFETY: the caller's promise; shares do not overlap.
                    unsafe { self.share(device, way, size) }
                };
                match std::thread::Builder::new().spawn_scoped(scope, run) {
                    Ok(thread) => others.push(thread),
                    // No thread to be had: do it here.
                    // SAFETY: as above.
                    Err(_) => unsafe { self.share(device, way, size) }?,
                }
                start += size;
            }
            // SAFETY: as above.
            let mut outcome = unsafe { self.share(device, way, share.min(len)) };
            for thread in others {
                let other = thread.join().unwrap_or_else(|panic| {
                    let message = panic_words(&*panic);
                    Err(CudaError::Panicked { what: "a thread that transfers", message })
                });
                outcome = outcome.and(other);
            }
            outcome
        })
    }

    /// # Safety
    /// As for `transfer`.
    unsafe fn share(&self, device: CUdeviceptr, way: Way, len: usize) -> Result<()> {
        let current = self.context.enter()?;
        let channel = self.take(&current)?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.pump(&current, &channel, device, way, len) };
        if outcome.is_err() {
            // Nothing may be under way when the halves are used again.
            // SAFETY: the stream is the channel's own.
            let _ = unsafe { current.synchronize_stream(channel.stream) };
        }
        self.put(channel);
        outcome
    }

    /// # Safety
    /// As for `transfer`.
    unsafe fn pump(
        &self,
        current: &Current<'_>,
        channel: &Channel,
        device: CUdeviceptr,
        way: Way,
        len: usize,
    ) -> Result<()> {
        let pieces = len.div_ceil(HALF);
        let size = |piece: usize| HALF.min(len - piece * HALF);
        let at = |piece: usize| device + (piece * HALF) as u64;
        // SAFETY: pieces lie inside of the transfer, halves hold a piece each, and a half is touched
        // only after its event has completed.
        unsafe {
            match way {
                Way::In(from) => {
                    for piece in 0..pieces {
                        let (half, event) = (channel.halves[piece % 2], channel.events[piece % 2]);
                        if piece >= 2 {
                            event::wait(current, event, self.look)?;
                        }
                        from.add(piece * HALF).copy_to_nonoverlapping(half.cast(), size(piece));
                        current.copy_in(at(piece), half, size(piece), channel.stream)?;
                        current.record(event, channel.stream)?;
                    }
                    event::wait(current, channel.events[(pieces - 1) % 2], self.look)
                }
                Way::Out(to) => {
                    let issue = |piece: usize| -> Result<()> {
                        let half = channel.halves[piece % 2];
                        current.copy_out(half, at(piece), size(piece), channel.stream)?;
                        current.record(channel.events[piece % 2], channel.stream)
                    };
                    for piece in 0..pieces.min(2) {
                        issue(piece)?;
                    }
                    for piece in 0..pieces {
                        event::wait(current, channel.events[piece % 2], self.look)?;
                        let half = channel.halves[piece % 2].cast::<u8>();
                        half.copy_to_nonoverlapping(to.add(piece * HALF), size(piece));
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
            if free.1 < CHANNELS {
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
        let memory = current.allocate_host(2 * HALF)?;
        let mut channel = Channel {
            stream: CUstream::NULL,
            halves: [memory, memory.wrapping_byte_add(HALF)],
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

    /// Gives back what there is. In a lost context the calls change nothing.
    fn destroy(self, current: &Current<'_>) {
        // SAFETY: the channel is idle and ours.
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
