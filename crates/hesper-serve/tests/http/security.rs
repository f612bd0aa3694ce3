//! Access control: API keys, host names and origins.

use hesper_serve::http::{ApiKeys, ServerOptions};
use serde_json::json;

use crate::client::Running;
use crate::scripted::End;

fn file(name: &str, text: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("hesper-serve-{name}-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn keys_are_required_except_for_health_and_pages_and_identify_tenants() {
    let path = file("keys", "# keys\n\n first-key \nsecond-key\n");
    let api_keys = Some(ApiKeys::read(&path).unwrap());
    let server = Running::start(ServerOptions { api_keys, ..ServerOptions::default() });
    server.generator.say(&["x"]);
    for (method, path) in [
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/inspect/data"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/tokenize"),
        ("POST", "/v1/requests/x/cancel"),
    ] {
        for header in [
            "",
            "Authorization: Bearer first-keY\r\n",
            "Authorization: Bearer\r\n",
            "Authorization: Basic first-key\r\n",
            "Authorization: Bearer \u{e9}\r\n",
        ] {
            let answer = server.send(method, path, header, "{}");
            assert_eq!(answer.status, 401, "{method} {path} {header:?}");
            assert!(answer.error().contains("API key"));
        }
    }
    for path in ["/health", "/", "/inspect", "/openapi.json"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let body = json!({ "prompt": "The sun" }).to_string();
    for key in ["first-key", "second-key", "first-key"] {
        let header = format!("Authorization: Bearer {key}\r\n");
        assert_eq!(server.send("POST", "/v1/completions", &header, &body).status, 200);
    }
    let tenants: Vec<u64> = server.generator.requests().iter().map(|request| request.tenant).collect();
    assert!(tenants[0] == tenants[2] && tenants[0] != tenants[1] && !tenants.contains(&0), "{tenants:?}");

    server.generator.change(|script| script.end = End::Hang);
    std::thread::scope(|scope| {
        let body = json!({ "prompt": "The sun", "request_id": "r" }).to_string();
        let server = &server;
        scope.spawn(move || {
            server.send("POST", "/v1/completions", "Authorization: Bearer first-key\r\n", &body)
        });
        server.generator.wait_running();
        let cancel = |key: &str| {
            let header = format!("Authorization: Bearer {key}\r\n");
            server.send("POST", "/v1/requests/r/cancel", &header, "").status
        };
        assert_eq!(cancel("second-key"), 404, "a request belongs to its tenant");
        assert_eq!(cancel("first-key"), 200);
    });
}

#[test]
fn files_without_keys_are_refused() {
    for text in ["", "# only a comment\n", "a key with spaces\n", "k\u{e9}y\n"] {
        assert!(ApiKeys::read(&file("no-keys", text)).is_err(), "{text:?}");
    }
    assert!(ApiKeys::read(std::path::Path::new("/nowhere/keys")).unwrap_err().contains("/nowhere/keys"));
    let keys = ApiKeys::read(&file("secret", "secret-key\n")).unwrap();
    assert!(!format!("{keys:?}").contains("secret"));
}

#[test]
fn unknown_host_names_are_refused_unless_they_are_allowed() {
    let server = Running::start(ServerOptions {
        allowed_hosts: vec!["llm.example".into()],
        ..ServerOptions::default()
    });
    let status = |host: &str| server.send("GET", "/v1/models", &format!("Host: {host}\r\n"), "").status;
    for host in [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:1",
        "[::1]:8080",
        "192.168.0.7",
        "llm.example",
        "LLM.example:443",
    ] {
        assert_eq!(status(host), 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "llm.example.evil"]
    {
        assert_eq!(status(host), 403, "{host}");
    }
    for host in ["", "a b", "user@localhost", "localhost\r\nHost: localhost"] {
        assert_eq!(status(host), 400, "{host:?}");
    }
    assert!(server.raw(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 400"));
    let error = server.send("GET", "/health", "Host: evil.example\r\n", "").error();
    assert!(error.contains("--allow-host evil.example"), "{error}");
}

#[test]
fn pages_of_other_origins_are_refused_unless_they_are_allowed() {
    let strict = Running::start(ServerOptions::default());
    let open = Running::start(ServerOptions {
        allowed_origins: vec!["https://app.example".into()],
        ..ServerOptions::default()
    });
    for server in [&strict, &open] {
        server.generator.say(&["x"]);
        let status = |headers: &str| {
            let body = json!({ "prompt": "The sun" }).to_string();
            server
                .send("POST", "/v1/completions", &format!("Host: localhost:8080\r\n{headers}"), &body)
                .status
        };
        assert_eq!(status(""), 200);
        assert_eq!(status("Origin: http://localhost:8080\r\n"), 200);
        for origin in [
            "null",
            "http://localhost:9090",
            "http://localhost",
            "https://evil.example",
            "http://localhost:8080.evil.example",
        ] {
            assert_eq!(status(&format!("Origin: {origin}\r\n")), 403, "{origin}");
        }
        assert_eq!(status("Sec-Fetch-Site: cross-site\r\n"), 403);
        let allowed = status("Origin: https://app.example\r\n");
        assert_eq!(allowed == 200, std::ptr::eq(server, &open));
    }
    let preflight = "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
    let answer = open.send("OPTIONS", "/v1/completions", preflight, "");
    assert!(
        answer.status == 200 && answer.headers.contains("access-control-allow-origin: https://app.example"),
        "{answer:?}"
    );
    assert!(answer.headers.contains("access-control-allow-headers: authorization"), "{answer:?}");
    let answer = strict.send("OPTIONS", "/v1/completions", preflight, "");
    assert!(answer.status == 403 && !answer.headers.contains("access-control"), "{answer:?}");
}
