//! The engine loop: plans a step, runs it, sends the tokens to the requests, and recovers from failed steps.
//!
//! A step that fails is retried once. If it fails again, panics or runs out of memory, all KV rows are
//! dropped and every request is recomputed, with half as many running at once after each such failure. A
//! request that fails while it runs alone is failed; the others continue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hesper_core::placement;

use super::Shared;
use super::scheduler::{Plan, Scheduler};
use super::state::State;
use super::steps::{Outcome, Progress, Steps};
use crate::protocol::{Failure, FailureKind};

/// Why a step failed.
struct StepError {
    kind: FailureKind,
    message: String,
    /// The KV rows may be incomplete, so a retry cannot start from them.
    damaged: bool,
}

impl StepError {
    fn of(error: &hesper_lm::Error) -> Self {
        let runtime = match error {
            hesper_lm::Error::Array(hesper_core::Error::Runtime(error)) => Some(error),
            hesper_lm::Error::Layer(hesper_nn::Error::Rollback(hesper_core::Error::Runtime(error))) => {
                Some(error)
            }
            _ => None,
        };
        let lost = |error: &hesper_runtime::Error| {
            error.fault().is_some_and(|fault| fault.kind() == hesper_runtime::FaultKind::Lost)
        };
        let (kind, damaged) = match runtime {
            Some(hesper_runtime::Error::OutOfMemory { .. }) => (FailureKind::OutOfMemory, true),
            Some(error) if lost(error) => (FailureKind::Lost, true),
            _ => (FailureKind::Internal, false),
        };
        StepError { kind, message: error.to_string(), damaged }
    }

    fn of_panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        StepError { kind: FailureKind::Internal, message: format!("a step panicked: {text}"), damaged: true }
    }
}

/// Runs until the engine is dropped or its device is lost.
pub(super) fn run(shared: &Shared, mut steps: Steps) {
    let device = steps.device();
    let cause = catch_unwind(AssertUnwindSafe(|| {
        placement::with_device(device, || serve(shared, &mut steps)).unwrap_or_else(|error| error.to_string())
    }));
    let cause = cause.unwrap_or_else(|payload| StepError::of_panic(&*payload).message);
    let mut state = shared.lock();
    if !state.shut_down {
        state.lost = Some(cause.clone());
    }
    (state.stopping, state.shut_down) = (true, true);
    state.fail_all(&Failure { kind: FailureKind::Lost, message: cause }, shared.now());
    drop(state);
    shared.step_began.store(0, Ordering::Release);
    shared.answered.notify_all();
}

/// Runs a part of a step and turns a panic into an error.
fn guarded<T>(part: impl FnOnce() -> hesper_lm::Result<T>) -> Result<T, StepError> {
    match catch_unwind(AssertUnwindSafe(part)) {
        Ok(result) => result.map_err(|error| StepError::of(&error)),
        Err(payload) => Err(StepError::of_panic(&*payload)),
    }
}

/// Runs steps until the engine is dropped or its device is lost. Returns which of them happened.
fn serve(shared: &Shared, steps: &mut Steps) -> String {
    let (mut failed_before, mut in_flight) = (false, None);
    loop {
        let mut began = Instant::now();
        let step = match in_flight.take() {
            Some(step) => Ok(step),
            None => {
                let Some(plan) = next_plan(shared, steps) else { return "the engine was stopped".into() };
                began = Instant::now();
                shared.step_begins();
                guarded(|| steps.launch(plan, None))
            }
        };
        // Plan and encode the next step while the device computes this one.
        let ahead = step.as_ref().ok().filter(|step| steps.can_look_ahead(step)).and_then(|step| {
            let plan = plan_ahead(&mut shared.lock(), steps, shared.now())?;
            Some(guarded(|| steps.launch(plan, Some(step))))
        });
        let mut progress = Progress::default();
        let (plan, mut result) = match step {
            Ok(step) => {
                let result = guarded(|| steps.finish(&step, &mut progress));
                (step.plan, result)
            }
            Err(error) => (Plan::default(), Err(error)),
        };
        shared.step_began.store(0, Ordering::Release);
        let (step_time, step_end) = (began.elapsed(), Instant::now());
        let mut state = shared.lock();
        state.stats.steps += 1;
        state.stats.step_time += step_time;
        let (diverged, time) = (progress.diverged, progress.time);
        apply(&mut state, &plan, progress, shared.now());
        if result.is_ok() {
            failed_before = false;
            state.scheduler.measured(&plan, time.unwrap_or_default());
            state.scheduler.succeeded();
            match ahead {
                Some(Ok(next)) if !diverged => {
                    shared.step_begins();
                    state.stats.steps_ahead += 1;
                    in_flight = Some(next);
                }
                Some(Err(error)) => result = Err(error),
                _ => {}
            }
        }
        match result {
            Ok(()) => {}
            Err(error) if error.kind == FailureKind::Lost => return error.message,
            Err(error) => {
                let retry = !error.damaged && !failed_before && steps.roll_back();
                failed_before = true;
                if !retry {
                    recover(&mut state, steps, error, shared.now());
                }
            }
        }
        state.stats.scheduler_time += step_end.elapsed();
        drop(state);
        shared.answered.notify_all();
    }
}

/// Reports what a step has computed to the scheduler and the requests.
fn apply(state: &mut State, plan: &Plan, progress: Progress, now: Duration) {
    for (at, piece) in plan.pieces().take(progress.pieces).enumerate() {
        let accepted = progress.accepted.get(&piece.job).copied().unwrap_or(0);
        state.scheduler.computed(piece, accepted);
        state.stats.draft_tokens += piece.drafts as u64;
        state.stats.accepted_drafts += accepted as u64;
        if at >= plan.decode.len() {
            state.stats.prompt_tokens += piece.tokens.len() as u64;
        }
    }
    for (job, outcome) in progress.outcomes {
        match outcome {
            Outcome::Token(token, finish) => {
                state.push(job, token, now);
                if let Some(finish) = finish {
                    state.finish(job, finish, now);
                }
            }
            Outcome::Embedding(embedding) => state.embed(job, embedding, now),
            Outcome::Failed(failure) => state.fail(job, &failure, now),
        }
    }
}

/// Drops all KV rows, so that requests are recomputed with fewer at once. Fails the request that ran alone.
fn recover(state: &mut State, steps: &mut Steps, error: StepError, now: Duration) {
    steps.reset();
    if let Some(job) = state.scheduler.lost() {
        let kind = error.kind;
        state.fail(
            job,
            &Failure { kind, message: format!("the request failed when it ran alone: {}", error.message) },
            now,
        );
    }
}

/// The plan of the step after the one in flight, if there is something to compute.
fn plan_ahead(state: &mut State, steps: &mut Steps, now: Duration) -> Option<Plan> {
    if state.shut_down {
        return None;
    }
    Some(plan(state, steps, now, Scheduler::plan_ahead)).filter(|plan| !plan.is_empty())
}

/// Fails the requests whose deadline has passed, then plans a step.
fn plan(state: &mut State, steps: &mut Steps, now: Duration, next: fn(&mut Scheduler) -> Plan) -> Plan {
    let began = Instant::now();
    state.expire(now);
    let plan = state.plan(now, next);
    for (job, failure) in steps.update(state, &plan) {
        state.fail(job, &failure, now);
    }
    state.stats.scheduler_time += began.elapsed();
    plan
}

/// Waits for something to compute. `None` when the engine is dropped.
fn next_plan(shared: &Shared, steps: &mut Steps) -> Option<Plan> {
    let mut state = shared.lock();
    loop {
        let now = shared.now();
        if state.shut_down {
            return None;
        }
        let plan = plan(&mut state, steps, now, Scheduler::plan);
        if !plan.is_empty() {
            return Some(plan);
        }
        shared.answered.notify_all();
        let wait =
            state.scheduler.next_deadline().map_or(Duration::from_secs(3600), |at| at.saturating_sub(now));
        state = match shared.wake.wait_timeout(state, wait) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
    }
}
