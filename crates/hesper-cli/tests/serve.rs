//! `hesper serve` as a user runs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

fn hesper(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hesper"));
    command.arg("serve").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server with the demo model, and its address.
fn start(arguments: &[&str]) -> (Child, String) {
    let mut child = hesper(arguments).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_once("http://").unwrap().1.split(' ').next().unwrap().to_string();
    (child, address)
}

fn ask(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close");
    stream.write_all(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_model_is_served_until_the_server_is_terminated() {
    let (mut child, address) = start(&["--model", "demo", "--port", "0", "--log", "json"]);
    assert!(ask(&address, "GET", "/health", "").contains(r#"{"status":"ok"}"#));
    let body = r#"{"prompt": "A language model", "max_tokens": 8, "temperature": 0, "model": "demo"}"#;
    let answer = ask(&address, "POST", "/v1/completions", body);
    assert!(answer.contains(" reads a text and guesses the next word"), "{answer}");
    let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    child.stderr.unwrap().read_to_string(&mut log).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let generation = lines.iter().find(|line| line["event"] == "generation").unwrap();
    assert_eq!((&generation["outcome"], &generation["completion_tokens"]), (&"finished".into(), &8.into()));
    assert!(!log.contains("language") && !log.contains("guesses"), "{log}");
}

#[test]
fn invalid_arguments_are_refused_with_a_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, code, message) in [
        (vec!["--model", "demo", "--port", &port], 1, port.as_str()),
        (vec!["--model", "/nowhere", "--port", "0"], 1, "/nowhere"),
        (vec!["--port", "0", "--api-key-file", "/nowhere/keys"], 1, "/nowhere/keys"),
        (vec!["--port", "0", "--tls-cert", "/nowhere/c", "--tls-key", "/nowhere/k"], 1, "/nowhere/c"),
        (vec!["--tls-cert", "/nowhere/c"], 2, "--tls-key"),
        (vec!["--host", "example.org"], 2, "example.org"),
        (vec!["--port", "0", "--drain", "18446744073709551615"], 1, "drain"),
        (vec!["--port", "0", "--client-timeout", "0"], 1, "client_timeout"),
        (vec!["--port", "0", "--max-connections", "18446744073709551615"], 1, "max_connections"),
        (vec!["--port", "70000"], 2, "70000"),
    ] {
        let output = hesper(&arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
}
