//! The client: URL, connection pool, timeouts, requests and responses.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use longshore_api::{ErrorCode, Problem};
use longshore_tls::{CertificateFiles, ClientTls};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::DuplexStream;

use crate::connect::Transport;
use crate::error::{BadUrl, Error, ServerRefusal, TimeoutError};
use crate::hangup::{Hangup, HangupConnector};
use crate::submit::JobRequest;

/// Limit of a response, above a page of 1,000 jobs or one payload.
const RESPONSE_MAX: usize = 256 << 20;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A client of one server. Clones share the connection pool.
///
/// ```
/// use std::time::Duration;
/// use longshore_api::RetryAdvice;
/// use longshore_api::job::NewJob;
/// use longshore::Client;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = Client::builder().timeout(Duration::from_secs(5)).build("http://127.0.0.1:1")?;
/// let job = NewJob { job_type: "email.send".to_owned(), ..NewJob::default() };
/// match client.submit_job("emails", &job).await {
///     Ok(submitted) => println!("stored: {}", submitted.id),
///     // The job was not stored: the request can be repeated.
///     Err(error) if error.retry() == RetryAdvice::Safe => println!("retry later: {error}"),
///     Err(error) => println!("failed: {error}"),
/// }
/// # Ok::<(), longshore::BadUrl>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Client {
    http: legacy::Client<HangupConnector, Full<Bytes>>,
    /// URL without a slash at its end.
    base: String,
    options: Builder,
    transport: Transport,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.base).finish_non_exhaustive()
    }
}

/// Timeouts, token and certificates of a [`Client`].
#[derive(Clone, Debug)]
pub struct Builder {
    connect: Duration,
    timeout: Duration,
    retry_time: Duration,
    token: Option<AccessToken>,
    tls: ClientTls,
    before_submit: Option<BeforeSubmit>,
}

/// Changes each new job before it is sent.
#[derive(Clone)]
struct BeforeSubmit(Arc<dyn Fn(JobRequest) -> JobRequest + Send + Sync>);

impl std::fmt::Debug for BeforeSubmit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeSubmit")
    }
}

/// The header with the token of a client. It stays out of debug output.
#[derive(Clone)]
struct AccessToken(HeaderValue);

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessToken")
    }
}

impl AccessToken {
    /// Returns `None` for characters that a header cannot have.
    fn new(token: &str) -> Option<Self> {
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.trim())).ok()?;
        header.set_sensitive(true);
        Some(Self(header))
    }

    fn of_environment() -> Option<String> {
        std::env::var("LONGSHORE_TOKEN").ok().filter(|token| !token.is_empty())
    }
}

impl Default for Builder {
    /// 5 s to connect, and 40 s for a response: longer than the server's own timeout of a
    /// submission, so that the client gets the server's error. Typed submissions are retried for
    /// 30 s.
    fn default() -> Self {
        let [connect, timeout, retry_time] = [5, 40, 30].map(Duration::from_secs);
        Self { connect, timeout, retry_time, token: None, tls: ClientTls::default(), before_submit: None }
    }
}

impl Builder {
    /// Timeout of a connection attempt.
    #[must_use]
    pub fn connect_timeout(self, connect: Duration) -> Self {
        Self { connect, ..self }
    }

    /// Timeout of a response, in addition to the time that a request asks the server to wait.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How long typed submissions are retried, as far as their errors allow it. Zero: not at all.
    #[must_use]
    pub fn retry_time(self, retry_time: Duration) -> Self {
        Self { retry_time, ..self }
    }

    /// Changes each new job before it is sent, also of workflows, children and schedules: for tags
    /// or a trace context that all jobs of a program have. Jobs that are submitted inside of a
    /// transaction do not pass it.
    #[must_use]
    pub fn before_submit(self, change: impl Fn(JobRequest) -> JobRequest + Send + Sync + 'static) -> Self {
        Self { before_submit: Some(BeforeSubmit(Arc::new(change))), ..self }
    }

    /// The token to send. The default is the variable `LONGSHORE_TOKEN`.
    ///
    /// Fails if the token has characters that a header cannot have.
    pub fn token(self, token: &str) -> Result<Self, Error> {
        let invalid = || Error::InvalidRequest("the token has characters that a header cannot have".to_owned());
        Ok(Self { token: Some(AccessToken::new(token).ok_or_else(invalid)?), ..self })
    }

    /// File with the authorities, in PEM form, that may sign the certificate of the server. The
    /// default is the variable `LONGSHORE_CA_FILE`, else the authorities of the system.
    #[must_use]
    pub fn ca_file(self, file: impl Into<PathBuf>) -> Self {
        Self { tls: ClientTls { ca_file: Some(file.into()), ..self.tls }, ..self }
    }

    /// The certificate of this client, in PEM form, for servers that ask for one. The defaults are
    /// the variables `LONGSHORE_CLIENT_CERT` and `LONGSHORE_CLIENT_KEY`.
    #[must_use]
    pub fn client_certificate(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let files = CertificateFiles { certificate: certificate.into(), key: key.into() };
        Self { tls: ClientTls { certificate: Some(files), ..self.tls }, ..self }
    }

    /// Returns a client of a server in this process. `dial` opens a connection to it.
    pub fn build_in_process(self, dial: impl Fn() -> io::Result<DuplexStream> + Send + Sync + 'static) -> Client {
        // The name appears in no request line: there is one server.
        self.connect_to("http://in-process".to_owned(), Transport::InProcess(Arc::new(dial)), None)
    }

    /// Returns a client for the server at `url`. Connects with the first request.
    pub fn build(self, url: &str) -> Result<Client, BadUrl> {
        let base = check(url)?;
        let token = match self.token {
            Some(token) => Some(token),
            None => match AccessToken::of_environment() {
                Some(token) => {
                    let reason = "LONGSHORE_TOKEN has characters that a header cannot have";
                    Some(AccessToken::new(&token).ok_or_else(|| BadUrl::new(url, reason))?)
                }
                None => None,
            },
        };
        let transport = if base.starts_with("https") {
            let config =
                with_environment(self.tls.clone()).and_then(|tls| tls.config().map_err(|error| error.to_string()));
            Transport::Tls(Arc::new(config.map_err(|reason| BadUrl::new(url, reason))?))
        } else {
            Transport::Plain
        };
        Ok(Self { token, ..self }.connect_to(base, transport, None))
    }

    fn connect_to(self, base: String, transport: Transport, hangup: Option<Arc<Hangup>>) -> Client {
        let connector = transport.connector(self.connect);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        // The server closes idle connections after 75 s. The client closes them first, so that no
        // request is sent on a closed connection.
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(60));
        let connector = HangupConnector { inner: connector, hangup };
        Client { http: builder.build(connector), base, options: self, transport }
    }
}

/// Adds the files that the environment names.
fn with_environment(tls: ClientTls) -> Result<ClientTls, String> {
    let file = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let certificate = match (tls.certificate, file("LONGSHORE_CLIENT_CERT"), file("LONGSHORE_CLIENT_KEY")) {
        (Some(files), _, _) => Some(files),
        (None, Some(certificate), Some(key)) => Some(CertificateFiles { certificate, key }),
        (None, None, None) => None,
        (None, Some(_), None) => return Err("LONGSHORE_CLIENT_CERT needs LONGSHORE_CLIENT_KEY".to_owned()),
        (None, None, Some(_)) => return Err("LONGSHORE_CLIENT_KEY needs LONGSHORE_CLIENT_CERT".to_owned()),
    };
    Ok(ClientTls { ca_file: tls.ca_file.or_else(|| file("LONGSHORE_CA_FILE")), certificate })
}

fn check(url: &str) -> Result<String, BadUrl> {
    let bad = |reason| BadUrl::new(url, reason);
    let trimmed = url.trim().trim_end_matches('/');
    let uri: Uri = trimmed.parse().map_err(|_| bad("expected a URL such as http://127.0.0.1:7070"))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(_) | None => return Err(bad("it must start with http:// or https://")),
    }
    if uri.query().is_some() {
        return Err(bad("it must not have a query"));
    }
    Ok(trimmed.to_owned())
}

/// A complete response.
struct RawResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Client {
    /// Returns a client with the default timeouts.
    pub fn new(url: &str) -> Result<Self, BadUrl> {
        Builder::default().build(url)
    }

    /// Returns a client of the server in the variable `LONGSHORE_SERVER`, or of
    /// `http://127.0.0.1:7070` without it.
    pub fn from_env() -> Result<Self, BadUrl> {
        let url = std::env::var("LONGSHORE_SERVER").ok().filter(|url| !url.is_empty());
        Self::new(url.as_deref().unwrap_or("http://127.0.0.1:7070"))
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    /// URL of the server.
    pub fn url(&self) -> &str {
        &self.base
    }

    pub(crate) fn retry_time(&self) -> Duration {
        self.options.retry_time
    }

    pub(crate) fn before_submit(&self) -> Option<&(dyn Fn(JobRequest) -> JobRequest + Send + Sync)> {
        self.options.before_submit.as_ref().map(|before_submit| before_submit.0.as_ref())
    }

    /// Returns a client of the same server that shares no connection with this one.
    pub(crate) fn with_own_connections(&self) -> Self {
        self.options.clone().connect_to(self.base.clone(), self.transport.clone(), None)
    }

    /// Returns such a client whose waiting requests can be ended.
    pub(crate) fn with_hangup(&self, hangup: &Arc<Hangup>) -> Self {
        self.options.clone().connect_to(self.base.clone(), self.transport.clone(), Some(Arc::clone(hangup)))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.get_within(path, Duration::ZERO).await
    }

    /// `wait` is how long the request asks the server to wait.
    pub(crate) async fn get_within<T: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<T, Error> {
        read(&self.send(Method::GET, path, None, wait).await?)
    }

    pub(crate) async fn get_bytes(&self, path: &str) -> Result<(Bytes, bool), Error> {
        let response = self.send(Method::GET, path, None, Duration::ZERO).await?;
        let json =
            response.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        Ok((response.body, json))
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

    /// Sends one request. A status other than 2xx is an error.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        wait: Duration,
    ) -> Result<RawResponse, Error> {
        let uri: Uri =
            format!("{}{path}", self.base).parse().map_err(|_| Error::InvalidRequest(format!("path {path:?}")))?;
        let mut request = Request::new(Full::new(body.clone().unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        let agent = concat!("longshore-rust/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(ACCEPT, JSON);
        if let Some(AccessToken(token)) = &self.options.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        let timeout = self.options.timeout.saturating_add(wait);
        let response = tokio::time::timeout(timeout, self.exchange(request)).await;
        let response = response.map_err(|_| Error::ResponseLost { cause: Box::new(TimeoutError(timeout)) })??;
        if response.status.is_success() { Ok(response) } else { Err(refusal(&response)) }
    }

    /// Opens a stream of events. The response has no timeout of its own.
    pub(crate) async fn open_stream(&self, path: &str, last_event_id: Option<&str>) -> Result<Incoming, Error> {
        let uri: Uri =
            format!("{}{path}", self.base).parse().map_err(|_| Error::InvalidRequest(format!("path {path:?}")))?;
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(AccessToken(token)) = &self.options.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        if let Some(id) = last_event_id {
            let id = HeaderValue::from_str(id).map_err(|_| Error::InvalidRequest(format!("cursor {id:?}")))?;
            headers.insert("last-event-id", id);
        }
        let timeout = self.options.timeout;
        let opened = tokio::time::timeout(timeout, self.http.request(request)).await;
        let response = opened.map_err(|_| Error::ResponseLost { cause: Box::new(TimeoutError(timeout)) })?;
        let (head, body) = response.map_err(|error| self.not_sent(error))?.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let body = Limited::new(body, RESPONSE_MAX).collect().await.map_err(|cause| Error::ResponseLost { cause })?;
        Err(refusal(&RawResponse { status: head.status, headers: head.headers, body: body.to_bytes() }))
    }

    fn not_sent(&self, error: legacy::Error) -> Error {
        if error.is_connect() {
            Error::Connect { url: self.base.clone(), cause: Box::new(error) }
        } else {
            Error::ResponseLost { cause: Box::new(error) }
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<RawResponse, Error> {
        let response = self.http.request(request).await.map_err(|error| self.not_sent(error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_MAX).collect().await.map_err(|cause| Error::ResponseLost { cause })?;
        Ok(RawResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

fn write<B: Serialize + ?Sized>(body: &B) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| Error::InvalidRequest(error.to_string()))
}

fn read<T: DeserializeOwned>(response: &RawResponse) -> Result<T, Error> {
    serde_json::from_slice(&response.body).map_err(|error| Error::UnexpectedResponse {
        status: response.status.as_u16(),
        // Only the position: the body may be confidential, and errors are logged.
        detail: format!("the body has another form (line {}, column {})", error.line(), error.column()),
    })
}

fn refusal(response: &RawResponse) -> Error {
    let retry_after = retry_after(&response.headers);
    if let Ok(problem) = serde_json::from_slice::<Problem>(&response.body) {
        return Error::Refused(Box::new(ServerRefusal { problem, retry_after }));
    }
    // An overloaded server, or a proxy, may respond without a body.
    let code = match response.status {
        StatusCode::TOO_MANY_REQUESTS => Some(ErrorCode::RateLimited),
        StatusCode::SERVICE_UNAVAILABLE => Some(ErrorCode::StoreUnavailable),
        _ => None,
    };
    let status = response.status.as_u16();
    match code {
        Some(code) => {
            let problem = Problem::new(code, format!("HTTP {status} without details"));
            Error::Refused(Box::new(ServerRefusal { problem, retry_after }))
        }
        None => Error::UnexpectedResponse { status, detail: "not a response of a Longshore server".to_owned() },
    }
}

/// Returns the wait that a response asks for. The form with a date is not read: its clock may
/// differ from ours.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A client of a server that responds to every connection with these bytes and closes it.
    async fn canned(response: &'static str) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0_u8; 4096];
                let _ = stream.read(&mut request).await.unwrap();
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        Client::new(&format!("http://{address}/")).unwrap()
    }

    #[test]
    fn urls_are_checked() {
        assert_eq!(check("http://127.0.0.1:7070/").unwrap(), "http://127.0.0.1:7070");
        assert_eq!(check("http://host/under/").unwrap(), "http://host/under");
        assert_eq!(check("https://host").unwrap(), "https://host");
        for bad in ["", "127.0.0.1:7070", "ftp://host", "http://", "http://host/?a=b", "http://a b"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_problem_becomes_a_refusal_with_its_code() {
        let client = canned(concat!(
            "HTTP/1.1 409 Conflict\r\nContent-Length: 131\r\n\r\n",
            r#"{"type":"about:blank","status":409,"code":"stale_lease","title":"t","detail":"the lease is not held any more now","retry":"never"} "#,
        ));
        let error = client.await.job("x").await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::StaleLease), "{error}");
    }

    #[tokio::test]
    async fn a_response_of_another_server_is_unexpected() {
        let client = canned("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n<html").await;
        let error = client.job("x").await.unwrap_err();
        assert!(matches!(error, Error::UnexpectedResponse { status: 404, .. }), "{error}");
        let client = canned("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await;
        let error = client.job("x").await.unwrap_err();
        assert!(matches!(error, Error::UnexpectedResponse { status: 200, .. }), "{error}");
    }

    #[tokio::test]
    async fn a_proxy_without_its_server_has_unknown_retry_advice() {
        let client = canned("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<html").await;
        let error = client.job("x").await.unwrap_err();
        assert_eq!(error.retry(), longshore_api::RetryAdvice::Unknown, "{error}");
        let client = canned("HTTP/1.1 503 Unavailable\r\nContent-Length: 5\r\n\r\n<html").await;
        assert_eq!(client.job("x").await.unwrap_err().retry(), longshore_api::RetryAdvice::Safe);
    }

    #[tokio::test]
    async fn a_refusal_has_the_wait_that_the_server_asks_for() {
        let client = canned("HTTP/1.1 429 Slow down\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(client.job("x").await.unwrap_err().retry_after(), Some(Duration::from_secs(7)));
        let date = "HTTP/1.1 503 Down\r\nRetry-After: Thu, 19 Nov 2026 04:00:00 GMT\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(canned(date).await.job("x").await.unwrap_err().retry_after(), None);
    }

    #[tokio::test]
    async fn a_truncated_response_has_unknown_retry_advice() {
        let client = canned("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{").await;
        let error = client.job("x").await.unwrap_err();
        assert_eq!(error.retry(), longshore_api::RetryAdvice::Unknown, "{error}");
    }

    #[tokio::test]
    async fn a_refused_connection_is_a_connect_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = Client::new(&url).unwrap().info().await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }

    #[tokio::test]
    async fn a_request_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::builder().timeout(Duration::from_millis(50)).build(&url).unwrap();
        let error = client.info().await.unwrap_err();
        assert!(matches!(error, Error::ResponseLost { .. }), "{error}");
        assert!(error.to_string().contains("0.05 s"), "{error}");
    }
}
