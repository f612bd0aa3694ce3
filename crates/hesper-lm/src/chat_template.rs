//! Chat templates: from messages to the text format that a model was trained on.
//!
//! Templates come from `tokenizer_config.json` or a GGUF file and are rendered as by Jinja with `trim_blocks`
//! and `lstrip_blocks`. They may call `raise_exception`, `strftime_now` and methods of Python's strings,
//! lists and dictionaries.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Environment, Error as Jinja, ErrorKind, context};
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: content.into() }
    }
}

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

const NAME: &str = "chat";

/// Instructions after which rendering is aborted.
const FUEL: u64 = 1_000_000;

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts of the tokens that begin and end a sequence.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |message: String| -> std::result::Result<String, Jinja> {
                Err(Jinja::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment.add_function("strftime_now", |format: String| strftime(&format, now()));
        environment.add_filter("tojson", tojson);
        environment.set_fuel(Some(FUEL));
        environment.add_template_owned(NAME, source.to_string()).map_err(|error| template_error(&error))?;
        Ok(ChatTemplate { environment, bos: bos.to_string(), eos: eos.to_string() })
    }

    /// The text of a conversation; with `answer`, up to where the assistant answers. `extra` are further
    /// variables for the template.
    pub fn render(&self, messages: &[Message], answer: bool, extra: &Value) -> Result<String> {
        let each = messages.iter();
        let list: Vec<Value> =
            each.map(|message| json!({ "role": message.role, "content": message.content })).collect();
        self.render_json(&list, answer, extra)
    }

    /// As [`ChatTemplate::render`], for messages with further fields: tool calls, names, reasoning.
    pub fn render_json(&self, messages: &[Value], answer: bool, extra: &Value) -> Result<String> {
        let template = self.environment.get_template(NAME).map_err(|error| template_error(&error))?;
        let own = context! {
            messages => messages,
            add_generation_prompt => answer,
            bos_token => self.bos,
            eos_token => self.eos,
        };
        let extra = minijinja::Value::from_serialize(extra);
        template.render(context! { ..own, ..extra }).map_err(|error| template_error(&error))
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("bos", &self.bos).field("eos", &self.eos).finish_non_exhaustive()
    }
}

fn template_error(error: &Jinja) -> Error {
    let line = error.line().map_or(String::new(), |line| format!(" (line {line})"));
    Error::Template(format!("{}{line}", error.detail().map_or(error.to_string(), str::to_string)))
}

/// A value as JSON with Python's spacing, which models were trained on.
fn tojson(value: &minijinja::Value) -> std::result::Result<minijinja::Value, Jinja> {
    let value = serde_json::to_value(value)
        .map_err(|error| Jinja::new(ErrorKind::BadSerialization, error.to_string()))?;
    let mut text = String::new();
    write_json(&value, &mut text);
    Ok(minijinja::Value::from_safe_string(text))
}

fn write_json(value: &Value, text: &mut String) {
    let mut first = true;
    let mut next = |text: &mut String| {
        if !std::mem::take(&mut first) {
            text.push_str(", ");
        }
    };
    match value {
        Value::Array(list) => {
            text.push('[');
            for value in list {
                next(text);
                write_json(value, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            text.push('{');
            for (key, value) in map {
                next(text);
                text.push_str(&format!("{}: ", Value::from(key.as_str())));
                write_json(value, text);
            }
            text.push('}');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats a UTC time. Supports the specifiers that templates use.
fn strftime(format: &str, seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('Y') => text.push_str(&year.to_string()),
            Some('m') => text.push_str(&format!("{month:02}")),
            Some('d') => text.push_str(&format!("{day:02}")),
            Some('B') => text.push_str(MONTHS[month - 1]),
            Some('b') => text.push_str(&MONTHS[month - 1][..3]),
            Some('A') => text.push_str(DAYS[(days % 7) as usize]),
            Some('a') => text.push_str(&DAYS[(days % 7) as usize][..3]),
            Some('H') => text.push_str(&format!("{:02}", rest / 3600)),
            Some('M') => text.push_str(&format!("{:02}", rest / 60 % 60)),
            Some('S') => text.push_str(&format!("{:02}", rest % 60)),
            Some('%') => text.push('%'),
            Some(other) => text.extend(['%', other]),
            None => text.push('%'),
        }
    }
    text
}

/// Year, month and day from days since 1970.
fn date(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Whole periods of 400 years at once.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn render(source: &str, messages: &[Message]) -> Result<String> {
        ChatTemplate::new(source, "<s>", "</s>")?.render(messages, true, &Value::Null)
    }

    #[test]
    fn a_conversation_is_rendered() {
        let source = "{{ bos_token }}{% for message in messages %}\n  {% if message['role'] == 'user' %}\n\
            [{{ message.content | trim }}]{% else %}{{ message['content'].strip().split('x')[-1] }}{{ eos_token }}\
            {% endif %}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}";
        let messages = [Message::new("user", " hi "), Message::new("assistant", " ax bc ")];
        assert_eq!(render(source, &messages).unwrap(), "<s>[hi] bc</s>>");
    }

    #[test]
    fn the_message_of_raise_exception_is_reported() {
        let source =
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}ok";
        assert_eq!(render(source, &[Message::new("user", "")]).unwrap(), "ok");
        let error = render(source, &[Message::new("system", "")]).unwrap_err().to_string();
        assert!(error.contains("no system role"), "{error}");
        assert!(ChatTemplate::new("{% if %}", "", "").is_err());
    }

    #[test]
    fn endless_templates_are_aborted() {
        let source = "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
        assert!(render(source, &[]).is_err());
    }

    #[test]
    fn templates_see_extra_variables_and_write_json() {
        let template =
            ChatTemplate::new("{{ messages[0] | tojson }}{{ mode }}{{ missing is defined }}", "", "")
                .unwrap();
        let text = template.render(&[Message::new("user", "a\"b")], false, &json!({ "mode": 3 })).unwrap();
        assert_eq!(text, r#"{"role": "user", "content": "a\"b"}3False"#);
    }

    #[test]
    fn times_are_formatted_in_utc() {
        assert_eq!(strftime("%d %b %Y %H:%M:%S %A", 1_709_210_096), "29 Feb 2024 12:34:56 Thursday");
        assert_eq!(strftime("%Y-%m-%d %B", 4_102_444_800), "2100-01-01 January");
    }
}
