//! An engine in a worker process that is killed, stopped or cannot start.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{End, LIMIT, collect, language, request, small, texts};
use hesper_serve::engine::{Engine, EngineOptions};
use hesper_serve::protocol::{
    Event, Events, FailureKind, Finish, Generator, Health, Histogram, Phase, Refusal, Request, Sampling,
    Snapshot, channel,
};
use hesper_serve::worker::{Supervisor, SupervisorOptions, serve};

/// The worker: this program, which runs only this test.
#[test]
#[ignore = "runs as the worker of the other tests"]
fn worker_process() {
    let look_ahead = std::env::var_os(LOOK_AHEAD).map(|_| true);
    let options = match std::env::var_os(SMALL_QUEUE) {
        Some(_) => EngineOptions { max_running: 2, max_waiting: 3, ..small() },
        None => small(),
    };
    let served = serve(|| -> hesper_lm::Result<Arc<dyn Generator>> {
        if std::env::var_os(SLOW_LOAD).is_some() {
            std::thread::sleep(Duration::from_secs(1));
        }
        let engine = Engine::start(language(), EngineOptions { look_ahead, ..options })?;
        Ok(match std::env::var_os(HOSTILE) {
            Some(_) => Arc::new(Hostile(engine)),
            None => Arc::new(engine),
        })
    });
    served.unwrap();
}

/// Set for a worker that looks ahead, for one that runs 2 requests and queues 3, for one that takes a second
/// to load, and for one that is [`Hostile`].
const LOOK_AHEAD: &str = "HESPER_TEST_LOOK_AHEAD";
const SMALL_QUEUE: &str = "HESPER_TEST_SMALL_QUEUE";
const SLOW_LOAD: &str = "HESPER_TEST_SLOW_LOAD";
const HOSTILE: &str = "HESPER_TEST_HOSTILE";

/// Panics when a request with the id "panic" is submitted, aborts when "abort" is submitted and at the third
/// token of "poison", and never sends an event of "stuck".
struct Hostile(Engine);

impl Generator for Hostile {
    fn submit(&self, request: Request) -> Result<Events, Refusal> {
        match request.id.as_str() {
            "panic" => panic!("a hostile request"),
            "abort" => std::process::abort(),
            "poison" => {
                let (events, (sender, receiver)) = (self.0.submit(request)?, channel());
                std::thread::spawn(move || {
                    let mut tokens = 0;
                    while let Some(event) = events.next() {
                        tokens += usize::from(matches!(event, Event::Token(_)));
                        if tokens == 3 {
                            std::process::abort();
                        }
                        let _ = sender.send(event);
                    }
                });
                Ok(Events::new("poison".into(), receiver, || {}))
            }
            "stuck" => {
                let (sender, receiver) = channel();
                std::mem::forget(sender);
                Ok(Events::new("stuck".into(), receiver, || {}))
            }
            _ => self.0.submit(request),
        }
    }

    fn cancel(&self, id: &str) -> bool {
        self.0.cancel(id)
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    fn drain(&self, limit: Duration) {
        self.0.drain(limit);
    }
}

fn options() -> SupervisorOptions {
    options_with(&[])
}

fn options_with(variables: &'static [&'static str]) -> SupervisorOptions {
    let command = move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker::worker_process", "--exact", "--ignored", "--nocapture"]);
        command.envs(variables.iter().map(|name| (name, "1")));
        command
    };
    // Longer than a busy machine keeps a worker from reporting: no test waits for it.
    SupervisorOptions { silence_limit: Duration::from_secs(60), ..SupervisorOptions::new(command) }
}

/// For workers that are stopped.
const SHORT_SILENCE: Duration = Duration::from_secs(4);

fn supervisor() -> Supervisor {
    started(options())
}

fn started(options: SupervisorOptions) -> Supervisor {
    let supervisor = Supervisor::start(options).unwrap();
    until(|| supervisor.health() == Health::Ok);
    supervisor
}

fn until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(supervisor: &Supervisor, name: &str) {
    let process = supervisor.process().unwrap().to_string();
    assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
}

fn requests(max_tokens: usize, temperature: f32) -> Vec<Request> {
    let request = |(at, text): (usize, &String)| Request {
        sampling: Sampling {
            temperature: temperature * (at % 3) as f32,
            seed: at as u64,
            ..Sampling::default()
        },
        ..request(&format!("r{at}"), text, max_tokens)
    };
    texts().iter().enumerate().map(request).collect()
}

#[test]
fn every_text_is_complete_and_unchanged_after_the_worker_is_killed_or_stopped() {
    let engine = Engine::start(language(), small()).unwrap();
    // Requests without a temperature let the worker look ahead.
    for (name, temperature, variables) in
        [("-KILL", 0.4, &[][..]), ("-STOP", 0.4, &[]), ("-KILL", 0.0, &[LOOK_AHEAD])]
    {
        let requests = || requests(40, temperature).into_iter();
        let expected: Vec<(Vec<u32>, String)> = requests()
            .map(|request| collect(&engine.submit(request).unwrap()))
            .map(|(tokens, text, _)| (tokens, text))
            .collect();
        let mut options = options_with(variables);
        if name == "-STOP" {
            options.silence_limit = SHORT_SILENCE;
        }
        let supervisor = started(options);
        let events: Vec<Events> = requests().map(|request| supervisor.submit(request).unwrap()).collect();
        // Some requests are being generated now, others have no token yet.
        let mut first = Vec::new();
        while first.len() < 5 {
            if let Event::Token(token) = events[0].next_within(LIMIT).unwrap() {
                first.push((token.id, token.text));
            }
        }
        signal(&supervisor, name);
        for (at, events) in events.iter().enumerate() {
            let (mut tokens, mut text, end) = collect(events);
            if at == 0 {
                tokens.splice(..0, first.iter().map(|token| token.0));
                text.insert_str(0, &first.iter().map(|token| token.1.as_str()).collect::<String>());
            }
            assert_eq!((&tokens, &text), (&expected[at].0, &expected[at].1), "{name}: request {at}");
            assert!(matches!(end, End::Done(Finish::Length, _)), "{name}: request {at}: {end:?}");
        }
        assert_eq!(supervisor.snapshot().restarts, 1);
        until(|| supervisor.health() == Health::Ok);
    }
}

#[test]
fn counters_and_histograms_keep_their_totals_when_workers_are_killed() {
    let supervisor = supervisor();
    let count = |histogram: &Histogram| histogram.counts.iter().sum::<u64>();
    let (mut before, mut steps) = (supervisor.snapshot(), 0);
    for round in 0..2 {
        let id = |name: &str| format!("{name} {round}");
        assert_eq!(collect(&supervisor.submit(request(&id("short"), "The", 4)).unwrap()).0.len(), 4);
        let failed =
            Request { deadline: Some(Duration::from_millis(1)), ..request(&id("late"), "The", 100_000) };
        assert!(matches!(collect(&supervisor.submit(failed).unwrap()).2, End::Failed(..)));
        until(|| supervisor.snapshot().steps > steps);
        let long = supervisor.submit(request(&id("long"), &texts()[3], 30)).unwrap();
        while !matches!(long.next_within(LIMIT).unwrap(), Event::Token(_)) {}
        signal(&supervisor, "-KILL");
        assert!(matches!(collect(&long).2, End::Done(Finish::Length, _)));
        until(|| supervisor.health() == Health::Ok);
        let now = supervisor.snapshot();
        let rounds = round + 1;
        assert_eq!((now.restarts, now.accepted), (rounds, 3 * rounds), "{now:?}");
        assert_eq!((now.completed, now.failed), (2 * rounds, rounds), "{now:?}");
        // The tokens of the long text that two workers computed count once.
        assert_eq!(now.generated_tokens, 34 * rounds);
        assert_eq!(now.recent_failures.len() as u64, rounds);
        assert_eq!((count(&now.time_to_first_token), count(&now.inter_token)), (2 * rounds, 32 * rounds));
        assert_eq!(count(&now.request_seconds), 3 * rounds);
        assert!(now.steps > before.steps && now.uptime_seconds > before.uptime_seconds, "{now:?}");
        (steps, before) = (now.steps, now);
    }
}

#[test]
fn requests_of_a_full_queue_survive_the_death_of_the_worker() {
    let supervisor = started(options_with(&[SMALL_QUEUE]));
    let submit = |at: usize| supervisor.submit(request(&at.to_string(), &texts()[at], 60));
    let mut events: Vec<Events> = (0..2).map(|at| submit(at).unwrap()).collect();
    until(|| supervisor.snapshot().requests.iter().filter(|one| one.phase != Phase::Queued).count() == 2);
    events.extend((2..5).map(|at| submit(at).unwrap()));
    assert!(matches!(submit(5), Err(Refusal::QueueFull { limit: 3, .. })));
    signal(&supervisor, "-KILL");
    // The new worker gets five requests at once; its queue holds three.
    for (at, events) in events.iter().enumerate() {
        let end = collect(events).2;
        assert!(matches!(end, End::Done(Finish::Length, _)), "request {at}: {end:?}");
    }
    assert_eq!(supervisor.snapshot().restarts, 1);
    assert_eq!(collect(&submit(0).unwrap()).0.len(), 60);
}

#[test]
fn a_request_that_panics_or_kills_the_worker_when_it_is_submitted_fails_alone() {
    let supervisor = started(SupervisorOptions { max_attempts: 2, ..options_with(&[HOSTILE]) });
    let beside = supervisor.submit(request("beside", &texts()[2], 40)).unwrap();
    let refused = supervisor.submit(request("panic", "The", 3));
    assert!(matches!(&refused, Err(Refusal::Invalid(what)) if what.contains("panicked")), "{refused:?}");
    assert!(matches!(collect(&beside).2, End::Done(..)));
    assert_eq!(supervisor.snapshot().restarts, 0);
    if let Ok(events) = supervisor.submit(request("abort", "The", 3)) {
        let end = collect(&events).2;
        assert!(
            matches!(&end, End::Failed(FailureKind::Lost, what) if what.contains("2 workers")),
            "{end:?}"
        );
    }
    assert_eq!(collect(&supervisor.submit(request("next", "The", 3)).unwrap()).0.len(), 3);
    assert_eq!(supervisor.snapshot().restarts, 2);
}

#[test]
fn a_worker_refuses_and_cancels_like_an_engine() {
    let supervisor = supervisor();
    let refusal =
        supervisor.submit(Request { prompt: Vec::new(), ..request("wrong", "The", 3) }).unwrap_err();
    assert!(matches!(&refusal, Refusal::Invalid(what) if what.contains("empty")), "{refusal}");
    let events = supervisor.submit(request("long", "The evening star", 100_000)).unwrap();
    let refusal = supervisor.submit(request("long", "The", 3)).unwrap_err();
    assert!(matches!(&refusal, Refusal::Invalid(what) if what.contains("\"long\"")), "{refusal}");
    assert!(supervisor.cancel("long") && !supervisor.cancel("long"));
    assert!(matches!(collect(&events).2, End::Done(Finish::Cancelled, _)));
    drop(supervisor.submit(request("dropped", "The evening star", 100_000)).unwrap());
    until(|| supervisor.snapshot().cancelled == 2 && supervisor.snapshot().pages_used == 0);
    assert_eq!(collect(&supervisor.submit(request("next", "The", 3)).unwrap()).0.len(), 3);
    supervisor.drain(Duration::from_secs(5));
    assert_eq!(supervisor.health(), Health::Stopping);
    assert!(matches!(supervisor.submit(request("late", "The", 3)), Err(Refusal::Unavailable(_))));
}

#[test]
fn clients_that_disconnect_while_the_worker_is_stopped_are_cancelled_when_it_continues_or_is_replaced() {
    for continues in [true, false] {
        let supervisor = started(SupervisorOptions {
            silence_limit: if continues { options().silence_limit } else { Duration::from_secs(1) },
            ..options()
        });
        let long = |id: &str| request(id, "The evening star", 1_000_000);
        let events = supervisor.submit(long("decodes")).unwrap();
        while !matches!(events.next_within(LIMIT).unwrap(), Event::Token(_)) {}
        signal(&supervisor, "-STOP");
        // One request runs, the worker has not read the second, and the third is cancelled by its id.
        let (unread, by_id) =
            (supervisor.submit(long("unread")).unwrap(), supervisor.submit(long("by id")).unwrap());
        drop((events, unread));
        assert!(supervisor.cancel("by id"));
        assert!(matches!(collect(&by_id).2, End::Done(Finish::Cancelled, _)));
        if continues {
            // Long before the worker is replaced.
            until(|| matches!(supervisor.health(), Health::Stalled { seconds } if seconds > 1.0));
        }
        match continues {
            true => signal(&supervisor, "-CONT"),
            false => until(|| supervisor.snapshot().restarts == 1),
        }
        let next = collect(&supervisor.submit(request("next", "The", 3)).unwrap());
        assert_eq!(next.0.len(), 3);
        until(|| {
            let snapshot = supervisor.snapshot();
            supervisor.health() == Health::Ok
                && snapshot.completed == 1
                && snapshot.requests.is_empty()
                && snapshot.pages_used == 0
        });
        let snapshot = supervisor.snapshot();
        assert_eq!((snapshot.completed, snapshot.failed), (1, 0), "{snapshot:?}");
        assert_eq!(snapshot.cancelled, 3);
    }
}

#[test]
fn requests_wait_while_a_worker_loads_and_fail_if_none_can_start() {
    let early = Supervisor::start(options()).unwrap();
    let events = early.submit(request("early", "The", 3)).unwrap();
    let wrong = early.submit(Request { prompt: vec![9_999_999], ..request("wrong", "The", 3) });
    assert_eq!(collect(&events).0.len(), 3);
    // The worker refuses it: at once, or as an event.
    match wrong {
        Ok(events) => assert!(matches!(collect(&events).2, End::Failed(FailureKind::Request, _))),
        Err(refusal) => assert!(matches!(refusal, Refusal::Invalid(_))),
    }
    for program in ["false", "/nonexistent/worker"] {
        let broken = Supervisor::start(SupervisorOptions::new(move || Command::new(program))).unwrap();
        if let Ok(events) = broken.submit(request("never", "The", 3)) {
            assert!(matches!(collect(&events).2, End::Failed(FailureKind::Lost, _)), "{program}");
        }
        until(|| matches!(broken.health(), Health::LostDevice { .. }));
        assert!(matches!(broken.submit(request("late", "The", 3)), Err(Refusal::Unavailable(_))));
    }
}

#[test]
fn deadlines_hold_while_no_worker_is_ready_and_while_one_is_stopped() {
    let deadline = Some(Duration::from_millis(300));
    let passed = |events: &Events| matches!(collect(events).2, End::Failed(FailureKind::Deadline, _));
    let options_of = |program: &'static str| {
        SupervisorOptions::new(move || {
            let mut command = Command::new(program);
            command.arg("60");
            command
        })
    };
    let loading = Supervisor::start(options_of("sleep")).unwrap();
    assert!(passed(&loading.submit(Request { deadline, ..request("never", "The", 3) }).unwrap()));
    let supervisor = started(options());
    let events = supervisor.submit(request("long", "The evening star", 100_000)).unwrap();
    until(|| supervisor.snapshot().requests.len() == 1);
    signal(&supervisor, "-STOP");
    assert!(passed(&supervisor.submit(Request { deadline, ..request("late", "The", 3) }).unwrap()));
    signal(&supervisor, "-CONT");
    assert!(supervisor.cancel("long"));
    assert!(matches!(collect(&events).2, End::Done(Finish::Cancelled, _)));
}

#[test]
fn a_request_that_is_lost_with_every_worker_fails() {
    let supervisor = started(SupervisorOptions { max_attempts: 2, ..options_with(&[HOSTILE]) });
    let events = supervisor.submit(request("stuck", "The evening star", 10)).unwrap();
    for attempt in 0..2 {
        until(|| supervisor.health() == Health::Ok);
        signal(&supervisor, "-KILL");
        until(|| supervisor.snapshot().restarts == attempt + 1);
    }
    let end = collect(&events).2;
    assert!(matches!(&end, End::Failed(FailureKind::Lost, what) if what.contains("2 workers")), "{end:?}");
    assert_eq!(collect(&supervisor.submit(request("next", "The", 3)).unwrap()).0.len(), 3);
}

#[test]
fn a_request_that_kills_every_worker_is_found_among_others_which_are_answered() {
    let engine = Engine::start(language(), small()).unwrap();
    let healthy = || requests(24, 0.4).into_iter();
    let expected: Vec<String> =
        healthy().map(|request| collect(&engine.submit(request).unwrap()).1).collect();
    let supervisor = started(options_with(&[HOSTILE]));
    let mut events: Vec<Events> =
        healthy().take(6).map(|request| supervisor.submit(request).unwrap()).collect();
    let poison = supervisor.submit(request("poison", "The evening star", 24)).unwrap();
    events.extend(healthy().skip(6).map(|request| supervisor.submit(request).unwrap()));
    let end = collect(&poison).2;
    assert!(matches!(&end, End::Failed(FailureKind::Lost, what) if what.contains("workers")), "{end:?}");
    for (at, events) in events.iter().enumerate() {
        let (_, text, end) = collect(events);
        assert!(matches!(end, End::Done(Finish::Length, _)), "request {at}: {end:?}");
        assert_eq!(text, expected[at], "request {at}");
    }
    let snapshot = supervisor.snapshot();
    assert!((3..=12).contains(&snapshot.restarts) && snapshot.failed == 1, "{snapshot:?}");
    // Nothing is held back any more.
    assert_eq!(collect(&supervisor.submit(request("next", "The", 3)).unwrap()).0.len(), 3);
}

#[test]
fn workers_that_are_stopped_or_killed_while_they_load_are_replaced_and_fail_no_request() {
    let options = SupervisorOptions { silence_limit: SHORT_SILENCE, ..options_with(&[SLOW_LOAD]) };
    let supervisor = started(SupervisorOptions { max_attempts: 1, ..options });
    let events = supervisor.submit(request("long", &texts()[3], 40)).unwrap();
    while !matches!(events.next_within(LIMIT).unwrap(), Event::Token(_)) {}
    // Two requests: one that is alone with the only worker it may lose would fail.
    let other = supervisor.submit(request("other", &texts()[4], 40)).unwrap();
    for (restarts, name) in [(0, "-KILL"), (1, "-STOP"), (2, "-KILL")] {
        until(|| supervisor.process().is_some() && supervisor.snapshot().restarts == restarts);
        if restarts > 0 {
            assert!(matches!(supervisor.health(), Health::Loading { .. }));
            // The worker has begun to report.
            std::thread::sleep(Duration::from_millis(300));
        }
        signal(&supervisor, name);
        let begin = Instant::now();
        until(|| supervisor.snapshot().restarts == restarts + 1);
        assert!(begin.elapsed() < Duration::from_secs(20), "{name} after {:?}", begin.elapsed());
    }
    for events in [events, other] {
        let end = collect(&events).2;
        assert!(matches!(end, End::Done(Finish::Length, _)), "{end:?}");
    }
}
