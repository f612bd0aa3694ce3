//! A fake driver and compiler for unit tests: the tables of [`crate::sys`] filled with functions on host
//! memory.
//!
//! Work is queued and runs when a caller waits or queries, one operation at a time, of a stream chosen at
//! random; the nodes of a graph run in any order that its edges allow. An access to memory that was freed or
//! never allocated faults, and the fault is sticky, as with CUDA. So a use after free, a missing wait and a
//! missing edge are detected.

mod driver;
mod graph;
mod nvrtc;
mod solver;
mod state;

use std::sync::{Mutex, PoisonError};

pub(crate) use driver::driver;
pub(crate) use nvrtc::nvrtc;
pub(crate) use solver::{SolverPlan, plan_solver, solver};
pub(crate) use state::{Live, live, mix, reset};

/// The panic point that panics next, and the number of calls until then.
static PANIC_AT: Mutex<Option<(&'static str, usize)>> = Mutex::new(None);

/// Makes the `nth` call of the [`panic_point`] of this name panic.
pub(crate) fn panic_at(name: &'static str, nth: usize) {
    *PANIC_AT.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, nth));
}

/// A point at which a test can make the device panic.
pub(crate) fn panic_point(name: &'static str) {
    let mut plan = PANIC_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, left)) = plan.as_mut()
        && *at == name
    {
        *left -= 1;
        if *left == 0 {
            *plan = None;
            drop(plan);
            panic!("on purpose, at {name}");
        }
    }
}
