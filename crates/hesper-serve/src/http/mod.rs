//! The HTTP layer: an API that is compatible with OpenAI's, over any [`Generator`].
//!
//! [`Server::bind`] opens the port and [`Server::run`] answers requests until the server is stopped. The
//! model may be loaded meanwhile: until [`Handle::ready`] is called, `/health` reports `loading`, and
//! requests that need the model get status 503.

mod answer;
mod chat;
mod completions;
mod embeddings;
mod error;
mod fields;
mod generation;
mod guard;
mod listen;
mod log;
mod messages;
mod metrics;
mod options;
mod params;
mod response_store;
mod responses;
mod routes;
mod state;
mod tls;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hesper_lm::LanguageModel;
use tokio::sync::watch;

use crate::protocol::Generator;
use state::State;

pub use guard::ApiKeys;
pub use options::{LogFormat, ServerOptions};
use routes::json_response;
pub use routes::route_list;

/// A server that is bound to its address.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    tls: Option<tls::TlsAcceptor>,
    handle: Handle,
}

/// Controls a server from any thread.
#[derive(Clone)]
pub struct Handle {
    state: Arc<State>,
    stop: Arc<watch::Sender<bool>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Handle {
    /// Sets what `/health` reports as being loaded.
    pub fn loading(&self, what: &str) {
        self.state.gate.set_progress(what);
    }

    /// Starts to serve a model under a name.
    pub fn ready(&self, name: &str, language: Arc<LanguageModel>, generator: Arc<dyn Generator>) {
        self.state.set_loaded(name.to_string(), language, generator);
    }

    /// Stops the server. It refuses new connections and requests; running requests may finish within
    /// [`ServerOptions::drain`].
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops the server with an error.
    pub fn fail(&self, message: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
        self.stop();
    }
}

impl Server {
    /// Opens the port.
    pub fn bind(options: ServerOptions) -> Result<Self, String> {
        options.check()?;
        let tls = tls::acceptor(&options)?;
        let address = options.address;
        let listener = std::net::TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let handle = Handle {
            state: Arc::new(State::new(options)),
            stop: Arc::new(watch::Sender::new(false)),
            failure: Arc::default(),
        };
        Ok(Server { listener, address, tls, handle })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// A handle that controls the server.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Answers requests until the server is stopped and all requests are answered.
    pub fn run(self) -> Result<(), String> {
        let Server { listener, tls, handle, .. } = self;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            // Few threads: the model needs the cores.
            .worker_threads(2)
            .max_blocking_threads(8)
            .thread_name("hesper-http")
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start threads: {error}"))?;
        let (state, stop) = (handle.state.clone(), handle.stop.subscribe());
        let options = state.options.clone();
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            if options.handle_signals {
                tokio::spawn(stop_on_signal(handle.clone())?);
            }
            let drain = {
                let (gate, limit, mut stop) = (state.gate.clone(), options.drain, stop.clone());
                tokio::spawn(async move {
                    // Cannot fail: the sender lives as long as the server.
                    let _ = stop.wait_for(|stop| *stop).await;
                    tokio::task::spawn_blocking(move || gate.drain(limit)).await
                })
            };
            listen::serve(listener, tls, routes::router(state), &options, stop).await;
            // Do not wait longer for a generator that hangs.
            let _ = tokio::time::timeout(options.drain + DRAIN_GRACE, drain).await;
            std::io::Result::Ok(())
        });
        runtime.shutdown_background();
        served.map_err(|error| format!("cannot serve: {error}"))?;
        match handle.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(message) => Err(message),
            None => Ok(()),
        }
    }
}

/// How much longer than its limit a drain may take.
const DRAIN_GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// Stops the server on the first signal and exits the process on the second one.
fn stop_on_signal(handle: Handle) -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    #[cfg(unix)]
    let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
    #[cfg(not(unix))]
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        for first in [true, false] {
            std::future::poll_fn(|context| {
                #[cfg(unix)]
                if terminate.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(());
                }
                interrupt.poll_recv(context).map(|_| ())
            })
            .await;
            if !first {
                std::process::exit(130);
            }
            handle.stop();
        }
    })
}
