//! `/v1/embeddings`: vectors of length 1, pooled from the hidden states of the model.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::answer::with_headers;
use super::completions::{check_model, prompts};
use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use super::json_response;
use super::params;
use super::state::{Active, Loaded, State, random_id};
use crate::protocol::{Event, Events, Finish, Generator, Pooling, Refusal, Request};

/// The most texts of a request.
const MAX_INPUTS: usize = 2048;
/// The most texts of a request that are computed at once.
const MAX_OPEN: usize = 32;

/// A request for embeddings that was read.
pub(crate) struct Embeddings {
    state: Arc<State>,
    loaded: Arc<Loaded>,
    active: Active,
    /// The request without id and prompt.
    template: Request,
    inputs: Vec<Vec<u32>>,
    /// Whether a vector is sent as the base64 text of its little-endian bytes.
    base64: bool,
}

/// Reads a request for embeddings.
pub(crate) fn read(state: &Arc<State>, tenant: u64, body: &Map<String, Value>) -> ApiResult<Embeddings> {
    let loaded = state.loaded()?;
    let body = Fields::body(body);
    check_model(&body, &loaded)?;
    let config = loaded.language.model().config();
    let base64 = match body.text("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(body.error("encoding_format", "must be float or base64")),
    };
    let pooling = match body.text("pooling")? {
        None | Some("mean") => Pooling::Mean,
        Some("last") => Pooling::Last,
        Some(_) => return Err(body.error("pooling", "must be mean or last")),
    };
    if let Some(count) = body.integer("dimensions", 1..=i64::MAX)?
        && count as usize != config.hidden_size
    {
        let what = format!("the model has vectors of {} elements only", config.hidden_size);
        return Err(body.error("dimensions", what));
    }
    let mut params = params::read(&body, &loaded.language, 0)?;
    let inputs: Vec<Vec<u32>> =
        prompts(&body, "input", MAX_INPUTS, &loaded)?.into_iter().map(|one| one.1).collect();
    if let Some((at, tokens)) =
        inputs.iter().enumerate().find(|(_, tokens)| tokens.len() > config.context_length)
    {
        let what =
            format!("has {} tokens; the context of the model is {}", tokens.len(), config.context_length);
        return Err(ApiError::field(format!("input[{at}]"), what).code("context_length_exceeded"));
    }
    let template = Request { tenant, max_tokens: 1, embed: Some(pooling), ..params.request };
    let id = params.id.take().unwrap_or_else(|| random_id("embd"));
    let active = state.register(&id, tenant, inputs.len())?;
    Ok(Embeddings { state: state.clone(), loaded, active, template, inputs, base64 })
}

impl Embeddings {
    /// Submits the input `at`.
    async fn submit(&self, at: usize) -> Result<Events, Refusal> {
        let (gate, id) = (self.state.gate.clone(), self.active.ids[at].clone());
        let request = Request { id: id.clone(), prompt: self.inputs[at].clone(), ..self.template.clone() };
        let submitted = tokio::task::spawn_blocking(move || gate.submit(request)).await;
        let events = submitted.unwrap_or_else(|error| Err(Refusal::Unavailable(error.to_string())))?;
        if self.active.submitted(&id) {
            self.state.gate.cancel(&id);
        }
        Ok(events)
    }

    pub(crate) async fn respond(self) -> ApiResult<Response<Body>> {
        let count = self.inputs.len();
        let mut vectors: Vec<Vec<f32>> = vec![Vec::new(); count];
        let (mut open, mut next, mut prompt_tokens): (Vec<(usize, Events)>, _, _) = (Vec::new(), 0, 0);
        while next < count || !open.is_empty() {
            while next < count && open.len() < MAX_OPEN {
                match self.submit(next).await {
                    Ok(events) => open.push((next, events)),
                    // There is room when one of its own texts is done.
                    Err(Refusal::QueueFull { .. }) if !open.is_empty() => break,
                    Err(refusal) => return Err(refusal.into()),
                }
                next += 1;
            }
            let (at, event) = poll_fn(|context| {
                let ready = open.iter().find_map(|(at, events)| match events.poll_next(context) {
                    Poll::Ready(event) => Some((*at, event)),
                    Poll::Pending => None,
                });
                ready.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            match event {
                Some(Event::Started { .. } | Event::Token(_)) => {}
                Some(Event::Embedding(vector)) => vectors[at] = vector,
                Some(Event::Done { finish: Finish::Cancelled, .. }) => {
                    let message = format!("the request {:?} was cancelled", self.active.id);
                    return Err(ApiError::new(StatusCode::CONFLICT, message).code("cancelled"));
                }
                Some(Event::Done { usage, .. }) => {
                    prompt_tokens += usage.prompt_tokens;
                    open.retain(|(other, _)| *other != at);
                }
                Some(Event::Failed(failure)) => return Err(failure.into()),
                None => {
                    let message = "the engine closed the request before it was finished";
                    let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message);
                    return Err(error.code("internal_error"));
                }
            }
        }
        let entry = |(index, vector): (usize, &Vec<f32>)| {
            let vector = if self.base64 { json!(base64_of(vector)) } else { json!(vector) };
            json!({ "object": "embedding", "index": index, "embedding": vector })
        };
        let value = json!({
            "object": "list",
            "data": vectors.iter().enumerate().map(entry).collect::<Vec<Value>>(),
            "model": self.loaded.name,
            "usage": { "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens },
        });
        let id = HeaderValue::from_str(&self.active.id).ok();
        Ok(with_headers(json_response(&value), "x-request-id", id))
    }
}

fn base64_of(vector: &[f32]) -> String {
    base64::encode(vector.iter().flat_map(|element| element.to_le_bytes()).collect::<Vec<u8>>())
}
