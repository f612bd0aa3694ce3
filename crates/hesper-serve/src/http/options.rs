//! The options of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::guard::ApiKeys;

/// Where and how the server listens, and its limits.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The address to listen on. Port 0 takes a free one.
    pub address: SocketAddr,
    /// The keys that clients have to send; none lets everybody in.
    pub api_keys: Option<ApiKeys>,
    /// Names by which the server is reached, beside `localhost` and IP addresses. `*` allows every name.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages elsewhere that may use the server, as `https://example.org`. `*` allows every page.
    pub allowed_origins: Vec<String>,
    /// The certificate chain and the private key, as PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The most connections at once.
    pub max_connections: usize,
    /// The most bytes of a body.
    pub max_body_bytes: usize,
    /// The most tokens of an answer.
    pub max_tokens: usize,
    /// How long a client may take for the head of a request, for its body, and to accept a part of the
    /// answer.
    pub client_timeout: Duration,
    /// How often a stream without events sends a comment.
    pub keep_alive: Duration,
    /// How long running requests may take after the server was asked to stop.
    pub drain: Duration,
    /// What is logged.
    pub log: LogFormat,
    /// Whether prompts and answers are logged too.
    pub log_prompts: bool,
    /// Whether SIGTERM and Ctrl-C stop the server.
    pub handle_signals: bool,
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

/// The format of the log on standard error: a line for each request, without its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// No log.
    Off,
    /// `key=value` pairs.
    Text,
    /// JSON objects.
    Json,
}
