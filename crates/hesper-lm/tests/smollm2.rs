//! SmolLM2-135M against a plain forward pass in NumPy (weights decoded by the package `gguf`, everything in
//! float32). Runs where the model has been downloaded: `hesper generate` does that.

use std::path::PathBuf;

use hesper::Array;
use hesper_lm::{
    CacheKind, GenerateOptions, LanguageModel, LoadOptions, Message, batch_generate, fetch, generate,
};

const PROMPT: &str = "The capital of France is";
const TOKENS: [u32; 5] = [504, 3575, 282, 4649, 314];
/// Logits after the prompt.
const LOGITS: [(usize, f32); 14] = [
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
/// The most likely tokens after it, as long as their logits exceed the others by more than 1.2.
const GREEDY: [u32; 4] = [7042, 30, 198, 198];

/// The model's file, if it has been downloaded.
fn file() -> Option<PathBuf> {
    let path = fetch::cache_folder().ok()?.join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.is_file() {
        eprintln!("skipped: {} does not exist", path.display());
        return None;
    }
    Some(path)
}

fn off(language: &LanguageModel) -> f32 {
    let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
    let ids = Array::try_from_slice(&TOKENS, &[1, TOKENS.len()]).unwrap();
    let logits = language.model().step(&ids, &mut *cache).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(logits.len(), 49152);
    LOGITS.iter().map(|(id, expected)| (logits[*id] - expected).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_are_those_of_a_plain_forward_pass() {
    let Some(path) = file() else { return };
    let exact = LanguageModel::load(&path, &LoadOptions::default()).unwrap();
    assert_eq!(exact.prompt_tokens(PROMPT).unwrap(), TOKENS);
    assert!(off(&exact) < 5e-3, "exact: off by {}", off(&exact));
    let fast = LanguageModel::load(&path, &LoadOptions { round_activations: true }).unwrap();
    // The logits spread over 25; activations are off by up to 1/254 of the largest in their block.
    assert!(off(&fast) < 1.0, "rounded activations: off by {}", off(&fast));
    for language in [&exact, &fast] {
        let options = GenerateOptions { max_tokens: GREEDY.len(), ..GenerateOptions::default() };
        let generated = generate(language, &TOKENS, &options).unwrap();
        assert_eq!((generated.tokens.as_slice(), generated.text.as_str()), (&GREEDY[..], " Paris.\n\n"));
    }
}

#[test]
fn text_survives_the_tokenizer() {
    let Some(path) = file() else { return };
    let language = LanguageModel::load(&path, &LoadOptions::default()).unwrap();
    let tokenizer = language.tokenizer();
    for text in ["Hello, world! 12345", "naïve café 🙂 日本語", "a\n\n  b\tc", " leading"] {
        let ids = tokenizer.encode(text, true).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
    // Every digit is a token.
    assert_eq!(tokenizer.encode("2024", false).unwrap().len(), 4);
    let text = language.conversation(&[Message::new("user", "Hi")]).unwrap();
    assert!(text.starts_with("<|im_start|>system\n") && text.ends_with("<|im_start|>assistant\n"), "{text}");
    let ids = language.conversation_tokens(&[Message::new("user", "Hi")]).unwrap();
    assert_eq!((ids[0], ids.iter().filter(|id| **id == 2).count()), (1, 2));
}

#[test]
fn a_batch_generates_the_tokens_of_single_sequences() {
    let Some(path) = file() else { return };
    let language = LanguageModel::load(&path, &LoadOptions::default()).unwrap();
    let prompts = ["The sun is", "A cat sat on the", "In the beginning", "Two plus two is"];
    let options = GenerateOptions { max_tokens: 6, ..GenerateOptions::default() };
    let prompts: Vec<(Vec<u32>, GenerateOptions)> =
        prompts.iter().map(|prompt| (language.prompt_tokens(prompt).unwrap(), options.clone())).collect();
    let together = batch_generate(&language, &prompts).unwrap();
    for ((prompt, options), generated) in prompts.iter().zip(&together) {
        let alone = generate(&language, prompt, options).unwrap();
        assert_eq!((&generated.tokens, &generated.text), (&alone.tokens, &alone.text));
    }
}
