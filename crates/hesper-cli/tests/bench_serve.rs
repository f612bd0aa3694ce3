//! `hesper bench serve` against a stub server in this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// How the stub answers requests for a completion.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    /// Streams the tokens in chunks that split lines.
    Streams,
    /// Streams without chunks or a content length, and reports no usage.
    StreamsToEnd,
    /// Closes the connection in the middle of the stream.
    Truncates,
    /// Reports an error in the stream.
    FailsInStream,
    /// Answers 429: the queue is full.
    Refuses,
    /// Answers 400: the request is invalid.
    Rejects,
    /// Does not speak HTTP.
    NotHttp,
}

struct Stub {
    url: String,
    /// The bodies of the requests and the number of clients that disconnected.
    seen: Arc<Mutex<(Vec<Value>, usize)>>,
}

impl Stub {
    fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<(Vec<Value>, usize)>> = Arc::default();
        let shared = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    if answer(stream.unwrap(), behaviour, &shared).is_err() {
                        shared.lock().unwrap().1 += 1;
                    }
                });
            }
        });
        Stub { url, seen }
    }

    fn bench(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        bench(&[&["--url", &self.url, "--seconds", "0.5", "--timeout", "5"], arguments].concat())
    }
}

fn bench(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_hesper")).args(["bench", "serve"]).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn answer(
    mut stream: TcpStream,
    behaviour: Behaviour,
    seen: &Mutex<(Vec<Value>, usize)>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let from = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
        if let Some(value) = head[from..].strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if behaviour == Behaviour::NotHttp {
        return stream.write_all(b"220 mail ready\r\n");
    }
    if head.starts_with("GET /v1/models ") {
        return whole(&mut stream, "200 OK", &json!({ "data": [{ "id": "stub" }] }));
    }
    assert!(head.starts_with("POST /v1/completions HTTP/1.1\r\n"), "{head}");
    let request: Value = serde_json::from_slice(&body).unwrap();
    seen.lock().unwrap().0.push(request.clone());
    let error = json!({ "error": { "message": "max_tokens is too <large>" } });
    match behaviour {
        Behaviour::Refuses => return whole(&mut stream, "429 Too Many Requests\r\nRetry-After: 1", &error),
        Behaviour::Rejects => return whole(&mut stream, "400 Bad Request", &error),
        _ => {}
    }
    let chunked = behaviour != Behaviour::StreamsToEnd;
    let coding = if chunked { "Transfer-Encoding: chunked\r\n" } else { "" };
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{coding}\r\n")?;
    let mut send = |text: &str| -> std::io::Result<()> {
        if !chunked {
            return stream.write_all(text.as_bytes());
        }
        let (one, other) = text.split_at(text.len() / 2);
        for part in [one, other] {
            write!(stream, "{:x};ignored\r\n{part}\r\n", part.len())?;
        }
        Ok(())
    };
    send(": keep-alive\n\n")?;
    let tokens = request["max_tokens"].as_u64().unwrap();
    for at in 0..tokens {
        if behaviour == Behaviour::Truncates && at == 2 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(if at == 0 { 10 } else { 2 }));
        send(&format!("data: {}\r\n\r\n", json!({ "choices": [{ "text": "a", "finish_reason": null }] })))?;
    }
    if behaviour == Behaviour::FailsInStream {
        return send(&format!("data: {}\n\n0\r\n\r\n", json!({ "error": { "message": "out of memory" } })));
    }
    send(&format!("data: {}\n\n", json!({ "choices": [{ "text": "", "finish_reason": "length" }] })))?;
    if chunked {
        let usage = json!({ "prompt_tokens": 10, "completion_tokens": tokens, "prompt_tokens_details": { "cached_tokens": 5 } });
        send(&format!("data: {}\n\n", json!({ "choices": [], "usage": usage })))?;
    }
    send("data: [DONE]\n\n")?;
    if chunked { stream.write_all(b"0\r\n\r\n") } else { Ok(()) }
}

fn whole(stream: &mut TcpStream, status: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_closed_loop_reports_times_that_the_server_causes() {
    let stub = Stub::start(Behaviour::Streams);
    let (code, out, err) = stub.bench(&["--clients", "1,4", "--tokens", "8", "--prompt", "3:5", "--json"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["model"], "stub");
    let loads = report["loads"].as_array().unwrap();
    assert_eq!(loads.iter().map(|load| load["clients"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    for load in loads {
        assert!(load["completed"].as_u64().unwrap() >= 2, "{load}");
        assert_eq!((&load["failed"], &load["cached_share"]), (&json!(0), &json!(0.5)));
        assert!(load["first_token_seconds"]["p50"].as_f64().unwrap() >= 0.01, "{load}");
        assert!(load["inter_token_seconds"]["p50"].as_f64().unwrap() >= 0.002, "{load}");
        assert!(load["request_seconds"]["p99"].as_f64().unwrap() >= 0.024, "{load}");
    }
    let requests = &stub.seen.lock().unwrap().0;
    for request in requests {
        let words = request["prompt"].as_str().unwrap().split(' ').count();
        assert!((3..=5).contains(&words), "{request}");
        assert_eq!((&request["stream"], &request["ignore_eos"]), (&json!(true), &json!(true)));
    }
}

#[test]
fn an_open_loop_sends_at_its_rate_and_prompts_share_a_prefix() {
    let stub = Stub::start(Behaviour::StreamsToEnd);
    let arguments =
        ["--rate", "80", "--tokens", "4", "--shared-prefix", "50", "--prompt", "6", "--seconds", "2"];
    let (code, out, err) = bench(&[&["--url", stub.url.as_str()][..], &arguments].concat());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let row = out.lines().last().unwrap();
    assert!(row.starts_with("80/s "), "{out}");
    let requests = &stub.seen.lock().unwrap().0;
    assert!((90..=240).contains(&requests.len()), "{}", requests.len());
    let words = |at: usize| requests[at]["prompt"].as_str().unwrap().split(' ').collect::<Vec<_>>();
    assert_eq!((words(0).len(), &words(0)[..50]), (56, &words(1)[..50]));
    assert_ne!(words(0)[50..], words(1)[50..]);
}

#[test]
fn disconnected_clients_are_counted_separately() {
    let stub = Stub::start(Behaviour::Streams);
    let (code, out, _) = stub.bench(&["--clients", "4", "--disconnects", "0.5", "--tokens", "30", "--json"]);
    assert_eq!(code, Some(0));
    let load = &serde_json::from_str::<Value>(&out).unwrap()["loads"][0];
    assert!(load["disconnected"].as_u64().unwrap() > 0, "{load}");
    assert!(load["completed"].as_u64().unwrap() > 0 && load["failed"] == json!(0), "{load}");
    assert!(stub.seen.lock().unwrap().1 > 0);
}

#[test]
fn refusals_and_failures_are_counted_and_the_plot_is_still_drawn() {
    let plot = std::env::temp_dir().join(format!("hesper-bench-{}.svg", std::process::id()));
    for (behaviour, count, message) in [
        (Behaviour::Refuses, "refused", ""),
        (Behaviour::Rejects, "failed", "status 400: {\"error\":{\"message\":\"max_tokens is too <large>\"}}"),
        (Behaviour::Truncates, "failed", "the connection was lost"),
        (Behaviour::FailsInStream, "failed", "out of memory"),
    ] {
        let stub = Stub::start(behaviour);
        let (code, out, err) = stub.bench(&[
            "--clients",
            "2",
            "--tokens",
            "4",
            "--plot",
            plot.to_str().unwrap(),
            "--model",
            "a<b&c",
        ]);
        assert_eq!(code, Some(1), "{out}{err}");
        assert!(out.lines().last().unwrap().contains(count), "{out}");
        assert!(err.contains(message) && err.contains("no request was answered"), "{err}");
        let svg = std::fs::read_to_string(&plot).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a&lt;b&amp;c") && !svg.contains("NaN"), "{svg}");
    }
    std::fs::remove_file(plot).unwrap();
}

#[test]
fn an_unreachable_or_non_http_server_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, _, err) = bench(&["--url", &format!("http://{free}")]);
    assert_eq!(code, Some(1));
    assert!(err.contains(&format!("cannot connect to {free}")), "{err}");
    let (code, _, err) = Stub::start(Behaviour::NotHttp).bench(&[]);
    assert_eq!(code, Some(1));
    assert!(err.contains("does not speak HTTP/1.1: \"220 mail ready\""), "{err}");
}

#[test]
fn invalid_arguments_are_refused_with_a_reason() {
    for (arguments, message) in [
        (&["--url", "https://x"][..], "expected http://HOST:PORT"),
        (&["--url", "http://"], "no host"),
        (&["--url", "http://a:b"], "\"b\" is not a port"),
        (&["--url", "http://a b:1"], "no host"),
        (&["--rate", "0"], "--rate 0"),
        (&["--rate", "nan"], "--rate NaN"),
        (&["--seconds", "-1"], "--seconds -1"),
        (&["--disconnects", "2"], "--disconnects 2"),
        (&["--clients", "0"], "0 is not in 1..=4096"),
        (&["--prompt", "9:3"], "FROM not above TO"),
        (&["--api-key-file", "/nowhere"], "/nowhere"),
    ] {
        let mut arguments = arguments.to_vec();
        let last = arguments.pop().unwrap();
        let joined = format!("{}={last}", arguments.pop().unwrap());
        let (code, _, err) = bench(&[&joined]);
        assert!(matches!(code, Some(1 | 2)) && err.contains(message), "{joined}: {err}");
    }
}
