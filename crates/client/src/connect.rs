//! How a client reaches its server: over TCP, or inside the process.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::error::BoxedError;

/// Opens a connection to a server in the same process.
pub(crate) type Dial = Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Connector {
    Tcp(HttpConnector),
    InProcess(Dial),
}

pub(crate) enum ServerStream {
    Tcp(TokioIo<TcpStream>),
    InProcess(TokioIo<DuplexStream>),
}

impl Service<Uri> for Connector {
    type Response = ServerStream;
    type Error = BoxedError;
    type Future = Pin<Box<dyn Future<Output = Result<ServerStream, BoxedError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxedError>> {
        match self {
            Self::Tcp(connector) => connector.poll_ready(context).map_err(Into::into),
            Self::InProcess(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self {
            Self::Tcp(connector) => {
                let connecting = connector.call(uri);
                Box::pin(async move { Ok(ServerStream::Tcp(connecting.await?)) })
            }
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
            Self::InProcess(_) => Connected::new(),
        }
    }
}

impl Read for ServerStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::InProcess(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl Write for ServerStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::InProcess(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::InProcess(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::InProcess(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
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
            Self::InProcess(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }
}
