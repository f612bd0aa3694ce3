//! Constraints: the generated text matches, other requests are not affected, and a constraint that is invalid
//! or too large is refused.
#![cfg(feature = "grammar")]

use std::sync::Arc;
use std::time::Instant;

use crate::support::{End, LIMIT, collect, language, request, small};
use hesper_lm::{LanguageModel, LoadOptions, fetch};
use hesper_serve::engine::{Engine, EngineOptions};
use hesper_serve::protocol::{Constraint, Event, Finish, Generator, Refusal, Request, Sampling};
use hesper_serve::text::{CallFormat, Tool};

fn constrained(id: &str, constraint: Constraint) -> Request {
    Request { constraint: Some(constraint), ..request(id, "The evening star", 20) }
}

#[test]
fn a_text_matches_its_constraint_and_ends_with_it() {
    let engine = Engine::start(language(), small()).unwrap();
    let free = collect(&engine.submit(request("free", "The evening star", 20)).unwrap()).0;
    for temperature in [0.0, 1.5] {
        let regex = Constraint::Regex(r"( the| sun){3}\.".into());
        let sampling = Sampling { temperature, ..Sampling::default() };
        let with = engine.submit(Request { sampling, ..constrained("regex", regex) }).unwrap();
        let without = engine.submit(request("beside", "The evening star", 20)).unwrap();
        let (_, text, end) = collect(&with);
        let words: Vec<&str> = text.trim_end_matches('.').split(' ').skip(1).collect();
        assert!(words.len() == 3 && words.iter().all(|word| ["the", "sun"].contains(word)), "{text:?}");
        assert!(text.ends_with('.') && matches!(end, End::Done(Finish::Stop, _)), "{text:?}: {end:?}");
        assert_eq!(collect(&without).0, free);
    }
    let lark = Constraint::Lark("start: \" the\" (\" sun\" | \" star\")\n".into());
    let text = collect(&engine.submit(constrained("lark", lark)).unwrap()).1;
    assert!([" the sun", " the star"].contains(&text.as_str()), "{text:?}");
}

#[test]
fn a_constraint_that_no_text_matches_fails_with_that_reason() {
    let engine = Engine::start(language(), small()).unwrap();
    let events =
        engine.submit(constrained("loop", Constraint::JsonSchema(r##"{"$ref": "#"}"##.into()))).unwrap();
    let message = loop {
        match events.next() {
            Some(Event::Failed(failure)) => break failure.message,
            Some(_) => {}
            None => panic!("the events ended without a failure"),
        }
    };
    assert!(message.contains("no token may come next"), "{message}");
}

#[test]
fn invalid_or_too_large_constraints_are_refused() {
    let engine = Engine::start(language(), small()).unwrap();
    let wrong = [
        Constraint::Regex("(".into()),
        Constraint::Regex("a".repeat(100_000)),
        Constraint::JsonSchema("{".into()),
        Constraint::JsonSchema(r#"{"type": "nothing"}"#.into()),
        Constraint::Lark("start: missing".into()),
    ];
    for constraint in wrong {
        let what = format!("{:.60?}", constraint);
        let refused = engine.submit(constrained("wrong", constraint));
        assert!(matches!(refused, Err(Refusal::Invalid(_))), "{what}: {refused:?}");
    }
    // Parsers recurse: on the stack of a thread of the server, deep nesting must not end the process.
    let nested = |open: &str, middle: &str, close: &str, depth: usize| {
        format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
    };
    let hostile = [
        Constraint::Regex(nested("(", "a", ")", 4000)),
        Constraint::Regex(nested("(", "a", ")+", 120)),
        Constraint::Regex(nested("[", "a", "]", 4000)),
        Constraint::Lark(format!("start: {}", nested("(", "\"a\"", ")", 30_000))),
        Constraint::Lark(format!("start: {}", nested("(", "\"a\"", ")?", 120))),
        Constraint::Lark("start: start\n".into()),
        Constraint::JsonSchema(nested("{\"items\":", "{}", "}", 120)),
        Constraint::JsonSchema(nested("{\"anyOf\":[", "{}", "]}", 60)),
        Constraint::JsonSchema(nested("{\"not\":", "{}", "}", 8000)),
        Constraint::JsonSchema(r##"{"$ref": "#"}"##.into()),
        Constraint::JsonSchema(r##"{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}"##.into()),
        Constraint::JsonSchema(
            r##"{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}"##
                .into(),
        ),
        Constraint::JsonSchema(r#"{"type": "string", "pattern": "(a{1,9999}){1,9999}"}"#.into()),
        Constraint::JsonSchema(r#"{"type": "array", "minItems": 1000000000}"#.into()),
    ];
    for (at, constraint) in hostile.into_iter().enumerate() {
        let begin = Instant::now();
        let end = engine.submit(constrained("hostile", constraint)).map(|events| collect(&events).2);
        assert!(begin.elapsed() < LIMIT / 4, "constraint {at}: {end:?} after {:?}", begin.elapsed());
    }
    // The cost of a constraint during generation is limited too.
    let costly = Constraint::Regex("( the| sun){1,5000}{1,5000}".into());
    if let Ok(events) = engine.submit(constrained("costly", costly)) {
        collect(&events);
    }
    assert_eq!(collect(&engine.submit(request("next", "The", 3)).unwrap()).0.len(), 3);
}

#[test]
fn an_answer_is_valid_by_its_json_schema() {
    let path = fetch::cache_folder().unwrap().join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.is_file() {
        eprintln!("skipped: {} does not exist", path.display());
        return;
    }
    let language = Arc::new(LanguageModel::load(&path, &LoadOptions::default()).unwrap());
    let engine = Engine::start(language.clone(), EngineOptions::default()).unwrap();
    let schema = r#"{"type": "object", "properties": {"name": {"enum": ["Ada", "Åsa"]}, "old": {"type": "boolean"}},
        "required": ["name", "old"], "additionalProperties": false}"#;
    let prompt = language.prompt_tokens("A person as JSON:").unwrap();
    let constraint = Some(Constraint::JsonSchema(schema.into()));
    let request = Request { id: "json".into(), prompt, max_tokens: 40, constraint, ..Request::default() };
    let (_, text, end) = collect(&engine.submit(request).unwrap());
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(value["name"].is_string() && value["old"].is_boolean(), "{text}");
    assert!(matches!(end, End::Done(Finish::Stop, _)), "{end:?}");
    let schema = r#"{"type": "object", "properties": {"city": {"enum": ["Bonn"]}}, "required": ["city"]}"#;
    let (begin, end) = ("<tool_call>".to_string(), "</tool_call>".to_string());
    for single in [true, false] {
        let (begin, end, schema) = (begin.clone(), end.clone(), schema.to_string());
        let constraint = Some(Constraint::ToolCalls { begin, schema, end, required: true, single });
        let prompt = language.prompt_tokens("The weather in Bonn:").unwrap();
        let request = Request { id: "tool".into(), prompt, max_tokens: 64, constraint, ..Request::default() };
        let (_, text, end) = collect(&engine.submit(request).unwrap());
        // Nothing but calls, and one if only one may be.
        let mut calls = text.split("<tool_call>");
        assert_eq!(calls.next().map(str::trim), Some(""), "{text}");
        let whole: Vec<&str> =
            calls.filter_map(|call| call.trim_end().strip_suffix("</tool_call>")).collect();
        assert!(whole.len() == 1 || !single && !whole.is_empty(), "{text}");
        assert!(!single || matches!(end, End::Done(Finish::Stop, _)), "{end:?}: {text}");
        for call in whole {
            let call: serde_json::Value = serde_json::from_str(call).unwrap();
            assert_eq!(call["city"], "Bonn", "{text}");
        }
    }
    // Calls without an end mark, and without a begin mark: then the call is the whole answer.
    let parameters = serde_json::from_str(schema).unwrap();
    let tool = Tool { name: "f".into(), description: serde_json::Value::Null, parameters, strict: true };
    for (format, start) in
        [(CallFormat::Bare, "{\"name\":\"f\""), (CallFormat::List, "[TOOL_CALLS][{\"name\":\"f\"")]
    {
        let constraint = Some(format.constraint(std::slice::from_ref(&tool), true, false));
        let prompt = language.prompt_tokens("The weather in Bonn:").unwrap();
        let request = Request { id: "call".into(), prompt, max_tokens: 24, constraint, ..Request::default() };
        let (_, text, end) = collect(&engine.submit(request).unwrap());
        assert!(matches!(end, End::Done(..)), "{format:?}: {end:?}");
        // The small model fills a call with white space.
        let dense: String = text.split_whitespace().collect();
        assert!(dense.starts_with(start), "{format:?}: {text}");
    }
}
