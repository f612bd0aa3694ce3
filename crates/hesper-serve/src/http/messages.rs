//! `/v1/messages`, the API of Anthropic: converts a request to a chat completion, and its answer to content
//! blocks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_core::Stream;
use serde_json::{Map, Value, json};

use super::answer::{Answer, with_headers};
use super::chat;
use super::error::{ApiError, ApiResult};
use super::fields::{Fields, type_name};
use super::generation::{Generation, Update};
use super::json_response;
use super::state::{State, random_id};
use crate::text::{Part, ToolCall};

/// An error in the format of this API.
pub(crate) struct MessagesError(ApiError);

impl From<ApiError> for MessagesError {
    fn from(error: ApiError) -> Self {
        MessagesError(error)
    }
}

impl IntoResponse for MessagesError {
    fn into_response(self) -> Response<Body> {
        let body = Body::from(error_json(&self.0).to_string());
        self.0.into_response().map(|_| body)
    }
}

/// An error in the format of the API that a path belongs to.
pub(crate) fn error_response(path: &str, error: ApiError) -> Response<Body> {
    match path.starts_with("/v1/messages") {
        true => MessagesError(error).into_response(),
        false => error.into_response(),
    }
}

fn error_json(error: &ApiError) -> Value {
    let kind = match error.status_code() {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "api_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": error.json()["error"]["message"] } })
}

/// Submits a request for a message.
pub(crate) fn submit(state: &Arc<State>, tenant: u64, body: &Map<String, Value>) -> ApiResult<Message> {
    let body = Fields::body(body);
    if body.integer("max_tokens", 1..=i64::MAX)?.is_none() {
        return Err(body.error("max_tokens", "is missing"));
    }
    Ok(Message(chat::submit(state, tenant, &chat_request(&body)?)?))
}

/// The number of tokens of a request.
pub(crate) fn count_tokens(state: &Arc<State>, body: &Map<String, Value>) -> ApiResult<Value> {
    let (loaded, request) = (state.loaded()?, chat_request(&Fields::body(body))?);
    let conversation = chat::conversation(&Fields::body(&request), &loaded)?.0;
    Ok(json!({ "input_tokens": chat::encode(&conversation, &loaded, loaded.count_limit())?.1.len() }))
}

/// Converts a request to one for a chat completion.
fn chat_request(body: &Fields<'_>) -> ApiResult<Map<String, Value>> {
    let mut request = Map::new();
    let same = [
        "model",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stream",
        "seed",
        "timeout",
        "priority",
        "request_id",
    ];
    for field in same {
        if let Some(value) = body.get(field) {
            request.insert(field.into(), value.clone());
        }
    }
    if let Some(stops) = body.array("stop_sequences")? {
        request.insert("stop".into(), stops.clone().into());
    }
    let mut messages = Vec::new();
    if let Some(system) = body.get("system") {
        messages.push(json!({ "role": "system", "content": text_of(system, "system".into())? }));
    }
    let Some(list) = body.array("messages")? else { return Err(body.error("messages", "is missing")) };
    for (at, value) in list.iter().enumerate() {
        let message = Fields::of(value, format!("messages[{at}]"))?;
        match message.text("role")? {
            Some("user") => user(&message, &mut messages)?,
            Some("assistant") => messages.push(assistant(&message)?),
            role => {
                let what = format!("must be user or assistant, not {}", role.unwrap_or("missing"));
                return Err(message.error("role", what));
            }
        }
    }
    request.insert("messages".into(), messages.into());
    if let Some(tools) = body.array("tools")? {
        let each = tools.iter().enumerate().map(|(at, tool)| chat_tool(tool, at));
        request.insert("tools".into(), each.collect::<ApiResult<Vec<Value>>>()?.into());
    }
    if let Some(choice) = body.object("tool_choice")? {
        let value = match choice.text("type")? {
            Some("auto") => json!("auto"),
            Some("any") => json!("required"),
            Some("none") => json!("none"),
            Some("tool") => {
                let name = choice.text("name")?.ok_or_else(|| choice.error("name", "is missing"))?;
                json!({ "type": "function", "function": { "name": name } })
            }
            other => {
                let what = format!("must be auto, any, tool or none, not {}", other.unwrap_or("missing"));
                return Err(choice.error("type", what));
            }
        };
        request.insert("tool_choice".into(), value);
        let single = choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
        request.insert("parallel_tool_calls".into(), (!single).into());
    }
    if let Some(thinking) = body.object("thinking")? {
        let enabled = thinking.text("type")? != Some("disabled");
        request.insert("chat_template_kwargs".into(), json!({ "enable_thinking": enabled }));
    }
    Ok(request)
}

/// The blocks of a content array, with their types.
fn blocks<'a>(content: &'a Value, name: &str) -> ApiResult<Vec<(&'a str, Fields<'a>)>> {
    let Value::Array(list) = content else {
        let what = format!("must be a string or an array of blocks, not {}", type_name(content));
        return Err(ApiError::field(name, what));
    };
    let block = |(at, block): (usize, &'a Value)| {
        let block = Fields::of(block, format!("{name}[{at}]"))?;
        let kind = block.text("type")?.ok_or_else(|| block.error("type", "is missing"))?;
        Ok((kind, block))
    };
    list.iter().enumerate().map(block).collect()
}

fn wrong_block(block: &Fields<'_>, kind: &str, expected: &str) -> ApiError {
    block.error("type", format!("must be {expected}, not {kind:?}"))
}

fn required<'a>(block: &Fields<'a>, field: &str) -> ApiResult<&'a str> {
    block.text(field)?.ok_or_else(|| block.error(field, "is missing"))
}

/// The text of a string or of an array of text blocks.
fn text_of(content: &Value, name: String) -> ApiResult<String> {
    if let Value::String(text) = content {
        return Ok(text.clone());
    }
    let mut text = String::new();
    for (kind, block) in blocks(content, &name)? {
        match kind {
            "text" => text.push_str(required(&block, "text")?),
            _ => return Err(wrong_block(&block, kind, "text: the model reads text only")),
        }
    }
    Ok(text)
}

fn content_of<'a>(message: &Fields<'a>) -> ApiResult<&'a Value> {
    message.get("content").ok_or_else(|| message.error("content", "is missing"))
}

/// Converts a message of the user: its text is one message, and each tool result is another.
fn user(message: &Fields<'_>, messages: &mut Vec<Value>) -> ApiResult<()> {
    let content = content_of(message)?;
    if let Value::String(text) = content {
        messages.push(json!({ "role": "user", "content": text }));
        return Ok(());
    }
    let mut text = String::new();
    for (kind, block) in blocks(content, &message.name("content"))? {
        match kind {
            "text" => text.push_str(required(&block, "text")?),
            "tool_result" => {
                let result = match block.get("content") {
                    Some(content) => text_of(content, block.name("content"))?,
                    None => String::new(),
                };
                let id = required(&block, "tool_use_id")?;
                messages.push(json!({ "role": "tool", "tool_call_id": id, "content": result }));
            }
            _ => return Err(wrong_block(&block, kind, "text or tool_result: the model reads text only")),
        }
    }
    if !text.is_empty() {
        messages.push(json!({ "role": "user", "content": text }));
    }
    Ok(())
}

/// Converts a message of the model, with its reasoning and tool calls.
fn assistant(message: &Fields<'_>) -> ApiResult<Value> {
    let content = content_of(message)?;
    if let Value::String(text) = content {
        return Ok(json!({ "role": "assistant", "content": text }));
    }
    let (mut text, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for (kind, block) in blocks(content, &message.name("content"))? {
        match kind {
            "text" => text.push_str(required(&block, "text")?),
            "thinking" => thoughts.push_str(required(&block, "thinking")?),
            "redacted_thinking" => {}
            "tool_use" => {
                let (id, name) = (required(&block, "id")?, required(&block, "name")?);
                let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
                let function = json!({ "name": name, "arguments": input });
                calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            _ => return Err(wrong_block(&block, kind, "text, thinking or tool_use")),
        }
    }
    let mut value = json!({ "role": "assistant", "content": text });
    if !thoughts.is_empty() {
        value["reasoning_content"] = thoughts.into();
    }
    if !calls.is_empty() {
        value["tool_calls"] = calls.into();
    }
    Ok(value)
}

fn chat_tool(tool: &Value, at: usize) -> ApiResult<Value> {
    let tool = Fields::of(tool, format!("tools[{at}]"))?;
    if let Some(kind) = tool.text("type")?.filter(|kind| *kind != "custom") {
        return Err(
            tool.error("type", format!("must be custom, not {kind:?}: the server has no tools of its own"))
        );
    }
    let name = required(&tool, "name")?;
    let mut function = json!({ "name": name, "parameters": tool.get("input_schema") });
    for field in ["description", "strict"] {
        if let Some(value) = tool.get(field) {
            function[field] = value.clone();
        }
    }
    Ok(json!({ "type": "function", "function": function }))
}

/// The answer to a request for a message.
pub(crate) struct Message(Answer);

fn stop_reason(finish: &str) -> &'static str {
    match finish {
        "length" => "max_tokens",
        "tool_calls" => "tool_use",
        _ => "end_turn",
    }
}

/// The block of a call with an empty input, and the input.
fn call_block(call: &ToolCall) -> (Value, Value) {
    let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    (json!({ "type": "tool_use", "id": random_id("toolu"), "name": call.name, "input": {} }), input)
}

impl Message {
    pub(crate) async fn respond(self) -> Result<Response<Body>, MessagesError> {
        let id = HeaderValue::from_str(self.0.generation.id()).ok();
        let response = match self.0.stream {
            true => {
                let keep_alive = KeepAlive::new().interval(self.0.state.options.keep_alive);
                Sse::new(BlockStream::new(self)).keep_alive(keep_alive).into_response()
            }
            false => json_response(&self.whole().await?),
        };
        Ok(with_headers(response, "request-id", id))
    }

    fn json(&self, content: Vec<Value>, reason: Option<&str>) -> Value {
        json!({
            "id": self.0.generation.id(),
            "type": "message",
            "role": "assistant",
            "model": self.0.loaded.name,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": null,
            "usage": usage(&self.0.generation),
        })
    }

    async fn whole(mut self) -> ApiResult<Value> {
        let (mut content, mut reason) = (Vec::new(), None);
        while let Some(update) = poll_fn(|context| self.0.generation.poll_update(context)).await {
            let Update { parts, finish, .. } = update?;
            for part in parts {
                match part {
                    Part::Content(text) => add_text(&mut content, "text", &text),
                    Part::Reasoning(text) => add_text(&mut content, "thinking", &text),
                    Part::Call(call) => {
                        let (mut block, input) = call_block(&call);
                        block["input"] = input;
                        content.push(block);
                    }
                }
            }
            reason = finish.map(stop_reason).or(reason);
        }
        Ok(self.json(content, reason))
    }
}

/// An empty block of type `text` or `thinking`. The field with the name of the type holds the text.
fn text_block(kind: &str) -> Value {
    match kind {
        // The API requires a signature. This server does not sign or verify.
        "thinking" => json!({ "type": kind, kind: "", "signature": "" }),
        _ => json!({ "type": kind, kind: "" }),
    }
}

/// Appends text to the last block, or to a new one if the last has another type.
fn add_text(content: &mut Vec<Value>, kind: &str, text: &str) {
    if content.last().is_none_or(|last| last["type"] != kind) {
        content.push(text_block(kind));
    }
    if let Some(Value::String(whole)) = content.last_mut().and_then(|last| last.get_mut(kind)) {
        whole.push_str(text);
    }
}

fn usage(generation: &Generation) -> Value {
    let usage = &generation.usage;
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    })
}

/// The server-sent events of a streamed answer. The name of an event is its type.
struct BlockStream {
    message: Message,
    ready: VecDeque<Value>,
    /// The type of the open block.
    open: Option<&'static str>,
    /// The number of blocks so far.
    count: usize,
    reason: Option<&'static str>,
    ended: bool,
}

impl BlockStream {
    fn new(message: Message) -> Self {
        let start = json!({ "type": "message_start", "message": message.json(Vec::new(), None) });
        BlockStream {
            message,
            ready: VecDeque::from([start]),
            open: None,
            count: 0,
            reason: None,
            ended: false,
        }
    }

    fn close(&mut self) {
        if self.open.take().is_some() {
            self.ready.push_back(json!({ "type": "content_block_stop", "index": self.count - 1 }));
        }
    }

    fn open(&mut self, kind: &'static str, block: Value) {
        self.close();
        self.ready
            .push_back(json!({ "type": "content_block_start", "index": self.count, "content_block": block }));
        (self.open, self.count) = (Some(kind), self.count + 1);
    }

    fn delta(&mut self, delta: Value) {
        let index = self.count - 1;
        self.ready.push_back(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    fn part(&mut self, part: Part) {
        match part {
            Part::Content(text) => {
                if self.open != Some("text") {
                    self.open("text", text_block("text"));
                }
                self.delta(json!({ "type": "text_delta", "text": text }));
            }
            Part::Reasoning(text) => {
                if self.open != Some("thinking") {
                    self.open("thinking", text_block("thinking"));
                }
                self.delta(json!({ "type": "thinking_delta", "thinking": text }));
            }
            Part::Call(call) => {
                let (block, input) = call_block(&call);
                self.open("tool_use", block);
                self.delta(json!({ "type": "input_json_delta", "partial_json": input.to_string() }));
                self.close();
            }
        }
    }

    fn end(&mut self) {
        self.close();
        let delta = json!({ "stop_reason": self.reason, "stop_sequence": null });
        let usage = usage(&self.message.0.generation);
        self.ready.push_back(json!({ "type": "message_delta", "delta": delta, "usage": usage }));
        self.ready.push_back(json!({ "type": "message_stop" }));
        self.ended = true;
    }
}

impl Stream for BlockStream {
    type Item = Result<sse::Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                let name = event["type"].as_str().unwrap_or_default().to_string();
                return Poll::Ready(Some(Ok(sse::Event::default().event(name).data(event.to_string()))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.message.0.generation.poll_update(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(update))) => {
                    update.parts.into_iter().for_each(|part| self.part(part));
                    self.reason = update.finish.map(stop_reason).or(self.reason);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.ended = true;
                    self.ready.push_back(error_json(&error));
                }
                Poll::Ready(None) => self.end(),
            }
        }
    }
}
