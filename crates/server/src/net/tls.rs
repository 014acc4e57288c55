//! TLS of accepted connections: the handshake, and the certificate that is read again.

use std::time::Duration;

use longshore_api::error::PROBLEM_JSON;
use longshore_tls::ServerTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::state::AppState;
use crate::wire::problem::ApiError;

/// First byte of every TLS connection: a record of the handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// How long a refused client may take to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two looks at the files of the certificate.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the encrypted stream; `None` if the client does not complete the handshake.
///
/// The time is bounded by `limit`, and the size of a message by rustls (64 KiB).
pub(super) async fn handshake(tls: &ServerTls, mut stream: TcpStream, limit: Duration) -> Option<TlsStream<TcpStream>> {
    let accept = async {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first == [HANDSHAKE_RECORD] => {}
            // A client of plain HTTP learns what is wrong.
            Ok(1) => {
                drop(timeout(REFUSAL_TIMEOUT, refuse_plain(&mut stream)).await);
                return None;
            }
            Ok(_) | Err(_) => return None,
        }
        match TlsAcceptor::from(tls.config()).accept(stream).await {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
        }
    };
    timeout(limit, accept).await.ok().flatten()
}

/// Answers in plain HTTP, and reads what the client has sent: unread bytes would reset the
/// connection before the client has read the answer.
async fn refuse_plain(stream: &mut TcpStream) {
    let refusal = ApiError::bad_request("this port speaks TLS: use https instead of http");
    let body = serde_json::to_string(refusal.problem()).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    if stream.write_all(answer.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        let mut rest = [0; 4 << 10];
        while stream.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
    }
}

/// Reads the certificate again when its files change, until the server has drained.
pub(crate) async fn keep_certificate_current(app: AppState) {
    let Some(tls) = app.tls.clone() else { return };
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = app.drained.cancelled() => return,
        }
        match tls.reload_if_changed() {
            Ok(false) => {}
            Ok(true) => tracing::info!("the certificate has changed; new connections use it"),
            Err(error) => tracing::error!(%error, "the changed certificate is not used; the server keeps the old one"),
        }
    }
}
