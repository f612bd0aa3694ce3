//! The chat page at `/` and the page at `/inspect`, embedded in the binary.
//!
//! [`routes`] serves public files. [`data_routes`] serves the state of the engine: put it behind the same
//! authentication as the API. The content security policy of the pages forbids inline scripts, other origins,
//! and parsing strings as HTML or as scripts, so that the output of the model cannot run as code.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::protocol::Generator;

/// The content security policy of the pages.
pub const CONTENT_SECURITY_POLICY: &str = include_str!("../page/content-security-policy.txt");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the pages.
#[derive(Debug, Clone, Copy)]
struct Asset {
    route: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

/// Embeds files of the folder `page`.
macro_rules! assets {
    ($($route:literal $content_type:ident $file:literal;)*) => {
        &[$(Asset {
            route: $route,
            content_type: $content_type,
            bytes: include_bytes!(concat!("../page/", $file)),
        }),*]
    };
}

const ASSETS: &[Asset] = assets! {
    "/" HTML "index.html";
    "/inspect" HTML "inspect.html";
    "/favicon.ico" SVG "icon.svg";
    "/assets/icon.svg" SVG "icon.svg";
    "/assets/base.css" CSS "base.css";
    "/assets/chat.css" CSS "chat.css";
    "/assets/inspect.css" CSS "inspect.css";
    "/assets/api.js" JAVASCRIPT "api.js";
    "/assets/chat.js" JAVASCRIPT "chat.js";
    "/assets/dom.js" JAVASCRIPT "dom.js";
    "/assets/highlight.js" JAVASCRIPT "highlight.js";
    "/assets/inspect.js" JAVASCRIPT "inspect.js";
    "/assets/markdown.js" JAVASCRIPT "markdown.js";
    "/assets/pages.js" JAVASCRIPT "pages.js";
    "/assets/plots.js" JAVASCRIPT "plots.js";
    "/assets/settings.js" JAVASCRIPT "settings.js";
    "/assets/store.js" JAVASCRIPT "store.js";
    "/assets/theme-button.js" JAVASCRIPT "theme-button.js";
    "/assets/theme.js" JAVASCRIPT "theme.js";
};

/// Routes for the files of the pages. They contain no secrets and need no API key.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        let tag = entity_tag(asset.bytes);
        router.route(
            asset.route,
            get(move |headers: HeaderMap| std::future::ready(asset.response(&headers, &tag))),
        )
    })
}

/// `GET /inspect/data`: the engine's [`Snapshot`](crate::protocol::Snapshot) as JSON, with the id of every
/// request.
pub fn data_routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<dyn Generator>: FromRef<S>,
{
    Router::new().route("/inspect/data", get(snapshot))
}

async fn snapshot(State(generator): State<Arc<dyn Generator>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    match serde_json::to_vec(&generator.snapshot()) {
        Ok(json) => (headers, json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

impl Asset {
    fn response(&self, request: &HeaderMap, tag: &HeaderValue) -> Response {
        let fresh =
            request.get(header::IF_NONE_MATCH).and_then(|given| given.to_str().ok()).is_some_and(|given| {
                let known =
                    |each: &str| each == "*" || each.trim_start_matches("W/").as_bytes() == tag.as_bytes();
                given.split(',').map(str::trim).any(known)
            });
        let body = if fresh { Body::empty() } else { Body::from(Bytes::from_static(self.bytes)) };
        let mut response = Response::new(body);
        if fresh {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(header::ETAG, tag.clone());
        for (name, value) in [
            (header::CONTENT_TYPE, self.content_type),
            // Revalidate each time: a new version of the server has other files under the same names.
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY.trim_ascii_end()),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// The entity tag of a file: the 64-bit FNV-1a hash of its content.
fn entity_tag(bytes: &[u8]) -> HeaderValue {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    HeaderValue::from_str(&format!("\"{hash:016x}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn folder() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files
            .map(|path| {
                (
                    path.file_name().unwrap().to_string_lossy().into_owned(),
                    std::fs::read_to_string(&path).unwrap(),
                )
            })
            .collect()
    }

    fn asset(route: &str) -> Asset {
        *ASSETS.iter().find(|asset| asset.route == route).unwrap()
    }

    #[test]
    fn every_file_is_served_and_every_reference_leads_to_a_file() {
        let routes: BTreeSet<&str> = ASSETS.iter().map(|asset| asset.route).collect();
        for (name, text) in folder() {
            if name.ends_with(".js") || name.ends_with(".css") || name.ends_with(".svg") {
                assert!(routes.contains(format!("/assets/{name}").as_str()), "{name} is not served");
            }
            for (marker, prefix) in [("\"assets/", "/assets/"), ("from \"./", "/assets/")] {
                for rest in text.split(marker).skip(1) {
                    let target = rest.split('"').next().unwrap();
                    assert!(
                        routes.contains(format!("{prefix}{target}").as_str()),
                        "{name} refers to {target}"
                    );
                }
            }
        }
    }

    #[test]
    fn pages_contain_nothing_that_the_policy_forbids() {
        for (name, text) in folder() {
            let banned: &[&str] = match name.rsplit('.').next().unwrap() {
                "html" => &["style=", " onclick", " onload", "javascript:", "http://", "https://"],
                "js" => &[
                    "innerHTML",
                    "outerHTML",
                    "insertAdjacentHTML",
                    "document.write",
                    "eval(",
                    "new Function",
                ],
                _ => &[],
            };
            for word in banned {
                assert!(!text.contains(word), "{name} has {word}");
            }
            for script in text.split("<script").skip(1) {
                assert!(script.starts_with(" src=") || script.starts_with(" type=\"module\" src="), "{name}");
            }
        }
        assert!(!CONTENT_SECURITY_POLICY.contains("unsafe"), "{CONTENT_SECURITY_POLICY}");
    }

    #[test]
    fn the_inspect_page_reads_only_fields_that_a_snapshot_has() {
        let mut snapshot = crate::protocol::Snapshot::default();
        snapshot.requests.push(crate::protocol::RequestState {
            id: "1".into(),
            phase: crate::protocol::Phase::Decode,
            prompt_tokens: 1,
            computed_tokens: 1,
            generated_tokens: 1,
            pages: vec![1],
            seconds: 1.0,
        });
        let snapshot = serde_json::to_value(snapshot).unwrap();
        let mut names = BTreeSet::new();
        for (_, text) in folder().into_iter().filter(|(name, _)| name == "inspect.js" || name == "pages.js") {
            for (object, value) in [("state.", &snapshot), (" request.", &snapshot["requests"][0])] {
                for rest in text.split(object).skip(1) {
                    let name: String =
                        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    assert!(value.get(&name).is_some(), "{object}{name}");
                    names.insert(name);
                }
            }
        }
        assert!(names.len() > 15, "{names:?}");
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let asset = asset("/");
        let tag = entity_tag(asset.bytes);
        let mut request = HeaderMap::new();
        assert_eq!(asset.response(&request, &tag).status(), StatusCode::OK);
        for given in [tag.to_str().unwrap(), "\"other\", *", &format!("W/{}", tag.to_str().unwrap())] {
            request.insert(header::IF_NONE_MATCH, given.parse().unwrap());
            let response = asset.response(&request, &tag);
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{given}");
            assert_eq!(response.headers()[header::ETAG], tag);
        }
        request.insert(header::IF_NONE_MATCH, "\"other\"".parse().unwrap());
        assert_eq!(asset.response(&request, &tag).status(), StatusCode::OK);
    }

    #[test]
    fn every_file_has_the_security_headers() {
        for asset in ASSETS {
            let response = asset.response(&HeaderMap::new(), &entity_tag(asset.bytes));
            let headers = response.headers();
            assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert!(
                headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none'")
            );
            assert_eq!(headers[header::CONTENT_TYPE], asset.content_type);
        }
    }
}
