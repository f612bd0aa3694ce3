//! A pool of events that mark the completion of submissions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::context::{Context, Current};
use crate::error::Result;
use crate::sys::{self, CUevent};

/// A pool of unused events.
pub(crate) struct EventPool {
    context: Arc<Context>,
    free: Mutex<Vec<CUevent>>,
}

/// An event; dropping it returns it to its pool.
pub(crate) struct Event {
    /// `None` for an event that has completed.
    raw: Option<CUevent>,
    pool: Arc<EventPool>,
}

impl EventPool {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(EventPool { context, free: Mutex::new(Vec::new()) })
    }

    /// Takes an event that is not recorded.
    pub(crate) fn take(self: &Arc<Self>, current: &Current<'_>) -> Result<Arc<Event>> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let raw = match free {
            Some(raw) => raw,
            None => current.create_event(sys::CU_EVENT_BLOCKING_SYNC | sys::CU_EVENT_DISABLE_TIMING)?,
        };
        Ok(Arc::new(Event { raw: Some(raw), pool: self.clone() }))
    }

    /// An event that has completed.
    pub(crate) fn completed(self: &Arc<Self>) -> Arc<Event> {
        Arc::new(Event { raw: None, pool: self.clone() })
    }
}

impl Drop for EventPool {
    fn drop(&mut self) {
        let free = std::mem::take(self.free.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Ok(current) = self.context.enter_to_release() {
            for event in free {
                // SAFETY: the pool owns the event, and nothing uses it.
                let _ = unsafe { current.destroy_event(event) };
            }
        }
    }
}

impl Event {
    /// The driver's event; `None` if there is nothing to wait for.
    pub(crate) fn raw(&self) -> Option<CUevent> {
        self.raw
    }

    /// Waits: spins for a short time, then sleeps.
    pub(crate) fn wait(&self, current: &Current<'_>, spin: Duration) -> Result<()> {
        self.raw.map_or(Ok(()), |raw| wait(current, raw, spin))
    }

    /// Whether it has completed.
    pub(crate) fn done(&self, current: &Current<'_>) -> Result<bool> {
        // SAFETY: the event lives as long as `self`.
        self.raw.map_or(Ok(true), |raw| unsafe { current.query(raw) })
    }
}

/// The pause between two queries of a spinning thread.
const QUERY_INTERVAL: Duration = Duration::from_nanos(700);

/// The right to spin instead of sleep. Few threads have it at a time, since launching threads need cores.
struct SpinPermit;

/// The number of spinning threads.
static SPINNING: AtomicUsize = AtomicUsize::new(0);

impl SpinPermit {
    /// `None` if enough threads spin.
    fn new() -> Option<Self> {
        static LIMIT: OnceLock<usize> = OnceLock::new();
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let limit = *LIMIT.get_or_init(|| (cores() / 4).max(1));
        // Dropping a surplus permit takes it out of the count.
        let permit = SpinPermit;
        (SPINNING.fetch_add(1, Ordering::Relaxed) < limit).then_some(permit)
    }
}

impl Drop for SpinPermit {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for a live event: spins for at most `spin`, if a permit is free, then sleeps.
pub(crate) fn wait(current: &Current<'_>, event: CUevent, spin: Duration) -> Result<()> {
    let permit = SpinPermit::new();
    let begun = Instant::now();
    let mut next = Duration::ZERO;
    while permit.is_some() && next < spin {
        // SAFETY: by the contract of this function the event is alive.
        if unsafe { current.query(event) }? {
            return Ok(());
        }
        // The driver serves one thread at a time: leave time for launching threads.
        next = begun.elapsed() + QUERY_INTERVAL;
        while begun.elapsed() < next {
            std::hint::spin_loop();
        }
    }
    drop(permit);
    // SAFETY: as above.
    unsafe { current.synchronize(event) }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).extend(self.raw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_and_returned() {
        let permits: Vec<SpinPermit> = std::iter::from_fn(SpinPermit::new).collect();
        assert!(!permits.is_empty() && SpinPermit::new().is_none());
        drop(permits);
        assert!(SpinPermit::new().is_some());
        assert_eq!(SPINNING.load(Ordering::Relaxed), 0);
    }
}
