//! Pipelines: compiled kernels, cached by content.
//!
//! The cache key is the whole content: language, text, specialisation. The label is for diagnostics and
//! may be reused with another text or dtype. The cache is bounded and evicts only its own reference: a
//! pipeline that work in flight names lives until that work is finished. Threads that ask for one kernel
//! share one compilation.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};

use crate::device::{CompiledPipeline, Device, DeviceError, RawPipeline};
use crate::error::{Error, Result};
use crate::panics;
use crate::sync::{Lock, Rank, Signal};

/// An interned kernel text: equal texts that are alive at the same time are one object, so a comparison
/// compares two addresses.
#[derive(Clone)]
pub struct InternedText(Arc<TextEntry>);

struct TextEntry {
    hash: u64,
    text: Box<str>,
}

type TextTable = Lock<HashMap<u64, Vec<Weak<TextEntry>>>>;

fn interned_texts() -> &'static TextTable {
    static TEXTS: OnceLock<TextTable> = OnceLock::new();
    TEXTS.get_or_init(|| Lock::new(Rank::Leaf, HashMap::new()))
}

impl InternedText {
    /// Interns a text.
    pub fn new(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        let mut table = interned_texts().lock_unscheduled();
        let bucket = table.entry(hash).or_default();
        if let Some(found) = bucket.iter().filter_map(Weak::upgrade).find(|found| *found.text == *text) {
            return InternedText(found);
        }
        let fresh = Arc::new(TextEntry { hash, text: text.into() });
        bucket.push(Arc::downgrade(&fresh));
        InternedText(fresh)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

impl Drop for TextEntry {
    fn drop(&mut self) {
        if crate::fork::is_forked() {
            return;
        }
        let mut table = interned_texts().lock_unscheduled();
        if let Entry::Occupied(mut bucket) = table.entry(self.hash) {
            bucket.get_mut().retain(|text| text.strong_count() > 0);
            if bucket.get().is_empty() {
                bucket.remove();
            }
        }
    }
}

impl PartialEq for InternedText {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.hash == other.0.hash && self.0.text == other.0.text)
    }
}

impl Eq for InternedText {}

impl Hash for InternedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl fmt::Debug for InternedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InternedText({} bytes, {:016x})", self.0.text.len(), self.0.hash)
    }
}

impl From<&str> for InternedText {
    fn from(text: &str) -> Self {
        InternedText::new(text)
    }
}

/// The source of a pipeline.
#[derive(Clone)]
pub struct PipelineSource {
    /// For diagnostics and traces; no part of the cache key.
    pub label: Arc<str>,
    /// The language of the text, as the device understands it.
    pub language: &'static str,
    /// The whole text.
    pub text: InternedText,
    /// Types, constants and options that specialise the text.
    pub specialisation: InternedText,
    /// The text in compiled form (an IR), if its author has it. A function of text and specialisation, hence
    /// no part of the cache key.
    pub payload: Option<Arc<dyn Any + Send + Sync>>,
}

impl PipelineSource {
    /// A source without specialisation and payload.
    pub fn new(label: impl Into<Arc<str>>, language: &'static str, text: impl Into<InternedText>) -> Self {
        PipelineSource {
            label: label.into(),
            language,
            text: text.into(),
            specialisation: InternedText::new(""),
            payload: None,
        }
    }

    /// Sets the specialisation.
    pub fn specialised(mut self, specialisation: impl Into<InternedText>) -> Self {
        self.specialisation = specialisation.into();
        self
    }

    /// Adds the compiled form of the text.
    pub fn with_payload(mut self, payload: Arc<dyn Any + Send + Sync>) -> Self {
        self.payload = Some(payload);
        self
    }

    /// A hash of the content, for diagnostics; caches compare the content itself.
    pub fn content(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.key().hash(&mut hasher);
        hasher.finish()
    }

    fn key(&self) -> PipelineKey {
        PipelineKey {
            language: self.language,
            text: self.text.clone(),
            specialisation: self.specialisation.clone(),
        }
    }
}

impl fmt::Debug for PipelineSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipelineSource({}, {}, {:?})", self.label, self.language, self.text)
    }
}

/// The cache key of a pipeline on one device.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PipelineKey {
    language: &'static str,
    text: InternedText,
    specialisation: InternedText,
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

    /// The approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn raw(&self) -> RawPipeline {
        self.raw
    }

    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    /// The ablation of careful eviction: releases a pipeline that may be in use.
    #[cfg(feature = "sim")]
    fn release_now(&self) {
        if !self.released.swap(true, std::sync::atomic::Ordering::SeqCst) {
            // SAFETY: violated on purpose; the simulated device reports it.
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
        // SAFETY: neither the cache nor work in flight holds the pipeline.
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

/// Limits of the pipeline cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// The largest number of pipelines.
    pub count: usize,
    /// The largest number of bytes, as the device reports them.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        CacheLimits { count: 1024, bytes: 256 << 20 }
    }
}

/// Counters of the pipeline cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Pipelines in the cache.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Lookups that found a compiled pipeline.
    pub hits: u64,
    /// Lookups that compiled.
    pub compiled: u64,
    /// Pipelines evicted.
    pub evicted: u64,
}

/// A compilation in progress; other threads that ask for the kernel wait for it.
struct Compilation {
    done: Signal,
    outcome: OnceLock<Result<Arc<Pipeline>>>,
}

enum CacheSlot {
    Ready { pipeline: Arc<Pipeline>, used: u64 },
    Compiling(Arc<Compilation>),
}

#[derive(Default)]
struct CacheState {
    slots: HashMap<PipelineKey, CacheSlot>,
    clock: u64,
    counters: CacheCounters,
}

/// Compiled kernels by content.
pub(crate) struct PipelineCache {
    state: Lock<CacheState>,
    limits: CacheLimits,
    #[cfg(feature = "sim")]
    ablation: crate::sim::Ablation,
}

impl PipelineCache {
    pub(crate) fn new(limits: CacheLimits, #[cfg(feature = "sim")] ablation: crate::sim::Ablation) -> Self {
        PipelineCache {
            state: Lock::new(Rank::Cache, CacheState::default()),
            limits,
            #[cfg(feature = "sim")]
            ablation,
        }
    }

    pub(crate) fn counters(&self) -> CacheCounters {
        self.state.lock().counters
    }

    /// The pipeline of `source`, compiled at most once. Holds no lock while it compiles.
    pub(crate) fn get(
        &self,
        device: &Arc<dyn Device>,
        owner: u64,
        source: &PipelineSource,
    ) -> Result<Arc<Pipeline>> {
        let key = self.key_of(source);
        let compilation = {
            let mut state = self.state.lock();
            state.clock += 1;
            let now = state.clock;
            match state.slots.get_mut(&key) {
                Some(CacheSlot::Ready { pipeline, used }) => {
                    *used = now;
                    let pipeline = pipeline.clone();
                    state.counters.hits += 1;
                    return Ok(pipeline);
                }
                Some(CacheSlot::Compiling(compilation)) => Err(compilation.clone()),
                None => {
                    let compilation =
                        Arc::new(Compilation { done: Signal::default(), outcome: OnceLock::new() });
                    state.slots.insert(key.clone(), CacheSlot::Compiling(compilation.clone()));
                    Ok(compilation)
                }
            }
        };
        match compilation {
            Ok(compilation) => self.compile(device, owner, source, key, &compilation),
            Err(compilation) => {
                crate::native::refuse_inside("a wait for a kernel's compilation")?;
                compilation.done.wait_until(|| compilation.outcome.get().is_some());
                match compilation.outcome.get() {
                    Some(outcome) => outcome.clone(),
                    None => Err(compile_error(device, source, "its compilation was abandoned".into())),
                }
            }
        }
    }

    fn compile(
        &self,
        device: &Arc<dyn Device>,
        owner: u64,
        source: &PipelineSource,
        key: PipelineKey,
        compilation: &Compilation,
    ) -> Result<Arc<Pipeline>> {
        let compiled = panics::catch(|| device.compile(source))
            .unwrap_or_else(|message| Err(DeviceError::Compile(format!("the compiler panicked: {message}"))));
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
                    state.slots.insert(key, CacheSlot::Ready { pipeline: pipeline.clone(), used });
                    state.counters.count += 1;
                    state.counters.bytes += pipeline.bytes;
                    self.evict(&mut state)
                }
                Err(_) => {
                    // All waiters get the failure; it is not cached.
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
        let _ = compilation.outcome.set(outcome.clone());
        compilation.done.notify();
        outcome
    }

    /// Evicts the least recently used pipelines until the limits hold; the newest always stays.
    fn evict(&self, state: &mut CacheState) -> Vec<Arc<Pipeline>> {
        let mut garbage = Vec::new();
        while state.counters.count > 1
            && (state.counters.count > self.limits.count || state.counters.bytes > self.limits.bytes)
        {
            let oldest = state
                .slots
                .iter()
                .filter_map(|(key, slot)| match slot {
                    CacheSlot::Ready { used, .. } => Some((*used, key)),
                    CacheSlot::Compiling(_) => None,
                })
                .min_by_key(|(used, _)| *used)
                .map(|(_, key)| key.clone());
            let Some(CacheSlot::Ready { pipeline, .. }) = oldest.and_then(|key| state.slots.remove(&key))
            else {
                break;
            };
            state.counters.count -= 1;
            state.counters.bytes -= pipeline.bytes;
            state.counters.evicted += 1;
            garbage.push(pipeline);
        }
        garbage
    }

    fn key_of(&self, source: &PipelineSource) -> PipelineKey {
        #[cfg(feature = "sim")]
        if self.ablation == crate::sim::Ablation::ContentKeys {
            // As in a cache keyed by name.
            let name = InternedText::new(&source.label);
            return PipelineKey { language: source.language, text: name.clone(), specialisation: name };
        }
        source.key()
    }
}

fn compile_error(device: &Arc<dyn Device>, source: &PipelineSource, message: String) -> Error {
    Error::Compile { label: source.label.to_string(), device: device.info().name.clone(), message }
}
