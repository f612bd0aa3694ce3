//! How a model writes tool calls and reasoning, detected from its chat template.

use std::sync::Arc;

use serde_json::{Value, json};

use super::chat::Tool;
use crate::protocol::Constraint;

/// How a model writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFormat {
    /// `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen.
    Tagged,
    /// `{"name": ..., "parameters": {...}}` as the whole answer, with or without `<|python_tag|>` before it:
    /// Llama 3.
    Bare,
    /// `[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]` or `[TOOL_CALLS]name[ARGS]{...}`: Mistral.
    List,
}

impl CallFormat {
    /// The text before a call.
    pub fn begin(self) -> &'static str {
        match self {
            CallFormat::Tagged => "<tool_call>",
            CallFormat::Bare => "<|python_tag|>",
            CallFormat::List => "[TOOL_CALLS]",
        }
    }

    /// The text after a call. Empty if a call ends with its JSON.
    pub fn end(self) -> &'static str {
        match self {
            CallFormat::Tagged => "</tool_call>",
            CallFormat::Bare | CallFormat::List => "",
        }
    }

    /// A constraint that makes calls valid by the schemas of their tools. See [`Constraint::ToolCalls`].
    pub fn constraint(self, tools: &[Tool], required: bool, single: bool) -> Constraint {
        let arguments = match self {
            CallFormat::Bare => "parameters",
            CallFormat::Tagged | CallFormat::List => "arguments",
        };
        let call = |tool: &Tool| {
            json!({
                "type": "object",
                "properties": { "name": { "const": tool.name }, arguments: tool.parameters },
                "required": ["name", arguments],
                "additionalProperties": false,
            })
        };
        let calls: Vec<Value> = tools.iter().map(call).collect();
        let mut schema = if calls.len() == 1 { calls[0].clone() } else { json!({ "anyOf": calls }) };
        if self == CallFormat::List {
            schema = json!({ "type": "array", "items": schema, "minItems": 1 });
            if single {
                schema["maxItems"] = 1.into();
            }
        }
        // A required call in the format of Llama is the whole answer and needs no mark.
        let begin = if self == CallFormat::Bare && required { "" } else { self.begin() };
        Constraint::ToolCalls {
            begin: begin.into(),
            schema: schema.to_string(),
            end: self.end().into(),
            required,
            single,
        }
    }
}

/// How a model writes tool calls and reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// How it writes tool calls.
    pub calls: CallFormat,
    /// Whether its chat template describes tools. If not, they are described in the system message.
    pub describes_tools: bool,
    /// Whether it reasons between `<think>` and `</think>`.
    pub thinks: bool,
    /// Special tokens that mark calls and reasoning, with their texts: decoding drops special tokens.
    pub marks: Arc<[(u32, &'static str)]>,
}

impl Format {
    /// The format of a model with this chat template. `token` looks up a special token by its text.
    pub fn of_template(template: &str, token: impl Fn(&str) -> Option<u32>) -> Self {
        let describes_tools = template.contains("tools");
        let calls = if template.contains("[TOOL_CALLS]") {
            CallFormat::List
        } else if describes_tools && !template.contains("<tool_call>") && template.contains("python_tag") {
            CallFormat::Bare
        } else {
            CallFormat::Tagged
        };
        let texts = [calls.begin(), calls.end(), "[ARGS]", "[CALL_ID]", "<think>", "</think>"];
        let marks = texts.into_iter().filter_map(|text| Some((token(text)?, text))).collect();
        Format { calls, describes_tools, thinks: template.contains("</think>"), marks }
    }

    /// The text of a token for the parser: the decoded text, or the text of a mark that decoding dropped.
    pub fn text<'a>(&self, token: u32, decoded: &'a str) -> &'a str {
        let mark = self.marks.iter().find(|(id, _)| *id == token && decoded.is_empty());
        mark.map_or(decoded, |(_, text)| text)
    }
}
