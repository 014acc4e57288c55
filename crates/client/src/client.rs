//! The client itself: an address, connections that are kept, patience, one request and its answer.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use longshore_api::{ErrorCode, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{BadUrl, Error, TimeoutError};

/// More than any answer of the server: a page of 1,000 jobs, or one payload.
const ANSWER_MAX: usize = 256 << 20;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Talks to one server. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    /// Without a slash at its end.
    base: String,
    timeout: Duration,
}

/// Patience and name of a [`Client`].
#[derive(Clone, Debug)]
pub struct Builder {
    connect: Duration,
    timeout: Duration,
}

impl Default for Builder {
    /// Longer than the server gives a submission: its own word on that is worth hearing.
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), timeout: Duration::from_secs(40) }
    }
}

impl Builder {
    /// For a connection to come about.
    #[must_use]
    pub fn connect_timeout(self, connect: Duration) -> Self {
        Self { connect, ..self }
    }

    /// For an answer, on top of what a call asks the server to wait.
    #[must_use]
    pub fn timeout(self, patience: Duration) -> Self {
        Self { timeout: patience, ..self }
    }

    /// Nothing is sent yet.
    pub fn build(self, url: &str) -> Result<Client, BadUrl> {
        let base = check(url)?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(self.connect));
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        // The server closes idle connections after 75 s: ours should not be the one that finds out.
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(60));
        Ok(Client { http: builder.build(connector), base, timeout: self.timeout })
    }
}

fn check(url: &str) -> Result<String, BadUrl> {
    let bad = |why| BadUrl { url: url.to_owned(), why };
    let trimmed = url.trim().trim_end_matches('/');
    let uri: Uri = trimmed.parse().map_err(|_| bad("write it like http://127.0.0.1:7070"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(bad("this build speaks plain http only; put a proxy in between")),
        Some(_) | None => return Err(bad("it must start with http://")),
    }
    if uri.query().is_some() {
        return Err(bad("it may not have a query"));
    }
    Ok(trimmed.to_owned())
}

/// A whole answer.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Client {
    pub fn new(url: &str) -> Result<Self, BadUrl> {
        Builder::default().build(url)
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The server's address.
    pub fn url(&self) -> &str {
        &self.base
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.get_within(path, Duration::ZERO).await
    }

    /// `wait`: what the server was asked to wait at most.
    pub(crate) async fn get_within<T: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<T, Error> {
        read(&self.send(Method::GET, path, None, wait).await?)
    }

    pub(crate) async fn get_bytes(&self, path: &str) -> Result<(Bytes, bool), Error> {
        let answer = self.send(Method::GET, path, None, Duration::ZERO).await?;
        let json =
            answer.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        Ok((answer.body, json))
    }

    pub(crate) async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, Error> {
        self.post_within(path, body, Duration::ZERO).await
    }

    pub(crate) async fn post_within<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        wait: Duration,
    ) -> Result<T, Error> {
        read(&self.send(Method::POST, path, Some(write(body)?), wait).await?)
    }

    pub(crate) async fn post_empty<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        read(&self.send(Method::POST, path, None, Duration::ZERO).await?)
    }

    pub(crate) async fn put<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, Error> {
        read(&self.send(Method::PUT, path, Some(write(body)?), Duration::ZERO).await?)
    }

    pub(crate) async fn send_patch<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, Error> {
        read(&self.send(Method::PATCH, path, Some(write(body)?), Duration::ZERO).await?)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), Error> {
        self.send(Method::DELETE, path, None, Duration::ZERO).await.map(|_| ())
    }

    /// One request; any answer but 2xx is an error.
    async fn send(&self, method: Method, path: &str, body: Option<Bytes>, wait: Duration) -> Result<Answer, Error> {
        let uri: Uri =
            format!("{}{path}", self.base).parse().map_err(|_| Error::InvalidRequest(format!("path {path:?}")))?;
        let mut request = Request::new(Full::new(body.clone().unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        let agent = concat!("longshore-client/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(ACCEPT, JSON);
        if body.is_some() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        let patience = self.timeout.saturating_add(wait);
        let answer = tokio::time::timeout(patience, self.exchange(request)).await;
        let answer = answer.map_err(|_| Error::ResponseLost { cause: Box::new(TimeoutError(patience)) })??;
        if answer.status.is_success() { Ok(answer) } else { Err(refusal(&answer)) }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        let response = self.http.request(request).await.map_err(|error| {
            if error.is_connect() {
                Error::Connect { url: self.base.clone(), cause: Box::new(error) }
            } else {
                Error::ResponseLost { cause: Box::new(error) }
            }
        })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|cause| Error::ResponseLost { cause })?;
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

fn write<B: Serialize + ?Sized>(body: &B) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| Error::InvalidRequest(error.to_string()))
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    serde_json::from_slice(&answer.body).map_err(|error| Error::UnexpectedResponse {
        status: answer.status.as_u16(),
        // Only the place: the answer itself may hold what nobody should see in a log.
        detail: format!("not what this call answers (line {}, column {})", error.line(), error.column()),
    })
}

fn refusal(answer: &Answer) -> Error {
    if let Ok(problem) = serde_json::from_slice::<Problem>(&answer.body) {
        return Error::Refused(Box::new(problem));
    }
    // A server that is overrun, or a proxy before it, may have no time for words.
    let code = match answer.status {
        StatusCode::TOO_MANY_REQUESTS => Some(ErrorCode::RateLimited),
        StatusCode::SERVICE_UNAVAILABLE => Some(ErrorCode::StoreUnavailable),
        _ => None,
    };
    let status = answer.status.as_u16();
    match code {
        Some(code) => Error::Refused(Box::new(Problem::new(code, format!("answer {status} without a word")))),
        None => Error::UnexpectedResponse { status, detail: "this is not an answer of a Longshore server".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers every connection with these bytes and closes it.
    async fn canned(answer: &'static str) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut seen = [0_u8; 4096];
                let _ = stream.read(&mut seen).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Client::new(&format!("http://{address}/")).unwrap()
    }

    #[test]
    fn addresses_are_checked() {
        assert_eq!(check("http://127.0.0.1:7070/").unwrap(), "http://127.0.0.1:7070");
        assert_eq!(check("http://host/under/").unwrap(), "http://host/under");
        for bad in ["", "127.0.0.1:7070", "https://host", "ftp://host", "http://", "http://host/?a=b", "http://a b"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_problem_is_a_value() {
        let client = canned(concat!(
            "HTTP/1.1 409 Conflict\r\nContent-Length: 131\r\n\r\n",
            r#"{"type":"about:blank","status":409,"code":"stale_lease","title":"t","detail":"the lease is not held any more now","retry":"never"} "#,
        ));
        let error = client.await.job("x").await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::StaleLease), "{error}");
    }

    #[tokio::test]
    async fn another_kind_of_server_is_recognised() {
        let client = canned("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n<html").await;
        let told = client.job("x").await.unwrap_err();
        assert!(matches!(told, Error::UnexpectedResponse { status: 404, .. }), "{told}");
        let client = canned("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await;
        let told = client.job("x").await.unwrap_err();
        assert!(matches!(told, Error::UnexpectedResponse { status: 200, .. }), "{told}");
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_may_have_been_applied() {
        let client = canned("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{").await;
        let told = client.job("x").await.unwrap_err();
        assert_eq!(told.retry(), longshore_api::RetryAdvice::Unknown, "{told}");
    }

    #[tokio::test]
    async fn nobody_there_means_that_nothing_was_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let told = Client::new(&url).unwrap().info().await.unwrap_err();
        assert!(matches!(told, Error::Connect { .. }), "{told}");
        assert!(told.to_string().contains("refused"), "{told}");
    }

    #[tokio::test]
    async fn patience_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::builder().timeout(Duration::from_millis(50)).build(&url).unwrap();
        let told = client.info().await.unwrap_err();
        assert!(matches!(told, Error::ResponseLost { .. }), "{told}");
        assert!(told.to_string().contains("0.05 s"), "{told}");
    }
}
