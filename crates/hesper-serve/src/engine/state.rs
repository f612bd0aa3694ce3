//! The requests of an engine. Each of them ends with exactly one [`Event::Done`] or [`Event::Failed`].

use std::collections::HashMap;
use std::time::Duration;

use hesper_lm::GenerateOptions;

use super::scheduler::{JobId, Plan, Scheduler};
use super::stats::Stats;
use super::steps::TokenFilter;
use crate::protocol::{
    Event, EventSender, Failure, FailureKind, Finish, Phase, Request, RequestState, Snapshot, Token, Usage,
};

/// A request that is not finished.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) request: Request,
    pub(super) options: GenerateOptions,
    /// Moved to [`Steps`](super::steps::Steps) when the request starts.
    pub(super) filter: Option<Box<dyn TokenFilter>>,
    sender: EventSender,
    submitted: Duration,
    last_token: Option<Duration>,
}

impl Active {
    pub(super) fn new(
        request: Request,
        options: GenerateOptions,
        filter: Option<Box<dyn TokenFilter>>,
        sender: EventSender,
        submitted: Duration,
    ) -> Self {
        Active { request, options, filter, sender, submitted, last_token: None }
    }

    /// Sends an event. Does nothing if the receiver was dropped, which cancels the request.
    fn send(&self, event: Event) {
        let _ = self.sender.send(event);
    }
}

/// Everything that the lock of an engine protects.
#[derive(Debug)]
pub(super) struct State {
    pub(super) scheduler: Scheduler,
    requests: HashMap<JobId, Active>,
    ids: HashMap<String, JobId>,
    pub(super) stats: Stats,
    /// New requests are refused.
    pub(super) stopping: bool,
    /// The loop has to exit, or has exited.
    pub(super) shut_down: bool,
    /// Why the loop exited, if it was not shut down.
    pub(super) lost: Option<String>,
}

impl State {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        State {
            scheduler,
            requests: HashMap::new(),
            ids: HashMap::new(),
            stats: Stats::default(),
            stopping: false,
            shut_down: false,
            lost: None,
        }
    }

    pub(super) fn is_known(&self, id: &str) -> bool {
        self.ids.contains_key(id)
    }

    pub(super) fn job_of(&self, id: &str) -> Option<JobId> {
        self.ids.get(id).copied()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn request(&self, job: JobId) -> Option<&Active> {
        self.requests.get(&job)
    }

    pub(super) fn request_mut(&mut self, job: JobId) -> Option<&mut Active> {
        self.requests.get_mut(&job)
    }

    pub(super) fn accept(&mut self, job: JobId, active: Active) {
        self.stats.requests.accepted += 1;
        self.ids.insert(active.request.id.clone(), job);
        self.requests.insert(job, active);
    }

    /// Removes a request. The caller ends it.
    fn take(&mut self, job: JobId) -> Option<(Active, Usage)> {
        let active = self.requests.remove(&job)?;
        self.ids.remove(&active.request.id);
        let job = self.scheduler.remove(job);
        let usage = Usage {
            prompt_tokens: active.request.prompt.len(),
            cached_tokens: job.as_ref().map_or(0, |job| job.cached()),
            completion_tokens: job.as_ref().map_or(0, |job| job.generated()),
        };
        Some((active, usage))
    }

    /// Counts the end of a request that was taken, and sends its last event.
    fn end(&mut self, active: &Active, event: Event, now: Duration) {
        let time = now.saturating_sub(active.submitted);
        self.stats.requests.add_end(&active.request.id, &event, now, time);
        active.send(event);
    }

    pub(super) fn finish(&mut self, job: JobId, finish: Finish, now: Duration) {
        if let Some((active, usage)) = self.take(job) {
            self.end(&active, Event::Done { finish, usage }, now);
        }
    }

    /// Sends the embedding of a request and ends it.
    pub(super) fn embed(&mut self, job: JobId, embedding: Vec<f32>, now: Duration) {
        if let Some((active, usage)) = self.take(job) {
            active.send(Event::Embedding(embedding));
            self.end(&active, Event::Done { finish: Finish::Stop, usage }, now);
        }
    }

    pub(super) fn fail(&mut self, job: JobId, failure: &Failure, now: Duration) {
        if let Some((active, _)) = self.take(job) {
            self.end(&active, Event::Failed(failure.clone()), now);
        }
    }

    pub(super) fn fail_all(&mut self, failure: &Failure, now: Duration) {
        let all: Vec<JobId> = self.requests.keys().copied().collect();
        all.into_iter().for_each(|job| self.fail(job, failure, now));
    }

    pub(super) fn cancel(&mut self, id: &str, now: Duration) -> bool {
        let Some(job) = self.job_of(id) else { return false };
        self.finish(job, Finish::Cancelled, now);
        true
    }

    /// Fails requests whose deadline has passed. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let expired = self.scheduler.expired(now);
        for job in &expired {
            let limit = self.requests.get(job).and_then(|active| active.request.deadline).unwrap_or_default();
            let message = format!("the request was not finished within its deadline of {limit:?}");
            self.fail(*job, &Failure { kind: FailureKind::Deadline, message }, now);
        }
        !expired.is_empty()
    }

    /// Plans a step by `next` and reports the requests that it starts.
    pub(super) fn plan(&mut self, now: Duration, next: fn(&mut Scheduler) -> Plan) -> Plan {
        let plan = next(&mut self.scheduler);
        self.stats.preemptions += plan.preempted as u64;
        self.stats.cached_tokens += plan.reused as u64;
        for (job, cached_tokens) in &plan.started {
            let Some(active) = self.requests.get(job) else { continue };
            self.stats.cached_tokens += *cached_tokens as u64;
            self.stats.requests.queue_time.add(now.saturating_sub(active.submitted));
            active.send(Event::Started { cached_tokens: *cached_tokens });
        }
        plan
    }

    /// Records a token that was chosen and sends it.
    pub(super) fn push(&mut self, job: JobId, token: Token, now: Duration) {
        let Some(active) = self.requests.get_mut(&job) else { return };
        let since_last = active.last_token.replace(now).map(|last| now.saturating_sub(last));
        self.stats.requests.add_token(now.saturating_sub(active.submitted), since_last);
        self.scheduler.push(job, token.id);
        active.send(Event::Token(token));
    }

    pub(super) fn snapshot(&self, now: Duration) -> Snapshot {
        let limits = self.scheduler.limits();
        let (pages_used, pages_cached) = self.scheduler.pages_used();
        let state = |job: &JobId| {
            let (active, state) = (self.requests.get(job)?, self.scheduler.job(*job)?);
            let (prompt_tokens, computed_tokens) = state.progress();
            Some(RequestState {
                id: active.request.id.clone(),
                phase: state.phase(),
                prompt_tokens,
                computed_tokens,
                generated_tokens: state.generated(),
                pages: state.pages().to_vec(),
                seconds: now.saturating_sub(active.submitted).as_secs_f64(),
            })
        };
        let mut requests: Vec<RequestState> = self.scheduler.ranked().iter().filter_map(state).collect();
        requests.sort_by_key(|request| matches!(request.phase, Phase::Queued | Phase::Preempted));
        Snapshot {
            page_tokens: limits.page,
            pages: limits.pages,
            pages_used,
            pages_cached,
            requests,
            uptime_seconds: now.as_secs_f64(),
            ..self.stats.snapshot()
        }
    }
}
