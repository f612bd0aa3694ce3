//! Client tasks under the simulator: threads of a program, one of which runs at a time.
//!
//! At every scheduling point (a lock, a compilation, a wait) the seed decides what runs next: this task,
//! another one, or the device. A state in which nothing can run is reported as a hang.

use std::sync::{Arc, Condvar, Mutex};

use super::{Rng, Simulated};
use crate::panics;
use crate::sync::coop::{Cooperative, install, suspended};

/// A client task.
pub type Task = Box<dyn FnOnce() + Send>;

/// The outcome of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The messages of tasks that panicked.
    pub panics: Vec<String>,
    /// Whether a state was reached in which nothing could run.
    pub hung: bool,
}

const HANG: &str = "no task can run";

struct State {
    current: usize,
    live: Vec<bool>,
    rng: Rng,
    /// The number of consecutive polls that found a task blocked and the device idle.
    idle_polls: usize,
    hung: bool,
}

struct Scheduler {
    sim: Arc<dyn Simulated>,
    /// At a scheduling point that may step the device, it steps once in this many times. With large odds,
    /// work stays in flight until a task waits for it.
    step_odds: usize,
    state: Mutex<State>,
    /// One for each task, so that only the task whose turn it is wakes.
    turns: Vec<Condvar>,
}

thread_local! {
    static SELF: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

impl Scheduler {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until it is the caller's turn.
    fn await_turn(&self, me: usize) {
        let mut state = self.state();
        while state.current != me && !state.hung {
            state = self.turns[me].wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        let hung = state.hung;
        drop(state);
        // A task that is already unwinding must not panic again.
        if hung && !std::thread::panicking() {
            std::panic::panic_any(HANG);
        }
    }

    /// Passes the turn to a live task, perhaps the same.
    fn pass_turn(&self, state: &mut State) {
        let live: Vec<usize> = (0..state.live.len()).filter(|task| state.live[*task]).collect();
        if !live.is_empty() {
            state.current = live[state.rng.below(live.len())];
            self.turns[state.current].notify_one();
        }
    }
}

impl Cooperative for Scheduler {
    fn pause(&self) {
        let steps = {
            let mut state = self.state();
            if state.hung {
                return;
            }
            state.idle_polls = 0;
            // Rarely switch: a switch at every point would hide the interesting orders.
            match state.rng.below(8) {
                0 | 1 => {
                    self.pass_turn(&mut state);
                    0
                }
                2 if state.rng.one_in(self.step_odds) => 1 + state.rng.below(4),
                _ => 0,
            }
        };
        for _ in 0..steps {
            suspended(|| self.sim.step());
        }
        self.await_turn(SELF.with(std::cell::Cell::get));
    }

    fn block(&self) {
        let stepped = suspended(|| self.sim.step());
        {
            let mut state = self.state();
            if stepped {
                state.idle_polls = 0;
            } else {
                state.idle_polls += 1;
                // Every live task was polled many times, and the device has nothing to do.
                if state.idle_polls > 64 * state.live.len() {
                    state.hung = true;
                    self.turns.iter().for_each(Condvar::notify_one);
                }
            }
            self.pass_turn(&mut state);
        }
        self.await_turn(SELF.with(std::cell::Cell::get));
    }
}

/// Runs tasks against `sim`, scheduled by the seed, to the end or to a hang.
pub fn run(sim: &Arc<dyn Simulated>, seed: u64, tasks: Vec<Task>) -> Outcome {
    let count = tasks.len();
    if count == 0 {
        return Outcome::default();
    }
    let mut rng = Rng::new(seed ^ 0x7a5c);
    let first = rng.below(count);
    let scheduler = Arc::new(Scheduler {
        sim: sim.clone(),
        step_odds: [1, 8, 64][(seed / 2 % 3) as usize],
        state: Mutex::new(State { current: first, live: vec![true; count], rng, idle_polls: 0, hung: false }),
        turns: (0..count).map(|_| Condvar::new()).collect(),
    });
    let threads: Vec<_> = tasks
        .into_iter()
        .enumerate()
        .map(|(me, task)| {
            let scheduler = scheduler.clone();
            std::thread::spawn(move || run_task(&scheduler, me, task))
        })
        .collect();
    let panics = threads
        .into_iter()
        .filter_map(|thread| thread.join().unwrap_or_else(|_| Some("the thread of a task was lost".into())))
        .collect();
    let hung = scheduler.state().hung;
    Outcome { panics, hung }
}

fn run_task(scheduler: &Arc<Scheduler>, me: usize, task: Task) -> Option<String> {
    SELF.with(|cell| cell.set(me));
    let outcome = panics::catch(|| {
        scheduler.await_turn(me);
        install(Some(scheduler.clone()));
        task();
    });
    install(None);
    {
        let mut state = scheduler.state();
        state.live[me] = false;
        state.idle_polls = 0;
        scheduler.pass_turn(&mut state);
    }
    outcome.err().filter(|message| message != HANG)
}
