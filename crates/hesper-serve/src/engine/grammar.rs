//! Constrained decoding: which tokens may come next, by a grammar of the crate `llguidance`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hesper_lm::LanguageModel;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;

use super::steps::TokenFilter;
use crate::protocol::Constraint;

/// The longest text of a constraint, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Compiles constraints for the vocabulary of a model.
pub(super) struct Grammars {
    factory: ParserFactory,
    /// The bytes of every token, including special tokens.
    tokens: Arc<Vec<Vec<u8>>>,
    /// Special tokens by their texts.
    special: HashMap<String, u32>,
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    /// Fails if the model has no end-of-sequence token.
    pub(super) fn new(language: &LanguageModel) -> Result<Self, String> {
        let vocabulary = language.model().config().vocab_size;
        let mut tokens = language.tokenizer().token_bytes();
        tokens.resize(vocabulary, Vec::new());
        let special: HashMap<String, u32> = language.tokenizer().special_tokens().into_iter().collect();
        let eos = language.eos_tokens().first();
        let eos = eos.ok_or("cannot apply a constraint: the model has no end-of-sequence token")?;
        let info = TokRxInfo::new(vocabulary as u32, *eos);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &tokens)));
        let mut factory = ParserFactory::new_simple(&environment).map_err(|error| error.to_string())?;
        factory.quiet();
        let limits = factory.limits_mut();
        // These limits allow about 20 ms to compile a grammar, and 10 ms and a few megabytes for a token.
        (limits.max_grammar_size, limits.max_lexer_states) = (100_000, 20_000);
        (limits.initial_lexer_fuel, limits.step_lexer_fuel) = (1_000_000, 150_000);
        limits.verbose_errors = false;
        for (text, id) in &special {
            tokens[*id as usize] = text.clone().into_bytes();
        }
        Ok(Grammars { factory, tokens: Arc::new(tokens), special })
    }

    /// Compiles a constraint to a filter.
    pub(super) fn compile(&self, constraint: &Constraint) -> Result<Box<dyn TokenFilter>, String> {
        let json = |text: &str| {
            serde_json::from_str(text).map_err(|error| format!("cannot parse the JSON schema: {error}"))
        };
        let size = match constraint {
            Constraint::JsonObject => 0,
            Constraint::JsonSchema(text) | Constraint::Regex(text) | Constraint::Lark(text) => text.len(),
            Constraint::ToolCalls { begin, schema, end, .. } => begin.len() + schema.len() + end.len(),
        };
        if size > MAX_TEXT {
            return Err(format!("the constraint has {size} bytes; the limit is {MAX_TEXT}"));
        }
        let grammar = match constraint {
            Constraint::JsonObject => {
                TopLevelGrammar::from_json_schema(serde_json::json!({ "type": "object" }))
            }
            Constraint::JsonSchema(text) => TopLevelGrammar::from_json_schema(json(text)?),
            Constraint::Regex(text) => TopLevelGrammar::from_regex(text),
            Constraint::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
            Constraint::ToolCalls { begin, schema, end, required, single } => {
                let call = CallGrammar { schema: json(schema)?, begin, end, single: *single };
                match required {
                    true => TopLevelGrammar::from_lark(self.required_calls(&call)),
                    false => return Ok(Box::new(self.free_text(&call)?)),
                }
            }
        };
        Ok(Box::new(self.grammar(grammar)?))
    }

    fn grammar(&self, grammar: TopLevelGrammar) -> Result<Grammar, String> {
        match self.factory.create_parser(grammar) {
            Ok(parser) => Ok(Grammar(Matcher::new(Ok(parser)))),
            Err(error) => Err(format!("cannot compile the constraint: {error}")),
        }
    }

    /// A text as a grammar writes it: a special token by its id, not by its text. Empty if the text is empty.
    fn literal(&self, text: &str) -> String {
        match self.special.get(text) {
            Some(id) => format!("<[{id}]>"),
            None if text.is_empty() => String::new(),
            None => Value::from(text).to_string(),
        }
    }

    /// The rules of a call, from after the text that begins it.
    fn call_rules(&self, call: &CallGrammar<'_>) -> String {
        let space = if call.end.is_empty() { "" } else { "SPACE?" };
        let (schema, end) = (&call.schema, self.literal(call.end));
        format!("rest: SPACE? json {space} {end}\nSPACE: /[ \\n]{{1,2}}/\njson: %json {schema}\n")
    }

    /// The grammar of an answer that is calls and nothing else. Without a text that begins a call there is
    /// one: nothing separates it from the next.
    fn required_calls(&self, call: &CallGrammar<'_>) -> String {
        let more = if call.single || call.begin.is_empty() { "" } else { "(SPACE? one)*" };
        let begin = self.literal(call.begin);
        format!("start: one {more}\none: {begin} rest\n{}", self.call_rules(call))
    }

    /// Filters free text in which calls match a grammar.
    fn free_text(&self, call: &CallGrammar<'_>) -> Result<ToolCalls, String> {
        if call.begin.is_empty() {
            return Err("a tool call without a text that begins it must be required".into());
        }
        let grammar = format!("start: rest\n{}", self.call_rules(call));
        Ok(ToolCalls {
            tokens: self.tokens.clone(),
            begin: call.begin.as_bytes().to_vec(),
            call: self.grammar(TopLevelGrammar::from_lark(grammar))?,
            single: call.single,
            current: None,
            tail: Vec::new(),
        })
    }
}

/// The parts of [`Constraint::ToolCalls`].
struct CallGrammar<'a> {
    schema: Value,
    begin: &'a str,
    end: &'a str,
    single: bool,
}

/// Filters free text with tool calls. Only the calls have to match a grammar.
struct ToolCalls {
    tokens: Arc<Vec<Vec<u8>>>,
    /// The text that begins a call.
    begin: Vec<u8>,
    /// The grammar of a call, without the text that begins it.
    call: Grammar,
    /// Whether the answer ends after the first call.
    single: bool,
    /// The call that is being generated.
    current: Option<Grammar>,
    /// The last bytes of the free text, fewer than the text that begins a call has.
    tail: Vec<u8>,
}

impl fmt::Debug for ToolCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCalls").field("current", &self.current).finish_non_exhaustive()
    }
}

impl ToolCalls {
    /// How many bytes of `token` follow the text that begins a call, if `token` completes that text.
    fn bytes_after_begin(&self, token: &[u8]) -> Option<usize> {
        let text = [&self.tail[..], token].concat();
        let at = text.windows(self.begin.len()).position(|window| window == self.begin)?;
        Some(text.len() - at - self.begin.len())
    }
}

impl TokenFilter for ToolCalls {
    fn allowed(&mut self) -> Result<Option<Vec<u32>>, String> {
        if let Some(current) = &mut self.current {
            return current.allowed();
        }
        // Exclude tokens with bytes after the text that begins a call: the grammar would not check those.
        let mut words = vec![u32::MAX; self.tokens.len().div_ceil(32)];
        let mut all = true;
        let last = self.begin.last();
        for (id, token) in self.tokens.iter().enumerate() {
            if last.is_some_and(|last| token.contains(last))
                && self.bytes_after_begin(token).is_some_and(|count| count > 0)
            {
                words[id / 32] &= !(1 << (id % 32));
                all = false;
            }
        }
        Ok((!all).then_some(words))
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        if let Some(current) = &mut self.current {
            if current.accept(token)? {
                (self.current, self.tail) = (None, Vec::new());
                return Ok(self.single);
            }
            return Ok(false);
        }
        let bytes = self.tokens.get(token as usize).cloned().unwrap_or_default();
        if self.bytes_after_begin(&bytes) == Some(0) {
            self.current = Some(Grammar(self.call.0.deep_clone()));
            return Ok(false);
        }
        self.tail.extend(bytes);
        let keep = self.tail.len().min(self.begin.len().saturating_sub(1));
        self.tail.drain(..self.tail.len() - keep);
        Ok(false)
    }
}

/// The message of a constraint that failed. The library marks errors without details by a tag, and names the
/// case that no token may come next.
fn failed(error: impl fmt::Display) -> String {
    let error = error.to_string();
    if error.contains("NoExtension") {
        return "the constraint failed: no token may come next; check whether any text matches it".into();
    }
    format!("the constraint failed: {}", error.replace("<non-verbose/>", "").trim_end())
}

/// The state of a grammar after a number of tokens.
struct Grammar(Matcher);

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").field("error", &self.0.get_error()).finish_non_exhaustive()
    }
}

impl TokenFilter for Grammar {
    fn allowed(&mut self) -> Result<Option<Vec<u32>>, String> {
        let mask = self.0.compute_mask_or_eos().map_err(failed)?;
        Ok(Some(mask.as_slice().to_vec()))
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        self.0.consume_token(token).map_err(failed)?;
        Ok(self.0.is_stopped())
    }
}
