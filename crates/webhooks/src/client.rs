//! One attempt: a connection of its own, one POST, a bounded response.
//!
//! There are no redirects, no proxies of the environment, and no connections that are reused: each
//! attempt dials an address that it has checked itself.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use longshore_tls::TlsError;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

pub use crate::connect::{Dialer, SystemDialer};
use crate::connect::{connect, server_name, tls_config};
use crate::guard::AddressGuard;
use crate::outcome::{AttemptResult, DeliveryFailure, parse_retry_after};
use crate::target::Target;

/// Time of one attempt, from the lookup of the name to the head of the response.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of a response body that are read; the rest is discarded with the connection.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Time for the body of a response, whose status has decided already.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);
const HEADERS_MAX: usize = 100;
/// Bytes that the head of a response may have.
const BUFFER_BYTES_MAX: usize = 64 << 10;
const AGENT: &str = concat!("Longshore/", env!("CARGO_PKG_VERSION"));

/// Sends messages.
#[derive(Clone, Debug)]
pub struct WebhookClient<D = SystemDialer> {
    dialer: D,
    guard: AddressGuard,
    tls: Arc<ClientConfig>,
    attempt_timeout: Duration,
}

/// A signed message.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: String,
    /// The real time of the attempt, in seconds since 1970.
    pub timestamp: i64,
    /// The value of `webhook-signature`.
    pub signature: String,
    pub body: Bytes,
}

impl<D: Dialer> WebhookClient<D> {
    pub fn new(dialer: D, guard: AddressGuard) -> Result<Self, TlsError> {
        Ok(Self { dialer, guard, tls: tls_config()?, attempt_timeout: ATTEMPT_TIMEOUT })
    }

    /// Sets the time of one attempt.
    #[must_use]
    pub fn with_timeout(self, attempt_timeout: Duration) -> Self {
        Self { attempt_timeout, ..self }
    }

    /// Sends a message to a URL, once.
    pub async fn send(&self, url: &str, message: &Message) -> AttemptResult {
        let Some(target) = Target::parse(url) else { return AttemptResult::Failure(DeliveryFailure::InvalidUrl) };
        self.attempt(&target, message).await.unwrap_or_else(AttemptResult::Failure)
    }

    async fn attempt(&self, target: &Target, message: &Message) -> Result<AttemptResult, DeliveryFailure> {
        let headers = [
            ("webhook-id", message.id.clone()),
            ("webhook-timestamp", message.timestamp.to_string()),
            ("webhook-signature", message.signature.clone()),
        ];
        self.exchange(target, request(target, &headers, message.body.clone())?, message.timestamp).await
    }

    /// Posts JSON with these headers, once, for a caller that signs nothing. `now` is in seconds
    /// since 1970.
    pub async fn post(&self, url: &str, headers: &[(String, String)], body: Bytes, now: i64) -> AttemptResult {
        let Some(target) = Target::parse(url) else { return AttemptResult::Failure(DeliveryFailure::InvalidUrl) };
        let posted = async {
            let headers: Vec<(&str, String)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            self.exchange(&target, request(&target, &headers, body)?, now).await
        };
        posted.await.unwrap_or_else(AttemptResult::Failure)
    }

    async fn exchange(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        sent_at: i64,
    ) -> Result<AttemptResult, DeliveryFailure> {
        let deadline = Instant::now() + self.attempt_timeout;
        let too_late = |_| DeliveryFailure::Timeout;
        let stream = timeout_at(deadline, connect(&self.dialer, &self.guard, target)).await.map_err(too_late)??;
        if !target.is_https {
            return exchange(stream, request, sent_at, deadline).await;
        }
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = timeout_at(deadline, connector.connect(server_name(target)?, stream)).await.map_err(too_late)?;
        exchange(stream.map_err(|_| DeliveryFailure::TlsFailed)?, request, sent_at, deadline).await
    }
}

fn request(target: &Target, headers: &[(&str, String)], body: Bytes) -> Result<Request<Full<Bytes>>, DeliveryFailure> {
    let text = |text: &str| HeaderValue::from_str(text).map_err(|_| DeliveryFailure::InvalidUrl);
    let mut request = Request::post(&target.path)
        .header(HOST, text(&target.authority)?)
        .header(USER_AGENT, AGENT)
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close");
    for (name, value) in headers {
        request = request.header(*name, text(value)?);
    }
    request.body(Full::new(body)).map_err(|_| DeliveryFailure::InvalidUrl)
}

/// Sends the request and reads the response. The connection ends with this call.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    request: Request<Full<Bytes>>,
    sent_at: i64,
    deadline: Instant,
) -> Result<AttemptResult, DeliveryFailure> {
    let mut builder = http1::Builder::new();
    builder.max_headers(HEADERS_MAX).max_buf_size(BUFFER_BYTES_MAX);
    let invalid = |_| DeliveryFailure::InvalidResponse;
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(invalid)?;
    let mut exchange = pin!(async move {
        let response = timeout_at(deadline, sender.send_request(request)).await;
        let response = response.map_err(|_| DeliveryFailure::Timeout)?.map_err(invalid)?;
        let result = result_of(&response, sent_at);
        // The status has decided: a body that is endless or slow changes nothing.
        drop(timeout(BODY_TIMEOUT, read_bounded(response.into_body())).await);
        Ok(result)
    });
    let mut connection = pin!(connection);
    tokio::select! {
        result = &mut exchange => return result,
        _ = &mut connection => {}
    }
    // The connection has ended. What it has received is still returned.
    exchange.await
}

fn result_of(response: &Response<Incoming>, sent_at: i64) -> AttemptResult {
    let now = UNIX_EPOCH + Duration::from_secs(sent_at.max(0).cast_unsigned());
    let pause = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = pause.and_then(|text| parse_retry_after(text, now));
    AttemptResult::Response { status: response.status().as_u16(), retry_after }
}

async fn read_bounded(mut body: Incoming) {
    let mut read = 0;
    while read < RESPONSE_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}
