//! The log: a line on standard error for each request, without prompts and answers.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::options::LogFormat;

/// Writes lines in one format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log(LogFormat);

impl Log {
    pub(crate) fn new(format: LogFormat) -> Self {
        Log(format)
    }

    /// Writes an event with its fields, an object; fields that are null are left out.
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
        // Nobody can be told that the log cannot be written.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}
