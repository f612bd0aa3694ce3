//! SmolLM2-135M against recordings of llama.cpp (`recordings/record.py`): tokens of unusual texts, logits,
//! and greedy continuations. Runs where the model has been downloaded: `hesper generate` does that.

use hesper::Array;
use hesper_lm::{CacheKind, LanguageModel, LoadOptions, fetch};
use serde_json::Value;

/// The tolerance of logits. llama.cpp rounds activations to 8 bits before every product; a plain forward pass
/// in NumPy differs from the recording by up to 0.84, where logits spread over 25.
const TOLERANCE: f64 = 1.2;

fn recorded() -> Value {
    serde_json::from_str(include_str!("recordings/smollm2.json")).unwrap()
}

/// The model, if it has been downloaded.
fn model() -> Option<LanguageModel> {
    let path = fetch::cache_folder().ok()?.join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.is_file() {
        eprintln!("skipped: {} does not exist", path.display());
        return None;
    }
    Some(LanguageModel::load(&path, &LoadOptions::default()).unwrap())
}

fn tokens_of(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect()
}

#[test]
fn unusual_texts_have_the_tokens_of_llama_cpp() {
    let Some(language) = model() else { return };
    let all = recorded();
    for pair in all["tokenizer"].as_array().unwrap() {
        let text = pair[0].as_str().unwrap();
        assert_eq!(language.tokenizer().encode(text, false).unwrap(), tokens_of(&pair[1]), "{text:?}");
    }
}

#[test]
fn logits_and_continuations_are_those_of_llama_cpp() {
    let Some(language) = model() else { return };
    let all = recorded();
    let (mut most, mut certain, mut count) = (0.0f64, 0, 0);
    // All of them take two minutes in a build without optimizations.
    let texts = std::env::var("HESPER_RECORDED").map_or(4, |count| count.parse().unwrap());
    for (number, text) in all["texts"].as_array().unwrap().iter().take(texts).enumerate() {
        let (prompt, next) = (text["prompt"].as_str().unwrap(), tokens_of(&text["next"]));
        let mut tokens = language.tokenizer().encode(prompt, false).unwrap();
        assert_eq!(tokens, tokens_of(&text["tokens"]), "{prompt:?}");
        let first = tokens.len();
        tokens.extend(&next[..next.len() - 1]);
        // The first sequence is decoded token by token after its prompt, the others in one step.
        let cuts: Vec<usize> = if number == 0 { (first..tokens.len()).collect() } else { Vec::new() };
        let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
        let (mut logits, mut begin) = (Vec::new(), 0);
        for end in cuts.into_iter().chain([tokens.len()]) {
            let ids = Array::try_from_slice(&tokens[begin..end], &[1, end - begin]).unwrap();
            let some = language.model().forward(&ids, &mut *cache).unwrap();
            logits.extend(some.to_vec::<f32>().unwrap());
            begin = end;
        }
        let rows = logits.chunks(logits.len() / tokens.len()).skip(first - 1);
        for ((best, next), logits) in text["best"].as_array().unwrap().iter().zip(next).zip(rows) {
            let theirs: Vec<(u64, f64)> = (best.as_array().unwrap().iter())
                .map(|pair| (pair[0].as_u64().unwrap(), pair[1].as_f64().unwrap()))
                .collect();
            for (id, logit) in &theirs {
                most = most.max((f64::from(logits[*id as usize]) - logit).abs());
            }
            count += 1;
            // Where the most likely token leads by more than both tolerances, it must be the same.
            if theirs[0].1 - theirs[1].1 > 2.0 * TOLERANCE {
                let own = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
                assert_eq!(own, Some(next as usize), "{prompt:?}");
                certain += 1;
            }
        }
    }
    eprintln!("{count} positions, {certain} of them certain; off by up to {most}");
    assert!(most < TOLERANCE, "off by {most}");
    assert!(certain > 20, "only {certain} positions were compared");
}
