//! Who may use the server: API keys, and the checks of `Host` and `Origin`.
//!
//! A page elsewhere must not reach a server on this machine through the browser of its user. A browser sends
//! the origin of such a page with every request that changes something, and the name that it has resolved:
//! both are checked.

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

/// The keys that clients may send, as hashes.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeys(Arc<[[u8; 32]]>);

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}

impl ApiKeys {
    /// Reads a file with a key in each line. Empty lines and lines that begin with `#` are ignored.
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
            true => Err(format!("{} has no keys: write one in each line", path.display())),
            false => Ok(ApiKeys(hashes.into())),
        }
    }

    /// The tenant of a key. Takes the same time for every key of the same length.
    fn tenant(&self, key: &str) -> Option<u64> {
        let given = hash(key);
        let mut tenant = None;
        for hash in self.0.iter() {
            let difference = hash.iter().zip(&given).fold(0, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(difference) == 0 {
                let [a, b, c, d, e, f, g, h, ..] = *hash;
                // 0 is the tenant of servers without keys.
                tenant = Some(u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1);
            }
        }
        tenant
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The tenant of a request; prefixes are shared within a tenant only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tenant(pub(crate) u64);

/// Refuses requests without a valid key, and finds the tenant of the others.
pub(crate) async fn check_key(Extract(app): Extract<App>, mut request: Request, next: Next) -> Response {
    let tenant = match &app.0.options.api_keys {
        None => 0,
        Some(keys) => match bearer(request.headers()).and_then(|key| keys.tenant(key)) {
            Some(tenant) => tenant,
            None => {
                let message = "a valid API key is needed: Authorization: Bearer KEY";
                let error = ApiError::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key");
                return error_response(request.uri().path(), error);
            }
        },
    };
    request.extensions_mut().insert(Tenant(tenant));
    next.run(request).await
}

/// The key that a client sends.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    // Clients of Anthropic's API send it alone.
    if let (None, Some(key)) = (headers.get(AUTHORIZATION), headers.get("x-api-key")) {
        return key.to_str().ok();
    }
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
}

/// Refuses requests by an unknown name of the server, and those of pages elsewhere.
pub(crate) async fn check_source(Extract(app): Extract<App>, request: Request, next: Next) -> Response {
    let options = &app.0.options;
    let checked = check_host(request.headers(), request.uri().authority(), &options.allowed_hosts)
        .and_then(|host| check_origin(request.headers(), &host, &options.allowed_origins));
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error_response(request.uri().path(), error),
    }
}

/// The authority that the client addressed, if the server answers to it.
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
    // A page can make a browser resolve a name of its own to this machine, but not an address.
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
        // Browsers say this for requests without an origin, such as those for images.
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
    let message = format!("pages of {origin} may not use this server; --allow-origin names those that may");
    ApiError::new(StatusCode::FORBIDDEN, message).code("origin_not_allowed")
}

/// The layer that lets pages of the allowed origins read answers.
pub(crate) fn cors(allowed: &[String]) -> tower_http::cors::CorsLayer {
    use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
    let origins = match allowed.iter().any(|one| one == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(allowed.iter().filter_map(|one| one.parse().ok())),
    };
    let headers = AllowHeaders::mirror_request();
    CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST]).allow_headers(headers)
}
