//! Limits how many submissions of a stream are in flight.

use std::cell::Cell;

use crate::state::{Shared, StreamShared};

thread_local! {
    /// Called before this thread waits for a submission, if it is inside of [`interruptible`].
    static INTERRUPTED: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// Calls `f`. Where one of its submissions has to wait because too many are in flight, `interrupted` is
/// called before the wait for each of those. Once it returns true, `f` does not wait for that reason any
/// more, so it returns soon.
pub fn interruptible<T>(interrupted: fn() -> bool, f: impl FnOnce() -> T) -> T {
    struct Reset(Option<fn() -> bool>);
    impl Drop for Reset {
        fn drop(&mut self) {
            let _ = INTERRUPTED.try_with(|cell| cell.set(self.0));
        }
    }
    let _reset = Reset(INTERRUPTED.try_with(|cell| cell.replace(Some(interrupted))).unwrap_or(None));
    f()
}

impl Shared {
    /// Waits while too many submissions of a stream are in flight.
    pub(crate) fn throttle(&self, stream: &StreamShared) {
        if crate::native::inside() {
            return;
        }
        let limit = self.device.info().max_in_flight.max(1) as u64;
        let over = self.ledger.lock().over_limit(stream.id(), limit);
        let Some(index) = over else { return };
        if let Some(interrupted) = INTERRUPTED.try_with(Cell::get).unwrap_or(None) {
            for earlier in index.saturating_sub(limit)..index {
                if interrupted() {
                    return;
                }
                self.wait(stream, earlier);
            }
        }
        self.wait(stream, index);
    }
}
