//! Hostile and invalid requests: each gets an error that names the cause, and the server continues.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use hesper_serve::http::ServerOptions;
use serde_json::{Value, json};

use crate::client::{Running, chat_body};
use crate::scripted::End;

fn server() -> Running {
    let server = Running::start(ServerOptions {
        client_timeout: Duration::from_millis(400),
        ..ServerOptions::default()
    });
    server.generator.say(&["ok"]);
    server
}

fn tool(function: Value) -> Value {
    json!({ "tools": [{ "type": "function", "function": function }] })
}

fn message(message: Value) -> Value {
    json!({ "messages": [message] })
}

#[test]
fn messages_about_integers_agree_with_the_value() {
    let server = server();
    for (body, message) in [
        (json!({ "seed": 1.25 }), "seed: must be an integer of 64 bits, not 1.25"),
        (json!({ "max_tokens": 0 }), "max_tokens: must be an integer of at least 1, not 0"),
        (
            json!({ "max_tokens": u64::MAX }),
            "max_tokens: must be an integer from 1 to 9223372036854775807, not 18446744073709551615",
        ),
    ] {
        let answer = server.post("/v1/chat/completions", &chat_body(body));
        assert_eq!((answer.status, answer.json()["error"]["message"].as_str()), (400, Some(message)));
    }
    for seed in [json!(u64::MAX), json!(i64::MIN), json!(7.0)] {
        let answer = server.post("/v1/chat/completions", &chat_body(json!({ "seed": seed })));
        assert_eq!(answer.status, 200, "{seed}");
    }
}

#[test]
fn a_path_that_is_not_utf_8_gets_an_error_in_json() {
    let server = server();
    for (method, path) in [
        ("POST", "/v1/requests/%FF%FE/cancel"),
        ("GET", "/v1/responses/%FF"),
        ("DELETE", "/v1/responses/%FF"),
        ("GET", "/v1/models/%FF"),
    ] {
        let answer = server.send(method, path, "", "");
        let error = answer.json()["error"]["message"].to_string();
        assert!(answer.status == 400 && error.contains("UTF-8"), "{path}: {error}");
    }
}

#[test]
fn invalid_fields_are_refused_by_name() {
    let server = server();
    let long = "x".repeat(70_000);
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let cases: Vec<(Value, &str)> = vec![
        (json!({ "model": 3 }), "model"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": "hi" }), "messages"),
        (json!({ "messages": [3] }), "messages[0]"),
        (message(json!({ "content": "x" })), "messages[0].role"),
        (message(json!({ "role": "root", "content": "x" })), "messages[0].role"),
        (message(json!({ "role": "user" })), "messages[0].content"),
        (message(json!({ "role": "user", "content": 5 })), "messages[0].content"),
        (
            message(json!({ "role": "user", "content": [{ "type": "image_url" }] })),
            "messages[0].content[0].type",
        ),
        (message(json!({ "role": "user", "content": [{ "type": "text" }] })), "messages[0].content[0].text"),
        (message(json!({ "role": "assistant", "tool_calls": [{}] })), "messages[0].tool_calls[0].function"),
        (message(json!({ "role": "user", "content": "refuse" })), "messages"),
        (json!({ "temperature": -1 }), "temperature"),
        (json!({ "temperature": "hot" }), "temperature"),
        (json!({ "top_p": 1.5 }), "top_p"),
        (json!({ "top_k": 1.5 }), "top_k"),
        (json!({ "min_p": -0.1 }), "min_p"),
        (json!({ "repetition_penalty": 0 }), "repetition_penalty"),
        (json!({ "frequency_penalty": 3 }), "frequency_penalty"),
        (json!({ "presence_penalty": [] }), "presence_penalty"),
        (json!({ "max_tokens": 0 }), "max_tokens"),
        (json!({ "max_tokens": -5 }), "max_tokens"),
        (json!({ "max_completion_tokens": 1e300 }), "max_completion_tokens"),
        (json!({ "n": 0 }), "n"),
        (json!({ "n": 100_000 }), "n"),
        (json!({ "seed": 1.25 }), "seed"),
        (json!({ "stop": 3 }), "stop"),
        (json!({ "stop": ["a", 3] }), "stop[1]"),
        (json!({ "stop": [""] }), "stop"),
        (json!({ "stop": vec!["a"; 17] }), "stop"),
        (json!({ "stop": "x".repeat(2000) }), "stop"),
        (json!({ "stop_token_ids": [1, -1] }), "stop_token_ids[1]"),
        (json!({ "logit_bias": { "x": 1 } }), "logit_bias.x"),
        (json!({ "logit_bias": { "1": 101 } }), "logit_bias.1"),
        (json!({ "logit_bias": { "99999999": 1 } }), "logit_bias.99999999"),
        (json!({ "logprobs": 3 }), "logprobs"),
        (json!({ "top_logprobs": 3 }), "top_logprobs"),
        (json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs"),
        (json!({ "stream": "yes" }), "stream"),
        (json!({ "stream_options": {} }), "stream_options"),
        (json!({ "stream": true, "stream_options": { "include_usage": 1 } }), "stream_options.include_usage"),
        (json!({ "timeout": 0 }), "timeout"),
        (json!({ "priority": 9999 }), "priority"),
        (json!({ "request_id": "a/b" }), "request_id"),
        (json!({ "functions": [] }), "functions"),
        (json!({ "response_format": {} }), "response_format.type"),
        (json!({ "response_format": { "type": "xml" } }), "response_format.type"),
        (json!({ "response_format": { "type": "json_schema" } }), "response_format.json_schema"),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": {} } }),
            "response_format.json_schema.schema",
        ),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": 3 } } }),
            "response_format.json_schema.schema",
        ),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": { "const": long } } } }),
            "response_format.json_schema.schema",
        ),
        (json!({ "response_format": { "type": "json_object" }, "guided_regex": "a" }), "guided_regex"),
        (json!({ "guided_regex": "" }), "guided_regex"),
        (json!({ "guided_regex": long }), "guided_regex"),
        (json!({ "guided_grammar": long }), "guided_grammar"),
        (json!({ "guided_json": "{" }), "guided_json"),
        (json!({ "guided_json": deep }), "guided_json"),
        (json!({ "guided_choice": [] }), "guided_choice"),
        (json!({ "guided_choice": [1] }), "guided_choice[0]"),
        (json!({ "tools": {} }), "tools"),
        (json!({ "tools": [{ "type": "code" }] }), "tools[0].type"),
        (json!({ "tools": vec![json!({}); 200] }), "tools"),
        (tool(json!({})), "tools[0].function.name"),
        (tool(json!({ "name": "a b" })), "tools[0].function.name"),
        (tool(json!({ "name": "f", "parameters": [] })), "tools[0].function.parameters"),
        (tool(json!({ "name": "f", "parameters": { "const": long } })), "tools[0].function.parameters"),
        (tool(json!({ "name": "f", "strict": "yes" })), "tools[0].function.strict"),
        (json!({ "tool_choice": "required" }), "tool_choice"),
        (json!({ "tool_choice": "maybe" }), "tool_choice"),
        (json!({ "tool_choice": { "type": "function" } }), "tool_choice.function"),
        (json!({ "chat_template_kwargs": 3 }), "chat_template_kwargs"),
        (json!({ "parallel_tool_calls": 3 }), "parallel_tool_calls"),
    ];
    for (body, field) in cases {
        let body = chat_body(body);
        let shown: String = body.to_string().chars().take(200).collect();
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 400, "{shown}: {answer:?}");
        assert!(answer.error().contains(field), "{shown}: {answer:?}");
        assert_eq!(answer.json()["error"]["param"], field, "{shown}");
    }
    for (body, field) in [
        (json!({}), "prompt"),
        (json!({ "prompt": 3 }), "prompt"),
        (json!({ "prompt": [] }), "prompt"),
        (json!({ "prompt": [1.5] }), "prompt[0]"),
        (json!({ "prompt": ["a", 3] }), "prompt[1]"),
        (json!({ "prompt": [[1], [99_999_999]] }), "prompt[1][0]"),
        (json!({ "prompt": vec!["a"; 500] }), "prompt"),
        (json!({ "prompt": vec!["a"; 100], "n": 2 }), "prompt"),
        (json!({ "prompt": "a", "best_of": 4 }), "best_of"),
        (json!({ "prompt": "a", "suffix": "b" }), "suffix"),
        (json!({ "prompt": "a", "echo": true, "logprobs": 1 }), "echo"),
        (json!({ "prompt": "a", "logprobs": -1 }), "logprobs"),
    ] {
        let answer = server.post("/v1/completions", &body);
        assert_eq!((answer.status, answer.error().contains(field)), (400, true), "{body}: {answer:?}");
    }
    for (path, body) in [
        ("/tokenize", json!({})),
        ("/tokenize", json!({ "prompt": 3 })),
        ("/detokenize", json!({ "tokens": [-1] })),
    ] {
        assert_eq!(server.post(path, &body).status, 400, "{path} {body}");
    }
    let unknown = server.chat(json!({ "model": "gpt-5" }));
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(server.generator.requests().len(), 0);
}

#[test]
fn bodies_that_are_not_json_and_unknown_paths_are_refused() {
    let server = server();
    let deep = "[".repeat(100_000);
    for body in ["", "{", "[]", "3", "nul", "{\"messages\":", "\u{0}", deep.as_str(), "{\"a\":1}{\"b\":2}"] {
        let answer = server.send("POST", "/v1/chat/completions", "", body);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.error().contains("the body"), "{answer:?}");
    }
    let invalid = server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\n\"\xff\xfe\"");
    assert!(invalid.starts_with("HTTP/1.1 400"), "{invalid}");
    for (method, path, status) in [
        ("GET", "/nothing", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/%2e%2e/%00", 404),
        ("POST", "/v1/requests/%ff/cancel", 400),
    ] {
        let answer = server.send(method, path, "", "");
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
}

#[test]
fn json_that_takes_much_memory_is_refused_before_it_is_parsed() {
    let server = server();
    for (unit, count, what) in [
        (r#"{"":0},"#, 1 << 16, "objects and arrays"),
        ("[],", 1 << 16, "objects and arrays"),
        ("0,", 1 << 20, "values"),
    ] {
        let body = format!(r#"{{"messages":[{}0]}}"#, unit.repeat(count));
        let answer = server.send("POST", "/v1/chat/completions", "", &body);
        assert!(answer.status == 400 && answer.error().contains(what), "{unit}: {answer:?}");
    }
    // Characters of JSON in a text do not count.
    let answer = server.chat(json!({ "user": "{[,\"\\".repeat(1 << 17) }));
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn large_bodies_that_stall_hold_a_bounded_amount_of_memory() {
    let server = Running::start(ServerOptions { max_body_bytes: 200_000, ..ServerOptions::default() });
    server.generator.say(&["ok"]);
    let large = || server.chat(json!({ "user": "x".repeat(199_000) }));
    let stalled = || {
        let mut client = server.connect();
        let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n";
        client.write_all(format!("{head}{}", "x".repeat(199_000)).as_bytes()).unwrap();
        client
    };
    let mut clients: Vec<_> = (0..40).map(|_| stalled()).collect();
    let end = Instant::now() + Duration::from_secs(10);
    let refused = loop {
        let answer = large();
        if answer.status != 200 || Instant::now() > end {
            break answer;
        }
        clients.push(stalled());
    };
    assert!(refused.status == 503 && refused.error().contains("too many large bodies"), "{refused:?}");
    assert_eq!(server.chat(json!({ "user": "x".repeat(50_000) })).status, 200, "small bodies are answered");
    drop(clients);
    while large().status != 200 {
        assert!(Instant::now() < end, "the memory of clients that are gone is not released");
    }
}

#[test]
fn long_texts_are_refused_without_tokenizing_all_of_them() {
    let server = Running::start(ServerOptions::default());
    let text = "1".repeat(7 << 20);
    let start = Instant::now();
    let refused = |path: &str, body: &Value| {
        let answer = server.post(path, body);
        let error = answer.error();
        assert!(answer.status == 400 && error.contains("more than"), "{path}: {error}");
        assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| refused("/v1/completions", &json!({ "prompt": text })));
        scope.spawn(|| refused("/v1/embeddings", &json!({ "input": ["a", text] })));
        scope.spawn(|| refused("/tokenize", &json!({ "prompt": text })));
        scope.spawn(|| {
            refused("/v1/chat/completions", &json!({ "messages": [{ "role": "user", "content": text }] }));
        });
    });
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // More tokens than the context can be counted.
    let count = server.post("/tokenize", &json!({ "prompt": "1".repeat(40_000) })).json();
    assert!(count["count"].as_u64() > count["max_model_len"].as_u64(), "{}", count["count"]);
}

#[test]
fn huge_bodies_and_heads_are_refused() {
    let server = Running::start(ServerOptions { max_body_bytes: 10_000, ..ServerOptions::default() });
    server.generator.say(&["ok"]);
    // A client that sends everything before it reads also gets the answer.
    for length in [20_000, 20_000_000] {
        let large = server.chat(json!({ "user": "x".repeat(length) }));
        assert!(large.status == 413 && large.error().contains("10000 bytes"), "{large:?}");
    }
    // A content length above the limit is refused before the body is sent: by a client that sends at once,
    // one that waits for `100 Continue`, and one that sends nothing.
    let announced = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n";
    for rest in ["\r\n{\"prompt\"", "Expect: 100-continue\r\n\r\n", "\r\n"] {
        let start = Instant::now();
        let mut client = server.connect();
        client.write_all(format!("{announced}{rest}").as_bytes()).unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413", "{rest:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{rest:?}: {:?}", start.elapsed());
    }
    // A chunked body without a content length.
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000)).repeat(30);
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let answer = server.raw(format!("{head}{chunk}0\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    for length in ["99999999999999999999999", "-1", "abc", "18446744073709551615"] {
        let text =
            format!("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{{}}");
        let answer = server.raw(text.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 4"), "{length}: {answer}");
    }
    let head = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    assert!(!server.raw(head.as_bytes()).contains("200 OK"));
    let many = "X: y\r\n".repeat(500);
    assert!(
        !server
            .raw(format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes())
            .contains("200 OK")
    );
    let path = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(200_000));
    assert!(!server.raw(path.as_bytes()).contains("200 OK"));
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn slow_clients_are_disconnected() {
    let server = server();
    let start = Instant::now();
    // Incomplete heads, a body that does not arrive, and bytes that are not HTTP.
    for text in
        ["", "GET /hea", "GET /health HTTP/1.1\r\nHost: local", "\u{16}\u{3}\u{1}", "BREW / HTCPCP\r\n\r\n"]
    {
        let answer = server.raw(text.as_bytes());
        assert!(!answer.contains("200 OK"), "{answer}");
    }
    let answer =
        server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{\"pro");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    // Sending a byte now and then does not extend the timeout.
    let mut client = server.connect();
    let slow = Instant::now();
    for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: 1234567890\r\n\r\n".iter().take(40) {
        if client.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut text = String::new();
    let _ = client.read_to_string(&mut text);
    assert!(!text.contains("200 OK") && slow.elapsed() < Duration::from_secs(5), "{text}");
    assert!(start.elapsed() < Duration::from_secs(15));
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_its_request_cancelled() {
    let server = server();
    let piece = "x".repeat(100_000);
    server.generator.say(&vec![piece.as_str(); 400]);
    server.generator.change(|script| script.end = End::Hang);
    let body = chat_body(json!({ "stream": true })).to_string();
    let mut client = server.connect();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(format!("{head}{body}").as_bytes()).unwrap();
    server.generator.wait_running();
    assert!(server.generator.wait_idle());
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes);
    assert!(
        bytes.len() < 40_000_000 && !String::from_utf8_lossy(&bytes).contains("[DONE]"),
        "{}",
        bytes.len()
    );
}

#[test]
fn connections_over_the_limit_are_refused_with_503() {
    let server = Running::start(ServerOptions { max_connections: 3, ..ServerOptions::default() });
    let held: Vec<_> = (0..3).map(|_| server.connect()).collect();
    std::thread::sleep(Duration::from_millis(100));
    let refused = server.raw(b"");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("too many connections"), "{refused}");
    drop(held);
    let start = Instant::now();
    while server.get("/health").status != 200 {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn random_changes_of_a_good_body_never_harm_the_server() {
    let server = server();
    let good = chat_body(json!({
        "model": "demo", "temperature": 0.5, "stop": ["a"], "n": 1, "logit_bias": { "3": 1 }, "stream": false,
        "tools": [{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }],
        "response_format": { "type": "text" }, "stream_options": null,
    }))
    .to_string();
    let mut seed = 7u64;
    let mut random = move |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    let pieces = [
        "null",
        "-1",
        "1e999",
        "[]",
        "{}",
        "\"\"",
        "true",
        "\\u0000",
        "\"",
        "{",
        "]",
        ",",
        "99999999999999999999",
    ];
    for _ in 0..400 {
        let mut text = good.clone();
        for _ in 0..1 + random(3) {
            let at = random(text.len());
            let to = (at + random(8)).min(text.len());
            text.replace_range(at..to, pieces[random(pieces.len())]);
        }
        let answer = server.send("POST", "/v1/chat/completions", "", &text);
        assert!(matches!(answer.status, 200 | 400 | 404), "{text}: {answer:?}");
        if answer.status != 200 {
            answer.error();
        }
    }
}
