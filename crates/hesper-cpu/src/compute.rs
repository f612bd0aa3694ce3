//! The compute pool: a fixed number of slots, taken by workers and by waiting callers.
//!
//! The pool runs *jobs* (the next work of a stream) and *parallel loops* (iterations that a job or caller
//! has started). At most as many threads compute as there are slots; a thread without a slot sleeps. A
//! worker without work spins for [`SPIN_TIME`] before it sleeps: the next loop of a computation starts
//! within microseconds, and waking a thread takes longer than most loops. On a virtual machine, whose idle
//! core is given back to the host, waking a worker costs its waker a tenth of a millisecond and more.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use hesper_runtime::panics;

/// The time a worker without work spins before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(500);
/// The time after which a spinning worker yields its core between polls.
const YIELD_AFTER: Duration = Duration::from_micros(50);

/// A unit of work for a worker.
pub(crate) trait Job: Send + Sync {
    /// Runs the job for `key`; may find nothing left to do.
    fn run(self: Arc<Self>, key: u64);
}

struct State {
    jobs: VecDeque<(Arc<dyn Job>, u64)>,
    loops: Vec<Arc<ParallelLoop>>,
    /// Threads that compute.
    busy: usize,
    /// Sleeping workers.
    sleeping: usize,
    /// Spinning workers that have not been notified.
    spinning: usize,
    /// Notified workers that are still spinning.
    notified: usize,
    /// Workers started.
    started: usize,
}

/// A fixed pool of compute threads.
pub struct Compute {
    slots: usize,
    state: Mutex<State>,
    wake: Condvar,
    /// Changes with every notification of a spinning worker.
    notifications: AtomicUsize,
}

/// One parallel loop. Its body lives on the stack of the thread that started it; `users` counts the workers
/// inside, and that thread waits for them.
struct ParallelLoop {
    body: *const (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    users: AtomicUsize,
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

// SAFETY: the body is `Sync`, and is called only while the thread that owns it is inside of
// `Compute::run`, which waits for `users` to become zero.
unsafe impl Send for ParallelLoop {}
// SAFETY: as above.
unsafe impl Sync for ParallelLoop {}

impl ParallelLoop {
    fn run(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            // SAFETY: iterations are taken only while the owner is inside of `Compute::run`.
            let body = unsafe { &*self.body };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(index))) {
                self.next.store(self.count, Ordering::Relaxed);
                self.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(panic);
            }
        }
    }
}

thread_local! {
    /// Whether this thread holds a slot.
    static HAS_SLOT: Cell<bool> = const { Cell::new(false) };
}

impl Compute {
    /// The pool of the process, with one slot per core, or as many as `HESPER_THREADS` says.
    pub fn global() -> &'static Compute {
        static POOL: OnceLock<&'static Compute> = OnceLock::new();
        POOL.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
            let asked = std::env::var("HESPER_THREADS").ok().and_then(|text| text.parse().ok());
            // Lives as long as the process, so workers need no shutdown.
            Box::leak(Box::new(Compute::new(asked.unwrap_or(cores).clamp(1, 1024))))
        })
    }

    fn new(slots: usize) -> Self {
        Compute {
            slots,
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                loops: Vec::new(),
                busy: 0,
                sleeping: 0,
                spinning: 0,
                notified: 0,
                started: 0,
            }),
            wake: Condvar::new(),
            notifications: AtomicUsize::new(0),
        }
    }

    /// The largest number of threads that compute at once.
    pub fn threads(&self) -> usize {
        self.slots
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs `body(0)` to `body(count - 1)`, in parallel as far as slots are free, and returns when all have
    /// finished. Resumes the first panic.
    pub fn run(&'static self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.slots == 1 {
            return (0..count).for_each(body);
        }
        // SAFETY: only the lifetime changes, and this function returns after the last use of the body.
        let body: *const (dyn Fn(usize) + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body) };
        let shared = Arc::new(ParallelLoop {
            body,
            count,
            next: AtomicUsize::new(0),
            users: AtomicUsize::new(0),
            panic: Mutex::new(None),
        });
        {
            let mut state = self.state();
            state.loops.push(shared.clone());
            // The caller takes iterations, with or without a slot.
            let others = if HAS_SLOT.with(Cell::get) { state.busy } else { state.busy + 1 };
            for _ in 0..(count - 1).min(self.slots.saturating_sub(others)) {
                self.wake_worker(&mut state);
            }
        }
        shared.run();
        {
            // After this no worker enters; those inside finish their iterations.
            let mut state = self.state();
            state.loops.retain(|other| !Arc::ptr_eq(other, &shared));
        }
        let mut tries = 0u32;
        while shared.users.load(Ordering::Acquire) != 0 {
            tries += 1;
            if tries < 2000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let panic = shared.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Queues a job and wakes a worker.
    pub(crate) fn push(&'static self, job: Arc<dyn Job>, key: u64) {
        let mut state = self.state();
        state.jobs.push_back((job, key));
        self.wake_worker(&mut state);
    }

    /// Queues a job at the end of another one, without a wake-up: the current thread takes it next.
    pub(crate) fn push_next(&'static self, job: Arc<dyn Job>, key: u64) {
        self.state().jobs.push_back((job, key));
    }

    /// Notifies, wakes or starts a worker if a slot is free.
    fn wake_worker(&'static self, state: &mut State) {
        if state.busy >= self.slots {
            return;
        }
        if state.spinning > 0 {
            state.spinning -= 1;
            state.notified += 1;
            self.notifications.fetch_add(1, Ordering::Release);
        } else if state.sleeping > 0 {
            self.wake.notify_one();
        } else if state.started < self.slots {
            let name = format!("hesper-{}", state.started);
            if std::thread::Builder::new().name(name).spawn(move || self.worker()).is_ok() {
                state.started += 1;
            }
        }
    }

    /// Runs `f` on the calling thread if a slot is free.
    pub(crate) fn with_slot<R>(&'static self, f: impl FnOnce() -> R) -> Option<R> {
        if HAS_SLOT.with(Cell::get) {
            return Some(f());
        }
        {
            let mut state = self.state();
            if state.busy >= self.slots {
                return None;
            }
            state.busy += 1;
        }
        struct Leave(&'static Compute);
        impl Drop for Leave {
            fn drop(&mut self) {
                HAS_SLOT.with(|has_slot| has_slot.set(false));
                let mut state = self.0.state();
                state.busy -= 1;
                if !state.jobs.is_empty() {
                    self.0.wake_worker(&mut state);
                }
            }
        }
        let _leave = Leave(self);
        HAS_SLOT.with(|has_slot| has_slot.set(true));
        Some(f())
    }

    fn worker(&'static self) {
        HAS_SLOT.with(|has_slot| has_slot.set(true));
        let mut state = self.state();
        let mut spun = false;
        loop {
            if state.busy < self.slots {
                // Loops first: a thread waits for their end.
                let open = state
                    .loops
                    .iter()
                    .find(|shared| shared.next.load(Ordering::Relaxed) < shared.count)
                    .cloned();
                if let Some(shared) = open {
                    shared.users.fetch_add(1, Ordering::AcqRel);
                    state.busy += 1;
                    if !state.jobs.is_empty() {
                        self.wake_worker(&mut state);
                    }
                    drop(state);
                    shared.run();
                    shared.users.fetch_sub(1, Ordering::AcqRel);
                    state = self.state();
                    state.busy -= 1;
                    spun = false;
                    continue;
                }
                if let Some((job, key)) = state.jobs.pop_front() {
                    state.busy += 1;
                    drop(state);
                    // Panics of user code are caught earlier; any other panic must not end the worker.
                    let _ = panics::catch(|| job.run(key));
                    state = self.state();
                    state.busy -= 1;
                    spun = false;
                    continue;
                }
            }
            if !spun {
                spun = true;
                state = self.spin(state);
                continue;
            }
            state.sleeping += 1;
            state = self.wake.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            state.sleeping -= 1;
            spun = false;
        }
    }

    /// Spins until a notification, for at most [`SPIN_TIME`]. The caller must look for work afterwards: a
    /// notification announces work.
    fn spin<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let before = self.notifications.load(Ordering::Acquire);
        state.spinning += 1;
        drop(state);
        let begun = Instant::now();
        let mut spun = Duration::ZERO;
        'spinning: while spun < SPIN_TIME {
            if spun > YIELD_AFTER {
                std::thread::yield_now();
            }
            for _ in 0..32 {
                if self.notifications.load(Ordering::Acquire) != before {
                    break 'spinning;
                }
                std::hint::spin_loop();
            }
            spun = begun.elapsed();
        }
        let mut state = self.state();
        // A notification has no addressee: any spinning worker may consume it.
        if state.notified > 0 {
            state.notified -= 1;
        } else {
            state.spinning -= 1;
        }
        state
    }
}

/// The compute pool for the kernels of `hesper-compute`.
#[derive(Debug, Clone, Copy)]
pub struct Cores;

impl hesper_compute::Par for Cores {
    fn threads(&self) -> usize {
        Compute::global().threads()
    }

    fn run(&self, n: usize, f: &(dyn Fn(usize) + Sync)) {
        Compute::global().run(n, f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_loop_runs_every_iteration_once() {
        for count in [0, 1, 2, 7, 1000] {
            let sum = AtomicU64::new(0);
            Compute::global().run(count, &|index| {
                sum.fetch_add(index as u64 + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), (count * (count + 1) / 2) as u64);
        }
    }

    #[test]
    fn a_loop_inside_of_a_loop_ends() {
        let sum = AtomicU64::new(0);
        Compute::global().run(8, &|_| {
            Compute::global().run(8, &|_| {
                sum.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 64);
    }

    #[test]
    fn work_queued_when_workers_stop_spinning_is_done() {
        // Pauses around the time at which a worker falls asleep.
        let sum = AtomicU64::new(0);
        for round in 0..2000u64 {
            Compute::global().run(4, &|_| {
                sum.fetch_add(1, Ordering::Relaxed);
            });
            let pause = SPIN_TIME * (round % 5) as u32 / 3;
            let begun = Instant::now();
            while begun.elapsed() < pause {
                std::hint::spin_loop();
            }
        }
        assert_eq!(sum.into_inner(), 8000);
        let (sender, receiver) = std::sync::mpsc::channel();
        struct SendKey(Mutex<std::sync::mpsc::Sender<u64>>);
        impl Job for SendKey {
            fn run(self: Arc<Self>, key: u64) {
                self.0.lock().unwrap().send(key).unwrap();
            }
        }
        let job = Arc::new(SendKey(Mutex::new(sender)));
        for key in 0..500u64 {
            Compute::global().push(job.clone(), key);
            // No other thread polls: a job whose notification was lost would never run.
            assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(key));
            std::thread::sleep(SPIN_TIME * (key % 4) as u32 / 2);
        }
    }

    #[test]
    fn a_panic_in_a_loop_reaches_its_caller_and_the_pool_survives() {
        let caught = catch_unwind(|| Compute::global().run(16, &|index| assert!(index != 5, "five")));
        assert!(caught.is_err());
        a_loop_runs_every_iteration_once();
    }

    #[test]
    fn sixty_four_threads_never_take_more_slots_than_there_are() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    Compute::global().with_slot(|| {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(1));
                        now.fetch_sub(1, Ordering::SeqCst);
                    })
                });
            }
        });
        assert!(most.into_inner() <= Compute::global().threads());
    }
}
