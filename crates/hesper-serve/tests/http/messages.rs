//! The API of Anthropic.

use hesper_serve::http::{ApiKeys, ServerOptions};
use hesper_serve::protocol::{Constraint, FailureKind, Finish};
use serde_json::{Value, json};

use crate::client::{Answer, Running};
use crate::scripted::End;

fn server() -> Running {
    let running = Running::start(ServerOptions::default());
    running.generator.say(&["Hello", ", ", "world"]);
    running
}

/// Adds the required fields to a body.
fn body(mut body: Value) -> Value {
    for (field, value) in
        [("max_tokens", json!(20)), ("messages", json!([{ "role": "user", "content": "The evening star" }]))]
    {
        if body.get(field).is_none() {
            body[field] = value;
        }
    }
    body
}

fn post(server: &Running, fields: Value) -> Answer {
    server.post("/v1/messages", &body(fields))
}

/// Names and data of the events.
fn events(answer: &Answer) -> Vec<(String, Value)> {
    assert!(answer.headers.contains("text/event-stream"), "{answer:?}");
    let each = answer.body.split("\n\n").filter_map(|event| event.strip_prefix("event: "));
    let each = each.map(|event| event.split_once("\ndata: ").unwrap());
    each.map(|(name, data)| (name.to_string(), serde_json::from_str(data).unwrap())).collect()
}

fn error(answer: &Answer) -> (String, String) {
    let value = answer.json();
    assert_eq!(value["type"], "error", "{value}");
    let text = |field: &str| value["error"][field].as_str().unwrap().to_string();
    (text("type"), text("message"))
}

const CALL: [&str; 5] =
    ["<thi", "nk>hm", "</think>\n\n<tool", "_call>{\"name\":\"f\",", "\"arguments\":{\"x\":1}}</tool_call>"];

fn tools() -> Value {
    json!([{ "name": "f", "description": "d", "input_schema": { "type": "object" } }])
}

#[test]
fn a_message_is_answered_whole() {
    let server = server();
    let answer = post(
        &server,
        json!({ "system": [{ "type": "text", "text": "Be brief." }], "stop_sequences": ["x"], "top_k": 3, "temperature": 0 }),
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    let value = answer.json();
    assert_eq!((&value["type"], &value["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(value["content"], json!([{ "type": "text", "text": "Hello, world" }]));
    assert_eq!((&value["stop_reason"], &value["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    let request = server.generator.requests().pop().unwrap();
    let tokens = request.prompt.len();
    assert_eq!(value["usage"]["input_tokens"], tokens - 2, "2 are cached");
    assert_eq!(
        (&value["usage"]["cache_read_input_tokens"], &value["usage"]["output_tokens"]),
        (&json!(2), &json!(3))
    );
    assert_eq!((request.max_tokens, request.sampling.top_k, request.sampling.temperature), (20, 3, 0.0));
    assert_eq!(request.stops, ["x"]);
    assert!(answer.headers.contains(&format!("request-id: {}", value["id"].as_str().unwrap())));
    let count =
        server.post("/v1/messages/count_tokens", &body(json!({ "system": "Be brief.", "max_tokens": null })));
    assert_eq!((count.status, &count.json()["input_tokens"]), (200, &json!(tokens)), "{count:?}");
    server.generator.change(|script| script.end = End::Done(Finish::Length));
    assert_eq!(post(&server, json!({})).json()["stop_reason"], "max_tokens");
}

#[test]
fn reasoning_text_and_calls_are_the_same_streamed_and_whole() {
    let server = server();
    for pieces in [&CALL[..], &["<think>a", "b</think>", "Some ", "text"], &["text"], &[]] {
        server.generator.say(pieces);
        let whole = post(&server, json!({ "tools": tools() })).json();
        let streamed = events(&post(&server, json!({ "tools": tools(), "stream": true })));
        let names: Vec<&str> = streamed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[0], "message_start");
        assert_eq!(names[names.len() - 2..], ["message_delta", "message_stop"]);
        let (mut blocks, mut open): (Vec<Value>, Option<u64>) = (Vec::new(), None);
        for (name, data) in &streamed {
            assert_eq!(data["type"], *name);
            match name.as_str() {
                "content_block_start" => {
                    assert_eq!((open, &data["index"]), (None, &json!(blocks.len())));
                    open = data["index"].as_u64();
                    blocks.push(data["content_block"].clone());
                }
                "content_block_delta" => {
                    assert_eq!(data["index"].as_u64(), open);
                    let (delta, block) = (&data["delta"], blocks.last_mut().unwrap());
                    match delta["type"].as_str().unwrap() {
                        "input_json_delta" => {
                            block["input"] =
                                serde_json::from_str(delta["partial_json"].as_str().unwrap()).unwrap();
                        }
                        kind => {
                            let field = kind.strip_suffix("_delta").unwrap();
                            let text =
                                block[field].as_str().unwrap().to_string() + delta[field].as_str().unwrap();
                            block[field] = text.into();
                        }
                    }
                }
                "content_block_stop" => assert_eq!(open.take(), data["index"].as_u64()),
                "message_delta" => {
                    assert_eq!(data["delta"]["stop_reason"], whole["stop_reason"]);
                    assert_eq!(data["usage"], whole["usage"]);
                }
                _ => {}
            }
        }
        assert_eq!(open, None);
        let without_id = |mut blocks: Vec<Value>| {
            blocks.iter_mut().for_each(|block| block["id"] = Value::Null);
            blocks
        };
        let expected = whole["content"].as_array().unwrap().clone();
        assert_eq!(without_id(blocks), without_id(expected), "{pieces:?}");
    }
    server.generator.say(&CALL);
    let whole = post(&server, json!({ "tools": tools() })).json();
    let (thoughts, call) = (&whole["content"][0], &whole["content"][1]);
    assert_eq!((&thoughts["type"], &thoughts["thinking"]), (&json!("thinking"), &json!("hm")));
    assert_eq!(
        (&call["type"], &call["name"], &call["input"]),
        (&json!("tool_use"), &json!("f"), &json!({ "x": 1 }))
    );
    assert_eq!(whole["stop_reason"], "tool_use");
}

#[test]
fn calls_and_their_results_are_part_of_the_conversation() {
    let server = server();
    let messages = json!([
        { "role": "user", "content": [{ "type": "text", "text": "Count" }] },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "hm", "signature": "" },
            { "type": "text", "text": "Calling" },
            { "type": "tool_use", "id": "t1", "name": "f", "input": { "x": 1 } },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t1", "content": [{ "type": "text", "text": "seven" }] },
            { "type": "text", "text": "and" },
        ] },
    ]);
    let answer = post(&server, json!({ "messages": messages, "tools": tools() }));
    assert_eq!(answer.status, 200, "{answer:?}");
    let required = post(&server, json!({ "tools": tools(), "tool_choice": { "type": "any" } }));
    assert_eq!(required.status, 200, "{required:?}");
    let constraint = server.generator.requests().pop().unwrap().constraint;
    assert!(matches!(constraint, Some(Constraint::ToolCalls { .. })), "{constraint:?}");
    let named = post(&server, json!({ "tools": tools(), "tool_choice": { "type": "tool", "name": "g" } }));
    assert_eq!((named.status, error(&named).0.as_str()), (400, "invalid_request_error"));
}

#[test]
fn keys_are_sent_in_either_header() {
    let path = std::env::temp_dir().join(format!("hesper-messages-keys-{}", std::process::id()));
    std::fs::write(&path, "the-key\n").unwrap();
    let api_keys = Some(ApiKeys::read(&path).unwrap());
    std::fs::remove_file(path).unwrap();
    let server = Running::start(ServerOptions { api_keys, ..ServerOptions::default() });
    server.generator.say(&["ok"]);
    let text = body(json!({})).to_string();
    for header in ["x-api-key: the-key\r\n", "Authorization: Bearer the-key\r\n"] {
        assert_eq!(server.send("POST", "/v1/messages", header, &text).status, 200, "{header}");
    }
    for header in ["", "x-api-key: another\r\n", "Authorization: Bearer x\r\nx-api-key: the-key\r\n"] {
        let answer = server.send("POST", "/v1/messages", header, &text);
        assert_eq!((answer.status, error(&answer).0.as_str()), (401, "authentication_error"), "{header}");
    }
}

#[test]
fn invalid_requests_and_failures_have_the_error_format_of_the_api() {
    let server = server();
    let user = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
    let cases = [
        (json!({ "max_tokens": null }), "max_tokens"),
        (json!({ "max_tokens": 0 }), "max_tokens"),
        (json!({ "messages": null }), "messages"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": [{ "role": "system", "content": "a" }] }), "messages[0].role"),
        (json!({ "messages": [{ "role": "user" }] }), "messages[0].content"),
        (user(json!(3)), "messages[0].content"),
        (user(json!([{ "type": "image" }])), "messages[0].content[0].type"),
        (user(json!([{ "type": "text" }])), "messages[0].content[0].text"),
        (user(json!([{ "type": "tool_result" }])), "messages[0].content[0].tool_use_id"),
        (json!({ "system": 3 }), "system"),
        (json!({ "stop_sequences": "x" }), "stop_sequences"),
        (json!({ "temperature": "hot" }), "temperature"),
        (json!({ "tools": [{ "type": "bash_20250124", "name": "bash" }] }), "tools[0].type"),
        (json!({ "tools": [{ "input_schema": {} }] }), "tools[0].name"),
        (json!({ "tool_choice": { "type": "maybe" } }), "tool_choice.type"),
        (json!({ "tool_choice": { "type": "tool" } }), "tool_choice.name"),
        (json!({ "thinking": 3 }), "thinking"),
    ];
    for (fields, name) in cases {
        let answer = post(&server, fields.clone());
        assert_eq!(answer.status, 400, "{fields}: {answer:?}");
        let (kind, message) = error(&answer);
        assert!(kind == "invalid_request_error" && message.starts_with(name), "{fields}: {message}");
    }
    assert_eq!(error(&post(&server, json!({ "model": "none" }))).0, "not_found_error");
    server.generator.change(|script| script.end = End::Failed(FailureKind::OutOfMemory));
    let whole = post(&server, json!({}));
    assert_eq!((whole.status, error(&whole).0.as_str()), (503, "overloaded_error"));
    let streamed = events(&post(&server, json!({ "stream": true })));
    let (name, data) = streamed.last().unwrap();
    assert_eq!((name.as_str(), &data["error"]["type"]), ("error", &json!("overloaded_error")));
}
