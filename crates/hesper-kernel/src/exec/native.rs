//! Launches of machine code: rows of threads, distributed over tasks. The bytecode runs the rows that machine
//! code refuses.

use std::ops::Range;

use super::jit::{Jit, RowOutcome, Session};
use super::machine::{Dropped, Machine};
use super::program::{Cancel, ExecError, Failures, MAX_TASKS, Parallel, Program, THREADS_PER_TASK, Worker};
use crate::launch::{Bindings, Launch};

/// Long rows are split into tasks at multiples of this many threads.
const TASK_ALIGNMENT: u64 = 1024;

/// With more short rows than this the bytecode is faster, since it runs several side by side.
const FEW_ROWS: u64 = 4;

/// The rows of one task.
struct RowTask<'a> {
    worker: Worker<'a>,
    session: Session<'a>,
    /// For the rows that machine code refuses.
    machine: Option<Machine<'a>>,
}

impl<'a> RowTask<'a> {
    fn new(
        program: &'a Program,
        jit: &'a Jit,
        bindings: &'a Bindings<'a>,
        launch: &'a Launch,
        cancel: &'a Cancel<'a>,
        dropped: &'a Dropped,
    ) -> RowTask<'a> {
        let worker = Worker { program, bindings, launch, cancel, dropped };
        RowTask { worker, session: Session::new(jit, bindings, launch, dropped), machine: None }
    }

    /// Runs threads along x. False if the launch was cancelled.
    fn row(&mut self, x: u64, y: u64, z: u64, threads: u64) -> bool {
        match self.session.row(x, y, z, threads, self.worker.cancel) {
            RowOutcome::Done => true,
            RowOutcome::Cancelled => false,
            RowOutcome::Refused => {
                let width = self.worker.program.width(self.worker.launch.threads());
                let worker = self.worker;
                let m = self.machine.get_or_insert_with(|| worker.machine(width, std::ptr::null_mut()));
                worker.flat_box(m, [x, y, z], [threads, 1, 1])
            }
        }
    }

    /// Fences non-temporal stores.
    fn finish(&self) {
        if self.session.streamed || self.machine.is_some() {
            super::stream::finish();
        }
    }
}

impl Program {
    /// The machine code, if it is the better choice for a launch.
    pub(super) fn native(&self, launch: &Launch) -> Option<&Jit> {
        let [x, y, z] = launch.grid;
        self.jit.as_ref().filter(|jit| x >= jit.least_row() || y.saturating_mul(z) <= FEW_ROWS)
    }

    /// Runs all threads as tasks of `parallel`.
    pub(super) fn run_native_parallel(
        &self,
        jit: &Jit,
        bindings: &Bindings<'_>,
        launch: &Launch,
        cancel: &Cancel<'_>,
        parallel: Parallel<'_>,
    ) -> Result<(), ExecError> {
        let threads = launch.threads();
        let worth = if jit.has_calls() { 2 } else { 1 };
        let tasks = (threads.saturating_mul(worth) / THREADS_PER_TASK).min(MAX_TASKS);
        if tasks <= 1 {
            return self.run_native(jit, 0..threads, bindings, launch, cancel);
        }
        let each = threads.div_ceil(tasks);
        let each =
            each.next_multiple_of(if launch.grid[0] <= each { launch.grid[0] } else { TASK_ALIGNMENT });
        let tasks = threads.div_ceil(each);
        let failures = Failures::default();
        let run = |task: u64| {
            let range = task * each..((task + 1) * each).min(threads);
            failures.note(task, self.run_native(jit, range, bindings, launch, cancel));
        };
        parallel(tasks as usize, &|task| run(task as u64));
        failures.outcome()
    }

    /// Runs a range of threads, in the order of the grid.
    fn run_native(
        &self,
        jit: &Jit,
        threads: Range<u64>,
        bindings: &Bindings<'_>,
        launch: &Launch,
        cancel: &Cancel<'_>,
    ) -> Result<(), ExecError> {
        let dropped = Dropped::default();
        let mut rows = RowTask::new(self, jit, bindings, launch, cancel, &dropped);
        let [nx, ny, _] = launch.grid;
        let [mut x, mut y, mut z] = [0; 3];
        if threads.start > 0 {
            let row = threads.start / nx;
            [x, y, z] = [threads.start % nx, row % ny, row / ny];
        }
        let mut left = threads.end - threads.start;
        let mut going = true;
        while going && left > 0 {
            if x == 0 && left >= 2 * nx {
                let done = rows.session.rows([y, z], nx, left / nx, cancel);
                left -= done * nx;
                let row = z * ny + y + done;
                (y, z) = (row % ny, row / ny);
                if left == 0 {
                    break;
                }
            }
            let n = (nx - x).min(left);
            going = rows.row(x, y, z, n);
            left -= n;
            x = 0;
            (y, z) = if y + 1 == ny { (0, z + 1) } else { (y + 1, z) };
        }
        rows.finish();
        self.outcome(going, &dropped)
    }

    /// Runs a range of threadgroups.
    pub(super) fn run_native_groups(
        &self,
        jit: &Jit,
        groups: Range<u64>,
        bindings: &Bindings<'_>,
        launch: &Launch,
        cancel: &Cancel<'_>,
    ) -> Result<(), ExecError> {
        let dropped = Dropped::default();
        let mut rows = RowTask::new(self, jit, bindings, launch, cancel, &dropped);
        let worker = rows.worker;
        let done = worker.boxes(groups, |origin, size| {
            (0..size[2])
                .all(|z| (0..size[1]).all(|y| rows.row(origin[0], origin[1] + y, origin[2] + z, size[0])))
        });
        rows.finish();
        self.outcome(done, &dropped)
    }
}
