//! Errors in the format of OpenAI's API.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::protocol::{Failure, FailureKind, Refusal};

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    /// The invalid field of the request.
    param: Option<String>,
    code: Option<&'static str>,
    /// Seconds after which the client may retry.
    retry_after: Option<u64>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError { status, message: message.into(), param: None, code: None, retry_after: None }
    }

    /// An error about an invalid field. The message begins with the name of the field.
    pub(crate) fn field(name: impl Into<String>, what: impl std::fmt::Display) -> Self {
        let name = name.into();
        let error = ApiError::new(StatusCode::BAD_REQUEST, format!("{name}: {what}"));
        ApiError { param: Some(name), ..error }
    }

    /// Replaces the name of the field by the name that it has in another API. `names` has pairs of both.
    pub(crate) fn renamed(mut self, names: &[(&str, &str)]) -> Self {
        let Some(param) = self.param.clone() else { return self };
        let known = names.iter().find(|(own, _)| param.split(['.', '[']).next() == Some(own));
        if let Some((_, other)) = known {
            let what = self.message.strip_prefix(&param).unwrap_or(&self.message);
            self.message = format!("{other}{what}");
            self.param = Some(other.to_string());
        }
        self
    }

    pub(crate) fn status(self, status: StatusCode) -> Self {
        ApiError { status, ..self }
    }

    pub(crate) fn status_code(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn code(self, code: &'static str) -> Self {
        ApiError { code: Some(code), ..self }
    }

    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        ApiError { retry_after: Some(seconds), ..self }
    }

    /// The body of the response, as clients of OpenAI's API expect it.
    pub(crate) fn json(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.json().to_string()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::Invalid(_) => ApiError::new(StatusCode::BAD_REQUEST, message),
            Refusal::TooLarge { .. } => {
                ApiError::new(StatusCode::BAD_REQUEST, message).code("request_too_large")
            }
            Refusal::QueueFull { retry_after, .. } => ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
                .code("queue_full")
                .retry_after(retry_after.as_secs().max(1)),
            Refusal::Unavailable(_) => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("unavailable").retry_after(1)
            }
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let (status, code) = match failure.kind {
            FailureKind::Request => (StatusCode::BAD_REQUEST, "request_failed"),
            FailureKind::Deadline => (StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded"),
            FailureKind::OutOfMemory => (StatusCode::SERVICE_UNAVAILABLE, "out_of_memory"),
            FailureKind::Lost => (StatusCode::SERVICE_UNAVAILABLE, "device_lost"),
            FailureKind::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
            FailureKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        };
        ApiError::new(status, failure.message).code(code)
    }
}
