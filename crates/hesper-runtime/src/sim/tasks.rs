//! Client tasks under the simulator: many threads of a program, one of which runs at a time.
//!
//! At every point where a real thread could be interrupted (each lock it takes, each device call,
//! each wait) the seed decides who goes on: this task, another, or the device. A state in which
//! nobody can go on is a hang, and is reported as one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};

use super::{Rng, Sim};
use crate::sync::coop::{Cooperative, install, suspended};

/// A client task.
pub type Task = Box<dyn FnOnce() + Send>;

/// What became of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Tasks that panicked, with their messages.
    pub panics: Vec<String>,
    /// Whether a state was reached in which nobody could go on.
    pub hung: bool,
}

const HANG: &str = "nobody can go on";

struct State {
    current: usize,
    live: Vec<bool>,
    rng: Rng,
    /// How often in a row tasks were found blocked with nothing happening between.
    fruitless: usize,
    hung: bool,
}

struct Scheduler {
    sim: Sim,
    /// The device does something of itself once in so many chances: a lazy one leaves all work in flight until somebody
    /// waits for it.
    lazy: usize,
    state: Mutex<State>,
    /// One for each task, so that only the one whose turn it is wakes.
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

    /// Hands the turn to a live task, perhaps the same.
    fn hand_over(&self, state: &mut State) {
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
            state.fruitless = 0;
            // Mostly go on: a switch at every point would bury the interesting orders.
            match state.rng.below(8) {
                0 | 1 => {
                    self.hand_over(&mut state);
                    0
                }
                2 if state.rng.one_in(self.lazy) => 1 + state.rng.below(4),
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
                state.fruitless = 0;
            } else {
                state.fruitless += 1;
                // Every live task has been asked many times over, and the device has nothing to do.
                if state.fruitless > 64 * state.live.len() {
                    state.hung = true;
                    self.turns.iter().for_each(Condvar::notify_one);
                }
            }
            self.hand_over(&mut state);
        }
        self.await_turn(SELF.with(std::cell::Cell::get));
    }
}

/// Runs tasks against `sim`, as the seed says, to the end or to a hang.
pub fn run(sim: &Sim, seed: u64, tasks: Vec<Task>) -> Outcome {
    let count = tasks.len();
    if count == 0 {
        return Outcome::default();
    }
    let mut rng = Rng::new(seed ^ 0x7a5c);
    let first = rng.below(count);
    let scheduler = Arc::new(Scheduler {
        sim: sim.clone(),
        lazy: [1, 8, 64][(seed / 2 % 3) as usize],
        state: Mutex::new(State { current: first, live: vec![true; count], rng, fruitless: 0, hung: false }),
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
        .filter_map(|thread| thread.join().unwrap_or_else(|_| Some("a task was lost".into())))
        .collect();
    let hung = scheduler.state().hung;
    Outcome { panics, hung }
}

fn run_task(scheduler: &Arc<Scheduler>, me: usize, task: Task) -> Option<String> {
    SELF.with(|cell| cell.set(me));
    let result = catch_unwind(AssertUnwindSafe(|| {
        scheduler.await_turn(me);
        install(Some(scheduler.clone()));
        task();
    }));
    install(None);
    {
        let mut state = scheduler.state();
        state.live[me] = false;
        state.fruitless = 0;
        scheduler.hand_over(&mut state);
    }
    let panic = result.err()?;
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    (text != HANG).then_some(text)
}
