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
use super::steps::{Launched, Outcome, Progress, Steps};
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
    shared.wake.notify_all();
}

/// Runs a part of a step and turns a panic into an error.
fn guarded<T>(part: impl FnOnce() -> hesper_lm::Result<T>) -> Result<T, StepError> {
    match catch_unwind(AssertUnwindSafe(part)) {
        Ok(result) => result.map_err(|error| StepError::of(&error)),
        Err(payload) => Err(StepError::of_panic(&*payload)),
    }
}

/// Launches a plan. The tests of this file let it fail.
fn launch(steps: &mut Steps, plan: Plan, in_flight: Option<&Launched>) -> Result<Launched, StepError> {
    guarded(|| {
        #[cfg(test)]
        tests::inject(tests::Stage::Launch, &plan)?;
        steps.launch(plan, in_flight)
    })
}

/// Waits for a step. The tests of this file let it fail.
fn finish(steps: &mut Steps, step: &Launched, progress: &mut Progress) -> Result<(), StepError> {
    guarded(|| {
        #[cfg(test)]
        tests::inject(tests::Stage::Finish, &step.plan)?;
        steps.finish(step, progress)
    })
}

/// Fails requests at their deadlines, also while a step runs or hangs. Returns when the engine ends.
pub(super) fn watch_deadlines(shared: &Shared) {
    let mut state = shared.lock();
    while !state.shut_down {
        let now = shared.now();
        if state.expire(now) {
            shared.answered.notify_all();
        }
        state = shared.wait_for_deadline(state, now);
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
                launch(steps, plan, None)
            }
        };
        // Plan and encode the next step while the device computes this one.
        let ahead = step.as_ref().ok().filter(|step| steps.can_look_ahead(step)).and_then(|step| {
            let plan = plan_ahead(&mut shared.lock(), steps, shared.now())?;
            Some(launch(steps, plan, Some(step)))
        });
        let mut progress = Progress::default();
        let (plan, mut result) = match step {
            Ok(step) => {
                let result = finish(steps, &step, &mut progress);
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
        state = shared.wait_for_deadline(state, now);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::protocol::{Event, Events, Finish, Generator, Health, Refusal, Request};

    /// A part of a step.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub(super) enum Stage {
        Launch,
        Finish,
    }

    type Hook = Box<dyn FnMut(Stage, &Plan) -> hesper_lm::Result<()> + Send>;

    /// What the parts of all steps call first.
    static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

    pub(super) fn inject(stage: Stage, plan: &Plan) -> hesper_lm::Result<()> {
        // A hook may panic.
        let mut hook = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
        hook.as_mut().map_or(Ok(()), |hook| hook(stage, plan))
    }

    fn set_hook(hook: Option<Hook>) {
        *HOOK.lock().unwrap_or_else(PoisonError::into_inner) = hook;
    }

    /// Runs one test at a time: they share the hook.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        set_hook(None);
        alone
    }

    const LIMIT: Duration = Duration::from_secs(60);

    fn engine(look_ahead: bool) -> Engine {
        let model = Arc::new(hesper_lm::demo::model().unwrap());
        let (page_tokens, chunk_tokens, step_tokens) = (4, Some(8), Some(16));
        let (look_ahead, step_limit) = (Some(look_ahead), Duration::from_millis(200));
        let options = EngineOptions {
            page_tokens,
            chunk_tokens,
            step_tokens,
            look_ahead,
            step_limit,
            ..EngineOptions::default()
        };
        Engine::start(model, options).unwrap()
    }

    fn request(engine: &Engine, id: usize) -> Request {
        let text = "The evening star is the brightest star of the sky".repeat(1 + id % 3);
        let prompt = engine.language().prompt_tokens(&text[..10 + 7 * id]).unwrap();
        Request { id: id.to_string(), prompt, max_tokens: 12, ignore_eos: true, ..Request::default() }
    }

    fn end(events: &Events) -> (Vec<u32>, Event) {
        let mut tokens = Vec::new();
        loop {
            match events.next_within(LIMIT).unwrap() {
                Event::Token(token) => tokens.push(token.id),
                last @ (Event::Done { .. } | Event::Failed(_)) => return (tokens, last),
                Event::Started { .. } | Event::Embedding(_) => {}
            }
        }
    }

    fn kernel_fault(kind: hesper_runtime::FaultKind) -> hesper_lm::Error {
        let scope = hesper_runtime::Scope::Device;
        let fault = hesper_runtime::Fault::new(kind, scope, "a kernel", 0, 0, "on fire");
        hesper_lm::Error::Array(hesper_core::Error::Runtime(fault.into()))
    }

    #[test]
    fn a_request_whose_steps_panic_or_fail_is_failed_alone() {
        let _alone = alone();
        for look_ahead in [false, true] {
            let one = engine(look_ahead);
            let expected: Vec<Vec<u32>> =
                (0..5).map(|id| end(&one.submit(request(&one, id)).unwrap()).0).collect();
            for (stage, panics) in
                [(Stage::Launch, true), (Stage::Finish, true), (Stage::Launch, false), (Stage::Finish, false)]
            {
                let engine = engine(look_ahead);
                // Jobs are numbered from 1.
                set_hook(Some(Box::new(move |at, plan| {
                    let is_hit = at == stage && plan.pieces().any(|piece| piece.job == 3);
                    assert!(!(is_hit && panics), "a bug");
                    match is_hit {
                        true => Err(kernel_fault(hesper_runtime::FaultKind::Failed)),
                        false => Ok(()),
                    }
                })));
                let events: Vec<Events> =
                    (0..5).map(|id| engine.submit(request(&engine, id)).unwrap()).collect();
                for (id, events) in events.iter().enumerate() {
                    match (id, end(events)) {
                        (2, (_, Event::Failed(failure))) => {
                            let cause = if panics { "a bug" } else { "on fire" };
                            assert!(failure.message.contains(cause), "{failure}");
                        }
                        (_, (tokens, Event::Done { .. })) => assert_eq!(tokens, expected[id], "request {id}"),
                        other => panic!("{stage:?}: {other:?}"),
                    }
                }
                set_hook(None);
                assert_eq!((engine.health(), engine.snapshot().pages_used), (Health::Ok, 0));
                assert_eq!(end(&engine.submit(request(&engine, 2)).unwrap()).0, expected[2]);
            }
        }
    }

    #[test]
    fn a_step_that_fails_once_is_repeated() {
        let _alone = alone();
        for look_ahead in [false, true] {
            let engine = engine(look_ahead);
            let expected: Vec<Vec<u32>> =
                (0..3).map(|id| end(&engine.submit(request(&engine, id)).unwrap()).0).collect();
            let mut calls = 0;
            set_hook(Some(Box::new(move |_, _| {
                calls += 1;
                match calls % 7 {
                    0 => Err(kernel_fault(hesper_runtime::FaultKind::Failed)),
                    _ => Ok(()),
                }
            })));
            let events: Vec<Events> = (0..3).map(|id| engine.submit(request(&engine, id)).unwrap()).collect();
            for (id, events) in events.iter().enumerate() {
                assert_eq!(end(events).0, expected[id], "request {id}");
            }
            assert_eq!((engine.health(), engine.snapshot().failed), (Health::Ok, 0));
            set_hook(None);
        }
    }

    #[test]
    fn a_lost_device_fails_all_requests_with_its_cause() {
        let _alone = alone();
        let engine = engine(false);
        let events: Vec<Events> = (0..3).map(|id| engine.submit(request(&engine, id)).unwrap()).collect();
        set_hook(Some(Box::new(|_, _| Err(kernel_fault(hesper_runtime::FaultKind::Lost)))));
        let later = engine.submit(Request { max_tokens: 2000, ..request(&engine, 3) });
        for events in events.iter().chain(&later) {
            let end = end(events).1;
            let is_lost = matches!(&end, Event::Failed(failure) if failure.kind == FailureKind::Lost);
            // The first ones may have been finished before.
            assert!(is_lost || matches!(end, Event::Done { finish: Finish::Length, .. }), "{end:?}");
        }
        let health = engine.health();
        assert!(matches!(&health, Health::LostDevice { cause } if cause.contains("on fire")), "{health:?}");
        assert!(matches!(engine.submit(request(&engine, 4)), Err(Refusal::Unavailable(_))));
        engine.drain(Duration::from_secs(5));
        set_hook(None);
    }

    #[test]
    fn requests_are_answered_while_a_step_hangs() {
        let _alone = alone();
        let engine = engine(false);
        let mut hangs = true;
        set_hook(Some(Box::new(move |_, _| {
            if std::mem::take(&mut hangs) {
                std::thread::sleep(Duration::from_secs(3));
            }
            Ok(())
        })));
        let begin = Instant::now();
        let deadline = Some(Duration::from_millis(300));
        let stays = engine.submit(request(&engine, 0)).unwrap();
        let late = engine.submit(Request { deadline, ..request(&engine, 1) }).unwrap();
        let gone = engine.submit(request(&engine, 2)).unwrap();
        while !matches!(engine.health(), Health::Stalled { .. }) {
            assert!(begin.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(engine.cancel("2"));
        assert!(matches!(end(&gone).1, Event::Done { finish: Finish::Cancelled, .. }));
        let end_of_late = end(&late).1;
        assert!(
            matches!(&end_of_late, Event::Failed(failure) if failure.kind == FailureKind::Deadline),
            "{end_of_late:?}"
        );
        assert!(begin.elapsed() < Duration::from_secs(3), "answered after the step: {:?}", begin.elapsed());
        assert!(matches!(end(&stays).1, Event::Done { .. }));
        assert_eq!((engine.health(), engine.snapshot().requests.len()), (Health::Ok, 0));
        set_hook(None);
    }
}
