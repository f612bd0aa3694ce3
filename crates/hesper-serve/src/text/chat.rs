//! Conversations with tools, and their rendering to a prompt.

use hesper_lm::LanguageModel;
use serde_json::{Map, Value, json};

use super::format::Format;

/// A function that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
    /// Whether generated arguments are constrained to the schema.
    pub strict: bool,
    /// The tool as the client described it, for the chat template.
    pub description: Value,
}

/// Messages, tools and variables for a chat template.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Objects with `role`, `content` as text, and other fields.
    pub messages: Vec<Value>,
    /// Tools that may be called.
    pub tools: Vec<Tool>,
    /// Additional variables for the template.
    pub variables: Map<String, Value>,
}

impl Conversation {
    /// The prompt for the conversation, up to where the assistant answers. If the template does not describe
    /// tools, the system message does.
    pub fn render(&self, language: &LanguageModel, format: &Format) -> hesper_lm::Result<String> {
        let Some(template) = language.chat_template() else {
            let what = "the model has none: it can only continue text";
            return Err(hesper_lm::Error::Template(what.into()));
        };
        let mut variables = self.variables.clone();
        if self.tools.is_empty() {
            return template.render_json(&self.messages, true, &variables.into());
        }
        let tools: Vec<&Value> = self.tools.iter().map(|tool| &tool.description).collect();
        if format.describes_tools {
            variables.insert("tools".into(), json!(tools));
            return template.render_json(&self.messages, true, &variables.into());
        }
        let mut messages: Vec<Value> =
            self.messages.iter().map(|message| without_tool_fields(message, format)).collect();
        let (begin, end) = (format.calls.begin(), format.calls.end());
        let lines: Vec<String> = tools.iter().map(|tool| tool.to_string()).collect();
        let instructions = format!(
            "You can call these functions, described as JSON, one in a line:\n{}\n\
             To call one, write {begin}{{\"name\": NAME, \"arguments\": OBJECT}}{end} and nothing else.",
            lines.join("\n")
        );
        match messages.first_mut().filter(|first| first["role"] == "system") {
            Some(first) => {
                let content = first["content"].as_str().unwrap_or_default();
                first["content"] = format!("{content}\n\n{instructions}").into();
            }
            None => messages.insert(0, json!({ "role": "system", "content": instructions })),
        }
        template.render_json(&messages, true, &variables.into())
    }
}

/// A message for a template that has neither tool calls nor the role `tool`: calls are written as text in the
/// format of the model, and results of tools as messages of the user.
fn without_tool_fields(message: &Value, format: &Format) -> Value {
    let content = message["content"].as_str().unwrap_or_default();
    let (begin, end) = (format.calls.begin(), format.calls.end());
    match (message["role"].as_str(), message["tool_calls"].as_array()) {
        (Some("tool"), _) => {
            json!({ "role": "user", "content": format!("<tool_response>{content}</tool_response>") })
        }
        (Some(role), Some(calls)) => {
            let mut text = content.to_string();
            for call in calls {
                let function = &call["function"];
                let call = json!({ "name": function["name"], "arguments": function["arguments"] });
                text.push_str(&format!("{begin}{call}{end}"));
            }
            json!({ "role": role, "content": text })
        }
        _ => message.clone(),
    }
}
