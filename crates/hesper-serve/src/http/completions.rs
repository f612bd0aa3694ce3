//! `/v1/completions`: text completions.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::answer::{Answer, Style};
use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use super::generation::{Generation, Prompt};
use super::params::{self, MAX_CHOICES, MAX_LOGPROBS, Params};
use super::state::{Loaded, State, random, random_id};

/// The length of a completion if the client gives none.
const DEFAULT_TOKENS: usize = 16;

/// Submits a request for completions.
pub(crate) fn submit(state: &Arc<State>, tenant: u64, body: &Map<String, Value>) -> ApiResult<Answer> {
    let loaded = state.loaded()?;
    let body = Fields::body(body);
    check_model(&body, &loaded)?;
    if body.text("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(body.error("suffix", "is not supported: text can only be added at the end of the prompt"));
    }
    let mut params = params::read(&body, &loaded.language, random())?;
    if body.integer("best_of", 1..=MAX_CHOICES)?.is_some_and(|count| count as usize != params.n) {
        return Err(body.error("best_of", "is not supported; use n"));
    }
    let logprobs = body.integer("logprobs", 0..=MAX_LOGPROBS)?;
    params.request.logprobs = logprobs.map(|count| count as usize);
    let echo = body.flag("echo")?.unwrap_or(false);
    if echo && logprobs.is_some() {
        return Err(body.error("echo", "cannot be combined with logprobs"));
    }
    let prompts = prompts(&body, "prompt", MAX_CHOICES as usize, &loaded)?;
    let count = prompts.len() * params.n;
    if count as i64 > MAX_CHOICES {
        let what = format!("{} prompts times n = {} exceed {MAX_CHOICES} choices", prompts.len(), params.n);
        return Err(body.error("prompt", what));
    }
    let longest = prompts.iter().map(|(_, tokens)| tokens.len()).max().unwrap_or(0);
    limit_tokens(&mut params, state, &loaded, "prompt", longest, Some(DEFAULT_TOKENS))?;
    params.request.tenant = tenant;
    let echo = match echo {
        true => prompts.iter().flat_map(|(text, _)| vec![text.clone(); params.n]).collect(),
        false => Vec::new(),
    };
    let prompt = |(_, tokens)| Prompt { tokens, parser: None, parallel_calls: true };
    let prompts = prompts.into_iter().map(prompt).collect();
    let id = params.id.take().unwrap_or_else(|| random_id("cmpl"));
    let active = state.register(&id, tenant, count)?;
    let generation = Generation::submit(state, active, params.request, prompts, params.n)?;
    Ok(Answer {
        state: state.clone(),
        loaded,
        generation,
        style: Style::Text,
        stream: params.stream,
        include_usage: params.include_usage,
        logprobs: logprobs.is_some(),
        echo,
    })
}

/// Checks the name of the model, which is optional.
pub(crate) fn check_model(body: &Fields<'_>, loaded: &Loaded) -> ApiResult<()> {
    match body.text("model")? {
        Some(name) if name != loaded.name => {
            let what = format!("there is no model {name:?}; the server has {:?}", loaded.name);
            Err(body.error("model", what).code("model_not_found").status(StatusCode::NOT_FOUND))
        }
        _ => Ok(()),
    }
}

/// Limits the length of the answer to the context of the model and the limit of the server. Refuses a prompt
/// that fills the context.
pub(crate) fn limit_tokens(
    params: &mut Params,
    state: &State,
    loaded: &Loaded,
    field: &'static str,
    prompt: usize,
    default: Option<usize>,
) -> ApiResult<()> {
    let context = loaded.language.model().config().context_length;
    let Some(room) = context.checked_sub(prompt).filter(|room| *room > 0) else {
        let what = format!("has {prompt} tokens; prompt and answer must fit in the context of {context}");
        return Err(ApiError::field(field, what).code("context_length_exceeded"));
    };
    let requested = match params.request.max_tokens {
        0 => default.unwrap_or(room),
        requested => requested,
    };
    params.request.max_tokens = requested.min(room).min(state.options.max_tokens.max(1));
    Ok(())
}

/// The prompts in a field and their tokens: a text, tokens, or an array of at most `most` of either.
pub(crate) fn prompts(
    body: &Fields<'_>,
    field: &str,
    most: usize,
    loaded: &Loaded,
) -> ApiResult<Vec<(String, Vec<u32>)>> {
    let one = |value: &Value, name: &str| match value {
        Value::String(text) => Ok((text.clone(), loaded.tokens(text, true, name, loaded.context())?)),
        _ => {
            let tokens = params::tokens(value, name, &loaded.language)?;
            let text = loaded.language.tokenizer().decode(&tokens);
            Ok((text.map_err(|error| ApiError::field(name, error))?, tokens))
        }
    };
    let prompts = match body.get(field) {
        None => return Err(body.error(field, "is missing")),
        Some(Value::Array(list)) if list.len() > most && !list[0].is_number() => {
            return Err(body.error(field, format!("has more than {most} prompts")));
        }
        Some(Value::Array(list)) if list.iter().any(|value| value.is_string() || value.is_array()) => {
            let each = list.iter().enumerate();
            each.map(|(at, value)| one(value, &format!("{field}[{at}]"))).collect::<ApiResult<Vec<_>>>()?
        }
        Some(value) => vec![one(value, field)?],
    };
    if prompts.is_empty() || prompts.iter().any(|(_, tokens)| tokens.is_empty()) {
        return Err(body.error(field, "must not be empty"));
    }
    Ok(prompts)
}
