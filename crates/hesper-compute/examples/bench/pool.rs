//! A pool of threads that spin for work, like that of a device, so that short kernels can be timed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use hesper_compute::Par;

type Task = &'static (dyn Fn(usize) + Sync);

#[derive(Default)]
struct State {
    task: Mutex<Option<(Task, usize)>>,
    epoch: AtomicUsize,
    next: AtomicUsize,
    done: AtomicUsize,
    stop: AtomicBool,
}

/// Threads that live as long as the pool.
pub struct Pool {
    state: Arc<State>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    pub fn new(threads: usize) -> Self {
        let state = Arc::new(State::default());
        let workers = (1..threads)
            .map(|_| {
                let state = state.clone();
                std::thread::spawn(move || worker(&state))
            })
            .collect();
        Self { state, workers }
    }
}

fn worker(state: &State) {
    let mut seen = 0;
    loop {
        let mut spins = 0u32;
        while state.epoch.load(Ordering::Acquire) == seen {
            if state.stop.load(Ordering::Relaxed) {
                return;
            }
            spins += 1;
            if spins > 20_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        seen = state.epoch.load(Ordering::Acquire);
        let task = *state.task.lock().unwrap();
        if let Some((f, n)) = task {
            drain(state, f, n);
        }
        state.done.fetch_add(1, Ordering::Release);
    }
}

fn drain(state: &State, f: Task, n: usize) {
    loop {
        let i = state.next.fetch_add(1, Ordering::Relaxed);
        if i >= n {
            return;
        }
        f(i);
    }
}

impl Par for Pool {
    fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    fn run(&self, n: usize, f: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() || n <= 1 {
            return (0..n).for_each(f);
        }
        // SAFETY: `run` returns only after every worker has left the task.
        let f: Task = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Task>(f) };
        let s = &self.state;
        *s.task.lock().unwrap() = Some((f, n));
        s.next.store(0, Ordering::Relaxed);
        s.done.store(0, Ordering::Relaxed);
        s.epoch.fetch_add(1, Ordering::Release);
        drain(s, f, n);
        while s.done.load(Ordering::Acquire) < self.workers.len() {
            std::hint::spin_loop();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        for w in self.workers.drain(..) {
            let _ = w.join();
        }
    }
}
