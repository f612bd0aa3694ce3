//! The endpoints of the API.

use std::io::Write;
use std::time::Duration;

use hesper_serve::http::{ServerOptions, route_list};
use hesper_serve::protocol::{Constraint, FailureKind, Finish, Health, Pooling, Refusal};
use serde_json::{Value, json};

use crate::client::{Answer, Running};
use crate::scripted::End;

fn server() -> Running {
    let running = Running::start(ServerOptions::default());
    running.generator.say(&["Hello", ", ", "world"]);
    running
}

#[test]
fn a_chat_is_answered_whole() {
    let server = server();
    let answer = server.chat(json!({ "model": "demo", "max_tokens": 7, "seed": -1 }));
    assert_eq!(answer.status, 200, "{answer:?}");
    let value = answer.json();
    assert_eq!(value["object"], "chat.completion");
    assert_eq!(value["choices"][0]["message"], json!({ "role": "assistant", "content": "Hello, world" }));
    assert_eq!(value["choices"][0]["finish_reason"], "stop");
    assert_eq!(value["usage"]["completion_tokens"], 3);
    assert_eq!(value["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
    assert!(answer.headers.contains(&format!("x-request-id: {}", value["id"].as_str().unwrap())));
    let request = &server.generator.requests()[0];
    assert_eq!((request.max_tokens, request.sampling.seed, request.tenant), (7, u64::MAX, 0));
}

#[test]
fn a_chat_is_streamed_with_its_counts_at_the_end() {
    let server = server();
    let answer = server.chat(json!({ "stream": true, "stream_options": { "include_usage": true }, "n": 2 }));
    assert!(answer.headers.contains("text/event-stream"), "{answer:?}");
    let events = answer.events();
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    let id = &chunks[0]["id"];
    let (mut texts, mut finished) = ([String::new(), String::new()], 0);
    for chunk in &chunks[..chunks.len() - 1] {
        assert_eq!((&chunk["id"], &chunk["object"]), (id, &json!("chat.completion.chunk")));
        assert_eq!(chunk["usage"], Value::Null);
        let choice = &chunk["choices"][0];
        texts[choice["index"].as_u64().unwrap() as usize] +=
            choice["delta"]["content"].as_str().unwrap_or("");
        finished += usize::from(choice["finish_reason"] == "stop");
    }
    assert_eq!((texts, finished), (["Hello, world".to_string(), "Hello, world".to_string()], 2));
    let last = &chunks[chunks.len() - 1];
    assert_eq!(last["choices"], json!([]));
    let prompt = server.generator.requests()[0].prompt.len();
    assert_eq!(last["usage"]["prompt_tokens"], prompt, "the prompt of two choices counts once");
    assert_eq!(last["usage"]["completion_tokens"], 6);
    let seeds: Vec<u64> = server.generator.requests().iter().map(|one| one.sampling.seed).collect();
    assert_eq!(seeds[1], seeds[0].wrapping_add(1));
}

#[test]
fn tool_calls_and_reasoning_are_the_same_streamed_and_whole() {
    let server = server();
    server.generator.say(&[
        "<thi",
        "nk>hm",
        "</think>\n\n<tool",
        "_call>{\"name\":\"f\",",
        "\"arguments\":{\"x\":1}}</tool_call>",
    ]);
    let tools =
        json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]);
    let whole = server.chat(json!({ "tools": tools })).json();
    let message = &whole["choices"][0]["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&Value::Null, &json!("hm")));
    let function = json!({ "name": "f", "arguments": "{\"x\":1}" });
    assert_eq!(message["tool_calls"][0]["function"], function);
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
    let streamed = server.chat(json!({ "tools": tools, "stream": true })).events();
    let chunks: Vec<Value> = streamed.iter().filter_map(|data| serde_json::from_str(data).ok()).collect();
    let calls: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0])
        .filter(|c| !c.is_null())
        .collect();
    assert_eq!((calls.len(), &calls[0]["index"], &calls[0]["function"]), (1, &json!(0), &function));
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    let none = server.chat(json!({ "tools": tools, "tool_choice": "none" })).json();
    assert!(none["choices"][0]["message"]["content"].as_str().unwrap().contains("<tool_call>"));
}

#[test]
fn tool_choices_and_formats_become_constraints() {
    let server = server();
    let schema = json!({ "type": "object", "properties": { "x": { "type": "integer" } } });
    let tool = |strict: bool| json!({ "type": "function", "function": { "name": "f", "parameters": schema, "strict": strict } });
    let asked = |body: Value| {
        let answer = server.chat(body);
        assert_eq!(answer.status, 200, "{answer:?}");
        server.generator.requests().pop().unwrap().constraint
    };
    assert_eq!(asked(json!({ "tools": [tool(false)] })), None);
    for (choice, strict, is_required) in [
        (json!("auto"), true, false),
        (json!("required"), false, true),
        (json!({ "type": "function", "function": { "name": "f" } }), true, true),
        (
            json!({ "type": "allowed_tools", "allowed_tools": { "mode": "required", "tools": [
            { "type": "function", "function": { "name": "f" } }
        ] } }),
            true,
            true,
        ),
    ] {
        let is_named = choice["type"] == "function";
        let Some(Constraint::ToolCalls { begin, schema, end, required, single }) =
            asked(json!({ "tools": [tool(strict)], "tool_choice": choice }))
        else {
            panic!("no constraint")
        };
        assert_eq!((begin.as_str(), end.as_str(), required), ("<tool_call>", "</tool_call>", is_required));
        assert_eq!((schema.contains("integer"), single), (strict, is_named), "{schema}");
    }
    let one = asked(json!({ "tools": [tool(true)], "parallel_tool_calls": false }));
    assert!(matches!(one, Some(Constraint::ToolCalls { required: false, single: true, .. })), "{one:?}");
    let other = json!({ "type": "function", "function": { "name": "g" } });
    let allowed = |tools: Value| json!({ "type": "allowed_tools", "allowed_tools": { "tools": tools } });
    assert_eq!(asked(json!({ "tools": [tool(false), other], "tool_choice": allowed(json!([other])) })), None);
    let names = |answer: &Answer| answer.json()["error"]["param"].as_str().unwrap_or("").to_string();
    for (choice, param) in [
        (json!({ "type": "any" }), "tool_choice.type"),
        (allowed(json!([])), "tool_choice.allowed_tools.tools"),
        (allowed(json!([other])), "tool_choice.allowed_tools.tools[0].function.name"),
        (json!({ "type": "function", "function": { "name": "g" } }), "tool_choice.function.name"),
    ] {
        let answer = server.chat(json!({ "tools": [tool(false)], "tool_choice": choice }));
        assert_eq!((answer.status, names(&answer).as_str()), (400, param), "{answer:?}");
    }
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
    assert_eq!(asked(json!({ "response_format": format })), Some(Constraint::JsonSchema(schema.to_string())));
    assert_eq!(asked(json!({ "response_format": { "type": "json_object" } })), Some(Constraint::JsonObject));
    assert_eq!(asked(json!({ "guided_regex": "[a-z]+" })), Some(Constraint::Regex("[a-z]+".into())));
    assert_eq!(asked(json!({ "guided_choice": ["a.b", "c"] })), Some(Constraint::Regex("a\\.b|c".into())));
    assert_eq!(
        asked(json!({ "guided_grammar": "start: \"a\"" })),
        Some(Constraint::Lark("start: \"a\"".into()))
    );
}

#[test]
fn completions_take_texts_tokens_and_lists_and_may_repeat_the_prompt() {
    let server = server();
    let text = |body: Value| {
        let answer = server.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    assert_eq!(text(json!({ "prompt": "The sun" }))["choices"][0]["text"], "Hello, world");
    assert_eq!(server.generator.requests()[0].max_tokens, 16);
    assert_eq!(text(json!({ "prompt": [2, 3, 4] }))["choices"].as_array().unwrap().len(), 1);
    assert_eq!(server.generator.requests()[1].prompt, [2, 3, 4]);
    let many = text(json!({ "prompt": ["The sun", [5, 6]], "n": 2, "echo": true }));
    let choices = many["choices"].as_array().unwrap();
    assert_eq!((choices.len(), choices[1]["text"].as_str().unwrap()), (4, "The sunHello, world"));
    assert_eq!(choices[3]["index"], 3);
    let streamed = server.post("/v1/completions", &json!({ "prompt": "The sun", "stream": true }));
    let first: Value = serde_json::from_str(&streamed.events()[0]).unwrap();
    assert_eq!(
        (&first["object"], &first["choices"][0]["text"]),
        (&json!("text_completion"), &json!("Hello"))
    );
}

#[test]
fn log_probabilities_are_reported_in_both_formats() {
    let server = server();
    let chat = server.chat(json!({ "logprobs": true, "top_logprobs": 2 })).json();
    let content = chat["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!((content.len(), content[0]["top_logprobs"].as_array().unwrap().len()), (3, 2));
    assert!(content[0]["logprob"].as_f64().unwrap() < 0.0 && content[0]["bytes"].is_array());
    let text = server.post("/v1/completions", &json!({ "prompt": "The", "logprobs": 1, "stream": true }));
    let first: Value = serde_json::from_str(&text.events()[0]).unwrap();
    let logprobs = &first["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), 1);
    assert_eq!(logprobs["text_offset"], json!([0]));
    assert_eq!(server.generator.requests()[0].logprobs, Some(2));
}

#[test]
fn log_probabilities_that_have_to_be_kept_are_limited() {
    let server = server();
    server.generator.say(&["a"; 100]);
    let many = |stream: bool| {
        server.chat(json!({ "logprobs": true, "top_logprobs": 20, "n": 100, "stream": stream }))
    };
    let whole = many(false);
    assert_eq!(
        (whole.status, &whole.json()["error"]["code"]),
        (400, &json!("too_many_logprobs")),
        "{whole:?}"
    );
    assert!(server.generator.wait_idle(), "the choices are cancelled");
    assert!(many(true).events().iter().any(|event| event == "[DONE]"));
    let fewer = server.chat(json!({ "logprobs": true, "top_logprobs": 2, "n": 100 }));
    assert_eq!(fewer.status, 200);
}

#[test]
fn models_tokens_health_and_metrics_are_reported() {
    let server = server();
    assert_eq!(server.get("/v1/models").json()["data"][0]["id"], "demo");
    assert_eq!(server.get("/v1/models/demo").json()["object"], "model");
    assert_eq!(server.get("/v1/models/a/b").status, 404);
    let tokens = server.post("/tokenize", &json!({ "prompt": "The evening star" })).json();
    assert_eq!(tokens["count"].as_u64().unwrap() as usize, tokens["tokens"].as_array().unwrap().len());
    let text = server.post("/detokenize", &json!({ "tokens": tokens["tokens"] })).json();
    assert_eq!(text["prompt"].as_str().unwrap().trim(), "The evening star");
    let chat = server.post("/tokenize", &json!({ "messages": [{ "role": "user", "content": "The sun" }] }));
    assert!(chat.json()["count"].as_u64().unwrap() > 2);
    assert_eq!(server.get("/health").json(), json!({ "status": "ok" }));
    server.generator.set_health(Health::Stalled { seconds: 40.0 });
    let stalled = server.get("/health");
    assert_eq!((stalled.status, &stalled.json()["status"]), (503, &json!("stalled")));
    let metrics = server.get("/metrics");
    for line in [
        "vllm:num_requests_running{model_name=\"demo\"} 1",
        "vllm:num_requests_waiting{model_name=\"demo\"} 2",
        "vllm:kv_cache_usage_perc{model_name=\"demo\"} 0.25",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"demo\",le=\"1\"} 5",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"demo\",le=\"+Inf\"} 6",
        "vllm:time_to_first_token_seconds_count{model_name=\"demo\"} 6",
        "vllm:cache_config_info{model_name=\"demo\",block_size=\"32\",num_gpu_blocks=\"8\"} 1",
        "hesper:healthy{model_name=\"demo\"} 0",
    ] {
        assert!(metrics.body.lines().any(|one| one == line), "{line}\n{}", metrics.body);
    }
}

#[test]
fn failures_are_a_status_or_an_event_of_the_stream() {
    let server = server();
    for (kind, status) in [
        (FailureKind::Request, 400),
        (FailureKind::Deadline, 504),
        (FailureKind::OutOfMemory, 503),
        (FailureKind::Lost, 503),
        (FailureKind::Internal, 500),
    ] {
        server.generator.change(|script| script.end = End::Failed(kind));
        let answer = server.chat(json!({}));
        assert_eq!((answer.status, answer.error().as_str()), (status, "the device is on fire"));
        let events = server.chat(json!({ "stream": true })).events();
        let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
        assert_eq!(last["error"]["message"], "the device is on fire");
    }
    server.generator.change(|script| script.end = End::Vanish);
    assert_eq!(server.chat(json!({})).status, 500);
}

#[test]
fn refusals_have_a_status_and_a_retry_time() {
    let server = server();
    let full = Refusal::QueueFull { limit: 3, retry_after: Duration::from_secs(7) };
    for (refusal, status) in [
        (full, 429),
        (Refusal::TooLarge { needed: 9, limit: 3 }, 400),
        (Refusal::Invalid("prompt: bad".into()), 400),
        (Refusal::Unavailable("restarting".into()), 503),
    ] {
        server.generator.change(|script| script.refusal = Some(refusal.clone()));
        for stream in [false, true] {
            let answer = server.chat(json!({ "stream": stream }));
            assert_eq!((answer.status, answer.error()), (status, refusal.to_string()));
            assert_eq!(answer.headers.contains("retry-after: 7"), status == 429, "{answer:?}");
        }
    }
}

#[test]
fn a_stream_without_events_gets_keep_alive_comments() {
    let options = ServerOptions { keep_alive: Duration::from_millis(40), ..ServerOptions::default() };
    let server = Running::start(options);
    server.generator.say(&["late"]);
    server.generator.change(|script| script.delay = Duration::from_millis(300));
    let answer = server.chat(json!({ "stream": true }));
    assert!(answer.body.matches("\n:").count() >= 2, "{}", answer.body);
    assert!(answer.body.contains("late") && answer.body.contains("[DONE]"));
}

#[test]
fn a_request_is_cancelled_by_its_id() {
    let server = server();
    server.generator.change(|script| script.end = End::Hang);
    for (n, submitted) in [(1, 1), (3, 4)] {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| server.chat(json!({ "request_id": "mine", "n": n })));
            server.generator.wait_running();
            // All choices have to be submitted.
            while server.generator.requests().len() < submitted {
                std::thread::sleep(Duration::from_millis(2));
            }
            let twice = server.chat(json!({ "request_id": "mine" }));
            assert_eq!((twice.status, twice.error().contains("request_id")), (409, true), "{twice:?}");
            let start = std::time::Instant::now();
            // One of several choices, then the others.
            if n > 1 {
                while server.post("/v1/requests/mine%2F2/cancel", &json!({})).status != 200 {
                    assert!(start.elapsed() < Duration::from_secs(5));
                }
                assert_eq!(server.post("/v1/requests/mine%2F9/cancel", &json!({})).status, 404);
                assert!(!waiting.is_finished());
            }
            while server.post("/v1/requests/mine/cancel", &json!({})).status != 200 {
                assert!(start.elapsed() < Duration::from_secs(5));
            }
            let answer = waiting.join().unwrap();
            assert_eq!(
                (answer.status, &answer.json()["choices"][0]["finish_reason"]),
                (200, &json!("cancelled"))
            );
        });
    }
    assert_eq!(server.post("/v1/requests/mine/cancel", &json!({})).status, 404);
}

#[test]
fn lengths_are_limited_by_the_context_and_the_server() {
    let server = Running::start(ServerOptions { max_tokens: 5, ..ServerOptions::default() });
    server.generator.say(&["a", "b", "c", "d", "e", "f"]);
    server.generator.change(|script| script.end = End::Done(Finish::Length));
    let answer = server.chat(json!({ "max_completion_tokens": 1_000_000 })).json();
    assert_eq!(answer["choices"][0]["message"]["content"], "abcde");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let long = server.post("/v1/completions", &json!({ "prompt": vec![2; 4096] }));
    assert_eq!((long.status, &long.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
}

#[test]
fn embeddings_are_answered_as_numbers_and_as_base64() {
    let server = server();
    server.generator.say(&[]);
    let embed = |body: Value| server.post("/v1/embeddings", &body);
    let answer = embed(json!({ "model": "demo", "input": ["The evening star", [2, 3]] })).json();
    let vectors: Vec<&Value> =
        answer["data"].as_array().unwrap().iter().map(|one| &one["embedding"]).collect();
    assert_eq!(vectors[1], &json!([0.5, -1.0, 2.0]));
    assert_eq!(answer["data"][1]["index"], 1);
    let tokens = vectors[0][2].as_f64().unwrap() as u64 + 2;
    assert_eq!(answer["usage"], json!({ "prompt_tokens": tokens, "total_tokens": tokens }));
    let requests = server.generator.requests();
    assert!(requests.iter().all(|request| request.embed == Some(Pooling::Mean)));
    let answer = embed(json!({ "input": [5, 6, 7], "encoding_format": "base64", "pooling": "last" })).json();
    // 0.5, -1.0 and 3.0 in little-endian order.
    assert_eq!(answer["data"][0]["embedding"], "AAAAPwAAgL8AAEBA");
    assert_eq!(server.generator.requests().last().unwrap().embed, Some(Pooling::Last));
    // More texts than are computed at once, and than the queue of the engine may hold.
    let answer = embed(json!({ "input": vec!["The star"; 300] })).json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 300);
    for (wrong, field) in [
        (json!({}), "input"),
        (json!({ "input": [] }), "input"),
        (json!({ "input": "" }), "input"),
        (json!({ "input": ["x", ""] }), "input"),
        (json!({ "input": vec!["x"; 3000] }), "input"),
        (json!({ "input": vec![2; 5000] }), "input"),
        (json!({ "input": [99_999_999] }), "input"),
        (json!({ "input": "x", "encoding_format": "int8" }), "encoding_format"),
        (json!({ "input": "x", "dimensions": 7 }), "dimensions"),
        (json!({ "input": "x", "pooling": "max" }), "pooling"),
    ] {
        let answer = embed(wrong.clone());
        assert_eq!(answer.status, 400, "{wrong}: {answer:?}");
        assert!(answer.error().contains(field), "{wrong}: {}", answer.error());
    }
    server.generator.change(|script| script.end = End::Failed(FailureKind::OutOfMemory));
    assert_eq!(embed(json!({ "input": "x" })).status, 503);
    server.generator.change(|script| script.end = End::Vanish);
    assert_eq!(embed(json!({ "input": ["x", "y"] })).status, 500);
}

#[test]
fn a_client_that_goes_away_cancels_its_embeddings() {
    let server = server();
    server.generator.say(&[]);
    server.generator.change(|script| script.end = End::Hang);
    let body = json!({ "input": ["a", "b", "c"] }).to_string();
    let mut client = server.connect();
    let head =
        format!("POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(format!("{head}{body}").as_bytes()).unwrap();
    server.generator.wait_running();
    drop(client);
    assert!(server.generator.wait_idle());
}

#[test]
fn the_openapi_document_defines_each_schema_once_and_those_it_refers_to() {
    let text = server().get("/openapi.json").body;
    let (_, section) = text.split_once("\"schemas\": {").unwrap();
    let defined: Vec<&str> = (section.lines().take_while(|line| !line.starts_with("    }")))
        .filter_map(|line| line.strip_prefix("      \"")?.strip_suffix("\": {"))
        .collect();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert_eq!(defined.len(), schemas.len(), "a schema is defined twice");
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
}

#[test]
fn the_openapi_document_lists_exactly_the_routes() {
    let server = server();
    let document = server.get("/openapi.json").json();
    let mut described = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(
                operation["summary"].is_string() && operation["responses"].is_object(),
                "{method} {path}"
            );
            described.push((method.clone(), path.replace("{model}", "{*model}")));
        }
    }
    let mut routes: Vec<(String, String)> =
        route_list().into_iter().map(|(method, path)| (method, path.to_string())).collect();
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
}
