//! Answers to chat and text completions as JSON, whole or as a stream of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, header};
use axum::response::IntoResponse;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_core::Stream;
use serde_json::{Map, Value, json};

use super::error::ApiResult;
use super::generation::{Generation, Update, chat_logprob, finite, token_text};
use super::json_response;
use super::state::{Loaded, State, now, random_id};
use crate::protocol::Token;
use crate::text::{Part, ToolCall};

/// Which API an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Chat,
    Text,
}

/// The answer to a request for completions.
pub(crate) struct Answer {
    pub(crate) state: Arc<State>,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) generation: Generation,
    pub(crate) style: Style,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    /// Whether log probabilities are reported.
    pub(crate) logprobs: bool,
    /// The prompts to repeat before the answers.
    pub(crate) echo: Vec<String>,
}

impl Answer {
    pub(crate) async fn respond(self) -> ApiResult<Response<Body>> {
        let id = HeaderValue::from_str(self.generation.id()).ok();
        let response = match self.stream {
            true => {
                let keep_alive = KeepAlive::new().interval(self.state.options.keep_alive);
                Sse::new(EventStream::new(self)).keep_alive(keep_alive).into_response()
            }
            false => json_response(&self.whole().await?),
        };
        Ok(with_headers(response, "x-request-id", id))
    }

    async fn whole(mut self) -> ApiResult<Value> {
        let count = self.generation.len();
        self.generation.keep_logprobs();
        let mut choices: Vec<WholeChoice> = (0..count).map(|_| WholeChoice::default()).collect();
        while let Some(update) = poll_fn(|context| self.generation.poll_update(context)).await {
            let update = update?;
            choices[update.choice].add(update);
        }
        let each = choices.into_iter().enumerate();
        let choices: Vec<Value> = each.map(|(index, choice)| self.whole_choice(index, choice)).collect();
        let object = match self.style {
            Style::Chat => "chat.completion",
            Style::Text => "text_completion",
        };
        let mut value = self.envelope(object, choices);
        value["usage"] = self.generation.usage();
        Ok(value)
    }

    fn whole_choice(&self, index: usize, choice: WholeChoice) -> Value {
        let logprobs = self.logprobs_json(&choice.tokens, 0);
        let finish = choice.finish;
        if self.style == Style::Text {
            let text = self.echo.get(index).cloned().unwrap_or_default() + &choice.content;
            return json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish });
        }
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        let content = match choice.content.is_empty() && !choice.calls.is_empty() {
            true => Value::Null,
            false => choice.content.into(),
        };
        message.insert("content".into(), content);
        if !choice.reasoning.is_empty() {
            message.insert("reasoning_content".into(), choice.reasoning.into());
        }
        if !choice.calls.is_empty() {
            message.insert("tool_calls".into(), choice.calls.iter().map(call_json).collect());
        }
        json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish })
    }

    fn envelope(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.generation.id(),
            "object": object,
            "created": now(),
            "model": self.loaded.name,
            "choices": choices,
        })
    }

    /// The log probabilities of tokens; `offset` is the length of the text before them.
    fn logprobs_json(&self, tokens: &[Token], mut offset: usize) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        let language = &self.loaded.language;
        if self.style == Style::Chat {
            let content: Vec<Value> = tokens.iter().map(|token| chat_logprob(language, token)).collect();
            return json!({ "content": content });
        }
        let (mut texts, mut logprobs, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
        for token in tokens {
            let text = token_text(language, token.id);
            let top = token.top.iter().map(|(id, p)| (token_text(language, *id), finite(*p).into()));
            tops.push(top.collect::<Map<String, Value>>());
            logprobs.push(token.logprob.map(finite));
            offsets.push(offset);
            offset += text.chars().count();
            texts.push(text);
        }
        json!({ "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets })
    }
}

/// Adds the id of the request under the header `name`, and headers that stop proxies from buffering or
/// caching the answer.
pub(crate) fn with_headers(
    mut response: Response<Body>,
    name: &'static str,
    id: Option<HeaderValue>,
) -> Response<Body> {
    let headers = response.headers_mut();
    headers.extend(id.map(|id| (HeaderName::from_static(name), id)));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A choice of an answer that is not streamed.
#[derive(Default)]
struct WholeChoice {
    content: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    tokens: Vec<Token>,
    finish: Option<&'static str>,
}

impl WholeChoice {
    fn add(&mut self, update: Update) {
        for part in update.parts {
            match part {
                Part::Content(text) => self.content.push_str(&text),
                Part::Reasoning(text) => self.reasoning.push_str(&text),
                Part::Call(call) => self.calls.push(call),
            }
        }
        self.tokens.extend(update.token);
        self.finish = update.finish.or(self.finish);
    }
}

fn call_json(call: &ToolCall) -> Value {
    json!({
        "id": random_id("call"),
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

/// The events of a streamed answer.
struct EventStream {
    answer: Answer,
    /// Events that are ready.
    ready: VecDeque<String>,
    /// The number of calls of each choice so far.
    calls: Vec<usize>,
    /// The number of characters of each choice so far.
    offsets: Vec<usize>,
    ended: bool,
}

impl EventStream {
    fn new(answer: Answer) -> Self {
        let count = answer.generation.len();
        let mut stream = EventStream {
            answer,
            ready: VecDeque::new(),
            calls: vec![0; count],
            offsets: vec![0; count],
            ended: false,
        };
        // Send the id at once, before the first token.
        for index in 0..count {
            match stream.answer.style {
                Style::Chat => {
                    stream.delta(index, json!({ "role": "assistant", "content": "" }), Value::Null, None);
                }
                Style::Text => {
                    if let Some(prompt) = stream.answer.echo.get(index).cloned() {
                        stream.text(index, prompt, Value::Null, None);
                    }
                }
            }
        }
        stream
    }

    fn push(&mut self, object: &str, choices: Vec<Value>) {
        let mut value = self.answer.envelope(object, choices);
        if self.answer.include_usage {
            value["usage"] = Value::Null;
        }
        self.ready.push_back(value.to_string());
    }

    fn delta(&mut self, index: usize, delta: Value, logprobs: Value, finish: Option<&str>) {
        let choice = json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish });
        self.push("chat.completion.chunk", vec![choice]);
    }

    fn text(&mut self, index: usize, text: String, logprobs: Value, finish: Option<&str>) {
        let choice = json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish });
        self.push("text_completion", vec![choice]);
    }

    fn update(&mut self, update: Update) {
        let Update { choice: index, parts, token, finish } = update;
        let mut logprobs = match &token {
            Some(token) => self.answer.logprobs_json(std::slice::from_ref(token), self.offsets[index]),
            None => Value::Null,
        };
        if let Some(token) = &token {
            self.offsets[index] += token_text(&self.answer.loaded.language, token.id).chars().count();
        }
        for part in parts {
            let logprobs = logprobs.take();
            match part {
                Part::Content(text) if self.answer.style == Style::Text => {
                    self.text(index, text, logprobs, None);
                }
                Part::Content(text) => self.delta(index, json!({ "content": text }), logprobs, None),
                Part::Reasoning(text) => {
                    self.delta(index, json!({ "reasoning_content": text }), logprobs, None);
                }
                Part::Call(call) => {
                    let mut value = call_json(&call);
                    value["index"] = self.calls[index].into();
                    self.calls[index] += 1;
                    self.delta(index, json!({ "tool_calls": [value] }), logprobs, None);
                }
            }
        }
        // Report log probabilities with their token, even if its text is held back.
        if finish.is_some() || !logprobs.is_null() {
            match self.answer.style {
                Style::Chat => self.delta(index, json!({}), logprobs, finish),
                Style::Text => self.text(index, String::new(), logprobs, finish),
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        if self.answer.include_usage {
            let object = match self.answer.style {
                Style::Chat => "chat.completion.chunk",
                Style::Text => "text_completion",
            };
            let mut value = self.answer.envelope(object, Vec::new());
            value["usage"] = self.answer.generation.usage();
            self.ready.push_back(value.to_string());
        }
        self.ready.push_back("[DONE]".into());
    }
}

impl Stream for EventStream {
    type Item = Result<sse::Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(sse::Event::default().data(data))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.answer.generation.poll_update(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(update))) => self.update(update),
                Poll::Ready(Some(Err(error))) => {
                    self.ended = true;
                    self.ready.push_back(error.json().to_string());
                }
                Poll::Ready(None) => self.end(),
            }
        }
    }
}
