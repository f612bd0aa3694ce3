//! Requests to the demo model, and their results.
#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, which fail by panicking")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hesper as _;
use hesper_lm::{LanguageModel, demo};
use hesper_serve::engine::EngineOptions;
use hesper_serve::protocol::{Event, Events, FailureKind, Finish, Request, Usage};

/// The time after which a test fails.
pub const LIMIT: Duration = Duration::from_secs(60);

pub fn language() -> Arc<LanguageModel> {
    static MODEL: OnceLock<Arc<LanguageModel>> = OnceLock::new();
    MODEL.get_or_init(|| Arc::new(demo::model().unwrap())).clone()
}

/// Options with small pages, so that prompts of a few words have several.
pub fn small() -> EngineOptions {
    EngineOptions { page_tokens: 4, chunk_tokens: Some(8), step_tokens: Some(16), ..EngineOptions::default() }
}

pub fn request(id: &str, text: &str, max_tokens: usize) -> Request {
    let prompt = language().prompt_tokens(text).unwrap();
    Request { id: id.into(), prompt, max_tokens, ignore_eos: true, ..Request::default() }
}

/// The last event of a request.
#[derive(Debug, PartialEq)]
pub enum End {
    Done(Finish, Usage),
    Failed(FailureKind, String),
}

/// All events of a request: tokens, text and the end.
pub fn collect(events: &Events) -> (Vec<u32>, String, End) {
    let (mut tokens, mut text) = (Vec::new(), String::new());
    loop {
        let end = match events.next_within(LIMIT).unwrap() {
            Event::Started { .. } | Event::Embedding(_) => continue,
            Event::Token(token) => {
                tokens.push(token.id);
                text.push_str(&token.text);
                continue;
            }
            Event::Done { finish, usage } => End::Done(finish, usage),
            Event::Failed(failure) => End::Failed(failure.kind, failure.message),
        };
        assert_eq!(events.next(), None, "an event after the last one");
        return (tokens, text, end);
    }
}

/// Prompts of 3 to 58 words.
pub fn texts() -> Vec<String> {
    let words = "The evening star is the brightest star of the sky . It is seen in the west after sunset and";
    let words: Vec<&str> = words.split(' ').collect();
    let text =
        |at: usize| words.iter().cycle().skip(at).take(3 + 5 * at).copied().collect::<Vec<_>>().join(" ");
    (0..12).map(text).collect()
}
