//! The compute pool: a fixed number of places, taken by workers and by waiting callers alike.
//!
//! The pool runs two kinds of things: *jobs* (the turn of a stream) and *loops* (the iterations of a
//! parallel loop that some job or caller has begun). At most as many threads compute as there are
//! places; a thread without a place sleeps. A worker that has run out of work watches for more for
//! [`PATIENCE`] before it sleeps: the next loop of a computation comes within microseconds, and to wake a
//! thread takes longer than most loops. On a virtual machine, whose idle core is given back, it takes whoever wakes it
//! a tenth of a millisecond and more; a worker that slept before that is over would be woken for every submission.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// How long a worker without work watches for more before it sleeps, and how long before it lets others run meanwhile.
const PATIENCE: Duration = Duration::from_micros(500);
const KEEN: Duration = Duration::from_micros(50);

/// A turn that the pool gives to somebody.
pub(crate) trait Job: Send + Sync {
    /// Takes the turn for `key`; may find that there is nothing to do any more.
    fn turn(self: Arc<Self>, key: u64);
}

struct State {
    jobs: VecDeque<(Arc<dyn Job>, u64)>,
    loops: Vec<Arc<Loop>>,
    /// Threads that compute.
    busy: usize,
    /// Workers that sleep.
    asleep: usize,
    /// Workers that watch for work and have not been called.
    watching: usize,
    /// Workers that were called while they watched, and have not come yet.
    called: usize,
    /// Workers that were started.
    started: usize,
}

/// A fixed pool of compute threads.
pub struct Compute {
    places: usize,
    state: Mutex<State>,
    wake: Condvar,
    /// Changes when those who watch are called.
    calls: AtomicUsize,
}

/// One parallel loop. It lives on the stack of the thread that runs it; `users` keeps that thread from
/// leaving while somebody is inside.
struct Loop {
    body: *const (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    users: AtomicUsize,
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

// SAFETY: the body is `Sync`, and is called only while the thread that owns it waits for `users` to
// become zero.
unsafe impl Send for Loop {}
// SAFETY: as above.
unsafe impl Sync for Loop {}

impl Loop {
    fn work(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            // SAFETY: an iteration is taken only while the owner is still inside of `Compute::run`.
            let body = unsafe { &*self.body };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(index))) {
                self.next.store(self.count, Ordering::Relaxed);
                self.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(panic);
            }
        }
    }
}

thread_local! {
    /// Whether this thread holds a place.
    static PLACED: Cell<bool> = const { Cell::new(false) };
}

impl Compute {
    /// The pool of this process, with a place for each core (or as `HESPER_THREADS` says).
    pub fn global() -> &'static Compute {
        static POOL: OnceLock<&'static Compute> = OnceLock::new();
        POOL.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
            let asked = std::env::var("HESPER_THREADS").ok().and_then(|text| text.parse().ok());
            // Lives as long as the process: its sleeping workers need no end.
            Box::leak(Box::new(Compute::with_places(asked.unwrap_or(cores).clamp(1, 1024))))
        })
    }

    fn with_places(places: usize) -> Self {
        Compute {
            places,
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                loops: Vec::new(),
                busy: 0,
                asleep: 0,
                watching: 0,
                called: 0,
                started: 0,
            }),
            wake: Condvar::new(),
            calls: AtomicUsize::new(0),
        }
    }

    /// How many threads compute at most.
    pub fn places(&self) -> usize {
        self.places
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs `body(0)` to `body(count - 1)`, side by side where there are free places, and returns when
    /// all are done. A panic in one is passed on.
    pub fn run(&'static self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.places == 1 {
            return (0..count).for_each(body);
        }
        // SAFETY: only the lifetime changes; this function returns after the last use of the body.
        let body: *const (dyn Fn(usize) + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body) };
        let shared = Arc::new(Loop {
            body,
            count,
            next: AtomicUsize::new(0),
            users: AtomicUsize::new(0),
            panic: Mutex::new(None),
        });
        {
            let mut state = self.state();
            state.loops.push(shared.clone());
            // The caller works too, whether it holds a place or not.
            let others = if PLACED.with(Cell::get) { state.busy } else { state.busy + 1 };
            for _ in 0..(count - 1).min(self.places.saturating_sub(others)) {
                self.rouse(&mut state);
            }
        }
        shared.work();
        {
            // From here on nobody enters; who is inside has an iteration to finish.
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

    /// Gives `job` a turn on some thread of the pool.
    pub(crate) fn push(&'static self, job: Arc<dyn Job>, key: u64) {
        let mut state = self.state();
        state.jobs.push_back((job, key));
        self.rouse(&mut state);
    }

    /// The same at the end of a turn: the thread that took it looks for the next one itself, and nobody is woken.
    pub(crate) fn push_next(&'static self, job: Arc<dyn Job>, key: u64) {
        self.state().jobs.push_back((job, key));
    }

    /// Wakes or starts a worker if there is a free place for it.
    fn rouse(&'static self, state: &mut State) {
        if state.busy >= self.places {
            return;
        }
        if state.watching > 0 {
            state.watching -= 1;
            state.called += 1;
            self.calls.fetch_add(1, Ordering::Release);
        } else if state.asleep > 0 {
            self.wake.notify_one();
        } else if state.started < self.places {
            let name = format!("hesper-{}", state.started);
            if std::thread::Builder::new().name(name).spawn(move || self.worker()).is_ok() {
                state.started += 1;
            }
        }
    }

    /// Runs `f` on the calling thread if there is a free place for it.
    pub(crate) fn with_place<R>(&'static self, f: impl FnOnce() -> R) -> Option<R> {
        if PLACED.with(Cell::get) {
            return Some(f());
        }
        {
            let mut state = self.state();
            if state.busy >= self.places {
                return None;
            }
            state.busy += 1;
        }
        struct Leave(&'static Compute);
        impl Drop for Leave {
            fn drop(&mut self) {
                PLACED.with(|placed| placed.set(false));
                let mut state = self.0.state();
                state.busy -= 1;
                if !state.jobs.is_empty() {
                    self.0.rouse(&mut state);
                }
            }
        }
        let _leave = Leave(self);
        PLACED.with(|placed| placed.set(true));
        Some(f())
    }

    fn worker(&'static self) {
        PLACED.with(|placed| placed.set(true));
        let mut state = self.state();
        let mut watched = false;
        loop {
            if state.busy < self.places {
                // Loops first: somebody is waiting for their end.
                let open = state
                    .loops
                    .iter()
                    .find(|shared| shared.next.load(Ordering::Relaxed) < shared.count)
                    .cloned();
                if let Some(shared) = open {
                    shared.users.fetch_add(1, Ordering::AcqRel);
                    state.busy += 1;
                    if !state.jobs.is_empty() {
                        self.rouse(&mut state);
                    }
                    drop(state);
                    shared.work();
                    shared.users.fetch_sub(1, Ordering::AcqRel);
                    state = self.state();
                    state.busy -= 1;
                    watched = false;
                    continue;
                }
                if let Some((job, key)) = state.jobs.pop_front() {
                    state.busy += 1;
                    drop(state);
                    // Users' panics are faults before they come here; if one does, it is no reason to lose a worker.
                    let _ = catch_unwind(AssertUnwindSafe(|| job.turn(key)));
                    state = self.state();
                    state.busy -= 1;
                    watched = false;
                    continue;
                }
            }
            if !watched {
                watched = true;
                state = self.watch(state);
                continue;
            }
            state.asleep += 1;
            state = self.wake.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            state.asleep -= 1;
            watched = false;
        }
    }

    /// Waits for a call without sleeping, as long as patience lasts. Whoever called has left work behind, so
    /// the caller must look for it before it sleeps.
    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let before = self.calls.load(Ordering::Acquire);
        state.watching += 1;
        drop(state);
        let begun = Instant::now();
        let mut watched = Duration::ZERO;
        'watching: while watched < PATIENCE {
            if watched > KEEN {
                std::thread::yield_now();
            }
            for _ in 0..32 {
                if self.calls.load(Ordering::Acquire) != before {
                    break 'watching;
                }
                std::hint::spin_loop();
            }
            watched = begun.elapsed();
        }
        let mut state = self.state();
        // Calls name nobody: one that was meant for another is as good.
        if state.called > 0 {
            state.called -= 1;
        } else {
            state.watching -= 1;
        }
        state
    }
}

/// The pool as the compute kernels see it.
#[derive(Debug, Clone, Copy)]
pub struct Cores;

impl hesper_compute::Par for Cores {
    fn threads(&self) -> usize {
        Compute::global().places()
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
    fn work_that_comes_when_workers_stop_watching_is_done() {
        // Pauses around the time after which a worker sleeps.
        let sum = AtomicU64::new(0);
        for round in 0..2000u64 {
            Compute::global().run(4, &|_| {
                sum.fetch_add(1, Ordering::Relaxed);
            });
            let pause = PATIENCE * (round % 5) as u32 / 3;
            let begun = Instant::now();
            while begun.elapsed() < pause {
                std::hint::spin_loop();
            }
        }
        assert_eq!(sum.into_inner(), 8000);
        let (told, heard) = std::sync::mpsc::channel();
        struct Tell(Mutex<std::sync::mpsc::Sender<u64>>);
        impl Job for Tell {
            fn turn(self: Arc<Self>, key: u64) {
                self.0.lock().unwrap().send(key).unwrap();
            }
        }
        let job = Arc::new(Tell(Mutex::new(told)));
        for key in 0..500u64 {
            Compute::global().push(job.clone(), key);
            // Nobody else looks: a job whose call was lost would never be done.
            assert_eq!(heard.recv_timeout(Duration::from_secs(20)), Ok(key));
            std::thread::sleep(PATIENCE * (key % 4) as u32 / 2);
        }
    }

    #[test]
    fn a_panic_in_a_loop_reaches_its_caller_and_the_pool_goes_on() {
        let caught = catch_unwind(|| Compute::global().run(16, &|index| assert!(index != 5, "five")));
        assert!(caught.is_err());
        a_loop_runs_every_iteration_once();
    }

    #[test]
    fn sixty_four_threads_never_compute_on_more_places_than_there_are() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    Compute::global().with_place(|| {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(1));
                        now.fetch_sub(1, Ordering::SeqCst);
                    })
                });
            }
        });
        assert!(most.into_inner() <= Compute::global().places());
    }
}
