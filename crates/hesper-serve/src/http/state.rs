//! What the handlers share: the model, the generator, the requests being answered.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::FromRef;
use axum::http::StatusCode;
use hesper_lm::LanguageModel;

use super::error::{ApiError, ApiResult};
use super::log::Log;
use super::options::ServerOptions;
use crate::protocol::{Events, Generator, Health, Refusal, Request, Snapshot};
use crate::text::Format;

/// A model that is being served.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) language: Arc<LanguageModel>,
    pub(crate) format: Format,
    /// Seconds since 1970 when it was loaded.
    pub(crate) created: u64,
}

/// What the handlers share.
pub(crate) struct State {
    pub(crate) options: ServerOptions,
    pub(crate) log: Log,
    /// The generator, also while the model is loading.
    pub(crate) gate: Arc<Gate>,
    loaded: OnceLock<Arc<Loaded>>,
    /// Requests being answered: their tenant, and their ids in the generator.
    active: Mutex<HashMap<String, (u64, Vec<String>)>>,
}

/// A handle on the shared state, as axum wants it.
#[derive(Clone)]
pub(crate) struct App(pub(crate) Arc<State>);

/// The page sees the generator only.
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
        }
    }

    /// The model, or an error that says that it is loading.
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
        // A second model is ignored: the first one serves already.
        let _ = self.loaded.set(Arc::new(loaded));
        let _ = self.gate.generator.set(generator);
    }

    fn active(&self) -> MutexGuard<'_, HashMap<String, (u64, Vec<String>)>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request until the guard is dropped. Its id must not be in use.
    pub(crate) fn register(self: &Arc<Self>, id: &str, tenant: u64, parts: usize) -> ApiResult<Active> {
        let ids: Vec<String> = match parts {
            1 => vec![id.to_string()],
            _ => (0..parts).map(|at| format!("{id}/{at}")).collect(),
        };
        match self.active().entry(id.to_string()) {
            Entry::Occupied(_) => {
                let what = format!("{id:?} is being answered already");
                Err(ApiError::field("request_id", what).status(StatusCode::CONFLICT))
            }
            Entry::Vacant(entry) => {
                entry.insert((tenant, ids.clone()));
                Ok(Active { state: self.clone(), id: id.to_string(), ids })
            }
        }
    }

    /// Cancels a request of a tenant, or one of its answers by the id that the snapshot of the engine has. Returns whether
    /// it was known and not yet finished.
    pub(crate) fn cancel(&self, id: &str, tenant: u64) -> bool {
        let active = self.active();
        let ids = match active.get(id) {
            Some((owner, ids)) if *owner == tenant => ids.clone(),
            Some(_) => return false,
            None => {
                let has =
                    |(owner, ids): &&(u64, Vec<String>)| *owner == tenant && ids.iter().any(|own| own == id);
                active.values().find(has).map(|_| vec![id.to_string()]).unwrap_or_default()
            }
        };
        drop(active);
        ids.iter().map(|id| self.gate.cancel(id)).fold(false, |any, one| any | one)
    }
}

/// A request being answered. Dropping it forgets the request.
pub(crate) struct Active {
    state: Arc<State>,
    pub(crate) id: String,
    /// The ids of its answers in the generator.
    pub(crate) ids: Vec<String>,
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

/// A number that nobody can guess.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A name that nobody can guess: an id lets its owner cancel the request.
pub(crate) fn random_id(prefix: &str) -> String {
    format!("{prefix}-{:016x}{:016x}", random(), random())
}

/// A generator that is loading until it is given the real one.
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
