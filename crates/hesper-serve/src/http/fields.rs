//! Reads a JSON body field by field. Every error names the field, such as `messages[2].content`.

use std::fmt::Display;
use std::ops::RangeInclusive;

use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::error::{ApiError, ApiResult};

/// The fields of an object. A field that is null counts as missing.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The name of the object, empty for the body.
    name: String,
}

/// The most objects and arrays of a body, and the most values. Parsed, a value of a few bytes takes many
/// times as much memory.
const MAX_CONTAINERS: usize = 1 << 16;
const MAX_VALUES: usize = 1 << 20;

/// Refuses JSON text with too many objects, arrays or values.
fn limit_values(body: &[u8]) -> ApiResult<()> {
    let (mut containers, mut values, mut in_string) = (0, 1, false);
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        match (byte, in_string) {
            (b'"', _) => in_string = !in_string,
            (b'\\', true) => drop(bytes.next()),
            (b'{' | b'[', false) => (containers, values) = (containers + 1, values + 1),
            (b',', false) => values += 1,
            _ => {}
        }
    }
    let too_many = |what: &str, count: usize, limit: usize| {
        let message = format!("the body has {count} {what}; the limit is {limit}");
        Err(ApiError::new(StatusCode::BAD_REQUEST, message).code("too_many_values"))
    };
    match (containers, values) {
        (count, _) if count > MAX_CONTAINERS => too_many("objects and arrays", count, MAX_CONTAINERS),
        (_, count) if count > MAX_VALUES => too_many("values", count, MAX_VALUES),
        _ => Ok(()),
    }
}

/// Parses a body, which must be an object.
pub(crate) fn parse_body(body: &[u8]) -> ApiResult<Map<String, Value>> {
    limit_values(body)?;
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => {
            let message = format!("the body must be a JSON object, not {}", type_name(&other));
            Err(ApiError::new(StatusCode::BAD_REQUEST, message))
        }
        Err(error) => {
            Err(ApiError::new(StatusCode::BAD_REQUEST, format!("the body is not valid JSON: {error}")))
        }
    }
}

/// The JSON type of a value, for error messages.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn mismatch(name: String, expected: &str, value: &Value) -> ApiError {
    ApiError::field(name, format!("must be {expected}, not {}", type_name(value)))
}

impl<'a> Fields<'a> {
    pub(crate) fn body(object: &'a Map<String, Value>) -> Self {
        Fields { object, name: String::new() }
    }

    /// The fields of a value, which must be an object.
    pub(crate) fn of(value: &'a Value, name: String) -> ApiResult<Self> {
        match value {
            Value::Object(object) => Ok(Fields { object, name }),
            other => Err(mismatch(name, "an object", other)),
        }
    }

    /// The full name of a field.
    pub(crate) fn name(&self, field: &str) -> String {
        if self.name.is_empty() { field.to_string() } else { format!("{}.{field}", self.name) }
    }

    pub(crate) fn error(&self, field: &str, what: impl Display) -> ApiError {
        ApiError::field(self.name(field), what)
    }

    pub(crate) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &self,
        field: &str,
        what: &str,
        get: impl Fn(&'a Value) -> Option<T>,
    ) -> ApiResult<Option<T>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        get(value).map(Some).ok_or_else(|| mismatch(self.name(field), what, value))
    }

    pub(crate) fn flag(&self, field: &str) -> ApiResult<Option<bool>> {
        self.typed(field, "a boolean", Value::as_bool)
    }

    pub(crate) fn text(&self, field: &str) -> ApiResult<Option<&'a str>> {
        self.typed(field, "a string", Value::as_str)
    }

    pub(crate) fn array(&self, field: &str) -> ApiResult<Option<&'a Vec<Value>>> {
        self.typed(field, "an array", Value::as_array)
    }

    pub(crate) fn object(&self, field: &str) -> ApiResult<Option<Fields<'a>>> {
        self.get(field).map(|value| Fields::of(value, self.name(field))).transpose()
    }

    pub(crate) fn number(&self, field: &str, range: RangeInclusive<f64>) -> ApiResult<Option<f32>> {
        let number = self.typed(field, "a number", Value::as_f64)?;
        match number {
            Some(number) if !range.contains(&number) => {
                let (low, high) = range.into_inner();
                Err(self.error(field, format!("must be from {low} to {high}, not {number}")))
            }
            number => Ok(number.map(|number| number as f32)),
        }
    }

    pub(crate) fn integer(&self, field: &str, range: RangeInclusive<i64>) -> ApiResult<Option<i64>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = value.as_i64().or_else(|| {
            // Some clients send 16.0.
            value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15).map(|n| n as i64)
        });
        match number {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ if value.is_number() => {
                let is_large = value.as_f64().is_some_and(|number| number >= i64::MAX as f64);
                let range = match range.into_inner() {
                    (i64::MIN, i64::MAX) => "of 64 bits".to_string(),
                    (low, i64::MAX) if !is_large => format!("of at least {low}"),
                    (low, high) => format!("from {low} to {high}"),
                };
                Err(self.error(field, format!("must be an integer {range}, not {value}")))
            }
            _ => Err(mismatch(self.name(field), "an integer", value)),
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.object.iter()
    }
}
