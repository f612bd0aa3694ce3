//! Pipelines: compiled kernels, cached by content.
//!
//! The cache key is the whole content: language, text, specialisation. The label is for diagnostics and
//! may be reused with another text or dtype. The cache is bounded and evicts only its own reference: a
//! pipeline that work in flight names lives until that work is finished. Threads that ask for one kernel
//! share one compilation.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::device::Device;
use crate::error::{Error, Result};
use crate::panics;
use crate::raw::{CompiledPipeline, DeviceError, RawPipeline};
#[cfg(feature = "sim")]
use crate::source::InternedText;
use crate::source::{PipelineKey, PipelineSource};
use crate::sync::{Lock, Rank, Signal};

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
    ablation: crate::ablation::Ablation,
}

impl PipelineCache {
    pub(crate) fn new(
        limits: CacheLimits,
        #[cfg(feature = "sim")] ablation: crate::ablation::Ablation,
    ) -> Self {
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
        if self.ablation == crate::ablation::Ablation::CarefulEviction {
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
        if self.ablation == crate::ablation::Ablation::ContentKeys {
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
