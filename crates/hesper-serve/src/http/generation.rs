//! The answer to one HTTP request: one or more choices whose events arrive in any order.
//!
//! Dropping a [`Generation`] cancels its unfinished choices. The HTTP server drops it when the client
//! disconnects.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::http::StatusCode;
use hesper_lm::LanguageModel;
use serde_json::{Value, json};

use super::error::{ApiError, ApiResult};
use super::state::{Active, State};
use crate::protocol::{Event, Events, Finish, Generator, Request, Token, Usage};
use crate::text::{AnswerParser, Part};

/// The most log probabilities of an answer that is kept until it is complete. As JSON each of them takes
/// almost a kilobyte.
const MAX_KEPT_LOGPROBS: usize = 1 << 17;

/// A prompt and how the answers to it are parsed.
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    /// Parses chat answers. Without a parser the text is the content.
    pub(crate) parser: Option<AnswerParser>,
    /// Whether more than one tool call is reported.
    pub(crate) parallel_calls: bool,
}

struct Choice {
    events: Events,
    parser: Option<AnswerParser>,
    parallel_calls: bool,
    calls: usize,
    /// Whether the usage counts the prompt of this choice: the choices of one prompt count it once.
    counts_prompt: bool,
    finished: bool,
}

/// New parts of a choice.
pub(crate) struct Update {
    /// The index of the choice.
    pub(crate) choice: usize,
    pub(crate) parts: Vec<Part>,
    /// The token, if log probabilities are reported.
    pub(crate) token: Option<Token>,
    pub(crate) finish: Option<&'static str>,
}

/// The answer to one request.
pub(crate) struct Generation {
    state: Arc<State>,
    active: Active,
    choices: Vec<Choice>,
    logprobs: bool,
    /// How many more log probabilities may be reported. `None` if they are not kept.
    logprobs_left: Option<usize>,
    /// The choice that is polled first.
    next: usize,
    pub(crate) usage: Usage,
    reasoning_tokens: usize,
    /// The texts of the choices, if they are logged.
    texts: Option<Vec<String>>,
    start: Instant,
    first_token_seconds: Option<f64>,
    outcome: &'static str,
}

impl Generation {
    /// Submits `n` requests for each prompt, with consecutive seeds.
    pub(crate) fn submit(
        state: &Arc<State>,
        active: Active,
        template: Request,
        prompts: Vec<Prompt>,
        n: usize,
    ) -> ApiResult<Self> {
        let texts = state.options.log_prompts.then(|| vec![String::new(); active.ids.len()]);
        if texts.is_some() {
            let loaded = state.loaded()?;
            let text =
                |prompt: &Prompt| loaded.language.tokenizer().decode_all(&prompt.tokens).unwrap_or_default();
            let prompts: Vec<String> = prompts.iter().map(text).collect();
            state.log.write("prompt", json!({ "id": active.id, "prompts": prompts }));
        }
        let mut choices = Vec::with_capacity(active.ids.len());
        for (at, id) in active.ids.iter().enumerate() {
            let prompt = &prompts[at / n];
            let mut request = Request { id: id.clone(), prompt: prompt.tokens.clone(), ..template.clone() };
            request.sampling.seed = request.sampling.seed.wrapping_add((at % n) as u64);
            let events = state.gate.submit(request)?;
            if active.submitted(id) {
                state.gate.cancel(id);
            }
            choices.push(Choice {
                events,
                parser: prompt.parser.clone(),
                parallel_calls: prompt.parallel_calls,
                calls: 0,
                counts_prompt: at.is_multiple_of(n),
                finished: false,
            });
        }
        Ok(Generation {
            state: state.clone(),
            active,
            choices,
            logprobs: template.logprobs.is_some(),
            logprobs_left: None,
            next: 0,
            usage: Usage::default(),
            reasoning_tokens: 0,
            texts,
            start: Instant::now(),
            first_token_seconds: None,
            outcome: "disconnected",
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.active.id
    }

    /// Limits the log probabilities to those that may be kept until the answer is complete.
    pub(crate) fn keep_logprobs(&mut self) {
        self.logprobs_left = Some(MAX_KEPT_LOGPROBS);
    }

    pub(crate) fn len(&self) -> usize {
        self.choices.len()
    }

    /// The next update of any choice; `None` when all are finished.
    pub(crate) fn poll_update(&mut self, context: &Context<'_>) -> Poll<Option<ApiResult<Update>>> {
        let (count, first) = (self.choices.len(), self.next);
        for at in (0..count).map(|at| (first + at) % count) {
            while !self.choices[at].finished {
                let Poll::Ready(event) = self.choices[at].events.poll_next(context) else { break };
                self.next = at + 1;
                match self.update(at, event) {
                    Ok(None) => {}
                    Ok(Some(update)) => return Poll::Ready(Some(Ok(update))),
                    Err(error) => {
                        self.outcome = "failed";
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
        }
        match self.choices.iter().all(|choice| choice.finished) {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }

    fn update(&mut self, at: usize, event: Option<Event>) -> ApiResult<Option<Update>> {
        let choice = &mut self.choices[at];
        let mut update = Update { choice: at, parts: Vec::new(), token: None, finish: None };
        match event {
            Some(Event::Started { .. } | Event::Embedding(_)) => return Ok(None),
            Some(Event::Token(token)) => {
                self.first_token_seconds.get_or_insert_with(|| self.start.elapsed().as_secs_f64());
                if let Some(texts) = &mut self.texts {
                    texts[at].push_str(&token.text);
                }
                update.parts = match &mut choice.parser {
                    Some(parser) => {
                        let before = parser.is_reasoning();
                        let parts = parser.push_token(token.id, &token.text);
                        self.reasoning_tokens += usize::from(before || parser.is_reasoning());
                        parts
                    }
                    None if token.text.is_empty() => Vec::new(),
                    None => vec![Part::Content(token.text.clone())],
                };
                if let (true, Some(left)) = (self.logprobs, &mut self.logprobs_left) {
                    *left = left.checked_sub(1 + token.top.len()).ok_or_else(too_many_logprobs)?;
                }
                update.token = self.logprobs.then_some(token);
            }
            Some(Event::Done { finish, usage }) => {
                choice.finished = true;
                if choice.counts_prompt {
                    self.usage.prompt_tokens += usage.prompt_tokens;
                    self.usage.cached_tokens += usage.cached_tokens;
                }
                self.usage.completion_tokens += usage.completion_tokens;
                update.parts = choice.parser.as_mut().map_or_else(Vec::new, AnswerParser::finish);
                update.finish = Some(match finish {
                    Finish::Length => "length",
                    Finish::Cancelled => "cancelled",
                    Finish::Stop if choice.calls > 0 => "tool_calls",
                    Finish::Stop => "stop",
                });
            }
            Some(Event::Failed(failure)) => return Err(failure.into()),
            None => {
                let message = "the engine closed the request before it was finished";
                return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("internal_error"));
            }
        }
        let parallel = choice.parallel_calls;
        update.parts.retain(|part| match part {
            Part::Call(_) => {
                choice.calls += 1;
                parallel || choice.calls == 1
            }
            Part::Content(_) | Part::Reasoning(_) => true,
        });
        if self.choices.iter().all(|choice| choice.finished) {
            self.outcome = "finished";
        }
        let empty = update.parts.is_empty() && update.token.is_none() && update.finish.is_none();
        Ok((!empty).then_some(update))
    }

    /// The token counts in the format of OpenAI.
    pub(crate) fn usage(&self) -> Value {
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = self.usage;
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": { "cached_tokens": cached_tokens },
            "completion_tokens_details": { "reasoning_tokens": self.reasoning_tokens },
        })
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = self.usage;
        self.state.log.write(
            "generation",
            json!({
                "id": self.active.id,
                "outcome": self.outcome,
                "choices": self.choices.len(),
                "prompt_tokens": prompt_tokens,
                "cached_tokens": cached_tokens,
                "completion_tokens": completion_tokens,
                "texts": self.texts,
                "first_token_seconds": self.first_token_seconds,
                "seconds": self.start.elapsed().as_secs_f64(),
            }),
        );
    }
}

fn too_many_logprobs() -> ApiError {
    let what = format!(
        "the answer has more than {MAX_KEPT_LOGPROBS} log probabilities; ask for fewer, or stream completions"
    );
    ApiError::new(StatusCode::BAD_REQUEST, what).code("too_many_logprobs")
}

/// A token and the most likely alternatives with their log probabilities, in the format of the chat API.
pub(crate) fn chat_logprob(language: &LanguageModel, token: &Token) -> Value {
    let entry = |id: u32, logprob: f32| {
        let text = token_text(language, id);
        // The bytes are unknown if the token is only a part of a character.
        let bytes = (!text.contains('\u{fffd}')).then(|| text.as_bytes().to_vec());
        json!({ "token": text, "logprob": finite(logprob), "bytes": bytes })
    };
    let mut value = entry(token.id, token.logprob.unwrap_or(f32::MIN));
    value["top_logprobs"] = token.top.iter().map(|(id, logprob)| entry(*id, *logprob)).collect();
    value
}

/// The text of a single token.
pub(crate) fn token_text(language: &LanguageModel, id: u32) -> String {
    language.tokenizer().decode_all(&[id]).unwrap_or_default()
}

/// Replaces -inf by -9999: JSON has no infinite numbers.
pub(crate) fn finite(logprob: f32) -> f64 {
    f64::from(logprob).max(-9999.0)
}
