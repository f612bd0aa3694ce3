//! An incremental parser that splits answers into content, reasoning and tool calls.
//!
//! Streamed and whole answers go through the same parser, and its result does not depend on how the text is
//! split. The parser holds back text that may be the beginning of a mark such as `<think>`, and a call until
//! its JSON is complete. Text that turns out not to be a call is content.

use serde_json::Value;

use super::format::{CallFormat, Format};

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The name of the function.
    pub name: String,
    /// Its arguments, as JSON text.
    pub arguments: String,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text for the user.
    Content(String),
    /// The reasoning before the answer.
    Reasoning(String),
    /// A complete call.
    Call(ToolCall),
}

const THINK: &str = "<think>";
const END_THINK: &str = "</think>";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Only white space has arrived so far.
    Start,
    /// After `<think>`, before the text of the reasoning.
    StartReasoning,
    Reasoning,
    /// After reasoning, before content.
    AfterReasoning,
    Content,
    /// In a call. The held text begins with the mark of the call, if it has one.
    Call(Scan),
    /// After a call: white space, separators and the end mark are dropped.
    AfterCall,
}

/// Parses one answer.
#[derive(Debug, Clone)]
pub struct AnswerParser {
    format: Format,
    /// The names of the tools that may be called. If there are none, calls are not parsed.
    tools: Vec<String>,
    state: State,
    /// Text that is not yet known to be content, reasoning or a call.
    held: String,
}

impl AnswerParser {
    /// A parser for the answer to `prompt`. If the prompt ends with `<think>`, the answer begins with
    /// reasoning. Without tools, calls are not parsed.
    pub fn new(format: &Format, prompt: &str, tools: Vec<String>) -> Self {
        let opened = format.thinks && prompt.trim_end().ends_with(THINK);
        let state = if opened { State::StartReasoning } else { State::Start };
        AnswerParser { format: format.clone(), tools, state, held: String::new() }
    }

    /// Appends text and returns the parts that it completes.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.advance(&mut parts) {}
        parts
    }

    /// Appends a token with its decoded text.
    pub fn push_token(&mut self, token: u32, decoded: &str) -> Vec<Part> {
        let text = self.format.text(token, decoded);
        self.push(text)
    }

    /// Whether the text so far ends in the reasoning.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.state, State::StartReasoning | State::Reasoning)
    }

    /// Ends the answer and returns the parts in the held text.
    pub fn finish(&mut self) -> Vec<Part> {
        let (mut parts, rest) = (Vec::new(), std::mem::take(&mut self.held));
        match self.state {
            State::Reasoning => reasoning(&mut parts, rest.trim_end()),
            State::AfterCall => content(&mut parts, rest.trim()),
            State::StartReasoning | State::AfterReasoning => {}
            State::Start | State::Content | State::Call(_) => content(&mut parts, &rest),
        }
        self.state = State::Content;
        parts
    }

    /// Takes one step. Returns whether another may be possible without more text.
    fn advance(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.state {
            State::Start => self.start(),
            State::StartReasoning => {
                self.drop_front(char::is_whitespace);
                self.enter_unless_empty(State::Reasoning)
            }
            State::Reasoning => self.reasoning(parts),
            State::AfterReasoning => {
                self.drop_front(char::is_whitespace);
                self.enter_unless_empty(self.answer_state(0))
            }
            State::Content => self.content(parts),
            State::Call(scan) => self.call(scan, parts),
            State::AfterCall => self.after_call(),
        }
    }

    fn start(&mut self) -> bool {
        let text = self.held.trim_start();
        let blank = self.held.len() - text.len();
        if self.format.thinks && text.starts_with(THINK) {
            self.held.drain(..blank + THINK.len());
            self.state = State::StartReasoning;
            return true;
        }
        if text.is_empty() || (self.format.thinks && THINK.starts_with(text)) {
            return false;
        }
        self.state = self.answer_state(blank);
        true
    }

    /// The state after reasoning, a call or white space, with an answer that begins at the index `at`. A call
    /// in the format of Llama begins with `{` and needs no mark.
    fn answer_state(&self, at: usize) -> State {
        let bare = self.format.calls == CallFormat::Bare && !self.tools.is_empty();
        match bare && self.held[at..].starts_with('{') {
            true => State::Call(Scan::new(at)),
            false => State::Content,
        }
    }

    fn reasoning(&mut self, parts: &mut Vec<Part>) -> bool {
        if let Some(at) = self.held.find(END_THINK) {
            reasoning(parts, self.held[..at].trim_end());
            self.held.drain(..at + END_THINK.len());
            self.state = State::AfterReasoning;
            return true;
        }
        let decided = decided(&self.held, END_THINK);
        let text: String = self.held.drain(..decided).collect();
        reasoning(parts, &text);
        false
    }

    fn content(&mut self, parts: &mut Vec<Part>) -> bool {
        if self.tools.is_empty() {
            content(parts, &std::mem::take(&mut self.held));
            return false;
        }
        let begin = self.format.calls.begin();
        if let Some(at) = self.held.find(begin) {
            content(parts, self.held[..at].trim_end());
            self.held.drain(..at);
            self.state = State::Call(Scan::new(begin.len()));
            return true;
        }
        let decided = decided(&self.held, begin);
        let text: String = self.held.drain(..decided).collect();
        content(parts, &text);
        false
    }

    fn call(&mut self, mut scan: Scan, parts: &mut Vec<Part>) -> bool {
        let scanned = scan.advance(&self.held, self.format.calls);
        self.state = State::Call(scan);
        let refused = match scanned {
            Scanned::More => return false,
            Scanned::NoCall => scan.start,
            Scanned::Complete => match scan.calls(&self.held, &self.tools) {
                Some(calls) => {
                    parts.extend(calls.into_iter().map(Part::Call));
                    self.held.drain(..scan.at);
                    self.state = State::AfterCall;
                    return true;
                }
                None => scan.at,
            },
        };
        let text: String = self.held.drain(..refused).collect();
        content(parts, &text);
        self.state = State::Content;
        true
    }

    fn after_call(&mut self) -> bool {
        let end = self.format.calls.end();
        let separator = self.format.calls == CallFormat::Bare;
        self.drop_front(|c| c.is_whitespace() || (separator && c == ';'));
        if !end.is_empty() && self.held.starts_with(end) {
            self.held.drain(..end.len());
            return true;
        }
        if self.held.is_empty() || (!end.is_empty() && end.starts_with(&self.held)) {
            return false;
        }
        self.state = self.answer_state(0);
        true
    }

    fn drop_front(&mut self, drop: impl Fn(char) -> bool) {
        let rest = self.held.trim_start_matches(drop).len();
        self.held.drain(..self.held.len() - rest);
    }

    fn enter_unless_empty(&mut self, state: State) -> bool {
        if !self.held.is_empty() {
            self.state = state;
        }
        !self.held.is_empty()
    }
}

fn content(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Content(before)) => before.push_str(text),
        _ => parts.push(Part::Content(text.to_string())),
    }
}

fn reasoning(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Reasoning(before)) => before.push_str(text),
        _ => parts.push(Part::Reasoning(text.to_string())),
    }
}

/// The length of the text before a possible beginning of `mark` at its end, without trailing white space.
fn decided(text: &str, mark: &str) -> usize {
    let lengths = mark.char_indices().map(|(at, _)| at).rev();
    let overlap = lengths.into_iter().find(|length| text.ends_with(&mark[..*length])).unwrap_or(0);
    text[..text.len() - overlap].trim_end().len()
}

enum Scanned {
    More,
    Complete,
    NoCall,
}

/// Finds the end of the JSON value of a call. Scans bytes, since all delimiters are ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scan {
    /// Where the text of the call starts, after the mark.
    start: usize,
    /// Where the JSON starts, once that is known.
    json: Option<usize>,
    /// The number of bytes that have been scanned.
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

/// The most bytes of a function name before its arguments.
const MAX_NAME: usize = 256;

impl Scan {
    fn new(start: usize) -> Self {
        Scan { start, json: None, at: start, depth: 0, in_string: false, escaped: false }
    }

    fn advance(&mut self, text: &str, format: CallFormat) -> Scanned {
        let named = format == CallFormat::List;
        for (at, byte) in text.bytes().enumerate().skip(self.at) {
            if self.json.is_none() {
                match byte {
                    b'{' => self.json = Some(at),
                    // A list of calls. After a name, `[` begins `[ARGS]` instead.
                    b'[' if text[self.start..at].trim().is_empty() => self.json = Some(at),
                    _ if byte.is_ascii_whitespace() || (named && at - self.start < MAX_NAME) => continue,
                    _ => return Scanned::NoCall,
                }
            }
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.at = at + 1;
                        return Scanned::Complete;
                    }
                }
                _ => {}
            }
        }
        self.at = text.len();
        Scanned::More
    }

    /// The calls in a text that was scanned to the end of its JSON.
    fn calls(&self, text: &str, tools: &[String]) -> Option<Vec<ToolCall>> {
        let json = self.json?;
        let value: Value = serde_json::from_str(&text[json..self.at]).ok()?;
        if let Some(name) = text[self.start..json].trim().split('[').next().filter(|name| !name.is_empty()) {
            let arguments = value.is_object().then(|| value.to_string())?;
            return Some(vec![ToolCall { name: name.to_string(), arguments }]);
        }
        let calls: Vec<ToolCall> = match &value {
            Value::Array(list) => list.iter().map(call).collect::<Option<_>>()?,
            other => vec![call(other)?],
        };
        // JSON without a mark is a call only if it names a known tool.
        let marked = !text[..self.start].trim().is_empty();
        let known = || calls.iter().all(|call| tools.contains(&call.name));
        (!calls.is_empty() && (marked || known())).then_some(calls)
    }
}

/// The call that a JSON object describes.
fn call(value: &Value) -> Option<ToolCall> {
    let name = value.get("name")?.as_str()?.to_string();
    let arguments = match value.get("arguments").or_else(|| value.get("parameters")) {
        None | Some(Value::Null) => "{}".to_string(),
        Some(Value::String(text)) if serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object()) => {
            text.clone()
        }
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(_) => return None,
    };
    Some(ToolCall { name, arguments })
}
