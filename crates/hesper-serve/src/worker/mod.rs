//! The engine in a worker process, so that the server survives a crash of the engine.
//!
//! A lost GPU context cannot be recreated in the same process, and a process can be killed at any time. So
//! [`Supervisor`] starts a worker, communicates with it over pipes, and replaces it when it exits or sends no
//! report for too long. [`serve`] is the worker's side. A message is a line of JSON. Other lines are ignored.
//!
//! Sampling is seeded, so the same text can be generated again: the next worker gets the requests that are
//! not finished. Tokens that the client already has are compared and not sent twice.

mod child;
mod supervisor;
mod suspects;

pub use child::serve;
pub use supervisor::{Supervisor, SupervisorOptions};

use std::io::{BufRead, Write};
use std::sync::mpsc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::protocol::{Event, Health, Refusal, Request, Snapshot};

/// How often a worker reports its state.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// A message from the supervisor to its worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Submit { key: u64, request: Box<Request> },
    Cancel { key: u64 },
}

/// A message from the worker to its supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Accepted { key: u64 },
    Refused { key: u64, refusal: Refusal },
    Event { key: u64, event: Event },
    State { health: Health, snapshot: Box<Snapshot> },
}

/// Starts a thread that writes messages. A reader that hangs blocks this thread and not the senders.
fn writer<T: Serialize + Send + 'static>(mut to: impl Write + Send + 'static) -> mpsc::Sender<T> {
    let (sender, receiver) = mpsc::channel::<T>();
    std::thread::spawn(move || {
        for message in receiver {
            let line = serde_json::to_string(&message);
            if line.is_ok_and(|line| writeln!(to, "\n{line}").and_then(|()| to.flush()).is_err()) {
                return;
            }
        }
    });
    sender
}

/// The messages from a pipe, until the other side closes it.
fn messages<T: DeserializeOwned>(from: impl BufRead) -> impl Iterator<Item = T> {
    from.split(b'\n').map_while(Result::ok).filter_map(|line| serde_json::from_slice(&line).ok())
}
