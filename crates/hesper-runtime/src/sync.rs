//! Locks and waiting.
//!
//! This module enforces the three rules that keep the runtime free of deadlocks:
//!
//! * Locks are ranked. A thread may take a lock only if its rank is above every lock it holds
//!   ([`Lock`] checks this in debug and `sim` builds).
//! * No thread waits while it holds a lock: all waiting goes through [`Signal`], which checks it.
//! * Every wait can be scheduled: under the simulator a thread that would block switches to another task
//!   (see [`coop`]), so a run is a function of its seed.
//!
//! With `--cfg hesper_model` the primitives are those of a model checker.

#[cfg(not(hesper_model))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

#[cfg(hesper_model)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};

#[cfg(all(feature = "sim", not(hesper_model)))]
pub(crate) use std::thread::yield_now;

#[cfg(all(feature = "sim", hesper_model))]
pub(crate) use shuttle::thread::yield_now;

use std::ops::{Deref, DerefMut};

/// The order in which locks may be taken, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Submission of closed submissions in order.
    Commit = 1,
    /// Streams, hazard histories and the pool.
    Ledger = 2,
    /// The pipeline cache.
    Cache = 3,
    /// Leaf locks: no lock is taken under them.
    Leaf = 4,
}

/// A mutex with a rank. A panic in a critical section does not poison it: critical sections keep their
/// data consistent at every point that can panic.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    rank: Rank,
    inner: Mutex<T>,
}

/// Access to a [`Lock`]'s data.
pub(crate) struct Guard<'a, T> {
    inner: MutexGuard<'a, T>,
    _held: held::Held,
}

impl<T> Lock<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Lock { rank, inner: Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        coop::pause();
        self.lock_unscheduled()
    }

    /// Locks without a scheduling point: for state that simulations of one process share, so that they stay
    /// independent.
    pub(crate) fn lock_unscheduled(&self) -> Guard<'_, T> {
        let held = held::Held::take(self.rank);
        let inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Guard { inner, _held: held }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition that threads wait for; [`Signal::notify`] follows every change.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    lock: Mutex<()>,
    changed: Condvar,
    waiters: atomic::AtomicUsize,
}

impl Signal {
    /// Blocks until `ready` returns true. `ready` must read atomics (or a leaf lock) that are changed
    /// before `notify` is called.
    pub(crate) fn wait_until(&self, mut ready: impl FnMut() -> bool) {
        held::assert_none();
        if ready() {
            return;
        }
        if coop::active() {
            while !ready() {
                coop::block();
            }
            return;
        }
        self.waiters.fetch_add(1, atomic::Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while !ready() {
            guard = self.changed.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        drop(guard);
        self.waiters.fetch_sub(1, atomic::Ordering::SeqCst);
    }

    /// Wakes all waiters. Costs one load if there are none.
    pub(crate) fn notify(&self) {
        // Orders the caller's change before the load of `waiters`. A waiter counts itself before it
        // reads the condition, so one of the two sees the other.
        atomic::fence(atomic::Ordering::SeqCst);
        if self.waiters.load(atomic::Ordering::SeqCst) != 0 {
            drop(self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
            self.changed.notify_all();
        }
    }
}

/// A number that only grows, and threads that wait until it has reached theirs. A change wakes the threads
/// that it concerns: with one condition for all, 64 threads that wait for 64 submissions would wake up 64
/// times each.
#[derive(Debug)]
pub(crate) struct Counter {
    value: atomic::AtomicU64,
    lock: Mutex<()>,
    /// The threads that wait for a number are at its remainder.
    reached: [Condvar; Counter::CONDITIONS],
    waiters: atomic::AtomicUsize,
}

impl Default for Counter {
    fn default() -> Self {
        Counter {
            value: atomic::AtomicU64::new(0),
            lock: Mutex::default(),
            reached: std::array::from_fn(|_| Condvar::new()),
            waiters: atomic::AtomicUsize::new(0),
        }
    }
}

impl Counter {
    const CONDITIONS: usize = 32;

    pub(crate) fn has_reached(&self, number: u64) -> bool {
        number <= self.value.load(atomic::Ordering::Acquire)
    }

    /// Blocks until the value is at least `number`.
    pub(crate) fn wait_for(&self, number: u64) {
        held::assert_none();
        if self.has_reached(number) {
            return;
        }
        if coop::active() {
            while !self.has_reached(number) {
                coop::block();
            }
            return;
        }
        self.waiters.fetch_add(1, atomic::Ordering::SeqCst);
        atomic::fence(atomic::Ordering::SeqCst);
        let reached = &self.reached[number as usize % Counter::CONDITIONS];
        let mut guard = self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while !self.has_reached(number) {
            guard = reached.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        drop(guard);
        self.waiters.fetch_sub(1, atomic::Ordering::SeqCst);
    }

    /// Raises the value to `number`, unless it is higher, and wakes the threads that wait for the numbers in
    /// between.
    pub(crate) fn raise(&self, number: u64) {
        let before = self.value.fetch_max(number, atomic::Ordering::AcqRel);
        // Orders the change before the load of `waiters`. A waiter counts itself before it reads the value,
        // so one of the two sees the other.
        atomic::fence(atomic::Ordering::SeqCst);
        if before >= number || self.waiters.load(atomic::Ordering::SeqCst) == 0 {
            return;
        }
        drop(self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        for reached in (before + 1..=number).take(Counter::CONDITIONS) {
            self.reached[reached as usize % Counter::CONDITIONS].notify_all();
        }
    }
}

/// The ranks that the current thread holds; checked in debug and `sim` builds.
mod held {
    use super::Rank;

    #[cfg(any(debug_assertions, feature = "sim"))]
    mod imp {
        use super::Rank;
        use std::cell::Cell;

        thread_local! {
            static HELD: Cell<u32> = const { Cell::new(0) };
        }

        #[cfg(not(hesper_model))]
        pub(crate) struct Held(u32);

        #[cfg(not(hesper_model))]
        impl Held {
            pub(crate) fn take(rank: Rank) -> Self {
                let bit = 1 << rank as u32;
                HELD.with(|held| {
                    let now = held.get();
                    assert!(now < bit, "lock order: {rank:?} taken while holding ranks {now:#b}");
                    held.set(now | bit);
                });
                Held(bit)
            }
        }

        #[cfg(not(hesper_model))]
        impl Drop for Held {
            fn drop(&mut self) {
                HELD.with(|held| held.set(held.get() & !self.0));
            }
        }

        // The tasks of the model checker share one thread, so a thread-local cannot tell them apart.
        #[cfg(hesper_model)]
        pub(crate) struct Held;

        #[cfg(hesper_model)]
        impl Held {
            pub(crate) fn take(_: Rank) -> Self {
                Held
            }
        }

        pub(crate) fn any() -> bool {
            HELD.with(|held| held.get() != 0)
        }
    }

    #[cfg(not(any(debug_assertions, feature = "sim")))]
    mod imp {
        use super::Rank;
        pub(crate) struct Held;
        impl Held {
            #[inline(always)]
            pub(crate) fn take(_: Rank) -> Self {
                Held
            }
        }
        pub(crate) fn any() -> bool {
            false
        }
    }

    pub(crate) use imp::{Held, any};

    pub(crate) fn assert_none() {
        assert!(!any(), "a thread waits while it holds a lock");
    }
}

/// Cooperative scheduling: the simulator decides which client task runs next.
///
/// Each task of the simulator has a thread, but one runs at a time. A task yields at
/// [`pause`](coop::pause) points (a lock taken while it holds none, a compilation, a wait) and, where it
/// would block, at [`block`](coop::block).
pub(crate) mod coop {
    #[cfg(feature = "sim")]
    mod imp {
        use std::cell::RefCell;
        use std::sync::Arc;

        /// A scheduler of client tasks.
        pub trait Cooperative: Send + Sync {
            /// Yields; the calling task remains runnable.
            fn pause(&self);
            /// Yields; the calling task cannot continue before another task or the device does something.
            fn block(&self);
        }

        thread_local! {
            static CURRENT: RefCell<Option<Arc<dyn Cooperative>>> = const { RefCell::new(None) };
        }

        /// Makes the current thread a task of `scheduler`, or an ordinary thread again.
        pub fn install(scheduler: Option<Arc<dyn Cooperative>>) {
            CURRENT.with(|current| *current.borrow_mut() = scheduler);
        }

        /// Runs `f` without scheduling points.
        pub(crate) fn suspended<R>(f: impl FnOnce() -> R) -> R {
            let scheduler = CURRENT.with(|current| current.borrow_mut().take());
            let result = f();
            install(scheduler);
            result
        }

        fn current() -> Option<Arc<dyn Cooperative>> {
            CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
        }

        pub(crate) fn active() -> bool {
            current().is_some()
        }

        pub(crate) fn pause() {
            if super::super::held::any() {
                return;
            }
            if let Some(scheduler) = current() {
                scheduler.pause();
            }
        }

        pub(crate) fn block() {
            if let Some(scheduler) = current() {
                scheduler.block();
            }
        }
    }

    #[cfg(not(feature = "sim"))]
    mod imp {
        #[inline(always)]
        pub(crate) fn active() -> bool {
            false
        }
        #[inline(always)]
        pub(crate) fn pause() {}
        #[inline(always)]
        pub(crate) fn block() {}
    }

    #[cfg(feature = "sim")]
    pub(crate) use imp::suspended;
    #[cfg(feature = "sim")]
    pub use imp::{Cooperative, install};
    pub(crate) use imp::{active, block, pause};
}

#[cfg(all(test, not(hesper_model)))]
mod tests {
    use super::*;

    #[test]
    fn a_counter_wakes_every_thread_whose_number_is_reached() {
        const THREADS: u64 = 100;
        for step in [1, 7, THREADS] {
            let counter = Counter::default();
            std::thread::scope(|scope| {
                for number in 1..=THREADS {
                    let counter = &counter;
                    scope.spawn(move || counter.wait_for(number));
                }
                for raised in 1..=THREADS.div_ceil(step) {
                    counter.raise(raised * step);
                    // A lower number changes nothing.
                    counter.raise(raised);
                    std::thread::yield_now();
                }
            });
            assert!(counter.has_reached(THREADS) && !counter.has_reached(THREADS + 7));
        }
    }
}
