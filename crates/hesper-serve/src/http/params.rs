//! The parameters that chat and text completions share: sampling, lengths, stop sequences, structured output.

use std::collections::BTreeMap;
use std::time::Duration;

use hesper_lm::LanguageModel;
use serde_json::Value;

use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use crate::protocol::{Constraint, Request, Sampling};

// Limits of a request.
pub(crate) const MAX_CHOICES: i64 = 128;
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;
const MAX_BIASES: usize = 1024;
pub(crate) const MAX_LOGPROBS: i64 = 20;
const MAX_SCHEMA_BYTES: usize = 64 << 10;
const MAX_GRAMMAR_BYTES: usize = 64 << 10;
const MAX_REGEX_BYTES: usize = 8 << 10;
const MAX_ALTERNATIVES: usize = 1024;

/// The parameters that chat and text completions share.
#[derive(Debug, Clone)]
pub(crate) struct Params {
    /// The request without id, prompt, tenant and `logprobs`. `max_tokens` is 0 if the client gives none.
    pub(crate) request: Request,
    /// The number of answers to each prompt.
    pub(crate) n: usize,
    pub(crate) stream: bool,
    /// Whether the stream ends with the token counts.
    pub(crate) include_usage: bool,
    /// The id that the client gives the request.
    pub(crate) id: Option<String>,
}

pub(crate) fn read(body: &Fields<'_>, language: &LanguageModel, seed: u64) -> ApiResult<Params> {
    let stream = body.flag("stream")?.unwrap_or(false);
    let options = body.object("stream_options")?;
    if let (false, Some(_)) = (stream, &options) {
        return Err(body.error("stream_options", "needs stream: true"));
    }
    let include_usage = match &options {
        Some(options) => options.flag("include_usage")?.unwrap_or(false),
        None => false,
    };
    let max_tokens = match body.integer("max_completion_tokens", 1..=i64::MAX)? {
        Some(count) => Some(count),
        None => body.integer("max_tokens", 1..=i64::MAX)?,
    };
    let request = Request {
        max_tokens: max_tokens.unwrap_or(0) as usize,
        sampling: sampling(body, language, seed)?,
        stops: stops(body)?,
        stop_tokens: stop_tokens(body, language)?,
        ignore_eos: body.flag("ignore_eos")?.unwrap_or(false),
        constraint: constraint(body)?,
        // In the API lower numbers go first, as in vLLM. In the engine higher ones do.
        priority: -(body.integer("priority", -1000..=1000)?.unwrap_or(0) as i32),
        // In whole milliseconds, so that messages show the number that was given.
        deadline: body
            .number("timeout", 0.001..=86_400.0)?
            .map(|seconds| Duration::from_millis((f64::from(seconds) * 1e3).round() as u64)),
        use_prefix_cache: body.flag("cache_prompt")?.unwrap_or(true),
        ..Request::default()
    };
    Ok(Params {
        request,
        n: body.integer("n", 1..=MAX_CHOICES)?.unwrap_or(1) as usize,
        stream,
        include_usage,
        id: id(body)?,
    })
}

fn id(body: &Fields<'_>) -> ApiResult<Option<String>> {
    let Some(id) = body.text("request_id")? else { return Ok(None) };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if id.is_empty() || id.len() > 128 || !id.chars().all(allowed) {
        let what = "must be 1 to 128 letters, digits or any of - _ . :";
        return Err(body.error("request_id", what));
    }
    Ok(Some(id.to_string()))
}

fn sampling(body: &Fields<'_>, language: &LanguageModel, seed: u64) -> ApiResult<Sampling> {
    let default = Sampling::default();
    Ok(Sampling {
        temperature: body.number("temperature", 0.0..=100.0)?.unwrap_or(1.0),
        // -1 means all, as in vLLM.
        top_k: body.integer("top_k", -1..=i64::from(u32::MAX))?.unwrap_or(0).max(0) as usize,
        top_p: body.number("top_p", 0.0..=1.0)?.unwrap_or(default.top_p),
        min_p: body.number("min_p", 0.0..=1.0)?.unwrap_or(default.min_p),
        repetition_penalty: body
            .number("repetition_penalty", 0.01..=100.0)?
            .unwrap_or(default.repetition_penalty),
        frequency_penalty: body.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        presence_penalty: body.number("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        logit_bias: logit_bias(body, language)?,
        seed: match body.get("seed").and_then(Value::as_u64) {
            Some(seed) => seed,
            None => body.integer("seed", i64::MIN..=i64::MAX)?.map_or(seed, |seed| seed as u64),
        },
        ..default
    })
}

fn logit_bias(body: &Fields<'_>, language: &LanguageModel) -> ApiResult<BTreeMap<u32, f32>> {
    let Some(fields) = body.object("logit_bias")? else { return Ok(BTreeMap::new()) };
    if fields.entries().count() > MAX_BIASES {
        return Err(body.error("logit_bias", format!("has more than {MAX_BIASES} tokens")));
    }
    let vocabulary = language.model().config().vocab_size;
    let each = fields.entries().map(|(token, _)| {
        let id = token.parse().ok().filter(|id| (*id as usize) < vocabulary);
        let id = id.ok_or_else(|| {
            fields.error(token, format!("is not a token id; ids are integers below {vocabulary}"))
        })?;
        Ok((id, fields.number(token, -100.0..=100.0)?.unwrap_or(0.0)))
    });
    each.collect()
}

fn stops(body: &Fields<'_>) -> ApiResult<Vec<String>> {
    let stops = match body.get("stop") {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop.clone()],
        Some(_) => {
            let list = body.array("stop")?.into_iter().flatten().enumerate();
            list.map(|(at, stop)| match stop {
                Value::String(stop) => Ok(stop.clone()),
                _ => Err(ApiError::field(format!("stop[{at}]"), "must be a string")),
            })
            .collect::<ApiResult<_>>()?
        }
    };
    if stops.len() > MAX_STOPS || stops.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
        let what = format!("may have at most {MAX_STOPS} strings of at most {MAX_STOP_BYTES} bytes");
        return Err(body.error("stop", what));
    }
    if stops.iter().any(String::is_empty) {
        return Err(body.error("stop", "must not be empty"));
    }
    Ok(stops)
}

fn stop_tokens(body: &Fields<'_>, language: &LanguageModel) -> ApiResult<Vec<u32>> {
    match body.get("stop_token_ids") {
        None => Ok(Vec::new()),
        Some(value) => tokens(value, "stop_token_ids", language),
    }
}

/// Reads an array of token ids.
pub(crate) fn tokens(value: &Value, name: &str, language: &LanguageModel) -> ApiResult<Vec<u32>> {
    let vocabulary = language.model().config().vocab_size as u64;
    let Value::Array(list) = value else {
        return Err(ApiError::field(name, "must be an array of token ids"));
    };
    let each = list.iter().enumerate().map(|(at, token)| {
        let token = token.as_u64().filter(|token| *token < vocabulary);
        token.map(|token| token as u32).ok_or_else(|| {
            ApiError::field(
                format!("{name}[{at}]"),
                format!("must be a token id: an integer below {vocabulary}"),
            )
        })
    });
    each.collect()
}

/// The constraint of a request, which several fields can give. Only one of them may be used.
fn constraint(body: &Fields<'_>) -> ApiResult<Option<Constraint>> {
    let mut found: Vec<(&str, Constraint)> = Vec::new();
    if let Some(format) = response_format(body)? {
        found.push(("response_format", format));
    }
    if let Some(value) = body.get("guided_json") {
        // The schema may also be given as text.
        let schema = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        found.push(("guided_json", Constraint::JsonSchema(checked_schema(&schema, "guided_json")?)));
    }
    if let Some(regex) = body.text("guided_regex")? {
        limit("guided_regex", regex, MAX_REGEX_BYTES)?;
        found.push(("guided_regex", Constraint::Regex(regex.to_string())));
    }
    if let Some(grammar) = body.text("guided_grammar")? {
        limit("guided_grammar", grammar, MAX_GRAMMAR_BYTES)?;
        found.push(("guided_grammar", Constraint::Lark(grammar.to_string())));
    }
    if let Some(choices) = body.array("guided_choice")? {
        found.push(("guided_choice", Constraint::Regex(alternatives(choices)?)));
    }
    match found.len() {
        0 | 1 => Ok(found.pop().map(|(_, constraint)| constraint)),
        _ => Err(body.error(found[1].0, format!("cannot be combined with {}", found[0].0))),
    }
}

fn response_format(body: &Fields<'_>) -> ApiResult<Option<Constraint>> {
    let Some(format) = body.object("response_format")? else { return Ok(None) };
    match format.text("type")? {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Constraint::JsonObject)),
        Some("json_schema") => {
            let Some(wrapper) = format.object("json_schema")? else {
                return Err(format.error("json_schema", "is missing"));
            };
            let Some(schema) = wrapper.get("schema") else {
                return Err(wrapper.error("schema", "is missing"));
            };
            let schema = checked_schema(&schema.to_string(), &wrapper.name("schema"))?;
            Ok(Some(Constraint::JsonSchema(schema)))
        }
        Some("regex") => {
            let Some(regex) = format.text("regex")? else {
                return Err(format.error("regex", "is missing"));
            };
            limit("response_format.regex", regex, MAX_REGEX_BYTES)?;
            Ok(Some(Constraint::Regex(regex.to_string())))
        }
        Some("grammar") => {
            let Some(grammar) = format.text("grammar")? else {
                return Err(format.error("grammar", "is missing"));
            };
            limit("response_format.grammar", grammar, MAX_GRAMMAR_BYTES)?;
            Ok(Some(Constraint::Lark(grammar.to_string())))
        }
        other => {
            let what = "must be text, json_object, json_schema, regex or grammar";
            Err(format.error("type", format!("{what}, not {}", other.unwrap_or("missing"))))
        }
    }
}

/// Checks the size and the type of a JSON schema.
pub(crate) fn checked_schema(schema: &str, name: &str) -> ApiResult<String> {
    limit(name, schema, MAX_SCHEMA_BYTES)?;
    match serde_json::from_str(schema) {
        Ok(Value::Object(_) | Value::Bool(_)) => Ok(schema.to_string()),
        Ok(_) => Err(ApiError::field(name, "must be a JSON schema: an object or a boolean")),
        Err(error) => Err(ApiError::field(name, format!("is not valid JSON: {error}"))),
    }
}

/// Refuses a field whose text is empty or longer than `bytes`.
fn limit(name: &str, text: &str, bytes: usize) -> ApiResult<()> {
    match text.len() {
        0 => Err(ApiError::field(name, "must not be empty")),
        length if length > bytes => {
            Err(ApiError::field(name, format!("has {length} bytes; the limit is {bytes}")))
        }
        _ => Ok(()),
    }
}

/// A regular expression that matches any of the strings.
fn alternatives(choices: &[Value]) -> ApiResult<String> {
    let name = "guided_choice";
    if choices.is_empty() || choices.len() > MAX_ALTERNATIVES {
        let what = format!("must have 1 to {MAX_ALTERNATIVES} strings");
        return Err(ApiError::field(name, what));
    }
    let mut regex = String::new();
    for (at, choice) in choices.iter().enumerate() {
        let text = choice
            .as_str()
            .filter(|text| !text.is_empty())
            .ok_or_else(|| ApiError::field(format!("{name}[{at}]"), "must be a non-empty string"))?;
        if at > 0 {
            regex.push('|');
        }
        for c in text.chars() {
            if c.is_ascii_punctuation() {
                regex.push('\\');
            }
            regex.push(c);
        }
    }
    limit(name, &regex, MAX_GRAMMAR_BYTES)?;
    Ok(regex)
}
