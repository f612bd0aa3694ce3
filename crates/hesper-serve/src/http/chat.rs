//! `/v1/chat/completions`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::answer::{Answer, Style};
use super::completions::check_model;
use super::error::{ApiError, ApiResult};
use super::fields::{Fields, type_name};
use super::generation::{Generation, Prompt};
use super::params::{self, MAX_LOGPROBS, checked_schema};
use super::state::{Loaded, State, random, random_id};
use crate::protocol::Constraint;
use crate::text::{AnswerParser, Conversation, Tool};

const MAX_TOOLS: usize = 128;

/// Submits a request for a chat completion.
pub(crate) fn submit(state: &Arc<State>, tenant: u64, body: &Map<String, Value>) -> ApiResult<Answer> {
    let loaded = state.loaded()?;
    let body = Fields::body(body);
    check_model(&body, &loaded)?;
    for (field, instead) in [("functions", "tools"), ("function_call", "tool_choice")] {
        if body.get(field).is_some() {
            return Err(body.error(field, format!("is not supported; use {instead}")));
        }
    }
    let mut params = params::read(&body, &loaded.language, random())?;
    let asked = body.flag("logprobs")?.unwrap_or(false);
    let top = body.integer("top_logprobs", 0..=MAX_LOGPROBS)?;
    if top.is_some() && !asked {
        return Err(body.error("top_logprobs", "needs logprobs: true"));
    }
    params.request.logprobs = asked.then_some(top.unwrap_or(0) as usize);
    let (conversation, choice) = conversation(&body, &loaded)?;
    let parallel_calls = body.flag("parallel_tool_calls")?.unwrap_or(true);
    let constraint = tool_constraint(&conversation.tools, choice, parallel_calls, &loaded);
    if let Some(constraint) = constraint {
        if params.request.constraint.is_some() {
            let what = "cannot be combined with strict or required tools";
            return Err(body.error("response_format", what));
        }
        params.request.constraint = Some(constraint);
    }
    let (text, tokens) = encode(&conversation, &loaded, loaded.context())?;
    super::completions::limit_tokens(&mut params, state, &loaded, "messages", tokens.len(), None)?;
    params.request.tenant = tenant;
    let names = conversation.tools.iter().map(|tool| tool.name.clone()).collect();
    let parser = Some(AnswerParser::new(&loaded.format, &text, names));
    let prompt = Prompt { tokens, parser, parallel_calls };
    let id = params.id.take().unwrap_or_else(|| random_id("chatcmpl"));
    let active = state.register(&id, tenant, params.n)?;
    let generation = Generation::submit(state, active, params.request, vec![prompt], params.n)?;
    Ok(Answer {
        state: state.clone(),
        loaded,
        generation,
        style: Style::Chat,
        stream: params.stream,
        include_usage: params.include_usage,
        logprobs: asked,
        echo: Vec::new(),
    })
}

/// The text and the tokens of a conversation of about `limit` tokens at most.
pub(crate) fn encode(
    conversation: &Conversation,
    loaded: &Loaded,
    limit: usize,
) -> ApiResult<(String, Vec<u32>)> {
    let wrong = |error: hesper_lm::Error| ApiError::field("messages", error);
    let text = conversation.render(&loaded.language, &loaded.format).map_err(wrong)?;
    // The template itself writes the beginning-of-sequence token.
    let tokens = loaded.tokens(&text, false, "messages", limit)?;
    Ok((text, tokens))
}

/// Whether a tool has to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    Auto,
    Required,
    /// One tool has to be called, once.
    Named,
}

/// The messages and the tools that may be called. With the choice `none` there are no tools; with a named
/// tool there is only that one.
pub(crate) fn conversation(body: &Fields<'_>, loaded: &Loaded) -> ApiResult<(Conversation, ToolChoice)> {
    if !loaded.language.can_chat() {
        let what = "the model has no chat template and can only continue text; use /v1/completions";
        return Err(body.error("messages", what));
    }
    let Some(list) = body.array("messages")? else { return Err(body.error("messages", "is missing")) };
    if list.is_empty() {
        return Err(body.error("messages", "must not be empty"));
    }
    let each = list.iter().enumerate();
    let messages = each.map(|(at, value)| message(value, at)).collect::<ApiResult<_>>()?;
    let mut tools = tools(body)?;
    let choice = tool_choice(body, &mut tools)?;
    let variables = match body.object("chat_template_kwargs")? {
        Some(fields) => fields.entries().map(|(key, value)| (key.clone(), value.clone())).collect(),
        None => Map::new(),
    };
    Ok((Conversation { messages, tools, variables }, choice))
}

fn message(value: &Value, at: usize) -> ApiResult<Value> {
    let fields = Fields::of(value, format!("messages[{at}]"))?;
    let role = match fields.text("role")? {
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
        Some(role) => {
            let what = format!("must be system, developer, user, assistant or tool, not {role:?}");
            return Err(fields.error("role", what));
        }
        None => return Err(fields.error("role", "is missing")),
    };
    let calls = match role {
        "assistant" => fields.array("tool_calls")?.filter(|calls| !calls.is_empty()),
        _ => None,
    };
    let content = match fields.get("content") {
        None if calls.is_some() => String::new(),
        None => return Err(fields.error("content", "is missing")),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => content(parts, &fields)?,
        Some(other) => {
            let what = format!("must be a string or an array of parts, not {}", type_name(other));
            return Err(fields.error("content", what));
        }
    };
    let mut message = Map::new();
    message.insert("role".into(), role.into());
    message.insert("content".into(), content.into());
    for field in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.text(field)? {
            message.insert(field.into(), text.into());
        }
    }
    if let Some(calls) = calls {
        let each = calls.iter().enumerate();
        let calls = each.map(|(at, call)| tool_call(call, fields.name(&format!("tool_calls[{at}]"))));
        message.insert("tool_calls".into(), calls.collect::<ApiResult<Vec<Value>>>()?.into());
    }
    Ok(message.into())
}

/// The text of a message in parts.
fn content(parts: &[Value], message: &Fields<'_>) -> ApiResult<String> {
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        let part = Fields::of(part, message.name(&format!("content[{at}]")))?;
        match part.text("type")? {
            Some("text") => {
                text.push_str(part.text("text")?.ok_or_else(|| part.error("text", "is missing"))?)
            }
            Some(other) => {
                let what = format!("must be text, not {other:?}: the model reads text only");
                return Err(part.error("type", what));
            }
            None => return Err(part.error("type", "is missing")),
        }
    }
    Ok(text)
}

/// A call in an earlier message. Its arguments are parsed, since chat templates expect an object.
fn tool_call(value: &Value, name: String) -> ApiResult<Value> {
    let fields = Fields::of(value, name)?;
    let function = fields.object("function")?.ok_or_else(|| fields.error("function", "is missing"))?;
    let name = function.text("name")?.ok_or_else(|| function.error("name", "is missing"))?;
    let arguments = match function.get("arguments") {
        None => json!({}),
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Some(object @ Value::Object(_)) => object.clone(),
        Some(_) => return Err(function.error("arguments", "must be a string with JSON, or an object")),
    };
    Ok(json!({
        "id": fields.text("id")?,
        "type": "function",
        "function": { "name": name, "arguments": arguments },
    }))
}

fn tools(body: &Fields<'_>) -> ApiResult<Vec<Tool>> {
    let Some(list) = body.array("tools")? else { return Ok(Vec::new()) };
    if list.len() > MAX_TOOLS {
        return Err(body.error("tools", format!("has {} tools; the limit is {MAX_TOOLS}", list.len())));
    }
    let mut tools: Vec<Tool> = Vec::new();
    for (at, value) in list.iter().enumerate() {
        let tool = Fields::of(value, format!("tools[{at}]"))?;
        match tool.text("type")? {
            Some("function") => {}
            other => {
                let what = format!("must be function, not {}", other.unwrap_or("missing"));
                return Err(tool.error("type", what));
            }
        }
        let function = tool.object("function")?.ok_or_else(|| tool.error("function", "is missing"))?;
        let name = function.text("name")?.ok_or_else(|| function.error("name", "is missing"))?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
            return Err(function.error("name", "must be 1 to 64 letters, digits or any of - _ ."));
        }
        if tools.iter().any(|tool| tool.name == name) {
            return Err(
                function.error("name", format!("{name:?} is used by two tools; names must be unique"))
            );
        }
        function.text("description")?;
        let parameters = match function.object("parameters")? {
            Some(_) => function.get("parameters").cloned().unwrap_or_default(),
            None => json!({ "type": "object", "properties": {} }),
        };
        checked_schema(&parameters.to_string(), &function.name("parameters"))?;
        let strict = function.flag("strict")?.unwrap_or(false);
        tools.push(Tool { name: name.to_string(), parameters, strict, description: value.clone() });
    }
    Ok(tools)
}

fn tool_choice(body: &Fields<'_>, tools: &mut Vec<Tool>) -> ApiResult<ToolChoice> {
    match body.get("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => {
                tools.clear();
                Ok(ToolChoice::Auto)
            }
            "required" if tools.is_empty() => Err(without_tools()),
            "required" => Ok(ToolChoice::Required),
            other => {
                let what = format!("must be none, auto, required or a function, not {other:?}");
                Err(body.error("tool_choice", what))
            }
        },
        Some(value) => {
            let choice = Fields::of(value, "tool_choice".into())?;
            match choice.text("type")? {
                Some("function") => {
                    let name = function_name(&choice, tools)?;
                    tools.retain(|tool| tool.name == name);
                    Ok(ToolChoice::Named)
                }
                Some("allowed_tools") => {
                    let allowed = choice.object("allowed_tools")?;
                    allowed_tools(&allowed.ok_or_else(|| choice.error("allowed_tools", "is missing"))?, tools)
                }
                _ => Err(choice.error("type", "must be function or allowed_tools")),
            }
        }
    }
}

fn without_tools() -> ApiError {
    ApiError::field("tool_choice", "must be none or auto if there are no tools")
}

/// The name of a tool in a choice, which must be among the tools.
fn function_name<'a>(choice: &Fields<'a>, tools: &[Tool]) -> ApiResult<&'a str> {
    let function = choice.object("function")?.ok_or_else(|| choice.error("function", "is missing"))?;
    let name = function.text("name")?.ok_or_else(|| function.error("name", "is missing"))?;
    match tools.iter().any(|tool| tool.name == name) {
        true => Ok(name),
        false if tools.is_empty() => Err(without_tools()),
        false => Err(function.error("name", format!("{name:?} is not among the tools"))),
    }
}

/// Keeps the tools that a choice allows.
fn allowed_tools(allowed: &Fields<'_>, tools: &mut Vec<Tool>) -> ApiResult<ToolChoice> {
    let choice = match allowed.text("mode")? {
        Some("auto") | None => ToolChoice::Auto,
        Some("required") => ToolChoice::Required,
        Some(other) => return Err(allowed.error("mode", format!("must be auto or required, not {other:?}"))),
    };
    let list = allowed.array("tools")?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| allowed.error("tools", "must not be empty"))?;
    let each = list
        .iter()
        .enumerate()
        .map(|(at, value)| function_name(&Fields::of(value, allowed.name(&format!("tools[{at}]")))?, tools));
    let names = each.collect::<ApiResult<Vec<&str>>>()?;
    tools.retain(|tool| names.contains(&tool.name.as_str()));
    Ok(choice)
}

/// The constraint on calls: arguments of strict tools match their schemas, and those of others are any
/// object. `None` if no tool is strict and no call is required.
fn tool_constraint(
    tools: &[Tool],
    choice: ToolChoice,
    parallel: bool,
    loaded: &Loaded,
) -> Option<Constraint> {
    let required = choice != ToolChoice::Auto;
    if !required && !tools.iter().any(|tool| tool.strict) {
        return None;
    }
    let relaxed = |tool: &Tool| match tool.strict {
        true => tool.clone(),
        false => Tool { parameters: json!({ "type": "object" }), ..tool.clone() },
    };
    let tools: Vec<Tool> = tools.iter().map(relaxed).collect();
    let single = choice == ToolChoice::Named || !parallel;
    Some(loaded.format.calls.constraint(&tools, required, single))
}
