//! The channel that carries the events of one request from an engine to a client, which waits for them in a
//! thread or an async task. It needs no bound: a request has at most one event for each of its tokens, and
//! two more.

use std::collections::VecDeque;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::Event;

/// A channel for the events of one request.
pub fn channel() -> (EventSender, EventReceiver) {
    let channel = Arc::new(Channel::default());
    (EventSender(channel.clone()), EventReceiver(channel))
}

#[derive(Debug, Default)]
struct Channel {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// The waiting task, if one waits.
    waker: Option<Waker>,
    sender_dropped: bool,
    receiver_dropped: bool,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock panics in the middle of a change, so the state is valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The engine's end. Dropping it ends the events.
#[derive(Debug)]
pub struct EventSender(Arc<Channel>);

impl EventSender {
    /// Sends an event without waiting. Returns it if the receiver was dropped.
    #[allow(clippy::result_large_err, reason = "returns the event, like the channels of std")]
    pub fn send(&self, event: Event) -> Result<(), Event> {
        let mut state = self.0.lock();
        if state.receiver_dropped {
            return Err(event);
        }
        state.events.push_back(event);
        self.0.wake(state);
        Ok(())
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.sender_dropped = true;
        self.0.wake(state);
    }
}

/// The client's end.
#[derive(Debug)]
pub struct EventReceiver(Arc<Channel>);

impl EventReceiver {
    /// Waits for the next event. `None` after the last one.
    pub fn recv(&self) -> Option<Event> {
        let waiting = |state: &mut State| state.events.is_empty() && !state.sender_dropped;
        let state = self.0.changed.wait_while(self.0.lock(), waiting);
        state.unwrap_or_else(PoisonError::into_inner).events.pop_front()
    }

    /// Waits for the next event for at most `limit`.
    pub fn recv_timeout(&self, limit: Duration) -> Result<Event, RecvTimeoutError> {
        let start = Instant::now();
        let mut state = self.0.lock();
        loop {
            if let Some(event) = state.events.pop_front() {
                return Ok(event);
            }
            if state.sender_dropped {
                return Err(RecvTimeoutError::Disconnected);
            }
            let Some(left) = limit.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                return Err(RecvTimeoutError::Timeout);
            };
            let woken = self.0.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The next event, or `None` after the last one. If it has not arrived yet, the task is woken when it
    /// does.
    pub fn poll_recv(&self, context: &Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.0.lock();
        match state.events.pop_front() {
            None if !state.sender_dropped => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
            event => Poll::Ready(event),
        }
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.receiver_dropped = true;
        state.events.clear();
    }
}
