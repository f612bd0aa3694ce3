//! The engine with the demo model: the output of a request does not depend on other requests, and every
//! request is answered once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{End, LIMIT, collect, language, request, small, texts};
use hesper::Array;
use hesper_lm::{CacheKind, LanguageModel, LoadOptions, fetch};
use hesper_serve::engine::{Engine, EngineOptions};
use hesper_serve::protocol::{
    Event, Events, FailureKind, Finish, Generator, Health, Phase, Pooling, Refusal, Request, Sampling, Usage,
};

fn engine(options: EngineOptions) -> Engine {
    Engine::start(language(), options).unwrap()
}

/// Options with memory for `count` pages.
fn pages(count: u64, options: EngineOptions) -> EngineOptions {
    let bytes = engine(options.clone()).snapshot().page_bytes;
    EngineOptions { kv_bytes: Some(count * bytes), ..options }
}

fn requests() -> Vec<Request> {
    let request = |(at, text): (usize, &String)| Request {
        sampling: Sampling { temperature: 0.4 * (at % 3) as f32, seed: at as u64, ..Sampling::default() },
        ..request(&format!("r{at}"), text, 5 + 3 * at)
    };
    texts().iter().enumerate().map(request).collect()
}

#[test]
fn a_text_is_the_same_alone_in_company_after_preemption_and_with_a_cached_prefix() {
    let alone = |request: Request| collect(&engine(small()).submit(request).unwrap()).0;
    let alone: Vec<Vec<u32>> = requests().into_iter().map(alone).collect();
    // Plenty of memory, and so little that requests are preempted.
    let little = pages(30, EngineOptions { reserve_tokens: 0, ..small() });
    for (options, preempts) in [(small(), false), (little, true)] {
        let engine = engine(options);
        for round in 0..2 {
            let events: Vec<Events> =
                requests().into_iter().map(|request| engine.submit(request).unwrap()).collect();
            for (at, events) in events.iter().enumerate() {
                let (tokens, _, end) = collect(events);
                assert_eq!(tokens, alone[at], "request {at} of round {round}");
                assert!(
                    matches!(end, End::Done(Finish::Length, usage) if usage.completion_tokens == tokens.len())
                );
            }
        }
        let snapshot = engine.snapshot();
        assert_eq!((snapshot.completed, snapshot.failed, snapshot.pages_used), (24, 0, 0));
        // If memory is short, prefixes are evicted.
        assert!(snapshot.cached_tokens > 0 || preempts);
        assert_eq!(snapshot.preemptions > 0, preempts, "{} preemptions", snapshot.preemptions);
    }
}

/// Compares the output of requests that run together with their output alone. The requests arrive at
/// different times, share prefixes, have different priorities and are preempted for lack of memory. Half as
/// many more are cancelled while they run. Returns the number of preemptions.
fn compare(language: &Arc<LanguageModel>, requests: &[Request], options: &EngineOptions, pages: u64) -> u64 {
    let start = |options: EngineOptions| Engine::start(language.clone(), options).unwrap();
    let one = start(EngineOptions { max_running: 1, ..options.clone() });
    let alone: Vec<Vec<u32>> = requests
        .iter()
        .map(|request| Request { use_prefix_cache: false, ..request.clone() })
        .map(|request| collect(&one.submit(request).unwrap()).0)
        .collect();
    let kv_bytes = Some(pages * one.snapshot().page_bytes);
    let engine = start(EngineOptions { kv_bytes, reserve_tokens: 0, max_waiting: 1000, ..options.clone() });
    std::thread::scope(|scope| {
        for (at, (request, alone)) in requests.iter().zip(&alone).enumerate() {
            let engine = &engine;
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis((at * 37 % 64) as u64));
                let id = at.to_string();
                let request = Request { id: id.clone(), priority: (at * 5 % 3) as i32, ..request.clone() };
                if at % 2 == 0 {
                    let other = Request { id: format!("{id}-cancelled"), ..request.clone() };
                    let events = engine.submit(other).unwrap();
                    (0..at / 8).for_each(|_| drop(events.next_within(LIMIT)));
                }
                let (tokens, _, end) = collect(&engine.submit(request).unwrap());
                assert_eq!(&tokens, alone, "request {id}: {end:?}");
            });
        }
    });
    let snapshot = engine.snapshot();
    assert_eq!((snapshot.failed, snapshot.pages_used, snapshot.requests.len()), (0, 0, 0));
    assert_eq!(snapshot.completed + snapshot.cancelled, 3 * requests.len() as u64 / 2);
    assert!(snapshot.cached_tokens > 0, "no prefix was found");
    snapshot.preemptions
}

/// Requests with prompts that share prefixes.
fn crowd(language: &LanguageModel, words: usize, max_tokens: usize) -> Vec<Request> {
    let text = texts()[11].repeat(words.div_ceil(50));
    let all: Vec<&str> = text.split(' ').collect();
    let request = |at: usize| {
        let text =
            format!("{} {at} {}", all[..at % 4 * words / 4].join(" "), all[..at % 7 * words / 9].join(" "));
        let prompt = language.prompt_tokens(&text).unwrap();
        let id = at.to_string();
        Request { id, prompt, max_tokens: 2 + at * 7 % max_tokens, ignore_eos: true, ..Request::default() }
    };
    (0..64).map(request).collect()
}

#[test]
fn the_texts_of_sixty_four_requests_are_those_of_each_alone() {
    let language = language();
    for (kv_bits, look_ahead) in [(None, None), (Some(16), Some(true))] {
        let options = EngineOptions { kv_bits, look_ahead, fixed_order: kv_bits.is_some(), ..small() };
        // Little memory, short prompts and long texts: requests run out of memory while they decode, even if
        // few of them run at once because the machine is slow.
        let preemptions = compare(&language, &crowd(&language, 8, 16), &options, 28);
        assert!(preemptions > 0, "no request was preempted");
    }
}

#[test]
fn looking_ahead_changes_no_text_and_leaks_no_page() {
    let ends = |at: usize, tokens: &[u32]| Request {
        // Some end by a stop token, some by a stop sequence. Their row in the step ahead is discarded.
        stop_tokens: if at % 3 == 1 { vec![tokens[at % tokens.len()]] } else { Vec::new() },
        ..request(&format!("r{at}"), &texts()[at], 24)
    };
    let plain = engine(EngineOptions { look_ahead: Some(false), ..small() });
    let whole: Vec<(Vec<u32>, String)> = (0..12)
        .map(|at| collect(&plain.submit(request("whole", &texts()[at], 24)).unwrap()))
        .map(|(tokens, text, _)| (tokens, text))
        .collect();
    let requests = || {
        (0..12).map(|at| {
            let (tokens, text) = &whole[at];
            let word = text.split(' ').filter(|word| word.len() > 2).nth(1).unwrap_or("none");
            let stops = if at % 3 == 2 { vec![word.to_string()] } else { Vec::new() };
            Request { stops, ..ends(at, tokens) }
        })
    };
    let alone: Vec<(Vec<u32>, String, End)> =
        requests().map(|request| collect(&plain.submit(request).unwrap())).collect();
    assert_eq!(plain.snapshot().steps_ahead, 0);
    let ahead = engine(EngineOptions { look_ahead: Some(true), ..pages(60, small()) });
    for round in 0..2 {
        let events: Vec<Events> = requests().map(|request| ahead.submit(request).unwrap()).collect();
        for (at, events) in events.iter().enumerate() {
            let (tokens, text, end) = collect(events);
            assert_eq!((&tokens, &text), (&alone[at].0, &alone[at].1), "request {at} of round {round}");
            let finish = |end: &End| match end {
                End::Done(finish, usage) => (*finish, usage.completion_tokens),
                End::Failed(..) => panic!("{end:?}"),
            };
            assert_eq!(finish(&end), finish(&alone[at].2));
        }
    }
    let snapshot = ahead.snapshot();
    assert!(snapshot.steps_ahead > 20, "{} of {} steps", snapshot.steps_ahead, snapshot.steps);
    assert_eq!((snapshot.completed, snapshot.failed, snapshot.pages_used), (24, 0, 0));
    // The engine does not look ahead if the host chooses a token.
    let before = snapshot.steps_ahead;
    for request in [
        Request { logprobs: Some(1), ..request("logprobs", "The", 5) },
        Request {
            sampling: Sampling { frequency_penalty: 0.5, ..Sampling::default() },
            ..request("penalty", "The", 5)
        },
    ] {
        assert_eq!(collect(&ahead.submit(request).unwrap()).0.len(), 5);
    }
    assert_eq!(ahead.snapshot().steps_ahead, before);
    // Host and device sample the same tokens.
    let draws = |engine: &Engine| -> Vec<Vec<u32>> {
        let sampling =
            |seed| Sampling { temperature: 1.5, top_p: 0.95, top_k: 40, seed, ..Sampling::default() };
        let request =
            |seed| Request { sampling: sampling(seed), ..request(&format!("hot{seed}"), "The", 12) };
        let events: Vec<Events> = (0..6).map(|seed| engine.submit(request(seed)).unwrap()).collect();
        events.iter().map(|events| collect(events).0).collect()
    };
    let (by_host, by_device) = (draws(&plain), draws(&ahead));
    assert_eq!(by_device, by_host);
    assert!(by_host.windows(2).any(|pair| pair[0] != pair[1]), "{by_host:?}");
    assert!(ahead.snapshot().steps_ahead > before);
}

#[test]
fn draft_tokens_change_no_text() {
    let requests = || {
        (0..6).map(|at| {
            let (text, sampling) = (
                format!("{} {}", texts()[at], texts()[at]),
                Sampling {
                    temperature: if at % 4 == 3 { 0.7 } else { 0.0 },
                    repetition_penalty: if at % 4 == 2 { 1.1 } else { 1.0 },
                    seed: at as u64,
                    ..Sampling::default()
                },
            );
            let logprobs = (at % 3 == 0).then_some(2);
            Request { sampling, logprobs, ..request(&format!("r{at}"), &text, 16 + 4 * at) }
        })
    };
    let run = |draft_tokens: usize, max_running: usize| {
        let options = EngineOptions { draft_tokens: Some(draft_tokens), max_running, ..small() };
        let engine = engine(EngineOptions { reserve_tokens: 0, ..pages(60, options) });
        let events: Vec<Events> = requests().map(|request| engine.submit(request).unwrap()).collect();
        let text = |events: &Events| {
            let (tokens, text, _) = collect(events);
            (tokens, text)
        };
        let texts: Vec<_> = events.iter().map(text).collect();
        (texts, engine.snapshot())
    };
    let (expected, without) = run(0, 3);
    assert_eq!(without.draft_tokens, 0);
    for running in [3, 6] {
        let (texts, with) = run(4, running);
        assert_eq!(texts, expected);
        assert!(with.accepted_drafts > 0, "{} of {}", with.accepted_drafts, with.draft_tokens);
        assert_eq!((with.pages_used, with.failed), (0, 0));
    }
}

/// The embedding that a request gets.
fn embedding(events: &Events) -> Vec<f32> {
    let mut found = None;
    loop {
        match events.next_within(LIMIT).unwrap() {
            Event::Started { .. } => {}
            Event::Embedding(embedding) => found = Some(embedding),
            Event::Done { finish, usage } => {
                assert_eq!((finish, usage.completion_tokens), (Finish::Stop, 0));
                return found.unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_embedding_is_pooled_from_the_hidden_states_and_does_not_depend_on_others() {
    let language = language();
    let (model, width) = (language.model(), language.model().config().hidden_size);
    for pooling in [Pooling::Mean, Pooling::Last] {
        let requests = |round: usize| {
            let embed = Some(pooling);
            let request = move |(at, text): (usize, &String)| Request {
                embed,
                ..request(&format!("{round} {at}"), text, 1)
            };
            texts().iter().skip(3).step_by(4).enumerate().map(request).collect::<Vec<Request>>()
        };
        let one = engine(small());
        let alone: Vec<Vec<f32>> =
            requests(0).into_iter().map(|request| embedding(&one.submit(request).unwrap())).collect();
        for (request, found) in requests(0).iter().zip(&alone) {
            let count = request.prompt.len();
            let mut cache = CacheKind::of(None, None).create(model.config()).unwrap();
            let (ids, all): (_, Vec<u32>) = (Array::from_slice(&request.prompt), (0..count as u32).collect());
            let (_, states) = model.propose_with_states(&ids, &[count], &[0], &all, &mut *cache).unwrap();
            let states = states.unwrap().to_vec::<f32>().unwrap();
            let rows = match pooling {
                Pooling::Mean => &states[..],
                Pooling::Last => &states[(count - 1) * width..],
            };
            let mut sum = vec![0.0f64; width];
            for row in rows.chunks_exact(width) {
                sum.iter_mut().zip(row).for_each(|(sum, one)| *sum += f64::from(*one));
            }
            let length = sum.iter().map(|one| one * one).sum::<f64>().sqrt();
            for (own, found) in sum.iter().zip(found) {
                assert!((own / length - f64::from(*found)).abs() < 1e-4, "{own} / {length}: {found}");
            }
        }
        // Beside requests that generate, preempted for lack of memory.
        for look_ahead in [false, true] {
            let options = EngineOptions { reserve_tokens: 0, look_ahead: Some(look_ahead), ..small() };
            let engine = engine(pages(30, options));
            let beside: Vec<Events> = super::engine::requests()
                .into_iter()
                .map(|request| {
                    engine.submit(Request { id: format!("text {}", request.id), ..request }).unwrap()
                })
                .collect();
            let events: Vec<Events> =
                requests(1).into_iter().map(|request| engine.submit(request).unwrap()).collect();
            for (at, events) in events.iter().enumerate() {
                assert_eq!(embedding(events), alone[at], "{pooling:?} of text {at}");
            }
            beside.iter().for_each(|events| assert!(matches!(collect(events).2, End::Done(..))));
            let snapshot = engine.snapshot();
            assert_eq!((snapshot.completed, snapshot.failed, snapshot.pages_used), (15, 0, 0));
        }
    }
}

#[test]
fn a_fixed_order_changes_no_text_on_the_cpu() {
    let text = |fixed_order: bool| {
        let engine = engine(EngineOptions { fixed_order, ..small() });
        let events: Vec<Events> =
            requests().into_iter().map(|request| engine.submit(request).unwrap()).collect();
        events.iter().map(|events| collect(events).0).collect::<Vec<_>>()
    };
    assert_eq!(text(true), text(false));
}

#[test]
fn a_request_can_be_cancelled_during_a_step_ahead() {
    let engine = engine(EngineOptions { look_ahead: Some(true), ..small() });
    let expected = collect(&engine.submit(request("alone", &texts()[5], 60)).unwrap()).0;
    for tokens_before in [0, 1, 2, 7] {
        let gone = engine.submit(request("gone", &texts()[11], 100_000)).unwrap();
        let stays = engine.submit(request("stays", &texts()[5], 60)).unwrap();
        let mut seen = 0;
        while seen < tokens_before {
            seen += usize::from(matches!(gone.next_within(LIMIT).unwrap(), Event::Token(_)));
        }
        drop(gone);
        // The next request gets its pages at once.
        let next = engine.submit(request("next", &texts()[5], 60)).unwrap();
        assert_eq!(collect(&stays).0, expected);
        assert_eq!(collect(&next).0, expected);
    }
    assert_eq!((engine.snapshot().pages_used, engine.snapshot().cancelled), (0, 4));
}

/// Runs only if the model was downloaded, for example by `hesper generate`.
#[test]
#[ignore = "takes minutes; ./check long runs it"]
fn the_texts_of_sixty_four_requests_to_smollm2_are_those_of_each_alone() {
    let Ok(path) = fetch::cache_folder().map(|folder| folder.join("models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    else {
        return;
    };
    if !path.is_file() {
        eprintln!("skipped: {} does not exist", path.display());
        return;
    }
    let language = Arc::new(LanguageModel::load(&path, &LoadOptions::default()).unwrap());
    for kv_bits in [None, Some(16), Some(8), Some(4)] {
        let options = EngineOptions { kv_bits, ..EngineOptions::default() };
        let preemptions = compare(&language, &crowd(&language, 200, 24), &options, 150);
        assert!(preemptions > 0, "no request was preempted");
    }
}

#[test]
fn the_text_is_that_of_generate() {
    let (engine, language) = (engine(EngineOptions::default()), language());
    let request = request("one", "The evening star is", 20);
    let options = hesper_lm::GenerateOptions { max_tokens: 20, ignore_eos: true, ..Default::default() };
    let expected = hesper_lm::generate(&language, &request.prompt, &options).unwrap();
    let (tokens, text, end) = collect(&engine.submit(request.clone()).unwrap());
    assert_eq!((tokens, text), (expected.tokens, expected.text));
    let usage = Usage { prompt_tokens: request.prompt.len(), cached_tokens: 0, completion_tokens: 20 };
    assert_eq!(end, End::Done(Finish::Length, usage));
}

#[test]
fn invalid_requests_are_refused_with_a_reason() {
    let engine = engine(pages(8, small()));
    let good = request("good", "The evening star", 4);
    let wrong = [
        (Request { prompt: Vec::new(), ..good.clone() }, "empty"),
        (Request { prompt: vec![9_999_999], ..good.clone() }, "vocabulary"),
        (Request { prompt: vec![1; 1 << 20], ..good.clone() }, "context"),
        (Request { max_tokens: 0, ..good.clone() }, "max_tokens"),
        (Request { logprobs: Some(1000), ..good.clone() }, "at most"),
        (Request { sampling: Sampling { top_p: 2.0, ..Sampling::default() }, ..good.clone() }, "top_p"),
    ];
    for (request, reason) in wrong {
        let refusal = engine.submit(request).unwrap_err();
        assert!(matches!(&refusal, Refusal::Invalid(what) if what.contains(reason)), "{refusal}");
    }
    let large = engine.submit(Request { max_tokens: 60, ..good.clone() }).unwrap_err();
    assert!(matches!(large, Refusal::TooLarge { needed, limit } if needed > limit), "{large}");
    assert_eq!(engine.snapshot().refused, 7);
    assert_eq!(collect(&engine.submit(good).unwrap()).0.len(), 4);
}

#[test]
fn a_full_queue_refuses_and_an_id_is_used_once() {
    let engine = engine(EngineOptions { max_running: 1, max_waiting: 2, ..small() });
    let long = |id: &str| request(id, "The evening star", 400);
    let first = engine.submit(long("a")).unwrap();
    assert!(matches!(first.next_within(LIMIT).unwrap(), Event::Started { cached_tokens: 0 }));
    let waiting = [engine.submit(long("b")).unwrap(), engine.submit(long("c")).unwrap()];
    let refusal = engine.submit(long("d")).unwrap_err();
    assert!(matches!(refusal, Refusal::QueueFull { limit: 2, .. }), "{refusal}");
    let refusal = engine.submit(long("a")).unwrap_err();
    assert!(matches!(&refusal, Refusal::Invalid(what) if what.contains("\"a\"")), "{refusal}");
    let phases: Vec<Phase> = engine.snapshot().requests.iter().map(|request| request.phase).collect();
    assert_eq!(phases[1..], [Phase::Queued, Phase::Queued]);
    assert!(engine.cancel("b") && !engine.cancel("b"));
    let usage = Usage { prompt_tokens: long("b").prompt.len(), ..Usage::default() };
    assert_eq!(collect(&waiting[0]).2, End::Done(Finish::Cancelled, usage));
    drop(first);
    assert!(!collect(&waiting[1]).0.is_empty());
    assert_eq!((engine.snapshot().cancelled, engine.snapshot().pages_used), (2, 0));
}

#[test]
fn dropped_events_cancel_in_every_phase_and_free_the_pages() {
    let engine = engine(small());
    for events_before in [0, 1, 2, 10] {
        let events = engine.submit(request("gone", &texts()[11], 100_000)).unwrap();
        for _ in 0..events_before {
            events.next_within(LIMIT).unwrap();
        }
        drop(events);
        let snapshot = engine.snapshot();
        assert_eq!((snapshot.requests.len(), snapshot.pages_used), (0, 0));
    }
    assert_eq!(engine.snapshot().cancelled, 4);
    assert_eq!(collect(&engine.submit(request("next", "The", 3)).unwrap()).0.len(), 3);
}

#[test]
fn a_deadline_fails_a_request_that_runs_and_one_that_waits() {
    let engine = engine(EngineOptions { max_running: 1, ..small() });
    let begin = Instant::now();
    let late = |id: &str, limit: u64| Request {
        deadline: Some(Duration::from_millis(limit)),
        ..request(id, "The", 1_000_000)
    };
    // The first request occupies the engine; the second expires while it waits.
    let (runs, waits) = (engine.submit(late("runs", 40)).unwrap(), engine.submit(late("waits", 20)).unwrap());
    for (events, limit) in [(runs, "40ms"), (waits, "20ms")] {
        let end = collect(&events).2;
        assert!(matches!(&end, End::Failed(FailureKind::Deadline, what) if what.contains(limit)), "{end:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(20));
    let snapshot = engine.snapshot();
    assert_eq!((snapshot.failed, snapshot.recent_failures.len()), (2, 2));
}

#[test]
fn stop_conditions_and_log_probabilities_follow_the_request() {
    let engine = engine(small());
    let (tokens, text, _) = collect(&engine.submit(request("all", "The evening star", 12)).unwrap());
    let stopped = Request { stop_tokens: vec![tokens[5]], ..request("token", "The evening star", 12) };
    let first = tokens.iter().position(|token| *token == tokens[5]).unwrap();
    let (found, _, end) = collect(&engine.submit(stopped).unwrap());
    assert_eq!(found, tokens[..=first]);
    assert!(matches!(end, End::Done(Finish::Stop, _)));
    let word = text.split(' ').find(|word| word.len() > 3).unwrap().to_string();
    let stopped = Request { stops: vec![word.clone()], ..request("text", "The evening star", 12) };
    let (_, found, end) = collect(&engine.submit(stopped).unwrap());
    assert_eq!(found, text[..text.find(&word).unwrap()]);
    assert!(matches!(end, End::Done(Finish::Stop, _)));
    let events = engine.submit(Request { logprobs: Some(3), ..request("probabilities", "The", 4) }).unwrap();
    let mut seen = 0;
    while let Some(event) = events.next() {
        if let Event::Token(token) = event {
            assert_eq!((token.top.len(), token.top[0].0), (3, token.id));
            assert_eq!(token.logprob, Some(token.top[0].1));
            assert!(token.top[0].1 <= 0.0 && token.top[0].1 >= token.top[1].1);
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn a_second_request_finds_the_prefix_of_its_tenant_only() {
    let engine = engine(small());
    let cached = |tenant: u64, use_prefix_cache: bool| {
        let request = Request { tenant, use_prefix_cache, ..request("one", &texts()[8], 2) };
        match collect(&engine.submit(request).unwrap()).2 {
            End::Done(_, usage) => usage.cached_tokens,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(cached(1, true), 0);
    let found = cached(1, true);
    assert!(found > 0 && found % 8 == 0, "{found}");
    assert_eq!((cached(2, true), cached(1, false)), (0, 0));
    assert!(engine.snapshot().pages_cached > 0);
}

#[test]
fn a_drain_finishes_running_requests_and_answers_the_rest() {
    let engine = engine(EngineOptions { max_running: 1, ..small() });
    let (short, long) = (request("short", "The", 5), request("long", "The evening", 1_000_000));
    let (short, long) = (engine.submit(short).unwrap(), engine.submit(long).unwrap());
    engine.drain(Duration::from_secs(2));
    assert_eq!(collect(&short).0.len(), 5);
    let end = collect(&long).2;
    assert!(matches!(end, End::Failed(FailureKind::Stopping, _) | End::Done(Finish::Length, _)), "{end:?}");
    assert_eq!(engine.health(), Health::Stopping);
    let refusal = engine.submit(request("late", "The", 5)).unwrap_err();
    assert!(matches!(refusal, Refusal::Unavailable(_)), "{refusal}");
    // Nothing runs any more, so the longest limit ends at once.
    engine.drain(Duration::MAX);
}

#[test]
fn a_step_that_takes_too_long_is_reported_as_stalled() {
    let engine = engine(EngineOptions { step_limit: Duration::ZERO, ..small() });
    assert_eq!(engine.health(), Health::Ok);
    let events = engine.submit(request("long", &texts()[11], 100_000)).unwrap();
    let begin = Instant::now();
    while !matches!(engine.health(), Health::Stalled { .. }) {
        assert!(begin.elapsed() < LIMIT);
    }
    drop(events);
    while engine.health() != Health::Ok {
        assert!(begin.elapsed() < LIMIT);
    }
}

#[test]
fn pages_of_fewer_bits_hold_more_tokens() {
    let bytes = |kv_bits| engine(EngineOptions { kv_bits, ..EngineOptions::default() }).snapshot().page_bytes;
    assert_eq!(bytes(Some(16)), bytes(None) / 2);
    let half = engine(EngineOptions { kv_bits: Some(16), ..small() });
    assert_eq!(collect(&half.submit(request("half", "The evening star", 20)).unwrap()).0.len(), 20);
    let error = Engine::start(language(), EngineOptions { kv_bits: Some(3), ..EngineOptions::default() });
    assert!(error.unwrap_err().to_string().contains("3 bits"));
    let error = Engine::start(language(), EngineOptions { kv_bytes: Some(10), ..EngineOptions::default() });
    assert!(error.unwrap_err().to_string().contains("no page"));
}

#[test]
fn sixty_four_clients_that_come_and_go_are_all_answered() {
    let engine = Arc::new(engine(pages(200, EngineOptions { max_waiting: 1000, ..small() })));
    let expected = collect(&engine.submit(request("alone", &texts()[4], 20)).unwrap()).0;
    let clients: Vec<_> = (0..64)
        .map(|client| {
            let (engine, expected) = (engine.clone(), expected.clone());
            std::thread::spawn(move || {
                for round in 0..4 {
                    let id = format!("{client}-{round}");
                    let events = engine.submit(request(&id, &texts()[4], 20)).unwrap();
                    if (client + round) % 3 == 0 {
                        let _ = events.next_within(Duration::from_millis(client as u64));
                        continue;
                    }
                    assert_eq!(collect(&events).0, expected, "{id}");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.accepted, 257);
    assert_eq!(snapshot.completed + snapshot.cancelled, 257);
    assert_eq!((snapshot.failed, snapshot.pages_used, snapshot.requests.len()), (0, 0, 0));
    assert_eq!(engine.health(), Health::Ok);
}
