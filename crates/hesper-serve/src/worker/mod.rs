//! The engine in a process of its own, so that the server survives its end.
//!
//! A lost GPU context cannot be opened again in the same process, and a process that is killed says nothing.
//! So [`Supervisor`] starts a worker, talks to it by pipes, and starts another one when it ends, or when it
//! says nothing for too long. [`serve`] is the worker's side. A message is a line of JSON; other lines are
//! ignored.
//!
//! Sampling is seeded, so a text can be generated again: requests that were not finished go to the next
//! worker, and the tokens that were sent already are compared and skipped.

mod child;
mod supervisor;

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

/// What a supervisor tells its worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Submit { key: u64, request: Box<Request> },
    Cancel { key: u64 },
}

/// What a worker tells its supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Accepted { key: u64 },
    Refused { key: u64, refusal: Refusal },
    Event { key: u64, event: Event },
    State { health: Health, snapshot: Box<Snapshot> },
}

/// Writes messages in a thread of its own: a reader that has stopped must not block those who send.
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

/// The messages of the other side, until it closes the pipe.
fn messages<T: DeserializeOwned>(from: impl BufRead) -> impl Iterator<Item = T> {
    from.split(b'\n').map_while(Result::ok).filter_map(|line| serde_json::from_slice(&line).ok())
}
