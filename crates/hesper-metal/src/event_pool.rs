//! Events that mark the end of submissions.
//!
//! Each submission in flight has an event of its own and signals one value of it. If its command buffer
//! fails, the host signals that value instead, and no other command buffer can have moved the event past it:
//! the value never goes backwards, and nothing waits for ever. An event of a finished submission is used
//! again with the next value; waits for older values are satisfied.

use std::sync::{Arc, Mutex};

use crate::edge::{Event, Metal};
use crate::error::{MetalError, Result};
use crate::host::lock;

/// A value of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) event: Event,
    pub(crate) value: u64,
}

#[derive(Default)]
struct Events {
    free: Vec<Signal>,
    all: Vec<Event>,
}

/// The events of a device. They live as long as it does, so that a late wait names a live object.
pub(crate) struct EventPool {
    edge: Arc<dyn Metal>,
    events: Mutex<Events>,
}

impl EventPool {
    pub(crate) fn new(edge: Arc<dyn Metal>) -> Self {
        EventPool { edge, events: Mutex::default() }
    }

    /// An event and the value to signal.
    pub(crate) fn take(&self) -> Result<Signal> {
        if let Some(signal) = lock(&self.events).free.pop() {
            return Ok(signal);
        }
        let event = self.edge.new_event().ok_or(MetalError::Refused("a shared event"))?;
        lock(&self.events).all.push(event);
        Ok(Signal { event, value: 1 })
    }

    /// Signals from the host what a command buffer has not signalled.
    pub(crate) fn release_waiters(&self, signal: Signal) {
        // SAFETY: events live as long as the pool. The one command buffer that signals this value has
        // completed, so nothing else changes the event.
        unsafe {
            if self.edge.event_value(signal.event) < signal.value {
                self.edge.set_event_value(signal.event, signal.value);
            }
        }
    }

    /// Returns the event of a finished submission.
    pub(crate) fn give_back(&self, signal: Signal) {
        lock(&self.events).free.push(Signal { value: signal.value + 1, ..signal });
    }

    /// Returns an event whose value was not signalled and that nothing waits for.
    pub(crate) fn give_back_unused(&self, signal: Signal) {
        lock(&self.events).free.push(signal);
    }
}

impl Drop for EventPool {
    fn drop(&mut self) {
        for event in std::mem::take(&mut lock(&self.events).all) {
            // SAFETY: the device is dropped, so no command buffer names its events.
            unsafe { self.edge.release(event.into()) };
        }
    }
}
