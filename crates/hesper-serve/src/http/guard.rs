//! Access control: API keys, and the checks of `Host` and `Origin`.
//!
//! A web page of another origin must not reach a local server through the browser of the user. For a request
//! that changes something a browser sends the origin of the page in `Origin`, and for every request the name
//! that it resolved in `Host`. Both are checked.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State as Extract};
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};

use super::error::{ApiError, ApiResult};
use super::messages::error_response;
use super::state::App;

/// The hashes of the valid API keys.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeys(Arc<[[u8; 32]]>);

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}

impl ApiKeys {
    /// Reads a file with one key per line. Empty lines and lines that begin with `#` are ignored.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let lines = text.lines().map(str::trim).enumerate();
        let mut hashes = Vec::new();
        for (at, key) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                let what = "a key must consist of visible ASCII characters, without spaces";
                return Err(format!("{}, line {}: {what}", path.display(), at + 1));
            }
            hashes.push(hash(key));
        }
        match hashes.is_empty() {
            true => Err(format!("{} has no keys; write one key per line", path.display())),
            false => Ok(ApiKeys(hashes.into())),
        }
    }

    /// The tenant of a key, in a time that depends only on the length of the key.
    fn tenant(&self, key: &str) -> Option<u64> {
        let given = hash(key);
        let mut tenant = None;
        for hash in self.0.iter() {
            let difference = hash.iter().zip(&given).fold(0, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(difference) == 0 {
                let [a, b, c, d, e, f, g, h, ..] = *hash;
                // Not 0, which is the tenant of servers without keys.
                tenant = Some(u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1);
            }
        }
        tenant
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The tenant of a request. Prefixes are shared within a tenant only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tenant(pub(crate) u64);

/// Refuses requests without a valid key and adds the tenant to the others.
pub(crate) async fn check_key(Extract(app): Extract<App>, mut request: Request, next: Next) -> Response {
    let tenant = match &app.0.options.api_keys {
        None => 0,
        Some(keys) => match bearer(request.headers()).and_then(|key| keys.tenant(key)) {
            Some(tenant) => tenant,
            None => {
                let message = "the API key is missing or invalid; send the header Authorization: Bearer KEY";
                let error = ApiError::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key");
                return error_response(request.uri().path(), error);
            }
        },
    };
    request.extensions_mut().insert(Tenant(tenant));
    next.run(request).await
}

/// The API key in the headers of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    // Clients of Anthropic's API send the key in this header.
    if let (None, Some(key)) = (headers.get(AUTHORIZATION), headers.get("x-api-key")) {
        return key.to_str().ok();
    }
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
}

/// Refuses requests with an unknown `Host` or from pages of other origins.
pub(crate) async fn check_source(Extract(app): Extract<App>, request: Request, next: Next) -> Response {
    let options = &app.0.options;
    let checked = check_host(request.headers(), request.uri().authority(), &options.allowed_hosts)
        .and_then(|host| check_origin(request.headers(), &host, &options.allowed_origins));
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error_response(request.uri().path(), error),
    }
}

/// The authority that the client addressed, if it is allowed.
fn check_host(headers: &HeaderMap, target: Option<&Authority>, allowed: &[String]) -> ApiResult<Authority> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (target, hosts.next(), hosts.next()) {
        (Some(target), _, None) => Some(target.clone()),
        (None, Some(host), None) => Authority::try_from(host.as_bytes()).ok(),
        _ => None,
    };
    let Some(host) = host.filter(|host| !host.as_str().contains('@')) else {
        let message = "the request must have one valid Host header";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, message));
    };
    let name = host.host();
    // DNS rebinding: a page can let its own name resolve to this machine, so only known names are allowed. An
    // IP address is not resolved.
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let known = |one: &String| one == "*" || one.eq_ignore_ascii_case(name);
    if address || name.eq_ignore_ascii_case("localhost") || allowed.iter().any(known) {
        return Ok(host);
    }
    let message =
        format!("the server does not answer to the name {name:?}; start it with --allow-host {name}");
    Err(ApiError::new(StatusCode::FORBIDDEN, message).code("host_not_allowed"))
}

fn check_origin(headers: &HeaderMap, host: &Authority, allowed: &[String]) -> ApiResult<()> {
    let Some(origin) = headers.get(ORIGIN) else {
        // Browsers send this for requests without an origin, such as those for images.
        let site = headers.get(HeaderName::from_static("sec-fetch-site")).map(|value| value.as_bytes());
        let mode = headers.get(HeaderName::from_static("sec-fetch-mode")).map(|value| value.as_bytes());
        return match site {
            Some(b"cross-site") if mode != Some(b"navigate") => Err(forbidden("another site")),
            _ => Ok(()),
        };
    };
    let origin = origin.to_str().unwrap_or("?");
    let same = |scheme: &str| {
        origin.strip_prefix(scheme).is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
    };
    let known = |one: &String| one == "*" || one.eq_ignore_ascii_case(origin);
    match same("http://") || same("https://") || allowed.iter().any(known) {
        true => Ok(()),
        false => Err(forbidden(origin)),
    }
}

fn forbidden(origin: &str) -> ApiError {
    let message = format!("pages of {origin} may not use this server; allow an origin with --allow-origin");
    ApiError::new(StatusCode::FORBIDDEN, message).code("origin_not_allowed")
}

/// The CORS layer that lets pages of the allowed origins read responses.
pub(crate) fn cors(allowed: &[String]) -> tower_http::cors::CorsLayer {
    use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
    let origins = match allowed.iter().any(|one| one == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(allowed.iter().filter_map(|one| one.parse().ok())),
    };
    let headers = AllowHeaders::mirror_request();
    let methods = [Method::GET, Method::POST, Method::DELETE];
    CorsLayer::new().allow_origin(origins).allow_methods(methods).allow_headers(headers)
}
