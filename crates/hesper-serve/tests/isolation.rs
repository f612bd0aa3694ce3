//! Failures of one request or one step: other requests get their texts, and the engine continues. A separate
//! program, since it lowers the memory limit of the process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hesper::{Array, io, placement};
use hesper_lm::{LanguageModel, LoadOptions, demo};
use hesper_serve::engine::{Engine, EngineOptions};
use hesper_serve::protocol::{Events, FailureKind, Finish, Generator, Health, Request};
use support::{End, LIMIT, collect, language, request, small, texts};

/// Runs one test at a time, since the memory limit applies to the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The demo model with a token whose embedding is NaN.
fn damaged(token: u32) -> LanguageModel {
    let folder = std::env::temp_dir().join(format!("hesper-damaged-{}", std::process::id()));
    demo::write(&folder).unwrap();
    let path = folder.join("model.safetensors");
    let mut arrays: Vec<(String, Array)> = io::load(&path).unwrap().into_arrays();
    for (name, array) in &mut arrays {
        array.eval().unwrap();
        if name == "model.embed_tokens.weight" {
            let (row, width) = (token as isize, array.shape()[1]);
            let nan = Array::full(&[1, width], f32::NAN, None).unwrap();
            *array = array.slice_update(&nan, &[row, 0], &[row + 1, width as isize], &[1, 1]).unwrap();
            array.eval().unwrap();
        }
    }
    let changed = folder.join("changed.safetensors");
    io::save_safetensors(&changed, arrays.iter().map(|(name, array)| (name.clone(), array)), &[]).unwrap();
    std::fs::rename(changed, path).unwrap();
    let model = LanguageModel::load(&folder, &LoadOptions::default()).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    model
}

#[test]
fn a_request_with_nan_logits_fails_alone() {
    let _alone = alone();
    let healthy = Engine::start(language(), small()).unwrap();
    let token = language().prompt_tokens("west").unwrap()[0];
    let damaged = Arc::new(damaged(token));
    let good = |id: &str| request(id, "The evening star is", 3);
    let expected = collect(&healthy.submit(good("healthy")).unwrap()).0;
    for look_ahead in [false, true] {
        let options = EngineOptions { look_ahead: Some(look_ahead), ..small() };
        let engine = Engine::start(damaged.clone(), options).unwrap();
        fails_alone(&engine, token, &good, &expected);
    }
}

fn fails_alone(engine: &Engine, token: u32, good: &dyn Fn(&str) -> Request, expected: &[u32]) {
    for round in 0..3 {
        let bad = Request { prompt: vec![token; 20], ..request("bad", "The", 8) };
        let (bad, good) =
            (engine.submit(bad).unwrap(), engine.submit(good(&format!("good {round}"))).unwrap());
        let end = collect(&bad).2;
        assert!(matches!(&end, End::Failed(FailureKind::Request, what) if what.contains("NaN")), "{end:?}");
        assert_eq!(collect(&good).0, expected);
    }
    assert_eq!(engine.health(), Health::Ok);
    assert_eq!((engine.snapshot().failed, engine.snapshot().pages_used), (3, 0));
}

#[test]
fn texts_are_unchanged_by_steps_that_run_out_of_memory() {
    let _alone = alone();
    let requests = || (0..8).map(|at| request(&format!("r{at}"), &texts()[at], 24));
    let engine = Engine::start(language(), small()).unwrap();
    let alone = |request: Request| collect(&engine.submit(request).unwrap()).0;
    let expected: Vec<Vec<u32>> = requests().map(alone).collect();
    drop(engine);
    let (cpu, mut failures) = (placement::cpu(), 0);
    for (look_ahead, room) in
        [(false, 0), (false, 1 << 10), (true, 16 << 10), (false, 256 << 10), (true, 0), (true, 4 << 10)]
    {
        let options = EngineOptions { look_ahead: Some(look_ahead), ..small() };
        let engine = Engine::start(language(), options).unwrap();
        cpu.clear_cache();
        let events: Vec<Events> = requests().map(|request| engine.submit(request).unwrap()).collect();
        // Lower the memory limit for a moment while the requests run.
        std::thread::sleep(Duration::from_millis(5));
        let before = cpu.set_memory_limit(cpu.counters().active + room);
        std::thread::sleep(Duration::from_millis(20));
        cpu.set_memory_limit(before);
        for (at, events) in events.iter().enumerate() {
            match collect(events) {
                (tokens, _, End::Done(Finish::Length, _)) => assert_eq!(tokens, expected[at], "request {at}"),
                (_, _, End::Failed(FailureKind::OutOfMemory, _)) => failures += 1,
                other => panic!("request {at}: {other:?}"),
            }
        }
        assert_eq!((engine.health(), engine.snapshot().pages_used), (Health::Ok, 0));
        assert_eq!(collect(&engine.submit(request("next", "The", 5)).unwrap()).0.len(), 5);
        assert_eq!(engine.snapshot().steps_ahead > 0, look_ahead);
    }
    assert!(failures < 48, "no request survived");
}

#[test]
fn an_engine_without_memory_fails_requests_and_recovers() {
    let _alone = alone();
    let engine = Engine::start(language(), small()).unwrap();
    let cpu = placement::cpu();
    cpu.clear_cache();
    let before = cpu.set_memory_limit(cpu.counters().active);
    let begin = Instant::now();
    let events: Vec<Events> =
        (0..5).map(|at| engine.submit(request(&format!("r{at}"), &texts()[at], 50)).unwrap()).collect();
    let ends: Vec<End> = events.iter().map(|events| collect(events).2).collect();
    cpu.set_memory_limit(before);
    for end in ends {
        assert!(
            matches!(&end, End::Failed(FailureKind::OutOfMemory, what) if what.contains("memory")),
            "{end:?}"
        );
    }
    assert!(begin.elapsed() < LIMIT);
    assert_eq!(engine.health(), Health::Ok);
    assert_eq!(collect(&engine.submit(request("next", "The", 5)).unwrap()).0.len(), 5);
}
