//! SmolLM2-135M against what llama.cpp made of it (`recordings/record.py`): tokens of odd texts, scores, and greedy
//! continuations. Runs where the model has been fetched: `hesper generate` does that.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use hesper::Array;
use hesper_lm::{Cache, CacheKind, LanguageModel, LoadOptions, fetch};
use serde_json::Value;

/// How far scores may be apart. llama.cpp rounds activations to 8 bits before every product; a plain forward pass in
/// NumPy is up to 0.84 away from what was recorded, where scores spread over 25.
const TOLERANCE: f64 = 1.2;

fn recorded() -> Value {
    serde_json::from_str(include_str!("recordings/smollm2.json")).unwrap()
}

/// The model, if it has been fetched.
fn model() -> Option<LanguageModel> {
    let path = fetch::cache_folder().ok()?.join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.is_file() {
        eprintln!("skipped: there is no {}", path.display());
        return None;
    }
    Some(LanguageModel::load(&path, &LoadOptions::default()).unwrap())
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
}

#[test]
fn odd_texts_have_the_tokens_of_llama_cpp() {
    let Some(language) = model() else { return };
    let all = recorded();
    for pair in all["tokenizer"].as_array().unwrap() {
        let text = pair[0].as_str().unwrap();
        assert_eq!(language.tokenizer().encode(text, false).unwrap(), numbers(&pair[1]), "{text:?}");
    }
}

#[test]
fn scores_and_continuations_are_those_of_llama_cpp() {
    let Some(language) = model() else { return };
    let all = recorded();
    let (mut most, mut certain, mut count) = (0.0f64, 0, 0);
    for (number, text) in all["texts"].as_array().unwrap().iter().enumerate() {
        let (prompt, next) = (text["prompt"].as_str().unwrap(), numbers(&text["next"]));
        let mut tokens = language.tokenizer().encode(prompt, false).unwrap();
        assert_eq!(tokens, numbers(&text["tokens"]), "{prompt:?}");
        let first = tokens.len();
        tokens.extend(&next[..next.len() - 1]);
        // The first text goes token by token behind its prompt, the others in one piece.
        let cuts: Vec<usize> = if number == 0 { (first..tokens.len()).collect() } else { Vec::new() };
        let mut cache = Cache::new(language.model().config(), CacheKind::Growing).unwrap();
        let (mut scores, mut begin) = (Vec::new(), 0);
        for end in cuts.into_iter().chain([tokens.len()]) {
            let ids = Array::try_from_slice(&tokens[begin..end], &[1, end - begin]).unwrap();
            let some = language.model().all_scores(&ids, &mut cache).unwrap();
            scores.extend(some.to_vec::<f32>().unwrap());
            begin = end;
        }
        let rows = scores.chunks(scores.len() / tokens.len()).skip(first - 1);
        for ((best, next), scores) in text["best"].as_array().unwrap().iter().zip(next).zip(rows) {
            let theirs: Vec<(u64, f64)> = (best.as_array().unwrap().iter())
                .map(|pair| (pair[0].as_u64().unwrap(), pair[1].as_f64().unwrap()))
                .collect();
            for (id, score) in &theirs {
                most = most.max((f64::from(scores[*id as usize]) - score).abs());
            }
            count += 1;
            // Where the best is ahead by more than both may be off, it is the best here too.
            if theirs[0].1 - theirs[1].1 > 2.0 * TOLERANCE {
                let own = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
                assert_eq!(own, Some(next as usize), "{prompt:?}");
                certain += 1;
            }
        }
    }
    eprintln!("{count} positions, {certain} of them certain; off by up to {most}");
    assert!(most < TOLERANCE, "off by {most}");
    assert!(certain > 20, "only {certain} positions tell anything");
}
