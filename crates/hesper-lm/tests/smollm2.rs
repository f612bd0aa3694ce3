//! SmolLM2-135M against numbers that a plain forward pass in NumPy gave (weights decoded by the package `gguf`,
//! everything in float32). Runs where the model has been fetched: `hesper generate` does that.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use hesper::Array;
use hesper_lm::{
    Cache, CacheKind, GenerateOptions, LanguageModel, LoadOptions, Message, batch_generate, fetch, generate,
};

const PROMPT: &str = "The capital of France is";
const TOKENS: [u32; 5] = [504, 3575, 282, 4649, 314];
/// Scores after the prompt.
const SCORES: [(usize, f32); 14] = [
    (7042, 17.37125),
    (260, 14.88858),
    (4528, 13.24496),
    (2250, 13.009459),
    (1315, 12.951509),
    (5145, 12.904932),
    (216, 12.713293),
    (441, 12.697843),
    (0, 1.6136329),
    (100, 1.3192111),
    (1000, 2.8672216),
    (10000, 6.785397),
    (40000, -2.3383307),
    (49151, -7.9939165),
];
/// The best tokens after it, for as long as they are better than the others by more than 1.2.
const BEST: [u32; 4] = [7042, 30, 198, 198];

/// The model's file, if it is there.
fn file() -> Option<PathBuf> {
    let path = fetch::cache_folder().ok()?.join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.is_file() {
        eprintln!("skipped: there is no {}", path.display());
        return None;
    }
    Some(path)
}

fn off(language: &LanguageModel) -> f32 {
    let mut cache = Cache::new(language.model().config(), CacheKind::Growing).unwrap();
    let ids = Array::try_from_slice(&TOKENS, &[1, TOKENS.len()]).unwrap();
    let scores = language.model().step(&ids, &mut cache).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(scores.len(), 49152);
    SCORES.iter().map(|(id, expected)| (scores[*id] - expected).abs()).fold(0.0, f32::max)
}

#[test]
fn scores_are_those_of_a_plain_forward_pass() {
    let Some(path) = file() else { return };
    let exact = LanguageModel::load(&path, &LoadOptions::default()).unwrap();
    assert_eq!(exact.prompt_tokens(PROMPT).unwrap(), TOKENS);
    assert!(off(&exact) < 5e-3, "exact: off by {}", off(&exact));
    let fast = LanguageModel::load(&path, &LoadOptions { round_activations: true }).unwrap();
    // Scores of this model spread over 25; activations are off by up to 1/254 of the largest in their block.
    assert!(off(&fast) < 1.0, "rounded activations: off by {}", off(&fast));
    for language in [&exact, &fast] {
        let options = GenerateOptions { max_tokens: BEST.len(), ..GenerateOptions::default() };
        let made = generate(language, &TOKENS, &options).unwrap();
        assert_eq!((made.tokens.as_slice(), made.text.as_str()), (&BEST[..], " Paris.\n\n"));
    }
}

#[test]
fn text_goes_through_the_tokenizer_and_back() {
    let Some(path) = file() else { return };
    let language = LanguageModel::load(&path, &LoadOptions::default()).unwrap();
    let tokenizer = language.tokenizer();
    for text in ["Hello, world! 12345", "naïve café 🙂 日本語", "a\n\n  b\tc", " leading"] {
        let ids = tokenizer.encode(text, true).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
    // Digits are tokens of their own.
    assert_eq!(tokenizer.encode("2024", false).unwrap().len(), 4);
    let text = language.conversation(&[Message::new("user", "Hi")]).unwrap();
    assert!(text.starts_with("<|im_start|>system\n") && text.ends_with("<|im_start|>assistant\n"), "{text}");
    let ids = language.conversation_tokens(&[Message::new("user", "Hi")]).unwrap();
    assert_eq!((ids[0], ids.iter().filter(|id| **id == 2).count()), (1, 2));
}

#[test]
fn a_batch_gives_the_texts_of_one_by_one() {
    let Some(path) = file() else { return };
    let language = LanguageModel::load(&path, &LoadOptions::default()).unwrap();
    let prompts = ["The sun is", "A cat sat on the", "In the beginning", "Two plus two is"];
    let options = GenerateOptions { max_tokens: 12, ..GenerateOptions::default() };
    let prompts: Vec<(Vec<u32>, GenerateOptions)> =
        prompts.iter().map(|prompt| (language.prompt_tokens(prompt).unwrap(), options.clone())).collect();
    let together = batch_generate(&language, &prompts).unwrap();
    for ((prompt, options), made) in prompts.iter().zip(&together) {
        let alone = generate(&language, prompt, options).unwrap();
        assert_eq!((&made.tokens, &made.text), (&alone.tokens, &alone.text));
    }
}
