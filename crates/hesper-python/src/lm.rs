//! Language models: the native half of `hesper.lm`.
//!
//! Generations share a model; each has its own KV cache. The interpreter's lock is released for every step,
//! so Python threads generate concurrently, and signals are handled between steps.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use hesper_lm::{
    Batch, CacheKind, Error, Event, GenerateOptions, Generation, KvCache, LanguageModel, LoadOptions,
    Message, Piece, Sampling, fetch,
};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::raise;
use crate::waiting::detached;

/// The exception for an error of the language models.
pub(crate) fn refuse(error: Error) -> PyErr {
    match error {
        Error::Array(error) => raise(error),
        Error::Io { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            PyFileNotFoundError::new_err(error.to_string())
        }
        Error::NoModel { .. } => PyFileNotFoundError::new_err(error.to_string()),
        Error::Io { .. } | Error::Files(_) => PyOSError::new_err(error.to_string()),
        Error::InvalidArgument(_)
        | Error::ContextLength { .. }
        | Error::EmptyPrompt
        | Error::Tokenizer(_) => PyValueError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// Weights, tokenizer and chat template.
#[pyclass(module = "hesper._core", frozen)]
pub(crate) struct LanguageModel_(pub(crate) Arc<LanguageModel>);

/// The result of a step: token, text that later tokens cannot change, why generation ends.
type Step = (u32, String, Option<&'static str>);

fn step_of(piece: Piece) -> Step {
    (piece.token, piece.text, piece.finish.map(|finish| finish.name()))
}

/// How tokens are chosen, from Python's keywords.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SamplingOptions {
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    repetition_penalty: f32,
    repetition_context: usize,
    frequency_penalty: f32,
    presence_penalty: f32,
    logit_bias: BTreeMap<u32, f32>,
    seed: u64,
}

impl From<SamplingOptions> for Sampling {
    fn from(given: SamplingOptions) -> Self {
        Sampling {
            temperature: given.temperature,
            top_k: given.top_k,
            top_p: given.top_p,
            min_p: given.min_p,
            repetition_penalty: given.repetition_penalty,
            repetition_context: given.repetition_context,
            frequency_penalty: given.frequency_penalty,
            presence_penalty: given.presence_penalty,
            logit_bias: given.logit_bias,
            seed: given.seed,
        }
    }
}

/// Options of a generation, from Python's keywords.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    max_tokens: usize,
    sampling: SamplingOptions,
    stop: Vec<String>,
    window: Option<usize>,
    kv_bits: Option<usize>,
}

impl Options {
    fn read(self) -> PyResult<GenerateOptions> {
        if self.window.is_some() && self.kv_bits.is_some() {
            return Err(PyValueError::new_err(
                "cannot quantize a KV cache with a sliding window; give window or kv_bits",
            ));
        }
        Ok(GenerateOptions {
            max_tokens: self.max_tokens,
            sampling: self.sampling.into(),
            stops: self.stop,
            cache: CacheKind::of(self.window, self.kv_bits),
            ..GenerateOptions::default()
        })
    }
}

#[pymethods]
impl LanguageModel_ {
    /// Loads a model by its name or path.
    #[staticmethod]
    fn load(py: Python<'_>, model: &str, round_activations: bool) -> PyResult<Self> {
        let options = LoadOptions { round_activations };
        let loaded = detached(py, || fetch::load(model, &options, &mut |_| ()));
        Ok(LanguageModel_(Arc::new(loaded.map_err(refuse)?)))
    }

    /// The file or folder of the checkpoint.
    #[getter]
    fn place(&self) -> String {
        self.0.path().display().to_string()
    }

    /// The size of the vocabulary.
    #[getter]
    fn vocabulary(&self) -> usize {
        self.0.model().config().vocab_size
    }

    /// The maximum number of tokens of a sequence.
    #[getter]
    fn context(&self) -> usize {
        self.0.model().config().context_length
    }

    /// The number of parameters, and their bytes.
    #[getter]
    fn size(&self) -> (usize, usize) {
        self.0.size()
    }

    /// The tokens that end a sequence.
    #[getter]
    fn ends(&self) -> Vec<u32> {
        self.0.eos_tokens().to_vec()
    }

    /// Whether there is a chat template.
    #[getter]
    fn can_chat(&self) -> bool {
        self.0.can_chat()
    }

    /// The tokens of a text.
    fn encode(&self, text: &str, begin: bool) -> PyResult<Vec<u32>> {
        self.0.tokenizer().encode(text, begin).map_err(refuse)
    }

    /// The text of tokens.
    fn decode(&self, ids: Vec<u32>) -> PyResult<String> {
        self.0.tokenizer().decode(&ids).map_err(refuse)
    }

    /// A conversation in the format of the model's chat template.
    fn conversation(&self, messages: Vec<HashMap<String, String>>) -> PyResult<String> {
        let message = |mut one: HashMap<String, String>| -> PyResult<Message> {
            let mut take = |key: &str| {
                one.remove(key)
                    .ok_or_else(|| PyValueError::new_err(format!("cannot format a message without {key:?}")))
            };
            Ok(Message::new(take("role")?, take("content")?))
        };
        let messages = messages.into_iter().map(message).collect::<PyResult<Vec<_>>>()?;
        self.0.conversation(&messages).map_err(refuse)
    }

    /// A generation that continues a prompt.
    fn stream(&self, prompt: Vec<u32>, options: Options) -> PyResult<Generation_> {
        let options = options.read()?;
        let cache = options.cache.create(self.0.model().config()).map_err(refuse)?;
        let generation = Generation::new(self.0.clone(), &prompt, cache, &options).map_err(refuse)?;
        Ok(Generation_(Mutex::new(generation)))
    }

    /// Continues several prompts as one batch; returns the text, the tokens and the finish reason of each.
    fn batch(
        &self,
        py: Python<'_>,
        prompts: Vec<Vec<u32>>,
        options: Options,
    ) -> PyResult<Vec<(String, Vec<u32>, &'static str)>> {
        let options = options.read()?;
        let mut batch = Batch::new(&self.0);
        let mut all = Vec::with_capacity(prompts.len());
        for prompt in &prompts {
            detached(py, || batch.add(prompt, &options)).map_err(refuse)?;
            py.check_signals()?;
            all.push((String::new(), Vec::new(), "length"));
        }
        while !batch.is_empty() {
            let events = detached(py, || batch.step()).map_err(refuse)?;
            py.check_signals()?;
            for Event { id, piece } in events {
                let piece = piece.map_err(refuse)?;
                let (text, tokens, finish) = &mut all[id as usize];
                text.push_str(&piece.text);
                tokens.push(piece.token);
                *finish = piece.finish.map_or(*finish, |finish| finish.name());
            }
        }
        Ok(all)
    }
}

/// A running generation: an iterator over its steps.
#[pyclass(module = "hesper._core", frozen)]
struct Generation_(Mutex<Generation<Arc<LanguageModel>, Box<dyn KvCache>>>);

#[pymethods]
impl Generation_ {
    fn __iter__(own: PyRef<'_, Self>) -> PyRef<'_, Self> {
        own
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Step>> {
        let next = detached(py, || {
            // Threads that share a generation alternate.
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next()
        });
        next.transpose().map(|piece| piece.map(step_of)).map_err(refuse)
    }

    /// Tokens of the prompt, seconds until the first token, tokens, seconds for all but the first.
    fn stats(&self) -> (usize, f64, usize, f64) {
        let stats = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).stats();
        (stats.prompt_tokens, stats.prompt_seconds, stats.tokens, stats.seconds)
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("_LanguageModel", m.py().get_type::<LanguageModel_>())
}
