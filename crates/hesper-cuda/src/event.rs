//! Events that mark the completion of submissions, used again and again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::context::{Context, Current};
use crate::error::Result;
use crate::sys::{self, CUevent};

/// Events that nobody uses.
pub(crate) struct EventPool {
    context: Arc<Context>,
    free: Mutex<Vec<CUevent>>,
}

/// An event; it returns to its pool when its last user lets go.
pub(crate) struct Event {
    /// `None` marks what is over already.
    raw: Option<CUevent>,
    pool: Arc<EventPool>,
}

impl EventPool {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(EventPool { context, free: Mutex::new(Vec::new()) })
    }

    /// An event that has not been recorded since it was last used.
    pub(crate) fn take(self: &Arc<Self>, current: &Current<'_>) -> Result<Arc<Event>> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let raw = match free {
            Some(raw) => raw,
            None => current.create_event(sys::CU_EVENT_BLOCKING_SYNC | sys::CU_EVENT_DISABLE_TIMING)?,
        };
        Ok(Arc::new(Event { raw: Some(raw), pool: self.clone() }))
    }

    /// The mark of what is over already.
    pub(crate) fn over(self: &Arc<Self>) -> Arc<Event> {
        Arc::new(Event { raw: None, pool: self.clone() })
    }
}

impl Drop for EventPool {
    fn drop(&mut self) {
        let free = std::mem::take(self.free.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Ok(current) = self.context.enter_to_release() {
            for event in free {
                // SAFETY: the event is the pool's own and nobody uses it.
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

    /// Waits: first by looking, for a short work's sake, then asleep.
    pub(crate) fn wait(&self, current: &Current<'_>, look: Duration) -> Result<()> {
        self.raw.map_or(Ok(()), |raw| wait(current, raw, look))
    }

    /// Whether it has completed.
    pub(crate) fn done(&self, current: &Current<'_>) -> Result<bool> {
        // SAFETY: the event is alive as long as `self` is.
        self.raw.map_or(Ok(true), |raw| unsafe { current.query(raw) })
    }
}

/// How long a thread that looks for an event's end lets the driver alone.
const BETWEEN_LOOKS: Duration = Duration::from_nanos(700);

/// A thread that looks instead of sleeping. There are few at a time: those who launch need cores, too.
struct Looker;

/// How many there are.
static LOOKERS: AtomicUsize = AtomicUsize::new(0);

impl Looker {
    /// `None` if there are enough of them.
    fn new() -> Option<Self> {
        static MOST: OnceLock<usize> = OnceLock::new();
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let most = *MOST.get_or_init(|| (cores() / 4).max(1));
        // Counted, and not counted any more if it was one too many.
        let looker = Looker;
        (LOOKERS.fetch_add(1, Ordering::Relaxed) < most).then_some(looker)
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        LOOKERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for an event that is alive: first by looking for at most `look`, unless others do, then asleep.
pub(crate) fn wait(current: &Current<'_>, event: CUevent, look: Duration) -> Result<()> {
    let looker = Looker::new();
    let begun = Instant::now();
    let mut next = Duration::ZERO;
    while looker.is_some() && next < look {
        // SAFETY: the caller's event is alive.
        if unsafe { current.query(event) }? {
            return Ok(());
        }
        // The driver answers one thread at a time: a moment is left for those who launch.
        next = begun.elapsed() + BETWEEN_LOOKS;
        while begun.elapsed() < next {
            std::hint::spin_loop();
        }
    }
    drop(looker);
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
    fn few_look_at_a_time_and_a_place_that_was_left_is_free() {
        let lookers: Vec<Looker> = std::iter::from_fn(Looker::new).collect();
        assert!(!lookers.is_empty() && Looker::new().is_none());
        drop(lookers);
        assert!(Looker::new().is_some());
        assert_eq!(LOOKERS.load(Ordering::Relaxed), 0);
    }
}
