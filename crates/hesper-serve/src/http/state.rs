//! The state that the handlers share: the model, the generator, the unfinished requests.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::FromRef;
use axum::http::StatusCode;
use hesper_lm::LanguageModel;
use tokio::sync::Semaphore;

use super::error::{ApiError, ApiResult};
use super::log::Log;
use super::options::ServerOptions;
use super::response_store::ResponseStore;
use crate::protocol::{Events, Generator, Health, Refusal, Request, Snapshot};
use crate::text::{Format, tokens_within};

/// The model that is served.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) language: Arc<LanguageModel>,
    pub(crate) format: Format,
    /// Seconds since 1970 when it was loaded.
    pub(crate) created: u64,
}

/// The tokens that a client may count, even if the context of the model is short.
const MIN_COUNT_LIMIT: usize = 1 << 16;

impl Loaded {
    /// The most tokens of a prompt and its answer.
    pub(crate) fn context(&self) -> usize {
        self.language.model().config().context_length
    }

    /// The most tokens of a text that is only tokenized.
    pub(crate) fn count_limit(&self) -> usize {
        self.context().saturating_mul(4).max(MIN_COUNT_LIMIT)
    }

    /// The tokens of a text in a field, by [`tokens_within`] a limit.
    pub(crate) fn tokens(&self, text: &str, begin: bool, field: &str, limit: usize) -> ApiResult<Vec<u32>> {
        let tokens = tokens_within(self.language.tokenizer(), text, begin, limit);
        tokens.map_err(|error| ApiError::field(field, error))?.ok_or_else(|| {
            let what =
                format!("has more than {limit} tokens; the context of the model is {}", self.context());
            ApiError::field(field, what).code("context_length_exceeded")
        })
    }
}

/// The state that the handlers share.
pub(crate) struct State {
    pub(crate) options: ServerOptions,
    pub(crate) log: Log,
    /// The generator. Refuses requests while the model is loading.
    pub(crate) gate: Arc<Gate>,
    loaded: OnceLock<Arc<Loaded>>,
    /// Unfinished requests by their ids.
    active: Mutex<HashMap<String, Registered>>,
    /// Answers that later requests may continue.
    responses: Mutex<ResponseStore>,
    /// Bytes of bodies in memory, without the first [`FREE_BODY_BYTES`] of each.
    body_bytes: AtomicUsize,
    /// Turns of large bodies to be processed.
    pub(crate) large_bodies: Arc<Semaphore>,
}

/// How many large bodies are processed at once.
const LARGE_AT_ONCE: usize = 2;

/// Bytes of a body that are not counted: many small bodies never refuse each other.
const FREE_BODY_BYTES: usize = 64 << 10;
/// How many bodies of the largest size may be in memory at once.
const MAX_LARGE_BODIES: usize = 8;

/// The counted bytes of a body. Dropping it releases them.
pub(crate) struct BodyBytes {
    state: Arc<State>,
    counted: usize,
}

impl BodyBytes {
    pub(crate) fn new(state: &Arc<State>) -> Self {
        BodyBytes { state: state.clone(), counted: 0 }
    }

    /// Counts a body that has `length` bytes so far. If it is too large, or there is no room for it, returns
    /// false and releases its bytes.
    pub(crate) fn grow(&mut self, length: usize) -> bool {
        let limit = self.state.options.max_body_bytes;
        let more = length.saturating_sub(FREE_BODY_BYTES).saturating_sub(self.counted);
        let before = self.state.body_bytes.fetch_add(more, Ordering::Relaxed);
        self.counted += more;
        let most = limit.saturating_mul(MAX_LARGE_BODIES);
        let has_room = length <= limit && (more == 0 || before.saturating_add(more) <= most);
        if !has_room {
            self.release();
        }
        has_room
    }

    /// Whether a part of the body is counted.
    pub(crate) fn is_large(&self) -> bool {
        self.counted > 0
    }

    fn release(&mut self) {
        self.state.body_bytes.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
    }
}

impl Drop for BodyBytes {
    fn drop(&mut self) {
        self.release();
    }
}

/// An unfinished request.
struct Registered {
    tenant: u64,
    /// The ids of its choices in the generator.
    ids: Vec<String>,
    /// The choices that were not submitted to the generator yet, and whether they are cancelled.
    waiting: HashMap<String, bool>,
}

/// A handle on the shared state, for axum.
#[derive(Clone)]
pub(crate) struct App(pub(crate) Arc<State>);

/// The routes of [`page`](crate::page) have access to the generator only.
impl FromRef<App> for Arc<dyn Generator> {
    fn from_ref(app: &App) -> Self {
        app.0.gate.clone()
    }
}

impl State {
    pub(crate) fn new(options: ServerOptions) -> Self {
        State {
            log: Log::new(options.log),
            options,
            gate: Arc::default(),
            loaded: OnceLock::new(),
            active: Mutex::default(),
            responses: Mutex::default(),
            body_bytes: AtomicUsize::new(0),
            large_bodies: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
        }
    }

    /// The model, or an error with status 503 while it is loading.
    pub(crate) fn loaded(&self) -> ApiResult<Arc<Loaded>> {
        let unavailable = || {
            let message = "the model is loading; see /health";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("loading").retry_after(1)
        };
        self.loaded.get().cloned().ok_or_else(unavailable)
    }

    pub(crate) fn set_loaded(
        &self,
        name: String,
        language: Arc<LanguageModel>,
        generator: Arc<dyn Generator>,
    ) {
        let tokenizer = language.tokenizer();
        let format = Format::of_template(tokenizer.template().unwrap_or(""), |text| tokenizer.id(text));
        let loaded = Loaded { name, format, created: now(), language };
        // Ignores a second model: the first one is being served.
        let _ = self.loaded.set(Arc::new(loaded));
        let _ = self.gate.generator.set(generator);
    }

    /// Answers that later requests may continue.
    pub(crate) fn responses(&self) -> MutexGuard<'_, ResponseStore> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn active(&self) -> MutexGuard<'_, HashMap<String, Registered>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request with a number of choices until the guard is dropped. Its id must not be in use.
    pub(crate) fn register(self: &Arc<Self>, id: &str, tenant: u64, choices: usize) -> ApiResult<Active> {
        let ids: Vec<String> = match choices {
            1 => vec![id.to_string()],
            _ => (0..choices).map(|at| format!("{id}/{at}")).collect(),
        };
        match self.active().entry(id.to_string()) {
            Entry::Occupied(_) => {
                let what = format!("{id:?} is in use by an unfinished request");
                Err(ApiError::field("request_id", what).status(StatusCode::CONFLICT))
            }
            Entry::Vacant(entry) => {
                let waiting = ids.iter().map(|id| (id.clone(), false)).collect();
                entry.insert(Registered { tenant, ids: ids.clone(), waiting });
                Ok(Active { state: self.clone(), id: id.to_string(), ids })
            }
        }
    }

    /// Cancels a request of a tenant, or one of its choices by the id that it has in the generator. Returns
    /// whether there was an unfinished one.
    pub(crate) fn cancel(&self, id: &str, tenant: u64) -> bool {
        let mut active = self.active();
        let (request, one) = match active.get_mut(id) {
            Some(request) => (Some(request), None),
            None => (active.values_mut().find(|request| request.ids.iter().any(|own| own == id)), Some(id)),
        };
        let Some(request) = request.filter(|request| request.tenant == tenant) else { return false };
        let ids: Vec<String> = match one {
            Some(one) => vec![one.to_string()],
            None => request.ids.clone(),
        };
        let mut known = false;
        for (_, cancelled) in request.waiting.iter_mut().filter(|(waiting, _)| ids.contains(waiting)) {
            known |= !std::mem::replace(cancelled, true);
        }
        drop(active);
        ids.iter().fold(known, |known, id| self.gate.cancel(id) || known)
    }
}

/// A guard of an unfinished request. Dropping it unregisters the request.
pub(crate) struct Active {
    state: Arc<State>,
    pub(crate) id: String,
    /// The ids of its choices in the generator.
    pub(crate) ids: Vec<String>,
}

impl Active {
    /// Records that a choice was submitted to the generator. Returns whether it was cancelled before that.
    pub(crate) fn submitted(&self, id: &str) -> bool {
        let mut active = self.state.active();
        active.get_mut(&self.id).and_then(|request| request.waiting.remove(id)).unwrap_or(false)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.state.active().remove(&self.id);
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An unpredictable random number.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// An unpredictable id. A client that knows the id of a request can cancel it.
pub(crate) fn random_id(prefix: &str) -> String {
    format!("{prefix}-{:016x}{:016x}", random(), random())
}

/// Forwards to the real generator once it is set. Until then, refuses requests and reports `loading`.
#[derive(Default)]
pub(crate) struct Gate {
    generator: OnceLock<Arc<dyn Generator>>,
    progress: Mutex<String>,
}

impl Gate {
    pub(crate) fn set_progress(&self, what: &str) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = what.to_string();
    }
}

impl Generator for Gate {
    fn submit(&self, request: Request) -> Result<Events, Refusal> {
        match self.generator.get() {
            Some(generator) => generator.submit(request),
            None => Err(Refusal::Unavailable("the model is loading".into())),
        }
    }

    fn cancel(&self, id: &str) -> bool {
        self.generator.get().is_some_and(|generator| generator.cancel(id))
    }

    fn health(&self) -> Health {
        match self.generator.get() {
            Some(generator) => generator.health(),
            None => {
                let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
                Health::Loading { what: progress.clone() }
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        self.generator.get().map(|generator| generator.snapshot()).unwrap_or_default()
    }

    fn drain(&self, limit: Duration) {
        if let Some(generator) = self.generator.get() {
            generator.drain(limit);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn choices_can_be_cancelled_before_they_are_submitted() {
        let state = Arc::new(State::new(ServerOptions::default()));
        let request = state.register("r", 7, 3).unwrap();
        assert!(!state.cancel("r", 8) && !state.cancel("r/1", 8), "another tenant");
        assert!(state.cancel("r/1", 7) && !state.cancel("r/1", 7) && !state.cancel("r/3", 7));
        assert!(!request.submitted("r/0") && request.submitted("r/1"));
        // Only the third choice is left: the generator cancels the submitted ones.
        assert!(state.cancel("r", 7) && !state.cancel("r", 7));
        assert!(request.submitted("r/2"));
        drop(request);
        assert!(!state.cancel("r", 7));
    }
}
