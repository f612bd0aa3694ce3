//! The engine: one thread that runs the steps of a model for many requests at once.
//!
//! [`scheduler`] decides what a step computes, [`pace`] limits its prompt tokens, [`draft`] proposes draft
//! tokens, [`pool`] makes embeddings, [`prefix`] caches the pages of prompts, [`steps`] runs the model, and
//! [`run_loop`] connects them with the requests. [`Engine`] is the interface: it accepts, cancels and
//! reports. The lock is held between steps only, never while the model computes, so the engine answers while
//! a step hangs.
//!
//! ```
//! use std::sync::Arc;
//! use hesper as _;
//! use hesper_serve::engine::{Engine, EngineOptions};
//! use hesper_serve::protocol::{Event, Generator, Request};
//! let model = Arc::new(hesper_lm::demo::model()?);
//! let prompt = model.prompt_tokens("The evening star")?;
//! let engine = Engine::start(model, EngineOptions::default())?;
//! let events = engine.submit(Request { id: "1".into(), prompt, max_tokens: 8, ..Request::default() })?;
//! let mut text = String::new();
//! while let Some(event) = events.next() {
//!     if let Event::Token(token) = event {
//!         text.push_str(&token.text);
//!     }
//! }
//! assert!(!text.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod draft;
#[cfg(feature = "grammar")]
mod grammar;
mod pace;
mod pool;
mod prefix;
mod run_loop;
pub mod scheduler;
mod state;
pub(crate) mod stats;
mod steps;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hesper_core::placement;
use hesper_lm::{GenerateOptions, LanguageModel, PageFormat, Sampler, check_prompt};

use crate::protocol::{
    Constraint, Events, Failure, FailureKind, Generator, Health, Pooling, Refusal, Request, Snapshot,
    channel, instant_after,
};
use scheduler::{JobSpec, Limits, Rejected, Scheduler};
use state::{Active, State};
use steps::{Steps, TokenFilter};

/// How an engine runs.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Bytes of KV memory. By default 768 MiB on the CPU and 8 GiB on a GPU.
    pub kv_bytes: Option<u64>,
    /// Bits of keys and values: 16, 8 or 4. By default those of the model.
    pub kv_bits: Option<usize>,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Tokens of a prompt chunk, a multiple of `page_tokens`. By default 32 on the CPU and 128 on a GPU,
    /// rounded up to whole pages. The prefix cache holds whole chunks. A step computes as many chunks of a
    /// prompt as it has room for, but one at a time on a GPU with `fixed_order`.
    pub chunk_tokens: Option<usize>,
    /// The most tokens of a step: prompt chunks join the decoding sequences up to this number. By default the
    /// engine measures its steps and adds prompt tokens until a step takes about twice as long as without.
    pub step_tokens: Option<usize>,
    /// The most requests that run at once.
    pub max_running: usize,
    /// The most requests that wait.
    pub max_waiting: usize,
    /// The most bytes of KV memory that the prefix cache holds. By default all of it, as far as it is free.
    pub prefix_bytes: Option<u64>,
    /// The most tokens still to be generated for which memory is reserved before a request starts. With
    /// fewer, more requests run at once, and more are preempted.
    pub reserve_tokens: usize,
    /// A step that takes longer counts as stalled.
    pub step_limit: Duration,
    /// Whether the next step is launched before the tokens of a step are read, if the device samples all of
    /// them. By default on GPUs without draft tokens: the device does not wait for the host between steps.
    pub look_ahead: Option<bool>,
    /// Whether every decode step on a GPU has the same number of rows. Kernels then sum in the same order, so
    /// that the output of a request does not depend on other requests. On the CPU it does not in any case.
    pub fixed_order: bool,
    /// The most draft tokens of a sequence in a step, proposed by prompt lookup while few requests decode. By
    /// default 4 on the CPU, where they do not change the output. None with `look_ahead`, which is the
    /// default on a GPU: it launches the next step before the tokens are known.
    pub draft_tokens: Option<usize>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            kv_bytes: None,
            kv_bits: None,
            page_tokens: 32,
            chunk_tokens: None,
            step_tokens: None,
            max_running: 64,
            max_waiting: 256,
            prefix_bytes: None,
            reserve_tokens: 128,
            step_limit: Duration::from_secs(30),
            look_ahead: None,
            fixed_order: false,
            draft_tokens: None,
        }
    }
}

/// The most alternatives that can be reported with a token.
pub const MAX_TOP_LOGPROBS: usize = 20;

/// State shared by the engine and its loop.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the loop and the thread that watches deadlines.
    wake: Condvar,
    /// Notified when requests may have finished: after a step, after a cancellation, when the loop exits.
    answered: Condvar,
    start: Instant,
    /// Microseconds from `start` to the beginning of the running step; 0 if no step runs.
    step_began: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Records that a step begins.
    fn step_begins(&self) {
        self.step_began.store((self.now().as_micros() as u64).max(1), Ordering::Release);
    }

    /// How long the running step has taken so far.
    fn step_time(&self) -> Option<Duration> {
        let began = self.step_began.load(Ordering::Acquire);
        (began > 0).then(|| self.now().saturating_sub(Duration::from_micros(began)))
    }

    /// Waits until something is submitted, the engine ends, or the earliest deadline passes.
    fn wait_for_deadline<'a>(&self, state: MutexGuard<'a, State>, now: Duration) -> MutexGuard<'a, State> {
        let wait =
            state.scheduler.next_deadline().map_or(Duration::from_secs(3600), |at| at.saturating_sub(now));
        match self.wake.wait_timeout(state, wait) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    fn cancel(&self, id: &str) -> bool {
        let mut state = self.lock();
        let known = state.cancel(id, self.now());
        drop(state);
        self.answered.notify_all();
        known
    }
}

/// Runs a model in this process for many requests. Dropping it fails the requests that are not finished.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    language: Arc<LanguageModel>,
    options: EngineOptions,
    page_bytes: u64,
    #[cfg(feature = "grammar")]
    grammars: std::sync::OnceLock<Result<grammar::Grammars, String>>,
}

impl Engine {
    /// Starts the loop, after a few steps of the model that read its weights and, on a GPU, compile kernels.
    pub fn start(language: Arc<LanguageModel>, options: EngineOptions) -> hesper_lm::Result<Self> {
        let invalid = |what: String| Err(hesper_lm::Error::InvalidArgument(what));
        let (config, device) = (language.model().config(), placement::current_device());
        let on_cpu = device == placement::Device::Cpu;
        let page = options.page_tokens;
        let chunk = (if on_cpu { 32usize } else { 128 }).next_multiple_of(page.max(1));
        let chunk = options.chunk_tokens.unwrap_or(chunk);
        if page == 0 || chunk == 0 || !chunk.is_multiple_of(page) {
            return invalid(format!(
                "chunk_tokens = {chunk} must be a positive multiple of page_tokens = {page}"
            ));
        }
        if options.max_running == 0 || options.max_waiting == 0 {
            return invalid("max_running and max_waiting must be at least 1".into());
        }
        let format = match options.kv_bits {
            None => PageFormat::Exact,
            Some(16) => PageFormat::Half,
            Some(bits) => PageFormat::Quantized { bits, group: 32 },
        };
        let steps = Steps::probe(language.clone(), format, page, device, &options)?;
        let page_bytes = steps.page_bytes() as u64;
        let kv_bytes = options.kv_bytes.unwrap_or(if on_cpu { 768 << 20 } else { 8 << 30 });
        let pages_in =
            |bytes: u64| usize::try_from(bytes / page_bytes.max(1)).unwrap_or(usize::MAX).min(1 << 24);
        let pages = pages_in(kv_bytes);
        if pages == 0 {
            return invalid(format!(
                "{kv_bytes} bytes of KV memory hold no page; kv_bytes must be at least {page_bytes}"
            ));
        }
        let mut steps = steps.with_pages(pages)?;
        steps.warm_up(options.max_running, chunk)?;
        let scheduler = Scheduler::new(Limits {
            page,
            chunk,
            fixed_pieces: !on_cpu && options.fixed_order,
            pages,
            prefix_pages: options.prefix_bytes.map_or(pages, pages_in),
            running: options.max_running,
            waiting: options.max_waiting,
            step_tokens: options.step_tokens.unwrap_or(if on_cpu { 512 } else { 8192 }).max(chunk),
            is_paced: options.step_tokens.is_none(),
            reserve: options.reserve_tokens,
            window: config.window,
            drafts: match steps::looks_ahead(&options, device) {
                true => 0,
                false => options.draft_tokens.unwrap_or(if on_cpu { 4 } else { 0 }),
            },
        });
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(scheduler)),
            wake: Condvar::new(),
            answered: Condvar::new(),
            start: Instant::now(),
            step_began: AtomicU64::new(0),
        });
        let (of_loop, of_watch) = (shared.clone(), shared.clone());
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let started = std::thread::Builder::new().name(name.into()).spawn(run);
            let what = |error| hesper_lm::Error::InvalidArgument(format!("cannot start the engine: {error}"));
            started.map(drop).map_err(what)
        };
        start("hesper-engine", Box::new(move || run_loop::run(&of_loop, steps)))?;
        start("hesper-deadlines", Box::new(move || run_loop::watch_deadlines(&of_watch)))?;
        Ok(Engine {
            shared,
            language,
            options,
            page_bytes,
            #[cfg(feature = "grammar")]
            grammars: std::sync::OnceLock::new(),
        })
    }

    /// The model.
    pub fn language(&self) -> &Arc<LanguageModel> {
        &self.language
    }

    fn check(&self, request: &Request) -> Result<GenerateOptions, String> {
        let text = |error: hesper_lm::Error| error.to_string();
        check_prompt(&request.prompt, 0, self.language.model().config()).map_err(text)?;
        if request.max_tokens == 0 {
            return Err("max_tokens must be at least 1".into());
        }
        if let Some(top) = request.logprobs.filter(|top| *top > MAX_TOP_LOGPROBS) {
            return Err(format!("cannot report {top} top log probabilities; use at most {MAX_TOP_LOGPROBS}"));
        }
        let options = GenerateOptions {
            max_tokens: request.max_tokens,
            sampling: request.sampling.clone(),
            stops: request.stops.clone(),
            stop_tokens: request.stop_tokens.clone(),
            ignore_eos: request.ignore_eos,
            ..GenerateOptions::default()
        };
        Sampler::new(&options.sampling).map_err(text)?;
        Ok(options)
    }

    /// Compiles a constraint. Refuses one that is too large or too expensive.
    #[cfg(feature = "grammar")]
    fn compile(&self, constraint: &Constraint) -> Result<Box<dyn TokenFilter>, String> {
        let grammars = self.grammars.get_or_init(|| grammar::Grammars::new(&self.language));
        grammars.as_ref().map_err(String::clone)?.compile(constraint)
    }

    #[cfg(not(feature = "grammar"))]
    fn compile(&self, _: &Constraint) -> Result<Box<dyn TokenFilter>, String> {
        Err("cannot apply a constraint: the server was built without the feature `grammar`".into())
    }
}

impl Generator for Engine {
    fn submit(&self, request: Request) -> Result<Events, Refusal> {
        let filter = request.constraint.as_ref().map(|constraint| self.compile(constraint)).transpose();
        let checked = self.check(&request).and_then(|options| Ok((options, filter?)));
        let context = self.language.model().config().context_length;
        let mut state = self.shared.lock();
        let accepted = match checked {
            Err(what) => Err(Refusal::Invalid(what)),
            Ok(_) if state.stopping => Err(Refusal::Unavailable("the server is stopping".into())),
            Ok(_) if state.lost.is_some() => {
                Err(Refusal::Unavailable(state.lost.clone().unwrap_or_default()))
            }
            Ok(_) if state.is_known(&request.id) => {
                Err(Refusal::Invalid(format!("the id {:?} is in use by an unfinished request", request.id)))
            }
            Ok((options, filter)) => {
                let now = self.shared.now();
                let spec = JobSpec {
                    prompt: request.prompt.clone(),
                    max_tokens: match request.embed {
                        Some(_) => 1,
                        None => request.max_tokens.min(context - request.prompt.len()),
                    },
                    priority: request.priority,
                    tenant: request.tenant,
                    // A mean needs the states of all tokens, and the cache has only keys and values.
                    use_prefix: request.use_prefix_cache && request.embed != Some(Pooling::Mean),
                    deadline: request.deadline.map(|limit| now.saturating_add(limit)),
                };
                match state.scheduler.submit(spec) {
                    Ok(job) => Ok((job, options, filter, now)),
                    Err(Rejected::TooLarge { needed }) => Err(Refusal::TooLarge {
                        needed: needed as u64 * self.page_bytes,
                        limit: state.scheduler.limits().pages as u64 * self.page_bytes,
                    }),
                    Err(Rejected::QueueFull) => Err(Refusal::QueueFull {
                        limit: self.options.max_waiting,
                        retry_after: state.stats.requests.retry_after(),
                    }),
                }
            }
        };
        let (job, options, filter, now) = match accepted {
            Ok(accepted) => accepted,
            Err(refusal) => {
                state.stats.requests.refused += 1;
                return Err(refusal);
            }
        };
        let (sender, receiver) = channel();
        let id = request.id.clone();
        state.accept(job, Active::new(request, options, filter, sender, now));
        drop(state);
        self.shared.wake.notify_all();
        let (shared, own) = (Arc::downgrade(&self.shared), id.clone());
        let cancel = move || {
            if let Some(shared) = shared.upgrade() {
                let mut state = shared.lock();
                // A later request may have the same id.
                if state.job_of(&own) == Some(job) {
                    state.cancel(&own, shared.now());
                }
                drop(state);
                shared.answered.notify_all();
            }
        };
        Ok(Events::new(id, receiver, cancel))
    }

    fn cancel(&self, id: &str) -> bool {
        self.shared.cancel(id)
    }

    fn health(&self) -> Health {
        // Before the lock is taken: a step that hangs must not block the report of it.
        if let Some(time) = self.shared.step_time().filter(|time| *time > self.options.step_limit) {
            return Health::Stalled { seconds: time.as_secs_f64() };
        }
        let state = self.shared.lock();
        match &state.lost {
            Some(cause) => Health::LostDevice { cause: cause.clone() },
            None if state.stopping => Health::Stopping,
            None => Health::Ok,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.shared.lock().snapshot(self.shared.now());
        snapshot.page_bytes = self.page_bytes;
        snapshot
    }

    fn drain(&self, limit: Duration) {
        let end = instant_after(limit);
        let mut state = self.shared.lock();
        state.stopping = true;
        while !state.is_idle() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = match self.shared.answered.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        state.fail_all(&stopping(), self.shared.now());
    }
}

fn stopping() -> Failure {
    Failure { kind: FailureKind::Stopping, message: "the server is stopping".into() }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        (state.stopping, state.shut_down) = (true, true);
        state.fail_all(&stopping(), self.shared.now());
        drop(state);
        self.shared.wake.notify_all();
    }
}
