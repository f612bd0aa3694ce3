//! The options of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::guard::ApiKeys;

/// Where and how the server listens, and its limits.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The address to listen on. Port 0 picks a free port.
    pub address: SocketAddr,
    /// The API keys that clients have to send. Without keys every client is accepted.
    pub api_keys: Option<ApiKeys>,
    /// Host names of the server in addition to `localhost` and IP addresses. `*` allows every name.
    pub allowed_hosts: Vec<String>,
    /// Other origins whose pages may use the server, such as `https://example.org`. `*` allows every origin.
    pub allowed_origins: Vec<String>,
    /// The certificate chain and the private key, as PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The most connections at once.
    pub max_connections: usize,
    /// The most bytes of a body.
    pub max_body_bytes: usize,
    /// The most tokens of an answer.
    pub max_tokens: usize,
    /// How long a client may take to send the head of a request, to send its body, and to accept a part of
    /// the answer.
    pub client_timeout: Duration,
    /// The interval of keep-alive comments in an event stream without events.
    pub keep_alive: Duration,
    /// How long running requests may take after the server was asked to stop.
    pub drain: Duration,
    /// The format of the log.
    pub log: LogFormat,
    /// Whether the log has prompts and answers.
    pub log_prompts: bool,
    /// Whether SIGTERM and Ctrl-C stop the server.
    pub handle_signals: bool,
}

/// The longest time that an option may give.
const MAX_TIME: Duration = Duration::from_secs(365 * 86_400);
/// The most connections that an option may allow.
const MAX_CONNECTIONS: usize = 1 << 20;

impl ServerOptions {
    /// Refuses limits with which the server cannot run.
    pub(crate) fn check(&self) -> Result<(), String> {
        let times =
            [("client_timeout", self.client_timeout), ("keep_alive", self.keep_alive), ("drain", self.drain)];
        for (name, time) in times {
            if time > MAX_TIME || (time.is_zero() && name != "drain") {
                let least = if name == "drain" { "at least 0" } else { "more than 0" };
                let most = MAX_TIME.as_secs();
                let given = time.as_secs_f64();
                return Err(format!("{name} is {given} s; it must be {least} and at most {most} s, a year"));
            }
        }
        let counts = [
            ("max_connections", self.max_connections, MAX_CONNECTIONS),
            ("max_body_bytes", self.max_body_bytes, usize::MAX),
            ("max_tokens", self.max_tokens, usize::MAX),
        ];
        match counts.into_iter().find(|(_, count, most)| *count == 0 || count > most) {
            None => Ok(()),
            Some((name, count, usize::MAX)) => Err(format!("{name} is {count}; it must be at least 1")),
            Some((name, count, most)) => Err(format!("{name} is {count}; it must be from 1 to {most}")),
        }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            api_keys: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tls: None,
            max_connections: 1024,
            max_body_bytes: 8 << 20,
            max_tokens: usize::MAX,
            client_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            log: LogFormat::Off,
            log_prompts: false,
            handle_signals: false,
        }
    }
}

/// The format of the log on standard error, one line for each event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// No log.
    Off,
    /// `key=value` pairs.
    Text,
    /// JSON objects.
    Json,
}
