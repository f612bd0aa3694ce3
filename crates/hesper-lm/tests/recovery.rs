//! Evaluations that fail in the middle of a step, and are asked for again. Alone in its process, since it
//! lowers the memory limit of the CPU.

use crate::alone;
use crate::support::{Folder, Small, some_tokens};
use hesper::{Array, placement};
use hesper_lm::{
    Batch, CacheKind, Error, GenerateOptions, Generation, KvCache, LanguageModel, LoadOptions, Piece,
    generate,
};

/// Calls `f` with room for `room` more bytes of memory.
fn limited<R>(room: usize, f: impl FnOnce() -> R) -> R {
    let cpu = placement::cpu();
    cpu.clear_cache();
    let before = cpu.set_memory_limit(cpu.counters().active + room);
    let result = f();
    cpu.set_memory_limit(before);
    result
}

/// Room for none, some and most of the allocations of a step.
const ROOMS: [usize; 10] =
    [0, 256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10];

const KINDS: [CacheKind; 3] = [
    CacheKind::Growing,
    CacheKind::Quantized { bits: 8, group: 32 },
    CacheKind::Rotating { keep: 2, window: 20 },
];

fn model(name: &str) -> (Folder, LanguageModel) {
    let folder = Folder::new(name);
    // Heads of 32 elements can be quantized.
    Small::new("qwen3", 51, true, None).write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    (folder, language)
}

fn options(cache: CacheKind, max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens, cache, ignore_eos: true, ..GenerateOptions::default() }
}

fn is_out_of_memory(error: &Error) -> bool {
    error.to_string().contains("memory")
}

#[test]
fn a_failed_step_is_tried_again_and_gives_the_same_token() {
    let _alone = alone();
    let (_folder, language) = model("retry");
    let prompt = some_tokens(15, 96, 3);
    for kind in KINDS {
        let options = options(kind, 30);
        let expected = generate(&language, &prompt, &options).unwrap().tokens;
        let mut cache = kind.create(language.model().config()).unwrap();
        let mut generation = Generation::new(&language, &prompt, &mut *cache, &options).unwrap();
        let (mut tokens, mut failures) = (Vec::new(), 0);
        for step in 0..30 {
            // Once with less memory than before, until it succeeds.
            let first = limited(ROOMS[step % ROOMS.len()], || generation.next().unwrap());
            let piece = first.or_else(|error| {
                assert!(is_out_of_memory(&error), "{kind:?}: {error}");
                failures += 1;
                assert!(generation.next().is_none(), "an error ends the iterator");
                generation.retry().next().unwrap()
            });
            tokens.push(piece.unwrap().token);
        }
        assert!(generation.next().is_none());
        assert_eq!(tokens, expected, "{kind:?}");
        assert!(failures > 5, "{kind:?}: only {failures} steps failed");
        drop(generation);
        assert_eq!(cache.lengths(), [prompt.len() + 29]);
    }
}

#[test]
fn a_long_prompt_continues_at_the_chunk_that_failed() {
    let _alone = alone();
    let folder = Folder::new("chunks");
    let mut small = Small::new("qwen3", 52, true, None);
    small.context = 2048;
    small.write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    let prompt = some_tokens(1100, 96, 4);
    for kind in KINDS {
        let options = options(kind, 2);
        let expected = generate(&language, &prompt, &options).unwrap().tokens;
        let mut cache = kind.create(language.model().config()).unwrap();
        let mut generation = Generation::new(&language, &prompt, &mut *cache, &options).unwrap();
        let mut failures = 0;
        let mut pieces: Vec<Piece> = Vec::new();
        while pieces.len() < 2 {
            let room = 64 << (10 + failures);
            match limited(room, || generation.retry().next().unwrap()) {
                Ok(piece) => pieces.push(piece),
                Err(error) => {
                    assert!(is_out_of_memory(&error), "{kind:?}: {error}");
                    failures += 1;
                }
            }
        }
        let tokens: Vec<u32> = pieces.into_iter().map(|piece| piece.token).collect();
        assert_eq!(tokens, expected, "{kind:?}");
        assert!(failures > 1, "{kind:?}: only {failures} chunks failed");
    }
}

#[test]
fn a_cache_whose_last_step_failed_is_as_before_or_says_that_it_is_lost() {
    let _alone = alone();
    let (_folder, language) = model("dropped");
    let prompt = some_tokens(15, 96, 5);
    for kind in KINDS {
        let whole = generate(&language, &prompt, &options(kind, 12)).unwrap().tokens;
        let (mut recovered, mut lost) = (0, 0);
        for room in (0..40).map(|part| part * 64) {
            let mut cache = kind.create(language.model().config()).unwrap();
            let mut generation =
                Generation::new(&language, &prompt, &mut *cache, &options(kind, 12)).unwrap();
            let first: Vec<u32> = (&mut generation).take(4).map(|piece| piece.unwrap().token).collect();
            let Err(error) = limited(room, || generation.next().unwrap()) else { continue };
            assert!(is_out_of_memory(&error), "{kind:?}: {error}");
            drop(generation);
            assert_eq!(cache.lengths(), [prompt.len() + 3], "{kind:?}");
            let rest = Generation::new(&language, &first[3..], &mut *cache, &options(kind, 8)).unwrap();
            match rest.map(|piece| Ok(piece?.token)).collect::<Result<Vec<u32>, Error>>() {
                Ok(rest) => {
                    assert_eq!([first, rest].concat(), whole, "{kind:?}");
                    recovered += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("lost"), "{kind:?}: {error}");
                    assert_eq!(cache.lengths(), [prompt.len() + 3], "{kind:?}");
                    lost += 1;
                }
            }
        }
        let rotating = matches!(kind, CacheKind::Rotating { .. });
        assert!(recovered > 3 && (lost > 0) == rotating, "{kind:?}: {recovered} recovered, {lost} lost");
    }
}

#[test]
fn a_batch_loses_no_sequence_and_no_token_when_calls_fail() {
    let _alone = alone();
    let (_folder, language) = model("batch");
    for kind in [CacheKind::Growing, CacheKind::Quantized { bits: 8, group: 32 }] {
        let prompts: Vec<Vec<u32>> = (0..5).map(|at| some_tokens(3 + 4 * at, 96, 60 + at as u64)).collect();
        let length = |at: usize| 6 + 3 * at;
        let alone: Vec<Vec<u32>> = (0..5)
            .map(|at| generate(&language, &prompts[at], &options(kind, length(at))).unwrap().tokens)
            .collect();
        let mut batch = Batch::new(&language);
        let mut tokens = vec![Vec::new(); 5];
        let (mut failed_adds, mut failed_steps) = (0, 0);
        let mut round = 0;
        while !batch.is_empty() || round < 5 {
            let room = ROOMS[round % ROOMS.len()] * 4;
            if let Some(prompt) = prompts.get(round) {
                let options = options(kind, length(round));
                let id = limited(room, || batch.add(prompt, &options)).or_else(|error| {
                    assert!(is_out_of_memory(&error), "{kind:?}: {error}");
                    failed_adds += 1;
                    batch.add(prompt, &options)
                });
                assert_eq!(id.unwrap(), round as u64);
            }
            let events = limited(room, || batch.step()).or_else(|error| {
                assert!(is_out_of_memory(&error), "{kind:?}: {error}");
                failed_steps += 1;
                batch.step()
            });
            for event in events.unwrap() {
                tokens[event.id as usize].push(event.piece.unwrap().token);
            }
            round += 1;
        }
        assert_eq!(tokens, alone, "{kind:?}");
        assert!(
            failed_adds > 2 && failed_steps > 2,
            "{kind:?}: {failed_adds} adds, {failed_steps} steps failed"
        );
    }
}

#[test]
fn a_join_that_fails_at_any_allocation_leaves_the_sequences_as_they_were() {
    let _alone = alone();
    let (_folder, language) = model("join");
    let model = language.model();
    let filled = |kind: CacheKind, seed: u64, length: usize| {
        let mut cache = kind.create(model.config()).unwrap();
        let prompt = Array::try_from_slice(&some_tokens(length, 96, seed), &[1, length]).unwrap();
        model.step(&prompt, &mut *cache).unwrap().eval().unwrap();
        cache
    };
    let next = |cache: &mut dyn KvCache, token: u32| {
        let sequences = cache.lengths().len();
        let ids = Array::try_from_slice(&vec![token; sequences], &[sequences, 1]).unwrap();
        model.step(&ids, cache).unwrap().to_vec::<f32>().unwrap()
    };
    for kind in [CacheKind::Growing, CacheKind::Quantized { bits: 8, group: 32 }] {
        let batch = |others: u64| {
            let mut batch = kind.batched(filled(kind, 1, 100), model.config()).unwrap();
            (0..others).for_each(|seed| batch.join(filled(kind, 10 + seed, 90)).unwrap());
            batch
        };
        // As many sequences as the memory of the batch has room for.
        let grows = |others: &u64| batch(others + 1).nbytes() > batch(*others).nbytes();
        let others = (2..).find(grows).unwrap();
        let (mut given, mut expected) = (batch(others), batch(others));
        let (mut failures, mut room) = (0, 0);
        loop {
            let other = filled(kind, 4, 90);
            match limited(room, || given.join(other)) {
                Ok(()) => break,
                Err(error) => assert!(error.to_string().contains("memory"), "{kind:?}: {error}"),
            }
            failures += 1;
            room += 4096;
            assert_eq!(given.lengths(), expected.lengths(), "{kind:?}");
            if failures % 16 == 1 {
                assert_eq!(next(&mut *given, 5), next(&mut *expected, 5), "{kind:?} after {room} bytes");
            }
        }
        assert!(failures > 10, "{kind:?}: only {failures} joins failed");
        expected.join(filled(kind, 4, 90)).unwrap();
        assert_eq!(next(&mut *given, 6), next(&mut *expected, 6), "{kind:?}");
        // The pages of the failed joins are free again.
        assert_eq!(given.nbytes(), expected.nbytes(), "{kind:?}");
    }
}

#[test]
fn a_step_that_fails_where_pages_are_added_is_tried_again() {
    let _alone = alone();
    let (_folder, language) = model("pages");
    let options = options(CacheKind::Growing, 60);
    let prompts: Vec<Vec<u32>> = (0..6).map(|at| some_tokens(14, 96, 70 + at)).collect();
    let alone: Vec<Vec<u32>> =
        prompts.iter().map(|prompt| generate(&language, prompt, &options).unwrap().tokens).collect();
    let mut batch = Batch::new(&language);
    prompts.iter().for_each(|prompt| assert!(batch.add(prompt, &options).is_ok()));
    let (mut tokens, mut failures, mut step) = (vec![Vec::new(); 6], 0, 0);
    while !batch.is_empty() {
        // Every step fails as often as its allocations can.
        let mut room = (step % 5) * 1000;
        let events = loop {
            match limited(room, || batch.step()) {
                Ok(events) => break events,
                Err(error) => {
                    assert!(is_out_of_memory(&error), "{error}");
                    (failures, room) = (failures + 1, room + 7000);
                }
            }
        };
        for event in events {
            tokens[event.id as usize].push(event.piece.unwrap().token);
        }
        step += 1;
    }
    assert_eq!(tokens, alone);
    assert!(failures > 60, "only {failures} steps failed");
}
