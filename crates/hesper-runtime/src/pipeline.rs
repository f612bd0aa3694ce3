//! Pipelines: compiled kernels, found by their content.
//!
//! A kernel *is* its content: language, text, specialisation. Its label is for people. The cache
//! compares content only; a label can be reused with another text, another dtype or other weights, and
//! nothing is confused. The cache is bounded and evicts only its own reference: a pipeline that work in
//! flight names lives until that work is done. However many threads ask for one kernel, it is
//! compiled once.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};

use crate::device::{CompiledPipeline, Device, DeviceError, RawPipeline};
use crate::error::{Error, Result};
use crate::sync::{Lock, Rank, Signal};

/// A kernel's text, interned: equal texts that are alive at the same time are one object, so
/// comparing them compares two addresses.
#[derive(Clone)]
pub struct Text(Arc<Interned>);

struct Interned {
    hash: u64,
    text: Box<str>,
}

type TextTable = Lock<HashMap<u64, Vec<Weak<Interned>>>>;

fn texts() -> &'static TextTable {
    static TEXTS: OnceLock<TextTable> = OnceLock::new();
    TEXTS.get_or_init(|| Lock::new(Rank::Leaf, HashMap::new()))
}

impl Text {
    /// Interns a text.
    pub fn new(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        let mut table = texts().lock_unscheduled();
        let bucket = table.entry(hash).or_default();
        if let Some(found) = bucket.iter().filter_map(Weak::upgrade).find(|found| *found.text == *text) {
            return Text(found);
        }
        let fresh = Arc::new(Interned { hash, text: text.into() });
        bucket.push(Arc::downgrade(&fresh));
        Text(fresh)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

impl Drop for Interned {
    fn drop(&mut self) {
        if crate::fork::is_forked() {
            return;
        }
        let mut table = texts().lock_unscheduled();
        if let Entry::Occupied(mut bucket) = table.entry(self.hash) {
            bucket.get_mut().retain(|text| text.strong_count() > 0);
            if bucket.get().is_empty() {
                bucket.remove();
            }
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.hash == other.0.hash && self.0.text == other.0.text)
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes, {:016x})", self.0.text.len(), self.0.hash)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::new(text)
    }
}

/// What a pipeline is compiled from.
#[derive(Clone)]
pub struct PipelineSource {
    /// For people and traces; no part of the identity.
    pub label: Arc<str>,
    /// The language of the text, as the device understands it.
    pub language: &'static str,
    /// The whole text.
    pub text: Text,
    /// Types, constants and options that specialise the text.
    pub specialisation: Text,
    /// What the text was already turned into, if its maker has it (an IR). A function of the text and the
    /// specialisation, hence no part of the identity.
    pub payload: Option<Arc<dyn Any + Send + Sync>>,
}

impl PipelineSource {
    /// A source without specialisation and payload.
    pub fn new(label: impl Into<Arc<str>>, language: &'static str, text: impl Into<Text>) -> Self {
        PipelineSource {
            label: label.into(),
            language,
            text: text.into(),
            specialisation: Text::new(""),
            payload: None,
        }
    }

    /// Sets what specialises the text.
    pub fn specialised(mut self, specialisation: impl Into<Text>) -> Self {
        self.specialisation = specialisation.into();
        self
    }

    /// Adds what the text was already turned into.
    pub fn with_payload(mut self, payload: Arc<dyn Any + Send + Sync>) -> Self {
        self.payload = Some(payload);
        self
    }

    /// A fingerprint of the content, for diagnosis; caches compare the content itself.
    pub fn content(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.key().hash(&mut hasher);
        hasher.finish()
    }

    fn key(&self) -> Key {
        Key { language: self.language, text: self.text.clone(), specialisation: self.specialisation.clone() }
    }
}

impl fmt::Debug for PipelineSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipelineSource({}, {}, {:?})", self.label, self.language, self.text)
    }
}

/// The identity of a pipeline on one device.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    language: &'static str,
    text: Text,
    specialisation: Text,
}

/// A compiled kernel of one device. Dropping the last reference releases it.
pub struct Pipeline {
    raw: RawPipeline,
    bytes: usize,
    content: u64,
    label: Arc<str>,
    device: Arc<dyn Device>,
    owner: u64,
    #[cfg(feature = "sim")]
    released: std::sync::atomic::AtomicBool,
}

impl Pipeline {
    /// Its label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Roughly how many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn raw(&self) -> RawPipeline {
        self.raw
    }

    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    /// The ablation of careful eviction: released although somebody may hold it.
    #[cfg(feature = "sim")]
    fn release_now(&self) {
        if !self.released.swap(true, std::sync::atomic::Ordering::SeqCst) {
            // SAFETY: not kept, on purpose; the simulated device survives it and tells.
            unsafe { self.device.release(self.raw) };
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if crate::fork::is_forked() {
            return;
        }
        #[cfg(feature = "sim")]
        self.release_now();
        #[cfg(not(feature = "sim"))]
        // SAFETY: nobody holds the pipeline any more, neither the cache nor work in flight.
        unsafe {
            self.device.release(self.raw);
        }
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipeline({}, {:016x})", self.label, self.content)
    }
}

/// How much the cache may keep.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Most pipelines.
    pub count: usize,
    /// Most bytes, as the device reports them.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        CacheLimits { count: 1024, bytes: 256 << 20 }
    }
}

/// What the cache has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Pipelines in the cache.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Lookups that found their pipeline.
    pub hits: u64,
    /// Lookups that compiled.
    pub compiled: u64,
    /// Pipelines that the cache let go.
    pub evicted: u64,
}

/// A compilation under way; whoever else asks waits for it.
struct Flight {
    done: Signal,
    outcome: OnceLock<Result<Arc<Pipeline>>>,
}

enum Slot {
    Ready { pipeline: Arc<Pipeline>, used: u64 },
    Compiling(Arc<Flight>),
}

#[derive(Default)]
struct State {
    slots: HashMap<Key, Slot>,
    clock: u64,
    counters: CacheCounters,
}

/// Compiled kernels by content.
pub(crate) struct PipelineCache {
    state: Lock<State>,
    limits: CacheLimits,
    #[cfg(feature = "sim")]
    ablation: crate::sim::Ablation,
}

impl PipelineCache {
    pub(crate) fn new(limits: CacheLimits, #[cfg(feature = "sim")] ablation: crate::sim::Ablation) -> Self {
        PipelineCache {
            state: Lock::new(Rank::Cache, State::default()),
            limits,
            #[cfg(feature = "sim")]
            ablation,
        }
    }

    pub(crate) fn counters(&self) -> CacheCounters {
        self.state.lock().counters
    }

    /// The pipeline of `source`, compiled at most once. No lock is held while it compiles.
    pub(crate) fn get(
        &self,
        device: &Arc<dyn Device>,
        owner: u64,
        source: &PipelineSource,
    ) -> Result<Arc<Pipeline>> {
        let key = self.key_of(source);
        let flight = {
            let mut state = self.state.lock();
            state.clock += 1;
            let now = state.clock;
            match state.slots.get_mut(&key) {
                Some(Slot::Ready { pipeline, used }) => {
                    *used = now;
                    let pipeline = pipeline.clone();
                    state.counters.hits += 1;
                    return Ok(pipeline);
                }
                Some(Slot::Compiling(flight)) => Err(flight.clone()),
                None => {
                    let flight = Arc::new(Flight { done: Signal::default(), outcome: OnceLock::new() });
                    state.slots.insert(key.clone(), Slot::Compiling(flight.clone()));
                    Ok(flight)
                }
            }
        };
        match flight {
            Ok(flight) => self.compile(device, owner, source, key, &flight),
            Err(flight) => {
                crate::native::refuse_inside("a wait for a kernel's compilation")?;
                flight.done.wait_until(|| flight.outcome.get().is_some());
                match flight.outcome.get() {
                    Some(outcome) => outcome.clone(),
                    None => Err(compile_error(device, source, "its compilation was given up".into())),
                }
            }
        }
    }

    fn compile(
        &self,
        device: &Arc<dyn Device>,
        owner: u64,
        source: &PipelineSource,
        key: Key,
        flight: &Flight,
    ) -> Result<Arc<Pipeline>> {
        let compiled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.compile(source)))
            .unwrap_or_else(|_| Err(DeviceError::Compile("the compiler panicked".into())));
        let outcome = match compiled {
            Ok(CompiledPipeline { raw, bytes }) => Ok(Arc::new(Pipeline {
                raw,
                bytes,
                content: source.content(),
                label: source.label.clone(),
                device: device.clone(),
                owner,
                #[cfg(feature = "sim")]
                released: false.into(),
            })),
            Err(DeviceError::OutOfMemory(message) | DeviceError::Failed(message)) => {
                Err(Error::Device { device: device.info().name.clone(), call: "compile a kernel", message })
            }
            Err(error) => Err(compile_error(device, source, error.to_string())),
        };
        let garbage = {
            let mut state = self.state.lock();
            state.counters.compiled += 1;
            match &outcome {
                Ok(pipeline) => {
                    state.clock += 1;
                    let used = state.clock;
                    state.slots.insert(key, Slot::Ready { pipeline: pipeline.clone(), used });
                    state.counters.count += 1;
                    state.counters.bytes += pipeline.bytes;
                    self.evict(&mut state)
                }
                Err(_) => {
                    // A failure is told to all who wait for it, and not remembered.
                    state.slots.remove(&key);
                    Vec::new()
                }
            }
        };
        #[cfg(feature = "sim")]
        if self.ablation == crate::sim::Ablation::CarefulEviction {
            garbage.iter().for_each(|pipeline| pipeline.release_now());
        }
        drop(garbage);
        let _ = flight.outcome.set(outcome.clone());
        flight.done.notify();
        outcome
    }

    /// Removes the least recently used pipelines until the limits hold; the newest always stays.
    fn evict(&self, state: &mut State) -> Vec<Arc<Pipeline>> {
        let mut garbage = Vec::new();
        while state.counters.count > 1
            && (state.counters.count > self.limits.count || state.counters.bytes > self.limits.bytes)
        {
            let oldest = state
                .slots
                .iter()
                .filter_map(|(key, slot)| match slot {
                    Slot::Ready { used, .. } => Some((*used, key)),
                    Slot::Compiling(_) => None,
                })
                .min_by_key(|(used, _)| *used)
                .map(|(_, key)| key.clone());
            let Some(Slot::Ready { pipeline, .. }) = oldest.and_then(|key| state.slots.remove(&key)) else {
                break;
            };
            state.counters.count -= 1;
            state.counters.bytes -= pipeline.bytes;
            state.counters.evicted += 1;
            garbage.push(pipeline);
        }
        garbage
    }

    /// Lets every pipeline go that nobody else holds on to; the others live on until they are dropped.
    pub(crate) fn clear(&self) {
        let garbage: Vec<Slot> = {
            let mut state = self.state.lock();
            let (ready, compiling): (HashMap<_, _>, HashMap<_, _>) =
                state.slots.drain().partition(|(_, slot)| matches!(slot, Slot::Ready { .. }));
            state.slots = compiling;
            state.counters.evicted += ready.len() as u64;
            state.counters.count = 0;
            state.counters.bytes = 0;
            ready.into_values().collect()
        };
        drop(garbage);
    }

    fn key_of(&self, source: &PipelineSource) -> Key {
        #[cfg(feature = "sim")]
        if self.ablation == crate::sim::Ablation::ContentKeys {
            // What such caches do in the wild: the name stands for the content.
            let name = Text::new(&source.label);
            return Key { language: source.language, text: name.clone(), specialisation: name };
        }
        source.key()
    }
}

fn compile_error(device: &Arc<dyn Device>, source: &PipelineSource, message: String) -> Error {
    Error::Compile { label: source.label.to_string(), device: device.info().name.clone(), message }
}
