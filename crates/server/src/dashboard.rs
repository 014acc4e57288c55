//! The dashboard: files of `ui/dist`, embedded by `build.rs` with their compressed forms.
//!
//! They need no token and have no secrets. Scripts, styles and calls of the page come from this
//! server only.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use longshore_api::ErrorCode;

use crate::state::AppState;
use crate::wire::problem::ApiError;
use crate::wire::response::ApiResult;

/// A file of the dashboard.
#[derive(Debug)]
struct Asset {
    /// Path below the root of the server.
    path: &'static str,
    etag: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

/// All files, by path; empty if the dashboard was not built.
static ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/dashboard_assets.rs"));

/// No inline script or style, no other origin, no frame around the page.
const CSP: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Content of the start page of a server that was built without the dashboard.
const NOT_BUILT: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>Longshore</title>
<h1>Longshore</h1>
<p>This server runs, and was built without its dashboard. With Node.js 20.19 or later, <code>make ui</code> builds it;
then build the server again. <code>make run</code> does both.</p>
<p>The API is at <a href=\"openapi.json\">openapi.json</a>, <a href=\"v1/info\">v1/info</a>, <a href=\"v1/queues\">v1/queues</a>,
<a href=\"v1/stats\">v1/stats</a>, <a href=\"metrics\">metrics</a>.</p>
</html>
";

/// Routes of the files beside the start page.
pub(crate) fn routes() -> Router<AppState> {
    Router::new().route("/ui/{*path}", get(file))
}

/// `GET /`: the page, or a note how to build it.
pub(crate) async fn start_page(headers: HeaderMap) -> ApiResult {
    Ok(match find("index.html") {
        Some(page) => respond(page, &headers),
        None => {
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            ([(header::CONTENT_TYPE, kind)], fixed_headers(), NOT_BUILT).into_response()
        }
    })
}

/// `GET /ui/{path}`: a script, style or image of the page.
async fn file(Path(path): Path<String>, headers: HeaderMap) -> ApiResult {
    let asset = find(&format!("ui/{path}"));
    let asset = asset.ok_or_else(|| ApiError::new(ErrorCode::NotFound, "the dashboard has no such file"))?;
    Ok(respond(asset, &headers))
}

fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// Headers of every response of the dashboard.
fn fixed_headers() -> [(HeaderName, HeaderValue); 5] {
    [
        (header::CONTENT_SECURITY_POLICY, CSP),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ]
}

/// Returns the file in the best form that the client accepts, or 304 if it has it.
fn respond(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let caching = [
        (header::ETAG, HeaderValue::from_static(asset.etag)),
        (header::CACHE_CONTROL, HeaderValue::from_static(cache_control(asset.path))),
    ];
    if headers.get_all(header::IF_NONE_MATCH).iter().any(|tags| has_tag(tags, asset.etag)) {
        return (StatusCode::NOT_MODIFIED, caching, fixed_headers()).into_response();
    }
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(content_type(asset.path)))];
    let (encoding, body) = match accepted_encoding(headers) {
        Some("br") => (Some("br"), asset.brotli),
        Some("gzip") => (Some("gzip"), asset.gzip),
        _ => (None, asset.plain),
    };
    let mut response = (kind, caching, fixed_headers(), body).into_response();
    if let Some(encoding) = encoding {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    response
}

/// Names of scripts and styles contain a hash of their content: they never change.
fn cache_control(path: &str) -> &'static str {
    if has_extension(path, "js") || has_extension(path, "css") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    }
}

fn content_type(path: &str) -> &'static str {
    let kinds = [
        ("html", "text/html; charset=utf-8"),
        ("js", "text/javascript; charset=utf-8"),
        ("css", "text/css; charset=utf-8"),
        ("svg", "image/svg+xml"),
    ];
    let known = kinds.into_iter().find(|(extension, _)| has_extension(path, extension));
    known.map_or("application/octet-stream", |(_, kind)| kind)
}

fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, last)| last == extension)
}

/// Returns whether `If-None-Match` has the tag, also in its weak form.
fn has_tag(tags: &HeaderValue, etag: &str) -> bool {
    let Ok(tags) = tags.to_str() else { return false };
    tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*")
}

/// Returns the best of the encodings that the client accepts, or `None` for none.
fn accepted_encoding(headers: &HeaderMap) -> Option<&'static str> {
    let accepts = |name: &str| {
        let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|part| {
            let (coding, weight) = part.split_once(';').unwrap_or((part, ""));
            let weight = weight.trim().trim_start_matches("q=");
            coding.trim().eq_ignore_ascii_case(name) && weight.parse() != Ok(0.0_f32)
        })
    };
    ["br", "gzip"].into_iter().find(|name| accepts(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))])
    }

    #[test]
    fn the_best_accepted_encoding_is_chosen() {
        assert_eq!(accepted_encoding(&accept("gzip, deflate, br, zstd")), Some("br"));
        assert_eq!(accepted_encoding(&accept("gzip;q=0.5, br;q=0")), Some("gzip"));
        assert_eq!(accepted_encoding(&accept("identity")), None);
        assert_eq!(accepted_encoding(&HeaderMap::new()), None);
    }

    static EXAMPLE: Asset =
        Asset { path: "ui/a-12345678.js", etag: "\"1f\"", plain: b"plain", gzip: b"gzip", brotli: b"brotli" };

    #[test]
    fn hashed_files_are_immutable_and_the_page_is_not() {
        let response = respond(&EXAMPLE, &accept("br"));
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "br");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert!(response.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
        assert_eq!(cache_control("index.html"), "no-cache");
    }

    #[test]
    fn a_known_tag_answers_not_modified() {
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static("W/\"1f\", \"2\""))]);
        assert_eq!(respond(&EXAMPLE, &known).status(), StatusCode::NOT_MODIFIED);
    }
}
