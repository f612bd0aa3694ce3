//! Generation of single sequences, on many threads and in batches: all give the same tokens.

use std::collections::BTreeMap;

use crate::support::{Folder, Small, some_tokens};
use hesper_lm::{
    Batch, CacheKind, Finish, GenerateOptions, Generation, KvCache, LanguageModel, LoadOptions, Sampling,
    batch_generate, demo, generate,
};

fn random_model(name: &str) -> (Folder, LanguageModel) {
    let folder = Folder::new(name);
    Small::new("llama", 21, true, None).write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    (folder, language)
}

fn options(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens, ..GenerateOptions::default() }
}

#[test]
fn the_demo_repeats_its_text() {
    let language = demo::model().unwrap();
    let prompt = language.prompt_tokens("A language model").unwrap();
    let generated = generate(&language, &prompt, &options(12)).unwrap();
    assert_eq!(generated.text, " reads a text and guesses the next word. For a model");
    assert_eq!((generated.finish, generated.tokens.len()), (Finish::Length, 12));
    let prompt = language.prompt_tokens("For a model that").unwrap();
    let generated = generate(&language, &prompt, &options(100)).unwrap();
    assert_eq!(generated.text, " knows more than this text, ask for another model.");
    assert_eq!(generated.finish, Finish::End);
    let prompt = language.prompt_tokens("The evening star").unwrap();
    assert_eq!(generate(&language, &prompt, &options(500)).unwrap().finish, Finish::End);
    let unknown = language.prompt_tokens("Zebras xylophone").unwrap();
    assert!(generate(&language, &unknown, &options(8)).unwrap().text.len() > 8);
}

#[test]
fn the_demo_is_the_same_model_from_files_and_with_rounded_weights() {
    let (folder, small) = (Folder::new("demo"), Folder::new("demo-codes"));
    demo::write(&folder.0).unwrap();
    let quantization = hesper_nn::Quantization::new(64, 8, "affine").unwrap();
    hesper_lm::quantize(&folder.0, &small.0, quantization).unwrap();
    let text = |language: &LanguageModel| {
        let prompt = language.prompt_tokens("The old poets").unwrap();
        generate(language, &prompt, &options(20)).unwrap().text
    };
    let expected = text(&demo::model().unwrap());
    assert_eq!(text(&LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap()), expected);
    assert_eq!(text(&LanguageModel::load(&small.0, &LoadOptions::default()).unwrap()), expected);
}

#[test]
fn a_seed_determines_what_is_sampled() {
    let language = demo::model().unwrap();
    let prompt = language.prompt_tokens("The").unwrap();
    let with = |seed| {
        let sampling = Sampling { temperature: 1.5, seed, ..Sampling::default() };
        generate(&language, &prompt, &GenerateOptions { sampling, ..options(40) }).unwrap().text
    };
    assert_eq!(with(1), with(1));
    assert!((2..8).any(|seed| with(seed) != with(1)));
}

#[test]
fn a_stop_text_ends_a_generation_and_is_not_part_of_it() {
    let language = demo::model().unwrap();
    let prompt = language.prompt_tokens("A language model").unwrap();
    let stops = vec!["next word".to_string()];
    let generated = generate(&language, &prompt, &GenerateOptions { stops, ..options(50) }).unwrap();
    assert_eq!((generated.text.as_str(), generated.finish), (" reads a text and guesses the ", Finish::Stop));
}

#[test]
fn prompts_that_cannot_be_continued_are_refused() {
    let (_folder, language) = random_model("refused");
    let error = |prompt: &[u32]| generate(&language, prompt, &options(4)).unwrap_err().to_string();
    assert!(error(&[]).contains("empty"), "{}", error(&[]));
    assert!(error(&[1; 128]).contains("128"), "{}", error(&[1; 128]));
    assert!(error(&[5000]).contains("5000"), "{}", error(&[5000]));
    // A sequence ends at the context length.
    let generated = generate(&language, &[1; 120], &options(500)).unwrap();
    assert_eq!((generated.finish, generated.tokens.len()), (Finish::Context, 8));
    let none = generate(&language, &[1, 2], &options(0)).unwrap();
    assert_eq!((none.text.as_str(), none.tokens.len()), ("", 0));
}

#[test]
fn a_generation_continues_the_sequence_of_its_cache() {
    let (_folder, language) = random_model("goes-on");
    let prompt = some_tokens(10, 96, 3);
    let whole = generate(&language, &prompt, &options(30)).unwrap().tokens;
    let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
    let run = |prompt: &[u32], cache: &mut dyn KvCache, count: usize| -> Vec<u32> {
        let generation = Generation::new(&language, prompt, cache, &options(count)).unwrap();
        generation.map(|piece| piece.unwrap().token).collect()
    };
    let first = run(&prompt, &mut *cache, 12);
    let second = run(&first[11..], &mut *cache, 18);
    assert_eq!([first, second].concat(), whole);
    cache.truncate(10).unwrap();
    assert_eq!(run(&whole[..1], &mut *cache, 5), whole[1..6]);
}

/// Prompts of several lengths, one by one.
fn one_by_one(language: &LanguageModel, count: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    (0..count)
        .map(|at| {
            let prompt = some_tokens(1 + at * 7 % 23, 96, 100 + at as u64);
            let tokens = generate(language, &prompt, &options(5 + at * 5 % 17)).unwrap().tokens;
            (prompt, tokens)
        })
        .collect()
}

#[test]
fn threads_that_share_a_model_generate_the_same_tokens() {
    let (_folder, language) = random_model("threads");
    let expected = one_by_one(&language, 16);
    for threads in [16, 17, 32, 64] {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (language, expected) = (&language, &expected);
                scope.spawn(move || {
                    let (prompt, tokens) = &expected[thread % expected.len()];
                    let generated = generate(language, prompt, &options(tokens.len())).unwrap();
                    assert_eq!(generated.tokens, *tokens, "thread {thread} of {threads}");
                });
            }
        });
    }
}

#[test]
fn a_batch_generates_the_tokens_of_single_sequences() {
    let (_folder, language) = random_model("together");
    let expected = one_by_one(&language, 17);
    let prompts: Vec<_> =
        expected.iter().map(|(prompt, tokens)| (prompt.clone(), options(tokens.len()))).collect();
    let generated = batch_generate(&language, &prompts).unwrap();
    for (at, (generated, (_, tokens))) in generated.iter().zip(&expected).enumerate() {
        assert_eq!(generated.tokens, *tokens, "sequence {at}");
        assert_eq!(generated.finish, Finish::Length);
    }
}

#[test]
fn a_batch_with_quantized_caches_generates_the_tokens_of_single_sequences() {
    let folder = Folder::new("quantized-batch");
    Small::new("qwen3", 22, true, None).write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    let cache = CacheKind::Quantized { bits: 8, group: 32 };
    let prompts: Vec<(Vec<u32>, GenerateOptions)> = (0..5)
        .map(|at| (some_tokens(1 + 5 * at, 96, at as u64), GenerateOptions { cache, ..options(5 + 4 * at) }))
        .collect();
    let generated = batch_generate(&language, &prompts).unwrap();
    for (at, (generated, (prompt, options))) in generated.iter().zip(&prompts).enumerate() {
        assert_eq!(generated.tokens, generate(&language, prompt, options).unwrap().tokens, "sequence {at}");
    }
}

#[test]
fn a_batch_refuses_caches_of_a_single_sequence() {
    let (_folder, language) = random_model("rotating");
    let cache = CacheKind::Rotating { keep: 2, window: 16 };
    let error = Batch::new(&language).add(&[1], &GenerateOptions { cache, ..options(4) }).unwrap_err();
    assert!(error.to_string().contains("Rotating"), "{error}");
}

#[test]
fn a_sequence_with_nan_logits_leaves_its_batch_and_the_others_go_on() {
    let folder = Folder::new("nan");
    let mut small = Small::new("llama", 23, false, None);
    small.write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    let prompts = [some_tokens(7, 96, 1), some_tokens(5, 96, 2)];
    let [bad, good] = [0, 1].map(|at: usize| generate(&language, &prompts[at], &options(20)).unwrap().tokens);
    // A token that only one of the sequences generates gets an embedding of NaN.
    let known = |token: &u32| prompts.iter().any(|prompt| prompt.contains(token)) || good.contains(token);
    let at = (1..15).find(|at| !known(&bad[*at]) && !bad[..*at].contains(&bad[*at])).unwrap();
    let table = small.weights.get_mut("model.embed_tokens.weight").unwrap();
    table.data[bad[at] as usize * small.width..][..small.width].fill(f64::NAN);
    let folder = Folder::new("nan-weights");
    small.write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    let mut batch = Batch::new(&language);
    for prompt in &prompts {
        batch.add(prompt, &options(20)).unwrap();
    }
    let (mut tokens, mut errors) = ([Vec::new(), Vec::new()], Vec::new());
    while !batch.is_empty() {
        for event in batch.step().unwrap() {
            match event.piece {
                Ok(piece) => tokens[event.id as usize].push(piece.token),
                Err(error) => errors.push((event.id, error.to_string())),
            }
        }
    }
    assert_eq!(tokens, [bad[..=at].to_vec(), good]);
    assert!(matches!(&errors[..], [(0, error)] if error.contains("NaN")), "{errors:?}");
    // A single generation gives the error each time.
    let cache = CacheKind::Growing.create(language.model().config()).unwrap();
    let mut generation = Generation::new(&language, &prompts[0], cache, &options(20)).unwrap();
    assert!((&mut generation).take(at + 1).all(|piece| piece.is_ok()));
    for _ in 0..2 {
        assert!(generation.retry().next().unwrap().unwrap_err().to_string().contains("NaN"));
        assert!(generation.next().is_none());
    }
}

#[test]
fn sequences_join_and_leave_a_batch_at_any_step() {
    let (_folder, language) = random_model("join");
    let expected = one_by_one(&language, 9);
    let mut batch = Batch::new(&language);
    let mut generated: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut waiting = expected.iter();
    let mut cancelled = None;
    for step in 0.. {
        if step % 3 == 0
            && let Some((prompt, tokens)) = waiting.next()
        {
            batch.add(prompt, &options(tokens.len())).unwrap();
        }
        if step == 10 {
            let id = batch.add(&[3, 4, 5], &options(50)).unwrap();
            cancelled = Some(id);
        }
        if step == 14
            && let Some(id) = cancelled
        {
            assert!(batch.cancel(id) && !batch.cancel(id));
        }
        for event in batch.step().unwrap() {
            generated.entry(event.id).or_default().push(event.piece.unwrap().token);
        }
        if batch.is_empty() && waiting.len() == 0 {
            break;
        }
    }
    generated.remove(&cancelled.unwrap());
    let generated: Vec<Vec<u32>> = generated.into_values().collect();
    let tokens: Vec<Vec<u32>> = expected.into_iter().map(|(_, tokens)| tokens).collect();
    assert_eq!(generated, tokens);
}
