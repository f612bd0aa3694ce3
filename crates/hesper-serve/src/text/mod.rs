//! Renders a conversation to the prompt of a model, and parses its output to an answer with reasoning and
//! tool calls. Independent of HTTP.

mod answer;
mod chat;
mod format;
mod tokens;

pub use answer::{AnswerParser, Part, ToolCall};
pub use chat::{Conversation, Tool};
pub use format::{CallFormat, Format};
pub use tokens::tokens_within;
