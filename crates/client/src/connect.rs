//! How a client reaches its server: over TCP, with TLS or without, or inside the process.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

use crate::error::{BoxedError, TimeoutError};

/// Opens a connection to a server in the same process.
pub(crate) type Dial = Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>;

/// How the server is reached.
#[derive(Clone)]
pub(crate) enum Transport {
    Plain,
    Tls(Arc<ClientConfig>),
    InProcess(Dial),
}

#[derive(Clone)]
pub(crate) enum Connector {
    Tcp(HttpConnector),
    Tls(TlsDialer),
    InProcess(Dial),
}

/// Connects over TCP, then shakes hands within the time of a connection attempt.
#[derive(Clone)]
pub(crate) struct TlsDialer {
    tcp: HttpConnector,
    config: Arc<ClientConfig>,
    timeout: Duration,
}

impl Transport {
    pub(crate) fn connector(&self, timeout: Duration) -> Connector {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeout));
        match self {
            Self::Plain => Connector::Tcp(tcp),
            Self::InProcess(dial) => Connector::InProcess(Arc::clone(dial)),
            Self::Tls(config) => {
                // The connector refuses https, which begins above it.
                tcp.enforce_http(false);
                Connector::Tls(TlsDialer { tcp, config: Arc::clone(config), timeout })
            }
        }
    }
}

impl TlsDialer {
    fn dial(&mut self, uri: &Uri) -> impl Future<Output = Result<ServerStream, BoxedError>> + Send + use<> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let (connecting, timeout) = (self.tcp.call(uri.clone()), self.timeout);
        // An address of IPv6 is in brackets.
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned());
        async move {
            let stream = connecting.await?.into_inner();
            let encrypted = tokio::time::timeout(timeout, connector.connect(name?, stream)).await;
            let encrypted = encrypted.map_err(|_| TimeoutError(timeout))??;
            Ok(ServerStream::Tls(Box::new(TokioIo::new(encrypted))))
        }
    }
}

pub(crate) enum ServerStream {
    Tcp(TokioIo<TcpStream>),
    /// Large beside the others.
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
    InProcess(TokioIo<DuplexStream>),
}

impl Service<Uri> for Connector {
    type Response = ServerStream;
    type Error = BoxedError;
    type Future = Pin<Box<dyn Future<Output = Result<ServerStream, BoxedError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxedError>> {
        match self {
            Self::Tcp(connector) => connector.poll_ready(context).map_err(Into::into),
            Self::Tls(dialer) => dialer.tcp.poll_ready(context).map_err(Into::into),
            Self::InProcess(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self {
            Self::Tcp(connector) => {
                let connecting = connector.call(uri);
                Box::pin(async move { Ok(ServerStream::Tcp(connecting.await?)) })
            }
            Self::Tls(dialer) => Box::pin(dialer.dial(&uri)),
            Self::InProcess(dial) => {
                let stream = dial();
                Box::pin(async move { Ok(ServerStream::InProcess(TokioIo::new(stream?))) })
            }
        }
    }
}

impl Connection for ServerStream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tcp(stream) => stream.connected(),
            Self::Tls(_) | Self::InProcess(_) => Connected::new(),
        }
    }
}

impl Read for ServerStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, buffer),
            Self::InProcess(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl Write for ServerStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
            Self::InProcess(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
            Self::InProcess(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
            Self::InProcess(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::InProcess(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, bytes),
            Self::InProcess(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }
}
