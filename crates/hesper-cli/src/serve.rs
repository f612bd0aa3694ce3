//! `hesper serve`: a server with the API of OpenAI.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use hesper::placement::Device;
use hesper_lm::LanguageModel;
use hesper_serve::engine::{Engine, EngineOptions};
use hesper_serve::http::{ApiKeys, Handle, LogFormat, Server, ServerOptions};
use hesper_serve::protocol::{Generator, Health};
use hesper_serve::worker::{self, Supervisor, SupervisorOptions};

use crate::Failure;
use crate::model_args::ModelArgs;

/// Serves a model to many clients at once.
///
/// The API is that of OpenAI: clients use http://HOST:PORT/v1. A chat page is at /, the state of the server
/// at /inspect.
#[derive(Args)]
#[command(
    after_help = "Ctrl-C or SIGTERM stops the server when the running requests are answered; twice stops it at once."
)]
pub struct Serve {
    #[command(flatten)]
    model: ModelArgs,
    /// The name of the model for clients [default: the value of --model, without folders]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The address to listen on; 0.0.0.0 or :: for all networks
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port; 0 for a free one
    #[arg(long, short, default_value_t = 8080)]
    port: u16,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    limits: Limits,
    /// Run the model in a separate process, which is restarted when it exits [default: on GPUs]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    isolate: Option<bool>,
    /// Make answers on a GPU independent of other requests: every step then takes as long as a full one.
    /// On the CPU answers never depend on other requests
    #[arg(long)]
    fixed_order: bool,
    /// The most draft tokens of a sequence in a step (speculative decoding by prompt lookup), while few
    /// requests run. On the CPU they do not change answers [default: 4 on the CPU, 0 on GPUs]
    #[arg(long, value_name = "COUNT")]
    draft_tokens: Option<usize>,
    /// Run as that process
    #[arg(long, hide = true)]
    worker: bool,
    /// The format of the log on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "off")]
    log: Log,
    /// Also write prompts and answers to the log
    #[arg(long)]
    log_prompts: bool,
}

/// Access control.
#[derive(Args)]
#[command(next_help_heading = "Access")]
struct Access {
    /// A file with API keys, one per line; clients have to send one of them
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// A host name of the server, in addition to localhost and IP addresses; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Let pages of this origin use the server, such as https://example.org; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// The certificate chain, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// Limits of the server.
#[derive(Args)]
#[command(next_help_heading = "Limits")]
struct Limits {
    /// Memory for keys and values in MiB [default: chosen for the device]
    #[arg(long, value_name = "MIB")]
    kv_memory: Option<u64>,
    /// Store keys and values in 16 bits, or quantize them to 8 or 4 bits [default: the type of the model]
    #[arg(long, value_name = "BITS")]
    kv_bits: Option<usize>,
    /// The most requests that run at once
    #[arg(long, value_name = "COUNT", default_value_t = EngineOptions::default().max_running)]
    max_running: usize,
    /// The most requests that wait; more are refused with status 429
    #[arg(long, value_name = "COUNT", default_value_t = EngineOptions::default().max_waiting)]
    max_waiting: usize,
    /// The most tokens of an answer [default: the context of the model]
    #[arg(long, value_name = "COUNT")]
    max_tokens: Option<usize>,
    /// The most connections at once
    #[arg(long, value_name = "COUNT", default_value_t = ServerOptions::default().max_connections)]
    max_connections: usize,
    /// The largest request body in MiB
    #[arg(long, value_name = "MIB", default_value_t = 8)]
    max_body: usize,
    /// Seconds that a client may take to send a request, or to accept a part of the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    client_timeout: u64,
    /// Seconds that running requests may take after the server was asked to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Log {
    /// No log
    Off,
    /// key=value pairs
    Text,
    /// JSON objects
    Json,
}

impl Serve {
    fn options(&self) -> Result<ServerOptions, String> {
        let Access { api_key_file, allow_host, allow_origin, tls_cert, tls_key } = &self.access;
        let limits = &self.limits;
        Ok(ServerOptions {
            address: SocketAddr::new(self.host, self.port),
            api_keys: api_key_file.as_deref().map(ApiKeys::read).transpose()?,
            allowed_hosts: allow_host.clone(),
            allowed_origins: allow_origin.clone(),
            tls: tls_cert.clone().zip(tls_key.clone()),
            max_connections: limits.max_connections,
            max_body_bytes: limits.max_body.saturating_mul(1 << 20),
            max_tokens: limits.max_tokens.unwrap_or(usize::MAX),
            client_timeout: Duration::from_secs(limits.client_timeout),
            drain: Duration::from_secs(limits.drain),
            log: match self.log {
                Log::Off => LogFormat::Off,
                Log::Text => LogFormat::Text,
                Log::Json => LogFormat::Json,
            },
            log_prompts: self.log_prompts,
            handle_signals: true,
            ..ServerOptions::default()
        })
    }

    fn engine(&self, language: Arc<LanguageModel>) -> Result<Engine, String> {
        let options = EngineOptions {
            kv_bytes: self.limits.kv_memory.map(|mib| mib.saturating_mul(1 << 20)),
            kv_bits: self.limits.kv_bits,
            max_running: self.limits.max_running,
            max_waiting: self.limits.max_waiting,
            fixed_order: self.fixed_order,
            draft_tokens: self.draft_tokens,
            ..EngineOptions::default()
        };
        Engine::start(language, options).map_err(|error| error.to_string())
    }

    fn is_isolated(&self) -> Result<bool, String> {
        match self.isolate {
            Some(isolate) => Ok(isolate),
            None => Ok(self.model.chosen_device()?.is_some_and(|(device, _)| device != Device::Cpu)),
        }
    }

    fn name(&self) -> String {
        let path = std::path::Path::new(&self.model.model);
        let file =
            path.file_name().map_or(self.model.model.clone(), |name| name.to_string_lossy().into_owned());
        self.name.clone().unwrap_or(file)
    }
}

pub fn run(args: Serve) -> Result<(), Failure> {
    if args.worker {
        return worker::serve(|| {
            let (language, _) = args.model.load(true)?;
            Ok(Arc::new(args.engine(Arc::new(language))?))
        });
    }
    let server = Server::bind(args.options()?)?;
    let (handle, url) = (server.handle(), server.url());
    if !args.host.is_loopback() && args.access.api_key_file.is_none() {
        eprintln!(
            "hesper: everyone who can reach {} can use this server; --api-key-file restricts it",
            args.host
        );
    }
    std::thread::spawn(move || {
        if let Err(message) = load(&args, &handle, &url) {
            handle.fail(message);
        }
    });
    Ok(server.run()?)
}

/// Loads the model, starts its engine and prints the URL when the server is ready.
fn load(args: &Serve, handle: &Handle, url: &str) -> Result<(), String> {
    handle.loading("the model");
    let start = Instant::now();
    let (language, generator): (_, Arc<dyn Generator>) = match args.is_isolated()? {
        // Weights are loaded lazily, and this process uses only the tokenizer.
        true => (Arc::new(args.model.load_on_host()?), Arc::new(supervisor(args)?)),
        false => {
            let language = Arc::new(args.model.load(false)?.0);
            (language.clone(), Arc::new(args.engine(language)?))
        }
    };
    let name = args.name();
    handle.ready(&name, language, generator.clone());
    loop {
        match generator.health() {
            Health::Ok => break,
            Health::LostDevice { cause } => return Err(cause),
            Health::Stopping => return Ok(()),
            Health::Loading { .. } | Health::Stalled { .. } => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("hesper serves {name} at {url} (loaded in {seconds:.1} s; API at {url}/v1)");
    Ok(())
}

/// A supervisor that runs this program as its worker.
fn supervisor(args: &Serve) -> Result<Supervisor, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let command = move || {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).arg("--worker");
        // Ctrl-C must not reach the worker: the server stops it after all requests are answered.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    };
    let options =
        SupervisorOptions { max_waiting: args.limits.max_waiting, ..SupervisorOptions::new(command) };
    Supervisor::start(options).map_err(|error| format!("cannot start a worker: {error}"))
}
