//! Clients that disconnect, and the start and stop of the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hesper_serve::http::{Server, ServerOptions};
use serde_json::json;

use crate::client::{Answer, Running, chat_body, language};
use crate::scripted::{End, Scripted};

fn hanging() -> Running {
    let server = Running::start(ServerOptions::default());
    server.generator.say(&["a", "b"]);
    server.generator.change(|script| script.end = End::Hang);
    server
}

fn request(stream: bool) -> String {
    let body = chat_body(json!({ "stream": stream, "n": 2 })).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_client_that_disconnects_cancels_its_request_in_every_phase() {
    let server = hanging();
    for stream in [false, true] {
        let text = request(stream);
        // In the middle of the head, of the body, and before the answer.
        for length in [10, 60, text.len() - 5] {
            let mut client = server.connect();
            client.write_all(&text.as_bytes()[..length]).unwrap();
            drop(client);
        }
        let mut client = server.connect();
        client.write_all(text.as_bytes()).unwrap();
        server.generator.wait_running();
        drop(client);
        assert!(server.generator.wait_idle(), "stream: {stream}");
        // In the middle of the answer.
        let mut client = server.connect();
        client.write_all(text.as_bytes()).unwrap();
        if stream {
            let mut lines = BufReader::new(&client).lines();
            assert!(lines.any(|line| line.unwrap().contains("content")));
        }
        server.generator.wait_running();
        client.shutdown(Shutdown::Both).unwrap();
        assert!(server.generator.wait_idle(), "stream: {stream}");
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn limits_with_which_a_server_cannot_run_are_refused() {
    let day = Duration::from_secs(86_400);
    let free =
        || ServerOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerOptions::default() };
    for (options, name) in [
        (ServerOptions { drain: Duration::MAX, ..free() }, "drain"),
        (ServerOptions { client_timeout: Duration::MAX, ..free() }, "client_timeout"),
        (ServerOptions { client_timeout: Duration::ZERO, ..free() }, "client_timeout"),
        (ServerOptions { keep_alive: 366 * day, ..free() }, "keep_alive"),
        (ServerOptions { max_connections: usize::MAX, ..free() }, "max_connections"),
        (ServerOptions { max_connections: 0, ..free() }, "max_connections"),
        (ServerOptions { max_body_bytes: 0, ..free() }, "max_body_bytes"),
        (ServerOptions { max_tokens: 0, ..free() }, "max_tokens"),
    ] {
        let error = Server::bind(options).err().unwrap_or_default();
        assert!(error.starts_with(name), "{name}: {error:?}");
    }
    let largest = ServerOptions { drain: 365 * day, client_timeout: 365 * day, max_tokens: 1, ..free() };
    assert!(Server::bind(largest).is_ok());
}

#[test]
fn a_connection_serves_many_requests_one_after_the_other() {
    let server = Running::start(ServerOptions::default());
    let mut client = server.connect();
    for _ in 0..20 {
        client.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut bytes = [0; 512];
        let count = client.read(&mut bytes).unwrap();
        assert!(String::from_utf8_lossy(&bytes[..count]).starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn running_requests_finish_when_the_server_stops() {
    let server = Running::start(ServerOptions::default());
    server.generator.say(&["one ", "two ", "three"]);
    server.generator.change(|script| script.delay = Duration::from_millis(120));
    let mut clients: Vec<_> = [false, true]
        .map(|stream| {
            let mut client = server.connect();
            client.write_all(request(stream).as_bytes()).unwrap();
            client
        })
        .into_iter()
        .collect();
    let idle = server.connect();
    while server.generator.requests().len() < 4 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let (address, start) = (server.address, Instant::now());
    server.stop().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    for client in &mut clients {
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        let answer = Answer::parse(&text);
        assert!(answer.status == 200 && answer.body.contains("three"), "{answer:?}");
    }
    drop(idle);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn requests_that_do_not_finish_in_time_are_cancelled_when_the_server_stops() {
    let server =
        Running::start(ServerOptions { drain: Duration::from_millis(200), ..ServerOptions::default() });
    server.generator.say(&["a"]);
    server.generator.change(|script| script.end = End::Hang);
    let mut client = server.connect();
    client.write_all(request(false).as_bytes()).unwrap();
    server.generator.wait_running();
    let start = Instant::now();
    server.stop().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(Answer::parse(&text).json()["choices"][0]["finish_reason"], "cancelled");
}

#[test]
fn a_server_reports_loading_until_it_is_ready() {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(ServerOptions { address, ..ServerOptions::default() }).unwrap();
    let taken = ServerOptions { address: server.address(), ..ServerOptions::default() };
    assert!(Server::bind(taken).err().unwrap().contains("cannot listen"));
    let (address, handle) = (server.address(), server.handle());
    let thread = std::thread::spawn(move || server.run());
    let ask = |path: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        Answer::parse(&answer)
    };
    handle.loading("weights");
    let health = ask("/health");
    assert_eq!((health.status, health.json()), (503, json!({ "status": "loading", "what": "weights" })));
    let models = ask("/v1/models");
    assert!(models.status == 503 && models.error().contains("loading"), "{models:?}");
    handle.ready("demo", language(), Arc::new(Scripted::default()));
    assert_eq!((ask("/health").status, ask("/v1/models").status), (200, 200));
    handle.fail("the model is broken".into());
    assert_eq!(thread.join().unwrap(), Err("the model is broken".into()));
}
