//! The routes and their handlers. A handler reads the body, then runs slow work (rendering, tokenization) on
//! a blocking thread.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State as Extract};
use axum::http::header::{CONTENT_TYPE, EXPECT};
use axum::http::{HeaderValue, Method, Response, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, delete, get, post};
use futures_core::Stream;
use hyper::body::Body as _;
use serde_json::{Map, Value, json};

use super::error::{ApiError, ApiResult};
use super::fields::{Fields, parse_body};
use super::guard::{Tenant, check_key, check_source, cors};
use super::messages::{self, MessagesError};
use super::state::{App, BodyBytes, State};
use super::{chat, completions, embeddings, metrics, params, responses};
use crate::page;
use crate::protocol::{Generator, Health};

/// The document that describes the API.
const OPENAPI: &str = include_str!("openapi.json");

/// A route: its method, its path, whether it needs an API key, its handler.
type Route = (Method, &'static str, bool, MethodRouter<App>);

fn table() -> Vec<Route> {
    vec![
        (Method::POST, "/v1/chat/completions", true, post(chat_completions)),
        (Method::POST, "/v1/completions", true, post(text_completions)),
        (Method::POST, "/v1/responses", true, post(create_response)),
        (Method::GET, "/v1/responses/{id}", true, get(find_response)),
        (Method::DELETE, "/v1/responses/{id}", true, delete(delete_response)),
        (Method::POST, "/v1/embeddings", true, post(create_embeddings)),
        (Method::POST, "/v1/messages", true, post(anthropic_messages)),
        (Method::POST, "/v1/messages/count_tokens", true, post(count_tokens)),
        (Method::GET, "/v1/models", true, get(models)),
        (Method::GET, "/v1/models/{*model}", true, get(model)),
        (Method::POST, "/v1/requests/{id}/cancel", true, post(cancel)),
        (Method::POST, "/tokenize", true, post(tokenize)),
        (Method::POST, "/detokenize", true, post(detokenize)),
        (Method::GET, "/metrics", true, get(prometheus)),
        (Method::GET, "/health", false, get(health)),
        (Method::GET, "/openapi.json", false, get(|| async { json_text(OPENAPI) })),
    ]
}

/// Methods and paths of all routes of the API.
pub fn route_list() -> Vec<(String, &'static str)> {
    table().into_iter().map(|(method, path, ..)| (method.to_string().to_lowercase(), path)).collect()
}

/// The router with access control and logging.
pub(crate) fn router(state: Arc<State>) -> Router {
    let origins = state.options.allowed_origins.clone();
    let app = App(state);
    let (mut open, mut keyed) = (page::routes(), page::data_routes());
    for (_, path, key, handler) in table() {
        match key {
            true => keyed = keyed.route(path, handler),
            false => open = open.route(path, handler),
        }
    }
    let mut router = open
        .merge(keyed.route_layer(from_fn_with_state(app.clone(), check_key)))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method);
    if !origins.is_empty() {
        router = router.layer(cors(&origins));
    }
    router
        .layer(from_fn_with_state(app.clone(), check_source))
        .layer(from_fn_with_state(app.clone(), log))
        .with_state(app)
}

/// Logs a request and its status.
async fn log(Extract(app): Extract<App>, request: Request, next: Next) -> Response<Body> {
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_string());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let fields = json!({
        "method": method.as_str(),
        "path": path,
        "status": status,
        "seconds": start.elapsed().as_secs_f64(),
    });
    app.0.log.write("request", fields);
    response
}

async fn not_found(request: Request) -> ApiError {
    let path = request.uri().path();
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no route {path:?}; see /openapi.json"))
}

async fn wrong_method(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{path} does not support {method}; see /openapi.json"),
    )
}

/// A response with JSON text.
fn json_text(text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response with a JSON value.
pub(crate) fn json_response(value: &Value) -> Response<Body> {
    json_text(value.to_string())
}

/// How many bytes of a body that is too large are read and discarded. Many clients do not read the response
/// before they have sent the body.
const MAX_DROPPED_BYTES: usize = 64 << 20;

/// Reads a body within the limits of size, memory and time.
async fn read_body(state: &Arc<State>, request: Request) -> ApiResult<(Vec<u8>, BodyBytes)> {
    let (limit, timeout) = (state.options.max_body_bytes, state.options.client_timeout);
    let too_large = || {
        let message = format!("the body has more than {limit} bytes, which is the limit");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("body_too_large")
    };
    let mut held = BodyBytes::new(state);
    let is_expecting = request.headers().contains_key(EXPECT);
    let body = request.into_body();
    if body.size_hint().lower() > limit as u64 {
        // Discard the body, unless the client waits for `100 Continue` before it sends one.
        if !is_expecting {
            tokio::spawn(tokio::time::timeout(timeout, async { collect(body, |_| false).await }));
        }
        return Err(too_large());
    }
    match tokio::time::timeout(timeout, collect(body, |length| held.grow(length))).await {
        Ok(Ok((length, Some(body)))) if length <= limit => Ok((body, held)),
        Ok(Ok((length, _))) if length > limit => Err(too_large()),
        Ok(Ok(_)) => {
            let message = "too many large bodies arrive at once; try again";
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message);
            Err(error.code("too_many_large_bodies").retry_after(1))
        }
        Ok(Err(error)) => {
            Err(ApiError::new(StatusCode::BAD_REQUEST, format!("cannot read the body: {error}")))
        }
        Err(_) => {
            let message = format!("the body did not arrive within {} s", timeout.as_secs_f64());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}

/// The length of a body and its bytes; `None` if there was no room for the first so many of them.
async fn collect(
    body: Body,
    mut has_room: impl FnMut(usize) -> bool,
) -> Result<(usize, Option<Vec<u8>>), axum::Error> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut length, mut is_dropped) = (Vec::new(), 0, false);
    while let Some(chunk) = poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await {
        let chunk = chunk?;
        length += chunk.len();
        is_dropped = is_dropped || !has_room(length);
        match is_dropped {
            false => bytes.extend_from_slice(&chunk),
            true => bytes = Vec::new(),
        }
        if is_dropped && length > MAX_DROPPED_BYTES {
            break;
        }
    }
    Ok((length, (!is_dropped).then_some(bytes)))
}

/// Reads the body and calls `run` with it on a blocking thread.
async fn with_body<T: Send + 'static>(
    app: App,
    tenant: Tenant,
    request: Request,
    run: impl FnOnce(&Arc<State>, u64, &Map<String, Value>) -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let (body, held) = read_body(&app.0, request).await?;
    // Few large bodies are processed at once, so that threads are left for small ones.
    let turn = match held.is_large() {
        true => app.0.large_bodies.clone().acquire_owned().await.ok(),
        false => None,
    };
    let run = move || {
        let parsed = parse_body(&body)?;
        drop(body);
        let result = run(&app.0, tenant.0, &parsed);
        drop((held, turn));
        result
    };
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result,
        Err(error) => {
            let message = format!("cannot process the request: {error}");
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("internal_error"))
        }
    }
}

/// A parameter in a path, if the path is valid.
type PathResult = Result<Path<String>, PathRejection>;

fn parameter(path: PathResult) -> ApiResult<String> {
    let invalid = |error: PathRejection| {
        ApiError::new(error.status(), format!("cannot read the path: {}", error.body_text()))
    };
    path.map(|Path(text)| text).map_err(invalid)
}

async fn chat_completions(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> ApiResult<Response<Body>> {
    with_body(app, tenant, request, chat::submit).await?.respond().await
}

async fn text_completions(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> ApiResult<Response<Body>> {
    with_body(app, tenant, request, completions::submit).await?.respond().await
}

async fn create_response(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> ApiResult<Response<Body>> {
    with_body(app, tenant, request, responses::submit).await?.respond().await
}

async fn find_response(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    id: PathResult,
) -> ApiResult<Response<Body>> {
    Ok(json_response(&responses::find(&app.0, &parameter(id)?, tenant.0)?))
}

async fn delete_response(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    id: PathResult,
) -> ApiResult<Response<Body>> {
    Ok(json_response(&responses::delete(&app.0, &parameter(id)?, tenant.0)?))
}

async fn create_embeddings(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> ApiResult<Response<Body>> {
    with_body(app, tenant, request, embeddings::read).await?.respond().await
}

async fn anthropic_messages(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> Result<Response<Body>, MessagesError> {
    with_body(app, tenant, request, messages::submit).await?.respond().await
}

async fn count_tokens(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> Result<Response<Body>, MessagesError> {
    let count = |state: &Arc<State>, _, body: &Map<String, Value>| messages::count_tokens(state, body);
    Ok(json_response(&with_body(app, tenant, request, count).await?))
}

fn model_json(state: &State) -> ApiResult<Value> {
    let loaded = state.loaded()?;
    Ok(json!({
        "id": loaded.name,
        "object": "model",
        "created": loaded.created,
        "owned_by": "hesper",
        "max_model_len": loaded.language.model().config().context_length,
    }))
}

async fn models(Extract(app): Extract<App>) -> ApiResult<Response<Body>> {
    Ok(json_response(&json!({ "object": "list", "data": [model_json(&app.0)?] })))
}

async fn model(Extract(app): Extract<App>, name: PathResult) -> ApiResult<Response<Body>> {
    let (name, model) = (parameter(name)?, model_json(&app.0)?);
    if model["id"] != name {
        let message = format!("there is no model {name:?}; the server has {}", model["id"]);
        return Err(ApiError::new(StatusCode::NOT_FOUND, message).code("model_not_found"));
    }
    Ok(json_response(&model))
}

async fn cancel(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    id: PathResult,
) -> ApiResult<Response<Body>> {
    let id = parameter(id)?;
    match app.0.cancel(&id, tenant.0) {
        true => Ok(json_response(&json!({ "id": id, "cancelled": true }))),
        false => {
            let message = format!("there is no unfinished request {id:?}");
            Err(ApiError::new(StatusCode::NOT_FOUND, message).code("request_not_found"))
        }
    }
}

async fn tokenize(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> ApiResult<Response<Body>> {
    let tokenize = |state: &Arc<State>, _, body: &Map<String, Value>| {
        let loaded = state.loaded()?;
        let body = Fields::body(body);
        let begin = body.flag("add_special_tokens")?.unwrap_or(true);
        let tokens = match (body.text("prompt")?, body.get("messages")) {
            (Some(text), None) => loaded.tokens(text, begin, "prompt", loaded.count_limit())?,
            (None, Some(_)) => {
                chat::encode(&chat::conversation(&body, &loaded)?.0, &loaded, loaded.count_limit())?.1
            }
            _ => return Err(body.error("prompt", "give either prompt or messages")),
        };
        let context = loaded.context();
        Ok(json!({ "count": tokens.len(), "max_model_len": context, "tokens": tokens }))
    };
    Ok(json_response(&with_body(app, tenant, request, tokenize).await?))
}

async fn detokenize(
    Extract(app): Extract<App>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> ApiResult<Response<Body>> {
    let detokenize = |state: &Arc<State>, _, body: &Map<String, Value>| {
        let loaded = state.loaded()?;
        let body = Fields::body(body);
        let Some(tokens) = body.get("tokens") else { return Err(body.error("tokens", "is missing")) };
        let tokens = params::tokens(tokens, "tokens", &loaded.language)?;
        let text = loaded.language.tokenizer().decode_all(&tokens);
        Ok(json!({ "prompt": text.map_err(|error| body.error("tokens", error))? }))
    };
    Ok(json_response(&with_body(app, tenant, request, detokenize).await?))
}

async fn prometheus(Extract(app): Extract<App>) -> Response<Body> {
    let name = app.0.loaded().map(|loaded| loaded.name.clone()).unwrap_or_default();
    let text = metrics::render(&name, &app.0.gate.snapshot(), &app.0.gate.health());
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Reports the state of the loop that runs the model.
async fn health(Extract(app): Extract<App>) -> Response<Body> {
    let health = app.0.gate.health();
    let mut response = json_response(&json!(health));
    if health != Health::Ok {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response.into_response()
}
