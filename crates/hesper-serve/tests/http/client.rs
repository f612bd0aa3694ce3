//! A plain HTTP/1.1 client over TCP, and a server for the tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use hesper_lm::{LanguageModel, LoadOptions, demo};
use hesper_serve::http::{Handle, Server, ServerOptions};
use serde_json::Value;

use crate::scripted::Scripted;

/// The demo model with a chat template that supports tools and reasoning.
pub fn language() -> Arc<LanguageModel> {
    static MODEL: OnceLock<Arc<LanguageModel>> = OnceLock::new();
    let load = || {
        let folder = std::env::temp_dir().join(format!("hesper-serve-http-{}", std::process::id()));
        demo::write(&folder).unwrap();
        let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls }}\n{% endfor %}\
            {% if tools %}<tool_call></tool_call>{{ tools | tojson }}{% endif %}\
            {% if messages[0].content == 'refuse' %}{{ raise_exception('no such talk') }}{% endif %}<think></think>";
        std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
        let model = LanguageModel::load(&folder, &LoadOptions::default()).unwrap();
        // Weights stay mapped.
        let _ = std::fs::remove_dir_all(&folder);
        Arc::new(model)
    };
    MODEL.get_or_init(load).clone()
}

/// A server that runs on a thread. It is stopped when this is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub generator: Arc<Scripted>,
    pub handle: Handle,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Running {
    pub fn start(options: ServerOptions) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(ServerOptions { address, ..options }).unwrap();
        let (address, handle) = (server.address(), server.handle());
        let generator = Arc::new(Scripted::default());
        handle.ready("demo", language(), generator.clone());
        let thread = Some(std::thread::spawn(move || server.run()));
        Running { address, generator, handle, thread }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends bytes, and reads until the server closes the connection.
    pub fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // A server that refuses the request may close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let host = if headers.to_lowercase().contains("host:") { "" } else { "Host: localhost\r\n" };
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        Answer::parse(&self.raw(text.as_bytes()))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "", &body.to_string())
    }

    pub fn chat(&self, body: Value) -> Answer {
        self.post("/v1/chat/completions", &chat_body(body))
    }

    /// Stops the server and waits until it has stopped.
    pub fn stop(mut self) -> Result<(), String> {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Adds a message to a body without messages.
pub fn chat_body(mut body: Value) -> Value {
    if body.get("messages").is_none() {
        body["messages"] = serde_json::json!([{ "role": "user", "content": "The evening star" }]);
    }
    body
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer: status, headers in lower case, body without its chunks.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Answer {
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let headers = head.to_lowercase();
        let body = match headers.contains("transfer-encoding: chunked") {
            true => unchunked(body),
            false => body.to_string(),
        };
        Answer { status, headers, body }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The data of server-sent events.
    pub fn events(&self) -> Vec<String> {
        self.body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).map(str::to_string).collect()
    }

    /// The message of an error, after a check of its fields.
    pub fn error(&self) -> String {
        let value = self.json();
        let error = value["error"].as_object().unwrap();
        assert!(["message", "type", "param", "code"].iter().all(|key| error.contains_key(*key)), "{value}");
        error["message"].as_str().unwrap().to_string()
    }
}

fn unchunked(mut text: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        if length == 0 || rest.len() < length {
            break;
        }
        body.push_str(&rest[..length]);
        text = rest[length..].trim_start_matches("\r\n");
    }
    body
}
