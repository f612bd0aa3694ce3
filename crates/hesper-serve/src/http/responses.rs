//! `/v1/responses`: converts a request to a chat completion, and its answer to a list of items.
//!
//! An answer is stored for `previous_response_id` unless the request has `"store": false`
//! ([`super::response_store`]).

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
use super::generation::{Update, chat_logprob};
use super::json_response;
use super::response_store::StoredResponse;
use super::state::{State, now, random_id};
use crate::text::Part;

/// Fields that a chat completion has with the same meaning.
const CHAT_FIELDS: [&str; 18] = [
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stream",
    "parallel_tool_calls",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "chat_template_kwargs",
    "cache_prompt",
    "ignore_eos",
    "timeout",
    "priority",
    "request_id",
];

/// Submits a request for a response.
pub(crate) fn submit(
    state: &Arc<State>,
    tenant: u64,
    body: &Map<String, Value>,
) -> ApiResult<ResponseAnswer> {
    let fields = Fields::body(body);
    for (field, instead) in [("conversation", "previous_response_id"), ("prompt", "instructions and input")] {
        if fields.get(field).is_some() {
            return Err(fields.error(field, format!("is not supported; use {instead}")));
        }
    }
    if fields.flag("background")?.unwrap_or(false) {
        return Err(fields.error("background", "must be false: background responses are not supported"));
    }
    if let Some(other) = fields.text("truncation")?.filter(|value| *value != "disabled") {
        return Err(fields.error("truncation", format!("must be disabled, not {other:?}")));
    }
    let previous = previous(state, tenant, &fields)?;
    let mut messages = previous.unwrap_or_default();
    input(&fields, &mut messages)?;
    let mut request = chat_request(&fields)?;
    let instructions = fields.text("instructions")?;
    let system = instructions.map(|text| json!({ "role": "system", "content": text }));
    request.insert("messages".into(), system.into_iter().chain(messages.iter().cloned()).collect());
    request.entry("request_id").or_insert_with(|| random_id("resp").into());
    let names =
        [("messages", "input"), ("max_tokens", "max_output_tokens"), ("response_format", "text.format")];
    let mut answer = chat::submit(state, tenant, &request).map_err(|error| error.renamed(&names))?;
    // A response repeats all of its items when it is complete, streamed or not.
    answer.generation.keep_logprobs();
    let store = fields.flag("store")?.unwrap_or(true);
    let echo = echo(body, store);
    Ok(ResponseAnswer { answer, tenant, messages, store, echo, created: now() })
}

/// The conversation that a request continues.
fn previous(state: &State, tenant: u64, fields: &Fields<'_>) -> ApiResult<Option<Vec<Value>>> {
    let Some(id) = fields.text("previous_response_id")? else { return Ok(None) };
    let known = state.responses().get(id, tenant).map(|stored| stored.messages.clone());
    let missing = || {
        let what =
            format!("there is no response {id:?}: it was not stored, or newer responses have replaced it");
        fields.error("previous_response_id", what).code("previous_response_not_found")
    };
    known.map(Some).ok_or_else(missing)
}

/// A stored answer.
pub(crate) fn find(state: &State, id: &str, tenant: u64) -> ApiResult<Value> {
    let found = state.responses().get(id, tenant).map(|stored| stored.response.clone());
    found.ok_or_else(|| unknown(id))
}

/// Deletes a stored answer.
pub(crate) fn delete(state: &State, id: &str, tenant: u64) -> ApiResult<Value> {
    match state.responses().remove(id, tenant) {
        true => Ok(json!({ "id": id, "object": "response", "deleted": true })),
        false => Err(unknown(id)),
    }
}

fn unknown(id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no response {id:?}")).code("response_not_found")
}

/// Converts a request to one for a chat completion, without messages.
fn chat_request(body: &Fields<'_>) -> ApiResult<Map<String, Value>> {
    let mut request = Map::new();
    for field in CHAT_FIELDS {
        if let Some(value) = body.get(field) {
            request.insert(field.into(), value.clone());
        }
    }
    if let Some(count) = body.integer("max_output_tokens", 1..=i64::MAX)? {
        request.insert("max_tokens".into(), count.into());
    }
    if let Some(tools) = body.array("tools")? {
        let each = tools.iter().enumerate().map(|(at, tool)| chat_tool(tool, at));
        request.insert("tools".into(), each.collect::<ApiResult<Vec<Value>>>()?.into());
    }
    match body.get("tool_choice") {
        Some(Value::Object(_)) => {
            let choice =
                body.object("tool_choice")?.ok_or_else(|| body.error("tool_choice", "is missing"))?;
            let function = |tool: &Fields<'_>| {
                Ok(json!({ "type": "function", "function": { "name": required(tool, "name")? } }))
            };
            let choice = match choice.text("type")? {
                Some("function") => function(&choice)?,
                Some("allowed_tools") => {
                    let list = choice.array("tools")?.into_iter().flatten().enumerate();
                    let tools = list
                        .map(|(at, tool)| function(&Fields::of(tool, choice.name(&format!("tools[{at}]")))?));
                    let tools = tools.collect::<ApiResult<Vec<Value>>>()?;
                    let allowed = json!({ "mode": choice.text("mode")?, "tools": tools });
                    json!({ "type": "allowed_tools", "allowed_tools": allowed })
                }
                _ => return Err(choice.error("type", "must be function or allowed_tools")),
            };
            request.insert("tool_choice".into(), choice);
        }
        Some(choice) => {
            request.insert("tool_choice".into(), choice.clone());
        }
        None => {}
    }
    if let Some(format) = body.object("text")?.map(|text| text.object("format")).transpose()?.flatten() {
        request.insert("response_format".into(), chat_format(&format)?);
    }
    if let Some(effort) = body.object("reasoning")?.map(|own| own.text("effort")).transpose()?.flatten()
        && matches!(effort, "none" | "minimal")
    {
        let variables = request.entry("chat_template_kwargs").or_insert_with(|| json!({}));
        if let Some(variables) = variables.as_object_mut() {
            variables.entry("enable_thinking").or_insert(false.into());
        }
    }
    let include = body.array("include")?.into_iter().flatten();
    if include.into_iter().any(|value| value == "message.output_text.logprobs") {
        request.insert("logprobs".into(), true.into());
        if let Some(count) = body.get("top_logprobs") {
            request.insert("top_logprobs".into(), count.clone());
        }
    }
    Ok(request)
}

fn required<'a>(fields: &Fields<'a>, field: &str) -> ApiResult<&'a str> {
    fields.text(field)?.ok_or_else(|| fields.error(field, "is missing"))
}

fn chat_tool(tool: &Value, at: usize) -> ApiResult<Value> {
    let tool = Fields::of(tool, format!("tools[{at}]"))?;
    match required(&tool, "type")? {
        "function" => {}
        other => {
            let what = format!("must be function, not {other:?}: the server has no tools of its own");
            return Err(tool.error("type", what));
        }
    }
    let mut function = json!({ "name": required(&tool, "name")? });
    for field in ["description", "parameters", "strict"] {
        if let Some(value) = tool.get(field) {
            function[field] = value.clone();
        }
    }
    Ok(json!({ "type": "function", "function": function }))
}

fn chat_format(format: &Fields<'_>) -> ApiResult<Value> {
    let kind = required(format, "type")?;
    if kind != "json_schema" {
        return Ok(format.entries().map(|(name, value)| (name.clone(), value.clone())).collect());
    }
    let mut schema = json!({ "name": format.text("name")?.unwrap_or("schema") });
    for field in ["schema", "strict"] {
        if let Some(value) = format.get(field) {
            schema[field] = value.clone();
        }
    }
    Ok(json!({ "type": kind, "json_schema": schema }))
}

/// Converts the input items of a request and appends them to the messages.
fn input(body: &Fields<'_>, messages: &mut Vec<Value>) -> ApiResult<()> {
    match body.get("input") {
        None => Err(body.error("input", "is missing")),
        Some(Value::String(text)) => {
            messages.push(json!({ "role": "user", "content": text }));
            Ok(())
        }
        Some(Value::Array(items)) => {
            let mut each = items.iter().enumerate();
            each.try_for_each(|(at, value)| item(&Fields::of(value, format!("input[{at}]"))?, messages))
        }
        Some(other) => {
            let what = format!("must be a string or an array of items, not {}", type_name(other));
            Err(body.error("input", what))
        }
    }
}

/// Converts an item and appends it to the messages. Consecutive reasoning, text and calls of the model become
/// one message.
fn item(item: &Fields<'_>, messages: &mut Vec<Value>) -> ApiResult<()> {
    match item.text("type")?.unwrap_or("message") {
        "message" => {
            let (role, text) = (required(item, "role")?, text_of(item, "content")?);
            match role {
                "assistant" => {
                    let message = assistant_message(messages, |last| {
                        last["content"] == "" && last["tool_calls"].is_null()
                    });
                    message["content"] = text.into();
                }
                _ => messages.push(json!({ "role": role, "content": text })),
            }
        }
        "function_call" => {
            let function =
                json!({ "name": required(item, "name")?, "arguments": required(item, "arguments")? });
            let call = json!({ "id": required(item, "call_id")?, "type": "function", "function": function });
            let message = assistant_message(messages, |_| true);
            match &mut message["tool_calls"] {
                Value::Array(calls) => calls.push(call),
                calls => *calls = json!([call]),
            }
        }
        "function_call_output" => {
            let (id, text) = (required(item, "call_id")?, text_of(item, "output")?);
            messages.push(json!({ "role": "tool", "tool_call_id": id, "content": text }));
        }
        "reasoning" => {
            let text = match item.get("content") {
                Some(_) => text_of(item, "content")?,
                None => String::new(),
            };
            if !text.is_empty() {
                assistant_message(messages, |_| false)["reasoning_content"] = text.into();
            }
        }
        other => {
            let what =
                format!("must be message, function_call, function_call_output or reasoning, not {other:?}");
            return Err(item.error("type", what));
        }
    }
    Ok(())
}

/// The last message, if it is of the model and `accepts` allows to extend it, or a new message of the model.
fn assistant_message(messages: &mut Vec<Value>, accepts: impl Fn(&Value) -> bool) -> &mut Value {
    if !messages.last().is_some_and(|last| last["role"] == "assistant" && accepts(last)) {
        messages.push(json!({ "role": "assistant", "content": "" }));
    }
    let last = messages.len() - 1;
    &mut messages[last]
}

/// The text of a string or of an array of text parts.
fn text_of(item: &Fields<'_>, field: &str) -> ApiResult<String> {
    match item.get(field) {
        None => Err(item.error(field, "is missing")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for (at, part) in parts.iter().enumerate() {
                let part = Fields::of(part, item.name(&format!("{field}[{at}]")))?;
                match required(&part, "type")? {
                    "input_text" | "output_text" | "reasoning_text" | "summary_text" | "text" => {
                        text.push_str(required(&part, "text")?);
                    }
                    "refusal" => text.push_str(required(&part, "refusal")?),
                    other => {
                        let what = format!("must be a text type, not {other:?}: the model reads text only");
                        return Err(part.error("type", what));
                    }
                }
            }
            Ok(text)
        }
        Some(other) => {
            Err(item.error(field, format!("must be a string or an array of parts, not {}", type_name(other))))
        }
    }
}

/// The fields of a request that its response repeats.
fn echo(body: &Map<String, Value>, store: bool) -> Map<String, Value> {
    let defaults = json!({
        "instructions": null,
        "max_output_tokens": null,
        "metadata": {},
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": { "effort": null, "summary": null },
        "temperature": 1.0,
        "text": { "format": { "type": "text" } },
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": null,
    });
    let mut echo = Map::new();
    for (field, default) in defaults.as_object().into_iter().flatten() {
        let given = body.get(field).filter(|value| !value.is_null());
        echo.insert(field.clone(), given.unwrap_or(default).clone());
    }
    echo.insert("store".into(), store.into());
    echo
}

/// The answer to a request for a response.
pub(crate) struct ResponseAnswer {
    answer: Answer,
    tenant: u64,
    /// The conversation without instructions.
    messages: Vec<Value>,
    store: bool,
    echo: Map<String, Value>,
    created: u64,
}

impl ResponseAnswer {
    pub(crate) async fn respond(self) -> ApiResult<Response<Body>> {
        let id = HeaderValue::from_str(self.answer.generation.id()).ok();
        let response = match self.answer.stream {
            true => {
                let keep_alive = KeepAlive::new().interval(self.answer.state.options.keep_alive);
                Sse::new(ItemStream::new(self)).keep_alive(keep_alive).into_response()
            }
            false => json_response(&self.whole().await?),
        };
        Ok(with_headers(response, "x-request-id", id))
    }

    async fn whole(mut self) -> ApiResult<Value> {
        let mut items = Items::default();
        while let Some(update) = poll_fn(|context| self.answer.generation.poll_update(context)).await {
            items.add(update?, &self);
        }
        Ok(self.finish(&mut items))
    }

    /// The response with the items that are complete.
    fn json(&self, status: &str, items: &Items) -> Value {
        let mut value = Value::Object(self.echo.clone());
        let usage = self.answer.generation.usage();
        let is_over = status != "in_progress";
        let incomplete = match (status, items.finish) {
            ("incomplete", Some("length")) => json!({ "reason": "max_output_tokens" }),
            ("incomplete", _) => json!({ "reason": "cancelled" }),
            _ => Value::Null,
        };
        let fields = json!({
            "id": self.answer.generation.id(),
            "object": "response",
            "created_at": self.created,
            "completed_at": is_over.then(now),
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": incomplete,
            "model": self.answer.loaded.name,
            "output": items.output,
            "usage": is_over.then(|| json!({
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": usage["completion_tokens_details"],
                "total_tokens": usage["total_tokens"],
            })),
        });
        if let (Some(to), Value::Object(from)) = (value.as_object_mut(), fields) {
            to.extend(from);
        }
        value
    }

    /// Completes the response, and stores it if the request allows that.
    fn finish(&mut self, items: &mut Items) -> Value {
        items.close();
        let status = match items.finish {
            Some("length" | "cancelled") => "incomplete",
            _ => "completed",
        };
        let response = self.json(status, items);
        if self.store {
            let mut messages = std::mem::take(&mut self.messages);
            for (at, output) in items.output.iter().enumerate() {
                // Output items have the format of input items.
                if let Ok(fields) = Fields::of(output, format!("output[{at}]")) {
                    let _ = item(&fields, &mut messages);
                }
            }
            let stored = StoredResponse { tenant: self.tenant, messages, response: response.clone() };
            self.answer.state.responses().insert(self.answer.generation.id().into(), stored);
        }
        response
    }
}

/// The output items of an answer, and the events that report them.
#[derive(Default)]
struct Items {
    output: Vec<Value>,
    /// The type of the open item.
    open: Option<&'static str>,
    events: VecDeque<Value>,
    finish: Option<&'static str>,
}

/// The type of the content parts of an item.
fn part_type(kind: &str) -> &'static str {
    if kind == "message" { "output_text" } else { "reasoning_text" }
}

impl Items {
    fn add(&mut self, update: Update, of: &ResponseAnswer) {
        let logprobs: Vec<Value> =
            update.token.iter().map(|token| chat_logprob(&of.answer.loaded.language, token)).collect();
        let mut logprobs = Some(logprobs);
        for part in update.parts {
            match part {
                Part::Content(text) => self.text("message", &text, logprobs.take().unwrap_or_default()),
                Part::Reasoning(text) => self.text("reasoning", &text, Vec::new()),
                Part::Call(call) => self.call(&call.name, &call.arguments),
            }
        }
        self.finish = update.finish.or(self.finish);
    }

    /// Adds an event about the last item.
    fn event(&mut self, kind: &str, fields: Value) {
        let at = self.output.len() - 1;
        let mut event = json!({ "type": format!("response.{kind}"), "output_index": at });
        if let (Some(to), Value::Object(fields)) = (event.as_object_mut(), fields) {
            to.extend(fields);
        }
        self.events.push_back(event);
    }

    /// Adds an event about the text of the last item.
    fn text_event(&mut self, kind: &str, mut fields: Value) {
        let id = self.output.last().map(|item| item["id"].clone()).unwrap_or_default();
        (fields["item_id"], fields["content_index"]) = (id, 0.into());
        self.event(kind, fields);
    }

    fn begin(&mut self, item: Value) {
        self.close();
        self.output.push(item.clone());
        self.event("output_item.added", json!({ "item": item }));
    }

    fn text(&mut self, kind: &'static str, text: &str, logprobs: Vec<Value>) {
        let part = part_type(kind);
        if self.open != Some(kind) {
            let item = match kind {
                "message" => json!({
                    "id": random_id("msg"), "type": kind, "status": "in_progress", "role": "assistant", "content": [],
                }),
                _ => json!({
                    "id": random_id("rs"), "type": kind, "status": "in_progress", "summary": [], "content": [],
                }),
            };
            self.begin(item);
            self.open = Some(kind);
            let empty = match kind {
                "message" => json!({ "type": part, "text": "", "annotations": [], "logprobs": [] }),
                _ => json!({ "type": part, "text": "" }),
            };
            self.text_event("content_part.added", json!({ "part": empty }));
            if let Some(item) = self.output.last_mut() {
                item["content"] = json!([empty]);
            }
        }
        let mut fields = json!({ "delta": text });
        if kind == "message" {
            fields["logprobs"] = logprobs.clone().into();
        }
        self.text_event(&format!("{part}.delta"), fields);
        let Some(item) = self.output.last_mut() else { return };
        let part = &mut item["content"][0];
        if let Value::String(whole) = &mut part["text"] {
            whole.push_str(text);
        }
        if let Some(Value::Array(all)) = part.get_mut("logprobs") {
            all.extend(logprobs);
        }
    }

    fn call(&mut self, name: &str, arguments: &str) {
        let id = random_id("fc");
        let item = |status: &str, arguments: &str, call: &str| {
            json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "call_id": call,
                "name": name,
                "arguments": arguments,
            })
        };
        let call = random_id("call");
        self.begin(item("in_progress", "", &call));
        let event = |text: &str| json!({ "item_id": id, text: arguments });
        self.event("function_call_arguments.delta", event("delta"));
        let mut done = event("arguments");
        done["name"] = name.into();
        self.event("function_call_arguments.done", done);
        let item = item("completed", arguments, &call);
        self.event("output_item.done", json!({ "item": item }));
        if let Some(last) = self.output.last_mut() {
            *last = item;
        }
    }

    /// Completes the open item.
    fn close(&mut self) {
        let Some(kind) = self.open.take() else { return };
        let status = if self.finish == Some("length") { "incomplete" } else { "completed" };
        let Some(item) = self.output.last_mut() else { return };
        item["status"] = status.into();
        let item = item.clone();
        let part = item["content"][0].clone();
        let mut fields = json!({ "text": part["text"] });
        if kind == "message" {
            fields["logprobs"] = part["logprobs"].clone();
        }
        self.text_event(&format!("{}.done", part_type(kind)), fields);
        self.text_event("content_part.done", json!({ "part": part }));
        self.event("output_item.done", json!({ "item": item }));
    }
}

/// The server-sent events of a streamed answer. The name of an event is its type. Events are numbered.
struct ItemStream {
    answer: ResponseAnswer,
    items: Items,
    sent: u64,
    ended: bool,
}

impl ItemStream {
    fn new(answer: ResponseAnswer) -> Self {
        let mut items = Items::default();
        let response = answer.json("in_progress", &items);
        for kind in ["response.created", "response.in_progress"] {
            items.events.push_back(json!({ "type": kind, "response": response }));
        }
        ItemStream { answer, items, sent: 0, ended: false }
    }

    fn end(&mut self) {
        let response = self.answer.finish(&mut self.items);
        let kind = format!("response.{}", response["status"].as_str().unwrap_or("completed"));
        self.items.events.push_back(json!({ "type": kind, "response": response }));
        self.ended = true;
    }

    fn fail(&mut self, error: &ApiError) {
        let error = &error.json()["error"];
        let mut response = self.answer.json("failed", &self.items);
        let code = if error["code"].is_null() { &json!("server_error") } else { &error["code"] };
        response["error"] = json!({ "code": code, "message": error["message"] });
        self.items.events.push_back(json!({ "type": "response.failed", "response": response }));
        self.ended = true;
    }
}

impl Stream for ItemStream {
    type Item = Result<sse::Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(mut event) = self.items.events.pop_front() {
                event["sequence_number"] = self.sent.into();
                self.sent += 1;
                let name = event["type"].as_str().unwrap_or_default().to_string();
                return Poll::Ready(Some(Ok(sse::Event::default().event(name).data(event.to_string()))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.answer.answer.generation.poll_update(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(update))) => {
                    let ItemStream { answer, items, .. } = &mut *self;
                    items.add(update, answer);
                }
                Poll::Ready(Some(Err(error))) => self.fail(&error),
                Poll::Ready(None) => self.end(),
            }
        }
    }
}
