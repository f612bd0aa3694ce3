//! Which walk goes next when walks of several evaluations meet.
//!
//! A walk takes no lock that other walks need. One that meets a node of another evaluation gives up what it
//! has claimed and is repeated. Repeated walks follow one another, so two evaluations cannot stand in each
//! other's way for ever: each of them has one walk beside which others run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result};

/// Why nothing was claimed.
pub(super) enum Refused {
    /// Another evaluation has claimed some of it.
    Busy,
    /// An array cannot be computed any more.
    Failed(Error),
}

/// The number of the next walk. Each walk has its own.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Held during a repeated walk.
static REPEATED: Mutex<()> = Mutex::new(());
static ENDS: Ends = Ends {
    count: AtomicU64::new(0),
    waiting: AtomicUsize::new(0),
    lock: Mutex::new(()),
    changed: Condvar::new(),
};

/// How many claims have ended, those of refused walks included.
struct Ends {
    count: AtomicU64,
    /// How many evaluations wait for a change.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Says that a claim has ended: its nodes are computed, failed, or lazy again.
pub(super) fn ended() {
    // A waiter counts itself before it reads the count, so one of the two sees the other.
    ENDS.count.fetch_add(1, Ordering::SeqCst);
    if ENDS.waiting.load(Ordering::SeqCst) != 0 {
        drop(lock(&ENDS.lock));
        ENDS.changed.notify_all();
    }
}

/// Waits until a claim ends, if none has since there were `seen` ends.
fn wait_for_end(seen: u64) {
    ENDS.waiting.fetch_add(1, Ordering::SeqCst);
    let mut guard = lock(&ENDS.lock);
    while ENDS.count.load(Ordering::SeqCst) == seen {
        guard = ENDS.changed.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    drop(guard);
    ENDS.waiting.fetch_sub(1, Ordering::SeqCst);
}

/// Walks until the walk is not refused because of another evaluation. A walk gets its number; a refused one
/// has given back what it had claimed.
pub(super) fn walk(mut walk: impl FnMut(u64) -> std::result::Result<(), Refused>) -> Result<()> {
    let mut walk = || walk(NEXT.fetch_add(1, Ordering::Relaxed));
    match walk() {
        Ok(()) => return Ok(()),
        Err(refused) => {
            // A repeated walk may have met nodes of this one.
            ended();
            if let Refused::Failed(error) = refused {
                return Err(error);
            }
        }
    }
    loop {
        // What is met by this walk ends behind this count.
        let turn = lock(&REPEATED);
        let seen = ENDS.count.load(Ordering::SeqCst);
        match walk() {
            Ok(()) => return Ok(()),
            Err(Refused::Failed(error)) => return Err(error),
            Err(Refused::Busy) => {}
        }
        drop(turn);
        wait_for_end(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Things of which evaluations claim some, one by one.
    fn claim(things: &[AtomicBool], wanted: &[usize]) -> std::result::Result<(), Refused> {
        for (count, at) in wanted.iter().enumerate() {
            if things[*at].swap(true, Ordering::SeqCst) {
                wanted[..count].iter().for_each(|at| things[*at].store(false, Ordering::SeqCst));
                return Err(Refused::Busy);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    #[test]
    fn walks_in_opposite_directions_all_get_through() {
        const THREADS: usize = 8;
        const ROUNDS: usize = 200;
        let things: Vec<AtomicBool> = (0..6).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let things = &things;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut wanted: Vec<usize> =
                            (0..things.len()).filter(|at| (at + round) % (2 + thread % 3) != 1).collect();
                        if thread % 2 == 1 {
                            wanted.reverse();
                        }
                        walk(|_| claim(things, &wanted)).unwrap();
                        wanted.iter().for_each(|at| things[*at].store(false, Ordering::SeqCst));
                        ended();
                    }
                });
            }
        });
        assert!(things.iter().all(|thing| !thing.load(Ordering::SeqCst)));
    }

    #[test]
    fn a_failed_array_is_an_error_at_once() {
        let failed = walk(|_| Err(Refused::Failed(Error::value("test", "failed"))));
        assert!(failed.unwrap_err().to_string().contains("failed"));
    }
}
