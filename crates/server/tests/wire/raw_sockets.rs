//! Raw bytes from hostile clients: smuggling, broken heads and bodies, limits, hostile JSON,
//! methods (S10, S11, S13, S15, S16).
//!
//! Each case has a connection of its own. Its answer is a refusal or a closed connection, and the
//! server goes on. Queues with the name `smuggled` in the requests must never exist.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::common::{Client, Setup, TestServer};

const SMUGGLED: &str = "POST /v1/queues/smuggled/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\
    Content-Length: 12\r\n\r\n{\"type\":\"t\"}";

/// A server on which nothing takes long.
async fn start() -> TestServer {
    let mut setup = Setup::memory();
    setup.limits.head_timeout = Duration::from_millis(300);
    setup.limits.body_timeout = Duration::from_millis(300);
    setup.limits.idle_timeout = Duration::from_millis(500);
    setup.start().await
}

/// Sends bytes and half-closes nothing: returns every status of the answers until the connection is
/// closed.
async fn statuses(server: &TestServer, bytes: &[u8]) -> Vec<u16> {
    let mut c = server.client().await;
    c.raw(bytes).await;
    let mut all = Vec::new();
    let read = c.stream.read_to_end(&mut all);
    drop(timeout(Duration::from_secs(30), read).await.expect("the server left the connection open"));
    let text = String::from_utf8_lossy(&all);
    text.match_indices("HTTP/1.1 ").filter_map(|(at, _)| text.get(at + 9..at + 12)?.parse().ok()).collect()
}

/// Sends many requests, some at a time, and checks that each is refused.
async fn assert_all_refused(server: &TestServer, requests: Vec<String>) {
    let sent = requests.iter().map(|request| async move { (request, statuses(server, request.as_bytes()).await) });
    let mut answered = futures_util::stream::iter(sent).buffer_unordered(32);
    while let Some((request, answers)) = answered.next().await {
        let shown: String = request.chars().take(300).collect();
        assert!(is_refusal(&answers), "{shown:?}: {answers:?}");
    }
}

fn is_refusal(statuses: &[u16]) -> bool {
    statuses.len() <= 1 && statuses.iter().all(|status| (400..500).contains(status))
}

async fn assert_nothing_smuggled(server: &TestServer) {
    let mut c = server.client().await;
    let queues = c.get("/v1/queues").await.ok(200);
    let names: Vec<&str> =
        queues["queues"].as_array().unwrap().iter().map(|queue| queue["name"].as_str().unwrap()).collect();
    assert!(!names.contains(&"smuggled"), "{names:?}");
}

/// A POST with these headers and body.
fn post(headers: &str, body: &str) -> String {
    format!("POST /v1/claims HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n{headers}\r\n{body}")
}

/// Headers from which two programs read two lengths.
fn ambiguous_lengths() -> Vec<String> {
    let mut cases = Vec::new();
    let lengths = ["0", "2", "4", "5", "100"];
    for first in lengths {
        for second in lengths.iter().filter(|second| **second != first) {
            cases.push(format!("Content-Length: {first}\r\nContent-Length: {second}\r\n"));
        }
        cases.push(format!("Content-Length: {first}, {first}x\r\n"));
    }
    for length in
        ["+5", "-5", "0x5", "5 5", "5,6", "5;", "5.0", "1e1", "\u{0665}", "", " ", "99999999999999999999999", "5\x0b"]
    {
        cases.push(format!("Content-Length: {length}\r\n"));
    }
    for coding in [
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "identity",
        "chunked, chunked",
        "xchunked",
        "chunkedx",
        "\x0bchunked",
        "chunked;q=1",
        "deflate",
        "",
        "chunked,",
        "cow",
        "\"chunked\"",
    ] {
        cases.push(format!("Transfer-Encoding: {coding}\r\n"));
        cases.push(format!("Transfer-Encoding: {coding}\r\nContent-Length: 5\r\n"));
        cases.push(format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: {coding}\r\n"));
    }
    cases
}

#[tokio::test]
async fn ambiguous_lengths_smuggle_nothing() {
    let server = start().await;
    let bodies = ["0\r\n\r\n", "{}", "5\r\n{   }\r\n0\r\n\r\n"];
    let with = |headers: &String| bodies.map(|body| format!("{}{SMUGGLED}", post(headers, body)));
    let requests: Vec<String> = ambiguous_lengths().iter().flat_map(with).collect();
    assert!(requests.len() > 200, "only {}", requests.len());
    assert_all_refused(&server, requests).await;
    // Equal lengths and both headers are legal for some programs. There is one answer, and the
    // connection ends with a request that has both.
    for headers in
        ["Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n"]
    {
        for body in ["0\r\n\r\n", "2\r\n{}\r\n0\r\n\r\n"] {
            let answers = statuses(&server, format!("{}{SMUGGLED}", post(headers, body)).as_bytes()).await;
            assert!(is_refusal(&answers), "{headers:?}: {answers:?}");
        }
    }
    assert_nothing_smuggled(&server).await;
    server.stop().await;
}

/// Heads that break the grammar of HTTP.
fn broken_heads() -> Vec<String> {
    let mut cases = Vec::new();
    let request = |line: &str, headers: &str| format!("{line}\r\n{headers}\r\n");
    for line in [
        "GET  /livez HTTP/1.1",
        "GET /livez  HTTP/1.1",
        " GET /livez HTTP/1.1",
        "GET\t/livez HTTP/1.1",
        "GET /livez",
        "GET /livez HTTP/3.0",
        "GET /livez HTTP/1.1 ",
        "GET /livez http/1.1",
        "GET /livez HTTP/1",
        "GET /livez HTTP/1.11",
        "GET /livez HTTP/0.9",
        "G\u{e9}T /livez HTTP/1.1",
        "GET /li vez HTTP/1.1",
        "GET /livez\x00 HTTP/1.1",
        "/livez HTTP/1.1",
        "GET \\livez HTTP/1.1\x01",
        "GET /livez\x7f HTTP/1.1",
        "{}",
        "\x16\x03\x01\x02\x00\x01",
        "PRI * HTTP/2.0",
        ": x",
    ] {
        cases.push(request(line, "Host: t\r\n"));
    }
    for header in [
        "X: a\r\n b",
        "X: a\r\n\tb",
        " X: a",
        "X : a",
        "X\t: a",
        "X",
        "X a",
        ": a",
        "X\x00: a",
        "X: a\x00b",
        "X: a\rb",
        "X\x7f: a",
        "X: \x01",
        "X\u{e9}: a",
        "X(: a",
        "\"X\": a",
        "X: a\r\r",
        "Host: t\r\nHost: u",
        "Host: t\r\nhost: t",
    ] {
        cases.push(request("GET /livez HTTP/1.1", &format!("{header}\r\nHost: t\r\n")));
        cases.push(request("POST /v1/claims HTTP/1.1", &format!("Host: t\r\n{header}\r\nContent-Length: 0\r\n")));
    }
    cases
}

#[tokio::test]
async fn broken_heads_are_refused() {
    let server = start().await;
    assert_all_refused(&server, broken_heads().iter().map(|head| format!("{head}{SMUGGLED}")).collect()).await;
    // A bare line feed ends a line for hyper too. It cannot hide a request: the answers are as many
    // as the requests that any reader of line feeds sees.
    let answers = statuses(&server, b"GET /livez HTTP/1.1\nHost: t\nConnection: close\n\n").await;
    assert!(answers.len() <= 1, "{answers:?}");
    assert_nothing_smuggled(&server).await;
    server.client().await.get("/livez").await.ok(200);
    server.stop().await;
}

#[tokio::test]
async fn broken_chunks_are_refused() {
    let server = start().await;
    let chunks = [
        "zz\r\n{}\r\n0\r\n\r\n",
        "-1\r\n{}\r\n0\r\n\r\n",
        "0x2\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}0\r\n\r\n",
        "2\r\n{}\n0\r\n\r\n",
        " 2\r\n{}\r\n0\r\n\r\n",
        "2 x\r\n{}\r\n0\r\n\r\n",
        "\r\n2\r\n{}\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n{}",
        "2\r\n{}\r\n",
        "10000000000000000\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}\r\n0\r\n",
        "2\r\n{}\r\n0\r\nX: y",
        "2;\x00\r\n{}\r\n0\r\n\r\n",
        "2\n{}\r\n0\r\n\r\n",
        "3\r\n{}\r\n0\r\n\r\n",
        "1\r\n{}\r\n0\r\n\r\n",
        "+2\r\n{}\r\n0\r\n\r\n",
        "2\r{}\r\n0\r\n\r\n",
        "",
    ];
    let requests = chunks.map(|chunk| format!("{}{SMUGGLED}", post("Transfer-Encoding: chunked\r\n", chunk)));
    assert_all_refused(&server, requests.to_vec()).await;
    // An endless chunk extension and endless trailers end, too.
    for endless in [
        format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(1 << 20)),
        format!("2\r\n{{}}\r\n0\r\n{}\r\n", "X: y\r\n".repeat(100_000)),
    ] {
        let answers =
            statuses(&server, format!("{}{SMUGGLED}", post("Transfer-Encoding: chunked\r\n", &endless)).as_bytes())
                .await;
        assert!(answers.len() <= 1, "{answers:?}");
    }
    assert_nothing_smuggled(&server).await;
    server.stop().await;
}

/// Every prefix of a request, after which the client is silent, or gone.
#[tokio::test]
async fn truncated_requests_change_nothing() {
    let server = start().await;
    for length in (0..SMUGGLED.len()).step_by(3) {
        let mut c = server.client().await;
        c.raw(&SMUGGLED.as_bytes()[..length]).await;
        // Half of the clients reset the connection.
        if length % 2 == 0 {
            c.stream.set_zero_linger().unwrap();
        }
        drop(c);
    }
    let silent = (0..SMUGGLED.len()).step_by(17).map(|length| statuses(&server, &SMUGGLED.as_bytes()[..length]));
    for answers in futures_util::future::join_all(silent).await {
        assert!(is_refusal(&answers), "{answers:?}");
    }
    assert_nothing_smuggled(&server).await;
    server.stop().await;
}

/// S10: n - 1, n and n + 1.
#[tokio::test]
async fn limits_are_exact() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let at = async |bytes: Vec<u8>, accepted: bool, what: &str| {
        let mut c = server.client().await;
        c.raw(&bytes).await;
        let reply = timeout(Duration::from_secs(30), c.reply()).await.expect("left hanging");
        let status = reply.map_or(0, |reply| reply.status);
        assert_eq!((200..300).contains(&status), accepted, "{what}: {status}");
        assert!(status < 500, "{what}: {status}");
    };
    for (extra, accepted) in [(-1_i64, true), (0, true), (1, false)] {
        let sized = |limit: i64, used: usize| "x".repeat(usize::try_from(limit + extra).unwrap() - used);
        let path = format!("/v1/jobs?type={}", sized(8 << 10, 14));
        // A path of the right size names a type that is too long: a refusal with another code.
        let reply = c.get(&path).await;
        assert_eq!(reply.json()["code"], if accepted { "validation" } else { "bad_request" }, "{extra}");
        // 16 KiB of names and values: Host and one more.
        let value = sized(16 << 10, 4 + 1 + 1);
        at(format!("GET /livez HTTP/1.1\r\nHost: t\r\nX: {value}\r\n\r\n").into_bytes(), accepted, "headers").await;
        let count = usize::try_from(64 + extra).unwrap() - 1;
        let headers: String = (0..count).map(|number| format!("X{number}: 1\r\n")).collect();
        at(format!("GET /livez HTTP/1.1\r\nHost: t\r\n{headers}\r\n").into_bytes(), accepted, "number of headers")
            .await;
        let length = usize::try_from((32 << 20) + extra).unwrap();
        let body = format!("{}{}", " ".repeat(length - 16), r#"{"queues":["q"]}"#);
        at(post(&format!("Content-Length: {length}\r\n"), &body).into_bytes(), accepted, "body").await;
        let jobs = vec![r#"{"type":"t"}"#; usize::try_from(1_000 + extra).unwrap()].join(",");
        let reply = c.post("/v1/queues/batch/jobs", &format!("[{jobs}]")).await;
        assert_eq!(reply.status, if accepted { 201 } else { 400 }, "batch {extra}");
        let depth = usize::try_from(64 + extra).unwrap() - 1;
        let payload = format!(r#"{{"type":"t","payload":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        let reply = c.post("/v1/queues/deep/jobs", &payload).await;
        assert_eq!(reply.status, if accepted { 201 } else { 400 }, "depth {extra}: {}", reply.text());
        let name = "q".repeat(usize::try_from(128 + extra).unwrap());
        let reply = c.post(&format!("/v1/queues/{name}/jobs"), r#"{"type":"t"}"#).await;
        assert_eq!(reply.status, if accepted { 201 } else { 400 }, "name {extra}");
        let limit = usize::try_from(1_000 + extra).unwrap();
        assert_eq!(c.get(&format!("/v1/jobs?limit={limit}")).await.status, if accepted { 200 } else { 400 });
    }
    server.stop().await;
}

/// S11 and S13: hostile bodies, each with the code of its refusal.
fn hostile_bodies() -> Vec<(Vec<u8>, &'static str)> {
    let text = |text: String| text.into_bytes();
    let mut cases = vec![
        (text("[".repeat(1_000_000)), "bad_request"),
        (text("{\"a\":".repeat(1_000_000)), "bad_request"),
        (text(format!("{{\"type\":\"t\",\"payload\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000))), "bad_request"),
        (text("{\"type\":\"t\",\"type\":\"t\"}".to_owned()), "bad_request"),
        (text("{\"type\":\"t\",\"ty\\u0070e\":\"t\"}".to_owned()), "bad_request"),
        (b"{\"type\":\"\xff\"}".to_vec(), "bad_request"),
        (b"{\"type\":\"\xc0\xaf\"}".to_vec(), "bad_request"),
        (b"{\"type\":\"\xed\xa0\x80\"}".to_vec(), "bad_request"),
        (b"\xef\xbb\xbf{\"type\":\"t\"}".to_vec(), "bad_request"),
        (b"\xff\xfe{\0}\0".to_vec(), "bad_request"),
        (b"{\"type\":\"t\"}\0".to_vec(), "bad_request"),
        (b"{\"type\":\"a\0b\"}".to_vec(), "bad_request"),
    ];
    for value in [
        "\"\\ud800\"",
        "\"\\udc00x\"",
        "\"\\ud800\\ud800\"",
        "\"\\x41\"",
        "\"\\u00g0\"",
        "\"a\nb\"",
        "'t'",
        "t",
        "NaN",
        "Infinity",
        "-",
        "01",
        "1.",
        ".5",
        "1e",
        "0x1",
        "1_0",
        "+1",
    ] {
        cases.push((text(format!("{{\"type\":{value}}}")), "bad_request"));
    }
    for number in ["1e400", "-1e400", "1e999999999", "99999999999999999999999999999999", "-9223372036854775809"] {
        cases.push((text(format!("{{\"type\":\"t\",\"retry\":{{\"limit\":{number}}}}}")), "validation"));
        cases.push((text(format!("{{\"type\":\"t\",\"delay\":{number}}}")), "validation"));
    }
    let keys: Vec<String> = (0..1_000_000).map(|key| format!("\"k{key}\":1")).collect();
    cases.push((text(format!("{{\"type\":\"t\",{}}}", keys.join(","))), "validation"));
    let tags: Vec<String> = (0..100_000).map(|key| format!("\"t{key}\":\"v\"")).collect();
    cases.push((text(format!("{{\"type\":\"t\",\"tags\":{{{}}}}}", tags.join(","))), "validation"));
    cases
}

#[tokio::test]
async fn hostile_bodies_are_refused() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    for (body, expected) in hostile_bodies() {
        let shown = String::from_utf8_lossy(body.get(..60).unwrap_or(&body)).into_owned();
        c.send_bytes("POST", "/v1/queues/hostile/jobs", "Content-Type: application/json\r\n", &body).await;
        let reply = timeout(Duration::from_secs(30), c.reply()).await.expect("left hanging").expect(&shown);
        assert_eq!(reply.status, 400, "{shown}: {}", reply.text());
        let code = reply.json()["code"].as_str().unwrap().to_owned();
        // A number that no float holds is not JSON for some parsers.
        assert!(code == expected || (expected == "validation" && code == "bad_request"), "{shown}: {code}");
    }
    // Payloads are opaque: what is JSON is accepted, however odd.
    for payload in ["1e400", "\"\\u0000\"", "{\"a\":1,\"a\":2}", "-0", "\"\\ud83d\\ude00\""] {
        let reply = c.post("/v1/queues/odd/jobs", &format!("{{\"type\":\"t\",\"payload\":{payload}}}")).await;
        assert!([201, 400].contains(&reply.status), "{payload}: {}", reply.text());
    }
    for coding in ["gzip", "deflate", "br", "zstd", "gzip, gzip", "compress", "x-gzip", "identity, gzip", "GZIP", "*"] {
        let headers = format!("Content-Type: application/json\r\nContent-Encoding: {coding}\r\n");
        // Its refusal ends the connection.
        let mut c = server.client().await;
        c.send_bytes("POST", "/v1/queues/hostile/jobs", &headers, br#"{"type":"t"}"#).await;
        c.reply().await.unwrap().problem(415, "unsupported_media_type");
    }
    let headers = "Content-Type: application/json\r\nContent-Encoding: identity\r\n";
    c.send_bytes("POST", "/v1/queues/plain/jobs", headers, br#"{"type":"t"}"#).await;
    c.reply().await.unwrap().ok(201);
    let queues = c.get("/v1/queues").await.ok(200);
    assert!(!queues.to_string().contains("hostile"), "nothing was stored");
    server.stop().await;
}

/// S16: names and ids outside of their alphabets reach no store and no file.
#[tokio::test]
async fn hostile_paths_find_nothing() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let names = [
        "..",
        ".",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "%00",
        "a%00b",
        "%c0%ae%c0%ae",
        "%ff",
        "%",
        "%zz",
        "%2",
        "CON",
        "NUL.txt",
        "a%5cb",
        "a%0d%0ab",
        "a%20b",
        "%E2%80%AE",
        "a;b",
        "a*b",
        "'%20OR%201=1",
        "${x}",
        "{{x}}",
        "%25%32%65",
    ];
    let places = [
        "/v1/queues/@",
        "/v1/queues/@/jobs",
        "/v1/jobs/@",
        "/v1/jobs/@/payload",
        "/v1/workflows/@",
        "/v1/schedules/@",
        "/v1/webhooks/@",
        "/v1/tokens/@",
        "/v1/operations/@",
        "/ui/@",
        "/ui/assets/@",
        "/queue/@",
        "/job/@",
        "/tag/@",
        "/@",
    ];
    for place in places {
        for name in names {
            for method in ["GET", "DELETE"] {
                let path = place.replace('@', name);
                c.send_bytes(method, &path, "", b"").await;
                let Some(reply) = c.reply().await else {
                    c = server.client().await;
                    continue;
                };
                let listed = method == "GET" && path.starts_with("/tag/") && reply.status == 200;
                // A plain name may exist for other programs; here it does not.
                assert!(
                    listed || (400..500).contains(&reply.status),
                    "{method} {path}: {} {}",
                    reply.status,
                    reply.text()
                );
                assert!(!reply.text().contains("root:"), "{path}");
            }
        }
    }
    server.stop().await;
}

/// Returns the documented methods of every path, with parameters filled in.
async fn routes(c: &mut Client) -> Vec<(String, Vec<String>)> {
    let document = c.get("/openapi.json").await.ok(200);
    let methods = |operations: &Value| -> Vec<String> { operations.as_object().unwrap().keys().cloned().collect() };
    let fill = |path: &str| {
        path.replace("{queue}", "default")
            .replace("{id}", "0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10")
            .replace("{name}", "n")
            .replace("{worker}", "w")
    };
    document["paths"].as_object().unwrap().iter().map(|(path, operations)| (fill(path), methods(operations))).collect()
}

#[tokio::test]
async fn methods_of_every_route_are_those_of_the_description() {
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    let routes = routes(&mut c).await;
    assert!(routes.len() > 50);
    for (path, methods) in routes {
        let is_stream = path.starts_with("/v1/events") || path.ends_with("/wait");
        for method in ["TRACE", "OPTIONS", "CONNECT", "PROPFIND", "get", "GETT"] {
            c.send_bytes(method, &path, "", b"").await;
            let Some(reply) = c.reply().await else {
                c = server.client().await;
                continue;
            };
            assert!((400..500).contains(&reply.status), "{method} {path}: {}", reply.status);
            assert!(!reply.text().contains("Host: test"), "{method} {path} echoes its request");
            if reply.status == 405 {
                assert!(reply.header("allow").is_some_and(|allow| !allow.is_empty()), "{method} {path}");
            }
        }
        if methods.contains(&"get".to_owned()) && !is_stream {
            let (got, head) = (c.get(&path).await, c.call("HEAD", &path, None).await);
            assert_eq!(got.status, head.status, "HEAD {path}");
            assert_eq!(got.header("content-type"), head.header("content-type"), "HEAD {path}");
        }
    }
    // No body came with an answer to HEAD: the connection is still in step.
    c.get("/livez").await.ok(200);
    server.stop().await;
}
