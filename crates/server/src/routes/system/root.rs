//! `GET /`: a plain page, until the dashboard takes its place.

use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;

use crate::wire::answer::Answer;

const PAGE: &str = "<!doctype html>
<html lang=\"en\">
<title>Longshore</title>
<h1>Longshore</h1>
<p>A durable job queue. This server speaks HTTP and JSON: see <a href=\"/openapi.json\">its description</a>,
<a href=\"/v1/info\">info</a>, <a href=\"/v1/queues\">queues</a>, <a href=\"/v1/stats\">stats</a>, <a href=\"/metrics\">metrics</a>.</p>
</html>
";

pub(crate) async fn root() -> Answer {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((headers, PAGE).into_response())
}
