//! The requests that a client sends to an engine, and the events that it receives.
//!
//! [`Generator`] is implemented by an engine in this process and by the supervisor of an engine in a worker
//! process. A request is answered by a sequence of [`Event`]s that ends with exactly one [`Event::Done`] or
//! [`Event::Failed`]. Dropping the [`Events`] of a request cancels it.

mod events;

use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub use events::{EventReceiver, EventSender, channel};
pub use hesper_lm::Sampling;
use serde::{Deserialize, Serialize};

/// Generates text for many requests at once.
pub trait Generator: Send + Sync {
    /// Accepts a request, or refuses it at once. Never blocks on the model.
    fn submit(&self, request: Request) -> Result<Events, Refusal>;

    /// Cancels a request by its id. Returns whether there was an unfinished request with this id.
    fn cancel(&self, id: &str) -> bool;

    /// The state of the loop that runs the model. Answers even while a step hangs.
    fn health(&self) -> Health;

    /// Counters and the state of every request.
    fn snapshot(&self) -> Snapshot;

    /// Refuses new requests, lets the others finish within `limit`, and fails the rest. Returns when all are
    /// answered.
    fn drain(&self, limit: Duration);
}

/// The instant `limit` from now, or in a year if there is no such instant.
pub(crate) fn instant_after(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(365 * 86_400))
}

/// The events of one request. Dropping it cancels the request.
#[derive(Debug)]
pub struct Events {
    /// The id of the request.
    pub id: String,
    receiver: EventReceiver,
    /// Runs when the events are dropped.
    _cancel: CancelOnDrop,
}

impl Events {
    /// Events that arrive by a [`channel`]. `cancel` is called when they are dropped.
    pub fn new(id: String, receiver: EventReceiver, cancel: impl FnOnce() + Send + Sync + 'static) -> Self {
        Events { id, receiver, _cancel: CancelOnDrop(Some(Box::new(cancel))) }
    }

    /// Waits for the next event. `None` after the last one.
    pub fn next(&self) -> Option<Event> {
        self.receiver.recv()
    }

    /// Waits for the next event for at most `limit`.
    pub fn next_within(&self, limit: Duration) -> Result<Event, mpsc::RecvTimeoutError> {
        self.receiver.recv_timeout(limit)
    }

    /// The next event, or `None` after the last one. If it has not arrived yet, the task is woken when it
    /// does.
    pub fn poll_next(&self, context: &Context<'_>) -> Poll<Option<Event>> {
        self.receiver.poll_recv(context)
    }
}

struct CancelOnDrop(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel();
        }
    }
}

impl std::fmt::Debug for CancelOnDrop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CancelOnDrop")
    }
}

/// A request to generate text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The id of the request in logs, events and cancellation; unique among the unfinished requests.
    pub id: String,
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// The largest number of tokens to generate.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Stop sequences, as text. They are not part of the answer.
    pub stops: Vec<String>,
    /// Tokens that end the generation, in addition to those of the model.
    pub stop_tokens: Vec<u32>,
    /// Whether to continue after an end-of-sequence token.
    pub ignore_eos: bool,
    /// A constraint that the generated text has to match.
    pub constraint: Option<Constraint>,
    /// How many of the most likely tokens to report with each token; `None` reports no log probabilities.
    pub logprobs: Option<usize>,
    /// Higher goes first.
    pub priority: i32,
    /// The request fails if it is not finished this long after it was submitted.
    pub deadline: Option<Duration>,
    /// Only requests of the same tenant share prefixes. Tenants get equal shares of the engine.
    pub tenant: u64,
    /// Whether the request uses the prefix cache.
    pub use_prefix_cache: bool,
    /// Computes an embedding of the prompt instead of tokens.
    pub embed: Option<Pooling>,
}

/// How an embedding is made from the hidden states of the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// That of the last token, for models that are trained for it.
    Last,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            id: String::new(),
            prompt: Vec::new(),
            max_tokens: 256,
            sampling: Sampling::default(),
            stops: Vec::new(),
            stop_tokens: Vec::new(),
            ignore_eos: false,
            constraint: None,
            logprobs: None,
            priority: 0,
            deadline: None,
            tenant: 0,
            use_prefix_cache: true,
            embed: None,
        }
    }
}

/// A constraint that generated text has to match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid by a schema, given as JSON text.
    JsonSchema(String),
    /// A regular expression.
    Regex(String),
    /// A grammar in the Lark format.
    Lark(String),
    /// Free text in which tool calls must be valid by a schema.
    ToolCalls {
        /// The text that begins a call.
        begin: String,
        /// The JSON schema of the text between `begin` and `end`.
        schema: String,
        /// The text that ends a call.
        end: String,
        /// Whether the answer is one or more calls and nothing else.
        required: bool,
        /// Whether the answer ends after its first call.
        single: bool,
    },
}

/// An event of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The request has left the queue and its prompt is being computed.
    Started {
        /// Tokens of the prompt whose keys and values were found in the prefix cache.
        cached_tokens: usize,
    },
    /// A token was chosen.
    Token(Token),
    /// The embedding of the prompt, of length 1.
    Embedding(Vec<f32>),
    /// The answer is complete.
    Done {
        /// Why.
        finish: Finish,
        /// Counts.
        usage: Usage,
    },
    /// The request failed; others are not affected.
    Failed(Failure),
}

/// A generated token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Token {
    /// Its id in the vocabulary.
    pub id: u32,
    /// The text that is complete with this token; may be empty.
    pub text: String,
    /// Its log probability, if the request asks for it.
    pub logprob: Option<f32>,
    /// The most likely tokens and their log probabilities, if the request asks for them.
    pub top: Vec<(u32, f32)>,
}

/// Why the generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it, a stop sequence was found, or the constraint is complete.
    Stop,
    /// `max_tokens` or the context length of the model was reached.
    Length,
    /// It was cancelled.
    Cancelled,
}

/// Counts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were found in the prefix cache.
    pub cached_tokens: usize,
    /// Generated tokens.
    pub completion_tokens: usize,
}

/// Why a request failed after it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// The cause.
    pub message: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The request itself is the cause: its constraint cannot be matched, or its logits are not finite.
    Request,
    /// Its deadline has passed.
    Deadline,
    /// Memory was exhausted even when the request ran alone.
    OutOfMemory,
    /// The device or the worker process was lost and the request could not be resubmitted.
    Lost,
    /// The server is stopping.
    Stopping,
    /// An error of the server.
    Internal,
}

/// Why a request was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// It needs more KV memory than the server has.
    #[error("the request needs {needed} bytes of KV memory; the server has {limit}")]
    TooLarge {
        /// Bytes it needs.
        needed: u64,
        /// Bytes that the server has.
        limit: u64,
    },
    /// The queue is full.
    #[error("the queue of {limit} requests is full; try again in {} s", retry_after.as_secs().max(1))]
    QueueFull {
        /// The most requests that may wait.
        limit: usize,
        /// After this time there is likely to be room.
        retry_after: Duration,
    },
    /// The model is loading, the device is lost or the server is stopping.
    #[error("{0}")]
    Unavailable(String),
}

/// The state of the loop that runs the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Health {
    /// The loop runs, and steps finish in time.
    Ok,
    /// The model is being loaded.
    Loading {
        /// What is being loaded.
        what: String,
    },
    /// A step has not finished in time.
    Stalled {
        /// Seconds since it began.
        seconds: f64,
    },
    /// The device or the worker process is lost.
    LostDevice {
        /// Why.
        cause: String,
    },
    /// The server is stopping.
    Stopping,
}

/// Counters of the engine and the state of its requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Requests that were accepted.
    pub accepted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Answers that are complete.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// How often a running request was preempted.
    pub preemptions: u64,
    /// How often the worker process was restarted.
    pub restarts: u64,
    /// Steps of the model.
    pub steps: u64,
    /// Steps that were launched before the tokens of the previous step were read.
    pub steps_ahead: u64,
    /// Seconds in steps of the model.
    pub step_seconds: f64,
    /// Seconds of the loop in planning and reporting.
    pub scheduler_seconds: f64,
    /// Tokens of prompts that were computed.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were found in the prefix cache.
    pub cached_tokens: u64,
    /// Tokens that were generated.
    pub generated_tokens: u64,
    /// Tokens that were generated per second, over the last ten seconds.
    pub tokens_per_second: f64,
    /// Draft tokens that were computed.
    pub draft_tokens: u64,
    /// Draft tokens that were accepted.
    pub accepted_drafts: u64,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The number of pages.
    pub pages: usize,
    /// Pages in use by requests.
    pub pages_used: usize,
    /// Pages that only the prefix cache holds.
    pub pages_cached: usize,
    /// Unfinished requests: the running ones first, then the waiting ones, each by rank.
    pub requests: Vec<RequestState>,
    /// Recent failures, the latest last: seconds since the start of the engine, request id and message.
    pub recent_failures: Vec<(f64, String, String)>,
    /// Seconds since the start of the engine.
    pub uptime_seconds: f64,
    /// Seconds from submission to the first token.
    pub time_to_first_token: Histogram,
    /// Seconds between two tokens of a request.
    pub inter_token: Histogram,
    /// Seconds from submission to the end.
    pub request_seconds: Histogram,
    /// Seconds in the queue.
    pub queue_seconds: Histogram,
}

/// Counts of values in buckets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper bounds of the buckets in ascending order. One more bucket without a bound follows.
    pub bounds: Vec<f64>,
    /// The count of each bucket, not cumulative; one more than `bounds`.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

/// The state of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestState {
    /// Its id.
    pub id: String,
    /// Its phase.
    pub phase: Phase,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that are computed or were cached.
    pub computed_tokens: usize,
    /// Generated tokens.
    pub generated_tokens: usize,
    /// The numbers of its KV pages.
    pub pages: Vec<u32>,
    /// Seconds since it was submitted.
    pub seconds: f64,
}

/// The phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It waits for memory or for its turn.
    Queued,
    /// Its prompt is being computed.
    Prefill,
    /// Tokens are being generated.
    Decode,
    /// Its pages were released, and it waits to be recomputed.
    Preempted,
}
