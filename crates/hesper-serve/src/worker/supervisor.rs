//! The supervisor's side: starts workers, monitors them, and resubmits the unfinished requests of a worker
//! that exited.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::BufReader;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use super::suspects::Suspects;
use super::{Order, Report, messages, writer};
use crate::engine::stats::RequestStats;
use crate::protocol::{
    Event, EventSender, Events, Failure, FailureKind, Finish, Generator, Health, Refusal, Request, Snapshot,
    Usage, channel, instant_after,
};

/// How workers are started and monitored.
pub struct SupervisorOptions {
    /// The command of a worker: a program that calls [`serve`](super::serve).
    pub command: Box<dyn Fn() -> Command + Send + Sync>,
    /// A worker that sends no report for this long is killed. It has three times as long to send the first.
    pub silence_limit: Duration,
    /// A worker that has not loaded its model after this time is killed.
    pub load_limit: Duration,
    /// The most requests that wait while no worker is ready.
    pub max_waiting: usize,
    /// A request fails if this many workers in a row exited before they got further with it, the last one
    /// while it computed nothing else.
    pub max_attempts: usize,
}

impl SupervisorOptions {
    /// The usual limits.
    pub fn new(command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        SupervisorOptions {
            command: Box::new(command),
            silence_limit: Duration::from_secs(10),
            load_limit: Duration::from_secs(600),
            max_waiting: 256,
            max_attempts: 3,
        }
    }
}

impl fmt::Debug for SupervisorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorOptions")
            .field("silence_limit", &self.silence_limit)
            .finish_non_exhaustive()
    }
}

/// How long [`Supervisor::submit`] waits for a ready worker to accept or refuse a request.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The longest pause before another worker is started.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// A worker that sends no report for this long is stalled.
const STALLED_AFTER: Duration = Duration::from_secs(2);
/// How often deadlines and the silence of a worker are checked.
const TICK: Duration = Duration::from_millis(50);
/// After this many workers in a row exited before they were ready, waiting requests fail.
const MAX_FAILED_STARTS: u32 = 3;
/// Requests that lost this many workers without progress are suspects.
const SUSPECT_ATTEMPTS: usize = 2;
/// A suspect is cleared when it has this many tokens more than when its worker exited: the last reports of
/// that worker may have been lost.
const CLEARING_TOKENS: usize = 4;

/// A request that is not finished.
struct OpenRequest {
    request: Request,
    sender: EventSender,
    submitted: Instant,
    started: bool,
    /// Tokens that were sent to the client.
    sent: Vec<u32>,
    /// When the last of them was sent.
    last_token: Option<Instant>,
    /// The number of tokens that came from the current worker.
    received: usize,
    /// Whether it was submitted to the current worker.
    is_submitted: bool,
    /// Workers in a row that exited before they got further with it than their predecessor.
    attempts: usize,
    /// Tokens that were sent to the client when its last worker exited.
    sent_at_exit: usize,
    /// Whether the current worker has accepted or refused it.
    answer: Answer,
    /// Whether [`Supervisor::submit`] waits for the answer.
    submitting: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    None,
    Accepted,
    Refused(Refusal),
    /// The worker had no room for a request that was accepted before. It is submitted again.
    NoRoom,
}

struct State {
    /// The process id of the current worker.
    process: Option<u32>,
    /// Sends to the current worker, once it is ready.
    orders: Option<mpsc::Sender<Order>>,
    open: HashMap<u64, OpenRequest>,
    suspects: Suspects,
    ids: HashMap<String, u64>,
    last_key: u64,
    health: Health,
    /// The last report of the current worker.
    snapshot: Snapshot,
    /// When it came.
    last_report: Option<Instant>,
    /// The summed counters of earlier workers.
    earlier_counts: Snapshot,
    /// What clients see is counted here: it outlives the workers, and a request that two workers compute
    /// counts once.
    stats: RequestStats,
    start: Instant,
    restarts: u64,
    stopping: bool,
    /// The supervisor was dropped.
    shut_down: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    options: SupervisorOptions,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        match self.changed.wait_timeout(state, limit) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }
}

impl State {
    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // If the worker has exited, its successor gets the unfinished requests.
            let _ = orders.send(order);
        }
    }

    /// Why a request is refused without asking the worker, if it is.
    fn refusal(&self, request: &Request, limit: usize) -> Option<Refusal> {
        let waiting = self.open.values().filter(|open| !open.is_submitted).count();
        let retry_after = self.stats.retry_after();
        if self.stopping {
            return Some(Refusal::Unavailable("the server is stopping".into()));
        }
        if let Health::LostDevice { cause } = &self.health {
            return Some(Refusal::Unavailable(cause.clone()));
        }
        if self.ids.contains_key(&request.id) {
            let what = format!("the id {:?} is in use by an unfinished request", request.id);
            return Some(Refusal::Invalid(what));
        }
        // Requests that wait for room in a new worker go first.
        let no_room = self.open.values().any(|open| open.answer == Answer::NoRoom);
        let is_held = self.orders.is_none() || self.suspects.any();
        ((is_held && waiting >= limit) || no_room).then_some(Refusal::QueueFull { limit, retry_after })
    }

    /// Removes a request and sends its last event.
    fn end(&mut self, key: u64, event: Event) {
        if let Some(open) = self.open.remove(&key) {
            if self.ids.get(&open.request.id) == Some(&key) {
                self.ids.remove(&open.request.id);
            }
            let (now, time) = (self.start.elapsed(), open.submitted.elapsed());
            self.stats.add_end(&open.request.id, &event, now, time);
            let _ = open.sender.send(event);
            self.clear(key);
        }
    }

    /// Records that a request is no suspect: it has ended, or got further than before.
    fn clear(&mut self, key: u64) {
        if self.suspects.clear(key) {
            self.submit_waiting();
        }
    }

    fn cancel(&mut self, key: u64) {
        let Some(open) = self.open.get(&key) else { return };
        let (prompt_tokens, completion_tokens) = (open.request.prompt.len(), open.sent.len());
        let usage = Usage { prompt_tokens, cached_tokens: 0, completion_tokens };
        self.order(Order::Cancel { key });
        self.end(key, Event::Done { finish: Finish::Cancelled, usage });
    }

    /// Fails requests whose deadline has passed. A worker does the same, but there may be none, or one that
    /// is stopped. Returns whether there were any.
    fn expire(&mut self) -> bool {
        let expired =
            |open: &OpenRequest| open.request.deadline.filter(|limit| open.submitted.elapsed() > *limit);
        let expired: Vec<(u64, Duration)> =
            self.open.iter().filter_map(|(key, open)| Some((*key, expired(open)?))).collect();
        let any = !expired.is_empty();
        for (key, limit) in expired {
            let message = format!("the request was not finished within its deadline of {limit:?}");
            self.order(Order::Cancel { key });
            self.end(key, Event::Failed(Failure { kind: FailureKind::Deadline, message }));
        }
        any
    }

    fn fail_all(&mut self, kind: FailureKind, message: &str) {
        self.suspects = Suspects::default();
        let keys: Vec<u64> = self.open.keys().copied().collect();
        for key in keys {
            self.order(Order::Cancel { key });
            self.end(key, Event::Failed(Failure { kind, message: message.into() }));
        }
    }

    /// Submits a request to the worker, if one is ready and may get it.
    fn submit(&mut self, key: u64) {
        let is_possible = self.orders.is_some() && self.suspects.allow(key);
        let Some(open) = self.open.get_mut(&key).filter(|_| is_possible) else { return };
        let mut request = Box::new(open.request.clone());
        request.deadline = request.deadline.map(|limit| limit.saturating_sub(open.submitted.elapsed()));
        (open.received, open.answer, open.is_submitted) = (0, Answer::None, true);
        self.order(Order::Submit { key, request });
    }

    /// Submits the requests that the worker does not have and may get, in the order of their arrival.
    fn submit_waiting(&mut self) {
        self.suspects.next_group();
        let waiting = self.open.iter().filter(|(_, open)| !open.is_submitted);
        let mut keys: Vec<u64> = waiting.map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.into_iter().for_each(|key| self.submit(key));
    }

    /// Forwards an event of the current worker, unless an earlier worker has sent the same one.
    fn forward(&mut self, key: u64, event: Event) {
        let Some(open) = self.open.get_mut(&key) else { return };
        match event {
            Event::Started { .. } => {
                if !std::mem::replace(&mut open.started, true) {
                    self.stats.queue_time.add(open.submitted.elapsed());
                    let _ = open.sender.send(event);
                }
            }
            Event::Token(token) => {
                open.received += 1;
                let is_further = open.received >= open.sent_at_exit + CLEARING_TOKENS;
                match open.sent.get(open.received - 1).copied() {
                    None => {
                        open.sent.push(token.id);
                        let since_last = open.last_token.replace(Instant::now()).map(|last| last.elapsed());
                        self.stats.add_token(open.submitted.elapsed(), since_last);
                        let _ = open.sender.send(Event::Token(token));
                    }
                    Some(sent) if sent == token.id => {}
                    Some(sent) => {
                        let message = format!(
                            "the worker exited, and the next one generated another text: token {} is {}, not {sent}",
                            open.received, token.id
                        );
                        self.order(Order::Cancel { key });
                        self.end(key, Event::Failed(Failure { kind: FailureKind::Lost, message }));
                    }
                }
                if is_further {
                    self.clear(key);
                }
            }
            Event::Embedding(_) => drop(open.sender.send(event)),
            Event::Done { .. } | Event::Failed(_) => self.end(key, event),
        }
    }

    /// Records that the worker exited. Its requests wait for the next one. A request fails if it was alone
    /// with the worker and has lost `max_attempts` workers without progress.
    fn lost(&mut self, cause: &str, max_attempts: usize) {
        (self.orders, self.process, self.last_report) = (None, None, None);
        self.restarts += 1;
        let of_worker = std::mem::take(&mut self.snapshot);
        add_counts(&mut self.earlier_counts, &of_worker);
        let (mut keys, mut suspects) = (Vec::new(), BTreeSet::new());
        for (key, open) in self.open.iter_mut().filter(|(_, open)| open.is_submitted) {
            let has_advanced = open.sent.len() > open.sent_at_exit;
            open.attempts = if has_advanced { 1 } else { open.attempts + 1 };
            (open.sent_at_exit, open.is_submitted, open.answer) = (open.sent.len(), false, Answer::None);
            keys.push(*key);
            if self.suspects.contains(*key) || open.attempts >= SUSPECT_ATTEMPTS {
                suspects.insert(*key);
            }
        }
        if !keys.is_empty() {
            self.suspects.set(suspects);
        }
        if let [alone] = keys[..]
            && let Some(attempts) = self.open.get(&alone).map(|open| open.attempts)
            && attempts >= max_attempts
        {
            let message = format!("{attempts} workers exited while they computed the request: {cause}");
            self.end(alone, Event::Failed(Failure { kind: FailureKind::Lost, message }));
        }
        if !self.stopping {
            self.health = Health::Loading { what: format!("a new worker: {cause}") };
        }
    }
}

/// Adds the counters of an engine's steps in `from` to those of `to`.
fn add_counts(to: &mut Snapshot, from: &Snapshot) {
    to.preemptions += from.preemptions;
    to.steps += from.steps;
    to.steps_ahead += from.steps_ahead;
    to.step_seconds += from.step_seconds;
    to.scheduler_seconds += from.scheduler_seconds;
    to.prompt_tokens += from.prompt_tokens;
    to.cached_tokens += from.cached_tokens;
    to.draft_tokens += from.draft_tokens;
    to.accepted_drafts += from.accepted_drafts;
}

/// Runs an engine in a worker process. Dropping the supervisor kills the worker.
pub struct Supervisor {
    shared: Arc<Shared>,
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("health", &self.shared.lock().health).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Starts the first worker without waiting until it is ready.
    pub fn start(options: SupervisorOptions) -> std::io::Result<Self> {
        let state = State {
            process: None,
            orders: None,
            open: HashMap::new(),
            suspects: Suspects::default(),
            ids: HashMap::new(),
            last_key: 0,
            health: Health::Loading { what: "a worker".into() },
            snapshot: Snapshot::default(),
            last_report: None,
            earlier_counts: Snapshot::default(),
            stats: RequestStats::default(),
            start: Instant::now(),
            restarts: 0,
            stopping: false,
            shut_down: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), options });
        let of_thread = shared.clone();
        std::thread::Builder::new().name("hesper-supervisor".into()).spawn(move || supervise(&of_thread))?;
        Ok(Supervisor { shared })
    }

    /// The process id of the current worker, if one runs.
    pub fn process(&self) -> Option<u32> {
        self.shared.lock().process
    }
}

/// Starts a worker, and a new one each time it exits.
fn supervise(shared: &Shared) {
    let mut failed_starts = 0;
    loop {
        let spawned = (shared.options.command)().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let (was_ready, cause) = match spawned {
            Ok(mut child) => {
                shared.lock().process = Some(child.id());
                let exit = watch(shared, &mut child);
                let _ = child.kill();
                let status = child.wait();
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                (exit.was_ready, format!("{}; {status}", exit.cause))
            }
            Err(error) => (false, format!("cannot start a worker: {error}")),
        };
        failed_starts = if was_ready { 0 } else { failed_starts + 1 };
        let mut state = shared.lock();
        if state.shut_down {
            return;
        }
        state.lost(&cause, shared.options.max_attempts);
        if failed_starts >= MAX_FAILED_STARTS {
            state.health = Health::LostDevice { cause: cause.clone() };
            state.fail_all(FailureKind::Lost, &cause);
        }
        shared.changed.notify_all();
        if failed_starts > 0 {
            let end = Instant::now()
                + (Duration::from_millis(100) * 2u32.pow(failed_starts.min(10))).min(MAX_PAUSE);
            while !state.shut_down && Instant::now() < end {
                state.expire();
                state = shared.wait(state, TICK.min(end.saturating_duration_since(Instant::now())));
            }
        }
        if state.shut_down {
            return;
        }
    }
}

/// Why a worker exited or has to be killed.
struct WorkerExit {
    was_ready: bool,
    cause: String,
}

/// Handles the reports of a worker until it exits or has to be killed.
fn watch(shared: &Shared, child: &mut Child) -> WorkerExit {
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return WorkerExit { was_ready: false, cause: "the pipes of the worker are missing".into() };
    };
    let mut orders = Some(writer(stdin));
    let (sender, reports) = mpsc::channel::<Report>();
    std::thread::spawn(move || {
        messages(BufReader::new(stdout)).try_for_each(|report: Report| sender.send(report)).ok();
    });
    let (began, mut was_ready) = (Instant::now(), false);
    loop {
        let report = reports.recv_timeout(TICK);
        let mut state = shared.lock();
        if state.shut_down {
            return WorkerExit { was_ready, cause: "the supervisor was stopped".into() };
        }
        if state.expire() {
            shared.changed.notify_all();
        }
        match report {
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return WorkerExit { was_ready, cause: "the worker exited".into() };
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let silence_limit = shared.options.silence_limit;
                let (since, limit) = match state.last_report {
                    Some(last) => (last, silence_limit),
                    None => (began, 3 * silence_limit),
                };
                if Instant::elapsed(&since) > limit {
                    let cause = format!("the worker sent no report for {limit:?}");
                    return WorkerExit { was_ready, cause };
                }
                continue;
            }
            Ok(Report::State { health, snapshot }) => {
                match &health {
                    Health::Stalled { seconds } => {
                        let cause = format!("a step was not finished after {seconds:.0} seconds");
                        return WorkerExit { was_ready, cause };
                    }
                    Health::LostDevice { cause } => return WorkerExit { was_ready, cause: cause.clone() },
                    Health::Loading { .. } if began.elapsed() > shared.options.load_limit => {
                        let limit = shared.options.load_limit;
                        let cause = format!("the worker did not load its model within {limit:?}");
                        return WorkerExit { was_ready, cause };
                    }
                    Health::Ok | Health::Loading { .. } | Health::Stopping => {}
                }
                if health == Health::Ok
                    && let Some(orders) = orders.take()
                {
                    was_ready = true;
                    state.orders = Some(orders);
                }
                if !state.stopping {
                    state.health = health;
                }
                state.snapshot = *snapshot;
                state.submit_waiting();
            }
            Ok(Report::Accepted { key }) => {
                if let Some(open) = state.open.get_mut(&key) {
                    open.answer = Answer::Accepted;
                }
            }
            Ok(Report::Refused { key, refusal }) => {
                match (state.open.get_mut(&key), &refusal) {
                    (Some(open), _) if open.submitting => open.answer = Answer::Refused(refusal),
                    // It waited for a worker, or an earlier one had accepted it.
                    (Some(open), Refusal::QueueFull { .. } | Refusal::Unavailable(_)) => {
                        (open.answer, open.is_submitted) = (Answer::NoRoom, false);
                    }
                    _ => {
                        let (kind, message) = (FailureKind::Request, refusal.to_string());
                        state.end(key, Event::Failed(Failure { kind, message }));
                    }
                }
            }
            Ok(Report::Event { key, event }) => state.forward(key, event),
        }
        state.last_report = Some(Instant::now());
        drop(state);
        shared.changed.notify_all();
    }
}

impl Generator for Supervisor {
    fn submit(&self, request: Request) -> Result<Events, Refusal> {
        let mut state = self.shared.lock();
        if let Some(refusal) = state.refusal(&request, self.shared.options.max_waiting) {
            state.stats.refused += 1;
            return Err(refusal);
        }
        state.last_key += 1;
        let (key, id, (sender, receiver)) = (state.last_key, request.id.clone(), channel());
        let open = OpenRequest {
            request,
            sender,
            submitted: Instant::now(),
            started: false,
            sent: Vec::new(),
            last_token: None,
            received: 0,
            is_submitted: false,
            attempts: 0,
            sent_at_exit: 0,
            answer: Answer::None,
            submitting: true,
        };
        state.ids.insert(id.clone(), key);
        state.open.insert(key, open);
        state.submit(key);
        let end = Instant::now() + ANSWER_LIMIT;
        // If no worker is ready or may get it, the request waits, and a refusal arrives as an event.
        let is_pending = |state: &State| {
            state.open.get(&key).is_some_and(|open| open.is_submitted && open.answer == Answer::None)
        };
        while is_pending(&state) && Instant::now() < end {
            state = self.shared.wait(state, end.saturating_duration_since(Instant::now()));
        }
        if let Some(open) = state.open.get_mut(&key) {
            open.submitting = false;
            if let Answer::Refused(refusal) = open.answer.clone() {
                state.open.remove(&key);
                state.ids.remove(&id);
                state.stats.refused += 1;
                return Err(refusal);
            }
        }
        state.stats.accepted += 1;
        drop(state);
        let shared = Arc::downgrade(&self.shared);
        let cancel = move || {
            if let Some(shared) = shared.upgrade() {
                shared.lock().cancel(key);
                shared.changed.notify_all();
            }
        };
        Ok(Events::new(id, receiver, cancel))
    }

    fn cancel(&self, id: &str) -> bool {
        let mut state = self.shared.lock();
        let key = state.ids.get(id).copied();
        key.into_iter().for_each(|key| state.cancel(key));
        key.is_some()
    }

    fn health(&self) -> Health {
        let state = self.shared.lock();
        // A worker reports many times in this time, also while a step runs.
        let silence = state.last_report.map(|last| last.elapsed()).filter(|time| *time > STALLED_AFTER);
        match (&state.health, silence) {
            (Health::Ok, Some(silence)) => Health::Stalled { seconds: silence.as_secs_f64() },
            (health, _) => health.clone(),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let state = self.shared.lock();
        let mut snapshot = state.snapshot.clone();
        add_counts(&mut snapshot, &state.earlier_counts);
        (snapshot.restarts, snapshot.uptime_seconds) = (state.restarts, state.start.elapsed().as_secs_f64());
        state.stats.snapshot(snapshot)
    }

    fn drain(&self, limit: Duration) {
        let end = instant_after(limit);
        let mut state = self.shared.lock();
        (state.stopping, state.health) = (true, Health::Stopping);
        while !state.open.is_empty() && Instant::now() < end {
            state = self.shared.wait(state, end.saturating_duration_since(Instant::now()));
        }
        state.fail_all(FailureKind::Stopping, "the server is stopping");
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        (state.stopping, state.shut_down) = (true, true);
        state.fail_all(FailureKind::Stopping, "the server is stopping");
        drop(state);
        self.shared.changed.notify_all();
    }
}
