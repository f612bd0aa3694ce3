//! `/v1/responses`.

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

fn post(server: &Running, mut fields: Value) -> Answer {
    if fields.get("input").is_none() {
        fields["input"] = "The evening star".into();
    }
    server.post("/v1/responses", &fields)
}

/// The events. Checks that their names are their types and that their numbers are consecutive.
fn events(answer: &Answer) -> Vec<Value> {
    assert!(answer.headers.contains("text/event-stream"), "{answer:?}");
    let each = answer.body.split("\n\n").filter_map(|event| event.strip_prefix("event: "));
    let mut all = Vec::new();
    for (at, (name, data)) in each.map(|event| event.split_once("\ndata: ").unwrap()).enumerate() {
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(at)));
        all.push(event);
    }
    all
}

/// Items without ids, which differ between answers.
fn plain(output: &Value) -> Value {
    let mut output = output.clone();
    for item in output.as_array_mut().unwrap() {
        let item = item.as_object_mut().unwrap();
        item.remove("id");
        item.remove("call_id");
    }
    output
}

/// Checks that the last request had the prompt of a chat with these messages.
fn assert_prompt(server: &Running, messages: Value) {
    let prompt = server.generator.requests().pop().unwrap().prompt;
    assert_eq!(server.post("/v1/chat/completions", &json!({ "messages": messages })).status, 200);
    assert_eq!(prompt, server.generator.requests().pop().unwrap().prompt);
}

const CALLS: [&str; 5] = [
    "<thi",
    "nk>hm",
    "</think>\n\nWait.<tool",
    "_call>{\"name\":\"f\",",
    "\"arguments\":{\"x\":1}}</tool_call>",
];

fn tools() -> Value {
    json!([{ "type": "function", "name": "f", "description": "d", "parameters": { "type": "object" } }])
}

#[test]
fn a_response_is_answered_whole() {
    let server = server();
    let answer = post(
        &server,
        json!({ "instructions": "Be brief.", "max_output_tokens": 20, "temperature": 0, "metadata": { "a": "b" } }),
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    let value = answer.json();
    assert_eq!(
        (&value["object"], &value["status"], &value["error"]),
        (&json!("response"), &json!("completed"), &Value::Null)
    );
    assert_eq!(
        plain(&value["output"]),
        json!([{ "type": "message", "status": "completed", "role": "assistant", "content": [
            { "type": "output_text", "text": "Hello, world", "annotations": [], "logprobs": [] }
        ] }])
    );
    let request = server.generator.requests().pop().unwrap();
    assert_eq!(value["usage"]["input_tokens"], request.prompt.len());
    assert_eq!(value["usage"]["input_tokens_details"]["cached_tokens"], 2);
    assert_eq!((&value["usage"]["output_tokens"], &value["metadata"]), (&json!(3), &json!({ "a": "b" })));
    assert_eq!((request.max_tokens, request.sampling.temperature), (20, 0.0));
    let user = json!({ "role": "user", "content": "The evening star" });
    assert_prompt(&server, json!([{ "role": "system", "content": "Be brief." }, user]));
    server.generator.change(|script| script.end = End::Done(Finish::Length));
    let cut = post(&server, json!({})).json();
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]),
        (&json!("incomplete"), &json!({ "reason": "max_output_tokens" }))
    );
}

#[test]
fn items_are_the_same_streamed_and_whole() {
    let server = server();
    for pieces in [&CALLS[..], &["<think>a", "b</think>", "Some ", "text"], &["text"], &[]] {
        server.generator.say(pieces);
        let whole = post(&server, json!({ "tools": tools() })).json();
        let streamed = events(&post(&server, json!({ "tools": tools(), "stream": true })));
        let kinds: Vec<&str> = streamed.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds[..2], ["response.created", "response.in_progress"]);
        assert_eq!(kinds[kinds.len() - 1], "response.completed");
        let last = &streamed[streamed.len() - 1]["response"];
        assert_eq!(plain(&last["output"]), plain(&whole["output"]), "{pieces:?}");
        // The events agree with the final response.
        let mut items: Vec<Value> = Vec::new();
        for event in &streamed {
            let at = event["output_index"].as_u64().unwrap_or(0) as usize;
            let delta = event["delta"].as_str().unwrap_or("");
            match event["type"].as_str().unwrap() {
                "response.output_item.added" => {
                    assert_eq!((at, &event["item"]["status"]), (items.len(), &json!("in_progress")));
                    items.push(event["item"].clone());
                }
                "response.content_part.added" => {
                    assert_eq!(event["item_id"], items[at]["id"]);
                    items[at]["content"] = json!([event["part"]]);
                }
                "response.output_text.delta" | "response.reasoning_text.delta" => {
                    let text = items[at]["content"][0]["text"].as_str().unwrap().to_string() + delta;
                    items[at]["content"][0]["text"] = text.into();
                }
                "response.function_call_arguments.delta" => items[at]["arguments"] = delta.into(),
                "response.output_item.done" => {
                    items[at]["status"] = "completed".into();
                    assert_eq!(event["item"], items[at]);
                }
                _ => {}
            }
        }
        assert_eq!(json!(items), last["output"]);
    }
    server.generator.say(&CALLS);
    let whole = post(&server, json!({ "tools": tools() })).json();
    let kinds: Vec<&str> =
        whole["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(whole["output"][2]["arguments"], "{\"x\":1}");
}

#[test]
fn a_response_is_continued_by_its_id_until_it_is_deleted() {
    let server = server();
    server.generator.say(&CALLS);
    let first = post(&server, json!({ "tools": tools(), "instructions": "Once." })).json();
    let (id, call) = (first["id"].as_str().unwrap(), &first["output"][2]["call_id"]);
    server.generator.say(&["Then."]);
    let second = post(
        &server,
        json!({ "previous_response_id": id, "input": [{ "type": "function_call_output", "call_id": call, "output": "42" }] }),
    );
    assert_eq!((second.status, &second.json()["previous_response_id"]), (200, &json!(id)), "{second:?}");
    let function = json!({ "name": "f", "arguments": "{\"x\":1}" });
    let calls = json!([{ "id": call, "type": "function", "function": function }]);
    // Instructions are not stored.
    let mut messages = vec![
        json!({ "role": "user", "content": "The evening star" }),
        json!({ "role": "assistant", "content": "Wait.", "reasoning_content": "hm", "tool_calls": calls }),
        json!({ "role": "tool", "tool_call_id": call, "content": "42" }),
    ];
    assert_prompt(&server, json!(messages));
    let fields = json!({ "previous_response_id": second.json()["id"], "stream": true, "input": "And?" });
    let third = events(&post(&server, fields));
    messages.push(json!({ "role": "assistant", "content": "Then." }));
    messages.push(json!({ "role": "user", "content": "And?" }));
    assert_prompt(&server, json!(messages));
    let streamed = third[third.len() - 1]["response"]["id"].as_str().unwrap().to_string();
    assert_eq!(server.get(&format!("/v1/responses/{streamed}")).json()["id"], streamed.as_str());
    assert_eq!(server.get(&format!("/v1/responses/{id}")).json(), first);
    let gone = server.send("DELETE", &format!("/v1/responses/{id}"), "", "");
    assert_eq!((gone.status, &gone.json()["deleted"]), (200, &json!(true)), "{gone:?}");
    assert_eq!(server.get(&format!("/v1/responses/{id}")).status, 404);
    let unknown = post(&server, json!({ "previous_response_id": id }));
    assert_eq!(unknown.json()["error"]["code"], "previous_response_not_found", "{unknown:?}");
    let not_kept = post(&server, json!({ "store": false })).json()["id"].as_str().unwrap().to_string();
    assert_eq!(server.get(&format!("/v1/responses/{not_kept}")).status, 404);
}

#[test]
fn a_response_of_another_key_is_unknown() {
    let path = std::env::temp_dir().join(format!("hesper-responses-keys-{}", std::process::id()));
    std::fs::write(&path, "first-key\nsecond-key\n").unwrap();
    let api_keys = Some(ApiKeys::read(&path).unwrap());
    std::fs::remove_file(path).unwrap();
    let server = Running::start(ServerOptions { api_keys, ..ServerOptions::default() });
    server.generator.say(&["Hello"]);
    let send = |key: &str, body: Value| {
        server.send("POST", "/v1/responses", &format!("Authorization: Bearer {key}\r\n"), &body.to_string())
    };
    let id = send("first-key", json!({ "input": "x" })).json()["id"].clone();
    let next = || json!({ "input": "y", "previous_response_id": id });
    assert_eq!(send("first-key", next()).status, 200);
    let other = send("second-key", next());
    assert_eq!(other.json()["error"]["code"], "previous_response_not_found", "{other:?}");
}

#[test]
fn invalid_and_unsupported_fields_are_named() {
    let server = server();
    for (fields, culprit) in [
        (json!({ "input": 5 }), "input"),
        (json!({ "input": [{ "type": "item_reference", "id": "x" }] }), "input[0].type"),
        (
            json!({ "input": [{ "role": "user", "content": [{ "type": "input_image" }] }] }),
            "input[0].content[0].type",
        ),
        (json!({ "input": [{ "role": "pirate", "content": "x" }] }), "input"),
        (json!({ "input": [] }), "input"),
        (json!({ "input": [{ "type": "function_call", "name": "f" }] }), "input[0].arguments"),
        (json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type"),
        (json!({ "tool_choice": { "type": "function" }, "tools": tools() }), "tool_choice.name"),
        (json!({ "background": true }), "background"),
        (json!({ "truncation": "auto" }), "truncation"),
        (json!({ "conversation": "c" }), "conversation"),
        (json!({ "max_output_tokens": 0 }), "max_output_tokens"),
        (json!({ "text": { "format": { "type": "json_schema", "schema": 5 } } }), "text.format"),
        (json!({ "model": "other" }), "model"),
    ] {
        let answer = post(&server, fields.clone());
        let error = &answer.json()["error"];
        assert!((400..500).contains(&answer.status), "{fields}: {answer:?}");
        assert_eq!(error["param"], culprit, "{fields}: {error}");
        assert!(error["message"].as_str().unwrap().starts_with(culprit), "{error}");
    }
    let missing = server.post("/v1/responses", &json!({ "model": "demo" }));
    assert_eq!(missing.json()["error"]["param"], "input");
}

#[test]
fn structured_output_and_failures() {
    let server = server();
    let schema = json!({ "type": "object" });
    post(&server, json!({ "text": { "format": { "type": "json_schema", "name": "n", "schema": schema } } }));
    let request = server.generator.requests().pop().unwrap();
    assert!(matches!(&request.constraint, Some(Constraint::JsonSchema(text)) if text == &schema.to_string()));
    post(&server, json!({ "include": ["message.output_text.logprobs"], "top_logprobs": 3 }));
    assert_eq!(server.generator.requests().pop().unwrap().logprobs, Some(3));
    server.generator.change(|script| script.end = End::Failed(FailureKind::Internal));
    let failed = events(&post(&server, json!({ "stream": true })));
    let last = &failed[failed.len() - 1];
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert!(last["response"]["error"]["message"].is_string());
    assert_eq!(post(&server, json!({})).status, 500);
}
