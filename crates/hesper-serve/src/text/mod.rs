//! From a conversation to the text that a model reads, and from the text that it writes to an answer with
//! reasoning and tool calls. Knows nothing of HTTP.

mod answer;
mod chat;
mod format;

pub use answer::{AnswerParser, Part, ToolCall};
pub use chat::{Conversation, Tool};
pub use format::{CallFormat, Format};
