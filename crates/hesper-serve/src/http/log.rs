//! The log on standard error: a line for each event of a request. It has prompts and answers only if
//! [`ServerOptions::log_prompts`](super::ServerOptions::log_prompts) is set.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::options::LogFormat;

/// Writes log lines in one format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log(LogFormat);

impl Log {
    pub(crate) fn new(format: LogFormat) -> Self {
        Log(format)
    }

    /// Writes an event with its fields, which are a JSON object. Leaves out fields that are null.
    pub(crate) fn write(&self, event: &str, fields: Value) {
        if self.0 == LogFormat::Off {
            return;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let mut line = Map::new();
        line.insert("time".into(), ((time * 1e3).round() / 1e3).into());
        line.insert("event".into(), event.into());
        if let Value::Object(fields) = fields {
            line.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        let mut text = match self.0 {
            LogFormat::Json => Value::Object(line).to_string(),
            _ => line.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "),
        };
        text.push('\n');
        // An error of the log cannot be reported anywhere else.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}
